/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix fetch: the asker's end of a push of cached blocks.
 *
 *             peer's link up           OFFER               pieces, or not
 *    LINKING ----------------> ASKED ---------> ARRIVING ------------------> OVER --> freed
 *       |                        |                 |
 *       +--- link lost, too late, refused, no task waits any more ---> OVER
 *
 * A task that may fetch waits here before it is begun (tasks.c). The router names the owner, or this
 * worker's own map does if it knows of more blocks (peer_map.c). The task's own hashes identify the
 * missing blocks: hashes never come from outside. The content is trusted because every piece was verified
 * and only the owner knew the ticket. Blocks are taken when the OFFER says how many will come, so an owner
 * without blocks costs none. Arrived blocks are sealed and cached, and the scheduler finds them there. The
 * tasks then begin like any other, whatever the result.
 *
 * A second task that lacks the same block waits for the same fetch. A fetch that no task waits for is
 * cancelled. The prefix blocks that are already in the pool are referenced meanwhile, because arriving
 * blocks are useless without them.
 *
 * No task waits longer than the limit that came with the request (about the time of computing). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "transfer/kvxfer/recv.h"
#include "cache/prefix/tenant.h"
#include "proto/capabilities.h"
#include "worker/runner/share_priv.h"

#define MAX_ASKS 32

enum ask_state {
    ASK_LINKING,  /* the link to the owner is not up yet */
    ASK_ASKED,    /* ASK is sent, no answer yet */
    ASK_ARRIVING, /* granted: see transfer/kvxfer/recv.c */
    ASK_OVER      /* no task waits, no block is held; to be freed */
};

struct asks { /* of this worker: all prefix fetches */
    struct list all;
    struct hashmap *by_ticket;
    uint32_t n_asks;
    struct metric *m_tokens, *m_done, *m_in_vain, *m_bytes;
};

struct ask {
    struct list all;
    struct worker_engine *engine;
    enum ask_state state;
    uint64_t number; /* ours, random */
    uint32_t peer;
    kv_tenant tenant;          /* the tenant whose quota it counts against */
    struct list waiters;       /* struct task, by in_ask */
    const struct task *owner;  /* the task that began the fetch; NULL: it left */
    struct block_hash *hashes; /* [n_hashes] of the prompt's blocks from the first */
    uint32_t n_hashes, n_here;
    kv_block_id *blocks; /* a reference each: [0, n_here) were in the pool, the rest are filled by the
                          * transfer */
    uint32_t n_blocks;
    uint32_t n_arrived; /* of the latter */
    uint64_t transfer, ticket;
    struct kvxfer_recv *recv;
    enum tr_kind transport;
    uint64_t began_ns, limit_ns;
    bool has_to_read; /* the owner reads a part from its disk */
};

static uint32_t block_tokens(const struct worker_engine *engine)
{
    return engine->opts.engine.info.layout.block_tokens;
}

static void give_back(struct ask *ask)
{
    while (ask->n_blocks > 0)
        kv_unref(ask->engine->pool, ask->blocks[--ask->n_blocks]);
}

static void ask_free(struct ask *ask)
{
    struct asks *asks = ask->engine->asks;

    while (!list_is_empty(&ask->waiters))
        worker_asks_leave(ask->engine, container_of(ask->waiters.next, struct task, in_ask));
    if (ask->ticket != 0)
        hashmap_remove(asks->by_ticket, &ask->ticket);
    list_remove(&ask->all);
    asks->n_asks--;
    kvxfer_recv_free(ask->recv);
    give_back(ask);
    free(ask->hashes);
    free(ask->blocks);
    free(ask);
}

/* ---- the end ---- */

static void release(struct ask *ask, struct task *task)
{
    struct worker_engine *engine = ask->engine;

    list_remove(&task->in_ask);
    task->ask = NULL;
    engine->n_asking--;
    if (task == ask->owner && ask->n_arrived > 0) {
        task->fetched_from = ask->n_here * block_tokens(engine);
        task->fetched_to = (ask->n_here + ask->n_arrived) * block_tokens(engine);
        str_copy(task->transport, sizeof(task->transport), worker_transport_name(ask->transport));
    }
    task->transfer_ns = clock_now_ns() - task->asked_ns;
    worker_tasks_go_on(engine, task);
}

/* Only the task that began the fetch reports the tokens as transferred; tasks that joined found them here. */
static void finish(struct ask *ask)
{
    struct asks *asks = ask->engine->asks;

    if (ask->state == ASK_OVER)
        return;
    ask->state = ASK_OVER;
    metric_add(ask->n_arrived > 0 ? asks->m_done : asks->m_in_vain, 1);
    metric_add(asks->m_tokens, (double)ask->n_arrived * block_tokens(ask->engine));
    give_back(ask);
    while (!list_is_empty(&ask->waiters))
        release(ask, container_of(ask->waiters.next, struct task, in_ask));
}

static void give_up(struct ask *ask, int code)
{
    if (ask->state == ASK_ARRIVING)
        kvxfer_recv_cancel(ask->recv, code, false); /* leading blocks that arrived are kept */
    else
        finish(ask);
}

/* ---- callbacks of transfer/kvxfer/recv ---- */

static void on_message(void *arg, const struct kvxfer_message *message)
{
    struct ask *ask = arg;

    worker_engine_to_peer(ask->engine, ask->peer, message);
}

static void on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    struct ask *ask = arg;
    struct kv_pool *pool = ask->engine->pool;

    for (uint32_t i = 0; i < arrival->n_blocks; i++) {
        kv_seal(pool, ask->blocks[ask->n_here + i], &ask->hashes[ask->n_here + i]);
        kv_share(pool, ask->blocks[ask->n_here + i], true);
    }
    ask->n_arrived = arrival->n_blocks;
    metric_add(ask->engine->asks->m_bytes, (double)arrival->n_bytes);
    worker_engine_observe_push(ask->engine, arrival->n_bytes, arrival->elapsed_ns);
    if (!arrival->is_whole)
        log_info("ask_incomplete", LOG_ERR(arrival->code), LOG_U64("blocks_here", arrival->n_blocks));
}

static void on_closed(void *arg)
{
    finish(arg); /* freed by the next tick: kvxfer is still on the stack */
}

static const struct kvxfer_recv_calls recv_calls = {
    .message = on_message, .on_arrived = on_arrived, .on_closed = on_closed};

/* ---- beginning ---- */

static void say(struct ask *ask)
{
    struct kvxfer_message message = {.kind = KVXFER_ASK,
                                     .ask = ask->number,
                                     .hashes = ask->hashes + ask->n_here,
                                     .n_hashes = ask->n_hashes - ask->n_here,
                                     .tenant = ask->has_to_read ? ask->tenant : 0};

    ask->state = ASK_ASKED;
    worker_engine_to_peer(ask->engine, ask->peer, &message);
}

/* The number of blocks of the task's prompt that a cache may supply; their hashes in *out, heap. */
static uint32_t hash_prompt(const struct worker_engine *engine, const struct task *task,
                            struct block_hash **out)
{
    const struct task_spec *spec = &task->spec;
    uint32_t n = (spec->order.n_tokens - 1) / block_tokens(engine);
    struct prefix_roots roots;

    *out = calloc(n + (size_t)1, sizeof(**out));
    if (*out == NULL ||
        prefix_roots_derive(engine->opts.prefix_key, engine->opts.model_fingerprint, spec->order.work.tenant,
                            spec->order.work.public_tokens, &roots) < 0)
        return 0;
    return (uint32_t)prefix_roots_chain(&roots, spec->order.tokens, (size_t)n * block_tokens(engine),
                                        block_tokens(engine), *out);
}

static void join(struct ask *ask, struct task *task)
{
    task->ask = ask;
    task->asked_ns = clock_now_ns();
    list_push_back(&ask->waiters, &task->in_ask);
    ask->engine->n_asking++;
}

/* A fetch under way that will bring the first block that this prompt lacks. */
static struct ask *find_same(const struct asks *asks, const struct block_hash *hashes, uint32_t n_here)
{
    list_for_each (node, &asks->all) {
        struct ask *ask = container_of(node, struct ask, all);

        if (ask->state != ASK_OVER && ask->n_here <= n_here && n_here < ask->n_hashes &&
            block_hash_equal(&ask->hashes[n_here], &hashes[n_here]))
            return ask;
    }
    return NULL;
}

/* Takes the hashes. */
static struct ask *ask_new(struct worker_engine *engine, const struct map_choice *choice,
                           struct block_hash *hashes, uint32_t n_hashes)
{
    struct ask *ask = calloc(1, sizeof(*ask));

    if (ask != NULL)
        ask->blocks = calloc(n_hashes, sizeof(*ask->blocks));
    if (ask == NULL || ask->blocks == NULL) {
        free(ask);
        free(hashes);
        return NULL;
    }
    ask->engine = engine;
    ask->hashes = hashes;
    ask->n_hashes = n_hashes;
    ask->peer = choice->peer;
    ask->began_ns = clock_now_ns();
    ask->limit_ns = choice->limit_ns;
    ask->has_to_read = choice->has_to_read;
    list_init(&ask->waiters);
    list_push_back(&engine->asks->all, &ask->all);
    engine->asks->n_asks++;
    while (ask->number == 0)
        rng_system(&ask->number, sizeof(ask->number));
    ask->n_here = ask->n_blocks = kv_match(engine->pool, hashes, n_hashes, ask->blocks);
    return ask;
}

/* A peer whose link is not up yet counts as capable. */
static bool may_be_asked(const struct worker_engine *engine, uint32_t peer)
{
    const struct peer_facts *facts = worker_engine_peer(engine, peer);

    return facts == NULL || (facts->capabilities & CAPABILITY_ASKED) != 0;
}

/* The owner that the router named, if any. */
static struct map_choice named(const struct worker_engine *engine, const struct task_spec *spec)
{
    struct map_choice choice = {.peer = PEER_NONE};

    if (spec->holder != PEER_NONE && spec->holder_tokens > 0 && may_be_asked(engine, spec->holder))
        choice = (struct map_choice){
            .peer = spec->holder, .tokens = spec->holder_tokens, .limit_ns = spec->ask_limit_ns};
    return choice;
}

/* Begins a fetch for this task. Takes the hashes. False: the task computes. */
static bool begin(struct worker_engine *engine, struct task *task, const struct map_choice *choice,
                  struct block_hash *hashes, uint32_t n_hashes)
{
    struct ask *ask = ask_new(engine, choice, hashes, n_hashes);

    if (ask == NULL)
        return false;
    if (choice->is_own)
        worker_map_asked(engine);
    ask->tenant = tenant_number(task->spec.order.work.tenant);
    ask->owner = task;
    join(ask, task);
    if (worker_engine_peer(engine, ask->peer) != NULL)
        say(ask);
    return true;
}

bool worker_asks_begin(struct worker_engine *engine, struct task *task)
{
    const struct task_spec *spec = &task->spec;
    struct map_choice choice = named(engine, spec);
    struct map_question question = {.n_tokens = spec->order.n_tokens};
    struct block_hash *hashes;
    struct ask *same;

    if (spec->mode == TASK_DECODE || spec->order.n_tokens == 0 || spec->order.work.score_from > 0 ||
        engine->asks->n_asks >= MAX_ASKS || engine->n_asking >= engine->opts.max_queue ||
        (choice.peer == PEER_NONE && worker_map_is_empty(engine)))
        return false;
    question.n_hashes = hash_prompt(engine, task, &hashes);
    question.hashes = hashes;
    question.n_here = kv_peek(engine->pool, hashes, question.n_hashes);
    if (question.n_here < question.n_hashes)
        worker_map_choose(engine, &question, &choice);
    if (choice.peer == PEER_NONE || question.n_here >= question.n_hashes ||
        question.n_here * block_tokens(engine) >= choice.tokens) {
        free(hashes);
        return false; /* no peer has more, or not enough to pay */
    }
    same = find_same(engine->asks, hashes, question.n_here);
    if (same == NULL)
        return begin(engine, task, &choice, hashes, question.n_hashes);
    free(hashes);
    join(same, task);
    return true;
}

void worker_asks_leave(struct worker_engine *engine, struct task *task)
{
    struct ask *ask = task->ask;

    if (ask == NULL)
        return;
    list_remove(&task->in_ask);
    task->ask = NULL;
    engine->n_asking--;
    if (ask->owner == task)
        ask->owner = NULL;
    if (list_is_empty(&ask->waiters))
        give_up(ask, E_CANCELLED);
}

/* ---- offers ---- */

static void refuse_offer(struct worker_engine *engine, uint32_t peer, uint64_t transfer, int code)
{
    struct kvxfer_message refused = {.kind = KVXFER_REFUSED, .transfer = transfer, .code = code};

    worker_engine_to_peer(engine, peer, &refused);
}

/* A fetch must not displace running sequences: each of them soon wants its next block. */
static int take_blocks(struct ask *ask, uint32_t n)
{
    struct kv_pool *pool = ask->engine->pool;
    int rc = E_KV_FULL;

    if (kv_available(pool) >= n + ask->engine->opts.max_seqs)
        rc = kv_take_for(pool, ask->tenant, n, ask->blocks + ask->n_here);
    if (rc == 0)
        ask->n_blocks = ask->n_here + n;
    return rc;
}

static int grant(struct ask *ask, const struct kvxfer_message *offer)
{
    struct worker_engine *engine = ask->engine;
    struct kvxfer_recv_opts recv = {.pool = engine->pool,
                                    .transport = engine->transport,
                                    .calls = &recv_calls,
                                    .arg = ask,
                                    .transfer = offer->transfer,
                                    .blocks = ask->blocks + ask->n_here,
                                    .n_blocks = offer->n_blocks,
                                    .n_tokens = offer->n_blocks * block_tokens(engine),
                                    .is_asked = true,
                                    .timeout_ns = engine->opts.grant_timeout_ns};
    int rc = offer->n_blocks == 0 || offer->n_blocks > ask->n_hashes - ask->n_here ? E_PROTO : 0;

    if (rc == 0)
        rc = take_blocks(ask, offer->n_blocks);
    if (rc < 0)
        return rc;
    recv.kind = ask->transport = worker_engine_kind_for(engine, ask->peer);
    while (ask->ticket == 0)
        rng_system(&ask->ticket, sizeof(ask->ticket));
    recv.ticket = ask->ticket;
    rc = hashmap_put(engine->asks->by_ticket, &ask->ticket, ask, NULL);
    if (rc == 0)
        rc = kvxfer_recv_new(&recv, clock_now_ns(), &ask->recv);
    if (rc == 0) {
        ask->transfer = offer->transfer;
        ask->state = ASK_ARRIVING;
    }
    return rc;
}

static struct ask *find_number(const struct asks *asks, uint32_t peer, uint64_t number)
{
    list_for_each (node, &asks->all) {
        struct ask *ask = container_of(node, struct ask, all);

        if (ask->number == number && ask->peer == peer && ask->state == ASK_ASKED)
            return ask;
    }
    return NULL;
}

static struct ask *find_transfer(const struct asks *asks, uint32_t peer, uint64_t transfer)
{
    list_for_each (node, &asks->all) {
        struct ask *ask = container_of(node, struct ask, all);

        if (ask->state == ASK_ARRIVING && ask->peer == peer && ask->transfer == transfer)
            return ask;
    }
    return NULL;
}

static void on_offer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *offer)
{
    struct ask *ask = find_number(engine->asks, peer, offer->ask);
    int rc = ask != NULL ? grant(ask, offer) : E_CANCELLED;

    if (rc == 0)
        return;
    refuse_offer(engine, peer, offer->transfer, rc);
    if (ask != NULL)
        finish(ask);
}

bool worker_asks_message(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message)
{
    struct ask *ask;

    if (message->kind == KVXFER_OFFER && message->ask != 0) {
        on_offer(engine, peer, message);
        return true;
    }
    if (message->kind == KVXFER_ASK_REFUSED) {
        ask = find_number(engine->asks, peer, message->ask);
        if (ask != NULL)
            finish(ask);
        return true;
    }
    if ((message->kind != KVXFER_CANCEL && message->kind != KVXFER_STOPPED) || !message->from_sender)
        return false;
    ask = find_transfer(engine->asks, peer, message->transfer);
    if (ask == NULL)
        return false;
    kvxfer_recv_message(ask->recv, message, clock_now_ns());
    return true;
}

bool worker_asks_transport(struct worker_engine *engine, const struct tr_event *event)
{
    struct ask *ask;

    if (event->kind == TR_PUSH_SENT || event->kind == TR_PUSH_FAILED || event->kind == TR_PUSH_STOPPED)
        return false;
    ask = hashmap_get(engine->asks->by_ticket, &event->id);
    if (ask == NULL || ask->recv == NULL)
        return false;
    kvxfer_recv_event(ask->recv, event, clock_now_ns());
    return true;
}

void worker_asks_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    list_for_each_safe (node, spare, &engine->asks->all) {
        struct ask *ask = container_of(node, struct ask, all);

        if (ask->peer != peer || ask->state == ASK_OVER)
            continue;
        if (is_up && ask->state == ASK_LINKING && may_be_asked(engine, peer))
            say(ask);
        else if (is_up && ask->state == ASK_LINKING)
            finish(ask);
        else if (!is_up && ask->state == ASK_ARRIVING)
            kvxfer_recv_peer_lost(ask->recv);
        else if (!is_up)
            finish(ask);
    }
}

void worker_asks_tick(struct worker_engine *engine, uint64_t now_ns)
{
    list_for_each_safe (node, spare, &engine->asks->all) {
        struct ask *ask = container_of(node, struct ask, all);

        if (ask->state == ASK_ARRIVING)
            kvxfer_recv_tick(ask->recv, now_ns);
        if (ask->state != ASK_OVER && now_ns - ask->began_ns > ask->limit_ns)
            give_up(ask, E_TIMEOUT);
        if (ask->state == ASK_OVER)
            ask_free(ask);
    }
}

uint32_t worker_asks_count(const struct worker_engine *engine)
{
    return engine->asks->n_asks;
}

int worker_asks_open(struct worker_engine *engine)
{
    struct metrics *metrics = engine->opts.metrics;
    struct asks *asks = calloc(1, sizeof(*asks));
    struct metric_family *family;

    if (asks == NULL)
        return E_NOMEM;
    list_init(&asks->all);
    engine->asks = asks;
    family = metric_family(metrics, METRIC_COUNTER, "baton_asks_total",
                           "Pushes of cached blocks that this worker asked others for, by result.", "result");
    asks->m_done = metric_series(family, (const char *const[]){"done"});
    asks->m_in_vain = metric_series(family, (const char *const[]){"in_vain"});
    asks->m_tokens = metric_single(metrics, METRIC_COUNTER, "baton_asks_received_tokens_total",
                                   "Tokens whose KV came because this worker asked for it.");
    asks->m_bytes = metric_single(metrics, METRIC_COUNTER, "baton_asks_received_bytes_total",
                                  "KV bytes that came because this worker asked.");
    return hashmap_new(sizeof(uint64_t), &asks->by_ticket);
}

/* The transport is closed: no peer writes any more. */
void worker_asks_close(struct worker_engine *engine)
{
    struct asks *asks = engine->asks;

    if (asks == NULL)
        return;
    while (!list_is_empty(&asks->all)) {
        struct ask *ask = container_of(asks->all.next, struct ask, all);

        ask->state = ASK_OVER;
        while (!list_is_empty(&ask->waiters)) {
            struct task *task = container_of(ask->waiters.next, struct task, in_ask);

            list_remove(&task->in_ask);
            task->ask = NULL;
        }
        ask_free(ask);
    }
    hashmap_free(asks->by_ticket);
    free(asks);
    engine->asks = NULL;
}
