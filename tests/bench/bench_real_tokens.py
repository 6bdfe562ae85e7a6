#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of trained models through router, prefill and decode daemons, beside transformers.

    bench_real_tokens.py smollm2|gemma3 [--as-is] [--prompts N] [--tokens N] [--long] [--threads N]

Every prompt is computed by a prefill worker and handed over to a decode worker.  SmolLM2 answers chat turns; Gemma 3 270M is a
base model without a chat format, so it continues "Question: ... Answer:" and the news of long prompts.  The daemons serve the
published file's weights as F32, with KV in F32, so that nothing but the order of sums differs from transformers, and every
token must be the same; a first difference counts as explained where transformers has both tokens within 1e-3 of each other.
With --as-is they serve the published file, whose products round activations to eight bits, with KV in F16.  Then a first
difference counts as explained where transformers' gap between both tokens is at most 4 times the root mean square of the
difference of such gaps over all answers, and Baton has its own token before the other one by as little.

--long takes three prompts of about 8,000 tokens instead, of the real text.  Each is asked through the router, again (a
prefix hit), on the decode worker alone, and with another end.  The answers of one prompt must have the same tokens and the
same log probabilities to the last digit.

Models and text come from the package index (tests/integration/real_models.py); transformers runs in $BATON_ORACLE_PYTHON, a
Python with torch, transformers and gguf, by default the one of this script.  Without these the script says so and ends
with 77.  It ends with 1 if a difference is not explained."""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from cluster import BUILD, Cluster, fetch, in_threads  # noqa: E402
from real_models import found_or_skip, skip  # noqa: E402
from real_prompts import news, prompts  # noqa: E402

TOOL = os.path.join(BUILD, "baton-model")
PYTHON = os.environ.get("BATON_ORACLE_PYTHON", sys.executable)
TOP = 5
NEAR = 1e-3  # of two log probabilities of transformers in F32: sums in another order
LONG_TOKENS = 8000


def step_of(token, logprob, top):
    return {"bytes": token, "logprob": logprob, "top": top}


def bytes_of(text):
    """Hex of a token as /v1/completions writes it."""
    if text.startswith("bytes:"):
        return text[6:].replace("\\x", "")
    return text.encode().hex()


class Chat:
    """Turns in the model's chat format."""

    @staticmethod
    def text(kind, text):
        return f"Summarise this in one sentence:\n\n{text}" if kind == "long" else text

    @staticmethod
    def ask(port, text, n):
        body = {"model": "real", "temperature": 0, "max_tokens": n, "logprobs": True, "top_logprobs": TOP,
                "messages": [{"role": "user", "content": text}]}
        status, headers, answer = fetch(port, "POST", "/v1/chat/completions", body, timeout=590)
        assert status == 200, answer
        choice = json.loads(answer)["choices"][0]
        steps = [step_of(bytes(t["bytes"]).hex(), t["logprob"], [[bytes(o["bytes"]).hex(), o["logprob"]] for o in t["top_logprobs"]])
                 for t in (choice["logprobs"] or {}).get("content") or []]
        return steps, choice["finish_reason"], headers

    @staticmethod
    def ids(port, text):
        return tokenized(port, {"messages": [{"role": "user", "content": text}]})


class Plain:
    """Text that the model continues."""

    @staticmethod
    def text(kind, text):
        return text if kind == "long" else f"Question: {text}\nAnswer:"

    @staticmethod
    def ask(port, text, n):
        body = {"model": "real", "temperature": 0, "max_tokens": n, "logprobs": TOP, "prompt": text}
        status, headers, answer = fetch(port, "POST", "/v1/completions", body, timeout=590)
        assert status == 200, answer
        choice = json.loads(answer)["choices"][0]
        lists = choice["logprobs"]
        steps = [step_of(bytes_of(t), p, [[bytes_of(o), v] for o, v in top.items()])
                 for t, p, top in zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"])]
        return steps, choice["finish_reason"], headers

    @staticmethod
    def ids(port, text):
        return tokenized(port, {"prompt": text})


def tokenized(port, body):
    status, _, answer = fetch(port, "POST", "/tokenize", dict(body, model="real"))
    assert status == 200, answer
    return json.loads(answer)["tokens"]


FORMS = {"smollm2": Chat, "gemma3": Plain}


def ends_of(path):
    """Ids that end an answer."""
    text = subprocess.run([TOOL, "info", path], capture_output=True, text=True, check=True).stdout
    line = next(line for line in text.splitlines() if "an answer ends at" in line)
    return [int(n) for n in re.findall(r"(\d+) <", line)]


def opinions(args, published, cases):
    given = {"threads": args.threads, "ends": ends_of(published), "cases": cases}
    run = subprocess.run([PYTHON, os.path.join(HERE, "real_oracle.py"), published], input=json.dumps(given), stdout=subprocess.PIPE,
                         env=dict(os.environ, TQDM_DISABLE="1", OMP_WAIT_POLICY="PASSIVE"),
                         text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def moved(headers):
    """Tokens of the prompt whose KV was handed over, as the answer reports."""
    found = re.search(r"transferred=(\d+)", headers.get("baton-proof", ""))
    return int(found.group(1)) if found else 0


def cluster_of(path, args):
    c = Cluster()
    c.router(queue__timeout="580s", slo__ttft="600s", placement__local_prefill_tokens="0")
    for role in ("prefill", "decode"):
        c.worker(role, model__path=path, model__name="real", kv__memory=args.kv_memory, engine__threads=str(args.threads),
                 kv__type="f16" if args.as_is else "f32", kv__grant_timeout="60s", model__context=str(8192))
    c.wait_ready(prefill=1, decode=1, timeout=120)
    return c


def is_explained(args, first, noise):
    """The rule of the head of this file."""
    limit = NEAR if not args.as_is else 4 * noise
    return first["their_gap"] <= limit and (first["baton_gap"] is None or 0 <= first["baton_gap"] <= limit)


def report(args, named, verdicts):
    """Prints every first difference; returns how many are not explained."""
    n_squares = sum(v["n_squares"] for v in verdicts)
    rms = math.sqrt(sum(v["squares"] for v in verdicts) / max(n_squares, 1))
    noise = rms * math.sqrt(2)  # of a gap: two log probabilities, each as far off
    bad = 0
    for (kind, text), v in zip(named, verdicts):
        if "first" not in v:
            continue
        first = v["first"]
        explained = is_explained(args, first, noise)
        bad += not explained
        gap = "not among its best" if first["baton_gap"] is None else f"{first['baton_gap']:.4f}"
        print(f"  {kind:8s} {text[:40]!r}: token {first['at']}, transformers {first['theirs']!r}, Baton {first['baton']!r}; gap "
              f"{first['their_gap']:.4f} there, {gap} here{'' if explained else ': NOT EXPLAINED'}")
    for kind in dict.fromkeys(kind for kind, _ in named):
        of_kind = [v for (k, _), v in zip(named, verdicts) if k == kind]
        print(f"{kind:8s} {sum('first' not in v for v in of_kind):3d} of {len(of_kind)} answers with the same tokens")
    print(f"all      {sum('first' not in v for v in verdicts):3d} of {len(verdicts)}, {sum(v['n'] for v in verdicts)} tokens; log probabilities "
          f"of the {TOP} best tokens differ by {rms:.2g} (root mean square), {max(v['most'] for v in verdicts):.2g} at most; "
          f"{bad} differences not explained", flush=True)
    return bad


def short_answers(args, path, published, items):
    form, every = FORMS[args.model], prompts(items)
    every = [every[i * len(every) // args.prompts] for i in range(args.prompts)]
    named = [(kind, form.text(kind, text)) for kind, text in every]
    began = time.monotonic()
    with cluster_of(path, args) as c:
        port, answers, queue = c.routers[0].http, [None] * len(named), list(range(len(named)))

        def work():
            while queue:
                i = queue.pop(0)
                answers[i] = form.ask(port, named[i][1], args.tokens)

        in_threads([work] * 8)
        ids = [form.ids(port, text) for _, text in named]
        handed = sum(moved(headers) > 0 for _, _, headers in answers)
        print(f"{len(named)} prompts of {sum(map(len, ids))} tokens, {handed} handed over, {time.monotonic() - began:.0f} s", flush=True)
        c.assert_quiet()
    cases = [{"ids": i, "answer": steps, "ended": why == "stop"} for i, (steps, why, _) in zip(ids, answers)]
    return report(args, named, opinions(args, published, cases))


def long_prompt(port, form, items, at, end):
    """News of LONG_TOKENS tokens, and a last line."""
    words = news(items, at, 10 ** 6).split()
    for extra in range(at + 12, len(items), 12):
        if len(words) >= LONG_TOKENS:
            break
        words += news(items, extra, 10 ** 6).split()
    n = LONG_TOKENS
    for _ in range(6):  # the number of words whose tokens fit
        text = " ".join(words[:n]) + end
        got = len(form.ids(port, text))
        if LONG_TOKENS - 100 <= got <= LONG_TOKENS:
            return text
        n = int(n * (LONG_TOKENS - 50) / got)
    return text


def long_answers(args, path, published, items):
    form, named, cases, bad = FORMS[args.model], [], [], 0
    with cluster_of(path, args) as c:
        port, alone = c.routers[0].http, c.workers[1].http
        for at in (0, 90, 180)[:args.prompts]:
            end = "\n\nWhat was reported first?" if form is Chat else "\n\nIn other news,"
            text = long_prompt(port, form, items, at, end)
            other = text.removesuffix(end) + ("\n\nName one place of these reports." if form is Chat else "\n\nThe Prime Minister said")
            n = len(form.ids(port, text))
            took = []
            got = []
            for where, prompt in ((port, text), (port, text), (alone, text), (port, other)):
                began = time.monotonic()
                got.append(form.ask(where, prompt, args.tokens))
                took.append(time.monotonic() - began)
            same = all(g[:2] == got[0][:2] for g in got[1:3])
            bad += not same
            print(f"{n} tokens: {', '.join(f'{s:.1f}' for s in took)} s; again and on one worker {'the same' if same else 'NOT the same'} "
                  f"tokens and log probabilities\n  " + "\n  ".join(g[2].get("baton-proof", "") for g in got), flush=True)
            for prompt, (steps, why, _) in ((text, got[0]), (other, got[3])):
                named.append(("8k", prompt[-30:]))
                cases.append({"ids": form.ids(port, prompt), "answer": steps, "ended": why == "stop"})
        c.assert_quiet()
    return bad + report(args, named, opinions(args, published, cases))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=list(FORMS))
    parser.add_argument("--as-is", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.kv_memory = "3GiB" if args.long else "1GiB"
    published, prose = found_or_skip(args.model), found_or_skip("prose")
    if subprocess.run([PYTHON, "-c", "import torch, transformers, gguf"], stderr=subprocess.DEVNULL).returncode != 0:
        skip(f"{PYTHON} has no torch, transformers and gguf; name another in $BATON_ORACLE_PYTHON")
    with open(prose, encoding="utf-8") as f:
        items = [line for line in f.read().split("\n") if line]
    with tempfile.TemporaryDirectory() as folder:
        path = published
        if not args.as_is:
            path = os.path.join(folder, "f32.gguf")
            subprocess.run([TOOL, "quantize", "--type", "F32", published, path], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        bad = (long_answers if args.long else short_answers)(args, path, published, items)
    sys.exit(1 if bad else 0)


main()
