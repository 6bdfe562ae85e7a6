/* SPDX-License-Identifier: Apache-2.0 */
/* An architecture is a table row: the tensors of a layer, the functions that compute its two halves, and
 * the metadata keys that only this architecture has.
 *
 *    archs.c     the rows
 *    arch.c      keys common to all architectures; reading functions for the rows' hooks
 *    slots.c     the tensors: names and shapes, of which each row uses a set
 *
 * A new architecture made of known parts is one row. A new kind of attention or feed-forward is a struct
 * half, its forward function in a new file, and its slots and dims in the lists below. */
#ifndef COMPUTE_MODEL_ARCH_PRIV_H
#define COMPUTE_MODEL_ARCH_PRIV_H

#include "compute/model/model.h"
#include "compute/tensor/tensor.h"

/* ---- slots: the tensors of a layer ---- */

enum slot { /* vectors used as one (the biases of q, k and v) are neighbours; so are a LayerNorm's gain and bias */
            SLOT_ATTN_NORM,
            SLOT_ATTN_NORM_BIAS,
            SLOT_ATTN_NORM_2, /* attention's own, where SLOT_ATTN_NORM is the feed-forward's (falcon) */
            SLOT_ATTN_NORM_2_BIAS,
            SLOT_Q,
            SLOT_K,
            SLOT_V,
            SLOT_QKV, /* q, k and v in one tensor */
            SLOT_Q_BIAS,
            SLOT_K_BIAS,
            SLOT_V_BIAS,
            SLOT_QKV_BIAS,
            SLOT_Q_NORM, /* per head */
            SLOT_K_NORM,
            SLOT_Q_NORM_WIDE, /* over all heads together */
            SLOT_K_NORM_WIDE,
            SLOT_Q_NORM_HEADS, /* a gain for each head (command-r) */
            SLOT_K_NORM_HEADS,
            SLOT_OUT,
            SLOT_OUT_BIAS,
            SLOT_POST_ATTN_NORM, /* of attention's output, before it is added */
            SLOT_FFN_NORM,
            SLOT_FFN_NORM_BIAS,
            SLOT_GATE,
            SLOT_UP,
            SLOT_GATE_UP, /* gate and up in one tensor */
            SLOT_DOWN,
            SLOT_UP_BIAS,
            SLOT_DOWN_BIAS,
            SLOT_POST_FFN_NORM,
            SLOT_ROUTER, /* experts: forward_moe.c */
            SLOT_CHOICE_BIAS,
            SLOT_GATE_EXPERTS,
            SLOT_UP_EXPERTS,
            SLOT_DOWN_EXPERTS,
            SLOT_GATE_SHARED,
            SLOT_UP_SHARED,
            SLOT_DOWN_SHARED,
            SLOT_SHARED_GATE, /* weighs the shared experts by a sigmoid */
            SLOT_Q_A,         /* latent attention: forward_mla.c */
            SLOT_Q_A_NORM,
            SLOT_Q_B,
            SLOT_KV_A,
            SLOT_KV_A_NORM,
            SLOT_KV_B,
            SLOT_K_B, /* the two halves of SLOT_KV_B */
            SLOT_V_B,
            SLOT_OUT_VALUES,
            SLOT_SINKS, /* gpt-oss */
            SLOT_FFN_NORM_LATE,
            SLOT_ROUTER_BIAS,
            SLOT_GATE_EXPERTS_BIAS,
            SLOT_UP_EXPERTS_BIAS,
            SLOT_DOWN_EXPERTS_BIAS,
            SLOT_INPUT_GATE, /* embeddings for each layer: forward_tail.c */
            SLOT_INPUT_PROJ,
            SLOT_INPUT_NORM,
            SLOT_LAYER_SCALE,
            N_SLOTS
};

typedef uint64_t slot_set;
#define SLOT_BIT(name) (UINT64_C(1) << SLOT_##name)

enum dim {           /* widths, which dim_of() computes from the configuration */
           DIM_NONE, /* rows of a vector */
           DIM_HIDDEN,
           DIM_Q,
           DIM_KV,
           DIM_QKV,
           DIM_HEAD,
           DIM_FFN,
           DIM_2_FFN,
           DIM_VOCAB,
           DIM_ROPE_PAIRS,
           DIM_EXPERTS,
           DIM_EXPERT_FFN,
           DIM_SHARED_FFN,
           DIM_HEADS,
           DIM_KV_HEADS,
           DIM_POSITIONS,
           DIM_Q_LATENT,
           DIM_LATENT,
           DIM_LATENT_KEY,
           DIM_NOPE,
           DIM_VALUE,
           DIM_VALUES,
           DIM_KV_B,
           DIM_ONE,
           DIM_INPUT,
           DIM_INPUTS
};

/* Matrices of one group are stacked and multiplied together. */
enum group {
    GROUP_NONE /* a vector, or packed by its half */,
    GROUP_QKV,
    GROUP_OUT,
    GROUP_GATE_UP,
    GROUP_DOWN,
    GROUP_ROUTER,
    GROUP_Q_B,
    GROUP_INPUT_GATE,
    GROUP_INPUT_PROJ,
    N_GROUPS
};

struct slot_info {
    const char *suffix; /* after "blk.N.", or the whole name of a global tensor */
    enum dim rows;      /* DIM_NONE: a vector of cols */
    enum dim cols;
    enum dim count; /* DIM_NONE: one matrix; else this many, one after another */
    enum group group;
    enum model_role role;
};

enum global { /* tensors outside the layers */
              GLOBAL_EMBEDDING,
              GLOBAL_FINAL_NORM,
              GLOBAL_HEAD,
              GLOBAL_ROPE_FREQS,
              GLOBAL_ROPE_LONG,
              GLOBAL_ROPE_SHORT,
              GLOBAL_FINAL_NORM_BIAS, /* these only where the architecture's row names them */
              GLOBAL_HEAD_BIAS,
              GLOBAL_POSITIONS, /* learned embeddings of positions */
              GLOBAL_INPUTS,    /* embeddings for each layer: forward_tail.c */
              GLOBAL_INPUTS_PROJ,
              GLOBAL_INPUTS_NORM,
              N_GLOBALS
};

extern const struct slot_info SLOTS[N_SLOTS];
extern const struct slot_info GLOBALS[N_GLOBALS];
uint64_t dim_of(const struct model_config *config, enum dim dim);
const char *slot_name(uint32_t layer, enum slot slot, char out[64]);

/* ---- halves of a layer ---- */

struct model;
struct model_state;
struct layer;
struct forward;
struct carving;
struct loading;

struct half { /* a way to compute attention or the feed-forward network */
    const char *name;
    slot_set needs, may; /* slots in addition to the architecture's own */
    enum group first;    /* the group that is multiplied first; GROUP_NONE: not known in advance */
    /* x += half(norm(x)), for all rows of the pass. */
    void (*forward)(struct forward *f, uint32_t layer);
    /* Reserves the scratch that this half needs in addition to state.c's; NULL: none. */
    void (*lay_out)(const struct model *model, struct model_state *state, struct carving *carving);
    /* Binds tensors that no slot names; NULL: there are none. Returns a negative code on failure. */
    int (*bind)(struct loading *load, uint32_t layer);
    /* Whether suffix (after "blk.N.") names a tensor of bind, or one that the half does not need. */
    bool (*knows)(const struct loading *load, struct bytes suffix);
    /* Packs the half's matrices in GROUP_NONE; NULL: it has none. */
    int (*pack)(struct loading *load, uint32_t layer);
    void (*layer_fini)(struct layer *layer); /* NULL: nothing to free */
};

extern const struct half attn_grouped;        /* forward_attn.c: multi-head, grouped or multi-query */
extern const struct half attn_grouped_fused;  /* its matrices in one tensor */
extern const struct half attn_grouped_biased; /* with biases on all matrices */
extern const struct half attn_grouped_fused_biased;
extern const struct half attn_values_normed; /* values are normed, too */
extern const struct half attn_values_may;    /* without a matrix of their own they are the keys before norm */
extern const struct half attn_shared;        /* reads the KV of an earlier layer */
extern const struct half tail_scale;         /* forward_tail.c: a layer's end, after its halves */
extern const struct half tail_inputs;
extern const struct half ffn_dense;       /* forward_ffn.c: gate, up, down */
extern const struct half ffn_dense_fused; /* gate and up in one tensor */
extern const struct half ffn_plain;       /* forward_plain.c: up and down, without a gate */
extern const struct half ffn_plain_biased;
extern const struct half attn_latent;       /* forward_mla.c: one latent holds keys and values of all heads */
extern const struct half attn_latent_split; /* with the up-projection stored in two tensors */
extern const struct half attn_latent_q;     /* queries also go through a latent */
extern const struct half attn_latent_q_split;
extern const struct half ffn_moe;              /* forward_moe.c: a router and experts */
extern const struct half ffn_moe_shared;       /* plus experts that always run */
extern const struct half ffn_moe_shared_gated; /* which a gate weighs (qwen2moe) */
extern const struct half ffn_moe_loose;        /* one tensor per expert, as in old files */
extern const struct half ffn_moe_biased;       /* with biases on all matrices, and limits (gpt-oss) */

/* ---- rows ---- */

enum activation { ACT_SILU, ACT_GELU /* GELU's tanh form */, ACT_GELU_EXACT };
enum norm { NORM_RMS, NORM_LAYER };

struct reading;

struct arch {
    const char *name;
    enum rope_pairs pairs;
    enum activation activation;
    enum norm norm;                /* of halves, heads and the final one */
    bool is_parallel;              /* both halves of a layer read the same x: x += attention + feed-forward */
    const struct half *attn, *ffn; /* of every layer, unless read sets others */
    slot_set needs, may;    /* slots of every layer in addition to its halves'; all other slots are refused */
    uint32_t globals;       /* GLOBAL_BIT()s that a file must have besides the usual ones */
    bool norms_turned;      /* norms of heads run after RoPE, not before it */
    bool has_shapes;        /* layers may differ in shape: some keys may be lists */
    bool has_windows;       /* uses attention.sliding_window; else that key is refused */
    uint32_t window_period; /* each period's last layer attends to all keys; 0: all have the window */
    uint32_t window_default; /* of files without the key; 0: no window */
    const char *const *keys; /* key suffixes that only this architecture may have; NULL-terminated */
    /* Reads the architecture's own keys and sets differences between layers. Runs after the common keys
     * and windows. May be NULL. */
    void (*read)(struct reading *r, struct model *model);
};

#define GLOBAL_BIT(name) (UINT32_C(1) << GLOBAL_##name)
bool global_is_required(const struct model *model, enum global global);
bool global_is_allowed(const struct model *model, enum global global);

/* NULL past the last row. */
const struct arch *arch_at(uint32_t index);
/* The configuration with a layer's own shape. */
struct model_config layer_config(const struct model *model, uint32_t layer);
slot_set layer_needs(const struct model *model, uint32_t layer);
slot_set layer_may(const struct model *model, uint32_t layer); /* includes the needed slots */

/* Fills config (except weight_* and n_parameters), arch, rope_params and the layers' halves, windows and
 * ropes from the metadata. One fault lists all complaints about keys. */
int arch_read(const struct gguf *gguf, uint32_t context_length, struct fault *fault, struct model *model);

#include "compute/model/reading_priv.h" /* needs the types above */

#endif
