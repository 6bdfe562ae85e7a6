#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-model quantize of NVFP4 with scales beside its tensors: the scales are in the weights of the result, which has none
beside them, and it answers as the source does."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, main, patience  # noqa: E402
from gguf_file import GgufFile  # noqa: E402

SHAPE = ["--layers", "2", "--hidden", "256", "--heads", "4", "--kv-heads", "2", "--ffn", "512", "--vocab", "600", "--context", "512"]


class Folder:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def model(self, *words, status=0):
        run = subprocess.run([os.path.join(BUILD, "baton-model"), *words], capture_output=True, text=True, timeout=patience(60))
        assert run.returncode == status, (words, run.returncode, run.stderr)
        return run.stdout if status == 0 else run.stderr

    def make(self, scales, *options):
        """Makes plain.gguf of NVFP4, and scaled.gguf with these tensors besides."""
        self.model("make", *SHAPE, "--type", "NVFP4", *options, self.at("plain.gguf"))
        GgufFile(self.at("plain.gguf")).write_with_more(self.at("scaled.gguf"), scales)

    def floats(self, name):
        self.model("quantize", "--type", "F32", "--force", self.at(name), self.at("out.gguf"))
        return GgufFile(self.at("out.gguf")).tensors

    def logits(self, name):
        lines = self.model("logits", "--ids", "1,2,3", "--top", "600", self.at(name)).split("\n")
        rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
        assert len(rows) == 600, len(rows)
        return {row[0]: float(row[1]) for row in rows}

    def differ(self, a, b):
        a, b = self.logits(a), self.logits(b)
        return max(abs(a[token] - b[token]) for token in a)


def scales_are_in_the_weights():
    with Folder() as f:
        f.make({"blk.0.ffn_up.scale": [3.0], "blk.0.ffn_up.input_scale": [0.25], "blk.1.attn_q.weight.scale": [0.5]})
        plain, scaled = f.floats("plain.gguf"), f.floats("scaled.gguf")
        assert plain.keys() == scaled.keys(), scaled.keys() - plain.keys()
        factors = {"blk.0.ffn_up.weight": 3.0, "blk.1.attn_q.weight": 0.5}
        for name, floats in plain.items():
            assert scaled[name] == tuple(factors.get(name, 1.0) * value for value in floats), name
        assert f.differ("scaled.gguf", "out.gguf") < 0.3
        assert f.differ("scaled.gguf", "plain.gguf") > 0.3


def each_expert_has_its_scale():
    with Folder() as f:
        f.make({"blk.0.ffn_up_exps.scale": [1.0 + n for n in range(8)], "blk.0.ffn_up_exps.input_scale": [2.0] * 8},
               "--arch", "qwen3moe", "--set", "expert_count=8", "--set", "expert_feed_forward_length=256")
        plain, scaled = f.floats("plain.gguf"), f.floats("scaled.gguf")
        assert plain.keys() == scaled.keys()
        floats = plain["blk.0.ffn_up_exps.weight"]
        each = len(floats) // 8
        assert scaled["blk.0.ffn_up_exps.weight"] == tuple(value * (1.0 + i // each) for i, value in enumerate(floats))
        f.logits("out.gguf")


def a_wrong_scale_is_named():
    with Folder() as f:
        for floats in ([1.0, 2.0], [float("nan")]):
            f.make({"blk.0.ffn_up.scale": floats})
            complaint = f.model("quantize", "--type", "F16", f.at("scaled.gguf"), f.at("out.gguf"), status=1)
            assert "blk.0.ffn_up.scale" in complaint, complaint
            assert not os.path.exists(f.at("out.gguf"))


main([scales_are_in_the_weights, each_expert_has_its_scale, a_wrong_scale_is_named])
