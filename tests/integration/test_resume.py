# SPDX-License-Identifier: Apache-2.0
"""Streams outlive their router: clients come back to another one with Last-Event-ID and go on at the next byte."""
import hashlib
import json
import os
import re
import signal
import threading
import time

from cluster import Cluster, fetch, main, patience
from resume_client import PROMPT, Client, assert_same, chat, messages, two_routers, wait_both, whole_of


def streams_survive_a_killed_router():
    """Both APIs, one worker and pairs, sampled and greedy, log probabilities, stop strings, tools."""
    with Cluster() as c:
        links = two_routers(c)
        c.worker("prefill", link__routers=links)
        c.worker("decode", link__routers=links, sched__speculate="off")
        wait_both(c, 1, 1)
        ports = [r.http for r in c.routers]
        asks = []
        for i in range(4):
            asks.append(messages(f"{i} {PROMPT * (1 + i)}", temperature=1))
            asks.append(chat(f"{i} {PROMPT * (1 + i)}", seed=i))
        asks.append(messages("stop " + PROMPT, temperature=0, stop_sequences=["e"], max_tokens=200))
        asks.append(chat("likely " + PROMPT, logprobs=True, top_logprobs=3))
        asks.append(messages("tool " + PROMPT, tools=[{"name": "look", "input_schema": {"type": "object", "properties": {
            "where": {"type": "string"}}}}], tool_choice={"type": "any"}))
        clients = [Client(*ask) for ask in asks]
        threads = [threading.Thread(target=client.run, args=(ports,)) for client in clients]
        for thread in threads:
            thread.start()
        until = time.monotonic() + patience(30)
        while sum(len(client.events) > 4 for client in clients) < len(clients) // 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        c.routers[0].kill()
        for thread in threads:
            thread.join()
        assert all(client.is_over() for client in clients)
        n = sum(client.n_resumed > 0 for client in clients)
        assert n > 0, "no stream was open when the router was killed"
        for client in clients:
            numbers = [int(re.match(rb"id: \S+\.(\d+)\n", event).group(1)) for event in client.events]
            assert numbers == list(range(1, len(numbers) + 1)), numbers
            if client.n_resumed > 0:
                assert_same(whole_of(ports[1], client), client)
        # the same requests without a fault say the same (those with a seed of their own, and greedy ones)
        for client in clients:
            if "seed" in client.body or '"temperature": 0' in client.body:
                fresh = Client(client.path, {})
                fresh.body = client.body
                assert fresh.run([ports[1]]).text() == client.text()
        c.assert_quiet()


LONG = {"engine__kind": "sim", "engine__sim_step": "1ms", "engine__sim_answer_tokens": "100000",
        "engine__sim_prefill_token": "0", "model__context": "262144", "kv__memory": "1GiB", "sched__chunk_tokens": "65536"}


def prompts_in_pieces_survive():
    """A prompt longer than one SUBMIT: its router is killed, then the worker that went on with it."""
    with Cluster() as c:
        links = two_routers(c)
        for _ in range(2):
            c.worker("decode", link__routers=links, **{**LONG, "engine__sim_step": "20ms"})
        wait_both(c, 0, 2)
        ports = [r.http for r in c.routers]
        prompt = [300 + i * 7 % 701 for i in range(65536 + 9)]
        client = Client("/v1/completions", {"model": "baton-demo", "prompt": prompt, "max_tokens": 120, "seed": 7,
                                            "stream_options": {"include_usage": True}})
        plain = Client(client.path, {})
        plain.body = client.body
        plain.run([ports[1]])
        client.read(ports[0], most=8)
        c.routers[0].kill()
        rest = threading.Thread(target=client.read, args=(ports[1],), kwargs={"again": client.last_id()})
        rest.start()
        until = time.monotonic() + patience(20)
        while len(client.events) < 20:
            assert time.monotonic() < until and client.status == 200, getattr(client, "error", None)
            time.sleep(0.01)
        busy = [w for w in c.workers if w.status()["running"]]
        assert len(busy) == 1, [w.status() for w in c.workers]
        busy[0].kill()
        rest.join()
        assert client.is_over() and client.text() == plain.text(), (client.events[-1], plain.events[-1])
        assert client.n_tokens() == 120 == plain.n_tokens()


def a_silent_worker_loses_no_stream():
    """A worker that does not reply may have the stream: its client gets 503 and comes back.  It must not get 404."""
    with Cluster() as c:
        links = two_routers(c)
        worker = c.worker("decode", link__routers=links, **{**LONG, "engine__sim_step": "10ms"})
        wait_both(c, 0, 1)
        ports = [r.http for r in c.routers]
        client, plain = (Client(*chat("a question", max_tokens=300, seed=3)) for _ in range(2))
        plain.run([ports[1]])
        client.read(ports[0], most=8)
        c.routers[0].kill()
        worker.kill(signal.SIGSTOP)
        try:
            client.read(ports[1], again=client.last_id())
            assert client.status == 503 and client.error["error"]["type"] == "server_error", (client.status, client.error)
            assert len(client.events) == 8
        finally:
            worker.kill(signal.SIGCONT)
        until = time.monotonic() + patience(20)
        while not client.is_over():
            assert time.monotonic() < until, (client.status, client.error)
            client.read(ports[1], again=client.last_id())
            time.sleep(0.05)
        assert client.text() == plain.text(), (client.text()[:300], plain.text()[:300])


def many_streams_survive():
    """A hundred streams and more on simulated workers.  Nothing is computed twice."""
    n = 90
    with Cluster() as c:
        links = two_routers(c, http__max_per_address="2000", queue__max="1000")
        for _ in range(2):
            c.worker("decode", link__routers=links, engine__kind="sim", sched__max_seqs="256", engine__sim_step="5ms",
                     engine__sim_decode_seq="10us", engine__sim_answer_tokens="2000", kv__memory="256MiB")
        wait_both(c, 0, 2)
        ports = [r.http for r in c.routers]
        clients = [Client(*(messages if i % 2 else chat)(f"question {i}", max_tokens=200)) for i in range(n)]
        threads = [threading.Thread(target=client.run, args=(ports,)) for client in clients]
        for thread in threads:
            thread.start()
        until = time.monotonic() + patience(30)
        while sum(len(client.events) > 3 or client.is_over() for client in clients) < n:
            assert time.monotonic() < until
            time.sleep(0.02)
        c.routers[0].kill()
        for thread in threads:
            thread.join()
        assert all(client.is_over() for client in clients)
        resumed = [client for client in clients if client.n_resumed > 0]
        assert len(resumed) > n // 4, len(resumed)
        for client in resumed[::5]:
            assert_same(whole_of(ports[1], client), client)
        said = sum(client.n_tokens() for client in clients)
        drawn = sum(w.metric("baton_worker_drawn_tokens_total") for w in c.workers)
        assert said <= drawn <= said + 3 * n, (said, drawn)  # an answer may have a stop token; the warm-up draws a few
        assert c.routers[1].metric("baton_router_redispatched_total") == 0
        assert sum(w.metric("baton_worker_tails_resumed_total") for w in c.workers) >= len(resumed)
        assert sum(w.metric("baton_worker_orphans_cancelled_total") for w in c.workers) == 0
        c.assert_quiet()


def a_router_and_a_worker_at_once():
    """The stream's router and its only worker with a tail are killed together: other workers keep its order, and one computes the
    answer again.  When streams end, their orders go."""
    n = 12
    with Cluster() as c:
        links = two_routers(c, cache__replay_memory="0", cache__thread_memory="0")
        for _ in range(3):
            c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="10ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 3)
        ports = [r.http for r in c.routers]
        clients = [Client(*(messages if i % 2 else chat)(f"question {i} {PROMPT}", max_tokens=800)) for i in range(n)]
        threads = [threading.Thread(target=client.run, args=([ports[0], ports[1]],)) for client in clients]
        for thread in threads:
            thread.start()
        until = time.monotonic() + patience(30)
        while sum(len(client.events) > 5 for client in clients) < n:
            assert time.monotonic() < until
            time.sleep(0.01)
        victim = max(c.workers, key=lambda worker: worker.status()["tasks"])
        c.routers[0].kill()
        victim.kill()
        for thread in threads:
            thread.join()
        resumed = [client for client in clients if client.n_resumed > 0]
        assert len(resumed) > n // 2, len(resumed)
        for client in resumed:
            assert_same(whole_of(ports[1], client), client)
        assert c.routers[1].metric('baton_kept_asks_total{result="found"}') > 0
        until = time.monotonic() + patience(20)
        while sum(w.metric("baton_worker_kept ") for w in c.workers if w is not victim) > 0:
            assert time.monotonic() < until, "orders of ended streams are kept"
            time.sleep(0.1)
        c.assert_quiet()


def a_busy_fleet_finishes_streams_that_come_back():
    """What is left after a router and a worker are killed has no free seat, and no first token would keep the objective."""
    with Cluster() as c:
        links = two_routers(c, slo__ttft="200ms", queue__timeout="500ms")
        for _ in range(2):
            c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="10ms", engine__sim_answer_tokens="100000",
                     sched__max_seqs="2")
        wait_both(c, 0, 2)
        ports = [r.http for r in c.routers]
        clients = []
        for i in range(4):  # two at each worker
            clients.append(Client(*(messages if i % 2 else chat)(f"{i} {PROMPT}", max_tokens=120)))
            clients[i].read(ports[0], most=3)
            assert clients[i].status == 200, clients[i].error
        c.routers[0].kill()
        c.workers[0].kill()
        threads = [threading.Thread(target=client.read, args=(ports[1],), kwargs={"again": client.last_id()}) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(client.status == 200 and client.is_over() for client in clients), [(client.status, getattr(client, "error", None)) for client in clients]
        assert all(client.n_tokens() == 120 for client in clients)


def a_paused_stream_survives_its_router():
    """No worker has a tail of a paused stream.  Its only worker keeps the order, because the stream may be paused."""
    with Cluster() as c:
        links = two_routers(c, slo__itl="10s", classes__class=["default priority=10", "low priority=0 may-be-paused=10min"])
        c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="15ms", engine__sim_answer_tokens="100000",
                 sched__max_seqs="1", sched__itl="10s")
        wait_both(c, 0, 1)
        ports = [r.http for r in c.routers]
        path, body = chat("low " + PROMPT, seed=3, max_tokens=100)
        want = Client(path, body).run([ports[1]]).text()
        low, high = Client(path, body, {"baton-class": "low"}), Client(*chat("high " + PROMPT, max_tokens=400))
        readers = [threading.Thread(target=client.read, args=(ports[0],)) for client in (low, high)]
        for reader, client in zip(readers, (low, high)):
            reader.start()
            until = time.monotonic() + patience(20)
            while len(client.events) < 5:
                assert time.monotonic() < until and reader.is_alive(), (client.status, client.events)
                time.sleep(0.01)
        assert c.routers[0].status()["paused"] == 1
        c.routers[0].kill()
        for reader in readers:
            reader.join()
        assert not low.is_over()
        low.n_resumed, until = 1, time.monotonic() + patience(60)
        while not low.is_over():
            assert time.monotonic() < until and low.status in (200, 503), (low.status, low.error)
            low.read(ports[1], again=low.last_id())
            time.sleep(0.05)
        assert low.text() == want, (low.text(), want)
        assert_same(whole_of(ports[1], low), low)
        c.assert_quiet(timeout=60)


def streams_that_the_prefill_worker_ends_are_kept():
    """One token, by the limit: the decode worker has none of it, and keeps the tail all the same.  It reads prompts slowly, so
    that the prefill worker gets them also on a busy machine."""
    with Cluster() as c:
        c.router()
        c.worker("prefill", engine__kind="sim", engine__sim_prefill_token="10us", engine__sim_answer_tokens="100000")
        c.worker("decode", engine__kind="sim", engine__sim_prefill_token="5ms", engine__sim_answer_tokens="100000")
        c.wait_ready(prefill=1, decode=1)
        port = c.routers[0].http
        for path, body in (messages("one " + PROMPT * 4, max_tokens=1), chat("two " + PROMPT * 4, max_tokens=1, seed=1)):
            first = Client(path, body)
            first.read(port)
            assert first.is_over() and first.status == 200, (first.status, first.events)
            again = Client(path, body)
            again.read(port, again=first.request_id)
            assert again.status == 200, again.error
            assert again.bytes() == first.bytes(), (again.bytes(), first.bytes())
            rest = Client(path, body)
            rest.read(port, again=re.match(rb"id: (\S+)\n", first.events[0]).group(1).decode())
            assert rest.bytes() == b"".join(first.events[1:]), (rest.status, rest.bytes(), first.bytes())
        assert c.workers[0].metric('baton_worker_prompt_tokens_total{how="computed"}') > 0 == c.workers[1].metric(
            'baton_worker_prompt_tokens_total{how="computed"}'), "the prefill worker did not read the prompts"
        c.assert_quiet()


def a_stream_is_its_keys():
    """Another tenant, another body, a made-up id: 404 or 400, and the stream goes on for its owner."""
    with Cluster() as c:
        keys = f"{c.dir}/keys"
        with open(keys, "w") as f:
            for tenant in ("a", "b"):
                f.write(f"{hashlib.sha256(tenant.encode()).hexdigest()}  team-{tenant}\n")
        os.chmod(keys, 0o600)
        links = two_routers(c, http__api_keys=keys)
        c.worker("decode", link__routers=links, stream__grace="2s", engine__kind="sim", engine__sim_step="20ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 1)
        ports = [r.http for r in c.routers]
        mine = Client(*messages("mine " + PROMPT, max_tokens=400), headers={"x-api-key": "a"})
        mine.read(ports[0], most=10)
        mine.leave()
        # its connection is closed: the living router ends the work, and no tail is left
        time.sleep(0.3)
        c.assert_quiet()
        mine.read(ports[1], again=mine.last_id())
        assert mine.status == 404, mine.status
        mine = Client(*messages("mine " + PROMPT, max_tokens=400), headers={"x-api-key": "a"})
        reader = threading.Thread(target=mine.read, args=(ports[0],))
        reader.start()
        while len(mine.events) < 10:
            assert reader.is_alive(), (mine.status, mine.events)
            time.sleep(0.01)
        c.routers[0].kill()
        reader.join()
        last = mine.last_id()
        for body, key, again, status in ((mine.body, "b", last, 404), (mine.body.replace("mine", "mind"), "a", last, 404),
                                         (mine.body, "a", last[:-1] + "x", 400), (mine.body, "a", last.replace(".", ".1", 1), 400),
                                         (mine.body.replace('"stream": true', '"stream": false'), "a", last, 400)):
            other = Client(mine.path, {}, headers={"x-api-key": key})
            other.body = body
            other.read(ports[1], again=again)
            assert other.status == status, (other.status, status, again)
        mine.read(ports[1], most=20, again=last)
        mine.leave()
        assert len(mine.events) == 20 and mine.status == 200, (len(mine.events), mine.status, getattr(mine, "error", None))
        c.assert_quiet()


def work_ends_with_the_grace():
    with Cluster() as c:
        links = two_routers(c)
        worker = c.worker("decode", link__routers=links, stream__grace="1s", engine__kind="sim", engine__sim_step="20ms",
                          engine__sim_answer_tokens="100000")
        wait_both(c, 0, 1)
        client = Client(*messages("long " + PROMPT, max_tokens=3000))
        reader = threading.Thread(target=client.read, args=(c.routers[0].http,))
        reader.start()
        while len(client.events) < 5:
            time.sleep(0.01)
        c.routers[0].kill()
        reader.join()
        time.sleep(0.3)
        assert worker.status()["tasks"] == 1
        c.assert_quiet(timeout=5)
        assert worker.metric("baton_worker_orphans_cancelled_total") == 1
        client.read(c.routers[1].http, again=client.last_id())
        assert client.status == 404, client.status
        status, _, body = fetch(c.routers[1].http, "POST", client.path, json.loads(client.body) | {"max_tokens": 3, "stream": False})
        assert status == 200, body


def a_stopped_router_leaves_its_streams():
    """Streams longer than stop.drain_timeout (2 s here) are no errors: they end without their last event, and go on."""
    with Cluster() as c:
        links = two_routers(c)
        c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="20ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 1)
        ports = [r.http for r in c.routers]
        clients = [Client(*(messages if i % 2 else chat)(f"question {i}", max_tokens=150)) for i in range(6)]
        threads = [threading.Thread(target=client.run, args=(ports,)) for client in clients]
        for thread in threads:
            thread.start()
        while not all(len(client.events) > 3 or client.is_over() for client in clients):
            time.sleep(0.02)
        assert c.routers[0].stop() == 0
        for thread in threads:
            thread.join()
        assert sum(client.n_resumed > 0 for client in clients) >= len(clients) // 2  # some answers are short
        for client in clients:
            assert_same(whole_of(ports[1], client), client)
        assert sum(w.metric("baton_worker_drawn_tokens_total") for w in c.workers) <= 150 * len(clients) + 3 * len(clients)


def thread(router, ident=None, **fields):
    """A whole answer that begins a thread, or continues the one of the answer `ident`: the status and the body."""
    status, _, body = fetch(router.http, "POST", "/v1/messages", messages("go on", **THREAD, **fields, thread=link_of(ident))[1])
    return status, json.loads(body)


def link_of(ident):
    return {"type": "create"} if ident is None else {"type": "continue", "previous_message_id": ident}


def stream_of(ident, **fields):
    return Client(*messages("and then?", **THREAD, **fields, thread=link_of(ident)))


def assert_is_over(router, ident):
    status, answer = thread(router, ident)
    assert status == 400 and answer["error"]["details"]["error_code"] == "thread_already_continued", (status, answer)


def id_of(client):
    return re.search(rb'"id": ?"(msg_\w+)"', client.events[0]).group(1).decode()


THREAD = {"max_tokens": 2000, "temperature": 0}


def streams_that_continue_a_thread_survive():
    """The thread stays continued by its first request: after the stream's end, while it is open, and when its router is gone."""
    with Cluster() as c:
        links = two_routers(c)
        for _ in range(2):
            c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="10ms", engine__sim_answer_tokens="40")
        wait_both(c, 0, 2)
        a, b = c.routers
        firsts = [thread(a)[1]["id"] for _ in range(3)]
        # after its end, at the same router and at another one
        client = stream_of(firsts[0])
        client.run([a.http])
        for router in (a, b):
            assert_same(whole_of(router.http, client), client)
            assert_is_over(router, firsts[0])
        # while the first connection is open
        client, other = stream_of(firsts[1]), stream_of(firsts[1])
        client.read(a.http, most=4)
        other.read(a.http, again=client.last_id().rsplit(".", 1)[0] + ".0")
        assert other.status == 200 and other.is_over() and other.events[:4] == client.events, getattr(other, "error", None)
        client.leave()
        assert_is_over(a, firsts[1])
        assert_is_over(b, firsts[1])
        # its router is killed; the next turn continues the resumed answer
        client = stream_of(firsts[2])
        client.read(a.http, most=4)
        a.kill()
        client.read(b.http, again=client.last_id())
        assert client.status == 200 and client.is_over(), getattr(client, "error", None)
        assert_same(whole_of(b.http, client), client)
        assert_is_over(b, firsts[2])
        status, answer = thread(b, id_of(client))
        assert status == 200, answer


def a_response_is_completed_once():
    """A resumed stream has the time of its end, whether the worker found the end or the router (a stop string)."""
    with Cluster() as c:
        links = two_routers(c)
        c.worker("decode", link__routers=links)
        wait_both(c, 0, 1)
        a, b = c.routers
        clients = [Client("/v1/responses", {"model": "baton-demo", "input": "What is TTFT?", "temperature": 0, "store": False, **more})
                   for more in ({}, {"stop": [" queue"]})]
        for client in clients:
            client.run([a.http])
        completed = [int(re.search(rb'"completed_at": ?(\d+)', client.events[-1]).group(1)) for client in clients]
        while time.time() < max(completed) + 1.1:
            time.sleep(0.05)
        for client in clients:
            for router in (a, b, a):
                assert_same(whole_of(router.http, client), client)


main([streams_survive_a_killed_router, streams_that_the_prefill_worker_ends_are_kept, prompts_in_pieces_survive, a_silent_worker_loses_no_stream, many_streams_survive, a_router_and_a_worker_at_once, a_busy_fleet_finishes_streams_that_come_back,
      a_paused_stream_survives_its_router, a_stopped_router_leaves_its_streams, streams_that_continue_a_thread_survive, a_response_is_completed_once, a_stream_is_its_keys, work_ends_with_the_grace])
