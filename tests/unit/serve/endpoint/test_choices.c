/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with several choices.  Each is a job that ends separately.  One failure fails all, and a
 * disconnect cancels all. */
#include "rig_openai.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

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
    for (int i = 0; i < 4; i++) { /* each has its own stop; none ends the others */
        assert_true(says(&chunks, i, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"));
        assert_string_equal(chunks.finish[i], "stop");
    }
    assert_int_equal(rig.counts->n_cancelled, 4);
    /* The serving stats count each job's prompt, the usage only one.
     * All but the first reuse the first's prompt. */
    assert_int_equal(json_integer_value(json_object_get(chunks.serving, "prompt")),
                     4 * json_integer_value(json_object_get(chunks.usage, "prompt_tokens")));
    assert_true(json_integer_value(json_object_get(chunks.serving, "reused")) >= 3 * 32);
    chunks_fini(&chunks);
    rig_end(&rig);
}

static void seven_tokens_at_once(struct front_opts *opts, struct sim_opts *sim)
{
    sim->tokens_at_once = 7;
}

/* The backend's events group tokens by chance: tokens behind the end of an answer never count. */
static void usage_ends_where_the_answer_ends(void **state)
{
    static const char call[] = "<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}</tool_call>";
    static const char *const more[] = {"", ",'logprobs':true", ",'n':3", ",'n':3,'logprobs':true"};
    char ask_call[200];
    int n_call[2] = {0};

    snprintf(ask_call, sizeof(ask_call), "call %s and more", call);
    for (int at_once = 0; at_once < 2; at_once++) {
        struct rig rig;

        rig_begin(&rig, at_once ? seven_tokens_at_once : NULL);
        for (size_t i = 0; i < ARRAY_LEN(more); i++) {
            struct chunks chunks;
            char fields[200];
            json_t *root;

            snprintf(fields, sizeof(fields), ",'stop':'END','stream_options':{'include_usage':true}%s",
                     more[i]);
            stream_chat(&rig, "say abcENDefghijklmnopqrstuvwxyz", fields, &chunks);
            assert_int_equal(json_integer_value(json_object_get(chunks.usage, "completion_tokens")),
                             i < 2 ? 6 : 18);
            chunks_fini(&chunks);
            snprintf(fields, sizeof(fields), ",'stop':'END'%s", more[i]);
            root = ask_chat(&rig, "say abcENDefghijklmnopqrstuvwxyz", fields, 200);
            assert_int_equal(num_at(root, "usage", "completion_tokens"), i < 2 ? 6 : 18);
            json_decref(root);
        }
        json_t *root = ask_chat(&rig, ask_call,
                                ",'parallel_tool_calls':false,'tools':[{'type':'function','function':{'name':"
                                "'f','parameters':{}}}]",
                                200);
        n_call[at_once] = num_at(root, "usage", "completion_tokens");
        assert_string_equal(str_at(choice_of(root, 0), "finish_reason", NULL), "tool_calls");
        json_decref(root);
        rig_end(&rig);
    }
    assert_true(n_call[0] > 0);
    assert_int_equal(n_call[1], n_call[0]);
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
    assert_string_equal(chunks.error, "the sim broke on request");
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
        assert_true(clock_now_ns() - left_ns < 5 * NS_PER_S);
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

/* Sixteen choices with logprobs make two megabytes in a turn of the loop.  A client that reads all of it is not to blame. */
static void fast_readers_are_never_cut(void **state)
{
    struct buf request = {0};
    struct buf in = {0};
    size_t n_read = 0;
    struct rig rig;
    int fd;

    rig_begin(&rig, small_queues);
    put_request(&request, CHAT, "",
                "{'model':'sim','n':16,'stream':true,'logprobs':true,'top_logprobs':20,"
                "'messages':[{'role':'user','content':'flood'}]}");
    fd = raw_connect(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    while (n_read < 16 << 20 && rig.counts->n_cancelled == 0) {
        raw_read_until(fd, "never", 1, &in);
        n_read += in.len_bytes;
        buf_clear(&in);
    }
    assert_int_equal(rig.counts->n_cancelled, 0);
    close(fd);
    assert_true(reaches(&rig.counts->n_running, 0));
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

/* The held part of a whole answer is bounded for any request. */
static void answers_do_not_grow_without_bound(void **state)
{
    struct buf body = {0};
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_chat(&rig, "flood", ",'n':30,'logprobs':true,'top_logprobs':20", 400);
    assert_string_equal(str_at(root, "error", "message"),
                        "logprobs: more than 2000000 in one answer; ask for fewer, or for a stream");
    assert_string_equal(str_at(root, "error", "param"), "logprobs");
    assert_int_equal(rig.counts->n_running, 0);
    json_decref(root);
    buf_append_str(&body, "{'model':'sim','echo':true,'n':128,'prompt':'");
    for (int i = 0; i < 300000; i++)
        buf_append_byte(&body, 'x');
    buf_append_str(&body, "'}");
    root = ask_at(&rig, "/v1/completions", (const char *)body.data, 400);
    assert_string_equal(str_at(root, "error", "message"), "echo: more than 33554432 bytes would be repeated");
    json_decref(root);
    buf_fini(&body);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_choices_are_several_jobs),
        cmocka_unit_test(usage_ends_where_the_answer_ends),
        cmocka_unit_test(choices_that_find_no_room_wait_for_the_others),
        cmocka_unit_test(a_failing_choice_fails_the_request),
        cmocka_unit_test(leaving_cancels_every_choice),
        cmocka_unit_test(slow_readers_hold_every_choice_up),
        cmocka_unit_test(fast_readers_are_never_cut),
        cmocka_unit_test(answers_do_not_grow_without_bound),
        cmocka_unit_test(choices_count_as_requests),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
