/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler's report of its load and its speed.  Engine thread only. */
#ifndef COMPUTE_SCHED_LOAD_H
#define COMPUTE_SCHED_LOAD_H

#include <stdint.h>

#include "base/load_rates.h"

struct sched;

/* Sizes of the steps that sched_load() predicts.
 * Two sizes of each kind give the fixed cost and the growth. */
enum { SCHED_MANY_ROWS = 8, SCHED_FEW_TOKENS = 64, SCHED_MANY_TOKENS = 512, SCHED_DRAFT_SEQS = 16 };
/* Sources of draft tokens, and their names in status and metrics: X(source, name). */
#define SCHED_DRAFT_TABLE(X)                                                                                 \
    X(SCHED_DRAFT_TEXT, "text")                                                                              \
    X(SCHED_DRAFT_GRAMMAR, "grammar")                                                                        \
    X(SCHED_DRAFT_MODEL, "model")                                                                            \
    X(SCHED_DRAFT_MTP, "mtp")
#define SCHED_DRAFT_NUMBER(source, name) source,
#define SCHED_DRAFT_NAME(source, name)   [source] = name,
enum sched_draft { SCHED_DRAFT_TABLE(SCHED_DRAFT_NUMBER) SCHED_DRAFTS };

struct sched_load { /* for the router's view of this worker, and for metrics */
    uint32_t
        n_waiting; /* submitted and not admitted, preempted ones too: no part of their prompt is computed now */
    uint32_t n_running; /* admitted, in any state; n_prefill: their prompts are not done */
    uint32_t n_arriving, n_prefill, n_decode, n_held;
    uint32_t n_tenants;             /* tenants with prompts to compute, waiting or running */
    uint64_t queued_prefill_tokens; /* uncached given tokens to compute, of waiting and running sequences */
    uint64_t decode_tokens_context; /* sum of the contexts of decoding sequences */
    LOAD_RATES_SCHED(LOAD_RATE_MEMBER)
    double rows_s[2];       /* predicted: a step of 1 and of SCHED_MANY_ROWS decoding sequences */
    double prompt_s[2];     /* and of SCHED_FEW_TOKENS and of SCHED_MANY_TOKENS prompt tokens; 0: not known */
    uint64_t n_preemptions; /* since the start, like all counters below */
    uint64_t n_steps;       /* steps that fed tokens */
    uint64_t n_draft_steps; /* steps that verified draft tokens */
    uint64_t n_drafted[SCHED_DRAFTS], n_accepted[SCHED_DRAFTS]; /* draft tokens verified; accepted */
    uint32_t chunk_tokens; /* prompt tokens that the latest step could have fed */
};
void sched_load(const struct sched *sched, struct sched_load *out);
const char *sched_draft_name(enum sched_draft source); /* "text" */

#endif
