/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of RDMA. Everything here belongs to the transport thread.
 *
 *     tr_rdma.c          the connection kind: frames between the two ends once it is READY
 *     tr_rdma_connect.c  how it becomes READY: pair the rails, connect the queue pairs
 *     tr_rdma_send.c     sender: pushes, chunks, posting, completions
 *     tr_rdma_recv.c     receiver: slots (tickets handed out), immediates, credits, stopping
 *     tr_rdma_fall.c     the end of the queue pairs, and the move to TCP
 *     tr_rdma_qp.c       one queue pair: make, connect, poll, kill
 *     tr_rdma_mr.c       the arena as registered regions; windows over them
 *     tr_rdma_rail.c     one port of a NIC: GID by address, registration, completion and event descriptors
 *     tr_rdma_rails.c    all rails of a node: the configured list, rest after failures
 *     verbs_system.c   libibverbs behind the table of verbs_priv.h
 *
 * Rails have no threads of their own. Payload bypasses the processor, so a rail costs one posted list and
 * one completion per chunk of about 1 MiB: about 100,000 a second at 100 GB/s. The transport thread owns
 * tickets and pushes, and a second thread would have to ask it for each of them. So each rail's completion
 * descriptor lives in the transport thread's loop. After a wake-up the thread polls the rail until it was
 * silent for TR_RAIL_SPIN_NS, then arms it again. */
#ifndef TRANSFER_TRANSPORT_TR_RDMA_PRIV_H
#define TRANSFER_TRANSPORT_TR_RDMA_PRIV_H

#include "transfer/transport/tr_rdma_qp_priv.h"

/* ---- tr_rdma.c and its halves ---- */

struct rdma_pair {          /* a local rail paired with a rail of the peer */
    struct rdma_rail *rail; /* NULL: unused */
    struct rdma_qp *qps[TR_RDMA_QPS];
    unsigned n_qps;
    struct kv_frame_rail theirs;
    struct kv_frame_region *regions; /* sender: [theirs.n_regions] */
    unsigned n_regions;              /* regions received so far */
    bool has_answer;
};

enum rdma_slot_state { RDMA_SLOT_FREE, RDMA_SLOT_OPEN, RDMA_SLOT_STOPPING };

struct rdma_slot {
    enum rdma_slot_state state;
    uint64_t ticket_id;
    struct tr_ticket *ticket; /* held; NULL if FREE */
    uint32_t n_blocks, n_per_chunk, n_groups, n_chunks;
    uint64_t deadline_ns; /* STOPPING: when to give up waiting */
};

enum rdma_push_state {
    RDMA_ASKED,   /* waits for SLOT */
    RDMA_OPEN,    /* chunks may be written */
    RDMA_STOPPED, /* its push is over; waits for the posted requests */
    RDMA_WHICH    /* the queue pairs are dead; waits for HAVE */
};

struct rdma_push {
    struct list node; /* side->pushes */
    struct list due;  /* in side->due while it has chunks to post */
    enum rdma_push_state state;
    struct rdma_side *side;
    struct tr_push *push; /* held */
    uint64_t ticket;
    uint32_t slot, n_layers, n_blocks, n_per_chunk, n_groups, n_chunks;
    uint32_t *there;   /* [n_blocks] the receiver's block ids */
    uint32_t *source;  /* [n_layers][n_blocks] block ids here; UINT32_MAX: not given yet */
    uint16_t *n_given; /* [n_chunks] number of its pieces that were given */
    uint32_t *ready;   /* [n_chunks] chunks in the order in which they became whole */
    uint32_t n_ready, n_posted, n_done;
};

struct rdma_side { /* the RDMA state of one end of a connection */
    struct list undead;
    struct tr_node *node;
    /* NULL: the connection is gone, but the device still has its queue pairs (undead). */
    struct tr_conn *conn;
    bool is_dialler, is_dead; /* dead: no queue pair is left */
    bool is_mute;             /* the socket accepts no more: the connection is lost */
    bool is_broken;           /* a queue pair failed: the next step ends all of them */
    uint8_t broken_rail;      /* 1 + index of the failed pair; 0: no pair failed */
    struct fault fault;
    struct rdma_pair pairs[KV_RDMA_MAX_RAILS];
    unsigned n_pairs, n_answered;
    struct kv_frame payload_of; /* header of the frame whose payload is being read */
    uint8_t *payload;
    size_t payload_bytes, payload_at;
    /* sender */
    struct list pushes, due;
    /* receiver */
    struct rdma_slot *slots; /* [KV_RDMA_MAX_SLOTS], made with the first ASK */
    uint32_t *free_slots;    /* a ring: each slot rests as long as possible before reuse */
    uint32_t first_free, n_free;
    struct hashmap *by_ticket; /* ticket -> struct rdma_slot */
    unsigned n_stopping;
    struct ev_timer *stop_timer;
};

/* tr_rdma_connect.c */
int rdma_connect(struct tr_conn *conn, struct fault *fault); /* SHARING: 1: done, 0: wait */

/* tr_rdma_rails.c */
bool rdma_may_reach(const struct tr_node *node, const char *peer); /* a rail is up and not at rest */
void rdma_rest_all(struct tr_node *node, const char *peer);        /* the peer refused to pair rails */

/* tr_rdma_send.c */
/* Takes work of the peer's pushes: asks for tickets, files pieces. */
void rdma_send_take(struct rdma_side *side);
void rdma_send_post(struct rdma_side *side); /* posts due chunks while there is room */
void rdma_send_done(struct rdma_qp *qp);     /* the oldest flight of the queue pair is complete */
int rdma_send_on_slot(struct rdma_side *side, const struct kv_frame_slot *slot, const uint8_t *ids,
                      struct fault *fault);
void rdma_send_on_stop(struct rdma_side *side, uint64_t ticket);
void rdma_send_forget(struct rdma_side *side, const struct tr_push *push);
bool rdma_send_is_busy(const struct rdma_side *side);
/* Skips pushes that are stopping. */
struct rdma_push *rdma_send_find(struct rdma_side *side, uint64_t ticket);
/* No request reads its blocks any more; lets the push go. */
void rdma_push_end(struct rdma_side *side, struct rdma_push *rdma_push);
void rdma_push_free(struct rdma_push *rdma_push);

/* tr_rdma_recv.c */
int rdma_recv_on_ask(struct rdma_side *side, uint64_t ticket, struct fault *fault);
int rdma_recv_on_which(struct rdma_side *side, uint64_t ticket, struct fault *fault);
void rdma_recv_on_stopped(struct rdma_side *side, uint64_t ticket);
void rdma_recv_arrived(struct rdma_qp *qp, uint32_t immediate);
void rdma_recv_credit(struct rdma_qp *qp); /* posts receives again, and periodically tells the sender */
void rdma_recv_forget(struct rdma_side *side, const struct tr_ticket *ticket);
void rdma_recv_let_all_go(struct rdma_side *side);

/* tr_rdma_fall.c */
/* False: the device did not end all queue pairs; call again. */
bool rdma_kill_all(struct rdma_side *side);
int rdma_fall(struct rdma_side *side,
              struct fault *fault); /* ends the queue pairs and starts to move the pushes to TCP */
int rdma_fall_on_have(struct rdma_side *side, const struct kv_frame_have *have, const uint8_t *bits,
                      struct fault *fault);
void rdma_lost(struct tr_conn *conn);
void rdma_side_free(struct rdma_side *side);

/* tr_rdma.c; if it cannot send the frame, it breaks the side */
int rdma_send_frame(struct rdma_side *side, const struct kv_frame *frame);
int rdma_send_frame_with(struct rdma_side *side, const struct kv_frame *frame, struct bytes payload);

#endif
