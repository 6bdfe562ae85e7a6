/* SPDX-License-Identifier: Apache-2.0 */
/* What OpenAI's clients get of the endpoint: answers whole and in chunks, several choices, log probabilities,
 * errors, tokens.  Bodies are written with ' for ". */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "http/sse_parse.h"

#define CHAT        "/v1/chat/completions"
#define MAX_CHOICES 8

/* ---- asking ---- */

static void put_request(struct buf *out, const char *path, const char *fields, const char *body)
{
    struct buf quoted = {0};

    buf_append_str(&quoted, body);
    for (size_t i = 0; i < quoted.len_bytes; i++)
        if (quoted.data[i] == '\'')
            quoted.data[i] = '"';
    put_post(out, path, fields, (const char *)quoted.data);
    buf_fini(&quoted);
}

static json_t *ask_at(struct rig *rig, const char *path, const char *body, int want_status)
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

/* user: text as it stands in JSON; more: further members, beginning with a comma. */
static json_t *ask_chat(struct rig *rig, const char *user, const char *more, int want_status)
{
    struct buf body = {0};
    json_t *root;

    buf_printf(&body, "{'model':'sim','messages':[{'role':'user','content':'%s'}]%s}", user, more);
    root = ask_at(rig, CHAT, (const char *)body.data, want_status);
    buf_fini(&body);
    return root;
}

static json_t *choice_of(json_t *root, size_t index)
{
    json_t *choice = json_array_get(json_object_get(root, "choices"), index);

    assert_non_null(choice);
    assert_int_equal(json_integer_value(json_object_get(choice, "index")), index);
    return choice;
}

static const char *content_of(json_t *root, size_t index)
{
    return str_at(choice_of(root, index), "message", "content");
}

/* ---- streams ---- */

struct chunks { /* what a stream said, checked on the way */
    char id[64];
    struct buf texts[MAX_CHOICES];
    struct buf arguments;
    char finish[MAX_CHOICES][16];
    bool has_role[MAX_CHOICES];
    size_t n_logprobs;
    int n_calls;
    json_t *usage, *proof;
    char error[128];
    bool is_done;
};

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
    json_t *data, *proof, *choice;

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
    assert_null(chunks->proof);
    assert_null(chunks->usage);
    if (chunks->id[0] == '\0')
        snprintf(chunks->id, sizeof(chunks->id), "%s", str_at(data, "id", NULL));
    assert_string_equal(chunks->id, str_at(data, "id", NULL));
    proof = json_object_get(data, "baton");
    chunks->proof = json_incref(proof);
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

static void stream_at(struct rig *rig, const char *path, const char *fields, const char *body,
                      struct chunks *chunks)
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
    /* The connection goes on. */
    buf_clear(&text);
    raw_send_str(fd, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(raw_read_answer(fd, &text, NULL), 200);
    close(fd);
    buf_fini(&request);
    buf_fini(&text);
    buf_fini(&answer);
}

static void stream_chat(struct rig *rig, const char *user, const char *more, struct chunks *chunks)
{
    struct buf body = {0};

    buf_printf(&body, "{'model':'sim','stream':true,'messages':[{'role':'user','content':'%s'}]%s}", user,
               more);
    stream_at(rig, CHAT, "baton-proof: stream\r\n", (const char *)body.data, chunks);
    buf_fini(&body);
}

static void chunks_fini(struct chunks *chunks)
{
    for (int i = 0; i < MAX_CHOICES; i++)
        buf_fini(&chunks->texts[i]);
    buf_fini(&chunks->arguments);
    json_decref(chunks->usage);
    json_decref(chunks->proof);
}

static bool says(const struct chunks *chunks, int index, const char *text)
{
    return bytes_is(buf_view(&chunks->texts[index]), text);
}

/* ---- one choice ---- */

static void a_whole_answer(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_chat(&rig, "say Hello \xe2\x82\xac.", "", 200);
    assert_string_equal(str_at(root, "object", NULL), "chat.completion");
    assert_int_equal(strncmp(str_at(root, "id", NULL), "chatcmpl-", 9), 0);
    assert_string_equal(content_of(root, 0), "Hello \xe2\x82\xac.");
    assert_string_equal(str_at(choice_of(root, 0), "finish_reason", NULL), "stop");
    assert_int_equal(num_at(root, "usage", "completion_tokens"), 10);
    assert_int_equal(num_at(root, "usage", "total_tokens"), 10 + num_at(root, "usage", "prompt_tokens"));
    json_decref(root);
    root = ask_chat(&rig, "count 50", ",'max_completion_tokens':4", 200);
    assert_string_equal(content_of(root, 0), "1 2 ");
    assert_string_equal(str_at(choice_of(root, 0), "finish_reason", NULL), "length");
    json_decref(root);
    rig_end(&rig);
}

static void a_stream_tells_the_same(void **state)
{
    struct chunks chunks;
    struct rig rig;

    rig_begin(&rig, NULL);
    stream_chat(&rig, "say Gr\xc3\xbc\xc3\x9f dich, \xf0\x9f\x98\x80!", "", &chunks);
    assert_true(says(&chunks, 0, "Gr\xc3\xbc\xc3\x9f dich, \xf0\x9f\x98\x80!"));
    assert_string_equal(chunks.finish[0], "stop");
    assert_null(chunks.usage);
    assert_true(json_integer_value(json_object_get(chunks.proof, "prompt")) > 0);
    chunks_fini(&chunks);
    stream_chat(&rig, "say Hi", ",'stream_options':{'include_usage':true}", &chunks);
    assert_int_equal(json_integer_value(json_object_get(chunks.usage, "completion_tokens")), 2);
    assert_non_null(chunks.proof); /* in the chunk with the usage */
    chunks_fini(&chunks);
    rig_end(&rig);
}

static void calls_are_counted_from_zero(void **state)
{
    static const char tools[] =
        ",'tools':[{'type':'function','function':{'name':'f'}}],'parallel_tool_calls':true";
    static const char text[] =
        "call So.<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}"
        "</tool_call><tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}</tool_call>";
    struct chunks chunks;
    struct rig rig;
    json_t *root, *calls;

    rig_begin(&rig, NULL);
    stream_chat(&rig, text, tools, &chunks);
    assert_true(says(&chunks, 0, "So."));
    assert_true(bytes_is(buf_view(&chunks.arguments), "{\"a\": 1}{}"));
    assert_int_equal(chunks.n_calls, 2);
    assert_string_equal(chunks.finish[0], "tool_calls");
    chunks_fini(&chunks);
    root = ask_chat(&rig, text, tools, 200);
    assert_string_equal(content_of(root, 0), "So.");
    calls = json_object_get(json_object_get(choice_of(root, 0), "message"), "tool_calls");
    assert_int_equal(json_array_size(calls), 2);
    assert_string_equal(str_at(json_array_get(calls, 0), "function", "arguments"), "{\"a\": 1}");
    json_decref(root);
    rig_end(&rig);
}

static void log_probabilities_go_with_the_text(void **state)
{
    struct chunks chunks;
    struct rig rig;
    json_t *root, *entries;

    rig_begin(&rig, NULL);
    root = ask_chat(&rig, "say abcENDe", ",'logprobs':true,'top_logprobs':2,'stop':'END'", 200);
    assert_string_equal(content_of(root, 0), "abc");
    entries = json_object_get(json_object_get(choice_of(root, 0), "logprobs"), "content");
    assert_int_equal(json_array_size(entries), 3); /* not those of the stop string */
    assert_string_equal(str_at(json_array_get(entries, 2), "token", NULL), "c");
    assert_true(json_number_value(json_object_get(json_array_get(entries, 2), "logprob")) == -0.25);
    assert_int_equal(json_array_size(json_object_get(json_array_get(entries, 2), "top_logprobs")), 2);
    json_decref(root);
    stream_chat(&rig, "say \xe2\x82\xac ENx", ",'logprobs':true,'stop':['END']", &chunks);
    assert_true(says(&chunks, 0, "\xe2\x82\xac ENx"));
    assert_int_equal(chunks.n_logprobs, 7);
    chunks_fini(&chunks);
    root = ask_chat(&rig, "say abc", "", 200);
    assert_true(json_is_null(json_object_get(choice_of(root, 0), "logprobs")));
    json_decref(root);
    rig_end(&rig);
}

/* ---- several choices ---- */

static void several_choices_are_several_jobs(void **state)
{
    struct chunks chunks;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_chat(&rig, "say a prompt of more than a block of tokens", ",'n':3", 200);
    assert_int_equal(json_array_size(json_object_get(root, "choices")), 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(content_of(root, i), "a prompt of more than a block of tokens");
    assert_int_equal(rig.counts->n_submitted, 3);
    assert_int_equal(num_at(root, "usage", "completion_tokens"), 3 * 39);
    json_decref(root);

    stream_chat(&rig, "count 40, and say nothing else between the numbers",
                ",'n':4,'stream_options':{'include_usage':true},'stop':' 21'", &chunks);
    for (int i = 0; i < 4; i++) { /* each is stopped by itself; none ends the others */
        assert_true(says(&chunks, i, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"));
        assert_string_equal(chunks.finish[i], "stop");
    }
    assert_int_equal(rig.counts->n_cancelled, 4);
    /* The proof counts each job's prompt, the bill one; all but the first reuse the first's. */
    assert_int_equal(json_integer_value(json_object_get(chunks.proof, "prompt")),
                     4 * json_integer_value(json_object_get(chunks.usage, "prompt_tokens")));
    assert_true(json_integer_value(json_object_get(chunks.proof, "reused")) >= 3 * 32);
    chunks_fini(&chunks);
    rig_end(&rig);
}

static void two_at_a_time(struct front_opts *opts, struct sim_opts *sim)
{
    sim->max_running = 2;
}

static void choices_that_find_no_room_wait_for_the_others(void **state)
{
    struct chunks chunks;
    struct rig rig;

    rig_begin(&rig, two_at_a_time);
    stream_chat(&rig, "count 20", ",'n':5", &chunks);
    for (int i = 0; i < 5; i++)
        assert_string_equal(chunks.finish[i], "stop");
    assert_int_equal(rig.counts->n_ended, 5);
    chunks_fini(&chunks);
    rig_end(&rig);
}

static void a_failing_choice_fails_the_request(void **state)
{
    struct chunks chunks;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    stream_chat(&rig, "break 3", ",'n':3", &chunks);
    assert_string_equal(chunks.error, "the sim broke as it was told to");
    assert_false(chunks.is_done);
    assert_int_equal(rig.counts->n_running, 0);
    chunks_fini(&chunks);
    root = ask_chat(&rig, "break 3", ",'n':3", 529);
    assert_string_equal(str_at(root, "error", "code"), "overloaded");
    json_decref(root);
    root = ask_chat(&rig, "overload", ",'n':2", 529);
    assert_string_equal(str_at(root, "error", "type"), "server_error");
    json_decref(root);
    assert_int_equal(rig.counts->n_running, 0);
    rig_end(&rig);
}

static void leaving_cancels_every_choice(void **state)
{
    static const char *const users[] = {"flood", "count 3000", "hang", "wait"};
    struct rig rig;

    for (size_t i = 0; i < 2 * ARRAY_LEN(users); i++) {
        struct buf request = {0};
        struct buf body = {0};
        struct buf in = {0};
        bool is_stream = i % 2 == 1;
        uint64_t left_ns;
        int fd;

        rig_begin(&rig, NULL);
        buf_printf(&body, "{'model':'sim','n':3,'stream':%s,'messages':[{'role':'user','content':'%s'}]}",
                   is_stream ? "true" : "false", users[i / 2]);
        put_request(&request, CHAT, "", (const char *)body.data);
        fd = raw_connect(rig.port);
        raw_send(fd, request.data, request.len_bytes);
        assert_true(reaches(&rig.counts->n_running, i < 4 ? 3 : 1));
        if (is_stream && i < 4)
            assert_true(raw_read_until(fd, "\"index\":2", 2000, &in));
        close(fd);
        left_ns = clock_now_ns();
        assert_true(reaches(&rig.counts->n_running, 0));
        assert_true(clock_now_ns() - left_ns < NS_PER_S);
        assert_int_equal(rig.counts->n_ended, 0);
        buf_fini(&request);
        buf_fini(&body);
        buf_fini(&in);
        rig_end(&rig);
    }
}

static void small_queues(struct front_opts *opts, struct sim_opts *sim)
{
    opts->limits.max_queue_bytes = 64 << 10;
}

static void slow_readers_hold_every_choice_up(void **state)
{
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, small_queues);
    put_request(&request, CHAT, "",
                "{'model':'sim','n':2,'stream':true,'messages':[{'role':'user','content':'flood'}]}");
    fd = raw_connect_small(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    for (int i = 0; i < 600 && rig.counts->n_pauses < 2; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    assert_true(rig.counts->n_pauses >= 2);
    while (rig.counts->n_resumes < 2 && in.len_bytes < 8 << 20)
        raw_read_until(fd, "never", 1, &in);
    assert_true(rig.counts->n_resumes >= 2);
    close(fd);
    assert_true(reaches(&rig.counts->n_running, 0));
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

static void few(struct front_opts *opts, struct sim_opts *sim)
{
    opts->max_requests = 4;
}

static void choices_count_as_requests(void **state)
{
    struct rig rig;

    rig_begin(&rig, few);
    json_decref(ask_chat(&rig, "say x", ",'n':4", 200));
    json_decref(ask_chat(&rig, "say x", ",'n':5", 529));
    json_decref(ask_chat(&rig, "say x", ",'n':128", 529));
    json_decref(ask_chat(&rig, "say x", ",'n':4", 200));
    rig_end(&rig);
}

/* ---- silence and ends ---- */

static void impatient(struct front_opts *opts, struct sim_opts *sim)
{
    opts->ping_ns = 30 * NS_PER_MS;
}

static void abandon(void *arg)
{
    front_abandon(((struct rig *)arg)->front);
}

static void silence_is_broken_by_comments(void **state)
{
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, impatient);
    put_request(&request, CHAT, "",
                "{'model':'sim','stream':true,'messages':[{'role':'user','content':'hang'}]}");
    fd = raw_connect(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    assert_true(raw_read_until(fd, "\n\n: ping\n\n", 1000, &in) || raw_holds(&in, "\n: ping\n\n"));
    buf_clear(&in);
    assert_true(raw_read_until(fd, ": ping\n\n", 1000, &in));
    assert_false(raw_holds(&in, "event:"));
    raw_loop_call(&rig.raw, abandon, &rig);
    assert_true(raw_read_until(fd, "shutting down", 2000, &in));
    assert_true(raw_holds(&in, "data: {\"error\":{\"message\":"));
    assert_false(raw_holds(&in, "[DONE]"));
    close(fd);
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

/* ---- completions and tokens ---- */

static void completions_go_on_from_their_prompts(void **state)
{
    struct chunks chunks;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':'count 50'}", 200);
    assert_string_equal(str_at(root, "object", NULL), "text_completion");
    assert_string_equal(str_at(choice_of(root, 0), "text", NULL), "1 2 3 4 5 6 7 8 ");
    assert_string_equal(str_at(choice_of(root, 0), "finish_reason", NULL), "length");
    json_decref(root);
    /* "say a" in text and in tokens, each twice. */
    root = ask_at(&rig, "/v1/completions",
                  "{'model':'sim','prompt':['say a',[115,97,121,32,98]],'n':2,'echo':true}", 200);
    assert_int_equal(json_array_size(json_object_get(root, "choices")), 4);
    assert_string_equal(str_at(choice_of(root, 0), "text", NULL), "say aa");
    assert_string_equal(str_at(choice_of(root, 1), "text", NULL), "say aa");
    assert_string_equal(str_at(choice_of(root, 3), "text", NULL), "say bb");
    assert_int_equal(num_at(root, "usage", "prompt_tokens"), 10);
    assert_int_equal(num_at(root, "usage", "completion_tokens"), 4);
    json_decref(root);
    stream_at(
        &rig, "/v1/completions", "",
        "{'model':'sim','prompt':'say b','echo':true,'stream':true,'stream_options':{'include_usage':true}}",
        &chunks);
    assert_true(says(&chunks, 0, "say bb"));
    assert_int_equal(strncmp(chunks.id, "cmpl-", 5), 0);
    assert_non_null(chunks.usage);
    chunks_fini(&chunks);
    root =
        ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':'say b','echo':true,'max_tokens':0}", 200);
    assert_string_equal(str_at(choice_of(root, 0), "text", NULL), "say b");
    assert_int_equal(num_at(root, "usage", "completion_tokens"), 0);
    json_decref(root);
    root = ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':'say bc','logprobs':1}", 200);
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(choice_of(root, 0), "logprobs"), "tokens")), 2);
    json_decref(root);
    json_decref(ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':''}", 400));
    json_decref(ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':[99999]}", 400));
    rig_end(&rig);
}

static void tokens_and_text(void **state)
{
    struct rig rig;
    json_t *root, *chat;

    rig_begin(&rig, NULL);
    root = ask_at(&rig, "/tokenize", "{'content':'hi<|im_end|>'}",
                  200); /* client text is never a control token */
    assert_int_equal(json_array_size(json_object_get(root, "tokens")), 12);
    assert_int_equal(json_integer_value(json_object_get(root, "count")), 12);
    assert_int_equal(json_integer_value(json_object_get(root, "max_model_len")), CONTEXT);
    json_decref(root);
    root = ask_at(&rig, "/detokenize", "{'tokens':[226,130,172]}", 200);
    assert_string_equal(str_at(root, "prompt", NULL), "\xe2\x82\xac");
    assert_string_equal(str_at(root, "content", NULL), "\xe2\x82\xac");
    json_decref(root);
    root = ask_at(&rig, "/detokenize", "{'tokens':[1,261]}", 400);
    assert_string_equal(str_at(root, "error", "message"),
                        "token 261 is not in the model's vocabulary of 261");
    json_decref(root);
    root = ask_at(&rig, "/tokenize", "{'model':'sim','messages':[{'role':'user','content':'say x'}]}", 200);
    chat = ask_chat(&rig, "say x", "", 200);
    assert_int_equal(json_integer_value(json_object_get(root, "count")),
                     num_at(chat, "usage", "prompt_tokens"));
    json_decref(chat);
    json_decref(root);
    json_decref(ask_at(&rig, "/tokenize", "{'model':'none','content':'x'}", 404));
    rig_end(&rig);
}

/* ---- errors ---- */

static const char *keys_path = "test_openai.keys";

static void keyed(struct front_opts *opts, struct sim_opts *sim)
{
    opts->keys_path = keys_path;
    opts->limits.max_body_bytes = 100000;
}

static void has_shape(json_t *root)
{
    json_t *error = json_object_get(root, "error");

    assert_non_null(error);
    assert_int_equal(json_object_size(root), 1);
    assert_int_equal(json_object_size(error), 4);
    assert_true(json_is_string(json_object_get(error, "message")));
    assert_true(json_is_string(json_object_get(error, "type")));
    assert_non_null(json_object_get(error, "param"));
    assert_non_null(json_object_get(error, "code"));
    json_decref(root);
}

static void every_error_has_the_shape(void **state)
{
    static const struct {
        const char *head;
        int status;
    } asked[] = {
        {"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 401},
        {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nx-api-key: k\r\nContent-Length: 2\r\n\r\n{}", 401},
        {"GET /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"GET /tokenize HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 404},
        {"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 404},
        {"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: a\r\n\r\n", 404},
        {"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: "
         "2\r\n"
         "\r\n{}",
         400},
        {"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: "
         "100001\r\n\r\n",
         413},
        {"POST /detokenize HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: 1\r\n\r\n{",
         400},
    };
    FILE *file = fopen(keys_path, "w");
    struct buf request = {0};
    struct rig rig;

    assert_non_null(file);
    /* sha256 of "secret" */
    fprintf(file, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b tests\n");
    fclose(file);
    assert_int_equal(chmod(keys_path, 0600), 0);
    rig_begin(&rig, keyed);
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        struct buf head = {0};

        buf_clear(&request);
        buf_append_str(&request, asked[i].head);
        has_shape(ask(&rig, &request, asked[i].status, &head));
        assert_true(raw_holds(&head, "\r\nx-request-id: req_"));
        assert_int_equal(asked[i].status == 401, raw_holds(&head, "\r\nwww-authenticate: Bearer\r\n"));
        buf_fini(&head);
    }
    buf_fini(&request);
    rig_end(&rig);
    unlink(keys_path);
}

static void errors_have_codes(void **state)
{
    struct buf text = {0};
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_at(&rig, CHAT, "{'model':'none','messages':[{'role':'user','content':'x'}]}", 404);
    assert_string_equal(str_at(root, "error", "code"), "model_not_found");
    has_shape(root);
    root = ask_chat(&rig, "x", ",'logit_bias':{'300':1}", 400);
    assert_string_equal(str_at(root, "error", "message"),
                        "logit_bias: token 300 is not in the model's vocabulary of 261");
    has_shape(root);
    for (int i = 0; i < 600; i++)
        buf_append_str(&text, "say long");
    root = ask_chat(&rig, (const char *)text.data, "", 400);
    assert_string_equal(str_at(root, "error", "code"), "context_length_exceeded");
    has_shape(root);
    buf_fini(&text);
    rig_end(&rig);
}

/* Parsed and tokenised in the pool. */
static void all_pooled(struct front_opts *opts, struct sim_opts *sim)
{
    opts->inline_bytes = 0;
}

static void long_bodies_go_through_the_pool(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin(&rig, all_pooled);
    root = ask_chat(&rig, "say pooled", ",'n':2", 200);
    assert_string_equal(content_of(root, 1), "pooled");
    json_decref(root);
    root = ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':['say a','say b']}", 200);
    assert_string_equal(str_at(choice_of(root, 1), "text", NULL), "b");
    json_decref(root);
    json_decref(ask_at(&rig, "/detokenize", "{'tokens':[97]}", 200));
    json_decref(ask_at(&rig, "/tokenize", "{'prompt':5}", 400));
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer),
        cmocka_unit_test(a_stream_tells_the_same),
        cmocka_unit_test(calls_are_counted_from_zero),
        cmocka_unit_test(log_probabilities_go_with_the_text),
        cmocka_unit_test(several_choices_are_several_jobs),
        cmocka_unit_test(choices_that_find_no_room_wait_for_the_others),
        cmocka_unit_test(a_failing_choice_fails_the_request),
        cmocka_unit_test(leaving_cancels_every_choice),
        cmocka_unit_test(slow_readers_hold_every_choice_up),
        cmocka_unit_test(choices_count_as_requests),
        cmocka_unit_test(silence_is_broken_by_comments),
        cmocka_unit_test(completions_go_on_from_their_prompts),
        cmocka_unit_test(tokens_and_text),
        cmocka_unit_test(every_error_has_the_shape),
        cmocka_unit_test(errors_have_codes),
        cmocka_unit_test(long_bodies_go_through_the_pool),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
