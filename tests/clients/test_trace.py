#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-trace: a real router's log becomes a trace that baton-sim replays, with the prefixes that its prompts shared."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import BUILD, Cluster  # noqa: E402

TRACE = os.path.join(BUILD, "baton-trace")


def export(text, *options, status=0):
    done = subprocess.run([TRACE, "export", *options], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (options, done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()] if status == 0 else done.stderr


def a_real_log():
    with Cluster() as c:
        c.router(log__prefixes="yes", log__format="json")
        c.worker("prefill")
        c.worker("decode")
        c.wait_ready(prefill=1, decode=1)
        base = " ".join(f"fact {i}" for i in range(400))
        asked = [c.ask(f"{base} {tail}", max_tokens=8) for tail in ("one", "two")]
        asked.append(c.ask("short and unlike the others", max_tokens=8))
        c.routers[0].stop()
        with open(c.routers[0].log_path, errors="replace") as f:
            log = f.read()
    lines = export(log)
    assert [x["input_length"] for x in lines] == [a.usage["input_tokens"] + a.usage["cache_read_input_tokens"] for a in asked], lines
    assert [x["output_length"] for x in lines] == [a.usage["output_tokens"] for a in asked]
    assert lines[0]["timestamp"] == 0 and lines[0]["timestamp"] <= lines[1]["timestamp"] <= lines[2]["timestamp"]
    first, second, third = (x["hash_ids"] for x in lines)
    assert len(first) == lines[0]["input_length"] // 512 > 0 and first == second and third == [], lines
    assert "fact" not in json.dumps(lines)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps(x) + "\n" for x in lines))
        f.flush()
        out = json.loads(subprocess.run([os.path.join(BUILD, "baton-sim"), "--json", "--trace", f.name], check=True,
                                        capture_output=True, text=True).stdout)
    assert out["classes"][0]["done"] == 3 and out["prompt_tokens"]["cached"] > 0, out["prompt_tokens"]
    # each export has a key of its own, unless one is given
    assert export(log)[0]["hash_ids"] != first and len(export(log)[0]["hash_ids"]) == len(first)
    with tempfile.NamedTemporaryFile("w") as key:
        key.write("ab" * 32 + "\n")
        key.flush()
        assert export(log, "--key", key.name) == export(log, "--key", key.name)


def classes_are_kept():
    line = '{"ts": "2026-01-01T00:00:0%d.000Z", "event": "access", "request_id": "r%d", "tokens_in": 5, "tokens_out": 2, "total_us": 9%s}\n'
    classes = ("batch", "default", "", 'a\\"b', None, "x" * 32)
    lines = export("".join(line % (i, i, "" if name is None else f', "class": "{name}"') for i, name in enumerate(classes)))
    assert [x.get("class") for x in lines] == ["batch"] + 5 * [None], lines


def what_is_wrong_is_named():
    assert "no answered request" in export("", status=1)
    assert "no answered request" in export("hello\n{}\n[1]\n{\"event\": 3}\n" + "[" * 100000 + "\n", status=1)
    assert "No such file" in export("", "/nonexistent", status=1)
    export("", "--frob", status=2)
    export("", "--key", status=2)


for test in (a_real_log, classes_are_kept, what_is_wrong_is_named):
    test()
    print(f"ok {test.__name__}")
