/* SPDX-License-Identifier: Apache-2.0 */
/* The path of an order to change a role: a closed alphabet, bounded lengths, and only these two words. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

#include "serve/endpoint/admin.h"

static bool reads(const char *path)
{
    struct admin_role unused;

    return admin_role_read(bytes_str(path), &unused);
}

static void two_words_are_read(void **state)
{
    struct admin_role wanted;

    assert_true(admin_role_read(bytes_str("/admin/role/both/node-1.example_A"), &wanted));
    assert_true(bytes_is(wanted.role, "both"));
    assert_true(bytes_is(wanted.worker, "node-1.example_A"));
}

static void other_paths_are_not(void **state)
{
    static const char *const others[] = {"",
                                         "/admin/role",
                                         "/admin/role/",
                                         "/admin/role//",
                                         "/admin/role/decode",
                                         "/admin/role/decode/",
                                         "/admin/role//node",
                                         "/admin/role/Decode/node",
                                         "/admin/role/decode/a/b",
                                         "/admin/role/decode/a b",
                                         "/admin/role/decode/a%20b",
                                         "/admin/roles/decode/a"};
    char longest[64 + 32], hidden[] = "/admin/role/decode/a\0b";
    struct admin_role unused;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(reads(others[i]));
    assert_false(admin_role_read(bytes_of(hidden, sizeof(hidden) - 1), &unused));
    snprintf(longest, sizeof(longest), "/admin/role/decode/%063d", 0);
    assert_true(reads(longest));
    snprintf(longest, sizeof(longest), "/admin/role/decode/%064d", 0);
    assert_false(reads(longest));
    for (size_t i = 0; i <= strlen("/admin/role/decode/"); i++) /* cut anywhere: never read past the end */
        assert_false(admin_role_read(bytes_of("/admin/role/decode/", i), &unused));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(two_words_are_read),
                                              cmocka_unit_test(other_paths_are_not)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
