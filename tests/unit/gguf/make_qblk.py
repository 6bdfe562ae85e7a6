#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes qblk_vectors.h: random quantised blocks of every type and the weights they stand for.

Independent of the library: this program computes each type weight by weight from the layout of a GGUF file.  It uses
exact fractions and rounds to a float once.  Run: make_qblk.py | clang-format > qblk_vectors.h
"""
import random
import struct
from fractions import Fraction

NL = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1 = [0, 1, 2, 3, 4, 6, 8, 12]


def half(data, at):
    return Fraction(struct.unpack_from("<e", data, at)[0])


def nibble(data, at, i):
    """Weight i of 32 whose nibbles begin at byte `at`."""
    return data[at + i] & 15 if i < 16 else data[at + i - 16] >> 4


def fifth(data, at, i):
    return 16 * (struct.unpack_from("<I", data, at)[0] >> i & 1)


def two(data, at, i):
    """Weight i of 256 in two-bit fields."""
    half_no, rest = divmod(i, 128)
    lane, byte = divmod(rest, 32)
    return data[at + 32 * half_no + byte] >> 2 * lane & 3


def k4(data, at, s):
    """Scale and min of sub-block s in the 12 bytes of Q4_K and Q5_K."""
    q = data[at:at + 12]
    if s < 4:
        return q[s] & 63, q[s + 4] & 63
    return q[s + 4] & 15 | (q[s - 4] >> 6) << 4, q[s + 4] >> 4 | (q[s] >> 6) << 4


def q4_0(d, i):
    return half(d, 0) * (nibble(d, 2, i) - 8)


def q4_1(d, i):
    return half(d, 0) * nibble(d, 4, i) + half(d, 2)


def q5_0(d, i):
    return half(d, 0) * (nibble(d, 6, i) + fifth(d, 2, i) - 16)


def q5_1(d, i):
    return half(d, 0) * (nibble(d, 8, i) + fifth(d, 4, i)) + half(d, 2)


def q8_0(d, i):
    return half(d, 0) * struct.unpack_from("b", d, 2 + i)[0]


def q2_k(d, i):
    sub = d[i // 16]
    return half(d, 80) * (sub & 15) * two(d, 16, i) - half(d, 82) * (sub >> 4)


def q3_k(d, i):
    s = i // 16
    low = d[96 + s] & 15 if s < 8 else d[96 + s - 8] >> 4
    top = d[104 + s % 4] >> 2 * (s // 4) & 3
    quant = two(d, 32, i) + (4 if d[i % 32] >> i // 32 & 1 else 0) - 4
    return half(d, 108) * (low + 16 * top - 32) * quant


def q4_k(d, i):
    pair, rest = divmod(i, 64)
    byte = d[16 + 32 * pair + rest % 32]
    scale, least = k4(d, 4, i // 32)
    return half(d, 0) * scale * (byte >> 4 if rest >= 32 else byte & 15) - half(d, 2) * least


def q5_k(d, i):
    pair, rest = divmod(i, 64)
    byte = d[48 + 32 * pair + rest % 32]
    scale, least = k4(d, 4, i // 32)
    quant = (byte >> 4 if rest >= 32 else byte & 15) + 16 * (d[16 + i % 32] >> i // 32 & 1)
    return half(d, 0) * scale * quant - half(d, 2) * least


def q6_k(d, i):
    half_no, rest = divmod(i, 128)
    byte = d[64 * half_no + rest % 64]
    quant = (byte >> 4 if rest >= 64 else byte & 15) + 16 * two(d, 128, i) - 32
    return half(d, 208) * struct.unpack_from("b", d, 192 + i // 16)[0] * quant


def iq4_nl(d, i):
    return half(d, 0) * NL[nibble(d, 2, i)]


def iq4_xs(d, i):
    s = i // 32
    low = d[4 + s // 2] >> 4 * (s % 2) & 15
    top = struct.unpack_from("<H", d, 2)[0] >> 2 * s & 3
    return half(d, 0) * (low + 16 * top - 32) * NL[nibble(d, 8 + 16 * s, i % 32)]


def mxfp4(d, i):
    code = nibble(d, 1, i)
    value = Fraction(E2M1[code & 7], 2) * Fraction(2) ** (d[0] - 127)
    return -value if code & 8 else value


TYPES = [  # name, bytes, weights, offsets of 16-bit floats, one weight
    ("Q4_0", 18, 32, [0], q4_0), ("Q4_1", 20, 32, [0, 2], q4_1), ("Q5_0", 22, 32, [0], q5_0),
    ("Q5_1", 24, 32, [0, 2], q5_1), ("Q8_0", 34, 32, [0], q8_0), ("Q2_K", 84, 256, [80, 82], q2_k),
    ("Q3_K", 110, 256, [108], q3_k), ("Q4_K", 144, 256, [0, 2], q4_k), ("Q5_K", 176, 256, [0, 2], q5_k),
    ("Q6_K", 210, 256, [208], q6_k), ("IQ4_NL", 18, 32, [0], iq4_nl), ("IQ4_XS", 136, 256, [0], iq4_xs),
    ("MXFP4", 17, 32, [], mxfp4),
]


def a_block(rng, name, size, halves):
    data = bytearray(rng.randrange(256) for _ in range(size))
    for at in halves:
        data[at:at + 2] = struct.pack("<e", rng.choice([1, 1, 1, -1]) * rng.random() * 2.0 ** rng.randint(-12, 3))
    if name == "MXFP4":
        data[0] = rng.randint(100, 140)
    return bytes(data)


def rounded(value):
    """The bits of the float nearest to an exact value, ties to even; zero is positive."""
    if value == 0:
        return 0
    sign, value = (1 << 31, -value) if value < 0 else (0, value)
    exponent = -149
    while value / Fraction(2) ** exponent >= 1 << 24:
        exponent += 1
    mantissa = round(value / Fraction(2) ** exponent)  # Fractions round half to even
    return sign | struct.unpack("<I", struct.pack("<f", float(mantissa * Fraction(2) ** exponent)))[0]


def lines(text, indent):
    return "\n".join(" " * indent + '"' + text[i:i + 96] + '"' for i in range(0, len(text), 96))


def main():
    rng = random.Random(20)
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Quantised blocks and the bits of the floats they stand for (zeros positive): by make_qblk.py. */")
    print("#ifndef TESTS_QBLK_VECTORS_H\n#define TESTS_QBLK_VECTORS_H\n")
    print('#include "gguf/dtype.h"\n')
    print("static const struct qblk_vector {\n    enum dtype type;\n    const char *qblks;\n    const char *weights;")
    print("} qblk_vectors[] = {")
    for name, size, n, halves, weight in TYPES:
        data = b"".join(a_block(rng, name, size, halves) for _ in range(1 if n == 256 else 2))
        values = [weight(data[b:b + size], i) for b in range(0, len(data), size) for i in range(n)]
        print("    {DTYPE_%s,\n%s,\n%s}," % (name, lines(data.hex(), 5),
                                           lines("".join("%08x" % rounded(v) for v in values), 5)))
    print("};\n\n#endif")


main()
