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
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_FRAME_BYTES 4096 /* longer ones are rare, and their copy would cost more than it saves */
#define MAX_CHUNK_HEAD  20

bool http_conn_send_now(struct http_conn *conn, struct bytes piece, bool is_chunking)
{
    struct evbuffer *output = bufferevent_get_output(conn->bev);
    char frame[MAX_FRAME_BYTES];
    size_t len = 0;
    ssize_t sent;

    if (evbuffer_get_length(output) > 0 || piece.len_bytes > sizeof(frame) - MAX_CHUNK_HEAD - 2 ||
        bufferevent_openssl_get_ssl(conn->bev) != NULL)
        return false;
    if (is_chunking)
        len = (size_t)snprintf(frame, MAX_CHUNK_HEAD, "%zx\r\n", piece.len_bytes);
    memcpy(frame + len, piece.data, piece.len_bytes);
    len += piece.len_bytes;
    if (is_chunking) {
        memcpy(frame + len, "\r\n", 2);
        len += 2;
    }
    sent = send(bufferevent_getfd(conn->bev), frame, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return false;
    if ((size_t)sent == len)
        return true;
    if (evbuffer_add(output, frame + sent, len - (size_t)sent) < 0)
        http_conn_break(conn, HTTP_ABORT_SERVER);
    http_conn_wrote(conn);
    return true;
}
