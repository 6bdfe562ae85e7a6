# SPDX-License-Identifier: Apache-2.0
"""Prompt caching from the client's side: a tool loop of twenty turns reads its prefix from the cache every turn, on any
worker.

The client sends its history as other JSON libraries would write it: members in another order, characters escaped,
integers as reals, text trimmed.  Pass a test's name as argument to see its table.
"""
import http.client
import json
import os
import random
import re
import subprocess
import time

from cluster import BUILD, Cluster, events, fetch, in_threads, main, patience
from test_tier import until

TURNS = 20
BLOCK = 32
TOOLS = [{"name": "read_file", "description": "Reads a file.",
          "input_schema": {"type": "object", "properties": {"path": {"type": "string", "description": "the file"}},
                           "required": ["path"]}},
         {"name": "list_files", "description": "Lists the files of a folder.",
          "input_schema": {"type": "object", "properties": {"folder": {"type": "string"}}}}]
SYSTEM = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=%08x;"},
          {"type": "text", "text": "You are a careful coding agent. Use the tools."}]


class Wild:
    """A client's JSON library that writes the same value differently each time."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def write(self, value):
        if isinstance(value, dict):
            keys = list(value)
            self.random.shuffle(keys)
            return "{" + self.blank() + ",".join(self.text(k) + ":" + self.write(value[k]) for k in keys) + "}"
        if isinstance(value, list):
            return "[" + ",".join(self.write(v) + self.blank() for v in value) + "]"
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self.random.choice(["%d", "%d.0", "%de0"]) % value
        return json.dumps(value)

    def blank(self):
        return self.random.choice(["", " ", "\n  "])

    def text(self, text):
        return '"' + "".join(
            "\\u%04x" % ord(c) if ord(c) < 0x10000 and (c in '"\\' or ord(c) < 32 or self.random.random() < 0.2) else c
            for c in text) + '"'


class Loop:
    """An agent with tools."""

    def __init__(self, port, wild=1, **fields):
        self.port, self.wild, self.fields = port, Wild(wild), fields
        self.messages = [{"role": "user", "content": "Read the file notes0.txt"}]
        self.rows = []
        self.calls = 0
        self.strips = 0  # a bit for each text, chosen for each turn: the test counts the prompt that it sends

    def request(self, streams):
        system = [dict(SYSTEM[0], text=SYSTEM[0]["text"] % self.wild.random.getrandbits(32)), dict(SYSTEM[1])]
        messages = json.loads(json.dumps(self.messages))
        last = messages[-1]["content"]
        if isinstance(last, list):
            last[-1]["cache_control"] = {"type": "ephemeral"}
        texts = [block for message in messages if message["role"] == "assistant" for block in message["content"] if block["type"] == "text"]
        for i, block in enumerate(texts):
            if self.strips >> i & 1:
                block["text"] = block["text"].strip()
        head = {"model": "baton-demo", "max_tokens": 48, "temperature": 0, "stream": streams, **self.fields}
        return ('{"messages":' + self.wild.write(messages) + ',"tools":' + json.dumps(TOOLS) + ',"system":' +
                self.wild.write(system) + "," + json.dumps(head)[1:])

    def post(self, body, path="/v1/messages"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(60))
        try:
            connection.request("POST", path, body.encode(), {"baton-proof": "stream"})
            response = connection.getresponse()
            if "event-stream" not in response.getheader("content-type"):
                text = response.read()
                assert response.status == 200, text
                return json.loads(text), dict(response.getheaders())
            return list(events(response)), {}
        finally:
            connection.close()

    def count(self):
        return self.post(self.request(False), "/v1/messages/count_tokens")[0]["input_tokens"]

    def whole(self):
        answer, headers = self.post(self.request(False))
        serving = dict(item.strip().split("=") for item in headers["baton-proof"].split(";"))
        return answer["content"], answer["usage"], {k: int(serving[k]) for k in ("prompt", "computed", "reused")} | {
            "workers": (serving["prefill"], serving["decode"])}

    def streamed(self):
        content, start, end = [], None, None
        for name, data in self.post(self.request(True))[0]:
            if name == "message_start":
                start = data["message"]["usage"]
            elif name == "content_block_start":
                content.append(dict(data["content_block"], piece=""))
            elif name == "content_block_delta":
                content[-1]["piece"] += data["delta"].get("text", data["delta"].get("partial_json", ""))
            elif name == "message_delta":
                end = data["usage"]
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            assert start[name] == end[name], (start, end)
        for block in content:
            piece = block.pop("piece")
            if block["type"] == "text":
                block["text"] = piece
            else:
                block["input"] = json.loads(piece or "{}")
        serving = end["baton"]
        return content, dict(start, output_tokens=end["output_tokens"]), {
            **{k: serving[k] for k in ("prompt", "computed", "reused")}, "workers": (serving["prefill"], serving["decode"])}

    def turn(self, n):
        self.strips = self.wild.random.getrandbits(64)
        counted = self.count()
        content, usage, serving = self.streamed() if n % 2 else self.whole()
        created = usage["cache_creation"]
        row = {"prompt": usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"],
               "read": usage["cache_read_input_tokens"], "created": usage["cache_creation_input_tokens"],
               "input": usage["input_tokens"], "output": usage["output_tokens"], "computed": serving["computed"],
               "workers": serving["workers"]}
        assert row["prompt"] == counted == serving["prompt"], (row, counted, serving)
        assert created["ephemeral_5m_input_tokens"] + created["ephemeral_1h_input_tokens"] == row["created"], usage
        self.rows.append(row)
        self.messages.append({"role": "assistant", "content": content})
        following = []
        for block in content:
            if block["type"] == "tool_use":
                self.calls += 1
                following.append({"type": "tool_result", "tool_use_id": block["id"],
                                  "content": f"The code is {n * 37}."})
        following.append({"type": "text", "text": f"Read the file notes{n + 1}.txt"})
        self.messages.append({"role": "user", "content": following})

    def run(self, turns=TURNS):
        for n in range(turns):
            self.turn(n)
        return self

    def show(self, title):
        print(f"{title}: {self.calls} calls")
        print("turn prompt   read created  input output computed  workers")
        for n, row in enumerate(self.rows):
            print(f"{n + 1:4} {row['prompt']:6} {row['read']:6} {row['created']:7} {row['input']:6} {row['output']:6} "
                  f"{row['computed']:8}  {' '.join(w or '-' for w in row['workers'])}")

    def lost(self):
        """The tokens that each turn could have read from the cache and did not, without the last partial block."""
        lost = []
        for before, row in zip(self.rows, self.rows[1:]):
            known = before["prompt"] + before["output"] - 1  # the last sampled token was never fed
            lost.append(max(0, known // BLOCK * BLOCK - row["read"]))
        return lost


class Threaded(Loop):
    """The same agent over a message thread: after the first request it sends only new messages."""

    id = None
    sent = 0

    def request(self, streams):
        if self.id is None:
            body = super().request(streams)[:-1] + ', "thread": {"type": "create"}}'
        else:
            body = json.dumps({"model": "baton-demo", "max_tokens": 48, "temperature": 0, "stream": streams, **self.fields,
                               "messages": self.messages[-1:], "thread": {"type": "continue", "previous_message_id": self.id}})
        self.sent += len(body)
        return body

    def post(self, body, path="/v1/messages"):
        answer, headers = super().post(body, path)
        if path == "/v1/messages":
            self.id = answer[0][1]["message"]["id"] if isinstance(answer, list) else answer["id"]
        return answer, headers


def over_a_thread():
    """A thread equals the whole conversation: the same prompts and answers, and no token computed twice."""
    with Cluster() as c:
        c.router(placement__local_prefill_tokens="100000")
        c.worker("decode")
        c.wait_ready(decode=1)
        port = c.routers[0].http
        threaded = Threaded(port, max_tokens=400, temperature=1, seed=5).run()
        threaded.show("over a thread")
        assert sum(threaded.lost()) == 0, threaded.lost()
        whole = Loop(port, max_tokens=400, temperature=1, seed=5).run()
        texts = [[[(b["type"], b.get("text"), b.get("input")) for b in m["content"]] for m in loop.messages if m["role"] == "assistant"]
                 for loop in (threaded, whole)]
        assert texts[0] == texts[1], "other answers"
        assert [row["prompt"] for row in threaded.rows] == [row["prompt"] for row in whole.rows]
        print(f"bytes sent by {TURNS} turns and {TURNS} counts: {threaded.sent} over a thread, "
              f"{len(whole.request(False))} by the last request alone without")
        refused = {}
        for _ in range(2):
            status, _, answer = fetch(port, "POST", "/v1/messages", json.loads(threaded.request(False)))
            refused[status] = json.loads(answer)
        assert refused[400]["error"]["details"]["error_code"] == "thread_already_continued", refused
        c.routers[0].kill()
        c.routers[0].start()
        c.wait_ready(decode=1)
        status, _, answer = fetch(c.routers[0].http, "POST", "/v1/messages", json.loads(threaded.request(False)))
        assert (status, json.loads(answer)["error"]["details"]["error_code"]) == (400, "thread_already_continued"), answer  # the worker keeps it
        for daemon in (c.routers[0], c.workers[0]):
            daemon.kill()
            daemon.start()
        c.wait_ready(decode=1)
        status, _, answer = fetch(c.routers[0].http, "POST", "/v1/messages", json.loads(threaded.request(False)))
        assert (status, json.loads(answer)["error"]["details"]["error_code"]) == (404, "thread_not_found"), answer
        c.assert_quiet()


def on_one_worker():
    with Cluster() as c:
        c.router(placement__local_prefill_tokens="100000")
        c.worker("decode")
        c.wait_ready(decode=1)
        loop = Loop(c.routers[0].http).run()
        loop.show("one worker")
        assert loop.calls >= TURNS // 2, loop.calls
        assert sum(loop.lost()) == 0, loop.lost()
        c.assert_quiet()


def with_a_pair_at_hand():
    """The router places short turns on the decode worker, which has the whole conversation, at once after an answer too: the
    worker's latest report may still count the prompt of the turn before, which the router knows to be done."""
    with Cluster() as c:
        c.relay(placement__local_prefill_tokens="128")
        loop = Loop(c.routers[0].http).run()
        loop.show("prefill and decode worker")
        assert loop.rows[0]["workers"] == ("prefill0", "decode0"), loop.rows[0]
        assert all(row["workers"] == ("", "decode0") for row in loop.rows[2:]), loop.rows
        assert sum(loop.lost()[1:]) == 0, loop.lost()
        c.assert_quiet()


def with_every_turn_through_the_pair():
    """The prefill worker lacks the decode worker's answers.  A turn placed there computes the last answer again and
    reads everything before it from the cache."""
    with Cluster() as c:
        c.relay(placement__local_prefill_tokens="1")
        loop = Loop(c.routers[0].http).run()
        loop.show("every turn through the pair")
        for before, row in zip(loop.rows, loop.rows[1:]):
            assert row["workers"] == ("prefill0", "decode0"), row
            assert row["read"] >= before["prompt"] // BLOCK * BLOCK, (before, row)
            assert row["computed"] == row["prompt"] - row["read"], row
        c.assert_quiet()


def on_a_worker_itself():
    with Cluster() as c:
        c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        loop = Loop(c.workers[0].http).run(8)
        loop.show("a worker's own endpoint")
        assert sum(loop.lost()) == 0, loop.lost()


def sampled_answers_are_continued_too():
    """Sampled tokens are not always the encoding of their text. An answer that is cut within a call is not replayed."""
    lost = {}
    for memory in ("0", "64MiB"):
        with Cluster() as c:
            c.router(cache__replay_memory=memory)
            c.worker("decode")
            c.wait_ready(decode=1)
            loops = [Loop(c.routers[0].http, seed, temperature=1.2, seed=seed, max_tokens=120).run()
                     for seed in range(1, 9)]
            turns = [(tokens, row) for loop in loops for tokens, row in zip(loop.lost(), loop.rows)]
            whole = [tokens for tokens, row in turns if row["output"] < 120]
            assert len(whole) >= 0.9 * len(turns), "too many answers were cut"
            lost[memory] = sum(whole)
    print(f"tokens computed again in 8 loops at temperature 1.2: {lost['0']} as rendered, {lost['64MiB']} with replay")
    assert lost["64MiB"] == 0, lost


def every_request_is_billed_what_was_counted():
    mark, hour = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
    text = "What is a hand-off, and what is the KV cache? " * 12
    user = {"role": "user", "content": text}
    requests = [
        {"messages": [user]},
        {"messages": [user], "tools": TOOLS, "tool_choice": {"type": "none"}},
        {"messages": [user], "tools": TOOLS, "cache_control": hour},
        {"messages": [user, {"role": "assistant", "content": "The hand-off"}]},
        {"messages": [user], "system": [{"type": "text", "text": text, "cache_control": hour},
                                        {"type": "text", "text": "Short.", "cache_control": mark}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": text, "cache_control": mark},
                                                   {"type": "text", "text": "And more."}]}]},
        {"messages": [user], "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1030},
        {"messages": [user], "thinking": {"type": "disabled"}},
        {"messages": [user, {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": text, "cache_control": mark}]}]}], "tools": TOOLS},
        {"messages": [user], "system": [{"type": "text", "text": "x-anthropic-billing-header: a"},
                                        {"type": "text", "text": text}], "cache_control": mark},
        {"messages": [user], "system": [{"type": "text", "text": "x-anthropic-billing-header: bb"},
                                        {"type": "text", "text": text}], "cache_control": mark},
    ]
    with Cluster() as c:
        c.relay(placement__local_prefill_tokens="64")
        port = c.routers[0].http
        last = None
        for n, request in enumerate(requests):
            body = {"model": "baton-demo", "max_tokens": 6, "temperature": 0, **request}
            _, _, counted = fetch(port, "POST", "/v1/messages/count_tokens", body)
            for turn in range(2):
                if turn == 0:
                    status, headers, answer = fetch(port, "POST", "/v1/messages", body)
                    assert status == 200, answer
                    usage = json.loads(answer)["usage"]
                    serving = dict(item.strip().split("=") for item in headers["baton-proof"].split(";"))
                else:
                    loop = Loop(port)
                    start = next(d["message"]["usage"] for e, d in loop.post(json.dumps(dict(body, stream=True)))[0]
                                 if e == "message_start")
                    assert start["cache_read_input_tokens"] > 0, (n, start)
                    usage = start
                created = usage["cache_creation_input_tokens"]
                total = usage["input_tokens"] + created + usage["cache_read_input_tokens"]
                assert total == json.loads(counted)["input_tokens"], (n, usage, counted)
                assert created == sum(usage["cache_creation"].values()), usage
                if turn == 0:
                    assert usage["cache_read_input_tokens"] == int(serving["reused"]), (usage, serving)
                    assert int(serving["computed"]) == total - int(serving["reused"]), (usage, serving)
            if n == len(requests) - 1:
                assert json.loads(answer)["usage"]["cache_read_input_tokens"] == last // BLOCK * BLOCK - (last % BLOCK == 0) * BLOCK, \
                    "another attribution block lost the prefix"
            last = total


def a_prewarmed_prompt_is_read():
    with Cluster() as c:
        c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        port = c.routers[0].http
        body = {"model": "baton-demo", "max_tokens": 0, "system": PUBLIC, "messages": [{"role": "user", "content": "x"}]}
        status, _, answer = fetch(port, "POST", "/v1/messages", body)
        answer = json.loads(answer)
        assert status == 200 and answer["content"] == [] and answer["stop_reason"] == "max_tokens", answer
        assert answer["usage"]["output_tokens"] == 0, answer
        assert reads(port, "", PUBLIC, "What is TTFT?")[0] > 500
        for field in ({"stream": True}, {"thinking": {"type": "enabled", "budget_tokens": 1024}},
                      {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
                      {"tools": TOOLS, "tool_choice": {"type": "any"}}):
            status, _, answer = fetch(port, "POST", "/v1/messages", {**body, **field})
            assert status == 400, (field, answer)


def new_key(c, path, tenant):
    out = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", tenant], capture_output=True, text=True)
    text = out.stdout + out.stderr
    with open(path, "a") as f:
        f.write(next(l for l in text.splitlines() if re.match(r"[0-9a-f]{64} ", l)) + "\n")
    os.chmod(path, 0o600)
    return re.search(r"\bsk-[A-Za-z0-9_-]+", text).group(0)


PUBLIC = "You are a helper for Baton. " + " ".join(f"Rule {i}: be brief and say what you know." for i in range(40))


def reads(port, key, system, question, **fields):
    status, _, body = fetch(port, "POST", "/v1/messages", {
        "model": "baton-demo", "max_tokens": 8, "temperature": 0, "system": system,
        "messages": [{"role": "user", "content": question}], **fields}, {"x-api-key": key})
    usage = json.loads(body)["usage"]
    assert status == 200, body
    return usage["cache_read_input_tokens"], usage["cache_read_input_tokens"] + usage["input_tokens"]


def two_tenants(c):
    """Files of the API keys and of the public prefixes, and the keys themselves: ann's and bob's."""
    keys, public = os.path.join(c.dir, "keys"), os.path.join(c.dir, "public.json")
    ann, bob = new_key(c, keys, "ann"), new_key(c, keys, "bob")
    with open(public, "w") as f:
        json.dump({"system": PUBLIC}, f)
    return keys, public, ann, bob


def tenants_share_what_is_declared_public():
    """Two tenants, one system text.  When the text is declared public, the second tenant reads it from the cache, and
    nothing of the first one's question."""
    question = "What is the KV cache? " * 20
    with Cluster() as c:
        keys, public, ann, bob = two_tenants(c)
        c.relay(http__api_keys=keys, cache__public_prefix=public)
        port = c.routers[0].http
        assert reads(port, ann, "Private. " + PUBLIC, question)[0] == 0
        assert reads(port, bob, "Private. " + PUBLIC, question)[0] == 0, "what is not declared is shared"
        read, prompt = reads(port, ann, PUBLIC, question)
        assert read == 0, read
        again = reads(port, ann, PUBLIC, question)[0]
        assert again == (prompt - 1) // BLOCK * BLOCK, (again, prompt)
        status, _, body = fetch(port, "POST", "/v1/messages/count_tokens", {
            "model": "baton-demo", "system": PUBLIC, "messages": [{"role": "user", "content": "x"}]}, {"x-api-key": bob})
        beginning = json.loads(body)["input_tokens"]
        shared = reads(port, bob, PUBLIC, question)[0]
        print(f"prompt {prompt}: the same tenant reads {again}, another {shared}")
        assert 0 < shared <= beginning < again and shared % BLOCK == 0 and shared > beginning - 2 * BLOCK, (shared, beginning)
        assert reads(port, bob, PUBLIC, question)[0] == again
        # A prefix of a public text is public too; the text after it is not.
        assert 0 < reads(port, bob, PUBLIC[:len(PUBLIC) // 2] + " And Bob is secret.", question)[0] < shared
        c.assert_quiet()


def first_requests_wait_until_the_declared_is_rendered():
    """Rendering the declared beginnings takes a while.  All requests that come meanwhile have public prompts."""
    systems = [f"Example {i} Ltd. " + PUBLIC for i in range(8)]
    with Cluster() as c:
        keys, public, ann, bob = two_tenants(c)
        with open(public, "w") as f:
            json.dump([{"system": system} for system in systems] + [{"system": f"{i} " + PUBLIC * 30} for i in range(40)], f)
        c.relay(http__api_keys=keys, cache__public_prefix=public)
        port = c.routers[0].http
        in_threads([lambda system=system: reads(port, ann, system, "Hello") for system in systems])
        shared = [reads(port, bob, system, "Good morning")[0] for system in systems]
        assert all(n > 0 for n in shared), shared
        c.assert_quiet()


def marked_prompts_stay_longest():
    """When memory is short, unpinned blocks go first, however recently they were used."""
    with Cluster() as c:
        c.router()
        c.worker("decode", kv__memory="8MiB")  # about 1300 tokens
        c.wait_ready(decode=1)
        port = c.routers[0].http
        ask = lambda name, **fields: reads(port, "", " ".join(f"{name} rule {i}." for i in range(60)), "Hi", **fields)
        mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        assert ask("marked", **mark)[0] == 0
        for n in range(6):
            ask(f"other{n}")
        marked, unmarked = ask("marked"), ask("other0")
        print(f"after six other prompts: marked reads {marked[0]} of {marked[1]}, unmarked {unmarked[0]} of {unmarked[1]}")
        assert marked[0] >= marked[1] // BLOCK * BLOCK - 2 * BLOCK and unmarked[0] == 0


def a_salt_divides_a_tenant():
    question = "What is the KV cache? " * 20
    with Cluster() as c:
        c.router()
        c.worker("decode")
        c.wait_ready(decode=1)
        port = c.routers[0].http
        assert reads(port, "", PUBLIC, question, cache_salt="one")[0] == 0
        assert reads(port, "", PUBLIC, question, cache_salt="one")[0] > 0
        assert reads(port, "", PUBLIC, question, cache_salt="two")[0] == 0
        assert reads(port, "", PUBLIC, question)[0] == 0


def a_bad_declaration_is_refused():
    for text, words in (("{", "not valid JSON"), ("[1]", "no object"), ('{"system": 1}', "system: Input should"), (None, "No such")):
        with Cluster() as c:
            path = os.path.join(c.dir, "public.json")
            if text is not None:
                with open(path, "w") as f:
                    f.write(text)
            router = c.router(cache__public_prefix=path)
            assert router.process.wait(patience(10)) == 1
            assert words in router.tail() and "public.json" in router.tail(), router.tail()
            c.routers.clear()


if __name__ == "__main__":
    main([on_one_worker, over_a_thread, with_a_pair_at_hand, with_every_turn_through_the_pair, on_a_worker_itself,
          sampled_answers_are_continued_too, every_request_is_billed_what_was_counted, a_prewarmed_prompt_is_read,
          tenants_share_what_is_declared_public, first_requests_wait_until_the_declared_is_rendered,
          a_salt_divides_a_tenant, marked_prompts_stay_longest,
          a_bad_declaration_is_refused])
