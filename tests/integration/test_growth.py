# SPDX-License-Identifier: Apache-2.0
"""No growth: after many hand-offs with faults a daemon holds no more than before.

One router, one prefill and one decode worker stay up; a second worker of either role exists to be killed.  Each round is
one short request through a pair.  The seed chooses one fault for it.  The client hangs up; the links between workers are
cut; a data connection is shut; a daemon is stopped (SIGSTOP) for less or more than the heartbeats allow; or the second
prefill or decode worker is killed and restarted.  Prompts share prefixes and pools are small, so workers fetch, serve
and evict blocks all the time.

The test checks before the rounds, after each tenth of them, and at the end, with every link up and all daemons idle.  No
worker has a task, lease, half-filled or zombie block; all blocks are free or cached.  The daemons that stayed up gain no
descriptor except data connections, which two workers make when they first need them.  In the second half of the rounds
they gain at most SLACK_KIB of anonymous memory.  In the first half pools, indexes and allocators fill; in the second a
leak of half a KiB a round shows in 1000 rounds.

`make check` makes 100 rounds, BATON_FULL=1 or --full 1000; --rounds=N and --seed=N set them.
"""
import os
import random
import signal
import sys
import time

import cluster
from cluster import Cluster, patience
from hurt import Wire, cut_data

SIM = {"engine__kind": "sim", "engine__sim_prefill_token": "100us", "engine__sim_decode_seq": "300us", "engine__sim_step": "500us",
       "engine__sim_answer_tokens": "100000", "sched__chunk_tokens": "64", "link__heartbeat": "300ms", "kv__memory": "2MiB",
       "kv__transport": "tcp", "kv__tcp_encrypt": "no", "cache__replay_memory": "0"}
WORDS = "The prefill worker reads the prompt and the decode worker writes the answer. "
SLACK_KIB = 256        # anonymous memory of a daemon, second half against first half
SLACK_DESCRIPTORS = 12 # two data connections in each direction with each of three peers
TENTHS = 10
FAULTS = (("none", 55), ("cancel", 20), ("link", 9), ("data", 6), ("stop", 7), ("kill", 3)) # of a hundred rounds


class Rig:
    def __init__(self, c, chance):
        self.c, self.chance, self.wires, self.counts = c, chance, [], {}
        c.router(link__heartbeat="300ms", placement__prefix_fetch="always", placement__local_prefill_tokens="1", cache__replay_memory="0")
        for role in ("prefill", "decode") * 2:
            wire, kv_port = Wire(0), cluster.free_port()
            slow = {"engine__sim_prefill_token": "1ms"} if role == "decode" else {} # so that a pair pays
            worker = c.worker(role, **{**SIM, **slow}, link__advertise=f"127.0.0.1:{wire.port}", kv__tcp_listen=f"127.0.0.1:{kv_port}")
            worker.kv_port, wire.to_port = kv_port, worker.link
            self.wires.append(wire)
        self.staying = [c.routers[0], c.workers[0], c.workers[1]]
        self.victims = c.workers[2:]
        c.wait_ready(prefill=2, decode=2)

    def prompt(self, n):
        """A prefix that many prompts share, and an end of its own."""
        return f"{self.chance.randrange(6)} " + WORDS * self.chance.randrange(2, 8) + f" Round {n}. " + WORDS * 2

    def heal(self):
        for wire in self.wires:
            wire.is_cut = False
        for daemon in self.c.routers + self.c.workers:
            if daemon.process.poll() is None:
                daemon.kill(signal.SIGCONT)
            else:
                daemon.start()

    def strike(self, what):
        chance = self.chance
        if what == "link":
            for wire in self.wires:
                wire.is_cut = True
            time.sleep(0.03)
            for wire in self.wires:
                wire.is_cut = False
        elif what == "data":
            try:
                for sender in self.c.workers:
                    for receiver in self.c.workers:
                        if sender is not receiver:
                            cut_data(sender, receiver)
            except PermissionError:
                self.counts["data not cut, no permission"] = self.counts.get("data not cut, no permission", 0) + 1
        elif what == "stop":
            daemon = chance.choice(self.c.routers + self.c.workers)
            daemon.kill(signal.SIGSTOP)
            time.sleep(patience(chance.choice((0.05, 0.2, 1.2))))
            daemon.kill(signal.SIGCONT)
        elif what == "kill":
            daemon = chance.choice(self.victims)
            daemon.kill()
            daemon.start()

    def warm(self, prompt):
        """One worker computes it for a client of its own, so that other workers fetch it."""
        worker = self.chance.choice(self.c.workers)
        self.c.ask(prompt, port=worker.http, max_tokens=1)
    def round(self, n):
        what = self.chance.choices([f for f, _ in FAULTS], [weight for _, weight in FAULTS])[0]
        at, n_seen = self.chance.randrange(12), 0
        answer = cluster.Answer()
        prompt = self.prompt(n)
        if n % 3 == 0:
            prompt = f"Of round {n}. " + prompt
            self.warm(prompt)
        stream = self.c.stream(prompt, timeout=30, max_tokens=12, temperature=1, seed=n)
        if stream.status != 200:
            stream.response.read()
            stream.connection.close()
            return "refused"
        if at < 4 and what not in ("none", "cancel"): # while the prompt is read
            time.sleep(at * 0.004)
            self.strike(what)
            what, done = "none", what
        else:
            done = what
        for name, data in stream:
            answer.add(name, data)
            n_seen += name == "content_block_delta"
            if n_seen > at and what == "cancel":
                stream.close()
                return "cancelled"
            if n_seen > at and what != "none":
                self.strike(what)
                what = "none"
        stream.connection.close()
        assert answer.is_whole, (n, done, answer.error, answer.names)
        return f"answered, {done}"

    def rounds(self, first, last):
        for n in range(first, last):
            result = self.round(n)
            self.counts[result] = self.counts.get(result, 0) + 1
            if result == "answered, kill":
                self.heal()
                self.c.wait_ready(prefill=2, decode=2)


def remaining_objects(worker):
    status = worker.status()
    blocks = status["blocks"]
    held = {k: blocks[k] for k in ("filling", "sealed", "zombie", "leased") if blocks[k]}
    whole = blocks["free"] + blocks["cached"] == blocks["total"]
    return None if not held and not status["tasks"] and whole else (worker.name, status["tasks"], blocks)


def settle(rig):
    """Idle, three times in a row: workers report every 100 ms."""
    rig.heal()
    rig.c.wait_ready(prefill=2, decode=2, timeout=60)
    until, n_clean = time.monotonic() + patience(20), 0
    while n_clean < 3:
        left = [x for x in map(remaining_objects, rig.c.workers) if x]
        n_clean = 0 if left else n_clean + 1
        assert time.monotonic() < until, left
        time.sleep(0.1)


def anonymous_kib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))


def look(rig):
    settle(rig)
    return {d.name: (d.n_descriptors(), anonymous_kib(d)) for d in rig.staying}


def descriptors_return_to(rig, first):
    """A daemon closes connections that the other end has closed after a while: keep-alive takes 25 s to find one that is gone."""
    until = time.monotonic() + patience(60)
    while True:
        more = {d.name: d.n_descriptors() - first[d.name] for d in rig.staying}
        if all(n <= SLACK_DESCRIPTORS for n in more.values()):
            return
        assert time.monotonic() < until, f"descriptors gained: {more}"
        time.sleep(0.2)


def main():
    args = dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:])
    n_rounds = int(args.get("rounds", 1000 if "full" in args or os.environ.get("BATON_FULL") else 100))
    seed = int(args.get("seed", 7))
    if not os.path.exists(cluster.MODEL):
        print(f"no bundled model at {cluster.MODEL}")
        sys.exit(77)
    with Cluster() as c:
        rig = Rig(c, random.Random(seed))
        for n in range(8): # connections of all pairs
            c.ask(rig.prompt(-n), max_tokens=4)
        seen = [look(rig)]
        began = time.monotonic()
        for n in range(TENTHS):
            rig.rounds(n * n_rounds // TENTHS, (n + 1) * n_rounds // TENTHS)
            seen.append(look(rig))
            print(f"{(n + 1) * n_rounds // TENTHS} rounds, {time.monotonic() - began:.1f} s: {seen[-1]}", flush=True)
        print(f"{n_rounds} rounds, seed {seed}: " + ", ".join(f"{n} {what}" for what, n in sorted(rig.counts.items())))
        for daemon in rig.staying:
            print(f"  {daemon.name}: descriptors {[s[daemon.name][0] for s in seen]}, anonymous KiB {[s[daemon.name][1] for s in seen]}")
        for worker in c.workers:
            print(f"  {worker.name}: asks {worker.metric('baton_prefix_fetches_total'):.0f}, loans {worker.metric('baton_prefix_serves_total'):.0f}, "
                  f"hand-offs sent {worker.metric('baton_handoffs_sent_total'):.0f}, "
                  f"received {worker.metric('baton_handoffs_received_total'):.0f}")
        first = {d.name: max(look[d.name][0] for look in seen[:3]) for d in rig.staying}  # chance decides when all pairs have met
        descriptors_return_to(rig, first)
        for daemon in rig.staying:
            gained = seen[-1][daemon.name][1] - seen[TENTHS // 2][daemon.name][1]
            assert gained <= SLACK_KIB, f"{daemon.name} gained {gained} KiB in the second half"
        for wire in rig.wires:
            wire.stop()


main()
