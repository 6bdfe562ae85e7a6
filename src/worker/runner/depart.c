/* SPDX-License-Identifier: Apache-2.0 */
/* KV send: the sending end of a hand-off on a worker.
 *
 *    admitted --> offer --> [grant] --> each layer of each step is pushed as it is computed
 *             first token   --> the router at once, PREFILL_DONE to the peer
 *             TRANSFER_DONE --> the sequence is released and its blocks stay here as cache
 *                           --> the router receives HANDED_OFF
 *
 * A failed hand-off does not stop the prefill: the first token is needed in any case, and the KV becomes
 * prefix cache here. If the sequence is then held without a receiver, the router receives FAILED and tells
 * the decode worker to go on alone.
 *
 * A struct shipment outlives its task: leases stay until the transport has let go of the blocks. */
#include "worker/runner/depart.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "base/log.h"
#include "base/rng.h"
#include "transfer/kvxfer/send.h"

struct depart {
    struct worker_engine *engine;
    struct list shipments;
    struct hashmap *by_transfer;
    uint64_t next_transfer;
    struct metric *m_done, *m_failed;
};

struct shipment { /* one task's KV send */
    struct list all;
    struct depart *depart;
    struct task *task; /* NULL: it ended before */
    uint64_t transfer;
    uint32_t peer;
    struct kvxfer_send *send; /* NULL: the peer's link is not up yet, or the hand-off is over */
    uint32_t n_blocks;
    uint64_t began_ns;
    bool has_first, is_finished;
    struct kvxfer_first first; /* may be sampled before there is a link to send it on */
    int failed;                /* the error that ended the hand-off; the task goes on to its first token */
    bool is_over;
};

static uint32_t block_tokens(const struct depart *depart)
{
    return worker_engine_opts(depart->engine)->engine.info.layout.block_tokens;
}

static void shipment_free(struct shipment *shipment)
{
    if (shipment->task != NULL)
        shipment->task->handoff = NULL;
    hashmap_remove(shipment->depart->by_transfer, &shipment->transfer);
    list_remove(&shipment->all);
    kvxfer_send_free(shipment->send);
    free(shipment);
}

/* ---- callbacks of transfer/kvxfer/send ---- */

static void on_message(void *arg, const struct kvxfer_message *message)
{
    struct shipment *shipment = arg;

    worker_engine_to_peer(shipment->depart->engine, shipment->peer, message);
}

/* The peer has these blocks too now, so this pool may evict them first. */
static void share_blocks(const struct shipment *shipment)
{
    struct kv_pool *pool = worker_engine_pool(shipment->depart->engine);
    uint32_t n;
    const kv_block_id *table = seq_blocks(shipment->task->seq, &n, NULL);

    for (uint32_t i = 0; i < n && i < shipment->n_blocks; i++)
        kv_share(pool, table[i], true);
}

static void on_over(void *arg, int result)
{
    struct shipment *shipment = arg;
    struct task *task = shipment->task;

    shipment->is_over = true;
    metric_add(result == 0 ? shipment->depart->m_done : shipment->depart->m_failed, 1);
    if (task == NULL)
        return;
    if (result < 0) {
        log_warn("handoff_failed", LOG_STR("request", task->spec.order.work.request_id), LOG_ERR(result));
        shipment->failed = result; /* on_tick ends the task when it is held */
        return;
    }
    share_blocks(shipment);
    sched_release(worker_engine_sched(shipment->depart->engine), task->seq);
}

static void on_closed(void *arg)
{
    /* freed by the next tick: kvxfer is still on the stack */
}

static const struct kvxfer_send_calls send_calls = {
    .message = on_message, .on_over = on_over, .on_closed = on_closed};

/* ---- beginning ---- */

static void push_ready(struct shipment *shipment, uint32_t layer, uint32_t to)
{
    uint32_t per_block = block_tokens(shipment->depart);
    bool is_last = to >= shipment->task->spec.order.n_tokens;
    uint32_t n = is_last ? shipment->n_blocks : to / per_block;
    uint32_t n_table;
    const kv_block_id *table = seq_blocks(shipment->task->seq, &n_table, NULL);

    if (n > n_table)
        n = n_table;
    kvxfer_send_ready(shipment->send, layer, n, table);
}

static void start_send(struct shipment *shipment)
{
    struct depart *depart = shipment->depart;
    const struct peer_facts *peer = worker_engine_peer(depart->engine, shipment->peer);
    const struct worker_engine_opts *opts = worker_engine_opts(depart->engine);
    struct kvxfer_send_opts send = {.pool = worker_engine_pool(depart->engine),
                                    .transport = worker_engine_transport(depart->engine),
                                    .calls = &send_calls,
                                    .arg = shipment,
                                    .transfer = shipment->transfer,
                                    .n_layers = opts->engine.info.layout.n_layers,
                                    .timeout_ns = opts->grant_timeout_ns};
    uint32_t computed;

    if (peer == NULL || shipment->task == NULL)
        return;
    send.router_epoch = shipment->task->spec.key.router_epoch;
    send.request = shipment->task->spec.key.request;
    send.n_tokens = shipment->task->spec.order.n_tokens;
    send.n_blocks = shipment->n_blocks;
    send.tcp_address = peer->tcp_address;
    send.unix_path = peer->unix_path;
    if (kvxfer_send_new(&send, clock_now_ns(), &shipment->send) < 0) {
        shipment->failed = E_NOMEM;
        return;
    }
    computed = seq_n_computed(shipment->task->seq);
    if (computed > 0)
        push_ready(shipment, KVXFER_ALL_LAYERS, computed);
    if (shipment->has_first)
        kvxfer_send_first(shipment->send, &shipment->first, shipment->is_finished);
}

static void depart_begin(void *self, struct task *task)
{
    struct depart *depart = self;
    struct shipment *shipment;

    if (task->handoff != NULL)
        return; /* admitted again after a preemption: pieces that were pushed stay valid */
    shipment = calloc(1, sizeof(*shipment));
    if (shipment == NULL) {
        worker_engine_fail_task(depart->engine, task, E_NOMEM);
        return;
    }
    shipment->depart = depart;
    shipment->task = task;
    shipment->transfer = depart->next_transfer++;
    shipment->peer = task->spec.peer;
    shipment->n_blocks = (task->spec.order.n_tokens + block_tokens(depart) - 1) / block_tokens(depart);
    shipment->began_ns = clock_now_ns();
    list_push_back(&depart->shipments, &shipment->all);
    task->handoff = shipment;
    if (hashmap_put(depart->by_transfer, &shipment->transfer, shipment, NULL) < 0)
        shipment->failed = E_NOMEM;
    else
        start_send(shipment);
}

/* ---- progress ---- */

static void depart_on_layer(void *self, uint32_t layer)
{
    struct depart *depart = self;
    struct sched *sched = worker_engine_sched(depart->engine);
    struct seq *seq;
    uint32_t from, to;

    for (uint32_t i = 0; sched_step_item(sched, i, &seq, &from, &to); i++) {
        struct task *task = worker_engine_task_of(seq);
        struct shipment *shipment = task && task->spec.mode == TASK_PREFILL ? task->handoff : NULL;

        if (shipment != NULL && shipment->send != NULL && !shipment->is_over)
            push_ready(shipment, layer, to);
    }
}

static void depart_on_prefilled(void *self, struct task *task, uint32_t to)
{
    struct shipment *shipment = task->handoff;

    if (shipment != NULL && shipment->send != NULL && !shipment->is_over)
        push_ready(shipment, KVXFER_ALL_LAYERS, to);
}

static void depart_on_first_token(void *self, struct task *task, const struct sample_result *first,
                                  bool is_finished)
{
    struct shipment *shipment = task->handoff;

    if (shipment == NULL)
        return;
    shipment->first = (struct kvxfer_first){.id = first->id, .logprob = first->logprob};
    for (uint32_t i = 0; i < first->n_top && i < KVXFER_MAX_TOP; i++) {
        shipment->first.top_ids[i] = first->top[i].id;
        shipment->first.top_logprobs[i] = first->top[i].logprob;
        shipment->first.n_top = i + 1;
    }
    shipment->has_first = true;
    shipment->is_finished = is_finished;
    if (shipment->send != NULL)
        kvxfer_send_first(shipment->send, &shipment->first, is_finished);
}

static void depart_end(void *self, struct task *task)
{
    struct shipment *shipment = task->handoff;

    if (shipment == NULL)
        return;
    shipment->task = NULL;
    task->handoff = NULL;
    if (shipment->send != NULL)
        kvxfer_send_cancel(shipment->send, E_CANCELLED);
}

/* ---- peers, transport and timers ---- */

static bool depart_on_peer_message(void *self, uint32_t peer, const struct kvxfer_message *message)
{
    struct depart *depart = self;
    struct shipment *shipment;
    bool is_ours =
        message->kind == KVXFER_GRANT || message->kind == KVXFER_REFUSED || message->kind == KVXFER_DONE ||
        ((message->kind == KVXFER_CANCEL || message->kind == KVXFER_STOPPED) && !message->from_sender);

    if (!is_ours)
        return false;
    shipment = hashmap_get(depart->by_transfer, &message->transfer);
    if (shipment != NULL && shipment->peer == peer && shipment->send != NULL)
        kvxfer_send_message(shipment->send, message, clock_now_ns());
    return true;
}

static void depart_on_peer(void *self, uint32_t peer, bool is_up)
{
    struct depart *depart = self;

    list_for_each_safe (node, spare, &depart->shipments) {
        struct shipment *shipment = container_of(node, struct shipment, all);

        if (shipment->peer != peer || shipment->is_over)
            continue;
        if (is_up && shipment->send == NULL && shipment->failed == 0)
            start_send(shipment);
        else if (!is_up && shipment->send != NULL)
            kvxfer_send_peer_lost(shipment->send);
        else if (!is_up)
            shipment->failed = E_PEER; /* the link was given up before it was up */
    }
}

static bool depart_on_transport(void *self, const struct tr_event *event)
{
    struct depart *depart = self;
    struct shipment *shipment;

    if (event->kind != TR_PUSH_SENT && event->kind != TR_PUSH_FAILED && event->kind != TR_PUSH_STOPPED)
        return false;
    shipment = hashmap_get(depart->by_transfer, &event->id);
    if (shipment != NULL && shipment->send != NULL)
        kvxfer_send_event(shipment->send, event, clock_now_ns());
    return true;
}

static bool is_held(const struct task *task)
{
    return seq_state(task->seq) == SEQ_HELD;
}

static void look_after(struct depart *depart, struct shipment *shipment, uint64_t now_ns)
{
    uint64_t timeout_ns = worker_engine_opts(depart->engine)->grant_timeout_ns;

    if (shipment->send != NULL)
        kvxfer_send_tick(shipment->send, now_ns);
    else if (shipment->failed == 0 && now_ns - shipment->began_ns > timeout_ns)
        shipment->failed = E_PEER; /* its link never came up */
    if (shipment->failed != 0 && shipment->task != NULL && is_held(shipment->task)) {
        int error = shipment->failed;
        struct task *task = shipment->task;

        worker_engine_fail_task(depart->engine, task, error); /* ends the task, not the transfer */
    }
    if (shipment->task == NULL && (shipment->send == NULL || kvxfer_send_is_closed(shipment->send)))
        shipment_free(shipment);
}

static void depart_on_tick(void *self, uint64_t now_ns)
{
    struct depart *depart = self;

    list_for_each_safe (node, spare, &depart->shipments)
        look_after(depart, container_of(node, struct shipment, all), now_ns);
}

static uint32_t depart_n_active(const void *self)
{
    const struct depart *depart = self;

    return (uint32_t)hashmap_count(depart->by_transfer);
}

static int depart_open(struct worker_engine *engine, void **self_out)
{
    struct depart *depart = calloc(1, sizeof(*depart));
    struct metric_family *family;

    if (depart == NULL)
        return E_NOMEM;
    depart->engine = engine;
    list_init(&depart->shipments);
    rng_system(&depart->next_transfer, sizeof(depart->next_transfer));
    if (hashmap_new(sizeof(uint64_t), &depart->by_transfer) < 0) {
        free(depart);
        return E_NOMEM;
    }
    family = metric_family(worker_engine_opts(engine)->metrics, METRIC_COUNTER, "baton_handoffs_sent_total",
                           "Hand-offs to other workers by result.", "result");
    depart->m_done = metric_series(family, (const char *const[]){"done"});
    depart->m_failed = metric_series(family, (const char *const[]){"failed"});
    *self_out = depart;
    return 0;
}

static void depart_close(void *self)
{
    struct depart *depart = self;

    while (!list_is_empty(&depart->shipments))
        shipment_free(container_of(depart->shipments.next, struct shipment, all));
    hashmap_free(depart->by_transfer);
    free(depart);
}

static void depart_proceed(void *self, struct task *task)
{
    /* only the receiving side waits for a peer */
}

const struct handoff_side *depart_side(void)
{
    static const struct handoff_side side = {.open = depart_open,
                                             .close = depart_close,
                                             .begin = depart_begin,
                                             .end = depart_end,
                                             .on_layer = depart_on_layer,
                                             .on_prefilled = depart_on_prefilled,
                                             .on_first_token = depart_on_first_token,
                                             .on_peer_message = depart_on_peer_message,
                                             .on_peer = depart_on_peer,
                                             .on_transport = depart_on_transport,
                                             .on_tick = depart_on_tick,
                                             .proceed = depart_proceed,
                                             .n_active = depart_n_active};

    return &side;
}
