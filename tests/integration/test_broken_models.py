# SPDX-License-Identifier: Apache-2.0
"""Broken model files through the commands of baton-model that read one (bench opens them as generate does): each ends by itself, soon, within its memory, and with a
message that names the file.  The files are damaged copies of the demo model, the same in each run.

BATON_FILES=300 tries more files, and each by every command."""
import os
import random
import resource
import struct
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from cluster import BUILD, MODEL, main, patience

TOOL = os.path.join(BUILD, "baton-model")
N_FILES = int(os.environ.get("BATON_FILES", "36"))
IS_FULL = "BATON_FILES" in os.environ
MEMORY = 3 << 30
HUGE = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def head_of(data):
    """The length of all before the tensors' data, about: where the last tensor's name ends."""
    return data.rfind(b"blk.") + 64


def damage(data, number):
    """The file with this number: cut, a length or count replaced, bits flipped, a part repeated or taken away, ill names."""
    rng = random.Random(number)
    data, head = bytearray(data), head_of(data)
    at = rng.randrange(4, head)
    kind = number % 6
    if kind == 0:
        del data[rng.choice((at, head, rng.randrange(head, len(data)), rng.randrange(0, 64))):]
    elif kind == 1:  # counts of tensors and keys, and lengths wherever a key begins
        starts = [8, 16] + [i - 8 for i in (data.find(word, 24) for word in (b"general.", b"tokenizer.", b"llama.", b"blk.0", b"output"))
                            if i > 32]
        place = rng.choice(starts)
        data[place:place + 8] = struct.pack("<Q", rng.choice(HUGE))
    elif kind == 2:  # eight bytes anywhere in the head
        data[at:at + 8] = struct.pack("<Q", rng.choice(HUGE))
    elif kind == 3:
        for _ in range(rng.randrange(1, 200)):
            data[rng.randrange(head)] ^= 1 << rng.randrange(8)
    elif kind == 4:
        length = rng.randrange(1, 4000)
        data[at:at] = data[at:at + length] if rng.random() < 0.5 else b""
        del data[at:at + (0 if rng.random() < 0.5 else length)]
    else:  # a tensor's shape, type or offset: behind its name
        name = rng.choice((b"token_embd.weight", b"blk.0.attn_q.weight", b"blk.0.ffn_down.weight", b"output_norm.weight"))
        place = data.find(name)
        place = place + len(name) + rng.choice((0, 4, 12, 20, 24)) if place > 0 else at
        data[place:place + 8] = struct.pack("<Q", rng.choice(HUGE))
    return bytes(data)


def commands(path, folder):
    out = path + ".out"
    chat = os.path.join(folder, "chat.json")
    return [["info", path], ["info", "--tensors", path], ["tokenize", path, "hello"], ["detokenize", path, "1", "2", "70000"],
            ["render", "--file", chat, path], ["logits", "--ids", "1,2,3", path], ["generate", "--prompt", "hi", "--max-tokens", "2", path],
            ["quantize", "--type", "Q4_0", path, out], ["split", "--parts", "2", path, out], ["merge", path, out],
            ["perplexity", "--text", chat, path]]


def bounded():
    if not os.environ.get("BATON_SANITIZED"):  # AddressSanitizer reserves terabytes
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def run(command, path):
    done = subprocess.run([TOOL, *command], capture_output=True, stdin=subprocess.DEVNULL, timeout=patience(60), preexec_fn=bounded,
                          env={**os.environ, "BATON_TUNE_FILE": os.path.join(os.path.dirname(path), "tune")})
    said = done.stderr.decode(errors="replace")
    assert done.returncode in (0, 1, 2), (command, done.returncode, said[-2000:])
    assert "Sanitizer" not in said and "runtime error" not in said, (command, said[-3000:])
    if done.returncode != 0:
        assert said.strip(), (command, "no message")
        assert len(said) < 4000, (command, len(said))
        assert "usage" in said.lower() or os.path.basename(path) in said or "not" in said, (command, said)
    return done.returncode


def every_command_survives_broken_files():
    with open(MODEL, "rb") as f:
        good = f.read()
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        with open(os.path.join(folder, "chat.json"), "w") as f:
            f.write('{"messages": [{"role": "user", "content": "hello there"}]}')

        def one(number):
            path = os.path.join(folder, f"broken-{number}.gguf")
            with open(path, "wb") as f:
                f.write(damage(good, number))
            all_ = commands(path, folder)
            chosen = all_ if IS_FULL else [all_[0]] + random.Random(number).sample(all_[1:], 2)
            codes = [run(command, path) for command in chosen]
            for name in os.listdir(folder):
                if name.startswith(f"broken-{number}.gguf"):
                    os.unlink(os.path.join(folder, name))
            return codes

        with ThreadPoolExecutor(2) as pool:
            codes = [code for some in pool.map(one, range(N_FILES)) for code in some]
        assert codes.count(0) < len(codes), "no file was refused"
        print(f"{N_FILES} files, {len(codes)} commands, {len(codes) - codes.count(0)} refused")


def every_command_takes_the_whole_file():
    """Otherwise what refuses broken files may be a wrong option of this test."""
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        path = os.path.join(folder, "whole.gguf")
        os.symlink(MODEL, path)
        with open(os.path.join(folder, "chat.json"), "w") as f:
            f.write('{"messages": [{"role": "user", "content": "hello there"}]}')
        for command in commands(path, folder):
            code = run(command, path)
            assert code == 0 or command[0] in ("merge", "detokenize"), (command, code)  # it is no part; an id is out of range


if __name__ == "__main__":
    main([every_command_takes_the_whole_file, every_command_survives_broken_files])
