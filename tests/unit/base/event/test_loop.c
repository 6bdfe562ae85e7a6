/* SPDX-License-Identifier: Apache-2.0 */
/* Posts, timers, descriptors, signals and jobs on a real loop. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/event/jobs.h"
#include "base/event/loop.h"
#include "base/event/service.h"
#include "base/event/signals.h"
#include "base/event/work.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
    assert_int_equal(ev_loop_run(at->loop), 0); /* and runs only once */
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
    ev_loop_run(at->loop); /* stopped, but posted calls still run */
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
    assert_int_equal(ev_fd_new(at->loop, at->pipe_fds[0], read_pipe, at, &at->watch), 0);
    assert_int_equal(ev_fd_new(at->loop, at->pipe_fds[1], write_pipe, at, &at->writer), 0);
    ev_fd_want(at->writer, EV_FD_WRITE);
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

static void look_at_priority(void *arg)
{
    int *priority = arg;

    *priority = getpriority(PRIO_PROCESS, 0);
}

/* When processors are scarce, threads that serve a loop run before jobs. */
static void jobs_come_after_loops(void **state)
{
    struct fixture *at = *state;
    struct ev_jobs *jobs;
    int priority = -100;

    assert_int_equal(ev_jobs_new(1, 10, &jobs), 0);
    assert_int_equal(ev_jobs_submit(jobs, at->loop, look_at_priority, nothing, &priority), 0);
    ev_jobs_free(jobs);
    ev_loop_drain(at->loop);
    assert_true(priority > getpriority(PRIO_PROCESS, 0) || priority == 19);
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

/* A model load on the loop's thread polls for the signal.  After the release, the signal drains as usual. */
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

struct told { /* reports of long work */
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

/* A thread that was not scheduled did not work.  Short work is not reported. */
static void long_work_is_measured_by_the_threads_own_time(void **state)
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
        LOOP_TEST(jobs_come_after_loops),
        LOOP_TEST(too_many_jobs_are_refused),
        LOOP_TEST(long_work_is_measured_by_the_threads_own_time),
        LOOP_TEST(held_signals_are_seen_and_come_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
