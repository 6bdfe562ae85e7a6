/* SPDX-License-Identifier: Apache-2.0 */
/* Large requests' work, in turns by owner, before the pool of job threads.
 *
 * What waits is bounded in number and in bytes, and one owner may have half of either; the threads are
 * given one job of each owner in turn.  So whoever sends much waits behind himself.  Loop thread only. */
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

struct pool_job {     /* embedded in whoever has work; zeroed at first */
    struct list node; /* pool's, as are the next two */
    struct pool *pool;
    bool is_waiting;   /* not begun yet */
    const void *owner; /* identity only; NULL: nobody in particular */
    uint64_t size_bytes;
    ev_call work; /* some thread */
    ev_call done; /* the loop */
    void *arg;
};

int pool_new(const struct pool_opts *opts, struct pool **out);
/* No job waits any more.  NULL is fine. */
void pool_free(struct pool *pool);
/* E_FULL: no room; E_LIMIT: the owner has his half; E_NOMEM.  Then nothing was taken. */
int pool_submit(struct pool *pool, struct pool_job *job);
/* True: it had not begun and will not, and done is not called. */
bool pool_withdraw(struct pool_job *job);

#endif
