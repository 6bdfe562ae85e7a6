/* SPDX-License-Identifier: Apache-2.0 */
/* The chains of block hashes of the jobs' prompts (chain.c).  Loop thread. */
#ifndef FLEET_ROUTER_CHAIN_PRIV_H
#define FLEET_ROUTER_CHAIN_PRIV_H

#include <stdbool.h>
#include <stddef.h>

struct job;
struct router;

/* Hashes as much of the prompt as the placement needs, or a slice of it. E_NOMEM. */
int router_chain_begin(struct job *job);
/* Ends MATCHING: the placement takes the blocks that are hashed so far. */
void router_chain_end_match(struct job *job);
void router_chain_drop(struct job *job); /* forgets its blocks: the placement finds none of them cached */
/* Returns how many blocks the index learns at the placement. It learns the others later. */
size_t router_chain_booked(struct job *job);
void router_chain_work(struct job *job); /* does a slice of the remaining work */
/* Does a slice of all jobs. True: there is more to do. */
bool router_chains_work(struct router *router);

#endif
