#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several routers keep in a shared store (state.url), against a real redis-server.  Each router has workers of its
own here, so the store is all that they have in common.  The store is stopped, killed, filled and filled with garbage in
the middle of requests: no request fails for it."""
import http.client
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, fetch, main, patience  # noqa: E402
from redis_server import Redis, certificate, want  # noqa: E402
from resume_client import Client, assert_same, chat, messages, whole_of  # noqa: E402
from test_remote_cluster import Servers  # noqa: E402
from test_fair import Client as Flooder, make_keys, tokens_of  # noqa: E402
from test_fair_routers import SIM, TURNS  # noqa: E402
from test_common_limits import RPM, flood, metric_of, new_keys, wait_shared  # noqa: E402

COUNT = "/v1/messages/count_tokens"


def wait_until(what, why):
    until = time.monotonic() + patience(20)
    while not what():
        assert time.monotonic() < until, why() if callable(why) else why
        time.sleep(0.05)


def wait_up(routers, is_up=1):
    wait_until(lambda: all(metric_of(r, "baton_state_up") == is_up for r in routers),
               lambda: [r.tail() for r in routers])


SIMULATED = {"engine__kind": "sim", "engine__sim_step": "1ms", "engine__sim_decode_seq": "10us",
             "engine__sim_answer_tokens": "10"}


def add_router(c, redis, keys=None, engine=SIMULATED, **settings):
    """A router with a worker of its own."""
    if keys is not None:
        settings["http__api_keys"] = keys
    router = c.router(**{"state__url": redis.url, "state__wait": "1s", **settings})
    c.worker("decode", link__routers=[f"127.0.0.1:{router.link}"], kv__memory="64MiB", **engine)
    return router


def wait_served(c):
    for _ in range(len(c.routers)):
        c.wait_ready(decode=1)
        c.routers.append(c.routers.pop(0))
    wait_up(c.routers)


def fleet(c, redis, n, keys=None, **settings):
    for _ in range(n):
        add_router(c, redis, keys, **settings)
    wait_served(c)


def log_lines(daemon, event):
    with open(daemon.log_path, errors="replace") as f:
        return [line for line in f if f'"{event}"' in line]


def assert_limit(spent, took, most=1.05, least=0.9):
    limit = RPM * (1 + took / 60)
    print(f"    {spent} of {limit:.0f}: {spent / limit:.3f} in {took:.1f} s")
    assert least * limit - 2 <= spent <= most * limit + 1, (spent, limit)


def three_routers_admit_one_limit():
    """Also: a router that starts later knows how full the limit is."""
    with Redis() as redis, Cluster() as c:
        path, keys = new_keys(c, team=f"rpm={RPM}")
        fleet(c, redis, 3, path)
        wait_shared(c.routers, 3)
        began = time.monotonic()
        admitted, _, _ = flood(c.routers, keys["team"], COUNT, 3)
        assert_limit(sum(admitted), time.monotonic() - began)
        assert min(admitted) > 0.05 * RPM, admitted
        late = add_router(c, redis, path)
        wait_served(c)
        wait_shared([late], 4)
        more, _, _ = flood([late], keys["team"], COUNT, 1)
        assert_limit(sum(admitted) + sum(more), time.monotonic() - began)
        assert c.routers[0].status()["state_store_up"] is True
        assert not any(b"team" in (redis("DUMP", k) or b"") for k in redis.keys())
        assert all(redis("TTL", k) > 0 for k in redis.keys()), [(k, redis("TTL", k)) for k in redis.keys()]


def a_router_that_restarts_does_not_share_with_itself():
    """Its former life is over for it, and a router that died just before it began is watched like any other."""
    with Redis() as redis, Cluster() as c:
        path, keys = new_keys(c, team=f"rpm={RPM}")
        fleet(c, redis, 2, path)
        wait_shared(c.routers, 2)
        first, second = c.routers
        flood(c.routers, keys["team"], COUNT, 1)
        first.kill()
        first.start()
        wait_served(c)
        wait_shared([first, second], 2)
        second.kill()
        first.kill()
        first.start()
        wait_until(lambda: log_lines(first, "limits_router_cut"), first.tail)
        assert metric_of(first, "baton_limits_routers ") == 2


def a_ban_is_seen_by_all():
    with Redis() as redis, Cluster() as c:
        path, keys = new_keys(c, team="rpm=100000")
        fleet(c, redis, 3, path, http__wrong_keys="6")

        def ask(router, key):
            return fetch(router.http, "GET", "/v1/models", headers={"x-api-key": key})[0]

        # the same wrong key counts once, at whichever router
        assert [ask(c.routers[i % 3], "wrong") for i in range(12)] == [401] * 12
        time.sleep(0.5)
        assert ask(c.routers[1], keys["team"]) == 200
        assert all(ask(c.routers[0], f"wrong {i}") in (401, 429) for i in range(8))
        assert ask(c.routers[0], keys["team"]) == 429
        for router in c.routers[1:]:
            wait_until(lambda r=router: ask(r, keys["team"]) == 429, "the ban did not reach the other routers")
        late = c.router(state__url=redis.url, http__api_keys=path, http__wrong_keys="6")
        wait_up([late])
        wait_until(lambda: ask(late, keys["team"]) == 429, "a router that starts later does not know of the ban")


def send(router, path, body, key=None, method="POST"):
    headers = {"content-type": "application/json", **({"x-api-key": key} if key else {})}
    status, _, answer = fetch(router.http, method, path, body, headers)
    return status, json.loads(answer)


def message(router, text, key=None, **fields):
    return send(router, "/v1/messages", {"model": "baton-demo", "max_tokens": 400, "temperature": 1, "seed": 5,
                                         "messages": [{"role": "user", "content": text}], **fields}, key)


def n_prompt(answer):
    """Tokens of its prompt, cached or not."""
    return sum(answer["usage"][k] or 0 for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))


def continued(router, last, text, key=None):
    return message(router, text, key, thread={"type": "continue", "previous_message_id": last})


def conversations_go_on_at_any_router():
    """Threads, once; responses, any number of times; each its tenant's only."""
    with Redis() as redis, Cluster() as c:
        path, keys = new_keys(c, one="rpm=100000", two="rpm=100000")
        fleet(c, redis, 3, path, engine={})
        a, b, other = c.routers
        status, first = message(a, "hello there", keys["one"], thread={"type": "create"})
        assert status == 200, first
        wait_until(lambda: any(b":thread:" in k for k in redis.keys()), "the thread is not in the store")
        status, answer = continued(b, first["id"], "and then?", keys["two"])
        assert status == 404, answer
        status, second = continued(b, first["id"], "and then?", keys["one"])
        assert status == 200, second
        # as the whole conversation would go on, at a router that was given it in full
        status, whole = send(other, "/v1/messages", {
            "model": "baton-demo", "max_tokens": 400, "temperature": 1, "seed": 5, "messages": [
                {"role": "user", "content": "hello there"}, {"role": "assistant", "content": first["content"]},
                {"role": "user", "content": "and then?"}]}, keys["one"])
        assert status == 200 and whole["content"] == second["content"] and n_prompt(whole) == n_prompt(second), (whole, second)
        for router in c.routers:
            status, answer = continued(router, first["id"], "again", keys["one"])
            assert status == 400 and "continued already" in answer["error"]["message"], (router.name, answer)
        status, third = continued(other, second["id"], "and now?", keys["one"])
        assert status == 200, third
        assert not any(b"hello" in (redis("DUMP", k) or b"") for k in redis.keys())

        def respond(router, **fields):
            return send(router, "/v1/responses", {"model": "baton-demo", "max_output_tokens": 100, "temperature": 0, **fields},
                        keys["one"])

        status, kept = respond(a, input="hello there")
        assert status == 200, kept
        wait_until(lambda: any(b":response:" in k for k in redis.keys()), "the response is not in the store")
        sizes = set()
        for router in c.routers + c.routers:
            status, answer = respond(router, input="go on", previous_response_id=kept["id"])
            assert status == 200, answer
            sizes.add(answer["usage"]["input_tokens"])
        assert len(sizes) == 1 and min(sizes) > kept["usage"]["input_tokens"], sizes
        where = "/v1/responses/" + kept["id"]
        late = add_router(c, redis, path, engine={})
        wait_served(c)
        assert send(late, where, None, keys["two"], "GET")[0] == 404
        status, shown = send(late, where, None, keys["one"], "GET")
        assert status == 200 and shown["output"] == kept["output"], shown
        assert send(late, where, None, keys["one"], "DELETE")[0] == 200
        wait_until(lambda: all(send(r, where, None, keys["one"], "GET")[0] == 404 for r in c.routers),
                   "a deleted response is still shown")
        # one that is deleted while the store is away is gone when it is back, also where another router had it
        status, kept = respond(a, input="hello again")
        assert status == 200, kept
        where = "/v1/responses/" + kept["id"]
        wait_until(lambda: send(b, where, None, keys["one"], "GET")[0] == 200, "the response is not in the store")
        redis.pause()
        wait_up([a], 0)
        assert send(a, where, None, keys["one"], "DELETE")[0] == 200
        redis.resume()
        wait_up(c.routers)
        wait_until(lambda: all(send(r, where, None, keys["one"], "GET")[0] == 404 for r in c.routers),
                   "a response that was deleted while the store was away is shown")


def remembered_answers_are_found_by_all():
    """A conversation that comes back at another router continues with the tokens that were sampled."""
    with Redis() as redis, Cluster() as c:
        fleet(c, redis, 2, engine={})
        a, b = c.routers
        status, first = message(a, "tell me")
        assert status == 200, first
        wait_until(lambda: any(b":answer:" in k for k in redis.keys()), "the answer is not in the store")
        found = 'baton_prompt_answers_total{replayed="yes"}'
        back = {"model": "baton-demo", "max_tokens": 100, "temperature": 0, "messages": [
            {"role": "user", "content": "tell me"}, {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": "more"}]}
        results = []
        for router in (b, a):
            before = router.metric(found)
            status, answer = send(router, "/v1/messages", back)
            assert status == 200, answer
            assert router.metric(found) == before + 1, (router.name, router.metric(found))
            results.append(answer)
        assert results[0]["content"] == results[1]["content"]
        assert n_prompt(results[0]) == n_prompt(results[1]) > n_prompt(first), results


def a_stream_goes_on_at_a_router_with_other_workers():
    """One of three routers is killed under streams, its worker with it.  Clients that come back elsewhere get the same
    bytes, from the next one on."""
    with Redis() as redis, Cluster() as c:
        path, keys = new_keys(c, one="rpm=100000", two="rpm=100000")
        slow = {**SIMULATED, "engine__sim_step": "10ms", "engine__sim_answer_tokens": "2000", "sched__max_seqs": "64"}
        fleet(c, redis, 3, path, engine=slow, http__max_per_address="2000")
        ports = [r.http for r in c.routers]
        clients = []
        for i in range(24):
            api, body = (messages if i % 2 else chat)(f"question {i}", max_tokens=240)
            clients.append(Client(api, body, headers={"x-api-key": keys["one"]}))
        threads = [threading.Thread(target=client.run, args=(ports,)) for client in clients]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(len(client.events) > 3 or client.is_over() for client in clients), "streams do not begin")
        c.routers[0].kill()
        c.workers[0].kill()
        for thread in threads:
            thread.join()
        resumed = [client for client in clients if client.n_resumed > 0]
        assert all(client.is_over() for client in clients) and len(resumed) > len(clients) // 4, len(resumed)
        assert sum(len(log_lines(r, "stream_restarted")) for r in c.routers[1:]) >= len(resumed)
        for client in resumed[:6]:  # each stream from its first byte, at the router that did not go on with it
            assert_same(whole_of(ports[2], client), client)
        stranger = Client(resumed[0].path, {}, headers={"x-api-key": keys["two"]})
        stranger.body = resumed[0].body
        stranger.read(ports[1], again=resumed[0].last_id())
        assert stranger.status in (400, 404), stranger.status
        assert not any(b"question" in (redis("DUMP", k) or b"") for k in redis.keys())


def a_stream_that_may_come_back_is_kept():
    """It is computed again at a router whose worker is away, so it waits for a worker, and fails with a time to come back."""
    with Redis() as redis, Cluster() as c:
        slow = {**SIMULATED, "engine__sim_step": "10ms", "engine__sim_answer_tokens": "2000"}
        fleet(c, redis, 2, engine=slow, queue__resume_timeout="500ms")
        port = c.routers[1].http
        api, body = messages("question", max_tokens=60)
        client = Client(api, body)
        client.read(c.routers[0].http, most=5)
        assert client.status == 200, client.error
        for daemon in (c.workers[1], c.routers[0], c.workers[0]):
            daemon.kill()
        statuses, until = [], time.monotonic() + patience(30)
        while not client.is_over():
            assert time.monotonic() < until and 404 not in statuses, (statuses, client.error)
            client.read(port, again=client.last_id())
            statuses.append(client.status)
            if len(log_lines(c.routers[1], "stream_restarted")) == 2 and len(c.workers) == 2:  # once in vain
                c.worker("decode", link__routers=[f"127.0.0.1:{c.routers[1].link}"], kv__memory="64MiB", **slow)
            time.sleep(0.05)
        assert 503 in statuses and len(log_lines(c.routers[1], "stream_restarted")) > 2, statuses
        assert_same(whole_of(port, client), client)


def a_tenant_at_two_routers_takes_no_second_share():
    """Eighty requests in flight through each of two routers of one worker, against sixteen through one."""
    with Redis() as redis, Cluster() as c:
        Flooder.ends.clear()
        path, keys = make_keys(c, many=0, few=0)
        for _ in range(2):
            c.router(http__api_keys=path, state__url=redis.url, http__max_per_address="2000", **TURNS)
        c.worker("decode", link__routers=[f"127.0.0.1:{r.link}" for r in c.routers], **SIM)
        wait_served(c)
        served = tokens_of([Flooder(c.routers[router].http, keys[name], name, 100, 16).flood(n)
                            for name, router, n in (("many", 0, 80), ("many", 1, 80), ("few", 1, 16))], 30, 100)
        print(f"    {served}: {served['many'] / served['few']:.2f} to 1")
        assert served["many"] <= 2.2 * served["few"], served


def a_store_may_want_a_login_and_tls_or_be_a_cluster():
    with Cluster() as c:
        login = os.path.join(c.dir, "login")
        tls = certificate(c.dir, "store")
        with open(login, "w") as f:
            f.write("secret\n")
        os.chmod(login, 0o600)
        with Redis("--requirepass", "secret", tls=tls) as redis:
            add_router(c, redis, state__login=login, state__ca=tls[0])
            wait_served(c)
            wrong = c.router(state__url=redis.url.replace("://", "://:wrong@"), state__ca=tls[0])
            wait_until(lambda: log_lines(wrong, "state_store_down"), "a wrong password is not told")
            assert "WRONGPASS" in log_lines(wrong, "state_store_down")[0] and "wrong@" not in log_lines(wrong, "state_store_down")[0]
            stranger = c.router(state__url=redis.url, state__login=login)
            wait_until(lambda: log_lines(stranger, "state_store_down"), "an unknown certificate is not told")
            assert metric_of(wrong, "baton_state_up") == metric_of(stranger, "baton_state_up") == 0
    with Cluster() as c, Servers(c.dir) as servers:
        path, keys = new_keys(c, team=f"rpm={RPM}")
        fleet(c, servers, 2, path)
        wait_shared(c.routers, 2)
        admitted, _, took = flood(c.routers, keys["team"], COUNT, 1)
        assert_limit(sum(admitted), took)
        status, answer = message(c.routers[0], "hello", keys["team"])
        assert status in (200, 429), answer
        # the server that has the names dies: its replica takes over, or each router goes on alone
        holder = next(i for i, server in enumerate(servers.all[:3]) if server.keys())
        servers.all[holder].kill()
        wait_up(c.routers, 0)
        assert send(c.routers[0], COUNT, {"model": "baton-demo", "messages": [{"role": "user", "content": "hello"}]},
                    keys["team"])[0] in (200, 429)


class Load:
    """Requests at all routers, one after another at each; none may fail."""

    def __init__(self, routers, key=None):
        self.n, self.fault, self.is_over = 0, None, False
        self.threads = [threading.Thread(target=self.run, args=(r.http, key)) for r in routers]
        for thread in self.threads:
            thread.start()

    def run(self, port, key):
        headers = {"content-type": "application/json", **({"x-api-key": key} if key else {})}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(30))
        messages = []
        try:
            while not self.is_over:
                messages = (messages + [{"role": "user", "content": f"hello {self.n}"}])[-9:]
                connection.request("POST", "/v1/messages", json.dumps(
                    {"model": "baton-demo", "max_tokens": 64, "messages": messages}), headers)
                response = connection.getresponse()
                body = json.loads(response.read())
                assert response.status == 200, (response.status, body)
                messages.append({"role": "assistant", "content": body["content"] or "nothing"})
                self.n += 1
        except (OSError, http.client.HTTPException, AssertionError) as e:
            self.fault = e
        connection.close()

    def proceed(self, n=30):
        """Waits for n more requests."""
        want_n = self.n + n
        wait_until(lambda: self.fault is not None or self.n >= want_n, "requests do not go on")
        if self.fault is not None:
            raise self.fault

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        if self.fault is not None:
            raise self.fault


def no_fault_of_the_store_fails_a_request():
    """Stopped, killed, full, emptied, and full of garbage: each router goes on, says so once, and comes back."""
    with Redis() as redis, Cluster() as c:
        path, keys = new_keys(c, team="rpm=1000000", small=f"rpm={RPM}")
        fleet(c, redis, 2, path)
        wait_shared(c.routers, 2)
        load = Load(c.routers, keys["team"])
        load.proceed()
        n_down = 0

        def is_left(down, up):
            nonlocal n_down
            down()
            wait_up(c.routers, 0)
            load.proceed()
            n_down += 1
            assert all(len(log_lines(r, "state_store_down")) == n_down for r in c.routers), \
                [log_lines(r, "state_store_down") for r in c.routers]
            assert c.routers[0].status()["state_store_up"] is False
            up()
            wait_up(c.routers)
            load.proceed()

        is_left(redis.pause, redis.resume)
        is_left(redis.kill, redis.start)

        def fill():
            redis("CONFIG", "SET", "maxmemory-policy", "noeviction")
            redis("CONFIG", "SET", "maxmemory", "1mb")

        is_left(fill, lambda: redis("CONFIG", "SET", "maxmemory", "0"))
        redis("FLUSHALL")
        load.proceed()
        # garbage under right names: values and messages that do not open, and names of another type
        for name in redis.keys():
            if b":news:" in name:
                for i in range(300):
                    redis("XADD", name, "*", "s", b"batonst1" + os.urandom(200))
            else:
                redis("SET", name, os.urandom(300), "EX", "600")
        load.proceed(100)
        wait_until(lambda: all(metric_of(r, "baton_state_damaged_total") >= 300 for r in c.routers), "garbage was not counted")
        load.end()
        for r in c.routers:
            assert len(log_lines(r, "state_store_up")) == n_down + 1
        # without the store each router has its own share of a limit
        redis.kill()
        wait_up(c.routers, 0)
        began = time.monotonic()
        admitted, _, _ = flood(c.routers, keys["small"], COUNT, 2)
        assert_limit(sum(admitted), time.monotonic() - began, least=0.3)
        redis.start()


if __name__ == "__main__":
    want()
    main([three_routers_admit_one_limit, a_router_that_restarts_does_not_share_with_itself, a_ban_is_seen_by_all, conversations_go_on_at_any_router,
          remembered_answers_are_found_by_all, a_stream_goes_on_at_a_router_with_other_workers, a_stream_that_may_come_back_is_kept,
          a_tenant_at_two_routers_takes_no_second_share, a_store_may_want_a_login_and_tls_or_be_a_cluster,
          no_fault_of_the_store_fails_a_request])
