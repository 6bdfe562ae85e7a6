/* SPDX-License-Identifier: Apache-2.0 */
/* A request under way in the simulator, and the router that it came to. */
#ifndef FLEET_SIM_JOB_PRIV_H
#define FLEET_SIM_JOB_PRIV_H

#include "base/fair.h"
#include "base/list.h"
#include "fleet/picker/admit.h"
#include "fleet/picker/ahead.h"
#include "fleet/picker/answers.h"
#include "fleet/picker/pause.h"
#include "fleet/picker/place.h"
#include "fleet/picker/roles.h"
#include "fleet/picker/served.h"
#include "fleet/picker/service.h"
#include "fleet/sim/deadlines_priv.h"
#include "fleet/sim/sim.h"

enum sim_job_state {
    SIM_FREE,
    SIM_QUEUED,  /* waits in the router */
    SIM_PROMPT,  /* its prompt waits or is computed */
    SIM_MOVING,  /* its KV moves to the decode worker */
    SIM_WAITING, /* its KV waits for a seat or for room */
    SIM_DECODING,
    SIM_PAUSED /* by the router, for a request of a higher class */
};

struct sim_pauses {                         /* pause.c; by class */
    struct list paused[PICKER_MAX_CLASSES]; /* jobs, the first paused first */
    struct list
        seated[PICKER_MAX_CLASSES]; /* jobs that decode, if the class may be paused; the youngest first */
    uint32_t n_at_workers[PICKER_MAX_CLASSES];
    uint32_t n_paused;
    uint64_t failed_ns; /* the latest failed attempt for a waiting request */
    struct picker_pause_budget budget;
};

struct sim_router {
    struct picker_fleet *fleet;
    struct picker_index *index;
    struct fair *turns[PICKER_MAX_CLASSES]; /* of each class */
    uint32_t n_queued, n_queued_of[PICKER_MAX_CLASSES];
    struct sim_deadlines deadlines; /* of the queued ones */
    struct picker_lateness late, itl_late;
    struct picker_local_prefill local_prefill;
    struct picker_answers answers[PICKER_MAX_CLASSES];
    struct sim_pauses pauses;
    uint64_t waiting_tokens[PICKER_MAX_CLASSES]; /* of its queue */
    bool is_turning;                             /* its queue is being tried */
    struct picker_roles roles;
    uint64_t roles_ns; /* of the next decision on roles */
    struct picker_ahead ahead;
    struct picker_lines lines;
    /* what it tells the other routers (routers.c) */
    struct picker_served served;
    struct picker_service service; /* its own and that of the others */
    uint32_t n_margins_sent;       /* samples that its margins had */
};

/* Counters of a tenant's flow. */
enum sim_tally {
    SIM_TALLY_TOKENS, /* prompt tokens that wait */
    SIM_TALLY_AHEAD   /* requests that go ahead */
};

struct sim_sent {          /* a job's latest transfer, or read from a disk */
    uint64_t *lanes_ns[2]; /* when they are free again: out and in, or the disk's and NULL; both NULL: none */
    uint64_t end_ns[2], ns;   /* its end and its time in each */
    double bytes, *sum_bytes; /* its own, and those of all such transfers */
};

struct sim_job { /* one request under way */
    struct sim_request request;
    struct sim_router *router;
    enum sim_job_state state;
    uint32_t stamp;                  /* grows with each life and each placement; older events are void */
    uint32_t prefill, decode;        /* slots; prefill SIM_NONE: the decode worker computes */
    struct picker_booking booked[2]; /* prefill, decode */
    uint32_t n_left;                 /* prompt tokens to compute */
    uint32_t n_packed;               /* prompt tokens that share the last step of the prompt before it */
    uint32_t n_pushed;               /* blocks that another worker pushed for it, or has besides */
    uint32_t n_given;                /* prompt and answer so far, to be computed or cached */
    uint32_t n_answered;
    uint64_t ready_ns;            /* its prompt may begin: message, push and disk read are over */
    uint64_t began_ns;            /* its prompt began to be computed */
    uint64_t first_ns, latest_ns; /* tokens; 0: none yet */
    uint64_t queued_ns, placed_ns;
    uint64_t queue_number; /* requests that had been queued when it was */
    uint64_t deadline_ns;  /* in router->deadlines, at this place; SIM_NONE: not there */
    uint32_t deadline_at;
    uint64_t end_step; /* of its decode worker */
    struct sim_sent sent;
    uint64_t held[2]; /* KV tokens reserved at the prefill and at the decode worker */
    uint32_t next;    /* in its worker's line, or in the list of free jobs */
    uint32_t number;  /* its own place */
    uint32_t n_passed;
    bool is_again; /* it was placed before */
    bool is_spared;
    uint64_t arrival;                     /* counted from 1 */
    double predicted_s, limit_s, alone_s; /* at admission; limit_s 0: not judged */
    double first_itl_s;                   /* the time between tokens, estimated at the first one */
    uint32_t waiting_tokens;              /* uncached, counted while it waits */
    uint32_t class_at;                    /* of sim.classes */
    struct list stream; /* in pauses.seated while it decodes, in pauses.paused while PAUSED */
    struct picker_pause_past past;
    uint64_t paused_ns; /* since then, while PAUSED */
    bool awaits_pause;  /* it may take a seat once the budget of pauses allows */
    struct fair_item turn;
    struct fair_flow *flow;
    bool is_ahead;              /* placed at a worker that has not begun it: ... */
    uint32_t ahead_slots[2];    /* ... one of these, which reads its prompt and which decodes */
    struct fair_item line_turn; /* in its worker's line, and its tenant's flow there (turns.c) */
    struct fair_flow *line_flow;
};

#endif
