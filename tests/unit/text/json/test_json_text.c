/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text: written as Python's json.dumps(json.loads(x),
 * ensure_ascii=False) does, but with numbers unchanged. */
#include "text/token/chat_priv.h"

#include "base/err.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void good_json_is_spaced(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "{}"},
        {" [ ] ", "[]"},
        {"{\"b\":1,\"a\":[1,2 ,3]}", "{\"b\": 1, \"a\": [1, 2, 3]}"},
        {"\t[true,false,\r\nnull]", "[true, false, null]"},
        {"[0,-0,1.50,1e5,1E+5,-1.5e-7,12345678901234567890]",
         "[0, -0, 1.50, 1e5, 1E+5, -1.5e-7, 12345678901234567890]"},
        {"\"\\u0041\\/\\u00e9\"", "\"A/\xc3\xa9\""},
        {"\"\\ud83d\\ude01\"", "\"\xf0\x9f\x98\x81\""},
        {"\"\\ud83d\"", "\"\xef\xbf\xbd\""},
        {"\"\\ud83d\\u0041\"", "\"\xef\xbf\xbd"
                               "A\""},
        {"\"\\ude01x\"", "\"\xef\xbf\xbdx\""},
        {"\"\\b\\f\\n\\r\\t\\\"\\\\\\u000b\\u0000\\u001f\x7f\"",
         "\"\\b\\f\\n\\r\\t\\\"\\\\\\u000b\\u0000\\u001f\x7f\""},
        {"\"<|im_end|>\"", "\"<|im_end|>\""},
        {"{\"a\":{\"a\":{}},\"a\":2}", "{\"a\": {\"a\": {}}, \"a\": 2}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out = {0};

        buf_append_str(&out, "x");
        assert_int_equal(json_respace(bytes_str(cases[i][0]), &out), 0);
        assert_string_equal((char *)out.data + 1, cases[i][1]);
        buf_fini(&out);
    }
}

static void bad_json_is_refused(void **state)
{
    static const char *const cases[] = {
        "",         " ",         "{",           "[",        "[1",      "[1,",  "[1,]",
        "{\"a\"}",  "{\"a\":}",  "{a:1}",       "{,}",      "01",      "1.",   ".5",
        "1e",       "1e+",       "-",           "+1",       "tru",     "nulL", "\"a",
        "\"\\x\"",  "\"\\u12\"", "\"\\u12g4\"", "\"a\nb\"", "[1] [2]", "[1]x", "NaN",
        "Infinity", "'a'",       "{\"a\":1,}",  "\"\\",     "{1:2}",
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out = {0};

        buf_append_str(&out, "x");
        assert_int_equal(json_respace(bytes_str(cases[i]), &out), E_FORMAT);
        assert_int_equal(out.len_bytes, 1);
        buf_fini(&out);
    }
}

static void nesting_is_bounded(void **state)
{
    struct buf deep = {0}, out = {0};

    for (int depth = 127; depth <= 129; depth++) {
        buf_clear(&deep);
        for (int i = 0; i < depth; i++)
            buf_append_byte(&deep, '[');
        for (int i = 0; i < depth; i++)
            buf_append_byte(&deep, ']');
        assert_int_equal(json_respace(buf_view(&deep), &out), depth <= 128 ? 0 : E_LIMIT);
    }
    buf_fini(&out);
    buf_fini(&deep);
}

static void spacing_twice_changes_nothing(void **state)
{
    static const char bits[] = "{}[]\",:\\u0a1e-. tn";
    struct rng rng;
    unsigned n_good = 0;

    rng_init(&rng, 2);
    for (int i = 0; i < 100000; i++) {
        struct buf once = {0}, twice = {0};
        uint8_t raw[12];
        size_t n = 1 + (size_t)rng_below(&rng, sizeof(raw));

        for (size_t k = 0; k < n; k++)
            raw[k] = (uint8_t)bits[rng_below(&rng, sizeof(bits) - 1)];
        if (json_respace(bytes_of(raw, n), &once) == 0) {
            n_good++;
            assert_int_equal(json_respace(buf_view(&once), &twice), 0);
            assert_true(bytes_equal(buf_view(&once), buf_view(&twice)));
        }
        buf_fini(&twice);
        buf_fini(&once);
    }
    assert_true(n_good > 500);
}

static void members_are_walked(void **state)
{
    struct bytes object = bytes_str("{\"a\": [1, {\"x\": \"}\"}], \"b\\\"c\": \"]\", \"a\": {}}");
    struct bytes key, value;
    struct buf text = {0};
    size_t at = 0;

    assert_true(json_next(object, &at, &key, &value));
    assert_true(bytes_is(key, "\"a\"") && bytes_is(value, "[1, {\"x\": \"}\"}]"));
    assert_true(json_next(object, &at, &key, &value));
    assert_true(bytes_is(key, "\"b\\\"c\"") && bytes_is(value, "\"]\""));
    assert_int_equal(json_unquote(key, &text), 0);
    assert_string_equal((char *)text.data, "b\"c");
    assert_true(json_next(object, &at, &key, &value));
    assert_true(bytes_is(value, "{}"));
    assert_false(json_next(object, &at, &key, &value));
    at = 0;
    struct bytes array = bytes_str("[1, \"two\"]");
    assert_true(json_next(array, &at, &key, &value) && bytes_is(value, "1") && key.len_bytes == 0);
    assert_true(json_next(array, &at, &key, &value) && bytes_is(value, "\"two\""));
    assert_false(json_next(array, &at, &key, &value));
    at = 0;
    assert_false(json_next(bytes_str("[]"), &at, &key, &value));
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_json_is_spaced), cmocka_unit_test(bad_json_is_refused),
        cmocka_unit_test(nesting_is_bounded),  cmocka_unit_test(spacing_twice_changes_nothing),
        cmocka_unit_test(members_are_walked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
