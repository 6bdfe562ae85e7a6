/* SPDX-License-Identifier: Apache-2.0 */
/* What the router's files share.  Everything here lives on the one loop thread. */
#ifndef FLEET_ROUTER_ROUTER_PRIV_H
#define FLEET_ROUTER_ROUTER_PRIV_H

#include "base/hashmap.h"
#include "base/list.h"
#include "base/event/jobs.h"
#include "base/event/loop.h"
#include "base/event/service.h"
#include "serve/endpoint/backend.h"
#include "serve/prompt/scores.h"
#include "base/metrics/metrics.h"
#include "net/link/link.h"
#include "net/link/listener.h"
#include "fleet/picker/holder.h"
#include "fleet/picker/index.h"
#include "fleet/picker/place.h"
#include "cache/prefix/block_events.h"
#include "proto/abilities.h"
#include "fleet/router/names_priv.h"
#include "fleet/router/queue_priv.h"
#include "fleet/router/router_conf.h"
#include "fleet/router/workers_priv.h"

#define ROUTER_MAX_MODELS    16
#define ROUTER_MAX_LINKS     (2 * PICKER_MAX_WORKERS)
#define ROUTER_MAX_STRANGERS 512 /* at the link port: accepted, and TLS is not through */

/* ---- jobs: one client request ---- */

enum job_state {
    JOB_QUEUED,     /* waits for a placement */
    JOB_PUSHED_OUT, /* of the full queue by another tenant's; its client hears of it in the loop's next turn
                     */
    JOB_PLACED,     /* sent to its worker(s), nothing came back */
    JOB_ANSWERING   /* accepted by a worker */
};

struct job_part {  /* one worker's share of the current attempt */
    uint32_t slot; /* PICKER_NONE: none */
    bool is_over;  /* its last word was heard */
    bool has_proof;
    struct picker_booking booking; /* in its ledger */
    struct gen_proof proof;
};

struct gen_handle { /* a job; the front knows it under this name; what every token needs comes first */
    struct router *router;
    struct router_model *model;
    enum job_state state;
    bool is_accepted, is_paused;
    uint32_t n_prompt;
    uint32_t n_delivered; /* answer tokens handed to the front */
    uint32_t cap_tokens;
    uint32_t
        score_next;  /* of the prompt's tokens, the first whose likelihood was not heard; 0: none is asked */
    uint64_t number; /* of this attempt, on the wire */
    uint64_t
        unheard_since_ns; /* tokens wait for the word of who prefilled, what it found cached; 0: none do */
    uint64_t first_token_ns;
    struct {
        bool is_set;
        enum gen_end end;
        uint64_t since_ns;
    } ended; /* and not yet told: the client is paused, or the proof is not whole */
    struct gen_events events;
    void *arg;
    struct sample_result *draws; /* [cap_draws], of the tokens not delivered yet, if wanted */
    struct gen_job job;          /* tokens grow as the answer does */
    struct scores scores;        /* of given tokens, not delivered yet */
    struct job_part prefill, decode;

    struct list all;     /* in router.jobs */
    struct list waiting; /* in router.queue while QUEUED, in router.pushed_out then */
    struct queue_place place;
    struct sample_bias *bias; /* job.sample.bias: ours */
    uint32_t cap_draws;
    struct block_hash *hashes; /* [n_blocks], of the prompt's whole blocks ... */
    size_t n_blocks, n_hashes; /* ... of which so many are there (chain.c) */
    struct list unhashed;      /* in router.unhashed while some are not */
    struct picker_slots excluded;
    struct picker_slots barred; /* those, and workers that lack an ability it needs */
    uint64_t layout;            /* of the workers it was placed on last */
    bool keeps_layout;          /* since they answered a part */
    struct gen_proof sum;       /* of earlier attempts */
    uint64_t submitted_ns;
    uint64_t queued_ns;   /* 0: never was */
    uint64_t forsaken_ns; /* since when it waits, begun, with nobody there who could go on; 0: somebody is */
    struct picker_choice estimate;
    struct picker_holder holder; /* whom the worker that computes may ask for cached blocks; slot
                                    PICKER_NONE: nobody */
    uint32_t ask_limit_ms;
};

struct router {
    const struct router_conf *conf;
    struct ev_loop *loop;
    struct ev_timer *tick;
    struct metrics *metrics;
    struct listener *links; /* where workers dial */
    struct link_opts link_opts;
    struct list jobs;
    struct list queue; /* jobs that wait for a placement, by arrival */
    struct router_queue turns;
    struct list unhashed;  /* jobs whose chains are to be ended */
    struct list told;      /* told.c's: block events that wait */
    size_t n_told;         /* blocks among them */
    struct ev_timer *turn; /* of applying them; NULL: nobody does, but router_told_work() */
    struct list *next_job; /* of the walk over jobs under way: a job that goes away moves it on */
    uint32_t n_queued;
    struct hashmap *by_number;
    uint64_t n_freed;   /* jobs, since the start */
    uint32_t n_ended;   /* jobs whose ended is set */
    uint32_t n_unheard; /* jobs whose unheard_since_ns is set */
    uint64_t next_number, epoch;
    uint8_t prefix_key[32];
    struct router_worker workers[PICKER_MAX_WORKERS];
    struct link *greeting[ROUTER_MAX_LINKS];       /* accepted, no HELLO yet */
    struct router_rival rivals[ROUTER_MAX_RIVALS]; /* the oldest gives way; n_refused 0: none */
    struct router_model models[ROUTER_MAX_MODELS];
    uint32_t n_models;
    struct picker_fleet *fleet; /* rows of workers, and their ledgers, by slot */
    struct picker_index *index;
    struct picker_slots lacking[ABILITY_N]; /* workers without that bit */
    uint32_t order;                         /* of equals among workers, this router's own */
    enum daemon_life life;
    struct metric *m_queued, *m_redispatched, *m_handed_off, *m_local, *m_refused, *m_lost;
    struct metric *m_asks, *m_resyncs, *m_reads;
    struct metric *m_known_in_memory, *m_known_on_disk;
    struct metric_family *f_workers;
};

/* workers.c */
/* Takes fd and stranger, also on failure. */
int router_workers_accept(struct router *router, int fd, struct stranger *stranger);
void router_workers_close(struct router *router);
int router_send(struct router *router, uint32_t slot, enum frame_type type, const ProtobufCMessage *message);
bool router_worker_usable(const struct router_worker *worker);

/* models.c */
int router_model_meet(struct router *router, const Baton__ModelInfo *info, uint32_t block_tokens,
                      struct router_model **out);
void router_model_limit(struct router *router, struct router_model *model);
void router_model_fetch(struct router *router, struct router_model *model);
int router_model_part(struct router *router, struct link *from, const Baton__VocabularyPart *part);
void router_models_free(struct router *router);

/* world.c */
/* Whatever of a worker was changed: the picker is told. */
void router_worker_refresh(struct router *router, const struct router_worker *worker);
/* What is known of a worker that may be asked for what it has: also of one that drains. */
bool router_worker_row(const struct router *router, uint32_t slot, struct picker_worker *out);
int router_choose(struct gen_handle *job, struct picker_place *place); /* picker_place_choose's codes */
/* What the job needs and none of the model's usable workers can do, though there are some: E_UNSUPPORTED is
 * its answer then.  0: there is one, or nobody at all. */
uint64_t router_job_lacks(const struct gen_handle *job);

/* A usable worker of its model that is not this one and has not failed it. */
bool router_job_has_other(const struct gen_handle *job, uint32_t slot);

/* blocks.c: what workers have cached */
void router_blocks_up(struct router *router, uint32_t slot);   /* a worker's link is up */
void router_blocks_down(struct router *router, uint32_t slot); /* it is gone: nothing is known of it */
void router_blocks_tick(struct router *router);
void router_blocks_events(struct router *router, uint32_t slot, const Baton__BlockEvents *events);
struct block_slice { /* of what one worker told; borrowed */
    uint32_t slot;
    const struct block_hash *hashes; /* [n], n <= PICKER_SLICE */
    const uint8_t *tiers;            /* [n] enum block_tier */
    size_t n;
    bool is_snapshot; /* nothing came or went: this is what there is */
};

/* The index learns it. */
void router_blocks_apply(struct router *router, const struct block_slice *slice);
/* Sets the job's holder for this placement, and takes off the choice what need not be computed then. */
void router_blocks_choose(struct gen_handle *job, struct picker_place *place);

/* told.c: block events, applied a slice at a time */
void router_told_add(struct router *router, uint32_t slot, const Baton__BlockEvents *events);
void router_told_drop(struct router *router, uint32_t slot); /* PICKER_NONE: all */
bool router_told_work(struct router *router);                /* a slice; whether more waits */

/* dispatch.c: the backend, placement, the ends of a job */
struct backend router_backend(struct router *router);
void router_expire_queued(struct router *router);
void router_job_enter(struct gen_handle *job, enum job_state state);
void router_job_replace(struct gen_handle *job, uint32_t failed_slot); /* a worker failed it: go elsewhere */
void router_job_fail(struct gen_handle *job, int status, const char *type, const char *message,
                     uint32_t retry_s);
void router_job_end(struct gen_handle *job, enum gen_end end);
void router_job_uncharge(struct gen_handle *job, struct job_part *part);
void router_job_free(struct gen_handle *job);

/* chain.c */
/* Hashes as much of the prompt as decides where it is placed.  E_NOMEM. */
int router_chain_begin(struct gen_handle *job);
/* All of it, which the index learns if the job is placed. */
void router_chain_end(struct gen_handle *job);
void router_chains_end(struct router *router); /* of all jobs */

/* submit.c */
int router_job_send(struct gen_handle *job,
                    const struct picker_choice *choice); /* link_send's code, E_NOMEM */

/* stream.c */
int router_stream_tokens(struct router *router, uint32_t slot, const Baton__Tokens *tokens);
void router_stream_worker_lost(struct router *router, uint32_t slot);
void router_stream_end_unproved(struct router *router); /* ends what waited too long for a proof */

/* tokens.c */
uint32_t router_job_answered(const struct gen_handle *job); /* tokens heard, delivered or not */
void router_tokens_deliver(struct gen_handle *job);         /* what the front may be told; may end the job */

/* proof.c */
void router_job_proof(const struct gen_handle *job, struct gen_proof *out);

/* status.c */
int router_status_json(struct router *router, struct buf *out);

#endif
