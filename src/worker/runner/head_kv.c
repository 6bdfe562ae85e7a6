/* SPDX-License-Identifier: Apache-2.0 */
/* The KV of an MTP head travels in a hand-off as a string of bytes, in the pieces of further blocks of the pool. They lie
 * behind the other blocks of the transfer, as those of a recurrent state do (cache/kv/state.h):
 *
 *     head's own arena    | block 7 | block 2 | block 5 |                     one layer
 *     string              | KV      | KV      | KV      | row | first | ... padding |
 *     blocks of the pool  | piece | piece | piece | piece | piece | piece     of as many layers as the model has
 *
 * row: the model's row from which the first token is sampled. first: the token at the head's position 0, or 0 if the
 * string has no KV after all, because the sender's sequence was preempted or its head had no room.
 *
 * Leading blocks of the string are complete, and sent, as the chunks of the prompt are computed. The last ones follow
 * after the last chunk. */
#include "worker/runner/head_kv_priv.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/err.h"
#include "cache/kv/pool_quota.h"

static const struct kv_layout *head_own_layout(const struct worker_engine *engine)
{
    return &engine->opts.draft.info.layout;
}

static struct kv_arena head_pool_arena(const struct worker_engine *engine)
{
    return (struct kv_arena){.layout = &engine->opts.engine.info.layout,
                             .base = engine->opts.arena.base,
                             .n_blocks = engine->opts.n_blocks};
}

/* Blocks of the head's own arena. */
static uint32_t head_own_blocks(const struct worker_engine *engine, uint32_t n_tokens)
{
    uint32_t block_tokens = head_own_layout(engine)->block_tokens;

    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

static uint8_t *head_own_block(const struct worker_engine *engine, kv_block_id block)
{
    return (uint8_t *)engine->opts.draft_arena.base +
           kv_layout_offset(head_own_layout(engine), engine->opts.draft_blocks, 0, block);
}

static size_t head_row_bytes(const struct worker_engine *engine)
{
    return engine->opts.draft.info.hidden * sizeof(float);
}

/* Where the row lies in the string: behind the KV. */
static size_t head_row_at(const struct worker_engine *engine, uint32_t n_tokens)
{
    return head_own_blocks(engine, n_tokens) * kv_layout_block_bytes(head_own_layout(engine));
}

uint64_t worker_head_layout(const struct worker_engine *engine)
{
    const struct engine_info *info = &engine->opts.draft.info;

    if (engine->opts.draft.ops == NULL || !info->is_mtp)
        return 0;
    return kv_layout_fingerprint(&info->layout, info->numerics_id);
}

int worker_head_open(struct worker_engine *engine, kv_tenant tenant, uint32_t n_tokens, struct head_kv *head)
{
    size_t block_bytes = kv_layout_block_bytes(&engine->opts.engine.info.layout);
    size_t len_bytes = head_row_at(engine, n_tokens) + head_row_bytes(engine) + 4;
    uint32_t n = (uint32_t)((len_bytes + block_bytes - 1) / block_bytes);
    uint32_t reserve = 2 * engine->opts.max_seqs;
    kv_block_id *blocks;

    if (kv_available(engine->pool) < n + reserve || kv_available_to(engine->pool, tenant) < n)
        return E_KV_FULL;
    blocks = calloc(n, sizeof(*blocks));
    if (blocks == NULL)
        return E_NOMEM;
    if (kv_take_for(engine->pool, tenant, n, blocks) < 0) {
        free(blocks);
        return E_KV_FULL;
    }
    *head = (struct head_kv){.n_tokens = n_tokens, .blocks = blocks, .n_blocks = n};
    return 0;
}

void worker_head_close(struct worker_engine *engine, struct head_kv *head)
{
    while (head->blocks != NULL && head->n_blocks > 0)
        kv_unref(engine->pool, head->blocks[--head->n_blocks]);
    free(head->blocks);
    *head = (struct head_kv){0};
}

static void head_pack_end(struct worker_engine *engine, const struct sched_head *from, struct head_kv *head)
{
    struct kv_arena arena = head_pool_arena(engine);
    size_t at = head_row_at(engine, head->n_tokens);
    bool is_whole = !head->is_lost && from->n_tokens == head->n_tokens && from->row != NULL;
    uint8_t first[4];

    put_u32(first, is_whole ? head->first : 0);
    if (is_whole)
        kv_state_write(&arena, head->blocks, at, head_row_bytes(engine), from->row);
    kv_state_write(&arena, head->blocks, at + head_row_bytes(engine), sizeof(first), first);
    head->is_packed = true;
}

uint32_t worker_head_pack(struct worker_engine *engine, struct seq *seq, struct head_kv *head, bool is_last)
{
    size_t own_bytes = kv_layout_block_bytes(head_own_layout(engine));
    struct kv_arena arena = head_pool_arena(engine);
    struct sched_head from = {0};
    uint32_t n;

    if (head->is_packed)
        return head->n_blocks;
    if (!sched_head(engine->sched, seq, &from) || from.first != head->first || from.n_tokens > head->n_tokens)
        head->is_lost = true;
    n = is_last ? head_own_blocks(engine, from.n_tokens)
                : from.n_tokens / head_own_layout(engine)->block_tokens;
    for (; !head->is_lost && head->n_packed < n; head->n_packed++)
        kv_state_write(&arena, head->blocks, head->n_packed * own_bytes, own_bytes,
                       head_own_block(engine, from.blocks[head->n_packed]));
    if (!is_last)
        return (uint32_t)(head->n_packed * own_bytes / kv_layout_block_bytes(arena.layout));
    head_pack_end(engine, &from, head);
    sched_head_departed(engine->sched, seq);
    return head->n_blocks;
}

bool worker_head_unpack(struct worker_engine *engine, struct seq *seq, const struct head_kv *head)
{
    size_t own_bytes = kv_layout_block_bytes(head_own_layout(engine));
    size_t at = head_row_at(engine, head->n_tokens);
    struct kv_arena arena = head_pool_arena(engine);
    struct sched_head to;
    uint8_t first[4];

    kv_state_read(&arena, head->blocks, at + head_row_bytes(engine), sizeof(first), first);
    if (seq_spec(seq)->n_tokens - head->n_tokens != get_u32(first) ||
        sched_head_arrive(engine->sched, seq, get_u32(first), &to) < 0)
        return false;
    for (uint32_t i = 0; i < head_own_blocks(engine, to.n_tokens); i++)
        kv_state_read(&arena, head->blocks, i * own_bytes, own_bytes, head_own_block(engine, to.blocks[i]));
    kv_state_read(&arena, head->blocks, at, head_row_bytes(engine), to.row);
    return true;
}
