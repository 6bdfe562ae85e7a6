/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt's chain of block hashes: first as much as the placement needs, the rest after the prompt is on
 * its way.
 *
 *      blocks   0 ........ 16 ........ 32 ................ 64 ................................. n
 *      hashed   |--known---|--known----|--the last one not-|        later: hashed, and learned
 *
 * The prefix match ends at the first block that no worker has (picker_index_match stops there). So hashes
 * behind that block do not change the choice. A new prompt of 132,000 tokens takes a millisecond to hash
 * and learn; the worker need not wait for that.
 *
 * The index should know the whole prompt before the next placement, so that simultaneous prompts with the
 * same prefix are placed together. So the rest is hashed before the next placement, or by the tick. Until
 * then the index knows too little, which is allowed. */
#include "fleet/router/router_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/prefix/block_hash.h"

#define FIRST_BLOCKS 16 /* doubled in each round */

static int extend(struct gen_handle *job, size_t n_blocks)
{
    struct prefix_chain chain = {.tokens = job->order.tokens,
                                 .block_tokens = job->model->gen.block_tokens,
                                 .hashes = job->hashes,
                                 .n = job->n_hashes};
    struct prefix_roots roots;
    int rc = prefix_roots_derive(job->router->prefix_key, job->model->gen.fingerprint, job->order.work.tenant,
                                 job->order.work.public_tokens, &roots);

    if (rc < 0)
        return rc;
    prefix_roots_extend(&roots, &chain, n_blocks);
    job->n_hashes = n_blocks;
    return 0;
}

int router_chain_begin(struct gen_handle *job)
{
    uint64_t now_ns = clock_now_ns();
    int rc = 0;

    if (job->score_next > 0) /* prompt logprobs need computing, cached or not */
        return 0;
    job->n_blocks = job->order.n_prompt / job->model->gen.block_tokens;
    job->hashes = calloc(job->n_blocks + 1, sizeof(*job->hashes));
    if (job->hashes == NULL)
        return E_NOMEM;
    for (size_t n = FIRST_BLOCKS; rc == 0 && job->n_hashes < job->n_blocks; n *= 2) {
        if (job->n_hashes > 0 &&
            !picker_index_knows(job->router->index, &job->hashes[job->n_hashes - 1], now_ns))
            break;
        rc = extend(job, n < job->n_blocks ? n : job->n_blocks);
    }
    if (rc == 0 && job->n_hashes < job->n_blocks)
        list_push_back(&job->router->unhashed, &job->unhashed);
    return rc;
}

static uint32_t if_usable(const struct router *router, uint32_t slot)
{
    return slot != PICKER_NONE && router_worker_usable(&router->workers[slot]) ? slot : PICKER_NONE;
}

/* If the job is placed, its workers will have the prompt. */
static void learn(struct gen_handle *job, size_t from)
{
    struct router *router = job->router;
    const uint32_t slots[2] = {if_usable(router, job->prefill.slot), if_usable(router, job->decode.slot)};

    if (job->state != JOB_QUEUED && (slots[0] != PICKER_NONE || slots[1] != PICKER_NONE))
        picker_index_learn_pair(router->index, slots, job->hashes + from, job->n_hashes - from,
                                clock_now_ns());
}

void router_chain_end(struct gen_handle *job)
{
    size_t from = job->n_hashes;

    if (list_is_empty(&job->unhashed))
        return;
    list_remove(&job->unhashed);
    list_init(&job->unhashed);
    if (extend(job, job->n_blocks) == 0) /* a failure only leaves the index knowing less */
        learn(job, from);
}

void router_chains_end(struct router *router)
{
    while (!list_is_empty(&router->unhashed))
        router_chain_end(container_of(router->unhashed.next, struct gen_handle, unhashed));
}
