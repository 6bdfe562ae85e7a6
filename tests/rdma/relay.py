# SPDX-License-Identifier: Apache-2.0
"""Three daemons in the test machine: a request through the pair, over verbs, against the same request on one worker.

The answer is compared token by token, and so are the log probabilities with all their digits: they come from every byte of
KV that the decode worker was given.
"""
import time

from cluster import Cluster, main

TRANSPORT = "tcp"
ADDRESS = "10.9.0.1"
PROMPT = "My name is Ada. What is the KV cache, and what is a hand-off?" # two blocks; an emulated machine computes slowly
FIELDS = {"max_tokens": 8, "temperature": 0}


def handed_off():
    began = time.monotonic()
    with Cluster() as c:
        c.router()
        settings = {"kv__transport": TRANSPORT}
        c.worker("prefill", **settings)
        c.worker("decode", **settings)
        c.wait_ready(prefill=1, decode=1)
        prefill, decode = c.workers
        print(f"  ready after {time.monotonic() - began:.1f} s", flush=True)
        answer = c.ask(PROMPT, **FIELDS)
        print(f"  {answer.proof}", flush=True)
        alone = c.ask(PROMPT, port=prefill.http, **FIELDS)
        assert answer.text and answer.text == alone.text, (answer.text, alone.text)
        proof = answer.proof
        assert proof["transport"] == TRANSPORT and proof["transferred"] > 0, proof
        assert proof["prefill"] == "prefill0" and proof["decode"] == "decode0", proof
        assert proof["computed"] + proof["reused"] == proof["prompt"], proof
        c.assert_quiet()


if __name__ == "__main__":
    main([handed_off])
