#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-setup: the daemons accept its files and serve with them. It overwrites no file, and asks on a terminal."""
import configparser
import contextlib
import os
import pty
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, MODEL, Stream, main, patience  # noqa: E402

SHORT_TOO = ["--set", "placement.local_prefill_time=0", "--set", "placement.local_prefill_tokens=0"]
SETUP = os.path.join(BUILD, "baton-setup")


def setup(*words, status=0, environment=None):
    done = subprocess.run([SETUP, *words], capture_output=True, text=True, timeout=patience(60), check=False,
                          stdin=subprocess.DEVNULL, env=environment)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def read_conf(folder, name):
    conf = configparser.ConfigParser()
    with open(os.path.join(folder, name)) as f:
        conf.read_file(f)
    return conf


@contextlib.contextmanager
def daemons(folder, *names):
    """The daemons of these files, with short stops, and a router that hands short prompts over too."""
    running = []
    try:
        for name in names:
            program = os.path.join(BUILD, "baton-" + name.split("-")[0].split(".")[0])
            with open(os.path.join(folder, name + ".log"), "wb") as log:
                running.append(subprocess.Popen([program, "--config", os.path.join(folder, name), "--set", "stop.lame_duck=0",
                                                 "--set", "stop.drain_timeout=1s",
                                                 *(SHORT_TOO if name == "router.conf" else [])], stdout=log, stderr=log))
        yield running
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(patience(30))


def wait_ready(folder, port, running):
    until = time.monotonic() + patience(60)
    while True:
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200:
                return
        for process in running:
            assert process.poll() is None, logs(folder)
        assert time.monotonic() < until, logs(folder)
        time.sleep(0.1)


def logs(folder):
    return {name: open(os.path.join(folder, name)).read()[-2000:] for name in os.listdir(folder) if name.endswith(".log")}


def serve(threads, *files):
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "deep", "etc")
        said = setup("--role", "all", "--model", MODEL, "--dir", folder, "--kv-memory", "128MiB", "--threads", threads)
        assert "checked: the daemons accept these files" in said, said
        assert sorted(os.listdir(folder)) == sorted([*files, "cluster.key"])
        assert os.stat(os.path.join(folder, "cluster.key")).st_mode & 0o777 == 0o600
        for name in files:
            text = open(os.path.join(folder, name)).read()
            lines = text.splitlines()
            for i, line in enumerate(lines):
                assert " = " not in line or line.startswith("#") or lines[i - 1].startswith("# "), (name, line)
        port = int(read_conf(folder, "router.conf")["http"]["listen"].split(":")[1])
        with daemons(folder, *files) as running:
            wait_ready(folder, port, running)
            body = {"model": "baton-demo", "max_tokens": 12, "messages": [{"role": "user", "content": "What is a KV cache? " * 20}]}
            until = time.monotonic() + patience(30)
            while True:  # the second worker may register later
                answer = Stream(port, body).finish()
                assert answer.is_whole and answer.text, (answer.error, logs(folder))
                if len(files) == 2 or answer.serving["transferred"] > 0 or time.monotonic() > until:
                    break
                body["messages"][0]["content"] = f"{time.monotonic()} " + body["messages"][0]["content"]
                time.sleep(0.2)
            return answer


def one_worker_serves():
    serve("1", "router.conf", "decode-0.conf")


def a_pair_hands_over():
    answer = serve("4", "router.conf", "prefill-0.conf", "decode-0.conf")
    assert answer.serving["transferred"] > 0, answer.serving


def nothing_is_overwritten():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "decode-0.conf")
        with open(path, "w") as f:
            f.write("mine\n")
        words = ["--role", "all", "--model", MODEL, "--dir", folder, "--kv-memory", "128MiB", "--threads", "1"]
        said = setup(*words, status=1)
        assert "overwrites nothing" in said and path in said, said
        assert os.listdir(folder) == ["decode-0.conf"] and open(path).read() == "mine\n"
        setup(*words, "--name", "b")
        key = open(os.path.join(folder, "cluster.key")).read()
        said = setup(*words, "--name", "c", status=1)
        assert "router.conf is there already" in said, said
        assert not os.path.exists(os.path.join(folder, "decode-c.conf"))
        # a second worker takes other ports than files name, though their daemons do not run, and keeps the key
        router = read_conf(folder, "router.conf")["link"]["listen"]
        setup("--role", "decode", "--router", router, "--model", MODEL, "--dir", folder, "--kv-memory", "64MiB", "--name", "c")
        assert open(os.path.join(folder, "cluster.key")).read() == key
        ports = [read_conf(folder, name)[section]["listen"] for name in ("decode-b.conf", "decode-c.conf", "router.conf")
                 for section in ("link", "http")]
        assert len(set(ports)) == len(ports), ports


def bare_router():
    """What setup writes where no file names a port."""
    with tempfile.TemporaryDirectory() as folder:
        setup("--role", "router", "--dir", folder)
        return read_conf(folder, "router.conf")


def a_bare_router_file_gets_a_drop_in():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "router.conf")
        with open(path, "w") as f:
            f.write("# the package's\n[http]\n  #listen = 127.0.0.1:8080\n#admin = 127.0.0.1:8081\n[link]\n;listen = 127.0.0.1:8090\n")
        wanted = [bare_router()]  # a port in a comment is not taken
        setup("--role", "router", "--dir", folder)
        wanted += [bare_router()]  # another process may have taken or left a port meanwhile
        assert "#listen" in open(path).read()
        router = read_conf(folder, "router.conf.d/setup.conf")
        for section, key in (("http", "listen"), ("http", "admin"), ("link", "listen")):
            assert router[section][key] in [conf[section][key] for conf in wanted], (section, key, router[section][key], wanted)
        assert "setup.conf is there already" in setup("--role", "router", "--dir", folder, status=1)
        # a worker leaves the ports that drop-ins name, though their daemons do not run
        os.mkdir(os.path.join(folder, "prefill-9.conf.d"))
        with open(os.path.join(folder, "prefill-9.conf.d", "a.conf"), "w") as f:
            f.write("[http]\nlisten = 127.0.0.1:8084\n")
        setup("--role", "decode", "--router", router["link"]["listen"], "--model", MODEL, "--dir", folder, "--kv-memory", "64MiB")
        worker = read_conf(folder, "decode-0.conf")
        taken = {"127.0.0.1:8084", router["http"]["listen"], router["http"]["admin"], router["link"]["listen"]}
        assert not taken & {worker["http"]["listen"], worker["http"]["admin"], worker["link"]["listen"]}, (taken, dict(worker["http"]))


def a_dry_run_writes_nothing():
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "etc")
        said = setup("--role", "router", "--dir", folder, "--dry-run")
        assert "==> " + folder + "/router.conf <==" in said and "[http]" in said, said
        assert not os.path.exists(folder)


def mistakes_are_named():
    with tempfile.TemporaryDirectory() as folder:
        for words, status, said in (
                (["--role", "king"], 2, "all, router, prefill or decode"), ([], 2, "give --role"),
                (["--role", "decode", "--model", MODEL], 1, "--router HOST:PORT"),
                (["--role", "all"], 1, "--model FILE.gguf"), (["--role", "all", "--model", "/nowhere"], 1, "/nowhere"),
                (["--role", "all", "--model", SETUP], 1, "baton-setup"),
                (["--role", "router", "--http", "0.0.0.0:80"], 1, "--api-keys"),
                (["--role", "router", "--start"], 2, "--start"), (["--role", "router", "--name", "a/b"], 2, "--name"),
                (["--role", "all", "--model", MODEL, "--kv-memory", "8000TiB"], 1, "refuses")):
            assert said in setup(*words, "--dir", os.path.join(folder, "etc"), status=status), words
        text = setup("--role", "prefill", "--router", "127.0.0.1:1", "--model", MODEL, "--dir", os.path.join(folder, "new"))
        assert "cluster.key is missing" in text, text
        own = os.path.join(folder, "own")  # as the package leaves it: a key of this host, of no cluster
        os.mkdir(own)
        subprocess.run([os.path.join(BUILD, "batonctl"), "new-cluster-key", os.path.join(own, "cluster.key")], check=True, stdout=subprocess.DEVNULL)
        text = setup("--role", "prefill", "--router", "127.0.0.1:1", "--model", MODEL, "--dir", own)
        shown = subprocess.run([os.path.join(BUILD, "batonctl"), "key", "show", os.path.join(own, "cluster.key")], capture_output=True, text=True,
                               check=True).stdout
        assert f"(key {shown.split('current ')[1][:8]})" in text and "batonctl join --replace here" in text, text


def a_terminal_is_asked():
    with tempfile.TemporaryDirectory() as folder:
        def typed(*lines):
            leader, follower = pty.openpty()
            process = subprocess.Popen([SETUP, "--dir", folder, "--kv-memory", "64MiB", "--threads", "1"], stdin=follower,
                                       stdout=follower, stderr=follower)
            os.close(follower)
            os.write(leader, "".join(line + "\n" for line in lines).encode())
            said = b""
            with contextlib.suppress(OSError):
                while True:
                    piece = os.read(leader, 4096)
                    if not piece:
                        break
                    said += piece
            os.close(leader)
            return process.wait(patience(30)), said.decode()

        status, said = typed("emperor", "all", "/nowhere", MODEL, "", "n")
        assert status == 1 and "nothing was written" in said and "One of: all" in said and "/nowhere" in said, said
        assert os.listdir(folder) == []
        status, said = typed("", MODEL, "", "y")
        assert status == 0 and "checked" in said, said
        assert sorted(os.listdir(folder)) == ["cluster.key", "decode-0.conf", "router.conf"]


if __name__ == "__main__":
    main([one_worker_serves, a_pair_hands_over, nothing_is_overwritten, a_bare_router_file_gets_a_drop_in, a_dry_run_writes_nothing,
          mistakes_are_named, a_terminal_is_asked])
