// SPDX-License-Identifier: Apache-2.0
// /v1/embeddings as OpenAI's SDK, two generations of it, and the ai package see it.
//
//   BASE_URL=http://127.0.0.1:8080 node --test test-embeddings.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import OpenAI7 from "openai-7";
import { embed, embedMany } from "ai";
import { createOpenAI } from "@ai-sdk/openai";

const baseURL = `${process.env.BASE_URL}/v1`;
const apiKey = "none";
const model = (await new OpenAI({ baseURL, apiKey }).models.list()).data[0].id;

for (const [generation, Client] of [["6", OpenAI], ["7", OpenAI7]]) test(`openai ${generation}`, async () => {
  const client = new Client({ baseURL, apiKey });
  const packed = await client.embeddings.create({ model, input: ["One.", "Two."] });
  const plain = await client.embeddings.create({ model, input: ["One.", "Two."], encoding_format: "float" });
  assert.deepEqual(packed.data.map((e) => e.index), [0, 1]);
  packed.data.forEach((e, i) => e.embedding.forEach((x, k) => assert.ok(Math.abs(x - plain.data[i].embedding[k]) < 1e-7)));
  await assert.rejects(client.embeddings.create({ model, input: "x", dimensions: 100000 }), { status: 400 });
});

test("ai", async () => {
  const embedder = createOpenAI({ baseURL, apiKey }).embedding(model);
  const one = await embed({ model: embedder, value: "One." });
  const many = await embedMany({ model: embedder, values: ["One.", "Two."] });
  assert.ok(one.usage.tokens > 0);
  assert.deepEqual(one.embedding, many.embeddings[0]);
});
