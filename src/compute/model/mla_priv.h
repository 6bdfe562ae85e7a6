/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention: its parts of struct layer and struct model_state. */
#ifndef COMPUTE_MODEL_MLA_PRIV_H
#define COMPUTE_MODEL_MLA_PRIV_H

#include "compute/tensor/grouped.h"

struct latent_weights {   /* weights of a layer */
    struct weight into;   /* [n_heads][latent][nope]  maps a query's non-RoPE part into the latent space */
    struct weight out_of; /* [n_heads][value][latent] maps attention's output out of the latent space */
};

struct latent_state {
    float *low;                   /* [max_tokens] query (or its latent), key's latent, key's RoPE part */
    float *q;                     /* [max_tokens][n_heads][latent + rope] */
    float *attended;              /* [max_tokens][n_heads][latent] */
    float *values;                /* [max_tokens][n_heads][value] */
    struct grouped_piece *pieces; /* [n_heads] */
    void *grouped_scratch;
};

struct reading;
struct model;
struct model_config;
struct loading;
struct layer;

/* Reads the widths of heads; then, after the other keys, YaRN's effect on the attention scale. */
void latent_read_heads(struct reading *r, struct model_config *config);
void latent_read_scale(struct reading *r, struct model *model);
/* Hooks of struct half. */
int latent_pack(struct loading *load, uint32_t layer);
void latent_layer_fini(struct layer *layer);

#endif
