/* SPDX-License-Identifier: Apache-2.0 */
/* Building a model: metadata (arch.c), RoPE (rope.c), weights (weights.c), in that order, so that everything
 * which can be wrong with a file is found before its weights are copied.
 *
 * The numerics id names the arithmetic: which kernels, which forward pass, and the sines that this machine's
 * mathematical library gives.  Two workers whose ids differ do not exchange KV. */
#include "model/model_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD_VERSION = 1 }; /* raised when a change to the forward pass changes bits */

static int load_rope(struct model *model, const struct gguf *gguf, const struct rope_params *params,
                     struct fault *fault)
{
    uint32_t n = model->config.rope_dims / 2;
    float *factors = calloc(n + 1, sizeof(*factors));
    int rc;

    if (factors == NULL)
        return fault_set(fault, E_NOMEM, "no memory for RoPE");
    rc = weights_vector(gguf, "rope_freqs.weight", n, factors, fault);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (!(isfinite(factors[i]) && factors[i] > 0))
            rc = fault_set(fault, E_FORMAT, "tensor rope_freqs.weight: divisor %u is not a positive number",
                           i);
    if (rc == 0) {
        if (params->scaling == ROPE_SCALE_NONE)
            str_copy(model->config.rope_scaling, sizeof(model->config.rope_scaling), "llama3");
        rc = rope_init(params, model->config.rope_dims, factors, &model->rope);
    } else if (rc == E_NOT_FOUND) {
        rc = rope_init(params, model->config.rope_dims, NULL, &model->rope);
    }
    free(factors);
    return rc;
}

enum dtype model_kv_dtype(const struct model *model)
{
    switch (model->layout.type) {
    case KV_F32:
        return DTYPE_F32;
    case KV_F16:
        return DTYPE_F16;
    case KV_BF16:
        return DTYPE_BF16;
    case KV_Q8_0:
        return DTYPE_Q8_0;
    case KV_Q4_0:
        return DTYPE_Q4_0;
    }
    ASSERT(!"a KV type");
    return DTYPE_F32;
}

static int apply_opts(struct model *model, const struct model_opts *opts, struct fault *fault)
{
    struct model_config *config = &model->config;

    if (opts->context_length > config->context_length)
        return fault_set(fault, E_RANGE, "a context of %u is more than the model's %u", opts->context_length,
                         config->context_length);
    if (opts->context_length != 0)
        config->context_length = opts->context_length;
    model->table = kern_table_get(opts->kernels ? opts->kernels : "auto");
    if (model->table == NULL)
        return fault_set(fault, E_UNSUPPORTED, "kernels \"%s\" are unknown or cannot run on this CPU",
                         opts->kernels ? opts->kernels : "auto");
    model->layout = (struct kv_layout){.n_layers = config->n_layers,
                                       .n_kv_heads = config->n_kv_heads,
                                       .k_dim = config->head_dim,
                                       .v_dim = config->head_dim,
                                       .block_tokens = opts->block_tokens ? opts->block_tokens : 32,
                                       .type = opts->kv_type};
    if (model->layout.block_tokens % 16 != 0 || model->layout.block_tokens > 128) /* what attention takes */
        return fault_set(fault, E_INVAL, "blocks of %u tokens; must be a multiple of 16, at most 128",
                         model->layout.block_tokens);
    return 0;
}

int model_new(struct gguf *gguf, struct team *team, const struct model_opts *opts, struct fault *fault,
              struct model **out)
{
    struct model *model = calloc(1, sizeof(*model));
    struct rope_params rope;
    int rc;

    if (model == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a model");
    rc = arch_read(gguf, fault, &model->arch, &model->config, &rope);
    if (rc == 0)
        rc = apply_opts(model, opts, fault);
    if (rc == 0)
        rc = load_rope(model, gguf, &rope, fault);
    if (rc == 0)
        rc = weights_load(model, gguf, team, opts, fault);
    if (rc < 0) {
        model_free(model);
        return rc;
    }
    model->numerics_id =
        (kern_numerics_id(model->table) ^ rope_digest(&model->rope)) * UINT64_C(0x9e3779b97f4a7c15) +
        FORWARD_VERSION;
    *out = model;
    return 0;
}

void model_free(struct model *model)
{
    if (model == NULL)
        return;
    weights_fini(model);
    rope_fini(&model->rope);
    free(model);
}

const struct model_config *model_config(const struct model *model)
{
    return &model->config;
}

const struct kv_layout *model_kv_layout(const struct model *model)
{
    return &model->layout;
}

uint64_t model_numerics_id(const struct model *model)
{
    return model->numerics_id;
}

const char *model_kernels_name(const struct model *model)
{
    return kern_table_name(model->table);
}
