/* SPDX-License-Identifier: Apache-2.0 */
/* See send.h for the drawing.
 *
 * A run is the part of one block table that is sent: the prompt's blocks, those of a group of windowed layers, or
 * those of an MTP head. Runs lie behind one another in the grant:
 *
 *     blocks of the prompt    0 1 2 3 4 5 6 7        skip = 2, first_windowed = 5
 *     in the grant            2 3 4 5 6 7 | 5 6 7 | 5 6 7 | 0 1
 *                             prompt        group 0  group 1  head
 *
 * The receiver may leave the head's blocks out. The number of blocks in the grant says so.
 *
 * Progress is counted per layer of a run: ready[l] blocks are computed, pushed[l] blocks were handed to the
 * transport. A block's id is captured and leased when its first layer is ready. From then on the sequence
 * may be preempted, cancelled or finished and the bytes stay. If the grant comes late, send_pump() catches up
 * layer by layer.
 *
 * Leases are dropped only after the transport confirms that it reads no more (TR_PUSH_STOPPED). */
#include "transfer/kvxfer/send.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

enum send_state {
    SEND_OFFERED,  /* OFFER is sent, without an answer yet */
    SEND_WAITING,  /* refused for now; offers again later */
    SEND_PUSHING,  /* granted; pieces go out as they are computed */
    SEND_PUSHED,   /* the transport has every piece; the receiver has not confirmed */
    SEND_STOPPING, /* over; waits until the transport confirms that it reads no more */
    SEND_CLOSED    /* no lease is left */
};

struct send_run {
    uint32_t first; /* number of its first block */
    uint32_t end;   /* number after its last block */
    bool is_head;
    uint32_t skip; /* once granted: number of the first block to send, and its offset in the grant */
    uint32_t at;
    uint32_t *ready, *pushed; /* [n_layers] blocks before this number */
    kv_block_id *blocks;      /* from first on; those up to n_captured are leased */
    uint32_t n_captured;
};

struct kvxfer_send {
    enum send_state state;
    struct kvxfer_send_opts opts;
    char tcp_address[128], unix_path[108];
    struct send_run *runs; /* [n_runs] the prompt's, those of windowed layers, then the head's */
    uint32_t n_runs;
    bool has_first, is_finished, is_refused, must_confirm_stop;
    struct kvxfer_first first;
    uint64_t began_ns, moved_ns, retry_ns;
};

static const char *const send_states[] = {"offered", "waiting", "pushing", "pushed", "stopping", "closed"};
CHECK_ROWS(send_states, SEND_CLOSED + 1);

static void send_set_state(struct kvxfer_send *send, enum send_state state)
{
    log_debug("transfer_send_state", LOG_U64("transfer", send->opts.transfer),
              LOG_STR("from", send_states[send->state]), LOG_STR("to", send_states[state]));
    send->state = state;
}

static bool send_is_over(const struct kvxfer_send *send)
{
    return send->state == SEND_STOPPING || send->state == SEND_CLOSED;
}

static void send_message(struct kvxfer_send *send, struct kvxfer_message message)
{
    message.transfer = send->opts.transfer;
    message.from_sender = true;
    send->opts.calls->message(send->opts.arg, &message);
}

static uint32_t send_skip(const struct send_run *run, uint32_t skip_blocks)
{
    return run->is_head || run->first > skip_blocks ? run->first : skip_blocks;
}

/* Returns the number of blocks to send to a receiver that has the first skip_blocks, without those of the head. */
static uint32_t send_n_blocks(const struct kvxfer_send *send, uint32_t skip_blocks)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < send->n_runs; i++)
        n += send->runs[i].is_head ? 0 : send->runs[i].end - send_skip(&send->runs[i], skip_blocks);
    return n;
}

static void send_offer(struct kvxfer_send *send, uint64_t now_ns)
{
    send_set_state(send, SEND_OFFERED);
    send->moved_ns = now_ns;
    send_message(send, (struct kvxfer_message){.kind = KVXFER_OFFER,
                                               .router_epoch = send->opts.router_epoch,
                                               .request = send->opts.request,
                                               .fetch = send->opts.fetch,
                                               .n_tokens = send->opts.n_tokens,
                                               .n_blocks = send_n_blocks(send, 0),
                                               .head_tokens = send->opts.head_tokens,
                                               .head_layout = send->opts.head_layout});
}

static int send_open_runs(struct kvxfer_send *send)
{
    const struct kvxfer_send_opts *opts = &send->opts;
    uint32_t n_runs = 1 + opts->n_windows + (opts->n_head_blocks > 0);

    send->runs = calloc(n_runs, sizeof(*send->runs));
    if (send->runs == NULL)
        return E_NOMEM;
    for (; send->n_runs < n_runs; send->n_runs++) {
        struct send_run *run = &send->runs[send->n_runs];

        run->is_head = send->n_runs > opts->n_windows;
        run->first = send->n_runs == 0 || run->is_head ? 0 : opts->first_windowed;
        run->end = run->is_head ? opts->n_head_blocks : opts->n_blocks;
        run->ready = calloc(opts->n_layers, sizeof(*run->ready));
        run->pushed = calloc(opts->n_layers, sizeof(*run->pushed));
        run->blocks = calloc(run->end - run->first, sizeof(*run->blocks));
        if (run->ready == NULL || run->pushed == NULL || run->blocks == NULL) {
            send->n_runs++; /* counted now, so that free covers it */
            return E_NOMEM;
        }
    }
    return 0;
}

int kvxfer_send_new(const struct kvxfer_send_opts *opts, uint64_t now_ns, struct kvxfer_send **out)
{
    struct kvxfer_send *send = calloc(1, sizeof(*send));

    if (send == NULL)
        return E_NOMEM;
    send->opts = *opts;
    str_copy(send->tcp_address, sizeof(send->tcp_address), opts->tcp_address);
    str_copy(send->unix_path, sizeof(send->unix_path), opts->unix_path);
    if (send_open_runs(send) < 0) {
        kvxfer_send_free(send);
        return E_NOMEM;
    }
    send->began_ns = now_ns;
    *out = send;
    send_offer(send, now_ns);
    return 0;
}

static void send_drop_leases(struct kvxfer_send *send)
{
    for (uint32_t i = 0; i < send->n_runs; i++)
        while (send->runs[i].n_captured > 0)
            kv_unlease(send->opts.pool, send->runs[i].blocks[--send->runs[i].n_captured]);
}

void kvxfer_send_free(struct kvxfer_send *send)
{
    if (send == NULL)
        return;
    send_drop_leases(send);
    for (uint32_t i = 0; i < send->n_runs; i++) {
        free(send->runs[i].ready);
        free(send->runs[i].pushed);
        free(send->runs[i].blocks);
    }
    free(send->runs);
    free(send);
}

/* ---- ends ---- */

static void send_close(struct kvxfer_send *send)
{
    send_set_state(send, SEND_CLOSED);
    send_drop_leases(send);
    if (send->must_confirm_stop)
        send_message(send, (struct kvxfer_message){.kind = KVXFER_STOPPED});
    send->opts.calls->on_closed(send->opts.arg);
}

static void send_end(struct kvxfer_send *send, int result)
{
    bool was_pushing = send->state == SEND_PUSHING || send->state == SEND_PUSHED;

    if (send_is_over(send))
        return;
    send_set_state(send, SEND_STOPPING);
    send->opts.calls->on_over(send->opts.arg, result);
    if (was_pushing)
        (void)tr_stop_push(send->opts.transport, send->opts.transfer);
    else
        send_close(send);
}

static void send_give_up(struct kvxfer_send *send, int code)
{
    if (send_is_over(send))
        return;
    send_message(send, (struct kvxfer_message){.kind = KVXFER_CANCEL, .code = code});
    send_end(send, code);
}

void kvxfer_send_cancel(struct kvxfer_send *send, int code)
{
    send_give_up(send, code);
}

void kvxfer_send_peer_lost(struct kvxfer_send *send)
{
    send_end(send, E_PEER);
}

/* ---- pushing ---- */

/* Hands the ready blocks of one layer to the transport. False: the transport takes no more now. */
static bool send_pump_layer(struct kvxfer_send *send, struct send_run *run, uint32_t layer)
{
    uint32_t from = run->pushed[layer] < run->skip ? run->skip : run->pushed[layer];

    if (from < run->ready[layer]) {
        int rc = tr_push(send->opts.transport, send->opts.transfer,
                         &(struct tr_pieces){layer, run->at + from - run->skip,
                                             run->blocks + (from - run->first), run->ready[layer] - from});
        if (rc < 0)
            return false;
    }
    if (run->pushed[layer] < run->ready[layer])
        run->pushed[layer] = run->ready[layer];
    return true;
}

static void send_pump(struct kvxfer_send *send)
{
    uint32_t n_left = 0;

    if (send->state != SEND_PUSHING)
        return;
    for (uint32_t i = 0; i < send->n_runs; i++)
        for (uint32_t layer = 0; layer < send->opts.n_layers; layer++) {
            if (!send_pump_layer(send, &send->runs[i], layer))
                return; /* the next event or tick tries again */
            n_left += send->runs[i].pushed[layer] < send->runs[i].end;
        }
    if (n_left == 0)
        send_set_state(send, SEND_PUSHED);
}

static void send_capture(struct kvxfer_send *send, struct send_run *run, uint32_t n_ready,
                         const kv_block_id *table)
{
    for (; run->first + run->n_captured < n_ready; run->n_captured++) {
        run->blocks[run->n_captured] = table[run->first + run->n_captured];
        kv_lease(send->opts.pool, run->blocks[run->n_captured]);
    }
}

static void send_run_ready(struct kvxfer_send *send, struct kvxfer_window window, uint32_t n_ready,
                           const kv_block_id *table)
{
    struct send_run *run = &send->runs[window.group];

    if (send_is_over(send) || run->end == run->first) /* left out */
        return;
    ASSERT(n_ready <= run->end);
    send_capture(send, run, n_ready, table);
    if (window.layer == KVXFER_ALL_LAYERS) {
        for (uint32_t l = 0; l < send->opts.n_layers; l++)
            run->ready[l] = n_ready > run->ready[l] ? n_ready : run->ready[l];
        send_pump(send);
        return;
    }
    if (n_ready > run->ready[window.layer])
        run->ready[window.layer] = n_ready;
    if (send->state == SEND_PUSHING && window.layer + 1 == send->opts.n_layers)
        send_pump(send);
    else if (send->state == SEND_PUSHING)
        (void)send_pump_layer(send, run, window.layer);
}

void kvxfer_send_ready(struct kvxfer_send *send, uint32_t layer, uint32_t n_ready, const kv_block_id *table)
{
    send_run_ready(send, (struct kvxfer_window){.group = 0, .layer = layer}, n_ready, table);
}

void kvxfer_send_window_ready(struct kvxfer_send *send, struct kvxfer_window window, uint32_t n_ready,
                              const kv_block_id *table)
{
    ASSERT(window.group < send->opts.n_windows);
    window.group++; /* run 0 is the prompt's */
    send_run_ready(send, window, n_ready, table);
}

void kvxfer_send_head_ready(struct kvxfer_send *send, uint32_t n_ready, const kv_block_id *table)
{
    ASSERT(send->opts.n_head_blocks > 0);
    send_run_ready(send, (struct kvxfer_window){.group = send->n_runs - 1, .layer = KVXFER_ALL_LAYERS},
                   n_ready, table);
}

static void send_message_first(struct kvxfer_send *send)
{
    if (!send->has_first || send_is_over(send) || !kvxfer_send_is_granted(send))
        return;
    send_message(send, (struct kvxfer_message){.kind = KVXFER_PREFILL_DONE,
                                               .first = send->first,
                                               .is_finished = send->is_finished});
}

void kvxfer_send_first(struct kvxfer_send *send, const struct kvxfer_first *first, bool is_finished)
{
    send->first = *first;
    send->has_first = true;
    send->is_finished = is_finished;
    send_message_first(send);
}

/* ---- input ---- */

/* Finds each run's place in the grant. */
static void send_place_runs(struct kvxfer_send *send, uint32_t skip_blocks)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < send->n_runs; i++) {
        struct send_run *run = &send->runs[i];

        run->skip = send_skip(run, skip_blocks);
        run->at = at;
        at += run->end - run->skip;
    }
}

/* The receiver wants no KV of the head. */
static void send_leave_head_out(struct kvxfer_send *send)
{
    struct send_run *run = &send->runs[send->n_runs - 1];

    while (run->n_captured > 0)
        kv_unlease(send->opts.pool, run->blocks[--run->n_captured]);
    for (uint32_t layer = 0; layer < send->opts.n_layers; layer++)
        run->ready[layer] = 0;
    run->end = run->first;
}

static void send_on_grant(struct kvxfer_send *send, const struct kvxfer_message *grant, uint64_t now_ns)
{
    struct tr_target target = {.kind = grant->transport, .ticket = grant->ticket};
    uint32_t wanted, n_head = send->opts.n_head_blocks, n_others;

    if (send->state != SEND_OFFERED || send_is_over(send))
        return;
    n_others = grant->skip_blocks > send->opts.n_blocks ? 0 : send_n_blocks(send, grant->skip_blocks);
    if (n_others == 0 || (grant->n_blocks != n_others && grant->n_blocks != n_others + n_head)) {
        send_give_up(send, E_PROTO);
        return;
    }
    if (n_head > 0 && grant->n_blocks == n_others)
        send_leave_head_out(send);
    target.address = tr_kind_socket(grant->transport) == TR_SHM ? send->unix_path : send->tcp_address;
    wanted = send->opts.n_layers * grant->n_blocks;
    if (tr_start_push(send->opts.transport, send->opts.transfer, &target, wanted) < 0) {
        send_give_up(send, E_FULL);
        return;
    }
    send_set_state(send, SEND_PUSHING);
    send_place_runs(send, grant->skip_blocks);
    send->moved_ns = now_ns;
    send_pump(send);
    send_message_first(send);
}

static void send_on_refused(struct kvxfer_send *send, const struct kvxfer_message *refused, uint64_t now_ns)
{
    if (send->state != SEND_OFFERED)
        return;
    if (refused->retry_after_ms == 0) {
        send->is_refused = true;
        send_end(send, refused->code < 0 ? refused->code : E_PEER);
        return;
    }
    send_set_state(send, SEND_WAITING);
    send->retry_ns = now_ns + refused->retry_after_ms * NS_PER_MS;
}

void kvxfer_send_message(struct kvxfer_send *send, const struct kvxfer_message *message, uint64_t now_ns)
{
    switch (message->kind) {
    case KVXFER_GRANT:
        send_on_grant(send, message, now_ns);
        return;
    case KVXFER_REFUSED:
        send_on_refused(send, message, now_ns);
        return;
    case KVXFER_DONE:
        if (send->state == SEND_PUSHED || send->state == SEND_PUSHING)
            send_end(send, send->state == SEND_PUSHED
                               ? 0
                               : E_PROTO); /* DONE before the last push breaks the protocol */
        return;
    case KVXFER_CANCEL:
        send->must_confirm_stop =
            send->state == SEND_PUSHING || send->state == SEND_PUSHED || send->state == SEND_STOPPING;
        send_end(send, message->code < 0 ? message->code : E_CANCELLED);
        return;
    case KVXFER_OFFER:
    case KVXFER_PREFILL_DONE:
    case KVXFER_STOPPED:
    case KVXFER_FETCH:
    case KVXFER_FETCH_REFUSED:
        return;
    }
}

void kvxfer_send_event(struct kvxfer_send *send, const struct tr_event *event, uint64_t now_ns)
{
    switch (event->kind) {
    case TR_PUSH_SENT:
        send->moved_ns = now_ns;
        send_pump(send);
        return;
    case TR_PUSH_FAILED:
        send_give_up(send, event->fault.code < 0 ? event->fault.code : E_IO);
        return;
    case TR_PUSH_STOPPED:
        if (send->state == SEND_STOPPING)
            send_close(send);
        return;
    case TR_PIECES_ARRIVED:
    case TR_TICKET_COMPLETE:
    case TR_TICKET_FAILED:
    case TR_TICKET_CLOSED:
        return;
    }
}

void kvxfer_send_tick(struct kvxfer_send *send, uint64_t now_ns)
{
    switch (send->state) {
    case SEND_OFFERED:
        if (now_ns - send->moved_ns > send->opts.timeout_ns)
            send_give_up(send, E_TIMEOUT);
        return;
    case SEND_WAITING: /* repeated refusals also time out */
        if (now_ns - send->began_ns > send->opts.timeout_ns)
            send_end(send, E_TIMEOUT);
        else if (now_ns >= send->retry_ns)
            send_offer(send, now_ns);
        return;
    case SEND_PUSHING:
        send_pump(send);
        return; /* no timeout: a long prefill is no fault */
    case SEND_PUSHED:
        if (now_ns - send->moved_ns > send->opts.timeout_ns)
            send_give_up(send, E_TIMEOUT);
        return;
    case SEND_STOPPING:
    case SEND_CLOSED:
        return;
    }
}

bool kvxfer_send_is_granted(const struct kvxfer_send *send)
{
    return send->state == SEND_PUSHING || send->state == SEND_PUSHED;
}

bool kvxfer_send_is_refused(const struct kvxfer_send *send)
{
    return send->is_refused;
}
