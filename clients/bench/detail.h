/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of each request, for programs: one line of JSON each, in the order in which requests end.
 *
 *     {"sent_s": 1.25, "prompt_tokens": 512, "cached_tokens": 0, "answer_tokens": 3, "ttft_ms": 30.5,
 *      "itl_ms": [0.41, 0.44], "e2e_ms": 31.8, "error": null}
 *
 * sent_s counts from the start of the run.  Only whole answers have the counts of tokens.  itl_ms has the gap before each
 * piece of text but the first.  error is the type of an error, or "cut": the run ended first. */
#ifndef CLIENTS_BENCH_DETAIL_H
#define CLIENTS_BENCH_DETAIL_H

#include <stdio.h>

#include "clients/bench/stats.h"
#include "clients/common/answer.h"

struct detail { /* of one request, in ns of one clock */
    uint64_t began_ns, sent_ns, ended_ns;
    uint64_t first_ns;           /* 0: no text came */
    const struct series *itl;    /* ms */
    const struct answer *answer; /* NULL: cut */
};

/* Errors of the file show at its end, in ferror(). */
void detail_write(const struct detail *detail, FILE *out);

#endif
