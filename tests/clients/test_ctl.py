#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""batonctl against a stub of the admin port, and the keys that it makes."""
import hashlib
import json
import os
import stat
import tempfile
import threading
import time

from harness import Terminal, main, run
from stub import Stub

ROUTER = {"daemon": "baton-router", "node": "router0", "draining": False, "queued": 0, "handed_off": 12, "local": 3,
          "redispatched": 0, "indexed_blocks": 40, "indexed_on_disk_only": 9, "workers": [
              {"node": "prefill0", "role": "prefill", "up": True, "usable": True, "draining": False, "model": "m", "running": 1,
               "waiting": 0, "queued_prefill_tokens": 100, "prefill_tokens_per_s": 1234.4, "decode_step_ms": 0, "blocks_free": 90,
               "blocks_total": 100, "inflight": 1, "inflight_prefill_tokens": 10, "dispatched": 15, "lost": 0, "rtt_us": 150},
              {"node": "decode0", "role": "decode", "up": True, "usable": True, "draining": False, "model": "m", "running": 2,
               "waiting": 0, "queued_prefill_tokens": 0, "prefill_tokens_per_s": 0, "decode_step_ms": 12.34, "blocks_free": 96,
               "blocks_total": 100, "inflight": 2, "inflight_prefill_tokens": 0, "dispatched": 15, "lost": 1, "rtt_us": 150}]}


class Door(Stub):
    """A stub with its cluster key in a file."""

    def __init__(self, status=ROUTER):
        super().__init__()
        self.dir = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.dir.name, "cluster.key")
        made = run("batonctl", "new-cluster-key", self.file)
        assert made.returncode == 0, made
        with open(self.file) as f:
            self.key = bytes.fromhex(f.read().strip())
        self.status = json.loads(json.dumps(status))
        self.options = ["--cluster-key", self.file, "--admin", f"127.0.0.1:{self.port}"]

    def __exit__(self, *trace):
        super().__exit__(*trace)
        self.dir.cleanup()

    def ctl(self, *args):
        return run("batonctl", *self.options, *args)


def cluster_keys():
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "k")
        assert run("batonctl", "new-cluster-key", path).returncode == 0
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with open(path) as f:
            text = f.read()
        assert len(text) == 65 and bytes.fromhex(text.strip())
        again = run("batonctl", "new-cluster-key", path)
        assert again.returncode == 1 and b"already" in again.stderr
        with open(path) as f:
            assert f.read() == text
        assert run("batonctl", "new-cluster-key", os.path.join(home, "no/where")).returncode == 1
        assert run("batonctl", "new-cluster-key").returncode == 2
        os.chmod(path, 0o644)
        open_to_all = run("batonctl", "--cluster-key", path, "status")
        assert open_to_all.returncode == 1 and b"chmod" in open_to_all.stderr, open_to_all


def api_keys():
    made = run("batonctl", "new-key", "--id", "laptop", "--tenant", "team-a")
    key, line = made.stdout.decode().splitlines()
    assert made.returncode == 0 and key.startswith("sk-")
    assert line.split() == [hashlib.sha256(key.encode()).hexdigest(), "team-a", "laptop"], line
    assert run("batonctl", "new-key").stdout.decode().split()[2:] == ["default"]
    assert run("batonctl", "new-key").stdout != run("batonctl", "new-key").stdout
    assert run("batonctl", "new-key", "--tenant", "a b").returncode == 2


def api_key_limits():
    made = run("batonctl", "new-key", "--tenant", "team-a", "--id", "laptop", "rpm=60", "tpm_out=40k",
               "models=big,small-*", "expires=2099-12-31")
    key, line = made.stdout.decode().splitlines()
    assert made.returncode == 0
    assert line.split()[1:] == ["team-a", "laptop", "rpm=60", "tpm_out=40k", "models=big,small-*", "expires=2099-12-31"]
    for bad in ("rpm=0", "speed=1", "expires=tomorrow", "rpm"):
        refused = run("batonctl", "new-key", bad)
        assert refused.returncode == 2 and bad.split("=")[0].encode() in refused.stderr and not refused.stdout, refused
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "keys")
        with open(path, "w") as f:
            f.write(f"# all\n{line}\n{hashlib.sha256(b'x').hexdigest()} old expires=2020-01-01\n"
                    f"{hashlib.sha256(b'y').hexdigest()} night class=batch\ntenant team-a tpm_in=2m\n")
        os.chmod(path, 0o640)
        shown = run("batonctl", "keys", path)
        assert shown.returncode == 0, shown
        rows = [row.split() for row in shown.stdout.decode().splitlines()]
        assert rows == [["tenant", "team-a", "-", "tpm_in=2000000"],
                        [line[:8], "team-a", "laptop", "rpm=60", "tpm_out=40000", "models=big,small-*",
                         "expires=2099-12-31T00:00:00Z"],
                        [hashlib.sha256(b"x").hexdigest()[:8], "old", "-", "EXPIRED=2020-01-01T00:00:00Z"],
                        [hashlib.sha256(b"y").hexdigest()[:8], "night", "-", "class=batch"]], rows
        assert line[:64] not in shown.stdout.decode() and key not in shown.stdout.decode()
        os.chmod(path, 0o644)
        assert b"chmod" in run("batonctl", "keys", path).stderr


def status_of_a_router():
    with Door() as door:
        shown = door.ctl("status")
        assert shown.returncode == 0, shown
        text = shown.stdout.decode()
        for part in ("12 handed off, 3 local", "prefill0", "decode0", "1234", "12.34", "96/100"):
            assert part in text, (part, text)
        assert json.loads(door.ctl("status", "--json").stdout) == ROUTER
        assert door.ctl("status", "--line").stdout.decode() == (
            "router: 2 workers, 3 running, 0 queued | handed off 12, local 3, redispatched 0 | prefill0 1234 tok/s | "
            "decode0 12.3 ms/token, 96% blocks free\n")
        assert door.ctl("metrics").stdout == b"# TYPE x counter\nx 1\n"


def failures_say_what_to_do():
    with Door() as door, Door() as other:
        wrong = run("batonctl", "--cluster-key", other.file, "--admin", f"127.0.0.1:{door.port}", "status")
        assert wrong.returncode == 1 and b"--cluster-key" in wrong.stderr and other.file.encode() in wrong.stderr, wrong
        away = run("batonctl", "--cluster-key", door.file, "--admin", "127.0.0.1:9", "status")
        assert away.returncode == 1 and b"is the daemon running" in away.stderr and b"127.0.0.1:9" in away.stderr, away
        for address in ("127.0.0.1:0", "127.0.0.1:65536", ":8081", "8081"):
            wrong = run("batonctl", "--cluster-key", door.file, "--admin", address, "status")
            assert wrong.returncode in (1, 2) and address.encode() in wrong.stderr, wrong
            assert b"is the daemon running" not in wrong.stderr, wrong
        by_name = run("batonctl", "--admin", f"127.0.0.1:{door.port}", "status", env={"BATON_CLUSTER_KEY": door.file})
        assert by_name.returncode == 0, by_name
        door.status = ["not", "a", "status"]
        assert door.ctl("status").returncode == 1
    assert run("batonctl", "--cluster-key", "/nonexistent", "status").returncode == 1
    for args in ([], ["no-such"], ["--no-such"], ["status", "extra"], ["drain", "--timeout", "1s"], ["reload", "x"]):
        assert run("batonctl", *args).returncode == 2, args
    assert b"usage:" in run("batonctl", "--help").stdout and run("batonctl", "--version").stdout


def acting():
    with Door() as door:
        for verb in ("drain", "undrain", "reload"):
            assert door.ctl(verb).returncode == 0
        assert door.posted == ["/admin/drain", "/admin/undrain", "/admin/reload"]


def waiting_for_a_drain():
    with Door({"daemon": "baton-decode", "node": "decode0", "draining": False, "tasks": 2, "blocks": {}}) as door:
        late = door.ctl("drain", "--wait", "--timeout", "300ms")
        assert late.returncode == 1 and b"2 still running" in late.stderr, late
        threading.Timer(0.5, lambda: door.status.update(tasks=0)).start()
        began = time.monotonic()
        assert door.ctl("drain", "--wait").returncode == 0
        assert time.monotonic() - began > 0.3


def top_on_a_terminal():
    with Door() as door:
        t = Terminal("batonctl", *door.options, "top", "--interval", "200ms")
        t.wait_for("decode0")
        door.status["workers"][1]["node"] = "decode-two"
        door.status["handed_off"] += 100
        t.wait_for("decode-two")
        door.placements.append({"class": "interactive", "prefix": "0badcafe", "refused": "", "over": True, "prompt_tokens": 100,
                                "uncached_tokens": 25, "first_ms": 10, "ttft_slo_ms": 20})
        t.wait_for("interactive            1    100%       0badcafe        1       100      75%")
        door.key = b"changed"
        t.wait_for("refuses the key")
        t.type("q")
        assert t.status() == 0
        assert t.text.rstrip().endswith(b"\x1b[?1049l"), t.text
    t = Terminal("batonctl", *door.options, "top")  # the key is gone with the door
    assert t.status() == 1
    with Door() as door:
        t = Terminal("batonctl", *door.options, "top")
        t.wait_for("decode0")
        t.type("\x03")
        assert t.status() == 0
        assert door.ctl("top").returncode == 1  # no terminal


main([cluster_keys, api_keys, api_key_limits, status_of_a_router, failures_say_what_to_do, acting, waiting_for_a_drain, top_on_a_terminal])
