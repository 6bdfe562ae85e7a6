/* SPDX-License-Identifier: Apache-2.0 */
/* Reading streamed answers: whole, cut at any byte,
 * refused and malformed; and the small parsers around it. */
#include "clients/common/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/common/cli.h"
#include "tests/unit/check.h"

#define EVENT(name, data) "event: " name "\ndata: " data "\n\n"
#define BEGIN                                                                                                \
    EVENT("message_start", "{\"type\": \"message_start\", \"message\": {\"usage\": {\"input_tokens\": 9, "   \
                           "\"cache_read_input_tokens\": 4, \"output_tokens\": 0}}}")
#define TEXT(text)                                                                                           \
    EVENT("content_block_delta",                                                                             \
          "{\"index\": 0, \"delta\": {\"type\": \"text_delta\", \"text\": \"" text "\"}}")
#define END                                                                                                  \
    EVENT("message_delta",                                                                                   \
          "{\"delta\": {\"stop_reason\": \"end_turn\"}, \"usage\": {\"output_tokens\": 3, \"baton\": "       \
          "{\"prompt\": 13, \"computed\": 9, \"reused\": 4, \"transferred\": 13, \"drawn\": 3, "             \
          "\"redispatched\": 1, \"queue_ms\": 0.25, \"ttft_ms\": 7, \"prefill\": \"p0\", \"decode\": "       \
          "\"d0\", \"transport\": \"shm\"}}}")                                                               \
    EVENT("message_stop", "{}")

struct seen {
    struct answer answer;
    struct buf text;
    struct buf thinking;
    int rc;
};

static void on_piece(void *arg, enum answer_part part, struct bytes text)
{
    struct seen *seen = arg;

    assert_int_equal(utf8_valid_prefix(text), text.len_bytes);
    buf_append(part == ANSWER_TEXT ? &seen->text : &seen->thinking, text.data, text.len_bytes);
}

/* Feeds a stream in pieces of step bytes. */
static void read_stream(struct seen *seen, const char *stream, size_t step)
{
    size_t len = strlen(stream);

    *seen = (struct seen){0};
    assert_int_equal(answer_init(&seen->answer, on_piece, seen), 0);
    for (size_t at = 0; at < len && seen->rc == 0; at += step)
        seen->rc = answer_feed(&seen->answer, bytes_of(stream + at, len - at < step ? len - at : step));
}

static void forget(struct seen *seen)
{
    answer_fini(&seen->answer);
    buf_fini(&seen->text);
    buf_fini(&seen->thinking);
}

static void a_whole_answer(void **state)
{
    const char *stream = BEGIN EVENT("ping", "{}") TEXT("gr\xc3\xbc\xc3\x9f") TEXT("e\\u0000\\ud83d\\ude00")
        EVENT("unheard_of", "{}") EVENT("content_block_delta",
                                        "{\"delta\": {\"type\": \"thinking_delta\", \"thinking\": \"hm\"}}")
            EVENT("content_block_delta", "{\"delta\": {\"type\": \"signature_delta\", \"signature\": \"s\"}}")
                END;

    for (size_t step = 1; step < 40; step += 3) {
        struct seen seen;
        const struct answer *answer = &seen.answer;

        read_stream(&seen, stream, step);
        assert_int_equal(seen.rc, 0);
        assert_true(answer->is_whole && !answer->is_failed);
        assert_true(bytes_equal(buf_view(&seen.text), bytes_of("gr\xc3\xbc\xc3\x9f"
                                                               "e\0\xf0\x9f\x98\x80",
                                                               12)));
        assert_true(bytes_is(buf_view(&seen.thinking), "hm"));
        assert_int_equal(answer->input_tokens, 9);
        assert_int_equal(answer->cache_read_tokens, 4);
        assert_int_equal(answer->output_tokens, 3);
        assert_string_equal(answer->stop_reason, "end_turn");
        assert_true(answer->serving.is_there);
        assert_int_equal(answer->serving.transferred, 13);
        assert_int_equal(answer->serving.redispatched, 1);
        assert_true(answer->serving.queue_ms == 0.25 && answer->serving.ttft_ms == 7);
        assert_string_equal(answer->serving.transport, "shm");
        forget(&seen);
    }
}

static void a_cut_answer_is_not_whole(void **state)
{
    struct seen seen;

    read_stream(&seen, BEGIN TEXT("half"), 1000);
    assert_int_equal(seen.rc, 0);
    assert_false(seen.answer.is_whole || seen.answer.is_failed);
    forget(&seen);
}

static void errors_end_an_answer(void **state)
{
    struct seen seen;

    read_stream(&seen,
                BEGIN TEXT("a") EVENT(
                    "error", "{\"error\": {\"type\": \"overloaded_error\", \"message\": \"no\\u001b[2J\"}}"),
                7);
    assert_int_equal(seen.rc, E_PROTO);
    assert_true(seen.answer.is_failed);
    assert_string_equal(seen.answer.error_type, "overloaded_error");
    assert_string_equal(seen.answer.error_text, "no?[2J");
    forget(&seen);
    read_stream(&seen, EVENT("error", "{\"error\": 3}"), 1000);
    assert_int_equal(seen.rc, E_PROTO);
    assert_string_equal(seen.answer.error_type, "api_error");
    forget(&seen);
}

static void malformed_streams_are_refused(void **state)
{
    static const char *const streams[] = {
        TEXT("too early"),
        BEGIN BEGIN,
        BEGIN END TEXT("too late"),
        BEGIN EVENT("content_block_delta", "{\"delta\": {}}"),
        BEGIN EVENT("content_block_delta", "{\"delta\": {\"type\": \"text_delta\", \"text\": 1}}"),
        BEGIN EVENT("content_block_delta", "not JSON"),
        BEGIN EVENT("content_block_delta", "[]"),
        BEGIN TEXT("\xc3"),
    };

    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        struct seen seen;

        read_stream(&seen, streams[i], 1000);
        assert_int_equal(seen.rc, E_PROTO);
        assert_string_equal(seen.answer.error_type, "protocol_error");
        assert_true(seen.answer.is_failed);
        forget(&seen);
    }
}

static void an_endless_event_is_refused(void **state)
{
    struct answer answer;
    char piece[4096];
    int rc = 0;

    memset(piece, 'x', sizeof(piece));
    assert_int_equal(answer_init(&answer, NULL, NULL), 0);
    for (int i = 0; i < 1000 && rc == 0; i++)
        rc = answer_feed(&answer, bytes_of(piece, sizeof(piece)));
    assert_int_equal(rc, E_LIMIT);
    assert_string_equal(answer.error_type, "protocol_error");
    answer_fini(&answer);
}

static void refusals_name_their_reason(void **state)
{
    struct answer answer = {0};

    answer_refused(
        &answer, 529,
        bytes_str(
            "{\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\", \"message\": \"later\"}}"));
    assert_string_equal(answer.error_type, "overloaded_error");
    assert_string_equal(answer.error_text, "later");
    answer_refused(&answer, 502, bytes_str("<html>bad gateway</html>"));
    assert_string_equal(answer.error_type, "http_error");
    assert_non_null(strstr(answer.error_text, "502"));
    answer_refused(&answer, 404, bytes_of(NULL, 0));
    assert_non_null(strstr(answer.error_text, "404"));
}

static void servers_as_people_write_them(void **state)
{
    static const struct {
        const char *text, *address, *base;
    } good[] = {
        {"http://127.0.0.1:8080", "127.0.0.1:8080", ""}, {"127.0.0.1:8080/", "127.0.0.1:8080", ""},
        {"router.example", "router.example:80", ""},     {"http://[::1]/v0//", "[::1]:80", "/v0"},
        {"http://[::1]:81/a/b", "[::1]:81", "/a/b"},
    };
    static const char *const bad[] = {"",           "http://",    "ftp://x", "http://u@x",
                                      "http://x?y", "http://x y", "/v1"};
    struct server_url url;
    struct fault fault;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(server_url_parse(good[i].text, &fault, &url), 0);
        assert_string_equal(url.address, good[i].address);
        assert_string_equal(url.base, good[i].base);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(server_url_parse(bad[i], &fault, &url), E_FORMAT);
    assert_int_equal(server_url_parse("https://x", &fault, &url), E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer),
        cmocka_unit_test(a_cut_answer_is_not_whole),
        cmocka_unit_test(errors_end_an_answer),
        cmocka_unit_test(malformed_streams_are_refused),
        cmocka_unit_test(an_endless_event_is_refused),
        cmocka_unit_test(refusals_name_their_reason),
        cmocka_unit_test(servers_as_people_write_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
