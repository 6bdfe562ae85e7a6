#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What trained models lose in each weight type that `baton-model quantize` writes, and in each KV type, on a real text.

    bench_real_quality.py smollm2|gemma3 [--widen] [--windows N] [--importance N] [--types A,B] [--kv-only] [--weights-only]

The models and the text come from the package index (tests/integration/real_models.py); without it the script says so and ends
with 77.  The base is the published file with its weights as F32 and KV in F32.  Each type is made from the base, once as it
is and once with an importance matrix that was measured on news items before those of the perplexity.  Tables are Markdown.
K types need rows of whole 256 weights, and neither model has such rows everywhere; `baton-model quantize` then takes other
types.  --widen adds columns of zeros first (widen_rows.py; its Python needs gguf and numpy, $BATON_ORACLE_PYTHON), so that
each matrix has the type that the table names."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from cluster import BUILD  # noqa: E402
from real_models import found_or_skip  # noqa: E402

TOOL = os.path.join(BUILD, "baton-model")
TYPES = "Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 Q3_K_L Q3_K_M Q3_K_S Q2_K".split()
PLAIN = ["BF16", "F16"]
KV_TYPES = ["f16", "bf16", "q8_0", "q4_0"]
IMPORTANCE_ITEMS = 150  # of news, before those of the perplexity


def tool(*line):
    run = subprocess.run([TOOL, *line], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"baton-model {' '.join(line)} ended with {run.returncode}: {run.stderr}")
    return run.stdout


def quantised(source, target, kind, *more):
    """Bits a weight of the new file."""
    text = tool("quantize", "--force", "--type", kind, *more, source, target)
    return float(re.search(r"([\d.]+) bits a weight", text).group(1))


def windows(args):
    """Of 512 tokens, one behind the other: each token is computed once."""
    return ["--windows", str(args.windows), "--stride", "511"]


def measured(args, files, path, base="base", kv="f32"):
    """Beside a base with KV in F32, whose logits are computed once."""
    return json.loads(tool("perplexity", "--json", "--kv", kv, "--kl-kv", "f32", *windows(args), "--text", files["text"],
                           "--kl", files[base], "--kl-keep", os.path.join(files["folder"], base + ".rows"), path))


def cells(result):
    kl = result["kl"]
    return f"{result['perplexity']:.2f} | {kl['mean']:.4f} | {100 * kl['same_first']:.1f} %"


def weights_table(args, files):
    print("| weights, KV in F32 | bits a weight | perplexity | divergence | same best token | with importance: perplexity "
          "| divergence | same best token |\n|---|---|---|---|---|---|---|---|", flush=True)
    for kind in args.types:
        if kind == "published":
            print(f"| the published file | | {cells(measured(args, files, files['published']))} | | | |",
                  flush=True)
            continue
        bits = quantised(files["base"], files["out"], kind)
        row = cells(measured(args, files, files["out"]))
        important = "| |"
        if kind not in PLAIN:
            quantised(files["base"], files["out"], kind, "--imatrix", files["importance"])
            important = cells(measured(args, files, files["out"]))
        print(f"| {kind} | {bits:.2f} | {row} | {important} |", flush=True)


def kv_table(args, files):
    print("\n| KV | F32 weights: perplexity | divergence | same best token | the published file: perplexity | divergence | "
          "same best token |\n|---|---|---|---|---|---|---|", flush=True)
    for kv in KV_TYPES:
        row = [cells(measured(args, files, files[name], name, kv)) for name in ("base", "published")]
        print(f"| {kv} | {' | '.join(row)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["smollm2", "gemma3"])
    parser.add_argument("--widen", action="store_true")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--importance", type=int, default=16, help="windows of 512 tokens for the importance matrix")
    parser.add_argument("--types", type=lambda text: text.split(","), default=["published", *PLAIN, *TYPES])
    parser.add_argument("--kv-only", action="store_true")
    parser.add_argument("--weights-only", action="store_true")
    args = parser.parse_args()
    published, prose = found_or_skip(args.model), found_or_skip("prose")
    with tempfile.TemporaryDirectory() as folder:
        files = {name: os.path.join(folder, name) for name in ("base", "out", "text", "before", "importance")}
        files |= {"published": published, "folder": folder}
        with open(prose, encoding="utf-8") as f:
            items = f.read().split("\n")
        for name, part in (("before", items[:IMPORTANCE_ITEMS]), ("text", items[IMPORTANCE_ITEMS:])):
            with open(files[name], "w", encoding="utf-8") as f:
                f.write("\n".join(part))
        if args.widen:
            subprocess.run([os.environ.get("BATON_ORACLE_PYTHON", sys.executable), os.path.join(HERE, "widen_rows.py"), published,
                            files["base"]], check=True)
        else:
            quantised(published, files["base"], "F32")
        if not args.kv_only:
            tool("imatrix", "--text", files["before"], "--windows", str(args.importance), files["base"], files["importance"])
            base = json.loads(tool("perplexity", "--json", "--kv", "f32", *windows(args), "--text", files["text"],
                                   files["base"]))
            print(f"F32: perplexity {base['perplexity']:.3f} +/- {base['standard_error']:.3f} over {base['scored']} tokens", flush=True)
            weights_table(args, files)
        if not args.weights_only:
            kv_table(args, files)


if __name__ == "__main__":
    main()
