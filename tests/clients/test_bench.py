#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-bench against a stub endpoint: the requests that it sends, and figures that match the answers."""
import json
import os
import signal
import subprocess
import tempfile
import time

from harness import command, main, run
from stub import Stub

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,48,10\n2023-11-16 18:17:04.1799600,31,8\n"
MOONCAKE = "".join(json.dumps({"timestamp": i * 100, "input_length": 1200, "output_length": 5, "hash_ids": ids}) + "\n"
                   for i, ids in enumerate([[0, 1, 2], [0, 1, 7], [9, 1, 2]]))


def bench(stub, *args, **more):
    return run("baton-bench", "--url", stub.url, *args, **more)


def figures(stub, *args):
    done = bench(stub, "--json", *args)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def words(asked):
    return asked["messages"][0]["content"].split()


def closed_loop():
    with Stub() as stub:
        stub.gap_s = 0.02
        f = figures(stub, "--concurrency", "5", "--requests", "30", "--warmup", "5", "--prompt-tokens", "100:200",
                    "--answer-tokens", "7:9")
        assert len(stub.asked) == 30 and f["requests"]["whole"] == 25 and f["requests"]["warmup"] == 5, f
        for asked in stub.asked:  # the stub counts two tokens per word and ten for the format
            assert 99 <= 10 + 2 * len(words(asked)) <= 201 and 7 <= asked["max_tokens"] <= 9, asked
        assert len({tuple(words(a)) for a in stub.asked}) == 30
        assert 15 < f["ttft_ms"]["p50"] < 200 and 15 < f["itl_ms"]["p50"] < 200, f
        assert f["itl_ms"]["n"] == 50 and f["e2e_ms"]["p50"] >= f["ttft_ms"]["p50"] + 30, f
        assert abs(f["time_per_token_ms"]["mean"] - f["itl_ms"]["mean"]) < 1, f
        assert f["server"]["handed_off_share"] == 1 and f["tokens"]["answer"] == 75, f
        assert abs(f["server"]["reused_share"] - 128 / 210) < 1e-3 and f["transfer_ms"]["max"] == 3.25, f
        assert f["objectives"]["kept_share"] == 1, f


def objectives_are_judged():
    with Stub() as stub:
        stub.gap_s = 0.03
        f = figures(stub, "-n", "8", "--ttft-slo", "5ms", "--itl-slo", "1s")
        assert f["objectives"]["ttft_kept_share"] == 0 and f["objectives"]["itl_kept_share"] == 1, f
        assert f["objectives"]["kept_share"] == 0, f
        assert figures(stub, "-n", "8", "--ttft-slo", "5s", "--itl-slo", "5ms")["objectives"]["kept_share"] == 0


def arrivals_do_not_wait():
    with Stub(words=["x"] * 5) as stub:
        stub.gap_s = 0.2
        began = time.monotonic()
        f = figures(stub, "--rate", "100", "-n", "40")
        assert f["requests"]["whole"] == 40 and time.monotonic() - began < 12
        assert f["requests"]["seconds"] < 6, f  # one after another they would take forty seconds


def the_same_seed_asks_the_same():
    asked = []
    for seed in ("7", "7", "8"):
        with Stub() as stub:
            figures(stub, "-c", "1", "-n", "5", "--seed", seed, "-p", "50:90", "--shared-prefix-tokens", "30")
            asked.append([a["messages"][0]["content"] for a in stub.asked])
    assert asked[0] == asked[1] != asked[2]
    assert len({tuple(text.split()[:10]) for text in asked[0]}) == 1  # 10 + 2 * 10 tokens are shared
    assert len({tuple(text.split()[:20]) for text in asked[0]}) == 5


def traces_are_played():
    with tempfile.TemporaryDirectory() as home:
        for name, text in (("a.csv", AZURE), ("m.jsonl", MOONCAKE), ("bad.csv", AZURE + "yesterday,1,2\n"), ("no.txt", "hello\n")):
            with open(os.path.join(home, name), "w") as f:
                f.write(text)
        with Stub() as stub:
            f = figures(stub, "--trace", os.path.join(home, "a.csv"))
            assert [(len(words(a)) * 2 + 10, a["max_tokens"]) for a in stub.asked] == [(48, 10), (32, 8)], stub.asked
            assert f["requests"]["seconds"] > 0.18
        with Stub() as stub:
            figures(stub, "--trace", os.path.join(home, "m.jsonl"), "--speed", "10", "-a", "1:3")
            texts = [words(a) for a in stub.asked]
            assert [len(t) for t in texts] == [595] * 3 and [a["max_tokens"] for a in stub.asked] == [3] * 3
            same = [next((i for i, (x, y) in enumerate(zip(texts[0], t)) if x != y), None) for t in texts[1:]]
            assert 507 <= same[0] < 515 and same[1] < 8, same  # two blocks of 512 tokens are equal; the first is not
            assert texts[0][260:500] == texts[2][260:500]
        with Stub() as stub:
            for name, why in (("bad.csv", b"bad.csv:4: "), ("no.txt", b"neither"), ("gone", b"No such file")):
                done = bench(stub, "--trace", os.path.join(home, name))
                assert done.returncode == 1 and why in done.stderr, done


def failures_are_counted_by_kind():
    for fault, kind in (("busy", "overloaded_error"), ("cut", "cut_off"), ("error", "api_error"), ("garbage", "malformed_answer")):
        with Stub() as stub:
            stub.fault = fault
            done = bench(stub, "-n", "6", "--json")
            assert done.returncode == 1 and json.loads(done.stdout)["errors"] == {kind: 6}, done
            table = bench(stub, "-n", "3")
            assert f"3 x {kind}".encode() in table.stdout, table
    with Stub() as stub:
        stub.gap_s = 5
        assert json.loads(bench(stub, "-n", "2", "--timeout", "200ms", "--json").stdout)["errors"] == {"timed_out": 2}


def interrupting_shows_what_there_is():
    with Stub() as stub:
        stub.gap_s = 0.02
        process = subprocess.Popen([command("baton-bench"), "--url", stub.url, "-d", "1h", "--json"], stdout=subprocess.PIPE)
        while len(stub.asked) < 20:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        f = json.loads(process.communicate(timeout=20)[0])
        assert process.returncode == 0 and f["requests"]["interrupted"] and f["requests"]["whole"] >= 10, f
        assert f["requests"]["sent"] == f["requests"]["whole"] + f["requests"]["broken_off"], f


def each_request_is_saved():
    """--save-detailed: counted requests, their gaps, and what failed or was cut."""
    with tempfile.TemporaryDirectory() as home, Stub(words=["x"] * 4) as stub:
        path = os.path.join(home, "detail.jsonl")

        def saved():
            with open(path) as f:
                return [json.loads(line) for line in f]

        stub.gap_s = 0.02
        f = figures(stub, "-c", "3", "-n", "9", "--warmup", "2", "--save-detailed", path)
        lines = saved()
        assert len(lines) == f["requests"]["whole"] == 7 and all(line["error"] is None and line["answer_tokens"] > 1 for line in lines), lines
        assert all(line["e2e_ms"] >= line["ttft_ms"] + sum(line["itl_ms"]) - 0.01 for line in lines), lines
        gaps = [gap for line in lines for gap in line["itl_ms"]]
        assert len(gaps) == f["itl_ms"]["n"] and abs(sum(gaps) / len(gaps) - f["itl_ms"]["mean"]) < 0.01, (gaps, f)
        assert abs(sum(line["prompt_tokens"] for line in lines) - f["tokens"]["prompt"]) < 1, (lines, f)
        assert 0 <= min(line["sent_s"] for line in lines) and max(line["sent_s"] + line["e2e_ms"] / 1e3 for line in lines) < 10, lines
        stub.fault = "busy"
        assert bench(stub, "-n", "3", "--save-detailed", path).returncode == 1
        assert [line["error"] for line in saved()] == ["overloaded_error"] * 3 and all(line["itl_ms"] == [] for line in saved()), saved()
        stub.fault, stub.gap_s = None, 5
        process = subprocess.Popen([command("baton-bench"), "--url", stub.url, "-n", "2", "--save-detailed", path], stdout=subprocess.PIPE)
        asked = len(stub.asked)
        while len(stub.asked) < asked + 2:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert [line["error"] for line in saved()] == ["cut"] * 2, saved()
        done = bench(stub, "-n", "1", "--save-detailed", os.path.join(home, "no", "file"))
        assert done.returncode == 1 and b"No such file" in done.stderr, done


def a_duration_ends_it():
    with Stub() as stub:
        stub.gap_s = 0.01
        f = figures(stub, "-d", "500ms", "-c", "2")
        assert 0.3 < f["requests"]["seconds"] < 3 and f["requests"]["broken_off"] == 0, f


def many_at_once():
    with Stub(words=["x"] * 3) as stub:
        stub.gap_s = 0.3
        f = figures(stub, "-c", "200", "-n", "400", "-p", "20")
        assert f["requests"]["whole"] == 400 and f["requests"]["failed"] == 0, f


def wrong_command_lines():
    for args in (["-c", "0"], ["-c", "4", "-r", "2"], ["-r", "0"], ["-r", "x"], ["-p", "9:3"], ["-p", "0"], ["-p", "3:"],
                 ["--speed", "2"], ["-d", "soon"], ["--seed", "-1"], ["stray"], ["--no-such"], ["--url", "https://x"],
                 ["--timeout", "0"], ["--temperature", "-1"], ["--url", "127.0.0.1:0"], ["--url", "127.0.0.1:65536"], ["--url", "http://:8080"]):
        done = run("baton-bench", *args)
        assert done.returncode == 2 and done.stderr, (args, done)
    assert b"usage:" in run("baton-bench", "--help").stdout and run("baton-bench", "--version").returncode == 0
    assert run("baton-bench", "--url", "127.0.0.1:9").returncode == 1


main([closed_loop, objectives_are_judged, arrivals_do_not_wait, the_same_seed_asks_the_same, traces_are_played,
      failures_are_counted_by_kind, interrupting_shows_what_there_is, each_request_is_saved, a_duration_ends_it, many_at_once, wrong_command_lines])
