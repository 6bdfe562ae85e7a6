#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Competing tenants: a flood costs another tenant one turn, service follows weights, and a full queue refuses the tenant
that fills it.  Real daemons.  Where shares are counted, their engines are simulated, as fast as the bundled
model: real ones would keep both processors busy for a minute.  The tests assert which tenant was served, how much and in which order, not how fast."""
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, main, patience  # noqa: E402

WORDS = [line.strip() for line in """a about all and as at be but by can come day do even find first for from get give go
have he her here him his how I if in into it its just know like look make man many me more my new no not now of on one
only or other our out people say see she so some take tell than that the their them then there these they thing think
this those time to two up use very want way we well what when which who will with would year you your""".split()]


def prompt(seed, n_words):
    """Text that is not cached yet: the seed gives the words."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(n_words))


def make_keys(cluster, **tenants):
    """Writes a key file with one key for each tenant, with its weight; returns the keys."""
    path, keys = os.path.join(cluster.dir, "keys"), {}
    with open(path, "w") as f:
        for tenant, weight in tenants.items():
            words = ["new-key", "--tenant", tenant] + ([f"weight={weight}"] if weight else [])
            key, line = subprocess.run([os.path.join(BUILD, "batonctl")] + words, check=True, capture_output=True,
                                       text=True).stdout.splitlines()[:2]
            keys[tenant] = key
            f.write(line + "\n")
    os.chmod(path, 0o600)
    return path, keys


ENGINE = {"engine__kind": "sim", "engine__sim_step": "4ms", "engine__sim_prefill_token": "80us", "engine__sim_decode_seq": "200us",
          "engine__sim_answer_tokens": "1000000"}


def simulated(c, **settings):
    """A router with these settings and two simulated workers."""
    c.router(**settings)
    c.worker("prefill", **ENGINE)
    c.worker("decode", **ENGINE)
    c.wait_ready(prefill=1, decode=1)


class Client:
    """A tenant: its requests and their answers, in the order of ends."""
    lock = threading.Lock()
    ends = []  # (tenant, time, status, tokens), of all clients
    seeds = iter(range(1, 1 << 30))

    def __init__(self, port, key, name, n_words, max_tokens):
        self.port, self.key, self.name, self.n_words, self.max_tokens = port, key, name, n_words, max_tokens
        self.is_over, self.threads, self.connections = False, [], set()

    def ask(self):
        with Client.lock:
            seed = next(Client.seeds)
        body = {"model": "baton-demo", "max_tokens": self.max_tokens, "temperature": 0,
                "messages": [{"role": "user", "content": prompt(seed, self.n_words)}]}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(120))
        self.connections.add(connection)
        try:
            connection.request("POST", "/v1/messages", json.dumps(body),
                               {"content-type": "application/json", "x-api-key": self.key})
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            self.connections.discard(connection)
            connection.close()
        usage = answer.get("usage", {})
        n_tokens = usage.get("input_tokens", 0) + usage.get("cache_creation_input_tokens", 0) + usage.get("output_tokens", 0)
        with Client.lock:
            Client.ends.append((self.name, time.monotonic(), response.status, n_tokens))
        return response.status, answer

    def flood(self, n_at_once):
        def work():
            while not self.is_over:
                try:
                    if self.ask()[0] == 529:
                        time.sleep(0.25)
                except (OSError, http.client.HTTPException):
                    return  # hung up, or the test has failed and its cluster is gone

        self.threads = [threading.Thread(target=work, daemon=True) for _ in range(n_at_once)]
        for thread in self.threads:
            thread.start()
        return self

    def hang_up(self):
        """Goes away in the middle of all its requests: to wait for their answers would take most of the test's time."""
        self.is_over = True
        for connection in list(self.connections):
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except (OSError, AttributeError):
                pass  # not connected yet, or closed already
        for thread in self.threads:
            thread.join()


def wait_for(what, condition, seconds=60):
    until = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < until, f"{what} did not come"
        time.sleep(0.02)


def n_served(name):
    """Answers of a tenant.  Refusals do not count: on a slow machine most of a flood is refused."""
    with Client.lock:
        return sum(1 for who, _, status, _ in Client.ends if who == name and status == 200)


def n_all_served():
    with Client.lock:
        return sum(1 for _, _, status, _ in Client.ends if status == 200)


def a_flood(settings, most_between):
    """Six short requests beside 200 long ones in flight: none is refused, and few of the flood are served before each."""
    Client.ends.clear()
    with Cluster() as c:
        path, keys = make_keys(c, loud=0, calm=0)
        c.relay(http__api_keys=path, **settings)
        port = c.routers[0].http
        calm = Client(port, keys["calm"], "calm", 30, 1)  # its end is its first token
        calm.ask()
        idle = []
        for _ in range(6):
            began = time.monotonic()
            assert calm.ask()[0] == 200
            idle.append(time.monotonic() - began)
        loud = Client(port, keys["loud"], "loud", 900, 8).flood(200)
        wait_for("the flood", lambda: n_served("loud") >= 5)
        took, between = [], []
        for _ in range(6):
            began = time.monotonic()
            n_before = n_served("loud")
            status, answer = calm.ask()
            assert status == 200, (status, answer)
            took.append(time.monotonic() - began)
            between.append(n_served("loud") - n_before)
        print(f"   idle {max(idle) * 1000:.0f} ms at most; beside 200 in flight {max(took) * 1000:.0f} ms at most, "
              f"{[round(t * 1000) for t in took]}; of the flood served meanwhile {between}")
        assert max(between) <= most_between, between
        loud.hang_up()


def a_flood_costs_another_tenant_a_turn():
    a_flood({"slo.ttft": "500ms", "slo.itl": "50ms", "queue.refuse": "timeout", "queue.timeout": "10s"}, 8)


def a_flood_in_the_workers_queues_costs_a_turn_too():
    a_flood({}, 8)  # objectives so wide that the router dispatches everything at once


def tokens_of(clients, n_begin, n_answers):
    """Tokens served to each client while all of them flood, in the time of n_answers answers.  The first n_begin answers
    do not count: a tenant whose requests came a moment earlier was served alone."""
    wait_for("the first answers", lambda: n_all_served() >= n_begin and all(n_served(client.name) >= 8 for client in clients))
    begin, n_first = time.monotonic(), n_all_served()
    wait_for("the answers", lambda: n_all_served() >= n_first + n_answers, 120)
    end = time.monotonic()
    with Client.lock:
        served = {client.name: sum(n for who, at, status, n in Client.ends
                                   if who == client.name and begin <= at <= end and status == 200) for client in clients}
    for client in clients:
        client.hang_up()
    return served


def shares(weights, n_at_once, n_begin, n_answers, **settings):
    """Tokens served to each tenant while all of them flood."""
    Client.ends.clear()
    with Cluster() as c:
        path, keys = make_keys(c, **weights)
        simulated(c, http__api_keys=path, **settings)
        return tokens_of([Client(c.routers[0].http, keys[name], name, 200, 8).flood(n) for name, n in n_at_once.items()],
                         n_begin, n_answers)


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def equal_tenants_share_alike():
    """Both tenants have more requests in flight than half of the fleet can run at once, on any machine. With 20, a fast
    machine would serve all requests of the smaller tenant, which are less than half."""
    for settings in ({"slo.ttft": "500ms", "slo.itl": "50ms", "queue.refuse": "timeout", "queue.timeout": "60s"}, {"queue.timeout": "60s"}):
        served = shares({"few": 0, "many": 0}, {"few": 60, "many": 300}, 100, 100, **settings)
        print(f"   60:300 in flight: {served}, Jain {jain(list(served.values())):.3f}")
        assert jain(list(served.values())) >= 0.95, served


def shares_are_as_weights():
    """Each tenant has more requests in flight than its share of the seats.  The first 300 answers do not count: the light tenant
    comes first and has all seats for a moment."""
    served = shares({"light": 1, "heavy": 3}, {"light": 80, "heavy": 240}, 300, 500,
                    **{"slo.ttft": "500ms", "slo.itl": "50ms", "queue.refuse": "timeout", "queue.timeout": "60s"})
    print(f"   weights 1:3: {served}, {served['heavy'] / served['light']:.2f}")
    assert 2.2 <= served["heavy"] / served["light"] <= 3.9, served


def a_full_queue_refuses_who_fills_it():
    """queue.max = 32, 100 in flight: the loud tenant's newest make room for the calm one's."""
    Client.ends.clear()
    with Cluster() as c:
        path, keys = make_keys(c, loud=0, calm=0)
        simulated(c, http__api_keys=path, queue__max="32", **{"slo.ttft": "500ms", "slo.itl": "50ms", "queue.refuse": "timeout"})
        loud = Client(c.routers[0].http, keys["loud"], "loud", 300, 8).flood(100)
        calm = Client(c.routers[0].http, keys["calm"], "calm", 30, 8)
        wait_for("refusals", lambda: any(status == 529 for _, _, status, _ in list(Client.ends)))
        for _ in range(20):
            status, answer = calm.ask()
            assert status == 200, (status, answer)
        n_refused = sum(status == 529 for who, _, status, _ in Client.ends if who == "loud")
        print(f"   refused: {n_refused} of the loud tenant's, none of the calm one's")
        loud.hang_up()
        text = subprocess.run(["curl", "-s", "-H", f"x-api-key: {keys['calm']}", f"http://127.0.0.1:{c.routers[0].http}/metrics"],
                              capture_output=True, text=True, check=False).stdout
        queue = [line for line in text.splitlines() if "queue" in line and not line.startswith("#")]
        assert not any("loud" in line or "calm" in line for line in queue), queue


if __name__ == "__main__":
    main([a_flood_costs_another_tenant_a_turn, a_flood_in_the_workers_queues_costs_a_turn_too, equal_tenants_share_alike,
          shares_are_as_weights, a_full_queue_refuses_who_fills_it])
