#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of answers with a draft model beside without, on prose.

    bench_draft_model.py MODEL.gguf DRAFT.gguf [--repeat N] [--tokens N] [--temperature X]

The pair may be a model and its own 2-bit self (`baton-model quantize --type Q2_K`).  `baton-model generate` answers each
question without drafts (off), with the draft model where that is measured to pay (auto), and always, in turns.  The text must
be the same each time.  A line gives tokens per second (medians), the ratio to off (median over the turns), and which part of
the verified draft tokens was accepted.  "a step" is the number of tokens that a step of the model gave: without the time of
drafts it bounds the ratio, so a ratio above it is the noise of other load.  Turns begin with another way each time."""
import argparse
import os
import re
import statistics
import subprocess

TOOL = os.path.join(os.environ.get("BATON_BUILD", "."), "baton-model")
QUESTIONS = ["Tell me a story about a clever hare.", "Explain what a KV cache is.", "Write a few lines about the sea at night.",
             "What is the difference between a router and a switch?"]


def answer(args, question, how):
    line = [TOOL, "generate", "--temperature", str(args.temperature), "--seed", "1", "-n", str(args.tokens), "--speculate", how,
            "--chat", question]
    if how != "off":
        line += ["--draft-model", args.draft]
    run = subprocess.run([*line, args.model], capture_output=True, text=True, check=True)
    n, speed = re.search(r"answer (\d+) tokens in [\d.]+ s \(([\d.]+)/s\)", run.stderr).groups()
    drafted = re.search(r"drafted (\d+) tokens, (\d+) accepted", run.stderr)
    counts = [int(c) for c in drafted.groups()] if drafted else [0, 0]
    return run.stdout, float(speed), [*counts, int(n)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("draft")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--temperature", type=float, default=0)
    args = parser.parse_args()
    speeds, ratios, drafts = {}, {}, {}
    ways = ["off", "auto", "always"]
    for _ in range(args.repeat):
        for question in QUESTIONS:
            took = {how: answer(args, question, how) for how in ways}
            ways = ways[1:] + ways[:1]
            assert len({text for text, _, _ in took.values()}) == 1, took
            for how, (_, speed, counts) in took.items():
                speeds.setdefault(how, []).append(speed)
                ratios.setdefault(how, []).append(speed / took["off"][1])
                drafts[how] = [a + b for a, b in zip(drafts.get(how, [0, 0, 0]), counts)]
    for how in sorted(drafts, key=["off", "auto", "always"].index):
        n, right, n_answer = drafts[how]
        print(f"{how:7s} {statistics.median(speeds[how]):8.1f} tokens/s  {statistics.median(ratios[how]):6.3f}x  "
              f"{n_answer / max(n_answer - right, 1):.2f} a step  "
              f"{right} of {n} draft tokens accepted ({100 * right / max(n, 1):.0f} %)")


main()
