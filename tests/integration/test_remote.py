# SPDX-License-Identifier: Apache-2.0
"""The remote tier with real daemons and a real Redis server.  A worker reads what another one wrote, with the same
tokens, also after that one is gone.  Logins and certificates of the store are checked."""
import os
import time

import redis_server
from cluster import Cluster, main
from redis_server import Redis
from test_tier import BLOCK, TEXT, ready, until

RECORD = 80 + 3072 * BLOCK  # bytes of a sealed block of the bundled model
RUN = 16                    # blocks of a value, at most
LINES = [f"Line {i} of a long document that is asked about more than once." for i in range(60)]


def text_of(name):
    return f"Document {name}. " + " ".join(LINES)


def worker_of(cluster, url, **settings):
    return ready(cluster.worker("decode", **{"kv.remote": url, "kv.remote_flush": "0s", "cache.prefix_fetch": "off",
                                             **{k.replace("__", "."): v for k, v in settings.items()}}))


def remote(worker, what):
    """None: the worker has not reported its remote tier yet."""
    return worker.status().get("remote", {}).get(what)


def blocks(worker, what):
    return worker.status()["blocks"][what]


def up(worker):
    until("the store is not used", lambda: remote(worker, "up"))
    return worker


def ask(cluster, worker, text=TEXT):
    return cluster.ask(text, port=worker.http, max_tokens=12)


def lines(worker, event):
    with open(worker.log_path, encoding="utf-8") as f:
        return sum(event in line for line in f)


def n_stored(store, keys=None):
    """Blocks in the values of a server."""
    lengths = [store("STRLEN", key) for key in keys or store.keys()]
    assert all(0 < n <= RUN * RECORD and n % RECORD == 0 for n in lengths), lengths
    return sum(lengths) // RECORD


def n_written(worker):
    return remote(worker, "written") + remote(worker, "existed")


def twice(cluster, worker, text=TEXT):
    """Asks twice, so that the prompt's blocks are written; returns the first answer and the second."""
    n_before = n_written(worker)
    first = ask(cluster, worker, text)
    again = ask(cluster, worker, text)
    assert again.text == first.text and again.serving["reused"] > 0, again.serving
    until("blocks are not written", lambda: n_written(worker) >= n_before + again.serving["reused"] // BLOCK)
    return first, again


def reads(cluster, url, first, again, text=TEXT, **settings):
    """Another worker reads all blocks of the prompt.  A busy host may answer its question too late: then one more."""
    for _ in range(4):
        worker = up(worker_of(cluster, url, **settings))
        got = ask(cluster, worker, text)
        assert got.text == first.text and got.usage["output_tokens"] == first.usage["output_tokens"]
        if got.serving["reused"] == again.serving["reused"]:
            return worker, got
        assert remote(worker, "late") > 0, (got.serving, again.serving, worker.status()["remote"])
        worker.stop()
    raise AssertionError("the store is always late")


def another_worker_reads_them():
    with Cluster() as c, Redis() as store:
        a = up(worker_of(c, store.url))
        first = ask(c, a)
        assert remote(a, "written") == 0 and not store.keys()  # one use is not enough
        again = ask(c, a)
        n_blocks = again.serving["reused"] // BLOCK
        until("blocks are not written", lambda: n_written(a) == n_blocks)
        assert n_stored(store) == n_blocks == remote(a, "written"), (store.keys(), again.serving)
        assert len(store.keys()) == -(-n_blocks // RUN), (store.keys(), n_blocks)  # in runs, as few as possible
        assert all(0 < store("TTL", key) <= 86400 for key in store.keys())
        a.kill()
        b, got = reads(c, store.url, first, again)
        assert got.usage["cache_read_input_tokens"] == got.serving["reused"], got.usage
        until("not counted", lambda: remote(b, "read") == n_blocks)
        assert b.metric('baton_kv_remote_blocks_total{what="read"}') <= n_blocks
        # Blocks that came from the store are not written to it again.
        ask(c, b)
        time.sleep(0.3)
        assert remote(b, "written") + remote(b, "existed") == 0
        c.assert_quiet()


def prompts_that_part_share_their_beginning():
    """A prompt that shares a part of a run with another one: that part becomes a value of its own, and is read from it."""
    with Cluster() as c, Redis() as store:
        a = up(worker_of(c, store.url))
        long, begin = text_of("parting"), text_of("parting")[:1800]
        twice(c, a, long)
        n_keys, n_before = len(store.keys()), n_written(a)
        other = ask(c, a, begin + "From here on it is another document. " * 20)
        shared = other.serving["reused"] // BLOCK
        assert shared % RUN != 0, shared  # within a run
        until("the shared part is not written", lambda: n_written(a) > n_before)
        until("it is not one value", lambda: len(store.keys()) == n_keys + 1)
        third = begin + "A third document parts from them. " * 20
        for _ in range(4):
            b = up(worker_of(c, store.url))
            got = ask(c, b, third)
            if got.serving["reused"] == shared * BLOCK:
                break
            assert remote(b, "late") > 0, (got.serving, b.status()["remote"])
            b.stop()
        assert got.serving["reused"] == shared * BLOCK and got.text == ask(c, a, third).text, got.serving
        c.assert_quiet()


def a_part_of_a_value_is_read():
    """A worker with the beginning of a run in memory reads the rest of it."""
    with Cluster() as c, Redis() as store:
        a = up(worker_of(c, store.url))
        long = text_of("part")
        first, again = twice(c, a, long)
        for _ in range(4):
            b = up(worker_of(c, store.url))
            begin = ask(c, b, long[:700])  # it finds nothing: no value ends within it
            assert begin.serving["reused"] == 0 and remote(b, "read") == 0
            n_here = begin.serving["prompt"] // BLOCK
            got = ask(c, b, long)
            assert got.text == first.text
            if got.serving["reused"] == again.serving["reused"]:
                break
            assert remote(b, "late") > 0, (got.serving, again.serving, b.status()["remote"])
            b.stop()
        n_all = again.serving["reused"] // BLOCK
        until("not counted", lambda: remote(b, "read") >= n_all - n_here)
        assert remote(b, "read") < n_all and n_here % RUN != 0, (b.status()["remote"], n_all, n_here)
        c.assert_quiet()


def a_read_keeps_the_beginning_that_it_completes():
    """A full pool has evicted the end of a prompt, and would evict its beginning next."""
    with Cluster() as c, Redis() as store:
        a = up(worker_of(c, store.url, kv__memory="12MiB"))
        for i in range(4):
            long = text_of(f"long {i}")
            first, again = twice(c, a, long)
            n_all, n = again.serving["reused"] // BLOCK, 0
            evicted = blocks(a, "evicted")
            while blocks(a, "evicted") < evicted + 5:
                misses, n = blocks(a, "misses"), n + 1
                ask(c, a, text_of(f"other {i} {n}")[:500])
                until("not reported", lambda m=misses: blocks(a, "misses") > m)
            n_late, n_read = remote(a, "late"), remote(a, "read")
            got = ask(c, a, long)
            assert got.text == first.text
            if remote(a, "late") == n_late:
                break
        else:
            raise AssertionError("the store is always late")
        assert got.serving["reused"] == n_all * BLOCK, (got.serving, again.serving)
        until("not counted", lambda: 0 < remote(a, "read") - n_read < n_all)
        c.assert_quiet()


def a_worker_that_stops_leaves_its_cache():
    with Cluster() as c, Redis() as store:
        a = up(worker_of(c, store.url, kv__remote_flush="20s"))
        first = ask(c, a)
        a.stop()
        assert lines(a, "kv_remote_flushed") == 1 and n_stored(store) >= first.serving["prompt"] // BLOCK
        b = up(worker_of(c, store.url))
        got = ask(c, b)
        assert got.text == first.text and got.serving["reused"] >= first.serving["prompt"] // BLOCK * BLOCK - BLOCK
        c.assert_quiet()


def what_the_store_lost_is_written_again():
    """At a later use, and by a worker that stops."""
    with Cluster() as c, Redis() as store:
        a = up(worker_of(c, store.url, kv__remote_flush="20s", kv__remote_lifetime="1h"))
        b = up(worker_of(c, store.url, kv__remote_lifetime="1s"))
        _, again = twice(c, a)
        n_blocks = again.serving["reused"] // BLOCK
        assert n_stored(store) == n_blocks
        store("FLUSHALL")
        twice(c, b, TEXT + " And more.")
        until("it is still there", lambda: not store.keys())
        until("it is not written again", lambda: ask(c, b, TEXT + " And more.") and n_stored(store) >= n_blocks)
        b.kill()
        store("FLUSHALL")
        ask(c, a)
        assert not store.keys()
        a.stop()
        assert n_stored(store) >= n_blocks
        c.assert_quiet()


def logins_and_certificates_are_checked():
    with Cluster() as c:
        good = redis_server.certificate(c.dir, "good")
        old = redis_server.certificate(c.dir, "old", days=-1)
        login = c.dir + "/login"
        with open(login, "w", encoding="ascii") as f:
            f.write("baton:right\n")
        os.chmod(login, 0o600)
        acl = ["--user", "default", "off", "--user", "baton", "on", ">right", "~baton:*", "+@all", "-@admin"]
        with Redis(*acl, tls=good) as store, Redis(tls=old) as expired:
            a = up(worker_of(c, store.url, kv__remote_login=login, kv__remote_ca=good[0]))
            first, again = twice(c, a)
            reads(c, f"rediss://baton:right@127.0.0.1:{store.port}", first, again, kv__remote_ca=good[0])
            for url, ca, why in ((f"rediss://baton:wrong@127.0.0.1:{store.port}", good[0], "WRONGPASS"),
                                 (f"rediss://baton:right@127.0.0.1:{store.port}", old[0], "TLS: self-signed"),
                                 (expired.url, old[0], "certificate has expired"),
                                 (f"redis://127.0.0.1:{store.port}", "", "")):
                worker = worker_of(c, url, kv__remote_ca=ca)
                until("nothing is said of " + url, lambda w=worker: lines(w, "kv_remote_down") == 1)
                assert lines(worker, why) >= 1 and lines(worker, "wrong") == lines(worker, "baton:") == 0, (url, worker.tail())
                got = ask(c, worker)
                assert got.text == first.text and got.serving["reused"] == 0
                worker.stop()
        c.assert_quiet()


if __name__ == "__main__":
    redis_server.want()
    main([another_worker_reads_them, prompts_that_part_share_their_beginning, a_part_of_a_value_is_read,
          a_read_keeps_the_beginning_that_it_completes, a_worker_that_stops_leaves_its_cache,
          what_the_store_lost_is_written_again, logins_and_certificates_are_checked])
