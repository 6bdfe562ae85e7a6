/* SPDX-License-Identifier: Apache-2.0 */
/* Block events, from the pool and the disk tier to every router, and to every peer that asked.
 *
 *   engine thread:  on_block of either --> block_log --(each turn)--> report   BLOCKS_WANTED --> snapshot
 *   loop thread:    report --> BLOCK_EVENTS frames to all readers, or the snapshot to the one that asked
 *
 * An event says where a block is now, at best: what the pool has is in memory, saved or not; what it gives
 * away is on disk, if it was saved, or gone; what the disk drops counts only when the pool has it no more.
 *
 * A snapshot has the disk's blocks first, as many as the router wants of those used last, then the pool's,
 * which overrule them: looking up which of the former are among the latter would keep the engine for longer
 * than telling them twice.
 *
 * Anything may be lost on the way: the numbers show it, and the reader asks for a snapshot
 * (prefix/block_events.h).  For a peer that reads slowly it is lost here (follow.c). */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "worker/disk.h"
#include "worker/share_priv.h"
#include "worker/worker_priv.h"

#define FRAME_EVENTS 16384u
#define MAX_ON_DISK  65536u /* blocks in a snapshot, of 17 bytes: what a reader has to learn of one worker */
#define MAX_FOR_PEER (1u << 18) /* blocks in a peer's: its link carries hand-offs too */

/* ---- engine thread ---- */

void worker_publish_block(void *arg, const struct block_hash *hash, bool is_here)
{
    struct worker_engine *engine = arg;
    enum block_tier below = worker_disk_has(engine, hash) ? BLOCK_ON_DISK : BLOCK_GONE;

    block_log_add(&engine->block_log, hash, is_here ? BLOCK_IN_MEMORY : below);
}

void worker_publish_disk_block(void *arg, const struct block_hash *hash, bool is_here)
{
    struct worker_engine *engine = arg;

    if (kv_peek(engine->pool, hash, 1) == 0)
        block_log_add(&engine->block_log, hash, is_here ? BLOCK_ON_DISK : BLOCK_GONE);
}

static void send_report(struct worker_engine *engine, struct report *report)
{
    if (mailbox_send(engine->reports, report) < 0)
        report_free(report);
}

void worker_publish_flush(struct worker_engine *engine)
{
    uint32_t n;
    uint64_t first;
    struct block_event *events = block_log_take(&engine->block_log, &n, &first);
    struct report *report = events ? report_new(REPORT_BLOCKS, 0) : NULL;

    if (report == NULL) {
        free(events);
        return;
    }
    report->events = events;
    report->n_events = n;
    report->first_event = first;
    send_report(engine, report);
}

static void visit(void *arg, const struct block_hash *hash)
{
    struct report *report = arg;

    if (report->number >= READER_PEER && report->n_events >= MAX_FOR_PEER)
        return; /* who knows less is still right */
    report->events[report->n_events++] = (struct block_event){.hash = *hash, .tier = BLOCK_IN_MEMORY};
}

static void visit_disk(void *arg, const struct block_hash *hash)
{
    struct report *report = arg;

    report->events[report->n_events++] = (struct block_event){.hash = *hash, .tier = BLOCK_ON_DISK};
}

void worker_publish_all(struct worker_engine *engine, uint32_t reader, uint32_t max_on_disk)
{
    struct report *report = report_new(REPORT_BLOCKS, reader);
    uint32_t n_on_disk;

    if (report == NULL)
        return;
    worker_publish_flush(engine);
    report->is_snapshot = true;
    report->first_event = block_log_next(&engine->block_log);
    n_on_disk = worker_disk_count(engine);
    max_on_disk = max_on_disk < MAX_ON_DISK ? max_on_disk : MAX_ON_DISK;
    n_on_disk = n_on_disk < max_on_disk ? n_on_disk : max_on_disk;
    report->events = calloc((size_t)engine->opts.n_blocks + n_on_disk, sizeof(*report->events));
    if (report->events == NULL) {
        report_free(report);
        return; /* it asks again */
    }
    worker_disk_each(engine, n_on_disk, visit_disk, report);
    kv_each(engine->pool, visit, report);
    send_report(engine, report);
}

/* ---- loop thread ---- */

struct frame { /* what a message points into */
    uint8_t hashes[FRAME_EVENTS * sizeof(struct block_hash)];
    uint8_t tiers[FRAME_EVENTS];
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
    message.part = report->is_snapshot ? from / FRAME_EVENTS : 0;
    message.is_last = report->is_snapshot && from + n == report->n_events;
    return link_send(link, FRAME_BLOCK_EVENTS, &message.base);
}

static void send_to(struct link *link, const struct report *report, struct frame *frame)
{
    uint32_t from = 0;

    do { /* an empty snapshot is one part too */
        uint32_t left = report->n_events - from, n = left < FRAME_EVENTS ? left : FRAME_EVENTS;

        if (send_part(link, report, from, n, frame) < 0)
            return; /* the gap will be seen */
        from += n;
    } while (from < report->n_events);
}

/* NULL: no such reader, it is down, or it reads too slowly. */
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
    return peer->is_told && worker_follow_has_room(peer) ? peer->link : NULL;
}

void worker_tell_blocks(struct worker *worker, const struct report *report)
{
    struct frame *frame = malloc(sizeof(*frame));

    if (frame == NULL) {
        log_error("out_of_memory", LOG_STR("lost", "block events"));
        return;
    }
    for (uint32_t reader = 0; reader < READER_PEER + WORKER_MAX_PEERS; reader++) {
        struct link *link = !report->is_snapshot || report->number == reader ? link_of(worker, reader) : NULL;

        if (link != NULL)
            send_to(link, report, frame);
    }
    free(frame);
}
