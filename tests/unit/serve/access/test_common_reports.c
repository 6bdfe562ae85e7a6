/* SPDX-License-Identifier: Apache-2.0 */
/* What common limits believe of other routers: claims of several workers, snapshots, routers that go, and the shared
 * store. */
#include "serve/access/common_limits_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"

static const uint8_t shared_key[32] = {1, 2, 3};

struct claim {
    float demand, spent;
    uint32_t n_running;
    uint64_t number;
};

static void send_claim(struct common_limits *common, unsigned view, const struct claim *claim,
                       uint64_t now_ns)
{
    struct common_row row = {.demand = claim->demand, .n_running = claim->n_running};
    const struct common_message message = {
        .router = 77, .number = claim->number, .window = 5, .rows = &row, .n_rows = 1};

    common_limits_id(common, true, bytes_str("team"), &row.id);
    for (int kind = 0; kind < COMMON_KINDS; kind++)
        row.spent[kind] = claim->spent;
    assert_true(common_limits_receive(common, view, &message, now_ns));
}

static double team_demand(struct common_limits *common, uint64_t now_ns)
{
    struct common_id id;

    common_limits_id(common, true, bytes_str("team"), &id);
    return common_report_demand(common, common_account_of(common, &id, now_ns), 0);
}

/* Three workers relay; the last one makes the other router's demand, spending and requests enormous. */
static void one_worker_of_three_throttles_nothing(void **state)
{
    const struct claim honest = {.demand = 0.5f, .spent = 0.1f, .n_running = 2, .number = 1};
    const struct claim lie = {.demand = 1e30f, .spent = 4, .n_running = UINT32_MAX, .number = 1};
    struct common_limits *common;
    struct common_id id;
    double parts[COMMON_KINDS];
    uint64_t now_ns = 100 * NS_PER_S;

    assert_int_equal(common_limits_new(1, shared_key, now_ns, &common), 0);
    common_limits_id(common, true, bytes_str("team"), &id);
    for (unsigned view = 0; view < 3; view++) {
        common_limits_view_up(common, view, 10 + view);
        send_claim(common, view, view == 2 ? &lie : &honest, now_ns);
    }
    assert_int_equal(common_limits_elsewhere(common, &id), 2);
    common_limits_take(common, &id, now_ns, parts);
    assert_true(parts[0] > 0.09 && parts[0] < 0.11);
    assert_true(team_demand(common, now_ns) == 0.5);
    /* a worker that claims less lifts nothing either */
    send_claim(common, 2, &(struct claim){.demand = 0, .spent = -4, .n_running = 0, .number = 2}, now_ns);
    assert_int_equal(common_limits_elsewhere(common, &id), 2);
    common_limits_take(common, &id, now_ns, parts);
    assert_true(parts[0] > -1e-6 && parts[0] < 1e-6);
    /* with two, the larger claim counts: the router cannot know which one lies */
    common_limits_view_down(common, 2, false, now_ns);
    send_claim(common, 1, &lie, now_ns);
    assert_true(common_limits_elsewhere(common, &id) >= UINT32_MAX);
    assert_true(team_demand(common, now_ns) == COMMON_MAX_DEMAND);
    common_limits_free(common);
}

/* Sends a router's spending of an account in a window and in the previous one. */
static void send_windows(struct common_limits *common, unsigned view, const char *name, uint32_t window,
                         const float spent[2])
{
    struct common_row row = {.demand = spent[0], .n_running = spent[0] > 1 ? 1000 : 1};
    const struct common_message message = {
        .router = 77, .number = 9, .window = window, .rows = &row, .n_rows = 1};

    common_limits_id(common, true, bytes_str(name), &row.id);
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        row.spent[kind] = spent[0];
        row.before[kind] = spent[1];
    }
    assert_true(common_limits_receive(common, view, &message, 100 * NS_PER_S));
}

static double reported_of(struct common_limits *common, const char *name)
{
    double parts[COMMON_KINDS];
    struct common_id id;

    common_limits_id(common, true, bytes_str(name), &id);
    common_limits_take(common, &id, 100 * NS_PER_S, parts);
    return parts[0];
}

/* Three workers report the other router; only the last one reports the account. */
static void invented_spending_of_one_worker_of_three_does_not_count(void **state)
{
    struct common_limits *common;
    struct common_id id;
    double reported;
    uint64_t now_ns = 100 * NS_PER_S;

    assert_int_equal(common_limits_new(1, shared_key, now_ns, &common), 0);
    for (unsigned view = 0; view < 3; view++) {
        common_limits_view_up(common, view, 10 + view);
        send_windows(common, view, "team", 5, (const float[]){0.1f, 0});
    }
    send_windows(common, 2, "invented", 5, (const float[]){4, 4});
    common_limits_id(common, true, bytes_str("invented"), &id);
    assert_int_equal(common_limits_elsewhere(common, &id), 0);
    assert_true(common_report_demand(common, common_account_of(common, &id, now_ns), 0) == 0);
    assert_true(reported_of(common, "invented") == 0);
    /* nor does it with a window that the others did not report, and it ends none of theirs */
    send_windows(common, 2, "team", 4000000000u, (const float[]){4, 4});
    for (unsigned view = 0; view < 2; view++)
        send_windows(common, view, "team", 6, (const float[]){0.2f, 0.1f});
    reported = reported_of(common, "team");
    assert_true(reported > 0.29 && reported < 0.31);
    /* an amount that two of them report counts */
    send_windows(common, 0, "invented", 6, (const float[]){0.3f, 0});
    send_windows(common, 1, "invented", 6, (const float[]){0.3f, 0});
    assert_true(reported_of(common, "invented") > 0.29);
    common_limits_free(common);
}

/* The last view is a window late: its reports of windows that are over are not charged again. */
static void a_late_view_charges_nothing_again(void **state)
{
    struct common_limits *common;
    double reported;

    assert_int_equal(common_limits_new(1, shared_key, 100 * NS_PER_S, &common), 0);
    common_limits_view_up(common, 0, 10);
    common_limits_view_up(common, 1, 11);
    send_windows(common, 0, "team", 6, (const float[]){0.1f, 0});
    send_windows(common, 0, "team", 7, (const float[]){0.1f, 0.1f});
    send_windows(common, 1, "team", 6, (const float[]){0.1f, 0.1f});
    send_windows(common, 0, "team", 7, (const float[]){0.1f, 0.1f});
    reported = reported_of(common, "team");
    assert_true(reported > 0.19 && reported < 0.21);
    common_limits_free(common);
}

/* A snapshot's levels count while the snapshot is under way: else a worker could fill the replica each minute. */
static void levels_count_once(void **state)
{
    struct common_row row = {.level = {0.5f, 0.5f, 0.5f, 0.5f}};
    const struct common_message reported = {
        .router = 77, .number = 1, .is_snapshot = true, .rows = &row, .n_rows = 1};
    const struct common_message end_of_it = {.router = 0};
    struct common_limits *common;
    double parts[COMMON_KINDS];
    uint64_t now_ns = 100 * NS_PER_S;

    assert_int_equal(common_limits_new(1, shared_key, now_ns, &common), 0);
    common_limits_id(common, true, bytes_str("team"), &row.id);
    common_limits_view_up(common, 0, 10);
    assert_true(common_limits_receive(common, 0, &reported, now_ns));
    assert_true(common_limits_receive(common, 0, &end_of_it, now_ns));
    common_limits_take(common, &row.id, now_ns, parts);
    assert_true(parts[0] > 0.49 && parts[0] < 0.51);
    row.level[0] = 4;
    assert_true(common_limits_receive(common, 0, &reported, now_ns));
    common_limits_take(common, &row.id, now_ns, parts);
    assert_true(parts[0] > -1e-6 && parts[0] < 1e-6);
    common_limits_free(common);
}

static void account_number(uint32_t i, struct common_id *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->bytes, &i, sizeof(i));
}

static void send_all(struct common_limits *common, uint64_t router, uint32_t n_running, uint64_t now_ns)
{
    struct common_row rows[COMMON_MAX_ROWS] = {{.n_running = n_running}};
    const struct common_message message = {
        .router = router, .number = 1, .rows = rows, .n_rows = COMMON_MAX_ROWS};

    for (uint32_t from = 0; from < COMMON_MAX_ACCOUNTS; from += COMMON_MAX_ROWS) {
        for (uint32_t i = 0; i < COMMON_MAX_ROWS; i++) {
            rows[i].n_running = n_running;
            account_number(from + i, &rows[i].id);
        }
        assert_true(common_limits_receive(common, 0, &message, now_ns));
    }
}

static uint32_t n_elsewhere(struct common_limits *common)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < COMMON_MAX_ACCOUNTS; i++) {
        struct common_id id;

        account_number(i, &id);
        n += common_limits_elsewhere(common, &id);
    }
    return n;
}

/* The reports of thousands of accounts go with their router at once, and make room for those of the next one. */
static void all_accounts_lose_a_router_at_once(void **state)
{
    enum { ROUTERS = 4 }; /* as many as memory is bounded to, with all accounts */
    struct common_limits *common;
    uint64_t now_ns = 100 * NS_PER_S, epoch;
    unsigned n_left = 0;

    assert_int_equal(common_limits_new(1, shared_key, now_ns, &common), 0);
    common_limits_view_up(common, 0, 10);
    for (unsigned i = 0; i < ROUTERS; i++)
        send_all(common, 70 + i, 1, now_ns);
    assert_int_equal(n_elsewhere(common), ROUTERS * COMMON_MAX_ACCOUNTS);
    for (unsigned i = 0; i < ROUTERS; i++)
        assert_true(common_limits_receive(
            common, 0, &(struct common_message){.router = 70 + i, .number = 2, .is_gone = true}, now_ns));
    for (int second = 0; second < 4; second++) {
        now_ns += NS_PER_S;
        for (enum common_change change; (change = common_limits_tick(common, now_ns, &epoch)) != COMMON_NONE;)
            n_left += change == COMMON_LEFT;
    }
    assert_int_equal(n_left, ROUTERS);
    send_all(common, 90, 3, now_ns);
    assert_int_equal(n_elsewhere(common), 3 * COMMON_MAX_ACCOUNTS);
    common_limits_view_down(common, 0, false, now_ns);
    assert_int_equal(n_elsewhere(common), 0);
    common_limits_view_up(common, 0, 10);
    send_all(common, 90, 2, now_ns + NS_PER_S);
    assert_int_equal(n_elsewhere(common), 2 * COMMON_MAX_ACCOUNTS);
    common_limits_free(common);
}

/* The shared store gets no message of a router any more.  Unless a worker reports that it ended, it may live. */
static void a_silent_router_may_live(void **state)
{
    static const uint8_t key[32];
    const struct common_message reported = {.router = 5, .number = 1},
                                silent = {.router = 5, .is_gone = true, .is_silent = true},
                                gone = {.router = 5, .is_gone = true};
    uint64_t router, now_ns = NS_PER_S;

    (void)state;
    for (int by_worker = 0; by_worker < 2; by_worker++) {
        struct common_limits *common;

        assert_int_equal(common_limits_new(1, key, now_ns, &common), 0);
        common_limits_view_up(common, COMMON_STORE_VIEW, 9);
        common_limits_receive(common, COMMON_STORE_VIEW, &reported, now_ns);
        if (by_worker) {
            common_limits_view_up(common, 0, 8);
            common_limits_receive(common, 0, &reported, now_ns);
            common_limits_receive(common, 0, &gone, now_ns);
        }
        assert_int_equal(common_limits_tick(common, now_ns, &router), COMMON_JOINED);
        common_limits_receive(common, COMMON_STORE_VIEW, &silent, now_ns);
        (void)common_limits_tick(common, now_ns, &router);
        assert_int_equal(common_limits_n_cut(common), by_worker ? 0 : 1);
        assert_int_equal(common_limits_n_routers(common), 2);
        (void)common_limits_tick(common, now_ns + 5 * NS_PER_S, &router);
        assert_int_equal(common_limits_n_routers(common), by_worker ? 1 : 2);
        common_limits_free(common);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_of_three_throttles_nothing),
        cmocka_unit_test(invented_spending_of_one_worker_of_three_does_not_count),
        cmocka_unit_test(a_late_view_charges_nothing_again),
        cmocka_unit_test(levels_count_once),
        cmocka_unit_test(all_accounts_lose_a_router_at_once),
        cmocka_unit_test(a_silent_router_may_live),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
