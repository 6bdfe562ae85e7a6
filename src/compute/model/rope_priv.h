/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embeddings (rope.c): their parameters, which arch.c reads, and the angles of a position. */
#ifndef COMPUTE_MODEL_ROPE_PRIV_H
#define COMPUTE_MODEL_ROPE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/tensor/tensor.h"

/* X(scaling, its word in rope.scaling.type of model files); rope_init() computes each. */
#define ROPE_SCALING_TABLE(X)                                                                                \
    X(NONE, "none")                                                                                          \
    X(LINEAR, "linear")                                                                                      \
    X(YARN, "yarn")                                                                                          \
    X(LONGROPE, "longrope")

enum rope_scaling {
#define X(scaling, word) ROPE_SCALE_##scaling,
    ROPE_SCALING_TABLE(X)
#undef X
        N_ROPE_SCALINGS
};

struct rope_params { /* arch.c reads them */
    enum rope_pairs pairs;
    enum rope_scaling scaling;
    double freq_base;
    double factor;           /* > 1: the context is stretched by it */
    uint32_t dims;           /* numbers of a head that turn; 0: rope_dims */
    double original_context; /* yarn, longrope: context length of the original training */
    double beta_fast, beta_slow;
    double ext_factor;
    double attn_factor;        /* factor of sines and cosines */
    double temperature_scale;  /* queries grow by its log of whole original contexts; 0: no */
    double temperature_length; /* counted in place of original contexts; 0: no */
    double temperature_offset; /* added to positions */
    bool scales_unturned;      /* only queries without RoPE grow */
    bool has_exact_bounds;     /* yarn: the bounds of the blended pairs are not rounded */
    bool is_attn_factor_whole; /* attn_factor is the file's, not derived from factor */
};

/* Each layer uses one of these. Most models have one; some have another for their layers with a window. */
enum rope_kind { ROPE_GLOBAL, ROPE_LOCAL, N_ROPES, ROPE_NONE = N_ROPES /* the layer has no RoPE */ };

struct rope {
    enum rope_pairs pairs;
    uint32_t dims;
    float magnitude;            /* factor of sines and cosines: an attention temperature, else 1 */
    double *angle_per_position; /* [dims/2], owned */
    double temperature_scale;   /* as in rope_params */
    double temperature_offset;
    bool scales_unturned;
    double temperature_length;
};

/* factors: [dims/2] divisors from the file (llama3, longrope), or NULL. */
int rope_init(const struct rope_params *params, uint32_t dims, const float *factors, struct rope *out);
void rope_fini(struct rope *rope);
/* cos, sin: [dims/2] of one position, computed in double precision. */
void rope_angles(const struct rope *rope, uint32_t position, float *cos_out, float *sin_out);
/* Factor of a query at the position. */
float rope_temperature(const struct rope *rope, uint32_t position);
/* A digest of sines at chosen positions. It differs between machines whose math libraries round
 * differently. */
uint64_t rope_digest(const struct rope *rope);

#endif
