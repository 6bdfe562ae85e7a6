/* SPDX-License-Identifier: Apache-2.0 */
/* A data connection: one socket to one peer, its handshake, and what a kind of transport must bring. */
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
    TR_CONN_CONNECTING, /* the socket is being connected */
    TR_CONN_SHAKING,    /* TLS */
    TR_CONN_GREETING,   /* our HELLO is out, theirs awaited */
    TR_CONN_PROVING,    /* our PROOF is out, theirs awaited */
    TR_CONN_SHARING,    /* shared memory: descriptors go over; RDMA: queue pairs are connected */
    TR_CONN_READY,      /* moving KV */
    TR_CONN_DEAD        /* freed when the call that killed it returns */
};

struct tr_conn_ops { /* what differs between kinds once a connection is READY */
    int (*ready)(struct tr_conn *conn, struct fault *fault);   /* just became READY; 1, or an error */
    int (*receive)(struct tr_conn *conn, struct fault *fault); /* acceptor: there is input; > 0: call again */
    int (*send)(struct tr_conn *conn, struct fault *fault);    /* dialler: room or work; > 0: call again */
    void (*forget_push)(struct tr_conn *conn,
                        const struct tr_push *push); /* no byte of it is read from now on */
    void (*forget_ticket)(struct tr_conn *conn, const struct tr_ticket *ticket); /* ... is written ... */
    int (*listen)(struct tr_conn *conn,
                  struct fault *fault); /* dialler: there is input; NULL: nothing but REJECT comes */
    /* It is about to be declared dead: end what could still move bytes without it.  NULL: nothing could. */
    void (*lost)(struct tr_conn *conn);
    bool (*is_busy)(const struct tr_conn *conn); /* in the middle of a frame */
    void (*fini)(struct tr_conn *conn);
};

extern const struct tr_conn_ops tr_tcp_ops;
extern const struct tr_conn_ops tr_shm_ops;
extern const struct tr_conn_ops tr_rdma_ops;

struct tr_conn {
    struct list node;      /* node->conns */
    struct list peer_node; /* peer->conns */
    struct tr_node *owner;
    enum tr_kind kind;
    const struct tr_conn_ops *ops;
    enum tr_conn_state state;
    struct tr_peer *peer; /* dialler; NULL: we accepted */
    unsigned index;       /* among the peer's */
    struct tr_stream stream;
    struct ev_fd *watch;
    struct ev_timer *again; /* more to do though the socket is silent */
    uint64_t progress_ns;   /* when something last moved, or work began */
    uint8_t own_hello[KV_FRAME_MAX_BYTES], peer_hello[KV_FRAME_MAX_BYTES];
    struct kv_frame_hello peer_geometry;
    struct stranger *stranger;        /* acceptor: until PROVING is over; NULL: none */
    uint8_t head[KV_FRAME_MAX_BYTES]; /* of the frame being read */
    size_t head_bytes;
    uint64_t last_rejected;
    unsigned wants;  /* what watch is set to */
    bool is_kicked;  /* again is running */
    bool is_leaving; /* takes no new work, and is closed when what it has is settled */
    void *moving;    /* the kind's own state, made by ops->ready */
};

int tr_conn_dial(struct tr_node *node, struct tr_peer *peer, struct fault *fault);
/* peer NULL: accepted.  fd is taken on success only. */
int tr_conn_new(struct tr_node *node, enum tr_kind kind, int fd, struct tr_peer *peer, struct tr_conn **out);
int tr_conn_say(struct tr_conn *conn, const struct kv_frame *frame,
                struct fault *fault); /* queues, flushes */
const char *tr_conn_name(const struct tr_conn *conn);
void tr_conn_fail(struct tr_conn *conn, const struct fault *fault);
void tr_conn_wake(struct tr_conn *conn); /* dialler: there is something to send */
/* Reads into conn->head until it holds one frame.  1: *out is one, 0: not yet, negative: end or malformed. */
int tr_conn_read_frame(struct tr_conn *conn, struct fault *fault, struct kv_frame *out);
void tr_conn_reject(struct tr_conn *conn, uint64_t ticket,
                    int code);             /* best effort, once per ticket in a row */
void tr_conns_check(struct tr_node *node); /* time-outs; now and then */
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
void tr_listen_know(struct tr_node *node, const char *address); /* of a peer: its sockets come first */
void tr_listen_close(struct tr_node *node);                     /* after the connections */

#endif
