/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan calibrate: constants from measurements.
 *
 * The fit begins with known constants and is pulled towards them, so a few measurements change what they can
 * tell and leave the rest.  The file says how far the fit lay from measurements that it had not seen. */
#include "clients/plan/plan_cli.h"

#include "base/str.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <time.h>

struct calibrate_opts {
    const char *file, *constants, *devices, *models, *output, *name;
};

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
    const char *base = strrchr(opts->file, '/');

    if (plan_fit_bands(rows, constants) != 0 || plan_fit(rows, NULL, SIZE_MAX, constants) != 0) {
        complain(PLAN_NAME, "out of memory");
        return false;
    }
    str_copy(constants->name, sizeof(constants->name), opts->name);
    strftime(constants->date, sizeof(constants->date), "%Y-%m-%d", gmtime_r(&now, &day));
    snprintf(constants->source, sizeof(constants->source), "%zu rows of %.120s", rows->n,
             base == NULL ? opts->file : base + 1);
    fprintf(stderr, "%zu rows; held-out error: TPOT %.1f %%, TTFT %.1f %%\n", rows->n,
            constants->held_out[PLAN_TPOT] * 100, constants->held_out[PLAN_TTFT] * 100);
    return true;
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
    if (plan_cli_rows(opts->file, &books, &rows) && calibrate_fit(opts, &rows, &constants) &&
        calibrate_write(opts, &constants))
        status = finish_output(PLAN_NAME);
    plan_rows_fini(&rows);
    plan_constants_fini(&constants);
    plan_books_fini(&books);
    return status;
}

static void calibrate_help(void)
{
    puts("Usage: baton-plan calibrate [OPTIONS] FILE\n"
         "Fits constants to the measurements of a table, with the columns of baton-plan validate.\n"
         "\n"
         "  -o, --output FILE      where to write the constants (stdout)\n"
         "  -n, --name NAME        what to call them (calibrated)\n"
         "  -c, --constants FILE   constants to begin with (the built-in ones; none: plain guesses)\n"
         "  -d, --devices FILE     more devices, or changed ones\n"
         "  -m, --models FILE      more models");
}

int cmd_calibrate(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"constants", required_argument, NULL, 'c'},
        {"output", required_argument, NULL, 'o'},
        {"devices", required_argument, NULL, 'd'},
        {"models", required_argument, NULL, 'm'},
        {"name", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct calibrate_opts opts = {.name = "calibrated"};

    for (int c; (c = getopt_long(argc, argv, "c:o:d:m:n:h", OPTIONS, NULL)) != -1;) {
        if (c == 'h') {
            calibrate_help();
            return finish_output(PLAN_NAME);
        }
        if (c == 'c')
            opts.constants = optarg;
        else if (c == 'o')
            opts.output = optarg;
        else if (c == 'd')
            opts.devices = optarg;
        else if (c == 'm')
            opts.models = optarg;
        else if (c == 'n')
            opts.name = optarg;
        else
            return complain_usage(PLAN_NAME, "calibrate: wrong option");
    }
    if (optind + 1 != argc)
        return complain_usage(PLAN_NAME, "calibrate: expected one FILE");
    opts.file = argv[optind];
    return calibrate_run(&opts);
}
