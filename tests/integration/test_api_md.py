# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/api.md against real daemons and compares their output with the page.

A block ```sh followed by a block ```json or ```text is a command and its output.  In the output "..." matches anything:
in text any characters within a line, or, as a line of its own, any lines; in JSON any value, or, as a member named
"...", any further members.  JSON is compared as values.  Commands see BATON, the router's URL.  All commands of a page
run in one folder, one after another.
"""
import json
import os
import re
import subprocess
import tempfile

from cluster import SOURCE, Cluster, main, patience

PAGE = os.path.join(SOURCE, "docs", "api.md")


def blocks(text):
    """(line, language, content) of every fenced block."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        yield text.count("\n", 0, found.start()) + 1, found[1], found[2]


def pairs(text):
    """(line, command, language, output) for each command with an output."""
    all_blocks = list(blocks(text))
    for (line, language, command), (_, kind, output) in zip(all_blocks, all_blocks[1:]):
        if language == "sh" and kind in ("json", "text"):
            yield line, command, kind, output


def same_json(wanted, got, at="$"):
    """None, or the place of the first difference."""
    if wanted == "...":
        return None
    if isinstance(wanted, dict) and isinstance(got, dict):
        named = {k: v for k, v in wanted.items() if k != "..."}
        if "..." not in wanted and set(named) != set(got):
            return f"{at}: members {sorted(got)}"
        for key, value in named.items():
            if key not in got:
                return f"{at}.{key} is missing"
            why = same_json(value, got[key], f"{at}.{key}")
            if why:
                return why
        return None
    if isinstance(wanted, list) and isinstance(got, list):
        if len(wanted) != len(got):
            return f"{at}: {len(got)} items"
        return next(filter(None, (same_json(w, g, f"{at}[{i}]") for i, (w, g) in enumerate(zip(wanted, got)))), None)
    if isinstance(wanted, str) and isinstance(got, str) and "..." in wanted:
        return None if re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), got, re.S) else f"{at}: {got!r}"
    return None if wanted == got and type(wanted) is type(got) else f"{at}: {got!r}"


def same_text(wanted, got):
    pattern = "".join("(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
                      for line in wanted.rstrip("\n").split("\n"))
    return None if re.fullmatch(pattern, got.rstrip("\n") + "\n") else "the text differs"


def the_page_is_true():
    with open(PAGE) as f:
        text = f.read()
    checked, wrong = 0, []
    with Cluster() as c, tempfile.TemporaryDirectory() as folder:
        c.relay()
        environ = {**os.environ, "BATON": f"http://127.0.0.1:{c.routers[0].http}"}
        for line, command, kind, output in pairs(text):
            done = subprocess.run(["sh", "-c", command], cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=patience(60))
            got = done.stdout.replace("\r\n", "\n")
            try:
                why = same_json(json.loads(output), json.loads(got)) if kind == "json" else same_text(output, got)
            except ValueError as e:
                why = f"not JSON: {e}"
            checked += 1
            if why:
                wrong.append(f"docs/api.md:{line}: {why}\n--- it printed\n{got}{done.stderr}")
        c.assert_quiet()
    print(f"{checked} commands of docs/api.md")
    assert checked >= 10, "where are the commands?"
    assert not wrong, "\n".join(wrong)


def differences_are_seen():
    assert same_json({"a": 1, "...": "..."}, {"a": 1, "b": 2}) is None
    assert same_json({"a": 1}, {"a": 1, "b": 2}) and same_json({"a": 1}, {"a": 1.0}) and same_json([1], [1, 2])
    assert same_json({"a": "msg_..."}, {"a": "msg_1"}) is None and same_json({"a": "msg_..."}, {"a": "req_1"})
    assert same_text("a ...\n...\nz", "a b\nc\nd\nz\n") is None and same_text("a\nz", "a\nb\nz\n")


main([differences_are_seen, the_page_is_true])
