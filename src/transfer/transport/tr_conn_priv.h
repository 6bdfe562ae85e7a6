/* SPDX-License-Identifier: Apache-2.0 */
/* A data connection: one socket to one peer and its handshake.
 * Each kind of transport supplies a struct tr_conn_ops.  Nothing else depends on the kind: the other files ask
 * its members, never whether the kind is this or that one.
 * How to change it: docs/changes-worker.md, "A transport of KV". */
#ifndef TRANSFER_TRANSPORT_TR_CONN_PRIV_H
#define TRANSFER_TRANSPORT_TR_CONN_PRIV_H

#include "base/list.h"
#include "base/event/loop.h"
#include "base/event/strangers.h"
#include "proto/kv_frame.h"
#include "transfer/transport/tr_stream_priv.h"
#include "transfer/transport/transport.h"

struct tr_conn;
struct tr_peer;
struct tr_push;
struct tr_ticket;

enum tr_conn_state {
    TR_CONN_CONNECTING, /* the socket connects */
    TR_CONN_SHAKING,    /* TLS handshake */
    TR_CONN_GREETING,   /* our HELLO is sent; waits for the peer's HELLO */
    TR_CONN_PROVING,    /* our PROOF is sent; waits for the peer's PROOF */
    TR_CONN_SHARING,    /* shared memory: descriptors are passed; RDMA: queue pairs are connected */
    TR_CONN_READY,      /* moving KV */
    TR_CONN_DEAD        /* freed after the call that ended it returns */
};

struct tr_conn_ops {      /* one kind of transport: what it is, and its operations */
    size_t frame_bytes;   /* payload of one batch; more only if one piece is longer */
    uint32_t n_slots;     /* slots of the dialler's control page, for its HELLO; 0: it has none */
    bool has_many;        /* a peer gets opts.tcp_connections of them, else one */
    bool is_without_host; /* moves device memory too, which this process cannot touch */
    bool keeps_pushes; /* a retired connection works until it is idle: none other may take its pushes over */

    /* Acceptor: whether this node takes the kind at all.  NULL: always. */
    bool (*is_offered)(const struct tr_node *node);
    /* Dialler: whether a new push may use the kind now; if not it begins with the kind of the socket.  NULL: always. */
    bool (*may_reach)(const struct tr_node *node, const char *address);
    /* Dialler: a push begins; takes what it needs for it.  NULL: nothing. */
    int (*begin_push)(struct tr_node *node, struct tr_push *push, struct fault *fault);
    /* SHARING: what both ends exchange after their proofs.  1: done, 0: wait.  NULL: the kind has no such state. */
    int (*share)(struct tr_conn *conn, struct fault *fault);
    /* Dialler: a connection ended in this state, before READY.  Moves the pushes of the peer elsewhere.  NULL: they
     * fail. */
    void (*gave_up)(struct tr_node *node, struct tr_peer *peer, enum tr_conn_state reached);

    /* ---- a READY connection ---- */
    /* Called when the connection has become READY.  Returns 1, or an error. */
    int (*ready)(struct tr_conn *conn, struct fault *fault);
    /* Acceptor: there is input.  > 0: call again. */
    int (*receive)(struct tr_conn *conn, struct fault *fault);
    /* Dialler: the socket has room, or there is work.  > 0: call again. */
    int (*send)(struct tr_conn *conn, struct fault *fault);
    void (*forget_push)(struct tr_conn *conn,
                        const struct tr_push *push); /* stop reading the bytes of this push */
    /* Stop writing for this ticket. */
    void (*forget_ticket)(struct tr_conn *conn, const struct tr_ticket *ticket);
    int (*listen)(struct tr_conn *conn,
                  struct fault *fault); /* dialler: input is here; NULL: only REJECT comes */
    /* Called before the connection becomes DEAD.  Ends everything that could move bytes without it, such as
     * queue pairs. NULL: there is nothing to end. */
    void (*lost)(struct tr_conn *conn);
    bool (*is_busy)(const struct tr_conn *conn); /* a frame is only partly read or written */
    void (*fini)(struct tr_conn *conn);
};

#define X(name, text, socket) extern const struct tr_conn_ops tr_##text##_ops;
TR_KINDS(X)
#undef X

const struct tr_conn_ops *tr_kind_ops(enum tr_kind kind);

struct tr_conn {
    struct list node;      /* node->conns */
    struct list peer_node; /* peer->conns */
    struct tr_node *owner;
    enum tr_kind kind;
    const struct tr_conn_ops *ops;
    enum tr_conn_state state;
    struct tr_peer *peer; /* dialler: the peer; NULL: accepted */
    unsigned index;       /* index among the peer's connections */
    struct tr_stream stream;
    struct ev_fd *watch;
    struct ev_timer *again; /* runs while work is left although the socket is silent */
    uint64_t progress_ns;   /* time of the last progress, or of the start of work */
    uint8_t own_hello[KV_FRAME_MAX_BYTES], peer_hello[KV_FRAME_MAX_BYTES];
    struct kv_frame_hello peer_geometry;
    struct stranger *stranger;        /* acceptor: until PROVING is over; NULL: no stranger */
    uint8_t head[KV_FRAME_MAX_BYTES]; /* header of the frame being read */
    size_t head_bytes;
    uint64_t last_rejected;
    uint8_t peer_key[TR_KEY_BYTES]; /* the key that the peer proved */
    uint64_t retired_ns;            /* when that key stopped being accepted; 0: it is accepted */
    unsigned wants;                 /* the events that watch is set to */
    bool is_kicked;                 /* the timer `again` runs */
    bool is_leaving;                /* takes no new work; closes when its current work is done */
    void *moving;                   /* state of the kind, made by ops->ready */
};

int tr_conn_dial(struct tr_node *node, struct tr_peer *peer, struct fault *fault);
/* peer NULL: the connection was accepted. Takes fd, only on success. */
int tr_conn_new(struct tr_node *node, enum tr_kind kind, int fd, struct tr_peer *peer, struct tr_conn **out);
int tr_conn_send_frame(struct tr_conn *conn, const struct kv_frame *frame,
                       struct fault *fault); /* queues the frame and flushes */
const char *tr_conn_name(const struct tr_conn *conn);
void tr_conn_fail(struct tr_conn *conn, const struct fault *fault);
void tr_conn_wake(struct tr_conn *conn); /* dialler: there is work to send */
/* Reads into conn->head until it holds one frame. 1: *out is the frame; 0: incomplete; negative: end of
 * stream, or malformed. */
int tr_conn_read_frame(struct tr_conn *conn, struct fault *fault, struct kv_frame *out);
struct moving; /* each kind has its own */
/* Reads one step of a run of pieces. Returns the bytes moved; 0: none now; negative: the error. */
typedef ssize_t (*tr_conn_step)(struct tr_conn *conn, struct moving *moving, struct fault *fault);
/* Reads runs of pieces until TR_TURN_BYTES have moved. 1: more may be there; 0: none now; negative: the
 * error, with the fault filled. */
int tr_conn_receive_runs(struct tr_conn *conn, tr_conn_step move, struct fault *fault);
void tr_conn_reject(struct tr_conn *conn, uint64_t ticket,
                    int code);             /* best effort; sent once for a run of frames of one ticket */
void tr_conns_check(struct tr_node *node); /* checks time-outs; called periodically */
void tr_conns_free_dead(struct tr_node *node);
void tr_conns_free(struct tr_node *node);

/* ---- listening sockets ---- */

struct tr_listener {
    int fd;
    struct ev_fd *watch;
    struct ev_timer *resume;
    struct strangers *strangers;
    enum tr_kind kind;
    struct tr_node *node;
};

int tr_listen_tcp(struct tr_node *node, const char *address, struct fault *fault);
int tr_listen_unix(struct tr_node *node, const char *path, struct fault *fault);
/* A peer's address: its sockets have priority. */
void tr_listen_know(struct tr_node *node, const char *address);
/* Call it after the connections are freed. */
void tr_listen_close(struct tr_node *node);

#endif
