# SPDX-License-Identifier: Apache-2.0
"""Trains the model from the shards; can be stopped and resumed at any time.

    train.py WORK [--total STEPS] [--until UNIX_TIME --fade-s SECONDS] [--from MODEL.gguf --first SHARD [--stretch]]

With --from, and no checkpoint yet, training begins with that model's weights, without the drill.

Matrices are trained by Muon (momentum, then an orthogonalised step), the tied
embedding by Adam.  The rate is flat after a warm-up and falls linearly to zero
over the last FADE share of --total steps, or with --until over the last seconds
before that time, for machines whose speed is not one's own; an average of the weights (EMA) is
kept, so that a good model can be exported before the end.

A batch is MICRO micro-batches of dialogues of similar length, each from its own
beginning, so nothing attends across dialogues.  Loss falls on what the
assistant writes; a random sample of the rest counts a little, which teaches
the language of requests and copying early.  In a third of the batches positions
jump ahead at some turn, so that distances up to the whole context are known.
"""
import argparse
import os
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import export
import gguf
import model
import stretch

MICRO_TOKENS = 4096
MICRO = 2
WARMUP = 60
FADE = .4
RATE_MATRIX = .02
RATE_EMBED = .004
DECAY = .02
EMA = .997
REST_SHARE, REST_WEIGHT = .2, .25
DRILL_STEPS, DRILL_ROWS, DRILL_LENGTH, DRILL_WEIGHT = 660, 16, 128, .5
FAR_STEPS = 400  # that a shard of far dialogues is enough for
STRETCH, BANK_TOKENS, USUAL_TOKENS, FILLER_EVERY, FILLER_SHARE, FAR_SHARE = 8, 16384, 2560, 8, .1, .55


def orthogonal(g):
    """Newton-Schulz: the nearest matrix with equal singular values, for a stack of matrices."""
    x = g.to(model.BF16)
    x = x / (x.float().flatten(1).norm(dim=1).to(model.BF16)[:, None, None] + 1e-7)
    for _ in range(5):
        a = torch.bmm(x, x.transpose(1, 2))
        b = a * -4.7750 + torch.bmm(a, a) * 2.0315
        x = x * 3.4445 + torch.bmm(b, x)
    return x.float()


class Optimiser:
    """Muon on matrices, Adam on the rest; moments are kept in self.state."""

    def __init__(self, params, keep=EMA):
        self.params, self.keep = params, keep
        self.matrices = [k for k in params if "." in k]
        self.others = [k for k in params if "." not in k]
        self.state = {k: torch.zeros_like(v) for k, v in params.items()}
        self.square = {k: torch.zeros_like(params[k]) for k in self.others}
        self.average = {k: v.detach().clone() for k, v in params.items()}
        self.count = 0

    def step(self, rate):
        self.count += 1
        groups = {}
        with torch.no_grad():
            for k in self.matrices:
                g, moment = self.params[k].grad, self.state[k]
                moment.mul_(.95).add_(g, alpha=.05)
                update = g.mul(.05).add_(moment, alpha=.95)
                flip = update.shape[0] > update.shape[1]
                groups.setdefault(tuple(sorted(update.shape)), []).append((k, flip, update.t() if flip else update))
            for members in groups.values():
                for (k, flip, _), u in zip(members, orthogonal(torch.stack([u for *_, u in members]))):
                    p = self.params[k]
                    scale = max(1, p.shape[0] / p.shape[1]) ** .5
                    p.mul_(1 - DECAY * rate * RATE_MATRIX).add_(u.t() if flip else u, alpha=-rate * RATE_MATRIX * scale)
            for k in self.others:
                self.adam(k, rate)
            keep = min(self.keep, self.count / (self.count + 50))
            for k, p in self.params.items():
                self.average[k].lerp_(p.detach(), 1 - keep)
                p.grad = None

    def adam(self, k, rate):
        p, g = self.params[k], self.params[k].grad
        self.state[k].lerp_(g, .1)
        self.square[k].mul_(.98).addcmul_(g, g, value=.02)
        mean = self.state[k] / (1 - .9 ** self.count)
        square = self.square[k] / (1 - .98 ** self.count)
        p.addcdiv_(mean, square.sqrt_().add_(1e-8), value=-rate * RATE_EMBED)

    def saved(self):
        return {"state": self.state, "square": self.square, "average": self.average, "count": self.count}

    def restore(self, saved):
        for k, v in saved.items():
            setattr(self, k, v)


def micro_batches(path, rng, tokens=MICRO_TOKENS):
    """Cuts a shard into lists of (ids, flags) of similar length, in random order; each has up to so many tokens."""
    z = np.load(path)
    ids, flags, starts = z["ids"], z["flags"], z["starts"]
    order = np.argsort(np.diff(starts) + rng.integers(0, 24, len(starts) - 1), kind="stable")
    batches, batch, longest = [], [], 0
    for n in order:
        a, b = starts[n], starts[n + 1]
        if batch and max(longest, b - a) * (len(batch) + 1) > tokens:
            batches.append(batch)
            batch, longest = [], 0
        batch.append((ids[a:b], flags[a:b]))
        longest = max(longest, b - a)
    batches.append(batch)
    rng.shuffle(batches)
    return batches


def jump(row, length, rng):
    """Positions with up to two jumps ahead, each at the start of a turn."""
    positions = np.arange(length)
    turns = np.flatnonzero(row == model.IM_START)
    if rng.random() < .35 and len(turns) > 1:
        for _ in range(rng.integers(1, 3)):
            room = model.CONTEXT - positions[-1] - 1
            if room > 1:
                positions[rng.choice(turns[1:]):] += int(room * rng.random() ** 2)
    return positions


def padded(batch, rng, rest):
    """ids, positions [b][t]; indices of states with a loss, their next ids and weights."""
    t = max(len(i) for i, _ in batch)
    ids = np.zeros((len(batch), t), np.int64)
    weight = np.zeros((len(batch), t), np.float32)
    positions = np.zeros((len(batch), t), np.int64)
    for n, (i, f) in enumerate(batch):
        ids[n, :len(i)] = i
        w = f.astype(np.float32)
        w[(f == 0) & (rng.random(len(i)) < REST_SHARE)] = rest
        weight[n, :len(i) - 1] = w[1:]
        positions[n] = jump(ids[n], t, rng)
    where = np.flatnonzero(weight.ravel())
    after = np.roll(ids, -1, 1).ravel()[where]
    return [torch.from_numpy(x) for x in (ids, positions, where, after, weight.ravel()[where])]


def drill(rng):
    """Copying in its purest form: rows of random pieces that come again and again.

    The loss falls on all of a known piece but its first ids.  Copying forms within
    some hundred steps of this, and much later without it.
    """
    ids = np.zeros((DRILL_ROWS, DRILL_LENGTH), np.int64)
    weight = np.zeros((DRILL_ROWS, DRILL_LENGTH), np.float32)
    for n in range(DRILL_ROWS):
        few = rng.random() < .3
        pool = np.arange(48, 58) if few else np.arange(model.VOCAB - 9)
        pieces = [rng.choice(pool, rng.integers(4, 12)) for _ in range(rng.integers(2, 9))]
        first, known, at = 3 if few else 1, set(), 0
        while at < DRILL_LENGTH:
            k = rng.integers(len(pieces))
            piece = pieces[k][:DRILL_LENGTH - at]
            ids[n, at:at + len(piece)] = piece
            if k in known and len(piece) > first:
                weight[n, at + first - 1:at + len(piece) - 1] = DRILL_WEIGHT
            known.add(k)
            at += len(piece)
    positions = np.broadcast_to(np.arange(DRILL_LENGTH), ids.shape).copy()
    where = np.flatnonzero(weight.ravel())
    after = np.roll(ids, -1, 1).ravel()[where]
    return [torch.from_numpy(x) for x in (ids, positions, where, after, weight.ravel()[where])]


def shard_path(work, shard):
    return os.path.join(work, "shard-%03d.npz" % shard)


def first_before(work, shard):
    """The first of the shards in a row that end before this one; a resumed run may begin beyond the last."""
    while shard > 0 and os.path.exists(shard_path(work, shard - 1)):
        shard -= 1
    return shard


def batches_of(work, first, seed, tokens=MICRO_TOKENS):
    """Endless micro-batches, shard by shard from `first`, then again; yields (shard, batch)."""
    shard = first
    while True:
        path = shard_path(work, shard)
        while not os.path.exists(path):
            if not os.path.exists(os.path.join(work, "generating")):
                shard = first if shard > first else first_before(work, shard)
                path = shard_path(work, shard)
                if not os.path.exists(path):
                    raise FileNotFoundError(path)
                break
            time.sleep(1)
        for batch in micro_batches(path, np.random.default_rng([seed, shard]), tokens):
            yield shard, batch
        shard += 1


def rate_at(step, args):
    if step < WARMUP:
        return (step + 1) / WARMUP
    by_step = (args.total - step) / (FADE * args.total)
    by_time = (args.until - time.time()) / args.fade_s
    return max(0.0, min(1.0, by_step, by_time))


def train(args):
    if args.stretch:
        model.stretch(STRETCH)
    params = model.new_parameters(1)
    opt = Optimiser(params, args.average)
    step, shard = 0, 0
    path = os.path.join(args.work, "checkpoint.pt")
    if os.path.exists(path):
        saved = torch.load(path)
        with torch.no_grad():
            for k, v in saved["params"].items():
                params[k].copy_(v)
        opt.restore(saved["opt"])
        step, shard = saved["step"], saved["shard"] + 1
    elif args.start:
        with torch.no_grad():
            for k, v in export.parameters_of(gguf.Reader(args.start).tensors).items():
                params[k].copy_(v)
                opt.average[k].copy_(v)
        shard = args.first
    rng = np.random.default_rng([7, step])
    if args.stretch:
        parts = Stretching(args.work, params, shard, step, rng)
    else:
        parts = Plain(args.work, params, shard, step, rng, drills=not args.start)
    began, seen, losses, last_save = time.time(), 0, {}, time.time()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    while step < args.total and time.time() < args.until and not stopping:
        rest = REST_WEIGHT * max(0.1, 1 - step / 1500)
        for name, share, states, after, weight, n in parts.of_step(step, rest):
            each = F.cross_entropy(model.logits(params, states), after, reduction="none")
            ((each * weight).sum() * share).backward()
            total = losses.setdefault(name, [0, 0])
            total[0] += float(each.detach()[weight == 1].sum())
            total[1] += int((weight == 1).sum())
            seen += n
        opt.step(rate_at(step, args) * args.rate)
        step += 1
        if step % args.report == 0:
            print("step %d shard %d %s rate %.2f  %.0f tokens/s" % (
                step, parts.shard, "  ".join("%s %.4f" % (k, a / max(1, b)) for k, (a, b) in sorted(losses.items())),
                rate_at(step, args), seen / (time.time() - began)), flush=True)
            losses, seen, began = {}, 0, time.time()
        if time.time() - last_save > 120:
            save(path, params, opt, step, parts.shard)
            last_save = time.time()
    save(path, params, opt, step, parts.shard)


class Plain:
    """MICRO micro-batches a step, and the drill in the first steps."""

    def __init__(self, work, params, shard, step, rng, drills):
        self.params, self.shard, self.rng, self.drills = params, shard, rng, drills
        self.source = batches_of(work, shard, step)

    def of_step(self, step, rest):
        """Yields (name, share of the loss, states, next ids, weights, tokens); each is for one backward pass."""
        parts = []
        for _ in range(MICRO):
            self.shard, batch = next(self.source)
            parts.append(("loss",) + tuple(padded(batch, self.rng, rest)))
        if step < DRILL_STEPS and self.drills:
            parts.append(("drill",) + tuple(drill(self.rng)))
        whole = sum(float(p[-1].sum()) for p in parts)
        for name, ids, positions, where, after, weight in parts:
            yield name, 1 / whole, model.hidden(self.params, ids, positions)[where], after, weight, ids.numel()


class Stretching:
    """In each step a batch of rows that look far back and one of the usual kind; in some, one of more text for the bank."""

    def __init__(self, work, params, shard, step, rng):
        self.params, self.shard, self.rng = params, shard, rng
        self.bank = stretch.Bank(BANK_TOKENS)
        self.usual = batches_of(work, shard, step, USUAL_TOKENS)
        self.filler = batches_of(work, corpus.FIRST_FILLER, step)
        self.far = stretch.dialogues(batches_of(work, corpus.FIRST_FAR + step // FAR_STEPS, step))

    def usual_part(self, name, batch, share, rest, seen=None):
        ids, positions, where, after, weight = padded(batch, self.rng, rest)
        states = model.hidden(self.params, ids, positions, seen)[where]
        return name, share / float(weight.sum()), states, after, weight, ids.numel()

    def of_step(self, step, rest):
        if step % FILLER_EVERY == 0 or self.bank.size() < BANK_TOKENS // 2:
            seen, batch = [], next(self.filler)[1]
            yield self.usual_part("filler", batch, FILLER_SHARE, rest, seen)
            self.bank.add(seen, [len(i) for i, _ in batch])
        if self.bank.size() >= BANK_TOKENS // 2:
            self.shard, batch = next(self.usual)
            yield self.usual_part("usual", batch, 1 - FAR_SHARE, rest)
        states, after, weight, n = stretch.far_states(self.params, self.bank, self.far, self.rng, rest)
        yield "far", FAR_SHARE / float(weight.sum()), states, after, weight, n


def save(path, params, opt, step, shard):
    torch.save({"params": {k: v.detach() for k, v in params.items()}, "opt": opt.saved(), "step": step, "shard": shard,
                "rope_factor": model.ROPE_FACTOR}, path + ".new")
    os.replace(path + ".new", path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("work")
    p.add_argument("--total", type=int, default=4000, help="steps of the whole schedule")
    p.add_argument("--until", type=float, default=1e18, help="stop at this Unix time")
    p.add_argument("--fade-s", type=float, default=900, help="seconds of fading before --until")
    p.add_argument("--from", dest="start", help="a model to go on from")
    p.add_argument("--first", type=int, default=0, help="the shard to begin with")
    p.add_argument("--rate", type=float, default=1, help="times the usual rate")
    p.add_argument("--average", type=float, default=EMA, help="share of the average of the weights that a step keeps")
    p.add_argument("--stretch", action="store_true", help="teach the model of --from a long context (stretch.py)")
    p.add_argument("--report", type=int, default=20, help="steps between two lines")
    p.add_argument("--float32", action="store_true", help="products in float32, which a recent torch has quicker than bfloat16 on CPUs without AMX")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if args.float32:
        model.BF16 = torch.float32
    train(args)


if __name__ == "__main__":
    main()
