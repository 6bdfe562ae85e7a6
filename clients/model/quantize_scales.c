/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4 (src/compute/model/weight_scales.c has their names).  A result of another type has them
 * in its weights, and so it has neither NAME.scale nor NAME.input_scale. */
#include "clients/model/quantize_priv.h"

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "gguf/qblk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 1032 };

static const char *const suffixes[] = {".scale", ".input_scale"};

static bool ends_with(struct bytes name, const char *suffix)
{
    size_t n = strlen(suffix);

    return name.len_bytes >= n && memcmp(name.data + name.len_bytes - n, suffix, n) == 0;
}

/* Gemma 4 has a tensor of its own by such a name: the forward pass multiplies by it. */
static bool is_scale_of_architecture(const struct gguf *gguf, struct bytes name)
{
    struct bytes arch = bytes_str("");

    gguf_get_str(gguf, "general.architecture", NULL, &arch);
    return ends_with(name, "ffn_down_exps.scale") && arch.len_bytes >= 6 &&
           memcmp(arch.data, "gemma4", 6) == 0;
}

static const struct gguf_tensor *find_joined(const struct gguf *gguf, struct bytes name, size_t n_cut,
                                             const char *end)
{
    char text[NAME_BYTES];

    if (name.len_bytes < n_cut || name.len_bytes - n_cut + strlen(end) >= sizeof(text))
        return NULL;
    snprintf(text, sizeof(text), "%.*s%s", (int)(name.len_bytes - n_cut), (const char *)name.data, end);
    return gguf_tensor_find(gguf, text);
}

const struct gguf_tensor *scales_owner(const struct gguf *gguf, const struct gguf_tensor *tensor)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        size_t n_cut = strlen(suffixes[i]);
        const struct gguf_tensor *owner;

        if (!ends_with(tensor->name, suffixes[i]) || is_scale_of_architecture(gguf, tensor->name))
            continue;
        owner = find_joined(gguf, tensor->name, n_cut, ".weight");
        if (owner == NULL)
            owner = find_joined(gguf, tensor->name, n_cut, "");
        if (owner != NULL && owner->type == DTYPE_NVFP4)
            return owner;
    }
    return NULL;
}

static const struct gguf_tensor *quantize_find_scale(const struct gguf *gguf,
                                                     const struct gguf_tensor *weights)
{
    const struct gguf_tensor *found = NULL;

    if (ends_with(weights->name, ".weight"))
        found = find_joined(gguf, weights->name, strlen(".weight"), suffixes[0]);
    if (found == NULL)
        found = find_joined(gguf, weights->name, 0, suffixes[0]);
    return found != NULL && !is_scale_of_architecture(gguf, found->name) ? found : NULL;
}

int scales_read(const struct gguf *gguf, const struct gguf_tensor *weights, float **out, struct fault *fault)
{
    const struct gguf_tensor *found =
        weights->type == DTYPE_NVFP4 ? quantize_find_scale(gguf, weights) : NULL;
    uint64_t n = weights->dims[2];
    bool is_good = found != NULL && found->type == DTYPE_F32 &&
                   (found->dims[0] == 1 || found->dims[0] == n) &&
                   found->dims[1] * found->dims[2] * found->dims[3] == 1;

    *out = NULL;
    if (found == NULL)
        return 0;
    if (is_good && (*out = calloc(n, sizeof(float))) == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint64_t i = 0; i < n && is_good; i++) {
        memcpy(&(*out)[i], (const float *)found->data + (found->dims[0] == 1 ? 0 : i), sizeof(float));
        is_good = isfinite((*out)[i]);
    }
    if (is_good)
        return 0;
    free(*out);
    *out = NULL;
    return fault_set(fault, E_FORMAT, "tensor %.*s must be one F32, or one for each expert, and finite",
                     (int)found->name.len_bytes, (const char *)found->name.data);
}
