/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix serve: gives cached blocks to a peer that fetches them.
 *
 *    request --found--> MOVING --all sent, DONE--> STOPPING --stopped--> CLOSED --> freed
 *     |\                  ^ \--- every way out of transfer/kvxfer/send.h ---^
 *     | none, too many: FETCH_REFUSED
 *     on disk --> READING --read or failed-----> found?
 *
 * MOVING covers OFFERED to PUSHED of the sender (transfer/kvxfer/send.c). A request that names a tenant
 * (Ask.tenant) also triggers reads of blocks that are on disk only (disk.c), on that tenant's account.  The
 * OFFER then waits until they are in the pool or take too long.  It covers the blocks in the pool.  A serve
 * holds a reference to each block until the transport confirms that it reads no more. transfer/kvxfer/send
 * also leases them.
 *
 * A push must not delay a hand-off.  So few serves run at once, and together they queue at most one window of
 * pieces at the transport.  A hand-off's piece therefore waits for one window at most.  Serves take turns,
 * one window each. */
#include "worker/runner/state_list_priv.h"
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "transfer/kvxfer/send.h"
#include "worker/runner/disk_priv.h"

#define MAX_SERVES   4
#define WINDOW_BYTES (4u << 20)

enum prefix_serve_state {
    PREFIX_SERVE_READING,  /* waits for blocks that are on disk only */
    PREFIX_SERVE_MOVING,   /* offered, granted or pushed: see transfer/kvxfer/send.c */
    PREFIX_SERVE_STOPPING, /* the result is known; the transport may still read the blocks */
    PREFIX_SERVE_CLOSED    /* the transport reads no more; the next tick frees it */
};

struct prefix_serves { /* all prefix serves of a worker */
    struct list all;
    uint32_t n;
    struct prefix_serve *sending; /* the serve whose window is at the transport; NULL: none */
    struct metric *m_tokens, *m_done, *m_failed, *m_refused;
};

struct prefix_serve {
    struct transfer transfer; /* peer: the worker that fetches */
    struct list all;          /* serves in the order of their turns */
    struct worker_engine *engine;
    enum prefix_serve_state state;
    uint64_t fetch;            /* number of the fetch, chosen by the peer */
    struct kvxfer_send *send;  /* NULL: READING */
    uint64_t read;             /* READING: the read that it waits for */
    struct block_hash *hashes; /* [n_hashes] the requested blocks; freed when the table is final */
    uint32_t n_hashes;
    kv_block_id *table; /* [n_hashes and an end state]; the first n_blocks hold a reference each */
    uint32_t n_blocks;
    uint32_t layer, n_given; /* the layer being sent, and how many of its blocks were queued; earlier layers
                              * are complete */
    uint32_t n_pieces;       /* pieces queued so far; the turn ends when the transport has sent them */
    uint64_t moved_ns;
};

static const char *const prefix_serve_states[] = {"reading", "moving", "stopping", "closed"};
CHECK_ROWS(prefix_serve_states, PREFIX_SERVE_CLOSED + 1);

static void prefix_serve_set_state(struct prefix_serve *serve, enum prefix_serve_state state)
{
    log_debug("prefix_serve_state", LOG_U64("transfer", serve->transfer.id),
              LOG_STR("from", prefix_serve_states[serve->state]), LOG_STR("to", prefix_serve_states[state]));
    serve->state = state;
}

static uint32_t prefix_serve_n_layers(const struct worker_engine *engine)
{
    return engine->opts.engine.info.layout.n_layers;
}

static void prefix_serve_give_back(struct prefix_serve *serve)
{
    while (serve->n_blocks > 0)
        kv_unref(serve->engine->pool, serve->table[--serve->n_blocks]);
}

static void prefix_serve_free(struct prefix_serve *serve)
{
    struct prefix_serves *serves = serve->engine->prefix_serves;

    if (serves->sending == serve)
        serves->sending = NULL;
    worker_transfers_remove(serve->engine, &serve->transfer);
    list_remove(&serve->all);
    serves->n--;
    kvxfer_send_free(serve->send);
    prefix_serve_give_back(serve);
    free(serve->table);
    free(serve->hashes);
    free(serve);
}

static struct prefix_serve *prefix_serve_of(struct transfer *transfer)
{
    return container_of(transfer, struct prefix_serve, transfer);
}

/* ---- the window ---- */

static bool prefix_serve_is_given(const struct prefix_serve *serve)
{
    return serve->layer == prefix_serve_n_layers(serve->engine);
}

/* Queues the next window of this serve's pieces at the sender. */
static void prefix_serve_give_window(struct prefix_serve *serve)
{
    size_t piece_bytes = kv_layout_layer_block_bytes(&serve->engine->opts.engine.info.layout);
    uint32_t n_left = (uint32_t)(WINDOW_BYTES / piece_bytes) + 1;

    while (n_left > 0 && !prefix_serve_is_given(serve) && serve->state == PREFIX_SERVE_MOVING) {
        uint32_t n = serve->n_blocks - serve->n_given < n_left ? serve->n_blocks - serve->n_given : n_left;

        serve->n_given += n;
        serve->n_pieces += n;
        n_left -= n;
        kvxfer_send_ready(serve->send, serve->layer, serve->n_given, serve->table);
        if (serve->n_given == serve->n_blocks) {
            serve->layer++;
            serve->n_given = 0;
        }
    }
}

/* Starts the next serve that is granted and has pieces left. */
static void prefix_serve_next_turn(struct prefix_serves *serves)
{
    if (serves->sending != NULL)
        return;
    list_for_each_safe (node, spare, &serves->all) {
        struct prefix_serve *serve = container_of(node, struct prefix_serve, all);

        if (serve->state != PREFIX_SERVE_MOVING || prefix_serve_is_given(serve) ||
            !kvxfer_send_is_granted(serve->send))
            continue;
        serves->sending = serve;
        serve->moved_ns = clock_now_ns();
        list_remove(&serve->all);
        list_push_back(&serves->all, &serve->all);
        prefix_serve_give_window(serve);
        return;
    }
}

static void prefix_serve_end_turn(struct prefix_serve *serve)
{
    struct prefix_serves *serves = serve->engine->prefix_serves;

    if (serves->sending == serve)
        serves->sending = NULL;
    prefix_serve_next_turn(serves);
}

/* ---- callbacks of transfer/kvxfer/send ---- */

static void prefix_serve_on_message(void *arg, const struct kvxfer_message *message)
{
    struct prefix_serve *serve = arg;

    worker_engine_to_peer(serve->engine, serve->transfer.peer, message);
}

static void prefix_serve_on_over(void *arg, int result)
{
    struct prefix_serve *serve = arg;
    struct prefix_serves *serves = serve->engine->prefix_serves;

    prefix_serve_set_state(serve, PREFIX_SERVE_STOPPING);
    metric_add(result == 0 ? serves->m_done : serves->m_failed, 1);
    if (result == 0)
        metric_add(serves->m_tokens, (double)worker_end_state_run(serve->engine, serve->n_blocks) *
                                         serve->engine->opts.engine.info.layout.block_tokens);
}

static void prefix_serve_on_closed(void *arg)
{
    prefix_serve_set_state(arg, PREFIX_SERVE_CLOSED);
}

static const struct kvxfer_send_calls prefix_serve_calls = {
    .message = prefix_serve_on_message, .on_over = prefix_serve_on_over, .on_closed = prefix_serve_on_closed};

/* ---- requests ---- */

static void prefix_serve_refuse(struct worker_engine *engine, uint32_t peer, uint64_t fetch, int code)
{
    struct kvxfer_message refused = {.kind = KVXFER_FETCH_REFUSED, .fetch = fetch, .code = code};

    metric_add(engine->prefix_serves->m_refused, 1);
    worker_engine_to_peer(engine, peer, &refused);
}

static int prefix_serve_start_send(struct prefix_serve *serve, const struct peer_facts *peer)
{
    struct worker_engine *engine = serve->engine;
    struct kvxfer_send_opts send = {.pool = engine->pool,
                                    .transport = engine->transport,
                                    .calls = &prefix_serve_calls,
                                    .arg = serve,
                                    .transfer = serve->transfer.id,
                                    .fetch = serve->fetch,
                                    .n_layers = prefix_serve_n_layers(engine),
                                    .n_blocks = serve->n_blocks,
                                    .n_tokens =
                                        serve->n_blocks * engine->opts.engine.info.layout.block_tokens,
                                    .tcp_address = peer->tcp_address,
                                    .unix_path = peer->unix_path,
                                    .timeout_ns = engine->opts.grant_timeout_ns};
    int rc = kvxfer_send_new(&send, clock_now_ns(), &serve->send);

    if (rc == 0)
        prefix_serve_set_state(serve, PREFIX_SERVE_MOVING);
    return rc;
}

/* Offers the blocks that are in the pool now. */
static int prefix_serve_offer(struct prefix_serve *serve)
{
    const struct peer_facts *facts = worker_engine_peer(serve->engine, serve->transfer.peer);
    kv_block_id *table =
        calloc(serve->n_hashes + worker_end_state_blocks(serve->engine, serve->n_hashes), sizeof(*table));
    uint32_t n;

    if (table == NULL)
        return E_NOMEM;
    n = worker_state_match(serve->engine, serve->hashes, serve->n_hashes, table);
    prefix_serve_give_back(serve); /* the new table includes the blocks of the old one */
    free(serve->table);
    free(serve->hashes);
    serve->hashes = NULL;
    serve->table = table;
    serve->n_blocks = n;
    serve->moved_ns = clock_now_ns();
    if (n == 0 || facts == NULL)
        return E_NOT_FOUND;
    return prefix_serve_start_send(serve, facts);
}

/* Finds the blocks in the pool.  If the peer asks for it, first reads blocks that are on disk only. */
static int prefix_serve_find_blocks(struct prefix_serve *serve, const struct kvxfer_message *request)
{
    struct worker_engine *engine = serve->engine;

    serve->fetch = request->fetch;
    serve->n_hashes = request->n_hashes;
    serve->hashes = malloc(request->n_hashes * sizeof(*serve->hashes));
    serve->table = calloc(request->n_hashes, sizeof(*serve->table));
    if (serve->hashes == NULL || serve->table == NULL)
        return E_NOMEM;
    memcpy(serve->hashes, request->hashes, request->n_hashes * sizeof(*serve->hashes));
    if (worker_transfers_add_outgoing(engine, &serve->transfer) < 0)
        return E_NOMEM;
    if (request->tenant == 0)
        return prefix_serve_offer(serve);
    serve->n_blocks = kv_match(engine->pool, serve->hashes, serve->n_hashes, serve->table);
    serve->read = worker_disk_fetch(engine, request->tenant, serve->hashes, serve->n_hashes);
    return serve->read != 0 ? 0 : prefix_serve_offer(serve);
}

static int prefix_serve_begin(struct worker_engine *engine, const struct kvxfer_message *request,
                              uint32_t peer)
{
    struct prefix_serves *serves = engine->prefix_serves;
    struct prefix_serve *serve;
    int rc;

    if (worker_engine_peer(engine, peer) == NULL)
        return E_PEER;
    if (serves->n >= MAX_SERVES)
        return E_OVERLOADED;
    serve = calloc(1, sizeof(*serve));
    if (serve == NULL)
        return E_NOMEM;
    serve->engine = engine;
    serve->transfer = (struct transfer){.side = TRANSFER_PREFIX_SERVE, .peer = peer};
    list_push_back(&serves->all, &serve->all);
    serves->n++;
    rc = prefix_serve_find_blocks(serve, request);
    if (rc < 0) {
        prefix_serve_free(serve);
        return E_NOT_FOUND;
    }
    return 0;
}

void worker_prefix_serve_read(struct worker_engine *engine, uint64_t read)
{
    list_for_each_safe (node, spare, &engine->prefix_serves->all) {
        struct prefix_serve *serve = container_of(node, struct prefix_serve, all);

        if (serve->state != PREFIX_SERVE_READING || serve->read != read)
            continue;
        serve->read = 0;
        if (prefix_serve_offer(serve) == 0)
            continue;
        prefix_serve_refuse(engine, serve->transfer.peer, serve->fetch, E_NOT_FOUND);
        prefix_serve_free(serve);
    }
}

void worker_prefix_serve_request(struct worker_engine *engine, uint32_t peer,
                                 const struct kvxfer_message *request)
{
    int rc = prefix_serve_begin(engine, request, peer);

    if (rc < 0)
        prefix_serve_refuse(engine, peer, request->fetch, rc);
}

void worker_prefix_serve_message(struct transfer *transfer, const struct kvxfer_message *message)
{
    struct prefix_serve *serve = prefix_serve_of(transfer);

    if (serve->state == PREFIX_SERVE_READING)
        return;
    kvxfer_send_message(serve->send, message, clock_now_ns());
    if (serve->state != PREFIX_SERVE_MOVING)
        prefix_serve_end_turn(serve);
    else
        prefix_serve_next_turn(serve->engine->prefix_serves);
}

void worker_prefix_serve_event(struct transfer *transfer, const struct tr_event *event)
{
    struct prefix_serve *serve = prefix_serve_of(transfer);

    if (serve->state == PREFIX_SERVE_READING)
        return;
    serve->moved_ns = clock_now_ns();
    kvxfer_send_event(serve->send, event, serve->moved_ns);
    if (serve->state != PREFIX_SERVE_MOVING ||
        (event->kind == TR_PUSH_SENT && event->n_pieces >= serve->n_pieces))
        prefix_serve_end_turn(serve);
}

void worker_prefix_serve_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    if (is_up)
        return;
    list_for_each_safe (node, spare, &engine->prefix_serves->all) {
        struct prefix_serve *serve = container_of(node, struct prefix_serve, all);

        if (serve->transfer.peer == peer && serve->state == PREFIX_SERVE_READING)
            prefix_serve_free(serve); /* blocks that were read for it stay cached */
        else if (serve->transfer.peer == peer)
            kvxfer_send_peer_lost(serve->send);
    }
}

void worker_prefix_serve_tick(struct worker_engine *engine, uint64_t now_ns)
{
    list_for_each_safe (node, spare, &engine->prefix_serves->all) {
        struct prefix_serve *serve = container_of(node, struct prefix_serve, all);

        if (serve->state == PREFIX_SERVE_READING)
            continue; /* the end of its read, or its time limit in disk.c, moves it on */
        kvxfer_send_tick(serve->send, now_ns);
        if (engine->prefix_serves->sending == serve && serve->state == PREFIX_SERVE_MOVING &&
            now_ns - serve->moved_ns > engine->opts.grant_timeout_ns)
            kvxfer_send_cancel(serve->send, E_TIMEOUT); /* the transport does not take its window */
        if (serve->state == PREFIX_SERVE_CLOSED)
            prefix_serve_free(serve);
        else if (serve->state == PREFIX_SERVE_STOPPING && engine->prefix_serves->sending == serve)
            engine->prefix_serves->sending = NULL;
    }
    prefix_serve_next_turn(engine->prefix_serves);
}

uint32_t worker_prefix_serve_count(const struct worker_engine *engine)
{
    return engine->prefix_serves->n;
}

int worker_prefix_serve_open(struct worker_engine *engine)
{
    struct metrics *metrics = engine->opts.metrics;
    struct prefix_serves *serves = calloc(1, sizeof(*serves));
    struct metric_family *family;

    if (serves == NULL)
        return E_NOMEM;
    list_init(&serves->all);
    engine->prefix_serves = serves;
    family = metric_family(metrics, METRIC_COUNTER, "baton_prefix_serves_total",
                           "Serves of cached blocks to peers, by result.", "result");
    serves->m_done = metric_series(family, (const char *const[]){"done"});
    serves->m_failed = metric_series(family, (const char *const[]){"failed"});
    serves->m_refused = metric_series(family, (const char *const[]){"refused"});
    serves->m_tokens = metric_single(metrics, METRIC_COUNTER, "baton_prefix_serve_tokens_total",
                                     "Tokens whose cached KV was pushed to peers that fetch.");
    return 0;
}

void worker_prefix_serve_close(struct worker_engine *engine)
{
    struct prefix_serves *serves = engine->prefix_serves;

    if (serves == NULL)
        return;
    while (!list_is_empty(&serves->all))
        prefix_serve_free(container_of(serves->all.next, struct prefix_serve, all));
    free(serves);
    engine->prefix_serves = NULL;
}
