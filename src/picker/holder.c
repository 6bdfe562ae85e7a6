/* SPDX-License-Identifier: Apache-2.0 */
/* The estimate behind an asked push.
 *
 *   push      latency + missing tokens x bytes per token / bandwidth       (measured by the receiver)
 *   compute   missing tokens / prefill speed                               (measured by the asker)
 *             or, where that is less, the read of those that its own disk has, and the rest so
 *
 * The bandwidth is that of pushes which the asker asked for; a hand-off's is no faster than prefill computes.
 * One that has seen nothing lately is given a guess, so that a push is tried and teaches the rest.  The
 * latency is our prior: the three messages before the first byte each wait for the end of a step, the
 * holder's decode step or the asker's own.  A push must beat computing by a margin, since computing is
 * certain and a push may fail.
 *
 * Of several holders the one with more is better as long as the additional tokens are worth it, which they
 * are whenever pushing a token beats computing it; so the most tokens win, then the same host, then who has
 * less to do. */
#include "picker/holder.h"

#define LATENCY_S         0.002
#define LATENCY_STEPS     2
#define GUESS_BYTES_PER_S 1e9
#define MARGIN            1.25

double picker_push_s(const struct picker_worker *from, const struct picker_worker *to, uint32_t n_tokens)
{
    double rate = to->push_bytes_per_s;
    double step_s = from->n_running > 0 ? from->decode_step_s : 0;

    if (rate <= 0)
        rate = to->transfer_bytes_per_s > GUESS_BYTES_PER_S ? to->transfer_bytes_per_s : GUESS_BYTES_PER_S;
    return LATENCY_S + LATENCY_STEPS * step_s + (double)n_tokens * (double)to->kv_bytes_per_token / rate;
}

static bool is_better(const struct picker_worker *row, const struct picker_worker *than,
                      const struct picker_worker *asker)
{
    bool is_near = row->host == asker->host, than_is_near = than->host == asker->host;

    if (row->cached_tokens != than->cached_tokens)
        return row->cached_tokens > than->cached_tokens;
    if (is_near != than_is_near)
        return is_near;
    return row->n_running < than->n_running;
}

/* A prompt's last token is computed in any case, and a partial block is in no cache. */
static uint32_t usable_tokens(const struct picker_worker *row, const struct picker_request *request)
{
    uint32_t most = request->n_tokens - 1;
    uint32_t n = row->cached_tokens < most ? row->cached_tokens : most;

    return row->block_tokens > 0 ? n / row->block_tokens * row->block_tokens : 0;
}

/* How long the asker takes for the tokens from here to there by itself. */
static double alone_s(const struct picker_worker *asker, uint32_t here, uint32_t to)
{
    double computed_s = picker_prefill_s(asker, to - here), read_s;
    uint32_t stored = asker->stored_tokens < to ? asker->stored_tokens : to;

    if (stored <= here)
        return computed_s;
    read_s = picker_read_s(asker, stored - here) + picker_prefill_s(asker, to - stored);
    return read_s < computed_s ? read_s : computed_s;
}

struct picker_holder picker_find_holder(const struct picker_world *world,
                                        const struct picker_request *request, uint32_t asker,
                                        enum picker_share share)
{
    const struct picker_worker *to = &world->workers[asker];
    struct picker_holder none = {.slot = PICKER_NONE}, found = none;
    uint32_t here, missing;

    if (share == PICKER_SHARE_OFF || request->n_tokens == 0)
        return none;
    for (uint32_t i = 0; i < world->n; i++) {
        const struct picker_worker *row = &world->workers[i];

        if (i == asker || !row->can_push || row->layout != to->layout || row->cached_tokens == 0)
            continue;
        if (found.slot == PICKER_NONE || is_better(row, &world->workers[found.slot], to))
            found.slot = i;
    }
    if (found.slot == PICKER_NONE)
        return none;
    found.tokens = usable_tokens(&world->workers[found.slot], request);
    here = usable_tokens(to, request);
    if (found.tokens <= here)
        return none;
    missing = found.tokens - here;
    found.push_s = picker_push_s(&world->workers[found.slot], to, missing);
    found.computed_s = alone_s(to, here, found.tokens);
    if (share == PICKER_SHARE_AUTO && found.push_s * MARGIN > found.computed_s)
        return none;
    return found;
}
