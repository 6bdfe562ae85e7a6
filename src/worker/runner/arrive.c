/* SPDX-License-Identifier: Apache-2.0 */
/* KV receive: the receiving end of a hand-off on a worker.
 *
 *    SUBMIT(DECODE) --> the sequence holds blocks and waits
 *                   --> OFFER --> GRANT --> pieces --> all pieces and the first token --> DECODE
 *
 * After any failure the sequence is still here with its tokens: leading blocks that arrived whole count as
 * a cached prefix, and the rest is computed, with the same bits. An offer may overtake the router's
 * SUBMIT; it is parked for PARK_NS.
 *
 * A struct receipt outlives its task: destination blocks stay leased until the transport has closed the
 * ticket. */
#include "worker/runner/arrive.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "transfer/kvxfer/recv.h"

#define PARK_NS       (2 * NS_PER_S)
#define MAX_PARKED    1024
#define OFFER_WAIT_NS (120 * NS_PER_S) /* the router sends PROCEED long before, unless it is gone too */

struct arrive {
    struct worker_engine *engine;
    struct list receipts, parked;
    uint32_t n_receipts, n_parked;
    struct hashmap *by_ticket;
    struct metric *m_done, *m_failed, *m_bytes;
};

struct receipt { /* one task's KV receive */
    struct list all;
    struct arrive *arrive;
    struct task *task; /* NULL: it ended before */
    uint32_t peer;
    uint64_t transfer;
    uint64_t ticket; /* 0: no offer yet */
    struct kvxfer_recv *recv;
    enum tr_kind transport;
    uint64_t began_ns;
};

struct parked { /* an offer for a task that has not been submitted yet */
    struct list all;
    uint32_t peer;
    struct kvxfer_message offer;
    uint64_t came_ns;
};

static uint32_t block_tokens(const struct arrive *arrive)
{
    return worker_engine_opts(arrive->engine)->engine.info.layout.block_tokens;
}

static void receipt_free(struct receipt *receipt)
{
    struct arrive *arrive = receipt->arrive;

    if (receipt->task != NULL)
        receipt->task->handoff = NULL;
    if (receipt->ticket != 0)
        hashmap_remove(arrive->by_ticket, &receipt->ticket);
    list_remove(&receipt->all);
    arrive->n_receipts--;
    kvxfer_recv_free(receipt->recv);
    free(receipt);
}

/* ---- callbacks of transfer/kvxfer/recv ---- */

static void on_message(void *arg, const struct kvxfer_message *message)
{
    struct receipt *receipt = arg;

    worker_engine_to_peer(receipt->arrive->engine, receipt->peer, message);
}

static void on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    struct receipt *receipt = arg;
    struct arrive *arrive = receipt->arrive;
    struct task *task = receipt->task;
    struct sched *sched = worker_engine_sched(arrive->engine);
    uint32_t n_tokens = arrival->n_blocks * block_tokens(arrive);
    struct sample_result first = {.id = arrival->first.id, .logprob = arrival->first.logprob};

    for (uint32_t i = 0; i < arrival->first.n_top && i < SAMPLE_MAX_TOP; i++) {
        first.top[i] =
            (struct sample_top){.id = arrival->first.top_ids[i], .logprob = arrival->first.top_logprobs[i]};
        first.n_top = i + 1;
    }

    metric_add(arrival->is_whole ? arrive->m_done : arrive->m_failed, 1);
    metric_add(arrive->m_bytes, (double)arrival->n_bytes);
    worker_engine_observe_transfer(arrive->engine, arrival->n_bytes, arrival->elapsed_ns);
    if (task == NULL)
        return;
    task->transfer_ns = arrival->elapsed_ns;
    task->exposed_ns = arrival->exposed_ns;
    str_copy(task->transport, sizeof(task->transport), worker_transport_name(receipt->transport));
    if (n_tokens > task->spec.order.n_tokens)
        n_tokens = task->spec.order.n_tokens;
    if (!arrival->is_whole)
        log_warn("arrival_incomplete", LOG_STR("request", task->spec.order.work.request_id),
                 LOG_ERR(arrival->code), LOG_U64("tokens_here", n_tokens),
                 LOG_U64("tokens", task->spec.order.n_tokens));
    /* A first token that ends the answer ends it here too, whatever the peer says. */
    sched_arrived(sched, task->seq, n_tokens, arrival->is_whole ? &first : NULL, true);
}

static void on_closed(void *arg)
{
    /* freed by the next tick: kvxfer is still on the stack */
}

static const struct kvxfer_recv_calls recv_calls = {
    .message = on_message, .on_arrived = on_arrived, .on_closed = on_closed};

/* ---- offers ---- */

static void refuse(struct arrive *arrive, uint32_t peer, uint64_t transfer, int code)
{
    struct kvxfer_message refused = {.kind = KVXFER_REFUSED, .transfer = transfer, .code = code};

    worker_engine_to_peer(arrive->engine, peer, &refused);
}

static void grant(struct arrive *arrive, struct receipt *receipt, uint32_t peer,
                  const struct kvxfer_message *offer)
{
    struct task *task = receipt->task;
    const struct worker_engine_opts *opts = worker_engine_opts(arrive->engine);
    struct kvxfer_recv_opts recv = {.pool = worker_engine_pool(arrive->engine),
                                    .transport = worker_engine_transport(arrive->engine),
                                    .calls = &recv_calls,
                                    .arg = receipt,
                                    .transfer = offer->transfer,
                                    .n_tokens = task->spec.order.n_tokens,
                                    .timeout_ns = opts->grant_timeout_ns};
    uint32_t n_table;

    recv.blocks = seq_blocks(task->seq, &n_table, &recv.skip_blocks);
    recv.n_blocks = (task->spec.order.n_tokens + block_tokens(arrive) - 1) / block_tokens(arrive);
    if (offer->n_tokens != task->spec.order.n_tokens || offer->n_blocks != recv.n_blocks ||
        n_table < recv.n_blocks || receipt->recv != NULL || seq_state(task->seq) != SEQ_ARRIVING) {
        refuse(arrive, peer, offer->transfer, E_MISMATCH);
        return;
    }
    receipt->peer = peer;
    receipt->transfer = offer->transfer;
    receipt->transport = worker_engine_kind_for(arrive->engine, peer);
    recv.kind = receipt->transport;
    do
        rng_system(&receipt->ticket, sizeof(receipt->ticket));
    while (receipt->ticket == 0);
    recv.ticket = receipt->ticket;
    if (hashmap_put(arrive->by_ticket, &receipt->ticket, receipt, NULL) < 0 ||
        kvxfer_recv_new(&recv, clock_now_ns(), &receipt->recv) < 0) {
        hashmap_remove(arrive->by_ticket, &receipt->ticket);
        receipt->ticket = 0;
        receipt->recv = NULL;
        refuse(arrive, peer, offer->transfer, E_FULL);
    }
}

static void park(struct arrive *arrive, uint32_t peer, const struct kvxfer_message *offer)
{
    struct parked *parked = arrive->n_parked < MAX_PARKED ? calloc(1, sizeof(*parked)) : NULL;

    if (parked == NULL) {
        refuse(arrive, peer, offer->transfer, E_FULL);
        return;
    }
    parked->peer = peer;
    parked->offer = *offer;
    parked->came_ns = clock_now_ns();
    list_push_back(&arrive->parked, &parked->all);
    arrive->n_parked++;
}

static void unpark(struct arrive *arrive, struct parked *parked)
{
    list_remove(&parked->all);
    arrive->n_parked--;
    free(parked);
}

static void on_offer(struct arrive *arrive, uint32_t peer, const struct kvxfer_message *offer)
{
    struct task_key key = {.router_epoch = offer->router_epoch, .request = offer->request};
    struct task *task = worker_engine_task(arrive->engine, &key);

    if (task == NULL || task->grammar_number != 0) /* not submitted yet, or not begun */
        park(arrive, peer, offer);
    else if (task->spec.mode != TASK_DECODE || task->handoff == NULL)
        refuse(arrive, peer, offer->transfer, E_CANCELLED);
    else
        grant(arrive, task->handoff, peer, offer);
}

/* ---- tasks ---- */

static void arrive_begin(void *self, struct task *task)
{
    struct arrive *arrive = self;
    struct receipt *receipt = calloc(1, sizeof(*receipt));

    if (receipt == NULL) {
        sched_arrived(worker_engine_sched(arrive->engine), task->seq, 0, NULL, true);
        return;
    }
    receipt->arrive = arrive;
    receipt->task = task;
    receipt->peer = PEER_NONE;
    receipt->began_ns = clock_now_ns();
    list_push_back(&arrive->receipts, &receipt->all);
    arrive->n_receipts++;
    task->handoff = receipt;
    list_for_each_safe (node, spare, &arrive->parked) {
        struct parked *parked = container_of(node, struct parked, all);

        if (parked->offer.request != task->spec.key.request ||
            parked->offer.router_epoch != task->spec.key.router_epoch)
            continue;
        grant(arrive, receipt, parked->peer, &parked->offer);
        unpark(arrive, parked);
        return;
    }
}

static void arrive_end(void *self, struct task *task)
{
    struct receipt *receipt = task->handoff;

    if (receipt == NULL)
        return;
    receipt->task = NULL;
    task->handoff = NULL;
    if (receipt->recv != NULL)
        kvxfer_recv_cancel(receipt->recv, E_CANCELLED, true);
}

/* No peer will send (more): the blocks that are here count as cached. */
static void arrive_proceed(void *self, struct task *task)
{
    struct arrive *arrive = self;
    struct receipt *receipt = task->handoff;
    uint32_t n_table, n_reused;

    if (seq_state(task->seq) != SEQ_ARRIVING)
        return;
    if (receipt != NULL && receipt->recv != NULL) {
        kvxfer_recv_cancel(receipt->recv, E_PEER, false);
        return;
    }
    seq_blocks(task->seq, &n_table, &n_reused);
    sched_arrived(worker_engine_sched(arrive->engine), task->seq, n_reused * block_tokens(arrive), NULL,
                  true);
}

/* ---- peers, transport and timers ---- */

static struct receipt *find(struct arrive *arrive, uint32_t peer, uint64_t transfer)
{
    list_for_each (node, &arrive->receipts) {
        struct receipt *receipt = container_of(node, struct receipt, all);

        if (receipt->recv != NULL && receipt->peer == peer && receipt->transfer == transfer)
            return receipt;
    }
    return NULL;
}

static bool arrive_on_peer_message(void *self, uint32_t peer, const struct kvxfer_message *message)
{
    struct arrive *arrive = self;
    struct receipt *receipt;

    if (message->kind == KVXFER_OFFER) {
        on_offer(arrive, peer, message);
        return true;
    }
    receipt = find(arrive, peer, message->transfer);
    if (receipt != NULL)
        kvxfer_recv_message(receipt->recv, message, clock_now_ns());
    return true;
}

static void arrive_on_peer(void *self, uint32_t peer, bool is_up)
{
    struct arrive *arrive = self;

    if (is_up)
        return;
    list_for_each_safe (node, spare, &arrive->receipts) {
        struct receipt *receipt = container_of(node, struct receipt, all);

        if (receipt->recv != NULL && receipt->peer == peer)
            kvxfer_recv_peer_lost(receipt->recv);
    }
    list_for_each_safe (node, spare, &arrive->parked) {
        struct parked *parked = container_of(node, struct parked, all);

        if (parked->peer == peer)
            unpark(arrive, parked);
    }
}

static bool arrive_on_transport(void *self, const struct tr_event *event)
{
    struct arrive *arrive = self;
    struct receipt *receipt = hashmap_get(arrive->by_ticket, &event->id);

    if (receipt != NULL && receipt->recv != NULL)
        kvxfer_recv_event(receipt->recv, event, clock_now_ns());
    return true;
}

static void arrive_on_tick(void *self, uint64_t now_ns)
{
    struct arrive *arrive = self;

    list_for_each_safe (node, spare, &arrive->receipts) {
        struct receipt *receipt = container_of(node, struct receipt, all);

        if (receipt->recv != NULL)
            kvxfer_recv_tick(receipt->recv, now_ns);
        else if (receipt->task != NULL && now_ns - receipt->began_ns > OFFER_WAIT_NS)
            arrive_proceed(arrive, receipt->task);
        if (receipt->recv == NULL ? receipt->task == NULL : kvxfer_recv_is_closed(receipt->recv))
            receipt_free(receipt);
    }
    list_for_each_safe (node, spare, &arrive->parked) {
        struct parked *parked = container_of(node, struct parked, all);

        if (now_ns - parked->came_ns < PARK_NS)
            continue;
        refuse(arrive, parked->peer, parked->offer.transfer, E_NOT_FOUND);
        unpark(arrive, parked);
    }
}

static void arrive_on_layer(void *self, uint32_t layer)
{
    /* only the sending side has layers to push */
}

static void arrive_on_prefilled(void *self, struct task *task, uint32_t to)
{
}

static void arrive_on_first_token(void *self, struct task *task, const struct sample_result *first,
                                  bool is_finished)
{
}

static uint32_t arrive_n_active(const void *self)
{
    const struct arrive *arrive = self;

    return arrive->n_receipts + arrive->n_parked;
}

static int arrive_open(struct worker_engine *engine, void **self_out)
{
    struct arrive *arrive = calloc(1, sizeof(*arrive));
    struct metrics *metrics = worker_engine_opts(engine)->metrics;
    struct metric_family *family;

    if (arrive == NULL)
        return E_NOMEM;
    arrive->engine = engine;
    list_init(&arrive->receipts);
    list_init(&arrive->parked);
    if (hashmap_new(sizeof(uint64_t), &arrive->by_ticket) < 0) {
        free(arrive);
        return E_NOMEM;
    }
    family = metric_family(metrics, METRIC_COUNTER, "baton_handoffs_received_total",
                           "Hand-offs from other workers by result.", "result");
    arrive->m_done = metric_series(family, (const char *const[]){"done"});
    arrive->m_failed = metric_series(family, (const char *const[]){"failed"});
    arrive->m_bytes =
        metric_single(metrics, METRIC_COUNTER, "baton_transfer_received_bytes_total", "KV bytes received.");
    *self_out = arrive;
    return 0;
}

static void arrive_close(void *self)
{
    struct arrive *arrive = self;

    while (!list_is_empty(&arrive->receipts))
        receipt_free(container_of(arrive->receipts.next, struct receipt, all));
    while (!list_is_empty(&arrive->parked))
        unpark(arrive, container_of(arrive->parked.next, struct parked, all));
    hashmap_free(arrive->by_ticket);
    free(arrive);
}

const struct handoff_side *arrive_side(void)
{
    static const struct handoff_side side = {.open = arrive_open,
                                             .close = arrive_close,
                                             .begin = arrive_begin,
                                             .end = arrive_end,
                                             .on_layer = arrive_on_layer,
                                             .on_prefilled = arrive_on_prefilled,
                                             .on_first_token = arrive_on_first_token,
                                             .on_peer_message = arrive_on_peer_message,
                                             .on_peer = arrive_on_peer,
                                             .on_transport = arrive_on_transport,
                                             .on_tick = arrive_on_tick,
                                             .proceed = arrive_proceed,
                                             .n_active = arrive_n_active};

    return &side;
}
