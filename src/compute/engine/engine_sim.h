/* SPDX-License-Identifier: Apache-2.0 */
/* An engine without arithmetic: tokens are a hash of (seed, position, previous token), time is a model.  For
 * routers, planners and load tests.  It writes a pattern derived from the tokens into each layer's KV and
 * checks all it finds there, so that a hand-off that lost or mixed bytes is caught: the step then returns
 * E_INTERNAL and logs where. */
#ifndef COMPUTE_ENGINE_ENGINE_SIM_H
#define COMPUTE_ENGINE_ENGINE_SIM_H

#include "compute/engine/engine.h"

struct engine_sim_opts {
    uint32_t vocab_size;
    uint32_t first_text_id; /* ids below are never drawn (control tokens) */
    token_id stop_id; /* drawn when an answer of mean_answer_tokens (geometric) ends; TOKEN_NONE: never */
    uint32_t mean_answer_tokens;
    uint32_t echo; /* percent of tokens that are what followed the same token before; 0: no text repeats */
    uint32_t context_length;
    uint32_t max_batch_tokens;
    struct kv_layout layout; /* with an arena: k_dim = v_dim, rows of at least 16 bytes */
    void *kv_arena;          /* borrowed; NULL: no KV is written or checked */
    uint32_t n_blocks;
    /* A step costs step_ns + prefill tokens x prefill_token_ns + decoding rows (sequences and their guesses)
     * x decode_seq_ns, slept, not burnt, evenly over the layers. */
    uint64_t step_ns;
    uint64_t prefill_token_ns;
    uint64_t decode_seq_ns;
    void (*sleep_ns)(void *arg, uint64_t ns); /* NULL: the real clock; simulators advance their own */
    void *sleep_arg;
};

/* E_INVAL, E_NOMEM.  A step allocates nothing. */
int engine_sim_new(const struct engine_sim_opts *opts, struct engine *out);

/* For tests: whether the KV of tokens[0..n_tokens) in these blocks is, byte for byte, what this engine writes
 * for exactly these tokens.  A step cannot know that: it sees only the tokens it is fed.  0, E_INTERNAL
 * (logged), or E_UNSUPPORTED without an arena. */
int engine_sim_verify(const struct engine *engine, const token_id *tokens, uint32_t n_tokens,
                      const kv_block_id *blocks);

#endif
