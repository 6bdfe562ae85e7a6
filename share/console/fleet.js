// SPDX-License-Identifier: Apache-2.0
// The fleet, on http.admin: the status and the latest placements, read once a second while the page is visible.  A table
// row is made once for each worker and then changed cell by cell.
"use strict";

const fleet = {
  rows: new Map(), // node -> its table row and cells
  counted: new Set(), // numbers of placements whose end was counted
  classes: new Map(), // class -> [{met, all}] for each second
  hits: [], // {cached, all} tokens for each second
  filter: "", isDraining: false, router: "",
};
const FLEET_SECONDS = 300, FLEET_LANES = 40, FLEET_LANE_ROWS = 12, FLEET_FRAME_ROWS = 64;

const nextFrame = () => new Promise((next) => requestAnimationFrame(next));

function svg(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---- workers ----

function workerState(worker) {
  if (!worker.up) return ["link down", "state-bad"];
  if (worker.unfit) return ["unfit", "state-bad"];
  if (worker.draining) return ["draining", "state-soft"];
  return worker.usable ? ["serving", ""] : ["not usable", "state-bad"];
}

async function orderRole(node, role) {
  if (!confirm(`Make ${node} a ${role} worker?`)) return;
  try {
    await ask(`/admin/role/${role}/${encodeURIComponent(node)}`, { method: "POST" });
    setText(byId("fault"), "");
  } catch (e) {
    setText(byId("fault"), `${node}: ${e.message}`);
  }
}

function workerRow(node) {
  const row = { cells: {}, view: h("tr", { "data-node": node }, h("th", { scope: "row" }, node)) };
  for (const name of ["role", "model", "state"]) row.view.append(row.cells[name] = h("td", {}));
  row.fill = h("i", {});
  row.cells.kv = h("span", {});
  row.view.append(h("td", {}, h("span", { class: "meter" }, row.fill), " ", row.cells.kv));
  for (const name of ["running", "waiting", "inflight", "prefill", "step", "disk", "rtt"])
    row.view.append(row.cells[name] = h("td", { class: "n" }));
  row.view.append(h("td", {}, ...["prefill", "decode", "both"].map((role) =>
    h("button", { type: "button", class: "quiet", "data-role": role, title: `Make ${node} a ${role} worker`, onclick: () => orderRole(node, role) }, role))));
  return row;
}

function updateWorker(row, worker) {
  const used = worker.blocks_total > 0 ? 1 - worker.blocks_free / worker.blocks_total : 0;
  const [state, look] = workerState(worker);
  const texts = {
    role: worker.role, model: worker.model, state, kv: (100 * used).toFixed(0) + " %",
    running: count(worker.running), waiting: count(worker.waiting), inflight: count(worker.inflight),
    prefill: count(worker.prefill_tokens_per_s), step: worker.decode_step_ms.toFixed(2), disk: count(worker.blocks_on_disk),
    rtt: count(worker.rtt_us),
  };
  for (const [name, text] of Object.entries(texts)) setText(row.cells[name], text);
  if (row.cells.state.className !== look) row.cells.state.className = look;
  const scale = `scaleX(${used.toFixed(3)})`;
  if (row.fill.style.transform !== scale) row.fill.style.transform = scale;
  row.view.hidden = fleet.filter !== "" && !`${worker.node} ${worker.role} ${worker.model} ${state}`.includes(fleet.filter);
}

// Draws FLEET_FRAME_ROWS rows in each frame, so that the page stays smooth with hundreds of workers.
async function updateWorkers(workers) {
  const seen = new Set();
  const body = byId("workers");
  for (const worker of workers) {
    if (seen.size > 0 && seen.size % FLEET_FRAME_ROWS === 0) await nextFrame();
    seen.add(worker.node);
    if (!fleet.rows.has(worker.node)) {
      const row = workerRow(worker.node);
      fleet.rows.set(worker.node, row);
      const next = [...body.children].find((other) => other.dataset.node > worker.node);
      body.insertBefore(row.view, next || null);
    }
    updateWorker(fleet.rows.get(worker.node), worker);
  }
  for (const [node, row] of fleet.rows) {
    if (seen.has(node)) continue;
    row.view.remove();
    fleet.rows.delete(node);
  }
}

// ---- hand-offs as lines from prefill to decode workers ----

function lanesOf(placements) {
  const lanes = new Map();
  for (const p of placements) {
    if (!p.prefill || !p.decode) continue;
    const lane = lanes.get(p.prefill + " " + p.decode) || { from: p.prefill, to: p.decode, bytes: 0, n: 0 };
    lane.bytes += p.transfer_bytes;
    lane.n++;
    lanes.set(p.prefill + " " + p.decode, lane);
  }
  return [...lanes.values()].sort((a, b) => b.bytes - a.bytes).slice(0, FLEET_LANES);
}

function drawLanes(placements) {
  const lanes = lanesOf(placements);
  const pick = (side) => [...new Set(lanes.map((lane) => lane[side]))].slice(0, FLEET_LANE_ROWS);
  const from = pick("from"), to = pick("to");
  const shown = lanes.filter((lane) => from.includes(lane.from) && to.includes(lane.to));
  const digest = JSON.stringify(shown);
  const map = byId("lanes");
  if (map.dataset.digest === digest) return;
  map.dataset.digest = digest;
  const y = (list, node) => 18 + list.indexOf(node) * 22;
  const most = Math.max(1, ...shown.map((lane) => lane.bytes));
  const picture = svg("svg", { viewBox: `0 0 480 ${Math.max(40, 22 * Math.max(from.length, to.length) + 14)}`, role: "img" });
  for (const lane of shown) {
    const y1 = y(from, lane.from) - 4, y2 = y(to, lane.to) - 4;
    picture.append(svg("path", { class: "lane", d: `M130 ${y1} C 240 ${y1}, 240 ${y2}, 350 ${y2}`, "stroke-width": (1.5 + 4 * lane.bytes / most).toFixed(1) },
      svg("title", {}, `${lane.from} to ${lane.to}: ${lane.n} hand-offs, ${byteText(lane.bytes)}`)));
  }
  const sum = (side, node) => byteText(shown.reduce((n, lane) => n + (lane[side] === node ? lane.bytes : 0), 0));
  for (const node of from) picture.append(svg("text", { x: 124, y: y(from, node), "text-anchor": "end" }, `${node.slice(-16)}`));
  for (const node of to) picture.append(svg("text", { x: 356, y: y(to, node) }, `${node.slice(-16)}  ${sum("to", node)}`));
  map.replaceChildren(shown.length > 0 ? picture : h("p", { class: "note" }, "No hand-off among the latest placements."));
}

// ---- objectives and cache, over time ----

function pushSample(list, sample) {
  list.push(sample);
  if (list.length > FLEET_SECONDS) list.shift();
}

// Counts each placement once, when it is over.
function countPlacements(placements) {
  const byClass = new Map([...fleet.classes.keys()].map((name) => [name, { met: 0, all: 0 }]));
  const hit = { cached: 0, all: 0 };
  for (const p of placements) {
    if (!p.over || fleet.counted.has(p.number)) continue;
    const sample = byClass.get(p.class) || { met: 0, all: 0 };
    fleet.counted.add(p.number);
    byClass.set(p.class, sample);
    sample.all++;
    sample.met += !p.refused && !p.failed && p.first_ms > 0 && p.first_ms <= p.ttft_slo_ms;
    if (p.refused) continue;
    hit.all += p.prompt_tokens;
    hit.cached += p.prompt_tokens - p.uncached_tokens;
  }
  const oldest = placements.length > 0 ? placements[placements.length - 1].number : 0;
  for (const number of fleet.counted) if (number < oldest) fleet.counted.delete(number);
  for (const [name, sample] of byClass) {
    if (!fleet.classes.has(name)) fleet.classes.set(name, []);
    pushSample(fleet.classes.get(name), sample);
  }
  pushSample(fleet.hits, hit);
}

// A line of shares over time; seconds without a sample leave the line where it is.
function sparkline(samples, part) {
  let last = null;
  const points = [];
  samples.forEach((sample, i) => {
    if (sample.all > 0) last = sample[part] / sample.all;
    if (last !== null) points.push(`${(i * 300 / FLEET_SECONDS).toFixed(1)},${(38 - 36 * last).toFixed(1)}`);
  });
  return svg("svg", { viewBox: "0 0 300 40", height: "40", preserveAspectRatio: "none" }, svg("polyline", { class: "spark", points: points.join(" ") }));
}

function share(samples, part) {
  const all = samples.reduce((n, sample) => n + sample.all, 0);
  return all === 0 ? "-" : (100 * samples.reduce((n, sample) => n + sample[part], 0) / all).toFixed(1) + " %";
}

function drawShares() {
  const views = [...fleet.classes].slice(0, 8).map(([name, samples]) => h("div", {},
    h("div", { class: "row" }, h("b", {}, name || "default"), `${share(samples, "met")} of first tokens in time`), sparkline(samples, "met")));
  views.push(h("div", {}, h("div", { class: "row" }, h("b", {}, "prefix cache"), `${share(fleet.hits, "cached")} of prompt tokens cached`), sparkline(fleet.hits, "cached")));
  byId("shares").replaceChildren(...views);
}

// ---- placements: why there? ----

function candidateTable(decision) {
  const head = ["node", "role", "cached tokens", "running", "queue", "prompt", "transfer", "gap between tokens", "cost", "why not"];
  const body = decision.candidates.map((c) => h("tr", { class: c.chosen ? "chosen" : "" }, h("td", {}, (c.chosen ? "▸ " : "") + c.node), h("td", {}, c.role),
    ...(c.why_not ? [h("td", { colspan: "7" })] : [h("td", { class: "n" }, count(c.cached_tokens)), h("td", { class: "n" }, count(c.running)),
      ...["queue_ms", "prompt_ms", "transfer_ms", "itl_ms", "cost_ms"].map((name) => h("td", { class: "n" }, timeText(c[name])))]),
    h("td", {}, c.why_not)));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head.map((text) => h("th", {}, text)))), h("tbody", {}, ...body)));
}

async function explain(request) {
  try {
    const answer = await (await ask("/admin/request/" + encodeURIComponent(request))).json();
    openDialog(h("h2", {}, "Why there? "), h("p", { class: "request" }, request), ...answer.decisions.flatMap((d) => [
      h("p", {}, d.refused ? `Refused: ${d.refused}.` : `Expected first token after ${timeText(d.ttft_ms)} (objective ${timeText(d.ttft_slo_ms)}), a token every ${timeText(d.itl_ms)} ` +
        `(objective ${timeText(d.itl_slo_ms)}); ${count(d.uncached_tokens)} of ${count(d.prompt_tokens)} prompt tokens to compute. ` +
        `It came after ${d.over ? timeText(d.first_us / 1e3) : "-"}.`),
      h("p", { class: "note" }, `${d.looked_at} of ${d.known_workers} workers were estimated; the best are listed.`), candidateTable(d)]));
  } catch (e) {
    setText(byId("fault"), e.message);
  }
}

function placementRow(p) {
  const where = p.refused ? "refused: " + p.refused : p.prefill ? `${p.prefill} → ${p.decode}` : p.decode;
  const open = () => explain(p.request);
  return h("tr", { tabindex: "0", title: "Why there?", onclick: open, onkeydown: (event) => event.key === "Enter" && open() },
    h("td", {}, p.when.slice(11, 19)), h("td", { class: p.refused || p.failed ? "state-bad" : "" }, where), h("td", {}, p.class),
    h("td", { class: "n" }, count(p.prompt_tokens)), h("td", { class: "n" }, count(p.prompt_tokens - p.uncached_tokens)),
    h("td", { class: "n" }, timeText(p.expected_ttft_ms)), h("td", { class: "n" }, p.first_ms > 0 ? timeText(p.first_ms) : "-"),
    h("td", { class: "n" }, p.transfer_bytes > 0 ? byteText(p.transfer_bytes) : ""));
}

function drawPlacements(placements) {
  const body = byId("placements");
  const known = new Map([...body.children].map((row) => [row.dataset.digest, row]));
  const isHeld = body.contains(document.activeElement);
  const rows = placements.map((p) => {
    const digest = `${p.number} ${p.over} ${p.transfer_bytes}`;
    const row = known.get(digest) || placementRow(p);
    row.dataset.digest = digest;
    return row;
  });
  if (!isHeld && rows.some((row, i) => body.children[i] !== row)) body.replaceChildren(...rows);
}

// ---- the page ----

async function drainRouter() {
  const verb = fleet.isDraining ? "undrain" : "drain";
  if (!confirm(verb === "drain" ? `Drain ${fleet.router}? It reports not ready; running answers continue.` : `Let ${fleet.router} take requests again?`)) return;
  try {
    await ask("/admin/" + verb, { method: "POST" });
  } catch (e) {
    setText(byId("fault"), e.message);
  }
}

function showFleet() {
  const tiles = ["workers", "running", "waiting", "queued", "paused", "handed off", "on one worker", "moved", "blocks known", "on disk only"];
  // A name with a # heads a column of numbers.
  const table = (id, head) => h("div", { class: "scroll" }, h("table", { class: "long " + id }, h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col", class: text.startsWith("#") ? "n" : "" }, text.replace("#", ""))))), h("tbody", { id })));
  byId("main").className = "fleet";
  byId("main").replaceChildren(h("p", { id: "fault", role: "alert" }),
    h("section", { class: "tiles" }, ...tiles.map((name) => h("div", { class: "tile" }, h("span", {}, name), h("b", { "data-tile": name }, "-")))),
    h("section", { class: "panel" }, h("div", { class: "row" }, h("h2", {}, "Workers"), h("span", { class: "gap" }),
      h("input", { id: "filter", type: "search", placeholder: "Filter ( / )", "aria-label": "Filter workers", oninput: (event) => { fleet.filter = event.target.value.trim(); } })),
    table("workers", ["node", "role", "model", "state", "KV memory", "#running", "#waiting", "#in flight", "#prefill tok/s", "#step ms", "#on disk", "#RTT µs", "make it"])),
    h("div", { class: "columns" }, h("section", { class: "panel" }, h("h2", {}, "Hand-offs of the latest placements"), h("div", { id: "lanes" })),
      h("section", { class: "panel" }, h("h2", {}, "Objectives and cache, last 5 minutes"), h("div", { id: "shares" }))),
    h("section", { class: "panel" }, h("h2", {}, "Placements: select one to see why"), table("placements", ["time", "where", "class", "#prompt", "#cached", "#expected", "#first token", "#hand-off"])));
  byId("header-tools").append(h("button", { id: "drain", type: "button", onclick: drainRouter }, "Drain"));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.tagName === "INPUT") return;
    event.preventDefault();
    byId("filter").focus();
  });
}

async function drawStatus(status) {
  const sum = (name) => status.workers.reduce((n, worker) => n + worker[name], 0);
  const usable = status.workers.filter((worker) => worker.usable).length;
  const tiles = {
    workers: `${usable}/${status.workers.length}`, running: count(sum("running")), waiting: count(sum("waiting")), queued: count(status.queued),
    paused: count(status.paused), "handed off": count(status.handed_off), "on one worker": count(status.local), moved: count(status.redispatched),
    "blocks known": count(status.indexed_blocks), "on disk only": count(status.indexed_on_disk_only),
  };
  fleet.isDraining = status.draining;
  fleet.router = status.node;
  setText(byId("place"), "fleet of " + status.node + (status.draining ? " (draining)" : ""));
  setText(byId("drain"), status.draining ? "Undrain" : "Drain");
  for (const tile of document.querySelectorAll("[data-tile]")) setText(tile, tiles[tile.dataset.tile]);
  await updateWorkers(status.workers);
}

function drawLatest(placements) {
  countPlacements(placements);
  drawLanes(placements);
  drawShares();
  drawPlacements(placements);
}

async function readFleet() {
  const [status, list] = await Promise.all(["/admin/status", "/admin/placements"].map(async (path) => (await ask(path)).json()));
  return [status, list.placements];
}

function clearReadFault() {
  if (byId("fault").dataset.kind === "read") setText(byId("fault"), "");
  byId("fault").dataset.kind = "";
}

async function drawEvent(event) {
  const value = JSON.parse(event.data);
  if (event.name === "status") await drawStatus(value);
  if (event.name === "placements") drawLatest(value.placements);
  clearReadFault();
  await nextFrame(); // each event has frames of its own
}

// Reads the router's events while the page is visible, until the stream ends.
async function readEvents() {
  const stop = new AbortController();
  const onHidden = () => { if (document.hidden) stop.abort(); };
  document.addEventListener("visibilitychange", onHidden);
  try {
    const response = await ask("/admin/events", { signal: stop.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      for (const event of events.feed(value)) await drawEvent(event);
    }
  } catch (e) {
    if (e.name !== "AbortError") throw e;
  } finally {
    document.removeEventListener("visibilitychange", onHidden);
  }
}

const untilVisible = () => new Promise((done) => {
  const look = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", look); done(); } };
  document.addEventListener("visibilitychange", look);
  look();
});

async function followFleet() {
  for (;;) {
    await untilVisible();
    try {
      await readEvents();
    } catch (e) {
      setText(byId("fault"), "The router does not answer: " + e.message);
      byId("fault").dataset.kind = "read";
      if (e.status === 401) { key.set(""); location.reload(); return; }
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

async function beginFleet() {
  setText(byId("place"), "fleet");
  try {
    if (!key.get()) throw new RequestError(401, "");
    await readFleet();
  } catch (e) {
    key.set("");
    await askKey("Admin token", "`batonctl admin-token` prints it, on a host that has the cluster's key.  It stays in this tab until it is closed.", readFleet);
  }
  showFleet();
  followFleet();
}
