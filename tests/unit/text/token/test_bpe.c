/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level encoding with small vocabularies in which every merge is known,
 * and the requirements on a vocabulary. */
#include "tests/unit/text/token/vocabularies.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct tokenizer *tokenizer_with(const char *pre, const char *const *merges,
                                        const struct token_spec *extra)
{
    struct buf image = {0};

    byte_level_image(pre, merges, extra, NULL, &image);
    return tokenizer_of_image(&image);
}

static void expect_flagged(const struct tokenizer *tokenizer, const char *text, unsigned flags,
                           const char *expected)
{
    char *got = encode_as_pieces(tokenizer, bytes_str(text), flags);

    assert_string_equal(got, expected);
    free(got);
}

static void expect(const struct tokenizer *tokenizer, const char *text, const char *expected)
{
    expect_flagged(tokenizer, text, 0, expected);
}

static void merges_go_by_rank_then_from_the_left(void **state)
{
    static const char *const merges[] = {"b c", "a b", "a a", "aa a", "bc d", NULL};
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", merges, NULL);

    expect(tokenizer, "abcd", "a|bcd");
    expect(tokenizer, "abd", "ab|d");
    expect(tokenizer, "aaa", "aaa");
    expect(tokenizer, "aaaa", "aa|aa");
    expect(tokenizer, "aaaaa", "aa|aaa");
    expect(tokenizer, "", "");
    tokenizer_unref(tokenizer);
}

/* The textbook's algorithm: finds the best pair, merges it, begins again. */
static size_t merge_slowly(char pieces[][16], size_t n, const char *const *merges)
{
    for (;;) {
        size_t best = SIZE_MAX, best_rank = SIZE_MAX;

        for (size_t i = 0; i + 1 < n; i++) {
            char pair[33];

            snprintf(pair, sizeof(pair), "%.15s %.15s", pieces[i], pieces[i + 1]);
            for (size_t rank = 0; merges[rank] != NULL && rank < best_rank; rank++) {
                if (strcmp(merges[rank], pair) == 0) {
                    best = i;
                    best_rank = rank;
                }
            }
        }
        if (best == SIZE_MAX)
            return n;
        memcpy(pieces[best] + strlen(pieces[best]), pieces[best + 1], strlen(pieces[best + 1]) + 1);
        memmove(pieces[best + 1], pieces[best + 2], (n - best - 2) * sizeof(pieces[0]));
        n--;
    }
}

static void long_and_short_words_merge_alike(void **state)
{
    static const char *const merges[] = {"a b",  "c a",  "b b",  "ab c", "ca ca", "a a",   "c c",
                                         "bb a", "aa b", "cc a", "b c",  "ab ab", "bc bc", NULL};
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", merges, NULL);
    static char pieces[128][16];
    struct rng rng;

    rng_init(&rng, 3);
    for (int i = 0; i < 400; i++) {
        size_t n = 1 + (size_t)rng_below(&rng, 120); /* shorter and longer than where the heap begins */
        char text[128] = "", expected[400] = "";

        for (size_t k = 0; k < n; k++) {
            text[k] = "abc"[rng_below(&rng, 3)];
            snprintf(pieces[k], sizeof(pieces[k]), "%c", text[k]);
        }
        size_t left = merge_slowly(pieces, n, merges);
        for (size_t k = 0; k < left; k++) {
            strcat(expected, k == 0 ? "" : "|");
            strcat(expected, pieces[k]);
        }
        expect(tokenizer, text, expected);
    }
    tokenizer_unref(tokenizer);
}

static void a_very_long_word_is_merged(void **state)
{
    static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa", NULL};
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", merges, NULL);
    size_t len_bytes = (size_t)1 << 18;
    uint8_t *text = malloc(len_bytes);
    struct token_ids ids = {0};

    assert_non_null(text);
    memset(text, 'a', len_bytes);
    assert_int_equal(tokenizer_encode(tokenizer, bytes_of(text, len_bytes), 0, SIZE_MAX, &ids), 0);
    assert_int_equal(ids.n, len_bytes / 8);
    token_ids_fini(&ids);
    free(text);
    tokenizer_unref(tokenizer);
}

/* Repeated words are not merged again:
 * a long text is the sum of its lines, each too short to use the cache of words. */
static void cached_words_equal_merged_words(void **state)
{
    static const char *const merges[] = {"a b", "b c", "ab c", "a a", "abc d", "aa ab", NULL};
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", merges, NULL);
    struct token_ids whole = {0};
    struct token_ids parts = {0};
    struct buf text = {0};
    struct rng rng;

    rng_init(&rng, 7);
    for (int i = 0; i < 3000; i++) {
        size_t from = text.len_bytes;

        for (uint64_t n = 1 + rng_below(&rng, 8); n > 0; n--) {
            uint64_t len = rng_below(&rng, 10) == 0 ? rng_below(&rng, 40) : 1 + rng_below(&rng, 4);

            while (len-- > 0)
                buf_append_byte(&text, (uint8_t) "abcd"[rng_below(&rng, 4)]);
            buf_append_byte(&text, n == 1 ? '.' : ' ');
        }
        assert_int_equal(tokenizer_encode(tokenizer, bytes_of(text.data + from, text.len_bytes - from), 0,
                                          SIZE_MAX, &parts),
                         0);
    }
    assert_int_equal(tokenizer_encode(tokenizer, buf_view(&text), 0, SIZE_MAX, &whole), 0);
    assert_int_equal(whole.n, parts.n);
    assert_memory_equal(whole.ids, parts.ids, whole.n * sizeof(*whole.ids));
    /* The limit also holds for cached words. */
    whole.n = 0;
    assert_int_equal(tokenizer_encode(tokenizer, buf_view(&text), 0, parts.n - 1, &whole), E_LIMIT);
    assert_int_equal(whole.n, 0);
    token_ids_fini(&whole);
    token_ids_fini(&parts);
    buf_fini(&text);
    tokenizer_unref(tokenizer);
}

static void llama3_takes_whole_words_first(void **state)
{
    static const char *const merges[] = {"a b", "b c", NULL};
    static const struct token_spec extra[] = {{"abc", 1, 0},
                                              {"\xc4\xa0"
                                               "abc",
                                               1, 0},
                                              {NULL, 0, 0}};
    struct tokenizer *whole = tokenizer_with("llama-bpe", merges, extra);
    struct tokenizer *merged = tokenizer_with("qwen2", merges, extra);

    expect(whole, "abc abc", "abc| abc");
    expect(whole, "abcc", "ab|c|c");
    expect(merged, "abc abc", "ab|c| |ab|c");
    tokenizer_unref(merged);
    tokenizer_unref(whole);
}

static void names_choose_whole_words_and_bos(void **state)
{
    static const struct {
        const char *name;
        bool takes_whole, adds_bos;
    } cases[] = {{"pixtral", true, true},
                 {"midm-2.0", true, true},
                 {"youtu", true, false},
                 {"minicpm5", true, false},
                 {"seed-coder", false, false}};
    static const char *const merges[] = {"a b", "b c", NULL};
    static const struct token_spec extra[] = {{"<s>", 3, 0}, {"abc", 1, 0}, {NULL, 0, 0}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tokenizer *tokenizer = tokenizer_with(cases[i].name, merges, extra);

        expect(tokenizer, "abc", cases[i].takes_whole ? "abc" : "ab|c");
        assert_int_equal(tokenizer_adds_bos(tokenizer), cases[i].adds_bos);
        tokenizer_unref(tokenizer);
    }
}

/* ---- specials ---- */

static const struct token_spec specials[] = {
    {"<s>", 3, 0},
    {"<|end|>", 3, 0},
    {"<|end|>of", 3, 0},
    {"<t>", 4, 0},
    {"\xe2\x82\xac\xe2\x82\xac", 4, 0},
    {"<unk>", 2, 0},
    {NULL, 0, 0},
};

static void control_tokens_need_permission(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", NULL, specials);
    token_id end = tokenizer_find(tokenizer, bytes_str("<|end|>"));

    expect(tokenizer, "<|end|>", "<|||e|n|d|||>");
    expect_flagged(tokenizer, "<|end|>", TOKEN_PARSE_SPECIAL, "<|end|>");
    expect_flagged(tokenizer, "x<unk>", TOKEN_PARSE_SPECIAL, "x|<unk>");
    expect(tokenizer, "<unk>", "<|u|n|k|>");
    assert_true(tokenizer_is_control(tokenizer, end));
    assert_false(tokenizer_is_control(tokenizer, 0));
    assert_false(tokenizer_is_control(tokenizer, TOKEN_NONE));
    tokenizer_unref(tokenizer);
}

static void the_longest_special_wins(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", NULL, specials);

    expect_flagged(tokenizer, "<|end|>of<|end|>o", TOKEN_PARSE_SPECIAL, "<|end|>of|<|end|>|o");
    expect_flagged(tokenizer, "<<|end|><|end", TOKEN_PARSE_SPECIAL, "<|<|end|>|<|||e|n|d");
    tokenizer_unref(tokenizer);
}

static void user_tokens_are_found_in_any_text(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", NULL, specials);

    expect(tokenizer, "a<t>b", "a|<t>|b");
    expect(tokenizer, "\xe2\x82\xac\xe2\x82\xac!", "\xe2\x82\xac\xe2\x82\xac|!");
    tokenizer_unref(tokenizer);
}

static void bos_comes_first_when_wanted(void **state)
{
    struct tokenizer *wants = tokenizer_with("llama-bpe", NULL, specials);
    struct tokenizer *wants_not = tokenizer_with("gpt-2", NULL, specials);

    assert_true(tokenizer_adds_bos(wants));
    expect_flagged(wants, "a", TOKEN_ADD_BOS, "<s>|a");
    expect(wants, "a", "a");
    assert_false(tokenizer_adds_bos(wants_not));
    expect_flagged(wants_not, "a", TOKEN_ADD_BOS, "a");
    tokenizer_unref(wants_not);
    tokenizer_unref(wants);
}

static void eos_comes_last_when_wanted(void **state)
{
    struct tokenizer *wants_not = tokenizer_with("gpt-2", NULL, specials);

    expect_flagged(wants_not, "a", TOKEN_ADD_EOS, "a");
    assert_false(tokenizer_is_embedding_model(wants_not));
    tokenizer_unref(wants_not);
}

static void the_limit_leaves_the_list_alone(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with("gpt-2", NULL, NULL);
    struct token_ids ids = {0};

    assert_int_equal(token_ids_push(&ids, 5), 0);
    assert_int_equal(tokenizer_encode(tokenizer, bytes_str("abc"), 0, 2, &ids), E_LIMIT);
    assert_int_equal(ids.n, 1);
    assert_int_equal(tokenizer_encode(tokenizer, bytes_str("abc"), 0, 3, &ids), 0);
    assert_int_equal(ids.n, 4);
    assert_int_equal(tokenizer_encode(tokenizer, bytes_str(""), 0, 0, &ids), 0);
    token_ids_fini(&ids);
    tokenizer_unref(tokenizer);
}

static void any_bytes_come_back(void **state)
{
    static const char *const merges[] = {"a b", "\xc4\xa0 a", "\xc3\x83 \xc2\xa9", NULL};
    struct tokenizer *tokenizer = tokenizer_with("llama-bpe", merges, NULL);
    struct token_ids ids = {0};
    struct rng rng;
    uint8_t raw[200];

    rng_init(&rng, 11);
    for (int i = 0; i < 500; i++) {
        size_t n = (size_t)rng_below(&rng, sizeof(raw));
        struct buf back = {0};

        for (size_t k = 0; k < n; k++)
            raw[k] = i % 2 == 0 ? (uint8_t)rng_u64(&rng) : (uint8_t) "ab \xc3\xa9\n"[rng_below(&rng, 6)];
        ids.n = 0;
        assert_int_equal(tokenizer_encode(tokenizer, bytes_of(raw, n), 0, SIZE_MAX, &ids), 0);
        for (size_t k = 0; k < ids.n; k++) {
            struct bytes piece = tokenizer_piece(tokenizer, ids.ids[k]);
            buf_append(&back, piece.data, piece.len_bytes);
        }
        assert_true(bytes_equal(buf_view(&back), bytes_of(raw, n)));
        buf_fini(&back);
    }
    token_ids_fini(&ids);
    tokenizer_unref(tokenizer);
}

/* ---- bytes without tokens ---- */

static const char not_in_utf8[] = "\xc0\xc1\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";

static struct tokenizer *tokenizer_lacking(const char *lacking, const char *pre,
                                           const struct token_spec *extra)
{
    struct buf image = {0};

    byte_level_image_lacking(bytes_str(lacking), pre, extra, &image);
    return tokenizer_of_image(&image);
}

/* DeepSeek's files have these letters as user-defined text, and their bytes in no token. */
static void letters_may_stand_for_themselves(void **state)
{
    static const char *const rules[] = {"deepseek-coder", "deepseek-llm", "gpt-2"};
    static const struct token_spec letters[] = {
        {"\xc3\x80", 4, 0}, {"\xc3\x81", 4, 0}, {"\xc3\xbc", 4, 0}, {"\xc3\xbf", 4, 0}, {NULL, 0, 0}};

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct tokenizer *tokenizer = tokenizer_lacking(not_in_utf8, rules[i], letters);
        struct token_ids ids = {0};
        struct buf text = {0};
        struct detok detok;

        expect(tokenizer, "x\xc3\xbcy\xc3\x80", "x|\xc3\xbc|y|\xc3\x80");
        /* Each character can be encoded and comes back. */
        for (uint32_t code = 0x20; code < 0x110000; code += code < 0x3000 ? 1 : 509) {
            uint8_t raw[4];
            size_t n = utf8_put(code >= 0xd800 && code < 0xe000 ? 'x' : code, raw);

            ids.n = 0;
            buf_clear(&text);
            assert_int_equal(tokenizer_encode(tokenizer, bytes_of(raw, n), 0, SIZE_MAX, &ids), 0);
            detok_init(&detok, tokenizer, true);
            for (size_t k = 0; k < ids.n; k++)
                assert_int_equal(detok_push(&detok, ids.ids[k], &text), 0);
            assert_true(bytes_equal(buf_view(&text), bytes_of(raw, n)));
        }
        /* No text can contain them; raw bytes are dropped. */
        expect(tokenizer, "a\xff\xc0z", "a|z");
        expect(tokenizer, "\xff", "");
        token_ids_fini(&ids);
        buf_fini(&text);
        tokenizer_unref(tokenizer);
    }
}

/* Falcon's file: also lacks some control characters, which the prompt drops, as in the reference. */
static void control_characters_may_be_missing(void **state)
{
    static const char lacking[] = "\x03\x04\x05\x0b\x11\x13\x1c\x1e\x7f\xf2"
                                  "\xc0\xc1\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";
    struct tokenizer *tokenizer = tokenizer_lacking(lacking, "falcon", NULL);

    expect(tokenizer, "a\x03z", "a|z");
    expect(tokenizer, "\x03", "");
    expect(tokenizer, "\x03\x04\x7f", "");
    expect(tokenizer, "\n\t\x01", "\n|\t|\x01");
    tokenizer_unref(tokenizer);
}

/* Text never becomes a control token, even if that is the vocabulary's unknown token. */
static void the_unknown_token_is_no_control_token(void **state)
{
    static const struct token_spec control[] = {{"<unk>", 3, 0}, {NULL, 0, 0}};
    static const struct token_spec unknown[] = {{"<unk>", 2, 0}, {NULL, 0, 0}};
    struct tokenizer *left_out = tokenizer_lacking("\x03\xf1", "starcoder", control);
    struct tokenizer *shown = tokenizer_lacking("\x03\xf1", "starcoder", unknown);

    expect(left_out, "a\x03z\xf1", "a|z");
    expect(shown, "a\x03z", "a|<unk>|z");
    tokenizer_unref(left_out);
    tokenizer_unref(shown);
}

static void expect_lacking_refusal(const char *lacking, const struct token_spec *extra, const char *words)
{
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};
    struct buf image = {0};

    byte_level_image_lacking(bytes_str(lacking), "gpt-2", extra, &image);
    assert_int_equal(tokenizer_new_from_image(buf_view(&image), &fault, &tokenizer), E_FORMAT);
    assert_non_null(strstr(fault.text, words));
    buf_fini(&image);
}

static void bytes_of_text_must_have_tokens(void **state)
{
    static const struct token_spec letter[] = {{"a", 4, 0}, {NULL, 0, 0}};

    expect_lacking_refusal("a", NULL, "no token for byte 0x61");
    expect_lacking_refusal("a", letter, "no token for byte 0x61");
    expect_lacking_refusal("\n", NULL, "no token for byte 0x0a");
    expect_lacking_refusal("\x80", NULL, "no token for byte 0x80");
    expect_lacking_refusal("\xf0", NULL, "no token for byte 0xf0");
}

/* ---- conditions of a vocabulary ---- */

struct wrong { /* one wrong key, before all others */
    const char *key;
    const char *text;  /* a string, or */
    uint32_t number;   /* a number, or */
    const char *items; /* a list of strings separated by '/' */
    int code;
    const char *words;
};

static void put_items(struct gguf_writer *writer, const char *key, const char *items)
{
    struct bytes views[16];
    uint64_t n = 0;

    for (const char *at = items; *at != '\0';) {
        size_t len_bytes = strcspn(at, "/");
        views[n++] = bytes_of(at, len_bytes);
        at += len_bytes + (at[len_bytes] == '/');
    }
    assert_int_equal(gguf_put_str_array(writer, key, views, n), 0);
}

static void expect_refusal(const struct wrong *wrong)
{
    struct buf image = {0}, damaged = {0};
    struct gguf_writer *writer = NULL;
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};

    byte_level_image("gpt-2", NULL, NULL, NULL, &image);
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &gguf), 0);
    assert_int_equal(gguf_writer_new(&writer), 0);
    if (wrong->text != NULL)
        assert_int_equal(gguf_put_str(writer, wrong->key, bytes_str(wrong->text)), 0);
    else if (wrong->items != NULL)
        put_items(writer, wrong->key, wrong->items);
    else
        assert_int_equal(gguf_put_u32(writer, wrong->key, wrong->number), 0);
    assert_int_equal(gguf_put_keys_of(writer, gguf, ""), 0);
    assert_int_equal(gguf_writer_header(writer, &damaged), 0);

    int rc = tokenizer_new_from_image(buf_view(&damaged), &fault, &tokenizer);
    if (rc != wrong->code || strstr(fault.text, wrong->words) == NULL)
        print_error("%s: %s: %s\n", wrong->key, err_name(rc), fault.text);
    assert_int_equal(rc, wrong->code);
    assert_non_null(strstr(fault.text, wrong->words));
    assert_null(tokenizer);
    gguf_writer_free(writer);
    gguf_close(gguf);
    buf_fini(&damaged);
    buf_fini(&image);
}

static void wrong_vocabularies_are_refused(void **state)
{
    static const struct wrong cases[] = {
        {"tokenizer.ggml.model", "bert", 0, NULL, E_UNSUPPORTED,
         "'bert' (tokenizer.ggml.model) is not known; known are"},
        {"tokenizer.ggml.model", "llama", 0, NULL, E_FORMAT, "unknown token"},
        {"tokenizer.ggml.model", NULL, 1, NULL, E_FORMAT, "tokenizer.ggml.model"},
        {"tokenizer.ggml.pre", "no-such-rule", 0, NULL, E_UNSUPPORTED, "known are: default, gpt-2"},
        {"tokenizer.ggml.pre", NULL, 1, NULL, E_FORMAT, "tokenizer.ggml.pre"},
        {"tokenizer.ggml.tokens", NULL, 1, NULL, E_FORMAT, "not a list of strings"},
        {"tokenizer.ggml.tokens", NULL, 0, "", E_LIMIT, "0 tokens"},
        {"tokenizer.ggml.tokens", NULL, 0, "a/b", E_FORMAT, "one number for each of 2 tokens"},
        {"tokenizer.ggml.token_type", NULL, 1, NULL, E_FORMAT, "one number for each of 256 tokens"},
        {"tokenizer.ggml.merges", NULL, 1, NULL, E_FORMAT, "not a list of strings"},
        {"tokenizer.ggml.merges", NULL, 0, "a b", E_FORMAT, "merge 0 'a b' names a text that is no token"},
        {"tokenizer.ggml.merges", NULL, 0, "ab", E_FORMAT, "is not two tokens"},
        {"tokenizer.ggml.merges", NULL, 0, " ", E_FORMAT, "is not two tokens"},
        {"tokenizer.ggml.bos_token_id", NULL, 256, NULL, E_FORMAT, "there is no token 256, only 256"},
        {"tokenizer.ggml.eos_token_id", "x", 0, NULL, E_FORMAT, "tokenizer.ggml.eos_token_id"},
        {"tokenizer.ggml.add_bos_token", "x", 0, NULL, E_FORMAT, "tokenizer.ggml.add_bos_token"},
        {"tokenizer.chat_template", NULL, 1, NULL, E_FORMAT, "tokenizer.chat_template"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refusal(&cases[i]);
}

/* The image that a worker sends gives the worker's vocabulary. */
static void an_image_is_the_same_vocabulary(void **state)
{
    static const char *const merges[] = {"a b", "b c", "ab c", NULL};
    struct buf image = {0}, sent = {0};
    struct gguf *gguf = NULL;
    struct tokenizer *here = NULL;

    byte_level_image("qwen2", merges, specials, "T", &image);
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &gguf), 0);
    assert_int_equal(tokenizer_new(gguf, NULL, &here), 0);
    assert_int_equal(gguf_vocabulary_image(gguf, &sent), 0);
    gguf_close(gguf);
    buf_fini(&image); /* no longer needed */

    struct tokenizer *there = tokenizer_ref(tokenizer_of_image(&sent));
    tokenizer_unref(there);
    assert_true(bytes_is(tokenizer_chat_template(there), "T"));
    assert_int_equal(tokenizer_vocab_size(here), tokenizer_vocab_size(there));
    for (uint32_t i = 0; i < tokenizer_vocab_size(here); i++)
        assert_true(bytes_equal(tokenizer_piece(here, i), tokenizer_piece(there, i)));
    expect_flagged(there, "abcab<s>", TOKEN_PARSE_SPECIAL, "abc|ab|<s>");
    assert_int_equal(tokenizer_piece(there, 100000).len_bytes, 0);
    tokenizer_unref(there);
    tokenizer_unref(here);
    tokenizer_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(long_and_short_words_merge_alike),
        cmocka_unit_test(a_very_long_word_is_merged),
        cmocka_unit_test(llama3_takes_whole_words_first),
        cmocka_unit_test(names_choose_whole_words_and_bos),
        cmocka_unit_test(cached_words_equal_merged_words),
        cmocka_unit_test(control_tokens_need_permission),
        cmocka_unit_test(the_longest_special_wins),
        cmocka_unit_test(user_tokens_are_found_in_any_text),
        cmocka_unit_test(bos_comes_first_when_wanted),
        cmocka_unit_test(eos_comes_last_when_wanted),
        cmocka_unit_test(the_limit_leaves_the_list_alone),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(letters_may_stand_for_themselves),
        cmocka_unit_test(control_characters_may_be_missing),
        cmocka_unit_test(the_unknown_token_is_no_control_token),
        cmocka_unit_test(bytes_of_text_must_have_tokens),
        cmocka_unit_test(wrong_vocabularies_are_refused),
        cmocka_unit_test(an_image_is_the_same_vocabulary),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
