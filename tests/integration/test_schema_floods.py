# SPDX-License-Identifier: Apache-2.0
"""Expensive schemas through real daemons.  Each is refused by name or enforced, each request's work is bounded, and
other requests do not wait for it."""
import itertools
import json
import os
import re
import statistics
import subprocess
import threading
import time

from cluster import BUILD, Cluster, fetch, main, patience

N_TOOLS = 300
ATTACKERS = 4


def tool(name, pattern):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    return {"name": name, "strict": True, "input_schema": schema}


def post(port, body, key=None):
    headers = {"content-type": "application/json", **({"x-api-key": key} if key else {})}
    status, _, answer = fetch(port, "POST", "/v1/messages", body, headers)
    return status, json.loads(answer)


def same_everywhere(c, body):
    """The same verdict from the router and from each worker's own endpoint; returns it with the longest time."""
    verdicts, longest = [], 0
    for daemon in [c.routers[0]] + [w for w in c.workers if w.role == "decode"]:
        began = time.monotonic()
        status, answer = post(daemon.http, body)
        longest = max(longest, time.monotonic() - began)
        verdicts.append((status, answer.get("error", {}).get("message")))
    assert len(set(verdicts)) == 1, verdicts
    return verdicts[0], longest


def many_strict_tools_are_one_work():
    with Cluster() as c:
        c.router()
        for role in ("prefill", "decode"):
            c.worker(role, model__context="4096")  # most of these prompts are longer: their time is the schemas' alone
        c.wait_ready(prefill=1, decode=1)
        for repeat in (12, 30, 50):
            for differ in (False, True):
                tools = [tool(f"t{i}", "^(x{1,%d}){1,%d}%s$" % (repeat, repeat, "y{%d}" % i if differ else ""))
                         for i in range(N_TOOLS)]
                (status, message), seconds = same_everywhere(c, c.body("Hello.", tools=tools, max_tokens=2))
                print(f"{N_TOOLS} tools of {repeat}, differ: {differ}: {status} {message}, {seconds * 1e3:.0f} ms")
                assert seconds < patience(15), seconds
                assert status in (200, 400), (status, message)
                if status == 400:
                    assert re.match(r"tools\.\d+\.input_schema\.properties\.a\.pattern: too complex$", message) or \
                        message.startswith("prompt is too long"), message  # the schemas are valid, but longer than the model's context
                if repeat == 50 or (repeat == 30 and differ):
                    assert message.startswith("tools."), message
                else:
                    assert differ or not message.startswith("tools."), message
        (status, message), _ = same_everywhere(c, c.body("Hello.", tools=[tool(f"t{i}", "^(x{1,30}){1,30}$") for i in range(20)],
                                                         max_tokens=2, tool_choice={"type": "any"}))
        assert status == 200, message
        names = {"type": "object", "properties": {f"p{i}": {} for i in range(20000)}, "required": [f"p{i}" for i in range(20000)]}
        (status, message), seconds = same_everywhere(c, c.body("Hello.", max_tokens=2, tools=[
            {"name": "f", "strict": True, "input_schema": names}]))
        print(f"20000 properties: {status} {message}, {seconds * 1e3:.0f} ms")
        assert seconds < patience(15) and (status == 200 or message.startswith("tools.0.input_schema")), (status, message)


class Flood:
    """Clients that send expensive requests, each a different one, until the end."""

    def __init__(self, c, key=None):
        self.c, self.key, self.numbers, self.n, self.is_over = c, key, itertools.count(), 0, False
        self.statuses = {}
        self.threads = [threading.Thread(target=self.run) for _ in range(ATTACKERS)]

    def run(self):
        while not self.is_over:
            number = next(self.numbers)
            tools = [tool(f"t{i}", "^(x{1,50}){1,50}y{%d}$" % (number * N_TOOLS + i)) for i in range(N_TOOLS)]
            status, _ = post(self.c.routers[0].http, self.c.body("Hello.", tools=tools, max_tokens=1), self.key)
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, fault, *_):
        until = time.monotonic() + patience(30)
        while fault is None and sum(self.statuses.values()) <= 2 * ATTACKERS and time.monotonic() < until:
            time.sleep(0.05)  # slow daemons have not answered each attacker twice yet
        self.is_over = True
        for thread in self.threads:
            thread.join()


def times(n, ask):
    taken = []
    for i in range(n):
        began = time.monotonic()
        ask(i)
        taken.append(time.monotonic() - began)
    return statistics.median(taken), max(taken)


def honest(c, key=None):
    def ask(i):
        status, answer = post(c.routers[0].http, c.body(f"Hello {i}.", max_tokens=1), key)
        assert status == 200, answer
    return ask


def alive(c):
    """A request that needs only the loop."""
    return lambda i: fetch(c.routers[0].http, "GET", "/livez")


def honest_requests_do_not_wait_for_a_flood():
    with Cluster() as c:
        c.relay()
        before, _ = times(40, honest(c))
        loop_before, _ = times(100, alive(c))
        with Flood(c) as flood:
            during, worst = times(40, honest(c))
            loop_during, loop_worst = times(200, alive(c))
        print(f"p50 {before * 1e3:.1f} ms, beside {ATTACKERS} attackers {during * 1e3:.1f} ms (worst {worst * 1e3:.0f}); "
              f"loop {loop_before * 1e3:.2f}, {loop_during * 1e3:.2f} ms (worst {loop_worst * 1e3:.1f}); {flood.statuses}")
        assert sum(flood.statuses.values()) > 2 * ATTACKERS and set(flood.statuses) <= {400, 429, 529}, flood.statuses
        # it was 3.7 s; the attackers share the processors with all daemons here, and with this program
        assert during < 4 * before + patience(0.1), (before, during)
        assert loop_during < patience(0.05), (loop_before, loop_during)


def new_key(c, path, tenant):
    text = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", tenant], check=True, capture_output=True, text=True)
    text = text.stdout + text.stderr
    with open(path, "a") as f:
        f.write(next(line for line in text.splitlines() if re.match(r"[0-9a-f]{64} ", line)) + "\n")
    os.chmod(path, 0o600)
    return re.search(r"\bsk-[A-Za-z0-9_-]+", text).group(0)


def schemas_of_another_tenant_do_not_wait_either():
    """Tenants take turns on a job thread, so a tenant with rare requests is next."""
    with Cluster() as c:
        path = os.path.join(c.dir, "keys")
        ann, bob = new_key(c, path, "ann"), new_key(c, path, "bob")
        c.relay(http__api_keys=path)

        def ask(i):
            schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": i}}, "required": ["n"]}
            status, answer = post(c.routers[0].http, c.body("Hello.", max_tokens=40, output_config={
                "format": {"type": "json_schema", "schema": schema}}), bob)
            assert status == 200, answer
        before, _ = times(10, ask)
        with Flood(c, ann) as flood:
            during, worst = times(10, lambda i: ask(1000 + i))
        print(f"p50 {before * 1e3:.1f} ms, beside another tenant's flood {during * 1e3:.1f} ms (worst {worst * 1e3:.0f}); "
              f"{flood.statuses}")
        assert during < 4 * before + patience(0.4), (before, during, worst)


def a_tool_without_parameters_gets_none():
    with Cluster() as c:
        c.relay()
        for schema in ({"type": "object", "properties": {}}, {"type": "object"},
                       {"type": "object", "properties": {}, "required": []}):
            for fields in ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "now"}}):
                tools = [{"name": "now", "description": "Tells the time in a city.", "input_schema": schema}]
                for seed in range(3):
                    status, answer = post(c.routers[0].http, c.body("What time is it in Paris?", tools=tools, temperature=2,
                                                                    seed=seed, max_tokens=100, **fields))
                    calls = [b for b in answer["content"] if b["type"] == "tool_use"]
                    assert status == 200 and calls and all(b["input"] == {} for b in calls), answer


if __name__ == "__main__":
    main([many_strict_tools_are_one_work, honest_requests_do_not_wait_for_a_flood, schemas_of_another_tenant_do_not_wait_either,
          a_tool_without_parameters_gets_none])
