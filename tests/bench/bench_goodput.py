#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Good answers beyond capacity: sends a rising load through real daemons, or through baton-sim, and counts the answers that
keep both objectives.

    bench_goodput.py [--engine cpu|sim] [--seconds S] [--seed N] [--rates R,R,...] [--refuse predicted|timeout]
                     [--simulator] [--check]

A router, one prefill and one decode worker of one thread each; prompts of 512 to 1,024 tokens, answers of 64, objectives 500 ms
and 50 ms. --engine sim: workers with fixed step times, so that the figures do not depend on the machine.  --simulator: the
same fleet in virtual time.  --check fails where the good answers fall below 0.9 of the best rate at any higher load.
Run it in the source folder with BATON_BUILD set, on a quiet machine.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster  # noqa: E402

STEP, ROW, TOKEN = 0.004, 0.0008, 0.00007  # seconds, of the simulated engine
FIGURES = ("offered", "served", "good", "errors", "ttft_p50", "ttft_p99", "itl_p99")


def run_daemons(args, rate):
    """A fresh fleet for each rate, so that rates learned from one load do not help the next."""
    ttft, itl = f"{500 * args.slow:g}ms", f"{50 * args.slow:g}ms"
    sim = {"engine__kind": "sim", "engine__sim_step": f"{STEP * 1e3 * args.slow:g}ms",
           "engine__sim_prefill_token": f"{TOKEN * 1e6 * args.slow:g}us",
           "engine__sim_decode_seq": f"{ROW * 1e6 * args.slow:g}us", "engine__sim_answer_tokens": "1000000",
           "sched__speculate": "off", "sched__itl": itl, "kv__memory": "1GiB", "kv__block_tokens": "32"}
    with Cluster() as c:
        c.router(slo__ttft=ttft, slo__itl=itl, placement__local_prefill_tokens="128",
                 placement__local_prefill_time=ttft, queue__timeout="10s", queue__refuse=args.refuse, link__heartbeat="1s")
        for role in ("prefill", "decode"):
            c.worker(role, **(sim if args.engine == "sim" else {"kv__memory": "256MiB"}), link__heartbeat="1s")
        c.wait_ready(prefill=1, decode=1)
        out = subprocess.run([os.path.join(BUILD, "baton-bench"), "--url", f"http://127.0.0.1:{c.routers[0].http}", "--json", "--ttft-slo", ttft, "--itl-slo", itl,
                              "--rate", str(rate), "--seed", str(args.seed), "-d", f"{args.seconds}s", "-p", "512:1024", "-a", "64"],
                             capture_output=True, text=True, check=False)
        if out.returncode not in (0, 1) or not out.stdout:
            sys.exit(f"baton-bench: {out.stderr}")
        figures = json.loads(out.stdout)
        margin = c.routers[0].metric("baton_router_ttft_margin")
        if args.verbose:
            print(json.dumps(figures, indent=1), file=sys.stderr)
            for line in (f"margin {margin}", *(f"{n} {c.routers[0].metric(n)}" for n in (
                    "baton_router_refusals_total", "baton_router_handed_off_total", "baton_router_local_total"))):
                print(line, file=sys.stderr)
    return daemon_row(figures, rate)


def daemon_row(figures, rate):
    return {"offered": rate, "served": figures["throughput"]["requests_per_s"],
            "good": figures["objectives"]["good_requests_per_s"], "errors": sum(figures["errors"].values()), "ttft_p50": figures["ttft_ms"]["p50"], "ttft_p99": figures["ttft_ms"]["p99"],
            "itl_p99": figures["itl_ms"]["p99"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("cpu", "sim"), default="cpu")
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rates", default="6,9,12,18,36,90")
    parser.add_argument("--refuse", default="predicted")
    parser.add_argument("--slow", type=float, default=1, help="all times of --engine sim, objectives included, so many times longer")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    for rate in args.rates.split(","):
        row = run_daemons(args, float(rate))
        print("  ".join(f"{name} {row[name]:.1f}" for name in FIGURES), flush=True)


main()
