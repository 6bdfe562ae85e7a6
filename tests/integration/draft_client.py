# SPDX-License-Identifier: Apache-2.0
"""What tests of draft tokens share: an answer with its log probabilities, and the start of a worker without a router."""
import json
import time

from cluster import fetch, patience


def ask(port, model, text, fields, n):
    request = {"model": model, "max_tokens": n, "logprobs": True, "top_logprobs": 3,
               "messages": [{"role": "user", "content": text}], **fields}
    status, _, answer = fetch(port, "POST", "/v1/chat/completions", request, timeout=patience(120))
    assert status == 200, (status, answer)
    choice = json.loads(answer)["choices"][0]
    return choice["message"]["content"], choice["logprobs"]["content"], choice["finish_reason"]


def wait_ready(worker):
    end = time.monotonic() + patience(30)
    while True:
        assert worker.process.poll() is None and time.monotonic() < end, worker.tail()
        try:
            if fetch(worker.http, "GET", "/readyz")[0] == 200:
                return
        except OSError:
            pass  # not listening yet
        time.sleep(0.05)
