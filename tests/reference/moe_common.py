# SPDX-License-Identifier: Apache-2.0
"""What the references of the mixture-of-experts families share (see tests/golden/make_golden.py for the form of a
golden file): random tensors, feed-forward, the choice of experts written as one loop per token, and saving.

Everything is float64 over the weights as they are after rounding to their storage type.  Nothing is grouped, cached or
absorbed here: a token visits its experts one by one, and attention is the textbook's."""
import math
import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from make_golden import BF16, F16, F32, Q8_0, STORE, rms_norm, times, write_gguf  # noqa: E402,F401


def random_tensors(shapes, types, default, rng):
    """shapes: {name: (rows, cols) or (cols,) or (experts, rows, cols)}; types: {part of a name: storage type}."""
    stored, values = {}, {}
    for name, shape in shapes.items():
        if len(shape) == 1 or name.endswith(".bias") or name.endswith("sinks.weight"):
            raw = rng.uniform(0.5, 1.5, shape) if name.endswith("norm.weight") else rng.normal(0, 0.5, shape)
            kind = F32
        else:
            raw = rng.normal(0, 1.5 / math.sqrt(shape[-1]), shape)
            kind = next((t for part, t in types.items() if part in name), default)
        data, back = STORE[kind](raw)
        stored[name], values[name] = (kind, shape, data), (torch.from_numpy(back.reshape(shape)), kind)
    return stored, values


def silu(x):
    return x * torch.sigmoid(x)


def swiglu(w, x, gate, up, down):
    return times(silu(times(x, w, gate)) * times(x, w, up), w, down)


def expert_of(w, name, expert):
    """One expert's matrix, as a dictionary that times() understands."""
    values, kind = w[name]
    return values[expert], kind


def expert_ffn(w, x, prefix, expert):
    one = {part: expert_of(w, f"{prefix}ffn_{part}_exps.weight", expert) for part in ("gate", "up", "down")}
    return swiglu(one, x, "gate", "up", "down")


def top(scores, k):
    """Indices of the k largest, largest first; of equal ones the lower index first."""
    return sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))[:k]


def save(path, keys, stored, tokens, logits):
    keys = dict(keys)
    keys |= {"baton.golden.tokens": np.array(tokens, dtype=np.int32),
             "baton.golden.logits": logits.numpy().astype(np.float32).reshape(-1)}
    write_gguf(path, keys, stored)
    print(f"{path.name}: {path.stat().st_size} bytes, logits of deviation {logits.std():.2f}")


def folder():
    return pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "golden")


def as_read(number):
    """What a reader of a 32-bit float key gets back."""
    return float(np.float32(number))
