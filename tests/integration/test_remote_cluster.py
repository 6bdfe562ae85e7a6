# SPDX-License-Identifier: Apache-2.0
"""The remote tier on a real Redis cluster: three primaries and a replica.  Workers find blocks on the server that has their
slot.  That holds while slots move (ASK, MOVED), after a replica took over from a dead primary, and without a primary."""
import time

import redis_server
from cluster import Cluster, free_port, main
from redis_server import Redis
from test_remote import ask, lines, n_stored, remote, text_of, twice, up, worker_of
from test_tier import BLOCK, until

SLOTS = 16384


class Servers:
    def __init__(self, folder):
        """Three primaries, each with a third of the slots, and a replica of the first."""
        self.all, self.moved = [], set()
        for i in range(4):
            port, bus = free_port(), free_port()
            self.all.append(Redis("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-config-file",
                                  f"{folder}/nodes-{i}.conf", "--cluster-node-timeout", "1000",
                                  "--cluster-require-full-coverage", "no", "--cluster-allow-reads-when-down", "yes",
                                  "--cluster-replica-validity-factor", "0", "--dir", folder, port=port))
            self.all[-1].bus = bus
        for i, server in enumerate(self.all[:3]):
            server("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // 3, SLOTS * (i + 1) // 3 - 1)
        for server in self.all[1:]:
            self.all[0]("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus)
        until("the servers do not meet", lambda: all(b"cluster_known_nodes:4" in s("CLUSTER", "INFO") for s in self.all))
        until("the replica knows no primary", lambda: self.id_of(0) in self.all[3]("CLUSTER", "NODES").decode())
        self.all[3]("CLUSTER", "REPLICATE", self.id_of(0))
        until("the cluster is not whole", lambda: all(b"cluster_state:ok" in s("CLUSTER", "INFO") for s in self.all))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.all:
            server.kill()

    def id_of(self, i):
        return self.all[i]("CLUSTER", "MYID").decode()

    def keys(self):
        return [key for server in self.all[:3] if server.process for key in server.keys()]

    @property
    def url(self):
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.all[:2])

    def move(self, key, is_whole):
        """Moves a key and its slot to another server; not is_whole: half of it, so that the first one answers ASK."""
        self.moved.add(key)
        slot = self.all[0]("CLUSTER", "KEYSLOT", key)
        source = next(i for i in range(3) if key in self.all[i].keys())
        target = 1 if source != 1 else 2
        self.all[target]("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.all[source]("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        self.all[source]("MIGRATE", "127.0.0.1", self.all[target].port, key, 0, 5000)
        if is_whole:
            for i in (target, source, 3 - source - target):
                self.all[i]("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))


def slots_that_move_are_followed():
    with Cluster() as c, Servers(c.dir) as servers:
        a = up(worker_of(c, servers.url))
        asked = {text_of(i): twice(c, a, text_of(i)) for i in range(6)}
        n_blocks = sum(again.serving["reused"] for _, again in asked.values()) // BLOCK
        assert sum(n_stored(s, s.keys()) for s in servers.all[:3]) == n_blocks and all(s.keys() for s in servers.all[:3])
        for _ in range(4):
            b = up(worker_of(c, servers.url))  # it learns the slots now, before more of them move
            for i, key in enumerate([key for key in servers.keys() if key not in servers.moved][::4]):
                servers.move(key, i % 2 == 0)
            got = {text: ask(c, b, text) for text in asked}
            assert all(got[text].text == first.text for text, (first, _) in asked.items())
            if remote(b, "late") == 0:
                break
        assert all(got[text].serving["reused"] == again.serving["reused"] for text, (_, again) in asked.items()), \
            ([(got[text].serving, again.serving) for text, (_, again) in asked.items()], b.status()["remote"])
        assert lines(b, "kv_remote_down") == 0
        c.assert_quiet()


def is_replicated(servers):
    """Whether the replica has all keys of its primary."""
    try:
        return servers.all[3].keys() == servers.all[0].keys() != []
    except RuntimeError:  # it is loading
        return False


def calls(server, command):
    """How often a server was sent a command."""
    rows = [row for row in server("INFO", "commandstats").decode().splitlines() if row.startswith(f"cmdstat_{command}:")]
    return int(rows[0].split("calls=")[1].split(",")[0]) if rows else 0


def reads_all(c, url, asked):
    """Another worker reads all blocks of these prompts.  A busy host may be late with an answer: then one more."""
    for _ in range(4):
        worker = up(worker_of(c, url))
        got = {text: ask(c, worker, text) for text in asked}
        assert all(got[text].text == first.text for text, (first, _) in asked.items())
        if remote(worker, "late") == 0:
            break
    assert all(got[text].serving["reused"] == again.serving["reused"] for text, (_, again) in asked.items()), \
        ([(got[text].serving, again.serving) for text, (_, again) in asked.items()], worker.status()["remote"])
    return worker


def replicas_answer_reads():
    """Also while their primary is dead and nobody takes over.  Primaries renew the lifetimes."""
    with Cluster() as c, Servers(c.dir) as servers:
        replica, url = servers.all[3], servers.url + "/?replicas=yes"
        a = up(worker_of(c, url))
        asked = {text_of(i): twice(c, a, text_of(i)) for i in range(6)}
        until("nothing was replicated", lambda: is_replicated(servers))
        until("the replica is not announced", lambda: all(any(len(row) > 3 for row in server("CLUSTER", "SLOTS")) for server in servers.all[:3]))
        for server in servers.all[:3]:
            for key in server.keys():
                server("EXPIRE", key, 1000)
        b, d = up(worker_of(c, url)), up(worker_of(c, servers.url))
        n_gets, n_primary = calls(replica, "getrange"), calls(servers.all[0], "getrange")
        for text, (first, again) in asked.items():
            got = ask(c, b, text)
            assert got.text == first.text and (got.serving["reused"] == again.serving["reused"] or remote(b, "late") > 0), \
                (got.serving, again.serving)
        n_replica = calls(replica, "getrange") - n_gets
        assert n_replica > 0 == calls(servers.all[0], "getrange") - n_primary, (n_replica, calls(servers.all[0], "getrange"))
        assert sum(server("TTL", key) > 1000 for server in servers.all[:1] for key in server.keys()) > 0
        # No failover, and the primary dies: who reads replicas still finds every block.
        replica("CONFIG", "SET", "cluster-replica-no-failover", "yes")
        servers.all[0].kill()
        until("its death is not known", lambda: b"fail" in servers.all[1]("CLUSTER", "NODES").split(b"myself")[0]
              + servers.all[1]("CLUSTER", "NODES").split(b"myself")[1])
        reads_all(c, url, asked)
        got = {text: ask(c, d, text) for text in asked}
        assert all(got[text].text == first.text for text, (first, _) in asked.items())
        assert any(got[text].serving["reused"] < again.serving["reused"] for text, (_, again) in asked.items())
        c.assert_quiet()


def a_primary_may_die():
    with Cluster() as c, Servers(c.dir) as servers:
        a = up(worker_of(c, servers.url))
        asked = {text_of(i): twice(c, a, text_of(i)) for i in range(6)}
        until("nothing was replicated", lambda: is_replicated(servers))
        b = up(worker_of(c, servers.url))
        servers.all[0].kill()
        assert all(ask(c, b, text).text == first.text for text, (first, _) in asked.items())  # whatever could be read
        until("the replica does not take over", lambda: servers.all[3]("ROLE")[0] == b"master")
        # Another worker finds all blocks, a third of them on the former replica.  The first seed is dead.
        until("the cluster is not up", lambda: all(b"cluster_state:ok" in server("CLUSTER", "INFO") and servers.all[0].port not in
                                                   [row[2][1] for row in server("CLUSTER", "SLOTS")] for server in servers.all[1:4]))
        d = reads_all(c, servers.url, asked)
        servers.all[1].kill()  # this one has no replica: its third is computed
        until("it does not answer", lambda: ask(c, d, text_of(time.monotonic())).is_whole)
        assert all(ask(c, b, text).text == first.text for text, (first, _) in asked.items())
        c.assert_quiet()


if __name__ == "__main__":
    redis_server.want()
    main([slots_that_move_are_followed, replicas_answer_reads, a_primary_may_die])
