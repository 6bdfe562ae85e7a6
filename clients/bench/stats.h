/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of a run: samples with their percentiles, and counts. */
#ifndef CLIENTS_BENCH_STATS_H
#define CLIENTS_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct series { /* samples; a zeroed one is empty */
    float *values;
    size_t n;
    size_t cap;
    size_t n_sorted; /* the first n are sorted */
    double sum;
    float max;
    bool is_bad; /* out of memory: samples were lost */
};

void series_fini(struct series *series);
void series_add(struct series *series, double value);
double series_mean(const struct series *series); /* 0 when empty */
/* Interpolates between the two nearest samples, as most tools do; q in 0..1; 0 when empty.  Sorts. */
double series_percentile(struct series *series, double q);

struct error_kind {
    char type[48];
    char example[160]; /* the message of the first one */
    uint64_t n;
};

enum { MAX_ERROR_KINDS = 32 };

struct tally { /* of counted requests; times in ms */
    struct series ttft, itl, per_token, e2e;
    struct series queue, prefill, transfer, decode; /* as the server reports it */
    struct series lag;                              /* delay from the planned to the real time of sending */
    uint64_t n_sent, n_whole, n_failed, n_cut;      /* n_cut: cancelled at the end of the run */
    uint64_t n_warmup;                              /* counted nowhere else */
    uint64_t n_served, n_handed_off, n_redispatched, n_preempted;
    uint64_t n_ttft_kept, n_itl_kept, n_both_kept;
    uint64_t prompt_tokens, computed_tokens, reused_tokens, transferred_tokens, answer_tokens;
    uint64_t began_ns, ended_ns; /* first sent, last ended */
    struct error_kind errors[MAX_ERROR_KINDS];
    size_t n_errors;
};

void tally_fini(struct tally *tally);
void tally_error(struct tally *tally, const char *type, const char *text);

#endif
