/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: creation, charged bytes, and segment eviction.
 *
 *            slots given out            full             no room, lifetime over      no job on it
 *     OPEN ------------------> OPEN ----------> CLOSED ----------------------> LEAVING ----------> deleted
 *
 * A segment holds blocks of one tenant and one retention, so each tenant has at most three open segments.  A
 * segment is charged, to the folder and to its tenant, the bytes of the slots that were given out, and at
 * least least_bytes.  So an open one costs little, and yet the number of files is bounded by the folder's
 * size divided by least_bytes.  The charge ends when the deletion was handed to the writer thread.  That
 * thread works in order: data written in its place is written after the file is gone.
 *
 * tier_quota.c chooses the tenant whose segment is evicted, tier_queue.c the segment. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/tier_priv.h"

#define SYNCS_AIM 16 /* syncs while as many bytes are written as the folder may hold */

static uint64_t segment_charge(const struct kv_tier *tier, uint64_t file_bytes)
{
    return file_bytes > tier->least_bytes ? file_bytes : tier->least_bytes;
}

static bool segment_is_ours(const struct tier_segment *segment)
{
    return segment->slots != NULL;
}

static struct tier_segment **tier_open_at(struct kv_tier *tier, const struct tier_segment *segment)
{
    return &tier->open[segment->quota][segment->head.retention];
}

/* Inserts by last use: a scan finds segments in the order of their names. */
void tier_segment_add(struct kv_tier *tier, struct tier_segment *segment)
{
    struct list *at = tier->segments.prev;

    while (at != &tier->segments &&
           container_of(at, struct tier_segment, all)->used_unix_ns > segment->used_unix_ns)
        at = at->prev;
    list_insert_before(at->next, &segment->all);
    segment->charged_bytes = segment_charge(tier, segment->file_bytes);
    tier->total_bytes += segment->charged_bytes;
    tier->file_bytes += segment->file_bytes;
    tier->counts.n_segments++;
    if (segment_is_ours(segment))
        tier_quotas_add(&tier->quotas, segment->quota, 1, (int64_t)segment->charged_bytes);
}

/* Syncs all full segments together.  They are small: one by one, the writer would mostly wait. */
static void tier_sync_full_ones(struct kv_tier *tier)
{
    tier->unsynced_bytes = 0;
    list_for_each (node, &tier->segments) {
        struct tier_segment *segment = container_of(node, struct tier_segment, all);

        if (segment->is_unsynced && !segment->is_leaving)
            (void)tier_post(tier, segment, &(struct tier_job){.kind = TIER_JOB_FINISH});
        segment->is_unsynced = false;
    }
}

void tier_segment_close(struct kv_tier *tier, struct tier_segment *segment)
{
    if (!segment->is_open)
        return;
    segment->is_open = false;
    *tier_open_at(tier, segment) = NULL;
    tier_queue_add(tier, segment, clock_unix_ns());
    segment->is_unsynced = true;
    tier->unsynced_bytes += segment->file_bytes;
    if (tier->unsynced_bytes >= tier->opts.size_bytes / SYNCS_AIM)
        tier_sync_full_ones(tier);
}

void tier_segment_drop(struct kv_tier *tier, struct tier_segment *segment)
{
    if (!segment->is_leaving || segment->n_jobs > 0 ||
        tier_post(tier, segment, &(struct tier_job){.kind = TIER_JOB_DROP}) < 0)
        return; /* otherwise the next expire sends it */
    tier->total_bytes -= segment->charged_bytes;
    tier->leaving_bytes -= segment->charged_bytes;
}

void tier_segment_dropped(struct kv_tier *tier, struct tier_segment *segment, int result)
{
    if (result < 0) { /* the file still exists; kv_tier_expire() tries again */
        tier->total_bytes += segment->charged_bytes;
        tier->leaving_bytes += segment->charged_bytes;
        return;
    }
    tier->counts.n_segments--;
    tier->file_bytes -= segment->file_bytes;
    list_remove(&segment->all);
    tier_segment_free(segment);
}

void tier_segment_leave(struct kv_tier *tier, struct tier_segment *segment)
{
    if (segment->is_open) {
        segment->is_open = false;
        *tier_open_at(tier, segment) = NULL;
    }
    list_remove(&segment->queue);
    tier->counts.n_dropped += segment->n_there;
    for (uint32_t i = 0; segment_is_ours(segment) && i < segment->n_used; i++)
        tier_forget(tier, &segment->slots[i]);
    if (segment_is_ours(segment))
        tier_quotas_add(&tier->quotas, segment->quota, -1, -(int64_t)segment->charged_bytes);
    segment->is_leaving = true;
    tier->leaving_bytes += segment->charged_bytes;
    tier_segment_drop(tier, segment);
}

/* ---- room ---- */

/* Unreadable segments first, then by the quotas; NULL: no segment may be evicted. */
static struct tier_segment *tier_next_to_leave(struct kv_tier *tier, const struct tier_wish *wish)
{
    struct tier_segment *segments[TIER_PLACES] = {NULL};
    struct tier_first firsts[TIER_PLACES] = {{0}};
    uint64_t now_unix_ns = clock_unix_ns();
    unsigned at;

    if (!list_is_empty(&tier->unread))
        return container_of(tier->unread.next, struct tier_segment, queue);
    for (at = 0; at < tier->quotas.n_seen; at++) {
        segments[at] = tier_queue_first(tier, at, now_unix_ns, &firsts[at].rank);
        firsts[at].bytes = segments[at] == NULL ? 0 : segments[at]->charged_bytes;
    }
    at = tier_quotas_victim(&tier->quotas, firsts, wish);
    return at == TIER_NO_PLACE ? NULL : segments[at];
}

int tier_make_room(struct kv_tier *tier, const struct tier_wish *wish)
{
    while (tier->total_bytes - tier->leaving_bytes + wish->more_bytes > tier->opts.size_bytes) {
        struct tier_segment *segment = tier_next_to_leave(tier, wish);

        if (segment == NULL)
            return E_FULL;
        tier_segment_leave(tier, segment);
    }
    return tier->total_bytes + wish->more_bytes > tier->opts.size_bytes ? E_AGAIN : 0;
}

/* ---- slots ---- */

static struct tier_head tier_head_for(const struct kv_tier *tier, unsigned at, enum tier_retention retention)
{
    struct tier_head head = {.n_slots = tier->slots_per_segment,
                             .payload_bytes = tier->payload_bytes,
                             .made_unix_ns = clock_unix_ns(),
                             .retention = retention};

    memcpy(head.generation, tier->generation, sizeof(head.generation));
    memcpy(head.tenant, tier->quotas.all[at].digest, sizeof(head.tenant));
    return head;
}

static int tier_segment_begin(struct kv_tier *tier, unsigned at, enum tier_retention retention)
{
    struct tier_segment *segment = calloc(1, sizeof(*segment));

    if (segment == NULL)
        return E_NOMEM;
    *segment = (struct tier_segment){.head = tier_head_for(tier, at, retention),
                                     .number = tier->next_number,
                                     .fd = -1,
                                     .quota = at,
                                     .slots = calloc(tier->slots_per_segment, sizeof(*segment->slots)),
                                     .is_open = true};
    segment->used_unix_ns = segment->head.made_unix_ns;
    segment->file_bytes = tier_segment_bytes(&segment->head, 1);
    rng_system(segment->head.salt, sizeof(segment->head.salt));
    list_init(&segment->all);
    list_init(&segment->queue);
    if (segment->slots == NULL || tier_segment_key(tier->opts.key, &segment->head, segment->key) < 0) {
        tier_segment_free(segment);
        return E_NOMEM;
    }
    tier->next_number++;
    segment->n_use = ++tier->n_uses;
    tier_segment_add(tier, segment);
    *tier_open_at(tier, segment) = segment;
    return 0;
}

/* The bytes that one more slot adds to the tenant's charge. */
static uint64_t segment_slot_cost(const struct kv_tier *tier, const struct tier_segment *segment)
{
    struct tier_head head = {.n_slots = tier->slots_per_segment, .payload_bytes = tier->payload_bytes};

    if (segment == NULL)
        return segment_charge(tier, tier_segment_bytes(&head, 1));
    return segment_charge(tier, tier_segment_bytes(&segment->head, segment->n_used + 1)) -
           segment->charged_bytes;
}

static void tier_segment_grow(struct kv_tier *tier, struct tier_segment *segment)
{
    uint64_t more_bytes =
        segment->n_used > 0 ? segment_slot_cost(tier, segment) : 0; /* creation charged the first */
    uint64_t before_bytes = segment->file_bytes;

    segment->file_bytes = tier_segment_bytes(&segment->head, ++segment->n_used);
    tier->file_bytes += segment->file_bytes - before_bytes;
    segment->charged_bytes += more_bytes;
    tier->total_bytes += more_bytes;
    tier_quotas_add(&tier->quotas, segment->quota, 0, (int64_t)more_bytes);
}

int tier_slot_take(struct kv_tier *tier, unsigned at, enum tier_retention retention, struct tier_slot **out)
{
    struct tier_segment **open = &tier->open[at][retention], *segment;

    do { /* making room may evict the open segment itself */
        struct tier_wish wish = {.at = at,
                                 .rank = (unsigned)retention,
                                 .more_bytes = segment_slot_cost(tier, *open),
                                 .size_bytes = tier->opts.size_bytes};
        int rc;

        segment = *open;
        rc = tier_make_room(tier, &wish);
        if (rc == 0 && *open == NULL && segment == NULL)
            rc = tier_segment_begin(tier, at, retention);
        if (rc < 0)
            return rc;
    } while (*open == NULL);
    segment = *open;
    tier_segment_grow(tier, segment);
    *out = &segment->slots[segment->n_used - 1];
    **out = (struct tier_slot){.segment = segment, .is_writing = true};
    return 0;
}
