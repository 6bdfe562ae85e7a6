# SPDX-License-Identifier: Apache-2.0
"""olmo2: OLMo 2 (OLMo Team 2024), and OLMo 3 in files of the same architecture.

A half of a layer reads the residual stream as it is; its output is normed before it is added.  Q and K are normed
over all heads together.  OLMo 3 gives three layers of four a window and stretches the others by YaRN, with a
temperature that its configuration states."""
import math

from common import attention, plain_angles, rms_norm, rotate, silu, yarn_angles, yarn_temperature


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    base, window = model.key("rope.freq_base"), model.key("attention.sliding_window", 0)
    nearby = (plain_angles(dim, base), 1.0)
    everywhere = nearby
    if model.key("rope.scaling.type") == "yarn":
        factor, original = model.key("rope.scaling.factor"), model.key("rope.scaling.original_context_length")
        temperature = model.key("rope.scaling.attn_factor", yarn_temperature(factor))
        everywhere = (yarn_angles(dim, base, factor, original), temperature)
    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        is_local = window and index % 4 != 3
        angles, magnitude = nearby if is_local else everywhere
        q = rms_norm(x @ w["attn_q"].T, w["attn_q_norm"], eps).view(n, heads, dim)
        k = rms_norm(x @ w["attn_k"].T, w["attn_k_norm"], eps).view(n, kv_heads, dim)
        q, k = rotate(q, angles, magnitude), rotate(k, angles, magnitude)
        v = (x @ w["attn_v"].T).view(n, kv_heads, dim)
        mixed = attention(q, k, v, 1 / math.sqrt(dim), window if is_local else None)
        x = x + rms_norm(mixed @ w["attn_output"].T, w["post_attention_norm"], eps)
        h = (silu(x @ w["ffn_gate"].T) * (x @ w["ffn_up"].T)) @ w["ffn_down"].T
        x = x + rms_norm(h, w["post_ffw_norm"], eps)
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
