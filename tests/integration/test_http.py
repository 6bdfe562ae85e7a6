# SPDX-License-Identifier: Apache-2.0
"""The client port of real daemons: TLS with a certificate of our own, its reload, --check-config, HTTP/2 with other
clients, CORS, listening rules."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

from cluster import BUILD, MODEL, Cluster, main, patience


class Pki:
    """A certificate authority in a folder, made with openssl."""

    def __init__(self, folder):
        self.dir = folder
        self.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                 "/CN=test CA", "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"))

    def path(self, name):
        return os.path.join(self.dir, name)

    def run(self, *arguments):
        out = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
        assert out.returncode == 0, out.stderr

    def make(self, name, days=2):
        self.run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
                 "-keyout", self.path(name + ".key"), "-out", self.path(name + ".csr"))
        with open(self.path("names"), "w") as f:
            f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.run("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"),
                 "-CAcreateserial", "-days", str(days), "-extfile", self.path("names"), "-out", self.path(name + ".pem"))
        os.chmod(self.path(name + ".key"), 0o600)
        return self.path(name + ".pem"), self.path(name + ".key")


def curl(pki, *arguments):
    out = subprocess.run(["curl", "-sS", "--cacert", pki.path("ca.pem"), "--max-time", str(patience(30)), *arguments],
                         capture_output=True, text=True)
    return out.returncode, out.stdout


def status_of(pki, port, *arguments):
    code, text = curl(pki, "-o", os.devnull, "-w", "%{http_version} %{http_code}", *arguments,
                      f"https://localhost:{port}/livez")
    return text if code == 0 else f"curl {code}"


def until(claim, what, seconds=15):
    end = time.monotonic() + patience(seconds)
    while not claim():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def serial(port):
    """The bytes of the certificate that the server shows now."""
    return ssl.get_server_certificate(("127.0.0.1", port))


def tls_in_front_of_router_and_workers():
    with Cluster() as c:
        pki = Pki(c.dir)
        certificate, key = pki.make("a")
        tls = {"http__tls_certificate": certificate, "http__tls_key": key}
        router = c.router(**tls, http__metrics="clients")
        worker = c.worker("decode", **tls, http__tls_min="1.3")
        c.wait_ready(decode=1)
        assert status_of(pki, router.http) == "2 200"
        assert status_of(pki, router.http, "--http1.1") == "1.1 200"
        assert status_of(pki, router.http, "--tls-max", "1.2") == "2 200"
        assert status_of(pki, router.http, "--tls-max", "1.1").startswith("curl")
        assert status_of(pki, worker.http) == "2 200"
        assert status_of(pki, worker.http, "--tls-max", "1.2").startswith("curl")
        # Python's own client, and the protocol that it negotiated.
        context = ssl.create_default_context(cafile=pki.path("ca.pem"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", worker.http)) as raw:
            try:
                context.wrap_socket(raw, server_hostname="localhost")
                raise AssertionError("TLS 1.2 is spoken although tls_min is 1.3")
            except (ssl.SSLError, ConnectionError):
                pass
        context = ssl.create_default_context(cafile=pki.path("ca.pem"))
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", router.http)) as raw:
            with context.wrap_socket(raw, server_hostname="localhost") as wrapped:
                assert wrapped.version() == "TLSv1.3" and wrapped.selected_alpn_protocol() == "h2"
        # An answer over each version, through router and worker: the same text.
        ask = json.dumps(c.body("What is a grant?", stream=True, max_tokens=24))
        texts = set()
        for version in ("--http1.1", "--http2"):
            code, out = curl(pki, version, "-d", ask, f"https://localhost:{router.http}/v1/messages")
            assert code == 0 and "event: message_stop" in out, out
            texts.add("".join(json.loads(d)["delta"]["text"] for d in re.findall(r"^data: (.*text_delta.*)$", out, re.M)))
        assert len(texts) == 1 and texts != {""}, texts
        code, out = curl(pki, f"https://localhost:{router.http}/metrics")
        left = float(re.search(r"^baton_tls_certificate_expiry_seconds (.*)$", out, re.M).group(1))
        assert 86400 < left <= 2 * 86400, left


def a_certificate_is_replaced_while_connections_go_on():
    with Cluster() as c:
        pki = Pki(c.dir)
        certificate, key = pki.make("a")
        other_certificate, other_key = pki.make("b")
        router = c.router(http__tls_certificate=certificate, http__tls_key=key)
        until(lambda: status_of(pki, router.http) == "2 200", "not up")
        first = serial(router.http)
        context = ssl.create_default_context(cafile=pki.path("ca.pem"))
        raw = socket.create_connection(("127.0.0.1", router.http))
        kept = context.wrap_socket(raw, server_hostname="localhost")
        failures, over = [], threading.Event()

        def load():
            while not over.is_set():
                result = status_of(pki, router.http)
                if result != "2 200":
                    failures.append(result)

        loads = [threading.Thread(target=load) for _ in range(2)]
        for thread in loads:
            thread.start()
        try:
            # A pair that does not match: SIGHUP keeps the old one and logs the reason.
            shutil.copy(other_certificate, certificate + ".new")
            os.rename(certificate + ".new", certificate)
            router.kill(signal.SIGHUP)
            until(lambda: "not the key of the certificate" in router.tail(200), "the log does not say why")
            assert serial(router.http) == first
            shutil.copy(other_key, key + ".new")
            os.rename(key + ".new", key)
            router.kill(signal.SIGHUP)
            until(lambda: serial(router.http) != first, "SIGHUP does not bring the new certificate")
        finally:
            over.set()
            for thread in loads:
                thread.join()
        assert not failures, failures
        kept.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200")
        kept.close()


def check_config_looks_at_the_files():
    with Cluster() as c:
        pki = Pki(c.dir)
        certificate, key = pki.make("a")
        _, other_key = pki.make("b")
        late_certificate, late_key = pki.make("late", days=0)
        time.sleep(1.1)  # expired at once

        def check(role="router", **sets):
            line = [os.path.join(BUILD, "baton-" + role), "--check-config", "--set", f"link.cluster_key={c.key}"]
            if role != "router":
                line += ["--set", f"model.path={MODEL}"]
            for name, value in sets.items():
                line += ["--set", f"http.{name}={value}"]
            out = subprocess.run(line, capture_output=True, text=True)
            return out.returncode, out.stdout + out.stderr

        open_key = pki.path("open.key")
        shutil.copy(key, open_key)
        os.chmod(open_key, 0o644)
        for role in ("router", "prefill", "decode"):
            assert check(role, tls_certificate=certificate, tls_key=key)[0] == 0
            for want, sets in (("not the key of the certificate", {"tls_certificate": certificate, "tls_key": other_key}),
                               ("expired", {"tls_certificate": late_certificate, "tls_key": late_key}),
                               ("mode 0644", {"tls_certificate": certificate, "tls_key": open_key}),
                               ("http.tls_key is not", {"tls_certificate": certificate}),
                               ("http.tls_certificate is not", {"tls_key": key}),
                               ("No such file", {"tls_certificate": pki.path("no.pem"), "tls_key": key})):
                code, said = check(role, **sets)
                assert code == 1 and want in said, (role, want, code, said)
            version = subprocess.run([os.path.join(BUILD, "baton-" + role), "--version"], capture_output=True, text=True)
            assert re.search(r"libevent 2\.\S+, OpenSSL 3\.\S+, nghttp2 1\.", version.stdout), version.stdout


def tls_does_not_replace_keys():
    with Cluster() as c:
        pki = Pki(c.dir)
        certificate, key = pki.make("a")
        router = c.router(http__listen="0.0.0.0:0", http__tls_certificate=certificate, http__tls_key=key)
        assert router.process.wait(patience(10)) == 1
        assert "loopback" in router.tail()
        c.routers.clear()
        # With keys and without TLS the port opens, and the log warns.
        keys = os.path.join(c.dir, "keys")
        with open(keys, "w") as f:
            f.write("0" * 64 + " nobody\n")
        os.chmod(keys, 0o600)
        router = c.router(http__listen="0.0.0.0:0", http__api_keys=keys)
        until(lambda: "router_ready" in router.tail(100), "not up")
        assert "listening_without_tls" in router.tail(100)


def http2_with_and_without_tls():
    with Cluster() as c:
        pki = Pki(c.dir)
        certificate, key = pki.make("a")
        plain = c.router(http__h2c="yes", http__max_per_address="2000")
        secure = c.router(http__tls_certificate=certificate, http__tls_key=key, http__max_per_address="2000")
        off = c.router(http__tls_certificate=certificate, http__tls_key=key, http__http2="no")
        until(lambda: status_of(pki, secure.http) == "2 200" and status_of(pki, off.http) == "1.1 200", "not up")
        code, out = curl(pki, "--http2-prior-knowledge", "-w", " %{http_version}", f"http://localhost:{plain.http}/livez")
        assert code == 0 and out == "ok\n 2", out
        code, out = curl(pki, "-w", " %{http_version}", f"http://localhost:{plain.http}/livez")
        assert code == 0 and out == "ok\n 1.1", out
        if shutil.which("h2load"):
            for url in (f"http://127.0.0.1:{plain.http}/livez", f"https://127.0.0.1:{secure.http}/livez"):
                out = subprocess.run(["h2load", "-n", "4000", "-c", "20", "-m", "50", url], capture_output=True, text=True,
                                     timeout=patience(60)).stdout
                assert "4000 succeeded, 0 failed, 0 errored" in out, out
        if shutil.which("nghttp"):
            out = subprocess.run(["nghttp", "-nv", f"http://127.0.0.1:{plain.http}/livez"], capture_output=True, text=True,
                                 timeout=patience(60)).stdout
            assert "recv SETTINGS frame" in out and ":status: 200" in out, out


def browsers_may_ask_where_configured():
    with Cluster() as c:
        pki = Pki(c.dir)
        asking = ("-H", "origin: https://app.example", "-H", "access-control-request-method: POST", "-H",
                  "access-control-request-headers: x-api-key, content-type", "-X", "OPTIONS", "-D-", "-o", os.devnull)
        off = c.router()
        on = c.router(http__cors_origin="https://app.example")
        every = c.router(http__cors_origin="*")
        for daemon in (off, on, every):
            until(lambda: curl(pki, f"http://localhost:{daemon.http}/livez")[0] == 0, "not up")
        _, out = curl(pki, *asking, f"http://localhost:{off.http}/v1/messages")
        assert " 405 " in out and "access-control" not in out, out
        _, out = curl(pki, *asking, f"http://localhost:{on.http}/v1/messages")
        assert " 204 " in out and "access-control-allow-origin: https://app.example\n" in out, out
        assert "access-control-allow-headers: x-api-key, content-type\n" in out and "content-length" not in out and "request-id: req_" in out, out
        _, out = curl(pki, "-D-", "-H", "origin: https://app.example", f"http://localhost:{on.http}/v1/nothing")
        assert " 404 " in out and "access-control-allow-origin: https://app.example" in out and "request-id" in out, out
        _, out = curl(pki, "-D-", "-H", "origin: https://other.example", f"http://localhost:{on.http}/livez")
        assert "access-control-allow-origin" not in out and "vary: origin" in out, out
        _, out = curl(pki, *asking, f"http://localhost:{every.http}/v1/messages")
        assert "access-control-allow-origin: *\n" in out and "vary" not in out, out


if __name__ == "__main__":
    if not shutil.which("openssl") or not shutil.which("curl"):
        print("openssl or curl is not installed")
        raise SystemExit(77)
    main([check_config_looks_at_the_files, tls_in_front_of_router_and_workers,
          a_certificate_is_replaced_while_connections_go_on, tls_does_not_replace_keys, http2_with_and_without_tls,
          browsers_may_ask_where_configured])
