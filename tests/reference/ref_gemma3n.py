# SPDX-License-Identifier: Apache-2.0
"""gemma3n, by its published implementation in Hugging Face transformers, in float64.

The tensors of the GGUF are given to a Gemma3nForCausalLM under its own names. Written with transformers 5.24.0 and torch
2.15.0."""
import torch
import transformers

from ref_gemma4 import NAMES, listed
from ref_hf_mamba import wide

LAYER = {**NAMES, "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
         "laurel.post_laurel_norm": "laurel_post_norm", "altup.correction_coefs": "altup_correct_coef",
         "altup.prediction_coefs": "altup_predict_coef", "altup.modality_router": "altup_router",
         "altup.router_norm": "altup_router_norm"}
SPARSE_LAYERS, SPARSITY = 10, 0.95  # the default of files without activation_sparsity_scale


def config_of(model):
    n, period = model.key("block_count"), model.key("attention.sliding_window_pattern", 5)
    vocab = model.tensors["token_embd.weight"].shape[0]
    return transformers.Gemma3nTextConfig(
        vocab_size=vocab, hidden_size=model.key("embedding_length"), num_hidden_layers=n,
        intermediate_size=listed(model.key("feed_forward_length"), n),
        num_attention_heads=model.key("attention.head_count"), num_key_value_heads=model.key("attention.head_count_kv"),
        head_dim=model.key("attention.key_length"), rms_norm_eps=model.key("attention.layer_norm_rms_epsilon"),
        sliding_window=model.key("attention.sliding_window"),
        layer_types=["sliding_attention" if i % period < period - 1 else "full_attention" for i in range(n)],
        num_kv_shared_layers=model.key("attention.shared_kv_layers", 0),
        final_logit_softcapping=model.key("final_logit_softcapping"), vocab_size_per_layer_input=vocab,
        hidden_size_per_layer_input=model.key("embedding_length_per_layer_input"),
        altup_num_inputs=model.key("altup.num_inputs", 4), laurel_rank=model.layer(0)["laurel_l"].shape[0],
        activation_sparsity_pattern=[SPARSITY if i < SPARSE_LAYERS else 0.0 for i in range(n)],
        max_position_embeddings=model.key("context_length"), tie_word_embeddings=False, pad_token_id=None,
        bos_token_id=None, eos_token_id=None,
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                         "full_attention": {"rope_type": "default", "rope_theta": model.key("rope.freq_base")}},
        _attn_implementation="eager")


def state_of(model):
    tensors = model.tensors
    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "lm_head.weight": model.head,
             "model.norm.weight": tensors["output_norm.weight"],
             "model.embed_tokens_per_layer.weight": tensors["per_layer_token_embd.weight"],
             "model.per_layer_model_projection.weight": tensors["per_layer_model_proj.weight"],
             "model.per_layer_projection_norm.weight": tensors["per_layer_proj_norm.weight"]}
    for theirs, ours in (("altup_projections", "altup_proj"), ("altup_unembed_projections", "altup_unembd_proj")):
        for i, matrix in enumerate(tensors[ours + ".weight"]):
            state[f"model.{theirs}.{i}.weight"] = matrix
    for index in range(model.key("block_count")):
        w, at = model.layer(index), f"model.layers.{index}."
        state.update({f"{at}{theirs}.weight": w[ours] for theirs, ours in LAYER.items() if ours in w})
        state[at + "altup.correct_output_scale"] = w["altup_correct_scale"]
    return state


def forward(model, tokens):
    network = transformers.Gemma3nForCausalLM(config_of(model)).double().eval()
    network.load_state_dict(state_of(model), strict=True)
    hidden = model.key("embedding_length")
    for module in network.modules():  # these are rounded to float32 otherwise
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale).double()
        if hasattr(module, "router_input_scale"):
            module.router_input_scale = torch.tensor(1 / hidden).double()
    network.model.per_layer_projection_scale = torch.tensor(hidden ** -0.5, dtype=torch.float64)
    network.model.per_layer_input_scale = torch.tensor(0.5 ** 0.5, dtype=torch.float64)
    dims, rope = model.key("attention.key_length"), network.model.rotary_emb
    for kind, base in (("full_attention", model.key("rope.freq_base")), ("sliding_attention", 10000.0)):
        setattr(rope, kind + "_inv_freq", torch.tensor([base ** (-2 * i / dims) for i in range(dims // 2)]).double())
    with torch.no_grad(), wide():
        return network(tokens[None], use_cache=False).logits[0]
