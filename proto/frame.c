/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: the header, and packing and unpacking of protobuf messages.
 *
 * FRAME_TABLE has everything that differs between message types.  So a new message is one line in the list of
 * its receivers, one message in control.proto and its limits in frame_check.c.
 *
 * Unpacking does not trust the peer, in three steps.  The header limits the payload's length by its type.
 * The allocator below limits the memory that one payload can turn into. frame_check() limits every field.
 * The memory limit is needed because a payload of empty sub-messages (two bytes each) unpacks into fifty
 * times its size, and the library has no such limit.
 *
 * A step produces one token for most requests.  As sub-messages these tokens took half of the router's time
 * for a token: to unpack, check and free one took four thousand instructions.  So they travel as records of
 * fixed size in one field of bytes. */
#include "proto/frame.h"
#include "proto/frame_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>

/* Limit of the memory for unpacking, as a multiple of the payload, plus a little for small payloads.  The
 * densest honest message (Tokens with one id in each answer) needs about ten times its packed size. */
#define MEMORY_FACTOR  32
#define MEMORY_FLOOR   (64 << 10)
#define UNKNOWN_MAX    (1u << 20)
#define HEADER_VERSION 4
#define HEADER_TYPE    6
#define HEADER_LENGTH  8

_Static_assert(HEADER_LENGTH + sizeof(uint32_t) == FRAME_HEADER_BYTES,
               "the length is the header's last field");

struct budget {
    size_t left_bytes;
};

static const ProtobufCMessageDescriptor *descriptor_of(uint16_t type)
{
    switch (type) {
#define X(name, number, ctype, snake, max_bytes)                                                             \
    case number:                                                                                             \
        return &baton__##snake##__descriptor;
        FRAME_TABLE(X)
#undef X
    }
    return NULL;
}

const char *frame_type_name(uint16_t type)
{
    switch (type) {
#define X(name, number, ctype, snake, max_bytes)                                                             \
    case number:                                                                                             \
        return #name;
        FRAME_TABLE(X)
#undef X
    }
    return "?";
}

bool frame_type_known(uint16_t type)
{
    return descriptor_of(type) != NULL;
}

uint32_t frame_max_bytes(uint16_t type)
{
    switch (type) {
#define X(name, number, ctype, snake, max_bytes)                                                             \
    case number:                                                                                             \
        return (max_bytes);
        FRAME_TABLE(X)
#undef X
    }
    return UNKNOWN_MAX;
}

void frame_header_pack(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES])
{
    put_u32(out, FRAME_MAGIC);
    put_u16(out + HEADER_VERSION, header->version);
    put_u16(out + HEADER_TYPE, header->type);
    put_u32(out + HEADER_LENGTH, header->len_bytes);
}

int frame_header_unpack(const uint8_t in[FRAME_HEADER_BYTES], struct fault *fault, struct frame_header *out)
{
    struct frame_header header = {
        .version = get_u16(in + HEADER_VERSION),
        .type = get_u16(in + HEADER_TYPE),
        .len_bytes = get_u32(in + HEADER_LENGTH),
    };

    if (get_u32(in) != FRAME_MAGIC)
        return fault_set(fault, E_PROTO, "not a Baton frame (magic %08x)", get_u32(in));
    if (header.version != FRAME_VERSION)
        return fault_set(fault, E_VERSION, "frame version %u, this side speaks %u", header.version,
                         FRAME_VERSION);
    if (header.len_bytes > frame_max_bytes(header.type))
        return fault_set(fault, E_PROTO, "%s frame (type %u) of %u bytes, at most %u are allowed",
                         frame_type_name(header.type), header.type, header.len_bytes,
                         frame_max_bytes(header.type));
    *out = header;
    return 0;
}

int frame_pack(enum frame_type type, const ProtobufCMessage *message, struct buf *out)
{
    size_t len_bytes;
    struct frame_header header = {.version = FRAME_VERSION, .type = (uint16_t)type};

    ASSERT(message->descriptor == descriptor_of((uint16_t)type));
    len_bytes = protobuf_c_message_get_packed_size(message);
    if (len_bytes > frame_max_bytes((uint16_t)type))
        return E_LIMIT;
    if (buf_reserve(out, FRAME_HEADER_BYTES + len_bytes) != 0)
        return E_NOMEM;
    header.len_bytes = (uint32_t)len_bytes;
    frame_header_pack(&header, out->data + out->len_bytes);
    protobuf_c_message_pack(message, out->data + out->len_bytes + FRAME_HEADER_BYTES);
    out->len_bytes += FRAME_HEADER_BYTES + len_bytes;
    out->data[out->len_bytes] = 0;
    return 0;
}

/* Counts all memory ever allocated, not the memory in use: a free gives nothing back, so one number is
 * enough. */
static void *budget_alloc(void *arg, size_t len_bytes)
{
    struct budget *budget = arg;

    if (len_bytes > budget->left_bytes)
        return NULL;
    budget->left_bytes -= len_bytes;
    return malloc(len_bytes);
}

static void frame_budget_free(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

int frame_unpack(enum frame_type type, struct bytes payload, struct fault *fault, ProtobufCMessage **out)
{
    const ProtobufCMessageDescriptor *descriptor = descriptor_of((uint16_t)type);
    struct budget budget = {.left_bytes = MEMORY_FLOOR + MEMORY_FACTOR * payload.len_bytes};
    ProtobufCAllocator allocator = {
        .alloc = budget_alloc, .free = frame_budget_free, .allocator_data = &budget};
    ProtobufCMessage *message;
    int err;

    if (descriptor == NULL)
        return fault_set(fault, E_PROTO, "unknown frame type %u", (unsigned)type);
    if (payload.len_bytes > frame_max_bytes((uint16_t)type))
        return fault_set(fault, E_PROTO, "%s: %zu bytes, at most %u are allowed", descriptor->short_name,
                         payload.len_bytes, frame_max_bytes((uint16_t)type));

    message = protobuf_c_message_unpack(descriptor, &allocator, payload.len_bytes, payload.data);
    if (message == NULL)
        return fault_set(fault, E_PROTO, "%s: the payload is malformed", descriptor->short_name);
    err = frame_check(message, fault);
    if (err != 0) {
        frame_message_free(message);
        return err;
    }
    *out = message;
    return 0;
}

void frame_message_free(ProtobufCMessage *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL); /* stays the default, free() */
}

void frame_single_pack(const struct frame_single *single, uint8_t out[FRAME_SINGLE_BYTES])
{
    put_u64(out, single->request);
    put_u32(out + 8, single->index);
    put_u32(out + 12, single->id);
}

struct frame_single frame_single_unpack(const uint8_t in[FRAME_SINGLE_BYTES])
{
    return (struct frame_single){.request = get_u64(in), .index = get_u32(in + 8), .id = get_u32(in + 12)};
}
