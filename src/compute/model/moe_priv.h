/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: its parts of struct layer, struct model and struct model_state. */
#ifndef COMPUTE_MODEL_MOE_PRIV_H
#define COMPUTE_MODEL_MOE_PRIV_H

#include "base/bytes.h"
#include "compute/model/moe_route_priv.h"
#include "compute/tensor/grouped.h"

struct expert_weights {       /* weights of a layer; experts lie one after another */
    struct weight gate_up[2]; /* one [n_experts][gate, up][ffn][hidden], or gate and up separately */
    uint32_t n_gate_up;       /* 1 also without a gate: [n_experts][up][ffn][hidden] */
    struct weight down;       /* [n_experts][hidden][ffn] */
    float *gate_up_bias;      /* [n_experts][gate, up][ffn], or NULL; owned */
    float *down_bias;         /* [n_experts][hidden], or NULL; owned */
};

/* A token's k chosen experts give k rows of their own, called picks. Picks are grouped by expert while
 * they are computed. */
struct moe_state {
    float *scores;                /* [max_tokens][n_experts] */
    uint32_t *chosen;             /* [max_tokens][n_used] experts, best first */
    float *weights;               /* [max_tokens][n_used] */
    uint32_t *pick;               /* [max_tokens][n_used] index of the pick among the grouped ones */
    uint32_t *token;              /* [max_tokens n_used] row that a pick came from */
    float *pick_weight;           /* [max_tokens n_used] of models that scale inputs */
    uint32_t *first;              /* [n_experts + 1] first pick of each expert */
    float *gate_up;               /* [max_tokens n_used][expert_parts ffn] */
    float *down;                  /* [max_tokens n_used][expert_io] */
    float *latent;                /* [max_tokens][expert_io], or NULL: experts read rows of normed */
    float *shared_gate_up;        /* [max_tokens][expert_parts shared ffn] */
    float *beside;                /* [max_tokens][hidden] output of a dense network beside the experts */
    float *shared_down;           /* [max_tokens][hidden] */
    struct grouped_piece *pieces; /* [2 n_experts + 3] */
    void *grouped_scratch;
};

struct reading;
struct model;
struct loading;
struct layer;

/* Reads the keys of a mixture of experts into model->config and model->route. Layers from n_dense on get
 * ffn_moe or its variant for the file. Without experts in the file, layers keep their half; with
 * is_required this is E_FORMAT. */
void moe_read(struct reading *r, struct model *model, uint32_t n_dense, bool is_required);
/* Hooks of struct half for the weights of a layer's experts. */
int moe_bind_loose(struct loading *load, uint32_t layer);
bool moe_knows_loose(const struct loading *load, struct bytes suffix);
int moe_pack_loose(struct loading *load, uint32_t layer);
int moe_pack_plain(struct loading *load, uint32_t layer); /* up and down, without a gate */
int moe_bind_biased(struct loading *load, uint32_t layer);
int moe_pack_biased(struct loading *load, uint32_t layer);
void moe_layer_fini(struct layer *layer);
/* Gate and up of all experts in one tensor, or in two. */
int moe_bind_either(struct loading *load, uint32_t layer); /* gate and up are two tensors or one */
int moe_pack_either(struct loading *load, uint32_t layer);

struct carving;
struct forward;
struct model_state;

/* Chooses experts by moe.scores. */
void moe_choose(struct forward *f);
/* normed = the chosen experts' weighted outputs for normed. */
void moe_compute(struct forward *f);
/* out [ffn] = the gated row of gate | up, or of up alone. limit: of gate and up; 0: none. */
void moe_gate(const struct forward *f, const float *row, uint32_t ffn, float limit, float *out);
void moe_lay_out(const struct model *model, struct model_state *state, struct carving *carving);

#endif
