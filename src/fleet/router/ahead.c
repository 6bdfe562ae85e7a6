/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that go ahead: a worker gets them before it can begin them.  fleet/picker/ahead.h has the rule; this file
 * gathers its inputs. */
#include "fleet/router/ahead_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "cache/prefix/tenant.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/spending_priv.h"
#include "fleet/router/state_priv.h"
#include "serve/access/common_limits.h"

/* True if other routers use these workers too. */
static bool ahead_has_others(const struct router *router)
{
    const struct common_limits *common = router_spending_common(router);

    return common != NULL && common_limits_is_shared(common);
}

uint32_t router_ahead_n_routers(const struct router *router)
{
    return ahead_has_others(router) ? common_limits_n_routers(router_spending_common(router)) : 1;
}

static struct picker_ahead_entry ahead_entry(const struct job *job)
{
    uint32_t decode = job->place.ahead_decode;

    return (struct picker_ahead_entry){.decode = decode,
                                       .reads = job->place.ahead_reads,
                                       .max_seqs =
                                           decode != PICKER_NONE ? job->router->workers[decode].max_seqs : 0,
                                       .n_own = fair_tally(job->place.flow)};
}

void router_ahead_enter(struct job *job)
{
    struct picker_ahead_entry entry;

    if (job->place.is_ahead)
        return;
    job->place.is_ahead = true;
    job->place.ahead_decode = job->decode.slot;
    job->place.ahead_reads = job->prefill.slot != PICKER_NONE ? job->prefill.slot : job->decode.slot;
    entry = ahead_entry(job);
    picker_ahead_enter(&job->model->ahead, &job->router->turns.lines, &entry);
}

void router_ahead_leave(struct job *job)
{
    struct router *router = job->router;
    struct picker_ahead_entry entry;

    if (!job->place.is_ahead)
        return;
    job->place.is_ahead = false;
    entry = ahead_entry(job);
    picker_ahead_leave(&job->model->ahead, &router->turns.lines, &entry);
    if (job->model->n_queued > 0 && ahead_has_others(router) && router->turn != NULL) {
        router->places_soon = true; /* another goes ahead */
        router_turn_soon(router);
    }
}

static struct picker_ahead_turn ahead_turn(const struct job *job, const struct picker_choice *choice)
{
    const struct router *router = job->router;
    double itl_part = 1 - picker_lateness_margin(&job->model->itl_late);
    uint32_t n_routers = router_ahead_n_routers(router);
    struct picker_service_view alone = {0};

    return (struct picker_ahead_turn){.fleet = router->fleet,
                                      .lines = &router->turns.lines,
                                      .choice = choice,
                                      .ahead = job->model->ahead,
                                      .group = (uint32_t)(job->model - router->models),
                                      .n_own = *fair_tally(job->place.flow),
                                      .service = n_routers > 1 ? router_state_service(job) : alone,
                                      .ttft_slo_s = (double)router_job_class(job).ttft_slo_ns / 1e9,
                                      .itl_slo_s = itl_part * (double)router_pause_itl_ns(job) / 1e9,
                                      .waited_s = (double)(clock_now_ns() - job->submitted_ns) / 1e9,
                                      .margin = picker_lateness_margin(&job->model->late),
                                      .local_prefill = &job->model->local_prefill,
                                      .n_routers = n_routers,
                                      .is_refused_early = router_admission_predicts(router),
                                      .has_waited = job_is_in(job, JOB_WAITS)};
}

/* Chooses among the other workers. */
static int ahead_choose_other(struct job *job, const struct picker_slots *excluded,
                              struct picker_place *place_out)
{
    const struct picker_slots failed = job->excluded;
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(failed.words); i++)
        job->excluded.words[i] |= excluded->words[i];
    rc = router_choose(job, place_out);
    job->excluded = failed;
    return rc;
}

bool router_ahead_goes(struct job *job, struct picker_place *place, bool is_judged)
{
    struct picker_ahead_turn turn = ahead_turn(job, &place->choice);
    struct picker_slots excluded = {{0}};
    struct picker_place other;
    int rc;

    turn.is_judged = is_judged;
    turn.before_tokens = is_judged ? router_queue_own(job->router, tenant_number(job->order.work.tenant)) : 0;
    if (picker_ahead_goes(&turn))
        return true;
    if (!picker_ahead_other(&turn, &excluded))
        return false;
    rc = ahead_choose_other(job, &excluded, &other);
    turn.choice = &other.choice;
    if (rc != 0 && (rc != E_OVERLOADED || !picker_ahead_goes(&turn)))
        return false;
    picker_place_copy(place, &other);
    return true;
}
