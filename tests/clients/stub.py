# SPDX-License-Identifier: Apache-2.0
"""A Messages endpoint without a model, for the tests of the commands.  It sends the answers that the test sets, event by
event, and records the requests."""
import hashlib
import hmac
import http.server
import json
import threading
import time

SERVING = {"prompt": 210, "computed": 82, "reused": 128, "transferred": 210, "drawn": 3, "redispatched": 0, "preempted": 0,
         "queue_ms": 0.5, "prefill_ms": 20.0, "transfer_ms": 3.25, "decode_ms": 40.0, "ttft_ms": 25.0, "total_ms": 65.0,
         "prefill": "prefill0", "decode": "decode0", "transport": "shm"}


class Stub:
    """words: the pieces of every answer. fault: None, "cut", "error", "busy", "slow", "garbage". calls: for each of the
    first answers, a list of (name, input) that ends it. each: None, or a function that gets the number of the request, from 1,
    before it is answered."""

    def __init__(self, words=("Hello, ", "wörld", "!")):
        self.words, self.fault, self.gap_s, self.asked, self.fields = list(words), None, 0.0, [], []
        self.calls, self.each = [], None
        self.placements = []
        self.posted, self.key, self.status = [], None, {}
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args):
                pass

            def do_GET(self):
                stub.get(self)

            def do_POST(self):
                stub.post(self)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request, client_address):
                pass  # clients hang up on purpose

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *trace):
        self.server.shutdown()
        self.server.server_close()

    # ---- answers ----

    def reply(self, h, status, body, **fields):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        h.send_response(status)
        h.send_header("content-type", "application/json")
        h.send_header("content-length", str(len(data)))
        for name, value in fields.items():
            h.send_header(name.replace("_", "-"), value)
        h.end_headers()
        h.wfile.write(data)

    def is_operator(self, h):
        token = hmac.new(self.key, b"admin", hashlib.sha256).hexdigest() if self.key else None
        if h.headers.get("authorization") == f"Bearer {token}":
            return True
        self.reply(h, 401, {"ok": False, "message": "wrong token"})
        return False

    def get(self, h):
        if h.path == "/v1/models":
            self.reply(h, 200, {"data": [{"type": "model", "id": "stub-model"}], "has_more": False})
        elif h.path in ("/admin/status", "/metrics") and self.is_operator(h):
            self.reply(h, 200, self.status if h.path == "/admin/status" else b"# TYPE x counter\nx 1\n")
        elif h.path == "/admin/placements" and self.is_operator(h):
            self.reply(h, 200, {"total": len(self.placements), "placements": self.placements})
        elif not h.path.startswith("/admin") and h.path != "/metrics":
            self.reply(h, 404, {"type": "error", "error": {"type": "not_found_error", "message": "no such path"}})

    def post(self, h):
        body = h.rfile.read(int(h.headers.get("content-length", 0)))
        if h.path.startswith("/admin/"):
            if self.is_operator(h):
                self.posted.append(h.path)
                if h.path == "/admin/drain":
                    self.status["draining"] = True
                self.reply(h, 200, {"ok": True, "message": "done"})
            return
        if h.path == "/v1/messages/count_tokens":  # two tokens per word, ten for the chat format
            words = json.loads(body)["messages"][0]["content"].split()
            self.reply(h, 200, {"input_tokens": 10 + 2 * len(words)})
            return
        self.asked.append(json.loads(body))
        self.fields.append({k.lower(): v for k, v in h.headers.items()})
        if self.each is not None:
            self.each(len(self.asked))
        if self.fault == "busy":
            self.reply(h, 529, {"type": "error", "error": {"type": "overloaded_error", "message": "try later"}},
                       retry_after="1")
            return
        h.send_response(200)
        h.send_header("content-type", "text/event-stream; charset=utf-8")
        h.send_header("transfer-encoding", "chunked")
        h.end_headers()
        self.stream(h)

    def stream(self, h):
        def event(name, **data):
            raw = f"event: {name}\ndata: {json.dumps({'type': name, **data}, ensure_ascii=False)}\n\n".encode()
            half = len(raw) // 2  # events come in pieces, cut anywhere
            for piece in (raw[:half], raw[half:]):
                h.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            h.wfile.flush()

        usage = {"input_tokens": 82, "cache_read_input_tokens": 128, "cache_creation_input_tokens": 0, "output_tokens": 0}
        event("message_start", message={"id": "msg_1", "model": "stub-model", "usage": usage})
        event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        event("ping")
        for i, word in enumerate(self.words):
            time.sleep(self.gap_s)
            if i == 1 and self.fault == "cut":
                h.close_connection = True
                h.connection.shutdown(2)
                return
            if i == 1 and self.fault == "error":
                event("error", error={"type": "api_error", "message": "the stub fails on request"})
                h.wfile.write(b"0\r\n\r\n")
                return
            if i == 1 and self.fault == "garbage":
                h.wfile.write(b"zz\r\n")
                h.close_connection = True
                return
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
        event("content_block_stop", index=0)
        calls = self.calls.pop(0) if self.calls else []
        for i, (name, given) in enumerate(calls):
            event("content_block_start", index=i + 1,
                  content_block={"type": "tool_use", "id": f"toolu_{len(self.asked)}_{i}", "name": name, "input": {}})
            text = json.dumps(given, ensure_ascii=False)
            for piece in (text[:5], text[5:]):
                event("content_block_delta", index=i + 1, delta={"type": "input_json_delta", "partial_json": piece})
            event("content_block_stop", index=i + 1)
        serving = {"baton": dict(SERVING, drawn=len(self.words))} if self.fields[-1].get("baton-proof") == "stream" else {}
        event("message_delta", delta={"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None},
              usage={"output_tokens": len(self.words), **serving})
        event("message_stop")
        h.wfile.write(b"0\r\n\r\n")
