// SPDX-License-Identifier: Apache-2.0
// The endpoint as OpenAI's stock SDK sees it, in two of its generations.
//
//   BASE_URL=http://127.0.0.1:8080 [API_KEY=...] [MODEL=...] node --test test-openai.mjs
//
// Against front_sim (its model is called "sim") answers are scripted, so more is checked; against real daemons the same calls are
// made and what does not depend on the model is checked.
import assert from "node:assert/strict";
import { test, describe, before } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as sdk7 from "openai";
import * as sdk6 from "openai-6";
import { zodResponseFormat as format7, zodFunction as function7 } from "openai/helpers/zod";
import { zodResponseFormat as format6, zodFunction as function6 } from "openai-6/helpers/zod";
import { z } from "zod";

const root = process.env.BASE_URL;
const apiKey = process.env.API_KEY ?? "none";
assert.ok(root, "BASE_URL is not set");

const user = (content) => [{ role: "user", content }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const weather = { type: "function", function: { name: "get_weather", description: "The weather at a place.", parameters } };
const servingOf = (text) => Object.fromEntries(text.split("; ").map((pair) => pair.split("=")));

// Requests that the server is working on, from its metrics; null where they cannot be read.
async function running() {
  const answer = await fetch(`${root}/metrics`, { headers: { authorization: `Bearer ${apiKey}` } });
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

for (const [generation, sdk, zodFormat, zodFunction] of [["7", sdk7, format7, function7], ["6", sdk6, format6, function6]]) {
  const OpenAI = sdk.default;
  const client = new OpenAI({ baseURL: `${root}/v1`, apiKey, maxRetries: 2 });
  const chat = client.chat.completions;
  let model = process.env.MODEL;
  let isSim = false;

  const ask = (content, more = {}) => ({ model, max_completion_tokens: 64, temperature: 0, messages: user(content), ...more });

  describe(`SDK ${generation}`, () => {
    before(async () => {
      model ??= (await client.models.list()).data[0].id;
      isSim = model === "sim";
    });

    test("a whole answer, with its serving stats", async () => {
      const { data, response } = await chat
        .create({ ...ask("say Hello, Ada."), messages: [{ role: "developer", content: "Be brief." }, ...user("say Hello, Ada.")] })
        .withResponse();
      assert.match(data.id, /^chatcmpl-/);
      assert.equal(data.object, "chat.completion");
      assert.match(data._request_id, /^req_/);
      assert.equal(response.headers.get("request-id"), data._request_id);
      assert.equal(data.model, model);
      const [choice] = data.choices;
      assert.equal(data.choices.length, 1);
      assert.equal(choice.message.role, "assistant");
      assert.equal(choice.message.refusal, null);
      assert.equal(choice.logprobs, null);
      assert.ok(["stop", "length"].includes(choice.finish_reason), choice.finish_reason);
      const u = data.usage;
      assert.equal(u.total_tokens, u.prompt_tokens + u.completion_tokens);
      assert.ok(u.completion_tokens > 0 && u.prompt_tokens > 0);
      const serving = servingOf(response.headers.get("baton-proof"));
      assert.equal(Number(serving.prompt), u.prompt_tokens);
      assert.equal(Number(serving.computed) + Number(serving.reused), u.prompt_tokens);
      assert.match(response.headers.get("server-timing"), /ttft;dur=/);
      if (isSim) assert.equal(choice.message.content, "Hello, Ada.");
    });

    test("a stream, by chunks", async () => {
      const stream = await chat.create(ask("say Gr\u00fc\u00df dich \u{1f600}", { stream: true, stream_options: { include_usage: true } }));
      const chunks = [];
      for await (const chunk of stream) chunks.push(chunk);
      assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
      assert.ok(chunks.every((c) => c.object === "chat.completion.chunk"));
      assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
      const last = chunks.at(-1);
      assert.deepEqual(last.choices, []);
      assert.ok(last.usage.completion_tokens > 0);
      assert.ok(chunks.slice(0, -1).every((c) => c.usage === null));
      assert.ok(["stop", "length"].includes(chunks.at(-2).choices[0].finish_reason));
      assert.deepEqual(chunks.at(-2).choices[0].delta, {});
      const text = chunks.map((c) => c.choices[0]?.delta.content ?? "").join("");
      assert.ok(!text.includes("\ufffd"));
      if (isSim) assert.equal(text, "Gr\u00fc\u00df dich \u{1f600}");
    });

    test("a stream without usage has none", async () => {
      const stream = await chat.create(ask("say a", { stream: true }));
      for await (const chunk of stream) {
        assert.equal(chunk.choices.length, 1);
        assert.ok(!("usage" in chunk));
      }
    });

    test("a stream, by the helper, equals the whole answer", async () => {
      const request = ask("What is the KV cache?");
      const stream = chat.stream({ ...request, stream_options: { include_usage: true } });
      const streamed = await stream.finalChatCompletion();
      const whole = await chat.create(request);
      assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content);
      assert.equal(streamed.choices[0].finish_reason, whole.choices[0].finish_reason);
      assert.equal(streamed.usage.total_tokens, whole.usage.total_tokens);
    });

    test("the serving stats in the stream do not disturb", async () => {
      for (const stream_options of [undefined, { include_usage: true }]) {
        const stream = await chat.create(ask("say serving", { stream: true, stream_options }), { headers: { "baton-proof": "stream" } });
        const chunks = [];
        for await (const chunk of stream) chunks.push(chunk);
        assert.ok(chunks.at(-1).baton.prompt > 0);
        assert.ok(chunks.slice(0, -1).every((c) => c.baton === undefined));
      }
    });

    test("a prompt seen before is cached", async () => {
      const content = "say " + "a prompt that is long enough to fill some blocks of the cache, ".repeat(4) + generation;
      for (let i = 0; i < 2; i++) {
        const answer = await chat.create(ask(content, { max_completion_tokens: 8 }));
        if (i === 1) assert.ok(answer.usage.prompt_tokens_details.cached_tokens > 0, "the second time finds the prefix");
        assert.ok(answer.usage.prompt_tokens_details.cached_tokens < answer.usage.prompt_tokens);
      }
    });

    test("logprobs say how likely the text's tokens were", async () => {
      const request = ask("say one two \u20ac", { logprobs: true, top_logprobs: 3, max_completion_tokens: 12 });
      const whole = await chat.create(request);
      const { content } = whole.choices[0].logprobs;
      const stream = await chat.create({ ...request, stream: true });
      const streamed = [];
      for await (const chunk of stream) streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
      assert.deepEqual(streamed, content);
      const bytes = Buffer.from(content.flatMap((entry) => entry.bytes));
      assert.equal(bytes.toString("utf8"), whole.choices[0].message.content);
      for (const entry of content) {
        assert.ok(entry.logprob <= 0);
        assert.equal(entry.top_logprobs.length, 3);
        assert.ok(entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob);
        // Greedily the likeliest is drawn.
        assert.deepEqual({ ...entry.top_logprobs[0] }, { token: entry.token, logprob: entry.logprob, bytes: entry.bytes });
      }
    });

    test("n = 2: two answers, one prompt", async () => {
      const request = ask("Tell me of the sea.", { n: 2, seed: 7, temperature: 1, max_completion_tokens: 16 });
      const { data: whole, response } = await chat.create(request).withResponse();
      assert.deepEqual(whole.choices.map((c) => c.index), [0, 1]);
      const one = await chat.create({ ...request, n: 1 });
      assert.equal(whole.usage.prompt_tokens, one.usage.prompt_tokens);
      assert.equal(whole.choices[0].message.content, one.choices[0].message.content);
      const serving = servingOf(response.headers.get("baton-proof"));
      assert.equal(Number(serving.prompt), 2 * whole.usage.prompt_tokens);
      assert.equal(Number(serving.computed) + Number(serving.reused), Number(serving.prompt));
      const streamed = await chat.stream({ ...request, stream_options: { include_usage: true } }).finalChatCompletion();
      assert.deepEqual(
        streamed.choices.map((c) => c.message.content),
        whole.choices.map((c) => c.message.content),
      );
      assert.equal(streamed.usage.completion_tokens, whole.usage.completion_tokens);
      if (!isSim) assert.notEqual(whole.choices[0].message.content, whole.choices[1].message.content);
    });

    test("stop, and what it cuts", async () => {
      const first = (await chat.create(ask("say one two three"))).choices[0].message.content;
      const word = first.split(/\s+/).filter((w) => w.length > 1).at(-1);
      for (const stop of [word, ["\u0001never", word]]) {
        const answer = await chat.create(ask("say one two three", { stop }));
        assert.equal(answer.choices[0].finish_reason, "stop");
        assert.ok(!answer.choices[0].message.content.includes(word));
      }
    });

    test("limits", async () => {
      for (const limit of [{ max_completion_tokens: 3 }, { max_completion_tokens: undefined, max_tokens: 3 }]) {
        const answer = await chat.create(ask("count 500", limit));
        assert.equal(answer.choices[0].finish_reason, "length");
        assert.equal(answer.usage.completion_tokens, 3);
      }
    });

    test("a history with parts, calls and results", async () => {
      const answer = await chat.create({
        model,
        max_tokens: 16,
        tools: [weather],
        tool_choice: "none",
        messages: [
          { role: "system", content: [{ type: "text", text: "Be " }, { type: "text", text: "brief." }] },
          { role: "user", content: [{ type: "text", text: "The weather?" }] },
          {
            role: "assistant",
            content: null,
            tool_calls: [
              { id: "call_a", type: "function", function: { name: "get_weather", arguments: '{"city":"Rome"}' } },
              { id: "call_b", type: "function", function: { name: "get_weather", arguments: "not JSON" } },
            ],
          },
          { role: "tool", tool_call_id: "call_b", content: "what?" },
          { role: "tool", tool_call_id: "call_a", content: [{ type: "text", text: "sunny" }] },
          { role: "user", content: "say Thanks." },
        ],
      });
      assert.ok(answer.usage.completion_tokens > 0);
      if (isSim) assert.equal(answer.choices[0].message.content, "Thanks.");
    });

    test("tool calls, whole and streamed", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      const call = (city) => `<tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
      const request = ask(`call Look.\n${call("Par\u00eds")}\n${call("Rome")}`, { tools: [weather], max_completion_tokens: 500 });
      const whole = await chat.create(request);
      const streamed = await chat.stream(request).finalChatCompletion();
      for (const { choices } of [whole, streamed]) {
        assert.equal(choices[0].finish_reason, "tool_calls");
        assert.match(choices[0].message.content, /^Look\./);
        const calls = choices[0].message.tool_calls;
        assert.deepEqual(calls.map((c) => JSON.parse(c.function.arguments)), [{ city: "Par\u00eds" }, { city: "Rome" }]);
        for (const one of calls) {
          assert.match(one.id, /^call_/);
          assert.equal(one.type, "function");
          assert.equal(one.function.name, "get_weather");
        }
      }
      const chunks = [];
      for await (const chunk of await chat.create({ ...request, stream: true })) chunks.push(...(chunk.choices[0].delta.tool_calls ?? []));
      assert.deepEqual([...new Set(chunks.map((c) => c.index))], [0, 1]);
      assert.ok(chunks.every((c) => (c.id === undefined) === (c.function.name === undefined)));
      const lone = await chat.create({ ...request, messages: user(`call ${call("Oslo")}`) });
      assert.equal(lone.choices[0].message.content, null);
    });

    test("the tool runner's loop", async (t) => {
      const asked = [];
      const runner = chat.runTools(
        {
          model,
          temperature: 0,
          max_completion_tokens: 300,
          messages: user(isSim ? 'call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>' : "What is the weather in Paris?"),
          tools: [
            {
              type: "function",
              function: {
                name: "get_weather",
                description: "The weather at a place.",
                parameters,
                parse: JSON.parse,
                function: async ({ city }) => {
                  asked.push(city);
                  return "18 degrees and sunny";
                },
              },
            },
          ],
        },
        { maxChatCompletions: 3 },
      );
      const completions = [];
      runner.on("chatCompletion", (completion) => completions.push(completion));
      await runner.done().catch((error) => assert.match(String(error), /maxChatCompletions|ended without|missing/));
      if (!isSim && asked.length === 0) return t.skip("this model did not call the tool");
      assert.ok(completions.length >= 2 && asked.length >= 1, `${completions.length} completions, ${asked.length} calls`);
      assert.ok(completions[1].usage.prompt_tokens_details.cached_tokens > 0, "the second turn reuses the first");
      if (isSim) assert.deepEqual(asked[0], "Rome");
    });

    test("a forced call is made", async (t) => {
      if (isSim) return t.skip("the sim draws under no mask");
      for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
        const answer = await chat.create(ask("Paris", { tools: [weather], tool_choice, temperature: 1.5, seed: 3, max_completion_tokens: 200 }));
        const [call] = answer.choices[0].message.tool_calls;
        assert.equal(call.function.name, "get_weather");
        assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
      }
    });

    test("the parse helper's structured answer", async () => {
      const Answer = z.object({ city: z.string(), mood: z.enum(["good", "bad"]) });
      const content = isSim ? 'say {"city":"Rome","mood":"good"}' : 'Say {"city":"Rome","mood":"good"}';
      const answer = await chat.parse(ask(content, { response_format: zodFormat(Answer, "answer"), max_completion_tokens: 200 }));
      const { parsed } = answer.choices[0].message;
      assert.ok(["good", "bad"].includes(parsed.mood));
      assert.equal(typeof parsed.city, "string");
      const stream = chat.stream(ask(content, { response_format: zodFormat(Answer, "answer"), max_completion_tokens: 200 }));
      assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, parsed);
      const object = await chat.create(
        ask(isSim ? 'say {"a": 1}' : "An object, please.", { response_format: { type: "json_object" }, max_completion_tokens: 300 }),
      );
      if (object.choices[0].finish_reason === "stop") assert.equal(typeof JSON.parse(object.choices[0].message.content), "object");
    });

    test("the parse helper's tools", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      const tool = zodFunction({ name: "get_weather", parameters: z.object({ city: z.string() }) });
      const say = 'call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>';
      const answer = await chat.parse(ask(say, { tools: [tool], max_completion_tokens: 300 }));
      assert.deepEqual(answer.choices[0].message.tool_calls[0].function.parsed_arguments, { city: "Bern" });
    });

    test("completions of text", async () => {
      const request = { model, prompt: "say Once upon a time", max_tokens: 12, temperature: 0 };
      const whole = await client.completions.create({ ...request, logprobs: 2 });
      assert.match(whole.id, /^cmpl-/);
      assert.equal(whole.object, "text_completion");
      const { text, logprobs } = whole.choices[0];
      assert.equal(logprobs.tokens.length, logprobs.token_logprobs.length);
      assert.equal(logprobs.text_offset[0], 0);
      if (logprobs.tokens.every((token) => !token.startsWith("bytes:"))) assert.equal(logprobs.tokens.join(""), text);
      let streamed = "";
      for await (const chunk of await client.completions.create({ ...request, stream: true })) streamed += chunk.choices[0].text;
      assert.equal(streamed, text);
      const { tokens } = await (await post("/tokenize", { model, prompt: request.prompt })).json();
      const several = await client.completions.create({ ...request, prompt: [tokens, tokens], echo: true });
      assert.deepEqual(several.choices.map((c) => c.text), [request.prompt + text, request.prompt + text]);
      assert.equal(several.usage.prompt_tokens, 2 * whole.usage.prompt_tokens);
      await assert.rejects(client.completions.create({ ...request, suffix: "the end" }), sdk.BadRequestError);
      const short = await client.completions.create({ model, prompt: "count 500" });
      assert.ok(short.usage.completion_tokens <= 16);
    });

    const post = (path, body) =>
      fetch(`${root}${path}`, { method: "POST", headers: { authorization: `Bearer ${apiKey}` }, body: JSON.stringify(body) });

    test("tokens and text", async () => {
      const text = "Gr\u00fc\u00df <|im_end|> \u{1f600}";
      const { tokens, count, max_model_len } = await (await post("/tokenize", { model, content: text })).json();
      assert.equal(tokens.length, count);
      assert.ok(max_model_len > 0);
      const back = await (await post("/detokenize", { model, tokens })).json();
      assert.equal(back.prompt, text);
      assert.equal(back.content, text);
      const request = ask("say hello");
      const prompt = await (await post("/tokenize", { model, messages: request.messages })).json();
      assert.equal(prompt.count, (await chat.create(request)).usage.prompt_tokens);
    });

    test("aborting frees the slot", async () => {
      for (const n of [1, 3]) {
        const stream = await chat.create(ask("count 5000", { max_completion_tokens: 4000, stream: true, n }));
        for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
        assert.ok(await becomesIdle(1000), "still running after 1 s");
        const controller = new AbortController();
        const whole = chat.create(ask("count 5000", { max_completion_tokens: 4000, n }), { signal: controller.signal });
        setTimeout(() => controller.abort(), 30);
        await whole.then(() => {}, (error) => assert.ok(error instanceof sdk.APIUserAbortError));
        assert.ok(await becomesIdle(1000), "still running after 1 s");
      }
    });

    test("errors have their classes", async () => {
      const refused = (body, param, pattern) =>
        assert.rejects(chat.create(body), (error) => {
          assert.ok(error instanceof sdk.BadRequestError, String(error));
          assert.equal(error.type, "invalid_request_error");
          assert.equal(error.param, param);
          assert.match(error.message, pattern);
          assert.match(error.requestID, /^req_/);
          return true;
        });
      await refused({ model, messages: [] }, "messages", /at least one message/);
      await refused(ask("x", { n: 129 }), "n", /between 1 and 128/);
      await refused(ask("x", { top_logprobs: 3 }), "top_logprobs", /together with logprobs/);
      await refused(ask([{ type: "image_url", image_url: { url: "x" } }], { stream: true }), "messages[0].content[0].type", /image_url/);
      await refused(ask("x", { functions: [{ name: "f" }] }), "functions", /use tools/);
      await assert.rejects(chat.create(ask("x", { model: "no-such-model" })), (error) => {
        assert.ok(error instanceof sdk.NotFoundError);
        assert.equal(error.code, "model_not_found");
        return true;
      });
      await assert.rejects(chat.create(ask("word ".repeat(400000))), (error) => {
        assert.equal(error.status, 400);
        assert.equal(error.code, "context_length_exceeded");
        return true;
      });
      await assert.rejects(client.embeddings.create({ model, input: "x" }), sdk.NotFoundError);
      assert.equal((await client.responses.create({ model, input: "x", max_output_tokens: 1 })).object, "response");
      await assert.rejects(client.moderations.create({ input: "x" }), (error) => {
        assert.ok(error instanceof sdk.NotFoundError);
        assert.equal(error.type, "invalid_request_error");
        return true;
      });
      const wrong = await fetch(`${root}/v1/chat/completions`, { headers: { authorization: `Bearer ${apiKey}` } });
      assert.equal(wrong.status, 405);
      assert.deepEqual(Object.keys((await wrong.json()).error), ["message", "type", "param", "code"]);
    });

    test("a body over 32 MiB is answered with a readable 413", async () => {
      const error = await chat.create(ask("x".repeat(34 << 20))).then(() => null, (e) => e);
      assert.ok(error instanceof sdk.APIError, String(error));
      assert.equal(error.status, 413);
      assert.equal(error.code, "request_too_large");
    });

    test("a wrong key", async (t) => {
      if (!process.env.API_KEY) return t.skip("no API_KEY: the server asks for none");
      const stranger = new OpenAI({ baseURL: `${root}/v1`, apiKey: "wrong", maxRetries: 0 });
      await assert.rejects(stranger.chat.completions.create(ask("x")), (error) => {
        assert.ok(error instanceof sdk.AuthenticationError);
        assert.equal(error.code, "invalid_api_key");
        return true;
      });
    });

    test("models", async () => {
      const ids = [];
      for await (const one of client.models.list()) ids.push(one.id);
      assert.ok(ids.includes(model));
      const one = await client.models.retrieve(model);
      assert.equal(one.object, "model");
      assert.ok(one.created > 0 && one.owned_by);
      await assert.rejects(client.models.retrieve("no such model"), sdk.NotFoundError);
    });

    test("overload is retried until it is over", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      const began = Date.now();
      const answer = await chat.create(ask("overload"));
      assert.equal(answer.choices[0].message.content, "You said: overload");
      assert.ok(Date.now() - began >= 1500, "two retries, one second apart each");
    });

    test("an error in the stream is raised", async (t) => {
      if (!isSim) return t.skip("needs front_sim");
      const read = async () => {
        for await (const chunk of await chat.create(ask("break 3", { stream: true }))) void chunk;
      };
      await assert.rejects(read(), (error) => {
        assert.ok(error instanceof sdk.APIError);
        assert.match(error.message, /the sim broke/);
        return true;
      });
    });
  });
}
