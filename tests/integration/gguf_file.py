# SPDX-License-Identifier: Apache-2.0
"""Reads the F32 tensors of a GGUF file, and writes a copy of it with one more key, or with more tensors or other values of them."""
import math
import struct

SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, F32, BOOL, STRING, ARRAY = 4, 0, 7, 8, 9
ALIGNMENT = 32


class GgufFile:
    """tensors: {name: floats} of the F32 tensors, rows one after another. keys: {name: value} of texts and 32-bit counts.
    Keys of the file must be scalars, texts, or lists of these."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 24
        n_tensors, n_keys = struct.unpack_from("<QQ", self.data, 8)
        self.keys = {}
        for _ in range(n_keys):
            name, kind = self._text(), self._take("<I")[0]
            if kind in (U32, STRING):
                self.keys[name] = self._take("<I")[0] if kind == U32 else self._text()
            else:
                self._skip(kind)
        self.keys_end = self.at
        infos = [self._info() for _ in range(n_tensors)]
        self.infos_end = self.at
        self.start = (self.at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.offsets = {name: self.start + offset for name, _, kind, offset in infos if kind == F32}
        self.tensors = {name: struct.unpack_from(f"<{n}f", self.data, self.start + offset)
                        for name, n, kind, offset in infos if kind == F32}

    def _take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def _text(self):
        n = self._take("<Q")[0]
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def _skip(self, kind):
        if kind == STRING:
            self._text()
        elif kind == ARRAY:
            item, n = self._take("<IQ")
            for _ in range(n):
                self._skip(item)
        else:
            self.at += SCALAR_BYTES[kind]

    def _info(self):
        name = self._text()
        dims = self._take(f"<{self._take('<I')[0]}Q")
        kind, offset = self._take("<IQ")
        return name, math.prod(dims), kind, offset

    def write_with_tensors(self, path, tensors):
        """Writes the file to path with other floats in the named tensors."""
        data = bytearray(self.data)
        for name, floats in tensors.items():
            assert len(floats) == len(self.tensors[name]), name
            struct.pack_into(f"<{len(floats)}f", data, self.offsets[name], *floats)
        with open(path, "wb") as file:
            file.write(data)

    def write_with_more(self, path, tensors):
        """Writes the file to path with more F32 tensors of one dimension: {name: floats}."""
        n_tensors, data = struct.unpack_from("<Q", self.data, 8)[0], self.data[self.start:]
        head = self.data[:8] + struct.pack("<Q", n_tensors + len(tensors)) + self.data[16:self.infos_end]
        for name, floats in tensors.items():
            data += bytes(-len(data) % ALIGNMENT)
            head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, len(floats), F32, len(data))
            data += struct.pack(f"<{len(floats)}f", *floats)
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % ALIGNMENT) + data)

    def write_with_switch(self, path, name, value):
        """Writes the file to path with one more key, which is true or false."""
        n_keys = struct.unpack_from("<Q", self.data, 16)[0]
        key = struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IB", BOOL, value)
        head = self.data[:16] + struct.pack("<Q", n_keys + 1) + self.data[24:self.keys_end] + key
        head += self.data[self.keys_end:self.infos_end]
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % ALIGNMENT) + self.data[self.start:])
