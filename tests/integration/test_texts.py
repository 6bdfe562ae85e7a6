# SPDX-License-Identifier: Apache-2.0
"""Control characters in each text and each name of a request's body, and tabs in its headers: no answer is 500 or hangs, and
no link between router and workers ends. A message with such a text ends its link (proto/frame_check.c), so no text of a
client may reach a message unread."""
import copy
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, fetch, main  # noqa: E402

BAD = ["a\nb", "\x00\x7f\x1b", "x" * 300 + "\t"]
SCHEMA = {"type": "object", "title": "t", "description": "a place", "required": ["city"],
          "properties": {"city": {"type": "string", "description": "its name", "pattern": "^[a-z]+$"},
                         "unit": {"enum": ["c", "f"]}, "when": {"type": "string", "format": "date"}}}
BASE = {"model": "baton-demo", "temperature": 0}
# The members that other servers know are there too: a later reader of one of them is tried from its first day.
COMMON = {**BASE, "service_tier": "auto", "cache_salt": "salt", "user": "somebody",
          "metadata": {"user_id": "somebody", "key": "value"}, "safety_identifier": "safe", "prompt_cache_key": "key",
          "request_id": "req_1", "session_id": "s", "chat_template_kwargs": {"word": "w"}}
CALLS = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"city\": \"x\"}"}}]

BODIES = {
    "/v1/messages": {
        **COMMON, "max_tokens": 2, "stop_sequences": ["never"], "output_config": {"effort": "low"},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
        "tools": [{"name": "look", "description": "looks", "input_schema": SCHEMA, "type": "custom"}], "tool_choice": {"type": "auto"},
        "thinking": {"type": "disabled"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                              {"type": "tool_use", "id": "call_1", "name": "look", "input": {"city": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "it rains"},
                                         {"type": "document", "title": "t", "context": "c",
                                          "source": {"type": "text", "media_type": "text/plain", "data": "words"}}]}]},
    "/v1/messages schema": {**BASE, "max_tokens": 2, "messages": [{"role": "user", "content": "Where?"}],
                            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "/v1/messages thread": {**BASE, "max_tokens": 2, "messages": [{"role": "user", "content": "Where?"}],
                            "thread": {"type": "continue", "previous_message_id": "msg_1"}},
    "/v1/chat/completions": {
        **COMMON, "max_tokens": 2, "stop": ["never"], "reasoning_effort": "low", "logit_bias": {"5": 1}, "modalities": ["text"],
        "tools": [{"type": "function", "function": {"name": "look", "description": "looks", "parameters": SCHEMA}}],
        "tool_choice": "auto",
        "messages": [{"role": "system", "content": "Be brief.", "name": "n"}, {"role": "user", "content": [{"type": "text", "text": "?"}]},
                     {"role": "assistant", "content": "hm", "reasoning_content": "r", "tool_calls": CALLS},
                     {"role": "tool", "tool_call_id": "call_1", "content": "it rains"}]},
    "/v1/chat/completions schema": {
        **BASE, "max_tokens": 2, "messages": [{"role": "user", "content": "Where?"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "description": "d", "schema": SCHEMA}}},
    "/v1/completions": {**COMMON, "max_tokens": 2, "prompt": ["What is it?"], "stop": "never"},
    "/v1/responses": {
        **COMMON, "max_output_tokens": 2, "instructions": "Be brief.", "truncation": "disabled", "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "look", "description": "looks", "parameters": SCHEMA}], "tool_choice": "auto",
        "reasoning": {"effort": "low", "summary": "auto"}, "store": False,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is it?"}]},
                  {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"city\": \"x\"}"},
                  {"type": "function_call_output", "call_id": "call_1", "output": "it rains"}]},
    "/v1/responses schema": {**BASE, "max_output_tokens": 2, "input": "Where?", "store": False,
                             "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}},
    "/v1/responses kept": {**BASE, "max_output_tokens": 2, "previous_response_id": "resp_1", "conversation": "conv_1",
                           "input": [{"type": "item_reference", "id": "msg_1"}, {"type": "message", "role": "user", "content": "?"}]},
}
HEADERS = ["baton-class", "last-event-id", "traceparent", "tracestate", "x-request-id", "anthropic-version", "user-agent",
           "idempotency-key"]


def places(value, path=()):
    """The path of each text, and of each name of a member (is_name)."""
    if isinstance(value, str):
        yield path, False
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if isinstance(key, str):
            yield path + (key,), True
        yield from places(value[key], path + (key,))


def spoilt(body, path, is_name, bad):
    body = copy.deepcopy(body)
    at = body
    for step in path[:-1]:
        at = at[step]
    if is_name:
        at[bad] = at.pop(path[-1])
    else:
        at[path[-1]] = bad
    return body


def assert_links_stay(c):
    for daemon in c.routers + c.workers:
        with open(daemon.log_path, errors="replace") as f:
            lost = [line for line in f if '"worker_down"' in line or '"router_down"' in line]
        assert not lost, (daemon.name, lost)


def send(c, path, body, headers=None):
    status, _, answer = fetch(c.routers[0].http, "POST", path.split(" ")[0], body, headers)
    assert status in (200, 400, 404), (path, body, headers, status, answer)
    return status


def no_text_of_a_body_ends_a_link():
    with Cluster() as c:
        c.router()
        for role in ("prefill", "decode"):
            c.worker(role, engine__kind="sim", engine__sim_answer_tokens="2")
        c.wait_ready(prefill=1, decode=1)
        for path, body in BODIES.items():
            if "thread" not in body and "previous_response_id" not in body:
                assert send(c, path, body) == 200, path
            n = {}
            for place, is_name in places(body):
                for bad in BAD:
                    status = send(c, path, spoilt(body, place, is_name, bad))
                    n[status] = n.get(status, 0) + 1
            assert_links_stay(c)
            print(path, json.dumps(n), flush=True)
        c.assert_quiet()


def no_header_ends_a_link():
    with Cluster() as c:
        c.relay()
        for name in HEADERS:
            for value in ("a\tb", "\xff\xfe", "x" * 300):
                send(c, "/v1/messages", c.body("?", max_tokens=2), {name: value})
        assert_links_stay(c)
        c.assert_quiet()


main([no_text_of_a_body_ends_a_link, no_header_ends_a_link])
