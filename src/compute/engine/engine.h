/* SPDX-License-Identifier: Apache-2.0 */
/* An engine runs steps: for each sequence of a batch it feeds some tokens, writes their KV into the
 * sequence's blocks, and draws one token where asked.  It knows neither requests nor schedules nor peers.
 *
 * Two implementations: engine_cpu (the model for real) and engine_sim (deterministic tokens on a timing
 * model).
 *
 * The promise: what a sequence gets is bit for bit independent of the batch around it, of how its prompt was
 * cut into steps, of cached prefixes and of the number of threads.  Engine thread only. */
#ifndef COMPUTE_ENGINE_ENGINE_H
#define COMPUTE_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cache/kv/layout.h"
#include "compute/sample/sampler.h"
#include "compute/sample/state.h"

struct engine_item {           /* one sequence's part of a step; everything is borrowed for the step */
    const token_id *tokens;    /* the tokens to feed */
    uint32_t n_tokens;         /* >= 1 */
    uint32_t position;         /* of tokens[0] in its sequence; KV of all before is present */
    const kv_block_id *blocks; /* block table, covers position + n_tokens */
    uint32_t n_blocks;
    bool wants_token; /* draw one after the last fed token */
    /* With wants_token: the last so many of tokens, fewer than n_tokens, are guesses of what will be drawn.
     * One token is drawn after the last that is no guess, and while what is drawn equals the guess that comes
     * next, another after that.  KV of guesses that were wrong is rubbish, in its own place only. */
    uint32_t n_drafts;
    struct sample_opts sample;
    struct sample_state *state; /* of the tokens before the first one drawn; as it was when the step ends;
                                   NULL: none.  Guesses that the answer's shape forbids are wrong ones. */
    uint32_t tokens_left;       /* for the shape: that may still be drawn */
    /* Not NULL: how likely tokens[score_at + 1 ...] were, n_scores of them, with sample.n_top likeliest ones,
     * goes there.  The last may be the one behind those fed, unless a token is drawn there. */
    struct sample_result *scores;
    uint32_t score_at, n_scores;
    uint64_t tag; /* the caller's, for logs; tokens and KV never depend on it */
};

struct engine_batch {
    const struct engine_item *items;
    uint32_t n_items;
    /* Called after the KV of a layer is written for all items (not NULL: someone ships layers).  Must not
     * block. */
    void (*on_layer)(void *arg, uint32_t layer);
    void *on_layer_arg;
    /* When another thread makes it true, the step ends between two layers with E_CANCELLED, a failed step
     * like any other; NULL: nobody does. */
    const atomic_bool *is_given_up;
};

struct engine_info {
    const char *name; /* "cpu avx512", "sim" */
    uint32_t vocab_size;
    uint32_t context_length;
    uint32_t max_batch_tokens; /* most tokens one step may feed, all items together */
    uint32_t max_draws;        /* most tokens one step may draw, guesses counted as if they were right */
    struct kv_layout layout;
    uint64_t numerics_id; /* two engines with the same id compute the same bits */
};

struct engine_ops {
    /* results_out: 1 + n_drafts entries for each item, in order; those of items that did not ask, those
     * behind the first that differs from its guess, and one where the shape allows no token, hold TOKEN_NONE.
     * So does one whose logits are not finite, with is_spoilt; scores say it likewise.
     * E_INTERNAL: the KV found there or the engine itself is damaged.  After a failed step KV from each
     * item's position on is undefined. */
    int (*step)(void *engine, const struct engine_batch *batch, struct sample_result *results_out);
    /* Logits of the last fed token of item `index` of the step just run, [vocab_size], valid until the next
     * step; NULL where the engine has none. */
    const float *(*logits)(void *engine, uint32_t index);
    void (*free)(void *engine);
};

struct engine { /* by value: a handle */
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
