# SPDX-License-Identifier: Apache-2.0
"""transformers' opinion of answers that Baton gave; a child process of bench_real_tokens.py.

    real_oracle.py MODEL.gguf < CASES.json > VERDICTS.json

Needs torch, transformers and gguf.  transformers reads the GGUF itself, dequantises its weights and computes in F32.  A case has
the ids of a prompt and the greedy answer: for each token its bytes (hex) and the most likely tokens with their log
probabilities.  One pass over prompt and answer gives transformers' best token at each place.  Up to the first place where it is
another token, transformers alone would have written the same answer.  A verdict has the number of equal tokens, the largest and
the mean square of differences of log probabilities until then, and at the first difference both implementations' log
probabilities of both tokens."""
import copy
import json
import os
import sys

import gguf
import torch
import transformers

CONTROL = 3
BYTE = 6
MANY, LAST = 4000, 64  # prompts that are computed in two passes, and the tokens of the second one


def byte_of_letter():
    """GPT-2's letters for bytes, reversed."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    table.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in plain)})
    return table


def ids_by_bytes(path):
    """Bytes of a token to its id; bytes of two tokens give the whole token, not the one of a single byte."""
    fields = gguf.GGUFReader(path).fields
    words, kinds = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.token_type"].contents()
    letters = byte_of_letter() if fields["tokenizer.ggml.model"].contents() == "gpt2" else None
    out = {}
    for i, (word, kind) in enumerate(zip(words, kinds)):
        if kind == BYTE:
            data = bytes([int(word[3:5], 16)])
        elif kind == CONTROL:
            data = word.encode()
        elif letters:
            data = bytes(letters[c] for c in word) if all(c in letters for c in word) else word.encode()
        else:
            data = word.replace("\u2581", " ").encode()
        if kind == BYTE or kind == CONTROL:
            out.setdefault(data.hex(), i)
        else:
            out[data.hex()] = i
    return out, words


class Passes:
    """Computes prompts; the KV of the last one serves the tokens that the next one begins with, where these are many."""

    def __init__(self, model):
        self.model, self.ids, self.cache = model, [], None

    def logits(self, prompt, answer):
        """A row of logits for each token of the answer, and for the one after it."""
        n = 0
        while n < min(len(self.ids), len(prompt) - 1) and self.ids[n] == prompt[n]:
            n += 1
        with torch.no_grad():
            if len(prompt) < MANY:
                return self.model(torch.tensor([prompt + answer]), logits_to_keep=len(answer) + 1).logits[0].float()
            if self.cache is None or n < len(self.ids):
                n = len(prompt) - LAST
                self.cache = self.model(torch.tensor([prompt[:n]]), use_cache=True, logits_to_keep=1).past_key_values
                self.ids = prompt[:n]
            rest = torch.tensor([prompt[n:] + answer])
            return self.model(rest, past_key_values=copy.deepcopy(self.cache), logits_to_keep=len(answer) + 1).logits[0].float()


def verdict(passes, case, ids, words, ends):
    answer = [ids[step["bytes"]] for step in case["answer"]]
    logits = passes.logits(case["ids"], answer)
    odds = torch.log_softmax(logits, -1)
    out = {"n": 0, "n_answer": len(answer) + case["ended"], "most": 0.0, "squares": 0.0, "n_squares": 0}
    for at, step in enumerate(case["answer"]):
        best = int(logits[at].argmax())
        for text, theirs in step["top"]:
            if text in ids:
                delta = theirs - float(odds[at][ids[text]])
                out["most"] = max(out["most"], abs(delta))
                out["squares"] += delta * delta
                out["n_squares"] += 1
        if best != answer[at]:
            ours = {ids[text]: value for text, value in step["top"] if text in ids}
            out["first"] = {"at": at, "theirs": words[best], "baton": words[answer[at]],
                            "their_gap": float(odds[at][best] - odds[at][answer[at]]),
                            "baton_gap": ours[answer[at]] - ours[best] if best in ours else None}
            return out
        out["n"] += 1
    if case["ended"]:
        best = int(logits[len(answer)].argmax())
        if best in ends:
            out["n"] += 1
        else:
            row = odds[len(answer)]
            end = max(ends, key=lambda i: float(row[i]))
            out["first"] = {"at": len(answer), "theirs": words[best], "baton": words[end],
                            "their_gap": float(row[best] - row[end]), "baton_gap": None}
    return out


def main():
    path = os.path.abspath(sys.argv[1])
    given = json.load(sys.stdin)
    torch.set_num_threads(given["threads"])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    ids, words = ids_by_bytes(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path),
                                                              dtype=torch.float32)
    model.eval()
    passes = Passes(model)
    for case in given["cases"]:
        print(json.dumps(verdict(passes, case, ids, words, given["ends"])), flush=True)


main()
