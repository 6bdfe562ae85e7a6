/* SPDX-License-Identifier: Apache-2.0 */
/* The schema of a called tool tells the types of values between tags: long schemas, and those with many references,
 * cost little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "calls_sink.h"
#include "text/toolcall/calls_types.h"

#define FN(name, params) "<tool_call>\n<function=" name ">\n" params "</function>\n</tool_call>"
#define PAR(key, value)  "<parameter=" key ">\n" value "\n</parameter>\n"

/* References multiply a value's schema; a walk over all of it would take minutes. */
static void schemas_that_multiply_are_not_walked(void **state)
{
    struct calls_tool tool = {.name = bytes_str("f")};
    const struct calls_opts opts = {.format = CALLS_XML, .tools = &tool, .n_tools = 1};
    struct calls_sink sink = {0};
    struct buf text = {0};

    buf_append_str(&text, "{\"properties\":{\"s\":{\"$ref\":\"#/$defs/a\"}},\"$defs\":{\"a\":{\"anyOf\":[");
    for (int i = 0; i < 64; i++)
        buf_append_str(&text, i > 0 ? ",{\"$ref\":\"#/$defs/a\"}" : "{\"$ref\":\"#/$defs/a\"}");
    buf_append_str(&text, "]}}}");
    tool.schema = buf_view(&text);
    calls_sink_run(&sink, &opts, bytes_str(FN("f", PAR("s", "x"))), 4, false);
    assert_true(bytes_is(buf_view(&sink.out), "[f:{\"s\": \"x\"}]"));
    buf_fini(&sink.out);
    buf_fini(&text);
}

/* A schema of n properties: p0 is a string, p1 an integer, p2 refers to a string, p3 a string or null, p4 anything,
 * and so on. */
static void put_long_schema(struct buf *out, unsigned n)
{
    static const char *const types[] = {"{\"type\": \"string\"}", "{\"type\": \"integer\"}",
                                        "{\"$ref\": \"#/$defs/s\"}", "{\"type\": [\"string\", \"null\"]}",
                                        "{}"};

    buf_append_str(out, "{\"$defs\": {\"s\": {\"enum\": [\"1\", \"x\"]}}, \"properties\": {");
    for (unsigned i = 0; i < n; i++)
        buf_printf(out, "%s\"p%u\": %s", i > 0 ? ", " : "", i, types[i % 5]);
    buf_append_str(out, "}}");
}

static void assert_split(struct bytes said, const char *answer, const char *want)
{
    struct calls_tool tool = {.name = bytes_str("f"), .schema = said};
    const struct calls_opts opts = {.format = CALLS_XML, .tools = &tool, .n_tools = 1};
    struct calls_sink sink = {0};

    calls_sink_run(&sink, &opts, bytes_str(answer), 7, false);
    if (!bytes_is(buf_view(&sink.out), want))
        fail_msg("%.*s", (int)sink.out.len_bytes, (const char *)sink.out.data);
    buf_fini(&sink.out);
}

/* The short form of a long schema describes the same values; the long schema itself is not read. */
static void long_schemas_are_shortened(void **state)
{
    static const char answer[] =
        FN("f", PAR("p0", "1") PAR("p1", "1") PAR("p2", "1") PAR("p3", "null") PAR("p4", "[1]"));
    static const char want[] = "[f:{\"p0\": \"1\", \"p1\": 1, \"p2\": \"1\", \"p3\": null, \"p4\": [1]}]";
    struct buf whole = {0}, text = {0};

    put_long_schema(&whole, 5);
    assert_int_equal(calls_shorten_schema(buf_view(&whole), &text), 0);
    assert_split(buf_view(&whole), answer, want);
    assert_split(buf_view(&text), answer, want);
    buf_clear(&whole);
    buf_clear(&text);
    put_long_schema(&whole, 20000);
    assert_true(whole.len_bytes > 8 * CALLS_MAX_SCHEMA_BYTES);
    assert_int_equal(calls_shorten_schema(buf_view(&whole), &text), 0);
    assert_in_range(text.len_bytes, 1000, CALLS_MAX_SCHEMA_BYTES);
    assert_split(buf_view(&text), answer, want);
    assert_split(buf_view(&whole), FN("f", PAR("p0", "1")), "[f:{\"p0\": 1}]");
    assert_int_equal(calls_shorten_schema(bytes_str("{"), &text), E_FORMAT);
    buf_fini(&whole);
    buf_fini(&text);
}

/* Arguments may be declared behind references and in alternatives, also in the short form. */
static void arguments_are_found_in_all_parts_of_a_schema(void **state)
{
    static const char schema[] =
        "{\"$ref\":\"#/$defs/r\",\"properties\":{\"p0\":{\"type\":\"string\"},\"p3\":{}},\"allOf\":[{"
        "\"properties\":{\"p1\":{\"type\":\"string\"},\"p2\":{\"type\":[\"string\",\"integer\"]},\"p3\":{"
        "\"type\":\"string\"}}},{\"anyOf\":[{\"properties\":{\"p2\":{\"type\":\"string\"},\"p5\":{\"type\":"
        "\"null\"}}},{\"properties\":{\"p5\":{\"type\":\"string\"}}},true]}],\"$defs\":{\"r\":{\"oneOf\":[{"
        "\"properties\":{\"p4\":{\"type\":\"string\"}}},{\"$ref\":\"#/$defs/t\"}]},"
        "\"t\":{\"properties\":{\"p4\":{\"enum\":[\"1\"]}}}}}";
    static const char answer[] = FN("f", PAR("p0", "1") PAR("p1", "1") PAR("p2", "1") PAR("p3", "1")
                                             PAR("p4", "1") PAR("p5", "null") PAR("p6", "1"));
    static const char want[] =
        "[f:{\"p0\": \"1\", \"p1\": \"1\", \"p2\": \"1\", \"p3\": \"1\", \"p4\": \"1\", "
        "\"p5\": null, \"p6\": 1}]";
    struct buf text = {0};

    (void)state;
    assert_split(bytes_str(schema), answer, want);
    assert_int_equal(calls_shorten_schema(bytes_str(schema), &text), 0);
    assert_split(buf_view(&text), answer, want);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_that_multiply_are_not_walked),
        cmocka_unit_test(long_schemas_are_shortened),
        cmocka_unit_test(arguments_are_found_in_all_parts_of_a_schema),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
