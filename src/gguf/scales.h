/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4, as llama.cpp's converter writes them for checkpoints with two levels of scales.
 *
 *     blk.0.ffn_up.weight        NVFP4
 *     blk.0.ffn_up.scale         F32 [1], or [experts]: multiplies all weights of the tensor, or of the expert
 *     blk.0.ffn_up.input_scale   the same shape: how the checkpoint rounded activations to four bits
 *
 * Some files have the longer names blk.0.ffn_up.weight.scale.  An architecture may have a tensor of such a name itself
 * (ffn_down_exps.scale of Gemma 4); the callers leave these out.
 *
 * Pure functions of an open file; any thread. */
#ifndef GGUF_SCALES_H
#define GGUF_SCALES_H

#include "gguf/gguf.h"

enum gguf_scale { GGUF_SCALE, GGUF_INPUT_SCALE, GGUF_SCALES };

/* The scale of these weights.  NULL: there is none, or they are of another type. */
const struct gguf_tensor *gguf_scale_find(const struct gguf *gguf, const struct gguf_tensor *weights,
                                          enum gguf_scale which);
/* The weights that a tensor of this name is a scale of.  NULL: it is none. */
const struct gguf_tensor *gguf_scale_owner(const struct gguf *gguf, struct bytes name);
/* E_FORMAT: wrong type or shape for these weights, or a value that is not finite. */
int gguf_scale_check(const struct gguf_tensor *weights, const struct gguf_tensor *scale, struct fault *fault);
/* The value for an expert of a checked scale. */
float gguf_scale_value(const struct gguf_tensor *scale, uint64_t expert);

#endif
