/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of other routers, which workers relay.
 *
 *    FREE --heard--> LIVE --no view has a link to it--> GONE --two seconds--> FREE
 *                     ^ |                                |
 *                     | '-- its last view went down --> LOST --ten minutes--> FREE
 *                     '-------------heard---------------'
 *
 * Charge an account, for each window, with the largest amount that any view reports.  If three or more views report
 * the router, charge the second largest; a view that reports nothing of the account counts as 0.  So messages may
 * come twice, late or not at all.  And one lying worker of three cannot throttle an account by too large values of
 * spending, demand or running requests.  The charge is never less than the acknowledged spending: every reporting
 * view has relayed an acknowledged message, so two honest views of three have.  With one or two views the largest
 * counts, because a liar cannot be identified.
 *
 * When a view or a router goes away, one counter changes (n_gone, lives, n_cuts).  Each struct common_heard keeps
 * copies of these counters and catches up at its next use.  Those of a router that left are freed in slices. */
#include "serve/access/common_limits_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GONE_NS     (2 * NS_PER_S)
#define LOST_NS     (600 * NS_PER_S)
#define CUT_NS      (10 * NS_PER_S) /* from the loss of a view: a router gone meanwhile is lost */
#define START_NS    (5 * NS_PER_S)  /* grace period without a relaying worker */
#define MAX_HEARS   512u            /* messages of one view in a second */
#define MAX_HEARD   (4 * COMMON_MAX_ACCOUNTS)
#define FREE_SLICE  256 /* structs of routers that left, freed in one tick: 20 us */
#define LEAST_VOTES 3
#define FAR_WINDOWS 6 /* no view is late by this many windows */

static void heard_free(struct common_limits *common, struct common_heard *heard)
{
    common->n_heard--;
    list_remove(&heard->node);
    free(heard);
}

void common_heard_drop(struct common_limits *common, struct common_account *account, unsigned router)
{
    if (account->heard[router] != NULL)
        heard_free(common, account->heard[router]);
    account->heard[router] = NULL;
}

/* Marks all amounts of the router as free to drop; constant time. */
static void heard_all_stale(struct common_limits *common, unsigned router)
{
    struct list *head = &common->stale, *from = &common->heard[router];

    if (list_is_empty(from))
        return;
    from->next->prev = head->prev;
    head->prev->next = from->next;
    from->prev->next = head;
    head->prev = from->prev;
    list_init(from);
}

/* The view went away.  Its amounts stay until their windows end. */
static void heard_forget_view(struct common_heard *heard, unsigned view)
{
    heard->demand[view] = 0;
    heard->n_running[view] = 0;
    heard->told &= (uint8_t) ~(1u << view);
    for (unsigned slot = 0; slot < COMMON_N_WINDOWS; slot++)
        if (heard->windows[slot].told != 1u << view) /* the last report stays, because a window without one is
                                                      * free */
            heard->windows[slot].told &= (uint8_t) ~(1u << view);
}

/* The view with the earliest end that `heard` has not seen yet; COMMON_VIEWS: none. */
static unsigned heard_next_gone(const struct common_limits *common, const struct common_heard *heard)
{
    unsigned next = COMMON_VIEWS;

    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (heard->n_gone[view] != common->n_gone[view] &&
            (next == COMMON_VIEWS || common->n_gone[view] < common->n_gone[next]))
            next = view;
    return next;
}

struct common_heard *common_heard_at(struct common_limits *common, struct common_account *account,
                                     unsigned router)
{
    struct common_heard *heard = account->heard[router];

    if (heard == NULL)
        return NULL;
    if (heard->life != common->lives[router]) {
        common_heard_drop(common, account, router);
        return NULL;
    }
    for (unsigned view; (view = heard_next_gone(common, heard)) < COMMON_VIEWS;) {
        heard_forget_view(heard, view);
        heard->n_gone[view] = common->n_gone[view];
    }
    heard->was_cut |= heard->n_cuts != common->n_cuts[router];
    heard->n_cuts = common->n_cuts[router];
    return heard;
}

/* The amount that the views of the mask `told` agree on. `speaking`: the views that report the router now. */
static float views_agree(unsigned told, unsigned speaking, const float values[COMMON_VIEWS])
{
    bool is_vote = __builtin_popcount(speaking) >= LEAST_VOTES;
    float most = -INFINITY, second = -INFINITY;

    for (unsigned view = 0; view < COMMON_VIEWS; view++) {
        float value = (told >> view & 1) != 0 ? values[view] : 0;

        if (((is_vote ? speaking : told) >> view & 1) == 0)
            continue;
        second = fmaxf(second, fminf(most, value));
        most = fmaxf(most, value);
    }
    return is_vote ? second : most;
}

double common_heard_demand(struct common_limits *common, struct common_account *account, unsigned router)
{
    const struct common_heard *heard = common_heard_at(common, account, router);

    if (heard == NULL || heard->told == 0)
        return 0;
    return (double)views_agree(heard->told, common->routers[router].speaking, heard->demand);
}

static bool router_is_up(const struct common_limits *common, const struct common_router *router)
{
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (common->is_view_up[view] && router->views[view].is_up)
            return true;
    return false;
}

static bool view_speaks(const struct common_limits *common, const struct common_router *router, unsigned view,
                        uint64_t now_ns)
{
    return common->is_view_up[view] && router->views[view].is_up &&
           now_ns < router->views[view].heard_ns + COMMON_SILENT_NS;
}

/* The slowest of its views counts, as long as that view sends messages. */
static uint64_t common_hear_acked_by(const struct common_limits *common, const struct common_router *router,
                                     uint64_t now_ns)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (unsigned view = 0; view < COMMON_VIEWS; view++) {
        uint64_t acked = router->views[view].acked;

        most = acked > most ? acked : most;
        if (view_speaks(common, router, view, now_ns) && acked < least)
            least = acked;
    }
    return least < most ? least : most;
}

uint64_t common_heard_number(const struct common_limits *common, const struct common_router *router,
                             uint64_t now_ns)
{
    uint64_t least = UINT64_MAX;

    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (view_speaks(common, router, view, now_ns) && router->views[view].number < least)
            least = router->views[view].number;
    return least != UINT64_MAX ? least : 0;
}

uint64_t common_acked(const struct common_limits *common, uint64_t now_ns)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        if (common->routers[i].state == COMMON_ROUTER_FREE)
            continue;
        uint64_t acked = common_hear_acked_by(common, &common->routers[i], now_ns);

        least = acked < least ? acked : least;
    }
    return least;
}

/* ---- routers ---- */

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
        heard_all_stale(common, index);
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
        router->speaking |= view_speaks(common, router, view, now_ns) ? 1u << view : 0;
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

static void heard_free_stale(struct common_limits *common, unsigned n_most)
{
    for (; n_most > 0 && !list_is_empty(&common->stale); n_most--) {
        struct common_heard *heard = container_of(common->stale.next, struct common_heard, node);

        heard->account->heard[heard->router] = NULL;
        heard_free(common, heard);
    }
}

enum common_change common_limits_tick(struct common_limits *common, uint64_t now_ns, uint64_t *router_out)
{
    common->is_synced |= now_ns >= common->started_ns + START_NS;
    heard_free_stale(common, FREE_SLICE);
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
    common->is_view_up[view] = common->is_telling[view] = true;
    common->nodes[view] = node;
    common->told_ns = 0; /* send the next message at once */
    if (view != COMMON_STORE_VIEW)
        return;
    /* Messages sent while the store was failing may be lost. */
    list_for_each (entry, &common->accounts)
        common_account_busy(common, container_of(entry, struct common_account, node), true);
}

void common_limits_view_down(struct common_limits *common, unsigned view, uint64_t now_ns)
{
    common->is_view_up[view] = false;
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];

        if (router->state == COMMON_ROUTER_FREE || !router->views[view].is_up)
            continue;
        router->cut_ns = now_ns;
        router->cut_node = common->nodes[view];
        router->views[view].is_up = false;
    }
    common->n_gone[view] = ++common->n_ends;
}

/* Handles the end of a worker's snapshot.  A router that was lost with this worker, and is not in the
 * snapshot, has ended. */
static void view_is_complete(struct common_limits *common, unsigned view, uint64_t now_ns)
{
    common->is_synced = true;
    common->is_telling[view] = false;
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];

        if (router->state == COMMON_ROUTER_LOST && router->cut_node == common->nodes[view] &&
            !router->views[view].is_up)
            router_enter(common, router, COMMON_ROUTER_GONE, now_ns);
    }
}

/* ---- rows ---- */

static float bound_part(float part)
{
    return isfinite(part) ? fminf(fmaxf(part, -(float)COMMON_MAX_PART), (float)COMMON_MAX_PART) : 0;
}

static struct common_heard *common_heard_of(struct common_limits *common, struct common_account *account,
                                            unsigned router)
{
    struct common_heard *heard = common_heard_at(common, account, router);

    if (heard != NULL)
        return heard;
    if (common->n_heard >= MAX_HEARD)
        heard_free_stale(common, 1);
    heard = common->n_heard < MAX_HEARD ? calloc(1, sizeof(*heard)) : NULL;
    if (heard == NULL)
        return NULL;
    heard->account = account;
    heard->router = (uint8_t)router;
    heard->life = common->lives[router];
    heard->n_cuts = common->n_cuts[router];
    memcpy(heard->n_gone, common->n_gone, sizeof(heard->n_gone));
    list_push_back(&common->heard[router], &heard->node);
    account->heard[router] = heard;
    common->n_heard++;
    return heard;
}

struct window_told {
    uint32_t window;
    unsigned view, all_views; /* all_views: a bit for each view that reports the router */
    bool is_known;            /* a snapshot, whose level includes these amounts */
    const float *parts;
};

/* The slot that has the window or can take it.  COMMON_N_WINDOWS: none, because the window is over.  A window far
 * ahead that only one view reports does not replace the present one. */
static unsigned window_slot(const struct common_heard *heard, uint32_t window)
{
    unsigned least = heard->windows[0].window <= heard->windows[1].window ? 0 : 1;

    for (unsigned i = 0; i < COMMON_N_WINDOWS; i++)
        if (heard->windows[i].told != 0 && heard->windows[i].window == window)
            return i;
    for (unsigned i = 0; i < COMMON_N_WINDOWS; i++)
        if (heard->windows[i].told == 0)
            return i;
    for (unsigned i = 0; i < COMMON_N_WINDOWS; i++)
        if (__builtin_popcount(heard->windows[i].told) == 1 && heard->windows[i].window > window &&
            heard->windows[i].window - window > FAR_WINDOWS)
            return i;
    return window < heard->windows[least].window ? COMMON_N_WINDOWS : least;
}

/* A refund of a router counts once all views have reported it. */
static float window_net(const struct common_heard *heard, unsigned slot, int kind, unsigned all_views)
{
    unsigned told = heard->windows[slot].told;
    float least = (all_views & ~told) != 0 ? 0 : -(float)COMMON_MAX_PART, nets[COMMON_VIEWS];

    if (__builtin_popcount(all_views) >= LEAST_VOTES && __builtin_popcount(told & all_views) < 2)
        return heard->windows[slot].charged[kind]; /* a single view can neither charge nor refund */
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        nets[view] = heard->windows[slot].net[view][kind];
    return fmaxf(least, views_agree(told, all_views, nets));
}

/* A router gives back at most its charge, less the part that has drained since. */
static void account_charge(struct common_account *account, struct common_heard *heard, int kind, float part)
{
    float charge = fmaxf(part, -heard->balance[kind]);

    heard->balance[kind] += charge;
    account->others[kind] += (double)charge;
}

static void window_hear(struct common_account *account, struct common_heard *heard,
                        const struct window_told *told)
{
    unsigned slot = window_slot(heard, told->window);
    bool is_first;

    if (slot == COMMON_N_WINDOWS)
        return;
    if (heard->windows[slot].told == 0 || heard->windows[slot].window != told->window)
        memset(&heard->windows[slot], 0, sizeof(heard->windows[slot]));
    is_first = (heard->windows[slot].told >> told->view & 1) == 0;
    heard->windows[slot].window = told->window;
    heard->windows[slot].told |= (uint8_t)(1u << told->view);
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        float part = bound_part(told->parts[kind]), charged = heard->windows[slot].charged[kind], net;

        if (is_first)
            heard->windows[slot].base[told->view][kind] = told->is_known ? part - charged : 0;
        heard->windows[slot].net[told->view][kind] = part - heard->windows[slot].base[told->view][kind];
        net = window_net(heard, slot, kind, told->all_views);
        account_charge(account, heard, kind, net - charged);
        heard->windows[slot].charged[kind] = net;
    }
}

/* True if fewer than two of three or more views have reached about this window.  Honest views are never seconds
 * apart. */
static bool window_is_ahead(const struct common_router *router, unsigned speaking, uint32_t window)
{
    unsigned n_near = 0;

    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        n_near += (speaking >> view & 1) != 0 && router->views[view].window + UINT64_C(1) >= window;
    return __builtin_popcount(speaking) >= LEAST_VOTES && n_near < 2;
}

/* Fills the replica at least to the level of the other router's replica. */
static void level_hear(struct common_account *account, const struct common_row *row)
{
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        double level = (double)bound_part(row->level[kind]) - (double)row->age_ms / 60e3;
        double lacks = level - account->level[kind] - account->others[kind];

        if (lacks > 0)
            account->others[kind] += lacks;
    }
}

struct hearing { /* a message, its view, and its router; router NULL: not in the table */
    const struct common_message *message;
    unsigned view;
    struct common_router *router;
    uint64_t now_ns;
};

static void row_hear(struct common_limits *common, const struct hearing *hearing,
                     const struct common_row *row)
{
    const struct common_message *message = hearing->message;
    struct common_router *router = hearing->router;
    unsigned view = hearing->view;
    uint64_t now_ns = hearing->now_ns;
    struct common_account *account = common_account_of(common, &row->id, now_ns);
    struct common_heard *heard;
    unsigned all_views = 0;
    bool is_known = message->is_snapshot, is_ahead;

    if (account == NULL)
        return;
    common_account_drain(common, account, now_ns);
    for (unsigned i = 0; router != NULL && i < COMMON_VIEWS; i++)
        all_views |= view_speaks(common, router, i, now_ns) ? 1u << i : 0;
    heard = router == NULL ? NULL : common_heard_of(common, account, (unsigned)(router - common->routers));
    if (heard != NULL) {
        float sunk = (float)((double)(now_ns - heard->balance_ns) / (double)COMMON_MINUTE_NS);

        for (int kind = 0; kind < COMMON_KINDS; kind++)
            heard->balance[kind] = fmaxf(0, heard->balance[kind] - sunk);
        heard->balance_ns = now_ns;
        heard->demand[view] =
            fminf(fmaxf(bound_part(row->demand / (float)COMMON_MAX_DEMAND), 0), 1) * (float)COMMON_MAX_DEMAND;
        heard->n_running[view] = row->n_running;
        heard->told |= (uint8_t)(1u << view);
        is_known |= heard->was_cut; /* its share was charged while it was lost */
        heard->was_cut = false;
        is_ahead = window_is_ahead(router, all_views, message->window);
        if (!is_ahead)
            window_hear(account, heard,
                        &(struct window_told){message->window, view, all_views, is_known, row->spent});
        if (!is_ahead && message->window > 0)
            window_hear(account, heard,
                        &(struct window_told){message->window - 1, view, all_views, is_known, row->before});
    }
    if (message->is_snapshot && common->is_telling[view]) /* at other times a view could fill the replica
                                                           * again and again */
        level_hear(account, row);
}

static bool too_many_hears(struct common_limits *common, unsigned view, uint64_t now_ns)
{
    if (now_ns >= common->hear_ns[view] + NS_PER_S) {
        common->hear_ns[view] = now_ns;
        common->n_hears[view] = 0;
    }
    return ++common->n_hears[view] > MAX_HEARS;
}

/* True if another view has reported the router too. */
static bool router_was_told(const struct common_limits *common, const struct common_router *router,
                            unsigned view)
{
    for (unsigned i = 0; i < COMMON_VIEWS; i++)
        if (i != view && common->is_view_up[i] && router->views[i].heard_ns != 0)
            return true;
    return false;
}

static void router_hear(struct common_limits *common, struct common_router *router, unsigned view,
                        const struct common_message *message, uint64_t now_ns)
{
    struct common_view *heard = &router->views[view];

    heard->is_up = !message->is_gone;
    heard->heard_ns = now_ns;
    heard->window = message->window;
    heard->number = message->number > heard->number ? message->number : heard->number;
    for (size_t i = 0; i < message->n_acks && i < COMMON_MAX_ROUTERS; i++)
        if (message->acks[i].router == common->self && message->acks[i].number > heard->acked)
            heard->acked = message->acks[i].number;
    router->owes_ack |= message->n_rows > 0 && !message->is_gone;
    if (message->is_silent && !router_was_told(common, router, view)) {
        router->cut_ns = now_ns;
        router->cut_node = common->nodes[view];
    }
    router_look(common, router, now_ns);
}

bool common_limits_hear(struct common_limits *common, unsigned view, const struct common_message *message,
                        uint64_t now_ns)
{
    struct common_router *router;

    if (too_many_hears(common, view, now_ns))
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
        router_hear(common, router, view, message, now_ns);
    for (size_t i = 0; i < message->n_rows && i < COMMON_MAX_ROWS; i++)
        row_hear(common, &(struct hearing){message, view, router, now_ns}, &message->rows[i]);
    return true;
}

static uint64_t elsewhere_at(struct common_limits *common, struct common_account *account, unsigned router)
{
    const struct common_heard *heard = common_heard_at(common, account, router);
    float n_running[COMMON_VIEWS];

    if (heard == NULL || heard->told == 0)
        return 0;
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        n_running[view] = (float)heard->n_running[view];
    return (uint64_t)views_agree(heard->told, common->routers[router].speaking, n_running);
}

uint32_t common_limits_elsewhere(struct common_limits *common, const struct common_id *id)
{
    struct common_account *account = hashmap_get(common->by_id, id);
    uint64_t n = 0;

    for (unsigned i = 0; account != NULL && i < COMMON_MAX_ROUTERS; i++)
        n += elsewhere_at(common, account, i);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
