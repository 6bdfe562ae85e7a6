/* SPDX-License-Identifier: Apache-2.0 */
/* Applies block events to the index. The router uses it for its workers, and a worker for its peers. */
#include "fleet/picker/index.h"
#include "cache/prefix/block_events.h"
#include "cache/prefix/block_queue.h"

/* All of one tier. */
static void apply_run(struct picker_index *index, const struct block_slice *run, uint64_t now_ns)
{
    switch ((enum block_tier)run->tiers[0]) {
    case BLOCK_GONE:
        picker_index_unlearn(index, run->source, run->hashes, 0, run->n);
        return;
    case BLOCK_IN_MEMORY:
        picker_index_learn(index, run->source, run->hashes, run->n, now_ns);
        return;
    case BLOCK_ON_DISK:
        picker_index_learn_on_disk(index, run->source, run->hashes, run->n, now_ns);
        return;
    }
}

bool picker_index_apply(struct picker_index *index, const struct block_slice *slice, uint64_t now_ns)
{
    bool has_left = false;
    size_t to;

    for (size_t from = 0; from < slice->n; from = to) {
        struct block_slice run = *slice;

        for (to = from + 1; to < slice->n && slice->tiers[to] == slice->tiers[from]; to++)
            ;
        run.hashes += from;
        run.tiers += from;
        run.n = to - from;
        apply_run(index, &run, now_ns);
        has_left |= slice->tiers[from] != BLOCK_IN_MEMORY;
    }
    return has_left;
}
