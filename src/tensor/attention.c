/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: sharing out the work.  The arithmetic, and what makes it independent of this file, is in
 * kern_attn.c.
 *
 * A unit is (item, KV head, some queries, some splits of the keys):
 *
 *     prompt chunk        queries ->                      decode        keys ->
 *            unit: rows of ATTN_UNIT_ROWS,                       one query, so units are splits:
 *            all splits one after the other                      [512 keys][512 keys][512 ..]
 *                                                                parts to memory, put together afterwards
 *
 * An item with few queries and a long context is cut into splits as long as there is room for parts; else its
 * units walk all splits themselves.  The numbers are the same either way.
 *
 *     scratch:  work | plan per item | space per rank | parts
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/attn_priv.h"

#include <string.h>

#include "base/check.h"
#include "tensor/kern_priv.h"
#include "tensor/work_priv.h"

enum {
    PART_TOKENS = 4,        /* queries that there is room for parts of, at the longest context */
    MIN_SPLIT_TOKENS = 384, /* see attn_split_blocks: of all block sizes */
};

/* How an item is cut. */
struct plan {
    uint32_t first_unit;
    uint32_t n_tiles;  /* of queries */
    uint32_t n_splits; /* that are units of their own; 0: each unit walks all */
    size_t parts_at;   /* floats */
};

struct attn_job {
    const struct attn_args *args;
    struct team *team;
    struct work *work;
    struct plan *plans;
    float *spaces;
    size_t space_floats;
    float *parts;
    uint32_t unit_tokens;
    bool has_parts;
};

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* One rank's space; group <= n_heads bounds the rows. */
static size_t space_floats(uint32_t n_heads, uint32_t head_dim)
{
    size_t rows = n_heads > ATTN_UNIT_ROWS ? n_heads : ATTN_UNIT_ROWS;
    size_t block = (size_t)MAX_BLOCK_TOKENS * head_dim + PANEL_ROWS;

    return round_up(rows * head_dim, 16) + MAX_TILE_TOKENS * ROWS_STRIDE + 2 * round_up(block, 16) +
           rows * (attn_state_floats(head_dim) + attn_part_floats(head_dim));
}

static struct attn_space space_of(const struct attn_job *job, unsigned rank)
{
    uint32_t n_heads = job->args->n_heads, head_dim = job->args->head_dim;
    size_t rows = n_heads > ATTN_UNIT_ROWS ? n_heads : ATTN_UNIT_ROWS;
    size_t block = round_up((size_t)MAX_BLOCK_TOKENS * head_dim + PANEL_ROWS, 16);
    struct attn_space space;

    space.scores = job->spaces + rank * job->space_floats;
    space.k = space.scores + MAX_TILE_TOKENS * ROWS_STRIDE;
    space.v = space.k + block;
    space.state = space.v + block;
    space.total = space.state + rows * attn_state_floats(head_dim);
    space.q = space.total + rows * attn_part_floats(head_dim);
    return space;
}

static size_t parts_floats(uint32_t n_heads, uint32_t head_dim, uint32_t max_context)
{
    size_t n_splits = max_context / MIN_SPLIT_TOKENS + 1;

    return PART_TOKENS * n_splits * n_heads * attn_part_floats(head_dim);
}

size_t attn_scratch_bytes(uint32_t max_tokens, uint32_t n_heads, uint32_t head_dim, uint32_t n_ranks,
                          uint32_t max_context)
{
    return sizeof(struct work) + round_up(max_tokens * sizeof(struct plan), 64) +
           (n_ranks * space_floats(n_heads, head_dim) + parts_floats(n_heads, head_dim, max_context)) *
               sizeof(float);
}

static uint32_t split_tokens(const struct attn_args *args)
{
    return attn_split_blocks(args->block_tokens) * args->block_tokens;
}

/* Cuts the items into units; the number of units. */
static uint32_t plan_items(struct attn_job *job, size_t parts_room)
{
    const struct attn_args *args = job->args;
    uint32_t n_units = 0;
    size_t parts_at = 0;

    for (uint32_t i = 0; i < args->n_items; i++) {
        const struct attn_item *item = &args->items[i];
        struct plan *plan = &job->plans[i];
        uint32_t n_splits = (item->position + item->n_tokens - 1) / split_tokens(args) + 1;
        size_t floats = (size_t)item->n_tokens * args->n_heads * n_splits * attn_part_floats(args->head_dim);

        plan->first_unit = n_units;
        plan->n_tiles = (item->n_tokens + job->unit_tokens - 1) / job->unit_tokens;
        plan->n_splits = 0;
        if (plan->n_tiles == 1 && n_splits > 1 && floats <= parts_room - parts_at) {
            plan->n_splits = n_splits;
            plan->parts_at = parts_at;
            parts_at += floats;
            job->has_parts = true;
        }
        n_units += args->n_kv_heads * plan->n_tiles * (plan->n_splits > 0 ? plan->n_splits : 1);
    }
    return n_units;
}

/* The item that a unit belongs to. */
static uint32_t item_of(const struct attn_job *job, uint32_t unit)
{
    uint32_t low = 0, high = job->args->n_items;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (job->plans[middle].first_unit <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static float *parts_of(const struct attn_job *job, const struct plan *plan, uint32_t n_tokens,
                       uint32_t kv_head)
{
    size_t group = job->args->n_heads / job->args->n_kv_heads;

    return job->parts + plan->parts_at +
           kv_head * group * n_tokens * plan->n_splits * attn_part_floats(job->args->head_dim);
}

static void do_unit(const struct attn_job *job, uint32_t index, const struct attn_space *space)
{
    const struct attn_args *args = job->args;
    uint32_t i = item_of(job, index);
    const struct attn_item *item = &args->items[i];
    const struct plan *plan = &job->plans[i];
    struct attn_unit unit = {.args = args, .item = item, .space = *space};

    index -= plan->first_unit;
    if (plan->n_splits > 0) {
        unit.kv_head = index / plan->n_splits;
        unit.first_split = index % plan->n_splits;
        unit.end_split = unit.first_split + 1;
        unit.n_tokens = item->n_tokens;
        unit.partials = parts_of(job, plan, item->n_tokens, unit.kv_head);
        unit.partial_splits = plan->n_splits;
    } else {
        /* The last queries have the most keys: they go first, so that ranks end together. */
        uint32_t tile = plan->n_tiles - 1 - index / args->n_kv_heads;

        unit.kv_head = index % args->n_kv_heads;
        unit.first_token = tile * job->unit_tokens;
        unit.n_tokens = item->n_tokens - unit.first_token;
        if (unit.n_tokens > job->unit_tokens)
            unit.n_tokens = job->unit_tokens;
        unit.end_split = (item->position + unit.first_token + unit.n_tokens - 1) / split_tokens(args) + 1;
    }
    args->table->vec->attn_unit(&unit);
}

static void attn_job_run(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct attn_job *job = arg;
    struct attn_space space = space_of(job, rank);
    uint32_t unit;

    while (work_next(job->work, rank, n_ranks, &unit))
        do_unit(job, unit, &space);
    if (!job->has_parts)
        return;

    team_barrier(job->team, rank);
    uint32_t n_kv_heads = job->args->n_kv_heads;
    for (uint64_t i = rank; i < (uint64_t)job->args->n_items * n_kv_heads; i += n_ranks) {
        const struct attn_item *item = &job->args->items[i / n_kv_heads];
        const struct plan *plan = &job->plans[i / n_kv_heads];

        if (plan->n_splits > 0)
            job->args->table->vec->attn_merge(&(struct attn_merge){
                .args = job->args,
                .item = item,
                .kv_head = (uint32_t)(i % n_kv_heads),
                .partials = parts_of(job, plan, item->n_tokens, (uint32_t)(i % n_kv_heads)),
                .partial_splits = plan->n_splits,
            });
    }
}

void attention(struct team *team, const struct attn_args *args)
{
    uint32_t group = args->n_heads / args->n_kv_heads;
    struct attn_job job = {.args = args, .team = team, .unit_tokens = attn_unit_tokens(group)};

    ASSERT(args->block_tokens % 16 == 0 && args->block_tokens <= MAX_BLOCK_TOKENS);
    ASSERT(args->n_heads % args->n_kv_heads == 0 && (uintptr_t)args->scratch % 64 == 0);
    if (args->n_items == 0)
        return;

    char *at = args->scratch;
    job.work = (struct work *)at;
    at += sizeof(*job.work);
    job.plans = (struct plan *)at;
    at += round_up(args->n_items * sizeof(struct plan), 64);
    job.spaces = (float *)at;
    job.space_floats = space_floats(args->n_heads, args->head_dim);
    job.parts = job.spaces + team_size(team) * job.space_floats;
    size_t used_bytes = (size_t)((char *)job.parts - (char *)args->scratch);
    size_t room_bytes = args->scratch_bytes > used_bytes ? args->scratch_bytes - used_bytes : 0;
    work_init(job.work, plan_items(&job, room_bytes / sizeof(float)), team_size(team));
    team_run(team, attn_job_run, &job);
}
