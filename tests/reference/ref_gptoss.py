# SPDX-License-Identifier: Apache-2.0
"""gpt-oss (OpenAI 2025).

Every other layer, from the first on, sees a window.  A head's softmax has one logit more, the sink, that takes part in
the sum and has no value.  YaRN blends between exact pairs, not whole ones.  Experts have biases, their gate is clamped:

    gate = min(gate, 7), up = within -7..7:   gate sigmoid(1.702 gate) (up + 1)

and the softmax that weighs them is over the chosen ones only."""
import math

import torch

from common import plain_angles, rms_norm, rotate, yarn_temperature
from experts import best


def exact_yarn_angles(dims, base, factor, original):
    def pair_at(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(pair_at(32.0), 0), min(pair_at(1.0), dims - 1)
    ramp = ((torch.arange(dims // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = plain_angles(dims, base)
    return plain / factor * ramp + plain * (1 - ramp)


def attention_with_sinks(q, k, v, sinks, window):
    n, heads, dim = q.shape
    group = heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    hidden = (j > i) | ((i - j >= window) if window else False)
    scores = (torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim)).masked_fill(hidden, -math.inf)
    scores = torch.cat((scores, sinks.view(heads, 1, 1).expand(heads, n, 1)), -1)
    return torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1)[..., :-1], v).flatten(1)


def expert(w, e, x):
    gate = (w["ffn_gate_exps"][e] @ x + w["ffn_gate_exps.bias"][e]).clamp(max=7)
    up = (w["ffn_up_exps"][e] @ x + w["ffn_up_exps.bias"][e]).clamp(-7, 7)
    return w["ffn_down_exps"][e] @ (gate * torch.sigmoid(1.702 * gate) * (up + 1)) + w["ffn_down_exps.bias"][e]


def mixture(model, w, x):
    out = torch.zeros_like(x)
    for token, scores in enumerate(x @ w["ffn_gate_inp"].T + w["ffn_gate_inp.bias"]):
        chosen = best(scores, model.key("expert_used_count"))
        for weight, e in zip(torch.softmax(scores[chosen], 0), chosen):
            out[token] += weight * expert(w, e, x[token])
    return out


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    factor = model.key("rope.scaling.factor")
    angles = exact_yarn_angles(dim, model.key("rope.freq_base"), factor,
                               model.key("rope.scaling.original_context_length"))
    x = model.tensors["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = (h @ w[f"attn_{part}"].T + w[f"attn_{part}.bias"] for part in "qkv")
        q, k, v = q.view(n, heads, dim), k.view(n, kv_heads, dim), v.view(n, kv_heads, dim)
        q, k = rotate(q, angles, yarn_temperature(factor)), rotate(k, angles, yarn_temperature(factor))
        window = model.key("attention.sliding_window") if index % 2 == 0 else None
        mixed = attention_with_sinks(q, k, v, w["attn_sinks"], window)
        x = x + mixed @ w["attn_output"].T + w["attn_output.bias"]
        x = x + mixture(model, w, rms_norm(x, w["post_attention_norm"], eps))
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T
