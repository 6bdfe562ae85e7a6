/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 on one connection: h2.c (the session: input, output, deadlines, ends), h2_stream.c (from frames
 * to an exchange), h2_answer.c (from an exchange to frames). */
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

    struct buf method, path, authority; /* used until the head is complete */
    struct buf fields;                  /* "name: value\r\n" lines */
    uint32_t head_bytes;                /* counted as RFC 9113 section 6.5.2 says */
    uint32_t n_fields;
    bool is_head_bad;       /* the head does not fit a request line */
    bool is_head_too_large; /* the rest of the head was dropped */
    bool is_head_whole;     /* later fields are trailers */

    /* The part of the answer's body that is not in frames yet; NULL: none so far. */
    struct evbuffer *out;
    bool is_out_ended;      /* the body is complete */
    bool is_deferred;       /* nghttp2 asked for data when out was empty */
    uint64_t progress_ns;   /* time when out last shrank, or was first filled */
    uint64_t over_since_ns; /* time since which out is over max_queue_bytes; 0: it is not over */
    bool is_pause_reported;
    bool is_pause_due; /* more than max_queue_bytes waited, though perhaps no longer */
    bool is_broken;    /* must be reset; break_why gives the reason */
    enum http_abort break_why;
    bool is_reset; /* RST_STREAM is queued */
};

enum h2_state {
    H2_OPEN,
    H2_WARNED,  /* GOAWAY without a last stream is sent; new streams are still served */
    H2_LEAVING, /* GOAWAY is sent: no new streams; the session ends with its last stream */
    H2_CALMED   /* like H2_LEAVING, after abuse: reads no more */
};

struct h2 {
    struct http_conn *conn;
    nghttp2_session *session;
    struct list streams;
    uint32_t n_streams;
    uint32_t n_opened;
    int32_t newest_id; /* highest id of a stream that was served */
    struct h2_budget budget;
    uint64_t head_began_ns; /* start time of the header block being received; 0: none */
    uint64_t idle_since_ns; /* time since which there is no stream */
    enum h2_state state;
    bool is_stale; /* a stream may have to pause or end, or a deadline may be due */
};

/* h2.c. The connection must enter CONN_H2 next. E_NOMEM. */
int h2_new(struct http_conn *conn, struct h2 **out);
void h2_free(struct h2 *h2); /* accepts NULL; call h2_abort first */
/* 1: the input begins with the client's preface. 0: with a part of it. E_FORMAT: with other bytes. */
int h2_find_preface(struct evbuffer *input);
/* Handles the input, sends what the socket takes, and ends the connection when the session is over. */
void h2_run(struct h2 *h2);
uint64_t h2_deadline(const struct h2 *h2);
/* The connection's deadline is over: finds which stream or session limit expired. */
void h2_expire(struct h2 *h2);
/* Calls every handler's on_abort; the streams stay until h2_free. */
void h2_abort(struct h2 *h2, enum http_abort why);
/* Announces the end. Streams that the client began before it received the notice are still served. */
void h2_warn(struct h2 *h2);
/* Accepts no new streams; the session ends with its last stream. */
void h2_drain(struct h2 *h2);
/* Ends a session after abuse with GOAWAY ENHANCE_YOUR_CALM. The next h2_run aborts the streams. */
void h2_calm(struct h2 *h2, const char *why);

/* h2_stream.c */
void h2_set_input_callbacks(nghttp2_session_callbacks *callbacks);
void h2_stream_free(struct h2_stream *stream);
/* The server itself refuses the request on this stream. */
void h2_stream_refuse(struct h2_stream *stream, int status, const char *why);
uint64_t h2_stream_deadline(const struct h2_stream *stream, uint64_t now_ns);
/* Ends the stream from this side: sends RST_STREAM and calls the handler's on_abort. */
void h2_stream_reset(struct h2_stream *stream, enum http_abort why);
void h2_stream_report_abort(struct h2_stream *stream, enum http_abort why);

/* h2_answer.c: the functions that exchange.c calls. They never call a handler. */
void h2_reply(struct h2_stream *stream, int status, const struct http_fields *fields, struct bytes body);
/* True: the body was taken. False: it was not, and release will not be called. */
bool h2_reply_held(struct h2_stream *stream, int status, const struct http_fields *fields,
                   const struct http_held *held);
int h2_reply_begin(struct h2_stream *stream, int status, const struct http_fields *fields);
int h2_reply_write(struct h2_stream *stream, struct bytes piece);
void h2_reply_end(struct h2_stream *stream);
void h2_reply_continue(struct h2_stream *stream); /* sends 100 Continue */
size_t h2_stream_unsent(const struct h2_stream *stream);

#endif
