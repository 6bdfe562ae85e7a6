# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 clients that read nothing, read a byte now and then, or flood: the router's memory stays bounded, and honest requests beside
them are all answered.  Prints the largest piece of the loop's work and the honest requests' times (BATON_SECONDS: of each attack)."""
import json
import os
import socket
import struct
import sys
import threading
import time

from cluster import Cluster, fetch, main

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from bench_loop import Ear, show  # noqa: E402

SECONDS = float(os.environ.get("BATON_SECONDS", "1.5"))
GROWTH = 96 << 20  # with 1,000 streams, each with its parser and an answer that waits
N_CONNECTIONS, N_STREAMS = 10, 100
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def field(name, value):
    """HPACK: a literal field with a new name, without index, without Huffman."""
    def text(t):
        raw = t.encode()
        assert len(raw) < 127
        return bytes((len(raw),)) + raw
    return b"\x00" + text(name) + text(value)


def head(length):
    return b"".join(field(n, v) for n, v in ((":method", "POST"), (":scheme", "http"), (":path", "/v1/messages"), (":authority", "a"),
                                             ("content-type", "application/json"), ("content-length", str(length))))


BODY = json.dumps({"model": "baton-demo", "max_tokens": 2000, "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()


def request(stream):
    return frame(HEADERS, 4, stream, head(len(BODY))) + frame(DATA, 1, stream, BODY)


def connect(port, settings=b""):
    s = socket.create_connection(("127.0.0.1", port), timeout=5)
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, settings))
    return s


def flood(port, ends, piece):
    """Sends piece(n) over and over, on a new connection whenever the router has closed one."""
    n_closed = 0
    while time.monotonic() < ends:
        with connect(port) as s:
            try:
                for n in range(1000000):
                    s.sendall(piece(n))
                    if time.monotonic() >= ends:
                        break
            except OSError:
                n_closed += 1
    return n_closed


def streams(port, ends, settings, reads):
    """Opens 1,000 streams; then reads a byte of each connection every 0.1 s, or nothing."""
    held = [connect(port, settings) for _ in range(N_CONNECTIONS)]
    for s in held:
        try:
            s.sendall(b"".join(request(1 + 2 * i) for i in range(N_STREAMS)))
        except OSError:
            pass
    while time.monotonic() < ends:
        time.sleep(0.1)
        for s in held if reads else []:
            try:
                s.recv(1)
            except OSError:
                pass
    for s in held:
        s.close()
    return 0


ATTACKS = {
    "1,000 streams with a window of 0": lambda port, ends: streams(port, ends, struct.pack(">HI", 4, 0), False),
    "1,000 streams, a byte read now and then": lambda port, ends: streams(port, ends, b"", True),
    "1,000 streams that are never read": lambda port, ends: streams(port, ends, struct.pack(">HI", 4, 2**31 - 1), False),
    "streams opened and reset": lambda port, ends: flood(port, ends, lambda n: request(1 + 2 * n) + frame(RST_STREAM, 0, 1 + 2 * n, b"\0\0\0\x08")),
    "CONTINUATION without end": lambda port, ends: flood(port, ends, lambda n: frame(HEADERS, 0, 1, head(1)) if n == 0
                                                         else frame(CONTINUATION, 0, 1, field("x", "v" * 100) * 10)),
    "SETTINGS": lambda port, ends: flood(port, ends, lambda n: frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535 + n % 2)) * 50),
    "PING": lambda port, ends: flood(port, ends, lambda n: frame(PING, 0, 0, b"12345678") * 50),
    "WINDOW_UPDATE of 1": lambda port, ends: flood(port, ends, lambda n: frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 50)}


def resident(daemon):
    with open(f"/proc/{daemon.process.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def attack(router, name):
    ends, closed, times = time.monotonic() + SECONDS, [], []
    ear, before, most = Ear(router), resident(router), 0
    thread = threading.Thread(target=lambda: closed.append(ATTACKS[name](router.http, ends)))
    thread.start()
    while time.monotonic() < ends:
        begun = time.monotonic()
        status, _, body = fetch(router.http, "POST", "/v1/messages", {"model": "baton-demo", "max_tokens": 1, "messages": [
            {"role": "user", "content": "hi"}]})
        times.append(time.monotonic() - begun)
        assert status == 200, (name, status, body)
        most = max(most, resident(router) - before)
        time.sleep(0.02)
    thread.join()
    assert closed, (name, "the attack itself failed")
    assert most < GROWTH, (name, most)
    times.sort()
    print(f"| {name} | {show(ear.longest())} | {most / 2**20:.0f} | {times[len(times) // 2] * 1e3:.0f}, {times[-1] * 1e3:.0f} | {closed[0] or ''} |",
          flush=True)


def honest_requests_are_answered_beside_floods():
    with Cluster() as c:
        router = c.router(http__h2c="yes", http__max_per_address="1000")
        c.worker("decode", engine__kind="sim", engine__sim_step="2ms", sched__max_seqs="2000", kv__memory="512MiB")
        c.wait_ready(decode=1)
        print("| attack | longest piece of the loop's work, ms | growth, MiB | honest requests, median and longest, ms | connections closed |"
              "\n|---|---|---|---|---|", flush=True)
        for name in ATTACKS:
            attack(router, name)
            # the remains of the attack are cancelled before the next one begins
            ends = time.monotonic() + 20
            while router.status()["queued"] > 0 and time.monotonic() < ends:
                time.sleep(0.05)
        assert router.metric('baton_http_refused_total{why="h2_abuse"') > 0


if __name__ == "__main__":
    main([honest_requests_are_answered_beside_floods])
