# SPDX-License-Identifier: Apache-2.0
"""baton-model render shows the server's prompt. Both get the same bodies in either API's form, agree token for token, and
refuse the same bodies."""
import json
import os
import subprocess
import tempfile

from cluster import BUILD, MODEL, Cluster, fetch, main

TOOL = {"type": "function", "function": {"name": "get", "description": "gets", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get", "arguments": "{\"city\": \"Bonn\"}"}}

CHATS = [
    {"messages": [{"role": "user", "content": "Hi"}]},
    {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "a"},
                                                                                 {"type": "text", "text": "b"}]}]},
    {"messages": [{"role": "user", "content": "q"},
                  {"role": "assistant", "content": "a", "reasoning_content": "because of this"},
                  {"role": "user", "content": "and?"}]},
    {"messages": [{"role": "user", "content": "q"},
                  {"role": "assistant", "content": None, "reasoning_content": "look it up", "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "call_1", "content": "rain"}], "tools": [TOOL]},
    {"messages": [{"role": "user", "content": "q"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": ""},
                  {"role": "system", "content": "late"}, {"role": "user", "content": "s"}], "tools": [TOOL]},
]


def rendered(body, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(body, file)
        file.flush()
        ran = subprocess.run([os.path.join(BUILD, "baton-model"), "render", *options, "--file", file.name, MODEL],
                             capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def chats_are_what_the_server_makes_of_them():
    with Cluster() as c:
        c.relay()
        for body in CHATS:
            status, _, answer = fetch(c.routers[0].http, "POST", "/tokenize", dict(body, model="baton-demo"))
            code, text, error = rendered(body, "--ids")
            assert status == 200 and code == 0, (body, status, answer, error)
            assert json.loads(answer)["tokens"] == [int(x) for x in text.split()], (body, answer, text)


def blocks_are_what_the_server_makes_of_them():
    body = {"model": "baton-demo", "system": "S", "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "look it up", "signature": "x"},
                                          {"type": "text", "text": "so"},
                                          {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"city": "Bonn"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"},
                                     {"type": "text", "text": "well?"}]}],
        "tools": [{"name": "get", "input_schema": TOOL["function"]["parameters"]}]}
    with Cluster() as c:
        c.relay()
        status, _, answer = fetch(c.routers[0].http, "POST", "/v1/messages/count_tokens", body)
        code, text, error = rendered(body, "--ids")
        assert status == 200 and code == 0, (status, answer, error)
        assert json.loads(answer)["input_tokens"] == len(text.split()), (answer, text)


def refusals_are_the_server_s():
    body = {"messages": [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "x", "content": "r"}]}
    with Cluster() as c:
        c.relay()
        status, _, answer = fetch(c.routers[0].http, "POST", "/tokenize", dict(body, model="baton-demo"))
        code, _, error = rendered(body)
        assert status == 400 and code != 0, (status, code)
        assert json.loads(answer)["error"]["message"] in error, (answer, error)


def templates_own_spelling_is_understood():
    bare = {"messages": [{"role": "user", "content": "q"},
                         {"role": "assistant", "tool_calls": [{"name": "get", "arguments": {"city": "Bonn"}}]},
                         {"role": "tool", "content": "rain"}],
            "tools": [TOOL["function"]]}
    full = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                         {"role": "tool", "tool_call_id": "call_1", "content": "rain"}], "tools": [TOOL]}
    assert rendered(bare) == rendered(full), (rendered(bare), rendered(full))
    assert "rain" in rendered(bare)[1]
    # a template that shows thinking gets it
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write("{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}|{{ m.content }};{% endfor %}")
        file.flush()
        assert "assistant:because of this|a;" in rendered(CHATS[2], "--template", file.name)[1]


if __name__ == "__main__":
    main([chats_are_what_the_server_makes_of_them, blocks_are_what_the_server_makes_of_them, refusals_are_the_server_s,
          templates_own_spelling_is_understood])
