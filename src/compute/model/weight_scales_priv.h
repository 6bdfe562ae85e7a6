/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4 (weight_scales.c).  The loading thread. */
#ifndef COMPUTE_MODEL_WEIGHT_SCALES_PRIV_H
#define COMPUTE_MODEL_WEIGHT_SCALES_PRIV_H

#include "compute/model/model_priv.h"

/* Binds the scales of a bound tensor, if there are any.  E_FORMAT, E_NOMEM. */
int weight_scales_bind(struct loading *load, const struct gguf_tensor *weights);
/* True if the tensor of this name belongs to a tensor of NVFP4. */
bool weight_scales_knows(const struct loading *load, struct bytes name);
/* weight_pack() with the scales of the parts, which lie in the file. */
int weight_scales_pack(struct loading *load, struct weight_packing packing, struct weight *out);

#endif
