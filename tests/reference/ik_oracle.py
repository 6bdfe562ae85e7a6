#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Baton's logits beside those of ik_llama.cpp, a second oracle, on the same tiny random models.

    BATON_IK_LLAMA=FOLDER tests/reference/ik_oracle.py PATH/TO/baton-model [CASE...]      (needs cc)

FOLDER is a source tree of ik_llama.cpp in which `cmake -B build` and `cmake --build build --target llama` built the
library. Without it the program skips (exit status 77).

The cases are the golden files of tests/golden/arch, but for heads that draft tokens: `baton-model make` writes a case's
model, and both programs read all of its tokens, with KV in F16. CHANGES has what ik_llama.cpp needs to compute a case.
A row of the table has the largest difference of a logit over all positions, as a share of the position's largest
logit, with all tokens in one batch and one at a time, and how many greedy tokens are the same.

The program fails if a case differs by more than BOUND and EXPLAINED does not name it, if an explained case does not
differ, if it differs without its cause, or if ik_llama.cpp computed fewer than LEAST_COMPUTED of all cases."""
import array
import math
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).parent
GOLDEN = SOURCE.parent / "golden" / "arch"
BOUND, LEAST_COMPUTED = 1e-3, 35
# Arguments of make to replace. Heads narrower than 16 numbers are computed wrongly there, so all models without a width
# of heads have rows of 64 numbers instead of 48.
NARROW, WIDE = "48", "64"
CHANGES = {
    "gemma3-62": {"--head-dim 10": "--head-dim 16"},
    "gemma2": {"--head-dim 12": "--head-dim 16", "--layers 4": "--layers 26"},  # others have no scale there
    "glm4moe": {"--seed": "--set expert_weights_norm=true --set expert_gating_func=2 --seed"},  # other defaults
    "minimax-m2": {"--ffn 80": "--ffn 32 --set expert_weights_norm=true --set expert_gating_func=2"},
    "hunyuan-moe": {"--ffn 80": "--ffn 32"},  # its experts are as wide as feed_forward_length says
    "granitemoe": {"--ffn 80": "--ffn 32"},
    "deepseek2-lite": {"--seed": "--set attention.q_lora_rank=40 --set expert_weights_scale=1.0 --seed"},
    "seed_oss": {"--with bias ": ""},  # the bias of attn_output is not read there
}
# (cause, arguments to replace so that it is absent)
GROUPS = "--set expert_group_count=4 --set expert_group_used_count=2 "
EXPLAINED = {
    "deepseek2-v2": ("it ignores groups of experts", {GROUPS: ""}),
    "deepseek2-v3": ("it ignores groups of experts", {GROUPS: ""}),
    "mistral": ("its llama has no windows", {"--set attention.sliding_window=9 ": ""}),
    "gpt-oss": ("it rounds the bounds of YaRN",
                {"--set rope.scaling.type=yarn --set rope.scaling.factor=32.0 "
                 "--set rope.scaling.original_context_length=64 ": ""}),
    "granite": ("it scales the residual stream behind attention, not only attention's output",
                {"residual_scale=0.7": "residual_scale=1.0"}),
    "mixtral": ("behind experts it adds the normed row to the residual stream, not the row", None),
    "llama4": ("the same as mixtral", None),
    "llama4-interleaved": ("the same as mixtral", None),
    "granitemoe": ("the same as granite and mixtral", None),
    "hunyuan-moe": ("it norms heads before RoPE", None),
    "mistral3": ("it counts positions from 1 for the scale of queries, and sharpens by YaRN again", {"--arch mistral3": "--arch llama",
                 "--set rope.scaling.yarn_log_multiplier=1.0 ": "", "--set attention.temperature_scale=0.3 ": ""}),
}


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


def golden_case(name, changes):
    """The arguments of make, changed, and the tokens of a golden file."""
    words = dict(line.split(" ", 1) for line in (GOLDEN / f"{name}.txt").read_text().splitlines()
                 if line.startswith(("make ", "tokens ")))
    text = words["make"]
    for old, new in changes.items():
        if old not in text:
            sys.exit(f"{name}: the arguments lack {old}")
        text = text.replace(old, new)
    has_width = "--head-dim" in text or "attention.key_length" in text
    return [WIDE if a == NARROW and not has_width else a for a in text.split()], words["tokens"].split()


def rows_of(command, path, n_rows, **environment):
    """The rows that a command writes, or the last line that names why it wrote none."""
    run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, errors="replace")
    if run.returncode != 0 or not os.path.exists(path):
        lines = [line for line in run.stderr.splitlines() if "error" in line.lower() or "assert" in line.lower()]
        return None, (lines or run.stderr.splitlines() or ["no output"])[-1].split("loading model: ")[-1].strip()
    values = array.array("f", pathlib.Path(path).read_bytes())
    os.unlink(path)
    width = len(values) // n_rows
    return [values[at:at + width] for at in range(0, len(values), width)], ""


def difference(ours, theirs):
    """The largest difference as a share of its row's largest logit, infinity for logits that are no numbers."""
    worst = 0.0
    for row, other in zip(ours, theirs):
        share = max(abs(a - b) for a, b in zip(row, other)) / max(map(abs, row))
        worst = max(worst, share if not any(math.isnan(b) for b in other) else math.inf)
    return worst


def greedy(rows):
    return [max(range(len(row)), key=row.__getitem__) for row in rows]


def compare(tools, name, changes, scratch):
    """([(difference, same greedy tokens) at once and token by token], or None; what the row of the table says)."""
    baton, oracle = tools
    arguments, tokens = golden_case(name, changes)
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
            return None, why or "another vocabulary"
        found.append((difference(ours, theirs), sum(a == b for a, b in zip(greedy(ours), greedy(theirs)))))
    return found, f"{min(same for _, same in found)} of {len(tokens)}"


def report(tools, name, changes, scratch, note):
    """Prints a row. The largest difference, or None."""
    found, text = compare(tools, name, changes, scratch)
    if found is None:
        print(f"| `{name}` | | | | not computed: {text} |", flush=True)
        return None
    print(f"| `{name}` | {found[0][0]:.1e} | {found[1][0]:.1e} | {text} | {note} |", flush=True)
    return max(found)[0]


def check_case(tools, name, scratch):
    """(whether it was computed, whether it is as expected)"""
    changes = CHANGES.get(name, {})
    cause, without = EXPLAINED.get(name, ("", None))
    worst = report(tools, name, changes, scratch, cause)
    if worst is None:
        return False, True
    is_good = (worst > BOUND) == (name in EXPLAINED)
    if without is not None:
        rest = report(tools, name, {**changes, **without}, scratch, "without that")
        is_good = is_good and rest is not None and rest <= BOUND
    if not is_good:
        print(f"{name}: not as expected", flush=True)
    return True, is_good


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = os.environ.get("BATON_IK_LLAMA", "")
    if not os.path.isdir(folder):
        skip("$BATON_IK_LLAMA names no source tree of ik_llama.cpp")
    chosen = sys.argv[2:] or sorted(p.stem for p in GOLDEN.glob("*.txt") if not p.stem.endswith("-mtp"))
    with tempfile.TemporaryDirectory() as scratch:
        tools = os.path.abspath(sys.argv[1]), build_program(folder, scratch)
        print("| case | at once | token by token | same greedy tokens | |\n|---|---|---|---|---|")
        results = [check_case(tools, name, scratch) for name in chosen]
    n_computed = sum(computed for computed, _ in results)
    print(f"{n_computed} of {len(chosen)} cases computed")
    if not all(good for _, good in results) or (not sys.argv[2:] and n_computed < LEAST_COMPUTED):
        sys.exit(1)


if __name__ == "__main__":
    main()
