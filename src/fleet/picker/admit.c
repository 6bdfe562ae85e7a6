/* SPDX-License-Identifier: Apache-2.0 */
/* The prediction of a first token, from the same rows that the choice reads.
 *
 * Prompts.  A request that waits in the router does not get its first token sooner than one that waits at the
 * worker: the worker's queue drains while the request waits.  So the queue of the best worker and the prompts
 * ahead in the router add up.  Those are computed by the prefill workers, and in part by decode workers, whose part is
 * learned.
 *
 * Seats.  A decode worker takes one more sequence under three conditions.  It has a seat.  The time between
 * tokens stays within the objective.  It has blocks for the prompt and the expected answer.  Otherwise this
 * many sequences must end first:
 *
 *    ends = most of:  n_running - seats + 1
 *                     n_running - (most sequences that keep the objective)
 *                     missing tokens / tokens of a running sequence
 *
 * A sequence takes answer_tokens steps, so n_running of them end every answer_tokens x itl / n_running.
 *
 * Overdue sequences (picker_booking_wrote()) have outlived that prediction, so it says nothing about them.  Each is
 * expected to go on for as long as it has written.  Answers that are overdue together have a common cause, so the first
 * of them ends no sooner than any one of them: n of them count as one end in that time.  This router knows only its
 * own sequences; those of others are taken to be like them. */
#include "fleet/picker/admit.h"

#include <math.h>

#include "base/clock.h"
#include "fleet/picker/fleet_priv.h"

#define LATE_QUANTILE 0.98
#define LATE_STEP     0.05
#define LATE_EASY     0.4 /* of the limit: above it the margin rises only when limits are missed */
#define LATE_MAX      0.75
#define WELL_KEPT     0.7 /* of the objective */
#define BEGIN_SHARE   0.45
#define APPROACH_PART 0.25 /* of the way, for each message */
#define LOCAL_ALPHA   0.02
#define LOCAL_MAX     0.75
#define RETURN_MAX_S  60
#define FOREVER_S     3600

/* ---- lateness ---- */

void picker_lateness_learn(struct picker_lateness *late, double predicted_s, double actual_s, double limit_s)
{
    double share = limit_s > 0 ? (actual_s - predicted_s) / limit_s : 0;
    bool is_missed = actual_s > limit_s, is_later = share > late->share;
    double most = is_missed ? LATE_MAX : fmax(LATE_EASY, late->share), before = late->share;

    if (!isfinite(share))
        return;
    late->n_seen += late->n_seen < UINT32_MAX;
    if (is_later && (is_missed || late->share < LATE_EASY))
        late->share = fmin(late->share + LATE_STEP * LATE_QUANTILE, most);
    else
        late->share = fmax(late->share - LATE_STEP * (1 - LATE_QUANTILE), late->least);
    late->moved += late->share - before;
}

void picker_lateness_learn_itl(struct picker_lateness *late, double predicted_s, double actual_s,
                               double slo_s)
{
    double before = late->share;
    bool is_well = actual_s <= WELL_KEPT * slo_s;

    picker_lateness_learn(late, predicted_s, is_well ? fmin(actual_s, predicted_s) : actual_s, slo_s);
    if (is_well && late->share > 0 && late->share > before) {
        late->moved -= late->share - fmax(before, 0);
        late->share = fmax(before, 0);
    }
}

double picker_lateness_margin(const struct picker_lateness *late)
{
    return late->share;
}

void picker_lateness_approach(struct picker_lateness *late, double theirs)
{
    if (theirs >= late->least && theirs <= LATE_MAX)
        late->share += APPROACH_PART * (theirs - late->share);
}

double picker_lateness_take(struct picker_lateness *late)
{
    double moved = late->moved;

    late->moved = 0;
    return moved;
}

void picker_lateness_join(struct picker_lateness *late, double moved)
{
    if (fabs(moved) <= 1)
        late->share = fmax(fmin(late->share + moved, LATE_MAX), late->least);
}

double picker_begin_share(const struct picker_lateness *late)
{
    return BEGIN_SHARE * (1 - picker_lateness_margin(late));
}

/* ---- the fleet's outlook ---- */

static double outlook_prompt_rate(const struct picker_fleet *fleet, uint32_t group, enum picker_role role)
{
    double rate = 0;

    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        const struct pick_pool *pool = &fleet->pools[i];

        for (uint32_t at = 0; pool->group == group && pool->role == role && at < pool->n; at++)
            rate += pool->rows[at].decodes_only ? 0 : 1e9 / pool->rows[at].prefill_ns;
    }
    return rate;
}

/* The largest number of sequences that keeps the time between tokens within the objective. */
static double outlook_most(const struct picker_worker *worker, double slo_s)
{
    double alone_s = picker_itl_at_s(worker, 0);
    double growth_s = (picker_itl_s(worker) - alone_s) / worker->n_running;

    if (growth_s <= 0 || alone_s > slo_s) /* misses the objective even alone, so no end helps */
        return INFINITY;
    return floor((slo_s - alone_s) / growth_s);
}

/* Number of sequences that must end before the worker takes one more. */
static double outlook_ends(const struct picker_fleet *fleet, const struct pick_row *row,
                           const struct picker_outlook_opts *opts)
{
    double most, n = row->n_running, ends = 0;
    struct picker_worker worker;

    if (n == 0)
        return 0;
    picker_fleet_row(fleet, row->slot, &worker);
    most = outlook_most(&worker, opts->itl_slo_s);
    if (worker.max_seqs > 0 && worker.n_running >= worker.max_seqs)
        ends = n - worker.max_seqs + 1;
    if (n > most && n - most > ends)
        ends = n - most;
    if (row->free_tokens <= opts->context_tokens && row->total_tokens != UINT64_MAX) {
        double missing = (double)(opts->context_tokens - row->free_tokens) + 1;
        double used = (double)(row->total_tokens - row->free_tokens) / n;

        ends = used > 0 && missing / used > ends ? ceil(missing / used) : ends;
    }
    return ends < n ? ends : n;
}

/* Sequences that end per second. */
static double outlook_ends_per_s(const struct picker_fleet *fleet, const struct pick_row *row,
                                 uint32_t answer_tokens)
{
    const struct picker_ledger *ledger = &fleet->slots[row->slot].ledger;
    uint32_t max_seqs = fleet->slots[row->slot].reported.max_seqs;
    double itl_s = (double)row->itl_ns / 1e9, each_s = itl_s * answer_tokens, n = row->n_running, own,
           late_per_s;

    if (each_s <= 0)
        return 0;
    if (ledger->n_overdue == 0)
        return n / each_s;
    n = max_seqs > 0 && n > max_seqs ? max_seqs : n; /* the others have no seat yet */
    own = fmax(fmin(ledger->n_seqs, n), ledger->n_overdue);
    late_per_s = (double)ledger->overdue_pace / (double)PICKER_PACE / ledger->n_overdue / itl_s;
    return ((own - ledger->n_overdue) / each_s + late_per_s) * fmax(n / own, 1);
}

static void outlook_decode(const struct picker_fleet *fleet, const struct pick_pool *pool,
                           const struct picker_outlook_opts *opts, struct picker_outlook *out)
{
    for (uint32_t at = 0; at < pool->n; at++) {
        const struct pick_row *row = &pool->rows[at];
        double ends_per_s = outlook_ends_per_s(fleet, row, opts->answer_tokens);
        double ends = outlook_ends(fleet, row, opts);
        double seat_s = ends > 0 ? ends / ends_per_s : 0;

        out->seats_per_s += ends_per_s;
        if (seat_s < out->seat_s)
            out->seat_s = seat_s;
    }
}

void picker_local_prefill_learn(struct picker_local_prefill *of, uint32_t n_tokens, bool is_local)
{
    of->local_tokens += LOCAL_ALPHA * ((is_local ? n_tokens : 0) - of->local_tokens);
    of->all_tokens += LOCAL_ALPHA * (n_tokens - of->all_tokens);
}

/* While requests wait, prefill workers have prompts all the time, and decode workers compute a part beside them. */
static double outlook_speedup(const struct picker_local_prefill *of)
{
    double local = of != NULL && of->all_tokens > 0 ? of->local_tokens / of->all_tokens : 0;

    return 1 / (1 - fmin(local, LOCAL_MAX));
}

/* This router's part of the sequences at the workers.  A router that has few is expected to get its turn all the same. */
static double outlook_share(const struct picker_fleet *fleet, const struct picker_outlook_opts *opts)
{
    double own = 0, all = 0, least;

    if (opts->n_routers < 2)
        return 1;
    least = 1.0 / opts->n_routers;
    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        const struct pick_pool *pool = &fleet->pools[i];

        for (uint32_t at = 0; pool->group == opts->group && at < pool->n; at++) {
            own += fleet->slots[pool->rows[at].slot].ledger.n_seqs;
            all += pool->rows[at].n_running;
        }
    }
    return all > 0 && own > least * all ? own / all : least;
}

double picker_prompt_rate(const struct picker_fleet *fleet, uint32_t group,
                          const struct picker_local_prefill *local_prefill)
{
    double rate = outlook_prompt_rate(fleet, group, PICKER_PREFILL) * outlook_speedup(local_prefill);

    return rate > 0 ? rate : outlook_prompt_rate(fleet, group, PICKER_DECODE);
}

void picker_outlook(const struct picker_fleet *fleet, const struct picker_outlook_opts *opts,
                    struct picker_outlook *out)
{
    double share;

    *out = (struct picker_outlook){.seat_s = FOREVER_S};
    out->prompt_tokens_per_s = picker_prompt_rate(fleet, opts->group, opts->local_prefill);
    for (uint32_t i = 0; i < fleet->n_pools; i++)
        if (fleet->pools[i].group == opts->group && fleet->pools[i].role == PICKER_DECODE)
            outlook_decode(fleet, &fleet->pools[i], opts, out);
    if (out->seat_s >= FOREVER_S && out->seats_per_s <= 0)
        out->seat_s = 0; /* no decode worker: a prefill worker does both */
    share = outlook_share(fleet, opts);
    out->prompt_tokens_per_s *= share;
    out->seats_per_s *= share;
}

double picker_outlook_each_s(const struct picker_outlook *outlook, uint32_t prompt_tokens)
{
    double each_s = outlook->prompt_tokens_per_s > 0 ? prompt_tokens / outlook->prompt_tokens_per_s : 0;

    if (outlook->seat_s > 0 && outlook->seats_per_s > 0 && each_s < 1 / outlook->seats_per_s)
        each_s = 1 / outlook->seats_per_s;
    return each_s;
}

/* ---- one request ---- */

double picker_limit_s(double ttft_slo_s, double alone_s)
{
    return alone_s * UNLOADED_SLACK > ttft_slo_s ? alone_s * UNLOADED_SLACK : ttft_slo_s;
}

void picker_admit(const struct picker_wait *wait, const struct picker_outlook *outlook,
                  struct picker_verdict *out)
{
    double begin_s = wait->queue_s, seat_s = outlook->seat_s, bound_s;

    if (outlook->prompt_tokens_per_s > 0)
        begin_s += (double)wait->ahead_tokens / outlook->prompt_tokens_per_s;
    if (outlook->seats_per_s > 0 && seat_s > 0)
        seat_s += wait->n_ahead / outlook->seats_per_s;
    begin_s = seat_s > begin_s ? seat_s : begin_s;
    out->limit_s = picker_limit_s(wait->ttft_slo_s, wait->alone_s);
    out->ttft_s = wait->waited_s + begin_s + wait->alone_s;
    bound_s = out->limit_s * (1 - wait->margin);
    bound_s = bound_s > wait->alone_s ? bound_s : wait->alone_s;
    out->late_s = out->ttft_s > bound_s ? out->ttft_s - bound_s : 0;
    out->is_in_time = out->late_s <= 0;
}

/* ---- times to come back ---- */

uint32_t picker_returns_take(struct picker_returns *returns, double late_s, double each_s, uint64_t now_ns)
{
    double most_s = RETURN_MAX_S, wait_s;
    uint64_t at_ns = now_ns + (uint64_t)((late_s < most_s ? late_s : most_s) * 1e9);

    if (returns->next_ns < at_ns)
        returns->next_ns = at_ns;
    else if (returns->next_ns > now_ns + RETURN_MAX_S * NS_PER_S)
        returns->next_ns = now_ns + RETURN_MAX_S * NS_PER_S;
    wait_s = ceil((double)(returns->next_ns - now_ns) / 1e9);
    if (each_s > 0)
        returns->next_ns += (uint64_t)((each_s < most_s ? each_s : most_s) * 1e9);
    return wait_s < 1 ? 1 : wait_s < most_s ? (uint32_t)wait_s : (uint32_t)most_s;
}

uint64_t picker_turn_ahead(uint64_t own, uint64_t all, uint32_t n_tenants, uint64_t credit)
{
    uint64_t others = all > own ? all - own : 0, taken = own > credit ? own - credit : 0;
    uint64_t turns = n_tenants > 1 && taken <= UINT64_MAX / n_tenants ? taken * (n_tenants - 1) : 0;

    return own + (turns < others ? turns : others);
}
