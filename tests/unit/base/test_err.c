/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts of every report: codes, faults, clocks, means. */
#include "tests/unit/check.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rate.h"
#include "base/str.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void every_code_has_name_and_text(void **state)
{
#define X(name, value, text)                                                                                 \
    assert_string_equal(err_name(name), #name);                                                              \
    assert_string_equal(err_text(value), text);
    ERR_TABLE(X)
#undef X
    assert_string_equal(err_name(7), "E_?");
    assert_string_equal(err_text(0), "unknown error");
}

static void fault_returns_its_code(void **state)
{
    struct fault fault = {0};

    assert_int_equal(fault_set(&fault, E_FORMAT, "key %s at %d", "a", 7), E_FORMAT);
    assert_int_equal(fault.code, E_FORMAT);
    assert_string_equal(fault.text, "key a at 7");
    assert_int_equal(fault_set(NULL, E_RANGE, "nobody asks"), E_RANGE);
}

static void fault_text_is_one_clean_line(void **state)
{
    struct fault fault;

    fault_set(&fault, E_FORMAT, "a\nb\033[31mc\x7f");
    assert_string_equal(fault.text, "a?b?[31mc?");
    fault_set(&fault, E_FORMAT, "again: %s", fault.text);
    assert_string_equal(fault.text, "again: a?b?[31mc?");
}

static void fault_is_cut_between_characters(void **state)
{
    struct fault fault;
    char longer[600];

    memset(longer, 'x', sizeof(longer));
    memcpy(longer + sizeof(fault.text) - 2, "\xc3\xa9", 3); /* the last byte that fits is half a character */
    fault_set(&fault, E_FORMAT, "%s", longer);
    assert_int_equal(strlen(fault.text), sizeof(fault.text) - 2);

    memset(longer, 0xff, sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    fault_set(&fault, E_FORMAT, "%s", longer);
    assert_int_equal(strlen(fault.text), sizeof(fault.text) - 1);
}

static void failed_assertion_aborts(void **state)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        close(STDERR_FILENO);
        ASSERT(child != 0);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void clock_goes_forward(void **state)
{
    uint64_t before_ns = clock_now_ns();

    clock_sleep_ns(2 * NS_PER_MS);
    assert_true(clock_now_ns() - before_ns >= 2 * NS_PER_MS);
    assert_true(clock_unix_ns() / NS_PER_S > 1700000000);
}

static void rfc3339_knows_its_limits(void **state)
{
    char text[21];

    clock_rfc3339(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00Z");
    clock_rfc3339(1795213560, text);
    assert_string_equal(text, "2026-11-20T22:26:00Z");
    clock_rfc3339(UINT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59Z");
}

static void mean_starts_at_the_first_observation(void **state)
{
    struct rate_mean mean = {0};

    assert_true(rate_get(&mean, 7) == 7);
    rate_observe(&mean, 100, 0.1);
    assert_true(rate_get(&mean, 7) == 100);
    rate_observe(&mean, 200, 0.1);
    assert_true(rate_get(&mean, 7) > 150 && rate_get(&mean, 7) < 155); /* both count nearly the same */
    for (int i = 0; i < 200; i++)
        rate_observe(&mean, 10, 0.1);
    assert_true(rate_get(&mean, 7) > 9.99 && rate_get(&mean, 7) < 10.01);
    assert_true(mean.weight > 0.99 && mean.weight <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_name_and_text),
        cmocka_unit_test(fault_returns_its_code),
        cmocka_unit_test(fault_text_is_one_clean_line),
        cmocka_unit_test(fault_is_cut_between_characters),
        cmocka_unit_test(failed_assertion_aborts),
        cmocka_unit_test(clock_goes_forward),
        cmocka_unit_test(rfc3339_knows_its_limits),
        cmocka_unit_test(mean_starts_at_the_first_observation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
