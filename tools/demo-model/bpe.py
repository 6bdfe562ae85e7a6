# SPDX-License-Identifier: Apache-2.0
"""Byte-level byte-pair encoding in the GPT-2 alphabet with Qwen2's splitting rule.

    text --split at special tokens--> runs --PRE--> pieces --merges--> ids

Training differs from the usual recipe in one point.  Ordinary BPE merges " t"
first, so an unseen word is cut differently after a blank than after a quote,
and a model must learn every spelling twice to copy a value from a sentence
into JSON.  Here letters are merged among themselves first and the blank (or
quote, slash, underscore) in front of a word joins only whole frequent words,
last.  The result is still an ordinary merge list that any BPE reader applies
by rank.

PRE is the ASCII part of Qwen2's expression.  The corpus is ASCII; other text
still encodes, byte by byte.
"""
import collections
import json
import re

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<tool_call>", "</tool_call>", "<tools>", "</tools>", "<tool_response>", "</tool_response>"]
PRE = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")
AT_SPECIAL = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS + USER_DEFINED) + ")")


def byte_alphabet():
    """GPT-2's printable stand-in for each of the 256 bytes."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, spare = {}, 0
    for byte in range(256):
        if byte in keep:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + spare)
            spare += 1
    return table


ALPHABET = byte_alphabet()
BYTE_OF = {c: b for b, c in ALPHABET.items()}


def to_alphabet(text):
    return "".join(ALPHABET[b] for b in text.encode("utf-8"))


class Tokeniser:
    """Encodes and decodes with a vocabulary and a ranked merge list."""

    def __init__(self, tokens, merges):
        self.tokens = tokens
        self.merges = merges
        self.id_of = {t: i for i, t in enumerate(tokens)}
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
        self.cache = {}

    @classmethod
    def load(cls, path):
        with open(path) as f:
            saved = json.load(f)
        return cls(saved["tokens"], saved["merges"])

    def save(self, path):
        with open(path, "w") as f:
            json.dump({"tokens": self.tokens, "merges": self.merges}, f, indent=0)

    def token_types(self):
        """GGUF: 1 normal, 3 control, 4 user-defined."""
        return [3 if t in SPECIALS else 4 if t in USER_DEFINED else 1 for t in self.tokens]

    def piece_ids(self, piece):
        ids = self.cache.get(piece)
        if ids is None:
            parts = list(to_alphabet(piece))
            while len(parts) > 1:
                ranked = [(self.rank.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:]))]
                best, i = min(ranked)
                if best == 1 << 30:
                    break
                parts[i:i + 2] = [parts[i] + parts[i + 1]]
            ids = [self.id_of[p] for p in parts]
            if len(self.cache) < 500000:
                self.cache[piece] = ids
        return ids

    def encode(self, text):
        out = []
        for run in AT_SPECIAL.split(text):
            if run in self.id_of and AT_SPECIAL.fullmatch(run):
                out.append(self.id_of[run])
                continue
            for piece in PRE.findall(run):
                out.extend(self.piece_ids(piece))
        return out

    def decode(self, ids):
        data = bytearray()
        for i in ids:
            token = self.tokens[i]
            if AT_SPECIAL.fullmatch(token):
                data += token.encode()
            else:
                data += bytes(BYTE_OF[c] for c in token)
        return data.decode("utf-8", "replace")


def count_pairs(words):
    pairs = collections.Counter()
    for parts, n in words:
        for pair in zip(parts, parts[1:]):
            pairs[pair] += n
    return pairs


def grow(words, n_merges, at_least):
    """Plain BPE over (parts, count) words; returns merges and rewrites the words."""
    merges = []
    pairs = count_pairs(words)
    where = collections.defaultdict(set)
    for w, (parts, _) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            where[pair].add(w)
    while len(merges) < n_merges and pairs:
        pair = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[pair] < at_least:
            break
        merges.append(pair)
        for w in list(where[pair]):
            parts, n = words[w]
            for old in zip(parts, parts[1:]):
                pairs[old] -= n
                where[old].discard(w)
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == pair:
                    parts[i:i + 2] = [parts[i] + parts[i + 1]]
                i += 1
            for new in zip(parts, parts[1:]):
                pairs[new] += n
                where[new].add(w)
        del pairs[pair]
    return merges


def train(texts, vocab_size):
    """Two rounds: letters among themselves, then whatever joins whole pieces."""
    pieces = collections.Counter()
    for text in texts:
        for run in AT_SPECIAL.split(text):
            if not AT_SPECIAL.fullmatch(run):
                pieces.update(PRE.findall(run))
    room = vocab_size - 256 - len(SPECIALS) - len(USER_DEFINED)
    cores = collections.Counter()
    for piece, n in pieces.items():
        core = piece if piece[0].isalpha() or len(piece) == 1 else piece[1:] if piece[-1].isalpha() else ""
        if core and core.isalpha():
            cores[core] += n
    words = [[list(to_alphabet(c)), n] for c, n in cores.items()]
    letters = grow(words, int(room * .62), 3)
    whole = Tokeniser([ALPHABET[b] for b in range(256)] + [a + b for a, b in letters],
                      [" ".join(m) for m in letters])
    rest = collections.Counter()
    for piece, n in pieces.items():
        parts = whole.piece_ids(piece)
        joins_word = piece[0].isalpha() is False and piece[-1].isalpha()
        if joins_word and len(parts) != 2:
            continue
        rest[piece] += n
    words = [[[whole.tokens[i] for i in whole.piece_ids(p)], n] for p, n in rest.items() if not p.isalpha()]
    words = [w for w in words if len(w[0]) > 1]
    joins = grow(words, room - len(letters), 2)
    merges = letters + joins
    tokens = [ALPHABET[b] for b in range(256)] + [a + b for a, b in merges]
    tokens += SPECIALS + USER_DEFINED
    assert len(tokens) == vocab_size, len(tokens)
    return Tokeniser(tokens, [" ".join(m) for m in merges])
