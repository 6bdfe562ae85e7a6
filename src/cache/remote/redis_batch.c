/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the Redis store: its items, by server.
 *
 *     items by server --> all commands of a server, then its replies in order
 *           ^                                                       |
 *           +---- MOVED: this slot's server changed ... ------------+
 *                 ASK: this item only, after ASKING
 *                 an old connection was cut: the same on a new one
 *
 *                 a replica failed: the same at the primary
 *
 * With replicas=yes, reads go to a replica of their slot.  Values never change, so a replica that is behind lacks some, and
 * that is all.  It cannot renew a lifetime: such keys are renewed later, at the primary (redis_store_touch).
 *
 * Values are sent from where they are, in chunks.  A chunk is made just before it is sent, so the server takes one chunk
 * while the next is made.  Values that are read go to the reader while they arrive.
 *
 * So a batch costs one round trip, and a redirected item one more.  After MAX_ROUNDS an item that is still
 * redirected fails.  A server of a cluster that does not answer rests for a second, so it delays a batch once; its
 * items fail meanwhile.  A call fails as a whole only when no server answers, or when all items are refused. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/remote/store_redis_priv.h"
#include "net/redis/redis_error.h"

#define MAX_ROUNDS   5
#define CHUNK_BYTES  (256u * 1024) /* of a value, made and sent at once */
#define PEER_REST_NS NS_PER_S
#define MAP_LEAST_NS (NS_PER_S / 2)
#define MAP_MOST_NS  (60 * NS_PER_S) /* with replicas, which come and go without a redirection */

/* ---- servers ---- */

unsigned redis_store_peer(struct redis_store *store, const struct redis_node *node)
{
    struct redis_node full = *node;

    if (full.host[0] == '\0') /* the server does not know its own name: it is the one that answered */
        memcpy(full.host, store->peers[store->answered_by].node.host, sizeof(full.host));
    for (unsigned i = 0; i < store->n_peers; i++)
        if (store->peers[i].node.port == full.port && strcmp(store->peers[i].node.host, full.host) == 0)
            return i;
    if (store->n_peers == REDIS_MAX_PEERS)
        return REDIS_NO_PEER;
    store->peers[store->n_peers] = (struct redis_peer){.node = full};
    return store->n_peers++;
}

void redis_store_fail_peer(struct redis_store *store, struct redis_peer *peer, int result)
{
    redis_conn_close(peer->conn);
    peer->conn = NULL;
    peer->result = result;
    peer->rests_until_ns = clock_now_ns() + PEER_REST_NS;
    store->wants_map = store->url.is_cluster;
}

int redis_store_connect(struct redis_store *store, struct redis_peer *peer, struct fault *fault)
{
    int rc;

    peer->is_reused = peer->conn != NULL;
    if (peer->conn != NULL)
        return 0;
    if (store->url.is_cluster && clock_now_ns() < peer->rests_until_ns)
        return fault_set(fault, E_CLOSED, "%s port %u rests after a failure", peer->node.host,
                         peer->node.port);
    rc = redis_conn_open(&store->conn_opts, &peer->node, fault, &peer->conn);
    if (rc < 0)
        redis_store_fail_peer(store, peer, rc);
    return rc;
}

static void redis_store_on_range(void *arg, unsigned first, unsigned last, const struct redis_node *nodes,
                                 unsigned n)
{
    struct redis_store *store = arg;
    unsigned peer = redis_store_peer(store, &nodes[0]), replica = REDIS_NO_PEER;

    if (store->reads_replicas && n > 1)
        replica = redis_store_peer(store, &nodes[1 + store->number % (n - 1)]);
    for (unsigned slot = first; slot <= last; slot++) {
        store->slots[slot] = (uint8_t)peer;
        store->replicas[slot] = (uint8_t)replica;
    }
}

int redis_store_map(struct redis_store *store, struct fault *fault)
{
    int rc = E_IO;

    store->map_ns = clock_now_ns();
    for (unsigned i = 0; i < store->n_peers && rc < 0 && rc != E_CANCELLED; i++) {
        struct redis_peer *peer = &store->peers[i];
        struct resp_item reply;
        struct bytes all;

        rc = redis_store_connect(store, peer, fault);
        if (rc < 0)
            continue;
        rc = redis_conn_ask(peer->conn, (const char *const[]){"CLUSTER", "SLOTS", NULL}, &reply, &all);
        store->answered_by = i;
        if (rc < 0) {
            redis_store_fail_peer(store, peer, rc);
            fault_set(fault, rc, "CLUSTER SLOTS: %s", err_text(rc));
        } else if (reply.kind == RESP_ERROR) {
            rc = redis_error_fault(&store->url, reply.text, redis_error_code(reply.text), fault);
        } else if (redis_slots_parse(all, redis_store_on_range, store) < 0) {
            rc = fault_set(fault, E_PROTO, "CLUSTER SLOTS: the reply is no list of slots");
        }
    }
    if (rc == 0)
        store->wants_map = false;
    return rc;
}

/* ---- a round of a batch ---- */

static unsigned redis_batch_peer_of(struct redis_batch *batch, unsigned i)
{
    struct redis_store *store = batch->store;
    struct redis_place *place = &batch->places[i];
    unsigned slot;

    place->is_at_replica = false;
    if (place->is_asking)
        return place->peer;
    if (!store->url.is_cluster)
        return 0;
    slot = redis_slot(bytes_str(batch->items[i].key));
    place->is_at_replica = batch->is_read && !place->wants_primary && store->replicas[slot] != REDIS_NO_PEER;
    return place->is_at_replica ? store->replicas[slot] : store->slots[slot];
}

/* EXPIRE follows the item's command in this round. */
static bool redis_place_refreshes(const struct redis_batch *batch, const struct redis_place *place)
{
    return batch->refreshes && !place->is_asking && !place->is_at_replica;
}

static void redis_batch_append(struct redis_batch *batch, unsigned i)
{
    struct redis_store *store = batch->store;
    const struct bytes expire[] = {bytes_str("EXPIRE"), bytes_str(batch->items[i].key),
                                   bytes_str(store->lifetime_s)};

    batch->places[i].waits_on = batch->places[i].peer;
    if (batch->places[i].is_asking)
        resp_command(&store->out, &(const struct bytes){(const uint8_t *)"ASKING", 6}, 1);
    batch->append(batch, i);
    if (redis_place_refreshes(batch, &batch->places[i]))
        resp_command(&store->out, expire, 3);
}

int redis_batch_add_value(struct redis_batch *batch, unsigned i)
{
    struct redis_store *store = batch->store;

    if (store->n_gaps == store->max_gaps) {
        unsigned most = store->max_gaps * 2 + 16;
        struct redis_gap *gaps = realloc(store->gaps, most * sizeof(*gaps));

        if (gaps == NULL)
            return E_NOMEM;
        store->gaps = gaps;
        store->max_gaps = most;
    }
    store->gaps[store->n_gaps++] = (struct redis_gap){.at_bytes = store->out.len_bytes, .item = i};
    return 0;
}

/* Sends the commands before a value, and the value. */
static int redis_batch_send_value(struct redis_batch *batch, struct redis_conn *conn, struct bytes before,
                                  unsigned item)
{
    struct bytes value = batch->values->all[item];
    size_t at = 0;
    int rc;

    do {
        size_t left = value.len_bytes - at, n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        struct bytes parts[] = {before, bytes_of(value.data + at, n)};

        rc = batch->values->fill(batch->values->arg, item, at + n);
        if (rc == 0)
            rc = redis_conn_send(conn, parts, 2);
        before.len_bytes = 0;
        at += n;
    } while (rc == 0 && at < value.len_bytes);
    return rc;
}

static int redis_batch_send_all(struct redis_batch *batch, struct redis_conn *conn)
{
    struct redis_store *store = batch->store;
    struct bytes rest = buf_view(&store->out);
    size_t at = 0;
    int rc = store->out.is_bad ? E_NOMEM : 0;

    for (unsigned i = 0; rc == 0 && i < store->n_gaps; i++) {
        const struct redis_gap *gap = &store->gaps[i];

        rc = redis_batch_send_value(batch, conn, bytes_of(rest.data + at, gap->at_bytes - at), gap->item);
        at = gap->at_bytes;
    }
    rest = bytes_of(rest.data + at, rest.len_bytes - at);
    return rc == 0 ? redis_conn_send(conn, &rest, 1) : rc;
}

/* Sends the commands of all items that this peer has. */
static void redis_batch_send(struct redis_batch *batch, unsigned at)
{
    struct redis_store *store = batch->store;
    struct redis_peer *peer = &store->peers[at];
    int rc = redis_store_connect(store, peer, batch->fault);

    peer->result = rc;
    if (rc < 0)
        return;
    buf_clear(&store->out);
    store->n_gaps = 0;
    for (unsigned i = 0; i < batch->n; i++)
        if (batch->places[i].is_pending && batch->places[i].peer == at)
            redis_batch_append(batch, i);
    rc = redis_batch_send_all(batch, peer->conn);
    if (rc < 0)
        redis_store_fail_peer(store, peer, fault_set(batch->fault, rc, "sending: %s", err_text(rc)));
}

/* Handles MOVED and ASK.  False: the error is another one. */
static bool redis_batch_redirect(struct redis_batch *batch, unsigned i, struct bytes error)
{
    struct redis_store *store = batch->store;
    struct redis_redirect redirect;
    unsigned peer;

    if (!store->url.is_cluster || redis_redirect_parse(error, &redirect) < 0)
        return false;
    peer = redis_store_peer(store, &redirect.node);
    if (peer == REDIS_NO_PEER)
        return false;
    batch->places[i].is_asking = redirect.is_ask;
    batch->places[i].peer = (uint8_t)peer;
    if (!redirect.is_ask) {
        store->slots[redirect.slot] = (uint8_t)peer;
        store->wants_map = true;
    }
    return true;
}

int redis_error_code(struct bytes error)
{
    static const struct {
        const char *text;
        int code;
    } codes[] = {{"OOM", E_FULL},          {"MISCONF", E_FULL},    {"READONLY", E_CLOSED},
                 {"NOPERM", E_AUTH},       {"NOAUTH", E_AUTH},     {"LOADING", E_AGAIN},
                 {"BUSY", E_AGAIN},        {"TRYAGAIN", E_AGAIN},  {"MASTERDOWN", E_AGAIN},
                 {"CLUSTERDOWN", E_AGAIN}, {"NOREPLICAS", E_FULL}, {"WRONGTYPE", E_NOT_FOUND}};

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (bytes_starts_with(error, codes[i].text))
            return codes[i].code;
    return E_PROTO;
}

struct redis_watch {
    const struct redis_batch *batch;
    unsigned item;
};

static void redis_watch_on_part(void *arg, struct bytes beginning)
{
    const struct redis_watch *watch = arg;

    watch->batch->reader->on_part(watch->batch->reader->arg, watch->item, beginning);
}

/* Reads the reply to an item's own command. */
static int redis_batch_reply(const struct redis_batch *batch, struct redis_conn *conn, unsigned i,
                             struct resp_item *reply)
{
    struct redis_watch watch = {batch, i};
    int rc;

    if (batch->reader != NULL) {
        redis_watch_on_part(&watch, bytes_of(NULL, 0));
        redis_conn_watch(conn, redis_watch_on_part, &watch);
    }
    rc = redis_conn_reply(conn, reply, NULL);
    redis_conn_watch(conn, NULL, NULL);
    return rc;
}

/* Reads the replies to an item's commands. */
static int redis_batch_read(struct redis_batch *batch, struct redis_peer *peer, unsigned i)
{
    struct redis_place *place = &batch->places[i];
    bool was_asking = place->is_asking, refreshes = redis_place_refreshes(batch, place), is_replica = false;
    struct resp_item reply;
    int rc = 0;

    place->waits_on = REDIS_NO_PEER;
    if (was_asking)
        rc = redis_conn_reply(peer->conn, &reply, NULL);
    if (rc == 0)
        rc = redis_batch_reply(batch, peer->conn, i, &reply);
    if (rc < 0)
        return rc;
    place->is_asking = false;
    if (reply.kind != RESP_ERROR) {
        place->is_pending = false;
        batch->on_reply(batch, i, &reply);
    } else if (place->is_at_replica) { /* it moved, or is not ready */
        place->wants_primary = true;
    } else if (!redis_batch_redirect(batch, i, reply.text)) {
        place->is_pending = false;
        batch->items[i].result = redis_error_code(reply.text);
        is_replica = batch->items[i].result == E_CLOSED;
        (void)redis_error_fault(&batch->store->url, reply.text, batch->items[i].result, batch->fault);
    }
    if (refreshes)
        rc = redis_conn_reply(peer->conn, &reply, NULL); /* a lifetime that was not renewed is no failure */
    return rc == 0 && is_replica ? E_CLOSED : rc;        /* the next connection may find the new primary */
}

static void redis_batch_receive(struct redis_batch *batch, unsigned at)
{
    struct redis_store *store = batch->store;
    struct redis_peer *peer = &store->peers[at];

    store->answered_by = at;
    for (unsigned i = 0; i < batch->n && peer->result == 0; i++) {
        int rc = 0;

        if (batch->places[i].waits_on == at)
            rc = redis_batch_read(batch, peer, i);
        if (rc < 0) {
            if (batch->places[i].is_pending) /* else the server's error is the reason */
                fault_set(batch->fault, rc, "%s port %u: %s", peer->node.host, peer->node.port, err_text(rc));
            redis_store_fail_peer(store, peer, rc);
        }
    }
}

/* An old connection was cut: a restart of the server.  The next round tries a new one. */
static bool redis_peer_is_stale(struct redis_peer *peer)
{
    if (!peer->is_reused || (peer->result != E_CLOSED && peer->result != E_IO))
        return false;
    peer->rests_until_ns = 0;
    return true;
}

static void redis_batch_give_up(struct redis_batch *batch, unsigned at)
{
    for (unsigned i = 0; i < batch->n; i++)
        if (batch->places[i].is_pending && batch->places[i].is_at_replica && batch->places[i].peer == at) {
            batch->places[i].wants_primary = true;
        } else if (batch->places[i].is_pending && batch->places[i].peer == at) {
            batch->places[i].is_pending = false;
            batch->items[i].result = batch->store->peers[at].result;
        }
}

/* Returns how many peers answered; the first failure goes to *rc_out. */
static unsigned redis_batch_round(struct redis_batch *batch, int *rc_out)
{
    struct redis_store *store = batch->store;
    unsigned n_good = 0, n_peers;

    for (unsigned i = 0; i < batch->n; i++) {
        struct redis_place *place = &batch->places[i];

        place->waits_on = REDIS_NO_PEER;
        if (!place->is_pending)
            continue;
        place->peer = (uint8_t)redis_batch_peer_of(batch, i);
        if (place->peer == REDIS_NO_PEER)
            place->peer = 0; /* any server says who has the slot */
        store->peers[place->peer].is_used = true;
    }
    n_peers = store->n_peers; /* redirects add peers for the next round */
    for (unsigned at = 0; at < n_peers; at++)
        if (store->peers[at].is_used)
            redis_batch_send(batch, at);
    for (unsigned at = 0; at < n_peers; at++) {
        if (!store->peers[at].is_used)
            continue;
        redis_batch_receive(batch, at);
        store->peers[at].is_used = false;
        n_good += store->peers[at].result == 0;
        if (store->peers[at].result == 0 || redis_peer_is_stale(&store->peers[at]))
            continue;
        *rc_out = *rc_out == 0 ? store->peers[at].result : *rc_out;
        redis_batch_give_up(batch, at);
    }
    return n_good;
}

static bool redis_batch_is_pending(const struct redis_batch *batch)
{
    for (unsigned i = 0; i < batch->n; i++)
        if (batch->places[i].is_pending)
            return true;
    return false;
}

/* A server that refuses every item is of no more use than one that does not answer. */
static int redis_batch_result(const struct redis_batch *batch)
{
    for (unsigned i = 0; i < batch->n; i++) {
        int result = batch->items[i].result;

        if (result >= 0 || result == E_NOT_FOUND || result == E_EXISTS || result == E_FULL)
            return 0;
    }
    return batch->n > 0 ? batch->items[0].result : 0;
}

int redis_batch_run(struct redis_batch *batch)
{
    struct redis_store *store = batch->store;
    unsigned n_good = 0;
    int rc = 0;

    if (store->url.is_cluster && store->wants_map && clock_now_ns() - store->map_ns >= MAP_LEAST_NS &&
        (rc = redis_store_map(store, batch->fault)) < 0)
        return rc;
    if (store->reads_replicas && clock_now_ns() - store->map_ns >= MAP_MOST_NS)
        (void)redis_store_map(store, NULL); /* the old map does in any case */
    batch->places = calloc(batch->n, sizeof(*batch->places));
    if (batch->places == NULL)
        return fault_set(batch->fault, E_NOMEM, "out of memory");
    for (unsigned i = 0; i < batch->n; i++) {
        batch->places[i].is_pending = true;
        batch->items[i].result = E_AGAIN;
    }
    for (unsigned round = 0; round < MAX_ROUNDS && redis_batch_is_pending(batch); round++)
        n_good += redis_batch_round(batch, &rc);
    free(batch->places);
    if (n_good > 0)
        return redis_batch_result(batch);
    for (unsigned at = 0; store->url.is_cluster && rc != E_CANCELLED && at < store->n_peers; at++)
        if (store->peers[at].conn != NULL)
            return 0; /* other servers are there, and each item has its own result */
    return rc;
}
