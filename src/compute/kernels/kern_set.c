/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of one instruction set, in one struct. */
#include "compute/kernels/kern_set_priv.h"

const struct kern_vec KERN(kern_vec) = {
    .tile_tokens = TILE_TOKENS,
    .tile_panels = TILE_PANELS,
    .tile_f32 = KERN(tile_f32),
    .tile_f16 = KERN(tile_f16),
    .tile_bf16 = KERN(tile_bf16),
    .slices_f32 = KERN(slices_f32),
    .pack_f32 = KERN(pack_f32),
    .pack_swapped = KERN(pack_swapped),
    .pack_slices = KERN(pack_slices),
    .widen_f16 = KERN(widen_f16),
    .widen_bf16 = KERN(widen_bf16),
    .attn_unit = KERN(attn_unit),
    .attn_merge = KERN(attn_merge),
    .kv_store = KERN(kv_store),
    .rms_norm = KERN(rms_norm),
    .layer_norm = KERN(layer_norm),
    .vec_add = KERN(vec_add),
    .swiglu = KERN(swiglu),
    .geglu = KERN(geglu),
    .gelu = KERN(gelu),
    .gelu_exact = KERN(gelu_exact),
    .vec_scale = KERN(vec_scale),
    .vec_cap = KERN(vec_cap),
    .rope = KERN(rope),
    .mix_rows = KERN(mix_rows),
    .read_memory = KERN(read_memory),
    .peak = KERN(peak),
};
