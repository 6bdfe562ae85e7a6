/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds over groups of rows, kept while rows change. A row that changes usually widens them only. A group is computed
 * again if the row had one of the bounds and does not reach it any longer. */
#include "fleet/picker/fleet_priv.h"

#define LESS(a, b) ((a) < (b) ? (a) : (b))
#define MORE(a, b) ((a) > (b) ? (a) : (b))

#define SLOW 1.25 /* times the least of the pool */

static inline float least_push(float a, float b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* The kind of a row.  It may have been another one before a faster worker came: then the bounds of that kind stay too
 * wide until the group is computed again. */
static inline uint32_t brief_kind(const struct pick_pool *pool, const struct pick_brief *brief)
{
    uint32_t load = pick_load(brief->n_running);

    return brief->prefill_ns > SLOW * pool->least_prefill_ns ? load + PICK_LOADS : load;
}

/* Without branches, because they would be hard to predict. */
static inline void kind_widen(struct pick_kind *kind, const struct pick_brief *brief)
{
    kind->fixed_ns = LESS(kind->fixed_ns, brief->fixed_ns);
    kind->prefill_ns = LESS(kind->prefill_ns, brief->prefill_ns);
    kind->most_prefill_ns = MORE(kind->most_prefill_ns, brief->prefill_ns);
    kind->pair_ns = LESS(kind->pair_ns, brief->pair_ns);
    kind->most_pair_ns = MORE(kind->most_pair_ns, brief->pair_ns);
}

/* Only the values that a scan of such a pool uses. */
static inline void group_widen(const struct pick_pool *pool, struct pick_group *group,
                               const struct pick_brief *brief)
{
    struct pick_brief *least = &group->least;

    least->block_tokens = MORE(least->block_tokens, brief->block_tokens);
    least->n_running = LESS(least->n_running, brief->n_running);
    if (pool->role == PICKER_PREFILL) {
        least->fixed_ns = LESS(least->fixed_ns, brief->fixed_ns);
        least->prefill_ns = LESS(least->prefill_ns, brief->prefill_ns);
        least->pair_ns = LESS(least->pair_ns, brief->pair_ns);
        least->push_ns = least_push(least->push_ns, brief->push_ns);
    } else {
        kind_widen(&group->kinds[brief_kind(pool, brief)], brief);
        least->rate_ns = LESS(least->rate_ns, brief->rate_ns);
        least->queue_ns = LESS(least->queue_ns, brief->queue_ns);
        group->most_queue_ns = MORE(group->most_queue_ns, brief->queue_ns);
        group->most_fixed_ns = MORE(group->most_fixed_ns, brief->fixed_ns);
        group->most_running = MORE(group->most_running, brief->n_running);
    }
}

/* True if the row had a bound of its kind that its new values do not reach.  has_left: it is of another kind now. */
static bool kind_was_bound_by(const struct pick_kind *kind, const struct pick_brief *old,
                              const struct pick_brief *brief, bool has_left)
{
    return (old->fixed_ns == kind->fixed_ns && (has_left || brief->fixed_ns > old->fixed_ns)) ||
           (old->prefill_ns == kind->prefill_ns && (has_left || brief->prefill_ns > old->prefill_ns)) ||
           (old->prefill_ns == kind->most_prefill_ns && (has_left || brief->prefill_ns < old->prefill_ns)) ||
           (old->pair_ns == kind->pair_ns && (has_left || brief->pair_ns > old->pair_ns)) ||
           (old->pair_ns == kind->most_pair_ns && (has_left || brief->pair_ns < old->pair_ns));
}

static bool prefill_was_bound_by(const struct pick_brief *least, const struct pick_brief *old,
                                 const struct pick_brief *brief)
{
    return (old->fixed_ns == least->fixed_ns && brief->fixed_ns > old->fixed_ns) ||
           (old->prefill_ns == least->prefill_ns && brief->prefill_ns > old->prefill_ns) ||
           (old->pair_ns == least->pair_ns && brief->pair_ns > old->pair_ns) ||
           (old->push_ns == least->push_ns && brief->push_ns != old->push_ns);
}

static bool decode_was_bound_by(const struct pick_pool *pool, const struct pick_group *group,
                                const struct pick_brief *old, const struct pick_brief *brief)
{
    const struct pick_brief *least = &group->least;
    uint32_t kind = brief_kind(pool, old);

    return (old->rate_ns == least->rate_ns && brief->rate_ns > old->rate_ns) ||
           (old->queue_ns == least->queue_ns && brief->queue_ns > old->queue_ns) ||
           (old->queue_ns == group->most_queue_ns && brief->queue_ns < old->queue_ns) ||
           (old->n_running == group->most_running && brief->n_running < old->n_running) ||
           kind_was_bound_by(&group->kinds[kind], old, brief, brief_kind(pool, brief) != kind);
}

static bool group_was_bound_by(const struct pick_pool *pool, const struct pick_group *group,
                               const struct pick_brief *old, const struct pick_brief *brief)
{
    const struct pick_brief *least = &group->least;

    return (old->block_tokens == least->block_tokens && brief->block_tokens < old->block_tokens) ||
           (old->n_running == least->n_running && brief->n_running > old->n_running) ||
           (pool->role == PICKER_PREFILL ? prefill_was_bound_by(least, old, brief)
                                         : decode_was_bound_by(pool, group, old, brief));
}

static void group_compute(struct pick_pool *pool, uint32_t at)
{
    uint32_t from = at / PICK_GROUP * PICK_GROUP,
             end = from + PICK_GROUP < pool->n ? from + PICK_GROUP : pool->n;
    struct pick_group group = {.least = pool->briefs[from]};

    for (uint32_t i = 0; i < PICK_KINDS; i++)
        group.kinds[i] = (struct pick_kind){
            .fixed_ns = PICK_NONE_NS, .prefill_ns = (double)PICK_MAX_NS, .pair_ns = (float)PICK_MAX_NS};
    for (uint32_t i = from; i < end; i++)
        group_widen(pool, &group, &pool->briefs[i]);
    pool->groups[at / PICK_GROUP] = group;
}

void pick_group_update(struct pick_pool *pool, uint32_t at, const struct pick_brief *old)
{
    struct pick_group *group = &pool->groups[at / PICK_GROUP];

    if (group_was_bound_by(pool, group, old, &pool->briefs[at]))
        group_compute(pool, at);
    else
        group_widen(pool, group, &pool->briefs[at]);
}

void pick_groups_compute(struct pick_pool *pool, uint32_t at)
{
    for (uint32_t from = at - at % PICK_GROUP; from < pool->n; from += PICK_GROUP)
        group_compute(pool, from);
}
