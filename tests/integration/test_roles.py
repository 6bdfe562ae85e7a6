# SPDX-License-Identifier: Apache-2.0
"""Roles that change while workers run: at once, without losing a stream, a cached block or a bit."""
import http.client
import os
import random
import signal
import subprocess
import threading
import time

from cluster import BUILD, Cluster, fetch, in_threads, main, patience

LONG = ("The relay hands the baton over: who reads the prompt, who writes the answer, and what moves between the two? " * 3).strip()


def ctl(daemon, *arguments):
    return subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", daemon.cluster.key, "--admin",
                           f"127.0.0.1:{daemon.admin}", *arguments], capture_output=True, text=True, timeout=patience(30))


def role_of(router, node):
    return next(w["role"] for w in router.status()["workers"] if w["node"] == node)


def set_role(daemon, node, role):
    """Through batonctl, which returns when the daemon shows the role.  Returns the seconds that it took."""
    began = time.monotonic()
    said = ctl(daemon, "role", node, role)
    assert said.returncode == 0, said.stderr
    assert f"{node}: {role}, effective after" in said.stdout, said.stdout
    return time.monotonic() - began


def wait_role(router, node, role):
    until = time.monotonic() + patience(5)
    while role_of(router, node) != role:
        assert time.monotonic() < until, (node, role_of(router, node))
        time.sleep(0.01)


def prompts(n):
    return [f"Question {i}. {LONG} Answer number {i}." for i in range(n)]


def roles_change_and_are_seen():
    with Cluster() as c:
        c.relay()
        router, prefill, decode = c.routers[0], *c.workers
        alone = c.ask(LONG)
        assert (alone.serving["prefill"], alone.serving["decode"]) == ("prefill0", "decode0"), alone.serving
        # the two workers change places: one through the router, one through its own admin port
        set_role(router, "prefill0", "decode")
        set_role(decode, "decode0", "prefill")
        wait_role(router, "decode0", "prefill")
        assert prefill.status()["role"] == "decode" and decode.status()["role"] == "prefill"
        assert prefill.status()["daemon"] == "baton-prefill"
        assert prefill.metric('baton_worker_role{role="decode"}') == 1
        assert prefill.metric('baton_worker_role{role="prefill"}') == 0
        assert prefill.metric("baton_worker_role_changes_total") == 1
        back = c.ask("Now the other way round. " + LONG)
        assert (back.serving["prefill"], back.serving["decode"]) == ("decode0", "prefill0"), back.serving
        assert any(p["node"] == "prefill0" and p.get("role") == "decode" for p in decode.status()["peers"]), decode.status()["peers"]
        # the cache was kept: the prompt of the first request is still on both
        again = c.ask(LONG)
        assert again.text == alone.text and again.usage["cache_read_input_tokens"] > 0, again.usage
        # prompts of any length are the work of a worker for both phases; a decode worker takes them when it must
        set_role(router, "prefill0", "both")
        set_role(router, "decode0", "decode")
        detail = fetch(router.http, "GET", "/readyz?verbose")[2]
        assert b"workers of both roles: 1" in detail and b"prefill workers: 0" in detail, detail
        for i in range(3):
            both = c.ask(f"And one worker for both, {i}. " + LONG)
            assert both.serving["decode"] == "prefill0" and not both.serving.get("prefill"), both.serving
        c.assert_quiet()


def orders_are_checked():
    with Cluster() as c:
        c.relay()
        router, prefill = c.routers[0], c.workers[0]
        for daemon, arguments, why in ((router, ("role", "nobody", "decode"), "no worker of this name"),
                                       (router, ("role", "prefill0", "writer"), "prefill, decode or both"),
                                       (prefill, ("role", "decode0", "decode"), "this worker's name is prefill0"),
                                       (router, ("role", "prefill0", "DECODE"), "prefill, decode or both"),
                                       (router, ("role", "prefill0", ""), "prefill, decode or both"),
                                       (router, ("role", "a/b", "decode"), "no worker's name"),
                                       (router, ("role", "", "decode"), "no worker's name"),
                                       (router, ("role", "a\nb", "decode"), "no worker's name"),
                                       (router, ("role", "prefill0"), "are wanted")):
            said = ctl(daemon, *arguments)
            assert said.returncode != 0 and why in said.stderr, (arguments, said.stderr)
        for headers in ({}, {"authorization": "Bearer " + "0" * 64}):
            assert fetch(router.admin, "POST", "/admin/role/decode/prefill0", headers=headers)[0] == 401
            assert fetch(prefill.admin, "POST", "/admin/role/decode/prefill0", headers=headers)[0] == 401
        token = {"authorization": "Bearer " + c.admin_token()}
        for path in ("/admin/role/", "/admin/role/decode", "/admin/role/decode/", "/admin/role//prefill0", "/admin/role/DECODE/x",
                     "/admin/role/decode/" + "x" * 64, "/admin/role/decode/x/y", "/admin/role/decode/x%41"):
            assert fetch(router.admin, "POST", path, headers=token)[0] == 404, path
        assert fetch(router.admin, "GET", "/admin/role/decode/prefill0", headers=token)[0] == 404
        assert role_of(router, "prefill0") == "prefill"


def a_role_outlives_its_router():
    with Cluster() as c:
        c.relay()
        router, prefill = c.routers[0], c.workers[0]
        set_role(router, "prefill0", "both")
        router.stop()
        router.start()
        until = time.monotonic() + patience(10)
        while True:  # the role comes with the first report, before anything is placed
            try:
                workers = {w["node"]: w for w in router.status()["workers"]}
                if workers["prefill0"]["usable"]:
                    break
            except (OSError, KeyError, http.client.HTTPException):
                pass
            assert time.monotonic() < until
            time.sleep(0.02)
        assert workers["prefill0"]["role"] == "both"
        prefill.stop()
        prefill.start()  # a new process begins with node.role
        c.wait_ready(prefill=1, decode=1)
        assert prefill.status()["role"] == "prefill"


def flips_under_streams():
    """Both workers change places again and again while requests of all ages run: some are handed over in that moment, some
    read their prompt, some write.  Every answer has the bits of the answer without flips."""
    n = 24
    with Cluster() as c:
        c.relay()
        router = c.routers[0]
        expected = [c.ask(text, max_tokens=96).text for text in prompts(n)]
    with Cluster() as c:
        c.relay()
        router = c.routers[0]
        answers, is_over, took = [None] * n, threading.Event(), []

        def flip():
            turn, pauses = 0, random.Random(1)
            while not is_over.is_set():
                pair = ("prefill", "decode") if turn % 2 else ("decode", "prefill")
                took.append(set_role(router, "prefill0", pair[0]))
                took.append(set_role(c.workers[1], "decode0", pair[1]))
                if turn % 5 == 4:
                    took.append(set_role(router, "decode0", "both"))
                turn += 1
                time.sleep(pauses.uniform(0.02, 0.12))  # flips at equal distances met each request in the same roles

        def ask(i):
            def run():
                time.sleep(0.15 * i)
                answers[i] = c.ask(prompts(n)[i], max_tokens=96)
            return run

        flipper = threading.Thread(target=flip)
        flipper.start()
        in_threads([ask(i) for i in range(n)])
        is_over.set()
        flipper.join()
        assert [a.text for a in answers] == expected
        assert router.status()["redispatched"] == 0, "a flip moved a request"
        ways = {(a.serving.get("prefill", ""), a.serving["decode"]) for a in answers}
        assert len(took) >= 10 and len(ways) > 1, (took, ways)
        for a in answers:
            assert a.serving["computed"] + a.serving["reused"] + a.serving["transferred"] > 0, a.serving
        c.assert_quiet()
        if not os.environ.get("BATON_SLOW"):
            print(f"{len(took)} flips, the slowest seen after {max(took):.2f} s; placements {sorted(ways)}")


def a_flip_in_the_middle_of_a_hand_off():
    """The decode worker stands still, so the prefill worker holds the request's blocks for it.  Both change roles in that
    moment; the hand-off ends as it began."""
    with Cluster() as c:
        c.relay()
        router, (prefill, decode) = c.routers[0], c.workers
        expected = c.ask("Once more. " + LONG, max_tokens=96)
        assert expected.serving["transferred"] > 0, expected.serving
    with Cluster() as c:
        c.relay(link__heartbeat="1s")
        router, (prefill, decode) = c.routers[0], c.workers
        c.ask("hello", max_tokens=4)  # the peers know each other
        decode.kill(signal.SIGSTOP)
        stream = c.stream("Once more. " + LONG, max_tokens=96)
        until = time.monotonic() + patience(5)
        while prefill.status()["tasks"] == 0:
            assert time.monotonic() < until, "the prefill worker was not asked"
        set_role(router, "prefill0", "decode")
        decode.kill(signal.SIGCONT)
        set_role(router, "decode0", "prefill")
        answer = stream.finish()
        assert answer.is_whole and answer.text == expected.text, (answer.error, answer.text)
        assert (answer.serving["prefill"], answer.serving["decode"]) == ("prefill0", "decode0"), answer.serving
        assert answer.serving["transferred"] > 0 and answer.serving["redispatched"] == 0, answer.serving
        c.assert_quiet()


def one_worker_for_both_phases():
    """Prompts of any length are computed in chunks beside the answers of the same worker, with the bits of a relay."""
    texts = prompts(8)
    with Cluster() as c:
        c.relay()
        expected = [c.ask(text, max_tokens=96).text for text in texts]
    with Cluster() as c:
        c.router()
        c.worker("decode", node__role="both", sched__chunk_tokens="32")
        until = time.monotonic() + patience(20)
        while fetch_ready(c) != 1:
            assert time.monotonic() < until
            time.sleep(0.05)
        answers = in_threads([lambda text=text: c.ask(text, max_tokens=96) for text in texts])
        assert [a.text for a in answers] == expected
        assert all(a.serving["decode"] == "decode0" and not a.serving.get("prefill") for a in answers)
        c.assert_quiet()


def fetch_ready(c):
    try:
        return sum(w["usable"] and w["role"] == "both" for w in c.routers[0].status()["workers"])
    except (OSError, http.client.HTTPException):
        return 0


main([one_worker_for_both_phases, roles_change_and_are_seen, orders_are_checked, a_role_outlives_its_router, flips_under_streams,
      a_flip_in_the_middle_of_a_hand_off])
