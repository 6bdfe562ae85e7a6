/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a data connection.
 *
 *     dialler (sender of KV)                      acceptor (receiver)
 *     CONNECTING                                      |
 *     SHAKING   <------------- TLS ------------->  SHAKING       skipped without TLS
 *     GREETING  HELLO ------------------> <------ HELLO  GREETING
 *     PROVING   PROOF ------------------> <------ PROOF  PROVING
 *     SHARING   MEMORY + descriptors ----------->        SHARING  shared memory
 *               RAIL -------> <------- RAIL, REGION               RDMA
 *     READY     DATA | ANNOUNCE | ASK ----------->       READY
 *               <---------------- REJECT (a ticket not wanted)
 *     any ---- error, end of stream, time-out ----> DEAD
 *
 * HELLO carries a nonce and all values that must agree. PROOF is a MAC over both HELLOs, the speaker's
 * first, and the speaker's side number. So PROOF cannot be replayed or reflected, and it covers all agreed
 * values. On plain TCP and UNIX sockets PROOF is the authentication; under TLS it is a second safeguard. A
 * connection handles nothing else before it.
 *
 * Each state has one function; only tr_conn_set_state() changes the state. A connection that dies is unlinked
 * at once. It is freed when the event that ended it is over (tr_conns_free_dead). */
#include "transfer/transport/tr_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"

#define HANDSHAKE_NS (5 * NS_PER_S)

static const char *const state_names[] = {"connecting", "shaking", "greeting", "proving",
                                          "sharing",    "ready",   "dead"};
CHECK_ROWS(state_names, TR_CONN_DEAD + 1);

static const char *const kind_names[] = {
#define X(name, text, socket) [TR_##name] = #text,
    TR_KINDS(X)
#undef X
};

static const struct tr_conn_ops *const kind_ops[] = {
#define X(name, text, socket) [TR_##name] = &tr_##text##_ops,
    TR_KINDS(X)
#undef X
};

const struct tr_conn_ops *tr_kind_ops(enum tr_kind kind)
{
    return kind_ops[kind];
}

static void tr_conn_advance(struct tr_conn *conn);

static void tr_conn_set_state(struct tr_conn *conn, enum tr_conn_state state)
{
    log_debug("kv_connection_state", LOG_STR("peer", tr_conn_name(conn)),
              LOG_STR("from", state_names[conn->state]), LOG_STR("to", state_names[state]));
    conn->state = state;
}

const char *tr_conn_name(const struct tr_conn *conn)
{
    if (conn->peer != NULL)
        return conn->peer->address;
    return conn->peer_geometry.node[0] != '\0' ? conn->peer_geometry.node : "stranger";
}

/* ---- making and ending ---- */

static void tr_conn_on_ready_fd(void *arg, int fd, unsigned ready)
{
    tr_conn_advance(arg);
}

static void tr_conn_on_again(void *arg)
{
    struct tr_conn *conn = arg;

    conn->is_kicked = false;
    tr_conn_advance(conn);
}

static void tr_conn_free_now(struct tr_conn *conn)
{
    stranger_leave(conn->stranger);
    conn->ops->fini(conn);
    ev_fd_free(conn->watch);
    ev_timer_free(conn->again);
    tr_stream_fini(&conn->stream);
    free(conn);
}

int tr_conn_new(struct tr_node *node, enum tr_kind kind, int fd, struct tr_peer *peer, struct tr_conn **out)
{
    SSL_CTX *tls = peer != NULL ? node->opts.tls_client : node->opts.tls_server;
    struct tr_conn *conn = calloc(1, sizeof(*conn));
    bool is_unix;
    int err;

    if (conn == NULL)
        return E_NOMEM;
    list_init(&conn->node);
    list_init(&conn->peer_node);
    conn->owner = node;
    conn->kind = kind;
    conn->ops = kind_ops[kind];
    conn->peer = peer;
    conn->progress_ns = clock_now_ns();
    conn->wants = EV_FD_READ;
    is_unix = tr_kind_socket(kind) == TR_SHM;
    err = tr_stream_init(&conn->stream, fd, is_unix, is_unix ? NULL : tls, peer == NULL);
    if (err == 0)
        err = ev_timer_new(node->loop, tr_conn_on_again, conn, &conn->again);
    if (err == 0)
        err = ev_fd_new(node->loop, fd, tr_conn_on_ready_fd, conn, &conn->watch);
    if (err != 0) {
        conn->stream.fd = -1; /* the caller keeps fd after a failure */
        tr_conn_free_now(conn);
        return err;
    }
    list_push_back(&node->conns, &conn->node);
    atomic_fetch_add_explicit(&node->totals.connections_open, 1, memory_order_relaxed);
    if (peer == NULL)
        conn->state = TR_CONN_SHAKING;
    tr_conn_wake(conn);
    *out = conn;
    return 0;
}

void tr_conn_fail(struct tr_conn *conn, const struct fault *fault)
{
    struct tr_node *node = conn->owner;
    bool is_plain_end = fault->code == E_CLOSED && conn->state == TR_CONN_READY && !conn->ops->is_busy(conn);

    if (conn->state == TR_CONN_DEAD)
        return;
    if (conn->ops->lost != NULL)
        conn->ops->lost(conn);
    if (is_plain_end)
        log_info("kv_connection_closed", LOG_STR("peer", tr_conn_name(conn)));
    else
        log_warn("kv_connection_failed", LOG_STR("peer", tr_conn_name(conn)),
                 LOG_STR("state", state_names[conn->state]), LOG_STR("error", err_name(fault->code)),
                 LOG_STR("reason", fault->text));
    if (!is_plain_end)
        atomic_fetch_add_explicit(&node->totals.connections_failed, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&node->totals.connections_open, 1, memory_order_relaxed);
    list_remove(&conn->node);
    list_push_back(&node->dead_conns, &conn->node);
    ev_fd_free(conn->watch);
    conn->watch = NULL;
    ev_timer_stop(conn->again);
    stranger_leave(conn->stranger);
    conn->stranger = NULL;
    if (conn->peer != NULL)
        tr_peer_lost_connection(node, conn, fault);
    else
        tr_tickets_lost_connection(node, conn, fault);
    conn->peer = NULL;
    conn->state = TR_CONN_DEAD;
}

void tr_conns_free_dead(struct tr_node *node)
{
    struct list *at;

    while ((at = list_pop_front(&node->dead_conns)) != NULL)
        tr_conn_free_now(container_of(at, struct tr_conn, node));
}

void tr_conns_free(struct tr_node *node)
{
    struct list *at;

    while ((at = list_pop_front(&node->conns)) != NULL)
        tr_conn_free_now(container_of(at, struct tr_conn, node));
    tr_conns_free_dead(node);
}

/* ---- frames of the handshake ---- */

int tr_conn_read_frame(struct tr_conn *conn, struct fault *fault, struct kv_frame *out)
{
    for (;;) {
        size_t want_bytes = KV_FRAME_PREFIX_BYTES;
        struct iovec iov;
        ssize_t n;

        if (conn->head_bytes >= KV_FRAME_PREFIX_BYTES) {
            int size = kv_frame_size(conn->head, fault);

            if (size < 0)
                return size;
            want_bytes = (size_t)size;
        }
        if (conn->head_bytes == want_bytes) {
            int err = kv_frame_unpack(bytes_of(conn->head, want_bytes), fault, out);

            conn->head_bytes = 0;
            return err != 0 ? err : 1;
        }
        iov = (struct iovec){.iov_base = conn->head + conn->head_bytes,
                             .iov_len = want_bytes - conn->head_bytes};
        n = tr_stream_read(&conn->stream, &iov, 1);
        if (n == 0)
            return 0;
        if (n < 0)
            return fault_set(fault, (int)n, "%s", n == E_CLOSED ? "closed by the peer" : "connection lost");
        conn->head_bytes += (size_t)n;
    }
}

int tr_conn_send_frame(struct tr_conn *conn, const struct kv_frame *frame, struct fault *fault)
{
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    size_t len_bytes = kv_frame_pack(frame, bytes);
    int err = tr_stream_put(&conn->stream, bytes, len_bytes);

    if (err == 0) {
        err = tr_stream_flush(&conn->stream);
        err = err < 0 ? err : 0;
    }
    if (frame->type == KV_FRAME_HELLO)
        memcpy(conn->own_hello, bytes, sizeof(conn->own_hello));
    return err != 0 ? fault_set(fault, err, "cannot send: %s", err_text(err)) : 0;
}

/* A listener does not know yet which kind the dialler wants: its HELLO names the kind of the socket. */
static uint8_t tr_conn_kind_on_wire(enum tr_kind kind)
{
    switch (kind) {
#define X(name, text, socket)                                                                                \
    case TR_##name:                                                                                          \
        return KV_FRAME_##name;
        TR_KINDS(X)
#undef X
    }
    return 0;
}

/* The kind of the peer's HELLO.  An acceptor names its socket, a dialler the kind that it wants over this socket. */
static bool tr_conn_find_kind(const struct tr_conn *conn, uint8_t on_wire, enum tr_kind *out)
{
    for (unsigned kind = 0; kind < sizeof(kind_ops) / sizeof(kind_ops[0]); kind++)
        if (tr_conn_kind_on_wire(kind) == on_wire) {
            *out = kind;
            return conn->peer != NULL ? *out == tr_kind_socket(conn->kind)
                                      : tr_kind_socket(*out) == tr_kind_socket(conn->kind);
        }
    return false;
}

static int tr_conn_send_hello(struct tr_conn *conn, struct fault *fault)
{
    const struct tr_node *node = conn->owner;
    struct kv_frame frame = {.type = KV_FRAME_HELLO};
    struct kv_frame_hello *hello = &frame.as.hello;

    hello->version = KV_FRAME_VERSION;
    hello->kind = tr_conn_kind_on_wire(conn->kind);
    hello->side = conn->peer != NULL ? KV_FRAME_DIALER : KV_FRAME_ACCEPTOR;
    hello->n_layers = node->opts.geometry.n_layers;
    hello->piece_bytes = node->opts.geometry.piece_bytes;
    hello->layout = node->opts.layout;
    hello->n_blocks = node->opts.geometry.n_blocks;
    hello->n_slots = conn->peer != NULL ? conn->ops->n_slots : 0;
    rng_system(hello->nonce, sizeof(hello->nonce));
    memcpy(hello->node, node->name, sizeof(hello->node));
    return tr_conn_send_frame(conn, &frame, fault);
}

static int tr_conn_check_hello(const struct tr_conn *conn, const struct kv_frame_hello *hello,
                               struct fault *fault)
{
    const struct tr_node *node = conn->owner;
    unsigned side = conn->peer != NULL ? KV_FRAME_ACCEPTOR : KV_FRAME_DIALER;
    enum tr_kind kind;

    if (!tr_conn_find_kind(conn, hello->kind, &kind) || hello->side != side)
        return fault_set(fault, E_PROTO, "%s greets as kind %u, side %u", hello->node, hello->kind,
                         hello->side);
    if (hello->layout != node->opts.layout || hello->n_layers != node->opts.geometry.n_layers ||
        hello->piece_bytes != node->opts.geometry.piece_bytes)
        return fault_set(fault, E_MISMATCH,
                         "%s has KV layout %016llx (%u layers of %llu bytes), this side %016llx (%u of %zu)",
                         hello->node, (unsigned long long)hello->layout, hello->n_layers,
                         (unsigned long long)hello->piece_bytes, (unsigned long long)node->opts.layout,
                         node->opts.geometry.n_layers, node->opts.geometry.piece_bytes);
    if (conn->peer == NULL && kind_ops[kind]->is_offered != NULL && !kind_ops[kind]->is_offered(node))
        return fault_set(fault, E_UNSUPPORTED, "%s wants %s, which this side does not offer", hello->node,
                         kind_names[kind]);
    return 0;
}

/* ---- one function per state: 1: state changed, run the next; 0: wait; negative: fail ---- */

static int tr_conn_in_connecting(struct tr_conn *conn, struct fault *fault)
{
    int why = 0;
    socklen_t len_bytes = sizeof(why);
    struct sockaddr_storage sa;
    socklen_t sa_bytes = sizeof(sa);

    if (getsockopt(conn->stream.fd, SOL_SOCKET, SO_ERROR, &why, &len_bytes) != 0 || why != 0)
        return fault_set(fault, E_CLOSED, "cannot connect to %s: %s", conn->peer->address, strerror(why));
    if (getpeername(conn->stream.fd, (struct sockaddr *)&sa, &sa_bytes) != 0) {
        conn->stream.is_blocked = true; /* the connect is still in progress */
        return 0;
    }
    conn->stream.is_blocked = false;
    tr_conn_set_state(conn, TR_CONN_SHAKING);
    return 1;
}

static int tr_conn_in_shaking(struct tr_conn *conn, struct fault *fault)
{
    int rc = tr_stream_shake(&conn->stream, fault);

    if (rc <= 0)
        return rc;
    if (tr_conn_send_hello(conn, fault) != 0)
        return fault->code;
    tr_conn_set_state(conn, TR_CONN_GREETING);
    return 1;
}

static int tr_conn_in_greeting(struct tr_conn *conn, struct fault *fault)
{
    struct kv_frame frame, proof = {.type = KV_FRAME_PROOF};
    int rc = tr_conn_read_frame(conn, fault, &frame);
    enum tr_kind kind;

    if (rc <= 0)
        return rc;
    if (frame.type != KV_FRAME_HELLO)
        return fault_set(fault, E_PROTO, "frame type %d instead of HELLO", frame.type);
    rc = tr_conn_check_hello(conn, &frame.as.hello, fault);
    if (rc != 0)
        return rc;
    conn->peer_geometry = frame.as.hello;
    memcpy(conn->peer_hello, conn->head, sizeof(conn->peer_hello));
    if (conn->peer == NULL && tr_conn_find_kind(conn, frame.as.hello.kind, &kind)) {
        conn->kind = kind;
        conn->ops = kind_ops[kind];
    }
    rc = tr_keys_prove(conn, proof.as.proof.mac);
    if (rc != 0)
        return fault_set(fault, rc, "cannot compute a proof");
    rc = tr_conn_send_frame(conn, &proof, fault);
    if (rc != 0)
        return rc;
    tr_conn_set_state(conn, TR_CONN_PROVING);
    return 1;
}

static int tr_conn_become_ready(struct tr_conn *conn, struct fault *fault)
{
    tr_conn_set_state(conn, TR_CONN_READY);
    if (conn->peer == NULL)
        log_info("kv_connection_ready", LOG_STR("peer", conn->peer_geometry.node),
                 LOG_STR("kind", kind_names[conn->kind]));
    return conn->ops->ready(conn, fault);
}

static int tr_conn_in_proving(struct tr_conn *conn, struct fault *fault)
{
    struct kv_frame frame;
    int rc = tr_conn_read_frame(conn, fault, &frame);

    if (rc <= 0)
        return rc;
    if (frame.type != KV_FRAME_PROOF || !tr_keys_accept(conn, frame.as.proof.mac))
        return fault_set(fault, E_AUTH, "%s does not know the cluster's key", conn->peer_geometry.node);
    stranger_prove(conn->stranger);
    conn->stranger = NULL;
    if (conn->ops->share != NULL) {
        tr_conn_set_state(conn, TR_CONN_SHARING);
        return 1;
    }
    return tr_conn_become_ready(conn, fault);
}

static int tr_conn_in_sharing(struct tr_conn *conn, struct fault *fault)
{
    int rc = conn->ops->share(conn, fault);

    return rc <= 0 ? rc : tr_conn_become_ready(conn, fault);
}

/* Reads frames from the receiver: REJECT only. */
static int tr_conn_read_rejects(struct tr_conn *conn, struct fault *fault)
{
    struct kv_frame frame;
    int rc;

    while ((rc = tr_conn_read_frame(conn, fault, &frame)) > 0) {
        if (frame.type != KV_FRAME_REJECT)
            return fault_set(fault, E_PROTO, "frame type %d from a receiver", frame.type);
        tr_push_rejected(conn->owner, conn->peer, frame.as.reject.ticket, frame.as.reject.code);
    }
    return rc;
}

static int tr_conn_in_ready(struct tr_conn *conn, struct fault *fault)
{
    int rc = tr_stream_flush(&conn->stream);

    if (rc < 0)
        return fault_set(fault, rc, "connection lost");
    if (conn->peer == NULL)
        return conn->ops->receive(conn, fault);
    rc = conn->ops->listen != NULL ? conn->ops->listen(conn, fault) : tr_conn_read_rejects(conn, fault);
    return rc < 0 ? rc : conn->ops->send(conn, fault);
}

static int tr_conn_act(struct tr_conn *conn, struct fault *fault)
{
    switch (conn->state) {
    case TR_CONN_CONNECTING:
        return tr_conn_in_connecting(conn, fault);
    case TR_CONN_SHAKING:
        return tr_conn_in_shaking(conn, fault);
    case TR_CONN_GREETING:
        return tr_conn_in_greeting(conn, fault);
    case TR_CONN_PROVING:
        return tr_conn_in_proving(conn, fault);
    case TR_CONN_SHARING:
        return tr_conn_in_sharing(conn, fault);
    case TR_CONN_READY:
        return tr_conn_in_ready(conn, fault);
    case TR_CONN_DEAD:
        return 0;
    }
    return 0;
}

static void tr_conn_update_watch(struct tr_conn *conn)
{
    bool wants_write = conn->stream.is_blocked || tr_stream_has_output(&conn->stream);
    unsigned wants = EV_FD_READ | (wants_write ? EV_FD_WRITE : 0);

    if (wants != conn->wants)
        ev_fd_want(conn->watch, wants);
    conn->wants = wants;
}

/* Runs the connection as far as it can go now. */
static void tr_conn_advance(struct tr_conn *conn)
{
    struct tr_node *node = conn->owner;
    struct fault fault = {0};
    int rc;

    do
        rc = tr_conn_act(conn, &fault);
    while (rc > 0 && conn->state != TR_CONN_READY);
    if (rc > 0) /* it just became READY, or its turn ended with work left */
        tr_conn_wake(conn);
    if (conn->stream.has_moved && conn->state == TR_CONN_READY)
        conn->progress_ns = clock_now_ns();
    conn->stream.has_moved = false;
    if (rc < 0) {
        if (fault.code == 0)
            fault_set(&fault, rc, "%s", err_text(rc));
        tr_conn_fail(conn, &fault);
    } else {
        tr_conn_update_watch(conn);
    }
    tr_tickets_report(node);
    tr_conns_free_dead(node);
}

void tr_conn_wake(struct tr_conn *conn)
{
    if (conn->is_kicked || conn->state == TR_CONN_DEAD)
        return;
    conn->is_kicked = true;
    ev_timer_start(conn->again, 0);
}

int tr_conn_receive_runs(struct tr_conn *conn, tr_conn_step move, struct fault *fault)
{
    size_t total_bytes = 0;

    while (total_bytes < TR_TURN_BYTES) {
        ssize_t n = move(conn, conn->moving, fault);

        if (n < 0)
            return fault->code != 0 ? fault->code
                                    : fault_set(fault, (int)n, "%s: connection lost in the middle of a frame",
                                                tr_conn_name(conn));
        if (n == 0)
            return 0;
        total_bytes += (size_t)n;
    }
    return 1;
}

void tr_conn_reject(struct tr_conn *conn, uint64_t ticket, int code)
{
    struct kv_frame frame = {.type = KV_FRAME_REJECT, .as.reject = {.ticket = ticket, .code = code}};

    atomic_fetch_add_explicit(&conn->owner->totals.frames_rejected, 1, memory_order_relaxed);
    if (conn->last_rejected == ticket)
        return;
    conn->last_rejected = ticket;
    tr_conn_send_frame(conn, &frame,
                       NULL); /* if the frame cannot be queued, a later send finds the failure */
}

void tr_conns_check(struct tr_node *node)
{
    uint64_t now_ns = clock_now_ns();

    list_for_each_safe (at, spare, &node->conns) {
        struct tr_conn *conn = container_of(at, struct tr_conn, node);
        uint64_t limit_ns = node->opts.io_timeout_ns;
        struct fault fault;

        if (conn->state == TR_CONN_READY && !conn->ops->is_busy(conn) && !tr_stream_has_output(&conn->stream))
            conn->progress_ns = now_ns; /* idle: the time-out starts with the next work */
        if (conn->state != TR_CONN_READY && limit_ns > HANDSHAKE_NS)
            limit_ns = HANDSHAKE_NS;
        if (now_ns - conn->progress_ns <= limit_ns)
            continue;
        fault_set(&fault, E_TIMEOUT, "%s: no progress for %llu ms (%s)", tr_conn_name(conn),
                  (unsigned long long)(limit_ns / NS_PER_MS), state_names[conn->state]);
        tr_conn_fail(conn, &fault);
    }
    tr_conns_free_dead(node);
}
