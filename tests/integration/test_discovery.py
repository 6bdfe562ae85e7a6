#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons find each other by a watched file, by a real dnsmasq and by a real etcd; each is changed, emptied, broken and
made to lie while requests run.  No link that is up may go, and no request may fail.  Skips a server that is not installed."""
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, fetch, free_port, main, patience  # noqa: E402

SIM = {"engine__kind": "sim", "engine__sim_step": "1ms"}


def until(condition, what, timeout=20):
    end = time.monotonic() + patience(timeout)
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not in {timeout} s: {what}")


def status(worker):
    """{} until it listens."""
    try:
        return worker.status()
    except OSError:
        return {}


def routers_up(worker):
    return sorted(r["address"] for r in status(worker).get("routers", []) if r["up"])


def address(daemon):
    return f"127.0.0.1:{daemon.link}"


def is_ready(router):
    """A link that is up is not enough: the router then reads the vocabulary, and answers 503 until it has it."""
    return fetch(router.http, "GET", "/readyz")[0] == 200


class Load:
    """One request after another at each router that is asked for, once it is ready, until it is closed; every one must
    be whole."""

    def __init__(self, cluster, routers):
        self.cluster, self.routers, self.ready = cluster, list(routers), set()
        self.n, self.error, self.is_closed = 0, None, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.is_closed:
                for router in list(self.routers):
                    if router.http not in self.ready:
                        until(lambda: is_ready(router), "a router that serves")
                        self.ready.add(router.http)
                    self.cluster.ask("hello there", port=router.http, max_tokens=8)
                    self.n += 1
        except BaseException as e:  # noqa: B036 - the test gets it
            self.error = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            until(lambda: self.n > 3 or self.error, "four requests")
        self.is_closed = True
        self.thread.join()
        if kind is None and self.error is not None:
            raise self.error


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".new", path)


def follow(c, source, publish):
    """A worker that follows source. publish(addresses) changes the list of the source; [] empties it."""
    first, second = c.router(), c.router()
    publish([address(first)])
    worker = c.worker("decode", link__routers=source, **SIM)
    until(lambda: routers_up(worker) == [address(first)], "the first router")
    with Load(c, [first]) as load:
        publish([address(first), address(second)])
        until(lambda: len(routers_up(worker)) == 2, "the second router")
        load.routers.append(second)
        publish([])  # emptied
        time.sleep(1.5)
        publish([address(second)])  # the first is no longer named, and its link is up
        time.sleep(1.5)
        assert len(routers_up(worker)) == 2, worker.status()["routers"]
    return worker, first, second


def a_watched_file():
    with Cluster() as c:
        path = os.path.join(c.dir, "routers")
        worker, first, second = follow(c, "file://" + path, lambda list_: write(path, "# ours\n" + "\n".join(list_)))
        with Load(c, [second]):
            os.unlink(path)
            first.stop()
            until(lambda: routers_up(worker) == [address(second)], "the first router is gone")


class Dns:
    def __init__(self, folder):
        self.port, self.folder, self.process = free_port(), folder, None

    def publish(self, addresses):
        """dnsmasq reads its records at the start, so it starts again."""
        self.stop()
        command = ["dnsmasq", "--keep-in-foreground", f"--port={self.port}", "--listen-address=127.0.0.1", "--bind-interfaces",
                   "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--local-ttl=1", "--user=", "--pid-file=",
                   "--local=/test/", "--host-record=host.test,127.0.0.1,::1"]
        command += [f"--srv-host=_baton._tcp.test,localhost,{a.rsplit(':')[1]}" for a in addresses]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def names_of_dns():
    if shutil.which("dnsmasq") is None:
        print("skipped: dnsmasq-base is not installed")
        return
    with Cluster() as c:
        dns = Dns(c.dir)
        try:
            server = f"?server=127.0.0.1:{dns.port}"

            def publish(addresses):
                dns.publish(addresses)
            router = c.router()
            publish([address(router)])
            worker = c.worker("decode", link__routers="dns+srv://_baton._tcp.test" + server, **SIM)
            until(lambda: routers_up(worker), "the router of the SRV record")
            with Load(c, [router]) as load:
                other = c.router()
                publish([address(router), address(other)])
                until(lambda: len(routers_up(worker)) == 2, "the second SRV record")
                load.routers.append(other)
                publish([])  # no such name
                time.sleep(1.5)
                dns.stop()  # no name server
                time.sleep(1.5)
                assert len(routers_up(worker)) == 2, worker.status()["routers"]
            publish([])
            plain = c.worker("decode", link__routers=f"dns://host.test:{router.link}{server}", **SIM)
            until(lambda: address(router) in routers_up(plain), "the router of the A record")
            until(lambda: f"[::1]:{router.link}" in [r["address"] for r in status(plain)["routers"]], "the AAAA record's")
        finally:
            dns.stop()


class Etcd:
    def __init__(self, folder):
        self.port, self.peer_port, self.folder = free_port(), free_port(), os.path.join(folder, "etcd")
        self.process = None

    def start(self):
        url, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.folder, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls",
             peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--log-level", "error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self.is_up, "etcd", 30)

    def is_up(self):
        try:
            return self.call("/v3/kv/range", key="/")
        except OSError:
            return None

    def call(self, path, **fields):
        for name in ("key", "value", "range_end"):
            if name in fields:
                fields[name] = base64.b64encode(fields[name].encode()).decode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(fields).encode())
        with urllib.request.urlopen(request, timeout=5) as response:
            return json.load(response)

    def keys(self, prefix):
        answer = self.call("/v3/kv/range", key=prefix, range_end=prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return {base64.b64decode(p["key"]).decode(): json.loads(base64.b64decode(p["value"])) for p in answer.get("kvs", [])}

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def keys_of_etcd():
    if shutil.which("etcd") is None:
        print("skipped: etcd-server is not installed")
        return
    with Cluster() as c, socket.socket() as stranger:
        etcd = Etcd(c.dir)
        etcd.start()
        try:
            source = f"etcd://127.0.0.1:{etcd.port}/baton/main"
            found = {"link__routers": source, "link__peers": source, "link__register": source, **SIM}
            first = c.router(link__register=source)
            prefill, decode = c.worker("prefill", **found), c.worker("decode", **found)
            c.wait_ready(prefill=1, decode=1)
            until(lambda: [p for p in prefill.status()["peers"] if p["up"] and p["node"] == "decode0"], "the peer")
            keys = etcd.keys("/baton/main/")
            assert keys["/baton/main/routers/router0"]["link"] == address(first), keys
            assert keys["/baton/main/workers/decode0"]["role"] == "decode", keys
            assert keys["/baton/main/workers/decode0"]["fingerprint"] == decode.status()["fingerprint"], keys

            with Load(c, [first]) as load:
                # liars: an address that takes connections and says nothing, closed ports, and values that are none
                stranger.bind(("127.0.0.1", 0))
                stranger.listen(64)
                for port in [stranger.getsockname()[1], *range(1000, 1010)]:
                    etcd.call("/v3/kv/put", key=f"/baton/main/routers/liar{port}",
                              value=json.dumps({"link": f"127.0.0.1:{port}"}))
                etcd.call("/v3/kv/put", key="/baton/main/routers/noise", value="\x00{[")
                etcd.call("/v3/kv/put", key="/baton/main/routers/none", value=json.dumps({"link": "no address"}))
                revision = etcd.call("/v3/kv/range", key="/")["header"]["revision"]
                etcd.call("/v3/kv/compaction", revision=revision, physical=True)
                # a second router among them; all slots of a worker are taken, so it takes its turn
                second = c.router(link__register=source)
                until(lambda: address(second) in routers_up(decode), "the second router among liars", 60)
                load.routers.append(second)
                etcd.stop()
                time.sleep(1)
                shutil.rmtree(etcd.folder)  # all is forgotten: leases and keys
                etcd.start()
                until(lambda: set(etcd.keys("/baton/main/")) >= {"/baton/main/routers/router0", "/baton/main/routers/router1",
                                                                 "/baton/main/workers/decode0"}, "registered again", 30)
                assert {address(first), address(second)} <= set(routers_up(decode)), decode.status()["routers"]
            first.stop()
            until(lambda: "/baton/main/routers/router0" not in etcd.keys("/baton/main/"), "the key of a router that stopped")
            c.ask("hello", port=second.http)
        finally:
            etcd.stop()


if __name__ == "__main__":
    main([a_watched_file, names_of_dns, keys_of_etcd])
