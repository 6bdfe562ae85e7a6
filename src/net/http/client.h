/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 client of one server on one loop: many calls at once, answers streamed as they come, connections
 * kept and used again.  Answers are parsed as strictly as the server parses requests.
 *
 * A *call* is one request and its answer.  Of a call come on_head once, on_body any number of times, and
 * on_end once; no callback runs from inside a function of this header.  Loop thread only. */
#ifndef NET_HTTP_CLIENT_H
#define NET_HTTP_CLIENT_H

#include "base/fault.h"
#include "base/event/loop.h"
#include "net/http/parse.h"
#include "net/http/response.h"

struct http_client;
struct http_call;

struct http_client_opts {    /* 0 anywhere: the default named */
    struct ev_loop *loop;    /* borrowed */
    const char *address;     /* "127.0.0.1:8080", "[::1]:8080", "router.example:80" */
    uint32_t max_idle_conns; /* 64 kept open between calls */
    uint64_t idle_ns;        /* 30 s that a connection is kept without a call */
    uint64_t connect_ns;     /* 10 s to connect */
};

/* Looks the address up at once (a name may block: start-up only).  E_FORMAT, E_NOT_FOUND, E_NOMEM. */
int http_client_new(const struct http_client_opts *opts, struct fault *fault, struct http_client **out);
void http_client_free(struct http_client *client); /* cancels what runs; NULL is fine */
uint32_t http_client_n_calls(const struct http_client *client);
uint32_t http_client_n_idle(const struct http_client *client);

struct http_call_events { /* any of them may cancel this call or others, and start new ones */
    /* An answer with a final status (1xx are skipped).  head and text are valid during the call:
     * http_head_get(). */
    void (*on_head)(void *arg, const struct http_head *head, struct bytes text);
    /* A piece of the body without its framing, never empty. */
    void (*on_body)(void *arg, struct bytes piece);
    /* 0: the answer is whole.  Else why it is not, and fault says it in words: E_IO could not connect,
     * E_CLOSED hung up before the head was whole, E_TRUNCATED in mid-answer, E_FORMAT not HTTP, E_TIMEOUT,
     * E_NOMEM.  The call is gone. */
    void (*on_end)(void *arg, int result, const struct fault *fault);
};

struct http_call_opts {
    enum http_method method;          /* HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE */
    const char *path;                 /* with its query; visible ASCII, begins with '/' */
    const struct http_fields *fields; /* NULL: none; host, connection and content-length are added */
    struct bytes body;                /* copied */
    uint64_t timeout_ns;              /* for the whole call; 0: none */
    /* May be sent again when a kept connection turns out to be dead before a byte of the answer came. */
    bool may_repeat;
    const struct http_call_events *events; /* borrowed */
    void *arg;
};

/* E_INVAL (path), E_NOMEM: nothing was begun and on_end does not come.  Failures to connect come by on_end.
 */
int http_client_start(struct http_client *client, const struct http_call_opts *opts, struct http_call **out);
/* Ends the call without on_end and closes its connection. */
void http_call_cancel(struct http_call *call);

#endif
