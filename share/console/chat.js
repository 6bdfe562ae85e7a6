// SPDX-License-Identifier: Apache-2.0
// The chat, on http.listen.  A turn is {role: "user", content} or {role: "assistant", content: blocks, ...}; turns are what
// the next request sends.  Editing a question drops the turns after it.
"use strict";

const chat = { turns: [], models: [], running: null };

function chatSettings() {
  const value = (id) => byId(id).value.trim();
  const settings = { model: value("model"), max_tokens: Number(value("max-tokens")) || 1024, stream: true };
  if (value("temperature") !== "") settings.temperature = Number(value("temperature"));
  if (value("system")) settings.system = value("system");
  if (Number(value("budget")) > 0) settings.thinking = { type: "enabled", budget_tokens: Number(value("budget")) };
  if (value("tools")) settings.tools = JSON.parse(value("tools"));
  return settings;
}

// The turns as the API wants them: without what only the page needs.
function chatMessages() {
  return chat.turns.filter((turn) => turn.content.length > 0)
    .map((turn) => ({ role: turn.role, content: turn.content }));
}

// ---- the relay of an answer: one bar ----

// What the answer waited for, one after the other, in milliseconds.  The transfer runs beside the prefill; the part of it
// that the answer waited for has its own segment.
function relayParts(serving) {
  const parts = [
    ["queue", serving.queue_ms, "router"],
    ["prefill", serving.prefill_ms, serving.prefill || serving.decode],
    ["transfer", serving.exposed_ms, serving.transport],
    ["decode", serving.decode_ms, serving.decode],
  ];
  return parts.map(([name, ms, who]) => ({ name, ms: Math.max(0, ms || 0), who: who || "" }));
}

function relayBar(serving) {
  const parts = relayParts(serving);
  const total = parts.reduce((sum, part) => sum + part.ms, 0) || 1;
  const bar = h("div", { class: "relay", role: "img", "aria-label": parts.map((p) => p.name + " " + timeText(p.ms)).join(", ") });
  const legend = h("div", { class: "legend" });
  for (const part of parts) {
    const segment = h("span", { class: "seg " + part.name, title: `${part.name}: ${timeText(part.ms)} ${part.who}` });
    segment.style.width = (100 * part.ms / total).toFixed(3) + "%";
    if (part.ms > 0) bar.append(segment);
    legend.append(h("span", {}, h("i", { class: part.name }), `${part.name} ${timeText(part.ms)}`,
      part.who && part.ms > 0 ? h("small", {}, " " + part.who) : null));
  }
  const moved = serving.transferred > 0
    ? `hand-off: ${count(serving.transferred)} tokens by ${serving.transport || "?"} in ${timeText(serving.transfer_ms)}` : "one worker, no hand-off";
  const facts = [`first token ${timeText(serving.ttft_ms)}`, `total ${timeText(serving.total_ms)}`,
    `prompt ${count(serving.prompt)}: ${count(serving.computed)} computed, ${count(serving.reused)} cached`, moved,
    `${count(serving.drawn)} tokens`];
  if (serving.redispatched > 0) facts.push(`moved to another worker ${serving.redispatched} times`);
  if (serving.accepted > 0) facts.push(`${serving.accepted} of ${serving.drafted} draft tokens accepted`);
  return h("div", { class: "serving" }, bar, legend, h("div", { class: "facts" }, facts.join(" · ")));
}

// ---- turns ----

function blockView(block) {
  if (block.type === "text") return h("div", { class: "text" }, block.text);
  if (block.type === "thinking")
    return h("details", { class: "thinking", open: true }, h("summary", {}, "Thinking"), h("div", { class: "text" }, block.thinking));
  if (block.type === "tool_use")
    return h("div", { class: "tool" }, h("b", {}, block.name), h("pre", {}, block.json || JSON.stringify(block.input, null, 1)));
  if (block.type === "tool_result")
    return h("div", { class: "tool" }, h("b", {}, "result"), h("pre", {}, String(block.content)));
  return h("pre", {}, JSON.stringify(block));
}

// Shows more of a block that is being streamed: appends to its text node, whatever the answer's length.
function blockGrow(view, block, text) {
  const target = block.type === "tool_use" ? view.querySelector("pre") : block.type === "thinking" ? view.querySelector(".text") : view;
  target.append(text);
}

function userView(turn) {
  const view = h("article", { class: "user" });
  if (typeof turn.content !== "string") {
    view.append(...turn.content.map(blockView));
    return view;
  }
  view.append(h("div", { class: "text" }, turn.content),
    h("button", { type: "button", class: "quiet edit", onclick: () => editTurn(turn), title: "Edit and send again" }, "Edit"));
  return view;
}

function editTurn(turn) {
  if (chat.running) return;
  const area = h("textarea", { rows: "3", "aria-label": "Edit the question" });
  area.value = turn.content;
  const cancel = () => turn.view.replaceWith(turn.view = userView(turn));
  const send = () => {
    const at = chat.turns.indexOf(turn);
    if (!area.value.trim() || chat.running) return;
    for (const old of chat.turns.splice(at)) old.view.remove();
    submitTurn(area.value);
  };
  area.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    if (event.key === "Escape") { event.stopPropagation(); cancel(); }
  };
  turn.view.replaceChildren(area, h("div", { class: "row" },
    h("button", { type: "button", class: "resend", onclick: send }, "Send again"),
    h("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel")));
  area.focus();
}

// A form for the results of the calls that an answer ends with.
function resultForm(turn) {
  const calls = turn.content.filter((block) => block.type === "tool_use");
  const areas = calls.map(() => h("textarea", { rows: "2", required: true }));
  const form = h("form", { class: "results" });
  calls.forEach((call, i) => form.append(h("label", {}, "Result of " + call.name, areas[i])));
  form.append(h("button", { type: "submit" }, "Send results"));
  form.onsubmit = (event) => {
    event.preventDefault();
    if (chat.running) return;
    form.remove();
    submitTurn(calls.map((call, i) => ({ type: "tool_result", tool_use_id: call.id, content: areas[i].value })));
  };
  return form;
}

// ---- an answer ----

function atEnd(log) {
  return log.scrollHeight - log.scrollTop - log.clientHeight < 40;
}

// Gathers deltas and shows them once per frame.
class AnswerView {
  constructor(turn) {
    this.turn = turn;
    this.views = [];
    this.pending = [];
    this.isDue = false;
    this.log = byId("log");
  }
  open(index, block) {
    if (block.type === "tool_use") block.json = "";
    this.turn.content[index] = block;
    this.views[index] = blockView(block);
    this.turn.view.append(this.views[index]);
  }
  grow(index, delta) {
    const block = this.turn.content[index];
    if (delta.type === "signature_delta") { block.signature = (block.signature || "") + delta.signature; return; }
    const field = { text_delta: "text", thinking_delta: "thinking", input_json_delta: "json" }[delta.type];
    const text = delta.text || delta.thinking || delta.partial_json || "";
    if (!field || !text) return;
    block[field] += text;
    this.pending.push([index, text]);
    if (!this.isDue) requestAnimationFrame(() => this.show());
    this.isDue = true;
  }
  show() {
    const follows = atEnd(this.log);
    this.isDue = false;
    for (const [index, text] of this.pending.splice(0)) blockGrow(this.views[index], this.turn.content[index], text);
    if (follows) this.log.scrollTop = this.log.scrollHeight;
  }
  end(index) {
    const block = this.turn.content[index];
    if (block && block.type === "tool_use") {
      try { block.input = JSON.parse(block.json || "{}"); } catch (e) { block.input = {}; }
      delete block.json;
    }
  }
  on(event) {
    const data = JSON.parse(event.data);
    if (data.type === "content_block_start") this.open(data.index, data.content_block);
    else if (data.type === "content_block_delta") this.grow(data.index, data.delta);
    else if (data.type === "content_block_stop") this.end(data.index);
    else if (data.type === "error") throw new RequestError(200, data.error.message);
    else if (data.type === "message_delta") {
      this.turn.stop = data.delta.stop_reason;
      this.turn.serving = data.usage && data.usage.baton;
    }
  }
}

async function streamAnswer(turn, body, signal) {
  const response = await ask("/v1/messages", {
    method: "POST", body: JSON.stringify(body), signal,
    headers: { "content-type": "application/json", "baton-proof": "stream" },
  });
  turn.request = response.headers.get("request-id") || "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  const view = new AnswerView(turn);
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      for (const event of events.feed(value)) view.on(event);
    }
  } finally {
    view.show();
  }
}

// Ends a turn that was stopped or failed, so that the next request can send it.
function closeTurn(turn) {
  turn.content = turn.content.filter((block) => block && (block.type === "text" ? block.text !== ""
    : block.type === "tool_use" ? block.input !== undefined && block.json === undefined
      : block.type !== "thinking" || block.signature));
}

async function submitTurn(content) {
  const question = { role: "user", content };
  let body;
  try {
    body = chatSettings();
  } catch (e) {
    setText(byId("fault"), "Tools: this is not JSON: " + e.message);
    return;
  }
  const answer = { role: "assistant", content: [], view: h("article", { class: "assistant" }) };
  question.view = userView(question);
  chat.turns.push(question);
  body.messages = chatMessages();
  chat.turns.push(answer);
  byId("log").append(question.view, answer.view);
  byId("log").scrollTop = byId("log").scrollHeight;
  setText(byId("fault"), "");
  setRunning(new AbortController());
  try {
    await streamAnswer(answer, body, chat.running.signal);
  } catch (e) {
    answer.view.append(h("p", { class: "note" }, e.name === "AbortError" ? "Stopped." : "Error: " + e.message));
    answer.stop = "";
  }
  setRunning(null);
  closeTurn(answer);
  showEnd(answer);
}

function showEnd(answer) {
  const follows = atEnd(byId("log"));
  if (answer.stop && answer.stop !== "end_turn") answer.view.append(h("p", { class: "note" }, "Ended by: " + answer.stop));
  if (answer.serving) answer.view.append(relayBar(answer.serving));
  if (answer.request) answer.view.append(h("p", { class: "request" }, answer.request));
  if (answer.stop === "tool_use") answer.view.append(resultForm(answer));
  if (follows) byId("log").scrollTop = byId("log").scrollHeight;
  byId("log").dataset.answers = String(Number(byId("log").dataset.answers || 0) + 1);
}

function setRunning(controller) {
  chat.running = controller;
  byId("send").hidden = controller !== null;
  byId("stop").hidden = controller === null;
}

// ---- the page ----

function chatForm() {
  const field = (label, id, props) => h("label", {}, label, h("input", { id, ...props }));
  return h("details", { id: "settings" }, h("summary", {}, "Settings"), h("div", { class: "fields" },
    h("label", {}, "Model", h("select", { id: "model" }, ...chat.models.map((m) => h("option", { value: m.id }, m.id)))),
    field("Most tokens", "max-tokens", { type: "number", min: "1", value: "1024" }),
    field("Temperature", "temperature", { type: "number", min: "0", max: "1", step: "0.1" }),
    field("Thinking tokens (0: off)", "budget", { type: "number", min: "0", value: "0" }),
    h("label", { class: "wide" }, "System", h("textarea", { id: "system", rows: "2" })),
    h("label", { class: "wide" }, "Tools (JSON list)", h("textarea", { id: "tools", rows: "2", spellcheck: "false" }))));
}

function newChat() {
  if (chat.running) chat.running.abort();
  for (const turn of chat.turns.splice(0)) turn.view.remove();
  byId("log").replaceChildren();
  byId("question").focus();
}

function showChat() {
  const question = h("textarea", { id: "question", rows: "2", placeholder: "Ask something", "aria-label": "Question" });
  const send = () => {
    if (!question.value.trim() || chat.running) return;
    const text = question.value;
    question.value = "";
    submitTurn(text);
  };
  question.onkeydown = (event) => {
    const last = chat.turns.findLast((turn) => turn.role === "user" && typeof turn.content === "string");
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    if (event.key === "ArrowUp" && !question.value && last) { event.preventDefault(); editTurn(last); }
  };
  byId("main").className = "chat";
  byId("main").replaceChildren(chatForm(), h("section", { id: "log", role: "log", tabindex: "0", "aria-label": "Conversation" }),
    h("p", { id: "fault", role: "alert" }),
    h("form", { id: "composer", onsubmit: (event) => { event.preventDefault(); send(); } }, question,
      h("button", { id: "send", type: "submit", title: "Enter" }, "Send"),
      h("button", { id: "stop", type: "button", title: "Escape", hidden: true, onclick: () => chat.running.abort() }, "Stop")));
  byId("header-tools").append(h("button", { type: "button", onclick: newChat, title: "Alt+N" }, "New chat"));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chat.running) chat.running.abort();
    if (event.altKey && event.key === "n") { event.preventDefault(); newChat(); }
  });
  question.focus();
}

async function beginChat() {
  const list = async () => (await (await ask("/v1/models?limit=1000")).json()).data;
  setText(byId("place"), "chat");
  try {
    chat.models = await list();
  } catch (e) {
    if (e.status !== 401) {
      setText(byId("main"), e.message + " (trying again)");
      setTimeout(beginChat, 2000);
      return;
    }
    key.set("");
    chat.models = await askKey("API key", "The key stays in this tab until it is closed.", list);
  }
  showChat();
}
