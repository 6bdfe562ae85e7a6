/* SPDX-License-Identifier: Apache-2.0 */
/* The router's state of models, and of the workers that serve them. */
#ifndef FLEET_ROUTER_WORKERS_PRIV_H
#define FLEET_ROUTER_WORKERS_PRIV_H

#include "base/fair.h"
#include "base/rate.h"
#include "serve/endpoint/backend.h"
#include "net/link/link.h"
#include "fleet/picker/admit.h"
#include "fleet/picker/answers.h"
#include "fleet/picker/classes.h"
#include "fleet/picker/picker.h"
#include "fleet/picker/roles.h"
#include "fleet/router/queue_priv.h"
#include "cache/prefix/block_events.h"

#define ROUTER_MAX_MODELS 16

/* ---- models: built from a vocabulary image, once per fingerprint, and kept while there is room (models.c) ---- */

struct router_model {
    struct gen_model gen;
    bool is_ready;      /* tokeniser and template are built */
    bool is_failed;     /* its image was refused and logged */
    bool was_served;    /* a worker that serves it has registered */
    uint64_t usable_ns; /* when the look at a waiting job last found a usable worker of it (refusals.c) */
    struct buf image;   /* the image so far */
    uint64_t image_bytes;
    struct link *source;       /* the link that sends it; NULL: none */
    struct model_build *build; /* a job thread builds it (models.c); NULL: none */
    /* The order of its jobs by tenant (queue.c), for each class; NULL: the class had no job yet. */
    struct fair *turns[PICKER_MAX_CLASSES];
    /* Relative cost of attending to a token, compared with a prompt token;
     * for workers without a long prompt yet. */
    struct rate pair_share;
    /* Errors of predictions that admission learned, and its schedules of retries (admission.c). */
    struct picker_lateness late, itl_late;
    uint32_t n_margins_sent; /* samples that they had when margins.c sent them to other routers */
    struct picker_local_prefill local_prefill;
    struct picker_answers answers[PICKER_MAX_CLASSES];
    struct picker_returns returns, share_returns[PICKER_MAX_CLASSES];
    struct queue_waiting waiting[PICKER_MAX_CLASSES]; /* of each class, without odd ones */
    struct picker_ahead ahead;                        /* jobs at workers that have not begun them */
    struct picker_roles roles;                        /* the load, and the policy of roles */
    struct picker_roles_plan roles_plan;              /* the latest decision */
    uint32_t n_jobs, n_held;                          /* jobs; requests of the front that use it */
    uint32_t n_queued;                                /* jobs that wait for a placement */
    uint32_t n_seated[PICKER_MAX_CLASSES]; /* jobs at workers, including those that may not be paused */
    uint32_t n_paused[PICKER_MAX_CLASSES]; /* jobs in PAUSED */
    bool is_losing;   /* a worker of it was lost, and not all of that worker's jobs have left it yet */
    uint64_t lost_ns; /* when its latest worker was lost ... */
    uint64_t
        lost_tokens; /* ... and the KV tokens of the largest one that was lost in link.return_grace before that */
};

/* ---- workers: one slot per node name ---- */

struct router_worker {
    bool is_taken;
    struct link *link; /* NULL: not connected now */
    enum picker_role role;
    char node[64];
    char version[72]; /* of its build */
    uint64_t epoch;
    char link_address[128], kv_address[128]; /* as peers dial them; kv_address "": none over TCP */
    uint64_t layout, host, instance;
    uint64_t capabilities; /* proto/capabilities.h */
    uint32_t block_tokens, n_blocks, max_seqs;
    uint64_t kv_bytes_per_token;
    struct router_model *model;
    uint32_t context_length;
    bool is_draining;
    bool is_unfit;            /* the worker reports that its logits are not finite: it gets no placement
                               * and no prefix fetch */
    Baton__LoadReport report; /* scalars only */
    uint64_t up_ns;           /* when its link came up; 0: not yet */
    uint64_t reported_ns;
    uint64_t figures_ns; /* when its engine took the figures of the latest report */
    /* From the latest report with decoding sequences: their number, their step without prompts, and the time of one
     * more. */
    uint32_t step_seqs;
    double step_s, row_s;
    uint32_t store;                 /* of the router's stores, from 1: the latest that it reported; 0: none */
    struct block_follower follower; /* of its block events */
    uint64_t n_dispatched, n_lost;  /* n_lost: also the life of its jobs' parts */
    uint64_t n_failed;              /* jobs that it failed, prefills included; for status */
    int last_error;                 /* of the latest of these */
};

#endif
