# SPDX-License-Identifier: Apache-2.0
"""The remote tier in an object store: moto's and rclone's S3 servers, which check signatures.  A worker reads what
another one wrote, wrong keys are refused, and a server that dies costs nothing.  The engine is simulated and reads
prompts slowly, since moto takes some milliseconds for each object.  Skipped without either server."""
import os
import signal
import sys

from cluster import Cluster, main
from s3_server import Moto, Rclone, Skewed, has_moto, has_rclone
from test_remote import ask, lines, remote, up, worker_of
from test_tier import BLOCK, until


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


def blocks_are_objects(server):
    with Cluster() as c, server() as store:
        login = login_file(c, store.login)
        a = up(worker_of(c, store.url, kv__remote_login=login, **SLOW))
        ask(c, a)
        n_blocks = ask(c, a).serving["reused"] // BLOCK
        until("blocks are not written", lambda: remote(a, "written") + remote(a, "existed") >= n_blocks > 0)
        a.kill()
        for _ in range(6):  # a busy host may answer too late
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


def objects_of_moto():
    blocks_are_objects(Moto)


def objects_of_rclone():
    blocks_are_objects(Rclone)


def clocks_may_differ():
    """An hour either way: the client takes the server's time from the first refusal."""
    for skew_s in (3600, -3600):
        with Cluster() as c, Skewed(skew_s) as store:
            login = login_file(c, store.login)
            a = up(worker_of(c, store.url, kv__remote_login=login, **SLOW))
            ask(c, a)
            n_blocks = ask(c, a).serving["reused"] // BLOCK
            until("blocks are not written", lambda: remote(a, "written") + remote(a, "existed") >= n_blocks > 0)
            assert store.n_refused > 0 and store.n_served > n_blocks, (store.n_refused, store.n_served)
            assert store.n_refused <= 8, store.n_refused  # one for each request that was under way, not one for each
            assert lines(a, "kv_remote_up") == 1 and lines(a, "kv_remote_down") == 0
            assert lines(a, f"clock is 60 min {'ahead of' if skew_s > 0 else 'behind'} this host's") == 1


if __name__ == "__main__":
    tests = [objects_of_moto, clocks_may_differ] * has_moto() + [objects_of_rclone] * has_rclone()
    if not tests:
        print("skipped: neither moto's server (pip install 'moto[server]'; BATON_MOTO names its python) nor rclone 1.65 "
              "(BATON_RCLONE) is installed")
        sys.exit(77)
    main(tests)
