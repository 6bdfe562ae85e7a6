/* SPDX-License-Identifier: Apache-2.0 */
/* Time grows with the length of any text, not with its square: sixteen times the text takes less than sixty
 * times as long, while quadratic work would take 256 times.  Measured as CPU time of this thread. */
#include "text/token/tokenizer_priv.h"
#include "vocabularies.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define DIGITS "90"
enum { SMALL_BYTES = 1 << 16, LARGE_BYTES = 1 << 20, MOST_TIMES_LONGER = 60 };

/* Each unit is repeated to the wanted length, then a letter follows, so that no run reaches the end of the text.
 * Behind digits a blank follows too: some rules cut numbers only where no letter follows. */
static const char *const units[] = {
    "a",
    " ",
    "\n",
    "7",
    "-",
    "A",
    "'",
    "ab",
    " the",
    "\xcc\x81",
    "\xe6\x88\x91",
    "\xe4\xb8\xad"
    "A",
    "\xcc\x81"
    "A",
    "\xff",
    "\xe2\x96\x81",
    " \n",
    "\xc2\xbd",
    "<|im_",
    "'l",
    "\xe3\x80\x80",
    DIGITS,
};

static struct buf repeated(const char *unit, size_t len_bytes)
{
    struct buf text = {0};

    while (text.len_bytes < len_bytes)
        buf_append_str(&text, unit);
    buf_append_str(&text, strcmp(unit, DIGITS) == 0 ? " x" : "x");
    assert_false(text.is_bad);
    return text;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void cut(const void *arg, struct bytes text)
{
    struct pretok_cursor words;

    pretok_begin(&words, *(const enum pretok *)arg, text);
    for (size_t at = 0; at < text.len_bytes;)
        at = pretok_next(&words);
}

static void encode(const void *arg, struct bytes text)
{
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(arg, text, TOKEN_PARSE_SPECIAL, SIZE_MAX, &ids), 0);
    token_ids_fini(&ids);
}

static double took_s(void (*work)(const void *arg, struct bytes text), const void *arg, const char *unit,
                     size_t len_bytes)
{
    struct buf text = repeated(unit, len_bytes);
    double began_s = now_s();

    work(arg, buf_view(&text));
    double took = now_s() - began_s;
    buf_fini(&text);
    return took;
}

static void expect_linear(void (*work)(const void *arg, struct bytes text), const void *arg, const char *what)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        double small_s = took_s(work, arg, units[i], SMALL_BYTES) + 1e-3;
        double large_s = took_s(work, arg, units[i], LARGE_BYTES);

        if (large_s > small_s * MOST_TIMES_LONGER)
            fail_msg("%s, unit %zu: %.4f s, then %.4f s", what, i, small_s, large_s);
    }
}

static void every_rule_is_linear(void **state)
{
    for (int rule = 0; rule < PRETOK_N_RULES; rule++) {
        enum pretok pretok = (enum pretok)rule;
        char what[32];

        snprintf(what, sizeof(what), "rule %d", rule);
        expect_linear(cut, &pretok, what);
    }
}

static void byte_level_is_linear(void **state)
{
    static const char *const merges[] = {"a a",  "aa aa", "- -", "-- --",        "---- ----", "t h",
                                         "th e", "7 7",   "a b", "\xc4\xa0 the", "' l",       NULL};
    static const struct token_spec extra[] = {{"<|im_start|>", TOKEN_CONTROL, 0}, {NULL, 0, 0}};
    struct buf image = {0};

    byte_level_image("gpt-2", merges, extra, NULL, &image);
    struct tokenizer *tokenizer = tokenizer_of_image(&image);
    expect_linear(encode, tokenizer, "byte-level");
    tokenizer_unref(tokenizer);
}

static void sentencepiece_is_linear(void **state)
{
    static const struct token_spec extra[] = {{"a", TOKEN_NORMAL, -1},
                                              {"aa", TOKEN_NORMAL, -2},
                                              {"aaaa", TOKEN_NORMAL, -3},
                                              {"b", TOKEN_NORMAL, -4},
                                              {"ab", TOKEN_NORMAL, -5},
                                              {"-", TOKEN_NORMAL, -6},
                                              {"--", TOKEN_NORMAL, -7},
                                              {"----", TOKEN_NORMAL, -8},
                                              {"\xe2\x96\x81", TOKEN_NORMAL, -9},
                                              {"\xe2\x96\x81\xe2\x96\x81", TOKEN_NORMAL, -10},
                                              {NULL, 0, 0}};
    struct buf image = {0};

    sentencepiece_image(extra, true, &image);
    struct tokenizer *tokenizer = tokenizer_of_image(&image);
    expect_linear(encode, tokenizer, "SentencePiece");
    tokenizer_unref(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_is_linear),
        cmocka_unit_test(byte_level_is_linear),
        cmocka_unit_test(sentencepiece_is_linear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
