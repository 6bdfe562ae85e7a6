#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""batonctl why and trace: a placement's candidates with their estimates, and where one request's time went, as the router
and its workers report it."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, Stream, fetch, main, patience  # noqa: E402

TEXT = "A relay race has four runners, and each of them carries the baton for a hundred metres. " * 4


def ctl(c, *arguments, fails=False):
    line = [os.path.join(BUILD, "batonctl"), "-a", f"127.0.0.1:{c.routers[0].admin}", "-k", c.key, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=patience(20))
    assert (done.returncode != 0) == fails, (done.returncode, done.stdout, done.stderr)
    return done.stderr if fails else done.stdout


def ask(c, text, **fields):
    stream = Stream(c.routers[0].http, c.body(text, **{"max_tokens": 12, **fields}))
    assert stream.status == 200, stream.response.read()
    assert stream.finish().is_whole
    return stream.response.headers["request-id"]


def assert_fits(text):
    assert all(len(line) <= 80 and line.isprintable() for line in text.splitlines()), text


def assert_costs_agree(d):
    """The chosen workers' costs are what the choice compared."""
    shown = sum(r["cost_ms"] for r in d["candidates"] if r["chosen"])
    assert abs(shown - d["cost_ms"]) < 0.01 and d["cost_ms"] > 0, (shown, d)


def a_pair_is_explained():
    with Cluster() as c:
        c.relay()
        c.worker("decode")
        c.worker("prefill")
        c.wait_ready(prefill=2, decode=2)
        time.sleep(0.3)  # the router looks at its list of workers every 100 ms
        request = ask(c, TEXT)
        answer = json.loads(ctl(c, "why", "--json", request))
        assert answer["request"] == request and len(answer["decisions"]) == 1, answer
        d = answer["decisions"][0]
        rows = {r["node"]: r for r in d["candidates"]}
        assert set(rows) == {"prefill0", "prefill1", "decode0", "decode1"}, rows
        chosen = [r for r in d["candidates"] if r["chosen"]]
        assert sorted(r["role"] for r in chosen) == ["decode", "prefill"], chosen
        assert all(r["prompt_ms"] > 0 and r["itl_ms"] > 0 and r["cost_ms"] >= 0 for r in d["candidates"]), rows
        assert_costs_agree(d)
        assert d["uncached_tokens"] == d["prompt_tokens"] > 16 and d["refused"] == "" and d["over"], d
        text = ctl(c, "why", request)
        assert_fits(text)
        assert sum(line.startswith("  > ") for line in text.splitlines()) == 2, text

        # The same prompt again: a worker has cached it, and the answer says how much of it.
        d = json.loads(ctl(c, "why", "--json", ask(c, TEXT)))["decisions"][0]
        assert d["uncached_tokens"] < d["prompt_tokens"] and max(r["cached_tokens"] for r in d["candidates"]) > 0, d
        assert_costs_agree(d)

        # A prompt this short is computed where it decodes: one worker alone.
        d = json.loads(ctl(c, "why", "--json", ask(c, "Go.")))["decisions"][0]
        assert [r["role"] for r in d["candidates"] if r["chosen"]] == ["decode"], d
        assert_costs_agree(d)
        print(text)

        # A draining worker is named with the reason.
        fetch(c.daemon("decode1").admin, "POST", "/admin/drain", headers={"authorization": f"Bearer {c.admin_token()}"})
        c.wait_ready(prefill=2, decode=1)
        d = json.loads(ctl(c, "why", "--json", ask(c, "another " + TEXT)))["decisions"][0]
        assert next(r for r in d["candidates"] if r["node"] == "decode1")["why_not"] == "it is draining", d


def the_time_is_drawn():
    with Cluster() as c:
        c.relay()
        request = ask(c, TEXT)
        end = time.monotonic() + patience(10)
        while True:  # a worker's last message may come after the answer's end
            d = json.loads(ctl(c, "trace", "--json", request))["decisions"][0]
            if len(d["workers"]) == 2 or time.monotonic() > end:
                break
        prefill, decode = sorted(d["workers"], key=lambda w: w["role"] != "prefill")
        assert (prefill["node"], decode["node"]) == ("prefill0", "decode0"), d
        assert 0 <= d["submitted_us"] <= d["decided_us"] <= d["first_us"] <= d["ended_us"], d
        assert d["decided_us"] <= prefill["submit_us"] and prefill["submit_us"] + prefill["admitted_us"] <= d["first_us"], d
        assert 0 < prefill["admitted_us"] <= prefill["first_us"], prefill
        assert 0 < decode["transfer_began_us"] <= decode["transfer_ended_us"] <= decode["ended_us"], decode
        assert decode["transfer_bytes"] > 0 and decode["submit_us"] + decode["ended_us"] <= d["ended_us"] + 1000, d
        text = ctl(c, "trace", request)
        assert_fits(text)
        for part in ("parse, tokenise", "dispatch", "queue", "compute prompt", "KV send", "KV receive", "decode tokens"):
            assert part in text, text
        print(text)
        assert "no such request" in ctl(c, "trace", "req_unknown", fails=True)
        assert "request's id" in ctl(c, "why", "../status", fails=True)


def a_refusal_is_explained():
    with Cluster() as c:
        c.relay(queue__max="0", queue__timeout="100ms")
        fetch(c.daemon("decode0").admin, "POST", "/admin/drain", headers={"authorization": f"Bearer {c.admin_token()}"})
        fetch(c.daemon("prefill0").admin, "POST", "/admin/drain", headers={"authorization": f"Bearer {c.admin_token()}"})
        c.wait_ready()
        status, headers, _ = fetch(c.routers[0].http, "POST", "/v1/messages", c.body(TEXT))
        assert status in (503, 529), status
        d = json.loads(ctl(c, "why", "--json", headers["request-id"]))["decisions"][0]
        assert d["refused"] == "no_worker" and {r["why_not"] for r in d["candidates"]} == {"it is draining"}, d
        text = ctl(c, "why", headers["request-id"])
        assert "refused: no_worker" in text and "it is draining" in text, text
        assert "refused" in ctl(c, "trace", headers["request-id"])


def the_costs_of_a_refusal_are_times():
    """Workers that are full have costs of seconds, not of the clock."""
    with Cluster() as c:
        c.router(slo__ttft="1s", slo__itl="1s", placement__local_prefill_tokens="0", queue__max="0")
        times = {"engine__kind": "sim", "engine__sim_answer_tokens": "100000", "sched__speculate": "off",
                 "engine__sim_prefill_token": "2ms", "engine__sim_step": "100ms"}
        c.worker("prefill", **times)
        c.worker("decode", **times, sched__max_seqs="1")
        c.wait_ready(prefill=1, decode=1)
        ask(c, "warm " + TEXT)
        first = Stream(c.routers[0].http, c.body(TEXT, max_tokens=3000))
        assert first.status == 200
        until = time.monotonic() + patience(10)
        while True:
            status, headers, _ = fetch(c.routers[0].http, "POST", "/v1/messages", c.body("another " + TEXT, max_tokens=2))
            if status != 200:
                break
            assert time.monotonic() < until
        d = json.loads(ctl(c, "why", "--json", headers["request-id"]))["decisions"][0]
        costs = [r["cost_ms"] for r in d["candidates"] if not r["why_not"]]
        assert d["refused"] and costs and all(0 <= cost < 600e3 for cost in costs), d


if __name__ == "__main__":
    main([a_pair_is_explained, the_time_is_drawn, a_refusal_is_explained, the_costs_of_a_refusal_are_times])
