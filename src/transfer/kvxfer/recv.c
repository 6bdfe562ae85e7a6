/* SPDX-License-Identifier: Apache-2.0 */
/* See recv.h for the drawing.
 *
 * Every end passes through CLOSING: ask the transport to close the ticket and wait for its answer. Only
 * that answer guarantees that no late byte lands in a block that already has a new owner. A complete
 * transfer closes the same way: it costs one message and leaves only one path to the end. */
#include "transfer/kvxfer/recv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

/* Before the first token, this many timeouts: other prompts may be computed before this one, or between its chunks.
 * If the sender stops meanwhile, its link ends or it sends CANCEL. */
#define PREFILL_PATIENCE 30

enum recv_state {
    RECV_GRANTED,  /* pieces may arrive */
    RECV_COMPLETE, /* every piece is here and verified; the first token is missing */
    RECV_CLOSING,  /* the transport was asked to close the ticket */
    RECV_CLOSED    /* the transport has closed it; no lease is left */
};

struct kvxfer_recv {
    enum recv_state state;
    struct kvxfer_recv_opts opts;
    kv_block_id *leased; /* [n_leased] blocks that the sender writes */
    uint32_t n_leased;
    uint32_t n_leading; /* how many of them are complete, counted from the front */
    bool has_all, has_first, is_gone, must_confirm_stop;
    struct kvxfer_arrival arrival;
    uint64_t moved_ns, first_ns; /* moved_ns: last progress; first_ns: PREFILL_DONE came */
};

static const char *const recv_states[] = {"granted", "complete", "closing", "closed"};
CHECK_ROWS(recv_states, RECV_CLOSED + 1);

static void recv_set_state(struct kvxfer_recv *recv, enum recv_state state)
{
    log_debug("transfer_recv_state", LOG_U64("transfer", recv->opts.transfer),
              LOG_STR("from", recv_states[recv->state]), LOG_STR("to", recv_states[state]));
    recv->state = state;
}

static void recv_message(struct kvxfer_recv *recv, struct kvxfer_message message)
{
    message.transfer = recv->opts.transfer;
    recv->opts.calls->message(recv->opts.arg, &message);
}

static int recv_lease_blocks(struct kvxfer_recv *recv)
{
    uint32_t n = recv->opts.n_blocks - recv->opts.skip_blocks;

    recv->leased = calloc(n, sizeof(*recv->leased));
    if (recv->leased == NULL)
        return E_NOMEM;
    memcpy(recv->leased, recv->opts.blocks + recv->opts.skip_blocks, n * sizeof(*recv->leased));
    for (recv->n_leased = 0; recv->n_leased < n; recv->n_leased++)
        kv_lease(recv->opts.pool, recv->leased[recv->n_leased]);
    return 0;
}

static void recv_drop_leases(struct kvxfer_recv *recv)
{
    while (recv->n_leased > 0)
        kv_unlease(recv->opts.pool, recv->leased[--recv->n_leased]);
}

int kvxfer_recv_new(const struct kvxfer_recv_opts *opts, uint64_t now_ns, struct kvxfer_recv **out)
{
    struct kvxfer_recv *recv;
    int rc;

    if (opts->skip_blocks >= opts->n_blocks)
        return E_INVAL;
    recv = calloc(1, sizeof(*recv));
    if (recv == NULL)
        return E_NOMEM;
    recv->opts = *opts;
    recv->moved_ns = now_ns;
    rc = recv_lease_blocks(recv);
    if (rc == 0)
        rc = tr_open_ticket(opts->transport, opts->ticket, recv->leased, recv->n_leased);
    if (rc < 0) {
        kvxfer_recv_free(recv);
        return rc;
    }
    *out = recv;
    recv_message(recv, (struct kvxfer_message){.kind = KVXFER_GRANT,
                                               .blocks = recv->leased,
                                               .n_blocks = recv->n_leased,
                                               .skip_blocks = opts->skip_blocks,
                                               .ticket = opts->ticket,
                                               .transport = opts->kind,
                                               .head_worth_us = opts->head_worth_us});
    return 0;
}

void kvxfer_recv_free(struct kvxfer_recv *recv)
{
    if (recv == NULL)
        return;
    if (recv->leased != NULL)
        recv_drop_leases(recv);
    free(recv->leased);
    free(recv);
}

/* ---- ends ---- */

/* A hand-off needs the first token before it is whole; a prefix fetch has none. */
static bool recv_lacks_first(const struct kvxfer_recv *recv)
{
    return !recv->has_first && !recv->opts.is_fetch;
}

static void recv_begin_closing(struct kvxfer_recv *recv, int code)
{
    if (recv->state == RECV_CLOSING || recv->state == RECV_CLOSED)
        return;
    recv_set_state(recv, RECV_CLOSING);
    recv->arrival.code = code;
    (void)tr_close_ticket(recv->opts.transport, recv->opts.ticket);
}

static void recv_finish_closing(struct kvxfer_recv *recv, uint64_t now_ns)
{
    struct kvxfer_arrival *arrival = &recv->arrival;

    recv_set_state(recv, RECV_CLOSED);
    arrival->is_whole = recv->has_all && !recv_lacks_first(recv) && arrival->code == 0;
    arrival->n_blocks = recv->opts.skip_blocks + (recv->has_all ? recv->n_leased : recv->n_leading);
    arrival->exposed_ns = arrival->is_whole && recv->has_first ? now_ns - recv->first_ns : 0;
    recv_drop_leases(recv);
    if (recv->must_confirm_stop)
        recv_message(recv, (struct kvxfer_message){.kind = KVXFER_STOPPED});
    if (arrival->is_whole)
        recv_message(recv, (struct kvxfer_message){.kind = KVXFER_DONE, .n_tokens = recv->opts.n_tokens});
    if (!recv->is_gone)
        recv->opts.calls->on_arrived(recv->opts.arg, arrival);
    recv->opts.calls->on_closed(recv->opts.arg);
}

static void recv_give_up(struct kvxfer_recv *recv, int code)
{
    if (recv->state == RECV_CLOSING || recv->state == RECV_CLOSED)
        return;
    recv_message(recv, (struct kvxfer_message){.kind = KVXFER_CANCEL, .code = code});
    recv_begin_closing(recv, code);
}

void kvxfer_recv_cancel(struct kvxfer_recv *recv, int code, bool is_gone)
{
    recv->is_gone |= is_gone;
    recv_give_up(recv, code);
}

void kvxfer_recv_peer_lost(struct kvxfer_recv *recv)
{
    recv_begin_closing(recv, E_PEER);
}

/* ---- input ---- */

static void recv_close_if_whole(struct kvxfer_recv *recv)
{
    if (recv->state == RECV_COMPLETE && !recv_lacks_first(recv))
        recv_begin_closing(recv, 0);
}

void kvxfer_recv_message(struct kvxfer_recv *recv, const struct kvxfer_message *message, uint64_t now_ns)
{
    switch (message->kind) {
    case KVXFER_PREFILL_DONE:
        recv->moved_ns = recv->first_ns = now_ns;
        recv->has_first = true;
        recv->arrival.first = message->first;
        recv->arrival.is_finished = message->is_finished;
        recv_close_if_whole(recv);
        return;
    case KVXFER_CANCEL:
        recv->must_confirm_stop = true;
        recv_begin_closing(recv, message->code < 0 ? message->code : E_CANCELLED);
        return;
    case KVXFER_OFFER:
    case KVXFER_GRANT:
    case KVXFER_REFUSED:
    case KVXFER_DONE:
    case KVXFER_STOPPED:
    case KVXFER_FETCH:
    case KVXFER_FETCH_REFUSED:
        return;
    }
}

static void recv_note_progress(struct kvxfer_recv *recv, const struct tr_event *event, uint64_t now_ns)
{
    recv->moved_ns = now_ns;
    if (event->n_leading > recv->n_leading && event->n_leading <= recv->n_leased)
        recv->n_leading = event->n_leading;
    if (event->n_bytes > recv->arrival.n_bytes) {
        recv->arrival.n_bytes = event->n_bytes;
        recv->arrival.elapsed_ns = event->elapsed_ns;
    }
}

void kvxfer_recv_event(struct kvxfer_recv *recv, const struct tr_event *event, uint64_t now_ns)
{
    switch (event->kind) {
    case TR_PIECES_ARRIVED:
        recv_note_progress(recv, event, now_ns);
        return;
    case TR_TICKET_COMPLETE:
        recv_note_progress(recv, event, now_ns);
        recv->has_all = true;
        if (recv->state == RECV_GRANTED)
            recv_set_state(recv, RECV_COMPLETE);
        recv_close_if_whole(recv);
        return;
    case TR_TICKET_FAILED:
        recv_note_progress(recv, event, now_ns);
        recv_give_up(recv, event->fault.code < 0 ? event->fault.code : E_IO);
        return;
    case TR_TICKET_CLOSED:
        recv_note_progress(recv, event, now_ns);
        if (recv->state == RECV_CLOSING)
            recv_finish_closing(recv, now_ns);
        return;
    case TR_PUSH_SENT:
    case TR_PUSH_FAILED:
    case TR_PUSH_STOPPED:
        return;
    }
}

void kvxfer_recv_tick(struct kvxfer_recv *recv, uint64_t now_ns)
{
    uint64_t n_timeouts = recv_lacks_first(recv) ? PREFILL_PATIENCE : 1;

    if (now_ns - recv->moved_ns > n_timeouts * recv->opts.timeout_ns)
        recv_give_up(recv, E_TIMEOUT);
}
