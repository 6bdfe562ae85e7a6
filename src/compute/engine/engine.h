/* SPDX-License-Identifier: Apache-2.0 */
/* An engine runs steps. For each sequence of a batch it feeds tokens, writes their KV into the sequence's
 * blocks, and samples tokens where asked. It knows no requests, no scheduling and no peers.
 *
 * Two implementations: engine_cpu (the real model) and engine_sim (deterministic tokens and a timing
 * model).
 *
 * The promise: a sequence's tokens and KV are bit for bit independent of its batch neighbours, of how its
 * prompt was cut into steps, of cached prefixes and of the number of threads. Engine thread only. */
#ifndef COMPUTE_ENGINE_ENGINE_H
#define COMPUTE_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cache/kv/state.h"
#include "compute/sample/sampler.h"
#include "compute/sample/state.h"

struct engine_item {           /* one sequence's part of a step; all pointers are borrowed for the step */
    const token_id *tokens;    /* the tokens to feed */
    uint32_t n_tokens;         /* >= 1 */
    const float *hidden;       /* with info.is_mtp: [n_tokens][info.hidden], the row before each token */
    uint32_t position;         /* position of tokens[0] in its sequence; KV of all tokens before is present */
    const kv_block_id *blocks; /* block table, covers position + n_tokens */
    uint32_t n_blocks;
    /* Only with layout.n_window_layers: the block tables of the groups (cache/kv/window.h), window_stride
     * entries each, from block kv_window_first(position) on; earlier entries are not read. */
    const kv_block_id *windows;
    uint32_t window_stride;
    /* Only with layout.state_bytes: the blocks of the state before tokens[0] (NULL at position 0), then the
     * places where the step writes the state, in order.  The last cut may write the blocks of `recurrent`
     * itself. */
    const kv_block_id *recurrent;
    const struct kv_state_cut *cuts;
    uint32_t n_cuts;
    bool wants_token; /* sample a token after the last fed one */
    /* With wants_token: the last n_drafts of tokens are draft tokens, fewer than n_tokens. Sample after
     * the last non-draft token; continue while samples match the drafts. KV of rejected draft tokens is
     * garbage, at their own positions only. */
    uint32_t n_drafts;
    struct sample_opts sample;
    struct sample_state *state; /* sampling state before the first sampled token; unchanged by the step; NULL:
                                   none. Draft tokens that the grammar forbids are rejected. */
    uint32_t sampled_after;     /* tokens of the text before position 0, for the random numbers; usually 0 */
    uint32_t tokens_left;       /* for the grammar: tokens that may still be sampled */
    /* Not NULL: receives the logprobs of tokens[score_at + 1 ...], n_scores of them, each with the
     * sample.n_top likeliest tokens. The last one may be the token after the fed ones, unless a token is
     * sampled there. */
    struct sample_result *scores;
    uint32_t score_at, n_scores;
    /* With wants_token, not NULL: receives the embedding of the tokens so far, [info.hidden], not
     * normalised. */
    float *embedding;
    /* With ops->hidden, not NULL: receives the row of each fed token after which nothing is sampled, as ops->hidden gives
     * them for the others: [n_tokens - sampled ones][info.hidden]. */
    float *rows;
    uint64_t
        tag; /* the caller's tag of the sequence, for logs and checks; 0: none.  Tokens and KV never depend on it */
};

struct engine_batch {
    const struct engine_item *items;
    uint32_t n_items;
    /* Called after the KV of a layer is written for all items;
     * NULL: no caller sends layers. Must not block. */
    void (*on_layer)(void *arg, uint32_t layer);
    void *on_layer_arg;
    /* When another thread sets it, the step ends between two layers with E_CANCELLED, like any failed
     * step. NULL: never. */
    const atomic_bool *is_given_up;
};

struct engine_info {
    const char *name; /* "cpu avx512", "sim" */
    uint32_t vocab_size;
    uint32_t context_length;
    uint32_t max_batch_tokens; /* most tokens that one step may feed, over all items */
    uint32_t max_draws;        /* most tokens that one step may sample, all draft tokens counted */
    uint32_t hidden;           /* width of a row: an embedding, or a row of ops->hidden */
    bool is_mtp;               /* an MTP head: items have hidden */
    struct kv_layout layout;
    uint64_t numerics_id; /* engines with equal ids compute equal bits */
};

struct engine_ops {
    /* results_out: 1 + n_drafts entries for each item, in order. TOKEN_NONE marks entries without a token:
     * the item asked for none; an earlier entry differs from its draft token; the grammar allows no token;
     * the logits are not finite (then is_spoilt is set, also in scores). E_INTERNAL: the stored KV or the
     * engine is damaged. After a failed step, KV from each item's position on is undefined. */
    int (*step)(void *engine, const struct engine_batch *batch, struct sample_result *results_out);
    /* Logits of the last fed token of item `index` of the latest step, [vocab_size]. Valid until the next
     * step; NULL if the engine has none. */
    const float *(*logits)(void *engine, uint32_t index);
    /* NULL: the engine has none.  The row from which item `index` of the latest step sampled its token n_drafts - back. An
     * MTP head reads it. Valid as logits. */
    const float *(*hidden)(void *engine, uint32_t index, uint32_t back);
    void (*free)(void *engine);
};

struct engine { /* a handle, passed by value */
    const struct engine_ops *ops;
    void *self;
    struct engine_info info;
};

static inline int engine_step(struct engine *engine, const struct engine_batch *batch,
                              struct sample_result *results_out)
{
    return engine->ops->step(engine->self, batch, results_out);
}

static inline void engine_free(struct engine *engine)
{
    if (engine->ops)
        engine->ops->free(engine->self);
    engine->ops = 0;
}

#endif
