/* SPDX-License-Identifier: Apache-2.0 */
/* The eviction queue of a tenant's cached blocks.
 *
 *     EVICTION_SPARE        unlikely to be of use                a heap, least recently used first
 *     EVICTION_REPLICATED   not pinned, other workers have it    a heap, least recently used first
 *     EVICTION_PLAIN        not pinned                           a list, least recently used first
 *     EVICTION_PIN_ENDED    the pin has expired                  a heap, least recently used first
 *     EVICTION_PINNED       pinned                               a heap, earliest end of a pin first
 *
 * Eviction takes from the first of these that has a block, with one exception.  The oldest replicated block
 * goes before the oldest plain one only if it was unused for at least half as long.  So a block that another
 * worker can send back counts as twice as old as it is.  And a popular block, which all workers have, does
 * not leave all of them at once.
 *
 * A replicated block that becomes the last replica must not go first any more.  Its place in the list is
 * lost, so it joins the blocks whose pins have expired.  A block whose pin expires joins them at the next look.
 *
 * Blocks expire when they were unused for their lifetime, and pinned ones not before their pin ends.  Time
 * never runs back, so among plain and among expired pins the next to expire is also the next to evict.  Both
 * questions look only at the first block.
 *
 * Hot path: no allocation after eviction_init, no log.
 * How to change the order: docs/changes-worker.md, "Which block an eviction takes first".
 * A further rank: docs/changes-worker.md, "A rank of eviction, as spare and pinned blocks have". */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

int eviction_init(struct eviction_queue *queue, struct eviction_entry *places, uint32_t n_ids)
{
    *queue = (struct eviction_queue){.oldest = KV_BLOCK_NONE, .newest = KV_BLOCK_NONE, .places = places};
    for (unsigned rank = EVICTION_FIRST; rank < EVICTION_N_RANKS; rank++) {
        if (rank == EVICTION_PLAIN)
            continue;
        queue->heaps[rank].ids = calloc(n_ids, sizeof(kv_block_id));
        if (queue->heaps[rank].ids == NULL)
            return E_NOMEM;
    }
    return 0;
}

void eviction_fini(struct eviction_queue *queue)
{
    for (unsigned rank = 0; rank < EVICTION_N_RANKS; rank++)
        free(queue->heaps[rank].ids);
}

/* ---- heaps ---- */

static bool heap_goes_before(const struct eviction_queue *queue, const struct eviction_heap *heap,
                             kv_block_id a, kv_block_id b)
{
    const struct eviction_entry *x = &queue->places[a], *y = &queue->places[b];

    if (heap == &queue->heaps[EVICTION_PINNED] && x->pin_end_ns != y->pin_end_ns)
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

/* Adds a block at the place of its last use.  Looks from both ends at once: most blocks that return are among the oldest,
 * because saves take those first. */
static void eviction_list_insert(struct eviction_queue *queue, kv_block_id id)
{
    struct eviction_entry *places = queue->places, *place = &places[id];
    kv_block_id older = queue->newest, newer = queue->oldest;

    while (older != KV_BLOCK_NONE && places[older].used_order > place->used_order && newer != KV_BLOCK_NONE &&
           places[newer].used_order < place->used_order) {
        older = places[older].older;
        newer = places[newer].newer;
    }
    if (older == KV_BLOCK_NONE || places[older].used_order < place->used_order)
        newer = older == KV_BLOCK_NONE ? queue->oldest : places[older].newer;
    else
        older = newer == KV_BLOCK_NONE ? queue->newest : places[newer].older;
    place->older = older;
    place->newer = newer;
    if (older != KV_BLOCK_NONE)
        queue->places[older].newer = id;
    else
        queue->oldest = id;
    if (newer != KV_BLOCK_NONE)
        queue->places[newer].older = id;
    else
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

static enum eviction_rank eviction_rank_of(const struct eviction_entry *place, uint64_t now_ns)
{
    if (place->pin_end_ns > now_ns)
        return EVICTION_PINNED;
    if (place->pin_end_ns > 0)
        return EVICTION_PIN_ENDED;
    if (place->is_spare)
        return EVICTION_SPARE;
    return place->is_replicated ? EVICTION_REPLICATED : EVICTION_PLAIN;
}

static void eviction_enter(struct eviction_queue *queue, kv_block_id id, enum eviction_rank rank)
{
    queue->places[id].rank = (uint8_t)rank;
    if (rank == EVICTION_PLAIN)
        eviction_list_add(queue, id);
    else
        eviction_heap_add(queue, &queue->heaps[rank], id);
}

void eviction_put(struct eviction_queue *queue, kv_block_id id, uint64_t now_ns)
{
    struct eviction_entry *place = &queue->places[id];

    ASSERT(place->rank == EVICTION_NOWHERE);
    place->used_ns = now_ns;
    place->used_order = queue->n_used++;
    eviction_enter(queue, id, eviction_rank_of(place, now_ns));
}

void eviction_put_back(struct eviction_queue *queue, kv_block_id id, uint64_t now_ns)
{
    enum eviction_rank rank = eviction_rank_of(&queue->places[id], now_ns);

    ASSERT(queue->places[id].rank == EVICTION_NOWHERE);
    if (rank != EVICTION_PLAIN) {
        eviction_enter(queue, id, rank);
        return;
    }
    queue->places[id].rank = EVICTION_PLAIN;
    eviction_list_insert(queue, id);
}

void eviction_remove(struct eviction_queue *queue, kv_block_id id)
{
    struct eviction_entry *place = &queue->places[id];

    ASSERT(place->rank != EVICTION_NOWHERE);
    if (place->rank == EVICTION_PLAIN)
        eviction_list_remove(queue, id);
    else
        eviction_heap_remove(queue, &queue->heaps[place->rank], id);
    place->rank = EVICTION_NOWHERE;
}

void eviction_pin(struct eviction_queue *queue, kv_block_id id, uint64_t until_ns)
{
    struct eviction_entry *place = &queue->places[id];

    ASSERT(place->rank == EVICTION_NOWHERE);
    if (until_ns > place->pin_end_ns)
        place->pin_end_ns = until_ns;
}

void eviction_set_replicated(struct eviction_queue *queue, kv_block_id id, bool is_replicated)
{
    struct eviction_entry *place = &queue->places[id];

    place->is_replicated = is_replicated;
    if (place->rank != EVICTION_REPLICATED || is_replicated)
        return;
    eviction_remove(queue, id);
    eviction_enter(queue, id, EVICTION_PIN_ENDED);
}

void eviction_reset(struct eviction_queue *queue, kv_block_id id)
{
    queue->places[id].pin_end_ns = 0;
    queue->places[id].is_replicated = queue->places[id].is_spare = false;
}

/* The next block of this rank; KV_BLOCK_NONE: there is none. */
static kv_block_id eviction_first(const struct eviction_queue *queue, enum eviction_rank rank)
{
    if (rank == EVICTION_PLAIN)
        return queue->oldest;
    return queue->heaps[rank].n > 0 ? queue->heaps[rank].ids[0] : KV_BLOCK_NONE;
}

/* Moves blocks whose pins expired to EVICTION_PIN_ENDED. */
static void eviction_end_pins(struct eviction_queue *queue, uint64_t now_ns)
{
    kv_block_id id;

    while ((id = eviction_first(queue, EVICTION_PINNED)) != KV_BLOCK_NONE &&
           queue->places[id].pin_end_ns <= now_ns) {
        eviction_remove(queue, id);
        eviction_enter(queue, id, EVICTION_PIN_ENDED);
    }
}

static uint64_t eviction_age_ns(const struct eviction_queue *queue, kv_block_id id, uint64_t now_ns)
{
    return now_ns - queue->places[id].used_ns;
}

/* True if the oldest replicated block must wait for the oldest plain one. */
static bool eviction_replicated_waits(const struct eviction_queue *queue, uint64_t now_ns)
{
    kv_block_id replicated = eviction_first(queue, EVICTION_REPLICATED);

    return replicated != KV_BLOCK_NONE && queue->oldest != KV_BLOCK_NONE &&
           2 * eviction_age_ns(queue, replicated, now_ns) < eviction_age_ns(queue, queue->oldest, now_ns);
}

kv_block_id eviction_next(struct eviction_queue *queue, uint64_t now_ns)
{
    kv_block_id id = KV_BLOCK_NONE;

    eviction_end_pins(queue, now_ns);
    for (unsigned rank = EVICTION_FIRST; rank < EVICTION_N_RANKS && id == KV_BLOCK_NONE; rank++)
        if (rank != EVICTION_REPLICATED || !eviction_replicated_waits(queue, now_ns))
            id = eviction_first(queue, rank);
    return id;
}

unsigned eviction_rank(const struct eviction_queue *queue, kv_block_id id)
{
    return queue->places[id].rank == EVICTION_REPLICATED ? EVICTION_PLAIN : queue->places[id].rank;
}

bool eviction_is_expired(const struct eviction_queue *queue, kv_block_id id, uint64_t now_ns,
                         uint64_t lifetime_ns)
{
    const struct eviction_entry *place = &queue->places[id];

    return place->rank != EVICTION_NOWHERE && now_ns - place->used_ns >= lifetime_ns &&
           place->pin_end_ns <= now_ns;
}

kv_block_id eviction_expired(struct eviction_queue *queue, uint64_t now_ns, uint64_t lifetime_ns)
{
    eviction_end_pins(queue, now_ns);
    for (unsigned rank = EVICTION_FIRST; rank < EVICTION_PINNED; rank++) {
        kv_block_id id = eviction_first(queue, rank);

        if (id != KV_BLOCK_NONE && eviction_is_expired(queue, id, now_ns, lifetime_ns))
            return id;
    }
    return KV_BLOCK_NONE;
}
