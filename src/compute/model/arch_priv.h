/* SPDX-License-Identifier: Apache-2.0 */
/* An architecture is a table row: the tensors of a layer, the functions that compute its two halves, and
 * the metadata keys that only this architecture has.
 *
 *    archs*.c    the rows
 *    arch.c      keys common to all architectures; reading functions for the rows' hooks
 *    slots.c     the tensors: names and shapes, of which each row uses a set
 *
 * A new architecture made of known parts is one row. A new kind of attention or feed-forward is a struct
 * half, its forward function in a new file, and its slots and dims in the lists below.
 * How to change it: docs/changes-worker.md, "A model family (architecture)". */
#ifndef COMPUTE_MODEL_ARCH_PRIV_H
#define COMPUTE_MODEL_ARCH_PRIV_H

#include "compute/model/model.h"
#include "compute/model/slots_priv.h"
#include "compute/tensor/tensor.h"

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
    slot_set usual;      /* slots that a file may lack, and programs write */
    enum group first;    /* the group that is multiplied first; GROUP_NONE: not known in advance */
    /* x += half(norm(x)), for all rows of the pass. */
    void (*forward)(struct forward *f, uint32_t layer);
    /* Reserves the scratch that this half needs in addition to state.c's; NULL: none. */
    void (*lay_out)(const struct model *model, struct model_state *state, struct carving *carving);
    /* Binds tensors that no slot names; NULL: there are none. Returns a negative code on failure. */
    int (*bind)(struct loading *load, uint32_t layer);
    /* True if suffix (after "blk.N.") names a tensor that bind uses, or one that the half may ignore. */
    bool (*knows)(const struct loading *load, struct bytes suffix);
    /* Packs the half's matrices in GROUP_NONE; NULL: it has none. */
    int (*pack)(struct loading *load, uint32_t layer);
    void (*layer_fini)(struct layer *layer); /* NULL: nothing to free */
    bool is_keyless;                         /* stores no keys and values */
    bool has_gates;                          /* of attention: rows of gates behind q, k and v */
    /* Bytes of recurrent state of a layer with this half of attention; NULL: it has none. */
    size_t (*state_bytes)(const struct model_config *config);
};

extern const struct half attn_grouped;        /* forward_attn.c: multi-head, grouped or multi-query */
extern const struct half attn_grouped_fused;  /* its matrices in one tensor */
extern const struct half attn_grouped_biased; /* with biases on all matrices */
extern const struct half attn_grouped_fused_biased;
extern const struct half attn_grouped_normed;     /* with norms on the heads of q and k */
extern const struct half attn_gated;              /* and a gate for each number of its output */
extern const struct half attn_grouped_head_gated; /* and a gate for each head */
extern const struct half attn_grouped_gated;      /* its gates in a tensor of their own */
extern const struct half attn_conv;               /* forward_conv.c: a gated short convolution */
extern const struct half attn_delta_grouped;      /* with beta and alpha in one tensor, by groups */
extern const struct half attn_mamba;              /* forward_mamba.c: Mamba 2 */
extern const struct half attn_mamba_beside;       /* grouped attention and Mamba 2 side by side */
extern const struct half attn_none, ffn_none;     /* a layer of one half only */
extern const struct half attn_delta;              /* forward_delta.c: a gated delta net */
extern const struct half attn_kda;                /* forward_kda.c: one that fades by keys (kimi-linear) */
extern const struct half attn_values_normed;      /* values are normed, too */
extern const struct half attn_values_may; /* without a matrix of their own they are the keys before norm */
extern const struct half attn_shared;     /* reads the KV of an earlier layer */
extern const struct half tail_scale;      /* forward_tail.c: a layer's end, after its halves */
extern const struct half tail_inputs;
extern const struct half attn_altup, attn_altup_shared, tail_altup; /* forward_altup.c */
extern const struct half ffn_dense;                                 /* forward_ffn.c: gate, up, down */
extern const struct half ffn_dense_may;                             /* may have biases */
extern const struct half ffn_dense_fused;                           /* gate and up in one tensor */
extern const struct half ffn_plain; /* forward_plain.c: up and down, without a gate */
extern const struct half ffn_plain_biased;
extern const struct half ffn_plain_may;     /* may have biases */
extern const struct half attn_latent;       /* forward_mla.c: one latent holds keys and values of all heads */
extern const struct half attn_latent_split; /* with the up-projection stored in two tensors */
extern const struct half attn_latent_q;     /* queries also go through a latent */
extern const struct half attn_latent_q_split;
extern const struct half attn_latent_index; /* and an indexer chooses keys: forward_index.c */
extern const struct half attn_latent_index_split;
extern const struct half attn_latent_shared; /* attends to the keys that an earlier layer chose */
extern const struct half attn_latent_shared_split;
extern const struct half ffn_moe;              /* forward_moe.c: a router and experts */
extern const struct half ffn_moe_unbiased;     /* without a bias of the choice (phimoe) */
extern const struct half ffn_moe_shared;       /* plus experts that always run */
extern const struct half ffn_moe_shared_gated; /* which a gate weighs (qwen2moe) */
extern const struct half ffn_moe_beside;       /* forward_beside.c: beside a dense network */
extern const struct half ffn_moe_plain;        /* without gates (nemotron_h_moe) */
extern const struct half ffn_moe_plain_latent; /* and rows narrower than the model's */
extern const struct half ffn_moe_loose;        /* one tensor per expert, as in old files */
extern const struct half ffn_moe_biased;       /* with biases on all matrices, and limits (gpt-oss) */

/* ---- rows ---- */

/* Activations; forward_ffn.c has the functions of each. */
enum activation {
    ACT_SILU,
    ACT_GELU /* GELU's tanh form */,
    ACT_GELU_EXACT,
    ACT_RELU_SQUARED,
    ACT_XIELU, /* forward_plain.c; each layer has its own numbers */
    N_ACTIVATIONS
};
struct xielu { /* x > 0: up x^2 + beta x; else down (e^min(x, most) - 1 - x) + beta x */
    float up, down, beta, most;
};
typedef void (*plain_act)(const struct kern_table *table, float *x, uint32_t n); /* x = act(x) */
enum norm {
    NORM_RMS,
    NORM_LAYER,
    NORM_LAYER_PLAIN, /* LayerNorm without gains and biases */
    NORM_BY_KEY       /* RMS norm if the file has its epsilon, else LayerNorm */
};

struct reading;

struct arch {
    const char *name;
    enum rope_pairs pairs;
    enum activation activation;
    enum norm norm;                /* of halves, heads and the final one */
    const char *eps;               /* the key of its epsilon; NULL: the usual one of its kind */
    bool is_parallel;              /* both halves of a layer read the same x: x += attention + feed-forward */
    const struct half *attn, *ffn; /* of every layer, unless read sets others */
    slot_set needs, may; /* slots of every layer in addition to its halves'; all other slots are refused */
    slot_set usual;      /* slots that a file may lack, and programs write */
    uint32_t globals;    /* GLOBAL_BIT()s that a file must have besides the usual ones */
    bool norms_turned;   /* norms of heads run after RoPE, not before it */
    bool has_mtp;        /* layers behind the last are MTP heads as mtp.c computes them */
    bool mtp_is_first;   /* a head is like the first layer, and dense; else like the last */
    bool
        mtp_is_listed; /* lists of the file have an item for a head's layer; without one, heads are left out */
    bool mtp_reads_raw; /* a head reads rows before the last norm, and gives its own before that norm */
    bool
        mtp_sees_all; /* a head attends to all keys, with the model's RoPE; its other half is the last layer's */
    bool has_shapes;         /* layers may differ in shape: some keys may be lists */
    bool has_windows;        /* uses attention.sliding_window; else that key is refused */
    uint32_t window_period;  /* each period's last layer attends to all keys; 0: all have the window */
    uint32_t window_default; /* of files without the key; 0: no window */
    const char *const *keys; /* key suffixes that only this architecture may have; NULL-terminated */
    /* Reads the architecture's own keys and sets differences between layers. Runs after the common keys
     * and windows. May be NULL. */
    void (*read)(struct reading *r, struct model *model);
};

#define GLOBAL_BIT(name) (UINT32_C(1) << GLOBAL_##name)
bool global_is_required(const struct model *model, enum global global);
bool global_is_allowed(const struct model *model, enum global global);

/* Sets of slots, for the rows. */
#define PRE_NORMS   (SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM))
#define POST_NORMS  (SLOT_BIT(POST_ATTN_NORM) | SLOT_BIT(POST_FFN_NORM))
#define QKV_BIASES  (SLOT_BIT(Q_BIAS) | SLOT_BIT(K_BIAS) | SLOT_BIT(V_BIAS))
#define ATTN_BIASES (QKV_BIASES | SLOT_BIT(OUT_BIAS))
#define HEAD_NORMS  (SLOT_BIT(Q_NORM) | SLOT_BIT(K_NORM))
#define WIDE_NORMS  (SLOT_BIT(Q_NORM_WIDE) | SLOT_BIT(K_NORM_WIDE))

/* archs_experts.c: architectures with experts. */
extern const struct arch EXPERT_ARCHS[];
extern const uint32_t N_EXPERT_ARCHS;
/* archs_latent.c: architectures with latent attention. */
extern const struct arch LATENT_ARCHS[];
extern const uint32_t N_LATENT_ARCHS;
/* archs_hybrid.c: architectures with recurrent layers. */
extern const struct arch HYBRID_ARCHS[];
extern const uint32_t N_HYBRID_ARCHS;
/* archs_norm.c: architectures with LayerNorm. */
extern const struct arch NORM_ARCHS[];
extern const uint32_t N_NORM_ARCHS;
/* NULL past the last row. */
const struct arch *arch_at(uint32_t index);
/* The configuration with a layer's own shape. */
struct model_config layer_config(const struct model *model, uint32_t layer);
slot_set layer_needs(const struct model *model, uint32_t layer);
slot_set layer_usual(const struct model *model, uint32_t layer); /* includes the needed slots */
slot_set layer_may(const struct model *model, uint32_t layer);   /* includes the usual slots */

/* Fills config (except weight_* and n_parameters), arch, rope_params and the layers' halves, windows and
 * ropes from the metadata. One fault lists all complaints about keys. */
int arch_read(const struct gguf *gguf, uint32_t context_length, struct fault *fault, struct model *model);

#include "compute/model/reading_priv.h" /* needs the types above */

#endif
