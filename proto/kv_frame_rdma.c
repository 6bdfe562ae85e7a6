/* SPDX-License-Identifier: Apache-2.0 */
/* See kv_frame_rdma.h.  This file checks the ranges of queue pair numbers, keys and addresses.  The
 * transport checks that they fit the arena and the connection. */
#include "proto/kv_frame_rdma.h"

#include <string.h>

#include "base/err.h"
#include "proto/kv_frame.h"

enum {
    RAIL_INDEX = 0,
    RAIL_N_RAILS = 1,
    RAIL_N_QPS = 2,
    RAIL_MTU = 3,
    RAIL_LINK = 4,
    RAIL_RESERVED = 5,
    RAIL_LID = 6,
    RAIL_GID = 8,
    RAIL_N_RECEIVES = 24,
    RAIL_N_REGIONS = 28,
    RAIL_RESERVED2 = 32,
    RAIL_QPS = 40, /* number and first PSN of each queue pair */
    RAIL_END = RAIL_QPS + KV_RDMA_MAX_QPS * 8
};
enum {
    REGION_RAIL = 0,
    REGION_RESERVED = 1,
    REGION_INDEX = 4,
    REGION_LEN_BYTES = 8,
    REGION_ADDRESS = 16,
    REGION_RESERVED2 = 24,
    REGION_KEYS = 32,
    REGION_END = REGION_KEYS + KV_RDMA_MAX_QPS * 4
};
enum {
    SLOT_TICKET = 0,
    SLOT_SLOT = 8,
    SLOT_N_BLOCKS = 12,
    SLOT_N_PER_CHUNK = 16,
    SLOT_RESERVED = 20,
    SLOT_END = 24
};
enum { CREDIT_RAIL = 0, CREDIT_QP = 1, CREDIT_RESERVED = 2, CREDIT_N_TOTAL = 4, CREDIT_END = 8 };
enum { END_CODE = 0, END_RAIL = 4, END_RESERVED = 5, END_END = 8 };
enum { HAVE_TICKET = 0, HAVE_N_BITS = 8, HAVE_RESERVED = 12, HAVE_END = 16 };

_Static_assert(RAIL_END == KV_RDMA_RAIL_BYTES && REGION_END == KV_RDMA_REGION_BYTES, "RAIL and REGION");
_Static_assert(SLOT_END == KV_RDMA_SLOT_BYTES && CREDIT_END == KV_RDMA_CREDIT_BYTES, "SLOT and CREDIT");
_Static_assert(END_END == KV_RDMA_END_BYTES && HAVE_END == KV_RDMA_HAVE_BYTES, "END and HAVE");
_Static_assert(KV_RDMA_RAIL_BYTES <= KV_FRAME_HELLO_BYTES, "the longest body is HELLO's");

int kv_frame_rdma_body_bytes(unsigned type)
{
    switch (type) {
    case KV_FRAME_RAIL:
        return KV_RDMA_RAIL_BYTES;
    case KV_FRAME_REGION:
        return KV_RDMA_REGION_BYTES;
    case KV_FRAME_SLOT:
        return KV_RDMA_SLOT_BYTES;
    case KV_FRAME_CREDIT:
        return KV_RDMA_CREDIT_BYTES;
    case KV_FRAME_END:
        return KV_RDMA_END_BYTES;
    case KV_FRAME_HAVE:
        return KV_RDMA_HAVE_BYTES;
    case KV_FRAME_ASK:
    case KV_FRAME_STOP:
    case KV_FRAME_STOPPED:
    case KV_FRAME_WHICH:
        return KV_RDMA_TICKET_BYTES;
    }
    return -1;
}

static bool kv_frame_rdma_is_zero(const uint8_t *at, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static void pack_rail(const struct kv_frame_rail *rail, uint8_t *body)
{
    body[RAIL_INDEX] = rail->index;
    body[RAIL_N_RAILS] = rail->n_rails;
    body[RAIL_N_QPS] = rail->n_qps;
    body[RAIL_MTU] = rail->mtu;
    body[RAIL_LINK] = rail->link;
    put_u16(body + RAIL_LID, rail->lid);
    memcpy(body + RAIL_GID, rail->gid, sizeof(rail->gid));
    put_u32(body + RAIL_N_RECEIVES, rail->n_receives);
    put_u32(body + RAIL_N_REGIONS, rail->n_regions);
    for (unsigned i = 0; i < rail->n_qps && i < KV_RDMA_MAX_QPS; i++) {
        put_u32(body + RAIL_QPS + i * 8, rail->qpn[i]);
        put_u32(body + RAIL_QPS + i * 8 + 4, rail->psn[i]);
    }
}

static int unpack_rail(const uint8_t *body, struct fault *fault, struct kv_frame_rail *out)
{
    out->index = body[RAIL_INDEX];
    out->n_rails = body[RAIL_N_RAILS];
    out->n_qps = body[RAIL_N_QPS];
    out->mtu = body[RAIL_MTU];
    out->link = body[RAIL_LINK];
    out->lid = get_u16(body + RAIL_LID);
    memcpy(out->gid, body + RAIL_GID, sizeof(out->gid));
    out->n_receives = get_u32(body + RAIL_N_RECEIVES);
    out->n_regions = get_u32(body + RAIL_N_REGIONS);
    if (body[RAIL_RESERVED] != 0 || !kv_frame_rdma_is_zero(body + RAIL_RESERVED2, RAIL_QPS - RAIL_RESERVED2))
        return fault_set(fault, E_PROTO, "KV RAIL: reserved bytes are set");
    if (out->n_rails == 0 || out->n_rails > KV_RDMA_MAX_RAILS || out->index >= out->n_rails ||
        out->n_qps > KV_RDMA_MAX_QPS || out->mtu < 1 || out->mtu > 5 || out->link < KV_RDMA_INFINIBAND ||
        out->link > KV_RDMA_ETHERNET || out->n_regions > KV_RDMA_MAX_REGIONS)
        return fault_set(fault, E_PROTO, "KV RAIL %u of %u: %u queue pairs, MTU %u, link %u, %u regions",
                         out->index, out->n_rails, out->n_qps, out->mtu, out->link, out->n_regions);
    for (unsigned i = 0; i < KV_RDMA_MAX_QPS; i++) {
        out->qpn[i] = get_u32(body + RAIL_QPS + i * 8);
        out->psn[i] = get_u32(body + RAIL_QPS + i * 8 + 4);
        if (out->qpn[i] > 0xffffff || out->psn[i] > 0xffffff ||
            (i >= out->n_qps && (out->qpn[i] != 0 || out->psn[i] != 0)))
            return fault_set(fault, E_PROTO, "KV RAIL: queue pair %u has number %x, PSN %x", i, out->qpn[i],
                             out->psn[i]);
    }
    return 0;
}

static void pack_region(const struct kv_frame_region *region, uint8_t *body)
{
    body[REGION_RAIL] = region->rail;
    put_u32(body + REGION_INDEX, region->index);
    put_u64(body + REGION_LEN_BYTES, region->len_bytes);
    put_u64(body + REGION_ADDRESS, region->address);
    for (unsigned i = 0; i < KV_RDMA_MAX_QPS; i++)
        put_u32(body + REGION_KEYS + i * 4, region->rkey[i]);
}

static int unpack_region(const uint8_t *body, struct fault *fault, struct kv_frame_region *out)
{
    out->rail = body[REGION_RAIL];
    out->index = get_u32(body + REGION_INDEX);
    out->len_bytes = get_u64(body + REGION_LEN_BYTES);
    out->address = get_u64(body + REGION_ADDRESS);
    for (unsigned i = 0; i < KV_RDMA_MAX_QPS; i++)
        out->rkey[i] = get_u32(body + REGION_KEYS + i * 4);
    if (!kv_frame_rdma_is_zero(body + REGION_RESERVED, REGION_INDEX - REGION_RESERVED) ||
        !kv_frame_rdma_is_zero(body + REGION_RESERVED2, REGION_KEYS - REGION_RESERVED2))
        return fault_set(fault, E_PROTO, "KV REGION: reserved bytes are set");
    if (out->rail >= KV_RDMA_MAX_RAILS || out->index >= KV_RDMA_MAX_REGIONS || out->len_bytes == 0 ||
        out->address > UINT64_MAX - out->len_bytes)
        return fault_set(fault, E_PROTO, "KV REGION %u of rail %u: %llu bytes", out->index, out->rail,
                         (unsigned long long)out->len_bytes);
    return 0;
}

static int unpack_slot(const uint8_t *body, struct fault *fault, struct kv_frame_slot *out)
{
    out->ticket = get_u64(body + SLOT_TICKET);
    out->slot = get_u32(body + SLOT_SLOT);
    out->n_blocks = get_u32(body + SLOT_N_BLOCKS);
    out->n_per_chunk = get_u32(body + SLOT_N_PER_CHUNK);
    if (get_u32(body + SLOT_RESERVED) != 0 || out->slot >= KV_RDMA_MAX_SLOTS || out->n_blocks == 0 ||
        out->n_per_chunk == 0 || out->n_per_chunk > KV_RDMA_CHUNK_PIECES)
        return fault_set(fault, E_PROTO, "KV SLOT %u for %u blocks, %u a chunk", out->slot, out->n_blocks,
                         out->n_per_chunk);
    return 0;
}

static int unpack_credit(const uint8_t *body, struct fault *fault, struct kv_frame_credit *out)
{
    out->rail = body[CREDIT_RAIL];
    out->qp = body[CREDIT_QP];
    out->n_total = get_u32(body + CREDIT_N_TOTAL);
    if (get_u16(body + CREDIT_RESERVED) != 0 || out->rail >= KV_RDMA_MAX_RAILS || out->qp >= KV_RDMA_MAX_QPS)
        return fault_set(fault, E_PROTO, "KV CREDIT for queue pair %u of rail %u", out->qp, out->rail);
    return 0;
}

static int unpack_have(const uint8_t *body, struct fault *fault, struct kv_frame_have *out)
{
    out->ticket = get_u64(body + HAVE_TICKET);
    out->n_bits = get_u32(body + HAVE_N_BITS);
    if (get_u32(body + HAVE_RESERVED) != 0 || out->n_bits == 0)
        return fault_set(fault, E_PROTO, "KV HAVE of %u bits", out->n_bits);
    return 0;
}

void kv_frame_rdma_pack(const struct kv_frame *frame, uint8_t *body)
{
    switch ((unsigned)frame->type) {
    case KV_FRAME_RAIL:
        pack_rail(&frame->as.rail, body);
        break;
    case KV_FRAME_REGION:
        pack_region(&frame->as.region, body);
        break;
    case KV_FRAME_SLOT:
        put_u64(body + SLOT_TICKET, frame->as.slot.ticket);
        put_u32(body + SLOT_SLOT, frame->as.slot.slot);
        put_u32(body + SLOT_N_BLOCKS, frame->as.slot.n_blocks);
        put_u32(body + SLOT_N_PER_CHUNK, frame->as.slot.n_per_chunk);
        break;
    case KV_FRAME_CREDIT:
        body[CREDIT_RAIL] = frame->as.credit.rail;
        body[CREDIT_QP] = frame->as.credit.qp;
        put_u32(body + CREDIT_N_TOTAL, frame->as.credit.n_total);
        break;
    case KV_FRAME_END:
        put_u32(body + END_CODE, (uint32_t)frame->as.end.code);
        body[END_RAIL] = frame->as.end.rail;
        break;
    case KV_FRAME_HAVE:
        put_u64(body + HAVE_TICKET, frame->as.have.ticket);
        put_u32(body + HAVE_N_BITS, frame->as.have.n_bits);
        break;
    default: /* ASK, STOP, STOPPED, WHICH */
        put_u64(body, frame->as.ticket.ticket);
        break;
    }
}

static int unpack_end(const uint8_t *body, struct fault *fault, struct kv_frame_end *out)
{
    out->code = (int32_t)get_u32(body + END_CODE);
    out->rail = body[END_RAIL];
    if (out->rail > KV_RDMA_MAX_RAILS)
        return fault_set(fault, E_PROTO, "KV END of rail %u", out->rail);
    if (!kv_frame_rdma_is_zero(body + END_RESERVED, END_END - END_RESERVED))
        return fault_set(fault, E_PROTO, "KV END: reserved bytes are set");
    return 0;
}

int kv_frame_rdma_unpack(const uint8_t *body, struct fault *fault, struct kv_frame *out)
{
    switch ((unsigned)out->type) {
    case KV_FRAME_RAIL:
        return unpack_rail(body, fault, &out->as.rail);
    case KV_FRAME_REGION:
        return unpack_region(body, fault, &out->as.region);
    case KV_FRAME_SLOT:
        return unpack_slot(body, fault, &out->as.slot);
    case KV_FRAME_CREDIT:
        return unpack_credit(body, fault, &out->as.credit);
    case KV_FRAME_END:
        return unpack_end(body, fault, &out->as.end);
    case KV_FRAME_HAVE:
        return unpack_have(body, fault, &out->as.have);
    default:
        out->as.ticket.ticket = get_u64(body);
        return 0;
    }
}
