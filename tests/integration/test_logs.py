#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log has one stable schema: docs/log-schema.json names every event and field of the sources and no other, and each line
that real daemons write fits it.

    python3 tests/integration/test_logs.py --write      writes the schema's lists anew from the sources"""
import glob
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import SOURCE, Cluster, Stream, fetch, main, patience  # noqa: E402

SCHEMA = os.path.join(SOURCE, "docs", "log-schema.json")
KINDS = {"STR": "string", "U64": "integer", "I64": "integer", "F64": "number", "BOOL": "boolean", "ERR": "string"}
FIXED = ("ts", "level", "program", "event")


def in_sources():
    """(events, {field: set of types}) of all daemons."""
    events, fields = {"log_suppressed"}, {"of_event": {"string"}, "lines": {"integer"}}
    for path in glob.glob(os.path.join(SOURCE, "src", "**", "*.c"), recursive=True) + \
            glob.glob(os.path.join(SOURCE, "daemon", "*.c")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for first in re.findall(r'\blog_(?:debug|info|warn|error)\(([^,;]*?"[^,;]*?)[,)]', text):
            events |= set(re.findall(r'"([a-z0-9_]+)"', first))  # also of: condition ? "one" : "other"
        events |= set(re.findall(r'\blog_lines\(\w+, "([a-z0-9_]+)"', text))
        for kind, key in re.findall(r'\bLOG_(STR|U64|I64|F64|BOOL)\(\s*"([a-z0-9_]+)"', text):
            fields.setdefault(key, set()).add(KINDS[kind])
        if re.search(r"\bLOG_ERR\(", text):
            fields.setdefault("error", set()).add("string")
    return events, fields


def schema():
    with open(SCHEMA, encoding="utf-8") as f:
        return json.load(f)


def types_of(rule):
    kind = rule.get("type", [])
    return set([kind] if isinstance(kind, str) else kind)


def write():
    old = schema()
    events, fields = in_sources()
    old["properties"]["event"]["enum"] = sorted(events)
    properties = {key: old["properties"][key] for key in FIXED}
    for key in sorted(fields):
        kinds = sorted(fields[key])
        properties[key] = {**old["properties"].get(key, {}), "type": kinds[0] if len(kinds) == 1 else kinds}
    old["properties"] = properties
    with open(SCHEMA, "w", encoding="utf-8") as f:
        f.write(json.dumps(old, indent=1) + "\n")


HELP = "docs/log-schema.json: in a build folder, BATON_SOURCE=.. BATON_BUILD=. python3 ../tests/integration/test_logs.py --write"


def the_schema_is_the_sources():
    events, fields = in_sources()
    ours = schema()
    assert len(events) > 100 and len(fields) > 80, "the patterns no longer find the calls"
    assert set(ours["properties"]["event"]["enum"]) == events, \
        (HELP, set(ours["properties"]["event"]["enum"]) ^ events)
    assert set(ours["properties"]) == set(FIXED) | set(fields), (HELP, (set(ours["properties"]) - set(FIXED)) ^ set(fields))
    for key, kinds in fields.items():
        assert key not in FIXED, f"{key} is in every line already"
        assert types_of(ours["properties"][key]) == kinds, (key, kinds)


def check(line, rules):
    """The rules of the schema that it uses, without a library."""
    value = json.loads(line, object_pairs_hook=lambda pairs: assert_unique(pairs, line))
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    for key in rules["required"]:
        assert key in value, (key, line)
    for key, item in value.items():
        rule = rules["properties"].get(key)
        assert rule is not None, f"{key} is not in the schema: {line}"
        kind = names[type(item)]
        assert kind in types_of(rule) or (kind == "integer" and "number" in types_of(rule)), (key, line)
        assert "enum" not in rule or item in rule["enum"], (key, line)
        assert "pattern" not in rule or re.search(rule["pattern"], item), (key, line)
    for part in rules["allOf"]:
        if value["event"] == part["if"]["properties"]["event"]["const"]:
            for key in part["then"]["required"]:
                assert key in value, (key, line)
    return value


def assert_unique(pairs, line):
    assert len({key for key, _ in pairs}) == len(pairs), f"a key is there twice: {line}"
    return dict(pairs)


def real_lines_fit():
    rules = schema()
    try:
        import jsonschema
        validator = jsonschema.Draft202012Validator(rules)
        jsonschema.Draft202012Validator.check_schema(rules)
    except ImportError:
        validator = None
    with Cluster() as c:
        c.relay()
        text = "A relay race has four runners, and each of them carries the baton. " * 8
        c.ask(text)
        c.ask(text)
        fetch(c.routers[0].http, "POST", "/v1/messages", {"model": "no such model\n\x1b[2J", "max_tokens": 1})
        Stream(c.routers[0].http, c.body(text, max_tokens=400)).close()
        for daemon in c.routers + c.workers:
            with open(daemon.conf, "w", encoding="utf-8") as f:
                f.write("[http]\nmax_body = nonsense\n")
            daemon.process.send_signal(signal.SIGHUP)
        c.daemon("prefill0").kill()
        end = time.monotonic() + patience(20)
        while "worker_down" not in c.routers[0].tail(400) or "config_refused" not in c.routers[0].tail(400):
            assert time.monotonic() < end, c.routers[0].tail()
            time.sleep(0.05)
        c.ask(text)
        seen, phases = set(), {}
        n = 0
        for daemon in c.routers + c.workers:
            with open(daemon.log_path, encoding="utf-8") as f:
                for line in f:
                    value = check(line, rules)
                    assert value["program"] == "baton-" + daemon.role, line
                    if validator is not None:
                        validator.validate(value)
                    assert "relay race" not in line, "a prompt is in the log"
                    seen.add(value["event"])
                    if value["event"] == "task":
                        phases.setdefault(value["request_id"], set()).add(value["phase"])
                    n += 1
    assert {"access", "task", "task_state", "job_state", "worker_up", "worker_down", "router_ready", "worker_ready",
            "config_refused"} <= seen, seen
    assert {"prefill", "decode"} in phases.values(), phases
    print(f"{n} lines of {len(seen)} events" + (", by jsonschema too" if validator is not None else ""))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        main([the_schema_is_the_sources, real_lines_fit])
