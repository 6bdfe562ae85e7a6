/* SPDX-License-Identifier: Apache-2.0 */
/* Threads over one queue: a job waits only while every thread is busy.
 *
 *     loop --ev_jobs_submit--> queue --a free thread--> work(arg) --its place is free--> done(arg) on the
 * loop
 *
 * A queue for each thread would need no lock.  But a job in it would wait for that thread while others are
 * idle, because the duration of earlier jobs is unknown.  The lock is held for a few instructions; jobs take
 * at least tens of microseconds.
 *
 * The order at the end of a job matters: first it frees its place, then it posts done.  So a job that the
 * loop submits from done finds the place and the thread free.  The memory for the post is part of the job,
 * so a process without memory still reports every end. */
#include "base/event/jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/thread.h"

/* Jobs are long and clients wait for loops: when CPUs are scarce, a loop runs first. */
#define BELOW_LOOPS 5

struct job {
    struct ev_posting end; /* first member: the loop frees the job through it */
    struct list node;
    struct ev_loop *loop;
    ev_call work;
    void *arg;
};

struct ev_jobs {
    pthread_mutex_t lock; /* guards all members below except n_threads and threads */
    pthread_cond_t wake;
    struct list queue;
    uint32_t max_held;
    uint64_t n_taken;
    uint32_t n_held; /* jobs queued or running */
    bool is_closed;
    unsigned n_threads; /* threads that were started */
    pthread_t *threads;
};

/* Returns the next job.  NULL: the pool is closed and empty. */
static struct job *jobs_take(struct ev_jobs *jobs)
{
    struct job *job = NULL;

    pthread_mutex_lock(&jobs->lock);
    while (list_is_empty(&jobs->queue) && !jobs->is_closed)
        pthread_cond_wait(&jobs->wake, &jobs->lock);
    if (!list_is_empty(&jobs->queue))
        job = container_of(list_pop_front(&jobs->queue), struct job, node);
    pthread_mutex_unlock(&jobs->lock);
    return job;
}

static void *jobs_thread(void *arg)
{
    struct ev_jobs *jobs = arg;
    struct job *job;

    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + BELOW_LOOPS); /* niceness of this thread */
    while ((job = jobs_take(jobs)) != NULL) {
        job->work(job->arg);
        pthread_mutex_lock(&jobs->lock);
        jobs->n_held--;
        pthread_mutex_unlock(&jobs->lock);
        /* The loop may have 64 Ki calls waiting. done must still be posted, so wait for room. */
        while (ev_post_made(job->loop, &job->end) != 0)
            clock_sleep_ns(NS_PER_MS);
    }
    return NULL;
}

static int jobs_start_thread(struct ev_jobs *jobs)
{
    int rc = thread_start(&jobs->threads[jobs->n_threads], jobs_thread, jobs);

    jobs->n_threads += rc == 0;
    return rc;
}

int ev_jobs_new(unsigned n_threads, uint32_t max_queued, struct ev_jobs **out)
{
    if (n_threads == 0 || max_queued == 0)
        return E_INVAL;

    struct ev_jobs *jobs = calloc(1, sizeof(*jobs));
    if (jobs == NULL)
        return E_NOMEM;
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->wake, NULL);
    list_init(&jobs->queue);
    jobs->max_held = max_queued;
    jobs->threads = calloc(n_threads, sizeof(*jobs->threads));
    int rc = jobs->threads == NULL ? E_NOMEM : 0;
    for (unsigned i = 0; i < n_threads && rc == 0; i++)
        rc = jobs_start_thread(jobs);
    if (rc != 0) {
        ev_jobs_free(jobs);
        return rc;
    }
    *out = jobs;
    return 0;
}

void ev_jobs_free(struct ev_jobs *jobs)
{
    if (jobs == NULL)
        return;
    pthread_mutex_lock(&jobs->lock);
    jobs->is_closed = true;
    pthread_cond_broadcast(&jobs->wake);
    pthread_mutex_unlock(&jobs->lock);
    for (unsigned i = 0; i < jobs->n_threads; i++)
        pthread_join(jobs->threads[i], NULL);
    pthread_cond_destroy(&jobs->wake);
    pthread_mutex_destroy(&jobs->lock);
    free(jobs->threads);
    free(jobs);
}

unsigned ev_jobs_n_threads(const struct ev_jobs *jobs)
{
    return jobs->n_threads;
}

uint64_t ev_jobs_n_taken(struct ev_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
    uint64_t n = jobs->n_taken;
    pthread_mutex_unlock(&jobs->lock);
    return n;
}

int ev_jobs_submit(struct ev_jobs *jobs, struct ev_loop *loop, ev_call work, ev_call done, void *arg)
{
    struct job *job = malloc(sizeof(*job));
    bool is_taken;

    if (job == NULL)
        return E_NOMEM;
    *job = (struct job){.end = {.call = done, .arg = arg}, .loop = loop, .work = work, .arg = arg};
    pthread_mutex_lock(&jobs->lock);
    is_taken = jobs->n_held < jobs->max_held;
    if (is_taken) {
        jobs->n_held++;
        jobs->n_taken++;
        list_push_back(&jobs->queue, &job->node);
        pthread_cond_signal(&jobs->wake);
    }
    pthread_mutex_unlock(&jobs->lock);
    if (is_taken)
        return 0;
    free(job);
    return E_FULL;
}
