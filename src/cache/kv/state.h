/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent state in blocks of the pool.
 *
 * Layers without keys and values (short convolutions, Mamba, delta nets) keep a state of fixed size instead.
 * A sequence's state in all of these layers is one string of bytes.  It fills the pieces of whole blocks, one
 * after another:
 *
 *    state    | piece | piece | piece | piece | piece ... padding |
 *    block      s0      s0      s0      s1      s1     (3 layers)
 *    layer      0       1       2       0       1
 *
 * So a state is taken, sealed, found by hash, leased, sent, saved and evicted like any other blocks.
 *
 * A snapshot is a sealed state: the state after a block of tokens.  Its blocks have their own hashes, derived
 * from that block's hash (kv_state_hashes).  Equal hashes mean equal prefixes here, too.
 *
 * Pure functions; any thread that may touch the bytes. */
#ifndef CACHE_KV_STATE_H
#define CACHE_KV_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "cache/kv/layout.h"

struct block_hash;

struct kv_state_cut {          /* a point in the tokens of a step, after which the state is written */
    uint32_t n_tokens;         /* after this many of the fed tokens */
    const kv_block_id *blocks; /* [kv_layout_state_blocks()], FILLING, written by this step alone */
};

struct kv_arena { /* the memory of a pool */
    const struct kv_layout *layout;
    void *base;
    uint32_t n_blocks;
};

/* Returns the number of blocks of one state; 0: the model has none. */
uint32_t kv_layout_state_blocks(const struct kv_layout *layout);
/* Copies bytes [from, from + n) of the state in these blocks.
 * blocks NULL: reads zeros, the state before the first token. */
void kv_state_read(const struct kv_arena *arena, const kv_block_id *blocks, size_t from, size_t n, void *out);
void kv_state_write(const struct kv_arena *arena, const kv_block_id *blocks, size_t from, size_t n,
                    const void *in);
/* Derives the hashes of the n blocks with the state after the token block that has this hash. */
void kv_state_hashes(const struct block_hash *block, uint32_t n, struct block_hash *hashes_out);

#endif
