# SPDX-License-Identifier: Apache-2.0
"""Runs the model from the GGUF file, plainly, to check others and to evaluate.

Weights are de-quantised once; arithmetic is float32 or float64 (slow, exact
enough to test an engine against) or bfloat16 products (fast, for quick looks).
Rotary pairs are (2i, 2i + 1), as in the file.

    engine = Engine.from_gguf(path)
    engine.reset(); scores = engine.feed(ids)      # logits after the last id
"""
import torch
import torch.nn.functional as F

import bpe
import gguf
import model


def weights_from_tensors(tensors):
    return {k: torch.tensor(v, dtype=torch.float32) for k, v in tensors.items()}


class Engine:
    """One sequence with its KV cache; k and v are lists of [kv_heads][t][head_dim] per layer."""

    def __init__(self, weights, dtype=torch.float32):
        self.dtype = dtype
        self.wide = torch.float64 if dtype == torch.float64 else torch.float32
        self.w = {k: v.to(dtype if v.dim() == 2 else self.wide) for k, v in weights.items()}
        self.embed = weights["token_embd.weight"].to(self.wide)
        self.fast = {k: (v.to_mkldnn(), torch.zeros(v.shape[0]).to_mkldnn()) for k, v in self.w.items()
                     if v.dim() == 2 and dtype == torch.float32}
        heads = sum(k.endswith(".nextn.eh_proj.weight") for k in weights)  # blocks behind the last layer
        self.layers = 1 + max(int(k.split(".")[1]) for k in weights if k.startswith("blk.")) - heads
        self.reset()

    @classmethod
    def from_gguf(cls, path, dtype=torch.float32):
        file = gguf.Reader(path)
        model.stretch(file.metadata.get("llama.rope.scaling.factor", 1))
        return cls(weights_from_tensors(file.tensors), dtype)

    def reset(self):
        self.t = 0
        self.fed = []
        self.k = [None] * self.layers
        self.v = [None] * self.layers

    def keep(self, ids):
        """Keeps the state of the part of ids that was fed before; returns the rest, at least one id."""
        n = 0
        while n < min(len(ids) - 1, len(self.fed)) and ids[n] == self.fed[n]:
            n += 1
        self.t, self.fed = n, self.fed[:n]
        self.k = [k[:, :n] if n else None for k in self.k]
        self.v = [v[:, :n] if n else None for v in self.v]
        return ids[n:]

    def linear(self, x, name):
        """Many rows of float32 go through oneDNN, whose sums are as exact and far quicker."""
        if name in self.fast and x.shape[0] > 4:
            return torch._C._nn.mkldnn_linear(x.contiguous().to_mkldnn(), *self.fast[name]).to_dense()
        return F.linear(x.to(self.dtype), self.w[name]).to(self.wide)

    def norm(self, x, name):
        return x * (x.square().mean(-1, keepdim=True) + model.EPS).rsqrt() * self.w[name]

    def rotate(self, x, first):
        """x [t][heads][head_dim]"""
        rate, scale = model.rope_rates()
        angle = torch.arange(first, first + x.shape[0], dtype=torch.float64)[:, None] * rate
        cos, sin = ((scale * f).to(self.wide)[:, None] for f in (angle.cos(), angle.sin()))
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def attend(self, x, layer):
        t, d, group = x.shape[0], model.HEAD_DIM, model.HEADS // model.KV_HEADS
        name = "blk.%d.attn_" % layer
        q = self.rotate(self.linear(x, name + "q.weight").view(t, -1, d), self.t).transpose(0, 1)
        k = self.rotate(self.linear(x, name + "k.weight").view(t, -1, d), self.t).transpose(0, 1)
        v = self.linear(x, name + "v.weight").view(t, -1, d).transpose(0, 1)
        if self.k[layer] is not None:
            k, v = torch.cat([self.k[layer], k], 1), torch.cat([self.v[layer], v], 1)
        self.k[layer], self.v[layer] = k, v
        scores = q @ k.repeat_interleave(group, 0).transpose(1, 2) * d ** -.5
        if t > 1:
            ok = torch.arange(k.shape[1])[None] <= torch.arange(self.t, self.t + t)[:, None]
            scores = scores.masked_fill(~ok, float("-inf"))
        out = scores.softmax(-1) @ v.repeat_interleave(group, 0)
        return self.linear(out.transpose(0, 1).reshape(t, -1), name + "output.weight")

    def feed(self, ids, every=False):
        """Logits [vocab] after the last id, or [t][vocab] for every id."""
        with torch.no_grad():
            x = self.embed[torch.as_tensor(ids)]
            for layer in range(self.layers):
                blk = "blk.%d." % layer
                x = x + self.attend(self.norm(x, blk + "attn_norm.weight"), layer)
                h = self.norm(x, blk + "ffn_norm.weight")
                h = F.silu(self.linear(h, blk + "ffn_gate.weight")) * self.linear(h, blk + "ffn_up.weight")
                x = x + self.linear(h, blk + "ffn_down.weight")
            self.t += len(ids)
            self.fed = self.fed + list(ids)
            x = self.norm(x if every else x[-1:], "output_norm.weight")
            scores = self.linear(x, "token_embd.weight")
            return scores if every else scores[0]

    def greedy(self, ids, limit, stop=None):
        """Ids after `ids`, up to limit or the stop id, and the smallest top-1 to top-2 margin."""
        out, margin = [], float("inf")
        scores = self.feed(self.keep(ids))
        while True:
            top = scores.topk(2)
            margin = min(margin, float(top.values[0] - top.values[1]))
            out.append(int(top.indices[0]))
            if len(out) == limit or out[-1] == stop:
                return out, margin
            scores = self.feed(out[-1:])


def tokeniser_of(path):
    meta = gguf.Reader(path).metadata
    return bpe.Tokeniser(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.merges"])
