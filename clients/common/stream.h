/* SPDX-License-Identifier: Apache-2.0 */
/* One streamed request to POST /v1/messages over a client: pieces as they come, then how it ended.  Loop
 * thread only. */
#ifndef CLIENTS_COMMON_STREAM_H
#define CLIENTS_COMMON_STREAM_H

#include "clients/common/answer.h"
#include "net/http/client.h"

struct stream;

struct stream_opts {
    struct ev_loop *loop;             /* borrowed */
    struct http_client *client;       /* on that loop */
    const char *path;                 /* ".../v1/messages" */
    const struct http_fields *fields; /* copied */
    struct bytes body;                /* copied; asks for a stream */
    uint64_t timeout_ns;              /* for all of it; 0: none */
    uint64_t silence_ns; /* the server is taken for dead after so long without a byte; 0: never */
    answer_call on_piece;
    /* The last call, once: the answer is whole, or its error fields say why not (error_type is the server's,
     * or one of connect_failed, timed_out, cut_off, malformed_answer, protocol_error, http_error).  The
     * stream is gone after it. */
    void (*on_over)(void *arg, const struct answer *answer);
    void *arg;
};

/* Nothing is called from inside.  E_INVAL (path), E_NOMEM. */
int stream_start(const struct stream_opts *opts, struct stream **out);
/* Ends it without on_over, not from inside on_piece; the connection is closed, so the server stops too.  What
 * came so far is in the answer that stream_answer() gave. */
void stream_cancel(struct stream *stream);
const struct answer *stream_answer(const struct stream *stream); /* valid until on_over or cancel returns */

#endif
