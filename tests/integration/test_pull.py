# SPDX-License-Identifier: Apache-2.0
"""baton-model pull against a stand-in of the hub on loopback, which breaks in every way that a network does.

Two servers: the hub (list of files, addresses of files) and the store that it redirects to, as the real hub does."""
import contextlib
import hashlib
import http.server
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

from cluster import BUILD, MODEL, main, patience

TOOL = os.path.join(BUILD, "baton-model")
TOKEN = "hf_secret"
with open(MODEL, "rb") as opened:
    BYTES = opened.read()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in fields:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        server, hub = self.server, self.server.hub
        path = urllib.parse.unquote(self.path.split("?")[0])
        with hub.lock:
            hub.asked.append((server.role, path, self.headers.get("Range"), self.headers.get("Authorization")))
            fault = next((f for f in hub.faults if f["role"] == server.role and f.get("n", 1) > 0 and f.get("in", "") in path), None)
            if fault:
                fault["n"] = fault.get("n", 1) - 1
        if fault and fault.get("drop"):
            self.close_connection = True
            return None
        if fault and "status" in fault:
            return self.answer(fault["status"], b"no", **fault.get("fields", {}))
        if server.role == "hub":
            return self.hub_get(hub, path)
        return self.file(hub, hub.files[path[1:]], fault or {})

    def hub_get(self, hub, path):
        if path == "/api/models/o/m/tree/main":
            return self.answer(200, json.dumps(hub.tree).encode(), Content_Type="application/json")
        name = path.removeprefix("/o/m/resolve/main/")
        if name == path or name not in hub.files:
            return self.answer(404, b"no")
        body = hub.files[name]
        self.answer(302, hub.redirect_text, Location=hub.location or f"{hub.store_url}/{urllib.parse.quote(name)}?signature=x",
                    X_Linked_Size=hub.linked_size or len(body), X_Linked_Etag=f'"{hub.hash(name)}"')

    def file(self, hub, body, fault):
        first, last, status = 0, len(body) - 1, 200
        asked = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range") or "")
        if asked and hub.has_ranges:
            first, last, status = int(asked[1]), min(int(asked[2]), last), 206
        fields = {"ETag": '"v1"'}
        if status == 206:
            fields["Content_Range"] = f"bytes {first + fault.get('shift', 0)}-{last + fault.get('shift', 0)}/{hub.total or len(body)}"
        body = body[first:last + 1]
        self.send_response(status)
        for key, value in fields.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) + fault.get("more", 0)))
        self.end_headers()
        end = min(len(body), fault.get("cut", len(body)))
        for at in range(0, end, 16384):
            while hub.hold_at and hub.sent >= hub.hold_at and not hub.is_over:
                time.sleep(0.01)
            try:
                self.wfile.write(body[at:min(at + 16384, end)])
            except OSError:
                break
            with hub.lock:
                hub.sent += min(at + 16384, end) - at
        if end < len(body) or fault.get("more"):
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub, role):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.role = hub, role
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request, address):
        pass


class Hub:
    """The stand-in and a folder for models."""

    def __init__(self, **files):
        self.files = {"tiny-Q8_0.gguf": BYTES} if not files else {k.replace("__", "-") + ".gguf": v for k, v in files.items()}
        self.lock, self.faults, self.asked = threading.Lock(), [], []
        self.sent = self.total = self.linked_size = 0
        self.hold_at = 0  # not 0: no byte is sent once so many were
        self.is_over = False
        self.has_ranges, self.location, self.hashes = True, None, {}
        self.redirect_text = b"Found. Redirecting to another place"

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = self.folder.name
        self.servers = [Server(self, "hub"), Server(self, "store")]
        self.url, self.store_url = (f"http://127.0.0.1:{s.server_address[1]}" for s in self.servers)
        self.tree = [{"type": "directory", "path": "folder", "size": 0}, {"type": "file", "path": "README.md", "size": 3, "oid": "0"}]
        self.tree += [{"type": "file", "path": n, "size": len(b), "lfs": {"oid": self.hash(n), "size": len(b)}} for n, b in self.files.items()]
        return self

    def __exit__(self, *_):
        self.is_over = True
        for server in self.servers:
            if server.socket.fileno() >= 0:
                server.shutdown()
                server.server_close()
        self.folder.cleanup()

    def hash(self, name):
        return self.hashes.get(name) or hashlib.sha256(self.files[name]).hexdigest()

    def start(self, *arguments, token=TOKEN, **more):
        environment = {**os.environ, "HF_ENDPOINT": self.url, "HF_TOKEN": token, "http_proxy": "", "no_proxy": "*"}
        line = [TOOL, "pull", "--to", self.dir, *arguments]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **more)

    def pull(self, *arguments, status=0, says="", **more):
        run = self.start(*arguments, **more)
        out, err = run.communicate(timeout=patience(60))
        assert run.returncode == status and says in err, (run.returncode, out, err)
        assert TOKEN not in out + err
        if status != 0:
            assert not self.final(), self.final()
        return out.strip(), err

    def is_away(self, **fault):
        """From now on the hub refuses connections, or answers so."""
        if fault:
            self.faults += [{"role": "hub", "n": 100, **fault}]
        else:
            self.servers[0].shutdown()
            self.servers[0].server_close()

    def final(self):
        return [f for _, _, fs in os.walk(self.dir) for f in fs if f.endswith(".gguf")]

    def left(self):
        return [f for _, _, fs in os.walk(self.dir) for f in fs if ".part" in f]

    def asked_of(self, role, text=""):
        return [a for a in self.asked if a[0] == role and text in a[1]]


def same(path, body=BYTES):
    with open(path, "rb") as f:
        assert f.read() == body, path


def it_is_fetched_checked_and_kept():
    with Hub() as hub:
        path, err = hub.pull("hf:o/m")
        assert path == f"{hub.dir}/o/m/tiny-Q8_0.gguf" and "100 %" in err, (path, err)
        same(path)
        assert not hub.left(), hub.left()
        subprocess.run(["sha256sum", "-c", "--quiet", path + ".sha256"], cwd=os.path.dirname(path), check=True)
        assert len({a[2] for a in hub.asked_of("store")}) > 4, "no parallel ranges"
        n = len(hub.asked_of("store"))
        assert hub.pull("hf:o/m:q8_0")[0] == path and len(hub.asked_of("store")) == n, "fetched again"
        n = len(hub.asked)
        assert hub.pull("--offline", "hf:o/m:Q8_0")[0] == path and len(hub.asked) == n, "a server was asked"
        assert hub.pull("--offline", "hf:o/m")[0] == path
    with Hub() as hub:
        hub.pull("--offline", "hf:o/m", status=1, says="--offline forbids to fetch it")
        assert not hub.asked


def a_new_version_is_fetched():
    with Hub() as hub:
        path, _ = hub.pull("hf:o/m")
        os.rename(path, path + ".old")
        with open(path, "wb") as f:
            f.write(BYTES[:-1] + b"\0")
        os.unlink(path + ".sha256")
        os.unlink(path + ".old")
        same(hub.pull("hf:o/m")[0])


def cut_connections_are_continued():
    with Hub() as hub:
        hub.faults += [{"role": "store", "cut": 100_000, "n": 3}]
        same(hub.pull("hf:o/m")[0])
        assert hub.sent < len(BYTES) * 1.05, hub.sent


def a_killed_download_continues():
    """Cut three times: by SIGINT, by SIGKILL, and by a server that goes away; every byte travels about once."""
    with Hub() as hub:
        for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            hub.hold_at = hub.sent + len(BYTES) // 4
            run = hub.start("hf:o/m", "--connections", "2")
            until = time.monotonic() + patience(30)
            while hub.sent < hub.hold_at and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(1.2 if number == signal.SIGKILL else 0)
            run.send_signal(number)
            _, err = run.communicate(timeout=patience(20))
            assert run.returncode == status, (run.returncode, err)
            assert not hub.final() and sorted(hub.left()) == ["tiny-Q8_0.gguf.part", "tiny-Q8_0.gguf.part.state"], hub.left()
        hub.faults += [{"role": "store", "status": 503, "n": 100}]
        hub.pull("hf:o/m", status=1, says="given up after 6 failures, the last: status 503")
        hub.faults.clear()
        hub.hold_at = 0
        path, err = hub.pull("hf:o/m")
        assert "continues at" in err, err
        same(path)
        assert hub.sent < len(BYTES) * 1.6, hub.sent


def two_at_once_do_not_meet():
    with Hub() as hub:
        hub.hold_at = len(BYTES) // 2
        first = hub.start("hf:o/m")
        until = time.monotonic() + patience(20)
        while not hub.sent and time.monotonic() < until:
            time.sleep(0.02)
        hub.pull("hf:o/m", status=1, says="another process downloads")
        hub.hold_at = 0
        assert first.wait(patience(30)) == 0
        first.communicate()


def wrong_bytes_are_thrown_away():
    with Hub() as hub:
        hub.hashes["tiny-Q8_0.gguf"] = "ab" * 32
        hub.tree[2]["lfs"]["oid"] = "ab" * 32
        hub.pull("hf:o/m", status=1, says="the hub says abab")
        assert not hub.left(), hub.left()
    with Hub() as hub:
        hub.pull("--sha256", "cd" * 32, f"{hub.store_url}/tiny-Q8_0.gguf", status=1, says="the hub says cdcd")


def a_digest_is_demanded_of_the_hub_too():
    page, digest = "https://huggingface.co/o/m/blob/main/tiny-Q8_0.gguf", hashlib.sha256(BYTES).hexdigest()
    for name in (page, "hf:o/m", "hf:o/m:Q8_0"):
        with Hub() as hub:  # the hub's list has another digest: no byte is fetched
            hub.pull("--sha256", "00" * 32, name, status=1, says=f"the hub's tiny-Q8_0.gguf has SHA-256 {digest}, but --sha256 says 0000")
            assert not hub.asked_of("store") and not hub.left()
            same(hub.pull("--sha256", digest.upper(), name)[0])
            n = len(hub.asked_of("store"))
            same(hub.pull("--sha256", digest, name)[0])
            assert len(hub.asked_of("store")) == n, "fetched again"
    with Hub() as hub:  # the list has no digest: that of the bytes counts
        del hub.tree[2]["lfs"]
        hub.pull("--sha256", "00" * 32, page, status=1, says="they were thrown away")
        assert not hub.left(), hub.left()
        same(hub.pull("--sha256", digest, page)[0])
    files = parts()
    with Hub(**files) as hub:
        for name in ("hf:o/m", f"{hub.store_url}/Q4_K_M/big-Q4_K_M-00002-of-00003.gguf"):
            hub.pull("--sha256", digest, name, status=2, says="--sha256 is the digest of one file, but the model has 3")
        assert not hub.asked_of("store"), hub.asked


def a_digest_is_demanded_of_a_copy():
    """No server is asked, so the bytes that are there count, with and without a kept digest."""
    digest = hashlib.sha256(BYTES).hexdigest()
    with Hub() as hub:
        path, _ = hub.pull("hf:o/m")
        for _ in range(2):
            assert hub.pull("--offline", "--sha256", digest, "hf:o/m")[0] == path
            run = hub.start("--offline", "--sha256", "00" * 32, "hf:o/m")
            out, err = run.communicate(timeout=patience(60))
            assert run.returncode == 1 and not out and f"the copy of tiny-Q8_0.gguf has SHA-256 {digest}, but --sha256 says 0000" in err, err
            same(path)
            if os.path.exists(path + ".sha256"):
                os.unlink(path + ".sha256")
        hub.is_away()
        run = hub.start("--sha256", "00" * 32, "hf:o/m")
        out, err = run.communicate(timeout=patience(60))
        assert run.returncode == 1 and not out and "--sha256 says 0000" in err, err


def the_token_stays_with_the_hub():
    with Hub() as hub:
        hub.pull("hf:o/m")
        assert all(a[3] == f"Bearer {TOKEN}" for a in hub.asked_of("hub")), hub.asked
        assert hub.asked_of("store") and not any(a[3] for a in hub.asked_of("store")), hub.asked
    with Hub() as hub:
        environment = {**os.environ, "HF_ENDPOINT": "http://hub.example", "HF_TOKEN": TOKEN}
        run = subprocess.run([TOOL, "pull", "--to", hub.dir, "hf:o/m"], env=environment, capture_output=True, text=True, timeout=patience(20))
        assert run.returncode == 1 and "HF_TOKEN would travel unencrypted" in run.stderr, run


def a_token_that_is_not_sent_is_no_fault():
    """A blank inside, and too long: the hub is not asked with it, and the command is refused only where it would be."""
    for token in ("hf_a hf_b", "hf_" + "x" * 2000):
        with Hub() as hub:
            path = hub.pull("hf:o/m")[0]
            n = len(hub.asked)
            assert hub.pull("--offline", "hf:o/m", token=token)[0] == path and len(hub.asked) == n
            same(hub.pull(f"{hub.store_url}/tiny-Q8_0.gguf", token=token)[0])
            assert not any(a[3] for a in hub.asked_of("store")), hub.asked
        for name in ("hf:o/m", "https://huggingface.co/o/m", "{}/o/m/resolve/main/tiny-Q8_0.gguf"):
            with Hub() as hub:
                hub.pull(name.format(hub.url), token=token, status=2, says="HF_TOKEN is no token")
                assert not hub.asked
    with Hub() as hub:  # another host that leads to the hub: the request goes without the token
        hub.faults += [{"role": "store", "status": 302, "n": 100, "fields": {"Location": f"{hub.url}/o/m/resolve/main/tiny-Q8_0.gguf"}}]
        hub.location = f"{hub.url}/absent"
        hub.pull(f"{hub.store_url}/tiny-Q8_0.gguf", token="hf_a hf_b", status=1)
        assert hub.asked_of("hub") and not any(a[3] for a in hub.asked), hub.asked


def a_token_with_a_line_end_is_trimmed():
    """Secrets are often files with a line's end. It would end the request's head before the range."""
    with Hub() as hub:
        same(hub.pull("hf:o/m", token=f"{TOKEN}\r\n")[0])
        asked = hub.asked_of("hub", "/resolve/")
        assert asked and all(a[2] and a[3] == f"Bearer {TOKEN}" for a in asked), asked
    with Hub() as hub:
        same(hub.pull("hf:o/m", token=f" \t\n{TOKEN} \n")[0])
        assert all(a[3] == f"Bearer {TOKEN}" for a in hub.asked_of("hub")), hub.asked
    with Hub() as hub:
        same(hub.pull("hf:o/m", token=" \n")[0])
        assert not any(a[3] for a in hub.asked), hub.asked
    with Hub() as hub:
        hub.pull("hf:o/m", token=f"{TOKEN}\nX-More: 1", status=2, says="HF_TOKEN is no token")
        assert not hub.asked


def a_redirect_may_have_a_body():
    """Servers say in a text or a page where the file is."""
    for text in (b"", b"<html>" + b"moved " * 5000):
        with Hub() as hub:
            hub.redirect_text = text
            same(hub.pull("hf:o/m")[0])
    with Hub() as hub:
        hub.redirect_text = b"x" * 3_000_000
        hub.pull("hf:o/m", status=1, says="status 302")


def redirects_end():
    with Hub() as hub:
        hub.location = f"{hub.url}/o/m/resolve/main/tiny-Q8_0.gguf"
        hub.pull("hf:o/m", status=1, says="more than 8 redirects")
        hub.location = "file:///etc/passwd"
        hub.pull("hf:o/m", status=1)


def refusals_are_explained():
    for status, n, says in ((401, 1, "the token is not accepted (401)"), (403, 1, "no access (403)"), (404, 1, "not found (404)"),
                            (410, 1, "status 410"), (429, 4, "too many requests (429)"), (500, 4, "status 500")):
        with Hub() as hub:
            hub.faults += [{"role": "hub", "status": status, "n": 100}]
            hub.pull("hf:o/m", status=1, says=says)
            assert len(hub.asked) == n, (status, hub.asked)
    with Hub() as hub:
        hub.faults += [{"role": "hub", "in": "resolve", "status": 403, "n": 100}]
        hub.pull("hf:o/m", status=1, says="the model's page may ask for consent")


def a_list_is_asked_for_again():
    for fault in ({"status": 503}, {"status": 429}, {"drop": True}):
        with Hub() as hub:
            hub.faults += [{"role": "hub", "n": 3, **fault}]
            same(hub.pull("hf:o/m")[0])
    with Hub() as hub:
        hub.faults += [{"role": "hub", "status": 429, "fields": {"Retry_After": 2}}]
        began = time.monotonic()
        _, err = hub.pull("hf:o/m")
        assert time.monotonic() - began > 2 and "next try in 2 s" in err, err


def a_model_that_is_there_outlives_the_hub():
    for fault in ({}, {"status": 503}, {"status": 429, "fields": {"Retry_After": 1000}}, {"status": 401}, {"status": 403}, {"drop": True}):
        with Hub() as hub:
            path, _ = hub.pull("hf:o/m")
            hub.is_away(**fault)
            again, err = hub.pull("--quiet", "hf:o/m:Q8_0")
            digest = hashlib.sha256(BYTES).hexdigest()
            assert again == path and f"the copy that is there is used; the hub may have another: tiny-Q8_0.gguf, SHA-256 {digest}" in err, err
            run = hub.start("hf:o/m:Q4_0")  # not there: the hub's fault is the command's
            _, err = run.communicate(timeout=patience(60))
            assert run.returncode == 1 and "the copy that is there" not in err, err


def a_hub_that_says_otherwise_is_not_overruled():
    """Withdrawn, changed and unreadable answers fail; they are no reason to use an old copy."""
    with Hub() as hub:
        hub.pull("hf:o/m")
        for status in (404, 410):
            hub.faults[:] = [{"role": "hub", "status": status, "n": 100}]
            run = hub.start("hf:o/m")
            _, err = run.communicate(timeout=patience(60))
            assert run.returncode == 1 and f"{status}" in err and "--offline uses the copy that is there" in err, err
    with Hub() as hub:
        path, _ = hub.pull("hf:o/m")
        hub.hashes["tiny-Q8_0.gguf"] = hub.tree[2]["lfs"]["oid"] = "ab" * 32
        run = hub.start("hf:o/m")
        out, err = run.communicate(timeout=patience(60))
        assert run.returncode == 1 and "the hub says abab" in err and not out, (out, err)
        hub.faults += [{"role": "store", "status": 503, "n": 100}]
        run = hub.start("hf:o/m")
        out, err = run.communicate(timeout=patience(60))
        assert run.returncode == 1 and "given up after 6 failures" in err and not out, (out, err)
        same(path)


def parts_that_are_missing_need_the_hub():
    with Hub(**parts()) as hub:
        path, _ = hub.pull("hf:o/m")
        os.unlink(path.replace("00001", "00002"))
        hub.is_away()
        run = hub.start("hf:o/m")
        out, err = run.communicate(timeout=patience(60))
        assert run.returncode == 1 and not out and "the copy that is there" not in err, (out, err)


def baton_run_may_ask_no_hub():
    """baton run --offline: the server starts with the model that is there; without one it ends."""
    with Hub() as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.url, "BATON_PROGRAMS": BUILD, "XDG_CACHE_HOME": hub.dir, "XDG_RUNTIME_DIR": hub.dir,
                       "TMPDIR": hub.dir, "HOME": hub.dir}
        line = [os.path.join(BUILD, "baton"), "run", "--offline", "--both", "--once", "-t1", "-n3", "hf:o/m"]
        run = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=patience(60))
        assert run.returncode == 1 and "--offline forbids to fetch it" in run.stderr, run
        if os.access("/var/lib/baton/models", os.W_OK):
            return  # the models of this machine
        os.makedirs(f"{hub.dir}/baton/models/o/m")
        os.link(MODEL, f"{hub.dir}/baton/models/o/m/x.gguf") if os.stat(MODEL).st_dev == os.stat(hub.dir).st_dev else \
            os.symlink(os.path.abspath(MODEL), f"{hub.dir}/baton/models/o/m/x.gguf")
        run = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=patience(60))
        assert run.returncode == 0 and not hub.asked, run


def no_empty_part_stays():
    with Hub() as hub:
        hub.faults += [{"role": "hub", "in": "resolve", "status": 404, "n": 100}]
        hub.pull("hf:o/m", status=1, says="not found (404)")
        assert not hub.left(), hub.left()
    with Hub() as hub:
        hub.faults += [{"role": "store", "status": 503, "n": 100}]
        hub.pull("hf:o/m", status=1, says="given up after 6 failures")
        assert not hub.left(), hub.left()
        hub.pull(f"{hub.url}/absent.gguf", status=1, says="not found (404)")
        assert not hub.left(), hub.left()


def a_busy_server_is_waited_for():
    with Hub() as hub:
        hub.faults += [{"role": "store", "n": 1}, {"role": "store", "status": 429, "n": 2, "fields": {"Retry_After": 1}}]
        began = time.monotonic()
        same(hub.pull("hf:o/m")[0])
        assert time.monotonic() - began > 1


def an_expired_address_is_renewed():
    with Hub() as hub:
        run = hub.start("hf:o/m", "--connections", "1")
        until = time.monotonic() + patience(20)
        while len(hub.asked_of("store")) < 2 and time.monotonic() < until:
            time.sleep(0.001)
        hub.faults += [{"role": "store", "status": 403, "n": 1}]
        out, err = run.communicate(timeout=patience(30))
        assert run.returncode == 0, err
        same(out.strip())
        assert hub.faults[0]["n"] == 1 or len(hub.asked_of("hub", "resolve")) == 2, hub.asked


def a_server_without_ranges_is_read_in_one():
    with Hub() as hub:
        hub.has_ranges = False
        same(hub.pull("hf:o/m")[0])
        assert len(hub.asked_of("store")) == 2, hub.asked
    with Hub() as hub:
        hub.has_ranges = False
        hub.faults += [{"role": "store", "cut": 1_000_000, "n": 2}]
        same(hub.pull("hf:o/m")[0])


def wrong_lengths_are_refused():
    with Hub() as hub:
        hub.total = len(BYTES) + 7
        hub.pull("hf:o/m", status=1, says=f"the hub says {len(BYTES)} bytes, the server of the file {len(BYTES) + 7}")
    with Hub() as hub:
        hub.tree[2]["lfs"]["size"] += 1
        hub.pull("hf:o/m", status=1, says=f"the hub lists {len(BYTES) + 1} bytes")
    with Hub() as hub:
        hub.faults += [{"role": "store", "n": 1}, {"role": "store", "shift": 1, "n": 100}]
        hub.pull("hf:o/m", status=1, says="the server answers with another range")
    with Hub() as hub:
        hub.has_ranges = False
        hub.faults += [{"role": "store", "n": 1}, {"role": "store", "cut": 5000, "n": 100}]
        hub.pull("hf:o/m", status=1, says="given up after 6 failures")


def a_full_disk_is_named():
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    with Hub() as hub:
        hub.pull("hf:o/m", status=1, says="cannot make room in", preexec_fn=limit)
        same(hub.pull("hf:o/m")[0])
    with Hub() as hub, small_disk(hub, "3m") as is_small:
        if is_small:  # else the limit above stands for it
            hub.pull("hf:o/m", status=1, says="GB are needed, the disk has")


@contextlib.contextmanager
def small_disk(hub, size):
    """The folder for models is a disk of that size; false where none may be mounted."""
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", hub.dir], capture_output=True).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", hub.dir], check=True)


def a_download_continues_only_with_room_for_the_rest():
    with Hub() as hub, small_disk(hub, "12m") as is_small:
        if not is_small:
            return
        hub.hold_at = len(BYTES) * 2 // 3
        run = hub.start("hf:o/m", "--connections", "2")
        until = time.monotonic() + patience(30)
        while hub.sent < hub.hold_at and time.monotonic() < until:
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=patience(20))
        hub.hold_at = 0
        filler = os.path.join(hub.dir, "filler")
        with open(filler, "wb") as f:
            f.write(bytes(os.statvfs(hub.dir).f_bavail * os.statvfs(hub.dir).f_frsize - (1 << 20)))
        hub.pull("hf:o/m", status=1, says="GB are needed, the disk has 0.00 GB free")
        os.unlink(filler)
        path, err = hub.pull("hf:o/m")
        assert "continues at" in err, err
        same(path)


def parts():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([TOOL, "split", "--parts", "3", MODEL, os.path.join(folder, "big-Q4_K_M")], check=True, timeout=patience(60))
        result = {}
        for i in (1, 2, 3):
            with open(os.path.join(folder, f"big-Q4_K_M-0000{i}-of-00003.gguf"), "rb") as f:
                result[f"Q4_K_M/big-Q4_K_M-0000{i}-of-00003"] = f.read()
        return result


def split_models_come_whole():
    files = parts()
    with Hub(**files, **{"big-Q4_K_S": BYTES, "mmproj-f16": BYTES}) as hub:
        path, _ = hub.pull("hf:o/m:Q4_K_M")
        assert path == f"{hub.dir}/o/m/Q4_K_M/big-Q4_K_M-00001-of-00003.gguf", path
        for name, body in files.items():
            same(f"{hub.dir}/o/m/{name}.gguf", body)
        run = subprocess.run([TOOL, "info", path], capture_output=True, text=True, timeout=patience(20))
        assert run.returncode == 0 and len(hub.final()) == 3, (run, hub.final())
        url = f"{hub.store_url}/Q4_K_M/big-Q4_K_M-00002-of-00003.gguf?x=1"
        assert hub.pull(url)[0].endswith("/Q4_K_M/big-Q4_K_M-00001-of-00003.gguf") and len(hub.final()) == 6
    for name in ("https://huggingface.co/o/m/blob/main/Q4_K_M/big-Q4_K_M-00002-of-00003.gguf", "hf:o/m:big-Q4_K_M-00003-of-00003.gguf",
                 "hf:o/m:Q4_K_M/big-Q4_K_M-00002-of-00003.gguf"):
        with Hub(**files, **{"big-Q4_K_S": BYTES}) as hub:  # any part names its model
            assert hub.pull(name)[0].endswith("/Q4_K_M/big-Q4_K_M-00001-of-00003.gguf") and len(hub.final()) == 3, (name, hub.final())
            assert hub.pull("--offline", name)[0].endswith("/Q4_K_M/big-Q4_K_M-00001-of-00003.gguf")
    files.popitem()
    with Hub(**files) as hub:
        hub.pull("hf:o/m", status=1, says="2 of 3 parts of Q4_K_M/big-Q4_K_M are there")


def a_choice_is_asked_for():
    with Hub(**{"m-Q4_K_M": BYTES, "m-Q4_K_S": BYTES, "m-UD-Q4_K_M": BYTES, "mmproj-f16": BYTES}) as hub:
        _, err = hub.pull("hf:o/m", status=1, says="3 models; name one after a colon:\n")
        assert [line.split()[-1] for line in err.splitlines()[1:]] == ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-UD-Q4_K_M.gguf"], err
        _, err = hub.pull("hf:o/m:Q4_K_M", status=1, says="'Q4_K_M' fits 2 models")
        assert "Q4_K_S" not in err.split("\n", 1)[1], err
        hub.pull("hf:o/m:Q4_K", status=1, says="no model is called 'Q4_K'")
        hub.pull("hf:o/m:m-Q4_K_M.gguf")
    with Hub(**{"m-Q4_K_M": BYTES, "m-Q4_K_S": BYTES}) as hub:
        assert hub.pull("hf:o/m:q4_k_s")[0].endswith("m-Q4_K_S.gguf")


def the_usual_quantisation_is_taken():
    for names, usual in ((("m-Q8_0", "m-Q4_K_M", "m-BF16"), "Q4_K_M"), (("m-Q2_K", "m-Q8_0", "m-BF16"), "Q8_0"),
                         (("m-IQ1_S", "m-Q6_K"), "Q6_K")):
        with Hub(**{name: BYTES for name in names}) as hub:
            path, err = hub.pull("--quiet", "hf:o/m")
            assert path.endswith(f"m-{usual}.gguf") and f"several models; {usual} is taken: m-{usual}.gguf" in err, (path, err)
            assert hub.pull("--offline", "hf:o/m")[0] == path
    with Hub(**{"m-IQ1_S": BYTES, "m-BF16": BYTES}) as hub:
        hub.pull("hf:o/m", status=1, says="2 models; name one after a colon:\n")
    with Hub(**{"small-Q8_0": BYTES, "large-Q8_0": BYTES, "large-Q4_0": BYTES}) as hub:
        hub.pull("hf:o/m", status=1, says="3 models; name one after a colon:\n")


def files_beside_models_are_none():
    others = ("mmproj-f16", "m-mmproj-Q8_0", "mtp-m-Q8_0", "eagle3-m-Q8_0", "imatrix", "imatrix_m", "m-imatrix")
    with Hub(**{name: BYTES for name in ("m-Q8_0", *others)}) as hub:
        path, err = hub.pull("hf:o/m:Q8_0")
        assert path.endswith("/m-Q8_0.gguf")
        for name in others:
            os.link(path, os.path.join(os.path.dirname(path), name + ".gguf"))
        assert hub.pull("hf:o/m")[0] == path and hub.pull("--offline", "hf:o/m")[0] == path


def hostile_lists_are_refused():
    for path in ("../../x.gguf", "/x.gguf", ".x.gguf", "a/../b.gguf", "a\nb.gguf"):
        with Hub() as hub:
            hub.tree[2]["path"] = path
            hub.pull("hf:o/m", status=1, says="a file with an unusable name")
    for tree, says in (({"error": "x"}, "is no list"), ([], "there is no GGUF file"), ([{"type": "file", "path": "x.gguf"}], "lists no size")):
        with Hub() as hub:
            hub.tree = tree
            hub.pull("hf:o/m", status=1, says=says)


def wrong_names_are_refused():
    for name in ("hf:m", "hf:o/m:", "hf:../m", "hf:o/m/x", "m.gguf", "ftp://h/x.gguf", "http://h/", "https://u:p@h/x.gguf"):
        with Hub() as hub:
            hub.pull(name, status=2)
            assert not hub.asked
    with Hub() as hub:
        same(hub.pull(f"{hub.store_url}/tiny-Q8_0.gguf")[0])
        hub.files["x.gguf"] = b"not a model at all"
        run = hub.start(f"{hub.store_url}/x.gguf")
        _, err = run.communicate(timeout=patience(20))
        assert run.returncode == 1 and "not a GGUF file" in err, err


def a_page_of_the_hub_names_its_model():
    """The address that a browser shows for a file or a repository is no model's, so the hub's list is asked."""
    for page in ("o/m/blob/main/tiny-Q8_0.gguf", "o/m/blob/main/tiny-Q8_0.gguf?x=1", "o/m", "o/m/", "o/m/tree/main"):
        for host in ("https://huggingface.co", "https://hf.co"):
            with Hub() as hub:
                same(hub.pull(f"{host}/{page}")[0])
    with Hub() as hub:
        hub.pull("https://huggingface.co/o/m/blob/main/other.gguf", status=1, says="no model is called 'other.gguf'")


def a_page_of_a_file_with_escapes_names_it():
    """Browsers escape blanks, and name a file of the list in the query. No escape leads out of the repository's folder."""
    name = "sub/my model-Q4_0.gguf"
    pages = ("o/m/blob/main/sub/my%20model-Q4_0.gguf", "o/m/blob/main/sub%2fmy%20model-Q4_0%2Egguf?x=1", "o/m?show_file_info=sub%2Fmy+model-Q4_0.gguf",
             "o/m/tree/main?a=b&show_file_info=sub/my%20model-Q4_0.gguf&c=d#e")
    for page in pages:
        with Hub(**{"sub/my model-Q4_0": BYTES, "m-Q8_0": BYTES, "m-Q4_K_M": BYTES}) as hub:
            assert hub.pull(f"https://huggingface.co/{page}")[0] == f"{hub.dir}/o/m/{name}", page
    for escaped in ("%zz.gguf", "m.gguf%", "m.gguf%2", "m%00.gguf", "m.gguf%00", "%2e%2e/m.gguf", "..%2Fm.gguf", "a/%2e%2e%2fm.gguf", "%2Fm.gguf",
                    "a%2F%2Fm.gguf", "a%5c..%5cm.gguf", "m.gguf%2F", "m%0a.gguf", ""):
        for page in (f"o/m/blob/main/{escaped}", f"o/m?show_file_info={escaped}", f"o/m/tree/main?x=1&show_file_info={escaped}"):
            with Hub() as hub:
                hub.pull(f"https://huggingface.co/{page}", status=2, says="the page's address names no file")
                assert not hub.asked, (page, hub.asked)


def a_whole_path_names_one_model():
    with Hub(**{"m-Q8_0": BYTES, "sub/m-Q8_0": BYTES}) as hub:
        for name in ("m-Q8_0.gguf", "sub/m-Q8_0.gguf"):
            assert hub.pull(f"https://huggingface.co/o/m/blob/main/{name}")[0] == f"{hub.dir}/o/m/{name}"


def a_page_does_not_keep_the_models_name():
    """A server answers with a login page once, and with the model the next time."""
    with Hub() as hub:
        hub.files["x.gguf"] = b"<!DOCTYPE html><html>Please log in</html>"
        _, err = hub.pull(f"{hub.store_url}/x.gguf", status=1)
        assert "not a GGUF file, but a web page" in err, err
        hub.files["x.gguf"] = BYTES
        same(hub.pull(f"{hub.store_url}/x.gguf")[0])


if __name__ == "__main__":
    main([it_is_fetched_checked_and_kept, a_new_version_is_fetched, cut_connections_are_continued, a_killed_download_continues,
          two_at_once_do_not_meet, wrong_bytes_are_thrown_away,
          a_digest_is_demanded_of_the_hub_too, a_digest_is_demanded_of_a_copy, the_token_stays_with_the_hub, a_token_with_a_line_end_is_trimmed, a_token_that_is_not_sent_is_no_fault,
          a_redirect_may_have_a_body, redirects_end, refusals_are_explained, a_list_is_asked_for_again, a_model_that_is_there_outlives_the_hub, a_hub_that_says_otherwise_is_not_overruled,
          parts_that_are_missing_need_the_hub, baton_run_may_ask_no_hub, no_empty_part_stays, the_usual_quantisation_is_taken,
          files_beside_models_are_none, a_busy_server_is_waited_for, an_expired_address_is_renewed, a_server_without_ranges_is_read_in_one,
          wrong_lengths_are_refused, a_full_disk_is_named, a_download_continues_only_with_room_for_the_rest, split_models_come_whole, a_choice_is_asked_for,
          hostile_lists_are_refused, wrong_names_are_refused, a_page_of_the_hub_names_its_model, a_page_of_a_file_with_escapes_names_it,
          a_whole_path_names_one_model, a_page_does_not_keep_the_models_name], at_once=6)
