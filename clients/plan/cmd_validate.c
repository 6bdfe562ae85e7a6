/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan validate: the error of predictions against measurements.
 *
 * By default it uses the constants as they are.  --cross splits the measurements.  For each part it fits the
 * constants to the other parts and predicts this one.  That gives the error on measurements outside of a fit.
 */
#include "clients/plan/plan_cli.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum group { BY_MODEL, BY_DEVICE, BY_ENGINE, N_GROUPS };

static const char *const GROUPS[] = {"model", "device", "engine"};
static const char *const SPLITS[] = {"config", "model", "device", "engine"};
static const char *const TARGETS[] = {"tpot", "ttft"};

struct validate_opts {
    const char *file, *constants, *devices, *models, *model;
    bool is_json, is_generic;
    int split; /* -1: none */
};

static const char *row_group(const struct plan_row *row, enum group group)
{
    switch (group) {
    case BY_MODEL:
        return row->model_name;
    case BY_DEVICE:
        return row->device->id;
    case BY_ENGINE:
    case N_GROUPS:
        break;
    }
    return row->engine;
}

struct wanted {
    enum group group;
    const char *name;
};

static bool row_is_wanted(const struct plan_row *row, const void *arg)
{
    const struct wanted *wanted = arg;

    return strcmp(row_group(row, wanted->group), wanted->name) == 0;
}

static bool row_is_first(const struct plan_rows *rows, size_t i, enum group group)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(row_group(&rows->list[j], group), row_group(&rows->list[i], group)) == 0)
            return false;
    return true;
}

static void print_line(const char *name, const struct plan_error error[PLAN_N_TARGETS])
{
    printf("%-36s %6zu", name, error[PLAN_TPOT].n > 0 ? error[PLAN_TPOT].n : error[PLAN_TTFT].n);
    for (int t = 0; t < PLAN_N_TARGETS; t++)
        if (error[t].n == 0)
            printf("  %8s %8s %7s %8s", "-", "-", "-", "-");
        else
            printf("  %7.1f%% %7.1f%% %7.3f %7.1f%%", error[t].mape * 100, error[t].median * 100,
                   error[t].bias, error[t].covered * 100);
    putchar('\n');
}

static json_t *json_error(const struct plan_error error[PLAN_N_TARGETS])
{
    json_t *out = json_object();

    for (int t = 0; t < PLAN_N_TARGETS; t++) {
        if (error[t].n == 0)
            continue;
        json_object_set_new(out, TARGETS[t],
                            json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)error[t].n,
                                      "mape_percent", error[t].mape * 100, "median_percent",
                                      error[t].median * 100, "bias", error[t].bias, "coverage_percent",
                                      error[t].covered * 100));
    }
    return out;
}

static void errors_of(const struct plan_rows *rows, const struct plan_prediction *predictions,
                      const struct wanted *wanted, struct plan_error out[PLAN_N_TARGETS])
{
    for (int t = 0; t < PLAN_N_TARGETS; t++)
        out[t] = plan_error_of(rows, predictions, (enum plan_target)t, wanted == NULL ? NULL : row_is_wanted,
                               wanted);
}

static void report_text(const struct plan_rows *rows, const struct plan_prediction *predictions)
{
    struct plan_error error[PLAN_N_TARGETS];

    printf("%-36s %6s  %8s %8s %7s %8s  %8s %8s %7s %8s\n", "", "rows", "TPOT", "median", "bias", "in 90 %",
           "TTFT", "median", "bias", "in 90 %");
    errors_of(rows, predictions, NULL, error);
    print_line("all", error);
    for (int g = 0; g < N_GROUPS; g++) {
        printf("by %s\n", GROUPS[g]);
        for (size_t i = 0; i < rows->n; i++) {
            struct wanted wanted = {(enum group)g, row_group(&rows->list[i], (enum group)g)};
            char name[128];

            if (!row_is_first(rows, i, (enum group)g))
                continue;
            errors_of(rows, predictions, &wanted, error);
            snprintf(name, sizeof(name), "  %s", wanted.name);
            print_line(name, error);
        }
    }
    puts("\nTPOT, TTFT: mean absolute error; bias: geometric mean of predicted / measured;\n"
         "in 90 %: part of the measurements inside the printed 90 % interval.");
}

static void report_json(const struct plan_rows *rows, const struct plan_prediction *predictions,
                        const struct plan_constants *constants)
{
    struct plan_error error[PLAN_N_TARGETS];
    json_t *root = json_object();

    errors_of(rows, predictions, NULL, error);
    json_object_set_new(root, "constants", json_string(constants->name));
    json_object_set_new(root, "rows", json_integer((json_int_t)rows->n));
    json_object_set_new(root, "refused", json_integer((json_int_t)rows->n_refused));
    json_object_set_new(root, "all", json_error(error));
    for (int g = 0; g < N_GROUPS; g++) {
        json_t *group = json_object();
        char key[24];

        for (size_t i = 0; i < rows->n; i++) {
            struct wanted wanted = {(enum group)g, row_group(&rows->list[i], (enum group)g)};
            if (!row_is_first(rows, i, (enum group)g))
                continue;
            errors_of(rows, predictions, &wanted, error);
            json_object_set_new(group, wanted.name, json_error(error));
        }
        snprintf(key, sizeof(key), "by_%s", GROUPS[g]);
        json_object_set_new(root, key, group);
    }
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
}

static bool validate_predict(const struct validate_opts *opts, const struct plan_rows *rows,
                             struct plan_constants *constants, struct plan_prediction *out)
{
    if (opts->is_generic)
        plan_constants_fini(constants);
    if (opts->split >= 0) {
        if (plan_cross(rows, (enum plan_split)opts->split, constants, out) == 0)
            return true;
        complain(PLAN_NAME, "out of memory");
        return false;
    }
    for (size_t i = 0; i < rows->n; i++)
        plan_predict(&rows->list[i], constants, &out[i]);
    return true;
}

static int validate_run(const struct validate_opts *opts)
{
    struct plan_books books;
    struct plan_constants constants;
    struct plan_rows rows = {0};
    struct plan_model model;
    int status = EXIT_FAILED;

    if (!plan_cli_books(opts->devices, opts->models, &books))
        return status;
    if (!plan_cli_constants(opts->constants, &constants)) {
        plan_books_fini(&books);
        return status;
    }
    if ((opts->model == NULL || plan_cli_add_model(opts->model, &books, &model)) &&
        plan_cli_rows(opts->file, &books, &rows)) {
        struct plan_prediction *predictions = calloc(rows.n, sizeof(*predictions));
        if (predictions == NULL)
            complain(PLAN_NAME, "out of memory");
        else if (validate_predict(opts, &rows, &constants, predictions)) {
            if (opts->is_json)
                report_json(&rows, predictions, &constants);
            else
                report_text(&rows, predictions);
            status = finish_output(PLAN_NAME);
        }
        free(predictions);
    }
    plan_rows_fini(&rows);
    plan_constants_fini(&constants);
    plan_books_fini(&books);
    return status;
}

static void validate_help(void)
{
    puts("Usage: baton-plan validate [OPTIONS] FILE.tsv\n"
         "Compares predictions with the measurements of a table (tabs or commas; '-': stdin) with the "
         "columns\n"
         "model gpu engine weights isl osl concurrency tp moe_tp moe_ep ttft_ms tpot_ms.\n"
         "\n"
         "  -c, --constants FILE   constants other than the built-in ones\n"
         "  -g, --generic          without the factors of known engines, models and devices\n"
         "  -x, --cross SPLIT      fit anew for each part of the split, without it: config (ten parts),\n"
         "                         model, device or engine\n"
         "  -d, --devices FILE     more devices, or changed ones (columns device field value source)\n"
         "  -m, --models FILE      more models\n"
         "      --model MODEL      one more model: a config.json or FILE.gguf, as calibrate --model had it\n"
         "  -j, --json             as JSON");
}

static int validate_split(const char *text)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(SPLITS[i], text) == 0)
            return i;
    complain_usage(PLAN_NAME, "--cross %s: expected config, model, device or engine", text);
    return -1;
}

int cmd_validate(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"constants", required_argument, NULL, 'c'},
        {"generic", no_argument, NULL, 'g'},
        {"cross", required_argument, NULL, 'x'},
        {"devices", required_argument, NULL, 'd'},
        {"models", required_argument, NULL, 'm'},
        {"model", required_argument, NULL, 'M'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct validate_opts opts = {.split = -1};

    for (int c; (c = getopt_long(argc, argv, "c:gx:d:m:jh", OPTIONS, NULL)) != -1;) {
        if (c == 'h') {
            validate_help();
            return finish_output(PLAN_NAME);
        }
        if (c == 'c')
            opts.constants = optarg;
        else if (c == 'g')
            opts.is_generic = true;
        else if (c == 'd')
            opts.devices = optarg;
        else if (c == 'm')
            opts.models = optarg;
        else if (c == 'M')
            opts.model = optarg;
        else if (c == 'j')
            opts.is_json = true;
        else if (c != 'x')
            return complain_usage(PLAN_NAME, "validate: wrong option");
        else if ((opts.split = validate_split(optarg)) < 0)
            return EXIT_USAGE;
    }
    if (optind + 1 != argc)
        return complain_usage(PLAN_NAME, "validate: expected one FILE.tsv");
    opts.file = argv[optind];
    return validate_run(&opts);
}
