/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an owner: the worker with the longest prefix,
 * if a push is faster than computing, by measured rates. */
#include "tests/unit/check.h"

#include "fleet/picker/owner.h"

enum { ASKER, NEAR, FAR, N };

static struct picker_worker rows[N];
static struct picker_world world = {.workers = rows, .n = N};
static struct picker_request request;

static int set_up(void **state)
{
    for (int i = 0; i < N; i++)
        rows[i] = (struct picker_worker){.is_usable = true,
                                         .can_push = true,
                                         .layout = 7,
                                         .host = i == FAR ? 2 : 1,
                                         .block_tokens = 32,
                                         .prefill_tokens_per_s = 1000,
                                         .push_bytes_per_s = 1e9,
                                         .kv_bytes_per_token = 65536};
    request = (struct picker_request){.n_tokens = 1000};
    return 0;
}

static struct picker_owner find(enum picker_fetch prefix_fetch)
{
    return picker_find_owner(&world, &request, ASKER, prefix_fetch);
}

static void who_has_most_is_asked(void **state)
{
    rows[NEAR].cached_tokens = 320;
    rows[FAR].cached_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, FAR);
    assert_int_equal(find(PICKER_FETCH_AUTO).tokens, 640);
    rows[NEAR].cached_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR); /* shared memory */
    rows[NEAR].host = 2;
    rows[NEAR].n_running = 3;
    rows[NEAR].decode_step_s = 0.001;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, FAR); /* is less busy */
}

static void only_what_is_missing_counts(void **state)
{
    rows[NEAR].cached_tokens = 640;
    rows[ASKER].cached_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, PICKER_NONE);
    rows[ASKER].cached_tokens = 608;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, NEAR);
    assert_true(find(PICKER_FETCH_ALWAYS).computed_s < 0.033);
    rows[ASKER].cached_tokens = 0;
    rows[ASKER].prefill_tokens_per_s = 640;
    assert_true(find(PICKER_FETCH_ALWAYS).computed_s > 0.99);
}

/* 640 tokens are 42 MB: 42 ms to push, and at 1 GB/s as long to read; computing them takes 640 ms. */
static void who_has_to_read_is_asked_where_that_pays_too(void **state)
{
    struct picker_owner found;

    rows[FAR].stored_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE); /* without a read rate it reads nothing */
    rows[FAR].read_bytes_per_s = 1e9;
    rows[FAR].kv_bytes_per_token = 65536;
    found = find(PICKER_FETCH_AUTO);
    assert_int_equal(found.slot, FAR);
    assert_true(found.has_to_read && found.tokens == 640);
    assert_true(found.push_s > 0.084 && found.push_s < 0.090);
    rows[NEAR].cached_tokens = 640; /* memory before disk */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    assert_false(find(PICKER_FETCH_AUTO).has_to_read);
    rows[NEAR].cached_tokens = 608; /* one more block for 42 ms of reading: not chosen */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, FAR);
    rows[NEAR].cached_tokens = 320; /* saves 320 ms of computing: chosen */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, FAR);
    rows[FAR].cached_tokens = 608; /* it has nearly all in memory, and reads one block */
    found = find(PICKER_FETCH_AUTO);
    assert_true(found.slot == FAR && found.has_to_read && found.push_s < 0.050);
    rows[FAR].cached_tokens = 0;
    rows[FAR].read_bytes_per_s = 1e6; /* 42 s of reading: only the blocks in memory are fetched */
    found = find(PICKER_FETCH_AUTO);
    assert_true(found.slot == NEAR && found.tokens == 320);
    rows[NEAR].cached_tokens = 0;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
}

/* An owner does not read blocks that the fetching worker has itself. */
static void only_what_is_missing_is_read(void **state)
{
    rows[ASKER].cached_tokens = 320;
    rows[FAR].stored_tokens = 640;
    rows[FAR].read_bytes_per_s = 1e9;
    rows[FAR].kv_bytes_per_token = 65536;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, FAR);
    assert_true(find(PICKER_FETCH_AUTO).push_s < 0.050);
    rows[ASKER].cached_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, PICKER_NONE);
}

/* 640 tokens are 42 MB: at 1 GB/s 42 ms and at 10 MB/s 4 s; computing them takes 640 ms. */
static void a_push_must_beat_computing(void **state)
{
    rows[NEAR].cached_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    rows[ASKER].push_bytes_per_s = 1e7;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, NEAR);
    assert_int_equal(find(PICKER_FETCH_OFF).slot, PICKER_NONE);
    rows[ASKER].prefill_tokens_per_s = 10;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
}

static void an_unknown_rate_is_tried(void **state)
{
    rows[NEAR].cached_tokens = 640;
    rows[ASKER].push_bytes_per_s = 0;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    rows[ASKER].transfer_bytes_per_s = 1e6; /* rate of hand-offs: as slow as their prefill */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
}

/* One block of 32 tokens is 32 ms of computing, or 2 ms and 2 steps of the owner. */
static void a_busy_owner_answers_late(void **state)
{
    rows[NEAR].cached_tokens = 32;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    rows[NEAR].decode_step_s = 0.05;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR); /* it decodes no sequence */
    rows[NEAR].n_running = 1;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
}

static void the_last_token_is_computed_in_any_case(void **state)
{
    request.n_tokens = 64;
    rows[NEAR].cached_tokens = 64;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).tokens, 32);
    rows[ASKER].cached_tokens = 32;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, PICKER_NONE);
    request.n_tokens = 0;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, PICKER_NONE);
}

static void only_who_can_push_is_asked(void **state)
{
    rows[NEAR].cached_tokens = 640;
    rows[FAR].cached_tokens = 320;
    rows[NEAR].can_push = false;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, FAR);
    rows[FAR].is_usable = false; /* draining */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, FAR);
    rows[FAR].layout = 8;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
}

/* 640 tokens: pushed in 44 ms, computed in 640 ms; read at 1 GB/s in 43 ms. */
static void what_its_own_disk_has_need_not_be_pushed(void **state)
{
    rows[NEAR].cached_tokens = 640;
    rows[ASKER].stored_tokens = 640;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR); /* its disk has no known read rate */
    rows[ASKER].read_bytes_per_s = 1e9;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
    rows[ASKER].read_bytes_per_s = 1e8;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    assert_true(find(PICKER_FETCH_AUTO).computed_s < 0.43);
    rows[ASKER].read_bytes_per_s = 1e7; /* computing is faster than reading */
    assert_true(find(PICKER_FETCH_AUTO).computed_s > 0.63 && find(PICKER_FETCH_AUTO).computed_s < 0.65);
    rows[ASKER].read_bytes_per_s = 1e9; /* only half of it; the rest would be computed */
    rows[ASKER].stored_tokens = 320;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    rows[NEAR].stored_tokens = 960; /* other workers cannot use an owner's disk here */
    assert_int_equal(find(PICKER_FETCH_AUTO).tokens, 640);
    rows[NEAR].cached_tokens = 0;
    assert_int_equal(find(PICKER_FETCH_ALWAYS).slot, PICKER_NONE);
}

/* 640 tokens: pushed in 44 ms, computed in 640 ms; read from the store at 2 GB/s in 22 ms, and 2 of questions. */
static void what_its_store_has_need_not_be_pushed(void **state)
{
    rows[NEAR].cached_tokens = 640;
    rows[ASKER].in_store_tokens = 640;
    rows[ASKER].store_bytes_per_s = 2e9;
    rows[ASKER].store_ask_s = 1e-4;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR); /* it uses no store now */
    rows[ASKER].store = 1;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
    rows[ASKER].store_ask_s = 0.01; /* a store that answers slowly: 200 ms */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    assert_true(find(PICKER_FETCH_AUTO).computed_s < 0.25);
    rows[ASKER].store_ask_s = 1e-4;
    rows[ASKER].queued_store_tokens = 10000; /* others read from it first */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    rows[ASKER].queued_store_tokens = 0;
    rows[ASKER].in_store_tokens = 320; /* only half of it; the rest would be computed */
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, NEAR);
    rows[ASKER].stored_tokens = 640; /* the disk has all of it, and is fast */
    rows[ASKER].read_bytes_per_s = 2e9;
    assert_int_equal(find(PICKER_FETCH_AUTO).slot, PICKER_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(who_has_most_is_asked, set_up),
        cmocka_unit_test_setup(only_what_is_missing_counts, set_up),
        cmocka_unit_test_setup(a_push_must_beat_computing, set_up),
        cmocka_unit_test_setup(who_has_to_read_is_asked_where_that_pays_too, set_up),
        cmocka_unit_test_setup(only_what_is_missing_is_read, set_up),
        cmocka_unit_test_setup(an_unknown_rate_is_tried, set_up),
        cmocka_unit_test_setup(a_busy_owner_answers_late, set_up),
        cmocka_unit_test_setup(the_last_token_is_computed_in_any_case, set_up),
        cmocka_unit_test_setup(only_who_can_push_is_asked, set_up),
        cmocka_unit_test_setup(what_its_own_disk_has_need_not_be_pushed, set_up),
        cmocka_unit_test_setup(what_its_store_has_need_not_be_pushed, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
