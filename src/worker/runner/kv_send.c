/* SPDX-License-Identifier: Apache-2.0 */
/* KV send: the sending end of a hand-off, from prefill to decode.
 *
 *    LINKING --link up: OFFER--> MOVING --result--> STOPPING --stopped--> CLOSED --task over too--> freed
 *       |                                                                   ^
 *       +--- link lost or never up, no memory, task over -------------------+
 *
 *    in MOVING:  [grant] --> each layer of each step is pushed as it is computed
 *                KV of the MTP head, if the model has one, behind each chunk (head_kv.c)
 *                first token   --> the router at once, PREFILL_DONE to the peer
 *                TRANSFER_DONE --> the sequence is released and its blocks stay here as cache
 *                              --> the router receives HANDED_OFF
 *
 * A failed hand-off does not stop the prefill, because the request needs the first token anyway.  The KV
 * becomes prefix cache here.  A sequence that is then held without a receiver ends with FAILED, and the
 * router sends PROCEED to the decode worker.  The code of a refusal goes all the way:
 *
 *    kv_receive.c --GRANT_REFUSED--> transfer/kvxfer/send.c --result--> failed --tick: FAILED--> router
 *    router: on_prefill_finish() --PROCEED--> decode worker: computes the prompt
 *
 * With it goes that it is a refusal, because a refusal is no failure of this worker.
 *
 * A struct kv_send may outlive its task, because its leases last until the transport reads the blocks no
 * more. */
#include "worker/runner/head_kv_priv.h"
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/window.h"
#include "transfer/kvxfer/send.h"

enum kv_send_state {
    KV_SEND_LINKING,  /* the link to the decode worker is not up yet; no OFFER */
    KV_SEND_MOVING,   /* offered, granted or pushed: see transfer/kvxfer/send.c */
    KV_SEND_STOPPING, /* the result is known; the transport may still read the blocks */
    KV_SEND_CLOSED    /* no block is held; freed by the next tick after the task's end */
};

struct kv_sends { /* all KV sends of a worker */
    struct list all;
    uint32_t n;
    double head_worth_s[WORKER_MAX_PEERS];      /* as the peer's latest GRANT says */
    struct metric *m_done, *m_failed, *m_ended; /* ended: the request did first */
};

struct kv_send {              /* the KV send of one task */
    struct transfer transfer; /* peer: the decode worker */
    struct list all;
    struct worker_engine *engine;
    enum kv_send_state state;
    struct task *task;        /* NULL: the task ended first */
    struct kvxfer_send *send; /* NULL: LINKING, or CLOSED without an OFFER */
    uint32_t n_blocks;        /* blocks of the prompt; those of its recurrent state follow them */
    kv_block_id *table;       /* [n_blocks + n_state] all blocks to send; NULL: the model has no recurrent
                               * state */
    uint32_t n_state;
    struct head_kv head; /* of the MTP head */
    uint64_t began_ns;
    bool has_first, is_finished;
    struct kvxfer_first first; /* may be sampled before the link is up */
    int failed;                /* error that ended the hand-off; the task continues until its first token */
};

static const char *const kv_send_states[] = {"linking", "moving", "stopping", "closed"};
CHECK_ROWS(kv_send_states, KV_SEND_CLOSED + 1);

static void kv_send_set_state(struct kv_send *send, enum kv_send_state state)
{
    log_debug("kv_send_state", LOG_U64("transfer", send->transfer.id),
              LOG_STR("from", kv_send_states[send->state]), LOG_STR("to", kv_send_states[state]));
    send->state = state;
    if (state == KV_SEND_CLOSED)
        worker_head_close(send->engine, &send->head);
}

static uint32_t kv_send_block_tokens(const struct worker_engine *engine)
{
    return engine->opts.engine.info.layout.block_tokens;
}

static void kv_send_free(struct kv_send *send)
{
    if (send->task != NULL)
        send->task->kv_send = NULL;
    worker_transfers_remove(send->engine, &send->transfer);
    list_remove(&send->all);
    send->engine->kv_sends->n--;
    worker_head_close(send->engine, &send->head);
    kvxfer_send_free(send->send);
    free(send->table);
    free(send);
}

static struct kv_send *kv_send_of(struct transfer *transfer)
{
    return container_of(transfer, struct kv_send, transfer);
}

/* True if the receiver says that the request ended: its end is on the way to this worker too.  A refusal that says
 * cancelled does not: the receiver computes the prompt. */
static bool kv_send_has_ended(const struct kv_send *send, int error)
{
    return error == E_NOT_FOUND ||
           (error == E_CANCELLED && send->send != NULL && !kvxfer_send_is_refused(send->send));
}

/* The hand-off failed: the tick ends the task when it is held. */
static void kv_send_note_failed(struct kv_send *send, int error)
{
    struct kv_sends *sends = send->engine->kv_sends;
    bool has_ended = kv_send_has_ended(send, error);

    metric_add(has_ended ? sends->m_ended : sends->m_failed, 1);
    if (!has_ended)
        log_warn("kv_send_failed", LOG_STR("request_id", send->task->spec.order.work.request_id),
                 LOG_ERR(error));
    send->failed = error;
}

/* Ends the hand-off before its OFFER was sent. */
static void kv_send_fail(struct kv_send *send, int error)
{
    kv_send_note_failed(send, error);
    kv_send_set_state(send, KV_SEND_CLOSED);
}

/* ---- callbacks of transfer/kvxfer/send ---- */

static void kv_send_on_message(void *arg, const struct kvxfer_message *message)
{
    struct kv_send *send = arg;

    worker_engine_to_peer(send->engine, send->transfer.peer, message);
}

/* Marks blocks that the peer has too, so that the pool may evict them first. */
static void kv_send_share_blocks(const struct kv_send *send)
{
    uint32_t n;
    const kv_block_id *table = seq_blocks(send->task->seq, &n, NULL);

    for (uint32_t i = 0; i < n && i < send->n_blocks; i++)
        kv_set_replicated(send->engine->pool, table[i], true);
}

static void kv_send_on_over(void *arg, int result)
{
    struct kv_send *send = arg;
    struct kv_sends *sends = send->engine->kv_sends;
    struct task *task = send->task;

    kv_send_set_state(send, KV_SEND_STOPPING);
    if (result == 0)
        metric_add(sends->m_done, 1);
    else if (task == NULL)
        metric_add(result == E_CANCELLED ? sends->m_ended : sends->m_failed, 1);
    if (task == NULL)
        return;
    task->times.transfer_ended_ns = clock_now_ns();
    task->times.is_transfer_failed = result < 0;
    if (result < 0) {
        kv_send_note_failed(send, result);
        task->is_handoff_refused = kvxfer_send_is_refused(send->send);
        return;
    }
    kv_send_share_blocks(send);
    sched_release(send->engine->sched, task->seq);
}

static void kv_send_on_closed(void *arg)
{
    kv_send_set_state(arg, KV_SEND_CLOSED);
}

static const struct kvxfer_send_calls kv_send_calls = {
    .message = kv_send_on_message, .on_over = kv_send_on_over, .on_closed = kv_send_on_closed};

/* ---- beginning ---- */

/* Reports to the transfer that windowed blocks before n are ready, in one layer or in all. */
static void kv_send_push_windowed(struct kv_send *send, uint32_t layer, uint32_t n)
{
    const struct kv_layout *layout = &send->engine->opts.engine.info.layout;
    uint32_t n_groups = kv_window_groups(layout);

    for (uint32_t group = 0; group < n_groups; group++) {
        const kv_block_id *table = seq_window_blocks(send->engine->sched, send->task->seq, group);
        struct kvxfer_window window = {.group = group, .layer = KVXFER_ALL_LAYERS};

        if (layer != KVXFER_ALL_LAYERS && layer / layout->n_layers - 1 != group)
            continue;
        if (layer != KVXFER_ALL_LAYERS)
            window.layer = layer % layout->n_layers;
        kvxfer_send_window_ready(send->send, window, n, table);
    }
}

static void kv_send_push(struct kv_send *send, uint32_t layer, uint32_t to)
{
    bool is_last = to >= send->task->spec.order.n_tokens;
    uint32_t n = is_last ? send->n_blocks : to / kv_send_block_tokens(send->engine);
    uint32_t n_table;
    const kv_block_id *table = seq_blocks(send->task->seq, &n_table, NULL);

    if (n > n_table)
        n = n_table;
    if (layer == KVXFER_ALL_LAYERS || layer < send->engine->opts.engine.info.layout.n_layers)
        kvxfer_send_ready(send->send, layer, n, table);
    if (layer == KVXFER_ALL_LAYERS || layer >= send->engine->opts.engine.info.layout.n_layers)
        kv_send_push_windowed(send, layer, n);
}

/* Sends the whole prompt: its keys and values, then the state after its last token, which is final now. */
static void kv_send_push_all(struct kv_send *send)
{
    uint32_t n_table, n_state;
    const kv_block_id *table = seq_blocks(send->task->seq, &n_table, NULL);
    const kv_block_id *state = seq_state_blocks(send->engine->sched, send->task->seq, &n_state);

    if (n_table < send->n_blocks)
        return;
    memcpy(send->table, table, send->n_blocks * sizeof(*table));
    memcpy(send->table + send->n_blocks, state, n_state * sizeof(*state));
    kvxfer_send_ready(send->send, KVXFER_ALL_LAYERS, send->n_blocks + n_state, send->table);
}

static void kv_send_push_head(struct kv_send *send, uint32_t to)
{
    bool is_last = to >= send->task->spec.order.n_tokens;
    uint32_t n;

    if (send->head.blocks == NULL)
        return;
    n = worker_head_pack(send->engine, send->task->seq, &send->head, is_last);
    kvxfer_send_head_ready(send->send, n, send->head.blocks);
}

/* Sends all layers of tokens [0, to); between steps. */
static void kv_send_push_computed(struct kv_send *send, uint32_t to)
{
    kv_send_push_head(send, to);
    if (send->table != NULL && to >= send->task->spec.order.n_tokens)
        kv_send_push_all(send);
    else
        kv_send_push(send, KVXFER_ALL_LAYERS, to);
}

/* Sends the OFFER if the peer's link is up. */
static void kv_send_offer(struct kv_send *send)
{
    struct worker_engine *engine = send->engine;
    const struct peer_facts *peer = worker_engine_peer(engine, send->transfer.peer);
    struct kvxfer_send_opts opts = {.pool = engine->pool,
                                    .transport = engine->transport,
                                    .calls = &kv_send_calls,
                                    .arg = send,
                                    .transfer = send->transfer.id,
                                    .n_layers = engine->opts.engine.info.layout.n_layers,
                                    .n_blocks = send->n_blocks + send->n_state,
                                    .timeout_ns = engine->opts.grant_timeout_ns};
    uint32_t n_computed;

    if (peer == NULL || send->task == NULL)
        return;
    opts.router_epoch = send->task->spec.key.router_epoch;
    opts.request = send->task->spec.key.request;
    opts.n_tokens = send->task->spec.order.n_tokens;
    opts.n_windows = kv_window_groups(&engine->opts.engine.info.layout);
    opts.first_windowed = kv_window_kept(&engine->opts.engine.info.layout, opts.n_tokens);
    opts.n_head_blocks = send->head.n_blocks;
    opts.head_tokens = send->head.n_tokens;
    opts.head_layout = send->head.n_tokens > 0 ? worker_head_layout(engine) : 0;
    opts.tcp_address = peer->tcp_address;
    opts.unix_path = peer->unix_path;
    if (kvxfer_send_new(&opts, clock_now_ns(), &send->send) < 0) {
        kv_send_fail(send, E_NOMEM);
        return;
    }
    kv_send_set_state(send, KV_SEND_MOVING);
    send->task->times.transfer_began_ns = clock_now_ns();
    send->task->times.transfer_peer = send->transfer.peer;
    send->task->times.is_sender = true;
    n_computed = seq_n_computed(send->task->seq);
    if (n_computed > 0)
        kv_send_push_computed(send, n_computed);
    if (send->has_first)
        kvxfer_send_first(send->send, &send->first, send->is_finished);
}

/* Lets the MTP head read the prompt, and takes blocks to send its KV, if the peer has use for it. */
static void kv_send_open_head(struct kv_send *send)
{
    struct worker_engine *engine = send->engine;
    struct task *task = send->task;
    uint32_t peer = send->transfer.peer, first;

    if (worker_head_layout(engine) == 0 || peer >= WORKER_MAX_PEERS)
        return;
    first = sched_head_depart(engine->sched, task->seq, engine->kv_sends->head_worth_s[peer]);
    if (first == 0)
        return;
    if (worker_head_open(engine, seq_spec(task->seq)->tenant, task->spec.order.n_tokens - first,
                         &send->head) == 0)
        send->head.first = first;
    else
        sched_head_departed(engine->sched, task->seq);
}

void worker_kv_send_begin(struct worker_engine *engine, struct task *task)
{
    struct kv_send *send;

    if (task->kv_send != NULL)
        return; /* admitted again after a preemption: pieces already pushed stay valid */
    send = calloc(1, sizeof(*send));
    if (send == NULL) {
        worker_engine_fail_task(engine, task, E_NOMEM);
        return;
    }
    send->transfer = (struct transfer){.side = TRANSFER_KV_SEND, .peer = task->spec.peer};
    send->engine = engine;
    send->task = task;
    send->n_blocks =
        (task->spec.order.n_tokens + kv_send_block_tokens(engine) - 1) / kv_send_block_tokens(engine);
    (void)seq_state_blocks(engine->sched, task->seq, &send->n_state);
    kv_send_open_head(send);
    send->began_ns = clock_now_ns();
    list_push_back(&engine->kv_sends->all, &send->all);
    engine->kv_sends->n++;
    task->kv_send = send;
    if (send->n_state > 0)
        send->table = calloc(send->n_blocks + send->n_state, sizeof(*send->table));
    if ((send->n_state > 0 && send->table == NULL) ||
        worker_transfers_add_outgoing(engine, &send->transfer) < 0)
        kv_send_fail(send, E_NOMEM);
    else
        kv_send_offer(send);
}

/* ---- progress ---- */

static bool kv_send_is_moving(const struct kv_send *send)
{
    return send != NULL && send->state == KV_SEND_MOVING;
}

void worker_kv_send_layer(struct worker_engine *engine, uint32_t layer)
{
    struct seq *seq;
    uint32_t from, to;

    for (uint32_t i = 0; sched_step_item(engine->sched, i, &seq, &from, &to); i++) {
        struct task *task = worker_engine_task_of(seq);

        if (task != NULL && kv_send_is_moving(task->kv_send))
            kv_send_push(task->kv_send, layer, to);
    }
}

void worker_kv_send_prefilled(struct task *task, uint32_t to)
{
    if (kv_send_is_moving(task->kv_send))
        kv_send_push_computed(task->kv_send, to);
}

_Static_assert(KVXFER_MAX_TOP == SAMPLE_MAX_TOP, "a transfer holds all tokens of a first sample");

void worker_kv_send_first(struct task *task, const struct sample_result *first, bool is_finished)
{
    struct kv_send *send = task->kv_send;

    if (send == NULL)
        return;
    send->first = (struct kvxfer_first){.id = first->id, .logprob = first->logprob};
    for (uint32_t i = 0; i < first->n_top && i < KVXFER_MAX_TOP; i++) {
        send->first.top_ids[i] = first->top[i].id;
        send->first.top_logprobs[i] = first->top[i].logprob;
        send->first.n_top = i + 1;
    }
    send->has_first = true;
    send->is_finished = is_finished;
    if (kv_send_is_moving(send))
        kvxfer_send_first(send->send, &send->first, is_finished);
}

void worker_kv_send_message(struct transfer *transfer, const struct kvxfer_message *message)
{
    struct kv_send *send = kv_send_of(transfer);

    if (message->kind == KVXFER_GRANT)
        send->engine->kv_sends->head_worth_s[transfer->peer] = message->head_worth_us / 1e6;
    if (send->send != NULL)
        kvxfer_send_message(send->send, message, clock_now_ns());
}

void worker_kv_send_event(struct transfer *transfer, const struct tr_event *event)
{
    struct kv_send *send = kv_send_of(transfer);

    if (send->send != NULL)
        kvxfer_send_event(send->send, event, clock_now_ns());
}

void worker_kv_send_end(struct task *task)
{
    struct kv_send *send = task->kv_send;
    struct kv_sends *sends;

    if (send == NULL)
        return;
    sends = send->engine->kv_sends;
    send->task = NULL;
    task->kv_send = NULL;
    if (send->state == KV_SEND_LINKING) {
        metric_add(task->times.is_failed ? sends->m_failed : sends->m_ended, 1);
        kv_send_set_state(send, KV_SEND_CLOSED);
    } else if (send->send != NULL)
        kvxfer_send_cancel(send->send, task->times.is_failed ? E_INTERNAL : E_CANCELLED);
}

/* ---- peers and timers ---- */

void worker_kv_send_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    engine->kv_sends->head_worth_s[peer] = 0;
    list_for_each_safe (node, spare, &engine->kv_sends->all) {
        struct kv_send *send = container_of(node, struct kv_send, all);

        if (send->transfer.peer != peer)
            continue;
        if (is_up && send->state == KV_SEND_LINKING)
            kv_send_offer(send);
        else if (!is_up && send->state == KV_SEND_LINKING)
            kv_send_fail(send, E_PEER); /* the link ended before it was up */
        else if (!is_up && send->state == KV_SEND_MOVING)
            kvxfer_send_peer_lost(send->send);
    }
}

static void kv_send_tick(struct kv_send *send, uint64_t now_ns)
{
    struct worker_engine *engine = send->engine;

    if (send->send != NULL)
        kvxfer_send_tick(send->send, now_ns);
    else if (send->state == KV_SEND_LINKING && now_ns - send->began_ns > engine->opts.grant_timeout_ns)
        kv_send_fail(send, E_PEER); /* the link never came up */
    if (send->failed != 0 && send->task != NULL && seq_state(send->task->seq) == SEQ_HELD)
        worker_engine_fail_task(engine, send->task, send->failed); /* ends the task, not the transfer */
    if (send->state == KV_SEND_CLOSED && send->task == NULL)
        kv_send_free(send);
}

void worker_kv_send_tick(struct worker_engine *engine, uint64_t now_ns)
{
    list_for_each_safe (node, spare, &engine->kv_sends->all)
        kv_send_tick(container_of(node, struct kv_send, all), now_ns);
}

uint32_t worker_kv_send_count(const struct worker_engine *engine)
{
    return engine->kv_sends->n;
}

int worker_kv_send_open(struct worker_engine *engine)
{
    struct kv_sends *sends = calloc(1, sizeof(*sends));
    struct metric_family *family;

    if (sends == NULL)
        return E_NOMEM;
    list_init(&sends->all);
    engine->kv_sends = sends;
    family = metric_family(engine->opts.metrics, METRIC_COUNTER, "baton_handoffs_sent_total",
                           "Hand-offs to other workers by result.", "result");
    sends->m_done = metric_series(family, (const char *const[]){"done"});
    sends->m_failed = metric_series(family, (const char *const[]){"failed"});
    sends->m_ended = metric_series(family, (const char *const[]){"ended"});
    return 0;
}

void worker_kv_send_close(struct worker_engine *engine)
{
    struct kv_sends *sends = engine->kv_sends;

    if (sends == NULL)
        return;
    while (!list_is_empty(&sends->all))
        kv_send_free(container_of(sends->all.next, struct kv_send, all));
    free(sends);
    engine->kv_sends = NULL;
}
