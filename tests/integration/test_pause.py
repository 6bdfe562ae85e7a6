# SPDX-License-Identifier: Apache-2.0
"""Daemons are stopped and continued (SIGSTOP, SIGCONT), like a migrated guest or a swapped process.  No request is
refused while a worker idles, learned speeds stay right, and every answer keeps its bits.

Pauses are shorter or longer than a link tolerates.
"""
import signal
import threading
import time

from cluster import IS_SLOW, Cluster, in_threads, main, patience

PROMPT = "The prefill worker reads the prompt and the decode worker writes the answer. " * 12
SIM = {"engine__kind": "sim", "engine__sim_prefill_token": "300us", "engine__sim_decode_seq": "1ms", "engine__sim_step": "2ms",
       "engine__sim_answer_tokens": "100000", "sched__chunk_tokens": "64"}
CLIENTS, MAX_TOKENS = 6, 40


def start(c, prefill=2, decode=2, heartbeat="500ms", **router):
    c.router(**{"slo__ttft": "500ms", "slo__itl": "1s" if IS_SLOW else "50ms", "queue__timeout": "10s", "link__heartbeat": heartbeat,
                "placement__local_prefill_time": "50ms", **router})
    for role, n in (("prefill", prefill), ("decode", decode)):
        for _ in range(n):
            c.worker(role, **SIM, link__heartbeat=heartbeat)
    c.wait_ready(prefill=prefill, decode=decode)


def fields(i):
    return {"max_tokens": MAX_TOKENS, "temperature": 1, "seed": i}


class Load:
    """Clients that send one request after another until they are stopped."""

    def __init__(self, c, n=CLIENTS):
        self.c, self.is_over, self.bad, self.n_answers, self.n = c, False, [], 0, n
        self.want = {i: c.ask(f"{i} " + PROMPT, port=c.workers[0].http, **fields(i)).text for i in range(n)}

    def client(self, i):
        while not self.is_over:
            stream = self.c.stream(f"{i} " + PROMPT, **fields(i))
            if stream.status != 200:
                self.bad.append((i, stream.status, stream.response.read()))
                continue
            answer = stream.finish()
            if answer.error is not None or not answer.is_whole:
                self.bad.append((i, answer.error, answer.names[-3:]))
            elif answer.text != self.want[i]:
                self.bad.append((i, "other bits", answer.text, self.want[i]))
            self.n_answers += 1

    def wait_for_answers(self, n=2 * CLIENTS):
        """Waits for so many more answers."""
        n_wanted, until = self.n_answers + n, time.monotonic() + patience(60)
        while self.n_answers < n_wanted:
            assert time.monotonic() < until, (self.n_answers, n_wanted, self.bad[:3])
            time.sleep(0.02)

    def learned_rates(self):
        """The workers' rates after some answers of each decode worker."""
        self.wait_for_answers(5 * CLIENTS)
        until = time.monotonic() + patience(30)
        while not all(worker.status()["transfer_bytes_per_s"] > 0 for worker in self.c.workers if worker.role == "decode"):
            assert time.monotonic() < until, "a decode worker gets no request"
            time.sleep(0.05)
        self.wait_for_answers(CLIENTS)
        return {worker.name: rates(worker) for worker in self.c.workers}

    def __enter__(self):
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(self.n)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def pause(workers, seconds):
    for worker in workers:
        worker.kill(signal.SIGSTOP)
    time.sleep(seconds)
    for worker in workers:
        worker.kill(signal.SIGCONT)


def rates(worker):
    status = worker.status()
    return status["decode_step_ms"], status["prefill_tokens_per_s"], status["transfer_bytes_per_s"]


def assert_rates(c, before, role, seconds=1):
    """A worker's step time and prefill speed stay within a factor of four of the earlier ones."""
    until = time.monotonic() + patience(seconds)
    for worker in c.workers:
        if worker.role != role:
            continue
        while True:
            now = rates(worker)
            if all(1 / 4 < a / b < 4 for a, b in zip(now[:2], before[worker.name][:2]) if b > 0):
                break
            assert time.monotonic() < until, (worker.name, before[worker.name], now)
            time.sleep(0.1)


def both_decode_workers_pause_in_mid_answer():
    with Cluster() as c:
        start(c)
        with Load(c) as load:
            before = load.learned_rates()
            for _ in range(2):
                pause(c.workers[2:], 2)
                assert_rates(c, before, "decode")
                c.wait_ready(prefill=2, decode=2)
                load.wait_for_answers()
        assert not load.bad, load.bad[:3]
        assert load.n_answers >= 3 * CLIENTS, load.n_answers
        assert_rates(c, before, "decode")
        assert c.routers[0].metric("baton_router_refused_total") == 0
        c.assert_quiet()


def pauses_shorter_than_a_link_forgives():
    """Links stay up: the long step is the worker's own, and so is the speed that it learns from it."""
    with Cluster() as c:
        start(c, heartbeat="3s")
        with Load(c) as load:
            before = load.learned_rates()
            for workers in (c.workers[2:], c.workers[:2], c.workers, c.routers):
                pause(workers, 1)
                load.wait_for_answers()
        assert not load.bad, load.bad[:3]
        for role in ("prefill", "decode"):
            assert_rates(c, before, role)
        assert c.routers[0].metric("baton_router_refused_total") == 0
        c.assert_quiet()


def two_faults_at_once():
    with Cluster() as c:
        start(c)
        prefill, decode = c.workers[:2], c.workers[2:]
        with Load(c) as load:
            for killed, stopped in ((decode[0], decode[1]), (prefill[0], decode[1]), (decode[1], prefill[1]), (prefill[1], prefill[0])):
                load.wait_for_answers(CLIENTS)
                killed.kill()
                pause([stopped], 2)
                killed.start()
                c.wait_ready(prefill=2, decode=2)
        assert not load.bad, load.bad[:3]
        assert c.routers[0].metric("baton_router_refused_total") == 0
        c.assert_quiet()


def slow_workers_are_better_than_none():
    """No step ever keeps the objective: the worker reports that, and refuses nothing."""
    with Cluster() as c:
        start(c, prefill=1, decode=2, slo__itl="1ms", queue__timeout="1s")
        answers = in_threads([lambda i=i: c.ask(f"{i} " + PROMPT, **fields(i)) for i in range(8)])
        assert all(answer.is_whole for answer in answers)
        assert c.routers[0].metric("baton_router_refused_total") == 0
        c.assert_quiet()


def a_begun_stream_outlives_the_queue():
    """A worker dies, no other exists for longer than the queue's limit, and then one comes: the answer continues."""
    with Cluster() as c:
        start(c, prefill=0, decode=1, queue__timeout="500ms")
        want = c.ask(PROMPT, port=c.workers[0].http, max_tokens=400, temperature=1, seed=3).text
        stream, text, names = c.stream(PROMPT, max_tokens=400, temperature=1, seed=3), "", []
        for name, data in stream:
            names.append(name)
            assert name != "error", data
            if name == "content_block_delta":
                text += data["delta"]["text"]
            if names.count("content_block_delta") == 10 and name == "content_block_delta":
                c.workers[0].kill()
                time.sleep(1)
                c.workers[0].start()
        assert names[-1] == "message_stop" and text == want, (names[-3:], text, want)
        c.assert_quiet()


main([both_decode_workers_pause_in_mid_answer, pauses_shorter_than_a_link_forgives, two_faults_at_once,
      slow_workers_are_better_than_none, a_begun_stream_outlives_the_queue])
