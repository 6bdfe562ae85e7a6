/* SPDX-License-Identifier: Apache-2.0 */
/* baton-bench's command line. */
#ifndef CLIENTS_BENCH_OPTIONS_H
#define CLIENTS_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_NAME "baton-bench"

enum bench_load {
    BENCH_CLOSED,  /* n requests run at any time */
    BENCH_POISSON, /* n arrivals per second, at any speed of the server */
    BENCH_TRACE    /* arrivals and lengths of a recorded trace */
};

struct bench_range { /* tokens, drawn uniformly; low == high: a constant */
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
    struct bench_range prompt; /* tokens; BENCH_TRACE: high bounds the trace's lengths, 0: no bound */
    struct bench_range answer; /* the same */
    uint32_t shared_prefix_tokens;
    uint64_t seed;
    uint64_t n_warmup;
    uint64_t ttft_slo_ns;
    uint64_t itl_slo_ns;
    uint64_t timeout_ns; /* of a request */
    double temperature;
    bool is_json;
    const char *detail_path; /* the figures of each request are saved there; NULL: nowhere */
};

/* 1: continue; 0: exit with *status_out (--help, --version, or a refused option). */
int bench_options_read(int argc, char **argv, struct bench_opts *opts, int *status_out);

#endif
