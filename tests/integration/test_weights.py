#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One copy of the packed weights for the workers of a host (engine.share_weights): memory, bits, restarts, a maker that is
killed, two that start together, strangers at the socket and a socket that lies."""
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, MODEL, Cluster, main, patience  # noqa: E402


def model(c):
    """About 40 MB in Q8_0, with the vocabulary of the bundled model."""
    path = os.path.join(c.dir, "model.gguf")
    subprocess.run([os.path.join(BUILD, "baton-model"), "make", "--layers", "6", "--hidden", "512", "--heads", "8", "--ffn", "2048",
                    "--type", "Q8_0", "--vocab-from", MODEL, path], check=True, stdout=subprocess.DEVNULL)
    return path


def settings(path, share="yes"):
    return {"model__path": path, "engine__share_weights": share, "kv__memory": "16MiB", "engine__tune": "off"}


def weights_log(worker):
    with open(worker.log_path, encoding="utf-8") as f:
        return [line for line in f if '"event":"weights' in line]


def wait_shared(worker, memory):
    """Waits for the line of the worker's latest start."""
    end = time.monotonic() + patience(30)
    while time.monotonic() < end:
        assert worker.process.poll() is None, worker.tail()
        for line in weights_log(worker)[worker.n_seen:]:
            worker.n_seen = len(weights_log(worker))
            assert f'"memory":"{memory}"' in line, line
            return
        time.sleep(0.02)
    raise AssertionError(worker.tail())


def worker(c, role, path, memory, **more):
    w = c.worker(role, **settings(path, **more))
    w.n_seen = 0
    wait_shared(w, memory)
    return w


def weights_kb(w):
    """Proportional memory of the weights' mapping: pages that several processes map count in parts."""
    with open(f"/proc/{w.process.pid}/smaps", encoding="utf-8") as f:
        parts = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", f.read())
    return sum(int(re.search(r"^Pss:\s+(\d+)", p, re.M).group(1)) for p in parts if "baton-weights" in p.splitlines()[0])


def memory_and_bits():
    with Cluster() as c:
        path = model(c)
        c.router()
        text = "The relay runs on " * 20
        body = {"max_tokens": 24, "model": "model"}
        prefill = worker(c, "prefill", path, "shared: packed")
        c.wait_ready(prefill=1)
        shared = c.ask(text, port=prefill.http, **body).text  # pages are mapped as they are read
        alone_kb = weights_kb(prefill)
        assert alone_kb > 20000, alone_kb
        began = time.monotonic()
        decode = worker(c, "decode", path, "shared: mapped")
        took = time.monotonic() - began
        c.wait_ready(prefill=1, decode=1)
        assert prefill.status()["weights_shared"] and decode.status()["weights_shared"]
        assert c.ask(text, **body).text == shared
        assert c.ask(text, port=decode.http, **body).text == shared
        both_kb = weights_kb(prefill) + weights_kb(decode)
        print(f"weights of one {alone_kb} KB, of both {both_kb} KB; the second worker mapped them {took:.2f} s after its start")
        assert both_kb < 1.15 * alone_kb, (alone_kb, both_kb)

        # the maker is killed: the other one has all it needs, and gives it to the next life of the maker
        prefill.kill(signal.SIGKILL)
        assert c.ask(text, port=decode.http, **body).text == shared
        prefill.start()
        wait_shared(prefill, "shared: mapped")
        c.wait_ready(prefill=1, decode=1)
        assert c.ask(text + "again", **body).is_whole

        private = worker(c, "decode", path, "private", share="no")
        c.wait_ready(prefill=1, decode=2)
        assert c.ask(text, port=private.http, **body).text == shared
        assert not private.status()["weights_shared"]


def both_start_together():
    with Cluster() as c:
        path = model(c)
        c.router()
        two = [c.worker("decode", **settings(path)), c.worker("decode", **settings(path))]
        c.wait_ready(decode=2)
        states = sorted(re.search('"memory":"([^"]*)"', weights_log(w)[0]).group(1) for w in two)
        assert states == ["shared: mapped", "shared: packed"], states


def strangers_get_nothing():
    with Cluster() as c:
        path = model(c)
        c.router()
        w = worker(c, "decode", path, "shared: packed")
        name, = glob.glob(os.path.join(c.dir, "weights-*-*"))
        for hello in (b"", b"x", b"BATONWT1" + bytes(32), b"BATONWT1" + bytes(400)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(patience(5))
                s.connect(name)
                s.send(hello)
                answer = s.recv(1000)
                assert len(answer) in (0, 64), answer
                if answer:  # it asks for the key
                    s.send(bytes(32))
                    data, control, _, _ = s.recvmsg(100, 1000)
                    assert data == b"" and not control, (data, control)
        # a silent stranger costs the next one a second at most
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            silent.connect(name)
            worker(c, "decode", path, "shared: mapped")
        w.stop()


def a_socket_that_lies():
    """Something without the key sits where a worker would: it is left alone, and the weights are packed."""
    with Cluster() as c, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as liar:
        path = model(c)
        c.router()
        first = worker(c, "decode", path, "shared: packed")
        name = glob.glob(os.path.join(c.dir, "weights-*-*"))[0]
        first.stop()
        assert not os.path.exists(name)
        liar.bind(name.rsplit("-", 1)[0] + "-1")
        liar.listen(8)
        second = c.worker("decode", **settings(path))
        second.n_seen = 0
        conn, _ = liar.accept()
        conn.recv(100)
        conn.send(bytes(64))
        with conn:
            wait_shared(second, "shared: packed")


def model_with_head(c):
    path = os.path.join(c.dir, "mtp.gguf")
    keys = ("full_attention_interval=2", "ssm.conv_kernel=4", "ssm.inner_size=64", "ssm.state_size=16", "ssm.time_step_rank=2",
            "ssm.group_count=1", "nextn_predict_layers=1")
    subprocess.run([os.path.join(BUILD, "baton-model"), "make", "--arch", "qwen35", "--layers", "3", "--hidden", "256", "--heads", "8",
                    "--kv-heads", "4", "--head-dim", "32", "--ffn", "1024", "--type", "Q8_0",
                    *(word for key in keys for word in ("--set", key)), "--vocab-from", MODEL, path],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def headed(c, path, memory, head, **more):
    """A worker, and the bytes of shared weights that it packed or mapped."""
    w = c.worker("decode", **settings(path), **more)
    w.n_seen = 0
    wait_shared(w, memory)
    said = re.findall('"event":"mtp_loaded".*"memory":"([a-z]*)"', w.tail(1000))
    assert said == ([head] if head else []), w.tail(30)
    return w, int(re.search('"bytes":([0-9]*)', weights_log(w)[0]).group(1))


def heads_are_shared():
    """The MTP head's weights lie in the same memory. A worker without the head maps the others all the same, and a head
    that the first worker left out is private."""
    drafting = {"sched__speculate": "always", "sched__draft_memory": "1MiB"}
    answers, sizes = [], []
    for orders in ((("shared: packed", "shared", drafting), ("shared: mapped", "shared", drafting),
                    ("shared: mapped", "", {"sched__mtp": "no"})),
                   (("shared: packed", "", {"sched__mtp": "no"}), ("shared: mapped", "private", drafting))):
        with Cluster() as c:
            path = model_with_head(c)
            c.router()
            workers = [headed(c, path, memory, head, **more) for memory, head, more in orders]
            c.wait_ready(decode=len(workers))
            answers += [c.ask("A fox and a hare", port=w.http, max_tokens=30, model="mtp").text for w, _ in workers]
            time.sleep(0.5)
            for (w, n), (_, head, _) in zip(workers, orders):
                assert (w.status()["drafts"]["mtp"]["drafted"] > 0) == (head != ""), w.status()["drafts"]
                assert w.status()["weights_shared"]
                sizes.append(n)
    assert len(set(answers)) == 1 and answers[0], answers
    whole, mapped, part, part_alone, late = sizes
    assert whole == mapped and part == part_alone == late and whole - part > 256 * (512 + 3 * 1024), sizes


if __name__ == "__main__":
    main([heads_are_shared, memory_and_bits, both_start_together, strangers_get_nothing, a_socket_that_lies])
