/* SPDX-License-Identifier: Apache-2.0 */
/* How long batonctl drain waits.  The daemon and the time are made up: a request runs for an hour. */
#include <getopt.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "clients/ctl/commands.h"
#include "tests/unit/check.h"

static struct {
    uint64_t now_ns;
    uint64_t ends_ns; /* when the last request ends */
    unsigned n_posts;
} world;

uint64_t __wrap_clock_now_ns(void);
void __wrap_clock_sleep_ns(uint64_t ns);

uint64_t __wrap_clock_now_ns(void)
{
    return world.now_ns;
}

void __wrap_clock_sleep_ns(uint64_t ns)
{
    world.now_ns += ns;
}

/* ---- the daemon ---- */

struct admin_door *ctl_open(const struct ctl *ctl)
{
    (void)ctl;
    return (struct admin_door *)&world; /* never looked into */
}

void admin_door_close(struct admin_door *door)
{
    (void)door;
}

int admin_door_ask(struct admin_door *door, bool is_post, const char *path, struct fault *fault,
                   struct buf *body)
{
    (void)door;
    (void)path;
    (void)fault;
    if (is_post) {
        world.n_posts++;
        return 0;
    }
    return buf_printf(body, "{\"daemon\": \"baton-decode\", \"draining\": true, \"tasks\": %d}",
                      world.now_ns < world.ends_ns);
}

/* Returns the exit status. */
static int drain(const char *timeout)
{
    char *argv[] = {"drain", "--wait", "--timeout", (char *)(uintptr_t)timeout, NULL};
    const struct ctl ctl = {0};

    world.now_ns = NS_PER_S;
    world.ends_ns = 3600 * NS_PER_S;
    optind = 0;
    return cmd_drain(&ctl, timeout != NULL ? 4 : 2, argv);
}

/* ---- */

static void five_minutes_are_the_default(void **state)
{
    (void)state;
    assert_int_equal(drain(NULL), EXIT_FAILED);
    assert_in_range(world.now_ns, 301 * NS_PER_S, 302 * NS_PER_S);
}

static void the_time_that_is_given_counts(void **state)
{
    (void)state;
    assert_int_equal(drain("20min"), EXIT_FAILED);
    assert_in_range(world.now_ns, 1201 * NS_PER_S, 1202 * NS_PER_S);
    assert_int_equal(drain("0s"), EXIT_DONE);
    assert_in_range(world.now_ns, world.ends_ns, world.ends_ns + NS_PER_S);
}

static void a_timeout_goes_with_wait(void **state)
{
    static const char *const timeouts[] = {"5min", "0s"};
    const struct ctl ctl = {0};

    (void)state;
    world.n_posts = 0;
    for (size_t i = 0; i < ARRAY_LEN(timeouts); i++) {
        char *argv[] = {"drain", "--timeout", (char *)(uintptr_t)timeouts[i], NULL};

        optind = 0;
        assert_int_equal(cmd_drain(&ctl, 3, argv), EXIT_USAGE);
    }
    assert_int_equal(world.n_posts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_minutes_are_the_default),
        cmocka_unit_test(the_time_that_is_given_counts),
        cmocka_unit_test(a_timeout_goes_with_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
