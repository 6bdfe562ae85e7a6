/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of architectures with LayerNorm and no experts.
 *
 *    starcoder2 StarCoder 2: LayerNorm, biases, no gate
 *    nemotron  Nemotron 3 and 4, Minitron: LayerNorm, squared ReLU without a gate, a part of each head turned
 *    stablelm  StableLM 3B, 2 1.6B, 2 12B: LayerNorm, SiLU gate, a part of each head turned; 12B: parallel halves, norms
 *              with a gain for each head of queries and keys
 *    phi2      Phi 1.5 and 2: the same with parallel halves
 *    gpt2      GPT-2: the same with learned positions instead of RoPE
 *    falcon    Falcon 7B to 40B: parallel halves, one or two norms before them
 *    command-r Command R: LayerNorm without bias, parallel halves, SiLU gate
 *    cohere2   Command R7B, Command A: the same with windows; layers without one have no RoPE
 *    olmo      OLMo 1: llama with norms that have no gain; Q, K and V may be clamped
 *    gptneox   GPT-NeoX, Pythia: exact GELU without a gate (the 20B: its tanh form), biases, parallel halves with a norm
 *              each */
#include "compute/model/model_priv.h"

static const char *const STABLELM_KEYS[] = {"use_parallel_residual", NULL};

/* Converters also write the key for models whose configuration lacks it, so the norm before the feed-forward network
 * decides where both are there. */
static void read_stablelm(struct reading *r, struct model *model)
{
    read_flag(r, "use_parallel_residual", &model->is_parallel);
    if (has_tensor(r, "blk.0.ffn_norm.weight"))
        model->is_parallel = false;
    if (!model->is_parallel)
        model->needs |= SLOT_BIT(FFN_NORM) | SLOT_BIT(FFN_NORM_BIAS);
}

/* Files of older converters have Q, K and V in one tensor. */
static void read_phi2(struct reading *r, struct model *model)
{
    for (uint32_t i = 0; i < model->config.n_layers && has_tensor(r, "blk.0.attn_qkv.weight"); i++)
        model->layers[i].attn = &attn_grouped_fused_biased;
}

static void read_gpt2(struct reading *r, struct model *model)
{
    (void)r;
    drop_rope(model);
}

static const char *const COMMAND_R_KEYS[] = {"logit_scale", NULL};

static void read_command_r(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {1e-6, 1e6};
    double logits = 1;

    read_number(r, "logit_scale", REQUIRED, SCALE, &logits);
    model->config.logit_scale = (float)logits;
}

void read_cohere2(struct reading *r, struct model *model)
{
    read_command_r(r, model);
    drop_rope_of_global(model);
}

static const char *const OLMO_KEYS[] = {"attention.clamp_kqv", NULL};

static void read_olmo(struct reading *r, struct model *model)
{
    static const double CLAMP[2] = {0, 1e6};
    double clamp = 0;

    read_number(r, "attention.clamp_kqv", OPTIONAL, CLAMP, &clamp);
    model->config.qkv_clamp = (float)clamp;
}

static const char *const GPTNEOX_KEYS[] = {"use_parallel_residual", NULL};

/* GPT-NeoX 20B and its descendants were trained with GELU's tanh form, all others with the exact one. No key tells, but
 * no other model has this shape. */
static void read_gptneox(struct reading *r, struct model *model)
{
    read_flag(r, "use_parallel_residual", &model->is_parallel);
    if (model->config.n_layers == 44 && model->config.hidden == 6144)
        model->activation = ACT_GELU;
}

const struct arch NORM_ARCHS[] = {
    {.name = "starcoder2",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .norm = NORM_LAYER,
     .attn = &attn_grouped,
     .ffn = &ffn_plain_may,
     .needs = PRE_NORMS | SLOT_BIT(ATTN_NORM_BIAS) | SLOT_BIT(FFN_NORM_BIAS),
     .usual = ATTN_BIASES | SLOT_BIT(UP_BIAS) | SLOT_BIT(DOWN_BIAS),
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS),
     .has_windows = true,
     .window_default = 4096}, /* as published; converters write no key */
    {.name = "nemotron",
     .pairs = ROPE_HALVES,
     .activation = ACT_RELU_SQUARED,
     .norm = NORM_LAYER,
     .attn = &attn_grouped,
     .ffn = &ffn_plain_may,
     .needs = PRE_NORMS | SLOT_BIT(ATTN_NORM_BIAS) | SLOT_BIT(FFN_NORM_BIAS),
     .may = ATTN_BIASES,
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS)},
    {.name = "stablelm",
     .pairs = ROPE_HALVES,
     .norm = NORM_LAYER,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(ATTN_NORM_BIAS),
     .may = SLOT_BIT(Q_NORM_HEADS) | SLOT_BIT(K_NORM_HEADS) | ATTN_BIASES,
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS),
     .keys = STABLELM_KEYS,
     .read = read_stablelm},
    {.name = "phi2",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .norm = NORM_LAYER,
     .is_parallel = true,
     .attn = &attn_grouped_biased,
     .ffn = &ffn_plain_biased,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(ATTN_NORM_BIAS),
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS) | GLOBAL_BIT(HEAD_BIAS),
     .read = read_phi2},
    {.name = "gpt2",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .norm = NORM_LAYER,
     .attn = &attn_grouped_fused_biased,
     .ffn = &ffn_plain_biased,
     .needs = PRE_NORMS | SLOT_BIT(ATTN_NORM_BIAS) | SLOT_BIT(FFN_NORM_BIAS),
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS) | GLOBAL_BIT(POSITIONS),
     .read = read_gpt2},
    {.name = "falcon",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU_EXACT,
     .norm = NORM_LAYER,
     .is_parallel = true,
     .attn = &attn_grouped_fused,
     .ffn = &ffn_plain,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(ATTN_NORM_BIAS),
     .may = SLOT_BIT(ATTN_NORM_2) | SLOT_BIT(ATTN_NORM_2_BIAS),
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS)},
    {.name = "command-r",
     .pairs = ROPE_ADJACENT,
     .norm = NORM_LAYER,
     .is_parallel = true,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM),
     .may = SLOT_BIT(Q_NORM_HEADS) | SLOT_BIT(K_NORM_HEADS) | ATTN_BIASES,
     .keys = COMMAND_R_KEYS,
     .read = read_command_r},
    {.name = "cohere2",
     .pairs = ROPE_ADJACENT,
     .norm = NORM_LAYER,
     .is_parallel = true,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM),
     .may = ATTN_BIASES,
     .has_windows = true,
     .window_period = 4,
     .window_default = 4096,
     .keys = COMMAND_R_KEYS,
     .read = read_cohere2},
    {.name = "olmo",
     .pairs = ROPE_ADJACENT,
     .norm = NORM_LAYER_PLAIN,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .keys = OLMO_KEYS,
     .read = read_olmo},
    {.name = "gptneox",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU_EXACT,
     .norm = NORM_LAYER,
     .is_parallel = true,
     .attn = &attn_grouped_fused_biased,
     .ffn = &ffn_plain_biased,
     .needs = PRE_NORMS | SLOT_BIT(ATTN_NORM_BIAS) | SLOT_BIT(FFN_NORM_BIAS),
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS),
     .keys = GPTNEOX_KEYS,
     .read = read_gptneox},
};
const uint32_t N_NORM_ARCHS = sizeof(NORM_ARCHS) / sizeof(NORM_ARCHS[0]);
