#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three routers of the same workers, with a store that they share and without: one is killed under streams whose clients come
back, and one tenant floods all three.  STREAMS=1000 for the full size."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from bench_resume import run  # noqa: E402
from cluster import Cluster, main  # noqa: E402
from redis_server import Redis  # noqa: E402
from test_fair import Client, jain, make_keys, tokens_of  # noqa: E402
from test_fair_routers import SIM, TURNS  # noqa: E402

N_STREAMS = int(os.environ.get("STREAMS", "40" if os.environ.get("BATON_SANITIZED") else "120"))


def assert_streams_survive(**settings):
    """Byte for byte, and nothing is computed twice."""
    got = run(N_STREAMS, 3, **settings)
    print(f"    {got}")
    assert got["wrong"] == 0 and got["resumed"] >= N_STREAMS // 4, got
    assert got["twice"] == 0 and got["orphans"] == 0, got
    assert got["said"] <= got["drawn"] <= got["said"] + 3 * N_STREAMS, got  # a stop token each; the warm-up draws a few


def streams_survive_one_of_three():
    assert_streams_survive()


def streams_survive_one_of_three_with_a_store():
    with Redis() as redis:
        assert_streams_survive(state__url=redis.url)


def assert_flood(**settings):
    """A hundred in flight at each router of one tenant, three of each other tenant, at a router of its own.  The worker has a
    seat for each tenant, so the three ask for more than their share."""
    with Cluster() as c:
        Client.ends.clear()
        path, keys = make_keys(c, loud=0, a=0, b=0, c=0)
        for _ in range(3):
            c.router(http__api_keys=path, http__max_per_address="2000", queue__max="2000", **settings, **TURNS)
        c.worker("decode", link__routers=[f"127.0.0.1:{r.link}" for r in c.routers], **{**SIM, "sched__max_seqs": "4"})
        for _ in range(3):
            c.wait_ready(decode=1)
            c.routers.append(c.routers.pop(0))
        floods = [("loud", 0, 100), ("loud", 1, 100), ("loud", 2, 100), ("a", 0, 3), ("b", 1, 3), ("c", 2, 3)]
        served = tokens_of([Client(c.routers[router].http, keys[name], name, 100, 16).flood(n) for name, router, n in floods], 40, 100)
        index = jain([served.get(name, 0) for name in ("loud", "a", "b", "c")])
        print(f"    300 in flight to 3, 3, 3: {served}, Jain {index:.3f}")
        assert index >= 0.95, (served, index)


def a_flood_of_a_hundred_to_one():
    assert_flood()


def a_flood_of_a_hundred_to_one_with_a_store():
    with Redis() as redis:
        assert_flood(state__url=redis.url)


if __name__ == "__main__":
    tests = [streams_survive_one_of_three_with_a_store, a_flood_of_a_hundred_to_one]
    if not os.environ.get("BATON_SANITIZED"):  # there the code of the other half is that of test_resume and test_state
        tests += [streams_survive_one_of_three, a_flood_of_a_hundred_to_one_with_a_store]
    main(tests)
