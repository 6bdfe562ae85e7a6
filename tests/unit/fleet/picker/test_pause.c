/* SPDX-License-Identifier: Apache-2.0 */
/* Which streams are paused for a request: the fewest that help, in the order given, on one worker; none where that
 * would not help.  The fleet stays as it was. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/rng.h"
#include "fleet/picker/fleet_priv.h"
#include "fleet/picker/pause.h"

#define MAX_STREAMS 16

static struct {
    struct picker_fleet *fleet;
    struct picker_index *index;
    struct picker_booking bookings[MAX_STREAMS];
    struct picker_stream streams[MAX_STREAMS];
    uint32_t n_streams;
} rig;

static const struct picker_goals goals = {.ttft_slo_s = 1, .itl_slo_s = 0.05, .local_prefill_tokens = 10000};

static int open_rig(void **state)
{
    memset(&rig, 0, sizeof(rig));
    assert_int_equal(picker_fleet_new(0, &rig.fleet), 0);
    return picker_index_new(1000, 100, &rig.index);
}

static int close_rig(void **state)
{
    picker_fleet_free(rig.fleet);
    picker_index_free(rig.index);
    return 0;
}

/* A decode worker: a step of 10 ms and 2 ms for each of its sequences. */
static struct picker_worker decode_worker(uint32_t max_seqs, uint32_t blocks_free)
{
    return (struct picker_worker){.is_usable = true,
                                  .role = PICKER_DECODE,
                                  .block_tokens = 32,
                                  .blocks_free = blocks_free,
                                  .blocks_total = 1000,
                                  .max_seqs = max_seqs,
                                  .prefill_tokens_per_s = 10000,
                                  .decode_step_s = 0.012,
                                  .step_seqs = 1,
                                  .decode_row_s = 0.002,
                                  .reported_ns = 1,
                                  .transfer_bytes_per_s = 1e10,
                                  .kv_bytes_per_token = 65536};
}

/* Streams of so many tokens run there, since before its report or since after it. */
static void run(uint32_t slot, uint32_t n, uint32_t n_tokens, bool is_reported)
{
    struct picker_worker row = rig.fleet->slots[slot].reported;

    for (uint32_t i = 0; i < n; i++) {
        struct picker_booking *booking = &rig.bookings[rig.n_streams];

        *booking = (struct picker_booking){.slot = slot,
                                           .charge = {.context_tokens = n_tokens, .answer_tokens = 64}};
        picker_fleet_charge(rig.fleet, slot, &booking->charge, 0);
        picker_booking_started(rig.fleet, booking, 0);
        rig.streams[rig.n_streams++] = (struct picker_stream){.booking = booking, .context_tokens = n_tokens};
    }
    if (!is_reported)
        return;
    row.n_running += n;
    row.reported_ns++;
    assert_int_equal(picker_fleet_set(rig.fleet, slot, &row), 0);
}

static bool choose(uint32_t n_tokens, struct picker_pause *out)
{
    struct picker_place place = {.fleet = rig.fleet,
                                 .index = rig.index,
                                 .now_ns = 10,
                                 .request = {.n_tokens = n_tokens, .max_new_tokens = 64}};

    return picker_pause_choose(&place, &goals, rig.streams, rig.n_streams, out);
}

static void set(uint32_t slot, const struct picker_worker *row)
{
    assert_int_equal(picker_fleet_set(rig.fleet, slot, row), 0);
}

static void the_first_in_order_gives_its_seat(void **state)
{
    struct picker_worker row = decode_worker(4, 1000);
    struct picker_pause pause;

    set(3, &row);
    run(3, 4, 100, true);
    assert_true(choose(100, &pause));
    assert_int_equal(pause.n, 1);
    assert_int_equal(pause.chosen[0], 0);
}

static void as_many_as_the_time_between_tokens_needs(void **state)
{
    struct picker_worker row = decode_worker(64, 1000);
    struct picker_pause pause;

    set(0, &row);
    run(0, 10, 100, true); /* 10 ms + 10 x 2 ms is within 50 ms */
    assert_true(choose(100, &pause));
    row.n_running = 24; /* 58 ms: 20 keep the objective */
    row.reported_ns = 5;
    set(0, &row);
    assert_true(choose(100, &pause));
    assert_int_equal(pause.n, 4);
    row.n_running = 40; /* more than may be paused for one request */
    row.reported_ns = 6;
    set(0, &row);
    assert_false(choose(100, &pause));
}

static void as_many_as_the_blocks_need(void **state)
{
    struct picker_worker row = decode_worker(64, 10);
    struct picker_pause pause;

    set(0, &row);
    run(0, 6, 640, true);
    row = rig.fleet->slots[0].reported;
    row.reported_ns = 7;
    row.blocks_free = 10; /* and 20 of each stream: 1,000 tokens and 64 need 34 */
    set(0, &row);
    assert_true(choose(1000, &pause));
    assert_int_equal(pause.n, 2);
}

/* Its blocks are not in the report yet, so its end does not give them back. */
static void blocks_that_no_report_counts_are_not_given_back(void **state)
{
    struct picker_worker row = decode_worker(64, 50);
    struct picker_worker before, after;
    struct picker_pause pause;

    set(0, &row);
    run(0, 2, 640, false);
    picker_fleet_row(rig.fleet, 0, &before);
    assert_int_equal(before.blocks_free, 10); /* they began since the report: 40 of 50 blocks */
    assert_true(choose(700, &pause));
    assert_int_equal(pause.n, 1);
    picker_booking_cancelled(rig.fleet, &rig.bookings[0], 640, 0);
    picker_fleet_row(rig.fleet, 0, &after);
    assert_int_equal(after.blocks_free, 30);
    picker_booking_over(rig.fleet, &rig.bookings[1], 0);
    picker_fleet_row(rig.fleet, 0, &after);
    assert_int_equal(after.blocks_free, 50);
}

static void the_worker_with_fewest_pauses_is_taken(void **state)
{
    struct picker_worker row = decode_worker(64, 1000);
    struct picker_pause pause;

    set(1, &row);
    set(2, &row);
    run(1, 6, 100, true);
    run(2, 6, 100, true);
    row.n_running = 26; /* 6 too many */
    row.reported_ns = 9;
    set(1, &row);
    row.n_running = 22; /* 2 too many */
    set(2, &row);
    assert_true(choose(100, &pause));
    assert_int_equal(pause.n, 2);
    assert_int_equal(rig.streams[pause.chosen[0]].booking->slot, 2);
    assert_int_equal(rig.streams[pause.chosen[1]].booking->slot, 2);
}

/* A prompt that must wait for other prompts would be late with any seat. */
static void a_backlog_of_prompts_pauses_nothing(void **state)
{
    struct picker_worker row = decode_worker(2, 1000);
    struct picker_pause pause;

    row.queued_prefill_tokens = 100000;
    set(0, &row);
    run(0, 2, 100, true);
    assert_false(choose(100, &pause));
}

static void a_choice_changes_nothing(void **state)
{
    struct rng rng;

    rng_init(&rng, 11);
    for (unsigned round = 0; round < 200; round++) {
        struct picker_worker row =
            decode_worker((uint32_t)rng_below(&rng, 8), (uint32_t)rng_below(&rng, 200));
        struct fleet_slot before;
        struct pick_row line;
        struct picker_pause pause;

        open_rig(NULL);
        set(0, &row);
        run(0, 1 + (uint32_t)rng_below(&rng, 12), 1 + (uint32_t)rng_below(&rng, 900),
            rng_below(&rng, 2) == 0);
        before = rig.fleet->slots[0];
        line = rig.fleet->pools[before.pool].rows[before.at];
        if (choose(1 + (uint32_t)rng_below(&rng, 3000), &pause))
            assert_in_range(pause.n, 1, PICKER_MAX_PAUSED);
        assert_memory_equal(&before, &rig.fleet->slots[0], sizeof(before));
        assert_memory_equal(&line, &rig.fleet->pools[before.pool].rows[before.at], sizeof(line));
        for (uint32_t i = 0; i < rig.n_streams; i++)
            picker_booking_over(rig.fleet, &rig.bookings[i], 0);
        assert_int_equal(picker_fleet_ledger(rig.fleet, 0)->n_seqs, 0);
        assert_int_equal(picker_fleet_ledger(rig.fleet, 0)->context_tokens, 0);
        assert_int_equal(rig.fleet->slots[0].begun_tokens, 0);
        close_rig(NULL);
    }
}

/* ---- the rules of the streams' owner ---- */

static void a_stream_progresses_and_has_a_limit(void **state)
{
    const struct picker_pause_past none = {0}, one = {.n = 1, .went_on_at = 10, .paused_ns = 500};

    assert_false(picker_pause_may(&none, 0, 1000)); /* it has not begun */
    assert_true(picker_pause_may(&none, 1, 1000));
    assert_false(picker_pause_may(&none, 1, 0));
    assert_false(picker_pause_may(&one, 41, 1000));
    assert_true(picker_pause_may(&one, 42, 1000));
    assert_false(picker_pause_may(&one, 42, 500));
}

static void a_class_that_may_be_paused_keeps_the_higher_objectives(void **state)
{
    struct picker_classes classes = {.all = {{.itl_slo_ns = 50, .priority = 5},
                                             {.itl_slo_ns = 20, .priority = 10},
                                             {.itl_slo_ns = 90, .priority = 0, .pause_ns = 1},
                                             {.itl_slo_ns = 90, .priority = 0}},
                                     .n = 4};
    uint32_t n_at_workers[PICKER_MAX_CLASSES] = {0};

    assert_int_equal(picker_pause_itl_ns(&classes, 2, n_at_workers), 90);
    n_at_workers[0] = 1;
    assert_int_equal(picker_pause_itl_ns(&classes, 2, n_at_workers), 50);
    n_at_workers[1] = 1;
    assert_int_equal(picker_pause_itl_ns(&classes, 2, n_at_workers), 20);
    assert_int_equal(picker_pause_itl_ns(&classes, 3, n_at_workers), 90); /* it may not be paused */
    assert_int_equal(picker_pause_itl_ns(&classes, 0, n_at_workers), 50);
}

static void a_budget_ends_and_begins_again(void **state)
{
    struct picker_pause_budget budget = {0};
    uint64_t now_ns = PICKER_PAUSE_BUDGET_NS * 7;
    unsigned n = 0;

    while (picker_pause_affords(&budget, PICKER_PAUSE_COST, now_ns))
        n++;
    assert_int_equal(n, 5);
    assert_false(picker_pause_affords(&budget, 1, now_ns + PICKER_PAUSE_BUDGET_NS - 1));
    assert_true(picker_pause_affords(&budget, 1, now_ns + PICKER_PAUSE_BUDGET_NS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_progresses_and_has_a_limit),
        cmocka_unit_test(a_class_that_may_be_paused_keeps_the_higher_objectives),
        cmocka_unit_test(a_budget_ends_and_begins_again),
        cmocka_unit_test_setup_teardown(the_first_in_order_gives_its_seat, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(as_many_as_the_time_between_tokens_needs, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(as_many_as_the_blocks_need, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(blocks_that_no_report_counts_are_not_given_back, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(the_worker_with_fewest_pauses_is_taken, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_backlog_of_prompts_pauses_nothing, open_rig, close_rig),
        cmocka_unit_test(a_choice_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
