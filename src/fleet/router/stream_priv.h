/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that process workers' messages about jobs: stream.c finds the job and handles its
 * states, tokens.c the tokens, serving.c the serving stats. */
#ifndef FLEET_ROUTER_STREAM_PRIV_H
#define FLEET_ROUTER_STREAM_PRIV_H

#include "fleet/router/router_priv.h"

/* tokens.c */
/* Appends the answer's tokens that were not received before. E_PROTO: a token that cannot be valid;
 * E_NOMEM. */
int router_tokens_accept(struct job *job, const Baton__Answer *answer);
/* The same for logprobs of given tokens: each prompt token once, in order, with the ids that were sent;
 * and one stop id after the answer. */
int router_scores_accept(struct job *job, const Baton__Answer *answer);

/* serving.c */
void router_part_serving(struct job_part *part, const Baton__Serving *serving); /* stores a worker's report */

#endif
