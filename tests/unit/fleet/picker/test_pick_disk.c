/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on disk count at the cost of reading them.  Here 3968 tokens are 260 MB, and 4 s of computing. */
#include "tests/unit/fleet/picker/pick_help.h"

static void what_is_on_disk_counts_at_the_cost_of_reading(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_choice choice;

    workers[1].stored_tokens = 3968;
    choice = choose(workers, 3, 4000, 0); /* its disk has no known read rate */
    assert_int_equal(choice.uncached_tokens, 4000);
    assert_int_equal(choice.read_tokens, 0);
    workers[1].read_bytes_per_s = 1e9;
    choice = choose(workers, 3, 4000, 0);
    assert_int_equal(choice.prefill, 1);
    assert_int_equal(choice.uncached_tokens, 32);
    assert_int_equal(choice.read_tokens, 3968);
    assert_true(choice.ttft_s > 0.29 && choice.ttft_s < 0.3); /* 261 ms, and 32 of computing */
    workers[1].read_bytes_per_s = 5e7;
    choice = choose(workers, 3, 4000, 0); /* 5.2 s */
    assert_int_equal(choice.read_tokens, 0);
    workers[1].read_bytes_per_s = 1e9;
    workers[1].queued_prefill_tokens = 5000; /* the wait there */
    assert_int_equal(choose(workers, 3, 4000, 0).prefill, 0);
}

static void memory_counts_before_disk(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_DECODE), worker(PICKER_DECODE), worker(PICKER_PREFILL)};
    struct picker_choice choice;

    workers[0].read_bytes_per_s = workers[1].read_bytes_per_s = 1e9;
    workers[0].stored_tokens = 3968;
    choice = choose(workers, 3, 4000, 0); /* a worker with the blocks on disk needs no pair */
    assert_int_equal(choice.prefill, PICKER_NONE);
    assert_int_equal(choice.decode, 0);
    assert_int_equal(choice.read_tokens, 3968);
    workers[1].cached_tokens = workers[1].stored_tokens = 3968;
    choice = choose(workers, 3, 4000, 0);
    assert_int_equal(choice.decode, 1);
    assert_int_equal(choice.read_tokens, 0);
    workers[1].cached_tokens = 1984; /* the rest was evicted */
    choice = choose(workers, 3, 4000, 0);
    assert_int_equal(choice.decode, 1);
    assert_int_equal(choice.uncached_tokens, 32);
    assert_int_equal(choice.read_tokens, 1984);
}

/* At most half of the pool, and the blocks must be free. */
static void a_read_needs_room(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_DECODE)};
    struct picker_choice choice;

    workers[0].read_bytes_per_s = 1e9;
    workers[0].stored_tokens = 3968;
    workers[0].blocks_total = workers[0].blocks_free = 130;
    choice = choose(workers, 1, 4000, 0);
    assert_int_equal(choice.read_tokens, 2080);
    assert_int_equal(choice.uncached_tokens, 1920);
    workers[0].blocks_free = 100;
    choose(workers, 1, 4000, E_OVERLOADED);
}

/* A disk has one queue: after a restart many requests would read, and some are better computed elsewhere. */
static void who_was_sent_to_read_is_waited_for(void **state)
{
    static const uint32_t nothing_cached[PICKER_MAX_WORKERS];
    struct picker_run run = {.slot = 0, .n_blocks = 124};
    struct picker_request request = {
        .n_tokens = 4000, .max_new_tokens = 1, .cached_blocks = nothing_cached, .runs = &run, .n_runs = 1};
    struct picker_worker a = worker(PICKER_DECODE), b = worker(PICKER_DECODE);
    uint32_t n_there = 0;
    struct picker_fleet *fleet;
    struct picker_choice choice;

    a.read_bytes_per_s = 5e8; /* 0.52 s each */
    b.prefill_tokens_per_s = 2000;
    goals.local_prefill_tokens = 10000;
    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    assert_int_equal(picker_fleet_set(fleet, 0, &a), 0);
    assert_int_equal(picker_fleet_set(fleet, 1, &b), 0);
    for (;; n_there++) {
        struct picker_charge charge = {.context_tokens = 4000};

        assert_true(picker_pick(fleet, &goals, &request, &choice) <= 0);
        if (choice.decode == 1)
            break;
        charge.prefill_tokens = choice.uncached_tokens;
        charge.read_tokens = choice.read_tokens;
        assert_int_equal(choice.read_tokens, 3968);
        picker_fleet_charge(fleet, 0, &charge, 0);
    }
    assert_true(n_there >= 2 && n_there <= 3); /* 2 s of computing on the other worker */
    goals.local_prefill_tokens = 64;
    picker_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_disk_counts_at_the_cost_of_reading),
        cmocka_unit_test(memory_counts_before_disk),
        cmocka_unit_test(a_read_needs_room),
        cmocka_unit_test(who_was_sent_to_read_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
