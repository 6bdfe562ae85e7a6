# SPDX-License-Identifier: Apache-2.0
"""Routers know the content of the store that workers share.  A worker writes prompts to a real Redis server and is
killed.  Another worker with the store, which never saw them, is then expected to read them, and a worker without it to
compute them.  Without the store the estimate is as before.  A worker without a router compares a peer with the store in
the same way.  Each answer has the same tokens."""
import json
import time

import redis_server
from cluster import Cluster, Stream, main
from redis_server import Redis
from test_peers import asks, known, pair
from test_prefix_fetch import use_only
from test_remote import n_written, remote, text_of, up, worker_of
from test_tier import BLOCK, until
from test_why import assert_fits, ctl

PROMPTS = [text_of(i) for i in range(5)]


def ask(c, text):
    """The answer, and the router's decision."""
    stream = Stream(c.routers[0].http, c.body(text, max_tokens=12))
    assert stream.status == 200, stream.response.read()
    answer = stream.finish()
    assert answer.is_whole
    request = stream.response.headers["request-id"]
    decision = json.loads(ctl(c, "why", "--json", request))["decisions"][0]
    assert (decision["read_ms"] > 0) == (decision["read_tokens"] > 0), decision
    first = decision["prompt_tokens"] - decision["uncached_tokens"] - decision["read_tokens"] + 1
    line = f"tokens {first} to {first + decision['read_tokens'] - 1} of the prompt are read from the shared store, in "
    text = ctl(c, "why", request)
    assert (line in text) == decision["reads_store"], (text, decision)
    assert_fits(text)
    return answer, decision


def in_store(router):
    return router.metric('baton_router_blocks_known{tier="store"}')


def store_rate(c, worker):
    return {row["node"]: row for row in c.routers[0].status()["workers"]}[worker.name]["store_bytes_per_s"]


def written(c, worker, texts):
    """Asks twice, so that the worker writes the prompts; returns the first answers, their decisions and the number of blocks."""
    firsts, n_blocks = [], n_written(worker)
    for text in texts:
        firsts.append(ask(c, text))
        n_blocks += ask(c, text)[0].serving["reused"] // BLOCK
    until("blocks are not written", lambda: n_written(worker) >= n_blocks)
    return firsts, n_blocks


def a_prompt_in_the_store_is_expected_to_be_read():
    with Cluster() as c, Redis() as store:
        router = c.router(placement__prefix_fetch="off")
        writer, reader = up(worker_of(c, store.url)), up(worker_of(c, store.url))
        other = c.worker("decode")
        c.wait_ready(decode=3)
        use_only(c, [writer.name])
        firsts, n_blocks = written(c, writer, PROMPTS)
        assert all(not d["reads_store"] and d["read_tokens"] == 0 for _, d in firsts), firsts
        until("the store's blocks are not known", lambda: in_store(router) >= n_blocks)
        writer.kill()
        use_only(c, [other.name])
        assert store_rate(c, reader) > 0 == store_rate(c, other)
        answer, d = ask(c, PROMPTS[0])
        assert answer.text == firsts[0][0].text and not d["reads_store"] and d["uncached_tokens"] == d["prompt_tokens"], d
        use_only(c, [reader.name])
        n_read, seen = 0, []
        for text, (first, before) in zip(PROMPTS[:4], firsts):
            answer, d = ask(c, text)
            assert answer.text == first.text
            seen.append((d, answer.serving, reader.status()["remote"]))
            if d["reads_store"]:  # a busy host may have measured a slow store after the first
                assert d["read_tokens"] > BLOCK, d
                assert d["read_tokens"] + d["uncached_tokens"] == d["prompt_tokens"] == before["uncached_tokens"], (d, before)
                n_read += answer.serving["reused"] > BLOCK
        assert n_read > 0 and router.metric("baton_router_store_reads_total") >= n_read, seen
        # Without the store nothing is expected of it, and the router still knows its blocks.
        store.kill()
        until("its loss is not known", lambda: ask(c, text_of(time.monotonic()))[0].is_whole and store_rate(c, reader) == 0)
        answer, d = ask(c, PROMPTS[4])
        assert answer.text == firsts[4][0].text
        assert not d["reads_store"] and d["read_tokens"] == 0 and d["uncached_tokens"] == d["prompt_tokens"], d
        c.assert_quiet()


def what_the_store_lost_is_forgotten():
    with Cluster() as c, Redis() as store:
        router = c.router(placement__prefix_fetch="off")
        writer, reader = up(worker_of(c, store.url)), up(worker_of(c, store.url))
        c.wait_ready(decode=2)
        use_only(c, [writer.name])
        firsts, n_blocks = written(c, writer, PROMPTS[:1])
        until("the store's blocks are not known", lambda: in_store(router) >= n_blocks)
        writer.kill()  # if it drained, it would write them again
        c.workers.remove(writer)
        use_only(c, [reader.name])
        store("FLUSHALL")
        n_known = in_store(router)
        answer, _ = ask(c, PROMPTS[0])
        assert answer.text == firsts[0][0].text and answer.serving["reused"] == 0, answer.serving
        until("the loss is not known", lambda: in_store(router) < n_known)
        c.assert_quiet()


SIM = {"engine.kind": "sim", "engine.sim_prefill_token": "500us", "kv.remote_flush": "0s"}


def forgets(c, worker, text):
    """Other prompts take the memory of the worker, whose pool is small."""
    n_evicted = worker.status()["blocks"]["evicted"]
    for i in range(40):
        n_asks = asks(worker)
        got = c.ask(f"{i} {time.monotonic()} {text}", worker.http, max_tokens=2)
        assert got.is_whole and asks(worker) == n_asks
        blocks = worker.status()["blocks"]
        if blocks["evicted"] - n_evicted > blocks["total"]:
            return
    raise AssertionError(f"nothing was evicted: {worker.status()['blocks']}")


def a_busy_peer_is_asked_only_for_what_the_store_lacks():
    """Each step of the peer takes long while it answers, so the store is the faster of the two.  Once the store is gone,
    the same peer is faster than computing."""
    with Cluster() as c, Redis() as store:
        a, b = pair(c, first={**SIM, "kv.remote": store.url, "engine.sim_step": "200ms", "engine.sim_answer_tokens": "1000000"},
                    second={**SIM, "kv.remote": store.url, "kv.memory": "2MiB"})
        up(a), up(b)
        text = text_of("of both")
        assert c.ask(text, b.http, max_tokens=8).is_whole
        n_blocks = c.ask(text, b.http, max_tokens=8).serving["reused"] // BLOCK
        until("blocks are not written", lambda: n_written(b) >= n_blocks > 10)
        stream = Stream(a.http, c.body(text, max_tokens=100000))  # the peer has the blocks, and is busy from now on
        until("not told", lambda: known(b)["memory"] >= n_blocks)
        for is_there in (True, False):
            forgets(c, b, text)
            n_read, n_asks = remote(b, "read"), asks(b)
            assert a.status()["running"] == 1 and known(b)["memory"] >= n_blocks
            got = c.ask(text, b.http, max_tokens=8)
            assert got.is_whole  # a simulated engine draws any tokens
            if is_there:
                assert got.serving["transferred"] == 0 < got.serving["reused"] and asks(b) == n_asks, (got.serving, asks(b))
                until("not counted", lambda n=n_read: remote(b, "read") > n)
                store.kill()
                until("its loss is not known", lambda: c.ask(f"{time.monotonic()} {text}", b.http, max_tokens=2).is_whole and
                      not remote(b, "up"))
            else:
                assert got.serving["transferred"] > 0 and asks(b)["done"] == n_asks["done"] + 1, (got.serving, asks(b))
        stream.close()


if __name__ == "__main__":
    redis_server.want()
    main([a_prompt_in_the_store_is_expected_to_be_read, what_the_store_lost_is_forgotten,
          a_busy_peer_is_asked_only_for_what_the_store_lacks])
