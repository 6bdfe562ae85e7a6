/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker holds which prefix blocks, and in which tier, as far as this router knows.
 *
 * Learned from what the router itself dispatched (a worker that prefills or receives a prompt holds its
 * blocks afterwards) and from what workers say; forgotten after the workers' cache lifetime, when a worker
 * restarts, or when it turns out not to hold them.  A bound on entries with LRU eviction, within which what
 * is in somebody's memory and what is on disks only can each push the other down to half.  One thread.
 *
 * Bounds.  Memory is reserved once, at the start, and used as the index fills: picker_index_bytes() for
 * max_entries, about 100 bytes for each block whatever the number of its holders.  No call takes longer than
 * its own blocks: nothing is rehashed, and a worker that is forgotten vanishes at once, its traces being
 * swept up by a few entries in each later call.  An index that knows less than is so is still right; that is
 * what happens where a bound is met. */
#ifndef FLEET_PICKER_INDEX_H
#define FLEET_PICKER_INDEX_H

#include <stdint.h>

#include "fleet/picker/picker.h"
#include "cache/prefix/block_hash.h"

struct picker_index;

struct picker_found { /* what is known of a chain: how many of its leading blocks are where */
    uint32_t in_memory[PICKER_MAX_WORKERS];
    uint32_t n_runs;                            /* workers that have more, all in memory or on disk ... */
    struct picker_run runs[PICKER_MAX_WORKERS]; /* ... in no order, each once */
};

/* Whoever has more blocks to tell of at once does it in slices of so many, and looks after requests between
 * two: a slice takes some tens of microseconds. */
#define PICKER_SLICE 128

/* E_INVAL (no entries, or more than 2^30), E_NOMEM. */
int picker_index_new(uint32_t max_entries, uint64_t lifetime_ns, struct picker_index **out);
void picker_index_free(struct picker_index *index);

/* Worker `slot` holds blocks hashes[0..n) in memory from now on. */
void picker_index_learn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns);
/* The same of two workers at once; PICKER_NONE (picker.h) among them: of the other alone. */
void picker_index_learn_pair(struct picker_index *index, const uint32_t slots[2],
                             const struct block_hash *hashes, size_t n, uint64_t now_ns);
/* It holds them on disk only from now on, whatever was known. */
void picker_index_learn_on_disk(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                                size_t n, uint64_t now_ns);
/* Of every slot < n_slots; in_memory of others is left alone. */
void picker_index_match(struct picker_index *index, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns, struct picker_found *found_out, uint32_t n_slots);
/* What a worker's block events say, run by run: tiers[i] (enum block_tier) is where it has hashes[i] now.
 * Returns whether any of them is not in its memory. */
bool picker_index_apply(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                        const uint8_t *tiers, size_t n, uint64_t now_ns);
/* Does anybody hold this block, in whatever tier? */
bool picker_index_knows(struct picker_index *index, const struct block_hash *hash, uint64_t now_ns);
/* The slot of the only worker that holds this block in memory; PICKER_NONE: nobody does, or several do. */
uint32_t picker_index_sole(struct picker_index *index, const struct block_hash *hash, uint64_t now_ns);
/* The worker does not hold hashes[from..n), in no tier. */
void picker_index_unlearn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                          size_t from, size_t n);
/* The worker restarted or left.  At once, whatever it held. */
void picker_index_forget(struct picker_index *index, uint32_t slot);
/* Sweeps up to so many entries, if there is anything to sweep: for a timer, so that a quiet router ends it
 * too. Returns how many it looked at. */
uint32_t picker_index_sweep(struct picker_index *index, uint32_t n_entries);

size_t picker_index_count(const struct picker_index *index);   /* blocks known */
size_t picker_index_on_disk(const struct picker_index *index); /* of these, in nobody's memory */
size_t picker_index_bytes(uint32_t max_entries);               /* all memory that such an index may use */

#endif
