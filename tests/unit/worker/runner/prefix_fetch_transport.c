/* SPDX-License-Identifier: Apache-2.0 */
/* A transport between two workers that keeps its contract and no more: pieces travel in any order, calls are
 * sometimes refused, data connections break, and last events come at any time. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/err.h"
#include "tests/unit/worker/runner/prefix_fetch_rig.h"

struct ticket {
    bool is_open, is_closing, is_reported, is_failed;
    uint64_t id;
    uint32_t node, n_blocks, n_done;
    kv_block_id blocks[MAX_PROMPT];
    bool is_done[N_LAYERS][MAX_PROMPT];
};

struct piece {
    uint32_t layer, index;
    kv_block_id source;
    bool is_done;
};

struct push {
    bool is_open, is_stopping, is_broken, owes_sent;
    uint64_t id, ticket;
    uint32_t node;
    struct piece pieces[MAX_PIECES];
    uint32_t n_pieces, n_done;
};

static struct ticket tickets[MAX_ENDS];
static struct push pushes[MAX_ENDS];

void transport_reset(void)
{
    memset(tickets, 0, sizeof(tickets));
    memset(pushes, 0, sizeof(pushes));
}

static struct ticket *find_ticket(uint64_t id)
{
    for (int i = 0; i < MAX_ENDS; i++)
        if (tickets[i].is_open && tickets[i].id == id)
            return &tickets[i];
    return NULL;
}

static struct push *find_push(uint64_t id)
{
    for (int i = 0; i < MAX_ENDS; i++)
        if (pushes[i].is_open && pushes[i].id == id)
            return &pushes[i];
    return NULL;
}

int tr_open_ticket(struct tr_node *node, uint64_t id, const uint32_t *blocks, uint32_t n_blocks)
{
    struct ticket *ticket = tickets;

    if (happens(50))
        return E_FULL;
    while (ticket->is_open)
        ticket++;
    assert_true(ticket < tickets + MAX_ENDS && n_blocks <= MAX_PROMPT);
    *ticket = (struct ticket){.is_open = true, .id = id, .node = node->number, .n_blocks = n_blocks};
    memcpy(ticket->blocks, blocks, n_blocks * sizeof(*blocks));
    return 0;
}

int tr_close_ticket(struct tr_node *node, uint64_t id)
{
    find_ticket(id)->is_closing = true;
    return 0;
}

int tr_start_push(struct tr_node *node, uint64_t id, const struct tr_target *target, uint32_t n_pieces)
{
    struct push *push = pushes;

    if (happens(50))
        return E_FULL;
    while (push->is_open)
        push++;
    assert_true(push < pushes + MAX_ENDS);
    *push = (struct push){.is_open = true, .id = id, .node = node->number, .ticket = target->ticket};
    return 0;
}

static uint32_t n_under_way(uint32_t node)
{
    uint32_t n = 0;

    for (int i = 0; i < MAX_ENDS; i++)
        if (pushes[i].is_open && pushes[i].node == node && !pushes[i].is_stopping && !pushes[i].is_broken)
            n += pushes[i].n_pieces - pushes[i].n_done;
    return n;
}

int tr_push(struct tr_node *node, uint64_t id, const struct tr_pieces *pieces)
{
    struct push *push = find_push(id);

    if (happens(5))
        return E_FULL;
    for (uint32_t i = 0; i < pieces->n; i++) {
        assert_true(push->n_pieces < MAX_PIECES);
        push->pieces[push->n_pieces++] = (struct piece){
            .layer = pieces->layer, .index = pieces->first_index + i, .source = pieces->blocks[i]};
    }
    push->owes_sent = true;
    assert_true(n_under_way(node->number) <= WINDOW);
    return 0;
}

int tr_stop_push(struct tr_node *node, uint64_t id)
{
    find_push(id)->is_stopping = true;
    return 0;
}

static void raise_receiver_event(struct ticket *ticket, enum tr_event_kind kind)
{
    struct tr_event event = {.kind = kind,
                             .id = ticket->id,
                             .n_pieces = ticket->n_done,
                             .n_bytes = ticket->n_done * UINT64_C(100),
                             .elapsed_ns = 1000,
                             .fault = {.code = E_IO}};

    for (bool is_whole = true; event.n_leading < ticket->n_blocks; event.n_leading++) {
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            is_whole &= ticket->is_done[layer][event.n_leading];
        if (!is_whole)
            break;
    }
    worker_transfers_event(&nodes[ticket->node].engine, &event);
}

static void raise_sender_event(struct push *push, enum tr_event_kind kind)
{
    struct tr_event event = {.kind = kind, .id = push->id, .n_pieces = push->n_done, .fault = {.code = E_IO}};

    worker_transfers_event(&nodes[push->node].engine, &event);
}

static void copy_one(struct push *push)
{
    struct ticket *ticket = find_ticket(push->ticket);
    struct piece *piece;
    kv_block_id to;

    if (push->n_pieces == 0 || push->is_broken)
        return;           /* a stopped push may continue until it confirms the stop */
    if (ticket == NULL) { /* rejected */
        push->is_broken = true;
        raise_sender_event(push, TR_PUSH_FAILED);
        return;
    }
    piece = &push->pieces[rng_below(&rng, push->n_pieces)];
    if (piece->is_done || ticket->is_failed)
        return;
    assert_true(piece->index < ticket->n_blocks);
    to = ticket->blocks[piece->index];
    assert_int_equal(kv_state_of(nodes[push->node].engine.pool, piece->source), KV_SEALED);
    assert_true(kv_state_of(nodes[ticket->node].engine.pool, to) == KV_FILLING ||
                kv_state_of(nodes[ticket->node].engine.pool, to) == KV_ZOMBIE);
    nodes[ticket->node].arena[piece->layer][to] = nodes[push->node].arena[piece->layer][piece->source];
    ticket->n_done += !ticket->is_done[piece->layer][piece->index];
    ticket->is_done[piece->layer][piece->index] = true;
    piece->is_done = true;
    push->n_done++;
}

static void push_turn(struct push *push)
{
    copy_one(push);
    if (!push->is_broken && !push->is_stopping && push->owes_sent && push->n_done == push->n_pieces) {
        push->owes_sent = false;
        raise_sender_event(push, TR_PUSH_SENT);
    }
    if (!push->is_broken && happens(300)) {
        struct ticket *ticket = find_ticket(push->ticket);

        push->is_broken = true;
        raise_sender_event(push, TR_PUSH_FAILED);
        if (ticket != NULL && !ticket->is_reported) {
            ticket->is_failed = true;
            raise_receiver_event(ticket, TR_TICKET_FAILED);
        }
    }
    if (push->is_stopping && rng_below(&rng, 3) == 0) {
        push->is_open = false;
        raise_sender_event(push, TR_PUSH_STOPPED);
    }
}

static void ticket_turn(struct ticket *ticket)
{
    if (!ticket->is_reported && !ticket->is_failed && ticket->n_done == N_LAYERS * ticket->n_blocks) {
        ticket->is_reported = true;
        raise_receiver_event(ticket, TR_TICKET_COMPLETE);
    } else if (happens(4)) {
        raise_receiver_event(ticket, TR_PIECES_ARRIVED);
    }
    if (ticket->is_closing && rng_below(&rng, 3) == 0) {
        raise_receiver_event(ticket, TR_TICKET_CLOSED);
        ticket->is_open = false;
    }
}

void transport_turn(void)
{
    for (int i = 0; i < MAX_ENDS; i++)
        if (pushes[i].is_open && rng_below(&rng, 2) == 0)
            push_turn(&pushes[i]);
    for (int i = 0; i < MAX_ENDS; i++)
        if (tickets[i].is_open && rng_below(&rng, 2) == 0)
            ticket_turn(&tickets[i]);
}
