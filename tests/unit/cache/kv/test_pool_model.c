/* SPDX-License-Identifier: Apache-2.0 */
/* The pool compared with a model that is too simple to be wrong.
 *
 * The model keeps for each block its references, leases, content, pin and time of last use in plain arrays.
 * It answers every question by looking at all of them.  Random operations go to both.  After each operation
 * the pool must agree with the model in everything but the choice of free ids.  Few different contents make
 * duplicates frequent, a short lifetime makes expiry frequent, and leases outlive references. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/pool.h"
#include "cache/kv/pool_cache.h"

#define N_MAX       70
#define N_CONTENTS  40
#define LIFETIME_NS 50
#define N_STEPS     20000

struct model_block {
    uint32_t refs, leases;
    bool is_live; /* not free */
    bool is_sealed;
    bool is_findable;
    bool is_forgotten;
    uint32_t content;
    uint64_t used; /* number of the operation that cached or touched it */
    uint64_t used_ns;
    uint64_t pin_end_ns; /* pinned until then; 0: never */
    bool is_replicated;  /* other workers have it, too */
    bool was_replicated; /* and had it when it entered the queue */
    bool is_last;        /* and lost it while the block was queued */
};

static struct model_block model[N_MAX];
static uint32_t n_blocks;
static uint64_t mark_one_in; /* one block in so many is pinned */
static uint64_t serial, fake_now_ns, n_evicted, n_expired, n_pinned_evicted, n_outlived, n_replicated_choices;

static uint64_t fake_now(void)
{
    return fake_now_ns;
}

static struct block_hash hash_of(uint32_t content)
{
    struct block_hash hash = {{0}};

    /* Few different home slots in the index make long clusters. */
    hash.bytes[0] = (uint8_t)(content % 5);
    memcpy(hash.bytes + 8, &content, sizeof(content));
    return hash;
}

static enum kv_state model_state(const struct model_block *b)
{
    if (!b->is_live)
        return KV_FREE;
    if (!b->is_sealed)
        return b->refs ? KV_FILLING : KV_ZOMBIE;
    return b->refs || b->leases ? KV_SEALED : KV_CACHED;
}

static uint32_t model_count(enum kv_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_blocks; i++)
        n += model_state(&model[i]) == state;
    return n;
}

static struct model_block *model_owner(uint32_t content)
{
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (model[i].is_findable && model[i].content == content)
            return &model[i];
    }
    return NULL;
}

static void model_drop(struct model_block *b)
{
    memset(b, 0, sizeof(*b));
}

static void touch(struct model_block *b)
{
    b->used = ++serial;
    b->used_ns = fake_now_ns;
    b->was_replicated = b->is_replicated;
    b->is_last = false;
}

/* Sets the state after a reference or lease ended. */
static void model_resolve(struct model_block *b)
{
    if (b->refs || b->leases)
        return;
    if (!b->is_sealed || b->is_forgotten) {
        model_drop(b);
        return;
    }
    struct model_block *owner = model_owner(b->content);
    if (owner == NULL) {
        b->is_findable = true;
    } else if (owner != b) {
        if (b->pin_end_ns > owner->pin_end_ns)
            owner->pin_end_ns = b->pin_end_ns;
        if (model_state(owner) == KV_CACHED)
            touch(owner);
        model_drop(b);
        return;
    }
    touch(b);
}

static void model_expire(void)
{
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (model_state(&model[i]) == KV_CACHED && fake_now_ns - model[i].used_ns >= LIFETIME_NS &&
            model[i].pin_end_ns <= fake_now_ns) {
            model_drop(&model[i]);
            n_expired++;
        }
    }
}

/* Rank: never pinned, then an expired pin (or the last replica), then pinned for longer. */
static uint64_t model_worth(const struct model_block *b)
{
    if (b->pin_end_ns == 0)
        return b->was_replicated && b->is_last ? 1 : 0;
    return b->pin_end_ns <= fake_now_ns ? 1 : b->pin_end_ns;
}

static bool model_goes_before(const struct model_block *a, const struct model_block *b)
{
    if (model_worth(a) != model_worth(b))
        return model_worth(a) < model_worth(b);
    return a->used < b->used;
}

/* Returns the block that is evicted first among those never pinned, replicated or not. */
static struct model_block *model_oldest(bool is_replicated)
{
    struct model_block *first = NULL;

    for (uint32_t i = 0; i < n_blocks; i++)
        if (model_state(&model[i]) == KV_CACHED && model_worth(&model[i]) == 0 &&
            model[i].was_replicated == is_replicated && (first == NULL || model[i].used < first->used))
            first = &model[i];
    return first;
}

static struct model_block *model_first_unmarked(void)
{
    struct model_block *replicated = model_oldest(true), *plain = model_oldest(false);

    if (replicated == NULL || plain == NULL)
        return replicated ? replicated : plain;
    n_replicated_choices++;
    return 2 * (fake_now_ns - replicated->used_ns) >= fake_now_ns - plain->used_ns ? replicated : plain;
}

static void model_evict_one(void)
{
    struct model_block *first = model_first_unmarked();
    bool is_unmarked = first != NULL;

    for (uint32_t i = 0; i < n_blocks; i++) {
        if (!is_unmarked && model_state(&model[i]) == KV_CACHED &&
            (first == NULL || model_goes_before(&model[i], first)))
            first = &model[i];
    }
    assert_non_null(first);
    n_pinned_evicted += model_worth(first) > 1;
    model_drop(first);
    n_evicted++;
}

static void assert_agrees(struct kv_pool *pool)
{
    struct kv_pool_counts counts;
    uint32_t n_leased = 0;

    for (uint32_t i = 0; i < n_blocks; i++) {
        assert_int_equal(kv_state_of(pool, i), model_state(&model[i]));
        n_leased += model[i].leases > 0;
        n_outlived += model_state(&model[i]) == KV_CACHED && fake_now_ns - model[i].used_ns >= LIFETIME_NS &&
                      model[i].pin_end_ns > fake_now_ns;
    }
    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_free, model_count(KV_FREE));
    assert_int_equal(counts.n_filling, model_count(KV_FILLING));
    assert_int_equal(counts.n_sealed, model_count(KV_SEALED));
    assert_int_equal(counts.n_cached, model_count(KV_CACHED));
    assert_int_equal(counts.n_zombie, model_count(KV_ZOMBIE));
    assert_int_equal(counts.n_leased, n_leased);
    assert_int_equal(counts.n_evicted, n_evicted);
    assert_int_equal(counts.n_expired, n_expired);
    assert_int_equal(kv_available(pool), counts.n_free + counts.n_cached);
}

static void do_take(struct kv_pool *pool, struct rng *rng)
{
    kv_block_id ids[N_MAX + 1];
    uint32_t n = (uint32_t)rng_below(rng, rng_below(rng, 8) ? 6 : n_blocks + 2);
    int code = kv_take(pool, n, ids);

    if (n > model_count(KV_FREE) + model_count(KV_CACHED)) {
        assert_int_equal(code, E_KV_FULL);
        return;
    }
    assert_int_equal(code, 0);
    while (model_count(KV_FREE) < n)
        model_evict_one();
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(model_state(&model[ids[i]]), KV_FREE);
        model[ids[i]].is_live = true;
        model[ids[i]].refs = 1;
    }
}

static void do_match(struct kv_pool *pool, struct rng *rng)
{
    struct block_hash hashes[8];
    uint32_t contents[8], n = (uint32_t)rng_below(rng, 9), expected = 0;
    kv_block_id ids[8];

    for (uint32_t i = 0; i < n; i++) {
        contents[i] = (uint32_t)rng_below(rng, N_CONTENTS);
        hashes[i] = hash_of(contents[i]);
    }
    model_expire();
    while (expected < n && model_owner(contents[expected]))
        expected++;
    assert_int_equal(kv_peek(pool, hashes, n), expected);
    assert_int_equal(kv_match(pool, hashes, n, ids), expected);
    for (uint32_t i = 0; i < expected; i++) {
        assert_ptr_equal(&model[ids[i]], model_owner(contents[i]));
        model[ids[i]].refs++;
    }
}

/* Pins a block, or sets its replicas; the block stays where it is. */
static void mark_one_block(struct kv_pool *pool, struct rng *rng, kv_block_id id, uint64_t what)
{
    struct model_block *b = &model[id];
    struct block_hash hash;

    switch (what) {
    case 10:
        if (b->refs) {
            b->is_replicated = rng_below(rng, 2);
            kv_set_replicated(pool, id, b->is_replicated);
        }
        break;
    case 9:
        if (b->is_findable && rng_below(rng, 16) == 0) {
            hash = hash_of(b->content);
            kv_clear_replicated(pool, &hash);
            b->is_replicated = false;
            b->is_last = true;
        }
        break;
    case 8:
        if (b->refs && rng_below(rng, mark_one_in) == 0) {
            uint64_t until_ns = fake_now_ns + rng_below(rng, (rng_below(rng, 2) ? 3 : 60) * LIFETIME_NS);

            kv_pin(pool, id, until_ns);
            b->pin_end_ns = until_ns > b->pin_end_ns ? until_ns : b->pin_end_ns;
        }
        break;
    case 7:
        if (b->refs && b->is_sealed && rng_below(rng, 10) == 0) {
            kv_forget(pool, id);
            b->is_findable = false;
            b->is_forgotten = true;
        }
        break;
    }
}

static void do_one_block(struct kv_pool *pool, struct rng *rng)
{
    kv_block_id id = (kv_block_id)rng_below(rng, n_blocks);
    struct model_block *b = &model[id];
    struct block_hash hash;
    uint64_t what = rng_below(rng, 11);

    switch (what) {
    case 0:
        if (b->refs) {
            kv_ref(pool, id);
            b->refs++;
        }
        break;
    case 1:
        if (b->refs && !b->is_sealed) {
            b->content = (uint32_t)rng_below(rng, N_CONTENTS);
            hash = hash_of(b->content);
            kv_seal(pool, id, &hash);
            model_expire();
            b->is_findable = model_owner(b->content) == NULL;
            b->is_sealed = true;
        }
        break;
    case 2:
        if (b->refs && b->leases < 3) {
            kv_lease(pool, id);
            b->leases++;
        }
        break;
    case 3:
    case 4:
        if (b->leases) {
            kv_unlease(pool, id);
            b->leases--;
            model_resolve(b);
        }
        break;
    case 5:
    case 6:
        if (b->refs) {
            kv_unref(pool, id);
            b->refs--;
            model_resolve(b);
        }
        break;
    default:
        mark_one_block(pool, rng, id, what);
    }
}

static void run(uint64_t seed)
{
    struct rng rng;
    struct kv_pool *pool;

    rng_init(&rng, seed);
    n_blocks = 1 + (uint32_t)rng_below(&rng, N_MAX);
    memset(model, 0, sizeof(model));
    serial = n_evicted = n_expired = 0;
    fake_now_ns = 1;
    mark_one_in = seed % 3 == 0 ? 1000 : 2;
    struct kv_pool_opts opts = {.n_blocks = n_blocks, .lifetime_ns = LIFETIME_NS, .now_ns = fake_now};
    assert_int_equal(kv_pool_new(&opts, &pool), 0);

    for (uint32_t step = 0; step < N_STEPS; step++) {
        uint64_t what = rng_below(&rng, 40);

        if (what < 4) {
            do_take(pool, &rng);
        } else if (what < 7) {
            do_match(pool, &rng);
        } else if (what == 7) {
            fake_now_ns += rng_below(&rng, seed % 2 ? 12 : 200); /* either room or time is short */
        } else if (what == 8) {
            kv_expire(pool);
            model_expire();
        } else {
            do_one_block(pool, &rng);
        }
        assert_agrees(pool);
    }

    /* Releases everything: no block may be lost. */
    for (uint32_t i = 0; i < n_blocks; i++) {
        for (; model[i].refs > 0; model[i].refs--)
            kv_unref(pool, i);
        for (; model[i].leases > 0; model[i].leases--)
            kv_unlease(pool, i);
    }
    assert_int_equal(kv_available(pool), n_blocks);
    kv_pool_free(pool);
}

static void random_operations_agree_with_the_model(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++)
        run(seed);
    print_message("%llu kept ones evicted, %llu outlived, %llu choices of replicated or plain\n",
                  (unsigned long long)n_pinned_evicted, (unsigned long long)n_outlived,
                  (unsigned long long)n_replicated_choices);
    assert_true(n_pinned_evicted > 100); /* pinned blocks were evicted, and pins did protect blocks */
    assert_true(n_outlived > 200);
    assert_true(n_replicated_choices > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_the_model),
    };
    return cmocka_run_group_tests_name("cache/kv/pool model", tests, NULL, NULL);
}
