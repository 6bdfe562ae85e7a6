/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4 (gguf/scales.h has their names).  A result of another type has them in its weights, and so
 * it has neither NAME.scale nor NAME.input_scale. */
#include "clients/model/quantize_priv.h"

#include "base/err.h"
#include "gguf/scales.h"

#include <stdlib.h>

/* Gemma 4 has a tensor of its own by such a name: the forward pass multiplies by it. */
static bool is_scale_of_architecture(const struct gguf *gguf, struct bytes name)
{
    struct bytes arch = bytes_str("");

    gguf_get_str(gguf, "general.architecture", NULL, &arch);
    return bytes_ends_with(name, "ffn_down_exps.scale") && bytes_starts_with(arch, "gemma4");
}

const struct gguf_tensor *scales_owner(const struct gguf *gguf, const struct gguf_tensor *tensor)
{
    return is_scale_of_architecture(gguf, tensor->name) ? NULL : gguf_scale_owner(gguf, tensor->name);
}

int scales_read(const struct gguf *gguf, const struct gguf_tensor *weights, float **out, struct fault *fault)
{
    const struct gguf_tensor *found = gguf_scale_find(gguf, weights, GGUF_SCALE);
    uint64_t n = weights->dims[2];
    int rc;

    *out = NULL;
    if (found == NULL || is_scale_of_architecture(gguf, found->name))
        return 0;
    rc = gguf_scale_check(weights, found, fault);
    if (rc < 0)
        return rc;
    *out = calloc(n, sizeof(float));
    if (*out == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++)
        (*out)[i] = gguf_scale_value(found, i);
    return 0;
}
