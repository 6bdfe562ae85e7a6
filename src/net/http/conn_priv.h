/* SPDX-License-Identifier: Apache-2.0 */
/* A server's connections, shared by server.c (accepting), conn_open.c (making and freeing), conn.c (the state
 * machine), exchange.c and answer.c (requests and answers), and by what stands behind HTTP/2 (h2_priv.h). */
#ifndef NET_HTTP_CONN_PRIV_H
#define NET_HTTP_CONN_PRIV_H

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/hashmap.h"
#include "base/list.h"
#include "base/event/strangers.h"
#include "base/event/work.h"
#include "net/http/chunked_priv.h"
#include "net/http/response.h"
#include "net/http/server.h"
#include "net/link/stranger_counts.h"

#define HTTP_MAX_LISTENERS 16
/* A stream that ignores on_pause is cut when this many times max_queue_bytes wait. */
#define HTTP_HARD_QUEUE_FACTOR 4

enum http_conn_state {
    CONN_HANDSHAKE, /* TLS is being agreed on */
    CONN_IDLE,      /* no byte of the next request is here */
    CONN_HEAD,      /* part of a head is here */
    CONN_BODY,      /* the head was accepted; its body is being read */
    CONN_RUNNING,   /* the handler has the whole request and has not finished its answer */
    CONN_DISCARD, /* answered before the body was read: the rest is read and dropped, then the next request */
    CONN_H2,     /* HTTP/2: its streams have lives of their own (h2_priv.h), and this connection's exchange is
                    unused */
    CONN_LINGER, /* answered for the last time: sends what is left, closes its side, reads on until the client
                    closes */
    CONN_DEAD    /* to be freed by whoever is at the top of the call stack */
};

enum http_answer_state {
    ANSWER_NONE,      /* not begun */
    ANSWER_STREAMING, /* http_reply_begin was called */
    ANSWER_DONE
};

struct http_exchange { /* embedded in its connection, reused; or in its stream; what a write needs is first */
    struct http_conn *conn;
    struct h2_stream *stream; /* NULL: HTTP/1 */
    enum http_answer_state answer;
    bool is_chunking; /* the answer is sent in chunks */
    bool is_body_whole;
    bool is_seen;          /* on_head was called */
    struct http_head head; /* offsets into head_text */
    struct buf head_text;
    struct buf body;
    struct http_chunked chunked;
    uint64_t body_left_bytes; /* HTTP_BODY_LENGTH: still to come */
    uint64_t body_received_bytes;
    uint64_t counted_bytes; /* of the server's bodies_bytes */
    uint64_t began_ns;
    void *user;
};

struct http_address { /* one client address */
    uint8_t key[16];
    uint32_t n_conns;
};

struct http_conn { /* what a write needs comes first, up to the beginning of exchange */
    struct http_server *server;
    struct bufferevent *bev;
    int direct_fd;   /* 0: not looked up yet; -1: not a plain socket (direct.c) */
    bool has_unsent; /* the output is not empty */
    bool is_broken;  /* cannot go on; break_why says it */
    struct http_exchange exchange;
    struct list node;             /* http_server.conns */
    struct list kicked;           /* http_server.kicked, or alone */
    SSL *ssl;                     /* the bufferevent's; NULL: cleartext */
    struct h2 *h2;                /* NULL: HTTP/1 */
    struct http_address *address; /* NULL: not counted */
    struct stranger *stranger;    /* until a request of it shows a key; NULL: no stranger */
    char peer[64];
    enum http_conn_state state;
    struct ev_timer *deadline; /* of the state */
    struct ev_timer *stall;    /* of the output */
    uint64_t state_began_ns;
    uint64_t progress_ns;   /* when output last went out, or was first queued */
    uint64_t over_since_ns; /* since when more than max_queue_bytes wait; 0: they do not */
    size_t scanned_bytes;   /* of an unfinished head, no line end beyond the last one parsed is in here */
    uint64_t discarded_bytes;
    uint32_t n_requests;
    bool is_stall_running;
    bool is_pause_told;
    bool is_closing; /* this exchange is the last */
    bool is_eof;     /* the client has closed its side */
    enum http_abort break_why;
};

enum http_server_state {
    SERVER_SERVING,
    SERVER_LAME_DUCK, /* serves, and ends each connection after its answer */
    SERVER_DRAINING   /* accepts nothing more */
};

struct http_server {
    struct http_server_opts opts;
    struct http_limits limits; /* with defaults filled in */
    struct evconnlistener *listeners[HTTP_MAX_LISTENERS];
    unsigned n_listeners;
    uint16_t port;
    struct list conns;
    struct list kicked; /* connections with something to do at the next turn of the loop */
    struct ev_timer *kick;
    struct ev_timer *accept_again;
    struct hashmap *addresses;
    struct strangers *strangers;
    struct stranger_counts stranger_counts;
    uint32_t n_conns;
    uint32_t n_accepted; /* since accepting last rested */
    uint64_t bodies_bytes;
    enum http_server_state state;
    ev_call on_drained;
    void *on_drained_arg;
    uint64_t date_unix_s;
    char date[30];
    struct metric *conns_gauge;
    struct metric_family *refused_family;
    struct metric *slow_readers;
};

/* conn_open.c */
int http_conn_new(struct http_server *server, int fd, const struct sockaddr *from, struct http_conn **out);
void http_conn_free(struct http_conn *conn); /* aborts its exchanges first */
void http_conn_evict(void *owner);           /* a stranger's has to go */
/* Nothing more will be sent: the client may see the end while it is still writing. */
void http_conn_shut_sending(struct http_conn *conn);

/* conn.c */
/* The callbacks of a new connection's bufferevent and timers, and its first state. */
int http_conn_start(struct http_conn *conn); /* E_NOMEM */
void http_conn_on_deadline(void *arg);
void http_conn_on_stall(void *arg);
void http_conn_abort(struct http_conn *conn, enum http_abort why);
/* HTTP/2 is over: sends what is left and ends. */
void http_conn_end(struct http_conn *conn);
void http_conn_arm(struct http_conn *conn); /* the deadline may have changed */
struct evbuffer;
/* exchange.c: queues a body that is released when it was sent; E_NOMEM: it was not taken. */
int http_add_held(struct evbuffer *output, const struct http_held *held);
/* Something changed from inside a handler's call: look at the connection at the next turn of the loop. */
void http_conn_kick(struct http_conn *conn);
/* From the kick timer. */
void http_conn_kicked(struct http_conn *conn);
void http_conn_break(struct http_conn *conn, enum http_abort why);
/* Output was added. */
void http_conn_wrote(struct http_conn *conn);
size_t http_conn_unsent(const struct http_conn *conn);
void http_conn_drain(struct http_conn *conn);

/* direct.c */
/* Sends a piece of a stream (with its chunk's frame) past the empty output of a plain socket; what the kernel
 * leaves waits in the output.  False: nothing was sent. */
bool http_conn_send_now(struct http_conn *conn, struct bytes piece, bool is_chunking);
/* Appends what waits in the kernel of a plain socket whose input is empty, up to max_bytes; no room is made
 * for more than that.  *received_out is 0 where it is little, or the end, or an error.  E_NOMEM. */
int http_conn_receive_now(struct http_conn *conn, size_t max_bytes, struct buf *out, size_t *received_out);

/* body.c */
/* Takes what the input has of the body (CONN_DISCARD: drops it).  1: the body is whole; 0: more is needed;
 * E_FORMAT, E_LIMIT: malformed; E_RANGE: over max_body_bytes; E_NOMEM. */
int http_body_take(struct http_conn *conn);
/* Adds a piece to the body, counted.  E_RANGE, E_NOMEM. */
int http_body_add(struct http_exchange *x, struct bytes piece);
/* The body is whole, refused or given up: it no longer counts as being received. */
void http_body_settle(struct http_exchange *x);

/* server.c */
/* The one place that makes them; *ssl_out is NULL for cleartext. */
struct bufferevent *http_server_bufferevent(struct http_server *server, int fd, SSL **ssl_out);
void http_server_closed(struct http_server *server, struct http_conn *conn);
const char *http_server_date(struct http_server *server);
void http_server_count_refusal(struct http_server *server, int status);

void http_server_count_why(struct http_server *server, const char *why);

/* exchange.c */
void http_exchange_reset(struct http_exchange *exchange);
void http_exchange_fini(struct http_exchange *exchange);
/* The head is parsed and its text is here: answers what needs no handler, else calls on_head. */
void http_exchange_begin(struct http_exchange *exchange);
/* The head could not be read: for refusals, one that says nothing. */
void http_exchange_blank_head(struct http_exchange *exchange);

/* cors.c */
/* What an answer needs so that a browser shows it to the page that asked. */
void http_cors_add(const struct http_exchange *exchange, struct http_fields *fields);
/* A browser's question before the request?  Then it is answered, and true. */
bool http_cors_answer(struct http_exchange *exchange);

#endif
