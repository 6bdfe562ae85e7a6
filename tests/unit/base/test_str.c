/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, units, UTF-8 and JSON strings: which are accepted and refused.
 * All of them read back unchanged. */
#include "tests/unit/check.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

#include <string.h>

static void whole_numbers(void **state)
{
    uint64_t u = 5;
    int64_t i;

    assert_int_equal(str_to_u64(bytes_str("18446744073709551615"), &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(str_to_u64(bytes_str("18446744073709551616"), &u), E_RANGE);
    assert_int_equal(str_to_u64(bytes_str("99999999999999999999x"), &u), E_FORMAT);
    assert_true(u == UINT64_MAX);
    const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x10", "1e3", "1.0"};
    for (size_t n = 0; n < ARRAY_LEN(bad); n++)
        assert_int_equal(str_to_u64(bytes_str(bad[n]), &u), E_FORMAT);
    assert_int_equal(str_to_i64(bytes_str("-9223372036854775808"), &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(str_to_i64(bytes_str("-9223372036854775809"), &i), E_RANGE);
    assert_int_equal(str_to_i64(bytes_str("9223372036854775808"), &i), E_RANGE);
    assert_int_equal(str_to_i64(bytes_str("-"), &i), E_FORMAT);
}

static void real_numbers(void **state)
{
    double value;

    assert_int_equal(str_to_f64(bytes_str("-1.5e-3"), &value), 0);
    assert_true(value == -1.5e-3);
    assert_int_equal(str_to_f64(bytes_str("1e999"), &value), E_RANGE);
    const char *const bad[] = {"", "nan", "inf", "0x1p3", "1.5 ", " 1", "1,5", "e", "--1", "1.2.3"};
    for (size_t n = 0; n < ARRAY_LEN(bad); n++)
        assert_int_equal(str_to_f64(bytes_str(bad[n]), &value), E_FORMAT);
    assert_int_equal(str_to_f64(bytes_of("1\0", 2), &value), E_FORMAT);
}

static void sizes(void **state)
{
    const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"512", 512},
                {"64k", 65536},
                {"64KiB", 65536},
                {"64 KiB", 65536},
                {"1.5GiB", 1610612736},
                {"2M", 2 << 20},
                {"0", 0},
                {"3B", 3},
                {"0.5k", 512},
                {"1TiB", 1ull << 40},
                {"16777215.5TiB", UINT64_MAX - (1ull << 39) + 1}};
    const char *const bad[] = {"",   "k",   "-1",     "1KB",   "1MB", "1kib",
                               "1.", ".5k", "1  KiB", "1KiB ", "1e3", "0x1"};
    uint64_t value;

    for (size_t n = 0; n < ARRAY_LEN(good); n++) {
        assert_int_equal(str_to_size(bytes_str(good[n].text), &value), 0);
        assert_true(value == good[n].value);
    }
    for (size_t n = 0; n < ARRAY_LEN(bad); n++)
        assert_int_equal(str_to_size(bytes_str(bad[n]), &value), E_FORMAT);
    assert_int_equal(str_to_size(bytes_str("16777216TiB"), &value), E_RANGE);
    assert_int_equal(str_to_size(bytes_str("99999999999999999999"), &value), E_RANGE);
}

static void durations(void **state)
{
    const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"500ms", 500 * NS_PER_MS},
                {"30s", 30 * NS_PER_S},
                {"5min", 300 * NS_PER_S},
                {"1h", 3600 * NS_PER_S},
                {"2d", 172800 * NS_PER_S},
                {"10us", 10000},
                {"7ns", 7},
                {"0.1s", 100 * NS_PER_MS}};
    const char *const bad[] = {"", "5", "5m", "5 minutes", "-1s", "1h30min", "s"};
    uint64_t value;

    for (size_t n = 0; n < ARRAY_LEN(good); n++) {
        assert_int_equal(str_to_duration(bytes_str(good[n].text), &value), 0);
        assert_true(value == good[n].value);
    }
    for (size_t n = 0; n < ARRAY_LEN(bad); n++)
        assert_int_equal(str_to_duration(bytes_str(bad[n]), &value), E_FORMAT);
    assert_int_equal(str_to_duration(bytes_str("999999999d"), &value), E_RANGE);
}

static void units_come_back_as_they_were(void **state)
{
    struct rng rng;
    char text[24];
    uint64_t back;

    str_from_size(1610612736, text);
    assert_string_equal(text, "1.5GiB");
    str_from_size(1025, text);
    assert_string_equal(text, "1025");
    str_from_size(0, text);
    assert_string_equal(text, "0");
    str_from_duration(90 * NS_PER_S, text);
    assert_string_equal(text, "90s");
    str_from_duration(UINT64_MAX, text);
    assert_string_equal(text, "18446744073709551615ns");

    rng_init(&rng, 1);
    for (int i = 0; i < 20000; i++) {
        uint64_t value = rng_u64(&rng) >> rng_below(&rng, 64) << rng_below(&rng, 40);

        str_from_size(value, text);
        assert_int_equal(str_to_size(bytes_str(text), &back), 0);
        assert_true(back == value);
        value = rng_below(&rng, 2) ? value : value / NS_PER_S * NS_PER_S;
        str_from_duration(value, text);
        assert_int_equal(str_to_duration(bytes_str(text), &back), 0);
        assert_true(back == value);
    }
}

static void utf8_refuses_what_it_must(void **state)
{
    const char *const bad[] = {"\x80",
                               "\xc0\x80",
                               "\xc1\xbf",
                               "\xe0\x9f\xbf",
                               "\xed\xa0\x80",
                               "\xf0\x8f\xbf\xbf",
                               "\xf4\x90\x80\x80",
                               "\xf5\x80\x80\x80",
                               "\xff",
                               "\xc3(",
                               "\xe2\x82(",
                               "\xc3"};
    size_t len_bytes;

    assert_int_equal(utf8_valid_prefix(bytes_str("aé€😀")), 10);
    for (size_t n = 0; n < ARRAY_LEN(bad); n++) {
        assert_int_equal(utf8_valid_prefix(bytes_str(bad[n])), 0);
        assert_int_equal(utf8_next(bytes_str(bad[n]), 0, &len_bytes), 0xfffd);
        assert_int_equal(len_bytes, 1);
    }
}

static void utf8_goes_round(void **state)
{
    uint8_t text[4];
    size_t len_bytes;

    for (uint32_t code_point = 0; code_point <= 0x10ffff; code_point += code_point < 0x3000 ? 1 : 97) {
        size_t n = utf8_put(code_point, text);
        bool is_surrogate = code_point >= 0xd800 && code_point <= 0xdfff;

        assert_int_equal(utf8_next(bytes_of(text, n), 0, &len_bytes), is_surrogate ? 0xfffd : code_point);
        assert_int_equal(len_bytes, n);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(utf8_missing(bytes_of(text, cut)), n - cut);
        assert_int_equal(utf8_missing(bytes_of(text, n)), 0);
    }
    assert_int_equal(utf8_put(0x110000, text), 3);
    assert_int_equal(utf8_missing(bytes_str("")), 0);
    assert_int_equal(utf8_missing(bytes_str("\x80\x80\x80\x80")), 0);
    assert_int_equal(utf8_missing(bytes_str("\xe0\x80")), 0); /* no character has this prefix */
    assert_int_equal(utf8_missing(bytes_str("ab\xf0\x9f")), 2);
}

static void json_has_no_raw_control_byte(void **state)
{
    struct buf buf = {0};
    uint8_t all[256];

    json_put_str(&buf, bytes_of("a\"\\\n\r\t\0\x1b\x7f\xc2\x9bz\xff\xc3\xa9", 15));
    assert_string_equal((char *)buf.data,
                        "\"a\\\"\\\\\\n\\r\\t\\u0000\\u001b\\u007f\\u009bz\xef\xbf\xbd\xc3\xa9\"");
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    buf_clear(&buf);
    json_put_str(&buf, bytes_of(all, sizeof(all)));
    assert_int_equal(utf8_valid_prefix(buf_view(&buf)), buf.len_bytes);
    for (size_t i = 0; i < buf.len_bytes; i++)
        assert_true(buf.data[i] >= 0x20 && buf.data[i] != 0x7f);
    buf_clear(&buf);
    json_put_str(&buf, bytes_str(NULL));
    assert_string_equal((char *)buf.data, "\"\"");
    buf_fini(&buf);
}

static void hex_goes_round(void **state)
{
    uint8_t data[4] = {0, 0x9f, 0xab, 0xff}, back[4] = {0};
    char text[9];

    hex_encode(data, 4, text);
    assert_string_equal(text, "009fabff");
    assert_int_equal(hex_decode(bytes_str("009FabFF"), back, 4), 0);
    assert_memory_equal(data, back, 4);
    assert_int_equal(hex_decode(bytes_str("009fab"), back, 4), E_FORMAT);
    assert_int_equal(hex_decode(bytes_str("009fabf"), back, 4), E_FORMAT);
    assert_int_equal(hex_decode(bytes_str("009fabfg"), back, 4), E_FORMAT);
}

static void the_nearest_name_is_found(void **state)
{
    struct str_nearest none = {.text = "drain", .most = 1}, near = {.text = "statsu", .most = 3};

    str_nearest_try(&none, "status");
    assert_null(none.name);
    str_nearest_try(&none, "train"); /* as far as allowed */
    assert_string_equal(none.name, "train");
    str_nearest_try(&none, "brain"); /* not nearer */
    assert_string_equal(none.name, "train");
    str_nearest_try(&none, "drain");
    assert_string_equal(none.name, "drain");
    str_nearest_try(&near, "start");
    str_nearest_try(&near, "status");
    assert_string_equal(near.name, "status");
}

static void distance_and_copy(void **state)
{
    char text[5];
    char longer[200];

    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("same", "same"), 0);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(str_distance(longer, ""), 64);
    assert_true(str_copy(text, sizeof(text), "four"));
    assert_false(str_copy(text, sizeof(text), "fives"));
    assert_string_equal(text, "five");
    assert_false(str_copy(text, 0, "x"));
}

static void control_characters_are_found(void **state)
{
    assert_true(str_is_printable(bytes_str("")));
    assert_true(str_is_printable(bytes_str("a b ~ \xc3\xa9 \xff")));
    assert_false(str_is_printable(bytes_str("a\nb")));
    assert_false(str_is_printable(bytes_str("a\x1f")));
    assert_false(str_is_printable(bytes_str("\x7f")));
    assert_false(str_is_printable(bytes_of("a\0b", 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(real_numbers),
        cmocka_unit_test(sizes),
        cmocka_unit_test(durations),
        cmocka_unit_test(units_come_back_as_they_were),
        cmocka_unit_test(utf8_refuses_what_it_must),
        cmocka_unit_test(utf8_goes_round),
        cmocka_unit_test(json_has_no_raw_control_byte),
        cmocka_unit_test(hex_goes_round),
        cmocka_unit_test(the_nearest_name_is_found),
        cmocka_unit_test(distance_and_copy),
        cmocka_unit_test(control_characters_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
