# SPDX-License-Identifier: Apache-2.0
"""Streams that come back, and the limits of their keys: each is counted once, and the clients that Baton ships wait for their limit."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time

from cluster import BUILD, SOURCE, Cluster, fetch, main, patience
from resume_client import PROMPT, Client, messages, two_routers, wait_both


def keys_with(c, **rules):
    """A file with a key of each name, whose text is the name."""
    path = f"{c.dir}/keys"
    with open(path, "w") as f:
        for name, rule in rules.items():
            f.write(f"{hashlib.sha256(name.encode()).hexdigest()}  team-{name}  {rule}\n")
    os.chmod(path, 0o600)
    return path


def opened(port, key, max_tokens):
    client = Client(*messages(f"{key} {PROMPT}", max_tokens=max_tokens), headers={"x-api-key": key})
    client.read(port, most=5)
    assert client.status == 200, client.error
    return client


def tokens_left(port, key):
    """Tokens that the key may write this minute."""
    body = {"model": "baton-demo", "messages": [{"role": "user", "content": "count"}]}
    status, fields, _ = fetch(port, "POST", "/v1/messages/count_tokens", body, {"x-api-key": key, "content-type": "application/json"})
    assert status == 200, status
    return int(fields["anthropic-ratelimit-output-tokens-remaining"])


def limits_count_a_stream_once():
    """The request that began a stream pays for it: the rest is neither refused nor counted.  An unknown stream is a request."""
    with Cluster() as c:
        keys = keys_with(c, rpm="rpm=1", tokens="tpm_out=2500", single="concurrent=1", moves="tpm_out=1100", liar="rpm=2")
        links = two_routers(c, http__api_keys=keys)
        c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="2ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 1)
        ports = [r.http for r in c.routers]
        # a stream that moves keeps its reservation, so that the part elsewhere is not free
        moves = opened(ports[0], "moves", 1000)
        rest = Client(moves.path, {}, headers=moves.headers)
        rest.body = moves.body
        rest.read(ports[1], again=moves.last_id())
        assert rest.status == 200 and rest.is_over(), getattr(rest, "error", None)
        moves.leave()
        assert all(tokens_left(port, "moves") < 1000 for port in ports)
        clients = [opened(ports[0], key, 1000) for key in ("rpm", "tokens", "single")]
        until = time.monotonic() + patience(20)
        while tokens_left(ports[1], "tokens") >= 2400:  # its router has told the other one
            assert time.monotonic() < until
            time.sleep(0.02)
        c.routers[0].kill()
        for client in clients:
            client.read(ports[1], most=10, again=client.last_id())
            assert client.status == 200, client.error
        assert tokens_left(ports[1], "tokens") > 1000
        statuses = []
        while not statuses or statuses[-1] == 404:
            liar = Client(*messages("none"), headers={"x-api-key": "liar"})
            liar.read(ports[1], again="req_" + "0" * 24)
            statuses.append(liar.status)
            assert len(statuses) < 20 and liar.status in (404, 429), (statuses, liar.error)
        assert len(statuses) > 2, statuses
        for client in clients:
            client.leave()


def searches_at_once_are_bounded():
    """A hundred made-up ids at once: the key gets as many searches as its limit has requests, and its tenant is served."""
    with Cluster() as c:
        keys = keys_with(c, liar="rpm=20")
        with open(keys, "a") as f:
            f.write(f"tenant team-liar rpm=60\n{hashlib.sha256(b'honest').hexdigest()}  team-liar\n")
        port = c.router(http__api_keys=keys, http__max_per_address="1000").http
        worker = c.worker("decode", engine__kind="sim")
        c.wait_ready(decode=1)
        liars = [Client(*messages("none"), headers={"x-api-key": "liar"}) for _ in range(100)]
        readers = [threading.Thread(target=liar.read, args=(port,), kwargs={"again": f"req_{i:024d}"}) for i, liar in enumerate(liars)]
        began = time.monotonic()
        worker.kill(signal.SIGSTOP)  # no search ends before most have begun
        try:
            for reader in readers:
                reader.start()
        finally:
            worker.kill(signal.SIGCONT)
        for reader in readers:
            reader.join()
        statuses = [liar.status for liar in liars]
        assert set(statuses) <= {404, 429, 503}, statuses
        most = 1.1 * 20 + 2 + (time.monotonic() - began) * 20 / 60
        assert 1 < statuses.count(404) <= most, statuses
        asks = [fetch(port, "POST", liars[0].path, json.loads(liars[0].body) | {"max_tokens": 3, "stream": False}, {
            "x-api-key": key, "content-type": "application/json"}) for key in ("liar", "honest")]
        assert [ask[0] for ask in asks] == [429, 200], asks
        assert int(asks[0][1]["retry-after"]) <= (most + 1 - 20) * 60 / 20, asks


def an_answer_computed_again_counts_again():
    """Its router and its worker are killed: the rest counts like a new request, and comes once that fits the limit."""
    with Cluster() as c:
        keys = keys_with(c, tokens="tpm_out=5000")
        links = two_routers(c, http__api_keys=keys)
        for _ in range(3):
            c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="5ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 3)
        ports = [r.http for r in c.routers]
        client = opened(ports[0], "tokens", 3100)
        until = time.monotonic() + patience(20)
        while tokens_left(ports[1], "tokens") > 3000:
            assert time.monotonic() < until
            time.sleep(0.02)
        while not (busy := [worker for worker in c.workers if worker.status()["tasks"] > 0]):
            assert time.monotonic() < until
            time.sleep(0.02)
        victim = busy[0]
        c.routers[0].kill()
        victim.kill()
        statuses, until = set(), time.monotonic() + patience(30)
        while client.status != 200 or not statuses:
            assert time.monotonic() < until, (statuses, client.error)
            client.read(ports[1], most=10, again=client.last_id())
            statuses.add(client.status)
            time.sleep(0.05)
        assert 429 in statuses and statuses <= {200, 429, 503}, statuses
        assert tokens_left(ports[1], "tokens") < 3000
        assert c.routers[1].metric("baton_router_resumed_total") == 1  # a refused one reached no worker
        client.leave()
        c.assert_quiet()


def own_clients(urls, max_tokens):
    """baton-chat and the JavaScript example: commands with all routers and with the last one alone, and the environment."""
    chat = [os.path.join(BUILD, "baton-chat"), "--seed", "7", "-n", str(max_tokens), "--ask", PROMPT]
    runs = []
    if shutil.which("node"):
        example = ["node", os.path.join(SOURCE, "clients", "examples", "resume.mjs"), PROMPT]
        runs.append((example, example, {"BATON_FIELDS": json.dumps({"max_tokens": max_tokens, "seed": 7})}))
    runs.append((chat + ["-u", urls[0], "-u", urls[1]], chat + ["-u", urls[1]], {}))
    return runs


def start_clients(c, runs, urls, keys):
    """Starts one after the other; the last one starts quickly, so all of them stream at the end."""
    processes = []
    for (run, _, more), key in zip(runs, keys):
        processes.append(subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          env={**os.environ, **more, "BATON_URLS": ",".join(urls), "BATON_API_KEY": key}))
        until = time.monotonic() + patience(30)
        while sum(w.status()["tasks"] for w in c.workers) < len(processes):
            assert time.monotonic() < until
            time.sleep(0.02)
    time.sleep(0.3)
    return processes


def assert_clients_say_all(processes, runs, urls, key):
    wholes = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, **more, "BATON_URLS": urls[1], "BATON_API_KEY": key}) for _, run, more in runs]
    for process, whole, (_, run, _) in zip(processes, wholes, runs):
        said, errors = process.communicate(timeout=patience(60))
        assert process.returncode == 0, (errors, said)
        want, errors = whole.communicate(timeout=patience(60))
        assert whole.returncode == 0 and len(said) > 50, (errors, said)
        assert said == want, (run, said, want)


def clients_come_back_by_themselves():
    """baton-chat and the JavaScript example: the text is that of a run without a fault."""
    with Cluster() as c:
        links = two_routers(c)
        c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="10ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 1)
        urls = [f"http://127.0.0.1:{r.http}" for r in c.routers]
        runs = own_clients(urls, 400)
        processes = start_clients(c, runs, urls, ["none"] * len(runs))
        c.routers[0].kill()
        assert_clients_say_all(processes, runs, urls, "none")
        assert c.routers[1].metric("baton_router_resumed_total") == len(runs)


def a_client_waits_for_its_limit():
    """The router and the worker of baton-chat are killed.  The rest counts like a new request, which does not fit for seconds."""
    with Cluster() as c:
        path = keys_with(c, chat="tpm_out=720", free="")
        links = two_routers(c, http__api_keys=path)
        for _ in range(3):
            c.worker("decode", link__routers=links, engine__kind="sim", engine__sim_step="10ms", engine__sim_answer_tokens="100000")
        wait_both(c, 0, 3)
        urls = [f"http://127.0.0.1:{r.http}" for r in c.routers]
        runs = own_clients(urls, 400)[-1:]
        processes = start_clients(c, runs, urls, ["chat"])
        until = time.monotonic() + patience(20)
        while tokens_left(c.routers[1].http, "chat") >= 400:
            assert time.monotonic() < until
            time.sleep(0.02)
        victim = max(c.workers, key=lambda worker: worker.status()["tasks"])
        c.routers[0].kill(signal.SIGSTOP)  # it does not place the stream again, and the client notices no loss yet
        victim.kill()
        c.routers[0].kill()
        assert_clients_say_all(processes, runs, urls, "free")
        assert c.routers[1].metric('baton_limit_refusals_total{tenant="team-chat"') > 0


main([limits_count_a_stream_once, searches_at_once_are_bounded, an_answer_computed_again_counts_again, clients_come_back_by_themselves,
      a_client_waits_for_its_limit])
