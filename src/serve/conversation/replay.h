/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises a conversation that comes back: which of its assistant messages are our own answers, by
 * value. */
#ifndef SERVE_CONVERSATION_REPLAY_H
#define SERVE_CONVERSATION_REPLAY_H

#include "serve/conversation/answer_cache.h"

#define REPLAY_LATER_BYTES ((size_t)256 << 10)

struct replay {                      /* arrays live in the request's arena */
    struct answer_key *keys;         /* [n_messages], of the assistant messages; NULL: no look-up */
    struct answer_key end;           /* of the conversation without ... */
    const struct gen_message *later; /* ... its last messages, [n_later], which replay_key_of() adds */
    size_t n_later;
    struct cached_answer **answers; /* [n_messages], referenced; NULL: not found */
    size_t n;
};

/* Hashes the conversation.  It leaves out last messages that no look-up needs, if they are short enough
 * to hash when the request's own answer is stored.  Borrows the request's messages until replay_fini.
 * Pure; any thread.  E_NOMEM. */
int replay_read(struct gen_request *request, struct replay *out);
/* Looks the answers up for a tenant and a model.  On the answer cache's thread. */
void replay_find(struct replay *replay, struct answer_cache *cache, const char *tenant,
                 const char *fingerprint, bool is_use);
void replay_fini(struct replay *replay); /* on the answer cache's thread */

/* Computes the key of an answer with these blocks to this conversation.  The first call takes as long as
 * hashing REPLAY_LATER_BYTES, some tenths of a millisecond.  E_NOMEM. */
int replay_key_of(struct replay *replay, const struct gen_message *answer, struct answer_key *out);
/* Makes the key for a tenant and a model, as the answer cache uses it. */
void replay_key_for(const struct answer_key *key, const char *tenant, const char *fingerprint,
                    struct answer_key *out);

/* Names the owner whose cached KV and answers a request may use: the tenant or, with a salt, the requests
 * of that tenant with the same salt.  An empty salt means none.  No tenant's name can equal an owner made
 * with a salt. */
void replay_owner(const char *tenant, struct bytes salt, char out[64]);

/* True if the message says the same as the answer.  Inputs of calls compare as JSON values.  Text
 * compares without blanks at the ends of blocks, however blocks were joined.  Thinking may be missing.
 * Pure; any thread. */
bool replay_is_equal(const struct cached_answer *answer, const struct gen_message *message);

#endif
