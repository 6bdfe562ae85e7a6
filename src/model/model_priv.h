/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the model as they see it and the pieces of a pass. */
#ifndef MODEL_MODEL_PRIV_H
#define MODEL_MODEL_PRIV_H

#include "model/model.h"
#include "tensor/tensor.h"

/* ---- arch.c: what the metadata says ---- */

enum rope_scaling { ROPE_SCALE_NONE, ROPE_SCALE_LINEAR, ROPE_SCALE_YARN };

struct rope_params {
    enum rope_pairs pairs;
    enum rope_scaling scaling;
    double freq_base;
    double factor;           /* > 1: the context is stretched by it */
    double original_context; /* yarn: what the model was trained for before */
    double beta_fast, beta_slow;
    double ext_factor;
    double attn_factor;
};

struct arch { /* what tells one architecture from another */
    const char *name;
    enum rope_pairs pairs;
    bool needs_qkv_bias;
};

/* Fills config (but not weight_*, n_parameters) and rope from metadata and the embedding's shape.  All
 * complaints about keys are in one fault. */
int arch_read(const struct gguf *gguf, struct fault *fault, const struct arch **arch_out,
              struct model_config *config_out, struct rope_params *rope_out);

/* ---- rope.c ---- */

struct rope {
    enum rope_pairs pairs;
    uint32_t dims;
    float magnitude;            /* of sines and cosines: yarn's attention temperature, else 1 */
    double *angle_per_position; /* [dims/2], owned */
};

/* factors: [dims/2] from rope_freqs.weight (llama3), or NULL. */
int rope_init(const struct rope_params *params, uint32_t dims, const float *factors, struct rope *out);
void rope_fini(struct rope *rope);
/* cos, sin: [dims/2] of one position, computed in double precision. */
void rope_angles(const struct rope *rope, uint32_t position, float *cos_out, float *sin_out);
/* A digest of sines at chosen positions: two machines whose libraries round otherwise get different ones. */
uint64_t rope_digest(const struct rope *rope);

/* ---- weights.c ---- */

/* Matrices that read the same input; neighbours of one type share their panels. */
struct weight_group {
    struct weight parts[3];
    uint32_t n_parts;
    uint32_t rows; /* of all parts */
};

struct layer {
    const float *attn_norm;      /* [hidden] */
    struct weight_group qkv;     /* [(n_heads + 2 n_kv_heads) head_dim][hidden] */
    const float *qkv_bias;       /* same rows, or NULL */
    struct weight_group out;     /* [hidden][n_heads head_dim] */
    const float *ffn_norm;       /* [hidden] */
    struct weight_group gate_up; /* [2 ffn][hidden] */
    struct weight_group down;    /* [hidden][ffn] */
};

struct model {
    struct model_config config;
    const struct arch *arch;
    struct kv_layout layout;
    const struct kern_table *table;
    struct rope rope;
    struct layer *layers;    /* [n_layers] */
    struct weight embedding; /* [vocab][hidden] */
    struct weight head;      /* [vocab][hidden]; empty when tied */
    const float *final_norm; /* [hidden] */
    float *vectors;          /* owns all norms and biases */
    uint64_t numerics_id;
};

/* Binds every tensor by name and shape, refuses those it does not know, then packs.  model->config, arch,
 * table and layers' count are set; on failure the caller frees the model. */
int weights_load(struct model *model, const struct gguf *gguf, struct team *team,
                 const struct model_opts *opts, struct fault *fault);
void weights_fini(struct model *model);
/* The tensor as floats if it is a plain vector of n; E_NOT_FOUND when absent. */
int weights_vector(const struct gguf *gguf, const char *name, uint32_t n, float *out, struct fault *fault);

/* ---- state.c and the passes ---- */

struct model_state {
    uint32_t max_tokens, max_items, max_logits, max_context;
    uint32_t n_ranks;
    uint64_t share_from_bytes;
    struct team *solo;       /* of the calling thread alone, for work too small to share; owned */
    void *memory;            /* owns all below */
    float *x;                /* [max_tokens][hidden]  the residual stream */
    float *normed;           /* [max_tokens][hidden]  a block's input; then its output */
    float *qkv;              /* [max_tokens][(n_heads + 2 n_kv_heads) head_dim] */
    float *attended;         /* [max_tokens][n_heads head_dim] */
    float *gate_up;          /* [max_tokens][2 ffn] */
    float *cos, *sin;        /* [max_tokens][rope_dims/2] */
    float *last;             /* [max_logits][hidden]  rows that want logits */
    float *logits;           /* [max_logits][vocab] */
    uint32_t *logits_end;    /* [max_items] row of logits behind an item's last */
    uint32_t *n_logits;      /* [max_items] how many rows it has */
    struct attn_item *items; /* [max_items] */
    void *attn_scratch;
    size_t attn_scratch_bytes;
    void *matmul_scratch;
    uint32_t n_items; /* of the last pass */
    uint32_t vocab;
};

struct forward { /* one pass in progress */
    const struct model *model;
    struct model_state *state;
    const struct model_pass *pass;
    uint32_t n_rows;           /* tokens of all items */
    const struct layer *layer; /* the one being computed */
    void *kv_layer;            /* its part of the arena */
    const float *gain;         /* of the norm being computed */
};

/* The pass's team, or the calling thread alone when there is so little to do that waking others would cost
 * more: on a busy machine a rank that must first be scheduled keeps the rest waiting for milliseconds.
 * work_bytes: what is read, times how often it is used.  Changes no bit. */
struct team *forward_team(const struct forward *f, uint64_t work_bytes);
/* Runs job over all rows, split among the ranks if it is worth it.  A job touches its own
 * rows only, so the split changes no bit. */
typedef void (*row_job)(const struct forward *f, uint32_t from, uint32_t to);
void forward_rows(const struct forward *f, row_job job);
/* normed = rmsnorm(x) * gain;  x += normed */
void forward_norm(struct forward *f, const float *gain);
void forward_add(const struct forward *f);
/* y = x . W^T for all parts of a group, side by side in rows of group->rows. */
void forward_matmul(const struct forward *f, const struct weight_group *group, const float *x,
                    size_t x_stride, float *y);

/* x += attention(norm(x)); stores K and V and calls on_layer on the way. */
void forward_attn(struct forward *f, uint32_t layer);
/* x += ffn(norm(x)) */
void forward_ffn(struct forward *f);

#endif
