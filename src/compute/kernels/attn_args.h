/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of attention and of stores into the KV arena, which tensor/ passes to kernels. */
#ifndef COMPUTE_KERNELS_ATTN_ARGS_H
#define COMPUTE_KERNELS_ATTN_ARGS_H

#include "compute/kernels/kern_table.h"
#include "gguf/dtype.h"

struct weight; /* compute/tensor/tensor.h */

struct attn_item {  /* one sequence's queries */
    uint32_t first; /* index of its first row in q and out */
    uint32_t n_tokens;
    uint32_t position;      /* position of the first token; token i attends to keys 0..position+i */
    const uint32_t *blocks; /* block table */
};
struct attn_args {
    const struct kern_table *table;
    const float *q;  /* [n][n_heads][k_dim], rotated, unscaled */
    size_t q_stride; /* floats between tokens */
    float *out;      /* [n][n_heads][v_dim] */
    size_t out_stride;
    const void *kv_layer; /* arena of this layer, filled by kv_store */
    size_t block_bytes;   /* bytes of one (layer, block) */
    enum dtype kv_type;
    bool v_in_k; /* the value is the first v_dim numbers of the key (multi-head latent attention) */
    uint32_t n_heads, n_kv_heads, k_dim, v_dim, block_tokens; /* widths up to ATTN_MAX_DIM */
    uint32_t window;    /* keys that a query attends to, its own included; 0: all before it */
    const float *sinks; /* [n_heads] extra logits of the softmax's sum, without a value (gpt-oss); or NULL */
    float scale;        /* usually 1/sqrt(k_dim) */
    float cap;          /* scores become cap * tanh(score / cap); 0: no soft cap */
    const struct attn_item *items;
    uint32_t n_items;
    void *scratch;             /* 64-aligned */
    size_t scratch_bytes;      /* at least attn_scratch_bytes() for these arguments */
    const struct weight *next; /* as in struct matmul_args; used with one token only */
};
enum { ATTN_MAX_DIM = 1024 };

/* Stores K and V rows of n tokens of one sequence: k [n][n_kv_heads][k_dim], v [n][n_kv_heads][v_dim]
 * (strides in floats; v is not read with v_in_k). */
struct kv_store_args {
    const struct kern_table *table;
    void *kv_layer;
    size_t block_bytes;
    enum dtype kv_type;
    bool v_in_k;
    uint32_t n_kv_heads, k_dim, v_dim, block_tokens;
    const uint32_t *blocks;
    uint32_t position;
    uint32_t n;
    const float *k, *v;
    size_t k_stride, v_stride;
};
void kv_store(const struct kv_store_args *args);

#endif
