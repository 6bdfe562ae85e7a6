/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side of the shared state: jobs in flight, their bounds and deadlines, and the breaker.
 *
 * A question ends at its deadline, even if its job is still in flight.  The job returns later with ask NULL and is
 * dropped. */
#include "net/state/state.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/state/state_priv.h"

#define STATE_STALL_NS      NS_PER_S
#define STATE_CLOSE_NS      (200 * NS_PER_MS)
#define STATE_MESSAGES_TURN 4    /* messages delivered in one turn of the loop */
#define STATE_MAX_WAITING   4096 /* messages that wait for delivery; at this limit no more are fetched */

struct state_ask {
    struct list node; /* state.asks */
    struct state *state;
    struct state_job *job;
    uint64_t until_ns;
    void (*done)(void *arg, struct buf *values, enum state_claim claim);
    void *arg;
};

bool state_is_up(const struct state *state)
{
    return state != NULL && state->breaker.state == BREAKER_UP;
}

const char *state_url(const struct state *state)
{
    return state->url_text;
}

void state_counts(const struct state *state, struct state_counts *out)
{
    *out = state->counts;
}

int state_name(const struct state *state, const char *kind, struct bytes owner, struct bytes id,
               struct state_name *out)
{
    return state_name_make(state->key, kind, owner, id, out);
}

/* ---- the breaker ---- */

static void state_messages_drop(struct state *state)
{
    list_for_each_safe (node, spare, &state->messages) {
        struct state_message *message = container_of(node, struct state_message, node);

        list_remove(&message->node);
        buf_fini(&message->text);
        free(message);
    }
    state->n_waiting = 0;
    for (uint32_t i = 0; i < state->n_outgoing; i++)
        buf_fini(&state->outgoing[i]);
    state->n_outgoing = 0;
}

static void state_report_down(struct state *state, const char *reason)
{
    log_warn("state_store_down", LOG_STR("store", state->url_text), LOG_STR("reason", reason));
    state->was_reported = true;
}

static void state_went_down(struct state *state, const char *reason)
{
    state->counts.n_trips++;
    atomic_fetch_add(&state->trip, 1);
    state_report_down(state, reason);
    state_messages_drop(state);
    state->wants_first = true;
    state->opts.on_change(state->opts.arg, false);
}

static void state_fail(struct state *state, const struct fault *fault)
{
    if (breaker_fail(&state->breaker, clock_now_ns()))
        state_went_down(state, fault->text);
    else if (!state->was_reported)
        state_report_down(state, fault->text);
}

/* is_in_time: the answer came before its deadline.  Only such an answer resets the count of late ones. */
static void state_succeed(struct state *state, bool is_in_time)
{
    if (state_is_up(state) && !is_in_time) {
        breaker_answered(&state->breaker);
        return;
    }
    if (!breaker_succeed(&state->breaker))
        return;
    log_info("state_store_up", LOG_STR("store", state->url_text));
    state->was_reported = true;
    state->opts.on_change(state->opts.arg, true);
}

/* ---- sending ---- */

static int state_job_send(struct state *state, struct state_job *job, unsigned at)
{
    int rc = mailbox_send(state->threads[at].jobs, job);

    if (rc < 0)
        state_job_free(job);
    return rc < 0 ? E_AGAIN : 0;
}

/* Sends a job of the writer; takes its value also on failure. */
static int state_write(struct state *state, struct state_job *job)
{
    size_t n = job != NULL ? job->value.cap_bytes : 0;
    int rc = 0;

    if (job == NULL || job->value.is_bad)
        rc = E_NOMEM;
    else if (!state_is_up(state))
        rc = E_CLOSED;
    else if (job->value.len_bytes > STATE_MAX_VALUE)
        rc = E_LIMIT;
    else if (state->counts.n_putting >= STATE_MAX_PUTS || state->counts.putting_bytes + n > STATE_MAX_BYTES)
        rc = E_AGAIN;
    if (rc < 0)
        state_job_free(job);
    else
        rc = state_job_send(state, job, STATE_WRITER);
    if (rc < 0) {
        state->counts.n_dropped++;
        return rc;
    }
    state->counts.n_putting++;
    state->counts.putting_bytes += n;
    return 0;
}

int state_put(struct state *state, const struct state_name *name, uint64_t life_s, struct buf *value)
{
    struct state_job *job = state_job_named(STATE_JOB_PUT, name, life_s);
    int rc;

    if (job == NULL)
        buf_fini(value);
    else
        job->value = *value;
    *value = (struct buf){0};
    rc = state_write(state, job);
    state->counts.n_puts += rc == 0;
    return rc;
}

int state_remove(struct state *state, const struct state_name *name)
{
    return state_write(state, state_job_named(STATE_JOB_REMOVE, name, 0));
}

static int state_owe(struct state *state, const struct state_name *name)
{
    if (state->n_owed == STATE_MAX_OWED)
        return E_FULL;
    state->owed[state->n_owed++] = *name;
    return 0;
}

int state_forget(struct state *state, const struct state_name *name)
{
    struct state_job *job = state_is_up(state) ? state_job_named(STATE_JOB_REMOVE, name, 0) : NULL;

    if (job == NULL)
        return state_owe(state, name);
    job->is_owed = true;
    return state_write(state, job) < 0 ? state_owe(state, name) : 0;
}

static void state_remove_owed(struct state *state)
{
    uint32_t n = state->n_owed;

    state->n_owed = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct state_name name = state->owed[i];

        (void)state_forget(state, &name); /* the list has room again for each that fails */
    }
}

int state_expire(struct state *state, const struct state_name *name, uint64_t life_s)
{
    return state_write(state, state_job_named(STATE_JOB_EXPIRE, name, life_s));
}

int state_send(struct state *state, struct bytes message)
{
    struct buf *slot = &state->outgoing[state->n_outgoing];

    if (!state_is_up(state))
        return E_CLOSED;
    if (message.len_bytes > STATE_MAX_MESSAGE)
        return E_LIMIT;
    if (state->n_outgoing == STATE_MAX_OUTGOING)
        return E_AGAIN;
    *slot = (struct buf){0};
    if (buf_append(slot, message.data, message.len_bytes) < 0) {
        buf_fini(slot);
        return E_NOMEM;
    }
    state->n_outgoing++;
    return 0;
}

/* ---- questions ---- */

/* Ends the question: calls done, and detaches the job. */
static void state_ask_end(struct state_ask *ask, struct buf *values, enum state_claim claim)
{
    struct state_job *job = ask->job;
    uint32_t n = job->n;

    job->ask = NULL;
    list_remove(&ask->node);
    for (uint32_t i = 0; i < n; i++) {
        ask->state->counts.n_found += values[i].len_bytes > 0;
        ask->state->counts.n_missed += values[i].len_bytes == 0;
    }
    ask->done(ask->arg, values, claim);
    free(ask);
}

static void state_ask_late(struct state_ask *ask)
{
    struct buf none[STATE_MAX_NAMES] = {{0}};

    ask->state->counts.n_late++;
    state_ask_end(ask, none, STATE_CLAIM_UNKNOWN);
}

static void state_on_deadline(void *arg)
{
    struct state *state = arg;
    uint64_t now_ns = clock_now_ns();

    while (!list_is_empty(&state->asks)) {
        struct state_ask *ask = container_of(state->asks.next, struct state_ask, node);

        if (ask->until_ns > now_ns) {
            ev_timer_start(state->deadline, ask->until_ns - now_ns);
            return;
        }
        if (breaker_late(&state->breaker, now_ns))
            state_went_down(state, "three answers in a row came too late");
        state_ask_late(ask);
    }
}

static int state_ask_copy(struct state_job *job, const struct state_question *question)
{
    job->names = calloc(question->n + 1, sizeof(*job->names));
    job->values = calloc(question->n + 1, sizeof(*job->values));
    if (job->names == NULL || job->values == NULL)
        return E_NOMEM;
    job->n = question->n;
    memcpy(job->names, question->names, question->n * sizeof(*job->names));
    job->has_claim = question->claim != NULL;
    if (question->claim != NULL)
        job->claim = *question->claim;
    job->claim_life_s = question->claim_life_s;
    return 0;
}

int state_ask(struct state *state, const struct state_question *question, struct state_ask **out)
{
    struct state_ask *ask;
    struct state_job *job;
    int rc;

    if (!state_is_up(state))
        return E_CLOSED;
    if (question->n > STATE_MAX_NAMES || (question->n == 0 && question->claim == NULL))
        return E_LIMIT;
    if (state->counts.n_asking >= STATE_MAX_ASKS)
        return E_AGAIN;
    ask = calloc(1, sizeof(*ask));
    job = state_job_new(STATE_JOB_ASK);
    if (ask == NULL || job == NULL || state_ask_copy(job, question) < 0) {
        free(ask);
        state_job_free(job);
        return E_NOMEM;
    }
    *ask = (struct state_ask){.state = state, .job = job, .done = question->done, .arg = question->arg};
    ask->until_ns = clock_now_ns() + state->opts.wait_ns;
    job->ask = ask;
    rc = state_job_send(state, job, STATE_READER);
    if (rc < 0) {
        free(ask);
        return rc;
    }
    if (list_is_empty(&state->asks))
        ev_timer_start(state->deadline, state->opts.wait_ns);
    list_push_back(&state->asks, &ask->node);
    state->counts.n_asking++;
    state->counts.n_asks += question->n;
    *out = ask;
    return 0;
}

void state_ask_cancel(struct state_ask *ask)
{
    if (ask == NULL)
        return;
    ask->job->ask = NULL;
    list_remove(&ask->node);
    free(ask);
}

/* ---- messages ---- */

/* Delivers some messages; the loop serves sockets between two calls. */
static void state_on_turn(void *arg)
{
    struct state *state = arg;

    for (unsigned i = 0; i < STATE_MESSAGES_TURN && !list_is_empty(&state->messages); i++) {
        struct state_message *message = container_of(state->messages.next, struct state_message, node);
        struct bytes text = buf_view(&message->text);

        list_remove(&message->node);
        state->n_waiting -= text.len_bytes > 0;
        state->counts.n_received += text.len_bytes > 0;
        if (text.len_bytes > 0)
            text = bytes_of(text.data + 8, text.len_bytes - 8);
        state->opts.on_message(state->opts.arg, text, message->age_ms, message->is_old);
        buf_fini(&message->text);
        free(message);
    }
    if (!list_is_empty(&state->messages))
        ev_timer_start(state->turn, 0);
}

/* All old messages have been read: queues an empty message that marks this. */
static void state_messages_end_old(struct state *state)
{
    struct state_message *end = calloc(1, sizeof(*end));

    state->messages_are_old = false;
    if (end == NULL)
        return;
    end->is_old = true;
    list_push_back(&state->messages, &end->node);
}

static int state_exchange_start(struct state *state);

static void state_exchange_end(struct state *state, struct state_job *job)
{
    state->is_exchanging = false;
    if (job->result < 0) {
        state->wants_first = true;
        return;
    }
    state->cursor = job->cursor;
    state->wants_first = false;
    state->counts.n_damaged += job->n_damaged;
    if (!state_is_up(state))
        return;
    if (job->is_first) {
        state->fresh_ms = job->server_ms;
        state->messages_are_old = true;
    }
    list_for_each_safe (node, spare, &job->messages) {
        struct state_message *message = container_of(node, struct state_message, node);

        if (state->messages_are_old && message->id_ms >= state->fresh_ms)
            state_messages_end_old(state);
        message->is_old = state->messages_are_old;
        list_remove(&message->node);
        list_push_back(&state->messages, &message->node);
        state->n_waiting++;
    }
    if (state->messages_are_old && !job->is_first && !job->has_more)
        state_messages_end_old(state);
    if (!list_is_empty(&state->messages))
        ev_timer_start(state->turn, 0);
    if ((job->has_more || job->is_first) && state->n_waiting < STATE_MAX_WAITING)
        (void)state_exchange_start(state);
}

static int state_exchange_start(struct state *state)
{
    struct state_job *job = state_job_new(STATE_JOB_EXCHANGE);
    int rc;

    if (job == NULL)
        return E_NOMEM;
    memcpy(job->outgoing, state->outgoing, sizeof(job->outgoing));
    job->n_outgoing = state->n_outgoing;
    state->counts.n_sent += state->n_outgoing;
    state->n_outgoing = 0;
    job->is_first = state->wants_first;
    job->cursor = state->cursor;
    rc = state_job_send(state, job, STATE_READER);
    state->is_exchanging = rc == 0;
    return rc;
}

void state_tick(struct state *state)
{
    uint64_t now_ns = clock_now_ns();
    const struct fault fault = {.text = "out of memory"};

    if (state->is_exchanging)
        return;
    if (state_is_up(state)) {
        state_remove_owed(state);
        if (state->n_waiting < STATE_MAX_WAITING)
            (void)state_exchange_start(state);
        return;
    }
    if (!breaker_wants_test(&state->breaker, now_ns))
        return;
    state->wants_first = true;
    if (state_exchange_start(state) < 0)
        state_fail(state, &fault);
}

/* ---- jobs return ---- */

static void state_end_put(struct state *state, const struct state_job *job)
{
    state->counts.n_putting--;
    state->counts.putting_bytes -= job->value.cap_bytes;
    state->counts.n_put_failed += job->result < 0;
    if (job->is_owed && job->result < 0)
        (void)state_owe(state, &job->name);
}

static void state_end_ask(struct state *state, struct state_job *job)
{
    size_t bytes = 0;

    state->counts.n_asking--;
    state->counts.n_damaged += job->n_damaged;
    for (uint32_t i = 0; i < job->n; i++)
        bytes += job->values[i].cap_bytes;
    atomic_fetch_sub(&state->answer_bytes, bytes);
    if (job->ask != NULL)
        state_ask_end(job->ask, job->values,
                      job->result == 0 && !job->has_claim ? STATE_CLAIM_NONE : job->claimed);
    else if (job->claimed == STATE_CLAIM_SET) /* its question ended without it */
        (void)state_remove(state, &job->claim);
}

static void state_job_end(struct state *state, struct state_job *job)
{
    if (job->is_store_down)
        state_fail(state, &job->fault);
    else if (job->result == 0)
        state_succeed(state, job->kind == STATE_JOB_ASK && job->ask != NULL);
    switch (job->kind) {
    case STATE_JOB_PUT:
    case STATE_JOB_REMOVE:
    case STATE_JOB_EXPIRE:
        state_end_put(state, job);
        break;
    case STATE_JOB_ASK:
        state_end_ask(state, job);
        break;
    case STATE_JOB_EXCHANGE:
        state_exchange_end(state, job);
        break;
    }
    state_job_free(job);
}

static void state_on_done(void *arg, int fd, unsigned ready)
{
    struct state *state = arg;
    struct state_job *job;

    (void)fd;
    (void)ready;
    mailbox_drain_fd(state->done);
    for (unsigned n = 0; n < STATE_BATCH; n++) {
        job = mailbox_receive(state->done);
        if (job == NULL)
            return;
        state_job_end(state, job);
    }
    mailbox_wake(state->done); /* the next turn takes the rest */
}

/* ---- start and end ---- */

static int state_prepare(struct state *state, const struct state_opts *opts, struct fault *fault)
{
    int rc = redis_url_parse(opts->url, fault, &state->url);

    if (rc == 0 && opts->login != NULL && opts->login[0] != '\0' && state->url.password[0] == '\0')
        rc = redis_url_login(&state->url, opts->login, fault);
    state->conn_opts = (struct redis_conn_opts){.url = &state->url,
                                                .stall_ns = STATE_STALL_NS,
                                                .max_reply_bytes = 4 * STATE_MAX_VALUE,
                                                .is_ending = &state->is_ending};
    if (rc == 0 && state->url.is_tls)
        rc = redis_tls_new(opts->ca_path, fault, &state->conn_opts.tls);
    if (rc == 0)
        rc = state_name_make(state->key, "news", bytes_str(""), bytes_str(""), &state->stream);
    if (rc == 0)
        rc = state_name_make(state->key, "probe", bytes_str(""), bytes_str(""), &state->probe);
    if (rc == 0 && (mailbox_new(STATE_JOBS, &state->done) < 0 ||
                    ev_fd_new(opts->loop, mailbox_fd(state->done), state_on_done, state, &state->watch) < 0 ||
                    ev_timer_new(opts->loop, state_on_deadline, state, &state->deadline) < 0 ||
                    ev_timer_new(opts->loop, state_on_turn, state, &state->turn) < 0))
        rc = fault_set(fault, E_NOMEM, "out of memory");
    return rc;
}

int state_open(const struct state_opts *opts, struct fault *fault, struct state **out)
{
    struct state *state = calloc(1, sizeof(*state));
    int rc;

    if (state == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    state->opts = *opts;
    state->self = opts->self;
    state->wants_first = true;
    memcpy(state->key, opts->key, sizeof(state->key));
    list_init(&state->asks);
    list_init(&state->messages);
    state_url_show(opts->url, state->url_text, sizeof(state->url_text));
    rc = state_prepare(state, opts, fault);
    if (rc == 0)
        rc = state_threads_start(state, fault);
    state->opts.url = state->opts.login = state->opts.ca_path = NULL;
    OPENSSL_cleanse(state->opts.key, sizeof(state->opts.key));
    if (rc < 0) {
        state_close(state);
        return rc;
    }
    *out = state;
    return 0;
}

/* Waits while the threads send the last messages and values. */
static void state_flush(struct state *state)
{
    uint64_t until_ns = clock_now_ns() + STATE_CLOSE_NS;
    uint32_t n_exchanges = state->is_exchanging; /* the fetch in flight, not the last one */

    if (!state_is_up(state))
        return;
    if (state->n_outgoing > 0 && state_exchange_start(state) == 0)
        n_exchanges++;
    while ((n_exchanges > 0 || state->counts.n_putting > 0) && clock_now_ns() < until_ns) {
        struct state_job *job = mailbox_receive(state->done);

        if (job == NULL)
            clock_sleep_ns(NS_PER_MS);
        else if (job->kind == STATE_JOB_EXCHANGE)
            n_exchanges--;
        else if (job->kind != STATE_JOB_ASK)
            state_end_put(state, job);
        state_job_free(job);
    }
}

void state_close(struct state *state)
{
    if (state == NULL)
        return;
    while (!list_is_empty(&state->asks))
        state_ask_cancel(container_of(state->asks.next, struct state_ask, node));
    state_flush(state);
    ev_fd_free(state->watch);
    ev_timer_free(state->deadline);
    ev_timer_free(state->turn);
    state_threads_stop(state);
    state_messages_drop(state);
    redis_tls_free(state->conn_opts.tls);
    OPENSSL_cleanse(state, sizeof(*state));
    free(state);
}
