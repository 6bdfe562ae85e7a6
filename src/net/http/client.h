/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 client for one server on one loop. It runs many calls at the same time, streams their answers
 * and reuses connections. It parses answers as strictly as the server parses requests.
 *
 * A *call* is one request and its answer. Each call gets on_head once, on_body any number of times, and
 * on_end once. No function of this header runs a callback. Loop thread only. */
#ifndef NET_HTTP_CLIENT_H
#define NET_HTTP_CLIENT_H

#include "base/fault.h"
#include "base/event/loop.h"
#include "net/http/parse.h"
#include "net/http/response.h"

struct http_client;
struct http_call;

struct http_client_opts {    /* 0 in a field means the default given beside it */
    struct ev_loop *loop;    /* borrowed */
    const char *address;     /* "127.0.0.1:8080", "[::1]:8080", "router.example:80" */
    uint32_t max_idle_conns; /* 64: idle connections that are kept open */
    uint64_t idle_ns;        /* 30 s: how long a connection is kept without a call */
    uint64_t connect_ns;     /* 10 s: limit for connecting */
};

/* Looks the address up at once; a name may block, so call it at start-up only. E_FORMAT, E_NOT_FOUND,
 * E_NOMEM. */
int http_client_new(const struct http_client_opts *opts, struct fault *fault, struct http_client **out);
void http_client_free(struct http_client *client); /* cancels running calls; accepts NULL */
uint32_t http_client_n_calls(const struct http_client *client);
uint32_t http_client_n_idle(const struct http_client *client);

struct http_call_events { /* every callback may cancel this call or other calls, and start new ones */
    /* The head of the final answer (1xx answers are skipped). head and text are valid during the call; see
     * http_head_get(). */
    void (*on_head)(void *arg, const struct http_head *head, struct bytes text);
    /* A piece of the body without framing; never empty. */
    void (*on_body)(void *arg, struct bytes piece);
    /* result 0: the answer is complete. Else the error, and fault explains it: E_IO: could not connect.
     * E_CLOSED: the server closed before the head was complete. E_TRUNCATED: it closed in mid-answer.
     * E_FORMAT: not HTTP. E_TIMEOUT, E_NOMEM. The call no longer exists. */
    void (*on_end)(void *arg, int result, const struct fault *fault);
};

struct http_call_opts {
    enum http_method method; /* HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE */
    const char *path;        /* includes the query; visible ASCII, begins with '/' */
    /* NULL: none; the client adds host, connection and content-length. */
    const struct http_fields *fields;
    struct bytes body;   /* copied */
    uint64_t timeout_ns; /* for the whole call; 0: no limit */
    /* The client may send the request again if a reused connection closes before the first byte of the
     * answer. */
    bool may_repeat;
    const struct http_call_events *events; /* borrowed */
    void *arg;
};

/* E_INVAL (path), E_NOMEM: the call does not start, and on_end does not come. A failure to connect comes
 * by on_end. */
int http_client_start(struct http_client *client, const struct http_call_opts *opts, struct http_call **out);
/* Ends the call without on_end and closes its connection. */
void http_call_cancel(struct http_call *call);

#endif
