# SPDX-License-Identifier: Apache-2.0
"""Draft models through real daemons.  The bundled model's drafts come from its own 2-bit self (sched.draft_model).  The same
tokens with the same log probabilities come with it and without it, at temperature 0 and with seeds, handed over and from a
cached prefix, with a grammar, in a batch; its own KV memory may be too small for all.  A file that does not fit is refused by
name."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import draft_client  # noqa: E402
from cluster import BUILD, MODEL, Cluster, in_threads, main, patience  # noqa: E402
from draft_client import wait_ready  # noqa: E402

TOOL = os.path.join(BUILD, "baton-model")
STORY = "Tell me a story about a {}."
HEROES = ["hare", "owl", "fox", "bear", "frog", "crow"]
LONG = "Please remember: my name is Ada Lovelace, my favourite colour is teal and the port is 4711. " * 12
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "size": {"type": "integer"}},
          "required": ["name", "size"], "additionalProperties": False}
CASES = [
    {"temperature": 0},
    {"temperature": 1, "seed": 11},
    {"temperature": 1.2, "seed": 5, "top_p": 0.9, "frequency_penalty": 0.8, "presence_penalty": 0.4},
    {"temperature": 0.8, "seed": 7, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
]


def tool(*arguments):
    run = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=patience(60))
    assert run.returncode == 0, (arguments, run.stderr)
    return run


def drafter(c):
    path = os.path.join(c.dir, "draft.gguf")
    if not os.path.exists(path):
        tool("quantize", "--type", "Q2_K", MODEL, path)
    return path


N_TOKENS = 24 if os.environ.get("BATON_SANITIZED") else 60  # of an answer


def ask(port, text, fields, n=N_TOKENS):
    return draft_client.ask(port, "baton-demo", text, fields, n)


def asked(port):
    """All cases, one after another, and then a batch."""
    answers = [ask(port, STORY.format(hero), fields) for hero, fields in zip(HEROES, CASES)]
    answers += [ask(port, LONG + "What is my name?", fields) for fields in CASES[:2]]
    answers += [ask(port, LONG + "What is my favourite colour?", CASES[0])]  # a cached prefix
    return answers + in_threads([lambda i=i, hero=hero: ask(port, STORY.format(hero), CASES[i % 4])
                                 for i, hero in enumerate(HEROES)])


def drafts(worker):
    time.sleep(0.5)  # a worker counts ten times a second
    return [worker.metric('baton_worker_drafted_tokens_total{source="model",was="%s"}' % was) for was in ("right", "wrong")]


def settings(c, speculate, **more):
    return dict(sched__speculate=speculate, sched__draft_model=drafter(c), engine__tune="off", **more)


def one_worker_answers_the_same():
    with Cluster() as c:
        c.worker("decode", sched__speculate="off", engine__tune="off")
        worker = c.worker("decode", **settings(c, "always"))
        small = c.worker("decode", **settings(c, "always", sched__draft_memory="1MiB"))
        auto = c.worker("decode", **settings(c, "auto"))
        for w in c.workers:
            wait_ready(w)
        want = asked(c.workers[0].http)
        for w in (worker, small, auto):
            assert asked(w.http) == want, w.name
        right, wrong = drafts(worker)
        assert right > N_TOKENS and wrong > N_TOKENS / 6, (right, wrong)
        assert drafts(c.workers[0]) == [0, 0]
        status = worker.status()["drafts"]["model"]
        assert status["accepted"] == right and status["drafted"] == right + wrong, status


def a_pair_answers_the_same():
    answers = []
    for speculate in ("off", "always"):
        with Cluster() as c:
            c.router()
            c.worker("prefill", engine__tune="off")
            decode = c.worker("decode", **settings(c, speculate))
            c.wait_ready(prefill=1, decode=1)
            answers.append(asked(c.routers[0].http))
            handed = c.ask(LONG + "What is my name?" * 3)
            assert handed.serving["transferred"] > 0, handed.serving
            assert (drafts(decode)[0] > N_TOKENS) == (speculate == "always"), drafts(decode)
            assert "drafts" in decode.status()
    assert answers[0] == answers[1]


def the_tool_prints_the_same():
    with Cluster() as c:
        for seed in ("1", "2"):
            line = ["generate", "--temperature", "1", "--seed", seed, "-n", "80", "--chat", STORY.format("hare")]
            plain = tool(*line, "--speculate", "off", MODEL)
            drafted = tool(*line, "--speculate", "always", "--draft-model", drafter(c), MODEL)
            assert plain.stdout == drafted.stdout
            assert "accepted" in drafted.stderr and "accepted" not in plain.stderr, drafted.stderr


def one_with_windows_drafts():
    """Some layers see a window only.  Nothing is expected of its random weights but draft tokens, step after step."""
    with Cluster() as c:
        path = os.path.join(c.dir, "windowed.gguf")
        tool("make", "--arch", "gemma3", "--layers", "6", "--hidden", "64", "--heads", "4", "--head-dim", "16", "--kv-heads", "2",
             "--ffn", "96", "--set", "attention.sliding_window=40", "--set", "attention.sliding_window_pattern=3",
             "--vocab-from", MODEL, path)
        c.worker("decode", sched__speculate="off", engine__tune="off")
        worker = c.worker("decode", sched__speculate="always", sched__draft_model=path, engine__tune="off")
        for w in c.workers:
            wait_ready(w)
        assert asked(worker.http) == asked(c.workers[0].http)
        assert sum(drafts(worker)) > N_TOKENS, drafts(worker)
        assert "draft_model_failed" not in worker.tail(1000), worker.tail(30)


def a_file_that_does_not_fit_is_refused():
    with Cluster() as c:
        other, hybrid, broken = (os.path.join(c.dir, n) for n in ("other.gguf", "hybrid.gguf", "broken.gguf"))
        tool("make", "--layers", "2", "--hidden", "64", "--heads", "2", "--ffn", "128", "--vocab", "512", other)
        tool("make", "--arch", "lfm2", "--layers", "3", "--hidden", "64", "--heads", "2", "--kv-heads", "2", "--ffn", "128",
             "--set", "attention.head_count_kv=0,2,0", "--set", "shortconv.l_cache=3", "--vocab-from", MODEL, hybrid)
        with open(broken, "wb") as f:
            f.write(b"GGUF")
        for path, why in ((other, "vocabulary"), (broken, ""), (hybrid, "recurrent")):
            worker = c.worker("decode", sched__draft_model=path)
            worker.process.wait(patience(30))
            assert worker.process.returncode != 0
            said = worker.tail(30)
            assert "sched.draft_model" in said and os.path.basename(path) in said and why in said, said
            check = subprocess.run([*worker.command(), "--check-config"], capture_output=True, text=True, timeout=patience(30))
            assert check.returncode != 0 and "sched.draft_model" in check.stdout + check.stderr, check
            c.workers.remove(worker)


main([one_worker_answers_the_same, a_pair_answers_the_same, the_tool_prints_the_same, one_with_windows_drafts,
      a_file_that_does_not_fit_is_refused])
