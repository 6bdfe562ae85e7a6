/* SPDX-License-Identifier: Apache-2.0 */
/* The transport moves KV bytes from one worker's arena into another worker's arena. It knows pieces and
 * tickets, and nothing about sequences. The receiver opens a ticket for some of its blocks. The sender
 * pushes pieces under that ticket. Only the receiver's bitmap of pieces decides which pieces arrived.
 *
 * A worker has one `struct tr_node`. Its thread accepts data connections (TCP with TLS, and a UNIX socket
 * for shared memory), dials peers and moves bytes. Other threads make all calls below; a call posts to the
 * node's mailbox and returns at once. Results come back as events ON THE TRANSPORT THREAD; the owner
 * forwards them to its own mailbox.
 *
 * Both ends of every data connection prove that they know one of opts.keys before they exchange anything else.
 *
 * TCP: payload goes straight into the arena. It is encrypted (TLS 1.3, authenticated as links are); if the configuration turns TLS
 * off, a digest protects it instead.
 *
 * Shared memory: the sender's arena is a sealed memfd. Its descriptor crosses a UNIX socket once. The
 * receiver maps it read-only and copies each announced piece itself, so there is one copy and only the
 * receiver writes its own arena. A generation per push in a shared control page says whether the push is
 * still valid. The receiver reads it AFTER copying and discards copies from blocks that were given back
 * meanwhile (a seqlock).
 *
 * RDMA: the sender's NIC writes straight into the arena. A data connection like those of TCP sets up the
 * queue pairs and carries everything except payload. The receiver revokes remote access before a ticket
 * counts as closed. If RDMA is unavailable or fails, the push continues over TCP under the same ticket
 * with the missing pieces; its owner only sees the delay.
 *
 * More than 15 functions: both ends of a transfer, and one getter for each fact about the node.
 *
 * The most important rule: TR_TICKET_CLOSED answers tr_close_ticket() only when no byte of that ticket can
 * be written any more. Only then may the owner give the blocks back. */
#ifndef TRANSFER_TRANSPORT_TRANSPORT_H
#define TRANSFER_TRANSPORT_TRANSPORT_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/event/strangers.h"

#define TR_MAX_TICKETS 4096 /* open at the same time */
#define TR_MAX_PUSHES  4096

#define TR_MAX_CONNECTIONS 8 /* per peer and kind */

struct tr_node;

struct tr_geometry { /* arena layout: [layer][block][piece_bytes]; a piece is one layer of one block */
    uint32_t n_layers;
    uint32_t n_blocks;
    size_t piece_bytes; /* at most 64 MiB */
};

/* X(name, text, socket): the text stands in configuration, grants and logs.  KV_FRAME_name is the number on the wire
 * (proto/kv_frame.h); tr_text_ops has the operations and what the kind needs (tr_conn_priv.h).  socket: SHM or TCP, the
 * listener (UNIX or TCP) that its connections are made to.  A kind that is not the kind of its socket asks for itself in
 * the dialler's HELLO, and falls back to the kind of its socket.
 * How to change it: docs/changes-worker.md, "A transport of KV". */
#define TR_KINDS(X)                                                                                          \
    X(SHM, shm, SHM)                                                                                         \
    X(TCP, tcp, TCP)                                                                                         \
    X(RDMA, rdma, TCP)
enum tr_kind {
#define X(name, text, socket) TR_##name,
    TR_KINDS(X)
#undef X
};

/* The kind of its socket: TR_SHM or TR_TCP. */
static inline enum tr_kind tr_kind_socket(enum tr_kind kind)
{
    switch (kind) {
#define X(name, text, socket)                                                                                \
    case TR_##name:                                                                                          \
        return TR_##socket;
        TR_KINDS(X)
#undef X
    }
    return kind;
}

enum tr_arena_kind {
    TR_ARENA_HOST,  /* ordinary memory at arena.base */
    TR_ARENA_DMABUF /* device memory behind a dma-buf; only RDMA moves it, this process cannot touch it */
};

struct verbs; /* transfer/transport/verbs_priv.h */

enum tr_event_kind {
    TR_PIECES_ARRIVED,  /* receiver: progress; cumulative, so the owner may drop all but the last */
    TR_TICKET_COMPLETE, /* receiver: every piece is in memory and verified; no later write */
    /* Receiver: bad frame, or a data connection that carried the ticket died; nothing more counts. */
    TR_TICKET_FAILED,
    TR_TICKET_CLOSED, /* receiver: answer to tr_close_ticket; the last event of a ticket */
    /* Sender: every piece pushed so far left this process (it may not have arrived). */
    TR_PUSH_SENT,
    /* Sender: cannot connect, connection lost, or refused by the receiver (fault); once. */
    TR_PUSH_FAILED,
    TR_PUSH_STOPPED /* sender: answer to tr_stop_push: no byte is read or sent any more; the last event of a
                       push */
};

struct tr_event {
    enum tr_event_kind kind;
    uint64_t id;        /* ticket (receiver) or push (sender) */
    uint32_t n_pieces;  /* so far: verified (receiver), sent (sender) */
    uint32_t n_total;   /* of the ticket or push */
    uint32_t n_leading; /* receiver: indexes [0, n_leading) are present in all layers */
    uint64_t n_bytes;
    uint64_t elapsed_ns; /* time from first to last byte, for the rate */
    struct fault fault;  /* FAILED: the reason */
};

#define TR_KEY_BYTES 32

struct tr_keys { /* cluster_key_derive(..., "kv", ...) of each accepted cluster key */
    uint8_t current[TR_KEY_BYTES];
    uint8_t second[TR_KEY_BYTES]; /* accepted too, with has_second */
    bool has_second;
};

struct tr_opts {
    struct mem_region arena; /* borrowed; fd >= 0 is needed to send over shared memory */
    struct tr_geometry geometry;
    uint64_t layout;        /* KV layout fingerprint, compared on each data connection */
    const char *node;       /* this worker's name, copied */
    const char *tcp_listen; /* numeric "127.0.0.1:0", "[::]:9200"; NULL: no TCP */
    /* Path of a UNIX socket; NULL: no shared memory. It gets mode 0666 because the daemons of one host run
     * as different users. The directory decides who may reach it; keys decide who may use it. */
    const char *unix_listen;
    /* Referenced; NULL: TCP payload in plain text (only if the configuration says so). */
    SSL_CTX *tls_server;
    SSL_CTX *tls_client;
    struct tr_keys keys;
    unsigned tcp_connections; /* per peer, at most TR_MAX_CONNECTIONS; 0 means 2 */
    /* RDMA rails: "auto" (every port that has the address of tcp_listen), or a list of device, port and
     * rail address such as "mlx5_0, mlx5_1:2, mlx5_2@10.0.0.3". The port defaults to 1, the address to
     * that of tcp_listen. NULL or "": no RDMA. The node also starts when no rail is usable:
     * tr_node_rdma_rails() tells. */
    const char *rdma_devices;
    const struct verbs *verbs; /* NULL: libibverbs of the system */
    uint64_t rdma_rest_ns;     /* first rest of a rail after a failure towards a peer; 0 means 30 s */
    /* DMABUF: arena.base is an address inside the device; the descriptors are below. */
    enum tr_arena_kind arena_kind;
    int dmabuf_fd;
    uint64_t dmabuf_offset;
    /* A connection with work and no progress for this long is dead; 0 means 10 s. */
    uint64_t io_timeout_ns;
    /* Called on the transport thread; must not block. */
    void (*on_event)(void *arg, const struct tr_event *event);
    void *on_event_arg;
};

struct tr_counts {                       /* counted since the start; any thread */
    uint64_t bytes_sent, bytes_received; /* payload */
    uint64_t pieces_sent, pieces_received;
    /* Failed: connections that ended with an error. */
    uint64_t connections_made, connections_accepted, connections_failed;
    /* Frames for tickets that are unknown, failed or closed. */
    uint64_t frames_rejected;
    /* Shared memory: pieces discarded because their push ended during the copy. */
    uint64_t copies_revoked;
    /* Connections whose queue pairs failed or could not be made; TCP took over. */
    uint64_t rdma_failures;
    uint32_t connections_open;
    /* Strangers closed before they authenticated, by port and reason. */
    uint64_t tcp_evicted[STRANGER_N_ENDS];
    uint64_t unix_evicted[STRANGER_N_ENDS];
};

/* Checks a list of rails (tr_opts.rdma_devices). E_FORMAT: the list cannot be parsed. If is_needed, also
 * checks that an RDMA device exists: E_UNSUPPORTED, E_NOT_FOUND. */
int tr_rails_check(const char *devices, bool is_needed, struct fault *fault);
int tr_node_new(const struct tr_opts *opts, struct fault *fault,
                struct tr_node **out); /* starts the thread */
/* Stops and joins the thread; no events after it. */
void tr_node_free(struct tr_node *node);
/* The bound address, "127.0.0.1:41234"; "": no TCP. */
const char *tr_node_tcp_address(const struct tr_node *node);
const char *tr_node_unix_path(const struct tr_node *node); /* "": no shared memory */
void tr_node_counts(const struct tr_node *node, struct tr_counts *out);
/* RDMA in one line for people, fixed at start: "rxe0:1 10.9.0.1 MTU 4096, windows", or the reason why
 * there is no rail. Any thread. */
const char *tr_node_rdma_text(const struct tr_node *node);
unsigned tr_node_rdma_rails(const struct tr_node *node); /* rails that are up now; any thread */
unsigned
tr_node_rdma_opened(const struct tr_node *node); /* rails that were usable at the start; any thread */

/* All calls below fail with E_FULL when the transport thread is far behind (nothing was done; try again),
 * or with E_NOMEM. The mailbox reserves room for closing and stopping, so these fail only when the thread
 * hangs. */

/* New connections use these from now on. Connections of peers whose key was dropped end once they are idle. The
 * SSL_CTX are referenced; they must be NULL if and only if they were NULL at the start. */
int tr_node_set_access(struct tr_node *node, SSL_CTX *tls_server, SSL_CTX *tls_client,
                       const struct tr_keys *keys);

/* ---- receiver ---- */

/* Opens a ticket for blocks[0..n): piece (layer, i) is written once, to block blocks[i]. Every peer that
 * knows the ticket may write, so choose it at random. The array is copied. E_INVAL: no block, or a block
 * beyond the arena. A ticket that is already open, or one too many, fails later with TR_TICKET_FAILED. */
int tr_open_ticket(struct tr_node *node, uint64_t ticket, const uint32_t *blocks, uint32_t n_blocks);
/* TR_TICKET_CLOSED always answers, even if the ticket is not open. */
int tr_close_ticket(struct tr_node *node, uint64_t ticket);

/* A peer that may send to this node has this numeric address ("10.0.0.7:41234"; the port does not matter).
 * When strangers flood the TCP port, sockets from this address have priority. */
int tr_know_peer(struct tr_node *node, const char *address);

/* ---- sender ---- */

struct tr_target { /* the destination of a push; the text is copied */
    enum tr_kind kind;
    const char *address; /* numeric TCP address (also for RDMA), or UNIX path, of the peer's tr_node */
    uint64_t ticket;
};
/* Begins a push; connects if there is no connection yet. push_id: chosen by the caller, unique. n_pieces: total
 * number of pieces that will be pushed (layers x blocks). E_INVAL. */
int tr_start_push(struct tr_node *node, uint64_t push_id, const struct tr_target *target, uint32_t n_pieces);
struct tr_pieces { /* pieces (layer, first_index .. first_index + n) of a ticket */
    uint32_t layer, first_index;
    const uint32_t *blocks; /* [n] of the own arena; borrowed for the call */
    uint32_t n;
};
/* Pushes pieces from the own arena.
 * The blocks stay unchanged until TR_PUSH_STOPPED. E_INVAL. */
int tr_push(struct tr_node *node, uint64_t push_id, const struct tr_pieces *pieces);
/* Ends a push, finished or not. TR_PUSH_STOPPED always answers; after it the blocks may change. */
int tr_stop_push(struct tr_node *node, uint64_t push_id);

#endif
