# SPDX-License-Identifier: Apache-2.0
"""deepseek2: DeepSeek V2, V2-Lite (DeepSeek-AI 2024a) and V3 (2024b).

Multi-head latent attention as the papers write it down, nothing absorbed: the latent c of a token is expanded by Wkv_b
to a key and a value per head; the rotary part of the key is shared by all heads.

    q          = Wq x   or   Wq_b norm(Wq_a x)            [heads][nope + rope]
    c, k_rope  = split(Wkv_a x);  c = norm(c)             [latent], [rope]
    k, v       = split(Wkv_b c)                           [heads][nope], [heads][value]
    score      = scale * (q_nope . k + q_rope . k_rope)

YaRN as these models use it: sines of magnitude 1, and scale = m^2 / sqrt(nope + rope), m = 1 + 0.1 a ln(factor), where
a is the configuration's mscale_all_dim; files carry 0.1 a as rope.scaling.yarn_log_multiplier.

The choice of experts:
    V2    softmax over all; with groups, those with the largest single probability stay in
    V3    sigmoid; the choice (not the weight) adds a bias per expert; a group counts by its two best
then weights are divided by their sum (where the configuration says so) and times the routed scaling factor; shared
experts always run, as one wide feed-forward.

Mistral Large 3 also multiplies queries by 1 + scale log(1 + whole original contexts before them). Youtu has no
experts."""
import math

import torch

from common import plain_angles, rms_norm, rotate, yarn_angles
from experts import best, mixture, swiglu


def rope_of(model):
    """Angles, and what becomes of the softmax scale."""
    dims, base = model.key("rope.dimension_count"), model.key("rope.freq_base", 10000.0)
    if model.key("rope.scaling.type") != "yarn":
        return plain_angles(dims, base), 1.0
    factor = model.key("rope.scaling.factor")
    angles = yarn_angles(dims, base, factor, model.key("rope.scaling.original_context_length"))
    return angles, (1 + model.key("rope.scaling.yarn_log_multiplier") * math.log(factor)) ** 2


def latent_attention(model, w, h, eps):
    heads, latent, n = model.key("attention.head_count"), model.key("attention.kv_lora_rank"), h.shape[0]
    width = model.key("attention.key_length_mla", model.key("attention.key_length"))
    value = model.key("attention.value_length_mla", model.key("attention.value_length"))
    nope = width - model.key("rope.dimension_count")
    angles, times = rope_of(model)
    if "attn_q_a" in w:
        q = rms_norm(h @ w["attn_q_a"].T, w["attn_q_a_norm"], eps) @ w["attn_q_b"].T
    else:
        q = h @ w["attn_q"].T
    q = q.view(n, heads, width)
    if model.key("attention.temperature_scale"):
        contexts = torch.arange(n) // model.key("attention.temperature_length")
        q = q * (1 + model.key("attention.temperature_scale") * torch.log1p(contexts.double()))[:, None, None]
    q_rope = rotate(q[..., nope:], angles, adjacent=True)
    both = h @ w["attn_kv_a_mqa"].T
    c = rms_norm(both[:, :latent], w["attn_kv_a_norm"], eps)
    k_rope = rotate(both[:, None, latent:], angles, adjacent=True)[:, 0]
    kv = (c @ w["attn_kv_b"].T).view(n, heads, nope + value)
    scores = torch.einsum("ihd,jhd->hij", q[..., :nope], kv[..., :nope]) + torch.einsum("ihd,jd->hij", q_rope, k_rope)
    scores = scores * times / math.sqrt(width) + torch.full((n, n), -math.inf).triu(1)
    return torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), kv[..., nope:]).flatten(1) @ w["attn_output"].T


def chooser(model, bias):
    used, groups = model.key("expert_used_count"), model.key("expert_group_count", 1)
    is_v3 = model.key("expert_gating_func", 1) == 2

    def choose(scores):
        chance = torch.sigmoid(scores) if is_v3 else torch.softmax(scores, 0)
        order = (chance + bias).view(groups, -1).clone()
        worth = [sum(sorted(group.tolist())[-2:]) if is_v3 else float(group.max()) for group in order]
        for group in set(range(groups)) - set(best(worth, model.key("expert_group_used_count", groups))):
            order[group] = -math.inf
        chosen = best(order.flatten(), used)
        weights = chance[chosen]
        if model.key("expert_weights_norm", False):
            weights = weights / weights.sum()
        return chosen, weights * model.key("expert_weights_scale", 1.0)

    return choose


def layer(model, index, x):
    w, eps = model.layer(index), model.key("attention.layer_norm_rms_epsilon")
    x = x + latent_attention(model, w, rms_norm(x, w["attn_norm"], eps), eps)
    h = rms_norm(x, w["ffn_norm"], eps)
    if index < model.key("leading_dense_block_count", 0) or not model.key("expert_count"):
        return x + swiglu(h, w["ffn_gate"], w["ffn_up"], w["ffn_down"])
    bias = w.get("exp_probs_b.bias", torch.zeros(model.key("expert_count")))
    x = x + mixture(w, h, chooser(model, bias))
    return x + swiglu(h, w["ffn_gate_shexp"], w["ffn_up_shexp"], w["ffn_down_shexp"])


def rows(model, tokens):
    """The rows that the output head reads."""
    x = model.tensors["token_embd.weight"][tokens]
    for index in range(model.key("block_count")):
        x = layer(model, index, x)
    return rms_norm(x, model.tensors["output_norm.weight"], model.key("attention.layer_norm_rms_epsilon"))


def forward(model, tokens):
    return rows(model, tokens) @ model.head.T
