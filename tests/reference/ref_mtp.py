# SPDX-License-Identifier: Apache-2.0
"""MTP heads as DeepSeek V3's report (2024) and GLM 4.5's files define them, in float64.

transformers leaves these layers out. So the model itself and the head's own layer are those of transformers, and the
head around that layer is written here:

    x_i = [norm(E(token i+1)) | norm(h_i)] . W^T      h_i: the row that the output head reads for token i+1
    logits of token i+2 = head(norm(layer(x)_i))

After the last token, token i+1 is the model's greedy one."""
import torch
import transformers

import ref_hf


def base(model):
    """The model of transformers, with one layer more: the head's."""
    name, names, besides = ref_hf.FAMILIES[model.arch]
    config = getattr(transformers, name + "Config")(**{**ref_hf.settings(model), **besides})
    network = getattr(transformers, name + "ForCausalLM")(config).double().eval()
    network.load_state_dict(ref_hf.weights(model, names, False), strict=True)
    return network


def layer_of(network, model, index):
    """The head's layer: one of the network's kind, with the tensors of layer `index` of the file."""
    module = transformers.models.glm4_moe.modeling_glm4_moe.Glm4MoeDecoderLayer(network.config, index).double().eval()
    tensors = {**model.tensors}
    model.tensors = {name.replace(f"blk.{index}.", "blk.0."): tensor for name, tensor in tensors.items()
                     if not name.startswith("blk.") or name.startswith(f"blk.{index}.")}
    count, model.keys["glm4moe.block_count"] = model.keys["glm4moe.block_count"], 2
    state = ref_hf.weights(model, ref_hf.FAMILIES[model.arch][1], False)
    model.tensors, model.keys["glm4moe.block_count"] = tensors, count
    own = "model.layers.0."
    module.load_state_dict({k.removeprefix(own): v for k, v in state.items() if k.startswith(own)}, strict=True)
    return module


def norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def forward(model, tokens):
    network, index = base(model), ref_hf.n_layers(model)
    w, eps = model.layer(index), model.key("attention.layer_norm_rms_epsilon")
    places = torch.arange(len(tokens))[None]
    with torch.no_grad():
        h = network.model(tokens[None]).last_hidden_state
        after = torch.cat((tokens[1:], (h[0, -1] @ model.head.T).argmax()[None]))
        joined = torch.cat((norm(model.tensors["token_embd.weight"][after], w["nextn.enorm"], eps)[None],
                            norm(h, w["nextn.hnorm"], eps)), -1)
        x = joined @ w["nextn.eh_proj"].T
        mask = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1)[None, None]
        x = layer_of(network, model, index)(x, attention_mask=mask, position_ids=places,
                                            position_embeddings=network.model.rotary_emb(x, places))
        return (norm(x, w["nextn.shared_head_norm"], eps) @ model.head.T)[0]
