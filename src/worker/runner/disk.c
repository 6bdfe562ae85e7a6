/* SPDX-License-Identifier: Apache-2.0 */
/* Moves blocks between the pool and the disk tier.
 *
 *      cached, not saved yet --> saved                        a few on each turn of the thread
 *
 *      SUBMIT --> how much of its prefix is in the pool, and how much more is on disk?
 *                    nothing, or computing is quicker --> scheduler
 *                    else blocks are taken and leased, reads go out, the task waits
 *                         every block read is sealed under its hash
 *                         all read, or too late --> scheduler, which finds them in the pool
 *
 * A waiting task is not in the scheduler, so steps go on without it. It waits at most about as long as
 * computing the blocks would take.  Blocks that arrive later are cached nevertheless. Tasks with the same
 * prefix wait for the same reads. Reads fill at most a quarter of the pool.  Meanwhile they hold the prompt's blocks
 * that are in the pool (read_hold_priv.h), while the running sequences have room.
 *
 * A read begins only if it is expected to be faster than computing.  The estimate compares the readers'
 * recent rate with the scheduler's prefill rate.  Tasks whose KV comes from a peer do not read, because the
 * peer sends their missing blocks.
 *
 * Blocks on disk that a peer fetches are read in the same way, then served from the pool (prefix_serve.c).
 * Here the fetching worker's estimate decides. */
#include "worker/runner/state_list_priv.h"
#include "worker/runner/disk_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_writeback.h"
#include "cache/kv/tier.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/disk_metrics_priv.h"
#include "worker/runner/read_hold_priv.h"
#include "worker/runner/transfers_priv.h"

#define SAVE_PAUSE_NS  (100 * NS_PER_MS) /* pause after a write that could not begin */
#define WAIT_LEAST_NS  (100 * NS_PER_MS)
#define WAIT_MOST_NS   (5 * NS_PER_S)
#define LOOKS_PER_TASK 2 /* the second for blocks that other tasks' reads did not cover */

struct disk_block {
    struct disk_read *read;
    kv_block_id id;
    struct block_hash hash;
    bool is_sealed; /* and holds a reference */
};

struct disk_read { /* blocks of one prompt */
    struct list all;
    uint64_t number;
    uint64_t began_ns, until_ns;
    uint32_t n, n_done;
    bool is_let_go;        /* no task waits for it */
    struct read_hold hold; /* the blocks of its prompt that are in the pool; none after it is let go */
    struct disk_block blocks[];
};

struct worker_disk {
    struct kv_tier *tier;
    struct list reads;
    uint64_t next_number;
    uint32_t n_reading, n_saving, n_waiting; /* blocks, blocks, tasks */
    uint64_t paused_until_ns, expired_ns;
    uint64_t n_passed_over; /* reads that would not have paid */
    struct disk_metrics metrics;
};

/* ---- open and close ---- */

static void on_wake(void *arg)
{
    struct worker_engine *engine = arg;

    mailbox_wake(engine->commands);
}

void worker_disk_generation(const struct worker_engine *engine, char out[256])
{
    const struct engine_info *info = &engine->opts.engine.info;

    snprintf(out, 256, "%s %016llx %s", engine->opts.model_fingerprint,
             (unsigned long long)kv_layout_fingerprint(&info->layout, info->numerics_id), PACKAGE_VERSION);
}

void worker_disk_open(struct worker_engine *engine)
{
    const struct worker_disk_opts *opts = &engine->opts.disk;
    const struct kv_layout *layout = &engine->opts.engine.info.layout;
    struct worker_disk *disk;
    struct fault fault = {0};
    char generation[256];
    struct kv_tier_opts tier = {.path = opts->path,
                                .size_bytes = opts->size_bytes,
                                .lifetime_ns = opts->lifetime_ns,
                                .n_readers = opts->n_threads,
                                .arena = engine->opts.arena.base,
                                .n_blocks = engine->opts.n_blocks,
                                .n_layers = layout->n_layers,
                                .piece_bytes = kv_layout_layer_block_bytes(layout),
                                .generation = generation,
                                .on_block = worker_publish_disk_block,
                                .on_block_arg = engine,
                                .wake = on_wake,
                                .wake_arg = engine};
    struct kv_tier_counts counts;

    if (opts->path == NULL || opts->path[0] == '\0')
        return;
    disk = calloc(1, sizeof(*disk));
    worker_disk_generation(engine, generation);
    memcpy(tier.key, opts->key, sizeof(tier.key));
    if (disk == NULL || kv_tier_open(&tier, &fault, &disk->tier) < 0) {
        log_error("kv_disk_off", LOG_STR("reason", disk ? fault.text : "out of memory"),
                  LOG_STR("effect", "the worker goes on without its disk tier"));
        free(disk);
        return;
    }
    list_init(&disk->reads);
    disk_metrics_declare(&disk->metrics, engine->opts.metrics);
    engine->disk = disk;
    kv_tier_counts(disk->tier, &counts);
    log_info("kv_disk_ready", LOG_U64("blocks", counts.n_blocks), LOG_U64("bytes", counts.used_bytes),
             LOG_U64("files", counts.n_segments));
}

static void disk_read_free(struct disk_read *read)
{
    if (read != NULL)
        read_hold_free(&read->hold);
    free(read);
}

void worker_disk_close(struct worker_engine *engine)
{
    struct worker_disk *disk = engine->disk;

    if (disk == NULL)
        return;
    kv_tier_close(disk->tier);
    while (!list_is_empty(&disk->reads))
        disk_read_free(container_of(list_pop_front(&disk->reads), struct disk_read, all));
    free(disk);
    engine->disk = NULL;
}

/* ---- reading ---- */

/* Finds the running read that includes this block. */
static struct disk_read *find_read(const struct worker_disk *disk, const struct block_hash *hash)
{
    list_for_each (node, &disk->reads) {
        struct disk_read *read = container_of(node, struct disk_read, all);

        for (uint32_t i = 0; i < read->n; i++)
            if (block_hash_equal(&read->blocks[i].hash, hash))
                return read;
    }
    return NULL;
}

static uint64_t compute_ns(const struct worker_engine *engine, uint32_t n_blocks)
{
    struct sched_load load;

    sched_load(engine->sched, &load);
    if (load.prefill_tokens_per_s <= 0)
        return WAIT_MOST_NS;
    return (uint64_t)((double)n_blocks * engine->opts.engine.info.layout.block_tokens /
                      load.prefill_tokens_per_s * (double)NS_PER_S);
}

/* Counts the leading blocks that pool and disk have together, and of these the ones to read. */
static uint32_t disk_run(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n,
                         uint32_t *n_read_out)
{
    uint32_t n_run = 0;

    for (*n_read_out = 0; n_run < n; n_run++) {
        if (kv_peek(engine->pool, &hashes[n_run], 1) == 1)
            continue;
        if (!kv_tier_has(engine->disk->tier, &hashes[n_run]))
            break;
        ++*n_read_out;
    }
    return n_run;
}

/* Holds the blocks that the pool has, and lists the others in the read.  Returns their number. */
static uint32_t disk_read_list(struct worker_engine *engine, struct disk_read *read,
                               const struct block_hash *hashes, uint32_t n)
{
    uint32_t n_missing = 0;

    for (uint32_t i = 0; i < n; i++)
        if (!read_hold_add(&read->hold, engine->pool, &hashes[i]))
            read->blocks[n_missing++] = (struct disk_block){.read = read, .hash = hashes[i]};
    return n_missing;
}

/* Sends reads of the first n listed blocks into blocks with these ids. */
static void disk_read_send(struct worker_engine *engine, struct disk_read *read, const kv_block_id *ids,
                           uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct disk_block *block = &read->blocks[i];

        block->id = ids[i];
        if (read->n == i && kv_tier_read(engine->disk->tier, ids[i], &block->hash, block) == 0) {
            kv_lease(engine->pool, ids[i]);
            read->n++;
        } else {
            kv_unref(engine->pool, ids[i]); /* the run ends before this block */
        }
    }
}

/* Takes blocks and sends reads for those of a run of hashes that the pool lacks.  Returns NULL if no read could
 * begin. */
static struct disk_read *begin_read(struct worker_engine *engine, kv_tenant tenant,
                                    const struct block_hash *hashes, uint32_t n)
{
    struct worker_disk *disk = engine->disk;
    struct disk_read *read = calloc(1, sizeof(*read) + n * sizeof(read->blocks[0]));
    kv_block_id *ids = malloc(n * sizeof(*ids));
    uint32_t n_missing, room;

    if (read != NULL && ids != NULL) {
        n_missing = disk_read_list(engine, read, hashes, n);
        room = read_room(engine, tenant, disk->n_reading);
        n_missing = n_missing < room ? n_missing : room;
        if (n_missing > 0 && kv_take_for(engine->pool, tenant, n_missing, ids) == 0)
            disk_read_send(engine, read, ids, n_missing);
    }
    free(ids);
    if (read == NULL || read->n == 0) {
        if (read != NULL)
            read_hold_release(&read->hold, engine->pool);
        disk_read_free(read);
        return NULL;
    }
    read->number = ++disk->next_number;
    disk->n_reading += read->n;
    list_push_back(&disk->reads, &read->all);
    return read;
}

/* Finds or begins the read that a prompt should wait for.  NULL: none. */
static struct disk_read *read_for(struct worker_engine *engine, kv_tenant tenant,
                                  const struct block_hash *hashes, uint32_t n)
{
    struct worker_disk *disk = engine->disk;
    uint32_t n_have = kv_peek(engine->pool, hashes, n), n_run, n_disk;
    uint64_t read_ns, saved_ns;
    struct disk_read *read;

    if (n_have == n)
        return NULL;
    read = find_read(disk, &hashes[n_have]);
    n_run = disk_run(engine, hashes, n, &n_disk);
    if (read != NULL || n_disk == 0)
        return read;
    metric_add(disk->metrics.hit, n_disk);
    read_ns = kv_tier_read_ns(disk->tier, n_disk);
    saved_ns = compute_ns(engine, n_run - n_have);
    if (read_ns >= saved_ns && ++disk->n_passed_over % STORE_LOOK_AGAIN != 0) {
        metric_add(disk->metrics.slow, n_disk);
        return NULL;
    }
    read = begin_read(engine, tenant, hashes, n_run);
    if (read != NULL) {
        uint64_t wait_ns = saved_ns < WAIT_LEAST_NS ? WAIT_LEAST_NS : saved_ns;

        read->began_ns = clock_now_ns();
        read->until_ns = read->began_ns + (wait_ns < WAIT_MOST_NS ? wait_ns : WAIT_MOST_NS);
    }
    return read;
}

static uint64_t fetch_run(struct worker_engine *engine, uint64_t tenant, const struct block_hash *hashes,
                          uint32_t n)
{
    struct worker_disk *disk = engine->disk;
    uint32_t n_have = disk != NULL ? kv_peek(engine->pool, hashes, n) : n, n_run, n_disk;
    struct disk_read *read;

    if (n_have == n)
        return 0;
    read = find_read(disk, &hashes[n_have]);
    if (read != NULL)
        return read->is_let_go ? 0 : read->number;
    n_run = disk_run(engine, hashes, n, &n_disk);
    if (n_disk == 0)
        return 0;
    metric_add(disk->metrics.hit, n_disk);
    read = begin_read(engine, tenant, hashes, n_run);
    if (read == NULL)
        return 0;
    read->began_ns = clock_now_ns();
    read->until_ns = read->began_ns + WAIT_MOST_NS; /* the fetching worker's own limit is usually shorter */
    return read->number;
}

static bool disk_or_pool_has(void *arg, const struct block_hash *hash)
{
    struct worker_engine *engine = arg;

    return kv_peek(engine->pool, hash, 1) == 1 || kv_tier_peek(engine->disk->tier, hash, 1) == 1;
}

/* The same for a model whose prefixes need an end state: the blocks read end with it. */
static struct disk_read *read_with_end_state(struct worker_engine *engine, kv_tenant tenant,
                                             const struct block_hash *hashes, uint32_t n)
{
    struct state_source source = {.has = disk_or_pool_has, .arg = engine};
    uint32_t n_list = 0;
    struct block_hash *list = worker_state_list(engine, &source, hashes, n, &n_list);
    struct disk_read *read;

    if (list == NULL)
        return NULL;
    read = read_for(engine, tenant, list, n_list);
    free(list);
    return read;
}

uint64_t worker_disk_fetch(struct worker_engine *engine, uint64_t tenant, const struct block_hash *hashes,
                           uint32_t n)
{
    struct state_source source = {.has = disk_or_pool_has, .arg = engine};
    struct block_hash *list;
    uint32_t n_list = 0;
    uint64_t read;

    if (engine->disk == NULL || !worker_has_end_states(engine))
        return fetch_run(engine, tenant, hashes, n);
    list = worker_state_list(engine, &source, hashes, n, &n_list);
    read = list != NULL ? fetch_run(engine, tenant, list, n_list) : 0;
    free(list);
    return read;
}

bool worker_disk_wait(struct worker_engine *engine, struct task *task)
{
    struct worker_disk *disk = engine->disk;
    struct disk_read *read;
    uint32_t n;

    if (disk == NULL || task->spec.mode == TASK_DECODE || task->n_disk_looks >= LOOKS_PER_TASK ||
        disk->n_waiting >= engine->opts.max_queue)
        return false;
    n = worker_chain_hash(engine, task);
    if (n == 0)
        return false;
    read = (worker_has_end_states(engine) ? read_with_end_state : read_for)(
        engine, tenant_number(task->spec.order.work.tenant), task->chain.hashes, n);
    if (read == NULL || read->is_let_go)
        return false;
    task->n_disk_looks++;
    task->disk_read = read->number;
    disk->n_waiting++;
    return true;
}

void worker_disk_stop_waiting(struct worker_engine *engine, struct task *task)
{
    if (task->disk_read != 0 && engine->disk != NULL)
        engine->disk->n_waiting--;
    task->disk_read = 0;
}

/* Lets the tasks that wait for this read continue with the blocks that have arrived. */
static void let_go(struct worker_engine *engine, struct disk_read *read)
{
    if (read->is_let_go)
        return;
    read->is_let_go = true;
    metric_observe(engine->disk->metrics.wait_s,
                   (double)(clock_now_ns() - read->began_ns) / (double)NS_PER_S);
    worker_tasks_read(engine, read->number);
    worker_prefix_serve_read(engine, read->number);
}

static void end_read(struct worker_engine *engine, struct disk_read *read)
{
    list_remove(&read->all); /* first, because a task that continues looks again and must not find this
                              * read */
    let_go(engine, read);
    for (uint32_t i = read->n; i-- > 0;)
        if (read->blocks[i].is_sealed)
            kv_unref(engine->pool, read->blocks[i].id);
    read_hold_release(&read->hold, engine->pool);
    engine->disk->n_reading -= read->n;
    disk_read_free(read);
}

static void worker_disk_on_read(struct worker_engine *engine, const struct kv_tier_event *event)
{
    struct disk_block *block = event->user;
    struct disk_read *read = block->read;

    kv_unlease(engine->pool, event->id);
    if (event->result == 0) {
        kv_seal(engine->pool, event->id, &block->hash);
        if (kv_tier_has(engine->disk->tier, &block->hash)) /* it was not dropped meanwhile */
            kv_set_saved(engine->pool, KV_BELOW_DISK, event->id);
        block->is_sealed = true;
    } else {
        kv_unref(engine->pool, event->id);
    }
    if (++read->n_done == read->n)
        end_read(engine, read);
}

/* ---- saving ---- */

static void on_written(struct worker_engine *engine, const struct kv_tier_event *event)
{
    struct worker_disk *disk = engine->disk;

    disk->n_saving--;
    kv_save_end(engine->pool, KV_BELOW_DISK, event->id, event->result < 0);
    if (event->result == 0 && !kv_tier_has(disk->tier, &event->hash))
        kv_clear_saved(engine->pool, KV_BELOW_DISK, &event->hash); /* dropped while it was written */
    if (event->result == 0)
        metric_observe(disk->metrics.write_s, (double)event->elapsed_ns / (double)NS_PER_S);
}

/* Saves one block.  Returns true if another may follow. */
static bool save_one(struct worker_engine *engine, uint64_t now_ns)
{
    struct worker_disk *disk = engine->disk;
    struct kv_save save;
    uint64_t pin_end_unix_ns;
    int rc;

    if (!kv_save_next(engine->pool, KV_BELOW_DISK, &save))
        return false;
    pin_end_unix_ns = save.pin_end_ns > now_ns ? clock_unix_ns() + (save.pin_end_ns - now_ns) : 0;
    rc = kv_tier_write(disk->tier, save.tenant, save.id, &save.hash, pin_end_unix_ns);
    if (rc == 0) {
        disk->n_saving++;
        return true;
    }
    /* The block is on disk already, or nothing may be deleted for it now: offer it again after its next use. */
    kv_save_end(engine->pool, KV_BELOW_DISK, save.id, rc != E_EXISTS && rc != E_FULL);
    if (rc == E_FULL)
        kv_clear_saved(engine->pool, KV_BELOW_DISK, &save.hash);
    if (rc != E_EXISTS && rc != E_FULL)
        disk->paused_until_ns = now_ns + SAVE_PAUSE_NS;
    return rc == E_EXISTS || rc == E_FULL;
}

void worker_disk_turn(struct worker_engine *engine)
{
    struct worker_disk *disk = engine->disk;
    struct kv_tier_event event;
    uint32_t most = engine->opts.n_blocks / STORE_POOL_SHARE_SAVES;
    uint64_t now_ns;

    if (disk == NULL)
        return;
    while (kv_tier_poll(disk->tier, &event)) {
        if (event.kind == KV_TIER_READ)
            worker_disk_on_read(engine, &event);
        else
            on_written(engine, &event);
    }
    now_ns = clock_now_ns();
    if (kv_tier_rests(disk->tier, now_ns))
        return;
    for (unsigned i = 0; i < STORE_SAVES_PER_TURN && now_ns >= disk->paused_until_ns; i++)
        if (disk->n_saving >= (most > 0 ? most : 1) || disk->n_saving >= KV_TIER_WRITES ||
            !save_one(engine, now_ns))
            break;
}

/* ---- timers ---- */

static void disk_count(struct worker_engine *engine)
{
    struct kv_tier_counts now;
    struct kv_pool_counts blocks;

    kv_tier_counts(engine->disk->tier, &now);
    kv_pool_counts(engine->pool, &blocks);
    disk_metrics_update(&engine->disk->metrics, &now, blocks.n_lost);
}

void worker_disk_tick(struct worker_engine *engine, uint64_t now_ns)
{
    struct worker_disk *disk = engine->disk;
    bool is_short = false; /* the running sequences need the blocks that reads hold */

    if (disk == NULL)
        return;
    if (!list_is_empty(&disk->reads))
        is_short = !read_hold_has_room(engine, 0);
    list_for_each (node, &disk->reads) {
        struct disk_read *read = container_of(node, struct disk_read, all);

        if (now_ns >= read->until_ns)
            let_go(engine, read);
        if (now_ns >= read->until_ns || is_short)
            read_hold_release(&read->hold, engine->pool);
    }
    if (now_ns - disk->expired_ns >= NS_PER_S / 10) {
        disk->expired_ns = now_ns;
        kv_tier_expire(disk->tier);
        disk_count(engine);
    }
}

void worker_disk_report(const struct worker_engine *engine, struct load_report *out)
{
    out->has_disk = engine->disk != NULL;
    if (out->has_disk)
        kv_tier_counts(engine->disk->tier, &out->disk);
}

/* ---- reports to routers ---- */

bool worker_disk_has(const struct worker_engine *engine, const struct block_hash *hash)
{
    return engine->disk != NULL && kv_tier_has(engine->disk->tier, hash);
}

uint32_t worker_disk_peek(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n)
{
    return engine->disk != NULL ? kv_tier_peek(engine->disk->tier, hashes, n) : 0;
}

double worker_disk_rate(const struct worker_engine *engine)
{
    struct kv_tier_counts counts = {0};

    if (engine->disk != NULL)
        kv_tier_counts(engine->disk->tier, &counts);
    return counts.read_bytes_per_s;
}

uint32_t worker_disk_count(const struct worker_engine *engine)
{
    struct kv_tier_counts counts = {0};

    if (engine->disk != NULL)
        kv_tier_counts(engine->disk->tier, &counts);
    return counts.n_blocks < UINT32_MAX ? (uint32_t)counts.n_blocks : UINT32_MAX;
}

void worker_disk_each(const struct worker_engine *engine, uint32_t most,
                      void (*visit)(void *arg, const struct block_hash *hash), void *arg)
{
    if (engine->disk != NULL)
        kv_tier_each(engine->disk->tier, most, visit, arg);
}

bool worker_disk_is_waited_for(const struct worker_engine *engine)
{
    return engine->disk != NULL && engine->disk->n_waiting > 0;
}
