/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side of the shared state, with a store that takes connections and answers nothing: what its answers would
 * be comes through the mailbox of the threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/state/state_priv.h"

static struct ev_loop *loop;
static struct ev_timer *stop;
static struct state *store;
static int listening;
static unsigned n_done;
static enum state_claim claim_result;

static void stop_loop(void *arg)
{
    (void)arg;
    ev_loop_stop(loop);
}

static void run_loop(void)
{
    ev_timer_start(stop, 20 * NS_PER_MS);
    assert_int_equal(ev_loop_run(loop), 0);
}

static void take_message(void *arg, struct bytes message, uint64_t age_ms, bool is_old)
{
    (void)arg, (void)message, (void)age_ms, (void)is_old;
}

static void take_change(void *arg, bool is_up)
{
    (void)arg, (void)is_up;
}

static void take_answer(void *arg, struct buf *values, enum state_claim claim)
{
    (void)arg, (void)values;
    n_done++;
    claim_result = claim;
}

static int open_store(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct state_opts opts = {.login = "",
                              .ca_path = "",
                              .self = 7,
                              .wait_ns = NS_PER_MS,
                              .on_message = take_message,
                              .on_change = take_change};
    socklen_t len = sizeof(address);
    struct fault fault = {0};
    char url[64];

    (void)state;
    log_set_level(LOG_LEVEL_ERROR);
    n_done = 0;
    listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listening, (struct sockaddr *)&address, len) < 0 || listen(listening, 8) < 0 ||
        getsockname(listening, (struct sockaddr *)&address, &len) < 0 || ev_loop_new(&loop) < 0 ||
        ev_timer_new(loop, stop_loop, NULL, &stop) < 0)
        return -1;
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u", ntohs(address.sin_port));
    opts.url = url;
    opts.loop = loop;
    if (state_open(&opts, &fault, &store) < 0)
        return -1;
    store->conn_opts.stall_ns = 600 * NS_PER_S;
    store->breaker.state = BREAKER_UP;
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    state_close(store);
    ev_timer_free(stop);
    ev_loop_free(loop);
    close(listening);
    return 0;
}

static struct state_name name_of(const char *kind)
{
    struct state_name name;

    assert_int_equal(state_name(store, kind, bytes_str("team"), bytes_str("a"), &name), 0);
    return name;
}

/* A job that a thread has done. */
static struct state_job *returned_job(enum state_job_kind kind)
{
    struct state_job *job = state_job_new(kind);

    assert_non_null(job);
    store->counts.n_putting += kind != STATE_JOB_ASK;
    store->counts.n_asking += kind == STATE_JOB_ASK;
    return job;
}

static void writes_end_no_row_of_late_answers(void **state)
{
    struct state_name name = name_of("thread"), claim = name_of("claim");
    const struct state_question question = {
        .names = &name, .n = 1, .claim = &claim, .claim_life_s = 60, .done = take_answer};
    struct state_ask *ask;

    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        assert_true(state_is_up(store));
        assert_int_equal(state_ask(store, &question, &ask), 0);
        run_loop();
        assert_int_equal(n_done, n);
        assert_int_equal(claim_result, STATE_CLAIM_UNKNOWN);
        assert_int_equal(mailbox_send(store->done, returned_job(STATE_JOB_PUT)), 0);
        run_loop();
    }
    assert_false(state_is_up(store));
    assert_int_equal(store->counts.n_trips, 1);
}

static void a_claim_of_an_ended_question_is_removed(void **state)
{
    struct state_job *job = returned_job(STATE_JOB_ASK), *taken = returned_job(STATE_JOB_ASK);

    (void)state;
    job->has_claim = taken->has_claim = true;
    job->claim = taken->claim = name_of("claim");
    job->claimed = STATE_CLAIM_SET;
    taken->claimed = STATE_CLAIM_TAKEN; /* another's stays */
    assert_int_equal(mailbox_send(store->done, job), 0);
    assert_int_equal(mailbox_send(store->done, taken), 0);
    run_loop();
    assert_int_equal(store->counts.n_asking, 0);
    assert_int_equal(store->counts.n_putting, 1);
}

static void removals_wait_while_the_store_is_away(void **state)
{
    struct state_name name = name_of("response");
    struct state_job *failed;

    (void)state;
    store->breaker.state = BREAKER_TRYING;
    assert_int_equal(state_remove(store, &name), E_CLOSED);
    for (unsigned i = 0; i < STATE_MAX_OWED; i++)
        assert_int_equal(state_forget(store, &name), 0);
    assert_int_equal(state_forget(store, &name), E_FULL);
    assert_int_equal(store->counts.n_putting, 0);
    store->breaker.state = BREAKER_UP;
    state_tick(store);
    assert_int_equal(store->n_owed, 0);
    assert_int_equal(store->counts.n_putting, STATE_MAX_OWED);
    failed = returned_job(STATE_JOB_REMOVE);
    failed->is_owed = true;
    failed->name = name;
    failed->result = E_IO;
    assert_int_equal(mailbox_send(store->done, failed), 0);
    run_loop();
    assert_int_equal(store->n_owed, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    const struct CMUnitTest tests[] = {
        T(writes_end_no_row_of_late_answers),
        T(a_claim_of_an_ended_question_is_removed),
        T(removals_wait_while_the_store_is_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
