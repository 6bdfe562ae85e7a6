# SPDX-License-Identifier: Apache-2.0
"""A model behind Baton's API, in the place of the plain engine of reference.py: far quicker on long prompts.

    runner = Served("http://127.0.0.1:8080", "share/baton-demo.gguf")    # the file lends its tokeniser

Prompts go as token ids to /v1/completions, so the server adds nothing to them.
"""
import json
import urllib.error
import urllib.request

import chat
import reference


class Served:
    def __init__(self, url, tokeniser_file):
        self.url = url.rstrip("/")
        self.tokeniser = reference.tokeniser_of(tokeniser_file)
        with urllib.request.urlopen(self.url + "/v1/models", timeout=60) as answer:
            self.name = json.load(answer)["data"][0]["id"]

    def post(self, ids, **fields):
        body = json.dumps({"model": self.name, "prompt": ids, "temperature": 0, **fields}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=1800) as answer:
                return json.load(answer)["choices"][0]
        except urllib.error.HTTPError as e:
            raise RuntimeError("%d: %s" % (e.code, e.read().decode())) from e

    def continued(self, ids, limit=200):
        return self.post(ids, max_tokens=limit)["text"]

    def reply(self, dialogue, limit=200):
        return self.continued(self.tokeniser.encode(chat.text_of(dialogue, generate=True)), limit)

    def nll(self, dialogue):
        """Sum of -log p over what the assistant writes, and its length in tokens."""
        ids, flags = chat.encode(self.tokeniser, dialogue)
        scores = self.post(ids, max_tokens=0, echo=True, logprobs=0)["logprobs"]["token_logprobs"]
        assert len(scores) == len(ids), "%d log probabilities of %d tokens" % (len(scores), len(ids))
        return -sum(s for s, f in zip(scores, flags) if f), sum(flags)
