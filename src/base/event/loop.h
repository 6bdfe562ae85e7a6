/* SPDX-License-Identifier: Apache-2.0 */
/* One event loop for each thread, over libevent: timers, descriptors, and calls posted from other threads.
 * Only the loop's own thread may call these functions, unless they say "any thread".
 *
 * More than 15 functions: four small objects (loop, post, timer, descriptor) that always come together. */
#ifndef BASE_EVENT_LOOP_H
#define BASE_EVENT_LOOP_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct ev_loop;
struct ev_timer;
struct ev_fd;

typedef void (*ev_call)(void *arg);

int ev_loop_new(struct ev_loop **out);
void ev_loop_free(struct ev_loop *loop); /* free its timers and descriptors first */
/* Runs until ev_loop_stop(), then runs the calls posted before and returns 0.  A stop before the run counts
 * too. */
int ev_loop_run(struct ev_loop *loop);
void ev_loop_stop(struct ev_loop *loop); /* any thread */
/* Runs the calls posted so far.  Only while the loop does not run: before ev_loop_free(), which drops posted
 * calls. */
void ev_loop_drain(struct ev_loop *loop);
struct event_base *ev_loop_base(struct ev_loop *loop);
/* Loop turns so far, for a watchdog that checks progress.  Any thread. */
uint64_t ev_loop_turns(const struct ev_loop *loop);

/* Posts call(arg) to run on the loop.  Posts of one thread run in order.  Any thread.  E_FULL: 64 Ki calls
 * are waiting; E_NOMEM.  After an error the call does not run. */
int ev_post(struct ev_loop *loop, ev_call call, void *arg);

/* A posting that is allocated in advance, so that posting needs no memory later.  It is the first member of
 * a piece of memory from malloc(). */
struct ev_posting {
    ev_call call;
    void *arg;
};
/* As ev_post(), but takes the posting and frees it when it runs the call.  E_FULL: the posting stays with
 * the caller. */
int ev_post_made(struct ev_loop *loop, struct ev_posting *posting);

/* Makes a stopped timer. */
int ev_timer_new(struct ev_loop *loop, ev_call call, void *arg, struct ev_timer **out);
void ev_timer_free(struct ev_timer *timer); /* accepts NULL; allowed inside its own call */
void ev_timer_start(struct ev_timer *timer, uint64_t delay_ns); /* fires once; restarts a running timer */
void ev_timer_repeat(struct ev_timer *timer, uint64_t period_ns);
void ev_timer_stop(struct ev_timer *timer);

enum ev_fd_wants { EV_FD_READ = 1, EV_FD_WRITE = 2 };
typedef void (*ev_fd_call)(void *arg, int fd, unsigned ready);
/* Level triggered; wants EV_FD_READ until ev_fd_want() says otherwise.  The caller keeps the descriptor. ev_fd_free()
 * accepts NULL and is allowed inside its own call. */
int ev_fd_new(struct ev_loop *loop, int fd, ev_fd_call call, void *arg, struct ev_fd **out);
void ev_fd_want(struct ev_fd *watch, unsigned wants);
void ev_fd_free(struct ev_fd *watch);

#endif
