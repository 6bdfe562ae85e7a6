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
#include "serve/access/pool.h"

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

struct pool {
    struct pool_opts opts;
    struct hashmap *by_key;
    struct list turns; /* owners, the next one first */
    uint32_t n_waiting;
    uint64_t waiting_bytes;
    uint32_t n_begun;
};

int pool_new(const struct pool_opts *opts, struct pool **out)
{
    struct pool *pool = calloc(1, sizeof(*pool));

    if (pool == NULL)
        return E_NOMEM;
    pool->opts = *opts;
    list_init(&pool->turns);
    if (hashmap_new(sizeof(void *), &pool->by_key) < 0) {
        free(pool);
        return E_NOMEM;
    }
    *out = pool;
    return 0;
}

void pool_free(struct pool *pool)
{
    if (pool == NULL)
        return;
    hashmap_free(pool->by_key);
    free(pool);
}

static struct owner *find_owner(struct pool *pool, const void *key)
{
    struct owner *owner = hashmap_get(pool->by_key, &key);

    if (owner != NULL)
        return owner;
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return NULL;
    owner->key = key;
    list_init(&owner->jobs);
    if (hashmap_put(pool->by_key, &key, owner, NULL) < 0) {
        free(owner);
        return NULL;
    }
    list_push_back(&pool->turns, &owner->node);
    return owner;
}

/* Takes the job out of its owner's queue. */
static void unqueue(struct pool *pool, struct owner *owner, struct pool_job *job)
{
    list_remove(&job->node);
    job->is_waiting = false;
    pool->n_waiting--;
    pool->waiting_bytes -= job->size_bytes;
    owner->n--;
    owner->size_bytes -= job->size_bytes;
    if (owner->n > 0)
        return;
    hashmap_remove(pool->by_key, &owner->key);
    list_remove(&owner->node);
    free(owner);
}

static void work_job(void *arg)
{
    struct pool_job *job = arg;

    job->work(job->arg);
}

static void begin_more(struct pool *pool);

static void done_job(void *arg)
{
    struct pool_job *job = arg;
    struct pool *pool = job->pool;

    pool->n_begun--;
    begin_more(pool);
    job->done(job->arg);
}

static void begin_more(struct pool *pool)
{
    uint32_t max_begun = ev_jobs_n_threads(pool->opts.jobs) + 1;

    while (pool->n_begun < max_begun && !list_is_empty(&pool->turns)) {
        struct owner *owner = container_of(pool->turns.next, struct owner, node);
        struct pool_job *job = container_of(owner->jobs.next, struct pool_job, node);

        list_remove(&owner->node);
        list_push_back(&pool->turns, &owner->node);
        if (ev_jobs_submit(pool->opts.jobs, pool->opts.loop, work_job, done_job, job) < 0)
            return; /* other jobs fill the threads; the next end calls this again */
        unqueue(pool, owner, job);
        pool->n_begun++;
    }
}

int pool_submit(struct pool *pool, struct pool_job *job)
{
    const struct pool_opts *opts = &pool->opts;
    struct owner *owner;

    if (pool->n_waiting >= opts->max_waiting ||
        pool->waiting_bytes + job->size_bytes > opts->max_waiting_bytes)
        return E_FULL;
    owner = find_owner(pool, job->owner);
    if (owner == NULL)
        return E_NOMEM;
    if (owner->n > 0 && (owner->n >= opts->max_waiting / 2 ||
                         owner->size_bytes + job->size_bytes > opts->max_waiting_bytes / 2))
        return E_LIMIT;
    list_push_back(&owner->jobs, &job->node);
    owner->n++;
    owner->size_bytes += job->size_bytes;
    pool->n_waiting++;
    pool->waiting_bytes += job->size_bytes;
    job->pool = pool;
    job->is_waiting = true;
    begin_more(pool);
    if (pool->n_begun > 0)
        return 0;
    /* No job runs and none could start, so no end would ever start this one. */
    pool_withdraw(job);
    return E_FULL;
}

bool pool_withdraw(struct pool_job *job)
{
    if (!job->is_waiting)
        return false;
    unqueue(job->pool, hashmap_get(job->pool->by_key, &job->owner), job);
    return true;
}
