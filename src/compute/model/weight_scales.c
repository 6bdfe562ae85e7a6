/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4, as llama.cpp's converter writes them for checkpoints with two levels of scales.
 *
 *     blk.0.ffn_up.weight        NVFP4
 *     blk.0.ffn_up.scale         F32 [1], or [experts]: multiplies all weights of the tensor, or of the expert
 *     blk.0.ffn_up.input_scale   the same shape: how the checkpoint rounded activations to four bits.  Not used, since
 *                                activations are rounded to eight bits here
 *
 * Some files have the longer names blk.0.ffn_up.weight.scale.  A family may have a slot of such a name
 * (ffn_down_exps.scale of Gemma 4); then the slot has the tensor, and the forward pass multiplies by it.
 *
 * Binding finds the scales.  Packing asks for them by the place of the weights in the file, because a part may be some
 * rows of a tensor, or one expert of it. */
#include "compute/model/weight_scales_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

enum { SCALES_NAME_BYTES = 96 };

static const char *const scales_suffixes[] = {".scale", ".input_scale"};

struct weight_scales {
    uint32_t n, cap;
    struct scaled {
        const struct gguf_tensor *weights, *scale;
    } all[];
};

static bool scales_ends_with(struct bytes name, const char *suffix)
{
    size_t n = strlen(suffix);

    return name.len_bytes >= n && memcmp(name.data + name.len_bytes - n, suffix, n) == 0;
}

static bool scales_are_a_slot(const struct loading *load, struct bytes name)
{
    bool is_slot = false;

    if (!scales_ends_with(name, SLOTS[SLOT_EXPERT_SCALE].suffix))
        return false;
    for (uint32_t i = 0; i < load->model->config.n_layers && !is_slot; i++)
        is_slot = layer_may(load->model, i) >> SLOT_EXPERT_SCALE & 1;
    return is_slot;
}

/* Finds NAME.scale or, of NAME.weight, the shorter name; suffix: with its dot. */
static const struct gguf_tensor *scales_find(const struct loading *load, struct bytes name,
                                             const char *suffix)
{
    const char *const ends[] = {".weight", ""};
    const struct gguf_tensor *found = NULL;
    char text[SCALES_NAME_BYTES];

    for (size_t i = 0; i < ARRAY_LEN(ends) && found == NULL; i++) {
        size_t n = name.len_bytes - strlen(ends[i]);

        if (!scales_ends_with(name, ends[i]) || n + strlen(suffix) >= sizeof(text))
            continue;
        memcpy(text, name.data, n);
        memcpy(text + n, suffix, strlen(suffix) + 1);
        found = gguf_tensor_find(load->gguf, text);
    }
    return found != NULL && !scales_are_a_slot(load, found->name) ? found : NULL;
}

static int scales_check(struct loading *load, const struct gguf_tensor *weights,
                        const struct gguf_tensor *scale)
{
    uint64_t n = scale->dims[0];
    bool is_good = scale->type == DTYPE_F32 && scale->dims[1] * scale->dims[2] * scale->dims[3] == 1 &&
                   (n == 1 || n == weights->dims[2]);

    for (uint64_t i = 0; i < n && is_good; i++) {
        float value;

        weights_floats(scale, i, 1, &value);
        is_good = isfinite(value);
    }
    return is_good ? 0
                   : fault_set(load->fault, E_FORMAT,
                               "tensor %.*s must be one F32, or one for each expert, and finite",
                               (int)scale->name.len_bytes, (const char *)scale->name.data);
}

static int scales_note(struct loading *load, const struct gguf_tensor *weights,
                       const struct gguf_tensor *scale)
{
    struct weight_scales *scales = load->scales;

    if (scales == NULL || scales->n == scales->cap) {
        uint32_t cap = scales == NULL ? 64 : 2 * scales->cap;
        struct weight_scales *grown = realloc(scales, sizeof(*scales) + cap * sizeof(scales->all[0]));

        if (grown == NULL)
            return fault_set(load->fault, E_NOMEM, "no memory for the scales of tensors");
        grown->n = scales == NULL ? 0 : grown->n;
        grown->cap = cap;
        load->scales = scales = grown;
    }
    scales->all[scales->n++] = (struct scaled){weights, scale};
    return 0;
}

int weight_scales_bind(struct loading *load, const struct gguf_tensor *weights)
{
    int rc = 0;

    if (weights->type != DTYPE_NVFP4)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(scales_suffixes) && rc == 0; i++) {
        const struct gguf_tensor *found = scales_find(load, weights->name, scales_suffixes[i]);

        if (found == NULL)
            continue;
        load->n_bound++;
        rc = scales_check(load, weights, found);
        if (rc == 0 && i == 0)
            rc = scales_note(load, weights, found);
    }
    return rc;
}

bool weight_scales_knows(const struct loading *load, struct bytes name)
{
    for (size_t i = 0; i < ARRAY_LEN(scales_suffixes); i++) {
        char text[SCALES_NAME_BYTES];
        size_t n = name.len_bytes - strlen(scales_suffixes[i]);
        const struct gguf_tensor *weights;

        if (!scales_ends_with(name, scales_suffixes[i]) || n + strlen(".weight") >= sizeof(text))
            continue;
        memcpy(text, name.data, n);
        memcpy(text + n, ".weight", strlen(".weight") + 1);
        weights = gguf_tensor_find(load->gguf, text);
        if (weights == NULL) {
            text[n] = '\0';
            weights = gguf_tensor_find(load->gguf, text);
        }
        if (weights != NULL && weights->type == DTYPE_NVFP4)
            return true;
    }
    return false;
}

static float scales_at(const struct weight_scales *scales, const void *data)
{
    for (uint32_t i = 0; i < scales->n; i++) {
        const struct gguf_tensor *weights = scales->all[i].weights, *scale = scales->all[i].scale;
        size_t at = (size_t)((const uint8_t *)data - (const uint8_t *)weights->data);
        float value;

        if ((uintptr_t)data < (uintptr_t)weights->data || at >= weights->len_bytes)
            continue;
        weights_floats(scale, at / (weights->len_bytes / scale->dims[0]), 1, &value);
        return value;
    }
    return 1.0f;
}

int weight_scales_pack(struct loading *load, struct weight_packing packing, struct weight *out)
{
    float *scales;
    int rc;

    if (packing.type != DTYPE_NVFP4 || load->scales == NULL)
        return weight_pack(&packing, out);
    scales = malloc(packing.n_parts * sizeof(*scales));
    if (scales == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < packing.n_parts; i++)
        scales[i] = scales_at(load->scales, packing.parts[i].data);
    packing.scales = scales;
    rc = weight_pack(&packing, out);
    free(scales);
    return rc;
}
