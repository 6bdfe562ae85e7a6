#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One router, and several routers over the same workers, under one load: does the mean time to first token differ?

    bench_routers.py [--routers N] [--rate R] [--seconds S] [--repeat K] [--seed N]

Three prefill and two decode workers with fixed step times (engine.kind = sim), heartbeats of a second.  Every worker is linked
to all routers throughout; the load goes to one of them, or in equal parts to all, in turns.  Run it in the source folder with
BATON_BUILD set, on a quiet machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster  # noqa: E402

SIM = {"engine__kind": "sim", "engine__sim_step": "4ms", "engine__sim_prefill_token": "100us", "engine__sim_decode_seq": "100us",
       "engine__sim_answer_tokens": "1000000", "sched__speculate": "off", "kv__memory": "256MiB", "kv__block_tokens": "32",
       "link__heartbeat": "1s"}


def load(ports, args, seed):
    """The mean of all requests' times to first token, in ms."""
    runs = [subprocess.Popen([os.path.join(BUILD, "baton-bench"), "--url", f"http://127.0.0.1:{port}", "--json", "--rate", str(args.rate / len(ports)),
                              "--seed", str(seed * 100 + i), "-d", f"{args.seconds}s", "-p", "500:1500", "-a", "32", "--warmup", str(10 // len(ports))],
                             stdout=subprocess.PIPE, text=True) for i, port in enumerate(ports)]
    results = [json.loads(run.communicate()[0]) for run in runs]
    n = [r["throughput"]["requests_per_s"] for r in results]
    return sum(k * r["ttft_ms"]["mean"] for k, r in zip(n, results)) / sum(n), sum(sum(r["errors"].values()) for r in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--routers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=18)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with Cluster() as c:
        for _ in range(args.routers):
            c.router(slo__ttft="5s", slo__itl="200ms", placement__local_prefill_tokens="64", placement__local_prefill_time="0", link__heartbeat="1s",
                     log__level="info")
        links = [f"127.0.0.1:{r.link}" for r in c.routers]
        for role in ("prefill", "prefill", "prefill", "decode", "decode"):
            c.worker(role, link__routers=links, **SIM)
        for _ in c.routers:
            c.wait_ready(prefill=3, decode=2)
            c.routers.append(c.routers.pop(0))
        ports = [r.http for r in c.routers]
        load(ports, args, 99)  # the speed that the workers learn
        one, all_of_them = [], []
        for i in range(args.repeat):
            for k, (name, to, out) in enumerate((("one router", ports[:1], one), (f"{args.routers} routers", ports, all_of_them))):
                ttft, errors = load(to, args, args.seed + 2 * i + k)  # other prompts each time: none is cached
                out.append(ttft)
                print(f"{name}: mean TTFT {ttft:.1f} ms, {errors} errors", flush=True)
        print(f"means {statistics.mean(one):.1f} and {statistics.mean(all_of_them):.1f} ms: {statistics.mean(all_of_them) / statistics.mean(one):.3f}")


if __name__ == "__main__":
    main()
