/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the model as they see it and the pieces of a pass. */
#ifndef COMPUTE_MODEL_MODEL_PRIV_H
#define COMPUTE_MODEL_MODEL_PRIV_H

#include "base/mem.h"
#include "compute/model/arch_priv.h"
#include "compute/model/model.h"
#include "compute/model/moe_priv.h"
#include "compute/model/mla_priv.h"
#include "compute/tensor/tensor.h"

enum rope_scaling { ROPE_SCALE_NONE, ROPE_SCALE_LINEAR, ROPE_SCALE_YARN, ROPE_SCALE_LONGROPE };

struct rope_params { /* arch.c reads them */
    enum rope_pairs pairs;
    enum rope_scaling scaling;
    double freq_base;
    double factor;           /* > 1: the context is stretched by it */
    double original_context; /* yarn, longrope: what the model was trained for before */
    double beta_fast, beta_slow;
    double ext_factor;
    double attn_factor;        /* of sines and cosines; */
    bool has_exact_bounds;     /* yarn: between which pairs it blends is not rounded */
    bool is_attn_factor_whole; /* given by the file instead of what yarn would derive from factor */
};

/* Layers turn by one of these: most models have one, some another for their layers with a window. */
enum rope_kind { ROPE_GLOBAL, ROPE_LOCAL, N_ROPES, ROPE_NONE = N_ROPES /* the layer turns nothing */ };

/* ---- rope.c ---- */

struct rope {
    enum rope_pairs pairs;
    uint32_t dims;
    float magnitude;            /* of sines and cosines: an attention temperature, else 1 */
    double *angle_per_position; /* [dims/2], owned */
};

/* factors: [dims/2] divisors that the file brings (llama3, longrope), or NULL. */
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
    const struct half *attn, *ffn;
    enum rope_kind rope;
    bool is_local;                 /* one of those that a window is meant for, even if it hides nothing */
    uint32_t window;               /* keys a query sees, its own among them; 0: all before it */
    const float *vectors[N_SLOTS]; /* norms and biases; NULL: absent, or no vector */
    struct weight_group groups[N_GROUPS];
    struct expert_weights experts;
    struct latent_weights latent;
};

struct model {
    struct model_config config;
    const struct arch *arch;
    struct kv_layout layout;
    const struct kern_table *table;
    uint32_t n_ropes;
    struct rope_params rope_params[N_ROPES];
    struct rope ropes[N_ROPES];
    struct route_rule route; /* of tokens to experts, where there are any */
    struct layer *layers;    /* [n_layers] */
    struct weight embedding; /* [vocab][hidden] */
    struct weight head;      /* [vocab][hidden]; empty when tied */
    const float *final_norm; /* [hidden] */
    float *vectors;          /* owns all norms and biases */
    uint64_t numerics_id;
    enum bf16_math bf16; /* of some matrix; BF16_EXACT: of none */
};

struct bound_layer {
    const struct gguf_tensor *slot[N_SLOTS]; /* NULL: absent */
};

struct loading {
    struct model *model;
    const struct gguf *gguf;
    struct team *team;
    const struct model_opts *opts;
    struct fault *fault;
    /* binding */
    struct bound_layer *bound; /* [n_layers] */
    const struct gguf_tensor *globals[N_GLOBALS];
    uint64_t n_bound;
    uint64_t n_vector_floats;
    uint64_t total_bytes;
    uint64_t bytes_of_type[64]; /* by enum dtype */
    /* packing */
    uint64_t done_bytes;
    bool is_cancelled;
    float *next_vector; /* where in model->vectors the next one goes */
};

/* Binds every tensor by name and shape, refuses those it does not know, then packs.  arch_read is done and
 * the table chosen; on failure the caller frees the model. */
int weights_load(struct model *model, const struct gguf *gguf, struct team *team,
                 const struct model_opts *opts, struct fault *fault);
/* The binding alone. */
int weights_check(struct model *model, const struct gguf *gguf, const struct model_opts *opts,
                  struct fault *fault);
void weights_fini(struct model *model);
/* The tensor as floats if it is a plain vector of n; E_NOT_FOUND when absent. */
int weights_vector(const struct gguf *gguf, const char *name, uint32_t n, float *out, struct fault *fault);
/* For the bind functions of halves: finds a tensor and checks shape and type.  E_NOT_FOUND without a fault.
 */
int weights_bind(struct loading *load, const char *name, const struct slot_info *info,
                 const struct gguf_tensor **out);
bool weights_is_plain(enum dtype type);
/* n numbers of a plain tensor, from one on, as floats. */
void weights_floats(const struct gguf_tensor *tensor, uint64_t from, uint64_t n, float *out);
/* For the pack functions of halves.  Packs one matrix of stacked parts as the options want it; the fault
 * names the tensor they come from. */
int weights_matrix(struct loading *load, const struct gguf_tensor *from, enum dtype type,
                   const struct weight_part *parts, uint32_t n_parts, uint32_t cols, struct weight *out);
/* After a tensor is packed, and not before: counts it, tells progress, and gives its pages back. */
void weights_report(struct loading *load, const struct gguf_tensor *tensor);
/* The same of several, of which some may be NULL; E_CANCELLED when it is time to stop. */
int weights_packed(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n);

/* The KV type as the kernels know it. */
enum dtype model_kv_dtype(const struct model *model);

/* ---- state.c and the passes ---- */

struct model_state {
    uint32_t max_tokens, max_items, max_logits, max_context;
    uint32_t n_ranks;
    uint64_t share_from_bytes;
    struct team *solo;        /* of the calling thread alone, for work too small to share; owned */
    struct team **solos;      /* [n_ranks] a team of one for each rank; the first is solo; owned */
    struct mem_region memory; /* owns all below */
    float *x;                 /* [max_tokens][hidden]  the residual stream */
    float *normed;            /* [max_tokens][hidden]  a block's input; then its output */
    float *qkv;               /* [max_tokens][(n_heads + 2 n_kv_heads) head_dim] */
    float *attended;          /* [max_tokens][n_heads head_dim] */
    float *gate_up;           /* [FFN_FEW_TOKENS, or max_tokens][2 ffn] */
    void *gated_scratch;      /* of the feed-forward of more than these */
    float *cos[N_ROPES];      /* [max_tokens][rope_dims/2] */
    float *sin[N_ROPES];
    float *last;             /* [max_logits][hidden]  rows that want logits */
    float *logits;           /* [max_logits][vocab] */
    uint32_t *logits_end;    /* [max_items] row of logits behind an item's last */
    uint32_t *n_logits;      /* [max_items] how many rows it has */
    uint32_t *n_kept;        /* [max_items] rows of x that outlive the last layer's keys and values */
    struct attn_item *items; /* [max_items] */
    void *attn_scratch;
    size_t attn_scratch_bytes;
    void *matmul_scratch;
    struct moe_state moe;
    struct latent_state latent;
    uint32_t n_items; /* of the last pass */
    uint32_t vocab;
};

/* Pieces of a state's memory in order of need; two rounds: measure, then place. */
struct carving {
    uint8_t *base; /* NULL while measuring */
    size_t used_bytes;
};
void *carve(struct carving *carving, size_t len_bytes);

struct forward { /* one pass in progress */
    const struct model *model;
    struct model_state *state;
    const struct model_pass *pass;
    uint32_t n_items;          /* in state->items */
    uint32_t n_rows;           /* tokens of all of them */
    bool is_narrowed;          /* to rows that want logits, in this order */
    const struct layer *layer; /* the one being computed */
    void *kv_layer;            /* its part of the arena */
    const float *gain;         /* of the norm being computed */
    const struct weight *next; /* what the product after the coming forward_matmul reads; NULL: not known */
};

/* In the last layer, when its KV is stored: keeps the rows that want logits, of x and of rows [n_rows][width]
 * that lie stride floats apart.  None may be left. */
void forward_narrow(struct forward *f, float *rows, size_t width, size_t stride);
/* The pass's team, or the calling thread alone when there is so little to do that waking others would cost
 * more: on a busy machine a rank that must first be scheduled keeps the rest waiting for milliseconds.
 * work_bytes: what is read, times how often it is used.  Changes no bit. */
struct team *forward_team(const struct forward *f, uint64_t work_bytes);
/* Runs job over all rows, split among the ranks if it is worth it.  A job touches its own
 * rows only, so the split changes no bit. */
typedef void (*row_job)(const struct forward *f, uint32_t from, uint32_t to);
void forward_rows(const struct forward *f, row_job job);
/* normed = rmsnorm(x) * gain */
void forward_norm(struct forward *f, const float *gain);
/* y = x . W^T for all parts of a group, side by side in rows of group->rows. */
void forward_matmul(struct forward *f, const struct weight_group *group, const float *x, size_t x_stride,
                    float *y);

/* For next: the first matrix of a group; NULL: it has none, or the calling thread multiplies by it alone. */
const struct weight *forward_first(const struct forward *f, const struct layer *layer, enum group group);
/* The first that the layer after this one reads. */
const struct weight *forward_beyond(const struct forward *f, uint32_t layer);

/* forward_ffn.c: whether the layer's feed-forward takes more tokens than a few in one go, so that none of its
 * products alone meets as many. */
enum { FFN_FEW_TOKENS = 64 };
bool ffn_is_gated(const struct layer *layer);

/* How every half ends: what it computed lies in normed and is normed again where the architecture wants it
 * (post_norm may be NULL), scaled, and added to x. */
void forward_finish(struct forward *f, const float *post_norm);

#endif
