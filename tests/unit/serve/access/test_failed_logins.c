/* SPDX-License-Identifier: Apache-2.0 */
/* Failed logins: reports of one router count at another, once for each wrong key, and for as long as its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "serve/access/failed_logins.h"

#define PER_MIN 6
#define PEER    "192.0.2.1:1234"

static const uint8_t salt[16] = {7};

static struct failed_logins *logins_new(void)
{
    struct failed_logins *logins;

    assert_int_equal(failed_logins_new(PER_MIN, 4, &logins), 0);
    failed_logins_share(logins, salt);
    return logins;
}

static void present(struct failed_logins *logins, const char *peer, char key, uint64_t now_ns)
{
    failed_logins_note(logins, peer, bytes_of(&key, 1), now_ns);
}

static uint32_t pass_on(struct failed_logins *from, struct failed_logins *to, uint64_t age_ns,
                        uint64_t now_ns)
{
    struct failed_login taken[FAILED_LOGINS_UNSENT];
    uint32_t n = failed_logins_take(from, taken, FAILED_LOGINS_UNSENT);

    for (uint32_t i = 0; i < n; i++)
        failed_logins_receive(to, &taken[i], age_ns, now_ns);
    return n;
}

static void a_ban_reaches_the_other_routers(void **state)
{
    struct failed_logins *a = logins_new(), *b = logins_new();

    (void)state;
    for (char key = 'a'; key < 'a' + PER_MIN; key++)
        present(a, PEER, key, 1);
    assert_int_equal(failed_logins_wait_s(b, PEER, 1), 0);
    assert_int_equal(pass_on(a, b, 0, 1), PER_MIN);
    assert_true(failed_logins_wait_s(b, PEER, 1) > 0);
    assert_int_equal(failed_logins_wait_s(b, PEER, 1), failed_logins_wait_s(a, PEER, 1));
    assert_int_equal(failed_logins_wait_s(b, "192.0.2.2:1234", 1), 0);
    assert_int_equal(pass_on(b, a, 0, 1), 0); /* received ones are not sent again */
    failed_logins_free(a);
    failed_logins_free(b);
}

static void one_wrong_key_counts_once(void **state)
{
    struct failed_logins *a = logins_new(), *b = logins_new();

    (void)state;
    for (int i = 0; i < 3 * PER_MIN; i++) {
        present(i % 2 == 0 ? a : b, PEER, 'x', 1);
        pass_on(a, b, 0, 1);
        pass_on(b, a, 0, 1);
    }
    assert_int_equal(failed_logins_wait_s(a, PEER, 1), 0);
    assert_int_equal(failed_logins_wait_s(b, PEER, 1), 0);
    failed_logins_free(a);
    failed_logins_free(b);
}

static void old_reports_count_for_less(void **state)
{
    struct failed_logins *a = logins_new(), *b = logins_new(), *c = logins_new();
    struct failed_login taken[FAILED_LOGINS_UNSENT];
    uint32_t n;

    (void)state;
    for (char key = 'a'; key < 'a' + PER_MIN; key++)
        present(a, PEER, key, 1);
    n = failed_logins_take(a, taken, FAILED_LOGINS_UNSENT);
    for (uint32_t i = 0; i < n; i++) {
        failed_logins_receive(b, &taken[i], 5 * NS_PER_S, 1); /* one drains in ten seconds */
        failed_logins_receive(c, &taken[i], 60 * NS_PER_S, 1);
    }
    assert_int_equal(failed_logins_wait_s(b, PEER, 1), 0);
    assert_int_equal(failed_logins_wait_s(c, PEER, 1), 0);
    for (char key = 'p'; key < 'p' + 3; key++) {
        present(b, PEER, key, 1);
        present(c, PEER, key, 1);
    }
    assert_true(failed_logins_wait_s(b, PEER, 1) > 0);
    assert_int_equal(failed_logins_wait_s(c, PEER, 1), 0);
    failed_logins_free(a);
    failed_logins_free(b);
    failed_logins_free(c);
}

static void unsent_reports_are_bounded(void **state)
{
    struct failed_logins *a = logins_new();
    struct failed_login taken[2 * FAILED_LOGINS_UNSENT];
    char key[8];

    (void)state;
    for (uint32_t i = 0; i < 3 * FAILED_LOGINS_UNSENT; i++) {
        put_u64((uint8_t *)key, i);
        failed_logins_note(a, PEER, bytes_of(key, sizeof(key)), 1);
    }
    assert_int_equal(failed_logins_take(a, taken, 10), 10);
    assert_int_equal(failed_logins_take(a, taken, 2 * FAILED_LOGINS_UNSENT), FAILED_LOGINS_UNSENT - 10);
    assert_int_equal(failed_logins_take(a, taken, 1), 0);
    failed_logins_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ban_reaches_the_other_routers),
        cmocka_unit_test(one_wrong_key_counts_once),
        cmocka_unit_test(old_reports_count_for_less),
        cmocka_unit_test(unsent_reports_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
