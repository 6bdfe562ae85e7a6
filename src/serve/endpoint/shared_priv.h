/* SPDX-License-Identifier: Apache-2.0 */
/* What the endpoint keeps for all routers, and looks for there (shared.c): in a store, or with the workers.
 *
 * Loop thread, unless a function says otherwise.  Without common values, or while they are away, all calls do nothing
 * and the fetches return false; removals wait until they are back. */
#ifndef SERVE_ENDPOINT_SHARED_PRIV_H
#define SERVE_ENDPOINT_SHARED_PRIV_H

#include "base/list.h"
#include "net/state/state_values.h"
#include "serve/api/ids.h"
#include "serve/conversation/conversations.h"
#include "serve/conversation/replay.h"

struct front;
struct request;
struct http_exchange;
struct auth_key;

#define SHARED_MAX_LATER 512u

struct shared_later { /* a front's names of values that it forgets later, in order of time */
    struct {
        struct state_name name;
        uint64_t due_ns;
    } names[SHARED_MAX_LATER]; /* a ring: n from first on */
    uint32_t first, n;
};

struct shared_part { /* of a request */
    void *ask;       /* it waits for common values */
    void (*go_on)(struct request *request);
    enum state_claim claim;    /* TAKEN: another request has it; for a resumed stream, its first one */
    char thread_id[IDS_BYTES]; /* of the claim */
    bool has_text;             /* shared_keep_history() put the text again */
    uint32_t n;                /* names asked */
    struct bytes *ids;         /* [n]: of responses; borrowed from the request's body */
    struct answer_key *keys;   /* [n]: of answers */
    struct buf *fetched;       /* [n_fetched]: images of answers, to be parsed by the tokenise job */
    uint32_t n_fetched;
};

/* Asks for the conversation or the responses that the request names and this router lacks.  True: go_on follows.  The text
 * of a conversation whose stream is resumed goes to request->history. */
bool shared_fetch_conversation(struct request *request, void (*go_on)(struct request *request));
/* Asks for the remembered answers in its messages. */
bool shared_fetch_answers(struct request *request, void (*go_on)(struct request *request));
/* Puts fetched answers into the answer cache.  On the tokenise job's thread. */
void shared_take_answers(struct request *request);
/* Call it when the request ends.  how: what became of the conversation that it continues. */
void shared_end(struct request *request, enum conversations_end how);

/* A stream that may be resumed has begun: keeps the text that it continues for an hour, with the claim. */
void shared_keep_history(struct request *request);
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
/* Its owner deleted it; also while the values are away.  E_FULL: too many wait for them; E_NOMEM, E_INTERNAL. */
int shared_forget_response(struct front *front, const char *tenant, struct bytes id);
void shared_abort(struct front *front, const struct http_exchange *exchange); /* the client went away */
void shared_close(struct front *front);                                       /* the front ends */

#endif
