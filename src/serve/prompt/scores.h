/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt logprobs on their way from a worker to the front: of the prompt's tokens, in order, and of the
 * stop id that ended the answer.  For backends; one thread. */
#ifndef SERVE_PROMPT_SCORES_H
#define SERVE_PROMPT_SCORES_H

#include "compute/sample/sampler.h"

struct scores {                 /* zeroed: none */
    struct sample_result *held; /* [n], of the prompt's tokens; heap */
    uint32_t n, cap;
    uint32_t n_given; /* those delivered, at the start */
    bool has_stop;
    struct sample_result stop; /* with has_stop: delivered after the sampled tokens */
};

/* Makes room for this many in all, before the first one: later growth would copy megabytes. Pages are touched only
 * when they are used. Without memory nothing happens. */
void scores_reserve(struct scores *scores, uint32_t n);
int scores_add(struct scores *scores, const struct sample_result *from, uint32_t n); /* E_NOMEM */
void scores_fini(struct scores *scores);

#endif
