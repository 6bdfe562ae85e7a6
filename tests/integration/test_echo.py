# SPDX-License-Identifier: Apache-2.0
"""Prompt logprobs (/v1/completions with echo and logprobs), as evaluation harnesses ask for them, through real daemons.
They equal the logits that baton-model writes for the same tokens: on any worker, with any cache state, when the
worker dies in the middle, whole and as a stream.  Billing is checked too."""
import array
import http.client
import json
import math
import os
import signal
import subprocess
import tempfile
import time

from cluster import BUILD, MODEL, Cluster, fetch, in_threads, main, patience

TEXT = ("The router terminates HTTP, authenticates, renders the chat template and tokenises; the prefill worker computes the "
        "prompt and hands its KV cache to the decode worker, which writes the answer one token at a time. ") * 3

SCORED = {"model": "baton-demo", "temperature": 0, "echo": True, "logprobs": 2}


def post(port, path, body):
    status, headers, answer = fetch(port, "POST", path, dict(body, model="baton-demo"), timeout=120)
    return status, headers, json.loads(answer)


def complete(port, **fields):
    status, headers, answer = post(port, "/v1/completions", {**SCORED, "max_tokens": 0, **fields})
    assert status == 200, (status, answer)
    return answer, headers


def tokens_of(port, text):
    return post(port, "/tokenize", {"prompt": text})[2]["tokens"]


def rows_of(ids):
    """A row of log probabilities after each token, by baton-model."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        subprocess.run([os.path.join(BUILD, "baton-model"), "logits", "--every", "--top", "0", "--out", out, "--threads", "2",
                        "--ids", ",".join(map(str, ids)), MODEL], check=True, stdout=subprocess.DEVNULL)
        values = array.array("f")
        with open(out, "rb") as f:
            values.frombytes(f.read())
    n = len(values) // len(ids)
    rows = []
    for i in range(len(ids)):
        row = values[i * n:(i + 1) * n]
        top = max(row)
        log_sum = top + math.log(math.fsum(math.exp(x - top) for x in row))
        rows.append([x - log_sum for x in row])
    return rows


def as_the_logits_say(choice, ids, rows, n_more=0):
    given = choice["logprobs"]
    n = len(ids)
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert len(given[name]) == n + n_more, (name, len(given[name]), n, n_more)
    assert given["token_logprobs"][0] is None and given["top_logprobs"][0] is None
    for i in range(1, n):
        value, tops = given["token_logprobs"][i], given["top_logprobs"][i]
        assert abs(value - rows[i - 1][ids[i]]) < 2e-4, (i, value, rows[i - 1][ids[i]])
        assert abs(max(tops.values()) - max(rows[i - 1])) < 2e-4, (i, tops)
        assert tops[given["tokens"][i]] == value and 2 <= len(tops) <= 3, (i, tops)
    text = choice["text"]
    for i in range(1, n):
        assert text[:given["text_offset"][i]].endswith(given["tokens"][i - 1]) or "bytes:" in given["tokens"][i - 1] or i == 1, i


def whoever_computes_them():
    with Cluster() as c:
        c.relay()
        router = c.routers[0].http
        ids = tokens_of(router, TEXT)
        rows = rows_of(ids)
        assert len(ids) > 100
        first, headers = complete(router, prompt=TEXT)
        choice = first["choices"][0]
        assert choice["text"] == TEXT and choice["finish_reason"] == "length", choice
        as_the_logits_say(choice, ids, rows)
        assert first["usage"]["prompt_tokens"] == len(ids) and first["usage"]["completion_tokens"] == 0, first["usage"]
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, first["usage"]
        assert f"prompt={len(ids)}; computed={len(ids)}; reused=0; transferred=0" in dict(headers)["baton-proof"], headers
        # the whole prompt is cached now; every worker returns the same logprobs to the digit, also for token ids
        for port in (router, router, c.workers[0].http, c.workers[1].http):
            again, _ = complete(port, prompt=TEXT)
            assert again["choices"][0] == choice, port
            assert again["usage"] == first["usage"]
            as_ids, _ = complete(port, prompt=[ids])
            assert as_ids["choices"][0]["logprobs"]["token_logprobs"] == choice["logprobs"]["token_logprobs"]
        # a prompt computed for logprobs is cached for other requests
        plain, _ = complete(c.workers[0].http, prompt=TEXT, logprobs=None, max_tokens=1)
        assert plain["usage"]["prompt_tokens_details"]["cached_tokens"] > 0 and plain["choices"][0]["text"].startswith(TEXT)
        # without echo there are no prompt tokens in the answer; with echo alone there are no logprobs
        assert complete(router, prompt=TEXT, echo=False, max_tokens=3)[0]["choices"][0]["text"] not in TEXT[:20]
        silent, _ = complete(router, prompt=TEXT, logprobs=None)
        assert silent["choices"][0]["text"] == TEXT and silent["choices"][0]["logprobs"] is None, silent
        c.assert_quiet()


def as_a_harness_asks():
    """Contexts and continuations as token ids; one sampled token is discarded.  The continuation is the list's middle."""
    with Cluster() as c:
        c.relay()
        router = c.routers[0].http
        cases = [("The KV cache is ", text) for text in ("handed over", "a bicycle", "kept")]
        prompts = [tokens_of(router, context + text) for context, text in cases]
        answer, _ = complete(router, prompt=prompts, max_tokens=1, logprobs=1, seed=7)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        sums = []
        for ids, choice in zip(prompts, answer["choices"]):
            rows = rows_of(ids)
            given = choice["logprobs"]["token_logprobs"]
            assert len(given) == len(ids) + 1 == len(choice["logprobs"]["tokens"]), (len(given), len(ids))
            n_context = 3
            want = sum(rows[i - 1][ids[i]] for i in range(n_context, len(ids)))
            assert abs(sum(given[n_context:-1]) - want) < 1e-3, (given, want)
            # the sampled token is the likeliest one; its logprob comes last, also where it ends the text
            assert abs(given[-1] - max(rows[-1])) < 2e-4, (given[-1], max(rows[-1]))
            sums.append(want)
        assert len(set(sums)) == 3
        assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts)), answer["usage"]
        # a finished turn, where the model would end at once
        ids = post(router, "/tokenize", {"messages": [{"role": "user", "content": "What is TTFT?"}]})[2]["tokens"]
        status, _, spoken = post(router, "/v1/completions", {"prompt": ids, "max_tokens": 80, "temperature": 0})
        assert status == 200 and spoken["choices"][0]["finish_reason"] == "stop", spoken
        ids += post(router, "/tokenize", {"content": spoken["choices"][0]["text"]})[2]["tokens"]
        ended, _ = complete(router, prompt=ids, max_tokens=1)
        choice = ended["choices"][0]
        assert choice["finish_reason"] == "stop" and len(choice["logprobs"]["tokens"]) == len(ids) + 1, choice
        assert choice["logprobs"]["token_logprobs"][-1] > -1, choice["logprobs"]["token_logprobs"][-1]
        assert len(complete(router, prompt=ids)[0]["choices"][0]["logprobs"]["tokens"]) == len(ids)
        # nothing before the first token predicts it
        lone, _ = complete(router, prompt=[ids[:1]], max_tokens=2)
        assert lone["choices"][0]["logprobs"]["token_logprobs"][0] is None
        both, _ = complete(router, prompt=ids[:40], max_tokens=3, n=2, temperature=1, seed=3)
        assert both["choices"][0]["logprobs"]["token_logprobs"][:40] == both["choices"][1]["logprobs"]["token_logprobs"][:40]
        assert both["usage"]["prompt_tokens"] == 40, both["usage"]
        c.assert_quiet()


def stream(port, on_chunk=None, **fields):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(120))
    connection.request("POST", "/v1/completions", json.dumps({**SCORED, "stream": True, **fields}))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    text, parts, lists, finish = "", 0, {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}, None
    for line in response:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        data = json.loads(line[6:])
        assert "error" not in data, data
        for choice in data["choices"]:
            text += choice["text"]
            if choice.get("logprobs"):
                parts += 1
                for name in lists:
                    lists[name] += choice["logprobs"][name]
            finish = choice["finish_reason"] or finish
        if on_chunk:
            on_chunk(parts)
    connection.close()
    return text, lists, finish, parts


def a_stream_says_the_same():
    with Cluster() as c:
        c.router()
        c.worker("prefill", sched__chunk_tokens=64)
        c.wait_ready(prefill=1)
        router = c.routers[0].http
        whole, _ = complete(router, prompt=TEXT * 3, max_tokens=8)
        streams = in_threads([lambda: stream(router, prompt=TEXT * 3, max_tokens=8)] * 3)
        for text, lists, finish, parts in streams:
            choice = whole["choices"][0]
            assert text == choice["text"] and finish == choice["finish_reason"], (text[-60:], choice["text"][-60:])
            assert lists == choice["logprobs"]
            assert parts > 2, parts
        c.assert_quiet()


def the_worker_dies_in_the_middle():
    with Cluster() as c:
        c.router()
        c.worker("prefill", sched__chunk_tokens=32)
        c.worker("prefill", sched__chunk_tokens=32)
        c.wait_ready(prefill=2)
        router, text = c.routers[0].http, TEXT * 20
        whole, _ = complete(router, prompt=text[:9000], max_tokens=4)
        was_hit = []

        def kill_the_one_that_computes(parts):
            if parts >= 2 and not was_hit:
                was_hit.append(1)
                busy = max(c.workers, key=lambda w: sum(int(open(f"/proc/{w.process.pid}/task/{t}/schedstat").read().split()[0])
                                                        for t in os.listdir(f"/proc/{w.process.pid}/task")))
                busy.kill(signal.SIGKILL)

        text_out, lists, finish, _ = stream(router, kill_the_one_that_computes, prompt=text[:9000], max_tokens=4)
        assert was_hit
        assert text_out == whole["choices"][0]["text"] and finish == whole["choices"][0]["finish_reason"]
        assert lists == whole["choices"][0]["logprobs"]


def half_a_character_is_counted():
    """max_tokens: 1 adds one entry, also if the token is half a character, in every form of answer."""
    with Cluster() as c:
        c.relay()
        router = c.routers[0].http
        half = tokens_of(router, "\u20ac")[-3]  # the first of three bytes
        body = {"max_tokens": 1, "temperature": 0, "logit_bias": {str(half): 100}}
        answer, _ = complete(router, **{**body, "prompt": "The price is"})
        lists = answer["choices"][0]["logprobs"]
        assert lists["tokens"][-1] == "bytes:\\xe2" and lists["text_offset"][-1] == len("The price is"), lists
        assert len(lists["tokens"]) == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"], answer
        _, lists, _, _ = stream(router, **{**body, "prompt": "The price is"})
        assert lists["tokens"][-1] == "bytes:\\xe2", lists
        chat = {**body, "logprobs": True, "messages": [{"role": "user", "content": "The price?"}]}
        entries = post(router, "/v1/chat/completions", chat)[2]["choices"][0]["logprobs"]["content"]
        assert [e["bytes"] for e in entries] == [[0xe2]], entries
        response = {**body, "input": "The price?", "max_output_tokens": 2, "include": ["message.output_text.logprobs"], "stream": True}
        del response["max_tokens"]
        status, _, text = fetch(router, "POST", "/v1/responses", {"model": "baton-demo", **response})
        deltas = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {") and ".delta" in line]
        assert status == 200 and [e["bytes"] for d in deltas for e in d["logprobs"]] == [[0xe2]] * 2, text


if __name__ == "__main__":
    main([whoever_computes_them, as_a_harness_asks, a_stream_says_the_same, the_worker_dies_in_the_middle, half_a_character_is_counted])
