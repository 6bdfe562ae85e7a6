/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of an RDMA connection. Hot path: no malloc, no log, no system call but the doorbell.
 *
 *     push --take--> shipment --pieces filed--> chunk whole --> ready[]
 *          ready[] --post--> flights of a queue pair --> done
 *
 *          ASKED --SLOT--> OPEN --push over--> STOPPED --nothing posted is left--> STOPPED frame, let go
 *            |               +--queue pairs die--> WHICH --HAVE--> on over TCP
 *            +--queue pairs die--> on over TCP
 *
 * A chunk is a few pieces of one layer, about 1 MiB. It is posted as one list when all its pieces are
 * given. Pieces that are adjacent on both sides share one request. The last request carries the immediate
 * that tells the receiver, and only this request is signalled. A chunk uses one queue pair, so its
 * immediate arrives after its bytes; chunks have no order among each other. It takes the queue pair with
 * the fewest bytes in flight, over all rails.
 *
 * Each immediate needs a receive that the receiver has posted; credit counts them. So receiver-not-ready
 * never happens between correct ends. If it happens, it is an error that ends the queue pair, not a wait. */
#include "transfer/transport/tr_rdma_priv.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#define NOT_GIVEN UINT32_MAX

/* ---- shipments ---- */

void rdma_shipment_free(struct rdma_shipment *shipment)
{
    list_remove(&shipment->node);
    list_remove(&shipment->due);
    free(shipment->there);
    free(shipment->source);
    free(shipment->n_given);
    free(shipment->ready);
    free(shipment);
}

struct rdma_shipment *rdma_send_find(struct rdma_side *side, uint64_t ticket)
{
    list_for_each (at, &side->shipments) {
        struct rdma_shipment *shipment = container_of(at, struct rdma_shipment, node);

        if (shipment->ticket == ticket && shipment->state != RDMA_STOPPED)
            return shipment;
    }
    return NULL;
}

/* No request reads its blocks any more. */
void rdma_shipment_end(struct rdma_side *side, struct rdma_shipment *shipment)
{
    struct tr_push *push = shipment->push;
    struct kv_frame frame = {.type = KV_FRAME_STOPPED, .as.ticket = {shipment->ticket}};

    if (!side->is_dead && side->conn != NULL)
        rdma_say(side, &frame);
    rdma_shipment_free(shipment);
    if (side->conn != NULL)
        tr_conn_wake(side->conn); /* the next step may have waited for this end */
    tr_push_let_go(side->node, push);
}

static void begin_shipment(struct rdma_side *side, struct tr_push *push)
{
    struct rdma_shipment *shipment = calloc(1, sizeof(*shipment));
    struct kv_frame frame = {.type = KV_FRAME_ASK, .as.ticket = {push->ticket}};
    struct fault fault;

    if (shipment == NULL || rdma_send_find(side, push->ticket) != NULL) {
        free(shipment);
        fault_set(&fault, shipment == NULL ? E_NOMEM : E_EXISTS, "push not begun: %s",
                  shipment == NULL ? "no memory" : "another one writes the ticket");
        tr_push_fail(side->node, push, &fault);
        return;
    }
    list_init(&shipment->due);
    list_push_back(&side->shipments, &shipment->node);
    shipment->state = RDMA_ASKED;
    shipment->side = side;
    shipment->push = push;
    shipment->ticket = push->ticket;
    push->shipment = shipment;
    push->is_held = true;
    push->carriers |= 1u << side->conn->index;
    side->conn->progress_ns = clock_now_ns();
    rdma_say(side, &frame);
}

static uint32_t chunk_pieces(const struct rdma_shipment *shipment, uint32_t chunk)
{
    uint32_t first = chunk % shipment->n_groups * shipment->n_per_chunk;
    uint32_t left = shipment->n_blocks - first;

    return left < shipment->n_per_chunk ? left : shipment->n_per_chunk;
}

/* Files one given piece; ignores a piece that was given before. */
static void file_piece(struct rdma_side *side, struct rdma_shipment *shipment, uint32_t layer, uint32_t index,
                       uint32_t block)
{
    uint32_t chunk = layer * shipment->n_groups + index / shipment->n_per_chunk;
    uint32_t *source = &shipment->source[(size_t)layer * shipment->n_blocks + index];

    if (*source != NOT_GIVEN) {
        shipment->push->n_flying--;
        return;
    }
    *source = block;
    shipment->n_given[chunk]++;
    if (shipment->n_given[chunk] < chunk_pieces(shipment, chunk))
        return;
    shipment->ready[shipment->n_ready++] = chunk;
    if (list_is_empty(&shipment->due))
        list_push_back(&side->due, &shipment->due);
}

static void take_jobs(struct rdma_side *side, struct rdma_shipment *shipment)
{
    struct tr_batch batch;

    while (shipment->state == RDMA_OPEN && tr_push_take_of(side->node, side->conn, shipment->push, &batch)) {
        if (batch.layer >= shipment->n_layers || batch.first >= shipment->n_blocks ||
            batch.n > shipment->n_blocks - batch.first) {
            struct fault fault;

            fault_set(&fault, E_PROTO, "pieces %u to %u of a ticket for %u blocks", batch.first,
                      batch.first + batch.n, shipment->n_blocks);
            tr_push_fail(side->node, shipment->push, &fault);
            return; /* the shipment may be freed */
        }
        for (uint32_t i = 0; i < batch.n; i++)
            file_piece(side, shipment, batch.layer, batch.first + i, batch.blocks[i]);
    }
}

/* True: an earlier push had the ticket, and its STOPPED is not sent yet. */
static bool is_stopping(const struct rdma_side *side, uint64_t ticket)
{
    list_for_each (at, &side->shipments) {
        const struct rdma_shipment *shipment = container_of(at, struct rdma_shipment, node);

        if (shipment->ticket == ticket && shipment->state == RDMA_STOPPED)
            return true;
    }
    return false;
}

void rdma_send_take(struct rdma_side *side)
{
    list_for_each_safe (at, spare, &side->conn->peer->pushes) {
        struct tr_push *push = container_of(at, struct tr_push, node);

        if (push->is_failed || list_is_empty(&push->jobs))
            continue;
        if (push->shipment == NULL) {
            if (!tr_stream_has_output(&side->conn->stream) && !is_stopping(side, push->ticket))
                begin_shipment(side, push); /* else wait for a later turn */
        } else if (push->shipment->state == RDMA_OPEN && push->shipment->side == side) {
            take_jobs(side, push->shipment);
        }
    }
}

/* ---- writing ---- */

struct writes { /* the work requests of one chunk */
    struct ibv_send_wr wrs[TR_RDMA_CHUNK_WRS];
    struct ibv_sge sges[TR_RDMA_CHUNK_WRS];
    unsigned n;
    size_t n_bytes;
};

/* Adds bytes that are contiguous in one local and one remote region. Joins them to the previous request if
 * they follow it. */
static void add_run(struct writes *writes, uint64_t from, uint32_t lkey, uint64_t to, uint32_t rkey,
                    size_t len_bytes)
{
    struct ibv_send_wr *last = writes->n > 0 ? &writes->wrs[writes->n - 1] : NULL;

    writes->n_bytes += len_bytes;
    if (last != NULL && last->sg_list->lkey == lkey && last->sg_list->addr + last->sg_list->length == from &&
        last->wr.rdma.rkey == rkey && last->wr.rdma.remote_addr + last->sg_list->length == to &&
        last->sg_list->length + len_bytes <= TR_RDMA_WRITE) {
        last->sg_list->length += (uint32_t)len_bytes;
        return;
    }
    while (len_bytes > 0) {
        size_t n = len_bytes < TR_RDMA_WRITE ? len_bytes : TR_RDMA_WRITE;
        struct ibv_sge *sge = &writes->sges[writes->n];
        struct ibv_send_wr *wr = &writes->wrs[writes->n++];

        ASSERT(writes->n <= TR_RDMA_CHUNK_WRS); /* see TR_RDMA_CHUNK_WRS */
        *sge = (struct ibv_sge){.addr = from, .length = (uint32_t)n, .lkey = lkey};
        *wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        wr->wr.rdma.remote_addr = to;
        wr->wr.rdma.rkey = rkey;
        if (writes->n > 1)
            writes->wrs[writes->n - 2].next = wr;
        from += n;
        to += n;
        len_bytes -= n;
    }
}

static void make_writes(const struct rdma_qp *qp, const struct rdma_shipment *shipment, uint32_t chunk,
                        struct writes *out)
{
    const struct tr_node *node = qp->rail->node;
    const struct rdma_regions *regions = &qp->rail->regions;
    const struct rdma_pair *pair = &qp->side->pairs[qp->rail_index];
    size_t piece_bytes = node->opts.geometry.piece_bytes;
    uint32_t layer = chunk / shipment->n_groups, first = chunk % shipment->n_groups * shipment->n_per_chunk;
    uint32_t n = chunk_pieces(shipment, chunk), n_theirs = qp->side->conn->peer_geometry.n_blocks;
    struct ibv_send_wr *last;

    out->n = 0;
    out->n_bytes = 0;
    for (uint32_t i = first; i < first + n; i++) {
        size_t from = tr_node_offset(node->opts.geometry.n_blocks, piece_bytes, layer,
                                     shipment->source[(size_t)layer * shipment->n_blocks + i]);
        size_t to = tr_node_offset(n_theirs, piece_bytes, layer, shipment->there[i]);
        const struct kv_frame_region *theirs = &pair->regions[to / pair->regions[0].len_bytes];

        add_run(out, (uintptr_t)node->opts.arena.base + from, regions->mrs[from / regions->each_bytes]->lkey,
                theirs->address + to % pair->regions[0].len_bytes, theirs->rkey[qp->index], piece_bytes);
    }
    last = &out->wrs[out->n - 1];
    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->imm_data = htonl(kv_rdma_immediate(shipment->slot, chunk));
    last->send_flags = IBV_SEND_SIGNALED;
}

static struct rdma_qp *pick_qp(struct rdma_side *side, size_t n_bytes)
{
    struct rdma_qp *best = NULL;

    for (unsigned p = 0; p < side->n_pairs; p++)
        for (unsigned i = 0; i < side->pairs[p].n_qps; i++) {
            struct rdma_qp *qp = side->pairs[p].qps[i];

            if (qp->n_wrs + TR_RDMA_CHUNK_WRS > TR_RDMA_SENDS || qp->credit == qp->n_immediates ||
                (qp->n_bytes > 0 && qp->n_bytes + n_bytes > TR_RDMA_FLYING))
                continue;
            if (best == NULL || qp->n_bytes < best->n_bytes)
                best = qp;
        }
    return best;
}

static bool post_chunk(struct rdma_side *side, struct rdma_shipment *shipment)
{
    uint32_t chunk = shipment->ready[shipment->n_posted];
    struct rdma_qp *qp = pick_qp(side, chunk_pieces(shipment, chunk) * side->node->opts.geometry.piece_bytes);
    struct writes writes;
    struct ibv_send_wr *bad;

    if (qp == NULL)
        return false;
    make_writes(qp, shipment, chunk, &writes);
    if (qp->n_flights == 0)
        side->conn->progress_ns = clock_now_ns();
    qp->flights[(qp->first_flight + qp->n_flights++) % TR_RDMA_SENDS] = (struct rdma_flight){
        .shipment = shipment, .chunk = chunk, .n_wrs = writes.n, .n_bytes = writes.n_bytes};
    qp->n_wrs += writes.n;
    qp->n_bytes += writes.n_bytes;
    qp->n_immediates++;
    shipment->n_posted++;
    if (qp->rail->verbs->post_send(qp->qp, writes.wrs, &bad) != 0) {
        rdma_break(qp, NULL, "a write cannot be posted");
        return false;
    }
    return true;
}

void rdma_send_post(struct rdma_side *side)
{
    while (!list_is_empty(&side->due) && !side->is_broken && !side->is_dead) {
        struct rdma_shipment *shipment = container_of(side->due.next, struct rdma_shipment, due);

        if (!post_chunk(side, shipment))
            return;
        list_remove(&shipment->due);
        if (shipment->n_posted < shipment->n_ready)
            list_push_back(&side->due, &shipment->due); /* other shipments get a turn */
    }
}

void rdma_send_done(struct rdma_qp *qp)
{
    struct rdma_side *side = qp->side;
    struct rdma_flight flight;
    struct tr_batch batch;

    if (qp->n_flights == 0) {
        rdma_break(qp, NULL, "a completion too many");
        return;
    }
    flight = qp->flights[qp->first_flight];
    qp->first_flight = (qp->first_flight + 1) % TR_RDMA_SENDS;
    qp->n_flights--;
    qp->n_wrs -= flight.n_wrs;
    qp->n_bytes -= flight.n_bytes;
    flight.shipment->n_done++;
    if (side->conn != NULL)
        side->conn->progress_ns = clock_now_ns();
    if (flight.shipment->state == RDMA_OPEN) {
        batch.push = flight.shipment->push;
        batch.n = chunk_pieces(flight.shipment, flight.chunk);
        tr_push_sent(side->node, &batch);
    } else if (flight.shipment->state == RDMA_STOPPED &&
               flight.shipment->n_done == flight.shipment->n_posted) {
        rdma_shipment_end(side, flight.shipment);
    }
}

/* ---- input from the receiver ---- */

static int open_shipment(struct rdma_shipment *shipment, const struct kv_frame_slot *slot)
{
    size_t n_pieces = (size_t)shipment->n_layers * slot->n_blocks;

    shipment->slot = slot->slot;
    shipment->n_blocks = slot->n_blocks;
    shipment->n_per_chunk = slot->n_per_chunk;
    shipment->n_groups = (slot->n_blocks - 1) / slot->n_per_chunk + 1;
    shipment->n_chunks = shipment->n_layers * shipment->n_groups;
    shipment->there = calloc(slot->n_blocks, sizeof(*shipment->there));
    shipment->source = malloc(n_pieces * sizeof(*shipment->source));
    shipment->n_given = calloc(shipment->n_chunks, sizeof(*shipment->n_given));
    shipment->ready = calloc(shipment->n_chunks, sizeof(*shipment->ready));
    if (shipment->there == NULL || shipment->source == NULL || shipment->n_given == NULL ||
        shipment->ready == NULL)
        return E_NOMEM;
    memset(shipment->source, 0xff, n_pieces * sizeof(*shipment->source)); /* NOT_GIVEN */
    return 0;
}

int rdma_send_on_slot(struct rdma_side *side, const struct kv_frame_slot *slot, const uint8_t *ids,
                      struct fault *fault)
{
    struct rdma_shipment *shipment = rdma_send_find(side, slot->ticket);
    uint32_t n_layers = side->node->opts.geometry.n_layers;
    size_t piece_bytes = side->node->opts.geometry.piece_bytes;

    if (slot->n_blocks > side->conn->peer_geometry.n_blocks ||
        (uint64_t)n_layers * ((slot->n_blocks - 1) / slot->n_per_chunk + 1) > KV_RDMA_MAX_CHUNKS ||
        (slot->n_per_chunk > 1 && slot->n_per_chunk * piece_bytes > TR_RDMA_CHUNK))
        return fault_set(fault, E_PROTO, "SLOT for %u blocks, %u a chunk", slot->n_blocks, slot->n_per_chunk);
    if (shipment == NULL || side->is_dead)
        return 0; /* its push is over */
    if (shipment->state != RDMA_ASKED)
        return fault_set(fault, E_PROTO, "SLOT for a ticket that has one");
    shipment->n_layers = n_layers;
    if (open_shipment(shipment, slot) != 0)
        return fault_set(fault, E_NOMEM, "no memory for a push");
    for (uint32_t i = 0; i < slot->n_blocks; i++) {
        shipment->there[i] = get_u32(ids + i * sizeof(uint32_t));
        if (shipment->there[i] >= side->conn->peer_geometry.n_blocks)
            return fault_set(fault, E_PROTO, "block %u of an arena of %u", shipment->there[i],
                             side->conn->peer_geometry.n_blocks);
    }
    shipment->state = RDMA_OPEN;
    return 0;
}

void rdma_send_forget(struct rdma_side *side, const struct tr_push *push)
{
    struct rdma_shipment *shipment = push->shipment;

    if (shipment == NULL || shipment->state == RDMA_STOPPED)
        return;
    list_remove(&shipment->due);
    shipment->state = RDMA_STOPPED;
    if (shipment->n_done == shipment->n_posted || side->is_dead)
        rdma_shipment_end(side, shipment);
}

void rdma_send_on_stop(struct rdma_side *side, uint64_t ticket)
{
    struct rdma_shipment *shipment = rdma_send_find(side, ticket);
    struct fault fault;

    if (shipment == NULL || side->is_dead)
        return; /* STOPPED was sent, or will be */
    fault_set(&fault, E_NOT_FOUND, "%s closed the ticket", tr_conn_name(side->conn));
    tr_push_fail(side->node, shipment->push, &fault);
}

bool rdma_send_is_busy(const struct rdma_side *side)
{
    if (!list_is_empty(&side->due))
        return true;
    list_for_each (at, &side->shipments) {
        const struct rdma_shipment *shipment = container_of(at, struct rdma_shipment, node);

        if (shipment->state != RDMA_OPEN || shipment->n_posted != shipment->n_done)
            return true;
    }
    return false;
}
