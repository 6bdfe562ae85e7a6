/* SPDX-License-Identifier: Apache-2.0 */
/* The two threads of the shared state: a connection each, and batches of jobs on it.
 *
 *     jobs --up to STATE_BATCH--> all commands in one send --> the replies, in order --> done
 *
 * In a cluster of servers all names have one slot.  The thread connects to the server that has this slot.  After
 * MOVED or a failure it looks that server up again. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "net/redis/redis_error.h"
#include "net/redis/redis_slots.h"
#include "net/state/state_priv.h"

#define STATE_WAIT_NS     (100 * NS_PER_MS)
#define STATE_BATCH_BYTES (1u << 20) /* of values; the last one may exceed it */

struct state_job *state_job_new(enum state_job_kind kind)
{
    struct state_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return NULL;
    job->kind = kind;
    list_init(&job->messages);
    return job;
}

struct state_job *state_job_named(enum state_job_kind kind, const struct state_name *name, uint64_t life_s)
{
    struct state_job *job = state_job_new(kind);

    if (job == NULL)
        return NULL;
    job->name = *name;
    job->life_s = life_s;
    return job;
}

void state_job_free(struct state_job *job)
{
    if (job == NULL)
        return;
    buf_fini(&job->value);
    for (uint32_t i = 0; i < job->n && job->values != NULL; i++)
        buf_fini(&job->values[i]);
    for (uint32_t i = 0; i < job->n_outgoing; i++)
        buf_fini(&job->outgoing[i]);
    list_for_each_safe (node, spare, &job->messages) {
        struct state_message *message = container_of(node, struct state_message, node);

        list_remove(&message->node);
        buf_fini(&message->text);
        free(message);
    }
    free(job->values);
    free(job->names);
    free(job);
}

/* ---- connections ---- */

int state_url_check(const char *url, const char *login, struct fault *fault)
{
    struct redis_url parsed;
    int rc;

    if (!redis_url_is(url))
        return fault_set(fault, E_FORMAT, "not redis://, rediss://, redis+cluster:// or rediss+cluster://");
    rc = redis_url_parse(url, fault, &parsed);
    if (rc == 0 && parsed.reads_replicas)
        rc = fault_set(fault, E_FORMAT, "replicas=yes: what routers share is not read from replicas");
    if (rc == 0 && login != NULL && login[0] != '\0')
        rc = redis_url_login(&parsed, login, fault);
    explicit_bzero(&parsed, sizeof(parsed));
    return rc;
}

void state_url_show(const char *url, char *out, size_t out_bytes)
{
    const char *begin = strstr(url, "://"), *at = strrchr(url, '@');

    if (begin == NULL || at == NULL)
        snprintf(out, out_bytes, "%s", url);
    else
        snprintf(out, out_bytes, "%.*s://%s", (int)(begin - url), url, at + 1);
}

struct state_owner { /* the server that has the slot of the names */
    unsigned slot;
    bool is_found;
    struct redis_node node;
};

static void state_on_range(void *arg, unsigned first, unsigned last, const struct redis_node *nodes,
                           unsigned n)
{
    struct state_owner *owner = arg;

    (void)n; /* the replicas are of no use: the names are written too */
    if (owner->slot < first || owner->slot > last)
        return;
    owner->is_found = true;
    owner->node = nodes[0];
}

/* Connects to the server of the cluster that has the names. */
static int state_connect_owner(struct state_thread *thread, const struct redis_node *seed,
                               struct fault *fault)
{
    struct state *state = thread->state;
    struct state_owner owner = {.slot = redis_slot(bytes_str(state->stream.text))};
    struct resp_item reply;
    struct bytes all;
    int rc = redis_conn_ask(thread->conn, (const char *const[]){"CLUSTER", "SLOTS", NULL}, &reply, &all);

    if (rc < 0)
        return fault_set(fault, rc, "CLUSTER SLOTS: %s", err_text(rc));
    if (reply.kind == RESP_ERROR)
        return redis_error_fault(&state->url, reply.text, E_PROTO, fault);
    if (redis_slots_parse(all, state_on_range, &owner) < 0 || !owner.is_found)
        return fault_set(fault, E_PROTO, "no server of the cluster has the slot %u", owner.slot);
    if (owner.node.host[0] == '\0')
        memcpy(owner.node.host, seed->host, sizeof(owner.node.host));
    redis_conn_close(thread->conn);
    thread->conn = NULL;
    return redis_conn_open(&state->conn_opts, &owner.node, fault, &thread->conn);
}

static int state_connect(struct state_thread *thread, struct fault *fault)
{
    struct state *state = thread->state;
    int rc = E_IO;

    for (unsigned i = 0; i < state->url.n_seeds && rc < 0 && rc != E_CANCELLED; i++) {
        rc = redis_conn_open(&state->conn_opts, &state->url.seeds[i], fault, &thread->conn);
        if (rc == 0 && state->url.is_cluster)
            rc = state_connect_owner(thread, &state->url.seeds[i], fault);
        if (rc < 0) {
            redis_conn_close(thread->conn);
            thread->conn = NULL;
        }
    }
    return rc;
}

/* ---- batches ---- */

/* Reads the replies of the batch from job `from` on; returns the job that failed, or n_batch. */
static unsigned state_batch_read(struct state_thread *thread, int *rc_out)
{
    for (unsigned i = 0; i < thread->n_batch; i++) {
        struct state_job *job = thread->batch[i];

        for (; job->n_replies > 0; job->n_replies--) {
            struct resp_item item;
            struct bytes all;
            int rc = redis_conn_reply(thread->conn, &item, &all);

            if (rc < 0) {
                fault_set(&job->fault, rc, "%s", err_text(rc));
                *rc_out = rc;
                return i;
            }
            rc = state_job_reply(thread->state, job, &item, all);
            if (rc < 0 && job->result == 0)
                job->result = rc;
        }
    }
    return thread->n_batch;
}

/* Sends the batch. < 0: no job got an answer. */
static int state_batch_send(struct state_thread *thread, struct fault *fault)
{
    unsigned trip = atomic_load(&thread->state->trip);
    int rc;

    if (trip != thread->trip) {
        redis_conn_close(thread->conn);
        thread->conn = NULL;
        thread->trip = trip;
    }
    rc = thread->conn != NULL ? 0 : state_connect(thread, fault);

    buf_clear(&thread->out);
    for (unsigned i = 0; i < thread->n_batch && rc == 0; i++)
        rc = state_job_append(thread->state, thread->batch[i], &thread->out);
    if (rc == 0 && thread->out.is_bad)
        rc = E_NOMEM;
    if (rc == 0)
        rc = redis_conn_send(thread->conn, &(struct bytes){thread->out.data, thread->out.len_bytes}, 1);
    if (rc < 0 && fault->text[0] == '\0')
        fault_set(fault, rc, "%s", err_text(rc));
    if (thread->out.cap_bytes > 1 << 20)
        buf_fini(&thread->out);
    return rc;
}

static void state_batch_done(struct state_thread *thread)
{
    for (unsigned i = 0; i < thread->n_batch; i++) {
        struct state_job *job = thread->batch[i];

        if (job->result < 0 && job->result != E_CANCELLED)
            job->is_store_down = true;
        while (mailbox_send(thread->state->done, job) == E_FULL)
            clock_sleep_ns(NS_PER_MS); /* cannot happen: the mailbox holds all jobs that may be in flight */
    }
    thread->n_batch = 0;
}

/* The store does not answer: ends all waiting jobs now, instead of one batch per stall. */
static void state_fail_waiting(struct state_thread *thread, int rc, const struct fault *fault)
{
    struct state_job *job;

    while ((job = mailbox_receive(thread->jobs)) != NULL) {
        job->result = rc;
        job->fault = *fault;
        thread->batch[thread->n_batch++] = job;
        state_batch_done(thread);
    }
}

static void state_batch_run(struct state_thread *thread)
{
    struct fault fault = {0};
    unsigned at = 0;
    bool is_lost;
    int rc = state_batch_send(thread, &fault);

    if (rc == 0)
        at = state_batch_read(thread, &rc);
    is_lost = rc < 0;
    if (is_lost && fault.text[0] == '\0')
        fault_set(&fault, rc, "%s", err_text(rc));
    for (unsigned i = at; i < thread->n_batch && is_lost; i++) {
        thread->batch[i]->result = rc;
        if (thread->batch[i]->fault.text[0] == '\0')
            thread->batch[i]->fault = fault;
    }
    for (unsigned i = 0; i < thread->n_batch; i++)
        if (thread->batch[i]->result < 0 && thread->batch[i]->result != E_FULL)
            rc = thread->batch[i]->result;
    if (rc < 0) { /* the position in its replies is lost, so close the connection */
        redis_conn_close(thread->conn);
        thread->conn = NULL;
    }
    state_batch_done(thread);
    if (is_lost)
        state_fail_waiting(thread, rc, &fault);
}

static void *state_thread_run(void *arg)
{
    struct state_thread *thread = arg;
    struct state *state = thread->state;
    size_t n_bytes;

    while (!atomic_load_explicit(&state->is_ending, memory_order_acquire)) {
        struct state_job *job = mailbox_receive(thread->jobs);

        if (job == NULL) {
            mailbox_wait(thread->jobs, STATE_WAIT_NS);
            mailbox_drain_fd(thread->jobs);
            continue;
        }
        n_bytes = 0;
        do {
            thread->batch[thread->n_batch++] = job;
            n_bytes += job->value.len_bytes;
        } while (thread->n_batch < STATE_BATCH && n_bytes < STATE_BATCH_BYTES &&
                 (job = mailbox_receive(thread->jobs)) != NULL);
        state_batch_run(thread);
    }
    return NULL;
}

/* ---- start and end ---- */

int state_threads_start(struct state *state, struct fault *fault)
{
    for (unsigned i = 0; i < STATE_N_THREADS; i++) {
        struct state_thread *thread = &state->threads[i];

        thread->state = state;
        if (mailbox_new(STATE_JOBS, &thread->jobs) < 0 ||
            thread_start(&thread->thread, state_thread_run, thread) < 0)
            return fault_set(fault, E_NOMEM, "out of memory");
        thread->is_started = true;
    }
    return 0;
}

static void state_mailbox_empty(struct mailbox *box)
{
    struct state_job *job;

    while (box != NULL && (job = mailbox_receive(box)) != NULL)
        state_job_free(job);
    mailbox_free(box);
}

void state_threads_stop(struct state *state)
{
    atomic_store_explicit(&state->is_ending, true, memory_order_release);
    for (unsigned i = 0; i < STATE_N_THREADS; i++)
        if (state->threads[i].is_started)
            mailbox_wake(state->threads[i].jobs);
    for (unsigned i = 0; i < STATE_N_THREADS; i++) {
        struct state_thread *thread = &state->threads[i];

        if (thread->is_started)
            pthread_join(thread->thread, NULL);
        state_mailbox_empty(thread->jobs);
        redis_conn_close(thread->conn);
        buf_fini(&thread->out);
    }
    state_mailbox_empty(state->done);
}
