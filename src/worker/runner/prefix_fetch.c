/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix fetch: pulls cached blocks from a peer, the owner of the blocks.
 *
 *             peer's link up             OFFER               pieces, or not
 *    LINKING ----------------> REQUESTED -------> MOVING -----------------> CLOSED --> freed
 *       |                         |                 |
 *       +--- link lost, too late, refused, no task waits any more ---> CLOSED
 *
 * A task that may fetch waits here before it begins (tasks.c).  The router names the owner, or this worker's
 * own map does if it knows of more blocks (peer_map.c).  Missing blocks are identified by hashes that this
 * worker computed from the task's tokens, never by hashes from outside.  Their content is trusted, because
 * every piece is verified and only the owner knows the ticket.  The fetch takes blocks from the pool when the
 * OFFER says how many will come, so an owner without blocks costs none.  Arrived blocks are sealed and
 * cached, where the scheduler finds them. After the fetch, with any result, the task begins like any
 * other.
 *
 * A second task that lacks the same block waits for the same fetch.  A fetch that no task waits for is
 * cancelled. Meanwhile the fetch holds references to the prefix blocks in the pool, because arriving blocks
 * are useless without them.
 *
 * No task waits longer than its request's limit, which is about the time of computing the blocks. */
#include "worker/runner/state_list_priv.h"
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "transfer/kvxfer/recv.h"
#include "cache/prefix/tenant.h"
#include "proto/capabilities.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/disk_priv.h"

#define MAX_FETCHES 32

enum prefix_fetch_state {
    PREFIX_FETCH_LINKING,   /* the link to the owner is not up yet */
    PREFIX_FETCH_REQUESTED, /* the request is sent, no answer yet */
    PREFIX_FETCH_MOVING,    /* granted: see transfer/kvxfer/recv.c */
    PREFIX_FETCH_CLOSED     /* no task waits, no block is held; the next tick frees it */
};

struct prefix_fetches { /* all prefix fetches of a worker */
    struct list all;
    uint32_t n;
    uint32_t n_filling; /* blocks that all of them have taken */
    struct metric *m_tokens, *m_done, *m_empty, *m_bytes;
};

struct prefix_fetch {
    struct transfer transfer; /* peer: the owner; in the table while MOVING and after */
    struct list all;
    struct worker_engine *engine;
    enum prefix_fetch_state state;
    uint64_t number;           /* random, chosen here */
    kv_tenant tenant;          /* the tenant whose quota pays for the blocks */
    struct list waiters;       /* struct task, by in_fetch */
    const struct task *first;  /* the task that began the fetch; NULL: it left */
    struct block_hash *hashes; /* [n_hashes] of the prompt's blocks from the first */
    uint32_t n_hashes, n_here;
    kv_block_id *blocks; /* one reference each: [0, n_here) were in the pool, the transfer fills the others */
    uint32_t n_blocks;
    uint32_t n_arrived; /* how many of the others have arrived */
    struct kvxfer_recv *recv;
    enum tr_kind transport;
    uint64_t began_ns, limit_ns;
    bool has_to_read; /* the owner must read some from its disk */
};

static const char *const prefix_fetch_states[] = {"linking", "requested", "moving", "closed"};
CHECK_ROWS(prefix_fetch_states, PREFIX_FETCH_CLOSED + 1);

static void prefix_fetch_set_state(struct prefix_fetch *fetch, enum prefix_fetch_state state)
{
    log_debug("prefix_fetch_state", LOG_U64("number", fetch->number),
              LOG_STR("from", prefix_fetch_states[fetch->state]), LOG_STR("to", prefix_fetch_states[state]));
    fetch->state = state;
}

static uint32_t prefix_fetch_block_tokens(const struct worker_engine *engine)
{
    return engine->opts.engine.info.layout.block_tokens;
}

static void prefix_fetch_give_back(struct prefix_fetch *fetch)
{
    if (fetch->n_blocks > fetch->n_here)
        fetch->engine->prefix_fetches->n_filling -= fetch->n_blocks - fetch->n_here;
    while (fetch->n_blocks > 0)
        kv_unref(fetch->engine->pool, fetch->blocks[--fetch->n_blocks]);
}

static void prefix_fetch_free(struct prefix_fetch *fetch)
{
    while (!list_is_empty(&fetch->waiters))
        worker_prefix_fetch_leave(fetch->engine, container_of(fetch->waiters.next, struct task, in_fetch));
    worker_transfers_remove(fetch->engine, &fetch->transfer);
    list_remove(&fetch->all);
    fetch->engine->prefix_fetches->n--;
    kvxfer_recv_free(fetch->recv);
    prefix_fetch_give_back(fetch);
    free(fetch->hashes);
    free(fetch->blocks);
    free(fetch);
}

static struct prefix_fetch *prefix_fetch_of(struct transfer *transfer)
{
    return container_of(transfer, struct prefix_fetch, transfer);
}

/* ---- the end ---- */

static void prefix_fetch_release(struct prefix_fetch *fetch, struct task *task)
{
    struct worker_engine *engine = fetch->engine;

    list_remove(&task->in_fetch);
    task->fetch = NULL;
    engine->n_fetching--;
    if (task == fetch->first && fetch->n_arrived > 0) {
        task->fetched_from = fetch->n_here * prefix_fetch_block_tokens(engine);
        task->fetched_to = (fetch->n_here + fetch->n_arrived) * prefix_fetch_block_tokens(engine);
        str_copy(task->figures.transport, sizeof(task->figures.transport),
                 worker_transport_name(fetch->transport));
    }
    worker_task_note(&task->times.fetched_ns);
    task->figures.transfer_ns = clock_now_ns() - task->fetch_began_ns;
    worker_tasks_go_on(engine, task);
}

/* Ends the fetch.
 * Only its first task reports the tokens as transferred, because later tasks found them here. */
static void prefix_fetch_finish(struct prefix_fetch *fetch)
{
    struct prefix_fetches *fetches = fetch->engine->prefix_fetches;

    if (fetch->state == PREFIX_FETCH_CLOSED)
        return;
    prefix_fetch_set_state(fetch, PREFIX_FETCH_CLOSED);
    metric_add(fetch->n_arrived > 0 ? fetches->m_done : fetches->m_empty, 1);
    metric_add(fetches->m_tokens, (double)fetch->n_arrived * prefix_fetch_block_tokens(fetch->engine));
    prefix_fetch_give_back(fetch);
    while (!list_is_empty(&fetch->waiters))
        prefix_fetch_release(fetch, container_of(fetch->waiters.next, struct task, in_fetch));
}

static void prefix_fetch_give_up(struct prefix_fetch *fetch, int code)
{
    if (fetch->state == PREFIX_FETCH_MOVING)
        kvxfer_recv_cancel(fetch->recv, code, false); /* leading blocks that have arrived stay cached */
    else
        prefix_fetch_finish(fetch);
}

/* ---- callbacks of transfer/kvxfer/recv ---- */

static void prefix_fetch_on_message(void *arg, const struct kvxfer_message *message)
{
    struct prefix_fetch *fetch = arg;

    worker_engine_to_peer(fetch->engine, fetch->transfer.peer, message);
}

/* Returns how many of the arrived blocks hold tokens.  Those of the end state come last. */
static uint32_t prefix_fetch_n_tokens_blocks(const struct prefix_fetch *fetch, uint32_t n_arrived)
{
    uint32_t n_tokens_blocks = worker_end_state_run(fetch->engine, fetch->n_blocks - fetch->n_here);

    return n_arrived < n_tokens_blocks ? n_arrived : n_tokens_blocks;
}

/* Seals the end state, if the model has one. */
static void prefix_fetch_seal_end_state(struct prefix_fetch *fetch)
{
    uint32_t n_end_state = worker_end_state_blocks(fetch->engine, fetch->n_arrived),
             at = fetch->n_here + fetch->n_arrived;
    struct block_hash *hashes = n_end_state > 0 ? calloc(n_end_state, sizeof(*hashes)) : NULL;

    if (hashes == NULL) /* without the end state the blocks are of no use and recomputed */
        return;
    worker_end_state_hashes(fetch->engine, fetch->hashes + fetch->n_here, fetch->n_arrived, hashes);
    for (uint32_t i = 0; i < n_end_state; i++) {
        if (worker_end_state_seal(fetch->engine, fetch->blocks[at + i], &hashes[i]))
            kv_set_replicated(fetch->engine->pool, fetch->blocks[at + i], true);
    }
    free(hashes);
}

static void prefix_fetch_on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    struct prefix_fetch *fetch = arg;
    struct kv_pool *pool = fetch->engine->pool;

    fetch->n_arrived = prefix_fetch_n_tokens_blocks(fetch, arrival->n_blocks);
    for (uint32_t i = 0; i < fetch->n_arrived; i++) {
        kv_seal(pool, fetch->blocks[fetch->n_here + i], &fetch->hashes[fetch->n_here + i]);
        kv_set_replicated(pool, fetch->blocks[fetch->n_here + i], true);
    }
    if (arrival->is_whole)
        prefix_fetch_seal_end_state(fetch);
    metric_add(fetch->engine->prefix_fetches->m_bytes, (double)arrival->n_bytes);
    worker_engine_observe_push(fetch->engine, arrival->n_bytes, arrival->elapsed_ns);
    if (!arrival->is_whole)
        log_info("prefix_fetch_incomplete", LOG_ERR(arrival->code),
                 LOG_U64("blocks_here", arrival->n_blocks));
}

static void prefix_fetch_on_closed(void *arg)
{
    prefix_fetch_finish(arg); /* the next tick frees it, because kvxfer is still on the stack */
}

static const struct kvxfer_recv_calls prefix_fetch_calls = {.message = prefix_fetch_on_message,
                                                            .on_arrived = prefix_fetch_on_arrived,
                                                            .on_closed = prefix_fetch_on_closed};

/* ---- beginning ---- */

static void prefix_fetch_request(struct prefix_fetch *fetch)
{
    struct kvxfer_message message = {.kind = KVXFER_FETCH,
                                     .fetch = fetch->number,
                                     .hashes = fetch->hashes + fetch->n_here,
                                     .n_hashes = fetch->n_hashes - fetch->n_here,
                                     .tenant = fetch->has_to_read ? fetch->tenant : 0};

    prefix_fetch_set_state(fetch, PREFIX_FETCH_REQUESTED);
    worker_engine_to_peer(fetch->engine, fetch->transfer.peer, &message);
}

static void prefix_fetch_join(struct prefix_fetch *fetch, struct task *task)
{
    task->fetch = fetch;
    task->fetch_began_ns = clock_now_ns();
    list_push_back(&fetch->waiters, &task->in_fetch);
    fetch->engine->n_fetching++;
}

/* Finds a running fetch that includes the first block that this prompt lacks. */
static struct prefix_fetch *prefix_fetch_find_same(const struct prefix_fetches *fetches,
                                                   const struct block_hash *hashes, uint32_t n_here)
{
    list_for_each (node, &fetches->all) {
        struct prefix_fetch *fetch = container_of(node, struct prefix_fetch, all);

        if (fetch->state != PREFIX_FETCH_CLOSED && fetch->n_here <= n_here && n_here < fetch->n_hashes &&
            block_hash_equal(&fetch->hashes[n_here], &hashes[n_here]))
            return fetch;
    }
    return NULL;
}

/* Copies the hashes: the fetch may outlive the task. */
static struct prefix_fetch *prefix_fetch_new(struct worker_engine *engine, const struct map_choice *choice,
                                             const struct block_hash *hashes, uint32_t n_hashes)
{
    struct prefix_fetch *fetch = calloc(1, sizeof(*fetch));

    if (fetch == NULL)
        return NULL;
    fetch->blocks = calloc(n_hashes + worker_end_state_blocks(engine, n_hashes), sizeof(*fetch->blocks));
    fetch->hashes = calloc(n_hashes, sizeof(*fetch->hashes));
    if (fetch->blocks == NULL || fetch->hashes == NULL) {
        free(fetch->blocks);
        free(fetch->hashes);
        free(fetch);
        return NULL;
    }
    memcpy(fetch->hashes, hashes, n_hashes * sizeof(*hashes));
    fetch->engine = engine;
    fetch->n_hashes = n_hashes;
    fetch->transfer = (struct transfer){.side = TRANSFER_PREFIX_FETCH, .peer = choice->peer};
    fetch->began_ns = clock_now_ns();
    fetch->limit_ns = choice->limit_ns;
    fetch->has_to_read = choice->has_to_read;
    list_init(&fetch->waiters);
    list_push_back(&engine->prefix_fetches->all, &fetch->all);
    engine->prefix_fetches->n++;
    while (fetch->number == 0)
        rng_system(&fetch->number, sizeof(fetch->number));
    fetch->n_here = fetch->n_blocks =
        kv_match(engine->pool, hashes, worker_state_hit(engine, hashes, n_hashes), fetch->blocks);
    return fetch;
}

/* True if the peer can serve prefixes.  A peer whose link is not up yet counts as able. */
static bool prefix_fetch_is_served(const struct worker_engine *engine, uint32_t peer)
{
    const struct peer_facts *facts = worker_engine_peer(engine, peer);

    return facts == NULL || (facts->capabilities & CAPABILITY_ASKED) != 0;
}

/* Returns the owner that the router named, if any. */
static struct map_choice prefix_fetch_named(const struct worker_engine *engine, const struct task_spec *spec)
{
    struct map_choice choice = {.peer = PEER_NONE};

    if (spec->owner != PEER_NONE && spec->owner_tokens > 0 && prefix_fetch_is_served(engine, spec->owner))
        choice = (struct map_choice){
            .peer = spec->owner, .tokens = spec->owner_tokens, .limit_ns = spec->ask_limit_ns};
    return choice;
}

/* Begins a fetch for this task's prompt of n_hashes blocks.  False: the task computes instead. */
static bool prefix_fetch_begin(struct worker_engine *engine, struct task *task,
                               const struct map_choice *choice, uint32_t n_hashes)
{
    struct prefix_fetch *fetch = prefix_fetch_new(engine, choice, task->chain.hashes, n_hashes);

    if (fetch == NULL)
        return false;
    if (choice->is_own)
        worker_map_used(engine);
    fetch->tenant = tenant_number(task->spec.order.work.tenant);
    fetch->first = task;
    prefix_fetch_join(fetch, task);
    if (worker_engine_peer(engine, fetch->transfer.peer) != NULL)
        prefix_fetch_request(fetch);
    return true;
}

bool worker_prefix_fetch_begin(struct worker_engine *engine, struct task *task)
{
    const struct task_spec *spec = &task->spec;
    struct map_choice choice = prefix_fetch_named(engine, spec);
    struct map_question question = {.n_tokens = spec->order.n_tokens};
    struct prefix_fetch *same;

    if (spec->mode == TASK_DECODE || spec->order.n_tokens == 0 || spec->order.work.score_from > 0 ||
        engine->prefix_fetches->n >= MAX_FETCHES || engine->n_fetching >= engine->opts.max_queue ||
        (choice.peer == PEER_NONE && worker_map_is_empty(engine)))
        return false;
    question.n_hashes = worker_chain_hash(engine, task);
    question.hashes = task->chain.hashes;
    question.n_here = worker_state_hit(engine, question.hashes, question.n_hashes);
    if (question.n_here < question.n_hashes)
        worker_map_choose(engine, &question, &choice);
    if (choice.peer == PEER_NONE || question.n_here >= question.n_hashes ||
        question.n_here * prefix_fetch_block_tokens(engine) >= choice.tokens)
        return false; /* no peer has more blocks, or not enough for a fetch to pay */
    same = prefix_fetch_find_same(engine->prefix_fetches, question.hashes, question.n_here);
    if (same == NULL)
        return prefix_fetch_begin(engine, task, &choice, question.n_hashes);
    prefix_fetch_join(same, task);
    return true;
}

void worker_prefix_fetch_leave(struct worker_engine *engine, struct task *task)
{
    struct prefix_fetch *fetch = task->fetch;

    if (fetch == NULL)
        return;
    list_remove(&task->in_fetch);
    task->fetch = NULL;
    engine->n_fetching--;
    if (fetch->first == task)
        fetch->first = NULL;
    if (list_is_empty(&fetch->waiters))
        prefix_fetch_give_up(fetch, E_CANCELLED);
}

/* ---- offers ---- */

/* True if the fetch may take n blocks.  Other tenants keep their shares.  Some blocks stay free, because each running
 * sequence will soon need another one.  Fetches together fill a part of the pool, as reads from stores do; a fetch alone
 * may be larger. */
static bool prefix_fetch_has_room(const struct prefix_fetch *fetch, uint32_t n)
{
    const struct worker_engine *engine = fetch->engine;
    uint32_t n_filling = engine->prefix_fetches->n_filling;

    return kv_available_to(engine->pool, fetch->tenant) >= n &&
           kv_available(engine->pool) >= n + engine->opts.max_seqs &&
           (n_filling == 0 || n_filling + n <= engine->opts.n_blocks / STORE_POOL_SHARE_READS);
}

static int prefix_fetch_take_blocks(struct prefix_fetch *fetch, uint32_t n)
{
    struct worker_engine *engine = fetch->engine;
    int rc = E_KV_FULL;

    if (prefix_fetch_has_room(fetch, n))
        rc = kv_take_for(engine->pool, fetch->tenant, n, fetch->blocks + fetch->n_here);
    if (rc == 0) {
        fetch->n_blocks = fetch->n_here + n;
        engine->prefix_fetches->n_filling += n;
    }
    return rc;
}

static int prefix_fetch_grant(struct prefix_fetch *fetch, const struct kvxfer_message *offer)
{
    struct worker_engine *engine = fetch->engine;
    struct kvxfer_recv_opts recv = {.pool = engine->pool,
                                    .transport = engine->transport,
                                    .calls = &prefix_fetch_calls,
                                    .arg = fetch,
                                    .transfer = offer->transfer,
                                    .blocks = fetch->blocks + fetch->n_here,
                                    .n_blocks = offer->n_blocks,
                                    .n_tokens = offer->n_blocks * prefix_fetch_block_tokens(engine),
                                    .is_fetch = true,
                                    .timeout_ns = engine->opts.grant_timeout_ns};
    uint32_t n_run = worker_end_state_run(engine, offer->n_blocks);
    int rc = n_run == 0 || n_run > fetch->n_hashes - fetch->n_here ? E_PROTO : 0;

    if (rc == 0)
        rc = prefix_fetch_take_blocks(fetch, offer->n_blocks);
    if (rc < 0)
        return rc;
    recv.kind = fetch->transport = worker_engine_kind_for(engine, fetch->transfer.peer);
    rc = worker_transfers_add_incoming(engine, &fetch->transfer, offer->transfer);
    recv.ticket = fetch->transfer.ticket;
    if (rc == 0)
        rc = kvxfer_recv_new(&recv, clock_now_ns(), &fetch->recv);
    if (rc == 0)
        prefix_fetch_set_state(fetch, PREFIX_FETCH_MOVING);
    return rc;
}

static struct prefix_fetch *prefix_fetch_find_number(const struct prefix_fetches *fetches, uint32_t peer,
                                                     uint64_t number)
{
    list_for_each (node, &fetches->all) {
        struct prefix_fetch *fetch = container_of(node, struct prefix_fetch, all);

        if (fetch->number == number && fetch->transfer.peer == peer && fetch->state == PREFIX_FETCH_REQUESTED)
            return fetch;
    }
    return NULL;
}

void worker_prefix_fetch_offer(struct worker_engine *engine, uint32_t peer,
                               const struct kvxfer_message *offer)
{
    struct prefix_fetch *fetch = prefix_fetch_find_number(engine->prefix_fetches, peer, offer->fetch);
    int rc = fetch != NULL ? prefix_fetch_grant(fetch, offer) : E_CANCELLED;

    if (rc == 0)
        return;
    worker_transfers_refuse_offer(engine, peer, offer->transfer, rc);
    if (fetch != NULL)
        prefix_fetch_finish(fetch);
}

void worker_prefix_fetch_refused(struct worker_engine *engine, uint32_t peer, uint64_t number)
{
    struct prefix_fetch *fetch = prefix_fetch_find_number(engine->prefix_fetches, peer, number);

    if (fetch != NULL)
        prefix_fetch_finish(fetch);
}

void worker_prefix_fetch_message(struct transfer *transfer, const struct kvxfer_message *message)
{
    struct prefix_fetch *fetch = prefix_fetch_of(transfer);

    if (fetch->state == PREFIX_FETCH_MOVING)
        kvxfer_recv_message(fetch->recv, message, clock_now_ns());
}

void worker_prefix_fetch_event(struct transfer *transfer, const struct tr_event *event)
{
    struct prefix_fetch *fetch = prefix_fetch_of(transfer);

    if (fetch->state == PREFIX_FETCH_MOVING)
        kvxfer_recv_event(fetch->recv, event, clock_now_ns());
}

void worker_prefix_fetch_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    list_for_each_safe (node, spare, &engine->prefix_fetches->all) {
        struct prefix_fetch *fetch = container_of(node, struct prefix_fetch, all);

        if (fetch->transfer.peer != peer || fetch->state == PREFIX_FETCH_CLOSED)
            continue;
        if (is_up && fetch->state == PREFIX_FETCH_LINKING && prefix_fetch_is_served(engine, peer))
            prefix_fetch_request(fetch);
        else if (is_up && fetch->state == PREFIX_FETCH_LINKING)
            prefix_fetch_finish(fetch);
        else if (!is_up && fetch->state == PREFIX_FETCH_MOVING)
            kvxfer_recv_peer_lost(fetch->recv);
        else if (!is_up)
            prefix_fetch_finish(fetch);
    }
}

void worker_prefix_fetch_tick(struct worker_engine *engine, uint64_t now_ns)
{
    list_for_each_safe (node, spare, &engine->prefix_fetches->all) {
        struct prefix_fetch *fetch = container_of(node, struct prefix_fetch, all);

        if (fetch->state == PREFIX_FETCH_MOVING)
            kvxfer_recv_tick(fetch->recv, now_ns);
        if (fetch->state != PREFIX_FETCH_CLOSED && now_ns - fetch->began_ns > fetch->limit_ns)
            prefix_fetch_give_up(fetch, E_TIMEOUT);
        if (fetch->state == PREFIX_FETCH_CLOSED)
            prefix_fetch_free(fetch);
    }
}

uint32_t worker_prefix_fetch_count(const struct worker_engine *engine)
{
    return engine->prefix_fetches->n;
}

int worker_prefix_fetch_open(struct worker_engine *engine)
{
    struct metrics *metrics = engine->opts.metrics;
    struct prefix_fetches *fetches = calloc(1, sizeof(*fetches));
    struct metric_family *family;

    if (fetches == NULL)
        return E_NOMEM;
    list_init(&fetches->all);
    engine->prefix_fetches = fetches;
    family = metric_family(metrics, METRIC_COUNTER, "baton_prefix_fetches_total",
                           "Fetches of cached blocks from peers, by result.", "result");
    fetches->m_done = metric_series(family, (const char *const[]){"done"});
    fetches->m_empty = metric_series(family, (const char *const[]){"empty"});
    fetches->m_tokens = metric_single(metrics, METRIC_COUNTER, "baton_prefix_fetch_tokens_total",
                                      "Tokens whose KV came by prefix fetches.");
    fetches->m_bytes = metric_single(metrics, METRIC_COUNTER, "baton_prefix_fetch_bytes_total",
                                     "KV bytes that came by prefix fetches.");
    return 0;
}

/* The transport is closed, so no peer writes any more. */
void worker_prefix_fetch_close(struct worker_engine *engine)
{
    struct prefix_fetches *fetches = engine->prefix_fetches;

    if (fetches == NULL)
        return;
    while (!list_is_empty(&fetches->all)) {
        struct prefix_fetch *fetch = container_of(fetches->all.next, struct prefix_fetch, all);

        prefix_fetch_set_state(fetch, PREFIX_FETCH_CLOSED);
        while (!list_is_empty(&fetch->waiters)) {
            struct task *task = container_of(fetch->waiters.next, struct task, in_fetch);

            list_remove(&task->in_fetch);
            task->fetch = NULL;
        }
        prefix_fetch_free(fetch);
    }
    free(fetches);
    engine->prefix_fetches = NULL;
}
