/* SPDX-License-Identifier: Apache-2.0 */
/* Learned rates that workers report, and the rows that placement sees. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "rig_fixture.h"

static void report_prompts(struct link *link, double tokens_per_s, double token_s, double pair_s)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 10000;
    load.decode_step_s = 0.002;
    load.prefill_tokens_per_s = tokens_per_s;
    load.prompt_token_s = token_s;
    load.prompt_pair_s = pair_s;
    rig_beat(&rig, link, &load);
}

static double predicted_s(uint32_t slot, uint32_t n_tokens)
{
    struct picker_worker row;

    picker_fleet_row(rig.router.fleet, slot, &row);
    return picker_prompt_s(&row, 0, n_tokens);
}

/* The prefill worker has read long prompts, and its mean speed fell to a third.  The decode worker has read
 * only short ones.  Both run on equal machines, so a long prompt takes both equally long. */
static void a_worker_without_long_prompts_does_not_look_faster(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);

    report_prompts(d, 19067, 52e-6, 0);
    assert_true(predicted_s(1, 60000) < 4); /* no worker has a better value yet */
    report_prompts(p, 5345, 61e-6, 53e-9);
    report_prompts(d, 19067, 52e-6, 0);
    assert_true(predicted_s(0, 60000) > 90 && predicted_s(0, 60000) < 110);
    assert_true(predicted_s(1, 60000) > 75 && predicted_s(1, 60000) < 110);
    report_prompts(p, 5345, 61e-6, 53e-6); /* one bad report, a thousand times too high */
    report_prompts(d, 19067, 52e-6, 0);
    assert_true(predicted_s(1, 60000) < 1.2 * 110);
}

/* A queue has the reported time; prompts dispatched since then are added. */
static void a_queue_has_its_predicted_time(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;
    struct picker_charge charge = {.prefill_tokens = 3000};
    struct picker_worker row;

    load.blocks_free = load.blocks_total = 10000;
    load.prefill_tokens_per_s = 1000;
    load.queued_prefill_tokens = 1000;
    load.queued_prefill_s = 5; /* prompts with much attention */
    rig_beat(&rig, p, &load);
    picker_fleet_row(rig.router.fleet, 0, &row);
    assert_true(picker_queue_s(&row) == 5);
    picker_fleet_charge(rig.router.fleet, 0, &charge, 0);
    picker_fleet_row(rig.router.fleet, 0, &row);
    assert_true(picker_queue_s(&row) > 6.9 && picker_queue_s(&row) < 7.1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_without_long_prompts_does_not_look_faster, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(a_queue_has_its_predicted_time, open_rig, close_rig),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
