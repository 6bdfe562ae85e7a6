#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a router's loop works on what an operator asks of a large fleet: /admin/status, /metrics, batonctl status.

    BATON_BUILD=build python3 tests/bench/bench_fleet.py [WORKERS]      1000 without WORKERS; at most 1024

bench_streams plays the workers: each is a link of its own that registers and reports its load.  The figures are the loop's own, as
in bench_loop.py: the longest piece of work while each request is made N_TIMES."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench_loop import Ear, fetch, show  # noqa: E402
from cluster import BUILD, MODEL, SOURCE, Cluster  # noqa: E402

N_TIMES = int(os.environ.get("BENCH_TIMES", "10"))


def n_up(router, token):
    status, _, body = fetch(router.admin, "GET", "/admin/status", headers=token)
    return body.decode().count('"up": true') if status == 200 else 0


def main():
    n_workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with Cluster() as c:
        router = c.router(link__heartbeat="5s")  # one process plays all workers
        while "router_ready" not in router.tail(100):
            time.sleep(0.05)
        token = {"authorization": f"Bearer {c.admin_token()}"}
        workers = subprocess.Popen([os.path.join(BUILD, "tests/bench/bench_streams"), "--router", f"127.0.0.1:{router.link}", "--key", c.key,
                                    "--workers", str(n_workers), "--model", MODEL], env={**os.environ, "srcdir": SOURCE})
        try:
            ear, until = Ear(router), time.monotonic() + 60
            while n_up(router, token) < n_workers and time.monotonic() < until:
                time.sleep(0.5)
            print(f"{n_up(router, token)} workers; the longest piece of work, in ms\n\n| request | router |\n|---|---|")
            print(f"| they register | {show(ear.longest())} |", flush=True)
            requests = [("they report", lambda: time.sleep(0.5)),
                        ("/admin/status", lambda: fetch(router.admin, "GET", "/admin/status", headers=token)),
                        ("/metrics", lambda: fetch(router.admin, "GET", "/metrics", headers=token)),
                        ("batonctl status", lambda: subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "--admin",
                                                                    f"127.0.0.1:{router.admin}", "status"], check=True, stdout=subprocess.DEVNULL))]
            for name, request in requests:
                ear = Ear(router)
                for _ in range(N_TIMES):
                    request()
                    time.sleep(0.1)
                print(f"| {name} | {show(ear.longest())} |", flush=True)
        finally:
            workers.kill()
            workers.wait()


if __name__ == "__main__":
    main()
