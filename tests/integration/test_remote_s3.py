# SPDX-License-Identifier: Apache-2.0
"""The remote tier in an object store: moto's server speaks S3 over HTTP and checks signatures.  A worker reads what
another one wrote, wrong keys are refused, and a server that dies costs nothing.  The engine is simulated and reads
prompts slowly, since moto takes some milliseconds for each object.  Skipped without moto."""
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from cluster import Cluster, free_port, main, patience
from test_remote import ask, lines, remote, up, worker_of
from test_tier import BLOCK, until

PYTHON = os.environ.get("BATON_MOTO", sys.executable)
SERVER = "import sys; from moto.server import main; main(sys.argv[1:])"
UNCHECKED = 4  # requests before signatures are checked: a user, its key, its policy, and the bucket


class Store:
    def __init__(self):
        self.port = free_port()
        self.start()

    def start(self):
        env = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(UNCHECKED)}
        self.process = subprocess.Popen([PYTHON, "-c", SERVER, "-H", "127.0.0.1", "-p", str(self.port)], env=env,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + patience(60)
        while True:
            try:
                self.iam(Action="CreateUser", UserName="baton")
                break
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, "moto's server does not start"
                time.sleep(0.1)
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

    @property
    def url(self):
        return f"s3://kv-store/models?endpoint=http://127.0.0.1:{self.port}"

    def kill(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def login_file(cluster, login):
    path = f"{cluster.dir}/login-{abs(hash(login))}"
    with open(path, "w", encoding="ascii") as f:
        f.write(login + "\n")
    os.chmod(path, 0o600)
    return path


def other_secret(login):
    """Secrets are random, so their last letter may be any: another one is put in its place."""
    return login[:-1] + ("y" if login[-1] == "x" else "x")


SLOW = {"engine__kind": "sim", "engine__sim_prefill_token": "2ms"}


def blocks_are_objects():
    with Cluster() as c, Store() as store:
        login = login_file(c, store.login)
        a = up(worker_of(c, store.url, kv__remote_login=login, **SLOW))
        ask(c, a)
        n_blocks = ask(c, a).serving["reused"] // BLOCK
        until("blocks are not written", lambda: remote(a, "written") + remote(a, "existed") >= n_blocks > 0)
        a.kill()
        for _ in range(3):  # a busy host may answer too late
            b = up(worker_of(c, store.url, kv__remote_login=login, kv__remote_threads="4", **SLOW))
            got = ask(c, b)
            if remote(b, "late") == 0:
                break
        assert got.serving["reused"] == n_blocks * BLOCK, (got.serving, b.status()["remote"])
        until("not counted", lambda: remote(b, "read") == n_blocks)
        assert remote(b, "damaged") == remote(b, "failed") == 0
        for wrong in (other_secret(store.login), "unknown:key"):
            for _ in range(4):  # a busy host may answer too late: then the worker says that
                worker = worker_of(c, store.url, kv__remote_login=login_file(c, wrong), **SLOW)
                until("nothing is said", lambda w=worker: lines(w, "kv_remote_down") + lines(w, "kv_remote_up") > 0)
                assert lines(worker, "kv_remote_up") == 0 < lines(worker, "kv_remote_down") == 1, wrong
                worker.stop()
                if lines(worker, "HTTP status 403") == 1:
                    break
            assert lines(worker, "HTTP status 403") == 1, worker.tail()
        # A server that stands still, then dies.
        store.process.send_signal(signal.SIGSTOP)
        assert ask(c, b, "A new document. " + "It is long enough to be looked for. " * 40).is_whole
        until("it is still used", lambda: not remote(b, "up"))
        store.kill()
        assert ask(c, b).is_whole and lines(b, "kv_remote_down") == 1


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import moto.server, flask"], capture_output=True, check=False).returncode != 0:
        print("skipped: moto's server is not installed (pip install 'moto[server]'; BATON_MOTO names its python)")
        sys.exit(77)
    main([blocks_are_objects])
