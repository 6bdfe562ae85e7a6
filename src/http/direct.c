/* SPDX-License-Identifier: Apache-2.0 */
/* Sending at once.
 *
 * Through the output buffer every event of a stream costs an allocation, two changes of what epoll watches, a
 * wakeup and only then the write.  With ten thousand streams that is most of the work.  So when nothing waits
 * and the connection is a plain socket, a piece goes to the kernel from here; what the kernel does not take
 * goes the long way, and so does whatever fails (the loop then finds the error where it looks for errors). */
#include "http/conn_priv.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_FRAME_BYTES 4096 /* longer ones are rare, and their copy would cost more than it saves */
#define MAX_CHUNK_HEAD  5

/* The length in hexadecimal and a line end. */
static size_t put_chunk_head(size_t len_bytes, char *out)
{
    static const char digits[] = "0123456789abcdef";
    unsigned shift = 8;
    size_t n = 0;

    if (len_bytes < 16)
        shift = 0;
    else if (len_bytes < 256)
        shift = 4;
    for (unsigned i = 0; i <= shift / 4; i++)
        out[n++] = digits[len_bytes >> (shift - 4 * i) & 15];
    out[n++] = '\r';
    out[n++] = '\n';
    return n;
}

bool http_conn_send_now(struct http_conn *conn, struct bytes piece, bool is_chunking)
{
    char frame[MAX_FRAME_BYTES];
    size_t len = 0;
    ssize_t sent;

    if (conn->direct_fd == 0)
        conn->direct_fd = bufferevent_openssl_get_ssl(conn->bev) == NULL ? bufferevent_getfd(conn->bev) : -1;
    if (conn->has_unsent || conn->direct_fd < 0 || piece.len_bytes > sizeof(frame) - MAX_CHUNK_HEAD - 2)
        return false;
    if (is_chunking)
        len = put_chunk_head(piece.len_bytes, frame);
    memcpy(frame + len, piece.data, piece.len_bytes);
    len += piece.len_bytes;
    if (is_chunking) {
        memcpy(frame + len, "\r\n", 2);
        len += 2;
    }
    sent = send(conn->direct_fd, frame, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return false;
    if ((size_t)sent == len)
        return true;
    if (evbuffer_add(bufferevent_get_output(conn->bev), frame + sent, len - (size_t)sent) < 0)
        http_conn_break(conn, HTTP_ABORT_SERVER);
    http_conn_wrote(conn);
    return true;
}
