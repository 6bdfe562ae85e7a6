/* SPDX-License-Identifier: Apache-2.0 */
/* Round robin over owners.
 *
 *     submit ──> owner A: job job job ─┐
 *                owner B: job ─────────┼─ one of each in turn ──> base/event/jobs, at most
 *                owner C: job job ─────┘                          threads + 1 jobs at once
 *                                                                 done ──> the next in turn
 *
 * One job more than there are threads keeps them busy until the loop learns that a job ended.  All
 * further jobs wait here, where the queue can order them and take them back.  A new owner waits for at
 * most one job of another owner beyond the running ones, however many jobs are queued. */
#include "serve/access/fair_queue.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/hashmap.h"

struct owner { /* has at least one job waiting */
    struct list node;
    const void *key;
    struct list jobs;
    uint32_t n;
    uint64_t size_bytes;
};

struct fair_queue {
    struct fair_queue_opts opts;
    struct hashmap *by_key;
    struct list turns; /* owners, the next one first */
    uint32_t n_waiting;
    uint64_t waiting_bytes;
    uint32_t n_begun;
};

int fair_queue_new(const struct fair_queue_opts *opts, struct fair_queue **out)
{
    struct fair_queue *queue = calloc(1, sizeof(*queue));

    if (queue == NULL)
        return E_NOMEM;
    queue->opts = *opts;
    list_init(&queue->turns);
    if (hashmap_new(sizeof(void *), &queue->by_key) < 0) {
        free(queue);
        return E_NOMEM;
    }
    *out = queue;
    return 0;
}

void fair_queue_free(struct fair_queue *queue)
{
    if (queue == NULL)
        return;
    hashmap_free(queue->by_key);
    free(queue);
}

static struct owner *find_owner(struct fair_queue *queue, const void *key)
{
    struct owner *owner = hashmap_get(queue->by_key, &key);

    if (owner != NULL)
        return owner;
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return NULL;
    owner->key = key;
    list_init(&owner->jobs);
    if (hashmap_put(queue->by_key, &key, owner, NULL) < 0) {
        free(owner);
        return NULL;
    }
    list_push_back(&queue->turns, &owner->node);
    return owner;
}

/* Takes the job out of its owner's queue. */
static void fair_queue_unqueue(struct fair_queue *queue, struct owner *owner, struct fair_queue_job *job)
{
    list_remove(&job->node);
    job->is_waiting = false;
    queue->n_waiting--;
    queue->waiting_bytes -= job->size_bytes;
    owner->n--;
    owner->size_bytes -= job->size_bytes;
    if (owner->n > 0)
        return;
    hashmap_remove(queue->by_key, &owner->key);
    list_remove(&owner->node);
    free(owner);
}

static void work_job(void *arg)
{
    struct fair_queue_job *job = arg;

    job->work(job->arg);
}

static void begin_more(struct fair_queue *queue);

static void done_job(void *arg)
{
    struct fair_queue_job *job = arg;
    struct fair_queue *queue = job->queue;

    queue->n_begun--;
    begin_more(queue);
    job->done(job->arg);
}

static void begin_more(struct fair_queue *queue)
{
    uint32_t max_begun = ev_jobs_n_threads(queue->opts.jobs) + 1;

    while (queue->n_begun < max_begun && !list_is_empty(&queue->turns)) {
        struct owner *owner = container_of(queue->turns.next, struct owner, node);
        struct fair_queue_job *job = container_of(owner->jobs.next, struct fair_queue_job, node);

        list_remove(&owner->node);
        list_push_back(&queue->turns, &owner->node);
        if (ev_jobs_submit(queue->opts.jobs, queue->opts.loop, work_job, done_job, job) < 0)
            return; /* other jobs fill the threads; the next end calls this again */
        fair_queue_unqueue(queue, owner, job);
        queue->n_begun++;
    }
}

int fair_queue_submit(struct fair_queue *queue, struct fair_queue_job *job)
{
    const struct fair_queue_opts *opts = &queue->opts;
    struct owner *owner;

    if (!job->is_exempt && (queue->n_waiting >= opts->max_waiting ||
                            queue->waiting_bytes + job->size_bytes > opts->max_waiting_bytes))
        return E_FULL;
    owner = find_owner(queue, job->owner);
    if (owner == NULL)
        return E_NOMEM;
    if (!job->is_exempt && owner->n > 0 &&
        (owner->n >= opts->max_waiting / 2 ||
         owner->size_bytes + job->size_bytes > opts->max_waiting_bytes / 2))
        return E_LIMIT;
    list_push_back(&owner->jobs, &job->node);
    owner->n++;
    owner->size_bytes += job->size_bytes;
    queue->n_waiting++;
    queue->waiting_bytes += job->size_bytes;
    job->queue = queue;
    job->is_waiting = true;
    begin_more(queue);
    if (queue->n_begun > 0)
        return 0;
    /* No job runs and none could start, so no end would ever start this one. */
    fair_queue_withdraw(job);
    return E_FULL;
}

bool fair_queue_withdraw(struct fair_queue_job *job)
{
    if (!job->is_waiting)
        return false;
    fair_queue_unqueue(job->queue, hashmap_get(job->queue->by_key, &job->owner), job);
    return true;
}
