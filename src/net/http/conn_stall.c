/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's output, and the deadline of a client that does not read it.
 *
 *      written ──> stall timer ──output left meanwhile──> again
 *                      └──none left for stall_ns, or too much waits that long──> aborted: slow reader */
#include "net/http/conn_priv.h"

#include <event2/buffer.h>

#include "base/clock.h"

void http_conn_wrote(struct http_conn *conn)
{
    if (conn->is_stall_running)
        return;
    conn->is_stall_running = true;
    conn->progress_ns = clock_now_ns();
    ev_timer_start(conn->stall, conn->server->limits.stall_ns);
}

size_t http_conn_unsent(const struct http_conn *conn)
{
    return evbuffer_get_length(bufferevent_get_output(conn->bev));
}

void http_conn_on_stall(void *arg)
{
    struct http_conn *conn = arg;
    uint64_t stall_ns = conn->server->limits.stall_ns;
    uint64_t now = clock_now_ns();
    uint64_t at = conn->progress_ns + stall_ns;

    conn->is_stall_running = false;
    if (http_conn_unsent(conn) == 0)
        return;
    if (conn->over_since_ns != 0 && conn->over_since_ns + stall_ns < at)
        at = conn->over_since_ns + stall_ns;
    if (now >= at) {
        http_conn_abort(conn, HTTP_ABORT_SLOW_READER);
    } else {
        conn->is_stall_running = true;
        ev_timer_start(conn->stall, at - now);
    }
    http_conn_reap(conn);
}

void http_conn_on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
{
    struct http_conn *conn = arg;

    conn->has_unsent = info->orig_size + info->n_added > info->n_deleted;
    if (info->n_deleted > 0 || info->orig_size == 0)
        conn->progress_ns = clock_now_ns();
}
