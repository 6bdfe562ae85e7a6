/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures: one row each.
 *
 *   llama    Llama 1 to 3.x, Mistral, Mixtral (with experts), and the many that took over their shape
 *   qwen2    Qwen 2 and 2.5: biases on Q, K and V
 *   qwen3    Qwen 3: no biases, but each head of Q and K is normed
 *   qwen3moe the same with experts
 *
 * A file of architecture llama has its Q and K rows ordered for pairs that lie side by side; in all others
 * element i of a head turns with element i + dims/2, as in the models they were converted from. */
#include "model/model_priv.h"

#define PRE_NORMS  (SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM))
#define QKV_BIASES (SLOT_BIT(Q_BIAS) | SLOT_BIT(K_BIAS) | SLOT_BIT(V_BIAS))
#define HEAD_NORMS (SLOT_BIT(Q_NORM) | SLOT_BIT(K_NORM))

static const char *const EXPERT_KEYS[] = {"expert_count", NULL};

static void read_llama(struct reading *r, struct model *model)
{
    moe_read(r, model, 0, false);
}

static void read_qwen3moe(struct reading *r, struct model *model)
{
    moe_read(r, model, 0, true);
}

static const struct arch ARCHS[] = {
    {.name = "llama",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .may = QKV_BIASES,
     .keys = EXPERT_KEYS,
     .read = read_llama},
    {.name = "qwen2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | QKV_BIASES},
    {.name = "qwen3",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS},
    {.name = "qwen3moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | HEAD_NORMS,
     .keys = EXPERT_KEYS,
     .read = read_qwen3moe},
};

const struct arch *arch_at(uint32_t index)
{
    return index < sizeof(ARCHS) / sizeof(ARCHS[0]) ? &ARCHS[index] : NULL;
}
