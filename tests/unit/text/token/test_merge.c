/* SPDX-License-Identifier: Apache-2.0 */
/* Merging compared with its definition: the pair of the lowest rank, among equal ranks the leftmost, until
 * there is none, found by looking at all pairs each time.  Words are shorter and longer than the lengths at
 * which merge.c changes its method.  Tables are like trained ones, and like ones that only a hand-made file
 * has. */
#include "text/token/merge_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"

enum { LETTERS = 12, MOST = 6000, SYMBOLS = 400, LONG = 200000, MANY_PAIRS = 30000 };

enum ranks {
    RISING,  /* a token is made before others are made of it */
    TIED,    /* the same, but several have each rank */
    ANY,     /* no order at all */
    REPEATED /* few ranks, so that many pairs have the same */
};

static void make_pairs(struct rng *rng, enum ranks ranks, struct pair_table *pairs)
{
    assert_int_equal(pairs_init(pairs), 0);
    for (uint32_t i = 0; i + LETTERS < SYMBOLS; i++) {
        uint32_t below = LETTERS + i, rank = i;

        if (ranks == ANY)
            rank = (uint32_t)rng_below(rng, 5 * SYMBOLS);
        else if (ranks == TIED)
            rank = i / 100;
        else if (ranks == REPEATED)
            rank = (uint32_t)rng_below(rng, 8);
        /* Letters more often than other bytes, so that pairs occur. */
        uint32_t left = (uint32_t)rng_below(rng, rng_below(rng, 2) ? LETTERS : below);
        uint32_t right = (uint32_t)rng_below(rng, rng_below(rng, 2) ? LETTERS : below);
        assert_int_equal(pairs_add(pairs, left, right, (struct pair){.rank = rank, .merged = below}), 0);
    }
}

/* Merges symbols in place.  Returns how many are left. */
static size_t merge_plainly(const struct pair_table *pairs, uint32_t *symbols, size_t n)
{
    for (;;) {
        struct pair best = {.rank = PAIR_NONE};
        size_t best_at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            struct pair pair = pairs_get(pairs, symbols[i], symbols[i + 1]);

            if (pair.rank < best.rank) {
                best = pair;
                best_at = i;
            }
        }
        if (best.rank == PAIR_NONE)
            return n;
        symbols[best_at] = best.merged;
        for (size_t i = best_at + 1; i + 1 < n; i++)
            symbols[i] = symbols[i + 1];
        n--;
    }
}

static void check_word(struct rng *rng, const struct pair_table *pairs, size_t n, struct merge_work *work)
{
    static uint32_t symbols[MOST];
    uint32_t n_letters = 1 + (uint32_t)rng_below(rng, LETTERS), at = 0;

    merge_work_clear(work);
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint32_t)rng_below(rng, n_letters);
        assert_int_equal(merge_work_push(work, symbols[i]), 0);
    }
    merge_work_run(work, pairs);
    n = merge_plainly(pairs, symbols, n);
    for (size_t i = 0; i < n; i++, at = work->symbols[at].next) {
        assert_int_not_equal(at, UINT32_MAX);
        assert_int_equal(work->symbols[at].symbol, symbols[i]);
    }
    assert_int_equal(at, UINT32_MAX);
}

static void check_ranks(enum ranks ranks)
{
    static const size_t lengths[] = {1, 2, 24, 25, 100, 4095, 4096, MOST};
    struct merge_work work = {0};
    struct rng rng;

    rng_init(&rng, 11 + ranks);
    for (int round = 0; round < 8; round++) {
        struct pair_table pairs;

        make_pairs(&rng, ranks, &pairs);
        check_word(&rng, &pairs, lengths[round], &work);
        check_word(&rng, &pairs, 1 + rng_below(&rng, 300), &work);
        pairs_fini(&pairs);
    }
    merge_work_fini(&work);
}

static void is_its_definition(void **state)
{
    (void)state;
    check_ranks(RISING);
    check_ranks(TIED);
}

static void is_its_definition_for_any_ranks(void **state)
{
    (void)state;
    check_ranks(ANY);
    check_ranks(REPEATED);
}

/* Returns an early token more often than a late one, as after training, so that many pairs occur. */
static uint32_t early(struct rng *rng, uint32_t n)
{
    for (int i = 0; i < 3; i++)
        n = 1 + (uint32_t)rng_below(rng, n);
    return n - 1;
}

static void train(struct rng *rng, struct pair_table *pairs)
{
    assert_int_equal(pairs_init(pairs), 0);
    for (uint32_t i = 0; i < MANY_PAIRS; i++) {
        uint32_t known = LETTERS + i, left = early(rng, known), right = early(rng, known);

        assert_int_equal(pairs_add(pairs, left, right, (struct pair){.rank = i, .merged = known}), 0);
    }
}

static void fill(struct rng *rng, const struct pair_table *pairs, struct merge_work *work)
{
    for (uint32_t i = 0; i < LONG; i++)
        assert_int_equal(merge_work_push(work, (uint32_t)rng_below(rng, LETTERS)), 0);
    for (uint32_t i = 0; i < LONG; i++) {
        struct merge_symbol *symbol = &work->symbols[i];

        symbol->prev = i == 0 ? MERGE_NOWHERE : i - 1;
        symbol->next = i + 1 == LONG ? MERGE_NOWHERE : i + 1;
        symbol->pair = i + 1 == LONG ? (struct pair){.rank = PAIR_NONE}
                                     : pairs_get(pairs, symbol->symbol, work->symbols[i + 1].symbol);
    }
}

/* Words too long for the definition: many ranks, rings of one block and of hundreds, reused blocks. */
static void both_ways_agree_on_long_words(void **state)
{
    struct merge_work by_heap = {0}, by_rank = {0};
    struct pair_table pairs;
    struct rng rng, same;

    (void)state;
    rng_init(&rng, 5);
    train(&rng, &pairs);
    same = rng;
    fill(&rng, &pairs, &by_heap);
    fill(&same, &pairs, &by_rank);
    merge_by_heap(&by_heap, &pairs);
    assert_true(merge_by_rank(&by_rank, &pairs));
    uint32_t n = 0;
    for (uint32_t at = 0; at != MERGE_NOWHERE; at = by_heap.symbols[at].next, n++) {
        assert_int_equal(by_rank.symbols[at].symbol, by_heap.symbols[at].symbol);
        assert_int_equal(by_rank.symbols[at].next, by_heap.symbols[at].next);
    }
    assert_true(n < LONG * 3 / 4);
    pairs_fini(&pairs);
    merge_work_fini(&by_heap);
    merge_work_fini(&by_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_its_definition),
        cmocka_unit_test(is_its_definition_for_any_ranks),
        cmocka_unit_test(both_ways_agree_on_long_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
