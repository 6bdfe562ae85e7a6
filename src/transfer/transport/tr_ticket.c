/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets: which pieces of the own arena a peer may write, and which have arrived. Every write must first
 * pass tr_ticket_claim().
 *
 *     pieces of a ticket (4 blocks, 3 layers)        claimed              n_layers   n_leading
 *       layer 0   [x][x][x][x]                        1 1 1 1
 *       layer 1   [x][x][~][ ]   ~ being written      1 1 1 0
 *       layer 2   [x][ ][ ][ ]                        1 0 0 0             3 2 1 1    1
 *
 * A piece is claimed when a frame that carries it begins, and stays claimed if the frame ends well. So
 * each piece has one writer and is written once: a second frame for it is discarded, even while the first
 * is under way. A frame that ends badly returns its claim.
 *
 *      IS_OPEN --- every piece arrived ---> IS_WHOLE
 *         |                                    |        close from any state: forgotten
 *         +--- bad frame, lost connection ---> IS_BROKEN
 *
 * In IS_WHOLE and IS_BROKEN a ticket accepts nothing more. It reports COMPLETE or FAILED once. It reports
 * CLOSED after its owner closed it and no byte can be written any more. Over TCP and shared memory this
 * thread does all the writing, between two commands of its mailbox. So CLOSED is true once the ticket is
 * out of the table and every connection has forgotten it. Over RDMA the peer's NIC writes: the connection
 * holds the ticket, and CLOSED waits until it lets go. */
#include "transfer/transport/tr_priv.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

static void tr_ticket_send_event(struct tr_node *node, const struct tr_ticket *ticket,
                                 enum tr_event_kind kind, const struct fault *fault)
{
    struct tr_event event = {.kind = kind,
                             .id = ticket->id,
                             .n_pieces = ticket->n_arrived,
                             .n_total = ticket->n_blocks * node->opts.geometry.n_layers,
                             .n_leading = ticket->n_leading,
                             .n_bytes = ticket->n_bytes,
                             .elapsed_ns = ticket->last_ns - ticket->first_ns};

    if (fault != NULL)
        event.fault = *fault;
    tr_node_event(node, &event);
}

static void tr_ticket_free_now(struct tr_ticket *ticket)
{
    if (ticket == NULL)
        return;
    list_remove(&ticket->dirty);
    list_remove(&ticket->closing);
    free(ticket->blocks);
    free(ticket->claimed);
    free(ticket->n_layers);
    free(ticket);
}

static struct tr_ticket *tr_ticket_new(struct tr_node *node, uint64_t id, uint32_t *blocks, uint32_t n_blocks)
{
    struct tr_ticket *ticket = calloc(1, sizeof(*ticket));
    size_t n_pieces = (size_t)n_blocks * node->opts.geometry.n_layers;

    if (ticket == NULL) {
        free(blocks);
        return NULL;
    }
    list_init(&ticket->dirty);
    list_init(&ticket->closing);
    ticket->id = id;
    ticket->n_blocks = n_blocks;
    ticket->blocks = blocks;
    ticket->claimed = calloc((n_pieces + 63) / 64, sizeof(uint64_t));
    ticket->n_layers = calloc(n_blocks, sizeof(uint32_t));
    if (ticket->claimed == NULL || ticket->n_layers == NULL) {
        tr_ticket_free_now(ticket);
        return NULL;
    }
    return ticket;
}

void tr_ticket_open(struct tr_node *node, uint64_t id, uint32_t *blocks, uint32_t n_blocks)
{
    struct tr_event failed = {.kind = TR_TICKET_FAILED, .id = id};
    struct tr_ticket *ticket = tr_ticket_new(node, id, blocks, n_blocks);
    int err = ticket == NULL                            ? E_NOMEM
              : hashmap_get(node->tickets, &id) != NULL ? E_EXISTS
              : hashmap_count(node->tickets) >= TR_MAX_TICKETS
                  ? E_LIMIT
                  : hashmap_put(node->tickets, &id, ticket, NULL);

    if (err == 0)
        return;
    tr_ticket_free_now(ticket);
    fault_set(&failed.fault, err, "ticket not opened: %s", err_text(err));
    tr_node_event(node, &failed);
}

static void tr_ticket_forget_everywhere(struct tr_node *node, const struct tr_ticket *ticket)
{
    list_for_each (at, &node->conns) {
        struct tr_conn *conn = container_of(at, struct tr_conn, node);

        if (conn->peer == NULL && conn->state == TR_CONN_READY)
            conn->ops->forget_ticket(conn, ticket);
    }
}

void tr_ticket_close(struct tr_node *node, uint64_t id)
{
    struct tr_ticket *ticket = hashmap_remove(node->tickets, &id);
    struct tr_event closed = {.kind = TR_TICKET_CLOSED, .id = id};

    if (ticket == NULL) {
        tr_node_event(node, &closed);
        return;
    }
    tr_ticket_forget_everywhere(node, ticket);
    if (ticket->n_writers > 0) {
        list_push_back(&node->closing_tickets, &ticket->closing);
        return;
    }
    tr_ticket_send_event(node, ticket, TR_TICKET_CLOSED, NULL);
    tr_ticket_free_now(ticket);
}

void tr_ticket_let_go(struct tr_node *node, struct tr_ticket *ticket)
{
    ASSERT(ticket->n_writers > 0);
    ticket->n_writers--;
    if (ticket->n_writers > 0 || list_is_empty(&ticket->closing))
        return;
    tr_ticket_send_event(node, ticket, TR_TICKET_CLOSED, NULL);
    tr_ticket_free_now(ticket);
}

static void tr_ticket_break(struct tr_node *node, struct tr_ticket *ticket, const struct fault *fault)
{
    if (ticket->state != TR_TICKET_IS_OPEN)
        return;
    ticket->state = TR_TICKET_IS_BROKEN;
    list_remove(&ticket->dirty);
    tr_ticket_forget_everywhere(node, ticket);
    tr_ticket_send_event(node, ticket, TR_TICKET_FAILED, fault);
}

static bool tr_ticket_get_bit(const uint64_t *bits, size_t at)
{
    return (bits[at / 64] >> at % 64 & 1) != 0;
}

bool tr_ticket_has(const struct tr_ticket *ticket, uint32_t layer, uint32_t index)
{
    return tr_ticket_get_bit(ticket->claimed, (size_t)layer * ticket->n_blocks + index);
}

int tr_ticket_find(struct tr_node *node, uint64_t id, struct tr_ticket **out)
{
    struct tr_ticket *ticket = hashmap_get(node->tickets, &id);

    if (ticket == NULL) {
        tr_node_catch_up(node); /* the owner's command to open it may still be in the mailbox */
        ticket = hashmap_get(node->tickets, &id);
    }
    if (ticket == NULL)
        return E_NOT_FOUND;
    if (ticket->state == TR_TICKET_IS_BROKEN)
        return E_CLOSED;
    *out = ticket;
    return 0;
}

static bool tr_ticket_is_carrier(const struct tr_ticket *ticket, const struct tr_conn *conn)
{
    for (unsigned i = 0; i < ticket->n_carriers; i++)
        if (ticket->carriers[i] == conn)
            return true;
    return false;
}

static int tr_ticket_add_carrier(struct tr_ticket *ticket, struct tr_conn *conn)
{
    if (tr_ticket_is_carrier(ticket, conn))
        return 0;
    if (ticket->n_carriers == TR_MAX_CONNECTIONS)
        return E_LIMIT;
    ticket->carriers[ticket->n_carriers++] = conn;
    return 0;
}

int tr_ticket_hold(struct tr_ticket *ticket, struct tr_conn *conn)
{
    int err = tr_ticket_add_carrier(ticket, conn);

    if (err == 0)
        ticket->n_writers++;
    return err;
}

void tr_tickets_forget_carrier(struct tr_node *node, const struct tr_conn *conn)
{
    size_t cursor = 0;
    const void *key;
    void *value;

    while (hashmap_next(node->tickets, &cursor, &key, &value)) {
        struct tr_ticket *ticket = value;

        for (unsigned i = 0; i < ticket->n_carriers; i++)
            if (ticket->carriers[i] == conn)
                ticket->carriers[i--] = ticket->carriers[--ticket->n_carriers];
    }
}

int tr_ticket_claim(struct tr_node *node, struct tr_conn *conn, const struct kv_frame_data *run,
                    struct fault *fault, struct tr_ticket **out)
{
    const struct tr_geometry *geometry = &node->opts.geometry;
    struct tr_ticket *ticket = hashmap_get(node->tickets, &run->ticket);
    size_t from;

    if (run->layer >= geometry->n_layers || run->n_pieces > geometry->n_blocks ||
        run->payload_bytes != run->n_pieces * (uint64_t)geometry->piece_bytes)
        return fault_set(fault, E_PROTO, "%u pieces of layer %u in %llu bytes do not fit the layout",
                         run->n_pieces, run->layer, (unsigned long long)run->payload_bytes);
    if (ticket == NULL) {
        /* The owner opened the ticket before it told the peer, but the peer's bytes may arrive here before
         * our mailbox is read. */
        tr_node_catch_up(node);
        ticket = hashmap_get(node->tickets, &run->ticket);
    }
    if (ticket == NULL)
        return E_NOT_FOUND;
    if (run->first >= ticket->n_blocks || run->n_pieces > ticket->n_blocks - run->first)
        return fault_set(fault, E_PROTO, "pieces %u to %u of a ticket for %u blocks", run->first,
                         run->first + run->n_pieces, ticket->n_blocks);
    if (ticket->state != TR_TICKET_IS_OPEN)
        return E_CLOSED;
    if (!conn->ops->is_without_host && node->opts.arena_kind != TR_ARENA_HOST)
        return E_UNSUPPORTED; /* this process cannot touch the arena */

    from = (size_t)run->layer * ticket->n_blocks + run->first;
    for (size_t i = from; i < from + run->n_pieces; i++)
        if (tr_ticket_get_bit(ticket->claimed, i))
            return E_EXISTS;
    if (tr_ticket_add_carrier(ticket, conn) != 0)
        return E_LIMIT;
    for (size_t i = from; i < from + run->n_pieces; i++)
        ticket->claimed[i / 64] |= UINT64_C(1) << i % 64;
    if (ticket->first_ns == 0)
        ticket->first_ns = ticket->last_ns = clock_now_ns();
    *out = ticket;
    return 0;
}

void tr_ticket_end_claim(struct tr_node *node, struct tr_ticket *ticket, const struct kv_frame_data *run,
                         bool is_good)
{
    const struct tr_geometry *geometry = &node->opts.geometry;
    size_t from = (size_t)run->layer * ticket->n_blocks + run->first;

    ASSERT(ticket->state == TR_TICKET_IS_OPEN);
    if (!is_good) {
        for (size_t i = from; i < from + run->n_pieces; i++)
            ticket->claimed[i / 64] &= ~(UINT64_C(1) << i % 64);
        return;
    }
    for (uint32_t i = run->first; i < run->first + run->n_pieces; i++)
        ticket->n_layers[i]++;
    while (ticket->n_leading < ticket->n_blocks && ticket->n_layers[ticket->n_leading] == geometry->n_layers)
        ticket->n_leading++;
    ticket->n_arrived += run->n_pieces;
    ticket->n_bytes += run->payload_bytes;
    ticket->last_ns = clock_now_ns();
    atomic_fetch_add_explicit(&node->totals.bytes_received, run->payload_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&node->totals.pieces_received, run->n_pieces, memory_order_relaxed);
    if (ticket->n_leading == ticket->n_blocks) {
        ticket->state = TR_TICKET_IS_WHOLE;
        list_remove(&ticket->dirty);
        tr_ticket_send_event(node, ticket, TR_TICKET_COMPLETE, NULL);
    } else {
        list_remove(&ticket->dirty);
        list_push_back(&node->dirty_tickets, &ticket->dirty);
    }
}

uint8_t *tr_ticket_piece(const struct tr_node *node, const struct tr_ticket *ticket, uint32_t layer,
                         uint32_t index)
{
    const struct tr_geometry *geometry = &node->opts.geometry;

    return (uint8_t *)node->opts.arena.base +
           tr_node_offset(geometry->n_blocks, geometry->piece_bytes, layer, ticket->blocks[index]);
}

/* Bytes that this connection carried may be lost between the two processes, so every ticket that it wrote
 * to fails. */
void tr_tickets_lost_connection(struct tr_node *node, const struct tr_conn *conn, const struct fault *fault)
{
    size_t cursor = 0;
    const void *key;
    void *value;

    while (hashmap_next(node->tickets, &cursor, &key, &value))
        if (tr_ticket_is_carrier(value, conn))
            tr_ticket_break(node, value, fault);
}

void tr_tickets_report(struct tr_node *node)
{
    struct list *at;

    while ((at = list_pop_front(&node->dirty_tickets)) != NULL)
        tr_ticket_send_event(node, container_of(at, struct tr_ticket, dirty), TR_PIECES_ARRIVED, NULL);
}

void tr_tickets_free(struct tr_node *node)
{
    size_t cursor = 0;
    const void *key;
    void *value;

    struct list *at;

    while ((at = list_pop_front(&node->closing_tickets)) != NULL)
        tr_ticket_free_now(container_of(at, struct tr_ticket, closing));
    if (node->tickets == NULL)
        return;
    while (hashmap_next(node->tickets, &cursor, &key, &value))
        tr_ticket_free_now(value);
    hashmap_free(node->tickets);
    node->tickets = NULL;
}
