/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a tenant's segments is evicted next.
 *
 *     queues[place]   PLAIN      a b c d    full, least recently used first: not pinned, or the pins expired
 *                     PINNED     e f
 *                     PINNED_L.  g
 *     open[place]                x y z      at most one of each retention; compared one by one
 *
 * The first segment of the lowest queue is evicted next, unless an open one ranks lower.  While a disk is full,
 * every saved block needs this answer for every tenant, so it takes a few steps and never visits all segments.
 * When pins expire, the higher queues are scanned once, and segments with expired pins move to the lowest queue. */
#include "cache/kv/tier_priv.h"

void tier_queue_init(struct kv_tier *tier)
{
    list_init(&tier->unread);
    for (unsigned at = 0; at < TIER_PLACES; at++)
        for (unsigned rank = 0; rank < TIER_N_RETENTIONS; rank++)
            list_init(&tier->queues[at][rank]);
    tier->first_pin_end_unix_ns = UINT64_MAX;
}

/* A segment's retention rank; an expired pin counts as none. */
static unsigned tier_queue_rank(const struct tier_segment *segment, uint64_t now_unix_ns)
{
    return segment->pin_end_unix_ns > now_unix_ns ? (unsigned)segment->head.retention : TIER_PLAIN;
}

static void tier_queue_put(struct kv_tier *tier, struct tier_segment *segment, unsigned rank)
{
    struct list *queue = &tier->queues[segment->quota][rank], *at = queue->prev;

    while (at != queue && container_of(at, struct tier_segment, queue)->n_use > segment->n_use)
        at = at->prev;
    list_insert_before(at->next, &segment->queue);
    segment->rank = rank;
    if (rank > TIER_PLAIN && segment->pin_end_unix_ns < tier->first_pin_end_unix_ns)
        tier->first_pin_end_unix_ns = segment->pin_end_unix_ns;
}

void tier_queue_add(struct kv_tier *tier, struct tier_segment *segment, uint64_t now_unix_ns)
{
    if (segment->slots == NULL)
        list_push_back(&tier->unread, &segment->queue);
    else
        tier_queue_put(tier, segment, tier_queue_rank(segment, now_unix_ns));
}

void tier_queue_use(struct kv_tier *tier, struct tier_segment *segment)
{
    segment->n_use = ++tier->n_uses;
    if (list_is_empty(&segment->queue))
        return; /* an open segment is in no queue */
    list_remove(&segment->queue);
    list_push_back(&tier->queues[segment->quota][segment->rank], &segment->queue);
}

static void tier_queue_end_pins(struct kv_tier *tier, uint64_t now_unix_ns)
{
    if (now_unix_ns < tier->first_pin_end_unix_ns)
        return;
    tier->first_pin_end_unix_ns = UINT64_MAX;
    for (unsigned at = 0; at < tier->quotas.n_seen; at++)
        for (unsigned rank = TIER_PLAIN + 1; rank < TIER_N_RETENTIONS; rank++)
            list_for_each_safe (node, spare, &tier->queues[at][rank]) {
                struct tier_segment *segment = container_of(node, struct tier_segment, queue);

                if (segment->pin_end_unix_ns <= now_unix_ns) {
                    list_remove(&segment->queue);
                    tier_queue_put(tier, segment, TIER_PLAIN);
                } else if (segment->pin_end_unix_ns < tier->first_pin_end_unix_ns) {
                    tier->first_pin_end_unix_ns = segment->pin_end_unix_ns;
                }
            }
}

static struct tier_segment *tier_queue_first_open(const struct kv_tier *tier, unsigned at, unsigned rank,
                                                  uint64_t now_unix_ns)
{
    struct tier_segment *first = NULL;

    for (unsigned i = 0; i < TIER_N_RETENTIONS; i++) {
        struct tier_segment *segment = tier->open[at][i];

        if (segment != NULL && tier_queue_rank(segment, now_unix_ns) == rank &&
            (first == NULL || segment->n_use < first->n_use))
            first = segment;
    }
    return first;
}

struct tier_segment *tier_queue_first(struct kv_tier *tier, unsigned at, uint64_t now_unix_ns,
                                      unsigned *rank_out)
{
    struct tier_segment *first = NULL;
    unsigned rank;

    tier_queue_end_pins(tier, now_unix_ns);
    for (rank = 0; rank < TIER_N_RETENTIONS && first == NULL; rank++)
        first = list_is_empty(&tier->queues[at][rank])
                    ? tier_queue_first_open(tier, at, rank, now_unix_ns)
                    : container_of(tier->queues[at][rank].next, struct tier_segment, queue);
    if (first != NULL)
        *rank_out = rank - 1;
    return first;
}
