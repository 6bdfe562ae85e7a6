# SPDX-License-Identifier: Apache-2.0
"""The conversation trace of Mooncake over two prefill and two decode workers.  Their memory is a twentieth of the size
of the trace's prefixes, or what their context needs.  A run for each tier below memory: none, a disk for each worker,
Redis, S3, disk and Redis.

    cd build && env BATON_BUILD=$PWD BATON_SOURCE=.. python3 ../tests/bench/bench_remote.py [OPTION]...

    --requests N        about so many (680)
    --blocks N          at most so many of the trace's blocks of 512 tokens from a prompt (56)
    --tiers a,b,...     of none, disk, redis, s3, both (all)
    --trace FILE

The load is a sample of whole conversations with three requests or more; a conversation is the requests with the same
second block.  A block of the trace (512 tokens) becomes a sentence of about 42 tokens of the bundled model; equal
blocks become equal sentences.  Requests keep the order of the trace, four at a time.  Computed and reused tokens are
sums over the answers' serving stats; times are the clients'.  S3 is rclone's server (s3_server.py)."""
import argparse
import collections
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("BATON_SOURCE", ".."), "tests", "integration"))
from cluster import Cluster  # noqa: E402
from redis_server import Redis  # noqa: E402
from s3_server import Rclone  # noqa: E402

TRACE = os.path.join(os.environ.get("BATON_SOURCE", ".."), "..", "shared", "data", "traces", "mooncake-conversation.jsonl")
SENTENCE_TOKENS, AT_ONCE = 42, 4
TOKEN_BYTES = 3072


def sentence(number):
    return f"Part {number} of the record says that item {number * 7919 % 100003} went to shelf {number * 31 % 997} at noon. "


def prompts(path, n, max_blocks):
    with open(path, encoding="ascii") as f:
        rows = [json.loads(line)["hash_ids"] for line in f]
    counts = collections.Counter(row[1] for row in rows if len(row) > 1)
    roots = [root for root, count in counts.items() if 3 <= count <= 20]
    chosen = set(roots[::max(1, sum(counts[root] for root in roots) // n)])
    rows = [row[:max_blocks] for row in rows if len(row) > 1 and row[1] in chosen]
    return rows, ["".join(sentence(i) for i in row) for row in rows]


def run(cluster, texts):
    results, lock, todo = [], threading.Lock(), iter(texts)

    def work():
        while True:
            with lock:
                text = next(todo, None)
            if text is None:
                return
            began = time.monotonic()
            answer = cluster.ask(text, max_tokens=4)
            with lock:
                results.append((answer.serving, time.monotonic() - began))
    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [serving for serving, _ in results]


def measure(name, texts, memory, context, settings):
    with Cluster() as c:
        c.router()
        for role in ("prefill", "decode"):
            for i in range(2):
                own = {key: value.replace("{i}", f"{c.dir}/{role}{i}") for key, value in settings.items()}
                c.worker(role, **{"kv.memory": str(memory), "engine.threads": "1", "model.context": str(context), **own})
        c.wait_ready(prefill=2, decode=2)
        began = time.monotonic()
        stats = run(c, texts)
        took_s = time.monotonic() - began
        seen = [w.status().get("remote", {}) for w in c.workers]
    ttft = sorted(s["ttft_ms"] for s in stats)
    total = sum(s["prompt"] for s in stats)
    computed = sum(s["computed"] for s in stats)
    print(f"| {name} | {100 * (1 - computed / total):.0f} % | {computed} of {total} | {ttft[len(ttft) // 2]:.0f} | "
          f"{ttft[len(ttft) * 9 // 10]:.0f} | {took_s:.0f} |", flush=True)
    if any(seen):  # what the workers saw of the store
        print(f"    {name}: " + ", ".join(f"{sum(one.get(what, 0) for one in seen)} {what}" for what in
                                          ("written", "asked", "found", "read", "missing", "late", "trips")),
              file=sys.stderr, flush=True)


def with_redis(run_with, settings):
    with Redis("--maxmemory", "2gb", "--maxmemory-policy", "allkeys-lru") as store:
        run_with({"kv.remote": store.url, **settings})


def with_s3(run_with):
    with Rclone() as store:
        login = os.path.join(store.folder, "login")
        with open(login, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write(store.login)
        run_with({"kv.remote": store.url, "kv.remote_login": login})


DISK = {"kv.disk_path": "{i}", "kv.disk_size": "1GiB"}
TIERS = {"none": ("none", lambda run_with: run_with({})),
         "disk": ("disk", lambda run_with: run_with(DISK)),
         "redis": ("Redis", lambda run_with: with_redis(run_with, {})),
         "s3": ("S3", with_s3),
         "both": ("disk and Redis", lambda run_with: with_redis(run_with, DISK))}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=680)
    options.add_argument("--blocks", type=int, default=56)
    options.add_argument("--tiers", default=",".join(TIERS))
    options.add_argument("--trace", default=TRACE)
    options = options.parse_args()
    rows, texts = prompts(options.trace, options.requests, options.blocks)
    context = options.blocks * SENTENCE_TOKENS + 256
    need = len({i for row in rows for i in row}) * SENTENCE_TOKENS * TOKEN_BYTES
    memory = max(need // 20 // 4, context * TOKEN_BYTES * 5 // 4)  # of each worker; it needs its context's worth
    print(f"{len(texts)} requests; their prefixes need {need >> 20} MiB, the four workers have {4 * memory / 2**20:.1f} MiB "
          f"({400 * memory / need:.1f} %)\n")
    print("| tier | hits | computed tokens | TTFT p50, ms | p90 | all, s |\n|---|---|---|---|---|---|")
    for tier in options.tiers.split(","):
        name, start = TIERS[tier]
        start(lambda settings, name=name: measure(name, texts, memory, context, settings))


if __name__ == "__main__":
    main()
