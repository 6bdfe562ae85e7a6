/* SPDX-License-Identifier: Apache-2.0 */
/* Sends this router's spending of its accounts' limits to the other routers, through workers that relay it.
 *
 *    serve/access/common_limits --a message each tick--> SPENDING to the views --> worker/loop/spending --> other routers
 *                               <--hear------------- SPENDING <-----------------------------------------'
 *
 * The routers' shared store, if there is one, is a view as well (state.c).
 *
 * A view is a connected worker that relays.  The router takes the four workers with the lowest digests of their
 * names, so routers with the same workers choose the same views. */
#include "fleet/router/spending_priv.h"
#include "fleet/router/state_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "serve/access/common_limits.h"

#define MAX_NAMES 32 /* of other routers, for the log; a new one replaces the oldest */

_Static_assert(COMMON_MAX_ROWS == FRAME_SPENDING_ROWS && COMMON_KINDS <= FRAME_SPENDING_KINDS &&
                   COMMON_ID_BYTES == FRAME_SPENDING_ID && COMMON_MAX_ROUTERS == FRAME_SPENDING_ACKS,
               "the wire and the limits count alike");

struct spending_name {
    uint64_t epoch;
    char node[64];
};

struct router_spending {
    struct common_limits *common;
    uint32_t views[COMMON_WORKER_VIEWS]; /* slots of workers; PICKER_NONE: free */
    struct spending_name names[MAX_NAMES];
    unsigned next_name;
    struct common_row rows[COMMON_MAX_ROWS];
    struct metric *m_routers, *m_cut, *m_accounts, *m_ignored;
};

int router_spending_open(struct router *router, const uint8_t key[32])
{
    struct router_spending *spending = calloc(1, sizeof(*spending));
    struct metrics *m = router->metrics;

    if (spending == NULL || common_limits_new(router->epoch, key, clock_now_ns(), &spending->common) < 0) {
        free(spending);
        return E_NOMEM;
    }
    for (unsigned view = 0; view < COMMON_WORKER_VIEWS; view++)
        spending->views[view] = PICKER_NONE;
    spending->m_routers =
        metric_single(m, METRIC_GAUGE, "baton_limits_routers",
                      "Routers that keep the limits of API keys together, this one included.");
    spending->m_cut =
        metric_single(m, METRIC_GAUGE, "baton_limits_routers_cut",
                      "Of these, routers that may live beyond a partition: each side keeps its share.");
    spending->m_accounts =
        metric_single(m, METRIC_GAUGE, "baton_limits_accounts",
                      "Limited keys and tenants that routers reported to each other lately.");
    spending->m_ignored =
        metric_single(m, METRIC_COUNTER, "baton_limits_ignored_total",
                      "Messages about limits that were ignored: too many, or of too many routers.");
    router->spending = spending;
    return 0;
}

void router_spending_close(struct router *router)
{
    if (router->spending != NULL)
        common_limits_free(router->spending->common);
    free(router->spending);
    router->spending = NULL;
}

struct common_limits *router_spending_common(const struct router *router)
{
    return router->spending == NULL ? NULL : router->spending->common;
}

/* ---- messages ---- */

static void spending_row_put(struct common_row *row, Baton__SpendingRow *out)
{
    baton__spending_row__init(out);
    out->account = (ProtobufCBinaryData){.data = row->id.bytes, .len = sizeof(row->id.bytes)};
    out->level = row->level;
    out->spent = row->spent;
    out->before = row->before;
    out->n_level = out->n_spent = out->n_before = COMMON_KINDS;
    out->demand = row->demand;
    out->running = row->n_running;
}

static void send_spending(struct router *router)
{
    struct router_spending *spending = router->spending;
    Baton__SpendingRow rows[COMMON_MAX_ROWS], *row_list[COMMON_MAX_ROWS];
    Baton__SpendingAck acks[COMMON_MAX_ROUTERS], *ack_list[COMMON_MAX_ROUTERS];
    Baton__Spending out = BATON__SPENDING__INIT;
    struct common_message message;

    if (!common_limits_next_message(spending->common, clock_now_ns(), spending->rows, &message))
        return;
    out.number = message.number;
    out.window = message.window;
    out.rows = row_list;
    out.acks = ack_list;
    for (; out.n_rows < message.n_rows; out.n_rows++) {
        spending_row_put(&spending->rows[out.n_rows], &rows[out.n_rows]);
        row_list[out.n_rows] = &rows[out.n_rows];
    }
    for (; out.n_acks < message.n_acks; out.n_acks++) {
        baton__spending_ack__init(&acks[out.n_acks]);
        acks[out.n_acks].router = message.acks[out.n_acks].router;
        acks[out.n_acks].number = message.acks[out.n_acks].number;
        ack_list[out.n_acks] = &acks[out.n_acks];
    }
    for (unsigned view = 0; view < COMMON_WORKER_VIEWS; view++)
        if (spending->views[view] != PICKER_NONE)
            (void)router_send(router, spending->views[view], FRAME_SPENDING, &out.base);
    router_state_send_spending(router, &out);
}

static struct spending_name *name_of(struct router_spending *spending, uint64_t epoch)
{
    for (unsigned i = 0; i < MAX_NAMES; i++)
        if (spending->names[i].epoch == epoch)
            return &spending->names[i];
    return NULL;
}

static void learn_name(struct router_spending *spending, const Baton__Spending *received)
{
    struct spending_name *name = name_of(spending, received->router);

    if (name == NULL) {
        name = &spending->names[spending->next_name++ % MAX_NAMES];
        name->epoch = received->router;
    }
    str_copy(name->node, sizeof(name->node), received->node);
}

static void copy_parts(float out[COMMON_KINDS], const float *parts, size_t n)
{
    memcpy(out, parts, (n < COMMON_KINDS ? n : COMMON_KINDS) * sizeof(*out));
}

void router_spending_read_row(const Baton__SpendingRow *received, struct common_row *out)
{
    *out = (struct common_row){
        .demand = received->demand, .n_running = received->running, .age_ms = received->age_ms};
    memcpy(out->id.bytes, received->account.data, sizeof(out->id.bytes));
    if (received->n_level > 0)
        copy_parts(out->level, received->level, received->n_level);
    if (received->n_spent > 0)
        copy_parts(out->spent, received->spent, received->n_spent);
    if (received->n_before > 0)
        copy_parts(out->before, received->before, received->n_before);
}

static void spending_receive(struct router *router, unsigned view, const Baton__Spending *received)
{
    struct router_spending *spending = router->spending;
    struct common_message message = {.router = received->router,
                                     .number = received->number,
                                     .window = received->window,
                                     .is_gone = received->is_gone,
                                     .is_snapshot = received->is_snapshot};

    message.rows = spending->rows;
    for (; message.n_rows < received->n_rows; message.n_rows++)
        router_spending_read_row(received->rows[message.n_rows], &spending->rows[message.n_rows]);
    for (; message.n_acks < received->n_acks; message.n_acks++)
        message.acks[message.n_acks] = (struct common_ack){received->acks[message.n_acks]->router,
                                                           received->acks[message.n_acks]->number};
    if (received->router != 0)
        learn_name(spending, received);
    if (!common_limits_receive(spending->common, view, &message, clock_now_ns()))
        metric_add(spending->m_ignored, 1);
}

void router_spending_receive(struct router *router, uint32_t slot, const Baton__Spending *received)
{
    struct router_spending *spending = router->spending;
    unsigned view = 0;

    while (spending != NULL && view < COMMON_WORKER_VIEWS && spending->views[view] != slot)
        view++;
    if (spending != NULL && view < COMMON_WORKER_VIEWS) /* otherwise it no longer relays for this router */
        spending_receive(router, view, received);
}

/* ---- the shared store ---- */

void router_spending_receive_store(struct router *router, const Baton__Spending *received)
{
    if (router->spending != NULL)
        spending_receive(router, COMMON_STORE_VIEW, received);
}

void router_spending_receive_history(struct router *router, const struct common_message *message)
{
    if (router->spending != NULL)
        (void)common_limits_receive(router->spending->common, COMMON_STORE_VIEW, message, clock_now_ns());
}

void router_spending_store_up(struct router *router, bool is_up)
{
    struct router_spending *spending = router->spending;

    if (spending == NULL)
        return;
    if (is_up)
        common_limits_view_up(spending->common, COMMON_STORE_VIEW, str_digest("store"));
    else
        common_limits_view_down(spending->common, COMMON_STORE_VIEW, false, clock_now_ns());
}

void router_spending_silent(struct router *router, uint64_t epoch, bool is_over)
{
    const struct common_message message = {.router = epoch, .is_gone = true, .is_silent = !is_over};

    if (router->spending != NULL)
        (void)common_limits_receive(router->spending->common, COMMON_STORE_VIEW, &message, clock_now_ns());
}

void router_spending_tick(struct router *router)
{
    struct router_spending *spending = router->spending;
    enum common_change change;
    uint64_t epoch;

    if (spending == NULL)
        return;
    while ((change = common_limits_tick(spending->common, clock_now_ns(), &epoch)) != COMMON_NONE) {
        const struct spending_name *name = name_of(spending, epoch);
        const char *node = name != NULL ? name->node : "";

        if (change == COMMON_CUT)
            log_warn("limits_router_cut", LOG_STR("node", node),
                     LOG_STR("reason", "it went away with its last worker: its share is kept"));
        else
            log_info(change == COMMON_JOINED ? "limits_router_joined"
                     : change == COMMON_LEFT ? "limits_router_left"
                                             : "limits_router_back",
                     LOG_STR("node", node));
    }
    metric_set(spending->m_routers, common_limits_n_routers(spending->common));
    metric_set(spending->m_cut, common_limits_n_cut(spending->common));
    metric_set(spending->m_accounts, common_limits_n_accounts(spending->common));
    send_spending(router);
}

/* ---- views ---- */

static uint64_t spending_rank_of(const struct router *router, uint32_t slot)
{
    return str_digest(router->workers[slot].node);
}

static bool spending_can_relay(const struct router *router, uint32_t slot)
{
    const struct router_worker *worker = &router->workers[slot];

    return worker->is_taken && worker->link != NULL && link_is_up(worker->link) &&
           (worker->capabilities & CAPABILITY_SPENDING) != 0;
}

static void view_take(struct router *router, unsigned view, uint32_t slot)
{
    struct router_spending *spending = router->spending;

    if (spending->views[view] != PICKER_NONE)
        common_limits_view_down(spending->common, view, false, clock_now_ns());
    spending->views[view] = slot;
    common_limits_view_up(spending->common, view, spending_rank_of(router, slot));
    send_spending(router); /* asks for the snapshot */
}

void router_spending_worker_up(struct router *router, uint32_t slot)
{
    struct router_spending *spending = router->spending;
    unsigned worst = 0;

    if (spending == NULL || !spending_can_relay(router, slot))
        return;
    for (unsigned view = 0; view < COMMON_WORKER_VIEWS; view++) {
        if (spending->views[view] == slot)
            return;
        if (spending->views[worst] == PICKER_NONE)
            continue;
        if (spending->views[view] == PICKER_NONE || spending_rank_of(router, spending->views[view]) >
                                                        spending_rank_of(router, spending->views[worst]))
            worst = view;
    }
    if (spending->views[worst] == PICKER_NONE ||
        spending_rank_of(router, slot) < spending_rank_of(router, spending->views[worst]))
        view_take(router, worst, slot);
}

static bool spending_is_view(const struct router_spending *spending, uint32_t slot)
{
    for (unsigned view = 0; view < COMMON_WORKER_VIEWS; view++)
        if (spending->views[view] == slot)
            return true;
    return false;
}

void router_spending_worker_down(struct router *router, uint32_t slot, bool has_ended)
{
    struct router_spending *spending = router->spending;
    uint32_t best = PICKER_NONE;
    unsigned view = 0;

    while (spending != NULL && view < COMMON_WORKER_VIEWS && spending->views[view] != slot)
        view++;
    if (spending == NULL || view == COMMON_WORKER_VIEWS)
        return;
    common_limits_view_down(spending->common, view, has_ended, clock_now_ns());
    spending->views[view] = PICKER_NONE;
    for (uint32_t i = 0; i < PICKER_MAX_WORKERS; i++)
        if (spending_can_relay(router, i) && !spending_is_view(spending, i) &&
            (best == PICKER_NONE || spending_rank_of(router, i) < spending_rank_of(router, best)))
            best = i;
    if (best != PICKER_NONE)
        view_take(router, view, best);
}
