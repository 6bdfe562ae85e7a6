/* SPDX-License-Identifier: Apache-2.0 */
/* Applies block events to the index. The router uses it for its workers, and a worker for its peers. */
#include "fleet/picker/index.h"
#include "cache/prefix/block_events.h"

/* All of one tier. */
static void apply_run(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                      enum block_tier tier, uint64_t now_ns)
{
    switch (tier) {
    case BLOCK_GONE:
        picker_index_unlearn(index, slot, hashes, 0, n);
        return;
    case BLOCK_IN_MEMORY:
        picker_index_learn(index, slot, hashes, n, now_ns);
        return;
    case BLOCK_ON_DISK:
        picker_index_learn_on_disk(index, slot, hashes, n, now_ns);
        return;
    }
}

bool picker_index_apply(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                        const uint8_t *tiers, size_t n, uint64_t now_ns)
{
    bool has_left = false;
    size_t to;

    for (size_t from = 0; from < n; from = to) {
        for (to = from + 1; to < n && tiers[to] == tiers[from]; to++)
            ;
        apply_run(index, slot, hashes + from, to - from, (enum block_tier)tiers[from], now_ns);
        has_left |= tiers[from] != BLOCK_IN_MEMORY;
    }
    return has_left;
}
