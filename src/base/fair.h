/* SPDX-License-Identifier: Apache-2.0 */
/* A fair queue: decides which tenant is served next when several compete.
 *
 * The algorithm is start-time fair queuing.  Each tenant has a virtual time, which grows by the tokens served
 * divided by the weight of the request.  The waiting tenant with the least virtual time is next; its own requests
 * keep their order.  A tenant that arrives or returns starts at the queue's virtual time, so it has neither debt
 * nor credit.  A queue may grant credit: then a known tenant that at times had no waiting request may be up to that
 * many tokens behind.  Two waiting tenants get tokens in proportion to their weights, within one request of each.
 *
 * A decision takes time logarithmic in the number of waiting tenants.  A tenant that does not wait takes no
 * memory, unless it is in debt: it was served ahead of the others and left.  The queue remembers such debts
 * until the others have caught up, for a limited number of tenants.  No I/O, no clock, no randomness.  One
 * thread.
 *
 * More than 15 functions: the queue has two callers. The router picks the next tenant, the scheduler
 * iterates in the order of turns. */
#ifndef BASE_FAIR_H
#define BASE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define FAIR_MAX_WEIGHT 1000u

struct fair;
struct fair_flow; /* the queue's state for one tenant; reference-counted */

struct fair_item { /* embedded in the waiting object; call fair_item_init() first */
    struct list node;
    struct fair_flow *flow; /* the flow it waits in; NULL: does not wait */
    uint64_t order;
    uint32_t weight;
};

/* Remembers the debts of at most max_debtors tenants that have no request.  E_NOMEM. */
int fair_new(uint32_t max_debtors, struct fair **out);
/* The caller has dropped every flow before.  Accepts NULL. */
void fair_free(struct fair *fair);

/* Sets how many tokens of weight 1 a held flow may be behind the queue's virtual time.  The default is 0. */
void fair_set_credit(struct fair *fair, uint32_t n_tokens);

/* Returns a tenant's flow, valid until fair_drop().  NULL: no memory. */
struct fair_flow *fair_hold(struct fair *fair, uint64_t tenant);
/* The caller has no item waiting in the flow. */
void fair_drop(struct fair *fair, struct fair_flow *flow);

/* Two counters for the tenant that the caller may use.  They start at 0 and live as long as any caller holds
 * the flow. */
#define FAIR_TALLIES 2
uint32_t *fair_tally(struct fair_flow *flow);

/* ---- waiting items; none of these functions fails or allocates ---- */

void fair_item_init(struct fair_item *item);
static inline bool fair_item_waits(const struct fair_item *item)
{
    return item->flow != NULL;
}
/* Adds the item to the flow's line by order, behind items with a lower or the same order. weight is clamped
 * to 1 to FAIR_MAX_WEIGHT. */
void fair_wait(struct fair *fair, struct fair_flow *flow, struct fair_item *item, uint64_t order,
               uint32_t weight);
/* Removes the item from the line, served or not.  Does nothing if it does not wait. */
void fair_leave(struct fair *fair, struct fair_item *item);
uint32_t fair_n_waiting(const struct fair *fair);
uint32_t fair_n_tenants(const struct fair *fair); /* tenants with waiting items */

/* Iterate over the waiting items as if each tenant in turn were served: first the whole line of the next
 * tenant, then the line of the tenant after it. fair_skip() goes to the next tenant.  NULL: end.  End an
 * iteration with fair_rewind(); fair_first(), fair_wait(), fair_leave() and fair_charge() end it too. */
struct fair_item *fair_first(struct fair *fair);
struct fair_item *fair_next(struct fair *fair, const struct fair_item *item);
struct fair_item *fair_skip(struct fair *fair, const struct fair_item *item);
void fair_rewind(struct fair *fair);

/* True if a comes before b in that order. */
bool fair_is_before(const struct fair_item *a, const struct fair_item *b);

/* Returns the newest item of the tenant with the most waiting requests for its weight.  On a tie the tenant
 * that started waiting last counts.  NULL: the queue is empty. */
struct fair_item *fair_heaviest(const struct fair *fair);
/* True if this tenant, with one more request of this weight, has less waiting than the tenant of
 * fair_heaviest(). */
bool fair_is_lighter(const struct fair *fair, uint64_t tenant, uint32_t weight);

/* Records that the tenant was served n_tokens of a request of this weight. */
void fair_charge(struct fair *fair, struct fair_flow *flow, uint64_t n_tokens, uint32_t weight);

/* How far the tenant is ahead of the queue's virtual time, in tokens of weight 1.  For tests and status
 * pages. */
uint64_t fair_debt(const struct fair *fair, const struct fair_flow *flow);
/* How far the tenant is behind the queue's virtual time, at most the credit of fair_set_credit(). */
uint64_t fair_credit(const struct fair *fair, const struct fair_flow *flow);
uint32_t fair_n_known(const struct fair *fair); /* tenants that the queue has in memory */

#endif
