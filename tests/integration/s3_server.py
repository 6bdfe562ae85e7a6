# SPDX-License-Identifier: Apache-2.0
"""S3 servers of a test's own, on free ports of the loopback: moto (Python) and rclone's `serve s3` (Go, 1.65 and later).
Both check signatures.  moto knows users and policies; rclone keeps objects as files and answers much faster."""
import datetime
import http.client
import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from cluster import free_port, patience
from loopback_server import Server

PYTHON = os.environ.get("BATON_MOTO", sys.executable)
RCLONE = os.environ.get("BATON_RCLONE", shutil.which("rclone"))
MOTO = "import sys; from moto.server import main; main(sys.argv[1:])"
UNCHECKED = 4  # requests before moto checks signatures: a user, its key, its policy, and the bucket


def has_moto():
    return subprocess.run([PYTHON, "-c", "import moto.server, flask"], capture_output=True, check=False).returncode == 0


def has_rclone():
    return RCLONE is not None and subprocess.run([RCLONE, "serve", "s3", "--help"], capture_output=True, check=False).returncode == 0


class S3(Server):
    """Has a bucket kv-store, and the login of a user who may use it."""
    login = ""

    def __init__(self):
        self.port = free_port()
        self.start()

    @property
    def url(self):
        return f"s3://kv-store/models?endpoint=http://127.0.0.1:{self.port}"

    def start(self):
        raise NotImplementedError

    def run(self, command, is_up, **more):
        return super().run(command, is_up, stderr=subprocess.DEVNULL, **more)


class Moto(S3):
    name = "moto"

    def start(self):
        env = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(UNCHECKED)}
        self.run([PYTHON, "-c", MOTO, "-H", "127.0.0.1", "-p", str(self.port)],
                 lambda: self.iam(Action="CreateUser", UserName="baton"), env=env)
        made = self.iam(Action="CreateAccessKey", UserName="baton")
        self.login = ":".join(re.search(f"<{name}>(.*?)</{name}>", made).group(1) for name in
                              ("AccessKeyId", "SecretAccessKey"))
        self.iam(Action="PutUserPolicy", UserName="baton", PolicyName="all", PolicyDocument=
                 '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}')
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/kv-store", method="PUT")):
            pass

    def iam(self, **fields):
        body = urllib.parse.urlencode({"Version": "2010-05-08", **fields}).encode()
        head = {"Host": "iam.amazonaws.com", "Content-Type": "application/x-www-form-urlencoded",
                "Authorization": "AWS4-HMAC-SHA256 Credential=x/20240101/us-east-1/iam/aws4_request, "
                                 "SignedHeaders=host, Signature=x"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/", body, head)
        with urllib.request.urlopen(request, timeout=patience(10)) as answer:
            return answer.read().decode()


class Skewed(Moto):
    """moto behind a proxy whose clock differs: it refuses requests that were signed at another time, as Amazon's servers do."""
    LIMIT_S = 900

    def __init__(self, skew_s):
        self.skew_s, self.n_refused, self.n_served = skew_s, 0, 0
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        super().__init__()

    @property
    def url(self):
        return f"s3://kv-store/models?endpoint=http://127.0.0.1:{self.proxy.server_port}"

    def handler(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def date_time_string(self, timestamp=None):
                return super().date_time_string((timestamp or time.time()) + outer.skew_s)

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                signed = datetime.datetime.strptime(self.headers.get("x-amz-date", "19700101T000000Z"), "%Y%m%dT%H%M%S%z")
                if abs(signed.timestamp() - time.time() - outer.skew_s) > outer.LIMIT_S:
                    outer.n_refused += 1
                    self.reply(403, {}, b"<Error><Code>RequestTimeTooSkewed</Code></Error>")
                    return
                outer.n_served += 1
                connection = http.client.HTTPConnection("127.0.0.1", outer.port, timeout=patience(30))
                connection.request(self.command, self.path, body or None, dict(self.headers))
                answer = connection.getresponse()
                self.reply(answer.status, dict(answer.getheaders()), answer.read())
                connection.close()

            def reply(self, status, headers, body):
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("date", "server", "connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

            def log_message(self, *_):
                pass

        return Handler

    def __exit__(self, *_):
        super().__exit__()
        self.proxy.shutdown()
        self.proxy.server_close()


class Rclone(S3):
    name, login = "rclone", "batonuser:batonsecret0"

    def __init__(self):
        # In memory, where the host has it: rclone waits for the disk before it answers a PUT, for a second on a busy one.
        self.folder = tempfile.mkdtemp(prefix="baton-s3.", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        os.mkdir(os.path.join(self.folder, "kv-store"))  # folders are buckets
        super().__init__()

    def start(self):
        self.run([RCLONE, "serve", "s3", "--config", "/dev/null", "--auth-key", self.login.replace(":", ","), "--addr",
                  f"127.0.0.1:{self.port}", self.folder],
                 lambda: socket.create_connection(("127.0.0.1", self.port), 1).close())

    def __exit__(self, *_):
        super().__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)
