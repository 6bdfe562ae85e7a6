/* SPDX-License-Identifier: Apache-2.0 */
/* placement.roles: once a second the policy of fleet/picker/roles.c looks at each model's load and workers.
 *
 *    submits, ends, reports --> picker_roles_decide() --+--> metrics, status: rooms, wanted workers, the reason
 *                                                       +--> auto: SET_ROLE to one worker
 *
 * The worker's next report confirms the role (workers.c), and has the role's age.  So each router with `auto` sees
 * the changes of other routers and of an operator, and all routers share one period between two changes.  With
 * `fixed` the policy only measures. */
#include "fleet/router/admission_priv.h"
#include "fleet/router/router_priv.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "proto/role.h"

#define DECIDE_NS  NS_PER_S
#define LEAST_TURN 10 /* least number of decisions in a period */

void router_roles_declare(struct router *router)
{
    struct metrics *m = router->metrics;

    router->roles.f_wanted = metric_family(m, METRIC_GAUGE, "baton_wanted_workers",
                                           "Workers of a role that would keep the objectives at the present "
                                           "load; no series before the load is known.",
                                           "role model");
    router->roles.f_room = metric_family(m, METRIC_GAUGE, "baton_phase_room",
                                         "The multiple of the present load that a role's workers could carry "
                                         "within the objectives.",
                                         "role model");
    router->roles.f_reason =
        metric_family(m, METRIC_GAUGE, "baton_roles_reason",
                      "1 for the reason of the latest decision on roles.", "reason model");
    router->roles.m_changes = metric_single(m, METRIC_COUNTER, "baton_roles_changes_total",
                                            "Changes of a worker's role that this router asked for.");
}

static const char *reason_name(enum picker_roles_reason reason)
{
    static const char *const names[] = {
#define X(name, text) [PICKER_ROLES_##name] = #name,
        PICKER_ROLES_REASONS(X)
#undef X
    };

    return names[reason];
}

static void roles_show(struct router *router, const struct router_model *model)
{
    const struct picker_roles_plan *plan = &model->roles_plan;
    const char *name = model->gen.name;
    const char *prefill[] = {"prefill", name}, *decode[] = {"decode", name};

    for (int reason = 0; reason < PICKER_ROLES_N_REASONS; reason++)
        metric_set(metric_series(router->roles.f_reason,
                                 (const char *const[]){reason_name((enum picker_roles_reason)reason), name}),
                   reason == (int)plan->reason);
    if (plan->wanted_decode == 0)
        return;
    metric_set(metric_series(router->roles.f_wanted, prefill), plan->wanted_prefill);
    metric_set(metric_series(router->roles.f_wanted, decode), plan->wanted_decode);
    metric_set(metric_series(router->roles.f_room, prefill), plan->prefill_room);
    metric_set(metric_series(router->roles.f_room, decode), plan->decode_room);
}

static void roles_flip(struct router *router, const struct picker_roles_plan *plan)
{
    const struct router_worker *worker = &router->workers[plan->flip];
    Baton__Role role = plan->to == PICKER_PREFILL ? BATON__ROLE__ROLE_PREFILL : BATON__ROLE__ROLE_DECODE;
    struct fault fault = {0};

    if (router_worker_set_role(router, plan->flip, role, &fault) < 0) {
        log_warn("role_not_changed", LOG_STR("node", worker->node), LOG_STR("reason", fault.text));
        return;
    }
    metric_add(router->roles.m_changes, 1);
    log_info("role_wanted", LOG_STR("node", worker->node), LOG_STR("from", router_role_text(worker->role)),
             LOG_STR("to", router_role_text(plan->to)), LOG_STR("reason", picker_roles_text(plan->reason)),
             LOG_U64("prefill_room_percent", (uint64_t)(100 * plan->prefill_room)),
             LOG_U64("decode_room_percent", (uint64_t)(100 * plan->decode_room)));
}

void router_roles_tick(struct router *router)
{
    const struct router_conf *conf = router->conf;
    struct picker_roles_opts opts = {.ttft_slo_s = (double)conf->ttft_slo_ns / 1e9,
                                     .itl_slo_s = (double)conf->itl_slo_ns / 1e9,
                                     .least = (uint32_t)conf->roles_min,
                                     .short_tokens = (uint32_t)conf->local_prefill_tokens,
                                     .only_shows = conf->roles != ROUTER_ROLES_AUTO,
                                     .period_ns = conf->roles_period_ns};
    uint64_t now_ns = clock_now_ns();

    if (now_ns < router->roles.next_ns)
        return;
    router->roles.next_ns =
        now_ns + (opts.period_ns / LEAST_TURN < DECIDE_NS ? opts.period_ns / LEAST_TURN : DECIDE_NS);
    for (uint32_t i = 0; i < router->n_models; i++) {
        struct router_model *model = &router->models[i];

        if (!model->is_ready)
            continue;
        opts.group = i;
        picker_roles_decide(&model->roles, &opts, router->fleet, now_ns, &model->roles_plan);
        roles_show(router, model);
        if (model->roles_plan.flip != PICKER_NONE)
            roles_flip(router, &model->roles_plan);
    }
}

void router_roles_receive(struct router_worker *worker, bool has_changed, uint64_t age_ms)
{
    uint64_t now_ns = clock_now_ns();

    if (worker->model == NULL || (!has_changed && age_ms == 0))
        return;
    picker_roles_changed(&worker->model->roles,
                         age_ms < now_ns / NS_PER_MS ? now_ns - age_ms * NS_PER_MS : now_ns);
}

/* True if the answer missed an objective of its class.  A prompt that no worker computes in time has the limit that its
 * placement had.  Pauses do not count: they are what the class allows.  Nor does the time in which the client takes the answer. */
static bool roles_missed(const struct job *job)
{
    struct picker_class objectives = router_job_class(job);
    double ttft_slo_s = (double)objectives.ttft_slo_ns / 1e9;
    double limit_s = job->limit_s > ttft_slo_s ? job->limit_s : ttft_slo_s;
    uint64_t n = router_job_answered(job);

    if (job->first_ns == 0 || job->n_pauses > 0)
        return false;
    return (double)(job->first_ns - job->submitted_ns) / 1e9 > limit_s ||
           (n > 1 && job->ended_ns > job->first_ns + (n - 1) * objectives.itl_slo_ns);
}

void router_roles_ended(const struct job *job)
{
    struct picker_demand *demand = &job->model->roles.demand;
    uint64_t now_ns = clock_now_ns();

    if (router_job_answered(job) == 0)
        return;
    picker_demand_ended(demand, now_ns, router_job_answered(job));
    if (roles_missed(job))
        picker_demand_missed(demand, now_ns);
}

void router_roles_put(const struct router *router, struct buf *out)
{
    bool is_first = true;

    buf_append_str(out, "\"roles\": [");
    for (uint32_t i = 0; i < router->n_models; i++) {
        const struct router_model *model = &router->models[i];
        const struct picker_roles_plan *plan = &model->roles_plan;

        if (!model->is_ready)
            continue;
        buf_append_str(out, is_first ? "{\"model\": " : ", {\"model\": ");
        is_first = false;
        json_put_str(out, bytes_str(model->gen.name));
        buf_printf(out, ", \"auto\": %s, \"prefill\": %u, \"decode\": %u, \"reason\": ",
                   router->conf->roles == ROUTER_ROLES_AUTO ? "true" : "false", plan->n_prefill,
                   plan->n_decode);
        json_put_str(out, bytes_str(picker_roles_text(plan->reason)));
        if (plan->wanted_decode > 0)
            buf_printf(out,
                       ", \"wanted_prefill\": %u, \"wanted_decode\": %u, \"prefill_room\": %.3f, "
                       "\"decode_room\": %.3f, \"requests_per_s\": %.3f, \"prompt_ms\": %.3f, "
                       "\"answer_tokens\": %.1f",
                       plan->wanted_prefill, plan->wanted_decode, plan->prefill_room, plan->decode_room,
                       plan->load.all_per_s, plan->load.prompt_s * 1e3, plan->load.answer_tokens);
        buf_append_str(out, "}");
    }
    buf_append_str(out, "], ");
}
