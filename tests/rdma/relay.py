# SPDX-License-Identifier: Apache-2.0
"""Three daemons in the test machine: a request through the pair, over verbs, against the same request on one worker alone.

The answer is compared character by character, and so are the log probabilities of its tokens with all their digits: every byte
of KV that the decode worker was given has a part in them.
"""
import json
import time

from cluster import Cluster, fetch, main

TRANSPORT = "rdma"
ADDRESS = "10.9.0.1"
PROMPT = "My name is Ada. What is the KV cache, and what is a hand-off?"  # short: the machine is emulated, and computes slowly

# The machine is slow: let heartbeats wait.
CALM = {"link__heartbeat": "3s", "log__level": "info"}
# A worker computes half a context when it starts, to know its speed.
SMALL = {"model__context": "48", "kv__block_tokens": "16", "kv__memory": "1MiB", "kv__grant_timeout": "60s"}


def ask(daemon):
    """The answer of a daemon, its tokens' log probabilities, and the serving stats."""
    body = {"model": "baton-demo", "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 4,
            "messages": [{"role": "user", "content": PROMPT}]}
    status, headers, answer = fetch(daemon.http, "POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    assert status == 200, (status, answer)
    choice = json.loads(answer)["choices"][0]
    serving = dict(part.split("=", 1) for part in headers["baton-proof"].split("; "))
    return choice["message"]["content"], choice["logprobs"]["content"], serving


def handed_off():
    began = time.monotonic()
    with Cluster() as c:
        c.router(**CALM)
        for role in ("prefill", "decode"):
            c.worker(role, kv__transport=TRANSPORT, kv__tcp_listen=f"{ADDRESS}:0", kv__rdma_devices="auto",
                     **SMALL, **CALM)
        c.wait_ready(prefill=1, decode=1)
        print(f"  ready after {time.monotonic() - began:.1f} s", flush=True)
        prefill, decode = c.workers
        text, draws, serving = ask(c.routers[0])
        print(f"  {serving}", flush=True)
        assert serving["transport"] == TRANSPORT and int(serving["transferred"]) > 0, (serving, decode.tail(30), prefill.tail(30))
        assert serving["prefill"] == "prefill0" and serving["decode"] == "decode0", serving
        assert int(serving["computed"]) + int(serving["reused"]) == int(serving["prompt"]), serving
        alone, draws_alone, _ = ask(prefill)
        assert text and text == alone, (text, alone)
        assert len(draws) == 8 and draws == draws_alone, (draws, draws_alone)
        c.assert_quiet()
        print(f"  {len(draws)} tokens, the same log probabilities: {[d['logprob'] for d in draws]}", flush=True)


if __name__ == "__main__":
    main([handed_off])
