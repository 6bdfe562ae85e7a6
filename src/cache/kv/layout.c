/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and offsets of KV memory.
 *
 *    arena:          layer 0                  layer 1
 *            | blk 0 | blk 1 | ... | | blk 0 | blk 1 | ... |  ...
 *
 *    a (layer, block):   K: head 0: B rows   head 1: ...     V: the same
 *
 * Layer-major, because compute and transfer both work through one layer at a time.  Blocks of a sequence with
 * adjacent ids are one run of bytes in each layer.  Inside a block a head's tokens are adjacent, so attention
 * of one head streams through contiguous memory.
 *
 * The fingerprint covers everything that decides what a byte at an offset means, including the numerics id of the
 * engine that writes it.  So two workers with equal fingerprints may exchange blocks byte for byte.  It does not
 * cover the number of blocks: pools of peers may differ in size.  Parts that a layout lacks are left out, so it
 * keeps the fingerprint that older workers compute. */
#include "cache/kv/layout.h"

#include <xxhash.h>

#include "base/bytes.h"
#include "base/check.h"

static const struct kv_type_row {
    const char *word;
    size_t run, run_bytes;
} kv_types[] = {
#define X(type, number, word, run, run_bytes) {word, run, run_bytes},
    KV_TYPE_TABLE(X)
#undef X
};
CHECK_ROWS(kv_types, KV_N_TYPES);

const char *kv_type_word(enum kv_type type)
{
    ASSERT(type < KV_N_TYPES);
    return kv_types[type].word;
}

size_t kv_layout_row_bytes(enum kv_type type, uint32_t dim)
{
    ASSERT(type < KV_N_TYPES);
    return (dim + kv_types[type].run - 1) / kv_types[type].run * kv_types[type].run_bytes;
}

static size_t layout_rows(const struct kv_layout *layout)
{
    return (size_t)layout->n_kv_heads * layout->block_tokens;
}

size_t kv_layout_k_bytes(const struct kv_layout *layout)
{
    return layout_rows(layout) * kv_layout_row_bytes(layout->type, layout->k_dim);
}

size_t kv_layout_v_bytes(const struct kv_layout *layout)
{
    return layout_rows(layout) * kv_layout_row_bytes(layout->type, layout->v_dim);
}

size_t kv_layout_index_bytes(const struct kv_layout *layout)
{
    return layout->block_tokens * kv_layout_row_bytes(layout->index_type, layout->index_dim);
}

size_t kv_layout_layer_block_bytes(const struct kv_layout *layout)
{
    return kv_layout_k_bytes(layout) + kv_layout_v_bytes(layout) + kv_layout_index_bytes(layout);
}

size_t kv_layout_block_bytes(const struct kv_layout *layout)
{
    return layout->n_layers * kv_layout_layer_block_bytes(layout);
}

size_t kv_layout_offset(const struct kv_layout *layout, uint32_t n_blocks, uint32_t layer, kv_block_id block)
{
    return ((size_t)layer * n_blocks + block) * kv_layout_layer_block_bytes(layout);
}

uint64_t kv_layout_fingerprint(const struct kv_layout *layout, uint64_t numerics_id)
{
    uint8_t image[8 + 6 * 4 + 8 + 8 + 4 * 4] = "baton/kv";
    size_t len_bytes = 8 + 6 * 4 + 8; /* without the parts that few models have */

    if (layout->state_bytes > 0)
        len_bytes += 8;
    if (layout->n_window_layers > 0 || layout->index_dim > 0)
        len_bytes = sizeof(image);

    put_u32(image + 8, layout->n_layers);
    put_u32(image + 12, layout->n_kv_heads);
    put_u32(image + 16, layout->k_dim);
    put_u32(image + 20, layout->v_dim);
    put_u32(image + 24, layout->block_tokens);
    put_u32(image + 28, (uint32_t)layout->type);
    put_u64(image + 32, numerics_id);
    put_u64(image + 40, layout->state_bytes);
    put_u32(image + 48, layout->n_window_layers);
    put_u32(image + 52, layout->window);
    put_u32(image + 56, layout->index_dim);
    put_u32(image + 60, (uint32_t)layout->index_type);
    return XXH3_64bits(image, len_bytes);
}
