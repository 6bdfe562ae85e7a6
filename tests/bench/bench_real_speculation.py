#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speculation of trained models on real prose: acceptance and speed of prompt look-up and of a draft model.

    bench_real_speculation.py smollm2|gemma3 [--tokens N] [--repeat N] [--temperature X]

The model is the published file's weights as F16; its draft model is the published file (Q4_1 or Q4_K_M), and with --two-bits
the same weights in Q2_K.  Three kinds of work, four prompts each: free answers, continuing news items, and repeating a news
item, which is where look-up finds text.  `baton-model generate` computes every answer without drafts, by look-up where that is
measured to pay (auto) and always, and with the draft model (auto).  The text must be the same each time.  A line gives tokens a
second (median), the ratio to no drafts (median of the turns), the tokens of a step, and the part of the drafts that was right.
Models and text come from the package index (tests/integration/real_models.py); without it the script ends with 77."""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from cluster import BUILD  # noqa: E402
from real_models import found_or_skip  # noqa: E402
from real_prompts import news  # noqa: E402

TOOL = os.path.join(BUILD, "baton-model")
QUESTIONS = ["Tell me a story about a clever hare.", "Explain what a cache is.", "Write a few lines about the sea at night.",
             "What is the difference between a river and a lake?"]
WAYS = ["off", "look-up, auto", "look-up, always", "draft, auto"]


def works(model, items):
    """{kind: command lines}; Gemma 3 270M has no chat format, so it continues."""
    texts = [news(items, 20 * i + 3, 80) for i in range(4)]
    if model == "smollm2":
        return {"answers": [["--chat", q] for q in QUESTIONS],
                "news": [["--prompt", text] for text in texts],
                "repeat": [["--chat", f"Repeat this text word for word:\n\n{text}"] for text in texts]}
    return {"answers": [["--prompt", f"Question: {q}\nAnswer:"] for q in QUESTIONS],
            "news": [["--prompt", text] for text in texts],
            "repeat": [["--prompt", f"The text:\n\n{text}\n\nThe same text once more:\n\n"] for text in texts]}


def answer(args, paths, prompt, way):
    line = [TOOL, "generate", "--temperature", str(args.temperature), "--seed", "1", "-n", str(args.tokens), *prompt,
            "--speculate", "off" if way == "off" else way.split()[-1]]
    if way.startswith("draft"):
        line += ["--draft-model", paths["draft"]]
    run = subprocess.run([*line, paths["model"]], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    n, speed = re.search(r"answer (\d+) tokens in [\d.]+ s \(([\d.]+)/s\)", run.stderr).groups()
    drafted = re.search(r"drafted (\d+) tokens, (\d+) accepted", run.stderr)
    return run.stdout, float(speed), [*(map(int, drafted.groups()) if drafted else (0, 0)), int(n)]


def measure(args, paths, kind, prompts):
    speeds, ratios, counts = {}, {}, {}
    for _ in range(args.repeat):
        for prompt in prompts:
            took = {way: answer(args, paths, prompt, way) for way in WAYS}
            assert len({text for text, _, _ in took.values()}) == 1, took
            for way, (_, speed, drafted) in took.items():
                speeds.setdefault(way, []).append(speed)
                ratios.setdefault(way, []).append(speed / took["off"][1])
                counts[way] = [a + b for a, b in zip(counts.get(way, [0, 0, 0]), drafted)]
    for way in WAYS:
        n, right, n_answer = counts[way]
        print(f"| {kind} | {way} | {statistics.median(speeds[way]):.1f} | {statistics.median(ratios[way]):.2f} | "
              f"{n_answer / max(n_answer - right, 1):.2f} | {right} of {n}{f' ({100 * right / n:.0f} %)' if n else ''} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["smollm2", "gemma3"])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--two-bits", action="store_true")
    args = parser.parse_args()
    published, prose = found_or_skip(args.model), found_or_skip("prose")
    with open(prose, encoding="utf-8") as f:
        items = [line for line in f.read().split("\n") if line]
    with tempfile.TemporaryDirectory() as folder:
        paths = {"model": os.path.join(folder, "f16.gguf"), "draft": published}
        base = os.path.join(folder, "f32.gguf")
        made = [(published, base, "F32"), (base, paths["model"], "F16")]
        if args.two_bits:
            paths["draft"] = os.path.join(folder, "q2_k.gguf")
            made.append((base, paths["draft"], "Q2_K"))
        for source, target, kind in made:
            subprocess.run([TOOL, "quantize", "--type", kind, source, target], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        os.unlink(base)
        print(f"draft model: {os.path.getsize(paths['draft']) / os.path.getsize(paths['model']):.2f} of the model's bytes\n"
              "| work | drafts | tokens/s | ratio | tokens a step | right |\n|---|---|---|---|---|---|", flush=True)
        for kind, prompts in works(args.model, items).items():
            measure(args, paths, kind, prompts)


main()
