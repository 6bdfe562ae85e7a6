/* SPDX-License-Identifier: Apache-2.0 */
/* How likely given tokens were, on the way from a worker to the front: those of a prompt, in order, and the
 * stop id that ended the answer.  For backends; one thread. */
#ifndef SERVE_PROMPT_SCORES_H
#define SERVE_PROMPT_SCORES_H

#include "compute/sample/sampler.h"

struct scores {                 /* zeroed: none */
    struct sample_result *held; /* [n], of the prompt's tokens; heap */
    uint32_t n, cap;
    bool has_stop;
    struct sample_result stop; /* with has_stop: goes after what was drawn */
};

int scores_add(struct scores *scores, const struct sample_result *from, uint32_t n); /* E_NOMEM */
void scores_fini(struct scores *scores);

#endif
