/* SPDX-License-Identifier: Apache-2.0 */
/* The type of each tensor.
 *
 * The usual names mean the usual mixes.  The output head, attention values and feed-forward down projections
 * lose most from few bits.  The head is Q6_K in every small type.  Of the other two, an M mix gives more bits
 * to the first and last eighth of the layers and to every third between; an S mix to the first layers only.
 *
 * Vectors, norms, routers of experts and other tensors that are no matrices keep 32 bits.  K types need rows
 * of whole 256 weights.  Other rows get a type of 32 weights with no fewer bits.  Rows that are no multiple of
 * 32 get F16. */
#include "clients/model/quantize_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool no_layer(uint32_t layer, uint32_t n_layers)
{
    (void)layer;
    (void)n_layers;
    return false;
}

static bool every_layer(uint32_t layer, uint32_t n_layers)
{
    (void)layer;
    (void)n_layers;
    return true;
}

static bool first_four(uint32_t layer, uint32_t n_layers)
{
    (void)n_layers;
    return layer < 4;
}

static bool first_eighth(uint32_t layer, uint32_t n_layers)
{
    return layer < n_layers / 8;
}

static bool ends_and_thirds(uint32_t layer, uint32_t n_layers)
{
    uint32_t eighth = n_layers / 8;

    return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

#define SAME(name, type, number, output)                                                                     \
    {                                                                                                        \
        name, type, number, output, type, type, type, no_layer, no_layer                                     \
    }

static const struct mix mixes[] = {
    SAME("F32", DTYPE_F32, 0, DTYPE_F32),
    SAME("F16", DTYPE_F16, 1, DTYPE_F16),
    SAME("BF16", DTYPE_BF16, 32, DTYPE_BF16),
    SAME("Q8_0", DTYPE_Q8_0, 7, DTYPE_Q8_0),
    SAME("Q4_0", DTYPE_Q4_0, 2, DTYPE_Q6_K),
    SAME("Q4_1", DTYPE_Q4_1, 3, DTYPE_Q6_K),
    SAME("Q5_0", DTYPE_Q5_0, 8, DTYPE_Q6_K),
    SAME("Q5_1", DTYPE_Q5_1, 9, DTYPE_Q6_K),
    {"Q2_K", DTYPE_Q2_K, 10, DTYPE_Q6_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q3_K, every_layer, every_layer},
    SAME("Q3_K_S", DTYPE_Q3_K, 11, DTYPE_Q6_K),
    {"Q3_K_M", DTYPE_Q3_K, 12, DTYPE_Q6_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q4_K, ends_and_thirds, first_four},
    {"Q3_K_L", DTYPE_Q3_K, 13, DTYPE_Q6_K, DTYPE_Q5_K, DTYPE_Q5_K, DTYPE_Q5_K, every_layer, every_layer},
    {"Q4_K_S", DTYPE_Q4_K, 14, DTYPE_Q6_K, DTYPE_Q5_K, DTYPE_Q5_K, DTYPE_Q4_K, first_eighth, first_four},
    {"Q4_K_M", DTYPE_Q4_K, 15, DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q4_K, ends_and_thirds,
     ends_and_thirds},
    SAME("Q5_K_S", DTYPE_Q5_K, 16, DTYPE_Q6_K),
    {"Q5_K_M", DTYPE_Q5_K, 17, DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q5_K, ends_and_thirds,
     ends_and_thirds},
    SAME("Q6_K", DTYPE_Q6_K, 18, DTYPE_Q6_K),
};

static const struct {
    const char *alias;
    const char *name;
} aliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

const struct mix *mix_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (strcasecmp(name, aliases[i].alias) == 0)
            name = aliases[i].name;
    for (size_t i = 0; i < ARRAY_LEN(mixes); i++)
        if (strcasecmp(name, mixes[i].name) == 0)
            return &mixes[i];
    return NULL;
}

const char *mix_names(void)
{
    return "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K";
}

/* ---- a tensor's type ---- */

bool mix_is_matrix(const struct gguf_tensor *tensor)
{
    static const char *const kept[] = {"_norm.weight", "ffn_gate_inp.weight", "position_embd.weight"};

    if (tensor->n_dims < 2 || tensor->dims[1] < 2 || !bytes_ends_with(tensor->name, ".weight"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (bytes_ends_with(tensor->name, kept[i]))
            return false;
    return true;
}

/* "blk.12.ffn_down.weight" -> 12; 0 for a tensor of no layer. */
static uint32_t layer_of(struct bytes name)
{
    uint32_t layer = 0;

    if (!bytes_starts_with(name, "blk."))
        return 0;
    for (size_t i = 4; i < name.len_bytes && i < 9 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        layer = layer * 10 + (uint32_t)(name.data[i] - '0');
    return layer;
}

static enum dtype wanted_type(const struct mix_opts *opts, struct bytes name)
{
    const struct mix *mix = opts->mix;
    bool is_embedding = bytes_is(name, "token_embd.weight");
    uint32_t layer = layer_of(name);

    if (is_embedding && opts->embedding_type >= 0)
        return (enum dtype)opts->embedding_type;
    if (bytes_is(name, "output.weight") || (is_embedding && opts->is_tied)) {
        if (opts->output_type >= 0)
            return (enum dtype)opts->output_type;
        return opts->is_pure ? mix->type : mix->output;
    }
    if (opts->is_pure)
        return mix->type;
    if (bytes_find(name, bytes_str("attn_v.weight"), 0) != SIZE_MAX)
        return mix->is_value(layer, opts->n_layers) ? mix->value : mix->type;
    if (bytes_find(name, bytes_str("ffn_down"), 0) != SIZE_MAX)
        return mix->is_down(layer, opts->n_layers) ? mix->down : mix->type;
    if (bytes_find(name, bytes_str("attn_output"), 0) != SIZE_MAX)
        return mix->attn_out;
    return mix->type;
}

static enum dtype narrower_rows(enum dtype type)
{
    switch (type) {
    case DTYPE_Q2_K:
    case DTYPE_Q3_K:
        return DTYPE_Q4_0;
    case DTYPE_Q4_K:
        return DTYPE_Q5_0;
    case DTYPE_Q5_K:
        return DTYPE_Q5_1;
    case DTYPE_Q6_K:
        return DTYPE_Q8_0;
    default:
        return type;
    }
}

enum dtype mix_type(const struct mix_opts *opts, const struct gguf_tensor *tensor, enum dtype *wanted_out)
{
    enum dtype type = wanted_type(opts, tensor->name);

    *wanted_out = type;
    if (tensor->dims[0] % dtype_info(type)->qblk_weights != 0)
        type = narrower_rows(type);
    return tensor->dims[0] % dtype_info(type)->qblk_weights != 0 ? DTYPE_F16 : type;
}
