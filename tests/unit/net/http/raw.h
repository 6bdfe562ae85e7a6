/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of servers: a loop on its own thread,
 * and a blocking client that sends exactly the given bytes. */
#ifndef TESTS_HTTP_RAW_H
#define TESTS_HTTP_RAW_H

#include <pthread.h>

#include "base/bytes.h"
#include "base/event/loop.h"

struct raw_loop {
    struct ev_loop *loop;
    pthread_t thread;
};

/* The loop exists, but does not run until raw_loop_run, so that this thread can set up servers. */
void raw_loop_init(struct raw_loop *raw);
void raw_loop_run(struct raw_loop *raw);
/* Stops and joins; then this thread can take the loop down and free it. */
void raw_loop_stop(struct raw_loop *raw);
/* Runs call(arg) on the loop and waits for its end. */
void raw_loop_call(struct raw_loop *raw, ev_call call, void *arg);

int raw_connect(uint16_t port);
/* Connects with a small receive buffer, for slow readers. */
int raw_connect_small(uint16_t port);
/* Connects with a buffer small enough that a server soon has to wait, but large enough that the kernel moves
 * on as soon as data is read.  Through a very small window it would send in bits, with pauses of its own. */
int raw_connect_middling(uint16_t port);
/* False: the peer closed. */
bool raw_send(int fd, const void *data, size_t len_bytes);
bool raw_send_str(int fd, const char *text);
/* Appends input until the text contains needle (NULL:
 * until the end of the stream) or for timeout_ms.  True: it came. */
bool raw_read_until(int fd, const char *needle, unsigned timeout_ms, struct buf *out);
/* Reads exactly one answer (length or chunks) into out.  Returns its status, 0 if it was not complete.
 * body_out (may be NULL) receives the body, unchunked. */
int raw_read_answer(int fd, struct buf *out, struct buf *body_out);
/* Connects, sends, reads one answer, closes. */
int raw_ask(uint16_t port, const char *request, struct buf *body_out);
bool raw_is_closed(int fd, unsigned timeout_ms); /* ended or reset, without data, in time */
bool raw_holds(const struct buf *text, const char *needle);

#endif
