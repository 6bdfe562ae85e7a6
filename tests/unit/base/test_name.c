/* SPDX-License-Identifier: Apache-2.0 */
/* Which names people may give. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/name.h"

static void letters_digits_and_three_marks(void **state)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    (void)state;
    for (int c = 0; c < 256; c++) {
        const uint8_t one[3] = {'a', (uint8_t)c, 'b'};
        bool is_good = c != 0 && strchr(good, c) != NULL;

        assert_int_equal(name_is_valid(bytes_of(one, 3), 3), is_good);
        assert_int_equal(name_is_valid(bytes_of(one + 1, 1), 3), is_good);
    }
}

static void lengths_are_bounded(void **state)
{
    (void)state;
    assert_false(name_is_valid(bytes_str(""), 3));
    assert_false(name_is_valid(bytes_str(NULL), 3));
    assert_true(name_is_valid(bytes_str("abc"), 3));
    assert_false(name_is_valid(bytes_str("abcd"), 3));
    assert_false(name_fits(""));
    assert_true(name_fits("a.b"));
    assert_false(name_fits("a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_digits_and_three_marks),
        cmocka_unit_test(lengths_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
