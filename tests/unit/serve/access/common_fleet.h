/* SPDX-License-Identifier: Apache-2.0 */
/* Routers with a replica of common limits each, workers that relay with a delay, and links that break, all in virtual
 * time.  The fleet keeps a list of what its routers admit. */
#ifndef TESTS_ACCESS_COMMON_FLEET_H
#define TESTS_ACCESS_COMMON_FLEET_H

#include "base/clock.h"
#include "base/rng.h"
#include "serve/access/common_limits_priv.h"

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

struct fleet {
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

/* Starts this many routers; each is linked with all workers. */
void fleet_begin(struct fleet *fleet, unsigned n_routers, uint64_t delay_ns);
void fleet_end(struct fleet *fleet);
/* Starts a router with a new epoch. */
void fleet_start(struct fleet *fleet, unsigned router);
void fleet_kill_router(struct fleet *fleet, unsigned router);
void fleet_kill_worker(struct fleet *fleet, unsigned worker);
void fleet_link_up(struct fleet *fleet, unsigned worker, unsigned router);
void fleet_link_down(struct fleet *fleet, unsigned worker, unsigned router);
/* Virtual time goes on by STEP_NS; messages that are due arrive. */
void fleet_step(struct fleet *fleet);
void fleet_rest(struct fleet *fleet, uint64_t for_ns);
/* per_s[i]: requests a second at router i. */
void fleet_flood(struct fleet *fleet, const double per_s[N_ROUTERS], double part, uint64_t for_ns);
/* Asks for this part of the limit at a router.  Returns true if it is admitted. */
bool fleet_ask(struct fleet *fleet, unsigned router, double part);
void fleet_give_back(struct fleet *fleet, unsigned router, double part);
/* Returns how full one bucket gets that sees every admission: 1 is the limit. */
double fleet_highest(const struct fleet *fleet);
/* Returns the sum of all admitted parts. */
double fleet_total(const struct fleet *fleet);
/* Returns the id of the tenant that all requests count for. */
struct common_id fleet_tenant(const struct node *node);

#endif
