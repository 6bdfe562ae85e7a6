/* SPDX-License-Identifier: Apache-2.0 */
/* Fair queue of the large requests' work, in front of the pool of job threads.
 *
 * The queue is bounded in jobs and in bytes, and one owner may use half of either bound.  The threads
 * receive one job of each owner in turn, so an owner with many jobs waits behind its own jobs.  Loop
 * thread only. */
#ifndef SERVE_ACCESS_POOL_H
#define SERVE_ACCESS_POOL_H

#include "base/list.h"
#include "base/event/jobs.h"

struct pool;

struct pool_opts {
    struct ev_jobs *jobs; /* borrowed */
    struct ev_loop *loop; /* borrowed */
    uint32_t max_waiting;
    uint64_t max_waiting_bytes;
};

struct pool_job {     /* embedded in the object that has work; zeroed at first */
    struct list node; /* node, pool and is_waiting belong to the pool */
    struct pool *pool;
    bool is_waiting;   /* not started yet */
    const void *owner; /* identity only; NULL: no owner */
    uint64_t size_bytes;
    ev_call work; /* runs on any job thread */
    ev_call done; /* runs on the loop thread */
    void *arg;
};

int pool_new(const struct pool_opts *opts, struct pool **out);
/* No job may wait any more.  NULL is fine. */
void pool_free(struct pool *pool);
/* E_FULL: no room; E_LIMIT: the owner uses its half already; E_NOMEM.  On an error the job is not taken. */
int pool_submit(struct pool *pool, struct pool_job *job);
/* True: the job had not started and never will; done is not called. */
bool pool_withdraw(struct pool_job *job);

#endif
