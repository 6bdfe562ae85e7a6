/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a run and their times, drawn from the options or read from a trace.  The same options give
 * the same requests. */
#ifndef CLIENTS_BENCH_PLAN_H
#define CLIENTS_BENCH_PLAN_H

#include "base/rng.h"
#include "clients/bench/options.h"
#include "clients/bench/trace.h"

struct planned {
    uint64_t index;
    uint64_t at_ns; /* since the start; 0 for BENCH_CLOSED: as soon as a request may be sent */
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    const uint64_t *block_ids; /* [n_blocks], of TRACE_BLOCK_TOKENS each; NULL: none */
    uint32_t n_blocks;
};

struct plan {
    const struct bench_opts *opts; /* borrowed */
    const struct trace *trace;     /* borrowed; NULL unless BENCH_TRACE */
    struct rng rng;
    uint64_t n_given;
    double at_s; /* of the last Poisson arrival */
};

void plan_init(struct plan *plan, const struct bench_opts *opts, const struct trace *trace);
/* Gives the next request; false: there are no more. */
bool plan_next(struct plan *plan, struct planned *out);

/* ---- prompts ---- */

struct prompt_maker {
    double tokens_per_word;
    double overhead_tokens; /* of a prompt without words */
    uint32_t shared_prefix_tokens;
    uint64_t seed;
};

/* Appends words of about the planned number of tokens: first the shared ones (the common prefix, or the
 * trace's blocks), then the request's own.  The text depends only on seed, index and block ids. */
int prompt_put(const struct prompt_maker *maker, const struct planned *planned, struct buf *out);
/* Appends every word n_times: the sample whose tokens the server counts.  Returns the number of words. */
uint64_t prompt_put_sample(unsigned n_times, struct buf *out);

#endif
