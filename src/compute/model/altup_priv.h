/* SPDX-License-Identifier: Apache-2.0 */
/* Several residual streams (Gemma 3n): their weights and scratch.  forward_altup.c has the arithmetic. */
#ifndef COMPUTE_MODEL_ALTUP_PRIV_H
#define COMPUTE_MODEL_ALTUP_PRIV_H

#include <stddef.h>
#include <stdint.h>

enum { ALTUP_MOST_STREAMS = 8 };

struct altup_state {
    float *streams;   /* [max_tokens][n_streams][hidden]; NULL: x is the only stream */
    float *laurel;    /* [max_tokens][hidden] */
    float *low;       /* [max_tokens][laurel_rank] */
    float *modes;     /* [max_tokens][n_streams] the router's output */
    float *projected; /* [max_tokens][n_streams - 1][hidden], or [n_streams - 1][max_tokens][hidden] */
};

struct carving;
struct forward;
struct loading;
struct model;
struct model_state;

/* Fills the streams from x, before the first layer. */
void altup_begin(struct forward *f);
void altup_lay_out(const struct model *model, struct model_state *state, struct carving *carving);
/* Packs the matrices outside of the layers. */
int altup_pack(struct loading *load);
/* Largest scratch of a product by one of these matrices. */
size_t altup_products_bytes(const struct model *model, uint32_t n, uint32_t n_ranks);
void altup_fini(struct model *model);

#endif
