/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting words.  Bars mark the expected cuts.  They were checked with the regular expressions of the rules,
 * on every assigned character and on half a million random texts. */
#include "text/token/tokenizer_priv.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void expect_cuts(enum pretok rule, const char *expected)
{
    struct buf text = {0}, got = {0};
    struct pretok_cursor words;

    for (const char *at = expected; *at != '\0'; at++) {
        if (*at != '|')
            buf_append_byte(&text, (uint8_t)*at);
    }
    pretok_begin(&words, rule, buf_view(&text));
    for (size_t at = 0, end; at < text.len_bytes; at = end) {
        end = pretok_next(&words);
        assert_in_range(end, at + 1, text.len_bytes);
        buf_append_str(&got, at == 0 ? "" : "|");
        buf_append(&got, text.data + at, end - at);
    }
    assert_string_equal((char *)got.data, expected);
    buf_fini(&got);
    buf_fini(&text);
}

static void gpt2_cuts(void **state)
{
    static const char *const cases[] = {
        "Hello| world",
        "it|'s| we|'re| I|'m| you|'ll|'d|'ve| don|'t",
        "IT|'|S", /* contractions only in lower case */
        "a|  | b",
        "a|   ",
        " a",
        "  | a",
        "a|\n|\n|b",
        "a|\t|b",
        "\n| a",
        "x|123|y",
        "x| 123456",
        "!?|x|!?",
        " !?| x",
        "''|x",
        "\xc3\xa9t\xc3\xa9|\xc2\xa0|x",
        "\xe6\x88\x91\xe6\x83\xb3|3|\xe5\xa4\xa9",
        "a|\xff|b", /* a byte that is not UTF-8 is other */
        "a|\xff\xfe!",
        "a|\xcc\x81",            /* a combining mark is not a letter */
        "1\xc2\xbd\xe2\x85\xa7", /* digits, fractions and Roman numerals are numbers */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_cuts(PRETOK_GPT2, cases[i]);
}

static void llama3_cuts(void **state)
{
    static const char *const cases[] = {
        "Hello| world", "it|'S| WE|'Re",  "x|'\xc5\xbf", /* U+017F is an s that ignores case */
        "123|456|7",    " |123",          "(hello|(|1",  "\thello",  "a| !!\n\n|b",
        "a|!\r\n| b",   "a|  \n\n|  | b", "a| \n",       "a|   | b", "a|   ",
        "\n|b",         "\xc2\xa0x",      "..|x",        ".x", /* a dot goes with the letters only when it is
                                                                  alone before them */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_cuts(PRETOK_LLAMA3, cases[i]);
}

static void qwen2_cuts_numbers_singly(void **state)
{
    expect_cuts(PRETOK_QWEN2, "1|2|3| |4");
    expect_cuts(PRETOK_QWEN2, "it|'S| ok|.\n|x");
}

static void other_rules(void **state)
{
    expect_cuts(PRETOK_STARCODER, "a|  |1|2| |3| x");
    expect_cuts(PRETOK_FALCON, "it|'|s|  |.| x| |123|45| 67");
    expect_cuts(PRETOK_GPT4O, "Hello| World's| Mc|Donald");
    expect_cuts(PRETOK_GPT4O, " XMLhttp|Request|123|4| //\n//|x");
    expect_cuts(PRETOK_TEKKEN, "it|'s| ABCd|Ef|1|2");
    expect_cuts(PRETOK_SEED, "it|'S| !!|\n\n|1|2");
    expect_cuts(PRETOK_MINICPM5, "x|  |123|4| y");
    expect_cuts(PRETOK_TINY_AYA, "1|234|567| |12|345|.|678| |123|45|abc| World's");
    expect_cuts(PRETOK_YOUTU, "1|2|\xed\x95\x9c\xec\x9e\xa5|\xe3\x80\x82|\xe6\x88\x91|it's|!/");
    expect_cuts(PRETOK_EXAONE_MOE, "it|'S| one of| | two|  | three|1|2| ./\n|\n|x");
    expect_cuts(PRETOK_AFMOE, "1|234|567|\xc2\xbd"
                              "12| |\xe0\xb9\x80\xe6\x88\x91| world|!\n");
    expect_cuts(PRETOK_SUPERBPE, "All of it, |1|234|567|\n and |12|.|345|.|678|901\xc2\xbd|234| x");
    expect_cuts(PRETOK_QWEN35, "a\xcc\x81|1|2| \xcc\x81x|!\n");
    expect_cuts(PRETOK_DEEPSEEK3, "(hello|,| .|a|123|45|\xe6\x88\x91\xe3\x81\x82| x|\n\n|y");
    expect_cuts(PRETOK_DEEPSEEK_LLM, "x| h|\xc3\xa9|llo|\n| |12| ");
    expect_cuts(PRETOK_DEEPSEEK_CODER, "x| h\xc3\xa9llo|\n| |1|2| |\xe6\x88\x91");
}

/* For any bytes, words follow each other without a gap, and end. */
static void any_bytes_are_cut(void **state)
{
    static const char favourites[] = "' \n\r\tsl1.a\xc2\xa0\xe6\x88\x91";
    struct rng rng;
    uint8_t raw[256];

    rng_init(&rng, 7);
    for (int i = 0; i < 3000; i++) {
        size_t n = 1 + (size_t)rng_below(&rng, sizeof(raw));

        for (size_t k = 0; k < n; k++)
            raw[k] = i % 2 == 0 ? (uint8_t)rng_u64(&rng)
                                : (uint8_t)favourites[rng_below(&rng, sizeof(favourites))];
        for (int rule = 0; rule < PRETOK_N_RULES; rule++) {
            struct pretok_cursor words;

            pretok_begin(&words, (enum pretok)rule, bytes_of(raw, n));
            for (size_t at = 0, end; at < n; at = end) {
                end = pretok_next(&words);
                assert_in_range(end, at + 1, n);
            }
        }
    }
}

static void the_alphabet_is_a_bijection(void **state)
{
    bool is_seen[0x200] = {false};

    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t code = alphabet_code((uint8_t)byte);

        assert_in_range(code, 0x21, 0x143);
        assert_false(is_seen[code]);
        is_seen[code] = true;
        assert_int_equal(alphabet_byte(code), byte);
    }
    for (uint32_t code = 0; code < 0x200; code++)
        assert_int_equal(alphabet_byte(code) >= 0, is_seen[code]);
    assert_int_equal(alphabet_code(' '), 0x120);
    assert_int_equal(alphabet_code(0xad), 0x143);
    assert_int_equal(alphabet_byte(0x2581), -1);
}

static void kimi_cuts(void **state)
{
    static const char *const cases[] = {
        "Hello| World's| it|'x",
        "HTMLParser's|B",
        "we'RE| HTML's",
        "\xe4\xb8\xad\xe6\x96\x87|abc|\xe4\xb8\xad", /* Han is apart from letters */
        " |\xe4\xb8\xad| a",
        "a|.|\xe4\xb8\xad",
        "\xe3\x81\x82\xed\x95\x9c|\xe6\xbc\xa2", /* kana and Hangul are letters */
        "1\xe3\x80\x87\xe3\x80\x87",             /* a zero that is Han continues a number */
        "123|456|7",
        "x|!?/\n|/a",
        "\n\n| a",
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_cuts(PRETOK_KIMI, cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_cuts),
        cmocka_unit_test(kimi_cuts),
        cmocka_unit_test(llama3_cuts),
        cmocka_unit_test(qwen2_cuts_numbers_singly),
        cmocka_unit_test(other_rules),
        cmocka_unit_test(any_bytes_are_cut),
        cmocka_unit_test(the_alphabet_is_a_bijection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
