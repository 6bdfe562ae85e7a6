/* SPDX-License-Identifier: Apache-2.0 */
/* Answers for OpenAI's clients, byte for byte. */
#include "serve/api/render_openai.h"
#include "serve/api/render_embeddings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/error.h"
#include "base/check.h"

#define HEAD(object)                                                                                         \
    "{\"id\":\"x-1\",\"object\":\"" object                                                                   \
    "\",\"created\":17,\"model\":\"m\\\"n\",\"system_fingerprint\":\"fp_0123456789ab\",\"choices\":["

static struct api_chunk chunk_of(bool is_chat, uint32_t index)
{
    return (struct api_chunk){.is_chat = is_chat,
                              .id = "x-1",
                              .created_unix_s = 17,
                              .model = bytes_str("m\"n"),
                              .fingerprint = "0123456789abcdef",
                              .index = index};
}

static void is(struct buf *text, const char *want)
{
    assert_false(text->is_bad);
    assert_string_equal((const char *)text->data, want);
    buf_fini(text);
}

static const struct api_usage usage = {.input_tokens = 5,
                                       .cache_read_tokens = 32,
                                       .created_tokens = {2, 1},
                                       .output_tokens = 7,
                                       .thinking_tokens = 4};
#define USAGE                                                                                                \
    "\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":7,\"total_tokens\":47,\"prompt_tokens_details\":" \
    "{"                                                                                                      \
    "\"cached_tokens\":32},\"completion_tokens_details\":{\"reasoning_tokens\":4}}}"

static void a_chat_has_its_shape(void **state)
{
    const struct gen_block blocks[] = {{.kind = GEN_THINKING, .text = bytes_str("hm")},
                                       {.kind = GEN_TEXT, .text = bytes_str("a \"b\"\n\xff")},
                                       {.kind = GEN_TOOL_USE,
                                        .id = bytes_str("call_1"),
                                        .name = bytes_str("f"),
                                        .input = bytes_str("{\"x\": 1}")},
                                       {.kind = GEN_TEXT, .text = bytes_str("c")}};
    const struct api_choice choices[] = {{.blocks = blocks, .n_blocks = 4, .stop = GEN_STOP_TOOL_USE},
                                         {.blocks = blocks + 2,
                                          .n_blocks = 1,
                                          .stop = GEN_STOP_CONTEXT,
                                          .logprobs = bytes_str("{\"content\":[]}")},
                                         {.stop = GEN_STOP_SEQUENCE}};
    const struct api_chunk common = chunk_of(true, 0);
    struct buf text = {0};

    assert_int_equal(api_put_completion(&text, &common, choices, 3, &usage), 0);
    is(&text,
       HEAD(
           "chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a \\\"b\\\"\\n"
                              "\xef\xbf\xbd"
                              "c\",\"refusal\":null,\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":"
                              "\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                              "\"{\\\"x\\\": 1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"},"
                              "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":"
                              "null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{"
                              "\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}]},\"logprobs\":{\"content\":"
                              "[]},\"finish_reason\":\"length\"},"
                              "{\"index\":2,\"message\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":"
                              "null},\"logprobs\":null,\"finish_reason\":\"stop\"}]," USAGE);
}

static void a_completion_has_its_shape(void **state)
{
    const struct gen_block block = {.kind = GEN_TEXT, .text = bytes_str(" time")};
    const struct api_choice choice = {
        .blocks = &block, .n_blocks = 1, .before = bytes_str("Once upon a"), .stop = GEN_STOP_MAX_TOKENS};
    struct api_chunk common = chunk_of(false, 0);
    struct buf text = {0};

    assert_int_equal(api_put_completion(&text, &common, &choice, 1, &usage), 0);
    is(&text, HEAD("text_completion") "{\"index\":0,\"text\":\"Once upon a time\",\"logprobs\":null,"
                                      "\"finish_reason\":\"length\"}]," USAGE);
}

static void chunks_have_their_shapes(void **state)
{
    struct api_chunk chunk = chunk_of(true, 3);
    struct buf text = {0};

    assert_int_equal(api_put_chunk_role(&text, &chunk), 0);
    is(&text,
       HEAD("chat.completion.chunk") "{\"index\":3,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                                     "\"logprobs\":null,\"finish_reason\":null}]}");
    chunk.has_usage = true;
    chunk.logprobs = bytes_str("{\"content\":[],\"refusal\":null}");
    assert_int_equal(api_put_chunk_text(&text, &chunk, GEN_TEXT, bytes_str("h\n")), 0);
    is(&text,
       HEAD(
           "chat.completion.chunk") "{\"index\":3,\"delta\":{\"content\":\"h\\n\"},\"logprobs\":{\"content\":"
                                    "[],\"refusal\":null},\"finish_reason\":null}],\"usage\":null}");
    chunk = chunk_of(true, 0);
    assert_int_equal(api_put_chunk_text(&text, &chunk, GEN_THINKING, bytes_str("h")), 0);
    is(&text,
       HEAD("chat.completion.chunk") "{\"index\":0,\"delta\":{\"reasoning_content\":\"h\"},\"logprobs\":null,"
                                     "\"finish_reason\":null}]}");
    assert_int_equal(api_put_chunk_call(&text, &chunk, 1, "call_1", bytes_str("f")), 0);
    is(&text,
       HEAD("chat.completion.chunk") "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_1\","
                                     "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}"
                                     "]}"
                                     ",\"logprobs\":null,\"finish_reason\":null}]}");
    assert_int_equal(api_put_chunk_arguments(&text, &chunk, 1, bytes_str("{\"")), 0);
    is(&text,
       HEAD("chat.completion.chunk") "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{"
                                     "\"arguments\":\"{\\\"\"}}]},\"logprobs\":null,\"finish_reason\":null}]"
                                     "}");
    assert_int_equal(api_put_chunk_end(&text, &chunk, GEN_STOP_END_TURN), 0);
    is(&text,
       HEAD(
           "chat.completion.chunk") "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]"
                                    "}");
    assert_int_equal(api_put_chunk_usage(&text, &chunk, &usage), 0);
    is(&text, HEAD("chat.completion.chunk") "]," USAGE);
    chunk = chunk_of(false, 1);
    assert_int_equal(api_put_chunk_text(&text, &chunk, GEN_TEXT, bytes_str("t")), 0);
    is(&text,
       HEAD("text_completion") "{\"index\":1,\"text\":\"t\",\"logprobs\":null,\"finish_reason\":null}]}");
    assert_int_equal(api_put_chunk_end(&text, &chunk, GEN_STOP_MAX_TOKENS), 0);
    is(&text,
       HEAD(
           "text_completion") "{\"index\":1,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}");
}

static void a_model_without_a_fingerprint_has_none(void **state)
{
    struct api_chunk chunk = chunk_of(true, 0);
    struct gen_serving serving = {.prompt_tokens = 3};
    struct buf text = {0};

    chunk.fingerprint = "";
    chunk.serving = &serving;
    assert_int_equal(api_put_chunk_end(&text, &chunk, GEN_STOP_END_TURN), 0);
    assert_non_null(strstr((const char *)text.data, "\"system_fingerprint\":null,"));
    assert_non_null(strstr((const char *)text.data, "}],\"baton\":{\"prompt\":3,"));
    buf_fini(&text);
}

static void errors_have_four_members(void **state)
{
    static const struct {
        int status;
        const char *message, *want;
    } errors[] = {
        {400, "messages.0.content.12.type: no \"b\"",
         "{\"error\":{\"message\":\"messages.0.content.12.type: no "
         "\\\"b\\\"\",\"type\":\"invalid_request_error\","
         "\"param\":\"messages[0].content[12].type\",\"code\":null}}"},
        {400, "The body: is bad",
         "{\"error\":{\"message\":\"The body: is "
         "bad\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":"
         "null}}"},
        {400, "",
         "{\"error\":{\"message\":\"\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}"},
        {404, "model: m",
         "{\"error\":{\"message\":\"model: "
         "m\",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":"
         "null}}"},
        {401, "x",
         "{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":"
         "\"invalid_api_key\"}}"},
        {413, "x",
         "{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":"
         "\"request_too_large\"}}"},
        {429, "x",
         "{\"error\":{\"message\":\"x\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":"
         "\"rate_limit_exceeded\"}}"},
        {503, "x", "{\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"param\":null,\"code\":null}}"},
        {529, "Overloaded: x",
         "{\"error\":{\"message\":\"Overloaded: x\",\"type\":\"server_error\",\"param\":null,\"code\":"
         "\"overloaded\"}}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        struct api_error error;
        struct buf text = {0};

        api_fail(&error, errors[i].status, "%s", errors[i].message);
        assert_int_equal(api_put_openai_error(&text, &error), 0);
        is(&text, errors[i].want);
    }
}

static void tokens_and_text(void **state)
{
    const uint32_t tokens[] = {1, 99999};
    struct buf text = {0};

    assert_int_equal(api_put_tokens(&text, tokens, 2, 4096), 0);
    is(&text, "{\"tokens\":[1,99999],\"count\":2,\"max_model_len\":4096}");
    assert_int_equal(api_put_tokens(&text, NULL, 0, 1), 0);
    is(&text, "{\"tokens\":[],\"count\":0,\"max_model_len\":1}");
    assert_int_equal(api_put_detokenized(&text, bytes_str("a\"")), 0);
    is(&text, "{\"prompt\":\"a\\\"\",\"content\":\"a\\\"\"}");
}

static void embeddings_have_their_shape(void **state)
{
    const float numbers[] = {1, -0.5f, 0.1f};
    const struct api_embedding plain = {.numbers = numbers, .n_dims = 3};
    const struct api_embedding packed = {.index = 1, .numbers = numbers, .n_dims = 1, .is_base64 = true};
    struct buf text = {0};

    assert_int_equal(api_put_embedding(&text, &plain, 0, 3), 0);
    assert_int_equal(api_put_embedding(&text, &packed, 0, 1), 0);
    assert_int_equal(api_put_embeddings_end(&text, bytes_str("m\"n"), 7), 0);
    is(&text, "{\"object\":\"list\",\"data\":["
              "{\"object\":\"embedding\",\"index\":0,\"embedding\":[1,-0.5,0.100000001]},"
              "{\"object\":\"embedding\",\"index\":1,\"embedding\":\"AACAPw==\"}],\"model\":\"m\\\"n\","
              "\"usage\":{\"prompt_tokens\":7,\"total_tokens\":7}}");
}

/* An embedding in pieces is the same text as in one. */
static void an_embedding_may_come_in_pieces(void **state)
{
    float numbers[2 * API_EMBEDDING_PIECE + 5];
    struct api_embedding embedding = {.index = 3, .numbers = numbers, .n_dims = ARRAY_LEN(numbers)};

    for (unsigned i = 0; i < ARRAY_LEN(numbers); i++)
        numbers[i] = (float)i / 7;
    for (unsigned is_base64 = 0; is_base64 < 2; is_base64++) {
        struct buf whole = {0}, pieces = {0};

        embedding.is_base64 = is_base64;
        assert_int_equal(api_put_embedding(&whole, &embedding, 0, embedding.n_dims), 0);
        for (uint32_t from = 0; from < embedding.n_dims; from += API_EMBEDDING_PIECE) {
            uint32_t rest = embedding.n_dims - from;
            uint32_t to = from + (rest < API_EMBEDDING_PIECE ? rest : API_EMBEDDING_PIECE);

            assert_int_equal(api_put_embedding(&pieces, &embedding, from, to), 0);
        }
        assert_int_equal(whole.len_bytes, pieces.len_bytes);
        assert_memory_equal(whole.data, pieces.data, whole.len_bytes);
        buf_fini(&whole);
        buf_fini(&pieces);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_has_its_shape),
        cmocka_unit_test(a_completion_has_its_shape),
        cmocka_unit_test(chunks_have_their_shapes),
        cmocka_unit_test(a_model_without_a_fingerprint_has_none),
        cmocka_unit_test(errors_have_four_members),
        cmocka_unit_test(tokens_and_text),
        cmocka_unit_test(embeddings_have_their_shape),
        cmocka_unit_test(an_embedding_may_come_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
