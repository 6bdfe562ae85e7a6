/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of an RDMA connection. Hot path: no malloc, no log, no system call but the doorbell.
 *
 *     tr_push --> rdma_push --pieces filed--> chunk whole --> ready[]
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

/* ---- pushes ---- */

void rdma_push_free(struct rdma_push *rdma_push)
{
    list_remove(&rdma_push->node);
    list_remove(&rdma_push->due);
    free(rdma_push->there);
    free(rdma_push->source);
    free(rdma_push->n_given);
    free(rdma_push->ready);
    free(rdma_push);
}

struct rdma_push *rdma_send_find(struct rdma_side *side, uint64_t ticket)
{
    list_for_each (at, &side->pushes) {
        struct rdma_push *rdma_push = container_of(at, struct rdma_push, node);

        if (rdma_push->ticket == ticket && rdma_push->state != RDMA_STOPPED)
            return rdma_push;
    }
    return NULL;
}

/* No request reads its blocks any more. */
void rdma_push_end(struct rdma_side *side, struct rdma_push *rdma_push)
{
    struct tr_push *push = rdma_push->push;
    struct kv_frame frame = {.type = KV_FRAME_STOPPED, .as.ticket = {rdma_push->ticket}};

    if (!side->is_dead && side->conn != NULL)
        rdma_send_frame(side, &frame);
    rdma_push_free(rdma_push);
    if (side->conn != NULL)
        tr_conn_wake(side->conn); /* the next step may have waited for this end */
    tr_push_let_go(side->node, push);
}

static void rdma_push_begin(struct rdma_side *side, struct tr_push *push)
{
    struct rdma_push *rdma_push = calloc(1, sizeof(*rdma_push));
    struct kv_frame frame = {.type = KV_FRAME_ASK, .as.ticket = {push->ticket}};
    struct fault fault;

    if (rdma_push == NULL || rdma_send_find(side, push->ticket) != NULL) {
        free(rdma_push);
        fault_set(&fault, rdma_push == NULL ? E_NOMEM : E_EXISTS, "push not begun: %s",
                  rdma_push == NULL ? "no memory" : "another one writes the ticket");
        tr_push_fail(side->node, push, &fault);
        return;
    }
    list_init(&rdma_push->due);
    list_push_back(&side->pushes, &rdma_push->node);
    rdma_push->state = RDMA_ASKED;
    rdma_push->side = side;
    rdma_push->push = push;
    rdma_push->ticket = push->ticket;
    push->rdma = rdma_push;
    push->is_held = true;
    push->carriers |= 1u << side->conn->index;
    side->conn->progress_ns = clock_now_ns();
    rdma_send_frame(side, &frame);
}

static uint32_t rdma_send_chunk_pieces(const struct rdma_push *rdma_push, uint32_t chunk)
{
    uint32_t first = chunk % rdma_push->n_groups * rdma_push->n_per_chunk;
    uint32_t left = rdma_push->n_blocks - first;

    return left < rdma_push->n_per_chunk ? left : rdma_push->n_per_chunk;
}

/* Files one given piece; ignores a piece that was given before. */
static void rdma_send_file_piece(struct rdma_side *side, struct rdma_push *rdma_push, uint32_t layer,
                                 uint32_t index, uint32_t block)
{
    uint32_t chunk = layer * rdma_push->n_groups + index / rdma_push->n_per_chunk;
    uint32_t *source = &rdma_push->source[(size_t)layer * rdma_push->n_blocks + index];

    if (*source != NOT_GIVEN) {
        rdma_push->push->n_flying--;
        return;
    }
    *source = block;
    rdma_push->n_given[chunk]++;
    if (rdma_push->n_given[chunk] < rdma_send_chunk_pieces(rdma_push, chunk))
        return;
    rdma_push->ready[rdma_push->n_ready++] = chunk;
    if (list_is_empty(&rdma_push->due))
        list_push_back(&side->due, &rdma_push->due);
}

static void rdma_send_take_jobs(struct rdma_side *side, struct rdma_push *rdma_push)
{
    struct tr_batch batch;

    while (rdma_push->state == RDMA_OPEN &&
           tr_push_take_of(side->node, side->conn, rdma_push->push, &batch)) {
        if (batch.layer >= rdma_push->n_layers || batch.first >= rdma_push->n_blocks ||
            batch.n > rdma_push->n_blocks - batch.first) {
            struct fault fault;

            fault_set(&fault, E_PROTO, "pieces %u to %u of a ticket for %u blocks", batch.first,
                      batch.first + batch.n, rdma_push->n_blocks);
            tr_push_fail(side->node, rdma_push->push, &fault);
            return; /* the rdma_push may be freed */
        }
        for (uint32_t i = 0; i < batch.n; i++)
            rdma_send_file_piece(side, rdma_push, batch.layer, batch.first + i, batch.blocks[i]);
    }
}

/* True: an earlier push had the ticket, and its STOPPED is not sent yet. */
static bool rdma_send_is_stopping(const struct rdma_side *side, uint64_t ticket)
{
    list_for_each (at, &side->pushes) {
        const struct rdma_push *rdma_push = container_of(at, struct rdma_push, node);

        if (rdma_push->ticket == ticket && rdma_push->state == RDMA_STOPPED)
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
        if (push->rdma == NULL) {
            if (!tr_stream_has_output(&side->conn->stream) && !rdma_send_is_stopping(side, push->ticket))
                rdma_push_begin(side, push); /* else wait for a later turn */
        } else if (push->rdma->state == RDMA_OPEN && push->rdma->side == side) {
            rdma_send_take_jobs(side, push->rdma);
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

struct rdma_run { /* bytes that are contiguous in one local and one remote region */
    uint64_t from, to;
    size_t len_bytes;
    uint32_t lkey, rkey;
};

/* Adds the run. Joins it to the previous request if it follows that one. */
static void rdma_send_add_run(struct writes *writes, struct rdma_run run)
{
    struct ibv_send_wr *last = writes->n > 0 ? &writes->wrs[writes->n - 1] : NULL;

    writes->n_bytes += run.len_bytes;
    if (last != NULL && last->sg_list->lkey == run.lkey &&
        last->sg_list->addr + last->sg_list->length == run.from && last->wr.rdma.rkey == run.rkey &&
        last->wr.rdma.remote_addr + last->sg_list->length == run.to &&
        last->sg_list->length + run.len_bytes <= TR_RDMA_WRITE) {
        last->sg_list->length += (uint32_t)run.len_bytes;
        return;
    }
    while (run.len_bytes > 0) {
        size_t n = run.len_bytes < TR_RDMA_WRITE ? run.len_bytes : TR_RDMA_WRITE;
        struct ibv_sge *sge = &writes->sges[writes->n];
        struct ibv_send_wr *wr = &writes->wrs[writes->n++];

        ASSERT(writes->n <= TR_RDMA_CHUNK_WRS); /* see TR_RDMA_CHUNK_WRS */
        *sge = (struct ibv_sge){.addr = run.from, .length = (uint32_t)n, .lkey = run.lkey};
        *wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        wr->wr.rdma.remote_addr = run.to;
        wr->wr.rdma.rkey = run.rkey;
        if (writes->n > 1)
            writes->wrs[writes->n - 2].next = wr;
        run.from += n;
        run.to += n;
        run.len_bytes -= n;
    }
}

static void rdma_send_make_writes(const struct rdma_qp *qp, const struct rdma_push *rdma_push, uint32_t chunk,
                                  struct writes *out)
{
    const struct tr_node *node = qp->rail->node;
    const struct rdma_regions *regions = &qp->rail->regions;
    const struct rdma_pair *pair = &qp->side->pairs[qp->rail_index];
    size_t piece_bytes = node->opts.geometry.piece_bytes;
    uint32_t layer = chunk / rdma_push->n_groups,
             first = chunk % rdma_push->n_groups * rdma_push->n_per_chunk;
    uint32_t n = rdma_send_chunk_pieces(rdma_push, chunk), n_theirs = qp->side->conn->peer_geometry.n_blocks;
    struct ibv_send_wr *last;

    out->n = 0;
    out->n_bytes = 0;
    for (uint32_t i = first; i < first + n; i++) {
        size_t from = tr_node_offset(node->opts.geometry.n_blocks, piece_bytes, layer,
                                     rdma_push->source[(size_t)layer * rdma_push->n_blocks + i]);
        size_t to = tr_node_offset(n_theirs, piece_bytes, layer, rdma_push->there[i]);
        const struct kv_frame_region *theirs = &pair->regions[to / pair->regions[0].len_bytes];

        rdma_send_add_run(out, (struct rdma_run){.from = (uintptr_t)node->opts.arena.base + from,
                                                 .to = theirs->address + to % pair->regions[0].len_bytes,
                                                 .len_bytes = piece_bytes,
                                                 .lkey = regions->mrs[from / regions->each_bytes]->lkey,
                                                 .rkey = theirs->rkey[qp->index]});
    }
    last = &out->wrs[out->n - 1];
    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->imm_data = htonl(kv_rdma_immediate(rdma_push->slot, chunk));
    last->send_flags = IBV_SEND_SIGNALED;
}

static struct rdma_qp *rdma_send_pick_qp(struct rdma_side *side, size_t n_bytes)
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

static bool rdma_send_post_chunk(struct rdma_side *side, struct rdma_push *rdma_push)
{
    uint32_t chunk = rdma_push->ready[rdma_push->n_posted];
    struct rdma_qp *qp = rdma_send_pick_qp(side, rdma_send_chunk_pieces(rdma_push, chunk) *
                                                     side->node->opts.geometry.piece_bytes);
    struct writes writes;
    struct ibv_send_wr *bad;

    if (qp == NULL)
        return false;
    rdma_send_make_writes(qp, rdma_push, chunk, &writes);
    if (qp->n_flights == 0)
        side->conn->progress_ns = clock_now_ns();
    qp->flights[(qp->first_flight + qp->n_flights++) % TR_RDMA_SENDS] = (struct rdma_flight){
        .rdma_push = rdma_push, .chunk = chunk, .n_wrs = writes.n, .n_bytes = writes.n_bytes};
    qp->n_wrs += writes.n;
    qp->n_bytes += writes.n_bytes;
    qp->n_immediates++;
    rdma_push->n_posted++;
    if (qp->rail->verbs->post_send(qp->qp, writes.wrs, &bad) != 0) {
        rdma_break(qp, NULL, "a write cannot be posted");
        return false;
    }
    return true;
}

void rdma_send_post(struct rdma_side *side)
{
    while (!list_is_empty(&side->due) && !side->is_broken && !side->is_dead) {
        struct rdma_push *rdma_push = container_of(side->due.next, struct rdma_push, due);

        if (!rdma_send_post_chunk(side, rdma_push))
            return;
        list_remove(&rdma_push->due);
        if (rdma_push->n_posted < rdma_push->n_ready)
            list_push_back(&side->due, &rdma_push->due); /* other pushes get a turn */
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
    flight.rdma_push->n_done++;
    if (side->conn != NULL)
        side->conn->progress_ns = clock_now_ns();
    if (flight.rdma_push->state == RDMA_OPEN) {
        batch.push = flight.rdma_push->push;
        batch.n = rdma_send_chunk_pieces(flight.rdma_push, flight.chunk);
        tr_push_sent(side->node, &batch);
    } else if (flight.rdma_push->state == RDMA_STOPPED &&
               flight.rdma_push->n_done == flight.rdma_push->n_posted) {
        rdma_push_end(side, flight.rdma_push);
    }
}

/* ---- input from the receiver ---- */

static int rdma_push_open(struct rdma_push *rdma_push, const struct kv_frame_slot *slot)
{
    size_t n_pieces = (size_t)rdma_push->n_layers * slot->n_blocks;

    rdma_push->slot = slot->slot;
    rdma_push->n_blocks = slot->n_blocks;
    rdma_push->n_per_chunk = slot->n_per_chunk;
    rdma_push->n_groups = (slot->n_blocks - 1) / slot->n_per_chunk + 1;
    rdma_push->n_chunks = rdma_push->n_layers * rdma_push->n_groups;
    rdma_push->there = calloc(slot->n_blocks, sizeof(*rdma_push->there));
    rdma_push->source = malloc(n_pieces * sizeof(*rdma_push->source));
    rdma_push->n_given = calloc(rdma_push->n_chunks, sizeof(*rdma_push->n_given));
    rdma_push->ready = calloc(rdma_push->n_chunks, sizeof(*rdma_push->ready));
    if (rdma_push->there == NULL || rdma_push->source == NULL || rdma_push->n_given == NULL ||
        rdma_push->ready == NULL)
        return E_NOMEM;
    memset(rdma_push->source, 0xff, n_pieces * sizeof(*rdma_push->source)); /* NOT_GIVEN */
    return 0;
}

int rdma_send_on_slot(struct rdma_side *side, const struct kv_frame_slot *slot, const uint8_t *ids,
                      struct fault *fault)
{
    struct rdma_push *rdma_push = rdma_send_find(side, slot->ticket);
    uint32_t n_layers = side->node->opts.geometry.n_layers;
    size_t piece_bytes = side->node->opts.geometry.piece_bytes;

    if (slot->n_blocks > side->conn->peer_geometry.n_blocks ||
        (uint64_t)n_layers * ((slot->n_blocks - 1) / slot->n_per_chunk + 1) > KV_RDMA_MAX_CHUNKS ||
        (slot->n_per_chunk > 1 && slot->n_per_chunk * piece_bytes > TR_RDMA_CHUNK))
        return fault_set(fault, E_PROTO, "SLOT for %u blocks, %u a chunk", slot->n_blocks, slot->n_per_chunk);
    if (rdma_push == NULL || side->is_dead)
        return 0; /* its push is over */
    if (rdma_push->state != RDMA_ASKED)
        return fault_set(fault, E_PROTO, "SLOT for a ticket that has one");
    rdma_push->n_layers = n_layers;
    if (rdma_push_open(rdma_push, slot) != 0)
        return fault_set(fault, E_NOMEM, "no memory for a push");
    for (uint32_t i = 0; i < slot->n_blocks; i++) {
        rdma_push->there[i] = get_u32(ids + i * sizeof(uint32_t));
        if (rdma_push->there[i] >= side->conn->peer_geometry.n_blocks)
            return fault_set(fault, E_PROTO, "block %u of an arena of %u", rdma_push->there[i],
                             side->conn->peer_geometry.n_blocks);
    }
    rdma_push->state = RDMA_OPEN;
    return 0;
}

void rdma_send_forget(struct rdma_side *side, const struct tr_push *push)
{
    struct rdma_push *rdma_push = push->rdma;

    if (rdma_push == NULL || rdma_push->state == RDMA_STOPPED)
        return;
    list_remove(&rdma_push->due);
    rdma_push->state = RDMA_STOPPED;
    if (rdma_push->n_done == rdma_push->n_posted || side->is_dead)
        rdma_push_end(side, rdma_push);
}

void rdma_send_on_stop(struct rdma_side *side, uint64_t ticket)
{
    struct rdma_push *rdma_push = rdma_send_find(side, ticket);
    struct fault fault;

    if (rdma_push == NULL || side->is_dead)
        return; /* STOPPED was sent, or will be */
    fault_set(&fault, E_NOT_FOUND, "%s closed the ticket", tr_conn_name(side->conn));
    tr_push_fail(side->node, rdma_push->push, &fault);
}

bool rdma_send_is_busy(const struct rdma_side *side)
{
    if (!list_is_empty(&side->due))
        return true;
    list_for_each (at, &side->pushes) {
        const struct rdma_push *rdma_push = container_of(at, struct rdma_push, node);

        if (rdma_push->state != RDMA_OPEN || rdma_push->n_posted != rdma_push->n_done)
            return true;
    }
    return false;
}
