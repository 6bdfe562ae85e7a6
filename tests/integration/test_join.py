#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""batonctl token and join: one host gets the key, once, in time, and an attacker in the middle does not. The check names its faults."""
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, MODEL, Cluster, Daemon, free_port, main, patience  # noqa: E402

CTL = os.path.join(BUILD, "batonctl")


class Token:
    """A running `batonctl token`."""

    def __init__(self, key, *words, admin=None, prefix=()):
        self.process = subprocess.Popen([*prefix, CTL, "-k", key, *(["-a", f"127.0.0.1:{admin}"] if admin else ["-a", "127.0.0.1:1"]), "token",
                                         *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            match = re.search(r"batonctl join (\S+) --token (bj1-[0-9a-f]{72})$", line.strip())
            if match:
                self.address, self.text = match.groups()
            if line.startswith("waiting"):
                break

    def end(self, status):
        rest, errors = self.process.communicate(timeout=patience(60))
        assert self.process.returncode == status, (self.process.returncode, rest, errors)
        return rest + errors

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def join(folder, address, token, *words, status=0, stdin=None, prefix=(), environment=None):
    done = subprocess.run([*prefix, CTL, "-k", os.path.join(folder, "cluster.key"), "join", *words, "--token", token, address],
                          capture_output=True, text=True, timeout=patience(90), check=False, input=stdin,
                          env=environment)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


@contextlib.contextmanager
def keyed():
    """A folder with a cluster's key, and an empty one."""
    with tempfile.TemporaryDirectory() as top:
        ours, theirs = os.path.join(top, "ours"), os.path.join(top, "theirs")
        os.mkdir(ours)
        os.mkdir(theirs)
        key = os.path.join(ours, "cluster.key")
        subprocess.run([CTL, "new-cluster-key", key], check=True, stdout=subprocess.DEVNULL)
        yield key, theirs


def here():
    return ["--listen", f"127.0.0.1:{free_port()}"]


def a_host_joins_a_running_cluster():
    with Cluster() as c, tempfile.TemporaryDirectory() as folder:
        c.relay()
        with open(os.path.join(folder, "decode-0.conf"), "w") as f:
            f.write(f"[model]\npath = {MODEL}\n")
        with Token(c.key, *here(), admin=c.routers[0].admin) as token:
            said = join(folder, token.address, "-", stdin=token.text + "\n")
            assert "has the cluster's key; the token is spent" in token.end(0)
        path = os.path.join(folder, "cluster.key")
        assert open(path).read() == open(c.key).read()
        assert os.stat(path).st_mode & 0o777 == 0o600
        for what in ("clock", "MTU", "model", "router", "prefill0", "decode0", "kv.prefill0", "kv.decode0"):
            assert re.search(rf"^ok +{re.escape(what)} ", said, re.M), (what, said)
        assert "WRONG" not in said, said


def a_wrong_model_is_named():
    with Cluster() as c, tempfile.TemporaryDirectory() as folder:
        c.relay()
        other = os.path.join(folder, "other.gguf")
        data = bytearray(open(MODEL, "rb").read())
        data[-1] ^= 1
        open(other, "wb").write(data)
        with open(os.path.join(folder, "decode-0.conf"), "w") as f:
            f.write(f"[model]\npath = {other}\n")
        with Token(c.key, *here(), admin=c.routers[0].admin) as token:
            said = join(folder, token.address, token.text, status=3)
        assert re.search(r"^WRONG +model .*fingerprint.*Fix: copy the cluster's file", said, re.M), said
        assert os.path.exists(os.path.join(folder, "cluster.key"))


def a_token_is_good_once():
    with keyed() as (key, folder):
        with Token(key, *here()) as token:
            join(folder, token.address, token.text)
            token.end(0)
        os.remove(os.path.join(folder, "cluster.key"))
        said = join(folder, token.address, token.text, status=1)
        assert "make a new one" in said and not os.listdir(folder), said
        # the port with another token: the spent one is no key to it
        with Token(key, "--listen", token.address) as other:
            assert "does not know this token" in join(folder, token.address, token.text, status=1)
            assert not os.listdir(folder)
            join(folder, other.address, other.text)
            assert "1 connections without the token were refused" in other.end(0)


def two_hosts_at_once_are_one_host():
    with keyed() as (key, folder), Token(key, *here()) as token:
        hosts = [os.path.join(folder, str(i)) for i in range(4)]
        runs = []
        for host in hosts:
            os.mkdir(host)
            runs.append(subprocess.Popen([CTL, "-k", os.path.join(host, "cluster.key"), "join", "--token", token.text, token.address],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        codes = [run.wait(patience(60)) for run in runs]
        assert sorted(codes) == [0, 1, 1, 1], codes
        assert sum(bool(os.listdir(host)) for host in hosts) == 1


def a_token_expires():
    with keyed() as (key, folder), Token(key, *here(), "--lifetime", "1s") as token:
        assert "expired" in token.end(1)
        assert "make a new one" in join(folder, token.address, token.text, status=1)


def mistyped_tokens_do_not_travel():
    with keyed() as (key, folder), Token(key, *here()) as token:
        swapped = token.text[:-1] + ("0" if token.text[-1] != "0" else "1")
        for text, said in ((swapped, "mistyped"), (token.text[:-1], "characters"), ("x" + token.text, "begins with bj1-"), ("", "begins")):
            assert said in join(folder, token.address, text, status=1), text
        assert "give --listen" in subprocess.run([CTL, "-k", key, "-a", "127.0.0.1:1", "token"], capture_output=True, text=True, check=False).stderr
        join(folder, token.address, token.text)
        assert "refused" not in token.end(0)


def a_key_that_is_there_stays():
    with keyed() as (key, folder), Token(key, *here()) as token:
        path = os.path.join(folder, "cluster.key")
        open(path, "w").write("mine\n")
        os.chmod(path, 0o640)
        said = join(folder, token.address, token.text, status=1)
        assert "the token was not used" in said and open(path).read() == "mine\n", said
        said = join(folder, token.address, token.text, "--replace")
        assert "systemctl restart" in said, said
        assert open(path + ".old").read() == "mine\n" and open(path).read() == open(key).read()
        assert os.stat(path).st_mode & 0o777 == 0o640 and sorted(os.listdir(folder)) == ["cluster.key", "cluster.key.old"]
    with keyed() as (key, folder), Token(key, *here()) as token:  # an older .old is not lost
        path = os.path.join(folder, "cluster.key")
        for name in (path, path + ".old"):
            open(name, "w").write(name)
        assert "move it away" in join(folder, token.address, token.text, "--replace", status=1)
        assert open(path).read() == path and open(path + ".old").read() == path + ".old"


def the_key_of_the_moment_travels():
    """A rotation begins while the token waits: the new host gets both keys."""
    with keyed() as (key, folder), Token(key, *here()) as token:
        subprocess.run([CTL, "key", "rotate", key], check=True, stdout=subprocess.DEVNULL)
        join(folder, token.address, token.text)
        token.end(0)
        said = open(os.path.join(folder, "cluster.key")).read()
        assert said == open(key).read() and "\nnext " in said, "the file of before the rotation"


def a_host_joins_in_the_middle_of_a_rotation():
    with Cluster() as c, tempfile.TemporaryDirectory() as folder:
        router = c.router()
        for role in ("prefill", "decode"):
            c.worker(role, kv__tcp_encrypt="no")
        c.wait_ready(prefill=1, decode=1)
        subprocess.run([CTL, "key", "rotate", c.key], check=True, stdout=subprocess.DEVNULL)
        for daemon in c.routers + c.workers:
            subprocess.run([CTL, "-k", c.key, "-a", f"127.0.0.1:{daemon.admin}", "reload"], check=True, stdout=subprocess.DEVNULL)
        with Token(c.key, *here(), admin=router.admin) as token:
            said = join(folder, token.address, token.text)
        for what in ("router .* answers with the cluster's key", "prefill0 .* answers with the cluster's key", "kv.prefill0 .* answers$"):
            assert re.search(rf"^ok +{what}", said, re.M), (what, said)


def addresses_of_all_hosts_are_no_address():
    with keyed() as (key, _):
        for listen in ("0.0.0.0:8089", "[::]:8089", "*:8089"):
            done = subprocess.run([CTL, "-k", key, "-a", "127.0.0.1:1", "token", "--listen", listen], capture_output=True, text=True, check=False,
                                  timeout=patience(60))
            assert done.returncode == 1 and "one numeric address" in done.stderr, (listen, done)
    with Cluster() as c:  # neither is a router's: the token asks for an address, and a check leaves it out
        port = free_port()
        router = c.router(link__listen=f"0.0.0.0:{port}")
        router.link = port
        c.worker("prefill", link__routers=f"127.0.0.1:{port}")
        c.worker("decode", link__routers=f"127.0.0.1:{port}")
        c.wait_ready(prefill=1, decode=1)
        ctl = [CTL, "-k", c.key, "-a", f"127.0.0.1:{router.admin}"]
        done = subprocess.run([*ctl, "token"], capture_output=True, text=True, check=False, timeout=patience(60))
        assert done.returncode == 1 and "give --listen" in done.stderr, done
        done = subprocess.run([*ctl, "check", "--json"], capture_output=True, text=True, check=False, timeout=patience(60))
        assert done.returncode == 0 and "kv" in done.stdout and "0.0.0.0" not in done.stdout, done


def strangers_do_not_keep_a_host_out():
    with keyed() as (key, folder), Token(key, *here()) as token:
        host, port = token.address.split(":")
        strangers = []
        for i in range(70):  # silent ones, plain HTTP, the beginning of a TLS record, noise
            with contextlib.suppress(OSError):
                s = socket.create_connection((host, int(port)), timeout=patience(10))
                s.sendall([b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", os.urandom(300)][i % 4])
                strangers.append(s)
        assert "cluster.key" in join(folder, token.address, token.text)
        assert re.search(r"\d+ connections without the token were refused", token.end(0))
        for s in strangers:
            s.close()


class Relay(threading.Thread):
    """A host in the middle that passes on bytes and keeps them."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target, self.kept, self.listener = target, [], socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        client, _ = self.listener.accept()
        host, port = self.target.split(":")
        server = socket.create_connection((host, int(port)))
        ways = [threading.Thread(target=self.pump, args=way, daemon=True) for way in ((client, server, True), (server, client, False))]
        for way in ways:
            way.start()

    def pump(self, source, sink, is_out):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                self.kept.append((is_out, piece))
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)


def a_host_in_the_middle_learns_nothing():
    with keyed() as (key, folder):
        with Token(key, *here()) as token:
            relay = Relay(token.address)
            join(folder, relay.address, token.text)
            token.end(0)
        secret = open(key).read().strip()
        seen = b"".join(piece for _, piece in relay.kept)
        assert len(seen) > 65536 and secret.encode() not in seen and bytes.fromhex(secret) not in seen
        assert token.text.encode() not in seen and bytes.fromhex(token.text[4:68]) not in seen
        # replayed to the same address with a new token: nothing comes back but an alert, and the token stays good
        os.remove(os.path.join(folder, "cluster.key"))
        with Token(key, "--listen", token.address) as other:
            host, port = other.address.split(":")
            with socket.create_connection((host, int(port)), timeout=patience(10)) as s:
                answer = b""
                with contextlib.suppress(OSError):
                    s.sendall(b"".join(piece for is_out, piece in relay.kept if is_out))
                    while piece := s.recv(4096):
                        answer += piece
                assert len(answer) < 2048, len(answer)
            join(folder, other.address, other.text)
            other.end(0)


def a_false_router_gets_nothing():
    with keyed() as (key, folder), Token(key, *here()) as token:
        certificate = os.path.join(folder, "false.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", certificate, "-out", certificate, "-days", "2", "-subj",
                        "/CN=router"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        heard = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve():
                with contextlib.suppress(OSError, ssl.SSLError), listener.accept()[0] as raw:
                    raw.settimeout(patience(10))
                    with context.wrap_socket(raw, server_side=True) as tls:
                        heard.append(tls.recv(4096))
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            said = join(folder, "127.0.0.1:%d" % listener.getsockname()[1], token.text, status=1)
            thread.join(patience(20))
        assert "Nothing was sent" in said and not any(heard), (said, heard)
        assert not os.path.exists(os.path.join(folder, "cluster.key"))


def a_wrong_clock_is_named():
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or os.environ.get("BATON_SANITIZED"):
        print("skipped: no compiler for the shim, or a sanitizer that wants to be loaded first")
        return
    with keyed() as (key, folder), Token(key, *here()) as token:
        source, shim = os.path.join(folder, "shim.c"), os.path.join(folder, "shim.so")
        open(source, "w").write("#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n"
                                "int clock_gettime(clockid_t c, struct timespec *t) { long r = syscall(SYS_clock_gettime, c, t);"
                                " if (c == CLOCK_REALTIME) t->tv_sec += 90; return (int)r; }\n")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source], check=True)
        said = join(folder, token.address, token.text, status=3, environment=dict(os.environ, LD_PRELOAD=shim))
        assert re.search(r"^WRONG +clock +(89|90)\.\d s ahead of .*Fix: run a time service", said, re.M), said


# ---- two hosts: network namespaces ----

def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@contextlib.contextmanager
def two_hosts(mtu):
    """Two network namespaces with an address each: [(command prefix, address)], or None."""
    names = [f"bt{os.getpid()}a", f"bt{os.getpid()}b"]
    try:
        is_made = os.getuid() == 0 and shutil.which("ip") and all(ip("netns", "add", name).returncode == 0 for name in names)
        if is_made:
            is_made = ip("link", "add", "v0", "mtu", str(mtu), "netns", names[0], "type", "veth", "peer", "name", "v1", "mtu", str(mtu), "netns",
                         names[1]).returncode == 0
        for i, name in enumerate(names) if is_made else []:
            for words in (["link", "set", "lo", "up"], ["addr", "add", f"10.77.0.{i + 1}/24", "dev", f"v{i}"], ["link", "set", f"v{i}", "up"]):
                done = ip("-n", name, *words)
                assert done.returncode == 0, done.stderr
        yield [(["ip", "netns", "exec", name], f"10.77.0.{i + 1}") for i, name in enumerate(names)] if is_made else None
    finally:
        for name in names:
            ip("netns", "del", name)


def start_in(prefix, daemon, **settings):
    daemon.settings.update({k.replace("__", "."): v for k, v in settings.items()})
    with open(daemon.log_path, "ab") as log:
        daemon.process = subprocess.Popen([*prefix, *daemon.command()], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def a_second_host_joins():
    with two_hosts(1500) as hosts:
        if hosts is None:
            print("skipped: no root, or no network namespaces here")
            return
        (first, first_address), (second, second_address) = hosts
        with Cluster() as c, tempfile.TemporaryDirectory() as folder:
            router, worker = Daemon(c, "router", "router0", {}), Daemon(c, "decode", "decode0", {})
            c.routers.append(router)
            c.workers.append(worker)
            start_in(first, router, link__listen=f"{first_address}:8090")
            start_in(first, worker, link__routers=f"{first_address}:8090", link__listen=f"{first_address}:8094", kv__tcp_listen=f"{first_address}:8104")
            status = [*first, CTL, "-k", c.key, "-a", f"127.0.0.1:{router.admin}", "status"]
            until = time.monotonic() + patience(30)
            while "decode0" not in subprocess.run(status, capture_output=True, text=True, check=False).stdout:
                assert time.monotonic() < until, router.tail()
                time.sleep(0.1)
            with open(os.path.join(folder, "decode-0.conf"), "w") as f:
                f.write(f"[model]\npath = {MODEL}\n[link]\nlisten = {second_address}:8094\n[kv]\ntcp_listen = {second_address}:8104\n")
            with Token(c.key, admin=router.admin, prefix=first) as token:
                assert token.address == f"{first_address}:8089"
                said = join(folder, first_address, token.text, prefix=second)
            for what in (f"router +{first_address}:8090", f"decode0 +{first_address}:8094", f"kv.decode0 +{first_address}:8104",
                         f"way back +.* reaches {second_address}:8094", f"way back +.* reaches {second_address}:8104"):
                assert re.search(r"^ok +" + what, said, re.M), (what, said)
            os.remove(os.path.join(folder, "cluster.key"))
            with open(os.path.join(folder, "prefill-0.conf"), "w") as f:
                f.write("[link]\nlisten = 10.77.0.9:8092\n")  # an address that this host does not have
            with Token(c.key, admin=router.admin, prefix=first) as token:
                said = join(folder, first_address, token.text, prefix=second, status=3)
            assert re.search(r"^WRONG +way back +.* does not reach 10.77.0.9:8092 here: .*Fix: open this port", said, re.M), said


ASK = """
import json, sys, urllib.request
body = {"model": "baton-demo", "max_tokens": 12, "messages": [{"role": "user", "content": "What is a KV cache?"}]}
request = urllib.request.Request("http://127.0.0.1:8080/v1/messages", json.dumps(body).encode(), {"content-type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["content"][0]["text"])
"""


def two_hosts_come_up_from_nothing():
    """baton-setup on both hosts, a token, a join, the daemons from the written files, a check, an answer."""
    with two_hosts(1500) as hosts, tempfile.TemporaryDirectory() as top:
        if hosts is None:
            print("skipped: no root, or no network namespaces here")
            return
        (first, address), (second, _) = hosts
        ours, theirs, running = os.path.join(top, "ours"), os.path.join(top, "theirs"), []
        key = os.path.join(ours, "cluster.key")

        def run(prefix, *words):
            done = subprocess.run([*prefix, *words], capture_output=True, text=True, timeout=patience(90), check=False)
            assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
            return done.stdout

        def start(prefix, role, conf):
            with open(conf + ".log", "wb") as log:
                running.append(subprocess.Popen([*prefix, os.path.join(BUILD, "baton-" + role), "--config", conf, "--set", "stop.lame_duck=0"],
                                                stdout=log, stderr=log))

        def until(prefix, words, wanted):
            end = time.monotonic() + patience(60)
            while True:
                done = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False)
                if wanted in done.stdout:
                    return done.stdout
                assert time.monotonic() < end, (words, done.stdout, done.stderr)
                time.sleep(0.2)

        try:
            run(first, os.path.join(BUILD, "baton-setup"), "--role", "router", "--address", address, "--dir", ours)
            start(first, "router", os.path.join(ours, "router.conf"))
            until(first, [CTL, "-k", key, "status"], "router")
            run(second, os.path.join(BUILD, "baton-setup"), "--role", "decode", "--router", f"{address}:8090", "--model", MODEL, "--dir", theirs,
                "--kv-memory", "128MiB", "--threads", "1")
            with Token(key, admin=8081, prefix=first) as token:
                said = join(theirs, token.address, token.text, prefix=second)
                assert said.count("reaches 10.77.0.2") == 2 and "WRONG" not in said, said
            start(second, "decode", os.path.join(theirs, "decode-0.conf"))
            until(first, [CTL, "-k", key, "check"], "all daemons reach each other")
            assert run(first, sys.executable, "-c", ASK).strip()
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(patience(30))


def a_small_mtu_is_named():
    with two_hosts(1000) as hosts, keyed() as (key, folder):
        if hosts is None:
            print("skipped: no root, or no network namespaces here")
            return
        (first, address), (second, _) = hosts
        with Token(key, "--listen", f"{address}:8089", prefix=first) as token:
            said = join(folder, token.address, token.text, prefix=second, status=3)
        assert re.search(r"^WRONG +MTU +the path takes packets of 1000 bytes only", said, re.M), said


if __name__ == "__main__":
    main([a_host_joins_a_running_cluster, a_wrong_model_is_named, a_token_is_good_once, two_hosts_at_once_are_one_host, a_token_expires,
          mistyped_tokens_do_not_travel, a_key_that_is_there_stays, the_key_of_the_moment_travels,
          a_host_joins_in_the_middle_of_a_rotation, addresses_of_all_hosts_are_no_address, strangers_do_not_keep_a_host_out, a_host_in_the_middle_learns_nothing,
          a_false_router_gets_nothing, a_wrong_clock_is_named, a_second_host_joins, two_hosts_come_up_from_nothing, a_small_mtu_is_named])
