# SPDX-License-Identifier: Apache-2.0
"""Recurrent state in the remote tier, with a real Redis server: another worker finds the prompt with its state, to the
last block, and answers with the same tokens."""
import redis_server
import test_hybrid
import test_mamba
from cluster import Cluster, main
from redis_server import Redis
from test_remote import n_written, remote, up, worker_of
from test_tier import until

FAMILIES = {"qwen35": "--set ssm.state_size=16 --set ssm.group_count=2 --set ssm.time_step_rank=4 --set ssm.inner_size=64",
            "nemotron_h": test_mamba.test_hybrid.FAMILIES["nemotron_h"]}


def ask(c, worker, text=test_hybrid.TEXT):
    return test_hybrid.ask(c, text, port=worker.http, max_tokens=24)


def settled(worker):
    """Waits until no more blocks are written."""
    seen = []

    def is_still():
        seen.append(n_written(worker))
        return len(seen) > 10 and seen[-1] > 0 and len(set(seen[-10:])) == 1
    until("blocks are still written", is_still)


def another_worker_reads_the_state():
    test_hybrid.FAMILIES = FAMILIES
    for family in FAMILIES:
        with Cluster() as c, Redis() as store:
            settings = {"model__path": test_hybrid.model(c, family), "model__name": test_hybrid.NAME}
            a = up(worker_of(c, store.url, **settings))
            first = ask(c, a)
            again = ask(c, a)
            assert again.text == first.text and again.serving["reused"] == test_hybrid.whole_blocks(again), again.serving
            settled(a)
            a.kill()
            for _ in range(4):  # a busy host may be too late for the question, or find computing faster: then one more worker
                b = up(worker_of(c, store.url, **settings))
                got = ask(c, b)
                assert got.text == first.text, (got.text, first.text)
                if got.serving["reused"] == test_hybrid.whole_blocks(got):
                    break
                b.stop()
            else:
                raise AssertionError(("the store is never read", family, got.serving))
            until("the blocks of the state are not read",
                  lambda b=b, n=got.serving["reused"] // test_hybrid.BLOCK: remote(b, "read") > n)
            c.assert_quiet()


if __name__ == "__main__":
    redis_server.want()
    main([another_worker_reads_the_state])
