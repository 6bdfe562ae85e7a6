#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Good answers beyond capacity: sends a rising load through real daemons, or through baton-sim, and counts the answers that
keep both objectives.

    bench_goodput.py [--engine cpu|sim] [--simulator] [--seconds S] [--seed N] [--repeat N] [--rates R,R,...] [--prompt N[:M]]
                     [--refuse predicted|timeout] [--routers N] [--tenants N] [--warm S] [--check]

A router, one prefill and one decode worker of one thread each; prompts of 512 to 1,024 tokens, answers of 64, objectives 500 ms
and 50 ms. --engine sim: workers with fixed step times, so that the figures do not depend on the machine.  --simulator: that
fleet in virtual time.  --repeat: that many seeds, and their mean.  --warm: so many seconds at half the rate come first and are
not counted, as in a fleet that has been running; without, the load meets daemons that have just started.  --routers, --tenants:
daemons only; equal parts of the load come from so many tenants, of each through all routers.

All figures are per second of arrivals: `offered` are those that the seed drew, and `good` are the good answers among them, also
if they end later.  --check fails where the good answers fall below 0.9 of the best rate, or of the offered one if that is less.
Run it in the source folder with BATON_BUILD set, on a quiet machine.
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
from test_flood import make_keys  # noqa: E402

STEP, ROW, TOKEN = 0.004, 0.0008, 0.00007  # seconds, of the simulated engine
FIGURES = ("offered", "served", "good", "errors", "ttft_p50", "ttft_p99", "itl_p99")


def objectives(args):
    return f"{500 * args.slow:g}ms", f"{50 * args.slow:g}ms"


def send(cluster, args, rate, seed, seconds, keys):
    """The figures of a client for each router and tenant."""
    ttft, itl = objectives(args)
    to = [(router.http, key) for router in cluster.routers for key in keys or [None]]
    runs = [subprocess.Popen([os.path.join(BUILD, "baton-bench"), "--url", f"http://127.0.0.1:{port}", "--json", "--ttft-slo", ttft, "--itl-slo", itl,
                              "--rate", str(rate / len(to)), "--seed", str(seed * 100 + i if i else seed), "-d", f"{seconds}s", "-p", args.prompt,
                              "-a", "64"] + (["--api-key", key] if key else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for i, (port, key) in enumerate(to)]
    outs = [(run, *run.communicate()) for run in runs]
    for run, out, err in outs:
        if run.returncode not in (0, 1) or not out:
            sys.exit(f"baton-bench: {err}")
    return [json.loads(out) for _, out, _ in outs]


def run_daemons(args, rate, seed):
    """A fresh fleet for each rate, so that rates learned from one load do not help the next."""
    ttft, itl = objectives(args)
    sim = {"engine__kind": "sim", "engine__sim_step": f"{STEP * 1e3 * args.slow:g}ms",
           "engine__sim_prefill_token": f"{TOKEN * 1e6 * args.slow:g}us",
           "engine__sim_decode_seq": f"{ROW * 1e6 * args.slow:g}us", "engine__sim_answer_tokens": "1000000",
           "sched__speculate": "off", "sched__itl": itl, "kv__memory": "1GiB", "kv__block_tokens": "32"}
    with Cluster() as c:
        path, keys = make_keys(c, *(f"tenant{i}" for i in range(args.tenants))) if args.tenants > 1 else (None, None)
        for _ in range(args.routers):
            c.router(slo__ttft=ttft, slo__itl=itl, placement__local_prefill_tokens="128", placement__local_prefill_time=ttft,
                     queue__timeout="10s", queue__refuse=args.refuse, link__heartbeat="1s", **({"http__api_keys": path} if path else {}))
        links = [f"127.0.0.1:{r.link}" for r in c.routers]
        for role in ("prefill", "decode"):
            c.worker(role, **(sim if args.engine == "sim" else {"kv__memory": "256MiB", "sched__itl": itl}), link__heartbeat="1s", link__routers=links)
        for _ in c.routers:
            c.wait_ready(prefill=1, decode=1)
            c.routers.append(c.routers.pop(0))
        if args.warm:
            send(c, args, rate / 2, seed + 1000, args.warm, keys)
        figures = send(c, args, rate, seed, args.seconds, keys)
        margin = c.routers[0].metric("baton_router_ttft_margin")
        if args.verbose:
            print(json.dumps(figures, indent=1), file=sys.stderr)
            for line in (f"margin {margin}", *(f"{n} {c.routers[0].metric(n)}" for n in (
                    "baton_router_refusals_total", "baton_router_handed_off_total", "baton_router_local_total"))):
                print(line, file=sys.stderr)
    return daemon_row(figures, args.seconds)


def daemon_row(clients, seconds):
    """Percentiles of several clients are the largest of theirs."""
    sums = {"offered": sum(c["requests"]["sent"] for c in clients) / seconds, "served": sum(c["requests"]["whole"] for c in clients) / seconds,
            "good": sum(c["objectives"]["kept_share"] * c["requests"]["sent"] for c in clients) / seconds,
            "errors": sum(sum(c["errors"].values()) for c in clients)}
    return {**sums, "ttft_p50": max(c["ttft_ms"]["p50"] for c in clients), "ttft_p99": max(c["ttft_ms"]["p99"] for c in clients),
            "itl_p99": max(c["itl_ms"]["p99"] for c in clients)}


def run_simulator(args, rate, seed):
    draw, at, n = random.Random(seed), 0.0, 0
    times = f"{STEP},{ROW},0,{TOKEN},0"
    least, most = (args.prompt.split(":") * 2)[:2]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        while (at := at + draw.expovariate(rate)) < args.seconds:
            f.write('{"timestamp": %d, "input_length": %d, "output_length": 64, "hash_ids": []}\n' % (1e3 * at, draw.randint(int(least), int(most))))
            n += 1
        f.flush()
        out = subprocess.run([os.path.join(BUILD, "baton-sim"), "--json", "--trace", f.name, "--preset", "demo", "--prefill", "1", "--decode", "1",
                              "--prefill-times", times, "--decode-times", times, "--seats", "64", "--kv-tokens", "200000", "--kv-bytes", "4096",
                              "--nic", "2e9", "--batch", "576", "--refuse", args.refuse], capture_output=True, text=True, check=True)
    one = json.loads(out.stdout)["classes"][0]
    return {"offered": n / args.seconds, "served": one["done"] / args.seconds, "good": one["good"] / args.seconds,
            "errors": sum(one["refused"].values()), "ttft_p50": 1e3 * one["ttft_s"]["p50"], "ttft_p99": 1e3 * one["ttft_s"]["p99"],
            "itl_p99": 1e3 * one["itl_s"]["p99"]}


def check(rows):
    best = max(row["good"] for row in rows)
    low = [row for row in rows if row["good"] < 0.9 * min(best, row["offered"])]
    for row in low:
        print(f"below 0.9 of {min(best, row['offered']):.1f}/s: {row['good']:.1f} good of {row['offered']:.1f} offered", file=sys.stderr)
    return 1 if low else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("cpu", "sim"), default="cpu")
    parser.add_argument("--simulator", action="store_true")
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--prompt", default="512:1024", help="tokens, N or N:M; of one length, a load beyond capacity has no shorter ones to serve")
    parser.add_argument("--rates", default="6,9,12,18,36,90")
    parser.add_argument("--refuse", choices=("predicted", "timeout"), default="predicted")
    parser.add_argument("--slow", type=float, default=1, help="objectives so many times longer, and all times of --engine sim")
    parser.add_argument("--routers", type=int, default=1)
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    run, rows = run_simulator if args.simulator else run_daemons, []
    for rate in args.rates.split(","):
        each = [run(args, float(rate), args.seed + i) for i in range(args.repeat)]
        rows.append({name: sum(row[name] for row in each) / len(each) for name in FIGURES})
        print(f"rate {rate}  " + "  ".join(f"{name} {rows[-1][name]:.1f}" for name in FIGURES), flush=True)
    return check(rows) if args.check else 0


if __name__ == "__main__":
    sys.exit(main())
