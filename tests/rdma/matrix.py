# SPDX-License-Identifier: Apache-2.0
"""The fault matrix (tests/integration/test_matrix.py) over verbs, in the test machine. It adds faults of rails, which only
RDMA has.

Both workers have two rails (see init). Control links and TCP use the loopback device, which stays up. These cells are added,
in every phase and with a client that stays or goes away:

    rail  lost           one device's link goes down: the rest of the transfer goes over TCP, the next transfers over the other rail
    rails lost           both do

The links come back after each cell, and RDMA is used again.  In mid-transfer they go down when some of the pieces have
arrived.  Neither engine may notice, and only the missing pieces cross the loopback device.

Each cell must also hold the following. In mid-transfer, queue pairs are up when the fault comes, so the fault hits verbs.
Afterwards the kernel's list of verbs objects (rdma resource) has none of a dead process. Every queue pair has its
counterpart and one completion queue, and no process has more regions or domains than at first.
"""
import json
import os
import subprocess
import sys
import time

import test_matrix
from cluster import patience
from test_matrix import PHASES, Cell, said_since

DEVICES = ("d0", "d1")
BLOCK_TOKENS = 8
PIECE_BYTES = BLOCK_TOKENS * 128              # the simulated engine has two layers, and 128 bytes for a token in each
GROUP_PACKETS = 2 * 128 * PIECE_BYTES // 4096 # a chunk of a layer is 128 pieces: the first two are a prompt's first 1024 tokens
LONG = "The relay goes on while the stadium watches it. " * 52 # with the usual prompt some 1500
PROBE_PACKETS = 20      # a usual prompt comes to more
LONGEST_REST_S = 3
SLACK_BYTES = 128 << 10 # half of what those two chunks are: what daemons and this program say to each other meanwhile
SETTINGS = {"kv__transport": "rdma", "kv__rdma_devices": "rxe0:1@10.9.0.1, rxe1:1@10.9.1.1", "kv__rdma_rest": "1s",
            "kv__block_tokens": BLOCK_TOKENS, "kv__memory": "4MiB", "log__level": "info",
            "link__heartbeat": "1s"} # a moment's stop of the whole machine must not look like one of a daemon


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def link_set(devices, state):
    for device in devices:
        run("ip", "link", "set", device, state)


def process_of(thread):
    """The kernel lists which thread made an object."""
    try:
        with open(f"/proc/{thread}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Tgid:"))
    except OSError:
        return 0


def objects(kind):
    """Verbs objects of processes, as the kernel lists them; "process" is 0 where that is gone."""
    return [dict(o, process=process_of(o["pid"])) for o in json.loads(run("rdma", "-j", "resource", "show", kind) or "[]") if "pid" in o]


def number_in(path):
    with open(path) as f:
        return int(f.read())


def packets_received():
    return sum(number_in(f"/sys/class/infiniband/rxe{i}/ports/1/hw_counters/rcvd_pkts") for i in range(len(DEVICES)))


def bytes_over_loopback():
    return number_in("/sys/class/net/lo/statistics/rx_bytes")


class RdmaRig(test_matrix.Rig):
    heartbeat_s = 1.0

    def __init__(self, c, transport):
        self.first_objects, self.seen_until, self.lost = {}, time.time(), ""
        self.packets_before = self.loopback_before = self.loopback_bytes = 0
        super().__init__(c, transport)

    def settings(self):
        return {**super().settings(), **SETTINGS}

    # ---- striking ----

    def prompt(self, cell=None):
        self.packets_before = packets_received()
        is_long = cell is not None and cell.victim in ("link", "data", "rail", "rails") and cell.phase == "mid-transfer"
        return super().prompt() + (LONG if is_long else "")

    def queue_pairs_between(self, *daemons):
        pids = {d.process.pid for d in daemons}
        return [q for q in objects("qp") if q["process"] in pids and q["state"] == "RTS"]

    def hurt(self, cell, decode):
        if cell.phase == "mid-transfer":
            until = time.monotonic() + patience(5)
            while {q["process"] for q in self.queue_pairs_between(self.prefill, decode)} != {self.prefill.process.pid, decode.process.pid}:
                assert time.monotonic() < until, "no queue pairs to hurt"
        if cell.victim not in ("rail", "rails"):
            super().hurt(cell, decode)
            return
        if cell.phase == "mid-transfer":
            until = time.monotonic() + patience(10)
            while packets_received() < self.packets_before + GROUP_PACKETS:
                assert time.monotonic() < until, "no pieces came"
                time.sleep(0.02)
        self.loopback_before = bytes_over_loopback()
        cell.struck_at = time.time()
        self.lost = cell.victim
        link_set(DEVICES[:1] if cell.victim == "rail" else DEVICES, "down")

    # ---- afterwards ----

    def heal(self):
        self.loopback_bytes = bytes_over_loopback() - self.loopback_before
        self.hold(False) # a client that left before the grant has left it held
        if self.lost == "rail":
            self.rails_are_used_again() # the other one
        if self.lost == "rails":
            self.meet_again()
        link_set(DEVICES, "up")
        super().heal()
        self.wait_for_rails()
        if self.lost:
            self.rails_are_used_again()
        self.lost = ""

    def n_peers(self):
        return sum(peer["up"] for peer in self.prefill.status()["peers"])

    def meet_again(self):
        """The workers lose sight of each other, and meet while no rail is up."""
        n_cut, n_met = sum(wire.n_cut for wire in self.wires), self.n_peers()
        for wire in self.wires:
            wire.is_cut = True
        until = time.monotonic() + patience(10)
        while sum(wire.n_cut for wire in self.wires) == n_cut:
            assert time.monotonic() < until, "there were no links"
            time.sleep(0.02)
        for wire in self.wires:
            wire.is_cut = False
        while self.n_peers() < n_met:
            assert time.monotonic() < until, "the workers do not meet again"
            time.sleep(0.05)

    def wait_for_rails(self):
        """Waits until all rails are up and the sender would use them again (it rests a rail after a failure)."""
        until = time.monotonic() + patience(10)
        while any(w.metric("baton_kv_rdma_rails") < len(DEVICES) for w in self.c.workers):
            assert time.monotonic() < until, "rails do not come back"
            time.sleep(0.05)
        rests = [after_s + said["for_ms"] / 1000 for after_s, _, said in said_since(self.prefill, self.seen_until, ("warn",))
                 if said["event"] == "kv_rdma_rail_rests"]
        wait_s = max(rests, default=0) - (time.time() - self.seen_until)
        self.seen_until = time.time()
        if wait_s > LONGEST_REST_S: # each failure makes it longer; a worker that starts has forgotten them
            self.prefill.kill()
            self.prefill.start()
            self.c.wait_ready(prefill=1, decode=2, timeout=60)
        elif wait_s > 0:
            time.sleep(wait_s)

    def check_transfer(self, cell, answer, n_failed):
        super().check_transfer(cell, answer, n_failed)
        if cell.victim not in ("rail", "rails"):
            return
        if any("heartbeats missed" in said.get("reason", "") for d in self.all for _, _, said in said_since(d, cell.struck_at, ("warn",))):
            cell.is_late = True # this machine stood still, and links were lost besides
            return
        # Both lost before it was granted: the grant may say TCP at once.
        kinds = ("rdma", "tcp") if cell.victim == "rails" and cell.phase == "before the grant" else ("rdma",)
        assert answer.serving["redispatched"] == 0 and answer.serving["transport"] in kinds and n_failed == 0, (str(cell), answer.serving)
        if cell.phase == "mid-transfer":
            left = [said for _, _, said in said_since(self.prefill, cell.struck_at, ("info",)) if said["event"] == "kv_rdma_over_tcp"]
            cell.is_late = not left
            for said in left:
                missing_bytes = (said["pieces"] - said["pieces_there"]) * PIECE_BYTES
                print(f"    {said['pieces_there']} of {said['pieces']} pieces were there, {missing_bytes} bytes were missing, "
                      f"{self.loopback_bytes} bytes crossed the loopback device", flush=True)
                assert said["pieces_there"] > 0, said
                assert missing_bytes <= self.loopback_bytes <= missing_bytes + SLACK_BYTES, (said, self.loopback_bytes)

    def rails_are_used_again(self):
        """At once, or by the transfer after the one that met the old connection leaving."""
        for _ in range(3):
            before = packets_received()
            serving = self.c.ask(self.prompt(), **dict(test_matrix.ASK, max_tokens=2)).serving
            if packets_received() > before + PROBE_PACKETS:
                return
        raise AssertionError(("RDMA is not used again", before, packets_received(), serving))

    def look_at_descriptors(self, first):
        super().look_at_descriptors(first)
        until, wrong = time.monotonic() + patience(5), "unseen"
        while wrong:
            wrong = self.wrong_objects()
            assert not wrong or time.monotonic() < until, wrong
            time.sleep(0.1 if wrong else 0)

    def wrong_objects(self):
        """The verbs objects that a cluster at rest should not have; "" if there are none."""
        names = {d.process.pid: d.name for d in self.c.workers}
        all_of = {kind: objects(kind) for kind in ("qp", "cq", "mr", "pd")}
        for kind, found in all_of.items():
            strange = [o for o in found if o["process"] not in names]
            if strange:
                return f"{kind} of no daemon: {strange}"
        pairs = {(q["ifname"], q["lqpn"], q.get("rqpn")) for q in all_of["qp"] if q["state"] == "RTS"}
        alone = [q for q in all_of["qp"] if (q["ifname"], q.get("rqpn"), q["lqpn"]) not in pairs]
        if alone:
            return f"queue pairs without a counterpart: {alone}"
        for pid, name in names.items():
            n = {kind: sum(o["process"] == pid for o in found) for kind, found in all_of.items()}
            first = self.first_objects.setdefault(name, n)
            if n["cq"] != n["qp"] or n["mr"] != first["mr"] or n["pd"] != first["pd"]:
                return f"{name} has {n}, at first {first}"
        return ""


def all_cells():
    yield from test_matrix.all_cells()
    for phase in PHASES:
        for stays in (True, False):
            for victim in ("rail", "rails"):
                yield Cell(victim, "lost", phase, stays)


# Each victim, each way of hurting, each phase, and a client that goes away; in about a minute.
SAMPLE = {("router", "restart", "before the grant", True), ("link", "cut", "before the grant", False),
          ("prefill", "kill -9", "mid-transfer", True), ("decode", "SIGSTOP", "mid-transfer", True),
          ("both", "restart", "mid-transfer", True), ("data", "cut", "mid-transfer", True),
          ("rail", "lost", "mid-transfer", True), ("rails", "lost", "mid-transfer", True),
          ("decode", "restart", "after the last", False), ("decode", "kill -9", "mid-decode", True)}


def main(args):
    """full: every cell; only=WORDS: those whose names have these words."""
    is_full = "full" in args or os.environ.get("BATON_FULL")
    only = args.get("only", "")
    cells = [cell for cell in all_cells() if only in str(cell) and
             (is_full or only or (cell.victim, cell.how, cell.phase, cell.stays) in SAMPLE)]
    done = test_matrix.run_all("rdma", cells, RdmaRig)
    test_matrix.table([("rdma", cell) for cell in done])
    if not only:
        test_matrix.another_layout_is_refused_with_a_reason(**test_matrix.SIM, **SETTINGS)
        print("  another layout: refused with a reason", flush=True)


if __name__ == "__main__":
    main(dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:]))
