# SPDX-License-Identifier: Apache-2.0
"""Prefix fetches between workers in the test machine, over verbs; both directions between the roles.

A worker reads a prompt at its own endpoint, so that only it has the prompt's KV. Then the worker drains, and the router gets
the same prompt.  The chosen worker lacks the blocks, asks the owner for them, and gets a push.

    decode0 asks prefill0      the only one open to requests is decode0, which does both phases
    prefill0 asks decode0      open are prefill0 and decode1: the fetched blocks are handed on

The answer must equal the owner's answer. The engine is the simulated one, which checks its KV in every step. Five sources
show that verbs carried the blocks: the serving stats, both workers' status, the kernel's list of queue pairs, the packet
counts of the devices, and the loopback device, which would have carried the KV by TCP.
"""
from cluster import Cluster, main
from matrix import PIECE_BYTES, SETTINGS, bytes_over_loopback, objects, packets_received
from test_matrix import PROMPT, SIM
from test_prefix_fetch import use_only

BLOCK_TOKENS = SETTINGS["kv__block_tokens"]
BLOCK_BYTES = 2 * PIECE_BYTES  # two layers
PACKET_BYTES = 4096
LONG = PROMPT * 3  # so that its KV is far more than daemons say to each other meanwhile, also on a slow machine
ASK = {"max_tokens": 16, "temperature": 1, "seed": 5}
QUICK = {"engine__sim_prefill_token": "1ms", "sched__max_seqs": "16"}  # asking leaves room in the pool for so many
ASKED = ("baton_prefix_fetch_tokens_total", "baton_prefix_fetch_bytes_total", 'baton_prefix_fetches_total{result="done"}')
LENT = ("baton_prefix_serve_tokens_total", 'baton_prefix_serves_total{result="done"}')
HANDED = ("baton_transfer_received_bytes_total",)


def counters(cluster):
    return {w.name: {name: int(w.metric(name)) for name in ASKED + LENT + HANDED} for w in cluster.workers}


def came_over_verbs(asker, owner):
    """The transport between the two, as both workers and the kernel report it."""
    for one, other in ((asker, owner), (owner, asker)):
        peer = next(peer for peer in one.status()["peers"] if peer["node"] == other.name)
        assert peer["up"] and peer["transport"] == "rdma", (one.name, peer)
    pairs = [q for q in objects("qp") if q["state"] == "RTS"]
    of = {d: {(q["ifname"], q["lqpn"]) for q in pairs if q["process"] == d.process.pid} for d in (asker, owner)}
    far = {(q["ifname"], q["rqpn"]) for q in pairs if q["process"] == asker.process.pid}
    assert far & of[owner], ("no queue pair between", asker.name, owner.name, pairs)


def ask_again(cluster, owner, asker, prompt, workers):
    """The prompt on its owner alone, then by the router on these workers.  Returns the second answer's serving stats and how many of its tokens
    were asked for: every whole block but the one of the last token, which is computed in any case."""
    alone = cluster.ask(prompt, port=owner.http, **ASK)
    assert alone.serving["computed"] == alone.serving["prompt"], alone.serving
    use_only(cluster, workers)
    before = counters(cluster)
    packets, loopback = packets_received(), bytes_over_loopback()
    answer = cluster.ask(prompt, **ASK)
    packets, loopback = packets_received() - packets, bytes_over_loopback() - loopback
    gained = {name: {key: now[key] - before[name][key] for key in now} for name, now in counters(cluster).items()}
    serving = answer.serving
    n_asked = (serving["prompt"] - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    asked_bytes = n_asked // BLOCK_TOKENS * BLOCK_BYTES
    print(f"  {asker.name} asked {owner.name}: {serving['prompt']} prompt tokens, {serving['computed']} computed, {n_asked} asked for, "
          f"{gained[asker.name][ASKED[1]]} bytes; {packets} packets, {loopback} bytes over the loopback device", flush=True)
    assert alone.text and answer.text == alone.text, (answer.text, alone.text, serving)
    assert serving["computed"] == serving["prompt"] - n_asked and serving["transport"] == "rdma", (serving, gained, asker.tail(30))

    handed_bytes = sum(row[HANDED[0]] for row in gained.values())
    for name, row in gained.items():
        assert [row[key] for key in ASKED] == ([n_asked, asked_bytes, 1] if name == asker.name else [0, 0, 0]), (name, gained)
        assert [row[key] for key in LENT] == ([n_asked, 1] if name == owner.name else [0, 0]), (name, gained)
    assert packets * PACKET_BYTES >= asked_bytes + handed_bytes and loopback < asked_bytes, (packets, loopback, gained)
    came_over_verbs(asker, owner)
    return serving, n_asked, handed_bytes


def asked_in_both_directions():
    with Cluster() as c:
        c.router(placement__prefix_fetch="always", placement__local_prefill_tokens="1", link__heartbeat="1s")
        prefill, decode, _ = (c.worker(role, **{**SIM, **SETTINGS, **QUICK}) for role in ("prefill", "decode", "decode"))
        c.wait_ready(prefill=1, decode=2)

        serving, n_asked, handed_bytes = ask_again(c, prefill, decode, "One. " + LONG, ["decode0"])
        assert (serving["prefill"], serving["decode"], handed_bytes) == ("", "decode0", 0), (serving, handed_bytes)
        assert serving["transferred"] == n_asked, (serving, n_asked)

        serving, n_asked, handed_bytes = ask_again(c, decode, prefill, "Two. " + LONG, ["prefill0", "decode1"])
        assert (serving["prefill"], serving["decode"]) == ("prefill0", "decode1"), serving
        assert handed_bytes == -(-serving["prompt"] // BLOCK_TOKENS) * BLOCK_BYTES, (serving, handed_bytes)

        assert sum(w.metric("baton_kv_rdma_failures_total") for w in c.workers) == 0
        c.assert_quiet()


if __name__ == "__main__":
    main([asked_in_both_directions])
