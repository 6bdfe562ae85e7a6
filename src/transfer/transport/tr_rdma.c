/* SPDX-License-Identifier: Apache-2.0 */
/* READY connections of kind RDMA: the socket beside the queue pairs.
 *
 * The socket carries no payload, so it has few frames: ask for a ticket, answer, credit, stop, end.
 * tr_rdma_send.c and tr_rdma_recv.c handle the queue pairs; this file sees only their is_broken. A
 * completion handler never ends a connection itself: it wakes the connection, and the connection's next
 * step ends it. */
#include "transfer/transport/tr_rdma_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"

#define MAX_OUTPUT ((size_t)32 << 10) /* unsent bytes above which the peer's next ASK waits */

/* ---- output ---- */

int rdma_send_frame_with(struct rdma_side *side, const struct kv_frame *frame, struct bytes payload)
{
    struct fault fault;
    int err;

    if (side->conn->state == TR_CONN_DEAD)
        return E_CLOSED;
    err = tr_conn_send_frame(side->conn, frame, &fault);
    if (err == 0 && payload.len_bytes > 0)
        err = tr_stream_put(&side->conn->stream, payload.data, payload.len_bytes);
    if (err != 0 && !side->is_broken) {
        fault_set(&side->fault, err, "cannot say a word beside RDMA: %s", err_text(err));
        side->is_broken = side->is_mute = true;
    }
    tr_conn_wake(side->conn); /* the caller may be outside a step, and only a step watches the socket */
    return err;
}

int rdma_send_frame(struct rdma_side *side, const struct kv_frame *frame)
{
    return rdma_send_frame_with(side, frame, bytes_of(NULL, 0));
}

void rdma_side_moved(struct rdma_qp *qp)
{
    if (qp->side->conn == NULL)
        return;
    if (qp->is_receiver)
        rdma_recv_credit(qp);
    else
        rdma_send_post(qp->side);
}

/* ---- input ---- */

static int rdma_on_credit(struct rdma_side *side, const struct kv_frame_credit *credit, struct fault *fault)
{
    struct rdma_pair *pair = &side->pairs[credit->rail];
    struct rdma_qp *qp;

    if (side->is_dead)
        return 0;
    if (credit->rail >= side->n_pairs || credit->qp >= pair->n_qps)
        return fault_set(fault, E_PROTO, "CREDIT for queue pair %u of rail %u", credit->qp, credit->rail);
    qp = pair->qps[credit->qp];
    if ((int32_t)(credit->n_total - qp->credit) < 0)
        return fault_set(fault, E_PROTO, "CREDIT goes back");
    qp->credit = credit->n_total;
    return 0;
}

/* The receiver's ticket is over: it has all our pieces, or it refused. */
static void rdma_on_reject(struct rdma_side *side, const struct kv_frame_reject *reject)
{
    struct rdma_push *rdma_push = rdma_send_find(side, reject->ticket);
    struct tr_push *push;

    if (rdma_push == NULL)
        return;
    push = rdma_push->push;
    if (rdma_push->state == RDMA_WHICH && rdma_push->n_done == rdma_push->n_chunks) {
        push->carriers = 0; /* all pieces arrived: the connection's end fails nothing */
        rdma_push_end(side, rdma_push);
    } else {
        tr_push_rejected(side->node, side->conn->peer, push->ticket, reject->code);
    }
}

/* A rail that failed at the receiver is unusable here too. */
static void rdma_on_end(struct rdma_side *side, const struct kv_frame_end *end)
{
    const struct rdma_pair *pair = end->rail > 0 ? &side->pairs[end->rail - 1] : NULL;

    if (side->is_dead)
        return;
    log_warn("kv_rdma_ended_by_receiver", LOG_STR("peer", tr_conn_name(side->conn)), LOG_ERR(end->code));
    if (end->code == E_TIMEOUT) /* this end was slow, not the rail */
        return;
    if (pair != NULL && pair->rail != NULL)
        rdma_let_rest(side->node, pair->rail, side->conn->peer->address);
    else
        rdma_rest_all(side->node, side->conn->peer->address);
}

static int rdma_begin_payload(struct rdma_side *side, const struct kv_frame *frame, size_t len_bytes,
                              struct fault *fault)
{
    side->payload = malloc(len_bytes);
    if (side->payload == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a frame");
    side->payload_of = *frame;
    side->payload_bytes = len_bytes;
    side->payload_at = 0;
    return 0;
}

static int rdma_on_frame_of_receiver(struct rdma_side *side, const struct kv_frame *frame,
                                     struct fault *fault)
{
    const struct kv_frame_hello *peer = &side->conn->peer_geometry;

    switch ((unsigned)frame->type) {
    case KV_FRAME_REJECT:
        rdma_on_reject(side, &frame->as.reject);
        return 0;
    case KV_FRAME_SLOT:
        if (frame->as.slot.n_blocks > peer->n_blocks)
            return fault_set(fault, E_PROTO, "SLOT for %u blocks", frame->as.slot.n_blocks);
        return rdma_begin_payload(side, frame, frame->as.slot.n_blocks * sizeof(uint32_t), fault);
    case KV_FRAME_HAVE:
        if (frame->as.have.n_bits > (uint64_t)peer->n_blocks * peer->n_layers)
            return fault_set(fault, E_PROTO, "HAVE of %u bits", frame->as.have.n_bits);
        return rdma_begin_payload(side, frame, ((size_t)frame->as.have.n_bits + 7) / 8, fault);
    case KV_FRAME_CREDIT:
        return rdma_on_credit(side, &frame->as.credit, fault);
    case KV_FRAME_STOP:
        rdma_send_on_stop(side, frame->as.ticket.ticket);
        return 0;
    case KV_FRAME_END:
        rdma_on_end(side, &frame->as.end);
        return rdma_fall(side, fault);
    default:
        return fault_set(fault, E_PROTO, "frame type %d from a receiver", frame->type);
    }
}

static int rdma_on_frame_of_sender(struct rdma_side *side, const struct kv_frame *frame, struct fault *fault)
{
    switch ((unsigned)frame->type) {
    case KV_FRAME_ASK:
        return rdma_recv_on_ask(side, frame->as.ticket.ticket, fault);
    case KV_FRAME_STOPPED:
        rdma_recv_on_stopped(side, frame->as.ticket.ticket);
        return 0;
    case KV_FRAME_END:
        return rdma_fall(side, fault);
    case KV_FRAME_WHICH:
        return rdma_recv_on_which(side, frame->as.ticket.ticket, fault);
    default:
        return fault_set(fault, E_PROTO, "frame type %d from a sender", frame->type);
    }
}

/* 1: the payload has arrived and was used; 0: not yet. */
static int rdma_read_payload(struct rdma_side *side, struct fault *fault)
{
    struct iovec iov = {.iov_base = side->payload + side->payload_at,
                        .iov_len = side->payload_bytes - side->payload_at};
    ssize_t n = tr_stream_read(&side->conn->stream, &iov, 1);
    uint8_t *payload = side->payload;
    int rc;

    if (n < 0)
        return fault_set(fault, (int)n, "connection lost in the middle of a frame");
    side->payload_at += (size_t)n;
    if (n == 0 || side->payload_at < side->payload_bytes)
        return n == 0 ? 0 : 1;
    side->payload = NULL;
    if (side->payload_of.type == KV_FRAME_SLOT)
        rc = rdma_send_on_slot(side, &side->payload_of.as.slot, payload, fault);
    else
        rc = rdma_fall_on_have(side, &side->payload_of.as.have, payload, fault);
    free(payload);
    return rc < 0 ? rc : 1;
}

static int rdma_on_frame(struct tr_conn *conn, struct fault *fault)
{
    struct rdma_side *side = conn->moving;
    struct kv_frame frame;
    int rc = 1;

    while (rc > 0) {
        if (conn->stream.out.len_bytes - conn->stream.out_at > MAX_OUTPUT)
            return 0; /* the connection steps again when the output is sent */
        if (side->payload != NULL) {
            rc = rdma_read_payload(side, fault);
            continue;
        }
        rc = tr_conn_read_frame(conn, fault, &frame);
        if (rc > 0) {
            rc = side->is_dialler ? rdma_on_frame_of_receiver(side, &frame, fault)
                                  : rdma_on_frame_of_sender(side, &frame, fault);
            rc = rc < 0 ? rc : 1;
        }
    }
    return rc;
}

/* ---- operations of the kind ---- */

static int rdma_fall_if_broken(struct rdma_side *side, struct fault *fault)
{
    if (side->is_mute) {
        *fault = side->fault;
        return fault->code;
    }
    return side->is_broken ? rdma_fall(side, fault) : 0;
}

static int rdma_ready(struct tr_conn *conn, struct fault *fault)
{
    return 1;
}

static int rdma_receive(struct tr_conn *conn, struct fault *fault)
{
    int rc = rdma_fall_if_broken(conn->moving, fault);

    return rc < 0 ? rc : rdma_on_frame(conn, fault);
}

static int rdma_send(struct tr_conn *conn, struct fault *fault)
{
    struct rdma_side *side = conn->moving;
    int rc = rdma_fall_if_broken(side, fault);

    if (rc < 0)
        return rc;
    if (side->is_dead)
        return list_is_empty(&side->pushes) ? fault_set(fault, E_CLOSED, "left for TCP") : 0;
    rdma_send_take(side);
    rdma_send_post(side);
    return 0;
}

static void rdma_forget_push(struct tr_conn *conn, const struct tr_push *push)
{
    struct rdma_side *side = conn->moving;

    if (push->rdma != NULL && push->rdma->side == side)
        rdma_send_forget(side, push);
}

static void rdma_forget_ticket(struct tr_conn *conn, const struct tr_ticket *ticket)
{
    rdma_recv_forget(conn->moving, ticket);
}

static bool rdma_is_busy(const struct tr_conn *conn)
{
    const struct rdma_side *side = conn->moving;

    if (side == NULL)
        return false;
    return conn->head_bytes > 0 || side->payload != NULL || (side->is_dialler && rdma_send_is_busy(side));
}

static void rdma_fini(struct tr_conn *conn)
{
    rdma_side_free(conn->moving);
    conn->moving = NULL;
}

static bool rdma_is_offered(const struct tr_node *node)
{
    return node->rdma != NULL;
}

/* RDMA could not be set up: all pushes move to TCP,
 * which also finds out whether the peer is reachable at all. */
static void rdma_gave_up(struct tr_node *node, struct tr_peer *peer, enum tr_conn_state reached)
{
    struct list none;

    list_init(&none);
    if (reached != TR_CONN_CONNECTING && reached != TR_CONN_SHAKING)
        rdma_rest_all(node, peer->address);
    atomic_fetch_add_explicit(&node->totals.rdma_failures, 1, memory_order_relaxed);
    list_for_each_safe (at, spare, &peer->pushes) {
        struct tr_push *push = container_of(at, struct tr_push, node);

        if (push->rdma == NULL) /* the others are on a connection that is closing */
            tr_push_over_tcp(node, push, &none, push->n_sent);
    }
}

const struct tr_conn_ops tr_rdma_ops = {
    .frame_bytes = TR_FRAME_BYTES,
    .is_without_host = true,
    .keeps_pushes = true,
    .is_offered = rdma_is_offered,
    .may_reach = rdma_may_reach,
    .share = rdma_connect,
    .gave_up = rdma_gave_up,
    .ready = rdma_ready,
    .receive = rdma_receive,
    .send = rdma_send,
    .listen = rdma_on_frame,
    .forget_push = rdma_forget_push,
    .forget_ticket = rdma_forget_ticket,
    .lost = rdma_lost,
    .is_busy = rdma_is_busy,
    .fini = rdma_fini,
};
