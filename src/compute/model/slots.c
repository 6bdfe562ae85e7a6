/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model: their names in a file, their shapes in terms of the configuration, and their
 * roles.
 *
 * Loading (weights.c) binds them and `baton-model make` writes them, both from this table. The
 * architecture and its halves (archs.c) decide which of them a layer has. */
#include "compute/model/model_priv.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

#define VECTOR(name, width, role)                                                                            \
    {                                                                                                        \
        name, DIM_NONE, width, DIM_NONE, GROUP_NONE, role, NULL                                              \
    }
#define MATRIX(name, rows, cols, group, role)                                                                \
    {                                                                                                        \
        name, rows, cols, DIM_NONE, group, role, NULL                                                        \
    }

#define MATRICES(name, rows, cols, count, role) /* one after another */                                      \
    {                                                                                                        \
        name, rows, cols, count, GROUP_NONE, role, NULL                                                      \
    }

const struct slot_info SLOTS[N_SLOTS] = {
    [SLOT_ATTN_NORM] = VECTOR("attn_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_ATTN_NORM_BIAS] = VECTOR("attn_norm.bias", DIM_HIDDEN, MODEL_BIAS),
    [SLOT_ATTN_NORM_2] = VECTOR("attn_norm_2.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_ATTN_NORM_2_BIAS] = VECTOR("attn_norm_2.bias", DIM_HIDDEN, MODEL_BIAS),
    [SLOT_Q] = MATRIX("attn_q.weight", DIM_Q, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_K] = MATRIX("attn_k.weight", DIM_KV, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_V] = MATRIX("attn_v.weight", DIM_KV_VALUES, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_QKV] = MATRIX("attn_qkv.weight", DIM_QKV, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_HEAD_GATE] = MATRIX("attn_gate.weight", DIM_HEADS, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_ATTN_GATE] = MATRIX("attn_gate.weight", DIM_Q, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_Q_BIAS] = VECTOR("attn_q.bias", DIM_Q, MODEL_BIAS),
    [SLOT_K_BIAS] = VECTOR("attn_k.bias", DIM_KV, MODEL_BIAS),
    [SLOT_V_BIAS] = VECTOR("attn_v.bias", DIM_KV_VALUES, MODEL_BIAS),
    [SLOT_QKV_BIAS] = VECTOR("attn_qkv.bias", DIM_QKV, MODEL_BIAS),
    [SLOT_Q_NORM] = VECTOR("attn_q_norm.weight", DIM_HEAD, MODEL_NORM),
    [SLOT_K_NORM] = VECTOR("attn_k_norm.weight", DIM_HEAD, MODEL_NORM),
    [SLOT_Q_NORM_WIDE] = VECTOR("attn_q_norm.weight", DIM_Q, MODEL_NORM),
    [SLOT_K_NORM_WIDE] = VECTOR("attn_k_norm.weight", DIM_KV, MODEL_NORM),
    [SLOT_Q_NORM_HEADS] = MATRIX("attn_q_norm.weight", DIM_HEADS, DIM_HEAD, GROUP_NONE, MODEL_NORM),
    [SLOT_K_NORM_HEADS] = MATRIX("attn_k_norm.weight", DIM_KV_HEADS, DIM_HEAD, GROUP_NONE, MODEL_NORM),
    [SLOT_OUT] = MATRIX("attn_output.weight", DIM_HIDDEN, DIM_VALUES, GROUP_OUT, MODEL_WRITER),
    [SLOT_OUT_BIAS] = VECTOR("attn_output.bias", DIM_HIDDEN, MODEL_BIAS),
    [SLOT_POST_ATTN_NORM] = VECTOR("post_attention_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_FFN_NORM] = VECTOR("ffn_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_FFN_NORM_BIAS] = VECTOR("ffn_norm.bias", DIM_HIDDEN, MODEL_BIAS),
    [SLOT_GATE] = MATRIX("ffn_gate.weight", DIM_FFN, DIM_HIDDEN, GROUP_GATE_UP, MODEL_MATRIX),
    [SLOT_UP] = MATRIX("ffn_up.weight", DIM_FFN, DIM_HIDDEN, GROUP_GATE_UP, MODEL_MATRIX),
    [SLOT_GATE_UP] = MATRIX("ffn_up.weight", DIM_2_FFN, DIM_HIDDEN, GROUP_GATE_UP, MODEL_MATRIX),
    [SLOT_DOWN] = MATRIX("ffn_down.weight", DIM_HIDDEN, DIM_FFN, GROUP_DOWN, MODEL_WRITER),
    [SLOT_GATE_BIAS] = VECTOR("ffn_gate.bias", DIM_FFN, MODEL_BIAS),
    [SLOT_UP_BIAS] = VECTOR("ffn_up.bias", DIM_FFN, MODEL_BIAS),
    [SLOT_DOWN_BIAS] = VECTOR("ffn_down.bias", DIM_HIDDEN, MODEL_BIAS),
    [SLOT_POST_FFN_NORM] = VECTOR("post_ffw_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_Q_A] = MATRIX("attn_q_a.weight", DIM_Q_LATENT, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_Q_A_NORM] = VECTOR("attn_q_a_norm.weight", DIM_Q_LATENT, MODEL_NORM),
    [SLOT_Q_B] = MATRIX("attn_q_b.weight", DIM_Q, DIM_Q_LATENT, GROUP_Q_B, MODEL_MATRIX),
    [SLOT_KV_A] = MATRIX("attn_kv_a_mqa.weight", DIM_LATENT_KEY, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_KV_A_NORM] = VECTOR("attn_kv_a_norm.weight", DIM_LATENT, MODEL_NORM),
    [SLOT_KV_B] = MATRIX("attn_kv_b.weight", DIM_KV_B, DIM_LATENT, GROUP_NONE, MODEL_MATRIX),
    [SLOT_K_B] = MATRICES("attn_k_b.weight", DIM_LATENT, DIM_NOPE, DIM_HEADS, MODEL_MATRIX),
    [SLOT_V_B] = MATRICES("attn_v_b.weight", DIM_VALUE, DIM_LATENT, DIM_HEADS, MODEL_MATRIX),
    [SLOT_OUT_VALUES] = MATRIX("attn_output.weight", DIM_HIDDEN, DIM_VALUES, GROUP_OUT, MODEL_WRITER),
    [SLOT_INDEX_Q] =
        MATRIX("indexer.attn_q_b.weight", DIM_INDEX_Q, DIM_Q_LATENT, GROUP_INDEX_Q, MODEL_MATRIX),
    [SLOT_INDEX_K] = MATRIX("indexer.attn_k.weight", DIM_INDEX, DIM_HIDDEN, GROUP_INDEX_LOW, MODEL_MATRIX),
    [SLOT_INDEX_PROJ] =
        MATRIX("indexer.proj.weight", DIM_INDEX_HEADS, DIM_HIDDEN, GROUP_INDEX_LOW, MODEL_MATRIX),
    [SLOT_INDEX_K_NORM] = VECTOR("indexer.k_norm.weight", DIM_INDEX, MODEL_NORM),
    [SLOT_INDEX_K_NORM_BIAS] = VECTOR("indexer.k_norm.bias", DIM_INDEX, MODEL_BIAS),
    [SLOT_SINKS] = VECTOR("attn_sinks.weight", DIM_HEADS, MODEL_BIAS),
    [SLOT_FFN_NORM_LATE] = VECTOR("post_attention_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_ROUTER_BIAS] = VECTOR("ffn_gate_inp.bias", DIM_EXPERTS, MODEL_BIAS),
    [SLOT_GATE_EXPERTS_BIAS] =
        MATRIX("ffn_gate_exps.bias", DIM_EXPERTS, DIM_EXPERT_FFN, GROUP_NONE, MODEL_BIAS),
    [SLOT_UP_EXPERTS_BIAS] = MATRIX("ffn_up_exps.bias", DIM_EXPERTS, DIM_EXPERT_FFN, GROUP_NONE, MODEL_BIAS),
    [SLOT_DOWN_EXPERTS_BIAS] = MATRIX("ffn_down_exps.bias", DIM_EXPERTS, DIM_HIDDEN, GROUP_NONE, MODEL_BIAS),
    [SLOT_GATE_UP_EXPERTS_BIAS] =
        MATRIX("ffn_gate_up_exps.bias", DIM_EXPERTS, DIM_2_EXPERT_FFN, GROUP_NONE, MODEL_BIAS),
    [SLOT_ROUTER] = MATRIX("ffn_gate_inp.weight", DIM_EXPERTS, DIM_HIDDEN, GROUP_ROUTER, MODEL_MATRIX),
    [SLOT_CHOICE_BIAS] = {.suffix = "exp_probs_b.bias",
                          .cols = DIM_EXPERTS,
                          .role = MODEL_BIAS,
                          .alias = "exp_probs_b"}, /* hy_v3 */
    [SLOT_GATE_EXPERTS] =
        MATRICES("ffn_gate_exps.weight", DIM_EXPERT_FFN, DIM_EXPERT_IO, DIM_EXPERTS, MODEL_MATRIX),
    [SLOT_UP_EXPERTS] =
        MATRICES("ffn_up_exps.weight", DIM_EXPERT_FFN, DIM_EXPERT_IO, DIM_EXPERTS, MODEL_MATRIX),
    [SLOT_DOWN_EXPERTS] =
        MATRICES("ffn_down_exps.weight", DIM_EXPERT_IO, DIM_EXPERT_FFN, DIM_EXPERTS, MODEL_WRITER),
    [SLOT_GATE_SHARED] =
        MATRIX("ffn_gate_shexp.weight", DIM_SHARED_FFN, DIM_HIDDEN, GROUP_GATE_UP, MODEL_MATRIX),
    [SLOT_UP_SHARED] = MATRIX("ffn_up_shexp.weight", DIM_SHARED_FFN, DIM_HIDDEN, GROUP_GATE_UP, MODEL_MATRIX),
    [SLOT_SHARED_GATE] = VECTOR("ffn_gate_inp_shexp.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_DOWN_SHARED] =
        MATRIX("ffn_down_shexp.weight", DIM_HIDDEN, DIM_SHARED_FFN, GROUP_DOWN, MODEL_WRITER),
    [SLOT_CONV_IN] = MATRIX("shortconv.in_proj.weight", DIM_3_HIDDEN, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_CONV_TAPS] = MATRIX("shortconv.conv.weight", DIM_HIDDEN, DIM_CONV_TAPS, GROUP_NONE, MODEL_NORM),
    [SLOT_Q_GATED] = MATRIX("attn_q.weight", DIM_2_Q, DIM_HIDDEN, GROUP_NONE, MODEL_MATRIX),
    [SLOT_KDA_Q] = MATRIX("attn_q.weight", DIM_DELTA_VALUES, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_KDA_K] = MATRIX("attn_k.weight", DIM_DELTA_VALUES, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_KDA_V] = MATRIX("attn_v.weight", DIM_DELTA_VALUES, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_KDA_FADE_A] = MATRIX("ssm_f_a.weight", DIM_DELTA_VALUE, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_KDA_GATE_A] = MATRIX("ssm_g_a.weight", DIM_DELTA_VALUE, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_KDA_FADE_B] =
        MATRIX("ssm_f_b.weight", DIM_DELTA_VALUES, DIM_DELTA_VALUE, GROUP_KDA_FADE, MODEL_MATRIX),
    [SLOT_KDA_GATE_B] =
        MATRIX("ssm_g_b.weight", DIM_DELTA_VALUES, DIM_DELTA_VALUE, GROUP_KDA_GATE, MODEL_MATRIX),
    [SLOT_KDA_TAPS_Q] = MATRICES("ssm_conv1d_q.weight", DIM_ONE, DIM_CONV_TAPS, DIM_DELTA_VALUES, MODEL_NORM),
    [SLOT_KDA_TAPS_K] = MATRICES("ssm_conv1d_k.weight", DIM_ONE, DIM_CONV_TAPS, DIM_DELTA_VALUES, MODEL_NORM),
    [SLOT_KDA_TAPS_V] = MATRICES("ssm_conv1d_v.weight", DIM_ONE, DIM_CONV_TAPS, DIM_DELTA_VALUES, MODEL_NORM),
    [SLOT_KDA_TIME_BIAS] = VECTOR("ssm_dt.bias", DIM_DELTA_VALUES, MODEL_NORM),
    [SLOT_KDA_OUT] = MATRIX("attn_output.weight", DIM_HIDDEN, DIM_DELTA_VALUES, GROUP_OUT, MODEL_WRITER),
    [SLOT_DELTA_QKV] = MATRIX("attn_qkv.weight", DIM_DELTA_QKV, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_DELTA_Z] = MATRIX("attn_gate.weight", DIM_DELTA_VALUES, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_DELTA_BETA] = MATRIX("ssm_beta.weight", DIM_DELTA_HEADS, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_DELTA_ALPHA] = MATRIX("ssm_alpha.weight", DIM_DELTA_HEADS, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_DELTA_BETA_ALPHA] = MATRIX("ssm_ba.weight", DIM_2_DELTA_HEADS, DIM_HIDDEN, GROUP_QKV, MODEL_MATRIX),
    [SLOT_DELTA_TAPS] = MATRIX("ssm_conv1d.weight", DIM_DELTA_QKV, DIM_CONV_TAPS, GROUP_NONE, MODEL_NORM),
    [SLOT_DELTA_TIME_BIAS] = VECTOR("ssm_dt.bias", DIM_DELTA_HEADS, MODEL_NORM),
    [SLOT_DELTA_DECAY] = VECTOR("ssm_a", DIM_DELTA_HEADS, MODEL_DECAY),
    [SLOT_DELTA_NORM] = VECTOR("ssm_norm.weight", DIM_DELTA_VALUE, MODEL_NORM),
    [SLOT_DELTA_OUT] = MATRIX("ssm_out.weight", DIM_HIDDEN, DIM_DELTA_VALUES, GROUP_OUT, MODEL_WRITER),
    [SLOT_CONV_OUT] = MATRIX("shortconv.out_proj.weight", DIM_HIDDEN, DIM_HIDDEN, GROUP_OUT, MODEL_WRITER),
    [SLOT_MAMBA_IN] = MATRIX("ssm_in.weight", DIM_MAMBA_IN, DIM_HIDDEN, GROUP_MAMBA_IN, MODEL_MATRIX),
    [SLOT_MAMBA_CONV_BIAS] = VECTOR("ssm_conv1d.bias", DIM_DELTA_QKV, MODEL_BIAS),
    [SLOT_MAMBA_DECAY] = MATRIX("ssm_a", DIM_DELTA_HEADS, DIM_ONE, GROUP_NONE, MODEL_DECAY),
    [SLOT_MAMBA_SKIP] = MATRIX("ssm_d", DIM_DELTA_HEADS, DIM_ONE, GROUP_NONE, MODEL_NORM),
    [SLOT_MAMBA_NORM] =
        MATRIX("ssm_norm.weight", DIM_DELTA_KEY_HEADS, DIM_MAMBA_GROUP, GROUP_NONE, MODEL_NORM),
    [SLOT_MAMBA_OUT] = MATRIX("ssm_out.weight", DIM_HIDDEN, DIM_DELTA_VALUES, GROUP_MAMBA_OUT, MODEL_WRITER),
    [SLOT_INPUT_GATE] = MATRIX("inp_gate.weight", DIM_INPUT, DIM_HIDDEN, GROUP_INPUT_GATE, MODEL_MATRIX),
    [SLOT_INPUT_PROJ] = MATRIX("proj.weight", DIM_HIDDEN, DIM_INPUT, GROUP_INPUT_PROJ, MODEL_WRITER),
    [SLOT_INPUT_NORM] = VECTOR("post_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_ALTUP_ROUTER] =
        MATRIX("altup_router.weight", DIM_STREAMS, DIM_HIDDEN, GROUP_ALTUP_ROUTER, MODEL_MATRIX),
    [SLOT_ALTUP_ROUTER_NORM] = VECTOR("altup_router_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_ALTUP_PREDICT] =
        MATRIX("altup_predict_coef.weight", DIM_STREAMS_SQUARED, DIM_STREAMS, GROUP_NONE, MODEL_NORM),
    [SLOT_ALTUP_CORRECT] =
        MATRIX("altup_correct_coef.weight", DIM_STREAMS, DIM_STREAMS, GROUP_NONE, MODEL_NORM),
    [SLOT_ALTUP_SCALE] = VECTOR("altup_correct_scale.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_LAUREL_LEFT] = MATRIX("laurel_l.weight", DIM_LAUREL, DIM_HIDDEN, GROUP_LAUREL_LEFT, MODEL_MATRIX),
    [SLOT_LAUREL_RIGHT] = MATRIX("laurel_r.weight", DIM_HIDDEN, DIM_LAUREL, GROUP_LAUREL_RIGHT, MODEL_MATRIX),
    [SLOT_LAUREL_NORM] = VECTOR("laurel_post_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_MTP_PROJ] = MATRIX("nextn.eh_proj.weight", DIM_HIDDEN, DIM_2_HIDDEN, GROUP_MTP, MODEL_MATRIX),
    [SLOT_MTP_TOKEN_NORM] = VECTOR("nextn.enorm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_MTP_HIDDEN_NORM] = VECTOR("nextn.hnorm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_MTP_LAST_NORM] = VECTOR("nextn.shared_head_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_MTP_LAYER_NORM] = VECTOR("layer_output_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_ROUTER_SCALE] = VECTOR("ffn_gate_inp.scale", DIM_HIDDEN, MODEL_NORM),
    [SLOT_FFN_NORM_2] = VECTOR("pre_ffw_norm_2.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_POST_FFN_NORM_1] = VECTOR("post_ffw_norm_1.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_POST_FFN_NORM_2] = VECTOR("post_ffw_norm_2.weight", DIM_HIDDEN, MODEL_NORM),
    [SLOT_GATE_UP_EXPERTS] =
        MATRICES("ffn_gate_up_exps.weight", DIM_2_EXPERT_FFN, DIM_HIDDEN, DIM_EXPERTS, MODEL_MATRIX),
    [SLOT_LATENT_DOWN] =
        MATRIX("ffn_latent_down.weight", DIM_EXPERT_IO, DIM_HIDDEN, GROUP_LATENT_DOWN, MODEL_MATRIX),
    [SLOT_LATENT_UP] =
        MATRIX("ffn_latent_up.weight", DIM_HIDDEN, DIM_EXPERT_IO, GROUP_LATENT_UP, MODEL_WRITER),
    [SLOT_EXPERT_SCALE] = VECTOR("ffn_down_exps.scale", DIM_EXPERTS, MODEL_NORM),
    [SLOT_LAYER_SCALE] = VECTOR("layer_output_scale.weight", DIM_ONE, MODEL_NORM),
};

const struct slot_info GLOBALS[N_GLOBALS] = {
    [GLOBAL_EMBEDDING] = MATRIX("token_embd.weight", DIM_VOCAB, DIM_HIDDEN, GROUP_NONE, MODEL_EMBEDDING),
    [GLOBAL_FINAL_NORM] = VECTOR("output_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [GLOBAL_HEAD] = MATRIX("output.weight", DIM_VOCAB, DIM_HIDDEN, GROUP_NONE, MODEL_HEAD),
    [GLOBAL_ROPE_FREQS] = VECTOR("rope_freqs.weight", DIM_ROPE_PAIRS, MODEL_ROPE_FACTORS),
    [GLOBAL_ROPE_LONG] = VECTOR("rope_factors_long.weight", DIM_ROPE_PAIRS, MODEL_ROPE_FACTORS),
    [GLOBAL_ROPE_SHORT] = VECTOR("rope_factors_short.weight", DIM_ROPE_PAIRS, MODEL_ROPE_FACTORS),
    [GLOBAL_FINAL_NORM_BIAS] = VECTOR("output_norm.bias", DIM_HIDDEN, MODEL_BIAS),
    [GLOBAL_HEAD_BIAS] = VECTOR("output.bias", DIM_VOCAB, MODEL_BIAS),
    [GLOBAL_POSITIONS] =
        MATRIX("position_embd.weight", DIM_POSITIONS, DIM_HIDDEN, GROUP_NONE, MODEL_EMBEDDING),
    [GLOBAL_FINAL_NORM_LFM2] = VECTOR("token_embd_norm.weight", DIM_HIDDEN, MODEL_NORM),
    [GLOBAL_INPUTS] =
        MATRIX("per_layer_token_embd.weight", DIM_VOCAB, DIM_INPUTS, GROUP_NONE, MODEL_EMBEDDING),
    [GLOBAL_INPUTS_PROJ] =
        MATRIX("per_layer_model_proj.weight", DIM_INPUTS, DIM_HIDDEN, GROUP_NONE, MODEL_MATRIX),
    [GLOBAL_ALTUP_IN] =
        MATRICES("altup_proj.weight", DIM_HIDDEN, DIM_HIDDEN, DIM_OTHER_STREAMS, MODEL_MATRIX),
    [GLOBAL_ALTUP_OUT] =
        MATRICES("altup_unembd_proj.weight", DIM_HIDDEN, DIM_HIDDEN, DIM_OTHER_STREAMS, MODEL_MATRIX),
    [GLOBAL_INPUTS_NORM] = VECTOR("per_layer_proj_norm.weight", DIM_INPUT, MODEL_NORM),
};

/* Widths in recurrent halves and in tails. */
static uint64_t dim_beside(const struct model_config *config, enum dim dim)
{
    switch ((int)dim) {
    case DIM_2_HIDDEN:
        return 2 * (uint64_t)config->hidden;
    case DIM_3_HIDDEN:
        return 3 * (uint64_t)config->hidden;
    case DIM_CONV_TAPS:
        return config->conv_taps;
    case DIM_DELTA_QKV:
        return 2 * (uint64_t)config->delta_key_heads * config->delta_key +
               (uint64_t)config->delta_heads * config->delta_value;
    case DIM_DELTA_VALUES:
        return (uint64_t)config->delta_heads * config->delta_value;
    case DIM_DELTA_HEADS:
        return config->delta_heads;
    case DIM_2_DELTA_HEADS:
        return 2 * (uint64_t)config->delta_heads;
    case DIM_DELTA_VALUE:
        return config->delta_value;
    case DIM_DELTA_KEY_HEADS:
        return config->delta_key_heads;
    case DIM_MAMBA_IN:
        return dim_beside(config, DIM_DELTA_VALUES) + dim_beside(config, DIM_DELTA_QKV) + config->delta_heads;
    case DIM_MAMBA_GROUP:
        return (uint64_t)config->delta_heads * config->delta_value / config->delta_key_heads;
    case DIM_INDEX:
        return config->index_dim;
    case DIM_INDEX_HEADS:
        return config->index_heads;
    case DIM_INDEX_Q:
        return (uint64_t)config->index_heads * config->index_dim;
    case DIM_STREAMS:
        return config->n_streams;
    case DIM_STREAMS_SQUARED:
        return (uint64_t)config->n_streams * config->n_streams;
    case DIM_OTHER_STREAMS:
        return (uint64_t)config->n_streams - 1;
    case DIM_LAUREL:
        return config->laurel_rank;
    case DIM_2_EXPERT_FFN:
        return 2 * (uint64_t)config->expert_ffn;
    case DIM_EXPERT_IO:
        return config->expert_io;
    case DIM_ONE:
        return 1;
    case DIM_INPUT:
        return config->input;
    case DIM_INPUTS:
        return (uint64_t)config->n_layers * config->input;
    }
    return 0;
}

uint64_t dim_of(const struct model_config *config, enum dim dim)
{
    uint64_t q = (uint64_t)config->n_heads * config->head_dim;
    uint64_t kv = (uint64_t)config->n_kv_heads * config->head_dim;

    switch ((int)dim) {
    case DIM_NONE:
        return 0;
    case DIM_HIDDEN:
        return config->hidden;
    case DIM_Q:
        return q;
    case DIM_KV:
        return kv;
    case DIM_2_Q:
        return 2 * q;
    case DIM_KV_VALUES:
        return (uint64_t)config->n_kv_heads * config->value_dim;
    case DIM_QKV:
        return q + kv + (uint64_t)config->n_kv_heads * config->value_dim;
    case DIM_HEAD:
        return config->head_dim;
    case DIM_FFN:
        return config->ffn;
    case DIM_2_FFN:
        return 2 * (uint64_t)config->ffn;
    case DIM_VOCAB:
        return config->vocab;
    case DIM_ROPE_PAIRS:
        return config->rope_dims / 2;
    case DIM_EXPERTS:
        return config->n_experts;
    case DIM_EXPERT_FFN:
        return config->expert_ffn;
    case DIM_SHARED_FFN:
        return config->shared_ffn;
    case DIM_HEADS:
        return config->n_heads;
    case DIM_KV_HEADS:
        return config->n_kv_heads;
    case DIM_POSITIONS:
        return config->n_positions;
    case DIM_Q_LATENT:
        return config->q_latent;
    case DIM_LATENT:
        return config->latent;
    case DIM_LATENT_KEY:
        return (uint64_t)config->latent + config->rope_dims;
    case DIM_NOPE:
        return (uint64_t)config->head_dim - config->rope_dims;
    case DIM_VALUE:
        return config->value_dim;
    case DIM_VALUES:
        return (uint64_t)config->n_heads * config->value_dim;
    case DIM_KV_B:
        return (uint64_t)config->n_heads * (config->head_dim - config->rope_dims + config->value_dim);
    }
    return dim_beside(config, dim);
}

bool slot_is_vector(const struct slot_info *info)
{
    return info->rows == DIM_NONE || info->role == MODEL_NORM || info->role == MODEL_DECAY;
}

const char *slot_name(uint32_t layer, enum slot slot, char out[64])
{
    snprintf(out, 64, "blk.%u.%s", layer, SLOTS[slot].suffix);
    return out;
}

bool global_is_required(const struct model *model, enum global global)
{
    if (global == GLOBAL_FINAL_NORM)
        return !(model->arch->globals >> GLOBAL_FINAL_NORM_LFM2 & 1) && model->arch->norm != NORM_LAYER_PLAIN;
    return global == GLOBAL_EMBEDDING || ((model->arch->globals | model->globals) >> global & 1);
}

bool global_is_allowed(const struct model *model, enum global global)
{
    if (global == GLOBAL_FINAL_NORM)
        return global_is_required(model, global);
    return global <= GLOBAL_ROPE_SHORT || global_is_required(model, global);
}

slot_set layer_needs(const struct model *model, uint32_t index)
{
    const struct layer *layer = &model->layers[index];

    return model->arch->needs | model->needs | layer->attn->needs | layer->ffn->needs |
           (layer->tail ? layer->tail->needs : 0) | (model->first_layer ? MTP_SLOTS : 0);
}

slot_set layer_usual(const struct model *model, uint32_t index)
{
    const struct layer *layer = &model->layers[index];

    return layer_needs(model, index) | model->arch->usual | layer->attn->usual | layer->ffn->usual;
}

slot_set layer_may(const struct model *model, uint32_t index)
{
    const struct layer *layer = &model->layers[index];

    return layer_usual(model, index) | model->arch->may | layer->attn->may | layer->ffn->may |
           (layer->tail ? layer->tail->may : 0) | (model->first_layer ? MTP_MAY : 0);
}

struct model_config layer_config(const struct model *model, uint32_t index)
{
    const struct layer *layer = &model->layers[index];
    struct model_config config = model->config;

    config.head_dim = layer->head_dim;
    config.n_heads = layer->n_heads;
    if (config.latent == 0)
        config.value_dim = layer_value_dim(layer);
    config.n_kv_heads = layer->n_kv_heads;
    config.ffn = layer->ffn_width;
    return config;
}

/* ---- for programs that write files ---- */

static struct model_tensor slots_describe(const struct model_config *config, const struct slot_info *info,
                                          const char *name)
{
    struct model_tensor tensor = {.role = info->role};

    memcpy(tensor.name, name, strlen(name) + 1);
    tensor.dims[tensor.n_dims++] = dim_of(config, info->cols);
    if (info->rows != DIM_NONE)
        tensor.dims[tensor.n_dims++] = dim_of(config, info->rows);
    if (info->count != DIM_NONE)
        tensor.dims[tensor.n_dims++] = dim_of(config, info->count);
    return tensor;
}

struct visiting {
    int (*visit)(void *arg, const struct model_tensor *tensor);
    void *arg;
};

static int visit_layers(const struct model *model, const struct visiting *visiting)
{
    struct model_tensor tensor;
    char name[64];
    int rc = 0;

    for (uint32_t layer = 0; layer < model->config.n_layers; layer++) {
        struct model_config config = layer_config(model, layer);

        for (unsigned s = 0; s < N_SLOTS && rc == 0; s++) {
            if (!(layer_may(model, layer) >> s & 1))
                continue;
            tensor = slots_describe(&config, &SLOTS[s], slot_name(model->first_layer + layer, s, name));
            tensor.is_optional = !(layer_usual(model, layer) >> s & 1);
            rc = visiting->visit(visiting->arg, &tensor);
        }
    }
    return rc;
}

static int visit_globals(const struct model *model, const struct visiting *visiting)
{
    struct model_tensor tensor;
    int rc = 0;

    for (unsigned g = 0; g < N_GLOBALS && rc == 0; g++) {
        if (!global_is_allowed(model, g))
            continue;
        tensor = slots_describe(&model->config, &GLOBALS[g], GLOBALS[g].suffix);
        tensor.is_optional = !global_is_required(model, g);
        rc = visiting->visit(visiting->arg, &tensor);
    }
    return rc;
}

int model_tensors(const struct gguf *keys, struct fault *fault,
                  int (*visit)(void *arg, const struct model_tensor *tensor), void *arg)
{
    const struct visiting visiting = {visit, arg};
    struct model model = {0};
    int rc = arch_read(keys, 0, fault, &model);

    if (rc == 0)
        rc = visit_globals(&model, &visiting);
    if (rc == 0)
        rc = visit_layers(&model, &visiting);
    if (rc == 0 && model.arch->has_mtp && model.config.n_nextn_layers > 0 &&
        (!model.arch->mtp_is_listed || model.has_head_layer)) {
        mtp_keep(&model);
        rc = visit_layers(&model, &visiting);
    }
    weights_fini(&model);
    return rc;
}

const char *model_arch_at(uint32_t index)
{
    const struct arch *arch = arch_at(index);

    return arch ? arch->name : NULL;
}
