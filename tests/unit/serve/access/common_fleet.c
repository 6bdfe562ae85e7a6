/* SPDX-License-Identifier: Apache-2.0 */
#include "common_fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"

static const uint8_t shared_key[32] = {1, 2, 3};

struct common_id fleet_tenant(const struct node *node)
{
    struct common_id id;

    common_limits_id(node->common, true, bytes_str("team"), &id);
    return id;
}

static void fly(struct fleet *fleet, unsigned worker, unsigned to, const struct common_message *message)
{
    struct flight *flight;

    if (!fleet->has_link[worker][to] || !fleet->nodes[to].is_up || !fleet->has_sent[worker][to])
        return;
    assert_true(fleet->n_flights < MAX_FLIGHT);
    flight = &fleet->flights[fleet->n_flights++];
    flight->at_ns = fleet->now_ns + 2 * fleet->delay_ns;
    flight->to = to;
    flight->view = worker;
    flight->message = *message;
    assert_true(message->n_rows <= ARRAY_LEN(flight->rows));
    if (message->n_rows > 0)
        memcpy(flight->rows, message->rows, message->n_rows * sizeof(*message->rows));
}

static void relay_snapshot(struct fleet *fleet, unsigned worker, unsigned to)
{
    struct common_message end = {.router = 0};

    for (unsigned from = 0; from < N_ROUTERS; from++) {
        struct common_message message = fleet->kept[worker][from];

        if (message.router == 0 || message.router == fleet->nodes[to].epoch)
            continue;
        message.is_snapshot = true;
        message.is_gone = !fleet->has_link[worker][from] || !fleet->nodes[from].is_up ||
                          fleet->nodes[from].epoch != message.router;
        message.rows = fleet->kept_rows[worker][from];
        message.n_rows = message.n_rows > 0 ? 1 : 0;
        for (size_t i = 0; i < message.n_rows; i++)
            fleet->kept_rows[worker][from][i].age_ms =
                (uint32_t)((fleet->now_ns - fleet->kept_ns[worker][from]) / NS_PER_MS);
        fly(fleet, worker, to, &message);
    }
    fly(fleet, worker, to, &end);
}

static void relay(struct fleet *fleet, unsigned worker, unsigned from, const struct common_message *message)
{
    bool is_first = !fleet->has_sent[worker][from];
    size_t had_rows =
        fleet->kept[worker][from].router == message->router ? fleet->kept[worker][from].n_rows : 0;

    fleet->has_sent[worker][from] = true;
    fleet->kept[worker][from] = *message;
    fleet->kept[worker][from].n_rows = message->n_rows > 0 ? message->n_rows : had_rows;
    if (message->n_rows > 0) {
        memcpy(fleet->kept_rows[worker][from], message->rows, message->n_rows * sizeof(*message->rows));
        fleet->kept_ns[worker][from] = fleet->now_ns;
    }
    if (is_first)
        relay_snapshot(fleet, worker, from);
    for (unsigned to = 0; to < N_ROUTERS; to++)
        if (to != from)
            fly(fleet, worker, to, message);
}

static void relay_gone(struct fleet *fleet, unsigned worker, unsigned from)
{
    struct common_message message = {
        .router = fleet->nodes[from].epoch, .is_gone = true, .number = fleet->kept[worker][from].number};

    for (unsigned to = 0; to < N_ROUTERS; to++)
        if (to != from)
            fly(fleet, worker, to, &message);
}

void fleet_link_up(struct fleet *fleet, unsigned worker, unsigned router)
{
    fleet->has_link[worker][router] = true;
    common_limits_view_up(fleet->nodes[router].common, worker, 100 + worker);
}

void fleet_link_down(struct fleet *fleet, unsigned worker, unsigned router)
{
    fleet->has_link[worker][router] = fleet->has_sent[worker][router] = false;
    if (fleet->nodes[router].is_up)
        common_limits_view_down(fleet->nodes[router].common, worker, false, fleet->now_ns);
    relay_gone(fleet, worker, router);
}

void fleet_kill_worker(struct fleet *fleet, unsigned worker)
{
    for (unsigned router = 0; router < N_ROUTERS; router++) {
        if (fleet->has_link[worker][router] && fleet->nodes[router].is_up)
            common_limits_view_down(fleet->nodes[router].common, worker, true, fleet->now_ns);
        fleet->has_link[worker][router] = fleet->has_sent[worker][router] = false;
        memset(&fleet->kept[worker][router], 0, sizeof(fleet->kept[worker][router]));
    }
}

void fleet_start(struct fleet *fleet, unsigned router)
{
    struct node *node = &fleet->nodes[router];

    memset(node, 0, sizeof(*node));
    node->epoch = ++fleet->next_epoch;
    node->is_up = true;
    node->at_ns = fleet->now_ns;
    assert_int_equal(common_limits_new(node->epoch, shared_key, fleet->now_ns, &node->common), 0);
    for (unsigned worker = 0; worker < N_WORKERS; worker++)
        fleet_link_up(fleet, worker, router);
}

void fleet_kill_router(struct fleet *fleet, unsigned router)
{
    fleet->nodes[router].is_up = false;
    for (unsigned worker = 0; worker < N_WORKERS; worker++)
        if (fleet->has_link[worker][router])
            fleet_link_down(fleet, worker, router);
    common_limits_free(fleet->nodes[router].common);
    fleet->nodes[router].common = NULL;
}

void fleet_begin(struct fleet *fleet, unsigned n_routers, uint64_t delay_ns)
{
    memset(fleet, 0, sizeof(*fleet));
    fleet->now_ns = 1000 * NS_PER_S;
    fleet->delay_ns = delay_ns;
    fleet->flights = calloc(MAX_FLIGHT, sizeof(*fleet->flights));
    fleet->admits = calloc(MAX_ADMITS, sizeof(*fleet->admits));
    assert_non_null(fleet->flights);
    assert_non_null(fleet->admits);
    rng_init(&fleet->rng, 7);
    for (unsigned i = 0; i < n_routers; i++)
        fleet_start(fleet, i);
}

void fleet_end(struct fleet *fleet)
{
    for (unsigned i = 0; i < N_ROUTERS; i++)
        common_limits_free(fleet->nodes[i].common);
    free(fleet->flights);
    free(fleet->admits);
}

static void deliver(struct fleet *fleet)
{
    size_t n = fleet->n_flights, kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct flight *flight = &fleet->flights[i];
        struct node *node = &fleet->nodes[flight->to];

        if (flight->at_ns > fleet->now_ns) {
            if (kept != i)
                fleet->flights[kept] = *flight;
            kept++;
            continue;
        }
        flight->message.rows = flight->rows;
        if (node->is_up && fleet->has_link[flight->view][flight->to])
            assert_true(common_limits_receive(node->common, flight->view, &flight->message, fleet->now_ns));
    }
    fleet->n_flights = kept;
}

static void tick(struct fleet *fleet)
{
    for (unsigned i = 0; i < N_ROUTERS; i++) {
        struct node *node = &fleet->nodes[i];
        struct common_row rows[COMMON_MAX_ROWS];
        struct common_message message;
        uint64_t router;

        if (!node->is_up)
            continue;
        while (common_limits_tick(node->common, fleet->now_ns, &router) != COMMON_NONE)
            ;
        if (common_limits_next_message(node->common, fleet->now_ns, rows, &message))
            for (unsigned worker = 0; worker < N_WORKERS; worker++)
                if (fleet->has_link[worker][i])
                    relay(fleet, worker, i, &message);
    }
}

void fleet_step(struct fleet *fleet)
{
    fleet->now_ns += STEP_NS;
    deliver(fleet);
    if (fleet->now_ns < fleet->next_tick_ns)
        return;
    fleet->next_tick_ns = fleet->now_ns + TICK_NS;
    tick(fleet);
}

void fleet_rest(struct fleet *fleet, uint64_t for_ns)
{
    for (uint64_t until_ns = fleet->now_ns + for_ns; fleet->now_ns < until_ns;)
        fleet_step(fleet);
}

static void catch_up(struct fleet *fleet, struct node *node)
{
    struct common_id id = fleet_tenant(node);
    double parts[COMMON_KINDS];

    common_limits_take(node->common, &id, fleet->now_ns, parts);
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        double sunk = (double)(fleet->now_ns - node->at_ns) / (double)MINUTE_NS;

        node->used[kind] = node->used[kind] > sunk ? node->used[kind] - sunk : 0;
        node->used[kind] += parts[kind];
        if (node->used[kind] < 0)
            node->used[kind] = 0;
    }
    node->at_ns = fleet->now_ns;
}

static bool ask_kind(struct fleet *fleet, unsigned router, int kind, double part)
{
    struct node *node = &fleet->nodes[router];
    struct common_id id = fleet_tenant(node);

    catch_up(fleet, node);
    common_limits_want(node->common, &id, part, fleet->now_ns);
    if (!common_limits_may(node->common, &id, &(struct common_use){kind, part, node->used[kind]},
                           fleet->now_ns)) {
        node->n_refused++;
        return false;
    }
    node->used[kind] += part;
    common_limits_spend(node->common, &id, &(struct common_use){kind, part, node->used[kind]}, fleet->now_ns);
    node->n_admitted++;
    node->admitted += part;
    assert_true(fleet->n_admits < MAX_ADMITS);
    fleet->admits[fleet->n_admits++] = (struct admit){fleet->now_ns, part};
    return true;
}

bool fleet_ask(struct fleet *fleet, unsigned router, double part)
{
    return ask_kind(fleet, router, 0, part);
}

void fleet_give_back(struct fleet *fleet, unsigned router, double part)
{
    struct node *node = &fleet->nodes[router];
    struct common_id id = fleet_tenant(node);

    catch_up(fleet, node);
    node->used[0] = node->used[0] > part ? node->used[0] - part : 0;
    common_limits_spend(node->common, &id, &(struct common_use){0, -part, node->used[0]}, fleet->now_ns);
}

double fleet_highest(const struct fleet *fleet)
{
    double level = 0, most = 0;
    uint64_t at_ns = 0;

    for (size_t i = 0; i < fleet->n_admits; i++) {
        double sunk = (double)(fleet->admits[i].at_ns - at_ns) / (double)MINUTE_NS;

        level = level > sunk ? level - sunk : 0;
        level += fleet->admits[i].part;
        at_ns = fleet->admits[i].at_ns;
        most = level > most ? level : most;
    }
    return most;
}

void fleet_flood(struct fleet *fleet, const double per_s[N_ROUTERS], double part, uint64_t for_ns)
{
    uint64_t until_ns = fleet->now_ns + for_ns;

    while (fleet->now_ns < until_ns) {
        fleet_step(fleet);
        for (unsigned i = 0; i < N_ROUTERS; i++) {
            double n = per_s[i] * (double)STEP_NS / 1e9;

            for (; fleet->nodes[i].is_up && n > 0; n -= 1)
                if (n >= 1 || rng_unit(&fleet->rng) < n)
                    (void)fleet_ask(fleet, i, part);
        }
    }
}

double fleet_total(const struct fleet *fleet)
{
    double sum = 0;

    for (size_t i = 0; i < fleet->n_admits; i++)
        sum += fleet->admits[i].part;
    return sum;
}
