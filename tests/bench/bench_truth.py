#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one load through real daemons and through baton-sim, to check the simulator.

Starts a router, two prefill and two decode workers on loopback, and sends a random load with baton-bench.  Then baton-sim
gets the arrivals and lengths that the router logged (baton-trace export), with step times measured on the idle workers.  It
gets logged lengths, because a model ends many answers before the requested length.  Prints a table of both.  With --check it
fails where a mean differs by more than 10 percent or a 99th percentile by more than 20.

    bench_truth.py [--rate R] [--seconds S] [--seed N] [--runs N] [--check] [--times bench|status] [--engine sim|bundled] [--both N]

The workers run the simulated engine at the speed of an accelerator, or with --engine bundled the demonstration model with
one thread each; all else is as in production.  The simulator then shares this machine's cores between the workers
(--host-cores), counts what a token and a new request cost outside of the steps in that load (--token-cpu, --request-cpu: the
router, the client, and the threads of workers that do not compute), and varies the times of steps as much as those of
requests vary that have the fleet for themselves (--noise), and slows cores as those slow each other (--core-drag).  --times status takes the step times from a worker's status, as
baton-sim --measured does, and does not measure them from outside.  --both: N workers of the role both, instead of two of each
other role.  Run it in the source folder with BATON_BUILD set, on a quiet machine.

Workers start one after another, because each measures itself at its start, and serve a load of the same kind for half a
minute, because they learn what they report.  They are measured before and after the load that counts, and the simulator gets
the mean.  Machines are not equally fast all the time: with --engine bundled the step times are those of the requests of the
load that had the fleet for themselves.

--runs: the load is sent so many times with other texts, and each run is simulated (of a model five times, with other draws); the table has the means of each figure.
Daemons whose models compute differ between two runs of one load by more than the simulator may (default 3 with --engine
bundled, else 1).
"""
import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster  # noqa: E402

STEP, ROW, TOKEN = 0.008, 0.0003, 0.0001  # seconds, of the simulated engine
SEATS, CHUNK, BLOCK = 64, 512, 32
PROMPTS, ROWS = (200, 600, 1200), 4  # of the measurement
WARMUP = 30  # seconds
SIMULATED = 5  # times each run of a model, with other draws


def draw_trace(path, args, seconds, seed):
    """Poisson arrivals, prompts of 60 to 1,200 tokens and answers of 16 to 128, as a CSV like Azure's."""
    rng, at = random.Random(seed), 0.0
    with open(path, "w") as f:
        f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        while at < seconds:
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
        roles, ready = ["both"] * args.both or ["prefill", "decode", "prefill", "decode"], {}
        for i, role in enumerate(roles):
            c.worker("decode" if args.both else role, **settings, **({"node__role": "both"} if args.both else {}))
            ready[role] = ready.get(role, 0) + 1
            c.wait_ready(**ready)
            if i == len(set(roles)) - 1:
                row = measure_row(c)
        with tempfile.NamedTemporaryFile(suffix=".csv") as warmup:
            draw_trace(warmup.name, args, WARMUP, args.seed + 1000)
            bench(c, "--trace", warmup.name, "--seed", "1000")
        measured = [measure(c, args, row, 0)]
        drag = 0 if args.engine == "sim" else measure_drag(c)
        status = c.daemon("decode0").status()
        runs = [logged_run(c, trace, seed) for seed in range(args.runs)]
        measured.append(measure(c, args, row, 1))
        idle = Times([statistics.fmean(pair) for pair in zip(*(m.steps for m in measured))], drag=drag,
                     noise=statistics.fmean(m.noise for m in measured))
        return [(run, idle if args.engine == "sim" else times_alone(run, idle._replace(**cpu_of_run(c, run)), args)) for run in runs], status


class Times(typing.NamedTuple):
    steps: list  # as baton-sim takes them: seconds of a step, for each row, context token, prompt token and attended pair
    token_cpu: float = 0
    request_cpu: float = 0
    noise: float = 0
    drag: float = 0


class Run(typing.NamedTuple):
    figures: dict  # of baton-bench
    share: float  # of the requests, that were handed over
    log: bytes  # the router's
    requests: list  # of baton-bench --save-detailed
    cpu_s: float  # outside of the steps


def requests_alone(requests):
    """Those that had the fleet for themselves, and no cached text."""
    alone, until = [], 0
    requests = sorted(requests, key=lambda request: request["sent_s"])
    for i, request in enumerate(requests):
        end = request["sent_s"] + request["e2e_ms"] / 1e3
        if request["sent_s"] > until + 0.002 and (i + 1 == len(requests) or requests[i + 1]["sent_s"] > end) and request["error"] is None and request["cached_tokens"] == 0 and request["itl_ms"]:
            alone.append(request)
        until = max(until, end)
    return alone


def times_alone(run, idle, args):
    """The times of those requests of a run that had the fleet for themselves.  A virtual machine is twice as fast in one minute
    as in the next, so what was measured before a run is not true in it."""
    alone = requests_alone(run.requests)
    if len({one["prompt_tokens"] for one in alone}) < 10:
        print(f"{len(alone)} of {len(run.requests)} requests alone: too few, so the times of idle workers")
        return idle
    gaps = [(one["prompt_tokens"] + i, gap / 1e3) for one in alone for i, gap in enumerate(one["itl_ms"])]
    step, context = fit_line(gaps)
    noise = step_noise([gap / (step + context * at) for at, gap in gaps])
    row = step * idle.steps[1] / (idle.steps[0] + idle.steps[1])
    token, pair = fit_prompts([(one["prompt_tokens"], max(one["ttft_ms"] / 1e3 - 2 * seconds_of(args.latency) - -(-one["prompt_tokens"] // (CHUNK + SEATS)) * (step - row), 1e-4))
                               for one in alone])
    print(f"{len(alone)} of {len(run.requests)} requests alone: step, row, context, token, pair " + steps_text((step - row, row, context, token, pair)) + f"; noise {noise:.2f}")
    return idle._replace(steps=[step - row, row, context, token, pair], noise=noise)


def steps_text(steps):
    return ",".join(f"{t:.6g}" for t in steps)


def logged_run(cluster, trace, seed):
    """Texts are those of no other run."""
    time.sleep(1)  # the last lines of what was before are written
    before, cpu_s = n_placed(cluster), cpu_outside(cluster)
    with open(cluster.routers[0].log_path, "rb") as log:
        log.seek(0, os.SEEK_END)
        real, requests = bench_detailed(cluster, "--trace", trace, "--seed", f"{2000 + seed}")
        time.sleep(1)  # the last lines are written
        lines = log.read()
    pairs, alone = (b - a for a, b in zip(before, n_placed(cluster)))
    return Run(real, pairs / max(pairs + alone, 1), lines, requests, cpu_outside(cluster) - cpu_s)


def n_placed(cluster):
    return [cluster.routers[0].metric(f"baton_router_{name}_total") for name in ("handed_off", "local")]


def bench_line(cluster):
    return os.path.join(BUILD, "baton-bench"), "--url", f"http://127.0.0.1:{cluster.routers[0].http}", "--json"


def bench(cluster, *options):
    out = subprocess.run([*bench_line(cluster), *options], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"baton-bench: {out.stderr}")
    return json.loads(out.stdout)


def bench_detailed(cluster, *options):
    """Its figures, and those of each request."""
    with tempfile.NamedTemporaryFile() as detail:
        figures = bench(cluster, *options, "--save-detailed", detail.name)
        return figures, [json.loads(line) for line in detail]


def measure(cluster, args, row, again):
    """Step times of idle workers, and how much times of equal steps differ: what baton-sim takes.  Seconds of a step, for each row, context token, prompt token and attended pair.  They include the
    engine's configured times, sockets, wake-ups and the engine's checks of all KV."""
    is_sim = args.engine == "sim"  # a model's first steps after a pause are slower than those of a worker that is never idle
    runs = {n: bench_detailed(cluster, *(("-c", "1") if is_sim else ("-r", f"{600 / n}")), "--requests", "8", "-p", f"{n}:{n}", "-a", "48:48", "--seed", f"{n + again}") for n in PROMPTS}
    alone = {n: figures for n, (figures, _) in runs.items()}
    length = {n: one["tokens"]["prompt"] / one["requests"]["whole"] for n, one in alone.items()}
    short, long = (alone[n]["itl_ms"]["p50"] / 1e3 for n in (PROMPTS[0], PROMPTS[-1]))
    context = max(long - short, 0) / (length[PROMPTS[-1]] - length[PROMPTS[0]])
    step = max(short - row - context * length[PROMPTS[0]], 1e-4)
    token, pair = fit_prompts([(n, alone[key]["ttft_ms"]["p50"] / 1e3 - 2 * seconds_of(args.latency) - -(-n // (CHUNK + SEATS)) * step)
                               for key, n in length.items()])
    if is_sim:
        return Times([step, row, context, token, pair])
    noise = statistics.fmean(step_noise([gap for one in requests for gap in one["itl_ms"]]) for _, requests in runs.values())
    means = [time_s * (1 + noise ** 2) ** 0.5 for time_s in (step, row, context, token, pair)]  # the above are medians
    return Times(means, noise=noise)


def step_noise(gaps):
    """The relative standard deviation of gaps between tokens, if they are lognormal, by their median and 99th percentile: a few
    that are far longer do not count."""
    percent = statistics.quantiles(gaps, n=100)
    sigma = math.log(percent[98] / percent[49]) / statistics.NormalDist().inv_cdf(0.99)
    return math.expm1(sigma ** 2) ** 0.5


def seconds_of(text):
    """A time as baton-sim takes it: 500us, 1ms, 0.001s."""
    for unit, seconds in (("us", 1e-6), ("ms", 1e-3), ("s", 1)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * seconds
    return float(text)


def measure_row(cluster):
    """What one more sequence adds to a step of the only worker that decodes."""
    one, many = (bench(cluster, "-c", f"{n}", "--requests", f"{8 * n}", "-p", "70:70", "-a", "128:128", "--seed", f"{n}")["itl_ms"]["p50"] / 1e3
                 for n in (1, ROWS))
    return max(many - one, 0) / (ROWS - 1)


def measure_drag(cluster):
    """The part by which steps are longer at the median while the other decode worker computes too."""
    ratios = []
    for i in range(8):  # in turns, because the machine's speed changes
        one, two = (bench(cluster, "-c", f"{n}", "--requests", f"{12 * n}", "-p", "70:70", "-a", "64:64", "--seed", f"{100 + i}")["itl_ms"]["p50"] for n in (1, 2))
        ratios.append(two / one)
    return max(statistics.median(ratios) - 1, 0)


def fit_prompts(points):
    """token and pair of seconds = token n + pair n n / 2, with least squares of the seconds of a token; neither is below 0."""
    token, half = fit_line([(n, s / n) for n, s in points])
    if token >= 0:
        return token, 2 * half
    return 0, statistics.fmean(2 * s / n ** 2 for n, s in points)


def fit_line(points):
    """a and b of y = a + b x, with least squares of the points (x, y); b is not below 0."""
    x, y = (statistics.fmean(column) for column in zip(*points))
    xx = sum((at - x) ** 2 for at, _ in points)
    b = max(sum((at - x) * (to - y) for at, to in points) / xx, 0) if xx else 0
    return y - b * x, b


def cpu_of_run(cluster, run):
    """Processor seconds outside of the steps in a run, without those of idle daemons: of a request before its first token, as
    requests of one token take, and of each other token."""
    start, before = time.monotonic(), cpu_outside(cluster)
    time.sleep(3)
    idle = (cpu_outside(cluster) - before) / (time.monotonic() - start)
    start, before = time.monotonic(), cpu_outside(cluster)
    first = bench(cluster, "-c", "1", "--requests", "60", "-p", "60:1200", "-a", "1:1", "--seed", "7")["requests"]["whole"]
    request = (cpu_outside(cluster) - before - idle * (time.monotonic() - start)) / first
    n, n_tokens = run.figures["requests"]["whole"], run.figures["tokens"]["answer"]
    tokens = run.cpu_s - idle * (run.figures["requests"]["seconds"] + 1) - request * n
    return {"token_cpu": max(tokens, 0) / max(n_tokens - n, 1), "request_cpu": max(request, 0)}


def cpu_outside(cluster):
    """Processor seconds so far of all daemons' threads but the busiest of each worker, and of programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    for daemon in cluster.routers + cluster.workers:
        folder, threads = f"/proc/{daemon.process.pid}/task", []
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/schedstat") as f:
                threads.append(int(f.read().split()[0]) / 1e9)
        total += sum(threads) - (0 if daemon in cluster.routers else max(threads))
    return total


def run_sim(trace, times, status, args, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(status, f)
        f.flush()
        return run_sim_with(trace, ["--measured", f.name] if args.times == "status" else ["--prefill-times", steps_text(times.steps), "--decode-times", steps_text(times.steps)], times, args, seed)


def run_sim_with(trace, steps, times, args, seed):
    fleet = ["--prefill", "0", "--decode", "0", "--both", str(args.both)] if args.both else ["--prefill", "2", "--decode", "2"]
    host = ["--host-cores", str(len(os.sched_getaffinity(0))), "--token-cpu", f"{times.token_cpu * 1e6:.0f}us", "--request-cpu", f"{times.request_cpu * 1e6:.0f}us", "--noise", f"{times.noise:.3g}", "--core-drag", f"{times.drag:.3g}"] if args.engine == "bundled" else []
    line = [os.path.join(BUILD, "baton-sim"), "--preset", "demo", "--trace", trace, *fleet,
            *steps, *host, "--seats", str(SEATS), "--chunk", str(CHUNK),
            "--batch", str(CHUNK + SEATS), "--block", str(BLOCK), "--heartbeat", "200ms", "--latency", args.latency, "--nic", "2e9",
            "--ttft", "500ms", "--itl", "50ms", "--local-tokens", "128", "--local-time", "500ms", "--seed", f"{seed}", "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def simulate(log, times, status, args, seed=1):
    """With the arrivals and lengths that the router logged."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as trace:
        trace.write(subprocess.run([os.path.join(BUILD, "baton-trace"), "export"], input=log, check=True, capture_output=True).stdout)
        trace.flush()
        return run_sim(trace.name, times, status, args, seed)


def least_and_most(values):
    values = sorted(values)
    return f"{values[0]:.2f} to {values[-1]:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", default="1ms", help="of a message between daemons, with its wake-ups")
    parser.add_argument("--engine", choices=("sim", "bundled"), default="sim")
    parser.add_argument("--times", choices=("bench", "status"), default="bench")
    parser.add_argument("--both", type=int, default=0)
    parser.add_argument("--runs", type=int, choices=range(1, 101), metavar="N")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    args.runs = args.runs or (3 if args.engine == "bundled" else 1)
    with tempfile.NamedTemporaryFile(suffix=".csv") as trace:
        draw_trace(trace.name, args, args.seconds, args.seed)
        runs, status = run_daemons(trace.name, args)
    runs, times = zip(*runs)
    real, shares = [run.figures for run in runs], [run.share for run in runs]
    seeds = range(1, 1 + (SIMULATED if args.engine == "bundled" else 1))
    reports = [simulate(run.log, one, status, args, seed) for run, one in zip(runs, times) for seed in seeds]
    said = [report["classes"][0] for report in reports]
    print(f"steps by the status of a decode worker: {status.get('steps_ms')}")
    print(f"step times (step, row, context, token, pair): {steps_text(times[0].steps)} s; a token outside of the steps: {statistics.fmean(t.token_cpu for t in times) * 1e6:.0f} us of a core, a request {statistics.fmean(t.request_cpu for t in times) * 1e3:.1f} ms; noise: {times[0].noise:.2f}; cores slow each other by {times[0].drag:.2f}")
    print(f"{'':12} {'daemons':>10} {'simulator':>10} {'error':>8} {'limit':>7}")
    is_good = True
    for name, ms, seconds in (("TTFT", "ttft_ms", "ttft_s"), ("ITL", "itl_ms", "itl_s"), ("E2E", "e2e_ms", "e2e_s")):
        for figure, limit in (("mean", 0.1), ("p50", None), ("p99", 0.2)):
            if figure not in real[0].get(ms, {}):
                continue
            a, b = statistics.fmean(one[ms][figure] for one in real), statistics.fmean(one[seconds][figure] * 1e3 for one in said)
            error = b / a - 1 if a else 0
            is_good = is_good and (limit is None or name == "E2E" or abs(error) <= limit)
            each = f"  daemons {least_and_most(one[ms][figure] for one in real)}" if args.runs > 1 else ""
            print(f"{name + ' ' + figure:12} {a:8.2f}ms {b:8.2f}ms {100 * error:+7.1f}% {'' if limit is None else f'{100 * limit:.0f}%':>6}{each}")
    placed = [report["placed"] for report in reports]
    print(f"handed over: {statistics.fmean(shares):.2f} of the requests; simulator: {statistics.fmean(p['pairs'] / max(p['pairs'] + p['alone'], 1) for p in placed):.2f}")
    for one, simulated in zip(real, said[::len(seeds)]):
        print(f"requests: {one['requests']}; simulator: {simulated['done']} done")
    return 0 if is_good or not args.check else 1


if __name__ == "__main__":
    sys.exit(main())
