# SPDX-License-Identifier: Apache-2.0
"""llama: Touvron et al. 2023 and the Llama 3 models; with a window, Mistral 7B.

A file of this architecture has the rows of Q and K ordered for pairs that lie side by side.  The context is stretched
by dividing positions (linear), by YaRN, or by a divisor for each pair (rope_freqs.weight, Llama 3.1 on)."""
import math

from common import attention, plain_angles, rms_norm, rotate, silu, yarn_angles, yarn_temperature


def turns(model, dims):
    base = model.key("rope.freq_base", 10000.0)
    factor, kind = model.key("rope.scaling.factor", 1.0), model.key("rope.scaling.type")
    if kind == "yarn":
        original = model.key("rope.scaling.original_context_length")
        less = 1 + 0.1 * model.key("rope.scaling.yarn_log_multiplier", 0.0) * math.log(factor)
        return yarn_angles(dims, base, factor, original), yarn_temperature(factor) / less
    angles = plain_angles(dims, base)
    if kind == "linear":
        angles = angles / factor
    if "rope_freqs.weight" in model.tensors:
        angles = angles / model.tensors["rope_freqs.weight"]
    return angles, 1.0


def layer(model, index, x):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    angles, magnitude = turns(model, model.key("rope.dimension_count"))
    w, n = model.layer(index), len(x)
    h = rms_norm(x, w["attn_norm"], eps)
    q, k, v = (h @ w[f"attn_{m}"].T + w.get(f"attn_{m}.bias", 0) for m in "qkv")
    q = rotate(q.view(n, heads, dim), angles, magnitude, adjacent=True)
    k = rotate(k.view(n, kv_heads, dim), angles, magnitude, adjacent=True)
    scale = model.key("attention.scale", 1 / math.sqrt(dim))
    mixed = attention(q, k, v.view(n, kv_heads, dim), scale, model.key("attention.sliding_window"))
    x = x + mixed @ w["attn_output"].T + w.get("attn_output.bias", 0)
    h = rms_norm(x, w["ffn_norm"], eps)
    gate, up = (h @ w[f"ffn_{m}"].T + w.get(f"ffn_{m}.bias", 0) for m in ("gate", "up"))
    return x + (silu(gate) * up) @ w["ffn_down"].T + w.get("ffn_down.bias", 0)


def rows(model, tokens):
    """What the output head reads after each token."""
    x = model.tensors["token_embd.weight"][tokens]
    for index in range(model.key("block_count")):
        x = layer(model, index, x)
    return rms_norm(x, model.tensors["output_norm.weight"], model.key("attention.layer_norm_rms_epsilon"))


def forward(model, tokens):
    return rows(model, tokens) @ model.head.T
