/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of calls in braces, as Gemma 4 writes them. */
#include "constraint_rig.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "text/json/json.h"

#define BRACES                                                                                               \
    "\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true},\"tools\":[{\"name\":\"f\","      \
    "\"input_schema\":{\"type\":\"object\",\"properties\":{\"o\":{\"type\":\"object\",\"properties\":{"      \
    "\"s\":{\"type\":\"string\",\"maxLength\":5},\"l\":{\"type\":\"array\",\"items\":{\"enum\":[\"x\",\"y "  \
    "z\"]},"                                                                                                 \
    "\"minItems\":1,\"maxItems\":2}},\"required\":[\"l\"]},\"my:key\":{\"type\":[\"string\",\"integer\"]},"  \
    "\"j\":{\"type\":\"object\",\"additionalProperties\":{\"enum\":[\"v\"]}},\"e\":{\"type\":\"array\","     \
    "\"items\":"                                                                                             \
    "{\"type\":\"boolean\"}}},\"required\":[\"o\"]}}],"
#define Q "<|\"|>"

/* Draws a call and checks that its arguments have the shapes of BRACES. */
static void draw_braces(const struct gen_model *model, const struct ask *forced, struct rng *rng)
{
    struct sink sink;
    json_t *root = NULL, *list;

    draw_call(model, forced, rng, 300, &sink);
    if (api_json_load(buf_view(&sink.arguments), NULL, &root) != 0)
        fail_msg("%.*s", (int)sink.arguments.len_bytes, (const char *)sink.arguments.data);
    list = json_object_get(json_object_get(root, "o"), "l");
    assert_in_range(json_array_size(list), 1, 2);
    assert_true(bytes_is(api_json_str(json_array_get(list, 0)), "x") ||
                bytes_is(api_json_str(json_array_get(list, 0)), "y z"));
    json_decref(root);
    sink_fini(&sink);
}

/* Gemma: strings stand between marks, also in objects and lists.  Where the schema does not list the properties, the
 * value is JSON. */
static void check_braces(const char *source)
{
    static const struct {
        const char *call;
        bool is_taken;
    } cases[] = {{"f{o:{l:[" Q "x" Q "]}}", true},
                 {"f{o:{s:" Q "a}\n" Q ",l:[" Q "x" Q "," Q "y z" Q "]},\"my:key\":" Q "5" Q "}", true},
                 {"f{o:{l:[" Q "x" Q "]},\"my:key\":5,j:{\"k\": \"v\"},e:[]}", true},
                 {"f{o:{l:[" Q "x" Q "]},e:[true,false]}", true},
                 {"f{o:{l:[]}}", false},
                 {"f{o:{l:[" Q "x" Q "," Q "x" Q "," Q "x" Q "]}}", false},
                 {"f{o:{l:[\"x\"]}}", false},
                 {"f{o:{s:" Q "too long" Q ",l:[" Q "x" Q "]}}", false},
                 {"f{o:{l:[" Q "x" Q "]},j:{\"k\": \"w\"}}", false},
                 {"f{o:{}}", false},
                 {"f{}", false}};
    struct gen_model model;
    struct ask forced, open;
    struct rng rng;

    rng_init(&rng, 3);
    assert_int_equal(sim_model_open_with(source, 4096, &model), 0);
    ask(&model, BRACES, false, &forced);
    ask(&model, "\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],", false, &open);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];

        snprintf(text, sizeof(text), "<|tool_call>call:%s<tool_call|>", cases[i].call);
        if (takes(&forced, text) != cases[i].is_taken)
            fail_msg("%s: %s", text, (const char *)forced.constraint.data);
        assert_true(takes(&open, text));
    }
    assert_false(takes(&open, "<|tool_call>call:g{}<tool_call|>"));
    assert_false(takes(&open, "<|tool_call>call:f<tool_call|>"));
    for (unsigned i = 0; i < 50; i++)
        draw_braces(&model, &forced, &rng);
    ask_fini(&forced);
    ask_fini(&open);
    sim_model_close(&model);
}

static void values_in_braces_are_of_their_schema(void **state)
{
    (void)state;
    check_braces(FAMILY("<|tool_call>"));
    check_braces(FAMILY("<|tool_call><tool_call|><|\"|>")); /* the marks are control tokens */
}

/* Tools that are neither strict nor forced: any names and values, and nothing that is no call. */
static void any_arguments_in_braces_are_whole(void **state)
{
    static const struct {
        const char *call;
        bool is_taken;
    } cases[] = {{"{}", true},
                 {"{first name:5,x-y:null,n\xc3\xa4me:" Q "{a" Q "}", true},
                 {"{a:[{b:1,c:" Q "x" Q "},{}],\"d,e\":[]}", true},
                 {"{a:{b:{c:{\"d\": [\"e\"]}}}}", true},
                 {"{a:{b:{c:{d:1}}}}", false}, /* deeper ones are JSON */
                 {"{a}", false},
                 {"{:1}", false},
                 {"{ a:1}", false},
                 {"{a\tb:1}", false},
                 {"{a:1,}", false},
                 {"{a:x}", false},
                 {"{a:[1 2]}", false},
                 {"{a:[1}", false},
                 {"{\"and-:}", false}};
    struct gen_model model;
    struct ask open;

    (void)state;
    assert_int_equal(sim_model_open_with(FAMILY("<|tool_call><tool_call|><|\"|>"), 4096, &model), 0);
    ask(&model, "\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],", false, &open);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];

        snprintf(text, sizeof(text), "<|tool_call>call:f%s<tool_call|>", cases[i].call);
        if (takes(&open, text) != cases[i].is_taken)
            fail_msg("%s: %s", text, (const char *)open.constraint.data);
    }
    ask_fini(&open);
    sim_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_in_braces_are_of_their_schema),
        cmocka_unit_test(any_arguments_in_braces_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
