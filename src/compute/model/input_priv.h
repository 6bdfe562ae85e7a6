/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of each token for each layer (forward_tail.c): their part of struct model_state. */
#ifndef COMPUTE_MODEL_INPUT_PRIV_H
#define COMPUTE_MODEL_INPUT_PRIV_H

struct input_state {
    float *inputs; /* [max_tokens][n_layers][input], or NULL: the model has none */
    float *rows;   /* [max_tokens][n_layers][input] rows of the table, while inputs are computed */
    float *gate;   /* [max_tokens][input] */
};

struct carving;
struct forward;
struct model;
struct model_state;

/* Computes the inputs of all layers, before the first. */
void forward_inputs(struct forward *f);
void tail_lay_out(const struct model *model, struct model_state *state, struct carving *carving);

#endif
