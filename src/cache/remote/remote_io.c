/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier's threads and their use of the store.
 *
 *     caller --jobs--> threads[0]     writes          each has a store object, so connections, of its own
 *            --jobs--> threads[1]     asks and tests
 *            --jobs--> threads[2..]   read
 *            <--done-- all
 *
 * A thread takes all jobs of a kind that wait, up to a batch, and gives them to the store in one call: the store sends them
 * together.  A batch has about READ_BATCH_BYTES or WRITE_BATCH_BYTES of values.  Only these threads wait for the store.
 *
 * Sealing and sending overlap, as do receiving and opening: a record is sealed when the store is about to send it, and
 * opened while it arrives.
 *
 * A writer asks before it writes: another worker may have written the same blocks, and values are large.  It writes the
 * run from its first to its last block that is not there. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "cache/remote/remote_priv.h"

#define WAIT_NS           (NS_PER_S)
#define READ_BATCH_BYTES  (8u << 20)  /* one value arrives while another is opened */
#define DELIVER_BYTES     (1u << 20)  /* of values that were read: the caller gets them together */
#define WRITE_BATCH_BYTES (16u << 20) /* more than one of the longest values: no client waits for a write */
#define IS_READING        1           /* the result of a read whose value is not there yet */

struct remote_batch { /* jobs of one kind */
    struct remote_thread *thread;
    struct remote_job *jobs[REMOTE_BATCH];
    unsigned n;
    size_t len_bytes; /* of their values */
    char names[REMOTE_BATCH][REMOTE_NAME_BYTES];
    struct store_item items[REMOTE_BATCH];
    /* of a read: */
    struct remote_opening opening; /* of the record that arrives now */
    uint64_t since_ns;             /* the latest delivery */
    uint32_t n_ready;              /* blocks of jobs that ended and were not delivered yet */
    bool is_damaged[REMOTE_BATCH];
    /* of a write: */
    struct remote_value {
        unsigned job;
        size_t sealed_bytes;
    } made[REMOTE_BATCH];
    struct bytes values[REMOTE_BATCH]; /* in thread->records */
    struct fault fault;
};

/* The values of a batch, at most: those of the longest run at least. */
static size_t remote_batch_bytes(const struct kv_remote *remote, bool is_write)
{
    size_t run_bytes = remote->run_blocks * remote->record_bytes,
           most = is_write ? WRITE_BATCH_BYTES : READ_BATCH_BYTES;

    return run_bytes > most ? run_bytes : most;
}

void remote_job_free(struct remote_job *job)
{
    if (job != NULL) {
        free(job->ends);
        free(job->blocks);
    }
    free(job);
}

static size_t remote_job_bytes(const struct kv_remote *remote, const struct remote_job *job)
{
    return job->kind == REMOTE_JOB_READ || job->kind == REMOTE_JOB_WRITE ? job->n * remote->record_bytes : 0;
}

/* One result for all blocks. */
static void remote_job_end(struct remote_job *job, int result)
{
    job->result = result;
    for (uint32_t i = 0; job->blocks != NULL && i < job->n; i++)
        job->blocks[i].result = result;
}

/* The store as a whole did not answer. */
static void remote_batch_fail(struct remote_batch *batch, int result)
{
    for (unsigned i = 0; i < batch->n; i++) {
        remote_job_end(batch->jobs[i], result);
        batch->jobs[i]->is_store_down = result != E_CANCELLED && result != E_NOMEM;
        batch->jobs[i]->fault = batch->fault;
    }
}

static void remote_done(struct kv_remote *remote, struct remote_job *job)
{
    while (mailbox_send(remote->done, job) == E_FULL)
        clock_sleep_ns(NS_PER_MS); /* cannot happen: the mailbox holds all jobs that may be in flight */
}

/* ---- reading ---- */

/* Opens what a part has, from the record on that was not opened yet: the first is that of the run's last block.  Each
 * block has a result of its own. */
static void remote_batch_on_part(void *arg, unsigned i, struct bytes beginning)
{
    struct remote_batch *batch = arg;
    struct remote_job *job = batch->jobs[i];
    const struct kv_remote *remote = batch->thread->remote;
    size_t record_bytes = remote->record_bytes;

    if (beginning.len_bytes == 0)
        batch->opening = (struct remote_opening){0};
    for (; job->n_opened < job->n; job->n_opened++) {
        uint32_t at = job->n - 1 - job->n_opened;
        size_t from = job->n_opened * record_bytes;
        struct bytes record = bytes_of(NULL, 0);
        int rc;

        if (beginning.len_bytes > from)
            record = bytes_of(beginning.data + from, beginning.len_bytes - from);
        rc = remote_record_open_part(&remote->seal, batch->thread->cipher, record, &job->hashes[at],
                                     job->blocks[at].id, &batch->opening);
        if (rc == E_AGAIN)
            return;
        batch->opening = (struct remote_opening){0};
        job->blocks[at].result = rc < 0 ? E_AUTH : 0;
    }
}

/* Gives the caller the reads that have ended. */
static void remote_batch_deliver(struct remote_batch *batch)
{
    struct kv_remote *remote = batch->thread->remote;
    uint64_t now_ns = clock_now_ns(), took_ns = now_ns - batch->since_ns;

    for (unsigned i = 0; i < batch->n; i++) {
        struct remote_job *job = batch->jobs[i];

        if (job == NULL || job->result == IS_READING)
            continue;
        job->busy_ns = took_ns * job->n / batch->n_ready;
        batch->jobs[i] = NULL;
        remote_done(remote, job);
    }
    batch->since_ns = now_ns;
    batch->n_ready = 0;
    if (remote->wake != NULL)
        remote->wake(remote->wake_arg);
}

/* The value is there: a record that it lacks counts as damaged. */
static void remote_batch_on_value(void *arg, unsigned i, struct bytes value)
{
    struct remote_batch *batch = arg;
    struct remote_job *job = batch->jobs[i];

    remote_batch_on_part(arg, i, value);
    batch->opening = (struct remote_opening){0};
    for (; job->n_opened < job->n; job->n_opened++)
        job->blocks[job->n - 1 - job->n_opened].result = E_AUTH;
    job->result = 0;
    for (uint32_t at = 0; at < job->n; at++)
        if (job->blocks[at].result < 0)
            job->result = E_AUTH;
    batch->is_damaged[i] = job->result == E_AUTH;
    batch->n_ready += job->n;
    if (batch->n_ready * batch->thread->remote->record_bytes >= DELIVER_BYTES)
        remote_batch_deliver(batch);
}

static void remote_batch_read(struct remote_batch *batch)
{
    struct remote_thread *thread = batch->thread;
    struct kv_remote *remote = thread->remote;
    const struct store_reader reader = {remote_batch_on_part, remote_batch_on_value, batch};
    int rc;

    batch->since_ns = clock_now_ns();
    for (unsigned i = 0; i < batch->n; i++) {
        struct remote_job *job = batch->jobs[i];

        remote_name(&remote->seal, &job->name, batch->names[i]);
        batch->items[i] = (struct store_item){.key = batch->names[i],
                                              .from_bytes = job->n_after * remote->record_bytes,
                                              .len_bytes = job->n * remote->record_bytes};
        job->result = IS_READING;
    }
    rc = remote->ops->get(thread->store, batch->items, batch->n, &reader, &batch->fault);
    for (unsigned i = 0; i < batch->n; i++) {
        struct remote_job *job = batch->jobs[i];

        if (batch->is_damaged[i] && rc == 0) /* else it would never be replaced */
            (void)remote->ops->remove(thread->store, &batch->items[i], &batch->fault);
        if (job == NULL || job->result != IS_READING)
            continue;
        remote_job_end(job, rc < 0 ? rc : batch->items[i].result);
        job->is_store_down = rc < 0 && rc != E_CANCELLED;
        job->fault = batch->fault;
        batch->n_ready += job->n;
    }
    remote_batch_deliver(batch);
}

/* ---- asking ---- */

struct remote_question { /* about the values that end with these blocks */
    const struct block_hash *hashes;
    uint32_t n;
    uint32_t *runs; /* [n] the length of each; 0: none is known of */
    int *results;   /* [n] 0, E_NOT_FOUND, or why nothing is known; NULL: not wanted */
};

static int remote_ask_runs(struct remote_thread *thread, const struct remote_question *question,
                           struct fault *fault)
{
    struct kv_remote *remote = thread->remote;
    uint32_t n = question->n;
    struct store_item *items = calloc(n, sizeof(*items));
    char(*names)[REMOTE_NAME_BYTES] = malloc(n * sizeof(*names));
    int rc = E_NOMEM;

    if (items != NULL && names != NULL) {
        for (uint32_t i = 0; i < n; i++) {
            remote_name(&remote->seal, &question->hashes[i], names[i]);
            items[i].key = names[i];
        }
        rc = remote->ops->has(thread->store, items, n, fault);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        bool is_there = items[i].result == 0;

        question->runs[i] = is_there ? remote_run_length(remote->record_bytes, items[i].value_bytes) : 0;
        if (question->results != NULL)
            question->results[i] = items[i].result;
    }
    free(names);
    free(items);
    return rc;
}

static int remote_job_ask(struct remote_thread *thread, struct remote_job *job)
{
    struct remote_question question = {.hashes = job->hashes, .n = job->n};
    int rc = E_NOMEM;

    question.runs = malloc(job->n * sizeof(*question.runs));
    if (question.runs != NULL)
        rc = remote_ask_runs(thread, &question, &job->fault);
    job->is_store_down = rc < 0 && rc != E_CANCELLED && rc != E_NOMEM;
    if (rc == 0)
        remote_run_cover(question.runs, job->n, job->ends);
    free(question.runs);
    return rc;
}

/* ---- writing ---- */

/* The run that the job has to write: from its first to its last block that is not there.  If the server that would have
 * the value did not answer, the job fails. */
static void remote_job_choose(struct remote_job *job, const uint32_t *runs, const int *results)
{
    uint32_t ends[REMOTE_RUN_BLOCKS];

    remote_run_cover(runs, job->n, ends);
    remote_job_end(job, E_EXISTS);
    job->first = job->end = 0;
    for (uint32_t at = job->n; at-- > 0;)
        if (ends[at] == REMOTE_NOT_THERE) {
            job->end = job->end == 0 ? at + 1 : job->end;
            job->first = at;
        }
    if (job->end > 0 && results[job->end - 1] != E_NOT_FOUND) {
        remote_job_end(job, results[job->end - 1]);
        job->end = 0;
    }
}

/* Asks which of a batch's blocks are there. */
static int remote_batch_ask(struct remote_batch *batch)
{
    struct remote_question question = {0};
    struct block_hash *hashes;
    uint32_t at = 0;
    int rc = E_NOMEM;

    for (unsigned i = 0; i < batch->n; i++)
        question.n += batch->jobs[i]->n;
    question.hashes = hashes = malloc(question.n * sizeof(*hashes));
    question.runs = malloc(question.n * sizeof(*question.runs));
    question.results = malloc(question.n * sizeof(*question.results));
    for (unsigned i = 0; hashes != NULL && i < batch->n; at += batch->jobs[i++]->n)
        memcpy(hashes + at, batch->jobs[i]->hashes, batch->jobs[i]->n * sizeof(*hashes));
    if (hashes != NULL && question.runs != NULL && question.results != NULL)
        rc = remote_ask_runs(batch->thread, &question, &batch->fault);
    at = 0;
    for (unsigned i = 0; rc == 0 && i < batch->n; at += batch->jobs[i++]->n)
        remote_job_choose(batch->jobs[i], question.runs + at, question.results + at);
    free(hashes);
    free(question.runs);
    free(question.results);
    return rc;
}

/* Seals the records that begin before len_bytes, the last block's first. */
static int remote_batch_fill_value(void *arg, unsigned i, size_t len_bytes)
{
    struct remote_batch *batch = arg;
    struct remote_thread *thread = batch->thread;
    const struct kv_remote *remote = thread->remote;
    struct remote_value *value = &batch->made[i];
    const struct remote_job *job = batch->jobs[value->job];
    uint8_t *records = thread->records + (batch->values[i].data - thread->records);

    while (value->sealed_bytes < len_bytes) {
        uint32_t at = job->end - 1 - (uint32_t)(value->sealed_bytes / remote->record_bytes);
        int rc = remote_record_seal(&remote->seal, thread->cipher, job->blocks[at].id, &job->hashes[at],
                                    records + value->sealed_bytes);

        if (rc < 0)
            return rc;
        value->sealed_bytes += remote->record_bytes;
    }
    return 0;
}

/* An empty value, or one of another type, is in the way: removes it.  False: it is a value. */
static bool remote_batch_clear(struct remote_batch *batch, unsigned i)
{
    struct kv_remote *remote = batch->thread->remote;
    struct store_item item = {.key = batch->names[i]};

    return remote->ops->has(batch->thread->store, &item, 1, &batch->fault) == 0 &&
           item.result == E_NOT_FOUND && remote->ops->remove(batch->thread->store, &item, &batch->fault) == 0;
}

/* Gives the runs that are to be written to the store, which lets them be sealed. */
static int remote_batch_put(struct remote_batch *batch, unsigned *n_out)
{
    struct remote_thread *thread = batch->thread;
    struct kv_remote *remote = thread->remote;
    const struct store_values values = {batch->values, remote_batch_fill_value, batch};
    uint8_t *record = thread->records;
    unsigned n = 0;

    for (unsigned i = 0; i < batch->n; i++) {
        struct remote_job *job = batch->jobs[i];

        if (job->end == 0)
            continue;
        remote_name(&remote->seal, &job->hashes[job->end - 1], batch->names[n]);
        batch->items[n] = (struct store_item){.key = batch->names[n]};
        batch->values[n] = bytes_of(record, (job->end - job->first) * remote->record_bytes);
        batch->made[n] = (struct remote_value){.job = i};
        record += batch->values[n++].len_bytes;
    }
    *n_out = n;
    return n > 0 ? remote->ops->put(thread->store, batch->items, &values, n, &batch->fault) : 0;
}

static void remote_batch_write(struct remote_batch *batch)
{
    unsigned n = 0;
    bool is_refused;
    int rc = remote_batch_ask(batch);

    if (rc == 0)
        rc = remote_batch_put(batch, &n);
    is_refused = rc == E_AUTH && n > 0; /* it answered before, so it can be read: it only takes no blocks */
    if (rc < 0 && !is_refused) {
        remote_batch_fail(batch, rc);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        struct remote_job *job = batch->jobs[batch->made[i].job];

        job->result = is_refused ? E_FULL : batch->items[i].result;
        if (job->result == E_EXISTS && remote_batch_clear(batch, i))
            job->result = E_AGAIN;
        for (uint32_t at = job->first; at < job->end; at++)
            job->blocks[at].result = job->result;
        job->fault = batch->fault;
    }
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

/* Adds a job to the batch, or ends it here when it is too late for it. */
static void remote_batch_add(struct remote_batch *batch, struct remote_job *job)
{
    if (job->kind == REMOTE_JOB_READ && clock_now_ns() >= job->until_ns) {
        remote_job_end(job, E_TIMEOUT);
        remote_done(batch->thread->remote, job);
        return;
    }
    batch->jobs[batch->n++] = job;
    batch->len_bytes += remote_job_bytes(batch->thread->remote, job);
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
        if (batch->jobs[i] != NULL) /* else it was delivered */
            remote_done(remote, batch->jobs[i]);
}

/* Fills the batch with jobs of one kind, beginning with this one.  Returns a job that ended it, since it is of another
 * kind or does not fit; NULL: none. */
static struct remote_job *remote_batch_fill(struct remote_batch *batch, struct remote_job *job)
{
    const struct kv_remote *remote = batch->thread->remote;
    bool is_asker = batch->thread == &remote->threads[REMOTE_ASKER];
    unsigned most = is_asker ? 1 : REMOTE_BATCH;
    enum remote_job_kind kind = job->kind;

    do {
        remote_batch_add(batch, job);
        job = batch->n < most ? mailbox_receive(batch->thread->jobs) : NULL;
    } while (job != NULL && job->kind == kind &&
             batch->len_bytes + remote_job_bytes(remote, job) <=
                 remote_batch_bytes(remote, kind == REMOTE_JOB_WRITE));
    return job;
}

static void *remote_thread_run(void *arg)
{
    struct remote_thread *self = arg;
    struct kv_remote *remote = self->remote;
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
        next = remote_batch_fill(self->batch, job);
        remote_batch_run(self->batch);
        if (remote->wake != NULL)
            remote->wake(remote->wake_arg);
        if (remote->ops->renew != NULL)
            remote->ops->renew(self->store);
    }
    remote_job_free(next);
    return NULL;
}

static int remote_thread_start(struct kv_remote *remote, unsigned at, const struct store_opts *opts,
                               struct fault *fault)
{
    struct remote_thread *thread = &remote->threads[at];
    struct store_opts own = *opts;
    int rc;

    own.writes = at == REMOTE_WRITER;
    own.number = at;
    thread->remote = remote;
    rc = remote->ops->open(&own, fault, &thread->store);
    if (rc < 0)
        return rc;
    if (at == REMOTE_WRITER && (thread->records = malloc(remote_batch_bytes(remote, true))) == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    thread->cipher = block_cipher_new(remote->seal.arena.piece_bytes);
    thread->batch = malloc(sizeof(*thread->batch));
    if (thread->cipher == NULL)
        return fault_set(fault, E_INTERNAL, "libgcrypt has no AES-256-OCB (is it in its FIPS mode?)");
    if (thread->batch == NULL || mailbox_new(2 * KV_REMOTE_READS, &thread->jobs) < 0 ||
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
        block_cipher_free(thread->cipher);
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
