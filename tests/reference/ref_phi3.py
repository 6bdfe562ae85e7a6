# SPDX-License-Identifier: Apache-2.0
"""phi3: Abdin et al. 2024, with the long-context scheme of Ding et al. 2024 (LongRoPE).

Q, K and V are one matrix, stacked in this order; so are gate and up.  The long variants have two lists of divisors for
the angles: one for contexts within the original length and one for longer contexts.  The attention factor multiplies
the sines that turn Q and K. Here the context length that the model is served with selects the list."""
import math

from common import attention, plain_angles, rms_norm, rotate, silu


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    ffn, window = model.key("feed_forward_length"), model.key("attention.sliding_window")
    angles = plain_angles(model.key("rope.dimension_count"), model.key("rope.freq_base", 10000.0))
    context = model.key("context_length")
    is_long = context > model.key("rope.scaling.original_context_length", context)
    divisors = model.tensors.get("rope_factors_long.weight" if is_long else "rope_factors_short.weight")
    if divisors is not None:
        angles = angles / divisors
    magnitude = model.key("rope.scaling.attn_factor", 1.0)
    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        qkv = rms_norm(x, w["attn_norm"], eps) @ w["attn_qkv"].T
        q, k, v = qkv.split((heads * dim, kv_heads * dim, kv_heads * dim), -1)
        q = rotate(q.reshape(n, heads, dim), angles, magnitude)
        k = rotate(k.reshape(n, kv_heads, dim), angles, magnitude)
        mixed = attention(q, k, v.reshape(n, kv_heads, dim), 1 / math.sqrt(dim), window)
        x = x + mixed @ w["attn_output"].T
        gate, up = (rms_norm(x, w["ffn_norm"], eps) @ w["ffn_up"].T).split((ffn, ffn), -1)
        x = x + (silu(gate) * up) @ w["ffn_down"].T
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
