/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that is written again as it arrives equals JSON that was loaded and written, however it is cut. */
#include "text/json/json_rewrite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "text/json/json.h"

/* Feeds the text in pieces of at most this many bytes, cut between characters.  True: it is a whole value. */
static bool rewrites(struct bytes text, size_t piece, struct buf *out, bool *is_odd_out)
{
    enum json_walk_result result = JSON_WALK_MORE;
    struct json_rewrite rewrite = {0};
    bool is_whole;

    for (size_t at = 0, end; at < text.len_bytes && result <= JSON_WALK_DONE; at = end) {
        end = at + piece < text.len_bytes ? at + piece : text.len_bytes;
        while (end < text.len_bytes && (text.data[end] & 0xc0) == 0x80)
            end++;
        result = json_rewrite_feed(&rewrite, bytes_of(text.data + at, end - at), out);
    }
    is_whole = result <= JSON_WALK_DONE && json_rewrite_end(&rewrite, out);
    *is_odd_out = rewrite.is_odd;
    assert_false(out->is_bad);
    json_rewrite_fini(&rewrite);
    return is_whole;
}

static void assert_equal_to_loaded(struct bytes text)
{
    struct buf want = {0};
    json_t *value = NULL;
    bool is_loaded = api_json_load(text, NULL, &value) == 0;

    if (is_loaded)
        assert_int_equal(api_json_put(&want, value), 0);
    for (size_t piece = 1; piece < 20; piece = piece * 2 + 1) {
        struct buf out = {0};
        bool is_odd, is_whole = rewrites(text, piece, &out, &is_odd);

        if ((is_whole && !is_odd) != is_loaded ||
            (is_loaded && !bytes_equal(buf_view(&out), buf_view(&want))))
            fail_msg("%.*s, in pieces of %zu: %.*s", (int)text.len_bytes, (const char *)text.data, piece,
                     (int)out.len_bytes, out.data == NULL ? "" : (const char *)out.data);
        buf_fini(&out);
    }
    json_decref(value);
    buf_fini(&want);
}

static void values_are_as_loaded(void **state)
{
    static const char *const texts[] = {"{}",
                                        " [ ] ",
                                        "1",
                                        " -0 ",
                                        "-0.0",
                                        "1.50",
                                        "1e3",
                                        "1E+30",
                                        "1e-400",
                                        "1e400",
                                        "-1e400",
                                        "0.1000",
                                        "123456789012345678",
                                        "true",
                                        "nul",
                                        "null x",
                                        "\"\"",
                                        "\"a\\/b\\u0041\\u00e9\\b\\f\\n\\r\\t\\\"\\\\\"",
                                        "\"\\ud83d\\ude01\"",
                                        "\"\\ud83d\"",
                                        "\"\\ud83dx\"",
                                        "\"\\ud83d\\n\"",
                                        "\"\\ud83d\\u0041\"",
                                        "\"\\ud83d\\ud83d\\ude01\"",
                                        "\"\\ude01\"",
                                        "\"\\u0000\"",
                                        "{\"\\u0000\":1}",
                                        "{\"a\":\"\\u0000\"}",
                                        "\"\x7f\xc2\x85\xc3\xa9\xf0\x9f\x98\x81\"",
                                        "[1,2 ,3.0,\t\"x\" ]",
                                        "{\"a\" : {\"b\":[ ]} , \"c\":null}",
                                        "[1,]",
                                        "[1 2]",
                                        "{\"a\"}",
                                        "[\"a\nb\"]",
                                        "",
                                        " ",
                                        "[[[[",
                                        "]",
                                        "-",
                                        "1.",
                                        "[1.]",
                                        "[01]"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_equal_to_loaded(bytes_str(texts[i]));
}

/* ---- random values ---- */

static void put_random_string(struct rng *rng, struct buf *out)
{
    static const char *const parts[] = {"a",       "word ",           "\\n",     "\\\"",    "\\\\",
                                        "\\/",     "\xc3\xa9",        "\\u0041", "\\u0007", "\\ud83d\\ude01",
                                        "\\ud800", "\xf0\x9f\x98\x81"};

    buf_append_byte(out, '"');
    for (uint64_t n = rng_below(rng, 12); n > 0; n--)
        buf_append_str(out, parts[rng_below(rng, rng_below(rng, 30) == 0 ? 12 : 10)]);
    buf_append_byte(out, '"');
}

static void put_random_scalar(struct rng *rng, struct buf *out)
{
    static const char *const words[] = {"true", "false", "null", "0.25", "1e2", "-0", "3.0", "1e-7"};

    if (rng_below(rng, 2) == 0)
        put_random_string(rng, out);
    else if (rng_below(rng, 2) == 0)
        buf_append_str(out, words[rng_below(rng, 8)]);
    else
        buf_printf(out, "%lld", (long long)rng_u64(rng));
}

static void put_random_value(struct rng *rng, unsigned depth, struct buf *out)
{
    bool is_object = rng_below(rng, 2) == 0;
    uint64_t n = rng_below(rng, 5);

    if (depth == 0 || rng_below(rng, 3) == 0) {
        put_random_scalar(rng, out);
        return;
    }
    buf_append_byte(out, is_object ? '{' : '[');
    for (uint64_t i = 0; i < n; i++) {
        buf_append_str(out, i > 0 ? "," : rng_below(rng, 2) == 0 ? " " : "");
        if (is_object)
            buf_printf(out, "\"k%u\"%s:", (unsigned)i, rng_below(rng, 2) == 0 ? "" : " ");
        put_random_value(rng, depth - 1, out);
    }
    buf_append_byte(out, is_object ? '}' : ']');
}

/* Some texts lose a byte, so that most of these are no JSON. */
static void random_values_are_as_loaded(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 20261129);
    for (int i = 0; i < 3000; i++) {
        struct buf text = {0};

        put_random_value(&rng, 4, &text);
        if (rng_below(&rng, 4) == 0 && text.len_bytes > 1) {
            size_t at = (size_t)rng_below(&rng, text.len_bytes);

            if (text.data[at] < 0x80)
                memmove(text.data + at, text.data + at + 1, text.len_bytes-- - at);
        }
        assert_equal_to_loaded(buf_view(&text));
        buf_fini(&text);
    }
}

static void what_a_tree_would_lose_is_kept(void **state)
{
    static const char *const texts[][2] = {{"{\"a\":1,\"a\":2}", "{\"a\": 1, \"a\": 2}"},
                                           {"[12345678901234567890123,1]", "[12345678901234567890123, 1]"}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct buf out = {0};
        bool is_odd;

        assert_true(rewrites(bytes_str(texts[i][0]), 3, &out, &is_odd) && !is_odd);
        assert_string_equal(out.data, texts[i][1]);
        buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_as_loaded),
                                       cmocka_unit_test(random_values_are_as_loaded),
                                       cmocka_unit_test(what_a_tree_would_lose_is_kept)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
