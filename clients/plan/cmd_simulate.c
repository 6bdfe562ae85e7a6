/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan simulate: runs the planned fleet under its load in virtual time.  It compares the plan's number of
 * workers with the fewest that keep the objectives in the simulation.
 *
 * The search sizes each pool alone, with twice the planned workers in the other one, and then both together. */
#include "clients/plan/simulate_args.h"

#include "base/check.h"
#include "base/err.h"
#include "base/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define AGREEMENT    0.1 /* relative difference at which two worker counts agree */
#define SPARE_ROUNDS 4
#define BUSY         0.8 /* load beyond which the closed form's queue is not trusted */

struct simulate_run_of { /* one call of the command */
    struct plan_job *job;
    const struct plan_candidate *plan;
    const struct trace *trace; /* the job's, or NULL */
    bool is_json;
    struct simulate_change change;
    struct simulate_result planned;
    bool has_least;
    double least_prefill, least_decode;
    double spared_prefill, spared_decode; /* the same at the plan's loads, for comparison with the plan */
    struct simulate_result least;
    struct progress progress;
    uint64_t n_runs;
};

static void simulate_help(void)
{
    puts("Usage: baton-plan simulate [OPTIONS OF plan] [OPTIONS]\n"
         "The planned fleet in the simulator, with the router's own placement, and the fewest workers it "
         "needs there.\n"
         "\n"
         "      --rank N           the plan of that rank among those with two pools (1)\n"
         "      --prefill N        workers, in place of the planned number\n"
         "      --decode N         workers, in place of the planned number\n"
         "      --search YES       no: do not look for the fewest workers\n"
         "      --seed N           of the arrivals (1)\n"
         "      --json             one JSON object\n"
         "  -h, --help             this text\n"
         "\n"
         "With --trace, its requests are the load, at --rate a second (the trace's own rate by default).");
}

static int simulate_at(struct simulate_run_of *run, double prefill, double decode,
                       struct simulate_result *out)
{
    struct simulate_change change = run->change;
    struct fault fault = {0};
    int rc;

    change.prefill = prefill;
    change.decode = decode;
    progress_show(&run->progress, ++run->n_runs);
    rc = simulate_run(run->job, &(struct simulate_case){run->plan, &change, run->trace}, &fault, out);
    if (rc < 0) {
        progress_end(&run->progress);
        complain(PLAN_NAME, "%s", fault.text);
    }
    return rc;
}

/* Returns whether that many workers suffice; negative after an error message. */
static int simulate_suffices(struct simulate_run_of *run, double prefill, double decode)
{
    struct simulate_result result;
    int rc = simulate_at(run, prefill, decode, &result);

    return rc < 0 ? rc : simulate_is_met(&run->job->work, &result);
}

/* The fewest workers of one pool, with many in the other. 0: not even four times the planned number. */
static int simulate_least_of(struct simulate_run_of *run, bool is_prefill, double *out)
{
    double planned = is_prefill ? run->plan->n_prefill : run->plan->n_decode;
    double other = 2 * (is_prefill ? run->plan->n_decode : run->plan->n_prefill);
    double low = 0, high = planned;
    int rc = 0;

    for (*out = 0; high <= 4 * planned; high *= 2) {
        rc = is_prefill ? simulate_suffices(run, high, other) : simulate_suffices(run, other, high);
        if (rc != 0)
            break;
        low = high;
    }
    if (rc <= 0)
        return rc;
    while (high - low > 1 && high - low > 0.01 * high) {
        double mid = floor((low + high) / 2);

        rc = is_prefill ? simulate_suffices(run, mid, other) : simulate_suffices(run, other, mid);
        if (rc < 0)
            return rc;
        *(rc > 0 ? &high : &low) = mid;
    }
    *out = high;
    return 0;
}

/* A plan leaves a part of its workers idle; the fewest workers of the simulation do not.  Steps are shorter where fewer
 * sequences share a worker, so the decode workers at the plan's load are found in rounds. */
static int simulate_spare(struct simulate_run_of *run)
{
    const struct plan_work *work = &run->job->work;
    struct simulate_result result = run->least;

    run->spared_prefill =
        ceil(fmax(run->least_prefill, run->least_prefill * run->least.prefill_load / work->max_load));
    run->spared_decode = run->least_decode;
    for (int i = 0; i < SPARE_ROUNDS; i++) {
        double wanted =
            fmax(run->least_decode, ceil(run->spared_decode * result.decode_load / run->plan->d.load));
        int rc;

        if (wanted == run->spared_decode)
            break;
        run->spared_decode = wanted;
        rc = simulate_at(run, run->spared_prefill, run->spared_decode, &result);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int simulate_least(struct simulate_run_of *run)
{
    int rc = simulate_least_of(run, true, &run->least_prefill);

    if (rc == 0 && run->least_prefill > 0)
        rc = simulate_least_of(run, false, &run->least_decode);
    if (rc < 0 || run->least_prefill == 0 || run->least_decode == 0)
        return rc;
    for (int i = 0; i < 40; i++) { /* both pools together need a little more */
        rc = simulate_at(run, run->least_prefill, run->least_decode, &run->least);
        if (rc < 0)
            return rc;
        if (simulate_is_met(&run->job->work, &run->least)) {
            run->has_least = true;
            return simulate_spare(run);
        }
        if (run->least.ttft_s > run->job->work.ttft_s)
            run->least_prefill += fmax(1, floor(0.01 * run->least_prefill));
        if (run->least.itl_s > run->job->work.itl_s || run->least.ttft_s <= run->job->work.ttft_s)
            run->least_decode += fmax(1, floor(0.01 * run->least_decode));
    }
    return 0;
}

/* ---- the verdict ---- */

static bool is_near(double planned, double simulated)
{
    return fabs(simulated - planned) <= fmax(AGREEMENT * planned, 1);
}

/* Says which count to believe if they differ, and why. */
static void simulate_verdict(const struct simulate_run_of *run, char *out, size_t cap)
{
    const struct plan_candidate *plan = run->plan;
    const struct plan_work *work = &run->job->work;

    if (!run->has_least)
        snprintf(
            out, cap,
            "The simulation keeps the objectives with no number of workers up to four times the planned one. "
            "Believe it: single requests of this load miss an objective on an idle fleet.");
    else if (is_near(plan->n_prefill, run->spared_prefill) && is_near(plan->n_decode, run->spared_decode))
        snprintf(out, cap, "They agree within 10 %% or one worker of each pool.");
    else if (run->trace != NULL)
        snprintf(out, cap,
                 "They differ. Believe the simulation: the trace has bursts, and its prefixes are found only "
                 "where "
                 "they were computed (%.0f %% cached), which the plan's mean rate and cached share (%.0f %%) "
                 "leave out.",
                 100 * run->least.cached_share, 100 * work->hit);
    else if (plan->p.load > BUSY || plan->d.load > BUSY)
        snprintf(
            out, cap,
            "They differ. Believe the simulation: workers are planned to be more than 80 %% busy, where the "
            "plan's formula for waiting is an estimate and the simulation counts.");
    else if (plan->d.bound == BOUND_MEMORY && !is_near(plan->n_decode, run->spared_decode))
        snprintf(out, cap,
                 "They differ. Believe the simulation: KV memory bounds the batch, and it depends on the "
                 "lengths that "
                 "meet in it, of which the plan takes the mean.");
    else
        snprintf(out, cap,
                 "They differ below 80 %% load. Believe the plan where step times are far from linear in the "
                 "batch: the "
                 "simulation takes the line through the planned batch.");
}

/* ---- reports ---- */

struct simulate_row {
    const char *name, *unit;
    double scale;
    double planned, simulated, least;
};

static void simulate_show(const struct simulate_row *rows, size_t n, bool has_least)
{
    for (size_t i = 0; i < n; i++) {
        const struct simulate_row *row = &rows[i];

        printf("  %-22s %10.3g %10.3g", row->name, row->planned * row->scale, row->simulated * row->scale);
        if (has_least)
            printf(" %10.3g", row->least * row->scale);
        printf("  %s\n", row->unit);
    }
}

static void simulate_table(const struct simulate_run_of *run)
{
    const struct plan_candidate *plan = run->plan;
    const struct simulate_result *a = &run->planned, *b = &run->least;
    const struct plan_work *work = &run->job->work;
    const struct simulate_row workers[] = {
        {"prefill workers", "", 1, plan->n_prefill, run->change.prefill, run->least_prefill},
        {"decode workers", "", 1, plan->n_decode, run->change.decode, run->least_decode},
    };
    const struct simulate_row figures[] = {
        {"time to first token", "s", 1, plan->ttft_s, a->ttft_s, b->ttft_s},
        {"time between tokens", "ms", 1e3, plan->itl_s, a->itl_s, b->itl_s},
        {"prefill load", "%", 100, plan->p.load, a->prefill_load, b->prefill_load},
        {"decode load", "%", 100, plan->d.load, a->decode_load, b->decode_load},
        {"prompt cached", "%", 100, work->hit, a->cached_share, b->cached_share},
        {"objectives kept", "%", 100, work->ttft_percentile, a->good_share, b->good_share},
    };
    char prefill[64], decode[64], verdict[512];

    plan_pool_layout(&run->job->pools.list[plan->prefill], prefill, sizeof(prefill));
    plan_pool_layout(&run->job->pools.list[plan->decode], decode, sizeof(decode));
    printf("%s: prefill %s %s, decode %s %s; %" PRIu64 " requests of %.3g/s%s\n\n", run->job->model.name,
           run->job->pools.list[plan->prefill].cost.setup.device->id, prefill,
           run->job->pools.list[plan->decode].cost.setup.device->id, decode, a->n_requests,
           work->rate_per_s * a->slice, a->slice < 1 ? ", a slice of the fleet" : "");
    printf("  %-22s %10s %10s%s\n", "", "plan", "simulated", run->has_least ? "     fewest" : "");
    simulate_show(workers, ARRAY_LEN(workers), run->has_least);
    printf("  at %.0f %% and %.0f %%:\n", 100 * work->ttft_percentile, 100 * work->itl_percentile);
    simulate_show(figures, ARRAY_LEN(figures), run->has_least);
    if (run->has_least)
        printf("\nAt the plan's loads (%.0f %% and %.0f %%) the fewest workers are %.0f + %.0f; the plan has "
               "%.0f + %.0f.\n",
               100 * work->max_load, 100 * plan->d.load, run->spared_prefill, run->spared_decode,
               plan->n_prefill, plan->n_decode);
    if (run->has_least || run->least_prefill > 0) {
        simulate_verdict(run, verdict, sizeof(verdict));
        printf("%s\n", verdict);
    }
}

static void simulate_json_of(const char *name, double prefill, double decode, const struct simulate_result *r)
{
    printf("\"%s\":{\"prefill\":%.0f,\"decode\":%.0f,\"ttft_s\":%.6g,\"ttft_mean_s\":%.6g,\"itl_s\":%.6g,"
           "\"itl_mean_s\":%.6g,"
           "\"prefill_load\":%.4g,\"decode_load\":%.4g,\"cached_share\":%.4g,\"good_share\":%.4g,\"refused_"
           "share\":%.4g,"
           "\"requests\":%" PRIu64 ",\"slice\":%.4g}",
           name, prefill, decode, r->ttft_s, r->ttft_mean_s, r->itl_s, r->itl_mean_s, r->prefill_load,
           r->decode_load, r->cached_share, r->good_share, r->refused_share, r->n_requests, r->slice);
}

static void simulate_json(const struct simulate_run_of *run)
{
    const struct plan_candidate *plan = run->plan;
    char verdict[512];

    printf("{\"plan\":{\"prefill\":%.0f,\"decode\":%.0f,\"ttft_s\":%.6g,\"itl_s\":%.6g,\"prefill_load\":%.4g,"
           "\"decode_load\":%.4g},",
           plan->n_prefill, plan->n_decode, plan->ttft_s, plan->itl_s, plan->p.load, plan->d.load);
    simulate_json_of("simulated", run->change.prefill, run->change.decode, &run->planned);
    if (run->has_least) {
        printf(",");
        simulate_json_of("fewest", run->least_prefill, run->least_decode, &run->least);
    }
    simulate_verdict(run, verdict, sizeof(verdict));
    if (run->has_least)
        printf(",\"at_plan_loads\":{\"prefill\":%.0f,\"decode\":%.0f}", run->spared_prefill,
               run->spared_decode);
    printf(",\"verdict\":\"%s\"}\n", verdict);
}

/* ---- the command ---- */

struct simulate_texts {
    const char *rank, *prefill, *decode, *search, *seed;
};

static int simulate_all(struct simulate_run_of *run, const struct simulate_texts *texts)
{
    double rank = 1, seed = 1;
    int rc;

    if (!simulate_args_count("rank", texts->rank, &rank) || !simulate_args_count("seed", texts->seed, &seed))
        return EXIT_USAGE;
    run->plan = simulate_candidate(run->job, (size_t)rank - 1);
    if (run->plan == NULL)
        return complain(PLAN_NAME, "there is no plan of rank %.0f with two pools", rank);
    run->change = simulate_change_none(run->plan);
    run->change.seed = (uint64_t)seed;
    if (!simulate_args_count("prefill", texts->prefill, &run->change.prefill) ||
        !simulate_args_count("decode", texts->decode, &run->change.decode))
        return EXIT_USAGE;
    if (!simulate_trace_of(run->job, &run->trace))
        return EXIT_FAILED;
    progress_begin(&run->progress, "simulating, run", 0);
    rc = simulate_at(run, run->change.prefill, run->change.decode, &run->planned);
    if (rc == 0 && (texts->search == NULL || texts->search[0] != 'n'))
        rc = simulate_least(run);
    progress_end(&run->progress);
    if (rc < 0)
        return EXIT_FAILED;
    (run->is_json ? simulate_json : simulate_table)(run);
    return finish_output(PLAN_NAME);
}

int cmd_simulate(int argc, char **argv)
{
    struct simulate_texts texts = {0};
    const struct simulate_arg args[] = {{"--rank", &texts.rank},
                                        {"--prefill", &texts.prefill},
                                        {"--decode", &texts.decode},
                                        {"--search", &texts.search},
                                        {"--seed", &texts.seed}};
    struct plan_opts opts;
    struct plan_job *job = calloc(1, sizeof(*job));
    struct simulate_run_of run = {.job = job};
    bool is_help = false;
    int status;

    if (job == NULL)
        return complain(PLAN_NAME, "out of memory");
    status = simulate_args_take(&argc, argv, args, sizeof(args) / sizeof(args[0]));
    if (status == EXIT_DONE)
        status = plan_options_read(argc, argv, job, &opts, &is_help);
    if (is_help) {
        simulate_help();
        status = finish_output(PLAN_NAME);
    } else if (status == EXIT_DONE) {
        run.is_json = opts.is_json;
        status = plan_job_open(job, &opts) ? simulate_all(&run, &texts) : EXIT_FAILED;
        plan_job_close(job);
    }
    free(job);
    return status;
}
