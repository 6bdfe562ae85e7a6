// SPDX-License-Identifier: Apache-2.0
// An agent with the stock SDK's tool runner: it finds, reads, edits and tests in a scratch repository.
//
//   npm install @anthropic-ai/sdk
//   node agent.mjs [--turns N]     BATON_URL (http://127.0.0.1:8080) and BATON_API_KEY from the environment
//
// One conversation of several tasks; every request carries all of it, and what the server has computed comes from its prefix cache: the
// last column says how much.  Each line of the repository is "name = number", its tests hold the lines to that form.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { mkdtemp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

const client = new Anthropic({
  baseURL: process.env.BATON_URL ?? "http://127.0.0.1:8080",
  apiKey: process.env.BATON_API_KEY ?? "none",
});
const wanted = process.argv[2] === "--turns" ? Number(process.argv[3]) : 20;

// ---- the repository ----

const root = await mkdtemp(path.join(tmpdir(), "baton-agent-"));
const files = {
  "conf/limits.conf": "queue_limit = 512\nbatch_limit = 64\n",
  "conf/router.conf": "listen_port = 8080\nretry_count = 3\n",
  "src/timer.c": "timer_ticks = 250\nidle_timeout = 60\n",
  "src/queue.c": "queue_depth = 128\n",
  "src/core/pool.c": "block_size = 32\n",
};
for (const [name, text] of Object.entries(files)) {
  await mkdir(path.dirname(path.join(root, name)), { recursive: true });
  await writeFile(path.join(root, name), text);
}

const inside = (name) => {
  const full = path.resolve(root, name);
  if (full !== root && !full.startsWith(root + path.sep)) throw new Error("outside of the repository");
  return full;
};
const tree = async () => {
  const all = await readdir(root, { recursive: true, withFileTypes: true });
  return all.filter((e) => e.isFile()).map((e) => path.relative(root, path.join(e.path, e.name))).sort();
};
const lines = async () => {
  const out = [];
  for (const name of await tree())
    (await readFile(path.join(root, name), "utf8")).trimEnd().split("\n").forEach((text, i) => out.push({ name, n: i + 1, text }));
  return out;
};

// ---- its tools ----

const text = (description) => ({ type: "string", description });
const tool = (name, description, properties, run) =>
  betaTool({
    name,
    description,
    inputSchema: { type: "object", properties, required: Object.keys(properties) },
    run: async (input) => {
      let result;
      try {
        result = await run(input);
      } catch (e) {
        result = `error: ${e.code === "ENOENT" ? "no such file" : e.message}`;
      }
      console.log(`  > ${name} ${JSON.stringify(input)}\n  < ${result.split("\n")[0]}`);
      return result;
    },
  });
const tools = [
  tool("grep", "Search the code", { pattern: text("What to look for") }, async ({ pattern }) => {
    const found = (await lines()).filter((l) => l.text.includes(pattern));
    return found.map((l) => `${l.name}:${l.n}: ${l.text}`).join("\n") || "no matches";
  }),
  tool("read_file", "Read a file", { path: text("Path of the file") }, async (input) =>
    (await readFile(inside(input.path), "utf8")).trimEnd()),
  tool("edit_file", "Replace text in a file",
    { path: text("Path of the file"), old_text: text("Text to replace"), new_text: text("New text") },
    async (input) => {
      const before = await readFile(inside(input.path), "utf8");
      if (!input.old_text || !before.includes(input.old_text)) return "error: old text not found";
      await writeFile(inside(input.path), before.replaceAll(input.old_text, input.new_text));
      return "ok";
    }),
  tool("run_tests", "Run the tests", {}, async () => {
    const all = await lines();
    const bad = all.filter((l) => !/^\w+ = \d+$/.test(l.text));
    return [`${all.length - bad.length} passed, ${bad.length} failed`, ...bad.map((l) => `FAIL ${l.name}:${l.n}: ${l.text}`)].join("\n");
  }),
];

// ---- the work ----

const tasks = [["queue_limit", 1024], ["retry_count", 7], ["queue_depth", 256], ["idle_timeout", 90], ["block_size", 64],
  ["batch_limit", 16], ["timer_ticks", 500], ["listen_port", 9090]];
const model = (await client.models.list()).data[0].id;
let messages = [];
let turns = 0;
let done = 0;
for (const [name, value] of tasks) {
  if (turns >= wanted) break;
  const ask = `Change ${name} to ${value} and run the tests.`;
  console.log(ask);
  const runner = client.beta.messages.toolRunner({
    model,
    max_tokens: 300,
    temperature: 0,
    max_iterations: 8,
    tools,
    messages: [...messages, { role: "user", content: ask }],
  });
  for await (const message of runner) {
    const { input_tokens, cache_read_input_tokens } = message.usage;
    console.log(`turn ${++turns}: ${message.stop_reason}, prompt ${input_tokens + cache_read_input_tokens} tokens, ` +
      `${cache_read_input_tokens} of them read from the cache`);
    for (const block of message.content) if (block.type === "text") console.log(`  ${block.text.trim()}`);
  }
  messages = [...runner.params.messages];
  if (messages.at(-1).role !== "assistant") messages.push({ role: "assistant", content: "I stop here." });
  done += (await lines()).some((l) => l.text === `${name} = ${value}`) ? 1 : 0;
}
const broken = (await lines()).filter((l) => !/^\w+ = \d+$/.test(l.text)).length;
console.log(`${turns} turns; ${done} values changed as asked, ${broken} lines broken`);
await rm(root, { recursive: true });
process.exit(turns >= wanted ? 0 : 1);
