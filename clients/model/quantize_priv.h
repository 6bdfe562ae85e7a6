/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of baton-model quantize share. */
#ifndef MODEL_QUANTIZE_PRIV_H
#define MODEL_QUANTIZE_PRIV_H

#include "gguf/gguf.h"

struct mix { /* a name as in Q4_K_M: one type for most matrices, more bits for the most sensitive ones */
    const char *name;
    enum dtype type;     /* of most matrices */
    uint32_t file_type;  /* general.file_type */
    enum dtype output;   /* the output head, also when it is the token embedding */
    enum dtype down;     /* feed-forward down projections, in the layers that is_down says */
    enum dtype value;    /* attention values, in the layers that is_value says */
    enum dtype attn_out; /* attention output, all layers */
    bool (*is_down)(uint32_t layer, uint32_t n_layers);
    bool (*is_value)(uint32_t layer, uint32_t n_layers);
};

/* NULL: no such name; the names, separated by blanks, are mix_names(). */
const struct mix *mix_find(const char *name);
const char *mix_names(void);

struct mix_opts {
    const struct mix *mix;
    int output_type;    /* negative: as the mix says */
    int embedding_type; /* negative: as the mix says */
    bool is_pure;       /* every matrix of the mix's main type */
    uint32_t n_layers;
    bool is_tied; /* no output head of its own */
};

/* Returns the tensor's type; *wanted_out is the type without the limit of its row width. */
enum dtype mix_type(const struct mix_opts *opts, const struct gguf_tensor *tensor, enum dtype *wanted_out);
/* A matrix that may be quantised, by its shape and name. */
bool mix_is_matrix(const struct gguf_tensor *tensor);

/* ---- quantize_imatrix.c ---- */

struct gguf_writer;
struct imatrix; /* an importance matrix: mean squares of the inputs of matrices */

int imatrix_open(const char *path, struct fault *fault, struct imatrix **out);
void imatrix_close(struct imatrix *imatrix); /* accepts NULL */
/* 1: the matrix has an importance of the tensor, 0: it has none. E_FORMAT: it has one of another shape. */
int imatrix_check(const struct imatrix *imatrix, const struct gguf_tensor *tensor, struct fault *fault);
/* Sets *out to the factors of a checked tensor, [dims[2]][dims[0]] with mean 1 in each row, to be freed; NULL
 * if the matrix has no importance of it. E_NOMEM. */
int imatrix_factors(const struct imatrix *imatrix, const struct gguf_tensor *tensor, float **out);
/* Writes the keys quantize.imatrix.* of llama-quantize: path, and what the file says of its own origin. */
int imatrix_put_keys(const struct imatrix *imatrix, const char *path, struct gguf_writer *writer);

/* ---- quantize_scales.c ---- */

/* The tensor of NVFP4 beside which this one is a scale, or an input scale; NULL: it is no such scale. */
const struct gguf_tensor *scales_owner(const struct gguf *gguf, const struct gguf_tensor *tensor);
/* Sets *out to the factors of the tensor's weights, [dims[2]], to be freed; NULL: it has none. E_FORMAT, E_NOMEM. */
int scales_read(const struct gguf *gguf, const struct gguf_tensor *weights, float **out, struct fault *fault);

#endif
