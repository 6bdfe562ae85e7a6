/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the endpoint for OpenAI's clients: whole and in chunks, log probabilities, errors, tokens. */
#include "rig_openai.h"

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
    assert_true(json_integer_value(json_object_get(chunks.serving, "prompt")) > 0);
    chunks_fini(&chunks);
    stream_chat(&rig, "say Hi", ",'stream_options':{'include_usage':true}", &chunks);
    assert_int_equal(json_integer_value(json_object_get(chunks.usage, "completion_tokens")), 2);
    assert_non_null(chunks.serving); /* in the chunk with the usage */
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
    assert_int_equal(json_array_size(entries), 3); /* without those of the stop string */
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
    /* "say a" as text and as tokens, each twice. */
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

/* A base model: texts are continued and measured, conversations are refused by every route. */
static void without_a_chat_template_only_texts_are_answered(void **state)
{
    static const char *const chats[][2] = {
        {CHAT, "{'model':'sim','messages':[{'role':'user','content':'x'}]}"},
        {"/v1/responses", "{'model':'sim','input':'x'}"},
        {"/tokenize", "{'messages':[{'role':'user','content':'x'}]}"},
    };
    struct rig rig;
    json_t *root;

    rig_begin_with(&rig, "");
    root = ask_at(&rig, "/v1/completions", "{'model':'sim','prompt':'say a','logprobs':1}", 200);
    assert_string_equal(str_at(choice_of(root, 0), "text", NULL), "a");
    json_decref(root);
    json_decref(ask_at(&rig, "/tokenize", "{'prompt':'say a'}", 200));
    for (size_t i = 0; i < ARRAY_LEN(chats); i++) {
        root = ask_at(&rig, chats[i][0], chats[i][1], 400);
        assert_string_equal(str_at(root, "error", "code"), "chat_unsupported");
        assert_non_null(strstr(str_at(root, "error", "message"), "no chat template"));
        json_decref(root);
    }
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
        {"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 401},
        {"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 401},
        {"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: a\r\n\r\n", 401},
        {"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: a\r\nx-api-key: secret\r\n\r\n", 404},
        {"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 404},
        {"GET /v1/files/file_1 HTTP/1.1\r\nHost: a\r\n\r\n", 404},
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
        cmocka_unit_test(silence_is_broken_by_comments),
        cmocka_unit_test(completions_go_on_from_their_prompts),
        cmocka_unit_test(without_a_chat_template_only_texts_are_answered),
        cmocka_unit_test(tokens_and_text),
        cmocka_unit_test(every_error_has_the_shape),
        cmocka_unit_test(errors_have_codes),
        cmocka_unit_test(long_bodies_go_through_the_pool),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
