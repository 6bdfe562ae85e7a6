/* SPDX-License-Identifier: Apache-2.0 */
/* No message is lost or repeated, each sender's order is kept,
 * and no receiver sleeps while a message waits. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mailbox.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { N_SENDERS = 4, N_MESSAGES = 20000 };

static bool is_readable(const struct mailbox *box)
{
    struct pollfd watch = {.fd = mailbox_fd(box), .events = POLLIN};

    return poll(&watch, 1, 0) == 1;
}

static void full_and_closed_are_refusals(void **state)
{
    struct mailbox *box;
    int messages[5];

    assert_int_equal(mailbox_new(3, &box), 0); /* rounded up to 4 */
    for (int i = 0; i < 4; i++)
        assert_int_equal(mailbox_send(box, &messages[i]), 0);
    assert_int_equal(mailbox_send(box, &messages[4]), E_FULL);
    assert_ptr_equal(mailbox_receive(box), &messages[0]);
    assert_int_equal(mailbox_send(box, &messages[4]), 0);
    mailbox_close(box);
    assert_true(mailbox_is_closed(box));
    assert_int_equal(mailbox_send(box, &messages[0]), E_CLOSED);
    for (int i = 1; i < 5; i++)
        assert_ptr_equal(mailbox_receive(box), &messages[i]);
    assert_null(mailbox_receive(box));
    mailbox_wait(box, UINT64_MAX); /* closed: does not sleep */
    mailbox_free(box);
    mailbox_free(NULL);
    assert_int_equal(mailbox_new(0, &box), E_INVAL);
}

static void fd_is_written_only_for_a_sleeper(void **state)
{
    struct mailbox *box;
    int message;

    assert_int_equal(mailbox_new(8, &box), 0);
    assert_false(is_readable(box));
    mailbox_send(box, &message); /* the receiver has not looked yet: wakes it */
    assert_true(is_readable(box));
    mailbox_drain_fd(box);
    assert_ptr_equal(mailbox_receive(box), &message);
    mailbox_send(box, &message); /* the receiver has not found the mailbox empty, so it is busy */
    assert_false(is_readable(box));
    assert_ptr_equal(mailbox_receive(box), &message);
    assert_null(mailbox_receive(box)); /* now it goes to sleep */
    mailbox_send(box, &message);
    mailbox_send(box, &message);
    assert_true(is_readable(box));
    mailbox_drain_fd(box);
    mailbox_drain_fd(box); /* empty: returns */
    while (mailbox_receive(box) != NULL)
        ;
    mailbox_wake(box);
    assert_true(is_readable(box));
    mailbox_free(box);
}

static void wait_ends_in_time(void **state)
{
    struct mailbox *box;
    uint64_t before_ns = clock_now_ns();

    assert_int_equal(mailbox_new(8, &box), 0);
    mailbox_wait(box, 0);
    mailbox_wait(box, 3 * NS_PER_MS);
    assert_true(clock_now_ns() - before_ns >= 3 * NS_PER_MS);
    mailbox_free(box);
}

struct sender {
    struct mailbox *box;
    uintptr_t number;
};

static void *send_all(void *arg)
{
    struct sender *sender = arg;

    for (uintptr_t i = 1; i <= N_MESSAGES; i++)
        while (mailbox_send(sender->box, (void *)(i * N_SENDERS + sender->number)) == E_FULL)
            sched_yield();
    return NULL;
}

static void many_senders_one_receiver(void **state)
{
    struct mailbox *box;
    struct sender senders[N_SENDERS];
    pthread_t threads[N_SENDERS];
    uintptr_t last[N_SENDERS] = {0};

    assert_int_equal(mailbox_new(64, &box), 0);
    for (uintptr_t i = 0; i < N_SENDERS; i++) {
        senders[i] = (struct sender){.box = box, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    for (unsigned left = N_SENDERS * N_MESSAGES; left > 0;) {
        uintptr_t message = (uintptr_t)mailbox_receive(box);

        if (message == 0) {
            mailbox_wait(box, UINT64_MAX); /* a lost wake-up would hang here */
            continue;
        }
        assert_int_equal(message / N_SENDERS, last[message % N_SENDERS] + 1);
        last[message % N_SENDERS]++;
        left--;
    }
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(threads[i], NULL);
    assert_null(mailbox_receive(box));
    mailbox_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_and_closed_are_refusals),
        cmocka_unit_test(fd_is_written_only_for_a_sleeper),
        cmocka_unit_test(wait_ends_in_time),
        cmocka_unit_test(many_senders_one_receiver),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
