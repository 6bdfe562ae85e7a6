/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks are saved next, one by one for the disk, in runs for the remote tier.
 *
 *     chain    0 1 2 3 | 4 5 6 7 | 8 9          n_most = 4: a run ends at a multiple of four,
 *                  \-> 3' | ...                 at a branch (block 2 has two children),
 *     runs     [0 1 2] [3] [4 5 6 7] [8 9]      or where the queue has no child
 *
 * A run is stored as one value, and a prompt finds it by its last block.  A prompt that shares only the beginning
 * of a run does not find it.  So a run ends where prompts part.  Where a prompt parts from a run that was saved
 * before, kv_note_match() lets the shared beginning be saved once more, as a run of its own.
 *
 * Places in the chain are hints: a run of blocks is checked by its hashes, each of which names its parent. */
#include "base/check.h"
#include "cache/kv/pool_state_priv.h"

static struct kv_save save_begin(struct kv_pool *pool, enum kv_below below, kv_block_id id)
{
    pool_set_state(pool, id, KV_SEALED);
    pool->blocks[id].n_refs = 1;
    pool->blocks[id].keeps_age = true;
    pool->blocks[id].saved |= (uint8_t)(1u << below);
    kv_lease(pool, id);
    return (struct kv_save){.id = id,
                            .hash = pool->hashes[id],
                            .tenant = pool->quotas.all[pool->blocks[id].quota].tenant,
                            .pin_end_ns = pool->quotas.places[id].pin_end_ns};
}

static kv_block_id save_oldest(const struct kv_pool *pool, enum kv_below below)
{
    bool has_tier = below == KV_BELOW_DISK ? pool->opts.has_tier : pool->opts.has_remote;

    return has_tier ? pool->writeback[below].oldest : KV_BLOCK_NONE;
}

bool kv_save_next(struct kv_pool *pool, enum kv_below below, struct kv_save *out)
{
    kv_block_id id = save_oldest(pool, below);

    if (id == KV_BLOCK_NONE)
        return false;
    *out = save_begin(pool, below, id);
    return true;
}

/* ---- runs ---- */

/* The block with this hash, if it waits for the remote tier. */
static kv_block_id save_queued(const struct kv_pool *pool, const struct block_hash *hash)
{
    kv_block_id id = hash_index_find(&pool->index, hash);

    return id != KV_BLOCK_NONE && writeback_has(&pool->writeback[KV_BELOW_REMOTE], id) ? id : KV_BLOCK_NONE;
}

/* The block's only child, if it belongs to the same run. */
static kv_block_id save_child(const struct kv_pool *pool, kv_block_id id, uint32_t n_most)
{
    const struct chain_place *place = &pool->places[id];

    if (!place->is_known || !place->has_child || place->is_branch || (place->at + 1) % n_most == 0)
        return KV_BLOCK_NONE;
    return save_queued(pool, &place->child);
}

static kv_block_id save_parent(const struct kv_pool *pool, kv_block_id id, uint32_t n_most)
{
    const struct chain_place *place = &pool->places[id];
    kv_block_id parent;

    if (!place->is_known || place->at % n_most == 0)
        return KV_BLOCK_NONE;
    parent = save_queued(pool, &place->parent);
    return parent != KV_BLOCK_NONE && !pool->places[parent].is_branch ? parent : KV_BLOCK_NONE;
}

uint32_t kv_save_run(struct kv_pool *pool, uint32_t n_most, struct kv_save *out)
{
    kv_block_id last = save_oldest(pool, KV_BELOW_REMOTE), id;
    uint32_t n = 0, n_after = 0;

    if (last == KV_BLOCK_NONE)
        return 0;
    for (; n_after < n_most && (id = save_child(pool, last, n_most)) != KV_BLOCK_NONE; n_after++)
        last = id;
    for (id = last; n < n_most && id != KV_BLOCK_NONE;) {
        kv_block_id parent = save_parent(pool, id, n_most);

        out[n++] = save_begin(pool, KV_BELOW_REMOTE, id);
        pool->blocks[id].is_inside = id != last;
        id = parent;
    }
    for (uint32_t i = 0; i < n / 2; i++) { /* the oldest ancestor first */
        struct kv_save spare = out[i];

        out[i] = out[n - 1 - i];
        out[n - 1 - i] = spare;
    }
    return n;
}

/* Notes the place of block `at`, and that its parent has this child. */
static void save_note_block(struct kv_pool *pool, const struct block_hash *hashes, uint32_t at)
{
    kv_block_id id = hash_index_find(&pool->index, &hashes[at]), parent;
    struct chain_place *place;

    if (id == KV_BLOCK_NONE)
        return;
    pool->places[id].is_known = true;
    pool->places[id].at = at;
    if (at == 0)
        return;
    pool->places[id].parent = hashes[at - 1];
    parent = hash_index_find(&pool->index, &hashes[at - 1]);
    if (parent == KV_BLOCK_NONE)
        return;
    place = &pool->places[parent];
    if (place->has_child && !block_hash_equal(&place->child, &hashes[at]) &&
        hash_index_find(&pool->index, &place->child) != KV_BLOCK_NONE)
        place->is_branch = true;
    place->child = hashes[at];
    place->has_child = true;
}

/* Prompts part after block `end`, inside of a saved run: the blocks of the run up to there are saved again, as soon as
 * they are cached. */
static void save_part_run(struct kv_pool *pool, const struct block_hash *hashes, uint32_t end)
{
    for (uint32_t at = end + 1; at-- > 0;) {
        kv_block_id id = hash_index_find(&pool->index, &hashes[at]);

        if (id == KV_BLOCK_NONE || !pool->blocks[id].is_inside)
            return;
        pool->blocks[id].is_inside = false;
        pool->blocks[id].saved &= (uint8_t) ~(1u << KV_BELOW_REMOTE);
    }
}

void kv_note_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n_matched, uint32_t n)
{
    kv_block_id last;

    if (pool->places == NULL || n_matched == 0)
        return;
    last = hash_index_find(&pool->index, &hashes[n_matched - 1]);
    if (last != KV_BLOCK_NONE && n > n_matched && pool->places[last].has_child &&
        !block_hash_equal(&pool->places[last].child, &hashes[n_matched]))
        save_part_run(pool, hashes, n_matched - 1);
    for (uint32_t at = 0; at < n_matched; at++)
        save_note_block(pool, hashes, at);
}

void kv_note_block(struct kv_pool *pool, const struct block_hash *hashes, uint32_t at)
{
    if (pool->places != NULL)
        save_note_block(pool, hashes, at);
}

/* ---- the ends of saves ---- */

void kv_save_end(struct kv_pool *pool, enum kv_below below, kv_block_id id, bool has_failed)
{
    if (has_failed)
        pool_block(pool, id)->saved &= (uint8_t) ~(1u << below);
    else
        pool_block(pool, id)->keeps_age = false;
    kv_unlease(pool, id);
    kv_unref(pool, id);
}

void kv_set_saved(struct kv_pool *pool, enum kv_below below, kv_block_id id)
{
    ASSERT(pool_block(pool, id)->state == KV_SEALED);
    pool->blocks[id].saved |= (uint8_t)(1u << below);
}

static void save_forget(struct kv_pool *pool, enum kv_below below, kv_block_id id)
{
    pool->blocks[id].saved &= (uint8_t) ~(1u << below);
    if (below == KV_BELOW_REMOTE)
        pool->blocks[id].is_inside = false;
}

void kv_clear_saved(struct kv_pool *pool, enum kv_below below, const struct block_hash *hash)
{
    kv_block_id id = hash_index_find(&pool->index, hash);

    if (id != KV_BLOCK_NONE)
        save_forget(pool, below, id);
}

void kv_clear_all_saved(struct kv_pool *pool, enum kv_below below)
{
    for (kv_block_id id = 0; id < pool->opts.n_blocks; id++)
        save_forget(pool, below, id);
}

void kv_set_inside(struct kv_pool *pool, kv_block_id id)
{
    ASSERT(pool_block(pool, id)->state == KV_SEALED);
    pool->blocks[id].is_inside = true;
}

/* Queues the cached blocks that have this bit for the remote tier, or those that lack it. */
static void save_queue_all(struct kv_pool *pool, bool is_saved)
{
    struct writeback *queue = &pool->writeback[KV_BELOW_REMOTE];

    for (kv_block_id id = 0; id < pool->opts.n_blocks; id++)
        if (pool->blocks[id].state == KV_CACHED && !pool->quotas.places[id].is_spare &&
            ((pool->blocks[id].saved & 1u << KV_BELOW_REMOTE) != 0) == is_saved) {
            (void)writeback_remove(queue, id);
            writeback_add(queue, id);
        }
}

void kv_save_all(struct kv_pool *pool, bool is_on)
{
    bool begins = is_on && !pool->saves_all;

    pool->saves_all = is_on;
    if (!begins || !pool->opts.has_remote)
        return;
    save_queue_all(pool, false);
    save_queue_all(pool, true); /* the tier may have lost these */
    kv_clear_all_saved(pool, KV_BELOW_REMOTE);
}
