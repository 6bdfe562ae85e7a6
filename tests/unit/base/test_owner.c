/* SPDX-License-Identifier: Apache-2.0 */
/* Only the owner passes the check; without an owner every thread does. */
#include "tests/unit/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/owner.h"

static void *check_it(void *arg)
{
    thread_owner_check(arg);
    return NULL;
}

static void check_on_another_thread(struct thread_owner *owner)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, check_it, owner), 0);
    pthread_join(thread, NULL);
}

static void without_an_owner_all_pass(void **state)
{
    struct thread_owner owner = {0};

    thread_owner_check(&owner);
    check_on_another_thread(&owner);
    thread_owner_claim(&owner);
    thread_owner_release(&owner);
    check_on_another_thread(&owner);
}

static void another_thread_aborts(void **state)
{
    struct thread_owner owner = {0};
    int status;
    pid_t child;

    thread_owner_claim(&owner);
    thread_owner_claim(&owner); /* claiming again changes nothing */
    thread_owner_check(&owner);
    child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        check_on_another_thread(&owner);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_an_owner_all_pass),
                                       cmocka_unit_test(another_thread_aborts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
