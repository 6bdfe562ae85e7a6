/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end of one hand-off: grants, waits for every piece and the first token, closes the ticket,
 * and keeps the destination blocks leased for as long as anybody may write them.
 *
 *   GRANTED --every piece--> COMPLETE --first token--> CLOSING --closed--> CLOSED   (arrived: the whole
 * prompt) |                        |                         ^
 *      +--- cancel, lost, failed, too late ---------------+                         (arrived: leading whole
 * blocks)
 *
 * on_arrived is called once, when no byte can be written any more: with the whole prompt and the first token,
 * or with what of its beginning is there.  on_closed is the last call; the object may be freed then.  Only
 * the transport's bitmap says what arrived. Engine thread only. */
#ifndef TRANSFER_KVXFER_RECV_H
#define TRANSFER_KVXFER_RECV_H

#include "cache/kv/pool.h"
#include "transfer/kvxfer/kvxfer.h"
#include "transfer/transport/transport.h"

struct kvxfer_recv;

struct kvxfer_arrival {
    uint32_t n_blocks; /* leading blocks that are present, those skipped included */
    bool is_whole;     /* every block, and first is set (not when it was asked for) */
    struct kvxfer_first first;
    bool is_finished;
    int code;                     /* not whole: why */
    uint64_t n_bytes, elapsed_ns; /* first to last byte, most of it beside the prefill */
    uint64_t exposed_ns; /* whole: from the first token's word to here, what the answer waited for KV */
};

struct kvxfer_recv_calls {
    void (*message)(void *arg, const struct kvxfer_message *message); /* to the sender */
    void (*on_arrived)(void *arg, const struct kvxfer_arrival *arrival);
    void (*on_closed)(void *arg);
};

struct kvxfer_recv_opts {
    struct kv_pool *pool;                  /* borrowed */
    struct tr_node *transport;             /* borrowed */
    const struct kvxfer_recv_calls *calls; /* borrowed */
    void *arg;
    uint64_t transfer; /* the sender's number */
    uint64_t ticket;   /* ours, random */
    const kv_block_id
        *blocks; /* the prompt's block table; from skip_blocks on they are FILLING and ours to write */
    uint32_t n_blocks;
    uint32_t skip_blocks; /* found in the cache here */
    uint32_t n_tokens;
    enum tr_kind kind;   /* over what the pieces are to come */
    bool is_asked;       /* no first token follows: whole when every piece is there */
    uint64_t timeout_ns; /* without progress: give up */
};

/* Opens the ticket and grants.  E_NOMEM, E_FULL. */
int kvxfer_recv_new(const struct kvxfer_recv_opts *opts, uint64_t now_ns, struct kvxfer_recv **out);
void kvxfer_recv_free(struct kvxfer_recv *recv);

/* The sequence ended (is_gone: on_arrived is not wanted) or is to be computed here. */
void kvxfer_recv_cancel(struct kvxfer_recv *recv, int code, bool is_gone);
void kvxfer_recv_peer_lost(struct kvxfer_recv *recv);
void kvxfer_recv_message(struct kvxfer_recv *recv, const struct kvxfer_message *message, uint64_t now_ns);
void kvxfer_recv_event(struct kvxfer_recv *recv, const struct tr_event *event, uint64_t now_ns);
void kvxfer_recv_tick(struct kvxfer_recv *recv, uint64_t now_ns);
bool kvxfer_recv_is_closed(const struct kvxfer_recv *recv);

#endif
