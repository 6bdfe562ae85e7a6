# SPDX-License-Identifier: Apache-2.0
"""A router with bounded memory refuses bodies that need more by name and answers those that fit.  The process ends on
SIGTERM, in any state of its threads."""
import http.client
import json
import os
import signal
import socket
import time

from cluster import Cluster, Daemon, fetch, in_threads, main, patience

MIB = 1 << 20
BODY_BYTES = 27 * MIB


class Bounded(Daemon):
    """A daemon with a bound on its address space (ulimit -v)."""

    space_bytes = 200 * MIB

    def command(self):
        return ["prlimit", f"--as={self.space_bytes}"] + super().command()


def bounded_router(cluster, space_bytes=200 * MIB, **settings):
    daemon = Bounded(cluster, "router", "router0", settings)
    daemon.space_bytes = space_bytes
    cluster.routers.append(daemon)
    daemon.start()
    until = time.monotonic() + patience(10)
    while True:
        try:
            fetch(daemon.http, "GET", "/livez")
            return daemon
        except OSError:
            assert daemon.process.poll() is None and time.monotonic() < until, daemon.tail()
            time.sleep(0.05)


def bodies():
    """Bodies of 27 MB each: one text, many short texts, many numbers of many digits, one key, one number, empty objects."""
    text = "all work and no play " * (BODY_BYTES // 21)
    yield "text", json.dumps(dict(model="m", max_tokens=1, messages=[{"role": "user", "content": text}]))
    words = ["x" * 60] * (BODY_BYTES // 64)
    yield "texts", json.dumps(dict(model="m", max_tokens=1, metadata=words, messages=[{"role": "user", "content": "x"}]))
    yield "escapes", '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"' + "\\u00e9" * (BODY_BYTES // 6) + '"}]}'
    yield "key", '{"model":"m","max_tokens":1,"' + "k" * BODY_BYTES + '":1,"messages":[{"role":"user","content":"x"}]}'
    yield "number", '{"model":"m","max_tokens":1' + "0" * BODY_BYTES + ',"messages":[{"role":"user","content":"x"}]}'
    yield "objects", '{"model":"m","max_tokens":1,"metadata":[' + ",".join(["{}"] * 900000) + " " * (BODY_BYTES - 2700000) + "]}"
    yield "blocks", json.dumps(dict(model="m", max_tokens=1, messages=[
        {"role": "user", "content": [{"type": "text", "text": "x" * 200}] * (BODY_BYTES // 240)}]))


def post(port, body):
    """Returns the status, or None if the connection broke."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(40))
    try:
        connection.request("POST", "/v1/messages", body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    except (ConnectionError, http.client.BadStatusLine) as e:
        return None, str(e).encode()
    finally:
        connection.close()


def cpu_s(daemon):
    with open(f"/proc/{daemon.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_at_rest(daemon):
    """Waits until no thread works."""
    until = time.monotonic() + patience(20)
    while time.monotonic() < until:
        before = cpu_s(daemon)
        time.sleep(0.5)
        if cpu_s(daemon) - before < 0.1:
            return True
    return False


def a_parse_without_memory_ends():
    """Three at once of each kind: each gets an answer (404: no such model, 400: malformed, 413, 503, 529).  Then no
    thread works any more, a small request is answered, and one SIGTERM ends the process."""
    with Cluster() as c:
        for name, body in bodies():
            c.routers.clear()
            daemon = bounded_router(c)
            answers = in_threads([lambda: post(daemon.http, body)] * 3)
            assert daemon.process.poll() is None, (name, daemon.tail())
            for status, text in answers:
                assert status in (None, 400, 404, 413, 503, 529), (name, status, text[:200])
            assert is_at_rest(daemon), (name, daemon.tail())
            status, text = post(daemon.http, json.dumps(dict(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}])))
            assert status in (404, 503), (name, status, text)
            begun = time.monotonic()
            assert daemon.stop(timeout=10) == 0, name
            assert time.monotonic() - begun < patience(8), name


if __name__ == "__main__":
    main([a_parse_without_memory_ends])
