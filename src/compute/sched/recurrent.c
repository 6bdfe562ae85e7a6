/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent state of sequences (cache/kv/state.h describes its place in blocks).
 *
 *     tokens    | block | block | block | block | block | bl
 *     states            s               s       s         own
 *
 * A running sequence owns one state: the state after its last computed token.  The engine reads and writes it
 * in place. After some blocks the step also writes a snapshot, which is sealed under the block's hash.  A
 * later sequence with the same prefix starts from it.  A cache hit is the longest run of blocks that ends
 * with a snapshot.
 *
 * Snapshots are taken at points from which another sequence is likely to continue:
 *
 *     the end of the prompt, and the block before it       the next turn; the same prompt again
 *     the places that the request marked                   cache breakpoints, the public prefix
 *     a fork                                               blocks were cached here, but no state was
 *     every few blocks                                     at most one state block for four of tokens
 *     the last full block of the answer so far             the next turn; the one before it is forgotten
 *
 * Draft tokens: the step leaves the state before the first of them, because it does not know yet how many are
 * accepted. The next step feeds the accepted ones again with the next token.  Their rows cost little beside
 * reading the weights.
 *
 * A snapshot needs free or evictable blocks.  Without them no snapshot is taken, and later hits are shorter.
 * Its blocks are pool blocks like all others, so quotas, pins, eviction, the disk tier and block events
 * apply. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "compute/sched/sched_priv.h"

enum { SPREAD = 4 /* token blocks for each state block of snapshots every few blocks */ };

int recurrent_init(const struct sched *sched, struct seq *seq)
{
    struct seq_recurrent *r = &seq->recurrent;
    size_t n = sched->n_state_blocks;

    if (n == 0)
        return 0;
    r->own = calloc(n * (3 + RECURRENT_SNAPSHOTS), sizeof(*r->own));
    if (r->own == NULL)
        return E_NOMEM;
    r->found = r->own + n;
    r->latest = r->found + n;
    r->taken = r->latest + n;
    return 0;
}

void recurrent_fini(struct seq *seq)
{
    free(seq->recurrent.own);
}

static bool recurrent_has(const struct sched *sched, const struct block_hash *block)
{
    struct block_hash *hashes = sched->state_hashes;

    kv_state_hashes(block, sched->n_state_blocks, hashes);
    return kv_peek(sched->opts.pool, hashes, sched->n_state_blocks) == sched->n_state_blocks;
}

uint32_t recurrent_peek(const struct sched *sched, const struct seq *seq, uint32_t n)
{
    n = kv_peek(sched->opts.pool, seq->hashes, n);
    while (sched->n_state_blocks > 0 && n > 0 && !recurrent_has(sched, &seq->hashes[n - 1]))
        n--;
    return windows_peek(sched, seq, n);
}

static void recurrent_drop(struct sched *sched, kv_block_id *ids, bool *has)
{
    for (uint32_t i = sched->n_state_blocks; *has && i > 0; i--)
        kv_unref(sched->opts.pool, ids[i - 1]);
    *has = false;
}

int recurrent_match(struct sched *sched, struct seq *seq, uint32_t n_matched)
{
    struct seq_recurrent *r = &seq->recurrent;
    uint32_t n = sched->n_state_blocks;

    if (n == 0)
        return 0;
    if (n_matched > 0) { /* before taking blocks, which may evict the state */
        kv_state_hashes(&seq->hashes[n_matched - 1], n, sched->state_hashes);
        uint32_t got = kv_match(sched->opts.pool, sched->state_hashes, n, r->found);

        r->has_found = got == n;
        while (!r->has_found && got > 0)
            kv_unref(sched->opts.pool, r->found[--got]);
        if (!r->has_found) /* its pin has just expired */
            return E_KV_FULL;
    }
    if (kv_take_for(sched->opts.pool, seq->spec.tenant, n, r->own) < 0) {
        recurrent_drop(sched, r->found, &r->has_found);
        return E_KV_FULL;
    }
    r->has_own = true;
    return 0;
}

void recurrent_give_back(struct sched *sched, struct seq *seq)
{
    struct seq_recurrent *r = &seq->recurrent;

    while (r->n_taken > 0) { /* snapshots of a step that failed */
        bool is_held = true;

        recurrent_drop(sched, r->taken + (size_t)--r->n_taken * sched->n_state_blocks, &is_held);
    }
    recurrent_drop(sched, r->found, &r->has_found);
    recurrent_drop(sched, r->own, &r->has_own);
    recurrent_drop(sched, r->latest, &r->has_latest);
}

bool recurrent_release_latest(struct sched *sched, struct seq *seq)
{
    bool has = seq->recurrent.has_latest;

    recurrent_drop(sched, seq->recurrent.latest, &seq->recurrent.has_latest);
    return has;
}

/* ---- snapshots ---- */

/* True if a snapshot after `end` leading blocks is worth its memory. */
static bool recurrent_is_wanted(const struct sched *sched, const struct seq *seq, uint32_t end)
{
    const struct work *work = &seq->spec.work;
    uint32_t n_tokens = sched->block_tokens, given = seq->n_submitted_tokens;

    return end == given / n_tokens || (given % n_tokens == 0 && end + 1 == given / n_tokens) ||
           end == seq->recurrent.fork || work_pin_ends_at(work, end, n_tokens) ||
           end == work->public_tokens / n_tokens;
}

/* Takes blocks for a snapshot, but none that a sequence will need, and none of another tenant's quota. */
static bool recurrent_take(struct sched *sched, struct seq *seq, kv_block_id *ids_out)
{
    struct kv_pool *pool = sched->opts.pool;
    uint32_t n = sched->n_state_blocks, reserve = 2 * sched->opts.max_seqs;

    return kv_available(pool) >= n + reserve && kv_available_to(pool, seq->spec.tenant) >= n &&
           kv_take_for(pool, seq->spec.tenant, n, ids_out) == 0;
}

static void recurrent_add(struct sched *sched, struct seq *seq, uint32_t end)
{
    struct seq_recurrent *r = &seq->recurrent;
    kv_block_id *ids = r->taken + (size_t)r->n_taken * sched->n_state_blocks;

    if (r->n_taken == RECURRENT_SNAPSHOTS ||
        (end <= seq->n_hashes && recurrent_has(sched, &seq->hashes[end - 1])) ||
        !recurrent_take(sched, seq, ids))
        return;
    r->ends[r->n_taken] = end;
    r->cuts[r->n_taken++] =
        (struct kv_state_cut){.n_tokens = end * sched->block_tokens - seq->n_computed, .blocks = ids};
}

/* Chooses block ends in (n_computed, to]: the wanted ones, and one every few blocks.
 * Leaves room for the wanted ones. */
static void recurrent_choose(struct sched *sched, struct seq *seq, uint32_t to)
{
    uint32_t first = seq->n_computed / sched->block_tokens + 1, last = to / sched->block_tokens;
    uint32_t every = SPREAD * sched->n_state_blocks, n_wanted = 0, n_spread;

    for (uint32_t end = first; end <= last; end++)
        n_wanted += recurrent_is_wanted(sched, seq, end);
    do {
        n_spread = last / every - (first - 1) / every;
        every *= n_wanted + n_spread > RECURRENT_SNAPSHOTS ? 2 : 1;
    } while (n_spread > 0 && n_wanted + n_spread > RECURRENT_SNAPSHOTS);
    for (uint32_t end = first; end <= last; end++)
        if (end % every == 0 || seq->state == SEQ_DECODE || recurrent_is_wanted(sched, seq, end))
            recurrent_add(sched, seq, end);
}

void recurrent_plan(struct sched *sched, struct seq *seq, struct engine_item *item)
{
    struct seq_recurrent *r = &seq->recurrent;
    uint32_t n_sure = item->n_tokens - item->n_drafts;

    if (sched->n_state_blocks == 0)
        return;
    ASSERT(r->has_own && r->n_taken == 0);
    item->recurrent = seq->n_computed == 0 ? NULL : r->has_found ? r->found : r->own;
    if (!seq->spec.leaves_nothing)
        recurrent_choose(sched, seq, seq->n_computed + n_sure);
    r->cuts[r->n_taken] = (struct kv_state_cut){.n_tokens = n_sure, .blocks = r->own};
    item->cuts = r->cuts;
    item->n_cuts = r->n_taken + 1;
}

/* Replaces the latest snapshot of the answer, because earlier ones are not worth their memory. */
static void recurrent_replace_latest(struct sched *sched, struct seq *seq, const kv_block_id *ids)
{
    struct seq_recurrent *r = &seq->recurrent;

    for (uint32_t i = 0; r->has_latest && i < sched->n_state_blocks; i++)
        kv_forget(sched->opts.pool, r->latest[i]);
    recurrent_drop(sched, r->latest, &r->has_latest);
    memcpy(r->latest, ids, sched->n_state_blocks * sizeof(*ids));
    r->has_latest = true;
}

static void recurrent_seal_one(struct sched *sched, struct seq *seq, kv_block_id *ids, uint32_t end)
{
    bool is_latest = seq->state == SEQ_DECODE, is_held = true;

    if (end > seq->n_sealed) { /* not if memory for the hash was lacking */
        recurrent_drop(sched, ids, &is_held);
        return;
    }
    kv_state_hashes(&seq->hashes[end - 1], sched->n_state_blocks, sched->state_hashes);
    for (uint32_t i = 0; i < sched->n_state_blocks; i++) {
        kv_seal(sched->opts.pool, ids[i], &sched->state_hashes[i]);
        seq_pin(sched, seq, ids[i], end);
    }
    if (is_latest)
        recurrent_replace_latest(sched, seq, ids);
    else
        recurrent_drop(sched, ids, &is_held);
}

void recurrent_seal(struct sched *sched, struct seq *seq)
{
    struct seq_recurrent *r = &seq->recurrent;

    if (sched->n_state_blocks == 0)
        return;
    for (uint32_t i = 0; i < r->n_taken; i++)
        recurrent_seal_one(sched, seq, r->taken + (size_t)i * sched->n_state_blocks, r->ends[i]);
    r->n_taken = 0;
    recurrent_drop(sched, r->found, &r->has_found);
}

void recurrent_forget(struct sched *sched, struct seq *seq)
{
    struct kv_pool *pool = sched->opts.pool;

    for (uint32_t end = 1; sched->n_state_blocks > 0 && end <= seq->n_sealed; end++) {
        kv_block_id *ids = seq->recurrent.taken; /* sealed snapshots left this array between steps */
        uint32_t n;

        kv_state_hashes(&seq->hashes[end - 1], sched->n_state_blocks, sched->state_hashes);
        n = kv_match(pool, sched->state_hashes, sched->n_state_blocks, ids);
        for (uint32_t i = 0; i < n; i++) {
            kv_forget(pool, ids[i]);
            kv_unref(pool, ids[i]);
        }
    }
}

void recurrent_arrived(struct sched *sched, struct seq *seq)
{
    recurrent_drop(sched, seq->recurrent.found, &seq->recurrent.has_found);
}
