#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompts that are longer than one SUBMIT: in pieces to one worker or to a pair, beside short ones, and given up in the middle."""
import json
import random
import socket
import threading

from cluster import Cluster, fetch, main

LONG = {"engine__kind": "sim", "engine__sim_step": "1us", "engine__sim_prefill_token": "0", "model__context": "262144",
        "kv__memory": "1GiB", "sched__chunk_tokens": "65536"}
N_LONG = 3 * 65536 + 7
rng = random.Random(7)


def body(n, **fields):
    return {"model": "baton-demo", "max_tokens": 3, "seed": 7, "prompt": [rng.randrange(300, 1000) for _ in range(n)], **fields}


def complete(daemon, request):
    status, _, answer = fetch(daemon.http, "POST", "/v1/completions", request)
    assert status == 200, (status, answer)
    return json.loads(answer)


def a_pair_reads_all_pieces():
    with Cluster() as c:
        router = c.router()
        c.worker("prefill", **LONG)
        decode = c.worker("decode", **LONG)
        c.wait_ready(prefill=1, decode=1)
        request = body(N_LONG)
        by_pair = complete(router, request)
        assert by_pair["usage"]["prompt_tokens"] == N_LONG, by_pair["usage"]
        assert by_pair["choices"][0]["text"] == complete(decode, request)["choices"][0]["text"]
        others = [threading.Thread(target=complete, args=(router, body(n))) for n in (N_LONG, 65536, 65537, 100, N_LONG)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()


def one_that_is_given_up_leaves_nothing():
    with Cluster() as c:
        router = c.router()
        c.worker("decode", **LONG)
        c.wait_ready(decode=1)
        data = json.dumps(body(N_LONG)).encode()
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", router.http)) as s:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        assert complete(router, body(N_LONG))["usage"]["prompt_tokens"] == N_LONG
        c.assert_quiet()


if __name__ == "__main__":
    main([a_pair_reads_all_pieces, one_that_is_given_up_leaves_nothing])
