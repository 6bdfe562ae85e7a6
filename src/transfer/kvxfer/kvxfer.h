/* SPDX-License-Identifier: Apache-2.0 */
/* The messages that the two ends of a transfer exchange: the peer messages of proto/control.proto, without
 * protobuf.
 *
 * There are two kinds of transfer. In a hand-off the sender computes the prompt and the receiver decodes
 * it. In a prefix fetch the receiver lacks cached blocks, and the sender serves them. A prefix fetch
 * begins with FETCH (Ask on the wire), then continues like a hand-off from OFFER to DONE, but has no first token. */
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
    KVXFER_FETCH,
    KVXFER_FETCH_REFUSED
};

struct kvxfer_first { /* the token sampled after the last prompt token */
    uint32_t id;
    float logprob;
    uint32_t n_top; /* most likely tokens, if the request wants them */
    uint32_t top_ids[KVXFER_MAX_TOP];
    float top_logprobs[KVXFER_MAX_TOP];
};

struct kvxfer_message {
    enum kvxfer_kind kind;
    uint64_t transfer;              /* the sender's transfer id */
    bool from_sender;               /* CANCEL, STOPPED: the sender wrote this message */
    uint64_t router_epoch, request; /* OFFER of a hand-off: which sequence */
    uint64_t
        fetch; /* id of the prefix fetch: set in FETCH, FETCH_REFUSED and the OFFER that answers it; else 0 */
    const struct block_hash *hashes; /* FETCH: borrowed for the call */
    uint32_t n_hashes;
    uint64_t tenant;           /* FETCH: the tenant that disk reads count for; 0: read nothing from disk */
    uint32_t n_tokens;         /* OFFER, DONE */
    uint32_t n_blocks;         /* OFFER: blocks of the prompt; GRANT: length of blocks[] */
    uint32_t head_tokens;      /* OFFER: KV of an MTP head for this many tokens may follow; 0: none */
    uint64_t head_layout;      /* OFFER: the fingerprint of its layout */
    uint32_t head_worth_us;    /* GRANT: time that the sender may spend on such KV in later transfers */
    const kv_block_id *blocks; /* GRANT: borrowed for the call */
    uint32_t skip_blocks;      /* GRANT: leading blocks that the receiver already has */
    uint64_t ticket;           /* GRANT */
    enum tr_kind transport;    /* GRANT: the transport that carries the pieces */
    int code;                  /* REFUSED, CANCEL, FETCH_REFUSED */
    uint32_t retry_after_ms;   /* REFUSED: offer again after this time; 0: never */
    struct kvxfer_first first; /* PREFILL_DONE */
    bool is_finished;          /* PREFILL_DONE: nothing to decode */
};

#endif
