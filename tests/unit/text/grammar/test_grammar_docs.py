#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/grammars.md is true. Each enforced form compiles, and an answer can be drawn from it. Each refused
form is refused, with the given words."""
import json
import os
import re
import subprocess
import sys

page = open(os.path.join(os.environ.get("srcdir", "."), "docs/grammars.md"), encoding="utf-8").read()
rows = re.findall(r"^\| (.+?) \| (enforced|refused) \| `(\{.*\})` \| (.*?) ?\|$", page, re.M)
lines = [line for line in page.splitlines() if line.startswith("| ") and "keyword | verdict" not in line
         and re.search(r"\| (enforced|refused) \|", line)]
assert len(rows) == len(lines) > 50, (len(rows), len(lines))
asks = [{"constraint": {"json": json.loads(example)}, "n": 1, "left": 2000, "seed": 3} for _, _, example, _ in rows]
out = subprocess.run(["tests/unit/text/grammar/draw_answers"], input="\n".join(map(json.dumps, asks)), text=True,
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

# The rows that are strings, between tags: sampled with equal logits, and checked against the schema here.
DAYS = r"\d{4}-\d\d-\d\d"
TIME = r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
FORMATS = {"date": DAYS, "time": TIME, "date-time": DAYS + "T" + TIME, "duration": r"P[0-9YMWDTHS]+", "email": r"[^@\s]+@[^@\s]+\.[^@\s]+",
           "hostname": r"[A-Za-z0-9.-]+", "uri": r"[A-Za-z][A-Za-z0-9+.-]*:\S+", "ipv4": r"\d+(\.\d+){3}", "ipv6": r"[0-9A-Fa-f:]+",
           "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"}
UNTIL, N = "</arg_value>", 40
STRINGS = {"minLength", "maxLength", "pattern", "format"}


def is_right_between_tags(schema, text, is_inner):
    body = text[:-len(UNTIL)]
    return (text.endswith(UNTIL) and UNTIL not in body and not set(body) & set(map(chr, [*range(9), 11, 12, *range(14, 32)]))
            and schema.get("minLength", 0) <= len(body) <= schema.get("maxLength", len(body))
            and ("pattern" not in schema or re.search(schema["pattern"], body))
            and ("format" not in schema or re.fullmatch(FORMATS[schema["format"]], body, re.I))
            and not (is_inner and (body[:1] == "\n" or body[-1:] == "\n" or body == "null")))


schemas = [json.loads(example) for _, _, example, _ in rows]
verdicts = {json.dumps(json.loads(example)): (verdict, notes) for _, verdict, example, notes in rows}
schemas = [s for s in schemas if STRINGS & set(s) and not set(s) - STRINGS - {"type"}]
assert len(schemas) >= 17, len(schemas)
more = [{"maxLength": 4000}, {"maxLength": 1}, {"minLength": 3, "pattern": "[<a/]*$", "maxLength": 30}, {"pattern": "</?a"}, {"minLength": 50}]
for is_inner in (False, True):
    asks = [{"constraint": {"seq": [{"tagged": s, "until": UNTIL, **({"inner": True, "not": "^(null)$"} if is_inner else {})}, {"text": UNTIL}]},
             "n": N, "left": 600, "seed": 5} for s in schemas + more]
    out = subprocess.run(["tests/unit/text/grammar/draw_answers"], input="\n".join(map(json.dumps, asks)), text=True,
                         stdout=subprocess.PIPE, check=True).stdout.splitlines()
    for schema in schemas + more:
        verdict, notes = verdicts.get(json.dumps(schema), ("enforced", ""))
        head = json.loads(out.pop(0))
        answers = [] if "refused" in head else [json.loads(out.pop(0)) for _ in range(N)]
        if verdict == "refused":
            is_right = head.get("refused", "").startswith(notes.split(" '")[0].split(": ")[0])
        else:
            is_right = answers and all(a["ended"] and a["utf8"] and is_right_between_tags(schema, a["text"], is_inner) for a in answers)
        if not is_right:
            print("between tags:", schema, "->", head, [a["text"] for a in answers if not is_right_between_tags(schema, a["text"], is_inner)][:2])
            failed = 1
    assert not out
print(len(schemas), "rows between tags")
print(len(rows), "rows")
sys.exit(failed)
