# SPDX-License-Identifier: Apache-2.0
"""Families with recurrent layers; their reference is their published implementation in Hugging Face transformers, in float64.

Each function below gives the configuration and the tensors of one family, from the keys and tensors of the GGUF: what
llama.cpp's converter does, backwards. Written with transformers 5.24.0 and torch 2.15.0 (CPU)."""
import torch
import transformers


def common_settings(model):
    kv_heads = model.key("attention.head_count_kv")
    kv_heads = kv_heads if isinstance(kv_heads, list) else [kv_heads]
    return {"vocab_size": model.tensors["token_embd.weight"].shape[0], "hidden_size": model.key("embedding_length"),
            "intermediate_size": model.key("feed_forward_length"), "num_hidden_layers": model.key("block_count"),
            "num_attention_heads": model.key("attention.head_count"), "num_key_value_heads": max(kv_heads),
            "rope_parameters": {"rope_type": "default", "rope_theta": model.key("rope.freq_base", 10000.0)},
            "max_position_embeddings": model.key("context_length"), "tie_word_embeddings": False,
            "pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "_attn_implementation": "eager"}


def whole(model, final, norm="output_norm.weight"):
    return {"model.embed_tokens.weight": model.tensors["token_embd.weight"], "lm_head.weight": model.head,
            final: model.tensors[norm]}


def take(state, at, w, names):
    for theirs, ours in names.items():
        if ours in w:
            state[f"{at}.{theirs}.weight"] = w[ours]


LFM2 = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down", "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm", "feed_forward.gate": "ffn_gate_inp"}


def lfm2_state(model):
    state = whole(model, "model.embedding_norm.weight", "token_embd_norm.weight")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        take(state, at, w, LFM2)
        if "shortconv.conv" in w:
            state[f"{at}.conv.conv.weight"] = w["shortconv.conv"][:, None, :]
        if "ffn_gate_exps" in w:
            state[f"{at}.feed_forward.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
            state[f"{at}.feed_forward.experts.down_proj"] = w["ffn_down_exps"]
            state[f"{at}.feed_forward.expert_bias"] = w["exp_probs_b.bias"]
    return state


def lfm2_settings(model):
    kinds = ["full_attention" if n else "conv" for n in model.key("attention.head_count_kv")]
    return {**common_settings(model), "norm_eps": model.key("attention.layer_norm_rms_epsilon"), "layer_types": kinds,
            "conv_L_cache": model.key("shortconv.l_cache"), "conv_bias": False}


def lfm2(model):
    config = transformers.Lfm2Config(**lfm2_settings(model), block_auto_adjust_ff_dim=False)
    return transformers.Lfm2ForCausalLM(config), lfm2_state(model)


def lfm2moe(model):
    config = transformers.Lfm2MoeConfig(
        **lfm2_settings(model), num_dense_layers=model.key("leading_dense_block_count", 0),
        num_experts=model.key("expert_count"), num_experts_per_tok=model.key("expert_used_count"),
        moe_intermediate_size=model.key("expert_feed_forward_length"), _experts_implementation="eager")
    return transformers.Lfm2MoeForCausalLM(config), lfm2_state(model)


QWEN35 = {"linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
          "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
          "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
          "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
          "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
          "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
          "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
          "mlp.shared_expert.down_proj": "ffn_down_shexp"}


def grouped(rows, keys, heads):
    """Reorders rows of value heads: in the file all heads of a key are neighbours, here the first head of each key comes first."""
    return rows.unflatten(0, (heads // keys, keys, -1)).transpose(0, 1).flatten(0, 2)


def delta_parts(model, w):
    keys, heads = model.key("ssm.group_count"), model.key("ssm.time_step_rank")
    n_keys = 2 * keys * model.key("ssm.state_size")
    conv = w["ssm_conv1d"]
    parts = {"attn_qkv": torch.cat((w["attn_qkv"][:n_keys], grouped(w["attn_qkv"][n_keys:], keys, heads))),
             "ssm_out": grouped(w["ssm_out"].T, keys, heads).T.contiguous()}
    parts.update({name: grouped(w[name], keys, heads) for name in ("attn_gate", "ssm_beta", "ssm_alpha")})
    w.update(parts)
    return {"conv1d.weight": torch.cat((conv[:n_keys], grouped(conv[n_keys:], keys, heads)))[:, None, :],
            "A_log": grouped(torch.log(-w["ssm_a"]), keys, heads), "dt_bias": grouped(w["ssm_dt.bias"], keys, heads)}


def next_parts(model, w):
    """The published weights have q, k, v and z of each key's heads together."""
    keys, heads, dim = model.key("ssm.group_count"), model.key("ssm.time_step_rank"), model.key("ssm.state_size")
    q, k, v = (part.unflatten(0, (keys, -1)) for part in
               w.pop("attn_qkv").split([keys * dim, keys * dim, model.key("ssm.inner_size")]))
    z = w.pop("attn_gate").unflatten(0, (keys, -1))
    return {"in_proj_qkvz.weight": torch.cat((q, k, v, z), 1).flatten(0, 1), "in_proj_ba.weight": w["ssm_ba"],
            "conv1d.weight": w["ssm_conv1d"][:, None, :], "A_log": torch.log(-w["ssm_a"]), "dt_bias": w["ssm_dt.bias"]}


def qwen35_state(model):
    parts = next_parts if model.arch == "qwen3next" else delta_parts
    state = whole(model, "model.norm.weight")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        if "attn_qkv" in w:
            state.update({f"{at}.linear_attn.{name}": value for name, value in parts(model, w).items()})
        take(state, at, w, QWEN35)
        if "ffn_gate_exps" in w:
            state[f"{at}.mlp.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
            state[f"{at}.mlp.experts.down_proj"] = w["ffn_down_exps"]
            state[f"{at}.mlp.shared_expert_gate.weight"] = w["ffn_gate_inp_shexp"][None]
    # all norms but the delta net's add one to their gains
    return {k: v - 1 if k.endswith("norm.weight") and "linear_attn" not in k else v for k, v in state.items()}


def qwen35_settings(model):
    interval, dim = model.key("full_attention_interval"), model.key("attention.key_length")
    kinds = ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(model.key("block_count"))]
    settings = common_settings(model)
    settings["rope_parameters"]["partial_rotary_factor"] = model.key("rope.dimension_count", dim) / dim
    heads = model.key("ssm.time_step_rank")
    return {**settings, "rms_norm_eps": model.key("attention.layer_norm_rms_epsilon"), "layer_types": kinds,
            "head_dim": dim, "linear_conv_kernel_dim": model.key("ssm.conv_kernel"),
            "linear_num_key_heads": model.key("ssm.group_count"), "linear_num_value_heads": heads,
            "linear_key_head_dim": model.key("ssm.state_size"),
            "linear_value_head_dim": model.key("ssm.inner_size") // heads}


def qwen35(model):
    return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**qwen35_settings(model))), qwen35_state(model)


def qwen35moe(model):
    config = transformers.Qwen3_5MoeTextConfig(
        **qwen35_settings(model), num_experts=model.key("expert_count"),
        num_experts_per_tok=model.key("expert_used_count"), moe_intermediate_size=model.key("expert_feed_forward_length"),
        shared_expert_intermediate_size=model.key("expert_shared_feed_forward_length"), _experts_implementation="eager")
    return transformers.Qwen3_5MoeForCausalLM(config), qwen35_state(model)


def qwen3next(model):
    config = transformers.Qwen3NextConfig(
        **qwen35_settings(model), num_experts=model.key("expert_count"),
        num_experts_per_tok=model.key("expert_used_count"), moe_intermediate_size=model.key("expert_feed_forward_length"),
        shared_expert_intermediate_size=model.key("expert_shared_feed_forward_length"), norm_topk_prob=True,
        decoder_sparse_step=1, _experts_implementation="eager")
    return transformers.Qwen3NextForCausalLM(config), qwen35_state(model)


KIMI = {"input_layernorm.weight": "attn_norm", "post_attention_layernorm.weight": "ffn_norm",
        "self_attn.o_proj.weight": "attn_output", "self_attn.q_proj.weight": "attn_q",
        "self_attn.k_proj.weight": "attn_k", "self_attn.v_proj.weight": "attn_v",
        "self_attn.forget_gate.f_a_proj.weight": "ssm_f_a", "self_attn.forget_gate.f_b_proj.weight": "ssm_f_b",
        "self_attn.forget_gate.dt_bias": "ssm_dt.bias", "self_attn.g_a_proj.weight": "ssm_g_a",
        "self_attn.g_b_proj.weight": "ssm_g_b", "self_attn.b_proj.weight": "ssm_beta", "self_attn.o_norm.weight": "ssm_norm",
        "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa", "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm",
        "self_attn.kv_b_proj.weight": "attn_kv_b", "mlp.gate.weight": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps",
        "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
        **{f"mlp.{m}_proj.weight": f"ffn_{m}" for m in ("gate", "up", "down")},
        **{f"mlp.shared_experts.{m}_proj.weight": f"ffn_{m}_shexp" for m in ("gate", "up", "down")}}


def kimi_linear(model):
    state, n = whole(model, "model.norm.weight"), model.key("block_count")
    for i in range(n):
        w, at = model.layer(i), f"model.layers.{i}"
        state.update({f"{at}.{theirs}": w[ours] for theirs, ours in KIMI.items() if ours in w})
        if "ssm_a" in w:
            state[f"{at}.self_attn.conv1d.weight"] = torch.cat([w[f"ssm_conv1d_{m}"] for m in "qkv"])
            state[f"{at}.self_attn.forget_gate.A_log"] = torch.log(-w["ssm_a"]).view(1, 1, -1, 1)
        if "ffn_gate_exps" in w:
            state[f"{at}.mlp.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
    heads, rope = model.key("attention.head_count"), model.key("rope.dimension_count")
    config = transformers.KimiLinearConfig(
        **{**common_settings(model), "num_key_value_heads": heads}, rms_norm_eps=model.key("attention.layer_norm_rms_epsilon"),
        layer_types=["full_attention" if k else "linear_attention" for k in model.key("attention.head_count_kv")],
        mlp_layer_types=["dense" if i < model.key("leading_dense_block_count") else "sparse" for i in range(n)],
        linear_head_dim=model.key("kda.head_dim"), linear_num_heads=heads, linear_conv_kernel_dim=model.key("ssm.conv_kernel"),
        kv_lora_rank=model.key("attention.kv_lora_rank"), q_lora_rank=None, qk_rope_head_dim=rope,
        qk_nope_head_dim=model.key("attention.key_length_mla") - rope, v_head_dim=model.key("attention.value_length_mla"),
        moe_intermediate_size=model.key("expert_feed_forward_length"), num_local_experts=model.key("expert_count"),
        num_experts_per_tok=model.key("expert_used_count"), n_shared_experts=model.key("expert_shared_count"),
        routed_scaling_factor=model.key("expert_weights_scale"), _experts_implementation="eager")
    return transformers.KimiLinearForCausalLM(config), state


FAMILIES = {"kimi-linear": kimi_linear, "qwen3next": qwen3next, "qwen35": qwen35, "qwen35moe": qwen35moe, "lfm2": lfm2, "lfm2moe": lfm2moe}


def forward(model, tokens):
    network, state = FAMILIES[model.arch](model)
    network = network.double().eval()
    network.load_state_dict(state, strict=True)
    with torch.no_grad():
        return network(tokens[None], use_cache=False).logits[0]
