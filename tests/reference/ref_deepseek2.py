#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""DeepSeek V2, V2-Lite and V3 (DeepSeek-AI 2024): golden files for tests/unit/engine/test_golden.c.

    tests/reference/ref_deepseek2.py [OUTPUT_FOLDER]          (needs python3-torch and python3-numpy)

Multi-head latent attention as the papers write it down, nothing absorbed: the latent c of a token is expanded by
Wkv_b to a key and a value per head, the rotary part of the key is shared by all heads.

    q          = Wq x   or   Wq_b norm(Wq_a x)            [heads][nope + rope]
    c, k_rope  = split(Wkv_a x);  c = norm(c)             [lora], [rope]
    k, v       = split(Wkv_b c)                           [heads][nope], [heads][value]
    score      = scale * (q_nope . k + q_rope . k_rope)

YaRN as these models use it: sines of magnitude 1, and scale = m^2 / sqrt(nope + rope), m = 1 + 0.1 a ln(factor), where
a is the configuration's mscale_all_dim; files carry 0.1 a as rope.scaling.yarn_log_multiplier.

The choice of experts:
    V2    softmax over all; with groups, the groups with the largest single probability stay in
    V3    sigmoid; the choice (not the weight) adds a bias per expert; a group counts by its two best
then weights are divided by their sum (when "norm") and times the routed scaling factor; shared experts always run."""
import math

import numpy as np
import torch

import moe_common as m
from make_golden import inverse_frequencies

COMMON = dict(layers=2, dense=1, hidden=32, ffn=48, expert_ffn=16, heads=4, q_lora=0, lora=32, nope=16, rope=8, value=16,
              vocab=64, context=256, eps=1e-6, base=10000.0, experts=6, used=2, shared=2, groups=1, groups_used=1,
              sigmoid=False, norm=False, scale=1.0, split=False, n_tokens=32, types={}, type=m.F32, scaling=None,
              new_keys=False)
CASES = [
    dict(COMMON, seed=124, name="deepseek2-lite", about="V2-Lite: direct q, joined kv_b, softmax, YaRN", scale=1.5,
         scaling=dict(type="yarn", factor=40.0, original=16, mscale=0.707)),
    dict(COMMON, seed=122, name="deepseek2-v2", about="V2: compressed q, groups by their best, F16", q_lora=24, layers=2,
         dense=0, experts=8, used=3, groups=4, groups_used=2, scale=4.0, nope=24, type=m.F16),
    dict(COMMON, seed=123, name="deepseek2-v3", about="V3: split k_b and v_b, sigmoid, bias, groups by their two best",
         q_lora=24, experts=8, used=3, shared=1, groups=4, groups_used=2, sigmoid=True, norm=True, scale=2.5,
         split=True, new_keys=True, scaling=dict(type="yarn", factor=8.0, original=32, mscale=1.0)),
]


def shapes_of(case):
    hidden, vocab, heads, experts = case["hidden"], case["vocab"], case["heads"], case["experts"]
    q = heads * (case["nope"] + case["rope"])
    shapes = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,), "output.weight": (vocab, hidden)}
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        shapes[p + "attn_norm.weight"] = (hidden,)
        if case["q_lora"]:
            shapes |= {p + "attn_q_a.weight": (case["q_lora"], hidden), p + "attn_q_a_norm.weight": (case["q_lora"],),
                       p + "attn_q_b.weight": (q, case["q_lora"])}
        else:
            shapes[p + "attn_q.weight"] = (q, hidden)
        shapes |= {p + "attn_kv_a_mqa.weight": (case["lora"] + case["rope"], hidden),
                   p + "attn_kv_a_norm.weight": (case["lora"],),
                   p + "attn_kv_b.weight": (heads * (case["nope"] + case["value"]), case["lora"]),
                   p + "attn_output.weight": (hidden, heads * case["value"]), p + "ffn_norm.weight": (hidden,)}
        if layer < case["dense"]:
            shapes |= {p + "ffn_gate.weight": (case["ffn"], hidden), p + "ffn_up.weight": (case["ffn"], hidden),
                       p + "ffn_down.weight": (hidden, case["ffn"])}
            continue
        one, wide = case["expert_ffn"], case["expert_ffn"] * case["shared"]
        shapes |= {p + "ffn_gate_inp.weight": (experts, hidden), p + "ffn_gate_exps.weight": (experts, one, hidden),
                   p + "ffn_up_exps.weight": (experts, one, hidden), p + "ffn_down_exps.weight": (experts, hidden, one),
                   p + "ffn_gate_shexp.weight": (wide, hidden), p + "ffn_up_shexp.weight": (wide, hidden),
                   p + "ffn_down_shexp.weight": (hidden, wide)}
        if case["sigmoid"]:
            shapes[p + "exp_probs_b.bias"] = (experts,)
    return shapes


def turn(x, case):
    """x: [tokens][heads][rope]; pairs side by side, magnitude 1."""
    scaled = dict(rope_dims=case["rope"], base=case["base"], scaling=case["scaling"] or {})
    angle, _ = inverse_frequencies(scaled)
    theta = torch.arange(x.shape[0])[:, None] * angle[None, :]
    cos, sin = torch.cos(theta)[:, None, :], torch.sin(theta)[:, None, :]
    out = x.clone()
    a, b = x[..., 0::2], x[..., 1::2]
    out[..., 0::2], out[..., 1::2] = a * cos - b * sin, a * sin + b * cos
    return out


def softmax_scale(case):
    plain = 1 / math.sqrt(case["nope"] + case["rope"])
    if not case["scaling"]:
        return plain
    return plain * (1 + 0.1 * case["scaling"]["mscale"] * math.log(case["scaling"]["factor"])) ** 2


def attention(case, w, h, p):
    heads, nope, value, lora, n = case["heads"], case["nope"], case["value"], case["lora"], h.shape[0]
    if case["q_lora"]:
        low = m.rms_norm(m.times(h, w, p + "attn_q_a.weight"), w[p + "attn_q_a_norm.weight"][0], case["eps"])
        q = m.times(low, w, p + "attn_q_b.weight")
    else:
        q = m.times(h, w, p + "attn_q.weight")
    q = q.view(n, heads, nope + case["rope"])
    q_nope, q_rope = q[..., :nope], turn(q[..., nope:], case)
    both = m.times(h, w, p + "attn_kv_a_mqa.weight")
    c = m.rms_norm(both[:, :lora], w[p + "attn_kv_a_norm.weight"][0], case["eps"])
    k_rope = turn(both[:, None, lora:], case)[:, 0]
    kv = m.times(c, w, p + "attn_kv_b.weight").view(n, heads, nope + value)
    scores = torch.einsum("ihd,jhd->hij", q_nope, kv[..., :nope]) + torch.einsum("ihd,jd->hij", q_rope, k_rope)
    scores = scores * softmax_scale(case) + torch.full((n, n), -math.inf).triu(1)
    mixed = torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), kv[..., nope:]).reshape(n, heads * value)
    return m.times(mixed, w, p + "attn_output.weight")


def chosen_experts(case, scores, bias):
    """Of one token: experts and weights."""
    chance = torch.sigmoid(scores) if case["sigmoid"] else torch.softmax(scores, 0)
    order = chance + bias
    if case["groups"] > 1:
        members = order.view(case["groups"], -1)
        worth = [sum(sorted(g.tolist())[-2:]) if case["sigmoid"] else float(g.max()) for g in members]
        kept = m.top(worth, case["groups_used"])
        order = order.clone()
        for g in range(case["groups"]):
            if g not in kept:
                order.view(case["groups"], -1)[g] = -math.inf
    chosen = m.top(order, case["used"])
    weights = chance[chosen]
    if case["norm"]:
        weights = weights / weights.sum()
    return chosen, weights * case["scale"]


def moe(case, w, x, p):
    scores = m.times(x, w, p + "ffn_gate_inp.weight")
    bias = w[p + "exp_probs_b.bias"][0] if case["sigmoid"] else torch.zeros(case["experts"])
    out = m.swiglu(w, x, *(p + f"ffn_{part}_shexp.weight" for part in ("gate", "up", "down")))
    for t in range(x.shape[0]):
        chosen, weights = chosen_experts(case, scores[t], bias)
        for expert, weight in zip(chosen, weights):
            out[t] += weight * m.expert_ffn(w, x[t:t + 1], p, expert)[0]
    return out


def forward(case, w, tokens):
    x = w["token_embd.weight"][0][torch.tensor(tokens)]
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        x = x + attention(case, w, m.rms_norm(x, w[p + "attn_norm.weight"][0], case["eps"]), p)
        h = m.rms_norm(x, w[p + "ffn_norm.weight"][0], case["eps"])
        if layer < case["dense"]:
            x = x + m.swiglu(w, h, *(p + f"ffn_{part}.weight" for part in ("gate", "up", "down")))
        else:
            x = x + moe(case, w, h, p)
    return m.times(m.rms_norm(x, w["output_norm.weight"][0], case["eps"]), w, "output.weight")


def split_kv_b(case, stored, values):
    """attn_kv_b [heads][nope + value][lora] -> attn_k_b [heads][lora][nope] and attn_v_b [heads][value][lora]"""
    out = {}
    for name, (kind, shape, data) in stored.items():
        if "attn_kv_b" not in name:
            out[name] = (kind, shape, data)
            continue
        both = values[name][0].view(case["heads"], case["nope"] + case["value"], case["lora"]).numpy()
        k, v = both[:, :case["nope"]].transpose(0, 2, 1), both[:, case["nope"]:]
        for part, value in (("k_b", np.ascontiguousarray(k)), ("v_b", np.ascontiguousarray(v))):
            out[name.replace("kv_b", part)] = (kind, value.shape, m.STORE[kind](value)[0])
    return out


def keys_of(case):
    a = "deepseek2."
    keys = {"general.architecture": "deepseek2", "general.name": case["name"], "baton.golden.name": case["about"],
            a + "block_count": case["layers"], a + "context_length": case["context"],
            a + "embedding_length": case["hidden"], a + "feed_forward_length": case["ffn"],
            a + "leading_dense_block_count": case["dense"], a + "expert_feed_forward_length": case["expert_ffn"],
            a + "attention.head_count": case["heads"], a + "attention.kv_lora_rank": case["lora"],
            a + "attention.layer_norm_rms_epsilon": case["eps"], a + "rope.freq_base": case["base"],
            a + "rope.dimension_count": case["rope"], a + "expert_count": case["experts"],
            a + "expert_used_count": case["used"], a + "expert_shared_count": case["shared"],
            a + "expert_weights_scale": case["scale"]}
    if case["new_keys"]:
        keys |= {a + "attention.head_count_kv": 1, a + "attention.key_length": case["lora"] + case["rope"],
                 a + "attention.value_length": case["lora"],
                 a + "attention.key_length_mla": case["nope"] + case["rope"],
                 a + "attention.value_length_mla": case["value"], a + "expert_gating_func": 2 if case["sigmoid"] else 1,
                 a + "expert_weights_norm": case["norm"]}
    else:
        keys |= {a + "attention.head_count_kv": case["heads"], a + "attention.key_length": case["nope"] + case["rope"],
                 a + "attention.value_length": case["value"]}
    if case["q_lora"]:
        keys[a + "attention.q_lora_rank"] = case["q_lora"]
    if case["groups"] > 1:
        keys |= {a + "expert_group_count": case["groups"], a + "expert_group_used_count": case["groups_used"]}
    if case["scaling"]:
        keys |= {a + "rope.scaling.type": "yarn", a + "rope.scaling.factor": case["scaling"]["factor"],
                 a + "rope.scaling.original_context_length": case["scaling"]["original"],
                 a + "rope.scaling.yarn_log_multiplier": 0.1 * case["scaling"]["mscale"]}
    return keys


def make(case, folder):
    rng = np.random.default_rng(case["seed"])
    case = dict(case, eps=m.as_read(case["eps"]))
    stored, values = m.random_tensors(shapes_of(case), case["types"], case["type"], rng)
    tokens = [int(t) for t in rng.integers(0, case["vocab"], case["n_tokens"])]
    m.save(folder / f"{case['name']}.gguf", keys_of(case), split_kv_b(case, stored, values) if case["split"] else stored,
           tokens, forward(case, values, tokens))


def main():
    for case in CASES:
        make(case, m.folder())


if __name__ == "__main__":
    main()
