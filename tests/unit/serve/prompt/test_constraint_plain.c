/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of calls of tools that are neither strict nor forced. */
#include "constraint_rig.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/api/parse.h"
#include "text/json/json.h"

#define PLAIN(name) "{\"name\":\"" name "\",\"input_schema\":{\"type\":\"object\"}}"

/* Writes the member tools: n plain ones, whose names have so many digits, and then `last`. */
static void put_tools(struct buf *out, unsigned n, int n_digits, const char *last)
{
    buf_append_str(out, "\"tools\":[");
    for (unsigned i = 0; i < n; i++)
        buf_printf(out, "{\"name\":\"list_%0*u_of\",\"input_schema\":{\"type\":\"object\"}},", n_digits, i);
    buf_append_str(out, last);
    buf_append_str(out, "],");
    buf_append_byte(out, '\0');
    assert_false(out->is_bad);
}

static void check_many(unsigned n_tools)
{
    struct buf fields = {0};

    put_tools(&fields, n_tools, 4, PLAIN("set"));
    for (size_t i = 0; i < n_families; i++) {
        const char *name = strstr(families[i].call, "set");
        struct gen_model model;
        struct buf call = {0};
        struct ask plain;

        assert_int_equal(sim_model_open_with(families[i].source, 4096, &model), 0);
        ask(&model, (const char *)fields.data, false, &plain);
        buf_printf(&call, "%.*slist_0042_off%s", (int)(name - families[i].call), families[i].call, name + 3);
        buf_append_byte(&call, '\0');
        if (plain.grammar != NULL && !takes(&plain, families[i].call))
            fail_msg("%s is not allowed", families[i].call);
        if (plain.grammar != NULL && takes(&plain, (const char *)call.data))
            fail_msg("%s is allowed", (const char *)call.data);
        buf_fini(&call);
        ask_fini(&plain);
        sim_model_close(&model);
    }
    buf_fini(&fields);
}

/* Each family takes as many tools as a prompt may list, and holds the model to their names. */
static void plain_tools_may_be_many(void **state)
{
    check_many(250);
    check_many(2500);
}

/* Names that are more than a grammar holds are not held.  Strict tools still are. */
static void names_of_plain_tools_may_be_too_many(void **state)
{
    static const struct {
        const char *call;
        bool is_taken;
    } cases[] = {{"{\"name\": \"set\", \"arguments\": {\"a\": 1}}", true},
                 {"{\"name\": \"gets\", \"arguments\": {\"a\": 1}}", true},
                 {"{\"name\": \"no name\", \"arguments\": {\"a\": 1}}", false},
                 {"{\"name\": \"set\", \"arguments\": 1}", false},
                 {"{\"name\": \"get\", \"arguments\": {\"id\": 1}}", true},
                 {"{\"name\": \"get\", \"arguments\": {\"a\": 1}}", false}};
    struct gen_model model;
    struct buf fields = {0};
    struct ask plain;

    put_tools(&fields, 12000, 100,
              PLAIN("set") ",{\"name\":\"get\",\"strict\":true,\"input_schema\":{\"type\":\"object\","
                           "\"properties\":{\"id\":{\"type\":\"integer\"}},\"required\":[\"id\"],"
                           "\"additionalProperties\":false}}");
    assert_int_equal(sim_model_open_with(FAMILY("<tool_call>"), 4096, &model), 0);
    ask(&model, (const char *)fields.data, false, &plain);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[128];

        snprintf(text, sizeof(text), "<tool_call>\n%s\n</tool_call>", cases[i].call);
        if (takes(&plain, text) != cases[i].is_taken)
            fail_msg("%s: %s", text, (const char *)plain.constraint.data);
    }
    ask_fini(&plain);
    buf_fini(&fields);
    sim_model_close(&model);
}

/* Makes the constraint of plain tools whose names are too many, beside n strict ones. */
static int make_beside(unsigned n, int n_digits, struct api_error *error)
{
    struct buf fields = {0}, strict = {0}, body = {0}, constraint = {0};
    struct gen_request request;
    struct gen_model model;
    int rc;

    for (unsigned i = 0; i < n; i++)
        buf_printf(
            &strict,
            "%s{\"name\":\"%0*u\",\"strict\":true,\"input_schema\":{\"type\":\"object\",\"properties\":{},"
            "\"additionalProperties\":false}}",
            i > 0 ? "," : "", n_digits, i);
    buf_append_byte(&strict, '\0');
    put_tools(&fields, 12000, 100, (const char *)strict.data);
    buf_printf(&body,
               "{\"model\":\"m\",\"max_tokens\":90,%s\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
               (const char *)fields.data);
    assert_int_equal(sim_model_open_with(FAMILY("<tool_call>"), 4096, &model), 0);
    assert_int_equal(api_parse_request(buf_view(&body), API_MESSAGES, &request, error), 0);
    rc = constraint_make(&model, &request, false, &constraint, error);
    gen_request_fini(&request);
    buf_fini(&constraint);
    buf_fini(&body);
    buf_fini(&strict);
    buf_fini(&fields);
    sim_model_close(&model);
    return rc;
}

/* Such a name is any but those of strict tools, which are held as far as an automaton of them is small enough. */
static void names_of_strict_tools_may_be_too_many(void **state)
{
    struct api_error error = {0};

    (void)state;
    assert_int_equal(make_beside(114, 25, &error), 0);
    assert_int_equal(make_beside(748, 3, &error), 0);
    assert_int_equal(make_beside(200, 25, &error), E_FORMAT);
    assert_int_equal(error.status, 400);
    assert_non_null(strstr(error.message, "the names of strict tools"));
}

/* A strict tool whose arguments are between tags is held beside such names, too. */
static void tags_are_held_beside_too_many_names(void **state)
{
    static const struct {
        const char *name, *value;
        bool is_taken;
    } cases[] = {{"get", "[1]", true}, {"get", "[null]", false}, {"gets", "[null]", true}};
    struct gen_model model;
    struct buf fields = {0};
    struct ask plain;

    put_tools(
        &fields, 12000, 100,
        "{\"name\":\"get\",\"strict\":true,\"input_schema\":{\"type\":\"object\",\"properties\":{\"v\":{"
        "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}},\"required\":[\"v\"],"
        "\"additionalProperties\":false,\"$defs\":{\"n\":{\"type\":\"integer\"}}}}");
    assert_int_equal(sim_model_open_with(FAMILY("<tool_call> <function="), 4096, &model), 0);
    ask(&model, (const char *)fields.data, false, &plain);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[160];

        snprintf(text, sizeof(text),
                 "<tool_call>\n<function=%s>\n<parameter=v>\n%s\n</parameter>\n</function>\n</tool_call>",
                 cases[i].name, cases[i].value);
        if (takes(&plain, text) != cases[i].is_taken)
            fail_msg("%s", text);
    }
    ask_fini(&plain);
    buf_fini(&fields);
    sim_model_close(&model);
}

/* True for an object.  A sampled name may have a NUL, which the JSON library does not take there. */
static bool is_object(struct buf *json)
{
    json_t *root = NULL;
    bool is_good;
    size_t at;

    while ((at = bytes_find(buf_view(json), bytes_str("\\u0000"), 0)) != SIZE_MAX)
        json->data[at + 5] = '1';
    is_good = api_json_load(buf_view(json), NULL, &root) == 0 && json_is_object(root);
    json_decref(root);
    return is_good;
}

/* Samples calls of set up to a limit of tokens, and reads each back as an object. */
static void check_read_back(const struct constraint_family *family, struct rng *rng)
{
    const char *name = strstr(family->call, "set");
    struct gen_model model;
    struct buf begin = {0};
    struct ask plain;

    buf_append(&begin, (const uint8_t *)family->call, (size_t)(name - family->call) + 3);
    buf_append_byte(&begin, '\0');
    assert_int_equal(sim_model_open_with(family->source, 4096, &model), 0);
    ask(&model, TOOLS("false") FORMAT, false, &plain);
    for (unsigned round = 0; round < 20; round++) {
        struct sink sink;
        enum gen_stop why =
            draw_behind(&model, &plain, (const char *)begin.data, rng, 250 + round * 20, &sink);

        if (why != GEN_STOP_TOOL_USE || sink.n_calls == 0 || sink.text.len_bytes > 0 ||
            !is_object(&sink.arguments))
            fail_msg("%s: stop %d, %u calls, text %.*s, arguments %.*s", family->name, why, sink.n_calls,
                     (int)sink.text.len_bytes, (const char *)sink.text.data, (int)sink.arguments.len_bytes,
                     (const char *)sink.arguments.data);
        sink_fini(&sink);
    }
    ask_fini(&plain);
    buf_fini(&begin);
    sim_model_close(&model);
}

static void plain_calls_are_read_back(void **state)
{
    struct rng rng;

    rng_init(&rng, 12);
    for (size_t i = 0; i < n_families; i++)
        check_read_back(&families[i], &rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_tools_may_be_many),
        cmocka_unit_test(names_of_plain_tools_may_be_too_many),
        cmocka_unit_test(names_of_strict_tools_may_be_too_many),
        cmocka_unit_test(tags_are_held_beside_too_many_names),
        cmocka_unit_test(plain_calls_are_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
