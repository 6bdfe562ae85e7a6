#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Distributed traces: one request through router, prefill and decode worker is one trace with right parents and times;
sampling follows the client; a collector that is away or slow costs spans and nothing else."""
import os
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import otlp  # noqa: E402
from cluster import Cluster, Stream, fetch, main, patience  # noqa: E402

TEXT = "A relay race has four runners, and each of them carries the baton for a hundred metres. " * 4
UNHURRIED = {"engine__kind": "sim", "engine__sim_step": "2ms", "engine__sim_answer_tokens": "1000000"}  # 600 tokens take a second
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def relay(c, url, **router):
    c.router(trace__url=url, **router)
    c.worker("prefill", trace__url=url)
    c.worker("decode", trace__url=url)
    c.wait_ready(prefill=1, decode=1)


def ask(c, traceparent=None, port=None, text=TEXT):
    headers = {"traceparent": traceparent} if traceparent else {}
    stream = Stream(port or c.routers[0].http, c.body(text, max_tokens=12), headers)
    assert stream.status == 200
    answer = stream.finish()
    assert answer.is_whole
    return answer, stream.response.headers["request-id"]


def await_spans(collector, names, timeout=20):
    """Spans until each name has come."""
    end = time.monotonic() + patience(timeout)
    while True:
        spans = collector.spans()
        if set(names) <= {s["name"] for s in spans}:
            return spans
        assert time.monotonic() < end, sorted(s["name"] for s in spans)
        time.sleep(0.05)


RELAY = {"chat baton-demo", "tokenise", "dispatch", "prefill", "decode", "queue", "compute prompt", "KV send", "KV receive",
         "decode tokens"}


def one_request_is_one_trace():
    with otlp.Collector() as collector, Cluster() as c:
        relay(c, collector.url)
        before = time.time_ns()
        answer, request_id = ask(c, f"00-{TRACE}-{PARENT}-01")
        after = time.time_ns()
        spans = await_spans(collector, RELAY)
        assert {s["trace"] for s in spans} == {TRACE}
        assert len({s["id"] for s in spans}) == len(spans)
        prefill = next(s["id"] for s in spans if s["name"] == "prefill")
        spans = [s for s in spans if s["name"] != "queue" or s["parent"] == prefill]  # on a slow machine it waits elsewhere too
        by_name = {s["name"]: s for s in spans}
        assert len(by_name) == len(spans), sorted(s["name"] for s in spans)
        parents = {"chat baton-demo": PARENT, "tokenise": "chat baton-demo", "dispatch": "chat baton-demo",
                   "prefill": "dispatch", "decode": "dispatch", "queue": "prefill", "compute prompt": "prefill",
                   "KV send": "prefill", "KV receive": "decode", "decode tokens": "decode"}
        for name, parent in parents.items():
            assert by_name[name]["parent"] == (parent if parent == PARENT else by_name[parent]["id"]), name
        services = {"chat baton-demo": "baton-router", "tokenise": "baton-router", "dispatch": "baton-router",
                    "prefill": "baton-prefill", "KV send": "baton-prefill", "decode": "baton-decode",
                    "KV receive": "baton-decode", "decode tokens": "baton-decode"}
        for name, service in services.items():
            assert by_name[name]["service"] == service, name
        slack = 5_000_000  # the exporters convert times of one clock to wall time at different moments
        for s in spans:
            assert before - slack <= s["begin"] <= s["end"] <= after + slack, s
            parent = next((p for p in spans if p["id"] == s["parent"]), None)
            assert parent is None or parent["begin"] - slack <= s["begin"], (s["name"], parent["name"])
        # The prompt is computed before its tokens are decoded, and the transfer ends before the second token.
        assert by_name["compute prompt"]["end"] <= by_name["decode tokens"]["end"]
        assert by_name["queue"]["end"] <= by_name["compute prompt"]["begin"] + slack
        root = by_name["chat baton-demo"]
        assert root["kind"] == 2 and root["status"] == 0
        a = root["attributes"]
        assert a["gen_ai.operation.name"] == "chat" and a["gen_ai.request.model"] == "baton-demo", a
        assert a["gen_ai.usage.output_tokens"] == answer.usage["output_tokens"], a
        sent = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, **answer.usage}
        assert a["gen_ai.usage.input_tokens"] == sent["input_tokens"] + sent["cache_read_input_tokens"] + \
            sent["cache_creation_input_tokens"], (a, answer.usage)
        assert a["gen_ai.response.finish_reasons"] == ["max_tokens"], a
        assert a["http.response.status_code"] == 200 and a["http.route"] == "/v1/messages", a
        assert a["baton.request.id"] == request_id, a
        assert (a["baton.prefill.worker"], a["baton.decode.worker"]) == ("prefill0", "decode0"), a
        received = by_name["KV receive"]["attributes"]
        assert received["baton.peer"] == "prefill0" and received["baton.transfer.bytes"] > 0, received
        assert received["baton.transport"] == a["baton.transport"], received
        whole = repr(spans)
        assert "relay race" not in whole and answer.text not in whole, "no prompt and no answer leaves in a span"
        print(f"{len(spans)} spans, decoded by field numbers"
              + (" and by opentelemetry-proto" if otlp.OFFICIAL else "; opentelemetry-proto is not installed"))


def sampling_follows_the_client():
    with otlp.Collector() as collector, Cluster() as c:
        relay(c, collector.url, trace__sample="0")
        ask(c, f"00-{TRACE}-{PARENT}-00", text="one " + TEXT)
        ask(c, text="two " + TEXT)
        ask(c, "00-" + "1" * 32 + f"-{PARENT}-01")
        # The worker's own endpoint begins a trace by its own ratio, which is 100%.
        ask(c, port=c.daemon("decode0").http)
        spans = await_spans(collector, RELAY | {"local"})
        traces = {s["trace"] for s in spans}
        assert TRACE not in traces and "1" * 32 in traces and len(traces) == 2, traces
        own = [s for s in spans if s["trace"] != "1" * 32]
        assert {s["service"] for s in own} == {"baton-decode"}, own
        first = next(s for s in own if s["name"] == "chat baton-demo")
        assert first["parent"] == "" and next(s for s in own if s["name"] == "local")["parent"] == first["id"]


def a_lost_worker_is_a_second_attempt():
    with otlp.Collector() as collector, Cluster() as c:
        c.router(trace__url=collector.url)
        for role in ("prefill", "decode", "decode"):
            c.worker(role, trace__url=collector.url, **UNHURRIED)
        c.wait_ready(prefill=1, decode=2)
        stream = Stream(c.routers[0].http, c.body(TEXT, max_tokens=600), {"traceparent": f"00-{TRACE}-{PARENT}-01"})
        events = iter(stream)
        for name, _ in events:
            if name == "content_block_delta":
                break
        busy = next(w for w in c.routers[0].status()["workers"] if w["role"] == "decode" and w["inflight"])
        c.daemon(busy["node"]).kill()
        for _ in events:
            pass
        spans = await_spans(collector, {"chat baton-demo", "dispatch", "decode"})
        end = time.monotonic() + patience(20)
        while sum(s["name"] == "dispatch" for s in spans) < 2 and time.monotonic() < end:
            time.sleep(0.05)
            spans = collector.spans()
        attempts = sorted((s for s in spans if s["name"] == "dispatch"), key=lambda s: s["attributes"]["baton.attempt"])
        assert [s["attributes"]["baton.attempt"] for s in attempts] == [1, 2], attempts
        assert attempts[0]["status"] == 2 and attempts[0]["attributes"]["baton.decode.worker"] == busy["node"], attempts
        assert attempts[1]["status"] == 0 and attempts[1]["attributes"]["baton.decode.worker"] != busy["node"], attempts


def a_dead_or_slow_collector_costs_spans_only():
    with socket.socket() as closed, otlp.Collector(delay_s=60) as slow, Cluster() as c:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        c.router(trace__url=f"http://127.0.0.1:{closed.getsockname()[1]}")
        c.worker("prefill", trace__url=slow.url)
        c.worker("decode", trace__url=slow.url)
        c.wait_ready(prefill=1, decode=1)
        for i in range(8):
            ask(c, text=f"{i} {TEXT}")
        router = c.routers[0]
        end = time.monotonic() + patience(10)
        while "trace_collector_down" not in router.tail(2000):
            assert time.monotonic() < end, router.tail()
            time.sleep(0.05)
        assert router.metric("baton_trace_spans_sent_total") == 0
        began = time.monotonic()
        for daemon in c.workers + c.routers:
            assert daemon.stop() == 0
        assert time.monotonic() - began < patience(12), "a slow collector holds up the end"
        # The log has one line about the collector, not one for each span.
        with open(router.log_path, encoding="utf-8") as f:
            assert f.read().count("trace_collector_down") == 1


def a_bad_address_is_refused():
    with Cluster() as c:
        for url, why in (("https://collector", "trace.url"), ("collector:4318", "trace.url")):
            daemon = c.router(trace__url=url)
            assert daemon.process.wait(patience(20)) != 0
            assert why in daemon.tail(), daemon.tail()
            c.routers.remove(daemon)


if __name__ == "__main__":
    main([one_request_is_one_trace, sampling_follows_the_client, a_lost_worker_is_a_second_attempt,
          a_dead_or_slow_collector_costs_spans_only, a_bad_address_is_refused])
