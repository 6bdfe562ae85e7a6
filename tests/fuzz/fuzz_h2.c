/* SPDX-License-Identifier: Apache-2.0 */
/* Any frames through an HTTP/2 connection of the server.
 *
 * The input is a script, because random bytes are hardly ever frames.  The first byte says whether preface
 * and SETTINGS are sent first.  Then each step is four bytes and a payload:
 *
 *     kind: 0-9 that frame type; 10 a whole request by HEADERS; 11 raw bytes; 12 an unknown type
 *     flags, stream (small), length
 *
 * The output must be whole frames of legal size on legal streams.  conn_drive checks that every exchange ends
 * exactly once. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conn_drive.h"

#define FRAME_HEAD_BYTES 9
#define MAX_FRAME_BYTES  16384
#define MAX_STEPS        200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_frame(struct buf *out, uint8_t type, uint8_t flags, uint32_t stream, struct bytes payload)
{
    const uint8_t head[FRAME_HEAD_BYTES] = {(uint8_t)(payload.len_bytes >> 16),
                                            (uint8_t)(payload.len_bytes >> 8),
                                            (uint8_t)payload.len_bytes,
                                            type,
                                            flags,
                                            (uint8_t)(stream >> 24),
                                            (uint8_t)(stream >> 16),
                                            (uint8_t)(stream >> 8),
                                            (uint8_t)stream};

    buf_append(out, head, sizeof(head));
    buf_append(out, payload.data, payload.len_bytes);
}

/* A request for the path that payload chooses, in HPACK's static table and plain literals. */
static void put_request(struct buf *out, uint8_t flags, uint32_t stream, struct bytes payload)
{
    static const char kinds[] = "elshnf";
    uint8_t kind = payload.len_bytes > 0 ? (uint8_t)kinds[payload.data[0] % 6] : 'e';
    uint8_t block[64] = {0x83, 0x86, 0x41, 1, 'a', 0x44, 2, '/', kind}; /* POST, http, authority, path */
    size_t n = 9;

    if (payload.len_bytes > 1 && (payload.data[1] & 1) != 0) { /* content-length: 3 */
        const uint8_t length[] = {0x0f, 0x0d, 1, '3'};

        memcpy(block + n, length, sizeof(length));
        n += sizeof(length);
    }
    put_frame(out, 1, flags, stream, bytes_of(block, n));
    if (payload.len_bytes > 2)
        put_frame(out, 0, payload.data[2] & 1, stream, bytes_of(payload.data + 2, payload.len_bytes - 2));
}

static void check_frames(struct bytes text)
{
    size_t at = 0;

    while (at + FRAME_HEAD_BYTES <= text.len_bytes) {
        const uint8_t *head = text.data + at;
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];

        ASSERT(len <= MAX_FRAME_BYTES && head[3] <= 9 && (head[5] & 0x80) == 0);
        at += FRAME_HEAD_BYTES + len;
    }
}

static size_t step(struct drive *drive, const uint8_t *data, size_t size)
{
    uint8_t kind = data[0] % 13;
    uint32_t stream = data[2] % 16;
    size_t len = data[3] > size - 4 ? size - 4 : data[3];
    struct bytes payload = bytes_of(data + 4, len);
    struct buf out = {0};

    if (kind < 10)
        put_frame(&out, kind, data[1], stream, payload);
    else if (kind == 10)
        put_request(&out, data[1] | 4, stream, payload);
    else if (kind == 11)
        buf_append(&out, payload.data, payload.len_bytes);
    else
        put_frame(&out, 0x42, data[1], stream, payload);
    drive_send(drive, buf_view(&out));
    buf_fini(&out);
    return 4 + len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    struct drive drive;
    size_t at = 1;

    if (size < 1)
        return 0;
    drive_begin(&drive, true);
    if (data[0] % 8 != 7)
        drive_send(&drive, bytes_of(preface, sizeof(preface) - 1));
    for (unsigned n = 0; at + 4 <= size && n < MAX_STEPS; n++)
        at += step(&drive, data + at, size - at);
    if (data[0] % 8 != 7)
        check_frames(buf_view(&drive.answer));
    drive_end(&drive);
    return 0;
}
