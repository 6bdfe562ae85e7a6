/* SPDX-License-Identifier: Apache-2.0 */
/* Pending block events.
 *
 *   BLOCK_EVENTS --> few, and none pending --> applied at once
 *                --> many -----------------> [ event list | event list ] --a slice a turn--> applied
 *
 * After a gap in its events a worker sends all its blocks: ten thousand in one message, which would delay
 * a request by milliseconds. So long messages are queued and applied PICKER_SLICE blocks at a time, and
 * the loop serves its sockets in between. There is one queue, so each worker's events stay in order. When
 * a worker's link goes down, or its snapshot begins anew, its pending events are dropped.
 *
 * The number of pending blocks is bounded. When a worker sends more, the events at the front are applied
 * first, and its link waits. */
#include <stdlib.h>
#include <string.h>

#include "fleet/router/router_priv.h"

#define MAX_WAITING (1u << 20) /* blocks of 17 bytes */

struct told {
    struct list node;
    uint32_t slot;
    size_t n, at; /* those before `at` are applied */
    struct block_hash *hashes;
    uint8_t *tiers;
    bool is_snapshot;
};

static void drop(struct router *router, struct told *told)
{
    router->n_told -= told->n;
    list_remove(&told->node);
    free(told);
}

void router_told_drop(struct router *router, uint32_t slot)
{
    list_for_each_safe (node, spare, &router->told) {
        struct told *told = container_of(node, struct told, node);

        if (slot == PICKER_NONE || told->slot == slot)
            drop(router, told);
    }
}

static void apply_slice(struct router *router, struct told *told)
{
    struct block_slice slice = {.slot = told->slot,
                                .hashes = told->hashes + told->at,
                                .tiers = told->tiers + told->at,
                                .n = told->n - told->at < PICKER_SLICE ? told->n - told->at : PICKER_SLICE,
                                .is_snapshot = told->is_snapshot};

    told->at += slice.n;
    router_blocks_apply(router, &slice);
    if (told->at == told->n)
        drop(router, told);
}

bool router_told_work(struct router *router)
{
    if (!list_is_empty(&router->told))
        apply_slice(router, container_of(router->told.next, struct told, node));
    return !list_is_empty(&router->told);
}

/* Appends a copy of the events to the queue; false: no room. */
static bool keep(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    size_t n = events->tiers.len;
    struct told *told;

    if (n > MAX_WAITING - router->n_told)
        return false;
    told = malloc(sizeof(*told) + n * (sizeof(*told->hashes) + 1));
    if (told == NULL)
        return false;
    *told = (struct told){.slot = slot, .n = n, .is_snapshot = events->is_snapshot};
    told->hashes = (struct block_hash *)(told + 1);
    told->tiers = (uint8_t *)(told->hashes + n);
    memcpy(told->hashes, events->hashes.data, n * sizeof(*told->hashes));
    memcpy(told->tiers, events->tiers.data, n);
    list_push_back(&router->told, &told->node);
    router->n_told += n;
    return true;
}

void router_told_add(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    const struct block_hash *hashes = (const struct block_hash *)(const void *)events->hashes.data;
    size_t n = events->tiers.len;
    bool is_idle;

    if (n == 0)
        return;
    while (n > MAX_WAITING - router->n_told && router_told_work(router))
        ;
    is_idle = list_is_empty(&router->told);
    if ((!is_idle || n > PICKER_SLICE) && keep(router, slot, events)) {
        if (is_idle && router->turn != NULL)
            ev_timer_start(router->turn, 0);
        return;
    }
    while (router_told_work(router)) /* no memory: apply the earlier events first */
        ;
    for (size_t from = 0; from < n; from += PICKER_SLICE) {
        struct block_slice slice = {.slot = slot,
                                    .hashes = hashes + from,
                                    .tiers = events->tiers.data + from,
                                    .n = n - from < PICKER_SLICE ? n - from : PICKER_SLICE,
                                    .is_snapshot = events->is_snapshot};

        router_blocks_apply(router, &slice);
    }
}
