/* SPDX-License-Identifier: Apache-2.0 */
/* The other routers, and the views that relay their messages.
 *
 *    FREE --message--> LIVE --no view has a link to it--> GONE --two seconds--> FREE
 *                       ^ |                                |
 *                       | '-- its last view went down --> LOST --ten minutes--> FREE
 *                       '-------------message-------------'
 *
 * When a view or a router goes away, one counter changes (n_gone, lives, n_cuts).  Each struct common_report keeps
 * copies of these counters and catches up at its next use (common_reports.c).  Those of a router that left are freed
 * in slices. */
#include "serve/access/common_limits_priv.h"

#define GONE_NS            (2 * NS_PER_S)
#define LOST_NS            (600 * NS_PER_S)
#define CUT_NS             (10 * NS_PER_S) /* from the loss of a view: a router gone meanwhile is lost */
#define START_NS           (5 * NS_PER_S)  /* grace period without a relaying worker */
#define MAX_MESSAGES_PER_S 512u            /* of one view */
#define FREE_SLICE         256             /* structs of routers that left, freed in one tick: 20 us */

static bool router_is_up(const struct common_limits *common, const struct common_router *router)
{
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (common->is_view_up[view] && router->views[view].is_up)
            return true;
    return false;
}

bool common_view_speaks(const struct common_limits *common, const struct common_router *router, unsigned view,
                        uint64_t now_ns)
{
    return common->is_view_up[view] && router->views[view].is_up &&
           now_ns < router->views[view].received_ns + COMMON_SILENT_NS;
}

/* The slowest of its views counts, as long as that view sends messages. */
static uint64_t common_router_acked_by(const struct common_limits *common, const struct common_router *router,
                                       uint64_t now_ns)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (unsigned view = 0; view < COMMON_VIEWS; view++) {
        uint64_t acked = router->views[view].acked;

        most = acked > most ? acked : most;
        if (common_view_speaks(common, router, view, now_ns) && acked < least)
            least = acked;
    }
    return least < most ? least : most;
}

uint64_t common_router_number(const struct common_limits *common, const struct common_router *router,
                              uint64_t now_ns)
{
    uint64_t least = UINT64_MAX;

    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (common_view_speaks(common, router, view, now_ns) && router->views[view].number < least)
            least = router->views[view].number;
    return least != UINT64_MAX ? least : 0;
}

uint64_t common_acked(const struct common_limits *common, uint64_t now_ns)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        if (common->routers[i].state == COMMON_ROUTER_FREE)
            continue;
        uint64_t acked = common_router_acked_by(common, &common->routers[i], now_ns);

        least = acked < least ? acked : least;
    }
    return least;
}

static void router_enter(struct common_limits *common, struct common_router *router,
                         enum common_router_state state, uint64_t now_ns)
{
    unsigned index = (unsigned)(router - common->routers);

    if (state == router->state)
        return;
    if (state == COMMON_ROUTER_LIVE)
        router->change = router->state == COMMON_ROUTER_FREE   ? COMMON_JOINED
                         : router->state == COMMON_ROUTER_LOST ? COMMON_BACK
                                                               : router->change;
    if (state == COMMON_ROUTER_LOST) {
        router->change = COMMON_CUT;
        common->n_cuts[index]++;
    }
    if (state == COMMON_ROUTER_FREE) {
        router->change = COMMON_LEFT;
        common->n_others--;
        common->lives[index]++;
        common_reports_stale(common, index);
    }
    common->n_others += router->state == COMMON_ROUTER_FREE;
    router->state = state;
    router->since_ns = now_ns;
}

static struct common_router *common_router_of(struct common_limits *common, uint64_t epoch)
{
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        if (common->routers[i].state != COMMON_ROUTER_FREE && common->routers[i].epoch == epoch)
            return &common->routers[i];
    return NULL;
}

/* NULL: too many routers.  A slot stays taken until its router's departure is reported. */
static struct common_router *common_router_add(struct common_limits *common, uint64_t epoch, uint64_t now_ns)
{
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];

        if (router->state != COMMON_ROUTER_FREE || router->change != COMMON_NONE)
            continue;
        *router = (struct common_router){.epoch = epoch};
        router_enter(common, router, COMMON_ROUTER_LIVE, now_ns);
        return router;
    }
    return NULL;
}

static void router_look(struct common_limits *common, struct common_router *router, uint64_t now_ns)
{
    bool is_up = router_is_up(common, router);

    router->speaking = 0;
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        router->speaking |= common_view_speaks(common, router, view, now_ns) ? 1u << view : 0;
    switch (router->state) {
    case COMMON_ROUTER_FREE:
        return;
    case COMMON_ROUTER_LIVE:
        if (!is_up)
            router_enter(common, router,
                         router->cut_ns != 0 && now_ns < router->cut_ns + CUT_NS ? COMMON_ROUTER_LOST
                                                                                 : COMMON_ROUTER_GONE,
                         now_ns);
        return;
    case COMMON_ROUTER_GONE:
    case COMMON_ROUTER_LOST:
        if (is_up)
            router_enter(common, router, COMMON_ROUTER_LIVE, now_ns);
        else if (now_ns > router->since_ns + (router->state == COMMON_ROUTER_GONE ? GONE_NS : LOST_NS))
            router_enter(common, router, COMMON_ROUTER_FREE, now_ns);
    }
}

enum common_change common_limits_tick(struct common_limits *common, uint64_t now_ns, uint64_t *router_out)
{
    common->is_synced |= now_ns >= common->started_ns + START_NS;
    common_reports_free_stale(common, FREE_SLICE);
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];
        enum common_change change;

        router_look(common, router, now_ns);
        change = router->change;
        router->change = COMMON_NONE;
        if (change == COMMON_NONE)
            continue;
        *router_out = router->epoch;
        return change;
    }
    return COMMON_NONE;
}

uint32_t common_limits_n_cut(const struct common_limits *common)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        n += common->routers[i].state == COMMON_ROUTER_LOST;
    return n;
}

/* ---- views ---- */

void common_limits_view_up(struct common_limits *common, unsigned view, uint64_t node)
{
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        common->routers[i].views[view] = (struct common_view){.is_up = false};
    common->is_view_up[view] = common->is_in_snapshot[view] = true;
    common->nodes[view] = node;
    common->sent_ns = 0; /* send the next message at once */
    if (view != COMMON_STORE_VIEW)
        return;
    /* Messages sent while the store was failing may be lost. */
    list_for_each (entry, &common->accounts)
        common_account_busy(common, container_of(entry, struct common_account, node), true);
}

/* True if another view has reported the router too. */
static bool router_is_reported(const struct common_limits *common, const struct common_router *router,
                               unsigned view)
{
    for (unsigned i = 0; i < COMMON_VIEWS; i++)
        if (i != view && common->is_view_up[i] && router->views[i].received_ns != 0)
            return true;
    return false;
}

void common_limits_view_down(struct common_limits *common, unsigned view, bool has_ended, uint64_t now_ns)
{
    common->is_view_up[view] = false;
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];

        if (router->state == COMMON_ROUTER_FREE || !router->views[view].is_up)
            continue;
        router->views[view].is_up = false;
        if (has_ended && router_is_reported(common, router, view))
            continue; /* the other views say whether it is gone */
        router->cut_ns = now_ns;
        router->cut_node = common->nodes[view];
    }
    common->n_gone[view] = ++common->n_ends;
}

/* Handles the end of a worker's snapshot.  A router that was lost with this worker, and is not in the
 * snapshot, has ended. */
static void view_is_complete(struct common_limits *common, unsigned view, uint64_t now_ns)
{
    common->is_synced = true;
    common->is_in_snapshot[view] = false;
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];

        if (router->state == COMMON_ROUTER_LOST && router->cut_node == common->nodes[view] &&
            !router->views[view].is_up)
            router_enter(common, router, COMMON_ROUTER_GONE, now_ns);
    }
}

/* ---- messages ---- */

static bool view_sends_too_much(struct common_limits *common, unsigned view, uint64_t now_ns)
{
    if (now_ns >= common->received_second_ns[view] + NS_PER_S) {
        common->received_second_ns[view] = now_ns;
        common->n_received[view] = 0;
    }
    return ++common->n_received[view] > MAX_MESSAGES_PER_S;
}

static void common_router_receive(struct common_limits *common, struct common_router *router, unsigned view,
                                  const struct common_message *message, uint64_t now_ns)
{
    struct common_view *report = &router->views[view];

    report->is_up = !message->is_gone;
    report->received_ns = now_ns;
    report->window = message->window;
    report->number = message->number > report->number ? message->number : report->number;
    for (size_t i = 0; i < message->n_acks && i < COMMON_MAX_ROUTERS; i++)
        if (message->acks[i].router == common->self && message->acks[i].number > report->acked)
            report->acked = message->acks[i].number;
    router->owes_ack |= message->n_rows > 0 && !message->is_gone;
    if (message->is_silent && !router_is_reported(common, router, view)) {
        router->cut_ns = now_ns;
        router->cut_node = common->nodes[view];
    }
    router_look(common, router, now_ns);
}

bool common_limits_receive(struct common_limits *common, unsigned view, const struct common_message *message,
                           uint64_t now_ns)
{
    struct common_router *router;

    if (view_sends_too_much(common, view, now_ns))
        return false;
    if (message->router == 0) {
        view_is_complete(common, view, now_ns);
        return true;
    }
    if (message->router == common->self)
        return true;
    router = common_router_of(common, message->router);
    if (router == NULL && !message->is_gone) {
        router = common_router_add(common, message->router, now_ns);
        if (router == NULL)
            return false;
    }
    if (router != NULL)
        common_router_receive(common, router, view, message, now_ns);
    for (size_t i = 0; i < message->n_rows && i < COMMON_MAX_ROWS; i++)
        common_report_row(common, &(struct common_received){message, view, router, now_ns},
                          &message->rows[i]);
    return true;
}
