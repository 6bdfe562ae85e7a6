/* SPDX-License-Identifier: Apache-2.0 */
/* Limits common to routers.  What all routers admit in any minute is compared with the limit. */
#include "common_fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "tests/unit/trials.h"

static void assert_between(double value, double least, double most)
{
    if (value < least || value > most)
        fail_msg("%g is not between %g and %g", value, least, most);
}

static void routers_keep_one_limit(void **state)
{
    static const uint64_t delays_ns[] = {1 * NS_PER_MS, 20 * NS_PER_MS, 200 * NS_PER_MS};
    static const double parts[] = {1.0 / 600, 1.0 / 60, 1.0 / 20};

    for (unsigned n = 1; n <= 3; n++)
        for (size_t i = 0; i < ARRAY_LEN(delays_ns); i++)
            for (size_t j = 0; j < ARRAY_LEN(parts); j++) {
                double per_s[N_ROUTERS] = {0};
                struct fleet fleet;

                fleet_begin(&fleet, n, delays_ns[i]);
                fleet_rest(&fleet, 6 * NS_PER_S);
                for (unsigned r = 0; r < n; r++)
                    per_s[r] = 50;
                fleet_flood(&fleet, per_s, parts[j], 120 * NS_PER_S);
                assert_int_equal(common_limits_n_routers(fleet.nodes[0].common), n);
                assert_between(fleet_highest(&fleet), 0.95 - parts[j],
                               (delays_ns[i] < 100 * NS_PER_MS ? 1.1 : 1.15) +
                                   (parts[j] > 0.02 ? parts[j] : 0));
                assert_between(fleet_total(&fleet), 2.8, 3.3); /* the bucket and two minutes */
                for (unsigned r = 1; r < n; r++)
                    assert_between(fleet.nodes[r].admitted / fleet.nodes[0].admitted, 0.7, 1.4);
                fleet_end(&fleet);
            }
}

static void one_busy_router_gets_the_whole_limit(void **state)
{
    const double per_s[N_ROUTERS] = {50};
    struct fleet fleet;

    fleet_begin(&fleet, 3, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    fleet_flood(&fleet, per_s, 1.0 / 100, 60 * NS_PER_S);
    assert_between(fleet_total(&fleet), 1.9, 2.05);
    assert_between(fleet_highest(&fleet), 0.95, 1.02);
    fleet_end(&fleet);
}

static void little_demand_beside_a_flood_is_served(void **state)
{
    const double per_s[N_ROUTERS] = {100, 1};
    struct fleet fleet;

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    fleet_flood(&fleet, per_s, 1.0 / 300, 180 * NS_PER_S);
    assert_between(fleet_highest(&fleet), 0.95, 1.06);
    assert_between(fleet_total(&fleet), 3.8, 4.1);
    /* it wants 0.2 of the limit a minute, and its equal part is 1/8 */
    assert_between(fleet.nodes[1].admitted / 3, 0.1, 0.21);
    fleet_end(&fleet);
}

static void a_killed_routers_share_returns(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct fleet fleet;
    double before;

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    fleet_flood(&fleet, both, 1.0 / 100, 60 * NS_PER_S);
    fleet_kill_router(&fleet, 1);
    fleet_flood(&fleet, both, 1.0 / 100, 3 * NS_PER_S);
    assert_int_equal(common_limits_n_routers(fleet.nodes[0].common), 1);
    before = fleet.nodes[0].admitted;
    fleet_flood(&fleet, both, 1.0 / 100, 60 * NS_PER_S);
    assert_between(fleet.nodes[0].admitted - before, 0.95, 1.03);
    assert_between(fleet_highest(&fleet), 0.95, 1.1);
    fleet_end(&fleet);
}

static void a_restarted_router_knows_how_full_the_limit_is(void **state)
{
    const double one[N_ROUTERS] = {50}, other[N_ROUTERS] = {0, 50};
    struct fleet fleet;

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    fleet_flood(&fleet, one, 1.0 / 100, 10 * NS_PER_S);
    fleet_rest(&fleet, 1 * NS_PER_S);
    fleet_kill_router(&fleet, 1);
    fleet_start(&fleet, 1);
    fleet_flood(&fleet, other, 1.0 / 100, 20 * NS_PER_S);
    assert_between(fleet_highest(&fleet), 0.9, 1.1);
    fleet_kill_router(&fleet, 0); /* both die, and only the workers know */
    fleet_kill_router(&fleet, 1);
    fleet_start(&fleet, 0);
    fleet_start(&fleet, 1);
    fleet_flood(&fleet, one, 1.0 / 100, 20 * NS_PER_S);
    assert_between(fleet_highest(&fleet), 0.9, 1.1);
    fleet_end(&fleet);
}

/* A router and a worker end at once, in either order.  The other worker knows that the router is gone. */
static void a_router_killed_with_a_worker_leaves_its_share(void **state)
{
    const double both[N_ROUTERS] = {1, 50};

    for (int worker_first = 0; worker_first < 2; worker_first++) {
        struct fleet fleet;
        double before;

        fleet_begin(&fleet, 2, 5 * NS_PER_MS);
        fleet_rest(&fleet, 6 * NS_PER_S);
        fleet_flood(&fleet, both, 1.0 / 100, 60 * NS_PER_S);
        if (worker_first)
            fleet_kill_worker(&fleet, 0);
        fleet_kill_router(&fleet, 1);
        if (!worker_first)
            fleet_kill_worker(&fleet, 0);
        fleet_flood(&fleet, both, 1.0 / 100, 3 * NS_PER_S);
        assert_int_equal(common_limits_n_routers(fleet.nodes[0].common), 1);
        before = fleet.nodes[0].admitted;
        fleet_flood(&fleet, (const double[N_ROUTERS]){50}, 1.0 / 100, 60 * NS_PER_S);
        assert_between(fleet.nodes[0].admitted - before, 0.95, 1.05);
        assert_between(fleet_highest(&fleet), 0.95, 1.1);
        fleet_end(&fleet);
    }
}

/* All workers end: none is left to say whether the other router did. */
static void the_end_of_all_workers_ends_no_router(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct fleet fleet;

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    fleet_flood(&fleet, both, 1.0 / 100, 10 * NS_PER_S);
    fleet_kill_worker(&fleet, 0);
    fleet_kill_worker(&fleet, 1);
    fleet_rest(&fleet, 30 * NS_PER_S);
    assert_int_equal(common_limits_n_routers(fleet.nodes[0].common), 2);
    assert_int_equal(common_limits_n_cut(fleet.nodes[0].common), 1);
    fleet_end(&fleet);
}

/* Each side goes on with its share, and the share is not counted twice when they meet again. */
static void a_partition_splits_the_limit(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct fleet fleet;
    double before[2];

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    fleet_flood(&fleet, both, 1.0 / 100, 60 * NS_PER_S);
    fleet_link_down(&fleet, 1, 0); /* router 0 with worker 0, router 1 with worker 1 */
    fleet_link_down(&fleet, 0, 1);
    fleet_flood(&fleet, both, 1.0 / 100, 30 * NS_PER_S);
    assert_int_equal(common_limits_n_cut(fleet.nodes[0].common) + common_limits_n_cut(fleet.nodes[1].common),
                     2);
    before[0] = fleet.nodes[0].admitted;
    before[1] = fleet.nodes[1].admitted;
    fleet_flood(&fleet, both, 1.0 / 100, 120 * NS_PER_S);
    assert_between((fleet.nodes[0].admitted - before[0]) / 2, 0.4, 0.6);
    assert_between((fleet.nodes[1].admitted - before[1]) / 2, 0.4, 0.6);
    assert_between(fleet_highest(&fleet), 0.95, 1.1);
    fleet_link_up(&fleet, 1, 0);
    fleet_link_up(&fleet, 0, 1);
    fleet_flood(&fleet, both, 1.0 / 100, 60 * NS_PER_S);
    assert_int_equal(common_limits_n_cut(fleet.nodes[0].common), 0);
    assert_between(fleet_highest(&fleet), 0.95, 1.1);
    fleet_end(&fleet);
}

static void refunds_are_available_to_all_routers(void **state)
{
    struct fleet fleet;

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    assert_true(fleet_ask(&fleet, 0, 0.4));
    fleet_rest(&fleet, 1 * NS_PER_S);
    assert_true(fleet_ask(&fleet, 1, 0.3));
    fleet_rest(&fleet, 1 * NS_PER_S);
    assert_false(fleet_ask(&fleet, 1, 0.4));
    fleet_give_back(&fleet, 0, 0.39);
    fleet_rest(&fleet, 1 * NS_PER_S);
    assert_true(fleet_ask(&fleet, 1, 0.4));
    fleet_end(&fleet);
}

/* Begins a request of an account that may have `limit` at once.  Returns true if it is admitted. */
static bool begin_one(struct fleet *fleet, unsigned router, unsigned limit)
{
    struct node *node = &fleet->nodes[router];
    struct common_id id = fleet_tenant(node);
    double level = (double)(node->n_admitted + common_limits_elsewhere(node->common, &id)) / limit;
    const struct common_use use = {COMMON_CONCURRENT, 1.0 / limit, level};

    common_limits_want(node->common, &id, use.part, fleet->now_ns);
    if (!common_limits_may(node->common, &id, &use, fleet->now_ns))
        return false;
    common_limits_spend(node->common, &id, &use, fleet->now_ns);
    node->n_admitted++;
    return true;
}

static void end_one(struct fleet *fleet, unsigned router, unsigned limit)
{
    struct node *node = &fleet->nodes[router];
    struct common_id id = fleet_tenant(node);

    common_limits_spend(node->common, &id, &(struct common_use){COMMON_CONCURRENT, -1.0 / limit, 0},
                        fleet->now_ns);
    node->n_admitted--;
}

static void requests_at_once_are_common(void **state)
{
    struct fleet fleet;
    unsigned n = 0;

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    for (unsigned i = 0; i < 400; i++) {
        fleet_step(&fleet);
        n += begin_one(&fleet, i % 2, 10);
    }
    assert_between(n, 10, 11);
    fleet_end(&fleet);
}

/* Requests that begin one after another get all places, at one router and at several. */
static void every_place_can_be_taken(void **state)
{
    static const unsigned limits[] = {1, 2, 3, 4, 6, 10, 64};

    for (unsigned n_routers = 2; n_routers <= N_ROUTERS; n_routers++)
        for (size_t i = 0; i < 2 * ARRAY_LEN(limits); i++) {
            unsigned limit = limits[i / 2], n_asked = i % 2 == 0 ? 1 : n_routers;
            struct fleet fleet;

            fleet_begin(&fleet, n_routers, 5 * NS_PER_MS);
            fleet_rest(&fleet, 6 * NS_PER_S);
            for (unsigned k = 0; k < limit; k++) {
                assert_true(begin_one(&fleet, k % n_asked, limit));
                fleet_rest(&fleet, 300 * NS_PER_MS);
            }
            for (unsigned r = 0; r < n_routers; r++)
                assert_false(begin_one(&fleet, r, limit));
            end_one(&fleet, 0, limit);
            fleet_rest(&fleet, 300 * NS_PER_MS);
            assert_true(begin_one(&fleet, n_routers - 1, limit));
            fleet_end(&fleet);
        }
}

/* A burst exceeds the limit by at most one request for each other router. */
static void a_burst_takes_few_places_too_many(void **state)
{
    for (unsigned limit = 1; limit <= 16; limit++) {
        struct fleet fleet;
        unsigned n = 0;

        fleet_begin(&fleet, N_ROUTERS, 5 * NS_PER_MS);
        fleet_rest(&fleet, 6 * NS_PER_S);
        for (unsigned i = 0; i < 10 * N_ROUTERS; i++)
            n += begin_one(&fleet, i % N_ROUTERS, limit);
        assert_between(n, 1, limit + N_ROUTERS - 1);
        fleet_end(&fleet);
    }
}

/* Requests come and go at one of four routers, while more of them than places want to begin. */
static void one_busy_router_gets_nearly_all_places(void **state)
{
    for (unsigned limit = 4; limit <= 64; limit *= 4) {
        double n_running = 0;
        struct fleet fleet;

        fleet_begin(&fleet, N_ROUTERS, 5 * NS_PER_MS);
        fleet_rest(&fleet, 6 * NS_PER_S);
        for (unsigned i = 0; i < 3000; i++) {
            unsigned n = (unsigned)fleet.nodes[0].n_admitted;

            fleet_step(&fleet);
            for (unsigned k = 0; k < n; k++) /* 20 end a second */
                if (rng_unit(&fleet.rng) < 0.2 / limit)
                    end_one(&fleet, 0, limit);
            (void)begin_one(&fleet, 0, limit);
            if (i >= 1000)
                n_running += (double)fleet.nodes[0].n_admitted / 2000;
        }
        assert_between(n_running, 0.95 * limit, limit);
        fleet_end(&fleet);
    }
}

/* One worker of two lies: it may lower a limit, but never lift it. */
static void a_worker_that_lies_lifts_no_limit(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct fleet fleet;
    struct common_row row = {.id = {{0}}};
    struct common_message lie = {.rows = &row, .n_rows = 1};

    fleet_begin(&fleet, 2, 5 * NS_PER_MS);
    fleet_rest(&fleet, 6 * NS_PER_S);
    row.id = fleet_tenant(&fleet.nodes[0]);
    for (int second = 0; second < 180; second++) {
        fleet_flood(&fleet, both, 1.0 / 100, NS_PER_S);
        for (unsigned to = 0; to < 2; to++) {
            lie.router = rng_below(&fleet.rng, 4) == 0 ? rng_u64(&fleet.rng) : fleet.nodes[1 - to].epoch;
            lie.number = rng_below(&fleet.rng, 2) == 0 ? UINT64_MAX / 2 : 0;
            lie.window = (uint32_t)rng_below(&fleet.rng, 40);
            lie.is_snapshot = rng_below(&fleet.rng, 2) == 0;
            lie.acks[0] = (struct common_ack){fleet.nodes[to].epoch, UINT64_MAX / 2};
            lie.n_acks = 1;
            for (int kind = 0; kind < COMMON_KINDS; kind++) {
                row.spent[kind] = (float)(4 * rng_unit(&fleet.rng) - 4);
                row.before[kind] = -1e30f;
                row.level[kind] = second == 30 ? 1e30f : -1;
            }
            row.demand = rng_below(&fleet.rng, 2) == 0 ? 1e30f : -1e30f;
            (void)common_limits_receive(fleet.nodes[to].common, 1, &lie, fleet.now_ns);
        }
    }
    assert_between(fleet_highest(&fleet), 0, 1.1);
    fleet_end(&fleet);
}

static void memory_and_messages_are_bounded(void **state)
{
    struct fleet fleet;
    struct common_row row = {.demand = 1, .spent = {0.1f}};
    struct common_message message = {.number = 1, .rows = &row, .n_rows = 1};
    unsigned n_reports = 0, n_joined = 0;

    fleet_begin(&fleet, 1, 5 * NS_PER_MS);
    for (unsigned i = 0; i < 40000; i++) {
        message.router = 1000 + i % 40;
        memcpy(row.id.bytes, &i, sizeof(i));
        if (i % 500 == 0)
            fleet.now_ns += NS_PER_S;
        n_reports += common_limits_receive(fleet.nodes[0].common, 0, &message, fleet.now_ns);
        n_joined = common_limits_n_routers(fleet.nodes[0].common);
    }
    assert_int_equal(n_joined, 1 + COMMON_MAX_ROUTERS);
    assert_true(n_reports > 0 && n_reports < 40000);
    assert_int_equal(common_limits_n_accounts(fleet.nodes[0].common), COMMON_MAX_ACCOUNTS);
    for (n_reports = 0;
         n_reports < 10000 && common_limits_receive(fleet.nodes[0].common, 0, &message, fleet.now_ns);)
        n_reports++;
    assert_true(n_reports < 10000);
    fleet_end(&fleet);
}

/* Random routers that come, go and lose links; nothing may overshoot or crash. */
static void random_fleets(void **state)
{
    for (uint64_t seed = 0; seed < trials(30, 6); seed++) {
        double per_s[N_ROUTERS];
        struct fleet fleet;

        fleet_begin(&fleet, 2, 5 * NS_PER_MS);
        rng_init(&fleet.rng, seed);
        fleet_rest(&fleet, 6 * NS_PER_S);
        for (int round = 0; round < 15; round++) {
            unsigned router = (unsigned)rng_below(&fleet.rng, 3),
                     worker = (unsigned)rng_below(&fleet.rng, N_WORKERS);

            for (unsigned i = 0; i < N_ROUTERS; i++)
                per_s[i] = (double)rng_below(&fleet.rng, 3) * 30;
            if (!fleet.nodes[router].is_up)
                fleet_start(&fleet, router);
            else if (rng_below(&fleet.rng, 4) == 0)
                fleet_kill_router(&fleet, router);
            else if (fleet.has_link[worker][router] && fleet.has_link[1 - worker][router])
                fleet_link_down(&fleet, worker, router);
            else if (!fleet.has_link[worker][router])
                fleet_link_up(&fleet, worker, router);
            fleet_flood(&fleet, per_s, 1.0 / 100, (1 + rng_below(&fleet.rng, 20)) * NS_PER_S);
        }
        assert_between(fleet_highest(&fleet), 0, 1.6); /* a partition begins in the middle of a lease */
        fleet_end(&fleet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routers_keep_one_limit),
        cmocka_unit_test(one_busy_router_gets_the_whole_limit),
        cmocka_unit_test(little_demand_beside_a_flood_is_served),
        cmocka_unit_test(a_killed_routers_share_returns),
        cmocka_unit_test(a_router_killed_with_a_worker_leaves_its_share),
        cmocka_unit_test(the_end_of_all_workers_ends_no_router),
        cmocka_unit_test(a_restarted_router_knows_how_full_the_limit_is),
        cmocka_unit_test(a_partition_splits_the_limit),
        cmocka_unit_test(refunds_are_available_to_all_routers),
        cmocka_unit_test(requests_at_once_are_common),
        cmocka_unit_test(every_place_can_be_taken),
        cmocka_unit_test(a_burst_takes_few_places_too_many),
        cmocka_unit_test(one_busy_router_gets_nearly_all_places),
        cmocka_unit_test(a_worker_that_lies_lifts_no_limit),
        cmocka_unit_test(memory_and_messages_are_bounded),
        cmocka_unit_test(random_fleets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
