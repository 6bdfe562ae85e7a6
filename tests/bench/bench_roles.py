#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Roles that follow the load, in the simulator: every fixed split of the workers, and placement.roles = auto.

For each load and interval, prints the good requests under the interval's best fixed split, under the load's best split, and
under auto; then the shares.  With --check it fails where auto reaches less than 0.95 of the best split of an interval, or less
than 1.2 times the best single split of shifts.  The loads: two kinds of requests in turns (steps), the same at 1.5 times the
rate, which is about the capacity (crowds), the same with three times the answers, which needs nearly all workers for prompts
and then nearly all for answers (swing), that at the capacity of both phases and with equal lengths (shifts), two kinds with
opposite sines as rates (tides), a day (diurnal), and the recorded traces if present.  With other loads than shifts a single
split serves most of both phases: the last line of each load says what the best split of each interval would gain.

    bench_roles.py [--load NAME]... [--workers N] [--seed N] [--rigid] [--check] [--wanted]

--rigid: decode workers compute no prompts, under any split.
--wanted compares baton_wanted_workers with a search for the least fleet that keeps the objectives of 95 % of the requests.
Set BATON_BUILD to the build folder.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

BUILD = os.environ.get("BATON_BUILD", "build")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TRACES = os.environ.get("BATON_TRACES", os.path.join(SOURCE, "..", "shared", "data", "traces"))
PROMPTS = ["--rate", "36", "--prompt", "4000", "--answer", "60"]
ANSWERS = ["--rate2", "20", "--prompt2", "300", "--answer2", "1000"]
# name: (options, intervals)
LOADS = {
    "steps": (["--generate", "steps", "--period", "7200", "--duration", "14400", *PROMPTS, *ANSWERS], 4),
    "crowds": (["--generate", "steps", "--period", "7200", "--duration", "14400", "--rate", "54", "--prompt", "4000", "--answer", "60",
                "--rate2", "30", "--prompt2", "300", "--answer2", "1000"], 4),
    "swing": (["--generate", "steps", "--period", "7200", "--duration", "14400", "--rate", "50", "--prompt", "4000", "--answer", "60",
               "--rate2", "65", "--prompt2", "300", "--answer2", "1000"], 4),
    "shifts": (["--generate", "steps", "--equal-lengths", "--period", "7200", "--duration", "14400", "--rate", "50", "--prompt", "4000",
                "--answer", "60", "--rate2", "75", "--prompt2", "300", "--answer2", "1000"], 4),
    "tides": (["--generate", "tides", "--period", "14400", "--duration", "14400", "--rate", "19", "--prompt", "4000", "--answer", "60",
               "--rate2", "11", "--prompt2", "300", "--answer2", "1000"], 8),
    "diurnal": (["--generate", "diurnal", "--duration", "14400", "--rate", "16", "--prompt", "4000", "--answer", "60"], 8),
    "azure": (["--trace", os.path.join(TRACES, "azure-2023-code.csv"), "--replicas", "22"], 4),
    "mooncake": (["--trace", os.path.join(TRACES, "mooncake-conversation.jsonl"), "--ttft", "5s", "--speed", "2"], 4),
}


RIGID = []


def simulate(options, seed):
    line = [os.path.join(BUILD, "baton-sim"), "--json", "--seed", str(seed), *RIGID, *options]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def goods(options, n_intervals, seed):
    """Good requests of each interval.  The timeline has finer columns, which may widen: they are joined by time."""
    out = simulate([*options, "--columns", str(60 * n_intervals)], seed)
    columns = out["timeline"]["columns"]
    each = [0] * n_intervals
    for i, column in enumerate(columns):
        each[min(i * n_intervals // len(columns), n_intervals - 1)] += column["good"]
    return each, out


def split_goods(pool, load, n_workers, seed):
    options, n_intervals = load
    runs = {p: pool.submit(goods, [*options, "--prefill", str(p), "--decode", str(n_workers - p)], n_intervals, seed)
            for p in range(1, n_workers)}
    runs["auto"] = pool.submit(goods, [*options, "--prefill", str(n_workers // 2), "--decode", str(n_workers - n_workers // 2),
                                       "--roles", "auto"], n_intervals, seed)
    return {p: run.result() for p, run in runs.items()}


def print_load(name, runs):
    fixed = {p: each for p, (each, _) in runs.items() if p != "auto"}
    auto, out = runs["auto"]
    single = max(fixed, key=lambda p: sum(fixed[p]))
    print(f"\n{name}: {out['role_changes']} role changes; best single split {single} prefill workers")
    print(f"{'interval':>8} {'best split':>10} {'its good':>9} {'single':>8} {'auto':>8} {'auto/best':>9}")
    least = 1.0
    for i in range(len(auto)):
        best = max(fixed, key=lambda p: fixed[p][i])
        share = auto[i] / fixed[best][i] if fixed[best][i] else 1
        least = min(least, share)
        print(f"{i:8} {best:10} {fixed[best][i]:9} {fixed[single][i]:8} {auto[i]:8} {share:9.3f}")
    oracle = sum(max(each[i] for each in fixed.values()) for i in range(len(auto)))
    print(f"over all: auto {sum(auto)}, single {sum(fixed[single])}, ratio {sum(auto) / max(sum(fixed[single]), 1):.3f}; the best split of each "
          f"interval {oracle}, ratio {oracle / max(sum(fixed[single]), 1):.3f}; least of an interval {least:.3f}")
    return least


def print_totals(name, totals):
    fixed = {p: n for p, n in totals.items() if p != "auto"}
    ratio = totals["auto"] / max(fixed.values())
    print(f"{name}: auto {totals['auto']}, best single split {max(fixed.values())}, ratio {ratio:.2f}")
    return ratio


def compare_splits(pool, args):
    totals, shifts, least = {}, {}, 1.0
    for name in args.load or LOADS:
        if "--trace" in LOADS[name][0] and not os.path.exists(LOADS[name][0][1]):
            print(f"\n{name}: the trace is not here")
            continue
        runs = split_goods(pool, LOADS[name], args.workers, args.seed)
        least = min(least, print_load(name, runs))
        for p, (each, _) in runs.items():
            totals[p] = totals.get(p, 0) + sum(each)
            if name == "shifts":
                shifts[p] = sum(each)
    print()
    print_totals("all loads", totals)
    ratio = print_totals("shifts (1.2 wanted)", shifts) if shifts else 1.2
    print(f"least share of an interval's best split (0.95 wanted): {least:.3f}")
    return least >= 0.95 and ratio >= 1.2


STEADY = {
    "prompts 12/s": ["--rate", "12", "--prompt", "4000", "--answer", "60"],
    "prompts 36/s": ["--rate", "36", "--prompt", "4000", "--answer", "60"],
    "answers 12/s": ["--rate", "12", "--prompt", "300", "--answer", "1000"],
    "answers 24/s": ["--rate", "24", "--prompt", "300", "--answer", "1000"],
    "chat 30/s": ["--rate", "30", "--prompt", "1500", "--answer", "300"],
    "chat 60/s": ["--rate", "60", "--prompt", "1500", "--answer", "300"],
}


def share_good(options, p, d, seed):
    one = simulate([*options, "--prefill", str(p), "--decode", str(d), "--columns", "1"], seed)
    return one["classes"][0]["good"] / max(one["classes"][0]["arrived"], 1), one["timeline"]["columns"][0]


def least_fleets(pool, options, seed):
    """The splits of the least fleet that are good in 95 of 100 cases."""
    for n in range(2, 33):
        runs = {p: pool.submit(share_good, options, p, n - p, seed) for p in range(1, n)}
        fits = [(p, n - p, run.result()[0]) for p, run in runs.items() if run.result()[0] >= 0.95]
        if fits:
            return fits
    return []


def compare_wanted(pool, args):
    is_good = True
    print(f"{'load':14} {'wanted':>11} {'searched':>9} {'good':>6} {'difference':>10}   of the splits that the search found, the nearest")
    for name, load in STEADY.items():
        options = ["--generate", "poisson", "--duration", "600", *load]
        fits = least_fleets(pool, options, args.seed)
        column = share_good(options, *fits[-1][:2], args.seed)[1]
        wanted = round(column["wanted_prefill"]), round(column["wanted_decode"])
        p, d, share = min(fits, key=lambda fit: max(abs(wanted[0] - fit[0]), abs(wanted[1] - fit[1])))
        off = max(abs(wanted[0] - p), abs(wanted[1] - d))
        is_good = is_good and off <= 1
        print(f"{name:14} {wanted[0]:5}P {wanted[1]:3}D {p:4}P {d:3}D {100 * share:5.1f}% {off:10}")
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", action="append", choices=LOADS)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rigid", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--wanted", action="store_true")
    args = parser.parse_args()
    if args.rigid:
        RIGID.append("--rigid")
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        is_good = compare_wanted(pool, args) if args.wanted else compare_splits(pool, args)
    return 0 if is_good or not args.check else 1


if __name__ == "__main__":
    sys.exit(main())
