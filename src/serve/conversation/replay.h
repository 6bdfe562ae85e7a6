/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation that came back: which of its assistant's messages are answers of ours, by value. */
#ifndef SERVE_CONVERSATION_REPLAY_H
#define SERVE_CONVERSATION_REPLAY_H

#include "serve/conversation/memory.h"

#define REPLAY_LATER_BYTES ((size_t)256 << 10)

struct replay {              /* arrays live in the request's arena */
    struct memory_key *keys; /* [n_messages], of the assistant's messages; NULL: nothing is looked for */
    struct memory_key end;   /* of the conversation but for ... */
    const struct gen_message *later; /* ... its last messages, [n_later], which replay_key_of() takes in */
    size_t n_later;
    struct memory_answer **answers; /* [n_messages], held; NULL: none */
    size_t n;
};

/* Sums up the conversation, but for what is not needed to look answers up and is not too long to be summed up
 * when its own answer is remembered.  The request's messages are borrowed until replay_fini.  Pure; any
 * thread.  E_NOMEM. */
int replay_read(struct gen_request *request, struct replay *out);
/* Looks the answers up for a tenant and a model.  The memory's thread. */
void replay_find(struct replay *replay, struct memory *memory, const char *tenant, const char *fingerprint,
                 bool is_use);
void replay_fini(struct replay *replay); /* the memory's thread */

/* Where an answer with these blocks to the conversation belongs.  The first call takes as long as summing up
 * REPLAY_LATER_BYTES, some tenths of a millisecond.  E_NOMEM. */
int replay_key_of(struct replay *replay, const struct gen_message *answer, struct memory_key *out);
/* The same for a tenant and a model, as the memory has it. */
void replay_key_for(const struct memory_key *key, const char *tenant, const char *fingerprint,
                    struct memory_key *out);

/* Whose cached KV and answers a request may use: the tenant's, or, with a salt (empty: none), those of the
 * same tenant with the same salt.  No tenant's name is like what a salt gives. */
void replay_owner(const char *tenant, struct bytes salt, char out[64]);

/* Does the message say what the answer said?  Inputs of calls as JSON values; text apart from blanks at the
 * ends of blocks, however blocks were joined; thinking may be missing.  Pure; any thread. */
bool replay_is_equal(const struct memory_answer *answer, const struct gen_message *message);

#endif
