# SPDX-License-Identifier: Apache-2.0
"""Rotation of the cluster key: under load, without an error, a changed bit or a cut link; then the old key is refused."""
import http.client
import os
import shutil
import subprocess
import threading
import time

from cluster import BUILD, Cluster, fetch, in_threads, main, patience

LONG = ("The relay hands the baton over: who reads the prompt, who writes the answer, and what moves between the two? " * 2).strip()


def ctl(daemon, *arguments, key=None):
    return subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", key or daemon.cluster.key, "--admin",
                           f"127.0.0.1:{daemon.admin}", *arguments], capture_output=True, text=True, timeout=patience(60))


def must(said):
    assert said.returncode == 0, (said.args, said.stdout, said.stderr)
    return said.stdout


def rotate(path):
    return must(subprocess.run([os.path.join(BUILD, "batonctl"), "key", "rotate", path], capture_output=True, text=True))


def wait_until(what, condition, seconds=30):
    until = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def reload_all(cluster):
    for daemon in cluster.routers + cluster.workers:
        must(ctl(daemon, "reload"))


def wait_up_to_date(cluster):
    """As an operator does before the next step: until each daemon says that no link is behind."""
    for daemon in cluster.routers + cluster.workers:
        wait_until(f"{daemon.name} has links that are behind", lambda: ctl(daemon, "key", "status").returncode == 0)


class Load:
    """Asks one new prompt after the other, from several threads, and keeps the answers."""

    def __init__(self, cluster):
        self.cluster, self.answers, self.errors, self.n, self.is_over = cluster, {}, [], 0, False
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work) for _ in range(3)]
        for thread in self.threads:
            thread.start()

    def work(self):
        while not self.is_over:
            with self.lock:
                i, self.n = self.n, self.n + 1
            text = f"{i}: {LONG} Number {i}."
            try:
                self.answers[text] = self.cluster.ask(text, max_tokens=24)
            except BaseException as e:  # noqa: B036 - the test fails with it
                self.errors.append(repr(e))
                return

    def wait_for(self, n_more):
        goal = len(self.answers) + n_more
        wait_until("no answers", lambda: len(self.answers) >= goal or self.errors, 120)
        assert not self.errors, self.errors

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors


def cut_links(cluster):
    return [line[:300] for d in cluster.routers + cluster.workers for line in open(d.log_path, errors="replace")
            if '"link_down"' in line or '"kv_connection_failed"' in line]


def rotate_under_load():
    with Cluster() as c:
        c.router()
        for role in ("prefill", "decode"):
            c.worker(role, kv__transport="tcp")
            c.worker(role)
        c.wait_ready(prefill=2, decode=2)
        router = c.routers[0]
        old = os.path.join(c.dir, "old.key")
        shutil.copy2(c.key, old)
        load = Load(c)
        load.wait_for(6)
        for step in ("next key is accepted", "new links use the new key", "not accepted any more"):
            said = rotate(c.key)
            assert step in said and "systemctl restart" in said, said
            said = ctl(router, "key", "status")
            assert said.returncode == 1 and "behind: the key file has other keys" in said.stdout, said
            reload_all(c)
            load.wait_for(4)
            wait_up_to_date(c)
            load.wait_for(4)
        load.end()
        handed_off = [a for a in load.answers.values() if a.serving.get("transferred", 0) > 0]
        assert len(handed_off) > len(load.answers) / 2, (len(handed_off), len(load.answers))
        assert cut_links(c) == [], cut_links(c)
        assert all(a.serving.get("redispatched", 0) == 0 for a in load.answers.values())
        assert os.stat(c.key).st_mode & 0o777 == 0o600
        lines = open(c.key).read().splitlines()
        assert len(lines) == 2 and lines[1] == "data " + open(old).read().strip(), lines

        # the same prompts again: cached blocks are found under the same hashes, and the bits are the same
        for text, answer in list(load.answers.items())[::4]:
            again = c.ask(text, max_tokens=24)
            assert again.text == answer.text and again.usage["output_tokens"] == answer.usage["output_tokens"], text
        assert c.ask(list(load.answers)[-1], max_tokens=24).usage["cache_read_input_tokens"] > 0

        # the old key opens nothing any more: not the admin port, not a link
        said = ctl(router, "status", key=old)
        assert said.returncode == 1 and "refuses the key" in said.stderr, said
        stranger = c.worker("decode", link__cluster_key=old)
        wait_until("the stranger is not refused", lambda: "is link.cluster_key the same on both sides" in open(stranger.log_path).read())
        assert len(router.status()["workers"]) == 4
        stranger.stop()
        c.workers.remove(stranger)
        # KV connections that were made with it have been replaced: their senders closed them between two transfers
        for event in ("kv_connection_retired", "kv_connection_closed"):
            wait_until(event, lambda: any(f'"{event}"' in open(d.log_path, errors="replace").read() for d in c.workers))
        c.assert_quiet()


def a_daemon_with_the_old_key_is_named_and_cut():
    with Cluster() as c:
        c.router()
        c.worker("decode")
        own = os.path.join(c.dir, "behind.key")
        shutil.copy2(c.key, own)
        c.worker("prefill", link__cluster_key=own)
        c.wait_ready(prefill=1, decode=1)
        router, decode = c.routers[0], c.workers[0]
        for step in range(3):
            rotate(c.key)
            for daemon in (router, decode):
                must(ctl(daemon, "reload"))
            said = None

            def is_named():
                nonlocal said
                said = ctl(router, "key", "status")
                return "prefill0: " in said.stdout and "<- behind" in said.stdout.split("prefill0: ")[1].splitlines()[0]
            if step < 2:
                wait_until("the worker is not named", is_named)
                assert said.returncode == 1 and "links are behind" in said.stdout, said
                assert len([w for w in router.status()["workers"] if w["usable"]]) == 2
        wait_until("the worker is not cut", lambda: len([w for w in router.status()["workers"] if w["usable"]]) == 1)
        assert "has none of the cluster keys" in open(router.log_path).read()
        # the whole file brings it back
        shutil.copy2(c.key, own)
        must(ctl(c.workers[1], "reload", key=own) if ctl(c.workers[1], "status", key=own).returncode == 0 else
             subprocess.run(["kill", "-HUP", str(c.workers[1].process.pid)], capture_output=True, text=True))
        c.wait_ready(prefill=1, decode=1)
        assert c.ask(LONG).is_whole


def a_link_that_is_down_is_unknown():
    with Cluster() as c:
        c.relay()
        router, peer = c.routers[0], c.workers[0]
        assert "up to date" in must(ctl(router, "key", "status"))
        wait_until("the workers do not meet", lambda: ctl(peer, "key", "status").returncode == 0)
        c.routers.remove(router)
        router.kill()

        def is_unknown():
            said = ctl(peer, "key", "status")
            return "the link is down  <- unknown" in said.stdout and said.returncode == 1
        wait_until("the link to the router is not unknown", is_unknown)


def streams_end_with_their_token():
    """Who watches with the former key's token watches no longer than it is valid."""
    with Cluster() as c:
        c.relay()
        daemons, former = [c.routers[0], c.workers[0]], c.admin_token()
        for _ in range(2):
            rotate(c.key)
            reload_all(c)
            wait_up_to_date(c)
        streams = []
        for daemon in daemons:
            connection = http.client.HTTPConnection("127.0.0.1", daemon.admin, timeout=patience(60))
            connection.request("GET", "/admin/events", headers={"authorization": f"Bearer {former}"})
            streams.append((connection, connection.getresponse()))
            assert streams[-1][1].status == 200 and streams[-1][1].readline()
        rotate(c.key)
        reload_all(c)
        for _, response in streams:
            until = time.monotonic() + patience(30)
            while response.readline():  # to the end, which comes
                assert time.monotonic() < until, "the stream goes on"
        c.assert_quiet()


def a_bad_file_changes_nothing():
    with Cluster() as c:
        c.relay()
        good = open(c.key).read()
        admin = c.admin_token()
        for bad in ("", good + "next 00\n", good + "next " + good, good + "former " + "1" * 64 + "\nnext " + "2" * 64 + "\n", good * 20):
            with open(c.key, "w") as f:
                f.write(bad)
            status, _, body = fetch(c.routers[0].admin, "POST", "/admin/reload", headers={"authorization": f"Bearer {admin}"})
            assert status != 200 and (b"cluster key" in body or b"current one" in body or b"refused" in body), (bad, body)
        with open(c.key, "w") as f:
            f.write(good)
        reload_all(c)
        assert c.ask(LONG).is_whole


main([rotate_under_load, a_daemon_with_the_old_key_is_named_and_cut, a_link_that_is_down_is_unknown,
      streams_end_with_their_token, a_bad_file_changes_nothing])
