/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses: a request of a higher class takes the seat of running streams of lower classes.
 *
 *      high: no placement keeps its objectives --fleet/picker/pause.c: without these streams one does--+
 *                                                                                                     |
 *      low:  ANSWERING --CANCEL to its worker, which keeps the blocks in its cache--> PAUSED <--------+
 *            PAUSED --a placement keeps the objectives, and no higher class waits--> ANSWERING, SUBMIT with its tokens
 *            PAUSED --paused for class.pause_ns in all--> REQUEUED: as a stream whose worker was lost
 *
 * The worker that continues the stream finds the blocks in its cache, fetches them, or computes them. A sample
 * depends on (seed, position) and on the tokens before it, so the answer is the same. The client gets pings
 * meanwhile.
 *
 * No stream is paused for ever, or twice without progress (picker_pause_may()).  It is continued only if the time
 * between tokens stays within the objectives of the higher classes with running streams of its model (picker_pause_itl_ns()).
 * Otherwise it would take back their seat at once, and the next request would pause it again.
 *
 * A paused stream that no connected worker could run is requeued at once, like a stream whose worker was lost;
 * queue.resume_timeout bounds its wait.
 *
 * Bounds: a request visits PICKER_PAUSE_LOOKED streams and considers PICKER_PAUSE_STREAMS of them. A waiting request
 * tries again PICKER_PAUSE_RETRY_NS after the last failed attempt of any waiting request of its model. All pauses and continuations
 * together try a bounded number of placements (picker_pause_affords()). A placement over 1,000 workers takes 20 us, so this costs the loop one
 * millisecond in ten. Further attempts wait for the next budget. */
#include "fleet/router/router_priv.h"
#include "fleet/router/admission_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "fleet/picker/pause.h"
#include "fleet/router/job_spans_priv.h"

struct pause_search {
    struct picker_stream streams[PICKER_PAUSE_STREAMS];
    struct job *jobs[PICKER_PAUSE_STREAMS]; /* of the same streams */
    uint32_t n, n_looked;
};

void router_pause_open(struct router *router)
{
    for (uint32_t at = 0; at < ROUTER_MAX_MODELS; at++)
        for (uint32_t i = 0; i < PICKER_MAX_CLASSES; i++) {
            list_init(&router->pauses.models[at].paused[i]);
            list_init(&router->pauses.models[at].seated[i]);
        }
}

static struct model_pauses *pauses_of(struct router *router, const struct router_model *model)
{
    return &router->pauses.models[model - router->models];
}

void router_pause_declare(struct router *router)
{
    static const double bounds[] = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
    struct router_pauses *pauses = &router->pauses;
    struct metric_family *begun = metric_family(
        router->metrics, METRIC_COUNTER, "baton_router_pauses_total",
        "Times that a running stream was paused for a request of a higher class, by its class.", "class");

    for (uint32_t at = 0; at < router->classes.n; at++) {
        const char *name = router->classes.all[at].name;

        pauses->m_begun[at] = metric_series(begun, &name);
    }
    pauses->m_now =
        metric_single(router->metrics, METRIC_GAUGE, "baton_router_paused", "Streams that are paused now.");
    pauses->m_seconds =
        metric_series(metric_histogram_family(router->metrics, "baton_router_pause_seconds",
                                              "How long streams were paused.", "", METRIC_BOUNDS(bounds)),
                      NULL);
}

/* ---- the budget ---- */

/* Takes n placements from the budget. False: the budget has too few; a timer calls again when it has enough. */
static bool pause_affords(struct router_pauses *pauses, uint32_t n_placements)
{
    uint64_t now_ns = clock_now_ns();

    if (picker_pause_affords(&pauses->budget, n_placements, now_ns))
        return true;
    if (pauses->turn != NULL)
        ev_timer_start(pauses->turn, pauses->budget.since_ns + PICKER_PAUSE_BUDGET_NS - now_ns);
    return false;
}

/* ---- the lists ---- */

static void pause_over(struct job *job)
{
    struct router_pauses *pauses = &job->router->pauses;
    uint64_t took_ns = clock_now_ns() - job->paused_ns;

    list_remove(&job->waiting);
    job->pauses_ns += took_ns;
    job->went_on_at = router_job_answered(job);
    metric_set(pauses->m_now, --pauses->n_paused);
    metric_observe(pauses->m_seconds, (double)took_ns / (double)NS_PER_S);
}

void router_pause_track(struct job *job, enum job_state was)
{
    struct router_model *model = job->model;
    uint32_t at = job->class_at;

    model->n_seated[at] += job_is_in(job, JOB_AT_WORKERS);
    model->n_seated[at] -= (JOB_AT_WORKERS >> was & 1) != 0;
    model->n_paused[at] += job->state == JOB_PAUSED;
    model->n_paused[at] -= was == JOB_PAUSED;
    if (was == JOB_PAUSED)
        pause_over(job);
    if (job->state != JOB_ANSWERING)
        list_remove(&job->seated);
    else if (was != JOB_ANSWERING && job->router->classes.all[at].pause_ns > 0)
        list_push_front(&pauses_of(job->router, model)->seated[at], &job->seated);
}

uint64_t router_pause_itl_ns(const struct job *job)
{
    const struct router *router = job->router;

    if (router->conf->classes.n == 0) /* so that a reload takes effect */
        return router_job_class(job).itl_slo_ns;
    return picker_pause_itl_ns(&router->classes, job->class_at, job->model->n_seated);
}

/* ---- pausing ---- */

/* True if it runs at its decode worker alone, has made progress, and has pause time left. */
static bool pause_may(const struct job *job)
{
    const struct picker_pause_past past = {
        .n = job->n_pauses, .went_on_at = job->went_on_at, .paused_ns = job->pauses_ns};
    uint32_t answered = router_job_answered(job);

    return job->decode.state == PART_RUNNING && !router_part_is_lost(job, &job->decode) &&
           job->prefill.state != PART_RUNNING && job->score_next == 0 && job->n_sent == job->n_to_send &&
           answered < job->order.work.max_new_tokens && /* else only its final message is missing */
           picker_pause_may(&past, answered, job->router->classes.all[job->class_at].pause_ns);
}

static void pause_look(const struct job *job, uint32_t class_at, struct pause_search *search)
{
    const struct list *seated = &pauses_of(job->router, job->model)->seated[class_at];

    list_for_each (node, seated) {
        struct job *stream = container_of(node, struct job, seated);

        if (search->n == PICKER_PAUSE_STREAMS || search->n_looked++ == PICKER_PAUSE_LOOKED)
            return;
        if (!pause_may(stream))
            continue;
        search->jobs[search->n] = stream;
        search->streams[search->n++] = (struct picker_stream){.booking = &stream->decode.booking,
                                                              .context_tokens = stream->order.n_tokens};
    }
}

/* Lists streams of lower classes: the lowest class first, and in each class the youngest first, which lose least. */
static void pause_search(const struct job *job, struct pause_search *search)
{
    const struct picker_classes *classes = &job->router->classes;
    uint32_t order[PICKER_MAX_CLASSES];

    search->n = search->n_looked = 0;
    picker_classes_order(classes, order);
    for (uint32_t i = classes->n; i-- > 0;)
        if (classes->all[order[i]].priority < router_job_class(job).priority)
            pause_look(job, order[i], search);
}

static void pause_stream(struct job *stream, const struct job *by)
{
    struct router_pauses *pauses = &stream->router->pauses;

    picker_booking_cancelled(stream->router->fleet, &stream->decode.booking, stream->order.n_tokens,
                             clock_now_ns());
    router_spans_over(stream, 0);
    router_job_detach(stream);
    stream->sum.n_preempted++;
    stream->n_pauses++;
    stream->paused_ns = clock_now_ns();
    router_job_enter(stream, JOB_PAUSED);
    list_push_back(&pauses_of(stream->router, stream->model)->paused[stream->class_at], &stream->waiting);
    metric_add(pauses->m_begun[stream->class_at], 1);
    metric_set(pauses->m_now, ++pauses->n_paused);
    log_info("stream_paused", LOG_STR("request", stream->order.work.request_id),
             LOG_STR("for", by->order.work.request_id), LOG_U64("answered", router_job_answered(stream)));
}

/* True if waiting requests of its model come before it: those of a higher class and, for a new request, of the same
 * priority. */
static bool pause_is_passing(const struct job *job)
{
    const struct picker_classes *classes = &job->router->classes;
    uint32_t least = router_job_class(job).priority + job_is_in(job, JOB_WAITS);

    for (uint32_t i = 0; i < classes->n; i++)
        if (classes->all[i].priority >= least && job->model->turns[i] != NULL &&
            fair_n_waiting(job->model->turns[i]) > 0)
            return true;
    return false;
}

static bool pause_and_place(struct job *job, struct pause_search *search)
{
    struct picker_place place;
    struct picker_goals goals;
    struct picker_pause pause;

    router_choose_prepare(job, &place, &goals);
    if (!picker_pause_choose(&place, &goals, search->streams, search->n, &pause))
        return false;
    for (uint32_t i = 0; i < pause.n; i++)
        pause_stream(search->jobs[pause.chosen[i]], job);
    return router_job_place(job) == 0; /* if this fails, the queue's next turn continues the streams */
}

/* True if any streams of lower classes of its model run. */
static bool pause_has_lower(const struct job *job)
{
    const struct picker_classes *classes = &job->router->classes;
    const struct model_pauses *pauses = pauses_of(job->router, job->model);
    uint32_t priority = router_job_class(job).priority;

    for (uint32_t i = 0; i < classes->n; i++)
        if (classes->all[i].priority < priority && !list_is_empty(&pauses->seated[i]))
            return true;
    return false;
}

bool router_pause_for(struct job *job)
{
    struct model_pauses *pauses = pauses_of(job->router, job->model);
    bool is_waiting = job_is_in(job, JOB_WAITS);
    struct pause_search search;

    job->awaits_pause = false;
    if (router_job_has_begun(job) || job->chain == CHAIN_MATCHING || !pause_has_lower(job) ||
        !router_admission_predicts(job->router) ||
        job->router->life == DAEMON_DRAINING || /* no other router could continue the stream */
        (is_waiting && clock_now_ns() - pauses->failed_ns < PICKER_PAUSE_RETRY_NS) || pause_is_passing(job) ||
        (!is_waiting && router_pause_is_first(job)))
        return false;
    job->awaits_pause = !pause_affords(&job->router->pauses, PICKER_PAUSE_COST);
    if (job->awaits_pause)
        return false;
    pause_search(job, &search);
    if (search.n > 0 && !is_waiting && router_job_place(job) == 0) /* not tried before, because lower classes
                                                                    * wait */
        return true;
    if (search.n > 0 && pause_and_place(job, &search))
        return true;
    if (is_waiting)
        pauses->failed_ns = clock_now_ns();
    return false;
}

/* ---- continuing ---- */

bool router_pause_is_first(const struct job *job)
{
    const struct router *router = job->router;

    for (uint32_t i = 0; router->pauses.n_paused > 0 && i < router->classes.n; i++)
        if (router->classes.all[i].priority >= router_job_class(job).priority && job->model->n_paused[i] > 0)
            return true;
    return false;
}

bool router_pause_go_on(struct router *router, struct router_model *model, uint32_t class_at)
{
    uint32_t n = 0;

    list_for_each_safe (node, spare, &pauses_of(router, model)->paused[class_at]) {
        struct job *stream = container_of(node, struct job, waiting);
        int rc;

        if (n++ == PICKER_PAUSE_GO_ON || !pause_affords(&router->pauses, 1))
            return false;
        rc = router_job_place(stream);
        if (rc == 0)
            return true;
        if (rc == E_LIMIT || rc == E_NOT_FOUND)
            router_queue_add(stream, true);
    }
    return false;
}

/* Requeues a model's streams that have used up their pause time or whose workers are gone, like streams whose worker was
 * lost. */
static void pause_tick_model(struct router *router, uint32_t at)
{
    bool is_gone = picker_fleet_n_usable(router->fleet, at) == 0 || router->life == DAEMON_DRAINING;
    uint64_t now_ns = clock_now_ns();

    for (uint32_t i = 0; i < router->classes.n; i++)
        list_for_each_safe (node, spare, &router->pauses.models[at].paused[i]) {
            struct job *stream = container_of(node, struct job, waiting);

            if (is_gone ||
                stream->pauses_ns + (now_ns - stream->paused_ns) >= router->classes.all[i].pause_ns)
                router_queue_add(stream, true);
        }
}

void router_pause_tick(struct router *router)
{
    for (uint32_t at = 0; router->pauses.n_paused > 0 && at < router->n_models; at++)
        pause_tick_model(router, at);
}
