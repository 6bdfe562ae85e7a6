#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes qblk_digests.h: digests of many weights of the types that index lattice points, so that every point counts.

The weights come from the `gguf` package of the format's authors, but for Q1_0 and Q2_0, which it does not read.  Blocks are the bytes of a small generator, the
same as in test_qblk.c, with finite scales.  Run: make_qblk_digests.py | clang-format > qblk_digests.h
"""
import numpy as np
from gguf import GGMLQuantizationType, quants

BLOCKS = 512
TYPES = (("IQ1_S", 1), ("IQ1_M", 55), ("IQ2_XXS", 1), ("IQ2_XS", 1), ("IQ2_S", 1), ("IQ3_XXS", 1), ("IQ3_S", 1), ("TQ1_0", 53),
         ("TQ2_0", 65), ("NVFP4", -1), ("Q1_0", 1), ("Q2_0", 1))  # and where the upper byte of the 16-bit scale is


def generated(n):
    state, out = 1, bytearray()
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return out


def digest(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


def plain(data, bits, sign):
    """Weights of a 16-bit scale and numbers of so many bits, from the low bits of each byte up."""
    scale = data[:, :2].copy().view(np.float16).astype(np.float32)
    numbers = (data[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2**bits - 1)
    return sign(numbers.reshape(len(data), -1).astype(np.float32)) * scale


def dequantize(data, name):
    if name == "Q1_0":
        return plain(data, 1, lambda bit: 2 * bit - 1)
    if name == "Q2_0":
        return plain(data, 2, lambda code: code - 1)
    return quants.dequantize(data, GGMLQuantizationType[name])


SIZES = {"Q1_0": 18, "Q2_0": 18}
print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* FNV-1a of the floats of 512 generated blocks (zeros positive): by make_qblk_digests.py. */")
print("#ifndef TESTS_QBLK_DIGESTS_H\n#define TESTS_QBLK_DIGESTS_H\n")
print('#include "gguf/dtype.h"\n')
print("static const struct qblk_digest {\n    enum dtype type;\n    int scale_top;\n    uint64_t digest;\n} qblk_digests[] = {")
for name, top in TYPES:
    size = SIZES.get(name) or quants.GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    data = generated(BLOCKS * size)
    for block in range(BLOCKS):
        if top >= 0:
            data[block * size + top] &= 0xbf
    weights = dequantize(np.frombuffer(bytes(data), np.uint8).reshape(BLOCKS, size), name).astype(np.float32) + np.float32(0)
    print(f"    {{DTYPE_{name}, {top}, UINT64_C({digest(weights.tobytes()):#x})}},")
print("};\n\n#endif")
