/* SPDX-License-Identifier: Apache-2.0 */
/* `batonctl check`: tests the connections between all daemons.
 *
 *    batonctl --POST /admin/check--> router --PROBE--> each worker
 *             <--GET /admin/check--         <--PROBED--  (or nothing within five seconds)
 *
 * The targets are the router's link port, and the link and KV ports of the first 64 connected workers.  Each of
 * these workers connects to all targets, so its answer is one row of a table.  Workers do not dial targets of
 * another host on loopback or 0.0.0.0, because they would reach themselves.  From the answers the router computes
 * the clock difference: the worker's time at the arrival of PROBE, less the router's time of sending it, less half
 * of the link's round trip. */
#include "fleet/router/check_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "net/link/addr.h"

#define CHECK_MAX_WORKERS 64
#define CHECK_MAX_TARGETS (1 + 2 * CHECK_MAX_WORKERS)
#define CHECK_WAIT_NS     (5 * NS_PER_S)

_Static_assert(CHECK_MAX_TARGETS <= FRAME_PROBE_ADDRESSES, "one PROBE names all targets");

struct check_target {
    char node[64]; /* "" the router */
    char address[128];
    bool is_kv, is_loopback;
    uint64_t host;
};

struct check_found {
    Baton__ProbeOutcome outcome;
    uint32_t rtt_us, mtu;
};

struct check_row {
    char node[64];
    uint32_t slot;
    uint64_t host, epoch;
    bool is_asked, is_answered; /* not asked: a worker of an older version */
    uint64_t sent_unix_ns;
    int64_t skew_ns;                  /* of its clock to ours */
    uint8_t asked[CHECK_MAX_TARGETS]; /* [n_asked]: indices of targets */
    unsigned n_asked;
    struct check_found found[CHECK_MAX_TARGETS]; /* by target */
};

struct router_check {
    uint64_t number, began_ns;
    unsigned n_rows, n_targets, n_left_out;
    struct check_target targets[CHECK_MAX_TARGETS];
    struct check_row rows[CHECK_MAX_WORKERS];
};

static void check_add_target(struct router_check *check, const char *node, const char *address, uint64_t host,
                             bool is_kv)
{
    struct check_target *target = &check->targets[check->n_targets];
    struct addr addr;

    if (addr_parse(address, NULL, &addr) != 0 || addr.port == 0)
        return; /* no KV over TCP */
    if (node[0] == '\0' && addr_is_any(&addr))
        return; /* workers dial link.routers; this address cannot be dialled */
    *target = (struct check_target){
        .host = host, .is_kv = is_kv, .is_loopback = addr_is_loopback(&addr) || addr_is_any(&addr)};
    (void)str_copy(target->node, sizeof(target->node), node);
    (void)str_copy(target->address, sizeof(target->address), address);
    check->n_targets++;
}

static bool check_is_up(const struct router_worker *worker)
{
    return worker->is_taken && worker->link != NULL && link_is_up(worker->link);
}

static void check_fill(struct router *router, struct router_check *check)
{
    const char *own = router->conf->link_advertise;

    check_add_target(check, "", own[0] != '\0' ? own : router->link_address, 0, false);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        const struct router_worker *worker = &router->workers[slot];
        struct check_row *row = &check->rows[check->n_rows];

        if (!check_is_up(worker))
            continue;
        if (check->n_rows == CHECK_MAX_WORKERS) {
            check->n_left_out++;
            continue;
        }
        check->n_rows++;
        (void)str_copy(row->node, sizeof(row->node), worker->node);
        row->slot = slot;
        row->host = worker->host;
        row->epoch = worker->epoch;
        check_add_target(check, worker->node, worker->link_address, worker->host, false);
        check_add_target(check, worker->node, worker->kv_address, worker->host, true);
    }
}

static void check_ask(struct router *router, struct router_check *check, struct check_row *row)
{
    Baton__Probe probe = BATON__PROBE__INIT;
    char *addresses[CHECK_MAX_TARGETS];

    if ((router->workers[row->slot].capabilities & CAPABILITY_PROBES) == 0)
        return;
    for (unsigned i = 0; i < check->n_targets; i++) {
        struct check_target *target = &check->targets[i];

        if (target->is_loopback && target->host != row->host && target->host != 0)
            continue; /* the worker would reach itself */
        row->asked[row->n_asked] = (uint8_t)i;
        addresses[row->n_asked++] = target->address;
    }
    probe.number = check->number;
    probe.addresses = addresses;
    probe.n_addresses = row->n_asked;
    row->sent_unix_ns = clock_unix_ns();
    row->is_asked = router_send(router, row->slot, FRAME_PROBE, &probe.base) == 0;
}

static bool check_is_running(const struct router_check *check)
{
    if (clock_now_ns() - check->began_ns >= CHECK_WAIT_NS)
        return false;
    for (unsigned i = 0; i < check->n_rows; i++)
        if (check->rows[i].is_asked && !check->rows[i].is_answered)
            return true;
    return false;
}

int router_check_begin(struct router *router, struct fault *fault)
{
    struct router_check *check = router->check;
    uint64_t number = check != NULL ? check->number + 1 : 1;

    if (check != NULL && check_is_running(check))
        return fault_set(fault, E_AGAIN, "a check runs already; it ends within five seconds");
    if (check == NULL)
        check = malloc(sizeof(*check));
    if (check == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    router->check = check;
    memset(check, 0, sizeof(*check));
    check->number = number;
    check->began_ns = clock_now_ns();
    check_fill(router, check);
    for (unsigned i = 0; i < check->n_rows; i++)
        check_ask(router, check, &check->rows[i]);
    return 0;
}

void router_check_receive(struct router *router, uint32_t slot, const Baton__Probed *probed)
{
    struct router_check *check = router->check;

    if (check == NULL || probed->number != check->number)
        return;
    for (unsigned i = 0; i < check->n_rows; i++) {
        struct check_row *row = &check->rows[i];
        const struct router_worker *worker = &router->workers[slot];

        if (row->slot != slot || row->epoch != worker->epoch || !row->is_asked || row->is_answered)
            continue;
        row->is_answered = true;
        row->skew_ns = (int64_t)(probed->clock_unix_ns - row->sent_unix_ns - link_rtt_ns(worker->link) / 2);
        for (unsigned j = 0; j < row->n_asked && j < probed->n_results; j++)
            row->found[row->asked[j]] = (struct check_found){.outcome = probed->results[j]->outcome,
                                                             .rtt_us = probed->results[j]->rtt_us,
                                                             .mtu = probed->results[j]->mtu};
    }
}

static void check_put_head(const struct router_check *check, struct buf *out)
{
    (void)buf_printf(
        out, "{\"number\": %" PRIu64 ", \"running\": %s, \"left_out\": %u, \"rows\": %u, \"targets\": [",
        check->number, check_is_running(check) ? "true" : "false", check->n_left_out, check->n_rows);
    for (unsigned i = 0; i < check->n_targets; i++) {
        const struct check_target *target = &check->targets[i];

        (void)buf_append_str(out, i > 0 ? ", {\"node\": " : "{\"node\": ");
        (void)json_put_str(out, bytes_str(target->node));
        (void)buf_append_str(out, ", \"address\": ");
        (void)json_put_str(out, bytes_str(target->address));
        (void)buf_printf(out, ", \"kv\": %s, \"loopback\": %s}", target->is_kv ? "true" : "false",
                         target->is_loopback ? "true" : "false");
    }
    (void)buf_append_str(out, "]}\n");
}

static void check_put_row(const struct router_check *check, const struct check_row *row, struct buf *out)
{
    (void)buf_append_str(out, "{\"node\": ");
    (void)json_put_str(out, bytes_str(row->node));
    (void)buf_printf(out, ", \"asked\": %s, \"answered\": %s, \"skew_ms\": %.3f, \"found\": [",
                     row->is_asked ? "true" : "false", row->is_answered ? "true" : "false",
                     (double)row->skew_ns / 1e6);
    for (unsigned i = 0; i < check->n_targets; i++) /* outcome, round trip in us, MTU */
        (void)buf_printf(out, "%s[%d, %u, %u]", i > 0 ? ", " : "", (int)row->found[i].outcome,
                         row->found[i].rtt_us, row->found[i].mtu);
    (void)buf_append_str(out, "]}\n");
}

int router_check_json(struct router *router, int32_t row, struct buf *out)
{
    const struct router_check *check = router->check;

    if (check == NULL || row >= (int32_t)check->n_rows)
        return E_NOT_FOUND;
    if (row < 0)
        check_put_head(check, out);
    else
        check_put_row(check, &check->rows[row], out);
    return out->is_bad ? E_NOMEM : 0;
}

void router_check_free(struct router *router)
{
    free(router->check);
    router->check = NULL;
}
