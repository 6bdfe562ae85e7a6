/* SPDX-License-Identifier: Apache-2.0 */
/* The eviction queue of a tenant's cached blocks.
 *
 *     shared   not pinned, other workers have it    a heap, least recently used first
 *     plain    not pinned                           a list, least recently used first
 *     lapsed   the pin has expired                  a heap, least recently used first
 *     kept     pinned                               a heap, earliest end of a pin first
 *
 * Eviction takes from the first of these that has a block, with one exception.  The oldest shared block goes
 * before the oldest plain one only if it was unused for at least half as long.  So a block that another
 * worker can send back counts as twice as old as it is.  And a popular block, which all workers have, does
 * not leave all of them at once.
 *
 * A shared block that becomes the last replica must not go first any more.  Its place in the list is lost, so
 * it joins the lapsed ones.  A block whose pin expires moves from kept to lapsed at the next look.
 *
 * Blocks expire when they were unused for their lifetime, and kept ones not before their pin ends.  Time
 * never runs back, so among plain and among lapsed blocks the next to expire is also the next to evict.  Both
 * questions look only at the first block.
 *
 * Hot path: no allocation after shelf_init, no log. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

enum { NOWHERE, SHARED, PLAIN, LAPSED, KEPT };

int shelf_init(struct shelf *shelf, struct shelf_place *places, uint32_t n_ids)
{
    *shelf = (struct shelf){.oldest = KV_BLOCK_NONE,
                            .newest = KV_BLOCK_NONE,
                            .places = places,
                            .shared = {.ids = calloc(n_ids, sizeof(kv_block_id))},
                            .lapsed = {.ids = calloc(n_ids, sizeof(kv_block_id))},
                            .kept = {.ids = calloc(n_ids, sizeof(kv_block_id))}};
    return shelf->shared.ids && shelf->lapsed.ids && shelf->kept.ids ? 0 : E_NOMEM;
}

void shelf_fini(struct shelf *shelf)
{
    free(shelf->shared.ids);
    free(shelf->lapsed.ids);
    free(shelf->kept.ids);
}

/* ---- heaps ---- */

static bool goes_before(const struct shelf *shelf, const struct shelf_heap *heap, kv_block_id a,
                        kv_block_id b)
{
    const struct shelf_place *x = &shelf->places[a], *y = &shelf->places[b];

    if (heap == &shelf->kept && x->keep_ns != y->keep_ns)
        return x->keep_ns < y->keep_ns;
    return x->used_order < y->used_order;
}

static void heap_set(struct shelf *shelf, struct shelf_heap *heap, uint32_t at, kv_block_id id)
{
    heap->ids[at] = id;
    shelf->places[id].heap_at = at;
}

/* Puts id at its position in the heap, starting from the free position at. */
static void heap_settle(struct shelf *shelf, struct shelf_heap *heap, uint32_t at, kv_block_id id)
{
    while (at > 0 && goes_before(shelf, heap, id, heap->ids[(at - 1) / 2])) {
        heap_set(shelf, heap, at, heap->ids[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t child = 2 * at + 1; child < heap->n; child = 2 * at + 1) {
        if (child + 1 < heap->n && goes_before(shelf, heap, heap->ids[child + 1], heap->ids[child]))
            child++;
        if (!goes_before(shelf, heap, heap->ids[child], id))
            break;
        heap_set(shelf, heap, at, heap->ids[child]);
        at = child;
    }
    heap_set(shelf, heap, at, id);
}

static void heap_add(struct shelf *shelf, struct shelf_heap *heap, kv_block_id id)
{
    heap_settle(shelf, heap, heap->n++, id);
}

static void heap_remove(struct shelf *shelf, struct shelf_heap *heap, kv_block_id id)
{
    kv_block_id last = heap->ids[--heap->n];

    if (last != id)
        heap_settle(shelf, heap, shelf->places[id].heap_at, last);
}

/* ---- the list ---- */

static void list_add(struct shelf *shelf, kv_block_id id)
{
    struct shelf_place *place = &shelf->places[id];

    place->older = shelf->newest;
    place->newer = KV_BLOCK_NONE;
    if (shelf->newest != KV_BLOCK_NONE)
        shelf->places[shelf->newest].newer = id;
    else
        shelf->oldest = id;
    shelf->newest = id;
}

static void list_take_out(struct shelf *shelf, kv_block_id id)
{
    const struct shelf_place *place = &shelf->places[id];

    if (place->older != KV_BLOCK_NONE)
        shelf->places[place->older].newer = place->newer;
    else
        shelf->oldest = place->newer;
    if (place->newer != KV_BLOCK_NONE)
        shelf->places[place->newer].older = place->older;
    else
        shelf->newest = place->older;
}

/* ---- the eviction queue ---- */

static struct shelf_heap *heap_of(struct shelf *shelf, uint8_t where)
{
    return where == SHARED ? &shelf->shared : where == KEPT ? &shelf->kept : &shelf->lapsed;
}

void shelf_put(struct shelf *shelf, kv_block_id id, uint64_t now_ns)
{
    struct shelf_place *place = &shelf->places[id];

    ASSERT(place->where == NOWHERE);
    place->used_ns = now_ns;
    place->used_order = shelf->n_used++;
    if (place->keep_ns == 0)
        place->where = place->is_shared ? SHARED : PLAIN;
    else
        place->where = place->keep_ns > now_ns ? KEPT : LAPSED;
    if (place->where == PLAIN)
        list_add(shelf, id);
    else
        heap_add(shelf, heap_of(shelf, place->where), id);
}

void shelf_remove(struct shelf *shelf, kv_block_id id)
{
    struct shelf_place *place = &shelf->places[id];

    ASSERT(place->where != NOWHERE);
    if (place->where == PLAIN)
        list_take_out(shelf, id);
    else
        heap_remove(shelf, heap_of(shelf, place->where), id);
    place->where = NOWHERE;
}

void shelf_keep(struct shelf *shelf, kv_block_id id, uint64_t until_ns)
{
    struct shelf_place *place = &shelf->places[id];

    ASSERT(place->where == NOWHERE);
    if (until_ns > place->keep_ns)
        place->keep_ns = until_ns;
}

void shelf_share(struct shelf *shelf, kv_block_id id, bool is_shared)
{
    struct shelf_place *place = &shelf->places[id];

    place->is_shared = is_shared;
    if (place->where != SHARED || is_shared)
        return;
    heap_remove(shelf, &shelf->shared, id);
    place->where = LAPSED;
    heap_add(shelf, &shelf->lapsed, id);
}

void shelf_unmark(struct shelf *shelf, kv_block_id id)
{
    shelf->places[id].keep_ns = 0;
    shelf->places[id].is_shared = false;
}

/* Moves blocks whose pins expired from kept to lapsed. */
static void let_lapse(struct shelf *shelf, uint64_t now_ns)
{
    while (shelf->kept.n > 0 && shelf->places[shelf->kept.ids[0]].keep_ns <= now_ns) {
        kv_block_id id = shelf->kept.ids[0];

        heap_remove(shelf, &shelf->kept, id);
        shelf->places[id].where = LAPSED;
        heap_add(shelf, &shelf->lapsed, id);
    }
}

static uint64_t age_ns(const struct shelf *shelf, kv_block_id id, uint64_t now_ns)
{
    return now_ns - shelf->places[id].used_ns;
}

/* True if the oldest shared block is evicted before the oldest plain one. */
static bool shared_goes_first(const struct shelf *shelf, uint64_t now_ns)
{
    if (shelf->shared.n == 0)
        return false;
    return shelf->oldest == KV_BLOCK_NONE ||
           2 * age_ns(shelf, shelf->shared.ids[0], now_ns) >= age_ns(shelf, shelf->oldest, now_ns);
}

kv_block_id shelf_next(struct shelf *shelf, uint64_t now_ns)
{
    let_lapse(shelf, now_ns);
    if (shared_goes_first(shelf, now_ns))
        return shelf->shared.ids[0];
    if (shelf->oldest != KV_BLOCK_NONE)
        return shelf->oldest;
    if (shelf->lapsed.n > 0)
        return shelf->lapsed.ids[0];
    return shelf->kept.n > 0 ? shelf->kept.ids[0] : KV_BLOCK_NONE;
}

unsigned shelf_rank(const struct shelf *shelf, kv_block_id id)
{
    return shelf->places[id].where == SHARED ? PLAIN : shelf->places[id].where;
}

bool shelf_is_expired(const struct shelf *shelf, kv_block_id id, uint64_t now_ns, uint64_t lifetime_ns)
{
    const struct shelf_place *place = &shelf->places[id];

    return place->where != NOWHERE && now_ns - place->used_ns >= lifetime_ns && place->keep_ns <= now_ns;
}

kv_block_id shelf_expired(struct shelf *shelf, uint64_t now_ns, uint64_t lifetime_ns)
{
    let_lapse(shelf, now_ns);
    if (shelf->oldest != KV_BLOCK_NONE && shelf_is_expired(shelf, shelf->oldest, now_ns, lifetime_ns))
        return shelf->oldest;
    if (shelf->shared.n > 0 && shelf_is_expired(shelf, shelf->shared.ids[0], now_ns, lifetime_ns))
        return shelf->shared.ids[0];
    if (shelf->lapsed.n > 0 && shelf_is_expired(shelf, shelf->lapsed.ids[0], now_ns, lifetime_ns))
        return shelf->lapsed.ids[0];
    return KV_BLOCK_NONE;
}
