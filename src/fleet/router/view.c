/* SPDX-License-Identifier: Apache-2.0 */
/* The router's cluster view: updates a worker's row in the fleet whenever something about that worker
 * changes. A placement uses the fleet and the prefix index. */
#include "fleet/router/router_priv.h"
#include "fleet/router/admission_priv.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "fleet/picker/turn.h"

static void fill_row(const struct router *router, const struct router_worker *worker,
                     struct picker_worker *row)
{
    const Baton__LoadReport *report = &worker->report;
    uint64_t n_reported = (uint64_t)report->waiting + report->running;

    row->is_usable = true;
    row->can_push = (worker->capabilities & CAPABILITY_ASKED) != 0;
    row->keeps_role = (worker->capabilities & CAPABILITY_ROLES) == 0;
    row->role = worker->role;
    row->group = (uint32_t)(worker->model - router->models);
    row->layout = worker->layout;
    row->host = worker->host;
    row->block_tokens = worker->block_tokens;
    row->blocks_free = report->blocks_free;
    row->blocks_total = worker->n_blocks;
    row->max_seqs = worker->max_seqs;
    row->queued_prefill_tokens = report->queued_prefill_tokens;
    row->n_running = n_reported < UINT32_MAX ? (uint32_t)n_reported : UINT32_MAX;
    row->reported_ns = router_admission_predicts(router) ? worker->reported_ns : 0;
    row->figures_ns = router_admission_predicts(router) ? worker->figures_ns : 0;
#define X(name) row->name = report->name;
    LOAD_RATES(X)
#undef X
    picker_worker_set_prompt_cost(row, &worker->model->pair_share);
    if (worker->step_s > 0 && router_admission_predicts(router)) {
        row->decode_step_s = worker->step_s;
        row->step_seqs = worker->step_seqs;
        row->decode_row_s = worker->row_s;
    }
    if (report->store != 0) { /* 0: the store is away */
        row->store = worker->store;
        row->store_bytes_per_s = report->store_bytes_per_s;
        row->store_ask_s = report->store_ask_ns < NS_PER_S ? (double)report->store_ask_ns / NS_PER_S : 1;
    }
    row->kv_bytes_per_token = worker->kv_bytes_per_token;
}

void router_worker_refresh(struct router *router, const struct router_worker *worker)
{
    struct picker_worker row = {.is_usable = false};

    if (router_worker_usable(worker))
        fill_row(router, worker, &row);
    /* without memory for its row the worker counts as draining until its next heartbeat */
    (void)picker_fleet_set(router->fleet, (uint32_t)(worker - router->workers), &row);
}

bool router_worker_row(const struct router *router, uint32_t slot, struct picker_worker *out)
{
    const struct router_worker *worker = &router->workers[slot];

    if (!worker->is_taken || worker->link == NULL || !link_is_up(worker->link) || worker->model == NULL ||
        worker->is_unfit)
        return false;
    *out = (struct picker_worker){0};
    fill_row(router, worker, out);
    return true;
}

/* True if the chosen worker is no longer usable, because its link went down unnoticed.
 * Updates its row in that case. */
static bool is_stale(struct router *router, uint32_t slot)
{
    if (slot == PICKER_NONE || router_worker_usable(&router->workers[slot]))
        return false;
    router_worker_refresh(router, &router->workers[slot]);
    return true;
}

static uint64_t needs_of(const struct job *job)
{
    uint64_t needs = 0;

    needs |= job->order.constraint.len_bytes > 0 ? CAPABILITY_GRAMMARS : 0;
    needs |= job->order.work.sample.wants_logprob ? CAPABILITY_LOGPROBS : 0;
    needs |= job->score_next > 0 ? CAPABILITY_SCORES : 0;
    needs |= job->order.work.wants_embedding ? CAPABILITY_EMBEDDINGS : 0;
    return needs;
}

/* Excludes workers that failed the job, and workers that lack a capability it needs. */
static void view_bar(struct job *job)
{
    uint64_t needs = needs_of(job);

    job->barred = job->excluded;
    for (unsigned i = 0; i < CAPABILITY_N; i++)
        for (size_t word = 0; (needs >> i & 1) != 0 && word < ARRAY_LEN(job->barred.words); word++)
            job->barred.words[word] |= job->router->lacking[i].words[word];
}

uint64_t router_job_lacks(const struct job *job)
{
    uint64_t needs = needs_of(job), lacks = 0;

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS && needs != 0; slot++) {
        const struct router_worker *worker = &job->router->workers[slot];

        if (!router_worker_usable(worker) || worker->model != job->model)
            continue;
        if ((needs & ~worker->capabilities) == 0)
            return 0;
        lacks |= needs & ~worker->capabilities;
    }
    return lacks;
}

bool router_job_has_other(const struct job *job, uint32_t slot)
{
    for (uint32_t i = 0; i < PICKER_MAX_WORKERS; i++)
        if (i != slot && router_worker_usable(&job->router->workers[i]) &&
            job->router->workers[i].model == job->model && !picker_slots_has(&job->excluded, i))
            return true;
    return false;
}

static enum picker_yield yield_for(const struct job *job)
{
    const struct router_conf *conf = job->router->conf;
    struct picker_patience patience = {.is_refused_early = router_admission_predicts(job->router),
                                       .takes_any = job->takes_any,
                                       .ttft_slo_ns = router_job_class(job).ttft_slo_ns,
                                       .queue_timeout_ns = conf->queue_timeout_ns,
                                       .is_waiting = job_is_in(job, JOB_WAITS),
                                       .is_full = job->router->n_queued >= conf->queue_max};

    if (patience.is_waiting)
        patience.waited_ns = clock_now_ns() - job->queued_ns;
    return picker_yield_for(&patience);
}

void router_choose_prepare(struct job *job, struct picker_place *place, struct picker_goals *goals)
{
    struct router *router = job->router;

    *goals = (struct picker_goals){.local_prefill_tokens = (uint32_t)router->conf->local_prefill_tokens,
                                   .local_prefill_s = (double)router->conf->local_prefill_ns / 1e9,
                                   .yield = yield_for(job)};
    router_admission_goals(job, goals);
    view_bar(job);
    place->fleet = router->fleet;
    place->index = router->index;
    place->stored = router->stores.index;
    place->hashes = job->hashes;
    place->n_hashes = job->n_hashes; /* no worker has later blocks */
    place->now_ns = clock_now_ns();
    place->may_push = router->conf->prefix_fetch != PICKER_FETCH_OFF && job->score_next == 0;
    place->request =
        (struct picker_request){.n_tokens = job->order.n_tokens,
                                .max_new_tokens = job->order.work.max_new_tokens - router_job_answered(job),
                                .answer_tokens = router_admission_answer(job),
                                .group = (uint32_t)(job->model - router->models),
                                .excluded = &job->barred,
                                .is_alone = job->score_next > 0 || job->order.work.wants_embedding,
                                .keeps_layout = job->keeps_layout,
                                .layout = job->layout};
}

int router_choose(struct job *job, struct picker_place *place)
{
    struct router *router = job->router;
    struct picker_goals goals;
    bool is_again;
    int rc;

    router_choose_prepare(job, place, &goals);
    do {
        rc = picker_place_choose(place, &goals);
        is_again = (rc == 0 || rc == E_OVERLOADED) &&
                   (is_stale(router, place->choice.decode) || is_stale(router, place->choice.prefill));
    } while (is_again);
    return rc;
}
