/* SPDX-License-Identifier: Apache-2.0 */
/* Classes and pauses in virtual time: a high class is served although long answers of a low class fill the seats, every
 * request ends, a paused stream goes on from its cached blocks, and pauses are bounded. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "fleet/sim/generate.h"
#include "small_fleet.h"
#include "tests/unit/trials.h"

enum { HIGH, LOW };

/* Short answers at 4/s beside long ones at 16/s, of which the fleet serves about 3/s. */
static struct generate_opts two_kinds(uint64_t seed)
{
    return (struct generate_opts){.kind = GENERATE_MIX,
                                  .rate_per_s = 4,
                                  .duration_s = 60,
                                  .prompt_tokens = 700,
                                  .answer_tokens = 64,
                                  .block_tokens = 32,
                                  .other_rate_per_s = 16,
                                  .other_prompt_tokens = 700,
                                  .other_answer_tokens = 400,
                                  .marks_kinds = true,
                                  .seed = seed};
}

static void define(struct sim_opts *opts, const char *text)
{
    struct fault fault = {0};

    if (opts->classes.n == 0)
        picker_classes_init(&opts->classes, opts->ttft_slo_ns, opts->itl_slo_ns);
    assert_int_equal(picker_classes_add(&opts->classes, bytes_of(text, strlen(text)), &fault), 0);
}

static struct sim_opts two_classes(const char *low)
{
    struct sim_opts opts = small_fleet(true);

    define(&opts, "default priority=10");
    define(&opts, low);
    return opts;
}

static struct sim_result run_seed(const struct sim_opts *opts, uint64_t seed)
{
    const struct generate_opts load_opts = two_kinds(seed);
    struct generate *generate;
    struct sim_result result;
    struct sim_load load;

    assert_int_equal(generate_new(&load_opts, &generate), 0);
    load = generate_load(generate);
    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    generate_free(generate);
    return result;
}

static struct sim_result run(const struct sim_opts *opts)
{
    return run_seed(opts, 3);
}

static double good_share(const struct sim_class *kind)
{
    return (double)kind->n_good / (double)kind->n_arrived;
}

static void all_end(const struct sim_result *result)
{
    assert_int_equal(result->n_classes, 2);
    for (unsigned at = 0; at < 2; at++) {
        const struct sim_class *kind = &result->classes[at];
        uint64_t n = kind->n_done + kind->n_cancelled;

        for (unsigned i = 0; i < REFUSAL_REASONS; i++)
            n += kind->n_refused[i];
        assert_int_equal(n, kind->n_arrived);
        assert_true(kind->n_arrived > 100);
    }
}

/* Single loads differ by more than the order of the classes gains, so these are the means of several. */
static void a_high_class_gets_the_seats_of_a_low_one(void **state)
{
    const unsigned n_seeds = trials(64, 2);
    struct sim_opts equal = two_classes("low priority=10"), first = two_classes("low priority=0"),
                    paused = two_classes("low priority=0 may-be-paused=1min");
    const struct sim_opts *all[] = {&equal, &first, &paused};
    double high_good[3] = {0}, low_good[3] = {0};

    for (unsigned at = 0; at < 3 * n_seeds; at++) {
        unsigned i = at % 3;
        struct sim_result result = run_seed(all[i], 1 + at / 3);

        all_end(&result);
        assert_int_equal(result.classes[HIGH].n_pauses, 0);
        assert_int_equal(result.classes[LOW].n_pauses > 0, i == 2);
        high_good[i] += good_share(&result.classes[HIGH]) / n_seeds;
        low_good[i] += good_share(&result.classes[LOW]) / n_seeds;
        sim_result_fini(&result);
    }
    for (unsigned i = 0; i < 3; i++)
        print_message("good: high %.1f %%, low %.1f %%\n", 100 * high_good[i], 100 * low_good[i]);
    if (trials_are_sanitized()) /* too few for a mean */
        return;
    assert_true(high_good[1] > high_good[0]);
    assert_true(high_good[2] > high_good[1] + 0.15);
    assert_true(high_good[2] > 0.75);
}

/* No prompts share blocks, so all cached tokens are those of streams that went on.  They find what they had computed, up
 * to the last block. */
static void paused_streams_go_on_from_their_blocks(void **state)
{
    struct sim_opts opts = two_classes("low priority=0 may-be-paused=1min");
    struct sim_result result;
    uint64_t n_pauses;

    opts.kv_tokens = 1000000;
    result = run(&opts);
    n_pauses = result.classes[LOW].n_pauses;
    assert_true(n_pauses > 50);
    assert_true(result.cached_tokens > 500 * n_pauses);
    assert_true(result.computed_tokens <
                result.classes[HIGH].prompt_tokens + result.classes[LOW].prompt_tokens + 64 * n_pauses);
    sim_result_fini(&result);
    opts = two_classes("low priority=0");
    result = run(&opts);
    assert_int_equal(result.cached_tokens, 0);
    sim_result_fini(&result);
}

static void pauses_are_bounded(void **state)
{
    struct sim_opts opts = two_classes("low priority=0 may-be-paused=100ms");
    struct sim_result result = run(&opts);
    const struct sim_class *low = &result.classes[LOW];

    all_end(&result);
    assert_true(low->n_pauses > 10);
    assert_true(low->paused_s < 0.125 * (double)low->n_pauses); /* it is looked after each 20 ms */
    sim_result_fini(&result);
}

static void crashes_and_cancels_end_pauses(void **state)
{
    struct sim_opts opts = two_classes("low priority=0 may-be-paused=1min");
    struct sim_result a, b;

    opts.n_prefill = opts.n_decode = 2;
    opts.n_routers = 2;
    opts.cancel_share = 0.2;
    opts.crash_every_s = 5;
    opts.start_ns = 2 * NS_PER_S;
    a = run(&opts);
    b = run(&opts);
    all_end(&a);
    assert_true(a.classes[LOW].n_pauses > 10 && a.classes[LOW].n_cancelled > 10 && a.n_replaced > 10);
    assert_memory_equal(a.classes, b.classes, sizeof(a.classes));
    assert_int_equal(a.end_ns, b.end_ns);
    sim_result_fini(&a);
    sim_result_fini(&b);
}

static void a_class_has_its_share_of_the_queue(void **state)
{
    struct sim_opts opts = two_classes("low priority=0 share=0%");
    struct sim_result result;

    opts.refuses_early = false;
    result = run(&opts);
    all_end(&result);
    assert_true(result.classes[LOW].n_refused[REFUSED_SHARE] > 100);
    assert_int_equal(result.classes[HIGH].n_refused[REFUSED_SHARE], 0);
    sim_result_fini(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_high_class_gets_the_seats_of_a_low_one),
        cmocka_unit_test(paused_streams_go_on_from_their_blocks),
        cmocka_unit_test(pauses_are_bounded),
        cmocka_unit_test(crashes_and_cancels_end_pauses),
        cmocka_unit_test(a_class_has_its_share_of_the_queue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
