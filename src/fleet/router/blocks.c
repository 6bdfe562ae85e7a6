/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that workers report as cached, in memory or on disk, and the owner that a prefix fetch asks.
 *
 *    BLOCK_EVENTS --follower--> pending (cache/prefix/block_queue.h) --> fleet/picker/index
 *                           +-> a gap: ask for all
 *    placement ---------------> fleet/picker/owner: the owner that the computing worker fetches from
 *
 * The number of pending blocks is bounded.  When a worker sends more, its link waits until the oldest are applied.
 * A starting router asks 32 workers at a time, and none while a quarter of a million blocks wait.  If a thousand
 * workers sent all of their blocks at once, each turn of the loop would read from a thousand links.
 *
 *    wanting --fewer than MAX_SNAPSHOTS are asked, few blocks pending--> asked --last part--> known
 *       ^-----------------------two seconds without it--------------------'
 *
 * The index also has blocks that the router learns from its own dispatches.  So requests with the same prefix
 * go to the worker that is computing it, before the worker reports its blocks.  The router asks for a
 * snapshot after a gap, and at half of the index's lifetime.  A snapshot removes learned blocks that were
 * never stored, and keeps stored blocks from expiring.
 *
 * When a block leaves one worker's memory and exactly one other worker has it in memory, the router informs
 * that worker that it has the last replica.  Copies on disk do not count. */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "fleet/router/router_priv.h"

#define MAX_PENDING   (1u << 20) /* blocks of 17 bytes */
#define MAX_SNAPSHOTS 32         /* snapshots that are asked for and incomplete */
#define CALM_PENDING  (1u << 18) /* no snapshot is asked for while this many blocks wait */
#define MAX_ASKED     64 /* rows: the worker that would fetch, and the workers that have most of the prompt */

/* Returns how many blocks on disk a snapshot may list.  All workers' disks together may fill the cold half of
 * the index.  More would only evict other workers' blocks, at each snapshot. */
static uint32_t max_on_disk(const struct router *router)
{
    uint32_t n_workers = 0, most = (uint32_t)(router->conf->index_entries / 2);

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        n_workers += router->workers[slot].follower.state != FOLLOWER_IDLE;
    return n_workers > 1 ? most / n_workers : most;
}

static void blocks_ask(struct router *router, uint32_t slot)
{
    Baton__BlocksWanted wanted = BATON__BLOCKS_WANTED__INIT;

    picker_slots_remove(&router->snapshots.wanting, slot);
    router->snapshots.n_wanting--;
    picker_slots_add(&router->snapshots.asked, slot);
    router->snapshots.n_asked++;
    wanted.max_on_disk = max_on_disk(router);
    wanted.max_in_store = router_stores_most(router);
    (void)router_send(router, slot, FRAME_BLOCKS_WANTED, &wanted.base);
}

/* Asks the next workers in turn, as far as the bounds allow. */
static void blocks_ask_next(struct router *router)
{
    struct router_snapshots *snapshots = &router->snapshots;

    while (snapshots->n_wanting > 0 && snapshots->n_asked < MAX_SNAPSHOTS &&
           router->pending.n_blocks < CALM_PENDING) {
        do
            snapshots->turn = (snapshots->turn + 1) % PICKER_MAX_WORKERS;
        while (!picker_slots_has(&snapshots->wanting, snapshots->turn));
        blocks_ask(router, snapshots->turn);
    }
}

/* Ends the wait for the worker's snapshot. */
static void blocks_unask(struct router *router, uint32_t slot)
{
    if (!picker_slots_has(&router->snapshots.asked, slot))
        return;
    picker_slots_remove(&router->snapshots.asked, slot);
    router->snapshots.n_asked--;
}

static void blocks_want(struct router *router, uint32_t slot)
{
    blocks_unask(router, slot);
    if (picker_slots_has(&router->snapshots.wanting, slot))
        return;
    picker_slots_add(&router->snapshots.wanting, slot);
    router->snapshots.n_wanting++;
}

void router_blocks_up(struct router *router, uint32_t slot)
{
    block_follower_begin(&router->workers[slot].follower, clock_now_ns());
    blocks_want(router, slot);
    blocks_ask_next(router);
}

void router_blocks_down(struct router *router, uint32_t slot)
{
    block_follower_end(&router->workers[slot].follower);
    block_queue_forget(&router->pending, slot);
    blocks_unask(router, slot);
    if (picker_slots_has(&router->snapshots.wanting, slot)) {
        picker_slots_remove(&router->snapshots.wanting, slot);
        router->snapshots.n_wanting--;
    }
    blocks_ask_next(router);
}

void router_blocks_tick(struct router *router)
{
    uint64_t now_ns = clock_now_ns();

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (block_follower_is_due(&router->workers[slot].follower, router->conf->index_lifetime_ns / 2,
                                  now_ns))
            blocks_want(router, slot);
    blocks_ask_next(router);
}

/* ---- events ---- */

struct last_copy { /* one block, by its position `at`, and the slot of its last worker */
    uint32_t slot, at;
};

static int by_slot(const void *a, const void *b)
{
    const struct last_copy *x = a, *y = b;

    return x->slot != y->slot ? (x->slot > y->slot) - (x->slot < y->slot) : (x->at > y->at) - (x->at < y->at);
}

/* Sends each worker the blocks of which it now has the last replica,
 * after another worker's memory lost them. */
static void blocks_send_last_replica(struct router *router, const struct block_slice *slice)
{
    struct last_copy copies[BLOCK_SLICE];
    struct block_hash list[BLOCK_SLICE];
    uint64_t now_ns = clock_now_ns();
    size_t n_copies = 0, to;

    for (size_t i = 0; i < slice->n; i++) {
        uint32_t slot = slice->tiers[i] != BLOCK_IN_MEMORY
                            ? picker_index_last_replica(router->index, &slice->hashes[i], now_ns)
                            : PICKER_NONE;

        if (slot != PICKER_NONE)
            copies[n_copies++] = (struct last_copy){slot, (uint32_t)i};
    }
    qsort(copies, n_copies, sizeof(*copies), by_slot);
    for (size_t from = 0; from < n_copies; from = to) {
        Baton__BlocksLast last = BATON__BLOCKS_LAST__INIT;

        for (to = from; to < n_copies && copies[to].slot == copies[from].slot; to++)
            list[to - from] = slice->hashes[copies[to].at];
        last.hashes.data = list[0].bytes;
        last.hashes.len = (to - from) * sizeof(list[0]);
        /* Only a hint, so a failure does not matter. */
        (void)router_send(router, copies[from].slot, FRAME_BLOCKS_LAST, &last.base);
    }
}

static void blocks_apply(void *arg, const struct block_slice *slice)
{
    struct router *router = arg;
    bool has_gone;

    ASSERT(slice->n <= BLOCK_SLICE);
    has_gone = picker_index_apply(router->index, slice, clock_now_ns());
    if (has_gone && !slice->is_snapshot)
        blocks_send_last_replica(router, slice);
}

static void blocks_forget(void *arg, uint32_t slot)
{
    struct router *router = arg;

    picker_index_forget(router->index, slot);
}

void router_blocks_init(struct router *router)
{
    block_queue_init(&router->pending, &(struct block_queue_calls){blocks_apply, blocks_forget, router});
}

bool router_blocks_work(struct router *router)
{
    bool has_more = block_queue_work(&router->pending, 1);

    blocks_ask_next(router);
    return has_more;
}

static void blocks_apply_now(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    struct block_slice slice = {.source = slot, .is_snapshot = events->is_snapshot};
    size_t n = events->tiers.len;

    while (router_blocks_work(router)) /* applies the earlier events first */
        ;
    for (size_t from = 0; from < n; from += slice.n) {
        slice.hashes = (const struct block_hash *)(const void *)events->hashes.data + from;
        slice.tiers = events->tiers.data + from;
        slice.n = n - from < BLOCK_SLICE ? n - from : BLOCK_SLICE;
        blocks_apply(router, &slice);
    }
}

/* Appends a copy of the events to the queue; false: no room. */
static bool blocks_queue(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    size_t n = events->tiers.len;
    struct block_list *list = NULL;

    if (n <= MAX_PENDING - router->pending.n_blocks)
        list = block_list_new(slot, events->hashes.data, events->tiers.data, (uint32_t)n);
    if (list == NULL)
        return false;
    list->is_snapshot = events->is_snapshot;
    block_queue_add(&router->pending, list);
    return true;
}

/* Applies few events at once if none is pending.  Others wait for their turn. */
static void blocks_receive(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    size_t n = events->tiers.len;
    bool is_idle;

    while (n > MAX_PENDING - router->pending.n_blocks && router_blocks_work(router))
        ;
    is_idle = router->pending.n_lists == 0;
    if ((is_idle && n <= BLOCK_SLICE) || !blocks_queue(router, slot, events))
        blocks_apply_now(router, slot, events);
    else if (is_idle)
        router_turn_soon(router);
}

void router_blocks_events(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    struct router_worker *worker = &router->workers[slot];
    struct block_part part = {.first_number = events->first_number,
                              .n_events = (uint32_t)events->tiers.len,
                              .is_snapshot = events->is_snapshot,
                              .is_last = events->is_last,
                              .part = events->part};
    uint64_t now_ns = clock_now_ns();

    switch (block_follower_feed(&worker->follower, &part, now_ns)) {
    case FOLLOW_DROP:
        return;
    case FOLLOW_ASK:
        log_info("block_events_missed", LOG_STR("node", worker->node));
        metric_add(router->m_resyncs, 1);
        blocks_want(router, slot);
        blocks_ask_next(router);
        return;
    case FOLLOW_REPLACE:
        block_queue_forget(&router->pending, slot);
        break;
    case FOLLOW_APPLY:
        break;
    }
    blocks_receive(router, slot, events);
    if (!part.is_snapshot || !part.is_last)
        return;
    blocks_unask(router, slot);
    blocks_ask_next(router);
}

/* ---- placement ---- */

/* Sets how much of the prompt the worker has in memory, and how much it can read, from its disk or the shared store. */
static void put_stored(const struct picker_place *place, uint32_t slot, struct picker_worker *row)
{
    row->cached_tokens = row->stored_tokens = place->found.in_memory[slot] * row->block_tokens;
    for (uint32_t i = 0; i < place->found.n_runs; i++) {
        const struct picker_run *run = &place->found.runs[i];

        if (run->slot != slot)
            continue;
        if (run->is_in_store)
            row->in_store_tokens = run->n_blocks * row->block_tokens;
        else
            row->stored_tokens = run->n_blocks * row->block_tokens;
    }
}

/* Gathers rows: first the worker that would fetch, then the workers with most of the prompt in memory.  slots
 * receives their slots. */
static uint32_t blocks_gather(const struct job *job, const struct picker_place *place, uint32_t asker,
                              struct picker_worker rows[MAX_ASKED], uint32_t slots[MAX_ASKED])
{
    const struct router *router = job->router;
    uint32_t most = 0, n = 0;
    struct picker_worker row;

    if (!router_worker_row(router, asker, &rows[0]) || !rows[0].can_push)
        return 0; /* a worker that cannot push cannot fetch either */
    put_stored(place, asker, &rows[0]);
    slots[n++] = asker;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        uint32_t blocks = place->found.in_memory[slot];

        if (slot == asker || blocks == 0 || blocks < most || router->workers[slot].model != job->model ||
            router->workers[slot].layout != router->workers[asker].layout ||
            !router_worker_row(router, slot, &row))
            continue;
        if (blocks > most)
            n = 1;
        most = blocks;
        if (n == MAX_ASKED)
            continue;
        row.cached_tokens = blocks * row.block_tokens;
        slots[n] = slot;
        rows[n++] = row;
    }
    return n;
}

/* The owner supplies `held` tokens of the prompt.
 * Subtracts the tokens that are now neither computed nor read. */
static void take_off(struct picker_choice *choice, uint32_t n_tokens, uint32_t held)
{
    uint32_t stored = n_tokens - choice->uncached_tokens;

    if (choice->read_tokens > 0 && stored > held) { /* blocks after those are still read from disk */
        choice->read_tokens = choice->read_tokens < stored - held ? choice->read_tokens : stored - held;
        return;
    }
    choice->read_tokens = 0;
    if (choice->uncached_tokens > n_tokens - held)
        choice->uncached_tokens = n_tokens - held;
}

void router_blocks_choose(struct job *job, struct picker_place *place)
{
    enum picker_fetch prefix_fetch = (enum picker_fetch)job->router->conf->prefix_fetch;
    struct picker_choice *choice = &place->choice;
    uint32_t asker = choice->prefill != PICKER_NONE ? choice->prefill : choice->decode;
    struct picker_worker rows[MAX_ASKED];
    uint32_t slots[MAX_ASKED];
    struct picker_world world = {rows, 0};

    job->owner.slot = PICKER_NONE;
    if (prefix_fetch != PICKER_FETCH_OFF && job->score_next == 0)
        world.n = blocks_gather(job, place, asker, rows, slots);
    if (world.n < 2)
        return;
    job->owner = picker_find_owner(&world, &place->request, 0, prefix_fetch);
    if (job->owner.slot == PICKER_NONE)
        return;
    job->owner.slot = slots[job->owner.slot];
    job->ask_limit_ms = (uint32_t)(1e3 * picker_ask_limit_s(&job->owner, prefix_fetch));
    take_off(choice, place->request.n_tokens, job->owner.tokens);
    metric_add(job->router->m_asks, 1);
}
