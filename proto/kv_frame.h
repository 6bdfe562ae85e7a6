/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a data connection, which moves KV.  Fields have fixed offsets and no schema.  So a few
 * instructions check a frame, and the payload lands at its destination without passing through a buffer.
 *
 * Little endian.  Each frame is a prefix and a body; the type fixes the size of the body:
 *
 *    0      4     5      6         8
 *    magic  type  flags  reserved  body                    magic "BKV1"; reserved bytes are always zero
 *
 *    HELLO     0 version  2 kind  3 side  4 n_layers  8 piece_bytes  16 layout  24 n_blocks  28 n_slots
 *              32 nonce[32]  64 node[64]
 *    PROOF     0 mac[32]
 *    MEMORY    (empty; two descriptors travel with it: the arena and the control page)
 *    DATA      0 ticket  8 layer  12 first  16 n_pieces  20 reserved  24 payload_bytes, then the payload,
 *              then a trailer
 *    trailer   0 digest  8 status  12 reserved
 *    ANNOUNCE  0 ticket  8 layer  12 first  16 n_pieces  20 slot  24 generation,
 *              then n_pieces block ids of four bytes
 *    REJECT    0 ticket  8 code  12 reserved
 *
 * proto/README.md says which side sends each frame, and when.  All functions are pure. */
#ifndef PROTO_KV_FRAME_H
#define PROTO_KV_FRAME_H

#include "base/bytes.h"
#include "base/fault.h"
#include "proto/kv_frame_rdma.h"

#define KV_FRAME_MAGIC         UINT32_C(0x31564b42)
#define KV_FRAME_VERSION       1
#define KV_FRAME_PREFIX_BYTES  8
#define KV_FRAME_HELLO_BYTES   128 /* sizes of bodies */
#define KV_FRAME_PROOF_BYTES   32
#define KV_FRAME_DATA_BYTES    32
#define KV_FRAME_REJECT_BYTES  16
#define KV_FRAME_TRAILER_BYTES 16
#define KV_FRAME_MAX_BYTES     (KV_FRAME_PREFIX_BYTES + KV_FRAME_HELLO_BYTES)
#define KV_FRAME_MAX_PIECES    1024                /* pieces in one DATA or ANNOUNCE */
#define KV_FRAME_MAX_PIECE     (UINT64_C(1) << 26) /* bytes */
#define KV_FRAME_NODE_BYTES    64                  /* with its NUL */

enum kv_frame_type {
    KV_FRAME_HELLO = 1,
    KV_FRAME_PROOF = 2,
    KV_FRAME_MEMORY = 3,
    KV_FRAME_DATA = 4,
    KV_FRAME_ANNOUNCE = 5,
    KV_FRAME_REJECT = 6,
    KV_FRAME_RAIL = 7, /* from here on RDMA; bodies in proto/kv_frame_rdma.h */
    KV_FRAME_REGION = 8,
    KV_FRAME_ASK = 9,
    KV_FRAME_SLOT = 10,
    KV_FRAME_CREDIT = 11,
    KV_FRAME_STOP = 12,
    KV_FRAME_STOPPED = 13,
    KV_FRAME_END = 14,
    KV_FRAME_WHICH = 15,
    KV_FRAME_HAVE = 16
};

enum kv_frame_kind {
    KV_FRAME_TCP = 1,
    KV_FRAME_SHM = 2,
    KV_FRAME_RDMA = 3,
    KV_FRAME_LAST_KIND = KV_FRAME_RDMA
};
enum kv_frame_side { KV_FRAME_DIALER = 1, KV_FRAME_ACCEPTOR = 2 };

#define KV_FRAME_FLAG_DIGEST 1 /* DATA: the trailer's digest is the XXH3-64 of the payload */

struct kv_frame_hello {
    uint16_t version;
    uint8_t kind;
    uint8_t side;
    uint32_t n_layers;
    uint64_t piece_bytes;
    uint64_t layout; /* layout fingerprint; must be equal on both sides */
    uint32_t n_blocks;
    uint32_t n_slots; /* slots of the dialer's control page; 0 for TCP and acceptors */
    uint8_t nonce[32];
    char node[KV_FRAME_NODE_BYTES];
};

struct kv_frame_proof {
    uint8_t mac[32];
};

struct kv_frame_data {
    uint64_t ticket;
    uint32_t layer;
    uint32_t first; /* index of the first piece in the ticket */
    uint32_t n_pieces;
    uint64_t payload_bytes;
};

struct kv_frame_announce {
    uint64_t ticket;
    uint32_t layer;
    uint32_t first;
    uint32_t n_pieces;
    uint32_t slot; /* slot of the control page: the pieces count only while it holds generation */
    uint64_t generation;
};

struct kv_frame_reject {
    uint64_t ticket; /* 0: rejects the whole connection */
    int32_t code;    /* base/err.h */
};

struct kv_frame {
    enum kv_frame_type type;
    uint8_t flags;
    union {
        struct kv_frame_hello hello;
        struct kv_frame_proof proof;
        struct kv_frame_data data;
        struct kv_frame_announce announce;
        struct kv_frame_reject reject;
        struct kv_frame_rail rail;
        struct kv_frame_region region;
        struct kv_frame_slot slot;
        struct kv_frame_credit credit;
        struct kv_frame_end end;
        struct kv_frame_have have;
        struct kv_frame_ticket ticket; /* ASK, STOP, STOPPED, WHICH */
    } as;
};

enum kv_frame_status {
    KV_FRAME_GOOD = 1,
    KV_FRAME_VOID = 2 /* the sender was stopped; the payload is filler */
};

struct kv_frame_trailer {
    uint64_t digest; /* 0 without KV_FRAME_FLAG_DIGEST */
    enum kv_frame_status status;
};

/* Size of the whole frame (prefix and body) that begins with these bytes, or E_PROTO. */
int kv_frame_size(const uint8_t prefix[KV_FRAME_PREFIX_BYTES], struct fault *fault);
/* Returns the bytes written. */
size_t kv_frame_pack(const struct kv_frame *frame, uint8_t out[KV_FRAME_MAX_BYTES]);
/* Unpacks and checks one frame; view is exactly that frame.  Checks everything that does not depend on the
 * ticket: reserved bytes, ranges, that n_pieces divides payload_bytes, a NUL in the node name.  E_VERSION:
 * HELLO of another version.  E_PROTO: all other errors. */
int kv_frame_unpack(struct bytes view, struct fault *fault, struct kv_frame *out);

void kv_frame_trailer_pack(const struct kv_frame_trailer *trailer, uint8_t out[KV_FRAME_TRAILER_BYTES]);
int kv_frame_trailer_unpack(const uint8_t in[KV_FRAME_TRAILER_BYTES], struct fault *fault,
                            struct kv_frame_trailer *out);

#endif
