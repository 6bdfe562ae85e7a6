# SPDX-License-Identifier: Apache-2.0
"""Redis servers of a test's own, on free ports of the loopback, without files.  Debian's redis-server, or Valkey."""
import os
import shutil
import signal
import socket
import subprocess
import sys

from cluster import free_port, patience
from loopback_server import Server

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")


def want():
    """Skips the test, visibly, where no server is installed."""
    if PROGRAM is None:
        print("skipped: neither redis-server nor valkey-server is installed")
        sys.exit(77)


class Redis(Server):
    name = "redis-server"

    def __init__(self, *args, port=None, tls=None, folder=None):
        """tls: (certificate, key) files; the port then speaks TLS only."""
        self.port = port or free_port()
        self.args = list(args)
        self.tls = tls
        self.folder = folder or "/"
        self.start()

    @property
    def url(self):
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"

    def start(self):
        where = ["--port", str(self.port)]
        if self.tls:
            where = ["--port", "0", "--tls-port", str(self.port), "--tls-cert-file", self.tls[0], "--tls-key-file",
                     self.tls[1], "--tls-ca-cert-file", self.tls[0], "--tls-auth-clients", "no"]
        self.run([PROGRAM, *where, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning", *self.args],
                 lambda: socket.create_connection(("127.0.0.1", self.port), 1).close(), seconds=20, cwd=self.folder)
        return self

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    # ---- commands of the test's own ----

    def __call__(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 10) as plain:
            plain.settimeout(patience(10))
            stream = plain.makefile("rwb")
            stream.write(b"*%d\r\n" % len(words))
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                stream.write(b"$%d\r\n%s\r\n" % (len(word), word))
            stream.flush()
            return reply(stream)

    def keys(self):
        return sorted(self("KEYS", "baton:*"))


def reply(stream):
    line = stream.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if int(rest) < 0 else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [reply(stream) for _ in range(int(rest))]
    return rest


def certificate(folder, name, days=1):
    """A self-signed certificate for 127.0.0.1; days < 0: it has expired.  Returns its files."""
    paths = os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
               "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1], "-days",
               str(days)]
    if days < 0:  # openssl refuses negative days: sign a request with dates of its own
        request = os.path.join(folder, name + ".csr")
        subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1", "-out", request, "-keyout", paths[1]],
                       check=True, capture_output=True)
        conf = os.path.join(folder, name + ".cnf")
        with open(os.path.join(folder, name + ".index"), "w", encoding="ascii"):
            pass
        with open(conf, "w", encoding="ascii") as f:
            f.write(f"[ca]\ndefault_ca=own\n[own]\ndatabase={folder}/{name}.index\nnew_certs_dir={folder}\n"
                    "rand_serial=yes\ndefault_md=sha256\npolicy=any\ncopy_extensions=copy\n[any]\ncommonName=supplied\n")
        subprocess.run(["openssl", "ca", "-batch", "-selfsign", "-config", conf, "-in", request, "-keyfile", paths[1],
                        "-out", paths[0], "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-notext"],
                       check=True, capture_output=True)
        return paths
    subprocess.run(command, check=True, capture_output=True)
    return paths
