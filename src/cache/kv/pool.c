/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and their states.
 *
 * The pool hands out ids; cache/kv/layout places the bytes.  A block's state follows from its references and
 * from whether it was sealed:
 *
 *                     references > 0      only leases      no owner
 *        unsealed     FILLING             ZOMBIE           FREE
 *        sealed       SEALED              SEALED           CACHED (findable) or FREE
 *
 * After every reference or lease that goes away, pool_update_state() reads the new state from this table.
 * Only pool_set_state() changes a state.
 *
 * Two sequences may compute the same content at the same time: the block sealed second is a duplicate.  It
 * has its hash but is not in the index.  When it is released after the first one is gone, it takes the first
 * one's place.  If the first one is still there, that one counts as just used, because its content was used.
 *
 * Each tenant's cached blocks are in an eviction queue (eviction.c); quota.c chooses the tenant.  With tiers
 * below, blocks that are not saved yet are also in their writeback queues (writeback.c, save.c).
 *
 * Hot path: no allocation after kv_pool_new, no log. */
#include "cache/kv/pool.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_writeback.h"
#include "cache/kv/pool_state_priv.h"

#define LIFETIME_DEFAULT_NS (300 * NS_PER_S)
#define USES_WORTH_SAVING   2u /* the remote tier gets blocks that were used so often */

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
    if (pool->blocks == NULL || pool->hashes == NULL || quotas_init(&pool->quotas, &pool->opts) < 0 ||
        (opts->has_tier && writeback_init(&pool->writeback[KV_BELOW_DISK], opts->n_blocks) < 0) ||
        (opts->has_remote && (writeback_init(&pool->writeback[KV_BELOW_REMOTE], opts->n_blocks) < 0 ||
                              past_uses_init(&pool->past, opts->n_blocks) < 0 ||
                              (pool->places = calloc(opts->n_blocks, sizeof(*pool->places))) == NULL)) ||
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
    quotas_fini(&pool->quotas);
    for (unsigned below = 0; below < KV_N_BELOW; below++)
        writeback_fini(&pool->writeback[below]);
    hash_index_fini(&pool->index);
    past_uses_fini(&pool->past);
    free(pool->places);
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

struct block *pool_block(const struct kv_pool *pool, kv_block_id id)
{
    ASSERT(id < pool->opts.n_blocks);
    return &pool->blocks[id];
}

/* ---- states ---- */

static void pool_report(const struct kv_pool *pool, kv_block_id id, bool is_here)
{
    if (pool->opts.on_block != NULL && !pool->blocks[id].is_quiet)
        pool->opts.on_block(pool->opts.on_block_arg, &pool->hashes[id], is_here);
}

/* Makes the block unfindable. */
static void pool_drop_hash(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = &pool->blocks[id];

    if (block->is_findable) {
        hash_index_remove(&pool->index, id);
        pool_report(pool, id, false);
    }
    block->is_findable = block->has_hash = block->is_quiet = false;
}

static struct eviction_queue *pool_eviction_queue(struct kv_pool *pool, kv_block_id id)
{
    return &pool->quotas.all[pool->blocks[id].quota].queue;
}

/* Adds a cached block to the queues of the tiers that want it. */
static void pool_queue_saves(struct kv_pool *pool, kv_block_id id)
{
    const struct block *block = &pool->blocks[id];

    if (pool->quotas.places[id].is_spare)
        return;
    if (pool->opts.has_tier && (block->saved & 1u << KV_BELOW_DISK) == 0)
        writeback_add(&pool->writeback[KV_BELOW_DISK], id);
    if (pool->opts.has_remote && (block->saved & 1u << KV_BELOW_REMOTE) == 0 &&
        (pool->saves_all || block->capped_uses >= USES_WORTH_SAVING))
        writeback_add(&pool->writeback[KV_BELOW_REMOTE], id);
}

static void pool_note_use(struct block *block)
{
    block->capped_uses += block->capped_uses < USES_WORTH_SAVING;
}

void pool_set_state(struct kv_pool *pool, kv_block_id id, enum kv_state to)
{
    static const bool may[POOL_N_STATES][POOL_N_STATES] = {
        [KV_FREE] = {[KV_FILLING] = true},
        [KV_FILLING] = {[KV_SEALED] = true, [KV_ZOMBIE] = true, [KV_FREE] = true},
        [KV_SEALED] = {[KV_CACHED] = true, [KV_FREE] = true},
        [KV_CACHED] = {[KV_SEALED] = true, [KV_FREE] = true},
        [KV_ZOMBIE] = {[KV_FREE] = true},
    };
    struct block *block = &pool->blocks[id];
    struct quota *quota = &pool->quotas.all[block->quota];
    enum kv_state from = block->state;

    ASSERT(may[from][to]);
    if (from == KV_CACHED) {
        eviction_remove(&quota->queue, id);
        quota->n_cached--;
        (void)writeback_remove(&pool->writeback[KV_BELOW_REMOTE], id);
        if (writeback_remove(&pool->writeback[KV_BELOW_DISK], id) && to == KV_FREE)
            pool->n_lost++;
    }
    block->state = (uint8_t)to;
    pool->n_in_state[from]--;
    pool->n_in_state[to]++;

    if (to == KV_CACHED) {
        if (block->keeps_age)
            eviction_put_back(&quota->queue, id, pool->opts.now_ns());
        else
            eviction_put(&quota->queue, id, pool->opts.now_ns());
        quota->n_cached++;
        pool_queue_saves(pool, id);
    }
    if (to == KV_FREE) {
        ASSERT(block->n_refs == 0 && block->n_leases == 0);
        if (block->is_findable && block->capped_uses == 1)
            past_uses_add(&pool->past, &pool->hashes[id]);
        pool_drop_hash(pool, id);
        block->saved = block->capped_uses = 0;
        block->is_inside = block->keeps_age = false;
        if (pool->places != NULL)
            pool->places[id] = (struct chain_place){0};
        quota->n_blocks--;
        eviction_reset(&quota->queue, id);
        free_map_put(&pool->free_map, id);
    }
}

/* Indexes a sealed block, unless another block has its hash.  Returns that block, else KV_BLOCK_NONE. */
static kv_block_id pool_claim_hash(struct kv_pool *pool, kv_block_id id)
{
    kv_block_id owner = hash_index_find(&pool->index, &pool->hashes[id]);

    if (owner == KV_BLOCK_NONE) {
        hash_index_add(&pool->index, id);
        pool->blocks[id].is_findable = true;
        pool_report(pool, id, true);
    }
    return owner;
}

/* A duplicate of this block was used.  The block then counts as just used, takes over the duplicate's pin, and
 * stays spare only if the duplicate is spare too. */
static void pool_use_duplicate(struct kv_pool *pool, kv_block_id owner,
                               const struct eviction_entry *duplicate)
{
    struct eviction_queue *queue = pool_eviction_queue(pool, owner);
    struct eviction_entry *place = &pool->quotas.places[owner];
    bool is_cached = pool->blocks[owner].state == KV_CACHED, was_spare = place->is_spare;

    if (is_cached)
        eviction_remove(queue, owner);
    eviction_pin(queue, owner, duplicate->pin_end_ns);
    place->is_spare &= duplicate->is_spare;
    if (is_cached)
        eviction_put(queue, owner, pool->opts.now_ns());
    pool->blocks[owner].keeps_age = false;
    pool_note_use(&pool->blocks[owner]);
    if (is_cached && was_spare)
        pool_queue_saves(pool, owner); /* no tier has it yet */
}

/* A sealed block lost its last owner: it becomes CACHED or FREE. */
static void pool_retire(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = &pool->blocks[id];

    if (block->has_hash && !block->is_findable) {
        kv_block_id owner = pool_claim_hash(pool, id);

        if (owner != KV_BLOCK_NONE)
            pool_use_duplicate(pool, owner, &pool->quotas.places[id]);
    }
    pool_set_state(pool, id, block->is_findable ? KV_CACHED : KV_FREE);
}

/* A reference or a lease went away: sets the state by the table at the top. */
static void pool_update_state(struct kv_pool *pool, kv_block_id id)
{
    const struct block *block = &pool->blocks[id];

    if (block->n_refs > 0)
        return;
    switch ((enum kv_state)block->state) {
    case KV_FILLING:
        pool_set_state(pool, id, block->n_leases ? KV_ZOMBIE : KV_FREE);
        break;
    case KV_ZOMBIE:
        if (block->n_leases == 0)
            pool_set_state(pool, id, KV_FREE);
        break;
    case KV_SEALED:
        if (block->n_leases == 0)
            pool_retire(pool, id);
        break;
    case KV_FREE:
    case KV_CACHED:
        ASSERT(!"held until now");
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
    unsigned at = quotas_place(&pool->quotas, tenant);

    while (pool->n_in_state[KV_FREE] < n) {
        pool_set_state(pool, quotas_victim(&pool->quotas, at, n, now_ns), KV_FREE);
        pool->n_evicted++;
    }

    free_map_take(&pool->free_map, n, ids_out);
    pool->quotas.all[at].n_blocks += n;
    for (uint32_t i = 0; i < n; i++) {
        pool->blocks[ids_out[i]].quota = (uint8_t)at;
        pool_set_state(pool, ids_out[i], KV_FILLING);
        pool->blocks[ids_out[i]].n_refs = 1;
    }
    return 0;
}

void kv_ref(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = pool_block(pool, id);

    ASSERT(block->n_refs > 0);
    block->n_refs++;
}

void kv_unref(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = pool_block(pool, id);

    ASSERT(block->n_refs > 0);
    block->n_refs--;
    pool_update_state(pool, id);
}

void kv_lease(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = pool_block(pool, id);

    ASSERT(block->n_refs > 0);
    if (block->n_leases++ == 0)
        pool->n_leased++;
}

void kv_unlease(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = pool_block(pool, id);

    ASSERT(block->n_leases > 0);
    if (--block->n_leases == 0)
        pool->n_leased--;
    pool_update_state(pool, id);
}

/* ---- the cache ---- */

void kv_seal_quiet(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash)
{
    ASSERT(pool_block(pool, id)->state == KV_FILLING);
    pool->blocks[id].is_quiet = true;
    kv_seal(pool, id, hash);
}

void kv_seal(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash)
{
    struct block *block = pool_block(pool, id);

    ASSERT(block->n_refs > 0);
    kv_expire(pool);
    pool_set_state(pool, id, KV_SEALED);
    pool->hashes[id] = *hash;
    block->has_hash = true;
    pool_note_use(block);
    if (past_uses_take(&pool->past, hash))
        pool_note_use(block);
    pool_claim_hash(pool, id);
}

void kv_pin(struct kv_pool *pool, kv_block_id id, uint64_t until_ns)
{
    ASSERT(pool_block(pool, id)->n_refs > 0);
    eviction_pin(pool_eviction_queue(pool, id), id, until_ns);
}

void kv_set_spare(struct kv_pool *pool, kv_block_id id, bool is_spare)
{
    ASSERT(pool_block(pool, id)->state == KV_SEALED);
    pool->quotas.places[id].is_spare = is_spare;
}

void kv_forget(struct kv_pool *pool, kv_block_id id)
{
    struct block *block = pool_block(pool, id);

    ASSERT(block->state == KV_SEALED);
    pool_drop_hash(pool, id);
}

static kv_block_id pool_ref_found(struct kv_pool *pool, const struct block_hash *hash)
{
    kv_block_id id = hash_index_find(&pool->index, hash);

    if (id == KV_BLOCK_NONE)
        return id;
    if (pool->blocks[id].state == KV_CACHED)
        pool_set_state(pool, id, KV_SEALED);
    pool->blocks[id].n_refs++;
    pool->blocks[id].keeps_age = false;
    return id;
}

uint32_t kv_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n, kv_block_id *ids_out)
{
    uint32_t n_found = 0;

    kv_expire(pool);
    for (; n_found < n; n_found++) {
        kv_block_id id = pool_ref_found(pool, &hashes[n_found]);

        if (id == KV_BLOCK_NONE)
            break;
        pool->quotas.places[id].is_spare = false;
        pool_note_use(&pool->blocks[id]);
        ids_out[n_found] = id;
    }
    pool->n_hits += n_found;
    pool->n_misses += n - n_found;
    return n_found;
}

static bool pool_is_expired(const struct kv_pool *pool, kv_block_id id, uint64_t now_ns)
{
    return eviction_is_expired(&pool->quotas.all[pool->blocks[id].quota].queue, id, now_ns,
                               pool->opts.lifetime_ns);
}

uint32_t kv_peek(const struct kv_pool *pool, const struct block_hash *hashes, uint32_t n)
{
    uint64_t now_ns = pool->opts.now_ns();
    uint32_t n_found = 0;

    while (n_found < n) {
        kv_block_id id = hash_index_find(&pool->index, &hashes[n_found]);

        if (id == KV_BLOCK_NONE || pool_is_expired(pool, id, now_ns))
            break;
        n_found++;
    }
    return n_found;
}

kv_block_id kv_hold(struct kv_pool *pool, const struct block_hash *hash)
{
    return kv_peek(pool, hash, 1) == 1 ? pool_ref_found(pool, hash) : KV_BLOCK_NONE;
}

void kv_expire(struct kv_pool *pool)
{
    uint64_t now_ns = pool->opts.now_ns();

    kv_block_id id;

    for (unsigned at = 0; at < pool->quotas.n_seen; at++) {
        struct eviction_queue *queue = &pool->quotas.all[at].queue;

        while ((id = eviction_expired(queue, now_ns, pool->opts.lifetime_ns)) != KV_BLOCK_NONE) {
            pool_set_state(pool, id, KV_FREE);
            pool->n_expired++;
        }
    }
}

void kv_set_replicated(struct kv_pool *pool, kv_block_id id, bool is_replicated)
{
    ASSERT(pool_block(pool, id)->n_refs > 0);
    eviction_set_replicated(pool_eviction_queue(pool, id), id, is_replicated);
}

bool kv_is_replicated(const struct kv_pool *pool, kv_block_id id)
{
    return pool->quotas.places[id].is_replicated;
}

void kv_clear_replicated(struct kv_pool *pool, const struct block_hash *hash)
{
    kv_block_id id = hash_index_find(&pool->index, hash);

    if (id != KV_BLOCK_NONE)
        eviction_set_replicated(pool_eviction_queue(pool, id), id, false);
}

void kv_clear(struct kv_pool *pool)
{
    for (unsigned at = 0; at < pool->quotas.n_seen; at++) {
        struct quota *quota = &pool->quotas.all[at];

        while (quota->n_cached > 0)
            pool_set_state(pool, eviction_next(&quota->queue, pool->opts.now_ns()), KV_FREE);
    }
    pool->n_lost = 0;
}

/* ---- looking ---- */

void kv_each(const struct kv_pool *pool, void (*visit)(void *arg, const struct block_hash *hash), void *arg)
{
    for (kv_block_id id = 0; id < pool->opts.n_blocks; id++)
        if (pool->blocks[id].is_findable && !pool->blocks[id].is_quiet)
            visit(arg, &pool->hashes[id]);
}

enum kv_state kv_state_of(const struct kv_pool *pool, kv_block_id id)
{
    return pool_block(pool, id)->state;
}

uint32_t kv_available_to(const struct kv_pool *pool, kv_tenant tenant)
{
    unsigned at = quotas_find(&pool->quotas, tenant);
    uint32_t each = quotas_each(&pool->quotas, at), n = pool->n_in_state[KV_FREE];

    for (unsigned i = 0; i < pool->quotas.n_seen; i++) {
        const struct quota *quota = &pool->quotas.all[i];
        uint32_t beyond = quota->n_blocks > each ? quota->n_blocks - each : 0;

        n += i == at || quota->n_cached < beyond ? quota->n_cached : beyond;
    }
    return n;
}

uint32_t kv_tenant_blocks(const struct kv_pool *pool, kv_tenant tenant)
{
    unsigned at = quotas_find(&pool->quotas, tenant);

    return at < KV_MAX_TENANTS ? pool->quotas.all[at].n_blocks : 0;
}

uint32_t kv_tenant_quota(const struct kv_pool *pool, kv_tenant tenant)
{
    return quotas_each(&pool->quotas, quotas_find(&pool->quotas, tenant));
}

void kv_pool_counts(const struct kv_pool *pool, struct kv_pool_counts *out)
{
    uint32_t n_pinned = 0, n_replicated = 0, n_spare = 0, n_tenants = 0;

    for (unsigned at = 0; at < pool->quotas.n_seen; at++) {
        n_pinned += pool->quotas.all[at].queue.heaps[EVICTION_PINNED].n;
        n_spare += pool->quotas.all[at].queue.heaps[EVICTION_SPARE].n;
        n_replicated += pool->quotas.all[at].queue.heaps[EVICTION_REPLICATED].n;
        n_tenants += pool->quotas.all[at].n_blocks > 0;
    }
    *out = (struct kv_pool_counts){
        .n_free = pool->n_in_state[KV_FREE],
        .n_filling = pool->n_in_state[KV_FILLING],
        .n_sealed = pool->n_in_state[KV_SEALED],
        .n_cached = pool->n_in_state[KV_CACHED],
        .n_pinned = n_pinned,
        .n_replicated = n_replicated,
        .n_spare = n_spare,
        .n_zombie = pool->n_in_state[KV_ZOMBIE],
        .n_leased = pool->n_leased,
        .n_evicted = pool->n_evicted,
        .n_expired = pool->n_expired,
        .n_hits = pool->n_hits,
        .n_misses = pool->n_misses,
        .n_lost = pool->n_lost,
        .n_writeback = pool->writeback[KV_BELOW_DISK].n,
        .n_writeback_remote = pool->writeback[KV_BELOW_REMOTE].n,
        .n_tenants = n_tenants,
    };
}
