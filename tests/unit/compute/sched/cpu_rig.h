/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler over real forward passes of tiny models, for the kinds of state that a sequence has beside full attention
 * blocks (test_recurrent, test_windows). */
#ifndef TESTS_UNIT_COMPUTE_SCHED_CPU_RIG_H
#define TESTS_UNIT_COMPUTE_SCHED_CPU_RIG_H

#include "base/rng.h"
#include "compute/engine/engine.h"
#include "compute/model/model.h"
#include "compute/sched/sched.h"

enum { BLOCK_TOKENS = 16, CONTEXT = 512, MOST_TOKENS = 400, MOST_ANSWER = 80, VOCAB = 300 };

struct answer {
    struct sample_result tokens[MOST_ANSWER];
    uint32_t n;
    struct seq_stats stats;
    enum seq_finish finish;
};

struct cpu_rig { /* a worker's engine, pool and scheduler */
    struct engine engine;
    struct kv_pool *pool;
    struct sched *sched;
    uint8_t *arena;
    uint32_t n_blocks, chunk_tokens;
    struct seq *held, *arriving;
};

struct cpu_world {
    struct model *model;
    struct model *whole; /* the same weights for the expected answers; may be model itself */
    uint32_t n_blocks;   /* of the pools */
    uint32_t max_seqs;   /* of the schedulers; 0: 4 */
    struct team *team;
    struct rng rng;
};

extern struct cpu_world cpu_world;

/* Opens an engine, a pool of n_blocks and a scheduler for a model.  The pool's memory is NaN. */
void cpu_rig_open_for(struct cpu_rig *rig, struct model *model, uint32_t n_blocks, uint32_t chunk_tokens);
/* The same for cpu_world.model. */
void cpu_rig_open(struct cpu_rig *rig, uint32_t n_blocks, uint32_t chunk_tokens);
/* Also checks that no block was lost. */
void cpu_rig_close(struct cpu_rig *rig);
/* Returns a spec for n_new tokens, and clears the answer that its events will fill. */
struct seq_spec cpu_rig_spec(const token_id *tokens, uint32_t n, uint32_t n_new, struct answer *answer);
/* Runs steps until the sequence and all others have ended. */
void cpu_rig_run(struct cpu_rig *rig, const struct seq_spec *spec);
/* cpu_rig_spec() and cpu_rig_run(). */
void cpu_rig_complete(struct cpu_rig *rig, const token_id *tokens, uint32_t n, uint32_t n_new,
                      struct answer *answer);
/* Compares the answer, token by token, with that of cpu_world.whole, alone in an empty pool. */
void cpu_rig_expect_same(const struct answer *got, const token_id *tokens, uint32_t n, uint32_t n_new);
/* Fills tokens [from, to) at random. */
void cpu_rig_draw(token_id *tokens, uint32_t from, uint32_t to);
/* Cases for every model.  A conversation: each turn continues the previous one and its answer. */
void cpu_rig_check_turns(void);
/* The same prompt again, with every length near a block's end. */
void cpu_rig_check_again(void);

#endif
