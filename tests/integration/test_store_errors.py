# SPDX-License-Identifier: Apache-2.0
"""Stores that are set up wrongly: the wrong scheme, users who lack a permission, ports with and without TLS, buckets that
do not exist or lie elsewhere.  Workers and routers serve, say once why the store is not used, and do not go on and off."""
import http.server
import threading
import time

import redis_server
from cluster import Cluster, in_threads, main
from redis_server import Redis
from s3_server import Moto, Rclone, has_moto, has_rclone
from test_remote import ask, lines, text_of, worker_of
from test_remote_cluster import Servers
from test_remote_s3 import login_file, other_secret
from test_tier import until

SIM = {"engine__kind": "sim", "engine__sim_step": "1ms"}
CACHE = ("+getrange", "+strlen", "+set", "+expire", "+unlink", "+ping", "+hello")
STATE = ("+hello", "+time", "+get", "+set", "+expire", "+unlink", "+xadd", "+xrange")


def user(store, name, names, *commands):
    store("ACL", "SETUSER", name, "on", ">pw", f"~{names}:*", *commands)


def said_once(event, cases):
    """cases: (daemon, text of its log line).  Each has said why the store is not used, and still does not use it after two
    tests of it."""
    for daemon, why in cases:
        until(f"nothing is said of {why}", lambda: lines(daemon, event + "_down") > 0)
    time.sleep(2.5)  # a test after 1 s, and one 2 s later
    for daemon, why in cases:
        assert lines(daemon, event + "_down") == 1 and lines(daemon, event + "_up") == 0, daemon.tail(30)
        assert lines(daemon, why) == 1, (why, daemon.tail(30))


def refused(c, cases, **settings):
    """cases: (URL, text of the log line, the worker's own settings).  All workers at once."""
    workers = [worker_of(c, url, **SIM, **settings, **dict(*own)) for url, _, *own in cases]
    for worker, (_, why, *_) in zip(workers, cases):
        assert ask(c, worker, text_of(why)).is_whole and ask(c, worker, text_of(why)).is_whole
    said_once("kv_remote", [(worker, why) for worker, (_, why, *_) in zip(workers, cases)])
    in_threads([worker.stop for worker in workers])


def urls_of_another_kind():
    with Cluster() as c, Servers(c.dir) as servers, Redis() as single:
        certificate = redis_server.certificate(c.dir, "store")
        for server in servers.all:
            user(server, "few", "baton", *CACHE)
        with Redis(tls=certificate) as tls:
            refused(c, [(f"redis://127.0.0.1:{servers.all[0].port}", "part of a cluster: use redis+cluster://"),
                        (f"redis+cluster://127.0.0.1:{single.port}", "not part of a cluster: use redis://"),
                        (servers.url.replace("://", "://few:pw@"), "'cluster|slots'"),
                        (f"rediss://127.0.0.1:{single.port}", "if this port has no TLS, use redis://"),
                        (f"redis://127.0.0.1:{tls.port}", "if this port has TLS, use rediss://")])
            refused(c, [(f"rediss://localhost:{tls.port}", "hostname mismatch")], kv__remote_ca=certificate[0])
        said_once("state_store", [(c.router(state__url=url), why) for url, why in (
            (f"redis+cluster://127.0.0.1:{single.port}", "not part of a cluster: use redis://"),
            (servers.url.replace("://", "://few:pw@"), "'cluster|slots'"))])


def users_who_lack_a_permission():
    with Cluster() as c, Redis("--requirepass", "root") as plain, Redis() as store:
        user(store, "others", "other", "+@all")
        for lacks in ("strlen", "getrange", "set", "unlink"):
            user(store, "no-" + lacks, "baton", *(word for word in CACHE if word != "+" + lacks))
        user(store, "enough", "baton", *CACHE)
        user(store, "state", "baton", *STATE)
        refused(c, [(f"redis://127.0.0.1:{plain.port}", "the server wants a password"),
                    (f"redis://others:pw@127.0.0.1:{store.port}", "access one of the keys"),
                    *((f"redis://no-{lacks}:pw@127.0.0.1:{store.port}", f"'{lacks}'") for lacks in
                      ("strlen", "getrange", "set", "unlink"))])
        worker = worker_of(c, f"redis://enough:pw@127.0.0.1:{store.port}", **SIM)
        until("what the manual names is not enough", lambda: lines(worker, "kv_remote_up") == 1)
        until("the test leaves a value", lambda: not store.keys())
        said_once("state_store", [(c.router(state__url=f"redis://others:pw@127.0.0.1:{store.port}"), "access one of the keys")])
        router = c.router(state__url=f"redis://state:pw@127.0.0.1:{store.port}")
        until("what the manual names is not enough", lambda: lines(router, "state_store_up") == 1)


def a_server_that_may_only_be_read():
    with Cluster() as c, Redis() as primary, Redis("--replicaof", "127.0.0.1", str(primary.port)) as replica:
        until("the replica does not follow", lambda: b"master_link_status:up" in replica("INFO", "replication"))
        refused(c, [(f"redis://127.0.0.1:{replica.port}", "read only replica")])


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Answers as Amazon does for a bucket of another region."""

    def do_HEAD(self):
        self.send_response(301)
        self.send_header("x-amz-bucket-region", "eu-west-1")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def buckets_that_are_not_there():
    with Cluster() as c, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        refused(c, [(f"s3://kv/x?endpoint=http://127.0.0.1:{elsewhere.server_port}",
                     "the bucket is in region eu-west-1, the URL says us-east-1")])
        elsewhere.shutdown()
        for kind in [Moto] * has_moto() + [Rclone] * has_rclone():
            with kind() as store:
                refused(c, [(url, why, {"kv__remote_login": login_file(c, login)}) for url, login, why in (
                    (store.url.replace("kv-store", "none"), store.login, "HTTP status 404, NoSuchBucket"),
                    (store.url, other_secret(store.login), "HTTP status 403"))])


if __name__ == "__main__":
    redis_server.want()
    main([urls_of_another_kind, users_who_lack_a_permission, a_server_that_may_only_be_read, buckets_that_are_not_there], at_once=4)
