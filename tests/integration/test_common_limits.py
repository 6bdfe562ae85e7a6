#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits of API keys that several routers keep together.  Two and three routers over the same workers admit one limit.  A
killed router's share returns, and a restarted router knows how full the limits are.  Real daemons, simulated engines."""
import http.client
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, main, patience  # noqa: E402
from resume_client import Client, messages  # noqa: E402

RPM, TPM, WORDS, ANSWER = 240, 12000, 20, 40


def new_keys(cluster, **rules):
    """A key file with a key of each tenant; returns its path and the keys."""
    path, keys = os.path.join(cluster.dir, "keys"), {}
    with open(path, "w") as f:
        for tenant, rule in rules.items():
            key, line = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", tenant, rule], check=True,
                                       capture_output=True, text=True).stdout.splitlines()[:2]
            keys[tenant] = key
            f.write(line + "\n")
    os.chmod(path, 0o600)
    return path, keys


class Flood:
    """Requests of one key at one router, one after another, until the test stops it."""

    def __init__(self, port, key, path):
        self.port, self.key, self.path = port, key, path
        self.n_admitted = self.n_refused = self.n_tokens = 0
        self.is_over, self.fault = False, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def ask(self, connection, n):
        body = {"model": "baton-demo", "messages": [{"role": "user", "content": f"{n} {self.port} " + "word " * WORDS}]}
        if self.path == "/v1/messages":
            body["max_tokens"] = ANSWER
        connection.request("POST", self.path, json.dumps(body), {"content-type": "application/json", "x-api-key": self.key})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status in (200, 429), (response.status, answer)
        if response.status == 429:
            assert 1 <= int(response.getheader("retry-after")) <= 60
            self.n_refused += 1
            return False
        self.n_admitted += 1
        usage = answer.get("usage", {})
        self.n_tokens += usage.get("input_tokens", 0) + usage.get("cache_creation_input_tokens", 0) + usage.get("output_tokens", 0)
        return True

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(30))
        n = 0
        while not self.is_over:
            n += 1
            try:
                if not self.ask(connection, n):
                    time.sleep(0.01)
            except (OSError, http.client.HTTPException):
                break  # its router was killed
            except AssertionError as e:
                self.fault = e
                break
        connection.close()

    def end(self):
        self.is_over = True
        self.thread.join()
        if self.fault is not None:
            raise self.fault


def flood(routers, key, path, seconds, n_each=2):
    """(admitted, tokens, seconds from the first to the last request) of floods at these routers together."""
    began = time.monotonic()
    floods = [Flood(router.http, key, path) for router in routers for _ in range(n_each)]
    time.sleep(seconds)
    for one in floods:
        one.end()
    took = time.monotonic() - began
    return [sum(f.n_admitted for f in floods if f.port == r.http) for r in routers], sum(f.n_tokens for f in floods), took


def fleet(c, n_routers, n_workers=2, step="1ms", **rules):
    path, keys = new_keys(c, **rules)
    for _ in range(n_routers):
        c.router(http__api_keys=path)
    links = [f"127.0.0.1:{r.link}" for r in c.routers]
    for _ in range(n_workers):
        c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step=step, engine__sim_decode_seq="10us",
                 engine__sim_answer_tokens="100000", kv__memory="64MiB")
    for _ in range(n_routers):
        c.wait_ready(decode=n_workers)
        c.routers.append(c.routers.pop(0))
    wait_shared(c.routers, n_routers)
    return keys


def metric_of(router, name):
    try:
        return router.metric(name)
    except OSError:
        return -1  # it does not listen yet


def wait_shared(routers, n):
    until = time.monotonic() + patience(20)
    while any(metric_of(r, "baton_limits_routers") != n for r in routers):
        assert time.monotonic() < until, [metric_of(r, "baton_limits_routers") for r in routers]
        time.sleep(0.05)


def assert_common(spent, limit, took, least=0.9):
    """The bucket of a minute, and the drained part: at most a tenth more than one router would admit."""
    most = limit * (1 + took / 60)
    print(f"    {spent} of {most:.0f}: {spent / most:.3f} in {took:.1f} s")
    assert spent <= 1.1 * most, (spent, most)
    assert spent >= least * most - 2, (spent, most)


def routers_admit_one_limit_of_requests():
    for n in (2, 3):
        with Cluster() as c:
            keys = fleet(c, n, team=f"rpm={RPM}")
            admitted, _, took = flood(c.routers, keys["team"], "/v1/messages/count_tokens", 2)
            assert_common(sum(admitted), RPM, took)
            assert min(admitted) > 0.1 * RPM / n, admitted


def routers_admit_one_limit_of_tokens():
    with Cluster() as c:
        keys = fleet(c, 2, team=f"tpm={TPM}")
        _, tokens, took = flood(c.routers, keys["team"], "/v1/messages", 9 if os.environ.get("BATON_SANITIZED") else patience(3))
        assert_common(tokens, TPM, took, least=0.8)


def a_killed_routers_share_returns():
    """One router is killed in the middle; the other goes on to the whole limit.  The killed one comes back empty, and knows
    from the workers that nothing is left."""
    with Cluster() as c:
        keys = fleet(c, 2, team=f"rpm={RPM}")
        victim, other = c.routers
        began = time.monotonic()
        admitted, _, _ = flood([victim], keys["team"], "/v1/messages/count_tokens", 0.3)
        time.sleep(0.3)  # requests admitted since its last message (a tenth of a second) would be lost with the router
        victim.kill()
        wait_shared([other], 1)
        more, _, _ = flood([other], keys["team"], "/v1/messages/count_tokens", 1.5)
        assert_common(admitted[0] + more[0], RPM, time.monotonic() - began)
        victim.start()
        wait_shared([victim, other], 2)
        again, _, _ = flood([victim], keys["team"], "/v1/messages/count_tokens", 1)
        assert_common(admitted[0] + more[0] + again[0], RPM, time.monotonic() - began)


def a_restarted_router_admits_nothing_that_is_spent():
    """Requests that come before its first link to a worker wait until it knows what the other one has admitted."""
    with Cluster() as c:
        keys = fleet(c, 2, team="rpm=60")
        victim, other = c.routers
        victim.kill()
        wait_shared([other], 1)
        began = time.monotonic()
        admitted, _, _ = flood([other], keys["team"], "/v1/messages/count_tokens", 1)
        time.sleep(0.3)
        victim.start()
        until = time.monotonic() + patience(20)
        while metric_of(victim, "baton_limits_routers") < 0:
            assert time.monotonic() < until
            time.sleep(0.002)
        again, _, _ = flood([victim], keys["team"], "/v1/messages/count_tokens", 1.5, n_each=12)
        assert_common(admitted[0] + again[0], 60, time.monotonic() - began)


def limits_hold_where_a_worker_is_lost():
    """The workers that relay go away one after another, and come back."""
    with Cluster() as c:
        keys = fleet(c, 2, team=f"rpm={RPM}")
        began = time.monotonic()
        admitted, _, _ = flood(c.routers, keys["team"], "/v1/messages/count_tokens", 0.2)
        total = sum(admitted)
        c.workers[0].kill()
        total += sum(flood(c.routers, keys["team"], "/v1/messages/count_tokens", 1)[0])
        c.workers[1].kill()
        total += sum(flood(c.routers, keys["team"], "/v1/messages/count_tokens", 2)[0])
        c.workers[0].start()
        until = time.monotonic() + patience(20)
        while any(r.metric("baton_limits_routers_cut") > 0 for r in c.routers):
            assert time.monotonic() < until
            time.sleep(0.05)
        total += sum(flood(c.routers, keys["team"], "/v1/messages/count_tokens", 1)[0])
        assert_common(total, RPM, time.monotonic() - began, least=0.3)


def stream(router, key, tries_s):
    """An open stream; None: each try within this time got 429."""
    until = time.monotonic() + tries_s
    while True:
        client = Client(*messages("a question", max_tokens=2000), headers={"x-api-key": key})
        client.read(router.http, most=2)
        assert client.status in (200, 429), (client.status, client.error)
        if client.status == 200:
            return client
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def every_place_can_be_taken():
    """One router gets all requests at once that a key may have, and a place that it frees is free at another router."""
    with Cluster() as c:
        keys = fleet(c, 3, n_workers=1, step="50ms", pair="concurrent=2", team="concurrent=4")
        for key, limit in ((keys["pair"], 2), (keys["team"], 4)):
            streams = [stream(c.routers[0], key, patience(5)) for _ in range(limit)]
            assert all(streams), streams
            time.sleep(patience(0.3))  # until the other routers know of the last one
            assert all(stream(router, key, 0) is None for router in c.routers)
            streams[0].leave()
            streams.append(stream(c.routers[1], key, patience(5)))
            assert streams[-1] is not None
            for one in streams:
                one.leave()


if __name__ == "__main__":
    main([routers_admit_one_limit_of_requests, routers_admit_one_limit_of_tokens, a_killed_routers_share_returns, a_restarted_router_admits_nothing_that_is_spent,
          limits_hold_where_a_worker_is_lost, every_place_can_be_taken])
