# SPDX-License-Identifier: Apache-2.0
"""Mamba 2 through the whole relay: in place of attention (Nemotron H), beside it (Falcon H1), and alone (Mamba 2).

The tests come from test_hybrid.py, whose models have other recurrent layers. With Mamba 2 alone, a block holds only parts
of states, no keys and values."""
import test_hybrid
from cluster import main

SSM = "--set ssm.state_size=16 --set ssm.group_count=2 --set ssm.time_step_rank=4 --set ssm.inner_size=128 --with ssm_conv1d.bias "
test_hybrid.FAMILIES = {
    "nemotron_h": SSM + "--set attention.head_count_kv=0,2,0,0 --set feed_forward_length=0,0,96,0",
    "falcon-h1": SSM,
    "mamba2": SSM,
}

test_hybrid.KINDS = {family: ("attention", "recurrent") for family in test_hybrid.FAMILIES}


def mamba_alone_is_handed_off():
    test_hybrid.handed_off("mamba2", "shm")


def mamba_beside_attention_is_handed_off_over_tcp():
    test_hybrid.handed_off("falcon-h1", "tcp", kv__transport="tcp", kv__tcp_encrypt="no")


if __name__ == "__main__":
    main([mamba_alone_is_handed_off, mamba_beside_attention_is_handed_off_over_tcp,
          test_hybrid.a_repeated_prompt_is_reused_to_its_last_block, test_hybrid.a_restarted_worker_reads_the_state_from_disk,
          test_hybrid.a_prefix_fetch_brings_the_state])
