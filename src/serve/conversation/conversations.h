/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: each is kept under the id of its last answer and can be continued once.  Responses are kept
 * in a store of their own: they are read, any number of times, and removed, but never taken.
 *
 * The store is bounded in bytes and drops the least recently used conversation first.  Each conversation
 * also expires some minutes after its last use.  Nothing survives a restart.  If a conversation is gone,
 * the client sends it again in full, so a loss costs no correctness.  The text of a continued conversation goes
 * before all others: only a stream that is resumed needs it.  One loop thread, except that any thread may read a
 * text to which its request has a reference. */
#ifndef SERVE_CONVERSATION_CONVERSATIONS_H
#define SERVE_CONVERSATION_CONVERSATIONS_H

#include "base/bytes.h"

struct conversations;
struct conversation;
struct kept_text; /* counted: it stays as long as its conversation or a reference */

enum conversations_take {
    CONVERSATIONS_TAKEN,
    CONVERSATIONS_UNKNOWN,   /* it never existed, is gone, or belongs to another owner */
    CONVERSATIONS_CONTINUED, /* a request has continued it */
    CONVERSATIONS_BUSY       /* a request is continuing it */
};

enum conversations_end {
    CONVERSATIONS_RELEASED, /* it can be taken again */
    CONVERSATIONS_ENDED,    /* it was continued, and only that fact is kept */
    CONVERSATIONS_READABLE  /* the same, but its text can be read while there is memory for it */
};

/* life_ns: lifetime after the last use.  E_NOMEM. */
int conversations_new(size_t max_bytes, uint64_t life_ns, struct conversations **out);
void conversations_free(struct conversations *conversations); /* NULL is fine; no conversation may be held */
/* Stores a conversation (api_put_thread()) for its owner; takes the text.  id: the message's id, at most
 * IDS_BYTES - 1 long.  A conversation larger than the bound is dropped; so is one for which there is no
 * memory. */
void conversations_put(struct conversations *conversations, const char *id, const char *owner,
                       struct buf *text, uint64_t now_ns);
/* Holds a conversation for the request that continues it, until conversations_give_back(). */
enum conversations_take conversations_take(struct conversations *conversations, struct bytes id,
                                           const char *owner, uint64_t now_ns, struct conversation **out);
/* What conversations_take() would return, without taking it. */
enum conversations_take conversations_look(struct conversations *conversations, struct bytes id,
                                           const char *owner, uint64_t now_ns);
void conversations_give_back(struct conversations *conversations, struct conversation *conversation,
                             enum conversations_end how, uint64_t now_ns);
/* Gives a reference to a text, also of a conversation that is held or continued.  NULL: there is none.  It counts as a
 * use of a conversation that can be taken. */
struct kept_text *conversations_read(struct conversations *conversations, struct bytes id, const char *owner,
                                     uint64_t now_ns);
/* Takes a text that is in no conversation; one reference.  NULL: no memory, and the text is freed. */
struct kept_text *kept_text_new(struct buf *text);
void kept_text_unref(struct kept_text *text);              /* NULL is fine */
struct bytes kept_text_view(const struct kept_text *text); /* NULL: empty.  Any thread. */
/* Removes a conversation that is not held; references to its text stay.  False: unknown id. */
bool conversations_remove(struct conversations *conversations, struct bytes id, const char *owner);
size_t conversations_count(const struct conversations *conversations);
size_t conversations_bytes(const struct conversations *conversations);

#endif
