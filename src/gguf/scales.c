/* SPDX-License-Identifier: Apache-2.0 */
/* Scales of NVFP4 by their names, in either order of look-up, and the check of their shape. */
#include "gguf/scales.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

enum { SCALES_NAME_BYTES = 1032 };

static const char *const suffixes[GGUF_SCALES] = {".scale", ".input_scale"};
static const char *const ends[] = {".weight", ""}; /* of the weights: the shorter names come first */

/* Finds the tensor whose name has `to` at its end in place of `from`. */
static const struct gguf_tensor *scales_sibling(const struct gguf *gguf, struct bytes name, const char *from,
                                                const char *to)
{
    char text[SCALES_NAME_BYTES];
    size_t n = name.len_bytes - strlen(from);

    if (!bytes_ends_with(name, from) || n + strlen(to) >= sizeof(text))
        return NULL;
    memcpy(text, name.data, n);
    memcpy(text + n, to, strlen(to) + 1);
    return gguf_tensor_find(gguf, text);
}

const struct gguf_tensor *gguf_scale_find(const struct gguf *gguf, const struct gguf_tensor *weights,
                                          enum gguf_scale which)
{
    const struct gguf_tensor *found = NULL;

    for (size_t i = 0; i < ARRAY_LEN(ends) && found == NULL && weights->type == DTYPE_NVFP4; i++)
        found = scales_sibling(gguf, weights->name, ends[i], suffixes[which]);
    return found;
}

const struct gguf_tensor *gguf_scale_owner(const struct gguf *gguf, struct bytes name)
{
    for (size_t which = 0; which < GGUF_SCALES; which++)
        for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
            const struct gguf_tensor *found = scales_sibling(gguf, name, suffixes[which], ends[i]);

            if (found != NULL && found->type == DTYPE_NVFP4)
                return found;
        }
    return NULL;
}

float gguf_scale_value(const struct gguf_tensor *scale, uint64_t expert)
{
    float value;

    memcpy(&value, (const uint8_t *)scale->data + (scale->dims[0] == 1 ? 0 : expert) * sizeof(value),
           sizeof(value));
    return value;
}

int gguf_scale_check(const struct gguf_tensor *weights, const struct gguf_tensor *scale, struct fault *fault)
{
    uint64_t n = scale->dims[0];
    bool is_good = scale->type == DTYPE_F32 && scale->dims[1] * scale->dims[2] * scale->dims[3] == 1 &&
                   (n == 1 || n == weights->dims[2]);

    for (uint64_t i = 0; i < n && is_good; i++)
        is_good = isfinite(gguf_scale_value(scale, i));
    return is_good
               ? 0
               : fault_set(fault, E_FORMAT, "tensor %.*s must be one F32, or one for each expert, and finite",
                           (int)scale->name.len_bytes, (const char *)scale->name.data);
}
