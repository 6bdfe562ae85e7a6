/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence: its tokens, its block table, and the progress of its KV.
 *
 *     tokens   | given (prompt, answered before) ... | sampled here ... |
 *     blocks   | matched | sealed here ...      | filling |
 *              0                       n_computed ^     ^ n_tokens
 *
 * While decoding, n_computed is n_tokens - 1: the last sampled token has no KV yet, and the next step
 * feeds it.
 *
 * During a step, draft tokens (draft.c) follow n_tokens in the buffer. Their KV may make the block table
 * one or two blocks longer than the tokens need. These spare blocks are FILLING and are the first to go
 * when blocks run short.
 *
 * All memory is allocated on submit, for the longest sequence possible. So a running sequence never fails
 * for lack of memory. Pages that are never reached are never touched.
 *
 * When the whole prompt is cached, the sequence takes one block fewer from the cache. Its last token must
 * be fed to get logits, feeding writes KV, and a sealed block is never written. So the last block is
 * computed again in a new block, which the pool makes a duplicate of the cached one.
 *
 * Blocks are returned last one first, so that the cache evicts the end of a conversation before its
 * beginning. For the same reason a block that other workers also have is evicted early only if they also
 * have the blocks after it: a tail is useless without its beginning. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_writeback.h"
#include "compute/sched/sched_priv.h"

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t sched_blocks_for(const struct sched *sched, uint32_t n_tokens)
{
    return n_tokens / sched->block_tokens + (n_tokens % sched->block_tokens != 0);
}

static int spec_check(const struct sched *sched, const struct seq_spec *spec)
{
    if (spec->n_tokens == 0 || spec->n_prompt > spec->n_tokens || (spec->arrives && spec->departs) ||
        spec->n_hashes > spec->n_tokens / sched->block_tokens)
        return E_INVAL;
    if (spec->work.score_from > 0 &&
        (spec->work.score_from > spec->n_prompt || spec->arrives || spec->departs))
        return E_INVAL;
    if (spec->work.wants_embedding && (spec->work.max_new_tokens != 1 || spec->arrives || spec->departs))
        return E_INVAL;
    if (spec->n_tokens > sched->context_tokens ||
        (spec->n_tokens == sched->context_tokens && spec->work.max_new_tokens > 0))
        return E_LIMIT;
    for (uint32_t i = 0; i < spec->n_tokens; i++) {
        if (spec->tokens[i] >= sched->opts.engine->info.vocab_size)
            return E_INVAL;
    }
    return 0;
}

/* Makes the sampling state.  The answer so far counts as sampled, whichever worker sampled it. */
static int make_state(const struct sched *sched, const struct seq_spec *spec, struct seq *seq)
{
    struct sample_opts sample = spec->work.sample;
    uint64_t cap_tokens = seq->cap_tokens;
    int rc;

    if (sched->draft_model.engine != NULL) /* its draft tokens add entries, even if they are rejected */
        cap_tokens *= 1 + sched->opts.max_drafts;
    if (cap_tokens > UINT32_MAX)
        cap_tokens = UINT32_MAX;
    sample.stop_ids = spec->stop_ids;
    sample.n_stop_ids = spec->n_stop_ids;
    rc = sample_state_new(&sample, spec->grammar, sched->opts.engine->info.vocab_size, (uint32_t)cap_tokens,
                          &seq->past);

    if (rc < 0)
        return rc;
    sample_state_prompt(seq->past, seq->tokens, spec->n_prompt);
    for (uint32_t i = spec->n_prompt; rc == 0 && i < spec->n_tokens; i++)
        rc = sample_state_push(seq->past, seq->tokens[i]);
    sample_state_commit(seq->past);
    seq->spec.work.sample.bias = NULL; /* the sampling state has its own copy */
    seq->spec.work.sample.n_bias = 0;
    seq->spec.grammar = NULL;
    return rc == E_INVAL ? E_CONSTRAINT : rc;
}

/* Copies the hashes that the caller has, and computes the others. */
static void seq_hash(const struct sched *sched, struct seq *seq)
{
    struct seq_spec *spec = &seq->spec;
    const struct prefix_roots roots = {
        .own = spec->prefix_key, .open = spec->public_key, .n_public = spec->work.public_tokens};
    struct prefix_chain chain = {.tokens = seq->tokens,
                                 .block_tokens = sched->block_tokens,
                                 .hashes = seq->hashes,
                                 .n = spec->n_hashes};

    if (spec->n_hashes > 0)
        memcpy(seq->hashes, spec->hashes, spec->n_hashes * sizeof(*seq->hashes));
    prefix_roots_extend(&roots, &chain, spec->n_tokens / sched->block_tokens);
    seq->n_hashes = (uint32_t)chain.n;
    spec->hashes = NULL; /* the array belongs to the caller */
    spec->n_hashes = 0;
}

int seq_new(struct sched *sched, const struct seq_spec *spec, struct seq **out)
{
    int code = spec_check(sched, spec);

    if (code < 0)
        return code;

    struct seq *seq = calloc(1, sizeof(*seq));
    if (seq == NULL)
        return E_NOMEM;
    list_init(&seq->in_running);
    fair_item_init(&seq->turn);
    list_init(&seq->in_all);
    seq->spec = *spec;
    seq->n_submitted_tokens = spec->n_tokens;
    seq->n_left = spec->work.max_new_tokens;
    seq->score_next = spec->work.score_from;
    seq->cap_tokens =
        spec->n_tokens + min_u32(spec->work.max_new_tokens, sched->context_tokens - spec->n_tokens);

    uint32_t cap_blocks = sched_blocks_for(sched, seq->cap_tokens);
    seq->tokens = malloc(seq->cap_tokens * sizeof(*seq->tokens));
    seq->blocks = malloc(cap_blocks * sizeof(*seq->blocks));
    seq->hashes = malloc(cap_blocks * sizeof(*seq->hashes));
    if (spec->work.wants_embedding)
        seq->embedding = calloc(sched->opts.engine->info.hidden, sizeof(*seq->embedding));
    seq->flow = fair_hold(sched->fair, spec->tenant);
    if ((spec->work.wants_embedding && seq->embedding == NULL) || seq->tokens == NULL ||
        seq->blocks == NULL || seq->hashes == NULL || seq->flow == NULL || draft_init(sched, seq) < 0 ||
        recurrent_init(sched, seq) < 0 || windows_init(sched, seq) < 0) {
        seq_free(sched, seq);
        return E_NOMEM;
    }
    memcpy(seq->tokens, spec->tokens, spec->n_tokens * sizeof(*seq->tokens));
    seq->spec.tokens = seq->tokens;
    code = make_state(sched, spec, seq);
    if (code < 0) {
        seq_free(sched, seq);
        return code;
    }
    seq_hash(sched, seq);
    *out = seq;
    return 0;
}

void seq_free(struct sched *sched, struct seq *seq)
{
    queue_got(sched, seq);
    fair_drop(sched->fair, seq->flow);
    draft_kv_give_back(sched, seq);
    draft_fini(seq);
    recurrent_fini(seq);
    windows_fini(seq);
    sample_state_free(seq->past);
    free(seq->embedding);
    free(seq->hashes);
    free(seq->blocks);
    free(seq->tokens);
    free(seq);
}

/* ---- sampled tokens ---- */

bool seq_is_stop(const struct seq *seq, token_id id)
{
    for (uint32_t i = 0; i < seq->spec.n_stop_ids; i++) {
        if (seq->spec.stop_ids[i] == id)
            return true;
    }
    return false;
}

bool seq_may_draw(struct seq *seq, token_id id)
{
    if (seq_is_stop(seq, id))
        return sample_state_is_complete(seq->past) &&
               (sample_state_has_grammar(seq->past) || !sample_state_bars_stops(seq->past));
    if (sample_state_push(seq->past, id) < 0)
        return false;
    sample_state_pop(seq->past, &id, 1);
    return true;
}

/* ---- blocks ---- */

uint32_t seq_n_matchable(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_most = seq->spec.n_tokens - 1;

    if (seq->score_next > 0 && seq->score_next < seq->spec.n_prompt)
        n_most = seq->score_next - 1; /* its logits give the first logprob */
    return min_u32(seq->n_hashes, n_most / sched->block_tokens);
}

void seq_pin(struct sched *sched, struct seq *seq, kv_block_id id, uint32_t end)
{
    uint64_t end_tokens = (uint64_t)end * sched->block_tokens;

    for (unsigned pin = WORK_N_PINS; pin-- > 0;) {
        if (end_tokens > seq->spec.work.pin_tokens[pin])
            continue;
        kv_pin(sched->opts.pool, id, seq->submitted_ns + work_pin_ns(pin));
        return;
    }
}

/* Counts tokens [from, to) as found in the cache. */
static void count_found(struct seq *seq, uint32_t from, uint32_t to)
{
    uint32_t begin = seq->spec.fetched_from > from ? seq->spec.fetched_from : from;
    uint32_t end = min_u32(seq->spec.fetched_to, to);
    uint32_t n_fetched = end > begin ? end - begin : 0;

    seq->stats.n_transferred += n_fetched;
    seq->stats.n_reused += to - from - n_fetched;
}

/* Takes at most n_most leading blocks from the cache.  Errors are those of seq_take_blocks(). */
static int seq_take_with(struct sched *sched, struct seq *seq, uint32_t n_spare, uint32_t n_most)
{
    struct kv_pool *pool = sched->opts.pool;
    uint32_t n_total = sched_blocks_for(sched, seq->spec.n_tokens);

    /* First a check without side effects, because the head of the queue gets here before every step. */
    uint32_t n_state = sched->n_state_blocks, n_hit = recurrent_peek(sched, seq, n_most);
    uint32_t n_missing = n_total - n_hit + n_state + windows_wanted(sched, seq, n_hit);
    if (n_missing + n_spare > kv_available(pool))
        return E_KV_FULL;
    if (n_missing > queue_room(sched, seq))
        return E_OVERLOADED;

    bool has_more = n_state > 0 || sched->windows.n_groups > 0; /* of a prefix than its full blocks */
    seq->recurrent.fork = seq->windows.fork = has_more ? kv_peek(pool, seq->hashes, n_most) : 0;
    seq->n_blocks = kv_match(pool, seq->hashes, has_more ? n_hit : n_most, seq->blocks);
    uint32_t n_fresh = n_total - seq->n_blocks;
    uint32_t n_beside = n_state + windows_wanted(sched, seq, seq->n_blocks);
    bool is_found = windows_match(sched, seq, seq->n_blocks) == 0; /* now counted as taken */
    bool is_modest = n_fresh + n_beside <= queue_room(sched, seq);
    if (!is_found || !is_modest || n_fresh + n_beside + n_spare > kv_available(pool) ||
        recurrent_match(sched, seq, seq->n_blocks) < 0 || windows_take(sched, seq, seq->n_blocks) < 0 ||
        kv_take_for(pool, seq->spec.tenant, n_fresh, seq->blocks + seq->n_blocks) < 0) {
        seq_give_back(sched, seq);
        return is_modest ? E_KV_FULL : E_OVERLOADED;
    }
    kv_note_match(pool, seq->hashes, seq->n_blocks, seq->n_hashes);
    seq->n_matched = seq->n_sealed = seq->n_blocks;
    seq->n_blocks = n_total;
    for (uint32_t block = 0; block < seq->n_matched; block++)
        seq_pin(sched, seq, seq->blocks[block], block + 1);
    seq->n_computed = seq->n_matched * sched->block_tokens;
    if (seq->n_computed > seq->n_reached) {
        count_found(seq, seq->n_reached, seq->n_computed);
        seq->n_reached = seq->n_computed;
    }
    return 0;
}

int seq_take_blocks(struct sched *sched, struct seq *seq, uint32_t n_spare)
{
    bool has_more = sched->n_state_blocks > 0 || sched->windows.n_groups > 0;
    int code = seq_take_with(sched, seq, n_spare, seq_n_matchable(sched, seq));

    /* A cached prefix needs further blocks: the state or the window at its end.  If the pool has too few, the
     * sequence does without the prefix: no other sequence will return blocks, so it would wait for ever. */
    if (code < 0 && has_more && sched->n_running == 0)
        code = seq_take_with(sched, seq, n_spare, 0);
    return code;
}

int seq_grow(struct sched *sched, struct seq *seq)
{
    int code = kv_available(sched->opts.pool) > sched->windows.n_groups ? 0 : E_KV_FULL;

    if (code == 0)
        code = kv_take_for(sched->opts.pool, seq->spec.tenant, 1, &seq->blocks[seq->n_blocks]);
    if (code < 0)
        return code;
    seq->n_blocks++;
    code = windows_grow(sched, seq);
    if (code < 0)
        kv_unref(sched->opts.pool, seq->blocks[--seq->n_blocks]);
    return code;
}

void seq_shrink(struct sched *sched, struct seq *seq)
{
    kv_unref(sched->opts.pool, seq->blocks[--seq->n_blocks]);
    windows_shrink(sched, seq);
}

void seq_give_back(struct sched *sched, struct seq *seq)
{
    bool is_last_replica = false;

    while (seq->n_blocks > 0) {
        kv_block_id id = seq->blocks[--seq->n_blocks];

        is_last_replica |= seq->n_blocks < seq->n_sealed && !kv_is_replicated(sched->opts.pool, id);
        if (is_last_replica)
            kv_set_replicated(sched->opts.pool, id, false);
        kv_unref(sched->opts.pool, id);
    }
    recurrent_give_back(sched, seq); /* after the blocks, so that a state is evicted after its last block */
    windows_give_back(sched, seq);
    seq->n_matched = seq->n_sealed = seq->n_computed = 0;
}

/* Seals full blocks. Without memory for a hash, the chain stays as it is and the next step tries again. */
void seq_seal(struct sched *sched, struct seq *seq)
{
    uint32_t n_full = seq->spec.leaves_nothing ? 0 : seq->n_computed / sched->block_tokens;

    for (; seq->n_sealed < n_full; seq->n_sealed++) {
        uint32_t block = seq->n_sealed;

        if (block == seq->n_hashes) {
            const struct block_hash *parent = block ? &seq->hashes[block - 1] : NULL;
            bool is_public = (block + 1) * sched->block_tokens <= seq->spec.work.public_tokens;

            if (prefix_hash_block(is_public ? &seq->spec.public_key : &seq->spec.prefix_key, parent,
                                  seq->tokens + block * sched->block_tokens, sched->block_tokens,
                                  &seq->hashes[block]) < 0)
                break;
            seq->n_hashes++;
        }
        kv_seal(sched->opts.pool, seq->blocks[block], &seq->hashes[block]);
        kv_note_block(sched->opts.pool, seq->hashes, block);
        seq_pin(sched, seq, seq->blocks[block], block + 1);
        windows_seal(sched, seq, block);
    }
    windows_slide(sched, seq);
}

void seq_advance(struct seq *seq, uint32_t to)
{
    uint32_t again = min_u32(seq->n_reached, to);

    if (again > seq->n_computed)
        seq->stats.n_recomputed += again - seq->n_computed;
    if (to > seq->n_reached) {
        if (seq->n_reached < seq->n_submitted_tokens)
            seq->stats.n_computed += min_u32(to, seq->n_submitted_tokens) - seq->n_reached;
        seq->n_reached = to;
    }
    seq->n_computed = to;
}

/* ---- queries ---- */

const kv_block_id *seq_blocks(const struct seq *seq, uint32_t *n_out, uint32_t *n_reused_out)
{
    if (n_out)
        *n_out = seq->n_blocks;
    if (n_reused_out)
        *n_reused_out = seq->n_matched;
    return seq->blocks;
}

const kv_block_id *seq_state_blocks(const struct sched *sched, const struct seq *seq, uint32_t *n_out)
{
    *n_out = sched->n_state_blocks;
    return seq->recurrent.own;
}

enum seq_state seq_state(const struct seq *seq)
{
    return seq->state;
}

const struct seq_spec *seq_spec(const struct seq *seq)
{
    return &seq->spec;
}

const struct seq_stats *seq_stats(const struct seq *seq)
{
    return &seq->stats;
}

uint32_t seq_n_computed(const struct seq *seq)
{
    return seq->n_computed;
}

const float *seq_embedding(const struct seq *seq)
{
    return seq->embedding;
}
