/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated block tables against a list of single blocks: the same blocks, the same order of eviction. */
#include "fleet/sim/lru_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { MOST = 400 };

struct model_block {
    uint64_t id, used_ns;
};

struct model { /* oldest first: plain, shared */
    struct model_block list[2][MOST];
    uint32_t n[2];
};

static bool model_take(struct model *model, uint64_t id, bool *is_shared_out, uint64_t *used_ns_out)
{
    for (uint32_t list = 0; list < 2; list++)
        for (uint32_t i = 0; i < model->n[list]; i++) {
            if (model->list[list][i].id != id)
                continue;
            *is_shared_out = list;
            *used_ns_out = model->list[list][i].used_ns;
            model->n[list]--;
            memmove(&model->list[list][i], &model->list[list][i + 1],
                    (model->n[list] - i) * sizeof(model->list[list][i]));
            return true;
        }
    return false;
}

static void model_append(struct model *model, uint64_t id, bool is_shared, uint64_t used_ns)
{
    model->list[is_shared][model->n[is_shared]++] = (struct model_block){id, used_ns};
}

static bool model_has(const struct model *model, uint64_t id)
{
    for (uint32_t list = 0; list < 2; list++)
        for (uint32_t i = 0; i < model->n[list]; i++)
            if (model->list[list][i].id == id)
                return true;
    return false;
}

static uint64_t model_evict(struct model *model, uint64_t now_ns)
{
    const struct model_block *plain = model->list[0], *shared = model->list[1];
    bool is_shared;
    uint64_t used_ns, id = plain->id;

    if (model->n[1] > 0 && (model->n[0] == 0 || 2 * (now_ns - shared->used_ns) >= now_ns - plain->used_ns))
        id = shared->id;
    assert_true(model_take(model, id, &is_shared, &used_ns));
    return id;
}

/* ---- calls of both ---- */

static void lru_and_model_touch(struct sim_lru *lru, struct model *model, uint64_t first, uint32_t n,
                                uint64_t now_ns)
{
    int n_there = 0;

    for (uint32_t i = n; i-- > 0;) {
        bool is_shared = false;
        uint64_t used_ns;

        n_there += model_take(model, first + i, &is_shared, &used_ns);
        model_append(model, first + i, is_shared, now_ns);
    }
    assert_int_equal(sim_lru_touch(lru, first, n, now_ns), n_there);
}

static void lru_and_model_share(struct sim_lru *lru, struct model *model, uint64_t first, uint32_t n,
                                bool is_shared)
{
    for (uint32_t i = 0; i < n; i++) {
        bool was_shared;
        uint64_t used_ns;
        struct model before = *model;

        if (!model_take(model, first + i, &was_shared, &used_ns))
            continue;
        if (was_shared == is_shared)
            *model = before;
        else
            model_append(model, first + i, is_shared, used_ns);
    }
    assert_int_equal(sim_lru_set_replicated(lru, first, n, is_shared), 0);
}

static void lru_and_model_remove(struct sim_lru *lru, struct model *model, uint64_t first, uint32_t n)
{
    int n_there = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool was_shared;
        uint64_t used_ns;

        n_there += model_take(model, first + i, &was_shared, &used_ns);
    }
    assert_int_equal(sim_lru_remove(lru, first, n), n_there);
}

static void lru_and_model_evict(struct sim_lru *lru, struct model *model, uint32_t n, uint64_t now_ns)
{
    uint64_t ids[MOST];
    uint32_t all = model->n[0] + model->n[1], n_evicted = sim_lru_evict(lru, now_ns, ids, n);

    assert_int_equal(n_evicted, n < all ? n : all);
    for (uint32_t i = 0; i < n_evicted; i++)
        assert_int_equal(ids[i], model_evict(model, now_ns));
}

static void lru_and_model_look(const struct sim_lru *lru, const struct model *model, uint64_t first,
                               uint32_t n)
{
    uint32_t n_leading = 0;

    while (n_leading < n && model_has(model, first + n_leading))
        n_leading++;
    assert_int_equal(sim_lru_leading(lru, first, n), n_leading);
    assert_int_equal(lru->n, model->n[0] + model->n[1]);
}

/* Ids lie in a few groups, the last of which ends at the largest number. */
static void a_table_of_runs_is_a_list_of_blocks(void **state)
{
    struct model *model = calloc(1, sizeof(*model));
    struct sim_lru lru = {0};
    uint64_t now_ns = 100;
    struct rng rng;

    rng_init(&rng, 5);
    for (uint32_t i = 0; i < 60000; i++) {
        uint64_t group = rng_below(&rng, 9) * SIM_LRU_GROUP;
        uint32_t from = (uint32_t)rng_below(&rng, SIM_LRU_GROUP);
        uint32_t n = 1 + (uint32_t)rng_below(&rng, SIM_LRU_GROUP - from);
        uint64_t first = group - SIM_LRU_GROUP + from;
        uint64_t kind = rng_below(&rng, 8);

        if (rng_below(&rng, 3) == 0)
            n = 1;
        now_ns += rng_below(&rng, 3);
        if (kind < 3)
            lru_and_model_touch(&lru, model, first, n, now_ns);
        else if (kind < 5)
            lru_and_model_share(&lru, model, first, n, rng_below(&rng, 2) == 0);
        else if (kind == 5)
            lru_and_model_remove(&lru, model, first, n);
        else if (kind == 6)
            lru_and_model_evict(&lru, model, n / 2, now_ns);
        lru_and_model_look(&lru, model, first, n);
    }
    lru_and_model_evict(&lru, model, MOST, now_ns);
    assert_int_equal(lru.n, 0);
    assert_int_equal(lru.n_runs, 0);
    sim_lru_fini(&lru);
    free(model);
}

/* The oldest plain block goes, or a shared one that was unused for half as long. */
static void eviction_takes_what_others_have_first(void **state)
{
    struct sim_lru lru = {0};
    uint64_t id[2];

    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(sim_lru_touch(&lru, 1000 + i, 1, i * 10), 0);
    assert_int_equal(sim_lru_touch(&lru, 1000, 1, 60), 1);
    assert_int_equal(sim_lru_set_replicated(&lru, 1003, 1, true), 0);
    assert_int_equal(sim_lru_evict(&lru, 60, id, 2), 2);
    assert_int_equal(id[0], 1003); /* 30 old and shared, 1001 is 50 old */
    assert_int_equal(id[1], 1001);
    assert_int_equal(sim_lru_set_replicated(&lru, 1005, 1, true), 0);
    assert_int_equal(sim_lru_evict(&lru, 60, id, 1), 1);
    assert_int_equal(id[0], 1002);
    assert_int_equal(sim_lru_set_replicated(&lru, 1005, 1, false), 0);
    assert_int_equal(sim_lru_leading(&lru, 1005, 1), 1);
    assert_int_equal(sim_lru_leading(&lru, 1001, 1), 0);
    assert_int_equal(lru.n, 3);
    sim_lru_fini(&lru);
}

/* What a chain adds and what it finds again takes one run for each group of ids. */
static void a_chain_is_few_runs(void **state)
{
    struct sim_lru lru = {0};

    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(sim_lru_touch(&lru, i * SIM_LRU_GROUP, SIM_LRU_GROUP, i), 0);
    assert_int_equal(lru.n, 64 * SIM_LRU_GROUP);
    assert_int_equal(lru.n_runs, 64);
    assert_int_equal(sim_lru_touch(&lru, 0, 8, 100), 8); /* a prefix: the rest keeps its place */
    assert_int_equal(lru.n_runs, 65);
    for (uint64_t i = 8; i-- > 0;) /* one message for each block */
        assert_int_equal(sim_lru_set_replicated(&lru, i, 1, true), 0);
    assert_int_equal(lru.n_runs, 65);
    sim_lru_fini(&lru);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_of_runs_is_a_list_of_blocks),
        cmocka_unit_test(eviction_takes_what_others_have_first),
        cmocka_unit_test(a_chain_is_few_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
