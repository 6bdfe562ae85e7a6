# SPDX-License-Identifier: Apache-2.0
"""/v1/responses over real daemons: the same tokens as a chat, kept responses, a worker that dies in mid-stream."""
import http.client
import json
import time

from cluster import Cluster, events, fetch, main, patience

# phases that last long enough to be disturbed
SLOW = {"engine__kind": "sim", "engine__sim_decode_seq": "3ms", "engine__sim_step": "2ms", "engine__sim_answer_tokens": "100000"}


def ask(port, **fields):
    status, _, body = fetch(port, "POST", "/v1/responses", {"model": "baton-demo", "temperature": 0, "max_output_tokens": 40, **fields})
    assert status == 200, (status, body)
    return json.loads(body)


def text_of(response):
    return "".join(item["content"][0]["text"] for item in response["output"] if item["type"] == "message")


def a_response_is_the_chats_answer_on_every_daemon():
    with Cluster() as c:
        c.relay()
        question = [{"role": "user", "content": "What is a hand-off?"}]
        status, _, body = fetch(c.routers[0].http, "POST", "/v1/chat/completions",
                                {"model": "baton-demo", "temperature": 0, "max_tokens": 40, "messages": question})
        assert status == 200, body
        wanted = json.loads(body)["choices"][0]["message"]["content"]
        for daemon in c.routers + c.workers:
            assert text_of(ask(daemon.http, input=question, store=False)) == wanted, daemon.name
        status, _, body = fetch(c.routers[0].http, "POST", "/v1/embeddings", {"model": "baton-demo", "input": "x"})
        assert status == 404 and json.loads(body)["error"]["code"] == "embeddings_unsupported", body
        c.assert_quiet()


def a_kept_response_continues_as_the_whole_conversation_would():
    with Cluster() as c:
        c.relay()
        port = c.routers[0].http
        first = ask(port, input="Tell me about prefill and decode workers. " * 8)
        again = ask(port, input="And the KV cache?", previous_response_id=first["id"])
        status, _, body = fetch(port, "GET", f"/v1/responses/{again['id']}/input_items?order=asc")
        assert status == 200, body
        items = json.loads(body)["data"]
        assert [item["role"] for item in items] == ["user", "assistant", "user"], items
        whole = ask(port, input=items, store=False)
        assert text_of(whole) == text_of(again)
        assert whole["usage"]["input_tokens"] == again["usage"]["input_tokens"]
        assert again["usage"]["input_tokens_details"]["cached_tokens"] > 0, again["usage"]
        c.assert_quiet()


def busy(workers):
    """The worker that runs a request."""
    until = time.monotonic() + patience(5)
    while time.monotonic() < until:
        for worker in workers:
            if worker.status()["tasks"] > 0:
                return worker
    raise AssertionError("no worker is busy")


def a_stream_outlives_its_decode_worker():
    with Cluster() as c:
        c.router()
        c.worker("prefill", **SLOW)
        for _ in range(2):
            c.worker("decode", **SLOW)
        c.wait_ready(prefill=1, decode=2)
        fields = {"input": "Tell me about hand-offs. " * 20, "max_output_tokens": 240, "temperature": 1, "seed": 3, "store": False}
        wanted = text_of(ask(c.workers[0].http, **fields))
        connection = http.client.HTTPConnection("127.0.0.1", c.routers[0].http, timeout=patience(60))
        connection.request("POST", "/v1/responses", json.dumps({"model": "baton-demo", "stream": True, **fields}),
                           {"baton-proof": "stream"})
        numbers, text, last = [], "", {}
        for name, data in events(connection.getresponse()):
            numbers.append(data["sequence_number"])
            text += data["delta"] if name == "response.output_text.delta" else ""
            last = data.get("response", last)
            if numbers[-1] == 15:
                busy(c.workers[1:]).kill()
        connection.close()
        assert text == wanted == text_of(last), (text, wanted, last)
        assert numbers == list(range(len(numbers))), numbers
        assert last["baton"]["redispatched"] >= 1, last["baton"]
        c.assert_quiet()


main([a_response_is_the_chats_answer_on_every_daemon, a_kept_response_continues_as_the_whole_conversation_would,
      a_stream_outlives_its_decode_worker])
