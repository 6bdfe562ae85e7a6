/* SPDX-License-Identifier: Apache-2.0 */
/* Slots, and pools made of them.
 *
 *   slots   [ reported, ledger, pool & at | ... ]                  by slot: the state of each worker
 *   pools   prefill, layout 7   [ row | row | row ]                by kind: the rows that the choice reads
 *           decode,  layout 7   [ row | row ]        <- partners
 *           decode,  layout 9   [ row ]
 *
 * A row is recomputed whenever its slot changes: at a report, a dispatch, a first token, an end. The rows of a
 * pool are in the order of their ranks, so that the choice meets the preferred one of equal workers first. An
 * empty pool stays for the next worker of its kind; when no pool is left, it becomes another kind's. Each non-empty
 * pool has a worker, so an empty one always exists. */
#include "fleet/picker/fleet.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "fleet/picker/fleet_priv.h"
#include "fleet/picker/owner.h"

#define SAME_FIGURES_NS UINT64_C(50000000) /* half of the time between two figures of an engine */
#define RACE_NS         UINT64_C(5000000)  /* a dispatch and a report may cross on their way */

int picker_fleet_new(uint32_t order, struct picker_fleet **out)
{
    struct picker_fleet *fleet = calloc(1, sizeof(*fleet));

    if (fleet == NULL)
        return E_NOMEM;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        fleet->slots[slot].pool = PICKER_NONE;
    fleet->order = order;
    *out = fleet;
    return 0;
}

void picker_fleet_free(struct picker_fleet *fleet)
{
    if (fleet == NULL)
        return;
    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        free(fleet->pools[i].rows);
        free(fleet->pools[i].briefs);
        free(fleet->pools[i].groups);
    }
    free(fleet);
}

/* ---- one worker's figures ---- */

/* The free blocks that no sequence of the ledger will take. */
static uint32_t slot_blocks_free(const struct fleet_slot *it)
{
    uint64_t taken = it->ledger.context_tokens + it->ledger.growth_tokens + it->begun_tokens;
    uint64_t free = it->reported.blocks_free + it->freed_tokens / it->reported.block_tokens;
    uint64_t reserved = taken / it->reported.block_tokens;

    if (it->freed_tokens > 0 && it->reported.blocks_total > 0 && free > it->reported.blocks_total)
        free = it->reported.blocks_total;
    return free > reserved ? (uint32_t)(free - reserved) : 0;
}

void picker_fleet_row(const struct picker_fleet *fleet, uint32_t slot, struct picker_worker *out)
{
    const struct picker_ledger *ledger = &fleet->slots[slot].ledger;

    *out = fleet->slots[slot].reported;
    out->is_usable = fleet->slots[slot].pool != PICKER_NONE;
    out->cached_tokens = out->stored_tokens = out->in_store_tokens = 0;
    out->queued_read_tokens = ledger->read_tokens;
    out->queued_store_tokens = ledger->store_tokens;
    if (out->block_tokens > 0)
        out->blocks_free = slot_blocks_free(&fleet->slots[slot]);
    if (out->queued_prefill_tokens < ledger->prefill_tokens) {
        if (out->queued_prefill_s > 0 && !fleet->is_timed)
            out->queued_prefill_s +=
                picker_prefill_s(out, (uint32_t)(ledger->prefill_tokens - out->queued_prefill_tokens));
        out->queued_prefill_tokens = ledger->prefill_tokens;
    }
    if (out->n_running < ledger->n_seqs)
        out->n_running = ledger->n_seqs;
}

static void picker_fleet_unbound(struct pick_pool *pool)
{
    pool->has_both = false;
    pool->least_total = UINT64_MAX;
    pool->least_itl_ns = PICK_MAX_NS;
    pool->least_prefill_ns = (double)PICK_MAX_NS;
}

static void picker_fleet_bound(struct pick_pool *pool, const struct pick_row *row)
{
    pool->has_both |= row->is_both;
    if (row->total_tokens < pool->least_total)
        pool->least_total = row->total_tokens;
    if (pool->role == PICKER_DECODE && row->itl_ns < pool->least_itl_ns)
        pool->least_itl_ns = row->itl_ns;
    if (row->prefill_ns < pool->least_prefill_ns)
        pool->least_prefill_ns = row->prefill_ns;
}

/* Computes the row of a slot that is in a pool, and its brief. */
static void slot_fill(struct picker_fleet *fleet, uint32_t slot)
{
    const struct fleet_slot *it = &fleet->slots[slot];
    struct pick_pool *pool = &fleet->pools[it->pool];
    struct pick_brief *brief = &pool->briefs[it->at];
    struct pick_row *row = &pool->rows[it->at];
    struct picker_worker worker;

    picker_fleet_row(fleet, slot, &worker);
    *row = (struct pick_row){
        .prefill_ns = picker_prefill_s(&worker, 1) * 1e9,
        .transfer_ns = picker_transfer_s(&worker, 1) * 1e9,
        .queue_ns = fleet->is_timed ? (int64_t)it->free_ns : pick_ns(picker_queue_s(&worker) * 1e9),
        .itl_ns = pick_ns(picker_itl_s(&worker) * 1e9),
        .free_tokens = (uint64_t)worker.blocks_free * worker.block_tokens,
        .total_tokens =
            worker.blocks_total > 0 ? (uint64_t)worker.blocks_total * worker.block_tokens : UINT64_MAX,
        .pair_ns = (float)(worker.prefill_pair_s * 1e9),
        .n_running = worker.n_running,
        .block_tokens = worker.block_tokens,
        .slot = (uint16_t)slot,
        .decodes_only = worker.decodes_only,
        .is_both = worker.role == PICKER_BOTH,
        .has_seat = worker.max_seqs == 0 || worker.n_running < worker.max_seqs,
        .has_many = worker.role == PICKER_BOTH || worker.max_seqs == 0 ||
                    worker.n_running <= (uint64_t)worker.max_seqs * 3 / 4,
    };
    *brief = (struct pick_brief){.rate_ns = row->transfer_ns,
                                 .fixed_ns = row->itl_ns,
                                 .queue_ns = row->queue_ns,
                                 .prefill_ns = row->prefill_ns,
                                 .pair_ns = row->pair_ns,
                                 .push_ns = (float)(picker_push_token_s(&worker) * 1e9),
                                 .slot = slot,
                                 .block_tokens = row->block_tokens,
                                 .n_running = row->n_running};
    if (pool->role == PICKER_PREFILL) {
        brief->rate_ns = row->prefill_ns;
        brief->fixed_ns = row->queue_ns;
    }
    picker_fleet_bound(pool, row);
}

void picker_fleet_refresh(struct picker_fleet *fleet, uint32_t slot)
{
    const struct fleet_slot *it = &fleet->slots[slot];
    struct pick_brief old;
    struct pick_pool *pool;

    if (it->pool == PICKER_NONE)
        return;
    pool = &fleet->pools[it->pool];
    old = pool->briefs[it->at];
    slot_fill(fleet, slot);
    pick_group_update(pool, it->at, &old);
}

/* ---- time when a worker's prompts are done, in a timed fleet ---- */

/* Forgets the prompts that a report of that time counts, and returns the time of the others. */
static uint64_t recent_left_ns(struct fleet_slot *it, uint64_t reported_ns)
{
    uint64_t left_ns = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < it->n_recent; i++) {
        if (it->recent[i].at_ns + RACE_NS <= reported_ns)
            continue;
        left_ns += it->recent[i].prefill_ns;
        it->recent[n++] = it->recent[i];
    }
    it->n_recent = n;
    return left_ns;
}

static void recent_add(struct fleet_slot *it, uint64_t prefill_ns, uint64_t now_ns)
{
    if (it->n_recent == FLEET_RECENT) { /* the two oldest count as one, dispatched with the later */
        it->recent[1].prefill_ns += it->recent[0].prefill_ns;
        it->n_recent--;
        for (uint32_t i = 0; i < it->n_recent; i++)
            it->recent[i] = it->recent[i + 1];
    }
    it->recent[it->n_recent++] = (struct fleet_recent){now_ns, prefill_ns};
}

/* The ledger's last prompt is done.  If the report counts no other, the worker is free now, even if the report expected
 * that for later. */
static void queue_end(struct fleet_slot *it)
{
    if (!it->is_queue_own || it->ledger.prefill_tokens > 0)
        return;
    it->free_ns = 0;
    it->n_recent = 0;
}

static void queue_report(struct picker_fleet *fleet, struct fleet_slot *it,
                         const struct picker_worker *reported)
{
    uint64_t queued_ns;

    if (reported->reported_ns == 0 || reported->reported_ns == it->reported.reported_ns)
        return;
    fleet->is_timed = true;
    queued_ns = (uint64_t)pick_ns(picker_queue_s(reported) * 1e9) + recent_left_ns(it, reported->reported_ns);
    it->free_ns = queued_ns > 0 ? reported->reported_ns + queued_ns : 0;
    it->is_queue_own = it->n_recent == 0 && reported->queued_prefill_tokens <= it->ledger.prefill_tokens;
    queue_end(it);
}

/* A worker may be slower than it reports.  The ledger's prompts are not done, so all but the one under way are still to
 * be computed.  That one is taken to be the longest. */
static void queue_keep(struct fleet_slot *it, uint64_t now_ns)
{
    uint64_t left_ns = it->ledger.busy_ns > it->longest_ns ? it->ledger.busy_ns - it->longest_ns : 0;

    if (left_ns > 0 && it->free_ns < now_ns + left_ns)
        it->free_ns = now_ns + left_ns;
}

static void queue_add(struct fleet_slot *it, uint64_t busy_ns, uint64_t now_ns)
{
    if (busy_ns == 0)
        return;
    it->ledger.busy_ns += busy_ns;
    it->n_prompts++;
    it->longest_ns = it->longest_ns > busy_ns ? it->longest_ns : busy_ns;
    recent_add(it, busy_ns, now_ns);
    it->free_ns = (it->free_ns > now_ns ? it->free_ns : now_ns) + busy_ns;
    queue_keep(it, now_ns);
}

static void queue_remove(struct fleet_slot *it, uint64_t busy_ns, uint64_t now_ns)
{
    if (busy_ns == 0)
        return;
    it->ledger.busy_ns -= busy_ns;
    it->n_prompts--;
    if (busy_ns >= it->longest_ns) /* of the others only the mean is known */
        it->longest_ns = it->n_prompts > 0 ? it->ledger.busy_ns / it->n_prompts : 0;
    queue_keep(it, now_ns);
}

void picker_fleet_forget_queues(struct picker_fleet *fleet, uint32_t group)
{
    for (uint32_t i = 0; i < fleet->n_pools && fleet->is_timed; i++) {
        const struct pick_pool *pool = &fleet->pools[i];

        for (uint32_t at = 0; pool->group == group && at < pool->n; at++) {
            struct fleet_slot *it = &fleet->slots[pool->rows[at].slot];

            if (pool->rows[at].n_running > 0 || it->free_ns == 0)
                continue;
            it->free_ns = 0;
            it->n_recent = 0;
            picker_fleet_refresh(fleet, pool->rows[at].slot);
        }
    }
}

/* ---- pools ---- */

/* The role of the pool that holds such workers. */
static enum picker_role pool_role(const struct picker_worker *worker)
{
    return worker->role == PICKER_PREFILL ? PICKER_PREFILL : PICKER_DECODE;
}

static bool is_kind(const struct pick_pool *pool, const struct picker_worker *worker, enum picker_role role)
{
    return pool->group == worker->group && pool->layout == worker->layout && pool->role == role;
}

static uint32_t find_pool(const struct picker_fleet *fleet, const struct picker_worker *worker,
                          enum picker_role role)
{
    for (uint32_t i = 0; i < fleet->n_pools; i++)
        if (is_kind(&fleet->pools[i], worker, role))
            return i;
    return PICKER_NONE;
}

static uint32_t empty_pool(struct picker_fleet *fleet)
{
    uint32_t i = 0;

    if (fleet->n_pools < PICKER_MAX_WORKERS)
        return fleet->n_pools++;
    while (fleet->pools[i].n > 0) /* the slot that needs one is in none */
        i++;
    if (fleet->pools[i].partner != PICKER_NONE)
        fleet->pools[fleet->pools[i].partner].partner = PICKER_NONE;
    return i;
}

static uint32_t pool_for(struct picker_fleet *fleet, const struct picker_worker *worker)
{
    uint32_t at = find_pool(fleet, worker, pool_role(worker)), partner;
    struct pick_pool *pool;

    if (at != PICKER_NONE)
        return at;
    at = empty_pool(fleet);
    pool = &fleet->pools[at];
    pool->group = worker->group;
    pool->layout = worker->layout;
    pool->role = pool_role(worker);
    partner = find_pool(fleet, worker, pool->role == PICKER_PREFILL ? PICKER_DECODE : PICKER_PREFILL);
    pool->partner = partner;
    if (partner != PICKER_NONE)
        fleet->pools[partner].partner = at;
    return at;
}

/* Moves the rows from `from` on by one place, to `to`, which is before or behind. */
static void shift_rows(struct picker_fleet *fleet, struct pick_pool *pool, uint32_t from, uint32_t to)
{
    uint32_t n = pool->n - (from > to ? from : to);

    memmove(&pool->rows[to], &pool->rows[from], n * sizeof(pool->rows[0]));
    memmove(&pool->briefs[to], &pool->briefs[from], n * sizeof(pool->briefs[0]));
    for (uint32_t at = to; at < to + n; at++)
        fleet->slots[pool->rows[at].slot].at = at;
}

static void leave_pool(struct picker_fleet *fleet, uint32_t slot)
{
    struct fleet_slot *it = &fleet->slots[slot];
    struct pick_pool *pool;

    if (it->pool == PICKER_NONE)
        return;
    pool = &fleet->pools[it->pool];
    shift_rows(fleet, pool, it->at + 1, it->at);
    pool->n--;
    pick_groups_compute(pool, it->at);
    it->pool = PICKER_NONE;
}

static int pool_add_rows(struct pick_pool *pool)
{
    uint32_t cap = pool->cap + PICK_GROUP;
    struct pick_row *rows = mem_aligned(MEM_CACHE_LINE, cap * sizeof(*rows));
    struct pick_brief *briefs = mem_aligned(MEM_CACHE_LINE, cap * sizeof(*briefs));
    struct pick_group *groups = mem_aligned(MEM_CACHE_LINE, cap / PICK_GROUP * sizeof(*groups));

    if (rows == NULL || briefs == NULL || groups == NULL) {
        free(rows);
        free(briefs);
        free(groups);
        return E_NOMEM;
    }
    for (uint32_t i = 0; i < pool->n; i++) {
        rows[i] = pool->rows[i];
        briefs[i] = pool->briefs[i];
        groups[i / PICK_GROUP] = pool->groups[i / PICK_GROUP];
    }
    free(pool->rows);
    free(pool->briefs);
    free(pool->groups);
    pool->rows = rows;
    pool->briefs = briefs;
    pool->groups = groups;
    pool->cap = cap;
    return 0;
}

/* The place that the slot's rank has among the rows. */
static uint32_t place_of(const struct picker_fleet *fleet, const struct pick_pool *pool, uint32_t slot)
{
    uint32_t rank = pick_rank(fleet, slot), at = 0;

    while (at < pool->n && pick_rank(fleet, pool->rows[at].slot) < rank)
        at++;
    return at;
}

static int enter_pool(struct picker_fleet *fleet, uint32_t slot)
{
    uint32_t at = pool_for(fleet, &fleet->slots[slot].reported);
    struct pick_pool *pool = &fleet->pools[at];

    if (pool->n == pool->cap && pool_add_rows(pool) < 0)
        return E_NOMEM;
    if (pool->n == 0)
        picker_fleet_unbound(pool);
    fleet->slots[slot].pool = at;
    at = place_of(fleet, pool, slot);
    pool->n++;
    shift_rows(fleet, pool, at, at + 1);
    fleet->slots[slot].at = at;
    slot_fill(fleet, slot);
    pick_groups_compute(pool, at);
    return 0;
}

static void slot_reported(struct fleet_slot *it)
{
    it->begun_tokens = it->freed_tokens = 0;
    it->n_reports++;
}

/* True if the engine has taken new figures since the previous report. It takes them every 100 ms; closer times mean
 * that the report repeats the same figures. */
static bool slot_figures_are_new(const struct fleet_slot *slot, const struct picker_worker *reported)
{
    if (reported->figures_ns != 0 && slot->reported.figures_ns != 0)
        return reported->figures_ns > slot->reported.figures_ns + SAME_FIGURES_NS;
    return reported->reported_ns == 0 || reported->reported_ns != slot->reported.reported_ns;
}

int picker_fleet_set(struct picker_fleet *fleet, uint32_t slot, const struct picker_worker *reported)
{
    struct fleet_slot *it = &fleet->slots[slot];
    uint64_t figures_ns;
    uint32_t n_running;
    bool is_new;
    int rc = 0;

    if (it->pool != PICKER_NONE &&
        (!reported->is_usable || !is_kind(&fleet->pools[it->pool], reported, pool_role(reported))))
        leave_pool(fleet, slot);
    n_running = reported->n_running;
    if (reported->reported_ns != 0 && reported->reported_ns == it->reported.reported_ns)
        n_running = it->reported.n_running; /* the same report: some of its sequences may have ended since */
    else
        it->n_since = 0;
    is_new = slot_figures_are_new(it, reported);
    figures_ns = is_new ? reported->figures_ns : it->reported.figures_ns;
    if (is_new)
        slot_reported(it);
    queue_report(fleet, it, reported);
    it->reported = *reported;
    it->reported.figures_ns = figures_ns;
    it->reported.n_running = n_running;
    if (reported->is_usable) {
        ASSERT(reported->block_tokens > 0);
        if (it->pool == PICKER_NONE)
            rc = enter_pool(fleet, slot);
        else
            picker_fleet_refresh(fleet, slot);
    }
    return rc;
}

uint32_t picker_fleet_n_usable(const struct picker_fleet *fleet, uint32_t group)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < fleet->n_pools; i++)
        n += fleet->pools[i].group == group ? fleet->pools[i].n : 0;
    return n;
}

bool picker_fleet_holds(const struct picker_fleet *fleet, uint32_t group, uint32_t n_tokens)
{
    bool has_any = false;

    for (uint32_t i = 0; i < fleet->n_pools; i++) {
        const struct pick_pool *pool = &fleet->pools[i];

        if (pool->group != group || pool->n == 0)
            continue;
        if (pool->least_total > n_tokens) /* most prompts fit all workers */
            return true;
        for (uint32_t at = 0; at < pool->n; at++)
            if (pool->rows[at].total_tokens > n_tokens)
                return true;
        has_any = true;
    }
    return !has_any;
}

/* ---- the ledger ---- */

void picker_fleet_charge(struct picker_fleet *fleet, uint32_t slot, const struct picker_charge *charge,
                         uint64_t now_ns)
{
    struct fleet_slot *it = &fleet->slots[slot];
    struct picker_ledger *ledger = &it->ledger;

    ledger->prefill_tokens += charge->prefill_tokens;
    ledger->read_tokens += charge->read_tokens;
    ledger->store_tokens += charge->store_tokens;
    ledger->context_tokens += charge->context_tokens + charge->answer_tokens;
    ledger->n_seqs++;
    it->n_since++;
    queue_add(it, charge->busy_ns, now_ns);
    picker_fleet_refresh(fleet, slot);
}

void picker_fleet_discharge(struct picker_fleet *fleet, uint32_t slot, const struct picker_charge *charge,
                            bool has_begun, uint64_t now_ns)
{
    struct fleet_slot *it = &fleet->slots[slot];
    struct picker_ledger *ledger = &it->ledger;

    ledger->prefill_tokens -= charge->prefill_tokens;
    ledger->read_tokens -= charge->read_tokens;
    ledger->store_tokens -= charge->store_tokens;
    ledger->context_tokens -= charge->context_tokens + charge->answer_tokens;
    it->begun_tokens += has_begun ? charge->context_tokens : 0;
    queue_end(it);
    queue_remove(it, charge->busy_ns, now_ns);
    picker_fleet_refresh(fleet, slot);
}

uint32_t picker_fleet_report(const struct picker_fleet *fleet, uint32_t slot)
{
    return fleet->slots[slot].n_reports;
}

void picker_fleet_ended(struct picker_fleet *fleet, uint32_t slot, uint32_t report, uint64_t context_tokens)
{
    if (fleet->slots[slot].n_reports != report)
        return;
    fleet->slots[slot].begun_tokens -= context_tokens;
    picker_fleet_refresh(fleet, slot);
}

void picker_fleet_leave(struct picker_fleet *fleet, uint32_t slot)
{
    struct fleet_slot *it = &fleet->slots[slot];

    it->ledger.n_seqs--;
    if (it->n_since > 0)
        it->n_since--;
    else if (fleet->is_timed && it->reported.n_running > 0)
        it->reported.n_running--;
    picker_fleet_refresh(fleet, slot);
}

void picker_fleet_grow(struct picker_fleet *fleet, uint32_t slot, uint64_t from_tokens, uint64_t to_tokens)
{
    fleet->slots[slot].ledger.growth_tokens += to_tokens - from_tokens;
    picker_fleet_refresh(fleet, slot);
}

void picker_fleet_pace(struct picker_fleet *fleet, uint32_t slot, uint64_t from_pace, uint64_t to_pace)
{
    struct picker_ledger *ledger = &fleet->slots[slot].ledger;

    ledger->n_overdue += to_pace > 0;
    ledger->n_overdue -= from_pace > 0;
    ledger->overdue_pace += to_pace - from_pace;
}

void picker_fleet_freed(struct picker_fleet *fleet, uint32_t slot, uint64_t n_tokens)
{
    fleet->slots[slot].freed_tokens += n_tokens;
    picker_fleet_refresh(fleet, slot);
}

uint32_t picker_fleet_n_running(const struct picker_fleet *fleet, uint32_t slot)
{
    const struct fleet_slot *it = &fleet->slots[slot];

    return it->reported.n_running < it->ledger.n_seqs ? it->ledger.n_seqs : it->reported.n_running;
}

const struct picker_ledger *picker_fleet_ledger(const struct picker_fleet *fleet, uint32_t slot)
{
    return &fleet->slots[slot].ledger;
}
