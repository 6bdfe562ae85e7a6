/* SPDX-License-Identifier: Apache-2.0 */
/* KV receive: the receiving end of a hand-off, decode from prefill.
 *
 *    SUBMIT(DECODE) --> WAITING --OFFER: GRANT--> MOVING --pieces and first token--> CLOSED --> freed
 *                          |                        |                                  ^
 *                          |                        +--- lost, failed, PROCEED --------+
 *                          +--- PROCEED, no OFFER in time --> ALONE --task over -------+
 *
 * After any failure this worker still has the sequence and its tokens.  Leading blocks that arrived whole
 * count as a cached prefix.  The rest is computed, with the same bits.  An OFFER may come before the router's
 * SUBMIT; it then waits as an early offer for EARLY_OFFER_NS.
 *
 * A struct kv_receive may outlive its task, because destination blocks stay leased until the transport has
 * closed the ticket. */
#include "worker/runner/head_kv_priv.h"
#include "worker/runner/state_list_priv.h"
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "cache/kv/window.h"
#include "transfer/kvxfer/recv.h"

#define EARLY_OFFER_NS   (2 * NS_PER_S)
#define MAX_EARLY_OFFERS 1024
#define OFFER_WAIT_NS    (120 * NS_PER_S) /* routers send PROCEED long before, unless they are gone */

enum kv_receive_state {
    KV_RECEIVE_WAITING, /* the sequence holds blocks; no OFFER yet */
    KV_RECEIVE_MOVING,  /* granted: see transfer/kvxfer/recv.c */
    KV_RECEIVE_ALONE,   /* this worker computes the sequence; an OFFER is refused */
    KV_RECEIVE_CLOSED   /* no block is leased; the next tick frees it */
};

struct kv_receives { /* all KV receives of a worker */
    struct list all, early_offers;
    uint32_t n, n_early_offers;
    struct metric *m_done, *m_failed, *m_ended,
        *m_bytes; /* ended: the task did first, here or at the sender */
};

struct kv_receive {           /* the KV receive of one task */
    struct transfer transfer; /* peer: the prefill worker, from MOVING on */
    struct list all;
    struct worker_engine *engine;
    enum kv_receive_state state;
    struct task *task;        /* NULL: the task ended first */
    struct kvxfer_recv *recv; /* from MOVING on */
    enum tr_kind transport;
    struct head_kv head; /* of the MTP head, if the sender has it and this worker wants it */
    uint64_t began_ns;
};

struct early_offer { /* an OFFER for a task that has not been submitted yet */
    struct list all;
    uint32_t peer;
    struct kvxfer_message offer;
    uint64_t came_ns;
};

static const char *const kv_receive_states[] = {"waiting", "moving", "alone", "closed"};
CHECK_ROWS(kv_receive_states, KV_RECEIVE_CLOSED + 1);

static void kv_receive_set_state(struct kv_receive *receive, enum kv_receive_state state)
{
    log_debug("kv_receive_state", LOG_U64("transfer", receive->transfer.id),
              LOG_STR("from", kv_receive_states[receive->state]), LOG_STR("to", kv_receive_states[state]));
    receive->state = state;
}

static uint32_t kv_receive_block_tokens(const struct worker_engine *engine)
{
    return engine->opts.engine.info.layout.block_tokens;
}

static void kv_receive_free(struct kv_receive *receive)
{
    if (receive->task != NULL)
        receive->task->kv_receive = NULL;
    worker_transfers_remove(receive->engine, &receive->transfer);
    list_remove(&receive->all);
    receive->engine->kv_receives->n--;
    worker_head_close(receive->engine, &receive->head);
    kvxfer_recv_free(receive->recv);
    free(receive);
}

static struct kv_receive *kv_receive_of(struct transfer *transfer)
{
    return container_of(transfer, struct kv_receive, transfer);
}

/* ---- callbacks of transfer/kvxfer/recv ---- */

static void kv_receive_on_message(void *arg, const struct kvxfer_message *message)
{
    struct kv_receive *receive = arg;

    worker_engine_to_peer(receive->engine, receive->transfer.peer, message);
}

static struct sample_result kv_receive_first(const struct kvxfer_first *from)
{
    struct sample_result first = {.id = from->id, .logprob = from->logprob};

    for (uint32_t i = 0; i < from->n_top && i < SAMPLE_MAX_TOP; i++) {
        first.top[i] = (struct sample_top){.id = from->top_ids[i], .logprob = from->top_logprobs[i]};
        first.n_top = i + 1;
    }
    return first;
}

/* Counts a transfer's bytes by kind of state. Blocks of recurrent state and those of the MTP head have the size of the
 * other blocks, and all of them must arrive for the transfer to be used. In the other blocks each layer ends with its index. */
static void kv_receive_count_kinds(const struct kv_receive *receive, const struct kvxfer_arrival *arrival)
{
    struct worker_engine *engine = receive->engine;
    const struct kv_layout *layout = &engine->opts.engine.info.layout;
    struct task *task = receive->task;
    uint32_t n_state;
    uint64_t state_bytes, left = arrival->n_bytes;

    (void)seq_state_blocks(engine->sched, task->seq, &n_state);
    if (n_state > 0 && !arrival->is_whole)
        return;
    state_bytes = (uint64_t)n_state * kv_layout_block_bytes(layout);
    task->figures.recurrent_bytes = state_bytes < left ? state_bytes : left;
    left -= task->figures.recurrent_bytes;
    state_bytes = arrival->is_whole ? receive->head.n_blocks * kv_layout_block_bytes(layout) : 0;
    task->figures.mtp_bytes = state_bytes < left ? state_bytes : left;
    left -= task->figures.mtp_bytes;
    task->figures.index_bytes = left / kv_layout_layer_block_bytes(layout) * kv_layout_index_bytes(layout);
    task->figures.attention_bytes = left - task->figures.index_bytes;
}

/* Returns how many of the prompt's tokens have usable KV here. A prefix needs its end state, and the end state comes last. */
static uint32_t kv_receive_n_tokens(const struct kv_receive *receive, const struct kvxfer_arrival *arrival)
{
    uint32_t n_tokens = arrival->n_blocks * kv_receive_block_tokens(receive->engine);

    if (!arrival->is_whole && worker_has_end_states(receive->engine))
        return 0;
    return n_tokens < receive->task->spec.order.n_tokens ? n_tokens : receive->task->spec.order.n_tokens;
}

/* The task lives: worker_kv_receive_end() counts the others. */
static void kv_receive_on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    struct kv_receive *receive = arg;
    struct worker_engine *engine = receive->engine;
    struct task *task = receive->task;
    uint32_t n_tokens;
    struct sample_result first = kv_receive_first(&arrival->first);
    bool has_ended = !arrival->is_whole && arrival->code == E_CANCELLED;

    metric_add(arrival->is_whole ? engine->kv_receives->m_done
               : has_ended       ? engine->kv_receives->m_ended
                                 : engine->kv_receives->m_failed,
               1);
    metric_add(engine->kv_receives->m_bytes, (double)arrival->n_bytes);
    worker_engine_observe_transfer(engine, arrival->n_bytes, arrival->elapsed_ns);
    task->figures.transfer_ns = arrival->elapsed_ns;
    task->figures.exposed_ns = arrival->exposed_ns;
    task->times.transfer_ended_ns = clock_now_ns();
    task->times.transfer_bytes = arrival->n_bytes;
    kv_receive_count_kinds(receive, arrival);
    task->times.is_transfer_failed = !arrival->is_whole;
    str_copy(task->figures.transport, sizeof(task->figures.transport),
             worker_transport_name(receive->transport));
    n_tokens = kv_receive_n_tokens(receive, arrival);
    if (!arrival->is_whole && !has_ended)
        log_warn("kv_receive_incomplete", LOG_STR("request_id", task->spec.order.work.request_id),
                 LOG_ERR(arrival->code), LOG_U64("tokens_here", n_tokens),
                 LOG_U64("tokens", task->spec.order.n_tokens));
    if (arrival->is_whole && receive->head.blocks != NULL &&
        !worker_head_unpack(engine, task->seq, &receive->head))
        log_debug("kv_receive_without_head", LOG_STR("request_id", task->spec.order.work.request_id));
    worker_head_close(engine, &receive->head);
    kv_receive_set_state(receive,
                         KV_RECEIVE_CLOSED); /* it is counted: if the task ends now, it is not once more */
    /* If the first token ends the answer, it ends it here too, for any message of the peer. */
    sched_arrived(engine->sched, task->seq, n_tokens, arrival->is_whole ? &first : NULL, true);
}

static void kv_receive_on_closed(void *arg)
{
    kv_receive_set_state(arg, KV_RECEIVE_CLOSED);
}

static const struct kvxfer_recv_calls kv_receive_calls = {
    .message = kv_receive_on_message, .on_arrived = kv_receive_on_arrived, .on_closed = kv_receive_on_closed};

/* ---- offers ---- */

/* Returns the number of windowed blocks to receive for a prompt of recv->n_blocks, over all groups. */
static uint32_t kv_receive_n_windowed(const struct kv_receive *receive, const struct kvxfer_recv_opts *recv,
                                      uint32_t skip_blocks)
{
    const struct kv_layout *layout = &receive->engine->opts.engine.info.layout;
    uint32_t first = kv_window_kept(layout, recv->n_tokens);

    return kv_window_groups(layout) * (recv->n_blocks - (first > skip_blocks ? first : skip_blocks));
}

/* Opens the receiving end: the prompt's blocks, then those of its recurrent state, of its windowed layers and of the MTP
 * head. */
static int kv_receive_open(struct kv_receive *receive, struct kvxfer_recv_opts *recv)
{
    const struct sched *sched = receive->engine->sched;
    uint32_t n_kv = recv->n_blocks, n_groups = kv_window_groups(&receive->engine->opts.engine.info.layout),
             n_windowed = kv_receive_n_windowed(receive, recv, recv->skip_blocks), n_state;
    const kv_block_id *state = seq_state_blocks(sched, receive->task->seq, &n_state);
    const struct head_kv *head = &receive->head;
    kv_block_id *table = NULL;
    int rc;

    if (n_state + n_windowed + head->n_blocks > 0) {
        recv->n_blocks = n_kv + n_state + n_windowed + head->n_blocks;
        table = calloc(recv->n_blocks, sizeof(*table));
        if (table == NULL)
            return E_NOMEM;
        memcpy(table, recv->blocks, n_kv * sizeof(*table));
        if (n_state > 0)
            memcpy(table + n_kv, state, n_state * sizeof(*table));
        if (head->n_blocks > 0)
            memcpy(table + recv->n_blocks - head->n_blocks, head->blocks, head->n_blocks * sizeof(*table));
        recv->blocks = table;
    }
    for (uint32_t group = 0; group < n_groups; group++) {
        uint32_t n = n_windowed / n_groups;

        memcpy(table + n_kv + group * n, seq_window_blocks(sched, receive->task->seq, group) + n_kv - n,
               n * sizeof(*table));
    }
    rc = kvxfer_recv_new(recv, clock_now_ns(), &receive->recv);
    free(table);
    return rc;
}

/* Takes blocks for the KV of the sender's MTP head, if this worker has the same head. */
static void kv_receive_open_head(struct kv_receive *receive, const struct kvxfer_message *offer)
{
    struct worker_engine *engine = receive->engine;
    const struct seq *seq = receive->task->seq;

    if (offer->head_tokens == 0 || offer->head_tokens >= offer->n_tokens ||
        offer->head_layout != worker_head_layout(engine))
        return;
    (void)worker_head_open(engine, seq_spec(seq)->tenant, offer->head_tokens, &receive->head);
}

static uint32_t kv_receive_head_worth_us(const struct kv_receive *receive)
{
    double worth_us;

    if (worker_head_layout(receive->engine) == 0)
        return 0;
    worth_us = 1e6 * sched_head_worth_s(receive->engine->sched, receive->task->seq);
    return worth_us < UINT32_MAX ? (uint32_t)worth_us : UINT32_MAX;
}

static void kv_receive_grant(struct kv_receive *receive, uint32_t peer, const struct kvxfer_message *offer)
{
    struct worker_engine *engine = receive->engine;
    struct task *task = receive->task;
    uint32_t per_block = kv_receive_block_tokens(engine), n_table, n_state;
    struct kvxfer_recv_opts recv = {.pool = engine->pool,
                                    .transport = engine->transport,
                                    .calls = &kv_receive_calls,
                                    .arg = receive,
                                    .transfer = offer->transfer,
                                    .n_blocks = (task->spec.order.n_tokens + per_block - 1) / per_block,
                                    .n_tokens = task->spec.order.n_tokens,
                                    .timeout_ns = engine->opts.grant_timeout_ns};

    recv.blocks = seq_blocks(task->seq, &n_table, &recv.skip_blocks);
    (void)seq_state_blocks(engine->sched, task->seq, &n_state);
    if (offer->n_tokens != task->spec.order.n_tokens ||
        offer->n_blocks != recv.n_blocks + n_state + kv_receive_n_windowed(receive, &recv, 0) ||
        n_table < recv.n_blocks || receive->state != KV_RECEIVE_WAITING ||
        seq_state(task->seq) != SEQ_ARRIVING) {
        worker_transfers_refuse_offer(engine, peer, offer->transfer, E_MISMATCH);
        return;
    }
    receive->transfer.peer = peer;
    receive->transport = recv.kind = worker_engine_kind_for(engine, peer);
    if (worker_transfers_add_incoming(engine, &receive->transfer, offer->transfer) == 0) {
        recv.ticket = receive->transfer.ticket;
        recv.head_worth_us = kv_receive_head_worth_us(receive);
        kv_receive_open_head(receive, offer);
        if (kv_receive_open(receive, &recv) == 0) {
            kv_receive_set_state(receive, KV_RECEIVE_MOVING);
            task->times.transfer_began_ns = clock_now_ns();
            task->times.transfer_peer = peer;
            return;
        }
        worker_head_close(engine, &receive->head);
        worker_transfers_remove(engine, &receive->transfer);
    }
    worker_transfers_refuse_offer(engine, peer, offer->transfer, E_FULL);
}

static void early_offer_add(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *offer)
{
    struct kv_receives *receives = engine->kv_receives;
    struct early_offer *early =
        receives->n_early_offers < MAX_EARLY_OFFERS ? calloc(1, sizeof(*early)) : NULL;

    if (early == NULL) {
        worker_transfers_refuse_offer(engine, peer, offer->transfer, E_FULL);
        return;
    }
    early->peer = peer;
    early->offer = *offer;
    early->came_ns = clock_now_ns();
    list_push_back(&receives->early_offers, &early->all);
    receives->n_early_offers++;
}

static void early_offer_free(struct worker_engine *engine, struct early_offer *early)
{
    list_remove(&early->all);
    engine->kv_receives->n_early_offers--;
    free(early);
}

/* Tells the sender whether the request ended, or its task has not begun in time. */
static void early_offer_refuse(struct worker_engine *engine, const struct early_offer *early)
{
    struct task_key key = {.router_epoch = early->offer.router_epoch, .request = early->offer.request};
    int code = worker_engine_task(engine, &key) == NULL ? E_NOT_FOUND : E_TIMEOUT;

    worker_transfers_refuse_offer(engine, early->peer, early->offer.transfer, code);
}

void worker_kv_receive_offer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *offer)
{
    struct task_key key = {.router_epoch = offer->router_epoch, .request = offer->request};
    struct task *task = worker_engine_task(engine, &key);

    if (task == NULL || task->state == TASK_HASHING || task->state == TASK_COMPILING) /* not begun yet */
        early_offer_add(engine, peer, offer);
    else if (task->kv_receive == NULL)
        worker_transfers_refuse_offer(engine, peer, offer->transfer, E_CANCELLED);
    else
        kv_receive_grant(task->kv_receive, peer, offer);
}

/* ---- beginning and end ---- */

void worker_kv_receive_begin(struct worker_engine *engine, struct task *task)
{
    struct kv_receive *receive = calloc(1, sizeof(*receive));

    if (receive == NULL) {
        sched_arrived(engine->sched, task->seq, 0, NULL, true);
        return;
    }
    receive->transfer = (struct transfer){.side = TRANSFER_KV_RECEIVE, .peer = PEER_NONE};
    receive->engine = engine;
    receive->task = task;
    receive->began_ns = clock_now_ns();
    list_push_back(&engine->kv_receives->all, &receive->all);
    engine->kv_receives->n++;
    task->kv_receive = receive;
    list_for_each_safe (node, spare, &engine->kv_receives->early_offers) {
        struct early_offer *early = container_of(node, struct early_offer, all);

        if (early->offer.request != task->spec.key.request ||
            early->offer.router_epoch != task->spec.key.router_epoch)
            continue;
        kv_receive_grant(receive, early->peer, &early->offer);
        early_offer_free(engine, early);
        return;
    }
}

/* No peer will send more: blocks that have arrived count as cached. */
void worker_kv_receive_proceed(struct worker_engine *engine, struct task *task)
{
    struct kv_receive *receive = task->kv_receive;
    uint32_t n_table, n_reused;

    if (seq_state(task->seq) != SEQ_ARRIVING)
        return;
    if (receive != NULL && receive->state == KV_RECEIVE_MOVING) {
        kvxfer_recv_cancel(receive->recv, E_PEER, false);
        return;
    }
    if (receive != NULL)
        kv_receive_set_state(receive, KV_RECEIVE_ALONE);
    seq_blocks(task->seq, &n_table, &n_reused);
    sched_arrived(engine->sched, task->seq, n_reused * kv_receive_block_tokens(engine), NULL, true);
}

void worker_kv_receive_end(struct task *task)
{
    struct kv_receive *receive = task->kv_receive;
    struct kv_receives *receives;

    if (receive == NULL)
        return;
    receives = receive->engine->kv_receives;
    receive->task = NULL;
    task->kv_receive = NULL;
    if (receive->state == KV_RECEIVE_MOVING) {
        metric_add(task->times.is_failed ? receives->m_failed : receives->m_ended, 1);
        kvxfer_recv_cancel(receive->recv, task->times.is_failed ? E_INTERNAL : E_CANCELLED, true);
    } else
        kv_receive_set_state(receive, KV_RECEIVE_CLOSED);
}

/* ---- messages, events, peers and timers ---- */

void worker_kv_receive_message(struct transfer *transfer, const struct kvxfer_message *message)
{
    struct kv_receive *receive = kv_receive_of(transfer);

    if (receive->state == KV_RECEIVE_MOVING)
        kvxfer_recv_message(receive->recv, message, clock_now_ns());
}

void worker_kv_receive_event(struct transfer *transfer, const struct tr_event *event)
{
    struct kv_receive *receive = kv_receive_of(transfer);

    if (receive->state == KV_RECEIVE_MOVING)
        kvxfer_recv_event(receive->recv, event, clock_now_ns());
}

void worker_kv_receive_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    if (is_up)
        return;
    list_for_each_safe (node, spare, &engine->kv_receives->all) {
        struct kv_receive *receive = container_of(node, struct kv_receive, all);

        if (receive->state == KV_RECEIVE_MOVING && receive->transfer.peer == peer)
            kvxfer_recv_peer_lost(receive->recv);
    }
    list_for_each_safe (node, spare, &engine->kv_receives->early_offers) {
        struct early_offer *early = container_of(node, struct early_offer, all);

        if (early->peer == peer)
            early_offer_free(engine, early);
    }
}

static void kv_receive_tick(struct kv_receive *receive, uint64_t now_ns)
{
    if (receive->state == KV_RECEIVE_MOVING)
        kvxfer_recv_tick(receive->recv, now_ns);
    else if (receive->state == KV_RECEIVE_WAITING && now_ns - receive->began_ns > OFFER_WAIT_NS)
        worker_kv_receive_proceed(receive->engine, receive->task);
    if (receive->state == KV_RECEIVE_CLOSED)
        kv_receive_free(receive);
}

void worker_kv_receive_tick(struct worker_engine *engine, uint64_t now_ns)
{
    list_for_each_safe (node, spare, &engine->kv_receives->all)
        kv_receive_tick(container_of(node, struct kv_receive, all), now_ns);
    list_for_each_safe (node, spare, &engine->kv_receives->early_offers) {
        struct early_offer *early = container_of(node, struct early_offer, all);

        if (now_ns - early->came_ns < EARLY_OFFER_NS)
            continue;
        early_offer_refuse(engine, early);
        early_offer_free(engine, early);
    }
}

uint32_t worker_kv_receive_count(const struct worker_engine *engine)
{
    return engine->kv_receives->n + engine->kv_receives->n_early_offers;
}

int worker_kv_receive_open(struct worker_engine *engine)
{
    struct kv_receives *receives = calloc(1, sizeof(*receives));
    struct metrics *metrics = engine->opts.metrics;
    struct metric_family *family;

    if (receives == NULL)
        return E_NOMEM;
    list_init(&receives->all);
    list_init(&receives->early_offers);
    engine->kv_receives = receives;
    family = metric_family(metrics, METRIC_COUNTER, "baton_handoffs_received_total",
                           "Hand-offs from other workers by result.", "result");
    receives->m_done = metric_series(family, (const char *const[]){"done"});
    receives->m_failed = metric_series(family, (const char *const[]){"failed"});
    receives->m_ended = metric_series(family, (const char *const[]){"ended"});
    receives->m_bytes =
        metric_single(metrics, METRIC_COUNTER, "baton_transfer_received_bytes_total", "KV bytes received.");
    return 0;
}

void worker_kv_receive_close(struct worker_engine *engine)
{
    struct kv_receives *receives = engine->kv_receives;

    if (receives == NULL)
        return;
    while (!list_is_empty(&receives->all))
        kv_receive_free(container_of(receives->all.next, struct kv_receive, all));
    while (!list_is_empty(&receives->early_offers))
        early_offer_free(engine, container_of(receives->early_offers.next, struct early_offer, all));
    free(receives);
    engine->kv_receives = NULL;
}
