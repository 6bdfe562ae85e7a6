/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4 (gguf/scales.h has their names).
 *
 * NAME.input_scale says how the checkpoint rounded activations to four bits.  It is not used, since activations are
 * rounded to eight bits here.  A family may have a slot of such a name (ffn_down_exps.scale of Gemma 4); then the slot has
 * the tensor, and the forward pass multiplies by it.
 *
 * Binding finds the scales.  Packing asks for them by the place of the weights in the file, because a part may be some
 * rows of a tensor, or one expert of it. */
#include "compute/model/weight_scales_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "gguf/scales.h"

struct weight_scales {
    uint32_t n, cap;
    struct scaled {
        const struct gguf_tensor *weights, *scale;
    } all[];
};

static bool scales_are_a_slot(const struct loading *load, struct bytes name)
{
    bool is_slot = false;

    if (!bytes_ends_with(name, SLOTS[SLOT_EXPERT_SCALE].suffix))
        return false;
    for (uint32_t i = 0; i < load->model->config.n_layers && !is_slot; i++)
        is_slot = layer_may(load->model, i) >> SLOT_EXPERT_SCALE & 1;
    return is_slot;
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

    for (enum gguf_scale which = 0; which < GGUF_SCALES && rc == 0; which++) {
        const struct gguf_tensor *found = gguf_scale_find(load->gguf, weights, which);

        if (found == NULL || scales_are_a_slot(load, found->name))
            continue;
        load->n_bound++;
        rc = gguf_scale_check(weights, found, load->fault);
        if (rc == 0 && which == GGUF_SCALE)
            rc = scales_note(load, weights, found);
    }
    return rc;
}

bool weight_scales_knows(const struct loading *load, struct bytes name)
{
    return gguf_scale_owner(load->gguf, name) != NULL;
}

static float scales_at(const struct weight_scales *scales, const void *data)
{
    for (uint32_t i = 0; i < scales->n; i++) {
        const struct gguf_tensor *weights = scales->all[i].weights, *scale = scales->all[i].scale;
        size_t at = (size_t)((const uint8_t *)data - (const uint8_t *)weights->data);

        if ((uintptr_t)data < (uintptr_t)weights->data || at >= weights->len_bytes)
            continue;
        return gguf_scale_value(scale, at / (weights->len_bytes / scale->dims[0]));
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
