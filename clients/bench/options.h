/* SPDX-License-Identifier: Apache-2.0 */
/* baton-bench's command line. */
#ifndef CLIENTS_BENCH_OPTIONS_H
#define CLIENTS_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_NAME "baton-bench"

enum bench_load {
    BENCH_CLOSED,  /* so many requests under way at any time */
    BENCH_POISSON, /* so many arrivals per second, whatever the server does */
    BENCH_TRACE    /* arrivals and lengths of a recorded day */
};

struct bench_range { /* tokens, drawn uniformly; low == high: always that */
    uint32_t low;
    uint32_t high;
};

struct bench_opts {
    const char *url;
    const char *model;   /* NULL: the first listed */
    const char *api_key; /* NULL: none */
    enum bench_load load;
    uint32_t concurrency;      /* BENCH_CLOSED */
    double rate_per_s;         /* BENCH_POISSON */
    const char *trace_path;    /* BENCH_TRACE */
    double speed;              /* BENCH_TRACE: 2 plays it twice as fast */
    uint64_t n_requests;       /* 0: no bound, warm-up included */
    uint64_t duration_ns;      /* of sending; 0: no bound */
    struct bench_range prompt; /* tokens; BENCH_TRACE: high bounds what the trace says, 0: nothing does */
    struct bench_range answer; /* the same */
    uint32_t shared_prefix_tokens;
    uint64_t seed;
    uint64_t n_warmup;
    uint64_t ttft_slo_ns;
    uint64_t itl_slo_ns;
    uint64_t timeout_ns; /* of a request */
    double temperature;
    bool is_json;
};

/* 1: go on; 0: all is done (--help, --version), or refused: exit with *status_out. */
int bench_options_read(int argc, char **argv, struct bench_opts *opts, int *status_out);

#endif
