# SPDX-License-Identifier: Apache-2.0
"""Shared by the references of the mixture-of-experts families: the gated feed-forward of one expert, and the choice of
experts.

A token visits its experts one by one; nothing is grouped."""
import torch

from common import silu


def swiglu(x, gate, up, down):
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def expert(w, number, x):
    return swiglu(x, w["ffn_gate_exps"][number], w["ffn_up_exps"][number], w["ffn_down_exps"][number])


def best(scores, k):
    """Indices of the k largest, largest first; of equal ones the lower index first."""
    return sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))[:k]


def mixture(w, x, choose):
    """choose(scores of one token) gives its experts and their weights."""
    out = torch.zeros_like(x)
    for token, scores in enumerate(x @ w["ffn_gate_inp"].T):
        for number, weight in zip(*choose(scores)):
            out[token] += weight * expert(w, number, x[token])
    return out
