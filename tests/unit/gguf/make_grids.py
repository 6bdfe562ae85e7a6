#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/gguf/qblk_grid.c: the lattice points that the IQ types index, which are facts of the file format.

The points are read through the `gguf` package of the format's authors and packed here: a number for each point, with
two bits (IQ1, IQ2) or three (IQ3) for each coordinate's level.  Run: make_grids.py | clang-format > qblk_grid.c
"""
import numpy as np
from gguf import quants

TEXT = '''/* SPDX-License-Identifier: Apache-2.0 */
/* The lattice points of the IQ types, facts of the file format (tests/unit/gguf/make_grids.py packs them).
 *
 * A point of IQ1 and IQ2 has eight coordinates of two bits, a point of IQ3 four of three bits; the first
 * coordinate is in the lowest bits. A coordinate is the number of a level (qblk_iq.c). */
#include "gguf/qblk_priv.h"
'''
GRIDS = (("iq1", "IQ1_S", 2, (-1, 0, 1)), ("iq2_xxs", "IQ2_XXS", 2, (8, 25, 43)), ("iq2_xs", "IQ2_XS", 2, (8, 25, 43)),
         ("iq2_s", "IQ2_S", 2, (8, 25, 43)), ("iq3_xxs", "IQ3_XXS", 3, (4, 12, 20, 28, 36, 44, 52, 62)),
         ("iq3_s", "IQ3_S", 3, (1, 3, 5, 7, 9, 11, 13, 15)))

print(TEXT)
for name, cls, bits, levels in GRIDS:
    cls = getattr(quants, cls)
    cls.init_grid()
    points = cls.grid.reshape(cls.grid_shape)
    index = {float(level): i for i, level in enumerate(levels)}
    words = [sum(index[float(v)] << bits * i for i, v in enumerate(point)) for point in points]
    assert max(words) < 1 << 16
    print(f"const uint16_t qblk_grid_{name}[{len(words)}] = {{{', '.join(f'0x{w:04x}' for w in words)}}};\n")
