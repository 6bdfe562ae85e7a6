/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated worker learns of its speed, and reports.
 *
 *    run of equal steps --the first and the last--> compute/sched/speed.c --> chunk sizes (compute/sched/budget.c)
 *                                                                        \--> report --> rows of all routers
 *
 * With SIM_COSTS_LEARNED a worker learns by these objects of the daemons.  It knows its true times (struct sim_times)
 * only through its steps.  The first steps are those of the measurement at its start (worker/runner/measure.c).  Steps
 * of a model repeat exactly, so once a worker has learned from MANY_RUNS runs, one in EACH_RUN is enough.  With
 * SIM_COSTS_EXACT it knows and reports its true times. */
#include <math.h>

#include "compute/sched/budget.h"
#include "fleet/sim/sim_priv.h"

#define START_FEW     32 /* prompt tokens of the two measurements at the start ... */
#define START_MANY    128
#define START_DRAWN   8 /* ... and tokens sampled after the first */
#define MANY_RUNS     256
#define EACH_RUN      8
#define STALE         0.02
#define EXACT_MARGIN  1.02 /* cost_margin() of a worker whose steps take what it predicts */
#define EXACT_ANSWER  64   /* tokens of context in the first report */
#define EXACT_DECODE  0.05
#define EXACT_PREFILL 0.25

struct learn_point { /* one step */
    uint32_t n_rows, n_prompt, position;
    double context; /* tokens of the sequences before it */
    double seconds;
};

static struct cost_step learn_decode(uint32_t n_rows, double context)
{
    return (struct cost_step){.n_rows = n_rows, .n_pairs = context + n_rows};
}

static void learn_from(const struct sim *sim, struct sim_worker *worker, const struct learn_point *point)
{
    const struct sched_speed_step step = {.decode = learn_decode(point->n_rows, point->context),
                                          .n_decode = point->n_rows,
                                          .n_prompt = point->n_prompt,
                                          .n_prompt_pairs = cost_pairs(point->position, point->n_prompt),
                                          .n_room = point->n_rows == 0 ? sim->opts->batch_tokens : 0,
                                          .chunk_tokens = sim->opts->chunk_tokens,
                                          .seconds = point->seconds};

    sched_speed_learn(&worker->speed, &step, sim->now_ns);
}

static void learn_prompt(struct sim *sim, struct sim_worker *worker, uint32_t n_tokens)
{
    learn_from(sim, worker,
               &(struct learn_point){.n_prompt = n_tokens,
                                     .seconds = sim_hosts_stretch(sim, worker) * sim_hosts_noise(sim, 1) *
                                                sim_times_prefill_s(worker->times, 0, n_tokens, n_tokens)});
}

void sim_learn_start(struct sim *sim, struct sim_worker *worker)
{
    const struct sim_times *times = worker->times;
    double stretch = sim_hosts_stretch(sim, worker);

    if (sim->opts->costs != SIM_COSTS_LEARNED)
        return;
    worker->speed = (struct sched_speed){0};
    worker->n_learned = 0;
    learn_prompt(sim, worker, START_FEW);
    for (uint32_t context = START_FEW; context + 1 < START_FEW + START_DRAWN; context++)
        learn_from(
            sim, worker,
            &(struct learn_point){.n_rows = 1,
                                  .context = context,
                                  .seconds = stretch * sim_hosts_noise(sim, 1) *
                                             (times->step_s + times->row_s + context * times->context_s)});
    learn_prompt(sim, worker, START_MANY);
}

static double learn_decode_exact_s(const struct sim_worker *worker)
{
    const struct sim_times *times = worker->times;

    if (worker->n_seats == 0)
        return 0;
    return times->step_s + worker->n_seats * times->row_s + worker->context * times->context_s;
}

/* A worker that knows its times learns only its mean rates. */
static void learn_run_exact(const struct sim *sim, struct sim_worker *worker)
{
    uint32_t k = worker->run_steps;
    double step_s = sim_worker_run_s(worker, k) / k;
    double size = sim->opts->chunk_tokens > 0 ? worker->run_chunk / sim->opts->chunk_tokens : 1;

    if (worker->run_chunk > 0)
        rate_learn(&worker->speed.prefill_rate,
                   worker->run_chunk /
                       fmax(step_s - learn_decode_exact_s(worker), SCHED_LEAST_SHARE * step_s),
                   EXACT_PREFILL, size < 1 ? size : 1, sim->now_ns);
    else
        rate_learn(&worker->speed.decode_step, step_s, k > 1 ? 1 - pow(1 - EXACT_DECODE, k) : EXACT_DECODE, 1,
                   sim->now_ns);
}

void sim_learn_run(struct sim *sim, struct sim_worker *worker)
{
    uint32_t k = worker->run_steps, n = worker->n_learned++;
    double chunk = worker->run_chunk, stretch = sim->hosts != NULL ? worker->host.stretch : 1;
    struct learn_point point = {.n_rows = worker->run_rows,
                                .n_prompt = (uint32_t)(chunk + 0.5),
                                .position = worker->run_position,
                                .context = worker->run_context,
                                .seconds = stretch * sim_worker_run_s(worker, 1)};

    if (sim->opts->costs != SIM_COSTS_LEARNED) {
        learn_run_exact(sim, worker);
        return;
    }
    if (n >= MANY_RUNS && n % EACH_RUN != 0)
        return;
    if (k < 2) {
        learn_from(sim, worker, &point);
        return;
    }
    point.seconds *= sim_hosts_noise(sim, 1); /* of this step alone */
    learn_from(sim, worker, &point);
    point.position += (uint32_t)(chunk * (k - 1));
    point.context += (double)worker->run_rows * (k - 1);
    point.seconds =
        stretch * sim_hosts_noise(sim, 1) * (sim_worker_run_s(worker, k) - sim_worker_run_s(worker, k - 1));
    learn_from(sim, worker, &point);
}

/* ---- chunks ---- */

struct learn_mixed { /* a step that the rule evaluates */
    const struct cost_model *cost;
    struct cost_step decode;
    const struct sim_times *times;
    double decode_s;
    uint32_t position; /* of the prompt */
};

static double learn_mixed_s(const void *arg, uint32_t n)
{
    const struct learn_mixed *mixed = arg;
    struct cost_step step = mixed->decode;

    step.n_prompt = n;
    step.n_pairs += cost_pairs(mixed->position, n);
    return cost_predict(mixed->cost, &step);
}

static double learn_mixed_exact_s(const void *arg, uint32_t n)
{
    const struct learn_mixed *mixed = arg;

    return mixed->decode_s + n * (mixed->times->token_s + mixed->times->pair_s * (mixed->position + n / 2.0));
}

uint32_t sim_learn_chunk(const struct sim *sim, const struct sim_worker *worker, uint32_t position)
{
    const struct cost_model *cost = &worker->speed.cost;
    struct learn_mixed mixed = {.cost = cost,
                                .decode = learn_decode(worker->n_seats, worker->context),
                                .times = worker->times,
                                .position = position};
    struct sched_budget budget = {.n_rows = worker->n_seats,
                                  .max_batch_tokens = UINT32_MAX,
                                  .chunk_tokens = sim->opts->chunk_tokens,
                                  .itl_ns = sim->opts->sched_itl_ns,
                                  .arg = &mixed};

    if (sim->opts->costs == SIM_COSTS_LEARNED) {
        budget.knows_prompts = cost_knows_prompts(cost);
        budget.decode_s = cost_predict(cost, &mixed.decode);
        budget.per_token_s = cost_per_prompt_token(cost);
        budget.margin = cost_margin(cost);
        budget.step_s = learn_mixed_s;
    } else {
        budget.knows_prompts = true;
        budget.decode_s = mixed.decode_s = learn_decode_exact_s(worker);
        budget.per_token_s = worker->times->token_s;
        budget.margin = EXACT_MARGIN;
        budget.step_s = learn_mixed_exact_s;
    }
    return sched_budget_tokens(&budget);
}

/* ---- reports ---- */

/* The learned time of the prompts in its line.  Steps of one prompt are joined, so what has passed of the run under way
 * counts as done. */
static double learn_queue_s(const struct sim *sim, const struct sim_worker *worker)
{
    uint32_t at = worker->prompts.head;
    double seconds = 0;

    for (uint32_t i = 0; i < worker->prompts.n; i++, at = sim_job_at(sim, at)->next) {
        const struct sim_job *job = sim_job_at(sim, at);

        seconds += prompt_cost_s(&worker->speed.prompt_cost, job->n_given - job->n_left, job->n_left);
        if (job->began_ns > 0 && (worker->turns == NULL || at == worker->run_prompt || job->n_packed > 0))
            seconds -= (double)(sim->now_ns - worker->host.began_ns) / 1e9;
    }
    return seconds > 0 ? seconds : 0;
}

bool sim_learn_is_stale(const struct sim *sim, const struct sim_worker *worker)
{
    const struct picker_worker *row = &worker->row;
    double pair_s = row->prompt_token_s * rate_level(&sim->pair_share);

    return sim->opts->costs == SIM_COSTS_LEARNED && row->prompt_pair_s <= 0 &&
           fabs(pair_s - row->prefill_pair_s) > STALE * pair_s;
}

static void learn_report_learned(struct sim *sim, struct sim_worker *worker)
{
    const struct sched_speed *speed = &worker->speed;
    struct picker_worker *row = &worker->row;
    struct cost_step decode = learn_decode(worker->n_seats, worker->context);
    double now_s, row_s;

    /* fleet/router/view.c: without admission by prediction, the queue is the larger of report and ledger */
    row->reported_ns = sim->opts->refuses_early ? sim->now_ns + 1 : 0;
    row->prefill_tokens_per_s = rate_level(&speed->prefill_rate);
    row->prompt_token_s = prompt_cost_hope(&speed->prompt_cost, sim->now_ns);
    row->prompt_pair_s = rate_level(&speed->prompt_cost.pair_s);
    row->queued_prefill_s = learn_queue_s(sim, worker);
    picker_pair_share_learn(&sim->pair_share, row->prompt_token_s, row->prompt_pair_s, sim->now_ns);
    picker_worker_set_prompt_cost(row, &sim->pair_share);
    sched_speed_decode(speed, &decode, &now_s, &row_s);
    row->queued_prefill_s *= sched_speed_stretch(now_s, worker->chunk_tokens * row->prompt_token_s);
    if (sim->opts->refuses_early && now_s > 0) { /* as fleet/router/workers.c keeps the latest one */
        row->step_seqs = worker->n_seats;
        row->decode_step_s = now_s;
        row->decode_row_s = row_s;
    } else if (row->step_seqs == 0) {
        row->decode_step_s = rate_level(&speed->decode_step);
    }
}

static void learn_report_exact(const struct sim *sim, struct sim_worker *worker)
{
    const struct sim_times *times = worker->times;
    struct picker_worker *row = &worker->row;

    row->reported_ns = sim->now_ns + 1;
    row->prefill_tokens_per_s = 1 / times->token_s;
    row->prefill_pair_s = times->pair_s;
    if (times->pair_s <= 0 && rate_level(&worker->speed.prefill_rate) > 0)
        row->prefill_tokens_per_s = rate_level(&worker->speed.prefill_rate);
    row->queued_prefill_s = sim_worker_queue_s(sim, worker);
    row->decode_step_s = rate_level(&worker->speed.decode_step);
    if (row->decode_step_s <= 0)
        row->decode_step_s = times->step_s + times->row_s + EXACT_ANSWER * times->context_s;
    if (worker->n_seats == 0)
        return;
    row->step_seqs = worker->n_seats;
    row->decode_step_s = learn_decode_exact_s(worker);
    row->decode_row_s = times->row_s;
    row->queued_prefill_s *= sched_speed_stretch(row->decode_step_s, worker->chunk_tokens * times->token_s);
}

void sim_learn_report(struct sim *sim, struct sim_worker *worker)
{
    if (sim->opts->costs == SIM_COSTS_LEARNED)
        learn_report_learned(sim, worker);
    else
        learn_report_exact(sim, worker);
}
