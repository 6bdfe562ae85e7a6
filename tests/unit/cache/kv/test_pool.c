/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a block, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/pool.h"
#include "cache/kv/pool_cache.h"

#define N_BLOCKS 8

static uint64_t fake_now_ns;

static uint64_t fake_now(void)
{
    return fake_now_ns;
}

static int setup(void **state)
{
    struct kv_pool_opts opts = {.n_blocks = N_BLOCKS, .now_ns = fake_now};

    fake_now_ns = 1000;
    return kv_pool_new(&opts, (struct kv_pool **)state);
}

static int teardown(void **state)
{
    kv_pool_free(*state);
    return 0;
}

static struct block_hash hash_of(uint32_t n)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &n, sizeof(n));
    return hash;
}

/* Takes a block, seals it under hash n, and releases it. */
static kv_block_id cache_one(struct kv_pool *pool, uint32_t n)
{
    struct block_hash hash = hash_of(n);
    kv_block_id id;

    assert_int_equal(kv_take(pool, 1, &id), 0);
    kv_seal(pool, id, &hash);
    kv_unref(pool, id);
    assert_int_equal(kv_state_of(pool, id), KV_CACHED);
    return id;
}

static bool is_found(struct kv_pool *pool, uint32_t n)
{
    struct block_hash hash = hash_of(n);

    return kv_peek(pool, &hash, 1) == 1;
}

static void take_is_all_or_none(void **state)
{
    struct kv_pool *pool = *state;
    kv_block_id ids[N_BLOCKS + 1];

    assert_int_equal(kv_take(pool, N_BLOCKS + 1, ids), E_KV_FULL);
    assert_int_equal(kv_available(pool), N_BLOCKS);
    assert_int_equal(kv_take(pool, N_BLOCKS, ids), 0);
    assert_int_equal(kv_available(pool), 0);
    assert_int_equal(kv_take(pool, 1, ids), E_KV_FULL);
    assert_int_equal(kv_take(pool, 0, NULL), 0);
}

static void unsealed_blocks_go_back_to_free(void **state)
{
    struct kv_pool *pool = *state;
    kv_block_id id;

    assert_int_equal(kv_take(pool, 1, &id), 0);
    assert_int_equal(kv_state_of(pool, id), KV_FILLING);
    kv_ref(pool, id);
    kv_unref(pool, id);
    assert_int_equal(kv_state_of(pool, id), KV_FILLING);
    kv_unref(pool, id);
    assert_int_equal(kv_state_of(pool, id), KV_FREE);
}

static void cached_blocks_are_found_and_shared(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash chain[3] = {hash_of(1), hash_of(2), hash_of(3)};
    kv_block_id a = cache_one(pool, 1), b = cache_one(pool, 2), ids[3];
    struct kv_pool_counts counts;

    assert_int_equal(kv_match(pool, chain, 3, ids), 2);
    assert_int_equal(ids[0], a);
    assert_int_equal(ids[1], b);
    assert_int_equal(kv_state_of(pool, a), KV_SEALED);
    assert_int_equal(kv_match(pool, chain, 1, ids), 1);
    kv_unref(pool, a);
    assert_int_equal(kv_state_of(pool, a), KV_SEALED);
    kv_unref(pool, a);
    assert_int_equal(kv_state_of(pool, a), KV_CACHED);
    kv_unref(pool, b);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_hits, 3);
    assert_int_equal(counts.n_misses, 1);
    assert_int_equal(counts.n_cached, 2);
}

static void match_stops_at_the_first_gap(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash chain[3] = {hash_of(1), hash_of(2), hash_of(3)};
    kv_block_id ids[3];

    cache_one(pool, 1);
    cache_one(pool, 3);
    assert_int_equal(kv_peek(pool, chain, 3), 1);
    assert_int_equal(kv_match(pool, chain, 3, ids), 1);
    kv_unref(pool, ids[0]);
}

static void eviction_takes_the_least_recently_used(void **state)
{
    struct kv_pool *pool = *state;
    kv_block_id ids[N_BLOCKS], again;
    struct block_hash two = hash_of(2);

    for (uint32_t n = 0; n < N_BLOCKS; n++)
        cache_one(pool, n);
    assert_int_equal(kv_match(pool, &two, 1, &again), 1); /* used once more */
    kv_unref(pool, again);
    assert_int_equal(kv_take(pool, 3, ids), 0);
    assert_false(is_found(pool, 0));
    assert_false(is_found(pool, 1));
    assert_true(is_found(pool, 2));
    assert_false(is_found(pool, 3));
    assert_true(is_found(pool, 4));
}

static void lifetimes_end(void **state)
{
    struct kv_pool *pool = *state;
    kv_block_id held, ids[2];
    struct block_hash two = hash_of(2);
    struct kv_pool_counts counts;

    cache_one(pool, 1);
    fake_now_ns += 10 * NS_PER_S;
    cache_one(pool, 2);
    assert_int_equal(kv_match(pool, &two, 1, &held), 1);
    fake_now_ns += 290 * NS_PER_S - 1;
    assert_true(is_found(pool, 1));
    fake_now_ns += 1;
    assert_false(is_found(pool, 1)); /* without kv_expire, too */
    assert_int_equal(kv_match(pool, (struct block_hash[]){hash_of(1)}, 1, ids), 0);
    kv_expire(pool);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_expired, 1);

    fake_now_ns += 3600 * NS_PER_S; /* the lifetime counts from the last use, and this block is in use */
    assert_true(is_found(pool, 2));
    kv_unref(pool, held);
    fake_now_ns += 300 * NS_PER_S - 1;
    assert_true(is_found(pool, 2));
}

static void leased_blocks_are_never_free(void **state)
{
    struct kv_pool *pool = *state;
    kv_block_id ids[N_BLOCKS], id;
    struct block_hash one = hash_of(1);
    struct kv_pool_counts counts;

    assert_int_equal(kv_take(pool, 2, ids), 0);
    kv_lease(pool, ids[0]);
    kv_lease(pool, ids[0]);
    kv_unref(pool, ids[0]);
    assert_int_equal(kv_state_of(pool, ids[0]), KV_ZOMBIE);

    kv_seal(pool, ids[1], &one);
    kv_lease(pool, ids[1]);
    kv_unref(pool, ids[1]);
    assert_int_equal(kv_state_of(pool, ids[1]), KV_SEALED);
    assert_int_equal(kv_available(pool), N_BLOCKS - 2);
    assert_int_equal(kv_match(pool, &one, 1, &id), 1); /* held by a lease only, and still found */
    kv_unref(pool, id);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_leased, 2);
    assert_int_equal(counts.n_zombie, 1);

    kv_unlease(pool, ids[0]);
    assert_int_equal(kv_state_of(pool, ids[0]), KV_ZOMBIE);
    kv_unlease(pool, ids[0]);
    assert_int_equal(kv_state_of(pool, ids[0]), KV_FREE);
    kv_unlease(pool, ids[1]);
    assert_int_equal(kv_state_of(pool, ids[1]), KV_CACHED);
}

static void duplicate_takes_over_when_the_first_is_gone(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash one = hash_of(1);
    kv_block_id ids[N_BLOCKS], rest[N_BLOCKS];

    assert_int_equal(kv_take(pool, 2, ids), 0);
    kv_seal(pool, ids[0], &one);
    kv_seal(pool, ids[1], &one);
    kv_unref(pool, ids[0]);
    assert_int_equal(kv_take(pool, N_BLOCKS - 1, rest), 0); /* evicts the first */
    assert_false(is_found(pool, 1));
    kv_unref(pool, ids[1]);
    assert_int_equal(kv_state_of(pool, ids[1]), KV_CACHED);
    assert_true(is_found(pool, 1));
}

static void duplicate_keeps_the_first_young(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash one = hash_of(1);
    kv_block_id ids[2], rest[N_BLOCKS];

    assert_int_equal(kv_take(pool, 2, ids), 0);
    kv_seal(pool, ids[0], &one);
    kv_seal(pool, ids[1], &one);
    kv_unref(pool, ids[0]);
    cache_one(pool, 2);
    kv_unref(pool, ids[1]);
    assert_int_equal(kv_state_of(pool, ids[1]), KV_FREE);
    assert_int_equal(kv_take(pool, N_BLOCKS - 1, rest), 0);
    assert_true(is_found(pool, 1));
    assert_false(is_found(pool, 2));
}

static void forgotten_blocks_are_not_found(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash one = hash_of(1);
    kv_block_id id;

    cache_one(pool, 1);
    assert_int_equal(kv_match(pool, &one, 1, &id), 1);
    kv_forget(pool, id);
    assert_false(is_found(pool, 1));
    kv_unref(pool, id);
    assert_int_equal(kv_state_of(pool, id), KV_FREE);
}

static void takes_adjacent_runs(void **state)
{
    struct kv_pool_opts opts = {.n_blocks = 200};
    struct kv_pool *pool;
    kv_block_id ids[200], got[200];

    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    assert_int_equal(kv_take(pool, 200, ids), 0);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(ids[i], i);

    /* Holes: 3..4, 10..14, 60..70 (across a word), 120. */
    const uint32_t holes[][2] = {{3, 5}, {10, 15}, {60, 71}, {120, 121}};
    for (size_t h = 0; h < 4; h++) {
        for (uint32_t i = holes[h][0]; i < holes[h][1]; i++)
            kv_unref(pool, i);
    }
    assert_int_equal(kv_take(pool, 5, got), 0); /* the first hole that has room for all */
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(got[i], 10 + i);
    assert_int_equal(kv_take(pool, 1, got), 0); /* the lowest */
    assert_int_equal(got[0], 3);
    assert_int_equal(kv_take(pool, 12, got), 0); /* no hole has room for all: the longest first */
    for (uint32_t i = 0; i < 11; i++)
        assert_int_equal(got[i], 60 + i);
    assert_int_equal(got[11], 120);
    assert_int_equal(kv_take(pool, 1, got), 0);
    assert_int_equal(got[0], 4);
    assert_int_equal(kv_take(pool, 1, got), E_KV_FULL);
    kv_pool_free(pool);
}

/* Three blocks of a conversation: the first is pinned for an hour,
 * the second for five minutes, the third not. */
static void marks_keep_blocks_longer_and_make_them_go_last(void **state)
{
    struct kv_pool *pool = *state;
    const uint64_t minute_ns = 60 * NS_PER_S;
    struct kv_pool_counts counts;
    kv_block_id ids[3], got[N_BLOCKS];

    assert_int_equal(kv_take(pool, 3, ids), 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct block_hash hash = hash_of(i);

        kv_seal(pool, ids[i], &hash);
    }
    kv_pin(pool, ids[0], fake_now_ns + 60 * minute_ns);
    kv_pin(pool, ids[0], fake_now_ns + 5 * minute_ns); /* the longer pin stands */
    kv_pin(pool, ids[1], fake_now_ns + 5 * minute_ns);
    for (uint32_t i = 3; i > 0; i--)
        kv_unref(pool, ids[i - 1]);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_pinned, 2);

    cache_one(pool, 7); /* used later than all of them, and yet evicted before the pinned ones */
    assert_int_equal(kv_take(pool, N_BLOCKS - 2, got), 0);
    assert_true(is_found(pool, 0) && is_found(pool, 1));
    assert_false(is_found(pool, 2) || is_found(pool, 7));
    for (uint32_t i = 0; i < N_BLOCKS - 2; i++)
        kv_unref(pool, got[i]);

    fake_now_ns += 6 * minute_ns;
    kv_expire(pool);
    assert_true(is_found(pool, 0));
    assert_false(is_found(pool, 1));
    fake_now_ns += 53 * minute_ns;
    kv_expire(pool);
    assert_true(is_found(pool, 0));
    assert_int_equal(kv_take(pool, N_BLOCKS, got), 0); /* pins yield when memory is short */
    assert_false(is_found(pool, 0));
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        kv_unref(pool, got[i]);
}

static void set_replicated(struct kv_pool *pool, uint32_t n, bool is_replicated)
{
    struct block_hash hash = hash_of(n);
    kv_block_id id;

    assert_int_equal(kv_match(pool, &hash, 1, &id), 1);
    kv_set_replicated(pool, id, is_replicated);
    kv_unref(pool, id);
}

static void evict_one(struct kv_pool *pool)
{
    kv_block_id got[N_BLOCKS];
    struct kv_pool_counts counts;

    kv_pool_counts(pool, &counts);
    assert_int_equal(kv_take(pool, counts.n_free + 1, got), 0);
    for (uint32_t i = 0; i < counts.n_free + 1; i++)
        kv_unref(pool, got[i]);
}

/* Blocks that other workers have are evicted first,
 * unless they were used much later than blocks of this pool only. */
static void replicated_blocks_count_as_twice_as_old(void **state)
{
    struct kv_pool *pool = *state;
    struct kv_pool_counts counts;

    cache_one(pool, 1);
    fake_now_ns += 10;
    cache_one(pool, 2);
    set_replicated(pool, 2, true);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_replicated, 1);
    fake_now_ns += 9; /* 19 and 2 x 9 */
    evict_one(pool);
    assert_false(is_found(pool, 1));

    fake_now_ns = 2000;
    cache_one(pool, 3);
    fake_now_ns += 10;
    set_replicated(pool, 2, true); /* and is_found() above made it young */
    fake_now_ns += 10;             /* 20 and 2 x 10 */
    evict_one(pool);
    assert_false(is_found(pool, 2));
    assert_true(is_found(pool, 3));
}

static void the_last_copy_goes_first_no_more(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash hash = hash_of(1);

    cache_one(pool, 1);
    set_replicated(pool, 1, true);
    fake_now_ns += 10;
    cache_one(pool, 2);
    kv_clear_replicated(pool, &hash);
    hash = hash_of(99);
    kv_clear_replicated(pool, &hash); /* this pool does not have the block: a late hint */
    evict_one(pool);
    assert_true(is_found(pool, 1));
    assert_false(is_found(pool, 2));
}

static struct told {
    uint32_t n_came, n_went;
    int32_t n_here;
} told;

static void note_block(void *arg, const struct block_hash *hash, bool is_here)
{
    told.n_came += is_here;
    told.n_went += !is_here;
    told.n_here += is_here ? 1 : -1;
}

static void count_block(void *arg, const struct block_hash *hash)
{
    ++*(int32_t *)arg;
}

static void listeners_get_an_event_for_each_block_that_comes_and_goes(void **state)
{
    struct kv_pool_opts opts = {.n_blocks = 4, .now_ns = fake_now, .on_block = note_block};
    struct block_hash hash = hash_of(0);
    struct kv_pool *pool;
    kv_block_id duplicates[2], id;
    int32_t n_found = 0;

    told = (struct told){0};
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    assert_int_equal(kv_take(pool, 2, duplicates), 0);
    kv_seal(pool, duplicates[0], &hash);
    kv_seal(pool, duplicates[1], &hash); /* not findable, so there is no event */
    assert_int_equal(told.n_came, 1);
    kv_forget(pool, duplicates[0]);
    assert_int_equal(told.n_went, 1);
    kv_unref(pool, duplicates[0]);
    kv_unref(pool, duplicates[1]); /* becomes findable under the hash */
    assert_int_equal(told.n_came, 2);
    for (uint32_t i = 1; i < 9; i++) {
        cache_one(pool, i);
        n_found = 0;
        kv_each(pool, count_block, &n_found);
        assert_int_equal(n_found, told.n_here);
    }
    assert_int_equal(kv_take(pool, 1, &id), 0);
    fake_now_ns += 3600 * NS_PER_S;
    kv_expire(pool);
    assert_int_equal(told.n_here, 0);
    kv_unref(pool, id);
    kv_pool_free(pool);
}

static void quiet_blocks_are_found_and_not_told(void **state)
{
    struct kv_pool_opts opts = {.n_blocks = 4, .now_ns = fake_now, .on_block = note_block};
    struct block_hash hash = hash_of(3);
    int32_t n_told = 0;
    struct kv_pool *pool;
    kv_block_id id;

    (void)state;
    told = (struct told){0};
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    assert_int_equal(kv_take(pool, 1, &id), 0);
    kv_seal_quiet(pool, id, &hash);
    kv_unref(pool, id);
    assert_true(is_found(pool, 3));
    kv_each(pool, count_block, &n_told);
    assert_int_equal(n_told, 0);
    kv_clear(pool);
    assert_false(is_found(pool, 3));
    assert_int_equal(told.n_came, 0);
    assert_int_equal(told.n_went, 0);
    cache_one(pool, 3); /* nothing of it stays with the block */
    assert_int_equal(told.n_came, 1);
    kv_pool_free(pool);
}

static void senseless_pools_are_refused(void **state)
{
    struct kv_pool_opts opts = {.n_blocks = 0};
    struct kv_pool *pool = NULL;

    assert_int_equal(kv_pool_new(&opts, &pool), E_INVAL);
    opts.n_blocks = UINT32_MAX;
    assert_int_equal(kv_pool_new(&opts, &pool), E_INVAL);
    assert_null(pool);
    kv_pool_free(NULL);
}

/* Takes and seals a block under hash n, and releases it as a spare one or not. */
static kv_block_id cache_spare(struct kv_pool *pool, uint32_t n, bool is_spare)
{
    struct block_hash hash = hash_of(n);
    kv_block_id id;

    assert_int_equal(kv_take(pool, 1, &id), 0);
    kv_seal(pool, id, &hash);
    kv_set_spare(pool, id, is_spare);
    kv_unref(pool, id);
    return id;
}

static void spare_blocks_are_evicted_first_until_they_are_used(void **state)
{
    struct kv_pool *pool = *state;
    struct block_hash used = hash_of(6);
    struct kv_pool_counts counts;
    kv_block_id id;

    for (uint32_t n = 0; n < N_BLOCKS; n++, fake_now_ns++)
        (void)cache_spare(pool, n, n >= 5);
    assert_int_equal(kv_match(pool, &used, 1, &id), 1);
    kv_unref(pool, id);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_spare, 2);
    evict_one(pool);
    assert_false(is_found(pool, 5));
    evict_one(pool);
    assert_false(is_found(pool, 7));
    assert_true(is_found(pool, 6));
    evict_one(pool);
    assert_false(is_found(pool, 0)); /* no spare one is left */
}

static void a_duplicate_tells_if_a_block_is_spare(void **state)
{
    struct kv_pool *pool = *state;
    struct kv_pool_counts counts;

    (void)cache_spare(pool, 1, true);
    (void)cache_spare(pool, 1, true);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_spare, 1);
    assert_int_equal(counts.n_cached, 1);
    (void)cache_spare(pool, 1, false);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_spare, 0);
    assert_int_equal(counts.n_cached, 1);
}

static void spare_blocks_expire_like_others(void **state)
{
    struct kv_pool *pool = *state;

    (void)cache_spare(pool, 1, true);
    fake_now_ns += 301 * NS_PER_S;
    kv_expire(pool);
    assert_false(is_found(pool, 1));
    assert_int_equal(kv_available(pool), N_BLOCKS);
}

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(replicated_blocks_count_as_twice_as_old),
        POOL_TEST(the_last_copy_goes_first_no_more),
        POOL_TEST(listeners_get_an_event_for_each_block_that_comes_and_goes),
        POOL_TEST(take_is_all_or_none),
        POOL_TEST(unsealed_blocks_go_back_to_free),
        POOL_TEST(cached_blocks_are_found_and_shared),
        POOL_TEST(match_stops_at_the_first_gap),
        POOL_TEST(eviction_takes_the_least_recently_used),
        POOL_TEST(spare_blocks_are_evicted_first_until_they_are_used),
        POOL_TEST(a_duplicate_tells_if_a_block_is_spare),
        POOL_TEST(spare_blocks_expire_like_others),
        cmocka_unit_test(quiet_blocks_are_found_and_not_told),
        POOL_TEST(lifetimes_end),
        POOL_TEST(leased_blocks_are_never_free),
        POOL_TEST(duplicate_takes_over_when_the_first_is_gone),
        POOL_TEST(duplicate_keeps_the_first_young),
        POOL_TEST(forgotten_blocks_are_not_found),
        POOL_TEST(marks_keep_blocks_longer_and_make_them_go_last),
        cmocka_unit_test(takes_adjacent_runs),
        cmocka_unit_test(senseless_pools_are_refused),
    };
    return cmocka_run_group_tests_name("cache/kv/pool", tests, NULL, NULL);
}
