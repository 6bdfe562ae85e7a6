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
from cluster import BUILD, Cluster, fetch, free_port, main, patience  # noqa: E402

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
        command += [f"--srv-host=_baton._tcp.test,host.test,{a.rsplit(':')[1]}" for a in addresses]
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


def log_lines(daemon, event, *words):
    with open(daemon.log_path, encoding="utf-8") as f:
        return [line for line in f if f'"{event}"' in line and all(word in line for word in words)]


def routers_of_both_families():
    """The targets of SRV records are known to their own name server only.  A router that listens on all addresses is
    found at two, is linked once, and the other address is no reason for a warning at each attempt."""
    if shutil.which("dnsmasq") is None:
        print("skipped: dnsmasq-base is not installed")
        return
    with Cluster() as c:
        dns, port = Dns(c.dir), free_port()
        try:
            router = c.router(link__listen=f"*:{port}")
            dns.publish([f"127.0.0.1:{port}"])
            for name in ("dns+srv://_baton._tcp.test", f"dns://host.test:{port}"):
                worker = c.worker("decode", link__routers=f"{name}?server=127.0.0.1:{dns.port}", **SIM)
                until(lambda: len(status(worker).get("routers", [])) == 2, "both addresses")
                until(lambda: routers_up(worker), "a link")
                until(lambda: log_lines(worker, "link_failed", "is linked to this router already"), "the other address")
                time.sleep(3)
                assert len(routers_up(worker)) == 1, worker.status()["routers"]
                assert {r["address"] for r in worker.status()["routers"]} == {f"127.0.0.1:{port}", f"[::1]:{port}"}
                assert len(log_lines(worker, "link_failed", "is linked to this router already")) == 1, worker.tail(40)
                assert not log_lines(router, "link_refused"), log_lines(router, "link_refused")
        finally:
            dns.stop()


class Etcd:
    def __init__(self, folder):
        self.port, self.peer_port, self.folder = free_port(), free_port(), os.path.join(folder, "etcd")
        self.process, self.token = None, None

    def start(self, *more):
        url, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.folder, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls",
             peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--log-level", "error", *more],
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
        headers = {"authorization": self.token} if self.token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(fields).encode(), headers)
        with urllib.request.urlopen(request, timeout=5) as response:
            return json.load(response)

    def keys(self, prefix):
        answer = self.call("/v3/kv/range", key=prefix, range_end=prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return {base64.b64decode(p["key"]).decode(): json.loads(base64.b64decode(p["value"])) for p in answer.get("kvs", [])}

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def batonctl(c, *words):
    command = [os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(30))
    return done.returncode, done.stdout, done.stderr


def batonctl_finds_them(c, etcd, source):
    """By name, or a router of this host; never a daemon of another host at the same address here."""
    found = {d["node"]: d for d in json.loads(batonctl(c, "--cluster", source, "daemons", "--json")[1])}
    decode = c.daemon("decode0")
    assert sorted(found) == ["decode0", "prefill0", "router0"], found
    assert found["decode0"] == {"node": "decode0", "role": "decode", "host": socket.gethostname(), "link": address(decode),
                                "admin": f"127.0.0.1:{decode.admin}", "model": "baton-demo",
                                "fingerprint": decode.status()["fingerprint"]}, found
    assert batonctl(c, "--cluster", source, "daemons")[1].count("\n") == 4
    assert json.loads(batonctl(c, "-c", source, "-a", "decode0", "status", "--json")[1])["node"] == "decode0"
    assert json.loads(batonctl(c, "-c", source, "status", "--json")[1])["workers"]  # the router's
    assert json.loads(batonctl(c, "-c", source, "-a", f"127.0.0.1:{decode.admin}", "status", "--json")[1])["node"] == "decode0"
    etcd.call("/v3/kv/put", key="/baton/main/workers/far", value=json.dumps(
        {"node": "far\u001b[2J", "host": "elsewhere", "link": "10.0.0.9:1", "role": "decode", "admin": f"127.0.0.1:{decode.admin}"}))
    etcd.call("/v3/kv/put", key="/baton/main/workers/long", value=json.dumps({"node": "n" * 300, "link": "10.0.0.9:1"}))
    assert "far?[2J" in batonctl(c, "-c", source, "daemons")[1] and "1 more" in batonctl(c, "-c", source, "daemons")[1]
    for words, why in ((("-a", "far?[2J", "status"), "runs on host elsewhere"), (("-a", "nobody", "status"), "no daemon with the name")):
        code, out, error = batonctl(c, "-c", source, *words)
        assert code == 1 and not out and why in error, (code, out, error)
    for bad, why in (("dns+srv://_baton._tcp.test", "register in etcd"), (source.replace(str(etcd.port), "9"), "onnect")):
        code, out, error = batonctl(c, "--cluster", bad, "daemons")
        assert code == 1 and not out and why in error, (code, out, error)
    code, _, error = batonctl(c, "daemons")
    assert code == 2 and "--cluster" in error, (code, error)
    for name in ("far", "long"):
        etcd.call("/v3/kv/deleterange", key="/baton/main/workers/" + name)


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

            batonctl_finds_them(c, etcd, source)
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


def users_of_etcd():
    """Refusals are logged with etcd's own reason.  A change of a role makes older tokens invalid: daemons log in anew."""
    if shutil.which("etcd") is None:
        print("skipped: etcd-server is not installed")
        return
    with Cluster() as c:
        etcd, keys = Etcd(c.dir), [os.path.join(c.dir, name) for name in ("private.pem", "public.pem")]
        subprocess.run(["openssl", "genrsa", "-out", keys[0], "2048"], check=True, capture_output=True)
        subprocess.run(["openssl", "rsa", "-in", keys[0], "-pubout", "-out", keys[1]], check=True, capture_output=True)
        etcd.start("--auth-token", f"jwt,pub-key={keys[1]},priv-key={keys[0]},sign-method=RS256,ttl=5m")
        try:
            for name in ("root", "baton", "stranger"):
                etcd.call("/v3/auth/user/add", name=name, password=name + "-pw")
                etcd.call("/v3/auth/role/add", name=name)
                etcd.call("/v3/auth/user/grant", user=name, role=name)
            end = base64.b64encode(b"/baton0").decode()
            etcd.call("/v3/auth/role/grant", name="baton", perm={"permType": "READWRITE", "range_end": end,
                                                                 "key": base64.b64encode(b"/baton/").decode()})
            etcd.call("/v3/auth/enable")

            def source(login):
                return f"etcd://{login}127.0.0.1:{etcd.port}/baton/main"
            for login, why in (("", "user name is empty"), ("baton:wrong@", "authentication failed"),
                               ("stranger:stranger-pw@", "permission denied")):
                worker = c.worker("decode", link__routers=source(login), **SIM)
                until(lambda: log_lines(worker, "discovery_lost", why), why)
                assert not log_lines(worker, "discovery_lost", "-pw") + log_lines(worker, "discovery_lost", "wrong@")
                worker.stop()
            ours = source("baton:baton-pw@")
            first = c.router(link__register=ours)
            worker = c.worker("decode", link__routers=ours, link__register=ours, **SIM)
            until(lambda: routers_up(worker) == [address(first)], "the first router")
            with Load(c, [first]):
                etcd.token = etcd.call("/v3/auth/authenticate", name="root", password="root-pw")["token"]
                etcd.call("/v3/auth/role/add", name="another")
                second = c.router(link__register=ours)
                until(lambda: len(routers_up(worker)) == 2, "a router that registered after a role was added", 40)
            assert not log_lines(worker, "registration_lost"), log_lines(worker, "registration_lost")
            second.stop()
        finally:
            etcd.stop()


if __name__ == "__main__":
    main([a_watched_file, names_of_dns, routers_of_both_families, keys_of_etcd, users_of_etcd])
