# SPDX-License-Identifier: Apache-2.0
"""Routers know the content of workers' disks.  One of two workers has a disk.  It stops, is killed, or evicts the
prompt from memory.  The same prompt then goes to it and is read from its disk, although the other worker is idle.  No
worker asks it to push a prompt that it has only on disk.  The index forgets blocks that a disk drops."""
from cluster import Cluster, main
from test_prefix_fetch import use_only
from test_tier import BLOCK, TEXT, disk, ready, saved, until

PROMPTS = [f"{i}: {TEXT}" for i in range(3)]


def start(cluster, disk_size="256MiB", memory="64MiB", **settings):
    router = cluster.router(**settings)
    reader = cluster.worker("decode", **{"kv.disk_size": disk_size, "kv.disk_path": cluster.dir + "/store",
                                         "kv.memory": memory})
    other = cluster.worker("decode", **{"kv.memory": memory})
    cluster.wait_ready(decode=2)
    return router, reader, other


def computed(worker):
    return worker.metric('baton_worker_prompt_tokens_total{how="computed"}')


def ask(cluster, text):
    return cluster.ask(text, max_tokens=6)


def ask_reader(cluster, reader, other, texts):
    """Asks the reader while the other worker is drained."""
    use_only(cluster, [reader.name])
    answers = [ask(cluster, text) for text in texts]
    saved(reader)
    use_only(cluster, [reader.name, other.name])
    return answers


def known(router):
    return {tier: router.metric('baton_router_blocks_known{tier="%s"}' % tier) for tier in ("memory", "disk")}


def assert_read_back(cluster, router, reader, other, first, text):
    """Reads the first answer's blocks from disk; returns how many."""
    before = disk(reader, "read"), computed(other), router.metric("baton_router_reads_total")
    answer = ask(cluster, text)
    assert answer.text == first.text
    assert answer.serving["reused"] > BLOCK and answer.usage["cache_read_input_tokens"] > BLOCK, (answer.serving, answer.usage)
    assert answer.serving["transferred"] == 0, answer.serving
    assert answer.usage["cache_read_input_tokens"] == answer.serving["reused"], (answer.serving, answer.usage)
    until("not counted", lambda: disk(reader, "read") > before[0])
    assert computed(other) == before[1], "the idle one computed it"
    assert router.metric("baton_router_reads_total") == before[2] + 1
    return answer.serving["reused"] // BLOCK


def a_restarted_worker_gets_its_prompts_back():
    with Cluster() as c:
        router, reader, other = start(c)
        first = ask_reader(c, reader, other, PROMPTS)
        for how in ("stop", "kill"):
            reader.stop() if how == "stop" else reader.kill()
            until("its loss is not known", lambda: known(router) == {"memory": 0, "disk": 0})
            ready(reader.start())
            use_only(c, [reader.name, other.name])
            n_disk = reader.status()["disk"]["blocks"]
            until("its disk is not known", lambda: known(router) == {"memory": 0, "disk": n_disk})
            status = router.status()
            assert (status["indexed_blocks"], status["indexed_on_disk_only"]) == (n_disk, n_disk), status
            rows = {row["node"]: row for row in status["workers"]}
            assert rows[reader.name]["blocks_on_disk"] == n_disk and rows[reader.name]["read_bytes_per_s"] > 0, rows
            assert rows[other.name]["blocks_on_disk"] == rows[other.name]["read_bytes_per_s"] == 0, rows
            n_read = 0
            for answer, text in zip(first, PROMPTS):
                n_read += assert_read_back(c, router, reader, other, answer, text)
            # The blocks read from disk are in memory; the answers' blocks may have come in addition.
            until("it is not known to be back", lambda: known(router)["memory"] >= n_read)
            n_reads = router.metric("baton_router_reads_total")
            assert ask(c, PROMPTS[0]).text == first[0].text
            assert router.metric("baton_router_reads_total") == n_reads, "memory counts before disk"
        c.assert_quiet()


def a_prefill_worker_reads_for_its_pair():
    with Cluster() as c:
        router = c.router()
        reader = c.worker("prefill", kv__disk_size="256MiB", kv__disk_path=c.dir + "/store")
        other, decode = c.worker("prefill"), c.worker("decode")
        c.wait_ready(prefill=2, decode=1)
        use_only(c, [reader.name, decode.name])
        first = ask(c, PROMPTS[0])
        saved(reader)
        for worker in (reader, decode):
            worker.kill()
            ready(worker.start())
        use_only(c, [reader.name, other.name, decode.name])
        until("its disk is not known", lambda: known(router)["disk"] > 0)
        before = computed(other)
        answer = ask(c, PROMPTS[0])
        assert answer.text == first.text
        assert answer.serving["reused"] > BLOCK and answer.serving["transferred"] > 0, answer.serving
        assert answer.usage["cache_read_input_tokens"] > BLOCK, answer.usage
        until("not counted", lambda: disk(reader, "read") > 0)
        assert computed(other) == before and router.metric("baton_router_reads_total") == 1
        c.assert_quiet()


def an_evicted_prompt_is_read_back():
    """Events, not a snapshot, report the blocks on disk.  (Half of the pool has room for all of them.)"""
    with Cluster() as c:
        router, reader, other = start(c, memory="12MiB")
        first = ask_reader(c, reader, other, PROMPTS[:1])[0]
        assert known(router)["disk"] == 0
        ask_reader(c, reader, other, [f"{i} is another. {TEXT}" for i in range(8)])
        until("it was not evicted", lambda: known(router)["disk"] >= 2)
        assert_read_back(c, router, reader, other, first, PROMPTS[0])
        c.assert_quiet()


def a_worker_with_blocks_on_disk_sends_no_fetch():
    with Cluster() as c:
        router, reader, other = start(c, placement__prefix_fetch="always")
        first = ask_reader(c, reader, other, PROMPTS[:1])[0]
        reader.kill()
        ready(reader.start())
        use_only(c, [other.name])
        until("its disk is not known", lambda: known(router)["disk"] > 0)
        answer = ask(c, PROMPTS[0])
        assert answer.text == first.text and answer.serving["reused"] == answer.serving["transferred"] == 0, answer.serving
        assert router.metric("baton_router_asks_total") == 0
        # Now the other worker has the prompt in memory. The worker with the disk may get a push, and computes nothing.
        use_only(c, [reader.name])
        answer = ask(c, PROMPTS[0])
        assert answer.text == first.text and answer.serving["computed"] < 2 * BLOCK, answer.serving
        assert router.metric("baton_router_asks_total") == 1
        c.assert_quiet()


def blocks_dropped_by_a_disk_leave_the_index():
    """A small disk: blocks that it dropped are in no tier, and the index follows."""
    with Cluster() as c:
        router, reader, other = start(c, memory="6MiB", disk_size="24MiB")
        use_only(c, [reader.name])
        for i in range(40):
            ask(c, f"{i} is the number of this. {TEXT}")
            saved_or_full(reader)
            if reader.metric('baton_kv_disk_blocks_total{what="dropped"}') > 0:
                break

        def is_known():
            status = reader.status()
            row = {r["node"]: r for r in router.status()["workers"]}[reader.name]
            return known(router)["disk"] <= status["disk"]["blocks"] == row["blocks_on_disk"]
        until("more is believed than there is", is_known)
        assert reader.metric('baton_kv_disk_blocks_total{what="dropped"}') > 0
        assert known(router)["disk"] > 0
        c.assert_quiet()


def saved_or_full(worker):
    until("blocks are not saved", lambda: worker.status()["disk"]["writeback"] == 0 == worker.status()["disk"]["writing"])


if __name__ == "__main__":
    main([a_restarted_worker_gets_its_prompts_back, a_prefill_worker_reads_for_its_pair,
          an_evicted_prompt_is_read_back, a_worker_with_blocks_on_disk_sends_no_fetch, blocks_dropped_by_a_disk_leave_the_index])
