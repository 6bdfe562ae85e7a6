/* SPDX-License-Identifier: Apache-2.0 */
/* The walker agrees with the JSON library on valid texts, and knows where a text can be closed.  The
 * serialisation is canonical and reads back. */
#include "text/json/json.h"
#include "text/json/json_budget_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/json/json_walk.h"
#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"

static bool walks(const char *text)
{
    struct json_walk walk = {0}, quick = {0}; /* quick reads each string at once */
    enum json_walk_result result = JSON_WALK_MORE;

    for (const char *c = text, *ahead = text; *c != '\0'; c++) {
        result = json_walk_byte(&walk, (uint8_t)*c);
        if (ahead <= c)
            ahead += json_walk_string(&quick, bytes_str(ahead));
        if (ahead == c) {
            assert_int_equal(json_walk_byte(&quick, (uint8_t)*ahead++), result);
            assert_memory_equal(&quick, &walk, sizeof(walk));
        }
        if (result == JSON_WALK_BAD || result == JSON_WALK_DEEP)
            return false;
    }
    /* A bare number is complete only when something follows it. */
    if (result == JSON_WALK_MORE)
        result = json_walk_byte(&walk, ' ');
    return result == JSON_WALK_DONE;
}

static void the_walker_knows_json(void **state)
{
    static const char *const good[] = {"{}",
                                       "[]",
                                       "[[],{}]",
                                       "\"\"",
                                       "0",
                                       "-0.5e+10",
                                       "1E5",
                                       "true",
                                       "[\"long enough to go on with\"]",
                                       " null ",
                                       "{\"a\":[1,2,{\"b\":\"\\u00e9\\n\"}],\"c\":false}",
                                       "[1 , 2\n]",
                                       "\"\\\"\\\\\\/\""};
    static const char *const bad[] = {"",           "{",           "[",      "\"",      "01",
                                      "+1",         "1.",          ".5",     "1e",      "-",
                                      "tru",        "nul ",        "[1,]",   "{\"a\"}", "{\"a\":}",
                                      "{\"a\":1,}", "{a:1}",       "{1:1}",  "[1 2]",   "{\"a\":1 \"b\":2}",
                                      "\"\\x\"",    "\"\\u12g4\"", "\"\n\"", "{}{}",    "[}",
                                      "{]",         "]",           "1 2",    "truex",   "'a'"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!walks(good[i]))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (walks(bad[i]))
            fail_msg("accepted: %s", bad[i]);
}

/* Random text over JSON's own alphabet: the walker and the library give the same result. */
static void the_walker_agrees_with_the_library(void **state)
{
    static const char *const pieces[] = {"{", "}",    "[",    "]",    ",", ":", "\"a\"", "\"b\"",
                                         "1", "-2.5", "true", "null", " ", "e", "\\"};
    struct rng rng;

    rng_init(&rng, 7);
    for (int round = 0; round < 20000; round++) {
        char text[80] = "";
        json_t *root;

        for (uint64_t n = 1 + rng_below(&rng, 9); n > 0; n--)
            strcat(text, pieces[rng_below(&rng, ARRAY_LEN(pieces))]);
        root = json_loads(text, JSON_DECODE_ANY, NULL);
        if ((root != NULL) != walks(text))
            fail_msg("%s: library %d", text, root != NULL);
        json_decref(root);
    }
}

static void a_cut_text_can_be_closed(void **state)
{
    static const struct {
        const char *cut, *closed;
    } table[] = {{"{", "{}"},
                 {"{\"a", "{}"},
                 {"{\"a\": ", "{}"},
                 {"{\"a\": 1", "{}"}, /* may be 12 */
                 {"{\"a\": 1,", "{\"a\": 1}"},
                 {"{\"a\": \"x", "{}"},
                 {"{\"a\": \"x\"", "{\"a\": \"x\"}"},
                 {"{\"a\": \"x\", \"b\": [1, 2, {\"c\": tr", "{\"a\": \"x\", \"b\": [1, 2, {}]}"},
                 {"{\"a\": {\"b\": 1}, \"c\"", "{\"a\": {\"b\": 1}}"},
                 {"{\"a\": 1}", "{\"a\": 1}"},
                 {"{\"a\": 1}  ", "{\"a\": 1}"}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct json_walk walk = {0};
        struct buf out = {0};

        for (const char *c = table[i].cut; *c != '\0'; c++)
            assert_true(json_walk_byte(&walk, (uint8_t)*c) <= JSON_WALK_DONE);
        assert_int_equal(json_walk_close(&walk, bytes_str(table[i].cut), &out), 0);
        if (!bytes_is(buf_view(&out), table[i].closed))
            fail_msg("%s -> %s", table[i].cut, (const char *)out.data);
        buf_fini(&out);
    }
    struct json_walk fresh = {0};
    struct buf out = {0};

    assert_int_equal(json_walk_close(&fresh, bytes_str(""), &out), E_FORMAT);
}

static void load_is_bounded(void **state)
{
    struct buf text = {0};
    struct fault fault;
    json_t *root = NULL;

    for (int i = 0; i < 128; i++)
        buf_append_byte(&text, '[');
    for (int i = 0; i < 128; i++)
        buf_append_byte(&text, ']');
    assert_int_equal(api_json_load(buf_view(&text), &fault, &root), 0);
    json_decref(root);
    buf_clear(&text);
    for (int i = 0; i < 1 << 20; i++)
        buf_append_byte(&text, '[');
    assert_int_equal(api_json_load(buf_view(&text), &fault, &root), E_LIMIT);
    buf_clear(&text);
    buf_append_byte(&text, '[');
    for (int i = 0; i < API_MAX_JSON_VALUES; i++)
        buf_append_str(&text, "{},");
    buf_append_str(&text, "{}]");
    assert_int_equal(api_json_load(buf_view(&text), &fault, &root), E_LIMIT);
    buf_fini(&text);
}

/* Loads n times `what`, between brackets. */
static int load_list(const char *what, size_t n, struct fault *fault)
{
    struct buf text = {0};
    json_t *root = NULL;
    int rc;

    buf_append_byte(&text, '[');
    for (size_t i = 0; i < n; i++) {
        buf_append_str(&text, i == 0 ? "" : ",");
        buf_append_str(&text, what);
    }
    buf_append_byte(&text, ']');
    rc = api_json_load(buf_view(&text), fault, &root);
    if (rc == 0)
        assert_int_equal(json_array_size(root), n);
    json_decref(root);
    buf_fini(&text);
    return rc;
}

static void memory_is_bounded_and_long_prompts_fit(void **state)
{
    struct fault fault = {0};
    struct buf text = {0};
    json_t *root;

    /* A prompt of token ids, and one of text, of the largest size. */
    assert_int_equal(load_list("151643", 900000, NULL), 0);
    buf_append_byte(&text, '"');
    assert_int_equal(buf_reserve(&text, (32 << 20) + 2), 0);
    memset(text.data + 1, 'x', 32 << 20);
    text.len_bytes = (32 << 20) + 1;
    buf_append_byte(&text, '"');
    assert_int_equal(api_json_load(buf_view(&text), NULL, &root), 0);
    json_decref(root);
    /* As many bytes with the highest cost. */
    assert_int_equal(load_list("{}", 500000, &fault), E_LIMIT);
    assert_non_null(strstr(fault.text, "JSON that needs more than "));
    assert_int_equal(load_list("{\"a\":{}}", 400000, &fault), E_LIMIT);
    /* Small texts may have any content, also after a refusal. */
    assert_int_equal(load_list("{}", 100000, NULL), 0);
    /* Numbers beyond 64 bits take the other path and have the same limits. */
    assert_int_equal(load_list("99999999999999999999", 100000, NULL), 0);
    assert_int_equal(load_list("1e999", 2, NULL), E_FORMAT);
    buf_fini(&text);
}

/* Whichever allocation fails, the load ends there,
 * keeps no memory, and does not report a fault of the text. */
static void the_first_failed_allocation_ends_a_load(void **state)
{
    const char *const texts[] = {
        "{\"a key that is longer than the first buffer\": [\"a text that is longer than that, too, so that "
        "the buffer grows \\u00e9 and grows \\\"again\\\"\", 12345678901234567, "
        "0.12345678901234567890123456789]}",
        "[\"\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e"
        "9\\u00e9\\u00e9\"]",
        "[1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000.0]",
        "{\"a\":{\"b\":{},\"c\":[[],[],[],[],[],[],[],[],[],[],[]]},\"d\":1,\"e\":2,\"f\":3,\"g\":4,\"h\":"
        "5}"};
    unsigned n_over = 0;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_t *whole = NULL;
        enum json_budget_end end = JSON_BUDGET_OVER;

        assert_int_equal(api_json_load(bytes_str(texts[i]), NULL, &whole), 0);
        for (size_t limit = 0; end != JSON_BUDGET_LOADED; limit++) {
            json_error_t error;
            json_t *root = NULL;

            end = json_budget_load(bytes_str(texts[i]), JSON_REJECT_DUPLICATES, limit, &error, &root);
            assert_true(end == JSON_BUDGET_OVER || end == JSON_BUDGET_LOADED);
            n_over += end == JSON_BUDGET_OVER;
            assert_true(end == JSON_BUDGET_OVER || json_equal(root, whole));
            json_decref(root);
        }
        json_decref(whole);
    }
    assert_true(n_over > 1000);
}

/* ---- long strings, which the library does not read ---- */

/* Appends about n bytes, sometimes with bytes that are not valid text. */
static void put_long(struct rng *rng, struct buf *out, size_t n, bool is_text)
{
    static const char *const pieces[] = {"plain words and more of them ",
                                         "\\n",
                                         "\\\"",
                                         "\\\\",
                                         "\\/",
                                         "\\u00e9",
                                         "\\uD83d\\uDe00",
                                         "r\xc3\xa9sum\xc3\xa9",
                                         "\xf0\x9f\x98\x80",
                                         "\\b\\f\\r\\t",
                                         "\\u0000",
                                         "\x7f",
                                         "{\\\"a\\\": [1, ",
                                         "x"};
    static const char *const no_text[] = {
        "\xff",         "\xc3",     "\\ud83d",     "\\udc00",  "\\ud83d\\n",           "\\ud83d\\u0041",
        "\xed\xa0\x80", "\xc0\x80", "\\ud83d\xff", "\xe2\x82", "\\ud83d\\ud83d\\udc00"};
    size_t end = out->len_bytes + n, bad_at = out->len_bytes + rng_below(rng, n + 1);

    buf_append_byte(out, '"');
    while (out->len_bytes < end) {
        if (!is_text && out->len_bytes >= bad_at) {
            buf_append_str(out, no_text[rng_below(rng, ARRAY_LEN(no_text))]);
            is_text = true;
        }
        buf_append_str(out, pieces[rng_below(rng, ARRAY_LEN(pieces))]);
    }
    buf_append_byte(out, '"');
}

static void put_document(struct rng *rng, struct buf *out, unsigned depth)
{
    static const size_t lengths[] = {0, 3, 240, 300, 2000, 9000};
    uint64_t what = rng_below(rng, depth == 0 ? 3 : 6), n = rng_below(rng, 6);
    char key[24];

    if (what < 2) {
        put_long(rng, out, lengths[rng_below(rng, ARRAY_LEN(lengths))], rng_below(rng, 40) != 0);
    } else if (what == 2) {
        buf_append_str(out, rng_below(rng, 30) == 0 ? "99999999999999999999" : "-12.50");
    } else {
        buf_append_str(out, what == 3 ? "[" : "{");
        for (uint64_t i = 0; i < n; i++) {
            buf_append_str(out, i == 0 ? " " : " , ");
            snprintf(key, sizeof(key), "\"%llu\":", (unsigned long long)rng_below(rng, 200));
            if (what == 4 && rng_below(rng, 8) == 0) {
                put_long(rng, out, 400, true);
                buf_append_str(out, ":");
            } else if (what != 3) {
                buf_append_str(out, what == 4 ? key : "\"");
                if (what == 5)
                    buf_printf(out, "k%llu\":", (unsigned long long)i);
            }
            put_document(rng, out, depth - 1);
        }
        buf_append_str(out, what == 3 ? "]" : "}");
    }
}

/* Both paths give the same tree in the same order, or the same error text. */
static void long_strings_are_what_the_library_reads(void **state)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    unsigned n_good = 0, n_bad = 0;
    struct rng rng;

    rng_init(&rng, 11);
    for (int round = 0; round < 3000; round++) {
        struct buf text = {0};
        struct fault fault = {0}, expected = {0};
        json_t *ours = NULL, *theirs;
        json_error_t error;

        put_document(&rng, &text, 4);
        theirs = json_loadb((char *)text.data, text.len_bytes, flags, &error);
        if (theirs == NULL && json_error_code(&error) == json_error_numeric_overflow)
            theirs = json_loadb((char *)text.data, text.len_bytes, flags | JSON_DECODE_INT_AS_REAL, &error);
        int rc = api_json_load(buf_view(&text), &fault, &ours);
        if (theirs == NULL) {
            fault_set(&expected, E_FORMAT, "not valid JSON: %s at byte %d", error.text, error.position);
            assert_int_equal(rc, E_FORMAT);
            assert_string_equal(fault.text, expected.text);
            n_bad++;
        } else {
            char *one, *other;

            assert_int_equal(rc, 0);
            one = json_dumps(ours, JSON_ENCODE_ANY);
            other = json_dumps(theirs, JSON_ENCODE_ANY);
            assert_non_null(one);
            assert_string_equal(one, other);
            free(one);
            free(other);
            n_good += text.len_bytes > 4096;
        }
        json_decref(ours);
        json_decref(theirs);
        buf_fini(&text);
    }
    assert_true(n_good > 300 && n_bad > 100); /* both kinds occurred */
}

static void hostile_documents_are_refused(void **state)
{
    static const char *const bad[] = {"{\"a\":1,\"a\":2}", "\"\\ud83d\"", "\"\xff\"", "{} x",
                                      "{\"a\\u0000\":1}",  "1e999",       ""};
    static const char *const good[] = {"\"\\ud83d\\ude00\"", "\"a\\u0000b\"",
                                       "123456789012345678901234567890", "{\"a\":1e300}"};
    json_t *root;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(api_json_load(bytes_str(bad[i]), NULL, &root), E_FORMAT);
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(api_json_load(bytes_str(good[i]), NULL, &root), 0);
        json_decref(root);
    }
}

static void the_serialisation_is_fixed(void **state)
{
    static const struct {
        const char *in, *out;
    } table[] = {{"{\"b\":1,\"a\":[true,null]}", "{\"b\": 1, \"a\": [true, null]}"},
                 {"[0.1,1.0,-2.50,1e100,123456789.125]", "[0.1, 1.0, -2.5, 1e+100, 123456789.125]"},
                 {"\"\\u00e9\\n\\\"\"", "\"\xc3\xa9\\n\\\"\""},
                 {"{ }", "{}"},
                 {"[ ]", "[]"},
                 {"9223372036854775807", "9223372036854775807"}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct buf out = {0};
        json_t *root;

        assert_int_equal(api_json_load(bytes_str(table[i].in), NULL, &root), 0);
        assert_int_equal(api_json_put(&out, root), 0);
        json_decref(root);
        if (!bytes_is(buf_view(&out), table[i].out))
            fail_msg("%s -> %s", table[i].in, (const char *)out.data);
        buf_fini(&out);
    }
}

static void integers_may_be_doubles(void **state)
{
    static const struct {
        const char *text;
        bool is_integer;
        int64_t value;
    } table[] = {{"5", true, 5},
                 {"5.0", true, 5},
                 {"5.5", false, 0},
                 {"1e30", true, INT64_MAX},
                 {"-1e30", true, INT64_MIN},
                 {"\"5\"", false, 0},
                 {"true", false, 0}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        json_t *root;
        int64_t value = 0;

        assert_int_equal(api_json_load(bytes_str(table[i].text), NULL, &root), 0);
        assert_int_equal(api_json_integer(root, &value), table[i].is_integer);
        assert_int_equal(value, table[i].value);
        json_decref(root);
    }
}

/* A reference names a member or an item at each step. */
static void references_are_followed(void **state)
{
    static const struct {
        const char *ref;
        int found; /* 0: it leads nowhere */
    } cases[] = {{"#/a", 1},     {"#/b/0", 2},       {"#/b/1/c", 3}, {"#/x~1y", 4}, {"#/x~0y", 5},
                 {"#/x%20y", 6}, {"#/", 7},          {"#/b/2", 0},   {"#/b/-1", 0}, {"#/b/x", 0},
                 {"#/a/b", 0},   {"#/c", 0},         {"#a", 0},      {"a", 0},      {"", 0},
                 {"#//", 0},     {"http://x#/a", 0}, {"#/b/", 0},    {"#/%zz", 8},  {"#/x~", 9}};
    json_t *root = NULL;

    (void)state;
    assert_int_equal(
        api_json_load(bytes_str("{\"a\":1,\"b\":[2,{\"c\":3}],\"x/y\":4,\"x~y\":5,\"x y\":6,\"\":7,"
                                "\"%zz\":8,\"x~\":9}"),
                      NULL, &root),
        0);
    assert_ptr_equal(api_json_follow(root, bytes_str("#")), root);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const json_t *found = api_json_follow(root, bytes_str(cases[i].ref));

        if ((found != NULL) != (cases[i].found != 0) || json_integer_value(found) != cases[i].found)
            fail_msg("%s", cases[i].ref);
    }
    assert_null(api_json_follow(NULL, bytes_str("#/a")));
    assert_true(api_json_mentions(root, "c"));
    assert_false(api_json_mentions(root, "d"));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_are_followed),
        cmocka_unit_test(the_walker_knows_json),
        cmocka_unit_test(the_walker_agrees_with_the_library),
        cmocka_unit_test(a_cut_text_can_be_closed),
        cmocka_unit_test(load_is_bounded),
        cmocka_unit_test(long_strings_are_what_the_library_reads),
        cmocka_unit_test(hostile_documents_are_refused),
        cmocka_unit_test(the_serialisation_is_fixed),
        cmocka_unit_test(integers_may_be_doubles),
        cmocka_unit_test(memory_is_bounded_and_long_prompts_fit),
        cmocka_unit_test(the_first_failed_allocation_ends_a_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
