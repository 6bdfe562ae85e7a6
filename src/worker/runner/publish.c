/* SPDX-License-Identifier: Apache-2.0 */
/* Passes block events of the pool and the disk tier to the loop thread.
 *
 *    engine thread:  on_block of either --> block_log --(each turn)--> report   BLOCKS_WANTED --> snapshot
 *    loop thread:    report --> BLOCK_EVENTS frames (worker/loop/send_blocks.c)
 *
 * An event names the best tier that has the block now. A block in the pool is in memory, saved or not. A
 * block that leaves the pool is on disk if it was saved, otherwise gone. A block that leaves the disk counts
 * only if the pool does not have it.
 *
 * A snapshot lists the disk's blocks first, the most recently used, up to the reader's limit; then the pool's
 * blocks, which override them. Listing a block twice costs the engine less than finding duplicates.
 *
 * Any message may be lost on the way. The event numbers reveal the gap, and the reader asks for a snapshot
 * (cache/prefix/block_events.h). Events for a peer that reads slowly are dropped in follow.c. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_writeback.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/block_map_priv.h"

#define MAX_ON_DISK  65536u     /* limit of blocks on disk in a snapshot, 17 bytes each */
#define MAX_FOR_PEER (1u << 18) /* blocks in a peer's snapshot: its link also carries hand-offs */

void worker_publish_block(void *arg, const struct block_hash *hash, bool is_here)
{
    struct worker_engine *engine = arg;
    enum block_tier below = worker_disk_has(engine, hash) ? BLOCK_ON_DISK : BLOCK_GONE;

    block_log_add(&engine->block_log, hash, is_here ? BLOCK_IN_MEMORY : below);
}

void worker_publish_disk_block(void *arg, const struct block_hash *hash, bool is_here)
{
    struct worker_engine *engine = arg;

    if (!is_here)
        kv_clear_saved(engine->pool, KV_BELOW_DISK, hash);
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

static void worker_publish_visit(void *arg, const struct block_hash *hash)
{
    struct report *report = arg;

    if (report->number >= READER_PEER && report->n_events >= MAX_FOR_PEER)
        return; /* losing an event is safe: readers then know of fewer blocks */
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
        return; /* the reader asks again */
    }
    worker_disk_each(engine, n_on_disk, visit_disk, report);
    kv_each(engine->pool, worker_publish_visit, report);
    send_report(engine, report);
}
