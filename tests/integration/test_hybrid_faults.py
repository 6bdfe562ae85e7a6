# SPDX-License-Identifier: Apache-2.0
"""Cells of the fault matrix with recurrent state: test_matrix.py with real engines and models whose layers are gated
delta nets, or Mamba 2 with experts.

The state is sent when its layer's last chunk is done, behind all keys and values. A transfer that is hit before leaves a
state that must never be read: the answer has the tokens of an undisturbed run all the same, computed again where need be.
BATON_FULL=1 or --full runs all cells of the two phases of a transfer; --only=WORD picks by name."""
import os
import subprocess
import sys

import cluster
import test_matrix
from test_matrix import Cell, Rig

NAME = "hybrid"
SHAPE = ("--layers 6 --hidden 384 --heads 6 --head-dim 64 --kv-heads 2 --ffn 1024 --context 16384 --type F32 "
         f"--vocab-from {cluster.MODEL}").split()
SSM = "--set ssm.state_size=32 --set ssm.group_count=2 --set ssm.time_step_rank=8 --set ssm.inner_size=256"
FAMILIES = {
    "tcp": ("qwen35", SSM),
    "shm": ("nemotron_h_moe", SSM + " --set attention.head_count_kv=0,2,0,0,0,2 --set feed_forward_length=0,0,512,0,512,0 "
            "--set expert_count=4 --set expert_used_count=3 --set expert_feed_forward_length=512 "
            "--set expert_shared_feed_forward_length=512"),
}
SAMPLE = {"tcp": [("prefill", "kill -9", "mid-transfer", True), ("decode", "kill -9", "mid-transfer", True),
                  ("data", "cut", "mid-transfer", True), ("link", "cut", "after the last", True)],
          "shm": [("prefill", "restart", "mid-transfer", True), ("decode", "kill -9", "mid-transfer", False),
                  ("link", "cut", "mid-transfer", True), ("both", "restart", "after the last", True)]}


class HybridRig(Rig):
    heartbeat_s = 1.0 # a real engine keeps the processor busy
    most_repeats = 8

    def __init__(self, c, transport):
        family, keys = FAMILIES[transport]
        self.path = os.path.join(c.dir, family + ".gguf")
        command = [os.path.join(cluster.BUILD, "baton-model"), "make", "--arch", family, *SHAPE, *keys.split(), self.path]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        super().__init__(c, transport)

    def settings(self):
        return {"model__path": self.path, "model__name": NAME, "kv__transport": self.transport, "kv__tcp_encrypt": "no",
                "link__heartbeat": f"{self.heartbeat_s * 1000:.0f}ms", "sched__chunk_tokens": "32"}


def chosen(transport, is_full, only):
    phases = ("mid-transfer", "after the last")
    cells = [cell for cell in test_matrix.all_cells() if cell.phase in phases and only in str(cell)]
    return cells if is_full or only else [Cell(*sample) for sample in SAMPLE[transport]]


def main():
    args = dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:])
    is_full = "full" in args or bool(os.environ.get("BATON_FULL"))
    if not os.path.exists(cluster.MODEL):
        print(f"no bundled model at {cluster.MODEL}")
        sys.exit(77)
    test_matrix.ASK.update(model=NAME, max_tokens=24)
    done = []
    for transport in FAMILIES:
        cells = chosen(transport, is_full, args.get("only", ""))
        done += [(transport, cell) for cell in test_matrix.run_all(transport, cells, HybridRig)]
    test_matrix.table(done)


if __name__ == "__main__":
    main()
