# SPDX-License-Identifier: Apache-2.0
"""LiteLLM as a proxy in front of three real daemons: openai's SDK -> LiteLLM -> /v1/responses.

    make tests/integration/check-litellm        in a build folder

It installs LiteLLM (200 MB) into the build folder and is no part of `make check`.  Ends with 77 without a registry."""
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import BUILD, Cluster, free_port, main  # noqa: E402

VENV = os.environ.get("LITELLM_VENV", os.path.join(BUILD, "tests", "integration", "responses-work", "litellm"))
PACKAGE = "litellm[proxy]==1.108.7"
KEY = "sk-litellm-test"
CONFIG = """
model_list:
  - model_name: baton
    litellm_params: {model: openai/baton-demo, api_base: "os.environ/BATON_BASE", api_key: none}
"""


def install():
    if os.path.exists(os.path.join(VENV, "bin", "litellm")):
        return
    try:
        venv.create(VENV, with_pip=True)
        subprocess.run([os.path.join(VENV, "bin", "python3"), "-m", "pip", "install", "--quiet", "--no-input", PACKAGE],
                       timeout=600, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        print(f"SKIP: LiteLLM cannot be installed: {e}")
        sys.exit(77)


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as e:
        raise AssertionError(f"{path}: {e.code} {e.read()[:1000]}") from e


def wait(port, proxy):
    for _ in range(1200):
        assert proxy.poll() is None, "LiteLLM stopped"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("LiteLLM does not start")


def ask(port):
    common = {"model": "baton", "temperature": 0, "max_output_tokens": 30}
    whole = json.loads(post(port, "/v1/responses", {**common, "input": "What is a hand-off?"}))
    text = whole["output"][0]["content"][0]["text"]
    assert whole["object"] == "response" and text and whole["usage"]["output_tokens"] > 0, whole
    stream = post(port, "/v1/responses", {**common, "input": "What is a hand-off?", "stream": True})
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == text
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] in ("response.completed", "response.incomplete"), events[-1]
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    called = json.loads(post(port, "/v1/responses", {**common, "max_output_tokens": 120, "input": "The weather in Oslo?",
                                                     "tools": [tool], "tool_choice": "required"}))
    assert any(item["type"] == "function_call" for item in called["output"]), called
    chat = json.loads(post(port, "/v1/chat/completions", {"model": "baton", "temperature": 0, "max_tokens": 30,
                                                          "messages": [{"role": "user", "content": "What is a hand-off?"}]}))
    assert chat["choices"][0]["message"]["content"] == text


def litellm_in_front():
    install()
    with Cluster() as c:
        c.relay()
        port = free_port()
        config = os.path.join(c.dir, "litellm.yaml")
        with open(config, "w") as f:
            f.write(CONFIG)
        env = {**os.environ, "BATON_BASE": f"http://127.0.0.1:{c.routers[0].http}/v1", "LITELLM_MASTER_KEY": KEY,
               "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
        with open(os.path.join(c.dir, "litellm.log"), "w+") as log:
            proxy = subprocess.Popen([os.path.join(VENV, "bin", "litellm"), "--config", config, "--host", "127.0.0.1",
                                      "--port", str(port)], cwd=c.dir, env=env, stdout=log, stderr=log)
            try:
                wait(port, proxy)
                ask(port)
            except AssertionError:
                log.seek(0)
                print(log.read()[-3000:])
                raise
            finally:
                proxy.kill()
                proxy.wait()
        c.assert_quiet()


main([litellm_in_front])
