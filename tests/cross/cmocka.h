/* SPDX-License-Identifier: Apache-2.0 */
/* The little of cmocka that the kernels' tests use, for machines that we build for but have no cmocka for:
 * cross-built tests include this instead (tests/cross/test-neon).  The first failure ends the program. */
#ifndef TESTS_CROSS_CMOCKA_H
#define TESTS_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*cross_fixture)(void **state);

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    cross_fixture set_up, tear_down;
};

#define cmocka_unit_test_setup_teardown(function, before, after)                                             \
    {                                                                                                        \
#function, function, before, after                                                                   \
    }
#define cmocka_unit_test(function) cmocka_unit_test_setup_teardown(function, NULL, NULL)

static jmp_buf cross_skips; /* where skip() goes on: behind the test */

static inline void cross_require(int is_met, const char *what, const char *file, int line)
{
    if (is_met)
        return;
    printf("FAILED at %s:%d: %s\n", file, line, what);
    exit(1);
}

#define CROSS_REQUIRE(what, text)     cross_require(what, text, __FILE__, __LINE__)
#define assert_true(a)                CROSS_REQUIRE(!!(a), #a)
#define assert_false(a)               CROSS_REQUIRE(!(a), "not " #a)
#define assert_null(a)                CROSS_REQUIRE((a) == NULL, #a " is NULL")
#define assert_non_null(a)            CROSS_REQUIRE((a) != NULL, #a " is not NULL")
#define assert_ptr_equal(a, b)        CROSS_REQUIRE((const void *)(a) == (const void *)(b), #a " is " #b)
#define assert_int_equal(a, b)        CROSS_REQUIRE((long long)(a) == (long long)(b), #a " == " #b)
#define assert_int_not_equal(a, b)    CROSS_REQUIRE((long long)(a) != (long long)(b), #a " != " #b)
#define assert_in_range(a, low, high) CROSS_REQUIRE((a) >= (low) && (a) <= (high), #a " in range")
#define assert_string_equal(a, b)     CROSS_REQUIRE(strcmp(a, b) == 0, #a " equals " #b)
#define assert_memory_equal(a, b, n)  CROSS_REQUIRE(memcmp(a, b, n) == 0, "the bytes of " #a " and " #b)
#define skip()                        longjmp(cross_skips, 1)
#define print_message(...)            printf(__VA_ARGS__)
#define fail_msg(...)                 (printf(__VA_ARGS__), CROSS_REQUIRE(0, "fail_msg"))
#define cmocka_run_group_tests(all, setup, teardown)                                                         \
    cross_run(all, sizeof(all) / sizeof((all)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, all, setup, teardown)                                              \
    (printf("%s:\n", name), cmocka_run_group_tests(all, setup, teardown))

static inline int cross_run(const struct CMUnitTest *all, size_t n, cross_fixture set_up,
                            cross_fixture tear_down)
{
    void *state = NULL;

    if (set_up != NULL && set_up(&state) != 0)
        return 1;
    for (size_t i = 0; i < n; i++) {
        if (all[i].set_up != NULL && all[i].set_up(&state) != 0)
            return 1;
        volatile int is_skipped = 1;

        if (setjmp(cross_skips) == 0) {
            all[i].run(&state);
            is_skipped = 0;
        }
        if (all[i].tear_down != NULL && all[i].tear_down(&state) != 0)
            return 1;
        printf("%s %s\n", is_skipped ? "skipped" : "ok", all[i].name);
        fflush(stdout);
    }
    return tear_down != NULL ? tear_down(&state) : 0;
}

#endif
