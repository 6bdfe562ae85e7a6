/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan sweep: simulates the fleet while one thing varies: the ratio of the pools, the rate, KV memory, the
 * network, the policy, a slow worker, lost workers, or the plan itself.  Points run on all processors, at most
 * eight. */
#include "clients/plan/simulate_args.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/progress.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POINTS  256
#define MAX_THREADS 7 /* besides the main one; a fleet of 900 workers takes 100 MB */

struct sweep {
    struct plan_job *job;
    const struct plan_candidate *plan;
    const struct trace *trace; /* the job's, or NULL */
    bool is_json, is_csv;
    double seed, devices; /* devices: 0, or of a sweep of ratios */
    size_t n;
    double values[MAX_POINTS];
    struct simulate_result results[MAX_POINTS];
    struct simulate_change changes[MAX_POINTS];
    const struct plan_candidate *plans[MAX_POINTS];
    _Atomic size_t next;      /* point that no thread has taken */
    struct progress progress; /* the main thread shows it */
    int codes[MAX_POINTS];
    struct fault faults[MAX_POINTS];
};

struct sweep_kind {
    const char *name, *text;
    const char *values; /* by default */
    void (*change)(const struct sweep *sweep, size_t i, struct simulate_change *out);
};

static void sweep_ratio(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    const struct plan_candidate *plan = sweep->plan;
    double p = sweep->job->pools.list[plan->prefill].devices,
           d = sweep->job->pools.list[plan->decode].devices;

    out->prefill = fmax(1, round(sweep->values[i] * sweep->devices / p));
    out->decode = fmax(1, floor((sweep->devices - out->prefill * p) / d));
}

static void sweep_rate(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    out->rate = sweep->values[i];
}

static void sweep_kv_memory(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    out->kv_memory = sweep->values[i];
}

static void sweep_network(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    out->network = sweep->values[i];
}

static void sweep_policy(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
#define X(policy, word) +1
    const unsigned n_policies = 0 SIM_POLICY_TABLE(X);
#undef X

    out->policy = (enum sim_policy)fmin(sweep->values[i], n_policies - 1);
}

static void sweep_lost(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    out->prefill = fmax(1, out->prefill - sweep->values[i]);
    out->decode = fmax(1, out->decode - sweep->values[i]);
}

static void sweep_slow(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    out->slow = sweep->values[i];
}

static void sweep_plan(const struct sweep *sweep, size_t i, struct simulate_change *out)
{
    *out = simulate_change_none(sweep->plans[i]);
}

static const struct sweep_kind KINDS[] = {
    {"ratio", "share of the devices that prefill workers have",
     "0.1,0.15,0.2,0.25,0.3,0.35,0.4,0.45,0.5,0.55,0.6,0.65,0.7,0.8,0.9", sweep_ratio},
    {"rate", "factor of the requests per second", "0.5,0.7,0.8,0.9,1,1.1,1.2,1.5,2,3", sweep_rate},
    {"kv-memory", "factor of a worker's KV memory", "0.1,0.25,0.5,0.75,1,2,4", sweep_kv_memory},
    {"network", "factor of the links' rate", "0.1,0.25,0.5,1,2", sweep_network},
    {"policy", "0 ours, 1 random, 2 round-robin, 3 load, 4 cache-aware, 5 global", "0,1,2,3,4,5",
     sweep_policy},
    {"slow", "factor of the step times of one worker in each pool", "1,1.5,2,3,5,10", sweep_slow},
    {"lost", "workers that each pool lacks", "0,1,2,3,4", sweep_lost},
    {"plan", "rank among the plans with two pools", "1,2,3,4,5", sweep_plan},
};

static void sweep_help(void)
{
    puts("Usage: baton-plan sweep [OPTIONS OF plan] --vary WHAT [OPTIONS]\n"
         "The planned fleet in the simulator, with one thing varied.\n"
         "\n"
         "      --vary WHAT        ratio (default), rate, kv-memory, network, policy, slow, lost or plan:");
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        printf("                           %-10s %s\n", KINDS[i].name, KINDS[i].text);
    puts("      --values LIST      of it, separated by commas\n"
         "      --rank N           the plan of that rank among those with two pools (1)\n"
         "      --total N          devices of a sweep of ratios (as planned)\n"
         "      --seed N           of the arrivals (1)\n"
         "      --json, --csv      instead of the table\n"
         "  -h, --help             this text");
}

static const struct sweep_kind *sweep_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        if (strcmp(name, KINDS[i].name) == 0)
            return &KINDS[i];
    complain_usage(PLAN_NAME,
                   "sweep: --vary is ratio, rate, kv-memory, network, policy, slow, lost or plan, not %s",
                   name);
    return NULL;
}

static bool sweep_values(struct sweep *sweep, const char *text)
{
    for (sweep->n = 0; sweep->n < MAX_POINTS;) {
        char *end;
        double value = strtod(text, &end);

        if (end == text || !(value >= 0 && value <= 1e6) || (*end != ',' && *end != '\0'))
            break;
        sweep->values[sweep->n++] = value;
        if (*end == '\0')
            return true;
        text = end + 1;
    }
    complain_usage(PLAN_NAME, "sweep: --values wants up to %d numbers from 0 on, separated by commas",
                   MAX_POINTS);
    return false;
}

/* ---- runs ---- */

/* The first point with the same plan and change as point i: a few devices give few ratios. */
static size_t sweep_first_same(const struct sweep *sweep, size_t i)
{
    const struct simulate_change *change = &sweep->changes[i];
    size_t at = 0;

    for (; at < i; at++) {
        const struct simulate_change *other = &sweep->changes[at];

        if (sweep->plans[at] == sweep->plans[i] && other->prefill == change->prefill &&
            other->decode == change->decode && other->rate == change->rate &&
            other->kv_memory == change->kv_memory && other->network == change->network &&
            other->slow == change->slow && other->policy == change->policy && other->seed == change->seed)
            break;
    }
    return at;
}

static void sweep_prepare(struct sweep *sweep, const struct sweep_kind *kind)
{
    for (size_t i = 0; i < sweep->n; i++) {
        size_t rank = (size_t)sweep->values[i];

        sweep->plans[i] = kind->change == sweep_plan ? simulate_candidate(sweep->job, rank - 1) : sweep->plan;
        if (sweep->plans[i] == NULL) { /* fewer plans than asked for */
            sweep->n = i;
            break;
        }
        sweep->changes[i] = simulate_change_none(sweep->plans[i]);
        kind->change(sweep, i, &sweep->changes[i]);
        sweep->changes[i].seed = (uint64_t)sweep->seed;
    }
}

/* Takes one point after another.  Runs share nothing that changes, so their results do not depend on the threads. */
static void sweep_take(struct sweep *sweep, bool shows)
{
    for (size_t i; (i = atomic_fetch_add(&sweep->next, 1)) < sweep->n;) {
        if (shows)
            progress_show(&sweep->progress, i);
        if (sweep_first_same(sweep, i) == i)
            sweep->codes[i] = simulate_run(
                sweep->job, &(struct simulate_case){sweep->plans[i], &sweep->changes[i], sweep->trace},
                &sweep->faults[i], &sweep->results[i]);
    }
}

static void *sweep_thread(void *arg)
{
    sweep_take(arg, false);
    return NULL;
}

static bool sweep_points(struct sweep *sweep, const struct sweep_kind *kind)
{
    pthread_t threads[MAX_THREADS];
    unsigned n_threads = 0, n_cpus = cpu_count_usable();

    sweep_prepare(sweep, kind);
    progress_begin(&sweep->progress, "simulating", sweep->n);
    while (n_threads + 1 < n_cpus && n_threads < MAX_THREADS && n_threads + 1 < sweep->n &&
           thread_start(&threads[n_threads], sweep_thread, sweep) == 0)
        n_threads++;
    sweep_take(sweep, true);
    while (n_threads > 0)
        pthread_join(threads[--n_threads], NULL);
    progress_end(&sweep->progress);
    for (size_t i = 0; i < sweep->n; i++) {
        size_t same = sweep_first_same(sweep, i);

        if (same < i)
            sweep->results[i] = sweep->results[same];
        else if (sweep->codes[i] < 0) {
            complain(PLAN_NAME, "%s", sweep->faults[i].text);
            return false;
        }
    }
    return sweep->n > 0 || complain(PLAN_NAME, "there is no plan with two pools to simulate") == EXIT_DONE;
}

/* ---- reports ---- */

static double sweep_devices(const struct sweep *sweep, size_t i)
{
    return sweep->changes[i].prefill * sweep->job->pools.list[sweep->plans[i]->prefill].devices +
           sweep->changes[i].decode * sweep->job->pools.list[sweep->plans[i]->decode].devices;
}

static void sweep_table(const struct sweep *sweep, const struct sweep_kind *kind)
{
    static const char BAR[] = "########################################";

    printf("%s: %s\n\n  %10s %8s %8s %8s %9s %9s %7s %7s %7s %7s  good\n", kind->name, kind->text, kind->name,
           "prefill", "decode", "devices", "TTFT s", "ITL ms", "P load", "D load", "cached", "good");
    for (size_t i = 0; i < sweep->n; i++) {
        const struct simulate_result *r = &sweep->results[i];

        printf("  %10.4g %8.0f %8.0f %8.0f %9.3g %9.3g %6.0f%% %6.0f%% %6.0f%% %6.1f%%  %.*s\n",
               sweep->values[i], sweep->changes[i].prefill, sweep->changes[i].decode, sweep_devices(sweep, i),
               r->ttft_s, r->itl_s * 1e3, 100 * r->prefill_load, 100 * r->decode_load, 100 * r->cached_share,
               100 * r->good_share, (int)(r->good_share * 40 + 0.5), BAR);
    }
    printf("\nTTFT at %.0f %%, ITL at %.0f %%; good: both objectives kept.\n",
           100 * sweep->job->work.ttft_percentile, 100 * sweep->job->work.itl_percentile);
}

static void sweep_csv(const struct sweep *sweep, const struct sweep_kind *kind)
{
    printf("%s,prefill,decode,devices,ttft_s,itl_s,prefill_load,decode_load,cached_share,good_share,good_per_"
           "s\n",
           kind->name);
    for (size_t i = 0; i < sweep->n; i++) {
        const struct simulate_result *r = &sweep->results[i];

        printf("%g,%.0f,%.0f,%.0f,%.6g,%.6g,%.4g,%.4g,%.4g,%.4g,%.6g\n", sweep->values[i],
               sweep->changes[i].prefill, sweep->changes[i].decode, sweep_devices(sweep, i), r->ttft_s,
               r->itl_s, r->prefill_load, r->decode_load, r->cached_share, r->good_share, r->good_per_s);
    }
}

static void sweep_json(const struct sweep *sweep, const struct sweep_kind *kind)
{
    printf("{\"vary\":\"%s\",\"points\":[", kind->name);
    for (size_t i = 0; i < sweep->n; i++) {
        const struct simulate_result *r = &sweep->results[i];

        printf("%s{\"value\":%g,\"prefill\":%.0f,\"decode\":%.0f,\"devices\":%.0f,\"ttft_s\":%.6g,\"itl_s\":%"
               ".6g,"
               "\"prefill_load\":%.4g,\"decode_load\":%.4g,\"cached_share\":%.4g,\"good_share\":%.4g,"
               "\"good_per_s\":%.6g}",
               i > 0 ? "," : "", sweep->values[i], sweep->changes[i].prefill, sweep->changes[i].decode,
               sweep_devices(sweep, i), r->ttft_s, r->itl_s, r->prefill_load, r->decode_load, r->cached_share,
               r->good_share, r->good_per_s);
    }
    printf("]}\n");
}

/* ---- the command ---- */

struct sweep_texts {
    const char *vary, *values, *rank, *total, *seed;
};

static int sweep_all(struct sweep *sweep, const struct sweep_texts *texts)
{
    const struct sweep_kind *kind = sweep_find(texts->vary != NULL ? texts->vary : "ratio");
    double rank = 1;

    sweep->seed = 1;
    if (kind == NULL || !sweep_values(sweep, texts->values != NULL ? texts->values : kind->values) ||
        !simulate_args_count("rank", texts->rank, &rank) ||
        !simulate_args_count("seed", texts->seed, &sweep->seed))
        return EXIT_USAGE;
    sweep->plan = simulate_candidate(sweep->job, (size_t)rank - 1);
    if (sweep->plan == NULL)
        return complain(PLAN_NAME, "there is no plan of rank %.0f with two pools", rank);
    sweep->devices = sweep->plan->devices;
    if (!simulate_args_count("total", texts->total, &sweep->devices))
        return EXIT_USAGE;
    if (!simulate_trace_of(sweep->job, &sweep->trace) || !sweep_points(sweep, kind))
        return EXIT_FAILED;
    (sweep->is_json ? sweep_json : sweep->is_csv ? sweep_csv : sweep_table)(sweep, kind);
    return finish_output(PLAN_NAME);
}

int cmd_sweep(int argc, char **argv)
{
    struct sweep_texts texts = {0};
    const struct simulate_arg args[] = {{"--vary", &texts.vary},
                                        {"--values", &texts.values},
                                        {"--rank", &texts.rank},
                                        {"--total", &texts.total},
                                        {"--seed", &texts.seed}};
    struct plan_opts opts;
    struct plan_job *job = calloc(1, sizeof(*job));
    struct sweep *sweep = calloc(1, sizeof(*sweep));
    bool is_help = false;
    int status = EXIT_FAILED;

    if (job != NULL && sweep != NULL)
        status = simulate_args_take(&argc, argv, args, ARRAY_LEN(args));
    if (status == EXIT_DONE)
        status = plan_options_read(argc, argv, job, &opts, &is_help);
    if (is_help) {
        sweep_help();
        status = finish_output(PLAN_NAME);
    } else if (status == EXIT_DONE) {
        sweep->job = job;
        sweep->is_json = opts.is_json;
        sweep->is_csv = opts.is_csv;
        status = plan_job_open(job, &opts) ? sweep_all(sweep, &texts) : EXIT_FAILED;
        plan_job_close(job);
    }
    free(sweep);
    free(job);
    return status;
}
