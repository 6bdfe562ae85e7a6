/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the simulator's files.
 *
 *    run.c       the loop over events, reports, crashes      worker.c   steps, joined into runs
 *    front.c     placement, queue, refusals, ends            cache.c    a worker's blocks: memory, disk, pushes
 *    baseline.c  policies to compare with                    net.c      NICs: hand-offs and pushes
 *    admit.c     refusals by prediction           queue.c    turns of classes and tenants
 *    owner.c     who pushes its blocks            pause.c    streams paused for a higher class
 *    roles.c     roles that follow the load                 routers.c  what all routers learn from workers, and tell each other
 *    learn.c     what a worker learns of its speed, and reports    deadlines.c  requests that waited too long
 *    ahead.c     requests that go ahead                     turns.c    turns of tenants at a worker
 *    hosts.c     cores that workers share
 */
#ifndef FLEET_SIM_SIM_PRIV_H
#define FLEET_SIM_SIM_PRIV_H

#include "base/rng.h"
#include "fleet/sim/agenda_priv.h"
#include "fleet/sim/job_priv.h"
#include "fleet/sim/worker_priv.h"

#define SIM_PAGE_JOBS   1024
#define SIM_MAX_PAGES   2048 /* two million requests under way */
#define SIM_MAX_DEBTORS 4096 /* as the router's queue */

enum sim_end {                  /* why a run ends */
               SIM_END_DONE,    /* the load is over, it was stopped, or rc says what failed */
               SIM_END_CRASHES, /* workers die faster than any of them ends a request; rc is E_LIMIT */
               SIM_END_IDLE     /* requests wait for ever; rc is E_INTERNAL */
};

struct sim {
    const struct sim_opts *opts;
    struct sim_load *load;
    struct sim_result *result;
    uint64_t now_ns;
    struct sim_agenda agenda;
    struct sim_worker *workers; /* [n_workers] */
    struct sim_host *hosts;     /* [n_hosts]; NULL: none */
    uint32_t n_workers, n_hosts;
    struct sim_times slow_times[2];       /* of the first worker in each role */
    struct rate pair_share;               /* of the model, as the routers learn it from reports */
    struct sim_job *pages[SIM_MAX_PAGES]; /* of SIM_PAGE_JOBS; a job never moves */
    uint32_t n_jobs, free_job, n_under_way;
    struct picker_classes classes;
    uint32_t class_order[PICKER_MAX_CLASSES]; /* by priority, the highest first */
    struct sim_router routers[SIM_MAX_ROUTERS];
    uint32_t n_routers, next_router;
    uint32_t n_of_kind[SIM_MAX_CLASSES]; /* requests that came to routers of their own */
    struct picker_place place;           /* kept: it is large */
    struct picker_slots excluded;        /* of place.request (ahead.c) */
    struct block_hash *hashes;           /* [cap_hashes] of the request that is being placed */
    uint32_t cap_hashes;
    uint64_t n_arrivals;
    uint32_t next_slot, next_report;
    bool is_expiring, is_reporting;
    bool is_sharing;  /* the routers tell each other */
    bool has_tenants; /* several were seen */
    bool has_turns;   /* workers take turns of tenants */
    uint64_t tenant;  /* of the latest request */
    bool is_closed;   /* no more arrivals */
    struct rng rng;
    uint64_t nic_busy_ns, disk_busy_ns;
    uint64_t n_vain_crashes; /* in a row, while requests are under way and none is done */
    uint64_t n_done_before;  /* requests done at the latest crash */
    uint32_t n_idle_reports; /* in a row, while requests are under way and nothing else is to come */
    enum sim_end end;
    int rc; /* the first failure */
};

static inline struct sim_job *sim_job_at(const struct sim *sim, uint32_t i)
{
    return &sim->pages[i / SIM_PAGE_JOBS][i % SIM_PAGE_JOBS];
}

void sim_report_begin(struct sim *sim); /* something is under way: workers report */
void sim_add(struct sim *sim, enum sim_kind kind, uint64_t at_ns, uint32_t what, uint32_t stamp);
struct sim_column *sim_column(struct sim *sim);
/* Adds the time since then to a figure of the columns, at this offset: to each column the time that passed in it. */
void sim_column_add_time(struct sim *sim, uint64_t since_ns, size_t field);

/* worker.c */
void sim_line_push(struct sim *sim, struct sim_worker *worker, struct sim_line *line, uint32_t job);
bool sim_line_remove(struct sim *sim, struct sim_worker *worker, struct sim_line *line, uint32_t job);
void sim_worker_reserve(struct sim *sim, struct sim_worker *worker, struct sim_job *job, uint64_t n_tokens);
void sim_worker_release(struct sim *sim, struct sim_worker *worker, struct sim_job *job);
/* Tokens that a job in a seat has been answered by now. */
uint32_t sim_worker_answered(const struct sim_worker *worker, const struct sim_job *job);
/* Steps since the start, with those of the run under way that have ended. */
uint64_t sim_worker_steps_now(const struct sim *sim, const struct sim_worker *worker);
/* The tokens that it has answered by then. */
uint32_t sim_worker_answered_now(const struct sim *sim, const struct sim_worker *worker,
                                 const struct sim_job *job);
double sim_worker_run_s(const struct sim_worker *worker, double n_steps);         /* of the run under way */
void sim_worker_prompt(struct sim *sim, struct sim_worker *worker, uint32_t job); /* a new prompt */
void sim_worker_join(struct sim *sim, struct sim_worker *worker, uint32_t job);   /* its KV has arrived */
void sim_worker_drop(struct sim *sim, struct sim_worker *worker, uint32_t job);   /* cancelled */
void sim_worker_book(struct sim *sim, struct sim_worker *worker); /* that it was busy until now */
void sim_worker_wake(struct sim *sim, struct sim_worker *worker);
void sim_worker_steps_end(struct sim *sim, struct sim_worker *worker);
void sim_worker_crash(struct sim *sim, struct sim_worker *worker);

/* turns.c */
void sim_turns_enter(struct sim *sim, struct sim_worker *worker, struct sim_job *job); /* before a line */
void sim_turns_leave(struct sim_worker *worker, struct sim_job *job); /* nothing if it does not wait */
void sim_turns_clear(struct sim_worker *worker);                      /* all of them leave */
void sim_turns_charge(const struct sim *sim, struct sim_worker *worker, const struct sim_job *job,
                      uint32_t n_tokens);
/* The first job of one of its two lines, and the next one; SIM_NONE: none.  The order lasts until a job enters or leaves. */
uint32_t sim_turns_first(struct sim_worker *worker, const struct sim_line *line);
uint32_t sim_turns_next(const struct sim *sim, struct sim_worker *worker, const struct sim_line *line,
                        uint32_t at);

/* learn.c */
void sim_learn_start(struct sim *sim, struct sim_worker *worker); /* forgets all, measures */
void sim_learn_run(struct sim *sim, struct sim_worker *worker);   /* its run ends now */
/* The most prompt tokens that the scheduler adds to a step of the decoding sequences. */
uint32_t sim_learn_chunk(const struct sim *sim, const struct sim_worker *worker, uint32_t position);
/* True if the model's cost of attention has changed since an idle worker's report that used it. */
bool sim_learn_is_stale(const struct sim *sim, const struct sim_worker *worker);
/* Sets the rates of the worker's next report. */
void sim_learn_report(struct sim *sim, struct sim_worker *worker);

/* cache.c */
/* Prefetch for later calls on the request's blocks; the second call a while after the first. */
void sim_cache_ask(const struct sim_worker *worker, const struct sim_request *request);
void sim_cache_ask_more(const struct sim_worker *worker, const struct sim_request *request);
uint32_t sim_cache_held(const struct sim_worker *worker, const struct sim_request *request); /* blocks */
void sim_cache_store(struct sim *sim, struct sim_worker *worker, const struct sim_request *request);
/* Other workers have the first n_blocks too. */
void sim_cache_share(struct sim *sim, struct sim_worker *worker, const struct sim_request *request,
                     uint32_t n_blocks);
void sim_cache_trim(struct sim *sim, struct sim_worker *worker);
/* The prompt's tokens on its worker: sets n_left and ready_ns, and starts pushes and reads. */
void sim_cache_begin(struct sim *sim, struct sim_job *job, const struct picker_owner *owner);
void sim_cache_again(struct sim *sim, struct sim_worker *worker, struct sim_job *job); /* it begins */
struct block_hash sim_block_hash(uint64_t id);

/* net.c */
struct sim_transfer {
    struct sim_worker *from, *to;
    double bytes, *sum_bytes; /* of the result, which gets them too */
    uint64_t from_ns;
};
/* Both return when the last byte is there: from->to, or in memory from the worker's disk once the job is ready. */
uint64_t sim_net_send(struct sim *sim, struct sim_job *job, const struct sim_transfer *transfer);
uint64_t sim_net_read(struct sim *sim, struct sim_job *job, struct sim_worker *worker, double bytes);
void sim_net_stop(struct sim *sim, struct sim_job *job); /* the rest of its transfer will not come */

/* front.c */
void sim_front_submit(struct sim *sim, const struct sim_request *request);
void sim_front_prefilled(struct sim *sim, uint32_t job); /* the first token */
void sim_front_joined(struct sim *sim, uint32_t job);    /* KV has arrived at the decode worker */
void sim_front_ended(struct sim *sim, uint32_t job);
void sim_front_cancel(struct sim *sim, uint32_t job);
void sim_front_lost(struct sim *sim, uint32_t slot); /* a worker died: places its jobs again */
void sim_front_report(struct sim *sim, uint32_t slot);

/* admit.c */
void sim_admit_goals(const struct sim *sim, const struct sim_job *job, struct picker_goals *goals);
uint32_t sim_admit_answer(const struct sim_job *job); /* tokens still expected */
/* Whether the job may wait; rc: of its choice, which is in sim->place. */
bool sim_admit_takes(struct sim *sim, struct sim_job *job, int rc);
bool sim_admit_is_late(const struct sim *sim, const struct sim_job *job);
/* is_owed: it takes its turn at the worker, which the queue's prediction does not cover. */
void sim_admit_placed(const struct sim *sim, struct sim_job *job, const struct picker_choice *choice,
                      bool is_owed);
void sim_admit_first_token(struct sim_job *job, uint64_t received_ns);
void sim_admit_ended(struct sim *sim, const struct sim_job *job, double itl_s);
/* Charges the job's tenant for n tokens. The job holds the tenant's flow. */
void sim_admit_charge(struct sim *sim, const struct sim_job *job, uint32_t n_tokens);
void sim_admit_note_refusal(struct sim *sim, const struct sim_job *job);

/* ahead.c */
void sim_ahead_enter(struct sim *sim, struct sim_job *job); /* it was placed; may be repeated */
/* Its worker begins it, or it ends; may be repeated. */
void sim_ahead_leave(struct sim *sim, struct sim_job *job);
/* True if the job is placed at sim->place.choice although no placement keeps the objectives.  is_judged: admission asks
 * whether it may wait for that. */
bool sim_ahead_goes(struct sim *sim, struct sim_job *job, bool is_judged);

/* routers.c */
int sim_routers_open(struct sim *sim);
void sim_routers_close(struct sim *sim);
int sim_routers_report(struct sim *sim, uint32_t slot);
void sim_routers_placed(struct sim *sim, const struct sim_job *job);
struct sim_router *sim_routers_next(struct sim *sim,
                                    const struct sim_request *request); /* that it comes to */
void sim_routers_served(struct sim *sim, const struct sim_job *job, uint32_t n_tokens);
/* The service of the job's tenant and of others, as its router knows it. */
void sim_routers_service(const struct sim *sim, const struct sim_job *job, struct picker_service_view *out);
void sim_routers_share_begin(struct sim *sim); /* something is under way: routers tell each other */
void sim_routers_share(struct sim *sim, uint32_t from);
void sim_routers_stored(struct sim *sim, uint32_t slot, const struct sim_request *request);
void sim_routers_evicted(struct sim *sim, uint32_t slot, const struct block_hash *hashes, size_t n);
void sim_routers_moved(struct sim *sim, uint32_t slot, const struct block_hash *hashes,
                       size_t n); /* to disk */
void sim_routers_forget(struct sim *sim, uint32_t slot);

/* roles.c */
void sim_roles_row(const struct sim *sim,
                   struct sim_worker *worker); /* the parts of its report that depend on the role */
void sim_roles_tick(struct sim *sim);          /* may decide on roles */
void sim_roles_end(struct sim *sim, struct sim_worker *worker);

/* owner.c: the owner for sim->place, and the time that its push saves; slot PICKER_NONE stays: no push */
void sim_owner_find(struct sim *sim, struct picker_owner *out);

/* baseline.c */
double sim_worker_queue_s(const struct sim *sim, const struct sim_worker *worker); /* time of its prompts */
/* 0 or E_NOT_FOUND */
int sim_baseline_choose(struct sim *sim, struct sim_job *job, struct picker_choice *out,
                        struct picker_owner *owner_out);

#endif
