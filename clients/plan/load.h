/* SPDX-License-Identifier: Apache-2.0 */
/* Measures operating points of an OpenAI-compatible endpoint: a closed loop of streamed chat completions. */
#ifndef PLAN_LOAD_H
#define PLAN_LOAD_H

#include "clients/common/cli.h"

struct load_opts {
    const char *url, *model, *key; /* key NULL: none */
    uint64_t timeout_ns;           /* of a request */
};

struct load_point {
    double prompt_tokens, answer_tokens; /* wanted; then what the server counted, mean */
    unsigned concurrency, n_requests;
    double hit;              /* part of a prompt that the one before it had, too */
    double ttft_ms, tpot_ms; /* out: means */
};

struct load; /* a connection to the endpoint */

/* Asks once to learn the tokens per word.  E_IO, E_FORMAT (not such an endpoint), with the fault. */
int load_open(const struct load_opts *opts, struct fault *fault, struct load **out);
void load_close(struct load *load); /* accepts NULL */
/* Runs the requests of a point and fills in its results.  E_PEER: a request failed; the fault has the reason.
 */
int load_measure(struct load *load, struct load_point *point, struct fault *fault);

#endif
