/* SPDX-License-Identifier: Apache-2.0 */
/* The sending end of one transfer. It offers, pushes pieces as they are computed, and keeps the source
 * blocks leased for as long as the transport may read them.
 *
 *     OFFERED --grant--> PUSHING --all handed over--> PUSHED --done--> STOPPING --stopped--> CLOSED
 *      ^   |                |                            |                ^
 *      |   |                +- cancelled, peer lost, failed, timed out ---+
 *      |   |
 *      |   +--- refused, retry later ---> WAITING
 *      +--------- time to retry ----------+
 *
 * OFFERED and WAITING close at once when the transfer ends there (refused for good, cancelled, peer lost,
 * timed out), because the transport reads nothing yet.
 *
 * on_over comes once and gives the result for the sequence (0: the receiver has every piece). on_closed
 * comes once and last: no lease is left, and the owner may free the object. kvxfer_send_new calls neither.
 * Engine thread only. No call blocks. */
#ifndef TRANSFER_KVXFER_SEND_H
#define TRANSFER_KVXFER_SEND_H

#include "cache/kv/pool.h"
#include "transfer/kvxfer/kvxfer.h"
#include "transfer/transport/transport.h"

struct kvxfer_send;

struct kvxfer_send_calls {
    void (*message)(void *arg, const struct kvxfer_message *message); /* to the receiver */
    void (*on_over)(void *arg, int result);                           /* 0, or the error */
    void (*on_closed)(void *arg);                                     /* free the object now or later */
};

struct kvxfer_send_opts {
    struct kv_pool *pool;                  /* borrowed */
    struct tr_node *transport;             /* borrowed */
    const struct kvxfer_send_calls *calls; /* borrowed */
    void *arg;
    uint64_t transfer; /* also the id of the push; unique on this worker */
    uint64_t router_epoch, request;
    uint64_t fetch;    /* not 0: answers the prefix fetch of this id with cached blocks and no first token */
    uint32_t n_layers; /* of a block */
    uint32_t n_tokens, n_blocks; /* of the prompt */
    /* Number of further block tables, one for each group of windowed layers (cache/kv/window.h); 0: none.  Their
     * blocks from first_windowed on follow the prompt's in the transfer. */
    uint32_t n_windows, first_windowed;
    /* Blocks behind all others that the receiver may leave out: KV of an MTP head for head_tokens tokens. 0: none. */
    uint32_t n_head_blocks, head_tokens;
    uint64_t head_layout;
    const char *tcp_address, *unix_path; /* the receiver's addresses; copied */
    uint64_t timeout_ns;                 /* give up after this time without progress */
};

struct kvxfer_window {
    uint32_t group; /* < n_windows */
    uint32_t layer; /* < n_layers, or KVXFER_ALL_LAYERS */
};

/* Sends OFFER before it returns. E_NOMEM. */
int kvxfer_send_new(const struct kvxfer_send_opts *opts, uint64_t now_ns, struct kvxfer_send **out);
void kvxfer_send_free(struct kvxfer_send *send); /* only when closed, or when the worker shuts down */

/* Blocks [0, n_ready) of this layer (or KVXFER_ALL_LAYERS) are computed. table is the sequence's block
 * table, only read. */
void kvxfer_send_ready(struct kvxfer_send *send, uint32_t layer, uint32_t n_ready, const kv_block_id *table);
/* The same for a table of windowed layers: blocks [first_windowed, n_ready) of this layer of the group. */
void kvxfer_send_window_ready(struct kvxfer_send *send, struct kvxfer_window window, uint32_t n_ready,
                              const kv_block_id *table);
/* The same for the blocks of the MTP head, all layers. */
void kvxfer_send_head_ready(struct kvxfer_send *send, uint32_t n_ready, const kv_block_id *table);
void kvxfer_send_first(struct kvxfer_send *send, const struct kvxfer_first *first, bool is_finished);
void kvxfer_send_cancel(struct kvxfer_send *send, int code); /* the sequence ended here */
void kvxfer_send_peer_lost(struct kvxfer_send *send);

void kvxfer_send_message(struct kvxfer_send *send, const struct kvxfer_message *message, uint64_t now_ns);
void kvxfer_send_event(struct kvxfer_send *send, const struct tr_event *event, uint64_t now_ns);
void kvxfer_send_tick(struct kvxfer_send *send, uint64_t now_ns);
bool kvxfer_send_is_granted(const struct kvxfer_send *send);
bool kvxfer_send_is_refused(const struct kvxfer_send *send); /* it ended because the receiver refused it */

#endif
