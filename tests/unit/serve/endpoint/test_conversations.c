/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations through the endpoint (their table alone: tests/unit/serve/conversation).  A continued conversation equals the one that a
 * client would have sent whole, token for token.  A conversation that cannot be continued is refused with the
 * code that clients know. */
#include "serve/conversation/conversations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/log.h"
#include "rig.h"

#define ASK    "{\"role\":\"user\",\"content\":\"say Three.\"}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"Three.\"}"
#define NEXT   "{\"role\":\"user\",\"content\":\"say Four.\"}"
#define SYSTEM "\"system\":\"You count.\","
#define TOOLS  "\"tools\":[{\"name\":\"get\",\"input_schema\":{\"type\":\"object\"}}],"
#define CREATE ",\"thread\":{\"type\":\"create\"}"
#define CALL_GET                                                                                             \
    "say <tool_call>\\n{\\\"name\\\": \\\"get\\\", \\\"arguments\\\": {\\\"n\\\": 1}}\\n</tool_call>"

static json_t *post(struct rig *rig, const char *path, const char *fields, const char *body, int want_status)
{
    struct buf request = {0};
    json_t *root;

    put_post(&request, path, fields, body);
    root = ask(rig, &request, want_status, NULL);
    buf_fini(&request);
    return root;
}

static json_t *send_body(struct rig *rig, const char *body, int want_status)
{
    return post(rig, "/v1/messages", "", body, want_status);
}

static int input_of(json_t *count)
{
    return (int)json_integer_value(json_object_get(count, "input_tokens"));
}

struct next { /* a request that continues a conversation */
    const char *id;
    const char *more; /* members before the messages, ending in a comma */
    const char *messages;
};

static void put_next(char *out, size_t size, const struct next *next)
{
    snprintf(out, size,
             "{\"model\":\"sim\",\"max_tokens\":100,%s\"messages\":[%s],"
             "\"thread\":{\"type\":\"continue\",\"previous_message_id\":\"%s\"}}",
             next->more, next->messages, next->id);
}

static void go_on(struct rig *rig, const struct next *next, int want_status, const char *want_code,
                  char next_id[40])
{
    char body[1024];
    json_t *root;

    put_next(body, sizeof(body), next);
    root = send_body(rig, body, want_status);
    if (want_code != NULL)
        assert_string_equal(json_string_value(json_object_get(
                                json_object_get(json_object_get(root, "error"), "details"), "error_code")),
                            want_code);
    if (next_id != NULL)
        snprintf(next_id, 40, "%s", str_at(root, "id", NULL));
    json_decref(root);
}

/* Frees the answer, and continues its conversation. */
static void go_on_from(struct rig *rig, json_t *root, int want_status)
{
    char id[40];

    snprintf(id, sizeof(id), "%s", str_at(root, "id", NULL));
    json_decref(root);
    go_on(rig, &(struct next){id, "", NEXT}, want_status, want_status == 200 ? NULL : "thread_not_found",
          NULL);
}

/* A continued conversation counts as many tokens as the whole one. */
static void counts_agree(struct rig *rig, const char *continued, const char *whole)
{
    json_t *a = post(rig, "/v1/messages/count_tokens", "", continued, 200);
    json_t *b = post(rig, "/v1/messages/count_tokens", "", whole, 200);

    assert_int_equal(input_of(a), input_of(b));
    json_decref(a);
    json_decref(b);
}

static void begin_conversation(struct rig *rig, const char *before, char id[40])
{
    char body[1024];
    json_t *root;

    snprintf(body, sizeof(body), "{\"model\":\"sim\",\"max_tokens\":100,%s\"messages\":[" ASK "]" CREATE "}",
             before);
    root = send_body(rig, body, 200);
    assert_string_equal(text_of(root, 0), "Three.");
    snprintf(id, 40, "%s", str_at(root, "id", NULL));
    json_decref(root);
}

static void a_continued_conversation_is_the_whole_one(void **state)
{
    struct rig rig;
    char id[40], body[1024];
    json_t *root, *whole;

    rig_begin(&rig, NULL);
    begin_conversation(&rig, SYSTEM TOOLS, id);
    put_next(body, sizeof(body), &(struct next){id, "", NEXT});
    counts_agree(&rig, body,
                 "{\"model\":\"sim\"," SYSTEM TOOLS "\"messages\":[" ASK "," ANSWER "," NEXT "]}");
    root = send_body(&rig, body, 200); /* counting did not consume it */
    assert_string_equal(text_of(root, 0), "Four.");
    whole = send_body(&rig,
                      "{\"model\":\"sim\",\"max_tokens\":100," SYSTEM TOOLS "\"messages\":[" ASK "," ANSWER
                      "," NEXT "]}",
                      200);
    assert_int_equal(total_input(json_object_get(root, "usage")),
                     total_input(json_object_get(whole, "usage")));
    assert_true(num_at(root, "usage", "cache_read_input_tokens") > 0);
    json_decref(whole);
    go_on_from(&rig, root, 200);
    rig_end(&rig);
}

static void an_id_is_good_once(void **state)
{
    struct rig rig;
    char id[40];

    rig_begin(&rig, NULL);
    go_on(&rig, &(struct next){"msg_never", "", NEXT}, 404, "thread_not_found", NULL);
    begin_conversation(&rig, "", id);
    go_on(&rig, &(struct next){id, "\"cache_salt\":\"mine\",", NEXT}, 404, "thread_not_found", NULL);
    go_on(&rig, &(struct next){id, "\"temperature\":9,", NEXT}, 400, NULL, NULL); /* does not end it */
    go_on(&rig, &(struct next){id, SYSTEM, NEXT}, 400, NULL, NULL);
    go_on(&rig, &(struct next){id, TOOLS, NEXT}, 400, NULL, NULL);
    go_on(&rig, &(struct next){id, "", ""}, 400, NULL, NULL);
    go_on(&rig, &(struct next){id, "\"system\":null,\"tools\":null,", NEXT}, 200, NULL, NULL);
    go_on(&rig, &(struct next){id, "", NEXT}, 400, "thread_already_continued", NULL);
    rig_end(&rig);
}

static void one_that_is_being_continued_is_busy_until_it_fails(void **state)
{
    struct rig rig;
    char id[40], body[1024];
    struct buf request = {0};
    int fd;

    rig_begin(&rig, NULL);
    begin_conversation(&rig, "", id);
    put_next(body, sizeof(body), &(struct next){id, "", "{\"role\":\"user\",\"content\":\"hang\"}"});
    put_post(&request, "/v1/messages", "", body);
    fd = raw_connect(rig.port);
    raw_send_str(fd, (const char *)request.data);
    assert_true(reaches(&rig.counts->n_running, 1));
    go_on(&rig, &(struct next){id, "", NEXT}, 400, "thread_continue_in_flight", NULL);
    close(fd);
    assert_true(reaches(&rig.counts->n_cancelled, 1));
    go_on(&rig, &(struct next){id, "", NEXT}, 200, NULL, NULL);
    buf_fini(&request);
    rig_end(&rig);
}

/* Sends a request that creates a thread with a long member in its message, and continues the thread. */
static void begin_long(struct rig *rig, const char *member, size_t n_bytes, int want_status)
{
    struct buf body = {0};
    json_t *root;

    buf_printf(&body,
               "{\"model\":\"sim\",\"max_tokens\":100" CREATE ",\"messages\":[{\"role\":\"user\",\"content\":"
               "[{\"type\":\"text\",\"text\":\"say Three.\",\"%s\":\"",
               member);
    for (size_t i = 0; i < n_bytes; i++)
        buf_append_byte(&body, 'x');
    buf_append_str(&body, "\"}]}]}");
    root = send_body(rig, (const char *)body.data, 200);
    buf_fini(&body);
    go_on_from(rig, root, want_status);
}

static size_t conversation_bytes(struct rig *rig)
{
    struct buf in = {0};
    size_t n;

    assert_int_equal(raw_ask(rig->port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", &in), 200);
    n = strtoul(strstr((const char *)in.data, "\nbaton_conversations_bytes ") + 27, NULL, 10);
    buf_fini(&in);
    return n;
}

/* The context bounds only what the prompt holds.  Other members are left out; titles are read of documents alone. */
static void a_long_conversation_is_not_kept(void **state)
{
    struct rig rig;

    rig_begin(&rig, NULL);
    begin_long(&rig, "unknown", (size_t)5 << 20, 200);
    assert_in_range(conversation_bytes(&rig), 1, 4096);
    begin_long(&rig, "title", (size_t)1 << 20, 200);
    begin_long(&rig, "title", (size_t)5 << 20, 404);
    rig_end(&rig);
}

static void a_cut_answer_is_not_kept(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = send_body(&rig, "{\"model\":\"sim\",\"max_tokens\":2,\"messages\":[" ASK "]" CREATE "}", 200);
    assert_string_equal(str_at(root, "stop_reason", NULL), "max_tokens");
    go_on_from(&rig, root, 404);
    root = send_body(&rig, "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[" ASK "]}",
                     200); /* without a conversation */
    go_on_from(&rig, root, 404);
    root = send_body(&rig,
                     "{\"model\":\"sim\",\"max_tokens\":100,\"stop_sequences\":[\"e.\"],\"messages\":[" ASK
                     "]" CREATE "}",
                     200);
    assert_string_equal(text_of(root, 0), "Thre");
    go_on_from(&rig, root, 200);
    rig_end(&rig);
}

static void results_answer_the_calls_that_are_kept(void **state)
{
    struct rig rig;
    char id[40], call[40], result[256];
    json_t *root;

    rig_begin(&rig, NULL);
    root = send_body(&rig,
                     "{\"model\":\"sim\",\"max_tokens\":100," TOOLS
                     "\"messages\":[{\"role\":\"user\",\"content\":\"" CALL_GET "\"}]" CREATE "}",
                     200);
    assert_string_equal(str_at(root, "stop_reason", NULL), "tool_use");
    snprintf(id, sizeof(id), "%s", str_at(root, "id", NULL));
    snprintf(call, sizeof(call), "%s",
             json_string_value(json_object_get(json_array_get(json_object_get(root, "content"), 0), "id")));
    json_decref(root);

    char body[1024];
    put_next(
        body, sizeof(body),
        &(struct next){id, "",
                       "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"x\"}]}"});
    root = send_body(&rig, body, 400); /* counts as the client does */
    assert_non_null(
        strstr(str_at(root, "error", "message"), "messages.0.content.0: unexpected `tool_use_id`"));
    json_decref(root);
    put_next(body, sizeof(body), &(struct next){id, "", NEXT});
    root = send_body(&rig, body, 400); /* the call is in no message of the client */
    assert_true(strncmp(str_at(root, "error", "message"),
                        "thread.previous_message_id: `tool_use` ids were found without", 61) == 0);
    json_decref(root);
    snprintf(result, sizeof(result),
             "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"%s\"}]}", call);
    go_on(&rig, &(struct next){id, "", result}, 200, NULL, NULL);
    rig_end(&rig);
}

/* The ids of such answers cannot be replayed: no marker closes the call, or there is no block. */
static void answers_that_end_early_are_kept(void **state)
{
    static const char *const choices[] = {"auto", "any"};
    struct rig rig;
    char id[40], body[1024], result[256];
    json_t *root;

    rig_begin(&rig, NULL);
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        snprintf(body, sizeof(body),
                 "{\"model\":\"sim\",\"max_tokens\":100," TOOLS
                 "\"tool_choice\":{\"type\":\"%s\",\"disable_parallel_tool_use\":true},"
                 "\"messages\":[{\"role\":\"user\",\"content\":\"" CALL_GET "\"}]" CREATE "}",
                 choices[i]);
        root = send_body(&rig, body, 200);
        assert_string_equal(str_at(root, "stop_reason", NULL), "tool_use");
        snprintf(id, sizeof(id), "%s", str_at(root, "id", NULL));
        snprintf(result, sizeof(result),
                 "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"%s\"}]}",
                 str_at(json_array_get(json_object_get(root, "content"), 0), "id", NULL));
        json_decref(root);
        go_on(&rig, &(struct next){id, "", result}, 200, NULL, NULL);
    }
    root = send_body(&rig,
                     "{\"model\":\"sim\",\"max_tokens\":100,\"stop_sequences\":[\"T\"],\"messages\":[" ASK
                     "]" CREATE "}",
                     200);
    assert_int_equal(json_array_size(json_object_get(root, "content")), 0);
    snprintf(id, sizeof(id), "%s", str_at(root, "id", NULL));
    json_decref(root);
    put_next(body, sizeof(body), &(struct next){id, "", NEXT});
    counts_agree(&rig, body,
                 "{\"model\":\"sim\",\"messages\":[" ASK ",{\"role\":\"assistant\",\"content\":[]}," NEXT
                 "]}");
    go_on(&rig, &(struct next){id, "", NEXT}, 200, NULL, NULL);
    rig_end(&rig);
}

/* Where text and no marker opens the assistant's turn, no answer can be replayed. */
static void any_template_keeps_conversations(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin_with(&rig,
                   "{% for m in messages %}{{ m.content }}{% endfor %}{{ '>' if add_generation_prompt }}");
    root = send_body(&rig, "{\"model\":\"sim\",\"max_tokens\":100,\"messages\":[" ASK "]" CREATE "}", 200);
    assert_string_equal(text_of(root, 0), "Three.>");
    go_on_from(&rig, root, 200);
    rig_end(&rig);
}

static void breakpoints_of_earlier_requests_do_not_count(void **state)
{
    static const char four[] =
        "\"cache_control\":{\"type\":\"ephemeral\"},\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_"
        "control\":{\"type\":"
        "\"ephemeral\"}},{\"type\":\"text\",\"text\":\"b\",\"cache_control\":{\"type\":\"ephemeral\"}}],"
        "\"tools\":[{\"name\":\"get\","
        "\"input_schema\":{\"type\":\"object\"},\"cache_control\":{\"type\":\"ephemeral\"}}],";
    static const char marked[] =
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"say Five.\",\"cache_control\":{"
        "\"type\":\"ephemeral\",\"ttl\":\"1h\"}}]}";
    struct rig rig;
    char id[40];

    rig_begin(&rig, NULL);
    begin_conversation(&rig, four, id);
    go_on(&rig, &(struct next){id, "", marked}, 200, NULL, id);
    go_on(&rig, &(struct next){id, "", marked}, 200, NULL, NULL);
    rig_end(&rig);
}

static void a_stream_and_a_text_begun_by_the_client_are_kept(void **state)
{
    struct rig rig;
    struct story story = {0};
    char id[40];
    json_t *root;

    rig_begin(&rig, NULL);
    stream_message(&rig, "say Three.", CREATE, "", &story);
    assert_string_equal(story.stop, "end_turn");
    story_fini(&story);
    root = send_body(&rig,
                     "{\"model\":\"sim\",\"max_tokens\":100,\"messages\":[" ASK
                     ",{\"role\":\"assistant\",\"content\":\"Well:\"}]" CREATE "}",
                     200);
    snprintf(id, sizeof(id), "%s", str_at(root, "id", NULL));
    char both[256], body[1024], whole[1024];
    snprintf(both, sizeof(both), "Well:%s", text_of(root, 0));
    json_decref(root);
    put_next(body, sizeof(body), &(struct next){id, "", NEXT});
    snprintf(whole, sizeof(whole),
             "{\"model\":\"sim\",\"messages\":[" ASK ",{\"role\":\"assistant\",\"content\":\"%s\"}," NEXT
             "]}",
             both);
    counts_agree(&rig, body, whole);
    rig_end(&rig);
}

static void metrics_tell_what_was_found(void **state)
{
    static const char *const lines[] = {"baton_conversations_continued_total{result=\"taken\"} 1",
                                        "baton_conversations_continued_total{result=\"unknown\"} 1",
                                        "baton_conversations_continued_total{result=\"continued_already\"} 1",
                                        "baton_prompt_answers_total{replayed=\"yes\"} 1",
                                        "baton_prompt_answers_total{replayed=\"no\"} 1"};
    struct buf in = {0};
    struct rig rig;
    char id[40];

    rig_begin(&rig, NULL);
    begin_conversation(&rig, "", id);
    go_on(&rig, &(struct next){id, "", NEXT}, 200, NULL, NULL);
    go_on(&rig, &(struct next){id, "", NEXT}, 400, NULL, NULL);
    go_on(&rig, &(struct next){"msg_never", "", NEXT}, 404, NULL, NULL);
    json_decref(send_body(&rig,
                          "{\"model\":\"sim\",\"max_tokens\":100,\"messages\":[" NEXT
                          ",{\"role\":\"assistant\",\"content\":\"What another server said.\"}," ASK "]}",
                          200));
    assert_int_equal(raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", &in), 200);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (!raw_holds(&in, lines[i]))
            fail_msg("no line %s in\n%s", lines[i], (const char *)in.data);
    assert_false(raw_holds(&in, "baton_conversations_bytes 0\n"));
    assert_false(raw_holds(&in, "baton_answers_remembered_bytes 0\n"));
    buf_fini(&in);
    rig_end(&rig);
}

static void without(struct front_opts *opts, struct sim_opts *sim)
{
    opts->conversation_bytes = 0;
}

static void without_answers(struct front_opts *opts, struct sim_opts *sim)
{
    opts->replay_bytes = 0;
}

static void without_room_they_are_refused(void **state)
{
    void (*const changes[])(struct front_opts *, struct sim_opts *) = {without, without_answers};
    struct rig rig;
    json_t *root;

    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        rig_begin(&rig, changes[i]);
        go_on(&rig, &(struct next){"msg_a", "", NEXT}, 400, "thread_unsupported_request", NULL);
        root = send_body(&rig, "{\"model\":\"sim\",\"max_tokens\":2,\"messages\":[" ASK "]" CREATE "}", 400);
        assert_string_equal(str_at(root, "error", "message"),
                            "thread: message threads are not supported by this server");
        json_decref(root);
        root = send_body(
            &rig, "{\"model\":\"sim\",\"max_tokens\":2,\"messages\":[" ASK "],\"thread\":{\"type\":\"x\"}}",
            400);
        assert_string_equal(str_at(root, "error", "message"),
                            "thread.type: Input should be 'create' or 'continue'");
        json_decref(root);
        rig_end(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_continued_conversation_is_the_whole_one),
        cmocka_unit_test(an_id_is_good_once),
        cmocka_unit_test(one_that_is_being_continued_is_busy_until_it_fails),
        cmocka_unit_test(a_long_conversation_is_not_kept),
        cmocka_unit_test(a_cut_answer_is_not_kept),
        cmocka_unit_test(results_answer_the_calls_that_are_kept),
        cmocka_unit_test(answers_that_end_early_are_kept),
        cmocka_unit_test(any_template_keeps_conversations),
        cmocka_unit_test(breakpoints_of_earlier_requests_do_not_count),
        cmocka_unit_test(a_stream_and_a_text_begun_by_the_client_are_kept),
        cmocka_unit_test(metrics_tell_what_was_found),
        cmocka_unit_test(without_room_they_are_refused),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
