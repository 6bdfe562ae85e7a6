// SPDX-License-Identifier: Apache-2.0
// /v1/responses as unmodified clients see it: openai's own SDK, the ai package with its default OpenAI provider, langchain.
//
//   BASE_URL=http://127.0.0.1:8080 [API_KEY=...] [MODEL=...] node --test test-responses.mjs
//
// Against front_sim (its model is called "sim") answers are scripted, so more is checked; against real daemons the same calls
// are made and what does not depend on the model is checked.
import assert from "node:assert/strict";
import { test, describe, before } from "node:test";
import OpenAI from "openai";
import OpenAI7 from "openai-7";
import { zodTextFormat } from "openai/helpers/zod";
import { zodTextFormat as zodTextFormat7 } from "openai-7/helpers/zod";
import { generateText, streamText, generateObject, tool, stepCountIs } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { ChatOpenAI } from "@langchain/openai";
import { tool as langTool } from "@langchain/core/tools";
import { z } from "zod";

const root = process.env.BASE_URL;
const apiKey = process.env.API_KEY ?? "none";
assert.ok(root, "BASE_URL is not set");

const City = z.object({ city: z.string().max(8) });
const weather = { type: "function", name: "get_weather", description: "The weather at a place.", strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false } };
const asCall = (city) => `call <tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}"}}\n</tool_call>`;

let model = process.env.MODEL;
let isSim = false;
const limits = { max_output_tokens: 48, temperature: 0 };
const says = (text) => (isSim ? `say ${text}` : text);

before(async () => {
  model ??= (await new OpenAI({ baseURL: `${root}/v1`, apiKey }).models.list()).data[0].id;
  isSim = model === "sim";
});

const lines = [
  "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
  "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
];

for (const [generation, Client, format] of [["6", OpenAI, zodTextFormat], ["7", OpenAI7, zodTextFormat7]]) describe(`openai ${generation}`, () => {
  const client = new Client({ baseURL: `${root}/v1`, apiKey, maxRetries: 2 });

  test("create", async () => {
    const { data, response } = await client.responses.create({ model, input: says("Hello."), ...limits }).withResponse();
    assert.equal(data.object, "response");
    assert.ok(["completed", "incomplete"].includes(data.status));
    assert.equal(data.usage.total_tokens, data.usage.input_tokens + data.usage.output_tokens);
    assert.equal(data.usage.input_tokens_details.cached_tokens >= 0, true);
    assert.equal(data.output_text, data.output.filter((i) => i.type === "message").map((i) => i.content[0].text).join(""));
    assert.match(response.headers.get("baton-proof"), /^prompt=\d+; /);
    if (isSim) assert.equal(data.output_text, "Hello.");
  });

  test("a stream of events in their order", async () => {
    const stream = await client.responses.create({ model, input: says("Hello, Ada."), stream: true, ...limits });
    const seen = [];
    let next = 0;
    for await (const event of stream) {
      assert.equal(event.sequence_number, next++);
      if (event.type !== seen.at(-1)) seen.push(event.type);
    }
    assert.match(seen.pop(), /^response\.(completed|incomplete)$/);
    assert.deepEqual(seen, lines);
  });

  test("stream, with the SDK's own accumulation", async () => {
    const stream = client.responses.stream({ model, input: says("Hello, Ada."), ...limits });
    let text = "";
    stream.on("response.output_text.delta", (event) => { text += event.delta; });
    const final = await stream.finalResponse();
    assert.equal(final.output_text, text);
  });

  test("parse", async () => {
    const response = await client.responses.parse({
      model, input: says('{"city": "Oslo"}'), ...limits,
      text: { format: format(City, "city") },
    });
    if (response.status === "completed") City.parse(response.output_parsed);
    if (isSim) assert.deepEqual(response.output_parsed, { city: "Oslo" });
  });

  test("a call, and its result by previous_response_id", async () => {
    const first = await client.responses.create({
      model, input: isSim ? asCall("Oslo") : "The weather in Oslo?", tools: [weather, { type: "web_search" }],
      tool_choice: "required", ...limits, max_output_tokens: 120,
    });
    const call = first.output.find((item) => item.type === "function_call");
    assert.equal(call.name, "get_weather");
    assert.equal(typeof JSON.parse(call.arguments).city, "string");
    assert.match(first.warnings[0].message, /web_search/);
    const second = await client.responses.create({
      model, previous_response_id: first.id, tools: [weather], ...limits,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "Rain." }, { role: "user", content: says("So?") }],
    });
    assert.equal(second.previous_response_id, first.id);
    assert.ok(second.usage.input_tokens > first.usage.input_tokens);
  });

  test("kept responses: retrieve, input items, delete", async () => {
    const made = await client.responses.create({ model, input: says("Hello."), metadata: { k: "v" }, ...limits });
    const found = await client.responses.retrieve(made.id);
    assert.deepEqual(found.output, made.output);
    assert.deepEqual(found.metadata, { k: "v" });
    const items = [];
    for await (const item of client.responses.inputItems.list(made.id)) items.push(item);
    assert.equal(items.length, 1);
    assert.equal(items[0].content[0].text, says("Hello."));
    await client.responses.delete(made.id);
    await assert.rejects(client.responses.retrieve(made.id), { status: 404 });
  });

  test("a running stream is cancelled by its id", async () => {
    const stream = await client.responses.create({ model, stream: true, max_output_tokens: 3000,
      input: isSim ? "count 100000" : "Tell me a very long story.", ignore_eos: true });
    let last, id;
    for await (const event of stream) {
      id ??= event.response.id;
      last = event;
      if (event.type === "response.output_text.delta" && id !== "") {
        const cancelled = await client.responses.cancel(id);
        assert.equal(cancelled.status, "cancelled");
        id = "";
      }
    }
    assert.equal(last.response.status, "cancelled");
  });

  test("counting tokens", async () => {
    const counted = await client.responses.inputTokens.count({ model, input: says("Hello.") });
    const made = await client.responses.create({ model, input: says("Hello."), store: false, ...limits });
    assert.equal(counted.input_tokens, made.usage.input_tokens);
  });

  test("an empty probe, and refusals by name", async () => {
    const probe = await client.responses.create({ model, input: [], max_output_tokens: 1, temperature: 0 });
    assert.equal(probe.usage.output_tokens, 1);
    const refused = (more, param) => assert.rejects(client.responses.create({ model, input: "x", ...more }), { status: 400, param });
    await refused({ tools: [{ type: "web_search" }] }, "tools");
    await refused({ background: true }, "background");
    await refused({ previous_response_id: "resp_none" }, "previous_response_id");
    await refused({ input: [{ role: "user", content: [{ type: "input_image", image_url: "data:," }] }] }, "input[0].content[0].type");
    await assert.rejects(client.embeddings.create({ model, input: "x" }), { status: 404, code: "embeddings_unsupported" });
  });
});

describe("ai, with its default OpenAI provider", () => {
  const provider = () => createOpenAI({ baseURL: `${root}/v1`, apiKey })(model);
  const common = { temperature: 0, maxOutputTokens: 48, maxRetries: 1 };

  test("generateText", async () => {
    const { text, usage, finishReason } = await generateText({ model: provider(), prompt: says("Hello."), ...common });
    assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
    assert.ok(["stop", "length"].includes(finishReason));
    if (isSim) assert.equal(text, "Hello.");
  });

  test("streamText", async () => {
    const result = streamText({ model: provider(), prompt: says("Hello, Ada."), ...common });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    assert.equal(text, await result.text);
    if (isSim) assert.equal(text, "Hello, Ada.");
  });

  test("generateObject", async () => {
    if (!isSim) return; // whether a small model ends its text within the limit depends on the model
    const { object } = await generateObject({ model: provider(), schema: City, prompt: 'say {"city": "Oslo"}', ...common });
    assert.deepEqual(object, { city: "Oslo" });
  });

  test("a tool's loop, whose next step refers to kept items", async () => {
    const asked = [];
    const { steps } = await generateText({
      model: provider(), ...common, maxOutputTokens: 120, stopWhen: stepCountIs(2), toolChoice: isSim ? "auto" : "required",
      prompt: isSim ? asCall("Oslo") : "The weather in Oslo?",
      tools: { get_weather: tool({ description: "The weather at a place.", inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => { asked.push(city); return "Rain."; } }) },
    });
    assert.ok(asked.length >= 1);
    assert.equal(steps.length, 2);
  });

  test("a conversation's second turn refers to the first answer's items", async () => {
    const first = await generateText({ model: provider(), prompt: says("One."), ...common });
    const messages = [{ role: "user", content: says("One.") }, ...first.response.messages, { role: "user", content: says("Two.") }];
    const second = await generateText({ model: provider(), messages, ...common });
    assert.match(JSON.stringify(second.request.body), /item_reference/);
    if (isSim) assert.equal(second.text, "Two.");
  });
});

describe("langchain", () => {
  const chat = (more = {}) => new ChatOpenAI({ model, apiKey, useResponsesApi: true, temperature: 0, maxTokens: 120,
    configuration: { baseURL: `${root}/v1` }, ...more });

  test("invoke", async () => {
    const answer = await chat().invoke(says("Hello."));
    assert.ok(answer.usage_metadata.output_tokens > 0);
    if (isSim) assert.equal(answer.text, "Hello.");
  });

  test("stream", async () => {
    let text = "";
    for await (const chunk of await chat().stream(says("Hello, Ada."))) text += chunk.text;
    if (isSim) assert.equal(text, "Hello, Ada.");
  });

  test("a call and its result", async () => {
    const bound = chat().bindTools([langTool(async () => "Rain.", { name: "get_weather", description: "The weather.",
      schema: z.object({ city: z.string() }) })], { tool_choice: isSim ? "auto" : "any" });
    const question = { role: "user", content: isSim ? asCall("Oslo") : "The weather in Oslo?" };
    const answer = await bound.invoke([question]);
    assert.equal(answer.tool_calls[0].name, "get_weather");
    const next = await bound.invoke([question, answer,
      { role: "tool", content: "Rain.", tool_call_id: answer.tool_calls[0].id }, { role: "user", content: says("So?") }]);
    assert.ok(next.usage_metadata.input_tokens > answer.usage_metadata.input_tokens);
  });
});
