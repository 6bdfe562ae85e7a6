# SPDX-License-Identifier: Apache-2.0
"""Arize Phoenix as the OTLP collector of three real daemons: it stores the trace and gives it back by its own API.

    make tests/integration/check-phoenix        in a build folder

Phoenix is a receiver that a Python registry carries whole (server and store; the OpenTelemetry Collector and Jaeger come as
binaries from elsewhere), and it reads the gen_ai attributes.  It takes 1 GB in the build folder, so this is no part of
`make check`.  Ends with 77 without a registry."""
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, Stream, free_port, main  # noqa: E402

VENV = os.environ.get("PHOENIX_VENV", os.path.join(BUILD, "tests", "integration", "phoenix-work"))
PACKAGE = "arize-phoenix==20.26.1"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NAMES = {"chat baton-demo", "tokenise", "dispatch", "prefill", "decode", "queue", "compute prompt", "KV send", "KV receive",
         "decode tokens"}


def install():
    python = os.path.join(VENV, "bin", "python3")
    if os.path.exists(python) and subprocess.run([python, "-c", "import phoenix.server.main"], stderr=subprocess.DEVNULL,
                                                 stdout=subprocess.DEVNULL).returncode == 0:
        return
    try:
        venv.create(VENV, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", PACKAGE], timeout=900, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        print(f"SKIP: Phoenix cannot be installed: {e}")
        sys.exit(77)


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read().decode()


def until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = condition()
            if found:
                return found
        except OSError:
            pass  # not listening yet, or no such project yet
        time.sleep(0.2)
    raise AssertionError(what)


def stored(port):
    spans = json.loads(get(port, "/v1/projects/default/spans?limit=100"))["data"]
    return spans if NAMES <= {s["name"] for s in spans} else None


def phoenix_stores_the_trace():
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="baton-phoenix.") as folder:
        environment = dict(os.environ, PHOENIX_WORKING_DIR=folder, PHOENIX_HOST="127.0.0.1", PHOENIX_PORT=str(port),
                           PHOENIX_GRPC_PORT=str(free_port()), PHOENIX_TELEMETRY_ENABLED="false")
        with open(os.path.join(folder, "log"), "wb") as log:
            server = subprocess.Popen([os.path.join(VENV, "bin", "python3"), "-m", "phoenix.server.main", "serve"],
                                      env=environment, stdout=log, stderr=log)
        try:
            until(lambda: get(port, "/healthz") == "OK", "Phoenix does not start")
            url = f"http://127.0.0.1:{port}"
            with Cluster() as c:
                c.router(trace__url=url)
                c.worker("prefill", trace__url=url)
                c.worker("decode", trace__url=url)
                c.wait_ready(prefill=1, decode=1)
                stream = Stream(c.routers[0].http, c.body("The baton goes from hand to hand. " * 12, max_tokens=12),
                                {"traceparent": f"00-{TRACE}-{PARENT}-01"})
                assert stream.finish().is_whole
                spans = until(lambda: stored(port), "Phoenix has not got all spans", 30)
        finally:
            server.terminate()
            server.wait(20)
    ids = {s["context"]["span_id"]: s for s in spans}
    assert {s["context"]["trace_id"] for s in spans} == {TRACE}
    for span in sorted(spans, key=lambda s: (s["start_time"], s["name"])):
        parent = ids.get(span["parent_id"])
        print(f'{span["start_time"]}  {span["end_time"][17:]}  {span["name"]:16} in {parent["name"] if parent else span["parent_id"]}')
    root = next(s for s in spans if s["name"] == "chat baton-demo")
    assert root["parent_id"] == PARENT and root["attributes"]["gen_ai.usage.output_tokens"] == 12, root
    assert all(s["parent_id"] in ids or s is root for s in spans)


if __name__ == "__main__":
    install()
    main([phoenix_stores_the_trace])
