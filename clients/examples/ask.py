#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks questions with Python's standard library alone: a streamed answer, and a tool that the model may call.

    ask.py [QUESTION]        BATON_URL (http://127.0.0.1:8080) and BATON_API_KEY from the environment
"""
import json
import os
import sys
import urllib.request

URL = os.environ.get("BATON_URL", "http://127.0.0.1:8080")
HEADERS = {"content-type": "application/json", "x-api-key": os.environ.get("BATON_API_KEY", "none")}
WEATHER = {"name": "get_weather", "description": "Get the weather in a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def post(path, body):
    """Returns the open response; an error status raises HTTPError, whose body has the reason."""
    return urllib.request.urlopen(urllib.request.Request(URL + path, json.dumps(body).encode(), HEADERS))


def events(response):
    """Yields each event's data; an event is a few lines and an empty one."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def model():
    with urllib.request.urlopen(urllib.request.Request(URL + "/v1/models", headers=HEADERS)) as answer:
        return json.load(answer)["first_id"]


def stream(name, question):
    body = {"model": name, "max_tokens": 256, "temperature": 0, "stream": True,
            "messages": [{"role": "user", "content": question}]}
    with post("/v1/messages", body) as response:
        for event in events(response):
            if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
                print(event["delta"]["text"], end="", flush=True)
            if event["type"] == "error":
                sys.exit(event["error"]["message"])
    print()


def with_a_tool(name, question):
    """Runs calls until an answer has none; the tool's result is made up."""
    messages = [{"role": "user", "content": question}]
    while True:
        with post("/v1/messages", {"model": name, "max_tokens": 256, "temperature": 0, "tools": [WEATHER],
                                   "messages": messages}) as response:
            answer = json.load(response)
        messages.append({"role": "assistant", "content": answer["content"]})
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            return print("".join(block["text"] for block in answer["content"]))
        for call in calls:
            print("> %s %s" % (call["name"], json.dumps(call["input"])))
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "temperature: 21\nsky: clear"} for call in calls]})


name = model()
if len(sys.argv) > 1:
    stream(name, sys.argv[1])
else:
    stream(name, "What is a hand-off?")
    with_a_tool(name, "What is the weather in Lisbon?")
