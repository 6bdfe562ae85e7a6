#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A request of a higher class takes the seat of a running stream of a lower one.  The paused stream's connection lives on
pings, it goes on later at any worker, and its answer is the same as alone."""
import http.client
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, Stream, in_threads, main, patience  # noqa: E402

CLASSES = ["default priority=10", "low priority=0 may-be-paused=10min"]
WORDS = "The relay hands the baton over: who reads the prompt, who writes the answer, and what moves between the two? "
SIM = {"engine__kind": "sim", "engine__sim_answer_tokens": "100000", "sched__speculate": "off"}


class Low(threading.Thread):
    """A stream of the low class: its answer, and an event when it has begun."""

    def __init__(self, c, text, max_tokens, **fields):
        super().__init__()
        self.begun, self.error, self.names = threading.Event(), None, []
        self.stream = Stream(c.routers[0].http, c.body(text, max_tokens=max_tokens, **fields), {"baton-class": "low"})
        self.text, self.is_whole = "", False
        self.start()

    def run(self):
        try:
            assert self.stream.status == 200, self.stream.response.read()
            for name, data in self.stream:
                self.names.append(name)
                if name == "content_block_delta":
                    self.text += data["delta"].get("text", "")
                    self.begun.set()
                self.is_whole |= name == "message_stop"
        except Exception as e:  # noqa: B902 - the test raises it
            self.error = e
        self.begun.set()


def long_answer(c, text, max_tokens, seed, headers=None, begun=None):
    """A streamed answer of exactly so many tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", c.routers[0].http, timeout=patience(60))
    body = {"model": "baton-demo", "max_tokens": max_tokens, "ignore_eos": True, "seed": seed, "stream": True,
            "messages": [{"role": "user", "content": text}]}
    answer = ""
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", **(headers or {})})
    for line in connection.getresponse():
        data = line[6:].strip() if line.startswith(b"data: ") else b"[DONE]"
        if data != b"[DONE]":
            choice = json.loads(data)["choices"][0]
            answer += choice["delta"].get("content") or ""
            answer += f"[{choice['finish_reason']}]" if choice["finish_reason"] else ""
            if begun and answer:
                begun.set()
    connection.close()
    assert answer.endswith("[length]"), answer
    return answer


def wait_until(holds, what):
    until = time.monotonic() + patience(20)
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def pauses(c):
    return c.routers[0].metric('baton_router_pauses_total{class="low"}')


def streams_are_paused_with_the_same_bits():
    """Two workers of two seats, four long low streams, and a burst of short requests of the higher class."""
    texts, high = [f"Low {i}. {WORDS * 2}" for i in range(4)], [f"High {i}. {WORDS}" for i in range(4)]
    with Cluster() as c:
        c.router(slo__ttft="60s", slo__itl="10s", classes__class=CLASSES)
        for _ in range(2):
            c.worker("decode", sched__max_seqs="2", sched__itl="10s")
        c.wait_ready(decode=2)
        want_high = [long_answer(c, text, 40, 1) for text in high]
        want_low = [long_answer(c, text, 800, i) for i, text in enumerate(texts)]
        begun = [threading.Event() for _ in texts]

        def burst():
            assert all(event.wait(patience(30)) for event in begun)
            return in_threads([lambda text=text: long_answer(c, text, 40, 1) for text in high])

        got = in_threads([lambda i=i: long_answer(c, texts[i], 800, i, {"baton-class": "low"}, begun[i]) for i in range(4)] + [burst])
        assert got[4] == want_high
        assert got[:4] == want_low
        router = c.routers[0]
        assert pauses(c) >= 1, "no stream was paused"
        assert router.metric("baton_router_pause_seconds_count") == pauses(c)
        assert router.metric("baton_router_paused") == 0 and router.status()["paused"] == 0
        assert router.metric("baton_router_refused_total") == 0 and router.status()["redispatched"] == 0
        print(f"   {pauses(c):.0f} pauses; four answers of 800 tokens and four of 40 are the same as alone")
        c.assert_quiet()


def a_paused_stream_lives_on_pings():
    """One seat behind a hand-off; a higher request holds it for longer than the time between pings."""
    with Cluster() as c:
        c.router(slo__ttft="30s", slo__itl="10s", classes__class=CLASSES, placement__local_prefill_tokens="0",
                 placement__local_prefill_time="0")
        c.worker("prefill", **SIM, sched__max_seqs="1", engine__sim_step="1ms", sched__itl="1s")
        c.worker("decode", **SIM, sched__max_seqs="1", engine__sim_step="20ms", sched__itl="1s")
        c.wait_ready(prefill=1, decode=1)
        want = c.ask(WORDS, max_tokens=30, seed=3, temperature=1).text
        low = Low(c, WORDS, 30, seed=3, temperature=1)
        assert low.begun.wait(patience(20))
        high_begun = threading.Event()
        high = threading.Thread(target=long_answer, args=(c, "High. " + WORDS, 470, 1, None, high_begun))  # longer than the time between pings
        high.start()
        assert high_begun.wait(patience(20))
        wait_until(lambda: c.routers[0].status()["paused"] == 1, "the stream is paused")
        high.join()
        low.join()
        assert low.error is None and low.is_whole and low.text == want, (low.error, low.names[-3:], low.text, want)
        begun = low.names.index("content_block_delta")
        assert "ping" in low.names[begun:], low.names
        print(f"   paused after {low.names.index('ping', begun) - begun} tokens, with pings meanwhile")
        assert pauses(c) == 1
        c.assert_quiet()


if __name__ == "__main__":
    main([streams_are_paused_with_the_same_bits, a_paused_stream_lives_on_pings])
