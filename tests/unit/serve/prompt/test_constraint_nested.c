/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of calls whose arguments are elements, as MiniMax M3 writes them, or have their type in the tag of their key,
 * as Kimi K3 writes them; and of answers whose parts stand behind marks. */
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

static struct answer_scratch scratch;

#define NESTED                                                                                               \
    "\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true},\"tools\":[{\"name\":\"f\","      \
    "\"input_schema\":{\"type\":\"object\",\"properties\":{\"o\":{\"type\":\"object\",\"properties\":{"      \
    "\"s\":{\"type\":\"string\",\"maxLength\":5},\"l\":{\"type\":\"array\",\"items\":{\"enum\":[\"x\",\"y "  \
    "z\"]},\"minItems\":1,\"maxItems\":2}},\"required\":[\"l\"]},\"u\":{\"type\":[\"string\",\"integer\"]}," \
    "\"j\":{\"type\":\"object\",\"additionalProperties\":{\"enum\":[\"v\"]}},\"e\":{\"type\":\"array\","     \
    "\"items\":{\"type\":\"boolean\"}},\"c\":{\"type\":[\"string\",\"integer\",\"null\"],\"enum\":[\"on\","  \
    "1,null]},"                                                                                              \
    "\"a\":{},\"n\":{\"type\":\"number\"}},\"required\":[\"o\"]}}],"
#define OPEN "\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],"

static bool is_word(const json_t *value)
{
    return bytes_is(api_json_str(value), "x") || bytes_is(api_json_str(value), "y z");
}

/* True if the arguments are of the schema of NESTED. */
static bool are_good(const json_t *root)
{
    const json_t *o = json_object_get(root, "o"), *l = json_object_get(o, "l"),
                 *e = json_object_get(root, "e");
    const json_t *u = json_object_get(root, "u"), *c = json_object_get(root, "c"),
                 *s = json_object_get(o, "s");
    const json_t *j = json_object_get(root, "j"), *n = json_object_get(root, "n");
    bool are = json_is_object(o) && json_is_array(l) && json_array_size(l) >= 1 && json_array_size(l) <= 2;

    for (size_t i = 0; i < json_array_size(l); i++)
        are = are && is_word(json_array_get(l, i));
    for (size_t i = 0; i < json_array_size(e); i++)
        are = are && json_is_boolean(json_array_get(e, i));
    return are && (s == NULL || json_is_string(s)) && (e == NULL || json_is_array(e)) &&
           (u == NULL || json_is_string(u) || json_is_integer(u)) && (j == NULL || json_is_object(j)) &&
           (n == NULL || json_is_number(n)) &&
           (c == NULL || json_is_null(c) || json_integer_value(c) == 1 || bytes_is(api_json_str(c), "on"));
}

static void draw_nested(const struct gen_model *model, const struct ask *forced, struct rng *rng)
{
    struct sink sink;
    json_t *root = NULL;

    draw_call(model, forced, rng, 400, &sink);
    if (api_json_load(buf_view(&sink.arguments), NULL, &root) != 0 || !are_good(root))
        fail_msg("%.*s", (int)sink.arguments.len_bytes, (const char *)sink.arguments.data);
    json_decref(root);
    sink_fini(&sink);
}

struct nested_case {
    const char *arguments;
    bool is_taken;
};

/* Arguments of a call of f, which stand between before and after. */
static void check_nested(const char *source, const char *before, const char *after,
                         const struct nested_case *cases, size_t n_cases)
{
    struct gen_model model;
    struct ask forced, open;
    struct rng rng;

    rng_init(&rng, 3);
    assert_int_equal(sim_model_open_with(source, 4096, &model), 0);
    ask(&model, NESTED, false, &forced);
    ask(&model, OPEN, false, &open);
    for (size_t i = 0; i < n_cases; i++) {
        char text[1024];

        snprintf(text, sizeof(text), "%s%s%s", before, cases[i].arguments, after);
        if (takes(&forced, text) != cases[i].is_taken)
            fail_msg("%s: %s", text, (const char *)forced.constraint.data);
        if (!takes(&open, text))
            fail_msg("%s: %s", text, (const char *)open.constraint.data);
    }
    for (unsigned i = 0; i < 60; i++)
        draw_nested(&model, &forced, &rng);
    ask_fini(&forced);
    ask_fini(&open);
    sim_model_close(&model);
}

#define M                 "]<]minimax[>["
#define IN(key, text)     M "<" key ">" text M "</" key ">"
#define ITEMS             IN("item", "x")
#define M_CALL(arguments) M "<tool_call>\n" M "<invoke name=\"f\">" arguments M "</invoke>\n" M "</tool_call>"

static void elements_are_of_their_schema(void **state)
{
    static const struct nested_case cases[] = {
        {IN("o", IN("l", ITEMS)), true},
        {IN("o", IN("s", "a]<b") IN("l", ITEMS IN("item", "y z"))) IN("u", "5"), true},
        {IN("o", IN("l", ITEMS)) IN("j", "{\"k\": \"v\"}") IN("e", ""), true},
        {IN("o", IN("l", ITEMS)) IN("e", IN("item", "true") IN("item", "false")) IN("c", "null"), true},
        {IN("o", IN("l", ITEMS)) IN("u", "five"), true},
        {IN("o", IN("l", ITEMS)) IN("c", "1") IN("a", "[1]") IN("n", "1.5"), true},
        {IN("o", IN("l", "")), false},
        {IN("o", IN("l", ITEMS ITEMS ITEMS)), false},
        {IN("o", IN("l", IN("item", "w"))), false},
        {IN("o", IN("s", "too long") IN("l", ITEMS)), false},
        {IN("o", IN("l", ITEMS)) IN("j", "{\"k\": \"w\"}"), false},
        {IN("o", ""), false},
        {"", false},
        {IN("any", IN("x", IN("y", IN("z", "text")))), false},
    };
    const char *const sources[] = {FAMILY(M), FAMILY(M " <|tool_call|>")};
    struct gen_model model;
    struct ask open;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        check_nested(sources[i], M "<tool_call>\n" M "<invoke name=\"f\">", M "</invoke>\n" M "</tool_call>",
                     cases, ARRAY_LEN(cases));
    assert_int_equal(sim_model_open_with(FAMILY(M), 4096, &model), 0);
    ask(&model, OPEN, false, &open);
    assert_true(takes(&open, "</mm:think>Hi." M_CALL("")));
    assert_false(takes(&open, M "<tool_call>\n" M "<invoke name=\"g\">" M "</invoke>\n" M "</tool_call>"));
    assert_false(takes(&open, M_CALL(M "<a>" M "</invoke>\n" M "<invoke name=\"g\">" M "</a>")));
    assert_false(takes(&open, M_CALL("text")));
    ask_fini(&open);
    sim_model_close(&model);
}

#define BEGINS(tag)            "<|open|>" tag "<|sep|>"
#define ENDS(tag)              "<|close|>" tag "<|sep|>"
#define VALUE(key, type, text) BEGINS("argument key=\"" key "\" type=\"" type "\"") text ENDS("argument")
#define K_BEFORE               ENDS("response") BEGINS("tools") BEGINS("call tool=\"f\" index=\"1\"")
#define K_AFTER                ENDS("call") ENDS("tools")
#define O                      VALUE("o", "object", "{\"l\": [\"x\"]}")

static void types_are_those_of_the_values(void **state)
{
    static const struct nested_case cases[] = {
        {O, true},
        {O VALUE("u", "string", "5"), true},
        {O VALUE("u", "number", "5") VALUE("e", "array", "[true]"), true},
        {O VALUE("c", "null", "null") VALUE("a", "string", "\"x<\"") VALUE("n", "number", "1.5"), true},
        {O VALUE("c", "string", "on") VALUE("a", "boolean", "true"), true},
        {O VALUE("c", "number", "1"), true},
        {O VALUE("c", "number", "2"), false},
        {O VALUE("c", "string", "1"), false},
        {O VALUE("u", "number", "x"), false},
        {O VALUE("u", "boolean", "true"), false},
        {O VALUE("e", "object", "{}"), false},
        {VALUE("o", "string", "{}"), false},
        {"", false},
    };

    (void)state;
    check_nested(FAMILY("<|open|><|close|>"), K_BEFORE, K_AFTER, cases, ARRAY_LEN(cases));
    check_nested(FAMILY("<|open|><|close|><|sep|>"), K_BEFORE, K_AFTER, cases, ARRAY_LEN(cases));
}

#define BAR        "\xef\xbd\x9c"
#define D_TAG(tag) "<" BAR "DSML" BAR tag
#define D_END(tag) "</" BAR "DSML" BAR tag ">"
#define D_VALUE(key, is, text)                                                                               \
    D_TAG("parameter name=\"" key "\" string=\"" is "\">") text D_END("parameter") "\n"
#define D_O D_VALUE("o", "false", "{\"l\": [\"x\"]}")

/* DeepSeek V3.2: the tag that ends a value is not ASCII. */
static void values_may_end_at_any_characters(void **state)
{
    static const struct nested_case cases[] = {
        {D_O, true},
        {D_O D_VALUE("u", "true", "a</b>") D_VALUE("n", "false", "1.5"), true},
        {D_O D_VALUE("u", "false", "5") D_VALUE("c", "true", "on"), true},
        {D_O D_VALUE("u", "false", "x"), false},
        {"", false},
    };
    static const char before[] = D_TAG("function_calls>") "\n" D_TAG("invoke name=\"f\">") "\n";

    (void)state;
    check_nested(FAMILY(BAR "DSML" BAR " function_calls>"), before,
                 D_END("invoke") "\n" D_END("function_calls"), cases, ARRAY_LEN(cases));
}

/* Kimi K3: the prompt opens thinking, or text; tools follow the text. */
static void parts_of_an_answer_follow_each_other(void **state)
{
#define CALL                                                                                                 \
    BEGINS("tools")                                                                                          \
    BEGINS("call tool=\"set\" index=\"1\"") VALUE("mode", "string", "on") VALUE("n", "number", "5") K_AFTER
    static const struct begun_case cases[] = {
        {TOOLS("true"), "Hm." ENDS("think") BEGINS("response") "Hi." ENDS("response") CALL, true, true},
        {TOOLS("true"), "Hi." ENDS("response") ENDS("message"), false, true},
        {TOOLS("true"), "Hi." ENDS("response") BEGINS("tools") BEGINS("call tool=\"x\""), false, false},
        {TOOLS("true") ANY, ENDS("think") BEGINS("response") ENDS("response") CALL, true, true},
        {TOOLS("true") ANY, ENDS("think") CALL, true, false},
        {TOOLS("true") ANY, ENDS("response") CALL, false, true},
        {FORMAT, "Hm." ENDS("think") BEGINS("response") "{\"ok\":true}", true, true},
        {FORMAT, "{\"ok\":true}", false, true},
        {TOOLS("true") FORMAT, "Hm." ENDS("think") BEGINS("response") ENDS("response") CALL, true, true},
        {"\"thinking\":{\"type\":\"disabled\"},", ENDS("think") BEGINS("response") "Hi.", true, true},
        {"\"thinking\":{\"type\":\"disabled\"},", "Hm." ENDS("think"), true, false}};

    (void)state;
    check_begun_cases(FAMILY("<|open|><|close|><|sep|>"), cases, ARRAY_LEN(cases));
}

/* Functionary 3.2: the prompt ends with the mark of the first part. */
static void a_part_names_its_recipient(void **state)
{
    static const struct {
        const char *fields, *text;
        bool is_taken;
    } cases[] = {{TOOLS("true"), "all\nHi.", true},
                 {TOOLS("true"), "all\nHi.>>>set\n" ARGS ">>>get\n{\"id\": 1}", true},
                 {TOOLS("true"), "set\n" ARGS ">>>set\n" ARGS, true},
                 {TOOLS("true"), "all\nHi.>>>bogus\n{}", false},
                 {TOOLS("true"), "bogus\n{}", false},
                 {TOOLS("true") ANY, "get\n{\"id\": 1}>>>set\n" ARGS, true},
                 {TOOLS("true") ANY, ">>>set\n" ARGS, false},
                 {TOOLS("true") CHOICE("\"type\":\"any\",\"disable_parallel_tool_use\":true"),
                  "set\n" ARGS ">>>set\n" ARGS, false},
                 {TOOLS("true") CHOICE("\"type\":\"none\""), "all\nHi.", true},
                 {TOOLS("true") CHOICE("\"type\":\"none\""), "all\nHi.>>>set\n" ARGS, false},
                 {TOOLS("true") FORMAT, "set\n" ARGS, true}};
    struct gen_model model;

    (void)state;
    assert_int_equal(sim_model_open_with(FAMILY(">>>all\n"), 8192, &model), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ask asked;

        ask(&model, cases[i].fields, false, &asked);
        if (takes(&asked, cases[i].text) != cases[i].is_taken)
            fail_msg("case %zu: %s: %s", i, cases[i].text, (const char *)asked.constraint.data);
        ask_fini(&asked);
    }
    sim_model_close(&model);
}

/* Marks of several tokens do not reach clients, with tools and without. */
static void marks_of_several_tokens_are_dropped(void **state)
{
    static const struct {
        const char *source, *answer, *thinking, *text;
    } cases[] = {
        {FAMILY("<|open|><|close|><|sep|>"),
         BEGINS("think") "Hm." ENDS("think") BEGINS("response") "Hi." ENDS("response") ENDS("message"), "Hm.",
         "Hi."},
        {FAMILY("<|open|><|close|><|sep|>"), BEGINS("response") "Hi." ENDS("response"), "", "Hi."},
        {FAMILY("<|think|><|end|><|begin|><|content|><|tool_call:begin|>"),
         "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hi.<|end|>", "Hm.", "Hi."},
        {FAMILY("<|think|><|end|><|begin|><|content|><|tool_call:begin|>"),
         "<|think|>Hm.<|end|><|content|>Hi.", "Hm.", "Hi."},
        {FAMILY(M " </mm:think>"), "<mm:think>Hm.</mm:think>Hi.", "Hm.", "Hi."},
        {FAMILY(M " </mm:think>"), "</mm:think>Hi.", "", "Hi."},
        {FAMILY(">>>all\n"), "all\nHi. >>> x", "", "Hi. >>> x"},
    };

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        size_t c = i / 2;
        struct sink sink = {.n_calls = 0};
        struct token_ids ids = {0};
        struct gen_model model;
        struct answer *answer;
        struct ask asked;

        assert_int_equal(sim_model_open_with(cases[c].source, 4096, &model), 0);
        ask(&model, i % 2 == 0 ? "" : TOOLS("true"), false, &asked);
        const struct answer_opts opts = {.scratch = &scratch, .model = &model, .request = &asked.request};
        assert_int_equal(answer_new(&opts, &sink_all, &sink, &answer), 0);
        assert_int_equal(
            tokenizer_encode(model.tokenizer, bytes_str(cases[c].answer), TOKEN_PARSE_SPECIAL, 10000, &ids),
            0);
        assert_int_equal(answer_push(answer, ids.ids, ids.n), 0);
        assert_int_equal(answer_finish(answer, GEN_STOP_END_TURN), 0);
        if (!bytes_is(buf_view(&sink.text), cases[c].text) ||
            !bytes_is(buf_view(&sink.thinking), cases[c].thinking))
            fail_msg("%s: ~%.*s~%.*s", cases[c].answer, (int)sink.thinking.len_bytes,
                     (const char *)sink.thinking.data, (int)sink.text.len_bytes,
                     (const char *)sink.text.data);
        answer_free(answer);
        sink_fini(&sink);
        token_ids_fini(&ids);
        ask_fini(&asked);
        sim_model_close(&model);
    }
}

/* What the constraint lets a model write is read as the schema says. */
struct read_case {
    const char *source, *before, *after;
    const char *schema; /* of the argument v, and definitions */
    const char *value;
    const char *read; /* NULL: the constraint does not let it through */
};

static void check_read(const struct read_case *one)
{
    struct sink sink = {.n_calls = 0};
    struct token_ids ids = {0};
    struct gen_model model;
    struct answer *answer;
    struct ask asked;
    char fields[24000], text[1024];

    snprintf(
        fields, sizeof(fields),
        "\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true},\"tools\":[{\"name\":\"f\","
        "\"input_schema\":{\"type\":\"object\",\"properties\":{\"v\":%s,\"required\":[\"v\"]}}],",
        one->schema);
    snprintf(text, sizeof(text), "%s%s%s", one->before, one->value, one->after);
    assert_int_equal(sim_model_open_with(one->source, 4096, &model), 0);
    ask(&model, fields, false, &asked);
    if (takes(&asked, text) != (one->read != NULL))
        fail_msg("%s: %s: %s", one->schema, text, (const char *)asked.constraint.data);
    const struct answer_opts opts = {.scratch = &scratch, .model = &model, .request = &asked.request};
    assert_int_equal(answer_new(&opts, &sink_all, &sink, &answer), 0);
    assert_int_equal(tokenizer_encode(model.tokenizer, bytes_str(text), TOKEN_PARSE_SPECIAL, 10000, &ids), 0);
    assert_true(answer_push(answer, ids.ids, ids.n) >= 0);
    (void)answer_finish(answer, GEN_STOP_END_TURN);
    if (one->read != NULL && !bytes_is(buf_view(&sink.arguments), one->read))
        fail_msg("%s: %s: %.*s", one->schema, text, (int)sink.arguments.len_bytes,
                 (const char *)sink.arguments.data);
    answer_free(answer);
    sink_fini(&sink);
    token_ids_fini(&ids);
    ask_fini(&asked);
    sim_model_close(&model);
}

#define K_ONE FAMILY("<|open|><|close|><|sep|>"), K_BEFORE, K_AFTER
#define M_ONE FAMILY(M), M "<tool_call>\n" M "<invoke name=\"f\">", M "</invoke>\n" M "</tool_call>"
#define X_ONE FAMILY("<tool_call> <function="), "<tool_call>\n<function=f>\n", "</function>\n</tool_call>"
#define D_ONE                                                                                                \
    FAMILY(BAR "DSML" BAR " function_calls>"),                                                               \
        D_TAG("function_calls>") "\n" D_TAG("invoke name=\"f\">") "\n",                                      \
        D_END("invoke") "\n" D_END("function_calls")
#define X_VALUE(text) "<parameter=v>\n" text "\n</parameter>\n"
#define MODEL_O       "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"}},\"required\":[\"s\"]}"

#define TWO_LIMITS                                                                                           \
    "{\"allOf\":[{\"type\":\"string\",\"maxLength\":5},{\"maxLength\":3},{\"minLength\":1}],\"minLength\":"  \
    "2}}"
#define TWO_MODELS                                                                                           \
    "{\"anyOf\":[" MODEL_O ",{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}]}}"
/* With much text beside it, so that the parser has the short form of it. */
#define X16(text) text text text text text text text text text text text text text text text text
#define LONG(schema)                                                                                         \
    schema "},\"title\":\"" X16(                                                                             \
        X16("0123456789012345678901234567890123456789012345678901234567890123456789")) "\""

static void values_are_read_as_their_schema_says(void **state)
{
    static const struct read_case cases[] = {
        {X_ONE, "{\"enum\":[1,\"auto\"]}}", X_VALUE("auto"), "{\"v\": \"auto\"}"},
        {X_ONE, "{\"enum\":[1,\"auto\"]}}", X_VALUE("1"), "{\"v\": 1}"},
        {X_ONE, "{\"enum\":[\"auto\",1]}}", X_VALUE("1"), "{\"v\": 1}"},
        {X_ONE, "{\"enum\":[1,\"auto\"]}}", X_VALUE("\"auto\""), NULL},
        {K_ONE, "{\"enum\":[1,\"auto\"]}}", VALUE("v", "string", "auto"), "{\"v\": \"auto\"}"},
        {K_ONE, "{\"enum\":[1,null]}}", VALUE("v", "null", "null"), "{\"v\": null}"},
        {M_ONE, "{\"enum\":[1,\"auto\"]}}", IN("v", "auto"), "{\"v\": \"auto\"}"},
        {M_ONE, "{\"anyOf\":[" MODEL_O ",{\"type\":\"null\"}]}}", IN("v", IN("s", "3")),
         "{\"v\": {\"s\": \"3\"}}"},
        {M_ONE, "{\"anyOf\":[{\"$ref\":\"#/$defs/M\"},{\"type\":\"null\"}]}},\"$defs\":{\"M\":" MODEL_O "}",
         IN("v", IN("s", "3")), "{\"v\": {\"s\": \"3\"}}"},
        {M_ONE, "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"string\"}},{\"type\":\"null\"}]}}",
         IN("v", IN("item", "3")), "{\"v\": [\"3\"]}"},
        {M_ONE,
         "{\"type\":\"object\",\"properties\":{\"item\":{\"type\":\"string\"}},\"required\":[\"item\"]}}",
         IN("v", IN("item", "3")), "{\"v\": {\"item\": \"3\"}}"},
        {X_ONE, "{\"allOf\":[{\"type\":\"string\",\"maxLength\":3}]}}", X_VALUE("abc"), "{\"v\": \"abc\"}"},
        {K_ONE, "{\"allOf\":[{\"type\":\"string\",\"maxLength\":3}]}}", VALUE("v", "string", "abcd"), NULL},
        {K_ONE, "{\"allOf\":[{\"type\":\"integer\"}]}}", VALUE("v", "string", "abcd"), NULL},
        {K_ONE, "{\"allOf\":[{\"type\":\"integer\"}]}}", VALUE("v", "number", "3"), "{\"v\": 3}"},
        {K_ONE, "{\"allOf\":[{\"enum\":[\"red\"]}],\"description\":\"d\"}}", VALUE("v", "string", "blue"),
         NULL},
        {K_ONE, "{\"allOf\":[{\"enum\":[\"red\"]}],\"description\":\"d\"}}", VALUE("v", "string", "red"),
         "{\"v\": \"red\"}"},
        {M_ONE, "{\"allOf\":[" MODEL_O "]}}", IN("v", IN("s", "3")), "{\"v\": {\"s\": \"3\"}}"},
        {K_ONE, TWO_LIMITS, VALUE("v", "string", "abcd"), NULL},
        {K_ONE, TWO_LIMITS, VALUE("v", "string", "abc"), "{\"v\": \"abc\"}"},
        {K_ONE, TWO_LIMITS, VALUE("v", "number", "3"), NULL},
        {X_ONE, TWO_LIMITS, X_VALUE("123"), "{\"v\": \"123\"}"},
        {X_ONE, TWO_LIMITS, X_VALUE("1234"), NULL},
        {M_ONE, TWO_LIMITS, IN("v", "12"), "{\"v\": \"12\"}"},
        {D_ONE, TWO_LIMITS, D_VALUE("v", "false", "\"123\""), "{\"v\": \"123\"}"},
        {M_ONE, TWO_MODELS, IN("v", IN("s", "3")), NULL},
        {M_ONE, TWO_MODELS, IN("v", "{\"n\": 3}"), "{\"v\": {\"n\": 3}}"},
        {M_ONE, LONG(MODEL_O), IN("v", IN("s", "3")), NULL},
        {M_ONE, LONG(MODEL_O), IN("v", "{\"s\": \"3\"}"), "{\"v\": {\"s\": \"3\"}}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_read(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_of_their_schema),
        cmocka_unit_test(types_are_those_of_the_values),
        cmocka_unit_test(values_may_end_at_any_characters),
        cmocka_unit_test(parts_of_an_answer_follow_each_other),
        cmocka_unit_test(a_part_names_its_recipient),
        cmocka_unit_test(values_are_read_as_their_schema_says),
        cmocka_unit_test(marks_of_several_tokens_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
