/* SPDX-License-Identifier: Apache-2.0 */
/* The breaker: when the store is used, tested and left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/breaker.h"

static void it_is_tested_before_it_is_used(void **state)
{
    struct breaker breaker = {0};

    (void)state;
    assert_int_equal(breaker.state, BREAKER_TRYING);
    assert_true(breaker_wants_test(&breaker, 1));
    assert_false(breaker_wants_test(&breaker, 2)); /* one test at a time */
    assert_true(breaker_succeed(&breaker));
    assert_int_equal(breaker.state, BREAKER_UP);
    assert_false(breaker_succeed(&breaker)); /* the state does not change */
    assert_false(breaker_wants_test(&breaker, 3));
}

static void rests_grow_and_end(void **state)
{
    struct breaker breaker = {.state = BREAKER_UP};
    uint64_t now_ns = 5, rest_ns = NS_PER_S;

    (void)state;
    assert_true(breaker_fail(&breaker, now_ns));
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(breaker.state, BREAKER_DOWN);
        assert_false(breaker_succeed(&breaker)); /* a late answer changes nothing */
        assert_false(breaker_fail(&breaker, now_ns));
        assert_false(breaker_wants_test(&breaker, now_ns + rest_ns - 1));
        now_ns += rest_ns;
        assert_true(breaker_wants_test(&breaker, now_ns));
        assert_false(breaker_fail(&breaker, now_ns)); /* it was down before: the state does not change */
        rest_ns = rest_ns < 15 * NS_PER_S ? 2 * rest_ns : 30 * NS_PER_S;
    }
    assert_int_equal(rest_ns, 30 * NS_PER_S);
    assert_true(breaker_wants_test(&breaker, now_ns + rest_ns));
    assert_true(breaker_succeed(&breaker));
    /* A store that fails at once again rests longer; one that worked begins anew. */
    assert_true(breaker_fail(&breaker, now_ns));
    assert_int_equal(breaker.rest_ns, 30 * NS_PER_S);
    assert_true(breaker_wants_test(&breaker, breaker.until_ns));
    assert_true(breaker_succeed(&breaker));
    assert_false(breaker_succeed(&breaker));
    assert_true(breaker_fail(&breaker, now_ns));
    assert_int_equal(breaker.rest_ns, NS_PER_S);
}

static void late_answers_count_in_a_row(void **state)
{
    struct breaker breaker = {.state = BREAKER_UP};

    (void)state;
    assert_false(breaker_late(&breaker, 1));
    assert_false(breaker_late(&breaker, 2));
    assert_false(breaker_succeed(&breaker));
    assert_false(breaker_late(&breaker, 3));
    assert_false(breaker_late(&breaker, 4));
    breaker_answered(&breaker); /* a write: it ends no row */
    assert_true(breaker_late(&breaker, 5));
    assert_int_equal(breaker.state, BREAKER_DOWN);
    assert_false(breaker_late(&breaker, 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_tested_before_it_is_used),
        cmocka_unit_test(rests_grow_and_end),
        cmocka_unit_test(late_answers_count_in_a_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
