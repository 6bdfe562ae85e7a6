# SPDX-License-Identifier: Apache-2.0
"""Writes and reads the few parts of GGUF v3 that this model needs.

    header | metadata pairs | tensor table | padding | tensor data, each aligned

Tensors are float32 or Q8_0.  Q8_0 keeps 32 weights as one float16 scale and 32
int8: scale = max |w| / 127, q = round(w / scale).  Dimensions are stored
fastest first, so a matrix of shape [rows][columns] has dims (columns, rows).
"""
import struct

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
TYPE_F32, TYPE_Q8_0 = 0, 8
ALIGN = 32
PLAIN = {0: "<B", 1: "<b", 2: "<H", 3: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", 11: "<q", 12: "<d"}


def packed_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def packed_value(kind, value):
    if kind == STRING:
        return packed_string(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(packed_value(inner, v) for v in items)
    return struct.pack(PLAIN[kind], value)


def q8_0(w):
    """float32 [rows][columns] -> the bytes of its blocks."""
    blocks = np.ascontiguousarray(w, np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(1) / 127
    stored = scale.astype(np.float16)
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
    q = np.rint(blocks * inverse[:, None]).clip(-127, 127).astype(np.int8)
    out = np.zeros(len(blocks), dtype=[("d", "<f2"), ("q", "i1", 32)])
    out["d"], out["q"] = stored, q
    return out.tobytes()


def from_q8_0(data, shape):
    blocks = np.frombuffer(data, dtype=[("d", "<f2"), ("q", "i1", 32)])
    return (blocks["d"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)).reshape(shape)


def write(path, metadata, tensors):
    """metadata: (key, kind, value); tensors: (name, array), 2-D ones become Q8_0."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, kind, value in metadata:
        head += packed_string(key) + struct.pack("<I", kind) + packed_value(kind, value)
    body, table = b"", b""
    for name, w in tensors:
        data = q8_0(w) if w.ndim == 2 else w.astype("<f4").tobytes()
        dims = w.shape[::-1]
        table += packed_string(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
        table += struct.pack("<IQ", TYPE_Q8_0 if w.ndim == 2 else TYPE_F32, len(body))
        body += data + b"\0" * (-len(data) % ALIGN)
    head += table
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN) + body)


class Reader:
    """Reads a whole file: .metadata (dict) and .tensors (dict of float32 arrays)."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 4
        assert self.data[:4] == b"GGUF" and self.take("<I") == 3
        n_tensors, n_pairs = self.take("<Q"), self.take("<Q")
        self.metadata = {}
        for _ in range(n_pairs):
            key = self.string()
            self.metadata[key] = self.value(self.take("<I"))
        table = []
        for _ in range(n_tensors):
            name = self.string()
            dims = [self.take("<Q") for _ in range(self.take("<I"))]
            table.append((name, dims[::-1], self.take("<I"), self.take("<Q")))
        base = self.at + -self.at % self.metadata.get("general.alignment", ALIGN)
        self.types = {name: kind for name, _, kind, _ in table}
        self.tensors = {name: self.tensor(shape, kind, base + offset) for name, shape, kind, offset in table}

    def take(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, n = self.take("<I"), self.take("<Q")
            return [self.value(inner) for _ in range(n)]
        return self.take(PLAIN[kind])

    def tensor(self, shape, kind, start):
        n = int(np.prod(shape))
        if kind == TYPE_F32:
            return np.frombuffer(self.data, "<f4", n, start).reshape(shape)
        assert kind == TYPE_Q8_0
        return from_q8_0(self.data[start:start + n // 32 * 34], shape)
