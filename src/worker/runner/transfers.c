/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer table.  Routes peer messages and transport events to the transfer's owner.
 *
 *    key                          finds a transfer for
 *    OUTGOING  id                 the transport's push events; the receiver's messages
 *    INCOMING  (peer, id)         the sender's messages
 *    TICKET    ticket             the transport's ticket events
 *
 * In CANCEL and STOPPED, from_sender says which end wrote the message.  So equal ids of the two directions
 * are not confused. */
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"

enum transfer_key_kind { TRANSFER_KEY_OUTGOING, TRANSFER_KEY_INCOMING, TRANSFER_KEY_TICKET };

struct transfer_key {
    uint64_t id;
    uint32_t peer; /* INCOMING: the peer; else 0 */
    uint32_t kind;
};

struct transfers {
    struct hashmap *by_key; /* struct transfer_key -> struct transfer */
    uint64_t next_id;
};

static struct transfer *transfers_find(const struct worker_engine *engine, enum transfer_key_kind kind,
                                       uint32_t peer, uint64_t id)
{
    struct transfer_key key = {.id = id, .peer = peer, .kind = kind};

    return hashmap_get(engine->transfers->by_key, &key);
}

static int transfers_put(struct worker_engine *engine, enum transfer_key_kind kind, uint32_t peer,
                         uint64_t id, struct transfer *transfer)
{
    struct transfer_key key = {.id = id, .peer = peer, .kind = kind};

    return hashmap_put(engine->transfers->by_key, &key, transfer, NULL);
}

static void transfers_drop(struct worker_engine *engine, enum transfer_key_kind kind, uint32_t peer,
                           uint64_t id)
{
    struct transfer_key key = {.id = id, .peer = peer, .kind = kind};

    hashmap_remove(engine->transfers->by_key, &key);
}

int worker_transfers_add_outgoing(struct worker_engine *engine, struct transfer *transfer)
{
    uint64_t id = engine->transfers->next_id++;
    int rc;

    if (id == 0)
        id = engine->transfers->next_id++;
    rc = transfers_put(engine, TRANSFER_KEY_OUTGOING, 0, id, transfer);
    if (rc < 0)
        return rc;
    transfer->id = id;
    worker_peer_use(engine, transfer->peer);
    return 0;
}

int worker_transfers_add_incoming(struct worker_engine *engine, struct transfer *transfer, uint64_t id)
{
    uint64_t ticket = 0;
    int rc;

    if (transfers_find(engine, TRANSFER_KEY_INCOMING, transfer->peer, id) != NULL)
        return E_EXISTS;
    while (ticket == 0)
        rng_system(&ticket, sizeof(ticket));
    rc = transfers_put(engine, TRANSFER_KEY_INCOMING, transfer->peer, id, transfer);
    if (rc < 0)
        return rc;
    rc = transfers_put(engine, TRANSFER_KEY_TICKET, 0, ticket, transfer);
    if (rc < 0) {
        transfers_drop(engine, TRANSFER_KEY_INCOMING, transfer->peer, id);
        return rc;
    }
    transfer->id = id;
    transfer->ticket = ticket;
    worker_peer_use(engine, transfer->peer);
    return 0;
}

void worker_transfers_remove(struct worker_engine *engine, struct transfer *transfer)
{
    if (transfer->ticket != 0 || transfer->id != 0)
        worker_peer_leave(engine, transfer->peer);
    if (transfer->ticket != 0) {
        transfers_drop(engine, TRANSFER_KEY_INCOMING, transfer->peer, transfer->id);
        transfers_drop(engine, TRANSFER_KEY_TICKET, 0, transfer->ticket);
    } else if (transfer->id != 0) {
        transfers_drop(engine, TRANSFER_KEY_OUTGOING, 0, transfer->id);
    }
    transfer->id = transfer->ticket = 0;
}

void worker_transfers_refuse_offer(struct worker_engine *engine, uint32_t peer, uint64_t id, int code)
{
    struct kvxfer_message refused = {.kind = KVXFER_REFUSED, .transfer = id, .code = code};

    worker_engine_to_peer(engine, peer, &refused);
}

/* ---- messages and events ---- */

static void transfers_deliver(struct transfer *transfer, const struct kvxfer_message *message)
{
    if (transfer == NULL)
        return; /* it is over */
    switch (transfer->side) {
    case TRANSFER_PREFIX_FETCH:
        worker_prefix_fetch_message(transfer, message);
        return;
    case TRANSFER_PREFIX_SERVE:
        worker_prefix_serve_message(transfer, message);
        return;
    case TRANSFER_KV_SEND:
        worker_kv_send_message(transfer, message);
        return;
    case TRANSFER_KV_RECEIVE:
        worker_kv_receive_message(transfer, message);
        return;
    }
}

/* Finds our transfer that a receiver's message is about. */
static struct transfer *transfers_outgoing(const struct worker_engine *engine, uint32_t peer, uint64_t id)
{
    struct transfer *transfer = transfers_find(engine, TRANSFER_KEY_OUTGOING, 0, id);

    return transfer != NULL && transfer->peer == peer ? transfer : NULL;
}

void worker_transfers_message(struct worker_engine *engine, uint32_t peer,
                              const struct kvxfer_message *message)
{
    switch (message->kind) {
    case KVXFER_FETCH:
        worker_prefix_serve_request(engine, peer, message);
        return;
    case KVXFER_FETCH_REFUSED:
        worker_prefix_fetch_refused(engine, peer, message->fetch);
        return;
    case KVXFER_OFFER:
        if (message->fetch != 0)
            worker_prefix_fetch_offer(engine, peer, message);
        else
            worker_kv_receive_offer(engine, peer, message);
        return;
    case KVXFER_GRANT:
    case KVXFER_REFUSED:
    case KVXFER_DONE:
        transfers_deliver(transfers_outgoing(engine, peer, message->transfer), message);
        return;
    case KVXFER_PREFILL_DONE:
        transfers_deliver(transfers_find(engine, TRANSFER_KEY_INCOMING, peer, message->transfer), message);
        return;
    case KVXFER_CANCEL:
    case KVXFER_STOPPED:
        transfers_deliver(message->from_sender
                              ? transfers_find(engine, TRANSFER_KEY_INCOMING, peer, message->transfer)
                              : transfers_outgoing(engine, peer, message->transfer),
                          message);
        return;
    }
}

static enum transfer_key_kind transfers_key_of(enum tr_event_kind kind)
{
    switch (kind) {
    case TR_PUSH_SENT:
    case TR_PUSH_FAILED:
    case TR_PUSH_STOPPED:
        return TRANSFER_KEY_OUTGOING;
    case TR_PIECES_ARRIVED:
    case TR_TICKET_COMPLETE:
    case TR_TICKET_FAILED:
    case TR_TICKET_CLOSED:
        break;
    }
    return TRANSFER_KEY_TICKET;
}

void worker_transfers_event(struct worker_engine *engine, const struct tr_event *event)
{
    struct transfer *transfer = transfers_find(engine, transfers_key_of(event->kind), 0, event->id);

    if (transfer == NULL)
        return;
    switch (transfer->side) {
    case TRANSFER_PREFIX_FETCH:
        worker_prefix_fetch_event(transfer, event);
        return;
    case TRANSFER_PREFIX_SERVE:
        worker_prefix_serve_event(transfer, event);
        return;
    case TRANSFER_KV_SEND:
        worker_kv_send_event(transfer, event);
        return;
    case TRANSFER_KV_RECEIVE:
        worker_kv_receive_event(transfer, event);
        return;
    }
}

void worker_transfers_peer(struct worker_engine *engine, uint32_t peer, bool is_up)
{
    worker_kv_send_peer(engine, peer, is_up);
    worker_kv_receive_peer(engine, peer, is_up);
    worker_prefix_serve_peer(engine, peer, is_up);
    worker_prefix_fetch_peer(engine, peer, is_up);
}

void worker_transfers_tick(struct worker_engine *engine, uint64_t now_ns)
{
    worker_kv_send_tick(engine, now_ns);
    worker_kv_receive_tick(engine, now_ns);
    worker_prefix_serve_tick(engine, now_ns);
    worker_prefix_fetch_tick(engine, now_ns);
}

uint32_t worker_transfers_count(const struct worker_engine *engine)
{
    return worker_kv_send_count(engine) + worker_kv_receive_count(engine) +
           worker_prefix_serve_count(engine) + worker_prefix_fetch_count(engine);
}

/* ---- open and close ---- */

int worker_transfers_open(struct worker_engine *engine)
{
    struct transfers *transfers = calloc(1, sizeof(*transfers));

    if (transfers == NULL)
        return E_NOMEM;
    engine->transfers = transfers;
    rng_system(&transfers->next_id, sizeof(transfers->next_id));
    if (hashmap_new(sizeof(struct transfer_key), &transfers->by_key) < 0 || worker_kv_send_open(engine) < 0 ||
        worker_kv_receive_open(engine) < 0 || worker_prefix_serve_open(engine) < 0 ||
        worker_prefix_fetch_open(engine) < 0)
        return E_NOMEM;
    return 0;
}

/* The transport is closed, so no peer writes any more. */
void worker_transfers_close(struct worker_engine *engine)
{
    if (engine->transfers == NULL)
        return;
    worker_kv_send_close(engine);
    worker_kv_receive_close(engine);
    worker_prefix_serve_close(engine);
    worker_prefix_fetch_close(engine);
    hashmap_free(engine->transfers->by_key);
    free(engine->transfers);
    engine->transfers = NULL;
}
