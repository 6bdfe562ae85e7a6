# SPDX-License-Identifier: Apache-2.0
"""Families with Mamba 2; their reference is their published implementation in Hugging Face transformers, in float64.

Each function below gives the configuration and the tensors of one family, from the keys and tensors of the GGUF: what
llama.cpp's converter does, backwards. Written with transformers 5.24.0 and torch 2.15.0 (CPU)."""
import contextlib

import torch
import transformers

from ref_hf import halves
from ref_hf_hybrid import common_settings, take

MIXER = {"in_proj": "ssm_in", "out_proj": "ssm_out"}
ATTENTION = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}


def listed(model, key):
    value = model.key(key)
    return value if isinstance(value, list) else [value] * model.key("block_count")


def mamba_settings(model, prefix, inner="head_dim"):
    heads = model.key("ssm.time_step_rank")
    return {f"{prefix}{name}": value for name, value in {
        "n_heads": heads, inner: model.key("ssm.inner_size") // heads, "n_groups": model.key("ssm.group_count"),
        "d_state": model.key("ssm.state_size"), "d_conv": model.key("ssm.conv_kernel")}.items()}


def mixer(state, at, w):
    """The tensors of a Mamba 2 mixer at `at`, if the layer has one."""
    if "ssm_in" not in w:
        return
    take(state, at, w, MIXER)
    state[f"{at}.conv1d.weight"] = w["ssm_conv1d"][:, None, :]
    state[f"{at}.conv1d.bias"] = w["ssm_conv1d.bias"]
    state[f"{at}.dt_bias"] = w["ssm_dt.bias"]
    state[f"{at}.A_log"] = torch.log(-w["ssm_a"]).flatten()
    state[f"{at}.D"] = w["ssm_d"].flatten()
    if "ssm_norm" in w:
        state[f"{at}.norm.weight"] = w["ssm_norm"].flatten()


def outside(model, embedding, final):
    return {embedding: model.tensors["token_embd.weight"], "lm_head.weight": model.head,
            final: model.tensors["output_norm.weight"]}


def granite(model):
    experts = model.key("expert_count", 0)
    kinds = ["full_attention" if n else "linear_attention" for n in listed(model, "attention.head_count_kv")]
    settings = common_settings(model)
    settings.pop("rope_parameters")
    width = model.key("expert_shared_feed_forward_length") if experts else model.key("feed_forward_length")
    config = transformers.GraniteMoeHybridConfig(**{
        **settings, **mamba_settings(model, "mamba_", "d_head"), "layer_types": kinds, "num_local_experts": experts,
        "num_experts_per_tok": model.key("expert_used_count", 1), "shared_intermediate_size": width,
        "intermediate_size": model.key("expert_feed_forward_length", 1), "_experts_implementation": "eager",
        "rms_norm_eps": model.key("attention.layer_norm_rms_epsilon"), "position_embedding_type": None,
        "embedding_multiplier": model.key("embedding_scale"), "residual_multiplier": model.key("residual_scale"),
        "attention_multiplier": model.key("attention.scale"), "logits_scaling": model.key("logit_scale")})
    state = outside(model, "model.embed_tokens.weight", "model.norm.weight")
    gated = ("ffn_gate_shexp", "ffn_up_shexp") if experts else ("ffn_gate", "ffn_up")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        for name, heads in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
            if name in w:
                w[name] = halves(w[name], max(listed(model, f"attention.{heads}")), True)
        take(state, f"{at}.self_attn", w, ATTENTION)
        mixer(state, f"{at}.mamba", w)
        take(state, at, w, {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
                            "shared_mlp.output_linear": "ffn_down_shexp" if experts else "ffn_down",
                            "block_sparse_moe.router": "ffn_gate_inp"})
        state[f"{at}.shared_mlp.input_linear.weight"] = torch.cat([w[name] for name in gated])
        if experts:
            state[f"{at}.block_sparse_moe.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
            state[f"{at}.block_sparse_moe.experts.down_proj"] = w["ffn_down_exps"]
    return transformers.GraniteMoeHybridForCausalLM(config), state


def routed(model):
    return {"n_routed_experts": model.key("expert_count"), "num_experts_per_tok": model.key("expert_used_count"),
            "moe_intermediate_size": model.key("expert_feed_forward_length"), "n_shared_experts": 1,
            "moe_shared_expert_intermediate_size": model.key("expert_shared_feed_forward_length"),
            "moe_latent_size": model.key("moe_latent_size"), "norm_topk_prob": True,
            "routed_scaling_factor": model.key("expert_weights_scale"), "_experts_implementation": "eager",
            "n_group": model.key("expert_group_count", 1), "topk_group": model.key("expert_group_used_count", 1)}


def nemotron_h(model):
    widths, heads = listed(model, "feed_forward_length"), listed(model, "attention.head_count_kv")
    experts = model.key("expert_count", 0)
    network = "moe" if experts else "mlp"
    kinds = [network if f else "full_attention" if h else "linear_attention" for f, h in zip(widths, heads)]
    n_heads = model.key("ssm.time_step_rank")
    settings = common_settings(model)
    settings.pop("rope_parameters"), settings.pop("num_hidden_layers")
    config = transformers.NemotronHConfig(**{
        **settings, "layers_block_type": kinds, "intermediate_size": max(widths), "mamba_num_heads": n_heads,
        "mamba_head_dim": model.key("ssm.inner_size") // n_heads, "n_groups": model.key("ssm.group_count"),
        "ssm_state_size": model.key("ssm.state_size"), "conv_kernel": model.key("ssm.conv_kernel"),
        "head_dim": model.key("attention.key_length"), **(routed(model) if experts else {}),
        "layer_norm_epsilon": model.key("attention.layer_norm_rms_epsilon")})
    state = outside(model, "model.embeddings.weight", "model.norm_f.weight")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        mixer(state, f"{at}.mixer", w)
        take(state, at, w, {"norm": "attn_norm", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down",
                            "mixer.gate": "ffn_gate_inp", "mixer.shared_experts.up_proj": "ffn_up_shexp",
                            "mixer.shared_experts.down_proj": "ffn_down_shexp",
                            "mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up"})
        if "ffn_up_exps" in w:
            state[f"{at}.mixer.experts.up_proj"] = w["ffn_up_exps"]
            state[f"{at}.mixer.experts.down_proj"] = w["ffn_down_exps"]
            state[f"{at}.mixer.gate.e_score_correction_bias"] = w["exp_probs_b.bias"]
        take(state, f"{at}.mixer", w, ATTENTION)
    return transformers.NemotronHForCausalLM(config), state


def falcon_h1(model):
    has_norm = "ssm_norm" in model.layer(0)
    config = transformers.FalconH1Config(**{
        **common_settings(model), **mamba_settings(model, "mamba_", "d_head"), "mamba_d_ssm": model.key("ssm.inner_size"),
        "mamba_rms_norm": has_norm, "mamba_norm_before_gate": False, "head_dim": model.key("attention.key_length"),
        "rms_norm_eps": model.key("attention.layer_norm_rms_epsilon")})
    state = outside(model, "model.embed_tokens.weight", "model.final_layernorm.weight")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        mixer(state, f"{at}.mamba", w)
        take(state, f"{at}.self_attn", w, ATTENTION)
        take(state, at, w, {"input_layernorm": "attn_norm", "pre_ff_layernorm": "ffn_norm",
                            "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
                            "feed_forward.down_proj": "ffn_down"})
    return transformers.FalconH1ForCausalLM(config), state


def mamba2(model):
    heads = model.key("ssm.time_step_rank")
    config = transformers.Mamba2Config(
        vocab_size=model.tensors["token_embd.weight"].shape[0], hidden_size=model.key("embedding_length"),
        num_hidden_layers=model.key("block_count"), num_heads=heads, head_dim=model.key("ssm.inner_size") // heads,
        n_groups=model.key("ssm.group_count"), state_size=model.key("ssm.state_size"),
        conv_kernel=model.key("ssm.conv_kernel"), layer_norm_epsilon=model.key("attention.layer_norm_rms_epsilon"),
        tie_word_embeddings=False, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    state = outside(model, "backbone.embeddings.weight", "backbone.norm_f.weight")
    for i in range(model.key("block_count")):
        w = model.layer(i)
        mixer(state, f"backbone.layers.{i}.mixer", w)
        take(state, f"backbone.layers.{i}", w, {"norm": "attn_norm"})
    return transformers.Mamba2ForCausalLM(config), state


FAMILIES = {"granitehybrid": granite, "nemotron_h": nemotron_h, "nemotron_h_moe": nemotron_h,
            "falcon-h1": falcon_h1, "mamba2": mamba2}


@contextlib.contextmanager
def wide():
    """transformers computes norms and recurrences in float32 for all types of weights; here in float64."""
    narrow = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = narrow


def forward(model, tokens):
    network, state = FAMILIES[model.arch](model)
    network = network.double().eval()
    network.load_state_dict(state, strict=True)
    with torch.no_grad(), wide():
        return network(tokens[None], use_cache=False).logits[0]
