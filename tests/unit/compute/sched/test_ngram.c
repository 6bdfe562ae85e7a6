/* SPDX-License-Identifier: Apache-2.0 */
/* The index of endings compared with a search through the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "compute/sched/ngram_priv.h"

#define TEXT_MAX 3000

static token_id text[TEXT_MAX];

static uint32_t equal_before(uint32_t a, uint32_t b)
{
    uint32_t n = 0;

    while (n < NGRAM_LENGTH_MAX && n < a && text[a - 1 - n] == text[b - 1 - n])
        n++;
    return n;
}

/* Returns the length of the longest earlier match of the ending. */
static uint32_t longest(uint32_t n_tokens)
{
    uint32_t best = 0;

    for (uint32_t at = 1; at < n_tokens; at++) {
        uint32_t n = equal_before(at, n_tokens);

        best = n > best ? n : best;
    }
    return best;
}

static void a_match_exists_in_the_text(void **state)
{
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t n_words = 1 + (uint32_t)rng_below(&rng, round % 2 ? 5 : 300);
        uint32_t n_tokens = 1 + (uint32_t)rng_below(&rng, 400);
        struct ngram index;

        assert_int_equal(ngram_init(&index, n_tokens), 0);
        for (uint32_t i = 0; i < n_tokens; i++) {
            uint32_t length = 0, at;

            text[i] = (token_id)rng_below(&rng, n_words) * 977;
            if (rng_below(&rng, 3) == 0)
                continue; /* the index has not caught up yet */
            assert_true(ngram_extend(&index, text, i + 1));
            at = ngram_find(&index, text, i + 1, &length);
            assert_true(at < i + 1);
            if (at > 0) {
                assert_in_range(length, 2, NGRAM_LENGTH_MAX);
                assert_int_equal(equal_before(at, i + 1), length);
            }
            if (i < 12) /* few enough positions to compare all */
                assert_int_equal(at > 0 ? length : 0, longest(i + 1) >= 2 ? longest(i + 1) : 0);
        }
        ngram_fini(&index);
    }
}

static void of_equal_finds_the_latest_counts(void **state)
{
    static const token_id TEXT[] = {1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3};
    struct ngram index;
    uint32_t length;

    assert_int_equal(ngram_init(&index, 11), 0);
    assert_true(ngram_extend(&index, TEXT, 11));
    assert_int_equal(ngram_find(&index, TEXT, 11, &length), 7);
    assert_int_equal(length, 3);
    ngram_fini(&index);
}

static void long_texts_are_taken_in_by_and_by(void **state)
{
    static token_id tokens[100000];
    struct ngram index;
    uint32_t n_calls = 1, length;

    for (uint32_t i = 0; i < 100000; i++)
        tokens[i] = i % 50000;
    assert_int_equal(ngram_init(&index, 100000), 0);
    for (; !ngram_extend(&index, tokens, 100000); n_calls++)
        assert_true(n_calls < 100);
    assert_true(n_calls > 2);
    assert_int_equal(ngram_find(&index, tokens, 100000, &length), 50000);
    assert_int_equal(length, NGRAM_LENGTH_MAX);
    ngram_fini(&index);
}

static void an_empty_index_finds_nothing(void **state)
{
    struct ngram index = {0};
    token_id tokens[4] = {1, 1, 1, 1};
    uint32_t length;

    assert_false(ngram_extend(&index, tokens, 4));
    assert_int_equal(ngram_find(&index, tokens, 4, &length), 0);
    ngram_fini(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_match_exists_in_the_text),
        cmocka_unit_test(of_equal_finds_the_latest_counts),
        cmocka_unit_test(long_texts_are_taken_in_by_and_by),
        cmocka_unit_test(an_empty_index_finds_nothing),
    };

    return cmocka_run_group_tests_name("n-grams", tests, NULL, NULL);
}
