/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts with fewer cores than busy workers.  Without sim_opts.host_cores there are none, and every worker computes at full
 * speed.
 *
 * A host's time passes as the work of its busy workers does: at the speed of the clock while the cores suffice, else slower.
 * In that time a run takes what it takes on an idle host, so only the clock time of its end depends on the others. */
#ifndef FLEET_SIM_HOSTS_PRIV_H
#define FLEET_SIM_HOSTS_PRIV_H

#include "fleet/sim/agenda_priv.h"

struct sim;
struct sim_worker;

struct sim_host {
    struct sim_agenda ends; /* of runs, in the host's time; stamp: the worker's */
    uint64_t demand;        /* of the busy workers and of new requests, in millionths of a core */
    uint32_t n_busy;
    double at_ns;      /* the host's time ... */
    uint64_t since_ns; /* ... at this time of the clock */
    uint64_t next_ns;  /* of the event for its next end */
    uint32_t stamp;    /* of that event */
    bool is_armed;     /* there is one */
};

struct sim_host_run {          /* a worker's run */
    uint64_t demand, began_ns; /* by the clock */
    uint32_t n_counted;        /* steps whose gaps are in the result ... */
    uint64_t counted_ns;       /* ... the last of which ended then, by the clock */
    double waits, delays;      /* of steps, and of tokens on their way: parts that no token has had yet */
    double late_ns;            /* of the latest token */
    double stretch;            /* clock time for each second of the latest run; 0: none yet */
};

int sim_hosts_open(struct sim *sim);
void sim_hosts_close(struct sim *sim);
uint32_t sim_hosts_of(const struct sim *sim, uint32_t slot); /* its host, or itself */
/* Of the worker's host; without hosts the clock. */
uint64_t sim_hosts_now(const struct sim *sim, const struct sim_worker *worker);
/* The factor by which a step takes longer now if one more worker of this host computes; 1: none. */
double sim_hosts_stretch(const struct sim *sim, const struct sim_worker *worker);
/* By how much so many steps together take longer for other reasons (sim_opts.step_noise): lognormal, mean 1. */
double sim_hosts_noise(struct sim *sim, double n_steps);

/* A run begins; its end is set, or set again; it ends (the gaps between its tokens are counted) or is lost. */
void sim_hosts_begin(struct sim *sim, struct sim_worker *worker);
void sim_hosts_set_end(struct sim *sim, const struct sim_worker *worker, uint64_t end_ns);
void sim_hosts_end(struct sim *sim, struct sim_worker *worker);
void sim_hosts_lose(struct sim *sim, struct sim_worker *worker);
/* Counts the gaps of a worker's run without hosts, all of step_ns but the first ones of fresh sequences. */
void sim_hosts_count_run(struct sim *sim, struct sim_worker *worker, double step_ns);
/* Counts the first gaps of sequences whose prompts ended with the run before: from then to end_ns.  Adds their numbers to
 * n_fresh, [SIM_MAX_CLASSES]. */
void sim_hosts_count_fresh(struct sim *sim, struct sim_worker *worker, uint64_t end_ns, uint32_t *n_fresh);
/* A request arrives at the router and takes a core of a host until _done: sim_opts.request_cpu_ns. */
void sim_hosts_request(struct sim *sim);
void sim_hosts_request_done(struct sim *sim, uint32_t host);
/* The next end of a host is due. */
void sim_hosts_due(struct sim *sim, uint32_t host, uint32_t stamp);

#endif
