# SPDX-License-Identifier: Apache-2.0
"""Faults of the remote tier's store, a real Redis server.  Whatever it does to values, room and time, every answer is
the same as without it, and comes about as early."""
import os
import time

import redis_server
from cluster import Cluster, main
from redis_server import Redis
from test_remote import ask, lines, remote, text_of, twice, up, worker_of
from test_tier import until


def wrong_values_give_right_answers():
    """Under right keys: cut values, values of other blocks, flipped bits, rubbish, and other types."""
    with Cluster() as c, Redis() as store:
        a, b = up(worker_of(c, store.url)), up(worker_of(c, store.url))
        ways = {"cut": lambda value, other: value[:len(value) // 2], "other": lambda value, other: other,
                "bits": lambda value, other: value[:5000] + bytes([value[5000] ^ 1]) + value[5001:],
                "rubbish": lambda value, other: os.urandom(len(value)), "empty": lambda value, other: b""}
        for name, spoil in ways.items():
            first, _ = twice(c, a, text_of(name))
            keys = store.keys()
            values = [store("GET", key) for key in keys]
            for i, key in enumerate(keys):
                store("SET", key, spoil(values[i], values[i - 1]))
            n_damaged = remote(b, "damaged")
            got = ask(c, b, text_of(name))
            assert got.text == first.text, (name, got.text, first.text)
            until("no damage was found: " + name, lambda n=n_damaged: remote(b, "damaged") > n)
            store("FLUSHALL")
            until("the store is not used again", lambda: remote(b, "up"))
        first, _ = twice(c, a, text_of("type"))
        for key in store.keys():
            store("DEL", key)
            store("LPUSH", key, "no string")
        assert ask(c, b, text_of("type")).text == first.text
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
        store("CONFIG", "SET", "maxmemory", "3mb")
        for i in range(4, 8):
            first, _ = twice(c, a, text_of(i))
            assert ask(c, b, text_of(i)).text == first.text
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
