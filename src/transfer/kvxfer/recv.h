/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end of one transfer. It grants, waits for every piece and the first token, then closes the
 * ticket. It keeps the destination blocks leased for as long as the transport may write them.
 *
 *     GRANTED --every piece--> COMPLETE --first token--> CLOSING --closed--> CLOSED
 *        |                        |                         ^
 *        +---- cancelled, peer lost, failed, timed out -----+
 *
 * on_arrived comes once, after the transport can write no more bytes. It reports the whole prompt and its
 * first token, or only the leading blocks that are complete. on_closed is the last call: the owner may then
 * free the object. Only the transport's bitmap of pieces decides which blocks arrived. Engine thread only. */
#ifndef TRANSFER_KVXFER_RECV_H
#define TRANSFER_KVXFER_RECV_H

#include "cache/kv/pool.h"
#include "transfer/kvxfer/kvxfer.h"
#include "transfer/transport/transport.h"

struct kvxfer_recv;

struct kvxfer_arrival {
    uint32_t n_blocks; /* leading blocks that are present, skipped blocks included */
    bool is_whole;     /* every block is present, and first is set (a prefix fetch has no first) */
    struct kvxfer_first first;
    bool is_finished;
    int code;                     /* the reason why it is not whole */
    uint64_t n_bytes, elapsed_ns; /* time from first to last byte; most of it overlaps the prefill */
    uint64_t exposed_ns;          /* if whole: time that the answer waited for KV after PREFILL_DONE */
};

struct kvxfer_recv_calls {
    void (*message)(void *arg, const struct kvxfer_message *message); /* to the sender */
    void (*on_arrived)(void *arg, const struct kvxfer_arrival *arrival);
    void (*on_closed)(void *arg);
};

struct kvxfer_recv_opts {
    struct kv_pool *pool;                  /* borrowed */
    struct tr_node *transport;             /* borrowed */
    const struct kvxfer_recv_calls *calls; /* borrowed; called on the engine thread */
    void *arg;
    uint64_t transfer;         /* the sender's transfer id */
    uint64_t ticket;           /* chosen here, at random */
    const kv_block_id *blocks; /* the prompt's block table; blocks from skip_blocks on are FILLING, and only
                                * this transfer writes them */
    uint32_t n_blocks;
    uint32_t skip_blocks; /* leading blocks that this worker has cached */
    uint32_t n_tokens;
    enum tr_kind kind;      /* the transport that carries the pieces */
    uint32_t head_worth_us; /* for the GRANT */
    bool is_fetch;          /* a prefix fetch: whole when every piece is there, no first token follows */
    uint64_t timeout_ns; /* give up after this time without progress; 30 times as long before the first token,
                          * because the sender may compute other prompts first */
};

/* Leases the blocks, opens the ticket and sends GRANT. E_INVAL (no block to receive), E_NOMEM, E_FULL. */
int kvxfer_recv_new(const struct kvxfer_recv_opts *opts, uint64_t now_ns, struct kvxfer_recv **out);
void kvxfer_recv_free(struct kvxfer_recv *recv);

/* Ends the transfer: the sequence ended (is_gone:
 * do not call on_arrived), or this worker computes the prompt itself. */
void kvxfer_recv_cancel(struct kvxfer_recv *recv, int code, bool is_gone);
void kvxfer_recv_peer_lost(struct kvxfer_recv *recv);
void kvxfer_recv_message(struct kvxfer_recv *recv, const struct kvxfer_message *message, uint64_t now_ns);
void kvxfer_recv_event(struct kvxfer_recv *recv, const struct tr_event *event, uint64_t now_ns);
void kvxfer_recv_tick(struct kvxfer_recv *recv, uint64_t now_ns);

#endif
