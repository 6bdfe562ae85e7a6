/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and their states.
 *
 * The pool hands out ids; cache/kv/layout places the bytes.  A block's state follows from its holders and
 * from whether it was sealed:
 *
 *                     references > 0      only leases      no holder
 *        unsealed     FILLING             ZOMBIE           FREE
 *        sealed       SEALED              SEALED           CACHED (findable) or FREE
 *
 * After every reference or lease that goes away, settle() reads the new state from this table.  Only move()
 * changes a state.
 *
 * Two sequences may compute the same content at the same time: the block sealed second is a duplicate.  It
 * has its hash but is not in the index.  When it is released after the first one is gone, it takes the first
 * one's place.  If the first one is still there, that one counts as just used, because its content was used.
 *
 * Each tenant's cached blocks are in an eviction queue (shelf.c); shares.c chooses the tenant.  With a tier
 * below, blocks that are not saved yet are also in the writeback queue (unsaved.c).
 *
 * Hot path: no allocation after kv_pool_new, no log. */
#include "cache/kv/pool.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

#define LIFETIME_DEFAULT_NS (300 * NS_PER_S)
#define N_STATES            (KV_ZOMBIE + 1)

struct block {
    uint32_t n_refs;
    uint32_t n_leases;
    uint8_t state;    /* enum kv_state */
    bool has_hash;    /* hashes[id] is valid for this block */
    bool is_findable; /* the index refers to it */
    bool is_saved;    /* the tier below has it, or was offered it */
    uint8_t share;    /* its tenant's place in shares.c */
};

struct kv_pool {
    struct kv_pool_opts opts;
    struct block *blocks;
    struct block_hash *hashes; /* [id], apart from the blocks, so that look-ups touch nothing else */
    struct free_map free_map;
    struct hash_index index;
    struct shares shares; /* the tenants' quotas and eviction queues */
    struct unsaved unsaved;
    uint32_t n_in_state[N_STATES];
    uint32_t n_leased;
    uint64_t n_evicted, n_expired, n_hits, n_misses, n_lost;
};

int kv_pool_new(const struct kv_pool_opts *opts, struct kv_pool **out)
{
    if (opts->n_blocks == 0 || opts->n_blocks > UINT32_MAX / 4)
        return E_INVAL;

    struct kv_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return E_NOMEM;
    pool->opts = *opts;
    if (pool->opts.lifetime_ns == 0)
        pool->opts.lifetime_ns = LIFETIME_DEFAULT_NS;
    if (pool->opts.now_ns == NULL)
        pool->opts.now_ns = clock_now_ns;
    pool->n_in_state[KV_FREE] = opts->n_blocks;

    pool->blocks = calloc(opts->n_blocks, sizeof(*pool->blocks));
    pool->hashes = calloc(opts->n_blocks, sizeof(*pool->hashes));
    if (pool->blocks == NULL || pool->hashes == NULL || shares_init(&pool->shares, opts->n_blocks) < 0 ||
        (opts->has_tier && unsaved_init(&pool->unsaved, opts->n_blocks) < 0) ||
        free_map_init(&pool->free_map, opts->n_blocks) < 0 ||
        hash_index_init(&pool->index, pool->hashes, opts->n_blocks) < 0) {
        kv_pool_free(pool);
        return E_NOMEM;
    }
    *out = pool;
    return 0;
}

void kv_pool_free(struct kv_pool *pool)
{
    if (pool == NULL)
        return;
    free_map_fini(&pool->free_map);
    shares_fini(&pool->shares);
    unsaved_fini(&pool->unsaved);
    hash_index_fini(&pool->index);
    free(pool->hashes);
    free(pool->blocks);
    free(pool);
}

uint32_t kv_pool_size(const struct kv_pool *pool)
{
    return pool->opts.n_blocks;
}

uint32_t kv_pool_block_tokens(const struct kv_pool *pool)
{
    return pool->opts.block_tokens;
}

static struct block *block_at(const struct kv_pool *pool, kv_block_id id)
{
    ASSERT(id < pool->opts.n_blocks);
    return &pool->blocks[id];
}

/* ---- states ---- */

static void tell(const struct kv_pool *pool, kv_block_id id, bool is_here)
{
    if (pool->opts.on_block != NULL)
        pool->opts.on_block(pool->opts.on_block_arg, &pool->hashes[id], is_here);
}

/* Makes the block unfindable. */
static void drop_name(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = &pool->blocks[id];

    if (block->is_findable) {
        hash_index_remove(&pool->index, id);
        tell(pool, id, false);
    }
    block->is_findable = block->has_hash = false;
}

static struct shelf *shelf_of(struct kv_pool *pool, kv_block_id id)
{
    return &pool->shares.all[pool->blocks[id].share].shelf;
}

static void move(struct kv_pool *pool, kv_block_id id, enum kv_state to)
{
    static const bool may[N_STATES][N_STATES] = {
        [KV_FREE] = {[KV_FILLING] = true},
        [KV_FILLING] = {[KV_SEALED] = true, [KV_ZOMBIE] = true, [KV_FREE] = true},
        [KV_SEALED] = {[KV_CACHED] = true, [KV_FREE] = true},
        [KV_CACHED] = {[KV_SEALED] = true, [KV_FREE] = true},
        [KV_ZOMBIE] = {[KV_FREE] = true},
    };
    struct block *block = &pool->blocks[id];
    struct share *share = &pool->shares.all[block->share];
    enum kv_state from = block->state;

    ASSERT(may[from][to]);
    if (from == KV_CACHED) {
        shelf_remove(&share->shelf, id);
        share->n_cached--;
        if (unsaved_remove(&pool->unsaved, id) && to == KV_FREE)
            pool->n_lost++;
    }
    block->state = (uint8_t)to;
    pool->n_in_state[from]--;
    pool->n_in_state[to]++;

    if (to == KV_CACHED) {
        shelf_put(&share->shelf, id, pool->opts.now_ns());
        share->n_cached++;
        if (pool->opts.has_tier && !block->is_saved)
            unsaved_add(&pool->unsaved, id);
    }
    if (to == KV_FREE) {
        ASSERT(block->n_refs == 0 && block->n_leases == 0);
        drop_name(pool, id);
        block->is_saved = false;
        share->n_blocks--;
        shelf_unmark(&share->shelf, id);
        free_map_put(&pool->free_map, id);
    }
}

/* Indexes a sealed block, unless another block has its hash.  Returns that block, else KV_BLOCK_NONE. */
static kv_block_id claim_hash(struct kv_pool *pool, kv_block_id id)
{
    kv_block_id holder = hash_index_find(&pool->index, &pool->hashes[id]);

    if (holder == KV_BLOCK_NONE) {
        hash_index_add(&pool->index, id);
        pool->blocks[id].is_findable = true;
        tell(pool, id, true);
    }
    return holder;
}

/* A duplicate of this block was used, and was pinned until keep_ns. */
static void use_again(struct kv_pool *pool, kv_block_id holder, uint64_t keep_ns)
{
    struct shelf *shelf = shelf_of(pool, holder);
    bool is_cached = pool->blocks[holder].state == KV_CACHED;

    if (is_cached)
        shelf_remove(shelf, holder);
    shelf_keep(shelf, holder, keep_ns);
    if (is_cached)
        shelf_put(shelf, holder, pool->opts.now_ns());
}

/* A sealed block lost its last holder: it becomes CACHED or FREE. */
static void retire(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = &pool->blocks[id];

    if (block->has_hash && !block->is_findable) {
        kv_block_id holder = claim_hash(pool, id);

        if (holder != KV_BLOCK_NONE)
            use_again(pool, holder, pool->shares.places[id].keep_ns);
    }
    move(pool, id, block->is_findable ? KV_CACHED : KV_FREE);
}

/* A reference or a lease went away: sets the state by the table at the top. */
static void settle(struct kv_pool *pool, kv_block_id id)
{
    const struct block *block = &pool->blocks[id];

    if (block->n_refs > 0)
        return;
    switch ((enum kv_state)block->state) {
    case KV_FILLING:
        move(pool, id, block->n_leases ? KV_ZOMBIE : KV_FREE);
        break;
    case KV_ZOMBIE:
        if (block->n_leases == 0)
            move(pool, id, KV_FREE);
        break;
    case KV_SEALED:
        if (block->n_leases == 0)
            retire(pool, id);
        break;
    case KV_FREE:
    case KV_CACHED:
        ASSERT(!"held by somebody until now");
    }
}

/* ---- taking and giving back ---- */

uint32_t kv_available(const struct kv_pool *pool)
{
    return pool->n_in_state[KV_FREE] + pool->n_in_state[KV_CACHED];
}

int kv_take(struct kv_pool *pool, uint32_t n, kv_block_id *ids_out)
{
    return kv_take_for(pool, KV_TENANT_NONE, n, ids_out);
}

int kv_take_for(struct kv_pool *pool, kv_tenant tenant, uint32_t n, kv_block_id *ids_out)
{
    uint64_t now_ns = pool->opts.now_ns();

    if (n > kv_available(pool))
        return E_KV_FULL;
    unsigned at = shares_place(&pool->shares, tenant);

    while (pool->n_in_state[KV_FREE] < n) {
        move(pool, shares_victim(&pool->shares, at, n, now_ns), KV_FREE);
        pool->n_evicted++;
    }

    free_map_take(&pool->free_map, n, ids_out);
    pool->shares.all[at].n_blocks += n;
    for (uint32_t i = 0; i < n; i++) {
        pool->blocks[ids_out[i]].share = (uint8_t)at;
        move(pool, ids_out[i], KV_FILLING);
        pool->blocks[ids_out[i]].n_refs = 1;
    }
    return 0;
}

void kv_ref(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = block_at(pool, id);

    ASSERT(block->n_refs > 0);
    block->n_refs++;
}

void kv_unref(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = block_at(pool, id);

    ASSERT(block->n_refs > 0);
    block->n_refs--;
    settle(pool, id);
}

void kv_lease(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = block_at(pool, id);

    ASSERT(block->n_refs > 0);
    if (block->n_leases++ == 0)
        pool->n_leased++;
}

void kv_unlease(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = block_at(pool, id);

    ASSERT(block->n_leases > 0);
    if (--block->n_leases == 0)
        pool->n_leased--;
    settle(pool, id);
}

/* ---- the cache ---- */

void kv_seal(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash)
{
    struct block *block = block_at(pool, id);

    ASSERT(block->n_refs > 0);
    kv_expire(pool);
    move(pool, id, KV_SEALED);
    pool->hashes[id] = *hash;
    block->has_hash = true;
    claim_hash(pool, id);
}

void kv_keep(struct kv_pool *pool, kv_block_id id, uint64_t until_ns)
{
    ASSERT(block_at(pool, id)->n_refs > 0);
    shelf_keep(shelf_of(pool, id), id, until_ns);
}

void kv_forget(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = block_at(pool, id);

    ASSERT(block->state == KV_SEALED);
    drop_name(pool, id);
}

uint32_t kv_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n, kv_block_id *ids_out)
{
    uint32_t n_found = 0;

    kv_expire(pool);
    for (; n_found < n; n_found++) {
        kv_block_id id = hash_index_find(&pool->index, &hashes[n_found]);

        if (id == KV_BLOCK_NONE)
            break;
        if (pool->blocks[id].state == KV_CACHED)
            move(pool, id, KV_SEALED);
        pool->blocks[id].n_refs++;
        ids_out[n_found] = id;
    }
    pool->n_hits += n_found;
    pool->n_misses += n - n_found;
    return n_found;
}

static bool is_expired(const struct kv_pool *pool, kv_block_id id, uint64_t now_ns)
{
    return shelf_is_expired(&pool->shares.all[pool->blocks[id].share].shelf, id, now_ns,
                            pool->opts.lifetime_ns);
}

uint32_t kv_peek(const struct kv_pool *pool, const struct block_hash *hashes, uint32_t n)
{
    uint64_t now_ns = pool->opts.now_ns();
    uint32_t n_found = 0;

    while (n_found < n) {
        kv_block_id id = hash_index_find(&pool->index, &hashes[n_found]);

        if (id == KV_BLOCK_NONE || is_expired(pool, id, now_ns))
            break;
        n_found++;
    }
    return n_found;
}

void kv_expire(struct kv_pool *pool)
{
    uint64_t now_ns = pool->opts.now_ns();

    kv_block_id id;

    for (unsigned at = 0; at < pool->shares.n_seen; at++) {
        struct shelf *shelf = &pool->shares.all[at].shelf;

        while ((id = shelf_expired(shelf, now_ns, pool->opts.lifetime_ns)) != KV_BLOCK_NONE) {
            move(pool, id, KV_FREE);
            pool->n_expired++;
        }
    }
}

void kv_share(struct kv_pool *pool, kv_block_id id, bool is_shared)
{
    ASSERT(block_at(pool, id)->n_refs > 0);
    shelf_share(shelf_of(pool, id), id, is_shared);
}

bool kv_is_shared(const struct kv_pool *pool, kv_block_id id)
{
    return pool->shares.places[id].is_shared;
}

void kv_unshare(struct kv_pool *pool, const struct block_hash *hash)
{
    kv_block_id id = hash_index_find(&pool->index, hash);

    if (id != KV_BLOCK_NONE)
        shelf_share(shelf_of(pool, id), id, false);
}

void kv_clear(struct kv_pool *pool)
{
    for (unsigned at = 0; at < pool->shares.n_seen; at++) {
        struct share *share = &pool->shares.all[at];

        while (share->n_cached > 0)
            move(pool, shelf_next(&share->shelf, pool->opts.now_ns()), KV_FREE);
    }
    pool->n_lost = 0;
}

/* ---- the tier below ---- */

bool kv_save_next(struct kv_pool *pool, struct kv_save *out)
{
    kv_block_id id = pool->opts.has_tier ? pool->unsaved.oldest : KV_BLOCK_NONE;

    if (id == KV_BLOCK_NONE)
        return false;
    move(pool, id, KV_SEALED);
    pool->blocks[id].n_refs = 1;
    pool->blocks[id].is_saved = true;
    kv_lease(pool, id);
    *out = (struct kv_save){.id = id,
                            .hash = pool->hashes[id],
                            .tenant = pool->shares.all[pool->blocks[id].share].tenant,
                            .keep_ns = pool->shares.places[id].keep_ns};
    return true;
}

void kv_save_end(struct kv_pool *pool, kv_block_id id, bool has_failed)
{
    if (has_failed)
        block_at(pool, id)->is_saved = false;
    kv_unlease(pool, id);
    kv_unref(pool, id);
}

void kv_set_saved(struct kv_pool *pool, kv_block_id id)
{
    ASSERT(block_at(pool, id)->state == KV_SEALED);
    pool->blocks[id].is_saved = true;
}

/* ---- looking ---- */

void kv_each(const struct kv_pool *pool, void (*visit)(void *arg, const struct block_hash *hash), void *arg)
{
    for (kv_block_id id = 0; id < pool->opts.n_blocks; id++)
        if (pool->blocks[id].is_findable)
            visit(arg, &pool->hashes[id]);
}

enum kv_state kv_state_of(const struct kv_pool *pool, kv_block_id id)
{
    return block_at(pool, id)->state;
}

uint32_t kv_available_to(const struct kv_pool *pool, kv_tenant tenant)
{
    unsigned at = shares_find(&pool->shares, tenant);
    uint32_t each = shares_each(&pool->shares, at), n = pool->n_in_state[KV_FREE];

    for (unsigned i = 0; i < pool->shares.n_seen; i++) {
        const struct share *share = &pool->shares.all[i];
        uint32_t beyond = share->n_blocks > each ? share->n_blocks - each : 0;

        n += i == at || share->n_cached < beyond ? share->n_cached : beyond;
    }
    return n;
}

uint32_t kv_tenant_blocks(const struct kv_pool *pool, kv_tenant tenant)
{
    unsigned at = shares_find(&pool->shares, tenant);

    return at < KV_MAX_TENANTS ? pool->shares.all[at].n_blocks : 0;
}

uint32_t kv_tenant_share(const struct kv_pool *pool, kv_tenant tenant)
{
    return shares_each(&pool->shares, shares_find(&pool->shares, tenant));
}

void kv_pool_counts(const struct kv_pool *pool, struct kv_pool_counts *out)
{
    uint32_t n_kept = 0, n_shared = 0, n_tenants = 0;

    for (unsigned at = 0; at < pool->shares.n_seen; at++) {
        n_kept += pool->shares.all[at].shelf.kept.n;
        n_shared += pool->shares.all[at].shelf.shared.n;
        n_tenants += pool->shares.all[at].n_blocks > 0;
    }
    *out = (struct kv_pool_counts){
        .n_free = pool->n_in_state[KV_FREE],
        .n_filling = pool->n_in_state[KV_FILLING],
        .n_sealed = pool->n_in_state[KV_SEALED],
        .n_cached = pool->n_in_state[KV_CACHED],
        .n_kept = n_kept,
        .n_shared = n_shared,
        .n_zombie = pool->n_in_state[KV_ZOMBIE],
        .n_leased = pool->n_leased,
        .n_evicted = pool->n_evicted,
        .n_expired = pool->n_expired,
        .n_hits = pool->n_hits,
        .n_misses = pool->n_misses,
        .n_lost = pool->n_lost,
        .n_unsaved = pool->unsaved.n,
        .n_tenants = n_tenants,
    };
}
