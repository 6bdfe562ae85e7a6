/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of exactness: one model and a few sequences, whose logits must have the same bits however they are
 * computed.
 *
 * Every sequence is first computed alone, one token at a time, on one thread, in blocks that lie in order.
 * That gives the expected logits after each of its tokens.  Then the same sequences are computed together
 * many times, with random choices:
 *
 *     which sequences are in a step     any subset, in any order
 *     how much each feeds               1, 7, 64, 512 tokens or all that is left
 *     places of its blocks              any permutation, and moved to other blocks between steps
 *     what the cache has                nothing, or the first blocks of another sequence with the same prefix
 *     where recurrent state is written  after each block, or at the end of the chunk alone; in place, or elsewhere
 *     content of unused memory          NaN
 *     how many threads                  1 to 4, which share all work or only large parts
 *
 * After each chunk memcmp compares the logits with the expected ones. */
#ifndef ENGINE_TRIAL_H
#define ENGINE_TRIAL_H

#include "base/rng.h"
#include "compute/engine/engine_cpu.h"
#include "tests/unit/compute/model/tiny.h"

enum {
    TRIAL_SEQUENCES = 3,
    TRIAL_MAX_TOKENS = 600,
    TRIAL_MAX_TABLE = 40,
    TRIAL_MAX_STATE = 72, /* blocks of a recurrent state */
    TRIAL_MAX_CUTS = 3,
    TRIAL_MAX_THREADS = 4,
    TRIAL_ARENA_BLOCKS = 768
};

struct trial_sequence {
    token_id tokens[TRIAL_MAX_TOKENS];
    uint32_t n_tokens;
    float *expected; /* [n_tokens][vocab] */
    /* Belongs to one trial. */
    kv_block_id blocks[TRIAL_MAX_TABLE];
    uint32_t n_blocks;
    kv_block_id state[TRIAL_MAX_STATE]; /* its place, once a token was fed */
    bool owns_state;                    /* it may be written again */
    uint32_t fed;
};

struct trial_bench { /* one model, and an engine over an arena */
    struct model *model;
    struct team *teams[TRIAL_MAX_THREADS]; /* teams of 1, 2, 3 and 4 ranks; the last two on two nodes */
    const struct kv_layout *layout;
    uint32_t vocab;
    uint8_t *arena;
    bool is_used[TRIAL_ARENA_BLOCKS];
    struct trial_sequence sequences[TRIAL_SEQUENCES];
    uint32_t prefix_tokens;                /* tokens that all sequences begin with: whole blocks */
    uint32_t n_state;                      /* blocks of a recurrent state */
    kv_block_id snapshot[TRIAL_MAX_STATE]; /* the state after prefix_tokens of the first sequence */
    bool has_snapshot;
    uint32_t n_shared; /* blocks of the first sequence that others use in this trial */
    uint32_t n_trials;
    uint64_t numerics_id; /* of the latest model ... */
    enum bf16_math bf16;  /* ... and how it multiplied BF16 matrices */
    struct rng rng;
};

/* Makes the teams.  trial_model makes everything else for each model. */
void trial_init(struct trial_bench *b);
void trial_fini(struct trial_bench *b);
/* Computes the expected logits, runs n_trials trials and returns a digest of the expected logits.  longest:
 * length of the longest sequence, at most TRIAL_MAX_TOKENS. */
uint64_t trial_model(struct trial_bench *b, const struct tiny_shape *shape, uint32_t longest,
                     const struct model_opts *opts);

#endif
