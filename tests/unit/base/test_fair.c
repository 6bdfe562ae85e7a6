/* SPDX-License-Identifier: Apache-2.0 */
/* The fair queue: shares follow weights, tenants gain nothing by idleness or by leaving, waiting and memory
 * are bounded.  A queue that searches exhaustively makes the same decisions. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fair.h"
#include "base/rng.h"

enum { MAX_ITEMS = 4096, MAX_DEBTORS = 64 };

static struct fair *fair;
static struct fair_item items[MAX_ITEMS];
static uint64_t next_order;

static int setup(void **state)
{
    next_order = 0;
    for (uint32_t i = 0; i < MAX_ITEMS; i++)
        fair_item_init(&items[i]);
    return fair_new(MAX_DEBTORS, &fair);
}

static int teardown(void **state)
{
    for (uint32_t i = 0; i < MAX_ITEMS; i++) {
        struct fair_flow *flow = items[i].flow;

        fair_leave(fair, &items[i]);
        if (flow != NULL)
            fair_drop(fair, flow);
    }
    fair_free(fair);
    return 0;
}

static void add(uint32_t at, uint64_t tenant, uint32_t weight)
{
    struct fair_flow *flow = fair_hold(fair, tenant);

    assert_non_null(flow);
    fair_wait(fair, flow, &items[at], next_order++, weight);
}

static void serve(struct fair_item *item, uint64_t n_tokens)
{
    struct fair_flow *flow = item->flow;
    uint32_t weight = item->weight;

    fair_leave(fair, item);
    fair_charge(fair, flow, n_tokens, weight);
    fair_drop(fair, flow);
}

static uint32_t at_of(const struct fair_item *item)
{
    return (uint32_t)(item - items);
}

static uint32_t serve_first(uint64_t n_tokens)
{
    struct fair_item *item = fair_first(fair);

    assert_non_null(item);
    serve(item, n_tokens);
    return at_of(item);
}

/* ---- shares ---- */

static void one_tenant_is_served_in_order(void **state)
{
    for (uint32_t i = 0; i < 10; i++)
        add(i, 7, 1);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(serve_first(100 * i), i);
    assert_null(fair_first(fair));
    assert_int_equal(fair_n_known(fair), 0);
}

static void a_new_tenant_is_next_during_a_flood(void **state)
{
    for (uint32_t i = 0; i < 200; i++)
        add(i, 1, 1);
    for (uint32_t i = 0; i < 50; i++)
        serve_first(900);
    for (uint32_t i = 0; i < 6; i++) {
        add(1000 + i, 2, 1);
        assert_int_equal(serve_first(20), 1000 + i);
        serve_first(900);
    }
}

/* While both tenants wait, their served tokens follow the weights, up to one request each. */
static void shares_are_as_weights(void **state)
{
    uint64_t served[3] = {0};
    uint32_t n_a = 1000, n_b = 1000;

    for (uint32_t i = 0; i < n_a; i++)
        add(i, 1, 1);
    for (uint32_t i = 0; i < n_b; i++)
        add(n_a + i, 2, 3);
    for (uint32_t i = 0; i < 500; i++) {
        struct fair_item *item = fair_first(fair);
        uint64_t n = at_of(item) < n_a ? 700 : 100 + i;

        served[at_of(item) < n_a ? 1 : 2] += n;
        serve(item, n);
        assert_true(3 * served[1] <= served[2] + 3 * 700 + 700);
        assert_true(served[2] <= 3 * served[1] + 3 * 700 + 700);
    }
}

static void a_weight_out_of_bounds_is_cut(void **state)
{
    add(0, 1, 0);
    add(1, 2, UINT32_MAX);
    assert_int_equal(items[0].weight, 1);
    assert_int_equal(items[1].weight, FAIR_MAX_WEIGHT);
}

/* After an hour alone, a tenant has no debt when another one arrives, and the other one has no credit. */
static void idleness_gains_nothing(void **state)
{
    uint64_t served[3] = {0};

    add(1000, 2, 1);
    serve_first(1);
    for (uint32_t i = 0; i < 500; i++)
        add(i, 1, 1);
    for (uint32_t i = 0; i < 300; i++)
        serve_first(1000);
    for (uint32_t i = 0; i < 100; i++)
        add(1001 + i, 2, 1);
    for (uint32_t i = 0; i < 60; i++)
        served[serve_first(1000) < 1000 ? 1 : 2]++;
    assert_in_range(served[1], 29, 31);
}

/* With a credit, a tenant that is known all the time gains that much, and no more. */
static void a_credit_bounds_what_idleness_gains(void **state)
{
    struct fair_flow *known = fair_hold(fair, 2);
    uint64_t served[3] = {0};

    fair_set_credit(fair, 5000);
    add(1000, 2, 1);
    serve_first(1);
    for (uint32_t i = 0; i < 500; i++)
        add(i, 1, 1);
    for (uint32_t i = 0; i < 300; i++)
        serve_first(1000);
    assert_int_equal(fair_credit(fair, known), 5000);
    for (uint32_t i = 0; i < 100; i++)
        add(1001 + i, 2, 1);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(serve_first(1000) > 1000);
    assert_in_range(fair_credit(fair, known), 0, 1000);
    for (uint32_t i = 0; i < 60; i++)
        served[serve_first(1000) < 1000 ? 1 : 2]++;
    assert_in_range(served[1], 29, 31);
    fair_drop(fair, known);
}

/* A tenant that leaves after a large request still has the debt when it returns. */
static void a_debt_is_kept(void **state)
{
    uint64_t n_before = 0;

    for (uint32_t i = 0; i < 100; i++)
        add(i, 1, 1);
    add(1000, 2, 1);
    while (fair_item_waits(&items[1000]))
        serve_first(at_of(fair_first(fair)) == 1000 ? 5000 : 100);
    assert_int_equal(fair_n_known(fair), 2);
    add(1001, 2, 1);
    while (fair_item_waits(&items[1001])) {
        n_before += 100;
        serve_first(100);
    }
    assert_in_range(n_before, 4900, 5200);
}

static void charges_without_others_are_no_debt(void **state)
{
    struct fair_flow *flow = fair_hold(fair, 1);

    fair_charge(fair, flow, 1000000, 1);
    assert_int_equal(fair_debt(fair, flow), 0);
    fair_drop(fair, flow);
    assert_int_equal(fair_n_known(fair), 0);
}

/* ---- starvation and memory ---- */

/* Many tenants with small requests come and go.  Each passes the large request at most once. */
static void a_large_request_is_passed_by_its_size(void **state)
{
    struct rng dice;
    uint64_t n_passed = 0;
    uint32_t at = 1;

    rng_init(&dice, 1);
    add(0, 1, 1);
    add(4000, 1000000, 1); /* competition, so that the large tenant's tokens become a debt */
    serve(&items[0], 3000);
    add(0, 1, 1);
    while (fair_item_waits(&items[0])) {
        struct fair_item *item;

        while (fair_n_waiting(fair) < 20) {
            at = at % 3999 + 1;
            if (!fair_item_waits(&items[at]))
                add(at, 2 + rng_below(&dice, 10), 1);
        }
        item = fair_first(fair);
        n_passed += at_of(item) != 0 ? 50 : 0;
        serve(item, 50);
        assert_true(n_passed <= 11 * (3000 + 50));
    }
}

static void memory_is_bounded_by_who_waits(void **state)
{
    for (uint32_t i = 0; i < 100; i++)
        add(i, 1, 1);
    for (uint64_t tenant = 2; tenant < 20000; tenant++) {
        add(4000, tenant, 1);
        while (fair_item_waits(&items[4000]))
            serve_first(at_of(fair_first(fair)) == 4000 ? 1 + tenant % 5000 : 0);
        assert_true(fair_n_known(fair) <= 1 + MAX_DEBTORS);
    }
}

/* ---- the line ---- */

static void a_walk_sees_each_once_and_changes_nothing(void **state)
{
    bool seen[300] = {false};
    uint32_t n = 0, first;

    for (uint32_t i = 0; i < 300; i++)
        add(i, i % 17, 1 + i % 3);
    first = at_of(fair_first(fair));
    for (struct fair_item *item = fair_first(fair); item != NULL; item = fair_next(fair, item), n++) {
        assert_false(seen[at_of(item)]);
        seen[at_of(item)] = true;
    }
    fair_rewind(fair);
    assert_int_equal(n, 300);
    n = 0;
    for (struct fair_item *item = fair_first(fair); item != NULL; item = fair_skip(fair, item))
        n++;
    assert_int_equal(n, 17);
    assert_int_equal(at_of(fair_first(fair)), first);
}

static void an_older_one_comes_before_the_younger(void **state)
{
    struct fair_flow *flow;

    add(0, 1, 1);
    add(1, 1, 1);
    add(2, 1, 1);
    flow = items[1].flow;
    fair_leave(fair, &items[0]);
    fair_leave(fair, &items[1]);
    fair_wait(fair, flow, &items[1], 1, 1);
    fair_wait(fair, flow, &items[0], 0, 1);
    assert_int_equal(at_of(fair_first(fair)), 0);
    assert_int_equal(at_of(fair_next(fair, &items[0])), 1);
    fair_rewind(fair);
}

static void the_heaviest_gives_its_newest(void **state)
{
    for (uint32_t i = 0; i < 9; i++)
        add(i, 1, 1);
    for (uint32_t i = 0; i < 12; i++)
        add(100 + i, 2, 2);
    add(200, 3, 1);
    assert_int_equal(at_of(fair_heaviest(fair)), 8);
    for (uint32_t i = 0; i < 8; i++)
        add(112 + i, 2, 2);
    assert_int_equal(at_of(fair_heaviest(fair)), 119);
}

/* ---- beside a queue that tries everything ---- */

enum { N_TENANTS = 12 };

struct oracle {
    double start[N_TENANTS], time;
    uint64_t arrived[N_TENANTS], n_arrivals;
    uint32_t n[N_TENANTS];
};

static int oracle_first(const struct oracle *oracle)
{
    int best = -1;

    for (int i = 0; i < N_TENANTS; i++)
        if (oracle->n[i] > 0 &&
            (best < 0 || oracle->start[i] < oracle->start[best] ||
             (oracle->start[i] == oracle->start[best] && oracle->arrived[i] < oracle->arrived[best])))
            best = i;
    return best;
}

static void oracle_charge(struct oracle *oracle, int tenant, double n_tokens, uint32_t weight)
{
    int next = oracle_first(oracle);

    if (next >= 0 && oracle->start[next] > oracle->time)
        oracle->time = oracle->start[next];
    if (oracle->n[tenant] == 0 && oracle->start[tenant] < oracle->time)
        oracle->start[tenant] = oracle->time;
    oracle->start[tenant] += n_tokens / weight;
    if (next < 0 && oracle->start[tenant] > oracle->time)
        oracle->time = oracle->start[tenant];
}

static void decisions_are_those_of_a_plain_search(void **state)
{
    struct rng dice;
    struct oracle oracle = {.time = 0};
    uint64_t tenants[MAX_ITEMS] = {0};

    rng_init(&dice, 7);
    for (uint32_t step = 0; step < 20000; step++) {
        uint32_t at = (uint32_t)rng_below(&dice, 400);
        int next = oracle_first(&oracle);
        int tenant = (int)(at % N_TENANTS);
        uint32_t weight = 1u << tenant % 4;

        assert_int_equal(fair_n_tenants(fair) > 0, next >= 0);
        if (next >= 0)
            assert_int_equal(tenants[at_of(fair_first(fair))], next);
        if (rng_below(&dice, 2) == 0 && !fair_item_waits(&items[at])) {
            if (oracle.n[tenant]++ == 0) {
                oracle.arrived[tenant] = oracle.n_arrivals++;
                if (oracle.start[tenant] < oracle.time)
                    oracle.start[tenant] = oracle.time;
            }
            tenants[at] = (uint64_t)tenant;
            add(at, (uint64_t)tenant, weight);
        } else if (fair_item_waits(&items[at])) { /* withdraws its request */
            struct fair_flow *flow = items[at].flow;

            oracle.n[tenant]--;
            fair_leave(fair, &items[at]);
            fair_drop(fair, flow);
        } else if (next >= 0) {
            uint64_t n_tokens = 8 * (1 + rng_below(&dice, 1000));
            struct fair_item *item = fair_first(fair);

            weight = item->weight;
            serve(item, n_tokens);
            oracle.n[next]--;
            oracle_charge(&oracle, next, (double)n_tokens, weight);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_tenant_is_served_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_tenant_is_next_during_a_flood, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_are_as_weights, setup, teardown),
        cmocka_unit_test_setup_teardown(a_weight_out_of_bounds_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(idleness_gains_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_credit_bounds_what_idleness_gains, setup, teardown),
        cmocka_unit_test_setup_teardown(a_debt_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(charges_without_others_are_no_debt, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_request_is_passed_by_its_size, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_bounded_by_who_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_walk_sees_each_once_and_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(an_older_one_comes_before_the_younger, setup, teardown),
        cmocka_unit_test_setup_teardown(the_heaviest_gives_its_newest, setup, teardown),
        cmocka_unit_test_setup_teardown(decisions_are_those_of_a_plain_search, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
