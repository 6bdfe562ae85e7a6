/* SPDX-License-Identifier: Apache-2.0 */
/* A fair queue: whose turn is it, when several tenants want more than there is?
 *
 * Start-time fair queuing.  Each tenant has a virtual time, which grows by the tokens it was served, divided
 * by the weight of the request; the tenant that waits with the least one is next, and its own requests come
 * in their order.  A tenant that comes, or comes back, begins at the queue's virtual time: it neither owes
 * nor has saved anything.  So between two tenants that both wait the tokens served are in proportion to their
 * weights, but for one request of each.
 *
 * A decision costs the logarithm of the number of tenants that wait.  A tenant that does not wait costs
 * nothing, but for a debt: who got ahead of the others and left is remembered until they have caught up, up
 * to a fixed number of tenants.  No I/O, no clock, no randomness.  One thread. */
#ifndef BASE_FAIR_H
#define BASE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define FAIR_MAX_WEIGHT 1000u

struct fair;
struct fair_flow; /* one tenant's; counted */

struct fair_item { /* embedded in what waits; fair_item_init() at first */
    struct list node;
    struct fair_flow *flow; /* while it waits; else NULL */
    uint64_t order;
    uint32_t weight;
};

/* So many tenants without a request are remembered for their debts.  E_NOMEM. */
int fair_new(uint32_t max_debtors, struct fair **out);
/* No flow is held any more.  NULL is fine. */
void fair_free(struct fair *fair);

/* A tenant's flow, held until fair_drop().  NULL: no memory. */
struct fair_flow *fair_hold(struct fair *fair, uint64_t tenant);
/* Nothing of the holder waits in it any more. */
void fair_drop(struct fair *fair, struct fair_flow *flow);

/* A number of the tenant's for the caller's own use; 0 at first, and kept for as long as somebody holds the
 * flow. */
uint32_t *fair_tally(struct fair_flow *flow);

/* ---- who waits; none of these fails or allocates ---- */

void fair_item_init(struct fair_item *item);
static inline bool fair_item_waits(const struct fair_item *item)
{
    return item->flow != NULL;
}
/* Into the flow's line, by order: after those with a lower or the same one.  weight: 1 to FAIR_MAX_WEIGHT,
 * else the nearest of these. */
void fair_wait(struct fair *fair, struct fair_flow *flow, struct fair_item *item, uint64_t order,
               uint32_t weight);
/* Out of the line, served or not.  Nothing if it does not wait. */
void fair_leave(struct fair *fair, struct fair_item *item);
uint32_t fair_n_waiting(const struct fair *fair);
uint32_t fair_n_tenants(const struct fair *fair); /* that wait */

/* The line as it would be served if each had one request served: first the whole line of the tenant whose
 * turn it is, then the next tenant's.  fair_skip goes on with the next tenant.  NULL: no more.  A walk ends
 * with fair_rewind(); fair_first(), fair_wait(), fair_leave() and fair_charge() end it too. */
struct fair_item *fair_first(struct fair *fair);
struct fair_item *fair_next(struct fair *fair, const struct fair_item *item);
struct fair_item *fair_skip(struct fair *fair, const struct fair_item *item);
void fair_rewind(struct fair *fair);

/* Whether a comes before b in that line. */
bool fair_is_before(const struct fair_item *a, const struct fair_item *b);

/* The newest of the tenant that waits with most requests for its weight; of several such tenants, of the one
 * that has been waiting for the shortest time.  NULL: nobody waits. */
struct fair_item *fair_heaviest(const struct fair *fair);
/* Whether this tenant would wait with less than that one, also with one request of this weight more. */
bool fair_is_lighter(const struct fair *fair, uint64_t tenant, uint32_t weight);

/* The tenant was served so many tokens of a request of this weight. */
void fair_charge(struct fair *fair, struct fair_flow *flow, uint64_t n_tokens, uint32_t weight);

/* How far the tenant is ahead of the queue's virtual time, in tokens of weight 1.  For tests and status. */
uint64_t fair_debt(const struct fair *fair, const struct fair_flow *flow);
uint32_t fair_n_known(const struct fair *fair); /* tenants that take memory */

#endif
