/* SPDX-License-Identifier: Apache-2.0 */
/* Long calls: their results equal those of short ones, and no piece of text costs more because the call is long.
 *
 * Work is counted, not timed: allocations of the JSON library, bytes passed on, and bytes that the splitter holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/str.h"
#include "calls_sink.h"
#include "text/json/json.h"
#include "text/toolcall/calls_priv.h"

#define FN_OPEN  "<tool_call>\n<function=f>\n<parameter=a>\n"
#define FN_CLOSE "\n</parameter>\n</function>\n</tool_call>"

static const char array_schema[] = "{\"properties\":{\"a\":{\"type\":\"array\"}}}";
static const char text_schema[] = "{\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]}}}";

static void run_calls(enum calls_format format, const char *schema, const struct buf *text, struct buf *out)
{
    struct calls_tool tool = {.name = bytes_str("f"), .schema = bytes_str(schema)};
    const struct calls_opts opts = {.format = format, .tools = &tool, .n_tools = 1};
    struct calls_sink sink = {0};

    calls_sink_run(&sink, &opts, buf_view(text), 0, false);
    *out = sink.out;
}

static void assert_same(const struct buf *got, const struct buf *want)
{
    if (!bytes_equal(buf_view(got), buf_view(want)))
        fail_msg("%zu bytes in place of %zu: %.200s ... in place of %.200s", got->len_bytes, want->len_bytes,
                 got->data == NULL ? "" : (const char *)got->data, (const char *)want->data);
}

/* ---- equal results ---- */

/* Appends items of a list until the text has n bytes. */
static void put_items(struct rng *rng, size_t n, struct buf *text)
{
    static const char *const items[] = {
        "1",       "-2.50",     "\"x\\ny\"", "{\"k\":[true, null]}", "\"\xc3\xa9\\u0041\"",
        "[1e2,0]", "\"a\\/b\"", "{}",        "\"\\ud83d\\ude01\""};

    for (bool is_first = text->data[text->len_bytes - 1] == '['; text->len_bytes < n; is_first = false) {
        buf_append_str(text, is_first ? "" : ",");
        buf_append_str(text, items[rng_below(rng, 9)]);
    }
}

/* The call that the value makes: JSON if it loads as an allowed type, otherwise a string. */
static void put_wanted(struct bytes value, bool may_be_array, struct buf *want)
{
    json_t *loaded = NULL;

    buf_append_str(want, "[f:{\"a\": ");
    if (api_json_load(value, NULL, &loaded) == 0 && may_be_array)
        assert_int_equal(api_json_put(want, loaded), 0);
    else
        assert_int_equal(json_put_str(want, value), 0);
    buf_append_str(want, "}]");
    json_decref(loaded);
}

static void values_are_equal_around_the_limits(void **state)
{
    static const char *const ends[] = {"]",       "",        "]]", ",]", ",\"\\ud800\"]",
                                       ",1e999]", ",12 13]", "] ", "\n]"};
    static const char *const schemas[] = {"{}", array_schema, text_schema};
    static const size_t sizes[] = {16300, 16384, 16400, 40000, 64000};
    struct rng rng;

    (void)state;
    rng_init(&rng, 7);
    for (size_t i = 0; i < 5 * 9 * 3; i++) {
        struct buf value = {0}, text = {0}, out, want = {0};
        const char *schema = schemas[i % 3];

        buf_append_str(&value, "[");
        put_items(&rng, sizes[i / 27], &value);
        buf_append_str(&value, ends[i / 3 % 9]);
        /* Python allows a comma before the bracket, so that value is a list where the schema allows no string. */
        if (schema == array_schema && i / 3 % 9 == 3)
            value.data[value.len_bytes - 2] = ' ';
        buf_append_str(&text, FN_OPEN);
        buf_append(&text, value.data, value.len_bytes);
        buf_append_str(&text, FN_CLOSE);
        run_calls(CALLS_XML, schema, &text, &out);
        put_wanted(buf_view(&value), schema != text_schema, &want);
        assert_same(&out, &want);
        buf_fini(&value);
        buf_fini(&text);
        buf_fini(&out);
        buf_fini(&want);
    }
}

/* A value that begins as Python writes it is JSON where the schema allows no string, short or long. */
static void long_literals_are_json(void **state)
{
    static const size_t counts[] = {10, 3000, 20000};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct buf text = {0}, out, want = {0};

        buf_append_str(&text, FN_OPEN "[");
        buf_append_str(&want, "[f:{\"a\": [");
        for (size_t k = 0; k < counts[i]; k++) {
            buf_append_str(&text, "None, 'it\\'s', ");
            buf_append_str(&want, k > 0 ? ", null, \"it's\"" : "null, \"it's\"");
        }
        buf_append_str(&text, "]" FN_CLOSE);
        buf_append_str(&want, "]}]");
        run_calls(CALLS_XML, array_schema, &text, &out);
        assert_same(&out, &want);
        buf_fini(&text);
        buf_fini(&out);
        buf_fini(&want);
    }
}

/* A long value that stops being JSON: the text of the call follows, and nothing is lost. */
static void long_broken_values_are_text(void **state)
{
    struct buf text = {0}, out;
    struct rng rng;

    (void)state;
    rng_init(&rng, 9);
    buf_append_str(&text, FN_OPEN "[");
    put_items(&rng, 3 * CALLS_MAX_OPEN_BYTES, &text);
    buf_append_str(&text, ",}" FN_CLOSE);
    run_calls(CALLS_XML, "{}", &text, &out);
    assert_true(bytes_starts_with(buf_view(&out), "[f:{\"a\": ["));
    assert_true(out.len_bytes > text.len_bytes);
    assert_true(bytes_find(buf_view(&out), bytes_str("?]<tool_call>"), 0) ==
                out.len_bytes - text.len_bytes - 2);
    assert_memory_equal(out.data + out.len_bytes - text.len_bytes, text.data, text.len_bytes);
    buf_fini(&text);
    buf_fini(&out);
}

/* ---- other forms ---- */

static void put_file(size_t n, struct buf *json)
{
    while (json->len_bytes < n)
        buf_append_str(json, "int \\\"main\\\"(void) { return '\\u00e9'; }\\n\xf0\x9f\x98\x81\\ud83d\\ude01");
}

/* {"K": V} as an argument, the way its string form and its own form come out. */
static void long_odd_calls_are_calls(void **state)
{
    static const size_t sizes[] = {100, 16300, 17000, 60000, 200000};

    (void)state;
    for (size_t i = 0; i < 10; i++) {
        struct buf arguments = {0}, text = {0}, out, want = {0};
        json_t *loaded;

        buf_append_str(&arguments, "{\"path\":\"x\",\"n\" : 1.50,\"text\":\"");
        put_file(sizes[i / 2], &arguments);
        buf_append_str(&arguments, "\"}");
        if (i % 2 == 0) {
            buf_append_str(&text, "<tool_call>{\"name\": \"f\", \"arguments\": ");
            json_put_str(&text, buf_view(&arguments));
            buf_append_str(&text, "}</tool_call>");
        } else {
            buf_append_str(&text, "<tool_call>\n{\"arguments\": ");
            buf_append(&text, arguments.data, arguments.len_bytes);
            buf_append_str(&text, ", \"name\": \"f\"}\n</tool_call>");
        }
        assert_int_equal(api_json_load(buf_view(&arguments), NULL, &loaded), 0);
        buf_append_str(&want, "[f:");
        api_json_put(&want, loaded);
        buf_append_str(&want, "]");
        run_calls(CALLS_HERMES, "{}", &text, &out);
        assert_same(&out, &want);
        json_decref(loaded);
        buf_fini(&arguments);
        buf_fini(&text);
        buf_fini(&out);
        buf_fini(&want);
    }
}

/* Beyond the limits on collected calls, a call is text. */
static void larger_odd_calls_are_text(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct buf text = {0}, out;

        buf_append_str(&text,
                       i == 0 ? "<tool_call>{\"arguments\": {\"a\": \"" : "<tool_call>{\"x\": 1, \"a\": \"");
        put_file(i == 0 ? CALLS_MAX_WHOLE_BYTES : CALLS_MAX_TREE_BYTES, &text);
        buf_append_str(&text, "\"}, \"name\": \"f\"}</tool_call>");
        run_calls(CALLS_HERMES, "{}", &text, &out);
        assert_same(&out, &text);
        buf_fini(&text);
        buf_fini(&out);
    }
}

/* ---- work ---- */

static struct {
    size_t n_allocations, n_passed; /* during one feed */
} work;

static void *counting_malloc(size_t n)
{
    work.n_allocations++;
    return malloc(n);
}

static int count_text(void *arg, struct bytes text)
{
    (void)arg;
    work.n_passed += text.len_bytes;
    return 0;
}

static int count_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static int count_end(void *arg, enum calls_end how)
{
    (void)arg;
    (void)how;
    return 0;
}

/* Feeds text token by token; no feed may do more than these steps. */
static void assert_work(enum calls_format format, const char *schema, const struct buf *text,
                        size_t most_held)
{
    static const struct calls_events events = {count_text, count_text, count_nothing,
                                               count_text, count_text, count_end};
    struct calls_opts opts = {
        .format = format, .n_tools = 1, .think_open = "<think>", .think_close = "</think>"};
    struct calls *calls;

    opts.tools = calloc(1, sizeof(*opts.tools));
    assert_non_null(opts.tools);
    opts.tools[0] = (struct calls_tool){bytes_str("f"), bytes_str(schema)};
    assert_int_equal(calls_new(&opts, &events, NULL, &calls), 0);
    for (size_t at = 0; at < text->len_bytes; at += 4) {
        size_t n = text->len_bytes - at < 4 ? text->len_bytes - at : 4;

        work.n_allocations = work.n_passed = 0;
        assert_int_equal(calls_feed(calls, bytes_of(text->data + at, n)), 0);
        assert_true(work.n_allocations < 20000);
        assert_true(work.n_passed <= CALLS_MAX_WHOLE_BYTES + CALLS_MAX_OPEN_BYTES);
        assert_true(calls->held.len_bytes <= most_held);
    }
    assert_int_equal(calls_finish(calls, false), 0);
    calls_free(calls);
}

static void repeat_text(struct buf *text, const char *part, size_t n)
{
    for (size_t end = text->len_bytes + n; text->len_bytes < end;)
        buf_append_str(text, part);
}

static void work_does_not_grow_with_a_call(void **state)
{
    static const struct {
        enum calls_format format;
        const char *schema, *before, *part, *after;
        size_t most_held;
    } cases[] = {
        {CALLS_XML, "{}", FN_OPEN "[1", ",{\"a\":1}", "]" FN_CLOSE, 1024},
        {CALLS_XML, array_schema, FN_OPEN "[1", ",{\"a\":1}", "]" FN_CLOSE, 1024},
        {CALLS_XML, "{}", FN_OPEN "[1", ",{\"a\":1}", ",}" FN_CLOSE, 1 << 20},
        {CALLS_XML, "{}", FN_OPEN, "\n", FN_CLOSE, 1024},
        {CALLS_XML, "{}", FN_OPEN "x", "y\n", FN_CLOSE, 1024},
        {CALLS_HERMES, "{}", "<tool_call>{\"arguments\":{\"a\":[1", ",{\"a\":1}",
         "]},\"name\":\"f\"}</tool_call>", 300 << 10},
        {CALLS_HERMES, "{}", "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[1", ",{}",
         "]}\"}</tool_call>", 20 << 10},
        {CALLS_HERMES, "{}", "<tool_call>[{\"x\":1},1", ",{}", "]</tool_call>", 80 << 10},
        {CALLS_HERMES, "{}", "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "}", "</tool_call>", 1024},
        {CALLS_LLAMA, "{}", "{\"name\":\"f\",\"parameters\":{}}", ";", "", 1024},
        {CALLS_GLM, "{}", "<tool_call>f\n<arg_key>a</arg_key>", "\n", "<arg_value>1</arg_value></tool_call>",
         1024},
        {CALLS_HERMES, "{}", "<think>x", "\n", "y</think>", 1024},
        {CALLS_HERMES, "{}", "<think>", "\n", "y</think>", 1024},
    };

    (void)state;
    json_set_alloc_funcs(counting_malloc,
                         free); /* the JSON library's own limit on memory does not matter here */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf text = {0};

        buf_append_str(&text, cases[i].before);
        repeat_text(&text, cases[i].part, 250u << 10);
        buf_append_str(&text, cases[i].after);
        assert_work(cases[i].format, cases[i].schema, &text, cases[i].most_held);
        buf_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_equal_around_the_limits),
                                       cmocka_unit_test(long_literals_are_json),
                                       cmocka_unit_test(long_broken_values_are_text),
                                       cmocka_unit_test(long_odd_calls_are_calls),
                                       cmocka_unit_test(larger_odd_calls_are_text),
                                       cmocka_unit_test(work_does_not_grow_with_a_call)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
