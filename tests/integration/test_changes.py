#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes as an operator sees them: batonctl reload --diff, the configuration's hash, the names in /metrics, exemplars."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import otlp  # noqa: E402
from cluster import BUILD, Cluster, Stream, fetch, main, patience  # noqa: E402

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def ctl(c, daemon, *arguments):
    line = [os.path.join(BUILD, "batonctl"), "-a", f"127.0.0.1:{daemon.admin}", "-k", c.key, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=patience(20))
    return done.returncode, done.stdout + done.stderr


def metrics(c, daemon, accept=""):
    status, headers, body = fetch(daemon.admin, "GET", "/metrics",
                                  headers={"authorization": f"Bearer {c.admin_token()}", "accept": accept})
    assert status == 200, body
    return headers["content-type"], body.decode()


def a_reload_is_shown_before_it_is_done():
    with Cluster() as c:
        c.relay()
        c.ask("hello")  # families without a series are not shown
        for daemon in (c.routers[0], c.daemon("decode0")):
            before = daemon.metric("baton_config_hash")
            assert before > 0
            code, text = ctl(c, daemon, "reload", "--diff")
            assert (code, text) == (0, "nothing would change\n"), text
            fixed = ("http", "max_body", "2MiB") if daemon.role == "router" else ("sched", "max_seqs", "7")
            with open(daemon.conf, "w", encoding="utf-8") as f:
                f.write(f"[{fixed[0]}]\n{fixed[1]} = {fixed[2]}\n[stop]\nlame_duck = soon\n")
            code, text = ctl(c, daemon, "reload", "--diff")
            assert code == 1 and "is refused" in text and ".conf:" in text, text
            with open(daemon.conf, "w", encoding="utf-8") as f:
                f.write(f"[{fixed[0]}]\n{fixed[1]} = {fixed[2]}\n[metrics]\nnames = baton\n")
            code, text = ctl(c, daemon, "reload", "--diff", "--json")
            changes = {x["key"]: x for x in json.loads(text)["changes"]}
            key = ".".join(fixed[:2])
            assert code == 3 and set(changes) == {key, "metrics.names"}, (code, text)
            assert not changes[key]["reload"] and changes["metrics.names"]["reload"], changes
            assert (changes["metrics.names"]["from"], changes["metrics.names"]["to"]) == ("both", "baton"), changes
            assert changes[key]["where"].endswith(".conf:2"), changes
            code, text = ctl(c, daemon, "reload", "--diff")
            assert code == 3 and f"{key}   needs a restart" in text and "  + baton" in text, text
            assert "vllm:" in metrics(c, daemon)[1] and daemon.metric("baton_config_hash") == before, "it changed something"
            assert ctl(c, daemon, "reload")[0] == 0
            assert "vllm:" not in metrics(c, daemon)[1] and daemon.metric("baton_config_hash") != before
            code, text = ctl(c, daemon, "reload", "--diff")
            assert code == 3 and key in text and "metrics.names" not in text, text


def equal_configurations_have_equal_hashes():
    with Cluster() as c:
        c.router()
        c.router()
        end = time.monotonic() + patience(20)
        while True:
            try:
                hashes = [r.metric("baton_config_hash") for r in c.routers]
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert hashes[0] != hashes[1], "they differ in name and ports"
        assert all(h == int(h) and 0 < h < 2 ** 48 for h in hashes), hashes


def names_of_vllm_alone():
    with Cluster() as c:
        c.router(metrics__names="vllm")
        c.worker("decode", metrics__names="vllm")
        c.wait_ready(decode=1)
        c.ask("hello")
        text = metrics(c, c.routers[0])[1]
        assert "baton_" not in re.sub(r"# HELP.*", "", text), text
        for name in ("num_requests_running", "num_requests_waiting", "time_to_first_token_seconds_bucket",
                     "e2e_request_latency_seconds_bucket", "request_queue_time_seconds_sum", "request_prompt_tokens_bucket",
                     "request_generation_tokens_sum", "request_success_total", "prefix_cache_hits_total"):
            assert f'vllm:{name}{{model_name="baton-demo"' in text, name
        end = time.monotonic() + patience(20)
        while "vllm:kv_cache_usage_perc{" not in (text := metrics(c, c.daemon("decode0"))[1]):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        assert re.search(r'vllm:cache_config_info\{block_size="32",num_gpu_blocks="\d+"\} 1\n', text), text


def openmetrics_names_traces():
    with otlp.Collector() as collector, Cluster() as c:
        c.router(trace__url=collector.url, trace__sample="0")
        c.worker("decode")
        c.wait_ready(decode=1)
        for sampled in ("00", "01"):
            trace = TRACE if sampled == "01" else "1" * 32
            stream = Stream(c.routers[0].http, c.body("hello", max_tokens=4), {"traceparent": f"00-{trace}-00f067aa0ba902b7-{sampled}"})
            assert stream.finish().is_whole
        kind, text = metrics(c, c.routers[0], "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert kind.startswith("application/openmetrics-text; version=1.0.0") and text.endswith("# EOF\n"), kind
        lines = [line for line in text.splitlines() if f'# {{trace_id="{TRACE}"}}' in line]
        assert any(line.startswith("baton_time_to_first_token_seconds_bucket") for line in lines), lines
        assert any(line.startswith("vllm:e2e_request_latency_seconds_bucket") for line in lines), lines
        assert "1" * 32 not in text, "a trace that no collector has"
        try:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
            families = list(text_string_to_metric_families(text))
            assert any(s.exemplar for f in families for s in f.samples)
            print(f"{len(families)} families by prometheus_client's OpenMetrics parser")
        except ImportError:
            print("prometheus_client is not installed; test_prometheus.py scrapes the same")
        kind, text = metrics(c, c.routers[0])
        assert kind.startswith("text/plain; version=0.0.4") and "trace_id" not in text and "# EOF" not in text


def a_report_names_no_tenant():
    with Cluster() as c:
        keys = os.path.join(c.dir, "keys")
        made = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", "acme-corp", "rpm=1"],
                              capture_output=True, text=True, check=True).stdout.splitlines()
        with open(keys, "w", encoding="utf-8") as f:
            f.write(made[1] + "\n")
        os.chmod(keys, 0o600)
        c.router(http__api_keys=keys)
        c.worker("decode")
        c.wait_ready(decode=1)
        for _ in range(3):
            fetch(c.routers[0].http, "POST", "/v1/messages", c.body("a secret prompt", max_tokens=2), {"x-api-key": made[0]})
        assert "acme-corp" in metrics(c, c.routers[0])[1], "the test shows nothing"
        code, text = ctl(c, c.routers[0], "report", f"127.0.0.1:{c.routers[0].admin}", f"127.0.0.1:{c.daemon('decode0').admin}",
                         "127.0.0.1:1")
        assert code == 0 and text.count("# daemon at") == 3 and "no answer: cannot connect" in text, text
        assert 'tenant="tenant-1"' in text and '"daemon": "baton-decode"' in text, text
        with open(c.key, encoding="utf-8") as f:
            secrets = ["acme-corp", "secret prompt", made[0], made[1].split()[0], f.read().strip(), c.admin_token()]
        assert not [secret for secret in secrets if secret in text]


if __name__ == "__main__":
    main([a_reload_is_shown_before_it_is_done, equal_configurations_have_equal_hashes, names_of_vllm_alone,
          openmetrics_names_traces, a_report_names_no_tenant])
