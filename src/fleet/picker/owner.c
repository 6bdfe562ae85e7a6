/* SPDX-License-Identifier: Apache-2.0 */
/* The estimate behind a prefix fetch: push the cached blocks, or compute them.
 *
 *    push      latency + missing tokens x bytes per token / bandwidth       (measured by the receiver)
 *    compute   missing tokens / prefill speed                               (measured by the asker)
 *              or, if less, read the tokens on its own disk, or in its shared store, and compute the rest
 *
 * Only pushes that the asker requested measure the bandwidth: a hand-off is no faster than prefill computes. A
 * worker without recent pushes gets a prior of at least twice its computing speed. So one push is tried and
 * measures the link. The latency is a prior: each of the three messages before the first byte waits for the
 * end of a step of the owner or the asker. A push must beat computing by a margin, because computing is
 * certain and a push may fail.
 *
 * The order among several owners: most tokens, then the same host, then the least load. More tokens are
 * better whenever pushing a token beats computing it.
 *
 * An owner that must first read a part from its disk has more tokens than the best other owner. It is asked
 * only if these tokens save more time than the read costs. */
#include "fleet/picker/owner.h"

#include <math.h>

#define LATENCY_S     0.002
#define LIMIT_LEAST_S 0.02
#define LIMIT_MOST_S  10.0
#define LATENCY_STEPS 2
#define DEFAULT_FASTER                                                                                       \
    2 /* assumed speed of a push relative to computing, so that a first push is tried
                               * on any accelerator */
#define MARGIN 1.25

static double push_rate(const struct picker_worker *to)
{
    double computed = to->prefill_tokens_per_s * (double)to->kv_bytes_per_token;

    if (to->push_bytes_per_s > 0)
        return to->push_bytes_per_s;
    return fmax(fmax(to->transfer_bytes_per_s, LOAD_RATE_LINK_PRIOR), DEFAULT_FASTER * computed);
}

double picker_push_s(const struct picker_worker *from, const struct picker_worker *to, uint32_t n_tokens)
{
    double step_s = from->n_running > 0 ? from->decode_step_s : 0;

    return LATENCY_S + LATENCY_STEPS * step_s +
           (double)n_tokens * (double)to->kv_bytes_per_token / push_rate(to);
}

double picker_push_token_s(const struct picker_worker *to)
{
    double seconds = (double)to->kv_bytes_per_token / push_rate(to);

    return to->can_push && seconds * MARGIN < picker_prefill_s(to, 1) ? seconds : 0;
}

static bool picker_owner_is_better(const struct picker_worker *row, const struct picker_worker *than,
                                   const struct picker_worker *asker)
{
    bool is_near = row->host == asker->host, than_is_near = than->host == asker->host;

    if (row->cached_tokens != than->cached_tokens)
        return row->cached_tokens > than->cached_tokens;
    if (is_near != than_is_near)
        return is_near;
    return row->n_running < than->n_running;
}

/* The usable part of n cached tokens of a row: a prompt's last token is always computed, and no cache
 * holds a partial block. */
static uint32_t usable_tokens(const struct picker_worker *row, uint32_t n,
                              const struct picker_request *request)
{
    uint32_t most = request->n_tokens - 1;

    n = n < most ? n : most;
    return row->block_tokens > 0 ? n / row->block_tokens * row->block_tokens : 0;
}

/* Seconds that the asker takes for these tokens without a fetch. */
static double alone_s(const struct picker_worker *asker, uint32_t here, uint32_t to)
{
    double best_s = picker_prompt_s(asker, here, to - here);
    uint32_t on_disk = asker->stored_tokens < to ? asker->stored_tokens : to,
             in_store = asker->in_store_tokens < to ? asker->in_store_tokens : to;

    if (on_disk > here)
        best_s = fmin(best_s,
                      picker_read_s(asker, on_disk - here) + picker_prompt_s(asker, on_disk, to - on_disk));
    if (in_store > here)
        best_s = fmin(best_s, picker_store_s(asker, in_store - here) +
                                  picker_prompt_s(asker, in_store, to - in_store));
    return best_s;
}

static bool may_push(const struct picker_worker *row, const struct picker_worker *to)
{
    return row != to && row->can_push && row->layout == to->layout;
}

/* The slot of the worker with the most tokens in memory; PICKER_NONE: none has any. */
static uint32_t best_in_memory(const struct picker_world *world, const struct picker_worker *to)
{
    uint32_t best = PICKER_NONE;

    for (uint32_t i = 0; i < world->n; i++) {
        const struct picker_worker *row = &world->workers[i];

        if (may_push(row, to) && row->cached_tokens > 0 &&
            (best == PICKER_NONE || picker_owner_is_better(row, &world->workers[best], to)))
            best = i;
    }
    return best;
}

/* The slot with the most tokens in memory or on disk, among workers that would have to read. */
static uint32_t best_on_disk(const struct picker_world *world, const struct picker_worker *to)
{
    uint32_t best = PICKER_NONE;

    for (uint32_t i = 0; i < world->n; i++) {
        const struct picker_worker *row = &world->workers[i], *than;

        if (!may_push(row, to) || row->stored_tokens <= row->cached_tokens || row->read_bytes_per_s <= 0)
            continue;
        than = best != PICKER_NONE ? &world->workers[best] : NULL;
        if (than == NULL || row->stored_tokens > than->stored_tokens ||
            (row->stored_tokens == than->stored_tokens && picker_owner_is_better(row, than, to)))
            best = i;
    }
    return best;
}

/* The estimate for a fetch from this worker; slot PICKER_NONE if it would bring nothing. */
static struct picker_owner picker_owner_weigh(const struct picker_world *world,
                                              const struct picker_request *request, uint32_t asker,
                                              uint32_t slot, bool has_to_read)
{
    const struct picker_worker *to = &world->workers[asker];
    struct picker_owner found = {.slot = PICKER_NONE, .has_to_read = has_to_read};
    uint32_t here = usable_tokens(to, to->cached_tokens, request);
    const struct picker_worker *row;
    uint32_t pushed_at_once;

    if (slot == PICKER_NONE)
        return found;
    row = &world->workers[slot];
    pushed_at_once = row->cached_tokens > here ? row->cached_tokens : here;
    found.tokens = usable_tokens(row, has_to_read ? row->stored_tokens : row->cached_tokens, request);
    if (found.tokens <= here)
        return found;
    found.slot = slot;
    found.push_s = picker_push_s(row, to, found.tokens - here);
    if (has_to_read && found.tokens > pushed_at_once)
        found.push_s += picker_read_s(row, found.tokens - pushed_at_once);
    found.computed_s = alone_s(to, here, found.tokens);
    return found;
}

static double saved_s(const struct picker_owner *found)
{
    return found->computed_s - found->push_s;
}

struct picker_owner picker_find_owner(const struct picker_world *world, const struct picker_request *request,
                                      uint32_t asker, enum picker_fetch prefix_fetch)
{
    const struct picker_worker *to = &world->workers[asker];
    struct picker_owner none = {.slot = PICKER_NONE}, found[2];

    if (prefix_fetch == PICKER_FETCH_OFF || request->n_tokens == 0)
        return none;
    found[0] = picker_owner_weigh(world, request, asker, best_in_memory(world, to), false);
    found[1] = picker_owner_weigh(world, request, asker, best_on_disk(world, to), true);
    for (int i = 0; i < 2; i++)
        if (prefix_fetch == PICKER_FETCH_AUTO && found[i].push_s * MARGIN > found[i].computed_s)
            found[i] = none;
    if (found[1].slot == PICKER_NONE)
        return found[0];
    if (found[0].slot == PICKER_NONE)
        return found[1];
    return found[1].tokens > found[0].tokens &&
                   (prefix_fetch == PICKER_FETCH_ALWAYS || saved_s(&found[1]) > saved_s(&found[0]))
               ? found[1]
               : found[0];
}

double picker_ask_limit_s(const struct picker_owner *owner, enum picker_fetch prefix_fetch)
{
    if (prefix_fetch == PICKER_FETCH_ALWAYS || owner->computed_s > LIMIT_MOST_S)
        return LIMIT_MOST_S;
    return owner->computed_s > LIMIT_LEAST_S ? owner->computed_s : LIMIT_LEAST_S;
}
