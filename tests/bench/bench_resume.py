# SPDX-License-Identifier: Apache-2.0
"""Kills a router under many streams. Their clients come back to another router, and the bytes of every stream are
compared.

    BATON_BUILD=build python3 tests/bench/bench_resume.py [STREAMS] [--routers N] [--redis]        (1000 streams, 2 routers)

N routers and two simulated decode workers on loopback, with --redis a store that the routers share.  All streams are at
the router that is killed if there are two, else at all of them in equal parts.  Half of the streams are of each API.
Each resumed stream is compared with the whole stream that another router gives afterwards.
"""
import argparse
import asyncio
import json
import os
import re
import resource
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from cluster import Cluster  # noqa: E402


class Client:
    def __init__(self, i):
        self.path = "/v1/messages" if i % 2 else "/v1/chat/completions"
        usage = {} if i % 2 else {"stream_options": {"include_usage": True}}
        self.body = json.dumps({"model": "baton-demo", "max_tokens": 300, "stream": True, **usage,
                                "messages": [{"role": "user", "content": f"question {i}"}]}).encode()
        self.events, self.n_resumed, self.at_kill, self.i = [], 0, 0, i

    def is_over(self):
        return bool(self.events) and (b"message_stop" in self.events[-1] or b"[DONE]" in self.events[-1])

    async def read(self, port, again=None):
        """Returns the status; 0: the connection was refused."""
        status = 0
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return status
        try:
            head = f"POST {self.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(self.body)}\r\nconnection: close\r\n"
            head += f"last-event-id: {again}\r\n" if again else ""
            writer.write(head.encode() + b"\r\n" + self.body)
            status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
            text = b""
            while status == 200:
                n = int(await reader.readuntil(b"\r\n"), 16)
                if n == 0:
                    break
                text += (await reader.readexactly(n + 2))[:-2]
                *events, text = text.split(b"\n\n")
                for event in events:
                    if event.startswith(b"id: "):
                        self.events.append(event)
                    assert b"event: error" not in event, event
        except (OSError, asyncio.IncompleteReadError, IndexError):
            pass
        finally:
            writer.close()
        return status

    def last_id(self):
        return re.match(rb"id: (\S+)", self.events[-1]).group(1).decode() if self.events else None

    async def run(self, ports):
        n = len(ports)
        await self.read(ports[self.i // 2 % n] if n > 2 else ports[0])
        for again in range(200):
            if self.is_over():
                return
            self.n_resumed += 1
            await self.read(ports[1 + (self.i + again) % (n - 1)], self.last_id())
            await asyncio.sleep(0.05)
        raise AssertionError(f"not over: {self.events[-1:]}")


async def drive(c, ports, n):
    clients = [Client(i) for i in range(n)]
    tasks = [asyncio.create_task(client.run(ports)) for client in clients]
    while sum(len(client.events) > 2 or client.is_over() for client in clients) < n:
        await asyncio.sleep(0.05)
    for client in clients:
        client.at_kill = len(client.events)
    killed = time.monotonic()
    c.routers[0].kill()
    while sum(len(client.events) > client.at_kill or client.is_over() for client in clients) < n:
        await asyncio.sleep(0.01)
    back = time.monotonic() - killed
    await asyncio.gather(*tasks)
    resumed = [client for client in clients if client.n_resumed]
    n_wrong = 0
    for client in resumed:
        whole = Client(0)
        whole.path, whole.body = client.path, client.body
        status = await whole.read(ports[1], client.last_id().rsplit(".", 1)[0] + ".0")
        n_wrong += status != 200 or whole.events != client.events
    drawn = sum(w.metric("baton_worker_drawn_tokens_total") for w in c.workers)
    said = sum(int(([0] + re.findall(rb'"(?:output_tokens|completion_tokens)": ?(\d+)', b"".join(x.events)))[-1]) for x in clients)
    return len(resumed), n_wrong, back, drawn, said


def run(n, n_routers=2, **settings):
    """Kills the first of the routers under n streams.  What came of it, as a dict."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Cluster() as c:
        for _ in range(n_routers):
            c.router(http__max_per_address="20000", queue__max="20000", queue__timeout="60s", log__level="info", **settings)
        links = [f"127.0.0.1:{r.link}" for r in c.routers]
        for _ in range(2):
            c.worker("decode", link__routers=links, engine__kind="sim", sched__max_seqs=str(n), kv__memory="1GiB",
                     engine__sim_step="20ms", engine__sim_decode_seq="1us", engine__sim_answer_tokens="100000",
                     stream__grace="120s", log__level="info")
        for _ in range(n_routers):
            c.wait_ready(prefill=0, decode=2)
            c.routers.append(c.routers.pop(0))
        resumed, wrong, back, drawn, said = asyncio.run(drive(c, [r.http for r in c.routers], n))
        left = c.routers[1:]
        return {"streams": n, "resumed": resumed, "wrong": wrong, "back_s": back, "drawn": drawn, "said": said,
                "twice": sum(r.metric("baton_router_redispatched_total") for r in left),
                "orphans": sum(w.metric("baton_worker_orphans_cancelled_total") for w in c.workers)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("streams", type=int, nargs="?", default=1000)
    parser.add_argument("--routers", type=int, default=2)
    parser.add_argument("--redis", action="store_true")
    args = parser.parse_args()
    if args.redis:
        from redis_server import Redis
        with Redis() as redis:
            got = run(args.streams, args.routers, state__url=redis.url)
    else:
        got = run(args.streams, args.routers)
    print(f"{got['streams']} streams, {got['resumed']} came back to another router, {got['wrong']} of them with other bytes; "
          f"all had new events {got['back_s']:.1f} s after the kill")
    print(f"tokens drawn by the workers: {got['drawn']:.0f}; requests placed twice: {got['twice']:.0f}; "
          f"orphans cancelled: {got['orphans']:.0f}")
    assert got["wrong"] == 0 and got["resumed"] > got["streams"] // (2 if args.routers == 2 else args.routers + 1)


if __name__ == "__main__":
    main()
