# SPDX-License-Identifier: Apache-2.0
"""Prefixes shared by all workers: no token's KV is computed twice while any worker has it.

A conversation of ten turns runs over two prefill and two decode workers, and every turn runs on another pair.  The test
drains the other workers, so that the router has no choice.  A worker fetches the blocks that it lacks.  The counters of all
four workers show the computed tokens.
"""
import http.client
import json
import signal
import subprocess
import time

from cluster import BUILD, Cluster, main, patience
from test_caching import BLOCK, PUBLIC, Loop, reads, two_tenants

TURNS = 10


def drain(cluster, worker, is_drained):
    out = subprocess.run([f"{BUILD}/batonctl", "--cluster-key", cluster.key, "--admin", f"127.0.0.1:{worker.admin}",
                          "drain" if is_drained else "undrain"], capture_output=True, timeout=patience(10))
    assert out.returncode == 0, out.stderr


def use_only(cluster, names):
    """Drains all workers but these, and waits until the router knows it and has each worker's cached blocks."""
    for worker in cluster.workers:
        if worker.process.poll() is not None:
            continue
        drain(cluster, worker, worker.name not in names)
    until = time.monotonic() + patience(30)
    while True:
        rows = cluster.routers[0].status()["workers"]
        is_known = all(row["blocks_known"] for row in rows if row["up"])
        if {row["node"] for row in rows if row["usable"]} == set(names) and is_known:
            return
        assert time.monotonic() < until, rows
        time.sleep(0.02)


def total(cluster, name):
    return int(sum(worker.metric(name) for worker in cluster.workers))


def computed(cluster):
    return total(cluster, 'baton_worker_prompt_tokens_total{how="computed"}')


def ten_turns(transport, places, **settings):
    """One conversation; places lists the open workers of each turn."""
    with Cluster() as c:
        c.router(placement__prefix_fetch="always", **settings)
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

        # A turn leaves the KV of its prompt and answer, without the last sampled token, which was never fed.  Only
        # whole blocks can be found again.  So the next turn computes its new tokens, and the tokens of the last,
        # partial block before them: fewer than BLOCK.
        again = 0
        for last, row in zip(loop.rows, loop.rows[1:]):
            known = last["prompt"] + last["output"] - 1
            assert row["read"] >= known // BLOCK * BLOCK, (last, row)
            assert row["computed"] == row["prompt"] - row["read"], row
            again += known - row["read"] if row["read"] < known else 0
        n_computed = computed(c) - before
        n_drawn_before = sum(row["output"] for row in loop.rows[:-1])
        distinct = loop.rows[-1]["prompt"]  # every earlier prompt and answer is its prefix
        assert n_computed == sum(row["computed"] for row in loop.rows), (n_computed, loop.rows)
        assert n_computed + n_drawn_before - (TURNS - 1) <= distinct + again, (n_computed, n_drawn_before, distinct, again)
        assert again <= (TURNS - 1) * (BLOCK - 1)

        received, pushed = total(c, "baton_prefix_fetch_tokens_total"), total(c, "baton_prefix_serve_tokens_total")
        print(f"{transport}: {n_computed} prompt tokens computed and {n_drawn_before} drawn for {distinct} distinct ones, "
              f"{again} of them again; {received} received by asking, {pushed} pushed")
        assert received == pushed > 0, (received, pushed)
        assert total(c, 'baton_prefix_fetches_total{result="empty"}') == 0
        c.assert_quiet()
        return loop


PAIRS = [("prefill0", "decode0"), ("prefill1", "decode1"), ("prefill0", "decode1"), ("prefill1", "decode0")]


def a_conversation_is_computed_once_over_shm():
    ten_turns("shm", PAIRS, placement__local_prefill_tokens="1")


def a_conversation_is_computed_once_over_tcp():
    ten_turns("tcp", PAIRS, placement__local_prefill_tokens="1")


def decode_workers_ask_each_other():
    ten_turns("auto", [("decode0",), ("decode1",)], placement__local_prefill_tokens="100000")


def text(n):
    return " ".join(f"Item {n}.{i} of the list is what it is." for i in range(40))


def leave_early(cluster, asker, words):
    """A client that hangs up during the prefix fetch (or just after, on a slow machine)."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.routers[0].http, timeout=patience(60))
    connection.request("POST", "/v1/messages", json.dumps(cluster.body(words)), {"content-type": "application/json"})
    until = time.monotonic() + 1
    while asker.status()["tasks"] == 0 and time.monotonic() < until:
        time.sleep(0.01)
    connection.close()


def a_owner_that_hangs_or_dies_costs_no_answer():
    """The owner is stopped during a fetch, its client leaves, then it is killed: the prompt is computed with the same
    answer, and nothing stays pinned."""
    with Cluster() as c:
        c.router(placement__prefix_fetch="always", placement__local_prefill_tokens="100000")
        owner, asker = c.worker("decode"), c.worker("decode")
        c.wait_ready(decode=2)
        received = lambda: asker.metric("baton_prefix_fetch_tokens_total")

        def computed_by_the_owner(n):
            use_only(c, [owner.name])
            answer = c.ask(text(n))
            assert answer.serving["decode"] == owner.name, answer.serving
            use_only(c, [asker.name])
            return answer

        want = computed_by_the_owner(1)
        got = c.ask(text(1))
        assert got.text == want.text and got.serving["transferred"] > 300, got.serving
        assert got.serving["computed"] + got.serving["transferred"] + got.serving["reused"] == got.serving["prompt"], got.serving
        n_received = received()
        assert n_received == got.serving["transferred"], (n_received, got.serving)

        want = computed_by_the_owner(2)
        owner.kill(signal.SIGSTOP)
        got = c.ask(text(2))  # until the link counts as dead
        assert got.text == want.text and got.serving["transferred"] == 0, got.serving
        assert asker.metric('baton_prefix_fetches_total{result="empty"}') == 1
        owner.kill(signal.SIGCONT)

        want = computed_by_the_owner(3)
        owner.kill(signal.SIGSTOP)
        leave_early(c, asker, text(3))
        owner.kill(signal.SIGCONT)
        c.assert_quiet()

        want = computed_by_the_owner(4)
        owner.kill()
        got = c.ask(text(4))
        assert got.text == want.text, (got.text, want.text)
        c.assert_quiet()


def a_push_is_asked_for_where_it_pays():
    """The default: pushing a thousand tokens is faster than computing them, on any machine; with "off" no worker asks."""
    words = " ".join(text(n) for n in (7, 8, 9))
    for fetch in ("auto", "off"):
        with Cluster() as c:
            c.router(placement__prefix_fetch=fetch, placement__local_prefill_tokens="100000")
            c.worker("decode")
            c.worker("decode")
            c.wait_ready(decode=2)
            use_only(c, ["decode0"])
            want = c.ask(words, max_tokens=8)
            use_only(c, ["decode1"])
            got = c.ask(words, max_tokens=8)
            assert got.text == want.text, (got.text, want.text)
            n_asks = c.routers[0].metric("baton_router_asks_total")
            print(f"{fetch}: {got.serving['prompt']} tokens computed in {want.serving['prefill_ms']:.0f} ms; then "
                  f"{got.serving['computed']} computed, {got.serving['transferred']} transferred")
            assert n_asks == (1 if fetch == "auto" else 0), (fetch, n_asks)
            c.assert_quiet()


def tenants_stay_apart_and_what_is_public_is_pushed():
    question = "What is the KV cache? " * 20
    with Cluster() as c:
        keys, public, ann, bob = two_tenants(c)
        port = c.router(placement__prefix_fetch="always", placement__local_prefill_tokens="100000", http__api_keys=keys,
                        cache__public_prefix=public).http
        c.worker("decode")
        c.worker("decode")
        c.wait_ready(decode=2)
        use_only(c, ["decode0"])
        _, prompt = reads(port, ann, PUBLIC, question)
        reads(port, ann, "Private. " + PUBLIC, question)
        use_only(c, ["decode1"])
        assert reads(port, bob, "Private. " + PUBLIC, question)[0] == 0, "what is not declared is shared"
        assert total(c, "baton_prefix_fetch_tokens_total") == 0
        shared = reads(port, bob, PUBLIC, question)[0]
        received = total(c, "baton_prefix_fetch_tokens_total")
        assert 0 < shared == received < prompt - len(question) // 8, (shared, received, prompt)
        again = reads(port, ann, PUBLIC, question)[0]  # ann's own question comes too
        assert again == (prompt - 1) // BLOCK * BLOCK == total(c, "baton_prefix_fetch_tokens_total"), (again, prompt)
        c.assert_quiet()


if __name__ == "__main__":
    main([a_conversation_is_computed_once_over_shm, a_conversation_is_computed_once_over_tcp,
          decode_workers_ask_each_other, a_owner_that_hangs_or_dies_costs_no_answer,
          a_push_is_asked_for_where_it_pays, tenants_stay_apart_and_what_is_public_is_pushed])
