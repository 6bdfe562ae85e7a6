/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's /v1/responses: answers whole and as events in their order, and kept responses that are
 * continued, referred to, listed, deleted and cancelled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/log.h"
#include "net/http/sse_parse.h"
#include "rig_openai.h"
#include "serve/conversation/conversations.h"

#define RESPONSES "/v1/responses"
#define TEMPLATE                                                                                             \
    "{# <tool_call> </think> #}{{ tools|string if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n" \
    "{{ m.content }}{{ m.tool_calls|string if m.tool_calls }}<|im_end|>\n{% endfor %}"
#define THINKS                                                                                               \
    "say <think>\\nHm.\\n</think>\\n\\nLook:\\n<tool_call>\\n{\\\"name\\\": \\\"get\\\", "                   \
    "\\\"arguments\\\": "                                                                                    \
    "{\\\"city\\\": \\\"Oslo\\\"}}\\n</tool_call>"
#define GET_TOOL ",'tools':[{'type':'function','name':'get','parameters':{'type':'object'}}]"

static json_t *output_of(json_t *response, size_t i)
{
    json_t *item = json_array_get(json_object_get(response, "output"), i);

    assert_non_null(item);
    return item;
}

static const char *part_text(json_t *item, const char *list)
{
    return str_at(json_array_get(json_object_get(item, list), 0), "text", NULL);
}

/* ---- streams ---- */

struct tale { /* the content of a stream; the order of its events is checked on the way */
    json_int_t next;
    json_t *items[8]; /* as in their last events */
    int n_items, n_deltas, n_summaries;
    size_t n_logprobs; /* in deltas */
    bool is_open, has_part;
    struct buf text; /* deltas of the open item */
    struct buf all;  /* deltas of message texts */
    json_t *last;    /* the last event's response */
    char end[40];
};

static void take_item_event(struct tale *tale, const char *type, json_t *data)
{
    json_t *item = json_object_get(data, "item");

    assert_int_equal(json_integer_value(json_object_get(data, "output_index")), tale->n_items);
    if (strcmp(type, "response.output_item.added") == 0) {
        assert_false(tale->is_open);
        assert_string_equal(str_at(item, "status", NULL), "in_progress");
        tale->is_open = true;
        buf_clear(&tale->text);
    } else if (strcmp(type, "response.output_item.done") == 0) {
        assert_true(tale->is_open && !tale->has_part);
        tale->is_open = false;
        tale->items[tale->n_items++] = json_incref(item);
    } else if (strstr(type, "part.added") != NULL) {
        assert_true(tale->is_open && !tale->has_part);
        assert_string_equal(str_at(data, "part", "text"), "");
        tale->has_part = true;
    } else if (strstr(type, "part.done") != NULL) {
        assert_true(tale->has_part);
        assert_true(bytes_is(buf_view(&tale->text), str_at(data, "part", "text")));
        tale->has_part = false;
    } else if (strstr(type, ".delta") != NULL) {
        buf_append_str(&tale->text, str_at(data, "delta", NULL));
        if (strcmp(type, "response.output_text.delta") == 0)
            buf_append_str(&tale->all, str_at(data, "delta", NULL));
        tale->n_deltas++;
        tale->n_logprobs += json_array_size(json_object_get(data, "logprobs"));
        tale->n_summaries += strstr(type, "summary") != NULL;
    } else { /* .done of the text or the arguments */
        json_t *text = json_object_get(data, strstr(type, "arguments") != NULL ? "arguments" : "text");

        assert_non_null(strstr(type, ".done"));
        assert_true(bytes_is(buf_view(&tale->text), json_string_value(text)));
    }
}

static int take_event(void *arg, struct bytes name, struct bytes text)
{
    struct tale *tale = arg;
    json_t *data = json_loadb((const char *)text.data, text.len_bytes, 0, NULL);
    json_t *response = json_object_get(data, "response");
    const char *type = str_at(data, "type", NULL);

    assert_true(bytes_is(name, type));
    assert_int_equal(json_integer_value(json_object_get(data, "sequence_number")), tale->next++);
    assert_string_equal(tale->end, "");
    if (tale->next <= 2) {
        assert_string_equal(type, tale->next == 1 ? "response.created" : "response.in_progress");
        assert_string_equal(str_at(response, "status", NULL), "in_progress");
    } else if (response != NULL) {
        snprintf(tale->end, sizeof(tale->end), "%s", type);
        tale->last = json_incref(response);
    } else {
        take_item_event(tale, type, data);
    }
    json_decref(data);
    return 0;
}

static void read_tale(const struct buf *body, struct tale *tale)
{
    struct sse_parser *parser;

    memset(tale, 0, sizeof(*tale));
    assert_int_equal(sse_parser_new(8 << 20, take_event, tale, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, buf_view(body)), 0);
    sse_parser_free(parser);
    assert_false(raw_holds(body, "[DONE]"));
    assert_non_null(tale->last);
    if (strcmp(tale->end, "response.failed") != 0) {
        assert_false(tale->is_open);
        assert_int_equal(json_array_size(json_object_get(tale->last, "output")), tale->n_items);
        for (int i = 0; i < tale->n_items; i++)
            assert_true(json_equal(output_of(tale->last, (size_t)i), tale->items[i]));
    }
}

static void put_stream(struct buf *out, const char *input, const char *more)
{
    struct buf body = {0};

    buf_printf(&body, "{'model':'sim','stream':true,'input':%s%s}", input, more);
    put_request(out, RESPONSES, "", (const char *)body.data);
    buf_fini(&body);
}

static void stream_response(struct rig *rig, const char *input, const char *more, struct tale *tale)
{
    struct buf request = {0}, text = {0}, answer = {0};
    int fd = raw_connect(rig->port);

    put_stream(&request, input, more);
    raw_send(fd, request.data, request.len_bytes);
    assert_int_equal(raw_read_answer(fd, &text, &answer), 200);
    assert_true(raw_holds(&text, "content-type: text/event-stream; charset=utf-8\r\n"));
    read_tale(&answer, tale);
    close(fd);
    buf_fini(&request);
    buf_fini(&text);
    buf_fini(&answer);
}

static void tale_fini(struct tale *tale)
{
    for (int i = 0; i < tale->n_items; i++)
        json_decref(tale->items[i]);
    json_decref(tale->last);
    buf_fini(&tale->text);
    buf_fini(&tale->all);
}

/* ---- answers ---- */

static void a_whole_answer(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_response(&rig, "'say Hello \xe2\x82\xac.'", ",'metadata':{'k':'v'}", 200);
    assert_string_equal(str_at(root, "object", NULL), "response");
    assert_string_equal(str_at(root, "status", NULL), "completed");
    assert_int_equal(strncmp(str_at(root, "id", NULL), "resp_", 5), 0);
    assert_string_equal(str_at(root, "metadata", "k"), "v");
    assert_string_equal(part_text(output_of(root, 0), "content"), "Hello \xe2\x82\xac.");
    assert_int_equal(num_at(root, "usage", "output_tokens"), 10);
    assert_int_equal(num_at(root, "usage", "total_tokens"), 10 + num_at(root, "usage", "input_tokens"));
    json_decref(root);
    root = ask_response(&rig, "'count 50'", ",'max_output_tokens':4", 200);
    assert_string_equal(str_at(root, "status", NULL), "incomplete");
    assert_string_equal(str_at(root, "incomplete_details", "reason"), "max_output_tokens");
    assert_string_equal(str_at(output_of(root, 0), "status", NULL), "incomplete");
    json_decref(root);
    root = ask_response(&rig, "[]", ",'max_output_tokens':1", 200); /* a probe */
    assert_int_equal(num_at(root, "usage", "output_tokens"), 1);
    json_decref(root);
    rig_end(&rig);
}

static void a_stream_tells_the_same(void **state)
{
    struct tale tale;
    struct rig rig;

    rig_begin(&rig, NULL);
    stream_response(&rig, "'say Gr\xc3\xbc\xc3\x9f dich, \xf0\x9f\x98\x80!'", "", &tale);
    assert_string_equal(tale.end, "response.completed");
    assert_true(bytes_is(buf_view(&tale.all), "Gr\xc3\xbc\xc3\x9f dich, \xf0\x9f\x98\x80!"));
    assert_int_equal(tale.n_items, 1);
    assert_int_equal(num_at(tale.last, "usage", "output_tokens"), 18);
    tale_fini(&tale);
    stream_response(&rig, "'count 50'", ",'max_output_tokens':4", &tale);
    assert_string_equal(tale.end, "response.incomplete");
    assert_string_equal(str_at(tale.last, "incomplete_details", "reason"), "max_output_tokens");
    tale_fini(&tale);
    stream_response(&rig, "'break 3'", "", &tale);
    assert_string_equal(tale.end, "response.failed");
    assert_string_equal(str_at(tale.last, "status", NULL), "failed");
    assert_string_equal(str_at(tale.last, "error", "code"), "server_error");
    tale_fini(&tale);
    rig_end(&rig);
}

static void check_blocks(json_t *response, const char *list, const char *other)
{
    json_t *call = output_of(response, 2);

    assert_int_equal(json_array_size(json_object_get(response, "output")), 3);
    assert_string_equal(str_at(output_of(response, 0), "type", NULL), "reasoning");
    assert_string_equal(part_text(output_of(response, 0), list), "Hm.");
    assert_int_equal(json_array_size(json_object_get(output_of(response, 0), other)), 0);
    assert_string_equal(part_text(output_of(response, 1), "content"), "Look:\n");
    assert_string_equal(str_at(call, "type", NULL), "function_call");
    assert_string_equal(str_at(call, "name", NULL), "get");
    assert_string_equal(str_at(call, "arguments", NULL), "{\"city\": \"Oslo\"}");
    assert_int_equal(strncmp(str_at(call, "call_id", NULL), "call_", 5), 0);
    assert_int_equal(strncmp(str_at(call, "id", NULL), "fc_", 3), 0);
    assert_true(num_at(response, "usage", "output_tokens") > 0);
}

static void blocks_are_items(void **state)
{
    struct tale tale;
    struct rig rig;
    json_t *root;

    rig_begin_with(&rig, TEMPLATE);
    root = ask_response(&rig, "'" THINKS "'", GET_TOOL ",'include':['reasoning.encrypted_content']", 200);
    check_blocks(root, "content", "summary");
    assert_true(strlen(str_at(output_of(root, 0), "encrypted_content", NULL)) > 10);
    json_decref(root);
    stream_response(&rig, "'" THINKS "'", GET_TOOL, &tale);
    assert_string_equal(tale.end, "response.completed");
    check_blocks(tale.last, "content", "summary");
    assert_true(json_is_null(json_object_get(output_of(tale.last, 0), "encrypted_content")));
    assert_int_equal(tale.n_summaries, 0);
    tale_fini(&tale);
    stream_response(&rig, "'" THINKS "'", GET_TOOL ",'reasoning':{'summary':'auto'}", &tale);
    check_blocks(tale.last, "summary", "content");
    assert_true(tale.n_summaries > 0);
    tale_fini(&tale);
    rig_end(&rig);
}

static void text_that_is_no_call_is_an_incomplete_item(void **state)
{
    struct tale tale;
    struct rig rig;

    rig_begin_with(&rig, TEMPLATE);
    stream_response(&rig,
                    "'say <tool_call>\\n{\\\"name\\\": \\\"get\\\", \\\"arguments\\\": {\\\"a\\\": 1, 2'",
                    GET_TOOL, &tale);
    assert_string_equal(str_at(output_of(tale.last, 0), "type", NULL), "function_call");
    assert_string_equal(str_at(output_of(tale.last, 0), "status", NULL), "incomplete");
    tale_fini(&tale);
    rig_end(&rig);
}

static void log_probabilities_go_with_the_text(void **state)
{
    static const char more[] = ",'include':['message.output_text.logprobs'],'top_logprobs':2";
    struct tale tale;
    struct rig rig;
    json_t *root, *part;

    rig_begin(&rig, NULL);
    root = ask_response(&rig, "'say abc'", more, 200);
    part = json_array_get(json_object_get(output_of(root, 0), "content"), 0);
    assert_int_equal(json_array_size(json_object_get(part, "logprobs")), 3);
    stream_response(&rig, "'say abc'", more, &tale);
    assert_true(json_equal(
        json_object_get(part, "logprobs"),
        json_object_get(json_array_get(json_object_get(tale.items[0], "content"), 0), "logprobs")));
    tale_fini(&tale);
    json_decref(root);
    rig_end(&rig);
}

/* Deltas have all of them.  Events that end a block copy them on the loop, and have none if they are too many. */
static void many_log_probabilities_are_sent_once(void **state)
{
    static const char more[] = ",'include':['message.output_text.logprobs'],'top_logprobs':20";
    static const size_t lens[] = {200, 1900};

    for (int i = 0; i < 2; i++) {
        struct buf input = {0};
        struct tale tale;
        struct rig rig;
        json_t *part;

        rig_begin(&rig, NULL);
        buf_append_str(&input, "'say ");
        for (size_t n = 0; n < lens[i]; n++)
            buf_append_byte(&input, (char)('a' + n % 26));
        buf_append(&input, "'", 2);
        stream_response(&rig, (const char *)input.data, more, &tale);
        assert_string_equal(tale.end, "response.completed");
        assert_int_equal(tale.n_logprobs, lens[i]);
        part = json_array_get(json_object_get(tale.items[0], "content"), 0);
        assert_int_equal(json_array_size(json_object_get(part, "logprobs")), i == 0 ? lens[i] : 0);
        part = json_array_get(json_object_get(output_of(tale.last, 0), "content"), 0);
        assert_int_equal(strlen(json_string_value(json_object_get(part, "text"))), lens[i]);
        assert_int_equal(json_array_size(json_object_get(part, "logprobs")), i == 0 ? lens[i] : 0);
        tale_fini(&tale);
        rig_end(&rig);
        buf_fini(&input);
    }
}

/* ---- kept responses ---- */

static void a_response_is_continued_any_number_of_times(void **state)
{
    struct buf more = {0};
    struct rig rig;
    json_t *first, *next, *whole;

    rig_begin(&rig, NULL);
    first = ask_response(&rig, "'say One.'", "", 200);
    whole = ask_response(&rig,
                         "[{'role':'user','content':'say One.'},{'role':'assistant','content':'One.'},"
                         "{'role':'user','content':'say Two.'}]",
                         "", 200);
    buf_printf(&more, ",'previous_response_id':'%s'", str_at(first, "id", NULL));
    for (int i = 0; i < 2; i++) {
        next = ask_response(&rig, "'say Two.'", (const char *)more.data, 200);
        assert_string_equal(part_text(output_of(next, 0), "content"), "Two.");
        assert_int_equal(num_at(next, "usage", "input_tokens"), num_at(whole, "usage", "input_tokens"));
        assert_string_equal(str_at(next, "previous_response_id", NULL), str_at(first, "id", NULL));
        json_decref(next);
    }
    next = ask_at(
        &rig, RESPONSES "/input_tokens",
        "{'model':'sim','input':[{'role':'user','content':'say One.'},{'role':'assistant','content':'One.'},"
        "{'role':'user','content':'say Two.'}]}",
        200);
    assert_string_equal(str_at(next, "object", NULL), "response.input_tokens");
    assert_int_equal(json_integer_value(json_object_get(next, "input_tokens")),
                     num_at(whole, "usage", "input_tokens"));
    json_decref(next);
    json_decref(first);
    json_decref(whole);
    first = ask_response(&rig, "'x'", ",'previous_response_id':'resp_no'", 400);
    assert_string_equal(str_at(first, "error", "code"), "previous_response_not_found");
    assert_string_equal(str_at(first, "error", "param"), "previous_response_id");
    json_decref(first);
    buf_fini(&more);
    rig_end(&rig);
}

static void items_are_referred_to(void **state)
{
    struct buf input = {0};
    struct rig rig;
    json_t *first, *next;

    rig_begin_with(&rig, TEMPLATE);
    first = ask_response(&rig, "'" THINKS "'", GET_TOOL, 200);
    buf_printf(&input, "[{'role':'user','content':'q'}");
    for (size_t i = 0; i < 3; i++)
        buf_printf(&input, ",{'type':'item_reference','id':'%s'}", str_at(output_of(first, i), "id", NULL));
    buf_printf(&input,
               ",{'type':'function_call_output','call_id':'%s','output':'7'},"
               "{'role':'user','content':'say Seven.'}]",
               str_at(output_of(first, 2), "call_id", NULL));
    next = ask_response(&rig, (const char *)input.data, GET_TOOL, 200);
    assert_string_equal(part_text(output_of(next, 0), "content"), "Seven.");
    json_decref(first);
    json_decref(next);
    first = ask_response(&rig, "[{'type':'item_reference','id':'msg_abcdefghijklmnopqrstuvwx_0'}]", "", 400);
    assert_string_equal(str_at(first, "error", "param"), "input");
    json_decref(first);
    buf_fini(&input);
    rig_end(&rig);
}

static void check_pages(struct rig *rig, const char *id)
{
    char path[128];
    json_t *page, *rest;

    snprintf(path, sizeof(path), "/v1/responses/%s/input_items?limit=2&order=asc", id);
    assert_int_equal(status_at(rig, "GET", path, &page), 200);
    assert_int_equal(json_array_size(json_object_get(page, "data")), 2);
    assert_true(json_is_true(json_object_get(page, "has_more")));
    snprintf(path, sizeof(path), "/v1/responses/%s/input_items?order=asc&after=%s", id,
             str_at(page, "last_id", NULL));
    assert_int_equal(status_at(rig, "GET", path, &rest), 200);
    assert_int_equal(json_array_size(json_object_get(rest, "data")), 1);
    assert_true(json_is_false(json_object_get(rest, "has_more")));
    assert_string_equal(part_text(json_array_get(json_object_get(rest, "data"), 0), "content"), "say Two.");
    json_decref(page);
    json_decref(rest);
    snprintf(path, sizeof(path), "/v1/responses/%s/input_items", id);
    assert_int_equal(status_at(rig, "GET", path, &page), 200); /* the most recent first */
    assert_string_equal(part_text(json_array_get(json_object_get(page, "data"), 0), "content"), "say Two.");
    json_decref(page);
    snprintf(path, sizeof(path), "/v1/responses/%s/input_items?after=x", id);
    assert_int_equal(status_at(rig, "GET", path, NULL), 400);
    snprintf(path, sizeof(path), "/v1/responses/%s/input_items?limit=0", id);
    assert_int_equal(status_at(rig, "GET", path, NULL), 400);
}

static void kept_responses_are_shown_and_deleted(void **state)
{
    struct buf more = {0};
    char path[128];
    struct rig rig;
    json_t *first, *next, *shown;

    rig_begin(&rig, NULL);
    first = ask_response(&rig, "'say One.'", "", 200);
    buf_printf(&more, ",'previous_response_id':'%s'", str_at(first, "id", NULL));
    next = ask_response(&rig, "'say Two.'", (const char *)more.data, 200);
    snprintf(path, sizeof(path), "/v1/responses/%s", str_at(next, "id", NULL));
    assert_int_equal(status_at(&rig, "GET", path, &shown), 200);
    assert_true(json_equal(shown, next));
    json_decref(shown);
    strcat(path, "?stream=true");
    assert_int_equal(status_at(&rig, "GET", path, NULL), 400);
    *strstr(path, "?stream") = '\0';
    check_pages(&rig, str_at(next, "id", NULL));
    assert_int_equal(status_at(&rig, "PUT", path, NULL), 405);
    assert_int_equal(status_at(&rig, "POST", path, NULL), 405);
    strcat(path, "/cancel");
    assert_int_equal(status_at(&rig, "POST", path, NULL), 400);
    strcpy(strstr(path, "/cancel"), "/nothing");
    assert_int_equal(status_at(&rig, "GET", path, NULL), 404);
    *strstr(path, "/nothing") = '\0';
    assert_int_equal(status_at(&rig, "DELETE", path, &shown), 200);
    assert_true(json_is_true(json_object_get(shown, "deleted")));
    json_decref(shown);
    assert_int_equal(status_at(&rig, "GET", path, NULL), 404);
    assert_int_equal(status_at(&rig, "DELETE", path, NULL), 404);
    json_decref(next);
    next = ask_response(&rig, "'say Two.'", ",'store':false", 200);
    snprintf(path, sizeof(path), "/v1/responses/%s", str_at(next, "id", NULL));
    assert_int_equal(status_at(&rig, "GET", path, NULL), 404);
    json_decref(first);
    json_decref(next);
    buf_fini(&more);
    rig_end(&rig);
}

static void a_stream_is_cancelled_by_its_id(void **state)
{
    struct buf request = {0}, in = {0}, answer = {0};
    char path[128];
    const char *id;
    struct rig rig;
    json_t *root;
    int fd;

    rig_begin(&rig, NULL);
    put_stream(&request, "'count 100000'", ",'max_output_tokens':3000");
    fd = raw_connect(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    assert_true(raw_read_until(fd, "output_text.delta", 2000, &in));
    buf_append_byte(&in, '\0');
    id = strstr((const char *)in.data, "\"id\":\"resp_");
    assert_non_null(id);
    snprintf(path, sizeof(path), "/v1/responses/%.29s/cancel", id + 6);
    assert_int_equal(status_at(&rig, "POST", path, &root), 200);
    assert_string_equal(str_at(root, "status", NULL), "cancelled");
    json_decref(root);
    assert_true(raw_read_until(fd, "\"status\":\"cancelled\"", 2000, &answer));
    assert_true(raw_holds(&answer, "event: response.incomplete"));
    assert_true(raw_holds(&answer, "event: response.output_item.done"));
    assert_true(reaches(&rig.counts->n_running, 0));
    assert_int_equal(status_at(&rig, "POST", path, NULL), 400); /* it has ended */
    close(fd);
    buf_fini(&request);
    buf_fini(&in);
    buf_fini(&answer);
    rig_end(&rig);
}

/* Appends 40 turns of the user with 200 letters each, and the calls of one turn, then a question. */
static void put_long_input(struct buf *out)
{
    buf_append_str(out, "[");
    for (int i = 0; i < 40; i++) {
        buf_printf(out, "{'role':'user','content':'%d ", i);
        for (int k = 0; k < 200; k++)
            buf_append_byte(out, 'x');
        buf_printf(out,
                   "'},{'type':'function_call','call_id':'c%d','name':'get','arguments':'{}'},"
                   "{'type':'function_call_output','call_id':'c%d','output':'r'},{'role':'assistant','"
                   "content':'So.'},",
                   i, i);
    }
    buf_append_str(out, "{'role':'user','content':'say Ok.'}]");
}

static void the_oldest_turns_are_left_out_on_request(void **state)
{
    struct buf input = {0};
    struct rig rig;
    json_t *root, *warning;

    rig_begin(&rig, NULL);
    put_long_input(&input);
    root = ask_response(&rig, (const char *)input.data, ",'max_output_tokens':100", 400);
    assert_string_equal(str_at(root, "error", "code"), "context_length_exceeded");
    json_decref(root);
    root = ask_response(&rig, (const char *)input.data, ",'max_output_tokens':100,'truncation':'auto'", 200);
    assert_string_equal(part_text(output_of(root, 0), "content"), "Ok.");
    assert_in_range(num_at(root, "usage", "input_tokens"), CONTEXT / 2, CONTEXT - 100);
    warning = json_array_get(json_object_get(root, "warnings"), 0);
    assert_string_equal(str_at(warning, "code", NULL), "input_truncated");
    json_decref(root);
    buf_clear(&input); /* a single turn that is too long */
    buf_append_str(&input, "'");
    for (int k = 0; k < CONTEXT; k++)
        buf_append_byte(&input, 'x');
    buf_append_str(&input, "'");
    json_decref(ask_response(&rig, (const char *)input.data, ",'truncation':'auto'", 400));
    buf_fini(&input);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer),
        cmocka_unit_test(a_stream_tells_the_same),
        cmocka_unit_test(blocks_are_items),
        cmocka_unit_test(text_that_is_no_call_is_an_incomplete_item),
        cmocka_unit_test(log_probabilities_go_with_the_text),
        cmocka_unit_test(many_log_probabilities_are_sent_once),
        cmocka_unit_test(a_response_is_continued_any_number_of_times),
        cmocka_unit_test(items_are_referred_to),
        cmocka_unit_test(kept_responses_are_shown_and_deleted),
        cmocka_unit_test(a_stream_is_cancelled_by_its_id),
        cmocka_unit_test(the_oldest_turns_are_left_out_on_request),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
