#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""engine.numa on a machine of two memory nodes that BATON_SYS_NODE imitates: the same answers for every value, on the
CPUs that the value names; and what the check says about values that do not fit. tests/rdma/check-numa.vm shows where
pages lie, in a machine with two nodes."""
import glob
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import draft_client  # noqa: E402
from cluster import BUILD, MODEL, Cluster, in_threads, main, patience  # noqa: E402

CPUS = sorted(os.sched_getaffinity(0))
FILLER = "The relay runs on, and every runner hands the baton over. " * 12


def imitate(c, nodes):
    """nodes: number -> list of CPUs, as the kernel writes it."""
    folder = os.path.join(c.dir, f"nodes{len(glob.glob(os.path.join(c.dir, 'nodes*')))}")
    for number, cpus in nodes.items():
        os.makedirs(os.path.join(folder, f"node{number}"))
        with open(os.path.join(folder, f"node{number}", "cpulist"), "w", encoding="ascii") as f:
            f.write(cpus + "\n")
    os.environ["BATON_SYS_NODE"] = folder


def two_nodes(c):
    imitate(c, {0: str(CPUS[0]), 1: str(CPUS[1])})


def events(worker, name):
    with open(worker.log_path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if f'"event":"{name}"' in line]


def answers(c, worker):
    """Tokens of answers by this worker alone: a long prompt, a drawn answer, and three at once."""
    fields = [{"max_tokens": 40}, {"max_tokens": 40, "temperature": 1, "seed": 7}, {"max_tokens": 12}]
    streams = [c.stream(FILLER + str(i) * i, port=worker.http, **f) for i, f in enumerate(fields)]
    texts = [s.finish().text for s in streams]
    assert all(texts), texts
    return texts


def cpus_of(worker):
    """The CPUs on which any thread of the worker may run."""
    found = set()
    for path in glob.glob(f"/proc/{worker.process.pid}/task/*/status"):
        with open(path, encoding="ascii") as f:
            text = next(line for line in f if line.startswith("Cpus_allowed_list:")).split()[1]
        for part in text.split(","):
            first, _, last = part.partition("-")
            found.add(frozenset(range(int(first), int(last or first) + 1)))
    return found


def every_value_gives_the_same_answers():
    if len(CPUS) < 2:
        print("SKIP: needs two CPUs")
        return
    one, two = frozenset(CPUS[:1]), frozenset(CPUS[1:2])
    with Cluster() as c:
        two_nodes(c)
        c.router()
        workers = {}
        for value in ("off", "node:0", "node:1", "split", "mirror"):
            # Shared weights lie in one memory per value, so none of these maps the memory of another one.
            workers[value] = c.worker("decode", engine__numa=value, engine__threads=0, engine__share_weights="yes")
        c.wait_ready(decode=5)
        expected = answers(c, workers["off"])
        for value, worker in workers.items():
            assert answers(c, worker) == expected, value
            status = worker.status()["numa"]
            assert status["mode"] == value.split(":")[0], (value, status)
            assert status["nodes"] == {"off": [], "node:0": [0], "node:1": [1]}.get(value, [0, 1]), (value, status)
            shared, = events(worker, "weights")
            assert shared["memory"] == "shared: packed", (value, shared)
            said = events(worker, "numa")
            assert len(said) == (value != "off"), (value, said)
            if value != "off":  # the kernel of the test's machine may have no second node: then it is said
                assert bool(events(worker, "numa_not_placed")) == (not status["placed"]), (value, status)
        assert events(workers["mirror"], "weights")[0]["bytes"] > 1.9 * events(workers["split"], "weights")[0]["bytes"]
        assert workers["split"].status()["numa"]["kv_pages_checked"] > 0
        assert cpus_of(workers["node:0"]) == {one}
        assert cpus_of(workers["node:1"]) == {two}
        assert cpus_of(workers["split"]) == {one, two}
        # A second worker with the same value maps the first one's weights, and gives the same answers.
        again = c.worker("decode", engine__numa="mirror", engine__threads=0, engine__share_weights="yes")
        c.wait_ready(decode=6)
        assert events(again, "weights")[0]["memory"] == "shared: mapped"
        assert answers(c, again) == expected


def a_handoff_between_values():
    """KV computed by nodes in halves is the KV of any other worker."""
    if len(CPUS) < 2:
        print("SKIP: needs two CPUs")
        return
    with Cluster() as c:
        two_nodes(c)
        c.router()
        alone = c.worker("prefill", engine__numa="off")
        decode = c.worker("decode", engine__numa="split", engine__threads=2)
        c.wait_ready(prefill=1, decode=1)
        expected = c.ask(FILLER, port=alone.http, max_tokens=30).text
        answer = c.ask(FILLER + " ", max_tokens=30)
        assert answer.is_whole
        assert c.ask(FILLER, max_tokens=30).text == expected
        assert c.ask(FILLER, port=decode.http, max_tokens=30).text == expected


EXPERTS = "expert_count=8 expert_used_count=3 expert_feed_forward_length=160"
FAMILIES = {  # experts alone; with biases; latent attention, shared experts, a head that drafts; one matrix of gate and up
    "qwen3moe": EXPERTS,
    "gpt-oss": EXPERTS + " attention.sliding_window=64",
    "deepseek2": EXPERTS + " expert_shared_count=1 leading_dense_block_count=1 attention.kv_lora_rank=32 attention.key_length=24 "
                 "attention.value_length=16 rope.dimension_count=8 nextn_predict_layers=1",
    "phi3": "",
}


def model_of(c, family):
    path = os.path.join(c.dir, family + ".gguf")
    keys = [word for key in FAMILIES[family].split() for word in ("--set", key)]
    subprocess.run([os.path.join(BUILD, "baton-model"), "make", "--arch", family, "--layers", "3", "--hidden", "128", "--heads", "4",
                    "--kv-heads", "2", "--head-dim", "32", "--ffn", "320", "--context", "2048", "--type", "Q8_0", *keys,
                    "--vocab-from", MODEL, path], check=True, capture_output=True, timeout=patience(60))
    return path


def families_give_the_same_answers():
    """Log probabilities of long and short prompts, alone and together, with a draft model or MTP head where there is one."""
    if len(CPUS) < 2:
        print("SKIP: needs two CPUs")
        return
    with Cluster() as c:
        two_nodes(c)
        for family in FAMILIES:
            path = model_of(c, family)
            more = {} if family == "deepseek2" else {"sched__draft_model": path}
            workers = [c.worker("decode", engine__numa=value, engine__threads=2, engine__tune="off", model__path=path, model__name="m",
                                kv__memory="16MiB", sched__speculate="always", **more) for value in ("off", "split", "mirror")]
            answers = []
            for worker in workers:
                draft_client.wait_ready(worker)
                answers.append([draft_client.ask(worker.http, "m", text, {"temperature": 0.7, "seed": 3}, 16)
                                for text in (FILLER, "Hello.", FILLER + "And then?")])
                answers[-1] += in_threads([lambda i=i: draft_client.ask(worker.http, "m", FILLER[i * 9:], {"temperature": 0}, 8)
                                           for i in range(4)])
            assert answers[1] == answers[0], family
            assert answers[2] == answers[0], family
            source = "mtp" if family == "deepseek2" else "model"
            for worker in workers:
                assert worker.status()["drafts"][source]["drafted"] > 0, (family, worker.status()["drafts"])
                worker.stop()
                c.workers.remove(worker)


def check(c, *settings):
    conf = os.path.join(c.dir, "empty.conf")
    open(conf, "w", encoding="ascii").close()
    line = [os.path.join(BUILD, "baton-decode"), "--check-config", "--config", conf, "--set", f"model.path={MODEL}",
            "--set", f"link.cluster_key={c.key}"]
    for one in settings:
        line += ["--set", one]
    done = subprocess.run(line, capture_output=True, text=True, timeout=patience(30))
    return done.returncode, done.stdout + done.stderr


def misfits_are_named():
    if len(CPUS) < 2:
        print("SKIP: needs two CPUs")
        return
    with Cluster() as c:
        two_nodes(c)
        refused = {
            "engine.numa=both": "'both' is none of off, split, mirror and node:N",
            "engine.numa=node:": "is none of",
            "engine.numa=node:-1": "is none of",
            "engine.numa=node:99999": "is none of",
            "engine.numa=node:4": "node 4 has no CPU that this process may run on; nodes with such CPUs: 0 1",
            f"engine.numa=node:0 engine.cpus={CPUS[1]}": "node 0 has no CPU that engine.cpus names",
            f"engine.numa=node:0 engine.cpus={CPUS[0]},{CPUS[1]}": "engine.cpus also names CPUs of other nodes than 0",
            "engine.numa=split engine.threads=1": "1 threads for 2 memory nodes; each node needs one",
        }
        for settings, text in refused.items():
            code, said = check(c, *settings.split())
            assert code != 0 and "engine.numa: " in said and text in said, (settings, code, said)
        for settings in ("engine.numa=split", "engine.numa=mirror", "engine.numa=node:1", "engine.numa=off"):
            code, said = check(c, settings)
            assert code == 0 and "engine.numa" not in said, (settings, code, said)
        code, said = check(c, "engine.numa=split", f"engine.cpus={CPUS[1]}")
        assert code == 0 and "warning: this worker has the CPUs of one memory node, so split works like off" in said, (code, said)
        imitate(c, {0: "x"})
        code, said = check(c, "engine.numa=split")
        assert code != 0 and "cannot read the memory nodes" in said, (code, said)
        os.environ["BATON_SYS_NODE"] = os.path.join(c.dir, "nothing")
        code, said = check(c, "engine.numa=mirror")
        assert code == 0 and "warning: the kernel shows no memory nodes, so mirror works like off" in said, (code, said)
        code, said = check(c, "engine.numa=node:0")
        assert code != 0 and "cannot read the memory nodes" in said, (code, said)

        # A worker starts with the warning, and works.
        c.router()
        imitate(c, {0: ",".join(map(str, CPUS))})
        worker = c.worker("decode", engine__numa="split")
        c.wait_ready(decode=1)
        said, = events(worker, "numa_without_effect")
        assert said["asked"] == "split" and worker.status()["numa"]["mode"] == "off", said
        assert c.ask("hello", max_tokens=4).is_whole


if __name__ == "__main__":
    main([every_value_gives_the_same_answers, families_give_the_same_answers, a_handoff_between_values, misfits_are_named])
