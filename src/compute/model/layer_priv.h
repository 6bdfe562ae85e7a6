/* SPDX-License-Identifier: Apache-2.0 */
/* A layer of a model: its halves, its shape and its weights. */
#ifndef COMPUTE_MODEL_LAYER_PRIV_H
#define COMPUTE_MODEL_LAYER_PRIV_H

#include "compute/model/arch_priv.h"
#include "compute/model/index_priv.h"
#include "compute/model/mla_priv.h"
#include "compute/model/moe_priv.h"
#include "compute/model/recurrent_priv.h"
#include "compute/model/rope_priv.h"
#include "compute/tensor/tensor.h"

/* Matrices that read the same input. Neighbours of one type are packed into one weight. */
struct weight_group {
    struct weight parts[8];
    uint32_t n_parts;
    uint32_t rows; /* sum over all parts */
};

struct layer {
    const struct half *attn, *ffn, *tail; /* tail: NULL in most models */
    enum rope_kind rope;
    uint32_t n_heads, n_kv_heads, ffn_width;
    uint32_t head_dim, value_dim; /* of a head's query and key, and of its value; 0: the same */
    uint32_t kv_index;            /* number of its keys and values in the KV layout */
    bool is_shared;               /* the layer kv_source stores them */
    uint32_t kv_source;
    size_t state_at; /* a recurrent layer: where its part of the state begins */
    enum index_kind index;
    bool is_local;       /* a layer that should have a window, even if the window hides no key */
    bool is_unit_normed; /* heads of q and k are normed without a gain, after RoPE */
    bool is_sparse;      /* gates below so many standard deviations over their mean are cut off */
    float cut_deviations;
    float expert_limit, shared_limit; /* of gates and ups of experts; 0: none */
    struct xielu xielu;               /* with ACT_XIELU */
    uint32_t window; /* number of keys that a query attends to, its own included; 0: all before it */
    const float *vectors[N_SLOTS]; /* norms and biases; NULL: absent, or a matrix */
    struct weight_group groups[N_GROUPS];
    struct expert_weights experts;
    struct latent_weights latent;
    struct recurrent_weights recurrent;
};

static inline uint32_t layer_value_dim(const struct layer *layer)
{
    return layer->value_dim ? layer->value_dim : layer->head_dim;
}

#endif
