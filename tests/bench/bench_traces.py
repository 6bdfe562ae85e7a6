# SPDX-License-Identifier: Apache-2.0
"""What spans cost when their collector is dead or slow: processor time of router and workers for a request, and memory.

    BATON_BUILD=build python3 tests/bench/bench_traces.py [ROUNDS [REQUESTS]]        (9, 400)

Clusters of a router, a prefill and a decode worker with the bundled model run side by side: without traces, with the default
sample of 1 % and a dead collector (its port is closed), and with every request sampled, towards a dead one, a mute one (it
takes connections and reads nothing) and one that answers after two seconds.  Rounds go through the clusters in turns, each
time from another one on, so that a busy machine slows all alike.  The figure is the median of the rounds' ratios to the
cluster without traces, with the quartiles.
"""
import http.server
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster, free_port  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 400
TICKS = os.sysconf("SC_CLK_TCK")


def mute_collector():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    return listener, listener.getsockname()[1]


def late_collector():
    class Late(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            time.sleep(2)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Late)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, server.server_address[1]


def nanoseconds(pid):
    """Processor time of all threads of a process."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as f:
            total += int(f.read().split()[0])
    return total


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def daemons(cluster):
    return cluster.routers + cluster.workers


def one_round(cluster):
    before = {d.name: nanoseconds(d.process.pid) for d in daemons(cluster)}
    subprocess.run([os.path.join(BUILD, "baton-bench"), "-u", f"http://127.0.0.1:{cluster.routers[0].http}", "-n", str(REQUESTS), "-c", "2",
                    "-p", "96", "-a", "16", "--json"], check=True, stdout=subprocess.DEVNULL)
    spent = {d.name: nanoseconds(d.process.pid) - before[d.name] for d in daemons(cluster)}
    return spent["router0"] / REQUESTS / 1e3, sum(spent.values()) / REQUESTS / 1e3


def main():
    mute, mute_port = mute_collector()
    late, late_port = late_collector()
    kinds = {"no traces": {},
             "dead, 1 %": {"trace.url": f"http://127.0.0.1:{free_port()}", "trace.sample": "1%"},
             "dead, 100 %": {"trace.url": f"http://127.0.0.1:{free_port()}", "trace.sample": "100%"},
             "mute, 100 %": {"trace.url": f"http://127.0.0.1:{mute_port}", "trace.sample": "100%"},
             "two seconds late, 100 %": {"trace.url": f"http://127.0.0.1:{late_port}", "trace.sample": "100%"}}
    clusters, figures, memory = {}, {kind: [] for kind in kinds}, {}
    try:
        for kind, settings in kinds.items():
            cluster = clusters[kind] = Cluster()
            cluster.router(**settings, log__level="warn")
            for role in ("prefill", "decode"):
                cluster.worker(role, **{k: v for k, v in settings.items() if k == "trace.url"}, log__level="warn")
            cluster.wait_ready(prefill=1, decode=1)
            one_round(cluster)
            memory[kind] = sum(resident_kib(d.process.pid) for d in daemons(cluster))
        order = list(kinds)
        for n in range(ROUNDS):
            for kind in order[n % len(order):] + order[:n % len(order)]:
                figures[kind].append(one_round(clusters[kind]))
        print(f"{ROUNDS} rounds of {REQUESTS} requests, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for kind in kinds:
            ratios = [[100 * (own[i] / base[i] - 1) for own, base in zip(figures[kind], figures["no traces"])] for i in range(2)]
            grown = sum(resident_kib(d.process.pid) for d in daemons(clusters[kind])) - memory[kind]
            dropped = sum(d.metric("baton_trace_spans_dropped_total") for d in daemons(clusters[kind])) if kind != "no traces" else 0
            parts = []
            for name, list_, i in (("router", ratios[0], 0), ("all daemons", ratios[1], 1)):
                low, mid, high = statistics.quantiles(list_, n=4) if len(list_) > 1 else (list_[0],) * 3
                parts.append(f"{name} {statistics.median(f[i] for f in figures[kind]):.0f} us a request, {mid:+.1f} % ({low:+.1f} to {high:+.1f})")
            print(f"{kind:24} {'; '.join(parts)}; memory {grown:+d} KiB; {dropped:.0f} spans dropped")
    finally:
        for cluster in clusters.values():
            for daemon in daemons(cluster):
                daemon.process.kill()
                daemon.process.wait()
            cluster.__exit__(None, None, None)
        mute.close()
        late.shutdown()


main()
