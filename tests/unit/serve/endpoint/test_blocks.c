/* SPDX-License-Identifier: Apache-2.0 */
/* Thinking and calls in every family's format: clients receive the same blocks whole and streamed, and
 * exactly these events in a stream. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "text/json/json.h"
#include "base/check.h"
#include "net/http/sse_parse.h"

#define BAR      "\xef\xbd\x9c"
#define LOW      "\xe2\x96\x81"
#define DS(a, b) "<" BAR "tool" LOW a LOW b BAR ">"
#define SEP      "<" BAR "tool" LOW "sep" BAR ">"

/* A template with this family's marks; thinking is between <think> and </think>. */
#define TURNS                                                                                                \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ m.tool_calls|string if "             \
    "m.tool_calls }}<|im_end|>\n{% endfor %}"
#define FAMILY(marks) "{# " marks " </think> #}{{ tools|string if tools }}" TURNS

/* As JSON has it. */
#define ARGS "{\\\"city\\\": \\\"Oslo\\\"}"

static const struct {
    const char *source;
    const char *says; /* the model's output */
    const char *blocks;
} answers[] = {
    {FAMILY("<tool_call>"),
     "<think>\\nHm.\\n</think>\\n\\nLook:\\n<tool_call>\\n{\\\"name\\\": \\\"get\\\", "
     "\\\"arguments\\\": " ARGS "}\\n</tool_call>",
     "[thinking Hm.#][text Look:\n][get {\"city\": \"Oslo\"}] tool_use"},
    {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}",
     "<tool_call>\\n{\\\"name\\\": \\\"get\\\", \\\"arguments\\\": " ARGS "}\\n</tool_call>",
     "[get {\"city\": \"Oslo\"}] tool_use"},
    {FAMILY("<tool_call> <function="),
     "<tool_call>\\n<function=get>\\n<parameter=city>\\nOslo\\n</parameter>\\n<parameter=n>\\n7\\n</"
     "parameter>\\n"
     "</function>\\n</tool_call>",
     "[get {\"city\": \"Oslo\", \"n\": 7}] tool_use"},
    {FAMILY("<tool_call> <arg_key>"),
     "<think>a</think><tool_call>get\\n<arg_key>city</arg_key>\\n<arg_value>7</arg_value>\\n</tool_call>",
     "[thinking a#][get {\"city\": \"7\"}] tool_use"},
    {FAMILY("[TOOL_CALLS]"),
     "[TOOL_CALLS][{\\\"name\\\": \\\"get\\\", \\\"arguments\\\": " ARGS "}, {\\\"name\\\": \\\"get\\\", "
     "\\\"arguments\\\": {}}]",
     "[get {\"city\": \"Oslo\"}][get {}] tool_use"},
    {FAMILY("[TOOL_CALLS] [ARGS]"), "Well.[TOOL_CALLS]get[ARGS]" ARGS,
     "[text Well.][get {\"city\": \"Oslo\"}] tool_use"},
    {FAMILY(DS("calls", "begin") " ```json"),
     DS("calls", "begin") DS("call", "begin") "function" SEP "get\\n```json\\n" ARGS
                                              "\\n```" DS("call", "end") DS("calls", "end"),
     "[get {\"city\": \"Oslo\"}] tool_use"},
    {FAMILY(DS("calls", "begin")),
     DS("calls", "begin") DS("call", "begin") "get" SEP ARGS DS("call", "end") DS("calls", "end"),
     "[get {\"city\": \"Oslo\"}] tool_use"},
    {FAMILY("<|start|><|channel|><|message|><|constrain|><|end|><|call|>"),
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get "
     "<|constrain|>json<|message|>" ARGS,
     "[thinking Hm.#][get {\"city\": \"Oslo\"}] tool_use"},
    {FAMILY("<|start|><|channel|><|message|><|end|>"),
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.",
     "[thinking Hm.#][text Hi.] end_turn"},
    {FAMILY("<|python_tag|>"), "{\\\"name\\\": \\\"get\\\", \\\"parameters\\\": " ARGS "}",
     "[get {\"city\": \"Oslo\"}] tool_use"},
    {FAMILY("<|python_tag|>"), "<|python_tag|>{\\\"name\\\": \\\"get\\\", \\\"parameters\\\": " ARGS "}",
     "[get {\"city\": \"Oslo\"}] tool_use"},
    /* malformed calls are text */
    {FAMILY("<tool_call>"), "<tool_call>what?</tool_call>", "[text <tool_call>what?</tool_call>] end_turn"},
    {FAMILY("[TOOL_CALLS]"), "[TOOL_CALLS]what?", "[text [TOOL_CALLS]what?] end_turn"},
};

#define TOOLS                                                                                                \
    "\"tools\":[{\"name\":\"get\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":" \
    "\"string\"},"                                                                                           \
    "\"n\":{\"type\":\"integer\"}}}}]"

/* ---- whole answers ---- */

static void put_block(struct buf *out, json_t *block)
{
    struct bytes type = api_json_str(json_object_get(block, "type"));

    if (bytes_is(type, "text")) {
        buf_printf(out, "[text %s]", json_string_value(json_object_get(block, "text")));
    } else if (bytes_is(type, "thinking")) {
        assert_true(json_string_length(json_object_get(block, "signature")) > 0);
        buf_printf(out, "[thinking %s#]", json_string_value(json_object_get(block, "thinking")));
    } else {
        buf_printf(out, "[%s ", json_string_value(json_object_get(block, "name")));
        api_json_put(out, json_object_get(block, "input"));
        buf_append_str(out, "]");
    }
}

/* user: the last turn's text as written in JSON. */
static void put_request(struct buf *out, const char *user, const char *more)
{
    struct buf body = {0};

    buf_printf(
        &body,
        "{\"model\":\"sim\",\"max_tokens\":3000,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s}",
        user, more);
    put_post(out, "/v1/messages", "", (const char *)body.data);
    buf_fini(&body);
}

static void tell_whole(struct rig *rig, const char *user, const char *more, struct buf *out)
{
    struct buf request = {0};
    json_t *root, *block;
    size_t i;

    put_request(&request, user, more);
    root = ask(rig, &request, 200, NULL);
    buf_fini(&request);
    json_array_foreach(json_object_get(root, "content"), i, block) put_block(out, block);
    buf_printf(out, " %s", str_at(root, "stop_reason", NULL));
    json_decref(root);
}

/* ---- streams ---- */

struct tale {
    struct buf *out;
    struct buf *events; /* exact, with deltas of a kind joined and signatures masked; may be NULL */
    bool is_signed, is_thinking;
};

static void put_event(struct tale *tale, json_t *data)
{
    static const char *const secrets[] = {"id", "signature"};
    json_t *copy = json_deep_copy(data), *block = json_object_get(copy, "content_block");
    json_t *delta = json_object_get(copy, "delta");
    char *text;

    json_object_del(json_object_get(copy, "message"), "id");
    for (size_t i = 0; i < 2; i++) {
        if (json_string_length(json_object_get(block, secrets[i])) > 0)
            json_object_set_new(block, secrets[i], json_string("*"));
        if (json_string_length(json_object_get(delta, secrets[i])) > 0)
            json_object_set_new(delta, secrets[i], json_string("*"));
    }
    text = json_dumps(copy, JSON_COMPACT);
    buf_printf(tale->events, "%s\n", text);
    free(text);
    json_decref(copy);
}

static void take_delta(struct tale *tale, json_t *delta)
{
    struct bytes type = api_json_str(json_object_get(delta, "type"));

    assert_false(tale->is_signed); /* no event follows the signature */
    if (bytes_is(type, "signature_delta")) {
        assert_true(tale->is_thinking && json_string_length(json_object_get(delta, "signature")) > 0);
        tale->is_signed = true;
        buf_append_str(tale->out, "#");
        return;
    }
    assert_int_equal(bytes_is(type, "thinking_delta"), tale->is_thinking);
    for (size_t i = 0; i < 3; i++) {
        static const char *const members[] = {"text", "thinking", "partial_json"};
        struct bytes text = api_json_str(json_object_get(delta, members[i]));

        buf_append(tale->out, text.data, text.len_bytes);
    }
}

static int take_event(void *arg, struct bytes name, struct bytes text)
{
    struct tale *tale = arg;
    json_t *data = json_loadb((const char *)text.data, text.len_bytes, 0, NULL);
    json_t *block = json_object_get(data, "content_block");

    if (tale->events != NULL && !bytes_is(name, "ping"))
        put_event(tale, data);
    if (bytes_is(name, "content_block_start")) {
        const char *type = json_string_value(json_object_get(block, "type"));

        tale->is_signed = false;
        tale->is_thinking = strcmp(type, "thinking") == 0;
        buf_printf(tale->out, "[%s ",
                   strcmp(type, "tool_use") == 0 ? json_string_value(json_object_get(block, "name")) : type);
    } else if (bytes_is(name, "content_block_delta")) {
        take_delta(tale, json_object_get(data, "delta"));
    } else if (bytes_is(name, "content_block_stop")) {
        assert_int_equal(tale->is_thinking, tale->is_signed);
        buf_append_str(tale->out, "]");
        tale->is_thinking = tale->is_signed = false;
    } else if (bytes_is(name, "message_delta")) {
        buf_printf(tale->out, " %s", str_at(data, "delta", "stop_reason"));
    }
    json_decref(data);
    return 0;
}

static void tell_stream(struct rig *rig, const char *user, const char *more, struct tale *tale)
{
    struct buf request = {0}, head = {0}, body = {0}, with_stream = {0};
    struct sse_parser *parser;
    int fd = raw_connect(rig->port);

    buf_printf(&with_stream, ",\"stream\":true%s", more);
    put_request(&request, user, (char *)with_stream.data);
    raw_send(fd, request.data, request.len_bytes);
    assert_int_equal(raw_read_answer(fd, &head, &body), 200);
    assert_int_equal(sse_parser_new(1 << 20, take_event, tale, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, buf_view(&body)), 0);
    sse_parser_free(parser);
    close(fd);
    buf_fini(&request);
    buf_fini(&with_stream);
    buf_fini(&head);
    buf_fini(&body);
}

/* ---- tests ---- */

static void blocks_are_the_same_whole_and_streamed(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct buf whole = {0}, stream = {0}, user = {0};
        struct tale tale = {.out = &stream};
        struct rig rig;

        rig_begin_with(&rig, answers[i].source);
        buf_printf(&user, "say %s", answers[i].says);
        tell_whole(&rig, (char *)user.data, "," TOOLS, &whole);
        tell_stream(&rig, (char *)user.data, "," TOOLS, &tale);
        assert_string_equal((char *)whole.data, answers[i].blocks);
        assert_string_equal((char *)stream.data, answers[i].blocks);
        buf_fini(&whole);
        buf_fini(&stream);
        buf_fini(&user);
        rig_end(&rig);
    }
}

static void a_stream_is_golden(void **state)
{
    static const char golden[] =
        "{\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"role\":\"assistant\",\"model\":"
        "\"sim\","
        "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%d,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":1,\"cache_"
        "creation\":{"
        "\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":0},\"service_tier\":\"standard\"}}}\n"
        "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":"
        "\"\","
        "\"signature\":\"\"}}\n"
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":"
        "\"a\"}}\n"
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":"
        "\"*\"}}\n"
        "{\"type\":\"content_block_stop\",\"index\":0}\n"
        "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n"
        "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"b\"}}\n"
        "{\"type\":\"content_block_stop\",\"index\":1}\n"
        "{\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"*\","
        "\"name\":"
        "\"get\",\"input\":{}}}\n"
        "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_"
        "json\":\"{\"}}\n"
        "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_"
        "json\":\"}\"}}\n"
        "{\"type\":\"content_block_stop\",\"index\":2}\n"
        "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},"
        "\"usage\":{"
        "\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_"
        "tokens\":%d,"
        "\"output_tokens_details\":{\"thinking_tokens\":10}}}\n"
        "{\"type\":\"message_stop\"}\n";
    struct buf out = {0}, events = {0}, expected = {0};
    struct tale tale = {.out = &out, .events = &events};
    struct rig rig;
    int n_input;

    rig_begin_with(&rig, FAMILY("<tool_call>"));
    tell_stream(
        &rig,
        "say <think>a</think>b<tool_call>{\\\"name\\\": \\\"get\\\", \\\"arguments\\\": {}}</tool_call>",
        "," TOOLS, &tale);
    assert_int_equal(
        sscanf(strstr((char *)events.data, "\"input_tokens\":"), "\"input_tokens\":%d", &n_input), 1);
    assert_true(n_input > 100);
    buf_printf(&expected, golden, n_input, n_input, 7 + 1 + 8 + 1 + 1 + 32 + 1);
    assert_string_equal((char *)events.data, (char *)expected.data);
    buf_fini(&out);
    buf_fini(&events);
    buf_fini(&expected);
    rig_end(&rig);
}

static void thinking_can_be_left_out(void **state)
{
    struct buf whole = {0}, stream = {0};
    struct tale tale = {.out = &stream};
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    tell_whole(&rig, "say <think>secret</think>Yes.",
               ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}", &whole);
    tell_stream(&rig, "say <think>secret</think>Yes.",
                ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}", &tale);
    assert_string_equal((char *)whole.data, "[thinking #][text Yes.] end_turn");
    assert_string_equal((char *)stream.data, "[thinking #][text Yes.] end_turn");
    root = ask_message(&rig, "say <think>abc</think>Yes.", "", 200);
    /* The tag's last character, the text, and the characters of the other tag. */
    assert_int_equal(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(root, "usage"), "output_tokens_details"), "thinking_tokens")),
        1 + 3 + 8);
    json_decref(root);
    rig_end(&rig);
    buf_fini(&whole);
    buf_fini(&stream);
}

/* If the template opens the thinking, the answer begins inside it. */
static void thinking_may_begin_in_the_prompt(void **state)
{
    struct buf whole = {0};
    struct rig rig;

    rig_begin_with(&rig, TURNS "{{ '<think>\\n' if add_generation_prompt }}");
    tell_whole(&rig, "say hm</think>Yes.", "", &whole);
    assert_string_equal((char *)whole.data, "[thinking hm#][text Yes.] end_turn");
    buf_fini(&whole);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_the_same_whole_and_streamed),
        cmocka_unit_test(a_stream_is_golden),
        cmocka_unit_test(thinking_can_be_left_out),
        cmocka_unit_test(thinking_may_begin_in_the_prompt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
