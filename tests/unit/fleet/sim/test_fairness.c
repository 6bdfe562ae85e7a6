/* SPDX-License-Identifier: Apache-2.0 */
/* A flood in virtual time: one tenant sends a hundred times the requests of each other one.  Tenants that ask for their
 * share or more get equal tokens; one that asks for less gets what it asks for. */
#include "tests/unit/check.h"

#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "base/rng.h"
#include "small_fleet.h"
#include "tests/unit/trials.h"

#define MAX_TENANTS SIM_MAX_CLASSES
#define SECONDS     60

struct flood { /* prompts of 512 to 1,024 tokens, answers of 64; each tenant at its own rate */
    struct rng rng;
    double rates[MAX_TENANTS], sum;
    uint32_t routers[MAX_TENANTS]; /* of each tenant, as bits; 0: all */
    uint32_t n_tenants;
    uint32_t n_tokens; /* of each prompt; 0: 512 to 1,024 */
    uint64_t next_ns, n, seed;
};

static bool flood_when(void *self, uint64_t *at_ns_out)
{
    struct flood *it = self;

    *at_ns_out = it->next_ns;
    return it->next_ns < SECONDS * NS_PER_S;
}

static void flood_take(void *self, struct sim_request *out)
{
    struct flood *it = self;
    double at = rng_unit(&it->rng) * it->sum;
    uint32_t tenant = 0;

    while (tenant + 1 < it->n_tenants && at >= it->rates[tenant])
        at -= it->rates[tenant++];
    *out = (struct sim_request){.at_ns = it->next_ns,
                                .tenant = 1 + tenant,
                                .kind = tenant,
                                .routers = it->routers[tenant],
                                .prompt_tokens = it->n_tokens > 0 ? it->n_tokens
                                                                  : 512 + (uint32_t)rng_below(&it->rng, 513),
                                .answer_tokens = 64,
                                .salt = ++it->n};
    it->next_ns += (uint64_t)(-log(1 - rng_unit(&it->rng)) / it->sum * 1e9);
}

static struct sim_result run(const struct sim_opts *opts, struct flood *flood)
{
    struct sim_load load = {
        .self = flood, .when = flood_when, .take = flood_take, .span_ns = SECONDS * NS_PER_S};
    struct sim_result result;

    rng_init(&flood->rng, 5 + flood->seed);
    flood->next_ns = 1;
    flood->sum = 0;
    for (uint32_t i = 0; i < flood->n_tenants; i++)
        flood->sum += flood->rates[i];
    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    return result;
}

static double served(const struct sim_result *result, uint32_t tenant)
{
    return (double)result->classes[tenant].n_done;
}

/* Jain's index of the tokens that each tenant received. */
static double jain(const struct sim_result *result, uint32_t n)
{
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += served(result, i);
        squares += served(result, i) * served(result, i);
    }
    return squares > 0 ? sum * sum / (n * squares) : 0;
}

static void more_workers_share_as_evenly(void **state)
{
    struct sim_opts opts = small_fleet(true);
    struct flood flood = {.n_tenants = 3, .rates = {30, 3000, 30}};
    struct sim_result result;

    opts.n_prefill = opts.n_decode = 4;
    result = run(&opts, &flood);
    print_message("four pairs: %.0f, %.0f and %.0f served, Jain %.4f\n", served(&result, 0),
                  served(&result, 1), served(&result, 2), jain(&result, 3));
    assert_true(jain(&result, 3) >= 0.95);
    sim_result_fini(&result);
}

static void a_flood_gets_no_more_than_others(void **state)
{
    for (unsigned refuses = 0; refuses < 2; refuses++) {
        struct sim_opts opts = small_fleet(refuses != 0);
        struct flood two = {.n_tenants = 2, .rates = {12, 1200}}, many = {.n_tenants = MAX_TENANTS};
        struct sim_result result = run(&opts, &two);

        print_message("refuses %u: %.0f and %.0f served of 1:100, Jain %.4f\n", refuses, served(&result, 0),
                      served(&result, 1), jain(&result, 2));
        assert_true(jain(&result, 2) >= 0.95);
        sim_result_fini(&result);
        for (uint32_t i = 0; i < MAX_TENANTS; i++)
            many.rates[i] = i == 3 ? 300 : 3;
        result = run(&opts, &many);
        for (uint32_t i = 0; i < MAX_TENANTS; i++)
            print_message("%.0f ", served(&result, i));
        print_message("refuses %u: Jain %.4f of eight, one sends a hundred times as much\n", refuses,
                      jain(&result, MAX_TENANTS));
        assert_true(jain(&result, MAX_TENANTS) >= 0.95);
        sim_result_fini(&result);
    }
}

/* A tenant within its share is served although another one floods. */
static void a_tenant_within_its_share_is_served(void **state)
{
    struct sim_opts opts = small_fleet(true);
    struct flood flood = {.n_tenants = 2, .rates = {2, 200}};
    struct sim_result result = run(&opts, &flood);
    const struct sim_class *calm = &result.classes[0];

    print_message("%" PRIu64 " of %" PRIu64 " served, %" PRIu64 " good\n", calm->n_done, calm->n_arrived,
                  calm->n_good);
    assert_true((double)calm->n_done >= 0.95 * (double)calm->n_arrived);
    sim_result_fini(&result);
}

static void through_routers(uint32_t n_routers, uint32_t calm, uint32_t flood_of, double *served_out)
{
    double n_good_all = 0, n_served = 0;

    for (uint64_t seed = 0; seed < trials(3, 1); seed++) {
        struct sim_opts opts = small_fleet(true);
        struct flood flood = {.n_tenants = 2, .rates = {12, 1200}, .routers = {calm, flood_of}, .seed = seed};
        struct sim_result result;
        uint64_t n_good;

        opts.n_routers = n_routers;
        result = run(&opts, &flood);
        n_good = result.classes[0].n_good + result.classes[1].n_good;
        print_message("%u routers, 0x%x and 0x%x: %.0f and %.0f served, %" PRIu64 " good, Jain %.4f\n",
                      n_routers, calm, flood_of, served(&result, 0), served(&result, 1), n_good,
                      jain(&result, 2));
        assert_true(jain(&result, 2) >= 0.95);
        n_good_all += (double)n_good;
        n_served += served(&result, 0) + served(&result, 1);
        assert_true((double)n_good >= 0.85 * (served(&result, 0) + served(&result, 1)));
        sim_result_fini(&result);
    }
    assert_true(n_good_all >= 0.9 * n_served);
    *served_out += n_served;
}

/* The routers tell each other what they learn, and a tenant that is behind goes ahead.  Without the first the router with
 * the least margin fills the workers; without the second the routers of the flood do. */
static void routers_share_as_evenly(void **state)
{
    double one = 0, n;

    through_routers(1, 0, 0, &one);
    for (uint32_t n_routers = 2; n_routers <= trials(4, 2); n_routers++) {
        uint32_t last = 1u << (n_routers - 1);

        n = 0;
        through_routers(n_routers, last, last - 1, &n); /* the flood is at the others */
        assert_true(n >= 0.95 * one);
        n = 0;
        through_routers(n_routers, last, 0, &n); /* at all of them */
        assert_true(n >= 0.95 * one);
        n = 0;
        through_routers(n_routers, 0, 0, &n); /* both are */
        assert_true(n >= 0.95 * one);
    }
}

/* Good answers of four tenants that ask for the same. */
static double equal_tenants(uint32_t n_routers, double rate, uint64_t seed)
{
    struct sim_opts opts = small_fleet(true);
    struct flood flood = {.n_tenants = 4, .rates = {rate / 4, rate / 4, rate / 4, rate / 4}, .seed = seed};
    struct sim_result result;
    double n_good = 0, n_done = 0;

    opts.n_routers = n_routers;
    flood.n_tokens = 768;
    result = run(&opts, &flood);
    for (uint32_t i = 0; i < 4; i++) {
        n_good += (double)result.classes[i].n_good;
        n_done += served(&result, i);
    }
    print_message("%u routers, %.0f/s of four tenants: %.0f good of %.0f, Jain %.4f\n", n_routers, rate,
                  n_good, n_done, jain(&result, 4));
    assert_true(jain(&result, 4) >= 0.98);
    sim_result_fini(&result);
    return n_good;
}

/* At capacity and beyond, several routers give as many good answers as one, to a tenth.  Four routers gave 0.4 of them while
 * each took its own tenants to be behind those of the others. */
static void routers_serve_as_well(void **state)
{
    static const double rates[] = {90, 36, 18};

    for (unsigned i = 0; i < trials(3, 1); i++) {
        for (uint64_t seed = 0; seed < trials(3, 1); seed++) {
            double one = equal_tenants(1, rates[i], seed);

            for (uint32_t n_routers = 2; n_routers <= trials(4, 2); n_routers++)
                assert_true(equal_tenants(n_routers, rates[i], seed) >= 0.9 * one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flood_gets_no_more_than_others),
        cmocka_unit_test(more_workers_share_as_evenly),
        cmocka_unit_test(routers_share_as_evenly),
        cmocka_unit_test(routers_serve_as_well),
        cmocka_unit_test(a_tenant_within_its_share_is_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
