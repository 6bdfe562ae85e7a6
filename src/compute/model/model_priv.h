/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this folder: the model as they see it, and the steps of a forward pass. */
#ifndef COMPUTE_MODEL_MODEL_PRIV_H
#define COMPUTE_MODEL_MODEL_PRIV_H

#include "base/mem.h"
#include "compute/model/altup_priv.h"
#include "compute/model/arch_priv.h"
#include "compute/model/index_priv.h"
#include "compute/model/input_priv.h"
#include "compute/model/layer_priv.h"
#include "compute/model/model.h"
#include "compute/model/moe_priv.h"
#include "compute/model/mla_priv.h"
#include "compute/model/mtp_priv.h"
#include "compute/model/recurrent_priv.h"
#include "compute/model/rope_priv.h"
#include "compute/kernels/recurrent.h"
#include "compute/tensor/gated.h"
#include "compute/tensor/tensor.h"

struct model {
    struct model_config config;
    const struct arch *arch;
    struct kv_layout layout;
    const struct kern_table *table;
    enum norm norm;             /* NORM_RMS or NORM_LAYER */
    bool is_parallel;           /* as in the architecture's row, unless a key differs */
    enum activation activation; /* as in the architecture's row, unless the shape tells another one */
    uint32_t globals;           /* GLOBAL_BIT()s that the keys ask for */
    slot_set needs;             /* slots of every layer that the keys ask for */
    uint32_t n_ropes;
    struct rope_params rope_params[N_ROPES];
    struct rope ropes[N_ROPES];
    struct route_rule route;                           /* how tokens choose experts, if there are any */
    struct layer *layers;                              /* [n_layers] */
    struct weight embedding;                           /* [vocab][hidden] */
    struct weight head;                                /* [vocab][hidden]; empty when tied */
    struct weight positions;                           /* [n_positions][hidden], or empty */
    struct weight inputs;                              /* [vocab][n_layers][input], or empty */
    struct weight_group inputs_proj;                   /* [n_layers][input][hidden] */
    struct weight_group altup_in;                      /* [n_streams - 1][hidden][hidden], or empty */
    struct weight_group altup_out[ALTUP_MOST_STREAMS]; /* [hidden][hidden] of each but the first stream */
    const float *inputs_norm;                          /* [input] */
    float *ones;                                       /* a gain for norms without one, as wide as they are */
    bool norms_values;                                 /* by ones, in layers that store values */
    struct layer_gain final_norm;                      /* [hidden] */
    const float *head_bias;                            /* [vocab], or NULL */
    struct watch_state watch;
    const struct model
        *mtp_of;          /* not NULL: this is the MTP head of that model, which owns embedding and head */
    uint32_t first_layer; /* number in the file of layers[0] */
    bool has_head_layer;  /* mtp_is_listed: layers[n_layers] is that of the MTP head */
    float *vectors;       /* owns all norms and biases */
    uint64_t numerics_id;
    enum bf16_math bf16; /* how some matrix is multiplied; BF16_EXACT: no matrix uses dots or tiles */
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
    uint64_t n_bound, n_vector_floats, total_bytes;
    struct weight_scales *scales;        /* NULL: none; owned */
    uint64_t bytes_of_type[DTYPE_COUNT]; /* by enum dtype */
    struct model_config shape;           /* of the layer being bound */
    /* packing */
    uint64_t done_bytes;
    bool is_cancelled;
    float *next_vector; /* next free place in model->vectors */
};

/* Binds every tensor by name and shape, refuses unknown ones, then packs. arch_read has run and the table
 * is chosen. On failure the caller frees the model. */
int weights_load(struct model *model, const struct gguf *gguf, struct team *team,
                 const struct model_opts *opts, struct fault *fault);
/* The binding alone. */
int weights_check(struct model *model, const struct gguf *gguf, const struct model_opts *opts,
                  struct fault *fault);
void weights_fini(struct model *model);
/* Reads the tensor as floats if it is a plain vector of n; E_NOT_FOUND when absent. */
int weights_vector(const struct gguf *gguf, const char *name, uint32_t n, float *out, struct fault *fault);
/* For the bind functions of halves: finds a tensor and checks its shape and type. E_NOT_FOUND without a
 * fault. */
int weights_bind(struct loading *load, const char *name, const struct slot_info *info,
                 const struct gguf_tensor **out);
bool weights_is_plain(enum dtype type);
/* Reads numbers [from, from + n) of a plain tensor as floats. */
void weights_floats(const struct gguf_tensor *tensor, uint64_t from, uint64_t n, float *out);
/* For the pack functions of halves. Packs one matrix of stacked parts. The caller gives type, parts and columns;
 * the rest of the packing follows from the options. The fault names the tensor `from`. */
int weights_matrix(struct loading *load, const struct gguf_tensor *from, struct weight_packing packing,
                   struct weight *out);
/* Parts with the type and the columns of a tensor. */
struct weight_packing weights_packing(const struct gguf_tensor *tensor, const struct weight_part *parts,
                                      uint32_t n);
/* Call after a tensor is packed: counts it, reports progress and releases its pages. */
void weights_report(struct loading *load, const struct gguf_tensor *tensor);
/* The same for several tensors, some of which may be NULL; E_CANCELLED when the load must stop. */
int weights_packed(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n);

/* The KV type in the kernels' terms. */
enum dtype model_kv_dtype(const struct model *model);

/* ---- state.c and the passes ---- */

struct model_state {
    uint32_t max_tokens, max_items, max_logits, max_context;
    uint32_t n_ranks;
    uint64_t team_from_bytes;
    struct team *solo;        /* a team of the calling thread alone, for work too small to share; owned */
    struct team **solos;      /* [n_ranks] a team of one per rank; the first is solo; owned */
    struct mem_region memory; /* owns all arrays below */
    float *x;                 /* [max_tokens][hidden]  the residual stream */
    float *normed;            /* [max_tokens][hidden]  input of a half; then its output */
    float *qkv;               /* [max_tokens][(n_heads + 2 n_kv_heads) head_dim] */
    float *branch;            /* [max_tokens][hidden]  attention's output, if halves are parallel */
    float *attended;          /* [max_tokens][n_heads head_dim] */
    float *values;            /* [max_tokens][n_kv_heads head_dim], or NULL: all layers have them in qkv */
    float *gate_up;           /* [FFN_FEW_TOKENS, or max_tokens][2 ffn] */
    void *gated_scratch;      /* for the feed-forward of more tokens than FFN_FEW_TOKENS */
    float *cos[N_ROPES];      /* [max_tokens][rope_dims/2] */
    float *sin[N_ROPES];
    float *joined;        /* [max_tokens][2 hidden] input of an MTP head; NULL: the model is not one */
    float *last;          /* [max_logits][hidden]  rows that need logits */
    float *raw;           /* [max_logits][hidden]  the same before the last norm; NULL: no head reads them */
    float *logits;        /* [max_logits][vocab] */
    uint32_t *logits_end; /* [max_items] row of logits after an item's last */
    uint32_t *n_logits;   /* [max_items] number of its rows */
    uint32_t *n_kept;     /* [max_items] rows of x kept after the last layer stored its KV */
    struct attn_item *items;       /* [max_items] */
    struct attn_item *chunk_items; /* [2 max_items + max_tokens] items cut where chunks end, or NULL */
    void *attn_scratch;
    size_t attn_scratch_bytes;
    void *matmul_scratch;
    struct moe_state moe;
    struct latent_state latent;
    struct index_state index;
    struct recurrent_state recurrent;
    struct input_state input;
    struct altup_state altup;
    uint32_t n_items; /* of the last pass */
    uint32_t vocab, hidden;
};

/* Allots pieces of a state's memory in order. There are two rounds: measure, then place. */
struct carving {
    uint8_t *base; /* NULL while measuring */
    size_t used_bytes;
};
void *carve(struct carving *carving, size_t len_bytes);

struct forward { /* a pass in progress */
    const struct model *model;
    struct model_state *state;
    const struct model_pass *pass;
    uint32_t n_items;          /* in state->items */
    uint32_t n_rows;           /* tokens of all items */
    bool is_narrowed;          /* only rows that need logits are left, in order */
    const struct layer *layer; /* the layer being computed */
    void *kv_layer;            /* this layer's part of the arena */
    struct layer_gain gain;    /* of the norm being computed */
    const struct weight *next; /* weight of the product after the next forward_matmul; NULL: not known */
};

/* In the last layer, after its KV is stored: keeps only the rows that need logits, of x and of rows
 * [n_rows][width] that lie stride floats apart. No row may be left. */
void forward_narrow(struct forward *f, float *rows, size_t width, size_t stride);
/* Returns the pass's team, or the calling thread alone when the work is so small that waking other threads
 * costs more. On a busy machine, a rank that must be scheduled first delays the rest for milliseconds.
 * work_bytes: bytes read, times how often they are used. Changes no bit. */
struct team *forward_team(const struct forward *f, uint64_t work_bytes);
/* How to turn by the angles of a row's position; the caller adds x, n_heads and head_dim. */
struct rope_args forward_rope(const struct forward *f, enum rope_kind rope, size_t row);
/* Runs job over all rows, split among the ranks if this saves time. A job touches only its own rows, so
 * the split changes no bit. */
typedef void (*row_job)(const struct forward *f, uint32_t from, uint32_t to);
void forward_rows(const struct forward *f, row_job job);
/* One row, by the architecture's kind of norm. */
void forward_norm_row(const struct model *model, const float *x, const struct layer_gain *gain, uint32_t n,
                      float *out);
/* normed = norm(x), with the layer's gain (and bias). Returns normed; x if the layer has no such norm. */
const float *forward_norm(struct forward *f, enum slot slot);
/* The norm before the feed-forward. */
enum slot forward_ffn_norm(const struct forward *f);
/* y = x . W^T for all parts of a group, side by side in rows of group->rows. */
void forward_matmul(struct forward *f, const struct weight_group *group, const float *x, size_t x_stride,
                    float *y);
/* For `next`: the first matrix of a group. NULL: it has none, or the calling thread multiplies by it
 * alone. */
const struct weight *forward_first(const struct forward *f, const struct layer *layer, enum group group);
/* The first matrix that the layer after this one reads. */
const struct weight *forward_beyond(const struct forward *f, uint32_t layer);
/* forward_attn.c: attention by heads; with gates behind q, k and v if the group has these rows. */
void forward_attn(struct forward *f, uint32_t layer);
/* The tensors that a layer without keys of its own may have. */
bool attn_knows_unread(const struct loading *load, struct bytes suffix);
/* forward_mla.c: attention of all queries to all keys of a layer with latents. */
struct attn_args latent_attn_args(const struct forward *f);
/* Its work with all keys, as bytes read. */
uint64_t latent_attend_bytes(const struct forward *f);
uint32_t latent_low_width(const struct model_config *config); /* floats of a row of latent.low */
/* forward_ffn.c: whether matmul_gated() computes the layer's feed-forward for more than FFN_FEW_TOKENS
 * tokens. Then none of its products alone sees that many tokens. */
enum { FFN_FEW_TOKENS = 64 };
bool ffn_is_gated(const struct layer *layer);
gated_act ffn_gated_act(const struct model *model);
plain_act ffn_plain_act(const struct model *model);
/* out [ffn] = act(gate) * up of a row gate | up (n_parts 2), or act(up) of a row up (n_parts 1). */
void ffn_activate(const struct model *model, const float *row, uint32_t ffn, uint32_t n_parts, float *out);
/* The same of a row gate | up, whose silu(gate) and up are limited. */
void ffn_activate_limited(const struct model *model, const float *row, uint32_t ffn, float limit, float *out);
/* normed = act(input . Wgate^T) * (input . Wup^T) . Wdown^T, with gate_up for all rows. */
void ffn_by_products(struct forward *f, uint32_t layer, const float *input);
void ffn_add_down_bias(struct forward *f); /* to normed, if the layer has one */
/* The end of every half. normed holds its output, which is normed again with post_norm (may be NULL),
 * scaled and added to x. */
void forward_finish(struct forward *f, const float *post_norm);

#endif
