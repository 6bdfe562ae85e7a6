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

struct pending_event {
    struct list node;
    uint32_t slot;
    size_t n, at; /* those before `at` are applied */
    struct block_hash *hashes;
    uint8_t *tiers;
    bool is_snapshot;
};

static void pending_drop(struct router *router, struct pending_event *event)
{
    router->n_pending -= event->n;
    list_remove(&event->node);
    free(event);
}

void router_pending_drop(struct router *router, uint32_t slot)
{
    list_for_each_safe (node, spare, &router->pending) {
        struct pending_event *event = container_of(node, struct pending_event, node);

        if (slot == PICKER_NONE || event->slot == slot)
            pending_drop(router, event);
    }
}

static void pending_apply_slice(struct router *router, struct pending_event *event)
{
    size_t left = event->n - event->at;
    struct block_slice slice = {.slot = event->slot,
                                .hashes = event->hashes + event->at,
                                .tiers = event->tiers + event->at,
                                .n = left < PICKER_SLICE ? left : PICKER_SLICE,
                                .is_snapshot = event->is_snapshot};

    event->at += slice.n;
    router_blocks_apply(router, &slice);
    if (event->at == event->n)
        pending_drop(router, event);
}

bool router_pending_work(struct router *router)
{
    if (!list_is_empty(&router->pending))
        pending_apply_slice(router, container_of(router->pending.next, struct pending_event, node));
    return !list_is_empty(&router->pending);
}

/* Appends a copy of the events to the queue; false: no room. */
static bool pending_keep(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    size_t n = events->tiers.len;
    struct pending_event *event;

    if (n > MAX_WAITING - router->n_pending)
        return false;
    event = malloc(sizeof(*event) + n * (sizeof(*event->hashes) + 1));
    if (event == NULL)
        return false;
    *event = (struct pending_event){.slot = slot, .n = n, .is_snapshot = events->is_snapshot};
    event->hashes = (struct block_hash *)(event + 1);
    event->tiers = (uint8_t *)(event->hashes + n);
    memcpy(event->hashes, events->hashes.data, n * sizeof(*event->hashes));
    memcpy(event->tiers, events->tiers.data, n);
    list_push_back(&router->pending, &event->node);
    router->n_pending += n;
    return true;
}

void router_pending_add(struct router *router, uint32_t slot, const Baton__BlockEvents *events)
{
    const struct block_hash *hashes = (const struct block_hash *)(const void *)events->hashes.data;
    size_t n = events->tiers.len;
    bool is_idle;

    if (n == 0)
        return;
    while (n > MAX_WAITING - router->n_pending && router_pending_work(router))
        ;
    is_idle = list_is_empty(&router->pending);
    if ((!is_idle || n > PICKER_SLICE) && pending_keep(router, slot, events)) {
        if (is_idle && router->turn != NULL)
            ev_timer_start(router->turn, 0);
        return;
    }
    while (router_pending_work(router)) /* no memory: apply the earlier events first */
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
