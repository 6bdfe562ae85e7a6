# SPDX-License-Identifier: Apache-2.0
"""Families whose reference is their published implementation in Hugging Face transformers, in float64.

A model of transformers gets the tensors of the GGUF under its own names, in its own order of rows. This reverses
llama.cpp's converter. Written with transformers 5.23.0 and 5.24.0, torch 2.15.0 (CPU)."""
import torch
import transformers

EXPERTS = {"mlp.gate.weight": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps"}
SHARED = {f"{m}_proj.weight": f"ffn_{m}_shexp" for m in ("gate", "up", "down")}
DENSE = {f"mlp.{m}_proj.weight": f"ffn_{m}" for m in ("gate", "up", "down")}
PRE = {"input_layernorm.weight": "attn_norm", "post_attention_layernorm.weight": "ffn_norm"}
LATE = {"input_layernorm.weight": "attn_norm", "post_attention_layernorm.weight": "post_attention_norm"}
POST = {"post_attention_layernorm.weight": "post_attention_norm", "post_feedforward_layernorm.weight": "post_ffw_norm"}
HEADS = {f"self_attn.{m}_norm.weight": f"attn_{m}_norm" for m in "qk"}
TURNED = {"self_attn.query_layernorm.weight": "attn_q_norm", "self_attn.key_layernorm.weight": "attn_k_norm"}

PERIODS = {"gemma2": 2}  # of layers with a window; the last of each has none
VISION = ("qwen2vl", "qwen3vl", "qwen3vlmoe", "hunyuan_vl", "step35")  # the class of their text model has no head
WIDE = ("mimo2", "step35", "afmoe", "bailingmoe", "dots1", "hy_v3", "exaone-moe", "glm4moe", "bailingmoe2", "ernie4_5-moe")  # their dense layers have a width of their own
# name in transformers, {name of a layer's tensor there: here}, settings besides
FAMILIES = {
    "qwen2moe": ("Qwen2Moe", {**PRE, **EXPERTS, "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp",
                              **{f"mlp.shared_expert.{k}": v for k, v in SHARED.items()}}, {"norm_topk_prob": False}),
    "olmoe": ("Olmoe", {**PRE, **HEADS, **EXPERTS}, {"norm_topk_prob": False}),
    "granitemoe": ("GraniteMoe", {**PRE, "block_sparse_moe.router.weight": "ffn_gate_inp",
                                  "block_sparse_moe.experts.down_proj": "ffn_down_exps"}, {}),
    "minimax-m2": ("MiniMaxM2", {**PRE, **HEADS, **EXPERTS, "mlp.e_score_correction_bias": "exp_probs_b.bias"}, {}),
    "hunyuan-dense": ("HunYuanDenseV1", {**PRE, **TURNED, **DENSE}, {}),
    "hunyuan-moe": ("HunYuanMoEV1", {**PRE, **TURNED, "mlp.gate.wg.weight": "ffn_gate_inp",
                                     "mlp.experts.down_proj": "ffn_down_exps",
                                     **{f"mlp.shared_mlp.{k}": v for k, v in SHARED.items()}}, {}),
    "arcee": ("Arcee", {**PRE, **DENSE, **{f"mlp.{m}_proj.bias": f"ffn_{m}.bias" for m in ("up", "down")}}, {}),
    "seed_oss": ("SeedOss", {**LATE, **DENSE}, {"attention_bias": True, "attention_out_bias": True}),
    "glm4moe": ("Glm4Moe", {**LATE, **HEADS, **DENSE, **EXPERTS,
                            "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
                            **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}},
                {"attention_bias": True, "use_qk_norm": True, "num_mtp_layers": 0}),
    "bailingmoe2": ("Glm4Moe", {**PRE, **HEADS, **DENSE, **EXPERTS,  # of the same arithmetic
                                "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
                                **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}},
                    {"use_qk_norm": True, "num_mtp_layers": 0}),
    "ernie4_5-moe": ("Ernie4_5_Moe", {**PRE, **DENSE, **EXPERTS,
                                      "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
                                      **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}}, {}),
    "mistral3": ("Ministral3", {**PRE, **DENSE}, {}),
    "gemma2": ("Gemma2", {**LATE, **DENSE, "pre_feedforward_layernorm.weight": "ffn_norm",
                          "post_feedforward_layernorm.weight": "post_ffw_norm"}, {"query_pre_attn_scalar": 12}),
    "dots1": ("Dots1", {**PRE, **HEADS, **DENSE, **EXPERTS, "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
                        **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}}, {"norm_topk_prob": True}),
    "hy_v3": ("HYV3", {**PRE, **HEADS, **DENSE, **EXPERTS, "mlp.e_score_correction_bias": "exp_probs_b.bias",
                       **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}}, {"router_scaling_factor": 2.826}),
    "exaone-moe": ("ExaoneMoe", {**PRE, **HEADS, **DENSE, **EXPERTS, "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
                                 **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}},
                   {"norm_topk_prob": True, "sliding_window_pattern": 4}),
    "qwen2vl": ("Qwen2VL", {**PRE, **DENSE}, {}),
    "qwen3vl": ("Qwen3VL", {**PRE, **HEADS, **DENSE}, {}),
    "qwen3vlmoe": ("Qwen3VLMoe", {**PRE, **HEADS, **EXPERTS}, {"norm_topk_prob": True}),
    "apertus": ("Apertus", {"attention_layernorm.weight": "attn_norm", "feedforward_layernorm.weight": "ffn_norm", **HEADS,
                            **DENSE}, {}),
    "afmoe": ("Afmoe", {**LATE, **HEADS, **DENSE, "pre_mlp_layernorm.weight": "ffn_norm",
                        "post_mlp_layernorm.weight": "post_ffw_norm", "self_attn.gate_proj.weight": "attn_gate",
                        "mlp.router.gate.weight": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps",
                        "mlp.expert_bias": "exp_probs_b.bias",
                        **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}}, {"mup_enabled": True}),
    "bailingmoe": ("Ernie4_5_Moe", {**PRE, **DENSE, **EXPERTS,  # of the same arithmetic
                                    **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}}, {}),
    "mimo2": ("MiMoV2Flash", {**PRE, **DENSE, **EXPERTS, "self_attn.sinks": "attn_sinks",
                              "mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}, {}),
    "step35": ("Step3p7", {**PRE, **HEADS, **DENSE, **EXPERTS, "self_attn.g_proj.weight": "attn_gate",
                           "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
                           **{f"mlp.shared_experts.{k}": v for k, v in SHARED.items()}}, {"pad_token_id": 0}),
    "hunyuan_vl": ("HunYuanVL", {**PRE, **TURNED, **DENSE}, {}),
    "exaone4": ("Exaone4", {**POST, **HEADS, **DENSE}, {"sliding_window_pattern": 4}),
}


def rope_settings(model):
    dim = model.key("attention.key_length")
    rope = {"rope_type": "default", "rope_theta": model.key("rope.freq_base", 10000.0),
            "partial_rotary_factor": model.key("rope.dimension_count", dim) / dim}
    if model.key("rope.dimension_sections"):
        sections = model.key("rope.dimension_sections")
        rope["mrope_section"] = sections if model.arch == "hunyuan_vl" else sections[:3]
    if model.key("rope.scaling.alpha"):
        rope.update(rope_type="dynamic", alpha=model.key("rope.scaling.alpha"), factor=1.0)
    if model.key("rope.scaling.type") == "yarn":
        rope.update(rope_type="yarn", factor=model.key("rope.scaling.factor"), beta_fast=32.0, beta_slow=1.0,
                    original_max_position_embeddings=model.key("rope.scaling.original_context_length"), mscale=1.0,
                    mscale_all_dim=model.key("rope.scaling.yarn_log_multiplier"),
                    llama_4_scaling_beta=model.key("attention.temperature_scale"))
    return rope


def by_layer(model):
    """Settings of families whose layers differ in heads, rope and feed-forward networks."""
    flags = model.key("attention.sliding_window_pattern")
    dim, local = model.key("attention.key_length"), [i for i, flag in enumerate(flags) if flag]
    share = model.key("rope.dimension_count", dim) / dim
    bases = {"full_attention": model.key("rope.freq_base"), "sliding_attention": model.key("rope.freq_base_swa")}
    shares = {"full_attention": share / (2 if model.arch == "step35" else 1), "sliding_attention": share}
    found = {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": shares[kind]}
                                 for kind, base in bases.items()},
             "layer_types": ["sliding_attention" if flag else "full_attention" for flag in flags],
             "mlp_layer_types": ["sparse" if f"blk.{i}.ffn_gate_inp.weight" in model.tensors else "dense"
                                 for i in range(n_layers(model))]}
    if model.arch == "mimo2":  # a window's own token is not counted
        return {**found, "num_key_value_heads": min(model.key("attention.head_count_kv")),
                "v_head_dim": model.key("attention.value_length"), "n_routed_experts": model.key("expert_count"),
                "attention_value_scale": model.key("attention.value_scale"),
                "sliding_window": model.key("attention.sliding_window") + 1}
    heads = model.key("attention.head_count")
    return {**found, "num_attention_heads": heads[flags.index(0)], "num_sliding_attention_heads": heads[local[0]],
            "share_expert_dim": model.key("expert_shared_feed_forward_length"), "n_routed_experts": model.key("expert_count"),
            "moe_router_scaling_factor": model.key("expert_weights_scale"),
            "swiglu_limits": model.key("swiglu_clamp_exp"), "swiglu_limits_shared": model.key("swiglu_clamp_shexp")}


def n_layers(model):
    return model.key("block_count") - model.key("nextn_predict_layers", 0)


def settings(model):
    """The configuration that the keys of the GGUF stand for."""
    width = model.key("expert_feed_forward_length", model.key("feed_forward_length"))
    dim = model.key("attention.key_length")
    window = model.key("attention.sliding_window")
    experts = model.key("expert_count")
    period = PERIODS.get(model.arch, 4)
    kinds = ["full_attention" if window is None or i % period == period - 1 else "sliding_attention"
             for i in range(n_layers(model))]
    n_shared, n_dense = model.key("expert_shared_count", 0), model.key("leading_dense_block_count", 0)
    scales = {"embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
              "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale"}
    scaled = {k: model.key(v) for k, v in scales.items() if model.key(v) is not None}
    if model.arch == "hy_v3":
        scaled["mlp_layer_types"] = ["dense"] * n_dense + ["sparse"] * (n_layers(model) - n_dense)
    routed = {"num_experts": experts, "num_local_experts": experts, "moe_intermediate_size": width,
              "num_experts_per_tok": model.key("expert_used_count"), "moe_topk": model.key("expert_used_count"),
              "n_shared_experts": n_shared, "num_shared_experts": n_shared, "moe_num_shared_experts": n_shared,
              "first_k_dense_replace": n_dense, "num_dense_layers": n_dense,
              "route_scale": model.key("expert_weights_scale", 1.0),
              "moe_layer_start_index": n_dense, "moe_layer_interval": model.key("interleave_moe_layer_step", 1),
              "n_group": model.key("expert_group_count", 1), "topk_group": model.key("expert_group_used_count", 1),
              "routed_scaling_factor": model.key("expert_weights_scale", 1.0),
              "shared_expert_intermediate_size": model.key("expert_shared_feed_forward_length")} if experts else {}
    capped = {k: model.key(k) for k in ("attn_logit_softcapping", "final_logit_softcapping")
              if model.key(k) is not None}
    return {"vocab_size": model.tensors["token_embd.weight"].shape[0], "hidden_size": model.key("embedding_length"),
            "intermediate_size": width if experts and model.arch not in WIDE else model.key("feed_forward_length"),
            "head_dim": dim,
            "num_hidden_layers": n_layers(model), "num_attention_heads": model.key("attention.head_count"),
            "num_key_value_heads": model.key("attention.head_count_kv"), "rope_parameters": rope_settings(model),
            "rms_norm_eps": model.key("attention.layer_norm_rms_epsilon"), "tie_word_embeddings": False,
            "max_position_embeddings": model.key("context_length"), "sliding_window": window, "layer_types": kinds,
            "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
            "_attn_implementation": "eager", "_experts_implementation": "eager", **scaled, **capped, **routed}


def halves(rows, heads, turned):
    """Reorders the rows of heads: from adjacent pairs to pairs that lie half a head apart."""
    if not turned:
        return rows
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def qkv_rows(model):
    dim, kv_heads = model.key("attention.key_length"), model.key("attention.head_count_kv")
    return [model.key("attention.head_count") * dim, kv_heads * dim, kv_heads * dim]


def weights(model, names, adjacent):
    state = {"model.embed_tokens.weight": model.tensors["token_embd.weight"],
             "model.norm.weight": model.tensors["output_norm.weight"], "lm_head.weight": model.head}
    for index in range(n_layers(model)):
        w, at = model.layer(index), f"model.layers.{index}."
        if "attn_qkv" in w:
            w.update(zip(("attn_q", "attn_k", "attn_v"), w["attn_qkv"].split(qkv_rows(model))))
        state.update({at + theirs: w[ours] for theirs, ours in names.items() if ours in w})
        for m, heads in (("q", "head_count"), ("k", "head_count_kv")):
            state[at + f"self_attn.{m}_proj.weight"] = halves(w[f"attn_{m}"], model.key(f"attention.{heads}"), adjacent)
        state[at + "self_attn.v_proj.weight"], state[at + "self_attn.o_proj.weight"] = w["attn_v"], w["attn_output"]
        for m, part in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
            if f"attn_{part}.bias" in w:
                heads = model.key("attention.head_count_kv" if m == "k" else "attention.head_count")
                state[at + f"self_attn.{m}_proj.bias"] = halves(w[f"attn_{part}.bias"], heads, adjacent and m in "qk")
        if "ffn_gate_exps" in w:
            place = "block_sparse_moe" if any(name.startswith("block") for name in names) else "mlp"
            state[at + place + ".experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
        if model.arch == "apertus":
            for name in ("alpha_p", "alpha_n", "beta", "eps"):
                number = torch.tensor(model.key(f"xielu.{name}")).expand(n_layers(model))[index]
                state[at + f"mlp.act_fn.{name}"] = number[None] if "alpha" in name else number
        statics = at + "mlp.gate.moe_statics.e_score_correction_bias"
        if model.arch == "bailingmoe" and "ffn_gate_exps" in w:
            state[statics] = torch.zeros(model.key("expert_count"))
        if statics in state:
            state[statics] = state[statics][None]
        if "ffn_gate_inp_shexp" in w:
            state[at + "mlp.shared_expert_gate.weight"] = w["ffn_gate_inp_shexp"][None]
    return state


def network_of(model):
    """The network, and the output head if its class has none."""
    name, names, besides = FAMILIES[model.arch]
    is_vision = model.arch in VISION
    kind = getattr(transformers, name + ("TextConfig" if is_vision else "Config"))
    own = by_layer(model) if model.arch in ("mimo2", "step35") else {}
    config = kind(**{**settings(model), **besides, **own})
    config.attention_bias = getattr(config, "attention_bias", False) or "blk.0.attn_q.bias" in model.tensors
    config.mlp_bias = "blk.0.ffn_up.bias" in model.tensors
    network = getattr(transformers, name + ("TextModel" if is_vision else "ForCausalLM"))(config).double().eval()
    adjacent = model.arch in ("granitemoe", "mistral3", "arcee")  # ernie4_5-moe and bailingmoe turn neighbours there, too
    state = weights(model, names, adjacent)
    if model.arch in ("gemma2", "step35"):  # their norms add one to their gains
        state = {k: v - 1 if "norm" in k else v for k, v in state.items()}
    head = state.pop("lm_head.weight") if is_vision else None
    network.load_state_dict({k.removeprefix("model.") if is_vision else k: v for k, v in state.items()}, strict=True)
    return network, head


def forward(model, tokens):
    network, head = network_of(model)
    with torch.no_grad():
        return network(tokens[None]).logits[0] if head is None else network(tokens[None]).last_hidden_state[0] @ head.T
