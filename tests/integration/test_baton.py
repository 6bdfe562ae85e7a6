#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command baton: it finds the other programs, and serves a model on loopback until it is stopped."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, SOURCE, main, patience  # noqa: E402
from container import limited  # noqa: E402

BATON = os.path.join(BUILD, "baton")


def environment(folder):
    return dict(os.environ, BATON_PROGRAMS=BUILD, BATON_DEMO=os.path.join(SOURCE, "share", "baton-demo.gguf"),
                XDG_RUNTIME_DIR=folder, TMPDIR=folder)


def call(folder, *words, status=0):
    done = subprocess.run([BATON, *words], capture_output=True, text=True, timeout=patience(60), env=environment(folder),
                          check=False)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def programs_are_found():
    with tempfile.TemporaryDirectory() as folder:
        assert "usage: baton-chat" in call(folder, "chat", "--help")
        assert "usage: batonctl" in call(folder, "ctl", "--help")
        assert re.fullmatch(r"baton \S+\n", call(folder, "--version"))
        for words, said in ((["fly"], "no such command: fly"), (["run", "--fly"], "no such option: --fly"),
                            (["run", "-n", "none"], "wants a number"), (["run", "-m"], "wants a value"),
                            (["run", "a.gguf", "-m", "b.gguf"], "one model"), ([], "usage: baton")):
            assert said in call(folder, *words, status=2), words
        assert "no such file" in call(folder, "run", "missing.gguf", status=1)
        assert "is a folder" in call(folder, "run", folder, status=1)


def a_relay_answers_once():
    with tempfile.TemporaryDirectory() as folder:
        said = call(folder, "run", "--once", "-n", "20", "--prompt=What is a KV cache, and what is it good for in a server?")
        assert re.search(r"KV of [1-9][0-9]* prompt tokens travelled", said), said
        assert os.listdir(folder) in ([], [f"baton-run-{os.getuid()}"]), os.listdir(folder)


def a_port_that_is_lost_is_replaced():
    """Another program takes the router's port after `baton run` chose it: the daemons start again on the next ports."""
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.join(folder, "programs")
        os.mkdir(programs)
        for name in os.listdir(BUILD):
            if name.startswith("baton") and name != "baton-router":
                os.symlink(os.path.join(BUILD, name), os.path.join(programs, name))
        with open(os.path.join(programs, "baton-router"), "w") as f:
            f.write(f"""#!{sys.executable}
import os, re, subprocess, sys
listen = re.search(r"http.listen=127.0.0.1:([0-9]+)", " ".join(sys.argv))[1]
with open({os.path.join(folder, "ports")!r}, "a") as ports:
    ports.write(listen + "\\n")
    is_first = ports.tell() == len(listen) + 1
if is_first:
    import socket
    taken = socket.create_server(("127.0.0.1", int(listen)))
    sys.exit(subprocess.call([{os.path.join(BUILD, "baton-router")!r}, *sys.argv[1:]]))
os.execv({os.path.join(BUILD, "baton-router")!r}, sys.argv)
""")
        os.chmod(os.path.join(programs, "baton-router"), 0o755)
        done = subprocess.run([BATON, "run", "--both", "--once", "-t1", "-n3"], capture_output=True, text=True, timeout=patience(60),
                              env=dict(environment(folder), BATON_PROGRAMS=programs), check=False)
        assert done.returncode == 0, (done.stdout, done.stderr)
        with open(os.path.join(folder, "ports")) as f:
            first, second = map(int, f)
        assert second > first and f"127.0.0.1:{second}" in done.stdout, (first, second, done.stdout)


def a_link_into_a_hubs_cache_keeps_its_name():
    """snapshots/REVISION/NAME.gguf -> ../../blobs/DIGEST: the name is the link's, and the parts of a split model lie beside it."""
    demo = os.path.join(SOURCE, "share", "baton-demo.gguf")
    with tempfile.TemporaryDirectory() as folder:
        snapshot, blobs = os.path.join(folder, "hub", "snapshots", "r1"), os.path.join(folder, "hub", "blobs")
        os.makedirs(snapshot)
        os.makedirs(blobs)
        call(folder, "model", "split", "--parts", "3", demo, os.path.join(folder, "a model-Q8_0"))
        for number in (1, 2, 3):
            name = f"a model-Q8_0-{number:05}-of-00003.gguf"
            os.rename(os.path.join(folder, name), os.path.join(blobs, f"{number:064x}"))
            os.symlink(f"../../blobs/{number:064x}", os.path.join(snapshot, name))
        os.symlink("r1", os.path.join(folder, "hub", "snapshots", "main"))
        said = call(folder, "run", "--both", "--once", "-t1", "-n3",
                    os.path.join(folder, "hub", "snapshots", "main", "a model-Q8_0-00002-of-00003.gguf"))
        assert re.search(r"model   a model-Q8_0\n", said), said


def a_model_larger_than_memory_is_not_started():
    """Each part counts.  The files take no room on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        with open("/proc/meminfo") as f:
            total_kib = int(re.search(r"MemTotal: *([0-9]+)", f.read())[1])
        for number in (1, 2):
            with open(os.path.join(folder, f"m-{number:05}-of-00002.gguf"), "wb") as f:
                f.truncate(total_kib * 1024 * 6 // 10)
        said = call(folder, "run", "--both", "--once", os.path.join(folder, "m-00001-of-00002.gguf"), status=1)
        assert re.search(r"the model has [0-9]+ MiB, but only [0-9]+ MiB of memory are free", said), said


def a_model_larger_than_a_containers_limit_is_not_started():
    """What its processes hold counts as taken, and pages of files as free."""
    with tempfile.TemporaryDirectory() as folder:
        run = limited(folder, 4 << 20, [BATON, "run", "--both", "--once"])
        if run is None:
            return
        done = subprocess.run(run, capture_output=True, text=True, timeout=patience(60), env=environment(folder), check=False)
        assert done.returncode == 1 and re.search(
            r"the model has [0-9]+ MiB, but only 4 MiB of memory are free; a smaller quantisation takes less; "
            r"the limit of the container or service counts: docker run --memory", done.stderr), done
        with open(os.path.join(folder, "cgroup", "memory", "memory.stat"), "w") as f:
            f.write(f"total_cache {1 << 24}\ntotal_rss {1 << 20}\ntotal_shmem {1 << 20}\n")
        with open(os.path.join(folder, "cgroup", "memory.stat"), "w") as f:
            f.write(f"file {1 << 24}\nanon {1 << 20}\nshmem {1 << 20}\n")
        done = subprocess.run(run, capture_output=True, text=True, timeout=patience(60), env=environment(folder), check=False)
        assert done.returncode == 1 and "only 2 MiB of memory are free" in done.stderr, done


def a_small_container_serves_the_bundled_model():
    """Weights and KV fit its limit together, with one worker or two."""
    with tempfile.TemporaryDirectory() as folder:
        for limit_mib, shape in ((256, "--both"), (256, "--relay"), (64, "--both")):
            run = limited(folder, limit_mib << 20, [BATON, "run", shape, "--once", "-t1", "-n3"])
            if run is None:
                return
            done = subprocess.run(run, capture_output=True, text=True, timeout=patience(60), env=environment(folder), check=False)
            assert done.returncode == 0 and " ready" in done.stdout, (limit_mib, shape, done)


def a_relay_shares_weights_that_memory_does_not_hold_twice():
    """Where it holds a copy for each worker, the workers decide."""
    with tempfile.TemporaryDirectory() as folder:
        for taken_mib, kv, is_tight in ((8, [], True), (0, [], False), (0, ["--kv-memory=24MiB"], True)):
            before = limited(folder, 64 << 20, [])
            if before is None:
                return
            for path, name in (("memory.stat", "anon"), ("memory/memory.stat", "total_rss")):
                with open(os.path.join(folder, "cgroup", path), "w") as f:
                    f.write(f"{name} {taken_mib << 20}\n")
            run, _ = started(folder, "--relay", *kv, before=before)
            said = []
            for path in glob.glob(os.path.join(folder, "baton-run.*", "*.log")):
                with open(path, encoding="utf-8") as f:
                    said += re.findall('"event":"weights","memory":"([^"]*)"', f.read())
            stop(run)
            assert len(said) == 2, said
            assert (sorted(said) == ["shared: mapped", "shared: packed"]) == (is_tight or shared_memory_is_huge()), (taken_mib, kv, said)


def shared_memory_is_huge():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/shmem_enabled") as f:
            return not re.search(r"\[(never|deny)\]", f.read())
    except OSError:
        return False


def a_missing_part_is_named():
    """Absent, or a link that leads nowhere.  Parts may lie beside a link's target too."""
    with tempfile.TemporaryDirectory() as folder:
        beside = os.path.join(folder, "beside")
        os.makedirs(beside)
        first, second = (os.path.join(folder, f"m-{number:05}-of-00002.gguf") for number in (1, 2))
        open(first, "wb").close()
        links = os.path.join(folder, "current.gguf"), os.path.join(beside, "m-00001-of-00002.gguf")
        for link in links:
            os.symlink(first, link)
        for is_dangling in (False, True):
            if is_dangling:
                os.symlink("nowhere", second)
            for name, part in ((first, second), (links[0], second), (links[1], os.path.join(beside, os.path.basename(second)))):
                said = call(folder, "run", "--both", "--once", name, status=1)
                assert said == f"baton: run: {part}: this part of the model is missing\n", said


def each_part_behind_a_link_counts():
    """One part fits the memory, both do not: the links have another name, or lie in another folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "beside"))
        with open("/proc/meminfo") as f:
            total_kib = int(re.search(r"MemTotal: *([0-9]+)", f.read())[1])
        for number, tenths in ((1, 0), (2, 12)):
            with open(os.path.join(folder, f"m-{number:05}-of-00002.gguf"), "wb") as f:
                f.truncate(total_kib * 1024 * tenths // 10)
        for link in ("current.gguf", "beside/m-00001-of-00002.gguf"):
            os.symlink(os.path.join(folder, "m-00001-of-00002.gguf"), os.path.join(folder, link))
            said = call(folder, "run", "--both", "--once", os.path.join(folder, link), status=1)
            assert re.search(r"the model has [0-9]+ MiB, but only [0-9]+ MiB of memory are free", said), said


def an_embedding_model_is_asked_no_question():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "embedder.gguf")
        call(folder, "model", "make", *"--arch qwen3 --layers 1 --hidden 64 --heads 4 --kv-heads 2 --ffn 64 --context 128".split(),
             "--type", "F32", "--set", "pooling_type=3", "--vocab-from", os.path.join(SOURCE, "share", "baton-demo.gguf"), model)
        said = call(folder, "run", "--both", "--once", "-t1", model)
        assert re.search(r"Embeddings endpoint +http://[0-9.:]+/v1/embeddings +model +embedder", said), said


def a_base_model_continues_the_prompt():
    """A file without a chat template is served: the first request continues the prompt, and is handed over."""
    with tempfile.TemporaryDirectory() as folder:
        model, key = os.path.join(folder, "base.gguf"), b"tokenizer.chat_template"
        with open(os.path.join(SOURCE, "share", "baton-demo.gguf"), "rb") as f:
            data = f.read()
        assert data.count(key) == 1
        with open(model, "wb") as f:
            f.write(data.replace(key, b"tokenizer.no_template__"))
        said = call(folder, "run", "--once", "-n", "12", model, "--prompt", 'A "KV cache" of a server holds\nthe keys and values')
        assert re.search(r"Completions endpoint +http://[0-9.:]+/v1/completions +model +base, without a chat format", said), said
        assert re.search(r"values\n.*\S.*\n(.*\n)*KV of [1-9][0-9]* prompt tokens travelled", said), said


def started(folder, *words, before=()):
    """A baton run that serves, and its address."""
    run = subprocess.Popen([*before, BATON, "run", *(words or ["--both"]), "-t1", "-n5", "-p", "Hello"], stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT, env=environment(folder))
    said = []
    for line in run.stdout:
        said.append(line)
        if "Ctrl-C stops all" in line:
            break
    return run, re.search(r"http://[0-9.:]+", "".join(said))[0]


def stop(run):
    run.send_signal(signal.SIGTERM)
    assert run.wait(patience(30)) == 0
    assert "stopping" in run.stdout.read()


def ask(url, text, out):
    body = {"model": "baton-demo", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(url + "/v1/messages", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=patience(120)) as answer:
            out.append((answer.status, json.load(answer)["usage"]["input_tokens"]))
    except urllib.error.HTTPError as e:
        out.append((e.code, e.read().decode()))


def long_prompts_at_once_are_served_late():
    """A person's agent sends requests side by side: each is served in its turn, also after the objective of two seconds."""
    with tempfile.TemporaryDirectory() as folder:
        run, url = started(folder)
        got, n = [], 6 if os.environ.get("BATON_SANITIZED") else 32
        asked = [threading.Thread(target=ask, args=(url, f"{i} " + "The prefill worker reads the prompt. " * 450, got)) for i in range(n)]
        for one in asked:
            one.start()
        for one in asked:
            one.join()
        stop(run)
        assert len(got) == n and all(status == 200 and tokens > 3000 for status, tokens in got), got


def a_second_start_names_the_first():
    with tempfile.TemporaryDirectory() as folder:
        first, url = started(folder)
        assert urllib.request.urlopen(url + "/readyz", timeout=patience(10)).status == 200
        second = call(folder, "run", "--both", "--once", "-t1", "-n5", "-p", "Hello")
        assert f"already running:\n  {url}, model baton-demo, process {first.pid}" in second, second
        stop(first)
        assert "already running" not in call(folder, "run", "--both", "--once", "-t1", "-n5", "-p", "Hello")


if __name__ == "__main__":
    main([programs_are_found, a_relay_answers_once, a_port_that_is_lost_is_replaced, a_link_into_a_hubs_cache_keeps_its_name, a_model_larger_than_memory_is_not_started,
          a_model_larger_than_a_containers_limit_is_not_started, a_small_container_serves_the_bundled_model, a_relay_shares_weights_that_memory_does_not_hold_twice,
          a_missing_part_is_named, each_part_behind_a_link_counts, an_embedding_model_is_asked_no_question, a_base_model_continues_the_prompt,
          a_second_start_names_the_first, long_prompts_at_once_are_served_late])
