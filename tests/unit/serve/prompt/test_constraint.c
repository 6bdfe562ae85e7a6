/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of answers, family by family.  Everything that a model would write is allowed.  Everything that
 * is allowed (sampled at random, as at infinite temperature) is read back as the request demands. */
#include "constraint_rig.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/check.h"
#include "base/err.h"
#include "serve/prompt/verdicts.h"

static struct answer_scratch scratch;

static void calls_are_allowed_as_they_are_written(void **state)
{
    for (size_t i = 0; i < n_families; i++) {
        static const char *const wishes[] = {TOOLS("false") ANY, TOOLS("false") SET, TOOLS("true"),
                                             TOOLS("true") ANY};
        struct gen_model model;
        struct ask forced;

        assert_int_equal(sim_model_open_with(families[i].source, 4096, &model), 0);
        for (size_t w = 0; w < ARRAY_LEN(wishes); w++) {
            ask(&model, wishes[w], false, &forced);
            if (!takes(&forced, families[i].call))
                fail_msg("%s, wish %zu: %s is not allowed by %s", families[i].name, w, families[i].call,
                         (const char *)forced.constraint.data);
            assert_int_equal(takes_text(&forced, &families[i], "Hello."),
                             w == 2 && strcmp(families[i].name, "harmony") != 0);
            ask_fini(&forced);
        }
        ask(&model, TOOLS("false"), false, &forced);
        if (forced.grammar != NULL && !takes(&forced, families[i].call))
            fail_msg("%s: %s is not allowed by %s", families[i].name, families[i].call,
                     (const char *)forced.constraint.data);
        ask_fini(&forced);
        sim_model_close(&model);
    }
}

/* Models of Mistral also write ids. */
static void calls_of_mistral_may_have_ids(void **state)
{
    struct gen_model model;
    struct ask forced;

    assert_int_equal(sim_model_open_with(FAMILY("[TOOL_CALLS]"), 4096, &model), 0);
    ask(&model, TOOLS("true") ANY, false, &forced);
    assert_true(takes(&forced, "[TOOL_CALLS][{\"name\": \"set\", \"arguments\": " ARGS
                               ", \"id\": \"abc123XYZ\"}, {\"name\": \"get\", \"arguments\": {\"id\": 1}}]"));
    assert_false(
        takes(&forced, "[TOOL_CALLS][{\"name\": \"set\", \"arguments\": " ARGS ", \"id\": \"abc\"}]"));
    ask_fini(&forced);
    sim_model_close(&model);
}

/* ---- strings between tags ---- */

#define ONE(schema)                                                                                          \
    "\"tools\":[{\"name\":\"one\",\"strict\":true,\"input_schema\":{\"type\":\"object\",\"properties\":{"    \
    "\"v\":" schema "},\"required\":[\"v\"],\"additionalProperties\":false,\"$defs\":{\"color\":{\"type\":"  \
    "\"string\",\"enum\":"                                                                                   \
    "[\"red\",\"null\"]}}}}]," ANY

static const struct {
    const char *schema;
    const char *good[5], *bad[6];
} between_tags[] = {
    {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]+$\"}",
     {"ABC-1", "XYZ-99"},
     {"abc-1", "ABC-", "ABC-1 ", ""}},
    {"{\"type\":\"string\",\"format\":\"date\"}", {"2024-02-29"}, {"2023-02-29", "today"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}",
     {"ab", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", "a\"b\\", "</a>"},
     {"a", "abcde", "</ab>"}},
    {"{\"type\":\"string\"}", {"", "null", "a\nb", "\"quoted\""}, {NULL}},
    {"{\"type\":[\"string\",\"null\"],\"maxLength\":9}",
     {"null", "nulls", "7 up", "ab"},
     {"None", " null", "abcdefghij"}},
    {"{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"type\":\"integer\",\"minimum\":10}]}",
     {"ab", "12"},
     {"3", "a", "12 x"}},
    {"{\"$ref\":\"#/$defs/color\"}", {"red", "null"}, {"\"red\"", "blue", ""}},
    {"{\"enum\":[\"on\",\"1\",1,null]}", {"on", "1", "null"}, {"\"on\"", "2"}},
    {"{\"type\":\"integer\"}", {"-5"}, {"x", "\"5\"", "1.5"}},
};

/* Puts the value's text between the family's tags, in a whole call. */
static void put_call_of(bool is_glm, const char *value, struct buf *out)
{
    buf_printf(
        out,
        is_glm ? "<tool_call>one\n<arg_key>v</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>"
               : "<tool_call>\n<function=one>\n<parameter=v>\n%s\n</parameter>\n</function>\n</tool_call>",
        value);
    buf_append_byte(out, '\0');
}

static bool takes_value(const struct ask *ask, bool is_glm, const char *value)
{
    struct buf call = {0};
    bool is_taken;

    put_call_of(is_glm, value, &call);
    is_taken = takes(ask, (const char *)call.data);
    buf_fini(&call);
    return is_taken;
}

/* Each sampled answer is read back as a value that the same constraint accepts when it is written again. */
static void check_drawn(const struct gen_model *model, const struct ask *ask, bool is_glm, struct rng *rng)
{
    const struct answer_opts opts = {.scratch = &scratch, .model = model, .request = &ask->request};
    struct sink sink = {.n_calls = 0};
    struct grammar_run *run;
    struct answer *answer;
    uint32_t n = 200;
    json_t *root = NULL, *value;
    int rc = 0;

    assert_int_equal(grammar_run_new(ask->grammar, &run), 0);
    assert_int_equal(answer_new(&opts, &sink_all, &sink, &answer), 0);
    for (; n > 0 && rc == 0 && sink.n_calls < 2; n--) {
        token_id id = draw_one(grammar_mask(run, n), tokenizer_vocab_size(model->tokenizer), rng);

        if (is_stop(model->tokenizer, id))
            break;
        assert_int_equal(grammar_accept(run, id), 0);
        rc = sink.n_calls < 2 ? answer_push(answer, &id, 1) : 0;
        if (sink.n_calls == 1 && api_json_load(buf_view(&sink.arguments), NULL, &root) == 0)
            break; /* the first call is complete */
    }
    assert_true(rc >= 0);
    if (root == NULL)
        assert_int_equal(api_json_load(buf_view(&sink.arguments), NULL, &root), 0);
    value = json_object_get(root, "v");
    char *text =
        json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
    if (!takes_value(ask, is_glm, text))
        fail_msg("drawn, and not of the schema: %s by %s", text, (const char *)ask->constraint.data);
    free(text);
    json_decref(root);
    answer_free(answer);
    grammar_run_free(run);
    sink_fini(&sink);
}

static void strings_between_tags_are_of_their_schema(void **state)
{
    struct rng rng;

    rng_init(&rng, 11);
    for (int is_glm = 0; is_glm < 2; is_glm++) {
        struct gen_model model;

        assert_int_equal(sim_model_open_with(families[2 + is_glm].source, 4096, &model), 0);
        for (size_t i = 0; i < ARRAY_LEN(between_tags); i++) {
            struct buf fields = {0};
            struct ask strict;

            buf_printf(&fields, ONE("%s"), between_tags[i].schema);
            buf_append_byte(&fields, '\0');
            ask(&model, (const char *)fields.data, false, &strict);
            for (size_t k = 0; k < 5 && between_tags[i].good[k] != NULL; k++)
                if (!takes_value(&strict, is_glm, between_tags[i].good[k]))
                    fail_msg("'%s' is not allowed by %s", between_tags[i].good[k],
                             (const char *)strict.constraint.data);
            for (size_t k = 0; k < 6 && between_tags[i].bad[k] != NULL; k++)
                if (takes_value(&strict, is_glm, between_tags[i].bad[k]))
                    fail_msg("'%s' is allowed by %s", between_tags[i].bad[k],
                             (const char *)strict.constraint.data);
            assert_false(takes_value(&strict, is_glm, is_glm ? "a</arg_value>" : "a</parameter>b"));
            for (int k = 0; k < 30; k++)
                check_drawn(&model, &strict, is_glm, &rng);
            ask_fini(&strict);
            buf_fini(&fields);
        }
        sim_model_close(&model);
    }
}

/* tool_choice any and tool, with one call or more: at any temperature there are valid calls. */
static void forced_calls_come_with_any_samples(void **state)
{
    static const struct {
        const char *fields;
        bool is_set, is_single;
    } wishes[] = {
        {TOOLS("false") ANY, false, false},
        {TOOLS("false") SET, true, false},
        {TOOLS("false") CHOICE("\"type\":\"any\",\"disable_parallel_tool_use\":true"), false, true}};
    struct rng rng;

    rng_init(&rng, 5);
    for (size_t i = 0; i < n_families * ARRAY_LEN(wishes); i++) {
        size_t f = i / ARRAY_LEN(wishes), w = i % ARRAY_LEN(wishes);
        struct gen_model model;
        struct ask forced;

        assert_int_equal(sim_model_open_with(families[f].source, 4096, &model), 0);
        ask(&model, wishes[w].fields, false, &forced);
        for (unsigned round = 0; round < 12; round++) {
            struct sink sink;
            enum gen_stop why = draw(&model, &forced, &rng, 300 + round * 40, &sink);

            if (sink.n_calls == 0 || sink.n_bad > 0 || why != GEN_STOP_TOOL_USE || sink.text.len_bytes > 0)
                fail_msg("%s, wish %zu: stop %d, %u calls, %u bad, text %.*s", families[f].name, w, why,
                         sink.n_calls, sink.n_bad, (int)sink.text.len_bytes, (const char *)sink.text.data);
            if (wishes[w].is_single || families[f].is_one)
                assert_int_equal(sink.n_calls, 1);
            if (wishes[w].is_set)
                assert_null(strstr((char *)sink.names.data, "get"));
            sink_fini(&sink);
        }
        ask_fini(&forced);
        sim_model_close(&model);
    }
}

/* With auto, each call names a tool, and a strict tool's arguments match its schema. */
static void strict_calls_are_good_calls(void **state)
{
    struct rng rng;
    unsigned n_calls = 0;

    rng_init(&rng, 6);
    for (size_t i = 0; i < n_families; i++) {
        struct gen_model model;
        struct ask strict;

        assert_int_equal(sim_model_open_with(families[i].source, 4096, &model), 0);
        ask(&model, TOOLS("true"), false, &strict);
        for (unsigned round = 0; round < 10; round++) {
            struct sink sink;

            draw(&model, &strict, &rng, 400, &sink);
            assert_int_equal(sink.n_bad, 0);
            n_calls += sink.n_calls;
            sink_fini(&sink);
        }
        ask_fini(&strict);
        sim_model_close(&model);
    }
    assert_true(n_calls > 5);
}

static void no_call_is_made_where_none_may_be(void **state)
{
    for (size_t i = 0; i < n_families; i++) {
        struct gen_model model;
        struct ask none;

        assert_int_equal(sim_model_open_with(families[i].source, 4096, &model), 0);
        ask(&model, TOOLS("true") CHOICE("\"type\":\"none\""), false, &none);
        if (strncmp(families[i].name, "llama", 5) != 0) /* its calls are then text */
            assert_false(takes(&none, families[i].call));
        assert_true(takes_text(&none, &families[i],
                               strcmp(families[i].name, "harmony") == 0 ? "<|channel|>final<|message|>Hello."
                                                                        : "Hello <tool."));
        ask_fini(&none);
        sim_model_close(&model);
    }
}

static void documents_have_their_schema(void **state)
{
    struct rng rng;

    rng_init(&rng, 7);
    for (size_t i = 0; i < n_families; i++) {
        bool is_harmony = strcmp(families[i].name, "harmony") == 0;
        struct gen_model model;
        struct ask document;

        assert_int_equal(sim_model_open_with(families[i].source, 4096, &model), 0);
        ask(&model, FORMAT, false, &document);
        assert_true(takes_text(&document, &families[i],
                               is_harmony ? "<|channel|>final<|message|>{\"ok\":true}" : "{\"ok\":true}"));
        assert_false(takes_text(&document, &families[i],
                                is_harmony ? "<|channel|>final<|message|>{\"ok\":1}" : "{\"ok\":1}"));
        assert_false(takes_text(&document, &families[i], "Sure: {\"ok\":true}"));
        for (unsigned round = 0; round < 5; round++) {
            struct sink sink;
            json_t *root = NULL;

            assert_int_equal(draw(&model, &document, &rng, 200, &sink), GEN_STOP_END_TURN);
            assert_int_equal(api_json_load(buf_view(&sink.text), NULL, &root), 0);
            assert_true(json_is_boolean(json_object_get(root, "ok")));
            json_decref(root);
            sink_fini(&sink);
        }
        ask_fini(&document);
        ask(&model, TOOLS("true") FORMAT, false, &document); /* or a call */
        assert_true(takes(&document, families[i].call));
        ask_fini(&document);
        sim_model_close(&model);
    }
}

/* Free text has no control tokens, so the marks around an answer's text are named. */
static void marks_around_text_are_allowed(void **state)
{
    struct gen_model model;
    struct ask free_text;

    assert_int_equal(sim_model_open_with(FAMILY("<|START_ACTION|>"), 8192, &model), 0);
    ask(&model, TOOLS("true"), false, &free_text);
    assert_non_null(strstr((const char *)free_text.constraint.data, "{\"mark\":\"<|START_RESPONSE|>\"}"));
    assert_true(takes(&free_text, "<|START_RESPONSE|>Hi<|END_RESPONSE|>"));
    ask_fini(&free_text);
    sim_model_close(&model);
}

/* ---- refusals ---- */

static void expect_refusal(const struct gen_model *model, const char *fields, const char *message)
{
    struct api_error error = {0};
    struct gen_request request;
    struct buf body = {0}, constraint = {0};

    buf_printf(&body,
               "{%s\"model\":\"m\",\"max_tokens\":4000,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
               fields);
    assert_int_equal(api_parse_request(buf_view(&body), API_MESSAGES, &request, &error), 0);
    assert_int_equal(constraint_make(model, &request, false, &constraint, &error), E_FORMAT);
    assert_int_equal(error.status, 400);
    if (strncmp(error.message, message, strlen(message)) != 0)
        fail_msg("%s", error.message);
    gen_request_fini(&request);
    buf_fini(&constraint);
    buf_fini(&body);
}

#define ODD "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?=x)\"}}}"

/* A known verdict is not computed again: the first one answers, even an invented one. */
static void verdicts_are_kept(void **state)
{
    static const struct fault made_up = {.code = E_LIMIT, .text = "made up"};
    struct verdicts *verdicts;
    struct verdict_key keys[3];
    struct fault fault = {0};
    int rc = 1;

    (void)state;
    assert_int_equal(verdicts_new(2, &verdicts), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(verdicts_key(bytes_of("abc", (size_t)i + 1), &keys[i]), 0);
    assert_false(verdicts_find(verdicts, &keys[0], &rc, &fault));
    verdicts_keep(verdicts, &keys[0], 0, &fault);
    verdicts_keep(verdicts, &keys[1], E_LIMIT, &made_up);
    assert_true(verdicts_find(verdicts, &keys[0], &rc, &fault));
    assert_int_equal(rc, 0);
    verdicts_keep(verdicts, &keys[2], E_NOMEM, &made_up); /* not a verdict */
    assert_false(verdicts_find(verdicts, &keys[2], &rc, &fault));
    verdicts_keep(verdicts, &keys[2], 0, &fault); /* evicts the one that was used least recently */
    assert_false(verdicts_find(verdicts, &keys[1], &rc, &fault));
    verdicts_keep(verdicts, &keys[1], E_LIMIT, &made_up);
    assert_true(verdicts_find(verdicts, &keys[1], &rc, &fault));
    assert_int_equal(rc, E_LIMIT);
    assert_string_equal(fault.text, "made up");
    assert_false(verdicts_find(NULL, &keys[1], &rc, &fault));
    verdicts_free(verdicts);
}

/* Requests of several APIs share a verdict on the whole constraint, and each has the name of its own field. */
static void shared_verdicts_name_the_field_of_each_api(void **state)
{
    static const char *const bodies[] = {
        "{" FORMAT "\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"response_format\":{\"type\":"
        "\"json_schema\",\"json_schema\":{\"name\":\"d\",\"schema\":{\"type\":\"object\",\"properties\":{"
        "\"ok\":{"
        "\"type\":\"boolean\"}},\"required\":[\"ok\"],\"additionalProperties\":false}}}}"};
    static const char *const messages[] = {"output_config.format.schema: together: made up",
                                           "response_format.json_schema.schema: together: made up"};
    static const struct fault made_up = {.code = E_LIMIT, .text = "$: made up"};
    struct gen_model model = *(struct gen_model *)*state;
    struct verdict_key key;
    struct ask whole;

    assert_int_equal(verdicts_new(8, &model.verdicts), 0);
    ask(*state, FORMAT, false, &whole);
    assert_int_equal(verdicts_key(buf_view(&whole.constraint), &key), 0);
    verdicts_keep(model.verdicts, &key, E_LIMIT, &made_up);
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct gen_request request;
        struct api_error error = {0};
        struct buf constraint = {0};

        assert_int_equal(
            api_parse_request(bytes_str(bodies[i]), i == 0 ? API_MESSAGES : API_CHAT, &request, &error), 0);
        assert_int_equal(constraint_make(&model, &request, false, &constraint, &error), E_FORMAT);
        assert_string_equal(error.message, messages[i]);
        gen_request_fini(&request);
        buf_fini(&constraint);
    }
    ask_fini(&whole);
    verdicts_free(model.verdicts);
}

static void schemas_that_cannot_be_held_are_named(void **state)
{
    expect_refusal(*state, "\"tools\":[{\"name\":\"f\",\"strict\":true,\"input_schema\":" ODD "}],",
                   "tools.0.input_schema.properties.a.pattern: ");
    expect_refusal(*state,
                   "\"tools\":[{\"name\":\"g\",\"input_schema\":{\"type\":\"object\"}},{\"name\":\"f\","
                   "\"input_schema\":" ODD "}]," ANY,
                   "tools.1.input_schema.properties.a.pattern: ");
    expect_refusal(*state, "\"output_format\":{\"type\":\"json_schema\",\"schema\":" ODD "},",
                   "output_config.format.schema.properties.a.pattern: ");
}

/* A constraint larger than a worker accepts would cost the
 * router its link to that worker, so it is refused here. */
static void constraints_are_no_larger_than_workers_take(void **state)
{
    struct buf fields = {0};

    buf_append_str(&fields, "\"tools\":[");
    for (int i = 0; i < 2; i++) {
        buf_printf(&fields, "%s{\"name\":\"f%d\",\"strict\":true,\"input_schema\":{\"type\":\"object\",",
                   i ? "," : "", i);
        buf_append_str(&fields, "\"properties\":{\"a\":{\"type\":\"integer\",\"description\":\"");
        for (int n = 0; n < 60000; n++)
            buf_append_str(&fields, "0123456789");
        buf_append_str(&fields, "\"}},\"required\":[\"a\"],\"additionalProperties\":false}}");
    }
    buf_append_str(&fields, "],");
    expect_refusal(*state, (const char *)fields.data,
                   "the schemas of tools and answer come to more than 1 MiB");
    buf_fini(&fields);
}

/* Tools that are not forced may have any schema. */
static void free_tools_may_have_any_schema(void **state)
{
    struct ask plain;

    ask(*state, "\"tools\":[{\"name\":\"f\",\"input_schema\":" ODD "}],", false, &plain);
    assert_true(takes(&plain, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 7}}\n</tool_call>"));
    assert_false(takes(&plain, "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"b\": 7}}\n</tool_call>"));
    ask_fini(&plain);
}

static int set_up(void **state)
{
    static struct gen_model model;

    *state = &model;
    return sim_model_open(4096, &model);
}

static int tear_down(void **state)
{
    sim_model_close(*state);
    return 0;
}

/* The name of a call is a tool's, also where only a tag ends it, and tags may be control tokens. */
static void names_between_tags_are_whole(void **state)
{
    for (size_t i = 0; i < n_families; i++) {
        const char *name = strstr(families[i].call, "set");
        struct gen_model model;
        struct buf call = {0};
        struct ask plain;

        if (strstr(families[i].call, "<arg_key") == NULL)
            continue;
        assert_int_equal(sim_model_open_with(families[i].source, 4096, &model), 0);
        ask(&model, TOOLS("false"), false, &plain);
        buf_printf(&call, "%.*ssetbogus%s", (int)(name - families[i].call), families[i].call, name + 3);
        buf_append_byte(&call, '\0');
        assert_true(takes(&plain, families[i].call));
        if (takes(&plain, (const char *)call.data))
            fail_msg("%s is allowed by %s", (const char *)call.data, (const char *)plain.constraint.data);
        buf_fini(&call);
        ask_fini(&plain);
        sim_model_close(&model);
    }
}

/* LFM2: arguments of a schema appear in its order, with commas between them, or after the last one. */
static void keywords_may_be_left_out(void **state)
{
    static const char tools[] =
        "\"tool_choice\":{\"type\":\"any\"},\"tools\":["
        "{\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
        "\"b\":{\"type\":\"string\"}}}},"
        "{\"name\":\"g\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
        "\"b\":{\"type\":\"string\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}}],";
    static const struct {
        const char *call;
        bool is_taken;
    } cases[] = {{"f()", true},
                 {"f(a=1, )", true},
                 {"f(a=1, b=\")\", )", true},
                 {"f(b=\"x\", a=1, )", false},
                 {"f(a=\"x\", )", false},
                 {"g(b=\"x\")", true},
                 {"g(a=-2, b=\"x\", c=null)", true},
                 {"g(b=\"x\"), f()", true},
                 {"g(a=1)", false},
                 {"g(b=\"x\"", false}};
    struct gen_model model;
    struct ask forced;

    assert_int_equal(sim_model_open_with(FAMILY("<|tool_call_start|>"), 4096, &model), 0);
    ask(&model, tools, false, &forced);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[128];

        snprintf(text, sizeof(text), "<|tool_call_start|>[%s]<|tool_call_end|>", cases[i].call);
        if (takes(&forced, text) != cases[i].is_taken)
            fail_msg("%s: %s", text, (const char *)forced.constraint.data);
    }
    ask_fini(&forced);
    sim_model_close(&model);
}

/* LFM2 writes name=value, so a name with a blank is impossible there: refused, not left out.  Tools without
 * strict arguments may have any names. */
static void names_that_are_no_keywords_are_refused(void **state)
{
#define SPACED                                                                                               \
    "\"input_schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"my "               \
    "city\":{\"type\":"                                                                                      \
    "\"string\"}},\"required\":[\"a\"],\"additionalProperties\":false}"
    struct gen_model model;
    struct ask kept;

    (void)state;
    assert_int_equal(sim_model_open_with(FAMILY("<|tool_call_start|>"), 4096, &model), 0);
    expect_refusal(&model, "\"tools\":[{\"name\":\"f\",\"strict\":true," SPACED "}],",
                   "tools.0.input_schema.properties.my city: ");
    expect_refusal(&model, "\"tools\":[{\"name\":\"f\"," SPACED "}]," ANY,
                   "tools.0.input_schema.properties.my city: ");
    ask(&model, "\"tools\":[{\"name\":\"f\"," SPACED "}],", false, &kept);
    assert_true(takes(&kept, "Hello."));
    assert_true(takes(&kept, "<|tool_call_start|>[f()]<|tool_call_end|>"));
    assert_true(takes(&kept, "<|tool_call_start|>[f(x=1, y_2={\"a\": []}), f(z=\"\")]<|tool_call_end|>"));
    assert_false(takes(&kept, "<|tool_call_start|>[f(my city=1)]<|tool_call_end|>"));
    assert_false(takes(&kept, "<|tool_call_start|>[f(x)]<|tool_call_end|>"));
    assert_false(takes(&kept, "<|tool_call_start|>[g()]<|tool_call_end|>"));
    ask_fini(&kept);
    sim_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_allowed_as_they_are_written),
        cmocka_unit_test(calls_of_mistral_may_have_ids),
        cmocka_unit_test(strings_between_tags_are_of_their_schema),
        cmocka_unit_test(forced_calls_come_with_any_samples),
        cmocka_unit_test(strict_calls_are_good_calls),
        cmocka_unit_test(no_call_is_made_where_none_may_be),
        cmocka_unit_test(documents_have_their_schema),
        cmocka_unit_test(marks_around_text_are_allowed),
        cmocka_unit_test(verdicts_are_kept),
        cmocka_unit_test(shared_verdicts_name_the_field_of_each_api),
        cmocka_unit_test(schemas_that_cannot_be_held_are_named),
        cmocka_unit_test(constraints_are_no_larger_than_workers_take),
        cmocka_unit_test(free_tools_may_have_any_schema),
        cmocka_unit_test(names_between_tags_are_whole),
        cmocka_unit_test(keywords_may_be_left_out),
        cmocka_unit_test(names_that_are_no_keywords_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
