// SPDX-License-Identifier: Apache-2.0
// The same through the OpenAI-compatible route, with that SDK.
//
//   npm install openai
//   node openai.mjs [QUESTION]     BATON_URL (http://127.0.0.1:8080) and BATON_API_KEY from the environment
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: (process.env.BATON_URL ?? "http://127.0.0.1:8080") + "/v1",
  apiKey: process.env.BATON_API_KEY ?? "none",
});
const models = await client.models.list();
const stream = await client.chat.completions.create({
  model: models.data[0].id,
  max_completion_tokens: 256,
  temperature: 0,
  stream: true,
  messages: [{ role: "user", content: process.argv[2] ?? "What is a hand-off?" }],
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
process.stdout.write("\n");
