/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's queues: the pieces to send, their peer, and the connection that sends them next.
 *
 *     peer (kind, address)
 *       conns    [0][1]                         idle ones ask for work: the least loaded gets it
 *       pushes   B: job, job   A: job   C:      served in turn, a frame's worth at a time
 *
 * A push belongs to its destination peer. Its jobs are the runs of the caller's tr_push() calls, in order.
 * Connections take batches with tr_push_take() and report them with tr_push_sent() once the kernel has
 * every byte.
 *
 * When a connection dies, only the receiver knows which of its pieces arrived, and the receiver fails the
 * whole ticket. So every push that the connection carried a piece of fails too. Other pushes continue over
 * the remaining connections, or over a new one. A failed push stays in the table and does nothing until
 * its owner stops it.
 *
 * Stopping is immediate: every connection forgets the push (fills a frame under way with zeros and marks
 * it void), the shared-memory generation is revoked, and the jobs are dropped. Stopping waits for no peer.
 * One exception: a NIC finishes its posted reads, so over RDMA STOPPED waits until the connection lets the
 * push go.
 *
 * A push over RDMA never fails because RDMA does: it moves to the TCP peer of the same address and
 * continues with the pieces that the receiver reports missing. */
#include "transfer/transport/tr_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

static void tr_push_send_event(struct tr_node *node, const struct tr_push *push, enum tr_event_kind kind,
                               const struct fault *fault)
{
    struct tr_event event = {.kind = kind,
                             .id = push->id,
                             .n_pieces = push->n_sent,
                             .n_total = push->n_total,
                             .n_bytes = push->n_bytes,
                             .elapsed_ns = push->last_ns - push->first_ns};

    if (fault != NULL)
        event.fault = *fault;
    tr_node_event(node, &event);
}

/* ---- ending ---- */

/* After this call the transport reads and sends no byte of the push. */
static void tr_push_silence(struct tr_node *node, struct tr_push *push)
{
    struct list *at;

    if (push->peer != NULL)
        list_for_each (conn_at, &push->peer->conns) {
            struct tr_conn *conn = container_of(conn_at, struct tr_conn, peer_node);

            if (conn->state == TR_CONN_READY)
                conn->ops->forget_push(conn, push);
        }
    if (push->generation != 0)
        tr_control_revoke(node->control, push->slot);
    push->generation = 0;
    push->n_flying = 0;
    while ((at = list_pop_front(&push->jobs)) != NULL)
        free(container_of(at, struct tr_job, node));
}

void tr_push_fail(struct tr_node *node, struct tr_push *push, const struct fault *fault)
{
    if (push->is_failed)
        return;
    push->is_failed = true;
    tr_push_silence(node, push);
    tr_push_send_event(node, push, TR_PUSH_FAILED, fault);
}

static void tr_peer_free_if_unused(struct tr_peer *peer)
{
    if (!list_is_empty(&peer->conns) || !list_is_empty(&peer->pushes))
        return;
    list_remove(&peer->node);
    free(peer);
}

static void tr_push_free(struct tr_push *push)
{
    struct tr_peer *peer = push->peer;

    list_remove(&push->node);
    free(push);
    if (peer != NULL)
        tr_peer_free_if_unused(peer);
}

static void tr_push_finish_stop(struct tr_node *node, struct tr_push *push)
{
    tr_push_send_event(node, push, TR_PUSH_STOPPED, NULL);
    tr_push_free(push);
}

void tr_push_stop(struct tr_node *node, uint64_t id)
{
    struct tr_push *push = hashmap_remove(node->pushes, &id);
    struct tr_event stopped = {.kind = TR_PUSH_STOPPED, .id = id};

    if (push == NULL) {
        tr_node_event(node, &stopped);
        return;
    }
    tr_push_silence(node, push);
    push->is_stopping = push->is_failed = true;
    if (!push->is_held)
        tr_push_finish_stop(node, push);
}

void tr_push_let_go(struct tr_node *node, struct tr_push *push)
{
    push->is_held = false;
    push->rdma = NULL;
    if (push->is_stopping)
        tr_push_finish_stop(node, push);
}

/* ---- beginning ---- */

static struct tr_peer *tr_peer_find(struct tr_node *node, enum tr_kind kind, const char *address)
{
    struct tr_peer *peer;

    list_for_each (at, &node->peers) {
        peer = container_of(at, struct tr_peer, node);
        if (peer->kind == kind && strcmp(peer->address, address) == 0)
            return peer;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL)
        return NULL;
    peer->kind = kind;
    str_copy(peer->address, sizeof(peer->address), address);
    list_init(&peer->conns);
    list_init(&peer->pushes);
    list_push_back(&node->peers, &peer->node);
    return peer;
}

int tr_peer_connect(struct tr_node *node, struct tr_peer *peer, struct fault *fault)
{
    unsigned n_wanted = tr_kind_ops(peer->kind)->has_many ? node->opts.tcp_connections : 1, n = 0;

    list_for_each (at, &peer->conns)
        n += !container_of(at, struct tr_conn, peer_node)->is_leaving;
    for (; n < n_wanted; n++) {
        int err = tr_conn_dial(node, peer, fault);

        if (err != 0)
            return n > 0 ? 0 : err;
    }
    return 0;
}

static int tr_push_begin(struct tr_node *node, struct tr_push *push, const struct tr_target *target,
                         struct fault *fault)
{
    const struct tr_conn_ops *ops = tr_kind_ops(target->kind);
    enum tr_kind kind = target->kind;
    int err;

    if (ops->may_reach != NULL && !ops->may_reach(node, target->address)) {
        kind = tr_kind_socket(kind);
        ops = tr_kind_ops(kind);
    }
    if (!ops->is_without_host && node->opts.arena_kind != TR_ARENA_HOST)
        return fault_set(fault, E_UNSUPPORTED, "only RDMA moves device memory, and it cannot be used now");
    err = ops->begin_push != NULL ? ops->begin_push(node, push, fault) : 0;
    if (err != 0)
        return err;
    push->peer = tr_peer_find(node, kind, target->address);
    if (push->peer == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a peer");
    list_push_back(&push->peer->pushes, &push->node);
    return tr_peer_connect(node, push->peer, fault);
}

void tr_push_start(struct tr_node *node, uint64_t id, const struct tr_target *target, uint32_t n_pieces)
{
    struct tr_event failed = {.kind = TR_PUSH_FAILED, .id = id};
    struct tr_push *push = calloc(1, sizeof(*push));
    int err = push == NULL                                   ? E_NOMEM
              : hashmap_get(node->pushes, &id) != NULL       ? E_EXISTS
              : hashmap_count(node->pushes) >= TR_MAX_PUSHES ? E_LIMIT
                                                             : hashmap_put(node->pushes, &id, push, NULL);
    struct fault fault = {0};

    if (err != 0) {
        free(push);
        fault_set(&failed.fault, err, "push not begun: %s", err_text(err));
        tr_node_event(node, &failed);
        return;
    }
    list_init(&push->node);
    list_init(&push->jobs);
    push->id = id;
    push->ticket = target->ticket;
    push->n_total = n_pieces;
    if (tr_push_begin(node, push, target, &fault) != 0)
        tr_push_fail(node, push, &fault);
}

void tr_push_give(struct tr_node *node, uint64_t id, struct tr_job *job)
{
    struct tr_push *push = hashmap_get(node->pushes, &id);

    /* The push failed and its owner receives the event, or its owner has stopped it. */
    if (push == NULL || push->is_failed) {
        free(job);
        return;
    }
    list_push_back(&push->jobs, &job->node);
    push->n_given += job->n;
    tr_peer_wake(node, push->peer);
}

/* Wakes the peer's connections: there may be work to send. */
void tr_peer_wake(struct tr_node *node, struct tr_peer *peer)
{
    list_for_each (at, &peer->conns)
        tr_conn_wake(container_of(at, struct tr_conn, peer_node));
}

void tr_push_over_tcp(struct tr_node *node, struct tr_push *push, struct list *jobs, uint32_t n_there)
{
    struct fault fault = {0};
    struct list *at;

    if (push->is_failed) {
        while ((at = list_pop_front(jobs)) != NULL)
            free(container_of(at, struct tr_job, node));
        return;
    }
    while ((at = jobs->prev) != jobs) { /* before the jobs that were given since */
        list_remove(at);
        list_push_front(&push->jobs, at);
    }
    push->n_flying = 0;
    push->carriers = 0;
    push->n_sent = n_there;
    list_remove(&push->node);
    if (node->opts.arena_kind != TR_ARENA_HOST)
        fault_set(&fault, E_UNSUPPORTED, "RDMA failed, and nothing else moves device memory");
    else if ((push->peer = tr_peer_find(node, TR_TCP, push->peer->address)) == NULL)
        fault_set(&fault, E_NOMEM, "no memory for a peer");
    if (push->peer != NULL)
        list_push_back(&push->peer->pushes, &push->node);
    if (fault.code != 0 || tr_peer_connect(node, push->peer, &fault) != 0)
        tr_push_fail(node, push, &fault);
    else
        tr_peer_wake(node, push->peer);
}

/* ---- sending ---- */

static uint32_t tr_push_pieces_per_frame(const struct tr_node *node, enum tr_kind kind)
{
    size_t n = tr_kind_ops(kind)->frame_bytes / node->opts.geometry.piece_bytes;

    return n == 0 ? 1 : n > KV_FRAME_MAX_PIECES ? KV_FRAME_MAX_PIECES : (uint32_t)n;
}

bool tr_push_take_of(struct tr_node *node, struct tr_conn *conn, struct tr_push *push, struct tr_batch *out)
{
    uint32_t most = tr_push_pieces_per_frame(node, conn->kind);
    struct tr_job *job;

    if (list_is_empty(&push->jobs))
        return false;
    job = container_of(push->jobs.next, struct tr_job, node);
    out->push = push;
    out->layer = job->layer;
    out->first = job->first + job->n_taken;
    out->n = job->n - job->n_taken < most ? job->n - job->n_taken : most;
    memcpy(out->blocks, job->blocks + job->n_taken, out->n * sizeof(out->blocks[0]));
    job->n_taken += out->n;
    if (job->n_taken == job->n) {
        list_remove(&job->node);
        free(job);
    }
    push->n_flying += out->n;
    push->carriers |= 1u << conn->index;
    if (push->first_ns == 0)
        push->first_ns = push->last_ns = clock_now_ns();
    return true;
}

bool tr_push_take(struct tr_node *node, struct tr_conn *conn, struct tr_batch *out)
{
    if (conn->is_leaving)
        return false;
    list_for_each (at, &conn->peer->pushes) {
        struct tr_push *push = container_of(at, struct tr_push, node);

        if (tr_push_take_of(node, conn, push, out)) {
            list_remove(&push->node);
            list_push_back(&conn->peer->pushes, &push->node);
            return true;
        }
    }
    return false;
}

void tr_push_sent(struct tr_node *node, const struct tr_batch *batch)
{
    struct tr_push *push = batch->push;
    uint64_t n_bytes = (uint64_t)batch->n * node->opts.geometry.piece_bytes;

    ASSERT(push->n_flying >= batch->n);
    push->n_flying -= batch->n;
    push->n_sent += batch->n;
    push->n_bytes += n_bytes;
    push->last_ns = clock_now_ns();
    atomic_fetch_add_explicit(&node->totals.bytes_sent, n_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&node->totals.pieces_sent, batch->n, memory_order_relaxed);
    if (push->n_flying == 0 && list_is_empty(&push->jobs))
        tr_push_send_event(node, push, TR_PUSH_SENT, NULL);
}

void tr_push_rejected(struct tr_node *node, struct tr_peer *peer, uint64_t ticket, int code)
{
    struct fault fault;

    fault_set(&fault, code < 0 ? code : E_PEER, "%s does not take the ticket: %s", peer->address,
              err_text(code));
    list_for_each (at, &peer->pushes) {
        struct tr_push *push = container_of(at, struct tr_push, node);

        if (push->ticket == ticket)
            tr_push_fail(node, push, &fault);
    }
}

void tr_peer_lost_connection(struct tr_node *node, struct tr_conn *conn, const struct fault *fault)
{
    struct tr_peer *peer = conn->peer;
    unsigned bit = 1u << conn->index;
    bool may_retry = conn->state == TR_CONN_READY && fault->code == E_CLOSED; /* it only closed */
    bool is_idle = true;
    struct fault why;

    list_remove(&conn->peer_node);
    peer->used_indexes &= ~bit;
    if (conn->ops->gave_up != NULL && conn->state != TR_CONN_READY) {
        conn->ops->gave_up(node, peer, conn->state);
        tr_peer_free_if_unused(peer);
        return;
    }
    list_for_each (at, &peer->pushes) {
        struct tr_push *push = container_of(at, struct tr_push, node);

        if ((push->carriers & bit) != 0 || (!may_retry && list_is_empty(&peer->conns)))
            tr_push_fail(node, push, fault);
        push->carriers &= ~bit; /* a new connection may reuse the index */
        is_idle = is_idle && push->is_failed;
    }
    if (!is_idle && list_is_empty(&peer->conns) && tr_peer_connect(node, peer, &why) != 0)
        list_for_each (at, &peer->pushes)
            tr_push_fail(node, container_of(at, struct tr_push, node), &why);
    tr_peer_free_if_unused(peer);
}

void tr_pushes_free(struct tr_node *node)
{
    size_t cursor = 0;
    const void *key;
    void *value;
    struct list *at;

    if (node->pushes != NULL)
        while (hashmap_next(node->pushes, &cursor, &key, &value)) {
            struct tr_push *push = value;

            while ((at = list_pop_front(&push->jobs)) != NULL)
                free(container_of(at, struct tr_job, node));
            list_remove(&push->node);
            free(push);
        }
    hashmap_free(node->pushes);
    node->pushes = NULL;
    while ((at = list_pop_front(&node->peers)) != NULL) {
        struct tr_peer *peer = container_of(at, struct tr_peer, node);

        while ((at = list_pop_front(&peer->pushes)) != NULL) /* pushes that are stopping */
            free(container_of(at, struct tr_push, node));
        free(peer);
    }
}
