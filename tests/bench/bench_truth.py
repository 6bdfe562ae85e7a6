#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one load through real daemons and through baton-sim, to check the simulator.

Starts a router, two prefill and two decode workers on loopback, and sends a random load with baton-bench.  Then baton-sim
gets the arrivals and lengths that the router logged (baton-trace export), with step times measured on the idle workers.  It
gets logged lengths, because a model ends many answers before the requested length.  Prints a table of both.  With --check it
fails where a mean differs by more than 10 percent or a 99th percentile by more than 20.

    bench_truth.py [--rate R] [--seconds S] [--seed N] [--check] [--times bench|status] [--engine sim|bundled] [--both N]

The workers run the simulated engine at the speed of an accelerator, or with --engine bundled the demonstration model on a
core each (a machine with five cores or more, or a low rate); all else is as in production. --times status takes the step
times from a worker's status, as baton-sim --measured does, and does not measure them from outside.  --both: N workers of the
role both, instead of two of each other role.  Run it in the source folder with BATON_BUILD set, on a quiet machine.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster  # noqa: E402

STEP, ROW, TOKEN = 0.008, 0.0003, 0.0001  # seconds, of the simulated engine
SEATS, CHUNK, BLOCK = 64, 512, 32


def draw_trace(path, args):
    """Poisson arrivals, prompts of 60 to 1,200 tokens and answers of 16 to 128, as a CSV like Azure's."""
    rng, at = random.Random(args.seed), 0.0
    with open(path, "w") as f:
        f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        while at < args.seconds:
            f.write(f"2026-01-01 00:{int(at) // 60:02d}:{at % 60:010.7f},{int(60 * 20 ** rng.random())},{rng.randint(16, 128)}\n")
            at += rng.expovariate(args.rate)


SETTINGS = {"engine__kind": "sim", "engine__sim_step": f"{STEP * 1e3:g}ms", "engine__sim_prefill_token": f"{TOKEN * 1e6:g}us",
            "engine__sim_decode_seq": f"{ROW * 1e6:g}us", "engine__sim_answer_tokens": "1000000", "sched__speculate": "off",
            "sched__max_seqs": str(SEATS), "sched__chunk_tokens": str(CHUNK), "kv__memory": "256MiB", "kv__block_tokens": str(BLOCK)}


BUNDLED = {"engine__threads": "1", "sched__speculate": "off", "sched__max_seqs": str(SEATS), "sched__chunk_tokens": str(CHUNK),
           "kv__memory": "256MiB", "kv__block_tokens": str(BLOCK)}


def run_daemons(trace, args):
    settings = SETTINGS if args.engine == "sim" else BUNDLED
    with Cluster() as c:
        c.router(log__format="json", slo__ttft="500ms", slo__itl="50ms", placement__local_prefill_tokens="128", placement__local_prefill_time="500ms")
        for role in ["decode"] * args.both or ("prefill", "prefill", "decode", "decode"):
            c.worker(role, **settings, **({"node__role": "both"} if args.both else {}))
        c.wait_ready(both=args.both) if args.both else c.wait_ready(prefill=2, decode=2)
        times = measure(c)
        with open(c.routers[0].log_path, "rb") as log:
            log.seek(0, os.SEEK_END)
            real = bench(c, "--trace", trace)
            status = c.workers[-1].status()
            c.routers[0].stop()  # the last lines are written
            lines = log.read()
        logged = subprocess.run([os.path.join(BUILD, "baton-trace"), "export"], input=lines, check=True, capture_output=True).stdout
        return real, times, status, logged


def bench(cluster, *options):
    out = subprocess.run([os.path.join(BUILD, "baton-bench"), "--url", f"http://127.0.0.1:{cluster.routers[0].http}", "--json",
                          *options], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"baton-bench: {out.stderr}")
    return json.loads(out.stdout)


def measure(cluster):
    """Step times of idle workers: seconds of a step, for each row, context token and prompt token.  They include the
    engine's configured times, sockets, wake-ups and the engine's checks of all KV."""
    one, deep = (bench(cluster, "-c", "1", "--requests", "8", "-p", f"{n}:{n}", "-a", "48:48", "--seed", f"{n}") for n in (200, 1200))
    itl, deep_itl = one["itl_ms"]["p50"] / 1e3, deep["itl_ms"]["p50"] / 1e3
    context = max(deep_itl - itl, 0) / 1000
    step = max(itl - ROW - context * 200, 1e-4)
    more_steps = -(-1200 // (CHUNK + SEATS)) - -(-200 // (CHUNK + SEATS))
    token = ((deep["ttft_ms"]["p50"] - one["ttft_ms"]["p50"]) / 1e3 - more_steps * step) / 1000
    return f"{step:.6g},{ROW},{context:.6g},{token:.6g},0"


def run_sim(trace, times, status, args):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(status, f)
        f.flush()
        return run_sim_with(trace, ["--measured", f.name] if args.times == "status" else ["--prefill-times", times, "--decode-times", times], args)


def run_sim_with(trace, times, args):
    fleet = ["--prefill", "0", "--decode", "0", "--both", str(args.both)] if args.both else ["--prefill", "2", "--decode", "2"]
    line = [os.path.join(BUILD, "baton-sim"), "--preset", "demo", "--trace", trace, *fleet,
            *times, "--seats", str(SEATS), "--chunk", str(CHUNK),
            "--batch", str(CHUNK + SEATS), "--block", str(BLOCK), "--heartbeat", "200ms", "--latency", args.latency, "--nic", "2e9",
            "--ttft", "500ms", "--itl", "50ms", "--local-tokens", "128", "--local-time", "500ms", "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", default="1ms", help="of a message between daemons, with its wake-ups")
    parser.add_argument("--engine", choices=("sim", "bundled"), default="sim")
    parser.add_argument("--times", choices=("bench", "status"), default="bench")
    parser.add_argument("--both", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".csv") as trace:
        draw_trace(trace.name, args)
        real, times, status, logged = run_daemons(trace.name, args)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as trace:
        trace.write(logged)
        trace.flush()
        said = run_sim(trace.name, times, status, args)["classes"][0]
    print(f"steps by the status of a decode worker: {status.get('steps_ms')}")
    print(f"measured step times (step, row, context, token, pair): {times} s")
    print(f"{'':12} {'daemons':>10} {'simulator':>10} {'error':>8} {'limit':>7}")
    is_good = True
    for name, theirs, ours in (("TTFT", real["ttft_ms"], said["ttft_s"]), ("ITL", real["itl_ms"], said["itl_s"]),
                               ("E2E", real.get("e2e_ms", {}), said["e2e_s"])):
        for figure, limit in (("mean", 0.1), ("p50", None), ("p99", 0.2)):
            if figure not in theirs:
                continue
            a, b = theirs[figure], ours[figure] * 1e3
            error = b / a - 1 if a else 0
            is_good = is_good and (limit is None or name == "E2E" or abs(error) <= limit)
            print(f"{name + ' ' + figure:12} {a:8.2f}ms {b:8.2f}ms {100 * error:+7.1f}% {'' if limit is None else f'{100 * limit:.0f}%':>6}")
    print(f"requests: {real['requests']}; simulator: {said['done']} done")
    return 0 if is_good or not args.check else 1


if __name__ == "__main__":
    sys.exit(main())
