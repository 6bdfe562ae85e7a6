/* SPDX-License-Identifier: Apache-2.0 */
/* The amounts that other routers report of each account, and the charge that follows.
 *
 * Charge an account, for each window, with the largest amount that any view reports.  If three or more views report
 * the router, charge the second largest; a view that reports nothing of the account counts as 0.  So messages may
 * come twice, late or not at all.  And one lying worker of three cannot throttle an account by too large values of
 * spending, demand or running requests.  The charge is never less than the acknowledged spending: every reporting
 * view has relayed an acknowledged message, so two honest views of three have.  With one or two views the largest
 * counts, because a liar cannot be identified. */
#include "serve/access/common_limits_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPORTS (4 * COMMON_MAX_ACCOUNTS)
#define LEAST_VOTES 3
#define FAR_WINDOWS 6 /* no view is late by this many windows */

static void account_report_free(struct common_limits *common, struct common_report *report)
{
    common->n_reports--;
    list_remove(&report->node);
    free(report);
}

void common_report_drop(struct common_limits *common, struct common_account *account, unsigned router)
{
    if (account->reports[router] != NULL)
        account_report_free(common, account->reports[router]);
    account->reports[router] = NULL;
}

void common_reports_stale(struct common_limits *common, unsigned router)
{
    struct list *head = &common->stale, *from = &common->reports[router];

    if (list_is_empty(from))
        return;
    from->next->prev = head->prev;
    head->prev->next = from->next;
    from->prev->next = head;
    head->prev = from->prev;
    list_init(from);
}

void common_reports_free_stale(struct common_limits *common, unsigned n_most)
{
    for (; n_most > 0 && !list_is_empty(&common->stale); n_most--) {
        struct common_report *report = container_of(common->stale.next, struct common_report, node);

        report->account->reports[report->router] = NULL;
        account_report_free(common, report);
    }
}

/* The view went away.  Its amounts stay until their windows end. */
static void account_report_forget_view(struct common_report *report, unsigned view)
{
    report->demand[view] = 0;
    report->n_running[view] = 0;
    report->reported &= (uint8_t) ~(1u << view);
    for (unsigned slot = 0; slot < COMMON_N_WINDOWS; slot++)
        if (report->windows[slot].reported !=
            1u << view) /* the last report stays, because a window without one is
                                                      * free */
            report->windows[slot].reported &= (uint8_t) ~(1u << view);
}

/* The view with the earliest end that `report` has not seen yet; COMMON_VIEWS: none. */
static unsigned account_report_next_gone(const struct common_limits *common,
                                         const struct common_report *report)
{
    unsigned next = COMMON_VIEWS;

    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (report->n_gone[view] != common->n_gone[view] &&
            (next == COMMON_VIEWS || common->n_gone[view] < common->n_gone[next]))
            next = view;
    return next;
}

struct common_report *common_report_at(struct common_limits *common, struct common_account *account,
                                       unsigned router)
{
    struct common_report *report = account->reports[router];

    if (report == NULL)
        return NULL;
    if (report->life != common->lives[router]) {
        common_report_drop(common, account, router);
        return NULL;
    }
    for (unsigned view; (view = account_report_next_gone(common, report)) < COMMON_VIEWS;) {
        account_report_forget_view(report, view);
        report->n_gone[view] = common->n_gone[view];
    }
    report->was_cut |= report->n_cuts != common->n_cuts[router];
    report->n_cuts = common->n_cuts[router];
    return report;
}

static struct common_report *common_report_of(struct common_limits *common, struct common_account *account,
                                              unsigned router)
{
    struct common_report *report = common_report_at(common, account, router);

    if (report != NULL)
        return report;
    if (common->n_reports >= MAX_REPORTS)
        common_reports_free_stale(common, 1);
    report = common->n_reports < MAX_REPORTS ? calloc(1, sizeof(*report)) : NULL;
    if (report == NULL)
        return NULL;
    report->account = account;
    report->router = (uint8_t)router;
    report->life = common->lives[router];
    report->n_cuts = common->n_cuts[router];
    memcpy(report->n_gone, common->n_gone, sizeof(report->n_gone));
    list_push_back(&common->reports[router], &report->node);
    account->reports[router] = report;
    common->n_reports++;
    return report;
}

/* The amount that the views of the mask `reported` agree on. `speaking`: the views that report the router now. */
static float views_agree(unsigned reported, unsigned speaking, const float values[COMMON_VIEWS])
{
    bool is_vote = __builtin_popcount(speaking) >= LEAST_VOTES;
    float most = -INFINITY, second = -INFINITY;

    for (unsigned view = 0; view < COMMON_VIEWS; view++) {
        float value = (reported >> view & 1) != 0 ? values[view] : 0;

        if (((is_vote ? speaking : reported) >> view & 1) == 0)
            continue;
        second = fmaxf(second, fminf(most, value));
        most = fmaxf(most, value);
    }
    return is_vote ? second : most;
}

double common_report_demand(struct common_limits *common, struct common_account *account, unsigned router)
{
    const struct common_report *report = common_report_at(common, account, router);

    if (report == NULL || report->reported == 0)
        return 0;
    return (double)views_agree(report->reported, common->routers[router].speaking, report->demand);
}

static uint64_t elsewhere_at(struct common_limits *common, struct common_account *account, unsigned router)
{
    const struct common_report *report = common_report_at(common, account, router);
    float n_running[COMMON_VIEWS];

    if (report == NULL || report->reported == 0)
        return 0;
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        n_running[view] = (float)report->n_running[view];
    return (uint64_t)views_agree(report->reported, common->routers[router].speaking, n_running);
}

uint32_t common_limits_elsewhere(struct common_limits *common, const struct common_id *id)
{
    struct common_account *account = hashmap_get(common->by_id, id);
    uint64_t n = 0;

    for (unsigned i = 0; account != NULL && i < COMMON_MAX_ROUTERS; i++)
        n += elsewhere_at(common, account, i);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* ---- rows ---- */

static float bound_part(float part)
{
    return isfinite(part) ? fminf(fmaxf(part, -(float)COMMON_MAX_PART), (float)COMMON_MAX_PART) : 0;
}

struct window_report {
    uint32_t window;
    unsigned view, all_views; /* all_views: a bit for each view that reports the router */
    bool is_known;            /* a snapshot, whose level includes these amounts */
    const float *parts;
};

/* The slot that has the window or can take it.  COMMON_N_WINDOWS: none, because the window is over.  A window far
 * ahead that only one view reports does not replace the present one. */
static unsigned window_slot(const struct common_report *report, uint32_t window)
{
    unsigned least = report->windows[0].window <= report->windows[1].window ? 0 : 1;

    for (unsigned i = 0; i < COMMON_N_WINDOWS; i++)
        if (report->windows[i].reported != 0 && report->windows[i].window == window)
            return i;
    for (unsigned i = 0; i < COMMON_N_WINDOWS; i++)
        if (report->windows[i].reported == 0)
            return i;
    for (unsigned i = 0; i < COMMON_N_WINDOWS; i++)
        if (__builtin_popcount(report->windows[i].reported) == 1 && report->windows[i].window > window &&
            report->windows[i].window - window > FAR_WINDOWS)
            return i;
    return window < report->windows[least].window ? COMMON_N_WINDOWS : least;
}

/* A refund of a router counts once all views have reported it. */
static float window_net(const struct common_report *report, unsigned slot, int kind, unsigned all_views)
{
    unsigned reported = report->windows[slot].reported;
    float least = (all_views & ~reported) != 0 ? 0 : -(float)COMMON_MAX_PART, nets[COMMON_VIEWS];

    if (__builtin_popcount(all_views) >= LEAST_VOTES && __builtin_popcount(reported & all_views) < 2)
        return report->windows[slot].charged[kind]; /* a single view can neither charge nor refund */
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        nets[view] = report->windows[slot].net[view][kind];
    return fmaxf(least, views_agree(reported, all_views, nets));
}

/* A router gives back at most its charge, less the part that has drained since. */
static void account_charge(struct common_account *account, struct common_report *report, int kind, float part)
{
    float charge = fmaxf(part, -report->balance[kind]);

    report->balance[kind] += charge;
    account->others[kind] += (double)charge;
}

static void account_report_add_window(struct common_account *account, struct common_report *report,
                                      const struct window_report *reported)
{
    unsigned slot = window_slot(report, reported->window);
    bool is_first;

    if (slot == COMMON_N_WINDOWS)
        return;
    if (report->windows[slot].reported == 0 || report->windows[slot].window != reported->window)
        memset(&report->windows[slot], 0, sizeof(report->windows[slot]));
    is_first = (report->windows[slot].reported >> reported->view & 1) == 0;
    report->windows[slot].window = reported->window;
    report->windows[slot].reported |= (uint8_t)(1u << reported->view);
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        float part = bound_part(reported->parts[kind]), charged = report->windows[slot].charged[kind], net;

        if (is_first)
            report->windows[slot].base[reported->view][kind] = reported->is_known ? part - charged : 0;
        report->windows[slot].net[reported->view][kind] =
            part - report->windows[slot].base[reported->view][kind];
        net = window_net(report, slot, kind, reported->all_views);
        account_charge(account, report, kind, net - charged);
        report->windows[slot].charged[kind] = net;
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
static void account_raise_level(struct common_account *account, const struct common_row *row)
{
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        double level = (double)bound_part(row->level[kind]) - (double)row->age_ms / 60e3;
        double lacks = level - account->level[kind] - account->others[kind];

        if (lacks > 0)
            account->others[kind] += lacks;
    }
}

void common_report_row(struct common_limits *common, const struct common_received *received,
                       const struct common_row *row)
{
    const struct common_message *message = received->message;
    struct common_router *router = received->router;
    unsigned view = received->view;
    uint64_t now_ns = received->now_ns;
    struct common_account *account = common_account_of(common, &row->id, now_ns);
    struct common_report *report;
    unsigned all_views = 0;
    bool is_known = message->is_snapshot, is_ahead;

    if (account == NULL)
        return;
    common_account_drain(common, account, now_ns);
    for (unsigned i = 0; router != NULL && i < COMMON_VIEWS; i++)
        all_views |= common_view_speaks(common, router, i, now_ns) ? 1u << i : 0;
    report = router == NULL ? NULL : common_report_of(common, account, (unsigned)(router - common->routers));
    if (report != NULL) {
        float sunk = (float)((double)(now_ns - report->balance_ns) / (double)COMMON_MINUTE_NS);

        for (int kind = 0; kind < COMMON_KINDS; kind++)
            report->balance[kind] = fmaxf(0, report->balance[kind] - sunk);
        report->balance_ns = now_ns;
        report->demand[view] =
            fminf(fmaxf(bound_part(row->demand / (float)COMMON_MAX_DEMAND), 0), 1) * (float)COMMON_MAX_DEMAND;
        report->n_running[view] = row->n_running;
        report->reported |= (uint8_t)(1u << view);
        is_known |= report->was_cut; /* its share was charged while it was lost */
        report->was_cut = false;
        is_ahead = window_is_ahead(router, all_views, message->window);
        if (!is_ahead)
            account_report_add_window(
                account, report,
                &(struct window_report){message->window, view, all_views, is_known, row->spent});
        if (!is_ahead && message->window > 0)
            account_report_add_window(
                account, report,
                &(struct window_report){message->window - 1, view, all_views, is_known, row->before});
    }
    if (message->is_snapshot && common->is_in_snapshot[view]) /* otherwise a view could fill it repeatedly */
        account_raise_level(account, row);
}
