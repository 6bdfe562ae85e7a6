/* SPDX-License-Identifier: Apache-2.0 */
/* An engine without arithmetic, for routers, planners and load tests. Tokens are a hash of (seed,
 * position, previous token); step times follow a model. It writes a pattern derived from the tokens into
 * each layer's KV and checks the KV that it reads: all of it when a sequence begins here or its blocks change, later
 * its last block and a part of the others that rotates. So it catches a transfer that lost or mixed bytes: the
 * step returns E_INTERNAL and logs the place. */
#ifndef COMPUTE_ENGINE_ENGINE_SIM_H
#define COMPUTE_ENGINE_ENGINE_SIM_H

#include "compute/engine/engine.h"

struct engine_sim_opts {
    uint32_t vocab_size;
    uint32_t first_text_id; /* ids below are never sampled (control tokens) */
    token_id stop_id; /* sampled when an answer ends (geometric length, mean mean_answer_tokens); TOKEN_NONE:
                         never */
    const token_id
        *other_stop_ids; /* borrowed; also end an answer, so they are never sampled unless the grammar
                                     * forces them */
    uint32_t n_other_stop_ids;
    uint32_t mean_answer_tokens;
    uint32_t echo; /* percent of tokens that repeat what followed the same token before; 0: no repetition */
    uint32_t context_length;
    uint32_t max_batch_tokens;
    struct kv_layout layout; /* with an arena: k_dim = v_dim, rows of at least 16 bytes */
    void *kv_arena;          /* borrowed; NULL: KV is neither written nor checked */
    uint32_t n_blocks;
    /* A step takes step_ns + prefill tokens x prefill_token_ns + decode rows x decode_seq_ns. Decode rows
     * are decoding sequences and their draft tokens. The engine sleeps this time, spread evenly over the
     * layers. */
    uint64_t step_ns;
    uint64_t prefill_token_ns;
    uint64_t decode_seq_ns;
    void (*sleep_ns)(void *arg, uint64_t ns); /* NULL: the real clock; simulators advance their own */
    void *sleep_arg;
};

/* E_INVAL, E_NOMEM. A step allocates nothing. */
int engine_sim_new(const struct engine_sim_opts *opts, struct engine *out);

/* For tests: checks that the KV of tokens[0..n_tokens) in these blocks is, byte for byte, the KV that this
 * engine writes for these tokens. A step cannot check this, because it sees only the tokens that it feeds.
 * Returns 0, E_INTERNAL (logged), or E_UNSUPPORTED without an arena. */
int engine_sim_verify(const struct engine *engine, const token_id *tokens, uint32_t n_tokens,
                      const kv_block_id *blocks);

#endif
