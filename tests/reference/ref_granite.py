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
    x = model.tensors["token_embd.weight"][tokens] * model.key("embedding_scale")
    n = len(tokens)
    for index in range(model.key("block_count")):
        w = model.layer(index)
        h = rms_norm(x, w["attn_norm"], eps)
        q = rotate((h @ w["attn_q"].T).view(n, heads, dim), angles, adjacent=True)
        k = rotate((h @ w["attn_k"].T).view(n, kv_heads, dim), angles, adjacent=True)
        v = (h @ w["attn_v"].T).view(n, kv_heads, dim)
        x = x + attention(q, k, v, model.key("attention.scale")) @ w["attn_output"].T * branch
        h = rms_norm(x, w["ffn_norm"], eps)
        x = x + (silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T * branch
    return rms_norm(x, model.tensors["output_norm.weight"], eps) @ model.head.T / model.key("logit_scale")
