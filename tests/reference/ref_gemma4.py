# SPDX-License-Identifier: Apache-2.0
"""gemma4, by its published implementation in Hugging Face transformers, in float64.

The tensors of the GGUF are given to a Gemma4ForCausalLM under its own names. rope_freqs.weight takes the place of
"proportional" RoPE: its divisors are those that the converter writes for it, or any others. Written with transformers
5.24.0 and torch 2.15.0."""
import torch
import transformers

torch.Tensor.float = lambda self: self  # norms and softmax would round to float32

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
         "router.proj": "ffn_gate_inp", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
         "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2"}
BARE = {"layer_scalar": "layer_output_scale", "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale", "experts.down_proj": "ffn_down_exps",
        "experts.gate_up_proj": "ffn_gate_up_exps"}


def listed(value, n):
    return value if isinstance(value, list) else [value] * n


def kinds_of(model):
    n = model.key("block_count")
    flags = model.key("attention.sliding_window_pattern", 6)
    if not isinstance(flags, list):
        flags = [i % flags < flags - 1 for i in range(n)]
    return ["sliding_attention" if flag else "full_attention" for flag in flags]


def config_of(model):
    n, kinds = model.key("block_count"), kinds_of(model)
    kv_heads = listed(model.key("attention.head_count_kv"), n)
    local = kv_heads[kinds.index("sliding_attention")]
    full = kv_heads[kinds.index("full_attention")]
    widths = listed(model.key("feed_forward_length"), n)
    experts, base = model.key("expert_count"), model.key("rope.freq_base")
    has_values = f"blk.{kinds.index('full_attention')}.attn_v.weight" in model.tensors
    return transformers.Gemma4TextConfig(
        vocab_size=model.tensors["token_embd.weight"].shape[0], hidden_size=model.key("embedding_length"),
        intermediate_size=widths[0], use_double_wide_mlp=widths[-1] != widths[0], num_hidden_layers=n,
        num_attention_heads=model.key("attention.head_count"), num_key_value_heads=local,
        num_global_key_value_heads=full, head_dim=model.key("attention.key_length_swa"),
        global_head_dim=model.key("attention.key_length"), attention_k_eq_v=not has_values, layer_types=kinds,
        rms_norm_eps=model.key("attention.layer_norm_rms_epsilon"), sliding_window=model.key("attention.sliding_window"),
        num_kv_shared_layers=model.key("attention.shared_kv_layers", 0),
        final_logit_softcapping=model.key("final_logit_softcapping"),
        hidden_size_per_layer_input=model.key("embedding_length_per_layer_input", 0),
        vocab_size_per_layer_input=model.tensors["token_embd.weight"].shape[0], tie_word_embeddings=False,
        max_position_embeddings=model.key("context_length"), pad_token_id=None, bos_token_id=None, eos_token_id=None,
        enable_moe_block=experts is not None, num_experts=experts, top_k_experts=model.key("expert_used_count"),
        moe_intermediate_size=model.key("expert_feed_forward_length"),
        rope_parameters={"sliding_attention": {"rope_type": "default",
                                               "rope_theta": model.key("rope.freq_base_swa", 10000.0)},
                         "full_attention": {"rope_type": "default", "rope_theta": base}},
        _attn_implementation="eager", _experts_implementation="eager")


def state_of(model, network):
    state = {"model.embed_tokens.weight": model.tensors["token_embd.weight"],
             "model.norm.weight": model.tensors["output_norm.weight"], "lm_head.weight": model.head}
    for theirs, ours in (("embed_tokens_per_layer", "per_layer_token_embd"),
                         ("per_layer_model_projection", "per_layer_model_proj"),
                         ("per_layer_projection_norm", "per_layer_proj_norm")):
        if ours + ".weight" in model.tensors:
            state[f"model.{theirs}.weight"] = model.tensors[ours + ".weight"]
    for index in range(model.key("block_count")):
        w, at = model.layer(index), f"model.layers.{index}."
        if "ffn_gate_exps" in w:  # else they are one already
            w["ffn_gate_up_exps"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
        state.update({f"{at}{theirs}.weight": w[ours] for theirs, ours in NAMES.items() if ours in w})
        state.update({at + theirs: w[ours] for theirs, ours in BARE.items() if ours in w})
        state.setdefault(at + "layer_scalar", torch.ones(1))
        if "router.per_expert_scale" not in w and "ffn_gate_inp" in w:
            state.setdefault(at + "router.per_expert_scale", torch.ones(w["ffn_gate_inp"].shape[0]))
    return state


def forward(model, tokens):
    network = transformers.Gemma4ForCausalLM(config_of(model)).double().eval()
    network.load_state_dict(state_of(model, network), strict=True)
    for name, module in network.named_modules():  # these are rounded to float32 otherwise
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale)
    rope, dim = network.model.rotary_emb, model.key("attention.key_length")
    for kind, dims, base in (("full_attention", dim, model.key("rope.freq_base")),
                             ("sliding_attention", model.key("attention.key_length_swa"),
                              model.key("rope.freq_base_swa", 10000.0))):
        angles = torch.tensor([base ** (-2 * i / dims) for i in range(dims // 2)])
        if kind == "full_attention" and "rope_freqs.weight" in model.tensors:
            angles = angles / model.tensors["rope_freqs.weight"]
        setattr(rope, kind + "_inv_freq", angles)
    with torch.no_grad():
        return network(tokens[None]).logits[0]
