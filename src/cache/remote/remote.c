/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier's calling side: jobs in flight, the breaker, counts, and the log of the store's states.
 *
 * Jobs are bounded (KV_REMOTE_WRITES, KV_REMOTE_READS, KV_REMOTE_ASKS). */
#include "cache/remote/remote.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/remote/remote_priv.h"

#define STALL_NS         NS_PER_S        /* a thread's wait without a byte */
#define FULL_NS          (30 * NS_PER_S) /* a full store is not written to for so long */
#define DAMAGED_IN_ROW   8               /* values that do not open: then the store is given up */
#define READ_BYTES_PER_S (200.0 * 1e6)   /* of a thread, until measured, and when the measurement is old */
#define RATE_ALPHA       0.1

/* ---- open and close ---- */

int kv_remote_open(const struct kv_remote_opts *opts, struct fault *fault, struct kv_remote **out)
{
    struct kv_remote *remote = calloc(1, sizeof(*remote));
    struct store_opts store = {.url = opts->url,
                               .login = opts->login,
                               .ca_path = opts->ca_path,
                               .lifetime_s = (opts->lifetime_ns + NS_PER_S - 1) / NS_PER_S,
                               .stall_ns = STALL_NS};
    int rc;

    if (remote == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    remote->ops = store_ops_of(opts->url);
    remote->n_readers = opts->n_readers;
    remote->wake = opts->wake;
    remote->wake_arg = opts->wake_arg;
    store.is_ending = &remote->is_ending;
    store_url_public(opts->url, remote->url, sizeof(remote->url));
    rc = store_url_check(opts->url, fault);
    if (rc == 0 && (opts->n_readers == 0 || opts->n_readers > REMOTE_MAX_READERS))
        rc = fault_set(fault, E_INVAL, "a remote tier cannot have so many threads");
    if (rc == 0 &&
        (remote_seal_init(&remote->seal, &opts->arena, opts->key, opts->generation) < 0 ||
         mailbox_new(2 * (KV_REMOTE_READS + KV_REMOTE_WRITES + KV_REMOTE_ASKS), &remote->done) < 0))
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0) {
        remote->record_bytes = remote_record_bytes(&remote->seal);
        remote->run_blocks = remote_run_blocks(remote->record_bytes);
        store.value_bytes = remote->run_blocks * remote->record_bytes;
        rc = remote_threads_start(remote, &store, fault);
    }
    if (rc < 0) {
        kv_remote_close(remote);
        return rc;
    }
    *out = remote;
    return 0;
}

void kv_remote_close(struct kv_remote *remote)
{
    if (remote == NULL)
        return;
    remote_threads_stop(remote);
    remote_job_free(remote->polled);
    explicit_bzero(&remote->seal, sizeof(remote->seal));
    free(remote);
}

/* ---- the store's states ---- */

static void remote_gone(struct kv_remote *remote, const char *reason)
{
    remote->counts.n_trips += remote->was_reported;
    remote->was_reported = true;
    log_warn("kv_remote_down", LOG_STR("store", remote->url), LOG_STR("reason", reason),
             LOG_STR("effect", "blocks are neither read from it nor saved to it"));
}

/* Connects the other threads before they are needed. */
static void remote_warm(struct kv_remote *remote)
{
    for (unsigned at = 0; at < REMOTE_FIRST_READER + remote->n_readers; at++) {
        struct remote_job *job = at != REMOTE_ASKER ? calloc(1, sizeof(*job)) : NULL;

        if (job == NULL)
            continue;
        job->kind = REMOTE_JOB_WARM;
        (void)remote_send(remote, job, at);
    }
}

static void remote_came(struct kv_remote *remote)
{
    remote->was_reported = true;
    remote->n_damaged_in_row = 0;
    log_info("kv_remote_up", LOG_STR("store", remote->url));
    remote_warm(remote);
}

static void remote_on_test(struct kv_remote *remote, const struct remote_job *job)
{
    if (job->kind == REMOTE_JOB_TEST && job->result == 0 && strcmp(job->advice, remote->advice) != 0) {
        memcpy(remote->advice, job->advice, sizeof(remote->advice));
        if (job->advice[0] != '\0')
            log_warn("kv_remote_settings", LOG_STR("store", remote->url), LOG_STR("advice", job->advice));
    }
}

/* Every answer tells whether the store is there. */
static void remote_note(struct kv_remote *remote, const struct remote_job *job)
{
    if (job->result == E_CANCELLED || job->result == E_TIMEOUT)
        if (!job->is_store_down)
            return; /* it was not sent */
    if (!job->is_store_down) {
        /* A new connection says nothing about the work that failed: it ends the outage, and not the doubling rests. */
        if (!(job->kind == REMOTE_JOB_WARM && kv_remote_is_up(remote)) && breaker_succeed(&remote->breaker))
            remote_came(remote);
        return;
    }
    if (breaker_fail(&remote->breaker, clock_now_ns()) || !remote->was_reported)
        remote_gone(remote, job->fault.text[0] != '\0' ? job->fault.text : err_text(job->result));
}

void kv_remote_late(struct kv_remote *remote)
{
    remote->counts.n_late++;
    if (breaker_late(&remote->breaker, clock_now_ns()))
        remote_gone(remote, "several answers in a row came too late");
}

static void remote_set_full(struct kv_remote *remote, const struct remote_job *job)
{
    if (!remote->is_full)
        log_warn("kv_remote_full", LOG_STR("store", remote->url), LOG_STR("reason", job->fault.text),
                 LOG_STR("effect", "blocks are read from it, and not saved to it"));
    remote->is_full = true;
    remote->full_until_ns = clock_now_ns() + FULL_NS;
}

static void remote_set_room(struct kv_remote *remote)
{
    if (remote->is_full)
        log_info("kv_remote_has_room", LOG_STR("store", remote->url));
    remote->is_full = false;
}

bool kv_remote_is_up(const struct kv_remote *remote)
{
    return remote->breaker.state == BREAKER_UP;
}

bool kv_remote_takes_writes(const struct kv_remote *remote)
{
    return kv_remote_is_up(remote) && (!remote->is_full || clock_now_ns() >= remote->full_until_ns);
}

void kv_remote_tick(struct kv_remote *remote, uint64_t now_ns)
{
    struct remote_job *job;

    if (!breaker_wants_test(&remote->breaker, now_ns))
        return;
    job = calloc(1, sizeof(*job));
    if (job != NULL) {
        job->kind = REMOTE_JOB_TEST;
        if (remote_send(remote, job, REMOTE_ASKER) == 0)
            return;
    }
    (void)breaker_fail(&remote->breaker, now_ns);
}

/* ---- calls ---- */

static unsigned remote_thread_of(struct kv_remote *remote, enum remote_job_kind kind)
{
    if (kind == REMOTE_JOB_READ)
        return REMOTE_FIRST_READER + remote->next_reader++ % remote->n_readers;
    return kind == REMOTE_JOB_WRITE ? REMOTE_WRITER : REMOTE_ASKER;
}

static struct remote_job *remote_job_new(enum remote_job_kind kind, const struct block_hash *hashes,
                                         uint32_t n)
{
    struct remote_job *job = calloc(1, sizeof(*job) + n * sizeof(*hashes));

    if (job == NULL)
        return NULL;
    job->kind = kind;
    job->n = n;
    memcpy(job->hashes, hashes, n * sizeof(*hashes));
    if (kind == REMOTE_JOB_ASK)
        job->ends = calloc(n, sizeof(*job->ends));
    else
        job->blocks = calloc(n, sizeof(*job->blocks));
    if (job->ends == NULL && job->blocks == NULL) {
        remote_job_free(job);
        return NULL;
    }
    return job;
}

int kv_remote_ask(struct kv_remote *remote, const struct block_hash *hashes, uint32_t n, void *user)
{
    struct remote_job *job;

    if (!kv_remote_is_up(remote))
        return E_CLOSED;
    if (n == 0 || n > KV_REMOTE_ASK_KEYS)
        return E_LIMIT;
    if (remote->counts.n_asking >= KV_REMOTE_ASKS)
        return E_AGAIN;
    job = remote_job_new(REMOTE_JOB_ASK, hashes, n);
    if (job == NULL)
        return E_NOMEM;
    job->user = user;
    if (remote_send(remote, job, remote_thread_of(remote, job->kind)) < 0)
        return E_AGAIN;
    remote->counts.n_asking++;
    return 0;
}

/* A job on the blocks of a part. */
static struct remote_job *remote_job_of(enum remote_job_kind kind, const struct kv_remote_part *part)
{
    struct remote_job *job = remote_job_new(kind, part->hashes, part->n);

    for (uint32_t i = 0; job != NULL && i < part->n; i++)
        job->blocks[i].id = part->ids[i];
    return job;
}

int kv_remote_read(struct kv_remote *remote, const struct kv_remote_part *part, uint64_t until_ns, void *user)
{
    struct remote_job *job;

    if (!kv_remote_is_up(remote))
        return E_CLOSED;
    if (part->n == 0 || part->n > remote->run_blocks || part->n_after > remote->run_blocks - part->n)
        return E_LIMIT;
    if (remote->counts.n_reading + part->n > KV_REMOTE_READS)
        return E_AGAIN;
    job = remote_job_of(REMOTE_JOB_READ, part);
    if (job == NULL)
        return E_NOMEM;
    job->name = part->name;
    job->n_after = part->n_after;
    job->until_ns = until_ns;
    job->user = user;
    if (remote_send(remote, job, remote_thread_of(remote, job->kind)) < 0)
        return E_AGAIN;
    remote->counts.n_reading += part->n;
    return 0;
}

int kv_remote_write(struct kv_remote *remote, const struct kv_remote_part *part)
{
    struct remote_job *job;

    if (!kv_remote_is_up(remote))
        return E_CLOSED;
    if (part->n == 0 || part->n > remote->run_blocks)
        return E_LIMIT;
    if (!kv_remote_takes_writes(remote))
        return E_FULL;
    if (remote->counts.n_writing + part->n > KV_REMOTE_WRITES)
        return E_AGAIN;
    job = remote_job_of(REMOTE_JOB_WRITE, part);
    if (job == NULL)
        return E_NOMEM;
    if (remote_send(remote, job, remote_thread_of(remote, job->kind)) < 0)
        return E_AGAIN;
    remote->counts.n_writing += part->n;
    return 0;
}

/* ---- finished jobs ---- */

static void remote_on_asked(struct kv_remote *remote, const struct remote_job *job)
{
    double elapsed_ns = (double)(clock_now_ns() - job->began_ns);

    remote->counts.n_asking--;
    if (job->result < 0)
        return;
    rate_learn(&remote->ask_rate, job->n * 1e9 / (elapsed_ns > 1 ? elapsed_ns : 1), RATE_ALPHA, 1,
               clock_now_ns());
    remote->counts.n_asked += job->n;
    for (uint32_t i = 0; i < job->n; i++)
        remote->counts.n_found += job->ends[i] != REMOTE_NOT_THERE;
}

static void remote_on_read(struct kv_remote *remote, const struct remote_job *job)
{
    double rate =
        (double)(job->n * remote->record_bytes) * 1e9 / (double)(job->busy_ns > 0 ? job->busy_ns : 1);
    uint32_t n_good = 0, n_damaged = 0;

    remote->counts.n_reading -= job->n;
    for (uint32_t i = 0; i < job->n; i++) {
        int result = job->blocks[i].result;

        n_good += result == 0;
        n_damaged += result == E_AUTH;
        remote->counts.n_missing += result == E_NOT_FOUND;
        remote->counts.n_read_failed +=
            result < 0 && result != E_AUTH && result != E_NOT_FOUND && result != E_CANCELLED;
    }
    remote->counts.n_read += n_good;
    remote->counts.read_bytes += n_good * remote->record_bytes;
    remote->counts.n_damaged += n_damaged;
    if (n_damaged > 0) {
        if (++remote->n_damaged_in_row >= DAMAGED_IN_ROW && breaker_fail(&remote->breaker, clock_now_ns()))
            remote_gone(remote, "its values do not open under the cluster's key");
    } else if (n_good > 0) {
        remote->n_damaged_in_row = 0;
        rate_learn(&remote->read_rate, rate, RATE_ALPHA, 1, clock_now_ns());
    }
}

static void remote_on_written(struct kv_remote *remote, const struct remote_job *job)
{
    bool is_full = false, has_written = false;

    remote->counts.n_writing -= job->n;
    for (uint32_t i = 0; i < job->n; i++) {
        int result = job->blocks[i].result;

        has_written |= result == 0;
        is_full |= result == E_FULL;
        remote->counts.n_written += result == 0;
        remote->counts.n_existed += result == E_EXISTS;
        remote->counts.n_write_failed += result != 0 && result != E_EXISTS;
        remote->counts.written_bytes += result == 0 ? remote->record_bytes : 0;
    }
    if (has_written)
        remote_set_room(remote);
    if (is_full)
        remote_set_full(remote, job);
}

/* The event of the polled job's next block, the last block first: whoever releases blocks then releases children before
 * their parents, as the pool wants it. */
static bool remote_next_block(struct kv_remote *remote, struct kv_remote_event *out)
{
    struct remote_job *job = remote->polled;
    uint32_t at;

    if (job == NULL || job->blocks == NULL || job->n_polled == job->n)
        return false;
    at = job->n - ++job->n_polled;
    *out = (struct kv_remote_event){.kind = job->kind == REMOTE_JOB_READ ? KV_REMOTE_READ : KV_REMOTE_WRITTEN,
                                    .result = job->blocks[at].result,
                                    .id = job->blocks[at].id,
                                    .hash = job->hashes[at],
                                    .at = at,
                                    .elapsed_ns = clock_now_ns() - job->began_ns,
                                    .user = job->user};
    return true;
}

bool kv_remote_poll(struct kv_remote *remote, struct kv_remote_event *out)
{
    struct remote_job *job;

    if (remote_next_block(remote, out))
        return true;
    remote_job_free(remote->polled);
    remote->polled = NULL;
    while ((job = mailbox_receive(remote->done)) != NULL) {
        remote_note(remote, job);
        remote->polled = job;
        switch (job->kind) {
        case REMOTE_JOB_TEST:
        case REMOTE_JOB_WARM:
            remote_on_test(remote, job);
            remote_job_free(job);
            remote->polled = NULL;
            continue;
        case REMOTE_JOB_ASK:
            remote_on_asked(remote, job);
            *out = (struct kv_remote_event){.kind = KV_REMOTE_ASKED,
                                            .result = job->result,
                                            .ends = job->ends,
                                            .n = job->n,
                                            .elapsed_ns = clock_now_ns() - job->began_ns,
                                            .user = job->user};
            return true;
        case REMOTE_JOB_READ:
            remote_on_read(remote, job);
            break;
        case REMOTE_JOB_WRITE:
            remote_on_written(remote, job);
            break;
        }
        return remote_next_block(remote, out);
    }
    return false;
}

/* ---- looking ---- */

static double remote_reader_bytes_per_s(const struct kv_remote *remote)
{
    return rate_hope(&remote->read_rate, READ_BYTES_PER_S, clock_now_ns());
}

uint64_t kv_remote_ask_ns(const struct kv_remote *remote, uint32_t n_keys)
{
    return (uint64_t)(n_keys * 1e9 / rate_hope(&remote->ask_rate, remote->ops->keys_per_s, clock_now_ns()));
}

uint64_t kv_remote_read_ns(const struct kv_remote *remote, uint32_t n_blocks)
{
    double bytes = (double)(remote->counts.n_reading + n_blocks) * (double)remote->record_bytes;
    uint32_t n_values = (n_blocks + remote->run_blocks - 1) / remote->run_blocks;
    unsigned n_threads = remote->n_readers < n_values ? remote->n_readers : n_values;

    if (n_blocks == 0)
        return 0;
    return kv_remote_ask_ns(remote, 1) +
           (uint64_t)(bytes / (remote_reader_bytes_per_s(remote) * n_threads) * 1e9);
}

void kv_remote_counts(const struct kv_remote *remote, struct kv_remote_counts *out)
{
    *out = remote->counts;
    out->is_up = kv_remote_is_up(remote);
    out->is_full = remote->is_full;
    out->read_bytes_per_s = remote_reader_bytes_per_s(remote) * remote->n_readers;
    out->ask_ns = kv_remote_ask_ns(remote, 1);
}

uint32_t kv_remote_run_blocks(const struct kv_remote *remote)
{
    return remote->run_blocks;
}

const char *kv_remote_url(const struct kv_remote *remote)
{
    return remote->url;
}
