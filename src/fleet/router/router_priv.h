/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the router's files. Everything here belongs to the one loop thread. */
#ifndef FLEET_ROUTER_ROUTER_PRIV_H
#define FLEET_ROUTER_ROUTER_PRIV_H

#include "base/hashmap.h"
#include "base/list.h"
#include "base/span.h"
#include "base/event/jobs.h"
#include "base/event/loop.h"
#include "base/event/service.h"
#include "serve/endpoint/admin.h"
#include "serve/endpoint/handle.h"
#include "serve/setup/link_access.h"
#include "serve/prompt/scores.h"
#include "base/metrics/metrics.h"
#include "net/link/addr.h"
#include "net/link/link.h"
#include "net/link/listener.h"
#include "fleet/picker/owner.h"
#include "fleet/picker/index.h"
#include "fleet/picker/place.h"
#include "fleet/picker/refusal.h"
#include "cache/prefix/block_queue.h"
#include "proto/capabilities.h"
#include "fleet/router/chain_priv.h"
#include "fleet/router/job_priv.h"
#include "fleet/router/names_priv.h"
#include "fleet/router/pause_priv.h"
#include "fleet/router/queue_priv.h"
#include "fleet/router/router_conf.h"
#include "fleet/router/slices_priv.h"
#include "fleet/router/stores_priv.h"
#include "fleet/router/workers_priv.h"

#define ROUTER_MAX_LINKS     (2 * PICKER_MAX_WORKERS)
#define ROUTER_MAX_STRANGERS 512 /* links accepted on the link port whose TLS handshake has not finished */

struct router_admission {
    struct metric *m_refusals[PICKER_MAX_CLASSES][REFUSAL_REASONS];
    struct metric *m_placed[PICKER_MAX_CLASSES];
    struct metric *m_late, *m_early, *m_margin;
};

struct decisions;
struct router_check; /* check_priv.h */

struct router_roles { /* roles.c */
    uint64_t next_ns; /* of the next decision */
    struct metric_family *f_wanted, *f_room, *f_reason;
    struct metric *m_changes;
};

struct router_snapshots {              /* blocks.c: snapshots of the workers' blocks */
    struct picker_slots wanting;       /* workers whose snapshot the router will ask for */
    struct picker_slots asked;         /* ... and has asked for, but not received whole */
    uint32_t n_wanting, n_asked, turn; /* turn: the last worker asked */
};

struct router {
    const struct router_conf *conf;
    struct ev_loop *loop;
    struct ev_jobs *job_threads; /* NULL: the loop builds models itself */
    struct ev_timer *tick;
    struct metrics *metrics;
    struct span_queue *spans;           /* of sampled traces; NULL: there is no exporter */
    struct listener *links;             /* listens for workers */
    char link_address[ADDR_TEXT_BYTES]; /* of links, with the real port */
    struct link_opts link_opts;
    struct list jobs;
    struct gen_outbox outbox; /* the jobs' events for the front */
    struct list queue;        /* jobs that wait for a placement, by arrival */
    struct list timed;        /* jobs in one of JOB_TIMED */
    struct router_slices slices;
    struct router_queue turns;
    struct router_admission admission;
    struct router_pauses pauses;
    struct picker_classes classes;
    uint32_t n_queued_of[PICKER_MAX_CLASSES]; /* of n_queued */
    struct list unhashed;                     /* jobs whose chains are not DONE */
    struct list unsent;                       /* placed jobs whose workers lack tokens */
    bool places_soon;                         /* queued jobs may be placed in the loop's next turn */
    struct router_snapshots snapshots;
    struct block_queue pending; /* pending block events; its sources: worker slots */
    struct ev_timer *turn;      /* applies pending events; NULL: the owner calls router_blocks_work() */
    uint32_t n_queued;
    struct hashmap *by_number;
    uint64_t n_freed; /* jobs freed since the start */
    uint64_t next_number, epoch;
    struct link_access *access; /* borrowed from the daemon */
    uint8_t prefix_key[32], sign_key[32];
    struct router_worker workers[PICKER_MAX_WORKERS];
    struct link *greeting[ROUTER_MAX_LINKS];       /* accepted, no HELLO yet */
    struct router_rival rivals[ROUTER_MAX_RIVALS]; /* a new one replaces the oldest; n_refused 0: free */
    struct router_model models[ROUTER_MAX_MODELS];
    uint32_t n_models;
    uint64_t started_ns;
    bool is_restarted;          /* a worker returned that an earlier router process knew: others may too */
    struct picker_fleet *fleet; /* rows of workers and their ledgers, by slot */
    struct picker_index *index;
    struct router_stores stores;
    struct picker_slots lacking[CAPABILITY_N]; /* workers without that capability bit */
    struct router_roles roles;
    struct router_check *check;       /* the last check of the network; NULL: none yet */
    struct decisions *decisions;      /* decisions_priv.h; NULL: none are kept */
    struct router_spending *spending; /* limits common to several routers; NULL: no keys, no limits */
    struct router_state *shared;      /* state.c; NULL: before the links are built */
    struct router_relay *relay;       /* relay.c; NULL: the shared store carries the messages */
    struct router_kept *kept;         /* kept.c; NULL: the shared store keeps what routers have in common */
    enum daemon_life life;
    struct metric *m_resumed;
    struct metric *m_queued, *m_redispatched, *m_handed_off, *m_local, *m_refused, *m_lost;
    struct metric *m_asks, *m_resyncs, *m_reads;
    struct metric *m_known_in_memory, *m_known_on_disk, *m_known_in_store, *m_store_reads;
    struct metric_family *f_workers;
};

/* workers.c */
/* Takes fd and stranger, also on failure. */
int router_workers_accept(struct router *router, int fd, struct stranger *stranger);
void router_workers_close(struct router *router);
int router_send(struct router *router, uint32_t slot, enum frame_type type, const ProtobufCMessage *message);
bool router_worker_usable(const struct router_worker *worker);
/* A worker failed a job: its part ended with an error, was wrong, or the link is lost.  Calls no job. */
void router_worker_failed(struct router *router, uint32_t slot, int error);
const char *router_role_text(enum picker_role role);
/* Asks the worker to take the role; its next report confirms it. E_CLOSED, E_UNSUPPORTED, link_send's codes. */
int router_worker_set_role(struct router *router, uint32_t slot, Baton__Role role, struct fault *fault);
int router_role_order(struct router *router, const struct admin_role *wanted, struct fault *fault);

/* models.c */
/* Finds the model of a worker that registers, or makes one.  place: the slot that the worker takes.
 * E_MISMATCH: another connected worker of the model has blocks of another size.  E_LIMIT. */
int router_model_meet(struct router *router, const Baton__Hello *hello, const struct router_worker *place,
                      struct router_model **out, struct fault *fault);
/* True if a connected worker has it. */
struct router_model *router_model_find(struct router *router, const char *fingerprint); /* NULL: none */
bool router_model_is_linked(const struct router *router, const struct router_model *model);
void router_model_limit(struct router *router, struct router_model *model);
void router_model_fetch(struct router *router, struct router_model *model);
int router_model_part(struct router *router, struct link *from, const Baton__VocabularyPart *part);
void router_models_free(struct router *router);

/* view.c: the cluster view */
/* Call after any change to a worker: updates its row in the fleet. */
void router_worker_refresh(struct router *router, const struct router_worker *worker);
/* The row of a worker that may serve a prefix fetch; a draining worker has one too. False: none. */
bool router_worker_row(const struct router *router, uint32_t slot, struct picker_worker *out);
int router_choose(struct job *job, struct picker_place *place); /* picker_place_choose()'s codes */
/* Fills in the inputs of the choice. */
void router_choose_prepare(struct job *job, struct picker_place *place, struct picker_goals *goals);
/* The capabilities that the job needs and that no usable worker of its model has; the job then fails with
 * E_UNSUPPORTED. 0: one worker has all of them, or the model has no usable worker. */
uint64_t router_job_lacks(const struct job *job);

/* True if its model has another usable worker than `slot` that has not failed the job. */
bool router_job_has_other(const struct job *job, uint32_t slot);

/* blocks.c: the blocks that workers have cached */
void router_blocks_init(struct router *router);              /* ended by block_queue_fini(&router->pending) */
void router_blocks_up(struct router *router, uint32_t slot); /* a worker's link is up */
void router_blocks_down(struct router *router, uint32_t slot); /* its link is down: forgets its blocks */
void router_blocks_tick(struct router *router);
void router_blocks_events(struct router *router, uint32_t slot, const Baton__BlockEvents *events);
bool router_blocks_work(struct router *router); /* applies a slice of events; true: more are pending */
/* Chooses the owner for a prefix fetch with this placement; the choice loses the tokens that it saves. */
void router_blocks_choose(struct job *job, struct picker_place *place);

/* job.c */
void router_job_enter(struct job *job, enum job_state state); /* the only place that changes it */

/* refusals.c */
/* Queues or refuses a job that no worker can take now; rc: why. The caller frees a refused job. */
int router_wait_or_refuse(struct job *job, int rc, struct gen_failure *failure_out);
void router_expire_queued(struct router *router); /* refuses jobs that have waited for too long, in slices */

/* dispatch.c: the backend, placement, and a job's end */
struct backend router_backend(struct router *router);
int router_jobs_open(struct router *router); /* with the outbox, which the owner closes; E_NOMEM */
void router_job_replace(struct job *job, uint32_t failed_slot, int error); /* a worker failed it */
/* Cancels it at its workers; their stats go into its sum. */
void router_job_detach(struct job *job);
void router_job_fail(struct job *job, int status, const char *type, const char *message, uint32_t retry_s);
void router_job_end(struct job *job, enum work_end end);
void router_job_uncharge(struct job *job, struct job_part *part);
void router_job_free(struct job *job);
/* Makes a job in no queue and at no worker. Takes the order, also on failure. E_NOMEM. */
int router_job_make(struct router *router, const struct gen_model *model, struct work_order *order,
                    struct job **out);
void router_job_number(struct job *job); /* a new number, not in by_number yet; no workers */
/* True if it replaces an earlier router process whose workers may still return. */
bool router_is_returning(const struct router *router);

/* resume.c: streams that another router began */
int router_resume(void *self, const struct gen_start *start, struct gen_handle **out,
                  struct gen_failure *failure_out); /* backend_ops.resume */
void router_resume_answer(struct router *router, uint32_t slot, const Baton__Resumed *resumed);
void router_resume_worker_up(struct job *job, uint32_t slot);
/* Takes a packed order in place of the job's own, and the model of its worker, which has the same name.
 * E_PROTO, E_UNSUPPORTED, E_NOT_FOUND (of another prompt), E_NOMEM. */
/* True if the stream may continue with this model: the first router may have used another file of that name. */
bool router_resume_concerns(const struct job *job, const struct router_model *model);
int router_resume_take(struct job *job, const Baton__Resumed *resumed, struct router_model *model);
/* 404; 503: a worker has not replied, or E_CLOSED, this router is stopping; 500: E_NOMEM. */
void router_resume_fail(struct job *job, int rc);
void router_resume_tick(struct job *job, uint64_t now_ns); /* RESUMING */

/* router_metrics.c */
void router_declare_metrics(struct router *router);

/* trace.c */
void router_trace_declare(void);
void router_trace_job(const struct job *job); /* logs its prompt's prefixes, if log.prefixes is on */

/* submit.c */
int router_job_send(struct job *job); /* to its estimate's workers, or later; link_send's code, E_NOMEM */
/* Sends one job, or the next piece of a long prompt.  True: there is more to send now. */
bool router_jobs_send(struct router *router);

/* stream.c */
int router_stream_tokens(struct router *router, uint32_t slot, const Baton__Tokens *tokens);
/* In slices: the worker's link is lost, or a new process is up. Its jobs go elsewhere, or may be placed there again. */
void router_stream_worker_lost(struct router *router);
void router_stream_worker_up(struct router *router, uint32_t slot);
/* Ends the waits of JOB_TIMED that took too long, in slices. */
void router_stream_tick(struct router *router);
/* Call it when the prefill worker's report will not come soon.  The front gets on_accepted from the decode worker's
 * report, and the held tokens. */
void router_job_release(struct job *job);

/* tokens.c */
uint32_t router_job_answered(const struct job *job);               /* tokens received, delivered or not */
void router_tokens_end(const struct job *job, Baton__Cancel *out); /* how a complete answer ended */

/* serving.c */
void router_job_serving(const struct job *job, struct gen_serving *out);

/* roles.c */
void router_roles_declare(struct router *router);
void router_roles_tick(struct router *router);
/* Takes the role's age from a report. has_changed: the role is a new one. */
void router_roles_receive(struct router_worker *worker, bool has_changed, uint64_t age_ms);
void router_roles_ended(const struct job *job); /* counts its answer, if it has one, in the load */
void router_roles_put(const struct router *router, struct buf *out); /* for the status */

/* status.c */
/* Appends part 0, 1, 2 ... of the status, each with some of the workers. 1: more parts follow. */
int router_status_json(struct router *router, uint32_t part, struct buf *out);

#endif
