/* SPDX-License-Identifier: Apache-2.0 */
/* Moves blocks between the pool and the remote tier, a store that all workers of the model share.
 *
 *      used twice, not saved there yet --> saved                 a few on each turn of the thread (remote_save.c)
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
 * once. Tasks with the same prefix wait for the same read. Reads fill at most a quarter of the pool. From the question on
 * they hold the prompt's blocks that are in the pool (read_hold_priv.h), while the running sequences have room.
 *
 * A model with recurrent state also needs the state after the last block (state_list.c has the rule). The store is
 * asked for the first block of each state; the others were written with it. */
#include "worker/runner/remote_state_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_writeback.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/state_list_priv.h"

#define ASK_LEAST_NS    (50 * NS_PER_MS) /* a limit for answers that a busy host keeps */
#define ASK_MOST_NS     NS_PER_S
#define READ_LEAST_NS   (10 * NS_PER_MS)
#define READ_MOST_NS    (10 * NS_PER_S)
#define REMOTE_READ_BIT (UINT64_C(1) << 63) /* in numbers of reads: disk.c has the others */

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
    read_hold_free(&read->hold);
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
                               const uint32_t *ends)
{
    uint32_t n = 0;

    while (n < read->n_run && ends[n] != REMOTE_NOT_THERE)
        remote_seen_add(&remote->seen, &read->hashes[n++]);
    if (n < read->n_run)
        remote_seen_remove(&remote->seen, &read->hashes[n]);
}

void worker_remote_publish_changes(struct worker_engine *engine)
{
    if (engine->remote != NULL)
        remote_seen_publish_changes(&engine->remote->seen, engine->reports);
}

void worker_remote_publish_all(struct worker_engine *engine, uint32_t router, uint32_t most)
{
    if (engine->remote != NULL)
        remote_seen_publish_all(&engine->remote->seen, engine->reports, router, most);
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
    read_hold_release(&read->hold, engine->pool);
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

/* Asks the store for a run of blocks after n_have in the pool, which the read holds if there is room. NULL: it could
 * not be asked. */
static struct remote_read *remote_read_ask(struct worker_engine *engine, const struct task *task,
                                           uint32_t n_have, uint32_t n)
{
    const struct block_hash *hashes = task->chain.hashes + n_have;
    struct worker_remote *remote = engine->remote;
    uint32_t n_each = worker_has_end_states(engine) ? 2 : 1, most = KV_REMOTE_ASK_KEYS / n_each;
    uint64_t saved_ns = remote_compute_ns(engine, n), ask_ns;
    bool has_room = read_hold_has_room(engine, n_have);
    struct remote_read *read;

    n = n < most ? n : most;
    read = calloc(1, sizeof(*read) + 2 * n * sizeof(read->hashes[0]));
    if (read == NULL)
        return NULL;
    memcpy(read->hashes, hashes, n * sizeof(*hashes));
    for (uint32_t i = 0; n_each > 1 && i < n; i++)
        worker_end_state_key(engine, &hashes[i], &read->hashes[n + i]);
    read->n_run = n;
    read->tenant = tenant_number(task->spec.order.work.tenant);
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
    for (uint32_t i = 0; i < n_have && has_room; i++)
        (void)read_hold_add(&read->hold, engine->pool, &task->chain.hashes[i]);
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
        read = remote_read_ask(engine, task, n_have, n - n_have);
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

/* The longest run of at most n blocks that has its end state. */
static uint32_t remote_run_with_end_state(const struct worker_engine *engine, const struct remote_read *read,
                                          const uint32_t *ends, uint32_t n)
{
    const uint32_t *part_ends = ends + read->n_run;
    const struct block_hash *parts = read->hashes + read->n_run;

    for (uint32_t at = n; at-- > 0 && n - at <= worker_end_state_span(engine);)
        if (part_ends[at] == REMOTE_NOT_THERE && !remote_is_in_pool(engine, &parts[at]))
            n = at;
    return n;
}

/* Appends the blocks of the run's end state that the pool lacks; each is a value of its own. Returns their number. */
static uint32_t remote_choose_end_state(struct worker_engine *engine, struct remote_read *read,
                                        uint32_t n_run, struct remote_block *list)
{
    uint32_t n_end_state = worker_end_state_blocks(engine, n_run), n = 0;
    struct block_hash *end_state = n_end_state > 0 ? calloc(n_end_state, sizeof(*end_state)) : NULL;

    if (end_state == NULL)
        return 0;
    worker_end_state_hashes(engine, read->hashes, n_run, end_state);
    for (uint32_t i = 0; i < n_end_state; i++)
        if (!read_hold_add(&read->hold, engine->pool, &end_state[i]))
            list[n++] = (struct remote_block){.hash = end_state[i], .name = end_state[i]};
    free(end_state);
    return n;
}

/* The blocks to read: of the longest run that the pool and the store have together, with its end state. Holds those of
 * the pool. Returns the number to read, and that of the run. */
static uint32_t remote_read_choose(struct worker_engine *engine, struct remote_read *read,
                                   const uint32_t *ends, struct remote_block *list, uint32_t *n_run_out)
{
    uint32_t n_run = 0, n = 0;

    while (n_run < read->n_run &&
           (ends[n_run] != REMOTE_NOT_THERE || remote_is_in_pool(engine, &read->hashes[n_run])))
        n_run++;
    n_run = remote_run_with_end_state(engine, read, ends, n_run);
    for (uint32_t i = 0; i < n_run; i++) {
        if (read_hold_add(&read->hold, engine->pool, &read->hashes[i]))
            continue;
        if (ends[i] == REMOTE_NOT_THERE) /* the block's lifetime ended since the first look */
            n_run = worker_has_end_states(engine) ? 0 : i;
        else
            list[n++] = (struct remote_block){
                .hash = read->hashes[i], .name = read->hashes[ends[i]], .n_after = ends[i] - i};
    }
    *n_run_out = n_run;
    if (n_run == 0)
        return 0;
    return n + remote_choose_end_state(engine, read, n_run, list + n); /* the list has room for it */
}

/* The leading blocks of the list that lie side by side in one value. */
static uint32_t remote_part_blocks(const struct remote_block *list, uint32_t n)
{
    uint32_t n_part = 1;

    while (n_part < n && list[n_part].n_after + n_part == list[0].n_after &&
           block_hash_equal(&list[n_part].name, &list[0].name))
        n_part++;
    return n_part;
}

/* Sends the reads of blocks with these ids, a read for each value. */
static void remote_read_send_parts(struct worker_engine *engine, struct remote_read *read,
                                   const kv_block_id *ids, const struct block_hash *hashes, uint32_t n)
{
    for (uint32_t i = 0, n_part; i < n; i += n_part) {
        struct remote_block *blocks = &read->blocks[i];
        struct kv_remote_part part = {.ids = &ids[i], .hashes = &hashes[i], .name = blocks->name};
        bool is_sent;

        part.n = n_part = remote_part_blocks(blocks, n - i);
        part.n_after = blocks[n_part - 1].n_after;
        is_sent = read->n == i && kv_remote_read(engine->remote->remote, &part, read->until_ns, blocks) == 0;
        for (uint32_t at = 0; at < n_part; at++) {
            if (is_sent)
                kv_lease(engine->pool, ids[i + at]);
            else
                kv_unref(engine->pool, ids[i + at]); /* the run ends before it */
        }
        read->n += is_sent ? n_part : 0;
    }
}

/* Takes blocks and sends reads for the list. False: nothing was begun. */
static bool remote_read_send(struct worker_engine *engine, struct remote_read *read,
                             const struct remote_block *list, uint32_t n)
{
    struct worker_remote *remote = engine->remote;
    uint32_t most = read_room(engine, read->tenant, remote->n_reading);
    kv_block_id *ids = malloc((n + 1) * sizeof(*ids));
    struct block_hash *hashes = malloc((n + 1) * sizeof(*hashes));

    if (n > most && worker_has_end_states(engine))
        n = 0; /* the end state comes last, and without it the other blocks are of no use */
    n = n < most ? n : most;
    read->blocks = n > 0 ? calloc(n, sizeof(*read->blocks)) : NULL;
    if (ids != NULL && hashes != NULL && read->blocks != NULL &&
        kv_take_for(engine->pool, read->tenant, n, ids) == 0) {
        for (uint32_t i = 0; i < n; i++) {
            read->blocks[i] = list[i];
            read->blocks[i].read = read;
            read->blocks[i].id = ids[i];
            hashes[i] = list[i].hash;
        }
        remote_read_send_parts(engine, read, ids, hashes, n);
    }
    free(hashes);
    free(ids);
    remote->n_reading += read->n;
    return read->n > 0;
}

/* True if reading is expected to be quicker than computing. */
static bool remote_read_pays(struct worker_engine *engine, uint32_t n, uint64_t saved_ns)
{
    struct worker_remote *remote = engine->remote;

    if (kv_remote_read_ns(remote->remote, n) < saved_ns || ++remote->n_passed_over % STORE_LOOK_AGAIN == 0)
        return true;
    metric_add(remote->metrics.slow, n);
    return false;
}

static void remote_on_answer(struct worker_engine *engine, const struct kv_remote_event *event)
{
    struct worker_remote *remote = engine->remote;
    struct remote_read *read = event->user;
    struct remote_block *list = NULL;
    uint32_t n = 0, n_run = 0;
    uint64_t saved_ns;

    if (event->result == 0)
        remote_note_answer(remote, read, event->ends);
    if (read->state == REMOTE_LET_GO)
        remote->n_overdue--;
    else if (event->result == 0)
        list = calloc(read->n_run + worker_end_state_blocks(engine, read->n_run), sizeof(*list));
    if (list != NULL)
        n = remote_read_choose(engine, read, event->ends, list, &n_run);
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
    struct remote_block *block = (struct remote_block *)event->user + event->at;
    struct remote_read *read = block->read;

    kv_unlease(engine->pool, event->id);
    if (event->result == 0) {
        kv_seal(engine->pool, event->id, &block->hash);
        kv_set_saved(engine->pool, KV_BELOW_REMOTE, event->id);
        if (block->n_after > 0)
            kv_set_inside(engine->pool, event->id);
        block->is_sealed = true;
    } else {
        if (event->result == E_NOT_FOUND || event->result == E_AUTH)
            remote_seen_remove(&engine->remote->seen, &block->hash);
        kv_unref(engine->pool, event->id);
    }
    if (++read->n_done < read->n)
        return;
    if (read->state == REMOTE_LET_GO)
        engine->remote->n_overdue--;
    remote_read_end(engine, read);
}

/* ---- turns ---- */

void worker_remote_turn(struct worker_engine *engine)
{
    struct worker_remote *remote = engine->remote;
    struct kv_remote_event event;

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
            worker_remote_on_saved(engine, &event);
            break;
        }
    }
    worker_remote_save(engine);
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

/* A store that was away may have lost everything, and values end with their lifetime: the next use of a block asks again
 * whether it is there, which renews the lifetime too. */
static void remote_doubt_saved(struct worker_engine *engine, uint64_t now_ns)
{
    struct worker_remote *remote = engine->remote;
    bool is_up = kv_remote_is_up(remote->remote), came = is_up && !remote->was_up;
    uint64_t lifetime_ns = engine->opts.remote.lifetime_ns;

    remote->was_up = is_up;
    if (!came && (lifetime_ns == 0 || now_ns - remote->doubted_ns < lifetime_ns / 2))
        return;
    remote->doubted_ns = now_ns;
    kv_clear_all_saved(engine->pool, KV_BELOW_REMOTE);
}

void worker_remote_tick(struct worker_engine *engine, uint64_t now_ns)
{
    struct worker_remote *remote = engine->remote;
    bool is_short = false; /* the running sequences need the blocks that reads hold */

    if (remote == NULL)
        return;
    kv_remote_tick(remote->remote, now_ns);
    remote_doubt_saved(engine, now_ns);
    if (!list_is_empty(&remote->reads))
        is_short = !read_hold_has_room(engine, 0);
    list_for_each (node, &remote->reads) {
        struct remote_read *read = container_of(node, struct remote_read, all);

        if (is_short)
            read_hold_release(&read->hold, engine->pool);
        if (read->state == REMOTE_LET_GO || now_ns < read->until_ns)
            continue;
        remote->n_overdue++;
        kv_remote_late(remote->remote);
        remote_read_let_go(engine, read);
        read_hold_release(&read->hold, engine->pool);
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

struct remote_hope worker_remote_hope(const struct worker_engine *engine, const struct block_hash *hashes,
                                      uint32_t n)
{
    const struct worker_remote *remote = engine->remote;
    struct kv_remote_counts counts;

    if (remote == NULL || remote->n_overdue > 0 || !kv_remote_is_up(remote->remote))
        return (struct remote_hope){0};
    kv_remote_counts(remote->remote, &counts);
    return (struct remote_hope){.n_blocks = remote_seen_run(&remote->seen, hashes, n),
                                .bytes_per_s = counts.read_bytes_per_s,
                                .ask_s = (double)counts.ask_ns / NS_PER_S};
}

bool worker_remote_is_waited_for(const struct worker_engine *engine)
{
    return engine->remote != NULL && (engine->remote->n_waiting > 0 || engine->remote->n_overdue > 0);
}
