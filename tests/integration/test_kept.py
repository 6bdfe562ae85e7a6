#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations, responses and remembered answers outlive the router that made them: workers keep them, without any store."""
import http.client
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, events as sse_events, fetch, main, patience  # noqa: E402
from test_common_limits import metric_of, new_keys  # noqa: E402
from redis_server import Redis  # noqa: E402
from test_state import fleet as state_fleet  # noqa: E402
from test_state import continued, message, n_prompt, send, wait_until  # noqa: E402


def respond(router, key=None, **fields):
    return send(router, "/v1/responses", {"model": "baton-demo", "max_output_tokens": 60, "temperature": 0, **fields}, key)


def wait_fleet(c, n_workers):
    for _ in range(len(c.routers)):
        c.wait_ready(decode=n_workers)
        c.routers.append(c.routers.pop(0))


def fleet(c, n_routers, n_workers, keys=None, heartbeat="200ms", **worker):
    settings = {"http__api_keys": keys} if keys else {}
    for _ in range(n_routers):
        c.router(state__wait="2s", link__heartbeat=heartbeat, **settings)
    routers = [f"127.0.0.1:{r.link}" for r in c.routers]
    workers = [c.worker("decode", kv__memory="64MiB", link__routers=routers, **worker) for _ in range(n_workers)]
    wait_fleet(c, n_workers)
    return workers


def kept(workers, name="baton_worker_kept"):
    return sum(w.metric(name) for w in workers)


def threads_go_on_after_their_router_and_one_worker():
    """Once, for their tenant only, with the tokens that the first router would have used."""
    with Cluster() as c:
        path, keys = new_keys(c, one="rpm=100000", two="rpm=100000")
        workers = fleet(c, 3, 3, path)
        a, b, other = c.routers
        status, first = message(a, "hello there", keys["one"], thread={"type": "create"})
        assert status == 200, first
        a.kill()
        status, answer = continued(b, first["id"], "and then?", keys["two"])
        assert status == 404, answer
        status, second = continued(b, first["id"], "and then?", keys["one"])
        assert status == 200, second
        status, whole = send(other, "/v1/messages", {
            "model": "baton-demo", "max_tokens": 400, "temperature": 1, "seed": 5, "messages": [
                {"role": "user", "content": "hello there"}, {"role": "assistant", "content": first["content"]},
                {"role": "user", "content": "and then?"}]}, keys["one"])
        assert status == 200 and whole["content"] == second["content"] and n_prompt(whole) == n_prompt(second), (whole, second)
        for router in (b, other):
            status, answer = continued(router, first["id"], "again", keys["one"])
            assert status == 400 and "continued already" in answer["error"]["message"], (router.name, answer)
        # each value has two copies, so one worker may die
        workers[0].kill()
        c.routers[:] = [b, other]
        wait_fleet(c, 2)
        status, third = continued(other, second["id"], "and now?", keys["one"])
        assert status == 200, third


def values_are_copied_again_when_workers_leave_and_come():
    """Two of three workers die one after the other, one comes back, and the third dies: nothing is lost."""
    with Cluster() as c:
        began = time.monotonic()
        workers = fleet(c, 2, 3)
        a, b = c.routers
        first = [respond(a, input=f"hello {i}") for i in range(10)]
        assert all(status == 200 for status, _ in first), first
        status, thread = message(a, "hello there", thread={"type": "create"})
        assert status == 200, thread
        n = kept(workers, "baton_worker_kept ") / 2
        assert n == int(n) and n > 10

        def each_has_all(*rest):
            return lambda: [w.metric("baton_worker_kept ") for w in rest] == [n] * len(rest)

        workers[0].kill()
        wait_until(each_has_all(*workers[1:]), "a value has one copy only")
        workers[1].kill()
        time.sleep(max(0, began + 8 - time.monotonic()))  # a router takes workers that it meets in its first seconds for old ones
        workers[0].start()
        wait_fleet(c, 2)
        wait_until(each_has_all(workers[0], workers[2]), "a worker that came got no copies")
        workers[2].kill()
        n_copied = sum(metric_of(r, "baton_kept_copied_total") for r in (a, b))
        assert n < n_copied < 4 * n, (n_copied, n)  # both routers saw each change, and each value moved about once for it
        for _, answer in first:
            status, shown = send(b, "/v1/responses/" + answer["id"], None, None, "GET")
            assert status == 200 and shown["output"] == answer["output"], shown
        c.routers[:] = [b, a]
        c.wait_ready(decode=1)
        status, second = continued(b, thread["id"], "and then?")
        assert status == 200, second
        events = [line for r in c.routers for line in open(r.log_path) if '"kept_copied"' in line]
        assert len(events) >= 2, events


def a_worker_that_drains_leaves_two_copies():
    """Its values are copied while it still answers, so another one may die as soon as it is gone."""
    with Cluster() as c:
        workers = fleet(c, 2, 3, stop__drain_timeout="30s", **SLOW)
        a, b = c.routers
        first = [respond(a, input=f"hello {i}", max_output_tokens=3) for i in range(10)]
        assert all(status == 200 for status, _ in first), first
        stream = stream_response(a, "", input="tell me all", max_output_tokens=100000)
        running = []

        def runs_at_one():  # the second time in a row: a worker's status may still count an earlier request
            running.append([w for w in workers if w.status()["running"] > 0])
            return len(running) > 3 and len(running[-1]) == 1 and running[-1] == running[-4]

        wait_until(runs_at_one, "the stream runs nowhere")
        busy = running[-1][0]
        rest = [w for w in workers if w is not busy]
        n = kept(workers, "baton_worker_kept ") / 2  # with the order of the stream
        assert n == int(n) and n > 10, n
        busy.process.send_signal(signal.SIGTERM)
        wait_until(lambda: [w.metric("baton_worker_kept ") for w in rest] == [n] * 2, "a value has one copy only")
        assert busy.process.poll() is None
        stream[0].close()


def a_restarted_router_has_its_responses():
    """The only router.  A response that is deleted is gone for all, also at a worker that was away."""
    with Cluster() as c:
        path, keys = new_keys(c, one="rpm=100000", two="rpm=100000")
        workers = fleet(c, 1, 2, path)
        router = c.routers[0]
        status, first = respond(router, keys["one"], input="hello there")
        assert status == 200, first
        where = "/v1/responses/" + first["id"]
        router.kill()
        router.start()
        wait_fleet(c, 2)
        assert send(router, where, None, keys["two"], "GET")[0] == 404
        status, shown = send(router, where, None, keys["one"], "GET")
        assert status == 200 and shown["output"] == first["output"], shown
        status, second = respond(router, keys["one"], input="go on", previous_response_id=first["id"])
        assert status == 200 and second["usage"]["input_tokens"] > first["usage"]["input_tokens"], second
        router.kill()
        router.start()
        wait_fleet(c, 2)
        assert send(router, where, None, keys["one"], "DELETE")[0] == 200
        assert send(router, where, None, keys["one"], "GET")[0] == 404
        assert metric_of(router, "baton_kept_asks_total") >= 1
        assert kept(workers, "baton_worker_kept_bytes") > 0


def remembered_answers_come_from_workers():
    with Cluster() as c:
        fleet(c, 2, 2)
        a, b = c.routers
        status, first = message(a, "tell me")
        assert status == 200, first
        a.kill()
        found = 'baton_prompt_answers_total{replayed="yes"}'
        status, answer = send(b, "/v1/messages", {
            "model": "baton-demo", "max_tokens": 100, "temperature": 0, "messages": [
                {"role": "user", "content": "tell me"}, {"role": "assistant", "content": first["content"]},
                {"role": "user", "content": "more"}]})
        assert status == 200 and b.metric(found) == 1, (answer, b.metric(found))


def stream_response(router, key, **fields):
    """A stream of /v1/responses: the connection, its events, and its id once it has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", router.http, timeout=patience(30))
    connection.request("POST", "/v1/responses", json.dumps({"model": "baton-demo", "temperature": 0, "stream": True, **fields}),
                       {"content-type": "application/json", "x-api-key": key})
    events = sse_events(connection.getresponse())
    name, first = next(events)
    assert name == "response.created", (name, first)
    return connection, events, first["response"]["id"]


def assert_cancelled_elsewhere(a, b, keys):
    """Of a stream through a, at b: by its tenant alone."""
    connection, events, ident = stream_response(a, keys["one"], input="tell me all", max_output_tokens=100000)
    where = f"/v1/responses/{ident}/cancel"
    began = time.monotonic()
    assert send(b, where, {}, keys["two"])[0] == 404
    status, answer = send(b, where, {}, keys["one"])
    assert status == 200 and answer["id"] == ident and answer["status"] == "cancelled", (status, answer)
    took = time.monotonic() - began
    last = None
    for name, event in events:
        last = (name, event)
    assert last[1]["response"]["status"] == "cancelled", last
    connection.close()
    print(f"    a wait that none answers and one that one does: {took:.2f} s")
    assert len([1 for line in open(a.log_path) if '"cancelled_elsewhere"' in line]) == 1
    # a finished one: 400 at both
    status, done = respond(a, keys["one"], input="hello")
    for router in (a, b):
        answers = []

        def is_refused():  # on a busy machine a worker may be late, and is not asked for five seconds
            answers.append(send(router, f"/v1/responses/{done['id']}/cancel", {}, keys["one"]))
            return answers[-1][0] != 404

        wait_until(is_refused, "the finished response is unknown")
        status, answer = answers[-1]
        assert status == 400 and "completed" in answer["error"]["message"], (router.name, answer)


SLOW = {"engine__kind": "sim", "engine__sim_step": "20ms", "engine__sim_decode_seq": "10us", "engine__sim_answer_tokens": "1000000"}


def a_cancel_reaches_the_router_that_runs_the_response():
    with Cluster() as c:
        path, keys = new_keys(c, one="rpm=100000", two="rpm=100000")
        fleet(c, 3, 2, path, **SLOW)
        a, b, _ = c.routers
        assert_cancelled_elsewhere(a, b, keys)
    with Redis() as redis, Cluster() as c:  # no worker in common, a store
        path, keys = new_keys(c, one="rpm=100000", two="rpm=100000")
        state_fleet(c, redis, 2, path, engine=SLOW)
        assert_cancelled_elsewhere(*c.routers, keys)
    with Cluster() as c:  # alone: no wait
        path, keys = new_keys(c, one="rpm=100000")
        fleet(c, 1, 1, path)
        began = time.monotonic()
        assert send(c.routers[0], "/v1/responses/resp_unknown/cancel", {}, keys["one"])[0] == 404
        assert time.monotonic() - began < 0.9


def deletions_and_bans_of_one_router_reach_all():
    with Cluster() as c:
        path, keys = new_keys(c, one="rpm=100000")
        settings = {"http__api_keys": path, "http__wrong_keys": "6"}
        for _ in range(3):
            c.router(**settings)
        for _ in range(2):
            c.worker("decode", kv__memory="64MiB", link__routers=[f"127.0.0.1:{r.link}" for r in c.routers])
        wait_fleet(c, 2)
        a, b, other = c.routers
        status, first = respond(a, keys["one"], input="hello there")
        where = "/v1/responses/" + first["id"]
        for router in c.routers:  # each has a copy of its own now
            wait_until(lambda: send(router, where, None, keys["one"], "GET")[0] == 200, "a response is unknown to another router")
        assert send(other, where, None, keys["one"], "DELETE")[0] == 200
        wait_until(lambda: all(send(r, where, None, keys["one"], "GET")[0] == 404 for r in c.routers),
                   "a deleted response is still shown")

        def ask(router, key):
            return fetch(router.http, "GET", "/v1/models", headers={"x-api-key": key})[0]

        # the same wrong key counts once, at whichever router; eight different ones are a guess
        assert [ask(c.routers[i % 3], "wrong") for i in range(12)] == [401] * 12
        time.sleep(0.5)
        assert ask(b, keys["one"]) == 200
        assert all(ask(a, f"wrong {i}") in (401, 429) for i in range(8))
        for router in c.routers:
            wait_until(lambda r=router: ask(r, keys["one"]) == 429, "the ban did not reach the other routers")
        assert metric_of(b, 'baton_relay_messages_total{direction="in"}') >= 1


def memory_is_bounded_and_may_be_none():
    with Cluster() as c:
        workers = fleet(c, 2, 1, stream__kept_memory="16KiB")
        a, b = c.routers
        ids = []
        for i in range(30):
            status, answer = respond(a, input=f"hello {i}")
            assert status == 200, answer
            ids.append(answer["id"])
        assert 0 < kept(workers, "baton_worker_kept_bytes") <= 16384
        assert kept(workers, "baton_worker_kept_evicted_total") > 0
        assert send(b, "/v1/responses/" + ids[-1], None, None, "GET")[0] == 200
        assert send(b, "/v1/responses/" + ids[0], None, None, "GET")[0] == 404
    with Cluster() as c:
        workers = fleet(c, 2, 1, stream__kept_memory="0")
        a, b = c.routers
        status, answer = respond(a, input="hello")
        assert status == 200 and kept(workers) == 0
        assert send(a, "/v1/responses/" + answer["id"], None, None, "GET")[0] == 200
        assert send(b, "/v1/responses/" + answer["id"], None, None, "GET")[0] == 404


def a_worker_that_hangs_delays_no_request_for_long():
    """Its loop stands still, so it answers nothing.  Requests go on without it after state.wait, the later ones at once."""
    with Cluster() as c:
        workers = fleet(c, 2, 2, heartbeat="10s", link__heartbeat="200ms")
        a, b = c.routers
        status, first = respond(a, input="hello there")
        assert status == 200, first
        os.kill(workers[0].process.pid, signal.SIGSTOP)
        try:
            took = []
            for _ in range(3):
                began = time.monotonic()
                status, _ = send(b, "/v1/responses/resp_unknown", None, None, "GET")
                took.append(time.monotonic() - began)
                assert status == 404
            print(f"    {[round(t, 4) for t in took]} s")
            assert 1.5 < took[0] < patience(6) and max(took[1:]) < took[0] / 2, took
            assert send(b, "/v1/responses/" + first["id"], None, None, "GET")[0] == 200
        finally:
            os.kill(workers[0].process.pid, signal.SIGCONT)


if __name__ == "__main__":
    main([threads_go_on_after_their_router_and_one_worker, values_are_copied_again_when_workers_leave_and_come,
          a_worker_that_drains_leaves_two_copies, a_restarted_router_has_its_responses,
          remembered_answers_come_from_workers, a_cancel_reaches_the_router_that_runs_the_response,
          deletions_and_bans_of_one_router_reach_all, memory_is_bounded_and_may_be_none,
          a_worker_that_hangs_delays_no_request_for_long])
