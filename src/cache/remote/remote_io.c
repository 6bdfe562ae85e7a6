/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier's threads and their use of the store.
 *
 *     caller --jobs--> threads[0]     writes          each has a store object, so connections, of its own
 *            --jobs--> threads[1]     asks and tests
 *            --jobs--> threads[2..]   read
 *            <--done-- all
 *
 * A thread takes all jobs of a kind that wait, up to a batch, and gives them to the store in one call: the store sends them
 * together.  A batch has about BATCH_BYTES of values.  Only these threads wait for the store.
 *
 * A writer asks before it writes: another worker may have written the same blocks, and values are large. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "cache/remote/remote_priv.h"

#define WAIT_NS     (NS_PER_S)
#define BATCH_BYTES (4u << 20)

struct remote_batch { /* jobs of one kind */
    struct remote_thread *thread;
    struct remote_job *jobs[REMOTE_BATCH];
    unsigned n;
    char names[REMOTE_BATCH][REMOTE_NAME_BYTES];
    struct store_item items[REMOTE_BATCH];
    struct fault fault;
};

void remote_job_free(struct remote_job *job)
{
    if (job != NULL)
        free(job->found);
    free(job);
}

static void remote_batch_name(struct remote_batch *batch)
{
    for (unsigned i = 0; i < batch->n; i++) {
        remote_name(&batch->thread->remote->seal, &batch->jobs[i]->hash, batch->names[i]);
        batch->items[i] = (struct store_item){.key = batch->names[i]};
    }
}

/* The store as a whole did not answer. */
static void remote_batch_fail(struct remote_batch *batch, int result)
{
    for (unsigned i = 0; i < batch->n; i++) {
        batch->jobs[i]->result = result;
        batch->jobs[i]->is_store_down = result != E_CANCELLED;
        batch->jobs[i]->fault = batch->fault;
    }
}

/* ---- reading ---- */

static void remote_batch_on_value(void *arg, unsigned i, struct bytes value)
{
    struct remote_batch *batch = arg;
    struct remote_job *job = batch->jobs[i];
    const struct remote_seal *seal = &batch->thread->remote->seal;

    job->result = remote_record_open(seal, batch->thread->cipher, value, &job->hash, job->id);
    if (job->result < 0)
        job->result = E_AUTH;
}

static void remote_batch_read(struct remote_batch *batch)
{
    struct remote_thread *thread = batch->thread;
    struct kv_remote *remote = thread->remote;
    const struct store_reader reader = {remote_batch_on_value, batch};
    uint64_t began_ns = clock_now_ns();
    int rc;

    remote_batch_name(batch);
    for (unsigned i = 0; i < batch->n; i++)
        batch->jobs[i]->result = 1; /* no value yet */
    rc = remote->ops->get(thread->store, batch->items, batch->n, &reader, &batch->fault);
    for (unsigned i = 0; i < batch->n; i++) {
        batch->jobs[i]->busy_ns = (clock_now_ns() - began_ns) / batch->n;
        if (batch->jobs[i]->result == 1)
            batch->jobs[i]->result = rc < 0 ? rc : batch->items[i].result;
        batch->jobs[i]->is_store_down = rc < 0 && rc != E_CANCELLED;
        batch->jobs[i]->fault = batch->fault;
        if (batch->jobs[i]->result == E_AUTH && rc == 0) /* else it would never be replaced */
            (void)remote->ops->remove(thread->store, &batch->items[i], &batch->fault);
    }
}

/* ---- writing ---- */

static void remote_batch_write(struct remote_batch *batch)
{
    struct remote_thread *thread = batch->thread;
    struct kv_remote *remote = thread->remote;
    struct remote_job *jobs[REMOTE_BATCH];
    struct bytes values[REMOTE_BATCH];
    unsigned n = 0;
    int rc;

    remote_batch_name(batch);
    rc = remote->ops->has(thread->store, batch->items, batch->n, &batch->fault);
    for (unsigned i = 0; i < batch->n && rc == 0; i++) {
        struct remote_job *job = batch->jobs[i];
        uint8_t *record = thread->records + n * (remote->record_bytes + 16);

        job->result = batch->items[i].result == 0 ? E_EXISTS : batch->items[i].result;
        if (job->result == E_NOT_FOUND)
            job->result = remote_record_seal(&remote->seal, thread->cipher, job->id, &job->hash, record);
        if (job->result != 0)
            continue;
        values[n] = bytes_of(record, remote->record_bytes);
        batch->items[n].key = batch->items[i].key;
        jobs[n++] = job;
    }
    if (rc == 0 && n > 0)
        rc = remote->ops->put(thread->store, batch->items, values, n, &batch->fault);
    if (rc == E_AUTH && n > 0) { /* it answered before, so it can be read: it only takes no blocks */
        for (unsigned i = 0; i < n; i++)
            batch->items[i].result = E_FULL;
        rc = 0;
    }
    for (unsigned i = 0; i < n && rc == 0; i++) {
        jobs[i]->result = batch->items[i].result;
        jobs[i]->fault = batch->fault;
    }
    if (rc < 0)
        remote_batch_fail(batch, rc);
}

/* ---- asking ---- */

static int remote_job_ask(struct remote_thread *thread, struct remote_job *job)
{
    struct kv_remote *remote = thread->remote;
    struct store_item *items = calloc(job->n, sizeof(*items));
    char(*names)[REMOTE_NAME_BYTES] = malloc(job->n * sizeof(*names));
    int rc = E_NOMEM;

    if (items != NULL && names != NULL) {
        for (uint32_t i = 0; i < job->n; i++) {
            remote_name(&remote->seal, &job->hashes[i], names[i]);
            items[i].key = names[i];
        }
        rc = remote->ops->has(thread->store, items, job->n, &job->fault);
        job->is_store_down = rc < 0 && rc != E_CANCELLED;
    }
    for (uint32_t i = 0; i < job->n && rc == 0; i++)
        job->found[i] = items[i].result == 0;
    free(names);
    free(items);
    return rc;
}

static int remote_job_test(struct remote_thread *thread, struct remote_job *job)
{
    struct buf advice = {0};
    bool is_warm = job->kind == REMOTE_JOB_WARM;
    int rc = thread->remote->ops->test(thread->store, is_warm ? NULL : &advice, &job->fault);
    size_t n = advice.len_bytes < sizeof(job->advice) ? advice.len_bytes : sizeof(job->advice) - 1;

    if (rc == 0 && !advice.is_bad && n > 2)
        memcpy(job->advice, advice.data, n - 2); /* without the last "; " */
    buf_fini(&advice);
    job->is_store_down = rc < 0 && rc != E_CANCELLED;
    return rc;
}

/* ---- the threads ---- */

static void remote_done(struct kv_remote *remote, struct remote_job *job)
{
    while (mailbox_send(remote->done, job) == E_FULL)
        clock_sleep_ns(NS_PER_MS); /* cannot happen: the mailbox holds all jobs that may be in flight */
}

/* Adds a job to the batch, or ends it here when it is too late for it. */
static void remote_batch_add(struct remote_batch *batch, struct remote_job *job)
{
    if (job->kind == REMOTE_JOB_READ && clock_now_ns() >= job->until_ns) {
        job->result = E_TIMEOUT;
        remote_done(batch->thread->remote, job);
        return;
    }
    batch->jobs[batch->n++] = job;
}

static void remote_batch_run(struct remote_batch *batch)
{
    struct kv_remote *remote = batch->thread->remote;

    if (batch->n == 0)
        return;
    switch (batch->jobs[0]->kind) {
    case REMOTE_JOB_TEST:
    case REMOTE_JOB_WARM:
        for (unsigned i = 0; i < batch->n; i++)
            batch->jobs[i]->result = remote_job_test(batch->thread, batch->jobs[i]);
        break;
    case REMOTE_JOB_ASK:
        batch->jobs[0]->result = remote_job_ask(batch->thread, batch->jobs[0]);
        break;
    case REMOTE_JOB_READ:
        remote_batch_read(batch);
        break;
    case REMOTE_JOB_WRITE:
        remote_batch_write(batch);
        break;
    }
    for (unsigned i = 0; i < batch->n; i++)
        remote_done(remote, batch->jobs[i]);
}

/* Fills the batch with jobs of one kind, beginning with this one.  Returns a job of another kind, which ended it;
 * NULL: none. */
static struct remote_job *remote_batch_fill(struct remote_batch *batch, struct remote_job *job, size_t most)
{
    enum remote_job_kind kind = job->kind;

    do {
        remote_batch_add(batch, job);
        job = batch->n < most ? mailbox_receive(batch->thread->jobs) : NULL;
    } while (job != NULL && job->kind == kind);
    return job;
}

/* How many jobs make a batch. */
static size_t remote_thread_most(const struct remote_thread *self)
{
    const struct kv_remote *remote = self->remote;
    size_t most = BATCH_BYTES / remote->record_bytes;

    if (self == &remote->threads[REMOTE_ASKER] || most < 1)
        return 1;
    return most < REMOTE_BATCH ? most : REMOTE_BATCH;
}

static void *remote_thread_run(void *arg)
{
    struct remote_thread *self = arg;
    struct kv_remote *remote = self->remote;
    size_t most = remote_thread_most(self);
    struct remote_job *next = NULL;

    while (!atomic_load_explicit(&remote->is_ending, memory_order_acquire)) {
        struct remote_job *job = next != NULL ? next : mailbox_receive(self->jobs);

        next = NULL;
        if (job == NULL) {
            mailbox_wait(self->jobs, WAIT_NS);
            mailbox_drain_fd(self->jobs);
            continue;
        }
        *self->batch = (struct remote_batch){.thread = self};
        next = remote_batch_fill(self->batch, job, most);
        remote_batch_run(self->batch);
        if (remote->wake != NULL)
            remote->wake(remote->wake_arg);
    }
    remote_job_free(next);
    return NULL;
}

static int remote_thread_start(struct kv_remote *remote, unsigned at, const struct store_opts *opts,
                               struct fault *fault)
{
    struct remote_thread *thread = &remote->threads[at];
    int rc;

    thread->remote = remote;
    rc = remote->ops->open(opts, fault, &thread->store);
    if (rc < 0)
        return rc;
    if (at == REMOTE_WRITER &&
        (thread->records = malloc(remote_thread_most(thread) * (remote->record_bytes + 16))) == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    thread->cipher = remote_cipher_new();
    thread->batch = malloc(sizeof(*thread->batch));
    if (thread->cipher == NULL || thread->batch == NULL ||
        mailbox_new(2 * KV_REMOTE_READS, &thread->jobs) < 0 ||
        thread_start(&thread->thread, remote_thread_run, thread) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    thread->is_started = true;
    return 0;
}

int remote_threads_start(struct kv_remote *remote, const struct store_opts *opts, struct fault *fault)
{
    for (unsigned i = 0; i < REMOTE_FIRST_READER + remote->n_readers; i++) {
        int rc = remote_thread_start(remote, i, opts, fault);

        if (rc < 0)
            return rc;
    }
    return 0;
}

static void remote_mailbox_empty(struct mailbox *box)
{
    struct remote_job *job;

    while (box != NULL && (job = mailbox_receive(box)) != NULL)
        remote_job_free(job);
    mailbox_free(box);
}

void remote_threads_stop(struct kv_remote *remote)
{
    unsigned n = REMOTE_FIRST_READER + REMOTE_MAX_READERS;

    atomic_store_explicit(&remote->is_ending, true, memory_order_release);
    for (unsigned i = 0; i < n; i++)
        if (remote->threads[i].is_started)
            mailbox_wake(remote->threads[i].jobs);
    for (unsigned i = 0; i < n; i++)
        if (remote->threads[i].is_started)
            pthread_join(remote->threads[i].thread, NULL);
    for (unsigned i = 0; i < n; i++) {
        struct remote_thread *thread = &remote->threads[i];

        remote_mailbox_empty(thread->jobs);
        if (thread->store != NULL)
            remote->ops->close(thread->store);
        remote_cipher_free(thread->cipher);
        free(thread->records);
        free(thread->batch);
    }
    remote_mailbox_empty(remote->done);
}

int remote_send(struct kv_remote *remote, struct remote_job *job, unsigned at)
{
    job->began_ns = clock_now_ns();
    if (mailbox_send(remote->threads[at].jobs, job) < 0) {
        remote_job_free(job);
        return E_AGAIN;
    }
    return 0;
}
