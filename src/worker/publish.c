/* SPDX-License-Identifier: Apache-2.0 */
/* Block events, from the pool to every router.
 *
 *   engine thread:  pool's on_block --> block_log --(each turn)--> report      BLOCKS_WANTED --> snapshot
 *   loop thread:    report --> BLOCK_EVENTS frames to all routers, or the snapshot to the one that asked
 *
 * Anything may be lost on the way: the numbers show it, and the router asks for a snapshot
 * (prefix/block_events.h). */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "worker/share_priv.h"
#include "worker/worker_priv.h"

#define FRAME_EVENTS 16384u

/* ---- engine thread ---- */

void worker_publish_block(void *arg, const struct block_hash *hash, bool is_here)
{
    struct worker_engine *engine = arg;

    block_log_add(&engine->block_log, hash, is_here ? BLOCK_IN_MEMORY : BLOCK_GONE);
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

    report->events[report->n_events++] = (struct block_event){.hash = *hash, .tier = BLOCK_IN_MEMORY};
}

void worker_publish_all(struct worker_engine *engine, uint32_t router)
{
    struct report *report = report_new(REPORT_BLOCKS, router);

    if (report == NULL)
        return;
    worker_publish_flush(engine);
    report->is_snapshot = true;
    report->first_event = block_log_next(&engine->block_log);
    report->events = calloc(engine->opts.n_blocks, sizeof(*report->events));
    if (report->events == NULL) {
        report_free(report);
        return; /* it asks again */
    }
    kv_each(engine->pool, visit, report);
    send_report(engine, report);
}

/* ---- loop thread ---- */

struct frame { /* what a message points into */
    uint8_t hashes[FRAME_EVENTS * sizeof(struct block_hash)];
    uint8_t tiers[FRAME_EVENTS];
};

static int send_part(struct worker_router *router, const struct report *report, uint32_t from, uint32_t n,
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
    return link_send(router->link, FRAME_BLOCK_EVENTS, &message.base);
}

static void send_to(struct worker_router *router, const struct report *report, struct frame *frame)
{
    uint32_t from = 0;

    if (router->epoch == 0 || !link_is_up(router->link))
        return;
    do { /* an empty snapshot is one part too */
        uint32_t left = report->n_events - from, n = left < FRAME_EVENTS ? left : FRAME_EVENTS;

        if (send_part(router, report, from, n, frame) < 0)
            return; /* the gap will be seen */
        from += n;
    } while (from < report->n_events);
}

void worker_routers_blocks(struct worker *worker, const struct report *report)
{
    struct frame *frame = malloc(sizeof(*frame));

    if (frame == NULL) {
        log_error("out_of_memory", LOG_STR("lost", "block events"));
        return;
    }
    if (!report->is_snapshot)
        for (uint32_t i = 0; i < worker->n_routers; i++)
            send_to(&worker->routers[i], report, frame);
    else if (report->number < worker->n_routers)
        send_to(&worker->routers[report->number], report, frame);
    free(frame);
}
