/* SPDX-License-Identifier: Apache-2.0 */
/* How RDMA ends on a connection, and how its pushes continue.
 *
 *     bad completion, event, port down,           both ends kill all queue pairs of the connection,
 *     unanswered STOP, END of the other end  -->  each before it sends END
 *
 *     sender:    END, then WHICH for each ticket that was open --> HAVE: on over TCP with what is missing
 *     receiver:  END; lets every ticket go; answers WHICH from the tickets' bitmaps
 *
 * The order makes it safe. The receiver destroys its queue pairs before it answers WHICH and before it lets a
 * ticket go. So no late packet can land in blocks that were given back, or over bytes that came by TCP. The sender
 * destroys its queue pairs before it sends WHICH, so the receiver's count is final. A chunk that arrived just
 * before the end still counts, because the completions are polled once more.
 *
 * Only the first bad completion is reported; the others are flushed because of it. One bad queue pair ends
 * all of them: the others would soon fail too, and one path through the code is enough. The next push sets up
 * a connection over the rails that are not at rest.
 *
 * If a device refuses to end a queue pair, nothing is let go. The side leaves its connection and tries again
 * until it works (tr_rdma_check). Until then its tickets stay open and its blocks stay leased: a late write
 * into reused blocks would be worse. */
#include "transfer/transport/tr_rdma_priv.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"

/* ---- detection ---- */

static void rdma_fall_log_break(const struct rdma_qp *qp, const struct ibv_wc *wc, const char *what)
{
    const struct rdma_side *side = qp->side;
    uint64_t ticket = 0;

    if (!qp->is_receiver && qp->n_flights > 0)
        ticket = qp->flights[qp->first_flight].rdma_push->ticket;
    log_warn("kv_rdma_failed", LOG_STR("peer", tr_conn_name(side->conn)), LOG_STR("rail", qp->rail->name),
             LOG_U64("qpn", qp->qp != NULL ? qp->qp->qp_num : 0), LOG_U64("peer_qpn", qp->peer_qpn),
             LOG_STR("side", side->is_dialler ? "sender" : "receiver"), LOG_STR("reason", what),
             LOG_U64("status", wc != NULL ? (uint64_t)wc->status : 0),
             LOG_U64("vendor_error", wc != NULL ? wc->vendor_err : 0), LOG_U64("ticket", ticket));
}

void rdma_break(struct rdma_qp *qp, const struct ibv_wc *wc, const char *what)
{
    struct rdma_side *side = qp->side;

    if (side->conn == NULL || side->is_broken || side->is_dead)
        return;
    side->is_broken = true;
    side->broken_rail = (uint8_t)(qp->rail_index + 1);
    rdma_fall_log_break(qp, wc, what);
    fault_set(&side->fault, E_IO, "RDMA with %s over %s failed: %s", tr_conn_name(side->conn), qp->rail->name,
              what);
    if (side->is_dialler)
        rdma_let_rest(side->node, qp->rail, tr_conn_name(side->conn));
    tr_conn_wake(side->conn);
}

void rdma_break_rail(struct rdma_rail *rail, const char *what)
{
    list_for_each (at, &rail->node->conns) {
        struct tr_conn *conn = container_of(at, struct tr_conn, node);
        struct rdma_side *side = conn->kind == TR_RDMA ? conn->moving : NULL;

        for (unsigned p = 0; side != NULL && p < side->n_pairs; p++)
            if (side->pairs[p].rail == rail && side->pairs[p].n_qps > 0)
                rdma_break(side->pairs[p].qps[0], NULL, what);
    }
}

/* ---- killing ---- */

bool rdma_kill_all(struct rdma_side *side)
{
    bool is_done = true;

    for (unsigned p = 0; p < side->n_pairs; p++) {
        struct rdma_pair *pair = &side->pairs[p];
        unsigned n_left = 0;

        for (unsigned i = 0; i < pair->n_qps; i++)
            if (!rdma_qp_kill(pair->qps[i]))
                pair->qps[n_left++] = pair->qps[i];
        pair->n_qps = n_left;
        is_done = is_done && n_left == 0;
    }
    side->is_dead = is_done;
    if (!is_done)
        log_error("kv_rdma_queue_pair_stuck",
                  LOG_STR("peer", side->conn != NULL ? tr_conn_name(side->conn) : "a former one"));
    return is_done;
}

static void rdma_fall_end_pushes(struct rdma_side *side)
{
    while (!list_is_empty(&side->pushes))
        rdma_push_end(side, container_of(side->pushes.next, struct rdma_push, node));
}

void rdma_lost(struct tr_conn *conn)
{
    struct rdma_side *side = conn->moving;

    if (side == NULL)
        return;
    if (rdma_kill_all(side)) {
        rdma_recv_let_all_go(side);
        rdma_fall_end_pushes(side);
        return;
    }
    list_for_each (at, &side->pushes) { /* their pushes fail; the pushes only have to be let go */
        struct rdma_push *rdma_push = container_of(at, struct rdma_push, node);

        list_remove(&rdma_push->due);
        rdma_push->state = RDMA_STOPPED;
    }
    conn->moving = NULL;
    side->conn = NULL;
    if (side->stop_timer != NULL)
        ev_timer_stop(side->stop_timer);
    list_push_back(&side->node->rdma->undead, &side->undead);
}

void rdma_side_free(struct rdma_side *side)
{
    if (side == NULL)
        return;
    if (!side->is_dead && !rdma_kill_all(side))
        (void)rdma_kill_all(
            side); /* the node ends: closing the device ends its queue pairs, with any answer */
    side->is_dead = true;
    rdma_recv_let_all_go(side);
    rdma_fall_end_pushes(side);
    list_remove(&side->undead);
    for (unsigned p = 0; p < side->n_pairs; p++)
        free(side->pairs[p].regions);
    ev_timer_free(side->stop_timer);
    hashmap_free(side->by_ticket);
    free(side->slots);
    free(side->free_slots);
    free(side->payload);
    free(side);
}

/* ---- the move to TCP ---- */

static void rdma_fall_leave_one(struct rdma_side *side, struct rdma_push *rdma_push)
{
    struct kv_frame which = {.type = KV_FRAME_WHICH, .as.ticket = {rdma_push->ticket}};
    struct tr_push *push = rdma_push->push;
    struct list none;

    switch (rdma_push->state) {
    case RDMA_STOPPED:
        rdma_push_end(side, rdma_push);
        return;
    case RDMA_ASKED: /* no piece was taken from it */
        list_init(&none);
        rdma_push_end(side, rdma_push);
        tr_push_over_tcp(side->node, push, &none, 0);
        return;
    case RDMA_OPEN:
        list_remove(&rdma_push->due);
        rdma_push->state = RDMA_WHICH;
        rdma_send_frame(side, &which);
        return;
    case RDMA_WHICH:
        return;
    }
}

static void rdma_fall_leave_all(struct rdma_side *side)
{
    struct tr_peer *peer = side->conn->peer;
    struct list none;

    list_init(&none);
    list_for_each_safe (at, spare, &side->pushes)
        rdma_fall_leave_one(side, container_of(at, struct rdma_push, node));
    list_for_each_safe (at, spare, &peer->pushes) {
        struct tr_push *push = container_of(at, struct tr_push, node);

        if (push->rdma == NULL && !push->is_failed)
            tr_push_over_tcp(side->node, push, &none, push->n_sent);
    }
}

int rdma_fall(struct rdma_side *side, struct fault *fault)
{
    struct kv_frame end = {.type = KV_FRAME_END,
                           .as.end = {side->fault.code != 0 ? side->fault.code : E_PEER, side->broken_rail}};

    if (side->is_dead)
        return 0;
    if (!rdma_kill_all(side))
        return fault_set(fault, E_IO, "queue pairs towards %s cannot be ended", tr_conn_name(side->conn));
    atomic_fetch_add_explicit(&side->node->totals.rdma_failures, 1, memory_order_relaxed);
    side->conn->is_leaving = true;
    rdma_send_frame(side, &end);
    if (side->is_dialler) {
        rdma_fall_leave_all(side);
    } else {
        rdma_recv_let_all_go(side);
        tr_tickets_forget_carrier(side->node, side->conn);
    }
    log_info("kv_rdma_left", LOG_STR("peer", tr_conn_name(side->conn)),
             LOG_STR("side", side->is_dialler ? "sender" : "receiver"));
    return 0;
}

static bool rdma_fall_is_missing(const struct rdma_push *rdma_push, const uint8_t *bits, size_t i)
{
    return rdma_push->source[i] != UINT32_MAX && (bits[i / 8] >> i % 8 & 1) == 0;
}

/* Makes jobs of the missing pieces, one per run within a layer. */
static int rdma_fall_add_jobs(const struct rdma_push *rdma_push, const uint8_t *bits, uint32_t layer,
                              struct list *jobs)
{
    size_t base = (size_t)layer * rdma_push->n_blocks;

    for (uint32_t first = 0, n; first < rdma_push->n_blocks; first += n) {
        struct tr_job *job;

        for (n = 0;
             first + n < rdma_push->n_blocks && rdma_fall_is_missing(rdma_push, bits, base + first + n); n++)
            ;
        if (n == 0) {
            n = 1;
            continue;
        }
        job = malloc(sizeof(*job) + n * sizeof(job->blocks[0]));
        if (job == NULL)
            return E_NOMEM;
        *job = (struct tr_job){.layer = layer, .first = first, .n = n};
        list_init(&job->node);
        for (uint32_t i = 0; i < n; i++)
            job->blocks[i] = rdma_push->source[base + first + i];
        list_push_back(jobs, &job->node);
    }
    return 0;
}

int rdma_fall_on_have(struct rdma_side *side, const struct kv_frame_have *have, const uint8_t *bits,
                      struct fault *fault)
{
    struct rdma_push *rdma_push = rdma_send_find(side, have->ticket);
    struct tr_push *push;
    struct list jobs, *at;
    uint32_t n_there = 0;

    if (rdma_push == NULL)
        return 0; /* stopped in the meantime */
    if (rdma_push->state != RDMA_WHICH || have->n_bits != rdma_push->n_layers * rdma_push->n_blocks)
        return fault_set(fault, E_PROTO, "HAVE of %u bits without a WHICH", have->n_bits);
    list_init(&jobs);
    for (uint32_t layer = 0; layer < rdma_push->n_layers; layer++)
        if (rdma_fall_add_jobs(rdma_push, bits, layer, &jobs) != 0) {
            while ((at = list_pop_front(&jobs)) != NULL)
                free(container_of(at, struct tr_job, node));
            return fault_set(fault, E_NOMEM, "no memory for what is missing");
        }
    for (uint32_t i = 0; i < have->n_bits; i++)
        n_there += bits[i / 8] >> i % 8 & 1;
    push = rdma_push->push;
    log_info("kv_rdma_over_tcp", LOG_STR("peer", tr_conn_name(side->conn)), LOG_U64("ticket", have->ticket),
             LOG_U64("pieces_there", n_there), LOG_U64("pieces", have->n_bits));
    rdma_push_end(side, rdma_push);
    tr_push_over_tcp(side->node, push, &jobs, n_there);
    return 0;
}
