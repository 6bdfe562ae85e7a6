/* SPDX-License-Identifier: Apache-2.0 */
/* Draft models in virtual time: they draft only where that saves time, read long prompts in slices, and give
 * their blocks back.
 *
 * The draft model is a second simulated engine.  It samples the tokens of the first one, but a wrapper replaces
 * some of them.  Like the first engine it checks all KV that it reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "tests/unit/compute/sched/rig.h"
#include "tests/unit/trials.h"

enum { DRAFT_BLOCK_TOKENS = 16, N_SEQS = 8, PROMPT_TOKENS = 3000 };

struct drafter {
    struct engine sim, engine;
    uint8_t *arena;
    uint32_t right; /* percent of its tokens that are left as they are */
    uint64_t n_steps;
    uint32_t n_longest; /* most tokens of a step */
    uint64_t cold_ns;   /* further time of each step before the first that samples */
    int fail_with;
};

static struct rig rig;
static struct drafter drafter;
static token_id prompt[PROMPT_TOKENS];

static int draft_step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    struct drafter *d = self;
    uint32_t n_tokens = 0, words[4];
    int rc = d->fail_with;

    d->n_steps++;
    if (d->cold_ns > 0)
        rig_sleep(NULL, d->cold_ns);
    for (uint32_t i = 0; i < batch->n_items; i++)
        d->cold_ns = batch->items[i].wants_token ? 0 : d->cold_ns;
    for (uint32_t i = 0; i < batch->n_items; i++)
        n_tokens += batch->items[i].n_tokens;
    d->n_longest = n_tokens > d->n_longest ? n_tokens : d->n_longest;
    assert_in_range(batch->n_items, 1, SCHED_DRAFT_SEQS);
    assert_in_range(n_tokens, 1, d->sim.info.max_batch_tokens);
    if (rc == 0)
        rc = engine_step(&d->sim, batch, results_out);
    for (uint32_t i = 0; i < batch->n_items && rc == 0; i++) {
        const struct engine_item *item = &batch->items[i];

        rng_counter(5, item->position + item->n_tokens, item->tag, words);
        if (item->wants_token && words[0] % 100 >= d->right)
            results_out[i].id = 10 + (results_out[i].id + 1) % (RIG_VOCAB - 10);
    }
    return rc;
}

static const struct engine_ops draft_ops = {.step = draft_step};

/* cost: percent of the model's step that a step of the draft model takes, and of a prompt token. */
static void open_drafter(uint32_t right, uint32_t cost, uint32_t n_blocks)
{
    struct engine_sim_opts sim = {.vocab_size = RIG_VOCAB,
                                  .first_text_id = 10,
                                  .stop_id = TOKEN_NONE,
                                  .context_length = 4000,
                                  .max_batch_tokens = 512,
                                  .layout = {.n_layers = 1,
                                             .n_kv_heads = 1,
                                             .k_dim = 8,
                                             .v_dim = 8,
                                             .block_tokens = DRAFT_BLOCK_TOKENS,
                                             .type = KV_F16},
                                  .n_blocks = n_blocks,
                                  .step_ns = 10000 * cost,
                                  .prefill_token_ns = 200 * cost,
                                  .decode_seq_ns = 100 * cost,
                                  .sleep_ns = rig_sleep};

    drafter = (struct drafter){.right = right};
    drafter.arena = calloc(n_blocks, kv_layout_block_bytes(&sim.layout));
    assert_non_null(drafter.arena);
    sim.kv_arena = drafter.arena;
    assert_int_equal(engine_sim_new(&sim, &drafter.sim), 0);
    drafter.engine = (struct engine){.ops = &draft_ops, .self = &drafter, .info = drafter.sim.info};
}

static void close_drafter(void)
{
    engine_free(&drafter.sim);
    free(drafter.arena);
}

static struct rig_opts opts_of(enum sched_speculate speculate, uint32_t draft_blocks)
{
    return (struct rig_opts){.n_blocks = 8000,
                             .context_length = 4000,
                             .max_batch_tokens = 512,
                             .chunk_tokens = 256,
                             .max_seqs = N_SEQS,
                             .max_drafts = 8,
                             .step_ns = 1000000,
                             .decode_seq_ns = 10000,
                             .prefill_token_ns = 20000,
                             .speculate = speculate,
                             .draft_engine = draft_blocks ? &drafter.engine : NULL,
                             .draft_blocks = draft_blocks};
}

struct took {
    uint64_t ns;                    /* of all answers */
    uint64_t n_drafted, n_accepted; /* of the draft model */
};

static struct took time_of(const struct rig_opts *opts, uint32_t n_seqs, uint32_t n_prompt)
{
    static struct track tracks[N_SEQS];
    struct sched_load load;
    struct took took;

    rig_echo = 0;
    rig_open(&rig, opts);
    took.ns = 0;
    for (uint32_t i = 0; i < n_seqs; i++) {
        memset(&tracks[i], 0, sizeof(tracks[i]));
        assert_int_equal(rig_submit(&rig, rig_spec(prompt + 7 * i, n_prompt, 200, i), &tracks[i]), 0);
    }
    rig_run(&rig);
    for (uint32_t i = 0; i < n_seqs; i++)
        took.ns += tracks[i].stats.decode_ns;
    sched_load(rig.sched, &load);
    took.n_drafted = load.n_drafted[SCHED_DRAFT_MODEL];
    took.n_accepted = load.n_accepted[SCHED_DRAFT_MODEL];
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct seq_spec spec = rig_spec(prompt + 7 * i, n_prompt, 200, i);
        struct track alone = {0};

        rig_alone(&spec, 4000, 0, &alone);
        rig_assert_same(&tracks[i], &alone);
    }
    rig_close(&rig);
    return took;
}

/* Acceptance rates from 0 to 1, and draft models from almost free to as slow as the model. */
static void it_is_used_where_it_pays(void **state)
{
    static const uint32_t rights[] = {0, 40, 70, 90, 100}, costs[] = {2, 10, 30, 100}, seqs[] = {1, 3, 8};

    (void)state;
    print_message(
        "plain time / time with a draft model\n  cost  sequences   right 0    40    70    90   100\n");
    for (size_t i = trials(0, 3); i < sizeof(costs) / sizeof(costs[0]); i++) {
        for (size_t j = trials(0, 2); j < sizeof(seqs) / sizeof(seqs[0]); j++) {
            struct rig_opts plain = opts_of(SPECULATE_OFF, 0);
            double ratios[5], plain_ns = (double)time_of(&plain, seqs[j], 40).ns;

            for (size_t k = 0; k < 5; k++) {
                struct rig_opts opts;

                open_drafter(rights[k], costs[i], 200);
                opts = opts_of(SPECULATE_AUTO, 200);
                ratios[k] = plain_ns / (double)time_of(&opts, seqs[j], 40).ns;
                close_drafter();
                assert_true(ratios[k] > 0.9); /* reading, and the speculation budget of a new scheduler */
            }
            print_message("  %3u %% %6u %12.2f %6.2f %6.2f %6.2f %6.2f\n", costs[i], seqs[j], ratios[0],
                          ratios[1], ratios[2], ratios[3], ratios[4]);
            assert_true(costs[i] > 10 || (ratios[2] > 1.2 && ratios[4] > 3));
            assert_true(costs[i] < 100 || ratios[4] < 1.1);
        }
    }
}

/* Its first steps read the weights from the file.  They say nothing about the steps after them. */
static void a_cold_start_is_not_its_speed(void **state)
{
    struct rig_opts plain = opts_of(SPECULATE_OFF, 0), opts;
    double plain_ns = (double)time_of(&plain, 1, 40).ns;

    (void)state;
    open_drafter(90, 10, 200);
    drafter.cold_ns = 4000000; /* 4 steps of the model, 40 of its own */
    opts = opts_of(SPECULATE_AUTO, 200);
    assert_true(plain_ns / (double)time_of(&opts, 1, 40).ns > 1.5);
    close_drafter();
}

/* While the draft model reads a long prompt, in slices, no step takes much longer than before; afterwards it
 * drafts. */
static void it_reads_long_prompts_in_slices(void **state)
{
    struct rig_opts opts = opts_of(SPECULATE_AUTO, 400);
    struct track other = {0}, track = {0};
    uint64_t longest_ns = 0;
    struct sched_load load;

    (void)state;
    open_drafter(100, 10, 400);
    rig_echo = 0;
    rig_open(&rig, &opts);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 20, 230, 1), &other), 0);
    for (uint32_t i = 0; i < 30; i++)
        rig_step(&rig);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, PROMPT_TOKENS, 230, 2), &track), 0);
    while (track.n_answer == 0)
        rig_step(&rig);
    drafter.n_longest = 0;
    while (track.seq != NULL && track.n_answer < 60) {
        uint64_t began_ns = rig_now_ns;

        rig_step(&rig);
        if (drafter.n_longest > 32) /* a slice */
            longest_ns = rig_now_ns - began_ns > longest_ns ? rig_now_ns - began_ns : longest_ns;
        drafter.n_longest = 0;
    }
    assert_true(longest_ns > 0 && longest_ns < 2500000); /* 1 ms a step, its share, and drafts */
    rig_run(&rig);
    sched_load(rig.sched, &load);
    assert_true(track.stats.n_accepted > 50);
    assert_true(load.n_accepted[SCHED_DRAFT_MODEL] > 100);
    rig_close(&rig);
    close_drafter();
}

/* If the answer has few tokens, the draft model does not read a long prompt. */
static void it_reads_nothing_for_a_short_answer(void **state)
{
    struct rig_opts opts = opts_of(SPECULATE_AUTO, 400);
    struct track tracks[2];
    uint64_t n_steps;

    (void)state;
    open_drafter(100, 30, 400);
    rig_echo = 0;
    rig_open(&rig, &opts);
    for (uint32_t i = 0; i < 2; i++) { /* the first one shows what reading costs */
        memset(&tracks[i], 0, sizeof(tracks[i]));
        n_steps = drafter.n_steps;
        assert_int_equal(rig_submit(&rig, rig_spec(prompt + i, 2500, i == 0 ? 200 : 5, i), &tracks[i]), 0);
        rig_run(&rig);
        assert_true((drafter.n_steps > n_steps) == (i == 0));
    }
    rig_close(&rig);
    close_drafter();
}

/* The draft model has blocks for some of the sequences.  Sequences that end free more. */
static void blocks_for_some_are_enough(void **state)
{
    struct rig_opts opts = opts_of(SPECULATE_ALWAYS, 20);
    struct took took;

    (void)state;
    open_drafter(80, 10, 20);
    took = time_of(&opts, N_SEQS, 40); /* 15 blocks each in the end */
    assert_true(took.n_accepted > 100);
    close_drafter();
}

/* A failure of the draft model ends no answer.  The scheduler no longer uses the model. */
static void a_failed_one_is_left_alone(void **state)
{
    struct rig_opts opts = opts_of(SPECULATE_ALWAYS, 200);
    struct track track = {0};
    uint64_t n_steps;

    (void)state;
    open_drafter(100, 10, 200);
    rig_open(&rig, &opts);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 200, 1), &track), 0);
    while (track.n_answer < 50)
        rig_step(&rig);
    drafter.fail_with = E_INTERNAL;
    n_steps = drafter.n_steps;
    rig_run(&rig);
    assert_int_equal(track.n_answer, 200);
    assert_int_equal(drafter.n_steps, n_steps + 1);
    rig_close(&rig);
    close_drafter();
}

static void one_that_does_not_fit_is_refused(void **state)
{
    struct rig_opts opts = opts_of(SPECULATE_AUTO, 200);
    struct sched_opts sched = {
        .max_seqs = 4, .chunk_tokens = 8, .speculate = SPECULATE_AUTO, .max_drafts = 8};
    struct sched *out;

    (void)state;
    open_drafter(100, 10, 200);
    rig_open(&rig, &opts);
    sched.engine = &rig.engine;
    sched.pool = rig.pool;
    sched.draft_engine = &drafter.engine;
    drafter.engine.info.vocab_size++;
    assert_int_equal(sched_new(&sched, &out), E_MISMATCH);
    drafter.engine.info.vocab_size--;
    drafter.engine.info.layout.state_bytes = 64;
    assert_int_equal(sched_new(&sched, &out), E_UNSUPPORTED);
    drafter.engine.info.layout.state_bytes = 0;
    drafter.engine.info.layout.n_window_layers = 1;
    assert_int_equal(sched_new(&sched, &out), E_UNSUPPORTED);
    drafter.engine.info.layout.n_window_layers = 0;
    drafter.engine.info.max_batch_tokens = SCHED_DRAFT_SEQS;
    assert_int_equal(sched_new(&sched, &out), E_INVAL);
    rig_close(&rig);
    close_drafter();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_used_where_it_pays),
        cmocka_unit_test(a_cold_start_is_not_its_speed),
        cmocka_unit_test(it_reads_long_prompts_in_slices),
        cmocka_unit_test(it_reads_nothing_for_a_short_answer),
        cmocka_unit_test(blocks_for_some_are_enough),
        cmocka_unit_test(a_failed_one_is_left_alone),
        cmocka_unit_test(one_that_does_not_fit_is_refused),
    };

    rig_prompt(prompt, PROMPT_TOKENS, 3);
    return cmocka_run_group_tests_name("draft models", tests, NULL, NULL);
}
