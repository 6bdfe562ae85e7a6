/* SPDX-License-Identifier: Apache-2.0 */
/* Moving KV bytes from one worker's arena into another's: what every transport offers, and nothing about
 * blocks of sequences.  The sender pushes pieces; the receiver places them by a ticket it gave out; only the
 * receiver's bitmap of pieces says what is there.
 *
 * A worker has one `struct tr_node`: a thread of its own that accepts data connections (TCP with TLS, and a
 * UNIX socket for shared memory), dials peers, and moves bytes.  All calls below are made from other threads
 * through its mailbox and return at once; what happened comes back as events, called ON THE TRANSPORT THREAD
 * (the owner forwards them to its own mailbox).
 *
 * Shared memory: the sender's arena is a sealed memfd; its descriptor crosses a UNIX socket once, the
 * receiver maps it read-only and copies each announced piece itself: one copy, and nobody but the receiver
 * ever writes the receiver's arena. A word per push in a shared control page says whether it is still valid;
 * the receiver looks AFTER copying, so what was copied from blocks given back meanwhile is thrown away (a
 * seqlock). TCP: payload goes straight into the arena, encrypted (TLS 1.3 PSK) unless configured otherwise,
 * then with a digest. Both ends of every data connection prove that they know auth_key before anything else
 * is said.
 *
 * RDMA: the sender's NIC writes straight into the arena, through queue pairs set up over a data connection
 * like those of TCP, which stays beside them for everything that is no payload.  What the receiver allows is
 * revoked before a ticket counts as closed.  When RDMA cannot be had, or fails on the way, the push goes on
 * over TCP under the same ticket, with the pieces that are missing; its owner sees nothing of it but the
 * time.
 *
 * The rule that prevents the worst bug: tr_close_ticket() is answered by TR_TICKET_CLOSED only when no byte
 * of that ticket can be written any more; only then may the owner give the blocks back. */
#ifndef TRANSFER_TRANSPORT_TRANSPORT_H
#define TRANSFER_TRANSPORT_TRANSPORT_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/event/strangers.h"

#define TR_MAX_TICKETS 4096 /* open at once */
#define TR_MAX_PUSHES  4096

#define TR_MAX_CONNECTIONS 8 /* of one kind to a peer */

struct tr_node;

struct tr_geometry { /* of an arena: [layer][block][piece_bytes]; a piece is one layer of one block */
    uint32_t n_layers;
    uint32_t n_blocks;
    size_t piece_bytes; /* at most 64 MiB */
};

enum tr_kind { TR_SHM, TR_TCP, TR_RDMA };

enum tr_arena_kind {
    TR_ARENA_HOST,  /* ordinary memory at arena.base */
    TR_ARENA_DMABUF /* a device's memory behind a dma-buf; this process cannot touch it, so only RDMA moves it
                     */
};

struct verbs; /* transfer/transport/verbs_priv.h */

enum tr_event_kind {
    TR_PIECES_ARRIVED,  /* receiver: progress; a later event says all an earlier one did, so they may be
                           dropped */
    TR_TICKET_COMPLETE, /* receiver: every piece is in memory and verified; nothing is written from here on */
    TR_TICKET_FAILED,   /* receiver: bad frame, or a data connection that carried it died; nothing more counts
                         */
    TR_TICKET_CLOSED,   /* receiver: answer to tr_close_ticket; the last event of a ticket */
    TR_PUSH_SENT,       /* sender: everything pushed so far left this process (not: arrived) */
    TR_PUSH_FAILED, /* sender: cannot connect, the connection is gone, or the receiver refused (fault); once
                     */
    TR_PUSH_STOPPED /* sender: answer to tr_stop_push: no byte is read or sent any more; the last event of a
                       push */
};

struct tr_event {
    enum tr_event_kind kind;
    uint64_t id;        /* ticket (receiver) or push (sender) */
    uint32_t n_pieces;  /* so far: verified (receiver), sent (sender) */
    uint32_t n_total;   /* of the ticket or push */
    uint32_t n_leading; /* receiver: the first so many indexes are there in all layers */
    uint64_t n_bytes;
    uint64_t elapsed_ns; /* first to last byte, for the rate */
    struct fault fault;  /* FAILED */
};

struct tr_opts {
    struct mem_region arena; /* borrowed; fd >= 0 for sending over shared memory */
    struct tr_geometry geometry;
    uint64_t layout;        /* KV layout fingerprint, compared on each data connection */
    const char *node;       /* our name, copied */
    const char *tcp_listen; /* numeric "127.0.0.1:0", "[::]:9200"; NULL: no TCP */
    /* Path of a UNIX socket; NULL: no shared memory.  Made with mode 0666, because the daemons of one host
     * run as different users; who may reach it is decided by the directory, who may use it by auth_key. */
    const char *unix_listen;
    SSL_CTX *tls_server; /* borrowed; NULL: TCP payload in plain text (only by explicit configuration) */
    SSL_CTX *tls_client;
    uint8_t auth_key[32];     /* cluster_key_derive(..., "kv", ...) */
    unsigned tcp_connections; /* per peer, at most TR_MAX_CONNECTIONS; 0: 2 */
    /* RDMA rails: "auto" (every port that has the address of tcp_listen), or a list "mlx5_0, mlx5_1:2,
     * mlx5_2@10.0.0.3" of device, port (1) and the rail's own address (that of tcp_listen).  NULL or "":
     * none.  No usable rail is no error here: tr_node_rdma_rails() tells. */
    const char *rdma_devices;
    const struct verbs *verbs;     /* NULL: the system's */
    uint64_t rdma_rest_ns;         /* how long a rail that failed towards a peer rests first; 0: 30 s */
    enum tr_arena_kind arena_kind; /* DMABUF: arena.base is the address within the device, fds below */
    int dmabuf_fd;
    uint64_t dmabuf_offset;
    uint64_t io_timeout_ns; /* a connection with work and no progress for so long is dead; 0: 10 s */
    void (*on_event)(void *arg, const struct tr_event *event); /* on the transport thread; must not block */
    void *on_event_arg;
};

struct tr_counts {                       /* since the start; any thread */
    uint64_t bytes_sent, bytes_received; /* payload */
    uint64_t pieces_sent, pieces_received;
    uint64_t connections_made, connections_accepted, connections_failed; /* failed: ended with an error */
    uint64_t frames_rejected;                                            /* for tickets unknown or given up */
    uint64_t copies_revoked; /* shared memory: copied, then found given back */
    uint64_t rdma_failures;  /* connections whose queue pairs failed, or could not be had: TCP took over */
    uint32_t connections_open;
    uint64_t tcp_evicted[STRANGER_N_ENDS]; /* closed before they authenticated, by port and reason */
    uint64_t unix_evicted[STRANGER_N_ENDS];
};

/* Whether a list of rails (tr_opts.rdma_devices) can be read: E_FORMAT; and, if one is needed, whether there
 * is any RDMA device: E_UNSUPPORTED, E_NOT_FOUND. */
int tr_rails_check(const char *devices, bool is_needed, struct fault *fault);
int tr_node_new(const struct tr_opts *opts, struct fault *fault,
                struct tr_node **out);                       /* starts the thread */
void tr_node_free(struct tr_node *node);                     /* stops and joins it; no events after */
const char *tr_node_tcp_address(const struct tr_node *node); /* as bound, "127.0.0.1:41234"; "" none */
const char *tr_node_unix_path(const struct tr_node *node);   /* "" none */
void tr_node_counts(const struct tr_node *node, struct tr_counts *out);
/* What there is of RDMA, one line of text for people, fixed at start: "rxe0:1 10.9.0.1 MTU 4096, windows", or
 * why there is none.  Any thread. */
const char *tr_node_rdma_text(const struct tr_node *node);
unsigned tr_node_rdma_rails(const struct tr_node *node); /* up now; any thread */
unsigned
tr_node_rdma_opened(const struct tr_node *node); /* rails that were usable at the start; any thread */

/* All calls below: E_FULL when the transport thread is far behind (nothing was done; try again), E_NOMEM.
 * Closing and stopping have room reserved in its mailbox, so that they fail only when it is hung. */

/* ---- receiver ---- */

/* Lets whoever knows the ticket (choose it at random) write: piece (layer, i) goes to block blocks[i], once.
 * The array is copied.  E_INVAL (a block beyond the arena, none at all).  A ticket that is open already, or
 * one too many, fails with TR_TICKET_FAILED. */
int tr_open_ticket(struct tr_node *node, uint64_t ticket, const uint32_t *blocks, uint32_t n_blocks);
/* Always answered by TR_TICKET_CLOSED, also for a ticket that is not open. */
int tr_close_ticket(struct tr_node *node, uint64_t ticket);

/* A peer that may send to this node lives at that numeric address ("10.0.0.7:41234"; the port does not
 * matter): when strangers flood the TCP port, sockets from there come first. */
int tr_know_peer(struct tr_node *node, const char *address);

/* ---- sender ---- */

struct tr_target { /* where a push goes; text is copied */
    enum tr_kind kind;
    const char *address; /* numeric TCP address (also for RDMA) or UNIX path of the peer's tr_node */
    uint64_t ticket;
};
/* Begins a push; connects if there is no connection yet.  push: the caller's id, unique.  n_pieces: how many
 * will be pushed in all (layers x blocks).  E_INVAL. */
int tr_start_push(struct tr_node *node, uint64_t push, const struct tr_target *target, uint32_t n_pieces);
/* Pieces (layer, first_index .. first_index + n) of the ticket from our blocks[0..n); blocks stay unchanged
 * until TR_PUSH_STOPPED.  E_INVAL. */
int tr_push(struct tr_node *node, uint64_t push, uint32_t layer, uint32_t first_index, const uint32_t *blocks,
            uint32_t n);
/* Ends a push, finished or not; always answered by TR_PUSH_STOPPED, after which the blocks may change. */
int tr_stop_push(struct tr_node *node, uint64_t push);

#endif
