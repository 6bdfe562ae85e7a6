/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives directly on the socket.
 *
 * Through the output buffer, each event of a stream costs an allocation, two changes of the epoll set, a
 * wakeup and then the write. With ten thousand streams that is most of the work. So if the output is empty
 * and the connection is a plain socket, these functions pass a piece to the kernel directly. The rest goes
 * through the buffer; so does a piece that fails, and the loop then finds the error.
 *
 * The input buffer takes at most 4 KiB per turn: a body of 220 KB took 54 turns of the loop with four
 * system calls each, and one more copy. So a long body is read from the kernel straight into the body. The
 * loop handles ends and errors: it reads the same socket and finds them. */
#include "net/http/conn_priv.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/err.h"

#define MAX_FRAME_BYTES 4096 /* longer pieces are rare, and copying them costs more than it saves */
#define MAX_CHUNK_HEAD  5
#define MIN_WAITING     8192 /* fewest waiting bytes that are worth a direct read */

/* Writes the length in hexadecimal and a line end. */
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

/* Returns -1 if TLS is in between. */
static int direct_fd(struct http_conn *conn)
{
    if (conn->direct_fd == 0)
        conn->direct_fd = bufferevent_openssl_get_ssl(conn->bev) == NULL ? bufferevent_getfd(conn->bev) : -1;
    return conn->direct_fd;
}

int http_conn_receive_now(struct http_conn *conn, size_t max_bytes, struct buf *out, size_t *received_out)
{
    int fd = direct_fd(conn), waiting = 0;
    size_t n;
    ssize_t got;

    *received_out = 0;
    if (fd < 0 || max_bytes < MIN_WAITING || ioctl(fd, FIONREAD, &waiting) < 0 || waiting < MIN_WAITING)
        return 0;
    n = (size_t)waiting < max_bytes ? (size_t)waiting : max_bytes;
    if (buf_reserve(out, n) < 0)
        return E_NOMEM;
    got = recv(fd, out->data + out->len_bytes, n, MSG_DONTWAIT);
    if (got > 0) {
        out->len_bytes += (size_t)got;
        *received_out = (size_t)got;
    }
    out->data[out->len_bytes] = '\0';
    return 0;
}

bool http_conn_send_now(struct http_conn *conn, struct bytes piece, bool is_chunking)
{
    char frame[MAX_FRAME_BYTES];
    size_t len = 0;
    ssize_t sent;

    if (conn->has_unsent || direct_fd(conn) < 0 || piece.len_bytes > sizeof(frame) - MAX_CHUNK_HEAD - 2)
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
