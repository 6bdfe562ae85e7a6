/* SPDX-License-Identifier: Apache-2.0 */
/* A small worker for tests of the scheduler: pool, arena, simulated engine, scheduler, fake clock.
 *
 * A wrapper around the engine checks the scheduler's promises before each step: only FILLING blocks are
 * written, none by two items, and limits are kept.  After each event the sequence's KV is compared byte for
 * byte with the KV of its tokens. */
#ifndef TESTS_SCHED_RIG_H
#define TESTS_SCHED_RIG_H

#include "base/rng.h"
#include "compute/engine/engine_sim.h"
#include "compute/sched/sched.h"

#define RIG_BLOCK_TOKENS 4
#define RIG_VOCAB        500
#define RIG_STOP_ID      3
#define RIG_ANSWER_MAX   256
#define RIG_STEPS_MAX    4096

struct rig_opts {
    uint32_t n_blocks;           /* 0: 64 */
    uint32_t max_seqs;           /* 0: 4 */
    uint32_t max_queue;          /* 0: 16 */
    uint32_t chunk_tokens;       /* 0: 8 */
    uint32_t max_batch_tokens;   /* 0: 16 */
    uint32_t context_length;     /* 0: 200 */
    uint32_t mean_answer_tokens; /* 0: answers never stop by themselves */
    uint64_t lifetime_ns;        /* 0: the default */
    enum sched_speculate speculate;
    uint32_t max_drafts;         /* 0: 8 */
    struct engine *draft_engine; /* NULL: no draft model */
    uint32_t draft_blocks;
    uint64_t itl_ns, max_step_ns;
    const atomic_bool *is_given_up;
    uint64_t step_ns, decode_seq_ns, prefill_token_ns; /* 0: 1 ms, 200 us, 100 us */
};

struct rig_batch { /* counts of one step */
    uint32_t n_decode, n_prefill, n_prefill_tokens, n_drafts;
};

struct track { /* a test's view of a sequence; stored in spec.user */
    struct rig *rig;
    struct seq *seq; /* NULL before submit and once done */
    token_id answer[RIG_ANSWER_MAX];
    struct sample_result draws[RIG_ANSWER_MAX]; /* the samples */
    uint32_t n_answer;
    uint32_t n_admitted, n_held, n_prefilled_to;
    bool is_done;
    enum seq_finish finish;
    struct seq_stats stats;                               /* at the end */
    void (*hook)(struct track *track, const char *event); /* called after the rig's own checks; NULL: none */
    void *arg;
};

struct rig {
    struct rig_opts opts;
    struct engine sim, engine;
    struct kv_pool *pool;
    struct sched *sched;
    uint8_t *arena;
    struct rig_batch batches[RIG_STEPS_MAX];
    uint32_t n_steps;
    uint32_t n_layers_seen;
    int fail_with;        /* the next step fails with this code */
    uint32_t spoil_after; /* spoils the result after that many draft tokens of an item; 0: none */
    void (*on_layer)(struct rig *rig, uint32_t layer);
    void *arg;
};

extern uint64_t rig_now_ns; /* the clock of all rigs */
extern uint32_t rig_jitter; /* percent by which a step may take longer or shorter than the model says */
extern uint32_t rig_echo;   /* percent of all rigs' text that repeats itself; see engine_sim.h */

void rig_open(struct rig *rig, const struct rig_opts *opts);
void rig_close(struct rig *rig); /* also checks that no block is lost */

/* Returns a spec over tokens with useful defaults: greedy, stop id, tenant 0. */
struct seq_spec rig_spec(const token_id *tokens, uint32_t n_tokens, uint32_t max_new_tokens, uint64_t seed);
/* Submits; track is zeroed first except for hook and arg.  Returns sched_submit's code. */
int rig_submit(struct rig *rig, struct seq_spec spec, struct track *track);
void rig_sleep(void *arg, uint64_t ns); /* advances the clock of all rigs */
void rig_run(struct rig *rig);          /* until no work is left */
void rig_step(struct rig *rig);         /* one step, which must do work */
/* Makes a prompt.  Token i depends on (text, i), so equal texts have equal prefixes.
 * Ids stay below RIG_VOCAB. */
void rig_prompt(token_id *out, uint32_t n_tokens, uint32_t text);
/* Computes the answer of spec when it runs alone. */
void rig_alone(const struct seq_spec *spec, uint32_t context_length, uint32_t mean_answer_tokens,
               struct track *out);
void rig_assert_same(const struct track *a, const struct track *b); /* answers, draws and finish */

#endif
