/* SPDX-License-Identifier: Apache-2.0 */
/* A server's connections. Shared by server.c (accepting), conn_open.c (making and freeing), conn.c (the
 * state machine), conn_stall.c (output), exchange.c (requests and answers), cors.c, body.c, direct.c, and the HTTP/2 files
 * (h2_priv.h). */
#ifndef NET_HTTP_CONN_PRIV_H
#define NET_HTTP_CONN_PRIV_H

#include <event2/buffer.h>
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
/* A stream is cut at a write while this many times max_queue_bytes wait, if its handler goes on after on_pause.  What it
 * writes before may be longer: the client is not to blame for it. */
#define HTTP_HARD_QUEUE_FACTOR 4
/* If an answer comes before the body was read, the connection or stream stays open when no more than this is left of it
 * to read and drop. */
#define HTTP_MAX_DISCARD_BYTES (UINT64_C(1) << 20)
#define HTTP_TURN_NS           UINT64_C(500000) /* one connection's requests in one turn of the loop */

enum http_conn_state {
    CONN_HANDSHAKE, /* the TLS handshake runs */
    CONN_IDLE,      /* no byte of the next request has arrived */
    CONN_HEAD,      /* part of a head has arrived */
    CONN_BODY,      /* the head was accepted; the body is being read */
    CONN_RUNNING,   /* the handler has the whole request and has not finished its answer */
    CONN_DISCARD,   /* answered before the body was read: drops the rest, then the next request */
    /* HTTP/2: each stream has its own exchange (h2_priv.h); the connection's exchange is unused. */
    CONN_H2,
    CONN_LINGER, /* last answer written: sends the rest, closes its side, reads until the client closes */
    CONN_DEAD    /* the outermost caller on the stack frees it */
};

enum http_answer_state {
    ANSWER_NONE,      /* not started */
    ANSWER_STREAMING, /* http_reply_begin was called */
    ANSWER_DONE
};

/* Embedded in its connection (and reused) or in its stream; fields that a write needs come first. */
struct http_exchange {
    struct http_conn *conn;
    struct h2_stream *stream; /* NULL: HTTP/1 */
    enum http_answer_state answer;
    bool is_chunking; /* the answer is sent in chunks */
    bool is_body_whole;
    bool is_seen;          /* on_head was called */
    struct http_head head; /* offsets are into head_text */
    struct buf head_text;
    struct buf body;
    struct http_chunked chunked;
    uint64_t body_left_bytes; /* HTTP_BODY_LENGTH: bytes still to come */
    uint64_t body_received_bytes;
    uint64_t counted_bytes; /* its part of the server's bodies_bytes */
    uint64_t began_ns;
    void *user;
};

struct http_address { /* one client address */
    uint8_t key[16];
    uint32_t n_conns;
};

struct http_conn { /* fields that a write needs come first, up to the start of exchange */
    struct http_server *server;
    struct bufferevent *bev;
    int direct_fd;   /* 0: not looked up yet; -1: not a plain socket (direct.c) */
    bool has_unsent; /* the output buffer is not empty */
    bool is_broken;  /* must end; break_why gives the reason */
    struct http_exchange exchange;
    struct list node;             /* in http_server.conns */
    struct list kicked;           /* in http_server.kicked, or unlinked */
    SSL *ssl;                     /* owned by the bufferevent; NULL: cleartext */
    struct h2 *h2;                /* NULL: HTTP/1 */
    struct http_address *address; /* NULL: not counted */
    struct stranger *stranger;    /* until one of its requests shows a key; NULL: no stranger */
    char peer[64];
    enum http_conn_state state;
    struct ev_timer *deadline; /* deadline of the state */
    struct ev_timer *stall;    /* deadline of the output */
    uint64_t state_began_ns;
    uint64_t progress_ns;   /* when output last left, or was first queued */
    uint64_t over_since_ns; /* time since which more than max_queue_bytes wait; 0: they do not */
    size_t scanned_bytes;   /* part of an unfinished head already searched for a line end */
    uint64_t discarded_bytes;
    uint32_t n_requests;
    bool is_stall_running;
    bool is_pause_reported;
    bool is_closing; /* the current exchange is the last */
    bool is_eof;     /* the client has closed its side */
    enum http_abort break_why;
};

enum http_server_state {
    SERVER_SERVING,
    SERVER_LAME_DUCK, /* serves, and ends each connection after its answer */
    SERVER_DRAINING   /* accepts no more connections */
};

struct http_server {
    struct http_server_opts opts;
    struct http_limits limits; /* with defaults filled in */
    struct evconnlistener *listeners[HTTP_MAX_LISTENERS];
    unsigned n_listeners;
    uint16_t port;
    struct list conns;
    struct list kicked; /* connections with work at the next turn of the loop */
    struct ev_timer *kick;
    struct ev_timer *accept_again;
    struct hashmap *addresses;
    struct strangers *strangers;
    struct stranger_counts stranger_counts;
    uint32_t n_conns;
    uint32_t n_accepted; /* accepted since accepting last paused */
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
void http_conn_evict(void *owner);           /* evicts the stranger's connection */
/* Shuts the sending side: the client sees the end even while it still writes. */
void http_conn_shut_sending(struct http_conn *conn);

/* conn.c */
/* Sets the callbacks of a new connection's bufferevent and timers, and its first state. */
int http_conn_start(struct http_conn *conn); /* E_NOMEM */
void http_conn_on_deadline(void *arg);
void http_conn_abort(struct http_conn *conn, enum http_abort why);
/* HTTP/2 is over: sends the rest of the output and ends. */
void http_conn_end(struct http_conn *conn);
void http_conn_arm(struct http_conn *conn); /* recomputes the deadline; it may have changed */
/* exchange.c: queues a body and releases it once it is sent. E_NOMEM: the body was not taken. */
int http_add_held(struct evbuffer *output, const struct http_held *held);
/* A handler's call changed the connection: run its state machine at the next turn of the loop. */
void http_conn_kick(struct http_conn *conn);
/* Called by the kick timer. */
void http_conn_kicked(struct http_conn *conn);
void http_conn_break(struct http_conn *conn, enum http_abort why);
void http_conn_drain(struct http_conn *conn);
/* The outermost caller's last call: conn may be freed after it. */
void http_conn_reap(struct http_conn *conn);

/* conn_stall.c */
void http_conn_wrote(struct http_conn *conn); /* output was added */
size_t http_conn_unsent(const struct http_conn *conn);
void http_conn_on_stall(void *arg);
void http_conn_on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg);

/* direct.c */
/* Sends a piece of a stream (with its chunk frame) straight to a plain socket whose output is empty. Bytes
 * that the kernel does not take wait in the output. False: nothing was sent. */
bool http_conn_send_now(struct http_conn *conn, struct bytes piece, bool is_chunking);
/* Reads waiting bytes of a plain socket whose input is empty, up to max_bytes, and appends them; makes no
 * more room than that. *received_out is 0 for few bytes, at the end, or on an error. E_NOMEM. */
int http_conn_receive_now(struct http_conn *conn, size_t max_bytes, struct buf *out, size_t *received_out);

/* body.c */
/* Takes the body's bytes from the input (CONN_DISCARD: drops them). 1: the body is complete. 0: needs
 * more. E_FORMAT, E_LIMIT: malformed. E_RANGE: over max_body_bytes. E_NOMEM. */
int http_body_take(struct http_conn *conn);
/* Adds a piece to the body and counts it. E_RANGE, E_NOMEM. */
int http_body_add(struct http_exchange *x, struct bytes piece);
/* The body is complete, refused or given up: it no longer counts against bodies_bytes. */
void http_body_uncount(struct http_exchange *x);

/* server.c */
/* The only place that makes bufferevents; *ssl_out is NULL for cleartext. */
struct bufferevent *http_server_bufferevent(struct http_server *server, int fd, SSL **ssl_out);
void http_server_closed(struct http_server *server, struct http_conn *conn);
const char *http_server_date(struct http_server *server);
void http_server_count_refusal(struct http_server *server, int status);

void http_server_count_why(struct http_server *server, const char *why);

/* exchange.c */
void http_exchange_reset(struct http_exchange *exchange);
void http_exchange_fini(struct http_exchange *exchange);
/* The head is parsed and its text is here: answers requests that need no handler, else calls on_head. */
void http_exchange_begin(struct http_exchange *exchange);
/* The head could not be read: sets an empty head for the refusal. */
void http_exchange_blank_head(struct http_exchange *exchange);

/* cors.c */
/* Adds the CORS fields with which a browser shows the answer to the page. */
void http_cors_add(const struct http_exchange *exchange, struct http_fields *fields);
/* True: the request was a CORS preflight and is answered. */
bool http_cors_answer(struct http_exchange *exchange);

#endif
