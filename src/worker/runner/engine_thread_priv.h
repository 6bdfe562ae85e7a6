/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the engine thread, shared by engine_thread.c (the thread), commands.c (its commands), tasks.c
 * (its tasks) and task_events.c (what the scheduler says of them). */
#ifndef WORKER_RUNNER_ENGINE_THREAD_PRIV_H
#define WORKER_RUNNER_ENGINE_THREAD_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hashmap.h"
#include "base/owner.h"
#include "base/rate.h"
#include "worker/runner/engine_thread.h"

#define N_ORIGINS       (WORKER_MAX_ROUTERS + 1) /* the last origin is the worker's own endpoint */
#define WORKER_MAX_KEPT 1024

/* health.c
 *
 *      FIT --spoilt answers in a row--> UNFIT --good probe, and rest is over--> FIT
 *       ^                                 |
 *       +---------- a good answer --------+ */
enum health_state {
    HEALTH_FIT,
    HEALTH_UNFIT /* routers place no request here; the worker computes a probe now and then */
};

struct health {
    enum health_state state;
    uint32_t n_spoilt_in_row;
    uint64_t unfit_ns, rest_ns; /* when UNFIT began, and its least duration, doubled each time unless a good
                                 * answer came in between */
    uint64_t probed_ns;
    bool is_probing;
    struct metric *m_spoilt, *m_unfit;
};

struct measure {       /* measurements of an idle worker */
    uint64_t since_ns; /* start of the idle time, or the latest measurement */
    uint64_t n_steps;  /* the scheduler's count at that time */
    uint32_t n;        /* measurements in this idle time */
    bool is_under_way;
};

struct worker_engine {
    struct worker_engine_opts opts;
    struct health health;
    uint64_t notice; /* the latest task_spec.notice */
    struct kv_pool *pool;
    struct sched *sched;
    struct tr_node *transport;
    struct mailbox *commands, *reports;
    struct command *kept[WORKER_MAX_KEPT]; /* commands.c: read within a step, run after it */
    uint32_t kept_from, n_kept;
    pthread_t thread;
    struct thread_owner engine_thread; /* claimed when it starts */
    struct thread_owner loop_thread;   /* claimed by the first worker_engine_send() */
    bool is_started;
    atomic_uint_fast64_t beats;
    atomic_bool is_busy;
    atomic_bool is_given_up; /* stopping: the running step may be abandoned halfway */
    bool is_stopping;
    bool is_draining; /* refuses new tasks with E_CLOSED; those it has continue, also from their waits */
    struct list tasks;
    uint32_t n_tasks;
    struct hashmap *by_key;       /* struct task_key -> struct task */
    struct worker_disk *disk;     /* disk.c; NULL: there is no disk tier */
    struct worker_remote *remote; /* remote.c; NULL: there is no remote tier */
    struct list hashing;          /* hashing.c: tasks in TASK_HASHING */
    uint32_t n_hashing;
    struct list grammars; /* grammars.c */
    uint32_t n_grammars;
    struct fair *grammar_waits; /* tasks in TASK_COMPILING, by tenant */
    uint64_t n_grammar_waits;
    size_t grammar_bytes;
    uint64_t next_grammar;
    struct report *pending[N_ORIGINS];
    struct peer_facts peers[WORKER_MAX_PEERS];
    bool peer_is_up[WORKER_MAX_PEERS];
    atomic_uint peer_uses[WORKER_MAX_PEERS]; /* peer_uses.c */
    struct transfers *transfers;             /* transfers.c, and the four siblings: */
    struct prefix_fetches *prefix_fetches;
    struct prefix_serves *prefix_serves;
    struct kv_sends *kv_sends;
    struct kv_receives *kv_receives;
    struct peer_map *map;                          /* peer_map.c; NULL: switched off */
    atomic_uint_fast32_t n_pending_events;         /* peers' block events on their way into the peer map */
    uint32_t n_fetching;                           /* tasks that wait for a prefix fetch */
    struct block_log block_log;                    /* publish.c */
    struct rate transfer_rate, push_rate;          /* bytes per second: of hand-offs, of prefix fetches ... */
    double transfer_bytes_per_s, push_bytes_per_s; /* ... as reported; 0: unknown */
    struct measure measure;                        /* measure.c */
    uint64_t ticked_ns, expired_ns, reported_ns;
    uint64_t next_id;
    struct metric *m_computed, *m_reused, *m_transferred, *m_drawn, *m_preempted;
    struct metric *m_draft_right[SCHED_DRAFTS], *m_draft_wrong[SCHED_DRAFTS], *m_steps, *m_draft_steps;
    struct sched_load counted; /* load at the last update of the step counters */
};

/* commands.c */
void worker_commands_run(struct worker_engine *engine);
/* Called inside a step, after each layer: runs grants, keeps other commands until after the step. */
void worker_commands_in_step(struct worker_engine *engine);
bool worker_commands_wait(const struct worker_engine *engine);      /* kept commands wait to be run */
struct command *worker_commands_take(struct worker_engine *engine); /* the next; the caller owns it; NULL:
                                                                     * none */

/* peer_uses.c: a task or a transfer needs the link to this peer, or no longer does.  PEER_NONE: nothing. */
void worker_peer_use(struct worker_engine *engine, uint32_t peer);
void worker_peer_leave(struct worker_engine *engine, uint32_t peer);

/* tasks.c */
int worker_tasks_open(struct worker_engine *engine);
void worker_tasks_close(struct worker_engine *engine);
void worker_tasks_submit(struct worker_engine *engine, struct task_spec *spec);
/* Adds the tasks that neither the scheduler nor hashing.c has: they wait for a grammar, a disk, a store or a peer. */
void worker_tasks_load(const struct worker_engine *engine, struct sched_load *load);
void worker_tasks_cancel(struct worker_engine *engine, const struct task_key *key);
/* Reports FAILED when there is no such task. */
void worker_tasks_proceed(struct worker_engine *engine, uint32_t origin, const struct task_key *key);
/* Fails all tasks of routers, which then place them on other workers. */
void worker_tasks_move(struct worker_engine *engine);
/* Cancels this router's tasks of all epochs but except_epoch (0: of all epochs). */
void worker_tasks_router_down(struct worker_engine *engine, uint32_t router, uint64_t except_epoch);
/* A disk read ended or timed out: its waiting tasks continue. */
void worker_tasks_read(struct worker_engine *engine, uint64_t number);
/* The only function that changes a task's state; traces it (log event task_state). */
void worker_tasks_set_state(struct worker_engine *engine, struct task *task, enum task_state state);
void worker_tasks_hashed(struct worker_engine *engine, struct task *task);
/* Begins an answer to the task's router or endpoint.  NULL: out of memory. */
struct task_answer *worker_tasks_answer(struct worker_engine *engine, const struct task_spec *spec,
                                        const token_id *ids, uint32_t n_ids);
/* The scheduler does not have its sequence, or is ending it. */
void worker_tasks_free(struct worker_engine *engine, struct task *task);
/* The task's wait before its begin is over, with or without the blocks that it waited for. */
void worker_tasks_go_on(struct worker_engine *engine, struct task *task);
/* The grammar that tasks wait for is compiled. grammar NULL: `why` holds the error. */
void worker_tasks_compiled(struct worker_engine *engine, uint64_t number, struct grammar *grammar,
                           const struct grammar_command *why);

/* task_events.c */
struct sched_events worker_task_events(void);

/* task_spans.c */
void worker_task_note(uint64_t *at_ns); /* sets it to now, once */
void worker_task_put_times(const struct task *task, struct task_answer *answer);
void worker_task_put_spans(const struct worker_engine *engine, const struct task *task); /* call it when the
                                                                                          * task is over */
const char *worker_task_phase(enum task_mode mode); /* "local", "prefill", "decode" */
/* task_log.c: the worker's access line; call it when the task is over */
void worker_task_log(const struct worker_engine *engine, const struct task *task);

/* chain.c: the block hashes of a task's tokens */
int worker_chain_begin(const struct worker_engine *engine, struct task *task); /* derives the roots, once */
/* Hashes all full blocks into task.chain, once.  Returns how many of them a cache may supply: not all,
 * because the last token is always computed.  0: none, or no memory. */
uint32_t worker_chain_hash(const struct worker_engine *engine, struct task *task);
/* Hashes the full blocks of n_tokens more tokens. False: nothing is left to hash, or there is no memory. */
bool worker_chain_extend(const struct worker_engine *engine, struct task *task, uint32_t n_tokens);
void worker_chain_free(struct task *task);

/* hashing.c: long prompts are hashed a slice at a time, between steps */
/* Returns 0 for a short prompt, and does nothing. E_AGAIN: worker_tasks_hashed() will be called when the chain is
 * done. E_OVERLOADED: too many tasks wait. */
int worker_hashing_begin(struct worker_engine *engine, struct task *task);
void worker_hashing_leave(struct worker_engine *engine, struct task *task); /* the task may or may not wait */
bool worker_hashing_turn(struct worker_engine *engine);                     /* true: there is more to hash */
void worker_hashing_load(const struct worker_engine *engine,
                         struct sched_load *load); /* adds these prompts */

/* grammars.c */
/* Looks up the task's grammar.  0: it is compiled, and out is borrowed until the next call. E_AGAIN: it is
 * being compiled, and worker_tasks_compiled() will be called with the number. E_OVERLOADED, E_NOMEM. */
int worker_grammars_get(struct worker_engine *engine, const struct task_spec *spec, struct grammar **out,
                        uint64_t *number_out);
void worker_grammars_compiled(struct worker_engine *engine,
                              struct grammar_command *command); /* takes its grammar */
/* Fails grammars that are overdue. */
void worker_grammars_tick(struct worker_engine *engine, uint64_t now_ns);
void worker_grammars_close(struct worker_engine *engine);

/* health.c */
void worker_health_open(struct worker_engine *engine);
/* Notes the end of a request's answer.  is_spoilt: its logits were not finite. */
void worker_health_note(struct worker_engine *engine, const char *request, bool is_spoilt);
/* Also called when the warm-up ends. */
void worker_health_probed(struct worker_engine *engine, enum seq_finish finish);
void worker_health_tick(struct worker_engine *engine, uint64_t now_ns);

/* measure.c: rates of this worker and of the links to it */
/* Touches every weight and measures the scheduler's first rates before any request uses them. */
void worker_measure_start(struct worker_engine *engine);
/* Begins a short answer without a request. Its sequence has the task NULL and caches nothing.  n_tokens and
 * n_drawn are upper bounds.  0, or an error. */
int worker_measure_probe(struct worker_engine *engine, uint32_t n_tokens, uint32_t n_drawn);
/* Called repeatedly while the worker is idle.  Now and then it begins a small sequence that changes nothing
 * but the rates. */
void worker_measure_idle(struct worker_engine *engine, uint64_t now_ns);
/* While no KV arrives, moves a slow link's rate back towards the prior, and forgets the push rate. */
void worker_measure_age(struct worker_engine *engine, uint64_t now_ns);
void worker_engine_observe_push(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns);

/* engine_thread.c */
struct task_answer *worker_engine_answer(struct worker_engine *engine, uint32_t origin, const token_id *ids,
                                         uint32_t n_ids);
/* Sets the sampling results of the tokens in this origin's latest answer. */
void worker_engine_draws(struct worker_engine *engine, uint32_t origin, const struct sample_result *draws);
/* Sets the embedding, [info.hidden of the engine], of this origin's latest answer. */
void worker_engine_embedding(struct worker_engine *engine, uint32_t origin, const float *embedding);

#endif
