# SPDX-License-Identifier: Apache-2.0
"""gemma (Gemma Team 2024) and gemma3 (Gemma Team 2025, "Gemma 3 Technical Report").

Both scale embeddings by sqrt(hidden), gate with GELU and share the embedding with the head.  Gemma 3 norms each half of
a layer before and after, and norms the heads of Q and K. Five layers with a window and angles of base 10000 come before
one that sees all tokens.  That layer has base a million, and a factor may squeeze its positions.  The published models
have "1 + weight" for a gain; a converted file has the sum.

The 27B model, alone, divides scores by the root of hidden / heads instead of the heads' width."""
import math

import torch

from common import attention, gelu, plain_angles, rms_norm, rotate


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    n_layers, hidden = model.key("block_count"), model.key("embedding_length")
    is_3 = model.arch == "gemma3"
    window = model.key("attention.sliding_window", 0) if is_3 else 0
    everywhere = plain_angles(dim, model.key("rope.freq_base", 10000.0)) / model.key("rope.scaling.factor", 1.0)
    nearby = plain_angles(dim, model.key("rope.freq_base_swa", 10000.0))
    scale = 1 / math.sqrt(hidden / heads if is_3 and n_layers == 62 else dim)
    x = model.tensors["token_embd.weight"][tokens] * math.sqrt(hidden)
    n = len(tokens)
    for index in range(n_layers):
        w = model.layer(index)
        is_local = window and index % 6 != 5
        angles = nearby if is_local else everywhere
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = ((h @ w[f"attn_{m}"].T).view(n, -1, dim) for m in "qkv")
        assert q.shape[1] == heads and k.shape[1] == kv_heads
        if is_3:
            q, k = rms_norm(q, w["attn_q_norm"], eps), rms_norm(k, w["attn_k_norm"], eps)
        mixed = attention(rotate(q, angles), rotate(k, angles), v, scale, window if is_local else None)
        h = mixed @ w["attn_output"].T
        x = x + (rms_norm(h, w["post_attention_norm"], eps) if is_3 else h)
        h = rms_norm(x, w["ffn_norm"], eps)
        h = (gelu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        x = x + (rms_norm(h, w["post_ffw_norm"], eps) if is_3 else h)
    logits, cap = rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T, model.key("final_logit_softcapping")
    return torch.tanh(logits / cap) * cap if cap else logits
