/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as OpenAI's clients send them.  A failure here fails the test. */
#include "rig_openai.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/http/sse_parse.h"

/* ---- requests ---- */

void put_request(struct buf *out, const char *path, const char *fields, const char *body)
{
    struct buf quoted = {0};

    buf_append_str(&quoted, body);
    for (size_t i = 0; i < quoted.len_bytes; i++)
        if (quoted.data[i] == '\'')
            quoted.data[i] = '"';
    put_post(out, path, fields, (const char *)quoted.data);
    buf_fini(&quoted);
}

json_t *ask_at(struct rig *rig, const char *path, const char *body, int want_status)
{
    struct buf request = {0};
    struct buf head = {0};
    json_t *root;

    put_request(&request, path, "", body);
    root = ask(rig, &request, want_status, &head);
    assert_non_null(root);
    assert_true(raw_holds(&head, "\r\nx-request-id: req_"));
    if (want_status == 200 && json_object_get(root, "choices") != NULL)
        assert_true(raw_holds(&head, "\r\nbaton-proof: prompt="));
    buf_fini(&request);
    buf_fini(&head);
    return root;
}

int status_at(struct rig *rig, const char *method, const char *path, json_t **out)
{
    struct buf request = {0}, body = {0};
    int status;

    buf_printf(&request, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", method, path);
    status = raw_ask(rig->port, (const char *)request.data, &body);
    if (out != NULL)
        *out = json_loadb((const char *)body.data, body.len_bytes, 0, NULL);
    buf_fini(&request);
    buf_fini(&body);
    return status;
}

json_t *ask_response(struct rig *rig, const char *input, const char *more, int want_status)
{
    struct buf body = {0};
    json_t *root;

    buf_printf(&body, "{'model':'sim','input':%s%s}", input, more);
    root = ask_at(rig, "/v1/responses", (const char *)body.data, want_status);
    buf_fini(&body);
    return root;
}

/* user: text as written in JSON; more: further members, beginning with a comma. */
json_t *ask_chat(struct rig *rig, const char *user, const char *more, int want_status)
{
    struct buf body = {0};
    json_t *root;

    buf_printf(&body, "{'model':'sim','messages':[{'role':'user','content':'%s'}]%s}", user, more);
    root = ask_at(rig, CHAT, (const char *)body.data, want_status);
    buf_fini(&body);
    return root;
}

json_t *choice_of(json_t *root, size_t index)
{
    json_t *choice = json_array_get(json_object_get(root, "choices"), index);

    assert_non_null(choice);
    assert_int_equal(json_integer_value(json_object_get(choice, "index")), index);
    return choice;
}

const char *content_of(json_t *root, size_t index)
{
    return str_at(choice_of(root, index), "message", "content");
}

/* ---- streams ---- */

static void take_calls(struct chunks *chunks, json_t *calls)
{
    json_t *call = json_array_get(calls, 0);
    json_t *id = json_object_get(call, "id");

    if (call == NULL)
        return;
    if (id != NULL) {
        assert_int_equal(strncmp(json_string_value(id), "call_", 5), 0);
        assert_string_equal(str_at(call, "type", NULL), "function");
        assert_string_equal(str_at(call, "function", "arguments"), "");
        chunks->n_calls++;
    }
    assert_int_equal(json_integer_value(json_object_get(call, "index")), chunks->n_calls - 1);
    buf_append_str(&chunks->arguments, str_at(call, "function", "arguments"));
}

static void take_choice(struct chunks *chunks, json_t *choice)
{
    json_int_t index = json_integer_value(json_object_get(choice, "index"));
    json_t *delta = json_object_get(choice, "delta");
    json_t *logprobs = json_object_get(choice, "logprobs");

    assert_true(index >= 0 && index < MAX_CHOICES);
    assert_string_equal(chunks->finish[index], "");
    assert_non_null(logprobs);
    chunks->n_logprobs += json_array_size(json_object_get(logprobs, "content"));
    if (delta == NULL) {
        buf_append_str(&chunks->texts[index], str_at(choice, "text", NULL));
    } else {
        if (json_object_get(delta, "role") != NULL) {
            assert_false(chunks->has_role[index]);
            assert_string_equal(str_at(delta, "content", NULL), "");
            chunks->has_role[index] = true;
        }
        assert_true(chunks->has_role[index]);
        buf_append_str(&chunks->texts[index], str_at(delta, "content", NULL));
        take_calls(chunks, json_object_get(delta, "tool_calls"));
    }
    if (!json_is_null(json_object_get(choice, "finish_reason"))) {
        snprintf(chunks->finish[index], sizeof(chunks->finish[0]), "%s",
                 str_at(choice, "finish_reason", NULL));
        assert_int_equal(json_object_size(delta), 0);
    }
}

static int take_chunk(void *arg, struct bytes name, struct bytes text)
{
    struct chunks *chunks = arg;
    json_t *data, *serving, *choice;

    assert_true(bytes_is(name, "message")); /* no event line */
    assert_false(chunks->is_done || chunks->error[0] != '\0');
    if (bytes_is(text, "[DONE]")) {
        chunks->is_done = true;
        return 0;
    }
    data = json_loadb((const char *)text.data, text.len_bytes, 0, NULL);
    assert_non_null(data);
    if (json_object_get(data, "error") != NULL) {
        snprintf(chunks->error, sizeof(chunks->error), "%s", str_at(data, "error", "message"));
        json_decref(data);
        return 0;
    }
    assert_null(chunks->serving);
    assert_null(chunks->usage);
    if (chunks->id[0] == '\0')
        snprintf(chunks->id, sizeof(chunks->id), "%s", str_at(data, "id", NULL));
    assert_string_equal(chunks->id, str_at(data, "id", NULL));
    serving = json_object_get(data, "baton");
    chunks->serving = json_incref(serving);
    choice = json_array_get(json_object_get(data, "choices"), 0);
    if (choice != NULL)
        take_choice(chunks, choice);
    else
        chunks->usage = json_incref(json_object_get(data, "usage"));
    json_decref(data);
    return 0;
}

static void read_chunks(const struct buf *body, struct chunks *chunks)
{
    struct sse_parser *parser;

    memset(chunks, 0, sizeof(*chunks));
    assert_int_equal(sse_parser_new(1 << 20, take_chunk, chunks, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, buf_view(body)), 0);
    sse_parser_free(parser);
    assert_true(chunks->is_done != (chunks->error[0] != '\0'));
}

void stream_at(struct rig *rig, const char *path, const char *fields, const char *body, struct chunks *chunks)
{
    struct buf request = {0};
    struct buf text = {0};
    struct buf answer = {0};
    int fd = raw_connect(rig->port);

    put_request(&request, path, fields, body);
    raw_send(fd, request.data, request.len_bytes);
    assert_int_equal(raw_read_answer(fd, &text, &answer), 200);
    assert_true(raw_holds(&text, "content-type: text/event-stream; charset=utf-8\r\n"));
    assert_true(raw_holds(&text, "\r\nx-request-id: req_"));
    read_chunks(&answer, chunks);
    /* The connection continues. */
    buf_clear(&text);
    raw_send_str(fd, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(raw_read_answer(fd, &text, NULL), 200);
    close(fd);
    buf_fini(&request);
    buf_fini(&text);
    buf_fini(&answer);
}

void stream_chat(struct rig *rig, const char *user, const char *more, struct chunks *chunks)
{
    struct buf body = {0};

    buf_printf(&body, "{'model':'sim','stream':true,'messages':[{'role':'user','content':'%s'}]%s}", user,
               more);
    stream_at(rig, CHAT, "baton-proof: stream\r\n", (const char *)body.data, chunks);
    buf_fini(&body);
}

void chunks_fini(struct chunks *chunks)
{
    for (int i = 0; i < MAX_CHOICES; i++)
        buf_fini(&chunks->texts[i]);
    buf_fini(&chunks->arguments);
    json_decref(chunks->usage);
    json_decref(chunks->serving);
}

bool says(const struct chunks *chunks, int index, const char *text)
{
    return bytes_is(buf_view(&chunks->texts[index]), text);
}
