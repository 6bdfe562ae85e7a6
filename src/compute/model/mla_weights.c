/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention: its metadata keys and its per-head weights.
 *
 * A head's key is k = Wk c and its value is v = Wv c, both from the token's latent c. Since q . (Wk c) =
 * (Wk^T q) . c, and the mean of the values is Wv times the mean of the latents, neither k nor v is ever
 * computed. Queries are mapped into the latent space, attention runs there, and its output is mapped back
 * (forward_mla.c).
 *
 *     attn_kv_b [H][nope + value][latent]  ->  into   [H][latent][nope]     Wk^T, transposed at load
 *                                              out_of [H][value][latent]    Wv, as it is
 *     attn_k_b  [H][latent][nope]          ->  into,   as it is             (newer files)
 *     attn_v_b  [H][value][latent]         ->  out_of, as it is
 *
 * Transposing a matrix breaks up its qblks. Types without qblks keep their type. A quantised Wk is kept as
 * F16; this rounding is a fraction of the quantisation's own error. */
#include "compute/model/model_priv.h"
#include "compute/model/weight_scales_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

void latent_read_heads(struct reading *r, struct model_config *config)
{
    uint32_t key = 0, value = 0;

    read_count(r, "attention.q_lora_rank", OPTIONAL, 1u << 16, &config->q_latent);
    read_count(r, "attention.kv_lora_rank", REQUIRED, ATTN_MAX_DIM, &config->latent);
    read_count(r, "attention.key_length", REQUIRED, ATTN_MAX_DIM, &key);
    read_count(r, "attention.key_length_mla", OPTIONAL, ATTN_MAX_DIM, &key);
    read_count(r, "attention.value_length_mla", OPTIONAL, ATTN_MAX_DIM, &value);
    if (value == 0)
        read_count(r, "attention.value_length", REQUIRED, ATTN_MAX_DIM, &value);
    read_count(r, "rope.dimension_count", REQUIRED, ATTN_MAX_DIM, &config->rope_dims);
    if (has_complaints(r))
        return;
    config->head_dim = key;
    config->value_dim = value;
    config->n_kv_heads = 1;
    if (config->rope_dims >= key)
        arch_complain(r, E_FORMAT, "keys of %u with %u turned: nothing is left for the latent part", key,
                      config->rope_dims);
    else if (config->latent % 16 != 0 || value % 16 != 0 || config->latent + config->rope_dims > ATTN_MAX_DIM)
        arch_complain(r, E_UNSUPPORTED, "latents of %u and values of %u: must be multiples of 16, at most %u",
                      config->latent, value, ATTN_MAX_DIM - config->rope_dims);
    else if (value > key)
        arch_complain(r, E_UNSUPPORTED, "values of %u are longer than keys of %u", value, key);
}

/* These models leave the sines unscaled and multiply q . k by (1 + m ln factor)^2 instead. */
void latent_read_scale(struct reading *r, struct model *model)
{
    static const double TIMES[2] = {0, 1e3};
    struct rope_params *rope = &model->rope_params[ROPE_GLOBAL];
    double multiplier = 0, by;

    read_number(r, "rope.scaling.yarn_log_multiplier", OPTIONAL, TIMES, &multiplier);
    if (multiplier == 0 || rope->scaling != ROPE_SCALE_YARN)
        return;
    by = 1 + multiplier * log(rope->factor);
    model->config.attn_scale = (float)(by * by / sqrt(model->config.head_dim));
    if (!rope->is_attn_factor_whole)
        rope->attn_factor = 1;
    rope->is_attn_factor_whole = true;
}

/* ---- weights ---- */

static int mla_weights_pack(struct loading *load, const struct gguf_tensor *from,
                            struct weight_packing packing, struct weight *out)
{
    int rc = weights_matrix(load, from, packing, out);

    if (rc < 0)
        return rc;
    load->model->config.weight_bytes += out->len_bytes;
    return 0;
}

static int pack_as_it_is(struct loading *load, const struct gguf_tensor *tensor, struct weight *out)
{
    struct weight_part part = {.data = tensor->data, .rows = (uint32_t)(tensor->dims[1] * tensor->dims[2])};

    return mla_weights_pack(load, tensor, weights_packing(tensor, &part, 1), out);
}

static void put_weight(enum dtype type, float value, uint8_t *at)
{
    if (type == DTYPE_F32)
        memcpy(at, &value, sizeof(value));
    else if (type == DTYPE_BF16)
        put_u16(at, f32_to_bf16(value));
    else
        put_u16(at, f32_to_f16(value));
}

/* The key rows of each head of kv_b, transposed, in the file format. */
static void mla_weights_turn_keys(const struct model_config *c, const struct weight *kv_b, enum dtype type,
                                  uint8_t *out)
{
    uint32_t nope = c->head_dim - c->rope_dims, each_bytes = type == DTYPE_F32 ? 4 : 2;
    float row[ATTN_MAX_DIM];

    for (uint32_t h = 0; h < c->n_heads; h++)
        for (uint32_t i = 0; i < nope; i++) {
            weight_row(kv_b, h * (nope + c->value_dim) + i, row);
            for (uint32_t k = 0; k < c->latent; k++)
                put_weight(type, row[k], out + (((size_t)h * c->latent + k) * nope + i) * each_bytes);
        }
}

static int pack_turned(struct loading *load, const struct gguf_tensor *tensor, struct weight *out)
{
    const struct model_config *c = &load->model->config;
    uint32_t nope = c->head_dim - c->rope_dims;
    bool is_plain = tensor->type == DTYPE_F32 || tensor->type == DTYPE_BF16;
    enum dtype type = is_plain ? tensor->type : DTYPE_F16;
    struct weight_part part = {.rows = (uint32_t)tensor->dims[1]};
    uint8_t *turned = malloc((size_t)c->n_heads * c->latent * nope * sizeof(float));
    struct weight_packing packing = {.table = load->model->table,
                                     .type = tensor->type,
                                     .parts = &part,
                                     .n_parts = 1,
                                     .cols = c->latent,
                                     .team = load->team};
    struct weight kv_b;
    int rc;

    if (turned == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u heads", c->n_heads);
    part.data = tensor->data;
    rc = weight_scales_pack(load, packing, &kv_b);
    if (rc < 0) {
        free(turned);
        return fault_set(load->fault, rc, "tensor %.*s cannot be read: %s", (int)tensor->name.len_bytes,
                         (const char *)tensor->name.data, err_text(rc));
    }
    mla_weights_turn_keys(c, &kv_b, type, turned);
    weight_fini(&kv_b);
    part = (struct weight_part){.data = turned, .rows = c->n_heads * c->latent};
    packing.type = type;
    packing.cols = nope;
    rc = mla_weights_pack(load, tensor, packing, out);
    free(turned);
    return rc;
}

/* The value rows of each head of kv_b. */
static int pack_values(struct loading *load, const struct gguf_tensor *tensor, struct weight *out)
{
    const struct model_config *c = &load->model->config;
    uint32_t nope = c->head_dim - c->rope_dims, each = nope + c->value_dim;
    size_t row_bytes = (size_t)(tensor->len_bytes / tensor->dims[1]);
    struct weight_part *parts = calloc(c->n_heads, sizeof(*parts));
    struct weight_packing packing = {.type = tensor->type, .n_parts = c->n_heads, .cols = c->latent};
    int rc;

    if (parts == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u heads", c->n_heads);
    for (uint32_t h = 0; h < c->n_heads; h++)
        parts[h] = (struct weight_part){.data = (const uint8_t *)tensor->data +
                                                ((size_t)h * each + nope) * row_bytes,
                                        .rows = c->value_dim};
    packing.parts = parts;
    rc = mla_weights_pack(load, tensor, packing, out);
    free(parts);
    return rc;
}

int latent_pack(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    struct latent_weights *out = &load->model->layers[layer].latent;
    bool is_split = slot[SLOT_K_B] != NULL;
    int rc;

    rc = is_split ? pack_as_it_is(load, slot[SLOT_K_B], &out->into)
                  : pack_turned(load, slot[SLOT_KV_B], &out->into);
    if (rc == 0)
        rc = is_split ? pack_as_it_is(load, slot[SLOT_V_B], &out->out_of)
                      : pack_values(load, slot[SLOT_KV_B], &out->out_of);
    return rc < 0 ? rc : weights_packed(load, slot + SLOT_KV_B, SLOT_V_B - SLOT_KV_B + 1);
}

void latent_layer_fini(struct layer *layer)
{
    weight_fini(&layer->latent.into);
    weight_fini(&layer->latent.out_of);
}
