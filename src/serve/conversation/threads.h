/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: each is kept under the id of its last answer and can be continued once.
 *
 * The store is bounded in bytes and drops the least recently used conversation first.  Each conversation
 * also expires some minutes after its last use.  Nothing survives a restart.  If a conversation is gone,
 * the client sends it again in full, so a loss costs no correctness.  One loop thread, except that any
 * thread may read a text that is held. */
#ifndef SERVE_CONVERSATION_THREADS_H
#define SERVE_CONVERSATION_THREADS_H

#include "base/bytes.h"

struct threads;
struct thread;

enum threads_take {
    THREADS_TAKEN,
    THREADS_UNKNOWN,   /* it never existed, is gone, or belongs to another owner */
    THREADS_CONTINUED, /* a request has continued it */
    THREADS_BUSY       /* a request is continuing it */
};

/* life_ns: lifetime after the last use.  E_NOMEM. */
int threads_new(size_t max_bytes, uint64_t life_ns, struct threads **out);
void threads_free(struct threads *threads); /* NULL is fine; no conversation may be held */
/* Stores a conversation (api_put_thread()) for its owner; takes the text.  id: the message's id, at most
 * IDS_BYTES - 1 long.  A conversation larger than the bound is dropped; so is one for which there is no
 * memory. */
void threads_put(struct threads *threads, const char *id, const char *owner, struct buf *text,
                 uint64_t now_ns);
/* Holds a conversation for the request that continues it, until threads_give_back(). */
enum threads_take threads_take(struct threads *threads, struct bytes id, const char *owner, uint64_t now_ns,
                               struct thread **out);
struct bytes thread_text(const struct thread *thread);
/* Releases a conversation.  is_continued: it cannot be taken again, and only that fact is kept. */
void threads_give_back(struct threads *threads, struct thread *thread, bool is_continued, uint64_t now_ns);
size_t threads_count(const struct threads *threads);
size_t threads_bytes(const struct threads *threads);

#endif
