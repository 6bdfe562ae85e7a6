# SPDX-License-Identifier: Apache-2.0
"""Mixtral (Jiang et al. 2024): architecture llama with experts.

The feed-forward is a router and E experts: the k largest scores are chosen, and the softmax over these alone weighs the
outputs of their experts.  Pairs of a head lie side by side."""
import math

import torch

from common import attention, plain_angles, rms_norm, rotate
from experts import best, mixture


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    angles = plain_angles(dim, model.key("rope.freq_base", 10000.0))

    def choose(scores):
        chosen = best(scores, model.key("expert_used_count"))
        return chosen, torch.softmax(scores[chosen], 0)

    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = h @ w["attn_q"].T, h @ w["attn_k"].T, h @ w["attn_v"].T
        q, k, v = q.view(n, heads, dim), k.view(n, kv_heads, dim), v.view(n, kv_heads, dim)
        q, k = rotate(q, angles, adjacent=True), rotate(k, angles, adjacent=True)
        x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ w["attn_output"].T
        x = x + mixture(w, rms_norm(x, w["ffn_norm"], eps), choose)
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
