/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan to a simulated fleet.
 *
 * The plan's step times are curves (compute or memory, whichever is slower); the simulator's are linear.  They are
 * the line through the points where the fleet works: prompts around the mean, and batches around the planned one. */
#include "clients/plan/simulate.h"

#include "base/clock.h"
#include "base/err.h"
#include "clients/sim/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_REQUESTS 3000.0
#define MOST_REQUESTS  20000.0
#define FILL_TIMES     3.0 /* residence times until the fleet is as full as it will be */
#define DRAWN_BLOCK    256
#define TRACE_BLOCK    512

struct simulate_change simulate_change_none(const struct plan_candidate *candidate)
{
    return (struct simulate_change){.prefill = candidate->n_prefill,
                                    .decode = candidate->n_decode,
                                    .rate = 1,
                                    .kv_memory = 1,
                                    .network = 1,
                                    .policy = SIM_OURS,
                                    .seed = 1};
}

static double fleet_positive(double value)
{
    return value > 0 ? value : 0;
}

/* Prompts from half of the mean to twice the mean, after their cached part. */
static void fleet_prompt_times(const struct plan_pool *pool, const struct plan_work *work,
                               struct sim_times *times)
{
    double n = fmax(16, work->isl * (1 - work->hit)), cached = work->isl - n > 0 ? work->isl - n : 0;
    double half_s = plan_cost_prefill(&pool->cost, n / 2, cached);
    double twice_s = plan_cost_prefill(&pool->cost, n * 2, cached);
    double further_s = plan_cost_prefill(&pool->cost, n * 2, cached + n);

    times->pair_s = fleet_positive((further_s - twice_s) / (2 * n * n));
    times->token_s =
        (twice_s - half_s - times->pair_s * (1.5 * n * cached + (4 - 0.25) * n * n / 2)) / (1.5 * n);
    times->token_s = fmax(times->token_s, 1e-12);
    times->step_s = fleet_positive(plan_cost_prefill(&pool->cost, n, cached) - times->token_s * n -
                                   times->pair_s * n * (cached + n / 2));
}

/* Batches from half of the planned one, at the mean context. */
static void fleet_decode_times(const struct plan_pool *pool, const struct plan_work *work, double batch,
                               struct sim_times *times)
{
    double context = work->isl + plan_work_held_answer(work) / 2, low = fmax(1, batch / 2),
           high = fmax(2, batch);
    double high_s = plan_cost_decode(&pool->cost, high, context);

    times->context_s =
        fleet_positive((plan_cost_decode(&pool->cost, high, 2 * context) - high_s) / (high * context));
    times->row_s = fleet_positive((high_s - plan_cost_decode(&pool->cost, low, context)) / (high - low) -
                                  times->context_s * context);
    times->step_s = fmax(high_s - high * (times->row_s + times->context_s * context), 1e-9);
}

static int fleet_check(const struct plan_pool *prefill, const struct plan_pool *decode, struct fault *fault)
{
    if (prefill->cost.setup.pp > 1 || decode->cost.setup.pp > 1)
        return fault_set(fault, E_UNSUPPORTED,
                         "a pipeline of stages is planned, but not simulated: its steps overlap");
    return 0;
}

/* Tokens of the blocks of a sequence: the last one is half full in the mean. A plan counts tokens. */
static double fleet_held_tokens(double context)
{
    return context + DRAWN_BLOCK / 2.0;
}

/* Fills in everything but the number of workers. */
static void fleet_opts(const struct plan_job *job, const struct plan_candidate *candidate,
                       const struct simulate_change *change, struct sim_opts *out)
{
    const struct plan_pool *prefill = &job->pools.list[candidate->prefill];
    const struct plan_pool *decode = &job->pools.list[candidate->decode];
    const struct plan_work *work = &job->work;
    double context = work->isl + plan_work_held_answer(work), batch = candidate->d.batch / decode->lanes;
    double slots = candidate->d.slots / decode->lanes;
    double room = fmax(1, plan_cost_room(&decode->cost, context, work->reserve));
    double link = plan_link_rate(prefill, work) / prefill->lanes;

    *out = (struct sim_opts){
        .max_seqs = (uint32_t)fmax(1, ceil(slots / candidate->d.load)),
        .kv_tokens = (uint64_t)fmin(1e12, room * fleet_held_tokens(context) * change->kv_memory),
        .nic_bytes_per_s = isnan(link) ? 0 : link * change->network,
        .kv_bytes_per_token = plan_cost_kv_bytes(&prefill->cost, work->isl) / work->isl,
        .n_layers = work->is_layerwise ? job->model.layers : 1,
        .latency_ns = isnan(work->link.startup_s) ? 400 * NS_PER_US : (uint64_t)(work->link.startup_s * 1e9),
        .heartbeat_ns = 250 * NS_PER_MS,
        .slow_factor = change->slow,
        .policy = change->policy,
        .ttft_slo_ns = (uint64_t)(work->ttft_s * 1e9),
        .itl_slo_ns = (uint64_t)(work->itl_s * 1e9),
        .queue_timeout_ns = (uint64_t)(2 * work->ttft_s * 1e9),
        .index_entries = 1 << 20,
        .prefix_fetch = PICKER_FETCH_AUTO,
        .decodes_only = true,
        .refuses_early = false, /* the plan itself counts late requests */
        .seed = change->seed,
        .n_columns = 1,
    };
    fleet_prompt_times(prefill, work, &out->prefill_times);
    fleet_prompt_times(decode, work, &out->decode_times);
    fleet_decode_times(decode, work, batch, &out->decode_times);
}

/* The share of the fleet that is simulated, so that neither workers nor requests are too many. */
static double fleet_slice(const struct plan_job *job, const struct plan_candidate *candidate,
                          const struct simulate_change *change)
{
    double n_workers = change->prefill * job->pools.list[candidate->prefill].lanes +
                       change->decode * job->pools.list[candidate->decode].lanes;

    return fmin(1, SIMULATE_WORKERS / n_workers);
}

/* By Little's law, in the steady state. */
static double simulate_decode_load(const struct sim_opts *opts, const struct sim_class *counted, double rate)
{
    double per_s = rate / fmax(1, (double)counted->n_arrived) / opts->n_decode;

    return fmax(per_s * counted->held_s / opts->max_seqs,
                per_s * counted->held_token_s / (double)opts->kv_tokens);
}

static void simulate_read(const struct plan_work *work, const struct sim_opts *opts, double rate,
                          const struct sim_result *result, struct simulate_result *out)
{
    const struct sim_class *counted = &result->classes[SIMULATE_COUNTED];
    double seconds = (double)result->last_arrival_ns / 1e9, n = 0, n_refused = 0;
    double reused = (double)(result->cached_tokens + result->pushed_tokens + result->read_tokens);

    if (counted->n_arrived == 0)
        counted = &result->classes[SIMULATE_FILLING]; /* of a trace all requests count */
    n = fmax(1, (double)counted->n_arrived);
    for (uint32_t i = 0; i < REFUSAL_REASONS; i++)
        n_refused += (double)counted->n_refused[i];
    *out = (struct simulate_result){
        .good_share = (double)counted->n_good / n,
        .refused_share = n_refused / n,
        .ttft_mean_s = sim_hist_mean_s(&counted->ttft),
        .ttft_s = sim_hist_quantile_s(&counted->ttft, work->ttft_percentile),
        .itl_mean_s = sim_hist_mean_s(&counted->itl),
        .itl_s = sim_hist_quantile_s(&counted->itl, work->itl_percentile),
        .prefill_load = fmin(1, result->prefill_busy_s / seconds / opts->n_prefill),
        .decode_load = simulate_decode_load(opts, counted, rate),
        .cached_share = reused / fmax(1, reused + (double)result->computed_tokens),
        .n_requests = counted->n_arrived,
        .n_events = result->n_events,
    };
}

static double simulate_fill(const struct plan_work *work, double rate)
{
    return rate * (work->ttft_s + work->osl * work->itl_s) * FILL_TIMES;
}

/* Requests whose results count. */
static double simulate_counted(const struct plan_work *work, const struct trace *trace, double rate)
{
    return trace != NULL ? (double)trace->n_entries
                         : fmax(LEAST_REQUESTS, fmin(MOST_REQUESTS, simulate_fill(work, rate) * 4));
}

static int simulate_drawn(const struct plan_job *job, const struct sim_opts *opts, double rate,
                          struct fault *fault, struct sim_result *result)
{
    const struct plan_work *work = &job->work;
    double n_fill = simulate_fill(work, rate), n_counted = simulate_counted(work, NULL, rate);
    struct simulate_load_opts load_opts = {.work = work,
                                           .rate_per_s = rate,
                                           .n_first = (uint64_t)n_fill,
                                           .n_last = (uint64_t)(n_fill / FILL_TIMES),
                                           .block_tokens = opts->block_tokens,
                                           .seed = opts->seed};
    struct simulate_load *load = NULL;
    int rc;

    load_opts.n_requests = load_opts.n_first + load_opts.n_last + (uint64_t)n_counted;
    rc = simulate_load_new(&load_opts, &load);
    if (rc == 0) {
        struct sim_load source = simulate_load_of(load);
        rc = sim_run(opts, &source, fault, result);
    }
    simulate_load_free(load);
    return rc;
}

static int simulate_traced(const struct sim_opts *opts, const struct trace *trace, double rate,
                           struct fault *fault, struct sim_result *result)
{
    double span_s = (double)trace->entries[trace->n_entries - 1].at_ns / 1e9;
    struct replay_opts replay_opts = {.speed = rate / ((double)trace->n_entries / span_s), .n_replicas = 1};
    struct replay *replay = NULL;
    int rc = replay_new(trace, &replay_opts, &replay);

    if (rc == 0) {
        struct sim_load source = replay_load(replay);
        rc = sim_run(opts, &source, fault, result);
    } else {
        fault_set(fault, rc, "%s", err_text(rc));
    }
    replay_free(replay);
    return rc;
}

int simulate_run(const struct plan_job *job, const struct simulate_case *of, struct fault *fault,
                 struct simulate_result *out)
{
    const struct plan_candidate *candidate = of->candidate;
    const struct simulate_change *change = of->change;
    const struct trace *trace = of->trace;
    const struct plan_pool *prefill = &job->pools.list[candidate->prefill];
    const struct plan_pool *decode = &job->pools.list[candidate->decode];
    double slice = fleet_slice(job, candidate, change);
    double rate = job->work.rate_per_s * change->rate * slice;
    struct sim_result result = {0};
    struct sim_opts opts;
    int rc = fleet_check(prefill, decode, fault);

    if (rc != 0)
        return rc;
    fleet_opts(job, candidate, change, &opts);
    opts.n_prefill = (uint32_t)fmax(1, round(change->prefill * prefill->lanes * slice));
    opts.n_decode = (uint32_t)fmax(1, round(change->decode * decode->lanes * slice));
    /* Refuse requests that would wait for twice the objective: longer queues change no result and take long to
     * simulate. */
    opts.queue_max = (uint32_t)fmin(1e6, fmax(64, 2 * rate * job->work.ttft_s));
    /* Stop at more refusals than allowed: the objectives are missed in any case, and a long queue takes long to
     * simulate. */
    opts.most_refused =
        (uint64_t)fmax(1, (1 - job->work.ttft_percentile) * simulate_counted(&job->work, trace, rate));
    opts.most_refused_kind = trace == NULL ? SIMULATE_COUNTED : 0;
    opts.block_tokens = trace != NULL && trace->n_block_ids > 0 ? TRACE_BLOCK : DRAWN_BLOCK;
    rc = trace == NULL ? simulate_drawn(job, &opts, rate, fault, &result)
                       : simulate_traced(&opts, trace, rate, fault, &result);
    if (rc == 0) {
        simulate_read(&job->work, &opts, rate, &result, out);
        out->slice = slice;
        out->good_per_s = out->good_share * job->work.rate_per_s * change->rate;
    }
    sim_result_fini(&result);
    return rc < 0 && fault->code == 0 ? fault_set(fault, rc, "%s", err_text(rc)) : rc;
}

bool simulate_is_met(const struct plan_work *work, const struct simulate_result *result)
{
    return result->ttft_s <= work->ttft_s && result->itl_s <= work->itl_s &&
           result->refused_share <= 1 - work->ttft_percentile;
}
