# SPDX-License-Identifier: Apache-2.0
"""Trains an MTP head for a trained model: one more layer, which drafts the token after the next.

    head_train.py WORK MODEL.gguf --until UNIX_TIME [--from HEAD.pt] [--mixed CHECKPOINT SHARE]

    rows of the trunk      h_0   h_1   h_2       what the output head reads; the trunk is frozen
    next tokens            t_1   t_2   t_3
    first pass             y_0   y_1   y_2       y_i = layer([norm E(t_i+1) | norm h_i] . W): drafts t_i+2
    second pass                  z_1   z_2       from [norm E(t_i+1) | norm y_i-1]: drafts t_i+2 where y_i-1
                                                 drafted t_i+1, as an engine chains its drafts

A pass attends to the first pass' keys of earlier tokens and to the keys of its own chain, as the engine's does.
The target is the trunk's distribution, because a draft token counts if the trunk would have drawn it.  Loss falls on
the tokens that the assistant writes.  The head has no say in an answer, so its errors cost speed only.
"""
import argparse
import os
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

import export
import gguf
import model
import train

TOKENS = 2048       # of a batch, padding included
PASSES = 3          # drafts in a row
REST = .03          # weight of tokens that the assistant does not write
PASS_WEIGHT = (1, .7, .5)
NAME = "%d." % model.LAYERS


def new_head(trunk):
    """A layer that adds nothing yet, after a projection that passes the trunk's row."""
    g = torch.Generator().manual_seed(3)
    head = {}
    for name, shape in model.SHAPES.items():
        scale = 0.0 if name in ("wo", "down") else shape[1] ** -.5
        head[NAME + name] = torch.randn(*shape, generator=g) * scale
    head[NAME + "eh"] = torch.cat([torch.randn(model.DIM, model.DIM, generator=g) * .02, torch.eye(model.DIM)], 1)
    head["head_norm"] = trunk["norm"].clone()
    return {k: v.requires_grad_(True) for k, v in head.items()}


def unit(x):
    return x * (x.square().mean(-1, keepdim=True) + model.EPS).rsqrt()


def later(x, n):
    """x [b][t][...] of n tokens before; the first ones repeat."""
    return x if n == 0 else torch.cat([x[:, :1].expand(-1, n, *x.shape[2:]), x[:, :-n]], 1)


class Passes:
    """The head over a batch; chained keys are kept from pass to pass."""

    def __init__(self, head, embedded, positions):
        self.head, self.embedded = head, embedded  # unit embeddings of the next tokens [b][t][dim]
        self.tables = [x.float() for x in model.rope_tables(positions)]
        b, t = positions.shape
        i = torch.arange(t)
        self.masks = [torch.where(i[None, :] <= i[:, None] - n, 0.0, -1e30) for n in range(PASSES)]
        self.keys = []  # (k, v) [b][heads][t][d] of each pass

    def rotated(self, x):
        cos, sin = self.tables
        return x * cos + x.roll(model.HEAD_DIM // 2, -1) * sin

    def attention(self, h):
        b, t, _ = h.shape
        group = model.HEADS // model.KV_HEADS
        q, k, v = (F.linear(h, self.head[NAME + n]).view(b, t, -1, model.HEAD_DIM) for n in ("wq", "wk", "wv"))
        q = self.rotated(q).permute(0, 2, 1, 3) * model.HEAD_DIM ** -.5
        k, v = (x.permute(0, 2, 1, 3).repeat_interleave(group, 1) for x in (self.rotated(k), v))
        self.keys.append((k, v))
        n = len(self.keys) - 1
        scores = q @ self.keys[0][0].transpose(2, 3) + self.masks[n]
        own = []
        for back in range(n):  # this pass' own key, and those of the passes before it at the tokens before
            key = self.keys[n - back]
            own.append(tuple(later(x.transpose(1, 2), back).transpose(1, 2) for x in key))
        chain = [(q * k2).sum(-1, keepdim=True) for k2, _ in own]
        p = torch.cat([scores] + chain, -1).softmax(-1)
        out = p[..., :t] @ self.keys[0][1]
        for at, (_, v2) in enumerate(own):
            out = out + p[..., t + at:t + at + 1] * v2
        return F.linear(out.permute(0, 2, 1, 3).reshape(b, t, -1), self.head[NAME + "wo"])

    def run(self, rows):
        """rows [b][t][dim] that come with the next tokens -> the head's own rows, which it drafts from."""
        head = self.head
        x = F.linear(torch.cat([self.embedded, unit(rows)], -1), head[NAME + "eh"])
        x = x + self.attention(unit(x))
        h = unit(x)
        x = x + F.linear(F.silu(F.linear(h, head[NAME + "gate"])) * F.linear(h, head[NAME + "up"]), head[NAME + "down"])
        return unit(x) * head["head_norm"]


def losses(trunk, head, batch, rng):
    """For each pass (loss, agreeing drafts, drafts) of a batch."""
    ids, positions, flags = arrays(batch, rng)
    b, t = ids.shape
    with torch.no_grad():
        rows = (unit(model.hidden(trunk, ids, positions).float()) * trunk["norm"]).view(b, t, -1)
        ahead = torch.cat([rows[:, 1:], rows[:, -1:]], 1)  # the row that draws the token after the next
    weight = torch.zeros(b, t)
    weight[:, :-2] = flags[:, 2:]
    after = torch.cat([ids[:, 1:], ids[:, -1:]], 1)
    passes = Passes(head, unit(trunk["embed"])[after], positions)
    out = []
    for n in range(PASSES):
        weight[:, :n] = 0
        where = weight.reshape(-1).nonzero()[:, 0]
        drafts = passes.run(rows)
        w = weight.reshape(-1)[where]
        with torch.no_grad():
            target = F.linear(ahead.reshape(-1, model.DIM)[where], trunk["embed"]).softmax(-1)
        scores = F.linear(drafts.reshape(-1, model.DIM)[where], trunk["embed"])
        each = -(target * scores.log_softmax(-1)).sum(-1)
        is_written = w == 1
        agree = (scores.argmax(-1) == target.argmax(-1))[is_written]
        out.append(((each * w).sum() / w.sum(), int(agree.sum()), int(is_written.sum())))
        rows = later(drafts, 1)
    return out, ids.numel()


def arrays(batch, rng):
    t = max(len(i) for i, _ in batch)
    ids, weight = np.zeros((len(batch), t), np.int64), np.zeros((len(batch), t), np.float32)
    positions = np.zeros((len(batch), t), np.int64)
    for n, (i, f) in enumerate(batch):
        ids[n, :len(i)] = i
        weight[n, :len(i)] = np.where(f, 1, np.where(rng.random(len(i)) < .3, REST, 0))
        positions[n] = train.jump(ids[n], t, rng)
    return [torch.from_numpy(x) for x in (ids, positions, weight)]


def trunk_of(args):
    """The file's weights, or a share of a checkpoint's average and the rest of the file's."""
    file = gguf.Reader(args.model)
    trunk = export.parameters_of(file.tensors)
    model.stretch(file.metadata.get("llama.rope.scaling.factor", 1))
    if args.mixed:
        saved = torch.load(args.mixed[0])
        model.stretch(saved["rope_factor"])
        trunk = export.mixed(saved["opt"]["average"], trunk, float(args.mixed[1]))
    return trunk


def run(args):
    trunk = trunk_of(args)
    head = new_head(trunk)
    if args.start:
        with torch.no_grad():
            for k, v in torch.load(args.start).items():
                head[k].copy_(v)
    opt = train.Optimiser(head, args.average)
    rng = np.random.default_rng(11)
    source = train.batches_of(args.work, args.first, int(time.time()), TOKENS)
    began, step, seen, sums, saved = time.time(), 0, 0, np.zeros((PASSES, 3)), time.time()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    while time.time() < args.until and not stopping:
        parts, n = losses(trunk, head, next(source)[1], rng)
        sum(p[0] * w for p, w in zip(parts, PASS_WEIGHT)).backward()
        rate = args.rate * min(1, (step + 1) / 20, max(.02, (args.until - time.time()) / args.fade_s))
        opt.step(rate)
        step, seen = step + 1, seen + n
        sums += [[p[0].item(), p[1], p[2]] for p in parts]
        if step % 20 == 0:
            print("step %d  %s  rate %.2f  %.0f tokens/s" % (step, "  ".join(
                "%.3f %.1f %%" % (s[0] / 20, 100 * s[1] / max(1, s[2])) for s in sums), rate, seen / (time.time() - began)), flush=True)
            sums[:] = 0
        if time.time() - saved > 60:
            save(args, opt)
            saved = time.time()
    save(args, opt)


def save(args, opt):
    path = os.path.join(args.work, "head.pt")
    torch.save({k: v.clone() for k, v in opt.average.items()}, path + ".new")
    os.replace(path + ".new", path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("work")
    p.add_argument("model")
    p.add_argument("--mixed", nargs=2, metavar=("CHECKPOINT", "SHARE"))
    p.add_argument("--from", dest="start", help="a head to go on from")
    p.add_argument("--first", type=int, default=300, help="the shard to begin with")
    p.add_argument("--until", type=float, required=True, help="stop at this Unix time")
    p.add_argument("--fade-s", type=float, default=600, help="seconds of fading before --until")
    p.add_argument("--rate", type=float, default=1)
    p.add_argument("--average", type=float, default=.98)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    model.BF16 = torch.float32
    run(args)


if __name__ == "__main__":
    main()
