# SPDX-License-Identifier: Apache-2.0
"""Faults of the remote tier's store, a real Redis server.  Whatever it does to values, room and time, every answer is
the same as without it, and comes about as early."""
import os
import time

import redis_server
from cluster import Cluster, main
from redis_server import Redis
from test_remote import RECORD, ask, lines, n_written, remote, text_of, twice, up, worker_of
from test_tier import until


def wrong_values_give_right_answers():
    """Under right keys: values of other blocks, flipped bits, rubbish, cut and empty values, and other types."""
    with Cluster() as c, Redis() as store:
        a, b = up(worker_of(c, store.url)), up(worker_of(c, store.url))
        ways = {"other": lambda value, other: other,
                "bits": lambda value, other: value[:5000] + bytes([value[5000] ^ 1]) + value[5001:],
                "rubbish": lambda value, other: os.urandom(len(value))}
        for name, spoil in ways.items():
            first, _ = twice(c, a, text_of(name))
            keys = store.keys()
            values = [store("GET", key) for key in keys]
            for i, key in enumerate(keys):
                other = max(values[:i] + values[i + 1:], key=len)
                store("SET", key, spoil(values[i], other[:len(values[i])]))
            n_damaged = remote(b, "damaged")
            got = ask(c, b, text_of(name))
            assert got.text == first.text, (name, got.text, first.text)
            until("no damage was found: " + name, lambda n=n_damaged: remote(b, "damaged") > n)
            store("FLUSHALL")
            until("the store is not used again", lambda: remote(b, "up"))
        # A value that was cut is a run with fewer blocks: the last ones, which are of no use without the others.  A worker
        # that computed the others writes them, and what is not whole is found by the next one that reads.
        for n_left in (RECORD, RECORD + RECORD // 2, RECORD // 2):
            store("FLUSHALL")
            first, again = twice(c, a, text_of(n_left))
            for key in store.keys():
                store("SET", key, store("GET", key)[:n_left])
            n_damaged, n_before = remote(b, "damaged"), n_written(b)
            got = ask(c, b, text_of(n_left))
            assert got.text == first.text and got.serving["reused"] < again.serving["reused"], (got.serving, again.serving)
            assert remote(b, "damaged") == n_damaged
            until("it is not written again", lambda t=text_of(n_left), n=n_before, x=first.text:
                  ask(c, b, t).text == x and n_written(b) > n)
            d = up(worker_of(c, store.url))
            assert ask(c, d, text_of(n_left)).text == first.text
            until("no damage was found", lambda: remote(d, "damaged") > 0 or n_left >= RECORD or remote(d, "late") > 0)
            until("nothing is read", lambda: remote(d, "read") > 0 or remote(d, "late") > 0)
            d.stop()
        # Empty values and those of another type count as not there; a worker that has the blocks replaces them.
        for name in ("empty", "type"):
            store("FLUSHALL")
            first, _ = twice(c, a, text_of(name))
            keys = store.keys()
            for key in keys:
                store("DEL", key)
                store("SET", key, "") if name == "empty" else store("LPUSH", key, "no string")
            assert ask(c, b, text_of(name)).text == first.text
            until("nothing is written: " + name, lambda: ask(c, b, text_of(name)).text == first.text
                  and any(store("TYPE", key) == b"string" and store("STRLEN", key) >= RECORD for key in store.keys()))
        c.assert_quiet()


def what_is_evicted_is_computed():
    with Cluster() as c, Redis() as store:
        a, b = up(worker_of(c, store.url)), up(worker_of(c, store.url))
        for i in range(4):
            first, _ = twice(c, a, text_of(i))
            keys = store.keys()
            for key in keys[i::3]:
                store("DEL", key)
            assert ask(c, b, text_of(i)).text == first.text
        # A store that evicts while it is read.
        store("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        store("CONFIG", "SET", "maxmemory", "12mb")  # three prompts, or less: what is being written counts
        for i in range(4, 12):
            first, _ = twice(c, a, text_of(i))
            assert ask(c, b, text_of(i)).text == first.text
        assert int(store("INFO", "stats").split(b"evicted_keys:")[1].split()[0]) > 0
        c.assert_quiet()


def a_full_store_is_no_obstacle():
    with Cluster() as c, Redis("--maxmemory-policy", "noeviction") as store:
        a = up(worker_of(c, store.url))
        assert lines(a, "noeviction") == lines(a, "maxmemory is 0") == 1
        twice(c, a)
        store("CONFIG", "SET", "maxmemory", "1mb")
        first = ask(c, a, text_of("full"))
        assert ask(c, a, text_of("full")).text == first.text
        until("it is not full", lambda: remote(a, "full"))
        for i in range(3):
            ask(c, a, text_of("full"))
        assert lines(a, "kv_remote_full") == 1 and remote(a, "up")
        b = up(worker_of(c, store.url))
        assert ask(c, b).serving["reused"] > 0  # it is still read
        c.assert_quiet()


def a_store_that_is_gone_or_stands_still_costs_nothing():
    with Cluster() as c, Redis() as store:
        a, b = up(worker_of(c, store.url)), up(worker_of(c, store.url))
        texts = [text_of(i) for i in range(3)]
        firsts = [twice(c, a, text)[0] for text in texts]
        store.pause()
        for text, first in zip(texts, firsts):
            assert ask(c, b, text).text == first.text
        until("it is still used", lambda: not remote(b, "up"))
        # Given up: the first token waits for nothing.
        n_asked = remote(b, "asked")
        for i in range(3):
            assert ask(c, b, text_of("more %d" % i)).is_whole
        assert remote(b, "asked") == n_asked
        store.resume()
        until("it is not used again", lambda: remote(b, "up"))
        assert lines(b, "kv_remote_down") == 1, lines(b, "kv_remote_down")
        store.kill()
        until("the kill is not seen", lambda: ask(c, b, text_of(time.monotonic())).is_whole and not remote(b, "up"))
        assert lines(b, "kv_remote_down") == 2
        store.start()
        until("it is not used again", lambda: remote(b, "up"))
        first, _ = twice(c, b, text_of("after"))
        until("it does not write", lambda: len(store.keys()) > 0)
        assert lines(b, "kv_remote_up") == 3
        c.assert_quiet()


if __name__ == "__main__":
    redis_server.want()
    main([wrong_values_give_right_answers, what_is_evicted_is_computed, a_full_store_is_no_obstacle,
          a_store_that_is_gone_or_stands_still_costs_nothing])
