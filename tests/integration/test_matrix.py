# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: any fault at any moment of a hand-off.  The answer is right or ends cleanly, and no state is left
behind.

One router, one prefill and two decode workers run the simulated engine, which checks its KV in every step.  An undisturbed
run gives the expected tokens.  A cell of the matrix is (the daemon, the fault, the phase, whether the client stays):

    before the grant     the wires between the workers hold everything back, so that the offer is under way
    mid-transfer         blocks are leased on a decode worker: the ticket is open, the prompt is still being computed
    after the last       the wires hold since the grant, so every piece has arrived and the message about it has not
    mid-decode           ten pieces of text have come

Each cell reports when the first daemon noticed (its first warning after the fault), and the longest silence of the
client.

After each cell, a client that stayed has the tokens of the undisturbed run.  If its router died, it has an error or a closed
connection.  Its serving stats add up.  No live worker has a task, lease, half-filled or zombie block; all blocks are free or
cached.  Killed daemons come back at their old addresses under a new epoch.  No process gains descriptors from cell to cell.

`make check` runs a sample of the cells; BATON_FULL=1 or --full runs all.  --only=WORD picks by name,
--transport=tcp|shm.  tests/rdma/matrix.py runs the same cells, and more, over RDMA in an emulated machine.
"""
import datetime
import json
import os
import signal
import socket
import sys
import time

import cluster
from cluster import Cluster, patience
from hurt import Wire, cut_data

PROMPT = "The prefill worker reads the prompt and the decode worker writes the answer. " * 24
SIM = {"engine__kind": "sim", "engine__sim_prefill_token": "2ms", "engine__sim_decode_seq": "3ms", "engine__sim_step": "2ms",
       "engine__sim_answer_tokens": "100000", "sched__chunk_tokens": "64"}
PHASES = ("before the grant", "mid-transfer", "after the last", "mid-decode")
ASK = {"max_tokens": 40, "temperature": 1, "seed": 3}


class Cell:
    def __init__(self, victim, how, phase, stays):
        self.victim, self.how, self.phase, self.stays = victim, how, phase, stays
        self.gap_s, self.result = 0.0, ""
        self.struck_at, self.noticed = 0.0, "by nobody" # a fault at a worker that is not needed any more may go unnoticed
        self.is_late = False # the transfer seems to have ended before the fault

    def __str__(self):
        return f"{self.victim} {self.how}, {self.phase}, client {'stays' if self.stays else 'cancels'}"


def said_since(daemon, moment, levels):
    """The log lines of daemons since a time: (seconds after it, daemon's name, line)."""
    with open(daemon.log_path, errors="replace") as log:
        for line in log:
            if any(f'"level":"{level}"' in line for level in levels):
                said = json.loads(line)
                after_s = datetime.datetime.fromisoformat(said["ts"].replace("Z", "+00:00")).timestamp() - moment
                if after_s > 0:
                    yield after_s, daemon.name, said


class Rig:
    """The cluster of one transport, used by all its cells."""

    heartbeat_s = 0.3
    n_repeats = most_repeats = 1 # of the prompt's text

    def __init__(self, c, transport):
        self.c, self.transport, self.n = c, transport, 0
        settings = self.settings()
        c.router(link__heartbeat=settings["link__heartbeat"])
        self.prefill = c.worker("prefill", **settings)
        self.decodes, self.wires = [], []
        for _ in range(2):
            wire = Wire(0)
            kv_port = cluster.free_port()
            decode = c.worker("decode", **settings, link__advertise=f"127.0.0.1:{wire.port}", kv__tcp_listen=f"127.0.0.1:{kv_port}")
            decode.kv_port = 0 if transport == "shm" else kv_port
            wire.to_port = decode.link
            self.decodes.append(decode)
            self.wires.append(wire)
        self.all = c.routers + c.workers
        c.wait_ready(prefill=1, decode=2)

    def settings(self):
        return dict(SIM, kv__transport=self.transport, kv__tcp_encrypt="no", link__heartbeat=f"{self.heartbeat_s * 1000:.0f}ms")

    def prompt(self, cell=None):
        self.n += 1
        return f"{self.transport} {self.n} " + PROMPT * self.n_repeats

    def lengthen(self):
        """A transfer was over too soon.  The next prompts are longer, as far as the context goes."""
        self.n_repeats = min(self.n_repeats + 1, self.most_repeats)

    def hold(self, is_held):
        for wire in self.wires:
            wire.is_held = is_held

    def leased(self):
        return [d for d in self.decodes if d.process.poll() is None and d.metric('baton_kv_blocks{state="leased"}') > 0]

    def receiver(self):
        """The decode worker of the current request, as soon as it has leased blocks."""
        until = time.monotonic() + patience(3)
        while time.monotonic() < until:
            for decode in self.leased():
                return decode
        raise Unseen

    def busy(self):
        until = time.monotonic() + patience(10)
        while time.monotonic() < until:
            for decode in self.decodes:
                if decode.process.poll() is None and decode.metric("baton_worker_running") + decode.metric("baton_worker_waiting") > 0:
                    return decode
        return self.decodes[0]

    def hurt(self, cell, decode):
        cell.struck_at = time.time()
        victims = {"prefill": [self.prefill], "decode": [decode], "router": self.c.routers, "both": [self.prefill, decode]}.get(cell.victim)
        if cell.victim == "link":
            for wire in self.wires:
                wire.is_cut = True
            time.sleep(0.05)
        elif cell.victim == "data":
            until = time.monotonic() + patience(5)
            while cut_data(self.prefill, decode) == 0: # the first push to a restarted worker connects
                assert time.monotonic() < until, "no data connection to cut"
                cell.struck_at = time.time()
        else:
            for daemon in victims:
                daemon.kill(signal.SIGSTOP if cell.how == "SIGSTOP" else signal.SIGKILL)
            if cell.how == "restart":
                for daemon in victims:
                    daemon.start()

    def check_transfer(self, cell, answer, n_failed):
        """Checks a whole answer: a transfer hit by the fault must have failed, or it ended before (run_in_time allows
        that a few times)."""
        if cell.victim in ("link", "data") and cell.phase == "mid-transfer":
            cell.is_late = n_failed == 0

    def first_warning(self, cell):
        warnings = [w for daemon in self.all for w in said_since(daemon, cell.struck_at, ("warn", "error"))]
        return min(warnings, key=lambda w: w[0], default=None)

    def heal(self):
        self.hold(False)
        for wire in self.wires:
            wire.is_cut = False
        for daemon in self.all:
            if daemon.process.poll() is None:
                daemon.kill(signal.SIGCONT)
            else:
                daemon.start()
        self.c.wait_ready(prefill=1, decode=2, timeout=60)

    def look_at_descriptors(self, first):
        """No process may have more than when it was first idle, except connections that close after a while."""
        for daemon in self.all:
            n = daemon.n_descriptors()
            assert n <= first.setdefault(daemon.process.pid, n) + 12, (daemon.name, first[daemon.process.pid], n)

    def n_failed(self):
        return sum(d.metric('baton_handoffs_received_total{result="failed"}') for d in self.decodes)

    def remaining_objects(self):
        left = {}
        for worker in self.c.workers:
            status = worker.status()
            blocks = status["blocks"]
            if status["tasks"] or blocks["leased"] or blocks["free"] + blocks["cached"] != blocks["total"]:
                left[worker.name] = (status["tasks"], blocks)
        return left

    def assert_nothing_left(self):
        """Holds three times in a row: workers report every 100 ms, and a request that was placed again may be cancelled
        only then."""
        until, n_clean, left = time.monotonic() + patience(20), 0, {}
        while n_clean < 3:
            left = self.remaining_objects()
            n_clean = 0 if left else n_clean + 1
            assert not left or time.monotonic() < until, left
            time.sleep(0.1)


def reference(rig, prompt):
    """Runs on the prefill worker after the cell: its computation would be cached before."""
    return rig.c.ask(prompt, port=rig.prefill.http, **ASK).text


class Gone(Exception):
    """The client hung up."""


class Unseen(Exception):
    """The test saw no leased blocks: the hand-off was over between two polls, or there was none."""


def strike(rig, cell, stream, decode):
    rig.hurt(cell, decode)
    if not cell.stays:
        stream.close()
        if cell.how == "SIGSTOP": # for longer than heartbeats allow
            time.sleep(5 * rig.heartbeat_s)
        raise Gone
    rig.hold(False)
    if cell.victim == "router" and cell.how == "SIGSTOP":
        time.sleep(5 * rig.heartbeat_s)
        rig.c.routers[0].kill(signal.SIGCONT)


def ask_and_strike(rig, cell, prompt, answer):
    """Fills answer as it arrives."""
    if cell.phase == "before the grant":
        rig.hold(True)
    stream = rig.c.stream(prompt, timeout=30, **ASK)
    assert stream.status == 200, (stream.status, stream.response.read())
    decode, n = None, 0
    if cell.phase == "before the grant":
        strike(rig, cell, stream, rig.busy())
    elif cell.phase != "mid-decode":
        decode = rig.receiver()
        if cell.phase == "mid-transfer":
            strike(rig, cell, stream, decode)
        else:
            rig.hold(True)
    last = time.monotonic()
    for name, data in stream:
        answer.add(name, data)
        now = time.monotonic()
        cell.gap_s, last = max(cell.gap_s, now - last), now
        n += name == "content_block_delta"
        if n == 1 and name == "content_block_delta" and cell.phase == "after the last":
            strike(rig, cell, stream, decode)
        if n == 10 and name == "content_block_delta" and cell.phase == "mid-decode":
            strike(rig, cell, stream, rig.busy())
    stream.connection.close()


def check_serving(cell, answer):
    """Each prompt token was computed, found cached, or transferred from a worker that can no longer report that it
    computed it.  A failed placement may compute a token once more; the sum then shows it."""
    serving = answer.serving
    here = serving["computed"] + serving["reused"]
    most = (serving["prompt"] + serving["drawn"]) * (1 + serving["redispatched"]) # a placement in mid-answer also computes the answer so far
    assert serving["transferred"] <= most, (str(cell), serving)
    assert here + serving["transferred"] >= serving["prompt"], (str(cell), serving)
    assert here <= most + serving["prompt"], (str(cell), serving)


def run_cell(rig, cell):
    answer, prompt, broken, n_failed = cluster.Answer(), rig.prompt(cell), None, rig.n_failed()
    try:
        ask_and_strike(rig, cell, prompt, answer)
    except Gone:
        cell.result = "cancelled"
    except Unseen:
        cell.is_late = True
    except (OSError, cluster.http.client.HTTPException) as e:
        broken = e
    ended_at = time.time()
    rig.heal()
    rig.assert_nothing_left()
    if cell.is_late and cell.struck_at == 0:
        return
    first = rig.first_warning(cell)
    if first is not None:
        cell.noticed = "after %.2f s by %s (%s)" % (first[0], first[1], first[2]["event"])
    if cell.result:
        return
    if answer.is_whole:
        rig.check_transfer(cell, answer, rig.n_failed() - n_failed)
        want = reference(rig, prompt)
        assert answer.text == want, (str(cell), answer.text, want)
        check_serving(cell, answer)
        cell.result = "same tokens"
    elif answer.error is not None:
        assert cell.victim == "router", (str(cell), answer.error)
        cell.result = "clean error"
    else:
        assert cell.victim == "router", (str(cell), answer.names, broken)
        cell.result = "connection closed"
    if not answer.is_whole: # soon after the first that noticed
        assert first is not None and ended_at - cell.struck_at < first[0] + patience(1), (str(cell), first, ended_at - cell.struck_at)


def run_in_time(rig, cell):
    """On a busy machine, or a fast one, a transfer may end before the fault, which proves nothing: try again."""
    for _ in range(12):
        cell.is_late, cell.result, cell.struck_at = False, "", 0.0
        run_cell(rig, cell)
        if not cell.is_late:
            return
        rig.lengthen()
    raise AssertionError(f"{cell}: the transfer was always over before it was struck, or did not notice")


def all_cells():
    for phase in PHASES:
        for stays in (True, False):
            for victim in ("prefill", "decode", "router"):
                for how in ("kill -9", "SIGSTOP", "restart"):
                    yield Cell(victim, how, phase, stays)
            yield Cell("link", "cut", phase, stays)
            yield Cell("both", "restart", phase, stays)
            if phase in ("mid-transfer", "after the last"):
                yield Cell("data", "cut", phase, stays)


SAMPLE = {("tcp", "prefill", "kill -9", "mid-transfer", True), ("tcp", "decode", "restart", "after the last", True),
          ("tcp", "data", "cut", "mid-transfer", True), ("tcp", "link", "cut", "before the grant", False),
          ("shm", "both", "restart", "mid-transfer", True), ("shm", "decode", "SIGSTOP", "mid-transfer", True),
          ("shm", "link", "cut", "after the last", True), ("shm", "router", "kill -9", "mid-transfer", True)}


def chosen(transport, is_full, only):
    return [cell for cell in all_cells() if only in str(cell) and
            (is_full or (transport, cell.victim, cell.how, cell.phase, cell.stays) in SAMPLE)]


def run_all(transport, cells, make_rig=Rig):
    with Cluster() as c:
        rig = make_rig(c, transport)
        try:
            run_cells(rig, cells)
        finally:
            for wire in rig.wires:
                wire.stop()
    return cells


def run_cells(rig, cells):
    for _ in range(3): # connections of all pairs, caches of all sizes
        rig.c.ask(rig.prompt(), **ASK)
    first = {}
    rig.look_at_descriptors(first)
    for cell in cells:
        began = time.monotonic()
        try:
            run_in_time(rig, cell)
        except PermissionError as e:
            cell.result = f"skipped: {e}"
        print(f"  {rig.transport}: {cell}: {cell.result}, noticed {cell.noticed}, longest silence {cell.gap_s:.2f} s "
              f"({time.monotonic() - began:.1f} s)", flush=True)
        rig.look_at_descriptors(first)


def another_layout_is_refused_with_a_reason(**settings):
    """Same model, KV of another type: the workers are not paired, and the answer comes.  Blocks of another size: the
    router refuses the worker's HELLO, and the worker's log has the reason."""
    with Cluster() as c:
        c.router(**{key: value for key, value in settings.items() if key == "link__heartbeat"})
        c.worker("prefill", **{**settings, "kv__type": "f16"})
        c.worker("decode", **{**settings, "kv__type": "f32"})
        c.wait_ready(prefill=1, decode=1)
        got = c.ask("other " + PROMPT, max_tokens=8)
        assert got.serving["transferred"] == 0, got.serving
        stranger = c.worker("decode", **{**settings, "kv__block_tokens": "16"})
        until = time.monotonic() + patience(20)
        while "another block size" not in open(stranger.log_path, errors="replace").read():
            assert time.monotonic() < until, stranger.tail()
            time.sleep(0.05)
        assert c.ask("again " + PROMPT, max_tokens=8).is_whole
        assert [w["usable"] for w in c.routers[0].status()["workers"]].count(True) == 2


def another_version_is_refused():
    """Bytes that are no link of this version: the connection is closed, and the worker continues to serve."""
    with Cluster() as c:
        c.router()
        decode = c.worker("decode", **SIM)
        c.wait_ready(decode=1)
        before = decode.n_descriptors()
        for junk in (b"BTN1\x02\x00\x01\x00\x00\x00\x00\x00", b"BTN9" * 8, b"\x16\x03\x01\x00\x05hello"):
            with socket.create_connection(("127.0.0.1", decode.link)) as s:
                s.settimeout(patience(20))
                try:
                    s.sendall(junk)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(4096):
                        pass
                except (ConnectionError, OSError) as e:
                    assert not isinstance(e, TimeoutError), "the connection was kept"
        assert c.ask("version " + PROMPT, **ASK).is_whole
        assert decode.n_descriptors() <= before + 2
        c.assert_quiet()


def table(done):
    hurts = sorted({(cell.victim, cell.how) for _, cell in done})
    print("\n| hurt | " + " | ".join(PHASES) + " |\n|---|" + "---|" * len(PHASES))
    for victim, how in hurts:
        row = []
        for phase in PHASES:
            results = [cell.result for _, cell in done if (cell.victim, cell.how, cell.phase) == (victim, how, phase)]
            row.append(", ".join(f"{results.count(r)} {r}" for r in sorted(set(results))))
        print(f"| {victim} {how} | " + " | ".join(row) + " |")
    results = [cell.result for _, cell in done]
    print(f"{len(done)} cells: " + ", ".join(f"{results.count(r)} {r}" for r in sorted(set(results))))


def main():
    args = dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:])
    is_full = "full" in args or bool(os.environ.get("BATON_FULL"))
    if not os.path.exists(cluster.MODEL):
        print(f"no bundled model at {cluster.MODEL}")
        sys.exit(77)
    done = []
    for transport in [args["transport"]] if "transport" in args else ["tcp", "shm"]:
        cells = chosen(transport, is_full or "only" in args, args.get("only", ""))
        done += [(transport, cell) for cell in run_all(transport, cells)]
    table(done)
    if "only" not in args:
        another_layout_is_refused_with_a_reason()
        another_version_is_refused()


if __name__ == "__main__":
    main()
