/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP/2 client that sends exactly the given frames. */
#ifndef TESTS_HTTP_H2PEER_H
#define TESTS_HTTP_H2PEER_H

#include <nghttp2/nghttp2.h>

#include "base/bytes.h"

struct h2_frame {
    uint8_t type;
    uint8_t flags;
    int32_t stream;
    struct bytes payload; /* valid until the next call */
    int status;           /* status in HEADERS; 0: none */
};

struct h2_peer {
    int fd;
    struct buf in;
    size_t used_bytes; /* bytes of in that the last returned frame used */
    nghttp2_hd_inflater *inflater;
};

/* Connects and sends preface and empty SETTINGS. */
void h2_peer_open(struct h2_peer *peer, uint16_t port);
void h2_peer_close(struct h2_peer *peer);
/* False: the server has closed the connection. */
bool h2_send(struct h2_peer *peer, uint8_t type, uint8_t flags, int32_t stream, struct bytes payload);
bool h2_send_u32(struct h2_peer *peer, uint8_t type, int32_t stream, uint32_t value);
/* SETTINGS with one entry. */
bool h2_send_setting(struct h2_peer *peer, uint16_t id, uint32_t value);
/* Appends a header block of plain literals: ":method" and so on, name and value in turn, NULL at the end. */
void h2_put_block(struct buf *out, const char *const *pairs);
/* Sends HEADERS with END_HEADERS; more (may be NULL) has further fields. */
bool h2_ask(struct h2_peer *peer, int32_t stream, const char *method_and_path, bool is_all,
            const char *const *more);
/* Returns the next frame; false: end of stream, or none within timeout_ms. */
bool h2_next(struct h2_peer *peer, unsigned timeout_ms, struct h2_frame *out);
/* Returns the next frame of that type on that stream (-1: any) within 5 s.  Drops others, but gathers DATA in
 * body (may be NULL). */
bool h2_await(struct h2_peer *peer, uint8_t type, int32_t stream, struct buf *body, struct h2_frame *out);
/* Reads a whole answer and its body.  Returns its status; 0: it was not complete. */
int h2_answer(struct h2_peer *peer, int32_t stream, struct buf *body);
/* Error code of a RST_STREAM, or of a GOAWAY. */
uint32_t h2_error_of(const struct h2_frame *frame);

#endif
