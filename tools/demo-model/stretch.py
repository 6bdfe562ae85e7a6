# SPDX-License-Identifier: Apache-2.0
"""Teaches a trained model to look back over a long context, at the price of short rows.

    row      [ head: facts, tools ][ tail: question, answer ]        some hundred tokens, computed as ever
    bank         ........ keys and values of other text ........     thousands of tokens, kept from other batches

A token of the tail sees its row and, between head and tail, the whole bank.  So the distance is as long
as wished, and so is the number of keys among which the right one must be found, while only the tail
computes anything over them.  Positions are chosen anew for each batch: keys of the bank are kept before
they are turned, then turned to a random place, with gaps if the bank is shorter than the distance.

Text of the bank tells no facts (manual.py), or an answer might be found there.  Its first tokens are left
out: every sequence has those once, and much attention rests on them.  No gradient goes into the bank.
"""
import numpy as np
import torch

import model

GROUP = model.HEADS // model.KV_HEADS
SKIP = 4            # first tokens of a row that the bank does not keep
TAIL = 96           # tokens of a tail at most
HEADS = (192, 320, 640)  # of heads at most, chosen for each batch
HEAD_WEIGHT = .3    # of the loss there
FAR_TOKENS = 3072   # of a batch, padding included
LONG_SHARE = .6     # of the batches, whose tail lies in the later half of the context
WHOLE_SHARE = .4    # of the batches, which see the whole bank; others a part of it, for less work
START_SHARE = .5    # of the rows, whose head is at the beginning of the context, as system prompts are
NEGATIVE = -1e30


class Bank:
    """Keys and values of the last `room` tokens of filler, per layer: [2 KV_HEADS][n][head_dim] before turning."""

    def __init__(self, room):
        self.room, self.layers = room, None

    def size(self):
        return 0 if self.layers is None else self.layers[0].shape[1]

    def add(self, seen, lengths):
        """seen: what model.hidden() collected from a batch whose rows have those lengths."""
        keep = torch.zeros(seen[0].shape[:2], dtype=torch.bool)
        for n, length in enumerate(lengths):
            keep[n, SKIP:length] = True
        new = [x[keep].permute(1, 0, 2) for x in seen]
        old = self.layers or [x[:, :0] for x in new]
        self.layers = [torch.cat([a, b], 1)[:, -self.room:].contiguous() for a, b in zip(old, new)]

    def turned(self, first, positions):
        """(keys, values) of each layer for tokens first.. at those positions; each [KV_HEADS][n][head_dim]."""
        cos, sin = (x[0, :, 0] for x in model.rope_tables(torch.from_numpy(positions)[None]))
        out = []
        for x in self.layers:
            x = x[:, first:first + len(positions)]
            k, v = x[:model.KV_HEADS], x[model.KV_HEADS:]
            out.append((k * cos + k.roll(model.HEAD_DIM // 2, -1) * sin, v))
        return out


def dialogues(batches):
    """The dialogues of endless micro-batches, one by one."""
    for _, batch in batches:
        yield from batch


def place(size, rng):
    """Where the tail begins, the first token of the bank to use, and positions for the used ones."""
    most = model.CONTEXT - 2 * TAIL
    end = int(most * rng.uniform(.5, 1) if rng.random() < LONG_SHARE else min(most, 1024 * 2 ** (rng.random() * 5)))
    n = min(size if rng.random() < WHOLE_SHARE else int(size * rng.uniform(.1, .7)), end)
    first = int(rng.integers(0, size - n + 1))
    gaps = np.zeros(n, np.int64)
    if end > n > 0:
        cuts = np.sort(rng.integers(0, end - n + 1, 16))
        at = np.sort(rng.integers(0, n, 16))
        np.add.at(gaps, at, np.diff(np.concatenate([[0], cuts])))
    return end, first, np.arange(n) + np.cumsum(gaps)


def cut(ids, flags, limit, rng):
    """(begin, end) of the tail, which begins at a turn, mostly a late one; None if no turn fits."""
    turns = np.flatnonzero(ids == model.IM_START)
    starts = [t for t in turns[1:] if t <= limit and flags[t + 1:t + TAIL].any()]
    if not starts:
        return None
    start = int(starts[-1 - int(len(starts) * rng.random() ** 2)])
    return start, min(len(ids) - 1, start + TAIL)


def rows_of(source, rng):
    """(ids, flags, length of head) of rows that fill a batch, and the longest head."""
    rows, longest, limit = [], 0, HEADS[rng.integers(len(HEADS))]
    while True:
        ids, flags = next(source)
        place_of_cut = cut(ids, flags, limit, rng)
        if place_of_cut is None:
            continue
        head, end = place_of_cut
        if rows and max(longest, head) + TAIL > FAR_TOKENS // (len(rows) + 1):
            return rows, longest
        rows.append((ids[:end], flags[:end], head))
        longest = max(longest, head)


def batch_of(source, end, rng, rest):
    """ids and positions [b][split + tail], split, mask [b][tail][split + tail], then next ids, weights and states of the loss."""
    rows, split = rows_of(source, rng)
    tail = max(len(i) - head for i, _, head in rows)
    b, t = len(rows), split + tail
    ids, after = np.zeros((b, t), np.int64), np.zeros((b, t), np.int64)
    weight, positions = np.zeros((b, t), np.float32), np.zeros((b, t), np.int64)
    ok = np.zeros((b, tail, t), bool)
    ok[:, :, split:] = np.tril(np.ones((tail, tail), bool))
    for n, (i, f, head) in enumerate(rows):
        w = f.astype(np.float32)
        w[:head] *= HEAD_WEIGHT
        w[(f == 0) & (rng.random(len(i)) < .2)] = rest
        start = int(rng.random() * max(1, end - head) * (.05 if rng.random() < START_SHARE else 1))
        for at, a, z in ((0, 0, head), (split, head, len(i))):
            ids[n, at:at + z - a] = i[a:z]
            last = min(z, len(i) - 1)
            after[n, at:at + last - a] = i[a + 1:last + 1]
            weight[n, at:at + last - a] = w[a + 1:last + 1]
        positions[n, :split] = start + np.arange(split)
        positions[n, split:] = end + np.arange(tail)
        ok[n, :, :head] = True
    mask = np.where(ok, 0, NEGATIVE).astype(np.float32)
    where = np.flatnonzero(weight.ravel())
    return [torch.from_numpy(x) for x in (ids, positions)] + [split, torch.from_numpy(mask)] + [
        torch.from_numpy(x.ravel()[where]) for x in (after, weight)] + [torch.from_numpy(where)]


class Far(torch.autograd.Function):
    """Attention of the tails: each row's queries see the bank and their own row, in one softmax.

    q [KV_HEADS][b][n queries][d] (already scaled), k and v [KV_HEADS][b][t][d], keys and values of the bank
    [KV_HEADS][n][d], mask [b][n queries][t].  Scores are computed again in the backward pass: one row's fit
    into a cache, all rows' do not."""

    @staticmethod
    def scores(q, k, keys, mask):
        n = keys.shape[0]
        s = q.new_empty(q.shape[0], n + k.shape[0])
        torch.mm(q, keys.t(), out=s[:, :n])
        torch.add(torch.mm(q, k.t()), mask, out=s[:, n:])
        return s

    @staticmethod
    def forward(ctx, q, k, v, keys, values, mask):
        out, n = torch.empty_like(q), keys.shape[1]
        for h in range(q.shape[0]):
            for row in range(q.shape[1]):
                p = Far.scores(q[h, row], k[h, row], keys[h], mask[row]).softmax(-1)
                out[h, row] = torch.addmm(torch.mm(p[:, n:], v[h, row]), p[:, :n], values[h])
        ctx.save_for_backward(q, k, v, keys, values, mask)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, keys, values, mask = ctx.saved_tensors
        dq, dk, dv, n = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), keys.shape[1]
        for h in range(q.shape[0]):
            for row in range(q.shape[1]):
                g = grad[h, row].contiguous()
                p = Far.scores(q[h, row], k[h, row], keys[h], mask[row]).softmax(-1)
                dp = torch.empty_like(p)
                torch.mm(g, values[h].t(), out=dp[:, :n])
                torch.mm(g, v[h, row].t(), out=dp[:, n:])
                ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
                dq[h, row] = torch.addmm(torch.mm(ds[:, n:], k[h, row]), ds[:, :n], keys[h])
                dk[h, row] = torch.mm(ds[:, n:].t(), q[h, row])
                dv[h, row] = torch.mm(p[:, n:].t(), g)
        return dq, dk, dv, None, None, None


def far_attention(split, mask, bank):
    """An attention for model.hidden(): heads of rows see themselves, tails their row and the bank."""
    kvh, d = model.KV_HEADS, model.HEAD_DIM
    mask = mask.repeat(1, GROUP, 1)

    def attend(weights, layer, h, tables):
        b, t = tables[0].shape[:2]
        tail = t - split
        qkv = model.heads_of(weights, layer, h, b, t)
        qk = model.Rotate.apply(qkv[:, :, :model.HEADS + kvh], *tables)
        q = (qk[:, :, :model.HEADS] * d ** -.5).permute(2, 0, 1, 3).reshape(kvh, GROUP, b, t, d).transpose(1, 2)
        k = qk[:, :, model.HEADS:].permute(2, 0, 1, 3).reshape(kvh * b, t, d)
        v = qkv[:, :, model.HEADS + kvh:].permute(2, 0, 1, 3).reshape(kvh * b, t, d)
        near = model.Attend.apply(q[..., :split, :].reshape(kvh * b, GROUP, split, d), k[:, :split].contiguous(), v[:, :split].contiguous())
        late = q[..., split:, :].reshape(kvh, b, GROUP * tail, d)
        out = Far.apply(late, k.view(kvh, b, t, d), v.view(kvh, b, t, d), *bank[layer], mask)
        whole = torch.cat([near.view(kvh, b, GROUP, split, d), out.view(kvh, b, GROUP, tail, d)], 3)
        return torch.nn.functional.linear(whole.permute(1, 3, 0, 2, 4).reshape(b * t, model.DIM), weights["%d.wo" % layer])

    return attend


def far_states(params, bank, source, rng, rest):
    """States with a loss, their next ids, their weights."""
    end, first, used = place(bank.size(), rng)
    ids, positions, split, mask, after, weight, where = batch_of(source, end, rng, rest)
    attend = far_attention(split, mask.to(model.BF16), bank.turned(first, used))
    return model.hidden(params, ids, positions, attend=attend)[where], after, weight, ids.numel()
