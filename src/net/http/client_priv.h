/* SPDX-License-Identifier: Apache-2.0 */
/* What the client's two files share: client.c has the client and its calls, client_conn.c the connections,
 * which read the answers. */
#ifndef NET_HTTP_CLIENT_PRIV_H
#define NET_HTTP_CLIENT_PRIV_H

#include <event2/bufferevent.h>

#include "base/list.h"
#include "net/http/chunked_priv.h"
#include "net/http/client.h"
#include "net/link/addr.h"

enum { CLIENT_MAX_ADDRESSES = 8 };

struct server_address {
    struct sockaddr_storage sa;
    socklen_t sa_bytes;
};

struct http_client {
    struct http_client_opts opts;
    char host[ADDR_TEXT_BYTES + 256]; /* as the host field wants it */
    struct server_address addresses[CLIENT_MAX_ADDRESSES];
    unsigned n_addresses;
    unsigned good_address; /* the last that could be connected to: tried first */
    struct list conns;     /* all */
    struct list idle;      /* of them, most recently used first */
    uint32_t n_idle;
    uint32_t n_calls;
};

enum client_conn_state {
    CLIENT_CONN_CONNECTING, /* has a call that waits */
    CLIENT_CONN_CALLING,    /* has a call, request sent or being sent */
    CLIENT_CONN_IDLE,       /* has none */
};

struct client_conn {
    struct http_client *client;
    struct list in_conns;
    struct list in_idle; /* linked while IDLE */
    enum client_conn_state state;
    struct bufferevent *bev;
    struct ev_timer *timer; /* CONNECTING: connect_ns; IDLE: idle_ns */
    struct http_call *call;
    unsigned n_tried; /* addresses */
    int connect_errno;
    bool is_used;    /* an answer came whole before */
    bool is_reading; /* take_answer() is on the stack: it frees a dead connection */
    bool is_dead;
};

struct http_call {
    struct http_client *client;
    struct client_conn *conn;
    struct buf request; /* whole, for a repeat */
    struct ev_timer *deadline;
    const struct http_call_events *events;
    void *arg;
    bool is_for_head;
    bool may_repeat;
    bool has_head;
    bool has_bytes; /* of the answer */
    bool keeps_alive;
    enum http_framing framing;
    uint64_t left_bytes; /* HTTP_BODY_LENGTH */
    struct http_chunked chunked;
};

/* A connection without a call and without a socket; NULL: out of memory. */
struct client_conn *http_client_conn_new(struct http_client *client);
void http_client_conn_attach(struct client_conn *conn, struct http_call *call);
/* Tries address after address; when none is left the call fails, later, from the loop. */
void http_client_conn_open(struct client_conn *conn);
/* Takes an idle connection for a call. */
void http_client_conn_leave_idle(struct client_conn *conn);
/* Closes; has no call any more. A connection that is being read is only marked, and freed by its reader. */
void http_client_conn_close(struct client_conn *conn);
/* Closes, and ends the call if there is one. */
void http_client_conn_fail(struct client_conn *conn, int result, const char *why);

/* The call's last act: on_end, after which it is gone. */
void http_client_call_end(struct http_call *call, int result, const struct fault *fault);

#endif
