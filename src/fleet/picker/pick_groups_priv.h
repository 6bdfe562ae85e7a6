/* SPDX-License-Identifier: Apache-2.0 */
/* The best workers of a pool, found by bounds: first the workers that have much of the prompt, then the group with the
 * least bound, then the groups that may still have a better one. */
#ifndef FLEET_PICKER_PICK_GROUPS_PRIV_H
#define FLEET_PICKER_PICK_GROUPS_PRIV_H

#include "fleet/picker/pick_bounds_priv.h"

/* The workers that have more than a few blocks of the prompt, each by itself. */
static inline __attribute__((always_inline)) void
scan_warm(const struct scan *scan, const struct pick_pool *pool, enum what what, struct side sides[2])
{
    for (uint32_t i = 0; i < scan->warm->n; i++) {
        const struct fleet_slot *it = &scan->fleet->slots[scan->warm->slots[i]];

        if (it->pool != PICKER_NONE && &scan->fleet->pools[it->pool] == pool)
            try_row(scan, pool, it->at, what, sides);
    }
}

/* The group with the least bound so far. */
struct least_group {
    int64_t ns;
    uint32_t group;
};

static inline void least_offer(struct least_group *least, uint32_t group, int64_t ns)
{
    least->group = ns < least->ns ? group : least->group;
    least->ns = ns < least->ns ? ns : least->ns;
}

/* True if a worker of the group may be the best, as far as its bound says. */
static inline bool group_may_lead(const struct pick_pool *pool, uint32_t group, int64_t least_ns,
                                  const struct side *best)
{
    return is_first(&pool->rows[group * PICK_GROUP], pool->groups[group].least.n_running, least_ns, best);
}

static inline uint32_t group_end(const struct pick_pool *pool, uint32_t group)
{
    return (group + 1) * PICK_GROUP < pool->n ? (group + 1) * PICK_GROUP : pool->n;
}

/* The group's workers alone: two bounds, the first without the cost of the prompt on the worker. */
static inline __attribute__((always_inline)) void
scan_lone_group(const struct scan *scan, const struct pick_pool *pool, uint32_t group,
                const struct group_bounds *bounds, enum what what, struct side sides[2])
{
    for (uint32_t i = group * PICK_GROUP; i < group_end(pool, group); i++) {
        const struct pick_brief *brief = &pool->briefs[i];
        uint32_t n_running = brief->n_running;
        int64_t least_ns =
            bounds->prompt_ns[pick_load(n_running)] + lone_rest_ns(scan, brief->queue_ns, brief->fixed_ns);

        if (is_first(&pool->rows[i], n_running, least_ns, &sides[0]) &&
            is_first(&pool->rows[i], n_running, brief_lone_ns(scan, pool, brief, bounds->stretch, what),
                     &sides[0]))
            try_row(scan, pool, i, what, sides);
    }
}

static inline __attribute__((always_inline)) void scan_half_group(const struct scan *scan,
                                                                  const struct pick_pool *pool,
                                                                  uint32_t group, enum what what,
                                                                  struct side sides[2])
{
    for (uint32_t i = group * PICK_GROUP; i < group_end(pool, group); i++) {
        const struct pick_brief *brief = &pool->briefs[i];

        if (is_first(&pool->rows[i], brief->n_running, brief_half_ns(scan, brief, what), &sides[1]) &&
            (what == PREFILL_HALVES ||
             is_first(&pool->rows[i], brief->n_running, brief_short_half_ns(scan, brief), &sides[1])))
            try_row(scan, pool, i, what, sides);
    }
}

static inline __attribute__((always_inline)) void
scan_prefill_groups(const struct scan *scan, const struct pick_pool *pool, struct side sides[2])
{
    int64_t bounds_ns[PICKER_MAX_WORKERS / PICK_GROUP];
    struct least_group least = {.ns = PICK_NEVER_NS};

    for (uint32_t i = 0; i * PICK_GROUP < pool->n; i++) {
        const struct pick_brief *brief = &pool->groups[i].least;

        bounds_ns[i] = prefill_half_ns(scan, brief, few_lacks(scan, brief->block_tokens));
        least_offer(&least, i, bounds_ns[i]);
    }
    scan_half_group(scan, pool, least.group, PREFILL_HALVES, sides);
    for (uint32_t i = 0; i * PICK_GROUP < pool->n; i++)
        if (i != least.group && group_may_lead(pool, i, bounds_ns[i], &sides[1]))
            scan_half_group(scan, pool, i, PREFILL_HALVES, sides);
}

/* Begins with the group that has the least bound.  It probably has the best worker, which then rejects most others. The
 * halves come last: one that costs more than the best worker alone makes no better pair. */
static inline __attribute__((always_inline)) void scan_decode_groups(const struct scan *scan,
                                                                     const struct pick_pool *pool,
                                                                     enum what what, struct side sides[2])
{
    struct group_bounds bounds[PICKER_MAX_WORKERS / PICK_GROUP];
    struct least_group lone = {.ns = PICK_NEVER_NS}, half = {.ns = PICK_NEVER_NS};
    double stretch = least_stretch(scan, pool);

    for (uint32_t i = 0; i * PICK_GROUP < pool->n; i++) {
        bound_group(scan, pool, &pool->groups[i], stretch, what, &bounds[i]);
        least_offer(&lone, i, bounds[i].lone_ns);
        least_offer(&half, i, bounds[i].half_ns);
    }
    if (lone.ns < PICK_NEVER_NS && (scan->best.decode == NULL || lone.ns <= scan->best.cost_ns)) {
        scan_lone_group(scan, pool, lone.group, &bounds[lone.group], what, sides);
        for (uint32_t i = 0; i * PICK_GROUP < pool->n; i++)
            if (i != lone.group && group_may_lead(pool, i, bounds[i].lone_ns, &sides[0]))
                scan_lone_group(scan, pool, i, &bounds[i], what, sides);
    }
    if (sides[0].row != NULL && sides[1].cost_ns > sides[0].cost_ns)
        sides[1] = (struct side){.cost_ns = sides[0].cost_ns + 1};
    if (half.ns >= PICK_NEVER_NS || half.ns > sides[1].cost_ns)
        return;
    scan_half_group(scan, pool, half.group, DECODE_HALVES, sides);
    for (uint32_t i = 0; i * PICK_GROUP < pool->n; i++)
        if (i != half.group && group_may_lead(pool, i, bounds[i].half_ns, &sides[1]))
            scan_half_group(scan, pool, i, DECODE_HALVES, sides);
}

/* Rejects most groups, and most workers of the others, by values that do not depend on the worker's cache. */
static inline __attribute__((always_inline)) void
scan_groups(const struct scan *scan, const struct pick_pool *pool, enum what what, struct side sides[2])
{
    scan_warm(scan, pool, what, sides);
    if (what == PREFILL_HALVES)
        scan_prefill_groups(scan, pool, sides);
    else
        scan_decode_groups(scan, pool, what, sides);
}

#endif
