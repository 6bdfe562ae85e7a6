/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 on one connection: h2.c (the session: input, output, deadlines, ends), h2_stream.c (from frames to
 * an exchange), h2_answer.c (from an exchange to frames). */
#ifndef NET_HTTP_H2_PRIV_H
#define NET_HTTP_H2_PRIV_H

#include <event2/buffer.h>
#include <nghttp2/nghttp2.h>

#include "net/http/conn_priv.h"
#include "net/http/h2_budget_priv.h"

struct h2_stream {
    struct list node; /* h2.streams */
    struct h2 *h2;
    int32_t id;
    struct http_exchange exchange;

    struct buf method, path, authority; /* until the head is whole */
    struct buf fields;                  /* "name: value\r\n" lines */
    uint32_t head_bytes;                /* as RFC 9113 section 6.5.2 counts */
    uint32_t n_fields;
    bool is_head_bad;       /* does not fit a request line */
    bool is_head_too_large; /* the rest was dropped */
    bool is_head_whole;     /* what comes now are trailers */

    struct evbuffer *out;   /* of the answer's body, not yet in frames; NULL: none so far */
    bool is_out_ended;      /* nothing more will be added */
    bool is_deferred;       /* the session asked when there was nothing */
    uint64_t progress_ns;   /* when out last shrank, or was first filled */
    uint64_t over_since_ns; /* since when out has been over max_queue_bytes; 0: it is not */
    bool is_pause_told;
    bool is_broken; /* to be reset; break_why says why */
    enum http_abort break_why;
    bool is_reset; /* RST_STREAM is on its way */
};

enum h2_state {
    H2_OPEN,
    H2_WARNED,  /* GOAWAY without a last stream is out: new ones are still served */
    H2_LEAVING, /* GOAWAY is on its way: no new streams, ends with the last one */
    H2_CALMED   /* the same for abuse: nothing more is read */
};

struct h2 {
    struct http_conn *conn;
    nghttp2_session *session;
    struct list streams;
    uint32_t n_streams;
    uint32_t n_opened;
    int32_t newest_id; /* of a stream that is or was served */
    struct h2_budget budget;
    uint64_t head_began_ns; /* of the header block that is arriving; 0: none */
    uint64_t idle_since_ns; /* no stream since then */
    enum h2_state state;
    bool is_stale; /* a stream's pause or end, or a deadline, may be due */
};

/* h2.c.  The connection enters CONN_H2 next.  E_NOMEM. */
int h2_new(struct http_conn *conn, struct h2 **out);
void h2_free(struct h2 *h2); /* NULL is fine; h2_abort came before */
/* 1: the input begins with the client's preface; 0: with a part of it; E_FORMAT: with something else. */
int h2_find_preface(struct evbuffer *input);
/* Takes the input, sends what can be sent, ends the connection when it is over. */
void h2_run(struct h2 *h2);
uint64_t h2_deadline(const struct h2 *h2);
/* The deadline is over: whose? */
void h2_expire(struct h2 *h2);
/* Tells every handler; streams stay until h2_free. */
void h2_abort(struct h2 *h2, enum http_abort why);
/* Says that the end is near; streams that the client had begun before it heard of it are served. */
void h2_warn(struct h2 *h2);
/* No new streams; ends with the last one. */
void h2_drain(struct h2 *h2);
/* The peer has done too much of nothing: GOAWAY ENHANCE_YOUR_CALM.  Streams are aborted by the next
 * h2_run. */
void h2_calm(struct h2 *h2, const char *why);

/* h2_stream.c */
void h2_set_input_callbacks(nghttp2_session_callbacks *callbacks);
void h2_stream_free(struct h2_stream *stream);
/* The server itself says no on this stream. */
void h2_stream_refuse(struct h2_stream *stream, int status, const char *why);
uint64_t h2_stream_deadline(const struct h2_stream *stream, uint64_t now_ns);
/* Ends it from our side: RST_STREAM, and the handler is told. */
void h2_stream_reset(struct h2_stream *stream, enum http_abort why);
void h2_stream_tell_abort(struct h2_stream *stream, enum http_abort why);

/* h2_answer.c: what exchange.c passes on.  Nothing here calls a handler. */
void h2_reply(struct h2_stream *stream, int status, const struct http_fields *fields, struct bytes body);
/* Whether the body was taken; else it is not released. */
bool h2_reply_held(struct h2_stream *stream, int status, const struct http_fields *fields,
                   const struct http_held *held);
int h2_reply_begin(struct h2_stream *stream, int status, const struct http_fields *fields);
int h2_reply_write(struct h2_stream *stream, struct bytes piece);
void h2_reply_end(struct h2_stream *stream);
void h2_reply_continue(struct h2_stream *stream); /* 100 Continue */
size_t h2_stream_unsent(const struct h2_stream *stream);

#endif
