/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: distributes the work over the ranks. The arithmetic, and the reason why its bits do not
 * depend on this file, are in kern_attn.c.
 *
 * A unit is (item, some heads of one KV head, some queries, some splits of the keys):
 *
 *     prompt chunk        queries ->                      decode        keys ->
 *            unit: rows of ATTN_UNIT_ROWS,                       one query, so units are splits:
 *            all splits one after another                        [512 keys][512 keys][512 ..]
 *                                                                parts to memory, merged afterwards
 *
 * An item with few queries and a long context is cut into splits as long as there is room for parts.
 * Otherwise its units walk all splits themselves. A window skips the splits before it. The numbers are the
 * same either way.
 *
 * With several memory nodes the sets of heads are divided among them, as the heads lie in the arena's memory.
 *
 *     scratch:  work | plan per item | space per rank | parts
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/tensor.h"
#include "compute/kernels/attn.h"

#include <string.h>

#include "base/check.h"
#include "base/cpu.h"
#include "compute/tensor/choice.h"
#include "compute/kernels/kern.h"
#include "compute/tensor/weight_priv.h"
#include "compute/tensor/work_priv.h"

enum {
    PART_TOKENS = 4, /* room for the parts of this many queries, at the longest context */
};

/* The split of an item into units. */
struct plan {
    uint32_t first_strip; /* strips: units for the same queries and keys, one for each set of heads */
    uint32_t n_tiles;     /* tiles of queries */
    uint32_t first_split; /* first split with a key that is in the window */
    uint32_t n_splits;    /* splits that are units of their own; 0: each unit walks all splits */
    size_t parts_at;      /* floats */
};

struct attn_job {
    const struct attn_args *args;
    struct team *team;
    struct work *work;
    struct plan *plans;
    float *spaces;
    size_t space_floats;
    float *parts;
    uint32_t group;       /* heads that share a KV head */
    uint32_t unit_heads;  /* heads in a unit */
    uint32_t n_head_sets; /* units for the same queries, over all heads */
    uint32_t unit_tokens;
    bool has_parts;
};

bool kv_type_ok(enum dtype type)
{
    return attn_row_bytes(type, 1) != 0;
}

size_t kv_row_bytes(enum dtype type, uint32_t dim)
{
    return attn_row_bytes(type, dim);
}

static float *attention_carve(float *base, size_t *used, size_t n)
{
    size_t at = *used;

    *used += attn_round_up(n, 16);
    return base ? base + at : NULL;
}

/* Lays out one rank's space; returns its size in floats. */
static size_t attention_lay_out(float *base, uint32_t k_dim, uint32_t v_dim, struct attn_space *space)
{
    size_t used = 0;

    space->scores = attention_carve(base, &used, ATTN_DIRECT_ROWS * ATTN_TILE_KEYS);
    space->k = attention_carve(base, &used, (size_t)k_dim * ATTN_TILE_KEYS);
    space->v = attention_carve(base, &used, (size_t)attn_v_step(v_dim) * ATTN_TILE_KEYS);
    space->state = attention_carve(base, &used, (size_t)ATTN_UNIT_ROWS * attn_state_floats(v_dim));
    space->total = attention_carve(base, &used, (size_t)ATTN_UNIT_ROWS * attn_part_floats(v_dim));
    space->q = attention_carve(base, &used, (size_t)ATTN_UNIT_ROWS * attn_pad(k_dim));
    return used;
}

static size_t space_floats(uint32_t k_dim, uint32_t v_dim)
{
    struct attn_space space;

    return attention_lay_out(NULL, k_dim, v_dim, &space);
}

size_t attn_scratch_bytes(const struct attn_sizes *sizes)
{
    size_t n_splits = sizes->max_context / ATTN_SPLIT_KEYS + 1;
    size_t parts_floats = PART_TOKENS * n_splits * sizes->n_heads * attn_part_floats(sizes->v_dim);

    return sizeof(struct work) + attn_round_up(sizes->max_tokens * sizeof(struct plan), 64) +
           (sizes->n_ranks * space_floats(sizes->k_dim, sizes->v_dim) + parts_floats) * sizeof(float);
}

/* Cuts the items into strips; returns the number of strips. */
static uint32_t plan_items(struct attn_job *job, size_t parts_room)
{
    const struct attn_args *args = job->args;
    uint32_t n_strips = 0;
    size_t parts_at = 0;

    for (uint32_t i = 0; i < args->n_items; i++) {
        const struct attn_item *item = &args->items[i];
        struct plan *plan = &job->plans[i];

        *plan = (struct plan){.first_strip = n_strips,
                              .n_tiles = (item->n_tokens + job->unit_tokens - 1) / job->unit_tokens};
        if (item->n_tokens == 0)
            continue;
        plan->first_split = attn_first_key(args, item->position) / ATTN_SPLIT_KEYS;
        uint32_t n_splits = (item->position + item->n_tokens - 1) / ATTN_SPLIT_KEYS + 1 - plan->first_split;
        size_t floats = (size_t)item->n_tokens * args->n_heads * n_splits * attn_part_floats(args->v_dim);
        if (plan->n_tiles == 1 && n_splits > 1 && floats <= parts_room - parts_at) {
            plan->n_splits = n_splits;
            plan->parts_at = parts_at;
            parts_at += floats;
            job->has_parts = true;
        }
        n_strips += plan->n_tiles * (plan->n_splits > 0 ? plan->n_splits : 1);
    }
    return n_strips;
}

/* Heads of a set: the sets of one KV head come after those of the previous one. */
static void set_heads(const struct attn_job *job, uint32_t set, struct attn_unit *unit)
{
    uint32_t sets_per_group = job->n_head_sets / job->args->n_kv_heads;
    uint32_t first = set % sets_per_group * job->unit_heads;

    unit->kv_head = set / sets_per_group;
    unit->first_head = unit->kv_head * job->group + first;
    unit->n_heads = job->group - first < job->unit_heads ? job->group - first : job->unit_heads;
}

/* Sets the parts of a unit's rows and the splits of the unit. */
static void set_parts(const struct attn_job *job, const struct plan *plan, struct attn_unit *unit)
{
    unit->n_tokens = unit->item->n_tokens;
    unit->partials =
        job->parts + plan->parts_at +
        (size_t)unit->first_head * unit->n_tokens * plan->n_splits * attn_part_floats(job->args->v_dim);
    unit->first_partial = plan->first_split;
    unit->partial_splits = plan->n_splits;
}

/* If the first-level cache cannot hold a tile and the next one, some processors wait less when the next
 * one is prefetched to the second level. Only tiles read directly from the arena count
 * (kern_attn_direct.c). */
static bool fetches_far(const struct attn_args *args)
{
    const struct cpu_features *cpu = cpu_features_get();
    const size_t tile_bytes =
        ATTN_TILE_KEYS * (attn_row_bytes(args->kv_type, args->k_dim) +
                          (args->v_in_k ? 0 : attn_row_bytes(args->kv_type, args->v_dim)));

    return kern_choice_get()->at[KERN_KEYS] == CACHE_SECOND && 2 * tile_bytes >= cpu->l1_bytes;
}

/* True if each memory node computes the KV heads that its memory holds. */
static bool attn_is_divided(const struct attn_job *job)
{
    return team_n_nodes(job->team) > 1 && job->args->n_kv_heads >= team_n_nodes(job->team);
}

/* The sets of heads of a node. */
static struct team_range node_sets(const struct attn_job *job, unsigned node)
{
    if (!attn_is_divided(job))
        return (struct team_range){.from = 0, .to = job->n_head_sets};
    const struct team_range heads = team_node_split(job->team, job->args->n_kv_heads, 1, node);
    uint32_t each = job->n_head_sets / job->args->n_kv_heads;
    return (struct team_range){.from = heads.from * each, .to = heads.to * each};
}

static void attn_work_init(const struct attn_job *job, uint32_t n_strips)
{
    uint32_t n_units[TEAM_MAX_NODES];

    if (!attn_is_divided(job)) {
        work_init(job->work, n_strips * job->n_head_sets, team_size(job->team));
        return;
    }
    for (unsigned node = 0; node < team_n_nodes(job->team); node++) {
        const struct team_range sets = node_sets(job, node);

        n_units[node] = n_strips * (uint32_t)(sets.to - sets.from);
    }
    work_init_nodes(job->work, job->team, n_units);
}

static void do_unit(const struct attn_job *job, uint32_t strip, uint32_t set, const struct attn_space *space)
{
    const struct attn_args *args = job->args;
    uint32_t i = work_owner(&job->plans[0].first_strip, sizeof(job->plans[0]), job->args->n_items, strip);
    const struct attn_item *item = &args->items[i];
    const struct plan *plan = &job->plans[i];
    struct attn_unit unit = {.args = args, .item = item, .fetches_far = fetches_far(args), .space = *space};

    strip -= plan->first_strip;
    set_heads(job, set, &unit);
    if (plan->n_splits > 0) {
        /* All heads of a split before the next split, as they lie in the blocks. */
        set_parts(job, plan, &unit);
        unit.first_split = plan->first_split + strip;
        unit.end_split = unit.first_split + 1;
    } else {
        /* The last queries have the most keys: they come first, so that ranks end together. */
        uint32_t tile = plan->n_tiles - 1 - strip;

        unit.first_token = tile * job->unit_tokens;
        unit.n_tokens = item->n_tokens - unit.first_token;
        if (unit.n_tokens > job->unit_tokens)
            unit.n_tokens = job->unit_tokens;
        uint32_t position = item->position + unit.first_token;
        unit.first_split = attn_first_key(args, position) / ATTN_SPLIT_KEYS;
        unit.end_split = (position + unit.n_tokens - 1) / ATTN_SPLIT_KEYS + 1;
    }
    args->table->vec->attn_unit(&unit);
}

static void attn_job_run(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct attn_job *job = arg;
    struct attn_space space;
    uint32_t index;

    attention_lay_out(job->spaces + rank * job->space_floats, job->args->k_dim, job->args->v_dim, &space);
    const struct team_range sets = node_sets(job, team_node_of(job->team, rank));
    while (work_next(job->work, rank, &index)) {
        uint32_t n_sets = (uint32_t)(sets.to - sets.from);

        do_unit(job, index / n_sets, (uint32_t)sets.from + index % n_sets, &space);
    }
    matmul_ahead(job->team, rank, job->args->next);
    if (!job->has_parts)
        return;

    team_barrier(job->team, rank);
    for (uint64_t i = rank; i < (uint64_t)job->args->n_items * job->n_head_sets; i += n_ranks) {
        const struct plan *plan = &job->plans[i / job->n_head_sets];
        struct attn_unit unit = {.args = job->args, .item = &job->args->items[i / job->n_head_sets]};

        if (plan->n_splits == 0)
            continue;
        set_heads(job, (uint32_t)(i % job->n_head_sets), &unit);
        set_parts(job, plan, &unit);
        job->args->table->vec->attn_merge(&unit);
    }
}

_Static_assert((int)ATTN_BLOCK_STEP == (int)ATTN_GROUP_KEYS && (int)ATTN_BLOCK_MAX == (int)MAX_BLOCK_TOKENS,
               "callers get the size that the kernels take");

static void check_args(const struct attn_args *args)
{
    size_t row_bytes = kv_row_bytes(args->kv_type, args->k_dim) +
                       (args->v_in_k ? 0 : kv_row_bytes(args->kv_type, args->v_dim));

    ASSERT(args->block_tokens % ATTN_GROUP_KEYS == 0 && args->block_tokens <= MAX_BLOCK_TOKENS);
    ASSERT(args->n_heads % args->n_kv_heads == 0 && (uintptr_t)args->scratch % 64 == 0);
    ASSERT(args->k_dim <= ATTN_MAX_DIM && args->v_dim <= ATTN_MAX_DIM && kv_type_ok(args->kv_type));
    ASSERT(!args->v_in_k || args->v_dim <= args->k_dim);
    ASSERT(args->block_bytes >= args->n_kv_heads * args->block_tokens * row_bytes);
}

void attention(struct team *team, const struct attn_args *args)
{
    struct attn_job job = {.args = args, .team = team, .group = args->n_heads / args->n_kv_heads};

    check_args(args);
    if (args->n_items == 0)
        return;

    uint32_t n_sets = (job.group + ATTN_UNIT_ROWS - 1) / ATTN_UNIT_ROWS;
    job.unit_heads = (job.group + n_sets - 1) / n_sets;
    job.n_head_sets = n_sets * args->n_kv_heads;
    job.unit_tokens = ATTN_UNIT_ROWS / job.unit_heads;

    char *at = args->scratch;
    job.work = (struct work *)at;
    at += sizeof(*job.work);
    job.plans = (struct plan *)at;
    at += attn_round_up(args->n_items * sizeof(struct plan), 64);
    job.spaces = (float *)at;
    job.space_floats = space_floats(args->k_dim, args->v_dim);
    job.parts = job.spaces + team_size(team) * job.space_floats;
    size_t used_bytes = (size_t)((char *)job.parts - (char *)args->scratch);
    size_t room_bytes = args->scratch_bytes > used_bytes ? args->scratch_bytes - used_bytes : 0;
    attn_work_init(&job, plan_items(&job, room_bytes / sizeof(float)));
    team_run(team, attn_job_run, &job);
}
