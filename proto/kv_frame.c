/* SPDX-License-Identifier: Apache-2.0 */
/* Packs and unpacks the frames of a data connection.
 *
 * The receiver of a DATA frame writes into memory next to the KV of other requests, so it trusts no field.
 * Checks that do not depend on a ticket are here; the others are in transfer/transport/tr_ticket.c.
 * Reserved bytes must be zero.  So a later version may give them a meaning and find out that this version
 * does not know it.
 *
 * The enums below contain each offset once, for packing and unpacking.  Assertions compare them with the
 * header's body sizes.  Golden bytes in tests/unit/proto compare them with the wire. */
#include "proto/kv_frame.h"

#include "base/err.h"
#include "base/name.h"

#include <string.h>

enum { AT_MAGIC = 0, AT_TYPE = 4, AT_FLAGS = 5, AT_PREFIX_RESERVED = 6, PREFIX_END = 8 };
enum {
    HELLO_VERSION = 0,
    HELLO_KIND = 2,
    HELLO_SIDE = 3,
    HELLO_N_LAYERS = 4,
    HELLO_PIECE_BYTES = 8,
    HELLO_LAYOUT = 16,
    HELLO_N_BLOCKS = 24,
    HELLO_N_SLOTS = 28,
    HELLO_NONCE = 32,
    HELLO_NODE = 64,
    HELLO_END = 128
};
enum {
    RUN_TICKET = 0, /* DATA and ANNOUNCE begin alike */
    RUN_LAYER = 8,
    RUN_FIRST = 12,
    RUN_N_PIECES = 16,
    DATA_RESERVED = 20,
    DATA_PAYLOAD_BYTES = 24,
    ANNOUNCE_SLOT = 20,
    ANNOUNCE_GENERATION = 24,
    RUN_END = 32
};
enum { REJECT_TICKET = 0, REJECT_CODE = 8, REJECT_RESERVED = 12, REJECT_END = 16 };
enum { TRAILER_DIGEST = 0, TRAILER_STATUS = 8, TRAILER_RESERVED = 12, TRAILER_END = 16 };

_Static_assert(PREFIX_END == KV_FRAME_PREFIX_BYTES, "prefix");
_Static_assert(HELLO_END == KV_FRAME_HELLO_BYTES && HELLO_NODE + KV_FRAME_NODE_BYTES == HELLO_END, "HELLO");
_Static_assert(sizeof(((struct kv_frame_proof *)0)->mac) == KV_FRAME_PROOF_BYTES, "PROOF");
_Static_assert(RUN_END == KV_FRAME_DATA_BYTES, "DATA and ANNOUNCE");
_Static_assert(REJECT_END == KV_FRAME_REJECT_BYTES, "REJECT");
_Static_assert(TRAILER_END == KV_FRAME_TRAILER_BYTES, "trailer");

/* Size of a body; -1: no such type. */
static int body_bytes(unsigned type)
{
    switch (type) {
    case KV_FRAME_HELLO:
        return KV_FRAME_HELLO_BYTES;
    case KV_FRAME_PROOF:
        return KV_FRAME_PROOF_BYTES;
    case KV_FRAME_MEMORY:
        return 0;
    case KV_FRAME_DATA:
    case KV_FRAME_ANNOUNCE:
        return KV_FRAME_DATA_BYTES;
    case KV_FRAME_REJECT:
        return KV_FRAME_REJECT_BYTES;
    }
    return kv_frame_rdma_body_bytes(type);
}

int kv_frame_size(const uint8_t prefix[KV_FRAME_PREFIX_BYTES], struct fault *fault)
{
    int len_bytes = body_bytes(prefix[AT_TYPE]);

    if (get_u32(prefix + AT_MAGIC) != KV_FRAME_MAGIC)
        return fault_set(fault, E_PROTO, "not a Baton KV frame (magic %08x)", get_u32(prefix + AT_MAGIC));
    if (len_bytes < 0)
        return fault_set(fault, E_PROTO, "unknown KV frame type %u", prefix[AT_TYPE]);
    if (get_u16(prefix + AT_PREFIX_RESERVED) != 0 ||
        (prefix[AT_FLAGS] & ~(prefix[AT_TYPE] == KV_FRAME_DATA ? KV_FRAME_FLAG_DIGEST : 0)) != 0)
        return fault_set(fault, E_PROTO, "KV frame type %u with unknown flags", prefix[AT_TYPE]);
    return KV_FRAME_PREFIX_BYTES + len_bytes;
}

static void pack_hello(const struct kv_frame_hello *hello, uint8_t *out)
{
    put_u16(out + HELLO_VERSION, hello->version);
    out[HELLO_KIND] = hello->kind;
    out[HELLO_SIDE] = hello->side;
    put_u32(out + HELLO_N_LAYERS, hello->n_layers);
    put_u64(out + HELLO_PIECE_BYTES, hello->piece_bytes);
    put_u64(out + HELLO_LAYOUT, hello->layout);
    put_u32(out + HELLO_N_BLOCKS, hello->n_blocks);
    put_u32(out + HELLO_N_SLOTS, hello->n_slots);
    memcpy(out + HELLO_NONCE, hello->nonce, sizeof(hello->nonce));
    memcpy(out + HELLO_NODE, hello->node, strnlen(hello->node, KV_FRAME_NODE_BYTES - 1));
}

static void pack_run(uint64_t ticket, uint32_t layer, uint32_t first, uint32_t n_pieces, uint8_t *out)
{
    put_u64(out + RUN_TICKET, ticket);
    put_u32(out + RUN_LAYER, layer);
    put_u32(out + RUN_FIRST, first);
    put_u32(out + RUN_N_PIECES, n_pieces);
}

size_t kv_frame_pack(const struct kv_frame *frame, uint8_t out[KV_FRAME_MAX_BYTES])
{
    uint8_t *body = out + KV_FRAME_PREFIX_BYTES;
    size_t len_bytes = KV_FRAME_PREFIX_BYTES + (size_t)body_bytes(frame->type);

    memset(out, 0, len_bytes);
    put_u32(out + AT_MAGIC, KV_FRAME_MAGIC);
    out[AT_TYPE] = (uint8_t)frame->type;
    out[AT_FLAGS] = frame->flags;
    switch ((unsigned)frame->type) {
    case KV_FRAME_HELLO:
        pack_hello(&frame->as.hello, body);
        break;
    case KV_FRAME_PROOF:
        memcpy(body, frame->as.proof.mac, sizeof(frame->as.proof.mac));
        break;
    case KV_FRAME_MEMORY:
        break;
    case KV_FRAME_DATA:
        pack_run(frame->as.data.ticket, frame->as.data.layer, frame->as.data.first, frame->as.data.n_pieces,
                 body);
        put_u64(body + DATA_PAYLOAD_BYTES, frame->as.data.payload_bytes);
        break;
    case KV_FRAME_ANNOUNCE:
        pack_run(frame->as.announce.ticket, frame->as.announce.layer, frame->as.announce.first,
                 frame->as.announce.n_pieces, body);
        put_u32(body + ANNOUNCE_SLOT, frame->as.announce.slot);
        put_u64(body + ANNOUNCE_GENERATION, frame->as.announce.generation);
        break;
    case KV_FRAME_REJECT:
        put_u64(body + REJECT_TICKET, frame->as.reject.ticket);
        put_u32(body + REJECT_CODE, (uint32_t)frame->as.reject.code);
        break;
    default:
        kv_frame_rdma_pack(frame, body);
        break;
    }
    return len_bytes;
}

static int unpack_hello(const uint8_t *body, struct fault *fault, struct kv_frame_hello *out)
{
    out->version = get_u16(body + HELLO_VERSION);
    out->kind = body[HELLO_KIND];
    out->side = body[HELLO_SIDE];
    out->n_layers = get_u32(body + HELLO_N_LAYERS);
    out->piece_bytes = get_u64(body + HELLO_PIECE_BYTES);
    out->layout = get_u64(body + HELLO_LAYOUT);
    out->n_blocks = get_u32(body + HELLO_N_BLOCKS);
    out->n_slots = get_u32(body + HELLO_N_SLOTS);
    memcpy(out->nonce, body + HELLO_NONCE, sizeof(out->nonce));
    memcpy(out->node, body + HELLO_NODE, sizeof(out->node));

    if (out->version != KV_FRAME_VERSION)
        return fault_set(fault, E_VERSION, "KV protocol %u, this side speaks %u", out->version,
                         KV_FRAME_VERSION);
    if (out->node[KV_FRAME_NODE_BYTES - 1] != '\0' || !name_is_valid(bytes_str(out->node), SIZE_MAX))
        return fault_set(fault, E_PROTO, "KV HELLO without a node name");
    if (out->kind < KV_FRAME_TCP || out->kind > KV_FRAME_LAST_KIND || out->side < KV_FRAME_DIALER ||
        out->side > KV_FRAME_ACCEPTOR)
        return fault_set(fault, E_PROTO, "KV HELLO of kind %u, side %u", out->kind, out->side);
    if (out->n_layers == 0 || out->n_blocks == 0 || out->piece_bytes == 0 ||
        out->piece_bytes > KV_FRAME_MAX_PIECE)
        return fault_set(fault, E_PROTO, "KV HELLO with an impossible geometry");
    return 0;
}

static int check_run(uint32_t n_pieces, uint32_t first, struct fault *fault)
{
    if (n_pieces == 0 || n_pieces > KV_FRAME_MAX_PIECES || first > UINT32_MAX - n_pieces)
        return fault_set(fault, E_PROTO, "KV frame of %u pieces from %u", n_pieces, first);
    return 0;
}

static int unpack_data(const uint8_t *body, struct fault *fault, struct kv_frame_data *out)
{
    out->ticket = get_u64(body + RUN_TICKET);
    out->layer = get_u32(body + RUN_LAYER);
    out->first = get_u32(body + RUN_FIRST);
    out->n_pieces = get_u32(body + RUN_N_PIECES);
    out->payload_bytes = get_u64(body + DATA_PAYLOAD_BYTES);

    if (get_u32(body + DATA_RESERVED) != 0)
        return fault_set(fault, E_PROTO, "KV DATA: reserved bytes are set");
    if (check_run(out->n_pieces, out->first, fault) != 0)
        return E_PROTO;
    if (out->payload_bytes == 0 || out->payload_bytes % out->n_pieces != 0 ||
        out->payload_bytes / out->n_pieces > KV_FRAME_MAX_PIECE)
        return fault_set(fault, E_PROTO, "KV DATA: %llu bytes for %u pieces",
                         (unsigned long long)out->payload_bytes, out->n_pieces);
    return 0;
}

static int unpack_announce(const uint8_t *body, struct fault *fault, struct kv_frame_announce *out)
{
    out->ticket = get_u64(body + RUN_TICKET);
    out->layer = get_u32(body + RUN_LAYER);
    out->first = get_u32(body + RUN_FIRST);
    out->n_pieces = get_u32(body + RUN_N_PIECES);
    out->slot = get_u32(body + ANNOUNCE_SLOT);
    out->generation = get_u64(body + ANNOUNCE_GENERATION);
    return check_run(out->n_pieces, out->first, fault);
}

static int unpack_reject(const uint8_t *body, struct fault *fault, struct kv_frame_reject *out)
{
    out->ticket = get_u64(body + REJECT_TICKET);
    out->code = (int32_t)get_u32(body + REJECT_CODE);
    if (get_u32(body + REJECT_RESERVED) != 0)
        return fault_set(fault, E_PROTO, "KV REJECT: reserved bytes are set");
    return 0;
}

static int unpack_body(const uint8_t *body, struct fault *fault, struct kv_frame *out)
{
    switch ((unsigned)out->type) {
    case KV_FRAME_HELLO:
        return unpack_hello(body, fault, &out->as.hello);
    case KV_FRAME_PROOF:
        memcpy(out->as.proof.mac, body, sizeof(out->as.proof.mac));
        return 0;
    case KV_FRAME_MEMORY:
        return 0;
    case KV_FRAME_DATA:
        return unpack_data(body, fault, &out->as.data);
    case KV_FRAME_ANNOUNCE:
        return unpack_announce(body, fault, &out->as.announce);
    case KV_FRAME_REJECT:
        return unpack_reject(body, fault, &out->as.reject);
    }
    return kv_frame_rdma_unpack(body, fault, out);
}

int kv_frame_unpack(struct bytes view, struct fault *fault, struct kv_frame *out)
{
    struct kv_frame frame;
    int len_bytes;

    if (view.len_bytes < KV_FRAME_PREFIX_BYTES)
        return fault_set(fault, E_PROTO, "KV frame of %zu bytes", view.len_bytes);
    len_bytes = kv_frame_size(view.data, fault);
    if (len_bytes < 0)
        return len_bytes;
    if (view.len_bytes != (size_t)len_bytes)
        return fault_set(fault, E_PROTO, "KV frame of %zu bytes, its type has %d", view.len_bytes, len_bytes);

    memset(&frame, 0, sizeof(frame));
    frame.type = (enum kv_frame_type)view.data[AT_TYPE];
    frame.flags = view.data[AT_FLAGS];
    len_bytes = unpack_body(view.data + KV_FRAME_PREFIX_BYTES, fault, &frame);
    if (len_bytes != 0)
        return len_bytes;
    *out = frame;
    return 0;
}

void kv_frame_trailer_pack(const struct kv_frame_trailer *trailer, uint8_t out[KV_FRAME_TRAILER_BYTES])
{
    put_u64(out + TRAILER_DIGEST, trailer->digest);
    put_u32(out + TRAILER_STATUS, (uint32_t)trailer->status);
    put_u32(out + TRAILER_RESERVED, 0);
}

int kv_frame_trailer_unpack(const uint8_t in[KV_FRAME_TRAILER_BYTES], struct fault *fault,
                            struct kv_frame_trailer *out)
{
    uint32_t status = get_u32(in + TRAILER_STATUS);

    if (status < KV_FRAME_GOOD || status > KV_FRAME_VOID || get_u32(in + TRAILER_RESERVED) != 0)
        return fault_set(fault, E_PROTO, "KV DATA: the trailer says %u", status);
    out->digest = get_u64(in + TRAILER_DIGEST);
    out->status = (enum kv_frame_status)status;
    return 0;
}
