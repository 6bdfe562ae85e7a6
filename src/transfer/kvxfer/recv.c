/* SPDX-License-Identifier: Apache-2.0 */
/* See recv.h for the drawing.
 *
 * Every end passes through CLOSING: ask the transport to close the ticket and wait for its answer. Only
 * that answer guarantees that no late byte lands in a block that already has a new owner. A complete
 * transfer closes the same way: it costs one message and leaves only one path to the end. */
#include "transfer/kvxfer/recv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

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
    uint64_t moved_ns, word_ns; /* moved_ns: last progress; word_ns: PREFILL_DONE came */
};

static void say(struct kvxfer_recv *recv, struct kvxfer_message message)
{
    message.transfer = recv->opts.transfer;
    recv->opts.calls->message(recv->opts.arg, &message);
}

static int lease_blocks(struct kvxfer_recv *recv)
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

static void drop_leases(struct kvxfer_recv *recv)
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
    rc = lease_blocks(recv);
    if (rc == 0)
        rc = tr_open_ticket(opts->transport, opts->ticket, recv->leased, recv->n_leased);
    if (rc < 0) {
        kvxfer_recv_free(recv);
        return rc;
    }
    *out = recv;
    say(recv, (struct kvxfer_message){.kind = KVXFER_GRANT,
                                      .blocks = recv->leased,
                                      .n_blocks = recv->n_leased,
                                      .skip_blocks = opts->skip_blocks,
                                      .ticket = opts->ticket,
                                      .deadline_ms = (uint32_t)(opts->timeout_ns / NS_PER_MS),
                                      .transport = opts->kind});
    return 0;
}

void kvxfer_recv_free(struct kvxfer_recv *recv)
{
    if (recv == NULL)
        return;
    if (recv->leased != NULL)
        drop_leases(recv);
    free(recv->leased);
    free(recv);
}

/* ---- ends ---- */

/* A hand-off needs the first token before it is whole; a prefix fetch has none. */
static bool has_word(const struct kvxfer_recv *recv)
{
    return recv->has_first || recv->opts.is_asked;
}

static void begin_closing(struct kvxfer_recv *recv, int code)
{
    if (recv->state == RECV_CLOSING || recv->state == RECV_CLOSED)
        return;
    recv->state = RECV_CLOSING;
    recv->arrival.code = code;
    (void)tr_close_ticket(recv->opts.transport, recv->opts.ticket);
}

static void finish_closing(struct kvxfer_recv *recv, uint64_t now_ns)
{
    struct kvxfer_arrival *arrival = &recv->arrival;

    recv->state = RECV_CLOSED;
    arrival->is_whole = recv->has_all && has_word(recv) && arrival->code == 0;
    arrival->n_blocks = recv->opts.skip_blocks + (recv->has_all ? recv->n_leased : recv->n_leading);
    arrival->exposed_ns = arrival->is_whole && recv->has_first ? now_ns - recv->word_ns : 0;
    drop_leases(recv);
    if (recv->must_confirm_stop)
        say(recv, (struct kvxfer_message){.kind = KVXFER_STOPPED});
    if (arrival->is_whole)
        say(recv, (struct kvxfer_message){.kind = KVXFER_DONE, .n_tokens = recv->opts.n_tokens});
    if (!recv->is_gone)
        recv->opts.calls->on_arrived(recv->opts.arg, arrival);
    recv->opts.calls->on_closed(recv->opts.arg);
}

static void give_up(struct kvxfer_recv *recv, int code)
{
    if (recv->state == RECV_CLOSING || recv->state == RECV_CLOSED)
        return;
    say(recv, (struct kvxfer_message){.kind = KVXFER_CANCEL, .code = code});
    begin_closing(recv, code);
}

void kvxfer_recv_cancel(struct kvxfer_recv *recv, int code, bool is_gone)
{
    recv->is_gone |= is_gone;
    give_up(recv, code);
}

void kvxfer_recv_peer_lost(struct kvxfer_recv *recv)
{
    begin_closing(recv, E_PEER);
}

/* ---- input ---- */

static void look_whether_whole(struct kvxfer_recv *recv)
{
    if (recv->state == RECV_COMPLETE && has_word(recv))
        begin_closing(recv, 0);
}

void kvxfer_recv_message(struct kvxfer_recv *recv, const struct kvxfer_message *message, uint64_t now_ns)
{
    switch (message->kind) {
    case KVXFER_PREFILL_DONE:
        recv->moved_ns = recv->word_ns = now_ns;
        recv->has_first = true;
        recv->arrival.first = message->first;
        recv->arrival.is_finished = message->is_finished;
        look_whether_whole(recv);
        return;
    case KVXFER_CANCEL:
        recv->must_confirm_stop = true;
        begin_closing(recv, message->code < 0 ? message->code : E_CANCELLED);
        return;
    case KVXFER_OFFER:
    case KVXFER_GRANT:
    case KVXFER_REFUSED:
    case KVXFER_DONE:
    case KVXFER_STOPPED:
    case KVXFER_ASK:
    case KVXFER_ASK_REFUSED:
        return;
    }
}

static void note_progress(struct kvxfer_recv *recv, const struct tr_event *event, uint64_t now_ns)
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
        note_progress(recv, event, now_ns);
        return;
    case TR_TICKET_COMPLETE:
        note_progress(recv, event, now_ns);
        recv->has_all = true;
        if (recv->state == RECV_GRANTED)
            recv->state = RECV_COMPLETE;
        look_whether_whole(recv);
        return;
    case TR_TICKET_FAILED:
        note_progress(recv, event, now_ns);
        give_up(recv, event->fault.code < 0 ? event->fault.code : E_IO);
        return;
    case TR_TICKET_CLOSED:
        note_progress(recv, event, now_ns);
        if (recv->state == RECV_CLOSING)
            finish_closing(recv, now_ns);
        return;
    case TR_PUSH_SENT:
    case TR_PUSH_FAILED:
    case TR_PUSH_STOPPED:
        return;
    }
}

void kvxfer_recv_tick(struct kvxfer_recv *recv, uint64_t now_ns)
{
    if (now_ns - recv->moved_ns > recv->opts.timeout_ns)
        give_up(recv, E_TIMEOUT);
}

bool kvxfer_recv_is_closed(const struct kvxfer_recv *recv)
{
    return recv->state == RECV_CLOSED;
}
