/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry of KV memory: bytes and strides, nothing about models.
 *
 *   arena:  [layer][block][layer_block_bytes]            layer-major: one layer of adjacent blocks is one run
 *   inside one (layer, block):  K then V, each [kv_head][token in block][head_dim] of `type`
 */
#ifndef KV_LAYOUT_H
#define KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t kv_block_id;
#define KV_BLOCK_NONE UINT32_MAX

enum kv_type { KV_F32 = 0, KV_F16 = 1 }; /* bf16, q8_0, q4_0 come later */

struct kv_layout {
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t block_tokens;
    enum kv_type type;
};

size_t kv_layout_type_bytes(enum kv_type type);
size_t kv_layout_half_bytes(const struct kv_layout *layout);        /* K (or V) of one layer of one block */
size_t kv_layout_layer_block_bytes(const struct kv_layout *layout); /* K and V */
size_t kv_layout_block_bytes(const struct kv_layout *layout);       /* all layers */
/* Offset of (layer, block) in an arena of n_blocks. */
size_t kv_layout_offset(const struct kv_layout *layout, uint32_t n_blocks, uint32_t layer, kv_block_id block);
/* 64-bit digest of the geometry plus the numerics id of the engine that writes it; peers must agree on it. */
uint64_t kv_layout_fingerprint(const struct kv_layout *layout, uint64_t numerics_id);

#endif
