/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of layers with a sliding window, in blocks of their own.
 *
 * A pool block holds n_layers pieces: one for each layer that attends to all keys.  Layers with a window do not
 * fit into it.  They form groups of n_layers layers each, and a group has its own block for every
 * block_tokens tokens:
 *
 *     n_layers 2, n_window_layers 5      full     group 0   group 1   group 2
 *                                        | 0 1 |  | 0 1 |   | 2 3 |   | 4 . |     . unused piece
 *
 * So a windowed block is taken, sealed, found by hash, leased, sent, saved and evicted like any other block, and
 * a block behind the window can be released.  In engines, transfers and callbacks, windowed layer w has number
 * n_layers + w.
 *
 * The token at position p sees keys from p - window + 1 on.  A prefix of n tokens can be continued with the full
 * blocks of all its tokens, and the windowed blocks from kv_window_first(n) on.
 *
 * Pure functions; any thread. */
#ifndef CACHE_KV_WINDOW_H
#define CACHE_KV_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/kv/layout.h"

struct block_hash;

/* Returns the number of windowed blocks for block_tokens tokens; 0: the layout has no windowed layers. */
uint32_t kv_window_groups(const struct kv_layout *layout);
/* Returns the first block with a key that the token at position n_tokens sees. */
uint32_t kv_window_first(const struct kv_layout *layout, uint32_t n_tokens);
/* Returns the first block that a sequence of n_tokens keeps and a hand-off sends.  From there on lie all blocks
 * that the next token sees.  There also lie those needed to reuse the longest prefix of whole blocks for the same
 * tokens.  That prefix ends before the last token, because the last token is always fed. */
uint32_t kv_window_kept(const struct kv_layout *layout, uint32_t n_tokens);
/* Returns the most blocks that kv_window_first() leaves of a prefix of whole blocks. */
uint32_t kv_window_blocks(const struct kv_layout *layout);
/* Returns the number of windowed blocks, over all groups, that a prefix of n whole blocks needs. */
uint32_t kv_window_needed(const struct kv_layout *layout, uint32_t n);
/* The inverse of n + kv_window_needed(n): returns the prefix that has n_list blocks and the windowed blocks that it needs; 0: there
 * is none.  Accepts any number, because a peer sends it. */
uint32_t kv_window_needed_run(const struct kv_layout *layout, uint32_t n_list);
/* Returns the longest sequence, in blocks of tokens, that always fits into a pool of this many blocks. */
uint32_t kv_window_capacity(const struct kv_layout *layout, uint32_t n_pool_blocks);
/* Derives the hashes of the windowed blocks beside the block with this hash: [kv_window_groups()]. */
void kv_window_hashes(const struct block_hash *block, uint32_t n_groups, struct block_hash *hashes_out);
/* Writes the kv_window_needed() hashes of a prefix of n whole blocks: block after block, groups in order. */
void kv_window_needed_hashes(const struct kv_layout *layout, const struct block_hash *hashes, uint32_t n,
                             struct block_hash *hashes_out);

struct kv_window_source { /* where to look for blocks */
    bool (*has)(void *arg, const struct block_hash *hash);
    void *arg;
};
/* Returns the longest prefix, of at most n blocks, whose windowed blocks the source has.  Does not check full
 * blocks.  The time grows with n times the groups. */
uint32_t kv_window_run(const struct kv_layout *layout, const struct kv_window_source *source,
                       const struct block_hash *hashes, uint32_t n);

#endif
