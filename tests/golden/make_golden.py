#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors for the forward pass: tiny random models, and their logits from an independent implementation.

    tests/golden/make_golden.py [OUTPUT_FOLDER]          (needs python3-torch and python3-numpy)

Each case becomes one small GGUF that contains its own expectation. So the C test (tests/unit/compute/engine/test_golden.c)
needs nothing else:

    baton.golden.tokens   i32 [n]          the tokens fed, from position 0
    baton.golden.logits   f32 [n * vocab]  logits after each of them
    baton.golden.name     the subject of the case

The reference is written for clarity, in float64, over the weights as they are after rounding to their storage type:
whole sequences at once, a plain softmax over an N x N matrix, no cache, no tiles.  It follows the papers and the
published definitions of the llama and qwen2 families, and shares only the file format with the C code.  RoPE of the
llama architecture turns adjacent pairs, as GGUF files of that architecture are permuted for; qwen2 turns element i with
element i + dims/2.

Runs are reproducible: every case has its own seed."""
import math
import pathlib
import struct
import sys

import numpy as np
import torch

torch.set_default_dtype(torch.float64)

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
U32, FLOAT, STRING, ARRAY, I32 = 4, 6, 8, 9, 5


# ---- storage types: bytes to write, and the values a reader gets back ----

def store_f32(values):
    data = values.astype("<f4")
    return data.tobytes(), data.astype(np.float64)


def store_f16(values):
    data = values.astype("<f2")
    return data.tobytes(), data.astype(np.float64)


def store_bf16(values):
    words = values.astype("<f4").view("<u4")
    rounded = ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype("<u2")
    return rounded.tobytes(), (rounded.astype("<u4") << 16).view("<f4").astype(np.float64)


def store_q8_0(values):
    groups = values.astype(np.float64).reshape(-1, 32)
    scale = (np.abs(groups).max(axis=1) / 127).astype("<f2")
    wide = scale.astype(np.float64)[:, None]
    codes = np.rint(np.divide(groups, wide, out=np.zeros_like(groups), where=wide > 0))
    codes = np.clip(codes, -127, 127).astype(np.int8)
    out = b"".join(s.tobytes() + c.tobytes() for s, c in zip(scale, codes))
    return out, (codes.astype(np.float64) * wide).reshape(values.shape)


STORE = {F32: store_f32, F16: store_f16, BF16: store_bf16, Q8_0: store_q8_0}


# ---- a minimal GGUF v3 writer ----

def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_value(value):
    if isinstance(value, str):
        return struct.pack("<I", STRING) + packed_string(value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    kind, code = (I32, "<i4") if value.dtype.kind == "i" else (FLOAT, "<f4")
    return struct.pack("<IIQ", ARRAY, kind, value.size) + value.astype(code).tobytes()


def write_gguf(path, keys, tensors):
    """tensors: {name: (type, shape, bytes)}; the shape in numpy's order (rows first)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(packed_string(key) + packed_value(value) for key, value in keys.items())
    body = b""
    for name, (kind, shape, data) in tensors.items():
        dims = tuple(reversed(shape))
        head += packed_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
    head += b"\0" * (-len(head) % 32)
    path.write_bytes(head + body)


# ---- the model ----

def inverse_frequencies(case):
    """Angle per position of each pair, and the magnitude of the sines."""
    dims, base, scaling = case["rope_dims"], case["base"], case.get("scaling", {})
    plain = torch.tensor([base ** (-2 * i / dims) for i in range(dims // 2)])
    kind = scaling.get("type", "none")
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "llama3":
        return plain / torch.tensor(case["rope_freqs"], dtype=torch.float64), 1.0
    if kind == "yarn":
        def pair_at(turns):
            return dims * math.log(scaling["original"] / (turns * 2 * math.pi)) / (2 * math.log(base))
        low = max(math.floor(pair_at(scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(pair_at(scaling.get("beta_slow", 1))), dims - 1)
        ramp = torch.clamp((torch.arange(dims // 2) - low) / max(0.001, high - low), 0, 1)
        return plain * (1 - ramp) + plain / scaling["factor"] * ramp, 0.1 * math.log(scaling["factor"]) + 1
    return plain, 1.0


def llama3_divisors(dims, base, factor, low_factor, high_factor, original):
    """The divisors that a llama 3.1 file brings along as rope_freqs.weight."""
    out = []
    for i in range(dims // 2):
        wave = 2 * math.pi * base ** (2 * i / dims)
        if wave < original / high_factor:
            out.append(1.0)
        elif wave > original / low_factor:
            out.append(factor)
        else:
            smooth = (original / wave - low_factor) / (high_factor - low_factor)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def rotate(x, case, pairs_adjacent):
    """x: [tokens][heads][head_dim]"""
    angle, magnitude = inverse_frequencies(case)
    dims = case["rope_dims"]
    theta = torch.arange(x.shape[0])[:, None] * angle[None, :]
    cos, sin = (torch.cos(theta) * magnitude)[:, None, :], (torch.sin(theta) * magnitude)[:, None, :]
    out = x.clone()
    if pairs_adjacent:
        a, b = x[..., 0:dims:2], x[..., 1:dims:2]
        out[..., 0:dims:2], out[..., 1:dims:2] = a * cos - b * sin, a * sin + b * cos
    else:
        a, b = x[..., :dims // 2], x[..., dims // 2:dims]
        out[..., :dims // 2], out[..., dims // 2:dims] = a * cos - b * sin, a * sin + b * cos
    return out


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def times(x, w, name):
    """x . W^T.  Q8_0 matrices are multiplied with activations of eight bits per qblk, as integer dot products want."""
    values, kind = w[name]
    if kind == Q8_0:
        groups = x.reshape(*x.shape[:-1], -1, 32)
        largest = groups.abs().amax(-1, keepdim=True)
        step = torch.exp2(torch.floor(torch.log2(largest * 129 / 128)) - 6)  # a power of two; at most 127 of them
        x = (torch.round(groups / step) * step).reshape(x.shape)
    return x @ values.T


def forward(case, w, tokens):
    heads, kv_heads, dim = case["heads"], case["kv_heads"], case["head_dim"]
    adjacent = case["arch"] == "llama"
    n = len(tokens)
    x = w["token_embd.weight"][0][torch.tensor(tokens)]
    mask = torch.full((n, n), -math.inf).triu(1)
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        h = rms_norm(x, w[p + "attn_norm.weight"][0], case["eps"])
        q, k, v = (times(h, w, p + f"attn_{m}.weight") + w.get(p + f"attn_{m}.bias", (0,))[0] for m in "qkv")
        q = rotate(q.view(n, heads, dim), case, adjacent)
        k = rotate(k.view(n, kv_heads, dim), case, adjacent).repeat_interleave(heads // kv_heads, 1)
        v = v.view(n, kv_heads, dim).repeat_interleave(heads // kv_heads, 1)
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + mask
        mixed = torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v).reshape(n, heads * dim)
        x = x + times(mixed, w, p + "attn_output.weight")
        h = rms_norm(x, w[p + "ffn_norm.weight"][0], case["eps"])
        gate, up = times(h, w, p + "ffn_gate.weight"), times(h, w, p + "ffn_up.weight")
        x = x + times(gate * torch.sigmoid(gate) * up, w, p + "ffn_down.weight")
    x = rms_norm(x, w["output_norm.weight"][0], case["eps"])
    return times(x, w, "token_embd.weight" if case["tied"] else "output.weight")


def random_tensors(case, rng):
    hidden, ffn, vocab = case["hidden"], case["ffn"], case["vocab"]
    q, kv = case["heads"] * case["head_dim"], case["kv_heads"] * case["head_dim"]
    shapes = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
    if not case["tied"]:
        shapes["output.weight"] = (vocab, hidden)
    for layer in range(case["layers"]):
        p = f"blk.{layer}."
        shapes |= {p + "attn_norm.weight": (hidden,), p + "attn_q.weight": (q, hidden),
                   p + "attn_k.weight": (kv, hidden), p + "attn_v.weight": (kv, hidden)}
        if case.get("biases"):
            shapes |= {p + "attn_q.bias": (q,), p + "attn_k.bias": (kv,), p + "attn_v.bias": (kv,)}
        shapes |= {p + "attn_output.weight": (hidden, q), p + "ffn_norm.weight": (hidden,),
                   p + "ffn_gate.weight": (ffn, hidden), p + "ffn_up.weight": (ffn, hidden),
                   p + "ffn_down.weight": (hidden, ffn)}
    stored, values = {}, {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            raw, kind = (rng.normal(0, 0.5, shape) if name.endswith("bias") else rng.uniform(0.5, 1.5, shape)), F32
        else:
            raw, kind = rng.normal(0, 1.5 / math.sqrt(shape[1]), shape), case["types"].get(name.split(".")[-2],
                                                                                         case["type"])
        data, back = STORE[kind](raw)
        stored[name], values[name] = (kind, shape, data), (torch.from_numpy(back.reshape(shape)), kind)
    return stored, values


def make(case, folder):
    rng = np.random.default_rng(case["seed"])
    arch = case["arch"]
    stored, values = random_tensors(case, rng)
    keys = {"general.architecture": arch, "general.name": case["name"], "baton.golden.name": case["about"],
            f"{arch}.block_count": case["layers"], f"{arch}.context_length": case["context"],
            f"{arch}.embedding_length": case["hidden"], f"{arch}.feed_forward_length": case["ffn"],
            f"{arch}.attention.head_count": case["heads"], f"{arch}.attention.head_count_kv": case["kv_heads"],
            f"{arch}.attention.layer_norm_rms_epsilon": case["eps"], f"{arch}.rope.freq_base": case["base"]}
    if case["heads"] * case["head_dim"] != case["hidden"]:
        keys |= {f"{arch}.attention.key_length": case["head_dim"], f"{arch}.attention.value_length": case["head_dim"]}
    if case["rope_dims"] != case["head_dim"]:
        keys[f"{arch}.rope.dimension_count"] = case["rope_dims"]
    scaling = case.get("scaling", {})
    if scaling.get("type") in ("linear", "yarn"):
        keys |= {f"{arch}.rope.scaling.type": scaling["type"], f"{arch}.rope.scaling.factor": scaling["factor"]}
    if "original" in scaling and scaling["type"] == "yarn":
        keys[f"{arch}.rope.scaling.original_context_length"] = scaling["original"]
    if scaling.get("type") == "llama3":
        case["rope_freqs"] = llama3_divisors(case["rope_dims"], case["base"], scaling["factor"], 1.0, 4.0,
                                             scaling["original"])
        stored["rope_freqs.weight"] = (F32, case["rope_freqs"].shape, case["rope_freqs"].tobytes())
    tokens = [int(t) for t in rng.integers(0, case["vocab"], case["n_tokens"])]
    # Uses the header's floats (eps, base) as a reader gets them back.
    case["eps"] = float(np.float32(case["eps"]))
    case["base"] = float(np.float32(case["base"]))
    logits = forward(case, values, tokens).numpy().astype(np.float32)
    keys |= {"baton.golden.tokens": np.array(tokens, dtype=np.int32), "baton.golden.logits": logits.reshape(-1)}
    path = folder / f"{case['name']}.gguf"
    write_gguf(path, keys, stored)
    print(f"{path.name}: {path.stat().st_size} bytes, logits of deviation {logits.std():.2f}")


COMMON = dict(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=16, rope_dims=16, vocab=64, context=256,
              eps=1e-5, base=10000.0, tied=False, types={}, n_tokens=40)
CASES = [
    dict(COMMON, seed=1, name="llama-f32", about="llama, F32, grouped queries, separate head", arch="llama",
         type=F32, layers=1, hidden=40, ffn=72, head_dim=10, rope_dims=10),
    dict(COMMON, seed=2, name="llama-f16-linear", about="llama, F16, linear RoPE scaling, tied head", arch="llama",
         type=F16, tied=True, scaling=dict(type="linear", factor=4.0), kv_heads=4, hidden=48, ffn=72, head_dim=12,
         rope_dims=12),
    dict(COMMON, seed=3, name="llama-bf16-llama3", about="llama, BF16, llama 3 RoPE divisors, one KV head",
         arch="llama", type=BF16, kv_heads=1, hidden=40, ffn=75, head_dim=32, heads=2, rope_dims=32, base=500000.0,
         scaling=dict(type="llama3", factor=8.0, original=32)),
    dict(COMMON, seed=4, name="llama-q8_0-partial", about="llama, Q8_0, half of each head turned", arch="llama",
         type=Q8_0, rope_dims=8),
    dict(COMMON, seed=5, name="qwen2-f32-yarn", about="qwen2, F32, biases, YaRN, tied head", arch="qwen2", type=F32,
         layers=1, hidden=48, ffn=60, biases=True, tied=True, scaling=dict(type="yarn", factor=4.0, original=64)),
    dict(COMMON, seed=6, name="qwen2-f16", about="qwen2, F16, biases, heads wider than hidden", arch="qwen2",
         type=F16, biases=True, heads=6, kv_heads=2, base=1000000.0, hidden=40, ffn=56),
    dict(COMMON, seed=7, name="qwen2-mixed", about="qwen2, tensors of different types side by side", arch="qwen2",
         type=Q8_0, biases=True, tied=True, layers=1,
         types={"attn_v": F16, "ffn_up": BF16, "token_embd": F32, "attn_output": F32}),
]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for case in CASES:
        make(case, folder)


if __name__ == "__main__":
    main()
