/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens with a role: which ones end an answer, and what a file may say about them. */
#include "tests/unit/text/token/vocabularies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct tokenizer *tokenizer_of_tokens(const struct token_spec *extra)
{
    struct buf image = {0};

    byte_level_image("qwen2", NULL, extra, NULL, &image);
    return tokenizer_of_image(&image);
}

static void stops_are_the_ends_of_turns(void **state)
{
    static const struct token_spec extra[] = {
        {"<s>", 3, 0}, {"<|im_end|>", 3, 0}, {"<|endoftext|>", 3, 0}, {"</s>", 1, 0}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_of_tokens(extra);
    size_t n;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n);

    assert_int_equal(n, 2); /* </s> is not a control token here; EOS is <|im_end|> and counts once */
    assert_int_equal(stops[0], tokenizer_eos(tokenizer));
    assert_int_equal(stops[1], tokenizer_find(tokenizer, bytes_str("<|endoftext|>")));
    tokenizer_unref(tokenizer);
}

/* Gemma 4 asks for the results of its calls by the mark that begins them. */
static void the_mark_of_a_result_is_a_stop(void **state)
{
    static const struct token_spec extra[] = {
        {"<s>", 3, 0}, {"<|im_end|>", 3, 0}, {"<turn|>", 3, 0}, {"<|tool_response>", 3, 0}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_of_tokens(extra);
    size_t n;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n);

    assert_int_equal(n, 3);
    assert_int_equal(stops[1], tokenizer_find(tokenizer, bytes_str("<turn|>")));
    assert_int_equal(stops[2], tokenizer_find(tokenizer, bytes_str("<|tool_response>")));
    tokenizer_unref(tokenizer);
}

static void more_families_name_their_ends(void **state)
{
    static const struct token_spec extra[] = {
        {"<s>", 3, 0},     {"<|im_end|>", 3, 0},     {"<|im:end|>", 3, 0}, {"<end_of_sentence>", 3, 0},
        {"<|sep|>", 3, 0}, {"<|end_of_msg|>", 3, 0}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_of_tokens(extra);
    size_t n;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n);

    (void)state;
    assert_int_equal(n, 4);
    assert_int_equal(stops[1], tokenizer_find(tokenizer, bytes_str("<end_of_sentence>")));
    assert_int_equal(stops[2], tokenizer_find(tokenizer, bytes_str("<|im:end|>")));
    assert_int_equal(stops[3], tokenizer_find(tokenizer, bytes_str("<|end_of_msg|>")));
    tokenizer_unref(tokenizer);
}

/* In harmony <|end|> ends a message of several; in other formats it ends the answer. */
static void an_end_may_be_that_of_a_message(void **state)
{
    static const struct token_spec phi[] = {
        {"<s>", 3, 0}, {"<|im_end|>", 3, 0}, {"<|end|>", 3, 0}, {NULL, 0, 0}};
    static const struct token_spec harmony[] = {{"<s>", 3, 0},      {"<|im_end|>", 3, 0},  {"<|end|>", 3, 0},
                                                {"<|call|>", 3, 0}, {"<|channel|>", 3, 0}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_of_tokens(phi);
    size_t n;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n);

    assert_int_equal(n, 2);
    assert_int_equal(stops[1], tokenizer_find(tokenizer, bytes_str("<|end|>")));
    tokenizer_unref(tokenizer);

    tokenizer = tokenizer_of_tokens(harmony);
    stops = tokenizer_stop_ids(tokenizer, &n);
    assert_int_equal(n, 2);
    assert_int_equal(stops[1], tokenizer_find(tokenizer, bytes_str("<|call|>")));
    tokenizer_unref(tokenizer);
}

/* A vocabulary with these tokens and numbers of keys, which replace its own. */
static struct tokenizer *tokenizer_with_keys(const struct token_spec *extra, const char *const *keys,
                                             const uint32_t *numbers, size_t n)
{
    struct buf image = {0}, changed = {0};
    struct gguf_writer *writer = NULL;
    struct gguf *gguf = NULL;
    struct fault fault = {0};

    byte_level_image("qwen2", NULL, extra, NULL, &image);
    assert_int_equal(gguf_open_memory(buf_view(&image), &fault, &gguf), 0);
    assert_int_equal(gguf_writer_new(&writer), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(gguf_put_u32(writer, keys[i], numbers[i]), 0);
    assert_int_equal(gguf_put_keys_of(writer, gguf, ""), 0);
    assert_int_equal(gguf_writer_header(writer, &changed), 0);
    gguf_writer_free(writer);
    gguf_close(gguf);
    buf_fini(&image);
    return tokenizer_of_image(&changed);
}

static void expect_stops(const struct tokenizer *tokenizer, const char *const *spellings)
{
    size_t n;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n);

    for (size_t i = 0; i < n; i++) {
        assert_non_null(spellings[i]);
        assert_int_equal(stops[i], tokenizer_find(tokenizer, bytes_str(spellings[i])));
    }
    assert_null(spellings[n]);
}

/* GLM's file names three ends: of a document, of a turn, of a turn that calls tools. */
static void files_name_ends(void **state)
{
    static const struct token_spec extra[] = {
        {"<s>", 3, 0}, {"<|endoftext|>", 3, 0}, {"<|user|>", 3, 0}, {"<|next|>", 3, 0}, {NULL, 0, 0}};
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const uint32_t ids[] = {257, 258, 259};
    static const char *const stops[] = {"<|endoftext|>", "<|user|>", "<|next|>", NULL};
    struct tokenizer *tokenizer = tokenizer_with_keys(extra, keys, ids, 3);

    expect_stops(tokenizer, stops);
    tokenizer_unref(tokenizer);
}

/* Files may have ends as user-defined tokens, but Gemma's </s> of this type is a tag of HTML. */
static void user_tokens_are_ends_too(void **state)
{
    static const struct token_spec extra[] = {{"<s>", 3, 0},
                                              {"<|im_end|>", 3, 0},
                                              {"<turn|>", 3, 0},
                                              {"<|tool_response>", 4, 0},
                                              {"</s>", 4, 0},
                                              {"<|end_of_text|>", 4, 0},
                                              {"<|file_sep|>", 4, 0},
                                              {"<eos>", 1, 0},
                                              {"[EOT]", 3, 0},
                                              {"[e~[", 3, 0},
                                              {"<|role_end|>", 3, 0},
                                              {"<end_of_utterance>", 3, 0},
                                              {"<EOT>", 3, 0},
                                              {"<|observation|>", 3, 0},
                                              {NULL, 0, 0}};
    static const char *const stops[] = {
        "<|im_end|>",       "<|end_of_text|>", "<end_of_utterance>", "<EOT>", "[EOT]",        "<turn|>",
        "<|tool_response>", "<|observation|>", "<|role_end|>",       "[e~[",  "<|file_sep|>", NULL};
    struct tokenizer *tokenizer = tokenizer_of_tokens(extra);

    expect_stops(tokenizer, stops);
    tokenizer_unref(tokenizer);
}

static void solar_open_has_ends_of_messages(void **state)
{
    static const struct token_spec extra[] = {{"<s>", 3, 0},       {"<|im_end|>", 3, 0}, {"<|end|>", 3, 0},
                                              {"<|calls|>", 3, 0}, {"<|flush|>", 3, 0},  {NULL, 0, 0}};
    static const char *const stops[] = {"<|im_end|>", "<|calls|>", "<|flush|>", NULL};
    struct tokenizer *tokenizer = tokenizer_of_tokens(extra);

    expect_stops(tokenizer, stops);
    tokenizer_unref(tokenizer);
}

/* A turn ends at one mark, a turn with calls at the mark behind them. */
static void apertus_ends_at_calls(void **state)
{
    static const struct token_spec extra[] = {{"<s>", 3, 0},
                                              {"<|im_end|>", 3, 0},
                                              {"<|assistant_end|>", 3, 0},
                                              {"<|tools_prefix|>", 3, 0},
                                              {"<|tools_suffix|>", 3, 0},
                                              {NULL, 0, 0}};
    static const char *const stops[] = {"<|im_end|>", "<|assistant_end|>", "<|tools_suffix|>", NULL};
    struct tokenizer *tokenizer = tokenizer_of_tokens(extra);

    expect_stops(tokenizer, stops);
    tokenizer_unref(tokenizer);
}

static void a_role_may_be_none(void **state)
{
    static const struct token_spec extra[] = {{"<s>", 3, 0}, {"<|im_end|>", 3, 0}, {NULL, 0, 0}};
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.unknown_token_id"};
    static const uint32_t ids[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    static const char *const stops[] = {"<|im_end|>", NULL};
    struct tokenizer *tokenizer = tokenizer_with_keys(extra, keys, ids, 5);

    assert_int_equal(tokenizer_bos(tokenizer), TOKEN_NONE);
    assert_int_equal(tokenizer_eos(tokenizer), TOKEN_NONE);
    expect_stops(tokenizer, stops);
    tokenizer_unref(tokenizer);
}

/* Ids of rarer ends may be left over from a longer vocabulary. */
static void rarer_ends_may_be_wrong(void **state)
{
    static const struct token_spec extra[] = {{"<s>", 3, 0}, {"<|im_end|>", 3, 0}, {NULL, 0, 0}};
    static const char *const keys[] = {"tokenizer.ggml.eom_token_id", "tokenizer.ggml.fim_pad_token_id"};
    static const uint32_t ids[] = {100000, 151662};
    static const char *const stops[] = {"<|im_end|>", NULL};
    struct tokenizer *tokenizer = tokenizer_with_keys(extra, keys, ids, 2);

    expect_stops(tokenizer, stops);
    tokenizer_unref(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rarer_ends_may_be_wrong),         cmocka_unit_test(stops_are_the_ends_of_turns),
        cmocka_unit_test(the_mark_of_a_result_is_a_stop),  cmocka_unit_test(more_families_name_their_ends),
        cmocka_unit_test(an_end_may_be_that_of_a_message), cmocka_unit_test(files_name_ends),
        cmocka_unit_test(user_tokens_are_ends_too),        cmocka_unit_test(solar_open_has_ends_of_messages),
        cmocka_unit_test(apertus_ends_at_calls),           cmocka_unit_test(a_role_may_be_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
