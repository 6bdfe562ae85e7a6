# SPDX-License-Identifier: Apache-2.0
"""Shared by the references: a GGUF reader, and the parts of a transformer as the papers define them.

Everything is float64 and written to be read: whole sequences at once, a plain softmax over an N x N matrix of scores,
no cache, no tiles, no chunks.  The C code and this file share no code; both follow the same publications:

    RMSNorm                     Zhang & Sennrich 2019
    rotary embedding            Su et al. 2021;  linear scaling Chen et al. 2023;  YaRN Peng et al. 2023
    grouped-query attention     Ainslie et al. 2023
    gated feed-forward          Shazeer 2020
    sliding windows             Beltagy et al. 2020, as in Jiang et al. 2023 (Mistral 7B)

A reference of an architecture (ref_ARCH.py) has one function, forward(model, tokens), that gives the logits after
each token."""
import math
import struct

import numpy as np
import torch

torch.set_default_dtype(torch.float64)

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, F16 = 0, 1


class Model:
    """keys: {name: value};  tensors: {name: float64 tensor, rows first}."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data, self.at = file.read(), 0
        magic, version, n_tensors, n_keys = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3
        self.keys = {}
        for _ in range(n_keys):
            name = self.take_string()
            self.keys[name] = self.take_value(self.take("<I")[0])
        infos = [self.take_info() for _ in range(n_tensors)]
        start = (self.at + 31) // 32 * 32
        self.tensors = {name: self.tensor_at(start + offset, shape, kind) for name, shape, kind, offset in infos}
        self.arch = self.keys["general.architecture"]

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def take_string(self):
        length = self.take("<Q")[0]
        self.at += length
        return self.data[self.at - length:self.at].decode("utf-8", "replace")

    def take_value(self, kind):
        if kind == STRING:
            return self.take_string()
        if kind == ARRAY:
            item, n = self.take("<IQ")
            return [self.take_value(item) for _ in range(n)]
        return self.take("<" + SCALARS[kind])[0]

    def take_info(self):
        name = self.take_string()
        n_dims = self.take("<I")[0]
        dims = self.take(f"<{n_dims}Q")
        kind, offset = self.take("<IQ")
        return name, tuple(reversed(dims)), kind, offset

    def tensor_at(self, at, shape, kind):
        n = math.prod(shape)
        values = np.frombuffer(self.data, {F32: "<f4", F16: "<f2"}[kind], n, at)
        return torch.from_numpy(values.astype(np.float64).reshape(shape))

    def key(self, suffix, default=None):
        return self.keys.get(f"{self.arch}.{suffix}", default)

    def layer(self, index):
        """The tensors of a layer by the rest of their names, "attn_q.weight" as attn_q, others in full."""
        prefix = f"blk.{index}."
        found = {name[len(prefix):].removesuffix(".weight"): t for name, t in self.tensors.items()
                 if name.startswith(prefix)}
        if "ffn_gate_up_exps" in found:
            found["ffn_gate_exps"], found["ffn_up_exps"] = found["ffn_gate_up_exps"].chunk(2, 1)
        if "ffn_gate_up_exps.bias" in found:
            found["ffn_gate_exps.bias"], found["ffn_up_exps.bias"] = found["ffn_gate_up_exps.bias"].chunk(2, 1)
        return found

    @property
    def head(self):
        return self.tensors.get("output.weight", self.tensors["token_embd.weight"])


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def silu(x):
    return x / (1 + torch.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


# ---- rotary embedding ----

def plain_angles(dims, base):
    """How far each pair turns from one position to the next."""
    return torch.tensor([base ** (-2 * i / dims) for i in range(dims // 2)])


def yarn_angles(dims, base, factor, original, beta_fast=32.0, beta_slow=1.0):
    def pair_at(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_at(beta_fast)), 0)
    high = min(math.ceil(pair_at(beta_slow)), dims - 1)
    ramp = ((torch.arange(dims // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = plain_angles(dims, base)
    return plain / factor * ramp + plain * (1 - ramp)


def yarn_temperature(factor):
    return 0.1 * math.log(factor) + 1


def rotate(x, angles, magnitude=1.0, adjacent=False):
    """x [n][heads][dim]; the first 2 len(angles) elements of each head turn, pairs side by side or halves apart."""
    n, _, _ = x.shape
    turned = 2 * len(angles)
    by = torch.outer(torch.arange(n, dtype=torch.float64), angles)[:, None, :]
    cos, sin = torch.cos(by) * magnitude, torch.sin(by) * magnitude
    part, rest = x[..., :turned], x[..., turned:]
    if adjacent:
        a, b = part[..., 0::2], part[..., 1::2]
        part = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
        a, b = part[..., :turned // 2], part[..., turned // 2:]
        part = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((part, rest), -1)


# ---- attention ----

def attention(q, k, v, scale, window=None):
    """q [n][heads][dim], k and v [n][kv_heads][dim] -> [n][heads * dim].  window: keys seen, one's own included."""
    n, heads, _ = q.shape
    group = heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    hidden = j > i
    if window:
        hidden = hidden | (i - j >= window)
    scores = torch.einsum("ihd,jhd->hij", q, k) * scale
    scores = scores.masked_fill(hidden, -math.inf)
    return torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v).flatten(1)
