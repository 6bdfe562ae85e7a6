#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-sim from the command line: the same bytes from the same seed, traces of all kinds, errors for wrong input, the
router's own picker code.  Where the recorded traces are present, also the order of the policies."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("BATON_BUILD", os.getcwd())
SOURCE = os.environ.get("BATON_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SIM = os.path.join(BUILD, "baton-sim")
TRACES = os.path.join(SOURCE, "..", "shared", "data", "traces")


def run(*options, status=0):
    done = subprocess.run([SIM, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (options, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def report(*options):
    return json.loads(run("--json", *options))


def in_file(text, suffix=".jsonl"):
    f = tempfile.NamedTemporaryFile("w", suffix=suffix)
    f.write(text)
    f.flush()
    return f


def same_seed_same_bytes():
    for options in (["--generate", "bursts", "--rate", "5"], ["--generate", "sessions", "--cancel", "0.1", "--crash-every", "60"]):
        for form in ([], ["--json"]):
            first = run("--seed", "3", *options, *form)
            assert first == run("--seed", "3", *options, *form)
            assert first != run("--seed", "4", *options, *form)


def every_request_is_accounted_for():
    for kind in ("poisson", "bursts", "diurnal", "mix", "sessions"):
        out = report("--generate", kind, "--rate", "50", "--duration", "60", "--cancel", "0.05", "--crash-every", "20", "--start", "5s")
        one = out["classes"][0]
        assert one["arrived"] == one["done"] + one["cancelled"] + sum(one["refused"].values()), out
        assert sum(c["arrived"] for c in out["timeline"]["columns"]) == one["arrived"]
        assert sum(n for _, n in one["e2e_s"]["histogram"]) == one["e2e_s"]["n"] == one["done"]


def a_generated_load_ends_after_its_requests():
    for kind in ("poisson", "mix", "sessions"):
        assert report("--generate", kind, "--rate", "5", "--requests", "50")["classes"][0]["arrived"] == 50, kind


def crashes_that_let_nothing_end_are_named():
    """Without a bound, such a run has no end."""
    assert "once a millisecond at most" in run("--generate", "poisson", "--crash-every", "0.0001", status=1)
    assert "crashes come too often" in run("--generate", "poisson", "--crash-every", "0.01", "--start", "30s", status=1)


def an_interrupt_ends_with_a_partial_report():
    load = ("--generate", "poisson", "--rate", "20000", "--duration", "1e7")
    for form in ((), ("--json",)):
        with subprocess.Popen([SIM, *load, *form], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
            while "SigCgt:\t0000000000000000" in open(f"/proc/{p.pid}/status").read():  # until it catches signals
                time.sleep(0.01)
            time.sleep(0.5)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=60)
        assert p.returncode == 130 and err == "", (p.returncode, err)
        if form:
            one = json.loads(out)
            kind = one["classes"][0]
            assert one["partial"] is True and kind["arrived"] > 0, one
            assert kind["arrived"] == kind["done"] + kind["cancelled"] + sum(kind["refused"].values()) + one["under_way"], one
        else:
            assert "partial: " in out and "goodput" in out, out
    assert "partial" not in run("--generate", "poisson", "--requests", "3", "--json")


def the_text_has_a_chart():
    out = run("--generate", "diurnal", "--rate", "5")
    for word in ("TTFT s", "ITL ms", "E2E s", "goodput", "busy:", "over time", "arrivals"):
        assert word in out, out
    for load in (("--rate", "2", "--duration", "20"), ("--rate", "30", "--prompt", "3000", "--answer", "100", "--prefill", "5", "--decode", "3", "--duration", "300")):
        busy = re.findall(r"^(prefill|decode) busy .* ([\d.]+) %$", run("--generate", "poisson", *load), re.M)
        assert len(busy) == 2 and all(float(percent) <= 100 for _, percent in busy), busy


def traces_are_read():
    line = '{"timestamp": %d, "input_length": 1024, "output_length": 4, "hash_ids": [1, %d]}\n'
    with in_file("".join(line % (i * 2000, i % 3) for i in range(40))) as f:
        out = report("--trace", f.name, "--replicas", "2")
        assert out["classes"][0]["done"] == 80
        assert out["prompt_tokens"]["cached"] > 0
    with in_file("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00.5,10,3\n2026-01-01 00:00:01,7,1\n", ".csv") as f:
        assert report("--trace", f.name)["classes"][0]["answer_tokens"] == 4


def traces_begin_with_a_mark_or_empty_lines():
    csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00.5,10,3\n"
    line = '{"timestamp": 0, "input_length": 1024, "output_length": 3}\n'
    for text in (csv, "\ufeff" + csv, "\n\r\n" + csv, "\ufeff" + line, "\n\n" + line):
        done = subprocess.run([SIM, "--json", "--trace", "-"], input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and json.loads(done.stdout)["classes"][0]["answer_tokens"] == 3, (text, done.stderr)
    done = subprocess.run([SIM, "--trace", "-"], input="\n" + line + "{\n", capture_output=True, text=True, timeout=60)
    assert "standard input:3:" in done.stderr and done.returncode == 1, done.stderr


def classes_of_a_trace_are_kinds():
    line = '{"timestamp": %d, "input_length": 64, "output_length": 2%s}\n'
    words = ("", ', "class": "batch"', ', "class": "default"', ', "class": "other"', ', "class": ""')
    with in_file("".join(line % (i, word) for i, word in enumerate(words))) as f:
        two = report("--trace", f.name, "--class2", "priority=0")["classes"]
        assert [c["arrived"] for c in two] == [3, 2], two
        assert [c["arrived"] for c in report("--trace", f.name)["classes"]] == [5]


def what_is_wrong_is_named():
    good = '{"timestamp": 0, "input_length": 5, "output_length": 4, "hash_ids": []}\n'
    for text, says in (("", "neither"), ("hello\n", "neither"), (good + "{\n", ":2:"), (good * 3 + '{"timestamp": -1}\n', ":4:"),
                       (good + '{"timestamp": 1, "input_length": 99999999999, "output_length": 1}\n', ":2:"),
                       (good + "[" * 100000 + "\n", ":2:"), (good + '{"timestamp": 9000000000000000, "input_length": 1, "output_length": 1}\n', ""),
                       ("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-13-01 00:00:00,1,1\n", ":2:")):
        with in_file(text) as f:
            err = run("--trace", f.name, status=1)
            assert says in err and len(err) < 700 and err.count("\n") == 1, err
    assert "No such file" in run("--trace", "/nonexistent", status=1)
    for options in ([], ["--trace"], ["--generate", "x"], ["--policy", "best", "--generate", "poisson"], ["--prefill", "2000", "--generate", "poisson"],
                    ["--frob"], ["--costs", "guessed", "--generate", "poisson"], ["--generate", "poisson", "--trace", "x"], ["--prefill-times", "1,2", "--generate", "poisson"], ["--preset", "x", "--generate", "poisson"]):
        assert "baton-sim" in run(*options, status=2)
    for load, other in (("--generate", "--trace"), ("--trace", "--generate")):
        for option in {"--trace": ("--speed", "--replicas"), "--generate": ("--rate", "--rate2", "--tenants", "--via2")}[other]:
            assert f"{option}: it is an option of {other}" in run(option, "1", load, "poisson", status=2), option


def measured_times_are_taken():
    with in_file('{"prefill_tokens_per_s": 1000.0, "decode_step_ms": 20.0}', ".json") as f:
        slow = report("--measured", f.name, "--generate", "poisson", "--rate", "0.5")["classes"][0]
        assert 0.019 < slow["itl_s"]["p50"] < 0.03, slow["itl_s"]
    # steps of two sizes determine the fixed part: 10 ms, and 0.1 ms for each prompt token, where the rate alone would count the fixed part twice
    steps = '"steps_ms": {"rows_1": 10.5, "rows_8": 14.0, "tokens_64": 16.4, "tokens_512": 61.2}'
    with in_file('{"prefill_tokens_per_s": 6000.0, "decode_step_ms": 11.0, %s}' % steps, ".json") as f, \
            in_file('{"prefill_tokens_per_s": 6000.0, "decode_step_ms": 11.0}', ".json") as g, in_file("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00,400,3\n", ".csv") as t:
        fleet = ("--trace", t.name, "--latency", "0s", "--nic", "0")
        known, rate = (report("--measured", x.name, *fleet)["classes"][0] for x in (f, g))
        assert abs(known["ttft_s"]["mean"] - 0.050) < 0.001, known["ttft_s"]
        assert abs(known["itl_s"]["mean"] - 0.0105) < 0.001, known["itl_s"]
        assert rate["ttft_s"]["mean"] > 0.07, rate["ttft_s"]
    # and, before the worker has seen long prompts, what attention adds: 200 ns for each pair
    steps = '"steps_ms": {"rows_1": 10.5, "rows_8": 14.0, "tokens_64": 16.81, "tokens_512": 87.41}'
    with in_file('{"prefill_tokens_per_s": 6000.0, "decode_step_ms": 11.0, %s}' % steps, ".json") as f, \
            in_file("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00,256,3\n", ".csv") as t:
        mean = report("--measured", f.name, "--trace", t.name, "--latency", "0s", "--nic", "0")["classes"][0]["ttft_s"]["mean"]
        assert abs(mean - 0.0422) < 0.0005, mean
    for text, says in (("", ":1:"), ("{}", "decode_step_ms"), ('{"prefill_tokens_per_s": -1, "decode_step_ms": 1}', "above 0"), ("[" * 9999, ":1:")):
        with in_file(text, ".json") as f:
            err = run("--measured", f.name, "--generate", "poisson", status=1)
            assert says in err and err.count("\n") == 1, err


def workers_share_a_host():
    """Three prompts of a second each at once: on two cores each takes one and a half."""
    line = "2026-01-01 00:00:00,1000,1\n"
    times = ("--prefill-times", "0,0,0,.001,0", "--latency", "0s", "--batch", "0", "--prefill", "3", "--decode", "1", "--policy", "round-robin")
    with in_file("TIMESTAMP,ContextTokens,GeneratedTokens\n" + 3 * line, ".csv") as f:
        def ttft(*options):
            return report("--trace", f.name, *times, *options)["classes"][0]["ttft_s"]["mean"]

        assert abs(ttft() - 1) < 1e-6
        assert abs(ttft("--host-cores", "2") - 1.5) < 1e-6
        assert abs(ttft("--host-cores", "3") - 1) < 1e-6
        assert abs(ttft("--host-cores", "1", "--host-workers", "1") - 1) < 1e-6
        # cores that all compute slow each other; two of three, half as much
        assert abs(ttft("--host-cores", "3", "--core-drag", "0.5") - 1.5) < 1e-6
        assert abs(ttft("--host-cores", "2", "--core-drag", "0.5") - 2.25) < 1e-6
        assert abs(ttft("--host-cores", "5", "--core-drag", "0.5") - 1.25) < 1e-6
    # short steps beside a long prompt: the mean is that of even parts, some wait for a slice; tokens that cost the host something take longer
    load = ("--preset", "demo", "--prefill", "2", "--decode", "2", "--rigid", "--generate", "poisson", "--rate", "6", "--prompt", "400", "--answer", "40", "--duration", "60")
    alone, even, sliced, costly = (report(*load, *options)["classes"][0]["itl_s"] for options in (
        (), ("--host-cores", "2", "--host-slice", "0"), ("--host-cores", "2"), ("--host-cores", "2", "--token-cpu", "2ms")))
    arriving = report(*load, "--host-cores", "2", "--request-cpu", "20ms")["classes"][0]["itl_s"]
    assert arriving["mean"] > sliced["mean"] and arriving["p99"] > sliced["p99"], (arriving, sliced)
    assert abs(sliced["mean"] / even["mean"] - 1) < 0.01 and sliced["n"] == even["n"], (even, sliced)
    assert sliced["p99"] > even["p99"] and sliced["p50"] < even["p50"] and alone["mean"] < even["mean"] < costly["mean"], (alone, even, sliced, costly)
    plain = run(*load, "--json")
    assert plain == run(*load, "--json", "--host-cores", "0") == run(*load, "--json", "--host-slice", "9ms", "--token-cpu", "1s", "--request-cpu", "1s", "--host-workers", "3", "--core-drag", "2")
    # noisy steps have the same mean on hosts with cores enough, and their tail is longer; equal workers learn different speeds
    noisy, again = (run(*load, "--noise", "0.5", "--json") for _ in range(2))
    assert noisy == again and noisy != plain and plain == run(*load, "--noise", "0", "--json")
    itl = json.loads(noisy)["classes"][0]["itl_s"]
    assert abs(itl["mean"] / alone["mean"] - 1) < 0.1 and itl["p99"] > 1.2 * alone["p99"], (alone, itl)
    for wrong in (("--host-cores", "-1"), ("--host-cores", "2000000"), ("--host-workers", "0"), ("--host-slice", "61s"), ("--token-cpu", "2min"), ("--request-cpu", "2min"), ("--noise", "-1"), ("--noise", "11"), ("--core-drag", "-0.1")):
        assert wrong[0] in run(*load, *wrong, status=2), wrong


def classes_and_pauses_are_reported():
    """A high class beside a low one whose long answers fill the seats: with pauses it is served."""
    fleet = ["--preset", "demo", "--prefill", "1", "--decode", "1", "--generate", "mix", "--duration", "60", "--rate", "4", "--prompt", "300", "--answer", "40",
             "--rate2", "16", "--prompt2", "300", "--answer2", "400", "--class", "priority=10"]
    plain, paused = (report(*fleet, "--class2", words)["classes"] for words in ("priority=0", "priority=0 may-be-paused=1min"))
    assert [c["class"] for c in paused] == [0, 1] and plain[1]["pauses"] == 0 < paused[1]["pauses"] and paused[0]["pauses"] == 0, paused
    good = [c[0]["good"] / c[0]["arrived"] for c in (plain, paused)]
    assert good[1] > good[0] + 0.1, good
    for one in paused:
        assert one["arrived"] == one["done"] + sum(one["refused"].values()), one
    text = run(*fleet, "--class2", "priority=0 itl=200ms may-be-paused=1min")
    assert "paused for a higher class: " in text and "ITL <= 200.0 ms" in text and "ITL <= 50.0 ms" in text, text
    assert "--class2" in run("--generate", "mix", "--class2", "priority=1000", status=2)
    assert "--class" in run("--generate", "poisson", "--class", "speed=1", status=2)


def tenants_come_to_routers_of_their_own():
    load = ("--generate", "mix", "--two-tenants", "--rate", "5", "--rate2", "5", "--duration", "60", "--prompt2", "1000", "--answer2", "200",
            "--routers", "3")
    both = report(*load, "--via", "3", "--via2", "1,2")
    assert [c["arrived"] > 200 for c in both["classes"]] == [True, True], both["classes"]
    assert 0.95 < both["jain"] <= 1, both["jain"]
    assert report(*load)["classes"] != both["classes"]
    assert "Jain's index" in run(*load) and "tenant 1" in run(*load)
    assert "jain" not in report("--generate", "mix", "--requests", "10")
    for wrong in ("4", "0", "1,", "x"):
        assert "routers have numbers from 1 to 3" in run(*load, "--via2", wrong, status=2), wrong


def help_names_every_option():
    text = run("--help")
    for option in ("--trace", "--generate", "--policy", "--preset", "--json", "--crash-every", "--disk-tokens", "--report-delay"):
        assert option in text
    assert run("--version").startswith("baton-sim ")


def defaults_are_the_routers():
    """With the router's own defaults as options the report is the same, byte for byte."""
    keys = {"--ttft": "slo.ttft", "--itl": "slo.itl", "--refuse": "queue.refuse", "--queue": "queue.max", "--queue-timeout": "queue.timeout",
            "--local-tokens": "placement.local_prefill_tokens", "--local-time": "placement.local_prefill_time",
            "--prefix-fetch": "placement.prefix_fetch", "--roles": "placement.roles", "--roles-min": "placement.roles_min",
            "--roles-period": "placement.roles_period", "--index": "placement.index_entries"}
    values, section = {}, ""
    for line in subprocess.run([os.path.join(BUILD, "baton-router"), "--sample-config"], capture_output=True, text=True, check=True).stdout.splitlines():
        found = re.match(r"\[(\w+)\]|#(\w+) = (\S+)$", line)
        if found and found[1]:
            section = found[1]
        elif found:
            values[f"{section}.{found[2]}"] = found[3]
    load = ["--generate", "mix", "--duration", "30", "--rate", "20", "--json"]
    given = [word for option, key in keys.items() for word in (option, values[key])]
    assert run(*load) == run(*load, *given), given
    assert run(*load) != run(*load, "--local-time", "0", "--local-tokens", "0"), "the load does not show the options"


def symbols(path):
    out = subprocess.run(["nm", "-S", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return {r[3]: int(r[1], 16) for r in rows if len(r) == 4 and r[2] in "Tt"}


def daemons_link_the_same_objects():
    """Each function of the picker, and the fair queue's and the rates', has the same size in router and simulator; so has
    the scheduler's rule for the prompt tokens of a step, and its cost model, in worker and simulator."""
    ours, theirs = symbols(SIM), symbols(os.path.join(BUILD, "baton-router"))
    names = [n for n in ours if n.startswith(("picker_", "fair_", "rate_", "index_owners_", "prefix_match_"))]
    assert len(names) > 40 and "picker_pick" in names and "picker_turn_next" in names, names
    for name in names:
        if name in theirs:  # the linker may leave out functions that one of them does not call
            assert ours[name] == theirs[name], name
    assert sum(n in theirs for n in names) > 40
    worker = symbols(os.path.join(BUILD, "baton-decode"))
    for name in ("sched_budget_tokens", "sched_speed_learn", "sched_speed_decode", "cost_observe", "cost_predict", "cost_margin", "prompt_cost_learn",
                 "prompt_cost_s"):
        assert ours[name] == worker[name], name


def policies_come_in_their_order():
    trace = os.path.join(TRACES, "mooncake-conversation.jsonl")
    if not os.path.exists(trace):
        print("skipped: no recorded traces here")
        return
    mean = {p: report("--preset", "mooncake", "--policy", p, "--trace", trace)["classes"][0]["ttft_s"]["mean"]
            for p in ("random", "load", "cache-aware", "global", "ours")}
    assert mean["random"] > mean["load"] > mean["cache-aware"] > mean["global"] > mean["ours"], mean
    assert mean["ours"] <= 1.62, mean
    fast = report("--preset", "mooncake", "--speed", "1.6", "--trace", trace)["classes"][0]
    assert fast["ttft_s"]["p90"] <= 30 and fast["done"] == fast["arrived"], fast["ttft_s"]


def main():
    for test in (same_seed_same_bytes, every_request_is_accounted_for, a_generated_load_ends_after_its_requests, crashes_that_let_nothing_end_are_named,
                 an_interrupt_ends_with_a_partial_report, the_text_has_a_chart, traces_are_read, traces_begin_with_a_mark_or_empty_lines,
                 classes_of_a_trace_are_kinds, what_is_wrong_is_named, measured_times_are_taken, workers_share_a_host,
                 classes_and_pauses_are_reported, tenants_come_to_routers_of_their_own,
                 help_names_every_option, defaults_are_the_routers, daemons_link_the_same_objects, policies_come_in_their_order):
        test()
        print(f"ok {test.__name__}")


if __name__ == "__main__":
    sys.exit(main())
