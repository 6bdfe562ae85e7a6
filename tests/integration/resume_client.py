# SPDX-License-Identifier: Apache-2.0
"""A client that comes back for the rest of its stream, and what such tests compare."""
import http.client
import json
import re
import time

from cluster import patience

PROMPT = "The relay hands the baton over: who reads the prompt, who writes the answer, and what moves between the two? "


class Client:
    """One stream, read as bytes.  Goes on at the next of `ports` when a connection ends before the stream does."""

    def __init__(self, path, body, headers=None):
        self.path, self.body, self.headers = path, json.dumps(dict(body, stream=True)), headers or {}
        self.events, self.n_resumed, self.request_id, self.status, self.connection = [], 0, None, None, None

    def last_id(self):
        return re.match(rb"id: (\S+)\n", self.events[-1]).group(1).decode() if self.events else None

    def is_over(self):
        return bool(self.events) and any(end in self.events[-1] for end in (b"message_stop", b"[DONE]", b"response.completed"))

    def read(self, port, most=None, again=None):
        """Reads events until the stream or the connection ends, or there are `most`.

        After `most` events the connection stays open until leave() or the next read: a router cancels the work of a client that
        leaves."""
        headers = {"content-type": "application/json", **self.headers}
        if again is not None:
            headers["last-event-id"] = again
        self.leave()
        self.connection = connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(60))
        is_open = False
        try:
            connection.request("POST", self.path, self.body, headers)
            response = connection.getresponse()
            self.status, self.request_id = response.status, response.getheader("request-id")
            if self.status != 200:
                self.error = json.loads(response.read())
                return
            block = b""
            while most is None or len(self.events) < most:
                line = response.readline()
                if not line:
                    return
                block += line
                if line == b"\n":
                    if block.startswith(b"id: "):
                        self.events.append(block)
                    assert b"event: error" not in block, block
                    block = b""
            is_open = True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            if not is_open:
                connection.close()

    def leave(self):
        if self.connection is not None:
            self.connection.close()

    def run(self, ports):
        self.read(ports[0])
        for port in ports[1:] * 50:
            if self.is_over():
                return self
            self.n_resumed += 1
            self.read(port, again=self.last_id() or self.request_id)
            if self.status != 200 and self.status != 404 and self.status != 503:
                break
            time.sleep(0.05)
        assert self.is_over(), (self.status, self.events[-1:], getattr(self, "error", None))
        return self

    def bytes(self):
        return b"".join(self.events)

    def n_tokens(self):
        return int(re.findall(rb'"(?:output_tokens|completion_tokens)": ?(\d+)', self.bytes())[-1])

    def text(self):
        said = ""
        for event in self.events:
            data = json.loads(re.search(rb"data: (\{.*)", event).group(1)) if b"data: {" in event else {}
            said += data.get("delta", {}).get("text", "")
            for choice in data.get("choices", []):
                said += choice.get("text", "") or choice.get("delta", {}).get("content") or ""
        return said


def whole_of(port, client):
    """The stream from its first byte."""
    again = Client(client.path, {})
    again.body, again.headers = client.body, client.headers
    again.read(port, again=client.last_id().rsplit(".", 1)[0] + ".0")
    assert again.status == 200, again.error
    return again


def assert_same(one, other):
    for a, b in zip(one.events, other.events):
        assert a == b, (a, b)
    assert len(one.events) == len(other.events), (one.events[-1], other.events[-1])


def messages(text, **fields):
    return "/v1/messages", {"model": "baton-demo", "max_tokens": 48, "messages": [{"role": "user", "content": text}], **fields}


def chat(text, **fields):
    return "/v1/chat/completions", {"model": "baton-demo", "max_tokens": 48, "stream_options": {"include_usage": True},
                                    "messages": [{"role": "user", "content": text}], **fields}


def two_routers(c, **settings):
    """Two routers, and workers that register with both."""
    c.router(**settings)
    c.router(**settings)
    return [f"127.0.0.1:{r.link}" for r in c.routers]


def wait_both(c, prefill, decode):
    c.wait_ready(prefill=prefill, decode=decode)
    c.routers.reverse()
    c.wait_ready(prefill=prefill, decode=decode)
    c.routers.reverse()
