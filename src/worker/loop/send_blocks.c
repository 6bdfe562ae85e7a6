/* SPDX-License-Identifier: Apache-2.0 */
/* Sends block events to every router, and to every peer that asked for them.  A report of the engine thread
 * becomes BLOCK_EVENTS frames for all readers.  A snapshot goes only to the reader that asked for it
 * (worker/runner/publish.c). */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "cache/prefix/block_events.h"
#include "worker/loop/worker_priv.h"

struct frame { /* arrays that a message points into */
    uint8_t hashes[BLOCK_PART_EVENTS * sizeof(struct block_hash)];
    uint8_t tiers[BLOCK_PART_EVENTS];
};

static int send_part(struct link *link, const struct report *report, uint32_t from, uint32_t n,
                     struct frame *frame)
{
    Baton__BlockEvents message = BATON__BLOCK_EVENTS__INIT;

    for (uint32_t i = 0; i < n; i++) {
        memcpy(frame->hashes + i * sizeof(struct block_hash), &report->events[from + i].hash,
               sizeof(struct block_hash));
        frame->tiers[i] = report->events[from + i].tier;
    }
    message.first_number = report->first_event + (report->is_snapshot ? 0 : from);
    message.hashes.data = frame->hashes;
    message.hashes.len = n * sizeof(struct block_hash);
    message.tiers.data = frame->tiers;
    message.tiers.len = n;
    message.is_snapshot = report->is_snapshot;
    message.part = report->is_snapshot ? from / BLOCK_PART_EVENTS : 0;
    message.is_last = report->is_snapshot && from + n == report->n_events;
    return link_send(link, FRAME_BLOCK_EVENTS, &message.base);
}

static void send_to(struct link *link, const struct report *report, struct frame *frame)
{
    uint32_t from = 0;

    do { /* an empty snapshot is sent as one part, too */
        uint32_t left = report->n_events - from, n = left < BLOCK_PART_EVENTS ? left : BLOCK_PART_EVENTS;

        if (send_part(link, report, from, n, frame) < 0)
            return; /* the reader will detect the gap */
        from += n;
    } while (from < report->n_events);
}

/* Returns a reader's link.  NULL: no such reader, it is down, or it reads too slowly. */
static struct link *link_of(const struct worker *worker, uint32_t reader)
{
    const struct worker_peer *peer;

    if (reader < worker->n_routers)
        return worker->routers[reader].epoch != 0 && link_is_up(worker->routers[reader].link)
                   ? worker->routers[reader].link
                   : NULL;
    if (reader < READER_PEER || reader >= READER_PEER + WORKER_MAX_PEERS)
        return NULL;
    peer = &worker->peers[reader - READER_PEER];
    return peer->wants_block_events && worker_follow_has_room(peer) ? peer->link : NULL;
}

/* Only a hint: a router that loses it knows of fewer blocks. */
static void send_store(struct link *link, const struct report *report, struct frame *frame)
{
    Baton__StoreBlocks message = BATON__STORE_BLOCKS__INIT;
    uint32_t n;

    message.store = report->load.store;
    for (uint32_t from = 0; from < report->n_events; from += n) {
        n = report->n_events - from < BLOCK_PART_EVENTS ? report->n_events - from : BLOCK_PART_EVENTS;
        for (uint32_t i = 0; i < n; i++) {
            memcpy(frame->hashes + i * sizeof(struct block_hash), &report->events[from + i].hash,
                   sizeof(struct block_hash));
            frame->tiers[i] = report->events[from + i].tier != BLOCK_GONE;
        }
        message.hashes.data = frame->hashes;
        message.hashes.len = n * sizeof(struct block_hash);
        message.there.data = frame->tiers;
        message.there.len = n;
        if (link_send(link, FRAME_STORE_BLOCKS, &message.base) < 0)
            return;
    }
}

/* Sends the report to all routers that want it, or to one. */
static void worker_send_store_blocks(const struct worker *worker, const struct report *report, struct frame *frame)
{
    for (uint32_t i = 0; i < worker->n_routers; i++) {
        struct link *link = !report->is_snapshot || report->number == i ? link_of(worker, i) : NULL;

        if (link != NULL && worker->routers[i].wants_store)
            send_store(link, report, frame);
    }
}

void worker_send_blocks(struct worker *worker, const struct report *report)
{
    struct frame *frame = malloc(sizeof(*frame));

    if (frame == NULL) {
        log_error("out_of_memory", LOG_STR("lost", "block events"));
        return;
    }
    if (report->kind == REPORT_STORE)
        worker_send_store_blocks(worker, report, frame);
    for (uint32_t reader = 0; report->kind == REPORT_BLOCKS && reader < READER_PEER + WORKER_MAX_PEERS;
         reader++) {
        struct link *link = !report->is_snapshot || report->number == reader ? link_of(worker, reader) : NULL;

        if (link != NULL)
            send_to(link, report, frame);
    }
    free(frame);
}
