/* SPDX-License-Identifier: Apache-2.0 */
/* Builds frames by hand; nghttp2 only decodes header blocks of answers. */
#include "h2peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw.h"

#define FRAME_HEAD_BYTES 9

void h2_peer_open(struct h2_peer *peer, uint16_t port)
{
    memset(peer, 0, sizeof(*peer));
    assert_int_equal(nghttp2_hd_inflate_new(&peer->inflater), 0);
    peer->fd = raw_connect(port);
    raw_send_str(peer->fd, NGHTTP2_CLIENT_MAGIC);
    h2_send(peer, NGHTTP2_SETTINGS, 0, 0, bytes_of(NULL, 0));
}

void h2_peer_close(struct h2_peer *peer)
{
    close(peer->fd);
    nghttp2_hd_inflate_del(peer->inflater);
    buf_fini(&peer->in);
}

bool h2_send(struct h2_peer *peer, uint8_t type, uint8_t flags, int32_t stream, struct bytes payload)
{
    const uint8_t head[FRAME_HEAD_BYTES] = {(uint8_t)(payload.len_bytes >> 16),
                                            (uint8_t)(payload.len_bytes >> 8),
                                            (uint8_t)payload.len_bytes,
                                            type,
                                            flags,
                                            (uint8_t)((uint32_t)stream >> 24),
                                            (uint8_t)((uint32_t)stream >> 16),
                                            (uint8_t)((uint32_t)stream >> 8),
                                            (uint8_t)stream};
    struct buf frame = {0};
    bool is_sent;

    buf_append(&frame, head, sizeof(head));
    buf_append(&frame, payload.data, payload.len_bytes);
    is_sent = raw_send(peer->fd, frame.data, frame.len_bytes);
    buf_fini(&frame);
    return is_sent;
}

bool h2_send_u32(struct h2_peer *peer, uint8_t type, int32_t stream, uint32_t value)
{
    const uint8_t payload[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                                (uint8_t)value};

    return h2_send(peer, type, 0, stream, bytes_of(payload, 4));
}

bool h2_send_setting(struct h2_peer *peer, uint16_t id, uint32_t value)
{
    const uint8_t payload[6] = {(uint8_t)(id >> 8),     (uint8_t)id,           (uint8_t)(value >> 24),
                                (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};

    return h2_send(peer, NGHTTP2_SETTINGS, 0, 0, bytes_of(payload, 6));
}

static void put_string(struct buf *out, const char *text)
{
    size_t len = strlen(text);
    size_t rest = len;

    if (len < 127) {
        buf_append_byte(out, (uint8_t)len);
    } else {
        buf_append_byte(out, 127);
        for (rest -= 127; rest >= 128; rest /= 128)
            buf_append_byte(out, (uint8_t)(rest % 128 + 128));
        buf_append_byte(out, (uint8_t)rest);
    }
    buf_append(out, text, len);
}

void h2_put_block(struct buf *out, const char *const *pairs)
{
    for (; pairs != NULL && pairs[0] != NULL; pairs += 2) {
        buf_append_byte(out, 0); /* a literal with a new name, not indexed */
        put_string(out, pairs[0]);
        put_string(out, pairs[1]);
    }
}

bool h2_ask(struct h2_peer *peer, int32_t stream, const char *method_and_path, bool is_all,
            const char *const *more)
{
    const char *path = strchr(method_and_path, ' ') + 1;
    char method[16] = "";
    const char *const pairs[] = {":method", method,       ":path", path, ":scheme",
                                 "http",    ":authority", "a",     NULL};
    struct buf block = {0};
    bool is_sent;

    memcpy(method, method_and_path, (size_t)(path - method_and_path) - 1);
    h2_put_block(&block, pairs);
    h2_put_block(&block, more);
    is_sent = h2_send(peer, NGHTTP2_HEADERS, is_all ? 5 : 4, stream, buf_view(&block));
    buf_fini(&block);
    return is_sent;
}

static void inflate(struct h2_peer *peer, struct h2_frame *frame)
{
    struct bytes text = frame->payload;
    int flags = 0;

    while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
        nghttp2_nv nv;
        ssize_t n = nghttp2_hd_inflate_hd2(peer->inflater, &nv, &flags, text.data, text.len_bytes, 1);

        assert_true(n >= 0);
        text = bytes_of(text.data + n, text.len_bytes - (size_t)n);
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0 && nv.namelen == 7 && memcmp(nv.name, ":status", 7) == 0)
            frame->status = atoi((const char *)nv.value);
    }
    nghttp2_hd_inflate_end_headers(peer->inflater);
}

bool h2_next(struct h2_peer *peer, unsigned timeout_ms, struct h2_frame *out)
{
    unsigned n_waits = 0; /* waits of a millisecond each: a process that was stopped for a while has waited
                           * only one */

    buf_consume(&peer->in, peer->used_bytes);
    peer->used_bytes = 0;
    for (;;) {
        const uint8_t *d = peer->in.data;
        size_t had_bytes = peer->in.len_bytes;
        size_t len;

        if (had_bytes >= FRAME_HEAD_BYTES &&
            had_bytes >= FRAME_HEAD_BYTES + (len = (size_t)d[0] << 16 | (size_t)d[1] << 8 | d[2])) {
            peer->used_bytes = FRAME_HEAD_BYTES + len;
            *out = (struct h2_frame){.type = d[3], .flags = d[4]};
            out->stream = (int32_t)((uint32_t)d[5] << 24 | (uint32_t)d[6] << 16 | (uint32_t)d[7] << 8 | d[8]);
            out->payload = bytes_of(d + FRAME_HEAD_BYTES, len);
            if (out->type == NGHTTP2_HEADERS)
                inflate(peer, out);
            return true;
        }
        if (n_waits++ >= timeout_ms)
            return false;
        if (raw_read_until(peer->fd, NULL, 1, &peer->in) && peer->in.len_bytes == had_bytes)
            return false; /* end of stream */
    }
}

bool h2_await(struct h2_peer *peer, uint8_t type, int32_t stream, struct buf *body, struct h2_frame *out)
{
    while (h2_next(peer, 5000, out)) {
        if (body != NULL && out->type == NGHTTP2_DATA && out->stream == stream)
            buf_append(body, out->payload.data, out->payload.len_bytes);
        if (out->type == type && (stream < 0 || out->stream == stream))
            return true;
    }
    return false;
}

int h2_answer(struct h2_peer *peer, int32_t stream, struct buf *body)
{
    struct h2_frame frame;
    int status = 0;

    while (h2_next(peer, 5000, &frame)) {
        if (frame.stream != stream)
            continue;
        if (frame.type == NGHTTP2_RST_STREAM)
            return 0;
        if (frame.type == NGHTTP2_HEADERS)
            status = frame.status;
        else if (frame.type == NGHTTP2_DATA && body != NULL)
            buf_append(body, frame.payload.data, frame.payload.len_bytes);
        if (status != 100 && (frame.type == NGHTTP2_HEADERS || frame.type == NGHTTP2_DATA) &&
            (frame.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            return status;
    }
    return 0;
}

uint32_t h2_error_of(const struct h2_frame *frame)
{
    const uint8_t *d = frame->payload.data + (frame->type == NGHTTP2_GOAWAY ? 4 : 0);

    return (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3];
}
