/* SPDX-License-Identifier: Apache-2.0 */
/* Posts, timers, descriptors, signals and jobs on a real loop. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "ev/jobs.h"
#include "ev/loop.h"
#include "ev/service.h"
#include "ev/signals.h"
#include "ev/work.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_POSTERS = 3, N_POSTS = 3000 };

struct fixture {
    struct ev_loop *loop;
    struct ev_timer *timer;
    struct ev_fd *watch;
    struct ev_fd *writer;
    unsigned n_calls;
    unsigned next[N_POSTERS];
    unsigned n_wrong;
    int pipe_fds[2];
    atomic_uint n_worked;
    pthread_t loop_thread;
};

static int open_loop(void **state)
{
    static struct fixture fixture;

    memset(&fixture, 0, sizeof(fixture));
    fixture.loop_thread = pthread_self();
    *state = &fixture;
    return ev_loop_new(&fixture.loop);
}

static int close_loop(void **state)
{
    struct fixture *at = *state;

    ev_loop_free(at->loop);
    return 0;
}

static void stop_loop(void *arg)
{
    struct fixture *at = arg;

    ev_loop_stop(at->loop);
}

static void stop_before_run_counts(void **state)
{
    struct fixture *at = *state;

    ev_loop_stop(at->loop);
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_int_equal(ev_loop_turns(at->loop), 0);
    assert_int_equal(ev_post(at->loop, stop_loop, at), 0);
    assert_int_equal(ev_loop_run(at->loop), 0); /* and only once */
    assert_true(ev_loop_turns(at->loop) > 0);
    ev_loop_free(NULL);
}

struct numbered {
    struct fixture *at;
    unsigned poster, number;
};

static struct numbered posts[N_POSTERS][N_POSTS];

static void take_post(void *arg)
{
    struct numbered *post = arg;
    struct fixture *at = post->at;

    at->n_wrong += post->number != at->next[post->poster]++;
    if (++at->n_calls == N_POSTERS * N_POSTS)
        ev_loop_stop(at->loop);
}

static void *post_all(void *arg)
{
    struct numbered *mine = arg;

    for (unsigned i = 0; i < N_POSTS; i++)
        while (ev_post(mine->at->loop, take_post, &mine[i]) != 0)
            sched_yield();
    return NULL;
}

static void posts_keep_their_order(void **state)
{
    struct fixture *at = *state;
    pthread_t threads[N_POSTERS];

    for (unsigned i = 0; i < N_POSTERS; i++) {
        for (unsigned k = 0; k < N_POSTS; k++)
            posts[i][k] = (struct numbered){.at = at, .poster = i, .number = k};
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, posts[i]), 0);
    }
    assert_int_equal(ev_loop_run(at->loop), 0);
    for (unsigned i = 0; i < N_POSTERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(at->n_wrong, 0);
    assert_int_equal(at->n_calls, N_POSTERS * N_POSTS);
}

static void count(void *arg)
{
    struct fixture *at = arg;

    at->n_calls++;
}

static void too_many_posts_are_refused(void **state)
{
    struct fixture *at = *state;
    unsigned n = 0;
    int rc;

    while ((rc = ev_post(at->loop, count, at)) == 0)
        n++;
    assert_int_equal(rc, E_FULL);
    assert_int_equal(n, 64 * 1024);
    ev_loop_stop(at->loop);
    ev_loop_run(at->loop); /* stopped, but what was posted runs */
    assert_int_equal(at->n_calls, n);
    ev_post(at->loop, count, at); /* dropped by the fixture's free, without a leak */
}

static void post_again(void *arg)
{
    struct fixture *at = arg;

    at->n_calls++;
    ev_post(at->loop, post_again, at);
}

static void endless_posts_do_not_starve_timers(void **state)
{
    struct fixture *at = *state;
    struct ev_timer *timer;

    assert_int_equal(ev_timer_new(at->loop, stop_loop, at, &timer), 0);
    ev_timer_start(timer, 5 * NS_PER_MS);
    ev_post(at->loop, post_again, at);
    uint64_t before_ns = clock_now_ns();
    /* The final drain of ev_loop_run is bounded too. */
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_true(clock_now_ns() - before_ns >= 5 * NS_PER_MS);
    assert_true(at->n_calls > 100);
    ev_timer_free(timer);
}

static void free_timer(void *arg)
{
    struct fixture *at = arg;

    if (++at->n_calls < 3)
        return;
    ev_timer_free(at->timer);
    at->timer = NULL;
    ev_loop_stop(at->loop);
}

static void restart_timer(void *arg)
{
    struct fixture *at = arg;

    if (++at->n_calls < 4)
        ev_timer_start(at->timer, NS_PER_US);
    else
        ev_timer_repeat(at->timer, NS_PER_US);
    if (at->n_calls == 6) {
        ev_timer_stop(at->timer);
        ev_loop_stop(at->loop);
    }
}

static void timers_repeat_restart_and_end(void **state)
{
    struct fixture *at = *state;
    struct ev_timer *never;

    assert_int_equal(ev_timer_new(at->loop, free_timer, at, &at->timer), 0);
    assert_int_equal(ev_timer_new(at->loop, count, at, &never), 0);
    ev_timer_start(never, UINT64_MAX);
    ev_timer_repeat(at->timer, NS_PER_MS);
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_int_equal(at->n_calls, 3);
    assert_null(at->timer);
    at->n_calls = 0;
    assert_int_equal(ev_timer_new(at->loop, restart_timer, at, &at->timer), 0);
    ev_timer_start(at->timer, 0);
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_int_equal(at->n_calls, 6);
    ev_timer_free(at->timer);
    ev_timer_free(never);
    ev_timer_free(NULL);
}

static void timer_is_never_early(void **state)
{
    struct fixture *at = *state;
    struct ev_timer *timer;

    assert_int_equal(ev_timer_new(at->loop, stop_loop, at, &timer), 0);
    for (uint64_t delay_ns = 1; delay_ns < 8 * NS_PER_MS; delay_ns = delay_ns * 7 + 13) {
        uint64_t before_ns = clock_now_ns();

        ev_timer_start(timer, delay_ns);
        ev_loop_run(at->loop);
        assert_true(clock_now_ns() - before_ns >= delay_ns);
    }
    ev_timer_free(timer);
}

static void read_pipe(void *arg, int fd, unsigned ready)
{
    struct fixture *at = arg;
    char byte;

    if (ready & EV_FD_READ) {
        assert_int_equal(read(fd, &byte, 1), 1);
        if (++at->n_calls == 2) {
            ev_fd_free(at->watch);
            at->watch = NULL;
            ev_loop_stop(at->loop);
        }
    }
}

static void write_pipe(void *arg, int fd, unsigned ready)
{
    struct fixture *at = arg;

    assert_int_equal(ready, EV_FD_WRITE);
    assert_int_equal(write(fd, "ab", 2), 2);
    ev_fd_want(at->writer, 0);
}

static void descriptors_are_level_triggered(void **state)
{
    struct fixture *at = *state;

    assert_int_equal(pipe(at->pipe_fds), 0);
    assert_int_equal(ev_fd_new(at->loop, at->pipe_fds[0], EV_FD_READ, read_pipe, at, &at->watch), 0);
    assert_int_equal(ev_fd_new(at->loop, at->pipe_fds[1], EV_FD_WRITE, write_pipe, at, &at->writer), 0);
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_int_equal(at->n_calls, 2);
    ev_fd_free(at->writer);
    ev_fd_free(NULL);
    close(at->pipe_fds[0]);
    close(at->pipe_fds[1]);
}

static void raise_signal(void *arg)
{
    kill(getpid(), SIGUSR1);
}

static void signals_arrive_on_the_loop(void **state)
{
    struct fixture *at = *state;
    struct ev_signal *watch;

    assert_int_equal(ev_signal_new(at->loop, SIGUSR1, stop_loop, at, &watch), 0);
    ev_post(at->loop, raise_signal, NULL);
    assert_int_equal(ev_loop_run(at->loop), 0);
    ev_signal_free(watch);
    ev_signal_free(NULL);
}

static void work(void *arg)
{
    struct fixture *at = arg;

    if (pthread_equal(pthread_self(), at->loop_thread))
        abort();
    atomic_fetch_add(&at->n_worked, 1);
}

static void done(void *arg)
{
    struct fixture *at = arg;

    if (!pthread_equal(pthread_self(), at->loop_thread))
        abort();
    if (++at->n_calls == 100)
        ev_loop_stop(at->loop);
}

static void hold(void *arg)
{
    atomic_uint *may_go = arg;

    while (atomic_load(may_go) == 0)
        clock_sleep_ns(NS_PER_MS);
}

static void nothing(void *arg)
{
}

static void jobs_return_to_their_loop(void **state)
{
    struct fixture *at = *state;
    struct ev_jobs *jobs;

    assert_int_equal(ev_jobs_new(3, 1000, &jobs), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ev_jobs_submit(jobs, at->loop, work, done, at), 0);
    assert_int_equal(ev_loop_run(at->loop), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(ev_jobs_submit(jobs, at->loop, work, done, at), 0);
    ev_jobs_free(jobs);
    assert_int_equal(at->n_worked, 150);
    ev_loop_drain(at->loop);
    assert_int_equal(at->n_calls, 150);
    ev_jobs_free(NULL);
}

static void too_many_jobs_are_refused(void **state)
{
    struct fixture *at = *state;
    struct ev_jobs *jobs = NULL;
    atomic_uint may_go = 0;

    assert_int_equal(ev_jobs_new(0, 1, &jobs), E_INVAL);
    assert_int_equal(ev_jobs_new(1, 0, &jobs), E_INVAL);
    assert_int_equal(ev_jobs_new(2, 3, &jobs), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ev_jobs_submit(jobs, at->loop, hold, nothing, &may_go), 0);
    assert_int_equal(ev_jobs_submit(jobs, at->loop, hold, nothing, &may_go), E_FULL);
    atomic_store(&may_go, 1);
    ev_jobs_free(jobs);
    ev_loop_drain(at->loop);
}

/* ---- a job waits only while every thread works ---- */

struct gate { /* a job that says when it runs, and waits to be let go */
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

/* Two threads are busy and two jobs wait.  When one of the threads is free again it takes both of them: none
 * waits behind the other thread's job. */
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

struct chain { /* of jobs, each submitted by the end of the one before */
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

/* One thread is busy; jobs come one after another, each as soon as the one before has ended.  A job gives up
 * its place and its thread before its end is told, so the next one is neither refused (with room for two) nor
 * does it wait for the busy thread (with room for ten). */
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

static void a_job_has_left_when_its_end_is_told(void **state)
{
    run_chain(*state, 2);
    run_chain(*state, 10);
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, open_loop, close_loop)

static void on_drain(void *arg)
{
    struct fixture *at = arg;

    at->n_calls++;
    ev_loop_stop(at->loop);
}

static void on_other(void *arg)
{
    (void)arg;
}

/* What loads a model on the loop's thread looks for the signal itself; released, the signal drains as ever.
 */
static void held_signals_are_seen_and_come_later(void **state)
{
    static const struct service_calls calls = {.drain = on_drain, .stop = on_other, .reload = on_other};
    struct fixture *at = *state;
    struct service *service;

    assert_int_equal(service_new(at->loop, &calls, at, &service), 0);
    service_hold(service);
    assert_false(service_is_asked_to_stop(service));
    kill(getpid(), SIGTERM);
    assert_true(service_is_asked_to_stop(service));
    assert_int_equal(at->n_calls, 0);
    service_release(service);
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_int_equal(at->n_calls, 1);
    service_free(service);
}

/* ---- how long the loop works ---- */

struct told { /* of pieces of work */
    unsigned n;
    char what[2][16];
    uint64_t cpu_ns[2], wall_ns[2];
};

static void on_long(void *arg, const char *what, uint64_t cpu_ns, uint64_t wall_ns)
{
    struct told *told = arg;

    if (strcmp(what, "turn") == 0 || told->n == 2)
        return;
    snprintf(told->what[told->n], sizeof(told->what[0]), "%s", what);
    told->cpu_ns[told->n] = cpu_ns;
    told->wall_ns[told->n++] = wall_ns;
}

static void sleep_long(void *arg)
{
    (void)arg;
    clock_sleep_ns(20 * NS_PER_MS);
}

static void work_long(void *arg)
{
    uint64_t until_ns = clock_thread_cpu_ns() + 3 * NS_PER_MS;

    ev_work_name("named");
    while (clock_thread_cpu_ns() < until_ns)
        ;
    ev_loop_stop(((struct fixture *)arg)->loop);
}

/* A thread that is not let run does not work; what is short is not told. */
static void long_work_is_told_by_the_threads_own_time(void **state)
{
    struct fixture *at = *state;
    struct told told = {0};

    ev_work_watch(at->loop, on_long, &told);
    assert_int_equal(ev_post(at->loop, nothing, at), 0);
    assert_int_equal(ev_post(at->loop, sleep_long, at), 0);
    assert_int_equal(ev_post(at->loop, work_long, at), 0);
    assert_int_equal(ev_loop_run(at->loop), 0);
    assert_int_equal(told.n, 2);
    assert_string_equal(told.what[0], "call");
    assert_true(told.wall_ns[0] >= 20 * NS_PER_MS && told.cpu_ns[0] < 10 * NS_PER_MS);
    assert_string_equal(told.what[1], "named");
    assert_true(told.cpu_ns[1] >= 3 * NS_PER_MS && told.cpu_ns[1] <= told.wall_ns[1]);
}

/* ---- the end, whatever hangs ---- */

static void hang(void *arg)
{
    (void)arg;
    for (;;)
        sched_yield();
}

static void say_drained(void *arg)
{
    int *fd = arg;

    if (write(*fd, "d", 1) != 1)
        abort();
}

/* In a process of its own, which writes a byte when it is ready for signals; its end. */
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
    assert_int_not_equal(kill(child, SIGKILL), 0); /* it is gone already */
    close(fds[0]);
    close(fds[1]);
    return status;
}

static void hang_in_drain(void *arg)
{
    say_drained(arg);
    hang(NULL);
}

/* The loop never comes round again, so that it does not hear of the second signal. */
static void run_a_loop_that_hangs(int fd)
{
    static const struct service_calls calls = {.drain = hang_in_drain, .stop = on_other, .reload = on_other};
    struct service *service;
    struct ev_loop *loop;

    if (ev_loop_new(&loop) < 0 || service_new(loop, &calls, &fd, &service) < 0)
        abort();
    say_drained(&fd);
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

/* A job thread never ends, and what is freed waits for it. */
static void run_a_job_that_hangs(int fd)
{
    static const struct service_calls calls = {.drain = drain_and_stop, .stop = on_other, .reload = on_other};
    struct service *service;
    struct ev_loop *loop;
    struct ev_jobs *jobs;

    if (ev_loop_new(&loop) < 0 || service_new(loop, &calls, loop, &service) < 0 ||
        ev_jobs_new(1, 1, &jobs) < 0 || ev_jobs_submit(jobs, loop, hang, nothing, NULL) < 0)
        abort();
    say_drained(&fd);
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
        LOOP_TEST(stop_before_run_counts),
        LOOP_TEST(posts_keep_their_order),
        LOOP_TEST(too_many_posts_are_refused),
        LOOP_TEST(endless_posts_do_not_starve_timers),
        LOOP_TEST(timers_repeat_restart_and_end),
        LOOP_TEST(timer_is_never_early),
        LOOP_TEST(descriptors_are_level_triggered),
        LOOP_TEST(signals_arrive_on_the_loop),
        LOOP_TEST(jobs_return_to_their_loop),
        LOOP_TEST(too_many_jobs_are_refused),
        LOOP_TEST(no_job_waits_behind_a_busy_thread),
        LOOP_TEST(a_job_has_left_when_its_end_is_told),
        LOOP_TEST(long_work_is_told_by_the_threads_own_time),
        LOOP_TEST(held_signals_are_seen_and_come_later),
        cmocka_unit_test(the_second_signal_ends_a_process_whose_loop_hangs),
        cmocka_unit_test(an_end_that_hangs_is_cut_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
