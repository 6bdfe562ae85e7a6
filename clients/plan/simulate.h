/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's fleet in the simulator: its step times, memory and links, under the work that it was planned for.
 *
 *    plan_candidate --simulate_fleet--> sim_opts      work --simulate_load--> arrivals, lengths, shared prefixes
 *                                   \                /                        (or the trace itself)
 *                                    sim_run: the router's own placement
 *
 * A fleet of more than SIMULATE_WORKERS workers is simulated as a slice: that share of its workers under that share
 * of its requests. */
#ifndef PLAN_SIMULATE_H
#define PLAN_SIMULATE_H

#include "clients/bench/trace.h"
#include "clients/plan/plan_job.h"
#include "fleet/sim/sim.h"

#define SIMULATE_WORKERS 900

struct simulate_change {             /* differences from the plan; simulate_change_none() */
    double prefill, decode;          /* workers of the whole fleet */
    double rate, kv_memory, network; /* factors */
    double slow;                     /* factor of the step times of one worker in each pool; 0: 1 */
    enum sim_policy policy;
    uint64_t seed;
};

struct simulate_result { /* of the requests that arrive after the fleet has filled */
    double good_share;   /* both objectives kept; refused and cancelled requests are not good */
    double refused_share;
    double ttft_mean_s, ttft_s, itl_mean_s, itl_s; /* ttft_s, itl_s: at their percentiles */
    double prefill_load;                           /* busy share of the workers */
    double decode_load;  /* share of their seats or of their KV memory in use, whichever is larger */
    double cached_share; /* of the prompt tokens */
    double good_per_s;   /* requests, of the whole fleet */
    double slice;        /* simulated share of the fleet */
    uint64_t n_requests, n_events;
};

/* The plan itself. */
struct simulate_change simulate_change_none(const struct plan_candidate *candidate);
struct simulate_case {                      /* borrowed */
    const struct plan_candidate *candidate; /* with two pools */
    const struct simulate_change *change;
    const struct trace *trace; /* the load in place of a drawn one, or NULL */
};
/* Simulates one case.
 * E_UNSUPPORTED (pipelines of stages), E_INVAL, E_NOMEM, with the reason. */
int simulate_run(const struct plan_job *job, const struct simulate_case *of, struct fault *fault,
                 struct simulate_result *out);
/* True if both objectives are kept at the percentile, and the refused requests are no more than may miss the
 * objectives. */
bool simulate_is_met(const struct plan_work *work, const struct simulate_result *result);

/* Arrivals at a constant mean rate (Poisson), log-normal lengths with the work's mean and 90 % point, and the
 * work's cached share as a prefix that all prompts have. */
struct simulate_load;
struct simulate_load_opts {
    const struct plan_work *work;
    double rate_per_s;
    uint64_t n_requests, n_first, n_last; /* n_first: while the fleet fills; n_last: after those that count */
    uint32_t block_tokens;
    uint64_t seed;
};
int simulate_load_new(const struct simulate_load_opts *opts, struct simulate_load **out); /* E_NOMEM */
void simulate_load_free(struct simulate_load *load);
struct sim_load simulate_load_of(struct simulate_load *load);

/* Classes of simulated requests: sim_request.kind. */
enum simulate_kind { SIMULATE_FILLING, SIMULATE_COUNTED, SIMULATE_EMPTYING };

#endif
