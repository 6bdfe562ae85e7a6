#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Widens a small llama model without changing its function, so that every row is whole blocks of 256 weights.

    widen_llama.py IN.gguf OUT.gguf [f16|f32]

K and IQ types need such rows; those of SmolLM2-135M have 576 weights, so most of its matrices would get another type.  The
residual gets columns of zeros, attention gets KV heads of zeros with their query heads, and the norms' gains and epsilon are
scaled, because the mean of the squares is then over more columns.  Needs the packages gguf and numpy."""
import argparse
import math

import gguf
import numpy

UNIT = 256


def up(n):
    return (n + UNIT - 1) // UNIT * UNIT


class Shape:
    """The sizes of the model, and those that it gets."""

    def __init__(self, reader):
        self.hidden = self.number(reader, "embedding_length")
        self.heads = self.number(reader, "attention.head_count")
        self.kv_heads = self.number(reader, "attention.head_count_kv")
        self.dim = self.hidden // self.heads
        group = self.heads // self.kv_heads
        self.wide = up(self.hidden)
        self.wide_kv_heads = self.kv_heads
        while self.wide_kv_heads * group * self.dim % UNIT != 0:
            self.wide_kv_heads += 1
        self.wide_heads = self.wide_kv_heads * group
        if self.wide_heads * self.dim != self.wide:
            raise SystemExit("heads of this model do not fill its widened rows")

    @staticmethod
    def number(reader, key):
        return int(reader.fields["llama." + key].contents())

    def changed(self, key, value):
        by_key = {"llama.embedding_length": self.wide, "llama.attention.head_count": self.wide_heads,
                  "llama.attention.head_count_kv": self.wide_kv_heads}
        if key == "llama.feed_forward_length":
            return up(value)
        if key == "llama.attention.layer_norm_rms_epsilon":
            return value * self.hidden / self.wide
        return by_key.get(key, value)

    def widened(self, name, weights):
        if name.endswith("norm.weight"):
            gain = numpy.zeros(self.wide, numpy.float32)
            gain[:self.hidden] = weights * numpy.float32(math.sqrt(self.hidden / self.wide))
            return gain
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
    if reader.fields["general.architecture"].contents() != "llama":
        raise SystemExit("only models of the architecture llama can be widened")
    shape = Shape(reader)
    writer = gguf.GGUFWriter(args.out, "llama")
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
