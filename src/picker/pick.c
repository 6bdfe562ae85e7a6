/* SPDX-License-Identifier: Apache-2.0 */
/* The choice: least estimated completion among those that keep the objectives.
 *
 *   alone (D):     queue(D) + prefill(D, uncached) + answer x itl(D) + what the others on D lose meanwhile
 *   pair (P, D):   queue(P) + prefill(P, uncached) + transfer tail  + answer x itl(D)
 *
 * "What the others lose" is the prefill time once for each sequence that decodes on D, and OVERFLOW_SHARE of
 * the TTFT objective on top: an idle decode worker is not idle for long.  So long prompts go to the prefill
 * pool, and overflow to decode workers only when that pool is backed up by a good part of the objective
 * (Mooncake's and llm-d's lesson: selective, not blanket, disaggregation).  Prompts of at most
 * local_prefill_tokens uncached tokens are cheap enough to run where they will be decoded.
 *
 * An objective that not even an idle worker could keep for this prompt is no reason to refuse: the limit for
 * TTFT is the larger of the objective and twice what the prompt takes alone.
 *
 * Ties go to the worker with less running, then to the lower slot, so the result depends on the world alone.
 */
#include "picker/picker.h"

#include <math.h>

#include "base/err.h"

#define ANSWER_TOKENS_GUESS 64
#define UNLOADED_SLACK      2.0
#define OVERFLOW_SHARE      0.5

struct candidate {
    struct picker_choice choice;
    double cost_s;
    bool keeps; /* both objectives */
    uint32_t n_running;
};

static uint32_t uncached(const struct picker_worker *worker, uint32_t n_tokens)
{
    uint32_t cached = worker->cached_tokens < n_tokens ? worker->cached_tokens : n_tokens - 1;

    return n_tokens - cached;
}

static bool has_room(const struct picker_worker *worker, const struct picker_request *request)
{
    uint32_t answer =
        request->max_new_tokens < ANSWER_TOKENS_GUESS ? request->max_new_tokens : ANSWER_TOKENS_GUESS;
    uint32_t want = (uncached(worker, request->n_tokens) + answer) / worker->block_tokens + 1;

    return worker->blocks_free >= want;
}

/* A sequence that arrives at a worker whose places are all taken would be computed there a second time:
 * better that it waits in the router's queue. */
static bool has_seat(const struct picker_worker *worker)
{
    return worker->max_seqs == 0 || worker->n_running < worker->max_seqs;
}

static double answer_s(const struct picker_request *request, double itl_s)
{
    uint32_t n =
        request->max_new_tokens < ANSWER_TOKENS_GUESS ? request->max_new_tokens : ANSWER_TOKENS_GUESS;

    return n * itl_s;
}

static void judge(const struct picker_world *world, double alone_s, bool room, struct candidate *candidate)
{
    double limit_s = fmax(world->ttft_slo_s, UNLOADED_SLACK * alone_s);

    candidate->keeps =
        room && candidate->choice.ttft_s <= limit_s && candidate->choice.itl_s <= world->itl_slo_s;
}

static struct candidate alone(const struct picker_world *world, const struct picker_request *request,
                              uint32_t slot)
{
    const struct picker_worker *worker = &world->workers[slot];
    uint32_t n = uncached(worker, request->n_tokens);
    double own_s = picker_prefill_s(worker, n);
    struct candidate it = {.choice = {.prefill = PICKER_NONE, .decode = slot, .uncached_tokens = n}};

    it.choice.itl_s = picker_itl_s(worker);
    it.choice.ttft_s = picker_queue_s(worker) + own_s + it.choice.itl_s;
    it.n_running = worker->n_running;
    it.cost_s = it.choice.ttft_s + answer_s(request, it.choice.itl_s);
    if (n > world->local_prefill_tokens)
        it.cost_s += own_s * worker->n_running + OVERFLOW_SHARE * world->ttft_slo_s;
    judge(world, own_s + it.choice.itl_s, has_room(worker, request) && has_seat(worker), &it);
    return it;
}

static struct candidate pair(const struct picker_world *world, const struct picker_request *request,
                             uint32_t p, uint32_t d)
{
    const struct picker_worker *prefill = &world->workers[p];
    const struct picker_worker *decode = &world->workers[d];
    uint32_t n = uncached(prefill, request->n_tokens);
    uint32_t moved = uncached(decode, request->n_tokens);
    double own_s = picker_prefill_s(prefill, n);
    struct candidate it = {.choice = {.prefill = p, .decode = d, .uncached_tokens = n}};

    it.choice.itl_s = picker_itl_s(decode);
    it.choice.ttft_s = picker_queue_s(prefill) + own_s;
    it.n_running = prefill->n_running + decode->n_running;
    it.cost_s = it.choice.ttft_s + picker_transfer_s(decode, moved) + answer_s(request, it.choice.itl_s);
    judge(world, own_s, has_room(prefill, request) && has_room(decode, request) && has_seat(decode), &it);
    return it;
}

static bool is_better(const struct candidate *a, const struct candidate *than)
{
    if (a->keeps != than->keeps)
        return a->keeps;
    if (fabs(a->cost_s - than->cost_s) > 1e-9)
        return a->cost_s < than->cost_s;
    return a->n_running < than->n_running;
}

static bool is_allowed(const struct picker_world *world, const struct picker_request *request, uint32_t slot)
{
    const struct picker_worker *worker = &world->workers[slot];

    return worker->is_usable && !(request->excluded >> slot & 1) &&
           (!request->keeps_layout || worker->layout == request->layout);
}

/* Allowed, and the prompt and one token more would fit if nothing else were there. */
static bool is_open(const struct picker_world *world, const struct picker_request *request, uint32_t slot)
{
    const struct picker_worker *worker = &world->workers[slot];

    return is_allowed(world, request, slot) &&
           (worker->blocks_total == 0 ||
            (uint64_t)worker->blocks_total * worker->block_tokens > request->n_tokens);
}

/* Pairs of p with every decode worker it may hand to.  A decode worker that already holds nearly all of the
 * prompt needs no pair. */
static void try_pairs(const struct picker_world *world, const struct picker_request *request, uint32_t p,
                      struct candidate *best, bool *found)
{
    for (uint32_t d = 0; d < world->n; d++) {
        const struct picker_worker *decode = &world->workers[d];

        if (!is_open(world, request, d) || decode->role != PICKER_DECODE ||
            decode->layout != world->workers[p].layout)
            continue;
        if (uncached(decode, request->n_tokens) <= world->local_prefill_tokens)
            continue;
        struct candidate it = pair(world, request, p, d);
        if (!*found || is_better(&it, best))
            *best = it;
        *found = true;
    }
}

int picker_pick(const struct picker_world *world, const struct picker_request *request,
                struct picker_choice *choice_out)
{
    struct candidate best = {0};
    bool found = false, has_decode = false, has_any = false;

    for (uint32_t i = 0; i < world->n; i++) {
        has_any |= is_allowed(world, request, i);
        has_decode |= is_open(world, request, i) && world->workers[i].role == PICKER_DECODE;
    }

    for (uint32_t i = 0; i < world->n; i++) {
        if (!is_open(world, request, i))
            continue;
        /* a prefill worker decodes only when nobody else can */
        if (world->workers[i].role == PICKER_DECODE || !has_decode) {
            struct candidate it = alone(world, request, i);
            if (!found || is_better(&it, &best))
                best = it;
            found = true;
        }
        if (world->workers[i].role == PICKER_PREFILL)
            try_pairs(world, request, i, &best, &found);
    }
    if (!found)
        return has_any ? E_LIMIT : E_NOT_FOUND;
    *choice_out = best.choice;
    return best.keeps ? 0 : E_OVERLOADED;
}
