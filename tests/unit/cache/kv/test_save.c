/* SPDX-License-Identifier: Apache-2.0 */
/* Runs for the remote tier: consecutive blocks of a chain, up to where chains part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cache/kv/pool_writeback.h"

enum { BLOCKS = 64, MOST = 4 };

/* Blocks of chain `name`: those before `from` are the chain's that it parts from. */
static void chain_extend(struct block_hash *chain, uint8_t name, uint32_t from, uint32_t to)
{
    for (uint32_t at = from; at < to; at++) {
        chain[at] = (struct block_hash){{0}};
        chain[at].bytes[0] = name;
        memcpy(chain[at].bytes + 4, &at, sizeof(at));
    }
}

static struct kv_pool *pool_new(void)
{
    struct kv_pool *pool;
    const struct kv_pool_opts opts = {.n_blocks = BLOCKS, .block_tokens = 32, .has_remote = true};

    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    return pool;
}

/* A request with this chain as its prompt: finds the cached blocks, computes the rest, and ends. */
static void ask(struct kv_pool *pool, const struct block_hash *chain, uint32_t n)
{
    kv_block_id ids[BLOCKS];
    uint32_t n_found = kv_match(pool, chain, n, ids);

    kv_note_match(pool, chain, n_found, n);
    assert_int_equal(kv_take(pool, n - n_found, ids + n_found), 0);
    for (uint32_t at = n_found; at < n; at++) {
        kv_seal(pool, ids[at], &chain[at]);
        kv_note_block(pool, chain, at);
    }
    while (n > 0)
        kv_unref(pool, ids[--n]);
}

/* Saves a run, and checks that it is chain[from, to). */
static void expect_run(struct kv_pool *pool, const struct block_hash *chain, uint32_t from, uint32_t to)
{
    struct kv_save saves[MOST];
    uint32_t n = kv_save_run(pool, MOST, saves);

    assert_int_equal(n, to - from);
    for (uint32_t i = n; i-- > 0;) {
        assert_memory_equal(&saves[i].hash, &chain[from + i], sizeof(saves[i].hash));
        assert_int_equal(kv_state_of(pool, saves[i].id), KV_SEALED);
        kv_save_end(pool, KV_BELOW_REMOTE, saves[i].id, false);
        assert_int_equal(kv_state_of(pool, saves[i].id), KV_CACHED);
    }
}

static void expect_none(struct kv_pool *pool)
{
    struct kv_save saves[MOST];

    assert_int_equal(kv_save_run(pool, MOST, saves), 0);
}

static void runs_end_at_multiples(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[10];

    (void)state;
    chain_extend(a, 'a', 0, 10);
    ask(pool, a, 10);
    expect_none(pool); /* one use */
    ask(pool, a, 10);
    expect_run(pool, a, 8, 10);
    expect_run(pool, a, 4, 8);
    expect_run(pool, a, 0, 4);
    expect_none(pool);
    ask(pool, a, 10);
    expect_none(pool); /* saved */
    kv_pool_free(pool);
}

/* Two chains share three blocks: these are a run, although they lie in the middle of an aligned group. */
static void runs_end_where_chains_part(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[8], b[8];

    (void)state;
    chain_extend(a, 'a', 0, 8);
    memcpy(b, a, sizeof(b));
    chain_extend(b, 'b', 3, 8);
    ask(pool, a, 8);
    ask(pool, b, 8);
    kv_save_all(pool, true); /* a worker that drains */
    for (unsigned i = 0, n_first = 0; i < 5; i++) {
        struct kv_save saves[MOST];
        uint32_t n = kv_save_run(pool, MOST, saves);
        bool is_first = memcmp(&saves[0].hash, &a[0], sizeof(a[0])) == 0;

        assert_true(n == 3 || n == 1 || n == 4);
        assert_true(!is_first || n == 3);
        n_first += is_first;
        assert_int_equal(i == 4 ? n_first : 1, 1);
        for (uint32_t at = 0; at < n; at++)
            kv_save_end(pool, KV_BELOW_REMOTE, saves[at].id, false);
    }
    expect_none(pool);
    kv_pool_free(pool);
}

/* A saved run is found by its last block only: the part that another prompt shares becomes a run as well. */
static void a_shared_beginning_is_saved_again(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[8], b[8];

    (void)state;
    chain_extend(a, 'a', 0, 8);
    memcpy(b, a, sizeof(b));
    chain_extend(b, 'b', 6, 8);
    ask(pool, a, 8);
    ask(pool, a, 8);
    expect_run(pool, a, 4, 8);
    expect_run(pool, a, 0, 4);
    ask(pool, b, 8);
    expect_run(pool, a, 4, 6);
    expect_none(pool);
    ask(pool, b, 8); /* its own blocks, after their second use */
    expect_run(pool, b, 6, 8);
    ask(pool, a, 8);
    ask(pool, b, 8);
    expect_none(pool);
    kv_pool_free(pool);
}

/* A prompt that goes on along the saved run parts from nothing, although the pool lost the end of the run. */
static void an_evicted_end_is_no_parting(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[8];
    kv_block_id ids[BLOCKS];

    (void)state;
    chain_extend(a, 'a', 0, 8);
    ask(pool, a, 8);
    ask(pool, a, 8);
    expect_run(pool, a, 4, 8);
    expect_run(pool, a, 0, 4);
    assert_int_equal(kv_take(pool, BLOCKS - 6, ids), 0);
    assert_int_equal(kv_peek(pool, a, 8), 6);
    for (uint32_t i = 0; i < BLOCKS - 6; i++)
        kv_unref(pool, ids[i]);
    ask(pool, a, 8);
    expect_none(pool);
    kv_pool_free(pool);
}

/* Blocks that came from the middle of a value are saved again where prompts part. */
static void blocks_of_a_read_run_may_be_shared(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[4], b[4];
    kv_block_id ids[4];

    (void)state;
    chain_extend(a, 'a', 0, 4);
    memcpy(b, a, sizeof(b));
    chain_extend(b, 'b', 2, 4);
    assert_int_equal(kv_take(pool, 4, ids), 0);
    for (uint32_t at = 0; at < 4; at++) {
        kv_seal(pool, ids[at], &a[at]);
        kv_set_saved(pool, KV_BELOW_REMOTE, ids[at]);
        if (at < 3)
            kv_set_inside(pool, ids[at]);
    }
    for (uint32_t at = 4; at-- > 0;)
        kv_unref(pool, ids[at]);
    ask(pool, a, 4);
    expect_none(pool);
    ask(pool, b, 4);
    expect_run(pool, a, 0, 2);
    expect_none(pool);
    kv_pool_free(pool);
}

/* A block without a place in a chain, such as a recurrent state, is a run of one. */
static void other_blocks_are_saved_alone(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[3];
    kv_block_id ids[3];

    (void)state;
    chain_extend(a, 's', 0, 3);
    assert_int_equal(kv_take(pool, 3, ids), 0);
    for (uint32_t at = 0; at < 3; at++)
        kv_seal(pool, ids[at], &a[at]);
    for (uint32_t at = 3; at-- > 0;)
        kv_unref(pool, ids[at]);
    kv_save_all(pool, true);
    for (uint32_t i = 0; i < 3; i++) {
        struct kv_save saves[MOST];

        assert_int_equal(kv_save_run(pool, MOST, saves), 1);
        kv_save_end(pool, KV_BELOW_REMOTE, saves[0].id, false);
    }
    expect_none(pool);
    kv_pool_free(pool);
}

static uint32_t waiting(const struct kv_pool *pool)
{
    struct kv_pool_counts counts;

    kv_pool_counts(pool, &counts);
    return counts.n_writeback_remote;
}

static void what_the_tier_lost_is_saved_at_its_next_use(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[4];

    (void)state;
    chain_extend(a, 'a', 0, 4);
    ask(pool, a, 4);
    ask(pool, a, 4);
    expect_run(pool, a, 0, 4);
    kv_clear_saved(pool, KV_BELOW_REMOTE, &a[1]);
    expect_none(pool); /* not at once */
    ask(pool, a, 4);
    expect_run(pool, a, 1, 2);
    kv_clear_all_saved(pool, KV_BELOW_REMOTE);
    expect_none(pool);
    ask(pool, a, 4);
    expect_run(pool, a, 0, 4);
    ask(pool, a, 4);
    expect_none(pool);
    kv_pool_free(pool);
}

/* A worker that drains offers everything once more, first what the tier never got. */
static void a_drain_doubts_what_is_saved(void **state)
{
    struct kv_pool *pool = pool_new();
    struct block_hash a[4], b[4];

    (void)state;
    chain_extend(a, 'a', 0, 4);
    chain_extend(b, 'b', 0, 4);
    ask(pool, a, 4);
    ask(pool, a, 4);
    expect_run(pool, a, 0, 4);
    ask(pool, b, 4);
    kv_save_all(pool, true);
    kv_save_all(pool, true); /* it stops, too */
    assert_int_equal(waiting(pool), 8);
    expect_run(pool, b, 0, 4);
    expect_run(pool, a, 0, 4);
    kv_save_all(pool, true);
    expect_none(pool);
    kv_pool_free(pool);
}

static uint64_t save_now_ns;

static uint64_t save_clock(void)
{
    return save_now_ns;
}

/* Saves the oldest block, and fails. */
static void fail_a_save(struct kv_pool *pool)
{
    struct kv_save save;

    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save));
    kv_save_end(pool, KV_BELOW_DISK, save.id, true);
}

/* Saves that fail are no uses: blocks expire, and are evicted, as if they had not been tried. */
static void failed_saves_leave_the_age(void **state)
{
    const struct kv_pool_opts opts = {
        .n_blocks = BLOCKS, .block_tokens = 32, .has_tier = true, .lifetime_ns = 10, .now_ns = save_clock};
    struct kv_pool *pool;
    struct block_hash a[8];
    kv_block_id ids[BLOCKS];

    (void)state;
    chain_extend(a, 'a', 0, 8);
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    for (save_now_ns = 100; save_now_ns < 108; save_now_ns++) {
        assert_int_equal(kv_take(pool, 1, ids), 0);
        kv_seal(pool, ids[0], &a[save_now_ns - 100]);
        if (save_now_ns == 107) /* another rank */
            kv_set_replicated(pool, ids[0], true);
        kv_unref(pool, ids[0]);
    }
    for (unsigned i = 0; i < 20; i++)
        fail_a_save(pool);
    save_now_ns = 111; /* a[0] and a[1] have expired */
    kv_expire(pool);
    assert_int_equal(kv_peek(pool, a, 8), 0);
    assert_int_equal(kv_peek(pool, a + 2, 6), 6);
    assert_int_equal(kv_take(pool, BLOCKS - 5, ids), 0); /* evicts the oldest */
    assert_int_equal(kv_peek(pool, a + 2, 1), 0);
    assert_int_equal(kv_peek(pool, a + 3, 5), 5);
    for (uint32_t i = 0; i < BLOCKS - 5; i++)
        kv_unref(pool, ids[i]);
    kv_pool_free(pool);
}

/* From either end of the eviction queue, and from its middle. */
static void failed_saves_return_blocks_to_their_places(void **state)
{
    enum { N = 8 };
    static const uint32_t orders[][N] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                         {7, 6, 5, 4, 3, 2, 1, 0},
                                         {3, 0, 7, 4, 1, 6, 2, 5},
                                         {4, 5, 3, 6, 2, 7, 1, 0}};
    const struct kv_pool_opts opts = {.n_blocks = BLOCKS, .block_tokens = 32, .has_tier = true};
    struct block_hash a[N];

    (void)state;
    chain_extend(a, 'a', 0, N);
    for (uint32_t at = 0; at < sizeof(orders) / sizeof(orders[0]); at++) {
        struct kv_pool *pool;
        struct kv_save saves[N];
        kv_block_id ids[BLOCKS];

        assert_int_equal(kv_pool_new(&opts, &pool), 0);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(kv_take(pool, 1, ids), 0);
            kv_seal(pool, ids[0], &a[i]);
            kv_unref(pool, ids[0]);
        }
        for (uint32_t i = 0; i < N; i++)
            assert_true(kv_save_next(pool, KV_BELOW_DISK, &saves[i]));
        for (uint32_t i = 0; i < N; i++)
            kv_save_end(pool, KV_BELOW_DISK, saves[orders[at][i]].id, true);
        assert_int_equal(kv_take(pool, BLOCKS - N, ids), 0);
        for (uint32_t i = 0; i < N; i++) { /* one after the other, the oldest first */
            assert_int_equal(kv_peek(pool, &a[i], 1), 1);
            assert_int_equal(kv_take(pool, 1, &ids[BLOCKS - N + i]), 0);
            assert_int_equal(kv_peek(pool, &a[i], 1), 0);
        }
        for (uint32_t i = 0; i < BLOCKS; i++)
            kv_unref(pool, ids[i]);
        kv_pool_free(pool);
    }
}

/* A prompt that found the block meanwhile used it. */
static void a_use_during_a_failed_save_counts(void **state)
{
    const struct kv_pool_opts opts = {
        .n_blocks = BLOCKS, .block_tokens = 32, .has_tier = true, .lifetime_ns = 10, .now_ns = save_clock};
    struct kv_pool *pool;
    struct block_hash a[1];
    struct kv_save save;
    kv_block_id id;

    (void)state;
    save_now_ns = 100;
    chain_extend(a, 'a', 0, 1);
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    assert_int_equal(kv_take(pool, 1, &id), 0);
    kv_seal(pool, id, &a[0]);
    kv_unref(pool, id);
    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save));
    save_now_ns = 105;
    assert_int_equal(kv_match(pool, a, 1, &id), 1);
    kv_unref(pool, id);
    kv_save_end(pool, KV_BELOW_DISK, save.id, true);
    save_now_ns = 112;
    assert_int_equal(kv_peek(pool, a, 1), 1);
    kv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_end_at_multiples),
        cmocka_unit_test(runs_end_where_chains_part),
        cmocka_unit_test(a_shared_beginning_is_saved_again),
        cmocka_unit_test(an_evicted_end_is_no_parting),
        cmocka_unit_test(blocks_of_a_read_run_may_be_shared),
        cmocka_unit_test(other_blocks_are_saved_alone),
        cmocka_unit_test(what_the_tier_lost_is_saved_at_its_next_use),
        cmocka_unit_test(a_drain_doubts_what_is_saved),
        cmocka_unit_test(failed_saves_leave_the_age),
        cmocka_unit_test(failed_saves_return_blocks_to_their_places),
        cmocka_unit_test(a_use_during_a_failed_save_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
