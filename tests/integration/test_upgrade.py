# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade under load, with two builds: routers and workers are replaced one after another, from the build in
BATON_OLD_BUILD to this one.  Each answer is whole and has the bits of a run without a change.  Skipped without an old build."""
import http.client
import json
import os
import sys
import threading
import time

from cluster import Cluster, main, patience

OLD = os.environ.get("BATON_OLD_BUILD", "")
TEXTS = [f"Question {i}. The relay hands the baton over: who reads the prompt, who writes the answer? " * (1 + i % 3) for i in range(6)]


def ask(port, i):
    """One stream: its text, or None if the router is not ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(60))
    said, refusal = "", None
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "model": "baton-demo", "max_tokens": 60, "ignore_eos": True, "seed": i, "stream": True,
            "messages": [{"role": "user", "content": TEXTS[i]}]}))
        response = connection.getresponse()
    except (ConnectionRefusedError, http.client.RemoteDisconnected, ConnectionResetError):
        connection.close()
        return None
    if response.status == 503 and b"cannot be served yet" in (refusal := response.read()):
        connection.close()
        return None  # it has just started: /readyz says so too
    assert response.status == 200, (response.status, refusal)
    for line in response:
        assert b'"error"' not in line, line
        data = line[6:].strip() if line.startswith(b"data: ") else b""
        if data.startswith(b"{"):
            choice = json.loads(data)["choices"][0]
            said += (choice["delta"].get("content") or "") + (f"[{choice['finish_reason']}]" if choice["finish_reason"] else "")
    connection.close()
    assert said.endswith("[length]"), said
    return said


class Load:
    """Asks without a pause; a router that stops is left for the other one, as by a balancer that looks at /readyz."""

    def __init__(self, c, want):
        self.c, self.want, self.n, self.errors, self.is_over = c, want, 0, [], False
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, at):
        while not self.is_over and not self.errors:
            i = (self.n + at) % len(TEXTS)
            try:
                said = None
                for router in (self.c.routers[at % 2], self.c.routers[1 - at % 2]):
                    said = said or ask(router.http, i)
                assert said in (None, self.want[i]), (said, self.want[i])
                self.n += said is not None
            except Exception as e:  # noqa: B902 - the test reports it
                self.errors.append(e)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors[0]


def wait_all(c, prefill, decode):
    for _ in c.routers:
        c.wait_ready(prefill=prefill, decode=decode)
        c.routers.append(c.routers.pop(0))


def roll(from_build, to_build):
    with Cluster() as c:
        c.build = from_build
        c.router(stop__lame_duck="500ms", stop__drain_timeout="20s")
        c.router(stop__lame_duck="500ms", stop__drain_timeout="20s")
        links = [f"127.0.0.1:{r.link}" for r in c.routers]
        for role in ("prefill", "prefill", "decode", "decode"):
            c.worker(role, link__routers=links, stop__lame_duck="500ms", stop__drain_timeout="20s")
        wait_all(c, 2, 2)
        want = [ask(c.routers[0].http, i) for i in range(len(TEXTS))]
        load = Load(c, want)
        c.build = to_build
        for daemon in [c.routers[0], *c.workers, c.routers[1]]:
            assert daemon.stop() == 0
            daemon.start()
            wait_all(c, 2, 2)
            assert not load.errors, load.errors[0]
        load.end()
        print(f"  {load.n} answers while six daemons were replaced", flush=True)
        c.assert_quiet()


def an_upgrade_changes_no_answer():
    roll(OLD, None)


def a_step_back_changes_no_answer():
    roll(None, OLD)


if not OLD:
    print("BATON_OLD_BUILD names no build of an earlier version")
    sys.exit(77)
main([an_upgrade_changes_no_answer, a_step_back_changes_no_answer])
