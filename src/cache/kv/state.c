/* SPDX-License-Identifier: Apache-2.0 */
/* See state.h.
 *
 * The hash of a state's block is the token block's hash XOR the state block's number and a mark.  The token block's
 * hash is keyed and as good as random.  So the result is as hard to guess, and no more likely to collide. */
#include "cache/kv/state.h"

#include <string.h>

#include "base/bytes.h"
#include "cache/prefix/block_hash.h"

enum { STATE_MARK = 0x73746174 };

uint32_t kv_layout_state_blocks(const struct kv_layout *layout)
{
    size_t block_bytes = kv_layout_block_bytes(layout);

    return layout->state_bytes == 0 ? 0 : (uint32_t)((layout->state_bytes + block_bytes - 1) / block_bytes);
}

/* Returns the memory of byte `at`, and how many bytes follow it without a gap. */
static uint8_t *state_bytes_at(const struct kv_arena *arena, const kv_block_id *blocks, size_t at,
                               size_t *n_out)
{
    size_t piece_bytes = kv_layout_layer_block_bytes(arena->layout), piece = at / piece_bytes;
    uint32_t layer = (uint32_t)(piece % arena->layout->n_layers);
    kv_block_id block = blocks[piece / arena->layout->n_layers];

    *n_out = piece_bytes - at % piece_bytes;
    return (uint8_t *)arena->base + kv_layout_offset(arena->layout, arena->n_blocks, layer, block) +
           at % piece_bytes;
}

void kv_state_read(const struct kv_arena *arena, const kv_block_id *blocks, size_t from, size_t n, void *out)
{
    if (blocks == NULL)
        memset(out, 0, n);
    for (size_t done = 0, part; blocks && done < n; done += part) {
        const uint8_t *bytes = state_bytes_at(arena, blocks, from + done, &part);

        part = part < n - done ? part : n - done;
        memcpy((uint8_t *)out + done, bytes, part);
    }
}

void kv_state_write(const struct kv_arena *arena, const kv_block_id *blocks, size_t from, size_t n,
                    const void *in)
{
    for (size_t done = 0, part; done < n; done += part) {
        uint8_t *bytes = state_bytes_at(arena, blocks, from + done, &part);

        part = part < n - done ? part : n - done;
        memcpy(bytes, (const uint8_t *)in + done, part);
    }
}

void kv_state_hashes(const struct block_hash *block, uint32_t n, struct block_hash *hashes_out)
{
    for (uint32_t i = 0; i < n; i++) {
        hashes_out[i] = *block;
        put_u32(hashes_out[i].bytes, get_u32(block->bytes) ^ STATE_MARK);
        put_u32(hashes_out[i].bytes + 4, get_u32(block->bytes + 4) ^ (i + 1));
    }
}
