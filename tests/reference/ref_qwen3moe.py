#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Qwen3-MoE (Qwen3 technical report, 2025): golden files for tests/unit/engine/test_golden.c.

    tests/reference/ref_qwen3moe.py [OUTPUT_FOLDER]          (needs python3-torch and python3-numpy)

Against Mixtral: every head of q and k is normalised (RMS, one gain of head_dim for all heads) before it is turned,
pairs are halves apart, experts are narrow and many, and the router's softmax is over all experts: the k largest
probabilities are chosen and divided by their sum."""
import math

import numpy as np
import torch

import moe_common as m
from make_golden import rotate

COMMON = dict(layers=2, hidden=32, ffn=96, expert_ffn=16, heads=4, kv_heads=2, head_dim=16, rope_dims=16, vocab=64,
              context=256, eps=1e-6, base=1000000.0, experts=8, used=3, n_tokens=32, types={}, type=m.F32)
CASES = [
    dict(COMMON, seed=111, name="qwen3moe-f32", about="qwen3moe, 8 experts, 3 used, F32"),
    dict(COMMON, seed=112, name="qwen3moe-mixed", about="qwen3moe, F16 and BF16 and Q8_0 experts", layers=1,
         expert_ffn=32, types={"gate_exps": m.F16, "up_exps": m.BF16, "down_exps": m.Q8_0}),
]


def shapes_of(case):
    hidden, ffn, vocab, experts = case["hidden"], case["expert_ffn"], case["vocab"], case["experts"]
    dim, q, kv = case["head_dim"], case["heads"] * case["head_dim"], case["kv_heads"] * case["head_dim"]
    shapes = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,), "output.weight": (vocab, hidden)}
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        shapes |= {p + "attn_norm.weight": (hidden,), p + "attn_q.weight": (q, hidden),
                   p + "attn_k.weight": (kv, hidden), p + "attn_v.weight": (kv, hidden),
                   p + "attn_q_norm.weight": (dim,), p + "attn_k_norm.weight": (dim,),
                   p + "attn_output.weight": (hidden, q), p + "ffn_norm.weight": (hidden,),
                   p + "ffn_gate_inp.weight": (experts, hidden), p + "ffn_gate_exps.weight": (experts, ffn, hidden),
                   p + "ffn_up_exps.weight": (experts, ffn, hidden),
                   p + "ffn_down_exps.weight": (experts, hidden, ffn)}
    return shapes


def moe(case, w, x, p):
    chance = torch.softmax(m.times(x, w, p + "ffn_gate_inp.weight"), -1)
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        chosen = m.top(chance[t], case["used"])
        total = sum(chance[t][e] for e in chosen)
        for expert in chosen:
            out[t] += chance[t][expert] / total * m.expert_ffn(w, x[t:t + 1], p, expert)[0]
    return out


def forward(case, w, tokens):
    heads, kv_heads, dim, n = case["heads"], case["kv_heads"], case["head_dim"], len(tokens)
    x = w["token_embd.weight"][0][torch.tensor(tokens)]
    mask = torch.full((n, n), -math.inf).triu(1)
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        h = m.rms_norm(x, w[p + "attn_norm.weight"][0], case["eps"])
        q, k, v = (m.times(h, w, p + f"attn_{part}.weight") for part in "qkv")
        q = m.rms_norm(q.view(n, heads, dim), w[p + "attn_q_norm.weight"][0], case["eps"])
        k = m.rms_norm(k.view(n, kv_heads, dim), w[p + "attn_k_norm.weight"][0], case["eps"])
        q, k = rotate(q, case, False), rotate(k, case, False).repeat_interleave(heads // kv_heads, 1)
        v = v.view(n, kv_heads, dim).repeat_interleave(heads // kv_heads, 1)
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + mask
        mixed = torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v).reshape(n, heads * dim)
        x = x + m.times(mixed, w, p + "attn_output.weight")
        x = x + moe(case, w, m.rms_norm(x, w[p + "ffn_norm.weight"][0], case["eps"]), p)
    return m.times(m.rms_norm(x, w["output_norm.weight"][0], case["eps"]), w, "output.weight")


def make(case, folder):
    rng = np.random.default_rng(case["seed"])
    case = dict(case, eps=m.as_read(case["eps"]))
    stored, values = m.random_tensors(shapes_of(case), case["types"], case["type"], rng)
    tokens = [int(t) for t in rng.integers(0, case["vocab"], case["n_tokens"])]
    a = "qwen3moe."
    keys = {"general.architecture": "qwen3moe", "general.name": case["name"], "baton.golden.name": case["about"],
            a + "block_count": case["layers"], a + "context_length": case["context"],
            a + "embedding_length": case["hidden"], a + "feed_forward_length": case["ffn"],
            a + "expert_feed_forward_length": case["expert_ffn"],
            a + "attention.head_count": case["heads"], a + "attention.head_count_kv": case["kv_heads"],
            a + "attention.key_length": case["head_dim"], a + "attention.value_length": case["head_dim"],
            a + "attention.layer_norm_rms_epsilon": case["eps"], a + "rope.freq_base": case["base"],
            a + "expert_count": case["experts"], a + "expert_used_count": case["used"]}
    m.save(folder / f"{case['name']}.gguf", keys, stored, tokens, forward(case, values, tokens))


def main():
    for case in CASES:
        make(case, m.folder())


if __name__ == "__main__":
    main()
