/* SPDX-License-Identifier: Apache-2.0 */
/* One table of the options of plan, simulate and sweep (model, devices, work, objectives) and of calibrate.  An
 * option with the same meaning in both has one row.  The letters differ, because calibrate's are older. */
#include "clients/plan/calibrate.h"
#include "clients/plan/plan_job.h"

#include "base/check.h"

#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>

#define OPTION_CODE 256 /* getopt's code of the first row */

enum option_kind {
    OPTION_TEXT,
    OPTION_F64,
    OPTION_PAIR,    /* one or two numbers, the second in the field behind */
    OPTION_SECONDS, /* a duration as a number */
    OPTION_NS,      /* a duration */
    OPTION_COUNT,   /* a whole number as a number */
    OPTION_TOP,     /* a whole number of rows */
    OPTION_ON,
    OPTION_OFF,
    OPTION_DEVICE, /* repeated; for both pools */
    OPTION_PREFILL_DEVICE,
    OPTION_DECODE_DEVICE,
    OPTION_LIST, /* repeated texts, their number in the field behind */
    OPTION_HELP
};

struct option_place { /* NOT: the command lacks the option */
    enum { NOT, IN_JOB, IN_OPTS, IN_CALIBRATE } in;
    size_t at;
};

enum option_command { PLANNING, CALIBRATING, COMMANDS };

struct option_row {
    const char *name;
    enum option_kind kind;
    struct option_place places[COMMANDS];
    char letters[COMMANDS];
    double least, most; /* of numbers that are counted */
};

#define JOB(field)                                                                                           \
    {                                                                                                        \
        IN_JOB, offsetof(struct plan_job, field)                                                             \
    }
#define WORK(field)                                                                                          \
    {                                                                                                        \
        IN_JOB, offsetof(struct plan_job, work) + offsetof(struct plan_work, field)                          \
    }
#define OPTS(field)                                                                                          \
    {                                                                                                        \
        IN_OPTS, offsetof(struct plan_opts, field)                                                           \
    }
#define CALIBRATE(field)                                                                                     \
    {                                                                                                        \
        IN_CALIBRATE, offsetof(struct calibrate_opts, field)                                                 \
    }
#define NO                                                                                                   \
    {                                                                                                        \
        NOT, 0                                                                                               \
    }

/* clang-format off */
static const struct option_row ROWS[] = {
    {"model", OPTION_TEXT, {OPTS(model), CALIBRATE(model)}, {'m', 0}, 0, 0},
    {"weights", OPTION_TEXT, {JOB(weights), CALIBRATE(weights)}, {'w', 0}, 0, 0},
    {"kv", OPTION_TEXT, {JOB(kv), CALIBRATE(kv)}, {0, 0}, 0, 0},
    {"engine", OPTION_TEXT, {JOB(engine), CALIBRATE(engine)}, {0, 0}, 0, 0},
    {"tp", OPTION_COUNT, {JOB(tp), CALIBRATE(tp)}, {0, 0}, 1, 1024},
    {"constants", OPTION_TEXT, {OPTS(constants), CALIBRATE(constants)}, {'c', 'c'}, 0, 0},
    {"devices", OPTION_TEXT, {OPTS(more_devices), CALIBRATE(devices)}, {0, 'd'}, 0, 0},
    {"models", OPTION_TEXT, {OPTS(more_models), CALIBRATE(models)}, {0, 'm'}, 0, 0},
    {"device", OPTION_DEVICE, {OPTS(devices), NO}, {'d', 0}, 0, 0},
    {"device", OPTION_TEXT, {NO, CALIBRATE(device)}, {0, 0}, 0, 0},
    {"help", OPTION_HELP, {OPTS(is_help), CALIBRATE(is_help)}, {'h', 'h'}, 0, 0},

    {"prefill-device", OPTION_PREFILL_DEVICE, {OPTS(devices), NO}, {0, 0}, 0, 0},
    {"decode-device", OPTION_DECODE_DEVICE, {OPTS(devices), NO}, {0, 0}, 0, 0},
    {"isl", OPTION_PAIR, {WORK(isl), NO}, {0, 0}, 0, 0},
    {"osl", OPTION_PAIR, {WORK(osl), NO}, {0, 0}, 0, 0},
    {"hit", OPTION_F64, {WORK(hit), NO}, {0, 0}, 0, 0},
    {"rate", OPTION_F64, {WORK(rate_per_s), NO}, {'r', 0}, 0, 0},
    {"growth", OPTION_F64, {OPTS(growth), NO}, {0, 0}, 0, 0},
    {"trace", OPTION_TEXT, {OPTS(trace), NO}, {0, 0}, 0, 0},
    {"ttft", OPTION_SECONDS, {WORK(ttft_s), NO}, {0, 0}, 0, 0},
    {"itl", OPTION_SECONDS, {WORK(itl_s), NO}, {0, 0}, 0, 0},
    {"percentile", OPTION_PAIR, {WORK(ttft_percentile), NO}, {0, 0}, 0, 0},
    {"link", OPTION_TEXT, {OPTS(link), NO}, {0, 0}, 0, 0},
    {"whole-transfer", OPTION_OFF, {WORK(is_layerwise), NO}, {0, 0}, 0, 0},
    {"reserve", OPTION_F64, {WORK(reserve), NO}, {0, 0}, 0, 0},
    {"load", OPTION_F64, {WORK(max_load), NO}, {0, 0}, 0, 0},
    {"spare", OPTION_COUNT, {WORK(spare), NO}, {0, 0}, 0, 1000000},
    {"price", OPTION_LIST, {OPTS(prices), NO}, {0, 0}, 0, 0},
    {"watts", OPTION_LIST, {OPTS(watts), NO}, {0, 0}, 0, 0},
    {"wide-ep", OPTION_ON, {JOB(is_wide), NO}, {0, 0}, 0, 0},
    {"json", OPTION_ON, {OPTS(is_json), NO}, {0, 0}, 0, 0},
    {"csv", OPTION_ON, {OPTS(is_csv), NO}, {0, 0}, 0, 0},
    {"html", OPTION_TEXT, {OPTS(html), NO}, {0, 0}, 0, 0},
    {"explain", OPTION_ON, {OPTS(is_explained), NO}, {0, 0}, 0, 0},
    {"conf", OPTION_TEXT, {OPTS(conf), NO}, {0, 0}, 0, 0},
    {"top", OPTION_TOP, {JOB(n_shown), NO}, {0, 0}, 1, 1000000},

    {"output", OPTION_TEXT, {NO, CALIBRATE(output)}, {0, 'o'}, 0, 0},
    {"name", OPTION_TEXT, {NO, CALIBRATE(name)}, {0, 'n'}, 0, 0},
    {"url", OPTION_TEXT, {NO, CALIBRATE(url)}, {0, 'u'}, 0, 0},
    {"served", OPTION_TEXT, {NO, CALIBRATE(served)}, {0, 0}, 0, 0},
    {"time", OPTION_NS, {NO, CALIBRATE(time_ns)}, {0, 0}, 0, 0},
    {"measured", OPTION_TEXT, {NO, CALIBRATE(measured)}, {0, 0}, 0, 0},
    {"points", OPTION_TEXT, {NO, CALIBRATE(points)}, {0, 0}, 0, 0},
    {"split", OPTION_ON, {NO, CALIBRATE(is_split)}, {0, 0}, 0, 0},
};
/* clang-format on */

struct option_target { /* what the options of one call fill in */
    enum option_command command;
    struct plan_job *job;
    struct plan_opts *opts;
    struct calibrate_opts *calibrate;
};

/* ---- values ---- */

static bool option_pair(const char *name, char *text, double out[2])
{
    char *comma = strchr(text, ',');

    if (comma != NULL) {
        *comma = '\0';
        if (!option_f64(PLAN_NAME, name, comma + 1, &out[1]))
            return false;
    }
    return option_f64(PLAN_NAME, name, text, &out[0]);
}

static bool option_count(const struct option_row *row, const char *text, uint64_t *out)
{
    if (!option_u64(PLAN_NAME, row->name, text, out))
        return false;
    if ((double)*out >= row->least && (double)*out <= row->most)
        return true;
    complain(PLAN_NAME, "--%s: %s is not between %g and %g", row->name, text, row->least, row->most);
    return false;
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

static bool option_list(struct plan_list *list, const char *text)
{
    if (list->n == PLAN_MAX_DEVICES) {
        complain(PLAN_NAME, "an option is repeated more than %d times", PLAN_MAX_DEVICES);
        return false;
    }
    list->texts[list->n++] = text;
    return true;
}

static void *option_at(const struct option_target *target, const struct option_row *row)
{
    const struct option_place *place = &row->places[target->command];

    switch (place->in) {
    case IN_JOB:
        return (char *)target->job + place->at;
    case IN_OPTS:
        return (char *)target->opts + place->at;
    case IN_CALIBRATE:
        return (char *)target->calibrate + place->at;
    case NOT:
        break;
    }
    return NULL;
}

static bool option_take(const struct option_target *target, const struct option_row *row, char *text)
{
    void *at = option_at(target, row);
    uint64_t n;

    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)at = text;
        return true;
    case OPTION_F64:
        return option_f64(PLAN_NAME, row->name, text, at);
    case OPTION_PAIR:
        return option_pair(row->name, text, at);
    case OPTION_SECONDS:
        if (!option_duration(PLAN_NAME, row->name, text, &n))
            return false;
        *(double *)at = (double)n / 1e9;
        return true;
    case OPTION_NS:
        return option_duration(PLAN_NAME, row->name, text, at);
    case OPTION_COUNT:
        if (!option_count(row, text, &n))
            return false;
        *(double *)at = (double)n;
        return true;
    case OPTION_TOP:
        if (!option_count(row, text, &n))
            return false;
        *(size_t *)at = (size_t)n;
        return true;
    case OPTION_ON:
    case OPTION_HELP:
        return *(bool *)at = true;
    case OPTION_OFF:
        *(bool *)at = false;
        return true;
    case OPTION_DEVICE:
        return job_add_device(target->job, target->opts, text, ROLE_BOTH);
    case OPTION_PREFILL_DEVICE:
        return job_add_device(target->job, target->opts, text, ROLE_PREFILL);
    case OPTION_DECODE_DEVICE:
        return job_add_device(target->job, target->opts, text, ROLE_DECODE);
    case OPTION_LIST:
        return option_list(at, text);
    }
    return false;
}

/* ---- the command line ---- */

static bool option_has_value(const struct option_row *row)
{
    return row->kind != OPTION_ON && row->kind != OPTION_OFF && row->kind != OPTION_HELP;
}

/* getopt's two descriptions of the command's rows. */
static void options_describe(enum option_command command, struct option *long_out, char *short_out)
{
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const struct option_row *row = &ROWS[i];
        int code = OPTION_CODE + (int)i;

        if (row->places[command].in == NOT)
            continue;
        if (row->letters[command] != 0) {
            code = row->letters[command];
            *short_out++ = row->letters[command];
            if (option_has_value(row))
                *short_out++ = ':';
        }
        *long_out++ = (struct option){row->name, option_has_value(row), NULL, code};
    }
    *long_out = (struct option){0};
    *short_out = '\0';
}

static const struct option_row *option_find(enum option_command command, int code)
{
    if (code >= OPTION_CODE && code < OPTION_CODE + (int)ARRAY_LEN(ROWS))
        return &ROWS[code - OPTION_CODE];
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        if (ROWS[i].places[command].in != NOT && ROWS[i].letters[command] == code)
            return &ROWS[i];
    return NULL;
}

/* Takes all options, up to --help. */
static int options_take(int argc, char **argv, const struct option_target *target)
{
    struct option longs[ARRAY_LEN(ROWS) + 1];
    char shorts[2 * ARRAY_LEN(ROWS) + 1];

    options_describe(target->command, longs, shorts);
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const struct option_row *row = c != '?' ? option_find(target->command, c) : NULL;

        if (row == NULL || !option_take(target, row, optarg))
            return complain_usage(PLAN_NAME, "%s: wrong option or value", argv[0]);
        if (row->kind == OPTION_HELP)
            break;
    }
    return EXIT_DONE;
}

int plan_options_read(int argc, char **argv, struct plan_job *job, struct plan_opts *opts, bool *is_help_out)
{
    int status;

    *opts = (struct plan_opts){.growth = 1};
    job->weights = job->kv = "bf16";
    job->n_shown = 10;
    job->work.reserve = 0.1;
    job->work.is_layerwise = true;
    status = options_take(argc, argv, &(struct option_target){PLANNING, job, opts, NULL});
    *is_help_out = opts->is_help;
    if (status != EXIT_DONE || opts->is_help)
        return status;
    if (optind != argc)
        return complain_usage(PLAN_NAME, "%s: \"%s\" is not an option", argv[0], argv[optind]);
    if (opts->model == NULL || job->n_devices == 0)
        return complain_usage(PLAN_NAME, "%s: --model and --device are needed", argv[0]);
    return EXIT_DONE;
}

int calibrate_options_read(int argc, char **argv, struct calibrate_opts *opts)
{
    return options_take(argc, argv, &(struct option_target){CALIBRATING, NULL, NULL, opts});
}
