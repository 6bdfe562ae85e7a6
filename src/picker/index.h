/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker holds which prefix blocks, as far as this router knows.
 *
 * Learned from what the router itself dispatched (a worker that prefills or receives a prompt holds its
 * blocks afterwards); forgotten after the workers' cache lifetime, when a worker restarts, or when a worker's
 * answer shows fewer cached tokens than predicted.  A bound on entries with LRU eviction.  One thread. */
#ifndef PICKER_INDEX_H
#define PICKER_INDEX_H

#include <stdint.h>

#include "prefix/block_hash.h"

struct picker_index;

int picker_index_new(uint32_t max_entries, uint64_t lifetime_ns, struct picker_index **out);
void picker_index_free(struct picker_index *index);

/* Worker `slot` holds blocks hashes[0..n) from now on. */
void picker_index_learn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns);
/* For every slot < n_slots: how many leading blocks of the chain it holds. */
void picker_index_match(struct picker_index *index, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns, uint32_t *blocks_out, uint32_t n_slots);
/* The worker turned out not to hold hashes[from..n). */
void picker_index_unlearn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                          size_t from, size_t n);
/* The worker restarted or left. */
void picker_index_forget(struct picker_index *index, uint32_t slot);
size_t picker_index_count(const struct picker_index *index);

#endif
