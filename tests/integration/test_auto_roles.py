# SPDX-License-Identifier: Apache-2.0
"""placement.roles = auto: the router changes workers' roles as the load of the phases changes, and no request notices."""
import threading
import time

from cluster import Cluster, fetch, main, patience

WORKER = {"engine__kind": "sim", "engine__sim_step": "4ms", "engine__sim_prefill_token": "100us", "engine__sim_decode_seq": "100us",
          "engine__sim_answer_tokens": "1000000", "sched__speculate": "off", "sched__max_seqs": "12", "kv__memory": "256MiB"}
LONG = " ".join(f"word {i}" for i in range(400))


def counts(router):
    roles = [w["role"] for w in router.status()["workers"]]
    return roles.count("prefill"), roles.count("decode")


class Load:
    """Clients that send one request after another until stopped."""

    def __init__(self, cluster, n, text, tokens):
        self.cluster, self.text, self.tokens, self.is_over, self.answers = cluster, text, tokens, threading.Event(), []
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def client(self, i):
        turn = 0
        while not self.is_over.is_set():
            self.answers.append(self.cluster.ask(f"{i}.{turn} {self.text}", max_tokens=self.tokens))
            turn += 1

    def until(self, router, is_reached):
        limit, began = time.monotonic() + patience(20), time.monotonic()
        while not is_reached(*counts(router)):
            assert time.monotonic() < limit, (counts(router), router.status()["roles"])
            time.sleep(0.05)
        return time.monotonic() - began

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        assert self.answers and all(a.is_whole and not a.error for a in self.answers), [a.error for a in self.answers]
        assert all(a.usage["output_tokens"] <= self.tokens for a in self.answers)
        return len(self.answers)


def start(c, **router):
    c.router(placement__roles_period="2s", queue__timeout="60s", queue__max="1000", http__max_per_address="1000", **router)
    for role in ("prefill", "prefill", "decode", "decode"):
        c.worker(role, **WORKER)
    c.wait_ready(prefill=2, decode=2)
    return c.routers[0]


def roles_follow_the_load():
    with Cluster() as c:
        router = start(c, placement__roles="auto")
        assert counts(router) == (2, 2)
        prompts = Load(c, 24, LONG, 4)
        first = prompts.until(router, lambda p, d: p == 3)
        n_prompts = prompts.stop()
        answers = Load(c, 40, "short", 150)
        second = answers.until(router, lambda p, d: d == 3)
        n_answers = answers.stop()
        status = router.status()
        assert status["redispatched"] == 0, status
        changes = router.metric("baton_roles_changes_total")
        assert changes >= 3, changes
        one = status["roles"][0]
        assert one["auto"] and one["wanted_prefill"] >= 1 and one["wanted_decode"] >= 2, one
        assert router.metric('baton_wanted_workers{role="decode",model="%s"}' % one["model"]) == one["wanted_decode"]
        text = fetch(router.admin, "GET", "/metrics", headers={"authorization": "Bearer " + c.admin_token()})[2].decode()
        assert sum(line.startswith("baton_roles_reason{") and line.endswith(" 1") for line in text.splitlines()) == 1, text
        c.assert_quiet()
        print(f"to prefill after {first:.1f} s, to decode after {second:.1f} s; {n_prompts} + {n_answers} requests, {changes:.0f} changes")


def fixed_roles_stay():
    with Cluster() as c:
        router = start(c)
        prompts = Load(c, 24, LONG, 4)
        limit = time.monotonic() + patience(20)
        while router.status()["roles"][0].get("wanted_prefill", 0) < 3:  # it reports the numbers that it would choose
            assert time.monotonic() < limit, router.status()["roles"]
            time.sleep(0.05)
        one = router.status()["roles"][0]
        assert not one["auto"] and one["reason"] == "prefill has less room", one
        prompts.stop()
        assert counts(router) == (2, 2) and router.metric("baton_roles_changes_total") == 0


main([roles_follow_the_load, fixed_roles_stay])
