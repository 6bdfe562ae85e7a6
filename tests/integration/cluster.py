# SPDX-License-Identifier: Apache-2.0
"""Real daemons on loopback for the integration tests: start, request, fault, status, stop.

A Cluster owns any number of daemons and a scratch folder with a cluster key, logs and sockets.  Its ports are free ones
below the kernel's own range.  Everything here is the standard library.

    with Cluster() as c:
        c.relay()
        answer = c.ask("hello")
"""
import fcntl
import hmac
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

BUILD = os.environ.get("BATON_BUILD", os.getcwd())
SOURCE = os.environ.get("BATON_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODEL = os.path.join(SOURCE, "share", "baton-demo.gguf")
IS_SLOW = os.environ.get("BATON_SLOW", "")  # sanitizer builds are slow


def patience(seconds):
    return seconds * (6 if IS_SLOW else 1)


def _claim_lane():
    """A range of ports that no other test program uses while this one runs: the program holds the range's lock."""
    for i in range(LANES):
        lane = (os.getpid() + i) % LANES
        lock = os.open(os.path.join(tempfile.gettempdir(), f"baton-test-lane-{lane}"), os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lane  # the descriptor stays open in this process and in no child
        except BlockingIOError:
            os.close(lock)
    return os.getpid() % LANES


# Below the range that the kernel uses for port 0 and for outgoing connections. So no other process takes a port between
# its choice here and the daemon's bind.
LANES = 17
_ports = itertools.count(15000 + _claim_lane() * 1000)


def free_port():
    while True:
        port = next(_ports)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Daemon:
    def __init__(self, cluster, role, name, settings):
        self.cluster, self.role, self.name = cluster, role, name
        self.http, self.admin, self.link = free_port(), free_port(), free_port()
        self.settings = dict(settings)
        self.user = self.settings.pop("user", None)
        self.process = None
        self.log_path = os.path.join(cluster.dir, name + ".log")
        self.conf = os.path.join(cluster.dir, name + ".conf")
        open(self.conf, "a").close()

    def command(self):
        sets = {
            "node.name": self.name,
            "link.cluster_key": self.cluster.key,
            "http.listen": f"127.0.0.1:{self.http}",
            "http.admin": f"127.0.0.1:{self.admin}",
            "link.listen": f"127.0.0.1:{self.link}",
            "link.heartbeat": "200ms",
            "log.format": "json",
            "log.level": "debug",
            "stop.drain_timeout": "2s",
            "stop.lame_duck": "0",
        }
        if self.role != "router":
            sets["link.routers"] = f"127.0.0.1:{self.cluster.routers[0].link}" if self.cluster.routers else ""
            sets["model.path"] = MODEL
            sets["kv.memory"] = "64MiB"
            sets["kv.unix_path"] = os.path.join(self.cluster.dir, self.name + ".sock")
            sets["kv.grant_timeout"] = f"{patience(2)}s"
            sets["engine.threads"] = "1"
        sets.update(self.settings)
        line = [os.path.join(self.cluster.build or BUILD, "baton-" + self.role), "--config", self.conf]
        if self.user is not None:
            line = ["setpriv", "--reuid", str(self.user), "--regid", str(self.user), "--clear-groups"] + line
        for key, value in sets.items():
            for one in value if isinstance(value, list) else [value]:
                line += ["--set", f"{key}={one}"]
        return line

    def start(self):
        log = open(self.log_path, "ab")
        self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        return self

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self, timeout=20):
        if self.process is None or self.process.poll() is not None:
            return self.process.returncode if self.process else 0
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience(timeout))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop on SIGTERM; log: {self.tail()}")

    def tail(self, n=15):
        with open(self.log_path, errors="replace") as f:
            return "".join(f.readlines()[-n:])

    def metric(self, name):
        """Sum of all series whose name (with labels, if given) begins with this text."""
        status, _, body = fetch(self.admin, "GET", "/metrics", headers={"authorization": f"Bearer {self.cluster.admin_token()}"})
        assert status == 200, (status, body)
        return sum(float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines()
                   if line.startswith(name) and not line.startswith("#"))

    def status(self):
        """The output of `batonctl status --json`, by the same request.  To start a process each time would take most of
        a test's time."""
        status, _, body = fetch(self.admin, "GET", "/admin/status", headers={"authorization": f"Bearer {self.cluster.admin_token()}"},
                                timeout=10)
        assert status == 200, (status, body)
        return json.loads(body)

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def fetch(port, method, path, body=None, headers=None, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(timeout))
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
        response = connection.getresponse()
        return response.status, dict((k.lower(), v) for k, v in response.getheaders()), response.read()
    finally:
        connection.close()


def events(response):
    """Server-sent events of a response as they arrive: (name, data)."""
    name, data = None, []
    while True:
        line = response.readline()
        if not line:
            return
        line = line.decode().rstrip("\r\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])
        elif not line and name:
            yield name, json.loads("\n".join(data))
            name, data = None, []


class Stream:
    """One streamed request; iterating gives events."""

    def __init__(self, port, body, headers=None, timeout=60):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(timeout))
        self.connection.request("POST", "/v1/messages", json.dumps(dict(body, stream=True)),
                                {"content-type": "application/json", "baton-proof": "stream", **(headers or {})})
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def __iter__(self):
        return events(self.response)

    def close(self):
        """Closes the connection at once, as a client that has gone does."""
        sock = self.connection.sock or self.response.fp.raw._sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.response.close()
        self.connection.close()
        sock.close()

    def finish(self):
        answer = Answer()
        for name, data in self:
            answer.add(name, data)
        self.connection.close()
        return answer


class Answer:
    def __init__(self):
        self.text, self.usage, self.stop, self.error, self.names, self.is_whole = "", {}, None, None, [], False
        self.serving = {}

    def add(self, name, data):
        self.names.append(name)
        if name == "message_start":
            self.usage.update(data["message"]["usage"])
        elif name == "content_block_delta":
            self.text += data["delta"].get("text", "")
        elif name == "message_delta":
            self.stop = data["delta"]["stop_reason"]
            self.usage.update(data["usage"])
            self.serving = data["usage"].get("baton", {})
        elif name == "message_stop":
            self.is_whole = True
        elif name == "error":
            self.error = data["error"]


class Cluster:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="baton-it.")
        self.key = os.path.join(self.dir, "cluster.key")
        subprocess.run([os.path.join(BUILD, "batonctl"), "new-cluster-key", self.key], check=True, stdout=subprocess.DEVNULL)
        self.routers, self.workers = [], []
        self.build = None  # of the daemons that start from now on; None: BUILD

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        def stop(daemon):
            try:
                return daemon.name, daemon.stop()
            except AssertionError as e:
                return daemon.name, str(e)

        codes = in_threads([lambda w=w: stop(w) for w in self.workers]) + [stop(r) for r in self.routers]
        if kind is not None:
            for daemon in self.routers + self.workers:
                print(f"--- {daemon.name}\n{daemon.tail()}", file=sys.stderr)
        else:
            for name, code in codes:
                assert code in (0, -9, None), f"{name} ended with {code}: {self.daemon(name).tail()}"
        shutil.rmtree(self.dir, ignore_errors=True)

    def admin_token(self):
        with open(self.key) as f:
            return hmac.new(bytes.fromhex(f.readline().strip()), b"admin", "sha256").hexdigest()

    def daemon(self, name):
        return next(d for d in self.routers + self.workers if d.name == name)

    def router(self, **settings):
        daemon = Daemon(self, "router", f"router{len(self.routers)}", {
            "slo.ttft": "60s", "slo.itl": "60s", "placement.local_prefill_tokens": "16",
            "placement.local_prefill_time": "0", "queue.timeout": "20s",
            **{k.replace("__", "."): v for k, v in settings.items()}})
        self.routers.append(daemon)
        return daemon.start()

    def worker(self, role, **settings):
        n = sum(w.role == role for w in self.workers)
        daemon = Daemon(self, role, f"{role}{n}", {k.replace("__", "."): v for k, v in settings.items()})
        self.workers.append(daemon)
        return daemon.start()

    def relay(self, **settings):
        """A router with these settings, and a ready prefill and decode worker."""
        self.router(**settings)
        self.worker("prefill")
        self.worker("decode")
        self.wait_ready(prefill=1, decode=1)

    def wait_ready(self, prefill=0, decode=0, timeout=30, both=0):
        until = time.monotonic() + patience(timeout)
        usable = {}
        while time.monotonic() < until:
            for daemon in self.routers + self.workers:
                assert daemon.process.poll() in (None, -9), f"{daemon.name} stopped: {daemon.tail()}"
            try:
                workers = [w for w in self.routers[0].status()["workers"] if w["usable"]]
                usable = {role: sum(w["role"] == role for w in workers) for role in ("prefill", "decode", "both")}
                if usable == {"prefill": prefill, "decode": decode, "both": both or usable["both"]}:
                    return
            except (OSError, http.client.HTTPException):
                pass  # not listening yet, or stopped
            time.sleep(0.05)
        raise AssertionError(f"not ready: {usable}")

    # ---- requests ----

    def body(self, text, **fields):
        return {"model": "baton-demo", "max_tokens": 64, "temperature": 0,
                "messages": [{"role": "user", "content": text}], **fields}

    def stream(self, text, port=None, **fields):
        return Stream(port or self.routers[0].http, self.body(text, **fields))

    def ask(self, text, port=None, **fields):
        stream = self.stream(text, port, **fields)
        assert stream.status == 200, (stream.status, stream.response.read())
        answer = stream.finish()
        assert answer.is_whole, (answer.error, answer.names)
        return answer

    # ---- status ----

    def assert_quiet(self, timeout=15):
        """Waits until no live worker has a sequence, lease or half-filled block."""
        until = time.monotonic() + patience(timeout)
        for worker in self.workers:
            while worker.process.poll() is None:
                blocks = worker.status()
                state = {k: blocks["blocks"][k] for k in ("filling", "sealed", "zombie", "leased")}
                if not any(state.values()) and blocks["tasks"] == 0:
                    break
                assert time.monotonic() < until, f"{worker.name} still holds {state}, {blocks['tasks']} tasks"
                time.sleep(0.05)


def in_threads(jobs):
    """Runs callables at the same time and returns their results; raises the first exception."""
    results, errors = [None] * len(jobs), []

    def work(i):
        try:
            results[i] = jobs[i]()
        except BaseException as e:  # noqa: B036 - the caller gets it
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def main(tests, at_once=1):
    """Runs functions in order, or several at once where most of a test is waiting.  Returns automake's exit status."""
    only = sys.argv[1:]
    if not os.path.exists(MODEL):
        print(f"no bundled model at {MODEL}")
        sys.exit(77)

    def run(test):
        began = time.monotonic()
        try:
            test()
        except BaseException:
            print(f"FAILED {test.__name__}", flush=True)
            raise
        print(f"ok {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)

    chosen = [test for test in tests if not only or test.__name__ in only]
    if at_once == 1:
        for test in chosen:
            run(test)
        return
    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(run, chosen):  # raises what a test raised
            pass
