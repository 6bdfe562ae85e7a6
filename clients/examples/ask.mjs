// SPDX-License-Identifier: Apache-2.0
// One question from JavaScript with the stock SDK, the answer as it streams.
//
//   npm install @anthropic-ai/sdk
//   node ask.mjs [QUESTION]        BATON_URL (http://127.0.0.1:8080) and BATON_API_KEY from the environment
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: process.env.BATON_URL ?? "http://127.0.0.1:8080",
  apiKey: process.env.BATON_API_KEY ?? "none",
});
const models = await client.models.list();
const stream = client.messages.stream({
  model: models.data[0].id,
  max_tokens: 256,
  temperature: 0,
  messages: [{ role: "user", content: process.argv[2] ?? "What is a hand-off?" }],
});
stream.on("text", (piece) => process.stdout.write(piece));
await stream.finalMessage();
process.stdout.write("\n");
