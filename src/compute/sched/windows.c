/* SPDX-License-Identifier: Apache-2.0 */
/* Windowed blocks of sequences (cache/kv/window.h describes them).
 *
 *     tokens           | block | block | block | block | block | bl          n_computed
 *     full blocks      | held  | held  | held  | held  | held  | held        all
 *     windowed blocks                  | held  | held  | held  | held        from kv_window_kept() on, in each group
 *                                      from                          to
 *
 * A step needs windowed blocks for the tokens that it feeds and for one window before them.  Afterwards the blocks
 * behind the window are released.  They stay in the prefix cache as spare blocks: the pool evicts them before all
 * others, and no tier saves them.
 *
 * A prefix can be continued where the cache has its full blocks and the windowed blocks of its last window.
 * Continuation is likely after the end of the prompt, after the places that the request marked, after a fork, and
 * after the last block of the answer.  Windowed blocks that end one of these prefixes are not spare, and pinned as
 * the request asks.  Those that a sequence found in the cache are not spare either.
 *
 * A prompt is admitted with windowed blocks for one window and two blocks more.  From there on every released block
 * makes room for the next one.  Before a step, windows_ahead() adds blocks for a longer chunk if the pool has
 * plenty.  The chunk ends where the windowed blocks end. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "compute/sched/sched_priv.h"

static const struct kv_layout *windows_layout(const struct sched *sched)
{
    return &sched->opts.engine->info.layout;
}

static kv_block_id *windows_id(const struct seq *seq, uint32_t group, uint32_t block)
{
    return &seq->windows.ids[(size_t)group * seq->windows.stride + block];
}

int windows_init(const struct sched *sched, struct seq *seq)
{
    struct seq_windows *w = &seq->windows;
    size_t n;

    if (sched->windows.n_groups == 0)
        return 0;
    w->stride = sched_blocks_for(sched, seq->cap_tokens);
    n = (size_t)w->stride * sched->windows.n_groups;
    w->ids = malloc(n * sizeof(*w->ids)); /* entries are set when [from, to) reaches them */
    return w->ids == NULL ? E_NOMEM : 0;
}

void windows_fini(struct seq *seq)
{
    free(seq->windows.ids);
}

/* ---- the cache ---- */

static bool windows_in_pool(void *arg, const struct block_hash *hash)
{
    return kv_peek(arg, hash, 1) == 1;
}

uint32_t windows_peek(const struct sched *sched, const struct seq *seq, uint32_t n)
{
    const struct kv_window_source source = {.has = windows_in_pool, .arg = sched->opts.pool};

    return kv_window_run(windows_layout(sched), &source, seq->hashes, n);
}

static uint32_t windows_first(const struct sched *sched, uint32_t n_blocks)
{
    return kv_window_first(windows_layout(sched), n_blocks * sched->block_tokens);
}

/* Sets [*from_out, *to_out) to the blocks to begin with. */
static void windows_beginning(const struct sched *sched, const struct seq *seq, uint32_t n_matched,
                              uint32_t *from_out, uint32_t *to_out)
{
    uint32_t n_total = sched_blocks_for(sched, seq->spec.n_tokens), first = 0;
    uint32_t to = windows_first(sched, n_matched) + kv_window_blocks(windows_layout(sched)) + 2;

    if (seq->spec.arrives)
        first = kv_window_kept(windows_layout(sched), seq->spec.n_tokens);
    *from_out = first > n_matched ? first : n_matched;
    *to_out = seq->spec.arrives || to > n_total ? n_total : to;
}

uint32_t windows_wanted(const struct sched *sched, const struct seq *seq, uint32_t n_matched)
{
    uint32_t from, to;

    if (sched->windows.n_groups == 0)
        return 0;
    windows_beginning(sched, seq, n_matched, &from, &to);
    return (to - from) * sched->windows.n_groups;
}

static void windows_clear(struct seq *seq, uint32_t n_groups, uint32_t block)
{
    for (uint32_t group = 0; group < n_groups; group++)
        *windows_id(seq, group, block) = KV_BLOCK_NONE;
}

/* Returns the references of a block's entries. */
static void windows_drop(struct sched *sched, struct seq *seq, uint32_t block)
{
    for (uint32_t group = 0; group < sched->windows.n_groups; group++) {
        kv_block_id *id = windows_id(seq, group, block);

        if (*id != KV_BLOCK_NONE)
            kv_unref(sched->opts.pool, *id);
        *id = KV_BLOCK_NONE;
    }
}

/* Marks a released block as spare, or as likely to be of use.  Another sequence may have set the opposite. */
static void windows_judge(struct sched *sched, const struct seq *seq, uint32_t block, bool is_spare)
{
    for (uint32_t group = 0; group < sched->windows.n_groups; group++) {
        kv_block_id id = *windows_id(seq, group, block);

        if (id != KV_BLOCK_NONE && kv_state_of(sched->opts.pool, id) == KV_SEALED)
            kv_set_spare(sched->opts.pool, id, is_spare);
    }
}

int windows_match(struct sched *sched, struct seq *seq, uint32_t n_matched)
{
    struct seq_windows *w = &seq->windows;
    uint32_t n = sched->windows.n_groups;

    if (n == 0)
        return 0;
    w->from = w->to = windows_first(sched, n_matched);
    for (; w->to < n_matched; w->to++) {
        bool has_all = true;

        windows_clear(seq, n, w->to);
        kv_window_hashes(&seq->hashes[w->to], n, sched->windows.hashes);
        for (uint32_t group = 0; has_all && group < n; group++)
            has_all = kv_match(sched->opts.pool, &sched->windows.hashes[group], 1,
                               windows_id(seq, group, w->to)) == 1;
        if (!has_all) {
            windows_drop(sched, seq, w->to);
            windows_give_back(sched, seq);
            return E_KV_FULL;
        }
    }
    return 0;
}

/* Takes the windowed blocks of one block, and sets the entries. */
static int windows_take_at(struct sched *sched, struct seq *seq, uint32_t block)
{
    kv_block_id *ids = sched->windows.ids;

    if (kv_take_for(sched->opts.pool, seq->spec.tenant, sched->windows.n_groups, ids) < 0)
        return E_KV_FULL;
    for (uint32_t group = 0; group < sched->windows.n_groups; group++)
        *windows_id(seq, group, block) = ids[group];
    return 0;
}

int windows_take(struct sched *sched, struct seq *seq, uint32_t n_matched)
{
    struct seq_windows *w = &seq->windows;
    uint32_t from, to;

    if (sched->windows.n_groups == 0)
        return 0;
    windows_beginning(sched, seq, n_matched, &from, &to);
    for (; w->to < from; w->to++)
        windows_clear(seq, sched->windows.n_groups, w->to);
    for (; w->to < to; w->to++)
        if (windows_take_at(sched, seq, w->to) < 0)
            return E_KV_FULL;
    return 0;
}

void windows_give_back(struct sched *sched, struct seq *seq)
{
    struct seq_windows *w = &seq->windows;

    while (w->to > w->from) {
        windows_judge(sched, seq, --w->to, false);
        windows_drop(sched, seq, w->to);
    }
    w->from = w->to = 0;
}

int windows_grow(struct sched *sched, struct seq *seq)
{
    if (sched->windows.n_groups == 0)
        return 0;
    if (windows_take_at(sched, seq, seq->windows.to) < 0)
        return E_KV_FULL;
    seq->windows.to++;
    return 0;
}

void windows_shrink(struct sched *sched, struct seq *seq)
{
    if (sched->windows.n_groups > 0)
        windows_drop(sched, seq, --seq->windows.to);
}

/* ---- steps ---- */

uint32_t windows_room(const struct sched *sched, const struct seq *seq)
{
    if (sched->windows.n_groups == 0)
        return UINT32_MAX;
    return seq->windows.to * sched->block_tokens - seq->n_computed;
}

void windows_ahead(struct sched *sched)
{
    uint32_t n = sched->windows.n_groups, reserve = (1 + n) * sched->opts.max_seqs, budget;

    if (n == 0)
        return;
    budget = plan_budget(sched);
    for (uint32_t i = 0; i < sched->n_line && budget > 0; i++) {
        struct seq *seq = sched->line[i];
        uint32_t n_tokens = plan_chunk(sched, seq, budget);
        uint32_t to = sched_blocks_for(sched, seq->n_computed + n_tokens);

        while (seq->windows.to < to && kv_available(sched->opts.pool) >= reserve + n &&
               queue_room(sched, seq) >= n && windows_grow(sched, seq) == 0)
            ;
        budget -= n_tokens;
    }
}

void windows_plan(const struct seq *seq, struct engine_item *item)
{
    item->windows = seq->windows.ids;
    item->window_stride = seq->windows.stride;
}

/* True if a prefix of `end` blocks is likely to be continued. */
static bool windows_is_end(const struct sched *sched, const struct seq *seq, uint32_t end)
{
    const struct work *work = &seq->spec.work;
    uint32_t n_tokens = sched->block_tokens, given = seq->n_submitted_tokens;

    return end == given / n_tokens || (given % n_tokens == 0 && end + 1 == given / n_tokens) ||
           end == seq->windows.fork || work_pin_ends_at(work, end, n_tokens) ||
           end == work->public_tokens / n_tokens;
}

/* Returns the shortest prefix that is likely to be continued and needs this block; 0: none. */
static uint32_t windows_end_of(const struct sched *sched, const struct seq *seq, uint32_t block)
{
    uint32_t last = block + kv_window_blocks(windows_layout(sched));

    for (uint32_t end = block + 1; end <= last; end++)
        if (windows_is_end(sched, seq, end))
            return end;
    return 0;
}

void windows_seal(struct sched *sched, struct seq *seq, uint32_t block)
{
    uint32_t end;

    if (sched->windows.n_groups == 0 || block < seq->windows.from || block >= seq->windows.to)
        return;
    end = windows_end_of(sched, seq, block);
    kv_window_hashes(&seq->hashes[block], sched->windows.n_groups, sched->windows.hashes);
    for (uint32_t group = 0; group < sched->windows.n_groups; group++) {
        kv_block_id id = *windows_id(seq, group, block);

        if (id == KV_BLOCK_NONE)
            continue;
        kv_seal_quiet(sched->opts.pool, id, &sched->windows.hashes[group]); /* the full block stands for it */
        if (end > 0)
            seq_pin(sched, seq, id, end);
    }
}

void windows_slide(struct sched *sched, struct seq *seq)
{
    struct seq_windows *w = &seq->windows;
    uint32_t first;

    if (sched->windows.n_groups == 0)
        return;
    first = kv_window_kept(windows_layout(sched), seq->n_computed);
    for (; w->from < w->to && w->from < first; w->from++) {
        bool is_new = w->from >= seq->n_matched;

        windows_judge(sched, seq, w->from, is_new && windows_end_of(sched, seq, w->from) == 0);
        windows_drop(sched, seq, w->from);
    }
}

/* ---- transfers and damage ---- */

void windows_arrived(struct sched *sched, struct seq *seq, bool is_whole)
{
    struct seq_windows *w = &seq->windows;

    while (sched->windows.n_groups > 0 && !is_whole && w->to > seq->n_matched)
        windows_drop(sched, seq, --w->to); /* the rest is computed here, from the cached prefix on */
}

void windows_forget(struct sched *sched, struct seq *seq)
{
    windows_give_back(sched, seq); /* give them back, so that each hash has at most one block */
    for (uint32_t end = 0; sched->windows.n_groups > 0 && end < seq->n_sealed; end++) {
        kv_window_hashes(&seq->hashes[end], sched->windows.n_groups, sched->windows.hashes);
        for (uint32_t group = 0; group < sched->windows.n_groups; group++) {
            kv_block_id id;

            if (kv_match(sched->opts.pool, &sched->windows.hashes[group], 1, &id) == 0)
                continue;
            kv_forget(sched->opts.pool, id);
            kv_unref(sched->opts.pool, id);
        }
    }
}

const kv_block_id *seq_window_blocks(const struct sched *sched, const struct seq *seq, uint32_t group)
{
    return group < sched->windows.n_groups ? windows_id(seq, group, 0) : NULL;
}
