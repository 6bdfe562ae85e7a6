/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed values of the shared store: they open under their key, name and time, and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/state/state_record.h"

static const uint8_t key[STATE_KEY_BYTES] = {1, 2, 3};
static const uint64_t times_s[2] = {1000, 2000};

static struct state_name name_of(const char *id)
{
    struct state_name name;

    assert_int_equal(state_name_make(key, "thread", bytes_str("team"), bytes_str(id), &name), 0);
    return name;
}

static void a_value_opens_under_its_name(void **state)
{
    struct state_name name = name_of("a");
    struct buf sealed = {0}, opened = {0};

    (void)state;
    assert_int_equal(state_record_seal(key, &name, times_s, bytes_str("what was said"), &sealed), 0);
    assert_true(bytes_find(buf_view(&sealed), bytes_str("said"), 0) == SIZE_MAX);
    assert_int_equal(state_record_open(key, &name, 1500, buf_view(&sealed), &opened), 0);
    assert_true(bytes_is(buf_view(&opened), "what was said"));
    buf_fini(&sealed);
    buf_fini(&opened);
}

static void every_changed_byte_is_found(void **state)
{
    struct state_name name = name_of("a");
    struct buf sealed = {0}, opened = {0};

    (void)state;
    assert_int_equal(state_record_seal(key, &name, times_s, bytes_str("value"), &sealed), 0);
    for (size_t i = 0; i < sealed.len_bytes; i++) {
        sealed.data[i] ^= 1;
        assert_true(state_record_open(key, &name, 1500, buf_view(&sealed), &opened) < 0);
        sealed.data[i] ^= 1;
        assert_true(state_record_open(key, &name, 1500, bytes_of(sealed.data, i), &opened) < 0);
    }
    assert_int_equal(opened.len_bytes, 0);
    buf_fini(&sealed);
    buf_fini(&opened);
}

static void it_opens_nowhere_else(void **state)
{
    static const uint8_t other_key[STATE_KEY_BYTES] = {9};
    struct state_name name = name_of("a"), other = name_of("b");
    struct buf sealed = {0}, opened = {0};

    (void)state;
    assert_string_not_equal(name.text, other.text);
    assert_int_equal(state_record_seal(key, &name, times_s, bytes_str("value"), &sealed), 0);
    assert_int_equal(state_record_open(key, &other, 1500, buf_view(&sealed), &opened), E_AUTH);
    assert_int_equal(state_record_open(other_key, &name, 1500, buf_view(&sealed), &opened), E_AUTH);
    buf_fini(&sealed);
    buf_fini(&opened);
}

static void its_time_ends(void **state)
{
    struct state_name name = name_of("a");
    struct buf sealed = {0}, opened = {0};

    (void)state;
    assert_int_equal(state_record_seal(key, &name, times_s, bytes_str("value"), &sealed), 0);
    assert_int_equal(state_record_open(key, &name, 2000 + STATE_CLOCKS_S, buf_view(&sealed), &opened), 0);
    assert_int_equal(state_record_open(key, &name, 2001 + STATE_CLOCKS_S, buf_view(&sealed), &opened),
                     E_RANGE);
    assert_int_equal(state_record_open(key, &name, 1000 - STATE_CLOCKS_S, buf_view(&sealed), &opened), 0);
    assert_int_equal(state_record_open(key, &name, 999 - STATE_CLOCKS_S, buf_view(&sealed), &opened),
                     E_RANGE);
    buf_fini(&sealed);
    buf_fini(&opened);
}

static void names_tell_owner_and_id_apart(void **state)
{
    struct state_name a, b;

    (void)state;
    assert_int_equal(state_name_make(key, "x", bytes_str("ab"), bytes_str("c"), &a), 0);
    assert_int_equal(state_name_make(key, "x", bytes_str("a"), bytes_str("bc"), &b), 0);
    assert_string_not_equal(a.text, b.text);
    assert_int_equal(strncmp(a.text, "baton:{", 7), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_opens_under_its_name),  cmocka_unit_test(every_changed_byte_is_found),
        cmocka_unit_test(it_opens_nowhere_else),         cmocka_unit_test(its_time_ends),
        cmocka_unit_test(names_tell_owner_and_id_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
