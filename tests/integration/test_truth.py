# SPDX-License-Identifier: Apache-2.0
"""Answers to clients and operators are true: unknown models, metrics, names."""
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

from cluster import BUILD, MODEL, Cluster, fetch, main, patience

KEYED = [("POST", "/v1/messages", {"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}),
         ("POST", "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
         ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
         ("POST", "/v1/completions", {"prompt": "hi"}),
         ("POST", "/tokenize", {"prompt": "hi"}),
         ("POST", "/detokenize", {"tokens": [1]}),
         ("GET", "/v1/models", None),
         ("GET", "/v1/models/{model}", None)]
OPENAI = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")


def ask_all(router, model, timeout=60):
    for method, path, body in KEYED:
        if body is not None:
            body = dict(body, model=model)
        status, headers, text = fetch(router.http, method, path.format(model=model), body, timeout=timeout)
        yield path, status, headers, text.decode()


def ask(router, path, model):
    status, headers, text = fetch(router.http, "POST", path, {"model": model, "max_tokens": 4, "messages": [
        {"role": "user", "content": "hi"}]}, timeout=20)
    return status, headers, text.decode()


def until(condition, what, seconds=20):
    end = time.monotonic() + patience(seconds)
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(what)


def answers_503_until_models_are_known_then_404():
    with Cluster() as c:
        router = c.router(queue__timeout="1s")
        until(lambda: is_listening(router), "the router does not listen")
        for path, status, headers, text in ask_all(router, "baton-demo"):
            assert status == 503, (path, status, text)
            assert int(headers["retry-after"]) >= 1, (path, headers)
            assert "no worker has registered" in text, (path, text)
            assert ('"type":"server_error"' if path in OPENAI else '"type":"api_error"') in text, (path, text)
        worker = c.worker("decode")
        c.wait_ready(decode=1)
        for path, status, headers, text in ask_all(router, "baton-demo"):
            assert status == 200, (path, status, text)
        for path, status, headers, text in ask_all(router, "no-such-model"):
            assert status == (200 if path == "/v1/models" else 404), (path, status, text)
            assert "retry-after" not in headers, (path, headers)
        # All workers of a known model are gone: the model is away, not unknown.
        worker.stop()
        until(lambda: not any(w["up"] for w in router.status()["workers"]), "the worker is still up")
        for path, status, headers, text in ask_all(router, "baton-demo"):
            waits = path in ("/v1/messages", "/v1/chat/completions", "/v1/completions")
            assert status == (503 if waits else 200), (path, status, text)
            if waits:
                assert "retry-after" in headers and "no worker" in text.lower(), (path, headers, text)
        assert [s for p, s, _, _ in ask_all(router, "no-such-model")].count(404) == len(KEYED) - 1


def is_listening(daemon, path="/livez"):
    try:
        return fetch(daemon.http, "GET", path, timeout=5)[0] == 200
    except OSError:
        return False


def a_restarted_router_says_503_until_its_workers_are_back():
    with Cluster() as c:
        router = c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        for _ in range(3):
            router.kill()
            router.start()
            seen = set()

            def answers():
                try:
                    status = fetch(router.http, "POST", "/v1/messages", c.body("hi", max_tokens=4), timeout=20)[0]
                except OSError:
                    return False
                seen.add(status)
                return status == 200

            until(answers, "the worker does not come back")
            assert seen <= {200, 503}, seen


def a_restarted_router_waits_for_the_workers_of_other_models():
    """The first worker to return does not make the other's model unknown; after the grace it is."""
    with Cluster() as c:
        router = c.router(link__return_grace="8s", queue__timeout="1s")
        second = os.path.join(c.dir, "second.gguf")
        subprocess.run([os.path.join(BUILD, "baton-model"), "quantize", "--type", "F16", MODEL, second], check=True,
                       capture_output=True)
        c.worker("decode", model__name="one")
        other = c.worker("decode", model__name="two", model__path=second)
        c.wait_ready(decode=2)
        assert [ask(router, "/v1/messages", m)[0] for m in ("one", "two", "three")] == [200, 200, 404]
        router.kill()
        other.kill(signal.SIGSTOP)
        router.start()
        seen = set()

        def answers(model):
            try:
                status, headers, text = ask(router, "/v1/messages", model)
            except OSError:
                return None
            assert status in (200, 404) or (status == 503 and "retry-after" in headers), (status, text)
            return status

        until(lambda: answers("one") == 200, "the first worker does not come back")
        assert answers("two") == 503
        other.kill(signal.SIGCONT)
        until(lambda: seen.add(answers("two")) or 200 in seen, f"the other worker does not come back: {seen}")
        assert seen <= {None, 200, 503}, seen
        until(lambda: answers("three") == 404, "a wrong name stays a server's fault", 30)


def metrics_are_the_operators():
    with Cluster() as c:
        keys = os.path.join(c.dir, "keys")
        made = {}
        with open(keys, "w") as f:
            for tenant in ("acme-corp", "evil-corp"):
                said = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", tenant, "rpm=1"], capture_output=True,
                                      text=True, check=True).stdout.splitlines()
                made[tenant], line = said[0], said[1]
                f.write(line + "\n")
        os.chmod(keys, 0o600)
        router = c.router(http__api_keys=keys)
        worker = c.worker("decode", http__api_keys=keys)
        c.wait_ready(decode=1)
        key = {"x-api-key": made["acme-corp"]}
        for _ in range(2):  # the second is refused: the tenant's name is in the metrics from now on
            fetch(router.http, "POST", "/v1/messages", c.body("hi", max_tokens=4), key)
        other = {"x-api-key": made["evil-corp"]}
        token = subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "metrics-token"], capture_output=True, text=True,
                               check=True).stdout.strip()
        for daemon in (router, worker):
            for path in ("/metrics", "/readyz?verbose", "/health", "/livez", "/admin/status", "/v1/models"):
                for headers in ({}, other):
                    status, _, text = fetch(daemon.http, "GET", path, headers=headers)
                    assert "acme-corp" not in text.decode(), (daemon.name, path, text)
                    if path in ("/metrics", "/admin/status"):
                        assert status == 404, (daemon.name, path, status)
            bearer = {"authorization": f"Bearer {token}"}
            status, _, text = fetch(daemon.admin, "GET", "/metrics", headers=bearer)
            assert status == 200 and b"process_cpu_seconds_total" in text, (daemon.name, status, text)
            if daemon is router:
                assert b"acme-corp" in text, text
            # That token reads metrics and nothing else.
            for method, path in (("GET", "/admin/status"), ("POST", "/admin/drain"), ("POST", "/metrics")):
                assert fetch(daemon.admin, method, path, headers=bearer)[0] == 401, path
            for headers in ({}, other, {"authorization": f"Bearer {made['acme-corp']}"}):
                assert fetch(daemon.admin, "GET", "/metrics", headers=headers)[0] == 401
    with Cluster() as c:
        router = c.router(http__metrics="clients", http__api_keys=write_key(c))
        until(lambda: is_listening(router), "the router does not listen")
        assert fetch(router.http, "GET", "/metrics")[0] == 401
        assert fetch(router.http, "GET", "/metrics", headers={"x-api-key": c.api_key})[0] == 200


def write_key(c):
    path = os.path.join(c.dir, "keys")
    said = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key"], capture_output=True, text=True, check=True).stdout.splitlines()
    with open(path, "w") as f:
        f.write(said[1] + "\n")
    os.chmod(path, 0o600)
    c.api_key = said[0]
    return path


def cache_creation_is_counted_by_breakpoint():
    """A system block for an hour and the next for five minutes: each part counts at its own breakpoint."""
    with Cluster() as c:
        router = c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        text = [" ".join(f"{word}{i}" for i in range(60)) for word in ("fox", "wolf")]

        def created(*ttls):
            created.salt += 1
            system = [dict({"type": "text", "text": f"{created.salt} {t}"}, **({"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {}))
                      for t, ttl in zip(text, ttls)]
            status, _, answer = fetch(router.http, "POST", "/v1/messages", c.body("hi", max_tokens=2, system=system))
            assert status == 200, answer
            found = re.search(rb'"ephemeral_5m_input_tokens":(\d+),"ephemeral_1h_input_tokens":(\d+)', answer)
            return int(found.group(1)), int(found.group(2))
        created.salt = 0
        both_5m, both_1h = created("5m", "5m"), created("1h", "1h")
        assert both_5m[0] > 128 and both_5m[1] == 0 and both_1h[0] == 0, (both_5m, both_1h)
        first_5m, first_1h = created("5m", None), created("1h", None)
        assert 32 <= first_5m[0] < both_5m[0] and first_5m[1] == 0 and first_1h[0] == 0, (first_5m, first_1h)
        mixed = created("1h", "5m")
        assert mixed[0] >= 32 and mixed[1] >= 32, mixed
        assert abs(mixed[1] - first_1h[1]) <= 2 and abs(sum(mixed) - both_5m[0]) <= 4, (mixed, first_1h, both_5m)


def logged(daemon, event):
    with open(daemon.log_path, errors="replace") as f:
        return [json.loads(line) for line in f if f'"event":"{event}"' in line]


def the_second_worker_of_a_name_is_refused():
    """A regression: two workers of one name replaced each other for ever, 25 times in 14 s."""
    with Cluster() as c:
        router = c.router()
        first = c.worker("decode", node__name="decode")
        c.wait_ready(decode=1)
        second = c.worker("decode", node__name="decode")
        refused = until(lambda: router.status().get("refused"), "nobody is refused")
        time.sleep(3)
        assert refused[0]["node"] == "decode" and refused[0]["address"] != refused[0]["current"], refused
        assert len(logged(router, "worker_up")) == 1, logged(router, "worker_up")
        assert first.status()["routers"][0]["up"] and not second.status()["routers"][0]["up"]
        # Both logs and both statuses name both addresses.
        for text in (second.status()["routers"][0]["reason"], logged(second, "link_failed")[-1]["reason"],
                     logged(router, "link_refused")[-1]["reason"]):
            assert f"127.0.0.1:{first.link}" in text and f"127.0.0.1:{second.link}" in text and "decode" in text, text
        assert fetch(second.http, "GET", "/readyz")[0] == 503
        said = subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "--admin", f"127.0.0.1:{router.admin}", "status"],
                              capture_output=True, text=True, check=True).stdout
        assert "refused: decode at 127.0.0.1:" in said, said
        assert c.ask("hello").is_whole
        # The first is killed: the second takes the name.
        first.kill()
        until(lambda: second.status()["routers"][0]["up"], "the second does not take the place")
        # The first starts again, and is the second now.
        n_before = len(logged(first, "link_failed"))  # the router may not have listened yet when it started
        first.start()
        until(lambda: len(logged(first, "link_failed")) > n_before, "the first is not refused")
        assert second.status()["routers"][0]["up"]


def a_worker_started_again_takes_its_place():
    with Cluster() as c:
        router = c.router()
        worker = c.worker("decode", node__name="decode")
        c.wait_ready(decode=1)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            n = len(logged(router, "worker_up"))
            worker.kill(number)
            worker.process.wait()
            worker.start()
            until(lambda: len(logged(router, "worker_up")) > n, "it does not come back", 5)
        assert not router.status()["refused"]


def a_worker_that_hangs_loses_its_name_to_another():
    with Cluster() as c:
        c.router()
        first = c.worker("decode", node__name="decode")
        c.wait_ready(decode=1)
        second = c.worker("decode", node__name="decode")
        first.kill(signal.SIGSTOP)
        until(lambda: is_listening(second, "/readyz"), "the second does not take the place", 10)
        first.kill(signal.SIGCONT)
        until(lambda: not first.status()["routers"][0]["up"] and "taken" in first.status()["routers"][0].get("reason", ""), "it is not refused")
        assert second.status()["routers"][0]["up"]


def workers_of_one_host_have_names_of_their_own():
    with Cluster() as c:
        router = c.router()
        workers = [c.worker(role, node__name="") for role in ("decode", "decode", "prefill")]
        c.wait_ready(decode=2, prefill=1)
        names = {w["node"] for w in router.status()["workers"]}
        assert len(names) == 3, names
        host = re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname())[:8]
        for worker in workers:
            name = worker.status()["node"]
            assert name in names and name.startswith(host) and name.endswith(f"{worker.role}-{worker.admin}"), name
            assert not router.status()["refused"]


def spoilt_model(folder):
    """The bundled model with NaN in the last norm's weights."""
    with open(MODEL, "rb") as f:
        data = bytearray(f.read())
    at = 8
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    alignment = 32

    def number(form):
        nonlocal at
        value, = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return value

    def text():
        nonlocal at
        n = number("<Q")
        at += n
        return bytes(data[at - n:at]).decode(errors="replace")

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = number("<I"), number("<Q")
            for _ in range(n):
                value(inner)
            return None
        at += sizes[kind]
        return struct.unpack_from("<I", data, at - 4)[0] if kind == 4 else None

    n_tensors, n_meta = number("<Q"), number("<Q")
    for _ in range(n_meta):
        key = text()
        found = value(number("<I"))
        alignment = found if key == "general.alignment" else alignment
    tensors = {}
    for _ in range(n_tensors):
        name, n_dims = text(), number("<I")
        dims = [number("<Q") for _ in range(n_dims)]
        tensors[name] = (dims, number("<I"), number("<Q"))
    start = (at + alignment - 1) // alignment * alignment
    dims, kind, offset = tensors["output_norm.weight"]
    assert kind == 0, kind
    struct.pack_into("<f", data, start + offset, float("nan"))
    path = os.path.join(folder, "baton-demo.gguf")
    with open(path, "wb") as f:
        f.write(data)
    return path


def tools_name_logits_that_are_no_numbers():
    with Cluster() as c:
        path, text = spoilt_model(c.dir), os.path.join(c.dir, "text")
        with open(text, "w") as f:
            f.write("The harbour lights went out one after another. " * 60)
        for arguments in (["logits", "--prompt", "hello", path], ["perplexity", "--text", text, path]):
            said = subprocess.run([os.path.join(BUILD, "baton-model"), *arguments], capture_output=True, text=True)
            assert said.returncode != 0 and "numbers that are not finite" in said.stderr, (arguments, said)
            assert "nan" not in said.stdout.lower(), (arguments, said.stdout)


def logits_that_are_no_numbers_are_told():
    """A regression: such answers were served as token 0 without an error."""
    with Cluster() as c:
        router = c.router()
        workers = [c.worker("decode", model__path=spoilt_model(c.dir))]
        c.wait_ready(decode=1)
        for i in range(3):
            status, _, text = fetch(router.http, "POST", "/v1/messages", c.body(f"hello {i}", max_tokens=8))
            assert status == 500 and b"numerics" in text and b"api_error" in text, (status, text)
        worker = workers[0]
        until(lambda: worker.status()["unfit"], "it is not unfit")
        assert worker.metric("baton_worker_spoilt_answers_total") == 3
        assert len(logged(worker, "answer_spoilt")) == 3 and logged(worker, "worker_unfit")
        status, _, text = fetch(worker.http, "GET", "/readyz?verbose")
        assert status == 503 and b"numerics" in text, (status, text)
        until(lambda: not router.status()["workers"][0]["usable"], "the router still places there")
        time.sleep(2.5)  # probes are spoilt as well
        assert worker.status()["unfit"] and fetch(router.http, "GET", "/readyz")[0] == 503
        c.assert_quiet()
        # The same with log probabilities, a prompt logprob, or a pair's first token.
        status, _, text = fetch(worker.http, "POST", "/v1/completions", {"model": "baton-demo", "prompt": "hi there", "max_tokens": 4, "logprobs": 1,
                                                                         "echo": True})
        assert status == 500 and b"numerics" in text, (status, text)


def a_pair_names_logits_that_are_no_numbers():
    """The prefill worker reports them for a prompt that is handed on, and so does the decode worker for a short one."""
    with Cluster() as c:
        path = spoilt_model(c.dir)
        router = c.router(placement__local_prefill_tokens="500")
        prefill, decode = c.worker("prefill", model__path=path), c.worker("decode", model__path=path)
        c.wait_ready(prefill=1, decode=1)
        status, _, text = fetch(router.http, "POST", "/v1/messages", c.body("The harbour lights went out. " * 300, max_tokens=8))
        assert status == 500 and b"numerics" in text and b"api_error" in text, (status, text)
        assert prefill.metric("baton_worker_spoilt_answers_total") >= 1 and logged(prefill, "answer_spoilt")
        status, _, text = fetch(router.http, "POST", "/v1/messages", c.body("hello", max_tokens=8))
        assert status == 500 and b"numerics" in text, (status, text)
        c.assert_quiet()


def a_context_beyond_the_wire_is_served():
    """A regression test: routers closed the link to a worker whose model file names more than 4,194,304 tokens."""
    with Cluster() as c:
        with open(MODEL, "rb") as f:
            data = bytearray(f.read())
        at = data.index(b".context_length") + len(b".context_length")
        assert struct.unpack_from("<I", data, at)[0] == 4, "not a u32"
        struct.pack_into("<I", data, at + 4, 8 << 20)
        path = os.path.join(c.dir, "long.gguf")
        with open(path, "wb") as f:
            f.write(data)
        router = c.router()
        for n, kind in enumerate(("sim", "cpu")):
            worker = c.worker("decode", model__path=path, engine__kind=kind)
            c.wait_ready(decode=n + 1)
            limited = logged(worker, "context_limited")
            assert len(limited) == 1 and limited[0]["of_the_model"] == 8 << 20 and limited[0]["served"] == 4 << 20, limited
        assert fetch(router.http, "POST", "/v1/messages", {**c.body("hello", max_tokens=4), "model": "long"})[0] == 200


main([answers_503_until_models_are_known_then_404, a_restarted_router_says_503_until_its_workers_are_back,
      a_restarted_router_waits_for_the_workers_of_other_models, metrics_are_the_operators,
      cache_creation_is_counted_by_breakpoint, the_second_worker_of_a_name_is_refused, a_worker_started_again_takes_its_place,
      a_worker_that_hangs_loses_its_name_to_another, tools_name_logits_that_are_no_numbers, workers_of_one_host_have_names_of_their_own, logits_that_are_no_numbers_are_told,
      a_pair_names_logits_that_are_no_numbers, a_context_beyond_the_wire_is_served])
