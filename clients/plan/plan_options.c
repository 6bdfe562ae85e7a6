/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what is planned: model, devices, work, objectives. */
#include "clients/plan/plan_job.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    OPT_PREFILL = 256,
    OPT_DECODE,
    OPT_KV,
    OPT_ENGINE,
    OPT_ISL,
    OPT_OSL,
    OPT_HIT,
    OPT_GROWTH,
    OPT_TRACE,
    OPT_TTFT,
    OPT_ITL,
    OPT_PERCENTILE,
    OPT_LINK,
    OPT_WHOLE,
    OPT_RESERVE,
    OPT_LOAD,
    OPT_SPARE,
    OPT_PRICE,
    OPT_WATTS,
    OPT_TP,
    OPT_WIDE,
    OPT_DEVICES,
    OPT_MODELS,
    OPT_JSON,
    OPT_CSV,
    OPT_HTML,
    OPT_EXPLAIN,
    OPT_CONF,
    OPT_TOP
};

static const struct option OPTIONS[] = {
    {"model", required_argument, NULL, 'm'},
    {"device", required_argument, NULL, 'd'},
    {"prefill-device", required_argument, NULL, OPT_PREFILL},
    {"decode-device", required_argument, NULL, OPT_DECODE},
    {"weights", required_argument, NULL, 'w'},
    {"kv", required_argument, NULL, OPT_KV},
    {"engine", required_argument, NULL, OPT_ENGINE},
    {"isl", required_argument, NULL, OPT_ISL},
    {"osl", required_argument, NULL, OPT_OSL},
    {"hit", required_argument, NULL, OPT_HIT},
    {"rate", required_argument, NULL, 'r'},
    {"growth", required_argument, NULL, OPT_GROWTH},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"ttft", required_argument, NULL, OPT_TTFT},
    {"itl", required_argument, NULL, OPT_ITL},
    {"percentile", required_argument, NULL, OPT_PERCENTILE},
    {"link", required_argument, NULL, OPT_LINK},
    {"whole-transfer", no_argument, NULL, OPT_WHOLE},
    {"reserve", required_argument, NULL, OPT_RESERVE},
    {"load", required_argument, NULL, OPT_LOAD},
    {"spare", required_argument, NULL, OPT_SPARE},
    {"price", required_argument, NULL, OPT_PRICE},
    {"watts", required_argument, NULL, OPT_WATTS},
    {"tp", required_argument, NULL, OPT_TP},
    {"wide-ep", no_argument, NULL, OPT_WIDE},
    {"constants", required_argument, NULL, 'c'},
    {"devices", required_argument, NULL, OPT_DEVICES},
    {"models", required_argument, NULL, OPT_MODELS},
    {"json", no_argument, NULL, OPT_JSON},
    {"csv", no_argument, NULL, OPT_CSV},
    {"html", required_argument, NULL, OPT_HTML},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"conf", required_argument, NULL, OPT_CONF},
    {"top", required_argument, NULL, OPT_TOP},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool option_pair(const char *option, char *text, double *first, double *second)
{
    char *comma = strchr(text, ',');

    if (comma != NULL) {
        *comma = '\0';
        if (!option_f64(PLAN_NAME, option, comma + 1, second))
            return false;
    }
    return option_f64(PLAN_NAME, option, text, first);
}

static bool option_seconds(const char *option, const char *text, double *out)
{
    uint64_t ns;

    if (!option_duration(PLAN_NAME, option, text, &ns))
        return false;
    *out = (double)ns / 1e9;
    return true;
}

static bool job_add_device(struct plan_job *job, struct plan_opts *opts, const char *text,
                           enum plan_role role)
{
    if (job->n_devices == PLAN_MAX_DEVICES) {
        complain(PLAN_NAME, "more than %d devices", PLAN_MAX_DEVICES);
        return false;
    }
    job->roles[job->n_devices] = role;
    opts->devices[job->n_devices++] = text;
    return true;
}

static bool option_list(const char **list, size_t *n, const char *text)
{
    if (*n == PLAN_MAX_DEVICES) {
        complain(PLAN_NAME, "an option is repeated more than %d times", PLAN_MAX_DEVICES);
        return false;
    }
    list[(*n)++] = text;
    return true;
}

/* Options of the work. */
static bool option_work(struct plan_work *work, int c)
{
    uint64_t n;

    switch (c) {
    case OPT_ISL:
        return option_pair("isl", optarg, &work->isl, &work->isl_p90);
    case OPT_OSL:
        return option_pair("osl", optarg, &work->osl, &work->osl_p90);
    case OPT_HIT:
        return option_f64(PLAN_NAME, "hit", optarg, &work->hit);
    case 'r':
        return option_f64(PLAN_NAME, "rate", optarg, &work->rate_per_s);
    case OPT_TTFT:
        return option_seconds("ttft", optarg, &work->ttft_s);
    case OPT_ITL:
        return option_seconds("itl", optarg, &work->itl_s);
    case OPT_PERCENTILE:
        return option_pair("percentile", optarg, &work->ttft_percentile, &work->itl_percentile);
    case OPT_RESERVE:
        return option_f64(PLAN_NAME, "reserve", optarg, &work->reserve);
    case OPT_LOAD:
        return option_f64(PLAN_NAME, "load", optarg, &work->max_load);
    case OPT_SPARE:
        if (!option_u64(PLAN_NAME, "spare", optarg, &n) || n > 1000000)
            return false;
        work->spare = (double)n;
        return true;
    case OPT_WHOLE:
        work->is_layerwise = false;
        return true;
    }
    return false;
}

static bool option_text(struct plan_job *job, struct plan_opts *opts, int c)
{
    const struct {
        int option;
        const char **to;
    } TEXTS[] = {
        {'m', &opts->model},
        {'w', &job->weights},
        {OPT_KV, &job->kv},
        {OPT_ENGINE, &job->engine},
        {OPT_TRACE, &opts->trace},
        {OPT_LINK, &opts->link},
        {'c', &opts->constants},
        {OPT_HTML, &opts->html},
        {OPT_DEVICES, &opts->more_devices},
        {OPT_CONF, &opts->conf},
        {OPT_MODELS, &opts->more_models},
    };

    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        if (TEXTS[i].option == c) {
            *TEXTS[i].to = optarg;
            return true;
        }
    return option_work(&job->work, c);
}

static bool option_take(struct plan_job *job, struct plan_opts *opts, int c)
{
    uint64_t n;

    switch (c) {
    case 'd':
        return job_add_device(job, opts, optarg, ROLE_BOTH);
    case OPT_PREFILL:
        return job_add_device(job, opts, optarg, ROLE_PREFILL);
    case OPT_DECODE:
        return job_add_device(job, opts, optarg, ROLE_DECODE);
    case OPT_PRICE:
        return option_list(opts->prices, &opts->n_prices, optarg);
    case OPT_WATTS:
        return option_list(opts->watts, &opts->n_watts, optarg);
    case OPT_GROWTH:
        return option_f64(PLAN_NAME, "growth", optarg, &opts->growth);
    case OPT_TP:
        if (!option_u64(PLAN_NAME, "tp", optarg, &n) || n == 0 || n > 1024)
            return false;
        job->tp = (double)n;
        return true;
    case OPT_TOP:
        if (!option_u64(PLAN_NAME, "top", optarg, &n) || n == 0)
            return false;
        job->n_shown = n < 1000000 ? (size_t)n : 1000000;
        return true;
    case OPT_WIDE:
        return job->is_wide = true;
    case OPT_JSON:
        return opts->is_json = true;
    case OPT_CSV:
        return opts->is_csv = true;
    case OPT_EXPLAIN:
        return opts->is_explained = true;
    }
    return option_text(job, opts, c);
}

int plan_options_read(int argc, char **argv, struct plan_job *job, struct plan_opts *opts, bool *is_help_out)
{
    *opts = (struct plan_opts){.growth = 1};
    job->weights = job->kv = "bf16";
    job->n_shown = 10;
    job->work.reserve = 0.1;
    job->work.is_layerwise = true;
    *is_help_out = false;
    for (int c; (c = getopt_long(argc, argv, "m:d:w:r:c:h", OPTIONS, NULL)) != -1;) {
        if (c == 'h') {
            *is_help_out = true;
            return EXIT_DONE;
        }
        if (c == '?' || !option_take(job, opts, c))
            return complain_usage(PLAN_NAME, "%s: wrong option or value", argv[0]);
    }
    if (optind != argc)
        return complain_usage(PLAN_NAME, "%s: \"%s\" is not an option", argv[0], argv[optind]);
    if (opts->model == NULL || job->n_devices == 0)
        return complain_usage(PLAN_NAME, "%s: --model and --device are needed", argv[0]);
    return EXIT_DONE;
}
