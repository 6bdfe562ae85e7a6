/* SPDX-License-Identifier: Apache-2.0 */
/* Types that the remote tier's files share.
 *
 *     remote.c       the caller's side: jobs in flight, the breaker, counts
 *     remote_io.c    the threads, and each job's use of the store
 *
 * A job is a heap object that goes to a thread and returns through the mailbox `done`.  Threads read the tier's
 * fields above the line only; they do not change after open. */
#ifndef CACHE_REMOTE_REMOTE_PRIV_H
#define CACHE_REMOTE_REMOTE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/breaker.h"
#include "base/mailbox.h"
#include "base/rate.h"
#include "cache/remote/remote.h"
#include "cache/remote/store.h"

enum { REMOTE_MAX_READERS = 32, REMOTE_BATCH = 64 };
enum { REMOTE_WRITER, REMOTE_ASKER, REMOTE_FIRST_READER }; /* in kv_remote.threads */

/* TEST: whether the store answers, and its settings.  WARM: connects the thread. */
enum remote_job_kind { REMOTE_JOB_TEST, REMOTE_JOB_WARM, REMOTE_JOB_ASK, REMOTE_JOB_READ, REMOTE_JOB_WRITE };

struct remote_job_block {
    kv_block_id id;
    int result;
};

struct remote_job {
    enum remote_job_kind kind;
    struct block_hash name; /* READ: of the value; WRITE: set by the thread */
    uint32_t n_after;       /* READ */
    void *user;
    uint64_t began_ns, until_ns;
    uint64_t busy_ns; /* READ: time of the thread */
    int result;
    bool is_store_down; /* the store did not answer, for the reason in fault */
    struct fault fault;
    char advice[400]; /* TEST: settings that do not suit */
    uint32_t n;
    uint32_t n_polled;               /* READ, WRITE: events that the caller got */
    uint32_t first, end;             /* WRITE: blocks of the value that is written; none: end = 0 */
    uint32_t n_opened;               /* READ: records, of the last blocks first */
    uint32_t *ends;                  /* ASK: [n] */
    struct remote_job_block *blocks; /* READ, WRITE: [n] */
    struct block_hash hashes[];      /* [n] */
};

struct remote_thread {
    struct kv_remote *remote;
    struct mailbox *jobs;
    pthread_t thread;
    bool is_started;
    void *store;
    struct block_cipher *cipher;
    struct remote_batch *batch; /* remote_io.c */
    uint8_t *records;           /* writer: the values of a batch */
};

struct kv_remote {
    struct remote_seal seal;
    const struct store_ops *ops;
    struct mailbox *done;
    void (*wake)(void *arg);
    void *wake_arg;
    size_t record_bytes;
    uint32_t run_blocks; /* of the longest run */
    atomic_bool is_ending;
    unsigned n_readers;
    char url[256];
    /* ---- */
    struct remote_thread threads[REMOTE_FIRST_READER + REMOTE_MAX_READERS];
    uint32_t next_reader;
    struct breaker breaker;
    bool was_reported; /* the store's state was logged once */
    bool is_full;
    uint64_t full_until_ns;
    char advice[400]; /* as logged */
    unsigned n_damaged_in_row;
    struct rate read_rate;     /* bytes per second of one thread */
    struct rate ask_rate;      /* keys per second of a question */
    struct remote_job *polled; /* whose `ends` the caller has, or whose blocks are told one by one */
    struct kv_remote_counts counts;
};

/* ---- remote_io.c ---- */
int remote_threads_start(struct kv_remote *remote, const struct store_opts *opts, struct fault *fault);
void remote_threads_stop(struct kv_remote *remote);
int remote_send(struct kv_remote *remote, struct remote_job *job, unsigned at); /* takes it; E_AGAIN */
void remote_job_free(struct remote_job *job);

#endif
