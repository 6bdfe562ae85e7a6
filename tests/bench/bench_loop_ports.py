#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loop time of work other than answers: /metrics with many series, /v1/models, admin routes, TLS handshakes, and HTTP/2 with
many streams and large headers.  The second table in docs/http.md.

    BATON_BUILD=build python3 tests/bench/bench_loop_ports.py [WORD...]      only kinds whose names hold one of the words

The figures are the loops' own, as in bench_loop.py.  h2load (nghttp2-client) makes the load."""
import hashlib
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench_loop  # noqa: E402
from bench_loop import Ear, fetch, user  # noqa: E402
from cluster import Cluster  # noqa: E402

N_TENANTS = int(os.environ.get("BENCH_TENANTS", "1000"))


def make_keys(c):
    path, keys = os.path.join(c.dir, "keys"), []
    with open(path, "w") as f:
        for i in range(N_TENANTS):
            keys.append(f"sk-{random.getrandbits(256):064x}")
            f.write(f"{hashlib.sha256(keys[-1].encode()).hexdigest()}  tenant-{i}\n")
    os.chmod(path, 0o600)
    return path, keys


def make_certificate(c):
    certificate, key = os.path.join(c.dir, "cert.pem"), os.path.join(c.dir, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return certificate, key


def handshakes(port, n):
    """n TLS connections, begun at the same time."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def one():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as s, context.wrap_socket(s):
                pass
        except OSError:
            pass
    threads = [threading.Thread(target=one) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def half_open(port, n, first):
    sockets = []
    for _ in range(n):
        s = socket.create_connection(("127.0.0.1", port))
        try:
            s.sendall(first)
        except OSError:
            pass
        sockets.append(s)
    time.sleep(0.5)
    for s in sockets:
        s.close()


def h2load(scheme, port, path, key, *more):
    subprocess.run(["h2load", *more, "-H", f"x-api-key: {key}", f"{scheme}://127.0.0.1:{port}{path}"], capture_output=True, check=False)


def kinds(c, router, key):
    token = {"authorization": f"Bearer {c.admin_token()}"}
    big = [field for i in range(60) for field in ("-H", f"x-{i}: {'v' * 900}")]
    many = [field for i in range(95) for field in ("-H", f"x-{i}: v")]
    yield f"/metrics of {N_TENANTS} tenants", lambda: fetch(router.admin, "GET", "/metrics", headers=token)
    yield "/admin/status", lambda: fetch(router.admin, "GET", "/admin/status", headers=token)
    yield "/admin/drain, undrain", lambda: (fetch(router.admin, "POST", "/admin/drain", headers=token),
                                           fetch(router.admin, "POST", "/admin/undrain", headers=token))
    yield f"/admin/reload, {N_TENANTS} keys", lambda: fetch(router.admin, "POST", "/admin/reload", headers=token)
    yield "/v1/models, 100 streams at once", lambda: h2load("https", router.http, "/v1/models", key, "-n3000", "-c1", "-m100")
    yield "/v1/models, HTTP/1.1, 100 connections", lambda: h2load("https", router.http, "/v1/models", key, "-n3000", "-c100", "--h1")
    yield "100 streams of 54 KB of headers", lambda: h2load("https", router.http, "/v1/models", key, "-n1000", "-c1", "-m100", *big)
    yield "100 streams of 95 header fields", lambda: h2load("https", router.http, "/v1/models", key, "-n1000", "-c1", "-m100", *many)
    yield "20 connections of 100 streams", lambda: h2load("https", router.http, "/v1/models", key, "-n20000", "-c20", "-m100")
    yield "300 TLS handshakes at once", lambda: handshakes(router.http, 300)
    yield "300 unfinished ClientHellos", lambda: half_open(router.http, 300, bytes.fromhex("16030102000100 01fc0303"))
    yield "300 times no TLS", lambda: half_open(router.http, 300, b"GET / HTTP/1.1\r\n\r\n")
    yield "300 unfinished ClientHellos at the link port", lambda: half_open(router.link, 300, bytes.fromhex("16030102000100 01fc0303"))
    yield "300 times no TLS at the link port", lambda: half_open(router.link, 300, b"x" * 4000)


def fill(router, keys):
    """Every tenant has asked once, so that all of its series are there."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    import http.client
    import json
    connection = http.client.HTTPSConnection("127.0.0.1", router.http, context=context)
    for key in keys:
        connection.request("POST", "/v1/messages", json.dumps(user("x")), {"content-type": "application/json", "x-api-key": key})
        connection.getresponse().read()


def main():
    names = sys.argv[1:]
    with Cluster() as c:
        path, keys = make_keys(c)
        certificate, key_file = make_certificate(c)
        router = c.router(http__api_keys=path, http__tls_certificate=certificate, http__tls_key=key_file)
        c.worker("decode", engine__kind="sim", engine__sim_step="10us")
        c.wait_ready(decode=1)
        fill(router, keys)
        print("| what | longest, ms |\n|---|---|", flush=True)
        for name, run in kinds(c, router, keys[0]):
            if names and not any(n in name for n in names):
                continue
            best = (0.0, "")
            for _ in range(bench_loop.N_TIMES):
                ear = Ear(router)
                run()
                time.sleep(0.2)
                best = max(best, ear.longest())
            print(f"| {name} | {bench_loop.show(best)} |", flush=True)


if __name__ == "__main__":
    main()
