#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Mixtral (Jiang et al. 2024) as the llama architecture with experts: golden files for tests/unit/engine/test_golden.c.

    tests/reference/ref_mixtral.py [OUTPUT_FOLDER]          (needs python3-torch and python3-numpy)

A layer's feed-forward is a router and E experts: scores = x . Wr^T, the k largest are chosen, their softmax (over the
chosen only) weighs the outputs of k SwiGLU experts.  "split" is how old files store experts: a tensor each."""
import math

import numpy as np
import torch

import moe_common as m
from make_golden import rotate

COMMON = dict(layers=2, hidden=32, ffn=32, heads=4, kv_heads=2, head_dim=8, rope_dims=8, vocab=64, context=256,
              eps=1e-5, base=10000.0, experts=4, used=2, n_tokens=32, split=False, types={}, type=m.F32)
CASES = [
    dict(COMMON, seed=101, name="mixtral-f32", about="llama with 4 experts, 2 used, F32"),
    dict(COMMON, seed=102, name="mixtral-q8_0", about="llama with 6 experts, 3 used, Q8_0 experts", experts=6, used=3,
         layers=1, ffn=64, types={"_exps": m.Q8_0}),
    dict(COMMON, seed=103, name="mixtral-split", about="llama with experts in tensors of their own", layers=1,
         experts=5, used=2, split=True),
]


def shapes_of(case):
    hidden, ffn, vocab, experts = case["hidden"], case["ffn"], case["vocab"], case["experts"]
    q, kv = case["heads"] * case["head_dim"], case["kv_heads"] * case["head_dim"]
    shapes = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,), "output.weight": (vocab, hidden)}
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        shapes |= {p + "attn_norm.weight": (hidden,), p + "attn_q.weight": (q, hidden),
                   p + "attn_k.weight": (kv, hidden), p + "attn_v.weight": (kv, hidden),
                   p + "attn_output.weight": (hidden, q), p + "ffn_norm.weight": (hidden,),
                   p + "ffn_gate_inp.weight": (experts, hidden), p + "ffn_gate_exps.weight": (experts, ffn, hidden),
                   p + "ffn_up_exps.weight": (experts, ffn, hidden),
                   p + "ffn_down_exps.weight": (experts, hidden, ffn)}
    return shapes


def moe(case, w, x, p):
    scores = m.times(x, w, p + "ffn_gate_inp.weight")
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        chosen = m.top(scores[t], case["used"])
        weights = torch.softmax(scores[t][chosen], 0)
        for weight, expert in zip(weights, chosen):
            out[t] += weight * m.expert_ffn(w, x[t:t + 1], p, expert)[0]
    return out


def forward(case, w, tokens):
    heads, kv_heads, dim, n = case["heads"], case["kv_heads"], case["head_dim"], len(tokens)
    x = w["token_embd.weight"][0][torch.tensor(tokens)]
    mask = torch.full((n, n), -math.inf).triu(1)
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        h = m.rms_norm(x, w[p + "attn_norm.weight"][0], case["eps"])
        q, k, v = (m.times(h, w, p + f"attn_{part}.weight") for part in "qkv")
        q = rotate(q.view(n, heads, dim), case, True)
        k = rotate(k.view(n, kv_heads, dim), case, True).repeat_interleave(heads // kv_heads, 1)
        v = v.view(n, kv_heads, dim).repeat_interleave(heads // kv_heads, 1)
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + mask
        mixed = torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v).reshape(n, heads * dim)
        x = x + m.times(mixed, w, p + "attn_output.weight")
        x = x + moe(case, w, m.rms_norm(x, w[p + "ffn_norm.weight"][0], case["eps"]), p)
    return m.times(m.rms_norm(x, w["output_norm.weight"][0], case["eps"]), w, "output.weight")


def split_experts(stored):
    """ffn_gate_exps [E][rows][cols] -> ffn_gate.0 .. ffn_gate.E-1"""
    out = {}
    for name, (kind, shape, data) in stored.items():
        if "_exps." not in name:
            out[name] = (kind, shape, data)
            continue
        each = len(data) // shape[0]
        for e in range(shape[0]):
            out[name.replace("_exps.", f".{e}.")] = (kind, shape[1:], data[e * each:(e + 1) * each])
    return out


def make(case, folder):
    rng = np.random.default_rng(case["seed"])
    case = dict(case, eps=m.as_read(case["eps"]))
    stored, values = m.random_tensors(shapes_of(case), case["types"], case["type"], rng)
    tokens = [int(t) for t in rng.integers(0, case["vocab"], case["n_tokens"])]
    keys = {"general.architecture": "llama", "general.name": case["name"], "baton.golden.name": case["about"],
            "llama.block_count": case["layers"], "llama.context_length": case["context"],
            "llama.embedding_length": case["hidden"], "llama.feed_forward_length": case["ffn"],
            "llama.attention.head_count": case["heads"], "llama.attention.head_count_kv": case["kv_heads"],
            "llama.attention.layer_norm_rms_epsilon": case["eps"], "llama.rope.dimension_count": case["rope_dims"],
            "llama.rope.freq_base": case["base"], "llama.expert_count": case["experts"],
            "llama.expert_used_count": case["used"]}
    logits = forward(case, values, tokens)
    m.save(folder / f"{case['name']}.gguf", keys, split_experts(stored) if case["split"] else stored, tokens, logits)


def main():
    for case in CASES:
        make(case, m.folder())


if __name__ == "__main__":
    main()
