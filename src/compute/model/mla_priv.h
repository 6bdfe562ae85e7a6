/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention, as struct layer and struct model_state hold it. */
#ifndef COMPUTE_MODEL_MLA_PRIV_H
#define COMPUTE_MODEL_MLA_PRIV_H

#include "compute/tensor/many.h"

struct latent_weights {   /* of a layer */
    struct weight into;   /* [n_heads][latent][nope]  a query's plain part into the latent space */
    struct weight out_of; /* [n_heads][value][latent] what was attended out of it */
};

struct latent_state {
    float *low;      /* [max_tokens] of the query (or its latent), the key's latent, its rotary part */
    float *q;        /* [max_tokens][n_heads][latent + rope] */
    float *attended; /* [max_tokens][n_heads][latent] */
    float *values;   /* [max_tokens][n_heads][value] */
    struct many_piece *pieces; /* [n_heads] */
    void *many_scratch;
};

struct reading;
struct model;
struct model_config;
struct loading;
struct layer;

/* The widths of heads; then, when the rest is read, what YaRN does to the scale of attention. */
void latent_read_heads(struct reading *r, struct model_config *config);
void latent_read_scale(struct reading *r, struct model *model);
/* As struct half has them. */
int latent_pack(struct loading *load, uint32_t layer);
void latent_layer_fini(struct layer *layer);

#endif
