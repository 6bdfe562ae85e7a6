/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet/picker/answers.h. */
#include "fleet/picker/answers.h"

#include <math.h>

#define QUANTILE   0.75
#define STEP       0.16 /* of log2: 2^(0.16 x 0.75) is 9% more, 2^(0.16 x 0.25) is 3% less */
#define FIRST_STEP 2.0  /* the first answers move it further */
#define MAX_LOG2   24.0

void picker_answers_learn(struct picker_answers *answers, uint32_t n_tokens)
{
    double sample = log2(n_tokens > 0 ? n_tokens : 1), step;

    if (answers->n_seen == 0)
        answers->log2_tokens = log2(PICKER_ANSWER_TOKENS);
    answers->n_seen += answers->n_seen < UINT32_MAX;
    step = FIRST_STEP / answers->n_seen > STEP ? FIRST_STEP / answers->n_seen : STEP;
    answers->log2_tokens += sample > answers->log2_tokens ? step * QUANTILE : -step * (1 - QUANTILE);
    if (answers->log2_tokens < 0)
        answers->log2_tokens = 0;
    if (answers->log2_tokens > MAX_LOG2)
        answers->log2_tokens = MAX_LOG2;
}

uint32_t picker_answers_expect(const struct picker_answers *answers, uint32_t max_new_tokens)
{
    uint32_t n = PICKER_ANSWER_TOKENS;

    if (answers->n_seen > 0)
        n = (uint32_t)lround(exp2(answers->log2_tokens));
    return n < max_new_tokens ? n : max_new_tokens;
}
