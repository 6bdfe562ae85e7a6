# SPDX-License-Identifier: Apache-2.0
"""qwen3moe (Yang et al. 2025): Qwen 3's attention, and narrow experts.

The router's softmax is over all experts; the k largest probabilities are chosen and divided by their sum."""
import math

import torch

from common import attention, plain_angles, rms_norm, rotate
from experts import best, mixture


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    angles = plain_angles(dim, model.key("rope.freq_base"))

    def choose(scores):
        chance = torch.softmax(scores, 0)
        chosen = best(chance, model.key("expert_used_count"))
        return chosen, chance[chosen] / chance[chosen].sum()

    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = h @ w["attn_q"].T, h @ w["attn_k"].T, h @ w["attn_v"].T
        q, k, v = q.view(n, heads, dim), k.view(n, kv_heads, dim), v.view(n, kv_heads, dim)
        q, k = rms_norm(q, w["attn_q_norm"], eps), rms_norm(k, w["attn_k_norm"], eps)
        q, k = rotate(q, angles), rotate(k, angles)
        x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ w["attn_output"].T
        x = x + mixture(w, rms_norm(x, w["ffn_norm"], eps), choose)
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
