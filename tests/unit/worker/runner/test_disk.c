/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that wait for blocks from disk, and the events of both tiers for routers: disk.c and publish.c. */
#include "tests/unit/worker/runner/disk_rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/prefix/tenant.h"
#include "worker/loop/worker_priv.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/disk_priv.h"

static void a_prompt_waits_for_what_is_on_disk(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    assert_true(worker_disk_is_waited_for(&engine));
    assert_int_equal(tier.n_begun, 9);
    for (uint32_t i = 0; i < 9; i++) { /* no other sequence gets the blocks of the read */
        assert_int_equal(kv_state_of(engine.pool, tier.begun[i].id), KV_FILLING);
        assert_true(block_hash_equal(&tier.begun[i].hash, &hashes[i]));
    }
    tier.n_done = 8;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 0);
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 1);
    assert_false(worker_disk_is_waited_for(&engine));
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 9);
    assert_int_equal(kv_tenant_blocks(engine.pool, tenant_number("team")), 9);
    assert_int_equal(tier.n_writes, 0); /* what came from the disk is not saved again */
}

static void the_last_token_is_fed_in_any_case(void **state)
{
    put_on_disk(PROMPT_BLOCKS);
    assert_true(waits(0));
    assert_int_equal(tier.n_begun, PROMPT_BLOCKS - 1);
}

static void computing_is_quicker_sometimes(void **state)
{
    put_on_disk(9);
    tier.read_ns = 9 * NS_PER_MS; /* 8 ms to compute */
    for (unsigned i = 0; i < 15; i++)
        assert_false(waits(0));
    assert_int_equal(tier.n_begun, 0);
    assert_true(waits(0)); /* a few are read nevertheless, to measure the speed */
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    kv_clear(engine.pool);
    tasks[0].n_disk_looks = 0;
    assert_false(waits(0));
    tier.read_ns = 7 * NS_PER_MS;
    assert_true(waits(0));
}

static void tasks_without_blocks_to_read_do_not_wait(void **state)
{
    assert_false(waits(0));
    put_on_disk(9);
    tasks[1].spec.mode = TASK_DECODE; /* a peer sends it */
    assert_false(waits(1));
    tasks[2].spec.order.n_tokens = TOKENS;
    assert_false(waits(2));
    assert_int_equal(tier.n_begun, 0);
}

static void equal_prompts_wait_for_the_same_reads(void **state)
{
    put_on_disk(9);
    assert_true(waits(0) && waits(1) && waits(2));
    assert_int_equal(tier.n_begun, 9);
    assert_false(waits(3));                       /* the limit of waiting tasks is reached */
    worker_disk_stop_waiting(&engine, &tasks[1]); /* it was cancelled */
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 2);
}

static void reads_that_fail_or_break_cost_only_themselves(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    tier.begun[0].result = E_IO;
    tier.begun[5].result = E_AUTH;
    tier.n_there = 0;
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 1);
    assert_int_equal(kv_peek(engine.pool, hashes, 9), 0);
    assert_int_equal(kv_peek(engine.pool, hashes + 1, 8), 4); /* blocks two to five */
    assert_false(waits(0));
}

static void a_slow_disk_is_not_waited_for(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    worker_disk_tick(&engine, clock_now_ns()); /* not yet */
    assert_int_equal(n_went_on, 0);
    worker_disk_tick(&engine, clock_now_ns() + 10 * NS_PER_S);
    assert_int_equal(n_went_on, 1);
    assert_false(waits(1)); /* no other task waits for these either */
    /* It still owns its blocks, and late blocks are cached nevertheless. */
    assert_int_equal(kv_state_of(engine.pool, tier.begun[0].id), KV_FILLING);
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 1);
    assert_int_equal(kv_peek(engine.pool, hashes, 9), 9);
}

static void reads_leave_most_of_the_pool(void **state)
{
    static token_id other[PROMPT_BLOCKS * TOKENS];
    struct block_hash more[PROMPT_BLOCKS];

    put_on_disk(11);
    for (uint32_t i = 0; i < PROMPT_BLOCKS * TOKENS; i++)
        other[i] = 1000 + i;
    prefix_roots_chain(&roots, other, PROMPT_BLOCKS * (size_t)TOKENS, TOKENS, more);
    for (uint32_t i = 0; i < 11; i++)
        tier.there[tier.n_there++] = more[i];
    assert_true(waits(0));
    tasks[1].spec.order.tokens = other;
    assert_true(waits(1));
    assert_int_equal(tier.n_begun, N_BLOCKS / 4); /* 11 and 5: the second read is limited by the room */
}

/* A peer fetches: there is no task, and the fetching worker decides whether it pays. */
static void blocks_that_a_peer_fetches_are_read(void **state)
{
    put_on_disk(9);
    tier.read_ns = 9 * NS_PER_MS; /* computing would be faster here */
    assert_int_equal(worker_disk_fetch(&engine, 5, hashes + 9, 3), 0);
    uint64_t read =
        worker_disk_fetch(&engine, 5, hashes + 2, 10); /* from the middle: the peer has the beginning */
    assert_true(read != 0);
    assert_int_equal(tier.n_begun, 7);
    assert_int_equal(worker_disk_fetch(&engine, 6, hashes + 2, 7), read); /* the next block also */
    assert_int_equal(tier.n_begun, 7);
    assert_int_equal(kv_tenant_blocks(engine.pool, 5), 7);
    tier.n_done = 7;
    worker_disk_turn(&engine);
    assert_int_equal(serve_read, read);
    assert_int_equal(kv_peek(engine.pool, hashes + 2, 10), 7);
    assert_int_equal(worker_disk_fetch(&engine, 5, hashes + 2, 7), 0); /* all of it is in the pool */
}

static void a_loan_waits_no_longer_than_it_should(void **state)
{
    put_on_disk(9);
    uint64_t read = worker_disk_fetch(&engine, 5, hashes, 9);
    worker_disk_tick(&engine, clock_now_ns() + NS_PER_S);
    assert_int_not_equal(serve_read, read);
    worker_disk_tick(&engine, clock_now_ns() + 10 * NS_PER_S);
    assert_int_equal(serve_read, read);
    assert_int_equal(worker_disk_fetch(&engine, 5, hashes, 9), 0); /* and no fetch waits for it again */
}

/* A pool full of other blocks, of which this prompt's beginning is the least recently used. */
static void fill_pool(uint32_t n_of_prompt)
{
    kv_block_id ids[N_BLOCKS];
    struct block_hash hash = {{0}};

    cache(n_of_prompt);
    assert_int_equal(kv_take(engine.pool, N_BLOCKS - n_of_prompt, ids), 0);
    for (uint32_t i = 0; i < N_BLOCKS - n_of_prompt; i++) {
        hash.bytes[0] = (uint8_t)(i + 1);
        kv_seal(engine.pool, ids[i], &hash);
        kv_unref(engine.pool, ids[i]);
    }
}

static void a_read_does_not_evict_the_beginning_that_it_completes(void **state)
{
    tier.write_with = E_EXISTS;
    fill_pool(5);
    put_on_disk(11);
    assert_true(waits(0));
    assert_int_equal(tier.n_begun, 6);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 5);
    worker_disk_stop_waiting(&engine, &tasks[0]); /* cancelled: the read goes on */
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 11);
    tier.n_done = 6;
    worker_disk_turn(&engine);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 11);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS);
}

static void a_late_read_holds_the_beginning_no_longer(void **state)
{
    tier.write_with = E_EXISTS;
    fill_pool(5);
    put_on_disk(11);
    assert_true(waits(0));
    worker_disk_tick(&engine, clock_now_ns() + 10 * NS_PER_S);
    assert_int_equal(n_went_on, 1);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 6);
}

static void running_sequences_get_the_blocks_that_a_read_holds(void **state)
{
    tier.write_with = E_EXISTS;
    fill_pool(5);
    put_on_disk(11);
    assert_true(waits(0));
    n_running = N_BLOCKS - 11;
    worker_disk_tick(&engine, clock_now_ns());
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 11);
    n_running++;
    worker_disk_tick(&engine, clock_now_ns());
    assert_int_equal(n_went_on, 0);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 6);
}

static void a_read_without_room_holds_nothing(void **state)
{
    tier.write_with = E_EXISTS;
    fill_pool(5);
    put_on_disk(11);
    n_running = N_BLOCKS - 5;
    assert_false(waits(0));
    assert_int_equal(kv_available(engine.pool), N_BLOCKS);
}

/* Blocks of one prompt in the pool, on disk, and in both. */
static void a_read_leaves_out_what_the_pool_has(void **state)
{
    kv_block_id ids[2];

    tier.write_with = E_EXISTS;
    put_on_disk(6);
    tier.there[tier.n_there++] = hashes[8];
    cache(2);
    for (uint32_t i = 6; i < 8; i++) {
        assert_int_equal(kv_take(engine.pool, 1, ids), 0);
        kv_seal(engine.pool, ids[0], &hashes[i]);
        kv_unref(engine.pool, ids[0]);
    }
    assert_true(waits(0));
    assert_int_equal(tier.n_begun, 5);
    assert_true(block_hash_equal(&tier.begun[0].hash, &hashes[2]));
    assert_true(block_hash_equal(&tier.begun[4].hash, &hashes[8]));
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 9);
    tier.n_done = 5;
    worker_disk_turn(&engine);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 9);
}

/* ---- events for routers ---- */

/* Checks the next message to routers: these events,
 * or a snapshot of these blocks; tiers of hashes[from..) as letters. */
static void assert_reported(bool is_snapshot, uint32_t from, const char *tiers)
{
    struct report *report;
    size_t n = strlen(tiers);

    if (is_snapshot)
        worker_publish_all(&engine, 0, 100);
    else
        worker_publish_flush(&engine);
    report = mailbox_receive(engine.reports);
    if (n == 0 && !is_snapshot) {
        assert_null(report);
        return;
    }
    assert_non_null(report);
    assert_int_equal(report->is_snapshot, is_snapshot);
    assert_int_equal(report->n_events, n);
    for (uint32_t i = 0; i < n; i++) {
        enum block_tier wanted = tiers[i] == 'm'   ? BLOCK_IN_MEMORY
                                 : tiers[i] == 'd' ? BLOCK_ON_DISK
                                                   : BLOCK_GONE;

        assert_int_equal(report->events[i].tier, wanted);
        assert_true(block_hash_equal(&report->events[i].hash, &hashes[from + i]));
    }
    report_free(report);
}

static void tier_reports(uint32_t at, bool is_here)
{
    tier.opts.on_block(tier.opts.on_block_arg, &hashes[at], is_here);
}

static void evicted_blocks_are_on_disk_if_they_were_saved(void **state)
{
    tier.write_with = E_EXISTS;
    cache(4);
    assert_reported(false, 0, "mmmm");
    put_on_disk(3);
    for (uint32_t i = 0; i < 4; i++)
        tier_reports(i, true); /* saved while in memory: no event */
    assert_reported(false, 0, "");
    kv_clear(engine.pool);
    assert_reported(false, 0, "dddg");
}

static void blocks_dropped_by_the_disk_are_gone_unless_memory_has_them(void **state)
{
    tier.write_with = E_EXISTS;
    put_on_disk(2);
    cache(1);
    assert_reported(false, 0, "m");
    tier.n_there = 0; /* its file was evicted */
    tier_reports(0, false);
    tier_reports(1, false);
    assert_reported(false, 1, "g");
    kv_clear(engine.pool);
    assert_reported(false, 0, "g");
    tier_reports(0, true); /* written, but memory lost it meanwhile */
    assert_reported(false, 0, "d");
}

static void blocks_read_back_are_in_memory(void **state)
{
    put_on_disk(1);
    assert_true(waits(0));
    tier.n_done = 1;
    worker_disk_turn(&engine);
    assert_reported(false, 0, "m");
    kv_clear(engine.pool);
    assert_reported(false, 0, "d");
}

/* The disk's blocks first, then the pool's, which override them. */
static void a_snapshot_has_both_tiers(void **state)
{
    struct report *report;

    tier.write_with = E_EXISTS;
    put_on_disk(3);
    assert_reported(true, 0, "ddd"); /* a restart: no block is in memory */
    cache(2);
    worker_publish_all(&engine, 1, 100);
    report = mailbox_receive(engine.reports); /* the events before it */
    assert_int_equal(report->n_events, 2);
    assert_int_equal(report->first_event, 1);
    report_free(report);
    report = mailbox_receive(engine.reports);
    assert_int_equal(report->number, 1);
    assert_int_equal(report->first_event, 3);
    assert_int_equal(report->n_events, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(report->events[i].tier, i < 3 ? BLOCK_ON_DISK : BLOCK_IN_MEMORY);
    report_free(report);
    worker_publish_all(&engine, 1, 2); /* a router with many workers */
    report = mailbox_receive(engine.reports);
    assert_int_equal(report->n_events, 4);
    report_free(report);
}

static void tasks_may_outlive_the_tier(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    tier.n_done = tier.n_begun;
    worker_disk_close(&engine);
    worker_disk_stop_waiting(&engine, &tasks[0]);
    assert_int_equal(tasks[0].disk_read, 0);
    for (uint32_t i = 0; i < tier.n_begun; i++) {
        kv_unlease(engine.pool, tier.begun[i].id);
        kv_unref(engine.pool, tier.begun[i].id);
    }
    tier = (struct kv_tier){.read_ns = NS_PER_US};
    worker_disk_open(&engine);
}

static void a_broken_store_is_done_without(void **state)
{
    worker_disk_close(&engine);
    engine.opts.disk.path = "broken";
    worker_disk_open(&engine);
    assert_null(engine.disk);
    put_on_disk(9);
    assert_false(waits(0));
    worker_disk_turn(&engine);
    worker_disk_tick(&engine, clock_now_ns());
    engine.opts.disk.path = "played";
    worker_disk_open(&engine);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, disk_rig_open, disk_rig_close)
    const struct CMUnitTest tests[] = {T(a_prompt_waits_for_what_is_on_disk),
                                       T(the_last_token_is_fed_in_any_case),
                                       T(computing_is_quicker_sometimes),
                                       T(tasks_without_blocks_to_read_do_not_wait),
                                       T(equal_prompts_wait_for_the_same_reads),
                                       T(reads_that_fail_or_break_cost_only_themselves),
                                       T(a_slow_disk_is_not_waited_for),
                                       T(reads_leave_most_of_the_pool),
                                       T(blocks_that_a_peer_fetches_are_read),
                                       T(a_loan_waits_no_longer_than_it_should),
                                       T(a_read_does_not_evict_the_beginning_that_it_completes),
                                       T(a_late_read_holds_the_beginning_no_longer),
                                       T(running_sequences_get_the_blocks_that_a_read_holds),
                                       T(a_read_without_room_holds_nothing),
                                       T(a_read_leaves_out_what_the_pool_has),
                                       T(evicted_blocks_are_on_disk_if_they_were_saved),
                                       T(blocks_dropped_by_the_disk_are_gone_unless_memory_has_them),
                                       T(blocks_read_back_are_in_memory),
                                       T(a_snapshot_has_both_tiers),
                                       T(tasks_may_outlive_the_tier),
                                       T(a_broken_store_is_done_without)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
