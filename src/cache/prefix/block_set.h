/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded set of block hashes that may forget: buckets of eight, and a new hash replaces the bucket's oldest.
 *
 * For hints only.  About 1 MiB, reserved once.  One thread. */
#ifndef CACHE_PREFIX_BLOCK_SET_H
#define CACHE_PREFIX_BLOCK_SET_H

#include "cache/prefix/block_hash.h"

enum { BLOCK_SET_BUCKETS = 8192, BLOCK_SET_WAYS = 8, BLOCK_SET_MAX = BLOCK_SET_BUCKETS * BLOCK_SET_WAYS };

struct block_set;

struct block_set *block_set_new(void); /* NULL: no memory */
void block_set_free(struct block_set *set);
/* False: the set has it already. */
bool block_set_add(struct block_set *set, const struct block_hash *hash);
bool block_set_has(const struct block_set *set, const struct block_hash *hash);
/* False: the set does not have it. */
bool block_set_remove(struct block_set *set, const struct block_hash *hash);
uint32_t block_set_count(const struct block_set *set);
/* Copies at most `most` hashes of the set; returns how many. */
uint32_t block_set_list(const struct block_set *set, struct block_hash *out, uint32_t most);

#endif
