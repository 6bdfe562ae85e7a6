# SPDX-License-Identifier: Apache-2.0
"""/v1/responses as unmodified Python clients see it: openai's own SDK and langchain.

    BASE_URL=http://127.0.0.1:8080 [API_KEY=...] [MODEL=...] python3 clients.py

Against front_sim (its model is called "sim") answers are scripted, so more is checked."""
import json
import os

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

ROOT = os.environ["BASE_URL"] + "/v1"
KEY = os.environ.get("API_KEY", "none")
client = openai.OpenAI(base_url=ROOT, api_key=KEY, max_retries=2)
MODEL = os.environ.get("MODEL") or client.models.list().data[0].id
IS_SIM = MODEL == "sim"
LIMITS = {"max_output_tokens": 48, "temperature": 0}
CALL = 'call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>' if IS_SIM else "The weather in Oslo?"
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather at a place.", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


class City(BaseModel):
    city: str = Field(max_length=8)


def says(text):
    return f"say {text}" if IS_SIM else text


def create():
    answer = client.responses.create(model=MODEL, input=says("Hello."), **LIMITS)
    assert answer.status in ("completed", "incomplete"), answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.input_tokens_details.cached_tokens >= 0 and answer.usage.output_tokens_details.reasoning_tokens == 0
    assert not IS_SIM or answer.output_text == "Hello."


def stream():
    with client.responses.stream(model=MODEL, input=says("Hello, Ada."), **LIMITS) as events:
        text, kinds = "", []
        for event in events:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
                assert event.snapshot == text
        assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"], kinds
        if kinds[-1] == "response.completed":
            assert events.get_final_response().output_text == text


def parse():
    answer = client.responses.parse(model=MODEL, input=says('{"city": "Oslo"}'), text_format=City, **LIMITS)
    assert not IS_SIM or answer.output_parsed == City(city="Oslo"), answer


def a_call_and_its_result():
    first = client.responses.create(model=MODEL, input=CALL, tools=[WEATHER, {"type": "web_search"}], tool_choice="required",
                                    **{**LIMITS, "max_output_tokens": 120})
    call = next(item for item in first.output if item.type == "function_call")
    assert call.name == "get_weather" and isinstance(json.loads(call.arguments)["city"], str)
    assert "web_search" in first.warnings[0]["message"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    by_id = client.responses.create(model=MODEL, previous_response_id=first.id, tools=[WEATHER], store=False,
                                    input=[result, {"role": "user", "content": says("So?")}], **LIMITS)
    whole = client.responses.create(model=MODEL, tools=[WEATHER], store=False, **LIMITS,
                                    input=[{"role": "user", "content": CALL}, *first.output, result,
                                           {"role": "user", "content": says("So?")}])
    assert by_id.output_text == whole.output_text and by_id.usage.input_tokens == whole.usage.input_tokens


def kept_responses():
    made = client.responses.create(model=MODEL, input=says("Hello."), **LIMITS)
    assert client.responses.retrieve(made.id).output == made.output
    items = list(client.responses.input_items.list(made.id))
    assert len(items) == 1 and items[0].content[0].text == says("Hello.")
    client.responses.delete(made.id)
    try:
        client.responses.retrieve(made.id)
        raise AssertionError("a deleted response was found")
    except openai.NotFoundError:
        pass


def langchain_in_both_ways():
    chat = ChatOpenAI(model=MODEL, base_url=ROOT, api_key=KEY, use_responses_api=True, temperature=0, max_tokens=120)
    answer = chat.invoke(says("Hello."))
    assert answer.usage_metadata["output_tokens"] > 0
    assert not IS_SIM or answer.text == "Hello."
    pieces = [chunk.text for chunk in chat.stream(says("Hello, Ada."))]
    assert not IS_SIM or "".join(pieces) == "Hello, Ada."
    bound = chat.bind_tools([{"type": "function", "function": {k: v for k, v in WEATHER.items() if k not in ("type", "strict")}}],
                            tool_choice="auto" if IS_SIM else "any")
    call = bound.invoke([HumanMessage(CALL)])
    assert call.tool_calls[0]["name"] == "get_weather", call
    last = bound.invoke([HumanMessage(CALL), call, ToolMessage("Rain.", tool_call_id=call.tool_calls[0]["id"]),
                         HumanMessage(says("So?"))])
    assert last.usage_metadata["input_tokens"] > call.usage_metadata["input_tokens"]


for check in (create, stream, parse, a_call_and_its_result, kept_responses, langchain_in_both_ways):
    check()
    print(f"ok {check.__name__}")
