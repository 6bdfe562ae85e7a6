#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The console in Chromium against real daemons: a chat by keyboard, with its relay bar, stop, edit and the key; the fleet
with its placements and role buttons.  The browser is driven through its debugging pipe.  Skipped without Chromium."""
import base64
import hashlib
import http.client
import http.server
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, SOURCE, Cluster, events, fetch, free_port, main, patience  # noqa: E402

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
SHOTS = os.environ.get("BATON_SHOTS")  # a folder: screenshots go there
PLAN = "-m llama-3-70b -d h100 -w fp8 --kv fp8 --tp 2 --isl 3000,5000 --osl 300,500 --hit 0.4 -r 100 --ttft 2s --itl 40ms"
TEXT = "A relay race has four runners, and each of them carries the baton for a hundred metres. " * 4


class Browser:
    """One page of a headless Chromium."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="baton-console.")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        os.set_inheritable(to_read, True)
        os.set_inheritable(to_write, True)
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                   f"--user-data-dir={self.dir}", "--remote-debugging-pipe", "about:blank"]
        script = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", script, "chromium", *command], pass_fds=(to_read, to_write),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.rest, self.number, self.session, self.faults, self.answers = b"", 0, None, [], {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.size(1100, 800)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _take(self, message):
        method, params = message.get("method"), message.get("params", {})
        if "id" in message:
            self.answers[message["id"]] = message
        elif method == "Runtime.exceptionThrown":
            self.faults.append(params["exceptionDetails"].get("exception", {}).get("description") or str(params))
        elif method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.faults.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self._send("Page.handleJavaScriptDialog", {"accept": True})

    def _send(self, method, params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.number

    def call(self, method, **params):
        number = self._send(method, params)
        until = time.monotonic() + patience(30)
        while number not in self.answers:
            assert time.monotonic() < until, f"{method}: no answer"
            if not select.select([self.back], [], [], 1)[0]:
                continue
            data = os.read(self.back, 1 << 16)
            assert data, "Chromium has gone"
            *whole, self.rest = (self.rest + data).split(b"\0")
            for one in whole:
                self._take(json.loads(one))
        answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def js(self, text):
        result = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (text, result)
        return result["result"].get("value")

    def until(self, text, seconds=20):
        end = time.monotonic() + patience(seconds)
        guarded = f"(() => {{ try {{ return {text}; }} catch (e) {{ return null; }} }})()"  # elements may not be there yet
        while True:
            value = self.js(guarded)
            if value:
                return value
            assert time.monotonic() < end, (text, self.js("document.body.innerText"), self.faults)
            time.sleep(0.05)

    def open(self, port):
        self.call("Page.navigate", url=f"http://127.0.0.1:{port}/console")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def size(self, width, height, is_phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone)

    def dark(self, is_dark):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def shot(self, name):
        if SHOTS:
            data = self.call("Page.captureScreenshot", format="webp", quality=70)["data"]
            with open(os.path.join(SHOTS, name + ".webp"), "wb") as f:
                f.write(base64.b64decode(data))


def ask(browser, text):
    """Types a question; returns when its answer has ended."""
    n = browser.js("Number(document.querySelector('#log').dataset.answers || 0)")
    browser.js("document.querySelector('#question').focus()")
    browser.type(text)
    browser.press("Enter", 13)
    browser.until(f"Number(document.querySelector('#log').dataset.answers) > {n}")


def a_closed_console_is_no_page():
    with Cluster() as c:
        c.router()
        for port in (c.routers[0].http, c.routers[0].admin):
            until = time.monotonic() + patience(10)
            while True:
                try:
                    status = fetch(port, "GET", "/console")[0]
                    break
                except OSError:
                    assert time.monotonic() < until
                    time.sleep(0.05)
            assert status in (401, 404), status


def the_files_are_small_and_strict():
    with Cluster() as c:
        c.router(http__console="yes")
        c.worker("prefill")
        c.worker("decode")
        c.wait_ready(prefill=1, decode=1)
        total = 0
        for path in ("/console", "/console/console.css", "/console/common.js", "/console/chat.js", "/console/fleet.js"):
            for port in (c.routers[0].http, c.routers[0].admin):
                status, headers, body = fetch(port, "GET", path)
                assert status == 200 and body, (path, status)
                policy = headers["content-security-policy"]
                assert "default-src 'none'" in policy and "unsafe" not in policy, policy
                name = "index.html" if path == "/console" else path.rsplit("/", 1)[1]
                with open(os.path.join(SOURCE, "share", "console", name), "rb") as f:
                    assert body == f.read(), path
            total += len(body)
        assert total < 150000, total
        print(f"   the console has {total} bytes")
        for path in ("/console/", "/console/../console", "/console/none.js", "/console/index.html"):
            assert fetch(c.routers[0].http, "GET", path)[0] == 404, path
        assert fetch(c.routers[0].http, "POST", "/console")[0] == 405
        for path in ("/admin/status", "/admin/placements", "/admin/request/x"):
            assert fetch(c.routers[0].admin, "GET", path)[0] == 401, path
            assert fetch(c.routers[0].http, "GET", path)[0] == 404, path


RECORDED = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Whom do I "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "ask?"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s1"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"city": "Jü'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'lich"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
]


def a_recorded_answer_is_read(browser):
    """Thinking and a call, with every cut of the stream: the shown text, and the body of the next request."""
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in RECORDED)
    for step in (1, 7, len(text)):
        content, shown = browser.js(f"""(() => {{
            const turn = {{ role: "assistant", content: [], view: h("article", {{}}) }};
            const text = {json.dumps(text)}, events = new EventReader(), view = new AnswerView(turn);
            for (let at = 0; at < text.length; at += {step})
              for (const event of events.feed(text.slice(at, at + {step}))) view.on(event);
            view.show();
            closeTurn(turn);
            turn.view.append(resultForm(turn));
            return [turn.content, turn.view.textContent];
        }})()""")
        assert content == [{"type": "thinking", "thinking": "Whom do I ask?", "signature": "s1"},
                           {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Jülich"}}], content
        assert "Whom do I ask?" in shown and '{"city": "Jülich"}' in shown and "Result of weather" in shown, shown


def a_chat_shows_its_relay():
    with Cluster() as c, Browser() as browser:
        keys = os.path.join(c.dir, "keys")
        with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(hashlib.sha256(b"console-key").hexdigest() + " console\n")
        c.relay(http__console="yes", http__api_keys=keys)
        browser.open(c.routers[0].http)
        browser.until("!document.querySelector('#ask-key').hidden")
        browser.type("wrong")
        browser.press("Enter", 13)
        browser.until("document.querySelector('#key-fault').textContent !== ''")
        browser.js("document.querySelector('#key').value = ''")
        browser.type("console-key")
        browser.press("Enter", 13)
        browser.until("document.querySelector('#question') !== null")
        browser.js("document.querySelector('#max-tokens').value = '40'; document.querySelector('#temperature').value = '0'")
        ask(browser, TEXT + "<b>Who carries it?</b>")
        assert browser.js("document.querySelector('article.assistant .text').textContent.length") > 0
        assert browser.js("document.querySelectorAll('#log b').length") == 0  # text stays text
        legend = browser.js("document.querySelector('.legend').textContent")
        assert "prefill0" in legend and "decode0" in legend and "hand-off:" in browser.js("document.querySelector('.facts').textContent"), legend
        widths = browser.js("[...document.querySelectorAll('.seg')].reduce((n, s) => n + parseFloat(s.style.width), 0)")
        assert 99 < widths < 101, widths
        first = browser.js("document.querySelector('article.assistant .text').textContent")
        ask(browser, "Hello!")
        assert browser.js("document.querySelectorAll('article').length") == 4
        browser.shot("console-chat")
        browser.size(390, 760, True)
        browser.dark(True)
        browser.shot("console-phone")
        assert browser.js("document.documentElement.scrollWidth") <= 390
        browser.size(1100, 800)
        browser.dark(False)

        # An edit of the first question drops the later turns; the same question gets the same answer.
        browser.js("document.querySelector('.edit').click()")
        browser.js("document.querySelector('.resend').click()")
        browser.until("document.querySelectorAll('article').length === 2 && chat.running === null")
        assert browser.js("document.querySelector('article.assistant .text').textContent") == first

        # Escape stops a long answer, and the conversation goes on.
        browser.js("document.querySelector('#max-tokens').value = '4000'; document.querySelector('#temperature').value = '1'")
        browser.js("document.querySelector('#question').focus()")
        browser.type("Tell me a long story.")
        browser.press("Enter", 13)
        browser.until("chat.running !== null || chat.turns.length === 4")
        browser.press("Escape", 27)
        browser.until("chat.running === null")
        ask(browser, "Hello again!")
        assert browser.js("document.querySelector('#fault').textContent") == ""
        a_recorded_answer_is_read(browser)
        assert browser.js("sessionStorage.getItem('baton.key')") == "console-key"
        assert browser.faults == [], browser.faults


def the_fleet_is_live():
    with Cluster() as c, Browser() as browser:
        c.relay(http__console="yes")
        c.worker("decode")
        c.wait_ready(prefill=1, decode=2)
        for i in range(6):
            c.ask(TEXT + str(i), max_tokens=8)
        status, _, body = fetch(c.routers[0].admin, "GET", "/admin/placements", headers={"authorization": f"Bearer {c.admin_token()}"})
        placements = json.loads(body)
        assert status == 200 and placements["total"] == 6 and len(placements["placements"]) == 6, body
        assert [p["number"] for p in placements["placements"]] == [6, 5, 4, 3, 2, 1], body
        line = [os.path.join(BUILD, "batonctl"), "-k", c.key, "admin-token"]
        token = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
        assert token == c.admin_token()
        browser.open(c.routers[0].admin)
        browser.until("!document.querySelector('#ask-key').hidden")
        browser.type(token)
        browser.press("Enter", 13)
        browser.until("document.querySelectorAll('#workers tr').length === 3")
        browser.until("document.querySelectorAll('#placements tr').length === 6")
        browser.until("document.querySelectorAll('.lane').length > 0")
        browser.until("/100.0 % of first tokens/.test(document.querySelector('#shares').textContent)")
        browser.shot("console-fleet")
        c.ask("Once more. " + TEXT, max_tokens=8)
        browser.until("document.querySelectorAll('#placements tr').length === 7")  # without a reload
        browser.js("document.querySelector('#placements tr').click()")
        browser.until("document.querySelector('#dialog').open && document.querySelectorAll('#dialog tr.chosen').length === 2")
        browser.shot("console-why")
        browser.js("document.querySelector('#dialog').close()")
        browser.js("document.querySelector('tr[data-node=decode1] button[data-role=prefill]').click()")
        browser.until("document.querySelector('tr[data-node=decode1] td').textContent === 'prefill'")
        c.wait_ready(prefill=2, decode=1)
        browser.js("document.querySelector('#drain').click()")
        browser.until("document.querySelector('#drain').textContent === 'Undrain'")
        assert c.routers[0].status()["draining"]
        browser.js("document.querySelector('#drain').click()")
        browser.until("document.querySelector('#drain').textContent === 'Drain'")
        assert browser.faults == [], browser.faults


def the_fleet_is_streamed():
    """GET /admin/events without a browser: both kinds of events, live, for every watcher up to a bound."""
    with Cluster() as c:
        c.relay()
        for daemon, kinds in ((c.routers[0], {"status", "placements"}), (c.workers[0], {"status"})):
            assert fetch(daemon.admin, "GET", "/admin/events")[0] == 401

            def watch():
                connection = http.client.HTTPConnection("127.0.0.1", daemon.admin, timeout=patience(30))
                connection.request("GET", "/admin/events", headers={"authorization": f"Bearer {c.admin_token()}"})
                return connection, connection.getresponse()
            connection, response = watch()
            assert response.status == 200 and response.getheader("content-type") == "text/event-stream"
            seen, stream = [], events(response)
            while len(seen) < 2 * len(kinds):
                seen.append(next(stream))
            assert {name for name, _ in seen} == kinds and seen[0][1]["node"] == daemon.name, seen
            if daemon.role == "router":
                c.ask("What a watcher sees next. " + TEXT, max_tokens=8)
                while not any(name == "placements" and data["total"] == 1 for name, data in seen):
                    seen.append(next(stream))
                assert all(len(data["workers"]) == 2 for name, data in seen if name == "status")
            others = [watch() for _ in range(31)]  # and these read nothing
            assert all(r.status == 200 for _, r in others)
            late = watch()
            assert late[1].status == 503 and b"too many" in late[1].read()
            assert next(stream)[0] in kinds and next(stream)[0] in kinds
            for one, r in others + [late]:
                r.close()
                one.close()
            connection.close()
        c.assert_quiet()


class Recorded(http.server.BaseHTTPRequestHandler):
    """The page from its files, and a fleet of 200 workers whose figures change with every read."""
    row, n_reads, is_over = None, 0, threading.Event()

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        types = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
        status, kind, name = 200, "application/json", self.path.split("/")[-1]
        if self.path.startswith("/console"):
            name = "index.html" if name == "console" else name
            kind = types[name.rsplit(".", 1)[1]]
            with open(os.path.join(SOURCE, "share", "console", name), "rb") as f:
                body = f.read()
        elif self.path == "/admin/events":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for path in ("status", "placements"):
                self.wfile.write(b"event: " + path.encode() + b"\ndata: " + self.body_of(path) + b"\n\n")
            Recorded.is_over.wait()  # a page that must connect again would draw beside the measured frames
            return
        elif self.path in ("/admin/status", "/admin/placements"):
            body = self.body_of(self.path.split("/")[-1])
        else:
            status, body = 401, b"{}"
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body_of(self, name):
        if name == "placements":
            top = Recorded.n_reads * 40 + 64
            return json.dumps({"total": top, "placements": [
                {"number": top - i, "when": "2026-11-24T12:00:00Z", "request": f"req_{top - i}", "model": "m", "class": "", "refused": "",
                 "prefill": f"worker{(top - i) * 3 % 60:03}", "decode": f"worker{((top - i) * 3 + 1) % 90:03}", "over": True, "failed": False,
                 "attempt": 1, "prompt_tokens": 900, "uncached_tokens": 300, "expected_ttft_ms": 200, "ttft_slo_ms": 1000, "first_ms": 210,
                 "total_ms": 900, "answered": 40, "transfer_bytes": 1 << 20} for i in range(64)]}).encode()
        Recorded.n_reads += 1
        n = Recorded.n_reads
        rows = [dict(self.row, node=f"worker{i:03}", role="prefill" if i % 3 == 0 else "decode", running=(i * 7 + n) % 64, blocks_total=1000,
                     blocks_free=(i * 37 + n * 91) % 1000, decode_step_ms=(i + n) % 40 + 0.5) for i in range(200)]
        return json.dumps({"node": "router0", "draining": False, "queued": n % 9, "paused": 0, "handed_off": n * 40, "local": n,
                           "redispatched": 0, "indexed_blocks": 100000 + n, "indexed_on_disk_only": 10, "workers": rows}).encode()


def two_hundred_workers_are_drawn():
    with Cluster() as c:
        c.relay()
        Recorded.row = c.routers[0].status()["workers"][0]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Recorded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Browser() as browser:
            browser.open(server.server_address[1])
            browser.until("!document.querySelector('#ask-key').hidden")
            browser.type("any")
            browser.press("Enter", 13)
            browser.until("document.querySelectorAll('#workers tr').length === 200")
            browser.until("document.querySelectorAll('#placements tr').length === 64")
            browser.shot("console-fleet-200")
            # The work between two frames, with a forced layout at its end: all of a frame but the painting.
            frames = browser.js("""(async () => {
                const frames = { "a part of the workers": [], "the rest": [] }, frame = window.requestAnimationFrame;
                let began = 0, part = "";
                const end = () => {
                  document.body.getBoundingClientRect();
                  frames[part].push(performance.now() - began);
                };
                window.requestAnimationFrame = (next) => {
                  end();
                  return frame((now) => { began = performance.now(); next(now); });
                };
                for (let i = 0; i < 8; i++) {
                  const [status, placements] = await readFleet();
                  await new Promise((next) => frame(next));
                  [part, began] = ["a part of the workers", performance.now()];
                  await drawStatus(status);
                  end();
                  [part, began] = ["the rest", performance.now()];
                  drawLatest(placements);
                  end();
                }
                window.requestAnimationFrame = frame;
                return frames;
            })()""")
            for name, times in frames.items():
                print(f"   200 workers, {len(times)} frames of {name}: {sorted(times)[len(times) // 2]:.1f} ms, the longest {max(times):.1f} ms")
            assert len(frames["a part of the workers"]) == 8 * 4, frames  # 64 rows in each
            assert browser.js("document.querySelectorAll('#workers tr').length") == 200
            assert browser.js("document.querySelectorAll('#placements tr').length") == 64
            assert browser.js("fleet.counted.size") <= 64
            assert browser.faults == [], browser.faults
    finally:
        Recorded.is_over.set()
        server.shutdown()
        server.server_close()


def a_plan_fits_a_phone():
    """The page of baton-plan: nothing scrolls sideways at any width, in light and dark, and nothing comes from elsewhere."""
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = os.path.join(folder, "plan.html")
        subprocess.run([os.path.join(BUILD, "baton-plan"), "plan", *PLAN.split(), "--html", page], check=True, stdout=subprocess.DEVNULL,
                       timeout=patience(60))
        browser.call("Page.navigate", url="file://" + page)
        browser.until("document.readyState === 'complete' && document.querySelectorAll('table').length > 0")
        for width in (320, 390, 768, 1400):
            for is_dark in (False, True):
                browser.size(width, 760, width < 500)
                browser.dark(is_dark)
                if width == 390 and not is_dark:
                    browser.shot("plan-phone")
                wide = browser.js("document.documentElement.scrollWidth")
                assert wide <= width, (width, wide, browser.js("document.documentElement.innerHTML.length"))
                colours = browser.js("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
                assert colours[0] != colours[1], colours
        assert browser.js("performance.getEntriesByType('resource').length") == 0
        assert not browser.faults, browser.faults


if __name__ == "__main__":
    tests = [a_closed_console_is_no_page, the_files_are_small_and_strict, the_fleet_is_streamed]
    if CHROMIUM is None:
        print("SKIP: chromium is not installed (apt-get install chromium); only the console's files are checked", flush=True)
    else:
        tests += [a_chat_shows_its_relay, the_fleet_is_live, two_hundred_workers_are_drawn, a_plan_fits_a_phone]
    main(tests)
    if CHROMIUM is None:
        sys.exit(77)
