/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of arguments that no JSON object surrounds, by schemas whose parts refer to each other, or which say more of
 * a value in several places.  What the constraint lets a model write is read as a value of the schema. */
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

static struct answer_scratch scratch;

struct form { /* how a family writes a call of f */
    const char *source, *before, *after;
};

#define M          "]<]minimax[>["
#define BAR        "\xef\xbd\x9c"
#define Q          "<|\"|>"
#define K_TAG(tag) "<|open|>" tag "<|sep|>"
#define K_END(tag) "<|close|>" tag "<|sep|>"
static const struct form xml = {FAMILY("<tool_call> <function="), "<tool_call>\n<function=f>\n",
                                "</function>\n</tool_call>"};
static const struct form elements = {FAMILY(M), M "<tool_call>\n" M "<invoke name=\"f\">",
                                     M "</invoke>\n" M "</tool_call>"};
static const struct form braces = {FAMILY("<|tool_call>"), "<|tool_call>call:f{", "}<tool_call|>"};
static const struct form keywords = {FAMILY("<|tool_call_start|>"), "<|tool_call_start|>[f(",
                                     ")]<|tool_call_end|>"};
static const struct form kinds = {FAMILY("<|open|><|close|><|sep|>"),
                                  K_END("response") K_TAG("tools") K_TAG("call tool=\"f\" index=\"1\""),
                                  K_END("call") K_END("tools")};
#define X(key, text)       "<parameter=" key ">\n" text "\n</parameter>\n"
#define E(key, text)       M "<" key ">" text M "</" key ">"
#define K(key, type, text) K_TAG("argument key=\"" key "\" type=\"" type "\"") text K_END("argument")

struct schema_case {
    const struct form *form;
    const char *schema, *arguments;
    const char *read; /* NULL: the constraint does not let the arguments through */
};

static void ask_for(const struct gen_model *model, const char *schema, struct ask *out)
{
    struct buf fields = {0};

    buf_printf(&fields,
               "\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"tools\":[{\"type\":\"function\","
               "\"function\":{\"name\":\"f\",\"parameters\":%s}}],",
               schema);
    buf_append_byte(&fields, '\0');
    ask(model, (const char *)fields.data, false, out);
    buf_fini(&fields);
}

static void check_case(const struct schema_case *one)
{
    struct sink sink = {.n_calls = 0};
    struct token_ids ids = {0};
    struct gen_model model;
    struct answer *answer;
    struct ask asked;
    char text[2048];

    snprintf(text, sizeof(text), "%s%s%s", one->form->before, one->arguments, one->form->after);
    assert_int_equal(sim_model_open_with(one->form->source, 4096, &model), 0);
    ask_for(&model, one->schema, &asked);
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

static void check_cases(const struct schema_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_case(&cases[i]);
}

#define TREE                                                                                                 \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},\"kids\":{\"type\":\"array\","        \
    "\"items\":{\"$ref\":\"#\"}}},\"required\":[\"n\"]}"
#define CHAIN                                                                                                \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},\"next\":{\"$ref\":\"#\"}},"          \
    "\"required\":[\"n\"]}"
#define BESIDE                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"       \
    "\"integer\"}},\"required\":[\"x\"]},\"b\":{\"type\":\"array\",\"items\":{\"$ref\":"                     \
    "\"#/properties/a\"}}},\"required\":[\"b\"]}"
#define SPELT                                                                                                \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/x~1y\"},\"b\":{\"$ref\":"                \
    "\"#/$defs/l%20l/anyOf/1\"}},\"required\":[\"a\"],\"$defs\":{\"x/y\":{\"enum\":[3]},\"l l\":{\"anyOf\":" \
    "[{},{\"enum\":[\"4\"]}]}}}"

/* A reference leads into the tool's schema, also within an argument. */
static void references_lead_into_the_tools_schema(void **state)
{
    static const struct schema_case cases[] = {
        {&xml, TREE, X("n", "1") X("kids", "[{\"n\": 2, \"kids\": [{\"n\": 3}]}]"),
         "{\"n\": 1, \"kids\": [{\"n\": 2, \"kids\": [{\"n\": 3}]}]}"},
        {&xml, TREE, X("n", "1") X("kids", "[[]]"), NULL},
        {&kinds, TREE, K("n", "number", "1") K("kids", "array", "[{\"n\": 2}]"),
         "{\"n\": 1, \"kids\": [{\"n\": 2}]}"},
        {&kinds, TREE, K("n", "number", "1") K("kids", "array", "[[]]"), NULL},
        {&elements, TREE, E("n", "1") E("kids", E("item", E("n", "2"))),
         "{\"n\": 1, \"kids\": [{\"n\": 2}]}"},
        {&elements, TREE, E("n", "1") E("kids", E("item", "[]")), NULL},
        {&braces, TREE, "n:1,kids:[{n:2}]", "{\"n\": 1, \"kids\": [{\"n\": 2}]}"},
        {&braces, TREE, "n:1,kids:[[]]", NULL},
        {&keywords, TREE, "n=1, kids=[{\"n\": 2}]", "{\"n\": 1, \"kids\": [{\"n\": 2}]}"},
        {&keywords, TREE, "n=1, kids=[[]]", NULL},
        {&xml, CHAIN, X("n", "1") X("next", "{\"n\": 2, \"next\": {\"n\": 3}}"),
         "{\"n\": 1, \"next\": {\"n\": 2, \"next\": {\"n\": 3}}}"},
        {&xml, CHAIN, X("n", "1") X("next", "5"), NULL},
        {&keywords, CHAIN, "n=1, next={\"n\": 2}", "{\"n\": 1, \"next\": {\"n\": 2}}"},
        {&elements, CHAIN, E("n", "1") E("next", E("n", "2")), "{\"n\": 1, \"next\": {\"n\": 2}}"},
        {&xml, BESIDE, X("b", "[{\"x\": 1}]"), "{\"b\": [{\"x\": 1}]}"},
        {&xml, BESIDE, X("b", "[1]"), NULL},
        {&keywords, BESIDE, "b=[{\"x\": 1}]", "{\"b\": [{\"x\": 1}]}"},
        {&xml, SPELT, X("a", "3") X("b", "4"), "{\"a\": 3, \"b\": \"4\"}"},
        {&xml, SPELT, X("a", "4"), NULL},
        {&xml, SPELT, X("a", "3") X("b", "5"), NULL},
    };

    (void)state;
    check_cases(cases, ARRAY_LEN(cases));
}

/* Equal arguments of two tools are different schemas if they refer to different definitions. */
static void references_of_two_tools_are_apart(void **state)
{
#define LIST_OF(type)                                                                                        \
    "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d/a\"}}}," \
    "\"required\":[\"v\"],\"$defs\":{\"d\":{\"a\":{\"type\":\"" type "\"}}}}"
    struct gen_model model;
    struct ask asked;

    (void)state;
    assert_int_equal(sim_model_open_with(keywords.source, 4096, &model), 0);
    ask(&model,
        ANY "\"tools\":[{\"name\":\"f\",\"input_schema\":" LIST_OF(
            "integer") "},{\"name\":\"g\","
                       "\"input_schema\":" LIST_OF("null") "},{\"name\":\"h\",\"input_schema\":" LIST_OF(
                           "integer") "}],",
        false, &asked);
    assert_true(takes(&asked, "<|tool_call_start|>[f(v=[1]), g(v=[null]), h(v=[1])]<|tool_call_end|>"));
    assert_false(takes(&asked, "<|tool_call_start|>[f(v=[null])]<|tool_call_end|>"));
    assert_false(takes(&asked, "<|tool_call_start|>[g(v=[1])]<|tool_call_end|>"));
    assert_false(takes(&asked, "<|tool_call_start|>[h(v=[null])]<|tool_call_end|>"));
    ask_fini(&asked);
    sim_model_close(&model);
}

#define OF_V(schema)                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"v\":" schema                                                     \
    "},\"required\":[\"v\"],\"$defs\":{\"S\":{\"type\":"                                                     \
    "\"string\",\"minLength\":2},\"N\":{\"type\":\"integer\",\"minimum\":0},\"L\":{\"type\":\"array\","      \
    "\"items\":"                                                                                             \
    "{\"type\":\"string\"}},\"P\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"}}}}}"
#define SHORT     OF_V("{\"$ref\":\"#/$defs/S\",\"maxLength\":3}")
#define SMALL     OF_V("{\"$ref\":\"#/$defs/N\",\"maximum\":3}")
#define ONE_ITEM  OF_V("{\"$ref\":\"#/$defs/L\",\"maxItems\":1}")
#define NEEDS_S   OF_V("{\"$ref\":\"#/$defs/P\",\"required\":[\"s\"]}")
#define SHORT_ONE OF_V("{\"type\":\"string\",\"enum\":[\"abcd\",\"b\",null],\"maxLength\":1}")
#define MIXED     OF_V("{\"enum\":[\"abcd\",\"b\",20,7],\"maxLength\":1,\"maximum\":9}")
#define BETWEEN                                                                                              \
    OF_V(                                                                                                    \
        "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}],\"exclusiveMinimum\":10," \
        "\"exclusiveMaximum\":13}")
#define BOTH                                                                                                 \
    OF_V("{\"anyOf\":[{\"minLength\":2},{\"pattern\":\"^x$\"}],\"oneOf\":[{\"type\":\"string\","             \
         "\"maxLength\":3},{"                                                                                \
         "\"type\":\"null\"}]}")
#define NULLABLE    OF_V("{\"type\":\"string\",\"maxLength\":5,\"nullable\":true}")
#define REF_OR_NULL OF_V("{\"$ref\":\"#/$defs/S\",\"minLength\":5,\"nullable\":true}")
#define ITEM_OR_NULL                                                                                         \
    OF_V("{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/S\",\"minLength\":5,\"nullable\":true}}")
#define ALL_OR_NULL OF_V("{\"allOf\":[{\"$ref\":\"#/$defs/N\"},{\"minimum\":4}],\"nullable\":true}")
#define NEVER_NULL                                                                                           \
    OF_V("{\"allOf\":[{\"type\":\"string\",\"nullable\":true},{\"type\":\"string\",\"minLength\":5}]}")
#define APART    OF_V("{\"type\":[\"integer\",\"null\"],\"anyOf\":[{\"type\":\"string\"},{\"maximum\":5}]}")
#define EXACT    OF_V("{\"enum\":[9007199254740992,9007199254740993],\"minimum\":9007199254740993}")
#define TYPELESS OF_V("{\"minLength\":2,\"maxLength\":3}")
#define SPELT_OR_NULL                                                                                        \
    OF_V("{\"type\":\"string\",\"nullable\":true,\"enum\":[\"1\",\"True\",\"[]\",\"None\"]}")
#define LISTED_OR_NULL OF_V("{\"type\":[\"string\",\"null\"],\"enum\":[\"1\",\"null\",null]}")
#define WORD_OR_NULL   OF_V("{\"anyOf\":[{\"type\":\"string\",\"enum\":[\"1\",\"True\"]},{\"type\":\"null\"}]}")
#define WORD_OR_REAL   OF_V("{\"anyOf\":[{\"enum\":[\"1\",\"True\"]},{\"type\":\"number\",\"minimum\":2}]}")
#define TWICE          OF_V("{\"allOf\":[{\"$ref\":\"#/$defs/S\"},{\"enum\":[\"a\",\"abc\"]}]}")

static const struct schema_case beside_others[] = {
    {&xml, SHORT, X("v", "abc"), "{\"v\": \"abc\"}"},
    {&xml, SHORT, X("v", "abcd"), NULL},
    {&xml, SHORT, X("v", "a"), NULL},
    {&kinds, SHORT, K("v", "string", "abc"), "{\"v\": \"abc\"}"},
    {&kinds, SHORT, K("v", "string", "abcd"), NULL},
    {&elements, SHORT, E("v", "abc"), "{\"v\": \"abc\"}"},
    {&elements, SHORT, E("v", "abcd"), NULL},
    {&braces, SHORT, "v:" Q "abc" Q, "{\"v\": \"abc\"}"},
    {&braces, SHORT, "v:" Q "abcd" Q, NULL},
    {&keywords, SHORT, "v=\"abcd\"", NULL},
    {&xml, SMALL, X("v", "3"), "{\"v\": 3}"},
    {&xml, SMALL, X("v", "4"), NULL},
    {&xml, SMALL, X("v", "-1"), NULL},
    {&kinds, SMALL, K("v", "number", "4"), NULL},
    {&elements, ONE_ITEM, E("v", "[\"5\"]"), "{\"v\": [\"5\"]}"},
    {&elements, ONE_ITEM, E("v", "[\"5\",\"6\"]"), NULL},
    {&braces, ONE_ITEM, "v:[" Q "5" Q "]", "{\"v\": [\"5\"]}"},
    {&braces, ONE_ITEM, "v:[" Q "5" Q "," Q "6" Q "]", NULL},
    {&elements, NEEDS_S, E("v", "{\"s\":\"5\"}"), "{\"v\": {\"s\": \"5\"}}"},
    {&elements, NEEDS_S, E("v", "{}"), NULL},
    {&braces, NEEDS_S, "v:{s:" Q "5" Q "}", "{\"v\": {\"s\": \"5\"}}"},
    {&braces, NEEDS_S, "v:{}", NULL},
    {&xml, SHORT_ONE, X("v", "b"), "{\"v\": \"b\"}"},
    {&xml, SHORT_ONE, X("v", "abcd"), NULL},
    {&xml, SHORT_ONE, X("v", "null"), NULL},
    {&braces, SHORT_ONE, "v:" Q "b" Q, "{\"v\": \"b\"}"},
    {&braces, SHORT_ONE, "v:null", NULL},
    {&xml, MIXED, X("v", "b"), "{\"v\": \"b\"}"},
    {&xml, MIXED, X("v", "7"), "{\"v\": 7}"},
    {&xml, MIXED, X("v", "20"), NULL},
    {&xml, BETWEEN, X("v", "11"), "{\"v\": 11}"},
    {&xml, BETWEEN, X("v", "x"), "{\"v\": \"x\"}"},
    {&xml, BETWEEN, X("v", "0"), NULL},
    {&xml, BETWEEN, X("v", "xx"), NULL},
    {&xml, BOTH, X("v", "abc"), "{\"v\": \"abc\"}"},
    {&xml, BOTH, X("v", "x"), "{\"v\": \"x\"}"},
    {&xml, BOTH, X("v", "y"), NULL},
    {&xml, BOTH, X("v", "abcd"), NULL},
    {&xml, NULLABLE, X("v", "null"), "{\"v\": null}"},
    {&xml, NULLABLE, X("v", "abc"), "{\"v\": \"abc\"}"},
    {&xml, NULLABLE, X("v", "abcdef"), NULL},
    {&kinds, NULLABLE, K("v", "null", "null"), "{\"v\": null}"},
    {&xml, REF_OR_NULL, X("v", "null"), "{\"v\": null}"},
    {&xml, REF_OR_NULL, X("v", "nulls"), "{\"v\": \"nulls\"}"},
    {&kinds, REF_OR_NULL, K("v", "null", "null"), "{\"v\": null}"},
    {&kinds, REF_OR_NULL, K("v", "string", "null"), NULL},
    {&elements, REF_OR_NULL, E("v", "null"), "{\"v\": null}"},
    {&elements, ITEM_OR_NULL, E("v", E("item", "null") E("item", "nulls")), "{\"v\": [null, \"nulls\"]}"},
    {&elements, ITEM_OR_NULL, E("v", E("item", "four")), NULL},
    {&braces, REF_OR_NULL, "v:null", "{\"v\": null}"},
    {&xml, ALL_OR_NULL, X("v", "null"), "{\"v\": null}"},
    {&xml, ALL_OR_NULL, X("v", "3"), NULL},
    {&xml, NEVER_NULL, X("v", "null"), NULL},
    {&xml, APART, X("v", "5"), "{\"v\": 5}"},
    {&xml, APART, X("v", "null"), "{\"v\": null}"},
    {&xml, APART, X("v", "a"), NULL},
    {&kinds, APART, K("v", "string", "a"), NULL},
    {&xml, EXACT, X("v", "9007199254740993"), "{\"v\": 9007199254740993}"},
    {&xml, EXACT, X("v", "9007199254740992"), NULL},
    {&xml, TYPELESS, X("v", "abc"), "{\"v\": \"abc\"}"},
    {&xml, TYPELESS, X("v", "\"abc\""), NULL},
    {&xml, TYPELESS, X("v", "[1]"), NULL},
    {&xml, TWICE, X("v", "abc"), "{\"v\": \"abc\"}"},
    {&xml, TWICE, X("v", "a"), NULL},
};

/* Keywords beside a reference, an enum or alternatives hold for the value, too. */
static void keywords_beside_others_hold(void **state)
{
    (void)state;
    check_cases(beside_others, ARRAY_LEN(beside_others));
}

#define ROOT_REF                                                                                             \
    "{\"type\":\"object\",\"$ref\":\"#/$defs/"                                                               \
    "A\",\"$defs\":{\"A\":{\"type\":\"object\",\"properties\":{\"x\":{"                                      \
    "\"type\":\"string\"}},\"required\":[\"x\"]}}}"
#define ROOT_ALL_OF                                                                                          \
    "{\"type\":\"object\",\"allOf\":[{\"$ref\":\"#/$defs/"                                                   \
    "A\"},{\"properties\":{\"y\":{\"type\":\"array\",\"items\":{"                                            \
    "\"type\":\"string\"}}},\"required\":[\"y\"]}],\"$defs\":{\"A\":{\"type\":\"object\",\"properties\":{"   \
    "\"x\":{"                                                                                                \
    "\"type\":\"string\"}},\"required\":[\"x\"]}}}"
#define ROOT_ONE_OF                                                                                          \
    "{\"type\":\"object\",\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"1\"},\"x\":{"   \
    "\"type\":"                                                                                              \
    "\"string\"}},\"required\":[\"k\",\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}}" \
    ","                                                                                                      \
    "\"required\":[\"k\"]}]}"
#define ONE_NEEDED                                                                                           \
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},\"mail\":{\"type\":\"string\"}},"    \
    "\"anyOf\":["                                                                                            \
    "{\"required\":[\"id\"]},{\"required\":[\"mail\"]}]}"
#define UNDECLARED                                                                                           \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\",\"b\"]}"
#define MAP_OF_LISTS                                                                                         \
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"    \
    "\"required\":[\"n\"]}"
#define MAP "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"required\":[\"n\"]}"
/* Keywords at the root of a tool's schema hold for the arguments, and their types are known to the parser. */
static void keywords_at_the_root_hold(void **state)
{
    static const struct schema_case cases[] = {
        {&xml, ROOT_REF, X("x", "12345"), "{\"x\": \"12345\"}"},
        {&xml, ROOT_REF, "", NULL},
        {&kinds, ROOT_REF, K("x", "string", "1"), "{\"x\": \"1\"}"},
        {&elements, ROOT_REF, E("x", "1"), "{\"x\": \"1\"}"},
        {&braces, ROOT_REF, "x:" Q "1" Q, "{\"x\": \"1\"}"},
        {&keywords, ROOT_REF, "x=\"1\"", "{\"x\": \"1\"}"},
        {&keywords, ROOT_REF, "", NULL},
        {&xml, ROOT_ALL_OF, X("x", "12345") X("y", "[\"1\"]"), "{\"x\": \"12345\", \"y\": [\"1\"]}"},
        {&xml, ROOT_ALL_OF, X("x", "12345"), NULL},
        {&xml, ROOT_ALL_OF, X("y", "[\"1\"]"), NULL},
        {&elements, ROOT_ALL_OF, E("x", "1") E("y", "[\"1\"]"), "{\"x\": \"1\", \"y\": [\"1\"]}"},
        {&elements, ROOT_ALL_OF, E("x", "1") E("y", E("item", "1")), NULL},
        {&braces, ROOT_ALL_OF, "x:" Q "1" Q ",y:[" Q "1" Q "]", "{\"x\": \"1\", \"y\": [\"1\"]}"},
        {&keywords, ROOT_ALL_OF, "x=\"1\", y=[\"1\"]", "{\"x\": \"1\", \"y\": [\"1\"]}"},
        {&xml, ROOT_ONE_OF, X("k", "1") X("x", "2"), "{\"k\": \"1\", \"x\": \"2\"}"},
        {&xml, ROOT_ONE_OF, X("k", "b"), "{\"k\": \"b\"}"},
        {&xml, ROOT_ONE_OF, X("k", "1"), NULL},
        {&xml, ROOT_ONE_OF, X("k", "b") X("x", "2"), NULL},
        {&kinds, ROOT_ONE_OF, K("k", "string", "1") K("x", "string", "2"), "{\"k\": \"1\", \"x\": \"2\"}"},
        {&elements, ROOT_ONE_OF, E("k", "1") E("x", "2"), "{\"k\": \"1\", \"x\": \"2\"}"},
        {&elements, ROOT_ONE_OF, E("k", "1"), NULL},
        {&braces, ROOT_ONE_OF, "k:" Q "b" Q, "{\"k\": \"b\"}"},
        {&braces, ROOT_ONE_OF, "k:" Q "1" Q, NULL},
        {&keywords, ROOT_ONE_OF, "k=\"1\", x=\"2\"", "{\"k\": \"1\", \"x\": \"2\"}"},
        {&keywords, ROOT_ONE_OF, "k=\"1\"", NULL},
        {&xml, ONE_NEEDED, X("id", "1"), "{\"id\": 1}"},
        {&xml, ONE_NEEDED, X("mail", "1"), "{\"mail\": \"1\"}"},
        {&xml, ONE_NEEDED, X("id", "1") X("mail", "1"), "{\"id\": 1, \"mail\": \"1\"}"},
        {&xml, ONE_NEEDED, "", NULL},
        {&braces, ONE_NEEDED, "mail:" Q "1" Q, "{\"mail\": \"1\"}"},
        {&braces, ONE_NEEDED, "", NULL},
        {&keywords, ONE_NEEDED, "id=1, mail=\"1\"", "{\"id\": 1, \"mail\": \"1\"}"},
        {&keywords, ONE_NEEDED, "", NULL},
        {&xml, UNDECLARED, X("a", "1") X("b", "[1]"), "{\"a\": 1, \"b\": [1]}"},
        {&xml, UNDECLARED, X("a", "1"), NULL},
        {&keywords, UNDECLARED, "a=1, b=null", "{\"a\": 1, \"b\": null}"},
        {&keywords, UNDECLARED, "a=1", NULL},
        {&xml, MAP, X("n", "1"), "{\"n\": 1}"},
        {&xml, MAP, X("n", "x"), NULL},
        {&xml, MAP, "", NULL},
        {&elements, MAP, E("n", "1"), "{\"n\": 1}"},
        {&braces, MAP, "n:1", "{\"n\": 1}"},
        {&elements, MAP_OF_LISTS, E("n", "[\"1\"]"), "{\"n\": [\"1\"]}"},
        {&elements, MAP_OF_LISTS, E("n", E("item", "1")), NULL},
        {&keywords, "{\"type\":\"object\",\"properties\":{\"a\":false}}", "a=1, ", NULL},
        {&keywords, "{\"type\":\"object\",\"properties\":{\"a\":false}}", "", "{}"},
    };

    (void)state;
    check_cases(cases, ARRAY_LEN(cases));
}

#define OF_A    "\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]"
#define NO_TYPE "{" OF_A ",\"nullable\":true}"
#define REF_NO_TYPE                                                                                          \
    "{\"$ref\":\"#/$defs/o\",\"nullable\":true,\"$defs\":{\"o\":{\"type\":[\"object\",\"null\"]," OF_A "}}}"
#define SOME_OBJECTS "{\"anyOf\":[{\"type\":\"null\"},{" OF_A "},{\"const\":5},{\"enum\":[\"a\"]}]}"
#define ONE_OBJECT   "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"object\"," OF_A "},{\"const\":5}]}"
/* Arguments are an object, whatever else the schema allows. */
static void arguments_are_objects(void **state)
{
    static const struct schema_case cases[] = {
        {&xml, NO_TYPE, X("a", "1"), "{\"a\": 1}"},
        {&xml, NO_TYPE, "", NULL},
        {&keywords, REF_NO_TYPE, "a=1", "{\"a\": 1}"},
        {&keywords, REF_NO_TYPE, "", NULL},
        {&kinds, REF_NO_TYPE, K("a", "number", "1"), "{\"a\": 1}"},
        {&elements, REF_NO_TYPE, E("a", "1"), "{\"a\": 1}"},
        {&xml, SOME_OBJECTS, X("a", "1"), "{\"a\": 1}"},
        {&xml, SOME_OBJECTS, "", NULL},
        {&elements, SOME_OBJECTS, E("a", "1"), "{\"a\": 1}"},
        {&braces, SOME_OBJECTS, "a:1", "{\"a\": 1}"},
        {&braces, SOME_OBJECTS, "", NULL},
        {&xml, ONE_OBJECT, X("a", "1"), "{\"a\": 1}"},
        {&keywords, ONE_OBJECT, "", NULL},
        {&xml, "{\"minLength\":3}", "", "{}"},
    };

    (void)state;
    check_cases(cases, ARRAY_LEN(cases));
}

/* A word that looks like a type that the schema does not allow is read as a string. */
static void words_may_look_like_other_types(void **state)
{
    static const struct schema_case cases[] = {
        {&xml, SPELT_OR_NULL, X("v", "1"), "{\"v\": \"1\"}"},
        {&xml, SPELT_OR_NULL, X("v", "True"), "{\"v\": \"True\"}"},
        {&xml, SPELT_OR_NULL, X("v", "[]"), "{\"v\": \"[]\"}"},
        {&xml, SPELT_OR_NULL, X("v", "None"), NULL},
        {&elements, SPELT_OR_NULL, E("v", "1"), "{\"v\": \"1\"}"},
        {&elements, SPELT_OR_NULL, E("v", "True"), "{\"v\": \"True\"}"},
        {&elements, SPELT_OR_NULL, E("v", "[]"), "{\"v\": \"[]\"}"},
        {&elements, SPELT_OR_NULL, E("v", "None"), NULL},
        {&xml, LISTED_OR_NULL, X("v", "1"), "{\"v\": \"1\"}"},
        {&xml, LISTED_OR_NULL, X("v", "null"), "{\"v\": null}"},
        {&xml, WORD_OR_NULL, X("v", "1"), "{\"v\": \"1\"}"},
        {&xml, WORD_OR_NULL, X("v", "True"), "{\"v\": \"True\"}"},
        {&elements, WORD_OR_NULL, E("v", "1"), "{\"v\": \"1\"}"},
        {&xml, WORD_OR_REAL, X("v", "1"), NULL},
        {&xml, WORD_OR_REAL, X("v", "True"), "{\"v\": \"True\"}"},
        {&xml, WORD_OR_REAL, X("v", "2"), "{\"v\": 2}"},
    };

    (void)state;
    check_cases(cases, ARRAY_LEN(cases));
}

#define TAGS          "\"properties\":{\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}"
#define OF_DEFS(type) "\"$defs\":{\"A\":{" type TAGS "}}}"
#define REF_ALONE     "{\"$ref\":\"#/$defs/A\"," OF_DEFS("\"type\":\"object\",")
#define ALL_ALONE     "{\"allOf\":[{\"$ref\":\"#/$defs/A\"}]," OF_DEFS("\"type\":\"object\",")
#define REF_TAGS      "{\"$ref\":\"#/$defs/A\"," OF_DEFS("")
#define MORE_TAGS                                                                                            \
    "{\"$ref\":\"#/$defs/"                                                                                   \
    "A\",\"properties\":{\"more\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}," OF_DEFS("")
#define SELF_OR_TEXT                                                                                         \
    "{\"properties\":{\"v\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"string\"}]}},\"required\":[\"v\"]}"
/* The parser of the arguments finds their schema behind a root without a type, too. */
static void roots_without_a_type_are_known(void **state)
{
    static const struct schema_case cases[] = {
        {&elements, REF_ALONE, E("tags", E("item", "1")), "{\"tags\": [\"1\"]}"},
        {&elements, ALL_ALONE, E("tags", E("item", "1")), "{\"tags\": [\"1\"]}"},
        {&elements, "{" TAGS "}", E("tags", E("item", "1")), "{\"tags\": [\"1\"]}"},
        {&elements, REF_TAGS, E("tags", E("item", "1")), "{\"tags\": [\"1\"]}"},
        {&elements, "{\"nullable\":true," TAGS "}", E("tags", E("item", "1")), "{\"tags\": [\"1\"]}"},
        {&elements, MORE_TAGS, E("more", E("item", "1")), NULL},
        {&elements, MORE_TAGS, E("more", "[\"1\"]"), "{\"more\": [\"1\"]}"},
        {&xml, REF_ALONE, X("tags", "[\"1\"]"), "{\"tags\": [\"1\"]}"},
        {&braces, REF_ALONE, "tags:[" Q "1" Q "],", "{\"tags\": [\"1\"]}"},
        {&xml, SELF_OR_TEXT, X("v", "5"), NULL},
        {&xml, SELF_OR_TEXT, X("v", "a"), "{\"v\": \"a\"}"},
        {&xml, SELF_OR_TEXT, X("v", "{\"v\": \"5\"}"), "{\"v\": {\"v\": \"5\"}}"},
    };

    (void)state;
    check_cases(cases, ARRAY_LEN(cases));
}

/* Writes the schema of v: 70 words, or alternatives that are words, and then `last`. */
static void put_many(struct buf *out, bool are_words, const char *last)
{
    buf_printf(out, "{\"type\":\"object\",\"properties\":{\"v\":{\"%s\":[", are_words ? "enum" : "anyOf");
    for (unsigned i = 0; i < 70; i++)
        buf_printf(out, are_words ? "\"w%u\"," : "{\"const\":\"w%u\"},", i);
    buf_printf(out, "%s]}},\"required\":[\"v\"]}", last);
    buf_append_byte(out, '\0');
    assert_false(out->is_bad);
}

/* The types of the last of many words and alternatives count, too. */
static void words_and_alternatives_may_be_many(void **state)
{
    struct buf words = {0}, choices = {0};

    (void)state;
    put_many(&words, true, "\"null\",\"7\",null");
    put_many(&choices, false, "{\"const\":\"7\"},{\"type\":\"integer\"}");
    const struct schema_case cases[] = {
        {&xml, (const char *)words.data, X("v", "null"), "{\"v\": null}"},
        {&xml, (const char *)words.data, X("v", "7"), "{\"v\": \"7\"}"},
        {&xml, (const char *)words.data, X("v", "w69"), "{\"v\": \"w69\"}"},
        {&elements, (const char *)words.data, E("v", "null"), "{\"v\": null}"},
        {&xml, (const char *)choices.data, X("v", "7"), "{\"v\": 7}"},
        {&xml, (const char *)choices.data, X("v", "w69"), "{\"v\": \"w69\"}"},
        {&elements, (const char *)choices.data, E("v", "7"), "{\"v\": 7}"},
    };
    check_cases(cases, ARRAY_LEN(cases));
    buf_fini(&words);
    buf_fini(&choices);
}

static void expect_refusal(const struct form *form, const char *schema, const char *message)
{
    struct buf body = {0}, constraint = {0};
    struct api_error error = {0};
    struct gen_request request;
    struct gen_model model;

    assert_int_equal(sim_model_open_with(form->source, 4096, &model), 0);
    buf_printf(
        &body,
        "{\"model\":\"m\",\"max_tokens\":4000,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," ANY
        "\"tools\":[{\"name\":\"f\",\"input_schema\":%s}]}",
        schema);
    assert_int_equal(api_parse_request(buf_view(&body), API_MESSAGES, &request, &error), 0);
    assert_int_equal(constraint_make(&model, &request, false, &constraint, &error), E_FORMAT);
    if (error.status != 400 || strncmp(error.message, message, strlen(message)) != 0)
        fail_msg("%s", error.message);
    gen_request_fini(&request);
    buf_fini(&constraint);
    buf_fini(&body);
    sim_model_close(&model);
}

#define EITHER(a, b) "{\"type\":\"object\",\"anyOf\":[" a "," b "]}"
#define WITH_A(type) "{\"properties\":{\"a\":{\"type\":\"" type "\"}},\"required\":[\"a\"]}"

/* What cannot be written without JSON around it is refused by its name. */
static void schemas_without_a_plain_form_are_named(void **state)
{
    struct buf deep = {0};

    (void)state;
    expect_refusal(&xml, "{\"type\":\"object\",\"enum\":[{\"a\":1}]}", "tools.0.input_schema.enum: ");
    expect_refusal(&keywords, "{\"type\":\"object\",\"const\":{\"a\":1}}", "tools.0.input_schema.enum: ");
    expect_refusal(&xml,
                   EITHER(WITH_A("string"),
                          "{\"properties\":{\"b\":{}},\"required\":[\"a\"],\"additionalProperties\":{"
                          "\"type\":\"integer\"}}"),
                   "tools.0.input_schema.required: ");
    for (unsigned i = 0; i < 10; i++)
        buf_append_str(&deep, "{\"type\":\"object\",\"anyOf\":[{\"required\":[\"a\"]},");
    buf_append_str(&deep, WITH_A("string"));
    for (unsigned i = 0; i < 10; i++)
        buf_append_str(&deep, "]}");
    buf_append_byte(&deep, '\0');
    expect_refusal(&xml, (const char *)deep.data, "tools.0.input_schema.anyOf: nested too deep");
    buf_clear(&deep);
    buf_append_str(&deep, "{\"type\":\"object\",\"properties\":{\"v\":");
    for (unsigned i = 0; i < 10; i++)
        buf_append_str(&deep, "{\"anyOf\":[{\"type\":\"integer\"},");
    buf_append_str(&deep, "{\"type\":\"string\"}");
    for (unsigned i = 0; i < 10; i++)
        buf_append_str(&deep, "]}");
    buf_append_str(&deep, "}}");
    buf_append_byte(&deep, '\0');
    expect_refusal(&xml, (const char *)deep.data, "tools.0.input_schema.properties.v.anyOf: nested too deep");
    buf_fini(&deep);
}

/* Alternatives of references multiply where each is written. */
static void many_alternatives_are_refused(void **state)
{
    struct buf schema = {0};

    (void)state;
    buf_append_str(&schema,
                   "{\"type\":\"object\",\"properties\":{\"v\":{\"$ref\":\"#/$defs/d0\"}},\"$defs\":{");
    for (unsigned i = 0; i < 8; i++) {
        buf_printf(&schema, "\"d%u\":{\"anyOf\":[", i);
        for (unsigned k = 0; k < 60; k++)
            buf_printf(&schema, "%s{\"$ref\":\"#/$defs/d%u\"}", k > 0 ? "," : "", i + 1);
        buf_append_str(&schema, "]},");
    }
    buf_append_str(&schema, "\"d8\":{\"enum\":[\"long enough\"]}}}");
    buf_append_byte(&schema, '\0');
    expect_refusal(&xml, (const char *)schema.data, "tools.0.input_schema.properties.v: too much");
    buf_fini(&schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_lead_into_the_tools_schema),
        cmocka_unit_test(keywords_beside_others_hold),
        cmocka_unit_test(words_may_look_like_other_types),
        cmocka_unit_test(words_and_alternatives_may_be_many),
        cmocka_unit_test(keywords_at_the_root_hold),
        cmocka_unit_test(arguments_are_objects),
        cmocka_unit_test(roots_without_a_type_are_known),
        cmocka_unit_test(schemas_without_a_plain_form_are_named),
        cmocka_unit_test(many_alternatives_are_refused),
        cmocka_unit_test(references_of_two_tools_are_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
