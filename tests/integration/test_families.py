# SPDX-License-Identifier: Apache-2.0
"""Models with layers of different attention, and experts without gates, through the whole relay.

The tests come from test_hybrid.py. The keys of a sparse-attention indexer lie in the blocks of the attention keys, so
hand-off, cache, disk and prefix fetch move them together."""
import test_hybrid
from cluster import main

LATENT = ("--set attention.kv_lora_rank=32 --set attention.q_lora_rank=32 --set attention.key_length=24 "
          "--set attention.value_length=16 --set rope.dimension_count=8 --set expert_count=8 --set expert_used_count=3 "
          "--set expert_feed_forward_length=32 --set attention.indexer.head_count=4 --set attention.indexer.key_length=16 "
          "--set attention.indexer.top_k=40")
SSM = "--set ssm.state_size=16 --set ssm.group_count=2 --set ssm.time_step_rank=4 --set ssm.inner_size=128"
test_hybrid.FAMILIES = {
    "deepseek32": LATENT,
    "glm-dsa": LATENT + " --set attention.indexer.types=1,0,1,0",
    "llama4": "--set attention.sliding_window=64 --set attention.temperature_length=50 --set expert_count=8 "
              "--set expert_feed_forward_length=32 --set interleave_moe_layer_step=2",
    "nemotron_h_moe": SSM + " --set attention.head_count_kv=0,2,0,0 --set feed_forward_length=0,0,32,0 "
                      "--set expert_count=8 --set expert_used_count=3 --set expert_feed_forward_length=32 "
                      "--set expert_shared_feed_forward_length=48",
}

test_hybrid.WINDOWED = ("llama4",)
test_hybrid.KINDS = {"deepseek32": ("attention", "index"), "glm-dsa": ("attention", "index"),
                     "nemotron_h_moe": ("attention", "recurrent")}


def chosen_keys_are_handed_off():
    test_hybrid.handed_off("deepseek32", "shm")


def shared_choices_are_handed_off_over_tcp():
    test_hybrid.handed_off("glm-dsa", "tcp", kv__transport="tcp", kv__tcp_encrypt="no")


def chunks_are_handed_off():
    test_hybrid.handed_off("llama4", "shm")


def experts_beside_mamba_are_handed_off_over_tcp():
    test_hybrid.handed_off("nemotron_h_moe", "tcp", kv__transport="tcp", kv__tcp_encrypt="no")


if __name__ == "__main__":
    main([chosen_keys_are_handed_off, shared_choices_are_handed_off_over_tcp, chunks_are_handed_off,
          experts_beside_mamba_are_handed_off_over_tcp, test_hybrid.a_repeated_prompt_is_reused_to_its_last_block,
          test_hybrid.a_restarted_worker_reads_the_state_from_disk, test_hybrid.a_prefix_fetch_brings_the_state])
