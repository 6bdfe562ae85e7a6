/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs while some threads are busy, and the exit of a process with a hanging job. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/event/jobs.h"
#include "base/event/loop.h"
#include "base/event/service.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    struct ev_loop *loop;
    struct ev_timer *timer;
};

static int open_loop(void **state)
{
    static struct fixture fixture;

    fixture = (struct fixture){0};
    *state = &fixture;
    return ev_loop_new(&fixture.loop);
}

static int close_loop(void **state)
{
    struct fixture *at = *state;

    ev_loop_free(at->loop);
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* ---- a job waits only while every thread works ---- */

struct gate { /* a job that reports when it runs, and waits for permission to end */
    atomic_uint is_running, may_go;
};

static void wait_at(void *arg)
{
    struct gate *gate = arg;

    atomic_store(&gate->is_running, 1);
    while (!atomic_load(&gate->may_go))
        sched_yield();
}

static void count_up(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static bool comes_to(atomic_uint *value, unsigned wanted)
{
    for (unsigned i = 0; i < 20000 && atomic_load(value) != wanted; i++)
        clock_sleep_ns(NS_PER_MS / 2);
    return atomic_load(value) == wanted;
}

/* Two threads are busy and two jobs wait.  When one thread is free again it runs both jobs: none waits for
 * the other thread's job. */
static void no_job_waits_behind_a_busy_thread(void **state)
{
    struct fixture *at = *state;
    struct ev_jobs *jobs = NULL;
    struct gate gates[2] = {0};
    atomic_uint n_done = 0;

    assert_int_equal(ev_jobs_new(2, 10, &jobs), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ev_jobs_submit(jobs, at->loop, wait_at, nothing, &gates[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_true(comes_to(&gates[i].is_running, 1));
    for (int i = 0; i < 2; i++)
        assert_int_equal(ev_jobs_submit(jobs, at->loop, count_up, nothing, &n_done), 0);
    atomic_store(&gates[1].may_go, 1);
    bool is_done = comes_to(&n_done, 2);
    atomic_store(&gates[0].may_go, 1);
    ev_jobs_free(jobs);
    ev_loop_drain(at->loop);
    assert_true(is_done);
}

struct chain { /* a chain of jobs: the end of each submits the next */
    struct fixture *at;
    struct ev_jobs *jobs;
    unsigned n_left;
    unsigned n_refused;
};

static void no_work(void *arg)
{
    (void)arg;
}

static void next_link(void *arg)
{
    struct chain *chain = arg;

    if (chain->n_left-- == 0 ||
        ev_jobs_submit(chain->jobs, chain->at->loop, no_work, next_link, chain) != 0) {
        chain->n_refused = chain->n_left != UINT32_MAX;
        ev_loop_stop(chain->at->loop);
    }
}

static void on_gate_timer(void *arg)
{
    struct gate *gate = arg;

    atomic_store(&gate->may_go, 1);
}

/* One thread is busy.  Each job is submitted when the previous one ends.  A job frees its place and its
 * thread before its end is reported.  So the next job is not refused (with room for two) and does not wait
 * for the busy thread (with room for ten). */
static void run_chain(struct fixture *at, uint32_t max_queued)
{
    struct chain chain = {.at = at, .n_left = 5000};
    struct gate gate = {0};

    assert_int_equal(ev_jobs_new(2, max_queued, &chain.jobs), 0);
    assert_int_equal(ev_jobs_submit(chain.jobs, at->loop, wait_at, nothing, &gate), 0);
    assert_true(comes_to(&gate.is_running, 1));
    assert_int_equal(ev_timer_new(at->loop, on_gate_timer, &gate, &at->timer), 0);
    ev_timer_start(at->timer, 20 * NS_PER_S);
    next_link(&chain);
    assert_int_equal(ev_loop_run(at->loop), 0);
    bool was_held = atomic_load(&gate.may_go) == 0;
    atomic_store(&gate.may_go, 1);
    ev_jobs_free(chain.jobs);
    ev_loop_drain(at->loop);
    ev_timer_free(at->timer);
    assert_int_equal(chain.n_refused, 0);
    assert_true(was_held);
}

static void a_job_has_left_when_its_end_is_reported(void **state)
{
    run_chain(*state, 2);
    run_chain(*state, 10);
}

/* ---- the end, with jobs that hang ---- */

static void hang(void *arg)
{
    (void)arg;
    for (;;)
        sched_yield();
}

static void note_drained(void *arg)
{
    int *fd = arg;

    if (write(*fd, "d", 1) != 1)
        abort();
}

/* Runs a function in a child process, which writes a byte when it is ready for signals.
 * Returns its exit status. */
static int status_of(void (*run)(int fd), unsigned n_signals)
{
    int fds[2], status = 0;
    char byte;

    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        run(fds[1]);
        _exit(0);
    }
    for (unsigned i = 0; i < n_signals; i++) {
        assert_int_equal(read(fds[0], &byte, 1), 1);
        kill(child, SIGTERM);
    }
    for (unsigned i = 0; i < 200 && waitpid(child, &status, WNOHANG) == 0; i++)
        clock_sleep_ns(100 * NS_PER_MS);
    assert_int_not_equal(kill(child, SIGKILL), 0); /* it has already exited */
    close(fds[0]);
    close(fds[1]);
    return status;
}

static void hang_in_drain(void *arg)
{
    note_drained(arg);
    hang(NULL);
}

/* The loop never takes another turn, so it does not see the second signal. */
static void run_a_loop_that_hangs(int fd)
{
    static const struct service_calls calls = {.drain = hang_in_drain, .stop = nothing, .reload = nothing};
    struct service *service;
    struct ev_loop *loop;

    if (ev_loop_new(&loop) < 0 || service_new(loop, &calls, &fd, &service) < 0)
        abort();
    note_drained(&fd);
    ev_loop_run(loop);
}

static void the_second_signal_ends_a_process_whose_loop_hangs(void **state)
{
    int status = status_of(run_a_loop_that_hangs, 2);

    (void)state;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
}

static void drain_and_stop(void *arg)
{
    ev_loop_stop(arg);
}

/* A job thread never ends, and freeing the jobs waits for it. */
static void run_a_job_that_hangs(int fd)
{
    static const struct service_calls calls = {.drain = drain_and_stop, .stop = nothing, .reload = nothing};
    struct service *service;
    struct ev_loop *loop;
    struct ev_jobs *jobs;

    if (ev_loop_new(&loop) < 0 || service_new(loop, &calls, loop, &service) < 0 ||
        ev_jobs_new(1, 1, &jobs) < 0 || ev_jobs_submit(jobs, loop, hang, nothing, NULL) < 0)
        abort();
    note_drained(&fd);
    ev_loop_run(loop);
    service_ending(service, 1);
    ev_jobs_free(jobs);
}

static void an_end_that_hangs_is_cut_off(void **state)
{
    int status = status_of(run_a_job_that_hangs, 1);

    (void)state;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_job_waits_behind_a_busy_thread, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_job_has_left_when_its_end_is_reported, open_loop, close_loop),
        cmocka_unit_test(the_second_signal_ends_a_process_whose_loop_hangs),
        cmocka_unit_test(an_end_that_hangs_is_cut_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
