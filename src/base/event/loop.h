/* SPDX-License-Identifier: Apache-2.0 */
/* One event loop per thread over libevent: timers, descriptors, and calls posted from other threads.
 * Everything except ev_post() is for the loop's own thread. */
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
void ev_loop_free(struct ev_loop *loop); /* its timers and descriptors were freed before */
/* Runs until ev_loop_stop, then runs what was posted before and returns 0.  A stop that came first counts. */
int ev_loop_run(struct ev_loop *loop);
void ev_loop_stop(struct ev_loop *loop); /* any thread */
/* Runs the calls posted so far, while the loop is not running: before ev_loop_free, which drops what is left.
 */
void ev_loop_drain(struct ev_loop *loop);
struct event_base *ev_loop_base(struct ev_loop *loop);
/* Loop turns so far: a watchdog sees progress here (any thread). */
uint64_t ev_loop_turns(const struct ev_loop *loop);

/* Any thread: call(arg) will run on the loop, in order of posting per thread.  E_FULL: 64 Ki are waiting;
 * E_NOMEM. Either way nothing was taken. */
int ev_post(struct ev_loop *loop, ev_call call, void *arg);

/* A call whose memory is there before there is something to tell: begins a piece of memory from malloc. */
struct ev_posting {
    ev_call call;
    void *arg;
};
/* As ev_post(); takes the posting (it is freed when its call is due), or returns E_FULL and nothing was
 * taken.
 */
int ev_post_made(struct ev_loop *loop, struct ev_posting *posting);

/* A timer, stopped at first. */
int ev_timer_new(struct ev_loop *loop, ev_call call, void *arg, struct ev_timer **out);
void ev_timer_free(struct ev_timer *timer);                     /* NULL is fine; safe inside its own call */
void ev_timer_start(struct ev_timer *timer, uint64_t delay_ns); /* once; restarts if running */
void ev_timer_repeat(struct ev_timer *timer, uint64_t period_ns);
void ev_timer_stop(struct ev_timer *timer);

enum ev_fd_wants { EV_FD_READ = 1, EV_FD_WRITE = 2 };
typedef void (*ev_fd_call)(void *arg, int fd, unsigned ready);
/* Level triggered.  The descriptor stays the caller's.  Freeing is safe inside its own call; NULL is fine. */
int ev_fd_new(struct ev_loop *loop, int fd, unsigned wants, ev_fd_call call, void *arg, struct ev_fd **out);
void ev_fd_want(struct ev_fd *watch, unsigned wants);
void ev_fd_free(struct ev_fd *watch);

#endif
