/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt's chain of block hashes: first the part that the placement needs, the rest after the job is
 * dispatched.
 *
 *      blocks   0 ........ 16 ........ 32 ................ 64 ................................. n
 *      hashed   |--known---|--known----|--the last one not-|        later: hashed, and learned
 *
 * The prefix match ends at the first block that no worker has (picker_index_match stops there). So hashes
 * behind that block do not change the choice.
 *
 *      MATCHING ──a block is unknown──> HASHING ──all hashed──> LEARNING ──> DONE
 *          │ every block is known                                  ^          │
 *          └──────────────────────────────────────────────────> DONE ──placed─┘
 *
 * A prompt of a million tokens takes ten milliseconds to hash and learn, and streams wait while the loop works.  So
 * every call processes at most SLICE_BLOCKS, and the loop's next turns do the rest.  A job in MATCHING waits in the
 * queue: with a part of its chain, a placement might choose a worker that has less of the prefix.  If the queue has no
 * room for it at arrival, it is placed with that part (HASHING).
 *
 * The index should know the whole prompt before the next placement, so that simultaneous prompts with the
 * same prefix are placed together. So a slice of the rest is done before the next placement.  Until all is
 * done the index has too few blocks, which is safe. */
#include "fleet/router/router_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/prefix/block_hash.h"

#define FIRST_BLOCKS 16   /* doubled in each round */
#define ROUND_BLOCKS 256  /* at most */
#define SLICE_BLOCKS 1024 /* hashed or learned in one call: a third of a millisecond */

static int router_chain_extend(struct job *job, size_t n_blocks)
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

static size_t router_chain_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void chain_enter(struct job *job, enum chain_state state)
{
    struct router *router = job->router;

    router->places_soon |= job->chain == CHAIN_MATCHING && !list_is_empty(&job->waiting);
    job->chain = state;
    list_remove(&job->unhashed);
    if (state == CHAIN_DONE)
        return;
    list_push_back(&router->unhashed, &job->unhashed);
    router_turn_soon(router);
}

/* MATCHING: hashes while the index knows the blocks. Returns how many, or an error. */
static int chain_match(struct job *job, size_t most)
{
    uint64_t now_ns = clock_now_ns();
    size_t begun = job->n_hashes, end = router_chain_least(begun + most, job->n_blocks);

    while (job->n_hashes < job->n_blocks) {
        size_t round = job->n_hashes == 0 ? FIRST_BLOCKS : router_chain_least(job->n_hashes, ROUND_BLOCKS);
        int rc;

        if (job->n_hashes > 0 &&
            !picker_index_knows(job->router->index, &job->hashes[job->n_hashes - 1], now_ns)) {
            chain_enter(job, CHAIN_HASHING);
            return (int)(job->n_hashes - begun);
        }
        if (job->n_hashes >= end)
            return (int)(job->n_hashes - begun);
        rc = router_chain_extend(job, router_chain_least(job->n_hashes + round, job->n_blocks));
        if (rc < 0)
            return rc;
    }
    chain_enter(job, CHAIN_DONE);
    return (int)(job->n_hashes - begun);
}

int router_chain_begin(struct job *job)
{
    int rc;

    job->chain = CHAIN_DONE;
    if (job->score_next > 0) /* prompt logprobs need the computation, even of cached blocks */
        return 0;
    job->n_blocks = job->order.n_prompt / job->model->gen.block_tokens;
    job->hashes = calloc(job->n_blocks + 1, sizeof(*job->hashes));
    if (job->hashes == NULL)
        return E_NOMEM;
    chain_enter(job, CHAIN_MATCHING);
    rc = chain_match(job, SLICE_BLOCKS);
    return rc < 0 ? rc : 0;
}

void router_chain_drop(struct job *job)
{
    job->n_blocks = job->n_hashes = job->learn_from = job->learn_to = 0;
    chain_enter(job, CHAIN_DONE);
}

void router_chain_end_match(struct job *job)
{
    if (job->chain == CHAIN_MATCHING)
        chain_enter(job, CHAIN_HASHING);
}

/* The worker of a part; PICKER_NONE: none, or its process is gone. */
static uint32_t if_usable(const struct job *job, const struct job_part *part)
{
    const bool is_usable = part->slot != PICKER_NONE && !router_part_is_lost(job, part) &&
                           router_worker_usable(&job->router->workers[part->slot]);

    return is_usable ? part->slot : PICKER_NONE;
}

/* Learns blocks, if the job is placed: its workers will have them. */
static void chain_learn(struct job *job, size_t from, size_t n)
{
    struct router *router = job->router;
    const uint32_t slots[2] = {if_usable(job, &job->prefill), if_usable(job, &job->decode)};

    if (slots[0] != PICKER_NONE || slots[1] != PICKER_NONE)
        picker_index_learn_pair(router->index, slots, job->hashes + from, n, clock_now_ns());
}

/* Hashes from the beginning, or learns from the end, so that the beginning is evicted last.  Returns how many
 * blocks it did.  0: a failure, after which the index knows fewer blocks. */
static size_t chain_slice(struct job *job, size_t most)
{
    size_t n = 0;
    int rc;

    switch (job->chain) {
    case CHAIN_MATCHING:
        rc = chain_match(job, most);
        if (rc < 0)
            chain_enter(job, CHAIN_DONE);
        n = rc < 0 ? 0 : (size_t)rc;
        break;
    case CHAIN_HASHING:
        n = router_chain_least(most, job->n_blocks - job->n_hashes);
        if (router_chain_extend(job, job->n_hashes + n) < 0) {
            chain_enter(job, CHAIN_DONE);
            return 0;
        }
        if (job->n_hashes == job->n_blocks) {
            job->learn_to = job->n_blocks;
            chain_enter(job, job_is_in(job, JOB_WAITS | JOB_BIT(NEW) | JOB_BIT(READMITTING))
                                 ? CHAIN_DONE
                                 : CHAIN_LEARNING);
        }
        break;
    case CHAIN_LEARNING:
        n = router_chain_least(most, job->learn_to - job->learn_from);
        job->learn_to -= n;
        chain_learn(job, job->learn_to, n);
        if (job->learn_to == job->learn_from)
            chain_enter(job, CHAIN_DONE);
        break;
    case CHAIN_DONE:
        break;
    }
    return n;
}

size_t router_chain_booked(struct job *job)
{
    job->learn_from = router_chain_least(job->n_hashes, SLICE_BLOCKS);
    job->learn_to = job->n_hashes;
    if (job->chain != CHAIN_HASHING && job->learn_from < job->learn_to)
        chain_enter(job, CHAIN_LEARNING);
    else if (job->chain == CHAIN_LEARNING)
        chain_enter(job, CHAIN_DONE);
    return job->learn_from;
}

static size_t chain_work(struct job *job, size_t left)
{
    while (left > 0 && job->chain != CHAIN_DONE) {
        size_t n = chain_slice(job, left);

        left -= router_chain_least(left, n > 0 ? n : 1);
    }
    return left;
}

void router_chain_work(struct job *job)
{
    (void)chain_work(job, SLICE_BLOCKS);
}

bool router_chains_work(struct router *router)
{
    size_t left = SLICE_BLOCKS;

    while (left > 0 && !list_is_empty(&router->unhashed))
        left = chain_work(container_of(router->unhashed.next, struct job, unhashed), left);
    return !list_is_empty(&router->unhashed);
}
