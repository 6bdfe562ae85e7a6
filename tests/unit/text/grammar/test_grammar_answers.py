#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws answers for random schemas and any max_tokens; every allowed token is equally likely. Each answer that could be
finished must parse and satisfy its schema. A validator written for this test checks it, and python3-jsonschema where it
is installed.

    test_grammar_answers.py [SEED [SCHEMAS]]
"""
import datetime
import ipaddress
import json
import os
import random
import re
import subprocess
import sys
import uuid

try:
    import jsonschema
except ImportError:
    jsonschema = None

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 7
SCHEMAS = int(sys.argv[2]) if len(sys.argv) > 2 else 250
SOURCE = os.environ.get("srcdir", ".")
DATA = os.environ.get("BATON_DATA", os.path.join(SOURCE, "../shared/data"))
rng = random.Random(SEED)

PATTERNS = ["^[a-z]{2,5}$", "^(foo|bar)+$", "\\d{3}", "^[A-Z][a-z]*( [A-Z][a-z]*)*$", "^[^\"\\\\]*$", "^\\w+@\\w+$",
            "^(é|ü|[α-ω]){1,4}$", "x$", "^-?[0-9]+(\\.[0-9]+)?$", "^\\S?[a-f0-9]{8}$", "a|^b|c$"]
FORMATS = ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"]
NAMES = ["a", "b", "name", "na", "été", "with space", "q\"uote", "tab\t", "id"]


# ---- random schemas ----

def number_schema(kind):
    schema = {"type": kind}
    whole = kind == "integer"
    low = rng.choice([-1000, -37, -1, 0, 1, 5, 12345]) + (0 if whole else rng.choice([0, 0.5, -0.125]))
    if rng.random() < 0.5:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
    if rng.random() < 0.5:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([3, 10, 999, 100000])
    if whole and rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([1, 2, 5, 7, 10])
        schema.pop("exclusiveMaximum", None)
        schema.pop("maximum", None)
    return schema


def string_schema():
    schema = {"type": "string"}
    pick = rng.random()
    if pick < 0.25:
        schema["pattern"] = rng.choice(PATTERNS)
        if rng.random() < 0.3:
            schema["maxLength"] = rng.randrange(8, 30)
    elif pick < 0.5:
        schema["format"] = rng.choice(FORMATS)
    elif pick < 0.8:
        schema["minLength"] = rng.randrange(0, 5)
        schema["maxLength"] = schema["minLength"] + rng.randrange(0, 12)
    return schema


def object_schema(depth):
    names = rng.sample(NAMES, rng.randrange(0, 5))
    schema = {"type": "object", "properties": {name: any_schema(depth - 1) for name in names},
              "required": [name for name in names if rng.random() < 0.5]}
    pick = rng.random()
    if pick < 0.4:
        schema["additionalProperties"] = False
    elif pick < 0.6:
        schema["additionalProperties"] = any_schema(depth - 1)
        schema["maxProperties"] = len(names) + rng.randrange(1, 4)
    elif pick < 0.7:
        schema["additionalProperties"] = True
    return schema


def array_schema(depth):
    schema = {"type": "array", "items": any_schema(depth - 1)}
    if rng.random() < 0.3:
        schema["prefixItems"] = [any_schema(depth - 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.5:
        schema["minItems"] = rng.randrange(0, 4)
    if rng.random() < 0.5:
        schema["maxItems"] = schema.get("minItems", 0) + rng.randrange(0, 4)
    return schema


def any_schema(depth):
    pick = rng.randrange(14 if depth > 0 else 7)
    if pick == 0:
        return {"type": rng.choice(["boolean", "null"])}
    if pick == 1:
        return {"enum": rng.sample(["red", "green", "re", 1, 2.5, None, True, "a\"b", "\n", {"k": [1]}, []], 4)}
    if pick == 2:
        return {"const": rng.choice(["x", 5, None, {"a": 1}, "äöü"])}
    if pick == 3:
        return number_schema("integer")
    if pick == 4:
        return number_schema("number")
    if pick in (5, 6):
        return string_schema()
    if pick == 7:
        return {"type": [rng.choice(["string", "integer"]), "null"]}
    if pick == 8:
        return {"anyOf": [any_schema(depth - 1) for _ in range(2)]}
    if pick == 9:
        return {"oneOf": [{"type": "object", "required": ["kind"], "additionalProperties": False,
                           "properties": {"kind": {"const": kind}, "v": any_schema(depth - 1)}} for kind in "xyz"]}
    if pick == 10:
        return {"allOf": [object_schema(depth - 1), {"required": ["id"], "properties": {"id": {"type": "integer"}}}]}
    if pick == 11:
        return array_schema(depth)
    return object_schema(depth)


def whole_schema():
    schema = any_schema(3)
    if rng.random() < 0.15:
        schema = {"$defs": {"node": {"type": "object", "required": ["v"], "additionalProperties": False,
                                     "properties": {"v": any_schema(1),
                                                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                                                    "more": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
                  "$ref": "#/$defs/node"}
    return schema


# ---- the validator ----

def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(left, right):
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return left == right


TYPES = {
    "object": lambda v: isinstance(v, dict), "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str), "boolean": lambda v: isinstance(v, bool), "null": lambda v: v is None,
    "number": is_number, "integer": lambda v: is_number(v) and v == int(v)}


def is_duration(text):
    parts = re.fullmatch(r"P(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", text)
    return parts is not None and len(text) > 1


def is_time(text):
    return re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text) is not None and \
        datetime.time.fromisoformat(text[:8]) is not None


CHECKS = {
    "date": lambda t: re.fullmatch(r"\d{4}-\d\d-\d\d", t) and datetime.date.fromisoformat(t),
    "time": is_time,
    "date-time": lambda t: datetime.date.fromisoformat(t[:10]) and t[10] == "T" and is_time(t[11:]),
    "duration": is_duration,
    "email": lambda t: re.fullmatch(r"[^@\s\"]{1,64}@[a-zA-Z0-9-]{1,63}(\.[a-zA-Z0-9-]{1,63})+", t) and ".." not in t,
    "hostname": lambda t: len(t) <= 253 and all(re.fullmatch(r"(?!-)[a-zA-Z0-9-]{1,63}(?<!-)", x) for x in t.split(".")),
    "uri": lambda t: re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+", t) and not re.search(r"%(?![0-9A-Fa-f]{2})", t),
    "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address,
    "uuid": lambda t: len(t) == 36 and uuid.UUID(t)}


def format_holds(name, text):
    try:
        return bool(CHECKS[name](text)) or name in ("ipv4", "ipv6")
    except ValueError:
        return False


def as_python(pattern):
    """\\d and \\w are ASCII in JSON Schema, \\s is not, and $ is the very end."""
    return pattern.replace("\\d", "[0-9]").replace("\\w", "[A-Za-z0-9_]").replace("$", r"\Z")


def valid(schema, value, root):
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        if not valid(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], value, root):
            return False
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(TYPES[t](value) for t in types):
            return False
    if "enum" in schema and not any(same(v, value) for v in schema["enum"]):
        return False
    if "const" in schema and not same(schema["const"], value):
        return False
    if "anyOf" in schema and not any(valid(s, value, root) for s in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(valid(s, value, root) for s in schema["oneOf"]) != 1:
        return False
    if "allOf" in schema and not all(valid(s, value, root) for s in schema["allOf"]):
        return False
    if isinstance(value, str):
        return (schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1e9)
                and ("pattern" not in schema or re.search(as_python(schema["pattern"]), value))
                and ("format" not in schema or format_holds(schema["format"], value)))
    if is_number(value):
        return (schema.get("minimum", value) <= value <= schema.get("maximum", value)
                and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
                and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
                and value % schema.get("multipleOf", 1 if isinstance(value, int) else value or 1) == 0)
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        return (schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1e9)
                and all(valid(prefix[i] if i < len(prefix) else schema.get("items", True), v, root)
                        for i, v in enumerate(value)))
    if isinstance(value, dict):
        declared = schema.get("properties", {})
        return (all(name in value for name in schema.get("required", []))
                and len(value) <= schema.get("maxProperties", 1e9)
                and all(valid(declared.get(name, schema.get("additionalProperties", True)), v, root)
                        for name, v in value.items()))
    return True


# ---- the test ----

def unrepeated(pairs):
    """A name that the schema declares comes once; among others the last counts."""
    return dict(pairs)


class Drawer:
    def __init__(self, vocabulary):
        command = ["tests/unit/text/grammar/draw_answers"] + ([vocabulary] if vocabulary else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def draw(self, schema, n, left):
        ask = {"constraint": {"json": schema}, "n": n, "left": left, "seed": rng.randrange(1 << 30)}
        self.process.stdin.write(json.dumps(ask) + "\n")
        self.process.stdin.flush()
        head = json.loads(self.process.stdout.readline())
        if "refused" in head:
            return head, []
        return head, [json.loads(self.process.stdout.readline()) for _ in range(n)]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def judge(schema, left, head, answer):
    if head["needs"] > left:
        return None
    if not answer["ended"] or not answer["utf8"] or not answer["parses"]:
        return "not ended, or not JSON"
    value = json.loads(answer["text"], object_pairs_hook=unrepeated)
    if not valid(schema, value, schema):
        return "does not satisfy the schema"
    if jsonschema is not None:
        try:
            jsonschema.Draft202012Validator(schema).validate(value)
        except jsonschema.ValidationError as error:
            return "jsonschema: " + error.message[:200]
    return None


def run(vocabulary, n_schemas):
    drawer = Drawer(vocabulary)
    counts = {"schemas": 0, "answers": 0, "cut too early": 0, "refused": 0}
    for _ in range(n_schemas):
        schema = whole_schema()
        for left in (rng.randrange(1, 40), rng.randrange(20, 400)):
            head, answers = drawer.draw(schema, 4, left)
            if "refused" in head:
                # only what two random parts ask for together may be beyond it
                assert re.search(r"ever satisfy|allOf|together|no type is left|told apart|prefixItems|maxProperties",
                                 head["refused"]), (schema, head)
                counts["refused"] += 1
                break
            for answer in answers:
                counts["answers"] += 1
                counts["cut too early"] += head["needs"] > left
                fault = judge(schema, left, head, answer)
                assert fault is None, (fault, json.dumps(schema), left, head, answer)
        counts["schemas"] += 1
    drawer.close()
    print(vocabulary or "small vocabulary", counts)
    assert counts["refused"] * 4 < counts["schemas"] and counts["cut too early"] * 2 < counts["answers"], counts


run(None, SCHEMAS)
real = os.path.join(DATA, "vocab/qwen2.gguf")
if os.path.exists(real):
    run(real, SCHEMAS // 5)
else:
    print("SKIP of the real vocabulary: no", real)
if jsonschema is None:
    print("SKIP of the differential half: python3-jsonschema is not installed")
