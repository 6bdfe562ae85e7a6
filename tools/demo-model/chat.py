# SPDX-License-Identifier: Apache-2.0
"""Turns a dialogue into text, marked with what the model itself must write.

A dialogue is {"messages": [...], "tools": [...]} in the shape of the chat APIs;
a tool call is {"name": ..., "arguments": {...}}.  render() gives a list of
(text, is_target) parts whose concatenation is byte for byte what
chat_template.jinja produces (checked by check-template when jinja2 is there).
A target part is an assistant turn from after its header up to and with
<|im_end|>; it always starts at a special token or after a newline, so encoding
the parts one by one gives the ids of the whole.
"""
import json

TOOLS_BEFORE = ("\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                "You are provided with function signatures within <tools></tools> XML tags:\n<tools>")
TOOLS_AFTER = ("\n</tools>\n\nFor each function call, return a json object with function name and arguments "
               "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
               "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n")


def render_call(call):
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (
        call["name"], json.dumps(call["arguments"], ensure_ascii=False))


def render_assistant(message):
    pieces = [message["content"]] if message.get("content") else []
    return "\n".join(pieces + [render_call(c) for c in message.get("tool_calls") or []])


def render_system(messages, tools):
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    if tools:
        lines = "".join("\n" + json.dumps(t, ensure_ascii=False) for t in tools)
        return "<|im_start|>system\n" + system + TOOLS_BEFORE + lines + TOOLS_AFTER
    return "<|im_start|>system\n" + system + "<|im_end|>\n" if messages[0]["role"] == "system" else ""


def render(dialogue, generate=False):
    """Parts of the whole dialogue; with generate, ends ready for an answer."""
    messages, tools = dialogue["messages"], dialogue.get("tools")
    parts = [(render_system(messages, tools), False)]
    for i, message in enumerate(messages):
        role = message["role"]
        if role == "assistant":
            parts.append(("<|im_start|>assistant\n", False))
            parts.append((render_assistant(message) + "<|im_end|>", True))
            parts.append(("\n", False))
        elif role == "tool":
            first = i == 0 or messages[i - 1]["role"] != "tool"
            last = i + 1 == len(messages) or messages[i + 1]["role"] != "tool"
            parts.append((("<|im_start|>user" if first else "") + "\n<tool_response>\n" + message["content"]
                          + "\n</tool_response>" + ("<|im_end|>\n" if last else ""), False))
        elif role == "user" or i > 0:
            parts.append(("<|im_start|>%s\n%s<|im_end|>\n" % (role, message["content"]), False))
    if generate:
        parts.append(("<|im_start|>assistant\n", False))
    return [p for p in parts if p[0]]


def text_of(dialogue, generate=False):
    return "".join(t for t, _ in render(dialogue, generate))


def encode(tokeniser, dialogue):
    """ids and a 0/1 target flag per id; ends with <|endoftext|>, not a target."""
    ids, flags = [], []
    held = ""
    for text, is_target in render(dialogue):
        if not is_target:
            held += text
            continue
        before = tokeniser.encode(held)
        answer = tokeniser.encode(text)
        ids += before + answer
        flags += [0] * len(before) + [1] * len(answer)
        held = ""
    tail = tokeniser.encode(held + "<|endoftext|>")
    return ids + tail, flags + [0] * len(tail)
