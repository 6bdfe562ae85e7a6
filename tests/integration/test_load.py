#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promises of admission, with real daemons and the simulated engine. A client that waits for the retry time is admitted,
and a long prompt goes to the prefill pool."""
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, fetch, in_threads, main  # noqa: E402

SIM = {"engine__kind": "sim", "engine__sim_answer_tokens": "100000", "sched__speculate": "off"}
LONG = {**SIM, "model__context": "131072", "kv__memory": "1GiB", "sched__chunk_tokens": "8192"}
rng = random.Random(5)


def completion(n_tokens, max_tokens=4):
    """An uncached prompt of exactly n tokens."""
    return {"model": "baton-demo", "max_tokens": max_tokens, "seed": 7, "prompt": [rng.randrange(300, 1000) for _ in range(n_tokens)]}


def post(port, body):
    """Status, Retry-After in seconds, and the answer."""
    status, fields, answer = fetch(port, "POST", "/v1/completions", body)
    return status, int(fields.get("retry-after", 0)), json.loads(answer)


def a_client_that_waits_for_retry_after_is_admitted():
    """The router refuses a part of a burst. Each refused client comes back at its retry-after, and is served."""
    with Cluster() as c:
        c.router(slo__ttft="1500ms", slo__itl="1s", placement__local_prefill_tokens="0")
        for role in ("prefill", "decode"):
            c.worker(role, **SIM, engine__sim_step="1ms", engine__sim_prefill_token="2ms", engine__sim_decode_seq="1ms")
        c.wait_ready(prefill=1, decode=1)
        assert post(c.routers[0].http, completion(200))[0] == 200
        bodies = [completion(200) for _ in range(14)]

        def client(body, i):
            time.sleep(0.01 * i)
            status, retry_s, _ = post(c.routers[0].http, body)
            if status == 200:
                return 0, 200
            assert status == 529 and retry_s >= 1, (status, retry_s)
            time.sleep(retry_s)
            return retry_s, post(c.routers[0].http, body)[0]

        results = in_threads([lambda body=body, i=i: client(body, i) for i, body in enumerate(bodies)])
        told = sorted(retry_s for retry_s, _ in results if retry_s > 0)
        print(f"   {len(results) - len(told)} of {len(results)} served at once, the others told {told} s")
        assert len(told) >= 5, results
        assert all(status == 200 for _, status in results), results
        c.assert_quiet()


def a_long_prompt_goes_to_the_prefill_pool():
    """60,000 tokens on an idle pair whose decode worker reads prompts a little faster."""
    with Cluster() as c:
        router = c.router()
        c.worker("prefill", **LONG, engine__sim_prefill_token="20us")
        c.worker("decode", **LONG, engine__sim_prefill_token="18us")
        c.wait_ready(prefill=1, decode=1)
        for n in (2000, 2000, 20000):  # the workers learn their speeds
            assert post(router.http, completion(n))[0] == 200
        handed_off = router.metric("baton_router_handed_off_total")
        for _ in range(3):
            status, _, answer = post(router.http, completion(60000))
            assert status == 200 and answer["usage"]["prompt_tokens"] == 60000, answer
        assert router.metric("baton_router_handed_off_total") == handed_off + 3
        c.assert_quiet()


if __name__ == "__main__":
    main([a_client_that_waits_for_retry_after_is_admitted, a_long_prompt_goes_to_the_prefill_pool])
