/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: refuses a request at once when its first token is predicted to miss the limit.
 *
 *    submit --a worker begins it in time--> placed
 *       |
 *       +--its turn comes in time---------> queued --too late after all--> 529
 *       +--too late--------------------------------------------------------> 529 with retry-after
 *
 * fleet/picker/admit.h predicts.  This file gathers the inputs of a job's prediction, and learns from the job's
 * first token and answer.  A placement may use picker_begin_share() of the limit.  While a worker idles, no job is
 * refused: the last attempt before a refusal places the job there, even if the worker's last report still has a
 * queue. */
#include "fleet/router/router_priv.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/ahead_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/prefix/tenant.h"
#include "fleet/router/decisions_priv.h"

static const char *const reasons[] = {
#define X(reason, name) name,
    REFUSAL_TABLE(X)
#undef X
};

void router_admission_declare(struct router *router)
{
    static const double bounds[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};
    struct metrics *m = router->metrics;
    struct metric_family *refusals = metric_family(m, METRIC_COUNTER, "baton_router_refusals_total",
                                                   "Requests refused, by class and reason.", "class reason");
    struct metric_family *placed =
        metric_family(m, METRIC_COUNTER, "baton_router_placed_total", "Requests placed, by class.", "class");
    struct metric_family *error = metric_histogram_family(
        m, "baton_router_ttft_prediction_error_seconds",
        "How far first tokens were from their prediction at admission; late: they came after it.", "side",
        METRIC_BOUNDS(bounds));

    for (uint32_t at = 0; at < router->classes.n; at++) {
        const char *name = router->classes.all[at].name;

        for (unsigned i = 0; i < REFUSAL_REASONS; i++)
            router->admission.m_refusals[at][i] =
                metric_series(refusals, (const char *const[]){name, reasons[i]});
        router->admission.m_placed[at] = metric_series(placed, &name);
    }
    router->admission.m_late = metric_series(error, (const char *const[]){"late"});
    router->admission.m_early = metric_series(error, (const char *const[]){"early"});
    router->admission.m_margin =
        metric_single(m, METRIC_GAUGE, "baton_router_ttft_margin",
                      "Part of the TTFT limit that admission leaves for late predictions.");
}

void router_refused(const struct job *job, enum refusal_reason reason)
{
    metric_add(job->router->m_refused, 1);
    metric_add(job->router->admission.m_refusals[job->class_at][reason], 1);
    picker_demand_missed(&job->model->roles.demand, clock_now_ns());
    router_decisions_refused(job, reasons[reason]);
}

struct picker_class router_job_class(const struct job *job)
{
    struct picker_class it = job->router->classes.all[job->class_at];

    if (job->class_at == 0 && job->router->conf->classes.n == 0) { /* so that a reload takes effect */
        it.ttft_slo_ns = job->router->conf->ttft_slo_ns;
        it.itl_slo_ns = job->router->conf->itl_slo_ns;
    }
    return it;
}

bool router_class_has_room(const struct job *job)
{
    const struct router *router = job->router;
    double share = router->classes.all[job->class_at].share;

    return share >= 1 || router->n_queued_of[job->class_at] < share * (double)router->conf->queue_max;
}

int router_classes_open(struct router *router, struct fault *fault)
{
    const struct router_conf *conf = router->conf;
    int rc = 0;

    picker_classes_init(&router->classes, conf->ttft_slo_ns, conf->itl_slo_ns);
    for (size_t i = 0; rc == 0 && i < conf->classes.n; i++)
        rc = picker_classes_add(&router->classes,
                                bytes_of(conf->classes.items[i], strlen(conf->classes.items[i])), fault);
    return rc;
}

bool router_admission_predicts(const struct router *router)
{
    return router->conf->refuse == ROUTER_REFUSE_PREDICTED;
}

void router_admission_goals(const struct job *job, struct picker_goals *goals)
{
    goals->ttft_slo_s = (double)router_job_class(job).ttft_slo_ns / 1e9;
    goals->itl_slo_s = (double)router_pause_itl_ns(job) / 1e9;
    if (!router_admission_predicts(job->router))
        return;
    goals->itl_margin = picker_lateness_margin(&job->model->itl_late);
    if (!router_job_has_begun(job))
        goals->begin_share = picker_begin_share(&job->model->late);
}

uint32_t router_admission_answer(const struct job *job)
{
    uint32_t answered = router_job_answered(job);
    uint32_t expected =
        picker_answers_expect(&job->model->answers[job->class_at], job->order.work.max_new_tokens);

    return expected > answered ? expected - answered : 1;
}

void router_admission_wrote(struct job *job)
{
    const struct picker_written written = {
        .n_tokens = router_job_answered(job),
        .expected =
            picker_answers_expect(&job->model->answers[job->class_at], job->order.work.max_new_tokens),
        .most = job->order.work.max_new_tokens};

    picker_booking_wrote(job->router->fleet, &job->decode.booking, &written);
}

/* ---- learning ---- */

void router_admission_first_token(struct job *job)
{
    struct router_admission *admission = &job->router->admission;
    double actual_s = (double)(clock_now_ns() - job->submitted_ns) / 1e9, predicted_s = job->predicted_s;
    struct picker_worker worker;

    job->predicted_s = 0;
    job->first_ns = clock_now_ns();
    if (job->decode.slot != PICKER_NONE) {
        picker_fleet_row(job->router->fleet, job->decode.slot, &worker);
        job->first_itl_s = picker_itl_s(&worker);
    }
    if (job->sum.n_redispatched > 0)
        return;
    metric_observe(actual_s > predicted_s ? admission->m_late : admission->m_early,
                   actual_s > predicted_s ? actual_s - predicted_s : predicted_s - actual_s);
    picker_lateness_learn(&job->model->late, predicted_s, actual_s, job->limit_s);
    metric_set(admission->m_margin, picker_lateness_margin(&job->model->late));
}

void router_admission_placed(struct job *job, bool is_owed)
{
    if (router_job_has_begun(job))
        return;
    metric_add(job->router->admission.m_placed[job->class_at], 1);
    if (job->limit_s > 0)
        picker_local_prefill_learn(&job->model->local_prefill, job->estimate.uncached_tokens,
                                   job->estimate.prefill == PICKER_NONE);
    else { /* it has not waited */
        job->limit_s = picker_limit_s((double)router_job_class(job).ttft_slo_ns / 1e9, job->estimate.alone_s);
        job->predicted_s = job->estimate.ttft_s + (double)(clock_now_ns() - job->submitted_ns) / 1e9;
    }
    if (is_owed)
        job->predicted_s =
            0; /* it takes its turn at the worker, which the queue's prediction does not cover */
}

/* Learns how the worker's estimate of the time between tokens differs from the answer's own mean.  Sequences come
 * and go meanwhile, so the estimate is the mean of the ones at the first token and at the end.  (Between the placement
 * and the first token a rising load adds many sequences.) */
static void learn_itl(struct job *job)
{
    uint32_t n = router_job_answered(job);
    double actual_s = (double)(clock_now_ns() - job->first_ns) / 1e9 / (n - 1);
    struct picker_worker worker;

    picker_fleet_row(job->router->fleet, job->decode.slot, &worker);
    job->model->itl_late.least = PICKER_ITL_LEAST;
    picker_lateness_learn_itl(&job->model->itl_late, (job->first_itl_s + picker_itl_s(&worker)) / 2, actual_s,
                              (double)router_job_class(job).itl_slo_ns / 1e9);
}

void router_admission_ended(struct job *job)
{
    uint32_t n = router_job_answered(job);

    if (n == 0)
        return;
    picker_answers_learn(&job->model->answers[job->class_at], n);
    if (n >= PICKER_ITL_TOKENS && job->first_ns > 0 && job->sum.n_redispatched + job->n_pauses == 0 &&
        job->decode.slot != PICKER_NONE)
        learn_itl(job);
}

/* ---- the verdict ---- */

static bool is_idle(const struct router *router, uint32_t slot)
{
    struct picker_worker worker;

    picker_fleet_row(router->fleet, slot, &worker);
    return worker.n_running == 0;
}

/* True if this choice places the job on idle workers, which would begin it at once. */
static bool is_choice_idle(const struct router *router, const struct picker_choice *choice)
{
    return is_idle(router, choice->decode) &&
           (choice->prefill == PICKER_NONE || is_idle(router, choice->prefill));
}

static void job_outlook(const struct job *job, struct picker_outlook *out)
{
    struct router *router = job->router;
    struct picker_outlook_opts opts = {.group = (uint32_t)(job->model - router->models),
                                       .local_prefill = &job->model->local_prefill,
                                       .n_routers = router_ahead_n_routers(router),
                                       .itl_slo_s = (double)router_pause_itl_ns(job) / 1e9 *
                                                    (1 - picker_lateness_margin(&job->model->itl_late)),
                                       .answer_tokens = router_admission_answer(job),
                                       .context_tokens = job->order.n_tokens + router_admission_answer(job)};

    picker_outlook(router->fleet, &opts, out);
}

static void job_predict(const struct job *job, const struct picker_choice *choice,
                        struct picker_outlook *outlook_out, struct picker_verdict *out)
{
    struct router *router = job->router;
    uint64_t tenant = tenant_number(job->order.work.tenant);
    struct queue_waiting all = router_queue_before(job);
    struct picker_wait wait = {.queue_s = choice->ttft_s - choice->alone_s,
                               .alone_s = choice->alone_s,
                               .ttft_slo_s = (double)router_job_class(job).ttft_slo_ns / 1e9,
                               .waited_s = (double)(clock_now_ns() - job->submitted_ns) / 1e9,
                               .margin = picker_lateness_margin(&job->model->late)};
    uint32_t n_tenants = fair_n_tenants(router->turns.crowd), own = router_queue_own(router, tenant);

    /* its tenant's lower classes wait behind it */
    wait.ahead_tokens = picker_turn_ahead(own < all.n_tokens ? own : (uint32_t)all.n_tokens, all.n_tokens,
                                          n_tenants + (own == 0), router_queue_credit(job));
    if (all.n_tokens > 0)
        wait.n_ahead = (uint32_t)(all.n * (double)wait.ahead_tokens / (double)all.n_tokens);
    job_outlook(job, outlook_out);
    picker_admit(&wait, outlook_out, out);
}

/* Returns the time after which the client may retry: the fleet has then served the requests refused before. */
static uint32_t come_back_s(struct job *job, const struct picker_choice *choice,
                            const struct picker_outlook *outlook, double late_s)
{
    return picker_returns_take(&job->model->returns, late_s,
                               picker_outlook_each_s(outlook, choice->uncached_tokens), clock_now_ns());
}

uint32_t router_admission_come_back_s(struct job *job, enum refusal_reason reason)
{
    struct router_model *model = job->model;
    struct picker_returns *returns =
        reason == REFUSED_SHARE ? &model->share_returns[job->class_at] : &model->returns;
    uint32_t n_tokens =
        job->estimate.uncached_tokens > 0 ? job->estimate.uncached_tokens : job->order.n_tokens;
    struct picker_outlook outlook;

    job_outlook(job, &outlook);
    return picker_returns_take(returns, outlook.seat_s, picker_outlook_each_s(&outlook, n_tokens),
                               clock_now_ns());
}

bool router_admission_takes(struct job *job, uint32_t *retry_s_out)
{
    struct router *router = job->router;
    struct picker_place place;
    struct picker_outlook outlook;
    struct picker_verdict verdict;
    int rc;

    if (!router_admission_predicts(router) || router_job_has_begun(job) || job->chain == CHAIN_MATCHING)
        return true;
    rc = router_choose(job, &place);
    if ((rc != 0 && rc != E_OVERLOADED) || (rc == 0 && is_choice_idle(router, &place.choice)))
        return true;
    job_predict(job, &place.choice, &outlook, &verdict);
    job->estimate = place.choice;
    job->limit_s = verdict.limit_s;
    job->predicted_s = verdict.ttft_s;
    if (verdict.is_in_time || router_ahead_goes(job, &place, true))
        return true;
    *retry_s_out = come_back_s(job, &place.choice, &outlook, verdict.late_s);
    log_debug("refused", LOG_STR("request_id", job->order.work.request_id),
              LOG_U64("predicted_ms", (uint64_t)(verdict.ttft_s * 1e3)),
              LOG_U64("limit_ms", (uint64_t)(verdict.limit_s * 1e3)));
    return false;
}

bool router_admission_last_resort(struct job *job)
{
    struct picker_place place;
    bool is_placed = false;

    picker_fleet_forget_queues(job->router->fleet, (uint32_t)(job->model - job->router->models));
    job->takes_any = true;
    if (router_choose(job, &place) == 0 && is_choice_idle(job->router, &place.choice))
        is_placed = router_job_place(job) == 0;
    job->takes_any = false;
    return is_placed;
}

bool router_admission_bounds(const struct job *job)
{
    return router_admission_predicts(job->router) && job->limit_s > 0 && !router_job_has_begun(job);
}

bool router_admission_is_late(const struct job *job, uint64_t now_ns)
{
    double waited_s = (double)(now_ns - job->submitted_ns) / 1e9;

    return router_admission_bounds(job) && waited_s + job->estimate.alone_s > job->limit_s;
}
