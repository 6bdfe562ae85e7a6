/* SPDX-License-Identifier: Apache-2.0 */
/* The workers with the highest scores, added in any order. */
#include "tests/unit/check.h"

#include "base/rng.h"
#include "fleet/router/ranking_priv.h"

static void few_workers_are_all_ranked(void **state)
{
    struct router_ranking ranking = {.n = 0};

    (void)state;
    router_ranking_add(&ranking, 7, 1);
    router_ranking_add(&ranking, 2, 0);
    router_ranking_add(&ranking, 5, 9);
    assert_int_equal(ranking.n, 3);
    assert_int_equal(ranking.slots[0], 5);
    assert_int_equal(ranking.slots[1], 7);
    assert_int_equal(ranking.slots[2], 2);
}

static void the_first_of_equal_scores_ranks_higher(void **state)
{
    struct router_ranking ranking = {.n = 0};

    (void)state;
    for (uint32_t slot = 0; slot < 2 * ROUTER_RANKING_MOST; slot++)
        router_ranking_add(&ranking, slot, 3);
    assert_int_equal(ranking.n, ROUTER_RANKING_MOST);
    for (uint32_t i = 0; i < ROUTER_RANKING_MOST; i++)
        assert_int_equal(ranking.slots[i], i);
}

/* Against a search for the best that is left. */
static void the_highest_scores_remain(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (int round = 0; round < 2000; round++) {
        uint64_t scores[12];
        uint32_t n = (uint32_t)rng_below(&rng, 13), taken = 0;
        struct router_ranking ranking = {.n = 0};

        for (uint32_t slot = 0; slot < n; slot++) {
            scores[slot] = rng_below(&rng, 8);
            router_ranking_add(&ranking, slot, scores[slot]);
        }
        assert_int_equal(ranking.n, n < ROUTER_RANKING_MOST ? n : ROUTER_RANKING_MOST);
        for (uint32_t i = 0; i < ranking.n; i++) {
            uint32_t best = n;

            for (uint32_t slot = 0; slot < n; slot++)
                if ((taken >> slot & 1) == 0 && (best == n || scores[slot] > scores[best]))
                    best = slot;
            assert_int_equal(ranking.slots[i], best);
            taken |= 1u << best;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_workers_are_all_ranked),
        cmocka_unit_test(the_first_of_equal_scores_ranks_higher),
        cmocka_unit_test(the_highest_scores_remain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
