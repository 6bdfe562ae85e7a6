# SPDX-License-Identifier: Apache-2.0
"""Forced calls and structured output through real daemons: every sampled answer satisfies its constraint."""
import json

from cluster import Cluster, fetch, in_threads, main, patience

TOOLS = [
    {"name": "read_file", "description": "Reads a file.", "input_schema": {
        "type": "object", "properties": {"path": {"type": "string", "maxLength": 20}, "line": {"type": "integer"}},
        "required": ["path"], "additionalProperties": False}},
    {"name": "set_mode", "description": "Switches.", "input_schema": {
        "type": "object", "properties": {"mode": {"enum": ["on", "off"]}, "level": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["mode", "level"], "additionalProperties": False}},
]
SCHEMA = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
    "size": {"$ref": "#/$defs/size"}},
    "required": ["name", "tags", "size"], "additionalProperties": False,
    "$defs": {"size": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}


def is_good_call(name, value):
    if name == "set_mode":
        return set(value) == {"mode", "level"} and value["mode"] in ("on", "off") and \
            isinstance(value["level"], int) and 1 <= value["level"] <= 9
    return name == "read_file" and "path" in value and set(value) <= {"path", "line"} and \
        isinstance(value["path"], str) and len(value["path"]) <= 20 and isinstance(value.get("line", 0), int)


def is_good_document(value):
    return set(value) == {"name", "tags", "size"} and isinstance(value["name"], str) and len(value["name"]) <= 12 and \
        1 <= len(value["tags"]) <= 3 and set(value["tags"]) <= {"a", "b"} and \
        (value["size"] is None or isinstance(value["size"], int))


def three(c):
    c.relay()


def message(c, **fields):
    """A whole answer, not streamed."""
    status, _, body = fetch(c.routers[0].http, "POST", "/v1/messages",
                            c.body("Read the file notes.txt, then switch it on.", **fields))
    assert status == 200, (status, body)
    return json.loads(body)


def streamed(c, **fields):
    """The same answer as a stream, joined; every argument piece must extend valid JSON."""
    blocks, stop, usage = [], None, {}
    for name, data in c.stream("Read the file notes.txt, then switch it on.", **fields):
        if name == "content_block_start":
            assert data["index"] == len(blocks), data
            blocks.append(dict(data["content_block"], json=""))
        elif name == "content_block_delta":
            delta = data["delta"]
            blocks[-1]["json"] += delta.get("partial_json", "")
            if "text" in delta:
                blocks[-1]["text"] += delta["text"]
        elif name == "message_delta":
            stop, usage = data["delta"]["stop_reason"], data["usage"]
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"])
    return {"content": blocks, "stop_reason": stop, "usage": usage}


def forced_calls_at_temperature_2():
    with Cluster() as c:
        three(c)
        for ask in (message, streamed):
            jobs = [lambda s=s, ask=ask: ask(c, tools=TOOLS, tool_choice={"type": "any"}, temperature=2, seed=s,
                                             max_tokens=200) for s in range(8)]
            for answer in in_threads(jobs):
                assert answer["stop_reason"] == "tool_use", answer
                assert answer["content"], answer
                for block in answer["content"]:
                    assert block["type"] == "tool_use" and is_good_call(block["name"], block["input"]), answer
        c.assert_quiet()


def one_call_to_one_tool():
    with Cluster() as c:
        three(c)
        choice = {"type": "tool", "name": "set_mode", "disable_parallel_tool_use": True}
        for seed in range(6):
            answer = message(c, tools=TOOLS, tool_choice=choice, temperature=2, seed=seed, max_tokens=200)
            assert answer["stop_reason"] == "tool_use", answer
            assert [b["name"] for b in answer["content"]] == ["set_mode"], answer
            assert is_good_call("set_mode", answer["content"][0]["input"]), answer


def few_tokens_are_enough():
    """An answer that fits is complete within max_tokens, at any temperature."""
    with Cluster() as c:
        three(c)
        for limit in (45, 60, 80):
            for seed in range(3):
                answer = message(c, tools=TOOLS, tool_choice={"type": "any"}, temperature=2, seed=seed, max_tokens=limit)
                assert answer["stop_reason"] == "tool_use" and answer["usage"]["output_tokens"] <= limit, answer
                assert all(is_good_call(b["name"], b["input"]) for b in answer["content"]), answer


def documents_have_their_schema():
    with Cluster() as c:
        three(c)
        constraint = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
        for seed in range(6):
            for limit in (60, 300):
                answer = message(c, temperature=2, seed=seed, max_tokens=limit, **constraint)
                assert len(answer["content"]) == 1, answer
                assert is_good_document(json.loads(answer["content"][0]["text"])), answer
        status, _, body = fetch(c.routers[0].http, "POST", "/v1/messages", c.body("x", output_config={"format": {
            "type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}}}))
        error = json.loads(body)["error"]
        assert status == 400 and error["type"] == "invalid_request_error", (status, body)
        assert error["message"].startswith("output_config.format.schema.properties.a.pattern: "), error


def the_prompt_does_not_change_with_the_choice():
    with Cluster() as c:
        three(c)
        totals = set()
        for choice in ({"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "set_mode"}):
            usage = message(c, tools=TOOLS, tool_choice=choice, max_tokens=60)["usage"]
            totals.add(usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"])
        assert len(totals) == 1, totals
        again = message(c, tools=TOOLS, tool_choice={"type": "any"}, max_tokens=60)["usage"]
        assert again["cache_read_input_tokens"] > 0, again


def a_continued_text_is_a_document():
    """/v1/completions, which is all that a base model has: each prompt's continuation has the schema, and a bad schema is refused."""
    with Cluster() as c:
        c.relay()
        form = {"type": "json_schema", "json_schema": {"name": "d", "schema": SCHEMA}}
        body = {"model": "baton-demo", "prompt": ["As JSON: ", "The file notes.txt:"], "max_tokens": 80, "temperature": 2, "n": 2, "seed": 1}
        for more in ({}, {"stream": True}):
            status, _, answer = fetch(c.routers[0].http, "POST", "/v1/completions", dict(body, response_format=form, **more))
            assert status == 200, (status, answer)
            events = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")] if more else [json.loads(answer)]
            texts = {}
            for event in events:
                for choice in event["choices"]:
                    texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            assert len(texts) == 4 and all(is_good_document(json.loads(text)) for text in texts.values()), texts
        for form, says in (({"type": "json_schema", "json_schema": {"name": "d", "schema": {"type": "house"}}}, b"response_format"),
                           ({"type": "xml"}, b"response_format.type")):
            status, _, answer = fetch(c.routers[0].http, "POST", "/v1/completions", dict(body, response_format=form))
            assert status == 400 and says in answer, (status, answer)


def large_schemas_fill_no_link():
    """A worker gets the schema with each choice.  Clients with many choices and a large one must not bring its link down for all."""
    schema = {"type": "object", "description": "x" * 1000000, "properties": {"a": {"type": "integer", "maximum": 9}},
              "required": ["a"], "additionalProperties": False}
    body = {"model": "baton-demo", "prompt": ["As JSON: "] * 128, "max_tokens": 2, "temperature": 0, "response_format": {
        "type": "json_schema", "json_schema": {"name": "d", "schema": schema}}}
    with Cluster() as c:
        c.router()
        c.worker("decode")
        c.wait_ready(decode=1)

        def ask():
            status, _, answer = fetch(c.routers[0].http, "POST", "/v1/completions", body, timeout=patience(120))
            assert status == 200, (status, answer[:300])
            texts = [choice["text"] for choice in json.loads(answer)["choices"]]
            assert len(texts) == 128 and all(text.startswith("{") for text in texts), texts[:3]

        in_threads([ask] * 6)
        log = open(c.routers[0].log_path).read()
        assert "link_down" not in log and "job_replaced" not in log
        peak = [int(line.split()[1]) for line in open(f"/proc/{c.routers[0].process.pid}/status") if line.startswith("VmHWM")][0]
        print(f"# the router's memory: {peak >> 10} MiB at most")


if __name__ == "__main__":
    main([forced_calls_at_temperature_2, one_call_to_one_tool, few_tokens_are_enough, documents_have_their_schema,
          the_prompt_does_not_change_with_the_choice, a_continued_text_is_a_document, large_schemas_fill_no_link])
