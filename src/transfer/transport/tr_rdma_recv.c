/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving half of an RDMA connection: which senders may write, and how that permission ends.
 *
 *     ASK --> slot OPEN: block ids go out, the ticket is held
 *               |  each immediate: one chunk is in memory, its pieces are claimed and counted at once
 *               |
 *               +-- whole, then closed by its owner ------------> FREE     every write of it has arrived
 *               +-- STOPPED of the sender, asked or not --------> FREE     none of its writes is left
 *               +-- closed or broken before that: STOP out, STOPPING
 *                        +-- STOPPED ---------------------------> FREE
 *                        +-- no answer for TR_RDMA_STOP_NS ---> queue pairs killed, all slots FREE
 *
 * The ticket is let go at FREE; only then may its owner get CLOSED. The peer's NIC writes without asking,
 * so a claim cannot come before the write. The sender stays inside the transfer's blocks because it knows
 * only their ids. The window keeps other peers out.
 *
 * Free slots stand in a ring, so that a slot is reused as late as possible. */
#include "transfer/transport/tr_rdma_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

/* ---- slots ---- */

static void rdma_recv_on_stop_timer(void *arg);

static int rdma_recv_make_slots(struct rdma_side *side)
{
    int err = 0;

    if (side->slots != NULL)
        return 0;
    side->slots = calloc(KV_RDMA_MAX_SLOTS, sizeof(*side->slots));
    side->free_slots = calloc(KV_RDMA_MAX_SLOTS, sizeof(*side->free_slots));
    if (side->slots == NULL || side->free_slots == NULL)
        err = E_NOMEM;
    if (err == 0)
        err = hashmap_new(sizeof(uint64_t), &side->by_ticket);
    if (err == 0)
        err = ev_timer_new(side->node->loop, rdma_recv_on_stop_timer, side, &side->stop_timer);
    if (err != 0)
        return err;
    for (uint32_t i = 0; i < KV_RDMA_MAX_SLOTS; i++)
        side->free_slots[side->n_free++] = i;
    return 0;
}

static struct rdma_slot *rdma_recv_find_slot(const struct rdma_side *side, uint64_t ticket)
{
    return side->by_ticket != NULL ? hashmap_get(side->by_ticket, &ticket) : NULL;
}

static void rdma_recv_free_slot(struct rdma_side *side, struct rdma_slot *slot)
{
    struct tr_ticket *ticket = slot->ticket;

    if (slot->state == RDMA_SLOT_STOPPING)
        side->n_stopping--;
    hashmap_remove(side->by_ticket, &slot->ticket_id);
    *slot = (struct rdma_slot){.state = RDMA_SLOT_FREE};
    side->free_slots[(side->first_free + side->n_free++) % KV_RDMA_MAX_SLOTS] =
        (uint32_t)(slot - side->slots);
    tr_ticket_let_go(side->node, ticket);
}

static int rdma_recv_take_slot(struct rdma_side *side, struct tr_ticket *ticket, struct rdma_slot **out)
{
    const struct tr_geometry *geometry = &side->node->opts.geometry;
    size_t n_per_chunk = TR_RDMA_CHUNK / geometry->piece_bytes;
    struct rdma_slot *slot;
    int err = rdma_recv_make_slots(side);

    if (err != 0 || side->n_free == 0)
        return err != 0 ? err : E_LIMIT;
    n_per_chunk = n_per_chunk < 1                      ? 1
                  : n_per_chunk > KV_RDMA_CHUNK_PIECES ? KV_RDMA_CHUNK_PIECES
                                                       : n_per_chunk;
    slot = &side->slots[side->free_slots[side->first_free]];
    slot->ticket_id = ticket->id;
    slot->n_blocks = ticket->n_blocks;
    slot->n_per_chunk = (uint32_t)n_per_chunk;
    slot->n_groups = (ticket->n_blocks - 1) / slot->n_per_chunk + 1;
    if ((uint64_t)slot->n_groups * geometry->n_layers > KV_RDMA_MAX_CHUNKS)
        return E_LIMIT;
    slot->n_chunks = slot->n_groups * geometry->n_layers;
    err = hashmap_put(side->by_ticket, &ticket->id, slot, NULL);
    if (err == 0 && (err = tr_ticket_hold(ticket, side->conn)) != 0)
        hashmap_remove(side->by_ticket, &ticket->id);
    if (err != 0)
        return err;
    slot->state = RDMA_SLOT_OPEN;
    slot->ticket = ticket;
    side->first_free = (side->first_free + 1) % KV_RDMA_MAX_SLOTS;
    side->n_free--;
    *out = slot;
    return 0;
}

int rdma_recv_on_ask(struct rdma_side *side, uint64_t ticket_id, struct fault *fault)
{
    struct kv_frame frame = {.type = KV_FRAME_SLOT};
    struct tr_ticket *ticket;
    struct rdma_slot *slot;
    struct buf ids = {0};
    int err;

    if (side->is_dead)
        return 0; /* END is about to go to the sender */
    if (rdma_recv_find_slot(side, ticket_id) != NULL)
        return fault_set(fault, E_PROTO, "%s asks twice for a ticket", tr_conn_name(side->conn));
    err = tr_ticket_find(side->node, ticket_id, &ticket);
    if (err == 0 && ticket->state != TR_TICKET_IS_OPEN)
        err = E_CLOSED;
    if (err == 0)
        err = rdma_recv_take_slot(side, ticket, &slot);
    if (err != 0) {
        tr_conn_reject(side->conn, ticket_id, err);
        return 0;
    }
    frame.as.slot = (struct kv_frame_slot){.ticket = ticket_id,
                                           .slot = (uint32_t)(slot - side->slots),
                                           .n_blocks = slot->n_blocks,
                                           .n_per_chunk = slot->n_per_chunk};
    for (uint32_t i = 0; i < ticket->n_blocks; i++) {
        uint8_t bytes[4];

        put_u32(bytes, ticket->blocks[i]);
        buf_append(&ids, bytes, sizeof(bytes));
    }
    err = ids.is_bad ? E_NOMEM : rdma_send_frame_with(side, &frame, buf_view(&ids));
    buf_fini(&ids);
    return err != 0 ? fault_set(fault, err, "cannot answer ASK: %s", err_text(err)) : 0;
}

/* ---- arrivals ---- */

void rdma_recv_arrived(struct rdma_qp *qp, uint32_t immediate)
{
    struct rdma_side *side = qp->side;
    struct rdma_slot *slot;
    uint32_t chunk = immediate % KV_RDMA_MAX_CHUNKS;
    struct kv_frame_data run;
    struct tr_ticket *ticket;
    struct fault fault;

    if (side->conn == NULL || side->slots == NULL)
        return;
    slot = &side->slots[immediate / KV_RDMA_MAX_CHUNKS];
    side->conn->progress_ns = clock_now_ns();
    if (slot->state == RDMA_SLOT_FREE || chunk >= slot->n_chunks) {
        atomic_fetch_add_explicit(&side->node->totals.frames_rejected, 1, memory_order_relaxed);
        return;
    }
    run = (struct kv_frame_data){.ticket = slot->ticket_id,
                                 .layer = chunk / slot->n_groups,
                                 .first = chunk % slot->n_groups * slot->n_per_chunk};
    run.n_pieces =
        slot->n_blocks - run.first < slot->n_per_chunk ? slot->n_blocks - run.first : slot->n_per_chunk;
    run.payload_bytes = run.n_pieces * (uint64_t)side->node->opts.geometry.piece_bytes;
    if (tr_ticket_claim(side->node, side->conn, &run, &fault, &ticket) == 0)
        tr_ticket_end_claim(side->node, ticket, &run, true);
    else
        atomic_fetch_add_explicit(&side->node->totals.frames_rejected, 1, memory_order_relaxed);
}

void rdma_recv_credit(struct rdma_qp *qp)
{
    struct kv_frame frame = {.type = KV_FRAME_CREDIT};
    unsigned n = qp->n_consumed;
    struct fault fault;

    qp->n_consumed = 0;
    if (qp->side->is_broken || qp->side->is_dead)
        return;
    if (n > 0 && rdma_qp_post_receives(qp, n, &fault) != 0) {
        rdma_break(qp, NULL, fault.text);
        return;
    }
    if (qp->n_posted - qp->n_announced < qp->n_receives / 4)
        return;
    qp->n_announced = qp->n_posted;
    frame.as.credit = (struct kv_frame_credit){
        .rail = (uint8_t)qp->rail_index, .qp = (uint8_t)qp->index, .n_total = qp->n_posted};
    rdma_send_frame(qp->side, &frame);
}

/* ---- ending ---- */

static void rdma_recv_on_stop_timer(void *arg)
{
    struct rdma_side *side = arg;
    uint64_t now_ns = clock_now_ns();

    for (uint32_t i = 0; i < KV_RDMA_MAX_SLOTS && side->n_stopping > 0; i++)
        if (side->slots[i].state == RDMA_SLOT_STOPPING && now_ns >= side->slots[i].deadline_ns) {
            log_warn("kv_rdma_stop_unanswered", LOG_STR("peer", tr_conn_name(side->conn)),
                     LOG_U64("ticket", side->slots[i].ticket_id));
            fault_set(&side->fault, E_TIMEOUT, "%s did not stop writing", tr_conn_name(side->conn));
            side->is_broken = true;
            tr_conn_wake(side->conn);
            return;
        }
    if (side->n_stopping > 0)
        ev_timer_start(side->stop_timer, TR_RDMA_STOP_NS / 4);
}

void rdma_recv_forget(struct rdma_side *side, const struct tr_ticket *ticket)
{
    struct rdma_slot *slot = rdma_recv_find_slot(side, ticket->id);
    struct kv_frame frame = {.type = KV_FRAME_STOP, .as.ticket = {ticket->id}};

    if (slot == NULL || slot->ticket != ticket || slot->state != RDMA_SLOT_OPEN)
        return;
    if (ticket->state == TR_TICKET_IS_WHOLE) {
        rdma_recv_free_slot(side, slot);
        return;
    }
    slot->state = RDMA_SLOT_STOPPING;
    slot->deadline_ns = clock_now_ns() + TR_RDMA_STOP_NS;
    if (side->n_stopping++ == 0)
        ev_timer_start(side->stop_timer, TR_RDMA_STOP_NS);
    rdma_send_frame(side, &frame);
}

/* Its writes have arrived: counts the immediates that are still in the queue, then frees the slot. */
void rdma_recv_on_stopped(struct rdma_side *side, uint64_t ticket)
{
    struct rdma_slot *slot;

    for (unsigned p = 0; p < side->n_pairs; p++)
        for (unsigned i = 0; i < side->pairs[p].n_qps; i++) {
            while (rdma_qp_poll(side->pairs[p].qps[i]) > 0)
                ;
            rdma_recv_credit(side->pairs[p].qps[i]);
        }
    slot = rdma_recv_find_slot(side, ticket);
    if (slot != NULL)
        rdma_recv_free_slot(side, slot);
}

void rdma_recv_let_all_go(struct rdma_side *side)
{
    for (uint32_t i = 0; side->slots != NULL && i < KV_RDMA_MAX_SLOTS; i++)
        if (side->slots[i].state != RDMA_SLOT_FREE)
            rdma_recv_free_slot(side, &side->slots[i]);
    if (side->stop_timer != NULL)
        ev_timer_stop(side->stop_timer);
}

/* ---- arrived pieces ---- */

int rdma_recv_on_which(struct rdma_side *side, uint64_t ticket_id, struct fault *fault)
{
    struct kv_frame frame = {.type = KV_FRAME_HAVE};
    uint32_t n_layers = side->node->opts.geometry.n_layers;
    struct tr_ticket *ticket;
    uint8_t *bits;
    uint32_t n_bits;
    int err;

    if (!side->is_dead)
        return fault_set(fault, E_PROTO, "WHICH while queue pairs are alive");
    err = tr_ticket_find(side->node, ticket_id, &ticket);
    if (err != 0) {
        tr_conn_reject(side->conn, ticket_id, err);
        return 0;
    }
    n_bits = n_layers * ticket->n_blocks;
    bits = calloc((n_bits + 7) / 8, 1);
    if (bits == NULL)
        return fault_set(fault, E_NOMEM, "no memory for an answer to WHICH");
    for (uint32_t i = 0; i < n_bits; i++)
        if (tr_ticket_has(ticket, i / ticket->n_blocks, i % ticket->n_blocks))
            bits[i / 8] |= (uint8_t)(1u << i % 8);
    frame.as.have = (struct kv_frame_have){.ticket = ticket_id, .n_bits = n_bits};
    err = rdma_send_frame_with(side, &frame, bytes_of(bits, (n_bits + 7) / 8));
    free(bits);
    return err != 0 ? fault_set(fault, err, "cannot answer WHICH: %s", err_text(err)) : 0;
}
