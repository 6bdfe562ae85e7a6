/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants' quotas of the pool, compared with a model that counts everything anew each time.
 *
 * Random tenants take, seal, pin, release and match blocks.  After each operation the pool's figures for each
 * tenant must equal the model's.  A take within kv_available_to() must not push another tenant below its
 * quota.  Among one tenant's blocks, no pinned block is evicted before an unpinned one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/pool.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_writeback.h"

enum { N_BLOCKS = 60, N_TENANTS = 5, N_STEPS = 20000 };

static uint64_t fake_now_ns = 1;

static uint64_t fake_now(void)
{
    return fake_now_ns;
}

struct owned { /* the model's block */
    kv_tenant owner;
    uint32_t refs;
    bool is_sealed;
    uint64_t content, pin_end_ns;
};

static struct owned model[N_BLOCKS];
static struct kv_pool *pool;

static struct block_hash hash_of(uint64_t content)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &content, sizeof(content));
    return hash;
}

static void make(uint32_t n_blocks, bool has_tier)
{
    const struct kv_pool_opts opts = {
        .n_blocks = n_blocks, .now_ns = fake_now, .lifetime_ns = UINT64_MAX / 2, .has_tier = has_tier};

    memset(model, 0, sizeof(model));
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
}

static uint32_t count(kv_tenant tenant, bool cached_only)
{
    uint32_t n = 0;

    for (uint32_t id = 0; id < N_BLOCKS; id++) {
        enum kv_state state = kv_state_of(pool, id);

        n += state != KV_FREE && model[id].owner == tenant && (!cached_only || state == KV_CACHED);
    }
    return n;
}

static uint32_t quota_of(kv_tenant tenant)
{
    uint32_t n = 0;

    for (kv_tenant t = 1; t <= N_TENANTS; t++)
        n += t == tenant || count(t, false) > 0;
    return N_BLOCKS / n;
}

static uint32_t room_for(kv_tenant tenant)
{
    uint32_t n = count(tenant, true), each = quota_of(tenant);

    for (uint32_t id = 0; id < N_BLOCKS; id++)
        n += kv_state_of(pool, id) == KV_FREE;
    for (kv_tenant t = 1; t <= N_TENANTS; t++) {
        uint32_t has = count(t, false), cached = count(t, true), beyond = has > each ? has - each : 0;

        if (t != tenant)
            n += cached < beyond ? cached : beyond;
    }
    return n;
}

static bool is_marked(uint32_t id)
{
    return model[id].pin_end_ns > fake_now_ns;
}

static void take(kv_tenant tenant, uint32_t n)
{
    uint32_t before[N_TENANTS + 1], each = quota_of(tenant), room = room_for(tenant),
                                    n_plain[N_TENANTS + 1] = {0};
    enum kv_state states[N_BLOCKS];
    kv_block_id ids[N_BLOCKS];

    for (kv_tenant t = 1; t <= N_TENANTS; t++)
        before[t] = count(t, false);
    for (uint32_t id = 0; id < N_BLOCKS; id++)
        states[id] = kv_state_of(pool, id);
    assert_int_equal(kv_available_to(pool, tenant), room);
    assert_int_equal(kv_tenant_quota(pool, tenant), each);
    if (kv_take_for(pool, tenant, n, ids) < 0) {
        assert_true(n > kv_available(pool));
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (states[ids[i]] == KV_CACHED) /* it was evicted and reused at once */
            states[ids[i]] = KV_FREE;
        model[ids[i]].owner += 100;
    }
    /* Counts the blocks that are still cached, by whether they are pinned; then the evicted ones. */
    for (uint32_t id = 0; id < N_BLOCKS; id++)
        if (kv_state_of(pool, id) == KV_CACHED && !is_marked(id) && model[id].owner <= N_TENANTS)
            n_plain[model[id].owner]++;
    for (uint32_t i = 0; i < n; i++) {
        struct owned *was = &model[ids[i]];
        kv_tenant owner = was->owner - 100;

        if (was->is_sealed && owner >= 1 && is_marked(ids[i]))
            assert_int_equal(n_plain[owner], 0); /* pinned blocks go last */
        *was = (struct owned){.owner = tenant, .refs = 1};
    }
    for (uint32_t id = 0; id < N_BLOCKS; id++)
        if (kv_state_of(pool, id) == KV_FREE)
            model[id] = (struct owned){0};
    for (kv_tenant t = 1; t <= N_TENANTS; t++) {
        if (t != tenant && n <= room)
            assert_true(count(t, false) >= (before[t] < each ? before[t] : each));
    }
}

static void give_back(uint32_t id)
{
    kv_unref(pool, id);
    model[id].refs--;
    if (kv_state_of(pool, id) == KV_FREE)
        model[id] = (struct owned){0};
}

static void step(struct rng *rng, uint64_t *content)
{
    uint32_t id = (uint32_t)rng_below(rng, N_BLOCKS);

    switch (rng_below(rng, 6)) {
    case 0:
    case 1:
        take(1 + rng_below(rng, N_TENANTS), (uint32_t)rng_below(rng, rng_below(rng, 8) ? 5 : 40));
        break;
    case 2:
    case 3:
        if (model[id].refs > 0 && !model[id].is_sealed) {
            struct block_hash hash = hash_of(model[id].content = ++*content);

            kv_seal(pool, id, &hash);
            model[id].is_sealed = true;
            if (rng_below(rng, 3) == 0) {
                model[id].pin_end_ns = fake_now_ns + rng_below(rng, 2000);
                kv_pin(pool, id, model[id].pin_end_ns);
            }
        }
        break;
    case 4:
        for (uint32_t i = 0; i < 10; i++, id = (id + 1) % N_BLOCKS)
            if (model[id].refs > 0)
                give_back(id);
        break;
    case 5:
        if (model[id].is_sealed) {
            struct block_hash hash = hash_of(model[id].content);
            kv_block_id found;

            assert_int_equal(kv_match(pool, &hash, 1, &found), 1);
            assert_int_equal(found, id);
            model[id].refs++;
        }
        break;
    }
    fake_now_ns += rng_below(rng, 3);
}

static void quotas_hold(void **state)
{
    uint64_t content = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct kv_pool_counts counts;
        struct rng rng;

        rng_init(&rng, seed);
        make(N_BLOCKS, false);
        for (unsigned i = 0; i < N_STEPS; i++) {
            step(&rng, &content);
            for (kv_tenant t = 1; t <= N_TENANTS; t++)
                assert_int_equal(kv_tenant_blocks(pool, t), count(t, false));
        }
        kv_pool_counts(pool, &counts);
        assert_true(counts.n_evicted > 1000);
        kv_pool_free(pool);
    }
}

/* Takes, seals and caches n blocks. */
static void cache(kv_tenant tenant, uint32_t n, uint64_t first_content, uint64_t pin_end_ns)
{
    for (uint32_t i = 0; i < n; i++) {
        struct block_hash hash = hash_of(first_content + i);
        kv_block_id id;

        assert_int_equal(kv_take_for(pool, tenant, 1, &id), 0);
        kv_seal(pool, id, &hash);
        if (pin_end_ns > 0)
            kv_pin(pool, id, pin_end_ns);
        kv_unref(pool, id);
    }
}

static void a_flood_ends_at_the_others_quota(void **state)
{
    struct block_hash first = hash_of(100), last = hash_of(119), hour = hash_of(500);

    (void)state;
    make(N_BLOCKS, false);
    cache(1, 20, 100, 0);
    cache(2, 1000, 10000, 0); /* the flood */
    assert_int_equal(kv_tenant_blocks(pool, 1), 20);
    assert_int_equal(kv_peek(pool, &first, 1) + kv_peek(pool, &last, 1), 2);
    assert_int_equal(kv_tenant_quota(pool, 2), N_BLOCKS / 2);
    cache(1, 20, 200, 0); /* grows up to its quota at the flood's cost, then at its own */
    assert_int_equal(kv_tenant_blocks(pool, 1), N_BLOCKS / 2);
    assert_int_equal(kv_peek(pool, &first, 1), 0);
    /* In a tenant's own flood, blocks pinned for an hour outlive the unpinned ones. */
    cache(2, 3, 500, fake_now_ns + 3600);
    cache(2, 1000, 20000, fake_now_ns + 300);
    assert_int_equal(kv_peek(pool, &hour, 1), 1);
    assert_int_equal(kv_tenant_blocks(pool, 1), N_BLOCKS / 2);
    kv_pool_free(pool);
}

/* Two tenants are above their quotas.  The one whose next block has the lower rank gives first, although it
 * has fewer blocks. */
static void marks_count_among_the_greedy(void **state)
{
    kv_block_id ids[8];

    (void)state;
    make(N_BLOCKS, false);
    cache(1, 31, 100, fake_now_ns + 3600);
    cache(2, 29, 1000, 0);
    assert_int_equal(kv_take_for(pool, 3, 8, ids), 0); /* quotas are 20 blocks now */
    assert_int_equal(kv_tenant_blocks(pool, 1), 31);
    assert_int_equal(kv_tenant_blocks(pool, 2), 21);
    for (uint32_t i = 0; i < 8; i++)
        kv_unref(pool, ids[i]);
    kv_pool_free(pool);
}

static void more_tenants_than_places_share_one(void **state)
{
    struct kv_pool_counts counts;

    (void)state;
    make(1000, false);
    for (kv_tenant t = 1; t <= 300; t++)
        cache(t, 2, t * 10, 0);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_tenants, KV_MAX_TENANTS);
    assert_int_equal(kv_tenant_blocks(pool, 63), 2);
    assert_int_equal(kv_tenant_blocks(pool, 64), 0); /* counted with the anonymous ones */
    assert_int_equal(kv_tenant_blocks(pool, KV_TENANT_NONE), 2 * (300 - 63));
    kv_pool_free(pool);
}

static void blocks_are_offered_to_the_tier_once(void **state)
{
    struct kv_pool_counts counts;
    struct block_hash hash, second = hash_of(8);
    kv_block_id id, more[8];
    struct kv_save save;

    (void)state;
    make(8, true);
    assert_false(kv_save_next(pool, KV_BELOW_DISK, &save));
    cache(1, 3, 7, 0);
    cache(1, 1, 10, fake_now_ns + 50);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_writeback, 4);
    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save));
    assert_int_equal(get_u64(save.hash.bytes), 7);
    assert_int_equal(save.pin_end_ns, 0);
    assert_int_equal(kv_state_of(pool, save.id), KV_SEALED);
    assert_int_equal(kv_available(pool), 7); /* no sequence takes it meanwhile */
    kv_save_end(pool, KV_BELOW_DISK, save.id, false);
    assert_int_equal(kv_state_of(pool, save.id), KV_CACHED);
    /* A block in use is not offered.  It rejoins the queue at its end. */
    assert_int_equal(kv_match(pool, &second, 1, more), 1);
    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save));
    assert_int_equal(get_u64(save.hash.bytes), 9);
    kv_save_end(pool, KV_BELOW_DISK, save.id, true); /* and one whose saving failed, too */
    kv_unref(pool, more[0]);
    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save));
    assert_int_equal(get_u64(save.hash.bytes), 10);
    assert_int_equal(save.pin_end_ns, fake_now_ns + 50);
    kv_save_end(pool, KV_BELOW_DISK, save.id, false);
    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save));
    assert_int_equal(get_u64(save.hash.bytes), 9);
    kv_save_end(pool, KV_BELOW_DISK, save.id, false);
    /* A block from the tier is not saved again; the pool counts blocks that it evicts unsaved. */
    assert_int_equal(kv_take(pool, 1, &id), 0);
    hash = hash_of(99);
    kv_seal(pool, id, &hash);
    kv_set_saved(pool, KV_BELOW_DISK, id);
    kv_unref(pool, id);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_writeback, 1);
    assert_int_equal(kv_take(pool, 8, more), 0);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_writeback, 0);
    assert_int_equal(counts.n_lost, 1);
    kv_pool_free(pool);
}

/* The remote tier gets blocks that were used twice, and all of them after kv_save_all(). */
static void the_remote_tier_gets_what_is_used_twice(void **state)
{
    const struct kv_pool_opts opts = {.n_blocks = 8,
                                      .now_ns = fake_now,
                                      .lifetime_ns = UINT64_MAX / 2,
                                      .has_tier = true,
                                      .has_remote = true};
    struct block_hash third = hash_of(9);
    struct kv_pool_counts counts;
    struct kv_save save;
    kv_block_id id;

    (void)state;
    memset(model, 0, sizeof(model));
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    cache(1, 4, 7, 0);
    assert_false(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    assert_true(kv_save_next(pool, KV_BELOW_DISK, &save)); /* saving it there is no use of it */
    kv_save_end(pool, KV_BELOW_DISK, save.id, false);
    assert_false(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    assert_int_equal(kv_match(pool, &third, 1, &id), 1);
    assert_false(kv_save_next(pool, KV_BELOW_REMOTE, &save)); /* it is in use */
    kv_unref(pool, id);
    assert_true(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    assert_int_equal(get_u64(save.hash.bytes), 9);
    kv_save_end(pool, KV_BELOW_REMOTE, save.id, true); /* it failed: once more */
    assert_true(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    kv_save_end(pool, KV_BELOW_REMOTE, save.id, false);
    assert_false(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_writeback, 3); /* the other queue kept its blocks */
    kv_save_all(pool, true);
    kv_save_all(pool, true);
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_writeback_remote, 4);
    cache(1, 1, 20, 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(kv_save_next(pool, KV_BELOW_REMOTE, &save));
        /* the saved one once more, after those that the tier never got */
        assert_true((get_u64(save.hash.bytes) == 9) == (i == 3));
        kv_save_end(pool, KV_BELOW_REMOTE, save.id, false);
    }
    assert_false(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    kv_pool_free(pool);
}

/* Where memory is short, a block leaves before it is used again.  It counts as used twice when it comes back. */
static void a_block_that_comes_back_was_used_twice(void **state)
{
    const struct kv_pool_opts opts = {
        .n_blocks = 8, .now_ns = fake_now, .lifetime_ns = UINT64_MAX / 2, .has_remote = true};
    kv_block_id all[8];
    struct kv_save save;

    (void)state;
    memset(model, 0, sizeof(model));
    assert_int_equal(kv_pool_new(&opts, &pool), 0);
    cache(1, 4, 100, 0); /* 100 to 103 */
    assert_int_equal(kv_take(pool, 8, all), 0);
    for (unsigned i = 0; i < 8; i++)
        kv_unref(pool, all[i]);
    cache(1, 2, 102, 0); /* 102 and 103 once more, and two that are new */
    cache(1, 2, 200, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(kv_save_next(pool, KV_BELOW_REMOTE, &save));
        assert_int_equal(get_u64(save.hash.bytes), 102 + i);
        kv_save_end(pool, KV_BELOW_REMOTE, save.id, false);
    }
    assert_false(kv_save_next(pool, KV_BELOW_REMOTE, &save));
    kv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(quotas_hold),
                                       cmocka_unit_test(a_flood_ends_at_the_others_quota),
                                       cmocka_unit_test(marks_count_among_the_greedy),
                                       cmocka_unit_test(more_tenants_than_places_share_one),
                                       cmocka_unit_test(blocks_are_offered_to_the_tier_once),
                                       cmocka_unit_test(a_block_that_comes_back_was_used_twice),
                                       cmocka_unit_test(the_remote_tier_gets_what_is_used_twice)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
