/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded trace as the simulator's load: at any speed, and several replicas at once. */
#ifndef CLIENTS_SIM_REPLAY_H
#define CLIENTS_SIM_REPLAY_H

#include "clients/bench/trace.h"
#include "fleet/sim/sim.h"

struct replay_opts {
    double speed;        /* 2: twice as fast */
    uint32_t n_replicas; /* each with its own prefixes and another starting point in the trace */
    uint64_t n_requests; /* at most; 0: no bound */
    bool marks_kinds;    /* requests of other classes than the default have sim_request.kind 1 */
};

struct replay;

/* Borrows the trace.  E_NOMEM, E_RANGE (longer than a hundred years). */
int replay_new(const struct trace *trace, const struct replay_opts *opts, struct replay **out);
void replay_free(struct replay *replay);
struct sim_load replay_load(struct replay *replay);

#endif
