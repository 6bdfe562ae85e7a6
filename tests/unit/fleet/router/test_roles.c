/* SPDX-License-Identifier: Apache-2.0 */
/* A worker reports its role.  The next placement uses it, and running requests stay where they are.  An order
 * to change the role goes only to workers that know such orders.  Answers that miss an objective count in the load. */
#include "tests/unit/check.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "rig.h"

static struct rig rig;

static int open_rig(void **state)
{
    rig.capabilities = capabilities_own();
    return rig_open(&rig);
}

static int close_rig(void **state)
{
    rig_close(&rig);
    return 0;
}

static void report(struct link *link, Baton__Role role)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 1000;
    load.role = role;
    rig_beat(&rig, link, &load);
}

static void placements_follow_the_report(void **state)
{
    struct link *a, *b;
    struct rig_client *before;

    rig.capabilities = capabilities_own();
    a = rig_worker(&rig, "a", PICKER_PREFILL, 1, 1000);
    b = rig_worker(&rig, "b", PICKER_DECODE, 2, 1000);
    before = rig_submit(&rig, 1000, 20);
    assert_int_equal(rig_last(a)->mode, BATON__SUBMIT_MODE__SUBMIT_PREFILL);
    report(a, BATON__ROLE__ROLE_DECODE);
    report(b, BATON__ROLE__ROLE_PREFILL);
    assert_false(rig_last(a)->is_over); /* no request was taken back */
    rig_submit(&rig, 1100, 20);
    assert_int_equal(rig_last(a)->mode, BATON__SUBMIT_MODE__SUBMIT_DECODE);
    assert_int_equal(rig_last(b)->mode, BATON__SUBMIT_MODE__SUBMIT_PREFILL);
    report(a, BATON__ROLE__ROLE_BOTH);
    assert_int_equal(rig.router.workers[0].role, PICKER_BOTH);
    report(b, BATON__ROLE__ROLE_DECODE);
    rig_submit(&rig, 1200, 20);
    assert_int_equal(rig_last(a)->mode, BATON__SUBMIT_MODE__SUBMIT_LOCAL);
    assert_int_equal(rig_last(a)->n_tokens, 1200);
    report(a, BATON__ROLE__ROLE_UNKNOWN); /* an older worker reports no role */
    assert_int_equal(rig.router.workers[0].role, PICKER_BOTH);
    report(a, BATON__ROLE__ROLE_ROUTER);
    assert_int_equal(rig.router.workers[0].role, PICKER_BOTH);
    assert_false(before->has_ended || before->has_failed);
}

static int order(const char *node, const char *role, struct fault *fault)
{
    struct admin_role wanted = {.role = bytes_str(role), .worker = bytes_str(node)};

    return router_role_order(&rig.router, &wanted, fault);
}

static void orders_go_to_workers_that_know_them(void **state)
{
    struct fault fault = {0};
    struct link *gone;

    rig.capabilities = capabilities_own() & ~(uint64_t)CAPABILITY_ROLES;
    assert_non_null(rig_worker(&rig, "old", PICKER_DECODE, 1, 1000));
    rig.capabilities = capabilities_own();
    assert_non_null(rig_worker(&rig, "new", PICKER_DECODE, 2, 1000));
    gone = rig_worker(&rig, "gone", PICKER_DECODE, 3, 1000);
    rig_lose(&rig, gone);
    assert_int_equal(order("new", "prefill", &fault), 0);
    assert_int_equal(rig.router.workers[1].role, PICKER_DECODE); /* until the worker reports it */
    assert_int_equal(order("old", "prefill", &fault), E_UNSUPPORTED);
    assert_int_equal(order("gone", "prefill", &fault), E_CLOSED);
    assert_int_equal(order("nobody", "prefill", &fault), E_NOT_FOUND);
    assert_int_equal(order("new", "router", &fault), E_INVAL);
}

static uint32_t missed(void)
{
    const struct picker_demand *demand = &rig.router.models[0].roles.demand;
    uint32_t n = 0;

    for (unsigned i = 0; i < PICKER_DEMAND_BUCKETS; i++)
        n += demand->buckets[i].n_missed;
    return n;
}

static void answer_within(struct link *link, uint64_t ttft_slo_ns, uint64_t itl_slo_ns, unsigned wait_ms)
{
    rig.conf.ttft_slo_ns = ttft_slo_ns;
    rig.conf.itl_slo_ns = itl_slo_ns;
    assert_non_null(rig_submit(&rig, 8, 20));
    rig_accept(&rig, link, 0);
    usleep(1000 * wait_ms);
    rig_tokens(&rig, link, 0, 2);
    rig_finish(&rig, link, BATON__FINISH__FINISH_LENGTH, 0);
}

/* The worker reports no speed, so its prompt of 8 tokens is expected to take 70 ms, and may take twice as long. */
static void answers_beyond_an_objective_count_as_missed(void **state)
{
    struct link *link = rig_worker(&rig, "a", PICKER_BOTH, 1, 1000);

    answer_within(link, 3600 * NS_PER_S, 3600 * NS_PER_S, 0);
    assert_int_equal(missed(), 0);
    answer_within(link, 1, 3600 * NS_PER_S, 0); /* no worker could keep that */
    assert_int_equal(missed(), 0);
    answer_within(link, 1, 3600 * NS_PER_S, 300);
    assert_int_equal(missed(), 1);
    answer_within(link, 3600 * NS_PER_S, 1, 0);
    assert_int_equal(missed(), 2);
}

/* The workers kept the objective; the client took the answer ten seconds later. */
static void a_slow_client_is_no_missed_objective(void **state)
{
    struct link *link = rig_worker(&rig, "a", PICKER_BOTH, 1, 1000);
    struct rig_client *client;
    struct job *job;

    rig.conf.ttft_slo_ns = 3600 * NS_PER_S;
    rig.conf.itl_slo_ns = 5 * NS_PER_S;
    client = rig_submit(&rig, 8, 20);
    job = job_of(client->handle);
    rig_accept(&rig, link, 0);
    rig_pause(client, true);
    rig_tokens(&rig, link, 0, 2);
    rig_finish(&rig, link, BATON__FINISH__FINISH_LENGTH, 0);
    assert_false(client->has_ended);
    job->submitted_ns -= 10 * NS_PER_S;
    job->first_ns -= 10 * NS_PER_S;
    job->ended_ns -= 10 * NS_PER_S;
    rig_pause(client, false);
    rig_flush(&rig);
    assert_true(client->has_ended);
    assert_int_equal(missed(), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(placements_follow_the_report), T(orders_go_to_workers_that_know_them),
        T(answers_beyond_an_objective_count_as_missed), T(a_slow_client_is_no_missed_objective)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
