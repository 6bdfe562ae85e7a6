# SPDX-License-Identifier: Apache-2.0
"""MTP heads as DeepSeek V3's report (2024) and the files of GLM 4.5, Qwen 3.5 and DeepSeek define them, in float64.

transformers leaves these layers out. So the model and the head's own layer are those of transformers, or of
ref_deepseek2, ref_llama and ref_qwen. The head around that layer is written here:

    x_i = [norm(E(token i+1)) | norm(h_i)] . W^T      h_i: the row that the output head reads for token i+1
    logits of token i+2 = head(norm(layer(x)_i))

After the last token, token i+1 is the model's greedy one. A file without a last norm of the head's own uses the
model's."""
import contextlib
import copy
import re

import torch
import transformers

import ref_deepseek2
import ref_hf
import ref_hf_hybrid
import ref_hf_norm
import ref_llama
import ref_qwen
import ref_sparse
from ref_llama4 import wide_angles

SPARSE = ("deepseek32", "glm-dsa")
FIRST = ("exaone4", "exaone-moe")  # their heads' layers are dense and have a window, as vLLM's exaone_moe_mtp has them
LISTED = ("step35",)  # files list the shapes of heads' layers, and heads read rows before the last norm, as in llama.cpp
OWN = {"deepseek2": ref_deepseek2, "llama": ref_llama, "qwen2": ref_qwen, "qwen3": ref_qwen}


def cut(model, keep, **keys):
    """A model of some of the file's layers: keep is {number in the file: number}."""
    own = copy.copy(model)
    own.keys = {**model.keys, f"{model.arch}.block_count": len(keep), f"{model.arch}.nextn_predict_layers": 0,
                **{f"{model.arch}.{name}": value for name, value in keys.items()}}
    if model.arch in LISTED:
        own.keys.update({name: [value[i] for i in keep] for name, value in model.keys.items()
                         if isinstance(value, list) and name.startswith(model.arch)})
    own.tensors = {name: t for name, t in model.tensors.items() if not name.startswith("blk.")}
    for there, here in keep.items():
        own.tensors.update({name.replace(f"blk.{there}.", f"blk.{here}."): t for name, t in model.tensors.items()
                            if name.startswith(f"blk.{there}.") and not re.search(r"\.nextn\.|layer_output_norm", name)})
    return own


def network_of(model):
    if model.arch in SPARSE:
        return ref_sparse.network_of(model)
    if model.arch in ref_hf_hybrid.FAMILIES:
        network, state = ref_hf_hybrid.FAMILIES[model.arch](model)
    elif model.arch in ref_hf_norm.FAMILIES:
        network, state = ref_hf_norm.FAMILIES[model.arch](model)
    else:
        name, names, besides = ref_hf.FAMILIES[model.arch]
        config = getattr(transformers, name + "Config")(**{**ref_hf.settings(model), **besides})
        network, state = getattr(transformers, name + "ForCausalLM")(config), ref_hf.weights(model, names, False)
    network = network.double().eval()
    network.load_state_dict(state, strict=True)
    return network


def causal(n, window=None):
    mask = torch.full((n, n), -torch.inf).triu(1)[None, None]
    return mask if window is None else mask + torch.full_like(mask, -torch.inf).tril(-window)


def listed_rows_and_layer(model, tokens):
    """The rows before the last norm. The layer is one of two, so that both kinds of layers are there to take settings from."""
    n, seen = ref_hf.n_layers(model), []
    network, head = ref_hf.network_of(cut(model, {i: i for i in range(n)}))
    network = network.model if head is None else network
    network.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(tokens[None])
    flags = model.key("attention.sliding_window_pattern")
    pair, pair_head = ref_hf.network_of(cut(model, {flags.index(1 - flags[n]): 0, n: 1}))
    pair = pair.model if pair_head is None else pair
    places = torch.arange(len(tokens))[None]
    window = model.key("attention.sliding_window") if flags[n] else None
    kind = "sliding_attention" if flags[n] else "full_attention"

    def layer(x):
        y = pair.layers[1](x, attention_mask=causal(len(tokens), window), position_ids=places,
                           position_embeddings=pair.rotary_emb(x, places, kind))
        return y[0] if isinstance(y, tuple) else y

    return seen[0], layer


def rows_and_layer(model, tokens):
    """The rows that the head reads, and the head's layer as a function of its input."""
    if model.arch in LISTED:
        return listed_rows_and_layer(model, tokens)
    n = ref_hf.n_layers(model)
    trunk = cut(model, {i: i for i in range(n)})
    is_first = model.arch in FIRST
    own = cut(model, {n: 0}, full_attention_interval=1, leading_dense_block_count=1 if is_first else 0)
    if model.arch == "cohere2moe":  # RoPE, and no window: in transformers a layer with a window that hides nothing
        own.keys.update({"cohere2moe.attention.sliding_window_pattern": [1], "cohere2moe.attention.sliding_window": 1 << 16})
    if model.arch in OWN:
        reference = OWN[model.arch]
        return reference.rows(trunk, tokens)[None], lambda x: reference.layer(own, 0, x[0])[None]
    network = network_of(own).model
    places = torch.arange(len(tokens))[None]
    mask = causal(len(tokens), model.key("attention.sliding_window") if is_first else None)

    def layer(x):
        y = network.layers[0](x, attention_mask=mask, position_ids=places, position_embeddings=network.rotary_emb(x, places))
        return y[0] if isinstance(y, tuple) else y  # GLM 5.2's layers also return the keys that they chose

    return network_of(trunk).model(tokens[None]).last_hidden_state, layer


def norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def forward(model, tokens):
    w, eps = model.layer(ref_hf.n_layers(model)), model.key("attention.layer_norm_rms_epsilon")
    with torch.no_grad(), wide_angles() if model.arch in SPARSE else contextlib.nullcontext():
        h, layer = rows_and_layer(model, tokens)
        after = torch.cat((tokens[1:], (h[0, -1] @ model.head.T).argmax()[None]))
        joined = torch.cat((norm(model.tensors["token_embd.weight"][after], w["nextn.enorm"], eps)[None],
                            norm(h, w["nextn.hnorm"], eps)), -1)
        x = layer(joined @ w["nextn.eh_proj"].T)
        last = w.get("nextn.shared_head_norm", w.get("layer_output_norm", model.tensors["output_norm.weight"]))
        scale = model.key("logit_scale", 1.0) if model.arch == "cohere2moe" else 1.0
        return (norm(x, last, eps) @ model.head.T)[0] * scale
