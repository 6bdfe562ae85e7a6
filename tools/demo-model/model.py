# SPDX-License-Identifier: Apache-2.0
"""The model: a plain llama-shaped transformer, written for speed on a CPU.

    ids -> embedding -> 6 x ( + attention(norm x) ; + swiglu(norm x) ) -> norm -> logits

Weights are kept in float32; all large products run in bfloat16, which is the
only fast path of old builds of torch (train.py --float32: BF16 becomes float32).
The residual stream is float32.
Attention, rotation, norm and SwiGLU are autograd functions with hand-written
backward passes, because saving a few passes over memory counts more than
anything else at this size.

The norms inside the layers have no gain of their own (it would fold into the
matrix that follows); they are exported as ones.  In training the rotary pairs
are (i, i + head_dim/2), which is contiguous; export interleaves the rows of
wq and wk so that the file has pairs (2i, 2i + 1).
"""
import math

import torch
import torch.nn.functional as F

DIM = 256
LAYERS = 6
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 64
FFN = 768
VOCAB = 2048
EPS = 1e-5
ROPE_BASE = 10000.0
ROPE_FACTOR = 1.0
TRAINED = 4096      # positions before the model is stretched
CONTEXT = TRAINED   # and the positions that it has; stretch() changes both this and ROPE_FACTOR
IM_START = 2040
BF16 = torch.bfloat16
QUERY_BLOCK = 256

SHAPES = {"wq": (HEADS * HEAD_DIM, DIM), "wk": (KV_HEADS * HEAD_DIM, DIM), "wv": (KV_HEADS * HEAD_DIM, DIM),
          "wo": (DIM, HEADS * HEAD_DIM), "gate": (FFN, DIM), "up": (FFN, DIM), "down": (DIM, FFN)}


def new_parameters(seed):
    """A dict of float32 leaves; the two matrices that write to the residual start at zero."""
    g = torch.Generator().manual_seed(seed)
    params = {"embed": torch.randn(VOCAB, DIM, generator=g) * .05, "norm": torch.ones(DIM)}
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            scale = 0.0 if name in ("wo", "down") else 1 / math.sqrt(shape[1])
            params["%d.%s" % (layer, name)] = torch.randn(*shape, generator=g) * scale
    return {k: v.requires_grad_(True) for k, v in params.items()}


class Norm(torch.autograd.Function):
    """float32 [n][dim] -> bfloat16 [n][dim] of unit mean square."""

    @staticmethod
    def forward(ctx, x):
        scale = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
        y = (x * scale).to(BF16)
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, scale = ctx.saved_tensors
        g = grad.float()
        y = y.float()
        dot = (g * y).mean(-1, keepdim=True)
        return g.addcmul_(y, dot, value=-1).mul_(scale)


class Rotate(torch.autograd.Function):
    """x [b][t][h][head_dim] bfloat16, tables [b][t][1][head_dim]; sin has its sign folded in."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return x * cos + x.roll(HEAD_DIM // 2, -1) * sin

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        return g * cos - g.roll(HEAD_DIM // 2, -1) * sin, None, None


def causal(rows, first, keys):
    """Additive mask for queries first..first+rows against keys 0..keys, per group of heads."""
    ok = torch.arange(keys)[None, :] <= torch.arange(first, first + rows)[:, None]
    mask = torch.zeros(rows, keys).masked_fill_(~ok, float("-inf")).to(BF16)
    return mask.repeat(HEADS // KV_HEADS, 1)


MASKS = {}


class Attend(torch.autograd.Function):
    """q [b*kv][group][t][d] (already scaled), k and v [b*kv][t][d]; query blocks see only their past."""

    @staticmethod
    def forward(ctx, q, k, v):
        n, group, t, d = q.shape
        out = torch.empty_like(q)
        probs = []
        for first in range(0, t, QUERY_BLOCK):
            last = min(first + QUERY_BLOCK, t)
            key = (last - first, first, last)
            if key not in MASKS:
                MASKS[key] = causal(*key)
            s = torch.bmm(q[:, :, first:last].reshape(n, -1, d), k[:, :last].transpose(1, 2))
            p = s.add_(MASKS[key]).softmax(-1)
            out[:, :, first:last] = torch.bmm(p, v[:, :last]).view(n, group, last - first, d)
            probs.append(p)
        ctx.save_for_backward(q, k, v, *probs)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, *probs = ctx.saved_tensors
        n, group, t, d = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for p, first in zip(probs, range(0, t, QUERY_BLOCK)):
            last = min(first + QUERY_BLOCK, t)
            g = grad[:, :, first:last].reshape(n, -1, d)
            dp = torch.bmm(g, v[:, :last].transpose(1, 2))
            ds = torch._softmax_backward_data(dp, p, -1, BF16)
            dv[:, :last] += torch.bmm(p.transpose(1, 2), g)
            dk[:, :last] += torch.bmm(ds.transpose(1, 2), q[:, :, first:last].reshape(n, -1, d))
            dq[:, :, first:last] = torch.bmm(ds, k[:, :last]).view(n, group, last - first, d)
        return dq, dk, dv


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        u = F.silu(a)
        ctx.save_for_backward(a, b, u)
        return u * b

    @staticmethod
    def backward(ctx, g):
        a, b, u = ctx.saved_tensors
        return torch.ops.aten.silu_backward(g * b, a), g * u


def stretch(factor):
    """From now on the model has `factor` times the positions, by YaRN; with 1 it has those of its training."""
    global CONTEXT, ROPE_FACTOR
    CONTEXT, ROPE_FACTOR = int(TRAINED * factor), float(factor)


def rope_rates():
    """Radians per position of each rotary pair, and the factor of cos and sin, after YaRN.

    Pairs that turn more than 32 times within TRAINED positions keep their rate; those that turn less
    than once are slowed by ROPE_FACTOR; between them it falls linearly with the number of the pair."""
    half = HEAD_DIM // 2
    pair = torch.arange(half, dtype=torch.float64)
    low, high = (half * math.log(TRAINED / (turns * 2 * math.pi)) / math.log(ROPE_BASE) for turns in (32, 1))
    low, high = max(0, math.floor(low)), min(HEAD_DIM - 1, math.ceil(high))
    slowed = ((pair - low) / (high - low)).clamp(0, 1)
    return ROPE_BASE ** (-pair / half) * (1 - slowed + slowed / ROPE_FACTOR), 1 + .1 * math.log(ROPE_FACTOR)


def rope_tables(positions):
    """positions [b][t] -> cos, sin [b][t][1][head_dim] bfloat16 for Rotate."""
    rate, scale = rope_rates()
    angle = positions.double()[..., None] * rate
    cos, sin = angle.cos() * scale, angle.sin() * scale
    return (torch.cat([cos, cos], -1)[:, :, None].to(BF16), torch.cat([-sin, sin], -1)[:, :, None].to(BF16))


def heads_of(weights, layer, h, b, t):
    """Queries, keys and values of all heads, not turned: [b][t][HEADS + 2 KV_HEADS][head_dim]."""
    wqkv = torch.cat([weights["%d.%s" % (layer, n)] for n in ("wq", "wk", "wv")])
    return F.linear(h, wqkv).view(b, t, HEADS + 2 * KV_HEADS, HEAD_DIM)


def attention(weights, layer, h, tables, seen=None):
    b, t = tables[0].shape[:2]
    group = HEADS // KV_HEADS
    qkv = heads_of(weights, layer, h, b, t)
    if seen is not None:
        seen.append(qkv[:, :, HEADS:].detach())
    qk = Rotate.apply(qkv[:, :, :HEADS + KV_HEADS], *tables)
    q = (qk[:, :, :HEADS] * HEAD_DIM ** -.5).permute(0, 2, 1, 3).reshape(b * KV_HEADS, group, t, HEAD_DIM)
    k = qk[:, :, HEADS:].permute(0, 2, 1, 3).reshape(b * KV_HEADS, t, HEAD_DIM)
    v = qkv[:, :, HEADS + KV_HEADS:].permute(0, 2, 1, 3).reshape(b * KV_HEADS, t, HEAD_DIM)
    out = Attend.apply(q, k, v).view(b, HEADS, t, HEAD_DIM).permute(0, 2, 1, 3).reshape(b * t, DIM)
    return F.linear(out, weights["%d.wo" % layer])


def hidden(params, ids, positions, seen=None, attend=None):
    """Final states [b*t][dim], before the output norm.

    `seen` collects, for each layer, keys and values before they are turned: [b][t][2 KV_HEADS][head_dim].
    `attend` takes the place of attention()."""
    weights = {k: v.to(BF16) for k, v in params.items() if k not in ("norm", "embed")}
    tables = rope_tables(positions)
    x = F.embedding(ids, params["embed"]).view(-1, DIM)
    for layer in range(LAYERS):
        h = Norm.apply(x)
        x = x + (attend(weights, layer, h, tables) if attend else attention(weights, layer, h, tables, seen))
        h = Norm.apply(x)
        a, b = F.linear(h, weights["%d.gate" % layer]), F.linear(h, weights["%d.up" % layer])
        x = x + F.linear(SwiGLU.apply(a, b), weights["%d.down" % layer])
    return x


def logits(params, x):
    """Scores [n][vocab] in float32 for chosen final states."""
    return F.linear(Norm.apply(x) * params["norm"].to(BF16), params["embed"].to(BF16)).float()
