/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a model: metadata (arch.c), RoPE (rope.c), weights (weights.c), in this order. So every fault in
 * a file is found before its weights are copied.
 *
 * The numerics id names the arithmetic: the kernels (BF16 dots and BF16 tiles have their own ids), the
 * forward pass, and the sines that this machine's math library computes. Two workers with different ids do
 * not exchange KV. Converted weights differ from the file's: converted F16 counts as BF16 dots or tiles,
 * which no F16 file has without that option. */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {                      /* raised when a change changes bits */
       FORWARD_VERSION = 1, /* of the forward pass */
       INDEX_VERSION = 1,   /* of sparse attention's choice */
       NVFP4_VERSION = 64   /* of products with NVFP4; they were once exact products of F16 */
};

/* Loads the list of divisors for the context, if the file has one; E_NOT_FOUND if not. */
static int read_factors(struct model *model, const struct gguf *gguf, float *out, struct fault *fault)
{
    const struct rope_params *params = &model->rope_params[ROPE_GLOBAL];
    bool is_long = model->config.context_length > params->original_context;
    const char *name = GLOBALS[is_long ? GLOBAL_ROPE_LONG : GLOBAL_ROPE_SHORT].suffix;
    uint32_t n = model->config.rope_dims / 2;
    int rc;

    if (gguf_tensor_find(gguf, name) == NULL) {
        if (params->scaling == ROPE_SCALE_LONGROPE)
            return fault_set(fault, E_FORMAT, "tensor %s is missing, which longrope scaling needs", name);
        name = GLOBALS[GLOBAL_ROPE_FREQS].suffix;
    }
    rc = weights_vector(gguf, name, n, out, fault);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (!(isfinite(out[i]) && out[i] > 0))
            rc = fault_set(fault, E_FORMAT, "tensor %s: divisor %u is not a positive number", name, i);
    if (rc == 0 && params->scaling == ROPE_SCALE_NONE)
        str_copy(model->config.rope_scaling, sizeof(model->config.rope_scaling),
                 name == GLOBALS[GLOBAL_ROPE_FREQS].suffix ? "llama3" : "longrope");
    return rc;
}

static int load_ropes(struct model *model, const struct gguf *gguf, struct fault *fault)
{
    struct model_config *config = &model->config;
    float *factors = calloc(config->rope_dims / 2 + 1, sizeof(*factors));
    bool has_factors;
    int rc;

    if (factors == NULL)
        return fault_set(fault, E_NOMEM, "no memory for RoPE");
    rc = read_factors(model, gguf, factors, fault);
    has_factors = rc == 0;
    if (rc == E_NOT_FOUND)
        rc = 0;
    for (unsigned i = 0; i < model->n_ropes && rc == 0; i++)
        rc = rope_init(&model->rope_params[i], config->rope_dims,
                       has_factors && i == ROPE_GLOBAL ? factors : NULL, &model->ropes[i]);
    free(factors);
    return rc;
}

enum dtype model_kv_dtype(const struct model *model)
{
    switch (model->layout.type) {
#define X(type, number, word, run, run_bytes)                                                                \
    case KV_##type:                                                                                          \
        return DTYPE_##type;
        KV_TYPE_TABLE(X)
#undef X
    case KV_N_TYPES:
        break;
    }
    ASSERT(!"a KV type");
    return DTYPE_F32;
}

/* A key and a value of one head. */
static size_t layer_token_bytes(const struct layer *layer, enum kv_type type)
{
    return kv_layout_row_bytes(type, layer->head_dim) + kv_layout_row_bytes(type, layer_value_dim(layer));
}

/* Layers may differ in the shape of their heads. The layout has room for the layer with the most bytes; other
 * layers use the beginning of it. */
static const struct layer *widest_layer(const struct model *model, enum kv_type type)
{
    const struct layer *widest = &model->layers[0];

    for (uint32_t i = 1; i < model->config.n_layers; i++) {
        const struct layer *layer = &model->layers[i];

        if (layer->n_kv_heads * layer_token_bytes(layer, type) >
            widest->n_kv_heads * layer_token_bytes(widest, type))
            widest = layer;
    }
    return widest;
}

/* A gain for norms that have none. */
static int fill_ones(struct model *model, struct fault *fault)
{
    bool is_used = model->arch->norm == NORM_LAYER_PLAIN;
    const uint32_t n = is_used ? model->config.hidden : model->config.head_dim;

    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        model->norms_values = model->norms_values || model->layers[i].attn == &attn_values_normed ||
                              model->layers[i].attn == &attn_altup ||
                              model->layers[i].attn == &attn_values_may;
        is_used = is_used || model->layers[i].is_unit_normed;
    }
    if (!is_used && !model->norms_values)
        return 0;
    model->ones = calloc(n, sizeof(*model->ones));
    if (model->ones == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a norm");
    for (uint32_t i = 0; i < n; i++)
        model->ones[i] = 1;
    return 0;
}

/* Without attention a block has one layer, which holds parts of states only.  A state takes about 64 blocks. */
static void lay_out_states(struct kv_layout *layout)
{
    const size_t part_bytes = layout->state_bytes / 64;
    size_t head_bytes;

    layout->n_layers = 1;
    layout->k_dim = layout->v_dim = 32;
    layout->n_kv_heads = 1;
    head_bytes = kv_layout_layer_block_bytes(layout);
    layout->n_kv_heads += (uint32_t)(part_bytes / head_bytes);
}

/* True if the windowed layers can have their own blocks.  Conditions: some layers have no window, each layer reads
 * keys of its own kind only, and no recurrent state lies in the blocks. */
static bool windows_can_split(const struct model *model)
{
    const struct model_config *config = &model->config;
    uint32_t n_windowed = 0;

    for (uint32_t i = 0; i < config->n_layers; i++) {
        const struct layer *layer = &model->layers[i];
        bool is_windowed = layer->window != 0;

        if (layer->is_shared && is_windowed != (model->layers[layer->kv_source].window != 0))
            return false;
        n_windowed += is_windowed && !layer->is_shared;
    }
    return n_windowed > 0 && n_windowed < config->n_kv_layers && model->layout.state_bytes == 0 &&
           config->latent == 0;
}

/* Numbers the keys of layers without a window first. */
static void split_windows(struct model *model)
{
    const struct model_config *config = &model->config;
    uint32_t n_full = 0, n_windowed = 0;

    for (uint32_t i = 0; i < config->n_layers; i++)
        n_full += !model->layers[i].is_shared && model->layers[i].window == 0;
    model->layout.n_layers = n_full;
    model->layout.n_window_layers = config->n_kv_layers - n_full;
    model->layout.window = config->window;
    n_full = 0;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        struct layer *layer = &model->layers[i];

        if (layer->is_shared)
            layer->kv_index = model->layers[layer->kv_source].kv_index;
        else
            layer->kv_index = layer->window == 0 ? n_full++ : model->layout.n_layers + n_windowed++;
    }
}

static int apply_opts(struct model *model, const struct model_opts *opts, struct fault *fault)
{
    struct model_config *config = &model->config;
    const struct layer *widest;

    model->bf16 = BF16_EXACT;
    model->table = kern_table_get(opts->kernels ? opts->kernels : "auto");
    if (model->table == NULL)
        return fault_set(fault, E_UNSUPPORTED, "kernels \"%s\" are unknown or cannot run on this CPU",
                         opts->kernels ? opts->kernels : "auto");
    widest = widest_layer(model, opts->kv_type);
    model->layout = (struct kv_layout){.n_layers = config->n_kv_layers,
                                       .state_bytes = model->layout.state_bytes,
                                       .n_kv_heads = widest->n_kv_heads,
                                       .k_dim = widest->head_dim,
                                       .v_dim = layer_value_dim(widest),
                                       .block_tokens = opts->block_tokens ? opts->block_tokens : 32,
                                       .type = opts->kv_type};
    if (config->n_kv_layers == 0)
        lay_out_states(&model->layout);
    else if (opts->splits_windows && windows_can_split(model))
        split_windows(model);
    if (config->latent) { /* values are a part of the keys */
        model->layout.k_dim = config->latent + config->rope_dims;
        model->layout.v_dim = 0;
        model->layout.index_dim = config->index_dim;
        model->layout.index_type = opts->kv_type == KV_F32 ? KV_F32 : KV_F16;
    }
    if (model->layout.block_tokens % ATTN_BLOCK_STEP != 0 || model->layout.block_tokens > ATTN_BLOCK_MAX)
        return fault_set(fault, E_INVAL, "blocks of %u tokens; must be a multiple of %d, at most %d",
                         model->layout.block_tokens, ATTN_BLOCK_STEP, ATTN_BLOCK_MAX);
    if (config->is_chunked && config->window % model->layout.block_tokens != 0)
        return fault_set(fault, E_UNSUPPORTED, "chunks of %u tokens are not whole blocks of %u",
                         config->window, model->layout.block_tokens);
    return 0;
}

static uint64_t kernels_id(const struct model *model)
{
    switch (model_bf16_math(model)) {
    case BF16_TILES:
        return kern_tiles_numerics_id(model->table);
    case BF16_DOTS:
        return kern_dots_numerics_id(model->table);
    case BF16_AUTO:
    case BF16_EXACT:
        break;
    }
    return kern_numerics_id(model->table);
}

static bool model_has_type(const struct gguf *gguf, enum dtype type)
{
    for (uint64_t i = 0; i < gguf_tensor_count(gguf); i++)
        if (gguf_tensor_at(gguf, i)->type == type)
            return true;
    return false;
}

int model_new(struct gguf *gguf, struct team *team, const struct model_opts *opts, struct fault *fault,
              struct model **out)
{
    struct model *model = calloc(1, sizeof(*model));
    int rc;

    if (model == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a model");
    rc = arch_read(gguf, opts->context_length, fault, model);
    model->mtp_of = opts->mtp_of;
    if (rc == 0 && model->mtp_of)
        mtp_keep(model);
    if (rc == 0)
        rc = apply_opts(model, opts, fault);
    if (rc == 0)
        rc = load_ropes(model, gguf, fault);
    if (rc == 0)
        rc = fill_ones(model, fault);
    if (rc == 0)
        rc = weights_load(model, gguf, team, opts, fault);
    if (rc < 0) {
        model_free(model);
        return rc;
    }
    model->numerics_id = kernels_id(model);
    for (unsigned i = 0; i < model->n_ropes; i++)
        model->numerics_id =
            (model->numerics_id ^ rope_digest(&model->ropes[i])) * UINT64_C(0x9e3779b97f4a7c15);
    if (model->config.delta_heads > 0)
        model->numerics_id = (model->numerics_id ^ recurrent_digest()) * UINT64_C(0x9e3779b97f4a7c15);
    model->numerics_id += FORWARD_VERSION + (model->config.index_top > 0 ? INDEX_VERSION : 0) +
                          (model_has_type(gguf, DTYPE_NVFP4) ? NVFP4_VERSION : 0);
    *out = model;
    return 0;
}

/* Checks the file's divisors without building RoPE's tables, which take time for a long context. */
static int check_factors(struct model *model, const struct gguf *gguf, struct fault *fault)
{
    float *factors = calloc(model->config.rope_dims / 2 + 1, sizeof(*factors));
    int rc = factors == NULL ? fault_set(fault, E_NOMEM, "no memory for RoPE")
                             : read_factors(model, gguf, factors, fault);

    free(factors);
    return rc == E_NOT_FOUND ? 0 : rc;
}

bool model_has_kernels(const char *kernels)
{
    return kern_table_get(kernels) != NULL;
}

int model_check(const struct gguf *gguf, const struct model_opts *opts, struct fault *fault,
                struct kv_layout *layout_out, uint32_t *context_out)
{
    struct model *model = calloc(1, sizeof(*model));
    int rc;

    if (model == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a model");
    rc = arch_read(gguf, 0, fault, model);
    if (rc == 0)
        rc = apply_opts(model, opts, fault);
    if (rc == 0)
        rc = check_factors(model, gguf, fault);
    if (rc == 0)
        rc = weights_check(model, gguf, opts, fault);
    if (rc == 0) {
        *layout_out = model->layout;
        *context_out = model->config.context_length;
    }
    model_free(model);
    return rc;
}

int model_check_mtp(const struct gguf *gguf, const struct model_opts *opts, struct fault *fault,
                    struct kv_layout *layout_out)
{
    struct model *model = calloc(1, sizeof(*model));
    int rc;

    if (model == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a model");
    rc = arch_read(gguf, 0, fault, model);
    if (rc == 0 && !model_has_mtp(model, gguf))
        rc = fault_set(fault, E_NOT_FOUND, "the file has no MTP head that is known here");
    if (rc == 0) {
        mtp_keep(model);
        rc = apply_opts(model, opts, fault);
    }
    if (rc == 0)
        rc = weights_check(model, gguf, opts, fault);
    if (rc == 0)
        *layout_out = model->layout;
    model_free(model);
    return rc;
}

void model_free(struct model *model)
{
    if (model == NULL)
        return;
    weights_fini(model);
    for (unsigned i = 0; i < N_ROPES; i++)
        rope_fini(&model->ropes[i]);
    free(model);
}

enum bf16_math model_bf16_math(const struct model *model)
{
    return model->bf16;
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
