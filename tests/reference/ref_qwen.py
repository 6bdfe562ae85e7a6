# SPDX-License-Identifier: Apache-2.0
"""qwen2 (Yang et al. 2024), qwen3 (Yang et al. 2025), and exaone (LG AI Research 2024).

Qwen 2 adds biases to Q, K and V; Qwen 3 drops them and norms each head of Q and K before it is turned (Dehghani et al.
2023).  EXAONE 3 has neither.  Element i of a head turns with element i + dim/2.  Both stretch the context by YaRN."""
import math

from common import attention, plain_angles, rms_norm, rotate, silu, yarn_angles, yarn_temperature


def turns(model, dim):
    base = model.key("rope.freq_base")
    if model.key("rope.scaling.type") != "yarn":
        return plain_angles(dim, base), 1.0
    factor = model.key("rope.scaling.factor")
    return yarn_angles(dim, base, factor, model.key("rope.scaling.original_context_length")), yarn_temperature(factor)


def layer(model, index, x):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    angles, magnitude = turns(model, dim)
    w, n = model.layer(index), len(x)
    h = rms_norm(x, w["attn_norm"], eps)
    if "attn_qkv" in w:
        q, k, v = (h @ w["attn_qkv"].T + w.get("attn_qkv.bias", 0)).split([heads * dim, kv_heads * dim, kv_heads * dim], -1)
    else:
        q, k, v = h @ w["attn_q"].T, h @ w["attn_k"].T, h @ w["attn_v"].T
    if "attn_q.bias" in w:
        q, k, v = q + w["attn_q.bias"], k + w["attn_k.bias"], v + w["attn_v.bias"]
    q, k, v = q.view(n, heads, dim), k.view(n, kv_heads, dim), v.view(n, kv_heads, dim)
    if "attn_q_norm" in w:
        q, k = rms_norm(q, w["attn_q_norm"], eps), rms_norm(k, w["attn_k_norm"], eps)
    q, k = rotate(q, angles, magnitude), rotate(k, angles, magnitude)
    x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ w["attn_output"].T
    h = rms_norm(x, w["ffn_norm"], eps)
    return x + (silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T


def rows(model, tokens):
    """What the output head reads after each token."""
    x = model.tensors["token_embd.weight"][tokens]
    for index in range(model.key("block_count")):
        x = layer(model, index, x)
    return rms_norm(x, model.tensors["output_norm.weight"], model.key("attention.layer_norm_rms_epsilon"))


def forward(model, tokens):
    return rows(model, tokens) @ model.head.T
