/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated worker. */
#ifndef FLEET_SIM_WORKER_PRIV_H
#define FLEET_SIM_WORKER_PRIV_H

#include "base/fair.h"
#include "base/rate.h"
#include "compute/sched/speed.h"
#include "fleet/picker/picker.h"
#include "fleet/sim/hosts_priv.h"
#include "fleet/sim/lru_priv.h"
#include "fleet/sim/sim.h"

struct sim_seat { /* a decoding sequence */
    uint64_t end_step;
    uint32_t job;
};

struct sim_line { /* of jobs, linked by next */
    uint32_t head, tail, n;
};

struct sim_worker {
    uint32_t slot;
    enum picker_role role;
    bool is_up, is_dirty;
    const struct sim_times *times;
    struct sim_line prompts, joins; /* joins: KV is here, no seat yet */
    struct fair *turns;             /* of both; NULL: in order of arrival */
    uint64_t n_entered;             /* these turns */
    uint64_t queued_tokens, queued_reads;
    uint32_t n_running, n_begun; /* n_begun: of prompts */
    uint64_t used_tokens;        /* KV of sequences */
    /* decoding */
    struct sim_seat *seats; /* heap by end_step */
    uint32_t n_seats, cap_seats;
    uint64_t n_steps;        /* since the start */
    uint64_t followed_steps; /* the routers' ledgers know how far its answers were then (admit.c) */
    double context;          /* tokens of all seats */
    uint32_t *fresh;         /* [n_fresh] jobs seated since the latest step */
    uint32_t n_fresh, cap_fresh;
    uint32_t n_by_kind[SIM_MAX_CLASSES];
    /* the run of equal steps under way */
    bool is_busy;
    uint32_t run_steps, run_prompt;  /* run_prompt: job, or SIM_NONE */
    uint32_t run_rows, run_position; /* decoding sequences; where the prompt's chunk begins */
    double run_context;              /* tokens of those sequences */
    double run_chunk, run_linear_s, run_square_s;
    uint32_t chunk_tokens; /* prompt tokens that the latest step beside decoding sequences could have fed */
    double run_pack_s;     /* extra time of the last step for packed prompts; 0: none */
    uint64_t run_began_ns, busy_ns; /* began: by its host's time */
    uint64_t booked_ns;             /* busy_ns has the run under way until then */
    struct sim_host_run host;
    uint64_t role_since_ns; /* busy_ns counts from here */
    uint32_t stamp;
    /* KV */
    struct sim_lru memory, disk;
    uint64_t out_free_ns, in_free_ns, disk_free_ns; /* NIC and disk are free again */
    /* what it reports */
    struct sched_speed speed;
    uint32_t n_learned; /* runs that ended since its start */
    struct rate transfer_rate, push_rate, read_rate;
    struct picker_worker row;
};

#endif
