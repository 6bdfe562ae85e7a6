/* SPDX-License-Identifier: Apache-2.0 */
/* What the files share that take workers' words about jobs: stream.c whose they are and what follows,
 * tokens.c the tokens, proof.c what it cost. */
#ifndef FLEET_ROUTER_STREAM_PRIV_H
#define FLEET_ROUTER_STREAM_PRIV_H

#include "fleet/router/router_priv.h"

/* Whether the job ended in a call that was made when so many had been freed.  Nearly always none was
 * meanwhile, and this is asked for every token. */
static inline bool router_job_is_gone(const struct router *router, const struct gen_handle *job,
                                      uint64_t number, uint64_t n_freed)
{
    return router->n_freed != n_freed && hashmap_get(router->by_number, &number) != job;
}

/* tokens.c */
/* Takes an answer's tokens that were not heard yet.  E_PROTO: they are none that could be; E_NOMEM. */
int router_tokens_accept(struct gen_handle *job, const Baton__Answer *answer);
/* The same of scores: of the prompt's tokens each once, in order and the very ones that were sent; of a stop
 * id behind what was answered, one. */
int router_scores_accept(struct gen_handle *job, const Baton__Answer *answer);

/* proof.c */
void router_part_proof(struct job_part *part, const Baton__Proof *proof); /* keeps what a worker reports */

#endif
