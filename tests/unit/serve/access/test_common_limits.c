/* SPDX-License-Identifier: Apache-2.0 */
/* Limits common to routers, in virtual time: routers with a replica each, workers that relay with a delay, links
 * that break.  What all routers admit in any minute is compared with the limit. */
#include "serve/access/common_limits_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"

#define N_ROUTERS  4
#define N_WORKERS  2
#define MAX_FLIGHT 4096
#define MINUTE_NS  (60 * NS_PER_S)
#define STEP_NS    (10 * NS_PER_MS)
#define TICK_NS    (100 * NS_PER_MS)
#define MAX_ADMITS 200000

struct flight { /* a message on its way */
    uint64_t at_ns;
    unsigned to, view;
    struct common_message message;
    struct common_row rows[8];
};

struct node { /* a router */
    struct common_limits *common;
    uint64_t epoch;
    bool is_up, sees[N_WORKERS];
    double used[COMMON_KINDS]; /* the replica's buckets, in parts of the limit */
    uint64_t at_ns;
    uint64_t n_admitted, n_refused;
    double admitted;
};

struct admit {
    uint64_t at_ns;
    double part;
};

struct world {
    struct node nodes[N_ROUTERS];
    bool has_link[N_WORKERS][N_ROUTERS], has_sent[N_WORKERS][N_ROUTERS];
    struct common_message kept[N_WORKERS][N_ROUTERS];
    struct common_row kept_rows[N_WORKERS][N_ROUTERS][8];
    uint64_t kept_ns[N_WORKERS][N_ROUTERS];
    uint64_t now_ns, delay_ns, next_tick_ns;
    struct flight *flights;
    size_t n_flights;
    struct admit *admits;
    size_t n_admits;
    struct rng rng;
    uint64_t next_epoch;
};

static const uint8_t shared_key[32] = {1, 2, 3};

static struct common_id tenant_id(const struct node *node)
{
    struct common_id id;

    common_limits_id(node->common, true, bytes_str("team"), &id);
    return id;
}

static void fly(struct world *world, unsigned worker, unsigned to, const struct common_message *message)
{
    struct flight *flight;

    if (!world->has_link[worker][to] || !world->nodes[to].is_up || !world->has_sent[worker][to])
        return;
    assert_true(world->n_flights < MAX_FLIGHT);
    flight = &world->flights[world->n_flights++];
    flight->at_ns = world->now_ns + 2 * world->delay_ns;
    flight->to = to;
    flight->view = worker;
    flight->message = *message;
    assert_true(message->n_rows <= ARRAY_LEN(flight->rows));
    if (message->n_rows > 0)
        memcpy(flight->rows, message->rows, message->n_rows * sizeof(*message->rows));
}

static void relay_snapshot(struct world *world, unsigned worker, unsigned to)
{
    struct common_message end = {.router = 0};

    for (unsigned from = 0; from < N_ROUTERS; from++) {
        struct common_message message = world->kept[worker][from];

        if (message.router == 0 || message.router == world->nodes[to].epoch)
            continue;
        message.is_snapshot = true;
        message.is_gone = !world->has_link[worker][from] || !world->nodes[from].is_up ||
                          world->nodes[from].epoch != message.router;
        message.rows = world->kept_rows[worker][from];
        message.n_rows = message.n_rows > 0 ? 1 : 0;
        for (size_t i = 0; i < message.n_rows; i++)
            world->kept_rows[worker][from][i].age_ms =
                (uint32_t)((world->now_ns - world->kept_ns[worker][from]) / NS_PER_MS);
        fly(world, worker, to, &message);
    }
    fly(world, worker, to, &end);
}

static void relay(struct world *world, unsigned worker, unsigned from, const struct common_message *message)
{
    bool is_first = !world->has_sent[worker][from];
    size_t had_rows =
        world->kept[worker][from].router == message->router ? world->kept[worker][from].n_rows : 0;

    world->has_sent[worker][from] = true;
    world->kept[worker][from] = *message;
    world->kept[worker][from].n_rows = message->n_rows > 0 ? message->n_rows : had_rows;
    if (message->n_rows > 0) {
        memcpy(world->kept_rows[worker][from], message->rows, message->n_rows * sizeof(*message->rows));
        world->kept_ns[worker][from] = world->now_ns;
    }
    if (is_first)
        relay_snapshot(world, worker, from);
    for (unsigned to = 0; to < N_ROUTERS; to++)
        if (to != from)
            fly(world, worker, to, message);
}

static void relay_gone(struct world *world, unsigned worker, unsigned from)
{
    struct common_message message = {
        .router = world->nodes[from].epoch, .is_gone = true, .number = world->kept[worker][from].number};

    for (unsigned to = 0; to < N_ROUTERS; to++)
        if (to != from)
            fly(world, worker, to, &message);
}

static void link_up(struct world *world, unsigned worker, unsigned router)
{
    world->has_link[worker][router] = true;
    common_limits_view_up(world->nodes[router].common, worker, 100 + worker);
}

static void link_down(struct world *world, unsigned worker, unsigned router)
{
    world->has_link[worker][router] = world->has_sent[worker][router] = false;
    if (world->nodes[router].is_up)
        common_limits_view_down(world->nodes[router].common, worker, world->now_ns);
    relay_gone(world, worker, router);
}

static void start(struct world *world, unsigned router)
{
    struct node *node = &world->nodes[router];

    memset(node, 0, sizeof(*node));
    node->epoch = ++world->next_epoch;
    node->is_up = true;
    node->at_ns = world->now_ns;
    assert_int_equal(common_limits_new(node->epoch, shared_key, world->now_ns, &node->common), 0);
    for (unsigned worker = 0; worker < N_WORKERS; worker++)
        link_up(world, worker, router);
}

static void kill_router(struct world *world, unsigned router)
{
    world->nodes[router].is_up = false;
    for (unsigned worker = 0; worker < N_WORKERS; worker++)
        if (world->has_link[worker][router])
            link_down(world, worker, router);
    common_limits_free(world->nodes[router].common);
    world->nodes[router].common = NULL;
}

static void begin(struct world *world, unsigned n_routers, uint64_t delay_ns)
{
    memset(world, 0, sizeof(*world));
    world->now_ns = 1000 * NS_PER_S;
    world->delay_ns = delay_ns;
    world->flights = calloc(MAX_FLIGHT, sizeof(*world->flights));
    world->admits = calloc(MAX_ADMITS, sizeof(*world->admits));
    assert_non_null(world->flights);
    assert_non_null(world->admits);
    rng_init(&world->rng, 7);
    for (unsigned i = 0; i < n_routers; i++)
        start(world, i);
}

static void end(struct world *world)
{
    for (unsigned i = 0; i < N_ROUTERS; i++)
        common_limits_free(world->nodes[i].common);
    free(world->flights);
    free(world->admits);
}

static void deliver(struct world *world)
{
    size_t n = world->n_flights, kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct flight *flight = &world->flights[i];
        struct node *node = &world->nodes[flight->to];

        if (flight->at_ns > world->now_ns) {
            if (kept != i)
                world->flights[kept] = *flight;
            kept++;
            continue;
        }
        flight->message.rows = flight->rows;
        if (node->is_up && world->has_link[flight->view][flight->to])
            assert_true(common_limits_hear(node->common, flight->view, &flight->message, world->now_ns));
    }
    world->n_flights = kept;
}

static void tick(struct world *world)
{
    for (unsigned i = 0; i < N_ROUTERS; i++) {
        struct node *node = &world->nodes[i];
        struct common_row rows[COMMON_MAX_ROWS];
        struct common_message message;
        uint64_t router;

        if (!node->is_up)
            continue;
        while (common_limits_tick(node->common, world->now_ns, &router) != COMMON_NONE)
            ;
        if (common_limits_tell(node->common, world->now_ns, rows, &message))
            for (unsigned worker = 0; worker < N_WORKERS; worker++)
                if (world->has_link[worker][i])
                    relay(world, worker, i, &message);
    }
}

static void step(struct world *world)
{
    world->now_ns += STEP_NS;
    deliver(world);
    if (world->now_ns < world->next_tick_ns)
        return;
    world->next_tick_ns = world->now_ns + TICK_NS;
    tick(world);
}

static void rest(struct world *world, uint64_t for_ns)
{
    for (uint64_t until_ns = world->now_ns + for_ns; world->now_ns < until_ns;)
        step(world);
}

static void catch_up(struct world *world, struct node *node)
{
    struct common_id id = tenant_id(node);
    double parts[COMMON_KINDS];

    common_limits_take(node->common, &id, world->now_ns, parts);
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        double sunk = (double)(world->now_ns - node->at_ns) / (double)MINUTE_NS;

        node->used[kind] = node->used[kind] > sunk ? node->used[kind] - sunk : 0;
        node->used[kind] += parts[kind];
        if (node->used[kind] < 0)
            node->used[kind] = 0;
    }
    node->at_ns = world->now_ns;
}

static bool ask_kind(struct world *world, unsigned router, int kind, double part)
{
    struct node *node = &world->nodes[router];
    struct common_id id = tenant_id(node);

    catch_up(world, node);
    common_limits_want(node->common, &id, part, world->now_ns);
    if (!common_limits_may(node->common, &id, kind, part, node->used[kind], world->now_ns)) {
        node->n_refused++;
        return false;
    }
    node->used[kind] += part;
    common_limits_spend(node->common, &id, kind, part, node->used[kind], world->now_ns);
    node->n_admitted++;
    node->admitted += part;
    assert_true(world->n_admits < MAX_ADMITS);
    world->admits[world->n_admits++] = (struct admit){world->now_ns, part};
    return true;
}

static bool ask(struct world *world, unsigned router, double part)
{
    return ask_kind(world, router, 0, part);
}

static void give_back(struct world *world, unsigned router, double part)
{
    struct node *node = &world->nodes[router];
    struct common_id id = tenant_id(node);

    catch_up(world, node);
    node->used[0] = node->used[0] > part ? node->used[0] - part : 0;
    common_limits_spend(node->common, &id, 0, -part, node->used[0], world->now_ns);
}

/* How full one bucket gets that sees every admission: 1 is the limit. */
static double highest(const struct world *world)
{
    double level = 0, most = 0;
    uint64_t at_ns = 0;

    for (size_t i = 0; i < world->n_admits; i++) {
        double sunk = (double)(world->admits[i].at_ns - at_ns) / (double)MINUTE_NS;

        level = level > sunk ? level - sunk : 0;
        level += world->admits[i].part;
        at_ns = world->admits[i].at_ns;
        most = level > most ? level : most;
    }
    return most;
}

/* per_s[i]: requests a second at router i. */
static void flood(struct world *world, const double per_s[N_ROUTERS], double part, uint64_t for_ns)
{
    uint64_t until_ns = world->now_ns + for_ns;

    while (world->now_ns < until_ns) {
        step(world);
        for (unsigned i = 0; i < N_ROUTERS; i++) {
            double n = per_s[i] * (double)STEP_NS / 1e9;

            for (; world->nodes[i].is_up && n > 0; n -= 1)
                if (n >= 1 || rng_unit(&world->rng) < n)
                    (void)ask(world, i, part);
        }
    }
}

static double total(const struct world *world)
{
    double sum = 0;

    for (size_t i = 0; i < world->n_admits; i++)
        sum += world->admits[i].part;
    return sum;
}

static void assert_between(double value, double least, double most)
{
    if (value < least || value > most)
        fail_msg("%g is not between %g and %g", value, least, most);
}

/* ---- tests ---- */

static void routers_keep_one_limit(void **state)
{
    static const uint64_t delays_ns[] = {1 * NS_PER_MS, 20 * NS_PER_MS, 200 * NS_PER_MS};
    static const double parts[] = {1.0 / 600, 1.0 / 60, 1.0 / 20};

    for (unsigned n = 1; n <= 3; n++)
        for (size_t i = 0; i < ARRAY_LEN(delays_ns); i++)
            for (size_t j = 0; j < ARRAY_LEN(parts); j++) {
                double per_s[N_ROUTERS] = {0};
                struct world world;

                begin(&world, n, delays_ns[i]);
                rest(&world, 6 * NS_PER_S);
                for (unsigned r = 0; r < n; r++)
                    per_s[r] = 50;
                flood(&world, per_s, parts[j], 120 * NS_PER_S);
                assert_int_equal(common_limits_n_routers(world.nodes[0].common), n);
                assert_between(highest(&world), 0.95 - parts[j],
                               (delays_ns[i] < 100 * NS_PER_MS ? 1.1 : 1.15) +
                                   (parts[j] > 0.02 ? parts[j] : 0));
                assert_between(total(&world), 2.8, 3.3); /* the bucket and two minutes */
                for (unsigned r = 1; r < n; r++)
                    assert_between(world.nodes[r].admitted / world.nodes[0].admitted, 0.7, 1.4);
                end(&world);
            }
}

static void one_busy_router_gets_the_whole_limit(void **state)
{
    const double per_s[N_ROUTERS] = {50};
    struct world world;

    begin(&world, 3, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    flood(&world, per_s, 1.0 / 100, 60 * NS_PER_S);
    assert_between(total(&world), 1.9, 2.05);
    assert_between(highest(&world), 0.95, 1.02);
    end(&world);
}

static void little_demand_beside_a_flood_is_served(void **state)
{
    const double per_s[N_ROUTERS] = {100, 1};
    struct world world;

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    flood(&world, per_s, 1.0 / 300, 180 * NS_PER_S);
    assert_between(highest(&world), 0.95, 1.06);
    assert_between(total(&world), 3.8, 4.1);
    /* it wants 0.2 of the limit a minute, and its equal part is 1/8 */
    assert_between(world.nodes[1].admitted / 3, 0.1, 0.21);
    end(&world);
}

static void a_killed_routers_share_returns(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct world world;
    double before;

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    flood(&world, both, 1.0 / 100, 60 * NS_PER_S);
    kill_router(&world, 1);
    flood(&world, both, 1.0 / 100, 3 * NS_PER_S);
    assert_int_equal(common_limits_n_routers(world.nodes[0].common), 1);
    before = world.nodes[0].admitted;
    flood(&world, both, 1.0 / 100, 60 * NS_PER_S);
    assert_between(world.nodes[0].admitted - before, 0.95, 1.03);
    assert_between(highest(&world), 0.95, 1.1);
    end(&world);
}

static void a_restarted_router_knows_how_full_the_limit_is(void **state)
{
    const double one[N_ROUTERS] = {50}, other[N_ROUTERS] = {0, 50};
    struct world world;

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    flood(&world, one, 1.0 / 100, 10 * NS_PER_S);
    rest(&world, 1 * NS_PER_S);
    kill_router(&world, 1);
    start(&world, 1);
    flood(&world, other, 1.0 / 100, 20 * NS_PER_S);
    assert_between(highest(&world), 0.9, 1.1);
    kill_router(&world, 0); /* both die, and only the workers know */
    kill_router(&world, 1);
    start(&world, 0);
    start(&world, 1);
    flood(&world, one, 1.0 / 100, 20 * NS_PER_S);
    assert_between(highest(&world), 0.9, 1.1);
    end(&world);
}

/* Each side goes on with its share, and the share is not counted twice when they meet again. */
static void a_partition_splits_the_limit(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct world world;
    double before[2];

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    flood(&world, both, 1.0 / 100, 60 * NS_PER_S);
    link_down(&world, 1, 0); /* router 0 with worker 0, router 1 with worker 1 */
    link_down(&world, 0, 1);
    flood(&world, both, 1.0 / 100, 30 * NS_PER_S);
    assert_int_equal(common_limits_n_cut(world.nodes[0].common) + common_limits_n_cut(world.nodes[1].common),
                     2);
    before[0] = world.nodes[0].admitted;
    before[1] = world.nodes[1].admitted;
    flood(&world, both, 1.0 / 100, 120 * NS_PER_S);
    assert_between((world.nodes[0].admitted - before[0]) / 2, 0.4, 0.6);
    assert_between((world.nodes[1].admitted - before[1]) / 2, 0.4, 0.6);
    assert_between(highest(&world), 0.95, 1.1);
    link_up(&world, 1, 0);
    link_up(&world, 0, 1);
    flood(&world, both, 1.0 / 100, 60 * NS_PER_S);
    assert_int_equal(common_limits_n_cut(world.nodes[0].common), 0);
    assert_between(highest(&world), 0.95, 1.1);
    end(&world);
}

static void what_is_given_back_is_there_for_all(void **state)
{
    struct world world;

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    assert_true(ask(&world, 0, 0.4));
    rest(&world, 1 * NS_PER_S);
    assert_true(ask(&world, 1, 0.3));
    rest(&world, 1 * NS_PER_S);
    assert_false(ask(&world, 1, 0.4));
    give_back(&world, 0, 0.39);
    rest(&world, 1 * NS_PER_S);
    assert_true(ask(&world, 1, 0.4));
    end(&world);
}

static void requests_at_once_are_common(void **state)
{
    struct world world;
    unsigned n = 0;

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    for (int i = 0; i < 400; i++) {
        struct node *node = &world.nodes[i % 2];
        struct common_id id = tenant_id(node);
        double level;

        step(&world);
        level = (double)(node->n_admitted + common_limits_elsewhere(node->common, &id)) / 10;
        if (!common_limits_may(node->common, &id, COMMON_CONCURRENT, 0.1, level, world.now_ns))
            continue;
        common_limits_spend(node->common, &id, COMMON_CONCURRENT, 0.1, 0, world.now_ns);
        node->n_admitted++;
        n++;
    }
    assert_between(n, 8, 10);
    end(&world);
}

/* One worker of two says what it likes: it may lower a limit, and never lift it. */
static void a_worker_that_lies_lifts_no_limit(void **state)
{
    const double both[N_ROUTERS] = {50, 50};
    struct world world;
    struct common_row row = {.id = {{0}}};
    struct common_message lie = {.rows = &row, .n_rows = 1};

    begin(&world, 2, 5 * NS_PER_MS);
    rest(&world, 6 * NS_PER_S);
    row.id = tenant_id(&world.nodes[0]);
    for (int second = 0; second < 180; second++) {
        flood(&world, both, 1.0 / 100, NS_PER_S);
        for (unsigned to = 0; to < 2; to++) {
            lie.router = rng_below(&world.rng, 4) == 0 ? rng_u64(&world.rng) : world.nodes[1 - to].epoch;
            lie.number = rng_below(&world.rng, 2) == 0 ? UINT64_MAX / 2 : 0;
            lie.window = (uint32_t)rng_below(&world.rng, 40);
            lie.is_snapshot = rng_below(&world.rng, 2) == 0;
            lie.acks[0] = (struct common_ack){world.nodes[to].epoch, UINT64_MAX / 2};
            lie.n_acks = 1;
            for (int kind = 0; kind < COMMON_KINDS; kind++) {
                row.spent[kind] = (float)(4 * rng_unit(&world.rng) - 4);
                row.before[kind] = -1e30f;
                row.level[kind] = second == 30 ? 1e30f : -1;
            }
            row.demand = rng_below(&world.rng, 2) == 0 ? 1e30f : -1e30f;
            (void)common_limits_hear(world.nodes[to].common, 1, &lie, world.now_ns);
        }
    }
    assert_between(highest(&world), 0, 1.1);
    end(&world);
}

static void memory_and_messages_are_bounded(void **state)
{
    struct world world;
    struct common_row row = {.demand = 1, .spent = {0.1f}};
    struct common_message message = {.number = 1, .rows = &row, .n_rows = 1};
    unsigned n_heard = 0, n_joined = 0;

    begin(&world, 1, 5 * NS_PER_MS);
    for (unsigned i = 0; i < 40000; i++) {
        message.router = 1000 + i % 40;
        memcpy(row.id.bytes, &i, sizeof(i));
        if (i % 500 == 0)
            world.now_ns += NS_PER_S;
        n_heard += common_limits_hear(world.nodes[0].common, 0, &message, world.now_ns);
        n_joined = common_limits_n_routers(world.nodes[0].common);
    }
    assert_int_equal(n_joined, 1 + COMMON_MAX_ROUTERS);
    assert_true(n_heard > 0 && n_heard < 40000);
    assert_int_equal(common_limits_n_accounts(world.nodes[0].common), COMMON_MAX_ACCOUNTS);
    for (n_heard = 0;
         n_heard < 10000 && common_limits_hear(world.nodes[0].common, 0, &message, world.now_ns);)
        n_heard++;
    assert_true(n_heard < 10000);
    end(&world);
}

/* Random routers that come, go and lose links; nothing may overshoot or crash. */
static void random_fleets(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        double per_s[N_ROUTERS];
        struct world world;

        begin(&world, 2, 5 * NS_PER_MS);
        rng_init(&world.rng, seed);
        rest(&world, 6 * NS_PER_S);
        for (int round = 0; round < 15; round++) {
            unsigned router = (unsigned)rng_below(&world.rng, 3),
                     worker = (unsigned)rng_below(&world.rng, N_WORKERS);

            for (unsigned i = 0; i < N_ROUTERS; i++)
                per_s[i] = (double)rng_below(&world.rng, 3) * 30;
            if (!world.nodes[router].is_up)
                start(&world, router);
            else if (rng_below(&world.rng, 4) == 0)
                kill_router(&world, router);
            else if (world.has_link[worker][router] && world.has_link[1 - worker][router])
                link_down(&world, worker, router);
            else if (!world.has_link[worker][router])
                link_up(&world, worker, router);
            flood(&world, per_s, 1.0 / 100, (1 + rng_below(&world.rng, 20)) * NS_PER_S);
        }
        assert_between(highest(&world), 0, 1.6); /* a partition begins in the middle of a lease */
        end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routers_keep_one_limit),
        cmocka_unit_test(one_busy_router_gets_the_whole_limit),
        cmocka_unit_test(little_demand_beside_a_flood_is_served),
        cmocka_unit_test(a_killed_routers_share_returns),
        cmocka_unit_test(a_restarted_router_knows_how_full_the_limit_is),
        cmocka_unit_test(a_partition_splits_the_limit),
        cmocka_unit_test(what_is_given_back_is_there_for_all),
        cmocka_unit_test(requests_at_once_are_common),
        cmocka_unit_test(a_worker_that_lies_lifts_no_limit),
        cmocka_unit_test(memory_and_messages_are_bounded),
        cmocka_unit_test(random_fleets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
