/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP server on one loop, over TLS or not: connections with absolute deadlines, limits, keep-alive,
 * pipelining, HTTP/2 streams and bounded output.
 *
 * An *exchange* is one request and its answer; an HTTP/1 connection has at most one at a time, and what a
 * client pipelines waits in the connection's buffer.  An HTTP/2 connection has one for each stream; its head
 * reads as if it had come in HTTP/1.1.  The handler gets on_head (authentication, routing), then
 * on_request with the whole body, and answers now or later.  It may use the exchange until it has answered or
 * on_abort has returned, whichever is first. No callback of the handler runs from inside a function of this
 * header, except from http_server_free. Loop thread only. */
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

struct http_limits {                /* 0 anywhere: the default named */
    uint32_t max_line_bytes;        /* 8 KiB: request line, else 414 */
    uint32_t max_head_bytes;        /* 64 KiB, else 431 */
    uint32_t max_fields;            /* 100, else 431 */
    uint64_t max_body_bytes;        /* 32 MiB, else 413 */
    uint64_t max_bodies_bytes;      /* 1 GiB: bodies being received, all connections together, else 503 */
    uint32_t max_conns;             /* 10,000; beyond: the oldest stranger goes, else busy_answer and close */
    uint32_t max_conns_per_address; /* 256; an IPv6 /64 counts as one address */
    uint32_t max_strangers; /* 2,048 connections that have shown no key yet; beyond: the oldest is closed */
    uint32_t max_requests_per_conn; /* 10,000 */
    uint32_t max_queue_bytes;       /* 256 KiB of unsent answer, beyond: on_pause */
    uint32_t max_pipeline_bytes;    /* 64 KiB read ahead while a request runs */
    uint32_t max_streams;           /* 100 exchanges at once on an HTTP/2 connection */
    uint64_t begin_ns;              /* 2 s from accept to the first byte of TLS */
    uint64_t handshake_ns;          /* 10 s for TLS */
    uint64_t head_ns;               /* 10 s from the first byte of a head to its end */
    uint64_t body_ns;               /* 30 s ... */
    uint64_t body_ns_per_mib;       /* ... and 1 s for each MiB declared (or received, when chunked) */
    uint64_t idle_ns;               /* 60 s between requests (10 s before the first) */
    uint64_t stall_ns;              /* 30 s without progress in sending, or in being over max_queue_bytes */
    uint64_t linger_ns; /* 15 s of reading on after an early answer, so that the client can see it */
};

enum http_abort {                    /* why on_abort was called */
                  HTTP_ABORT_CLIENT, /* the client closed, half-closed or reset the connection */
                  HTTP_ABORT_SLOW_READER,
                  HTTP_ABORT_SERVER, /* the server is being freed */
};

struct http_handler {
    /* The head is in, the body is not.  Answer here with http_reply() to refuse before reading the body; else
     * return and the body will be read (100 Continue is sent if asked for). */
    void (*on_head)(void *arg, struct http_exchange *exchange);
    /* Head and body are in.  Answer now or later. */
    void (*on_request)(void *arg, struct http_exchange *exchange);
    /* The server must refuse this request (bad framing, too large, too slow, ...): answer with http_reply()
     * at once.  May come after on_head or instead of it; in the latter case method is HTTP_OTHER and the path
     * is empty. */
    void (*on_refused)(void *arg, struct http_exchange *exchange, int status, const char *why);
    /* Gone before the answer was complete; only for exchanges that saw on_head.  The exchange is dead on
     * return. */
    void (*on_abort)(void *arg, struct http_exchange *exchange, enum http_abort why);
    /* The client reads slower than the answer is written (is_paused) or has caught up. */
    void (*on_pause)(void *arg, struct http_exchange *exchange, bool is_paused);
};

struct http_server_opts {
    struct ev_loop *loop; /* borrowed */
    struct http_limits limits;
    const struct http_handler *handler; /* borrowed */
    void *handler_arg;
    struct metrics *metrics; /* borrowed; NULL: none */
    const char *port;        /* borrowed: "http" (or NULL), "admin"; in the count of evicted strangers ... */
    struct metrics *port_metrics; /* ... which is here; borrowed; NULL: none */
    struct bytes
        busy_answer;  /* borrowed: a whole raw response for connections over the limit; empty: a bare 503 */
    bool shares_port; /* SO_REUSEPORT, for several loops on one address */
    const char *congestion; /* borrowed: TCP congestion control of connections; NULL or "": the system's */
    struct http_tls *tls;   /* borrowed; NULL: cleartext.  For all listeners. */
    bool has_h2c;           /* cleartext connections may begin with HTTP/2's preface */
    const char *const *origins; /* borrowed: whose pages may ask ("https://app.example", or "*") */
    size_t n_origins;           /* 0: no CORS header is ever sent */
    /* Adds what every answer has to those that the server gives without the handler (a browser's question
     * before its request); NULL: nothing.  arg is handler_arg. */
    void (*add_fields)(void *arg, struct http_fields *fields);
};

int http_server_new(const struct http_server_opts *opts, struct http_server **out);
/* Aborts what runs.  NULL is fine. */
void http_server_free(struct http_server *server);

/* "127.0.0.1:8080", "[::1]:8080", "localhost:0", "*:8080"; may be called several times.  Resolves at once
 * (start-up only). */
int http_server_listen(struct http_server *server, const char *address, struct fault *fault);
/* Takes a connected socket, as if it had been accepted.  E_FULL: over a limit; E_NOMEM. */
int http_server_adopt(struct http_server *server, int fd);
uint16_t http_server_port(const struct http_server *server); /* of the first listener */

/* On: goes on accepting and answering, but each answer is its connection's last (HTTP/2: GOAWAY), so that
 * clients go elsewhere.  Off: as before. */
void http_server_set_lame_duck(struct http_server *server, bool is_on);
/* Stops accepting, closes idle connections and the others after their answer; then calls done (may be NULL),
 * once, from the loop. */
void http_server_drain(struct http_server *server, ev_call done, void *arg);
uint32_t http_server_n_conns(const struct http_server *server);

/* ---- the request ---- */

enum http_method http_exchange_method(const struct http_exchange *exchange);
struct bytes http_exchange_path(const struct http_exchange *exchange);
struct bytes http_exchange_query(const struct http_exchange *exchange);
/* First field called name (lower case); empty when absent. */
struct bytes http_exchange_field(const struct http_exchange *exchange, const char *name);
const char *http_exchange_peer(const struct http_exchange *exchange); /* "192.0.2.1:1234" */
/* Its client has shown a key (or needs none): its connection is no stranger's from now on. */
void http_exchange_prove(struct http_exchange *exchange);
struct bytes http_exchange_body(const struct http_exchange *exchange);
void http_exchange_take_body(struct http_exchange *exchange, struct buf *out); /* moves it out */
uint64_t http_exchange_began_ns(const struct http_exchange *exchange);         /* when its first byte came */
void http_exchange_set_user(struct http_exchange *exchange, void *user);
void *http_exchange_user(const struct http_exchange *exchange);

/* ---- the answer ---- */

/* A whole answer.  fields (may be NULL) were made with net/http/response.h; date, connection and
 * content-length are added here. The exchange is done. */
void http_reply(struct http_exchange *exchange, int status, const struct http_fields *fields,
                struct bytes body);
/* The same, of a long body, which stays where it is until it is sent: then, or when it will not be, release
 * is called with arg, from the loop. */
struct http_held {
    struct bytes body;
    void (*release)(void *arg);
    void *arg;
};
void http_reply_held(struct http_exchange *exchange, int status, const struct http_fields *fields,
                     const struct http_held *held);
/* What the next write needs is fetched into the cache.  NULL is fine. */
void http_exchange_fetch(const struct http_exchange *exchange);
/* A streamed answer: head (sent with the first write), pieces, end.  Pieces are framed here; write fails with
 * E_CLOSED when the connection is broken (on_abort follows from the loop), E_FULL when on_pause was ignored
 * for too long (the same). */
int http_reply_begin(struct http_exchange *exchange, int status, const struct http_fields *fields);
int http_reply_write(struct http_exchange *exchange, struct bytes piece);
void http_reply_end(struct http_exchange *exchange); /* the exchange is done */

#endif
