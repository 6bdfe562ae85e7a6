# SPDX-License-Identifier: Apache-2.0
"""Operation: keys and tenants, reload, drain, metrics, batonctl, workers of different users."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

from cluster import BUILD, Cluster, IS_SLOW, fetch, main, patience

LONG = "Tell me what a grant is, what a lease is, and why a block never returns to its pool while a peer may write it. " * 2


def ctl(daemon, *arguments):
    return subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", daemon.cluster.key, "--admin",
                           f"127.0.0.1:{daemon.admin}", *arguments], capture_output=True, text=True, timeout=patience(30))


def new_key(cluster, path, tenant):
    """Makes an API key with batonctl and appends its line to the key file."""
    out = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", tenant], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    text = out.stdout + out.stderr
    key = re.search(r"\bsk-[A-Za-z0-9_-]+", text).group(0)
    line = next(l for l in text.splitlines() if re.match(r"[0-9a-f]{64} ", l))
    with open(path, "a") as f:
        f.write(line + "\n")
    os.chmod(path, 0o600)
    return key


def keys_and_tenants():
    with Cluster() as c:
        path = os.path.join(c.dir, "keys")
        ann, bob = new_key(c, path, "ann"), new_key(c, path, "bob")
        c.relay(http__api_keys=path)
        port, body = c.routers[0].http, c.body(LONG)
        ask = lambda headers: fetch(port, "POST", "/v1/messages", body, headers)
        status, headers, answer = ask({})
        assert status == 401 and b"authentication_error" in answer and headers["request-id"], (status, answer)
        assert ask({"x-api-key": "sk-wrong"})[0] == 401
        read = lambda answer: __import__("json").loads(answer)["usage"]["cache_read_input_tokens"]
        status, _, answer = ask({"x-api-key": ann})
        assert status == 200 and read(answer) == 0, answer
        status, _, answer = ask({"authorization": "Bearer " + ann})
        assert status == 200 and read(answer) > 0, answer
        status, _, answer = ask({"x-api-key": bob})
        assert status == 200 and read(answer) == 0, "tenants share a cache entry"


def nothing_but_loopback_without_keys():
    with Cluster() as c:
        router = c.router(http__listen="0.0.0.0:0")
        assert router.process.wait(patience(10)) == 1
        assert "loopback" in router.tail()
        c.routers.clear()


def reload_takes_all_or_nothing():
    with Cluster() as c:
        router = c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        with open(router.conf, "w") as f:
            f.write("[queue]\nmax = many\n[slo]\nttf = 1s\n")
        said = ctl(router, "reload")
        assert said.returncode != 0, said.stdout
        log = router.tail(40)
        assert "router0.conf:2: queue.max: " in log and "slo.ttf: " in log and "ttft" in log, log
        assert c.ask("hello").is_whole
        with open(router.conf, "w") as f:
            f.write("[queue]\nmax = 9\n[http]\ndefault_max_tokens = 3\n")
        assert ctl(router, "reload").returncode == 0
        answer = c.ask("hello", max_tokens=20)
        assert (answer.usage["output_tokens"], answer.stop) == (3, "max_tokens"), answer.usage
        router.kill(signal.SIGHUP)
        time.sleep(0.3)
        assert c.ask("hello").is_whole


def a_reload_reaches_the_wait_for_an_unknown_model():
    with Cluster() as c:
        router = c.router()
        c.wait_ready()
        with open(router.conf, "w") as f:
            f.write("[queue]\nmax = 0\n")
        assert ctl(router, "reload").returncode == 0
        began = time.monotonic()
        status, _, body = fetch(router.http, "POST", "/v1/messages", c.body("hello"))
        assert status == 503 and time.monotonic() - began < 10, (status, body)  # not after queue.timeout


def a_fleet_changes_its_block_size_without_its_router():
    with Cluster() as c:
        c.router()
        worker = c.worker("decode")
        c.wait_ready(decode=1)
        prompt = LONG + "word " * 10
        c.ask(prompt)
        worker.stop()
        worker.settings["kv.block_tokens"] = "16"
        worker.start()
        c.wait_ready(decode=1)
        c.ask(prompt)
        read = c.ask(prompt).usage["cache_read_input_tokens"]
        assert read % 32 == 16, read  # whole blocks of 16 tokens


def drain_and_undrain():
    with Cluster() as c:
        c.router()
        c.worker("decode")
        c.worker("decode")
        c.wait_ready(decode=2)
        assert ctl(c.workers[0], "drain").returncode == 0
        c.wait_ready(decode=1)
        for i in range(4):
            assert c.ask(f"hello {i}").serving["decode"] == "decode1"
        assert ctl(c.workers[0], "undrain").returncode == 0
        c.wait_ready(decode=2)


def a_signal_stops_a_starting_daemon():
    """The thread that receives signals loads the model.  It polls for signals while it loads, so no moment of the start
    ignores them."""
    with Cluster() as c:
        c.router()
        ends = []
        delays = [0.012 * i for i in range(12)] + [0.25, 0.5, 1, 2, 4]  # the last ones for busy machines
        for i, delay in enumerate(delays):
            if i >= 12 and ends[-1] == 0:
                break
            worker = c.worker("decode", engine__threads="2")
            time.sleep(delay)
            worker.kill(signal.SIGTERM)
            ends.append(worker.process.wait(patience(10)))
            c.workers.remove(worker)
        assert set(ends) <= {0, -signal.SIGTERM}, ends  # killed before it could receive the signal
        assert ends[-1] == 0, (ends, worker.tail())


def the_admin_door_wants_the_cluster_key():
    with Cluster() as c, Cluster() as other:
        router = c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        for method, path in (("GET", "/admin/status"), ("POST", "/admin/drain"), ("GET", "/metrics")):
            assert fetch(router.admin, method, path)[0] == 401
        wrong = subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", other.key, "--admin",
                                f"127.0.0.1:{router.admin}", "status"], capture_output=True, text=True)
        assert wrong.returncode != 0 and "key" in wrong.stderr, wrong
        for words in (["status"], ["status", "--json"], ["status", "--line"], ["metrics"]):
            said = ctl(router, *words)
            assert said.returncode == 0 and said.stdout.strip(), (words, said)


def status_names_the_versions():
    version = subprocess.run([os.path.join(BUILD, "baton-router"), "--version"], capture_output=True, text=True).stdout.split()[1]
    with Cluster() as c:
        c.relay()
        statuses = [daemon.status() for daemon in c.routers + c.workers]
        assert [status["version"] for status in statuses + statuses[0]["workers"]] == [version] * 5, (version, statuses)


def metrics_tell_the_phases():
    with Cluster() as c:
        c.relay()
        c.ask(LONG)
        _, headers, body = fetch(c.routers[0].admin, "GET", "/metrics", headers={"authorization": f"Bearer {c.admin_token()}"})
        assert headers["content-type"].startswith("text/plain"), headers
        text = body.decode()
        for family in ("time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_bucket",
                       "queue_seconds", "prefill_seconds", "transfer_seconds", "decode_seconds", "vllm:num_requests_running",
                       "vllm:time_to_first_token_seconds_bucket", "baton_router_handed_off_total 1"):
            assert family in text, f"{family} is not in\n{text}"
        for line in text.splitlines():
            assert line.startswith("#") or re.fullmatch(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})? -?[0-9.e+naif-]+', line, re.I), line


def shared_memory_between_users():
    """The units of one host run unprivileged.  They meet in the socket's directory and prove the cluster key."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        print("  (skipped: wants root and setpriv)")
        return
    with Cluster() as c:
        os.chmod(c.dir, 0o755)
        meet = os.path.join(c.dir, "meet")
        os.mkdir(meet)
        os.chmod(meet, 0o1777)
        c.router()
        for role, uid in (("prefill", 65531), ("decode", 65532)):
            key = os.path.join(c.dir, f"key-{role}")
            shutil.copy(c.key, key)
            os.chmod(key, 0o600)
            os.chown(key, uid, uid)
            c.worker(role, user=uid, link__cluster_key=key, kv__unix_path=os.path.join(meet, role + ".sock"),
                     kv__transport="shm")
        c.wait_ready(prefill=1, decode=1)
        answer = c.ask(LONG)
        assert answer.serving["transport"] == "shm" and answer.serving["transferred"] > 0, answer.serving


def a_small_pool_says_which_key_to_raise():
    """The demo model's context is 32,768 tokens; a MiB of KV memory holds 320 of them."""
    with Cluster() as c:
        c.router()
        small = c.worker("decode", kv__memory="1MiB")
        c.wait_ready(decode=1)
        warning = next(line for line in open(small.log_path) if "kv_memory_below_context" in line)
        assert '"raise":"kv.memory"' in warning.replace(" ", "") and "320" in warning, warning
        for port in (c.routers[0].http, small.http):
            status, _, answer = fetch(port, "POST", "/v1/messages", c.body(LONG * 10))
            assert status == 400 and b"kv.memory" in answer and b"invalid_request_error" in answer, (status, answer)
            status, _, answer = fetch(port, "POST", "/v1/messages", c.body("Say a word.", max_tokens=4))
            assert status == 200, (status, answer)


def tuned_line(worker):
    with open(worker.log_path) as f:
        return [json.loads(line) for line in f if '"tuned"' in line][-1]


def kernel_choices_are_measured_once():
    """A first start measures (within limits also on a busy machine), the next one reads the result.  A broken file is
    measured again, and a simulated engine measures nothing."""
    if IS_SLOW:
        print("  (skipped: a sanitized worker on a busy machine has no time to measure all, so it keeps nothing)")
        return
    with Cluster() as c:
        cache, before = os.path.join(c.dir, "tuned", "here"), os.environ.get("BATON_TUNE_FILE")
        os.environ["BATON_TUNE_FILE"] = cache
        try:
            c.router()
            worker = c.worker("decode")
            c.wait_ready(decode=1)
            first = tuned_line(worker)
            assert first["from"] == "measurement" and 0 < first["ms"] < patience(3) * 1000, first
            assert re.fullmatch(r"copy=\w+( \w+=\w+){6}", first["choices"]), first
            end = time.monotonic() + patience(60)
            while not os.path.exists(cache) and time.monotonic() < end:  # choices that a busy machine had no time to measure are not kept
                subprocess.run([os.path.join(BUILD, "baton-decode"), "--config", worker.conf, "--set", "engine.threads=1", "--tune"],
                               check=True, stdout=subprocess.DEVNULL)
            text = open(cache).read()
            assert text.startswith("baton-tune 1\ncopy=") and "ranks=1" in text, text
            answer = c.ask(LONG)

            def again(**settings):
                worker.stop()
                worker.settings.update({k.replace("__", "."): v for k, v in settings.items()})
                worker.start()
                c.wait_ready(decode=1)
                assert c.ask(LONG).text == answer.text
                return tuned_line(worker)

            second = again()
            assert second["from"] == "cache" and second["cache"] == cache and second["choices"] in text, (second, text)
            off = again(engine__tune="off")
            assert off["from"] == "defaults" and off["choices"].startswith("copy=memcpy wide=six "), off
            with open(cache, "wb") as f:
                f.write(text.encode().replace(b"keys=", b"keys=/") + os.urandom(100))
            assert again(engine__tune="auto")["from"] == "measurement"
            assert again(engine__tune="redo")["from"] == "measurement"
            worker.stop()
            worker.settings["engine.kind"] = "sim"
            size = os.path.getsize(worker.log_path)
            worker.start()
            c.wait_ready(decode=1)
            with open(worker.log_path) as f:
                f.seek(size)
                assert '"tuned"' not in f.read()
        finally:
            os.environ.pop("BATON_TUNE_FILE")
            if before is not None:
                os.environ["BATON_TUNE_FILE"] = before


def tune_prints_a_table():
    with Cluster() as c:
        cache = os.path.join(c.dir, "tune")
        for role in ("prefill", "decode"):
            done = subprocess.run([os.path.join(BUILD, "baton-" + role), "--tune"], capture_output=True, text=True,
                                  env={**os.environ, "BATON_TUNE_FILE": cache})
            assert done.returncode == 0 and done.stderr == "", done.stderr
            for name in ("memcpy", "wide", "panels", "slices", "fetch", "plain", "keys"):
                assert re.search(rf"\b{name}\b", done.stdout), done.stdout
            assert done.stdout.count("chosen") == 7, done.stdout
        done = subprocess.run([os.path.join(BUILD, "baton-router"), "--tune"], capture_output=True, text=True)
        assert done.returncode == 2 and "--tune" in done.stderr, done.stderr


def a_second_start_names_the_first():
    with Cluster() as c:
        c.relay()
        for daemon in (c.routers[0], c.workers[1]):
            said = subprocess.run(daemon.command() + ["--set", "log.format=text"], capture_output=True, text=True, timeout=patience(60))
            assert said.returncode == 1, said
            assert f"already in use: baton-{daemon.role} is there already (process {daemon.process.pid}" in said.stderr, said.stderr
        c.ask("And the first one still answers.")


main([a_second_start_names_the_first, kernel_choices_are_measured_once, tune_prints_a_table, keys_and_tenants, nothing_but_loopback_without_keys, reload_takes_all_or_nothing,
      a_reload_reaches_the_wait_for_an_unknown_model, a_fleet_changes_its_block_size_without_its_router, drain_and_undrain,
      a_signal_stops_a_starting_daemon,
      the_admin_door_wants_the_cluster_key, status_names_the_versions, metrics_tell_the_phases, shared_memory_between_users,
      a_small_pool_says_which_key_to_raise])
