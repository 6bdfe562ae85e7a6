#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tenants of different routers: a flood through one router costs a tenant of the other a turn, and two floods get equal
parts.  Real daemons, simulated engines.  The tests assert which tenant was served and how much, not how fast."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, main  # noqa: E402
from test_fair import Client, jain, make_keys, n_served, tokens_of, wait_for  # noqa: E402

SIM = {"engine__kind": "sim", "engine__sim_step": "20ms", "engine__sim_prefill_token": "20us", "engine__sim_decode_seq": "100us",
       "engine__sim_answer_tokens": "1000000", "sched__max_seqs": "8", "kv__memory": "256MiB"}
TURNS = {"queue.refuse": "timeout", "queue.timeout": "60s"}


def two_routers(c, n_workers=1, **weights):
    Client.ends.clear()
    path, keys = make_keys(c, **weights)
    for _ in range(2):
        c.router(http__api_keys=path, http__max_per_address="2000", **TURNS)
    links = [f"127.0.0.1:{r.link}" for r in c.routers]
    for _ in range(n_workers):
        c.worker("decode", link__routers=links, **SIM)
    for _ in range(2):
        c.wait_ready(decode=n_workers)
        c.routers.reverse()
    return keys


def a_flood_through_one_router_costs_a_turn_at_the_other():
    """A hundred in flight through the first router, one through the second."""
    with Cluster() as c:
        keys = two_routers(c, loud=0, calm=0)
        loud = Client(c.routers[0].http, keys["loud"], "loud", 300, 8).flood(100)
        calm = Client(c.routers[1].http, keys["calm"], "calm", 30, 1)
        wait_for("the flood", lambda: n_served("loud") >= 10)
        between = []
        for _ in range(8):
            n_before = n_served("loud")
            status, answer = calm.ask()
            assert status == 200, (status, answer)
            between.append(n_served("loud") - n_before)
        print(f"   of the flood ended meanwhile {between}")
        assert sorted(between)[len(between) // 2] <= 16, between  # two rounds of the seats; the flood has 100
        loud.hang_up()


def tenants_of_two_routers_share_alike():
    """Each tenant floods through a router of its own, one with a third of the other's requests."""
    with Cluster() as c:
        keys = two_routers(c, many=0, few=0)
        served = tokens_of([Client(c.routers[router].http, keys[name], name, 100, 16).flood(n)
                            for name, router, n in (("many", 0, 120), ("few", 1, 40))], 30, 50)
        print(f"   120:40 in flight: {served}, Jain {jain(list(served.values())):.3f}")
        assert jain(list(served.values())) >= 0.95, served


def a_tenant_at_two_routers_takes_no_second_share():
    """Eighty requests in flight through each router, against sixteen through one.  Without the workers' news: 3.6 to 1."""
    with Cluster() as c:
        keys = two_routers(c, many=0, few=0)
        served = tokens_of([Client(c.routers[router].http, keys[name], name, 100, 16).flood(n)
                            for name, router, n in (("many", 0, 80), ("many", 1, 80), ("few", 1, 16))], 30, 100)
        print(f"   80 and 80 to 16 in flight: {served}: {served['many'] / served['few']:.2f} to 1")
        assert served["many"] <= 1.25 * served["few"], served


def weights_hold(n_workers):
    with Cluster() as c:
        keys = two_routers(c, n_workers, heavy=3, light=1)
        served = tokens_of([Client(c.routers[router].http, keys[name], name, 100, 16).flood(40 + 20 * n_workers)
                            for name, router in (("heavy", 0), ("light", 1))], 30, 100 * n_workers)
        print(f"   3:1 by weight: {served}: {served['heavy'] / served['light']:.2f} to 1")
        assert 2.4 <= served["heavy"] / served["light"] <= 3.75, served


def weights_hold_between_routers():
    """Each tenant floods through a router of its own, one with three times the other's weight.  Without requests that wait at
    the worker, each router fills the seats that it hears of first: 1 to 1."""
    weights_hold(1)


def weights_hold_between_routers_at_two_workers():
    weights_hold(2)


if __name__ == "__main__":
    main([a_flood_through_one_router_costs_a_turn_at_the_other, tenants_of_two_routers_share_alike,
          a_tenant_at_two_routers_takes_no_second_share, weights_hold_between_routers,
          weights_hold_between_routers_at_two_workers])
