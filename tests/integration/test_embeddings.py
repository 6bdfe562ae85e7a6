# SPDX-License-Identifier: Apache-2.0
"""/v1/embeddings of an embedding model, whose vector is the model's row of the last token.

The oracle: a file with the same weights that is no embedding model. Its logits are the output head times that row, so the
differences of its log probabilities follow from the vector, up to one factor."""
import base64
import json
import math
import os
import struct
import subprocess
import time

from cluster import BUILD, MODEL, Cluster, fetch, in_threads, main, patience
from gguf_file import GgufFile

NAME, HIDDEN = "embedder", 64
SHAPE = (f"--arch qwen3 --layers 3 --hidden {HIDDEN} --heads 4 --head-dim 16 --kv-heads 2 --ffn 96 --context 1024 --type F32 "
         f"--seed 5 --vocab-from {MODEL}").split()
TEXTS = ["The harbour lights went out.", "A", "One baton passes from hand to hand. " * 20, "Größe, 大きさ, 🙂"]


def make(c, name, *more):
    path = os.path.join(c.dir, name + ".gguf")
    subprocess.run([os.path.join(BUILD, "baton-model"), "make", *SHAPE, *more, path], check=True, stderr=subprocess.DEVNULL)
    return path


def embedding_model(c):
    return make(c, NAME, "--set", "pooling_type=3")


def relay(c, **settings):
    settings.update(model__path=embedding_model(c), model__name=NAME)
    c.router()
    c.worker("prefill", **settings)
    c.worker("decode", **settings)
    c.wait_ready(prefill=1, decode=1)


def ask(port, given, model=NAME, **fields):
    status, headers, body = fetch(port, "POST", "/v1/embeddings", {"model": model, "input": given, **fields})
    assert status == 200, (status, body)
    answer = json.loads(body)
    assert answer["object"] == "list" and answer["model"] == model, answer
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    return [item["embedding"] for item in answer["data"]], answer["usage"], headers


def refused(port, status, code, path="/v1/embeddings", **body):
    got, _, text = fetch(port, "POST", path, {"model": NAME, **body})
    error = json.loads(text)["error"]
    assert got == status and (code is None or error.get("code") == code), (got, text)
    return error["message"]


def tokens_of(port, text, model=NAME):
    status, _, body = fetch(port, "POST", "/tokenize", {"model": model, "prompt": text})
    assert status == 200, body
    return json.loads(body)["tokens"]


def floats(text):
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def the_vector_is_the_row_of_the_last_token():
    with Cluster() as c:
        c.router()
        plain = make(c, "plain")
        c.worker("decode", model__path=embedding_model(c), model__name=NAME)
        c.worker("decode", model__path=plain, model__name="plain")
        c.wait_ready(decode=2)
        port, head = c.routers[0].http, GgufFile(plain).tensors["output.weight"]
        some = [3, 70, 99, 140, 201, 255]
        for text in TEXTS:
            vector = ask(port, text)[0][0]
            ids = tokens_of(port, text)
            status, _, body = fetch(port, "POST", "/v1/completions", {
                "model": "plain", "prompt": [ids + [x] for x in some], "echo": True, "logprobs": 0, "max_tokens": 0})
            assert status == 200, body
            logprobs = [choice["logprobs"]["token_logprobs"][-1] for choice in json.loads(body)["choices"]]
            parts = [dot(head[x * HIDDEN:(x + 1) * HIDDEN], vector) for x in some]
            wanted = [p - logprobs[0] for p in logprobs[1:]]
            found = [p - parts[0] for p in parts[1:]]
            scale = dot(wanted, found) / dot(found, found)
            assert scale > 0
            for want, have in zip(wanted, found):
                assert abs(want - scale * have) < 1e-4 * max(map(abs, wanted)), (text, wanted, [scale * f for f in found])
        c.assert_quiet()


def vectors_are_the_same_alone_and_among_others():
    with Cluster() as c:
        relay(c)
        port = c.routers[0].http
        alone = [ask(port, text)[0][0] for text in TEXTS]
        for vector in alone:
            assert len(vector) == HIDDEN and abs(math.sqrt(dot(vector, vector)) - 1) < 1e-6
        many = [f"{TEXTS[i % len(TEXTS)]} Number {i}." for i in range(60)]
        apart = [vector[0] for vector, _, _ in in_threads([lambda text=text: ask(port, text) for text in many])]
        for daemon in c.routers + c.workers:
            assert ask(daemon.http, TEXTS)[0] == alone, daemon.name
            assert ask(daemon.http, TEXTS[::-1] + many)[0] == alone[::-1] + apart, daemon.name
        again, usage, headers = ask(port, TEXTS)  # the long one's prefix is cached
        assert again == alone and "baton-proof" in {name.lower() for name in headers}, headers
        assert usage["prompt_tokens"] == sum(len(tokens_of(port, text)) for text in TEXTS), usage
        c.assert_quiet()


def forms_of_input_and_output():
    with Cluster() as c:
        relay(c)
        port = c.routers[0].http
        whole = ask(port, TEXTS)[0]
        assert [floats(text) for text in ask(port, TEXTS, encoding_format="base64")[0]] == [
            [struct.unpack("<f", struct.pack("<f", x))[0] for x in vector] for vector in whole]
        ids = [tokens_of(port, text) for text in TEXTS]
        assert ask(port, ids)[0] == whole and ask(port, ids[0])[0] == whole[:1]
        assert ask(port, TEXTS, encoding_format="float", user="u", dimensions=None)[0] == whole
        for vector, short in zip(whole, ask(port, TEXTS, dimensions=10)[0]):
            length = math.sqrt(dot(vector[:10], vector[:10]))
            assert len(short) == 10 and all(abs(x / length - y) < 1e-6 for x, y in zip(vector, short))
        assert len(ask(port, ["same"] * 2048)[0]) == 2048
        c.assert_quiet()


def unsupported_requests_are_refused_by_name():
    with Cluster() as c:
        relay(c)
        c.worker("decode", model__name="writer")
        c.wait_ready(prefill=1, decode=2)
        for port in (c.routers[0].http, c.workers[0].http):
            assert "dimensions" in refused(port, 400, None, input="x", dimensions=HIDDEN + 1)
            assert "dimensions" in refused(port, 400, None, input="x", dimensions=0)
            assert "encoding_format" in refused(port, 400, None, input="x", encoding_format="int8")
            for given in (None, [], [""], "", [[]], [["x"]], 5, ["x", 5], {"text": "x"}, ["x"] * 2049, [-1], [10 ** 9]):
                assert "input" in refused(port, 400, None, input=given) or given == [10 ** 9], given
            refused(port, 400, "context_length_exceeded", input="One baton. " * 2000)
            turn = [{"role": "user", "content": "Hello"}]
            assert "embedding model" in refused(port, 400, "embeddings_only", "/v1/chat/completions", messages=turn)
            assert "embedding model" in refused(port, 400, None, "/v1/messages", messages=turn, max_tokens=5)
            assert "embedding model" in refused(port, 400, "embeddings_only", "/v1/completions", prompt="x")
            assert "embedding model" in refused(port, 400, "embeddings_only", "/v1/responses", input="x")
        assert "writer" in refused(c.routers[0].http, 404, "embeddings_unsupported", model="writer", input="x")
        assert refused(c.routers[0].http, 404, "model_not_found", model="none", input="x")
        c.assert_quiet()


def an_end_token_is_added_where_the_file_wants_it():
    with Cluster() as c:
        c.router()
        ends = os.path.join(c.dir, "ends.gguf")
        GgufFile(embedding_model(c)).write_with_switch(ends, "tokenizer.ggml.add_eos_token", True)
        c.worker("decode", model__path=ends, model__name=NAME)
        c.wait_ready(decode=1)
        port = c.routers[0].http
        ids = tokens_of(port, TEXTS[0])
        whole, usage, _ = ask(port, TEXTS[0])
        assert usage["prompt_tokens"] == len(ids) + 1
        assert ask(port, ids)[0] != whole  # token ids are used unchanged
        assert ask(port, "")[1]["prompt_tokens"] > 0
        assert ask(port, TEXTS[0], add_special_tokens=False)[1]["prompt_tokens"] <= len(ids)


def logged(daemon, event):
    with open(daemon.log_path, errors="replace") as f:
        return [json.loads(line) for line in f if f'"event":"{event}"' in line]


def the_one_that_began(workers):
    """Waits for the worker that has a task in its log: its status tells only after a step."""
    until = time.monotonic() + patience(30)
    while time.monotonic() < until:
        for worker in workers:
            if logged(worker, "task_state"):
                return worker
        time.sleep(0.01)
    raise AssertionError("no worker has begun")


def a_worker_that_dies_is_replaced():
    with Cluster() as c:
        slow = {"model__path": embedding_model(c), "model__name": NAME, "engine__kind": "sim", "engine__sim_prefill_token": "10ms"}
        c.router()
        for _ in range(2):
            c.worker("prefill", **slow)
        c.wait_ready(prefill=2)
        text = "One baton passes from hand to hand. " * 20
        found, _ = in_threads([lambda: ask(c.routers[0].http, text), lambda: the_one_that_began(c.workers).kill()])
        survivor = next(w for w in c.workers if w.process.poll() is None)
        assert logged(survivor, "task_state")
        assert found[0] == ask(survivor.http, text)[0]
        c.assert_quiet()


main([the_vector_is_the_row_of_the_last_token, vectors_are_the_same_alone_and_among_others, forms_of_input_and_output,
      unsupported_requests_are_refused_by_name, an_end_token_is_added_where_the_file_wants_it, a_worker_that_dies_is_replaced])
