/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a stream of control frames, as a link reads it.  A frame that unpacks must pack again into a
 * frame that unpacks. */
#include "proto/frame.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(enum frame_type type, const ProtobufCMessage *message)
{
    struct buf buf = {0};
    ProtobufCMessage *back;

    /* May be longer than the input,
     * because numbers may have been written with fewer bytes than ours; at most twice. */
    if (frame_pack(type, message, &buf) == 0) {
        struct bytes payload = bytes_of(buf.data + FRAME_HEADER_BYTES, buf.len_bytes - FRAME_HEADER_BYTES);

        if (frame_unpack(type, payload, NULL, &back) == 0)
            frame_message_free(back);
    }
    buf_fini(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size >= FRAME_HEADER_BYTES) {
        struct frame_header header;
        struct fault fault;
        ProtobufCMessage *message;

        if (frame_header_unpack(data, &fault, &header) != 0)
            return 0;
        data += FRAME_HEADER_BYTES;
        size -= FRAME_HEADER_BYTES;
        if (header.len_bytes > size)
            header.len_bytes = (uint32_t)size; /* a frame cut short still exercises the unpacker */
        if (frame_unpack(header.type, bytes_of(data, header.len_bytes), &fault, &message) == 0) {
            again(header.type, message);
            frame_message_free(message);
        }
        data += header.len_bytes;
        size -= header.len_bytes;
    }
    return 0;
}
