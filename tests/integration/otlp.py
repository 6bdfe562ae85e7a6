# SPDX-License-Identifier: Apache-2.0
"""A collector for tests: takes OTLP over HTTP and decodes it by field numbers, independently of protobuf-c.

    with Collector() as collector:
        ...
        spans = collector.spans()       # dicts: trace, id, parent, name, kind, begin, end, attributes, service, ...

If Python's opentelemetry-proto package is installed, it decodes each message too, and both must agree."""
import gzip
import http.server
import struct
import threading
import time

try:
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as OFFICIAL
except ImportError:
    OFFICIAL = None


def fields(data):
    """(number, value) of a message: integers for varints and fixed ones, bytes for the rest."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 1:
            yield tag >> 3, struct.unpack_from("<Q", data, at)[0]
            at += 8
        elif tag & 7 == 2:
            n = varint()
            assert at + n <= len(data), "a field is cut"
            yield tag >> 3, data[at:at + n]
            at += n
        elif tag & 7 == 5:
            yield tag >> 3, struct.unpack_from("<I", data, at)[0]
            at += 4
        else:
            raise AssertionError(f"wire type {tag & 7}")


def one(data, number, default=b""):
    found = [value for n, value in fields(data) if n == number]
    return found[-1] if found else default


def value_of(data):
    for number, value in fields(data):
        if number == 1:
            return value.decode()
        if number == 2:
            return bool(value)
        if number == 3:
            return value
        if number == 4:
            return struct.unpack("<d", struct.pack("<Q", value))[0]
        if number == 5:
            return [value_of(v) for n, v in fields(value) if n == 1]
    return None


def attributes_of(data, number):
    return {one(pair, 1).decode(): value_of(one(pair, 2)) for n, pair in fields(data) if n == number}


def decode(body):
    for _, group in (f for f in fields(body) if f[0] == 1):
        resource = attributes_of(one(group, 1), 1)
        for _, scope in (f for f in fields(group) if f[0] == 2):
            for _, span in (f for f in fields(scope) if f[0] == 2):
                yield {"trace": one(span, 1).hex(), "id": one(span, 2).hex(), "parent": one(span, 4).hex(),
                       "name": one(span, 5).decode(), "kind": one(span, 6, 0), "begin": one(span, 7, 0),
                       "end": one(span, 8, 0), "attributes": attributes_of(span, 9),
                       "status": one(one(span, 15), 3, 0), "service": resource["service.name"],
                       "node": resource["service.instance.id"]}


def check_officially(body, spans):
    """The published definitions say the same."""
    message = OFFICIAL.ExportTraceServiceRequest.FromString(body)
    official = [(s.trace_id.hex(), s.span_id.hex(), s.parent_span_id.hex(), s.name, s.start_time_unix_nano,
                 s.end_time_unix_nano, len(s.attributes), int(s.kind), int(s.status.code))
                for g in message.resource_spans for c in g.scope_spans for s in c.spans]
    ours = [(s["trace"], s["id"], s["parent"], s["name"], s["begin"], s["end"], len(s["attributes"]), s["kind"], s["status"])
            for s in spans]
    assert official == ours, (official, ours)
    message.DiscardUnknownFields()
    assert message.ByteSize() == len(body), "a field that the definitions do not have"


class Collector:
    def __init__(self, status=200, delay_s=0):
        collector = self
        self.status, self.delay_s, self.bodies, self.lock = status, delay_s, [], threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.delay_s:
                    time.sleep(collector.delay_s)
                with collector.lock:
                    collector.bodies.append((self.path, self.headers["content-type"], body))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        found = []
        with self.lock:
            bodies = list(self.bodies)
        for path, kind, body in bodies:
            assert (path, kind) == ("/v1/traces", "application/x-protobuf"), (path, kind)
            spans = list(decode(body))
            if OFFICIAL is not None:
                check_officially(body, spans)
            found += spans
        return found
