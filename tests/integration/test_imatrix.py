#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Importance matrices: what `baton-model imatrix` measures, and what `quantize --imatrix` makes of it.

    sums      of a tiny model equal those that follow from its embeddings and its first norm
    experts   each has its own sums; their counts add up to tokens times the experts of a token
    threads   change no byte
    quality   types of few bits come nearer to the source, on a text that was not measured: the model's probabilities, and the
              products of each matrix that is looked at
    refusals  files of another kind and importance of another shape
    older     imatrix.dat has the same effect as the GGUF file of the same numbers
    origin    the result names the importance, its text and its windows
    sources   no command writes a file that it reads; a text that is absent is named
"""
import json
import math
import operator
import os
import struct
import subprocess
import sys
import tempfile

from gguf_file import GgufFile

SRC = os.environ.get("srcdir", ".")
PROGRAM = os.path.join(os.getcwd(), "baton-model")
DEMO = os.path.join(SRC, "share/baton-demo.gguf")
PROSE = os.path.join(SRC, "share/perplexity.txt")
TINY = "--type F32 --layers 2 --hidden 48 --heads 4 --kv-heads 2 --ffn 80 --vocab 259 --context 256 --seed 5".split()
TEXT = "One baton passes from hand to hand. " * 8
MATRICES = ["blk.%d.%s.weight" % place for place in ((0, "ffn_up"), (1, "ffn_down"), (1, "attn_q"), (2, "ffn_gate"), (3, "attn_output"))]
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


def sums_are_right(folder):
    model, out, text = (os.path.join(folder, name) for name in ("tiny.gguf", "tiny.imatrix", "text.txt"))
    with open(text, "w") as file:
        file.write(TEXT)
    run("make", *TINY, model)
    run("imatrix", "--text", text, "--context", "100", model, out)
    ids = [int(i) for i in run("tokenize", model, TEXT).stdout.split()]
    weights, got = GgufFile(model).tensors, GgufFile(out).tensors
    gain, table = weights["blk.0.attn_norm.weight"], weights["token_embd.weight"]
    expected = [0.0] * 48
    for token in ids:
        x = table[token * 48:token * 48 + 48]
        scale = 1 / math.sqrt(sum(v * v for v in x) / 48 + 1e-5)
        for i in range(48):
            expected[i] += (x[i] * scale * gain[i]) ** 2
    for part in ("q", "k", "v"):
        name = "blk.0.attn_%s.weight" % part
        if any(abs(a - b) > 1e-4 * b for a, b in zip(got[name + ".in_sum2"], expected)):
            complain("%s: %s, not %s" % (name, got[name + ".in_sum2"][:3], expected[:3]))
        if got[name + ".counts"] != (len(ids),):
            complain("%s counts %s inputs of %d" % (name, got[name + ".counts"], len(ids)))
    last = got["blk.1.ffn_down.weight.in_sum2"]
    if len(last) != 80 or not min(last) > 0 or got["blk.1.ffn_down.weight.counts"] != (len(ids),):
        complain("the last layer's rows were not all seen")
    return text


def experts_have_their_own(folder, text):
    model, out, small = (os.path.join(folder, name) for name in ("moe.gguf", "moe.imatrix", "moe-small.gguf"))
    run("make", "--arch", "qwen3moe", *TINY, "--set", "expert_count=8", "--set", "expert_used_count=3", "--set",
        "expert_feed_forward_length=32", model)
    run("imatrix", "--text", text, "--context", "100", model, out)
    n = len(run("tokenize", model, TEXT).stdout.split())
    got = GgufFile(out).tensors
    for name, width in (("ffn_gate_exps", 48), ("ffn_up_exps", 48), ("ffn_down_exps", 32)):
        counts, sums = got["blk.1.%s.weight.counts" % name], got["blk.1.%s.weight.in_sum2" % name]
        if len(counts) != 8 or sum(counts) != 3 * n or len(sums) != 8 * width:
            complain("%s: %s inputs, %d sums" % (name, counts, len(sums)))
    said = run("quantize", "--type", "Q4_0", "--imatrix", out, model, small).stdout
    if "importance for 14 of 16 matrices" not in said:
        complain("not all matrices have an importance: " + said)


def older_form(path, out, end):
    """Writes an importance matrix as llama-imatrix did: names, calls, means of squares times calls."""
    tensors = GgufFile(path).tensors
    names = [name.removesuffix(".in_sum2") for name in tensors if name.endswith(".in_sum2")]
    with open(out, "wb") as file:
        file.write(struct.pack("<i", len(names)))
        for name in names:
            sums, counts = tensors[name + ".in_sum2"], tensors[name + ".counts"]
            columns = len(sums) // len(counts)
            means = [v / max(counts[i // columns], 1) * 7 for i, v in enumerate(sums)]
            file.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 7, len(means)))
            file.write(struct.pack("<%df" % len(means), *means))
        file.write(end)


def weights(path, folder):
    """All floats of a model."""
    back = os.path.join(folder, "back.gguf")
    run("quantize", "--force", "--type", "F32", path, back)
    return [value for floats in GgufFile(back).tensors.values() for value in floats]


def older_files_are_read(folder):
    model, importance, dat, one, two, plain = (os.path.join(folder, name) for name in (
        "moe.gguf", "moe.imatrix", "moe.dat", "one.gguf", "two.gguf", "plain.gguf"))
    run("quantize", "--type", "Q4_0", model, plain)
    run("quantize", "--type", "Q4_0", "--imatrix", importance, model, one)
    wanted, without = weights(one, folder), weights(plain, folder)
    for end, dataset, chunks in ((b"", None, None), (struct.pack("<ii", 5, 9) + b"prose.txt", "prose.txt", 5)):
        older_form(importance, dat, end)
        said = run("quantize", "--force", "--type", "Q4_0", "--imatrix", dat, model, two).stdout
        if "importance for 14 of 16 matrices" not in said:
            complain("moe.dat: " + said)
        got = weights(two, folder)
        other, moved = (sum(map(operator.ne, got, base)) / len(got) for base in (wanted, without))
        if other > 0.002 or moved < 0.05:  # the last bit of a factor may differ, and with it some weights
            complain("%.4f of the weights as without importance, %.4f not as with the GGUF file" % (1 - moved, other))
        keys = GgufFile(two).keys
        origin = {key: keys.get("quantize.imatrix." + key) for key in ("file", "dataset", "entries_count", "chunks_count")}
        if origin != {"file": dat, "dataset": dataset, "entries_count": 16, "chunks_count": chunks}:
            complain("the result says of its importance: %s" % origin)
    run("quantize", "--force", "--type", "Q4_0", "--imatrix", os.path.join(folder, "tiny.imatrix"), os.path.join(folder, "tiny.gguf"), two)
    origin = {key: value for key, value in GgufFile(two).keys.items() if key.startswith("quantize.")}
    if origin != {"quantize.imatrix.file": os.path.join(folder, "tiny.imatrix"), "quantize.imatrix.dataset": os.path.join(folder, "text.txt"),
                  "quantize.imatrix.entries_count": 14, "quantize.imatrix.chunks_count": 3}:
        complain("the result says of its importance: %s" % origin)
    with open(dat, "rb") as file:
        body = file.read()
    for content, says in ((body[:len(body) // 2], "cut or damaged at number"), (b"a text of another kind", "neither a GGUF file nor"),
                          (b"", "neither a GGUF file nor")):
        with open(dat, "wb") as file:
            file.write(content)
        if says not in run("quantize", "--force", "--imatrix", dat, model, two, status=1).stderr:
            complain("no '%s' for %r" % (says, content[:20]))


def sources_are_safe(folder, text):
    """A command that would write a file that it reads is refused, also through links and for any part of a model."""
    model, importance = (os.path.join(folder, name) for name in ("tiny.gguf", "tiny.imatrix"))
    link, hard, prefix = (os.path.join(folder, name) for name in ("link.gguf", "hard.gguf", "split"))
    os.symlink(model, link)
    os.link(model, hard)
    run("split", "--parts", "3", model, prefix)
    part = [prefix + "-0000%d-of-00003.gguf" % i for i in (1, 2, 3)]
    files = {path: open(path, "rb").read() for path in (model, importance, text, *part)}
    for words in (("quantize", "--force", model, model), ("quantize", "--force", model, link), ("quantize", "--force", link, hard),
                  ("quantize", "--force", part[0], part[2]), ("quantize", "--force", "--imatrix", importance, model, importance),
                  ("imatrix", "--force", "--text", text, model, hard), ("imatrix", "--force", "--text", text, model, text),
                  ("merge", "--force", part[1], part[0]), ("split", "--force", "--parts", "3", part[0], prefix),
                  ("make", "--vocab-from", model, model), ("logits", "--ids", "1", "--out", link, model)):
        if "is a file that the command reads" not in run(*words, status=1).stderr:
            complain("%s is not refused" % " ".join(words))
    for path, content in files.items():
        with open(path, "rb") as file:
            if file.read() != content:
                complain("%s changed" % path)
    for words in (("imatrix", "--text", "absent.txt", model, os.path.join(folder, "x.gguf")), ("perplexity", "--text", "absent.txt", model)):
        said = run(*words, status=1).stderr
        if not said.startswith("baton-model %s: absent.txt: cannot open" % words[0]):
            complain("another file is named: " + said)


def dialogues(path, take):
    with open(os.path.join(SRC, "share/eval/dialogues.jsonl")) as lines, open(path, "w") as out:
        for line in take(list(lines)):
            for message in json.loads(line)["messages"]:
                if isinstance(message.get("content"), str):
                    out.write("<|im_start|>%s\n%s<|im_end|>\n" % (message["role"], message["content"]))


def product_error(source, result, squares):
    """Of the products with inputs of these mean squares, as if the inputs were independent; relative to the products."""
    columns = len(squares)
    wrong, right = [0.0] * columns, [0.0] * columns
    for at in range(0, len(source), columns):
        for i, (a, b) in enumerate(zip(source[at:at + columns], result[at:at + columns])):
            wrong[i] += (a - b) * (a - b)
            right[i] += a * a
    return sum(map(operator.mul, wrong, squares)) / sum(map(operator.mul, right, squares))


def quality_improves(folder):
    seen, unseen, one, two, other, base, small, back = (os.path.join(folder, name) for name in (
        "seen.txt", "unseen.txt", "one.imatrix", "two.imatrix", "other.imatrix", "f32.gguf", "small.gguf", "back.gguf"))
    dialogues(unseen, lambda lines: lines[:24])
    dialogues(seen, lambda lines: lines[24:])
    run("imatrix", "--special", "--text", seen, "--threads", "1", DEMO, one)
    run("imatrix", "--special", "--text", seen, "--threads", "2", DEMO, two)
    with open(one, "rb") as a, open(two, "rb") as b:
        if a.read() != b.read():
            complain("the number of threads changes the file")
    run("quantize", "--type", "F32", DEMO, base)
    run("imatrix", "--special", "--text", unseen, DEMO, other)
    source, squares = GgufFile(base).tensors, GgufFile(other).tensors
    for name in ("Q2_K", "Q3_K_S", "Q4_K_S"):
        found, errors = [], []
        for more in ((), ("--imatrix", one)):
            run("quantize", "--force", "--type", name, *more, base, small)
            run("quantize", "--force", "--type", "F32", small, back)
            result = GgufFile(back).tensors
            errors.append([product_error(source[matrix], result[matrix], squares[matrix + ".in_sum2"]) for matrix in MATRICES])
            found.append(json.loads(run("perplexity", "--json", "--special", "--kv", "f32", "--text", unseen, "--windows",
                                        "6", "--kl", base, back).stdout)["kl"]["mean"])
        print("%-7s divergence %.6f, with importance %.6f" % (name, *found))
        if not found[1] < found[0]:
            complain("%s: importance makes the divergence %.6f, from %.6f" % (name, found[1], found[0]))
        for matrix, without, with_it in zip(MATRICES, *errors):
            print("        %s: error of products %.3e, with importance %.3e" % (matrix, without, with_it))
            if not with_it < without:
                complain("%s, %s: importance makes the error of products %.3e, from %.3e" % (name, matrix, with_it, without))
    return one


def others_are_refused(folder, text, importance):
    model, out, other = (os.path.join(folder, name) for name in ("tiny.gguf", "x.gguf", "other.gguf"))
    if "general.type" not in run("quantize", "--imatrix", DEMO, model, out, status=1).stderr:
        complain("a model passes for an importance matrix")
    if "another shape" not in run("quantize", "--type", "Q4_0", "--imatrix", importance, model, out, status=1).stderr:
        complain("importance of another shape is taken")
    run("quantize", "--imatrix", os.path.join(folder, "absent"), model, out, status=1)
    run("imatrix", "--text", text, model, importance, status=1)  # exists
    run("imatrix", "--text", os.path.join(folder, "absent"), model, out, status=1)
    run("imatrix", model, out, status=2)
    run("imatrix", "--text", text, "--context", "4096", model, out, status=1)
    if os.path.exists(out):
        complain("a refusal left a file")


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = sums_are_right(folder)
        experts_have_their_own(folder, text)
        older_files_are_read(folder)
        sources_are_safe(folder, text)
        if not os.environ.get("BATON_SANITIZED"):
            others_are_refused(folder, text, quality_improves(folder))
    return 1 if failed else 0


sys.exit(main())
