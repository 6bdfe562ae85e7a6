/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry of KV memory: bytes and strides.  Nothing here depends on a model.
 *
 *    arena:  [layer][block][layer_block_bytes]     layer-major: one layer of adjacent blocks is one run
 *    inside one (layer, block):  K then V, each n_kv_heads x block_tokens rows of `type`; then the index, keys
 *                                of a sparse-attention indexer: block_tokens rows of `index_type`
 *
 * The engine decides how rows lie inside a K or V (compute/tensor/tensor.h); here they are bytes.  With v_dim
 * 0 there is no V: the engine reads the values from the keys (multi-head latent attention). */
#ifndef CACHE_KV_LAYOUT_H
#define CACHE_KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/kv_types.h"

typedef uint32_t kv_block_id;
#define KV_BLOCK_NONE UINT32_MAX

enum kv_type {
#define X(type, number, word, run, run_bytes) KV_##type = (number),
    KV_TYPE_TABLE(X)
#undef X
        KV_N_TYPES
};

/* The words of all types: with | between them, and as a literal with a blank before each. */
#define KV_TYPE_WORD(type, number, word, run, run_bytes)   "|" word
#define KV_TYPE_WORDS                                      (&(KV_TYPE_TABLE(KV_TYPE_WORD))[1])
#define KV_TYPE_SPACED(type, number, word, run, run_bytes) " " word
#define KV_TYPE_LIST                                       KV_TYPE_TABLE(KV_TYPE_SPACED)

struct kv_layout {
    uint32_t n_layers; /* with keys and values in each block; without n_window_layers */
    uint32_t n_kv_heads;
    uint32_t k_dim; /* numbers in a key */
    uint32_t v_dim; /* numbers in a value; 0: values are parts of the keys */
    uint32_t block_tokens;
    enum kv_type type;
    uint32_t index_dim;      /* numbers in a key of the indexer; 0: none */
    enum kv_type index_type; /* KV_F32 or KV_F16 */
    size_t state_bytes; /* recurrent state of a sequence, all layers; 0: none.  It lies in blocks: state.h */
    uint32_t n_window_layers; /* layers with a sliding window, in blocks of their own: window.h; 0: none */
    uint32_t window;          /* keys that a token sees in these layers, its own included */
};

const char *kv_type_word(enum kv_type type);
size_t kv_layout_row_bytes(enum kv_type type, uint32_t dim); /* one key or value; the average over a block */
size_t kv_layout_k_bytes(const struct kv_layout *layout);    /* K of one layer of one block */
size_t kv_layout_v_bytes(const struct kv_layout *layout);
size_t kv_layout_index_bytes(const struct kv_layout *layout);       /* the index of one layer of one block */
size_t kv_layout_layer_block_bytes(const struct kv_layout *layout); /* K, V and the index */
size_t kv_layout_block_bytes(const struct kv_layout *layout);       /* all layers */
/* Offset of (layer, block) in an arena of n_blocks. */
size_t kv_layout_offset(const struct kv_layout *layout, uint32_t n_blocks, uint32_t layer, kv_block_id block);
/* 64-bit digest of the geometry plus the numerics id of the engine that writes it; peers must agree on it. */
uint64_t kv_layout_fingerprint(const struct kv_layout *layout, uint64_t numerics_id);

#endif
