/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a transport node.  All of it belongs to the transport thread, unless a comment says
 * otherwise.
 *
 *     tr_node.c    the thread, its mailbox, the calls of transport.h
 *     tr_ticket.c  receiver: which peer may write which blocks, and which pieces have arrived
 *     tr_push.c    sender: the pieces to send, their peer, and the connection that sends them next
 *     tr_conn.c    the life of a data connection: dial, accept, prove, die
 *     tr_stream.c  bytes in and out of a socket, with or without TLS
 *     tr_tcp.c     READY connections of kind TCP
 *     tr_shm.c     READY connections of kind shared memory
 *     tr_rdma*.c   READY connections of kind RDMA (see tr_rdma_priv.h) */
#ifndef TRANSFER_TRANSPORT_TR_PRIV_H
#define TRANSFER_TRANSPORT_TR_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hashmap.h"
#include "base/mailbox.h"
#include "transfer/transport/tr_conn_priv.h"
#include "transfer/transport/transport.h"

#define TR_MAX_ACCEPTED  1024
#define TR_MAX_STRANGERS 256               /* accepted, not yet proved; at most a quarter from one address */
#define TR_FRAME_BYTES   ((size_t)1 << 20) /* payload of a frame; more only if one piece is longer */
#define TR_TURN_BYTES    ((size_t)8 << 20) /* moved per connection before other connections get a turn */
#define TR_SCRATCH_BYTES ((size_t)64 << 10)
#define TR_CONTROL_SLOTS TR_MAX_PUSHES

struct tr_control;

/* ---- receiver: tr_ticket.c ---- */

enum tr_ticket_state {
    TR_TICKET_IS_OPEN,  /* pieces may arrive */
    TR_TICKET_IS_WHOLE, /* all pieces arrived; accepts no more */
    TR_TICKET_IS_BROKEN /* failed; accepts no more */
};

struct tr_ticket {
    uint64_t id;
    enum tr_ticket_state state;
    uint32_t n_blocks;
    uint32_t *blocks;   /* [n_blocks] ids in the own arena */
    uint64_t *claimed;  /* bit layer * n_blocks + index: arrived, or being written by one frame */
    uint32_t *n_layers; /* [n_blocks] number of layers that arrived for each index */
    uint32_t n_arrived, n_leading;
    uint64_t n_bytes, first_ns, last_ns;
    struct tr_conn *carriers[TR_MAX_CONNECTIONS];
    unsigned n_carriers;
    struct list dirty;   /* in node->dirty_tickets: has progress not yet reported */
    unsigned n_writers;  /* connections that can write it by RDMA: CLOSED waits for them */
    struct list closing; /* in node->closing_tickets: its owner closed it, but a connection still holds it */
};

void tr_ticket_open(struct tr_node *node, uint64_t id, uint32_t *blocks,
                    uint32_t n_blocks); /* takes blocks */
void tr_ticket_close(struct tr_node *node, uint64_t id);
/* conn is about to write pieces (layer, first..first+n). E_NOT_FOUND, E_CLOSED, E_EXISTS, E_LIMIT: discard
 * the payload. E_PROTO: a correct peer never sends this. */
int tr_ticket_claim(struct tr_node *node, struct tr_conn *conn, const struct kv_frame_data *run,
                    struct fault *fault, struct tr_ticket **out);
/* Ends a claim. is_good: the pieces are written, count them. */
void tr_ticket_end_claim(struct tr_node *node, struct tr_ticket *ticket, const struct kv_frame_data *run,
                         bool is_good);
/* Finds an open ticket; else E_NOT_FOUND or E_CLOSED. */
int tr_ticket_find(struct tr_node *node, uint64_t id, struct tr_ticket **out);
/* Lets conn's peer write the ticket without asking, until tr_ticket_let_go().  E_LIMIT. */
int tr_ticket_hold(struct tr_ticket *ticket, struct tr_conn *conn);
void tr_ticket_let_go(struct tr_node *node, struct tr_ticket *ticket); /* may free the ticket */
bool tr_ticket_has(const struct tr_ticket *ticket, uint32_t layer, uint32_t index);
uint8_t *tr_ticket_piece(const struct tr_node *node, const struct tr_ticket *ticket, uint32_t layer,
                         uint32_t index);
void tr_tickets_lost_connection(struct tr_node *node, const struct tr_conn *conn, const struct fault *fault);
/* For a conn whose pieces are all complete or never begun: its end then fails no ticket. */
void tr_tickets_forget_carrier(struct tr_node *node, const struct tr_conn *conn);
void tr_tickets_report(struct tr_node *node); /* reports progress of all dirty tickets */
void tr_tickets_free(struct tr_node *node);

/* ---- sender: tr_push.c ---- */

struct tr_job { /* the blocks of one tr_push call, in a push's queue */
    struct list node;
    uint32_t layer, first, n, n_taken;
    uint32_t blocks[];
};

struct tr_peer { /* a destination */
    struct list node;
    enum tr_kind kind;
    char address[128];
    struct list conns;
    struct list pushes;
    unsigned used_indexes; /* bit i: index i is taken by a connection */
};

struct tr_push {
    struct list node; /* in peer->pushes; the first push with jobs is served next */
    struct tr_peer *peer;
    uint64_t id, ticket;
    uint32_t n_total, n_given, n_sent, n_flying; /* in pieces; flying: in a frame on some connection */
    uint64_t n_bytes, first_ns, last_ns;
    struct list jobs;
    bool is_failed;
    bool is_held;           /* a NIC may read its blocks, so STOPPED waits until the connection lets it go */
    bool is_stopping;       /* its owner stopped it, but it is still held; no longer in the table */
    struct rdma_push *rdma; /* RDMA: the connection's state for this push */
    unsigned carriers;      /* bit i: connection i of the peer carried some of its pieces */
    uint32_t slot;          /* slot in the control page of shared memory */
    uint64_t generation;
};

struct tr_batch { /* the pieces of one frame */
    struct tr_push *push;
    uint32_t layer, first, n;
    uint32_t blocks[KV_FRAME_MAX_PIECES];
};

void tr_push_start(struct tr_node *node, uint64_t id, const struct tr_target *target, uint32_t n_pieces);
void tr_push_give(struct tr_node *node, uint64_t id, struct tr_job *job); /* takes job */
void tr_push_stop(struct tr_node *node, uint64_t id);
bool tr_push_take(struct tr_node *node, struct tr_conn *conn,
                  struct tr_batch *out); /* false: nothing to send */
/* Like tr_push_take, for one push; for connections that choose the order of pushes themselves. */
bool tr_push_take_of(struct tr_node *node, struct tr_conn *conn, struct tr_push *push, struct tr_batch *out);
void tr_push_sent(struct tr_node *node, const struct tr_batch *batch);
void tr_push_fail(struct tr_node *node, struct tr_push *push, const struct fault *fault);
void tr_push_let_go(struct tr_node *node, struct tr_push *push); /* may free the push */
/* Moves a push to TCP under the same ticket. jobs (taken; list of struct tr_job): the pieces that were
 * given but did not arrive. n_there: number of pieces that arrived. */
void tr_push_over_tcp(struct tr_node *node, struct tr_push *push, struct list *jobs, uint32_t n_there);
void tr_push_rejected(struct tr_node *node, struct tr_peer *peer, uint64_t ticket, int code);
void tr_peer_wake(struct tr_node *node, struct tr_peer *peer);
void tr_peer_lost_connection(struct tr_node *node, struct tr_conn *conn, const struct fault *fault);
/* Opens as many connections as the peer should have. Fails only if there is none at all. */
int tr_peer_connect(struct tr_node *node, struct tr_peer *peer, struct fault *fault);
void tr_pushes_free(struct tr_node *node);

/* ---- keys: tr_keys.c ---- */

struct tr_access {                    /* the argument of tr_node_set_access() */
    SSL_CTX *tls_server, *tls_client; /* referenced */
    struct tr_keys keys;
};

struct tr_access *tr_access_new(SSL_CTX *tls_server, SSL_CTX *tls_client, const struct tr_keys *keys);
void tr_access_free(struct tr_access *access);                     /* accepts NULL */
void tr_keys_take(struct tr_node *node, struct tr_access *access); /* takes access */
int tr_keys_prove(const struct tr_conn *conn, uint8_t out[KV_FRAME_PROOF_BYTES]);
/* True: the peer's PROOF is right; notes its key. */
bool tr_keys_accept(struct tr_conn *conn, const uint8_t proof[KV_FRAME_PROOF_BYTES]);
void tr_keys_check(struct tr_node *node); /* retires connections; called periodically */

/* ---- shared memory's control page: tr_shm.c ---- */

int tr_control_open(struct tr_control **out);
void tr_control_close(struct tr_control *control);
void tr_control_revoke(struct tr_control *control, uint32_t slot);

/* ---- RDMA: tr_rdma*.c, or tr_rdma_none.c where libibverbs is missing ---- */

struct tr_rdma;

/* Opens the rails of opts.rdma_devices. Succeeds without a usable rail. E_FORMAT, E_NOMEM. */
int tr_rdma_open(struct tr_node *node, struct fault *fault);
/* After the connections are freed. */
void tr_rdma_close(struct tr_node *node);
void tr_rdma_check(struct tr_node *node); /* called periodically */

/* ---- the node ---- */

struct tr_totals { /* struct tr_counts, readable by other threads */
    _Atomic uint64_t bytes_sent, bytes_received, pieces_sent, pieces_received;
    _Atomic uint64_t connections_made, connections_accepted, connections_failed, frames_rejected,
        copies_revoked, rdma_failures;
    _Atomic uint64_t strangers_evicted[2][STRANGER_N_ENDS]; /* [0]: TCP, [1]: UNIX */
    _Atomic uint32_t rdma_rails_up;
    _Atomic uint32_t connections_open;
};

struct tr_node {
    struct tr_access *access; /* owns the objects behind opts.tls_* and opts.keys */
    struct tr_opts opts;      /* its strings point into the fields below */
    char name[KV_FRAME_NODE_BYTES];
    char tcp_address[64];
    char unix_path[108];
    int arena_fd; /* read-only descriptor of the arena, for peers; -1: none */
    struct tr_control *control;
    struct ev_loop *loop;
    struct mailbox *commands;
    atomic_uint n_commands;
    struct ev_fd *commands_watch;
    struct ev_timer *check_timer;
    struct tr_listener tcp, unix_;
    struct hashmap *tickets; /* id -> struct tr_ticket */
    struct hashmap *pushes;  /* id -> struct tr_push */
    struct list dirty_tickets, closing_tickets, peers, conns, dead_conns;
    struct tr_rdma *rdma; /* NULL: not configured, or built without RDMA */
    char rdma_text[512];
    unsigned n_rdma_opened;
    uint8_t *scratch; /* [TR_SCRATCH_BYTES] sink for payload to discard */
    struct tr_totals totals;
    pthread_t thread;
    bool has_thread;
};

void tr_node_event(struct tr_node *node, const struct tr_event *event);
/* Runs the waiting commands. Frees no connection. */
void tr_node_catch_up(struct tr_node *node);
size_t tr_node_offset(uint32_t n_blocks, size_t piece_bytes, uint32_t layer, uint32_t block);

#endif
