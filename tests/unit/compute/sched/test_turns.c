/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants and steps.  Prompts take turns by tokens, in any order of arrival and of any length.  Seats follow
 * the same order.  A full queue makes room for the tenant with fewer requests.  None of this changes an
 * answer. */
#include "tests/unit/check.h"

#include "base/err.h"
#include "cache/kv/pool_quota.h"
#include "tests/unit/compute/sched/rig.h"

enum { CALM = 1, LOUD = 2, N_TEXTS = 24, MAX_PROMPT = 160 };

static struct rig rig;
static token_id prompts[N_TEXTS][MAX_PROMPT];
static uint64_t fed[3]; /* prompt tokens by tenant */

static int open_rig(const struct rig_opts *opts)
{
    for (uint32_t i = 0; i < N_TEXTS; i++)
        rig_prompt(prompts[i], MAX_PROMPT, 50 + i);
    fed[CALM] = fed[LOUD] = 0;
    rig_open(&rig, opts);
    return 0;
}

static int setup(void **state)
{
    return open_rig(&(struct rig_opts){.n_blocks = 2000, .max_seqs = 12, .max_queue = 8});
}

static int setup_few_places(void **state)
{
    return open_rig(&(struct rig_opts){.n_blocks = 2000, .max_seqs = 2, .max_queue = 16});
}

static int teardown(void **state)
{
    rig_close(&rig);
    return 0;
}

static int try_submit(kv_tenant tenant, uint32_t text, uint32_t n_tokens, uint32_t n_new, struct track *track)
{
    struct seq_spec spec = rig_spec(prompts[text], n_tokens, n_new, text);

    spec.tenant = tenant;
    return rig_submit(&rig, spec, track);
}

static void submit(kv_tenant tenant, uint32_t text, uint32_t n_tokens, uint32_t n_new, struct track *track)
{
    assert_int_equal(try_submit(tenant, text, n_tokens, n_new, track), 0);
}

static void assert_as_alone(const struct track *track, uint32_t text, uint32_t n_tokens, uint32_t n_new)
{
    struct seq_spec spec = rig_spec(prompts[text], n_tokens, n_new, text);
    struct track alone = {0};

    rig_alone(&spec, 0, 0, &alone);
    rig_assert_same(track, &alone);
}

/* With 16 tokens in a step, a newcomer gets the next step, and does not wait for the flood. */
static void a_flood_costs_a_newcomer_no_step(void **state)
{
    struct track loud[8] = {0}, calm[4] = {0};

    for (uint32_t i = 0; i < 8; i++)
        submit(LOUD, i, 150, 1, &loud[i]);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n_before;

        for (uint32_t k = 0; k < 3; k++)
            rig_step(&rig);
        n_before = rig.n_steps;
        submit(CALM, 10 + i, 12, 1, &calm[i]);
        while (!calm[i].is_done)
            rig_step(&rig);
        assert_int_equal(rig.n_steps - n_before, 1);
        assert_as_alone(&calm[i], 10 + i, 12, 1);
    }
    rig_run(&rig);
    for (uint32_t i = 0; i < 8; i++)
        assert_as_alone(&loud[i], i, 150, 1);
}

static void one_long_prompt_is_no_wall(void **state)
{
    struct track loud = {0}, calm = {0};

    submit(LOUD, 0, MAX_PROMPT, 4, &loud);
    rig_step(&rig);
    submit(CALM, 1, 20, 4, &calm);
    while (!calm.is_done)
        rig_step(&rig);
    assert_int_equal(loud.n_answer, 0);
    rig_run(&rig);
    assert_as_alone(&loud, 0, MAX_PROMPT, 4);
    assert_as_alone(&calm, 1, 20, 4);
}

/* Half of the steps belong to the long prompt, for any number of short prompts of other tenants. */
static void a_long_prompt_gets_on_beside_short_ones(void **state)
{
    struct track loud = {0}, calm[N_TEXTS] = {0};
    uint32_t n = 1;

    submit(LOUD, 0, MAX_PROMPT, 1, &loud);
    for (uint32_t step = 0; !loud.is_done; step++) {
        while (n < N_TEXTS && rig.n_steps >= step && try_submit(CALM, n, 12, 1, &calm[n]) == 0)
            n++;
        rig_step(&rig);
        assert_in_range(step, 0, 2 * MAX_PROMPT / 16 + 4);
    }
}

static void a_freed_place_goes_to_who_was_served_less(void **state)
{
    struct track loud[6] = {0}, calm = {0};

    for (uint32_t i = 0; i < 6; i++)
        submit(LOUD, i, 20, 30, &loud[i]);
    for (uint32_t i = 0; i < 10; i++)
        rig_step(&rig);
    submit(CALM, 10, 12, 2, &calm);
    while (!calm.is_done)
        rig_step(&rig);
    assert_int_equal(loud[4].n_admitted + loud[5].n_admitted, 0);
}

static void a_full_queue_makes_room_for_who_has_less(void **state)
{
    struct track loud[16] = {0}, calm[3] = {0};
    uint32_t n = 0;

    while (try_submit(LOUD, n, 100, 1, &loud[n]) == 0)
        n++;
    assert_int_equal(n, 8);
    for (uint32_t i = 0; i < 3; i++)
        submit(CALM, 10 + i, 12, 1, &calm[i]);
    assert_int_equal(try_submit(LOUD, 9, 100, 1, &loud[9]), E_OVERLOADED);
    rig_run(&rig);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(loud[i].finish, i < 5 ? SEQ_FINISH_LENGTH : SEQ_FINISH_CROWDED);
    for (uint32_t i = 0; i < 3; i++)
        assert_as_alone(&calm[i], 10 + i, 12, 1);
}

static void note_fed(struct track *track, const char *event)
{
    if (track->is_done)
        fed[(size_t)track->arg]++;
}

/* With weights 1 and 3, one tenant's prompts end three times as often as the other's. */
static void shares_are_as_weights(void **state)
{
    struct track tracks[2][4] = {0};
    uint64_t text = 1000;
    token_id prompt[60];

    for (uint32_t step = 0; step < 400; step++) {
        for (uint32_t who = 0; who < 2; who++) {
            for (uint32_t i = 0; i < 4; i++) {
                struct track *track = &tracks[who][i];
                struct seq_spec spec;

                if (step > 0 && !track->is_done)
                    continue;
                rig_prompt(prompt, 60, (uint32_t)text++);
                spec = rig_spec(prompt, 60, 1, text);
                spec.tenant = who == 0 ? CALM : LOUD;
                spec.work.weight = who == 0 ? 1 : 3;
                track->hook = note_fed;
                track->arg = (void *)(size_t)spec.tenant;
                assert_int_equal(rig_submit(&rig, spec, track), 0);
            }
        }
        rig_step(&rig);
    }
    assert_in_range(10 * fed[LOUD], 27 * fed[CALM], 33 * fed[CALM]);
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_flood_costs_a_newcomer_no_step, setup, teardown),
        cmocka_unit_test_setup_teardown(one_long_prompt_is_no_wall, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_prompt_gets_on_beside_short_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(a_freed_place_goes_to_who_was_served_less, setup_few_places,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_full_queue_makes_room_for_who_has_less, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_are_as_weights, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
