# SPDX-License-Identifier: Apache-2.0
"""MTP heads through real daemons.  A model of random weights drafts with its own head (nextn tensors).  The same tokens with
the same log probabilities come with it and without it, at temperature 0 and with seeds, handed over and from a cached prefix,
with a grammar, in a batch; its KV memory may be too small for all.  sched.mtp = no and sched.draft_model leave the head out.
Such a head says nothing useful, so most of its draft tokens are wrong. right_head.py makes one that is right if it knows the
prompt: a hand-off brings it the KV, and so the acceptance rate of one worker."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import draft_client  # noqa: E402
from cluster import BUILD, MODEL, Cluster, in_threads, main, patience  # noqa: E402
import right_head  # noqa: E402
from draft_client import wait_ready  # noqa: E402

TOOL = os.path.join(BUILD, "baton-model")
TOPICS = ["hare", "owl", "fox", "bear"]
LONG = "Please remember: my name is Ada Lovelace, my favourite colour is teal and the port is 4711. " * 8
SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}, "is_big": {"type": "boolean"}},
          "required": ["size", "is_big"], "additionalProperties": False}
CASES = [
    {"temperature": 0},
    {"temperature": 1, "seed": 11},
    {"temperature": 1.2, "seed": 5, "top_p": 0.9, "frequency_penalty": 0.8, "presence_penalty": 0.4},
    {"temperature": 0.8, "seed": 7, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
]


EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
FAMILIES = {
    "llama": {},
    "glm4moe": {**EXPERTS, "expert_shared_count": 1, "leading_dense_block_count": 1},
    "qwen35": {"full_attention_interval": 2, "ssm.conv_kernel": 4, "ssm.inner_size": 32, "ssm.state_size": 8,
               "ssm.time_step_rank": 2, "ssm.group_count": 1},
    "deepseek2": {**EXPERTS, "expert_shared_count": 1, "leading_dense_block_count": 1, "attention.kv_lora_rank": 32,
                  "attention.key_length": 24, "attention.value_length": 16, "rope.dimension_count": 8},
}


def make(c, family="glm4moe", *more, heads=1):
    path = os.path.join(c.dir, "mtp.gguf")
    keys = [word for key, value in FAMILIES[family].items() for word in ("--set", f"{key}={value}")]
    run = subprocess.run([TOOL, "make", "--arch", family, "--layers", "4", "--hidden", "64", "--heads", "4", "--kv-heads", "2",
                          "--head-dim", "16", "--ffn", "96", "--context", "2048", *keys, "--set", f"nextn_predict_layers={heads}", *more,
                          "--vocab-from", MODEL, path], capture_output=True, text=True, timeout=patience(60))
    assert run.returncode == 0, run.stderr
    return path


def ask(port, text, fields, n=40):
    return draft_client.ask(port, "mtp", text, fields, n)


def asked(port):
    """All cases, one after another, and then a batch."""
    answers = [ask(port, f"Tell me of a {topic}.", fields) for topic, fields in zip(TOPICS, CASES)]
    answers += [ask(port, LONG + "What is my name?", fields) for fields in CASES[:2]]
    answers += [ask(port, LONG + "What is my favourite colour?", CASES[0])]  # a cached prefix
    return answers + in_threads([lambda i=i: ask(port, f"Tell me of a {TOPICS[i % 4]}.", CASES[i % 4]) for i in range(6)])


def drafted(worker, source):
    """Draft tokens that were verified.  A worker counts ten times a second."""
    time.sleep(0.5)
    return sum(worker.metric(f'baton_worker_drafted_tokens_total{{source="{source}",was="{was}"}}') for was in ("right", "wrong"))


def settings(path, **more):
    return dict(model__path=path, model__name="mtp", engine__tune="off", **more)


def one_worker_answers_the_same():
    with Cluster() as c:
        path = make(c)
        plain = c.worker("decode", **settings(path, sched__speculate="off"))
        always = c.worker("decode", **settings(path, sched__speculate="always"))
        small = c.worker("decode", **settings(path, sched__speculate="always", sched__draft_memory="1MiB"))
        auto = c.worker("decode", **settings(path))
        without = c.worker("decode", **settings(path, sched__speculate="always", sched__mtp="no"))
        other = c.worker("decode", **settings(path, sched__speculate="always", sched__draft_model=path))
        for worker in c.workers:
            wait_ready(worker)
        want = asked(plain.http)
        for worker in (always, small, auto, without, other):
            assert asked(worker.http) == want, worker.name
        n = drafted(always, "mtp")
        assert n > 100 and drafted(small, "mtp") > 0, n
        assert always.status()["drafts"]["mtp"]["drafted"] == n, always.status()["drafts"]
        for worker in (plain, without, other):
            assert drafted(worker, "mtp") == 0, worker.name
        assert drafted(other, "model") > 100
        for worker in (always, small, auto):
            assert "mtp_ready" in worker.tail(1000) and "draft_model_failed" not in worker.tail(1000), worker.tail(30)
        assert "mtp_ready" not in without.tail(1000) + other.tail(1000)


def a_pair_answers_the_same(family="glm4moe"):
    answers = []
    for speculate in ("off", "always"):
        with Cluster() as c:
            path = make(c, family)
            c.router()
            c.worker("prefill", **settings(path))
            decode = c.worker("decode", **settings(path, sched__speculate=speculate))
            c.wait_ready(prefill=1, decode=1)
            answers.append(asked(c.routers[0].http))
            assert (drafted(decode, "mtp") > 100) == (speculate == "always"), decode.status()["drafts"]
            handed = c.ask(LONG + "What is my name?" * 3, model="mtp", max_tokens=20)
            assert handed.serving["transferred"] > 0, handed.serving
            assert "draft_model_failed" not in decode.tail(1000), decode.tail(30)
    assert answers[0] == answers[1]


def other_families_answer_the_same():
    for family in ("qwen35",) if os.environ.get("BATON_SANITIZED") else ("llama", "qwen35", "deepseek2"):
        a_pair_answers_the_same(family)


def make_right(c):
    path = make(c, "glm4moe", "--type", "F32")
    right_head.make_right(path, n_layers=4, width=64)
    return path


def stories(port):
    """Answers to prompts that begin differently, so that no prefix of them is cached."""
    return [ask(port, f"Tell me of a {topic}. {LONG}", {"temperature": 1, "seed": 3 + i}, 60) for i, topic in enumerate(TOPICS)]


def accepted(worker):
    """Share of the head's draft tokens that were right."""
    n = drafted(worker, "mtp")
    assert n > 100, worker.status()["drafts"]
    return worker.status()["drafts"]["mtp"]["accepted"] / n


def one_worker_and_pairs(c, *prefills):
    """Yields answers and acceptance: of one worker, then of pairs whose prefill worker has these settings."""
    path = make_right(c)
    one = c.worker("decode", **settings(path, sched__speculate="always"))
    wait_ready(one)
    yield stories(one.http), accepted(one)
    for prefill in prefills:
        with Cluster() as pair:
            pair.router()
            pair.worker("prefill", **settings(path, **prefill))
            decode = pair.worker("decode", **settings(path, sched__speculate="always"))
            pair.wait_ready(prefill=1, decode=1)
            yield stories(pair.routers[0].http), accepted(decode)


def a_hand_off_brings_the_head_its_kv():
    with Cluster() as c:
        (want, one), (with_kv, pair), (without_kv, alone) = one_worker_and_pairs(
            c, dict(sched__speculate="always"), dict(sched__mtp="no"))
    print(f"accepted: one worker {one:.0%}, a pair {pair:.0%}, without the head's KV {alone:.0%}")
    assert with_kv == want and without_kv == want
    assert one > 0.6 and pair > 0.95 * one and alone < 0.3 * one, (one, pair, alone)


def mtp_bytes(c, text):
    answer = c.ask(text + LONG, model="mtp", max_tokens=8, temperature=0)
    assert answer.serving["transferred"] > 0, answer.serving
    return answer.serving["transferred_bytes"]["mtp"]


def the_decode_worker_says_what_it_is_worth():
    """The prefill worker learns from the first GRANT that the KV is worth its time, and from another worker that it is not."""
    for speculate, is_worth_it in (("always", True), ("off", False)):
        with Cluster() as c:
            path = make_right(c)
            c.router()
            c.worker("prefill", **settings(path))
            c.worker("decode", **settings(path, sched__speculate=speculate))
            c.wait_ready(prefill=1, decode=1)
            assert mtp_bytes(c, "First. ") == 0
            assert (mtp_bytes(c, "Second. ") > 0) == is_worth_it
            assert (mtp_bytes(c, "Third. ") > 0) == is_worth_it


def cut_hand_offs_stay_exact():
    """A prefill worker dies while it hands over. The pool of a decode worker, or the head's memory, has no room for the KV."""
    with Cluster() as c:
        path = make_right(c)
        always = settings(path, sched__speculate="always")
        plain = c.worker("decode", **settings(path, sched__speculate="off"))
        wait_ready(plain)
        want = [stories(plain.http)] * 4
    for number, cramped in enumerate((dict(), dict(kv__memory="1700KiB"), dict(sched__draft_memory="1MiB"))):
        with Cluster() as c:
            path = make_right(c)
            always["model__path"] = path
            c.router()
            for more in (dict(), cramped):
                c.worker("prefill", **{**always, **more})
            c.worker("decode", **{**always, **cramped})
            c.wait_ready(prefill=2, decode=1)

            def kill():
                time.sleep(patience(0.3))
                c.workers[0].kill()

            got = in_threads([lambda: stories(c.routers[0].http)] * 4 + ([kill] if number == 0 else []))
            assert got[:4] == want, number


def check(worker):
    run = subprocess.run([*worker.command(), "--check-config"], capture_output=True, text=True, timeout=patience(30))
    return run.returncode, run.stdout + run.stderr


def memory_of_the_head_is_checked():
    """The check and the start say the same: too few blocks for a head, and too much memory beside kv.memory."""
    with Cluster() as c:
        path = make(c, "glm4moe", "--kv-heads", "16", "--heads", "16", "--head-dim", "64")  # 512 KiB a block and layer
        few = dict(sched__draft_memory="1MiB", kv__block_tokens="128", kv__memory="64MiB")
        much = dict(sched__draft_memory="900TiB", kv__memory="64MiB")
        for wrong, word in ((few, "2 blocks of 524288 bytes"), (much, "beside kv.memory, 64MiB, is more than")):
            worker = c.worker("decode", **settings(path, **wrong))
            worker.process.wait(patience(30))
            code, said = check(worker)
            assert worker.process.returncode != 0 and code != 0
            for text in (said, worker.tail(30)):
                assert "sched.draft_memory" in text and word in text, text
            c.workers.remove(worker)
        for fine in (dict(few, sched__draft_memory="2MiB"), dict(few, sched__mtp="no"), dict(few, sched__speculate="off")):
            worker = c.worker("decode", **settings(path, **fine))
            wait_ready(worker)
            assert check(worker)[0] == 0, check(worker)
        os.remove(path)
        path = make(c, "llama", heads=0)
        plain = c.worker("decode", **settings(path, sched__draft_memory="900TiB"))  # nothing drafts
        wait_ready(plain)


main([one_worker_answers_the_same, a_pair_answers_the_same, other_families_answer_the_same,
      a_hand_off_brings_the_head_its_kv, the_decode_worker_says_what_it_is_worth, cut_hand_offs_stay_exact,
      memory_of_the_head_is_checked])
