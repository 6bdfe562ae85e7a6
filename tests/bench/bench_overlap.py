#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of the hand-off for a client: router + prefill + decode worker against router + one worker that does both.

Requests come in pairs, one to each deployment, one at a time; the first of a pair alternates.  So a change of the machine's
speed affects both.  The figure is the median of the pairs' ratios, with the quartiles beside it.  Every prompt is random
token ids, so no prefix cache has it.

    router "pair" -- prefill0, decode0        the deployment under test
    router "one"  -- prefill0                 the reference: the worker that computed the prompt does the whole request.  There are
    router "one"  -- decode0                  two, since the pair's router may leave a prompt to its decode worker (--place)

Both deployments share their workers, each registered with two routers.  Two processes of one binary differ by a tenth or
more with the placement of their memory, which has nothing to do with the hand-off.  As root the daemons take precedence over
other programs.

    cd build && BATON_SOURCE=.. python3 ../tests/bench/bench_overlap.py MODEL.gguf

TTFT and the time to the second token are the router's own (server-timing of an answer of two tokens: ttft and total).
"exposed" is the time that the answer waits for KV after prefill (server-timing: exposed).  "layer" is the prefill's time
divided by the model's layers.
"""
import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster  # noqa: E402

TRANSPORTS = {
    "shm": {"kv.transport": "shm"},
    "tls": {"kv.transport": "tcp"},
    "tcp": {"kv.transport": "tcp", "kv.tcp_encrypt": "no"},
}
PATTERNS = r"^ *layers +(\d+)", r"^ *tokenizer .*?(\d+) tokens"
HAND_OVER = {"placement.local_prefill_tokens": "0", "placement.local_prefill_time": "0"}
PLACE = {"placement.local_prefill_tokens": "128", "placement.local_prefill_time": "500ms", "slo.ttft": "500ms"}
REST_S = 0.5  # before a request: until all routers have heard (heartbeats) that the one before it is over
LEAST_ID, LAST_IDS = 300, 16  # bytes, special and control tokens lie at either end of the usual vocabularies


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("model", help="a GGUF file")
    p.add_argument("--tokens", default="64,256,1024,2048", help="lengths of prompts (%(default)s)")
    p.add_argument("--transports", default="shm,tls,tcp", help="(%(default)s)")
    p.add_argument("--pairs", type=int, default=9, help="of requests for each figure (%(default)s)")
    p.add_argument("--threads", type=int, default=0, help="of each worker; 0: one for each CPU (%(default)s)")
    p.add_argument("--place", action="store_true", help="let the router place as it does by default, instead of handing every prompt over")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all workers")
    return p.parse_args()


def layers_and_vocabulary(model):
    out = subprocess.run([os.path.join(BUILD, "baton-model"), "info", model], capture_output=True, text=True, check=True).stdout
    return tuple(int(re.search(pattern, out, re.M).group(1)) for pattern in PATTERNS)


def fields_of(text, separator):
    return dict(part.strip().split("=", 1) for part in text.split(separator))


def ask(router, ids, n_tokens=2):
    """One answer: its times in milliseconds and its serving stats; None if the model ended it early."""
    body = json.dumps({"model": "bench", "prompt": ids, "max_tokens": n_tokens, "temperature": 0})
    connection = http.client.HTTPConnection("127.0.0.1", router.http, timeout=600)
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == 200, answer
    timing = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([0-9.]+)", response.headers["server-timing"])}
    serving = fields_of(response.headers["baton-proof"], ";")
    return (timing, serving) if int(serving["drawn"]) == n_tokens else None


class Bench:
    def __init__(self, cluster, model, threads, settings):
        self.c, self.model, self.settings = cluster, model, settings
        self.settings.update({"model.path": model, "model.name": "bench", "kv.memory": "1GiB", "kv.grant_timeout": "10s",
                              "engine.threads": str(threads), "log.level": "info"})

    def start(self, placement, transport):
        c = self.c
        self.pair, by_prefill, by_decode = c.router(**placement, **{"log.level": "info"}), c.router(), c.router()
        self.one = {"prefill0": by_prefill, "decode0": by_decode}
        for role in ("prefill", "decode"):
            links = [f"127.0.0.1:{router.link}" for router in (self.pair, self.one[role + "0"])]
            c.worker(role, **self.settings, **TRANSPORTS[transport], **{"link.routers": links})
        c.wait_ready(prefill=1, decode=1, timeout=120)
        while not all(any(w["usable"] for w in router.status()["workers"]) for router in self.one.values()):
            time.sleep(0.1)

    def rested(self, router, ids):
        time.sleep(REST_S)
        return ask(router, ids)

    def pairs(self, n_tokens, n_pairs, vocabulary):
        """[(one, pair)] of (timing, serving)."""
        found, computed_by = [], "prefill0"
        while len(found) < n_pairs:
            ids = [[random.randrange(LEAST_ID, vocabulary - LAST_IDS) for _ in range(n_tokens)] for _ in range(2)]
            order = [self.one[computed_by], self.pair] if len(found) % 2 else [self.pair, self.one[computed_by]]
            answers = {router.name: self.rested(router, ids[i]) for i, router in enumerate(order)}
            if not all(answers.values()):
                continue
            pair = answers[self.pair.name]
            computed_by = pair[1]["prefill"] or pair[1]["decode"]
            one = answers.get(self.one[computed_by].name) or self.rested(self.one[computed_by], ids[0][::-1])
            if one:
                found.append((one, pair))
        return found


def ratio(pairs, name):
    return statistics.quantiles([pair[0][name] / one[0][name] for one, pair in pairs], n=4)


def report(transport, n_tokens, n_layers, pairs):
    median = lambda side, name: statistics.median(p[side][0].get(name, 0) for p in pairs)
    serving = pairs[-1][1][1]
    show = lambda q: f"{q[1]:.3f} ({q[0]:.2f}-{q[2]:.2f})"
    layer = median(1, "prefill") / n_layers
    print(f"{transport:4} {n_tokens:6} {serving['transferred']:>6} {median(0, 'ttft'):9.1f} {median(1, 'ttft'):9.1f}  "
          f"{show(ratio(pairs, 'ttft')):18} {median(0, 'total'):9.1f} {median(1, 'total'):9.1f}  {show(ratio(pairs, 'total')):18} "
          f"{median(1, 'transfer'):9.1f} {median(1, 'exposed'):8.2f} {layer:8.2f}", flush=True)


def take_precedence():
    """As root the daemons run before other programs, whose time is not part of the figures.  Niceness counts only within a
    session, so the daemons get their own session, and its niceness is set."""
    try:
        if os.getpid() != os.getpgrp():
            os.setsid()
        with open("/proc/self/autogroup", "w") as f:
            f.write("-20")
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError as e:
        print(f"beside other programs ({e})")


def main():
    args = arguments()
    take_precedence()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the daemons end with us
    n_layers, vocabulary = layers_and_vocabulary(args.model)
    settings = dict(part.split("=", 1) for part in args.set)
    print(f"{os.path.basename(args.model)}: {n_layers} layers; {args.pairs} pairs; times in ms; ratios: median (quartiles)")
    print(f"{'':4} {'tokens':>6} {'moved':>6} {'TTFT: one':>9} {'pair':>9}  {'ratio':18} {'2nd: one':>9} {'pair':>9}  {'ratio':18} "
          f"{'transfer':>9} {'exposed':>8} {'layer':>8}", flush=True)
    for transport in args.transports.split(","):
        with Cluster() as cluster:
            bench = Bench(cluster, args.model, args.threads or os.cpu_count(), settings)
            bench.start(PLACE if args.place else HAND_OVER, transport)
            bench.pairs(64, 2, vocabulary)  # links, mappings and rates, once
            for n_tokens in map(int, args.tokens.split(",")):
                report(transport, n_tokens, n_layers, bench.pairs(n_tokens, args.pairs, vocabulary))


main()
