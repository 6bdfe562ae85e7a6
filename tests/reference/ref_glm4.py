# SPDX-License-Identifier: Apache-2.0
"""glm4: GLM-4-0414 and GLM-Z1 (Team GLM 2024).

Each half of a layer is normed before and after (Ding et al. 2021, "sandwich" norms); gate and up are one matrix; only
the first part of a head turns, by pairs that lie side by side; in files with sections (vision models), half of that
part apart."""
import math

from common import attention, plain_angles, rms_norm, rotate, silu


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    angles = plain_angles(model.key("rope.dimension_count"), model.key("rope.freq_base", 10000.0))
    adjacent = not any(model.key("rope.dimension_sections", []))
    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = (h @ w[f"attn_{m}"].T + w.get(f"attn_{m}.bias", 0) for m in "qkv")
        q = rotate(q.view(n, heads, dim), angles, adjacent=adjacent)
        k = rotate(k.view(n, kv_heads, dim), angles, adjacent=adjacent)
        mixed = attention(q, k, v.view(n, kv_heads, dim), 1 / math.sqrt(dim))
        x = x + rms_norm(mixed @ w["attn_output"].T, w["post_attention_norm"], eps)
        gate, up = (rms_norm(x, w["ffn_norm"], eps) @ w["ffn_up"].T).chunk(2, -1)
        x = x + rms_norm((silu(gate) * up) @ w["ffn_down"].T, w["post_ffw_norm"], eps)
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
