# SPDX-License-Identifier: Apache-2.0
"""Llama 4; its reference is its published implementation in Hugging Face transformers, in float64.

The tensors of the GGUF under their names there: what llama.cpp's converter does, backwards. Written with transformers
5.24.0 and torch 2.15.0."""
import contextlib

import torch
import transformers

from ref_hf_mamba import wide

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "feed_forward.router": "ffn_gate_inp", "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
         "feed_forward.shared_expert.up_proj": "ffn_up_shexp", "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
         "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down"}


def config_of(model):
    layers, chunk = model.key("block_count"), model.key("attention.sliding_window", 8192)
    return transformers.Llama4TextConfig(
        vocab_size=model.tensors["token_embd.weight"].shape[0], hidden_size=model.key("embedding_length"),
        intermediate_size=model.key("expert_feed_forward_length"), intermediate_size_mlp=model.key("feed_forward_length"),
        num_hidden_layers=layers, num_attention_heads=model.key("attention.head_count"),
        num_key_value_heads=model.key("attention.head_count_kv"), head_dim=model.key("attention.key_length"),
        max_position_embeddings=model.key("context_length"), rms_norm_eps=model.key("attention.layer_norm_rms_epsilon"),
        num_local_experts=model.key("expert_count"), num_experts_per_tok=model.key("expert_used_count"),
        interleave_moe_layer_step=model.key("interleave_moe_layer_step", 1), attention_chunk_size=chunk or None,
        no_rope_layers=[1] * layers if chunk == 0 else None, attn_temperature_tuning=chunk != 0,
        use_qk_norm=model.key("expert_count") != 128,
        floor_scale=model.key("attention.temperature_length", 8192),
        attn_scale=model.key("attention.temperature_scale", 0.1), tie_word_embeddings=False, pad_token_id=None,
        bos_token_id=None, eos_token_id=None, _attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": model.key("rope.freq_base")})


@contextlib.contextmanager
def wide_angles():
    """As wide(), for code that asks for torch.float."""
    narrow = torch.float
    torch.float = torch.float64
    try:
        with wide():
            yield
    finally:
        torch.float = narrow


def forward(model, tokens):
    with wide_angles():
        return logits_of(model, tokens)


def logits_of(model, tokens):
    network = transformers.Llama4ForCausalLM(config_of(model)).double().eval()
    state = {"model.embed_tokens.weight": model.tensors["token_embd.weight"], "lm_head.weight": model.head,
             "model.norm.weight": model.tensors["output_norm.weight"]}
    for i in range(model.key("block_count")):
        w, at = model.layer(i), f"model.layers.{i}"
        state.update({f"{at}.{theirs}.weight": w[ours] for theirs, ours in NAMES.items() if ours in w})
        if "ffn_gate_exps" in w:
            both = torch.cat((w["ffn_gate_exps"], w["ffn_up_exps"]), 1)
            state[f"{at}.feed_forward.experts.gate_up_proj"] = both.transpose(1, 2)
            state[f"{at}.feed_forward.experts.down_proj"] = w["ffn_down_exps"].transpose(1, 2)
    network.load_state_dict(state, strict=True)
    with torch.no_grad():
        return network(tokens[None], use_cache=False).logits[0]
