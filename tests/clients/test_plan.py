#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-plan from outside: it plans for every device or refuses it by name, and its reports agree with each other.
Where the public measurements are present (BATON_PLAN_MEASURED, or ../shared/data/planning beside the source),
predictions stay within their targets."""
import csv
import http.server
import io
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import xml.dom.minidom

from harness import command, main, run

SOURCE = os.environ.get("srcdir", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MEASURED = os.environ.get("BATON_PLAN_MEASURED", os.path.join(SOURCE, "..", "shared", "data", "planning", "measured.tsv"))
IS_SANITIZED = bool(os.environ.get("BATON_SANITIZED"))  # the plain build checks the figures
WORK = ("--isl", "8000", "--osl", "500", "--hit", "0.4", "--rate", "100", "--ttft", "4s", "--itl", "100ms")


def plan(*args, rc=0):
    done = run("baton-plan", *args, text=True)
    assert done.returncode == rc, (args, done.returncode, done.stdout[-2000:], done.stderr)
    return done


def every_device_works_or_is_refused_by_name():
    devices = json.loads(plan("devices", "--json").stdout)
    assert len(devices) == 53, len(devices)
    fields = {"memory", "memory_rate", "sram", "sram_rate", "scaleup_rate", "nic_rate", "scaleup_devices"}
    works = 0
    for device in devices:
        for value in device.values():
            assert not isinstance(value, dict) or value["source"], device
        done = run("baton-plan", "plan", "-m", "llama-3-8b", "-d", device["device"], "-w", "bf16", *WORK, "--json", text=True)
        if done.returncode == 0:
            works += 1
            assert json.loads(done.stdout)["plans"], device
            continue
        assert done.returncode == 1 and device["device"] in done.stderr or "relax" in done.stderr, done.stderr
        named = re.search(r"(\w+) \([^)]*\) is not known", done.stderr)
        if named:  # an unknown figure is absent
            assert named.group(1) in fields or named.group(1).startswith("flops_"), done.stderr
            assert device[named.group(1)]["value"] is None, (device, done.stderr)
    assert works >= 30, works


def reports_agree():
    args = ("plan", "-m", "llama-3-70b", "-d", "h100", "-d", "h200", "-w", "fp8", "--kv", "fp8", *WORK, "--top", "5")
    report = json.loads(plan(*args, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(plan(*args, "--csv").stdout)))
    table = plan(*args, "--explain").stdout
    assert len(report["plans"]) == len(rows) == 5
    for a, b in zip(report["plans"], rows):
        assert a["prefill"] == b["prefill"] and abs(a["devices"] - float(b["devices"])) < 1e-6
        assert a["devices_low"] <= a["devices"] and a["ttft_low_ms"] < a["ttft_ms"] < a["ttft_high_ms"]
        assert a["ttft_ms"] <= 4000 and a["itl_ms"] <= 100.001
    costs = [p["dollars_per_hour"] for p in report["plans"]]
    assert costs == sorted(costs)
    assert report["best_aggregated"] and "isaggregation" in report["verdict"]
    for word in ("projections", "fixed (layers)", "tiers:", "tau_layer", "stas00"):
        assert word in table, word


def files_are_whole():
    with tempfile.TemporaryDirectory() as folder:
        page, conf = os.path.join(folder, "plan.html"), os.path.join(folder, "conf")
        plan("plan", "-m", "llama-3-8b", "-d", "h100", *WORK, "--html", page, "--conf", conf)
        text = open(page, encoding="utf-8").read()
        charts = re.findall(r"<svg viewBox=\"0 0 640.*?</svg>", text, re.S)
        assert len(charts) == 3 and "viewport" in text and "http" not in text.replace("https", "http").split("<body>")[1]
        for chart in charts:
            xml.dom.minidom.parseString(chart)
        key = os.path.join(folder, "cluster.key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write("%064d\n" % 1)
        for role in ("router", "prefill", "decode"):
            path = os.path.join(conf, role + ".conf")
            sets = ["--set", "link.cluster_key=" + key]
            if role != "router":  # the memory is that of the planned device
                sets += ["--set", "kv.memory=64MiB", "--set", "model.path=" + os.path.join(SOURCE, "share", "baton-demo.gguf")]
            done = subprocess.run([command("baton-" + role), "--config", path, "--check-config", *sets], capture_output=True)
            assert done.returncode == 0, done


def trace_lines(n=200):
    return "".join(json.dumps({"timestamp": i * 50, "input_length": 1000 + i, "output_length": 100, "hash_ids": [0, 1, 2 + i]}) + "\n"
                   for i in range(n))


def a_trace_comes_from_anywhere():
    """A file, or standard input; with more bytes than other tables may have."""
    fleet = ("-m", "llama-3-8b", "-d", "h100", "--ttft", "1s", "--itl", "30ms")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
        trace.write(trace_lines())
        trace.flush()
        for words in (("simulate", "--search", "no", "--json"), ("sweep", "--vary", "rate", "--values", "1", "--json"), ("plan", "--json")):
            same = [run("baton-plan", words[0], *fleet, *words[1:], "--trace", path, input=trace_lines(), text=True) for path in (trace.name, "-")]
            assert all(done.returncode == 0 and done.stdout for done in same), same
            assert same[0].stdout == same[1].stdout, same
        trace.write("\n" * (65 << 20))
        trace.flush()
        plan("plan", *fleet, "--trace", trace.name)
    assert "No such file" in plan("plan", *fleet, "--trace", trace.name, rc=1).stderr


def mixed_pools_and_traces():
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
        trace.write(trace_lines())
        trace.flush()
        report = json.loads(plan("plan", "-m", "qwen3-8b", "--prefill-device", "b200", "--decode-device", "h200", "--trace",
                                 trace.name, "--ttft", "1s", "--itl", "30ms", "--json").stdout)
    assert abs(report["work"]["isl"] - 1099.5) < 1e-6 and abs(report["work"]["rate"] - 200 / 9.95) < 1e-3
    assert abs(report["work"]["hit"] - (1 - 202 / 600)) < 1e-4, report["work"]
    assert all(p["prefill"].startswith("b200") and p["decode"].startswith("h200") for p in report["plans"])


def complaints_name_what_is_wrong():
    for args, word in (
        (("plan", "-m", "llama-3-9b", "-d", "h100", *WORK), "did you mean"),
        (("plan", "-m", "llama-3-8b", "-d", "h1000", *WORK), "no device"),
        (("plan", "-m", "llama-3-8b", "-d", "h100,flops_bf16=1979TFLOPS", *WORK), "sparsity"),
        (("plan", "-m", "llama-3-8b", "-d", "h100", *WORK, "--link", "wet-string"), "no link"),
        (("plan", "-m", "llama-3-8b", "-d", "h100", *WORK, "-w", "fp3"), "fp3"),
        (("validate", "/nonexistent.tsv"), "nonexistent"),
    ):
        done = plan(*args, rc=1)
        assert word in done.stderr, (word, done.stderr)
    assert "--isl" in plan("plan", "--help").stdout
    assert "devices" in plan("deices", rc=2).stderr


def predictions_stay_within_their_targets():
    if not os.path.exists(MEASURED):
        print("skipped: no measurements at", MEASURED)
        return
    if IS_SANITIZED:
        plan("validate", "--json", "--cross", "engine", MEASURED)
        return
    fitted = json.loads(plan("validate", "--json", MEASURED).stdout)
    assert fitted["rows"] == 1130 and fitted["refused"] == 0
    for split, limit in (("config", 15), ("device", 20), ("model", 22), ("engine", 21)):
        all_rows = json.loads(plan("validate", "--json", "--cross", split, MEASURED).stdout)["all"]["tpot"]
        print("%-7s TPOT %.1f %%, bias %.3f, in 90 %%: %.1f %%" % (split, all_rows["mape_percent"], all_rows["bias"],
                                                                  all_rows["coverage_percent"]))
        assert all_rows["mape_percent"] <= limit and 85 <= all_rows["coverage_percent"] <= 95, (split, all_rows)
        assert 0.95 <= all_rows["bias"] <= 1.05
    # Half of the rows fitted, the other half predicted.
    lines = open(MEASURED, encoding="utf-8").read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        halves = [os.path.join(folder, name) for name in ("fit.tsv", "kept.tsv")]
        for i, path in enumerate(halves):
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join([lines[0]] + lines[1 + i::2]) + "\n")
        constants = os.path.join(folder, "constants")
        assert "held-out" in plan("calibrate", "-c", "none", "-o", constants, halves[0]).stderr
        kept = json.loads(plan("validate", "--json", "-c", constants, halves[1]).stdout)["all"]["tpot"]
        assert kept["mape_percent"] <= 16 and 85 <= kept["coverage_percent"] <= 95, kept


class Endpoint:
    """Chat completions with fixed times: 0.2 ms a prompt token, 8 ms a token of the answer."""

    def __init__(self, has_usage=True):
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                tokens = 7 + 2 * len(asked["messages"][0]["content"].split())
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                time.sleep(tokens * 0.0002)
                for i in range(asked["max_tokens"]):
                    time.sleep(0.008 if i else 0)
                    self.wfile.write(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
                    self.wfile.flush()
                if has_usage:
                    usage = {"prompt_tokens": tokens, "completion_tokens": asked["max_tokens"]}
                    self.wfile.write(("data: " + json.dumps({"choices": [], "usage": usage}) + "\n\n").encode())
                self.wfile.write(b"data: [DONE]\n\n")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()


def an_endpoint_is_calibrated_on():
    with Endpoint() as endpoint, tempfile.TemporaryDirectory() as folder:
        table, constants = os.path.join(folder, "measured.tsv"), os.path.join(folder, "constants")
        done = plan("calibrate", "--url", endpoint.url, "--model", "llama-3-8b", "--device", "h100", "--time", "4s",
                    "--measured", table, "-o", constants)
        assert "held-out" in done.stderr
        rows = list(csv.DictReader(open(table, encoding="utf-8"), delimiter="\t"))
        assert len(rows) >= 3 and {r["engine"] for r in rows} == {"baton"}
        for row in rows:
            assert 7.5 < float(row["tpot_ms"]) < 16, row
            assert float(row["ttft_ms"]) > 0.2 * float(row["isl"]), row
        assert abs(float(rows[0]["isl"]) - 128) < 3, rows[0]
        assert "name calibrated" in open(constants, encoding="utf-8").read()
        plan("validate", "-c", constants, table)
        chosen = ["calibrate", "--url", endpoint.url, "--model", "llama-3-8b", "--device", "h100", "--measured", table, "-o", constants]
        plan(*chosen, "--points", "100:8:1,200:16:2:0.5,50:4:3")
        rows = list(csv.DictReader(open(table, encoding="utf-8"), delimiter="\t"))
        assert [(r["osl"], r["concurrency"], r["hit"]) for r in rows] == [("8.0", "1", "0"), ("16.0", "2", "0.5"), ("4.0", "3", "0")], rows
        for wrong, reason in (("", "is not"), ("100:8", "is not"), ("100:8:1x", "is not"), ("100:8:1:", "is not"), ("100:8:1,", "is not"),
                              ("100:8:1:1", "below 1"), ("100:8:1:-1", "below 1"), ("100:2:1", "4 to"), ("nan:8:1", "1 to"), ("100:8:0", "at once"),
                              ("100:8:1025", "at once"), ("100:8:-1", "at once"), (",".join(["9:9:1"] * 65), "more than 64")):
            done = plan(*chosen, "--points", wrong, rc=1)
            assert "--points" in done.stderr and reason in done.stderr, (wrong, done.stderr)
    with Endpoint(has_usage=False) as endpoint:
        done = plan("calibrate", "--url", endpoint.url, "--model", "llama-3-8b", "--device", "h100", "--time", "1s", rc=1)
        assert "usage" in done.stderr
    plan("calibrate", "--url", "http://127.0.0.1:9", "--model", "llama-3-8b", "--device", "h100", rc=1)


FULL = ["-m", "llama-3-70b", "-d", "h100", "-w", "fp8", "--kv", "fp8", "--tp", "2", "--isl", "3000,5000", "--osl", "300,500", "--hit", "0.4", "-r", "100",
        "--ttft", "2s", "--itl", "40ms", "--load", "0.75"]
SMALL = ["-m", "llama-3-8b", "-d", "h200", "--isl", "1000", "--osl", "200", "-r", "200", "--ttft", "500ms", "--itl", "30ms",
         "--load", "0.7"]


def plans_are_simulated():
    """The simulator needs about as many workers as the plan, and more of them keep the objectives better."""
    answer = json.loads(plan("simulate", *SMALL, "--json").stdout)
    assert answer["simulated"]["good_share"] > 0.9, answer
    for role in ("prefill", "decode"):
        planned, needed = answer["plan"][role], answer["at_plan_loads"][role]
        assert abs(planned - needed) <= max(1, 0.1 * planned), (role, answer)
    if not IS_SANITIZED:
        full = json.loads(plan("simulate", *FULL, "--json").stdout)  # KV memory bounds the batch
        assert full["plan"]["decode_load"] <= 0.81, full
        for role in ("prefill", "decode"):
            planned, needed = full["plan"][role], full["at_plan_loads"][role]
            assert abs(planned - needed) <= max(1, 0.1 * planned), (role, full)
        assert abs(full["simulated"]["itl_s"] / full["plan"]["itl_s"] - 1) < 0.1, full
    once = [plan("simulate", *SMALL, "--json", "--search", "no").stdout for _ in range(2)]
    assert once[0] == once[1]  # the same seed, the same result
    starved = json.loads(plan("simulate", *SMALL, "--json", "--search", "no", "--decode", "1").stdout)
    assert starved["simulated"]["good_share"] < answer["simulated"]["good_share"], starved


def one_thing_is_varied():
    rates = json.loads(plan("sweep", *SMALL, "--vary", "rate", "--values", "0.5,1,4", "--json").stdout)["points"]
    assert [p["value"] for p in rates] == [0.5, 1, 4] and rates[0]["prefill_load"] < rates[1]["prefill_load"], rates
    assert rates[0]["good_share"] >= rates[2]["good_share"], rates
    rows = plan("sweep", *SMALL, "--vary", "ratio", "--values=0.3,0.6", "--csv").stdout.splitlines()
    assert len(rows) == 3 and rows[0].startswith("ratio,prefill,decode"), rows
    slow = json.loads(plan("sweep", *SMALL, "--vary", "slow", "--values", "1,1,4", "--json").stdout)["points"]
    assert slow[0] == slow[1] and slow[2]["ttft_s"] > slow[0]["ttft_s"], slow
    assert "prefill" in plan("sweep", *SMALL, "--vary", "lost", "--values", "0,1").stdout
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    try:  # points run on all processors there are: the report is the same
        assert json.loads(plan("sweep", *SMALL, "--vary", "rate", "--values", "0.5,1,4", "--json").stdout)["points"] == rates
    finally:
        os.sched_setaffinity(0, everywhere)
    for words in (["--vary", "moon"], ["--values", "a"], ["--values", ""], ["--seed", "0"], ["--vary"]):
        plan("sweep", *SMALL, *words, rc=2)


main([plans_are_simulated, one_thing_is_varied, an_endpoint_is_calibrated_on, every_device_works_or_is_refused_by_name, reports_agree, files_are_whole, a_trace_comes_from_anywhere, mixed_pools_and_traces,
      complaints_name_what_is_wrong, predictions_stay_within_their_targets])
