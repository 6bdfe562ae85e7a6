# SPDX-License-Identifier: Apache-2.0
"""Families with LayerNorm; their reference is their published implementation in Hugging Face transformers, in float64.

Each function below gives the configuration and the tensors of one family, from the keys and tensors of the GGUF: what
llama.cpp's converter does, backwards. Written with transformers 5.23.0 and torch 2.15.0 (CPU)."""
import torch
import transformers


def norm(state, at, w, name):
    for part in ("weight", "bias"):
        key = name if part == "weight" else f"{name}.bias"
        if key in w:
            state[f"{at}.{part}"] = w[key]


def linear(state, at, w, name):
    norm(state, at, w, name)


def whole(model, embedding, final, head):
    state = {f"{embedding}.weight": model.tensors["token_embd.weight"], f"{head}.weight": model.head}
    w = {k.removesuffix(".weight"): v for k, v in model.tensors.items()}
    norm(state, final, w, "output_norm")
    if "output.bias" in w:
        state[f"{head}.bias"] = w["output.bias"]
    return state


def common_settings(model):
    dim = model.key("attention.key_length")
    rope = {"rope_type": "default", "rope_theta": model.key("rope.freq_base", 10000.0),
            "partial_rotary_factor": model.key("rope.dimension_count", dim) / dim}
    return {"vocab_size": model.tensors["token_embd.weight"].shape[0], "hidden_size": model.key("embedding_length"),
            "intermediate_size": model.key("feed_forward_length"), "num_hidden_layers": model.key("block_count"),
            "num_attention_heads": model.key("attention.head_count"),
            "num_key_value_heads": model.key("attention.head_count_kv"), "rope_parameters": rope,
            "max_position_embeddings": model.key("context_length"), "tie_word_embeddings": False,
            "pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "_attn_implementation": "eager"}


def qkv_parts(model, w):
    dim = model.key("attention.key_length")
    sizes = [model.key("attention.head_count") * dim] + 2 * [model.key("attention.head_count_kv") * dim]
    parts = dict(zip(("attn_q", "attn_k", "attn_v"), w["attn_qkv"].split(sizes)))
    if "attn_qkv.bias" in w:
        parts.update(zip(("attn_q.bias", "attn_k.bias", "attn_v.bias"), w["attn_qkv.bias"].split(sizes)))
    return parts


def starcoder2(model):
    eps, window = model.key("attention.layer_norm_epsilon"), model.key("attention.sliding_window", 4096)
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        norm(state, f"{at}.post_attention_layernorm", w, "ffn_norm")
        for theirs, ours in (("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v"), ("o_proj", "attn_output")):
            linear(state, f"{at}.self_attn.{theirs}", w, ours)
        linear(state, f"{at}.mlp.c_fc", w, "ffn_up")
        linear(state, f"{at}.mlp.c_proj", w, "ffn_down")
    config = transformers.Starcoder2Config(**common_settings(model), norm_epsilon=eps, sliding_window=window)
    return transformers.Starcoder2ForCausalLM(config), state


def nemotron(model):
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        norm(state, f"{at}.post_attention_layernorm", w, "ffn_norm")
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                             ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")):
            linear(state, f"{at}.{theirs}", w, ours)
    # its norms add one to their gains
    state = {k: v - 1 if "norm" in k and k.endswith("weight") else v for k, v in state.items()}
    settings = common_settings(model)
    config = transformers.NemotronConfig(
        **settings, head_dim=model.key("attention.key_length"), norm_eps=model.key("attention.layer_norm_epsilon"),
        attention_bias="blk.0.attn_q.bias" in model.tensors, mlp_bias="blk.0.ffn_up.bias" in model.tensors,
        partial_rotary_factor=settings["rope_parameters"]["partial_rotary_factor"])
    return transformers.NemotronForCausalLM(config), state


def stablelm(model):
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        norm(state, f"{at}.post_attention_layernorm", w, "ffn_norm")
        for part in ("q", "k"):
            for head, gain in enumerate(w.get(f"attn_{part}_norm", ())):
                state[f"{at}.self_attn.{part}_layernorm.norms.{head}.weight"] = gain
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                             ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")):
            linear(state, f"{at}.{theirs}", w, ours)
    settings = common_settings(model)
    config = transformers.StableLmConfig(
        **settings, layer_norm_eps=model.key("attention.layer_norm_epsilon"),
        use_qkv_bias="blk.0.attn_q.bias" in model.tensors, qk_layernorm="blk.0.attn_q_norm.weight" in model.tensors,
        use_parallel_residual="blk.0.ffn_norm.weight" not in model.tensors,
        partial_rotary_factor=settings["rope_parameters"]["partial_rotary_factor"])
    return transformers.StableLmForCausalLM(config), state


def phi2(model):
    state = whole(model, "model.embed_tokens", "model.final_layernorm", "lm_head")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        if "attn_qkv" in w:
            w.update(qkv_parts(model, w))
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.dense", "attn_output"),
                             ("mlp.fc1", "ffn_up"), ("mlp.fc2", "ffn_down")):
            linear(state, f"{at}.{theirs}", w, ours)
    config = transformers.PhiConfig(**common_settings(model), layer_norm_eps=model.key("attention.layer_norm_epsilon"))
    return transformers.PhiForCausalLM(config), state


def gpt2(model):
    state = whole(model, "transformer.wte", "transformer.ln_f", "lm_head")
    state["transformer.wpe.weight"] = model.tensors["position_embd.weight"]
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"transformer.h.{i}"
        norm(state, f"{at}.ln_1", w, "attn_norm")
        norm(state, f"{at}.ln_2", w, "ffn_norm")
        for theirs, ours in (("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"), ("mlp.c_fc", "ffn_up"),
                             ("mlp.c_proj", "ffn_down")):  # Conv1D keeps its matrix the other way around
            linear(state, f"{at}.{theirs}", w, ours)
            state[f"{at}.{theirs}.weight"] = w[ours].T.contiguous()
    s = common_settings(model)
    config = transformers.GPT2Config(
        vocab_size=s["vocab_size"], n_positions=s["max_position_embeddings"], n_embd=s["hidden_size"],
        n_layer=s["num_hidden_layers"], n_head=s["num_attention_heads"], n_inner=s["intermediate_size"],
        layer_norm_epsilon=model.key("attention.layer_norm_epsilon"), tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None, _attn_implementation="eager")
    return transformers.GPT2LMHeadModel(config), state


def falcon(model):
    state = whole(model, "transformer.word_embeddings", "transformer.ln_f", "lm_head")
    s = common_settings(model)
    heads, kv, is_new = s["num_attention_heads"], s["num_key_value_heads"], s["num_key_value_heads"] > 1
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"transformer.h.{i}"
        if "attn_norm_2" in w:
            norm(state, f"{at}.ln_mlp", w, "attn_norm")
            norm(state, f"{at}.ln_attn", w, "attn_norm_2")
        else:
            norm(state, f"{at}.input_layernorm", w, "attn_norm")
        parts = qkv_parts(model, w)
        if is_new:  # the heads of a group with their key and value
            q, k, v = (parts[f"attn_{m}"].unflatten(0, (kv, -1, model.key("attention.key_length"))) for m in "qkv")
            state[f"{at}.self_attention.query_key_value.weight"] = torch.cat((q, k, v), 1).flatten(0, 2)
        else:
            state[f"{at}.self_attention.query_key_value.weight"] = w["attn_qkv"]
        linear(state, f"{at}.self_attention.dense", w, "attn_output")
        linear(state, f"{at}.mlp.dense_h_to_4h", w, "ffn_up")
        linear(state, f"{at}.mlp.dense_4h_to_h", w, "ffn_down")
    config = transformers.FalconConfig(
        vocab_size=s["vocab_size"], hidden_size=s["hidden_size"], num_hidden_layers=s["num_hidden_layers"],
        num_attention_heads=heads, num_kv_heads=kv, new_decoder_architecture=is_new, multi_query=not is_new,
        num_ln_in_parallel_attn=2 if f"{at}.ln_mlp.weight" in state else 1 if is_new else None,
        ffn_hidden_size=s["intermediate_size"], rope_parameters=s["rope_parameters"],
        max_position_embeddings=s["max_position_embeddings"], layer_norm_epsilon=model.key("attention.layer_norm_epsilon"),
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, _attn_implementation="eager")
    return transformers.FalconForCausalLM(config), state


def cohere(model, name, besides):
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                             ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"),
                             ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")):
            linear(state, f"{at}.{theirs}", w, ours)
    config = getattr(transformers, name + "Config")(
        **common_settings(model), **besides, logit_scale=model.key("logit_scale"),
        layer_norm_eps=model.key("attention.layer_norm_epsilon"))
    return getattr(transformers, name + "ForCausalLM")(config), state


def command_r(model):
    return cohere(model, "Cohere", {"use_qk_norm": "blk.0.attn_q_norm.weight" in model.tensors})


def cohere2(model):
    kinds = ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(model.key("block_count"))]
    return cohere(model, "Cohere2", {"sliding_window": model.key("attention.sliding_window"), "layer_types": kinds})


def cohere2moe(model):
    n_layers, n_dense = model.key("block_count"), model.key("leading_dense_block_count", 0)
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    for i in range(n_layers):
        w, at = model.layer(i), f"model.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                             ("mlp.gate", "ffn_gate_inp"),
                             *((f"mlp.{m}_proj", f"ffn_{m}") for m in ("gate", "up", "down")),
                             *((f"mlp.shared_experts.{m}_proj", f"ffn_{m}_shexp") for m in ("gate", "up", "down"))):
            linear(state, f"{at}.{theirs}", w, ours)
        if "ffn_gate_exps" in w:
            state[f"{at}.mlp.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
            state[f"{at}.mlp.experts.down_proj"] = w["ffn_down_exps"]
    settings = common_settings(model)
    settings["intermediate_size"] = model.key("expert_feed_forward_length")
    config = transformers.Cohere2MoeConfig(
        **settings, head_dim=model.key("attention.key_length"), logit_scale=model.key("logit_scale"),
        rms_norm_eps=model.key("attention.layer_norm_rms_epsilon"), num_experts=model.key("expert_count"),
        num_experts_per_tok=model.key("expert_used_count"), num_shared_experts=model.key("expert_shared_count"),
        expert_selection_fn="sigmoid", norm_topk_prob=True, sliding_window=model.key("attention.sliding_window"),
        prefix_dense_intermediate_size=model.key("feed_forward_length"), _experts_implementation="eager",
        mlp_layer_types=["dense" if i < n_dense else "sparse" for i in range(n_layers)],
        layer_types=["sliding_attention" if flag else "full_attention"
                     for flag in model.key("attention.sliding_window_pattern")])
    return transformers.Cohere2MoeForCausalLM(config), state


def phimoe(model):
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        norm(state, f"{at}.post_attention_layernorm", w, "ffn_norm")
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                             ("mlp.router", "ffn_gate_inp")):
            linear(state, f"{at}.{theirs}", w, ours)
        state[f"{at}.mlp.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
        state[f"{at}.mlp.experts.down_proj"] = w["ffn_down_exps"]
    settings = common_settings(model)
    settings["intermediate_size"] = model.key("expert_feed_forward_length")
    if "rope_factors_short.weight" in model.tensors:
        factors = {m: model.tensors[f"rope_factors_{m}.weight"].tolist() for m in ("short", "long")}
        settings["rope_parameters"] = {
            "rope_type": "longrope", "rope_theta": model.key("rope.freq_base", 10000.0),
            "short_factor": factors["short"], "long_factor": factors["long"],
            "short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122,
            "original_max_position_embeddings": model.key("rope.scaling.original_context_length")}
    config = transformers.PhimoeConfig(
        **settings, rms_norm_eps=model.key("attention.layer_norm_rms_epsilon"), attention_bias=True, lm_head_bias=True,
        num_local_experts=model.key("expert_count"), num_experts_per_tok=model.key("expert_used_count"),
        sliding_window=model.key("attention.sliding_window"), _experts_implementation="eager")
    return transformers.PhimoeForCausalLM(config), state


def olmo(model):
    state = whole(model, "model.embed_tokens", "model.norm", "lm_head")
    s = common_settings(model)
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        for m, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):  # pairs half a head apart
            w[f"attn_{m}"] = w[f"attn_{m}"].unflatten(0, (s[heads], -1, 2)).transpose(1, 2).flatten(0, 2)
        for theirs, ours in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                             ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                             ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")):
            linear(state, f"{at}.{theirs}", w, ours)
    return transformers.OlmoForCausalLM(transformers.OlmoConfig(**s, clip_qkv=model.key("attention.clamp_kqv"))), state


def gptneox(model):
    state = whole(model, "gpt_neox.embed_in", "gpt_neox.final_layer_norm", "lm_head")
    s = common_settings(model)
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"gpt_neox.layers.{i}"
        norm(state, f"{at}.input_layernorm", w, "attn_norm")
        norm(state, f"{at}.post_attention_layernorm", w, "ffn_norm")
        for theirs, ours in (("attention.dense", "attn_output"), ("mlp.dense_h_to_4h", "ffn_up"),
                             ("mlp.dense_4h_to_h", "ffn_down")):
            linear(state, f"{at}.{theirs}", w, ours)
        for part, name in (("weight", "attn_qkv"), ("bias", "attn_qkv.bias")):  # by heads, not by q, k and v
            rows = w[name].unflatten(0, (3, s["num_attention_heads"], -1)).transpose(0, 1).flatten(0, 2)
            state[f"{at}.attention.query_key_value.{part}"] = rows
    config = transformers.GPTNeoXConfig(**s, layer_norm_eps=model.key("attention.layer_norm_epsilon"),
                                        use_parallel_residual=model.key("use_parallel_residual"))
    return transformers.GPTNeoXForCausalLM(config), state


FAMILIES = {"cohere2moe": cohere2moe, "phimoe": phimoe, "olmo": olmo, "gptneox": gptneox, "nemotron": nemotron, "stablelm": stablelm, "starcoder2": starcoder2, "phi2": phi2, "gpt2": gpt2, "falcon": falcon, "command-r": command_r,
            "cohere2": cohere2}


def forward(model, tokens):
    network, state = FAMILIES[model.arch](model)
    network = network.double().eval()
    network.load_state_dict(state, strict=True)
    with torch.no_grad():
        return network(tokens[None]).logits[0]
