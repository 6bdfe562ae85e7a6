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
    int status;           /* of HEADERS; 0: none in it */
};

struct h2_peer {
    int fd;
    struct buf in;
    size_t used_bytes; /* of in, by the frame returned last */
    nghttp2_hd_inflater *inflater;
};

/* Connects and sends preface and empty SETTINGS. */
void h2_peer_open(struct h2_peer *peer, uint16_t port);
void h2_peer_close(struct h2_peer *peer);
/* False: the server has closed. */
bool h2_send(struct h2_peer *peer, uint8_t type, uint8_t flags, int32_t stream, struct bytes payload);
bool h2_send_u32(struct h2_peer *peer, uint8_t type, int32_t stream, uint32_t value);
/* SETTINGS with one entry. */
bool h2_send_setting(struct h2_peer *peer, uint16_t id, uint32_t value);
/* A header block in plain literals: ":method" and so on, name and value in turn, NULL at the end. */
void h2_put_block(struct buf *out, const char *const *pairs);
/* HEADERS with END_HEADERS; more (may be NULL) are further fields. */
bool h2_ask(struct h2_peer *peer, int32_t stream, const char *method_and_path, bool is_all,
            const char *const *more);
/* The next frame; false: the end, or nothing within timeout_ms. */
bool h2_next(struct h2_peer *peer, unsigned timeout_ms, struct h2_frame *out);
/* The next frame of that type on that stream (-1: any), others dropped but for the DATA gathered in body (may
 * be NULL).  5 s. */
bool h2_await(struct h2_peer *peer, uint8_t type, int32_t stream, struct buf *body, struct h2_frame *out);
/* A whole answer: its status, its body; 0: it did not come whole. */
int h2_answer(struct h2_peer *peer, int32_t stream, struct buf *body);
/* Error code of a RST_STREAM, or of a GOAWAY. */
uint32_t h2_error_of(const struct h2_frame *frame);

#endif
