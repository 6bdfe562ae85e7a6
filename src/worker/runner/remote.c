/* SPDX-License-Identifier: Apache-2.0 */
/* Moves blocks between the pool and the remote tier, a store that all workers of the model share.
 *
 *      used twice, not saved there yet --> saved                 a few on each turn of the thread
 *
 *      a task's prompt continues beyond the pool and the disk
 *         |
 *         +-- ASKING   which of its blocks does the store have?       --+-- none, or computing is quicker
 *         |      | some: blocks are taken and leased                     |   too late: the task goes on,
 *         +-- READING  every block read is sealed under its hash      --+   what comes later is cached
 *         |      | all read
 *         v      v
 *      scheduler, which finds them in the pool
 *
 * A waiting task is not in the scheduler, so steps continue without it. Time limits: in ASKING a quarter of the
 * time that the answer could save, in READING the time of computing the blocks. While an answer is overdue, no
 * further task waits. So a store that stops answering delays only the few tasks that wait at that moment, and only
 * once. Tasks with the same prefix wait for the same read. Reads hold at most a quarter of the pool.
 *
 * A model with recurrent state also needs the state after the last block (state_list.c has the rule). The question
 * names only the first block of each state, because all blocks of a state are written together. */
#include "worker/runner/remote_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_writeback.h"
#include "cache/prefix/tenant.h"
#include "cache/remote/remote.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/remote_metrics_priv.h"
#include "worker/runner/remote_seen_priv.h"
#include "worker/runner/state_list_priv.h"

#define SAVES_PER_TURN   32
#define SAVE_PAUSE_NS    (100 * NS_PER_MS)
#define ASK_LEAST_NS     (50 * NS_PER_MS) /* even a busy host answers within this limit */
#define ASK_MOST_NS      NS_PER_S
#define READ_LEAST_NS    (10 * NS_PER_MS)
#define READ_MOST_NS     (10 * NS_PER_S)
#define LOOK_AGAIN       16 /* of this many reads that would not pay, one is tried */
#define POOL_SHARE_READS 4  /* reads hold at most this part of the pool */
#define POOL_SHARE_SAVES 8
#define REMOTE_READ_BIT  (UINT64_C(1) << 63) /* marks numbers of reads of this file; those of disk.c lack it */

enum remote_read_state {
    REMOTE_ASKING,  /* the question is on its way */
    REMOTE_READING, /* the blocks are on their way */
    REMOTE_LET_GO   /* no task waits any more; it ends with its last answer */
};

struct remote_block {
    struct remote_read *read;
    kv_block_id id;
    struct block_hash hash;
    bool is_sealed; /* sealed, and this read holds a reference */
};

struct remote_read { /* a run of blocks that tasks wait for */
    struct list all;
    enum remote_read_state state;
    uint64_t number;
    kv_tenant tenant;
    uint64_t began_ns, until_ns;
    uint32_t n_run;              /* blocks of the prompt that were asked for */
    struct remote_block *blocks; /* [n] */
    uint32_t n, n_done;
    struct block_hash hashes[]; /* [n_run], then the first block of a tail beside each */
};

struct worker_remote {
    struct kv_remote *remote;
    struct list reads;
    uint64_t next_number;
    uint32_t n_reading, n_saving, n_waiting; /* blocks, blocks, tasks */
    uint32_t n_overdue;                      /* answers that no task waits for any more */
    uint64_t paused_until_ns, counted_ns;
    uint64_t n_passed_over; /* reads that would not have paid */
    struct remote_seen seen;
    struct remote_metrics metrics;
};

/* ---- open and close ---- */

static void worker_remote_wake(void *arg)
{
    struct worker_engine *engine = arg;

    mailbox_wake(engine->commands);
}

void worker_remote_open(struct worker_engine *engine)
{
    const struct worker_remote_opts *opts = &engine->opts.remote;
    const struct kv_layout *layout = &engine->opts.engine.info.layout;
    struct worker_remote *remote;
    struct fault fault = {0};
    char generation[256];
    struct kv_remote_opts tier = {.url = opts->url,
                                  .login = opts->login,
                                  .ca_path = opts->ca_path,
                                  .lifetime_ns = opts->lifetime_ns,
                                  .n_readers = opts->n_threads,
                                  .arena = {.base = engine->opts.arena.base,
                                            .n_blocks = engine->opts.n_blocks,
                                            .n_layers = layout->n_layers,
                                            .piece_bytes = kv_layout_layer_block_bytes(layout)},
                                  .generation = generation,
                                  .wake = worker_remote_wake,
                                  .wake_arg = engine};

    if (opts->url == NULL || opts->url[0] == '\0')
        return;
    remote = calloc(1, sizeof(*remote));
    worker_disk_generation(engine, generation);
    memcpy(tier.key, opts->key, sizeof(tier.key));
    if (remote == NULL || kv_remote_open(&tier, &fault, &remote->remote) < 0) {
        log_error("kv_remote_off", LOG_STR("reason", remote ? fault.text : "out of memory"),
                  LOG_STR("effect", "the worker goes on without its remote tier"));
        free(remote);
        return;
    }
    list_init(&remote->reads);
    remote_seen_open(&remote->seen, kv_remote_url(remote->remote), generation);
    remote_metrics_declare(&remote->metrics, engine->opts.metrics);
    engine->remote = remote;
}

static void remote_read_free(struct remote_read *read)
{
    free(read->blocks);
    free(read);
}

void worker_remote_close(struct worker_engine *engine)
{
    struct worker_remote *remote = engine->remote;

    if (remote == NULL)
        return;
    kv_remote_close(remote->remote);
    remote_seen_close(&remote->seen);
    while (!list_is_empty(&remote->reads))
        remote_read_free(container_of(list_pop_front(&remote->reads), struct remote_read, all));
    free(remote);
    engine->remote = NULL;
}

/* ---- reports for routers ---- */

/* Notes the found blocks up to the first missing one, and that one: a prefix ends there. */
static void remote_note_answer(struct worker_remote *remote, const struct remote_read *read,
                               const bool *found)
{
    uint32_t n = 0;

    while (n < read->n_run && found[n])
        remote_seen_has(&remote->seen, &read->hashes[n++]);
    if (n < read->n_run)
        remote_seen_lacks(&remote->seen, &read->hashes[n]);
}

void worker_remote_tell_changes(struct worker_engine *engine)
{
    if (engine->remote != NULL)
        remote_seen_tell_changes(&engine->remote->seen, engine->reports);
}

void worker_remote_tell(struct worker_engine *engine, uint32_t router, uint32_t most)
{
    if (engine->remote != NULL)
        remote_seen_tell(&engine->remote->seen, engine->reports, router, most);
}

/* ---- waits ---- */

static uint64_t remote_compute_ns(const struct worker_engine *engine, uint32_t n_blocks)
{
    struct sched_load load;
    double ns;

    sched_load(engine->sched, &load);
    if (load.prefill_tokens_per_s <= 0)
        return READ_MOST_NS;
    ns = (double)n_blocks * engine->opts.engine.info.layout.block_tokens / load.prefill_tokens_per_s *
         (double)NS_PER_S;
    return ns < (double)READ_MOST_NS ? (uint64_t)ns : READ_MOST_NS;
}

static uint64_t remote_clamp(uint64_t ns, uint64_t least_ns, uint64_t most_ns)
{
    return ns < least_ns ? least_ns : ns > most_ns ? most_ns : ns;
}

/* Lets the tasks that wait for this read continue with the blocks that have arrived. */
static void remote_read_let_go(struct worker_engine *engine, struct remote_read *read)
{
    uint64_t now_ns = clock_now_ns();

    if (read->state == REMOTE_LET_GO)
        return;
    read->state = REMOTE_LET_GO;
    metric_observe(engine->remote->metrics.wait_s, (double)(now_ns - read->began_ns) / (double)NS_PER_S);
    worker_tasks_read(engine, read->number);
}

/* Removes the read first, because a task that continues searches again and must not find it. */
static void remote_read_end(struct worker_engine *engine, struct remote_read *read)
{
    list_remove(&read->all);
    remote_read_let_go(engine, read);
    for (uint32_t i = read->n; i-- > 0;)
        if (read->blocks[i].is_sealed)
            kv_unref(engine->pool, read->blocks[i].id);
    engine->remote->n_reading -= read->n;
    remote_read_free(read);
}

/* Finds a running read that includes this block, for which a prompt can wait. */
static struct remote_read *remote_read_find(const struct worker_remote *remote, const struct block_hash *hash)
{
    list_for_each (node, &remote->reads) {
        struct remote_read *read = container_of(node, struct remote_read, all);

        if (read->state != REMOTE_LET_GO && block_hash_equal(&read->hashes[0], hash))
            return read;
    }
    return NULL;
}

/* Asks the store for a run of blocks. NULL: it could not be asked. */
static struct remote_read *remote_read_ask(struct worker_engine *engine, kv_tenant tenant,
                                           const struct block_hash *hashes, uint32_t n)
{
    struct worker_remote *remote = engine->remote;
    uint32_t n_each = worker_has_tails(engine) ? 2 : 1, most = KV_REMOTE_ASK_KEYS / n_each;
    uint64_t saved_ns = remote_compute_ns(engine, n), ask_ns;
    struct remote_read *read;

    n = n < most ? n : most;
    read = calloc(1, sizeof(*read) + 2 * n * sizeof(read->hashes[0]));
    if (read == NULL)
        return NULL;
    memcpy(read->hashes, hashes, n * sizeof(*hashes));
    for (uint32_t i = 0; n_each > 1 && i < n; i++)
        worker_tail_key(engine, &hashes[i], &read->hashes[n + i]);
    read->n_run = n;
    read->tenant = tenant;
    read->number = ++remote->next_number | REMOTE_READ_BIT;
    read->began_ns = clock_now_ns();
    ask_ns = kv_remote_ask_ns(remote->remote, n_each * n);
    ask_ns = 4 * ask_ns > ASK_LEAST_NS ? 4 * ask_ns : ASK_LEAST_NS;
    read->until_ns =
        read->began_ns + remote_clamp(saved_ns / 4, NS_PER_MS, ask_ns < ASK_MOST_NS ? ask_ns : ASK_MOST_NS);
    if (kv_remote_ask(remote->remote, read->hashes, n_each * n, read) < 0) {
        free(read);
        return NULL;
    }
    list_push_back(&remote->reads, &read->all);
    return read;
}

bool worker_remote_wait(struct worker_engine *engine, struct task *task)
{
    struct worker_remote *remote = engine->remote;
    struct remote_read *read;
    uint32_t n, n_have;

    if (remote == NULL || !kv_remote_is_up(remote->remote) || remote->n_overdue > 0 ||
        task->spec.mode == TASK_DECODE || remote->n_waiting >= engine->opts.max_queue)
        return false;
    n = worker_chain_hash(engine, task);
    n_have = n > 0 ? worker_state_hit(engine, task->chain.hashes, n) : 0;
    if (n_have >= n || n_have < task->remote_asked_to ||
        2 * kv_remote_ask_ns(remote->remote, n - n_have) >= remote_compute_ns(engine, n - n_have))
        return false;
    read = remote_read_find(remote, &task->chain.hashes[n_have]);
    if (read == NULL)
        read = remote_read_ask(engine, tenant_number(task->spec.order.work.tenant),
                               task->chain.hashes + n_have, n - n_have);
    if (read == NULL)
        return false;
    task->remote_asked_to = n_have + read->n_run;
    task->remote_read = read->number;
    remote->n_waiting++;
    return true;
}

void worker_remote_stop_waiting(struct worker_engine *engine, struct task *task)
{
    if (task->remote_read != 0 && engine->remote != NULL)
        engine->remote->n_waiting--;
    task->remote_read = 0;
}

/* ---- reading ---- */

static bool remote_is_in_pool(const struct worker_engine *engine, const struct block_hash *hash)
{
    return kv_peek(engine->pool, hash, 1) == 1;
}

/* The longest run of at most n blocks that has a tail. */
static uint32_t remote_run_with_tail(const struct worker_engine *engine, const struct remote_read *read,
                                     const bool *found, uint32_t n)
{
    const bool *found_parts = found + read->n_run;
    const struct block_hash *parts = read->hashes + read->n_run;

    for (uint32_t at = n; at-- > 0 && n - at <= worker_tail_span(engine);)
        if (!found_parts[at] && !remote_is_in_pool(engine, &parts[at]))
            n = at;
    return n;
}

/* Chooses the blocks to read: those of the longest run that pool and store have together, and its tail. Returns
 * their number, and sets the length of the run. */
static uint32_t remote_read_choose(const struct worker_engine *engine, const struct remote_read *read,
                                   const bool *found, struct block_hash *list, uint32_t *n_run_out)
{
    uint32_t n_run = 0, n = 0, n_tail, n_kept = 0;
    struct block_hash *tail;

    while (n_run < read->n_run && (found[n_run] || remote_is_in_pool(engine, &read->hashes[n_run])))
        n_run++;
    n_run = remote_run_with_tail(engine, read, found, n_run);
    *n_run_out = n_run;
    if (n_run == 0)
        return 0;
    for (uint32_t i = 0; i < n_run; i++)
        if (!remote_is_in_pool(engine, &read->hashes[i]))
            list[n++] = read->hashes[i];
    tail = list + n; /* the list has room for it */
    n_tail = worker_tail_blocks(engine, n_run);
    worker_tail_hashes(engine, read->hashes, n_run, tail);
    for (uint32_t i = 0; i < n_tail; i++)
        if (!remote_is_in_pool(engine, &tail[i]))
            tail[n_kept++] = tail[i];
    return n + n_kept;
}

/* Takes blocks and sends reads for the list. False: nothing was begun. */
static bool remote_read_send(struct worker_engine *engine, struct remote_read *read,
                             const struct block_hash *list, uint32_t n)
{
    struct worker_remote *remote = engine->remote;
    uint32_t most = engine->opts.n_blocks / POOL_SHARE_READS,
             room = kv_available_to(engine->pool, read->tenant);
    kv_block_id *ids = malloc((n + 1) * sizeof(*ids));

    most = most > remote->n_reading ? most - remote->n_reading : 0;
    most = most < room ? most : room;
    if (n > most && worker_has_tails(engine))
        n = 0; /* the tail comes last, and without it the other blocks are of no use */
    n = n < most ? n : most;
    read->blocks = n > 0 ? calloc(n, sizeof(*read->blocks)) : NULL;
    if (ids == NULL || read->blocks == NULL || kv_take_for(engine->pool, read->tenant, n, ids) < 0) {
        free(ids);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct remote_block *block = &read->blocks[i];

        *block = (struct remote_block){.read = read, .id = ids[i], .hash = list[i]};
        if (read->n == i && kv_remote_read(remote->remote, ids[i], &list[i], read->until_ns, block) == 0) {
            kv_lease(engine->pool, ids[i]);
            read->n++;
        } else {
            kv_unref(engine->pool, ids[i]); /* the run ends before it */
        }
    }
    free(ids);
    remote->n_reading += read->n;
    return read->n > 0;
}

/* True if reading is expected to be quicker than computing. */
static bool remote_read_pays(struct worker_engine *engine, uint32_t n, uint64_t saved_ns)
{
    struct worker_remote *remote = engine->remote;

    if (kv_remote_read_ns(remote->remote, n) < saved_ns || ++remote->n_passed_over % LOOK_AGAIN == 0)
        return true;
    metric_add(remote->metrics.slow, n);
    return false;
}

static void remote_on_answer(struct worker_engine *engine, const struct kv_remote_event *event)
{
    struct worker_remote *remote = engine->remote;
    struct remote_read *read = event->user;
    struct block_hash *list = NULL;
    uint32_t n = 0, n_run = 0;
    uint64_t saved_ns;

    if (event->result == 0)
        remote_note_answer(remote, read, event->found);
    if (read->state == REMOTE_LET_GO)
        remote->n_overdue--;
    else if (event->result == 0)
        list = calloc(read->n_run + worker_tail_blocks(engine, read->n_run), sizeof(*list));
    if (list != NULL)
        n = remote_read_choose(engine, read, event->found, list, &n_run);
    saved_ns = remote_compute_ns(engine, n_run);
    if (n > 0 && remote_read_pays(engine, n, saved_ns)) {
        read->state = REMOTE_READING;
        read->until_ns = clock_now_ns() + remote_clamp(saved_ns, READ_LEAST_NS, READ_MOST_NS);
        if (remote_read_send(engine, read, list, n)) {
            free(list);
            return;
        }
    }
    free(list);
    remote_read_end(engine, read);
}

static void remote_on_block(struct worker_engine *engine, const struct kv_remote_event *event)
{
    struct remote_block *block = event->user;
    struct remote_read *read = block->read;

    kv_unlease(engine->pool, event->id);
    if (event->result == 0) {
        kv_seal(engine->pool, event->id, &block->hash);
        kv_set_saved(engine->pool, KV_BELOW_REMOTE, event->id);
        block->is_sealed = true;
    } else {
        if (event->result == E_NOT_FOUND || event->result == E_AUTH)
            remote_seen_lacks(&engine->remote->seen, &block->hash);
        kv_unref(engine->pool, event->id);
    }
    if (++read->n_done < read->n)
        return;
    if (read->state == REMOTE_LET_GO)
        engine->remote->n_overdue--;
    remote_read_end(engine, read);
}

/* ---- saving ---- */

static void remote_on_saved(struct worker_engine *engine, const struct kv_remote_event *event)
{
    engine->remote->n_saving--;
    if (event->result == 0 || event->result == E_EXISTS)
        remote_seen_has(&engine->remote->seen, &event->hash);
    if (event->result < 0 && event->result != E_EXISTS) /* do not try again at once */
        engine->remote->paused_until_ns = clock_now_ns() + SAVE_PAUSE_NS;
    kv_save_end(engine->pool, KV_BELOW_REMOTE, event->id, event->result < 0 && event->result != E_EXISTS);
}

/* Returns whether to continue. */
static bool remote_save_one(struct worker_engine *engine, uint64_t now_ns)
{
    struct worker_remote *remote = engine->remote;
    struct kv_save save;

    if (!kv_save_next(engine->pool, KV_BELOW_REMOTE, &save))
        return false;
    if (kv_remote_write(remote->remote, save.id, &save.hash) == 0) {
        remote->n_saving++;
        return true;
    }
    kv_save_end(engine->pool, KV_BELOW_REMOTE, save.id, true);
    remote->paused_until_ns = now_ns + SAVE_PAUSE_NS;
    return false;
}

void worker_remote_turn(struct worker_engine *engine)
{
    struct worker_remote *remote = engine->remote;
    struct kv_remote_event event;
    uint32_t most = engine->opts.n_blocks / POOL_SHARE_SAVES;
    uint64_t now_ns;

    if (remote == NULL)
        return;
    while (kv_remote_poll(remote->remote, &event)) {
        switch (event.kind) {
        case KV_REMOTE_ASKED:
            remote_on_answer(engine, &event);
            break;
        case KV_REMOTE_READ:
            remote_on_block(engine, &event);
            break;
        case KV_REMOTE_WRITTEN:
            remote_on_saved(engine, &event);
            break;
        }
    }
    if (!kv_remote_takes_writes(remote->remote))
        return;
    now_ns = clock_now_ns();
    most = remote_clamp(most, 1, KV_REMOTE_WRITES);
    for (unsigned i = 0; i < SAVES_PER_TURN && now_ns >= remote->paused_until_ns && remote->n_saving < most;
         i++)
        if (!remote_save_one(engine, now_ns))
            break;
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

/* ---- timers ---- */

static void remote_count(struct worker_engine *engine)
{
    struct worker_remote *remote = engine->remote;
    struct kv_remote_counts now;
    struct kv_pool_counts blocks;

    kv_remote_counts(remote->remote, &now);
    kv_pool_counts(engine->pool, &blocks);
    remote_metrics_update(&remote->metrics, &now, blocks.n_writeback_remote);
}

void worker_remote_tick(struct worker_engine *engine, uint64_t now_ns)
{
    struct worker_remote *remote = engine->remote;

    if (remote == NULL)
        return;
    kv_remote_tick(remote->remote, now_ns);
    list_for_each (node, &remote->reads) {
        struct remote_read *read = container_of(node, struct remote_read, all);

        if (read->state == REMOTE_LET_GO || now_ns < read->until_ns)
            continue;
        remote->n_overdue++;
        kv_remote_late(remote->remote);
        remote_read_let_go(engine, read);
    }
    if (now_ns - remote->counted_ns >= NS_PER_S / 10) {
        remote->counted_ns = now_ns;
        remote_count(engine);
    }
}

void worker_remote_report(const struct worker_engine *engine, struct load_report *out)
{
    out->has_remote = engine->remote != NULL;
    if (!out->has_remote)
        return;
    out->store = engine->remote->seen.store;
    kv_remote_counts(engine->remote->remote, &out->remote);
}

bool worker_remote_is_waited_for(const struct worker_engine *engine)
{
    return engine->remote != NULL && (engine->remote->n_waiting > 0 || engine->remote->n_overdue > 0);
}
