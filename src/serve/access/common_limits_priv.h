/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the common limits, shared by common_limits.c (this router's part),
 * common_routers.c (the other routers) and common_reports.c (the amounts that they report). */
#ifndef SERVE_ACCESS_COMMON_LIMITS_PRIV_H
#define SERVE_ACCESS_COMMON_LIMITS_PRIV_H

#include "base/clock.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "serve/access/common_limits.h"

#define COMMON_WINDOW_NS (10 * NS_PER_S)
#define COMMON_MINUTE_NS (60 * NS_PER_S)
#define COMMON_SILENT_NS                                                                                     \
    (3 * NS_PER_S)            /* a view that is silent for this long no longer delays acknowledgements */
#define COMMON_MAX_PART   4.0 /* the most that one account may be charged for one window */
#define COMMON_MAX_DEMAND 100.0
#define COMMON_N_WINDOWS  2

struct common_report { /* one account at one other router; read it through common_report_at() */
    struct list node;  /* in the list of that router, or in the list `stale` */
    struct common_account *account;
    uint64_t life, n_cuts;         /* the router's counters at the last use */
    uint64_t n_gone[COMMON_VIEWS]; /* the views' counters at the last use */
    uint8_t router;
    uint8_t reported; /* a bit for each view that reported demand and n_running */
    struct {
        uint32_t window;
        uint8_t reported; /* a bit for each view that reported it; 0: the slot is free */
        float base[COMMON_VIEWS][COMMON_KINDS]; /* counted before the view's first report */
        float net[COMMON_VIEWS][COMMON_KINDS];  /* reported by the view beyond that */
        float charged[COMMON_KINDS];            /* the amount already charged to the account */
    } windows[COMMON_N_WINDOWS];
    float balance[COMMON_KINDS]; /* charged and not drained, at balance_ns: the largest possible refund */
    uint64_t balance_ns;
    bool was_cut; /* its router was lost: its spending since then is unknown, so its share was charged */
    float demand[COMMON_VIEWS];
    uint32_t n_running[COMMON_VIEWS];
};

struct common_account {
    struct common_id id;
    struct list node; /* accounts, the least recently used first */
    struct list busy; /* accounts that may have something to report */
    bool is_busy, is_dirty;
    uint64_t used_ns;            /* time of the last spending or report */
    double others[COMMON_KINDS]; /* reported, but not in the replica yet */
    double level[COMMON_KINDS];  /* of the replica at level_ns */
    uint64_t level_ns;
    uint32_t window; /* of spent[0] */
    double spent[2][COMMON_KINDS];
    uint32_t n_running;
    /* Spent and not acknowledged. fresh: since the last message; sent: in the message sent_number (0: none). */
    double fresh[COMMON_KINDS + 1], sent[COMMON_KINDS + 1];
    uint64_t sent_number;
    bool is_acked;               /* sent was acknowledged, and the lease is not renewed yet */
    double lease[COMMON_KINDS];  /* what it may spend, at lease_ns */
    double credit[COMMON_KINDS]; /* how much of the credit is used, at lease_ns */
    uint64_t lease_ns;
    bool is_by_credit[COMMON_KINDS];
    double demand, demand_reported, demand_sent, demand_settled;
    uint64_t demand_ns, demand_number;
    struct common_report *reports[COMMON_MAX_ROUTERS];
};

enum common_router_state {
    COMMON_ROUTER_FREE,
    COMMON_ROUTER_LIVE, /* a view has a link to it */
    COMMON_ROUTER_GONE, /* every view reports it as gone; it leaves after two seconds */
    COMMON_ROUTER_LOST  /* it went away with its last view: it may still run behind a partition */
};

struct common_view {
    bool is_up; /* the view has a link to that router */
    uint64_t number, acked, received_ns;
    uint32_t window; /* the latest one reported */
};

struct common_router { /* another router */
    enum common_router_state state;
    uint64_t epoch;
    uint64_t since_ns;         /* of its state */
    uint64_t cut_ns, cut_node; /* the last view that went down with it; 0: none */
    unsigned speaking;         /* a bit for each view that reported it, at the last check */
    bool owes_ack;             /* it sent rows since our last message */
    enum common_change change;
    struct common_view views[COMMON_VIEWS];
};

struct common_limits {
    uint64_t self, started_ns;
    bool is_synced; /* it has the workers' snapshots, or has waited long enough */
    uint8_t key[32];
    struct hashmap *by_id;
    struct list accounts, busy;
    uint32_t n_reports;                      /* of all accounts */
    struct list reports[COMMON_MAX_ROUTERS]; /* by router */
    struct list stale;                       /* of routers that left */
    uint64_t lives[COMMON_MAX_ROUTERS];  /* counter of the slot: one more for each router that leaves it */
    uint64_t n_cuts[COMMON_MAX_ROUTERS]; /* times that it was lost */
    uint64_t n_gone[COMMON_VIEWS];       /* number of the view's latest end, counted over all views */
    uint64_t n_ends;
    struct common_router routers[COMMON_MAX_ROUTERS];
    uint32_t n_others; /* routers in use */
    bool is_view_up[COMMON_VIEWS];
    bool is_in_snapshot[COMMON_VIEWS]; /* its snapshot is arriving */
    uint64_t nodes[COMMON_VIEWS];      /* the workers behind the views */
    uint64_t number, sent_ns;
    uint64_t received_second_ns[COMMON_VIEWS]; /* start of the second that n_received counts */
    uint32_t n_received[COMMON_VIEWS];
};

/* The account of this name; NULL: no memory.  Valid until the next call. */
struct common_account *common_account_of(struct common_limits *common, const struct common_id *id,
                                         uint64_t now_ns);
void common_account_touch(struct common_limits *common, struct common_account *account, uint64_t now_ns);
/* Drains level and `others` until now. */
void common_account_drain(struct common_limits *common, struct common_account *account, uint64_t now_ns);
/* The latest message of this router that every other router has. */
uint64_t common_acked(const struct common_limits *common, uint64_t now_ns);
/* The latest message of a router that all of its views have relayed. */
uint64_t common_router_number(const struct common_limits *common, const struct common_router *router,
                              uint64_t now_ns);
/* Puts the account on the list `busy`, because it may have something to report. is_dirty: it has. */
void common_account_busy(struct common_limits *common, struct common_account *account, bool is_dirty);
/* Number of routers that share the limits, this one included.  While it is unknown, assumes one other. */
uint32_t common_n_sharing(const struct common_limits *common);
/* The amounts of the account at that router; NULL: none.  Routers and views that went away since the last call take
 * effect here, so that their end does not touch thousands of accounts at once. */
struct common_report *common_report_at(struct common_limits *common, struct common_account *account,
                                       unsigned router);
/* The demand that the router's views agree on; 0 if it is unknown. */
double common_report_demand(struct common_limits *common, struct common_account *account, unsigned router);
/* Frees the amounts of the account at that router. */
void common_report_drop(struct common_limits *common, struct common_account *account, unsigned router);
/* Marks all amounts of the router as free to drop; constant time. */
void common_reports_stale(struct common_limits *common, unsigned router);
/* Frees at most n_most of the amounts that are free to drop. */
void common_reports_free_stale(struct common_limits *common, unsigned n_most);
/* True if the view has a link to the router and sent a message of it lately. */
bool common_view_speaks(const struct common_limits *common, const struct common_router *router, unsigned view,
                        uint64_t now_ns);

struct common_received { /* a message and the view that sent it */
    const struct common_message *message;
    unsigned view;
    struct common_router *router; /* NULL: not in the table */
    uint64_t now_ns;
};

/* Charges one row of the message to its account. */
void common_report_row(struct common_limits *common, const struct common_received *received,
                       const struct common_row *row);

#endif
