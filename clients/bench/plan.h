/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests a run sends, and when: drawn from the options, or read from a trace.  The same options give
 * the same requests. */
#ifndef CLIENTS_BENCH_PLAN_H
#define CLIENTS_BENCH_PLAN_H

#include "base/rng.h"
#include "clients/bench/options.h"
#include "clients/bench/trace.h"

struct planned {
    uint64_t index;
    uint64_t at_ns; /* since the start; 0 for BENCH_CLOSED: as soon as one may be sent */
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
/* The next request, or false: that was all. */
bool plan_next(struct plan *plan, struct planned *out);

/* ---- prompts ---- */

struct prompt_maker {
    double tokens_per_word;
    double overhead_tokens; /* of a prompt with no word in it */
    uint32_t shared_prefix_tokens;
    uint64_t seed;
};

/* Appends words whose tokens come to about what is planned: first what is shared (the common prefix, or the
 * blocks of the trace), then words of this request's own.  The text depends on seed, index and block ids
 * only. */
int prompt_put(const struct prompt_maker *maker, const struct planned *planned, struct buf *out);
/* Appends every word there is, n_times over: the sample from which tokens per word are counted.  Returns how
 * many words that is. */
uint64_t prompt_put_sample(unsigned n_times, struct buf *out);

#endif
