/* SPDX-License-Identifier: Apache-2.0 */
/* Values that the endpoint keeps in and reads from the store that several routers share (shared.c).
 *
 * Loop thread, unless a function says otherwise.  Without a store, or while it is away, calls do nothing and
 * fetches return false.  Removals wait until the store is back. */
#ifndef SERVE_ENDPOINT_SHARED_PRIV_H
#define SERVE_ENDPOINT_SHARED_PRIV_H

#include "base/list.h"
#include "net/state/state.h"
#include "serve/api/ids.h"
#include "serve/conversation/replay.h"

struct front;
struct request;
struct http_exchange;
struct auth_key;

struct shared_part {       /* of a request */
    struct state_ask *ask; /* the question in flight; NULL: none */
    void (*go_on)(struct request *request);
    bool has_claim;            /* its claim is in the store */
    bool is_claimed_elsewhere; /* another request continues the conversation, or did */
    char thread_id[IDS_BYTES]; /* the conversation of the claim */
    uint32_t n;                /* names asked */
    struct bytes *ids;         /* [n]: of responses; borrowed from the request's body */
    struct answer_key *keys;   /* [n]: of answers */
    struct buf *fetched;       /* [n_fetched]: images of answers, to be parsed by the tokenise job */
    uint32_t n_fetched;
};

/* Asks for the conversation or the responses that the request names and this router lacks.  True: go_on follows. */
bool shared_fetch_conversation(struct request *request, void (*go_on)(struct request *request));
/* Asks for the remembered answers in its messages. */
bool shared_fetch_answers(struct request *request, void (*go_on)(struct request *request));
/* Puts fetched answers into the answer cache.  On the tokenise job's thread. */
void shared_take_answers(struct request *request);
/* Call it when the request ends. is_continued: its conversation cannot be continued again. */
void shared_end(struct request *request, bool is_continued);

/* Keep a copy for the other routers. */
void shared_keep_thread(struct request *request, struct bytes text);
void shared_keep_response(struct request *request, struct bytes text);
void shared_keep_answer(struct request *request, const struct answer_key *key,
                        const struct cached_answer *answer);

/* ---- /v1/responses/ID ---- */

/* Asks for the response, if this router lacks it.  True: go_on follows, unless the client goes away before. */
bool shared_fetch_response(struct front *front, struct http_exchange *exchange, const struct auth_key *who,
                           struct bytes id,
                           void (*go_on)(struct front *front, struct http_exchange *exchange));
/* Removes a response that its owner deleted, now or once the store is back.  E_FULL: too many removals wait;
 * E_NOMEM, E_INTERNAL. */
int shared_forget_response(struct front *front, const char *tenant, struct bytes id);
void shared_abort(struct front *front, const struct http_exchange *exchange); /* the client went away */
void shared_close(struct front *front);                                       /* the front ends */

#endif
