/* SPDX-License-Identifier: Apache-2.0 */
/* A job: one client request in the router, and all of its states.
 * How to change it: docs/changes-fleet.md, "A state of a job in the router". */
#ifndef FLEET_ROUTER_JOB_PRIV_H
#define FLEET_ROUTER_JOB_PRIV_H

#include "base/list.h"
#include "serve/endpoint/handle.h"
#include "fleet/picker/owner.h"
#include "fleet/picker/place.h"
#include "fleet/router/queue_priv.h"

struct router;
struct router_model;
struct state_ask;

/* The states; job.c draws the transitions. HOLDING and REPORTING... last for a bounded time. "The report" is
 * the prefill worker's message that says how much of the prompt was cached. */
enum job_state {
    JOB_NEW,               /* in no queue and at no worker */
    JOB_RESUMING,          /* asks the workers for the tail of its answer (resume.c) */
    JOB_READMITTING,       /* the front checks its key's limits: its answer is computed again (streams.c) */
    JOB_QUEUED,            /* waits for a placement; its client has received nothing */
    JOB_PUSHED_OUT,        /* lost its place in the full queue; the loop's next turn refuses it */
    JOB_PLACED,            /* dispatched to its workers, without a report yet */
    JOB_HOLDING,           /* as PLACED; the decode worker's tokens have come, and wait for the report */
    JOB_ANSWERING,         /* at its workers; the front has received on_accepted */
    JOB_REQUEUED,          /* waits for workers that continue its answer */
    JOB_FORSAKEN,          /* as REQUEUED, but since forsaken_ns no worker could continue it */
    JOB_PAUSED,            /* in router.paused: its stream gave its seat to a higher class (pause.c) */
    JOB_REPORTING_PLACED,  /* as PLACED; the end came, and waits for the prefill worker's serving stats */
    JOB_REPORTING_HOLDING, /* as HOLDING; the end came and waits too */
    JOB_REPORTING,         /* as ANSWERING; the end came and waits too */
    JOB_ENDED,             /* its workers are free; the front gets the end once it does not pause */
    JOB_FAILED,            /* its workers are free; the front gets the failure */
    JOB_OVER,              /* its workers are free, and the job is about to be freed */
    JOB_N_STATES
};

/* Sets of states, as bits. */
#define JOB_BIT(state) (1u << JOB_##state)
enum {
    JOB_WAITS = JOB_BIT(QUEUED) | JOB_BIT(REQUEUED) | JOB_BIT(FORSAKEN), /* in router.queue */
    JOB_HOLDS = JOB_BIT(HOLDING) | JOB_BIT(REPORTING_HOLDING),           /* its tokens wait for the report */
    JOB_REPORTS = JOB_BIT(REPORTING_PLACED) | JOB_BIT(REPORTING_HOLDING) | JOB_BIT(REPORTING),
    /* No more tokens come. */
    JOB_CLOSING = JOB_REPORTS | JOB_BIT(ENDED) | JOB_BIT(FAILED) | JOB_BIT(OVER),
    JOB_TIMED = JOB_HOLDS | JOB_REPORTS | JOB_BIT(RESUMING), /* router_stream_tick() ends the state */
    /* The front must receive on_accepted before any token. */
    JOB_UNACCEPTED = JOB_BIT(PLACED) | JOB_BIT(REPORTING_PLACED) | JOB_HOLDS,
    /* It has workers, or waits for their reports. */
    JOB_AT_WORKERS = JOB_BIT(PLACED) | JOB_BIT(ANSWERING) | JOB_TIMED,
    /* The front has received on_accepted: a stream that has begun is not refused for objectives. */
    JOB_BEGUN =
        JOB_BIT(ANSWERING) | JOB_BIT(REQUEUED) | JOB_BIT(FORSAKEN) | JOB_BIT(REPORTING) | JOB_BIT(PAUSED)
};

enum part_state {
    PART_NONE,    /* the attempt has no such worker */
    PART_RUNNING, /* charged to the worker's ledger; more messages may come */
    PART_OVER     /* its last message was received, or the router cancelled it */
};

struct job_part { /* one worker's part of the current attempt */
    enum part_state state;
    uint32_t slot; /* PICKER_NONE: state is NONE */
    bool has_serving;
    uint64_t life;                 /* of its worker, at the placement: workers[slot].n_lost */
    struct picker_booking booking; /* its charge in the worker's ledger */
    struct gen_serving serving;
};

/* The states of a prompt's block hashes (chain.c). */
enum chain_state {
    CHAIN_MATCHING, /* all blocks hashed so far are known: the placement needs more */
    CHAIN_HASHING,  /* the placement needs no more; the rest is hashed for the index */
    CHAIN_LEARNING, /* hashed; the index learns the blocks that the placement left out */
    CHAIN_DONE
};

struct job { /* fields used for every token come first */
    struct router *router;
    struct router_model *model;
    enum job_state state;
    uint32_t score_next; /* index of the next prompt token whose logprob is expected; 0: prompt logprobs are
                          * not wanted */
    uint64_t number;     /* number of this attempt, in messages */
    uint64_t held_ns;    /* when it entered HOLDING or RESUMING */
    uint64_t ended_ns;   /* when its workers ended it: it entered one of JOB_CLOSING; 0: not yet */
    enum work_end end;   /* JOB_REPORTS: how the answer ended */
    Baton__Finish first_finish; /* the prefill worker's, if its first token ended the answer; else NONE */
    struct work_order order;    /* its tokens grow with the answer */
    struct gen_handle handle;   /* the front's events; tokens that were not delivered */
    struct job_part prefill, decode;

    struct list all;     /* in router.jobs */
    struct list timed;   /* in router.timed in JOB_TIMED */
    struct list waiting; /* in router.queue in JOB_WAITS, in router.pushed_out while PUSHED_OUT, in
                          * pauses.paused while PAUSED */
    struct list seated;  /* in pauses.seated while ANSWERING, if its class may be paused */
    struct queue_place place;
    struct block_hash *hashes; /* [n_blocks], of the prompt's whole blocks ... */
    size_t n_blocks, n_hashes; /* ... of which n_hashes are computed (chain.c) */
    enum chain_state chain;
    size_t learn_from, learn_to; /* LEARNING: the index does not know these blocks yet */
    struct list unhashed;        /* in router.unhashed until its chain is DONE */
    struct list unsent; /* in router.unsent while its workers lack tokens of the prompt (submit.c) ... */
    uint32_t n_sent, n_to_send; /* ... after the first n_sent; 0: its SUBMIT too */
    struct picker_slots excluded;
    struct picker_slots barred;      /* workers that failed the job; workers that lack a capability it
                                      * needs */
    uint64_t layout;                 /* KV layout of the workers of its latest placement */
    bool keeps_layout;               /* set once workers of that layout answered a part */
    struct gen_serving sum;          /* serving stats of earlier attempts */
    uint64_t submitted_ns, first_ns; /* first_ns: time of its first token; 0: none */
    double first_itl_s;              /* estimate of the time between tokens at the first one; 0: none */
    double predicted_s;              /* time to first token predicted at admission; 0: none, or it has come */
    double limit_s;                  /* limit of that time; 0: not known yet */
    uint32_t class_at;               /* in router.classes */
    bool takes_any;       /* the last attempt before a refusal: any worker that begins it at once */
    uint32_t n_pauses;    /* of its stream ... */
    uint32_t went_on_at;  /* ... the last of which ended when it had this many tokens ... */
    uint64_t paused_ns;   /* ... and, while PAUSED, began at this time */
    bool awaits_pause;    /* it may take the seat of a stream once the budget of pauses allows */
    uint64_t pauses_ns;   /* total time of all earlier pauses */
    uint64_t queued_ns;   /* 0: never queued */
    uint64_t forsaken_ns; /* when it entered FORSAKEN */
    struct picker_choice estimate;
    uint32_t n_futile,
        answered_then; /* attempts since its answer last grew, and its length at the last loss */
    uint64_t attempt_ns, attempt_ended_ns; /* the present attempt's begin, and the last one's end; 0: none */
    uint8_t attempt_id[SPAN_ID_BYTES];     /* the present attempt's span, if its trace is recorded */
    struct picker_owner owner; /* the owner that the computing worker may fetch cached blocks from; slot
                                  * PICKER_NONE: none */
    uint32_t ask_limit_ms;
    uint32_t n_asked;      /* RESUMING: workers that have not replied */
    void *store_ask;       /* RESUMING: the store or the workers were asked for its order (streams.c) ... */
    bool has_asked_store;  /* ... once */
    bool is_order_unknown; /* RESUMING: a worker or a store that does not answer now may have its order */
    bool is_resumed;       /* its client came back for the rest of a stream */
    bool is_stored;        /* its order is kept there */
    uint32_t stored_bytes; /* by workers, and counted in kept.stream_bytes */
};

static inline bool job_is_in(const struct job *job, unsigned states)
{
    return (states >> job->state & 1) != 0;
}

/* True if its client has received a part of its stream, also from another router: no load and no objective refuses it. */
static inline bool router_job_has_begun(const struct job *job)
{
    return job_is_in(job, JOB_BEGUN) || job->is_resumed;
}

struct job_part router_part_begin(const struct router *router, uint32_t slot); /* without a booking */
/* True if the part runs at a worker whose link was lost since; the sweep has not reached the job yet. */
bool router_part_is_lost(const struct job *job, const struct job_part *part);

static inline struct job *job_of(struct gen_handle *handle)
{
    return container_of(handle, struct job, handle);
}

#endif
