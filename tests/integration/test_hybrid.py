# SPDX-License-Identifier: Apache-2.0
"""Hybrid models through the whole relay: short convolutions and gated delta nets, whose state moves with the keys and
values.

The models are random, so an answer is noise; but it is the same noise on every path, token by token."""
import os
import subprocess

from cluster import BUILD, MODEL, Cluster, in_threads, main
from test_prefix_fetch import use_only
from test_tier import ready, saved, saved_what_is_kept

BLOCK, NAME = 32, "hybrid"
TEXT = " ".join(f"Line {i} of a text that is asked about on several ways." for i in range(14))
SHAPE = ("--layers 4 --hidden 64 --heads 4 --head-dim 16 --kv-heads 2 --ffn 96 --context 2048 --type F32 "
         f"--vocab-from {MODEL}").split()
FAMILIES = {
    "lfm2": "--set attention.head_count_kv=0,2,0,0",
    "qwen35": "--set ssm.state_size=16 --set ssm.group_count=2 --set ssm.time_step_rank=4 --set ssm.inner_size=64",
    "kimi-linear": "--set attention.head_count_kv=0,1,0,0 --set attention.kv_lora_rank=32 --set attention.key_length_mla=24 "
                   "--set attention.value_length_mla=16 --set rope.dimension_count=8 --set kda.head_dim=16 "
                   "--set expert_count=4 --set expert_used_count=2 --set expert_feed_forward_length=32",
}


def model(c, family):
    path = os.path.join(c.dir, family + ".gguf")
    command = [os.path.join(BUILD, "baton-model"), "make", "--arch", family, *SHAPE, *FAMILIES[family].split(), path]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def ask(c, text, **fields):
    return c.ask(text, model=NAME, **fields)


def three(c, family, **settings):
    settings.update(model__path=model(c, family), model__name=NAME)
    c.router()
    c.worker("prefill", **settings)
    c.worker("decode", **settings)
    c.wait_ready(prefill=1, decode=1)
    return c.workers


KINDS = {"lfm2": ("attention", "recurrent"), "qwen35": ("attention", "recurrent"),
         "kimi-linear": ("attention", "recurrent")}
WINDOWED = ()  # families with windowed layers beside full ones


def check_kinds(family, serving):
    """A hand-off's bytes are counted by kind, and a model has some of each of its kinds."""
    counts = serving["transferred_bytes"]
    kinds = KINDS.get(family, ("attention",))
    assert all((n > 0) == (kind in kinds) for kind, n in counts.items()), (family, serving)


def handed_off(family, transport, **settings):
    with Cluster() as c:
        _, decode = three(c, family, **settings)
        prompts = [f"Number {i}. " + TEXT for i in range(4)]
        through = in_threads([lambda p=p: ask(c, p, max_tokens=48) for p in prompts])
        for prompt, answer in zip(prompts, through):
            assert answer.serving["transport"] == transport, answer.serving
            assert answer.serving["transferred"] > 0, answer.serving
            check_kinds(family, answer.serving)
            alone = ask(c, "One worker. " + prompt, port=decode.http, max_tokens=48)
            both = ask(c, "One worker. " + prompt, max_tokens=48)
            assert alone.text == both.text, (alone.text, both.text)
            again = ask(c, prompt, port=decode.http, max_tokens=48)
            assert again.text == answer.text, (again.text, answer.text)
        c.assert_quiet()


def convolutions_are_handed_off():
    handed_off("lfm2", "shm")


def delta_nets_are_handed_off_over_tcp():
    handed_off("qwen35", "tcp", kv__transport="tcp", kv__tcp_encrypt="no")


def nets_that_fade_by_keys_are_handed_off():
    handed_off("kimi-linear", "shm")


def a_repeated_prompt_is_reused_to_its_last_block():
    for family in FAMILIES:
        with Cluster() as c:
            c.router()
            worker = c.worker("decode", model__path=model(c, family), model__name=NAME)
            c.wait_ready(decode=1)
            first = ask(c, TEXT, port=worker.http, max_tokens=24)
            second = ask(c, TEXT, port=worker.http, max_tokens=24)
            prompt = second.serving["prompt"]
            assert second.text == first.text
            assert second.serving["reused"] == (prompt - 1) // BLOCK * BLOCK, second.serving
            c.assert_quiet()


def whole_blocks(answer):
    return (answer.serving["prompt"] - 1) // BLOCK * BLOCK


def a_restarted_worker_reads_the_state_from_disk():
    for family in FAMILIES:
        with Cluster() as c:
            c.router()
            worker = c.worker("decode", model__path=model(c, family), model__name=NAME, kv__disk_size="256MiB",
                              kv__disk_path=c.dir + "/store")
            ready(worker)
            first = ask(c, TEXT, port=worker.http, max_tokens=24)
            (saved_what_is_kept if family in WINDOWED else saved)(worker)
            worker.stop()
            ready(worker.start())
            second = ask(c, TEXT, port=worker.http, max_tokens=24)
            assert second.text == first.text, (first.text, second.text)
            assert second.serving["reused"] == whole_blocks(second), second.serving
            c.assert_quiet()


def a_prefix_fetch_brings_the_state():
    for family in FAMILIES:
        with Cluster() as c:
            c.router(placement__prefix_fetch="always")
            for _ in range(2):
                c.worker("decode", model__path=model(c, family), model__name=NAME)
            c.wait_ready(decode=2)
            use_only(c, ["decode0"])
            first = ask(c, TEXT, max_tokens=24)
            use_only(c, ["decode1"])
            second = ask(c, TEXT, max_tokens=24)
            assert second.serving["decode"] == "decode1", second.serving
            assert second.text == first.text, (first.text, second.text)
            assert second.serving["transferred"] == whole_blocks(second), second.serving
            c.assert_quiet()


if __name__ == "__main__":
    main([convolutions_are_handed_off, delta_nets_are_handed_off_over_tcp, nets_that_fade_by_keys_are_handed_off, a_repeated_prompt_is_reused_to_its_last_block,
          a_restarted_worker_reads_the_state_from_disk, a_prefix_fetch_brings_the_state])
