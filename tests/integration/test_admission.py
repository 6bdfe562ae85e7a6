#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Admission by prediction with real daemons.  Beyond its capacity the router refuses at once, before any work, with a retry
time.  It answers admitted requests, and never refuses one while a worker is idle.  The workers run the simulated engine with
steps so slow that the machine's speed does not matter."""
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, fetch, in_threads, main, patience  # noqa: E402

SIM = {"engine__kind": "sim", "engine__sim_answer_tokens": "100000", "sched__speculate": "off"}
WORDS = "The prefill worker reads the prompt and the decode worker writes the answer. " * 10


class Asked(threading.Thread):
    """One request of its own prompt: status, answer, header fields and how long it took."""

    def __init__(self, c, i, max_tokens=4):
        super().__init__()
        self.c, self.i, self.max_tokens = c, i, max_tokens
        self.start()

    def run(self):
        began = time.monotonic()
        self.status, self.fields, body = fetch(self.c.routers[0].http, "POST", "/v1/messages",
                                               self.c.body(f"{self.i} {WORDS}", max_tokens=self.max_tokens),
                                               {"content-type": "application/json"})
        self.ended = time.monotonic()
        self.seconds, self.answer = self.ended - began, json.loads(body)


def all_of(asked):
    for one in asked:
        one.join()
    return [one for one in asked if one.status == 200], [one for one in asked if one.status != 200]


def assert_refused(refused):
    for one in refused:
        assert one.status == 529, (one.status, one.answer)
        assert one.answer["error"]["type"] == "overloaded_error", one.answer
        assert "predicted" in one.answer["error"]["message"], one.answer
        assert 1 <= int(one.fields["retry-after"]) <= 60, one.fields



def n_running(c):
    return sum(worker.status()["running"] for worker in c.workers)


def n_unread(c):
    return sum(worker.status()["queued_prefill_tokens"] + worker.status()["waiting"] for worker in c.workers)


def wait_until(holds, what):
    until = time.monotonic() + patience(20)
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)
    time.sleep(1)  # some heartbeats


def a_burst_is_refused_at_once():
    """A prompt takes half a second or more, the limit is three times that: of thirty at once most are refused, long before the limit."""
    with Cluster() as c:
        c.router(slo__ttft="1500ms", slo__itl="1s", placement__local_prefill_tokens="0")
        for role in ("prefill", "decode"):
            c.worker(role, **SIM, engine__sim_prefill_token="3ms", engine__sim_step="1ms", engine__sim_decode_seq="1ms")
        c.wait_ready(prefill=1, decode=1)
        c.ask("0 " + WORDS, max_tokens=4)
        asked = []
        for i in range(1, 31):  # in order, so that each sees the ones before
            asked.append(Asked(c, i))
            time.sleep(0.01)
        good, refused = all_of(asked)
        assert len(good) >= 2 and len(refused) >= 10, (len(good), len(refused))
        assert_refused(refused)
        soonest = min(one.seconds for one in good)
        took = sorted(one.seconds for one in refused)
        print(f"   {len(good)} answered, {len(refused)} refused within {took[-1] * 1000:.0f} ms "
              f"(half within {took[len(took) // 2] * 1000:.0f} ms)")
        assert took[len(took) // 2] < min(soonest, patience(0.5)), (soonest, took)
        router = c.routers[0]
        assert router.metric("baton_router_refusals_total") == len(refused) == router.metric("baton_router_refused_total")
        assert router.metric("baton_router_ttft_prediction_error_seconds_count") == len(good) + 1
        assert c.ask("99 " + WORDS, max_tokens=4).is_whole  # it is quiet again
        c.assert_quiet()


def a_full_decode_pool_costs_no_prefill():
    """Both seats are taken for long: no worker reads a refused request."""
    with Cluster() as c:
        c.router(slo__ttft="1s", slo__itl="1s", placement__local_prefill_tokens="0")
        c.worker("prefill", **SIM, engine__sim_prefill_token="100us", engine__sim_step="100ms", sched__max_seqs="1")
        c.worker("decode", **SIM, engine__sim_prefill_token="100us", engine__sim_step="100ms", sched__max_seqs="2")
        c.wait_ready(prefill=1, decode=1)
        streams = []
        for i in range(3):  # two seats there; the third: the prefill worker idles again, and takes it
            streams.append(c.stream(f"{i} {WORDS}", max_tokens=4000))
            assert streams[i].status == 200, (i, streams[i].response.read())
            next(iter(streams[i]))
            wait_until(lambda n=i + 1: n_running(c) == n and n_unread(c) == 0, "the prompt is read and reported")
        before = c.routers[0].metric("baton_router_handed_off_total") + c.routers[0].metric("baton_router_local_total")
        good, refused = all_of([Asked(c, i) for i in range(10, 16)])
        assert not good and len(refused) == 6
        assert_refused(refused)
        assert c.routers[0].metric("baton_router_handed_off_total") + c.routers[0].metric("baton_router_local_total") == before
        for stream in streams:
            stream.close()
        c.assert_quiet()


def a_client_that_comes_back_when_told_is_served():
    """Four seats of two seconds: two answers a second.  Of twenty requests at once most are refused, and each client comes
    back when its retry-after says."""
    with Cluster() as c:
        c.router(slo__ttft="1s", slo__itl="1s", placement__local_prefill_tokens="0")
        for role in ("prefill", "decode"):
            c.worker(role, **SIM, engine__sim_prefill_token="100us", engine__sim_step="100ms", engine__sim_decode_seq="0", sched__max_seqs="4")
        c.wait_ready(prefill=1, decode=1)
        for i in range(4):  # so that the length of answers is known
            c.ask(f"{i} {WORDS}", max_tokens=20)
        wait_until(lambda: n_running(c) == 0, "the answers have ended")
        asked = [Asked(c, i, 20) for i in range(10, 30)]
        good, refused = all_of(asked)
        assert len(refused) >= 8, len(refused)
        assert_refused(refused)
        told = sorted(int(one.fields["retry-after"]) for one in refused)
        assert told[-1] >= 3, told
        again = in_threads([lambda one=one: come_back(c, one) for one in refused])
        n_served = sum(one.status == 200 for one in again)
        print(f"   {len(good)} answered, {len(refused)} told to come back after {told} s: {n_served} of them are served then")
        assert n_served >= 0.8 * len(refused), (n_served, told)
        c.assert_quiet()


def come_back(c, refused):
    time.sleep(max(0, refused.ended + int(refused.fields["retry-after"]) - time.monotonic()))
    again = Asked(c, refused.i + 100, 20)
    again.join()
    return again


def overdue_answers_refuse_at_once():
    """Both seats are held for ten seconds by answers that are far longer than those before.  A client is refused at once, not
    after the objective, and comes back when its retry-after says: a few times, until it is served."""
    with Cluster() as c:
        c.router(slo__ttft="1s", slo__itl="1s")
        c.worker("decode", **SIM, engine__sim_prefill_token="100us", engine__sim_step="10ms", engine__sim_decode_seq="0", sched__max_seqs="2")
        c.wait_ready(decode=1)
        for i in range(6):
            c.ask(f"{i} {WORDS}", max_tokens=8)
        streams = [c.stream(f"{i} {WORDS}", max_tokens=1000) for i in range(10, 12)]
        for stream in streams:
            assert stream.status == 200, stream.response.read()
            for _ in range(200):
                next(iter(stream))
        asked = [Asked(c, 20, 8)]
        asked[0].join()
        while asked[-1].status != 200 and len(asked) < 8:
            asked.append(come_back(c, asked[-1]))
        refused = asked[:-1]
        took = [round(one.seconds * 1000) for one in refused]
        print(f"   refused within {took} ms, told to come back after {[one.fields['retry-after'] for one in refused]} s, then served")
        assert asked[-1].status == 200 and 1 <= len(refused) <= 5, took
        assert_refused(refused)
        assert sorted(took)[len(took) // 2] < min(500, 1000 * patience(0.1)), took
        for stream in streams:
            stream.close()
        c.assert_quiet()


def an_idle_worker_takes_what_is_late_in_any_case():
    """The objectives are out of reach. An idle worker still answers one request at a time."""
    with Cluster() as c:
        c.router(slo__ttft="1ms", slo__itl="1ms")
        c.worker("prefill", **SIM, engine__sim_prefill_token="100us", engine__sim_step="10ms")
        c.worker("decode", **SIM, engine__sim_prefill_token="100us", engine__sim_step="10ms")
        c.wait_ready(prefill=1, decode=1)
        for i in range(8):
            assert c.ask(f"{i} {WORDS}", max_tokens=8).is_whole
        assert c.routers[0].metric("baton_router_refused_total") == 0
        c.assert_quiet()


def ask_as(c, key, header, tier):
    """The class that a request was placed in."""
    names = ("default", "high", "low")
    before = {name: c.routers[0].metric(f'baton_router_placed_total{{class="{name}"}}') for name in names}
    body = c.body("hello", max_tokens=2, **({"service_tier": tier} if tier else {}))
    headers = {"content-type": "application/json", "x-api-key": key, **({"baton-class": header} if header else {})}
    status, _, answer = fetch(c.routers[0].http, "POST", "/v1/messages", body, headers)
    assert status == 200, (status, answer)
    now = [name for name in names if c.routers[0].metric(f'baton_router_placed_total{{class="{name}"}}') > before[name]]
    assert len(now) == 1, now
    return now[0]


def a_key_bounds_the_class():
    with Cluster() as c:
        path, keys, placed = os.path.join(c.dir, "keys"), {}, []
        with open(path, "w") as f:
            for name, rules in (("high", ["class=high"]), ("low", ["class=low"]), ("none", [])):
                out = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", name, *rules], check=True,
                                     capture_output=True, text=True).stdout.splitlines()
                keys[name] = out[0]
                f.write(out[1] + "\n")
        os.chmod(path, 0o600)
        c.router(http__api_keys=path, classes__class=["high priority=10 weight=4", "low share=50%"], log__format="json",
                 queue__timeout="300ms")
        worker = c.worker("decode", **SIM)
        c.wait_ready(decode=1)
        for key, header, tier, want in (("none", None, None, "default"), ("none", "high", None, "default"),
                                        ("none", "low", None, "low"), ("none", None, "low", "low"), ("none", "x" * 500, "auto", "default"),
                                        ("high", None, None, "high"), ("high", "low", "high", "low"), ("high", "default", None, "default"),
                                        ("low", "high", "high", "low"), ("low", None, "standard_only", "low")):
            got = ask_as(c, keys[key], header, tier)
            assert got == want, (key, header, tier, got, want)
            placed.append(want)
        c.assert_quiet()
        worker.stop()  # no worker is left: a refused request is of its class too
        status, _, answer = fetch(c.routers[0].http, "POST", "/v1/messages", c.body("hello", max_tokens=2),
                                  {"content-type": "application/json", "x-api-key": keys["low"]})
        assert status in (503, 529), (status, answer)
        placed.append("low")
        c.routers[0].stop()
        with open(c.routers[0].log_path, errors="replace") as f:
            logged = [line["class"] for line in map(json.loads, filter(lambda text: text.startswith("{"), f)) if line["event"] == "access"]
        assert logged == placed, logged


if __name__ == "__main__":
    main([a_burst_is_refused_at_once, a_full_decode_pool_costs_no_prefill, a_client_that_comes_back_when_told_is_served, overdue_answers_refuse_at_once, an_idle_worker_takes_what_is_late_in_any_case,
          a_key_bounds_the_class])
