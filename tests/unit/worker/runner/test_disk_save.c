/* SPDX-License-Identifier: Apache-2.0 */
/* Cached blocks that are saved on disk: disk.c. */
#include "tests/unit/worker/runner/disk_rig.h"

#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/disk_priv.h"

static void cached_blocks_are_saved_a_few_at_a_time(void **state)
{
    struct kv_pool_counts counts;

    cache(PROMPT_BLOCKS);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_begun, N_BLOCKS / 8);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - N_BLOCKS / 8); /* leased during the write */
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, PROMPT_BLOCKS); /* each once */
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_writeback, 0);
    assert_int_equal(counts.n_cached, PROMPT_BLOCKS);
}

static void blocks_that_cannot_be_saved_stay_cached(void **state)
{
    struct kv_pool_counts counts;

    cache(4);
    tier.write_with = E_CLOSED; /* the tier is resting */
    worker_disk_turn(&engine);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 1); /* tried once, then paused */
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_cached, 4);
    assert_int_equal(counts.n_writeback, 4);
}

static void blocks_that_failed_are_tried_again(void **state)
{
    cache(1);
    worker_disk_turn(&engine);
    tier.begun[0].result = E_FULL;
    tier.n_done = 1;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2);
}

static void a_tier_that_rests_is_offered_nothing(void **state)
{
    tier.rests = true;
    cache(4);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 0);
    tier.rests = false;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 4);
}

static void blocks_are_saved_for_whom_they_count(void **state)
{
    kv_block_id id;

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(kv_take_for(engine.pool, i < 2 ? tenant_number("team") : KV_TENANT_NONE, 1, &id), 0);
        kv_seal(engine.pool, id, &hashes[i]);
        kv_unref(engine.pool, id);
        worker_disk_turn(&engine);
        assert_int_equal(tier.n_writes, i + 1);
        assert_true(tier.written_for == (i < 2 ? tenant_number("team") : KV_TENANT_NONE));
    }
}

static void blocks_without_room_on_disk_are_not_offered_again(void **state)
{
    struct kv_pool_counts counts;

    tier.write_with = E_FULL;
    cache(3);
    worker_disk_turn(&engine);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 3);
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_cached, 3);
    assert_int_equal(counts.n_writeback, 0);
}

static void use(uint32_t n)
{
    kv_block_id ids[PROMPT_BLOCKS];

    assert_int_equal(kv_match(engine.pool, hashes, n, ids), n);
    while (n > 0)
        kv_unref(engine.pool, ids[--n]);
}

static void dropped_blocks_are_saved_at_their_next_use(void **state)
{
    cache(2);
    worker_disk_turn(&engine);
    put_on_disk(2);
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    use(2);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2);
    tier.n_there = 1;
    tier.opts.on_block(tier.opts.on_block_arg, &hashes[1], false);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2); /* not before */
    use(2);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 3);
    assert_true(block_hash_equal(&tier.begun[2].hash, &hashes[1]));
}

/* The disk was full of other tenants' blocks, or the segment left while the block was written. */
static void blocks_that_found_no_room_are_offered_at_their_next_use(void **state)
{
    tier.write_with = E_FULL;
    cache(1);
    worker_disk_turn(&engine);
    tier.write_with = 0;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 1);
    use(1);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2);
    tier.n_done = tier.n_begun; /* written, and not on disk */
    worker_disk_turn(&engine);
    use(1);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 3);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, disk_rig_open, disk_rig_close)
    const struct CMUnitTest tests[] = {T(cached_blocks_are_saved_a_few_at_a_time),
                                       T(blocks_that_cannot_be_saved_stay_cached),
                                       T(blocks_that_failed_are_tried_again),
                                       T(a_tier_that_rests_is_offered_nothing),
                                       T(blocks_are_saved_for_whom_they_count),
                                       T(blocks_without_room_on_disk_are_not_offered_again),
                                       T(dropped_blocks_are_saved_at_their_next_use),
                                       T(blocks_that_found_no_room_are_offered_at_their_next_use)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
