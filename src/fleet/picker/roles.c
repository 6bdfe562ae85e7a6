/* SPDX-License-Identifier: Apache-2.0 */
/* One decision:
 *
 *    arrivals, ends --> demand --> load --+
 *                                         +--> rooms of p and d workers --> flip, or a reason for none
 *    reports --> step times, seats -------+
 *
 * Four rules give hysteresis.  No role changes while both rooms are comfortable.  A move must raise the lesser room
 * by GAIN, so the move back is never due at once.  The move must stay due for SETTLE_NS. A pool changes one role
 * per period.  Workers report the age of their role, so routers without contact to each other share one period.
 *
 * Rooms know neither the network nor the order of requests.  So each change is a trial (roles_trial.c): if more requests are
 * refused or late after it, under the same load, it is taken back, and not tried again for a while.
 *
 * This router sees other routers' requests only in the workers' reports.  It scales the load by the ratio of
 * reported sequences to its own dispatched ones. */
#include "fleet/picker/roles.h"

#include "fleet/picker/fleet_priv.h"
#include "fleet/picker/roles_priv.h"

#define COMFORT        1.25 /* room that is enough */
#define GAIN           1.08
#define SETTLE_NS      PICKER_DEMAND_WIDTH /* and no more than a twelfth of the period, a bucket's width too */
#define TURNS          12
#define FADE           0.99 /* of step samples, each decision */
#define PRIOR_SPAN     1.0  /* sequences squared: so much variance counts as none */
#define MOST_SHARE     64.0 /* bound of all load, relative to this router's */
#define LEAST_SHARE    1.1  /* a smaller ratio may come from delayed reports */
#define MOST_SEATS     100000
#define SEATED_PROMPTS 1.0 /* a pair's decode seat is taken while its prompt waits and is computed */
#define KV_SHARE       0.9
#define LEAST_LEFT     0.5                  /* of a step, for prompts that overflow */
#define REPORTED_NS    UINT64_C(2000000000) /* workers report this router's own change so much later, at most */

struct pool_state { /* of one decision */
    uint64_t layout;
    uint32_t n[2];     /* prefill; decode, both included */
    uint32_t least[2]; /* the worker of each role with least to do, or PICKER_NONE */
    uint64_t least_work[2];
    double token_s[2], pair_s[2]; /* sums over workers with rates, by role */
    uint32_t n_rated[2];
    struct picker_worker decode; /* any decode worker */
    double kv_tokens;            /* of the smallest decode worker */
    double step_s, seats, n_seqs;
};

const char *picker_roles_text(enum picker_roles_reason reason)
{
    static const char *const texts[] = {
#define X(name, text) [PICKER_ROLES_##name] = (text),
        PICKER_ROLES_REASONS(X)
#undef X
    };

    return texts[reason];
}

void picker_roles_changed(struct picker_roles *roles, uint64_t at_ns)
{
    if (at_ns <= roles->changed_ns)
        return;
    if (at_ns > roles->changed_ns + REPORTED_NS)
        roles->trial.began_ns = 0; /* another change: what follows does not judge this router's */
    roles->changed_ns = at_ns;
}

static uint64_t roles_steady_ns(const struct picker_roles_opts *opts)
{
    uint64_t turn_ns = opts->period_ns / TURNS;

    return turn_ns > 0 && turn_ns < SETTLE_NS ? turn_ns : SETTLE_NS;
}

/* ---- the pool ---- */

static bool pool_layout(const struct picker_fleet *fleet, uint32_t group, uint64_t *out)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        const struct pick_pool *pool = &fleet->pools[i];
        uint32_t n = pool->n + (pool->partner != PICKER_NONE ? fleet->pools[pool->partner].n : 0);

        if (pool->group != group || n < most || (n == most && pool->layout >= *out && most > 0))
            continue;
        most = n;
        *out = pool->layout;
    }
    return most > 0;
}

static void pool_offer(struct pool_state *pool, unsigned side, const struct picker_worker *row, uint32_t slot)
{
    uint64_t work = side == 0 ? row->queued_prefill_tokens : row->n_running;

    if (row->keeps_role || row->role == PICKER_BOTH)
        return;
    if (pool->least[side] != PICKER_NONE && work >= pool->least_work[side])
        return;
    pool->least[side] = slot;
    pool->least_work[side] = work;
}

static void roles_sample(struct picker_roles *roles, const struct picker_worker *row)
{
    double n = row->n_running, step_s = row->decode_step_s;

    if (step_s <= 0)
        return;
    roles->weight += 1;
    roles->seqs += n;
    roles->steps_s += step_s;
    roles->squares += n * n;
    roles->products += n * step_s;
}

static void pool_add(struct picker_roles *roles, const struct picker_fleet *fleet, uint32_t slot,
                     struct pool_state *pool)
{
    struct picker_worker row;
    unsigned side;

    picker_fleet_row(fleet, slot, &row);
    side = row.role == PICKER_PREFILL ? 0 : 1;
    pool->n[side]++;
    pool_offer(pool, side, &row, slot);
    roles->seen_seqs += fleet->slots[slot].reported.n_running;
    roles->own_seqs += fleet->slots[slot].ledger.n_seqs;
    if (row.prefill_tokens_per_s > 0) {
        pool->token_s[side] += 1 / row.prefill_tokens_per_s;
        pool->pair_s[side] += row.prefill_pair_s;
        pool->n_rated[side]++;
    }
    if (side == 0)
        return;
    roles_sample(roles, &row);
    if (row.blocks_total > 0 &&
        (pool->kv_tokens <= 0 || (double)row.blocks_total * row.block_tokens < pool->kv_tokens))
        pool->kv_tokens = (double)row.blocks_total * row.block_tokens;
    pool->decode = row;
}

static void pool_read(struct picker_roles *roles, const struct picker_fleet *fleet, uint32_t group,
                      struct pool_state *pool)
{
    *pool = (struct pool_state){.least = {PICKER_NONE, PICKER_NONE}};
    roles->weight *= FADE;
    roles->seqs *= FADE;
    roles->steps_s *= FADE;
    roles->squares *= FADE;
    roles->products *= FADE;
    roles->seen_seqs *= FADE;
    roles->own_seqs *= FADE;
    if (!pool_layout(fleet, group, &pool->layout))
        return;
    for (uint32_t i = 0; i < fleet->n_pools; i++)
        for (uint32_t at = 0; fleet->pools[i].group == group && at < fleet->pools[i].n; at++)
            if (fleet->pools[i].layout == pool->layout)
                pool_add(roles, fleet, fleet->pools[i].rows[at].slot, pool);
}

/* ---- decode steps ---- */

/* A line through the samples of step times by sequences. */
static double step_at(const struct picker_roles *roles, double n_seqs)
{
    double mean_n = roles->seqs / roles->weight, mean_s = roles->steps_s / roles->weight;
    double variance = roles->squares / roles->weight - mean_n * mean_n;
    double slope = (roles->products / roles->weight - mean_n * mean_s) / (variance + PRIOR_SPAN);
    double step_s = mean_s + (slope > 0 ? slope : 0) * (n_seqs - mean_n);

    return step_s > mean_s / 8 ? step_s : mean_s / 8;
}

/* The sequences that a worker runs at once within the objective, by the estimate of the picker. */
static double pool_seats(const struct picker_roles *roles, const struct pool_state *pool, double itl_slo_s,
                         const struct picker_load *load)
{
    struct picker_worker row = pool->decode;
    uint32_t least = 1, most = row.max_seqs > 0 ? row.max_seqs : MOST_SEATS;

    if (pool->kv_tokens > 0 && load->context_tokens > 0 &&
        KV_SHARE * pool->kv_tokens < most * load->context_tokens)
        most = (uint32_t)(KV_SHARE * pool->kv_tokens / load->context_tokens);
    while (least < most) {
        uint32_t middle = least + (most - least + 1) / 2;

        row.n_running = row.step_seqs = middle - 1; /* a further one joins them */
        row.decode_step_s = step_at(roles, middle);
        if (picker_itl_s(&row) <= itl_slo_s)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* ---- the decision ---- */

static double roles_share(const struct picker_roles *roles)
{
    double share = roles->own_seqs > 0 ? roles->seen_seqs / roles->own_seqs : 1;

    return share < LEAST_SHARE ? 1 : share < MOST_SHARE ? share : MOST_SHARE;
}

static double decode_room(const struct pool_state *pool, const struct picker_load *load, uint32_t n)
{
    return picker_decode_room(pool->n_seqs, load->short_share, pool->seats, n);
}

static uint32_t not_less(uint32_t n, uint32_t least)
{
    return n > least ? n : least;
}

/* The prompts that n decode workers compute beside their sequences when prefill workers are backed up, in workers.  The
 * picker lets prompts overflow only to workers that leave half of each step. */
static double plan_overflow(const struct picker_roles *roles, const struct picker_roles_opts *opts,
                            const struct pool_state *pool, uint32_t n)
{
    double left = opts->itl_slo_s > 0 ? 1 - step_at(roles, pool->n_seqs / n) / opts->itl_slo_s : 0;

    return pool->decode.decodes_only || left < LEAST_LEFT ? 0 : n * LEAST_LEFT;
}

static void plan_wanted(const struct picker_roles *roles, const struct picker_roles_opts *opts,
                        const struct pool_state *pool, struct picker_roles_plan *plan)
{
    uint32_t least = opts->least > 0 ? opts->least : 1;
    const struct picker_load *load = &plan->load;
    double overflow;

    plan->wanted_decode = not_less(picker_decode_wanted(pool->n_seqs, load->short_share, pool->seats), least);
    overflow = plan_overflow(roles, opts, pool, plan->wanted_decode);
    plan->wanted_prefill = not_less(picker_prefill_wanted(load, opts->ttft_slo_s, overflow), least);
}

static double roles_lesser(double a, double b)
{
    return a < b ? a : b;
}

/* The lesser room after one worker takes the other role; 0: no worker may. */
static double room_after(const struct picker_roles_opts *opts, const struct pool_state *pool,
                         const struct picker_roles_plan *plan, enum picker_role to)
{
    unsigned from = to == PICKER_PREFILL ? 1 : 0;
    uint32_t n_prefill = to == PICKER_PREFILL ? pool->n[0] + 1 : pool->n[0] - 1;

    if (pool->n[from] <= opts->least || pool->least[from] == PICKER_NONE)
        return 0;
    return roles_lesser(picker_prefill_room(&plan->load, opts->ttft_slo_s, n_prefill),
                        decode_room(pool, &plan->load, pool->n[0] + pool->n[1] - n_prefill));
}

/* Both rooms suffice, and yet requests miss their objectives, so something limits a role that the rooms do not know.  True
 * if a worker may take the other role, with rooms that still suffice. */
static bool plan_tries(const struct picker_roles *roles, const struct picker_roles_opts *opts,
                       const struct pool_state *pool, uint64_t now_ns, struct picker_roles_plan *plan)
{
    static const enum picker_role sides[] = {PICKER_DECODE, PICKER_PREFILL};
    double best = 0;

    plan->reason = PICKER_ROLES_TRIED;
    for (unsigned i = 0; i < 2; i++) {
        struct picker_roles_plan other = *plan;
        double after = room_after(opts, pool, plan, sides[i]);

        other.to = sides[i];
        if (after < 1 || after <= best || roles_trial_is_barred(roles, &other, now_ns))
            continue;
        best = after;
        plan->to = sides[i];
        plan->reason = PICKER_ROLES_MISSED;
    }
    return best > 0;
}

/* Sets the reason, and the role that a worker would change to. */
static bool plan_is_better(const struct picker_roles *roles, const struct picker_roles_opts *opts,
                           const struct pool_state *pool, uint64_t now_ns, struct picker_roles_plan *plan)
{
    double now = roles_lesser(plan->prefill_room, plan->decode_room), after;

    plan->to = plan->prefill_room < plan->decode_room ? PICKER_PREFILL : PICKER_DECODE;
    plan->reason = PICKER_ROLES_ROOM;
    if (now >= 1 && roles_trial_is_missing(roles))
        return plan_tries(roles, opts, pool, now_ns, plan);
    if (now >= COMFORT)
        return false;
    after = room_after(opts, pool, plan, plan->to);
    plan->reason = after <= 0                   ? PICKER_ROLES_MINIMUM
                   : after < GAIN * now         ? PICKER_ROLES_BALANCED
                   : plan->to == PICKER_PREFILL ? PICKER_ROLES_PREFILL
                                                : PICKER_ROLES_DECODE;
    if (after <= 0 || after < GAIN * now)
        return false;
    if (!roles_trial_is_barred(roles, plan, now_ns))
        return true;
    plan->reason = PICKER_ROLES_TRIED;
    return false;
}

/* True if a role has fewer workers than the minimum and the other role has enough. */
static bool plan_restores(const struct picker_roles_opts *opts, const struct pool_state *pool,
                          struct picker_roles_plan *plan)
{
    for (unsigned side = 0; side < 2; side++) {
        if (pool->n[side] >= opts->least || pool->n[1 - side] <= opts->least ||
            pool->least[1 - side] == PICKER_NONE)
            continue;
        plan->to = side == 0 ? PICKER_PREFILL : PICKER_DECODE;
        plan->reason = PICKER_ROLES_RESTORED;
        return true;
    }
    return false;
}

/* True if the latest change made things worse and a worker may take its old role again. */
static bool plan_takes_back(const struct picker_roles *roles, const struct picker_roles_opts *opts,
                            const struct pool_state *pool, uint64_t now_ns, struct picker_roles_plan *plan)
{
    unsigned side = roles->trial.to == PICKER_PREFILL ? 0 : 1;

    if (!roles_trial_failed(roles, &plan->load, now_ns, opts->period_ns) || pool->n[side] <= opts->least ||
        pool->least[side] == PICKER_NONE)
        return false;
    plan->to = side == 0 ? PICKER_DECODE : PICKER_PREFILL;
    plan->reason = PICKER_ROLES_WORSE;
    return true;
}

/* The load and both rooms.  False: too little is known. */
static bool plan_measure(struct picker_roles *roles, const struct picker_roles_opts *opts,
                         struct pool_state *pool, uint64_t now_ns, struct picker_roles_plan *plan)
{
    struct picker_load *load = &plan->load;
    double share = roles_share(roles);
    unsigned side = pool->n_rated[0] > 0 ? 0 : 1; /* prefill workers measure the cost of prompts best */

    roles->demand.short_tokens = opts->short_tokens;
    picker_demand_set_width(&roles->demand, roles_steady_ns(opts));
    if (pool->n_rated[side] > 0) {
        roles->demand.token_s = pool->token_s[side] / pool->n_rated[side];
        roles->demand.pair_s = pool->pair_s[side] / pool->n_rated[side];
        roles->demand.step_s = roles->weight > 0 ? step_at(roles, 0) : 0;
    }
    if (!picker_demand_read(&roles->demand, now_ns, load) || pool->n_rated[side] == 0 || pool->n[1] == 0 ||
        roles->weight <= 0)
        return false;
    load->rate_per_s *= share;
    load->all_per_s *= share;
    load->short_share *= share;
    pool->seats = pool_seats(roles, pool, opts->itl_slo_s, load);
    pool->step_s = step_at(roles, pool->seats);
    pool->n_seqs = load->all_per_s * load->answer_tokens * pool->step_s +
                   load->rate_per_s * SEATED_PROMPTS * load->prompt_s;
    plan->prefill_room = picker_prefill_room(load, opts->ttft_slo_s, pool->n[0]);
    plan->decode_room = decode_room(pool, load, pool->n[1]);
    plan_wanted(roles, opts, pool, plan);
    roles_trial_watch(roles, load, now_ns);
    return true;
}

/* Delays a flip until it has been due for long enough and the last flip is long enough ago. */
static bool roles_may(struct picker_roles *roles, const struct picker_roles_opts *opts, uint64_t now_ns,
                      struct picker_roles_plan *plan)
{
    if (roles->better_ns == 0 || roles->better_to != plan->to) {
        roles->better_ns = now_ns > 0 ? now_ns : 1;
        roles->better_to = plan->to;
    }
    if (roles->changed_ns != 0 && now_ns < roles->changed_ns + opts->period_ns) {
        plan->reason = PICKER_ROLES_RECENT;
        return false;
    }
    if (now_ns < roles->better_ns + roles_steady_ns(opts)) {
        plan->reason = PICKER_ROLES_SETTLING;
        return false;
    }
    return true;
}

void picker_roles_decide(struct picker_roles *roles, const struct picker_roles_opts *opts,
                         const struct picker_fleet *fleet, uint64_t now_ns, struct picker_roles_plan *out)
{
    struct pool_state pool;
    enum picker_roles_reason why;
    bool is_known, is_due;

    *out = (struct picker_roles_plan){.flip = PICKER_NONE, .reason = PICKER_ROLES_COLD};
    pool_read(roles, fleet, opts->group, &pool);
    out->n_prefill = pool.n[0];
    out->n_decode = pool.n[1];
    is_known = plan_measure(roles, opts, &pool, now_ns, out);
    is_due =
        plan_restores(opts, &pool, out) || (is_known && (plan_takes_back(roles, opts, &pool, now_ns, out) ||
                                                         plan_is_better(roles, opts, &pool, now_ns, out)));
    why = out->reason;
    if (!is_due)
        roles->better_ns = 0;
    if (!is_due || opts->only_shows || !roles_may(roles, opts, now_ns, out))
        return;
    out->flip = pool.least[out->to == PICKER_PREFILL ? 1 : 0];
    roles->changed_ns = now_ns > 0 ? now_ns : 1;
    roles->better_ns = 0;
    roles_trial_next(roles, out, why, opts->period_ns);
}
