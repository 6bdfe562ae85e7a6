/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that the decode worker computes itself, because they are short or it is quick. */
#include "tests/unit/fleet/picker/pick_help.h"

static void short_prompts_stay_with_decode(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    assert_int_equal(choose(workers, 2, 40, 0).prefill, PICKER_NONE);
}

/* At 20,000 tokens a second, 800 take 40 ms; beside one answer, 400 take as long. */
static void quick_prompts_stay_with_decode(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].prefill_tokens_per_s = workers[1].prefill_tokens_per_s = 20000;
    assert_int_equal(choose(workers, 2, 800, 0).prefill, 0);
    goals.local_prefill_s = 0.04;
    assert_int_equal(choose(workers, 2, 800, 0).prefill, PICKER_NONE);
    assert_int_equal(choose(workers, 2, 801, 0).prefill, 0);
    workers[1].n_running = 1;
    assert_int_equal(choose(workers, 2, 400, 0).prefill, PICKER_NONE);
    assert_int_equal(choose(workers, 2, 401, 0).prefill, 0);
    goals.local_prefill_s = 0;
}

/* 400 tokens take 20 ms on the idle worker.  The other one seems faster but decodes a sequence, whose delay counts once: so
 * it must be twice as fast, or have half of the prompt. */
static void quick_prompts_prefer_an_idle_worker(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_DECODE), worker(PICKER_DECODE)};

    workers[0].prefill_tokens_per_s = 35000;
    workers[1].prefill_tokens_per_s = 20000;
    for (unsigned i = 0; i < 2; i++) { /* one more sequence hardly lengthens a step */
        workers[i].step_seqs = 1;
        workers[i].decode_row_s = 1e-9;
    }
    goals.local_prefill_s = 0.5;
    assert_int_equal(choose(workers, 2, 400, 0).decode, 0);
    workers[0].n_running = 1;
    assert_int_equal(choose(workers, 2, 400, 0).decode, 1);
    workers[0].prefill_tokens_per_s = 45000;
    assert_int_equal(choose(workers, 2, 400, 0).decode, 0);
    workers[0].prefill_tokens_per_s = 20000;
    workers[0].cached_tokens = 256;
    assert_int_equal(choose(workers, 2, 400, 0).decode, 0);
    goals.local_prefill_s = 0;
}

/* Where other prompts wait at the decode worker, a quick one takes the idle prefill worker if that is sooner: the
 * hand-off costs 2 ms and two steps, 42 ms here. */
static void quick_prompts_do_not_queue_beside_an_idle_prefill_worker(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].prefill_tokens_per_s = workers[1].prefill_tokens_per_s = 20000;
    goals.local_prefill_s = 0.5;
    workers[1].queued_prefill_tokens = 200; /* 10 ms */
    assert_int_equal(choose(workers, 2, 800, 0).prefill, PICKER_NONE);
    workers[1].queued_prefill_tokens = 2000; /* 100 ms */
    assert_int_equal(choose(workers, 2, 800, 0).prefill, 0);
    workers[0].queued_prefill_tokens = 2000;
    assert_int_equal(choose(workers, 2, 800, 0).prefill, PICKER_NONE);
    goals.local_prefill_s = 0;
}

/* A prompt that is short for the decode worker goes to an idle prefill worker where the decode worker cannot begin it in
 * time, or computes no prompts. */
static void short_prompts_that_would_wait_are_handed_off(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[1].queued_prefill_tokens = 5000;
    assert_int_equal(choose(workers, 2, 40, 0).prefill, 0);
    workers[0].queued_prefill_tokens = 5000;
    (void)choose(workers, 2, 40, E_OVERLOADED);
    workers[0].queued_prefill_tokens = workers[1].queued_prefill_tokens = 0;
    workers[1].decodes_only = true;
    assert_int_equal(choose(workers, 2, 40, 0).prefill, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_prompts_stay_with_decode),
        cmocka_unit_test(quick_prompts_stay_with_decode),
        cmocka_unit_test(quick_prompts_prefer_an_idle_worker),
        cmocka_unit_test(quick_prompts_do_not_queue_beside_an_idle_prefill_worker),
        cmocka_unit_test(short_prompts_that_would_wait_are_handed_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
