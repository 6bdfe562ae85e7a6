/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the length of an answer from earlier answers of the same class of requests. max_tokens is only an upper
 * bound, because clients set it to any value.
 *
 * The estimate is a length that three of four answers do not exceed.  Each answer moves its logarithm by a fixed
 * step, so one answer of any length moves it by at most 9%. Pure; one thread for each object. */
#ifndef FLEET_PICKER_ANSWERS_H
#define FLEET_PICKER_ANSWERS_H

#include <stdint.h>

#define PICKER_ANSWER_TOKENS 64 /* before the first answer */

struct picker_answers { /* zeroed: no evidence */
    double log2_tokens;
    uint32_t n_seen;
};

void picker_answers_learn(struct picker_answers *answers, uint32_t n_tokens);
/* The expected length of an answer of at most max_new_tokens, at least 1 unless that is 0. */
uint32_t picker_answers_expect(const struct picker_answers *answers, uint32_t max_new_tokens);

#endif
