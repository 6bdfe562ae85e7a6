/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads for work that would hold a loop up (parsing large bodies, tokenising long prompts); the
 * result returns to the loop that asked. */
#ifndef BASE_EVENT_JOBS_H
#define BASE_EVENT_JOBS_H

#include "base/event/loop.h"

struct ev_jobs;

int ev_jobs_new(unsigned n_threads, uint32_t max_queued, struct ev_jobs **out);
/* Finishes every job taken so far and posts its done-call before it returns: run ev_loop_drain() afterwards.
 */
void ev_jobs_free(struct ev_jobs *jobs);
unsigned ev_jobs_n_threads(const struct ev_jobs *jobs);
uint64_t ev_jobs_n_taken(struct ev_jobs *jobs); /* since the start */
/* work(arg) runs on some thread, then done(arg) on loop.  Jobs begin in order of submission; one waits only
 * while every thread works.  Any thread.  E_FULL: max_queued wait or run already; nothing was taken. */
int ev_jobs_submit(struct ev_jobs *jobs, struct ev_loop *loop, ev_call work, ev_call done, void *arg);

#endif
