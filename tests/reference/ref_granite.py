# SPDX-License-Identifier: Apache-2.0
"""granite: the Granite 3 language models (Granite Team 2024).

The shape of llama with four numbers from its maximal-update parametrisation. The first multiplies embeddings, the
second the output of each half of a layer, the third scores. The fourth divides logits."""
from common import attention, plain_angles, rms_norm, rotate, silu


def forward(model, tokens):
    heads, kv_heads = model.key("attention.head_count"), model.key("attention.head_count_kv")
    dim, eps = model.key("attention.key_length"), model.key("attention.layer_norm_rms_epsilon")
    branch = model.key("residual_scale")
    angles = plain_angles(dim, model.key("rope.freq_base", 10000.0))
    if not model.key("rope.scaling.finetuned", True):  # llama.cpp's sign of a model without positions
        angles = angles * 0
    x = model.tensors["token_embd.weight"][tokens] * model.key("embedding_scale")
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = (h @ w[f"attn_{m}"].T + w.get(f"attn_{m}.bias", 0) for m in "qkv")
        q = rotate(q.view(n, heads, dim), angles, adjacent=True)
        k = rotate(k.view(n, kv_heads, dim), angles, adjacent=True)
        mixed = attention(q, k, v.view(n, kv_heads, dim), model.key("attention.scale"))
        x = x + (mixed @ w["attn_output"].T + w.get("attn_output.bias", 0)) * branch
        h = rms_norm(x, w["ffn_norm"], eps)
        gate, up = (h @ w[f"ffn_{m}"].T + w.get(f"ffn_{m}.bias", 0) for m in ("gate", "up"))
        x = x + ((silu(gate) * up) @ w["ffn_down"].T + w.get("ffn_down.bias", 0)) * branch
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T / model.key("logit_scale")
