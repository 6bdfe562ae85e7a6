# SPDX-License-Identifier: Apache-2.0
"""Layers that read the keys and values of earlier layers (the shapes of Gemma 4 E2B and Gemma 3n) through router, prefill
and decode.

The models have random weights, and their last three layers store nothing. Gemma 4's layers have two widths of heads. So a
hand-off moves three of six layers. An answer is the same after a hand-off, from a cached prefix, and from one worker."""
import os
import subprocess
import tempfile

from cluster import BUILD, Cluster, main

TOOL = os.path.join(BUILD, "baton-model")
COMMON = ("--type Q8_0 --layers 6 --hidden 128 --heads 4 --kv-heads 2 --head-dim 64 --ffn 256 --context 2048 "
          "--set attention.sliding_window=100 --set attention.sliding_window_pattern=3 --set attention.shared_kv_layers=3 "
          "--set embedding_length_per_layer_input=32 --seed 3 ")
GEMMA4 = ("--arch gemma4 --set attention.key_length_swa=32 --set attention.value_length_swa=32 --set rope.dimension_count_swa=32 "
          "--set feed_forward_length=256,256,256,512,512,512 --with attn_v "
          "--with layer_output_scale --with rope_freqs ")
GEMMA3N = "--arch gemma3n --set laurel_rank=32 "
LONG = "The baton passes from one runner to the next, and no hand may lose it. " * 8


def answers_are_the_same_handed_over_or_not(shape):
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "shared.gguf")
        subprocess.run([TOOL, "make", *shape.split(), *COMMON.split(), model], check=True, capture_output=True)
        with Cluster() as c:
            c.router()
            for role in ("prefill", "decode"):
                c.worker(role, model__path=model, model__name="shared", kv__memory="64MiB")
            c.wait_ready(prefill=1, decode=1)
            first = c.ask(LONG, model="shared", max_tokens=24)
            assert first.serving["transferred"] > 0, first.serving
            again = c.ask(LONG, model="shared", max_tokens=24)
            assert again.usage["cache_read_input_tokens"] > 0, again.usage
            direct = c.ask(LONG, port=c.workers[1].http, model="shared", max_tokens=24)
            alone = c.ask(LONG + "!", port=c.workers[0].http, model="shared", max_tokens=24)
            handed = c.ask(LONG + "!", model="shared", max_tokens=24)
            assert first.text and first.text == again.text == direct.text, (first.text, again.text, direct.text)
            assert alone.text == handed.text, (alone.text, handed.text)
            c.assert_quiet()


def an_answer_is_the_same_handed_over_or_not():
    answers_are_the_same_handed_over_or_not(GEMMA4)


def it_is_the_same_with_several_streams():
    answers_are_the_same_handed_over_or_not(GEMMA3N)


main([an_answer_is_the_same_handed_over_or_not, it_is_the_same_with_several_streams])
