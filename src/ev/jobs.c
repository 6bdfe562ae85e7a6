/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with a mailbox each; a job goes to the thread that has the fewest.
 *
 *     loop --ev_jobs_submit--> mailbox of a thread --work(arg)--> --ev_post--> done(arg) on the loop
 *
 * One shared queue would balance a little better and would need a lock; with "fewest pending" a job waits
 * behind another only when every thread is busy.  The number of jobs taken and not yet answered is bounded,
 * so a mailbox as large as that bound never refuses.
 */
#include "ev/jobs.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mailbox.h"

/* Jobs are long and loops are waited for: where processors are short, a loop comes first. */
#define BELOW_LOOPS 5

struct job {
    struct ev_loop *loop;
    ev_call work;
    ev_call done;
    void *arg;
};

struct job_thread {
    struct ev_jobs *jobs;
    struct mailbox *box;
    _Atomic uint32_t n_pending;
    pthread_t thread;
};

struct ev_jobs {
    uint32_t max_queued;
    _Atomic uint32_t n_queued;
    unsigned n_threads; /* started */
    struct job_thread *threads;
};

static void run_job(struct job *job)
{
    job->work(job->arg);
    /* The loop may be behind by 64 Ki calls; the result must still arrive, so wait for room. */
    while (ev_post(job->loop, job->done, job->arg) != 0)
        clock_sleep_ns(NS_PER_MS);
    free(job);
}

static void *thread_main(void *arg)
{
    struct job_thread *self = arg;

    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + BELOW_LOOPS); /* of this thread */
    for (;;) {
        /* Asked before looking: nothing is sent after the close, so closed and then empty means the end. */
        bool is_last_look = mailbox_is_closed(self->box);
        struct job *job = mailbox_receive(self->box);

        if (job == NULL && is_last_look)
            return NULL;
        if (job == NULL) {
            mailbox_wait(self->box, UINT64_MAX);
            continue;
        }
        run_job(job);
        atomic_fetch_sub(&self->n_pending, 1);
        atomic_fetch_sub(&self->jobs->n_queued, 1);
    }
}

static int start_thread(struct ev_jobs *jobs)
{
    struct job_thread *self = &jobs->threads[jobs->n_threads];
    sigset_t all, before;

    self->jobs = jobs;
    int rc = mailbox_new(jobs->max_queued, &self->box);
    if (rc != 0)
        return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&self->thread, NULL, thread_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        mailbox_free(self->box);
        return E_NOMEM;
    }
    jobs->n_threads++;
    return 0;
}

int ev_jobs_new(unsigned n_threads, uint32_t max_queued, struct ev_jobs **out)
{
    if (n_threads == 0 || max_queued == 0)
        return E_INVAL;

    struct ev_jobs *jobs = calloc(1, sizeof(*jobs));
    if (jobs == NULL)
        return E_NOMEM;
    jobs->max_queued = max_queued;
    jobs->threads = calloc(n_threads, sizeof(*jobs->threads));
    int rc = jobs->threads == NULL ? E_NOMEM : 0;
    for (unsigned i = 0; i < n_threads && rc == 0; i++)
        rc = start_thread(jobs);
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
    for (unsigned i = 0; i < jobs->n_threads; i++)
        mailbox_close(jobs->threads[i].box);
    for (unsigned i = 0; i < jobs->n_threads; i++) {
        pthread_join(jobs->threads[i].thread, NULL);
        mailbox_free(jobs->threads[i].box);
    }
    free(jobs->threads);
    free(jobs);
}

unsigned ev_jobs_n_threads(const struct ev_jobs *jobs)
{
    return jobs->n_threads;
}

static struct job_thread *least_busy(struct ev_jobs *jobs)
{
    struct job_thread *best = &jobs->threads[0];

    for (unsigned i = 1; i < jobs->n_threads; i++)
        if (atomic_load(&jobs->threads[i].n_pending) < atomic_load(&best->n_pending))
            best = &jobs->threads[i];
    return best;
}

int ev_jobs_submit(struct ev_jobs *jobs, struct ev_loop *loop, ev_call work, ev_call done, void *arg)
{
    struct job *job = malloc(sizeof(*job));
    if (job == NULL)
        return E_NOMEM;
    if (atomic_fetch_add(&jobs->n_queued, 1) >= jobs->max_queued) {
        atomic_fetch_sub(&jobs->n_queued, 1);
        free(job);
        return E_FULL;
    }

    *job = (struct job){.loop = loop, .work = work, .done = done, .arg = arg};
    struct job_thread *thread = least_busy(jobs);
    atomic_fetch_add(&thread->n_pending, 1);
    ASSERT(mailbox_send(thread->box, job) == 0);
    return 0;
}
