/* SPDX-License-Identifier: Apache-2.0 */
/* The fair queue of fair.h: three heaps of flows.
 *
 *     fair_hold --> HELD --wait--> in `turns` by virtual time, and in `loads` by waiting load
 *                    ^ |                |
 *                    | +<----leave------+
 *                 hold drop, in debt
 *                    | v
 *                  in `debts` by virtual time --the queue's time passes it, or too many debts--> forgotten
 *
 * The queue's virtual time is the least virtual time of the waiting flows at the moment of a service.  When no flow
 * waits, the queue's time follows the flow that is served.  It never goes back.  A flow that neither waits nor is
 * ahead of that time needs no record, because a new flow would be equal to it.
 *
 * Why no tenant starves: only tenants with virtual time below s pass a tenant that waits at s.  Each of them
 * is at or above the queue's time, less the credit.  It exceeds s after at most (s - time + credit) * its
 * weight tokens and one request more.  A tenant that leaves in debt returns with it.  When a debt is forgotten for lack of room,
 * the queue's time moves up to it, so no tenant gains by that.
 *
 * An iteration takes flows off the heap of turns into `passed`, and fair_rewind() puts them back.
 *
 * Only fair_hold() allocates: it grows every table to the number of flows. */
#include "base/fair.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "base/hashmap.h"

#define UNIT    65536u /* virtual time of one token of weight 1 */
#define NOWHERE UINT32_MAX

enum heap_kind { HEAP_TURNS, HEAP_LOADS, HEAP_DEBTS, N_HEAPS };

struct fair_flow {
    uint64_t tenant;
    uint64_t start;   /* virtual time of its next service */
    uint64_t arrived; /* arrival number at which it began to wait */
    uint64_t load;    /* sum of UNIT / weight over its waiting items */
    uint32_t n_refs;
    uint32_t tally[FAIR_TALLIES]; /* counters for the caller (fair_tally) */
    struct list items;
    uint32_t at[N_HEAPS]; /* its place in each heap; NOWHERE: none */
};

struct heap {
    struct fair_flow **flows; /* [fair.cap] */
    uint32_t n;
};

struct fair {
    struct hashmap *by_tenant;
    struct heap heaps[N_HEAPS];
    struct fair_flow **passed; /* [cap] */
    uint32_t n_passed;
    uint32_t cap, n_flows, max_debtors, n_waiting;
    uint64_t time;
    uint64_t credit; /* in virtual time */
    uint64_t n_arrivals;
};

/* ---- heaps ---- */

static bool is_before(enum heap_kind kind, const struct fair_flow *a, const struct fair_flow *b)
{
    if (kind == HEAP_LOADS)
        return a->load != b->load ? a->load > b->load : a->arrived > b->arrived;
    return a->start != b->start ? a->start < b->start : a->arrived < b->arrived;
}

static void heap_put(struct heap *heap, enum heap_kind kind, uint32_t at, struct fair_flow *flow)
{
    heap->flows[at] = flow;
    flow->at[kind] = at;
}

static void heap_rise(struct heap *heap, enum heap_kind kind, uint32_t at)
{
    struct fair_flow *flow = heap->flows[at];

    while (at > 0 && is_before(kind, flow, heap->flows[(at - 1) / 2])) {
        heap_put(heap, kind, at, heap->flows[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(heap, kind, at, flow);
}

static void heap_sink(struct heap *heap, enum heap_kind kind, uint32_t at)
{
    struct fair_flow *flow = heap->flows[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < heap->n && is_before(kind, heap->flows[child + 1], heap->flows[child]))
            child++;
        if (child >= heap->n || !is_before(kind, heap->flows[child], flow))
            break;
        heap_put(heap, kind, at, heap->flows[child]);
        at = child;
    }
    heap_put(heap, kind, at, flow);
}

static void fair_heap_add(struct fair *fair, enum heap_kind kind, struct fair_flow *flow)
{
    struct heap *heap = &fair->heaps[kind];

    heap_put(heap, kind, heap->n, flow);
    heap_rise(heap, kind, heap->n++);
}

static void fair_heap_remove(struct fair *fair, enum heap_kind kind, struct fair_flow *flow)
{
    struct heap *heap = &fair->heaps[kind];
    uint32_t at = flow->at[kind];
    struct fair_flow *last;

    if (at == NOWHERE)
        return;
    flow->at[kind] = NOWHERE;
    last = heap->flows[--heap->n];
    if (last == flow)
        return;
    heap_put(heap, kind, at, last);
    heap_rise(heap, kind, at);
    heap_sink(heap, kind, last->at[kind]);
}

/* Restores the heap after a change of the flow's key. */
static void heap_move(struct fair *fair, enum heap_kind kind, struct fair_flow *flow)
{
    struct heap *heap = &fair->heaps[kind];

    if (flow->at[kind] == NOWHERE)
        return;
    heap_rise(heap, kind, flow->at[kind]);
    heap_sink(heap, kind, flow->at[kind]);
}

static struct fair_flow *heap_top(const struct fair *fair, enum heap_kind kind)
{
    return fair->heaps[kind].n > 0 ? fair->heaps[kind].flows[0] : NULL;
}

/* ---- flows ---- */

int fair_new(uint32_t max_debtors, struct fair **out)
{
    struct fair *fair = calloc(1, sizeof(*fair));

    if (fair == NULL)
        return E_NOMEM;
    fair->max_debtors = max_debtors;
    if (hashmap_new(sizeof(uint64_t), &fair->by_tenant) < 0) {
        free(fair);
        return E_NOMEM;
    }
    *out = fair;
    return 0;
}

static void flow_forget(struct fair *fair, struct fair_flow *flow)
{
    fair_heap_remove(fair, HEAP_DEBTS, flow);
    hashmap_remove(fair->by_tenant, &flow->tenant);
    fair->n_flows--;
    free(flow);
}

void fair_free(struct fair *fair)
{
    struct fair_flow *flow;

    if (fair == NULL)
        return;
    while ((flow = heap_top(fair, HEAP_DEBTS)) != NULL)
        flow_forget(fair, flow);
    ASSERT(fair->n_flows == 0);
    hashmap_free(fair->by_tenant);
    for (unsigned kind = 0; kind < N_HEAPS; kind++)
        free(fair->heaps[kind].flows);
    free(fair->passed);
    free(fair);
}

/* Makes room for one more flow in every table. */
static bool fair_has_room(struct fair *fair)
{
    uint32_t cap = fair->cap > 0 ? 2 * fair->cap : 16;
    struct fair_flow **grown;

    if (fair->n_flows < fair->cap)
        return true;
    for (unsigned kind = 0; kind < N_HEAPS; kind++) {
        grown = realloc(fair->heaps[kind].flows, cap * sizeof(struct fair_flow *));
        if (grown == NULL)
            return false;
        fair->heaps[kind].flows = grown;
    }
    grown = realloc(fair->passed, cap * sizeof(struct fair_flow *));
    if (grown == NULL)
        return false;
    fair->passed = grown;
    fair->cap = cap;
    return true;
}

/* Forgets tenants without debt; if too many remain, forgets the one with the smallest debt. */
static void forget_debtors(struct fair *fair)
{
    struct fair_flow *flow;

    while ((flow = heap_top(fair, HEAP_DEBTS)) != NULL &&
           (flow->start <= fair->time || fair->heaps[HEAP_DEBTS].n > fair->max_debtors)) {
        if (flow->start > fair->time)
            fair->time = flow->start;
        flow_forget(fair, flow);
    }
}

void fair_set_credit(struct fair *fair, uint32_t n_tokens)
{
    fair->credit = (uint64_t)n_tokens * UNIT;
}

struct fair_flow *fair_hold(struct fair *fair, uint64_t tenant)
{
    struct fair_flow *flow = hashmap_get(fair->by_tenant, &tenant);

    if (flow == NULL) {
        flow = fair_has_room(fair) ? calloc(1, sizeof(*flow)) : NULL;
        if (flow == NULL)
            return NULL;
        flow->tenant = tenant;
        flow->start = fair->time;
        list_init(&flow->items);
        for (unsigned kind = 0; kind < N_HEAPS; kind++)
            flow->at[kind] = NOWHERE;
        if (hashmap_put(fair->by_tenant, &tenant, flow, NULL) < 0) {
            free(flow);
            return NULL;
        }
        fair->n_flows++;
    }
    fair_heap_remove(fair, HEAP_DEBTS, flow);
    flow->n_refs++;
    return flow;
}

void fair_drop(struct fair *fair, struct fair_flow *flow)
{
    if (flow == NULL || --flow->n_refs > 0)
        return;
    ASSERT(list_is_empty(&flow->items));
    fair_heap_add(fair, HEAP_DEBTS, flow);
    forget_debtors(fair);
}

uint32_t *fair_tally(struct fair_flow *flow)
{
    return flow->tally;
}

/* ---- the line ---- */

static struct fair_item *item_of(struct list *node)
{
    return container_of(node, struct fair_item, node);
}

static uint32_t fair_clamp(uint32_t weight)
{
    return weight == 0 ? 1 : weight < FAIR_MAX_WEIGHT ? weight : FAIR_MAX_WEIGHT;
}

void fair_item_init(struct fair_item *item)
{
    *item = (struct fair_item){.flow = NULL};
    list_init(&item->node);
}

/* A flow without waiting items falls behind by its credit at most. */
static void fair_catch_up(const struct fair *fair, struct fair_flow *flow)
{
    uint64_t least = fair->time > fair->credit ? fair->time - fair->credit : 0;

    if (flow->start < least)
        flow->start = least;
}

void fair_wait(struct fair *fair, struct fair_flow *flow, struct fair_item *item, uint64_t order,
               uint32_t weight)
{
    struct list *at = flow->items.prev;
    bool is_first = list_is_empty(&flow->items);

    ASSERT(item->flow == NULL);
    fair_rewind(fair);
    item->flow = flow;
    item->order = order;
    item->weight = fair_clamp(weight);
    while (at != &flow->items && item_of(at)->order > order)
        at = at->prev;
    list_insert_before(at->next, &item->node);
    fair->n_waiting++;
    flow->load += UNIT / item->weight;
    if (!is_first) {
        heap_move(fair, HEAP_LOADS, flow);
        return;
    }
    fair_catch_up(fair, flow);
    flow->arrived = fair->n_arrivals++;
    fair_heap_add(fair, HEAP_TURNS, flow);
    fair_heap_add(fair, HEAP_LOADS, flow);
}

void fair_leave(struct fair *fair, struct fair_item *item)
{
    struct fair_flow *flow = item->flow;

    if (flow == NULL)
        return;
    fair_rewind(fair);
    list_remove(&item->node);
    item->flow = NULL;
    fair->n_waiting--;
    flow->load -= UNIT / item->weight;
    if (!list_is_empty(&flow->items)) {
        heap_move(fair, HEAP_LOADS, flow);
        return;
    }
    fair_heap_remove(fair, HEAP_TURNS, flow);
    fair_heap_remove(fair, HEAP_LOADS, flow);
}

uint32_t fair_n_waiting(const struct fair *fair)
{
    return fair->n_waiting;
}

uint32_t fair_n_tenants(const struct fair *fair)
{
    return fair->heaps[HEAP_LOADS].n;
}

static struct fair_item *top_item(const struct fair *fair)
{
    const struct fair_flow *flow = heap_top(fair, HEAP_TURNS);

    return flow != NULL ? item_of(flow->items.next) : NULL;
}

struct fair_item *fair_first(struct fair *fair)
{
    fair_rewind(fair);
    return top_item(fair);
}

struct fair_item *fair_next(struct fair *fair, const struct fair_item *item)
{
    return item->node.next != &item->flow->items ? item_of(item->node.next) : fair_skip(fair, item);
}

struct fair_item *fair_skip(struct fair *fair, const struct fair_item *item)
{
    struct fair_flow *flow = item->flow;

    fair_heap_remove(fair, HEAP_TURNS, flow);
    fair->passed[fair->n_passed++] = flow;
    return top_item(fair);
}

void fair_rewind(struct fair *fair)
{
    while (fair->n_passed > 0)
        fair_heap_add(fair, HEAP_TURNS, fair->passed[--fair->n_passed]);
}

struct fair_item *fair_heaviest(const struct fair *fair)
{
    const struct fair_flow *flow = heap_top(fair, HEAP_LOADS);

    return flow != NULL ? item_of(flow->items.prev) : NULL;
}

bool fair_is_before(const struct fair_item *a, const struct fair_item *b)
{
    return a->flow == b->flow ? a->order < b->order : is_before(HEAP_TURNS, a->flow, b->flow);
}

bool fair_is_lighter(const struct fair *fair, uint64_t tenant, uint32_t weight)
{
    const struct fair_flow *heaviest = heap_top(fair, HEAP_LOADS);
    const struct fair_flow *flow = hashmap_get(fair->by_tenant, &tenant);
    uint64_t load = (flow != NULL ? flow->load : 0) + UNIT / fair_clamp(weight);

    return heaviest != NULL && heaviest != flow && load < heaviest->load;
}

/* ---- virtual time ---- */

void fair_charge(struct fair *fair, struct fair_flow *flow, uint64_t n_tokens, uint32_t weight)
{
    const struct fair_flow *next;

    fair_rewind(fair);
    next = heap_top(fair, HEAP_TURNS);
    if (next != NULL && next->start > fair->time)
        fair->time = next->start;
    if (list_is_empty(&flow->items))
        fair_catch_up(fair, flow);
    flow->start += n_tokens * UNIT / fair_clamp(weight);
    if (next == NULL && flow->start > fair->time)
        fair->time = flow->start;
    heap_move(fair, HEAP_TURNS, flow);
    forget_debtors(fair);
}

uint64_t fair_credit(const struct fair *fair, const struct fair_flow *flow)
{
    uint64_t behind = flow->start < fair->time ? fair->time - flow->start : 0;

    return (behind < fair->credit ? behind : fair->credit) / UNIT;
}

uint64_t fair_debt(const struct fair *fair, const struct fair_flow *flow)
{
    return flow->start > fair->time ? (flow->start - fair->time) / UNIT : 0;
}

uint32_t fair_n_known(const struct fair *fair)
{
    return fair->n_flows;
}
