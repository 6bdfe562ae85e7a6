/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece encoding with small vocabularies in which every score is known. */
#include "tests/unit/text/token/vocabularies.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define BLANK "\xe2\x96\x81"

static const struct token_spec letters[] = {
    {BLANK, 1, -10},     {"a", 1, -11},        {"b", 1, -12},      {"c", 1, -13},
    {"ab", 1, -2},       {"bc", 1, -1},        {BLANK "a", 1, -3}, {"aa", 1, -4},
    {BLANK "ab", 1, -5}, {BLANK BLANK, 1, -6}, {"c<", 1, -7},      {NULL, 0, 0},
};

static struct tokenizer *tokenizer_with(const struct token_spec *extra, bool has_bytes)
{
    struct buf image = {0};

    sentencepiece_image(extra, has_bytes, &image);
    return tokenizer_of_image(&image);
}

static void expect(const struct tokenizer *tokenizer, const char *text, unsigned flags, const char *expected)
{
    char *got = encode_as_pieces(tokenizer, bytes_str(text), flags);

    assert_string_equal(got, expected);
    free(got);
}

static void merges_go_by_score(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with(letters, true);

    expect(tokenizer, "abc", 0, " a|bc"); /* bc before ab */
    expect(tokenizer, "ab", 0, " ab");    /* the blank joins text that was merged before it */
    expect(tokenizer, "a b", 0, " a| |b");
    expect(tokenizer, "aaaa", 0, " a|aa|a");
    expect(tokenizer, "", 0, "");
    expect(tokenizer, "  a", 0, "  | a");
    tokenizer_unref(tokenizer);
}

static void equal_scores_go_from_the_left(void **state)
{
    static const struct token_spec tied[] = {{BLANK, 1, -9}, {"a", 1, -9},  {"b", 1, -9},  {"c", 1, -9},
                                             {"ab", 1, -1},  {"bc", 1, -1}, {"ca", 1, -1}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_with(tied, true);

    expect(tokenizer, "abc", 0, " |ab|c");
    expect(tokenizer, "bca", 0, " |bc|a");
    expect(tokenizer, "cabca", 0, " |ca|bc|a");
    tokenizer_unref(tokenizer);
}

/* The expected pieces come from the tokenizers library (0.22) with this vocabulary. */
static void listed_merges_go_by_rank(void **state)
{
    static const struct token_spec tokens[] = {
        {BLANK, 1, 0},       {"a", 1, 0},    {"b", 1, 0},       {"c", 1, 0},   {"\n", 1, 0},
        {"ab", 1, 0},        {"bc", 1, 0},   {BLANK "a", 1, 0}, {"abc", 1, 0}, {BLANK "ab", 1, 0},
        {BLANK BLANK, 1, 0}, {"\n\n", 1, 0}, {"\n\n\n", 1, 0},  {NULL, 0, 0}};
    static const char *const merges[] = {BLANK " a",      "b c",   "a b",     "a bc", BLANK "a b",
                                         BLANK " " BLANK, "\n \n", "\n\n \n", NULL};
    struct tokenizer *tokenizer;
    struct buf image = {0};

    (void)state;
    sentencepiece_merges_image(tokens, merges, &image);
    tokenizer = tokenizer_of_image(&image);
    expect(tokenizer, "abc", 0, "abc");
    expect(tokenizer, "ab", 0, "ab");
    expect(tokenizer, " abc", 0, " a|bc"); /* no merge makes " abc" of them */
    expect(tokenizer, " ab", 0, " ab");
    expect(tokenizer, "a b  c", 0, "a| |b|  |c");
    expect(tokenizer, "cab", 0, "c|ab");
    expect(tokenizer, "\n\n\n\n\nab", 0, "\n\n|\n\n\n|ab");
    expect(tokenizer, "  abc", 0, " | a|bc");
    expect(tokenizer, "a\xc3\xa9 b", 0, "a|\xc3|\xa9| |b");
    tokenizer_unref(tokenizer);
}

static void unknown_characters_fall_back_to_bytes(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with(letters, true);
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(tokenizer, bytes_str("a\xc3\xa9\xff"), 0, SIZE_MAX, &ids), 0);
    assert_int_equal(ids.n, 4);
    assert_int_equal(ids.ids[1], tokenizer_find(tokenizer, bytes_str("<0xC3>")));
    assert_int_equal(ids.ids[2], tokenizer_find(tokenizer, bytes_str("<0xA9>")));
    assert_int_equal(ids.ids[3], tokenizer_find(tokenizer, bytes_str("<0xFF>")));
    token_ids_fini(&ids);
    tokenizer_unref(tokenizer);

    tokenizer = tokenizer_with(letters, false);
    expect(tokenizer,
           "a\xc3\xa9"
           "b",
           0, " a|<unk>|b");
    tokenizer_unref(tokenizer);
}

/* A character may occur inside a token without being one. */
static void characters_without_a_token_merge(void **state)
{
    static const struct token_spec parts[] = {
        {BLANK, 1, -9}, {"x", 1, -9}, {"yz", 1, -2}, {"xyz", 1, -1}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_with(parts, true);

    expect(tokenizer, "xyz", 0, " |xyz");
    expect(tokenizer, "xy", 0, " |x|y"); /* y as a byte token */
    tokenizer_unref(tokenizer);
}

/* Merging must not produce a control or byte token, even with the best score. */
static void text_cannot_spell_control_tokens(void **state)
{
    static const struct token_spec parts[] = {{BLANK, 1, -9}, {"<", 1, -9}, {"/", 1, -9},
                                              {"s", 1, -9},   {">", 1, -9}, {"</", 1, -2},
                                              {"s>", 1, -3},  {"0", 1, -9}, {NULL, 0, 0}};
    struct tokenizer *tokenizer = tokenizer_with(parts, true);

    expect(tokenizer, "</s>", 0, " |</|s>");
    expect(tokenizer, "</s>", TOKEN_PARSE_SPECIAL, "</s>");
    expect(tokenizer, "<s></s>", TOKEN_PARSE_SPECIAL | TOKEN_ADD_BOS, "<s>|<s>|</s>");
    tokenizer_unref(tokenizer);
}

static void a_blank_begins_each_segment(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with(letters, true);

    assert_true(tokenizer_adds_bos(tokenizer)); /* if the file does not say */
    expect(tokenizer, "a</s>a", TOKEN_PARSE_SPECIAL | TOKEN_ADD_BOS, "<s>| a|</s>| a");
    tokenizer_unref(tokenizer);
}

/* Cutting at places without merges must not change the result.
 * Compares with merging the whole text slowly. */
static double score_of(const struct token_spec *specs, const char *text)
{
    for (; specs->spelling != NULL; specs++) {
        if (strcmp(specs->spelling, text) == 0)
            return (double)specs->score;
    }
    return -INFINITY;
}

static size_t merge_slowly(char pieces[][16], size_t n)
{
    for (;;) {
        double best_score = -INFINITY;
        size_t best = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            char joined[33];

            snprintf(joined, sizeof(joined), "%.15s%.15s", pieces[i], pieces[i + 1]);
            if (score_of(letters, joined) > best_score) {
                best_score = score_of(letters, joined);
                best = i;
            }
        }
        if (isinf(best_score))
            return n;
        memcpy(pieces[best] + strlen(pieces[best]), pieces[best + 1], strlen(pieces[best + 1]) + 1);
        memmove(pieces[best + 1], pieces[best + 2], (n - best - 2) * sizeof(pieces[0]));
        n--;
    }
}

static void cutting_changes_nothing(void **state)
{
    struct tokenizer *tokenizer = tokenizer_with(letters, true);
    static char pieces[128][16];
    struct rng rng;

    rng_init(&rng, 5);
    for (int i = 0; i < 300; i++) {
        size_t n = 1 + (size_t)rng_below(&rng, 100);
        char text[128] = "", expected[800] = "";

        strcpy(pieces[0], BLANK);
        for (size_t k = 0; k < n; k++) {
            text[k] = "aabbc  "[rng_below(&rng, 7)];
            snprintf(pieces[k + 1], sizeof(pieces[0]), text[k] == ' ' ? BLANK : "%c", text[k]);
        }
        size_t left = merge_slowly(pieces, n + 1);
        for (size_t k = 0; k < left; k++) {
            strcat(expected, k == 0 ? "" : " ");
            snprintf(expected + strlen(expected), 12, "%u", tokenizer_find(tokenizer, bytes_str(pieces[k])));
        }
        struct token_ids ids = {0};
        struct buf got = {0};
        assert_int_equal(tokenizer_encode(tokenizer, bytes_str(text), 0, SIZE_MAX, &ids), 0);
        ids_as_text(&ids, &got);
        assert_string_equal((char *)got.data, expected);
        buf_fini(&got);
        token_ids_fini(&ids);
    }
    tokenizer_unref(tokenizer);
}

/* As in gemma's files: nothing is put before the text, and runs of blanks and newlines are user-defined
 * tokens, written with real blanks. */
static void a_file_may_want_no_blank_before(void **state)
{
    static const struct token_spec gemma[] = {{BLANK, 1, -10},      {"a", 1, -11},      {"b", 1, -12},
                                              {"ab", 1, -1},        {BLANK "a", 1, -2}, {"\n", 4, -1000},
                                              {"\n\n", 4, -1000},   {"   ", 4, -1000},  {"<td>", 4, -1000},
                                              {BLANK BLANK, 1, -3}, {NULL, 0, 0}};
    struct buf image = {0}, changed = {0};
    struct gguf_writer *writer = NULL;
    struct gguf *gguf = NULL;

    sentencepiece_image(gemma, true, &image);
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &gguf), 0);
    assert_int_equal(gguf_writer_new(&writer), 0);
    assert_int_equal(gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", false), 0);
    assert_int_equal(gguf_put_keys_of(writer, gguf, ""), 0);
    assert_int_equal(gguf_writer_header(writer, &changed), 0);
    gguf_writer_free(writer);
    gguf_close(gguf);
    buf_fini(&image);

    struct tokenizer *tokenizer = tokenizer_of_image(&changed);
    expect(tokenizer, "ab", 0, "ab");
    expect(tokenizer, " ab", 0, " |ab");
    expect(tokenizer, " a b", 0, " a| |b");
    expect(tokenizer, "a\n\n\nb", 0, "a|\n\n|\n|b");
    expect(tokenizer, "a     a", 0, "a|   | | a"); /* three of five, then like letters */
    expect(tokenizer, "a" BLANK "a", 0, "a| a");   /* the sign itself is a blank */
    expect(tokenizer, "a<td>a", TOKEN_PARSE_SPECIAL, "a|<td>|a");
    tokenizer_unref(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_score),
        cmocka_unit_test(equal_scores_go_from_the_left),
        cmocka_unit_test(listed_merges_go_by_rank),
        cmocka_unit_test(unknown_characters_fall_back_to_bytes),
        cmocka_unit_test(characters_without_a_token_merge),
        cmocka_unit_test(text_cannot_spell_control_tokens),
        cmocka_unit_test(a_blank_begins_each_segment),
        cmocka_unit_test(cutting_changes_nothing),
        cmocka_unit_test(a_file_may_want_no_blank_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
