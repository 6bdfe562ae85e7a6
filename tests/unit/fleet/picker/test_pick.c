/* SPDX-License-Identifier: Apache-2.0 */
/* The picker's promises.  Long prompts go to the prefill pool; short and cached ones stay with decode.
 * Queues spread. A full pool refuses, but not just because one prompt is long.  A shared prefix does not herd
 * all requests onto one worker. */
#include "tests/unit/fleet/picker/pick_help.h"

static void long_prompts_are_handed_off(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_choice choice = choose(workers, 2, 400, 0);

    assert_int_equal(choice.prefill, 0);
    assert_int_equal(choice.decode, 1);
    assert_int_equal(choice.uncached_tokens, 400);
}

static void mostly_cached_prompts_stay_with_decode(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].cached_tokens = 3968;
    struct picker_choice choice = choose(workers, 2, 4000, 0);
    assert_int_equal(choice.prefill, PICKER_NONE);
    assert_int_equal(choice.uncached_tokens, 32);
}

static void a_backed_up_prefill_pool_overflows(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].queued_prefill_tokens = 5000;
    assert_int_equal(choose(workers, 2, 200, 0).prefill, PICKER_NONE);
}

/* Learned speeds are noisy.  A decode worker that seems faster at prefill must not attract the prompts. */
static void a_faster_decode_worker_is_left_alone(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].prefill_tokens_per_s = 4000;
    assert_int_equal(choose(workers, 2, 100, 0).prefill, 0);
}

static void queue_time_beats_prefix(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].cached_tokens = 300;         /* saves 0.3 s ... */
    workers[0].queued_prefill_tokens = 900; /* ... behind 0.9 s of queue */
    assert_int_equal(choose(workers, 3, 400, 0).prefill, 1);
    workers[0].queued_prefill_tokens = 100;
    assert_int_equal(choose(workers, 3, 400, 0).prefill, 0);
}

static void refuses_when_no_placement_keeps_the_objectives(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].queued_prefill_tokens = 5000;
    workers[1].queued_prefill_tokens = 5000;
    choose(workers, 2, 200, E_OVERLOADED);
    workers[0].queued_prefill_tokens = workers[1].queued_prefill_tokens = 0;
    workers[1].n_running = 64;
    choose(workers, 2, 200, E_OVERLOADED); /* because of ITL */
}

static void a_long_prompt_alone_is_not_refused(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    assert_int_equal(choose(workers, 2, 20000, 0).prefill, 0); /* takes 20 s anywhere */
}

static void no_room_is_no_placement(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].blocks_free = 3;
    choose(workers, 2, 400, E_OVERLOADED);
}

/* A full decode worker would have to compute an arriving prompt again.  So the request waits, with any objectives. */
static void a_full_decode_worker_is_no_placement(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].decode_step_s = 1e-6;
    workers[1].n_running = 63;
    choose(workers, 2, 400, 0);
    workers[1].n_running = 64;
    choose(workers, 2, 400, E_OVERLOADED);
}

static void excluded_and_unusable_workers_are_left_out(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE), worker(PICKER_DECODE)};
    struct picker_slots excluded = {{0}};
    struct picker_request request = {.n_tokens = 400, .max_new_tokens = 10, .excluded = &excluded};
    struct picker_choice choice;

    picker_slots_add(&excluded, 1);
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.decode, 2);
    workers[2].is_usable = false;
    assert_int_equal(pick(workers, 3, &request, &choice), 0); /* the prefill worker does both */
    assert_int_equal(choice.decode, 0);
    assert_int_equal(choice.prefill, PICKER_NONE);
    workers[0].is_usable = false;
    assert_int_equal(pick(workers, 3, &request, &choice), E_NOT_FOUND);
    picker_slots_remove(&excluded, 1);
    assert_true(picker_slots_is_empty(&excluded));
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.decode, 1);
}

/* ---- no worker keeps the objectives ---- */

/* A pause of 4 s was taken for a step once: 192.6 ms, with no sequence running. */
static void workers_that_seem_slow_are_not_left_idle(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE), worker(PICKER_DECODE)};

    workers[1].decode_step_s = workers[2].decode_step_s = 0.1926;
    choose(workers, 3, 400, E_OVERLOADED);
    goals.yield = PICKER_CONSERVES;
    choose(workers, 3, 400, 0);
    workers[1].n_running = workers[2].n_running = 5; /* the end of these would not help */
    assert_int_equal(choose(workers, 3, 400, 0).prefill, 0);
    workers[1].decode_step_s = 0.1;
    assert_int_equal(choose(workers, 3, 400, 0).decode, 1); /* the least bad */
    workers[1].n_running = workers[2].n_running = 64;
    choose(workers, 3, 400, E_OVERLOADED); /* no seat */
    goals.yield = PICKER_KEEPS;
}

/* Objectives that no worker can keep: learned speeds decide which worker is chosen, and never refuse all. */
static void no_rate_leaves_a_worker_idle(void **state)
{
    static const double factors[] = {1e-6, 1e-3, 1, 1e3, 1e6};

    goals.yield = PICKER_CONSERVES;
    for (int i = 0; i < 625; i++) {
        struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

        workers[0].prefill_tokens_per_s *= factors[i % 5];
        workers[1].prefill_tokens_per_s *= factors[i / 5 % 5];
        workers[1].decode_step_s *= factors[i / 25 % 5];
        workers[1].transfer_bytes_per_s *= factors[i / 125];
        choose(workers, 2, 10, 0);
        choose(workers, 2, 400, 0);
        choose(workers, 2, 20000, 0);
    }
    goals.yield = PICKER_KEEPS;
}

static void a_busy_worker_is_waited_for_a_while(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].n_running = 40; /* 60 ms; with 30 of them 50 */
    goals.yield = PICKER_CONSERVES;
    choose(workers, 2, 400, E_OVERLOADED);
    goals.yield = PICKER_LEAST_BAD;
    workers[0].decode_step_s = 0.2;
    assert_int_equal(choose(workers, 2, 400, 0).decode, 1);
    workers[1].n_running = 64; /* no seat there; the prefill worker has one */
    assert_int_equal(choose(workers, 2, 400, 0).decode, 0);
    workers[0].queued_prefill_tokens = 5000; /* but is busy */
    choose(workers, 2, 400, E_OVERLOADED);
    goals.yield = PICKER_KEEPS;
}

/* The pool has room for the prompt, but not for the expected answer, or the report is older. */
static void an_idle_worker_has_all_its_blocks(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_DECODE)};

    workers[0].blocks_total = workers[0].blocks_free = 20;
    choose(workers, 1, 630, E_OVERLOADED);
    goals.yield = PICKER_CONSERVES;
    choose(workers, 1, 630, 0);
    choose(workers, 1, 640, E_LIMIT);
    workers[0].n_running = 1;
    choose(workers, 1, 630, E_OVERLOADED);
    goals.yield = PICKER_KEEPS;
}

static void a_prompt_that_fits_nowhere_is_said_to(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].blocks_total = workers[1].blocks_total = 10;
    choose(workers, 2, 320, E_LIMIT);
    choose(workers, 2, 319, 0);
}

static void groups_are_kept_apart(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 400, .max_new_tokens = 10, .group = 1};
    struct picker_choice choice;

    assert_int_equal(pick(workers, 3, &request, &choice), E_NOT_FOUND);
    workers[2].group = 1;
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.decode, 2);
    assert_int_equal(choice.prefill, PICKER_NONE);
}

static void pairs_agree_on_the_layout(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].layout = 8;
    assert_int_equal(choose(workers, 2, 400, 0).prefill, PICKER_NONE);
}

/* Every request shares one warm prefix on worker 0 (the trap of greedy prefix routing).  With in-flight work
 * counted, no prefill worker gets more than twice its share. */
static void a_shared_prefix_does_not_herd(void **state)
{
    struct picker_worker workers[9];
    uint32_t taken[8] = {0};

    for (int i = 0; i < 8; i++)
        workers[i] = worker(PICKER_PREFILL);
    workers[8] = worker(PICKER_DECODE);
    workers[8].max_seqs = 100000;
    workers[8].decode_step_s = 1e-6;
    for (int i = 0; i < 800; i++) {
        struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 10};
        struct picker_choice choice;

        workers[0].cached_tokens = 128;
        pick(workers, 9, &request, &choice);
        if (choice.prefill == PICKER_NONE)
            continue;
        taken[choice.prefill]++;
        workers[choice.prefill].queued_prefill_tokens += choice.uncached_tokens;
    }
    for (int i = 1; i < 8; i++)
        assert_true(taken[0] <= 2 * taken[i]);
}

/* ---- pushes, attention, time ---- */

static void a_push_lets_an_idle_worker_take_a_cached_prompt(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 6400, .max_new_tokens = 100};
    struct picker_choice choice = {0};

    goals.ttft_slo_s = 60;
    workers[0].cached_tokens = 6368;
    workers[2].decodes_only = true;
    workers[0].queued_prefill_tokens = 3000; /* three seconds */
    for (int i = 0; i < 3; i++) {
        workers[i].can_push = true;
        workers[i].push_bytes_per_s = 1e9;
    }
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.prefill, 0); /* three seconds are less than six */
    request.pushable_blocks = 199;       /* 0.4 s */
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.prefill, 1);
    workers[0].queued_prefill_tokens = 300; /* the saving is too small for a second replica */
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.prefill, 0);
    workers[0].queued_prefill_tokens = 3000;
    workers[1].push_bytes_per_s = 1e7; /* slower than computing */
    assert_int_equal(pick(workers, 3, &request, &choice), 0);
    assert_int_equal(choice.prefill, 0);
    goals.ttft_slo_s = 0.5;
}

static void attention_makes_long_prompts_dearer(void **state)
{
    struct picker_worker row = worker(PICKER_PREFILL);

    assert_true(picker_prompt_s(&row, 0, 1000) == picker_prefill_s(&row, 1000));
    row.prefill_pair_s = 1e-6;
    assert_float_equal(picker_prompt_s(&row, 0, 1000), 1.5, 1e-6);
    assert_float_equal(picker_prompt_s(&row, 9000, 1000), 1 + 9.5, 1e-6);
}

/* A prompt that takes busy_ns is dispatched to the worker. */
static void dispatch(struct picker_fleet *fleet, uint32_t slot, uint64_t busy_ns, uint64_t now_ns)
{
    picker_fleet_charge(fleet, slot, &(struct picker_charge){.busy_ns = busy_ns}, now_ns);
}

/* A fleet whose workers have reported at 1 s.  The last worker only decodes; no objective matters. */
static struct picker_fleet *timed_fleet(struct picker_worker *workers, uint32_t n)
{
    struct picker_fleet *fleet;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    goals.ttft_slo_s = 60;
    workers[n - 1].decodes_only = true;
    for (uint32_t i = 0; i < n; i++) {
        workers[i].reported_ns = UINT64_C(1000000000);
        assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
    }
    return fleet;
}

static void timed_fleet_end(struct picker_fleet *fleet)
{
    goals.ttft_slo_s = 0.5;
    picker_fleet_free(fleet);
}

/* A report's figures are older than the report: prompts dispatched since they were taken still count. */
static void a_report_lacks_what_came_after_its_figures(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 100};
    struct picker_choice choice = {0};
    struct picker_fleet *fleet;

    fleet = timed_fleet(workers, 2);
    for (uint64_t i = 0; i < 40; i++) /* more than are remembered one by one */
        dispatch(fleet, 0, UINT64_C(100000000), UINT64_C(1100000000) + i * 1000000);
    dispatch(fleet, 0, UINT64_C(2000000000), UINT64_C(1500000000));
    workers[0].reported_ns = UINT64_C(1400000000); /* it counts the forty, not the last one */
    workers[0].queued_prefill_tokens = 3000;
    assert_int_equal(picker_fleet_set(fleet, 0, &workers[0]), 0);
    request.now_ns = UINT64_C(1600000000);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 3 + 2 - 0.2 + 1, 1e-6);
    workers[0].reported_ns = UINT64_C(1900000000); /* now it counts all */
    assert_int_equal(picker_fleet_set(fleet, 0, &workers[0]), 0);
    request.now_ns = UINT64_C(1900000000);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 3 + 1, 1e-6);
    timed_fleet_end(fleet);
}

/* Nine prompts of a second were dispatched to worker 0 after its report, one to worker 1. */
static void a_queue_shrinks_with_time(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 100};
    struct picker_choice choice = {0};
    struct picker_fleet *fleet;

    fleet = timed_fleet(workers, 3);
    dispatch(fleet, 0, UINT64_C(3000000000), UINT64_C(1100000000));
    dispatch(fleet, 1, UINT64_C(2000000000), UINT64_C(1100000000));
    request.now_ns = UINT64_C(1600000000);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_int_equal(choice.prefill, 1);
    assert_float_equal(choice.ttft_s, 1.5 + 1, 1e-6); /* it is free at 3.1 s */
    request.now_ns = UINT64_C(3100000000);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 1, 1e-6);
    workers[1].reported_ns = UINT64_C(3200000000); /* a report replaces the expectation */
    workers[1].queued_prefill_tokens = 5000;
    assert_int_equal(picker_fleet_set(fleet, 1, &workers[1]), 0);
    request.now_ns = UINT64_C(4200000000);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_int_equal(choice.prefill, 0);
    timed_fleet_end(fleet);
}

/* A report was taken while the worker computed this router's prompt, which is done now.  Prompts of another router are not. */
static void a_queue_of_own_prompts_ends_with_them(void **state)
{
    const struct picker_charge charge = {.prefill_tokens = 1000, .busy_ns = UINT64_C(1000000000)};
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 100, .now_ns = UINT64_C(1700000000)};
    struct picker_choice choice = {0};
    struct picker_fleet *fleet;

    goals.ttft_slo_s = 60;
    workers[1].decodes_only = true;
    for (unsigned has_others = 0; has_others < 2; has_others++) {
        assert_int_equal(picker_fleet_new(0, &fleet), 0);
        for (uint32_t i = 0; i < 2; i++) {
            workers[i].reported_ns = UINT64_C(1000000000);
            workers[i].queued_prefill_tokens = 0;
            assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
        }
        picker_fleet_charge(fleet, 0, &charge, UINT64_C(1100000000));
        workers[0].reported_ns = UINT64_C(1600000000);
        workers[0].queued_prefill_tokens = has_others ? 1500 : 800;
        assert_int_equal(picker_fleet_set(fleet, 0, &workers[0]), 0);
        picker_fleet_discharge(fleet, 0, &charge, true, request.now_ns);
        picker_fleet_leave(fleet, 0);
        assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
        assert_float_equal(choice.ttft_s, has_others ? 1.4 + 1 : 1, 1e-6);
        picker_fleet_free(fleet);
    }
    goals.ttft_slo_s = 0.5;
}

/* Five prompts of 100 ms were dispatched.  After 400 ms one is done: the worker is slower than it reports, so three more
 * wait behind the one under way. */
static void prompts_that_are_not_done_stay_in_the_queue(void **state)
{
    const struct picker_charge charge = {.prefill_tokens = 100, .busy_ns = UINT64_C(100000000)};
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 100, .now_ns = UINT64_C(1400000000)};
    struct picker_choice choice = {0};
    struct picker_fleet *fleet;

    fleet = timed_fleet(workers, 2);
    for (uint32_t i = 0; i < 5; i++)
        picker_fleet_charge(fleet, 0, &charge, UINT64_C(1000000000));
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 0.1 + 1, 1e-6);
    picker_fleet_discharge(fleet, 0, &charge, true, request.now_ns);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 0.3 + 1, 1e-6);
    for (uint32_t i = 0; i < 4; i++)
        picker_fleet_discharge(fleet, 0, &charge, true, request.now_ns);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 1, 1e-6);
    timed_fleet_end(fleet);
}

/* Both workers expect a prompt for three seconds and more; only worker 0 still has a sequence. */
static void an_idle_workers_queue_is_forgotten(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 100};
    struct picker_choice choice = {0};
    struct picker_fleet *fleet;

    workers[1].queued_prefill_tokens = 3000;
    fleet = timed_fleet(workers, 3);
    dispatch(fleet, 0, UINT64_C(4000000000), UINT64_C(1000000000));
    request.now_ns = UINT64_C(1000000000);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 3 + 1, 1e-6);
    picker_fleet_forget_queues(fleet, request.group + 1); /* another model's */
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_float_equal(choice.ttft_s, 3 + 1, 1e-6);
    picker_fleet_forget_queues(fleet, request.group);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_int_equal(choice.prefill, 1);
    assert_float_equal(choice.ttft_s, 1, 1e-6);
    workers[1].reported_ns++;
    workers[1].queued_prefill_tokens = 5000;
    assert_int_equal(picker_fleet_set(fleet, 1, &workers[1]), 0);
    assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
    assert_int_equal(choice.prefill, 0); /* its queue of four seconds is still there */
    assert_float_equal(choice.ttft_s, 4 + 1, 1e-6);
    timed_fleet_end(fleet);
}

static void a_worker_that_only_decodes_computes_nothing(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].queued_prefill_tokens = 100000;
    assert_int_equal(choose(workers, 2, 400, 0).prefill, PICKER_NONE); /* by overflow */
    workers[1].decodes_only = true;
    assert_int_equal(choose(workers, 2, 400, E_OVERLOADED).decode, 1);
}

static void a_worker_of_both_roles_takes_long_prompts(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_DECODE), worker(PICKER_BOTH)};
    struct picker_choice choice;

    workers[1].prefill_tokens_per_s = 900; /* the decode worker is a little faster, but kept for decoding */
    choice = choose(workers, 2, 400, 0);
    assert_int_equal(choice.prefill, PICKER_NONE);
    assert_int_equal(choice.decode, 1);
    workers[1].n_running = 3; /* their delay counts against it */
    assert_int_equal(choose(workers, 2, 400, 0).decode, 0);
    workers[0].role = PICKER_PREFILL; /* beside a prefill worker it receives KV */
    choice = choose(workers, 2, 400, 0);
    assert_int_equal(choice.prefill, 0);
    assert_int_equal(choice.decode, 1);
    assert_int_equal(choose(&workers[1], 1, 400, 0).decode, 0); /* alone it does everything */
}

/* The row moves between the pools; the ledger stays. */
static void a_changed_role_counts_at_once(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 400, .max_new_tokens = 100};
    struct picker_charge charge = {.prefill_tokens = 50, .context_tokens = 50};
    struct picker_choice choice;
    struct picker_fleet *fleet;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
    picker_fleet_charge(fleet, 0, &charge, 0);
    for (int turn = 0; turn < 8; turn++) {
        assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
        assert_int_equal(choice.prefill, turn % 2);
        assert_int_equal(choice.decode, 1 - turn % 2);
        assert_int_equal(picker_fleet_n_usable(fleet, 0), 2);
        for (uint32_t i = 0; i < 2; i++) {
            workers[i].role = workers[i].role == PICKER_PREFILL ? PICKER_DECODE : PICKER_PREFILL;
            assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
        }
    }
    assert_int_equal(picker_fleet_ledger(fleet, 0)->prefill_tokens, 50);
    picker_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_prompts_are_handed_off),
        cmocka_unit_test(mostly_cached_prompts_stay_with_decode),
        cmocka_unit_test(a_backed_up_prefill_pool_overflows),
        cmocka_unit_test(a_faster_decode_worker_is_left_alone),
        cmocka_unit_test(queue_time_beats_prefix),
        cmocka_unit_test(refuses_when_no_placement_keeps_the_objectives),
        cmocka_unit_test(a_long_prompt_alone_is_not_refused),
        cmocka_unit_test(no_room_is_no_placement),
        cmocka_unit_test(a_full_decode_worker_is_no_placement),
        cmocka_unit_test(excluded_and_unusable_workers_are_left_out),
        cmocka_unit_test(workers_that_seem_slow_are_not_left_idle),
        cmocka_unit_test(no_rate_leaves_a_worker_idle),
        cmocka_unit_test(a_busy_worker_is_waited_for_a_while),
        cmocka_unit_test(an_idle_worker_has_all_its_blocks),
        cmocka_unit_test(a_prompt_that_fits_nowhere_is_said_to),
        cmocka_unit_test(groups_are_kept_apart),
        cmocka_unit_test(pairs_agree_on_the_layout),
        cmocka_unit_test(a_shared_prefix_does_not_herd),
        cmocka_unit_test(a_push_lets_an_idle_worker_take_a_cached_prompt),
        cmocka_unit_test(attention_makes_long_prompts_dearer),
        cmocka_unit_test(a_queue_shrinks_with_time),
        cmocka_unit_test(a_queue_of_own_prompts_ends_with_them),
        cmocka_unit_test(prompts_that_are_not_done_stay_in_the_queue),
        cmocka_unit_test(an_idle_workers_queue_is_forgotten),
        cmocka_unit_test(a_report_lacks_what_came_after_its_figures),
        cmocka_unit_test(a_worker_that_only_decodes_computes_nothing),
        cmocka_unit_test(a_worker_of_both_roles_takes_long_prompts),
        cmocka_unit_test(a_changed_role_counts_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
