# SPDX-License-Identifier: Apache-2.0
"""Three daemons in the test machine: a request through the pair, over verbs, against the same request on one worker.

The answer is compared token by token, and so are the log probabilities with all their digits: they come from every byte of
KV that the decode worker was given.
"""
import sys

from cluster import Cluster, main

TRANSPORT = "tcp"
ADDRESS = "10.9.0.1"
LONG = ("Please remember: my name is Ada Lovelace, my favourite colour is teal and the port is 4711. "
        "Tell me, what is the KV cache, what is a hand-off, and why are prefill and decode pulled apart in Baton? ")


def handed_off():
    with Cluster() as c:
        c.router()
        settings = {"kv__transport": TRANSPORT}
        c.worker("prefill", **settings)
        c.worker("decode", **settings)
        c.wait_ready(prefill=1, decode=1)
        prefill, decode = c.workers
        answer = c.ask(LONG, max_tokens=24)
        alone = c.ask(LONG, port=prefill.http, max_tokens=24)
        assert answer.text and answer.text == alone.text, (answer.text, alone.text)
        proof = answer.proof
        assert proof["transport"] == TRANSPORT and proof["transferred"] > 0, proof
        assert proof["prefill"] == "prefill0" and proof["decode"] == "decode0", proof
        assert proof["computed"] + proof["reused"] == proof["prompt"], proof
        print(f"  {proof}", flush=True)
        c.assert_quiet()


if __name__ == "__main__":
    main([handed_off])
