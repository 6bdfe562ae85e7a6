# SPDX-License-Identifier: Apache-2.0
"""Mixes the kinds of dialogue and writes them as shards of token ids.

    corpus.py tokeniser OUT.json          train the tokeniser on a sample
    corpus.py shard TOK.json N OUT.npz    write shard N (seed N), ~SHARD_TOKENS ids
    corpus.py tokeniser-of MODEL OUT.json take that of a model
    corpus.py show N                      print N dialogues

A shard holds "ids" (uint16), "flags" (uint8, 1 where the model writes) and
"starts", the offsets of the dialogues.  The first shards are mostly short talk,
which teaches copying sooner than long dialogues do.
"""
import os
import sys

import numpy as np

import agent
import bpe
import chat
import manual
import recall
import reference
import talk
import words

VOCAB = 2048
SHARD_TOKENS = int(os.environ.get("SHARD_TOKENS", 1500000))
MAX_TOKENS = 4096


def talk_dialogue(m):
    system, turns = None, []
    if m.chance(.15):
        system, asks = talk.persona(m)
        turns = talk.simple(m) if m.chance(.5) else []
        turns += asks
    elif m.chance(.25):
        system = talk.plain_system(m)
    k = m.rng.random()
    if k < .35:
        turns += recall.conversation(m)
    elif k < .45:
        turns += recall.from_notes(m)
    else:
        for _ in range(m.pick([1, 2, 2, 3, 4, 5])):
            turns += talk.simple(m)
    if k < .5 and m.chance(.08) and not system:
        facts = recall.some_facts(m, m.between(1, 4))
        system = " ".join(recall.tell(m, f).replace("My ", "The user's ") + "." for f in facts if f["kind"] in ("free", "code", "port", "meeting"))
        asked = [recall.question(m, f) for f in facts if f["kind"] in ("free", "code", "port", "meeting")]
        turns = asked if system else turns
    messages = [{"role": "system", "content": system}] if system else []
    for ask, reply in turns:
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": reply}]
    return {"messages": messages}


def sums_dialogue(m):
    """Sums in a row: a table is learned by heart or not at all."""
    messages = []
    for _ in range(m.between(3, 8)):
        for ask, reply in talk.sums(m):
            messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": reply}]
    return {"messages": messages}


def told_and_asked(m):
    """Facts, some talk, and the questions about them at the end."""
    turns = recall.conversation(m) if m.chance(.9) else recall.from_notes(m)
    return {"messages": [x for ask, reply in turns for x in ({"role": "user", "content": ask}, {"role": "assistant", "content": reply})]}


def many_told(m):
    """More facts than one looks for, in a row or in one block of text, and questions about some of them at the end."""
    facts = recall.some_facts(m, m.between(5, 9))
    if m.chance(.4):
        turns = [("\n".join(recall.tell(m, f) + "." for f in facts), "Noted.")]
    else:
        turns = recall.stating(m, facts)
    turns += [recall.question(m, f) for f in m.sample(facts, m.between(2, 5))]
    return {"messages": [x for ask, reply in turns for x in ({"role": "user", "content": ask}, {"role": "assistant", "content": reply})]}


def notes_dialogue(m):
    return {"messages": [x for ask, reply in recall.from_notes(m) for x in ({"role": "user", "content": ask}, {"role": "assistant", "content": reply})]}


def busy_tools(m):
    """Many requests against one list of tools, which costs so many tokens to read."""
    return agent.tool_talk(m, m.between(3, 8))


# What shards below a number hold: first short talk, then everything, then more use of tools.
KINDS = [(talk_dialogue, .66), (agent.tool_talk, .24), (agent.agent, .10)]
EARLY = [(talk_dialogue, .88), (agent.tool_talk, .10), (agent.agent, .02)]
LATE = [(talk_dialogue, .50), (sums_dialogue, .09), (agent.tool_talk, .17), (busy_tools, .16), (agent.agent, .08)]
# To go on from a trained model: work in many steps, which needs the longest practice.
REFINE = [(talk_dialogue, .20), (agent.tool_talk, .14), (busy_tools, .08), (agent.agent, .10), (agent.plain_agent, .48)]
# To stretch a trained model to a long context (stretch.py): all kinds; dialogues whose last turns need the first; text between.
MIXED = [(talk_dialogue, .36), (notes_dialogue, .08), (sums_dialogue, .05), (agent.tool_talk, .17), (busy_tools, .12), (agent.agent, .07), (agent.plain_agent, .15)]
FAR = [(told_and_asked, .35), (many_told, .25), (talk_dialogue, .08), (agent.tool_talk, .32)]
FILLER = [(manual.filler_dialogue, 1)]
FIRST_REFINING, FIRST_MIXED, FIRST_FAR, FIRST_FILLER = 200, 300, 400, 500
MIXES = [(2, EARLY), (7, KINDS), (FIRST_REFINING, LATE), (FIRST_MIXED, REFINE), (FIRST_FAR, MIXED), (FIRST_FILLER, FAR), (1 << 30, FILLER)]


def dialogue(m, kinds=KINDS):
    at = m.rng.random()
    for make, share in kinds:
        at -= share
        if at < 0:
            return make(m)
    return talk_dialogue(m)


def train_tokeniser(out):
    m = words.Maker("tokeniser")
    texts = [chat.text_of(dialogue(m)) for _ in range(12000)]
    bpe.train(texts, VOCAB).save(out)


def write_shard(tokeniser, number, out):
    m = words.Maker("shard %d" % number)
    kinds = next(mix for below, mix in MIXES if number < below)
    ids, flags, starts = [], [], []
    while len(ids) < SHARD_TOKENS:
        i, f = chat.encode(tokeniser, dialogue(m, kinds))
        if len(i) > MAX_TOKENS:
            continue
        starts.append(len(ids))
        ids += i
        flags += f
    np.savez(out, ids=np.array(ids, np.uint16), flags=np.array(flags, np.uint8), starts=np.array(starts + [len(ids)], np.int64))


def main(argv):
    if argv[1] == "tokeniser":
        train_tokeniser(argv[2])
    elif argv[1] == "tokeniser-of":
        reference.tokeniser_of(argv[2]).save(argv[3])
    elif argv[1] == "shard":
        write_shard(bpe.Tokeniser.load(argv[2]), int(argv[3]), argv[4])
    else:
        m = words.Maker("show %s" % argv[2])
        for _ in range(int(argv[2])):
            print(chat.text_of(dialogue(m)))
            print("=" * 70)


if __name__ == "__main__":
    main(sys.argv)
