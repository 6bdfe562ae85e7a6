# SPDX-License-Identifier: Apache-2.0
"""Workers that know their peers' blocks, without a router.  One worker's own endpoint computes a prompt.  When the
prompt comes to the other worker, the first one pushes it, from memory, or from disk after a restart.  A dead peer
costs nothing, and with the feature off no worker asks."""
import signal
import subprocess
import time

from cluster import BUILD, Cluster, fetch, main, patience
from test_caching import BLOCK, PUBLIC, reads, two_tenants
from test_tier import TEXT, ready, saved, until


def pair(cluster, fetch="auto", first=None, second=None, transport="auto"):
    """Two workers without a router: link.peers of the second names the first."""
    a = cluster.worker("decode", **{"cache.prefix_fetch": fetch, "kv.transport": transport, **(first or {})})
    b = cluster.worker("decode", **{"cache.prefix_fetch": fetch, "kv.transport": transport, "link.peers": f"127.0.0.1:{a.link}",
                                    **(second or {})})
    for worker in (a, b):
        ready(worker)
    linked(a, b)
    return a, b


def linked(a, b):
    until("not linked", lambda: all(any(peer["up"] for peer in worker.status()["peers"]) for worker in (a, b)))


def known(worker):
    return {tier: int(worker.metric('baton_peer_blocks_known{tier="%s"}' % tier)) for tier in ("memory", "disk")}


def asks(worker):
    return {how: int(worker.metric('baton_prefix_fetches_total{result="%s"}' % how)) for how in ("done", "empty")}


def computed(worker):
    return int(worker.metric('baton_worker_prompt_tokens_total{how="computed"}'))


def assert_adds_up(answer):
    serving = answer.serving
    assert serving["computed"] + serving["reused"] + serving["transferred"] == serving["prompt"], serving
    assert answer.usage["cache_read_input_tokens"] == serving["reused"] + serving["transferred"], (answer.usage, serving)


def assert_pushed(cluster, asker, owner, want, text):
    """All whole blocks of the prompt arrive, and every counter shows it."""
    n_asks, n_computed = asks(asker), computed(asker)
    before = {name: worker.metric(name) for worker, name in ((asker, "baton_prefix_fetch_tokens_total"),
                                                            (owner, "baton_prefix_serve_tokens_total"),
                                                            (asker, "baton_prefix_fetches_own_total"))}
    got = cluster.ask(text, asker.http, max_tokens=8)
    n_whole = (want.serving["prompt"] - 1) // BLOCK * BLOCK
    assert got.text == want.text, (got.text, want.text)
    assert_adds_up(got)
    assert got.serving["transferred"] == n_whole and got.serving["transport"] in ("shm", "tcp"), (got.serving, n_whole)
    assert got.serving["transfer_ms"] > 0 and got.serving["computed"] == want.serving["prompt"] - n_whole, got.serving
    assert asks(asker) == {"done": n_asks["done"] + 1, "empty": n_asks["empty"]}, asks(asker)
    assert computed(asker) - n_computed == got.serving["computed"]
    for worker, name, more in ((asker, "baton_prefix_fetch_tokens_total", n_whole),
                               (asker, "baton_prefix_fetches_own_total", 1)):
        assert worker.metric(name) == before[name] + more, name
    until("the loan is not over",
          lambda: owner.metric("baton_prefix_serve_tokens_total") == before["baton_prefix_serve_tokens_total"] + n_whole)
    return got


def a_prompt_of_one_endpoint_is_pushed_to_another():
    """Both directions: the worker that dialled asks, and the one that was dialled."""
    for transport in ("shm", "tcp"):
        with Cluster() as c:
            a, b = pair(c, transport=transport)
            want = c.ask(TEXT, a.http, max_tokens=8)
            assert want.serving["transferred"] == 0, want.serving
            until("not told", lambda: known(b)["memory"] >= want.serving["prompt"] // BLOCK)
            got = assert_pushed(c, b, a, want, TEXT)
            print(f"{transport}: {want.serving['prompt']} tokens computed in {want.serving['prefill_ms']:.0f} ms by one; by the other "
                  f"{got.serving['transferred']} pushed, {got.serving['computed']} computed, answer after {got.serving['ttft_ms']:.0f} ms")
            want = c.ask("Other: " + TEXT, b.http, max_tokens=8)
            until("not told", lambda: known(a)["memory"] >= want.serving["prompt"] // BLOCK)
            assert_pushed(c, a, b, want, "Other: " + TEXT)
            again = c.ask("Other: " + TEXT, a.http, max_tokens=8)  # this worker has the prompt now
            assert again.serving["reused"] > 0 == again.serving["transferred"] and asks(a)["done"] == 1, again.serving
            c.assert_quiet()
            until("the peer does not know all blocks", lambda: known(b)["memory"] == a.status()["blocks"]["cached"])
            status = b.status()["peer_blocks"]
            assert status["followed"] == 1 and status["fetches"] == 1 and status["in_memory"] == known(b)["memory"], status
            out = subprocess.run([f"{BUILD}/batonctl", "--cluster-key", c.key, "--admin", f"127.0.0.1:{b.admin}", "status"],
                                 capture_output=True, text=True, timeout=patience(10)).stdout
            assert f"{status['in_memory']} cached blocks known of 1 workers" in out, out


def a_restarted_peer_pushes_from_disk():
    with Cluster() as c:
        a, b = pair(c, first={"kv.disk_size": "256MiB", "kv.disk_path": c.dir + "/store"})
        want = c.ask(TEXT, a.http, max_tokens=8)
        saved(a)
        for how in ("stop", "kill"):
            a.stop() if how == "stop" else a.kill()
            until("its loss is not known", lambda: known(b) == {"memory": 0, "disk": 0})
            ready(a.start())
            until("its disk is not known", lambda: known(b)["disk"] >= want.serving["prompt"] // BLOCK)
            assert known(b)["memory"] == 0
            n_read = a.metric('baton_kv_disk_blocks_total{what="read"}')
            assert_pushed(c, b, a, want, TEXT)
            until("not counted", lambda: a.metric('baton_kv_disk_blocks_total{what="read"}') - n_read
                  == (want.serving["prompt"] - 1) // BLOCK)
            assert computed(a) == 0
            b.stop()  # the pushed blocks are in its cache now
            ready(b.start())
            linked(a, b)
        c.assert_quiet()


def a_peer_that_is_gone_costs_nothing():
    with Cluster() as c:
        a, b = pair(c)
        want = c.ask(TEXT, a.http, max_tokens=8)
        until("not told", lambda: known(b)["memory"] >= want.serving["prompt"] // BLOCK)
        a.kill(signal.SIGSTOP)  # until the link is known to be dead, the time of computing is the bound
        began = time.monotonic()
        got = c.ask(TEXT, b.http, max_tokens=8)
        took_s = time.monotonic() - began
        assert got.text == want.text and got.serving["transferred"] == 0, got.serving
        assert_adds_up(got)
        assert asks(b) == {"done": 0, "empty": 1}, asks(b)
        assert took_s < patience(10), took_s
        a.kill()
        until("its loss is not known", lambda: known(b) == {"memory": 0, "disk": 0})
        got = c.ask("Fresh: " + TEXT, b.http, max_tokens=8)
        assert got.serving["transferred"] == 0 and got.serving["computed"] == got.serving["prompt"], got.serving
        assert sum(asks(b).values()) == 1 and b.metric("baton_prefix_fetches_own_total") == 1, asks(b)
        c.assert_quiet()


def a_worker_with_the_feature_off_asks_no_peer():
    for first, second in (("auto", "off"), ("off", "auto"), ("off", "off")):
        with Cluster() as c:
            a, b = pair(c, first={"cache.prefix_fetch": first}, second={"cache.prefix_fetch": second})
            want = c.ask(TEXT, a.http, max_tokens=8)
            time.sleep(0.5)
            got = c.ask(TEXT, b.http, max_tokens=8)
            assert got.text == want.text and got.serving["computed"] == got.serving["prompt"], got.serving
            assert sum(asks(b).values()) == 0 and sum(known(b).values()) == 0, (asks(b), known(b))
            assert ("peer_blocks" in b.status()) == (second != "off")
            c.assert_quiet()


def tenants_stay_apart():
    """Both endpoints know the same keys; public prefixes are shared, and pushed, for all tenants."""
    question = "What is the KV cache? " * 20
    with Cluster() as c:
        keys, public, ann, bob = two_tenants(c)
        conf = {"http.api_keys": keys, "cache.public_prefix": public}
        a, b = pair(c, fetch="always", first=conf, second=conf)

        def received():  # the admin port: the other one needs a client's key
            lines = fetch(b.admin, "GET", "/metrics", headers={"authorization": f"Bearer {c.admin_token()}"})[2].decode().splitlines()
            return int(float(next(line for line in lines if line.startswith("baton_prefix_fetch_tokens_total ")).split()[1]))
        _, prompt = reads(a.http, ann, "Private. " + PUBLIC, question)
        _, longer = reads(a.http, ann, PUBLIC, question)
        c.assert_quiet()
        until("not told", lambda: b.status()["peer_blocks"]["in_memory"] == a.status()["blocks"]["cached"])
        assert reads(b.http, bob, "Private. " + PUBLIC, question)[0] == 0 == received(), "what is not declared is shared"
        shared = reads(b.http, bob, PUBLIC, question)[0]
        assert 0 < shared == received() < longer - len(question) // 8, (shared, received(), longer)
        again = reads(b.http, ann, "Private. " + PUBLIC, question)[0]
        assert again == (prompt - 1) // BLOCK * BLOCK == received() - shared, (again, prompt)
        c.assert_quiet()


def a_pair_follows_each_other_over_its_link():
    """No link.peers: the first hand-off made the link, and the decode worker's own endpoint asks the prefill worker over it."""
    with Cluster() as c:
        c.relay(placement__local_prefill_tokens="1")
        prefill, decode = c.workers
        assert c.ask("A short one, to be handed over. " * 4).serving["transferred"] > 0
        want = c.ask(TEXT, prefill.http, max_tokens=8)
        until("not told", lambda: known(decode)["memory"] >= want.serving["prompt"] // BLOCK)
        assert decode.status()["peer_blocks"]["followed"] == prefill.status()["peer_blocks"]["followed"] == 1
        assert_pushed(c, decode, prefill, want, TEXT)
        c.assert_quiet()


def a_router_that_does_not_know_is_helped():
    """A SUBMIT that names no owner: the worker searches its own map of peers' blocks."""
    with Cluster() as c:
        c.router(placement__prefix_fetch="off", placement__local_prefill_tokens="100000")
        a = c.worker("decode")
        b = c.worker("decode", link__peers=f"127.0.0.1:{a.link}")
        c.wait_ready(decode=2)
        linked(a, b)
        want = c.ask(TEXT, a.http, max_tokens=8)
        until("not told", lambda: known(b)["memory"] >= want.serving["prompt"] // BLOCK)
        drain = subprocess.run([f"{BUILD}/batonctl", "--cluster-key", c.key, "--admin", f"127.0.0.1:{a.admin}", "drain"],
                               capture_output=True, timeout=patience(10))
        assert drain.returncode == 0, drain.stderr
        until("still open", lambda: not any(row["usable"] for row in c.routers[0].status()["workers"] if row["node"] == a.name))
        got = c.ask(TEXT, max_tokens=8)
        assert got.text == want.text and got.serving["decode"] == b.name, got.serving
        assert got.serving["transferred"] == (want.serving["prompt"] - 1) // BLOCK * BLOCK, got.serving
        assert b.metric("baton_prefix_fetches_own_total") == 1 and c.routers[0].metric("baton_router_asks_total") == 0
        c.assert_quiet()


if __name__ == "__main__":
    main([a_prompt_of_one_endpoint_is_pushed_to_another, a_restarted_peer_pushes_from_disk, a_peer_that_is_gone_costs_nothing,
          a_worker_with_the_feature_off_asks_no_peer, tenants_stay_apart, a_pair_follows_each_other_over_its_link,
          a_router_that_does_not_know_is_helped])
