/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan calibrate: constants from measurements.
 *
 * The fit starts from known constants and is pulled towards them.  So a few measurements change only the
 * constants that they determine.  The file records the error of the fit on measurements outside of it. */
#include "clients/plan/calibrate.h"

#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static bool calibrate_write(const struct calibrate_opts *opts, const struct plan_constants *constants)
{
    struct buf text = {0};
    FILE *file = opts->output == NULL ? stdout : fopen(opts->output, "we");
    bool is_good = file != NULL && plan_constants_write(constants, &text) == 0 &&
                   fwrite(text.data, 1, text.len_bytes, file) == text.len_bytes;

    if (file != NULL && file != stdout)
        is_good = fclose(file) == 0 && is_good;
    if (!is_good)
        complain(PLAN_NAME, "%s: %s", opts->output == NULL ? "stdout" : opts->output, strerror(errno));
    buf_fini(&text);
    return is_good;
}

static bool calibrate_fit(const struct calibrate_opts *opts, const struct plan_rows *rows,
                          struct plan_constants *constants)
{
    time_t now = time(NULL);
    struct tm day;
    const char *from = opts->url != NULL ? opts->url : opts->file, *base = strrchr(from, '/');

    if (plan_fit_bands(rows, constants) != 0 || plan_fit(rows, NULL, SIZE_MAX, constants) != 0) {
        complain(PLAN_NAME, "out of memory");
        return false;
    }
    str_copy(constants->name, sizeof(constants->name), opts->name);
    strftime(constants->date, sizeof(constants->date), "%Y-%m-%d", gmtime_r(&now, &day));
    snprintf(constants->source, sizeof(constants->source), "%zu measurements of %.120s", rows->n,
             base == NULL || opts->url != NULL ? from : base + 1);
    fprintf(stderr, "%zu rows; held-out error: TPOT %.1f %%, TTFT %.1f %%\n", rows->n,
            constants->held_out[PLAN_TPOT] * 100, constants->held_out[PLAN_TTFT] * 100);
    return true;
}

static bool calibrate_save(const char *path, const struct buf *text)
{
    FILE *file = fopen(path, "we");
    bool is_good = file != NULL && fwrite(text->data, 1, text->len_bytes, file) == text->len_bytes;

    if (file != NULL)
        is_good = fclose(file) == 0 && is_good;
    if (!is_good)
        complain(PLAN_NAME, "%s: %s", path, strerror(errno));
    return is_good;
}

/* Loads the endpoint and reads the rows that come of it. */
static bool calibrate_endpoint(const struct calibrate_opts *opts, struct plan_books *books,
                               struct plan_rows *rows)
{
    struct plan_model model;
    struct buf table = {0};
    struct fault fault = {0};
    bool is_good = plan_cli_add_model(opts->model, books, &model) && calibrate_measure(opts, &model, &table);

    if (is_good && opts->measured != NULL)
        is_good = calibrate_save(opts->measured, &table);
    if (is_good && plan_rows_parse(buf_view(&table), books, &fault, rows) != 0)
        is_good = false;
    if (fault.code != 0)
        complain(PLAN_NAME, "%s", fault.text);
    buf_fini(&table);
    return is_good;
}

static int calibrate_run(const struct calibrate_opts *opts)
{
    struct plan_books books;
    struct plan_constants constants;
    struct plan_rows rows = {0};
    int status = EXIT_FAILED;

    if (!plan_cli_books(opts->devices, opts->models, &books))
        return status;
    if (opts->constants != NULL && strcmp(opts->constants, "none") == 0)
        plan_constants_init(&constants);
    else if (!plan_cli_constants(opts->constants, &constants)) {
        plan_books_fini(&books);
        return status;
    }
    bool has_rows = opts->url != NULL ? calibrate_endpoint(opts, &books, &rows)
                                      : plan_cli_rows(opts->file, &books, &rows);
    if (has_rows && calibrate_fit(opts, &rows, &constants) && calibrate_write(opts, &constants))
        status = finish_output(PLAN_NAME);
    plan_rows_fini(&rows);
    plan_constants_fini(&constants);
    plan_books_fini(&books);
    return status;
}

static void calibrate_help(void)
{
    puts("Usage: baton-plan calibrate [OPTIONS] FILE\n"
         "       baton-plan calibrate [OPTIONS] --url URL --model MODEL --device DEVICE\n"
         "Fits constants to the measurements of a table (the columns of baton-plan validate), or to a load "
         "of its\n"
         "own on an OpenAI-compatible endpoint: Baton, vLLM, SGLang and others.\n"
         "\n"
         "  -o, --output FILE      where to write the constants (stdout)\n"
         "  -n, --name NAME        what to call them (calibrated)\n"
         "  -c, --constants FILE   constants to begin with (the built-in ones; none: plain guesses)\n"
         "  -d, --devices FILE     more devices, or changed ones\n"
         "  -m, --models FILE      more models\n"
         "  -u, --url URL          the endpoint\n"
         "      --model MODEL      its shape: a name, config.json, FILE.gguf\n"
         "      --device DEVICE    what it runs on\n"
         "      --weights TYPE, --kv TYPE, --tp N, --engine NAME   how (bf16, bf16, 1, baton)\n"
         "      --split            a router with one prefill and one decode worker, not one engine\n"
         "      --served NAME      the model's name in requests (MODEL)\n"
         "      --time T           how long (10min)\n"
         "      --measured FILE    keep the measurements as a table\n"
         "      --points LIST      what to measure: ISL:OSL:CONCURRENCY[:HIT],... (24 points)\n"
         "BATON_API_KEY is the key of the endpoint.");
}

static int calibrate_check(struct calibrate_opts *opts, int argc, char **argv)
{
    if (opts->url != NULL) {
        if (opts->model == NULL || opts->device == NULL || optind != argc)
            return complain_usage(PLAN_NAME, "calibrate: --url needs --model and --device, and no FILE");
        if (opts->served == NULL)
            opts->served = opts->model;
        opts->key = getenv("BATON_API_KEY");
    } else if (optind + 1 != argc)
        return complain_usage(PLAN_NAME, "calibrate: expected one FILE, or --url");
    else
        opts->file = argv[optind];
    return calibrate_run(opts);
}

int cmd_calibrate(int argc, char **argv)
{
    struct calibrate_opts opts = {.name = "calibrated",
                                  .weights = "bf16",
                                  .kv = "bf16",
                                  .engine = "baton",
                                  .tp = 1,
                                  .time_ns = 10 * 60 * NS_PER_S};
    int status = calibrate_options_read(argc, argv, &opts);

    if (status != EXIT_DONE)
        return status;
    if (opts.is_help) {
        calibrate_help();
        return finish_output(PLAN_NAME);
    }
    return calibrate_check(&opts, argc, argv);
}
