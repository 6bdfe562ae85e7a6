# SPDX-License-Identifier: Apache-2.0
"""The whole relay: three daemons, every transport, the same answer on every path, and serving stats that show the path."""
import http.client
import json
import signal

from cluster import Cluster, fetch, in_threads, main, Stream
from test_tier import until

LONG = ("Please remember: my name is Ada Lovelace, my favourite colour is teal and the port is 4711. "
        "Tell me, what is the KV cache, what is a hand-off, and why are prefill and decode pulled apart in Baton? ")


def three(c, **settings):
    c.router()
    c.worker("prefill", **settings)
    c.worker("decode", **settings)
    c.wait_ready(prefill=1, decode=1)


def handed_off(transport, **settings):
    with Cluster() as c:
        three(c, **settings)
        prefill, decode = c.workers
        direct = c.ask(LONG, port=decode.http)
        fresh = c.ask("Once more, and differently. " + LONG)
        assert fresh.serving["transferred"] > 0, fresh.serving
        assert fresh.serving["transport"] == transport, fresh.serving
        assert fresh.serving["prefill"] == "prefill0" and fresh.serving["decode"] == "decode0", fresh.serving
        assert fresh.serving["computed"] + fresh.serving["reused"] == fresh.serving["prompt"], fresh.serving
        again = c.ask("Once more, and differently. " + LONG, port=prefill.http)
        assert fresh.text == again.text, (fresh.text, again.text)
        assert direct.text, "an empty answer"
        assert decode.metric('baton_worker_prompt_tokens_total{how="transferred"}') > 0
        c.assert_quiet()


def hand_off_over_shared_memory():
    handed_off("shm")


def hand_off_over_encrypted_tcp():
    handed_off("tcp", kv__transport="tcp")


def hand_off_over_plain_tcp():
    handed_off("tcp", kv__transport="tcp", kv__tcp_encrypt="no")


def hand_off_in_every_kv_type():
    for kv_type in ("f32", "bf16", "q8_0", "q4_0"):
        handed_off("shm", kv__type=kv_type)


def the_same_tokens_however_served():
    """Greedy and sampled answers are equal on one worker, through the pair, in a batch, and from a cached prefix."""
    prompts = [LONG + f"Question {i}: what is TTFT?" for i in range(6)]
    with Cluster() as c:
        three(c, sched__chunk_tokens="32")
        for fields in ({}, {"temperature": 0.9, "seed": 7, "top_p": 0.95}):
            alone = [c.ask(p, port=c.workers[1].http, **fields).text for p in prompts]
            neighbours = in_threads([lambda p=p: c.ask(p, **fields).text for p in prompts])
            cached = [c.ask(p, **fields).text for p in prompts]
            assert alone == neighbours == cached, (alone, neighbours, cached)
        c.assert_quiet()


def a_prompt_behind_a_longer_one_is_handed_over():
    """A regression: the decode worker gave the transfer up after kv.grant_timeout without a piece, and computed the prompt again."""
    with Cluster() as c:
        three(c, engine__kind="sim", engine__sim_prefill_token="4ms", engine__sim_answer_tokens="100000", kv__grant_timeout="500ms")
        prompts = [" ".join(f"word{i}{k}" for k in range(120)) for i in range(3)]
        answers = in_threads([lambda p=p: c.ask(p, max_tokens=4) for p in prompts])
        for answer in answers:
            assert answer.serving["computed"] == answer.serving["prompt"] == answer.serving["transferred"], answer.serving
        c.assert_quiet()


def cached_prefixes_are_reported():
    with Cluster() as c:
        three(c)
        first = c.ask(LONG)
        second = c.ask(LONG)
        assert first.usage["cache_read_input_tokens"] == 0, first.usage
        assert second.usage["cache_read_input_tokens"] > 0, second.usage
        assert second.text == first.text
        total = lambda u: u["input_tokens"] + u["cache_creation_input_tokens"] + u["cache_read_input_tokens"]
        status, _, body = fetch(c.routers[0].http, "POST", "/v1/messages/count_tokens", c.body(LONG))
        assert status == 200
        assert total(first.usage) == total(second.usage) == __import__("json").loads(body)["input_tokens"]


def short_prompts_stay_on_the_decode_worker():
    with Cluster() as c:
        c.relay(placement__local_prefill_tokens="500")
        answer = c.ask("Hello!")
        assert answer.serving["transferred"] == 0 and answer.serving["decode"] == "decode0", answer.serving
        assert answer.serving["prefill"] == "", answer.serving


def answers_without_stream_carry_their_serving():
    with Cluster() as c:
        three(c)
        status, headers, body = fetch(c.routers[0].http, "POST", "/v1/messages", c.body(LONG))
        assert status == 200, body
        assert "prefill;dur=" in headers["server-timing"], headers
        exposed = float(headers["server-timing"].split("exposed;dur=")[1].split(",")[0])
        assert 0 < exposed < 1000, headers
        assert "transferred=" in headers["baton-proof"], headers
        serving = dict(part.split("=", 1) for part in headers["baton-proof"].split("; "))
        assert 0 <= int(serving["accepted"]) <= int(serving["drafted"]), headers
        assert headers["request-id"].startswith("req_")


def every_daemon_answers():
    with Cluster() as c:
        three(c)
        for daemon in c.routers + c.workers:
            assert c.ask("hello", port=daemon.http).is_whole
            for path in ("/livez", "/readyz", "/health", "/v1/models"):
                status, _, body = fetch(daemon.http, "GET", path)
                assert status == 200, (daemon.name, path, status, body)
            assert daemon.metric("baton_http_requests_total") >= 0
            assert fetch(daemon.http, "GET", "/metrics")[0] == 404


def a_worker_alone_serves_through_the_router():
    for role in ("prefill", "decode"):
        with Cluster() as c:
            c.router()
            c.worker(role)
            c.wait_ready(**{role: 1})
            assert c.ask(LONG).is_whole


def answers_that_end_first_are_no_failed_hand_offs():
    with Cluster() as c:
        three(c)
        sent = lambda result: c.workers[0].metric('baton_handoffs_sent_total{result="%s"}' % result)
        for i in range(4):
            assert c.ask(f"{i}: " + LONG, max_tokens=1).usage["output_tokens"] == 1
        until("a hand-off is not counted", lambda: sent("ended") + sent("done") == 4)
        assert sent("failed") == c.workers[1].metric('baton_handoffs_received_total{result="failed"}') == 0
        c.assert_quiet()


def cancelled_hand_offs_are_no_failed_ones():
    """The prefill worker stands still while the client leaves, so that it hears of it from the router and from the decode
    worker at the same time."""
    with Cluster() as c:
        c.router(link__heartbeat="10s")
        settings = {"link__heartbeat": "10s", "engine__kind": "sim", "engine__sim_prefill_token": "1ms", "engine__sim_answer_tokens": "1000"}
        prefill, decode = c.worker("prefill", **settings), c.worker("decode", **settings)
        c.wait_ready(prefill=1, decode=1)
        sent = lambda result: prefill.metric('baton_handoffs_sent_total{result="%s"}' % result)
        received = lambda result: decode.metric('baton_handoffs_received_total{result="%s"}' % result)
        for i in range(1, 20):
            client = http.client.HTTPConnection("127.0.0.1", c.routers[0].http)
            client.request("POST", "/v1/messages", json.dumps(c.body(f"{i}: " + LONG * 8)), {"content-type": "application/json"})
            until("no hand-off begins", lambda: granted(decode) == i)
            prefill.kill(signal.SIGSTOP)
            client.close()
            until("the decode worker does not stop", lambda: decode.status()["tasks"] == 0)
            prefill.kill(signal.SIGCONT)
            until("a hand-off is not counted", lambda: sent("ended") + sent("done") == received("ended") + received("done") == i)
            if sent("ended") and received("ended"):
                break
        assert sent("ended") > 0 and received("ended") > 0
        assert sent("failed") == received("failed") == 0
        c.assert_quiet()


def granted(worker):
    with open(worker.log_path, encoding="utf-8") as f:
        return sum('"kv_receive_state"' in line and '"to":"moving"' in line for line in f)


def many_at_once():
    with Cluster() as c:
        three(c)
        answers = in_threads([lambda i=i: c.ask(f"{i}: " + LONG, max_tokens=24) for i in range(24)])
        assert all(a.is_whole for a in answers)
        assert sum(a.serving["transferred"] > 0 for a in answers) > 0
        c.assert_quiet()


main([hand_off_over_shared_memory, a_prompt_behind_a_longer_one_is_handed_over, hand_off_over_encrypted_tcp, hand_off_over_plain_tcp, hand_off_in_every_kv_type,
      the_same_tokens_however_served,
      cached_prefixes_are_reported, short_prompts_stay_on_the_decode_worker, answers_without_stream_carry_their_serving,
      every_daemon_answers, a_worker_alone_serves_through_the_router,
      answers_that_end_first_are_no_failed_hand_offs, cancelled_hand_offs_are_no_failed_ones, many_at_once])
