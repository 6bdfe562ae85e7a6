/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan plan: the number of workers and their devices.  This file has the options and the order of the
 * steps. */
#include "clients/plan/plan_job.h"

#include "base/err.h"
#include "base/str.h"

#include <getopt.h>
#include <math.h>
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

struct plan_opts {
    const char *model, *constants, *more_devices, *more_models, *trace, *link, *html, *conf;
    const char *devices[PLAN_MAX_DEVICES];
    const char *prices[PLAN_MAX_DEVICES], *watts[PLAN_MAX_DEVICES];
    size_t n_prices, n_watts;
    double growth;
    bool is_json, is_csv, is_explained, has_model;
};

static void plan_help(void)
{
    puts("Usage: baton-plan plan --model MODEL --device DEVICE... --rate R --ttft T --itl T [OPTIONS]\n"
         "How many prefill and decode workers meet the objectives; ranked by cost.\n"
         "\n"
         "  -m, --model MODEL      a name (baton-plan models), config.json, FILE.gguf, or "
         "layers=..,hidden=..\n"
         "  -d, --device DEVICE    a name (baton-plan devices), with changes: h100,memory=94GB; repeat;\n"
         "                         or what baton-model bench --json said: host.json,memory=64GB\n"
         "      --prefill-device D for the prefill pool only; repeat\n"
         "      --decode-device D  for the decode pool only; repeat\n"
         "  -w, --weights TYPE     bf16, fp8, int8, fp4, mxfp4, int4, q8_0, q4_k ... (bf16)\n"
         "      --kv TYPE          of the KV cache (bf16)\n"
         "      --engine NAME      vllm, sglang, trtllm: use what is known of it\n"
         "      --isl N[,P90]      prompt tokens: mean, 90 % point\n"
         "      --osl N[,P90]      output tokens\n"
         "      --hit PART         of the prompt tokens that the prefix cache holds (0)\n"
         "  -r, --rate R           requests a second\n"
         "      --growth F         plan for F times the rate (1)\n"
         "      --trace FILE       lengths, rate and reuse of a Mooncake trace instead\n"
         "      --ttft T           time to first token, such as 2s\n"
         "      --itl T            time between tokens, such as 40ms\n"
         "      --percentile P     of requests that meet them (0.9)\n"
         "      --link LINK        path of KV of a worker: a name (baton-plan links) or 400Gb/s; else the "
         "NICs\n"
         "      --whole-transfer   KV leaves when the prompt is done, not layer by layer\n"
         "      --reserve PART     of memory that stays free (0.1)\n"
         "      --load PART        highest load of a prefill worker (0.85)\n"
         "      --spare N          workers more in each pool\n"
         "      --price D=DOLLARS  per device and hour; --watts D=W the power; repeat\n"
         "      --tp N             devices of a worker, instead of all that are usual\n"
         "      --wide-ep          also experts over 8 to 144 devices with data-parallel attention\n"
         "  -c, --constants FILE   constants of baton-plan calibrate\n"
         "      --devices, --models FILE   more of them\n"
         "      --json, --csv      instead of the table; --top N rows (10)\n"
         "      --explain          the terms of the best plan with their numbers\n"
         "      --html FILE        a page with charts\n"
         "      --conf DIR         router.conf, prefill.conf and decode.conf of the best plan");
}

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
        return option_f64(PLAN_NAME, "percentile", optarg, &work->percentile);
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

/* ---- the job ---- */

/* "h100=2.95", or "2.95" for all. */
static bool job_set_number(struct plan_job *job, const char *text, enum plan_device_field field)
{
    const char *equals = strchr(text, '=');
    double value;
    bool is_used = equals == NULL;

    if (!option_f64(PLAN_NAME, plan_device_field_name(field), equals == NULL ? text : equals + 1, &value))
        return false;
    for (size_t i = 0; i < job->n_devices; i++) {
        struct plan_device *device = &job->devices[i];
        char name[48];

        snprintf(name, sizeof(name), "%.*s", equals == NULL ? 0 : (int)(equals - text), text);
        bool is_named = plan_name_begins(device->id, name) || plan_name_in_list(device->aliases, name);
        if (equals == NULL || is_named) {
            device->at[field] = value;
            is_used = true;
        }
    }
    if (!is_used)
        complain(PLAN_NAME, "%s: no such device in this plan", text);
    return is_used;
}

/* "bench.json,memory=64GB": adds the measured host, and returns its name with the changes. */
static bool job_add_host(struct plan_job *job, size_t i, const char *text, char *out, size_t cap)
{
    char path[512], id[48];
    struct buf bench = {0};
    struct fault fault = {0};
    size_t len = strcspn(text, ",");

    str_copy(out, cap, text);
    if (len < 6 || len >= sizeof(path) || strncmp(text + len - 5, ".json", 5) != 0)
        return true;
    snprintf(path, sizeof(path), "%.*s", (int)len, text);
    const char *base = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
    snprintf(id, sizeof(id), "%.*s", (int)(strlen(base) - 5), base);
    snprintf(out, cap, "%s%s", id, text + len);
    if (!plan_cli_read(path, &bench))
        return false;
    int rc = plan_host_add(buf_view(&bench), id, &job->books.devices, &job->hosts[i], &fault);
    buf_fini(&bench);
    if (rc != 0)
        complain(PLAN_NAME, "%s: %s", path, fault.text);
    return rc == 0;
}

static bool job_find_devices(struct plan_job *job, const struct plan_opts *opts)
{
    for (size_t i = 0; i < job->n_devices; i++) {
        struct fault fault = {0};
        char name[600];

        if (!job_add_host(job, i, opts->devices[i], name, sizeof(name)))
            return false;
        if (plan_device_inline(&job->books.devices, name, &fault, &job->devices[i]) != 0) {
            complain(PLAN_NAME, "--device %s: %s", opts->devices[i], fault.text);
            return false;
        }
    }
    for (size_t i = 0; i < opts->n_prices; i++)
        if (!job_set_number(job, opts->prices[i], DEV_PRICE))
            return false;
    for (size_t i = 0; i < opts->n_watts; i++)
        if (!job_set_number(job, opts->watts[i], DEV_WATTS))
            return false;
    return true;
}

static bool job_prepare(struct plan_job *job, const struct plan_opts *opts)
{
    struct fault fault = {0};

    size_t len = strlen(opts->model);

    if (len > 5 && strcmp(opts->model + len - 5, ".gguf") == 0)
        job->model_file = opts->model;
    if (!plan_cli_model(opts->model, &job->books, &job->model) || !job_find_devices(job, opts))
        return false;
    if (opts->trace != NULL && !plan_trace_read(opts->trace, &job->work))
        return false;
    if (opts->link != NULL && plan_links_find(&job->books.links, opts->link, &fault, &job->work.link) != 0) {
        complain(PLAN_NAME, "--link %s: %s", opts->link, fault.text);
        return false;
    }
    job->work.rate_per_s *= opts->growth;
    if (plan_work_check(&job->work, &fault) != 0) {
        complain_usage(PLAN_NAME, "plan: %s", fault.text);
        return false;
    }
    return true;
}

static bool job_search(struct plan_job *job)
{
    struct plan_pools_ask ask = {
        .model = &job->model,
        .constants = &job->constants,
        .engine = job->engine,
        .weights = job->weights,
        .kv = job->kv,
        .work = &job->work,
        .tp = job->tp,
        .is_wide = job->is_wide,
    };

    for (size_t i = 0; i < job->n_devices; i++) {
        ask.constants = job->hosts[i].name[0] != '\0' ? &job->hosts[i] : &job->constants;
        int rc = plan_pools_add(&job->pools, &ask, &job->devices[i], job->roles[i], &job->refusals[i]);
        if (rc == 0)
            job->refusals[i].code = 0;
        else
            complain(PLAN_NAME, "refused: %s", job->refusals[i].text);
    }
    if (job->pools.n == 0) {
        complain(PLAN_NAME, "no device of this plan can serve %s", job->model.name);
        return false;
    }
    for (size_t i = 0; i < job->n_devices; i++) {
        const struct plan_device *d = &job->devices[i];
        if (job->refusals[i].code == 0 && isnan(job->work.link.rate) && isnan(d->at[DEV_NIC_RATE]))
            complain(PLAN_NAME,
                     "%s: nic_rate is not known, so its KV cannot be sent: give --link to split phases",
                     d->id);
        if (job->refusals[i].code == 0 && strcmp(d->kind, "cpu") == 0 && job->hosts[i].name[0] == '\0' &&
            strncmp(job->constants.name, "public", 6) == 0)
            complain(PLAN_NAME, "%s: the constants come from GPUs; calibrate on such a host first", d->id);
    }
    int rc = plan_search(job->pools.list, job->pools.n, &job->work, job->n_shown, &job->answer);
    if (rc == E_NOT_FOUND)
        complain(PLAN_NAME,
                 "no number of workers meets TTFT %g s and ITL %g ms: relax one, or take faster devices",
                 job->work.ttft_s, job->work.itl_s * 1e3);
    else if (rc != 0)
        complain(PLAN_NAME, "%s", err_text(rc));
    return rc == 0;
}

static int job_run(struct plan_job *job, const struct plan_opts *opts)
{
    if (!job_prepare(job, opts) || !job_search(job))
        return EXIT_FAILED;
    if (opts->is_json)
        plan_report_json(job);
    else if (opts->is_csv)
        plan_report_csv(job);
    else
        plan_report_table(job);
    if (opts->is_explained)
        plan_explain(job);
    if ((opts->html != NULL && !plan_html(job, opts->html)) ||
        (opts->conf != NULL && !plan_conf(job, opts->conf)))
        return EXIT_FAILED;
    return finish_output(PLAN_NAME);
}

static int job_open(struct plan_job *job, const struct plan_opts *opts)
{
    int status = EXIT_FAILED;

    if (opts->model == NULL || job->n_devices == 0)
        return complain_usage(PLAN_NAME, "plan: --model and --device are needed");
    if (!plan_cli_books(opts->more_devices, opts->more_models, &job->books))
        return status;
    if (plan_cli_constants(opts->constants, &job->constants)) {
        status = job_run(job, opts);
        plan_constants_fini(&job->constants);
    }
    plan_answer_fini(&job->answer);
    plan_pools_fini(&job->pools);
    plan_books_fini(&job->books);
    return status;
}

int cmd_plan(int argc, char **argv)
{
    struct plan_opts opts = {.growth = 1};
    struct plan_job *job = calloc(1, sizeof(*job));
    int status = -1;

    if (job == NULL)
        return complain(PLAN_NAME, "out of memory");
    job->weights = job->kv = "bf16";
    job->n_shown = 10;
    job->work.reserve = 0.1;
    job->work.is_layerwise = true;
    for (int c; status < 0 && (c = getopt_long(argc, argv, "m:d:w:r:c:h", OPTIONS, NULL)) != -1;) {
        if (c == 'h') {
            plan_help();
            status = finish_output(PLAN_NAME);
        } else if (c == '?' || !option_take(job, &opts, c))
            status = complain_usage(PLAN_NAME, "plan: wrong option or value");
    }
    if (status < 0 && optind != argc)
        status = complain_usage(PLAN_NAME, "plan: \"%s\" is not an option", argv[optind]);
    if (status < 0)
        status = job_open(job, &opts);
    free(job);
    return status;
}
