# SPDX-License-Identifier: Apache-2.0
"""Workers die, stop or refuse; clients hang up.  No request hangs, nothing leaks, no token is wrong.

The simulated engine makes phases long enough to be hit.  Its tokens depend on seed, position and previous token only, so
an undisturbed run gives the expected answer.  It checks its KV in every step.
"""
import random
import signal
import time

from cluster import Cluster, in_threads, main, patience

PROMPT = "The prefill worker reads the prompt and the decode worker writes the answer. " * 12
SIM = {"engine__kind": "sim", "engine__sim_prefill_token": "1500us", "engine__sim_decode_seq": "3ms", "engine__sim_step": "2ms",
       "engine__sim_answer_tokens": "100000", "sched__chunk_tokens": "64"}
ANSWER = 240  # tokens: longer than the time that a busy machine takes to hurt a worker in mid-answer


def start(c, prefill=1, decode=1, router=None, **settings):
    c.router(**(router or {}))
    for _ in range(prefill):
        c.worker("prefill", **{**SIM, **settings})
    for _ in range(decode):
        c.worker("decode", **{**SIM, **settings})
    c.wait_ready(prefill=prefill, decode=decode)


def reference(c, prompt=PROMPT, max_tokens=ANSWER):
    return c.ask(prompt, port=c.workers[0].http, max_tokens=max_tokens, temperature=1, seed=3).text


def disturbed(c, hurt, after_tokens, prompt=PROMPT, max_tokens=ANSWER):
    """Sends a request and calls hurt() after a number of deltas (0: right after the request was sent)."""
    box = {}

    def ask():
        stream = c.stream(prompt, max_tokens=max_tokens, temperature=1, seed=3)
        assert stream.status == 200, stream.response.read()
        n, text = 0, ""
        for name, data in stream:
            if name == "error":
                raise AssertionError(data)
            if name == "content_block_delta":
                text += data["delta"]["text"]
                n += 1
                if n == after_tokens:
                    hurt()
            if name == "message_delta":
                box["serving"] = data["usage"].get("baton", {})
        return text

    def hurt_early():
        if after_tokens == 0:
            time.sleep(patience(0.25))
            hurt()

    text, _ = in_threads([ask, hurt_early])
    return text, box.get("serving", {})


def busy(workers):
    """The worker that runs a request; workers report their load every 100 ms."""
    until = time.monotonic() + patience(5)
    while time.monotonic() < until:
        for worker in workers:
            if worker.process.poll() is None and worker.status()["tasks"] > 0:
                return worker
    raise AssertionError("no worker is busy")


def prefill_dies_while_it_reads():
    with Cluster() as c:
        start(c)
        want = reference(c, PROMPT)
        text, serving = disturbed(c, c.workers[0].kill, 0, "x " + PROMPT)
        assert text == c.ask("x " + PROMPT, port=c.workers[1].http, max_tokens=ANSWER, temperature=1, seed=3).text
        assert want
        c.assert_quiet()


def prefill_dies_after_the_first_token():
    with Cluster() as c:
        start(c)
        text, serving = disturbed(c, c.workers[0].kill, 1)
        assert text == c.ask(PROMPT, port=c.workers[1].http, max_tokens=ANSWER, temperature=1, seed=3).text
        c.assert_quiet()


def decode_dies_in_mid_answer_and_another_goes_on():
    with Cluster() as c:
        start(c, decode=2)
        want = reference(c)

        text, serving = disturbed(c, lambda: busy(c.workers[1:]).kill(), 10)
        assert text == want, (text, want)
        assert serving["redispatched"] >= 1, serving
        c.assert_quiet()


def decode_dies_and_the_prefill_worker_finishes():
    with Cluster() as c:
        start(c)
        want = reference(c)
        text, _ = disturbed(c, c.workers[1].kill, 10)
        assert text == want
        c.assert_quiet()


def decode_dies_while_prefill_reads():
    with Cluster() as c:
        start(c, decode=2)
        want = reference(c)
        text, _ = disturbed(c, c.workers[1].kill, 0)
        assert text == want
        c.assert_quiet()


def a_stopped_worker_is_given_up():
    """SIGSTOP: sockets stay open, so only missing heartbeats show it."""
    with Cluster() as c:
        start(c, decode=2)
        want = reference(c)

        text, _ = disturbed(c, lambda: busy(c.workers[1:]).kill(signal.SIGSTOP), 10)
        assert text == want
        for worker in c.workers:
            worker.kill(signal.SIGCONT)
        c.wait_ready(prefill=1, decode=2)
        assert c.ask(PROMPT, max_tokens=ANSWER, temperature=1, seed=3).text == want
        c.assert_quiet()


def a_restarted_worker_comes_back():
    with Cluster() as c:
        start(c)
        want = c.ask(PROMPT, max_tokens=ANSWER, temperature=1, seed=3).text
        for worker in c.workers:
            worker.kill()
            worker.start()
            c.wait_ready(prefill=1, decode=1)
            assert c.ask(PROMPT, max_tokens=ANSWER, temperature=1, seed=3).text == want
        c.assert_quiet()


def all_workers_die_and_the_client_hears_of_it():
    with Cluster() as c:
        start(c, router={"queue__timeout": "500ms", "queue__resume_timeout": "500ms"})
        stream = c.stream(PROMPT, max_tokens=200)
        names = []
        for name, data in stream:
            names.append(name)
            if names.count("content_block_delta") == 5:
                for worker in c.workers:
                    if worker.process.poll() is None:
                        worker.kill()
        assert names[-1] == "error", names[-3:]


def clients_go_away_at_any_moment():
    chance = random.Random(11)
    with Cluster() as c:
        start(c)
        before = [d.n_descriptors() for d in c.routers + c.workers]

        def one(i):
            stream = c.stream(f"{i} " + PROMPT, max_tokens=200, temperature=1, seed=i)
            until = time.monotonic() + chance.random() * patience(1.2)
            for _ in stream:
                if time.monotonic() > until:
                    break
            stream.close()

        for _ in range(4):
            in_threads([lambda i=i: one(i) for i in range(12)])
        c.assert_quiet()
        time.sleep(0.5)
        after = [d.n_descriptors() for d in c.routers + c.workers]
        assert all(a <= b + 6 for a, b in zip(after, before)), (before, after)
        assert c.ask(PROMPT, max_tokens=20).is_whole


def no_room_for_a_grant():
    """The decode worker's pool holds one prompt or two: it refuses offers, and every answer is still right."""
    with Cluster() as c:
        c.router()
        c.worker("prefill", **SIM)
        c.worker("decode", **SIM, kv__memory="1MiB")
        c.wait_ready(prefill=1, decode=1)
        want = [c.ask(f"{i} " + PROMPT, port=c.workers[0].http, max_tokens=30, temperature=1, seed=3).text for i in range(6)]
        got = in_threads([lambda i=i: c.ask(f"{i} " + PROMPT, max_tokens=30, temperature=1, seed=3).text for i in range(6)])
        assert got == want, (got, want)
        c.assert_quiet()


def overload_is_refused_with_529():
    with Cluster() as c:
        start(c, router={"slo__ttft": "100ms", "slo__itl": "1s", "queue__max": "2", "queue__timeout": "300ms"})
        statuses = []

        def one(i):
            stream = c.stream(f"{i} " + PROMPT, max_tokens=5)
            statuses.append((stream.status, stream.response.getheader("retry-after")))
            body = stream.response.read()
            assert stream.status == 200 or b"overloaded_error" in body, body

        in_threads([lambda i=i: one(i) for i in range(20)])
        refused = [s for s in statuses if s[0] == 529]
        assert refused and all(int(s[1]) >= 1 for s in refused), statuses
        assert any(s[0] == 200 for s in statuses), statuses
        c.assert_quiet()


def a_drained_worker_finishes_and_takes_no_more():
    with Cluster() as c:
        start(c, decode=2)
        want = reference(c, max_tokens=100)

        def hurt():
            worker = busy(c.workers[1:])
            worker.is_hurt = True
            worker.kill(signal.SIGTERM)

        text, serving = disturbed(c, hurt, 5, max_tokens=100)
        assert text == want
        drained = next(w for w in c.workers[1:] if getattr(w, "is_hurt", False))
        assert drained.process.wait(patience(10)) == 0
        assert c.ask(PROMPT, max_tokens=10).is_whole


def a_wrong_cluster_key_is_turned_away():
    with Cluster() as c, Cluster() as other:
        c.router()
        other.routers = c.routers
        stranger = other.worker("decode", **SIM)
        c.worker("decode", **SIM)
        c.wait_ready(decode=1)
        time.sleep(0.5)
        assert len(c.routers[0].status()["workers"]) == 1
        stranger.stop()
        other.routers = []


main([prefill_dies_while_it_reads, prefill_dies_after_the_first_token, decode_dies_in_mid_answer_and_another_goes_on,
      decode_dies_and_the_prefill_worker_finishes, decode_dies_while_prefill_reads, a_stopped_worker_is_given_up,
      a_restarted_worker_comes_back, all_workers_die_and_the_client_hears_of_it, clients_go_away_at_any_moment,
      no_room_for_a_grant, overload_is_refused_with_529, a_drained_worker_finishes_and_takes_no_more,
      a_wrong_cluster_key_is_turned_away], at_once=2)
