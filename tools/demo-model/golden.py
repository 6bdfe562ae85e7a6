# SPDX-License-Identifier: Apache-2.0
"""Writes the greedy continuations that any engine must reproduce.

    golden.py MODEL.gguf OUT.json

Weights are de-quantised from the file, arithmetic is float64.  Of many
candidate prompts those are kept whose smallest margin between the best and the
second best logit, over all N_IDS steps, exceeds MARGIN, so that an engine with
float32 or 8-bit activations has room for its own rounding.  <|im_end|> does not
stop the continuation.  first_logits are the scores after the prompt for the
first ids of the vocabulary.
"""
import json
import sys

import torch

import agent
import chat
import reference
import talk
import toolbox
import words

N_IDS = 48
PER_KIND = 4
MARGIN = 5e-2
N_FIRST = 16


def candidates(m):
    """Endless prompts, of three kinds in turn: plain talk, a story, a tool to call."""
    while True:
        turns = talk.term(m) + talk.small_talk(m)
        yield "talk", {"messages": [{"role": "user", "content": turns[0][0]}, {"role": "assistant", "content": turns[0][1]},
                                    {"role": "user", "content": turns[1][0]}]}
        yield "story", {"messages": [{"role": "system", "content": talk.plain_system(m)},
                                     {"role": "user", "content": talk.a_story(m)[0][0]}]}
        s = agent.Scene(m, toolbox.choose(m, 3))
        tool = m.pick(s.tools)
        s.user(tool.family.use(m, tool).ask)
        yield "tool", s.dialogue()


def main(argv):
    torch.set_num_threads(1)
    tokeniser = reference.tokeniser_of(argv[1])
    engine = reference.Engine.from_gguf(argv[1], torch.float32)
    exact = reference.Engine.from_gguf(argv[1], torch.float64)
    found = []
    for kind, dialogue in candidates(words.Maker("golden", held_out=True)):
        if sum(f["kind"] == kind for f in found) == PER_KIND:
            continue
        text = chat.text_of(dialogue, generate=True)
        ids = tokeniser.encode(text)
        if engine.greedy(ids, N_IDS)[1] < MARGIN:
            continue
        out, margin = exact.greedy(ids, N_IDS)
        if margin < MARGIN:
            continue
        exact.reset()
        first = exact.feed(ids)[:N_FIRST].tolist()
        found.append({"kind": kind, "prompt": text, "prompt_ids": ids, "greedy_ids": out, "text": tokeniser.decode(out),
                       "min_margin": round(margin, 5), "first_logits": [round(x, 6) for x in first]})
        print("%-6s %4d prompt ids, margin %.4f: %r" % (kind, len(ids), margin, tokeniser.decode(out)))
        if len(found) == 3 * PER_KIND:
            break
    with open(argv[2], "w") as f:
        json.dump({"n_ids": N_IDS, "arithmetic": "float64, weights de-quantised from Q8_0", "prompts": found}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv)
