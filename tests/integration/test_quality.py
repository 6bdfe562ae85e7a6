#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of quantising, and the correctness of the tools that measure it.

    perplexity    follows from the logits that `baton-model logits` writes
    quantised     each type's distribution stays within a stated divergence of the F32 file's
    files         keys survive, rows that do not fit get another type, nothing is overwritten

The bundled model reads its own kind of text (dialogues in its chat format). stories260K reads plain prose, if the
shared data is present.  Quantised weights are measured twice: converted back to F32, which tests only the files, and as
the engine loads them, with its kernels.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

SRC = os.environ.get("srcdir", ".")
PROGRAM = os.path.join(os.getcwd(), "baton-model")
DEMO = os.path.join(SRC, "share/baton-demo.gguf")
STORIES = os.path.join(os.environ.get("BATON_DATA", os.path.join(SRC, "../shared/data")), "models/stories260K.gguf")
PROSE = os.path.join(SRC, "share/perplexity.txt")

# Type: maximal divergence of the bundled model, and of stories260K (whose rows of 64 and 172 fit few types).
BOUNDS = {
    "F16": (0.00001, 0.00001), "BF16": (0.00025, 0.00015), "Q8_0": (0.0001, 0.001), "Q6_K": (0.015, 0.001),
    "Q5_K_M": (0.04, 0.025), "Q5_K_S": (0.042, 0.028), "Q5_1": (0.04, 0.028), "Q5_0": (0.05, 0.04),
    "Q4_K_M": (0.12, 0.036), "Q4_K_S": (0.09, 0.037), "Q4_1": (0.12, 0.12), "Q4_0": (0.2, 0.17), "Q3_K_L": (0.16, 0.15),
    "Q3_K_M": (0.2, 0.15), "Q3_K_S": (0.44, 0.17), "Q2_K": (0.48, 0.16),
}
# Under sanitizers one type of each kind is enough; the plain build checks the values.
SOME_TYPES = ("Q5_1", "Q4_K_M") if os.environ.get("BATON_SANITIZED") else ()
WINDOWS = ("--windows", "3", "--stride", "511")  # of 512: each token is computed once
failed = 0


def complain(text):
    global failed
    failed += 1
    print("FAILED: " + text)


def run(*args, status=0):
    done = subprocess.run([PROGRAM, *args], capture_output=True, text=True)
    if done.returncode != status:
        complain("baton-model %s -> %d, wanted %d: %s" % (" ".join(args), done.returncode, status, done.stderr))
    return done


def measure(model, text, *more):
    return json.loads(run("perplexity", "--json", "--kv", "f32", "--text", text, *more, model).stdout or "{}")


def dialogues(path):
    """Some of the evaluation dialogues in the bundled model's chat format."""
    with open(os.path.join(SRC, "share/eval/dialogues.jsonl")) as lines, open(path, "w") as out:
        for line in list(lines)[:24]:
            for message in json.loads(line)["messages"]:
                if isinstance(message.get("content"), str):
                    out.write("<|im_start|>%s\n%s<|im_end|>\n" % (message["role"], message["content"]))


def perplexity_follows_from_logits(folder):
    text = os.path.join(folder, "short.txt")
    with open(text, "w") as out:
        out.write("Remember that the grey project name is Hiphek. What does SSE mean? " * 3)
    with open(text) as lines:
        ids = run("tokenize", DEMO, lines.read()).stdout.split()
    got = measure(DEMO, text, "--context", "24", "--stride", "10")
    nll, capacity, stride, done = [], 24, 10, 1
    for begin in range(0, len(ids), stride):
        window = ids[begin:begin + capacity]
        rows = os.path.join(folder, "rows.f32")
        run("logits", "--kv", "f32", "--top", "0", "--every", "--out", rows, "--ids", ",".join(window), DEMO)
        with open(rows, "rb") as file:
            data = file.read()
        vocab = len(data) // 4 // len(window)
        for i in range(max(done - begin, 1), len(window)):
            logits = struct.unpack_from("<%df" % vocab, data, (i - 1) * vocab * 4)
            top = max(logits)
            nll.append(top + math.log(sum(math.exp(x - top) for x in logits)) - logits[int(window[i])])
        done = begin + len(window)
        if done >= len(ids):
            break
    mean = sum(nll) / len(nll)
    error = math.sqrt(sum((x - mean) ** 2 for x in nll) / (len(nll) - 1) / len(nll)) * math.exp(mean)
    if got.get("scored") != len(nll) or abs(got["nll"] - mean) > 1e-6 * mean or \
            abs(got["standard_error"] - error) > 1e-5 * error:
        complain("perplexity: %s, but %d tokens have mean %.9g, error %.9g" % (got, len(nll), mean, error))


def types_stay_near(folder, model, text, which, *more):
    base, small, back, rows = (os.path.join(folder, name) for name in ("f32.gguf", "small.gguf", "back.gguf", f"rows{which}"))
    run("quantize", "--force", "--type", "F32", model, base)
    against = ["--kl", base, "--kl-keep", rows, *more]  # the base's logits are computed once
    sizes = {}
    for name, bounds in BOUNDS.items():
        if SOME_TYPES and name not in SOME_TYPES:
            continue
        run("quantize", "--force", "--type", name, base, small)
        sizes[name] = os.path.getsize(small)
        run("quantize", "--force", "--type", "F32", small, back)
        got = measure(back, text, *WINDOWS, *against)
        kl = got["kl"]["mean"]
        as_is = measure(small, text, *WINDOWS, *against)["kl"]["mean"]
        print("%-7s %8d bytes  perplexity %8.4f (F32 %8.4f)  divergence %.6f  as loaded %s  same first %.2f %%" %
              (name, sizes[name], got["perplexity"], got["kl"]["base_perplexity"], kl,
               "%.6f" % as_is, 100 * got["kl"]["same_first"]))
        if not kl <= bounds[which]:
            complain("%s diverges by %.6f, stated are %.6f" % (name, kl, bounds[which]))
        if not as_is <= bounds[which] * 1.5 + 0.005:
            complain("%s as loaded diverges by %.6f, stated are %.6f" % (name, as_is, bounds[which]))
    if which == 0 and not SOME_TYPES and not sizes["Q2_K"] < sizes["Q3_K_S"] < sizes["Q4_K_S"] < sizes["Q4_K_M"] < sizes["Q5_K_M"] < \
            sizes["Q6_K"] < sizes["Q8_0"] < sizes["F16"]:
        complain("sizes are out of order: %s" % sizes)


def kv_types_are_compared():
    """--kl-kv gives the base keys and values of its own: the same file has no divergence from itself, and a little with KV in
    eight bits beside F32; the perplexities are those that each type has alone."""
    alone = {kv: json.loads(run("perplexity", "--json", "--kv", kv, "--text", PROSE, *WINDOWS, DEMO).stdout)["perplexity"]
             for kv in ("f32", "q8_0")}
    beside = {}
    for kv in alone:
        got = json.loads(run("perplexity", "--json", "--kv", kv, "--kl-kv", "f32", "--text", PROSE, *WINDOWS, "--kl", DEMO, DEMO).stdout)
        if got["perplexity"] != alone[kv] or got["kl"]["base_perplexity"] != alone["f32"]:
            complain("KV in %s beside f32: %s, alone %s" % (kv, got, alone))
        beside[kv] = got["kl"]["mean"]
    if not beside["f32"] == 0 < beside["q8_0"] < 0.05:
        complain("divergence by KV type: %s" % beside)
    run("perplexity", "--kl-kv", "f8", "--kl", DEMO, DEMO, status=2)


def kept_logits_are_those_of_the_base(folder):
    """--kl-keep writes the base's logits and reads them again: the same figures; of another text or base they are refused."""
    rows, small, cut = (os.path.join(folder, name) for name in ("rows", "small.gguf", "cut"))
    run("quantize", "--force", "--type", "Q4_0", DEMO, small)
    shown = [measure(small, PROSE, *WINDOWS, "--kl", DEMO, *more)["kl"] for more in ([], ["--kl-keep", rows], ["--kl-keep", rows])]
    if not shown[0]["mean"] > 0 or shown[1:] != shown[:1] * 2:
        complain("computed, written and read logits give %s" % shown)
    for other in (["--kl", DEMO, "--windows", "2"], ["--kl", small, *WINDOWS], ["--kl", DEMO, *WINDOWS, "--kv", "f16"]):
        said = run("perplexity", "--kv", "f32", "--text", PROSE, "--kl-keep", rows, *other, small, status=1).stderr
        if "of another base" not in said:
            complain("kept logits for %s: %s" % (other, said))
    with open(rows, "rb") as whole, open(cut, "wb") as part:
        part.write(whole.read(100000))
    said = run("perplexity", "--kv", "f32", "--text", PROSE, *WINDOWS, "--kl-keep", cut, "--kl", DEMO, small, status=1).stderr
    if "the file is cut" not in said:
        complain("cut logits: %s" % said)
    run("perplexity", "--text", PROSE, *WINDOWS, "--kl-keep", os.path.join(folder, "no/such"), "--kl", DEMO, small, status=1)
    if [name for name in os.listdir(folder) if name.endswith(".part")]:
        complain("a part is left")


def files_are_as_said(folder):
    one, two, three = (os.path.join(folder, name) for name in ("one.gguf", "two.gguf", "three.gguf"))
    run("quantize", "--type", "Q4_K_M", "--threads", "1", DEMO, one)
    run("quantize", "--type", "q4_k_m", "--threads", "3", DEMO, two)
    with open(one, "rb") as a, open(two, "rb") as b:
        if a.read() != b.read():
            complain("the number of threads changes the file")
    run("quantize", DEMO, one, status=1)
    run("quantize", "--type", "Q6_K", one, three, status=1)  # is Q4_K already
    run("quantize", "--type", "Q9", DEMO, three, status=2)
    run("quantize", DEMO, os.path.join(folder, "no/such/folder.gguf"), status=1)
    if os.path.exists(three) or [name for name in os.listdir(folder) if name.startswith("three")]:
        complain("a refused quantize left a file")
    keys = [run("info", "--keys", model).stdout.splitlines() for model in (DEMO, one)]
    names = [{line.split()[0] for line in lines if line.strip().startswith(("general.", "llama.", "tokenizer."))}
             for lines in keys]
    names[0].discard("general.alignment")  # the writer has its own
    if not names[0] or names[0] - names[1]:
        complain("keys got lost: %s" % (names[0] - names[1]))
    if not any("general.file_type" in line and "15" in line for line in keys[1]):
        complain("general.file_type is not 15")
    run("make", "--layers", "1", "--hidden", "96", "--heads", "3", "--ffn", "160", "--vocab", "300", "--type", "F32",
        two + "x")
    said = run("quantize", "--type", "Q4_K_S", two + "x", two + "y").stdout
    if "Q5_0 in place of Q4_K: rows of 96 " not in said or "Q8_0 in place of Q6_K" not in said:
        complain("replaced types are not said: " + said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "dialogues.txt")
        dialogues(text)
        perplexity_follows_from_logits(folder)
        kv_types_are_compared()
        kept_logits_are_those_of_the_base(folder)
        files_are_as_said(folder)
        types_stay_near(folder, DEMO, text, 0, "--special")
        if os.path.exists(STORIES):
            types_stay_near(folder, STORIES, PROSE, 1)
    return 1 if failed else 0


sys.exit(main())
