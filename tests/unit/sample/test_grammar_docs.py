#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/grammars.md is true: what it says is held to compiles, and an answer can be drawn from it; what it
says is refused is refused, with the words given."""
import json
import os
import re
import subprocess
import sys

page = open(os.path.join(os.environ.get("srcdir", "."), "docs/grammars.md"), encoding="utf-8").read()
rows = re.findall(r"^\| (.+?) \| (held to|refused) \| `(\{.*\})` \| (.*?) ?\|$", page, re.M)
lines = [line for line in page.splitlines() if line.startswith("| ") and "keyword | verdict" not in line
         and re.search(r"\| (held to|refused) \|", line)]
assert len(rows) == len(lines) > 50, (len(rows), len(lines))
asks = [{"shape": {"json": json.loads(example)}, "n": 1, "left": 2000, "seed": 3} for _, _, example, _ in rows]
out = subprocess.run(["tests/unit/sample/draw_answers"], input="\n".join(map(json.dumps, asks)), text=True,
                     stdout=subprocess.PIPE, check=True).stdout.splitlines()
failed = 0
for name, verdict, example, notes in rows:
    head = json.loads(out.pop(0))
    if verdict == "refused":
        is_right = head.get("refused", "").startswith(notes)
    else:
        answer = json.loads(out.pop(0)) if "refused" not in head else {}
        is_right = bool(answer.get("ended") and answer["utf8"] and answer["parses"])
    if not is_right:
        print(name, verdict, example, "->", head)
        failed = 1
assert not out
print(len(rows), "rows")
sys.exit(failed)
