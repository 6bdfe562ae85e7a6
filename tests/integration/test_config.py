# SPDX-License-Identifier: Apache-2.0
"""Broken configurations go to --check-config and to a real start.  Both refuse them with the same message, which names
file, line and key.  The daemon starts with a configuration that the check accepts.  The last tests are about workers
that their routers refuse."""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cluster import BUILD, MODEL, SOURCE, Cluster, fetch, free_port, main, patience

os.environ["CREDENTIALS_DIRECTORY"] = "/no/such/folder"  # no cluster key of this machine is found
ROLES = ("router", "prefill", "decode")
IS_SANITIZED = bool(os.environ.get("BATON_SANITIZED"))
GOOD_HASH = "0" * 63 + "1"


class Bench:
    """A folder with good and bad files, and configurations made of them."""

    def __init__(self, folder):
        self.dir = folder
        self.n = 0
        self.lock = threading.Lock()
        self.key = self.write("cluster.key", "ab" * 32 + "\n", 0o600)
        self.keys = self.write("keys", f"{GOOD_HASH} team-a laptop rpm=60\n", 0o600)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(self.path(name), mode)
        return self.path(name)

    def good(self, role):
        with self.lock:
            values = {"node.name": role + "-1", "http.listen": f"127.0.0.1:{free_port()}",
                      "http.admin": f"127.0.0.1:{free_port()}", "link.listen": f"127.0.0.1:{free_port()}",
                      "link.cluster_key": self.key, "log.format": "json", "stop.drain_timeout": "1s"}
        if role != "router":
            values.update({"model.path": MODEL, "kv.memory": "64MiB", "engine.threads": "1", "link.routers": "127.0.0.1:1"})
        return values

    def file(self, values):
        """Writes sections and keys; returns the last line of each key."""
        lines, where, section = [], {}, None
        for key in sorted(values, key=lambda k: k.split(".")[0]):
            if values[key] is None:
                continue
            if key.split(".")[0] != section:
                section = key.split(".")[0]
                lines.append(f"[{section}]")
            for value in values[key] if isinstance(values[key], list) else [values[key]]:
                lines.append(f"{key.split('.')[1]} = {value}")
                where[key] = len(lines)
        with self.lock:
            self.n += 1
            n = self.n
        return self.write(f"c{n}.conf", "\n".join(lines) + "\n"), where


def until(holds, complaint, timeout=20):
    ends = time.monotonic() + patience(timeout)
    while not holds():
        assert time.monotonic() < ends, complaint() if callable(complaint) else complaint
        time.sleep(0.02)


def at_once(call, jobs):
    """Calls with each job's arguments, two at a time: a start mostly waits.  Raises the first exception."""
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda job: call(*job), jobs):
            pass


def check(role, conf, *more):
    out = subprocess.run([os.path.join(BUILD, "baton-" + role), "--config", conf, "--check-config", *more], capture_output=True,
                         text=True, timeout=patience(30))
    return out.returncode, out.stdout + out.stderr


def whole(log):
    """The output of a process so far.  It shares the file's offset, so reading must not move that."""
    return os.pread(log.fileno(), 1 << 26, 0).decode(errors="replace")


def start(role, conf, *more):
    """0 and the log when the daemon started (and was stopped), else its status and output."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([os.path.join(BUILD, "baton-" + role), "--config", conf, *more], stdout=log, stderr=log)
        ends = time.monotonic() + patience(30)
        is_up = False
        while process.poll() is None and not is_up and time.monotonic() < ends:
            time.sleep(0.01)
            is_up = "_ready" in re.sub("engine_ready|model_ready|mtp_ready", "", whole(log))
        code = process.poll()
        if code is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(patience(20))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{role} does not stop")
        said = whole(log)
    assert is_up or code is not None, (role, "neither up nor gone", said)
    assert code is None or code > 0, (role, code, said)
    return 0 if is_up else code, said


def errors_of(said):
    return sorted(line for line in said.splitlines() if not line.startswith("{") and ": warning: " not in line and "is fine" not in line)


def refused(bench, role, change, key, words=""):
    """Both refuse this key and name its line in the file (the file alone when the key is missing)."""
    values = bench.good(role)
    values.update(change)
    conf, where = bench.file(values)
    place = f"{conf}:{where[key]}" if key in where else conf
    checked, said = check(role, conf)
    started, said_at_start = start(role, conf)
    what = (role, change, key, said)
    assert checked == 1, ("--check-config accepts", *what)
    assert started == 1, ("the start accepts", *what)
    assert errors_of(said) == errors_of(said_at_start), (what, said_at_start)
    assert any(line.startswith(f"{place}: {key}: ") and words in line for line in said.splitlines()), what


def accepted(bench, role, change, warning=""):
    values = bench.good(role)
    values.update(change)
    conf, _ = bench.file(values)
    checked, said = check(role, conf)
    started, said_at_start = start(role, conf)
    assert (checked, started) == (0, 0), (role, change, said, said_at_start)
    assert warning in said and (warning == "" or "config_warning" in said_at_start), (role, change, said)


def gguf_without(bench, name, cut=None, at=None, put=b""):
    with open(MODEL, "rb") as f:
        data = bytearray(f.read())
    if at is not None:
        data[at:at + len(put)] = put
    return bench.write(name, bytes(data[:cut] if cut else data))


def gguf_with_renamed(bench, name, old, new):
    with open(MODEL, "rb") as f:
        data = f.read()
    assert len(old) == len(new) and old in data, old
    return bench.write(name, data.replace(old, new))


def files_of(bench):
    """(change, key, words) that every daemon refuses: files."""
    p = bench.path
    bench.write("short.key", "ab" * 31 + "\n", 0o600)
    bench.write("long.key", "ab" * 33 + "\n", 0o600)
    bench.write("nohex.key", "xy" * 32 + "\n", 0o600)
    bench.write("empty.key", "", 0o600)
    bench.write("open.key", "ab" * 32 + "\n", 0o644)
    bench.write("open.keys", f"{GOOD_HASH} a\n", 0o644)
    for name, text in (("k1", "nothash team\n"), ("k2", GOOD_HASH + "\n"), ("k3", GOOD_HASH + " te/am\n"),
                       ("k4", GOOD_HASH + " team name rpm=0\n"), ("k5", GOOD_HASH + " team name spede=3\n"),
                       ("k6", "# a comment\n" + GOOD_HASH + " team expires=2027-02-30\n"), ("k7", GOOD_HASH[:-1] + " team\n"),
                       ("k8", "x" * 4000 + "\n")):
        bench.write(name, text, 0o600)
    bench.write("prefix.json", "{\"system\": 5}")
    bench.write("broken.json", "{")
    os.makedirs(p("folder"), exist_ok=True)
    cases = [({"link.cluster_key": p(name)}, "link.cluster_key", name) for name in
             ("none.key", "short.key", "long.key", "nohex.key", "empty.key", "open.key", "folder")]
    cases.append(({"link.cluster_key": None}, "link.cluster_key", "/no/such/folder/cluster.key: No such file or directory; make one with"))
    cases += [({"http.api_keys": p(name)}, "http.api_keys", name) for name in
              ("none", "open.keys", "folder", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8")]
    os.mkfifo(p("pipe"))  # opening a pipe for reading waits for ever
    cases += [({key: p("pipe")}, key, "not a regular file") for key in ("http.api_keys", "link.cluster_key", "cache.public_prefix")]
    cases.append(({"http.tls_certificate": p("pipe"), "http.tls_key": bench.key}, "http.tls_certificate", "not a regular file"))
    cases.append(({"http.api_keys": p("k6")}, "http.api_keys", "k6:2"))
    cases += [({"cache.public_prefix": p(name)}, "cache.public_prefix", name) for name in ("none.json", "prefix.json", "broken.json")]
    cases += [({"http.tls_certificate": p("keys")}, "http.tls_certificate", "http.tls_key is not"),
              ({"http.tls_key": p("keys")}, "http.tls_key", "http.tls_certificate is not"),
              ({"http.tls_certificate": p("none.pem"), "http.tls_key": p("keys")}, "http.tls_certificate", "none.pem"),
              ({"http.tls_certificate": p("keys"), "http.tls_key": p("keys")}, "http.tls_certificate", "keys")]
    if shutil.which("openssl"):
        for name in ("a", "b"):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=x",
                            "-keyout", p(name + ".key"), "-out", p(name + ".pem")], check=True, capture_output=True)
        shutil.copy(p("a.key"), p("a.open"))
        os.chmod(p("a.open"), 0o644)
        cases += [({"http.tls_certificate": p("a.pem"), "http.tls_key": p("b.key")}, "http.tls_key", "not the key"),
                  ({"http.tls_certificate": p("a.pem"), "http.tls_key": p("none.key")}, "http.tls_key", "none.key"),
                  ({"http.tls_certificate": p("a.pem"), "http.tls_key": p("a.open")}, "http.tls_key", "0644"),
                  ({"http.tls_certificate": p("a.pem"), "http.tls_key": p("cluster.key")}, "http.tls_key", "PEM")]
    return cases


def addresses_of(bench):
    """(change, key, words) that every daemon refuses: addresses and names."""
    port = free_port()
    cases = [({"http.listen": text}, "http.listen", "") for text in
             ("127.0.0.1:65536", "127.0.0.1:99999", ":8080", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:http",
              "0.0.0.0:8080", "*:8080", "[::]:8080", "::1:8080", "[::1:8080", "no.such.host.invalid:80", "unix:/tmp/x", "127.0.0.1:80 80",
              "http://127.0.0.1:8080")]
    cases += [({"http.listen": text, "http.api_keys": bench.keys}, "http.listen", "") for text in
              (":8080", "0.0.0.0:65536", "no.such.host.invalid:80", "203.0.113.7:8080", "0.0.0.0:http")]
    cases += [({key: text}, key, "") for key in ("http.admin", "link.listen") for text in
              ("127.0.0.1:65536", ":8080", "nowhere", "", "unix:/tmp/x", "localhost:8090", "203.0.113.7:8080")]
    cases += [({"http.admin": "0.0.0.0:8081"}, "http.admin", "loopback"),
              ({"http.listen": [f"127.0.0.1:{port}", f"127.0.0.1:{port}"]}, "http.listen", "http.listen"),
              ({"http.admin": f"127.0.0.1:{port}", "link.listen": f"127.0.0.1:{port}"}, "link.listen", "http.admin"),
              ({"http.listen": f"127.0.0.1:{port}", "http.admin": f"127.0.0.1:{port}"}, "http.admin", "http.listen"),
              ({"http.listen": f"127.0.0.1:{port}", "link.listen": f"0.0.0.0:{port}"}, "link.listen", "http.listen"),
              ({"http.listen": f"0.0.0.0:{port}", "http.api_keys": bench.keys, "link.listen": f"127.0.0.1:{port}"}, "link.listen", "http.listen"),
              ({"http.cors_origin": "https://app.example/"}, "http.cors_origin", "origin"),
              ({"http.cors_origin": "app.example"}, "http.cors_origin", "origin"),
              ({"http.congestion_control": "nothing-like-it"}, "http.congestion_control", "nothing-like-it")]
    cases += [({"node.name": name}, "node.name", "") for name in ("a b", "x" * 64, "würzburg", "a/b")]
    return cases


def values_of():
    """Values that the tables refuse."""
    return [({"log.level": "loud"}, "log.level", "loud"), ({"stop.drain_timeout": "soon"}, "stop.drain_timeout", "duration"),
            ({"http.tls_min": "1.1"}, "http.tls_min", ""), ({"link.heartbeat": "0"}, "link.heartbeat", "range"),
            ({"http.http2": "perhaps"}, "http.http2", "yes or no"), ({"cache.replay_memory": "64 apples"}, "cache.replay_memory", "size"),
            ({"cache.replay_memory": "999GiB"}, "cache.replay_memory", "memory")]


def all_daemons_refuse_the_same():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        bench = Bench(folder)
        cases = files_of(bench) + addresses_of(bench) + values_of()
        assert len(cases) >= 70, len(cases)
        jobs = [(bench, role, *case) for role in ROLES for case in cases]
        # One daemon for every second case is enough for sanitizers; the plain build starts all three for each.
        at_once(refused, [jobs[i + i % 3 * len(cases)] for i in range(0, len(cases), 2)] if IS_SANITIZED else jobs)


def the_router_refuses():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        bench = Bench(folder)
        for key, value in (("slo.ttft", "0"), ("queue.timeout", "-1s"), ("http.max_body", "1"), ("http.job_threads", "0"),
                           ("placement.prefix_fetch", "sometimes"), ("http.max_per_address", "0")):
            refused(bench, "router", {key: value}, key)
        accepted(bench, "router", {})
        accepted(bench, "router", {"slo.ttft": "50ms", "slo.itl": "500ms"}, "slo.itl: warning: ")
        accepted(bench, "router", {"http.listen": "0.0.0.0:0", "http.api_keys": bench.keys})
        accepted(bench, "router", {"http.listen": f"localhost:{free_port()}", "http.api_keys": bench.keys})
        accepted(bench, "router", {"http.api_keys": bench.write("nokeys", "# none yet\n", 0o600)}, "http.api_keys: warning: ")
        of_no_class = bench.write("noclass", "0" * 64 + " shop class=gold\n", 0o600)
        accepted(bench, "router", {"http.api_keys": of_no_class}, "http.api_keys: warning: ")
        accepted(bench, "router", {"http.api_keys": of_no_class, "classes.class": ["gold priority=9"]})
        accepted(bench, "router", {"http.cors_origin": ["https://app.example", "http://localhost:3000"]})


def models_of(bench):
    """(change, key, words)"""
    text = bench.write("text.gguf", "this is no model at all, but a text\n")
    cases = [({"model.path": path}, "model.path", words) for path, words in
             ((bench.path("none.gguf"), "none.gguf: "), (text, "text.gguf: header at byte 0: not a GGUF file"), (bench.dir, bench.dir),
              (bench.write("empty.gguf", ""), "empty.gguf: "), (gguf_without(bench, "half.gguf", cut=70000), "half.gguf: "),
              (gguf_without(bench, "version.gguf", at=4, put=struct.pack("<I", 99)), "version.gguf: "),
              (gguf_with_renamed(bench, "arch.gguf", b"general.architecture", b"general.architectur_"), "arch.gguf: "),
              (gguf_with_renamed(bench, "tensor.gguf", b"blk.0.ffn_norm.weight", b"blk.0.ffn_nurm.weight"), "tensor.gguf: "),
              (gguf_with_renamed(bench, "tokens.gguf", b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz"), "tokens.gguf: "))]
    cases.append(({"model.path": None}, "model.path", "not set"))
    cases += [({"model.context": "90000000"}, "model.context", "context"), ({"model.name": "n" * 200}, "model.name", "too long")]
    return cases


def machines_of(bench):
    """(change, key, words)"""
    bench.write("nosocket", "")
    port = free_port()
    cases = [({"kv.block_tokens": n}, "kv.block_tokens", "16") for n in ("33", "8", "24")]
    cases += [({"kv.block_tokens": n}, "kv.block_tokens", "8 and 128") for n in ("0", "129", "256", "100000")]
    cases += [({"kv.memory": "1MiB", "kv.block_tokens": "128"}, "kv.memory", "blocks"), ({"kv.memory": "900TiB"}, "kv.memory", "memory"),
              ({"kv.transport": "shm"}, "kv.transport", "kv.unix_path"), ({"kv.transport": "tcp", "kv.tcp_listen": ""}, "kv.transport", "kv.tcp_listen"),
              ({"kv.transport": "rdma", "kv.tcp_listen": ""}, "kv.transport", "kv.tcp_listen"),
              ({"kv.transport": "rdma", "kv.rdma_devices": ""}, "kv.transport", "kv.rdma_devices"),
              ({"kv.unix_path": bench.path("no/such/folder/kv.sock")}, "kv.unix_path", "no/such"),
              ({"kv.unix_path": bench.path("x" * 120)}, "kv.unix_path", "107"), ({"kv.unix_path": bench.path("nosocket")}, "kv.unix_path", "socket"),
              ({"kv.unix_path": bench.path("nosocket/kv.sock")}, "kv.unix_path", "folder"),
              ({"kv.tcp_listen": "127.0.0.1:70000"}, "kv.tcp_listen", ""), ({"kv.tcp_listen": "localhost:9000"}, "kv.tcp_listen", "numeric"),
              ({"kv.tcp_listen": "*:9000"}, "kv.tcp_listen", ""), ({"kv.tcp_listen": "203.0.113.7:9000"}, "kv.tcp_listen", "not an address"),
              ({"kv.tcp_listen": f"127.0.0.1:{port}", "link.listen": f"127.0.0.1:{port}"}, "kv.tcp_listen", "link.listen"),
              ({"kv.tcp_connections": "9"}, "kv.tcp_connections", "8"), ({"kv.type": "q5"}, "kv.type", ""),
              ({"engine.threads": "4", "engine.cpus": "0"}, "engine.threads", "engine.cpus"), ({"engine.cpus": "4095"}, "engine.cpus", "4095"),
              ({"engine.cpus": "3-1"}, "engine.cpus", ""), ({"engine.kind": "gpu"}, "engine.kind", ""), ({"sched.max_seqs": "0"}, "sched.max_seqs", "")]
    if not os.path.isdir("/sys/class/infiniband") or not os.listdir("/sys/class/infiniband"):
        cases.append(({"kv.transport": "rdma"}, "kv.transport", "rdma"))
    if "avx512bw" not in open("/proc/cpuinfo").read():
        cases.append(({"engine.kernels": "avx512"}, "engine.kernels", "avx512"))
    cases += [({"link.routers": text}, "link.routers", "") for text in
              ("10.0.0.1", "10.0.0.1:", "10.0.0.1:0", ":8090", "router:99999", "*:8090", "http://router:8090",
               ["127.0.0.1:8090", "127.0.0.1:8090"], [f"10.0.0.{i}:8090" for i in range(1, 10)])]
    cases += [({"link.peers": text}, "link.peers", "") for text in ("10.0.0.1", "a:0", "a b:1")]
    cases += [({"link.advertise": text}, "link.advertise", "") for text in ("10.0.0.1", "host:0", ":8090", "host:70000")]
    return cases


def workers_refuse():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        bench = Bench(folder)
        cases = models_of(bench) + machines_of(bench)
        at_once(refused, [(bench, ROLES[1 + i % 2], *case) for i, case in enumerate(cases)])
        for role in ROLES[1:]:
            accepted(bench, role, {})
            accepted(bench, role, {"engine.kind": "sim", "kv.block_tokens": "16"})
            accepted(bench, role, {"kv.block_tokens": "128", "kv.unix_path": bench.path(role + ".sock"), "kv.transport": "shm"})
            accepted(bench, role, {"engine.threads": "200"}, "engine.threads: warning: ")
            accepted(bench, role, {"kv.disk_path": bench.path("no/such/folder")}, "kv.disk_path: warning: ")


def all_errors_are_printed_at_once_with_their_file():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        bench = Bench(folder)
        values = bench.good("decode")
        values["http.admin"] = "0.0.0.0:1"
        conf, where = bench.file(values)
        os.mkdir(conf + ".d")
        drop_in = os.path.join(conf + ".d", "10-more.conf")
        bench.write(drop_in, "[kv]\n\nblock_tokens = 40\n[link]\nrouters = here\nrouters = 10.0.0.1:8090\nrouters = there:0\n")
        for code, said in (check("decode", conf, "--set", "model.path=/no/model"), start("decode", conf, "--set", "model.path=/no/model")):
            assert code == 1, said
            for line in (f"{conf}:{where['http.admin']}: http.admin: ", f"{drop_in}:3: kv.block_tokens: ", f"{drop_in}:5: link.routers: 'here'",
                         f"{drop_in}:7: link.routers: 'there:0'", "command line (--set): model.path: /no/model: "):
                assert any(text.startswith(line) for text in said.splitlines()), (line, said)
            assert len(errors_of(said)) == 5, said


def errors_at_start_name_the_key_too():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder, socket.socket() as taken:
        bench = Bench(folder)
        port = free_port()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        for role, key in (("router", "http.listen"), ("router", "http.admin"), ("router", "link.listen"), ("decode", "http.listen"),
                          ("decode", "http.admin"), ("decode", "link.listen"), ("decode", "kv.tcp_listen")):
            values = bench.good(role)
            values[key] = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}"] if key == "http.listen" else f"127.0.0.1:{port}"
            conf, where = bench.file(values)
            assert check(role, conf)[0] == 0, (role, key)
            code, said = start(role, conf)
            assert code == 1 and f"baton-{role}: {conf}:{where[key]}: {key}: cannot listen on" in said, (role, key, said)


def samples_and_limits():
    """The samples pass with an installation's additions.  Every number at its minimum and maximum starts, or both refuse
    it."""
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        bench = Bench(folder)
        for role in ROLES:
            sets = ["--set", f"link.cluster_key={bench.key}"] + ([] if role == "router" else ["--set", f"model.path={MODEL}"])
            code, said = check(role, os.path.join(SOURCE, "conf", role + ".conf"), *sets)
            assert code == 0, said
        jobs = []
        for role in ("router", "decode"):
            sample = subprocess.run([os.path.join(BUILD, "baton-" + role), "--sample-config"], capture_output=True, text=True).stdout
            section, limits = None, []
            for line in sample.splitlines():
                if line.startswith("["):
                    section = line[1:-1]
                elif line.startswith("# ("):
                    limits = re.findall(r"(?:between (\S+) and|at least|at most|and) ([^\s;)]+)", line)
                    limits = [x for pair in limits for x in pair if x]
                elif line.startswith("#") and " =" in line and limits:
                    name = line[1:].split(" =")[0]
                    jobs += [(role, f"{section}.{name}", value) for value in limits]
                    limits = []
        assert len(jobs) > 60, jobs

        def one(role, key, value):
            values = bench.good(role)
            values[key] = value
            conf, _ = bench.file(values)
            checked, said = check(role, conf)
            started, said_at_start = start(role, conf)
            assert checked == started, (role, key, value, checked, started, said, said_at_start[-600:])

        at_once(one, jobs[::9] if IS_SANITIZED else jobs)


def a_reload_checks_too():
    with Cluster() as c:
        router = c.router()
        until(lambda: "router_ready" in router.tail(100), "not up")
        for bad in ("[http]\napi_keys = /no/keys\n", "[slo]\nttft = never\n", "[http]\ncors_origin = nothing\n"):
            with open(router.conf, "w") as f:
                f.write(bad)
            n = router.tail(1000).count("reload_failed")
            router.kill(signal.SIGHUP)
            until(lambda: router.tail(1000).count("reload_failed") == n + 1, "no word of the reload")
        said = router.tail(1000)
        for key in ("http.api_keys", "http.cors_origin"):
            assert f"{router.conf}:2: {key}: " in said, said
        with open(router.conf, "w") as f:
            f.write("[slo]\nttft = 900ms\n")
        router.kill(signal.SIGHUP)
        until(lambda: '"reloaded"' in router.tail(1000), "a good one is refused")


def ready(worker):
    status, _, body = fetch(worker.http, "GET", "/readyz?verbose")
    return status, body.decode()


def a_refused_worker_says_why_and_is_not_ready():
    with Cluster() as c:
        c.router()
        other = os.path.join(c.dir, "other.key")
        subprocess.run([os.path.join(BUILD, "batonctl"), "new-cluster-key", other], check=True, stdout=subprocess.DEVNULL)
        good = c.worker("prefill")
        c.wait_ready(prefill=1)
        stranger = c.worker("decode", link__cluster_key=other)
        mismatch = c.worker("decode", kv__block_tokens="64")
        lost = c.worker("decode", link__routers=f"127.0.0.1:{free_port()}")
        twice = c.worker("decode", link__routers=f"127.0.0.1:{c.routers[0].admin}")
        for worker, word in ((stranger, "cluster_key"), (mismatch, "another block size"), (lost, "refused"), (twice, "")):
            until(lambda: "worker_ready" in worker.tail(1000), f"{worker.name} is not up")
            until(lambda: ready(worker)[0] == 503 and word in ready(worker)[1] and "not yet" not in ready(worker)[1], lambda: (worker.name, word, ready(worker)))
            until(lambda: word in worker.tail(1000) and "link_failed" in worker.tail(1000), "the log does not say why")
            for _ in range(20):  # not between attempts either
                assert ready(worker)[0] == 503, ready(worker)
                time.sleep(0.02)
            reason = fetch(worker.admin, "GET", "/admin/status", headers={"authorization": f"Bearer {token_of(c, worker)}"})[2].decode()
            assert '"up": false, "reason": "' in reason and word in reason, reason
        assert ready(good)[0] == 200 and "routers: 1 of 1" in ready(good)[1]
        with open(c.routers[0].log_path) as f:
            assert "another block size" in f.read()


def token_of(c, worker):
    import hmac
    with open(worker.settings.get("link.cluster_key", c.key)) as f:
        return hmac.new(bytes.fromhex(f.read().strip()), b"admin", "sha256").hexdigest()


if __name__ == "__main__":
    main([all_daemons_refuse_the_same, the_router_refuses, workers_refuse, all_errors_are_printed_at_once_with_their_file,
          errors_at_start_name_the_key_too, samples_and_limits, a_reload_checks_too, a_refused_worker_says_why_and_is_not_ready], at_once=3)
