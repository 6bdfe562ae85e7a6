/* SPDX-License-Identifier: Apache-2.0 */
/* Serve: the owner's end of a prefix fetch, which pushes cached blocks to the asker.
 *
 *    ASK --found--> OFFERED --GRANT--> PUSHING --all--> PUSHED --DONE--> over --stopped--> freed
 *     |\ none, too many: ASK_REFUSED       \ every way out of transfer/kvxfer/send.h
 *     |                   ^
 *     on disk --> READING-+-read, or in vain--> found?
 *
 * The states are the sender's (transfer/kvxfer/send.c), except READING. An ASK with a tenant (Ask.tenant),
 * which accounts for the blocks, also has blocks read that are on disk only (disk.c). The offer then
 * follows when they are in the pool, or take too long, and covers the blocks in the pool. A loan holds a
 * reference to each block until the transport has confirmed that it reads no more; transfer/kvxfer/send
 * also leases them.
 *
 * A push must not delay a hand-off. So few loans run at once, and all together have at most one window of
 * pieces at the transport: a hand-off's piece waits for one window at most. A loan whose window is sent
 * passes the turn on. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "transfer/kvxfer/send.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/share_priv.h"

#define MAX_LOANS    4
#define WINDOW_BYTES (4u << 20)

struct loans { /* of this worker: all blocks served to peers */
    struct list all;
    struct hashmap *by_transfer;
    uint64_t next_transfer;
    uint32_t n_loans;
    struct loan *sending; /* the loan whose window is at the transport; NULL: none */
    struct metric *m_tokens, *m_done, *m_failed, *m_refused;
};

struct loan {
    struct list all; /* in order of turns */
    struct worker_engine *engine;
    uint64_t transfer;
    uint32_t peer;
    uint64_t ask;              /* the asker's number of the fetch */
    struct kvxfer_send *send;  /* NULL: READING */
    uint64_t read;             /* READING: the read that it waits for */
    struct block_hash *hashes; /* [n_hashes] the requested blocks; freed when the table is final */
    uint32_t n_hashes;
    kv_block_id *table; /* [n_hashes]; the first n_blocks hold a reference each */
    uint32_t n_blocks;
    uint32_t layer, n_given; /* the layer being given, and its blocks given so far; earlier layers are
                              * complete */
    uint32_t n_pieces;       /* given in all; the turn ends when this many have left */
    uint64_t moved_ns;
    bool is_over;
};

static uint32_t n_layers(const struct worker_engine *engine)
{
    return engine->opts.engine.info.layout.n_layers;
}

static void give_back(struct loan *loan)
{
    while (loan->n_blocks > 0)
        kv_unref(loan->engine->pool, loan->table[--loan->n_blocks]);
}

static void loan_free(struct loan *loan)
{
    struct loans *loans = loan->engine->loans;

    if (loans->sending == loan)
        loans->sending = NULL;
    hashmap_remove(loans->by_transfer, &loan->transfer);
    list_remove(&loan->all);
    loans->n_loans--;
    kvxfer_send_free(loan->send);
    give_back(loan);
    free(loan->table);
    free(loan->hashes);
    free(loan);
}

/* ---- the window ---- */

static bool is_given(const struct loan *loan)
{
    return loan->layer == n_layers(loan->engine);
}

/* Gives the sender the next window of this loan's pieces. */
static void give_window(struct loan *loan)
{
    size_t piece_bytes = kv_layout_layer_block_bytes(&loan->engine->opts.engine.info.layout);
    uint32_t n_left = (uint32_t)(WINDOW_BYTES / piece_bytes) + 1;

    while (n_left > 0 && !is_given(loan) && !loan->is_over) {
        uint32_t n = loan->n_blocks - loan->n_given < n_left ? loan->n_blocks - loan->n_given : n_left;

        loan->n_given += n;
        loan->n_pieces += n;
        n_left -= n;
        kvxfer_send_ready(loan->send, loan->layer, loan->n_given, loan->table);
        if (loan->n_given == loan->n_blocks) {
            loan->layer++;
            loan->n_given = 0;
        }
    }
}

/* Starts the next loan in turn that is granted and has pieces left. */
static void next_turn(struct loans *loans)
{
    if (loans->sending != NULL)
        return;
    list_for_each_safe (node, spare, &loans->all) {
        struct loan *loan = container_of(node, struct loan, all);

        if (loan->send == NULL || loan->is_over || is_given(loan) || !kvxfer_send_is_granted(loan->send))
            continue;
        loans->sending = loan;
        loan->moved_ns = clock_now_ns();
        list_remove(&loan->all);
        list_push_back(&loans->all, &loan->all);
        give_window(loan);
        return;
    }
}

static void end_turn(struct loan *loan)
{
    struct loans *loans = loan->engine->loans;

    if (loans->sending == loan)
        loans->sending = NULL;
    next_turn(loans);
}

/* ---- callbacks of transfer/kvxfer/send ---- */

static void on_message(void *arg, const struct kvxfer_message *message)
{
    struct loan *loan = arg;

    worker_engine_to_peer(loan->engine, loan->peer, message);
}

static void on_over(void *arg, int result)
{
    struct loan *loan = arg;
    struct loans *loans = loan->engine->loans;

    loan->is_over = true;
    metric_add(result == 0 ? loans->m_done : loans->m_failed, 1);
    if (result == 0)
        metric_add(loans->m_tokens,
                   (double)loan->n_blocks * loan->engine->opts.engine.info.layout.block_tokens);
}

static void on_closed(void *arg)
{
    /* freed by the next tick: kvxfer is still on the stack */
}

static const struct kvxfer_send_calls send_calls = {
    .message = on_message, .on_over = on_over, .on_closed = on_closed};

/* ---- requests ---- */

static void refuse(struct worker_engine *engine, uint32_t peer, uint64_t ask, int code)
{
    struct kvxfer_message refused = {.kind = KVXFER_ASK_REFUSED, .ask = ask, .code = code};

    metric_add(engine->loans->m_refused, 1);
    worker_engine_to_peer(engine, peer, &refused);
}

static int start_send(struct loan *loan, const struct peer_facts *peer, uint64_t ask)
{
    struct worker_engine *engine = loan->engine;
    struct kvxfer_send_opts send = {.pool = engine->pool,
                                    .transport = engine->transport,
                                    .calls = &send_calls,
                                    .arg = loan,
                                    .transfer = loan->transfer,
                                    .ask = ask,
                                    .n_layers = n_layers(engine),
                                    .n_blocks = loan->n_blocks,
                                    .n_tokens = loan->n_blocks * engine->opts.engine.info.layout.block_tokens,
                                    .tcp_address = peer->tcp_address,
                                    .unix_path = peer->unix_path,
                                    .timeout_ns = engine->opts.grant_timeout_ns};

    return kvxfer_send_new(&send, clock_now_ns(), &loan->send);
}

/* Offers the blocks that are in the pool now. */
static int open_loan(struct loan *loan)
{
    const struct peer_facts *facts = worker_engine_peer(loan->engine, loan->peer);
    kv_block_id *table = calloc(loan->n_hashes, sizeof(*table));
    uint32_t n;

    if (table == NULL)
        return E_NOMEM;
    n = kv_match(loan->engine->pool, loan->hashes, loan->n_hashes, table);
    give_back(loan); /* the blocks found before are in the new table; they were held until here */
    free(loan->table);
    free(loan->hashes);
    loan->hashes = NULL;
    loan->table = table;
    loan->n_blocks = n;
    loan->moved_ns = clock_now_ns();
    if (n == 0 || facts == NULL)
        return E_NOT_FOUND;
    return start_send(loan, facts, loan->ask);
}

/* Finds the blocks in the pool; if the asker wants it, first reads those that are on disk only. */
static int find_blocks(struct loan *loan, const struct kvxfer_message *ask)
{
    struct worker_engine *engine = loan->engine;

    loan->ask = ask->ask;
    loan->n_hashes = ask->n_hashes;
    loan->hashes = malloc(ask->n_hashes * sizeof(*loan->hashes));
    loan->table = calloc(ask->n_hashes, sizeof(*loan->table));
    if (loan->hashes == NULL || loan->table == NULL)
        return E_NOMEM;
    memcpy(loan->hashes, ask->hashes, ask->n_hashes * sizeof(*loan->hashes));
    if (hashmap_put(engine->loans->by_transfer, &loan->transfer, loan, NULL) < 0)
        return E_NOMEM;
    if (ask->tenant == 0)
        return open_loan(loan);
    loan->n_blocks = kv_match(engine->pool, loan->hashes, loan->n_hashes, loan->table);
    loan->read = worker_disk_fetch(engine, ask->tenant, loan->hashes, loan->n_hashes);
    return loan->read != 0 ? 0 : open_loan(loan);
}

static int lend(struct worker_engine *engine, const struct kvxfer_message *ask, uint32_t peer)
{
    struct loans *loans = engine->loans;
    struct loan *loan;
    int rc;

    if (worker_engine_peer(engine, peer) == NULL)
        return E_PEER;
    if (loans->n_loans >= MAX_LOANS)
        return E_OVERLOADED;
    loan = calloc(1, sizeof(*loan));
    if (loan == NULL)
        return E_NOMEM;
    loan->engine = engine;
    loan->peer = peer;
    loan->transfer = loans->next_transfer++;
    list_push_back(&loans->all, &loan->all);
    loans->n_loans++;
    rc = find_blocks(loan, ask);
    if (rc < 0) {
        loan_free(loan);
        return E_NOT_FOUND;
    }
    return 0;
}

void worker_loans_read(struct worker_engine *engine, uint64_t read)
{
    list_for_each_safe (node, spare, &engine->loans->all) {
        struct loan *loan = container_of(node, struct loan, all);

        if (loan->send != NULL || loan->read != read)
            continue;
        loan->read = 0;
        if (open_loan(loan) == 0)
            continue;
        refuse(engine, loan->peer, loan->ask, E_NOT_FOUND);
        loan_free(loan);
    }
}

bool worker_loans_message(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message)
{
    struct loan *loan;
    int rc;

    if (message->kind == KVXFER_ASK) {
        rc = lend(engine, message, peer);
        if (rc < 0)
            refuse(engine, peer, message->ask, rc);
        return true;
    }
    if ((message->kind == KVXFER_CANCEL || message->kind == KVXFER_STOPPED) && message->from_sender)
        return false; /* the message is about a transfer of the other direction */
    loan = hashmap_get(engine->loans->by_transfer, &message->transfer);
    if (loan == NULL || loan->send == NULL || loan->peer != peer || message->kind == KVXFER_OFFER ||
        message->kind == KVXFER_PREFILL_DONE)
        return false;
    kvxfer_send_message(loan->send, message, clock_now_ns());
    if (loan->is_over)
        end_turn(loan);
    else
        next_turn(engine->loans);
    return true;
}

bool worker_loans_transport(struct worker_engine *engine, const struct tr_event *event)
{
    struct loan *loan;

    if (event->kind != TR_PUSH_SENT && event->kind != TR_PUSH_FAILED && event->kind != TR_PUSH_STOPPED)
        return false;
    loan = hashmap_get(engine->loans->by_transfer, &event->id);
    if (loan == NULL || loan->send == NULL)
        return false;
    loan->moved_ns = clock_now_ns();
    kvxfer_send_event(loan->send, event, loan->moved_ns);
    if (loan->is_over || (event->kind == TR_PUSH_SENT && event->n_pieces >= loan->n_pieces))
        end_turn(loan);
    return true;
}

void worker_loans_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    if (is_up)
        return;
    list_for_each_safe (node, spare, &engine->loans->all) {
        struct loan *loan = container_of(node, struct loan, all);

        if (loan->peer == peer && loan->send == NULL)
            loan_free(loan); /* blocks read for it are cached all the same */
        else if (loan->peer == peer)
            kvxfer_send_peer_lost(loan->send);
    }
}

void worker_loans_tick(struct worker_engine *engine, uint64_t now_ns)
{
    list_for_each_safe (node, spare, &engine->loans->all) {
        struct loan *loan = container_of(node, struct loan, all);

        if (loan->send == NULL)
            continue; /* its read ends, or disk.c gives it up */
        kvxfer_send_tick(loan->send, now_ns);
        if (engine->loans->sending == loan && !loan->is_over &&
            now_ns - loan->moved_ns > engine->opts.grant_timeout_ns)
            kvxfer_send_cancel(loan->send, E_TIMEOUT); /* the transport does not take its window */
        if (kvxfer_send_is_closed(loan->send))
            loan_free(loan);
        else if (loan->is_over && engine->loans->sending == loan)
            engine->loans->sending = NULL;
    }
    next_turn(engine->loans);
}

uint32_t worker_loans_count(const struct worker_engine *engine)
{
    return engine->loans->n_loans;
}

int worker_loans_open(struct worker_engine *engine)
{
    struct metrics *metrics = engine->opts.metrics;
    struct loans *loans = calloc(1, sizeof(*loans));
    struct metric_family *family;

    if (loans == NULL)
        return E_NOMEM;
    list_init(&loans->all);
    engine->loans = loans;
    rng_system(&loans->next_transfer, sizeof(loans->next_transfer));
    family = metric_family(metrics, METRIC_COUNTER, "baton_loans_total",
                           "Pushes of cached blocks that other workers asked for, by result.", "result");
    loans->m_done = metric_series(family, (const char *const[]){"done"});
    loans->m_failed = metric_series(family, (const char *const[]){"failed"});
    loans->m_refused = metric_series(family, (const char *const[]){"refused"});
    loans->m_tokens = metric_single(metrics, METRIC_COUNTER, "baton_loans_pushed_tokens_total",
                                    "Tokens whose cached KV was pushed to workers that asked.");
    return hashmap_new(sizeof(uint64_t), &loans->by_transfer);
}

void worker_loans_close(struct worker_engine *engine)
{
    struct loans *loans = engine->loans;

    if (loans == NULL)
        return;
    while (!list_is_empty(&loans->all))
        loan_free(container_of(loans->all.next, struct loan, all));
    hashmap_free(loans->by_transfer);
    free(loans);
    engine->loans = NULL;
}
