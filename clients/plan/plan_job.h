/* SPDX-License-Identifier: Apache-2.0 */
/* One planning job: its input, its results, and the functions that print them. */
#ifndef PLAN_PLAN_JOB_H
#define PLAN_PLAN_JOB_H

#include "clients/bench/trace.h"
#include "clients/plan/plan_cli.h"
#include "fleet/plan/host.h"
#include "fleet/plan/pools.h"

#define PLAN_MAX_DEVICES 64

struct plan_list { /* the texts of a repeated option */
    const char *texts[PLAN_MAX_DEVICES];
    size_t n;
};

struct plan_opts { /* as given; plan_options_read() */
    const char *model, *constants, *more_devices, *more_models, *trace, *link, *html, *conf;
    const char *devices[PLAN_MAX_DEVICES];
    struct plan_list prices, watts;
    double growth;
    bool is_json, is_csv, is_explained, is_help;
};

struct plan_job {
    bool has_constants;
    struct plan_books books;
    struct plan_constants constants;
    struct plan_model model;
    struct plan_device devices[PLAN_MAX_DEVICES];
    enum plan_role roles[PLAN_MAX_DEVICES];
    struct plan_constants hosts[PLAN_MAX_DEVICES]; /* with a name: those of a measured host */
    struct fault refusals[PLAN_MAX_DEVICES];       /* code 0: the device has workers */
    size_t n_devices;
    const char *weights, *kv, *engine;
    const char *model_file; /* as given, when it is a file */
    double tp;
    bool is_wide;
    struct plan_work work;
    struct trace trace; /* without entries: none was given */
    struct plan_pools pools;
    struct plan_answer answer;
    size_t n_shown;
};

/* Reads the options into a zeroed job.  The texts in opts are argv's.  Returns EXIT_DONE, or the exit status after
 * an error message. */
int plan_options_read(int argc, char **argv, struct plan_job *job, struct plan_opts *opts, bool *is_help_out);
/* Reads tables, model, devices and trace, and searches.  False after an error message.  Close it either way. */
bool plan_job_open(struct plan_job *job, const struct plan_opts *opts);
void plan_job_close(struct plan_job *job);

/* Ranked table, CSV, JSON on stdout. */
void plan_report_table(const struct plan_job *job);
void plan_report_csv(const struct plan_job *job);
void plan_report_json(const struct plan_job *job);
/* Each term of the chosen plan with its numbers. */
void plan_explain(const struct plan_job *job);
/* One sentence that says whether splitting the phases pays. */
void plan_verdict(const struct plan_job *job, char *out, size_t cap);
/* One file for a browser.  False after an error message. */
bool plan_html(const struct plan_job *job, const char *path);
/* Writes router.conf, prefill.conf, decode.conf of the best plan with two pools.  False after an error
 * message. */
bool plan_conf(const struct plan_job *job, const char *folder);

/* The best plan with two pools, or the best of one pool; NULL: none. */
const struct plan_candidate *plan_best(const struct plan_job *job, bool is_aggregated);

/* Reads a trace ("-": stdin, which can be read once), and sets the work by it: lengths, rate, and the share of blocks
 * seen before. */
bool plan_trace_read(const char *path, struct trace *out, struct plan_work *work);

#endif
