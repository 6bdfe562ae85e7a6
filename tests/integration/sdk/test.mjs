// SPDX-License-Identifier: Apache-2.0
// The endpoint as the stock SDK sees it, in both of its generations.
//
//   BASE_URL=http://127.0.0.1:8080 [API_KEY=...] [MODEL=...] node --test test.mjs
//
// Against front_sim (its model is called "sim") answers are scripted, so more is checked; against real daemons the same calls are
// made and what does not depend on the model is checked.
import assert from "node:assert/strict";
import { test, describe, before } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as sdk1 from "@anthropic-ai/sdk";
import * as sdk0 from "sdk-0";

const baseURL = process.env.BASE_URL;
const apiKey = process.env.API_KEY ?? "none";
assert.ok(baseURL, "BASE_URL is not set");

const user = (content) => [{ role: "user", content }];
const total = (u) => u.input_tokens + u.cache_creation_input_tokens + u.cache_read_input_tokens;
const weather = {
  name: "get_weather",
  description: "The weather at a place.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

// Requests that the server is working on, from its metrics; null where they cannot be read.
async function running() {
  const answer = await fetch(`${baseURL}/metrics`, { headers: { authorization: `Bearer ${apiKey}` } });
  if (!answer.ok) return null;
  const lines = (await answer.text()).split("\n").filter((l) => l.startsWith("baton_requests_in_flight{"));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

async function becomesIdle(within_ms) {
  for (const end = Date.now() + within_ms; Date.now() < end; await sleep(20)) {
    const n = await running();
    if (n === null || n === 0) return true;
  }
  return false;
}

for (const [generation, sdk] of [["1.x", sdk1], ["0.x", sdk0]]) {
  const Anthropic = sdk.default;
  const client = new Anthropic({ baseURL, apiKey, maxRetries: 2 });
  let model = process.env.MODEL;
  let isSim = false;

  // Greedy unless asked otherwise: a draw may be the end at once, and then there is nothing to look at.
  const ask = (content, more = {}) => ({ model, max_tokens: 64, temperature: 0, messages: user(content), ...more });

  describe(`SDK ${generation}`, () => {
    before(async () => {
      model ??= (await client.models.list()).data[0].id;
      isSim = model === "sim";
    });

    test("a whole answer", async () => {
      const message = await client.messages.create(ask("say Hello, Ada.", { system: "Be brief." }));
      assert.match(message.id, /^msg_/);
      assert.match(message._request_id, /^req_/);
      assert.equal(message.role, "assistant");
      assert.equal(message.model, model);
      assert.ok(["end_turn", "max_tokens"].includes(message.stop_reason), message.stop_reason);
      assert.ok(message.usage.output_tokens > 0 && message.usage.input_tokens >= 0);
      assert.equal(message.content[0].type, "text");
      if (isSim) assert.equal(message.content[0].text, "Hello, Ada.");
    });

    test("a stream, by events", async () => {
      const stream = await client.messages.create(ask("say Gr\u00fc\u00df dich \u{1f600}", { stream: true }));
      const types = [];
      let text = "";
      for await (const event of stream) {
        types.push(event.type);
        if (event.type === "content_block_delta") text += event.delta.text;
      }
      const kept = types.filter((t) => t !== "ping" && t !== "content_block_delta");
      assert.deepEqual(kept, ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]);
      assert.ok(text.length > 0 && !text.includes("\ufffd"));
      if (isSim) assert.equal(text, "Gr\u00fc\u00df dich \u{1f600}");
    });

    test("a stream, by the helper, equals the whole answer", async () => {
      const request = ask("What is the KV cache?");
      const stream = client.messages.stream(request);
      let text = "";
      stream.on("text", (piece) => (text += piece));
      const streamed = await stream.finalMessage();
      const whole = await client.messages.create(request);
      assert.equal(streamed.content[0].text, text);
      assert.equal(whole.content[0].text, text);
      assert.equal(streamed.stop_reason, whole.stop_reason);
      assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
      assert.equal(total(streamed.usage), total(whole.usage));
      assert.match(stream.request_id ?? "", /^req_/);
    });

    test("the serving stats in the stream do not disturb", async () => {
      const stream = client.messages.stream(ask("say serving"), { headers: { "baton-proof": "stream" } });
      const message = await stream.finalMessage();
      assert.ok(message.stop_reason);
      assert.ok(message.usage.output_tokens > 0);
    });

    test("counting agrees with what is accounted, cached or not", async () => {
      const content = "say " + "a prompt that is long enough to fill some blocks of the cache, ".repeat(4) + generation;
      const counted = await client.messages.countTokens({ model, messages: user(content), tools: [weather] });
      for (let i = 0; i < 2; i++) {
        const message = await client.messages.create(ask(content, { tools: [weather], max_tokens: 8 }));
        assert.equal(total(message.usage), counted.input_tokens);
        if (i === 1) assert.ok(message.usage.cache_read_input_tokens > 0, "the second time finds the prefix");
      }
    });

    test("several turns and a prefilled answer", async () => {
      const message = await client.messages.create({
        model,
        max_tokens: 16,
        temperature: 0,
        messages: [
          { role: "user", content: "say one" },
          { role: "assistant", content: [{ type: "text", text: "one" }] },
          { role: "user", content: [{ type: "text", text: "say two" }] },
          { role: "assistant", content: "The answer is" },
        ],
      });
      assert.ok(message.usage.output_tokens > 0);
    });

    test("stop sequences", async () => {
      const first = await client.messages.create(ask("say one two three"));
      const word = first.content[0].text.split(/\s+/).filter((w) => w.length > 1).at(-1);
      const message = await client.messages.create(ask("say one two three", { stop_sequences: [word] }));
      assert.equal(message.stop_reason, "stop_sequence");
      assert.equal(message.stop_sequence, word);
      assert.ok(!JSON.stringify(message.content).includes(word));
    });

    test("max_tokens", async () => {
      const message = await client.messages.create(ask("count 500", { max_tokens: 3 }));
      assert.equal(message.stop_reason, "max_tokens");
      assert.equal(message.usage.output_tokens, 3);
      const prewarmed = await client.messages.create(ask("count 500", { max_tokens: 0 }));
      assert.deepEqual(prewarmed.content, []);
      assert.equal(prewarmed.usage.output_tokens, 0);
    });

    test("aborting frees the slot", async () => {
      const stream = client.messages.stream(ask("count 5000", { max_tokens: 4000 }));
      await new Promise((resolve, reject) => {
        stream.on("streamEvent", resolve);
        stream.on("error", reject);
      });
      stream.abort();
      await assert.rejects(stream.finalMessage(), sdk.APIUserAbortError);
      assert.ok(await becomesIdle(1500), "still running after 1.5 s");

      const controller = new AbortController();
      const whole = client.messages.create(ask("count 5000", { max_tokens: 4000 }), { signal: controller.signal });
      setTimeout(() => controller.abort(), 30);
      await whole.then(() => {}, (error) => assert.ok(error instanceof sdk.APIUserAbortError));
      assert.ok(await becomesIdle(1500), "still running after 1.5 s");
    });

    test("models", async () => {
      const page = await client.models.list({ limit: 1 });
      assert.equal(page.data.length, 1);
      const ids = [];
      for await (const one of client.models.list()) ids.push(one.id);
      assert.ok(ids.includes(model));
      const one = await client.models.retrieve(model);
      assert.equal(one.id, model);
      assert.equal(one.type, "model");
      await assert.rejects(client.models.retrieve("no such/model"), sdk.NotFoundError);
    });

    test("errors have their classes", async () => {
      const bad = (body) => client.messages.create(body);
      await assert.rejects(bad({ model, messages: user("x") }), (error) => {
        assert.ok(error instanceof sdk.BadRequestError);
        assert.equal(error.error.error.type, "invalid_request_error");
        assert.equal(error.error.error.message, "max_tokens: Field required");
        assert.match(error.requestID, /^req_/);
        return true;
      });
      await assert.rejects(bad(ask("x", { stream: true, messages: [] })), sdk.BadRequestError);
      await assert.rejects(bad(ask([{ type: "image", source: {} }])), /messages\.0\.content\.0\.type: image blocks/);
      await assert.rejects(bad(ask("x", { model: "no-such-model" })), (error) => {
        assert.ok(error instanceof sdk.NotFoundError);
        assert.equal(error.error.error.message, "model: no-such-model");
        return true;
      });
      await assert.rejects(bad(ask("word ".repeat(400000))), /prompt is too long: \d+ tokens > \d+ maximum/);
      await assert.rejects(client.messages.batches.list(), sdk.NotFoundError);
    });

    test("a body over 32 MiB is answered with a readable 413", async () => {
      const error = await client.messages.create(ask("x".repeat(34 << 20))).then(() => null, (e) => e);
      assert.ok(error instanceof sdk.APIError, String(error));
      assert.equal(error.status, 413);
      assert.equal(error.error.error.type, "request_too_large");
    });

    test("a wrong key", async (t) => {
      if (!process.env.API_KEY) return t.skip("no API_KEY: the server asks for none");
      const stranger = new Anthropic({ baseURL, apiKey: "wrong", maxRetries: 0 });
      await assert.rejects(stranger.messages.create(ask("x")), (error) => {
        assert.ok(error instanceof sdk.AuthenticationError);
        assert.equal(error.status, 401);
        return true;
      });
    });

    test("threads go on from an id, once", async () => {
      const follow = (id) => ({ thread: { type: "continue", previous_message_id: id } });
      const code = (promise) => promise.then(() => null, (e) => e.error.error.details.error_code);
      const first = await client.messages.create(ask("Hello!", { system: "Be brief.", thread: { type: "create" } }));
      assert.equal(first.stop_reason, "end_turn");
      const second = await client.messages.create(ask("And now?", follow(first.id)));
      assert.ok(total(second.usage) > total(first.usage), "the second prompt begins with the first and its answer");
      assert.equal(await code(client.messages.create(ask("x", follow(first.id)))), "thread_already_continued");
      assert.equal(await code(client.messages.create(ask("x", follow("msg_none")))), "thread_not_found");
    });

    test("overload is retried until it is over", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      if (generation !== "1.x") return t.skip("the sim is overloaded only once");
      const began = Date.now();
      const message = await client.messages.create(ask("overload"));
      assert.equal(message.content[0].text, "You said: overload");
      assert.ok(Date.now() - began >= 1500, "two retries, one second apart each");
    });

    test("an error in the stream is raised", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      await assert.rejects(client.messages.stream(ask("break 3")).finalMessage(), /the sim broke/);
    });

    test("the client's patience ends the work", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      const hasty = new Anthropic({ baseURL, apiKey, maxRetries: 0, timeout: 300 });
      await assert.rejects(hasty.messages.create(ask("hang")), sdk.APIConnectionTimeoutError);
      assert.ok(await becomesIdle(1500), "still running after 1.5 s");
    });

    test("the parse helper's structured answer", async (t) => {
      if (isSim) return t.skip("the sim draws no tokens");
      const name = generation === "1.x" ? "@anthropic-ai/sdk" : "sdk-0";
      const { jsonSchemaOutputFormat } = await import(`${name}/helpers/json-schema`);
      const schema = {
        type: "object",
        properties: { sky: { type: "string", enum: ["clear", "cloudy"] }, is_warm: { type: "boolean" } },
        required: ["sky", "is_warm"],
        additionalProperties: false,
      };
      const message = await client.messages.parse(
        ask("How is the weather?", { temperature: 1.5, max_tokens: 200, output_config: { format: jsonSchemaOutputFormat(schema) } }),
      );
      assert.equal(typeof message.parsed_output.sky, "string");
      assert.equal(typeof message.parsed_output.is_warm, "boolean");
    });

    test("a forced call holds to its schema at any temperature", async (t) => {
      if (isSim) return t.skip("the sim draws no tokens");
      const message = await client.messages.create(
        ask("Hello!", { temperature: 2, max_tokens: 200, tools: [weather], tool_choice: { type: "any" } }),
      );
      assert.equal(message.stop_reason, "tool_use");
      assert.equal(typeof message.content.find((block) => block.type === "tool_use").input.city, "string");
    });

    test("a tool loop as a real model drives it", async (t) => {
      if (isSim) return t.skip("needs a real model");
      const messages = user("What is the weather in Paris?");
      const request = { model, max_tokens: 200, temperature: 0, tools: [weather], messages };
      const whole = await client.messages.create(request);
      const streamed = await client.messages.stream(request).finalMessage();
      assert.equal(streamed.stop_reason, whole.stop_reason);
      if (whole.stop_reason !== "tool_use") return t.skip("this model did not call the tool");
      const call = whole.content.find((block) => block.type === "tool_use");
      assert.deepEqual(streamed.content.find((block) => block.type === "tool_use").input, call.input);
      messages.push({ role: "assistant", content: whole.content });
      messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "18 degrees and sunny" }] });
      const next = await client.messages.create(request);
      assert.ok(next.usage.cache_read_input_tokens > 0, "the second turn reuses the first");
    });

    test("tool calls, whole and streamed", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      const say = 'call Look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par\u00eds"}}\n</tool_call>';
      const whole = await client.messages.create(ask(say, { tools: [weather], max_tokens: 500 }));
      const streamed = await client.messages.stream(ask(say, { tools: [weather], max_tokens: 500 })).finalMessage();
      for (const message of [whole, streamed]) {
        assert.equal(message.stop_reason, "tool_use");
        assert.deepEqual(message.content.map((b) => b.type), ["text", "tool_use"]);
        assert.match(message.content[1].id, /^toolu_/);
        assert.equal(message.content[1].name, "get_weather");
        assert.deepEqual(message.content[1].input, { city: "Par\u00eds" });
      }
      const next = await client.messages.create({
        model,
        max_tokens: 50,
        tools: [weather],
        messages: [
          ...user(say),
          { role: "assistant", content: whole.content },
          { role: "user", content: [{ type: "tool_result", tool_use_id: whole.content[1].id, content: "sunny" }, { type: "text", text: "say Done." }] },
        ],
      });
      assert.equal(next.content[0].text, "Done.");
      assert.ok(next.usage.cache_read_input_tokens > 0);
      const forced = await client.messages.create(ask(say, { tools: [weather], tool_choice: { type: "any" }, max_tokens: 500 }));
      assert.equal(forced.stop_reason, "tool_use");
      assert.equal(forced.content.at(-1).name, "get_weather");
      await assert.rejects(
        client.messages.create(ask("x", { tools: [weather], tool_choice: { type: "tool", name: "other" } })),
        sdk.BadRequestError,
      );
    });

    test("the tool runner, over threads where it uses them", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      let calls = 0;
      const tool = {
        ...weather,
        type: "custom",
        run: async () => {
          calls++;
          return "sunny";
        },
        parse: (input) => input,
      };
      const sent = [];
      const watched = new Anthropic({
        baseURL, apiKey, maxRetries: 0,
        fetch: (url, init) => (sent.push(JSON.parse(init.body)), fetch(url, init)),
      });
      const runner = watched.beta.messages.toolRunner({
        model,
        max_tokens: 500,
        max_iterations: 3,
        tools: [tool],
        messages: user('call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'),
      });
      let turns = 0;
      for await (const message of runner) {
        assert.equal(message.role, "assistant");
        turns++;
      }
      assert.ok(turns >= 2 && calls >= 1, `${turns} turns, ${calls} calls`);
      if (generation === "1.x") { /* which uses threads unasked: each turn after the first sends its results alone */
        assert.equal(sent[0].thread.type, "create");
        for (const body of sent.slice(1)) {
          assert.equal(body.thread.type, "continue");
          assert.equal(body.messages.length, 1);
        }
        assert.equal(sent.length, turns, "no turn was sent twice");
      }
    });
  });
}
