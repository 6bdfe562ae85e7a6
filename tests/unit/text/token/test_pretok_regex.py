#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenisers against the regular expressions that models come with, run by Python's regex module.

Every name that Baton knows is cut both ways over generated text: every assigned character between several
neighbours, random mixtures of scripts, and strings that made trouble.  Skipped without the module (python3-regex).
"""
import os
import random
import struct
import subprocess
import sys
import unicodedata

try:
    import regex
except ImportError:
    print("python3-regex is not installed")
    sys.exit(77)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def llama3(numbers):
    return [END + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers +
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def cased(numbers, end, upper=UPPER, lower=LOWER, newlines=r"[\r\n/]*"):
    return [r"[^\r\n\p{L}\p{N}]?" + upper + "*" + lower + "+" + end + r"|[^\r\n\p{L}\p{N}]?" + upper + "+" +
            lower + "*" + end + "|" + numbers + r"| ?[^\s\p{L}\p{N}]+" + newlines + r"|\s*[\r\n]+|\s+(?!\S)|\s+"]


def kimi():
    """The published pattern has [...&&[^\\p{Han}]], which this module writes differently."""
    sets = [r"(?:(?!\p{Han})" + letters + ")" for letters in (UPPER, LOWER)]
    return [r"\p{Han}+|" + cased(r"\p{N}{1,3}", END + "?", *sets, newlines=r"[\r\n]*")[0]]


DEEPSEEK_LETTERS = (  # first and last of ranges, in hex
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 "
    "1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE "
    "1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 "
    "2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A "
    "10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943")


def char_set(ranges):
    return "[" + "".join("-".join("\\U%08x" % int(end, 16) for end in r.split("-")) for r in ranges.split()) + "]"


CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
RULES = {  # the passes of each rule: one expression, or several one after the other
    "gpt-2": [GPT2],
    "llama-bpe": llama3(r"\p{N}{1,3}"),
    "qwen2": llama3(r"\p{N}"),
    "qwen35": [END + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt-4o": cased(r"\p{N}{1,3}", END + "?"),
    "kimi-k2": kimi(),
    "seed-coder": [END + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}"] + llama3(r"\p{N}+"),
    "bailingmoe2": [  # its own pattern, which cuts as that of qwen2 does
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    # The published pattern has \b, which depends on the engine: this is \w of Oniguruma, which tokenizers use.
    "tiny_aya": [
        r"\d{1,3}(?=(?:\d{3})*(?![\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\xb2\xb3\xb9\xbc-\xbe\u24b6-\u24e9\U0001f130-\U0001f149"
        r"\U0001f150-\U0001f169\U0001f170-\U0001f189\d]))"] + cased(r"\p{N}{1,3}", END + "?"),
    "youtu": [
        r"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
        r"[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"] + cased(r"\p{N}", END + "?"),
    "tekken": cased(r"\p{N}", ""),
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "deepseek-v3": [
        r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-llm": [
        r"[\r\n]", r"\s?" + char_set(DEEPSEEK_LETTERS) + "+",
        r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK, r"\p{N}+"],
    "exaone-moe": [END + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
                   r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "afmoe": [  # of the numbers, a leading group of one or two digits, then groups of three
        r"\p{N}+", r"\p{N}{1,3}(?=(?:\p{N}{3})*$)",
        r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
        r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"],
    # The published second expression, (?=(\d{3})+(?!\d)), matches places; this one matches what lies between them.
    "superbpe": [r"\p{N}+", r"(?s:.)(?:(?!(?=(?:\d{3})+(?!\d)))(?s:.))*"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
}
SAME = {
    "gpt-2": "default phi-2 mpt olmo jais trillion gigachat exaone4 mellum granite-docling a.x-4.0",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 lfm2 dbrx smaug-bpe glm4 chatglm-bpe pixtral midm-2.0",
    "qwen2": "deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 solar-open kormo f2llmv2",
    "bailingmoe2": "bailingmoe llada-moe",
    "gpt-4o": "llama4 kanana2 minimax-m2 talkie",
    "tiny_aya": "cohere2moe",
    "starcoder": "refact command-r smollm codeshell exaone minerva-7b mellum2",
    "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
}


def cut(passes, text):
    """Ends of the pieces, in characters."""
    pieces = [text]
    for expression in passes:
        after = []
        for piece in pieces:
            at = 0
            for match in expression.finditer(piece):
                if match.end() == match.start():
                    continue
                after += [piece[at:match.start()], match.group()]
                at = match.end()
            after.append(piece[at:])
        pieces = [piece for piece in after if piece]
    return pieces


def assigned():
    """Characters that have the same category in libutf8proc and in the module, whose Unicode versions differ. U+0295,
    which changed its category, and late ideographs are left out."""
    for code in range(0x110000):
        if code == 0x295 or 0xd800 <= code < 0xe000 or 0x2ebf0 <= code <= 0x2ee5d or unicodedata.category(chr(code)) == "Cn":
            continue
        yield chr(code)


def texts(rng, n_random, every):
    """Every nth assigned character among neighbours; random mixtures; strings that made trouble."""
    characters = list(assigned())
    for i in range(rng.randrange(every), len(characters), every):
        c = characters[i]
        yield "a%sb %s %s%s1%s\n%s'%s  %sA%s中%s.%s\u0301%s" % ((c,) * 12)
    pools = [" ", " \t\n\r", "'’stmdrevlSTMDREVLſ", "abcABC", "ǅʰªÀéß", "中文あア가", "0123456789", "½Ⅻ٣〇", "\u0301\u0327\u20dd",
             ".,!?/-_()[]$+<=>^~|`", "‘“—…。、！～：", "\u00a0\u2003\u3000\u2028\u0085\x0b\x0c", "\x00\x1f\x7f\u200b\ufeff", "😀🏳️‍🌈",
             "".join(characters[:3000]), "".join(characters[3000::97])]
    for _ in range(n_random):
        chosen = rng.sample(pools, rng.randint(1, 5))
        yield "".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 40)))
    for n in range(1, 20):  # runs around the eight bytes that are looked at together
        yield "%s's%sé%sé%s\n%s\n%s%s9%s\u00a0%s" % ("x" * n, " " * n, "Y" * n, "z" * n, " " * n, " " * n, "w" * n, "." * n, " " * n)
        yield "a" * n + "[" + "Z" * n + "@" + "z" * n + "`" + " " * n + "!" + "a" * n + "{" + " " * n + "\x7f" + " " * n + "é" + " " * n
    yield from ["'", "''s", "'S'LL", " 's", "  '", "\n\n a", " \n ", "\t\t", "\u3000\u3000a", "a\u3000", "A\u0301B",
                "中AAAa", "中AAA", "ABc中D", "\u0301AB", " \u0301AB'", "x'sx", "$a$$b", "…a", "/\n/\n//a", "1\u0301", "\x00a\x00\x00"]


def run(program, name, batch):
    data = b"".join(struct.pack("<I", len(t)) + t for t in (text.encode() for text in batch))
    done = subprocess.run([program, name], input=data, capture_output=True, check=True)
    return [[int(end) for end in line.split()] for line in done.stdout.decode().splitlines()]


def main():
    program = os.path.join(os.getcwd(), "tests/unit/text/token/cut_words")
    thorough = len(sys.argv) > 1
    rng = random.Random(sys.argv[1] if thorough else 4)
    # Sanitizers look at how, not at what: a part of the texts does for them.
    every = 1 if thorough else 230 if os.environ.get("BATON_SANITIZED") else 23
    batch = list(texts(rng, 200000 if thorough else 92000 // every, every))
    compiled = {name: [regex.compile(e) for e in passes] for name, passes in RULES.items()}
    same = {name: rule for rule, names in SAME.items() for name in names.split()}
    known = subprocess.run([program], capture_output=True, check=True).stdout.decode().split()
    failed = 0
    for name in sorted(set(RULES) | set(same)):
        if name not in known:
            print("%s is not known to Baton" % name)
            failed += 1
    for name in known:
        some = batch if name in RULES else batch[-500:]
        if name not in RULES and name not in same:
            print("%s has no expression here" % name)
            failed += 1
            continue
        wrong = 0
        for text, ends in zip(some, run(program, name, some)):
            pieces, at = cut(compiled[same.get(name, name)], text), 0
            want = [at := at + len(piece.encode()) for piece in pieces]
            if want != ends:
                wrong += 1
                if wrong <= 3:
                    raw, bounds = text.encode(), [0] + ends
                    print(name, ascii(text), ascii(pieces),
                          ascii([raw[a:b].decode("utf-8", "replace") for a, b in zip(bounds, ends)]))
        print("%-18s %d texts, %d wrong" % (name, len(some), wrong))
        failed += wrong
    return 1 if failed else 0


sys.exit(main())
