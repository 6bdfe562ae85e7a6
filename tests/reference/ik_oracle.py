#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Baton's logits beside those of ik_llama.cpp, a second oracle, on the same tiny random models.

    BATON_IK_LLAMA=FOLDER tests/reference/ik_oracle.py PATH/TO/baton-model [CASE...]      (needs cc)

FOLDER is a source tree of ik_llama.cpp in which `cmake -B build` and `cmake --build build --target llama` built the
library. Without it the program skips (exit status 77).

The cases are the golden files of tests/golden/arch, but for heads that draft tokens: `baton-model make` writes a case's
model, and both programs read all of its tokens, with KV in F16. A row of the table has the largest difference of a
logit over all positions, as a share of the position's largest logit, and how many greedy tokens are the same. The
program fails if a family that ik_llama.cpp knows differs by more than BOUND and EXPLAINED does not name it, or if
an explanation has become superfluous."""
import array
import math
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).parent
GOLDEN = SOURCE.parent / "golden" / "arch"
BOUND = 4e-3
EXPLAINED = {}


def skip(why):
    print(f"SKIP: {why}", flush=True)
    sys.exit(77)


def build_program(folder, scratch):
    """Compiles ik_logits.c against the library that was built in the folder."""
    libraries = {p.name: p.parent for p in pathlib.Path(folder, "build").glob("**/lib*.so")}
    if "libllama.so" not in libraries or "libggml.so" not in libraries:
        skip(f"{folder}/build has no libllama.so and libggml.so")
    program = f"{scratch}/ik_logits"
    line = ["cc", "-O1", "-o", program, f"{SOURCE}/ik_logits.c", f"-I{folder}/include", f"-I{folder}/ggml/include"]
    for name in ("llama", "ggml"):
        path = libraries[f"lib{name}.so"]
        line += [f"-L{path}", f"-Wl,-rpath,{path}", f"-l{name}"]
    # a library without GGML_IQK_FLASH_ATTENTION lacks two functions, which plain attention does not call
    subprocess.run([*line, "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,-z,lazy"], check=True)
    return program


def golden_case(name):
    """The arguments of make and the tokens of a golden file."""
    words = dict(line.split(" ", 1) for line in (GOLDEN / f"{name}.txt").read_text().splitlines()
                 if line.startswith(("make ", "tokens ")))
    return words["make"].split(), words["tokens"].split()


def arch_of(arguments):
    return arguments[arguments.index("--arch") + 1]


def rows_of(command, path, n_rows, **environment):
    """The rows that a command writes, or the last line that names why it wrote none."""
    run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, errors="replace")
    if run.returncode != 0 or not os.path.exists(path):
        lines = [line for line in run.stderr.splitlines() if "error" in line.lower() or "assert" in line.lower()]
        return None, (lines or run.stderr.splitlines() or ["no output"])[-1].strip()
    values = array.array("f", pathlib.Path(path).read_bytes())
    os.unlink(path)
    width = len(values) // n_rows
    return [values[at:at + width] for at in range(0, len(values), width)], ""


def difference(ours, theirs):
    """The largest difference as a share of its row's largest logit, infinity for logits that are no numbers."""
    worst = 0.0
    for row, other in zip(ours, theirs):
        share = max(abs(a - b) for a, b in zip(row, other)) / max(map(abs, row))
        worst = max(worst, share if share == share and not any(b != b for b in other) else math.inf)
    return worst


def greedy(rows):
    return [max(range(len(row)), key=row.__getitem__) for row in rows]


def compare(tools, name, scratch):
    """(architecture, largest difference at once and step by step, same greedy tokens, or why there are none)."""
    baton, oracle = tools
    arguments, tokens = golden_case(name)
    model, out = f"{scratch}/model.gguf", f"{scratch}/out.f32"
    subprocess.run([baton, "make", *arguments, model], check=True, stderr=subprocess.DEVNULL)
    ours, why = rows_of([baton, "logits", "--ids", ",".join(tokens), "--every", "--top", "0", "--kv", "f16", "--threads", "1",
                         "--out", out, model], out, len(tokens))
    if ours is None:
        sys.exit(f"{name}: baton-model: {why}")
    found = []
    for environment in ({}, {"IK_STEP": "1"}):
        theirs, why = rows_of([oracle, model, out, *tokens], out, len(tokens), **environment)
        if theirs is None or len(theirs) != len(ours) or len(theirs[0]) != len(ours[0]):
            return arch_of(arguments), None, why or "another vocabulary"
        same = sum(a == b for a, b in zip(greedy(ours), greedy(theirs)))
        found.append((difference(ours, theirs), same))
    return arch_of(arguments), found, f"{min(same for _, same in found)} of {len(tokens)}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = os.environ.get("BATON_IK_LLAMA", "")
    if not os.path.isdir(folder):
        skip("$BATON_IK_LLAMA names no source tree of ik_llama.cpp")
    chosen = sys.argv[2:] or sorted(p.stem for p in GOLDEN.glob("*.txt") if not p.stem.endswith("-mtp"))
    failed = False
    print("| case | architecture | at once | token by token | same greedy tokens |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        tools = os.path.abspath(sys.argv[1]), build_program(folder, scratch)
        for name in chosen:
            arch, found, text = compare(tools, name, scratch)
            if found is None:
                print(f"| `{name}` | `{arch}` | | | not computed: {text} |", flush=True)
                failed |= name not in EXPLAINED
                continue
            print(f"| `{name}` | `{arch}` | {found[0][0]:.1e} | {found[1][0]:.1e} | {text} |", flush=True)
            failed |= (max(found)[0] > BOUND) != (name in EXPLAINED)
    for name in chosen:
        if name in EXPLAINED:
            print(f"{name}: {EXPLAINED[name]}")
    sys.exit("differences without an explanation, or explanations without a difference" if failed else 0)


if __name__ == "__main__":
    main()
