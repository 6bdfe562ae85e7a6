/* SPDX-License-Identifier: Apache-2.0 */
/* One streamed request to POST /v1/messages over a client: pieces as they arrive, then the end.  Loop thread
 * only. */
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
    uint64_t timeout_ns;              /* for the whole request; 0: none */
    uint64_t silence_ns;              /* the longest silence before the server counts as dead; 0: no bound */
    /* If the connection is lost, the stream resumes by the id of its last event: at these clients in turn, then at
     * `client` again.  With others, fields and body are borrowed until on_over. */
    struct http_client *const *others; /* [n_others], on the same loop */
    size_t n_others;
    unsigned max_resumes; /* in a row without a new event; 0: a lost connection is a failure */
    answer_call on_piece;
    /* Called last, and once.  The answer is whole, or its error fields give the reason.  error_type is the
     * server's, or one of connect_failed, timed_out, cut_off, malformed_answer, protocol_error, http_error.
     * The stream is gone afterwards. */
    void (*on_over)(void *arg, const struct answer *answer);
    void *arg;
};

/* Calls no callback.  E_INVAL (path), E_NOMEM. */
int stream_start(const struct stream_opts *opts, struct stream **out);
/* Ends the stream without on_over; not allowed inside on_piece.  It closes the connection, so the server stops
 * too.  The partial answer is in the answer that stream_answer() gave. */
void stream_cancel(struct stream *stream);
const struct answer *stream_answer(const struct stream *stream); /* valid until on_over or cancel returns */

#endif
