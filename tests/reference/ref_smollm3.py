# SPDX-License-Identifier: Apache-2.0
"""smollm3: SmolLM 3 (Hugging Face 2025): llama, but every fourth layer does not turn Q and K at all (Yang et al. 2025,
"RoPE to NoPE and Back Again")."""
import math

from common import attention, plain_angles, rms_norm, rotate, silu


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    angles = plain_angles(dim, model.key("rope.freq_base", 10000.0))
    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = ((h @ w[f"attn_{m}"].T).view(n, -1, dim) for m in "qkv")
        assert q.shape[1] == heads and k.shape[1] == kv_heads
        if index % 4 != 3:
            q, k = rotate(q, angles, adjacent=True), rotate(k, angles, adjacent=True)
        x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ w["attn_output"].T
        h = rms_norm(x, w["ffn_norm"], eps)
        x = x + (silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
