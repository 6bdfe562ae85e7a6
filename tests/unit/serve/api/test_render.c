/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, in the format that clients were measured to need. */
#include "serve/api/render.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "serve/api/error.h"
#include "text/json/json.h"
#include "base/check.h"

static json_t *load(struct buf *text)
{
    struct fault fault;
    json_t *root = NULL;

    assert_false(text->is_bad);
    assert_null(memchr(text->data, '\n', text->len_bytes));
    if (api_json_load(buf_view(text), &fault, &root) < 0)
        fail_msg("%s: %s", fault.text, (const char *)text->data);
    buf_clear(text);
    return root;
}

static const char *str(json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static int num(json_t *object, const char *name)
{
    assert_true(json_is_integer(json_object_get(object, name)));
    return (int)json_integer_value(json_object_get(object, name));
}

static const struct api_usage usage = {12, 2048, {30, 20}, 3, 2};

static void a_message_has_its_shape(void **state)
{
    const struct gen_block blocks[] = {{.kind = GEN_TEXT, .text = bytes_str("a \"b\"\n\x01\xff")},
                                       {.kind = GEN_TEXT},
                                       {.kind = GEN_TOOL_USE,
                                        .id = bytes_str("toolu_1"),
                                        .name = bytes_str("f"),
                                        .input = bytes_str("{\"x\": 1}")}};
    struct api_answer answer = {.id = "msg_1",
                                .model = bytes_str("m"),
                                .blocks = blocks,
                                .n_blocks = 3,
                                .stop = GEN_STOP_TOOL_USE,
                                .usage = usage};
    struct buf text = {0};
    json_t *root, *content, *counts;

    assert_int_equal(api_put_message(&text, &answer), 0);
    root = load(&text);
    content = json_object_get(root, "content");
    counts = json_object_get(root, "usage");
    assert_string_equal(str(root, "id"), "msg_1");
    assert_string_equal(str(root, "type"), "message");
    assert_string_equal(str(root, "stop_reason"), "tool_use");
    assert_true(json_is_null(json_object_get(root, "stop_sequence")));
    assert_int_equal(json_array_size(content), 2);
    assert_string_equal(str(json_array_get(content, 0), "text"), "a \"b\"\n\x01\xef\xbf\xbd");
    assert_true(json_is_object(json_object_get(json_array_get(content, 1), "input")));
    assert_null(json_object_get(json_array_get(content, 1), "caller"));
    assert_int_equal(num(counts, "input_tokens"), 12);
    assert_int_equal(num(counts, "cache_creation_input_tokens"), 50);
    assert_int_equal(num(counts, "cache_read_input_tokens"), 2048);
    assert_int_equal(num(counts, "output_tokens"), 3);
    assert_int_equal(num(json_object_get(counts, "output_tokens_details"), "thinking_tokens"), 2);
    assert_int_equal(num(json_object_get(counts, "cache_creation"), "ephemeral_1h_input_tokens"), 20);
    json_decref(root);

    answer.n_blocks = 0;
    answer.stop = GEN_STOP_SEQUENCE;
    answer.stop_sequence = bytes_str("END");
    assert_int_equal(api_put_message(&text, &answer), 0);
    root = load(&text);
    assert_int_equal(json_array_size(json_object_get(root, "content")), 0);
    assert_string_equal(str(root, "stop_sequence"), "END");
    json_decref(root);
    buf_fini(&text);
}

static void thinking_has_its_shape(void **state)
{
    const struct gen_block block = {
        .kind = GEN_THINKING, .text = bytes_str("First\n"), .signature = bytes_str("c2ln")};
    const struct api_answer answer = {
        .id = "msg_1", .model = bytes_str("m"), .blocks = &block, .n_blocks = 1, .usage = usage};
    struct buf text = {0};
    json_t *root, *part;

    assert_int_equal(api_put_message(&text, &answer), 0);
    root = load(&text);
    part = json_array_get(json_object_get(root, "content"), 0);
    assert_string_equal(str(part, "type"), "thinking");
    assert_string_equal(str(part, "thinking"), "First\n");
    assert_string_equal(str(part, "signature"), "c2ln");
    json_decref(root);

    api_put_thinking_start(&text, 0);
    root = load(&text);
    part = json_object_get(root, "content_block");
    assert_string_equal(str(part, "type"), "thinking");
    assert_string_equal(str(part, "thinking"), "");
    assert_string_equal(str(part, "signature"), "");
    json_decref(root);

    api_put_thinking_delta(&text, 0, block.text);
    root = load(&text);
    part = json_object_get(root, "delta");
    assert_string_equal(str(part, "type"), "thinking_delta");
    assert_string_equal(str(part, "thinking"), "First\n");
    json_decref(root);

    api_put_signature_delta(&text, 0, block.signature);
    root = load(&text);
    part = json_object_get(root, "delta");
    assert_string_equal(str(part, "type"), "signature_delta");
    assert_string_equal(str(part, "signature"), "c2ln");
    json_decref(root);
    buf_fini(&text);
}

static void block_events_have_their_shapes(void **state)
{
    struct buf text = {0};
    json_t *root;

    api_put_text_start(&text, 0);
    root = load(&text);
    assert_string_equal(str(json_object_get(root, "content_block"), "text"), "");
    json_decref(root);

    for (int c = 0; c < 256; c++) {
        uint8_t raw[2] = {(uint8_t)c, 'x'};

        api_put_text_delta(&text, 3, bytes_of(raw, 2));
        root = load(&text);
        assert_string_equal(str(json_object_get(root, "delta"), "type"), "text_delta");
        assert_int_equal(num(root, "index"), 3);
        json_decref(root);
    }

    api_put_call_start(&text, 1, "toolu_1", bytes_str("f"));
    root = load(&text);
    assert_int_equal(json_object_size(json_object_get(json_object_get(root, "content_block"), "input")), 0);
    assert_true(json_is_object(json_object_get(json_object_get(root, "content_block"), "input")));
    json_decref(root);

    api_put_call_delta(&text, 1, bytes_str("{\"a"));
    root = load(&text);
    assert_string_equal(str(json_object_get(root, "delta"), "partial_json"), "{\"a");
    json_decref(root);

    api_put_block_stop(&text, 1);
    json_decref(load(&text));
    buf_fini(&text);
}

static void message_events_have_their_shapes(void **state)
{
    struct gen_serving serving = {.computed_tokens = 5,
                                  .transferred_tokens = 4,
                                  .attention_bytes = 4096,
                                  .recurrent_bytes = 1ull << 33,
                                  .index_bytes = 77,
                                  .mtp_bytes = 78,
                                  .drafted_tokens = 9,
                                  .accepted_tokens = 3,
                                  .prefill_worker = "p\"1",
                                  .transport = "shm"};
    struct buf text = {0};
    json_t *root, *kinds;

    api_put_message_start(&text, "msg_1", bytes_str("m"), &usage);
    root = load(&text);
    assert_string_equal(str(root, "type"), "message_start");
    assert_int_equal(
        num(json_object_get(json_object_get(root, "message"), "usage"), "cache_read_input_tokens"), 2048);
    assert_true(json_is_null(json_object_get(json_object_get(root, "message"), "stop_reason")));
    json_decref(root);

    api_put_message_delta(&text, GEN_STOP_MAX_TOKENS, bytes_str(""), &usage, NULL);
    root = load(&text);
    assert_string_equal(str(json_object_get(root, "delta"), "stop_reason"), "max_tokens");
    assert_int_equal(num(json_object_get(root, "usage"), "cache_read_input_tokens"), 2048);
    assert_null(json_object_get(json_object_get(root, "usage"), "baton"));
    json_decref(root);

    api_put_message_delta(&text, GEN_STOP_CONTEXT, bytes_str(""), &usage, &serving);
    root = load(&text);
    assert_int_equal(num(json_object_get(json_object_get(root, "usage"), "baton"), "transferred"), 4);
    kinds = json_object_get(json_object_get(json_object_get(root, "usage"), "baton"), "transferred_bytes");
    assert_int_equal(num(kinds, "attention"), 4096);
    assert_int_equal(num(kinds, "index"), 77);
    assert_int_equal(num(kinds, "mtp"), 78);
    assert_true(json_integer_value(json_object_get(kinds, "recurrent")) == 1ll << 33);
    assert_int_equal(num(json_object_get(json_object_get(root, "usage"), "baton"), "drafted"), 9);
    assert_int_equal(num(json_object_get(json_object_get(root, "usage"), "baton"), "accepted"), 3);
    json_decref(root);

    buf_append_str(&text, API_PING);
    json_decref(load(&text));
    buf_append_str(&text, API_MESSAGE_STOP);
    json_decref(load(&text));
    buf_fini(&text);
}

static void errors_have_their_shape(void **state)
{
    static const struct {
        int status;
        const char *type;
    } table[] = {{400, "invalid_request_error"},
                 {401, "authentication_error"},
                 {404, "not_found_error"},
                 {405, "invalid_request_error"},
                 {413, "request_too_large"},
                 {429, "rate_limit_error"},
                 {500, "api_error"},
                 {503, "api_error"},
                 {504, "timeout_error"},
                 {529, "overloaded_error"},
                 {431, "invalid_request_error"},
                 {505, "invalid_request_error"}};
    struct api_error error;
    struct buf text = {0};
    json_t *root;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        api_fail(&error, table[i].status, "say \"%s\"", "x\n");
        api_put_error(&text, &error, "req_1");
        root = load(&text);
        assert_string_equal(str(root, "type"), "error");
        assert_string_equal(str(root, "request_id"), "req_1");
        assert_string_equal(str(json_object_get(root, "error"), "type"), table[i].type);
        assert_string_equal(str(json_object_get(root, "error"), "message"), "say \"x\n\"");
        assert_null(json_object_get(json_object_get(root, "error"), "details"));
        json_decref(root);
    }
    error.code = "thread_unsupported_request";
    error.names_thread = true;
    api_put_error(&text, &error, NULL);
    root = load(&text);
    assert_null(json_object_get(root, "request_id"));
    assert_string_equal(str(json_object_get(json_object_get(root, "error"), "details"), "error_code"),
                        "thread_unsupported_request");
    assert_string_equal(
        json_string_value(json_array_get(
            json_object_get(json_object_get(json_object_get(root, "error"), "details"), "unsupported"), 0)),
        "thread");
    json_decref(root);
    buf_fini(&text);
}

static void models_come_in_pages(void **state)
{
    const struct api_model models[] = {{"a", 100, 0}, {"b", 200, 1767225600}, {"c", 300, 0}, {"d", 400, 0}};
    static const struct {
        struct api_page page;
        const char *ids;
        bool has_more;
    } table[] = {
        {{20, NULL, NULL}, "abcd", false}, {{2, NULL, NULL}, "ab", true}, {{2, "b", NULL}, "cd", false},
        {{1, "b", NULL}, "c", true},       {{2, NULL, "d"}, "bc", true},  {{5, NULL, "c"}, "ab", false},
        {{5, "d", NULL}, "", false},       {{5, "zz", NULL}, "", false},  {{5, NULL, "zz"}, "", false}};
    struct buf text = {0};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char ids[8] = "";
        json_t *root, *data;

        api_put_models(&text, models, 4, &table[i].page);
        root = load(&text);
        data = json_object_get(root, "data");
        for (size_t k = 0; k < json_array_size(data); k++)
            strcat(ids, str(json_array_get(data, k), "id"));
        assert_string_equal(ids, table[i].ids);
        assert_int_equal(json_is_true(json_object_get(root, "has_more")), table[i].has_more);
        if (ids[0] == '\0')
            assert_true(json_is_null(json_object_get(root, "first_id")));
        else
            assert_int_equal(str(root, "first_id")[0], ids[0]);
        json_decref(root);
    }
    api_put_model(&text, &models[1]);
    json_t *root = load(&text);

    assert_string_equal(str(root, "created_at"), "2026-01-01T00:00:00Z");
    assert_int_equal(num(root, "max_input_tokens"), 200);
    json_decref(root);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_has_its_shape),        cmocka_unit_test(thinking_has_its_shape),
        cmocka_unit_test(block_events_have_their_shapes), cmocka_unit_test(message_events_have_their_shapes),
        cmocka_unit_test(errors_have_their_shape),        cmocka_unit_test(models_come_in_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
