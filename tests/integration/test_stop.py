# SPDX-License-Identifier: Apache-2.0
"""How daemons stop: lame duck, drain, exit; a second signal; and batonctl drain and undrain of both kinds."""
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

from cluster import BUILD, Cluster, fetch, main, patience

LONG = "Tell me about the harbour. " * 20


def ctl(daemon, *arguments):
    return subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", daemon.cluster.key, "--admin",
                           f"127.0.0.1:{daemon.admin}", *arguments], capture_output=True, text=True, timeout=patience(30))


def until(claim, what, seconds=15):
    end = time.monotonic() + patience(seconds)
    while not claim():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def readiness(daemon):
    return fetch(daemon.http, "GET", "/readyz")[0]


def is_refusing(daemon):
    try:
        socket.create_connection(("127.0.0.1", daemon.http), timeout=5).close()
        return False
    except ConnectionRefusedError:
        return True


def ask_whole(c, daemon):
    """Opens a fresh connection: status, headers, body."""
    return fetch(daemon.http, "POST", "/v1/messages", c.body("hello", max_tokens=8), {"content-type": "application/json"})


def frames_of(sock, seconds):
    """The HTTP/2 frames that arrive: (type, flags, stream, payload)."""
    data, end = b"", time.monotonic() + seconds
    while True:
        while len(data) >= 9:
            length = int.from_bytes(data[:3], "big")
            if len(data) < 9 + length:
                break
            yield data[3], data[4], int.from_bytes(data[5:9], "big") & 0x7FFFFFFF, data[9:9 + length]
            data = data[9 + length:]
        sock.settimeout(max(0.01, end - time.monotonic()))
        try:
            more = sock.recv(65536)
        except TimeoutError:
            return
        if not more:
            return
        data += more


def h2_open(port):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    return sock


def h2_get(sock, stream, path=b"/livez"):
    block = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x01\x01a"
    sock.sendall(len(block).to_bytes(3, "big") + b"\x01\x05" + stream.to_bytes(4, "big") + block)


def h2_answer(sock, stream, seconds=3):
    """Whether the stream has its answer, and whether a GOAWAY came."""
    is_answered = is_told = False
    for kind, flags, at, _ in frames_of(sock, patience(seconds)):
        is_answered = is_answered or (at == stream and kind in (0, 1) and flags & 1)
        is_told = is_told or kind == 7
        assert kind != 3, "reset"
        if is_answered and is_told:
            break
    return is_answered, is_told


def serves_while_lame_duck(pick):
    with Cluster() as c:
        settings = {"stop__lame_duck": "3s", "http__h2c": "yes"}
        c.router(**(settings if pick == "router" else {}))
        c.worker("decode", **(settings if pick == "worker" else {}))
        c.wait_ready(decode=1)
        daemon = c.routers[0] if pick == "router" else c.workers[0]
        idle = http.client.HTTPConnection("127.0.0.1", daemon.http, timeout=patience(30))
        idle.request("GET", "/livez")
        answer = idle.getresponse()
        answer.read()
        assert answer.status == 200 and answer.getheader("connection") is None
        assert readiness(daemon) == 200
        old = h2_open(daemon.http)
        h2_get(old, 1)
        assert h2_answer(old, 1, 1) == (True, False)
        began = time.monotonic()
        daemon.kill(signal.SIGTERM)
        until(lambda: readiness(daemon) == 503, "/readyz is 503")
        assert time.monotonic() - began < patience(2)  # of 3 s in which it still accepts
        assert any(kind == 7 for kind, *_ in frames_of(old, 1)), "an HTTP/2 connection hears of it at once"
        n = 0
        while time.monotonic() - began < 2:
            status, headers, body = ask_whole(c, daemon)
            assert status == 200, (status, body)
            assert headers["connection"] == "close", headers
            assert json.loads(body)["content"], body
            n += 1
        assert n > 0
        idle.request("GET", "/livez")  # on the connection that was there before
        answer = idle.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        fresh = h2_open(daemon.http)
        h2_get(fresh, 1)
        assert h2_answer(fresh, 1) == (True, True)
        assert daemon.process.poll() is None
        until(lambda: is_refusing(daemon), "it listens no more")
        assert daemon.process.wait(patience(10)) == 0
        assert 2.9 < time.monotonic() - began < patience(8), time.monotonic() - began


def router_serves_while_lame_duck():
    serves_while_lame_duck("router")


def worker_serves_while_lame_duck():
    serves_while_lame_duck("worker")


def no_request_fails_when_a_balancer_watches():
    """Two routers, and a client that asks the first ready one: while one of them restarts no request is refused."""
    with Cluster() as c:
        a = c.router(stop__lame_duck="4s")
        b = c.router(stop__lame_duck="4s")
        c.worker("decode", link__routers=[f"127.0.0.1:{a.link}", f"127.0.0.1:{b.link}"])
        c.wait_ready(decode=1)
        until(lambda: not is_refusing(b) and readiness(b) == 200, "the second router has the worker")
        ready, failures, n, is_over = [a, b], [], [0], threading.Event()

        def watch():
            while not is_over.is_set():
                for router in (a, b):
                    try:
                        is_up = readiness(router) == 200
                    except OSError:
                        is_up = False
                    if is_up and router not in ready:
                        ready.append(router)
                    elif not is_up and router in ready:
                        ready.remove(router)
                time.sleep(0.3)

        def ask():
            while not is_over.is_set():
                try:
                    status = ask_whole(c, ready[0])[0]
                except (OSError, http.client.HTTPException) as e:
                    status = repr(e)
                n[0] += 1
                if status != 200:
                    failures.append(status)

        threads = [threading.Thread(target=t) for t in (watch, ask, ask)]
        for t in threads:
            t.start()
        time.sleep(0.7)
        assert a.stop() == 0
        time.sleep(0.5)
        is_over.set()
        for t in threads:
            t.join()
        assert not failures and n[0] > 10, (failures[:3], len(failures), n)


def a_second_signal_ends_the_lame_duck():
    with Cluster() as c:
        router = c.router(stop__lame_duck="60s")
        worker = c.worker("decode", stop__lame_duck="60s")
        c.wait_ready(decode=1)
        for daemon in (worker, router):
            daemon.kill(signal.SIGTERM)
            until(lambda: readiness(daemon) == 503, "lame duck")
            daemon.kill(signal.SIGTERM)
            assert daemon.process.wait(patience(5)) == 0, daemon.tail()


def answers_that_run_are_finished():
    """A stream that began before the signal outlives the lame-duck time."""
    with Cluster() as c:
        router = c.router(stop__lame_duck="300ms", stop__drain_timeout="30s")
        c.worker("decode")
        c.wait_ready(decode=1)
        stream = c.stream(LONG, max_tokens=400, ignore_eos=True)
        router.kill(signal.SIGTERM)
        answer = stream.finish()
        assert answer.is_whole, (answer.error, answer.names[-3:])
        assert router.process.wait(patience(10)) == 0


def a_drain_finishes_requests_that_wait():
    """A worker drains while its request waits for blocks from another worker, which stands still until then."""
    text, got = "Tell me about the harbour. " * 60, []
    with Cluster() as c:
        c.router()
        owner = c.worker("decode", link__heartbeat="10s")
        worker = c.worker("decode", link__heartbeat="10s", link__peers=f"127.0.0.1:{owner.link}", cache__prefix_fetch="always")
        c.wait_ready(decode=2)
        c.ask(text, port=owner.http, max_tokens=1)
        until(lambda: worker.metric("baton_peer_blocks_known") > 0, "the blocks are not known")
        owner.kill(signal.SIGSTOP)
        asker = threading.Thread(target=lambda: got.append(c.ask(text, port=worker.http, max_tokens=8)))
        asker.start()
        until(lambda: worker.status()["tasks"] == 1, "the request has not arrived")
        assert ctl(worker, "drain").returncode == 0
        until(lambda: readiness(worker) == 503, "it does not drain")
        until(lambda: worker.status()["waiting"] == 1, "the request does not wait")
        assert worker.status()["running"] == 0
        assert fetch(worker.http, "POST", "/v1/messages", c.body("hello"), {"content-type": "application/json"})[0] == 503
        owner.kill(signal.SIGCONT)
        asker.join()
        assert got and got[0].is_whole and got[0].serving["transferred"] > 0, got


def batonctl_drains_a_router_and_takes_it_back():
    with Cluster() as c:
        router = c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        assert ctl(router, "drain").returncode == 0
        assert readiness(router) == 503 and router.status()["draining"]
        status, headers, _ = ask_whole(c, router)
        assert (status, headers["connection"]) == (200, "close")
        out = ctl(router, "drain", "--wait", "--timeout", "10s")
        assert out.returncode == 0, out.stderr
        assert ctl(router, "undrain").returncode == 0
        assert readiness(router) == 200 and not router.status()["draining"]
        assert "connection" not in ask_whole(c, router)[1]
        assert ctl(router, "drain").returncode == 0
        assert router.stop() == 0


def batonctl_drains_a_worker_and_takes_it_back():
    with Cluster() as c:
        c.router()
        worker = c.worker("decode")
        c.wait_ready(decode=1)
        assert ctl(worker, "drain", "--wait").returncode == 0
        assert readiness(worker) == 503
        until(lambda: not c.routers[0].status()["workers"][0]["usable"], "the router sees it")
        assert ctl(worker, "undrain").returncode == 0
        until(lambda: readiness(worker) == 200, "it is back")
        c.wait_ready(decode=1)
        assert c.ask("hello").is_whole


if __name__ == "__main__":
    main([router_serves_while_lame_duck, worker_serves_while_lame_duck, no_request_fails_when_a_balancer_watches,
          a_second_signal_ends_the_lame_duck, answers_that_run_are_finished,
          a_drain_finishes_requests_that_wait, batonctl_drains_a_router_and_takes_it_back,
          batonctl_drains_a_worker_and_takes_it_back])
