/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP server on one loop, with or without TLS: connections with absolute deadlines, limits, keep-alive,
 * pipelining, HTTP/2 streams and bounded output.
 *
 * An *exchange* is one request and its answer. An HTTP/1 connection has at most one exchange at a time;
 * pipelined requests wait in the connection's buffer. An HTTP/2 connection has one exchange per stream,
 * and its head reads like an HTTP/1.1 head.
 *
 * The handler gets on_head (authentication, routing), then on_request with the whole body, and answers now
 * or later. It may use the exchange until it has answered or on_abort has returned, whichever comes first.
 * No function of this header calls the handler, except http_server_free. Loop thread only.
 *
 * More than 15 functions: the server, and one accessor for each part of an exchange. */
#ifndef NET_HTTP_SERVER_H
#define NET_HTTP_SERVER_H

#include "base/fault.h"
#include "base/event/loop.h"
#include "net/http/parse.h"
#include "net/http/tls.h"
#include "base/metrics/metrics.h"

struct http_fields; /* see net/http/response.h */
struct http_server;
struct http_exchange;

struct http_limits {           /* 0 in a field means the default given beside it */
    uint32_t max_line_bytes;   /* 8 KiB: request line; above: 414 */
    uint32_t max_head_bytes;   /* 64 KiB; above: 431 */
    uint32_t max_fields;       /* 100; above: 431 */
    uint64_t max_body_bytes;   /* 32 MiB; above: 413 */
    uint64_t max_bodies_bytes; /* 1 GiB: bodies being received, over all connections; above: 503 */
    /* 10,000; above: evict the oldest stranger, else send busy_answer and close. */
    uint32_t max_conns;
    uint32_t max_conns_per_address; /* 256; an IPv6 /64 counts as one address */
    uint32_t max_strangers; /* 2,048 connections that have shown no key yet; above: close the oldest */
    uint32_t max_requests_per_conn; /* 10,000 */
    uint32_t max_queue_bytes;       /* 256 KiB of unsent answer; above: on_pause */
    uint32_t max_pipeline_bytes;    /* 64 KiB read ahead while a request runs */
    uint32_t max_streams;           /* 100 exchanges at the same time per HTTP/2 connection */
    uint64_t begin_ns;              /* 2 s from accept to the first byte of TLS */
    uint64_t handshake_ns;          /* 10 s for the TLS handshake */
    uint64_t head_ns;               /* 10 s from the first byte of a head to its end */
    uint64_t body_ns;               /* 30 s, plus body_ns_per_mib */
    uint64_t body_ns_per_mib;       /* 1 s for each MiB declared (chunked: received) */
    uint64_t idle_ns;               /* 60 s between requests (10 s before the first) */
    uint64_t stall_ns;              /* 30 s without progress in sending, or above max_queue_bytes */
    uint64_t linger_ns; /* 15 s of reading on after an early answer, so that the client can read it */
};

enum http_abort {                    /* why on_abort was called */
                  HTTP_ABORT_CLIENT, /* the client closed, half-closed or reset the connection */
                  HTTP_ABORT_SLOW_READER,
                  HTTP_ABORT_SERVER, /* the server is being freed */
};

struct http_handler {
    /* The head has arrived, the body has not. Call http_reply() here to refuse before the body is read.
     * Else return: the server sends 100 Continue if the client asked for it, and reads the body. */
    void (*on_head)(void *arg, struct http_exchange *exchange);
    /* Head and body have arrived. Answer now or later. */
    void (*on_request)(void *arg, struct http_exchange *exchange);
    /* The server must refuse this request (bad framing, too large, too slow, ...): answer with
     * http_reply() at once. May come after on_head or instead of it; if instead, method is HTTP_OTHER and
     * the path is empty. */
    void (*on_refused)(void *arg, struct http_exchange *exchange, int status, const char *why);
    /* The exchange ended before its answer was complete; only for exchanges that saw on_head. The exchange
     * is dead on return. */
    void (*on_abort)(void *arg, struct http_exchange *exchange, enum http_abort why);
    /* is_paused: the client reads more slowly than the handler writes. Not is_paused: it has caught up. */
    void (*on_pause)(void *arg, struct http_exchange *exchange, bool is_paused);
};

struct http_server_opts {
    struct ev_loop *loop; /* borrowed */
    struct http_limits limits;
    const struct http_handler *handler; /* borrowed */
    void *handler_arg;
    struct metrics *metrics; /* borrowed; NULL: none */
    /* Borrowed: "http" (or NULL), "admin"; names the port in the metric of evicted strangers. */
    const char *port;
    struct metrics *port_metrics; /* where evicted strangers are counted; borrowed; NULL: not counted */
    struct bytes
        busy_answer;  /* borrowed: a whole raw response for connections over the limit; empty: a bare 503 */
    bool shares_port; /* SO_REUSEPORT, for several loops on one address */
    /* Borrowed: TCP congestion control of connections; NULL or "": the system's default. */
    const char *congestion;
    struct http_tls *tls; /* borrowed; NULL: cleartext.  For all listeners. */
    bool has_h2c;         /* cleartext connections may begin with HTTP/2's preface */
    /* Borrowed: origins whose pages may send requests ("https://app.example", or "*"). */
    const char *const *origins;
    size_t n_origins; /* 0: never send a CORS header */
    /* Adds the fields of every answer to answers that the server gives without the handler (a CORS
     * preflight). NULL: adds nothing. arg is handler_arg. */
    void (*add_fields)(void *arg, struct http_fields *fields);
};

int http_server_new(const struct http_server_opts *opts, struct http_server **out);
/* Aborts running exchanges. Accepts NULL. */
void http_server_free(struct http_server *server);

/* address: "127.0.0.1:8080", "[::1]:8080", "localhost:0", "*:8080". Call it once per address. It may block
 * on a name lookup, so call it at start-up only. */
int http_server_listen(struct http_server *server, const char *address, struct fault *fault);
/* Takes a connected socket as if it had been accepted. E_FULL: over a limit; E_NOMEM. */
int http_server_adopt(struct http_server *server, int fd);
uint16_t http_server_port(const struct http_server *server); /* port of the first listener */

/* On: accept and answer as before, but each answer ends its connection (HTTP/2: GOAWAY), so that clients
 * go elsewhere. Off: normal service. */
void http_server_set_lame_duck(struct http_server *server, bool is_on);
/* Stops accepting, closes idle connections, and closes the others after their answer. Then calls done (may
 * be NULL) once, from the loop. */
void http_server_drain(struct http_server *server, ev_call done, void *arg);
uint32_t http_server_n_conns(const struct http_server *server);

/* ---- the request ---- */

enum http_method http_exchange_method(const struct http_exchange *exchange);
struct bytes http_exchange_path(const struct http_exchange *exchange);
struct bytes http_exchange_query(const struct http_exchange *exchange);
/* Returns the first field called name (lower case); empty if absent. */
struct bytes http_exchange_field(const struct http_exchange *exchange, const char *name);
const char *http_exchange_peer(const struct http_exchange *exchange); /* "192.0.2.1:1234" */
/* The client has shown a key, or needs none: its connection stops being a stranger. */
void http_exchange_prove(struct http_exchange *exchange);
struct bytes http_exchange_body(const struct http_exchange *exchange);
void http_exchange_take_body(struct http_exchange *exchange, struct buf *out); /* moves the body out */
/* Time when the request's first byte arrived. */
uint64_t http_exchange_began_ns(const struct http_exchange *exchange);
void http_exchange_set_user(struct http_exchange *exchange, void *user);
void *http_exchange_user(const struct http_exchange *exchange);

/* ---- the answer ---- */

/* Sends a whole answer. fields (may be NULL) come from net/http/response.h; the server adds date,
 * connection and content-length. The exchange is over after it. */
void http_reply(struct http_exchange *exchange, int status, const struct http_fields *fields,
                struct bytes body);
/* A long body that stays in place until it is sent. The loop calls release with arg once it is sent, or
 * will not be. */
struct http_held {
    struct bytes body;
    void (*release)(void *arg);
    void *arg;
};
void http_reply_held(struct http_exchange *exchange, int status, const struct http_fields *fields,
                     const struct http_held *held);
/* Prefetches the memory that the next write needs into the CPU cache. Accepts NULL. */
void http_exchange_fetch(const struct http_exchange *exchange);
/* A streamed answer: head (sent with the first write), pieces, end. The server frames the pieces. write
 * returns 1 if more than max_queue_bytes wait now: write no more until on_pause has reported a pause and its end. It
 * fails with E_CLOSED if the connection is broken, and with E_FULL if the handler writes on and on in spite of it; in both
 * cases on_abort follows from the loop. */
int http_reply_begin(struct http_exchange *exchange, int status, const struct http_fields *fields);
int http_reply_write(struct http_exchange *exchange, struct bytes piece);
void http_reply_end(struct http_exchange *exchange); /* the exchange is over after it */

#endif
