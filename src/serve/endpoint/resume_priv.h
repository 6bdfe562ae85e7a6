/* SPDX-License-Identifier: Apache-2.0 */
/* A request's part in streams that outlive their router. */
#ifndef SERVE_ENDPOINT_RESUME_PRIV_H
#define SERVE_ENDPOINT_RESUME_PRIV_H

#include "compute/order/work.h"
#include "serve/api/error.h"
#include "serve/api/event_id.h"

struct request;

struct resume {
    bool is_kept;          /* the stream's events have ids */
    bool is_again;         /* the client came back for the rest of a stream */
    bool is_malformed;     /* ... with an id that is none */
    bool has_other_prompt; /* the stream's prompt is not the one made here: the answer is not cached */
    size_t event_at;       /* where the event being written begins in the front's buffer */
    uint64_t n_events;     /* written so far, sent or not */
    struct event_id id;    /* is_again: of the last event that the client has */
    char prefix[EVENT_ID_PREFIX_BYTES]; /* of the events' ids; set at acceptance */
    uint8_t body_digest[32];
};

void resume_read_head(struct request *request); /* sets request->id to that of the stream */
int resume_digest_body(
    struct request *request); /* of the decoded body; any thread. E_NOMEM, with the error */
/* The request is parsed and tokenised. Fails with 400. */
int resume_begin(struct request *request, struct api_error *error);
void resume_fill_work(const struct request *request, struct work_resume *out);
/* The job is accepted: returns the cached tokens that the stream began with. */
uint32_t resume_accept(struct request *request, uint32_t cached_tokens);
/* The worker's order was found. May end the request. */
void resume_on_found(struct request *request, const struct work_order *order);
void resume_begin_event(struct request *request, struct buf *out); /* writes its id */
/* Removes the event again if the client has it, or it is not whole. */
void resume_end_event(struct request *request, struct buf *out, bool is_whole);

#endif
