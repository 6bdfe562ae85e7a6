#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Widens a small model without changing its function, so that every row is whole blocks of 256 weights.

    widen_rows.py IN.gguf OUT.gguf [f16|f32]

For the architectures llama and gemma3.  K and IQ types need such rows; those of SmolLM2-135M have 576 weights and those of
Gemma 3 270M 640, so most of their matrices would get another type.  The residual gets columns of zeros, attention gets KV heads of zeros with
their query heads, and the norms' gains and epsilon are scaled, because the mean of the squares is then over more columns.
gemma3 multiplies the embedding by the root of the number of columns, so its embedding is scaled as well, and the last norm
undoes that for the output head, which is the embedding.  Needs the packages gguf and numpy."""
import argparse
import math

import gguf
import numpy

UNIT = 256


def up(n):
    return (n + UNIT - 1) // UNIT * UNIT


class Shape:
    """The sizes of the model, and those that it gets."""

    def __init__(self, reader, arch):
        self.arch = arch
        self.hidden = self.number(reader, "embedding_length")
        self.heads = self.number(reader, "attention.head_count")
        self.kv_heads = self.number(reader, "attention.head_count_kv")
        self.dim = self.number(reader, "attention.key_length", self.hidden // self.heads)
        group = self.heads // self.kv_heads
        self.wide = up(self.hidden)
        self.wide_kv_heads = self.kv_heads
        while self.wide_kv_heads * group * self.dim % UNIT != 0:
            self.wide_kv_heads += 1
        self.wide_heads = self.wide_kv_heads * group
        if arch == "llama" and self.wide_heads * self.dim != self.wide:
            raise SystemExit("heads of this model do not fill its widened rows")

    def number(self, reader, key, default=None):
        field = reader.fields.get(f"{self.arch}.{key}")
        return default if field is None else int(field.contents())

    def changed(self, key, value):
        by_key = {"embedding_length": self.wide, "attention.head_count": self.wide_heads, "attention.head_count_kv": self.wide_kv_heads}
        inner = key.removeprefix(self.arch + ".")
        if inner == "feed_forward_length":
            return up(value)
        if inner == "attention.layer_norm_rms_epsilon":
            return value * self.hidden / self.wide
        return by_key.get(inner, value)

    def widened(self, name, weights):
        scale = numpy.float32(math.sqrt(self.hidden / self.wide))
        if name.endswith(("attn_q_norm.weight", "attn_k_norm.weight")):  # of a head, whose width stays
            return weights
        if name.endswith("norm.weight"):
            gain = numpy.zeros(self.wide, numpy.float32)
            gain[:self.hidden] = weights if self.arch == "gemma3" and name == "output_norm.weight" else weights * scale
            return gain
        if self.arch == "gemma3" and name == "token_embd.weight":
            weights = weights * scale
        rows, cols = weights.shape
        if "attn_q." in name:
            rows = self.wide_heads * self.dim
        elif "attn_k." in name or "attn_v." in name:
            rows = self.wide_kv_heads * self.dim
        elif "attn_output." in name or "ffn_down." in name:
            rows = self.wide
        elif "ffn_" in name:
            rows = up(rows)
        out = numpy.zeros((rows, up(cols)), numpy.float32)
        out[:weights.shape[0], :cols] = weights
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("type", choices=["f16", "f32"], nargs="?", default="f32")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    arch = reader.fields["general.architecture"].contents()
    if arch not in ("llama", "gemma3"):
        raise SystemExit("only models of the architectures llama and gemma3 can be widened")
    shape = Shape(reader, arch)
    writer = gguf.GGUFWriter(args.out, arch)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        item = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, shape.changed(key, field.contents()), field.types[0], item)
    for tensor in reader.tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        weights = shape.widened(tensor.name, weights.reshape([int(n) for n in reversed(tensor.shape)]))
        if args.type == "f16" and weights.ndim == 2:
            weights = weights.astype(numpy.float16)
        writer.add_tensor(tensor.name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
