/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of each token for each layer (forward_tail.c): their part of struct model_state. Functions that
 * show the inputs of matrices (watch.c). */
#ifndef COMPUTE_MODEL_INPUT_PRIV_H
#define COMPUTE_MODEL_INPUT_PRIV_H

#include <stddef.h>

#include "compute/model/watch.h"

struct input_state {
    float *inputs; /* [max_tokens][n_layers][input], or NULL: the model has none */
    float *rows;   /* [max_tokens][n_layers][input] rows of the table, while inputs are computed */
    float *gate;   /* [max_tokens][input] */
};

struct watch_state {
    struct model_watch to; /* on_input NULL: there is no watch */
    float *row;            /* scratch */
};

struct carving;
struct forward;
struct weight_group;
struct model;
struct model_state;

/* Computes the inputs of all layers, before the first. */
void forward_inputs(struct forward *f);
/* normed = gelu(x . Wgate^T) * the layer's input . Wproj^T */
void forward_tail_product(struct forward *f, const float *x);
/* watch.c: for models with a watch. */
void watch_group(const struct forward *f, const struct weight_group *group, const float *x, size_t x_stride);
void watch_experts(const struct forward *f);
void tail_lay_out(const struct model *model, struct model_state *state, struct carving *carving);

#endif
