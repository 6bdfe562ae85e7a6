/* SPDX-License-Identifier: Apache-2.0 */
/* A run: sends what is planned and measures what comes back. */
#ifndef CLIENTS_BENCH_RUN_H
#define CLIENTS_BENCH_RUN_H

#include "clients/bench/plan.h"
#include "clients/bench/stats.h"
#include "net/http/client.h"

struct run_opts {
    const struct bench_opts *bench; /* borrowed, as all here */
    struct ev_loop *loop;
    struct http_client *client;
    const struct http_fields *fields;
    const char *path; /* ".../v1/messages" */
    const char *model;
    const struct prompt_maker *maker;
    struct plan *plan;
};

/* Runs the loop until everything planned has ended, or until Ctrl-C, and fills the tally.  Shows how it goes
 * on stderr. 0; E_CANCELLED after Ctrl-C, with what there is; another error: the run could not be made. */
int run_bench(const struct run_opts *opts, struct tally *tally);

#endif
