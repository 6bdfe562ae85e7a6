/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks from the pool to the remote tier: in runs, one value each (cache/remote/run.h), a few on each turn of the
 * engine thread.  The pool chooses them (cache/kv/save.c).  A worker that drains or ends saves all that it has. */
#include "worker/runner/remote_state_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_writeback.h"
#include "worker/runner/disk_priv.h"

#define PAUSE_LEAST_NS (100 * NS_PER_MS) /* after a failure; the pauses double until a write succeeds */
#define PAUSE_MOST_NS  (10 * NS_PER_S)

static void remote_pause_saves(struct worker_remote *remote)
{
    uint64_t now_ns = clock_now_ns();

    if (now_ns < remote->paused_until_ns)
        return; /* another block of the same failure */
    remote->pause_ns = remote->pause_ns < PAUSE_MOST_NS / 2 ? 2 * remote->pause_ns : PAUSE_MOST_NS;
    remote->pause_ns = remote->pause_ns > PAUSE_LEAST_NS ? remote->pause_ns : PAUSE_LEAST_NS;
    remote->paused_until_ns = now_ns + remote->pause_ns;
}

void worker_remote_on_saved(struct worker_engine *engine, const struct kv_remote_event *event)
{
    struct worker_remote *remote = engine->remote;
    bool has_failed = event->result < 0 && event->result != E_EXISTS;

    remote->n_saving--;
    if (has_failed) {
        remote_pause_saves(remote);
    } else {
        remote->pause_ns = 0;
        remote_seen_add(&remote->seen, &event->hash);
    }
    kv_save_end(engine->pool, KV_BELOW_REMOTE, event->id, has_failed);
}

/* Saves a run of at most n_most blocks. Returns their number; 0: there is none, or the tier takes none. */
static uint32_t remote_save_run(struct worker_engine *engine, uint32_t n_most)
{
    struct worker_remote *remote = engine->remote;
    struct kv_save saves[REMOTE_RUN_BLOCKS];
    struct block_hash hashes[REMOTE_RUN_BLOCKS];
    kv_block_id ids[REMOTE_RUN_BLOCKS];
    struct kv_remote_part part = {.ids = ids, .hashes = hashes};

    part.n = kv_save_run(engine->pool, n_most, saves);
    for (uint32_t i = 0; i < part.n; i++) {
        ids[i] = saves[i].id;
        hashes[i] = saves[i].hash;
    }
    if (part.n == 0)
        return 0;
    if (kv_remote_write(remote->remote, &part) == 0) {
        remote->n_saving += part.n;
        return part.n;
    }
    for (uint32_t i = part.n; i-- > 0;) /* children are older than their parents */
        kv_save_end(engine->pool, KV_BELOW_REMOTE, ids[i], true);
    remote_pause_saves(remote);
    return 0;
}

void worker_remote_save(struct worker_engine *engine)
{
    struct worker_remote *remote = engine->remote;
    uint32_t most = engine->opts.n_blocks / STORE_POOL_SHARE_SAVES,
             n_most = kv_remote_run_blocks(remote->remote), n = 1;

    most = most < 1 ? 1 : most < KV_REMOTE_WRITES ? most : KV_REMOTE_WRITES;
    if (!kv_remote_takes_writes(remote->remote) || clock_now_ns() < remote->paused_until_ns)
        return;
    n_most = n_most < most ? n_most : most;
    for (uint32_t n_saved = 0; n > 0 && n_saved < STORE_SAVES_PER_TURN && remote->n_saving + n_most <= most;
         n_saved += n)
        n = remote_save_run(engine, n_most);
}

void worker_remote_drain(struct worker_engine *engine, bool is_on)
{
    if (engine->remote != NULL)
        kv_save_all(engine->pool, is_on);
}

static bool remote_is_flushed(const struct worker_engine *engine)
{
    struct kv_pool_counts blocks;

    kv_pool_counts(engine->pool, &blocks);
    return blocks.n_writeback_remote == 0 && engine->remote->n_saving == 0;
}

void worker_remote_flush(struct worker_engine *engine)
{
    struct worker_remote *remote = engine->remote;
    uint64_t until_ns = clock_now_ns() + engine->opts.remote.flush_ns, n_before;
    struct kv_remote_counts counts;

    if (remote == NULL || engine->opts.remote.flush_ns == 0)
        return;
    kv_remote_counts(remote->remote, &counts);
    n_before = counts.n_written + counts.n_existed;
    kv_save_all(engine->pool, true);
    while (!remote_is_flushed(engine) && clock_now_ns() < until_ns &&
           kv_remote_takes_writes(remote->remote)) {
        worker_remote_turn(engine);
        clock_sleep_ns(NS_PER_MS);
    }
    kv_remote_counts(remote->remote, &counts);
    log_info("kv_remote_flushed", LOG_U64("blocks", counts.n_written + counts.n_existed - n_before),
             LOG_BOOL("all", remote_is_flushed(engine)));
}
