/* SPDX-License-Identifier: Apache-2.0 */
/* See read_hold_priv.h. */
#include "worker/runner/read_hold_priv.h"

#include <stdlib.h>

#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "worker/runner/disk_priv.h"

bool read_hold_add(struct read_hold *hold, struct kv_pool *pool, const struct block_hash *hash)
{
    kv_block_id *ids = realloc(hold->ids, (hold->n + 1) * sizeof(*ids)), id;

    if (ids == NULL)
        return false;
    hold->ids = ids;
    id = kv_hold(pool, hash);
    if (id == KV_BLOCK_NONE)
        return false;
    hold->ids[hold->n++] = id;
    return true;
}

void read_hold_release(struct read_hold *hold, struct kv_pool *pool)
{
    while (hold->n > 0)
        kv_unref(pool, hold->ids[--hold->n]);
}

void read_hold_free(struct read_hold *hold)
{
    free(hold->ids);
    *hold = (struct read_hold){0};
}

bool read_hold_has_room(const struct worker_engine *engine, uint32_t n)
{
    struct sched_load load;

    sched_load(engine->sched, &load);
    return kv_available(engine->pool) >= load.n_running + n;
}

/* Leaves some free, because each running sequence will soon need another one, and held blocks cannot be evicted. */
uint32_t read_room(const struct worker_engine *engine, kv_tenant tenant, uint32_t n_reading)
{
    uint32_t most = engine->opts.n_blocks / STORE_POOL_SHARE_READS,
             room = kv_available_to(engine->pool, tenant);
    struct sched_load load;

    sched_load(engine->sched, &load);
    room = room > load.n_running ? room - load.n_running : 0;
    most = most > n_reading ? most - n_reading : 0;
    return most < room ? most : room;
}
