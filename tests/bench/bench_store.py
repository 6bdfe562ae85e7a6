# SPDX-License-Identifier: Apache-2.0
"""The remote tier's bytes per second beside those of redis-benchmark, with values of the same size, in the same run.

    cd build && make tests/bench/bench_remote && BATON_BUILD=$PWD BATON_SOURCE=.. python3 ../tests/bench/bench_store.py [ROUNDS [CASES]]

The two take turns, so that other load on the machine falls on both; the table has the best round of each.  redis-benchmark
has as many connections as the tier: one to write, two to read, and neither encrypts nor keeps what it reads.  Both write
new keys, and read as many keys that are there: few keys would lie in the processor's cache."""
import os
import re
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ.get("BATON_SOURCE", ".."), "tests", "integration"))
import redis_server  # noqa: E402
from redis_server import Redis  # noqa: E402

BENCH = os.path.join(os.environ.get("BATON_BUILD", "."), "tests", "bench", "bench_remote")
CASES = [(96, 1), (96, 16), (256, 16), (1024, 1), (1024, 4), (4096, 1)]  # KiB of a block, blocks of a run
TOTAL_KIB = 192 * 1024
NEW_KEYS = 10 ** 9  # that redis-benchmark draws from to write


def own(store, kib, run):
    out = subprocess.run([BENCH, store.url, str(kib), str(TOTAL_KIB // kib), "2", str(run)], check=True, capture_output=True,
                         text=True).stdout
    return [float(re.search(rf"{what} ([\d.]+) GB/s", out)[1]) for what in ("write", "read", "seal alone")]


def server(store, kib, test, n_clients, n_keys):
    n = max(256, TOTAL_KIB // kib) if test == "get" else TOTAL_KIB // kib
    out = subprocess.run(["redis-benchmark", "-p", str(store.port), "-t", test, "-d", str(kib * 1024), "-c", str(n_clients),
                          "-n", str(n), "-r", str(n_keys), "--csv"], check=True, capture_output=True, text=True).stdout
    per_s = float(out.strip().splitlines()[-1].split(",")[1].strip('"'))
    return per_s * kib * 1024 / 1e9


def fill(store, kib, n_keys):
    """Writes the keys that redis-benchmark reads: it draws them, so it would leave some out."""
    value = b"x" * (kib * 1024)
    with socket.create_connection(("127.0.0.1", store.port)) as s, s.makefile("rb") as replies:
        for i in range(n_keys):
            s.sendall(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (i, len(value), value))
            assert replies.readline() == b"+OK\r\n"


def main():
    redis_server.want()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    cases = CASES[:int(sys.argv[2])] if len(sys.argv) > 2 else CASES
    print("| block | value | written, GB/s | redis-benchmark SET | % | read, GB/s | redis-benchmark GET | % | seal |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kib, run in cases:
        best = [0.0] * 5
        for _ in range(rounds):
            with Redis("--maxmemory", "3gb", "--maxmemory-policy", "allkeys-lru") as store:
                figures = [*own(store, kib, run), server(store, kib * run, "set", 1, NEW_KEYS)]
                n_keys = TOTAL_KIB // (kib * run)
                fill(store, kib * run, n_keys)
                figures.append(server(store, kib * run, "get", 2, n_keys))
            best = [max(pair) for pair in zip(best, figures)]
        write, read, seal, sets, gets = best
        print(f"| {kib} KiB | {kib * run} KiB | {write:.2f} | {sets:.2f} | {100 * write / sets:.0f} | {read:.2f} | {gets:.2f} | "
              f"{100 * read / gets:.0f} | {seal:.2f} |", flush=True)


if __name__ == "__main__":
    main()
