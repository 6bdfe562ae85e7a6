# SPDX-License-Identifier: Apache-2.0
"""Measures the model on held-out dialogues.

    evaluate.py make OUT.jsonl N             write N items for use over the API
    evaluate.py run MODEL [options]          evaluate; MODEL is a .gguf, a checkpoint.pt or the URL of a server
    evaluate.py facts MODEL [options]        facts told 1,000 to 30,000 tokens before their question
    evaluate.py samples MODEL.gguf           print sample conversations

An item is a dialogue that ends before an assistant turn, and what is expected:

    {"kind": "recall", "messages": [...], "tools": [...],
     "expected": {"contains": [...]} | {"one_of": [...]} | {"tool_call": {...}}}

Values are of the half that training never saw (words.py).  Decoding is greedy.
"""
import argparse
import json
import math
import sys

import torch

import agent
import bpe
import chat
import corpus
import export
import glossary
import manual
import model
import recall
import reference
import served
import sim
import talk
import toolbox
import words


def talk_item(kind, turns, expected):
    messages = []
    for ask, reply in turns:
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": reply}]
    return {"kind": kind, "messages": messages[:-1], "expected": expected}


def recall_item(m):
    facts = recall.some_facts(m, m.between(1, 4))
    turns = recall.stating(m, facts)
    for _ in range(m.between(0, 4)):
        turns += talk.simple(m)
    fact = m.pick(facts)
    return talk_item("recall", turns + [recall.question(m, fact)], {"contains": [fact["v"]]})


def notes_item(m):
    turns = recall.from_notes(m)[:1]
    answer = turns[0][1]
    return talk_item("notes", turns, {"contains": [re_value(answer)]})


def re_value(answer):
    """The value in an answer of recall.py: what follows the last ' is ', ' at ', 'port ' or 'called '."""
    best = max(answer.rfind(" " + w + " ") + len(w) + 2 for w in ("is", "are", "at", "in", "port", "called", "on") if " " + w + " " in answer)
    return answer[best:].rstrip(".")


def echo_item(m):
    turns = talk.echo(m)
    return talk_item("echo", turns, {"one_of": [turns[0][1]]})


def term_item(m):
    turns = talk.term(m)
    answers = next(a for a in glossary.TERMS.values() if turns[0][1] in a)
    return talk_item("term", turns, {"one_of": answers})


def sums_item(m):
    while True:
        turns = talk.sums(m)
        if turns[0][1][0].isdigit():
            return talk_item("sums", turns, {"contains": [" is " + turns[0][1].split(" is ")[1]]})


def unknown_item(m):
    turns = (talk.simple(m) if m.chance(.3) else []) + talk.unknown(m)
    return talk_item("unknown", turns, {"one_of": talk.DONT_KNOW})


def cut_item(kind, dialogue, at, expected):
    return {"kind": kind, "messages": dialogue["messages"][:at], "tools": dialogue["tools"], "expected": expected}


def call_item(m):
    """One of 1..6 tools is asked for, at once or after an earlier use."""
    s = agent.Scene(m, toolbox.choose(m, m.between(2, 6)))
    for _ in range(m.pick([0, 0, 1, 2])):
        agent.one_use(s, m.pick(s.tools))
    tool = m.pick(s.tools)
    use = tool.family.use(m, tool)
    s.user(use.ask)
    d = s.dialogue()
    return cut_item("call", d, len(d["messages"]), {"tool_call": use.call})


def result_item(m):
    """The answer after a tool's result must hold what the result said."""
    while True:
        s = agent.Scene(m, toolbox.choose(m, m.between(1, 5)))
        tool = m.pick(s.tools)
        use = tool.family.use(m, tool)
        wanted = [w.strip(".,:;?!\"") for w in use.answer.split()]
        wanted = [w for w in wanted if w and any(c.isdigit() for c in w) and w in use.result]
        if wanted:
            s.user(use.ask)
            s.raw_call(use.call, use.result)
            return cut_item("result", s.dialogue(), len(s.messages), {"contains": wanted})


def step_item(m):
    """The next call in the middle of an agent's work; some steps have more than one good call."""
    d = agent.agent(m)
    calls = [i for i, x in enumerate(d["messages"]) if x.get("tool_calls")]
    at = m.pick(calls)
    return cut_item("step", d, at, {"tool_call": d["messages"][at]["tool_calls"][0]})


def plain_item(m):
    """Tools are there, but the question is for plain words."""
    s = agent.Scene(m, toolbox.choose(m, m.between(1, 6)))
    turns = talk.term(m)
    s.user(turns[0][0])
    answers = next(a for a in glossary.TERMS.values() if turns[0][1] in a)
    return cut_item("plain", s.dialogue(), 1, {"one_of": answers})


DISTANCES = (1000, 2000, 4000, 8000, 16000, 24000, 30000)
CHARS_PER_TOKEN = 2.6
KINDS = [recall_item, notes_item, echo_item, term_item, sums_item, unknown_item, call_item, result_item, step_item, plain_item]


def make(out, n):
    m = words.Maker("evaluation set", held_out=True)
    with open(out, "w") as f:
        for i in range(n):
            item = KINDS[i % len(KINDS)](m)
            item["id"] = "%s-%03d" % (item["kind"], i)
            f.write(json.dumps(item) + "\n")


def parse_call(text):
    """The first tool call of an answer, or None."""
    if "<tool_call>" not in text:
        return None
    body = text.split("<tool_call>")[1].split("</tool_call>")[0]
    try:
        return json.loads(body)
    except ValueError:
        return {}


def opened(args):
    if args.model.startswith("http"):
        return served.Served(args.model, args.tokeniser)
    return Runner(args.model, {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[args.dtype])


class Runner:
    def __init__(self, path, dtype):
        if path.endswith(".gguf"):
            self.tokeniser = reference.tokeniser_of(path)
            self.engine = reference.Engine.from_gguf(path, dtype)
        else:
            saved = torch.load(path)
            model.stretch(saved.get("rope_factor", 1))
            self.tokeniser = bpe.Tokeniser.load(path.replace("checkpoint.pt", "tok.json"))
            tensors = dict(export.tensors_of(saved["opt"]["average"]))
            self.engine = reference.Engine(reference.weights_from_tensors(tensors), dtype)
        self.stop = self.tokeniser.id_of["<|im_end|>"]

    def reply(self, dialogue, limit=200):
        return self.continued(self.tokeniser.encode(chat.text_of(dialogue, generate=True)), limit)

    def continued(self, ids, limit=200):
        out, _ = self.engine.greedy(ids, limit, self.stop)
        return self.tokeniser.decode(out[:-1] if out[-1] == self.stop else out)

    def nll(self, dialogue):
        """Sum of -log p over what the assistant writes, and its length in tokens."""
        ids, flags = chat.encode(self.tokeniser, dialogue)
        self.engine.reset()
        scores = self.engine.feed(ids, every=True)[:-1].log_softmax(-1)
        target = torch.tensor(flags[1:], dtype=torch.bool)
        each = -scores.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        return float(each[target].sum()), int(target.sum())


def judge(expected, text):
    """A dict of named marks, each 0 or 1."""
    if "tool_call" in expected:
        got, want = parse_call(text) or {}, expected["tool_call"]
        name = got.get("name") == want["name"]
        return {"tool": name, "arguments": name and got.get("arguments") == want["arguments"]}
    if "contains" in expected:
        return {"right": all(v in text for v in expected["contains"])}
    return {"right": text in expected["one_of"]}


def run_items(runner, items, verbose):
    marks = {}
    for item in items:
        text = runner.reply(item)
        for name, ok in judge(item["expected"], text).items():
            marks.setdefault((item["kind"], name), []).append(bool(ok))
            if not ok and verbose:
                print("MISS %s\n  ask      %r\n  expected %s\n  got      %r" % (
                    item["kind"], item["messages"][-1]["content"][:300], json.dumps(item["expected"])[:300], text))
    return marks


def run_task(runner, task):
    """Lets the model work; returns (success, number of calls, dialogue)."""
    dialogue = task.dialogue()
    for _ in range(sim.MAX_TURNS):
        text = runner.reply(dialogue)
        call = parse_call(text)
        if call is None:
            dialogue["messages"].append({"role": "assistant", "content": text})
            return task.done(), task.calls, dialogue
        dialogue["messages"].append({"role": "assistant", "content": text})
        dialogue["messages"].append({"role": "tool", "content": task.answer(call)})
        if len(runner.tokeniser.encode(chat.text_of(dialogue))) > 3800:
            break
    return False, task.calls, dialogue


def show(marks):
    for (kind, name), oks in marks.items():
        print("| %s | %s | %d | %d | %.1f |" % (kind, name, sum(oks), len(oks), 100 * sum(oks) / len(oks)), flush=True)


def run(args):
    runner = opened(args)
    m = words.Maker("evaluation %d" % args.seed, held_out=True)
    kinds = [k for k in KINDS if not args.kinds or k.__name__[:-5] in args.kinds.split(",")]
    print("| kind | mark | right | of | % |\n|---|---|---|---|---|")
    for make_item in kinds:
        items = [make_item(m) for _ in range(args.n)]
        if args.before:
            items = [behind_manual(item, args.before) for item in items]
        show(run_items(runner, items, args.verbose))
    for kind in () if args.no_tasks else ("change", "rename", "repair"):
        oks = []
        for _ in range(args.n // 2):
            ok, _, dialogue = run_task(runner, sim.Task(m, kind))
            oks.append(ok)
            if args.verbose and not ok:
                print("MISS task %s\n%s" % (kind, chat.text_of({"messages": dialogue["messages"]})))
        show({("task " + kind, "done"): oks})
    total, count = 0, 0
    m = words.Maker("perplexity %d" % args.seed, held_out=True)
    for _ in range(args.n * 2):
        nll, n = runner.nll(corpus.dialogue(m))
        total, count = total + nll, count + n
    print("perplexity %.3f over %d assistant tokens of %d dialogues" % (math.exp(total / count), count, args.n * 2))


def behind_manual(item, n):
    """The same item after a system prompt of about n tokens, the same for all items."""
    text = manual.manual(words.Maker("manual", held_out=True), int(n * CHARS_PER_TOKEN))
    messages = item["messages"]
    if messages[0]["role"] == "system":
        text, messages = text + "\n\n" + messages[0]["content"], messages[1:]
    return {**item, "messages": [{"role": "system", "content": text}] + messages}


class Chain:
    """A dialogue as token ids that grows turn by turn."""

    def __init__(self, tokeniser):
        self.tokeniser, self.ids = tokeniser, []

    def with_ask(self, ask):
        return self.ids + self.tokeniser.encode("<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n" % ask)

    def add(self, ask, answer):
        self.ids = self.with_ask(ask) + self.tokeniser.encode("%s<|im_end|>\n" % answer)

    def fill_to(self, m, length):
        while len(self.ids) < length:
            for ask, answer in talk.simple(m):
                self.add(ask, answer)


def ask_fact(runner, chain, m, fact, verbose, label):
    ask, _ = recall.question(m, fact)
    text = runner.continued(chain.with_ask(ask), 60)
    if fact["v"] not in text and verbose:
        print("MISS %s: ask %r, expected %r, got %r" % (label, ask, fact["v"], text), flush=True)
    return fact["v"] in text


def facts_first(runner, m, distances, verbose):
    """All facts in the first turns, then talk; at each distance one of them is asked for. {distance: right}"""
    facts, chain, right = recall.some_facts(m, len(distances)), Chain(runner.tokeniser), {}
    for fact in facts:
        chain.add(recall.tell(m, fact) + ".", recall.acknowledge(m, fact))
    for fact, distance in zip(facts, distances):
        chain.fill_to(m, distance)
        right[distance] = ask_fact(runner, chain, m, fact, verbose, "first, %d" % distance)
    return right


def facts_within(runner, m, distances, verbose):
    """A fact at each distance from the end of a dialogue a little longer than the longest, all asked for at its end."""
    facts, chain, right = recall.some_facts(m, len(distances)), Chain(runner.tokeniser), {}
    end = distances[-1] + 200
    for fact, distance in zip(facts, reversed(distances)):
        chain.fill_to(m, end - distance)
        chain.add(recall.tell(m, fact) + ".", recall.acknowledge(m, fact))
    chain.fill_to(m, end)
    for fact, distance in zip(facts, reversed(distances)):
        right[distance] = ask_fact(runner, chain, m, fact, verbose, "within, %d" % distance)
    return right


def facts(args):
    runner = opened(args)
    distances = [d for d in DISTANCES if d <= args.longest]
    print("| told | " + " | ".join("%d" % d for d in distances) + " |\n|---|" + "---|" * len(distances))
    for name, ask in (("first", facts_first), ("within", facts_within)):
        m = words.Maker("facts %s %d" % (name, args.seed), held_out=True)
        rows = [ask(runner, m, distances, args.verbose) for _ in range(args.n)]
        print("| %s, of %d | " % (name, args.n) + " | ".join("%d" % sum(r[d] for r in rows) for d in distances) + " |", flush=True)


def samples(path):
    runner = Runner(path, torch.float32)
    m = words.Maker("samples", held_out=True)
    scripts = [["Hello!", "What is TTFT?", "And what is the difference between prefill and decode?", "Thanks!"],
               ["My name is %s and the port is %s." % (m.name(), m.port()), "What is a lease?", "What is 7 times 8?", "What is my name?",
                "Which port should I use?"],
               ["Tell me a story about a fox named %s in a lighthouse." % m.name(), "Who is the king of Spain?"]]
    for script in scripts:
        messages = []
        for ask in script:
            messages.append({"role": "user", "content": ask})
            messages.append({"role": "assistant", "content": runner.reply({"messages": messages}, 300)})
        for x in messages:
            print("%-10s %s" % (x["role"] + ":", x["content"]))
        print()
    for kind in ("change", "rename"):
        ok, calls, dialogue = run_task(runner, sim.Task(m, kind))
        print("agent, task %s: %s after %d calls" % (kind, "done" if ok else "failed", calls))
        for x in dialogue["messages"]:
            print("%-10s %s" % (x["role"] + ":", x["content"].replace("\n", "\n           ")))
        print()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("action", choices=["make", "run", "facts", "samples"])
    p.add_argument("model", help="a model, or the file to make")
    p.add_argument("n_items", nargs="?", type=int, default=100)
    p.add_argument("--n", type=int, default=100, help="items of each kind")
    p.add_argument("--kinds", default="", help="only these kinds of items, by comma")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--dtype", default="f32")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--before", type=int, default=0, help="put each item behind a system prompt of so many tokens")
    p.add_argument("--longest", type=int, default=DISTANCES[-1], help="the longest distance of facts to try")
    p.add_argument("--tokeniser", default="../../share/baton-demo.gguf", help="the file whose tokeniser a server's model has")
    p.add_argument("--no-tasks", action="store_true", help="leave out the agent at work")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    if args.action == "make":
        make(args.model, args.n_items)
    elif args.action == "run":
        run(args)
    elif args.action == "facts":
        facts(args)
    else:
        samples(args.model)


if __name__ == "__main__":
    sys.exit(main())
