/* SPDX-License-Identifier: Apache-2.0 */
/* The router's queue: turns by tenant and weight,
 * room for tenants with fewer requests, and no callback from a submit. */
#include "tests/unit/check.h"

#include <stdio.h>

#include "base/err.h"
#include "rig_fixture.h"

static struct rig_client *ask(const char *tenant, uint32_t n_tokens)
{
    rig.tenant = tenant;
    return rig_submit(&rig, n_tokens, 5);
}

/* First there is no worker; then one comes, and the requests that it receives show the order. */
static void assert_order(const uint32_t *n_tokens, uint32_t n)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 10000);

    for (uint32_t i = 0; i < n; i++) {
        assert_non_null(rig_sent(d, i));
        assert_int_equal(rig_sent(d, i)->n_tokens, n_tokens[i]);
    }
    assert_null(rig_sent(d, n));
    assert_int_equal(rig.router.n_queued, 0);
}

static void one_tenant_keeps_its_order(void **state)
{
    static const uint32_t order[] = {300, 20, 200, 21};

    for (uint32_t i = 0; i < 4; i++)
        ask("loud", order[i]);
    assert_order(order, 4);
}

static void tenants_take_turns_by_tokens(void **state)
{
    static const uint32_t order[] = {200, 20, 21, 22, 201, 202, 203};

    for (uint32_t i = 0; i < 4; i++)
        ask("loud", 200 + i);
    for (uint32_t i = 0; i < 3; i++)
        ask("calm", 20 + i);
    assert_order(order, 7);
}

static void salts_make_no_tenants(void **state)
{
    static const uint32_t order[] = {200, 20, 201, 202};

    ask("~111111111111111111111111111111111111111111111111@0123456789ab", 200);
    ask("~222222222222222222222222222222222222222222222222@0123456789ab", 201);
    ask("~333333333333333333333333333333333333333333333333@0123456789ab", 202);
    ask("calm", 20);
    assert_order(order, 4);
}

static void a_weight_counts(void **state)
{
    struct link *d;

    for (uint32_t i = 0; i < 3; i++)
        ask("light", 100 + i);
    rig.weight = 6;
    for (uint32_t i = 0; i < 4; i++)
        ask("heavy", 200 + i);
    rig.weight = 0;
    d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 10000);
    assert_int_equal(rig_sent(d, 0)->n_tokens, 100);
    assert_int_equal(rig_sent(d, 1)->n_tokens, 200);
    assert_int_equal(rig_sent(d, 2)->n_tokens, 201);
    assert_int_equal(rig_sent(d, 3)->n_tokens, 202);
}

static void a_full_queue_makes_room_for_who_has_less(void **state)
{
    struct rig_client *loud[4], *calm, *more;

    rig.conf.queue_max = 4;
    for (uint32_t i = 0; i < 4; i++)
        loud[i] = ask("loud", 200 + i);
    calm = ask("calm", 20);
    assert_false(calm->has_failed);
    assert_false(loud[3]->has_failed); /* not inside another job's submit */
    assert_int_equal(rig.router.n_queued, 4);
    router_queue_fail_pushed(&rig.router);
    rig_flush(&rig);
    assert_true(loud[3]->has_failed);
    assert_int_equal(loud[3]->status, 529);
    more = ask("loud", 300);
    assert_true(more->has_failed);
    assert_int_equal(more->status, 529);
    more = ask("calm", 21);
    assert_false(more->has_failed);
    router_queue_fail_pushed(&rig.router);
    rig_flush(&rig);
    assert_true(loud[2]->has_failed);
    more = ask("calm", 22); /* two each: it would have the most */
    assert_true(more->has_failed);
    assert_false(loud[0]->has_failed || loud[1]->has_failed || calm->has_failed);
}

/* The client of a removed job may leave before it gets the refusal, or cancel other jobs at that moment. */
static void a_client_of_a_removed_job_may_cancel(void **state)
{
    struct rig_client *loud[6];

    rig.conf.queue_max = 6;
    for (uint32_t i = 0; i < 6; i++)
        loud[i] = ask("loud", 200 + i);
    ask("calm", 20);
    ask("other", 21);
    loud[5]->cancels_on_failure = loud[4];
    router_queue_fail_pushed(&rig.router);
    rig_flush(&rig);
    assert_true(loud[5]->has_failed);
    assert_null(loud[4]->handle);
    ask("third", 22);
    rig_cancel(loud[3]);
    router_queue_fail_pushed(&rig.router);
    rig_flush(&rig);
    assert_false(loud[3]->has_failed);
    assert_int_equal(rig.router.n_queued, 6);
}

/* Another tenant's backlog at the workers is no reason to wait here, because workers take turns too. */
static void a_tenants_backlog_delays_no_other_tenant(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 10000);
    struct rig_client *calm;
    uint32_t n = 0;

    rig.conf.ttft_slo_ns = 1000000; /* 1 ms */
    while (rig.router.n_queued == 0 && n < 10) {
        ask("loud", 500 + n);
        n++;
    }
    assert_int_equal(rig.router.n_queued, 1);
    calm = ask("calm", 20);
    assert_false(calm->has_failed);
    assert_int_equal(rig.router.n_queued, 1);
    assert_int_equal(rig_last(d)->n_tokens, 20);
    ask("calm", 21); /* its own backlog delays it */
    assert_int_equal(rig.router.n_queued, 2);
}

static void accounts_end_with_their_jobs(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 10000);
    char name[16];

    for (uint32_t i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        ask(name, 20);
        rig_accept(&rig, d, 0);
        rig_tokens(&rig, d, 0, 3);
        rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    }
    assert_int_equal(fair_n_known(rig.router.models[0].turns[0]), 0);
    assert_int_equal(rig.router.models[0].ahead.n, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    static const struct CMUnitTest tests[] = {
        T(one_tenant_keeps_its_order),
        T(tenants_take_turns_by_tokens),
        T(salts_make_no_tenants),
        T(a_weight_counts),
        T(a_full_queue_makes_room_for_who_has_less),
        T(a_client_of_a_removed_job_may_cancel),
        T(a_tenants_backlog_delays_no_other_tenant),
        T(accounts_end_with_their_jobs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
