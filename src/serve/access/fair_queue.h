/* SPDX-License-Identifier: Apache-2.0 */
/* Fair queue of the large requests' work, in front of the pool of job threads.
 *
 * The queue is bounded in jobs and in bytes, and one owner may use half of either bound.  Jobs at a request's end
 * are exempt, because a refusal would waste the request's work and save no memory.  The threads
 * receive one job of each owner in turn, so an owner with many jobs waits behind its own jobs.  Loop
 * thread only. */
#ifndef SERVE_ACCESS_FAIR_QUEUE_H
#define SERVE_ACCESS_FAIR_QUEUE_H

#include "base/list.h"
#include "base/event/jobs.h"

struct fair_queue;

struct fair_queue_opts {
    struct ev_jobs *jobs; /* borrowed */
    struct ev_loop *loop; /* borrowed */
    uint32_t max_waiting;
    uint64_t max_waiting_bytes;
};

struct fair_queue_job { /* embedded in the object that has work; zeroed at first */
    struct list node;   /* node, queue and is_waiting belong to the queue */
    struct fair_queue *queue;
    bool is_waiting;   /* not started yet */
    bool is_exempt;    /* not refused for the queue's bounds */
    const void *owner; /* identity only; NULL: no owner */
    uint64_t size_bytes;
    ev_call work; /* runs on any job thread */
    ev_call done; /* runs on the loop thread */
    void *arg;
};

int fair_queue_new(const struct fair_queue_opts *opts, struct fair_queue **out);
/* No job may wait at this point.  Accepts NULL. */
void fair_queue_free(struct fair_queue *queue);
/* E_FULL: no room; E_LIMIT: the owner uses its half already; E_NOMEM.  On an error the job is not taken. */
int fair_queue_submit(struct fair_queue *queue, struct fair_queue_job *job);
/* True: the job had not started and never will; done is not called. */
bool fair_queue_withdraw(struct fair_queue_job *job);

#endif
