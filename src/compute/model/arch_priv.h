/* SPDX-License-Identifier: Apache-2.0 */
/* An architecture as a table row: which tensors a layer has, which functions compute its two halves, and what
 * the metadata says besides what all architectures have in common.
 *
 *     archs.c     the rows
 *     arch.c      keys common to all, and the reading functions for the rows' own hooks
 *     slots.c     the tensors: names and shapes, of which a row takes a set
 *
 * A new architecture that is made of known parts is one row; a new kind of attention or feed-forward is a
 * struct half with its forward function in a file of its own, and its slots and dims in the lists here. */
#ifndef COMPUTE_MODEL_ARCH_PRIV_H
#define COMPUTE_MODEL_ARCH_PRIV_H

#include "compute/model/model.h"
#include "compute/tensor/tensor.h"

/* ---- slots: the tensors of a layer ---- */

enum slot { /* vectors that are used as one (the biases of q, k and v) are neighbours */
            SLOT_ATTN_NORM,
            SLOT_Q,
            SLOT_K,
            SLOT_V,
            SLOT_QKV, /* the three in one */
            SLOT_Q_BIAS,
            SLOT_K_BIAS,
            SLOT_V_BIAS,
            SLOT_Q_NORM, /* of each head */
            SLOT_K_NORM,
            SLOT_Q_NORM_WIDE, /* of all heads together */
            SLOT_K_NORM_WIDE,
            SLOT_OUT,
            SLOT_OUT_BIAS,
            SLOT_POST_ATTN_NORM, /* of what attention gives, before it is added */
            SLOT_FFN_NORM,
            SLOT_GATE,
            SLOT_UP,
            SLOT_GATE_UP, /* the two in one */
            SLOT_DOWN,
            SLOT_POST_FFN_NORM,
            SLOT_ROUTER, /* experts: forward_moe.c */
            SLOT_CHOICE_BIAS,
            SLOT_GATE_EXPERTS,
            SLOT_UP_EXPERTS,
            SLOT_DOWN_EXPERTS,
            SLOT_GATE_SHARED,
            SLOT_UP_SHARED,
            SLOT_DOWN_SHARED,
            SLOT_Q_A, /* latent attention: forward_mla.c */
            SLOT_Q_A_NORM,
            SLOT_Q_B,
            SLOT_KV_A,
            SLOT_KV_A_NORM,
            SLOT_KV_B,
            SLOT_K_B, /* the two halves of it */
            SLOT_V_B,
            SLOT_OUT_VALUES,
            SLOT_SINKS, /* gpt-oss */
            SLOT_FFN_NORM_LATE,
            SLOT_ROUTER_BIAS,
            SLOT_GATE_EXPERTS_BIAS,
            SLOT_UP_EXPERTS_BIAS,
            SLOT_DOWN_EXPERTS_BIAS,
            N_SLOTS
};

typedef uint64_t slot_set;
#define SLOT_BIT(name) (UINT64_C(1) << SLOT_##name)

enum dim {           /* widths, as dim_of() computes them from the configuration */
           DIM_NONE, /* of a vector's rows */
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
           DIM_Q_LATENT,
           DIM_LATENT,
           DIM_LATENT_KEY,
           DIM_NOPE,
           DIM_VALUE,
           DIM_VALUES,
           DIM_KV_B
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
    N_GROUPS
};

struct slot_info {
    const char *suffix; /* after "blk.N.", or the whole name of a global tensor */
    enum dim rows;      /* DIM_NONE: a vector of cols */
    enum dim cols;
    enum dim count; /* DIM_NONE: one; else so many matrices lie one behind the other */
    enum group group;
    enum model_role role;
};

enum global { /* the tensors outside the layers */
              GLOBAL_EMBEDDING,
              GLOBAL_FINAL_NORM,
              GLOBAL_HEAD,
              GLOBAL_ROPE_FREQS,
              GLOBAL_ROPE_LONG,
              GLOBAL_ROPE_SHORT,
              N_GLOBALS
};

extern const struct slot_info SLOTS[N_SLOTS];
extern const struct slot_info GLOBALS[N_GLOBALS];
uint64_t dim_of(const struct model_config *config, enum dim dim);
const char *slot_name(uint32_t layer, enum slot slot, char out[64]);
bool global_is_required(enum global global);

/* ---- halves of a layer ---- */

struct model;
struct model_state;
struct layer;
struct forward;
struct carving;
struct loading;

struct half { /* one way to compute attention, or the feed-forward network */
    const char *name;
    slot_set needs, may; /* besides the architecture's own */
    enum group first;    /* of its groups that is multiplied; GROUP_NONE: not known beforehand */
    /* x += half(norm(x)), for all rows of the pass. */
    void (*forward)(struct forward *f, uint32_t layer);
    /* Carves the scratch it needs besides what state.c gives to all; NULL: none. */
    void (*lay_out)(const struct model *model, struct model_state *state, struct carving *carving);
    /* Binds tensors that no slot names; NULL: there are none. */
    int (*bind)(struct loading *load, uint32_t layer);
    bool (*knows)(const struct loading *load, struct bytes suffix); /* one of them, after "blk.N." */
    /* Packs its slots of GROUP_NONE that are not vectors; NULL: it has none. */
    int (*pack)(struct loading *load, uint32_t layer);
    void (*layer_fini)(struct layer *layer); /* NULL: nothing to free */
};

extern const struct half attn_grouped;       /* forward_attn.c: multi-head, grouped or multi-query */
extern const struct half attn_grouped_fused; /* its matrices in one tensor */
extern const struct half ffn_dense;          /* forward_ffn.c: gate, up, down */
extern const struct half ffn_dense_fused;    /* gate and up in one tensor */
extern const struct half attn_latent;        /* forward_mla.c: one latent for all heads' keys and values */
extern const struct half attn_latent_split;  /* with the matrix out of it in two */
extern const struct half attn_latent_q;      /* queries by way of a latent, too */
extern const struct half attn_latent_q_split;
extern const struct half ffn_moe;        /* forward_moe.c: a router and experts */
extern const struct half ffn_moe_shared; /* and experts that always run */
extern const struct half ffn_moe_loose;  /* a tensor for each expert, as old files have them */
extern const struct half ffn_moe_biased; /* with biases everywhere, and limits (gpt-oss) */

/* ---- rows ---- */

enum activation { ACT_SILU, ACT_GELU /* its tanh form */ };

struct reading;

struct arch {
    const char *name;
    enum rope_pairs pairs;
    enum activation activation;
    const struct half *attn, *ffn; /* of every layer, unless read says otherwise */
    slot_set needs, may;           /* of every layer, besides those of its halves; the rest is forbidden */
    bool has_windows;              /* heeds attention.sliding_window; else it is refused */
    uint32_t window_period;        /* of so many layers the last sees all; 0: each has the window */
    const char *const *keys;       /* suffixes of keys it heeds that others must not have; NULL-ended */
    /* Its own keys, and what layers differ in, after the common keys and windows.  May be NULL. */
    void (*read)(struct reading *r, struct model *model);
};

/* NULL past the last. */
const struct arch *arch_at(uint32_t index);
slot_set layer_needs(const struct model *model, uint32_t layer);
slot_set layer_may(const struct model *model, uint32_t layer); /* those needed are among them */

/* Fills config (but not weight_*, n_parameters), arch, rope_params and the layers' halves, windows and ropes
 * from the metadata.  All complaints about keys are in one fault. */
int arch_read(const struct gguf *gguf, uint32_t context_length, struct fault *fault, struct model *model);

/* ---- reading, for the rows' hooks; keys are named without the architecture ---- */

enum need { REQUIRED, OPTIONAL };

/* Leave *out as it is when the key is absent and optional, or wrong (which is complained about). */
void read_number(struct reading *r, const char *suffix, enum need need, const double bounds[2], double *out);
void read_count(struct reading *r, const char *suffix, enum need need, uint32_t max,
                uint32_t *out); /* >= 1 */
/* Layers with a window turn by angles of their own, unscaled and of this base. */
void use_local_rope(struct model *model, double freq_base);
/* The same for an optional count that may be 0. */
void read_whole(struct reading *r, const char *suffix, uint32_t max, uint32_t *out);
void read_flag(struct reading *r, const char *suffix, bool *out); /* optional */
__attribute__((format(printf, 3, 4))) void complain(struct reading *r, int code, const char *format, ...);
bool has_complaints(const struct reading *r);
const char *arch_name(const struct reading *r);
bool has_tensor(const struct reading *r, const char *name);

#endif
