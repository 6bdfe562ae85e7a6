/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming detokeniser: whole characters only,
 * and always the same text, however the bytes are divided. */
#include "tests/unit/text/token/vocabularies.h"

#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FFFD "\xef\xbf\xbd"

/* Tokens 0..255 are the bytes, then some of several bytes, then specials. */
static struct tokenizer *byte_tokenizer(void)
{
    static const struct token_spec extra[] = {{"\xc3\xb0\xc5\x81", 1, 0}, /* F0 9F in GPT-2's alphabet */
                                              {"<|im_end|>", 3, 0},
                                              {"<unk>", 2, 0},
                                              {NULL, 0, 0}};
    struct buf image = {0};

    byte_level_image("gpt-2", NULL, extra, NULL, &image);
    return tokenizer_of_image(&image);
}

static void expect_bytes(const struct tokenizer *tokenizer, const char *raw, const char *expected)
{
    struct detok detok;
    struct buf text = {0};

    detok_init(&detok, tokenizer, false);
    for (; *raw != '\0'; raw++) {
        assert_int_equal(detok_push(&detok, (uint8_t)*raw, &text), 0);
        assert_int_equal(utf8_valid_prefix(buf_view(&text)), text.len_bytes);
    }
    detok_finish(&detok);
    assert_true(bytes_is(buf_view(&text), expected));
    buf_fini(&text);
}

static void characters_come_whole(void **state)
{
    struct tokenizer *tokenizer = byte_tokenizer();
    struct detok detok;
    struct buf text = {0};

    detok_init(&detok, tokenizer, false);
    assert_int_equal(detok_push(&detok, 256, &text), 0); /* F0 9F */
    assert_int_equal(text.len_bytes, 0);
    assert_int_equal(detok_push(&detok, 0x98, &text), 0);
    assert_int_equal(text.len_bytes, 0);
    assert_int_equal(detok_push(&detok, 0x81, &text), 0);
    assert_true(bytes_is(buf_view(&text), "\xf0\x9f\x98\x81"));
    buf_fini(&text);
    tokenizer_unref(tokenizer);
}

/* One U+FFFD for the bytes of a broken character, as Unicode recommends. */
static void broken_characters_are_replaced(void **state)
{
    struct tokenizer *tokenizer = byte_tokenizer();

    expect_bytes(tokenizer,
                 "a\xff"
                 "b",
                 "a" FFFD "b");
    expect_bytes(tokenizer,
                 "\xf0\x9f"
                 "A",
                 FFFD "A");
    expect_bytes(tokenizer, "\xf0\x9f\x98\xf0\x9f\x98\x81", FFFD "\xf0\x9f\x98\x81");
    expect_bytes(tokenizer, "\x80\x80", FFFD FFFD);
    expect_bytes(tokenizer, "\xc0\xaf", FFFD FFFD);
    expect_bytes(tokenizer, "\xe0\x80\xaf", FFFD FFFD FFFD); /* overlong */
    expect_bytes(tokenizer, "\xed\xa0\x80", FFFD FFFD FFFD); /* a surrogate */
    expect_bytes(tokenizer, "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD);
    expect_bytes(tokenizer, "\xc3\xc3\xa9", FFFD "\xc3\xa9");
    expect_bytes(tokenizer, "ab\xe2\x82", "ab"); /* incomplete at the end: dropped */
    tokenizer_unref(tokenizer);
}

static void control_tokens_give_nothing(void **state)
{
    struct tokenizer *tokenizer = byte_tokenizer();
    struct detok detok;
    struct buf text = {0};

    detok_init(&detok, tokenizer, false);
    assert_int_equal(detok_push(&detok, 'a', &text), 0);
    assert_int_equal(detok_push(&detok, tokenizer_eos(tokenizer), &text), 0);
    assert_int_equal(detok_push(&detok, 258, &text), 0);
    assert_true(bytes_is(buf_view(&text), "a" FFFD));
    assert_int_equal(detok_push(&detok, 259, &text), E_RANGE);
    assert_int_equal(detok_push(&detok, TOKEN_NONE, &text), E_RANGE);
    buf_fini(&text);
    tokenizer_unref(tokenizer);
}

/* A control token whose spelling the caller writes stands behind the bytes that came before it. */
static void a_mark_breaks_a_character(void **state)
{
    struct tokenizer *tokenizer = byte_tokenizer();
    struct detok detok;
    struct buf text = {0};

    (void)state;
    detok_init(&detok, tokenizer, false);
    assert_int_equal(detok_push(&detok, 256, &text), 0); /* F0 9F */
    detok_break(&detok, &text);
    buf_append_str(&text, "<|im_end|>");
    detok_break(&detok, &text);
    assert_int_equal(detok_push(&detok, 'a', &text), 0);
    assert_true(bytes_is(buf_view(&text), FFFD "<|im_end|>a"));
    buf_fini(&text);
    tokenizer_unref(tokenizer);
}

/* A vocabulary of every string of one or two bytes from a few, so that a text can be cut in many ways. */
static void cuts_do_not_matter(void **state)
{
    static const uint8_t bytes[] = {'a', 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0xff};
    static char spellings[100][8];
    struct token_spec extra[101] = {{NULL, 0, 0}};
    struct buf image = {0};
    struct rng rng;

    for (int i = 0; i < 100; i++) {
        size_t n = 0;
        uint8_t pair[] = {bytes[i / 10], bytes[i % 10]};
        for (int k = 0; k < 2; k++) /* GPT-2's alphabet: these bytes map to themselves, or to U+0100 + ... */
            n += utf8_put(pair[k] == 0x82   ? 0x124
                          : pair[k] == 0x9f ? 0x141
                          : pair[k] == 0x98 ? 0x13a
                                            : pair[k],
                          (uint8_t *)spellings[i] + n);
        extra[i] = (struct token_spec){spellings[i], 1, 0};
    }
    byte_level_image("gpt-2", NULL, extra, NULL, &image);
    struct tokenizer *tokenizer = tokenizer_of_image(&image);

    rng_init(&rng, 9);
    for (int i = 0; i < 1000; i++) {
        size_t n = 2 + (size_t)rng_below(&rng, 30);
        size_t digits[32];
        struct buf singly = {0}, paired = {0};
        struct detok one, two;

        for (size_t k = 0; k < n; k++)
            digits[k] = (size_t)rng_below(&rng, 10);
        detok_init(&one, tokenizer, false);
        detok_init(&two, tokenizer, false);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(detok_push(&one, bytes[digits[k]], &singly), 0);
        for (size_t k = 0; k < n;) {
            bool is_pair = k + 1 < n && rng_below(&rng, 2) == 0;
            token_id id = is_pair ? (token_id)(256 + digits[k] * 10 + digits[k + 1]) : bytes[digits[k]];

            assert_int_equal(detok_push(&two, id, &paired), 0);
            assert_int_equal(utf8_valid_prefix(buf_view(&paired)), paired.len_bytes);
            k += is_pair ? 2 : 1;
        }
        assert_true(bytes_equal(buf_view(&singly), buf_view(&paired)));
        assert_int_equal(one.n_held, two.n_held);
        buf_fini(&paired);
        buf_fini(&singly);
    }
    tokenizer_unref(tokenizer);
}

static void the_first_blank_goes_once(void **state)
{
    static const struct token_spec extra[] = {{"\xe2\x96\x81", 1, -1},
                                              {"\xe2\x96\x81"
                                               "a",
                                               1, -2},
                                              {"a", 1, -3},
                                              {NULL, 0, 0}};
    struct buf image = {0}, text = {0};
    struct detok detok;

    sentencepiece_image(extra, true, &image);
    struct tokenizer *tokenizer = tokenizer_of_image(&image);
    token_id blank_a = tokenizer_find(tokenizer, bytes_str("\xe2\x96\x81"
                                                           "a"));

    detok_init(&detok, tokenizer, false);
    detok_push(&detok, tokenizer_bos(tokenizer), &text);
    detok_push(&detok, blank_a, &text);
    detok_push(&detok, blank_a, &text);
    assert_string_equal((char *)text.data, "a a");
    buf_clear(&text);
    detok_init(&detok, tokenizer, true);
    detok_push(&detok, blank_a, &text);
    assert_string_equal((char *)text.data, " a");
    buf_clear(&text);
    detok_init(&detok, tokenizer, false);
    detok_push(&detok, tokenizer_find(tokenizer, bytes_str("<0x0A>")), &text);
    detok_push(&detok, blank_a, &text);
    assert_string_equal((char *)text.data, "\n a");
    buf_fini(&text);
    tokenizer_unref(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_come_whole),       cmocka_unit_test(broken_characters_are_replaced),
        cmocka_unit_test(control_tokens_give_nothing), cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(the_first_blank_goes_once),   cmocka_unit_test(a_mark_breaks_a_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
