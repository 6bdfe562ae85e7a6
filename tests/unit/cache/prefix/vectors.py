#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vectors.h: block hashes by an implementation that shares nothing with ours (hashlib)."""

import hashlib
import hmac
import struct


def text(s):
    raw = s.encode()
    return struct.pack("<I", len(raw)) + raw


def root(cluster_key, fingerprint, tenant):
    message = b"baton prefix 2" + text(fingerprint) + text(tenant)
    return hmac.new(cluster_key, message, hashlib.sha256).digest()


def chain(key, tokens, block_tokens):
    parent = bytes(16)
    for i in range(0, len(tokens) - block_tokens + 1, block_tokens):
        message = struct.pack(f"<{block_tokens}I", *tokens[i : i + block_tokens]) + parent
        parent = hashlib.sha256(key + bytes(32) + message).digest()[:16]
        yield parent


def token(i):
    return (i * 2654435761 + 12345) % 2**32


CASES = [
    # fingerprint, tenant, block_tokens, n_tokens
    ("0123456789abcdef0123456789abcdef", "", 4, 11),
    ("0123456789abcdef0123456789abcdef", "acme", 32, 96),
    ("ffffffffffffffffffffffffffffffff", "größe ✓", 100, 250),
    ("ab", "c", 1, 3),
    ("a", "bc", 1, 3),
]

print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by vectors.py with Python's hashlib.  Cluster key: bytes 0..31; token i: i * 2654435761 + 12345. */")
print("/* clang-format off */")
print("#include <stddef.h>")
print("#include <stdint.h>")
print()
print("static const struct vector {")
print("    const char *fingerprint, *tenant;")
print("    uint32_t block_tokens;")
print("    size_t n_tokens;")
print("    const char *root;")
print("    const char *hashes[4];")
print("} vectors[] = {")
for fingerprint, tenant, block_tokens, n_tokens in CASES:
    key = root(bytes(range(32)), fingerprint, tenant)
    name = "".join(c if ord(c) < 128 else "".join(f'\\x{b:02x}""' for b in c.encode()) for c in tenant)
    print(f'    {{"{fingerprint}", "{name}", {block_tokens}, {n_tokens},')
    print(f'     "{key.hex()}",')
    hashes = list(chain(key, [token(i) for i in range(n_tokens)], block_tokens))
    print("     {" + ",\n      ".join(f'"{h.hex()}"' for h in hashes) + "}},")
print("};")
