/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies: from the connection's input to the exchange, counted.
 *
 * The server reserves no memory for a declared length: the body grows as it arrives. All bodies being
 * received share one budget, so that many connections cannot fill the memory with incomplete bodies. */
#include "net/http/conn_priv.h"

#include <event2/buffer.h>

#include "base/err.h"

#define RESERVE_FROM_BYTES ((size_t)256 << 10)
#define MAX_TURN_BYTES     ((size_t)256 << 10) /* past the input, per turn; then others have their turn */

static void http_body_count(struct http_exchange *x, size_t n)
{
    x->counted_bytes += n;
    x->conn->server->bodies_bytes += n;
}

/* Growing by doubling would copy up to half of the largest body at a time. So after its first quarter of a
 * megabyte a body reserves addresses for the rest at once; memory comes as it is written. If that fails,
 * the body grows by doubling. coming_bytes are already subtracted from the bytes left and are about to be
 * added. */
static void reserve_rest(struct http_exchange *x, size_t coming_bytes)
{
    uint64_t max_bytes = x->conn->server->limits.max_body_bytes;
    uint64_t whole_bytes = x->body.len_bytes + coming_bytes + x->body_left_bytes;

    if (x->head.framing != HTTP_BODY_LENGTH || whole_bytes > max_bytes)
        whole_bytes = max_bytes;
    if (x->body.len_bytes < RESERVE_FROM_BYTES || x->body.cap_bytes > whole_bytes)
        return;
    (void)buf_reserve(&x->body, (size_t)whole_bytes - x->body.len_bytes);
    x->body.is_bad = false;
}

int http_body_add(struct http_exchange *x, struct bytes piece)
{
    struct http_server *server = x->conn->server;
    int rc;

    reserve_rest(x, piece.len_bytes);
    rc = piece.len_bytes == 0 ? 0 : buf_append(&x->body, piece.data, piece.len_bytes);
    if (rc < 0)
        return rc;
    http_body_count(x, piece.len_bytes);
    return x->body_received_bytes > server->limits.max_body_bytes ? E_RANGE : 0;
}

/* Reads the kernel's bytes of a body with known length; its input buffer is empty. */
static int take_now(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;

    reserve_rest(x, 0);
    for (size_t taken = 0, n = 1; n > 0 && taken < MAX_TURN_BYTES && x->body_left_bytes > 0; taken += n) {
        size_t left = MAX_TURN_BYTES - taken;
        int rc = http_conn_receive_now(conn, x->body_left_bytes < left ? (size_t)x->body_left_bytes : left,
                                       &x->body, &n);

        if (rc < 0)
            return rc;
        x->body_left_bytes -= n;
        x->body_received_bytes += n;
        http_body_count(x, n);
    }
    x->is_body_whole = x->body_left_bytes == 0;
    return 0;
}

int http_body_take(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;
    struct evbuffer *input = bufferevent_get_input(conn->bev);

    while (!x->is_body_whole && evbuffer_get_length(input) > 0) {
        size_t len = evbuffer_get_contiguous_space(input);
        struct bytes text = bytes_of(evbuffer_pullup(input, (ssize_t)len), len);
        struct bytes data = text;
        size_t used;
        int rc = 0;

        if (x->head.framing == HTTP_BODY_LENGTH) {
            if (data.len_bytes > x->body_left_bytes)
                data.len_bytes = (size_t)x->body_left_bytes;
            used = data.len_bytes;
            x->body_left_bytes -= used;
            x->is_body_whole = x->body_left_bytes == 0;
        } else {
            rc = http_chunked_take(&x->chunked, text, &used, &data);
            if (rc < 0)
                return rc;
            x->is_body_whole = rc == 1;
            /* Refuse a chunk that cannot end within the limit at once. */
            if (data.len_bytes > 0 && x->chunked.left_bytes > conn->server->limits.max_body_bytes)
                return E_RANGE;
        }
        x->body_received_bytes += data.len_bytes;
        if (conn->state != CONN_DISCARD)
            rc = http_body_add(x, data);
        else
            rc = x->body_received_bytes > conn->server->limits.max_body_bytes ? E_RANGE : 0;
        evbuffer_drain(input, used);
        if (rc < 0)
            return rc;
    }
    if (!x->is_body_whole && conn->state == CONN_BODY && x->head.framing == HTTP_BODY_LENGTH) {
        int rc = take_now(conn);

        if (rc < 0)
            return rc;
    }
    return x->is_body_whole;
}

void http_body_uncount(struct http_exchange *x)
{
    x->conn->server->bodies_bytes -= x->counted_bytes;
    x->counted_bytes = 0;
}
