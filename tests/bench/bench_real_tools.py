#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What SmolLM2-135M-Instruct can do with tools, through router, prefill and decode.

    bench_real_tools.py

20 questions with two tools, for the weather of a city and for the sum of two numbers.  Each is asked with tool_choice auto, any,
and the right tool by name.  A line says how many answers call a tool, how many calls are valid by the tool's schema, name the
right tool, and have the right arguments.  The model's template lists no tools, so Baton describes them in the system text.  It
was not trained to call tools: only forced calls can be expected to be valid, and they must all be.  Gemma 3 270M is a base model
without a chat format and has no tools.  Without the package index the script says so and ends with 77."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from cluster import Cluster, fetch, in_threads  # noqa: E402
from real_models import found_or_skip  # noqa: E402

TOOLS = [
    {"name": "get_weather", "description": "The weather of a city now",
     "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
                      "required": ["city"], "additionalProperties": False}},
    {"name": "add", "description": "The sum of two whole numbers",
     "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"],
                      "additionalProperties": False}},
]
CITIES = ["Paris", "Rome", "Tokyo", "Berlin", "Cairo", "Lima", "Oslo", "Delhi", "Boston", "Madrid"]
QUESTIONS = [(f"What is the weather in {city}?", "get_weather", {"city": city}) for city in CITIES]
QUESTIONS += [(f"How much is {7 * i + 2} plus {i * i + 3}?", "add", {"a": 7 * i + 2, "b": i * i + 3}) for i in range(10)]


def is_valid(name, given):
    if name == "get_weather":
        return isinstance(given.get("city"), str) and given.get("unit", "celsius") in ("celsius", "fahrenheit") and \
            not set(given) - {"city", "unit"}
    return name == "add" and set(given) == {"a", "b"} and all(type(v) is int for v in given.values())


def ask(port, text, choice):
    body = {"model": "real", "max_tokens": 96, "temperature": 0, "tools": TOOLS, "tool_choice": choice,
            "messages": [{"role": "user", "content": text}]}
    status, _, answer = fetch(port, "POST", "/v1/messages", body, timeout=300)
    assert status == 200, answer
    return next((b for b in json.loads(answer)["content"] if b["type"] == "tool_use"), None)


def main():
    path, bad = found_or_skip("smollm2"), 0
    print("| tool_choice | calls | valid | right tool | right arguments |\n|---|---|---|---|---|", flush=True)
    with Cluster() as c:
        c.router(queue__timeout="280s", slo__ttft="300s")
        for role in ("prefill", "decode"):
            c.worker(role, model__path=path, model__name="real", kv__memory="512MiB")
        c.wait_ready(prefill=1, decode=1, timeout=60)
        for how in ("auto", "any", "tool"):
            jobs = [lambda t=text, n=name: ask(c.routers[0].http, t, {"type": how, **({"name": n} if how == "tool" else {})})
                    for text, name, _ in QUESTIONS]
            calls = in_threads(jobs)
            made = [(call, name, want) for call, (_, name, want) in zip(calls, QUESTIONS) if call]
            valid = sum(is_valid(call["name"], call["input"]) for call, _, _ in made)
            right = sum(call["name"] == name for call, name, _ in made)
            exact = sum(call["name"] == name and all(call["input"].get(k) == v for k, v in want.items()) for call, name, want in made)
            print(f"| {how} | {len(made)} of {len(QUESTIONS)} | {valid} | {right} | {exact} |", flush=True)
            bad += how != "auto" and valid != len(QUESTIONS)
            bad += how == "tool" and right != len(QUESTIONS)
        c.assert_quiet()
    sys.exit(1 if bad else 0)


main()
