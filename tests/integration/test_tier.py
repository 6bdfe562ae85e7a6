# SPDX-License-Identifier: Apache-2.0
"""The disk tier with real daemons.  A restarted or killed worker answers its first repeated prompt from disk, with the
same tokens.  A worker with an unusable folder runs without a store.  One tenant's flood leaves another's prefix in
memory and on disk."""
import glob
import hashlib
import os
import time

from cluster import Cluster, Stream, fetch, main, patience

BLOCK = 32
TEXT = " ".join(f"Line {i} of a long document that is asked about more than once." for i in range(60))


def until(what, true, timeout=30):
    end = time.monotonic() + patience(timeout)
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def ready(worker):
    def is_ready():
        try:
            return fetch(worker.http, "GET", "/readyz", timeout=2)[0] == 200
        except OSError:
            assert worker.process.poll() is None, worker.tail()
            return False
    until("worker is not ready", is_ready)
    return worker


def start(cluster, **settings):
    cluster.router()
    return ready(cluster.worker("decode", **{"kv.disk_size": "256MiB", "kv.disk_path": cluster.dir + "/store",
                                             **{k.replace("__", "."): v for k, v in settings.items()}}))


def disk(worker, what):
    return worker.metric('baton_kv_disk_blocks_total{what="%s"}' % what)


def at_rest(worker):
    """The disk tier's status if no block waits for it or is being written, of one moment; else None."""
    status = worker.status()["disk"]
    return status if status["writeback"] == 0 == status["writing"] else None


def saved_what_is_kept(worker):
    """Waits until nothing is left to save.  Blocks of windowed layers behind the window are cached and not saved."""
    seen = []

    def is_saved():
        status = at_rest(worker)
        seen.append(status["blocks"] if status else None)
        return status and len(seen) > 10 and seen[-1] > 0 and len(set(seen[-10:])) == 1
    until("blocks are not saved", is_saved)


def saved(worker):
    """Waits until all cached blocks are on disk."""
    def is_saved():
        status = worker.status()
        return status["disk"]["blocks"] >= status["blocks"]["cached"] > 0 == status["disk"]["writeback"]
    until("blocks are not saved", is_saved)
    until("not counted", lambda: disk(worker, "written") > 0)


def ask(cluster, worker, text=TEXT):
    return cluster.ask(text, port=worker.http, max_tokens=24)


def restarts_read_from_disk():
    with Cluster() as c:
        worker = start(c)
        first = ask(c, worker)
        assert first.serving["reused"] == 0, first.serving
        again = ask(c, worker)
        saved(worker)
        assert again.serving["reused"] > 0 and disk(worker, "read") == 0
        for how in ("stop", "kill"):
            worker.stop() if how == "stop" else worker.kill()
            ready(worker.start())
            answer = ask(c, worker)
            n_blocks = answer.serving["reused"] // BLOCK
            # All blocks of the prompt except the last token's; none of them was in memory.
            assert answer.serving["reused"] == again.serving["reused"], (how, answer.serving, again.serving)
            assert answer.serving["computed"] + answer.serving["reused"] == first.serving["computed"], answer.serving
            assert (answer.text, answer.usage["output_tokens"]) == (first.text, first.usage["output_tokens"]), how
            until("not counted", lambda: disk(worker, "read") == disk(worker, "hit") == n_blocks)
            assert disk(worker, "damaged") == disk(worker, "failed") == 0
        c.assert_quiet()
        modes = {oct(os.stat(f).st_mode & 0o777) for f in glob.glob(c.dir + "/store/*")}
        assert modes == {"0o600"} and os.stat(c.dir + "/store").st_mode & 0o777 == 0o700, modes


def evicted_blocks_come_back():
    """A small pool: other prompts evict the first one, which stays on disk."""
    with Cluster() as c:
        worker = start(c, kv__memory="6MiB")
        first = ask(c, worker)
        saved(worker)
        for i in range(4):
            ask(c, worker, f"{i} {TEXT}")
        answer = ask(c, worker)
        assert answer.text == first.text
        until("nothing was read", lambda: disk(worker, "read") > 0)
        assert answer.serving["reused"] >= BLOCK, answer.serving
        c.assert_quiet()


def neighbours_wait_for_the_same_reads():
    """Several at once after a restart: blocks are read once, and a client that hangs up leaves nothing behind."""
    with Cluster() as c:
        worker = start(c)
        first = ask(c, worker)
        saved(worker)
        worker.kill()
        ready(worker.start())
        streams = [Stream(worker.http, c.body(TEXT, max_tokens=24)) for _ in range(6)]
        for stream in streams[:2]:
            stream.close()
        for stream in streams[2:]:
            answer = stream.finish()
            assert answer.text == first.text, answer.error
        n_blocks = first.serving["computed"] // BLOCK
        until("not counted", lambda: 0 < disk(worker, "read"))
        assert disk(worker, "read") <= n_blocks, (disk(worker, "read"), n_blocks)
        c.assert_quiet()


def damage_is_not_believed():
    with Cluster() as c:
        worker = start(c)
        first = ask(c, worker)
        saved(worker)
        worker.stop()
        for path in glob.glob(c.dir + "/store/seg-*"):
            with open(path, "r+b") as f:
                size = os.path.getsize(path)
                for at in range(4096 * 40, size, 4096):
                    f.seek(at)
                    f.write(os.urandom(64))
        ready(worker.start())
        answer = ask(c, worker)
        assert answer.text == first.text
        until("nothing was found damaged", lambda: disk(worker, "damaged") > 0)
        c.assert_quiet()


def no_store_is_no_obstacle():
    with Cluster() as c:
        with open(c.dir + "/file", "w") as f:
            f.write("not a folder")
        worker = start(c, kv__disk_path=c.dir + "/file")
        assert ask(c, worker).is_whole
        with open(worker.log_path) as f:
            assert "kv_disk_off" in f.read()
        # A folder that belongs to another worker.
        worker.settings["kv.disk_path"] = c.dir + "/store"
        worker.stop()
        ready(worker.start())
        other = ready(c.worker("prefill", kv__disk_path=c.dir + "/store"))
        with open(other.log_path) as f:
            assert "in use by another worker" in f.read()
        assert ask(c, other).is_whole


def types_shrink_what_is_saved():
    """Bytes on disk of a block follow kv.type."""
    bytes_of = {}
    for kind in ("f16", "q8_0", "q4_0"):
        with Cluster() as c:
            worker = start(c, kv__type=kind)
            ask(c, worker)
            saved(worker)
            until("no bytes", lambda: worker.metric('baton_kv_disk_bytes_total{way="written"}') > 0)
            bytes_of[kind] = worker.metric('baton_kv_disk_bytes_total{way="written"}') / disk(worker, "written") / BLOCK
    print("bytes per token on disk:", bytes_of)
    assert bytes_of["q8_0"] / bytes_of["f16"] < 0.56, bytes_of
    assert bytes_of["q4_0"] / bytes_of["f16"] < 0.32, bytes_of


def transfers_shrink_alike():
    bytes_of = {}
    for kind in ("f16", "q8_0", "q4_0"):
        with Cluster() as c:
            c.router(placement__local_prefill_tokens="1")
            c.worker("prefill", kv__type=kind)
            decode = c.worker("decode", kv__type=kind)
            c.wait_ready(prefill=1, decode=1)
            answer = c.ask(TEXT, max_tokens=4)
            assert answer.serving["transferred"] > 0, answer.serving
            blocks = -(-answer.serving["transferred"] // BLOCK)
            bytes_of[kind] = decode.metric("baton_transfer_received_bytes_total") / blocks / BLOCK
    print("bytes per token on the wire:", bytes_of)
    assert bytes_of["q8_0"] / bytes_of["f16"] < 0.56, bytes_of
    assert bytes_of["q4_0"] / bytes_of["f16"] < 0.32, bytes_of


def keys(cluster):
    path = cluster.dir + "/keys"
    with open(path, "w") as f:
        for name in ("calm", "loud"):
            f.write(f"{hashlib.sha256(('key-' + name).encode()).hexdigest()} {name}\n")
    os.chmod(path, 0o600)
    return path


def say_as(cluster, worker, key, text):
    stream = Stream(worker.http, cluster.body(text, max_tokens=8), {"x-api-key": "key-" + key})
    assert stream.status == 200, stream.response.read()
    return stream.finish()


def a_flood_leaves_others_alone():
    """Two API keys: one asks once, the other floods a small pool; the first one's prefix stays."""
    with Cluster() as c:
        c.router()
        worker = ready(c.worker("decode", kv__memory="6MiB", http__api_keys=keys(c)))

        def say(key, text):
            return say_as(c, worker, key, text)

        calm = TEXT[:1200]
        say("calm", calm)
        before = say("calm", calm).serving["reused"]
        assert before > 0
        for i in range(4):
            say("loud", f"{i} {TEXT}")
        assert worker.status()["blocks"]["evicted"] > 0
        assert say("calm", calm).serving["reused"] == before
        # Alone it would have had to go: the loud one's own first prompt has.
        assert say("loud", f"0 {TEXT}").serving["reused"] < 2 * BLOCK


def a_flood_leaves_others_alone_on_disk():
    """The same with a disk that the loud tenant fills four times, over restarts: the calm tenant's prompt is read back,
    the loud tenant's first ones are gone."""
    with Cluster() as c:
        worker = start(c, kv__disk_size="6MiB", http__api_keys=keys(c))
        calm = TEXT[:1200]

        first = say_as(c, worker, "calm", calm)
        again = say_as(c, worker, "calm", calm)
        assert again.serving["reused"] > 0
        for i in range(6):
            say_as(c, worker, "loud", f"{i} {TEXT}")
            until("not all is saved", lambda: at_rest(worker))
            if i == 2:  # the next process learns the tenants only from the disk
                worker.kill()
                ready(worker.start())
        # The last prompt's blocks are freed, and so queued for the disk, soon after its answer.
        until("too few dropped", lambda: worker.status()["disk"]["dropped"] * 98304 > 6 << 20)
        disk_now = until("not all is saved", lambda: at_rest(worker))
        assert disk_now["tenants"] == 2 and disk_now["bytes"] <= 6 << 20, disk_now
        worker.kill()
        ready(worker.start())
        answer = say_as(c, worker, "calm", calm)
        assert answer.serving["reused"] == again.serving["reused"], (answer.serving, again.serving)
        assert answer.text == first.text
        until("not counted", lambda: worker.status()["disk"]["read"] == answer.serving["reused"] // BLOCK)
        assert say_as(c, worker, "loud", f"0 {TEXT}").serving["reused"] < 2 * BLOCK


if __name__ == "__main__":
    main([restarts_read_from_disk, evicted_blocks_come_back, neighbours_wait_for_the_same_reads,
          damage_is_not_believed, no_store_is_no_obstacle,
          types_shrink_what_is_saved, transfers_shrink_alike, a_flood_leaves_others_alone,
          a_flood_leaves_others_alone_on_disk])
