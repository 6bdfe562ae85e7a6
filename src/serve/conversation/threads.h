/* SPDX-License-Identifier: Apache-2.0 */
/* Message threads: conversations kept under the id of their last answer, each to be continued once.
 *
 * Bounded in bytes, the least recently used goes first, and each goes some minutes after its last use;
 * nothing is kept over a restart.  A client that asks for one that is gone sends the whole conversation
 * again, so losing a thread costs no correctness.  One loop thread, but a text that is held may be read
 * anywhere. */
#ifndef SERVE_CONVERSATION_THREADS_H
#define SERVE_CONVERSATION_THREADS_H

#include "base/bytes.h"

struct threads;
struct thread;

enum threads_take {
    THREADS_TAKEN,
    THREADS_UNKNOWN,   /* never was, is gone, or is somebody else's */
    THREADS_CONTINUED, /* has been */
    THREADS_BUSY       /* is being */
};

/* life_ns: after the last use. E_NOMEM. */
int threads_new(size_t max_bytes, uint64_t life_ns, struct threads **out);
void threads_free(struct threads *threads); /* NULL is fine; none may be held */
/* Keeps a conversation (api_put_thread()) for its owner; takes the text.  id: of the message, at most
 * IDS_BYTES - 1 long.  One that is too large for the bound, or for which there is no memory, is not kept. */
void threads_put(struct threads *threads, const char *id, const char *owner, struct buf *text,
                 uint64_t now_ns);
/* For whoever continues it: held until threads_give_back(). */
enum threads_take threads_take(struct threads *threads, struct bytes id, const char *owner, uint64_t now_ns,
                               struct thread **out);
struct bytes thread_text(const struct thread *thread);
/* is_continued: it is not to be had again, and only that is remembered. */
void threads_give_back(struct threads *threads, struct thread *thread, bool is_continued, uint64_t now_ns);
size_t threads_count(const struct threads *threads);
size_t threads_bytes(const struct threads *threads);

#endif
