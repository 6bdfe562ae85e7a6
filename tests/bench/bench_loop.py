#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the loop works on one thing, for each kind of request at its largest: the table in docs/http.md.

    BATON_BUILD=build python3 tests/bench/bench_loop.py [WORD...]      only kinds whose names hold one of the words

A router and a decode worker are asked the same (a worker's figure is of both), one request at a time, over HTTP/1.1 and, where curl can, over HTTP/2.  The
figures are the loops' own (loop_work in the log, serve/endpoint/stall.c): processor time of the loop's thread in one call of its, so a
machine with other work only makes them somewhat larger.  The longest of three.  BENCH_SERVED: workers are simulated and have a
context of 4,194,304 tokens, so that long prompts are served and not refused."""
import base64
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import Cluster, fetch  # noqa: E402

MIB = 1 << 20
SHOWN_MS = 0.5
N_TIMES = int(os.environ.get("BENCH_TIMES", "3"))
rng = random.Random(1)


def words(n_bytes):
    """Text of about so many bytes, no two sentences alike."""
    list_ = ["the", "router", "hands", "prompts", "to", "workers", "who", "compute", "keys", "and", "values", "of", "tokens",
             "x = f(y);", "résumé", "日本語", "\n\n", "1234.5", "-->", "__init__"]
    return " ".join(rng.choice(list_) for _ in range(n_bytes // 7))[:n_bytes]


def numbers(n):
    """So many token ids, no two blocks alike."""
    return [rng.randrange(300, 1000) for _ in range(n)]


def user(content, **fields):
    return {"model": "baton-demo", "max_tokens": 1, "temperature": 0, "messages": [{"role": "user", "content": content}], **fields}


def first_bytes():
    """Characters, each begins with another byte."""
    return [chr(c) for c in (*range(1, 0x80), *range(0x80, 0x800, 0x40), *range(0x1000, 0x10000, 0x1000))]


def tool(i, schema=None):
    return {"name": f"tool_{i}", "description": "does something", "input_schema": schema or {"type": "object", "properties": {}}}


def turns(n, text="hello there"):
    return [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i in range(n)]


def results(n):
    calls = [{"type": "tool_use", "id": f"toolu_{i}", "name": "tool_0", "input": {"a": i}} for i in range(n)]
    answers = [{"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "ok"} for i in range(n)]
    return [{"role": "user", "content": "go"}, {"role": "assistant", "content": calls}, {"role": "user", "content": answers}]


def just_under(make, bound):
    """make(n) with the largest n whose JSON stays within the bound in bytes: sizes just under a threshold hurt most."""
    low, high = 1, bound
    while low < high:
        n = (low + high + 1) // 2
        low, high = (n, high) if len(json.dumps(make(n))) <= bound else (low, n - 1)
    return make(low)


def kinds():
    m, chat, count, comp, tok, detok = ("/v1/messages", "/v1/chat/completions", "/v1/messages/count_tokens", "/v1/completions",
                                        "/tokenize", "/detokenize")
    base = {"model": "baton-demo", "max_tokens": 1}
    yield "one small message", m, user("hello")
    for size, name in ((64 << 10, "64 KiB"), (8 << 10, "8 KiB"), (4 << 10, "4 KiB"), (2 << 10, "2 KiB")):
        yield f"{name} of text", m, user(words(size - 200))
        yield f"{name} of text, count_tokens", count, {k: v for k, v in user(words(size - 200)).items() if k in ("model", "messages")}
        yield f"{name} of short messages", m, just_under(lambda n: {**base, "messages": turns(n, "a")}, size)
        yield f"{name} of text blocks", m, just_under(lambda n: user([{"type": "text", "text": "a"}] * n), size)
        yield f"{name} of tools", m, just_under(lambda n: user("x", tools=[tool(i) for i in range(n)]), size)
        yield f"{name} of combining characters", m, user("e" + "\u0301" * (size // 8))
        yield f"{name} of one word", m, user("a" * (size - 200))
        yield f"{name} of blanks", m, user("x" + " " * (size - 200))
        yield f"{name} of digits", m, user("1" * (size - 200))
        yield f"{name} of nested metadata", m, just_under(lambda n: user("x", metadata=nest(n)), size)
    yield "32 MiB of text", m, user(words(31 * MIB))
    yield "32 MiB of text, count_tokens", count, {"model": "baton-demo", "messages": user(words(31 * MIB))["messages"]}
    yield "32 MiB of text, chat", chat, user(words(31 * MIB))
    yield "32 MiB of text, completions", comp, {**base, "prompt": words(31 * MIB)}
    yield "32 MiB of text, tokenize", tok, {"model": "baton-demo", "prompt": words(31 * MIB)}
    yield "4 MiB of text, tokenize", tok, {"model": "baton-demo", "prompt": words(4 * MIB)}
    yield "900,000 tokens, detokenize", detok, {"model": "baton-demo", "tokens": [300] * 900000}
    yield "900,000 tokens, completions", comp, {**base, "prompt": [300] * 900000}
    yield "128 prompts of 1,000 words", comp, {**base, "prompt": [words(6000)] * 128}
    yield "a prompt that fills the context", m, user(words(6000))
    yield "132,000 tokens, served", comp, {**base, "prompt": numbers(132000)}
    yield "990,000 tokens, served", comp, {**base, "prompt": numbers(990000)}
    yield "1 MiB of text, served", m, user(words(MIB))
    yield "4 MiB of text, served", m, user(words(4 * MIB))
    yield "the same, 16 choices", chat, {**user(words(6000)), "n": 16}
    yield "system of 16 MiB", m, user("x", system=words(16 * MIB))
    yield "system of 100,000 blocks", m, user("x", system=[{"type": "text", "text": "a"}] * 100000)
    yield "20,000 tools", m, user("x", tools=[tool(i) for i in range(20000)])
    yield "20,000 tools, chat", chat, user("x", tools=[{"type": "function", "function": {"name": f"t{i}", "parameters": {}}}
                                                       for i in range(20000)])
    yield "10,000 stop sequences", m, user("x", stop_sequences=[f"stop {i}" for i in range(10000)])
    yield "171 stop sequences, one of 64,000 bytes", m, user("x", stop_sequences=["X" + "~" * 64000] + [
        c + "\u0002" for c in first_bytes() if c not in "X~"])
    yield "a stop string of 65,000 bytes, 128 choices", chat, user("x", stop=["X" + "y" * 65000], n=128)
    yield "4 stop strings of 1 MiB, chat", chat, user("x", stop=["s" * MIB] * 4)
    yield "20,000 messages", m, {**base, "messages": turns(20000)}
    yield "20,000 messages, chat", chat, {**base, "messages": turns(20000)}
    yield "100,000 text blocks", m, user([{"type": "text", "text": "a"}] * 100000)
    yield "10,000 calls and results", m, {**base, "tools": [tool(0)], "messages": results(10000)}
    yield "64 KiB of calls and results", m, just_under(lambda n: {**base, "tools": [tool(0)], "messages": results(n)}, 64 << 10)
    yield "numbers 1e-99999", m, user("x", metadata={"a": 0}, x=RAW("[" + ",".join(["1e-99999"] * 100000) + "]"))
    yield "an integer of 10,000 digits", m, user("x", x=RAW("1" * 10000))
    yield "50 KB of 10,000-digit fractions", m, user("x", x=RAW("[" + ",".join(["0." + "1" * 10000] * 5) + "]"))
    yield "an integer of 16 MB", m, user("x", x=RAW("1" * (16 * MIB)))
    yield "10,000 integers of 1,000 digits", m, user("x", x=RAW("[" + ",".join(["1" * 1000] * 10000) + "]"))
    yield "60 KB of integers over 64 bits", m, user("x", x=RAW("[" + ",".join(["99999999999999999999"] * 2800) + "]"))
    yield "128 levels deep, 100,000 times", m, user("x", x=RAW("[" + ",".join(["[" * 100 + "]" * 100] * 9000) + "]"))
    yield "a million levels", m, user("x", x=RAW("[" * 1000000))
    yield "500,000 empty objects", m, user("x", x=RAW("[" + ",".join(["{}"] * 500000) + "]"))
    yield "20,000 equal keys' beginnings", m, user("x", x={"k" * 50 + str(i): i for i in range(20000)})
    yield "1 MiB of combining characters", m, user("e" + "\u0301" * (MIB // 2))
    yield "16 MiB of combining characters", tok, {"model": "baton-demo", "prompt": "e" + "\u0301" * (8 * MIB)}
    yield "1 MiB of one word", m, user("a" * MIB)
    yield "16 MiB of blanks", m, user("x" + " " * (16 * MIB))
    yield "base64 of 8 MiB in an image", m, user([{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": base64.b64encode(os.urandom(8 * MIB)).decode()}}])
    yield "logit_bias of 100,000 tokens", chat, user("x", logit_bias={str(i): 1 for i in range(100000)})
    yield "logit_bias of 300 tokens", chat, user("x", logit_bias={str(i): 1 for i in range(300)})
    yield "128 choices", chat, user("x", n=128)
    yield "128 choices of 200 tokens", chat, user("x", n=128, ignore_eos=True, max_tokens=200)
    yield "128 choices of 200 tokens, stream", chat, user("x", n=128, ignore_eos=True, max_tokens=200, stream=True)
    likely = {"logprobs": True, "top_logprobs": 20, "ignore_eos": True}
    for stream in ({}, {"stream": True}):
        name = ", stream" if stream else ""
        yield f"logprobs of 1,000 tokens{name}", chat, user("x", **likely, **stream, max_tokens=1000)
        yield f"logprobs of 128 choices{name}", chat, user("x", **likely, **stream, n=128, max_tokens=32)
        for n in (2000, 30000, 100000):
            yield f"logprobs of {n:,} given tokens, served{name}", comp, {**base, **stream, "prompt": numbers(n), "echo": True,
                                                                         "logprobs": 5}
    yield "a tool with 20,000 properties", m, user("x", tools=[tool(0, {
        "type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20000)}})])
    yield "gzip of 30 MiB in 30 KB", m, GZIP(user("a" * (30 * MIB)))
    yield "a thread of 10,000 messages", m, {**base, "messages": turns(9999), "thread": {"type": "create"}}


class RAW(str):
    """JSON as it is."""


class GZIP(dict):
    """A body that is packed."""


def nest(n):
    value = {}
    for _ in range(min(n, 100)):
        value = {"a": value}
    return [value] * max(1, n // 100)


def encode(body):
    raws = {k: v for k, v in body.items() if isinstance(v, RAW)}
    text = json.dumps({k: v for k, v in body.items() if k not in raws}, ensure_ascii=False)
    for key, value in raws.items():
        text = text[:-1] + f',"{key}":{value}}}'
    data = text.encode()
    return gzip.compress(data, 9) if isinstance(body, GZIP) else data


def heads():
    """Requests that are all head."""
    yield "99 header fields of 600 bytes", {f"x-{i}": "v" * 600 for i in range(90)}
    yield "one header field of 60 KB", {"x": "v" * 60000}


class Ear:
    """The work that a daemon's loop reports from now on."""

    def __init__(self, daemon):
        self.path, self.at = daemon.log_path, os.path.getsize(daemon.log_path)

    def longest(self):
        """(milliseconds, kind of work); work shorter than SHOWN_MS is left out."""
        best = (0.0, "")
        with open(self.path, errors="replace") as f:
            f.seek(self.at)
            for line in f:
                if '"event":"loop_work"' not in line:
                    continue
                said = json.loads(line)
                if said["work"] != "turn":
                    best = max(best, (said["cpu_us"] / 1000, said["work"]))
        return best


def post_http1(port, path, data, headers):
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, data, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    except (ConnectionError, http.client.HTTPException) as e:
        return type(e).__name__
    finally:
        connection.close()


def post_http2(port, path, data, headers):
    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        line = ["curl", "-s", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", "@" + f.name,
                f"http://127.0.0.1:{port}{path}"]
        for name, value in headers.items():
            line += ["-H", f"{name}: {value}"]
        return int(subprocess.run(line, stdout=subprocess.PIPE, check=False).stdout or 0)


def measure(daemon, others, post, path, data, headers):
    """(status, longest work of the daemon that is asked, longest work of the others)"""
    best, status = [(0.0, ""), (0.0, "")], None
    for _ in range(N_TIMES):
        ear, ears = Ear(daemon), [Ear(o) for o in others]
        status = post(daemon.http, path, data, headers)
        time.sleep(0.05)
        best[0] = max(best[0], ear.longest())
        best[1] = max([best[1]] + [e.longest() for e in ears])
    return status, best[0], best[1]


def show(best):
    return f"{best[0]:.1f} ({best[1]})" if best[0] > 0 else f"< {SHOWN_MS}"


def run(c, names, posts):
    print("| request | answer | router, ms | worker, ms |" + (" HTTP/2, router |" if len(posts) > 1 else ""))
    print("|---|---|---|---|" + ("---|" if len(posts) > 1 else ""), flush=True)
    todo = [(name, path, encode(body), {"content-type": "application/json",
                                        **({"content-encoding": "gzip"} if isinstance(body, GZIP) else {})})
            for name, path, body in kinds() if not names or any(n in name for n in names)]
    todo += [(name, "/v1/messages", encode(user("x")), extra) for name, extra in heads()
             if not names or any(n in name for n in names)]
    for name, path, data, headers in todo:
        status, router, worker = measure(c.routers[0], c.workers, posts[0], path, data, headers)
        worker = max(worker, measure(c.workers[-1], [], posts[0], path, data, headers)[1])
        line = f"| {name} | {status} | {show(router)} | {show(worker)} |"
        if len(posts) > 1:
            line += f" {show(measure(c.routers[0], [], posts[1], path, data, headers)[1])} |"
        print(line, flush=True)


SERVED = {"engine__kind": "sim", "engine__sim_step": "1us", "engine__sim_prefill_token": "0", "model__context": "4194304",
          "kv__memory": "4GiB", "sched__chunk_tokens": "65536"}


def main():
    with Cluster() as c:
        engine = SERVED if os.environ.get("BENCH_SERVED") else {}
        c.router(http__h2c="yes")
        c.worker("prefill", http__h2c="yes", **engine)
        c.worker("decode", http__h2c="yes", **engine)
        c.wait_ready(prefill=1, decode=1)
        fetch(c.routers[0].http, "POST", "/v1/messages", user("warm"))
        run(c, sys.argv[1:], [post_http1, post_http2] if os.environ.get("BENCH_HTTP2") else [post_http1])
        for daemon in c.routers + c.workers[-1:]:
            status, _, body = fetch(daemon.admin, "GET", "/metrics", headers={"authorization": f"Bearer {c.admin_token()}"})
            print(f"\n{daemon.name}, of all:", *[line for line in body.decode().splitlines()
                                                 if line.startswith("baton_loop_stall_max_seconds")], sep="\n  ")


if __name__ == "__main__":
    main()
