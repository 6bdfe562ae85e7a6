/* SPDX-License-Identifier: Apache-2.0 */
/* A request's part of a stream that survives the loss of its router. */
#ifndef SERVE_ENDPOINT_RESUME_PRIV_H
#define SERVE_ENDPOINT_RESUME_PRIV_H

#include "compute/order/work.h"
#include "serve/api/error.h"
#include "serve/api/event_id.h"

struct request;

struct resume {
    bool is_kept;          /* the stream's events have ids */
    bool is_again;         /* the client returned for the rest of a stream */
    bool is_malformed;     /* ... with a malformed id */
    bool has_moved;        /* the stream goes on at another connection or router */
    bool has_other_prompt; /* the stream's prompt differs from this router's prompt, so the answer is not
                            * cached; a conversation keeps it */
    size_t event_at;       /* where the event being written begins in the front's buffer */
    uint64_t n_events;     /* events written so far, sent or not */
    struct event_id id;    /* is_again: id of the last event that the client has */
    char prefix[EVENT_ID_PREFIX_BYTES]; /* prefix of the events' ids; set at acceptance */
    uint8_t body_digest[32];
};

void resume_read_head(struct request *request); /* sets request->id to the stream's id */
int resume_digest_body(
    struct request *request); /* digest of the decoded body; any thread.  E_NOMEM, with the error */
/* Call it once the request is parsed and tokenised.  Fails with 400. */
int resume_begin(struct request *request, struct api_error *error);
void resume_fill_work(const struct request *request, struct work_resume *out);
/* Call it when the job is accepted.  Returns the cached tokens that the stream began with. */
uint32_t resume_accept(struct request *request, uint32_t cached_tokens);
/* Call it when the worker's order is found.  E_NOMEM. */
int resume_on_found(struct request *request, const struct work_order *order);
void resume_begin_event(struct request *request, struct buf *out); /* writes the event's id */
/* Removes the event from the buffer if the client already has it, or if it is incomplete. */
void resume_end_event(struct request *request, struct buf *out, bool is_whole);

#endif
