/* SPDX-License-Identifier: Apache-2.0 */
/* What both ends of a transfer say to each other: the peer messages of proto/control.proto without their
 * protobuf.
 *
 * A transfer is a hand-off (the sender computes a prompt, the receiver will decode it) or an asked push (the
 * receiver lacks cached blocks that the sender has: "please push to me").  An asked push begins with ASK and
 * goes on as a hand-off does, from OFFER to DONE, without a first token. */
#ifndef TRANSFER_KVXFER_KVXFER_H
#define TRANSFER_KVXFER_KVXFER_H

#include <stdbool.h>

#include "cache/kv/layout.h"
#include "transfer/transport/transport.h"

struct block_hash;

#define KVXFER_ALL_LAYERS UINT32_MAX
#define KVXFER_MAX_TOP    20

enum kvxfer_kind {
    KVXFER_OFFER,
    KVXFER_GRANT,
    KVXFER_REFUSED,
    KVXFER_PREFILL_DONE,
    KVXFER_DONE,
    KVXFER_CANCEL,
    KVXFER_STOPPED,
    KVXFER_ASK,
    KVXFER_ASK_REFUSED
};

struct kvxfer_first { /* the token drawn after the prompt's last */
    uint32_t id;
    float logprob;
    uint32_t n_top; /* likeliest tokens, where the request wants them */
    uint32_t top_ids[KVXFER_MAX_TOP];
    float top_logprobs[KVXFER_MAX_TOP];
};

struct kvxfer_message {
    enum kvxfer_kind kind;
    uint64_t transfer;               /* the sender's number */
    bool from_sender;                /* CANCEL, STOPPED: who says it */
    uint64_t router_epoch, request;  /* OFFER of a hand-off: which sequence */
    uint64_t ask;                    /* ASK, ASK_REFUSED, and the OFFER that answers an ASK; else 0 */
    const struct block_hash *hashes; /* ASK: borrowed for the call */
    uint32_t n_hashes;
    uint64_t tenant;           /* ASK: who what is read from disk counts for; 0: nothing is read for it */
    uint32_t n_tokens;         /* OFFER, DONE */
    uint32_t n_blocks;         /* OFFER: of the prompt; GRANT: of blocks[] */
    const kv_block_id *blocks; /* GRANT: borrowed for the call */
    uint32_t skip_blocks;      /* GRANT: the receiver has so many already */
    uint64_t ticket;           /* GRANT */
    uint32_t deadline_ms;      /* GRANT */
    enum tr_kind transport;    /* GRANT: over what the pieces are to come */
    int code;                  /* REFUSED, CANCEL, ASK_REFUSED */
    uint32_t retry_after_ms;   /* REFUSED; 0: never */
    struct kvxfer_first first; /* PREFILL_DONE */
    bool is_finished;          /* PREFILL_DONE: nothing to decode */
};

#endif
