# SPDX-License-Identifier: Apache-2.0
"""batonctl drain --move: the running answers of a worker go on at others, with the same bits, and the drain is short."""
import http.client
import json
import os
import subprocess
import threading
import time

from cluster import BUILD, Cluster, main, patience

PROMPT = "The relay hands the baton over: who reads the prompt, who writes the answer, and what moves between the two? "


def ctl(daemon, *arguments):
    return subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", daemon.cluster.key, "--admin",
                           f"127.0.0.1:{daemon.admin}", *arguments], capture_output=True, text=True, timeout=patience(60))


def answers_of(c, texts, n_tokens, after):
    """Streams answers of n_tokens to all texts at once; calls `after` when each has begun.  Returns the answers' texts."""
    answers, begun, errors = [""] * len(texts), [threading.Event() for _ in texts], []

    def read(i):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", c.routers[0].http, timeout=patience(60))
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "model": "baton-demo", "max_tokens": n_tokens, "ignore_eos": True, "seed": i, "stream": True,
                "messages": [{"role": "user", "content": texts[i]}]}))
            for line in connection.getresponse():
                data = line[6:].strip() if line.startswith(b"data: ") else b"[DONE]"
                if data != b"[DONE]":
                    choice = json.loads(data)["choices"][0]
                    answers[i] += choice["delta"].get("content") or ""
                    answers[i] += f"[{choice['finish_reason']}]" if choice["finish_reason"] else ""
                    if answers[i]:
                        begun[i].set()
            connection.close()
        except Exception as e:  # noqa: B902 - the caller gets it
            errors.append(e)
        begun[i].set()

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for event in begun:
        assert event.wait(patience(60))
    after()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert all(answer.endswith("[length]") for answer in answers), answers
    return answers


def running_answers_move():
    """Long answers on a worker that is drained go on at the other one."""
    texts = [f"Question {i}. {PROMPT * 2}" for i in range(6)]
    with Cluster() as c:
        c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        n_tokens, want, took_s = 200, [], 0
        while took_s < 2 and n_tokens < 6400: # long enough for two commands of batonctl
            n_tokens *= 2
            began = time.monotonic()
            want = answers_of(c, texts, n_tokens, lambda: None)
            took_s = time.monotonic() - began
        first = c.workers[0]
        second = c.worker("decode")
        took = []

        def move():
            # the second worker gets nothing before the first one drains: it is made ready now
            began = time.monotonic()
            said = ctl(first, "drain", "--move", "--wait")
            took.append(time.monotonic() - began)
            assert said.returncode == 0, said.stderr

        c.wait_ready(decode=2)
        assert ctl(second, "drain").returncode == 0
        until = time.monotonic() + patience(10)
        while next(w for w in c.routers[0].status()["workers"] if w["node"] == second.name)["usable"]:
            assert time.monotonic() < until
            time.sleep(0.02)

        def both():
            assert ctl(second, "undrain").returncode == 0
            until = time.monotonic() + patience(10)
            while not next(w for w in c.routers[0].status()["workers"] if w["node"] == second.name)["usable"]:
                assert time.monotonic() < until
                time.sleep(0.01)
            move()

        got = answers_of(c, texts, n_tokens, both)
        assert got == want
        assert c.routers[0].metric("baton_router_redispatched_total") > 0
        assert took[0] < patience(10), took
        assert first.status()["tasks"] == 0
        c.assert_quiet()


def a_router_moves_nothing():
    with Cluster() as c:
        router = c.router()
        until = time.monotonic() + patience(10)
        while ctl(router, "status").returncode != 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        said = ctl(router, "drain", "--move")
        assert said.returncode != 0 and "a worker's" in said.stderr, said.stderr


main([running_answers_move, a_router_moves_nothing])
