# SPDX-License-Identifier: Apache-2.0
"""DeepSeek V3.2 and GLM 5: latent attention to keys that an indexer chooses. Their reference is their published
implementation in Hugging Face transformers, in float64.

The tensors of the GGUF under their names there: what llama.cpp's converter does, backwards. Written with transformers
5.24.0 and torch 2.15.0."""
import torch
import transformers

from ref_llama4 import wide_angles

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_a_proj": "attn_q_a",
         "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
         "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
         "self_attn.kv_b_proj": "attn_kv_b", "self_attn.o_proj": "attn_output",
         "self_attn.indexer.wq_b": "indexer.attn_q_b", "self_attn.indexer.wk": "indexer.attn_k",
         "self_attn.indexer.weights_proj": "indexer.proj", "self_attn.indexer.k_norm": "indexer.k_norm",
         "mlp.gate": "ffn_gate_inp", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         **{f"mlp.shared_experts.{m}_proj": f"ffn_{m}_shexp" for m in ("gate", "up", "down")}}


def settings(model):
    rope_dims, key = model.key("rope.dimension_count"), model.key("attention.key_length_mla")
    rope = {"rope_type": "default", "rope_theta": model.key("rope.freq_base", 10000.0)}
    if model.key("rope.scaling.type") == "yarn":
        all_dim = 10 * model.key("rope.scaling.yarn_log_multiplier")
        rope.update(rope_type="yarn", factor=model.key("rope.scaling.factor"), beta_fast=32.0, beta_slow=1.0,
                    original_max_position_embeddings=model.key("rope.scaling.original_context_length"),
                    mscale=all_dim, mscale_all_dim=all_dim)
    return {"vocab_size": model.tensors["token_embd.weight"].shape[0], "hidden_size": model.key("embedding_length"),
            "intermediate_size": model.key("feed_forward_length"), "num_hidden_layers": model.key("block_count"),
            "moe_intermediate_size": model.key("expert_feed_forward_length"), "rope_parameters": rope,
            "num_attention_heads": model.key("attention.head_count"), "kv_lora_rank": model.key("attention.kv_lora_rank"),
            "num_key_value_heads": model.key("attention.head_count"), "q_lora_rank": model.key("attention.q_lora_rank"),
            "qk_rope_head_dim": rope_dims, "qk_nope_head_dim": key - rope_dims, "head_dim": rope_dims,
            "v_head_dim": model.key("attention.value_length_mla"), "n_routed_experts": model.key("expert_count"),
            "num_experts_per_tok": model.key("expert_used_count"), "n_shared_experts": model.key("expert_shared_count"),
            "n_group": model.key("expert_group_count", 1), "topk_group": model.key("expert_group_used_count", 1),
            "routed_scaling_factor": model.key("expert_weights_scale", 1.0), "norm_topk_prob": True,
            "first_k_dense_replace": model.key("leading_dense_block_count", 0),
            "index_n_heads": model.key("attention.indexer.head_count"), "index_topk": model.key("attention.indexer.top_k"),
            "index_head_dim": model.key("attention.indexer.key_length"), "tie_word_embeddings": False,
            "max_position_embeddings": model.key("context_length"), "pad_token_id": None, "bos_token_id": None,
            "rms_norm_eps": model.key("attention.layer_norm_rms_epsilon"), "eos_token_id": None,
            "_attn_implementation": "eager", "_experts_implementation": "eager"}


def network_of(model):
    if model.arch == "glm-dsa":
        types = model.key("attention.indexer.types", [1] * model.key("block_count"))
        config = transformers.GlmMoeDsaConfig(**settings(model), indexer_types=["full" if t else "shared" for t in types])
        network = transformers.GlmMoeDsaForCausalLM(config)
    else:
        network = transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**settings(model)))
    network = network.double().eval()
    state = {"model.embed_tokens.weight": model.tensors["token_embd.weight"], "lm_head.weight": model.head,
             "model.norm.weight": model.tensors["output_norm.weight"]}
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        state.update({f"{at}.{theirs}.weight": w[ours] for theirs, ours in NAMES.items() if ours in w})
        if "indexer.k_norm.bias" in w:
            state[f"{at}.self_attn.indexer.k_norm.bias"] = w["indexer.k_norm.bias"]
        if "ffn_gate_exps" in w:
            state[f"{at}.mlp.experts.gate_up_proj"] = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
            state[f"{at}.mlp.experts.down_proj"] = w["ffn_down_exps"]
            state[f"{at}.mlp.gate.e_score_correction_bias"] = w["exp_probs_b.bias"]
    network.load_state_dict(state, strict=True)
    return network


def forward(model, tokens):
    with wide_angles(), torch.no_grad():
        return network_of(model)(tokens[None], use_cache=False).logits[0]
