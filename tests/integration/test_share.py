# SPDX-License-Identifier: Apache-2.0
"""Prefixes shared by all workers: no token's KV is computed twice while any worker has it.

A conversation of ten turns runs over two prefill and two decode workers, and every turn lands on another pair: the
test drains the others, so that the router has no choice.  What a worker lacks it asks for, and the counters of all four
workers say what was computed.
"""
import json
import subprocess
import time

from cluster import BUILD, Cluster, in_threads, main, patience
from test_caching import BLOCK, Loop

TURNS = 10


def drain(cluster, worker, is_drained):
    out = subprocess.run([f"{BUILD}/batonctl", "--cluster-key", cluster.key, "--admin", f"127.0.0.1:{worker.admin}",
                          "drain" if is_drained else "undrain"], capture_output=True, timeout=patience(10))
    assert out.returncode == 0, out.stderr


def use_only(cluster, names):
    """Drains all workers but these, and waits until the router knows, and knows what each has cached."""
    for worker in cluster.workers:
        drain(cluster, worker, worker.name not in names)
    until = time.monotonic() + patience(30)
    while True:
        rows = cluster.routers[0].status()["workers"]
        if {row["node"] for row in rows if row["usable"]} == set(names) and all(row["blocks_known"] for row in rows):
            return
        assert time.monotonic() < until, rows
        time.sleep(0.02)


def total(cluster, name):
    return int(sum(worker.metric(name) for worker in cluster.workers))


def computed(cluster):
    return total(cluster, 'baton_worker_prompt_tokens_total{how="computed"}')


def ten_turns(transport, places, **settings):
    """One conversation; places says which workers are open to each turn."""
    with Cluster() as c:
        c.router(placement__share="always", **settings)
        for role in ("prefill", "decode") * 2:
            c.worker(role, kv__transport=transport)
        c.wait_ready(prefill=2, decode=2)
        before = computed(c)
        loop = Loop(c.routers[0].http)
        for n in range(TURNS):
            use_only(c, places[n % len(places)])
            loop.turn(n)
            assert {w for w in loop.rows[-1]["workers"] if w} <= set(places[n % len(places)]), loop.rows[-1]
        loop.show(f"{TURNS} turns over four workers, {transport}")

        # The KV of a turn's prompt and answer is there but for the last token drawn, which nobody fed.  Of that, what
        # fills whole blocks can be found again; so a turn computes anew what came since, and of the tokens before it
        # those of the last, partial block: fewer than BLOCK.
        again = 0
        for last, row in zip(loop.rows, loop.rows[1:]):
            known = last["prompt"] + last["output"] - 1
            assert row["read"] >= known // BLOCK * BLOCK, (last, row)
            assert row["computed"] == row["prompt"] - row["read"], row
            again += known - row["read"] if row["read"] < known else 0
        n_computed = computed(c) - before
        n_drawn_before = sum(row["output"] for row in loop.rows[:-1])
        distinct = loop.rows[-1]["prompt"]  # every prompt and answer before it is its beginning
        assert n_computed == sum(row["computed"] for row in loop.rows), (n_computed, loop.rows)
        assert n_computed + n_drawn_before - (TURNS - 1) <= distinct + again, (n_computed, n_drawn_before, distinct, again)
        assert again <= (TURNS - 1) * (BLOCK - 1)

        received, pushed = total(c, "baton_asks_received_tokens_total"), total(c, "baton_loans_pushed_tokens_total")
        print(f"{transport}: {n_computed} prompt tokens computed and {n_drawn_before} drawn for {distinct} distinct ones, "
              f"{again} of them again; {received} received by asking, {pushed} pushed")
        assert received == pushed > 0, (received, pushed)
        assert total(c, 'baton_asks_total{result="in_vain"}') == 0
        c.assert_quiet()
        return loop


PAIRS = [("prefill0", "decode0"), ("prefill1", "decode1"), ("prefill0", "decode1"), ("prefill1", "decode0")]


def a_conversation_is_computed_once_over_shm():
    ten_turns("shm", PAIRS, placement__local_prefill_tokens="1")


def a_conversation_is_computed_once_over_tcp():
    ten_turns("tcp", PAIRS, placement__local_prefill_tokens="1")


def decode_workers_ask_each_other():
    ten_turns("auto", [("decode0",), ("decode1",)], placement__local_prefill_tokens="100000")


if __name__ == "__main__":
    main([a_conversation_is_computed_once_over_shm, a_conversation_is_computed_once_over_tcp,
          decode_workers_ask_each_other])
