/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix index: which worker has which prefix blocks cached, and in which tier, as far as this router
 * knows.
 *
 * The router learns from its own dispatches (a worker that prefills or receives a prompt has its blocks
 * afterwards) and from the workers' block events. An entry goes after the workers' cache lifetime, when a
 * worker restarts, or when the worker turns out not to have the block. The number of entries is bounded;
 * eviction is LRU. Blocks in some worker's memory and blocks on disk only have a list each, and each list
 * can push the other down to half.
 *
 * Bounds. Memory is reserved once at the start and used as the index fills: picker_index_bytes() for
 * max_entries, about 100 bytes per block for any number of its owners. A call takes time in
 * proportion to its own blocks. The table is never rehashed. A forgotten worker vanishes at once; each
 * later call sweeps a few of its entries. An index that knows too little is still correct, so a bound that
 * is met only loses knowledge. One thread. */
#ifndef FLEET_PICKER_INDEX_H
#define FLEET_PICKER_INDEX_H

#include <stdint.h>

#include "fleet/picker/picker.h"
#include "cache/prefix/block_hash.h"

struct picker_index;
struct block_slice;

struct picker_found { /* a prefix match: how many leading blocks of a chain each worker has */
    uint32_t in_memory[PICKER_MAX_WORKERS];
    uint32_t most_in_memory;                    /* of one worker */
    uint32_t n_runs;                            /* workers that have more blocks, in memory or on disk ... */
    struct picker_run runs[PICKER_MAX_WORKERS]; /* ... in no order, each worker once */
};

struct picker_query {                /* what to match: the hashes of a prompt's first blocks */
    const struct block_hash *hashes; /* [n], borrowed */
    size_t n;
    uint32_t n_slots; /* workers in lower slots are matched */
    uint64_t now_ns;
};

/* E_INVAL (no entries, or more than 2^30), E_NOMEM. */
int picker_index_new(uint32_t max_entries, uint64_t lifetime_ns, struct picker_index **out);
void picker_index_free(struct picker_index *index);

/* Worker `slot` has blocks hashes[0..n) in memory from now on. */
void picker_index_learn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns);
/* The same for two workers at once. One of the slots may be PICKER_NONE (picker.h): then for the other one
 * only. */
void picker_index_learn_pair(struct picker_index *index, const uint32_t slots[2],
                             const struct block_hash *hashes, size_t n, uint64_t now_ns);
/* From now on the worker has these blocks on disk only. */
void picker_index_learn_on_disk(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                                size_t n, uint64_t now_ns);
/* Matches the chain for every slot < n_slots; in_memory of other slots is left alone. */
void picker_index_match(struct picker_index *index, const struct picker_query *query,
                        struct picker_found *found_out);
/* Applies block events of the worker in slot slice->source, one run of equal tiers at a time.  Returns whether any of
 * these blocks is not in its memory. */
bool picker_index_apply(struct picker_index *index, const struct block_slice *slice, uint64_t now_ns);
/* True if any worker has this block, in any tier. */
bool picker_index_knows(struct picker_index *index, const struct block_hash *hash, uint64_t now_ns);
/* The slot of the only worker that has this block in memory. PICKER_NONE: no worker has it, or several do. */
uint32_t picker_index_last_replica(struct picker_index *index, const struct block_hash *hash,
                                   uint64_t now_ns);
/* The worker does not have hashes[from..n) in any tier. */
void picker_index_unlearn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                          size_t from, size_t n);
/* The worker restarted or left. Takes effect at once, however many blocks it had. */
void picker_index_forget(struct picker_index *index, uint32_t slot);
/* Sweeps up to n_entries entries, if any need it. A timer calls this, so that a quiet router also finishes
 * a sweep. Returns the number of entries examined. */
uint32_t picker_index_sweep(struct picker_index *index, uint32_t n_entries);

size_t picker_index_count(const struct picker_index *index);   /* blocks known */
size_t picker_index_on_disk(const struct picker_index *index); /* of these, blocks that are in no worker's
                                                                * memory */
size_t picker_index_bytes(uint32_t max_entries);               /* bound of an index's memory */

#endif
