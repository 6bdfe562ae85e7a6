/* SPDX-License-Identifier: Apache-2.0 */
/* The work that schemas cost: hostile ones are refused soon, steps grow with the text, and a request has one limit. */
#include "tests/unit/text/grammar/grammar_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "tests/unit/check.h"

/* Schemas that would take for ever, or all memory, are refused by name, quickly. */
static void hostile_schemas_are_refused_soon(void **state)
{
    static const char *const rows[] = {
        "{\"pattern\": \"(a|b)*a(a|b){20}\"}",
        "{\"pattern\": \"((((a{30}){30}){30}){30}){30}\"}",
        "{\"pattern\": \"^.{900}$\", \"minLength\": 800}",
        "{\"$defs\": {\"a\": {\"allOf\": [{\"$ref\": \"#/$defs/a\"}, {\"minimum\": 1}]}}, \"$ref\": "
        "\"#/$defs/a\"}",
        "{\"type\": \"array\", \"minItems\": 1000000, \"items\": {\"type\": \"string\", \"minLength\": "
        "1000000}}",
        "{\"type\": \"array\", \"minItems\": 4000000000}",
        "{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}",
        "{\"type\": \"integer\", \"multipleOf\": 101}",
    };
    uint64_t began_ns = clock_thread_cpu_ns();
    struct buf deep = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fault fault = {0};
        assert_true(grammar_check_schema(bytes_str(rows[i]), &fault) < 0);
        assert_true(strlen(fault.text) > 0);
    }
    for (uint32_t i = 0; i < 100000; i++)
        buf_append_str(&deep, "{\"items\":");
    struct fault fault = {0};
    assert_int_equal(grammar_check_schema(buf_view(&deep), &fault), E_LIMIT);
    buf_fini(&deep);
    /* measured: 40 ms for all of them; a machine may be busy, or run under a sanitizer */
    assert_true(clock_thread_cpu_ns() - began_ns < 5 * NS_PER_S);
}

/* Each merge would copy thousands of properties: gigabytes, before any limit counted them. */
static void merges_are_bounded_by_their_size(void **state)
{
    struct buf text = {0};
    struct fault fault = {0};

    (void)state;
    buf_append_str(&text, "{\"$defs\":{\"a\":{\"properties\":{");
    for (int i = 0; i < 5000; i++)
        buf_printf(&text, "%s\"p%d\":true", i > 0 ? "," : "", i);
    buf_append_str(&text, "}}},\"allOf\":[{}");
    for (int i = 0; i < 6000; i++)
        buf_append_str(&text, ",{\"$ref\":\"#/$defs/a\"}");
    buf_append_str(&text, "]}");
    assert_int_equal(grammar_check_schema(buf_view(&text), &fault), E_LIMIT);
    assert_non_null(strstr(fault.text, "too much to merge"));
    buf_fini(&text);
}

static uint64_t steps_of(const struct buf *text, int *rc_out)
{
    struct grammar_schema one = {.text = buf_view(text), .path = "tools.7.input_schema"};
    struct fault fault = {0};
    uint64_t steps;

    *rc_out = grammar_check_schemas(&one, 1, &fault, &steps);
    if (*rc_out != 0 && strncmp(fault.text, one.path, strlen(one.path)) != 0)
        fail_msg("%s", fault.text);
    assert_true(steps <= GRAMMAR_MAX_STEPS);
    return steps;
}

static void put_properties(struct buf *text, unsigned n)
{
    buf_append_str(text, "{\"properties\":{");
    for (unsigned i = 0; i < n; i++)
        buf_printf(text, "%s\"p%u\":{}", i > 0 ? "," : "", i);
    buf_append_str(text, "},\"required\":[");
    for (unsigned i = 0; i < n; i++)
        buf_printf(text, "%s\"p%u\"", i > 0 ? "," : "", i);
    buf_append_str(text, "]}");
}

static void put_enums(struct buf *text, unsigned n)
{
    buf_append_str(text, "{\"allOf\":[{\"enum\":[0");
    for (unsigned i = 1; i < n; i++)
        buf_printf(text, ",%u", i);
    buf_append_str(text, "]},{\"enum\":[0");
    for (unsigned i = 1; i < n; i++)
        buf_printf(text, ",%u", 2 * i);
    buf_append_str(text, "]}]}");
}

static void put_branches(struct buf *text, unsigned n)
{
    buf_append_str(text, "{\"properties\":{\"a\":{},\"b\":{}},\"anyOf\":[{}");
    for (unsigned i = 1; i < n; i++)
        buf_printf(text, ",{\"required\":[\"p%u\"]}", i);
    buf_append_str(text, "]}");
}

static void put_references(struct buf *text, unsigned n)
{
    buf_append_str(text, "{\"$defs\":{\"d0\":{\"type\":\"null\"}");
    for (unsigned i = 1; i < n; i++)
        buf_printf(text, ",\"d%u\":{\"items\":{\"$ref\":\"#/$defs/d%u\"}}", i, i - 1);
    buf_printf(text, "},\"$ref\":\"#/$defs/d%u\"}", n - 1);
}

/* Twice the text is about twice the work, or is refused. */
static void work_grows_with_the_text(void **state)
{
    static void (*const puts[])(struct buf *, unsigned) = {put_properties, put_enums, put_branches,
                                                           put_references};
    static const unsigned sizes[] = {2000, 4000, 200, 2000};

    (void)state;
    for (size_t i = 0; i < sizeof(puts) / sizeof(puts[0]); i++) {
        uint64_t steps[2];
        int rc;

        for (unsigned k = 0; k < 2; k++) {
            struct buf text = {0};
            puts[i](&text, sizes[i] * (k + 1));
            steps[k] = steps_of(&text, &rc);
            if (rc != 0)
                fail_msg("%zu: %u of them are refused", i, sizes[i] * (k + 1));
            buf_fini(&text);
        }
        if (steps[1] > 5 * steps[0] / 2)
            fail_msg("%zu: %llu steps, then %llu", i, (unsigned long long)steps[0],
                     (unsigned long long)steps[1]);
    }
}

/* A quadratic search of names among the required ones would take 3 to 9 s. */
static void a_schema_of_20000_properties_is_answered_soon(void **state)
{
    struct buf text = {0};
    uint64_t began_ns = clock_thread_cpu_ns();
    int rc;

    (void)state;
    put_properties(&text, 20000);
    steps_of(&text, &rc);
    assert_true(rc == 0 || rc == E_LIMIT);
    assert_true(clock_thread_cpu_ns() - began_ns < NS_PER_S); /* measured: 20 ms */
    buf_fini(&text);
}

/* Values, names and references that are long or many at places where they are compared with each other. */
static void put_long(struct buf *text, unsigned kind)
{
    char name[3001] = {0};

    memset(name, 'n', 3000);
    switch (kind) {
    case 0: /* words with a common prefix in branches that must exclude each other */
        buf_append_str(text, "{\"oneOf\":[");
        for (unsigned i = 0; i < 150; i++)
            buf_printf(text, "%s{\"const\":\"%s%03u\"}", i > 0 ? "," : "", name, i);
        buf_append_str(text, "]}");
        return;
    case 1: /* one long list of words for each branch */
        buf_append_str(text, "{\"enum\":[0");
        for (unsigned i = 1; i < 20000; i++)
            buf_printf(text, ",%u", i);
        buf_append_str(text, "],\"anyOf\":[{}");
        for (unsigned i = 1; i < 500; i++)
            buf_append_str(text, ",{\"type\":\"string\"}");
        buf_append_str(text, "]}");
        return;
    case 2: /* one long list of types for each branch */
        buf_append_str(text, "{\"type\":[\"null\"");
        for (unsigned i = 1; i < 20000; i++)
            buf_append_str(text, ",\"null\"");
        buf_append_str(text, "],\"anyOf\":[{}");
        for (unsigned i = 1; i < 500; i++)
            buf_append_str(text, ",{\"type\":\"null\"}");
        buf_append_str(text, "]}");
        return;
    case 3: /* one long name, copied into each branch */
        buf_printf(text, "{\"x%s\":1,\"properties\":{\"%s\":{}},\"anyOf\":[{}", name, name);
        for (unsigned i = 1; i < 500; i++)
            buf_append_str(text, ",{\"properties\":{\"a\":{}}}");
        buf_append_str(text, "]}");
        return;
    case 4: /* a path of one long name for each of many properties */
        buf_printf(text, "{\"properties\":{\"%s\":", name);
        put_properties(text, 5000);
        buf_append_str(text, "}}");
        return;
    case 5: /* bounds that must be written out */
        buf_append_str(text, "{\"prefixItems\":[{}");
        for (unsigned i = 1; i < 5000; i++)
            buf_printf(text, ",{\"minimum\":%u.0123456789,\"maximum\":%u.5}", i, i);
        buf_append_str(text, "]}");
        return;
    case 6: /* references with siblings, each into the next */
        buf_append_str(text, "{\"$defs\":{\"d0\":{\"type\":\"null\"}");
        for (unsigned i = 1; i < 9000; i++)
            buf_printf(text, ",\"d%u\":{\"type\":\"null\",\"$ref\":\"#/$defs/d%u\"}", i, i - 1);
        buf_append_str(text, "},\"$ref\":\"#/$defs/d8999\"}");
        return;
    default: /* a class of many ranges, repeated */
        buf_append_str(text, "{\"pattern\":\"^[");
        for (unsigned i = 250; i > 0; i--)
            buf_printf(text, "\\\\u%04x", 2 * i + 0x100);
        buf_append_str(text, "]{1,2600}$\"}");
    }
}

static void comparisons_count_as_steps(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 8; kind++) {
        struct buf text = {0};
        uint64_t began_ns, steps, ns;
        int rc;

        put_long(&text, kind);
        began_ns = clock_thread_cpu_ns();
        steps = steps_of(&text, &rc);
        ns = clock_thread_cpu_ns() - began_ns;
        if (ns > NS_PER_S) /* measured: up to 25 ms */
            fail_msg("%u: %llu steps, %llu ns", kind, (unsigned long long)steps, (unsigned long long)ns);
        buf_fini(&text);
    }
}

/* All schemas of a request share one limit of steps, and equal ones are compiled once. */
static void many_schemas_are_one_work(void **state)
{
    enum { N = 300 };
    static struct grammar_schema list[N];
    static char texts[N][160], paths[N][40];
    struct fault fault = {0};
    uint64_t one, all;

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        snprintf(paths[i], sizeof(paths[i]), "tools.%u.input_schema", i);
        snprintf(texts[i], sizeof(texts[i]),
                 "{\"properties\": {\"a\": {\"type\": \"string\", \"pattern\": \"^(x{1,12}){1,12}$\"}}}");
        list[i] = (struct grammar_schema){bytes_str(texts[i]), paths[i], true};
    }
    assert_int_equal(grammar_check_schemas(list, 1, &fault, &one), 0);
    assert_int_equal(grammar_check_schemas(list, N, &fault, &all), 0);
    assert_true(all < one + N * (uint64_t)1000);
    for (unsigned i = 0; i < N; i++) {
        snprintf(texts[i], sizeof(texts[i]),
                 "{\"properties\": {\"a\": {\"type\": \"string\", \"pattern\": \"^(x{1,30}){1,30}y{%u}$\"}}}",
                 i);
        list[i].text = bytes_str(texts[i]);
    }
    assert_int_equal(grammar_check_schemas(list, N, &fault, &all), E_LIMIT);
    assert_true(all <= GRAMMAR_MAX_STEPS);
    assert_true(strncmp(fault.text, "tools.", 6) == 0);
    assert_non_null(strstr(fault.text, ".input_schema.properties.a.pattern: too complex"));
}

/* Schemas of one root compile once what they refer to. */
static void references_into_a_root_share_its_rules(void **state)
{
    uint64_t steps[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct buf text = {0};
        struct fault fault = {0};

        buf_append_str(&text, "{\"seq\":[{\"text\":\"f\"}");
        for (int n = 0; n < (i == 0 ? 1 : 50); n++)
            buf_printf(&text,
                       ",{\"json\":{\"type\":\"array\",\"minItems\":%d,\"items\":{\"$ref\":\"#/$defs/a\"}}}",
                       n);
        buf_append_str(&text, "],\"root\":{\"$defs\":{\"a\":{\"properties\":{");
        for (int n = 0; n < 2000; n++)
            buf_printf(&text, "%s\"p%d\":{\"type\":\"integer\"}", n > 0 ? "," : "", n);
        buf_append_str(&text, "}}}}}");
        assert_int_equal(grammar_check(NULL, buf_view(&text), &fault, &steps[i]), 0);
        buf_fini(&text);
    }
    assert_true(steps[1] < 2 * steps[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_schemas_are_refused_soon),
        cmocka_unit_test(merges_are_bounded_by_their_size),
        cmocka_unit_test(work_grows_with_the_text),
        cmocka_unit_test(a_schema_of_20000_properties_is_answered_soon),
        cmocka_unit_test(comparisons_count_as_steps),
        cmocka_unit_test(many_schemas_are_one_work),
        cmocka_unit_test(references_into_a_root_share_its_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
