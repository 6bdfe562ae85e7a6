/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet in virtual time: the router's own code over models of workers, links and clients.
 *
 *    load --request--> front: place, queue, refuse --dispatch--> workers: steps, KV, disk
 *                        ^   picker, index, fair queue               |
 *                        +---- first token, end, reports ------------+----hand-off----> workers
 *
 * The objects of src/fleet/picker, base/fair and base/rate are those that the daemons link.  Workers are
 * models: fleet/sim/worker.c joins equal steps into runs.
 *
 * No clock, no thread, no I/O.  The result depends on the options and the load alone. */
#ifndef FLEET_SIM_SIM_H
#define FLEET_SIM_SIM_H

#include <stdatomic.h>

#include "base/fault.h"
#include "base/progress.h"
#include "fleet/picker/classes.h"
#include "fleet/picker/owner.h"
#include "fleet/picker/refusal.h"
#include "fleet/sim/hist.h"
#include "fleet/sim/times.h"

#define SIM_MAX_CLASSES 8
#define SIM_MAX_ROUTERS 8
#define SIM_NONE        UINT32_MAX

/* How to choose workers: X(policy, its word for --policy).
 *
 *     OURS         the router's picker
 *     RANDOM       any prefill worker
 *     ROUND_ROBIN  one after another
 *     LOAD         the one with least requests
 *     CACHE_AWARE  least time to first token, its own cache counted (exact knowledge)
 *     GLOBAL       the same, blocks of others counted at the time of a push (Mooncake's Algorithm 1) */
#define SIM_POLICY_TABLE(X)                                                                                  \
    X(OURS, "ours")                                                                                          \
    X(RANDOM, "random")                                                                                      \
    X(ROUND_ROBIN, "round-robin")                                                                            \
    X(LOAD, "load")                                                                                          \
    X(CACHE_AWARE, "cache-aware")                                                                            \
    X(GLOBAL, "global")

enum sim_policy {
#define X(policy, word) SIM_##policy,
    SIM_POLICY_TABLE(X)
#undef X
};

enum sim_costs {                  /* what workers know of their speed */
                 SIM_COSTS_EXACT, /* their true times */
                 SIM_COSTS_LEARNED /* what the scheduler's cost model learns from their steps, as in the daemons */
};

struct sim_opts {
    enum sim_costs costs;
    uint32_t n_kinds;   /* of requests, which the result tells apart; 0: as many as classes */
    uint32_t n_routers; /* 0 or 1: one; at most SIM_MAX_ROUTERS */
    uint32_t n_prefill, n_decode, n_both; /* workers of each role, together at most PICKER_MAX_WORKERS */
    struct sim_times prefill_times, decode_times; /* the latter also of workers of the role both */
    uint32_t block_tokens;
    uint32_t max_seqs;     /* of a worker that decodes */
    uint32_t chunk_tokens; /* most prompt tokens of a step beside decoding sequences */
    uint32_t batch_tokens; /* most prompt tokens of a step without them; 0: a whole prompt */
    uint64_t sched_itl_ns; /* workers' objective for a mixed step */
    uint64_t kv_tokens;    /* memory of a worker */
    uint64_t disk_tokens;  /* of a worker; 0: no disk */
    double disk_bytes_per_s, nic_bytes_per_s, kv_bytes_per_token, n_layers;
    uint64_t latency_ns; /* of a message */
    /* Workers stand on hosts, host_workers (0: all) on each, dealt out in turn.  Those of a host share its cores; 0: each
     * worker has all that it needs. */
    uint32_t host_cores, host_workers;
    uint64_t token_cpu_ns;   /* of its host, that an answer's token takes outside of the step */
    uint64_t request_cpu_ns; /* of a host, that a request takes when it arrives */
    double core_drag;        /* the part by which each core of a host is slower while all of them compute */
    uint64_t slice_ns; /* of computing, after which a worker gives its core away; 0: each gets an even part */
    uint64_t heartbeat_ns, report_delay_ns, start_ns;
    double crash_every_s; /* mean time between failures of the whole fleet; 0: none */
    double cancel_share;  /* of the requests: the client leaves before the end */
    bool in_order;       /* a worker waits for the push of its first prompt, and begins no later one before */
    bool decodes_only;   /* decode workers compute no prompts, as in a fleet with rigid roles */
    bool has_auto_roles; /* the router's policy changes roles */
    uint32_t roles_least;     /* workers of each role */
    uint64_t roles_period_ns; /* between two changes */

    enum sim_policy policy;
    uint64_t ttft_slo_ns, itl_slo_ns, queue_timeout_ns, local_prefill_ns;
    struct picker_classes
        classes;        /* of the kinds of requests, in their order; n 0: one, with these objectives */
    bool refuses_early; /* refuses requests whose first token is predicted too late (fleet/picker/admit.h) */
    uint64_t most_refused; /* of one kind: arrivals end there.  0: they do not */
    uint32_t most_refused_kind;
    double step_noise;    /* relative standard deviation of the time of a step; 0: none */
    double slow_factor;   /* the first worker of each role takes so many times as long for its steps; 0: 1 */
    uint64_t spared;      /* this arrival, counted from 1, is admitted with any prediction; 0: none */
    uint32_t max_refused; /* arrivals that the result lists */
    uint32_t queue_max, local_prefill_tokens, index_entries;
    enum picker_fetch prefix_fetch;
    uint64_t seed;
    uint32_t n_columns; /* of the timeline */
};

struct sim_request { /* one request of the load */
    uint64_t at_ns, tenant;
    uint32_t prompt_tokens, answer_tokens;
    uint32_t kind; /* of struct sim_class and of sim_opts.classes */
    uint32_t session;
    uint32_t routers;    /* bit i: router i is one of those that it may come to, in turn; 0: all */
    const uint64_t *ids; /* [n_blocks] equal ids at the beginning are an equal prefix; NULL: see salt */
    uint32_t n_blocks;   /* 0: shares nothing and is not cached */
    uint32_t n_public;   /* the first of these have public_salt */
    uint64_t salt, public_salt;
};

/* Where requests come from; in order of time. */
struct sim_load {
    void *self;
    /* The time of the next request.  False: no request is left now.  (One may come later, after an end.) */
    bool (*when)(void *self, uint64_t *at_ns_out);
    void (*take)(void *self, struct sim_request *out); /* that request */
    /* NULL, or called at each end: the next turn of its session may begin. */
    void (*on_end)(void *self, const struct sim_request *request, uint64_t now_ns);
    uint64_t span_ns;              /* about how long the load lasts, for the timeline */
    struct progress *progress;     /* NULL, or shows the time of the requests; borrowed */
    const atomic_bool *is_stopped; /* NULL, or true: the run ends between two events; borrowed */
};

struct sim_class { /* results of one class of requests */
    struct sim_hist ttft, itl, e2e;
    uint64_t n_arrived, n_done, n_good, n_cancelled, n_refused[REFUSAL_REASONS];
    uint64_t prompt_tokens, answer_tokens, good_tokens;
    uint64_t served_tokens; /* of prompts and answers that are done */
    uint64_t n_pauses;      /* of its streams, for a higher class; paused_s: all of them together */
    double paused_s;
    /* of those done, from placement to end: the time of their decode seats, and of the KV that they reserve */
    double held_s, held_token_s;
};

struct sim_column { /* of the timeline */
    uint64_t n_arrived, n_done, n_good, n_refused;
    double ttft_s; /* sum over first tokens */
    uint64_t n_first;
    double prefill_busy_s, decode_busy_s;     /* of workers in each role ... */
    double prefill_worker_s, decode_worker_s; /* ... and their time */
    uint64_t n_flips, n_decisions, n_prefill; /* decisions on roles, and the sum of prefill workers at each */
    uint64_t n_wanted, wanted_prefill, wanted_decode; /* decisions that knew, and their sums */
};

struct sim_result {
    struct sim_class classes[SIM_MAX_CLASSES];
    uint32_t n_classes;
    bool is_partial;      /* the run was stopped */
    uint32_t n_under_way; /* requests, at the end */
    uint64_t end_ns, last_arrival_ns, n_events, n_steps;
    uint64_t cached_tokens, pushed_tokens, read_tokens, computed_tokens, again_tokens;
    uint64_t n_expiry_looks; /* at a waiting request, whether it waited too long */
    uint64_t n_pairs, n_alone, n_pushes, n_queued, n_crashes, n_replaced, n_flips;
    double handed_bytes, pushed_bytes, read_bytes;
    double prefill_busy_s, decode_busy_s, disk_busy_s, nic_busy_s;
    uint64_t
        *refused; /* [n_refused] arrivals that were refused by prediction, the first max_refused of them */
    uint32_t n_refused;
    bool is_spared_good;                      /* the spared arrival kept its objectives */
    double prefill_worker_s, decode_worker_s; /* time of workers in each role */
    struct sim_column *columns;               /* [n_columns] */
    uint32_t n_columns;
    uint64_t column_ns;
};

static inline uint32_t sim_n_workers(const struct sim_opts *opts)
{
    return opts->n_prefill + opts->n_decode + opts->n_both;
}

/* E_INVAL (the fault says which option), E_NOMEM, E_LIMIT (more requests under way than memory is bounded
 * to, or crashes that let no request end), E_INTERNAL (requests that wait for ever).  Free the result with sim_result_fini(), also after a failure. */
int sim_run(const struct sim_opts *opts, struct sim_load *load, struct fault *fault, struct sim_result *out);
void sim_result_fini(struct sim_result *result);
/* Jain's index of the tokens that the kinds of requests got: 1 if all got the same. */
double sim_result_jain(const struct sim_result *result);

/* A block's identity in caches and in the index. */
uint64_t sim_block_id(const struct sim_request *request, uint32_t i);

#endif
