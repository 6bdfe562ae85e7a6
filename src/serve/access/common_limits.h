/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that several routers enforce together, without a leader.
 *
 *     router A --spending--> worker --spending--> router B        every 100 ms, and only what changed
 *
 * Each router keeps a replica of every account's buckets (serve/access/limits.c).  It reports its own spending, and
 * adds the reported spending of the other routers.  Between two messages it may spend only its lease, its share of
 * the remaining budget.  So all routers together cannot exceed the limit, however late their messages are:
 *
 *     lease = share * remains - spent and not acknowledged yet by each other router
 *     share = 1/4 in equal parts, 3/4 by demand; the shares of all routers are 1 at most
 *
 * Without messages there is no acknowledgement, and each router continues with its share of the limit.  When all
 * relaying workers report that a router is gone, it leaves after two seconds and the others get its share.  A
 * router that vanishes together with a relaying worker is *lost*: both may still run behind a partition, so
 * its share stays reserved for ten minutes.  If that worker's system closed the link, as it does when a process ends,
 * the other workers' word counts.
 *
 * Amounts are parts of the limit (1: the whole limit of a minute), so routers with different key files agree.
 * Times are ages and counts, so the clocks of hosts may differ.  Messages come through up to four workers, the
 * *views* of the other routers.  With one or two views of a router the largest reported amount counts: one lying
 * worker can lower a limit but not lift it.  With three or four the second largest counts: one lying worker can do
 * neither.
 *
 * Pure: no socket, no clock.  Loop thread only.
 *
 * More than 15 functions: the limits of requests use one half, the links to workers the other. */
#ifndef SERVE_ACCESS_COMMON_LIMITS_H
#define SERVE_ACCESS_COMMON_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "serve/access/auth.h"

#define COMMON_ID_BYTES     16
#define COMMON_KINDS        LIMIT_N_BUCKETS /* limits of a minute */
#define COMMON_CONCURRENT   COMMON_KINDS
#define COMMON_WORKER_VIEWS 4 /* workers that relay to this router */
#define COMMON_STORE_VIEW   4 /* the routers' shared store, which relays too */
#define COMMON_VIEWS        5
#define COMMON_MAX_ROUTERS  15 /* other routers */
#define COMMON_MAX_ROWS     256
#define COMMON_MAX_ACCOUNTS 4096

struct common_limits;

struct common_id {
    uint8_t bytes[COMMON_ID_BYTES];
};

struct common_use { /* of one limit of an account */
    int kind;       /* a limit of a minute, or COMMON_CONCURRENT */
    double part;    /* of the limit */
    double level;   /* how full the replica is */
};

struct common_row { /* one account at one router */
    struct common_id id;
    float level[COMMON_KINDS]; /* of its replica */
    float spent[COMMON_KINDS],
        before[COMMON_KINDS]; /* its own requests in this window of ten seconds, and in the previous one */
    float demand;             /* recent demand, admitted or not */
    uint32_t n_running;
    uint32_t age_ms; /* of a row in a snapshot */
};

struct common_ack {
    uint64_t router, number;
};

struct common_message {
    uint64_t router; /* the router that spent: its epoch */
    uint64_t number; /* counts its messages, from 1 */
    uint32_t window;
    bool is_gone;     /* the worker's link to that router is down */
    bool is_snapshot; /* a stored copy from the worker, not the router's latest message */
    bool is_silent;   /* with is_gone: the view only got no message lately, so the router may run behind a
                    * partition */
    struct common_ack acks[COMMON_MAX_ROUTERS];
    size_t n_acks;
    const struct common_row *rows;
    size_t n_rows;
};

enum common_change { COMMON_NONE, COMMON_JOINED, COMMON_LEFT, COMMON_CUT, COMMON_BACK };

/* self: this router's epoch.  key: 32 bytes, the same on all routers.  E_NOMEM. */
int common_limits_new(uint64_t self, const uint8_t key[32], uint64_t now_ns, struct common_limits **out);
void common_limits_free(struct common_limits *common); /* accepts NULL */
/* The keyed hash that names an account on the wire. */
void common_limits_id(const struct common_limits *common, bool is_tenant, struct bytes name,
                      struct common_id *out);

/* ---- this router's requests ---- */

/* True if another router shares the limits.  Also true before the first snapshot, for at most five seconds. */
bool common_limits_is_shared(const struct common_limits *common);
/* True once a worker has told what was spent before this router started, or five seconds after that. */
bool common_limits_is_synced(const struct common_limits *common);
/* Spending of other routers since the last call, as parts of the limit. Negative: they gave back. */
void common_limits_take(struct common_limits *common, const struct common_id *id, uint64_t now_ns,
                        double parts_out[COMMON_KINDS]);
/* Records that a request asks for this part of its limit. */
void common_limits_want(struct common_limits *common, const struct common_id *id, double part,
                        uint64_t now_ns);
/* True if the lease allows this part. use->level: level of the replica before it. use->kind may be
 * COMMON_CONCURRENT. */
bool common_limits_may(struct common_limits *common, const struct common_id *id, const struct common_use *use,
                       uint64_t now_ns);
/* Spends the part after common_limits_may(), or gives it back (part < 0). use->level: level of the replica
 * afterwards. */
void common_limits_spend(struct common_limits *common, const struct common_id *id,
                         const struct common_use *use, uint64_t now_ns);
/* Requests of the account that run at other routers. */
uint32_t common_limits_elsewhere(struct common_limits *common, const struct common_id *id);

/* ---- messages ---- */

/* A worker (node: a digest of its name) starts or stops relaying for this router.  has_ended: its process ended, so it
 * relays for no other router either. */
void common_limits_view_up(struct common_limits *common, unsigned view, uint64_t node);
void common_limits_view_down(struct common_limits *common, unsigned view, bool has_ended, uint64_t now_ns);
/* Handles a message that a worker relayed.  A message of router 0 ends a snapshot.  False: ignored, because there are
 * too many routers or messages. */
bool common_limits_receive(struct common_limits *common, unsigned view, const struct common_message *message,
                           uint64_t now_ns);
/* Fills in this router's next message; its rows go to rows[COMMON_MAX_ROWS]. False: there is nothing to report. */
bool common_limits_next_message(struct common_limits *common, uint64_t now_ns, struct common_row *rows,
                                struct common_message *out);
/* Returns one router that joined, left, was lost or came back since the last call; COMMON_NONE: no more. */
enum common_change common_limits_tick(struct common_limits *common, uint64_t now_ns, uint64_t *router_out);

uint32_t common_limits_n_routers(const struct common_limits *common); /* routers that share the limits, this
                                                                       * one included */
uint32_t common_limits_n_cut(const struct common_limits *common);     /* lost routers among them */
uint32_t common_limits_n_accounts(const struct common_limits *common);

#endif
