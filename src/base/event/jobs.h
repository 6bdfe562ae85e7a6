/* SPDX-License-Identifier: Apache-2.0 */
/* A thread pool for work that would block a loop (parse large bodies, tokenise long prompts).  Each result
 * returns to the loop that submitted the job. */
#ifndef BASE_EVENT_JOBS_H
#define BASE_EVENT_JOBS_H

#include "base/event/loop.h"

struct ev_jobs;

int ev_jobs_new(unsigned n_threads, uint32_t max_queued, struct ev_jobs **out);
/* Finishes every submitted job and posts its done call before it returns.  Call ev_loop_drain()
 * afterwards. */
void ev_jobs_free(struct ev_jobs *jobs);
unsigned ev_jobs_n_threads(const struct ev_jobs *jobs);
uint64_t ev_jobs_n_taken(struct ev_jobs *jobs); /* number of submitted jobs since the start */
/* Runs work(arg) on a pool thread, then done(arg) on loop.  Jobs start in order of submission; a job waits
 * only while all threads are busy.  Any thread.  E_FULL: max_queued jobs are queued or running; the job is
 * not submitted. */
int ev_jobs_submit(struct ev_jobs *jobs, struct ev_loop *loop, ev_call work, ev_call done, void *arg);

#endif
