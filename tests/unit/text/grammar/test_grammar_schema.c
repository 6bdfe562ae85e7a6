/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that schemas accept and refuse; refused schemas with their paths. */
#include "tests/unit/text/grammar/grammar_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/unit/check.h"

static struct grammar_vocab *vocab;
static struct tokenizer *tokenizer;

struct row {
    const char *schema;
    const char *taken[8], *not_taken[12]; /* end in NULL */
};

static int set_up(void **state)
{
    (void)state;
    vocab = small_vocab(&tokenizer);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
    return 0;
}

static bool takes(const char *schema, const char *text)
{
    struct buf constraint = {0};

    buf_printf(&constraint, "{\"json\": %s}", schema);
    bool is_taken = grammar_takes(vocab, tokenizer, (const char *)constraint.data, text);
    buf_fini(&constraint);
    return is_taken;
}

static void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (const char *const *text = rows[i].taken; *text != NULL; text++)
            if (!takes(rows[i].schema, *text))
                fail_msg("%s does not take %s", rows[i].schema, *text);
        for (const char *const *text = rows[i].not_taken; *text != NULL; text++)
            if (takes(rows[i].schema, *text))
                fail_msg("%s takes %s", rows[i].schema, *text);
    }
}
#define CHECK(rows) check_rows(rows, sizeof(rows) / sizeof((rows)[0]))

static void values(void **state)
{
    static const struct row rows[] = {
        {"true",
         {"{}", "[1, 2.5e-7, -0, \"x\"]", "{\"a\": {\"b\": [\n  true,\n\tnull]}}", "\"\\ud83d\\ude00 \\n é\"",
          "-12.5"},
         {"", "01", "1.", ".5", "+1", "{\"a\":1,}", "[1,,2]", "\"\\x\""}},
        {"{\"type\": \"string\"}",
         {"\"\"", "\"\\u00e9\\/\"", "\"\\uD83D\\uDE00\"", "\"日本\""},
         {"\"\\ud83d\"", "\"\\ude00\"", "\"\\u0000\"", "\"\n\"", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\""}},
        {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
         {"\"ab\"", "\"abc\"", "\"日é\"", "\"\\ud83d\\ude00\\n\""},
         {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
        {"{\"type\": \"integer\"}",
         {"0", "-5", "123456789012345678"},
         {"1.0", "1e5", "00", "1234567890123456789"}},
        {"{\"type\": \"number\"}", {"1.50", "1e5", "-0.1E-2"}, {"1e100", "e5", "--1"}},
        {"{\"type\": \"boolean\"}", {"true", "false"}, {"null", "tru"}},
        {"{\"type\": [\"null\", \"integer\"]}", {"null", "3"}, {"true"}},
        {"{\"type\": \"integer\", \"nullable\": true}", {"null", "3"}, {"true"}},
        {"{\"enum\": [\"a\", \"ab\", 12, null, {\"x\": [1]}]}",
         {"\"a\"", "\"ab\"", "12", "{\"x\":[1]}"},
         {"\"b\"", "1"}},
        {"{\"type\": \"string\", \"enum\": [\"a\", 1]}", {"\"a\""}, {"1"}},
        {"{\"enum\": [1, 5, 9], \"minimum\": 4, \"exclusiveMaximum\": 9}", {"5"}, {"1", "9"}},
        {"{\"const\": \"x\\ny\"}", {"\"x\\ny\""}, {"\"x\""}},
    };

    (void)state;
    CHECK(rows);
}

static void bounds(void **state)
{
    static const struct row rows[] = {
        {"{\"type\": \"integer\", \"minimum\": 27, \"maximum\": 345}",
         {"27", "99", "100", "345"},
         {"26", "346", "1000", "-30"}},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": -10, \"maximum\": 3}",
         {"-9", "0", "3"},
         {"-10", "4", "-0"}},
        {"{\"type\": \"integer\", \"minimum\": 4.5}", {"5", "123456"}, {"4", "-7"}},
        {"{\"type\": \"integer\", \"maximum\": 7, \"exclusiveMaximum\": true}", {"6", "-100"}, {"7"}},
        {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 0}", {"0", "49", "7000000"}, {"8", "15"}},
        {"{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}",
         {"0", "1", "0.5", "1.0", "0.999"},
         {"1.1", "-0.1", "1.01", "2", "1e0"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 0, \"exclusiveMaximum\": 2.25}",
         {"0.001", "1.999", "2.2499", "2"},
         {"0", "0.00", "2.25", "2.250", "2.3"}},
        {"{\"type\": \"number\", \"minimum\": -1.5, \"maximum\": -0.25}",
         {"-1.5", "-0.25", "-1", "-0.3"},
         {"-1.51", "-0.2", "0", "1"}},
        {"{\"type\": \"integer\", \"minimum\": 9007199254740993, \"exclusiveMaximum\": 9007199254740995}",
         {"9007199254740993", "9007199254740994"},
         {"9007199254740992", "9007199254740995"}},
        {"{\"type\": \"integer\", \"maximum\": -9007199254740993, \"exclusiveMaximum\": -9007199254740992}",
         {"-9007199254740993"},
         {"-9007199254740992"}},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 1e16, \"maximum\": 1e18}",
         {"10000000000000001", "999999999999999999"},
         {"10000000000000000"}},
        {"{\"allOf\": [{\"type\": \"integer\", \"minimum\": 9007199254740992}, {\"minimum\": "
         "9007199254740993}]}",
         {"9007199254740993"},
         {"9007199254740992"}},
        {"{\"enum\": [9007199254740992, 9007199254740993, 9007199254740994], \"minimum\": 9007199254740993, "
         "\"exclusiveMaximum\": 9007199254740994}",
         {"9007199254740993"},
         {"9007199254740992", "9007199254740994"}},
        {"{\"enum\": [1, 2.5, 4], \"exclusiveMinimum\": 1.0, \"maximum\": 3}", {"2.5"}, {"1", "4"}},
        {"{\"oneOf\": [{\"const\": 9007199254740992}, {\"const\": 9007199254740993}]}",
         {"9007199254740993"},
         {"9007199254740994"}},
        {"{\"type\": \"number\", \"minimum\": 9007199254740993}",
         {"9007199254740994", "9007199254740995.5"},
         {"9007199254740992", "9007199254740993.5"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 99.9999999999999, \"exclusiveMaximum\": 100}",
         {"99.99999999999995", "99.99999999999999"},
         {"99.9999999999999998", "99.9999999999999", "100"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": -1, \"exclusiveMaximum\": 0}",
         {"-0.0000000000000001", "-0.9999999999999998"},
         {"0", "-0.0", "-1"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 1}",
         {"1.0000000000000002", "2", "7.0000000000000001"},
         {"1", "1.0000000000000001"}},
        {"{\"type\": \"number\", \"minimum\": -2}", {"-2", "-1.5", "7.25", "0"}, {"-2.1", "-3"}},
    };

    (void)state;
    CHECK(rows);
}

static void objects_and_arrays(void **state)
{
    static const struct row rows[] = {
        {"{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"null\"}, \"c\": {\"type\": "
         "\"integer\"}}, "
         "\"required\": [\"b\"]}",
         {"{\"b\":null}", "{\"a\": 1, \"b\": null}", "{\n  \"b\": null,\n  \"c\": 3\n}",
          "{ \"a\":1,\"b\":null,\"c\":2 }"},
         {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"d\":1}", "{\"b\":null,}",
          "{\"b\" :null}"}},
        {"{\"properties\": {\"ab\": {\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": "
         "\"null\"}}",
         {"{}", "{\"ab\":1}", "{\"ab\":1,\"abc\":null}", "{\"a\":null,\"é\":null}", "{\"\":null}"},
         {"{\"ab\":null}", "{\"a\":null,\"ab\":1}", "{\"x\":1}"}},
        {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"null\"}, \"maxProperties\": 2}",
         {"{}", "{\"x\":null}", "{\"x\":null,\"y\":null}"},
         {"{\"x\":null,\"y\":null,\"z\":null}"}},
        {"{\"type\": \"object\", \"required\": [\"x\"]}", {"{\"x\":[]}"}, {"{}", "{\"y\":1}"}},
        {"{\"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}",
         {"[1]", "[1, 2,3]", "[\n 1\n]"},
         {"[]", "[1,2,3,4]", "[true]", "[1,]"}},
        {"{\"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"null\"}], \"items\": {\"type\": "
         "\"boolean\"}, \"minItems\": 1}",
         {"[1]", "[1,null]", "[1,null,true,false]"},
         {"[]", "[null]", "[1,true]", "[1,null,1]"}},
        {"{\"type\": \"array\", \"maxItems\": 0}", {"[]"}, {"[1]"}},
    };

    (void)state;
    CHECK(rows);
}

static void unions_and_references(void **state)
{
    static const struct row rows[] = {
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"const\": \"x\"}]}", {"4", "\"x\""}, {"\"y\""}},
        {"{\"type\": \"object\", \"required\": [\"k\"], \"anyOf\": [{\"properties\": {\"k\": {\"const\": "
         "1}}}, "
         "{\"properties\": {\"k\": {\"const\": 2}, \"v\": true}}]}",
         {"{\"k\":1}", "{\"k\":2,\"v\":[]}"},
         {"{}", "{\"k\":1,\"v\":0}", "{\"k\":3}"}},
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": [\"null\", \"string\"]}]}",
         {"1", "null", "\"a\""},
         {"true"}},
        {"{\"type\": [\"integer\", \"null\"], \"anyOf\": [{\"type\": \"string\"}, {\"maximum\": 5}]}",
         {"5", "null"},
         {"6", "\"a\""}},
        {"{\"allOf\": [{\"type\": \"number\", \"minimum\": 2}, {\"type\": \"integer\", \"maximum\": 5}, "
         "{\"minimum\": 1}]}",
         {"2", "5"},
         {"1", "6", "2.5"}},
        {"{\"allOf\": [{\"properties\": {\"a\": {\"minimum\": 1}}, \"required\": [\"a\"]}, {\"properties\": "
         "{\"a\": {\"type\": "
         "\"integer\"}, \"b\": true}}]}",
         {"{\"a\":1}", "{\"a\":2,\"b\":null}"},
         {"{\"a\":0}", "{\"b\":null}"}},
        {"{\"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"c\": {\"type\": \"array\", "
         "\"items\": {\"$ref\": "
         "\"#/$defs/n\"}}}, \"required\": [\"c\"]}}, \"$ref\": \"#/$defs/n\"}",
         {"{\"c\":[]}", "{\"c\":[{\"c\":[]},{\"c\":[{\"c\":[]}]}]}"},
         {"{}", "{\"c\":[1]}"}},
        {"{\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}]}",
         {"null", "[[null],[]]"},
         {"[1]"}},
    };

    (void)state;
    CHECK(rows);
}

/* A schema that forbids null forbids it beside one that allows it. */
static void null_is_merged(void **state)
{
    static const struct row rows[] = {
        {"{\"allOf\": [{\"type\": \"string\", \"nullable\": true}, {\"type\": \"string\"}]}",
         {"\"a\""},
         {"null"}},
        {"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"string\", \"nullable\": true}]}",
         {"\"a\""},
         {"null"}},
        {"{\"allOf\": [{\"nullable\": true}, {\"type\": \"string\"}]}", {"\"a\""}, {"null"}},
        {"{\"allOf\": [{\"nullable\": true}, {\"anyOf\": [{\"type\": \"string\"}]}]}", {"\"a\""}, {"null"}},
        {"{\"allOf\": [{\"type\": \"string\", \"nullable\": true}, {\"type\": [\"string\", \"null\"]}]}",
         {"\"a\"", "null"},
         {"1"}},
        {"{\"allOf\": [{\"type\": \"string\", \"nullable\": true}, {\"type\": \"null\"}]}",
         {"null"},
         {"\"a\""}},
        {"{\"allOf\": [{\"type\": \"string\", \"nullable\": true}, {\"maxLength\": 1}]}",
         {"\"a\"", "null"},
         {"\"ab\""}},
        {"{\"type\": \"string\", \"nullable\": true, \"anyOf\": [{\"type\": \"string\"}]}",
         {"\"a\""},
         {"null"}},
        {"{\"nullable\": true, \"anyOf\": [{\"type\": \"integer\"}, {\"const\": \"x\"}]}",
         {"4", "null"},
         {"\"y\""}},
        {"{\"nullable\": true, \"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"type\": \"integer\"}}}",
         {"4", "null"},
         {"\"y\""}},
        {"{\"nullable\": true, \"allOf\": [{\"$ref\": \"#/$defs/a\"}, {\"type\": \"integer\", "
         "\"minimum\": 4}], \"$defs\": {\"a\": {\"type\": \"integer\"}}}",
         {"4", "null"},
         {"3"}},
    };

    (void)state;
    CHECK(rows);
}

static void patterns(void **state)
{
    static const struct row rows[] = {
        {"{\"pattern\": \"^[a-z]+[0-9]{2,3}$\"}",
         {"\"ab12\"", "\"z999\""},
         {"\"ab1\"", "\"ab1234\"", "\"12\""}},
        {"{\"pattern\": \"b\"}", {"\"abc\"", "\"b\""}, {"\"ac\"", "\"\""}},
        {"{\"pattern\": \"^a|b$\"}", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""}},
        {"{\"pattern\": \"^(?:ab|c)*d?$\"}", {"\"\"", "\"abccd\""}, {"\"a\"", "\"dd\""}},
        {"{\"pattern\": \"^\\\\d\\\\D\\\\w\\\\W\\\\s\\\\S$\"}", {"\"1xa- b\""}, {"\"11a- b\""}},
        {"{\"pattern\": \"^[^a-y]\\\\.\\\\x41\\\\u00e9$\"}",
         {"\"z.Aé\"", "\"é.Aé\""},
         {"\"b.Aé\"", "\"zxAé\""}},
        {"{\"pattern\": \"^.$\"}",
         {"\"x\"", "\"日\"", "\"\\\"\"", "\"\\\\\"", "\"\\t\""},
         {"\"\\n\"", "\"\"", "\"\\u0041\""}},
        {"{\"pattern\": \"^[\\\\w.-]{3}$\", \"maxLength\": 3}", {"\"a.-\""}, {"\"a.-b\""}},
        {"{\"pattern\": \"^a*$\", \"minLength\": 2, \"maxLength\": 4}",
         {"\"aa\"", "\"aaaa\""},
         {"\"a\"", "\"aaaaa\"", "\"ab\""}},
        {"{\"pattern\": \"^a*$\", \"minLength\": 3}", {"\"aaa\"", "\"aaaaaaaa\""}, {"\"aa\""}},
        {"{\"pattern\": \"x{2}|^$\"}", {"\"\"", "\"axxb\""}, {"\"x\""}},
        {"{\"format\": \"date\"}",
         {"\"2024-02-29\"", "\"2023-12-31\""},
         {"\"2023-02-29\"", "\"2023-13-01\"", "\"2023-04-31\""}},
        {"{\"format\": \"ipv6\"}", {"\"::\"", "\"1::8\"", "\"1:2:3:4:5:6:7:8\""}, {"\"1:2\"", "\"1:::2\""}},
    };

    (void)state;
    CHECK(rows);
}

static void refusals_name_the_place(void **state)
{
    static const char *const rows[][2] = {
        {"{\"properties\": {\"a\": {\"items\": {\"pattern\": \"(?=x)\"}}}}",
         "$.properties.a.items.pattern: look-around is not supported"},
        {"{\"pattern\": \"(a)\\\\1\"}", "$.pattern: back-references are not supported"},
        {"{\"pattern\": \"\\\\bfoo\"}", "$.pattern: word boundaries (\\b) are not supported"},
        {"{\"pattern\": \"(a\"}", "$.pattern: a ( without its )"},
        {"{\"patternProperties\": {\"a\": {}}}", "$.patternProperties: cannot be enforced"},
        {"{\"anyOf\": [{\"type\": \"null\"}, {\"items\": {\"not\": {}}}]}",
         "$.anyOf.1.items.not: cannot be enforced"},
        {"{\"$defs\": {\"x\": {\"format\": \"color\", \"type\": \"string\"}}, \"$ref\": \"#/$defs/x\"}",
         "$.$defs.x.format: 'color' is not known"},
        {"{\"type\": \"number\", \"multipleOf\": 0.5}",
         "$.multipleOf: only whole divisors of integers can be enforced"},
        {"{\"type\": \"array\", \"uniqueItems\": true}", "$.uniqueItems: cannot be enforced"},
        {"{\"$ref\": \"other.json\"}", "$.$ref: 'other.json' is not within this schema (#/...)"},
        {"{\"$ref\": \"#/$defs/none\"}", "$.$ref: '#/$defs/none' leads nowhere"},
        {"{\"type\": \"text\"}", "$.type: must be the name of a type, or a list of them"},
        {"{\"type\": \"string\", \"enum\": [\"a\"], \"pattern\": \"b\"}",
         "$.pattern: cannot be enforced beside enum or const"},
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}",
         "$.oneOf: branches 0 and 1 cannot be told apart by type, const, enum, or a required property"},
        {"{\"type\": \"object\", \"required\": [\"a\"], \"additionalProperties\": false}",
         "nothing can ever satisfy this, or only what is too long"},
        {"[]", "$: a schema is an object, true or false"},
        {"{\"a\": 1, \"a\": 2}", "$: not JSON: duplicate object key near '\"a\"' at byte 12"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fault fault = {0};
        assert_true(grammar_check_schema(bytes_str(rows[i][0]), &fault) < 0);
        assert_string_equal(fault.text, rows[i][1]);
    }
}

/* Of several schemas, the faulty one is named, even if its fault is found only at the end. */
static void the_schema_at_fault_is_named(void **state)
{
    static const char *const rows[][2] = {
        {"{\"type\": \"object\", \"required\": [\"a\"], \"additionalProperties\": false}",
         "t.1: nothing can ever satisfy this, or only what is too long"},
        {"{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}",
         "t.1: something refers to itself with nothing before it"},
        {"[]", "t.1: a schema is an object, true or false"},
        {"{", "t.1: not JSON: "},
        {"{\"items\": {\"$ref\": \"#/items/x\"}}", "t.1.items.$ref: '#/items/x' leads nowhere"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct grammar_schema list[] = {{bytes_str("{\"type\": \"array\"}"), "t.0", false},
                                        {bytes_str(rows[i][0]), "t.1", false},
                                        {bytes_str("{\"type\": \"null\"}"), "t.2", false}};
        struct fault fault = {0};

        assert_true(grammar_check_schemas(list, 3, &fault, NULL) < 0);
        if (strncmp(fault.text, rows[i][1], strlen(rows[i][1])) != 0)
            fail_msg("%s", fault.text);
    }
}

/* Objects have only declared members, even if there are none; others only if the schema allows them. */
static void nothing_declared_is_nothing_written(void **state)
{
    static const struct row rows[] = {
        {"{\"type\": \"object\", \"properties\": {}}", {"{}", "{ }"}, {"{\"city\": \"x\"}", "{\"a\":1}"}},
        {"{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": {\"type\": \"integer\"}}",
         {"{}", "{\"a\":1}"},
         {"{\"a\":null}"}},
        {"{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": true}", {"{\"a\":[]}"}, {"["}},
        {"{\"allOf\": [{\"properties\": {}}, {\"type\": \"object\"}]}", {"{}"}, {"{\"a\":1}"}},
        {"{\"items\": {\"properties\": {}}}", {"[{}]"}, {"[{\"a\":1}]"}},
        {"{\"type\": \"object\"}", {"{}", "{\"a\":1}"}, {"["}},
    };
    static const char *const closed[][2] = {{"{}", "{\"a\":1}"},
                                            {"{\"type\": \"object\"}", "{\"a\":1}"},
                                            {"{\"type\": \"object\", \"title\": \"t\"}", "{\"a\":1}"}};
    static const char open[] =
        "{\"json\": {\"type\": \"object\", \"additionalProperties\": true}, \"closed\": true}";

    (void)state;
    CHECK(rows);
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
        char constraint[120];

        snprintf(constraint, sizeof(constraint), "{\"json\": %s, \"closed\": true}", closed[i][0]);
        assert_true(grammar_takes(vocab, tokenizer, constraint, "{}"));
        assert_false(grammar_takes(vocab, tokenizer, constraint, closed[i][1]));
        assert_false(grammar_takes(vocab, tokenizer, constraint, "1"));
    }
    assert_true(grammar_takes(vocab, tokenizer, open, "{\"a\":1}"));
}

#define OBJECT                                                                                               \
    "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}"
#define DEFS "\"$defs\": {\"o\": " OBJECT ", \"n\": {\"type\": \"null\"}}"

/* Arguments are objects, also if the schema allows other values. */
static void arguments_are_objects(void **state)
{
    static const char *const schemas[] = {
        OBJECT,
        "{\"anyOf\": [" OBJECT ", {\"type\": \"null\"}]}",
        "{\"oneOf\": [{\"type\": \"string\"}, " OBJECT ", {\"const\": 5}]}",
        "{\"anyOf\": [{\"$ref\": \"#/$defs/n\"}, {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": "
        "\"#/$defs/o\"}]}], " DEFS "}",
        "{\"$ref\": \"#/$defs/o\", \"nullable\": true, " DEFS "}",
        "{\"allOf\": [{\"$ref\": \"#/$defs/o\"}], \"nullable\": true, " DEFS "}",
        "{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"], \"nullable\": true}",
        "{\"type\": [\"object\", \"null\"], \"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": "
        "[\"a\"]}",
        "{\"enum\": [\"a\", 5, {\"a\": 1}, null]}",
    };
    static const char *const refused[][2] = {
        {"{\"type\": \"array\"}", "t.type: arguments are an object"},
        {"{\"const\": 1}", "t: nothing can ever satisfy this, or only what is too long"},
        {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}",
         "t: nothing can ever satisfy this, or only what is too long"},
        {"{\"anyOf\": [{\"type\": \"house\"}, " OBJECT "]}",
         "t.type: must be the name of a type, or a list of them"},
        {"{\"$ref\": \"#/$defs/x\", \"$defs\": {\"x\": {\"type\": \"object\", \"not\": {}}}}",
         "t.$defs.x.not: cannot be enforced"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        static const char *const not_taken[] = {"null", "5", "\"a\"", "[]", "{\"a\":null}"};
        struct buf constraint = {0};

        buf_printf(&constraint, "{\"json\": %s, \"closed\": true}", schemas[i]);
        if (!grammar_takes(vocab, tokenizer, (const char *)constraint.data, "{\"a\":1}"))
            fail_msg("%s takes no object", schemas[i]);
        for (size_t k = 0; k < sizeof(not_taken) / sizeof(not_taken[0]); k++)
            if (grammar_takes(vocab, tokenizer, (const char *)constraint.data, not_taken[k]))
                fail_msg("%s takes %s", schemas[i], not_taken[k]);
        buf_fini(&constraint);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct grammar_schema one = {bytes_str(refused[i][0]), "t", true};
        struct fault fault = {0};

        assert_true(grammar_check_schemas(&one, 1, &fault, NULL) < 0);
        assert_string_equal(fault.text, refused[i][1]);
    }
}

/* Endlessly nested values close before the depth that JSON readers refuse. */
static void nesting_is_bounded(void **state)
{
    struct grammar *grammar = grammar_must(vocab, "{\"json\": true}");
    struct grammar_run *run;
    uint32_t n = 0;

    (void)state;
    assert_int_equal(grammar_run_new(grammar, &run), 0);
    while (n < 1000 && grammar_accept(run, '[') == 0)
        n++;
    assert_in_range(n, 60, 127);
    while (!grammar_is_complete(run)) {
        const uint64_t *mask = grammar_mask(run, 1000);
        assert_true(mask[']' / 64] >> (']' % 64) & 1);
        assert_int_equal(grammar_accept(run, ']'), 0);
    }
    grammar_run_free(run);
    grammar_unref(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(bounds),
        cmocka_unit_test(objects_and_arrays),
        cmocka_unit_test(unions_and_references),
        cmocka_unit_test(null_is_merged),
        cmocka_unit_test(patterns),
        cmocka_unit_test(refusals_name_the_place),
        cmocka_unit_test(the_schema_at_fault_is_named),
        cmocka_unit_test(nothing_declared_is_nothing_written),
        cmocka_unit_test(arguments_are_objects),
        cmocka_unit_test(nesting_is_bounded),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
