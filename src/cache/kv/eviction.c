/* SPDX-License-Identifier: Apache-2.0 */
/* The eviction queue of a tenant's cached blocks.
 *
 *     spare       unlikely to be of use                a heap, least recently used first
 *     replicated  not pinned, other workers have it    a heap, least recently used first
 *     plain       not pinned                           a list, least recently used first
 *     pin_ended   the pin has expired                  a heap, least recently used first
 *     pinned      pinned                               a heap, earliest end of a pin first
 *
 * Eviction takes from the first of these that has a block, with one exception.  The oldest replicated block
 * goes before the oldest plain one only if it was unused for at least half as long.  So a block that another
 * worker can send back counts as twice as old as it is.  And a popular block, which all workers have, does
 * not leave all of them at once.
 *
 * A replicated block that becomes the last replica must not go first any more.  Its place in the list is
 * lost, so it joins the blocks whose pins have expired.  A block whose pin expires moves from pinned to
 * pin_ended at the next look.
 *
 * Blocks expire when they were unused for their lifetime, and pinned ones not before their pin ends.  Time
 * never runs back, so among plain and among expired pins the next to expire is also the next to evict.  Both
 * questions look only at the first block.
 *
 * Hot path: no allocation after eviction_init, no log. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

enum { NOWHERE, SPARE, REPLICATED, PLAIN, PIN_ENDED, PINNED };

int eviction_init(struct eviction_queue *queue, struct eviction_entry *places, uint32_t n_ids)
{
    *queue = (struct eviction_queue){.oldest = KV_BLOCK_NONE,
                                     .newest = KV_BLOCK_NONE,
                                     .places = places,
                                     .spare = {.ids = calloc(n_ids, sizeof(kv_block_id))},
                                     .replicated = {.ids = calloc(n_ids, sizeof(kv_block_id))},
                                     .pin_ended = {.ids = calloc(n_ids, sizeof(kv_block_id))},
                                     .pinned = {.ids = calloc(n_ids, sizeof(kv_block_id))}};
    return queue->spare.ids && queue->replicated.ids && queue->pin_ended.ids && queue->pinned.ids ? 0
                                                                                                  : E_NOMEM;
}

void eviction_fini(struct eviction_queue *queue)
{
    free(queue->spare.ids);
    free(queue->replicated.ids);
    free(queue->pin_ended.ids);
    free(queue->pinned.ids);
}

/* ---- heaps ---- */

static bool heap_goes_before(const struct eviction_queue *queue, const struct eviction_heap *heap,
                             kv_block_id a, kv_block_id b)
{
    const struct eviction_entry *x = &queue->places[a], *y = &queue->places[b];

    if (heap == &queue->pinned && x->pin_end_ns != y->pin_end_ns)
        return x->pin_end_ns < y->pin_end_ns;
    return x->used_order < y->used_order;
}

static void heap_set(struct eviction_queue *queue, struct eviction_heap *heap, uint32_t at, kv_block_id id)
{
    heap->ids[at] = id;
    queue->places[id].heap_at = at;
}

/* Puts id at its position in the heap, starting from the free position at. */
static void heap_sift(struct eviction_queue *queue, struct eviction_heap *heap, uint32_t at, kv_block_id id)
{
    while (at > 0 && heap_goes_before(queue, heap, id, heap->ids[(at - 1) / 2])) {
        heap_set(queue, heap, at, heap->ids[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t child = 2 * at + 1; child < heap->n; child = 2 * at + 1) {
        if (child + 1 < heap->n && heap_goes_before(queue, heap, heap->ids[child + 1], heap->ids[child]))
            child++;
        if (!heap_goes_before(queue, heap, heap->ids[child], id))
            break;
        heap_set(queue, heap, at, heap->ids[child]);
        at = child;
    }
    heap_set(queue, heap, at, id);
}

static void eviction_heap_add(struct eviction_queue *queue, struct eviction_heap *heap, kv_block_id id)
{
    heap_sift(queue, heap, heap->n++, id);
}

static void eviction_heap_remove(struct eviction_queue *queue, struct eviction_heap *heap, kv_block_id id)
{
    kv_block_id last = heap->ids[--heap->n];

    if (last != id)
        heap_sift(queue, heap, queue->places[id].heap_at, last);
}

/* ---- the list ---- */

static void eviction_list_add(struct eviction_queue *queue, kv_block_id id)
{
    struct eviction_entry *place = &queue->places[id];

    place->older = queue->newest;
    place->newer = KV_BLOCK_NONE;
    if (queue->newest != KV_BLOCK_NONE)
        queue->places[queue->newest].newer = id;
    else
        queue->oldest = id;
    queue->newest = id;
}

static void eviction_list_remove(struct eviction_queue *queue, kv_block_id id)
{
    const struct eviction_entry *place = &queue->places[id];

    if (place->older != KV_BLOCK_NONE)
        queue->places[place->older].newer = place->newer;
    else
        queue->oldest = place->newer;
    if (place->newer != KV_BLOCK_NONE)
        queue->places[place->newer].older = place->older;
    else
        queue->newest = place->older;
}

/* ---- the eviction queue ---- */

static struct eviction_heap *eviction_heap_of(struct eviction_queue *queue, uint8_t where)
{
    if (where == SPARE)
        return &queue->spare;
    return where == REPLICATED ? &queue->replicated : where == PINNED ? &queue->pinned : &queue->pin_ended;
}

void eviction_put(struct eviction_queue *queue, kv_block_id id, uint64_t now_ns)
{
    struct eviction_entry *place = &queue->places[id];

    ASSERT(place->where == NOWHERE);
    place->used_ns = now_ns;
    place->used_order = queue->n_used++;
    if (place->pin_end_ns == 0)
        place->where = place->is_spare ? SPARE : place->is_replicated ? REPLICATED : PLAIN;
    else
        place->where = place->pin_end_ns > now_ns ? PINNED : PIN_ENDED;
    if (place->where == PLAIN)
        eviction_list_add(queue, id);
    else
        eviction_heap_add(queue, eviction_heap_of(queue, place->where), id);
}

void eviction_remove(struct eviction_queue *queue, kv_block_id id)
{
    struct eviction_entry *place = &queue->places[id];

    ASSERT(place->where != NOWHERE);
    if (place->where == PLAIN)
        eviction_list_remove(queue, id);
    else
        eviction_heap_remove(queue, eviction_heap_of(queue, place->where), id);
    place->where = NOWHERE;
}

void eviction_pin(struct eviction_queue *queue, kv_block_id id, uint64_t until_ns)
{
    struct eviction_entry *place = &queue->places[id];

    ASSERT(place->where == NOWHERE);
    if (until_ns > place->pin_end_ns)
        place->pin_end_ns = until_ns;
}

void eviction_set_replicated(struct eviction_queue *queue, kv_block_id id, bool is_replicated)
{
    struct eviction_entry *place = &queue->places[id];

    place->is_replicated = is_replicated;
    if (place->where != REPLICATED || is_replicated)
        return;
    eviction_heap_remove(queue, &queue->replicated, id);
    place->where = PIN_ENDED;
    eviction_heap_add(queue, &queue->pin_ended, id);
}

void eviction_reset(struct eviction_queue *queue, kv_block_id id)
{
    queue->places[id].pin_end_ns = 0;
    queue->places[id].is_replicated = queue->places[id].is_spare = false;
}

/* Moves blocks whose pins expired from pinned to pin_ended. */
static void eviction_end_pins(struct eviction_queue *queue, uint64_t now_ns)
{
    while (queue->pinned.n > 0 && queue->places[queue->pinned.ids[0]].pin_end_ns <= now_ns) {
        kv_block_id id = queue->pinned.ids[0];

        eviction_heap_remove(queue, &queue->pinned, id);
        queue->places[id].where = PIN_ENDED;
        eviction_heap_add(queue, &queue->pin_ended, id);
    }
}

static uint64_t eviction_age_ns(const struct eviction_queue *queue, kv_block_id id, uint64_t now_ns)
{
    return now_ns - queue->places[id].used_ns;
}

/* True if the oldest replicated block is evicted before the oldest plain one. */
static bool eviction_replicated_first(const struct eviction_queue *queue, uint64_t now_ns)
{
    if (queue->replicated.n == 0)
        return false;
    return queue->oldest == KV_BLOCK_NONE || 2 * eviction_age_ns(queue, queue->replicated.ids[0], now_ns) >=
                                                 eviction_age_ns(queue, queue->oldest, now_ns);
}

kv_block_id eviction_next(struct eviction_queue *queue, uint64_t now_ns)
{
    eviction_end_pins(queue, now_ns);
    if (queue->spare.n > 0)
        return queue->spare.ids[0];
    if (eviction_replicated_first(queue, now_ns))
        return queue->replicated.ids[0];
    if (queue->oldest != KV_BLOCK_NONE)
        return queue->oldest;
    if (queue->pin_ended.n > 0)
        return queue->pin_ended.ids[0];
    return queue->pinned.n > 0 ? queue->pinned.ids[0] : KV_BLOCK_NONE;
}

unsigned eviction_rank(const struct eviction_queue *queue, kv_block_id id)
{
    return queue->places[id].where == REPLICATED ? PLAIN : queue->places[id].where;
}

bool eviction_is_expired(const struct eviction_queue *queue, kv_block_id id, uint64_t now_ns,
                         uint64_t lifetime_ns)
{
    const struct eviction_entry *place = &queue->places[id];

    return place->where != NOWHERE && now_ns - place->used_ns >= lifetime_ns && place->pin_end_ns <= now_ns;
}

kv_block_id eviction_expired(struct eviction_queue *queue, uint64_t now_ns, uint64_t lifetime_ns)
{
    eviction_end_pins(queue, now_ns);
    if (queue->oldest != KV_BLOCK_NONE && eviction_is_expired(queue, queue->oldest, now_ns, lifetime_ns))
        return queue->oldest;
    if (queue->spare.n > 0 && eviction_is_expired(queue, queue->spare.ids[0], now_ns, lifetime_ns))
        return queue->spare.ids[0];
    if (queue->replicated.n > 0 && eviction_is_expired(queue, queue->replicated.ids[0], now_ns, lifetime_ns))
        return queue->replicated.ids[0];
    if (queue->pin_ended.n > 0 && eviction_is_expired(queue, queue->pin_ended.ids[0], now_ns, lifetime_ns))
        return queue->pin_ended.ids[0];
    return KV_BLOCK_NONE;
}
