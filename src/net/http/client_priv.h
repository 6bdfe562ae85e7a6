/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the client's two files: client.c has the client and its calls; client_conn.c has the
 * connections, which read the answers. */
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
    char host[ADDR_TEXT_BYTES + 256]; /* text of the host field */
    struct server_address addresses[CLIENT_MAX_ADDRESSES];
    unsigned n_addresses;
    unsigned good_address; /* index of the last address that worked; tried first */
    struct list conns;     /* all connections */
    struct list idle;      /* idle connections, most recently used first */
    uint32_t n_idle;
    uint32_t n_calls;
};

enum client_conn_state {
    CLIENT_CONN_CONNECTING, /* has a call that waits */
    CLIENT_CONN_CALLING,    /* has a call; its request is sent or being sent */
    CLIENT_CONN_IDLE,       /* has no call */
};

struct client_conn {
    struct http_client *client;
    struct list in_conns;
    struct list in_idle; /* linked while IDLE */
    enum client_conn_state state;
    struct bufferevent *bev;
    struct ev_timer *timer; /* CONNECTING: connect_ns; IDLE: idle_ns */
    struct http_call *call;
    unsigned n_tried; /* number of addresses tried */
    int connect_errno;
    bool is_used;    /* has already carried a complete answer */
    bool is_reading; /* take_answer() is on the stack and will free a dead connection */
    bool is_dead;
};

struct http_call {
    struct http_client *client;
    struct client_conn *conn;
    struct buf request; /* the whole request, kept for a repeat */
    struct ev_timer *deadline;
    const struct http_call_events *events;
    void *arg;
    bool is_for_head;
    bool may_repeat;
    bool has_head;
    bool has_bytes; /* a byte of the answer has arrived */
    bool keeps_alive;
    enum http_framing framing;
    uint64_t left_bytes; /* HTTP_BODY_LENGTH: bytes of the body still to come */
    struct http_chunked chunked;
};

/* Makes a connection without a call and without a socket. NULL: out of memory. */
struct client_conn *http_client_conn_new(struct http_client *client);
void http_client_conn_attach(struct client_conn *conn, struct http_call *call);
/* Tries the addresses one by one. If all fail, the call fails later, from the loop. */
void http_client_conn_open(struct client_conn *conn);
/* Removes the connection from the idle list for a call. */
void http_client_conn_leave_idle(struct client_conn *conn);
/* Closes a connection that has no call any more. If it is being read, only marks it; its reader frees it. */
void http_client_conn_close(struct client_conn *conn);
/* Closes the connection and ends its call, if it has one. */
void http_client_conn_fail(struct client_conn *conn, int result, const char *why);

/* Calls on_end and frees the call. */
void http_client_call_end(struct http_call *call, int result, const struct fault *fault);

#endif
