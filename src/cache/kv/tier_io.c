/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier's threads and their system calls.
 *
 *     caller --jobs--> threads[0]     creates files, writes, syncs, deletes: one thread, so in order
 *            --jobs--> threads[1..]   read
 *            <--done-- all
 *
 * A block is written as payload, then entry.  A process that is killed during this leaves a slot without an
 * entry.  Only these threads wait for the disk.
 *
 * A job that fails reports it and changes nothing else.  The owner of the segments decides what to do. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/tier_priv.h"

#define WAIT_NS (NS_PER_S)

static int tier_io_error(int code)
{
    return code == ENOSPC || code == EDQUOT ? E_FULL : E_IO;
}

static int tier_file_write(int fd, const uint8_t *data, size_t len_bytes, uint64_t at)
{
    while (len_bytes > 0) {
        ssize_t n = pwrite(fd, data, len_bytes, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? tier_io_error(errno) : E_IO;
        data += n;
        at += (uint64_t)n;
        len_bytes -= (size_t)n;
    }
    return 0;
}

/* E_TRUNCATED: the file is too short. */
static int tier_file_read(int fd, uint8_t *data, size_t len_bytes, uint64_t at)
{
    while (len_bytes > 0) {
        ssize_t n = pread(fd, data, len_bytes, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? E_IO : E_TRUNCATED;
        data += n;
        at += (uint64_t)n;
        len_bytes -= (size_t)n;
    }
    return 0;
}

/* ---- jobs ---- */

static int tier_file_make(struct kv_tier *tier, struct tier_segment *segment)
{
    uint8_t head[TIER_HEAD_BYTES];
    char name[24];
    int fd, rc;

    tier_name_print(segment->number, name);
    fd = openat(tier->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return tier_io_error(errno);
    tier_head_pack(&segment->head, head);
    rc = tier_file_write(fd, head, sizeof(head), 0);
    if (rc < 0) {
        close(fd);
        unlinkat(tier->dir, name, 0);
        return rc;
    }
    segment->fd = fd;
    return 0;
}

static int tier_job_write(struct tier_thread *self, struct tier_job *job)
{
    struct kv_tier *tier = self->tier;
    struct tier_segment *segment = job->segment;
    uint8_t image[TIER_ENTRY_BYTES];
    int rc = job->makes_file ? tier_file_make(tier, segment) : 0;

    if (rc == 0 && segment->fd < 0)
        rc = E_IO; /* creating its file failed */
    if (rc == 0)
        rc = tier_seal(self, segment, job->id, &job->entry);
    if (rc == 0)
        rc = tier_file_write(segment->fd, self->payload, tier->payload_bytes,
                             tier_payload_at(&segment->head, job->entry.slot));
    if (rc < 0)
        return rc;
    tier_entry_pack(&job->entry, segment->head.salt, image);
    return tier_file_write(segment->fd, image, sizeof(image), tier_entry_at(job->entry.slot));
}

static int tier_job_read(struct tier_thread *self, struct tier_job *job)
{
    struct kv_tier *tier = self->tier;
    struct tier_segment *segment = job->segment;
    int rc = tier_file_read(segment->fd, self->payload, tier->payload_bytes,
                            tier_payload_at(&segment->head, job->entry.slot));

    return rc < 0 ? rc : tier_unseal(self, segment, job->id, &job->entry);
}

static int tier_job_drop(struct kv_tier *tier, struct tier_segment *segment)
{
    char name[24];

    tier_name_print(segment->number, name);
    if (unlinkat(tier->dir, name, 0) < 0 && errno != ENOENT)
        return E_IO;
    if (segment->fd >= 0)
        close(segment->fd); /* closed here, so that the next write has the room */
    segment->fd = -1;
    return 0;
}

static int tier_job_work(struct tier_thread *self, struct tier_job *job)
{
    switch (job->kind) {
    case TIER_JOB_WRITE:
        return tier_job_write(self, job);
    case TIER_JOB_READ:
        return tier_job_read(self, job);
    case TIER_JOB_FINISH:
        return job->segment->fd >= 0 && fdatasync(job->segment->fd) < 0 ? E_IO : 0;
    case TIER_JOB_DROP:
        return tier_job_drop(self->tier, job->segment);
    }
    return E_INTERNAL;
}

static void *tier_thread_run(void *arg)
{
    struct tier_thread *self = arg;
    struct kv_tier *tier = self->tier;

    while (!atomic_load_explicit(&tier->is_ending, memory_order_acquire)) {
        struct tier_job *job = mailbox_receive(self->jobs);
        uint64_t began_ns;

        if (job == NULL) {
            mailbox_wait(self->jobs, WAIT_NS);
            mailbox_drain_fd(self->jobs);
            continue;
        }
        began_ns = clock_now_ns();
        job->result = tier_job_work(self, job);
        job->busy_ns = clock_now_ns() - began_ns;
        while (mailbox_send(tier->done, job) == E_FULL)
            clock_sleep_ns(NS_PER_MS); /* cannot happen: the mailbox has room for all jobs in flight */
        if (tier->opts.wake != NULL)
            tier->opts.wake(tier->opts.wake_arg);
    }
    return NULL;
}

/* ---- threads ---- */

static int tier_thread_start(struct kv_tier *tier, struct tier_thread *thread)
{
    thread->tier = tier;
    thread->payload = malloc(tier->payload_bytes);
    thread->cipher = block_cipher_new(tier->opts.piece_bytes);
    if (thread->payload == NULL || thread->cipher == NULL ||
        mailbox_new(2 * TIER_MAX_READING, &thread->jobs) < 0 ||
        pthread_create(&thread->thread, NULL, tier_thread_run, thread) != 0)
        return E_NOMEM;
    thread->is_started = true;
    return 0;
}

int tier_threads_start(struct kv_tier *tier)
{
    for (unsigned i = 0; i < 1 + tier->opts.n_readers; i++)
        if (tier_thread_start(tier, &tier->threads[i]) < 0)
            return E_NOMEM;
    return 0;
}

static void tier_mailbox_empty(struct mailbox *box)
{
    struct tier_job *job;

    while (box != NULL && (job = mailbox_receive(box)) != NULL)
        free(job);
    mailbox_free(box);
}

void tier_threads_stop(struct kv_tier *tier)
{
    atomic_store_explicit(&tier->is_ending, true, memory_order_release);
    for (unsigned i = 0; i < 1 + TIER_MAX_READERS; i++)
        if (tier->threads[i].is_started)
            mailbox_wake(tier->threads[i].jobs);
    for (unsigned i = 0; i < 1 + TIER_MAX_READERS; i++)
        if (tier->threads[i].is_started)
            pthread_join(tier->threads[i].thread, NULL);
    for (unsigned i = 0; i < 1 + TIER_MAX_READERS; i++) {
        tier_mailbox_empty(tier->threads[i].jobs);
        block_cipher_free(tier->threads[i].cipher);
        free(tier->threads[i].payload);
    }
    tier_mailbox_empty(tier->done);
}

int tier_send(struct kv_tier *tier, struct tier_job *job)
{
    uint32_t at = 0;

    if (job->kind == TIER_JOB_READ)
        at = 1 + tier->next_reader++ % tier->opts.n_readers;
    if (mailbox_send(tier->threads[at].jobs, job) < 0) {
        free(job);
        return E_AGAIN;
    }
    return 0;
}
