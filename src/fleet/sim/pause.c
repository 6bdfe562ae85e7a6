/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses in virtual time: a request of a higher class takes the seat of running streams of lower classes.
 *
 *      high: no placement keeps its objectives --fleet/picker/pause.c: without these streams one does--+
 *                                                                                                     |
 *      low:  DECODING --leaves its seat, its blocks stay in the worker's cache--> PAUSED <------------+
 *            PAUSED --a placement keeps the objectives, and no higher class waits--> placed with its tokens
 *            PAUSED --paused for as long as its class allows--> placed at the least bad worker
 *
 * fleet/picker/pause.c has the choice and the rules, for the router and for this file.  This file has the lists of
 * streams, as fleet/router/pause.c does, without clients and links.
 *
 * A worker's cache holds whole prompts, by their blocks.  A paused stream adds the blocks of its answer, if the load
 * gives its blocks no ids of their own.  Otherwise it computes its answer's tokens again. */
#include "base/clock.h"
#include "base/err.h"
#include "fleet/picker/pause.h"
#include "fleet/sim/queue_priv.h"

struct pause_found {
    struct picker_stream streams[PICKER_PAUSE_STREAMS];
    struct sim_job *jobs[PICKER_PAUSE_STREAMS]; /* of the same streams */
    uint32_t n, n_looked;
};

void sim_pause_open(struct sim_router *router)
{
    for (uint32_t i = 0; i < PICKER_MAX_CLASSES; i++) {
        list_init(&router->pauses.paused[i]);
        list_init(&router->pauses.seated[i]);
    }
}

/* ---- the lists ---- */

uint64_t sim_pause_itl_ns(const struct sim *sim, const struct sim_job *job)
{
    return picker_pause_itl_ns(&sim->classes, sim_job_class_at(sim, job), job->router->pauses.n_at_workers);
}

void sim_pause_over(struct sim *sim, struct sim_job *job)
{
    if (job->state != SIM_PAUSED)
        return;
    list_remove(&job->stream);
    job->router->pauses.n_paused--;
    job->past.paused_ns += sim->now_ns - job->paused_ns;
    job->past.went_on_at = job->n_answered;
    sim->result->classes[job->request.kind].paused_s += (double)(sim->now_ns - job->paused_ns) / 1e9;
}

void sim_pause_placed(struct sim *sim, struct sim_job *job)
{
    sim_pause_over(sim, job);
    job->router->pauses.n_at_workers[job->class_at]++;
}

void sim_pause_seat(struct sim *sim, struct sim_job *job)
{
    if (sim_job_class(sim, job)->pause_ns > 0)
        list_push_front(&job->router->pauses.seated[job->class_at], &job->stream);
}

void sim_pause_unseat(struct sim_job *job)
{
    list_remove(&job->stream);
    job->router->pauses.n_at_workers[job->class_at]--;
}

/* ---- pausing ---- */

static bool sim_pause_may(const struct sim *sim, const struct sim_job *job)
{
    uint32_t answered = sim_worker_answered_now(sim, &sim->workers[job->decode], job);

    return answered < job->request.answer_tokens &&
           picker_pause_may(&job->past, answered, sim_job_class(sim, job)->pause_ns);
}

static void sim_pause_look(const struct sim *sim, const struct sim_job *job, uint32_t class_at,
                           struct pause_found *found)
{
    const struct list *seated = &job->router->pauses.seated[class_at];

    list_for_each (node, seated) {
        struct sim_job *stream = container_of(node, struct sim_job, stream);

        if (found->n == PICKER_PAUSE_STREAMS || found->n_looked++ == PICKER_PAUSE_LOOKED)
            return;
        if (!sim_pause_may(sim, stream))
            continue;
        found->jobs[found->n] = stream;
        found->streams[found->n++] = (struct picker_stream){
            .booking = &stream->booked[1],
            .context_tokens = stream->request.prompt_tokens +
                              sim_worker_answered_now(sim, &sim->workers[stream->decode], stream)};
    }
}

/* Lists streams of lower classes: the lowest class first, and in each class the youngest first. */
static void sim_pause_search(const struct sim *sim, const struct sim_job *job, struct pause_found *found)
{
    found->n = found->n_looked = 0;
    for (uint32_t i = sim->classes.n; i-- > 0;)
        if (sim->classes.all[sim->class_order[i]].priority < sim_job_class(sim, job)->priority)
            sim_pause_look(sim, job, sim->class_order[i], found);
}

/* The worker caches the blocks of the answer too, and the routers learn of them. */
static void sim_pause_cache(struct sim *sim, struct sim_job *job, uint32_t slot)
{
    if (job->request.ids == NULL && job->request.n_blocks < job->n_given / sim->opts->block_tokens)
        job->request.n_blocks = job->n_given / sim->opts->block_tokens;
    sim_cache_store(sim, &sim->workers[slot], &job->request);
    for (uint32_t i = 0; sim->n_routers == 1 && i < job->request.n_blocks; i++) {
        struct block_hash hash = sim_block_hash(sim_block_id(&job->request, i));

        picker_index_learn(job->router->index, slot, &hash, 1, sim->now_ns);
    }
}

static void sim_pause_stream(struct sim *sim, struct sim_job *stream)
{
    struct sim_router *router = stream->router;
    struct sim_worker *worker = &sim->workers[stream->decode];
    uint32_t slot = stream->decode;

    stream->n_answered = sim_worker_answered_now(sim, worker, stream);
    stream->n_given = stream->request.prompt_tokens + stream->n_answered;
    stream->latest_ns = sim->now_ns;
    sim_worker_drop(sim, worker, stream->number);
    picker_booking_cancelled(router->fleet, &stream->booked[1], stream->n_given, sim->now_ns);
    sim_front_leave_worker(sim, stream, 1);
    sim_pause_cache(sim, stream, slot);
    stream->is_again = true;
    stream->past.n++;
    stream->paused_ns = sim->now_ns;
    stream->state = SIM_PAUSED;
    list_push_back(&router->pauses.paused[stream->class_at], &stream->stream);
    router->pauses.n_paused++;
    sim->result->classes[stream->request.kind].n_pauses++;
    sim_queue_watch(sim);
}

/* True if waiting requests come before it: those of a higher class and, for a new request, of the same priority. */
static bool sim_pause_is_passing(const struct sim *sim, const struct sim_job *job)
{
    uint32_t least = sim_job_class(sim, job)->priority + (job->state == SIM_QUEUED);

    for (uint32_t i = 0; i < sim->classes.n; i++)
        if (sim->classes.all[i].priority >= least && job->router->n_queued_of[i] > 0)
            return true;
    return false;
}

static bool sim_pause_has_lower(const struct sim *sim, const struct sim_job *job)
{
    for (uint32_t i = 0; i < sim->classes.n; i++)
        if (sim->classes.all[i].priority < sim_job_class(sim, job)->priority &&
            !list_is_empty(&job->router->pauses.seated[i]))
            return true;
    return false;
}

static bool sim_pause_and_place(struct sim *sim, struct sim_job *job, const struct pause_found *found)
{
    struct picker_goals goals;
    struct picker_pause pause;

    if (!sim_front_choose_prepare(sim, job, &goals) ||
        !picker_pause_choose(&sim->place, &goals, found->streams, found->n, &pause))
        return false;
    for (uint32_t i = 0; i < pause.n; i++)
        sim_pause_stream(sim, found->jobs[pause.chosen[i]]);
    return sim_front_try(sim, job) == 0; /* if this fails, the queue's next turn continues the streams */
}

static bool sim_pause_tries(struct sim *sim, struct sim_job *job)
{
    struct pause_found found;

    sim_pause_search(sim, job, &found);
    if (found.n == 0)
        return false;
    /* a new request was not tried before, because lower classes wait */
    return (job->state != SIM_QUEUED && sim_front_try(sim, job) == 0) ||
           sim_pause_and_place(sim, job, &found);
}

bool sim_pause_for(struct sim *sim, struct sim_job *job)
{
    struct sim_pauses *pauses = &job->router->pauses;
    struct picker_choice choice = sim->place.choice;
    bool is_waiting = job->state == SIM_QUEUED;

    job->awaits_pause = false;
    if (!sim->opts->refuses_early || job->is_again || !sim_pause_has_lower(sim, job) ||
        (is_waiting && sim->now_ns - pauses->failed_ns < PICKER_PAUSE_RETRY_NS) ||
        sim_pause_is_passing(sim, job) || (!is_waiting && sim_pause_is_first(sim, job)))
        return false;
    job->awaits_pause = !picker_pause_affords(&pauses->budget, PICKER_PAUSE_COST, sim->now_ns);
    if (job->awaits_pause)
        return false;
    if (sim_pause_tries(sim, job))
        return true;
    if (is_waiting)
        pauses->failed_ns = sim->now_ns;
    sim->place.choice = choice;
    return false;
}

/* ---- continuing ---- */

bool sim_pause_is_first(const struct sim *sim, const struct sim_job *job)
{
    const struct sim_pauses *pauses = &job->router->pauses;

    for (uint32_t i = 0; pauses->n_paused > 0 && i < sim->classes.n; i++)
        if (sim->classes.all[i].priority >= sim_job_class(sim, job)->priority &&
            !list_is_empty(&pauses->paused[i]))
            return true;
    return false;
}

bool sim_pause_go_on(struct sim *sim, struct sim_router *router, uint32_t class_at)
{
    uint32_t n = 0;

    if (router->pauses.n_paused == 0)
        return false;
    list_for_each_safe (node, spare, &router->pauses.paused[class_at]) {
        struct sim_job *stream = container_of(node, struct sim_job, stream);

        if (n++ == PICKER_PAUSE_GO_ON || !picker_pause_affords(&router->pauses.budget, 1, sim->now_ns))
            return false;
        if (sim_front_try(sim, stream) == 0)
            return true;
    }
    return false;
}

void sim_pause_tick(struct sim *sim, struct sim_router *router)
{
    for (uint32_t i = 0; router->pauses.n_paused > 0 && i < sim->classes.n; i++) {
        list_for_each_safe (node, spare, &router->pauses.paused[i]) {
            struct sim_job *stream = container_of(node, struct sim_job, stream);
            uint64_t paused_ns = stream->past.paused_ns + (sim->now_ns - stream->paused_ns);

            if (paused_ns < sim->classes.all[i].pause_ns && picker_fleet_n_usable(router->fleet, 0) > 0)
                continue;
            sim_pause_over(sim, stream);
            stream->state =
                SIM_PROMPT; /* as a stream whose worker was lost: it does not wait for objectives */
            if (sim_front_try(sim, stream) < 0 && sim->rc == 0)
                sim_queue_add(sim, stream);
        }
    }
}
