# SPDX-License-Identifier: Apache-2.0
"""Sampler features through real daemons: penalties, biases, constraints, log probabilities.  Every path gives the same
tokens with the same log probabilities: one worker, a pair, a batch, a cached prefix, with and without drafts, and after
the answering worker died."""
import http.client
import json
import os
import signal
import time

from cluster import Cluster, fetch, in_threads, main, patience

LONG = ("Please remember: my name is Ada Lovelace, my favourite colour is teal and the port is 4711. "
        "Tell me, what is the KV cache, what is a hand-off, and why are prefill and decode pulled apart in Baton? ")
SCHEMA = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2},
    "size": {"type": "integer"}}, "required": ["name", "tags", "size"], "additionalProperties": False}
ALL = {"temperature": 1.3, "seed": 3, "frequency_penalty": 1.1, "presence_penalty": 0.6, "repetition_penalty": 1.4,
       "logit_bias": {"300": 4, "7": -100, "500": 1.5}}
CASES = [
    {"temperature": 0},
    {"temperature": 0, "frequency_penalty": 2, "presence_penalty": 2, "repetition_penalty": 2},
    ALL,
    {"temperature": 1, "seed": 5, "min_tokens": 50},
    {"temperature": 1, "seed": 11, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    dict(ALL, response_format={"type": "json_object"}, max_tokens=120),
]


def body(text, fields):
    return {"model": "baton-demo", "max_tokens": 60, "logprobs": True, "top_logprobs": 4,
            "messages": [{"role": "user", "content": text}], **fields}


def ask(port, text, fields):
    status, _, answer = fetch(port, "POST", "/v1/chat/completions", body(text, fields), timeout=120)
    assert status == 200, (status, answer)
    choice = json.loads(answer)["choices"][0]
    return choice["message"]["content"], choice["logprobs"]["content"], choice["finish_reason"]


def stream(port, text, fields, on_chunk):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(120))
    connection.request("POST", "/v1/chat/completions", json.dumps(body(text, dict(fields, stream=True))))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    content, draws, finish, n = "", [], None, 0
    while True:
        line = response.readline()
        assert line, "the stream broke off"
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            connection.close()
            return content, draws, finish
        data = json.loads(line[6:])
        assert "error" not in data, data
        for choice in data.get("choices", []):
            content += choice["delta"].get("content") or ""
            draws += (choice.get("logprobs") or {}).get("content") or []
            finish = choice.get("finish_reason") or finish
        n += 1
        on_chunk(n)


def look(answers):
    """Samples are random: each has its log probability, and the four likeliest in order."""
    for content, draws, finish in answers:
        assert draws, content
        for draw in draws:
            tops = [t["logprob"] for t in draw["top_logprobs"]]
            assert len(tops) == 4 and tops == sorted(tops, reverse=True), draw
            assert draw["logprob"] <= tops[0] and tops[0] <= 0, draw


def same(a, b):
    assert a[0] == b[0] and a[2] == b[2], (a[0], b[0], a[2], b[2])
    assert len(a[1]) == len(b[1]), (len(a[1]), len(b[1]))
    for x, y in zip(a[1], b[1]):
        assert x == y, (x, y)


def the_same_draws_however_served():
    with Cluster() as c:
        c.relay()
        router, decode = c.routers[0].http, c.workers[1]
        fresh = [ask(router, f"{i}. " + LONG, fields) for i, fields in enumerate(CASES)]
        assert decode.metric('baton_worker_prompt_tokens_total{how="transferred"}') > 0
        cached = [ask(router, f"{i}. " + LONG, fields) for i, fields in enumerate(CASES)]
        neighbours = in_threads([lambda i=i, f=f: ask(router, f"{i}. " + LONG, f) for i, f in enumerate(CASES)])
        alone = [ask(c.workers[0].http, f"{i}. " + LONG, fields) for i, fields in enumerate(CASES)]
        look(fresh)
        for i in range(len(CASES)):
            same(fresh[i], cached[i])
            same(fresh[i], neighbours[i])
            same(fresh[i], alone[i])
        texts = [content for content, _, _ in fresh]
        assert len(set(texts)) == len(CASES), texts  # each field changed the answer
        for content, _, finish in fresh[-2:]:
            if finish == "stop":
                json.loads(content)
        value = json.loads(fresh[-2][0])
        assert set(value) == {"name", "tags", "size"} and len(value["tags"]) >= 2, value
        c.assert_quiet()


def drafts_change_no_draw():
    answers = []
    for speculate in ("off", "always"):
        with Cluster() as c:
            c.router()
            worker = c.worker("decode", sched__speculate=speculate)
            c.wait_ready(decode=1)
            answers.append([ask(worker.http, f"{i}. " + LONG, fields) for i, fields in enumerate(CASES)])
            time.sleep(0.5)  # a worker counts ten times a second
            n_right = sum(worker.metric('baton_worker_drafted_tokens_total{source="%s",was="right"}' % source)
                          for source in ("text", "grammar"))
            assert (n_right > 0) == (speculate == "always"), (speculate, n_right)
    for a, b in zip(*answers):
        same(a, b)


def ends_may_be_ignored():
    """With ignore_eos an answer continues to max_tokens. Up to its usual end it equals the usual answer."""
    fields = {"temperature": 0, "max_tokens": 300}
    with Cluster() as c:
        c.relay()
        c.wait_ready(prefill=1, decode=1)
        usual = ask(c.routers[0].http, LONG, fields)
        longer = ask(c.routers[0].http, LONG, dict(fields, ignore_eos=True))
    assert usual[2] == "stop" and len(usual[1]) < 300, usual
    assert longer[2] == "length" and len(longer[1]) == 300, longer
    n = len(usual[0])
    assert longer[0][:n] == usual[0], (usual[0], longer[0])


def min_tokens_delays_the_end():
    """Neither the model nor a stop string ends an answer before min_tokens; the text before its usual end is the usual one."""
    fields = {"temperature": 0, "max_tokens": 300}
    with Cluster() as c:
        c.relay()
        c.wait_ready(prefill=1, decode=1)
        http = c.routers[0].http
        usual = ask(http, LONG, fields)
        n = len(usual[1])
        longer = ask(http, LONG, dict(fields, min_tokens=n + 20))
        word = usual[0].split()[1]
        stopped = ask(http, LONG, dict(fields, stop=[word]))
        later = ask(http, LONG, dict(fields, stop=[word], min_tokens=n + 20))
        shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}
        short = ask(http, LONG, dict(fields, min_tokens=40, response_format=shape))
        status, _, answer = fetch(http, "POST", "/v1/chat/completions",
                                  body(LONG, dict(fields, temperature=1, seed=2, n=3, min_tokens=70)), timeout=120)
        refused, _, why = fetch(http, "POST", "/v1/chat/completions", body(LONG, dict(fields, min_tokens=301)))
        c.assert_quiet()
    assert usual[2] == "stop" and n < 270, usual
    assert len(longer[1]) >= n + 20 and longer[0].startswith(usual[0]), (usual[0], longer[0])
    assert stopped[2] == "stop" and stopped[0] == usual[0][:usual[0].index(word)], stopped
    assert later[0].startswith(usual[0]), (usual[0], later[0])
    assert json.loads(short[0]) in ("yes", "no") and short[2] == "stop", short
    choices = json.loads(answer)["choices"]
    assert status == 200 and len(choices) == 3 and all(len(c["logprobs"]["content"]) >= 70 for c in choices), answer
    assert refused == 400 and b"min_tokens: " in why, why


def cpu_ns(daemon):
    """Processor time of all the daemon's threads so far."""
    n, tasks = 0, f"/proc/{daemon.process.pid}/task"
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/schedstat") as f:
            n += int(f.read().split()[0])
    return n


def a_worker_dies_in_mid_answer():
    """Processor time shows which worker answers; both are stopped, so that it cannot end first.  If the worker ended
    before its eighth token was read here, the next try decides."""
    with Cluster() as c:
        c.router()
        c.worker("prefill")
        c.worker("decode")
        c.worker("decode")
        c.wait_ready(prefill=1, decode=2)
        router = c.routers[0].http
        n_hit = {2: 0, 3: 0, 4: 0}
        for attempt in range(18):
            i = 2 + attempt % 3
            if n_hit[i] > 0:
                continue
            text, fields = f"{attempt}. " + LONG, dict(CASES[i], max_tokens=200)
            want = ask(c.workers[0].http, text, fields)
            live = [w for w in c.workers[1:] if w.process.poll() is None]
            before = {w.name: cpu_ns(w) for w in live}

            def kill_the_one_that_answers(n):
                if n == 8:
                    for w in live:
                        w.kill(signal.SIGSTOP)
                    max(live, key=lambda w: cpu_ns(w) - before[w.name]).kill()
                    for w in live:
                        if w.process.poll() is None:
                            w.kill(signal.SIGCONT)

            n_before = c.routers[0].metric("baton_router_redispatched_total")
            same(stream(router, text, fields, kill_the_one_that_answers), want)
            n_hit[i] += c.routers[0].metric("baton_router_redispatched_total") - n_before
            c.worker("decode")
            c.wait_ready(prefill=1, decode=2)
        assert all(n_hit.values()), ("nobody was hit", n_hit)
        c.assert_quiet()


if __name__ == "__main__":
    main([the_same_draws_however_served, drafts_change_no_draw, ends_may_be_ignored, min_tokens_delays_the_end,
          a_worker_dies_in_mid_answer])
