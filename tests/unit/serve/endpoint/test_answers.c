/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the endpoint: whole and streamed, counts, stop reasons, calls, failures, metrics. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

static void a_whole_answer_has_its_serving_stats(void **state)
{
    struct buf request = {0};
    struct buf head;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    put_message(&request, "say Hello \xe2\x82\xac.", "");
    root = ask(&rig, &request, 200, &head);
    assert_string_equal(str_at(root, "stop_reason", NULL), "end_turn");
    assert_string_equal(str_at(root, "model", NULL), "sim");
    assert_string_equal(text_of(root, 0), "Hello \xe2\x82\xac.");
    assert_int_equal(num_at(root, "usage", "output_tokens"), 10);
    assert_true(raw_holds(&head, "content-type: application/json\r\n"));
    assert_true(raw_holds(&head, "server-timing: tokenise;dur="));
    assert_true(raw_holds(&head, "prefill;dur="));
    assert_true(raw_holds(&head, "; drafted=8; accepted=6; "));
    assert_true(raw_holds(&head, "prefill=sim-p; decode=sim-d; transport=shm"));
    assert_true(raw_holds(&head, "baton-proof: prompt="));
    json_decref(root);
    buf_fini(&request);
    buf_fini(&head);
    rig_end(&rig);
}

static void a_stream_tells_the_same(void **state)
{
    struct story story;
    struct rig rig;

    rig_begin(&rig, NULL);
    stream_message(&rig, "say Gr\xc3\xbc\xc3\x9f dich, \xf0\x9f\x98\x80!", "", "", &story);
    assert_true(bytes_is(buf_view(&story.text), "Gr\xc3\xbc\xc3\x9f dich, \xf0\x9f\x98\x80!"));
    assert_string_equal(story.stop, "end_turn");
    assert_int_equal(story.n_blocks, 1);
    assert_null(json_object_get(story.end_usage, "baton"));
    assert_int_equal(json_integer_value(json_object_get(story.end_usage, "input_tokens")),
                     json_integer_value(json_object_get(story.start_usage, "input_tokens")));
    story_fini(&story);

    stream_message(&rig, "say x", "", "Baton-Proof: stream\r\n", &story);
    assert_int_equal(num_at(story.end_usage, "baton", "transferred"),
                     num_at(story.end_usage, "baton", "prompt"));
    assert_string_equal(str_at(json_object_get(story.end_usage, "baton"), "prefill", NULL), "sim-p");
    story_fini(&story);
    rig_end(&rig);
}

static void counts_agree_and_caches_show(void **state)
{
    static const char long_text[] =
        "say a fairly long prompt, so that it fills some blocks of thirty-two tokens and more";
    struct buf request = {0};
    struct story story;
    struct rig rig;
    json_t *counted, *first, *marked;
    int n;

    rig_begin(&rig, NULL);
    put_post(&request, "/v1/messages/count_tokens", "",
             "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"say a fairly long prompt, so "
             "that it fills some blocks of thirty-two tokens and more\"}]}");
    counted = ask(&rig, &request, 200, NULL);
    n = (int)json_integer_value(json_object_get(counted, "input_tokens"));
    first = ask_message(&rig, long_text, "", 200);
    assert_int_equal(total_input(json_object_get(first, "usage")), n);
    assert_int_equal(num_at(first, "usage", "cache_read_input_tokens"), 0);
    stream_message(&rig, long_text, "", "", &story);
    assert_int_equal(total_input(story.start_usage), n);
    assert_int_equal(total_input(story.end_usage), n);
    assert_int_equal(json_integer_value(json_object_get(story.start_usage, "cache_read_input_tokens")),
                     n / 32 * 32);
    story_fini(&story);
    marked = ask_message(&rig, "say another prompt that is long enough to be worth keeping",
                         ",\"cache_control\":{\"type\":\"ephemeral\"}", 200);
    assert_true(num_at(marked, "usage", "cache_creation_input_tokens") > 32);
    json_decref(counted);
    json_decref(first);
    json_decref(marked);
    buf_fini(&request);
    rig_end(&rig);
}

static void stop_sequences_end_text(void **state)
{
    struct story story;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_message(&rig, "say one two END three", ",\"stop_sequences\":[\"END\"]", 200);
    assert_string_equal(str_at(root, "stop_reason", NULL), "stop_sequence");
    assert_string_equal(str_at(root, "stop_sequence", NULL), "END");
    assert_string_equal(text_of(root, 0), "one two ");
    json_decref(root);
    root = ask_message(&rig, "say END", ",\"stop_sequences\":[\"END\"]", 200);
    assert_int_equal(json_array_size(json_object_get(root, "content")), 0);
    json_decref(root);
    stream_message(&rig, "say ab EN c END d", ",\"stop_sequences\":[\"zz\",\"END\"]", "", &story);
    assert_true(bytes_is(buf_view(&story.text), "ab EN c "));
    assert_string_equal(story.stop, "stop_sequence");
    story_fini(&story);
    assert_true(reaches(&rig.counts->n_cancelled, 3));
    rig_end(&rig);
}

static void limits_have_their_reasons(void **state)
{
    struct story story;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_message(&rig, "count 1000", "", 200);
    assert_string_equal(str_at(root, "stop_reason", NULL), "max_tokens");
    assert_int_equal(num_at(root, "usage", "output_tokens"), 100);
    json_decref(root);
    root = ask_message(&rig, "count 5000", ",\"temperature\":0", 200);
    json_decref(root);
    stream_message(&rig, "count 5", "", "", &story);
    assert_string_equal(story.stop, "end_turn");
    story_fini(&story);

    struct buf request = {0};

    put_post(&request, "/v1/messages", "",
             "{\"model\":\"sim\",\"max_tokens\":64000,\"messages\":[{\"role\":\"user\",\"content\":\"count "
             "5000\"}]}");
    root = ask(&rig, &request, 200, NULL);
    assert_string_equal(str_at(root, "stop_reason", NULL), "model_context_window_exceeded");
    assert_int_equal(num_at(root, "usage", "output_tokens") + total_input(json_object_get(root, "usage")),
                     CONTEXT);
    json_decref(root);

    buf_clear(&request);
    put_post(
        &request, "/v1/messages", "",
        "{\"model\":\"sim\",\"max_tokens\":0,\"messages\":[{\"role\":\"user\",\"content\":\"count 5000\"}]}");
    root = ask(&rig, &request, 200, NULL);
    assert_string_equal(str_at(root, "stop_reason", NULL), "max_tokens");
    assert_int_equal(num_at(root, "usage", "output_tokens"), 0);
    assert_int_equal(json_array_size(json_object_get(root, "content")), 0);
    json_decref(root);
    buf_fini(&request);
    rig_end(&rig);
}

#define TOOLS ",\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]"
#define CALL                                                                                                 \
    "call I look.\\n<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"city\\\": "              \
    "\\\"Paris\\\", \\\"n\\\": 2}}\\n</tool_call>"

static void calls_become_blocks(void **state)
{
    struct story story;
    struct rig rig;
    json_t *root, *block;

    rig_begin(&rig, NULL);
    root = ask_message(&rig, CALL, TOOLS, 200);
    block = json_array_get(json_object_get(root, "content"), 1);
    assert_string_equal(str_at(root, "stop_reason", NULL), "tool_use");
    assert_string_equal(str_at(block, "name", NULL), "f");
    assert_string_equal(str_at(block, "input", "city"), "Paris");
    json_decref(root);

    stream_message(&rig, CALL, TOOLS, "", &story);
    assert_true(bytes_is(buf_view(&story.text), "I look.\n"));
    assert_true(bytes_is(buf_view(&story.names), "f;"));
    assert_true(bytes_is(buf_view(&story.arguments), "{\"city\": \"Paris\", \"n\": 2}"));
    assert_string_equal(story.stop, "tool_use");
    assert_int_equal(story.n_blocks, 2);
    story_fini(&story);

    /* Cut by max_tokens: the JSON so far is closed. */
    struct buf request = {0};
    struct buf body = {0};

    buf_printf(
        &body,
        "{\"model\":\"sim\",\"max_tokens\":65,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s}", CALL,
        TOOLS);
    put_post(&request, "/v1/messages", "", (const char *)body.data);
    root = ask(&rig, &request, 200, NULL);
    block = json_array_get(json_object_get(root, "content"), 1);
    assert_string_equal(str_at(root, "stop_reason", NULL), "max_tokens");
    assert_true(json_is_object(json_object_get(block, "input")));
    json_decref(root);

    root = ask_message(&rig, "call <tool_call>oops</tool_call>", TOOLS, 200);
    assert_string_equal(str_at(root, "stop_reason", NULL), "end_turn");
    assert_string_equal(text_of(root, 0), "<tool_call>oops</tool_call>");
    json_decref(root);
    buf_fini(&request);
    buf_fini(&body);
    rig_end(&rig);
}

static void failures_come_as_status_or_event(void **state)
{
    struct story story;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_message(&rig, "break 3", "", 529);
    assert_string_equal(str_at(root, "error", "type"), "overloaded_error");
    json_decref(root);
    stream_message(&rig, "break 3", "", "", &story);
    assert_string_equal(story.error, "overloaded_error");
    assert_string_equal(story.stop, "");
    assert_true(bytes_is(buf_view(&story.text), "You"));
    story_fini(&story);
    rig_end(&rig);
}

static void metrics_tell_what_happened(void **state)
{
    static const char *const lines[] = {
        "baton_requests_total{model=\"sim\",code=\"200\",reason=\"end_turn\"} 2",
        "baton_requests_total{model=\"sim\",code=\"200\",reason=\"counted\"} 1",
        "baton_requests_total{model=\"\",code=\"400\",reason=\"invalid_request_error\"} 1",
        "baton_requests_in_flight{stage=\"streaming\"} 0",
        "baton_requests_running{model=\"sim\"} 0",
        "vllm:num_requests_running{model_name=\"sim\"} 0",
        "vllm:num_requests_waiting{model_name=\"sim\"} 0",
        "vllm:request_success_total{model_name=\"sim\",finished_reason=\"stop\"} 2",
        "baton_time_to_first_token_seconds_count{model=\"sim\"} 2",
        "vllm:time_to_first_token_seconds_count{model_name=\"sim\"} 2",
        "vllm:inter_token_latency_seconds_count{model_name=\"sim\"} 4",
        "vllm:e2e_request_latency_seconds_count{model_name=\"sim\"} 2",
        "baton_generation_tokens_total{model=\"sim\"} 6",
        "vllm:generation_tokens_total{model_name=\"sim\"} 6",
        "baton_http_connections 1"};
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;

    rig_begin(&rig, NULL);
    json_decref(ask_message(&rig, "say abc", "", 200));
    json_decref(ask_message(&rig, "say abc", "", 200));
    json_decref(ask_message(&rig, "say abc", ",\"top_k\":-1", 400));
    put_post(&request, "/v1/messages/count_tokens", "",
             "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    json_decref(ask(&rig, &request, 200, NULL));
    clock_sleep_ns(20 * NS_PER_MS);
    assert_int_equal(raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", &in), 200);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (!raw_holds(&in, lines[i]))
            fail_msg("no line %s in\n%s", lines[i], (const char *)in.data);
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

static void at_most_50_tokens(struct front_opts *opts, struct sim_opts *sim)
{
    opts->bounds.max_tokens = 50;
}

static void is_cut_at(struct rig *rig, const char *path, const char *body, const char *why, int n)
{
    bool is_messages = strcmp(path, "/v1/messages") == 0;
    struct buf request = {0};
    json_t *root;

    put_post(&request, path, "", body);
    root = ask(rig, &request, 200, NULL);
    assert_string_equal(
        is_messages ? str_at(root, "stop_reason", NULL)
                    : str_at(json_array_get(json_object_get(root, "choices"), 0), "finish_reason", NULL),
        why);
    assert_int_equal(num_at(root, "usage", is_messages ? "output_tokens" : "completion_tokens"), n);
    json_decref(root);
    buf_fini(&request);
}

static void at_most_20_tokens(void *arg)
{
    const struct front_bounds bounds = {.max_tokens = 20};

    front_set_bounds(arg, &bounds);
}

/* A request names more tokens, none, or fewer; the bound changes while the front runs. */
static void a_bound_limits_every_answer(void **state)
{
    static const char more[] =
        "{\"model\":\"sim\",\"max_tokens\":64000,\"messages\":[{\"role\":\"user\",\"content\":"
        "\"count 5000\"}]}";
    static const char none[] =
        "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"count 5000\"}]}";
    static const char fewer[] =
        "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"count 5000\"}]}";
    struct rig rig;

    rig_begin(&rig, at_most_50_tokens);
    is_cut_at(&rig, "/v1/messages", more, "max_tokens", 50);
    is_cut_at(&rig, "/v1/chat/completions", none, "length", 50);
    is_cut_at(&rig, "/v1/messages", fewer, "max_tokens", 9);
    raw_loop_call(&rig.raw, at_most_20_tokens, rig.front);
    is_cut_at(&rig, "/v1/messages", more, "max_tokens", 20);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_has_its_serving_stats),
        cmocka_unit_test(a_stream_tells_the_same),
        cmocka_unit_test(counts_agree_and_caches_show),
        cmocka_unit_test(stop_sequences_end_text),
        cmocka_unit_test(limits_have_their_reasons),
        cmocka_unit_test(a_bound_limits_every_answer),
        cmocka_unit_test(calls_become_blocks),
        cmocka_unit_test(failures_come_as_status_or_event),
        cmocka_unit_test(metrics_tell_what_happened),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
