/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: the tensors of a layer and those outside of the layers, with their shapes in terms of the configuration.
 * slots.c has their table. */
#ifndef COMPUTE_MODEL_SLOTS_PRIV_H
#define COMPUTE_MODEL_SLOTS_PRIV_H

#include "compute/model/model.h"

enum slot { /* vectors used as one (the biases of q, k and v) are neighbours; so are a LayerNorm's gain and bias */
            SLOT_ATTN_NORM,
            SLOT_ATTN_NORM_BIAS,
            SLOT_ATTN_NORM_2, /* attention's norm, if SLOT_ATTN_NORM is the feed-forward's (falcon) */
            SLOT_ATTN_NORM_2_BIAS,
            SLOT_Q,
            SLOT_K,
            SLOT_V,
            SLOT_QKV,       /* q, k and v in one tensor */
            SLOT_ATTN_GATE, /* behind them, of the same input */
            SLOT_HEAD_GATE, /* a number for each head (step35) */
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
            SLOT_GATE_BIAS,
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
            SLOT_INDEX_Q, /* sparse attention: forward_index.c */
            SLOT_INDEX_K,
            SLOT_INDEX_PROJ,
            SLOT_INDEX_K_NORM,
            SLOT_INDEX_K_NORM_BIAS,
            SLOT_SINKS, /* gpt-oss */
            SLOT_FFN_NORM_LATE,
            SLOT_ROUTER_BIAS,
            SLOT_GATE_EXPERTS_BIAS,
            SLOT_UP_EXPERTS_BIAS,
            SLOT_DOWN_EXPERTS_BIAS,
            SLOT_GATE_UP_EXPERTS_BIAS,
            SLOT_CONV_IN, /* short convolution: forward_conv.c */
            SLOT_CONV_TAPS,
            SLOT_CONV_OUT,
            SLOT_Q_GATED, /* each head's query, then its gate: forward_attn.c */
            SLOT_KDA_Q,   /* Kimi's delta net: forward_kda.c; beta and the norm are those of the following */
            SLOT_KDA_K,
            SLOT_KDA_V,
            SLOT_KDA_FADE_A,
            SLOT_KDA_GATE_A,
            SLOT_KDA_FADE_B,
            SLOT_KDA_GATE_B,
            SLOT_KDA_TAPS_Q,
            SLOT_KDA_TAPS_K,
            SLOT_KDA_TAPS_V,
            SLOT_KDA_TIME_BIAS,
            SLOT_KDA_OUT,
            SLOT_DELTA_QKV, /* gated delta net: forward_delta.c */
            SLOT_DELTA_Z,
            SLOT_DELTA_BETA,
            SLOT_DELTA_ALPHA,
            SLOT_DELTA_BETA_ALPHA, /* both, by groups of heads (qwen3next) */
            SLOT_DELTA_TAPS,
            SLOT_DELTA_TIME_BIAS,
            SLOT_DELTA_DECAY,
            SLOT_DELTA_NORM,
            SLOT_DELTA_OUT,
            SLOT_MAMBA_IN, /* Mamba 2: forward_mamba.c; taps and time bias are those above */
            SLOT_MAMBA_CONV_BIAS,
            SLOT_MAMBA_DECAY,
            SLOT_MAMBA_SKIP,
            SLOT_MAMBA_NORM,
            SLOT_MAMBA_OUT,
            SLOT_INPUT_GATE, /* embeddings for each layer: forward_tail.c */
            SLOT_INPUT_PROJ,
            SLOT_INPUT_NORM,
            SLOT_LAYER_SCALE,
            SLOT_ROUTER_SCALE, /* experts beside a dense network: forward_beside.c */
            SLOT_FFN_NORM_2,
            SLOT_POST_FFN_NORM_1,
            SLOT_POST_FFN_NORM_2,
            SLOT_GATE_UP_EXPERTS,
            SLOT_EXPERT_SCALE,
            SLOT_LATENT_DOWN, /* into and out of the narrow rows of experts: forward_moe.c */
            SLOT_LATENT_UP,
            SLOT_ALTUP_ROUTER, /* several streams: forward_altup.c */
            SLOT_ALTUP_ROUTER_NORM,
            SLOT_ALTUP_PREDICT,
            SLOT_ALTUP_CORRECT,
            SLOT_ALTUP_SCALE,
            SLOT_LAUREL_LEFT,
            SLOT_LAUREL_RIGHT,
            SLOT_LAUREL_NORM,
            SLOT_MTP_PROJ, /* MTP heads: mtp.c */
            SLOT_MTP_TOKEN_NORM,
            SLOT_MTP_HIDDEN_NORM,
            SLOT_MTP_LAST_NORM,
            SLOT_MTP_LAYER_NORM, /* the same by another name (bailingmoe2) */
            N_SLOTS
};

_Static_assert(N_SLOTS <= 128, "a bit for each slot");
typedef unsigned __int128 slot_set; /* more slots than a word has bits */
#define SLOT_BIT(name) ((slot_set)1 << SLOT_##name)

enum dim {           /* widths, which dim_of() computes from the configuration */
           DIM_NONE, /* rows of a vector */
           DIM_HIDDEN,
           DIM_Q,
           DIM_KV,
           DIM_KV_VALUES,
           DIM_QKV,
           DIM_HEAD,
           DIM_FFN,
           DIM_2_FFN,
           DIM_VOCAB,
           DIM_ROPE_PAIRS,
           DIM_EXPERTS,
           DIM_EXPERT_FFN,
           DIM_SHARED_FFN,
           DIM_EXPERT_IO,
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
           DIM_INDEX,
           DIM_INDEX_HEADS,
           DIM_INDEX_Q,
           DIM_2_HIDDEN,
           DIM_3_HIDDEN,
           DIM_CONV_TAPS,
           DIM_2_Q,
           DIM_DELTA_QKV,
           DIM_DELTA_VALUES,
           DIM_DELTA_HEADS,
           DIM_2_DELTA_HEADS,
           DIM_DELTA_VALUE,
           DIM_DELTA_KEY_HEADS,
           DIM_MAMBA_IN,
           DIM_MAMBA_GROUP,
           DIM_STREAMS,
           DIM_STREAMS_SQUARED,
           DIM_OTHER_STREAMS,
           DIM_LAUREL,
           DIM_2_EXPERT_FFN,
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
    GROUP_LATENT_DOWN,
    GROUP_LATENT_UP,
    GROUP_Q_B,
    GROUP_KDA_FADE,
    GROUP_KDA_GATE,
    GROUP_INDEX_LOW,
    GROUP_INDEX_Q,
    GROUP_MAMBA_IN,
    GROUP_MAMBA_OUT,
    GROUP_ALTUP_ROUTER,
    GROUP_LAUREL_LEFT,
    GROUP_LAUREL_RIGHT,
    GROUP_INPUT_GATE,
    GROUP_INPUT_PROJ,
    GROUP_MTP,
    N_GROUPS
};

struct slot_info {
    const char *suffix; /* after "blk.N.", or the whole name of a global tensor */
    enum dim rows;      /* DIM_NONE: a vector of cols */
    enum dim cols;
    enum dim count; /* DIM_NONE: one matrix; else this many, one after another */
    enum group group;
    enum model_role role;
    const char *alias; /* another suffix that files may have; NULL: none */
};

enum global { /* tensors outside the layers */
              GLOBAL_EMBEDDING,
              GLOBAL_FINAL_NORM,
              GLOBAL_HEAD,
              GLOBAL_ROPE_FREQS,
              GLOBAL_ROPE_LONG,
              GLOBAL_ROPE_SHORT,
              GLOBAL_FINAL_NORM_BIAS, /* the following only if the architecture's row names them */
              GLOBAL_HEAD_BIAS,
              GLOBAL_POSITIONS,       /* learned embeddings of positions */
              GLOBAL_FINAL_NORM_LFM2, /* the final norm under another name */
              GLOBAL_INPUTS,          /* embeddings for each layer: forward_tail.c */
              GLOBAL_INPUTS_PROJ,
              GLOBAL_INPUTS_NORM,
              GLOBAL_ALTUP_IN, /* several streams: forward_altup.c */
              GLOBAL_ALTUP_OUT,
              N_GLOBALS
};

extern const struct slot_info SLOTS[N_SLOTS];
extern const struct slot_info GLOBALS[N_GLOBALS];
/* True if the tensor is kept as floats: one vector, or one for each head or channel. */
bool slot_is_vector(const struct slot_info *info);
uint64_t dim_of(const struct model_config *config, enum dim dim);
const char *slot_name(uint32_t layer, enum slot slot, char out[64]);

#endif
