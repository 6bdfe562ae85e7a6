# SPDX-License-Identifier: Apache-2.0
"""Turns a checkpoint and the tokeniser into one GGUF file.

    export.py WORK OUT.gguf [MODEL.gguf SHARE] [--head HEAD.pt]     WORK: the folder of a training, or a model

Of a training, the averaged weights are taken; with MODEL.gguf, SHARE of them and the rest of
that model's.  Between the model that training began with and its result often lies one that
has the knowledge of the first and the new skill of the second.  With --head, the file also gets
an MTP head (head_train.py) as one more block.  Rows of wq and wk are
reordered from the training layout of rotary pairs (i, i + 32) to the file's (2i, 2i + 1).
"""
import argparse
import os

import numpy as np
import torch

import bpe
import gguf
import model

NAMES = {"wq": "attn_q", "wk": "attn_k", "wv": "attn_v", "wo": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}


def interleave(w):
    """Row order of each head: 0, 32, 1, 33, ..."""
    half = model.HEAD_DIM // 2
    return w.reshape(-1, 2, half, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def tensors_of(params, head=None):
    """(name, float32 array) in file order."""
    p = {k: v.detach().numpy() for k, v in {**params, **(head or {})}.items()}
    out = [("token_embd.weight", p["embed"])]
    ones = np.ones(model.DIM, np.float32)
    for layer in range(model.LAYERS + bool(head)):
        out.append(("blk.%d.attn_norm.weight" % layer, ones))
        for key in ("wq", "wk", "wv", "wo"):
            w = p["%d.%s" % (layer, key)]
            out.append(("blk.%d.%s.weight" % (layer, NAMES[key]), interleave(w) if key in ("wq", "wk") else w))
        out.append(("blk.%d.ffn_norm.weight" % layer, ones))
        for key in ("gate", "up", "down"):
            out.append(("blk.%d.%s.weight" % (layer, NAMES[key]), p["%d.%s" % (layer, key)]))
    if head:
        block = "blk.%d.nextn." % model.LAYERS
        out += [(block + "eh_proj.weight", p["%d.eh" % model.LAYERS]), (block + "enorm.weight", ones), (block + "hnorm.weight", ones),
                (block + "shared_head_norm.weight", p["head_norm"])]
    return out + [("output_norm.weight", p["norm"])]


def parameters_of(tensors):
    """The other way, from a file's tensors; what Q8_0 rounded stays rounded."""
    half = model.HEAD_DIM // 2
    p = {"embed": tensors["token_embd.weight"], "norm": tensors["output_norm.weight"]}
    for layer in range(model.LAYERS):
        for key, name in NAMES.items():
            w = tensors["blk.%d.%s.weight" % (layer, name)]
            if key in ("wq", "wk"):
                w = w.reshape(-1, half, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
            p["%d.%s" % (layer, key)] = w
    return {k: torch.from_numpy(np.array(v, np.float32)) for k, v in p.items()}


def metadata_of(tokeniser, template, has_head=False):
    ident = tokeniser.id_of
    G = gguf
    return [
        ("general.architecture", G.STRING, "llama"),
        ("general.name", G.STRING, "baton-demo"),
        ("general.description", G.STRING, "Small demonstration chat model of Baton, trained on generated dialogues"),
        ("general.license", G.STRING, "apache-2.0"),
        ("general.alignment", G.U32, G.ALIGN),
        ("general.file_type", G.U32, 7),
        ("general.quantization_version", G.U32, 2),
        ("llama.vocab_size", G.U32, model.VOCAB),
        ("llama.context_length", G.U32, model.CONTEXT),
        ("llama.embedding_length", G.U32, model.DIM),
        ("llama.block_count", G.U32, model.LAYERS + has_head),
        ("llama.feed_forward_length", G.U32, model.FFN),
        ("llama.attention.head_count", G.U32, model.HEADS),
        ("llama.attention.head_count_kv", G.U32, model.KV_HEADS),
        ("llama.attention.key_length", G.U32, model.HEAD_DIM),
        ("llama.attention.value_length", G.U32, model.HEAD_DIM),
        ("llama.attention.layer_norm_rms_epsilon", G.F32, model.EPS),
        ("llama.rope.dimension_count", G.U32, model.HEAD_DIM),
        ("llama.rope.freq_base", G.F32, model.ROPE_BASE),
    ] + ([("llama.nextn_predict_layers", G.U32, 1)] if has_head else []) + ([] if model.ROPE_FACTOR == 1 else [
        ("llama.rope.scaling.type", G.STRING, "yarn"),
        ("llama.rope.scaling.factor", G.F32, model.ROPE_FACTOR),
        ("llama.rope.scaling.original_context_length", G.U32, model.TRAINED),
    ]) + [
        ("tokenizer.ggml.model", G.STRING, "gpt2"),
        ("tokenizer.ggml.pre", G.STRING, "qwen2"),
        ("tokenizer.ggml.tokens", G.ARRAY, (G.STRING, tokeniser.tokens)),
        ("tokenizer.ggml.token_type", G.ARRAY, (G.I32, tokeniser.token_types())),
        ("tokenizer.ggml.merges", G.ARRAY, (G.STRING, tokeniser.merges)),
        ("tokenizer.ggml.bos_token_id", G.U32, ident["<|endoftext|>"]),
        ("tokenizer.ggml.eos_token_id", G.U32, ident["<|im_end|>"]),
        ("tokenizer.ggml.padding_token_id", G.U32, ident["<|endoftext|>"]),
        ("tokenizer.ggml.add_bos_token", G.BOOL, False),
        ("tokenizer.chat_template", G.STRING, template),
    ]


def mixed(params, other, share):
    return {k: v * share + other[k] * (1 - share) for k, v in params.items()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("work")
    p.add_argument("out")
    p.add_argument("other", nargs="?")
    p.add_argument("share", nargs="?", type=float)
    p.add_argument("--head")
    args = p.parse_args()
    work = args.work
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template.jinja")) as f:
        template = f.read()
    if work.endswith(".gguf"):
        file = gguf.Reader(work)
        model.stretch(file.metadata.get("llama.rope.scaling.factor", 1))
        params = parameters_of(file.tensors)
        tokeniser = bpe.Tokeniser(file.metadata["tokenizer.ggml.tokens"], file.metadata["tokenizer.ggml.merges"])
    else:
        saved = torch.load(os.path.join(work, "checkpoint.pt"))
        model.stretch(saved.get("rope_factor", 1))
        params = saved["opt"]["average"]
        tokeniser = bpe.Tokeniser.load(os.path.join(work, "tok.json"))
    if args.other:
        params = mixed(params, parameters_of(gguf.Reader(args.other).tensors), args.share)
    head = torch.load(args.head) if args.head else None
    gguf.write(args.out, metadata_of(tokeniser, template, head is not None), tensors_of(params, head))
    print("%s: %d bytes" % (args.out, os.path.getsize(args.out)))


if __name__ == "__main__":
    main()
