/* SPDX-License-Identifier: Apache-2.0 */
/* A run: sends the planned requests and measures their answers. */
#ifndef CLIENTS_BENCH_RUN_H
#define CLIENTS_BENCH_RUN_H

#include <stdio.h>

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
    FILE *detail; /* counted requests are written there as they end; NULL: nowhere */
};

/* Runs the loop until every planned request has ended, or until Ctrl-C, and fills the tally.  Shows progress
 * on stderr.  Returns 0; E_CANCELLED after Ctrl-C, with the figures so far; another error when the run cannot
 * start. */
int run_bench(const struct run_opts *opts, struct tally *tally);

#endif
