/* SPDX-License-Identifier: Apache-2.0 */
/* Sends block events to every router, and to every peer that asked for them.  A report of the engine thread
 * becomes BLOCK_EVENTS frames for all readers, or STORE_BLOCKS frames for the routers that asked for them.  A
 * snapshot goes only to the reader that asked for it (worker/runner/publish.c). */
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

/* Copies the hashes and tiers of events [from, from + n). */
static void frame_fill(struct frame *frame, const struct report *report, uint32_t from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        memcpy(frame->hashes + i * sizeof(struct block_hash), &report->events[from + i].hash,
               sizeof(struct block_hash));
        frame->tiers[i] = report->events[from + i].tier;
    }
}

static int send_block_part(struct link *link, const struct report *report, uint32_t from, uint32_t n,
                           struct frame *frame)
{
    Baton__BlockEvents message = BATON__BLOCK_EVENTS__INIT;

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

/* Only a hint: a router that loses it knows of fewer blocks. */
static int send_store_part(struct link *link, const struct report *report, uint32_t from, uint32_t n,
                           struct frame *frame)
{
    Baton__StoreBlocks message = BATON__STORE_BLOCKS__INIT;

    (void)from;
    for (uint32_t i = 0; i < n; i++)
        frame->tiers[i] = frame->tiers[i] != BLOCK_GONE;
    message.store = report->load.store;
    message.hashes.data = frame->hashes;
    message.hashes.len = n * sizeof(struct block_hash);
    message.there.data = frame->tiers;
    message.there.len = n;
    return link_send(link, FRAME_STORE_BLOCKS, &message.base);
}

/* Sends the report in messages of at most BLOCK_PART_EVENTS; an empty report of block events, too. */
static void send_parts(struct link *link, const struct report *report, struct frame *frame)
{
    bool is_store = report->kind == REPORT_STORE;
    uint32_t from = 0;

    if (is_store && report->n_events == 0)
        return;
    do {
        uint32_t left = report->n_events - from, n = left < BLOCK_PART_EVENTS ? left : BLOCK_PART_EVENTS;

        frame_fill(frame, report, from, n);
        if ((is_store ? send_store_part : send_block_part)(link, report, from, n, frame) < 0)
            return; /* a reader of block events will detect the gap */
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
    if (reader < READER_PEER || reader >= READER_PEER + worker->n_peers)
        return NULL;
    peer = &worker->peers[reader - READER_PEER];
    return peer->wants_block_events && worker_follow_has_room(peer) ? peer->link : NULL;
}

void worker_send_blocks(struct worker *worker, const struct report *report)
{
    bool is_store = report->kind == REPORT_STORE;
    uint32_t n_readers = is_store ? worker->n_routers : READER_PEER + worker->n_peers;
    struct frame *frame = malloc(sizeof(*frame));

    if (frame == NULL) {
        log_error("out_of_memory", LOG_STR("lost", "block events"));
        return;
    }
    for (uint32_t reader = 0; reader < n_readers; reader++) {
        struct link *link = !report->is_snapshot || report->number == reader ? link_of(worker, reader) : NULL;

        if (link != NULL && (!is_store || worker->routers[reader].wants_store))
            send_parts(link, report, frame);
    }
    free(frame);
}
