# SPDX-License-Identifier: Apache-2.0
"""A model in several files through the daemons: any part's name will do, and a folder that lacks one is refused."""
import math
import os
import re
import shutil
import struct
import subprocess

from cluster import BUILD, MODEL, SOURCE, Cluster, main, patience
from container import limited
from gguf_file import GgufFile

TOOL = os.path.join(BUILD, "baton-model")
DEMO = os.path.join(SOURCE, "share", "baton-demo.gguf")
PROMPT = "Tell me what a hand-off is in Baton, and why it matters, and what a prefill worker does. " * 3


def split(folder, n=3):
    subprocess.run([TOOL, "split", "--parts", str(n), MODEL, os.path.join(folder, "tiny")], check=True, timeout=patience(60))
    return [os.path.join(folder, f"tiny-{i:05}-of-{n:05}.gguf") for i in range(1, n + 1)]


def logits(path):
    run = subprocess.run([TOOL, "logits", "--ids", "1,2,3", "--top", "5", path], capture_output=True, text=True,
                         timeout=patience(60), check=True)
    return run.stdout


def two_workers_serve_it_by_different_parts():
    """Prefill gets the name of part 2, decode of part 3: the same fingerprint, so the KV is handed over, and the same text."""
    with Cluster() as c:
        parts = split(c.dir)
        c.router()
        c.worker("prefill", model__path=parts[1])
        c.worker("decode", model__path=parts[2])
        c.wait_ready(prefill=1, decode=1)
        answer = c.ask(PROMPT, model="tiny", max_tokens=24)
        assert answer.serving["transferred"] > 0, answer.serving
        with Cluster() as whole:
            whole.router()
            for role in ("prefill", "decode"):
                whole.worker(role)
            whole.wait_ready(prefill=1, decode=1)
            assert whole.ask(PROMPT, max_tokens=24).text == answer.text, answer.text


def a_missing_part_ends_the_start_with_its_name():
    with Cluster() as c:
        parts = split(c.dir)
        os.unlink(parts[1])
        conf = os.path.join(c.dir, "empty.conf")
        open(conf, "w").close()
        line = [os.path.join(BUILD, "baton-decode"), "--config", conf, "--check-config", "--set", f"model.path={parts[0]}",
                "--set", f"link.cluster_key={c.key}"]
        run = subprocess.run(line, capture_output=True, text=True, timeout=patience(20))
        assert run.returncode != 0, run
        assert "part 'tiny-00002-of-00003.gguf': cannot open" in run.stdout + run.stderr, run


def the_name_without_number_and_ending_must_fit():
    """A part's name of 147 bytes is a model's name of 127."""
    with Cluster() as c:
        conf = os.path.join(c.dir, "empty.conf")
        open(conf, "w").close()
        for n, status in ((127, 0), (128, 1)):
            subprocess.run([TOOL, "split", "--parts", "2", MODEL, os.path.join(c.dir, "n" * n)], check=True, timeout=patience(60))
            path = os.path.join(c.dir, "n" * n + "-00001-of-00002.gguf")
            line = [os.path.join(BUILD, "baton-decode"), "--config", conf, "--check-config", "--set", f"model.path={path}",
                    "--set", f"link.cluster_key={c.key}"]
            run = subprocess.run(line, capture_output=True, text=True, timeout=patience(20))
            assert (run.returncode != 0) == status and ("is too long" in run.stdout + run.stderr) == status, run


def merged_parts_are_the_model_again():
    with Cluster() as c:
        parts = split(c.dir, 5)
        whole = os.path.join(c.dir, "whole.gguf")
        subprocess.run([TOOL, "merge", parts[3], whole], check=True, timeout=patience(60))
        again = subprocess.run([TOOL, "merge", parts[3], whole], capture_output=True, text=True, timeout=patience(60))
        assert again.returncode == 1 and "exists already" in again.stderr, again
        assert logits(whole) == logits(parts[2]) == logits(MODEL)
        smaller = os.path.join(c.dir, "q4.gguf")
        subprocess.run([TOOL, "quantize", "--type", "Q4_0", parts[4], smaller], check=True, capture_output=True,
                       timeout=patience(60))
        shutil.move(smaller, os.path.join(c.dir, "elsewhere.gguf"))  # one file: its name is free
        assert "token" in logits(os.path.join(c.dir, "elsewhere.gguf"))


def no_part_behind_a_link_is_overwritten():
    """A link of another name leads to part 2; part 1, beside the target, is a file that the command reads, too."""
    with Cluster() as c:
        parts, link = split(c.dir), os.path.join(c.dir, "current.gguf")
        os.symlink(parts[1], link)
        assert logits(link) == logits(MODEL)
        with open(parts[0], "rb") as f:
            before = f.read()
        run = subprocess.run([TOOL, "quantize", "--force", "--type", "Q4_0", link, parts[0]], capture_output=True, text=True, timeout=patience(60))
        assert run.returncode == 1 and "is a file that the command reads" in run.stderr, run
        with open(parts[0], "rb") as f:
            assert f.read() == before


def a_split_that_fails_leaves_no_part():
    """The third name is taken, so the first two parts are of no use."""
    with Cluster() as c:
        taken = os.path.join(c.dir, "tiny-00003-of-00004.gguf")
        open(taken, "w").close()
        before = sorted(os.listdir(c.dir))
        run = subprocess.run([TOOL, "split", "--parts", "4", MODEL, os.path.join(c.dir, "tiny")], capture_output=True, text=True,
                             timeout=patience(60))
        assert run.returncode == 1 and f"{taken}: exists already" in run.stderr, run
        assert sorted(os.listdir(c.dir)) == before, os.listdir(c.dir)



def a_split_that_is_refused_spares_older_parts():
    """The third name is the model itself; the first two are files of before, which --force would replace."""
    with Cluster() as c:
        names = [os.path.join(c.dir, f"tiny-0000{i}-of-00003.gguf") for i in (1, 2, 3)]
        for name in names[:2]:
            with open(name, "w") as f:
                f.write("old")
        os.symlink(os.path.abspath(MODEL), names[2])
        run = subprocess.run([TOOL, "split", "--force", "--parts", "3", MODEL, os.path.join(c.dir, "tiny")], capture_output=True,
                             text=True, timeout=patience(60))
        assert run.returncode == 1 and "is a file that the command reads" in run.stderr, run
        for name in names[:2]:
            with open(name) as f:
                assert f.read() == "old", name


def weights_above_the_machines_memory_are_refused():
    """A small model's keys with feed-forward layers that this machine's memory cannot hold; on the disk they are holes.
    The daemon and the tool refuse it before they pack anything."""
    with open("/proc/meminfo") as f:
        kib = sum(int(line.split()[1]) for line in f if line.startswith(("MemTotal", "SwapTotal")))
    with Cluster() as c:
        path, ffn = os.path.join(c.dir, "huge.gguf"), 1 << 22
        subprocess.run([TOOL, "make", *"--layers 1 --hidden 256 --heads 4 --kv-heads 2 --ffn 256 --tied --vocab-from".split(), MODEL, path],
                       check=True, capture_output=True, timeout=patience(60))
        model = GgufFile(path)
        hidden, heads, layers = (model.keys["llama." + k] for k in ("embedding_length", "attention.head_count", "block_count"))
        kv = hidden // heads * model.keys["llama.attention.head_count_kv"]
        n_layers = kib * 1024 // (3 * 4 * ffn * hidden) + 1
        keys = bytearray(model.data[24:model.keys_end])
        for name, old, new in (("feed_forward_length", model.keys["llama.feed_forward_length"], ffn), ("block_count", layers, n_layers)):
            before = f"llama.{name}".encode() + struct.pack("<II", 4, old)
            assert keys.count(before) == 1, name
            keys = keys.replace(before, before[:-4] + struct.pack("<I", new))
        tensors = [("token_embd.weight", (hidden, model.keys["llama.vocab_size"])), ("output_norm.weight", (hidden,))]
        for i in range(n_layers):
            tensors += [(f"blk.{i}.{name}.weight", dims) for name, dims in (
                ("attn_norm", (hidden,)), ("ffn_norm", (hidden,)), ("attn_q", (hidden, hidden)), ("attn_k", (hidden, kv)),
                ("attn_v", (hidden, kv)), ("attn_output", (hidden, hidden)), ("ffn_gate", (hidden, ffn)), ("ffn_up", (hidden, ffn)),
                ("ffn_down", (ffn, hidden)))]
        infos, offset = b"", 0
        for name, dims in tensors:
            infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
            offset += (4 * math.prod(dims) + 31) // 32 * 32
        head = model.data[:8] + struct.pack("<QQ", len(tensors), struct.unpack_from("<Q", model.data, 16)[0]) + keys + infos
        with open(path, "wb") as f:
            f.write(head)
            f.truncate((len(head) + 31) // 32 * 32 + offset)
        conf = os.path.join(c.dir, "empty.conf")
        open(conf, "w").close()
        daemon = [os.path.join(BUILD, "baton-decode"), "--config", conf, "--set", f"model.path={path}", "--set", f"link.cluster_key={c.key}"]
        for line in ([*daemon, "--check-config"], daemon, [TOOL, "logits", "--ids", "1", path]):
            run = subprocess.run(line, capture_output=True, text=True, timeout=patience(60))
            assert run.returncode != 0, run
            assert re.search(r"its weights take [0-9.]+ GiB, this machine's memory and swap have [0-9.]+ GiB\n", run.stdout + run.stderr), run
        run = subprocess.run([*daemon, "--check-config", "--set", f"model.path={DEMO}", "--set", f"kv.memory={kib * 1024}"], capture_output=True,
                             text=True, timeout=patience(60))
        assert run.returncode != 0 and re.search(r"beside [0-9.]+ GiB of kv.memory, this machine's memory and swap have [0-9.]+ GiB; lower kv.memory\n",
                                                 run.stderr), run


def the_limit_of_a_container_counts():
    """The machine would hold the weights and the KV.  The message says which limit is too low, and how to raise it."""
    mib = 1 << 20
    raised = r" \(raise its limit: docker run --memory, resources.limits.memory of a pod, MemoryMax= of a unit\)"
    owner = "the memory and swap of its container or service"
    with Cluster() as c:
        conf, daemon = os.path.join(c.dir, "empty.conf"), os.path.join(BUILD, "baton-decode")
        open(conf, "w").close()
        for limit, kv, said in ((mib, 64 * mib, f"kv.memory: 64MiB is more than {owner}, 1MiB{raised}"),
                                (mib, mib, rf"its weights take 0\.[0-9]+ GiB, {owner} have 0\.00 GiB{raised}\n"),
                                (128 * mib, 127 * mib, rf"its weights take 0\.[0-9]+ GiB beside 0\.12 GiB of kv.memory, {owner} have 0\.12 GiB{raised}, or lower kv\.memory\n"),
                                (1024 * mib, None, rf"its weights take 0\.[0-9]+ GiB beside 1\.00 GiB of kv.memory, {owner} have 1\.00 GiB{raised}, or lower kv\.memory\n"),
                                (1024 * mib, 127 * mib, "")):
            run = limited(c.dir, limit, [daemon, "--config", conf, "--check-config", "--set", f"model.path={DEMO}",
                                         *(["--set", f"kv.memory={kv}"] if kv else []), "--set", f"link.cluster_key={c.key}"])
            if run is None:
                return
            run = subprocess.run(run, capture_output=True, text=True, timeout=patience(60))
            assert (run.returncode == 0) == (said == "") and re.search(said, run.stdout + run.stderr), (said, run)


if __name__ == "__main__":
    main([two_workers_serve_it_by_different_parts, a_missing_part_ends_the_start_with_its_name, merged_parts_are_the_model_again,
          the_name_without_number_and_ending_must_fit, a_split_that_fails_leaves_no_part, a_split_that_is_refused_spares_older_parts,
          no_part_behind_a_link_is_overwritten,
          weights_above_the_machines_memory_are_refused, the_limit_of_a_container_counts])
