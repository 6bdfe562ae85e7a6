// SPDX-License-Identifier: Apache-2.0
// What both views use: elements, the key, requests, server-sent events.  Text reaches the page as text only, never as HTML.
"use strict";

// Makes an element: h("td", {class: "n", onclick: f}, "text", child).
function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);

// Writes a text only if it differs, so that the browser lays out what has changed and nothing else.
function setText(element, text) {
  if (element.firstChild === null || element.textContent !== text) element.textContent = text;
}

function count(n) {
  if (!Number.isFinite(n)) return "-";
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (Math.abs(n) >= limit) return (n / (unit === "k" ? 1e3 : limit)).toFixed(1) + " " + unit;
  return Number.isInteger(n) ? String(n) : n.toFixed(1);
}

function byteText(n) {
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (n >= size) return (n / size).toFixed(1) + " " + unit;
  return n + " B";
}

function timeText(ms) {
  if (!Number.isFinite(ms)) return "-";
  return ms >= 1e4 ? (ms / 1e3).toFixed(1) + " s" : ms >= 10 ? ms.toFixed(0) + " ms" : ms.toFixed(2) + " ms";
}

// ---- the key: of this tab, until it is closed ----

const key = {
  get: () => sessionStorage.getItem("baton.key") || "",
  set(value) {
    if (value) sessionStorage.setItem("baton.key", value);
    else sessionStorage.removeItem("baton.key");
    byId("forget").hidden = !value;
  },
};

class RequestError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function faultOf(response) {
  let text = response.statusText;
  try {
    const body = await response.json();
    text = (body.error && body.error.message) || body.message || text;
  } catch (e) { /* the body is not JSON: the status line has to do */ }
  return new RequestError(response.status, text);
}

// Sends a request with the key; returns the response, or throws a RequestError.
async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (key.get()) headers.authorization = "Bearer " + key.get();
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (!response.ok) throw await faultOf(response);
  return response;
}

// Asks the person for a key until test() accepts it.
function askKey(label, hint, test) {
  const form = byId("ask-key");
  byId("main").hidden = true;
  form.hidden = false;
  setText(byId("key-label"), label);
  setText(byId("key-hint"), hint);
  byId("key").focus();
  return new Promise((done) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      key.set(byId("key").value.trim());
      setText(byId("key-fault"), "");
      try {
        const answer = await test();
        byId("key").value = "";
        form.hidden = true;
        byId("main").hidden = false;
        done(answer);
      } catch (e) {
        key.set("");
        setText(byId("key-fault"), e.message || String(e));
      }
    };
  });
}

// ---- server-sent events ----

// Collects text and returns the events that are complete: [{name, data}].  A half event waits for its end.
class EventReader {
  constructor() {
    this.rest = "";
  }
  feed(text) {
    const events = [];
    const lines = (this.rest + text).split("\n\n");
    this.rest = lines.pop();
    for (const block of lines) {
      const event = { name: "message", data: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("event:")) event.name = line.slice(6).trim();
        else if (line.startsWith("data:")) event.data += (event.data ? "\n" : "") + line.slice(5).trimStart();
      }
      if (event.data) events.push(event);
    }
    return events;
  }
}

// ---- dialog, colours ----

function openDialog(...children) {
  const dialog = byId("dialog");
  dialog.replaceChildren(...children,
    h("p", { class: "row" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem("baton.theme", theme);
}

async function begin() {
  setTheme(localStorage.getItem("baton.theme") || "");
  byId("theme").onclick = () => {
    const themes = ["", "light", "dark"];
    setTheme(themes[(themes.indexOf(document.documentElement.dataset.theme || "") + 1) % themes.length]);
  };
  byId("forget").hidden = !key.get();
  byId("forget").onclick = () => {
    key.set("");
    location.reload();
  };
  // http.listen answers probes without a key; http.admin answers nothing without the admin token.
  const probe = await fetch("/livez", { credentials: "omit", cache: "no-store" }).catch(() => ({ status: 0 }));
  if (probe.status === 0) setText(byId("main"), "The server does not answer.  Load the page again.");
  else if (probe.ok) beginChat();
  else beginFleet();
}

document.addEventListener("DOMContentLoaded", begin);
