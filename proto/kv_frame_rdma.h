/* SPDX-License-Identifier: Apache-2.0 */
/* The socket frames of a data connection of kind RDMA.  The KV bytes themselves bypass the socket.  Prefix,
 * byte order and rules are those of kv_frame.h; all reserved bytes are zero.
 *
 *    dialler (sender of KV)                          acceptor (receiver)
 *    RAIL x n_rails                 ------------->
 *                                   <-------------   RAIL, REGION x n_regions    for each rail
 *    ASK (ticket)                   ------------->
 *                                   <-------------   SLOT, n_blocks block ids    or REJECT
 *    ........ RDMA_WRITEs, each chunk closed by WRITE_WITH_IMM (slot, chunk) .........
 *                                   <-------------   CREDIT                      receives were posted again
 *                                   <-------------   STOP (ticket)               write no more of it
 *    STOPPED (ticket)               ------------->                               no write is left
 *    END (code)                     <----- or --->   END                         the queue pairs are dead
 *    WHICH (ticket)                 ------------->                               after END only
 *                                   <-------------   HAVE, one bit each piece    pieces not to send again
 *
 * The dialler may send STOPPED without a STOP.  All functions are pure. */
#ifndef PROTO_KV_FRAME_RDMA_H
#define PROTO_KV_FRAME_RDMA_H

#include <stdint.h>

#include "base/fault.h"

#define KV_RDMA_MAX_RAILS    8
#define KV_RDMA_MAX_QPS      4 /* for each rail of a connection */
#define KV_RDMA_MAX_REGIONS  256
#define KV_RDMA_RAIL_BYTES   72
#define KV_RDMA_REGION_BYTES 48
#define KV_RDMA_SLOT_BYTES   24
#define KV_RDMA_CREDIT_BYTES 8
#define KV_RDMA_TICKET_BYTES 8
#define KV_RDMA_END_BYTES    8
#define KV_RDMA_HAVE_BYTES   16
#define KV_RDMA_SLOT_BITS    12 /* top bits of an immediate; the chunk is below them */
#define KV_RDMA_MAX_SLOTS    (1u << KV_RDMA_SLOT_BITS)
#define KV_RDMA_MAX_CHUNKS   (1u << (32 - KV_RDMA_SLOT_BITS)) /* chunks of a ticket */
#define KV_RDMA_CHUNK_PIECES 128                              /* most pieces in one chunk */

enum kv_rdma_link { KV_RDMA_INFINIBAND = 1, KV_RDMA_ETHERNET = 2 };

/* One rail's end of the connection.  The dialler describes its rail.  The acceptor answers with its own rail
 * for the same index. n_qps 0 in the answer: this rail is not used. */
struct kv_frame_rail {
    uint8_t index;   /* index of the dialler's rail */
    uint8_t n_rails; /* dialler: number of RAIL frames; acceptor: the same number */
    uint8_t n_qps;
    uint8_t mtu;  /* 1 to 5: 256 to 4096 bytes; both sides use the smaller one */
    uint8_t link; /* enum kv_rdma_link; must be equal at both ends */
    uint8_t gid[16];
    uint16_t lid;        /* InfiniBand */
    uint32_t n_receives; /* acceptor: receives posted on each queue pair, the first credit */
    uint32_t n_regions;  /* acceptor: number of REGION frames that follow */
    uint32_t qpn[KV_RDMA_MAX_QPS], psn[KV_RDMA_MAX_QPS];
};

/* A registered part of the acceptor's arena.  Regions come in order and cover the arena without a gap.  All
 * but the last have the same length, and none ends inside a piece. */
struct kv_frame_region {
    uint8_t rail;
    uint32_t index;
    uint64_t len_bytes;
    uint64_t address;               /* RDMA address of its first byte */
    uint32_t rkey[KV_RDMA_MAX_QPS]; /* one for each queue pair; write only */
};

/* Answer to ASK.  The pieces of a ticket form a grid of chunks: chunk = layer * n_groups + group, with
 * n_groups = ceil(n_blocks / n_per_chunk).  Group g has the pieces from g * n_per_chunk on, n_per_chunk of
 * them. n_blocks ids of four bytes follow the frame. */
struct kv_frame_slot {
    uint64_t ticket;
    uint32_t slot;
    uint32_t n_blocks;
    uint32_t n_per_chunk;
};

struct kv_frame_credit { /* receives posted on the queue pair since its start (wraps) */
    uint8_t rail, qp;
    uint32_t n_total;
};

struct kv_frame_end {
    int32_t code; /* base/err.h */
    uint8_t rail; /* rail that failed: 1 + its index of RAIL; 0: no particular rail */
};

struct kv_frame_have { /* n_bits bits follow in whole bytes; bit layer * n_blocks + index, lowest bit first */
    uint64_t ticket;
    uint32_t n_bits;
};

struct kv_frame_ticket {
    uint64_t ticket;
};

struct kv_frame;

/* For kv_frame.c: body size of an RDMA frame type (-1: not an RDMA type), and packing and unpacking of
 * bodies. */
int kv_frame_rdma_body_bytes(unsigned type);
void kv_frame_rdma_pack(const struct kv_frame *frame, uint8_t *body);
int kv_frame_rdma_unpack(const uint8_t *body, struct fault *fault, struct kv_frame *out); /* E_PROTO */

static inline uint32_t kv_rdma_immediate(uint32_t slot, uint32_t chunk)
{
    return slot << (32 - KV_RDMA_SLOT_BITS) | chunk;
}

#endif
