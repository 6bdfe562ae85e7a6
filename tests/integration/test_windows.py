# SPDX-License-Identifier: Apache-2.0
"""Models with sliding windows through the whole relay.  Hand-off, prefix fetch, disk tier and remote tier move only
the windowed layers' blocks of the last window. Every answer equals the answer of a worker that computes the whole prompt.

The models have random weights.  Their prompts are several windows long, and bytes are counted exactly."""
import os
import subprocess
import sys

import redis_server
from cluster import BUILD, MODEL, Cluster, in_threads, main
from redis_server import Redis
from test_prefix_fetch import use_only
from test_tier import ready, until

BLOCK, NAME = 32, "windowed"
TEXT = " ".join(f"Line {i} of a text that is asked about on several ways." for i in range(56))
LAYERS, WIDTH, KV_HEADS = 6, 16, 2
SHAPE = (f"--layers {LAYERS} --hidden 64 --heads 4 --head-dim {WIDTH} --kv-heads {KV_HEADS} --ffn 96 --context 4096 --type F32 "
         f"--vocab-from {MODEL}").split()
# family: its keys, window, layers that attend to all keys
FAMILIES = {
    "gemma3": ("--set attention.sliding_window=100 --set attention.sliding_window_pattern=6", 100, 1),
    "gemma2": ("--set attention.sliding_window=64", 64, 3),
}


class Shape:
    """The content of a family's blocks."""
    def __init__(self, family, piece_bytes=2 * KV_HEADS * BLOCK * WIDTH * 2):
        _, self.window, self.full = FAMILIES[family]
        self.groups = -(-(LAYERS - self.full) // self.full)
        self.block_bytes = self.full * piece_bytes

    def handoff(self, n_tokens, n_here=0):
        """Blocks that a prompt's hand-off sends to a worker that has its first n_here."""
        n_blocks = -(-n_tokens // BLOCK)
        first = max(0, (n_tokens - 1) // BLOCK * BLOCK - self.window + 1) // BLOCK
        return n_blocks - n_here + self.groups * (n_blocks - max(first, n_here))

    def tail(self, n_blocks):
        return self.groups * min(n_blocks, -(-(self.window - 1) // BLOCK))


def model(c, family):
    path = os.path.join(c.dir, family + ".gguf")
    if not os.path.exists(path):
        command = [os.path.join(BUILD, "baton-model"), "make", "--arch", family, *SHAPE, *FAMILIES[family][0].split(), path]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def ask(c, text, **fields):
    return c.ask(text, model=NAME, **fields)


def whole_blocks(answer):
    return (answer.serving["prompt"] - 1) // BLOCK * BLOCK


def handed_off(family, transport, piece_bytes=None, **settings):
    shape = Shape(family, piece_bytes) if piece_bytes else Shape(family)
    with Cluster() as c:
        settings.update(model__path=model(c, family), model__name=NAME)
        c.router(**{"placement.prefix_fetch": "off"})
        for role in ("prefill", "decode"):
            c.worker(role, **settings)
        c.wait_ready(prefill=1, decode=1)
        _, decode = c.workers
        first = ask(c, TEXT, max_tokens=24)
        assert first.serving["transport"] == transport and first.serving["transferred"] > 5 * shape.window, first.serving
        n_bytes = decode.metric("baton_transfer_received_bytes_total")
        assert n_bytes == shape.handoff(first.serving["prompt"]) * shape.block_bytes, (n_bytes, first.serving)

        prompts = [f"Number {i}. " + TEXT for i in range(4)]
        through = in_threads([lambda p=p: ask(c, p, max_tokens=48) for p in prompts])
        for prompt, answer in zip(prompts, through):
            assert answer.serving["transferred"] > 0, answer.serving
            alone = ask(c, "One worker. " + prompt, port=decode.http, max_tokens=48)
            both = ask(c, "One worker. " + prompt, max_tokens=48)
            assert alone.text == both.text, (alone.text, both.text)
            again = ask(c, prompt, port=decode.http, max_tokens=48)
            assert again.text == answer.text, (again.text, answer.text)
            assert again.serving["reused"] == whole_blocks(again), again.serving
        c.assert_quiet()


def a_handoff_sends_the_last_window_only():
    handed_off("gemma3", "shm")


def it_does_so_over_tcp_with_quantised_keys():
    runs = KV_HEADS * BLOCK  # rows of 16 numbers: one run of 32 with a scale each
    handed_off("gemma2", "tcp", 2 * runs * 34, kv__transport="tcp", kv__tcp_encrypt="no", kv__type="q8_0")


def at_rest(worker):
    until("blocks wait to be saved", lambda: worker.status()["disk"]["writeback"] == 0 == worker.status()["disk"]["writing"])


def a_restarted_worker_reads_the_last_window_from_disk():
    for family in FAMILIES:
        shape = Shape(family)
        with Cluster() as c:
            c.router()
            worker = c.worker("decode", model__path=model(c, family), model__name=NAME, kv__disk_size="256MiB",
                              kv__disk_path=c.dir + "/store")
            ready(worker)
            first = ask(c, TEXT, port=worker.http, max_tokens=1)
            n_blocks = first.serving["prompt"] // BLOCK
            until("nothing is saved", lambda: worker.status()["disk"]["blocks"] >= n_blocks)
            at_rest(worker)
            # The end of the prompt, and the block before it, are where the next request may continue.
            n_disk = worker.status()["disk"]["blocks"]
            assert n_blocks < n_disk <= n_blocks + shape.tail(n_blocks) + shape.groups, (n_disk, n_blocks)
            worker.stop()
            ready(worker.start())
            second = ask(c, TEXT, port=worker.http, max_tokens=24)
            assert second.serving["reused"] == whole_blocks(second), second.serving
            third = ask(c, "Anew. " + TEXT, port=worker.http, max_tokens=24)
            assert third.serving["reused"] == 0, third.serving
            worker.stop()
            subprocess.run(["rm", "-rf", c.dir + "/store"], check=True)
            ready(worker.start())
            fresh = ask(c, TEXT, port=worker.http, max_tokens=24)
            assert fresh.serving["reused"] == 0 and fresh.text == second.text, (fresh.text, second.text)
            c.assert_quiet()


def a_prefix_fetch_brings_the_last_window():
    for family in FAMILIES:
        shape = Shape(family)
        with Cluster() as c:
            c.router(placement__prefix_fetch="always")
            for _ in range(2):
                c.worker("decode", model__path=model(c, family), model__name=NAME)
            c.wait_ready(decode=2)
            use_only(c, ["decode0"])
            first = ask(c, TEXT, max_tokens=24)
            use_only(c, ["decode1"])
            second = ask(c, TEXT, max_tokens=24)
            assert second.serving["decode"] == "decode1", second.serving
            assert second.text == first.text, (first.text, second.text)
            assert second.serving["transferred"] == whole_blocks(second), second.serving
            n_blocks = whole_blocks(second) // BLOCK
            n_bytes = c.workers[1].metric("baton_prefix_fetch_bytes_total")
            # The owner has all full blocks of the prompt; the asking worker reuses those before its last token.
            least = (n_blocks + shape.tail(n_blocks)) * shape.block_bytes
            assert least <= n_bytes <= least + shape.block_bytes, (n_bytes, least)
            c.assert_quiet()


def another_worker_reads_the_last_window_from_the_store():
    for family in FAMILIES:
        with Cluster() as c, Redis() as redis:
            c.router()
            settings = {"model.path": model(c, family), "model.name": NAME, "kv.remote": f"redis://127.0.0.1:{redis.port}"}
            one = ready(c.worker("decode", **settings))
            first = ask(c, TEXT, port=one.http, max_tokens=24)
            again = ask(c, TEXT, port=one.http, max_tokens=24)  # blocks that are used twice are saved
            assert again.serving["reused"] == whole_blocks(again) and again.text == first.text, again.serving
            one.stop()  # saves the rest
            for _ in range(6):  # a store that answers later than the prompt would be computed is not waited for
                other = ready(c.worker("decode", **settings))
                until("the store is not used", lambda: other.status()["remote"]["up"])  # a worker is ready before its store is
                third = ask(c, TEXT, port=other.http, max_tokens=24)
                assert third.text == first.text, (first.text, third.text)
                if other.status()["remote"]["late"] == 0:
                    break
                other.stop()
            assert third.serving["reused"] == whole_blocks(third), (third.serving, other.status()["remote"])
            c.assert_quiet()


def a_pool_of_half_the_size_reads_a_long_prompt():
    """With the keys of all layers in every block, the prompt alone would need twice the memory that the pool has."""
    with Cluster() as c:
        shape = Shape("gemma3")
        big, small = (c.worker("decode", model__path=model(c, "gemma3"), model__name=NAME, kv__memory=size)
                      for size in ("64MiB", "1MiB"))
        whole = ask(c, TEXT * 3, port=ready(big).http, max_tokens=24)
        n_blocks = -(-whole.serving["prompt"] // BLOCK)
        assert n_blocks * (1 + shape.groups) * shape.block_bytes > 2 << 20, (n_blocks, shape.block_bytes)
        assert ask(c, TEXT * 3, port=ready(small).http, max_tokens=24).text == whole.text
        c.assert_quiet()


def figures():
    """Prints what docs/handoff.md and docs/caching.md say of a larger shape, with whatever build BATON_BUILD names."""
    def asked(n, n_lines):
        return f"Document {n}. " + " ".join(f"Line {i} of text {n} here." for i in range(n_lines))

    with Cluster() as c:
        path = os.path.join(c.dir, "figures.gguf")
        shape = ("--layers 12 --hidden 256 --heads 4 --head-dim 64 --kv-heads 2 --ffn 512 --context 8192 --type Q8_0 "
                 f"--set attention.sliding_window=512 --set attention.sliding_window_pattern=6 --vocab-from {MODEL}")
        subprocess.run([os.path.join(BUILD, "baton-model"), "make", "--arch", "gemma3", *shape.split(), path], check=True,
                       stderr=subprocess.DEVNULL)
        c.router(placement__prefix_fetch="off")
        c.worker("prefill", model__path=path, model__name=NAME, kv__disk_path=c.dir + "/store", kv__disk_size="1GiB")
        c.worker("decode", model__path=path, model__name=NAME, kv__memory="64MiB")
        c.wait_ready(prefill=1, decode=1)
        prefill, decode = c.workers
        answer = ask(c, asked(0, 370), max_tokens=8)
        until("nothing is saved", lambda: prefill.status()["disk"]["blocks"] > 0)
        at_rest(prefill)
        print(f"{answer.serving['prompt']} tokens: {decode.metric('baton_transfer_received_bytes_total'):.0f} bytes sent, "
              f"{prefill.status()['disk']['bytes']} on disk, {decode.status()['blocks']['cached']} blocks at the decode worker")
        prompts = [asked(n, 75) for n in range(1, 21)]
        for prompt in prompts:
            ask(c, prompt, port=decode.http, max_tokens=2)
        hits = [ask(c, prompt, port=decode.http, max_tokens=2).serving for prompt in reversed(prompts)]
        print(f"of 20 prompts with {hits[-1]['prompt']} tokens in 64 MiB, {sum(hit['reused'] > 0 for hit in hits)} are cached")


if sys.argv[1:] == ["--figures"]:
    figures()
elif __name__ == "__main__":
    tests = [a_handoff_sends_the_last_window_only, it_does_so_over_tcp_with_quantised_keys,
             a_restarted_worker_reads_the_last_window_from_disk, a_prefix_fetch_brings_the_last_window, a_pool_of_half_the_size_reads_a_long_prompt]
    if redis_server.PROGRAM:
        tests.append(another_worker_reads_the_last_window_from_the_store)
    else:
        print("skipped: neither redis-server nor valkey-server is installed, so there is no store")
    main(tests)
