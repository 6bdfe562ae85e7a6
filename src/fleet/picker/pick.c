/* SPDX-License-Identifier: Apache-2.0 */
/* The choice: least estimated completion among the placements that keep the objectives.
 *
 *    alone (D):     (queue(D) + prefill(D, uncached)) / left(D) + answer x itl(D) + delay(D)
 *    pair (P, D):   queue(P) + prefill(P, uncached) + transfer tail  + answer x itl(D)
 *
 * left(D) is the part of a step that decoding sequences leave to prompts within the objective for the time between
 * tokens; workers bound their chunks by it. delay(D) is the time that other sequences on D lose: the prefill time
 * once for each sequence that decodes there. It adds half the TTFT objective and half the prompt's time, for
 * requests that arrive during the prompt. So long prompts go to the prefill pool. They overflow to decode workers
 * only when that pool's queue exceeds about half the objective plus half the prompt's time (selective
 * disaggregation, as in Mooncake and llm-d). Prompts of at most local_prefill_tokens uncached tokens run where they
 * decode. So do prompts that D computes within local_prefill_s, times one plus the sequences that decode there. For
 * them the messages and wake-ups of a hand-off would cost too much. Their delay(D) is the prefill time, once, if any
 * sequence decodes there: equal workers learn speeds that differ by a third, and an idle one must be preferred all the
 * same. If no decode worker keeps the objectives so, pairs are tried for them too.
 *
 * Under admission control such an overflow also leaves half of each step and a quarter of the seats free (pick_priv.h).
 *
 * A worker of both roles is a decode worker without these halves: it is meant to read prompts of any length.
 * Only the delay of its decoding sequences counts. It takes hand-offs from prefill workers and hands nothing
 * over.
 *
 * Disk. A worker may read blocks from its disk and compute the rest. This costs the read (bytes at the measured
 * rate, after the reads already queued) and delays no other sequence. The picker considers it only if it takes less
 * time than computing, because the worker decides by the same comparison. Only the worker that computes the prompt
 * reads from disk. Few workers have a given prompt on disk, so they are tried separately.
 *
 * Shared store. In the same way, every worker that uses a store may read the store's blocks, at its own measured
 * rate. picker_place_choose() adds these runs.
 *
 * Pushes. A prefill worker may also get the blocks that it lacks from another worker (prefix fetch). Its cost is
 * the lesser of push and computation. A push also costs a share of the time that it saves, so that requests
 * still prefer the worker that has the blocks. fleet/picker/owner.h chooses the owner afterwards.
 *
 * A request is not refused for an objective that even an idle worker could not keep: the TTFT limit is the
 * larger of the objective and twice the prompt's time alone. No worker idles because no placement keeps the
 * objectives. A request that could begin at once (a seat, blocks, a queue within the limit) waits only if
 * waiting helps:
 *
 *    pass             time between tokens       room                          one worker alone may be
 *    1 keeping        objective                 reported                      decode workers
 *    2 conserving     also if others' ends      reported; an idle worker      decode workers
 *                     would not mend it         counts as empty
 *    3 least bad      any                       as 2                          prefill workers too
 *    4 any            the best of all, for requests that must go on (E_OVERLOADED)
 *
 * goals.yield limits the passes: a router stops after 2 at first, and after 3 for requests that have waited. So a
 * wrong step time sends requests to other workers but never refuses them, and later requests correct it.
 *
 * Ties go to the placement with less running, then to one worker before a pair, then to the lower rank of
 * its slots (an order for each picker_fleet_new()). So the result depends on the arguments alone.
 *
 * Pairs need no search over all pairs. A pair's cost is one term of P plus one term of D. It keeps the
 * objectives when P keeps its own (room, TTFT) and D keeps its own (room, seat, ITL). Workers of one layout
 * lie in one pool. Order each pool by (cost, running), in whole numbers. Then the best pair consists of the
 * best P and the best D, and ranks break ties for each of the two. So one pass over the workers that keep
 * their objectives finds the best pair, with one comparison per layout. If there is none, a second pass looks
 * at all workers, because then no pair keeps the objectives. tests/unit/fleet/picker/test_pairs checks all pairs.
 *
 * Workers that are next to each other in a pool form groups. Bounds of a group reject all its workers at once
 * (pick_groups_priv.h), so that a choice among a thousand workers looks at about a hundred. */
#include "fleet/picker/picker.h"

#include "base/err.h"
#include "fleet/picker/answers.h"
#include "fleet/picker/pick_groups_priv.h"
#include "fleet/picker/pick_priv.h"

#define POOL_SHARE_READ 2 /* a worker reads at most the part of a prompt that fits half its pool */

/* ---- the order ---- */

static bool picker_pick_is_better(const struct scan *scan, const struct candidate *a,
                                  const struct candidate *than)
{
    if (than->decode == NULL)
        return true;
    if (a->cost_ns != than->cost_ns)
        return a->cost_ns < than->cost_ns;
    if (a->n_running != than->n_running)
        return a->n_running < than->n_running;
    if ((a->prefill != NULL) != (than->prefill != NULL))
        return a->prefill == NULL;
    if (a->prefill != than->prefill)
        return pick_rank(scan->fleet, a->prefill->slot) < pick_rank(scan->fleet, than->prefill->slot);
    return pick_rank(scan->fleet, a->decode->slot) < pick_rank(scan->fleet, than->decode->slot);
}

static void picker_pick_offer(struct scan *scan, const struct candidate *candidate)
{
    if (picker_pick_is_better(scan, candidate, &scan->best))
        scan->best = *candidate;
}

/* ---- pools ---- */

static void offer_alone(struct scan *scan, const struct side *side)
{
    if (side->row != NULL)
        picker_pick_offer(scan,
                          &(struct candidate){side->cost_ns, side->n_running, NULL, side->row, side->n_read});
}

static void offer_pair(struct scan *scan, const struct side *p, const struct side *d)
{
    if (p->row != NULL && d->row != NULL)
        picker_pick_offer(scan, &(struct candidate){p->cost_ns + d->cost_ns, p->n_running + d->n_running,
                                                    p->row, d->row, p->n_read});
}

static double run_read_s(const struct picker_worker *worker, const struct picker_run *run, uint32_t n_tokens)
{
    return run->is_in_store ? picker_store_s(worker, n_tokens) : picker_read_s(worker, n_tokens);
}

/* Sets how many tokens the worker reads, and adds the time of it. */
static void put_read(const struct scan *scan, uint32_t slot, struct picker_choice *choice)
{
    struct picker_worker worker;

    choice->read_tokens = scan->best.n_read;
    choice->has_read = scan->best.n_read > 0;
    choice->reads_store = false;
    choice->read_s = 0;
    for (uint32_t i = 0; scan->best.n_read > 0 && i < scan->request->n_runs; i++) {
        const struct picker_run *run = &scan->request->runs[i];

        if (run->slot != slot)
            continue;
        picker_fleet_row(scan->fleet, slot, &worker);
        choice->reads_store = run->is_in_store;
        choice->read_s = run_read_s(&worker, run, scan->best.n_read);
        choice->alone_s += choice->read_s;
    }
}

/* The prompt's estimate with this run read back; false: computing all of it is no slower. */
static bool weigh_run(const struct scan *scan, const struct pick_row *row, const struct picker_run *run,
                      struct need *out)
{
    uint32_t n = pick_uncached(scan, row->slot, row->block_tokens), n_read;
    uint64_t stored = (uint64_t)run->n_blocks * row->block_tokens, most = row->total_tokens / POOL_SHARE_READ;
    struct picker_worker worker;

    stored = stored < scan->n_tokens ? stored : scan->n_tokens - 1;
    if (stored <= scan->n_tokens - n)
        return false;
    n_read = (uint32_t)stored - (scan->n_tokens - n);
    n_read = n_read < most ? n_read : (uint32_t)most;
    picker_fleet_row(scan->fleet, row->slot, &worker);
    *out = (struct need){.n_missing = n,
                         .n_read = n_read,
                         .n = n - n_read,
                         .read_ns = pick_ns(run_read_s(&worker, run, n_read) * 1e9)};
    return n_read > 0 && out->read_ns < pick_ns(n_read * row->prefill_ns); /* attention saves even more */
}

/* Tries the workers of the pool that have some of the prompt on disk. */
static void try_runs(const struct scan *scan, const struct pick_pool *pool, enum what what, struct side *lone,
                     struct side *half)
{
    for (uint32_t i = 0; i < scan->request->n_runs; i++) {
        const struct picker_run *run = &scan->request->runs[i];
        const struct fleet_slot *at = &scan->fleet->slots[run->slot];
        const struct pick_row *row;
        struct need need;

        if (at->pool == PICKER_NONE || &scan->fleet->pools[at->pool] != pool)
            continue;
        row = &pool->rows[at->at];
        if (!picker_pick_is_allowed(scan, row) || !is_large(scan, row) || !weigh_run(scan, row, run, &need))
            continue;
        if (what == PREFILL_HALVES)
            try_prefill(scan, row, &pool->briefs[at->at], need, half);
        else if (is_short(scan, need.n, row->prefill_ns, row->pair_ns, row->n_running) ==
                 (what == DECODE_HALVES))
            try_alone(scan, row, need, lone);
    }
}

/* True if this pool's briefs hold the values of this search. */
static inline bool has_briefs(const struct scan *scan, const struct pick_pool *pool, enum what what)
{
    return scan->excluded == NULL && pool->least_total > scan->n_tokens &&
           pool->role == (what == PREFILL_HALVES ? PICKER_PREFILL : PICKER_DECODE);
}

/* The best of one pool. The local copy of scan lets the compiler keep its fields in registers. */
static inline __attribute__((always_inline)) void scan_pool(struct scan *all, const struct pick_pool *pool,
                                                            enum what what, struct side *half_out)
{
    struct side sides[2] = {{.cost_ns = INT64_MAX}, {.cost_ns = INT64_MAX}}; /* alone, half of a pair */
    const struct scan scan = *all;
    bool has_any = false;

    if (has_briefs(&scan, pool, what)) {
        has_any = pool->n > 0;
        scan_groups(&scan, pool, what, sides);
    } else {
        for (uint32_t i = 0; i < pool->n; i++) {
            if (!picker_pick_is_allowed(&scan, &pool->rows[i]))
                continue;
            has_any = true;
            try_row(&scan, pool, i, what, sides);
        }
    }
    if (scan.request->n_runs > 0) { /* on copies: the others stay in registers */
        struct side read[2] = {sides[0], sides[1]};

        try_runs(all, pool, what, &read[0], &read[1]);
        sides[0] = read[0];
        sides[1] = read[1];
    }
    all->has_any |= has_any;
    offer_alone(all, &sides[0]);
    *half_out = sides[1];
}

static void scan_prefill(struct scan *scan, const struct pick_pool *pool, struct side *half_out)
{
    scan_pool(scan, pool, PREFILL_HALVES, half_out);
}

static void scan_decode(struct scan *scan, const struct pick_pool *pool, struct side *half_out)
{
    scan_pool(scan, pool, DECODE_HALVES, half_out);
}

static void scan_overflow(struct scan *scan, const struct pick_pool *pool)
{
    struct side none;

    scan_pool(scan, pool, ALONE_BY_OVERFLOW, &none);
}

static bool picker_pick_concerns(const struct pick_pool *pool, const struct picker_request *request,
                                 enum picker_role role)
{
    return pool->n > 0 && pool->role == role && pool->group == request->group &&
           (!request->keeps_layout || pool->layout == request->layout);
}

static bool has_open(const struct scan *scan, const struct pick_pool *pool)
{
    bool is_found = false;

    for (uint32_t i = 0; i < pool->n && !is_found; i++)
        is_found = picker_pick_is_allowed(scan, &pool->rows[i]) && is_large(scan, &pool->rows[i]);
    return is_found;
}

static void scan_pairs(struct scan *scan, const struct picker_fleet *fleet)
{
    const struct pick_pool *pools = fleet->pools;
    struct side prefill, decode;

    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        if (picker_pick_concerns(&pools[i], scan->request, PICKER_DECODE)) {
            uint32_t partner = pools[i].partner;

            scan_decode(scan, &pools[i], &decode);
            if (partner == PICKER_NONE ||
                !picker_pick_concerns(&pools[partner], scan->request, PICKER_PREFILL))
                continue;
            if (decode.row == NULL && scan->has_any)
                continue; /* no worker to pair with */
            scan_prefill(scan, &pools[partner], &prefill);
            offer_pair(scan, &prefill, &decode);
        }
    }
}

/* Tries workers of a role that do both phases. */
static void scan_lone(struct scan *scan, const struct picker_fleet *fleet, enum picker_role role)
{
    struct side none;

    scan->has_prefill = false;
    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        if (!picker_pick_concerns(&fleet->pools[i], scan->request, role))
            continue;
        scan_decode(scan, &fleet->pools[i], &none);
        scan_overflow(scan, &fleet->pools[i]);
    }
}

static void scan_all(struct scan *scan, const struct picker_fleet *fleet)
{
    bool has_decode = false;

    if (scan->request->is_alone) {
        scan_lone(scan, fleet, PICKER_PREFILL);
        scan_lone(scan, fleet, PICKER_DECODE);
        return;
    }
    for (uint32_t i = 0; i < fleet->n_pools && !has_decode; i++)
        has_decode = picker_pick_concerns(&fleet->pools[i], scan->request, PICKER_DECODE) &&
                     has_open(scan, &fleet->pools[i]);
    /* a prefill worker decodes only when no decode worker can, and then it does both phases */
    if (!has_decode || scan->pass == LEAST_BAD)
        scan_lone(scan, fleet, PICKER_PREFILL);
    scan_pairs(scan, fleet);
    /* overflow costs at least a part of the objective, and the answer: a better result needs no search */
    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        const struct pick_pool *pool = &fleet->pools[i];
        uint32_t partner = pool->partner;
        int64_t least_ns = (pool->has_both ? 0 : scan->ttft_slo_ns / OVERFLOW_DIVISOR) +
                           (scan->answer_tokens + 1) * pool->least_itl_ns;

        if (!picker_pick_concerns(pool, scan->request, PICKER_DECODE) ||
            (scan->best.decode != NULL && scan->best.cost_ns < least_ns))
            continue;
        scan->has_prefill = partner != PICKER_NONE && has_open(scan, &fleet->pools[partner]);
        scan_overflow(scan, pool);
    }
}

/* No worker keeps the objectives alone with a prompt that is short for it.  Then pairs are tried for such prompts too:
 * otherwise they would wait while prefill workers idle. */
static void scan_short_pairs(struct scan *scan, const struct picker_fleet *fleet)
{
    uint32_t local_tokens = scan->local_tokens;
    int64_t local_ns = scan->local_ns;

    if (scan->best.decode != NULL || scan->request->is_alone || (local_tokens == 0 && local_ns == 0))
        return;
    scan->local_tokens = 0;
    scan->local_ns = 0;
    scan_all(scan, fleet);
    scan->local_tokens = local_tokens;
    scan->local_ns = local_ns;
    scan->pairs_short = scan->best.decode != NULL;
}

/* Pass after pass, as far as the goals yield; then the best of all workers. */
static void scan_passes(struct scan *scan, const struct picker_fleet *fleet, enum picker_yield yield)
{
    static const enum pass last[] = {
        [PICKER_KEEPS] = KEEPING, [PICKER_CONSERVES] = CONSERVING, [PICKER_LEAST_BAD] = LEAST_BAD};

    scan->pass = KEEPING;
    scan_all(scan, fleet);
    scan_short_pairs(scan, fleet);
    while (scan->best.decode == NULL && scan->pass != ANY) {
        scan->pass = scan->pass < last[yield] ? (enum pass)(scan->pass + 1) : ANY;
        scan_all(scan, fleet);
    }
}

static uint32_t pick_answer_tokens(const struct picker_request *request)
{
    uint32_t n = request->answer_tokens > 0 ? request->answer_tokens : PICKER_ANSWER_TOKENS;

    n = n < PICK_MAX_ANSWER ? n : PICK_MAX_ANSWER;
    return n < request->max_new_tokens ? n : request->max_new_tokens;
}

static double pick_stretch(const struct scan *scan, const struct pick_row *first, int64_t own_ns)
{
    return scan->best.prefill != NULL || own_ns == 0
               ? 1
               : (double)beside_ns(scan, first, own_ns) / (double)own_ns;
}

static struct scan pick_scan(const struct picker_fleet *fleet, const struct picker_goals *goals,
                             const struct picker_request *request, const struct warm *warm)
{
    static const uint32_t nothing_cached[PICKER_MAX_WORKERS];

    return (struct scan){.fleet = fleet,
                         .request = request,
                         .n_tokens = request->n_tokens,
                         .now_ns = fleet->is_timed ? (int64_t)request->now_ns : 0,
                         .ttft_slo_ns = pick_ns(goals->ttft_slo_s * 1e9),
                         .itl_slo_ns = pick_ns(goals->itl_slo_s * (1 - goals->itl_margin) * 1e9),
                         .step_slo_ns = pick_ns(goals->itl_slo_s * 1e9),
                         .local_tokens = goals->local_prefill_tokens,
                         .local_ns = pick_ns(goals->local_prefill_s * 1e9),
                         .share_1024 = goals->begin_share > 0 && goals->begin_share < 1
                                           ? (int64_t)(goals->begin_share * WHOLE_SHARE)
                                           : WHOLE_SHARE,
                         .answer_tokens = pick_answer_tokens(request),
                         .warm = warm,
                         .cached_blocks = request->cached_blocks ? request->cached_blocks : nothing_cached,
                         .excluded = request->excluded && !picker_slots_is_empty(request->excluded)
                                         ? request->excluded
                                         : NULL};
}

int picker_pick(const struct picker_fleet *fleet, const struct picker_goals *goals,
                const struct picker_request *request, struct picker_choice *choice_out)
{
    struct warm warm = {.n = 0};
    struct scan scan = pick_scan(fleet, goals, request, &warm);
    const struct pick_row *first;
    int64_t own_ns;
    uint32_t n;

    if (request->cached_blocks != NULL)
        warm_list(&warm, request->cached_blocks);
    scan_passes(&scan, fleet, goals->yield);
    if (scan.best.decode == NULL)
        return scan.has_any ? E_LIMIT : E_NOT_FOUND;
    first = scan.best.prefill ? scan.best.prefill : scan.best.decode;
    n = pick_uncached(&scan, first->slot, first->block_tokens) - scan.best.n_read;
    choice_out->prefill = scan.best.prefill ? scan.best.prefill->slot : PICKER_NONE;
    choice_out->decode = scan.best.decode->slot;
    choice_out->uncached_tokens = n;
    choice_out->cost_s = (double)scan.best.cost_ns / 1e9;
    choice_out->pairs_short = scan.pairs_short;
    choice_out->itl_s = (double)scan.best.decode->itl_ns / 1e9;
    own_ns = pick_compute_ns(&scan, n, first->prefill_ns, first->pair_ns);
    choice_out->alone_s = (double)own_ns / 1e9 + (scan.best.prefill ? 0 : choice_out->itl_s);
    choice_out->stretch = pick_stretch(&scan, first, own_ns);
    put_read(&scan, first->slot, choice_out);
    choice_out->ttft_s = choice_out->alone_s + (double)queue_ns(&scan, first->queue_ns) / 1e9 +
                         (choice_out->stretch - 1) * (double)own_ns / 1e9;
    return scan.pass == ANY ? E_OVERLOADED : 0;
}

/* The choice says how the worker that computes got its prompt; other workers take the cheaper way. */
static void try_of_choice(const struct scan *scan, const struct picker_choice *choice,
                          const struct pick_pool *pool, const struct pick_row *row, struct side *best)
{
    const struct pick_brief *brief = &pool->briefs[row - pool->rows];
    uint32_t n = pick_uncached(scan, row->slot, row->block_tokens), i;
    bool is_alone = choice->prefill == PICKER_NONE;
    bool computes = row->slot == (is_alone ? choice->decode : choice->prefill);
    bool is_half = pool->role == PICKER_PREFILL && !(is_alone && computes);
    struct need need = {.n_missing = n, .n = n};

    if (!is_half && !is_alone) {
        bool is_quick = is_short(scan, n, row->prefill_ns, row->pair_ns, row->n_running);

        try_decode(scan, row, n, is_quick ? handoff_ns(row->itl_ns) : 0, best);
        return;
    }
    for (i = 0; i <= scan->request->n_runs; i++) {
        bool reads = i > 0;

        if (reads && (scan->request->runs[i - 1].slot != row->slot ||
                      !weigh_run(scan, row, &scan->request->runs[i - 1], &need)))
            continue;
        if (computes && reads != choice->has_read)
            continue;
        if (is_half)
            try_prefill(scan, row, brief, need, best);
        else
            try_alone(scan, row, need, best);
    }
}

double picker_cost_s(const struct picker_fleet *fleet, const struct picker_goals *goals,
                     const struct picker_request *request, const struct picker_choice *choice, uint32_t slot)
{
    const struct fleet_slot *at = &fleet->slots[slot];
    struct warm warm = {.n = 0};
    struct scan scan = pick_scan(fleet, goals, request, &warm);
    struct side best = {.cost_ns = INT64_MAX};

    if (at->pool == PICKER_NONE)
        return 0;
    scan.pass = ANY;
    if (choice->pairs_short) {
        scan.local_tokens = 0;
        scan.local_ns = 0;
    }
    try_of_choice(&scan, choice, &fleet->pools[at->pool], &fleet->pools[at->pool].rows[at->at], &best);
    return best.row != NULL ? (double)best.cost_ns / 1e9 : 0;
}
