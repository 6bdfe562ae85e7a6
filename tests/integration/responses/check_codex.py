# SPDX-License-Identifier: Apache-2.0
"""An open coding agent, Codex, in its non-interactive mode over /v1/responses: it edits one file as the scripted model says.

    make tests/integration/check-codex        in a build folder

It installs the agent (400 MB) into the build folder and is no part of `make check`.  The agent needs no change, only a provider
with a base URL and wire_api = "responses".  Its prompt has 28,000 byte tokens, so front_sim gets a longer context than the bundled
model has.  Ends with 77 without a registry."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import BUILD, main  # noqa: E402

FOLDER = os.environ.get("CODEX_FOLDER", os.path.join(BUILD, "tests", "integration", "responses-work", "codex"))
PACKAGE = "@openai/codex@0.169.0"
CONFIG = """
model = "sim"
model_provider = "baton"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.baton]
name = "baton"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


def install():
    program = os.path.join(FOLDER, "node_modules", ".bin", "codex")
    if not os.path.exists(program):
        os.makedirs(FOLDER, exist_ok=True)
        try:
            subprocess.run(["npm", "install", "--prefix", FOLDER, "--no-audit", "--no-fund", "--loglevel=error", PACKAGE],
                           timeout=600, check=True)
        except (OSError, subprocess.SubprocessError) as e:
            print(f"SKIP: the agent cannot be installed: {e}")
            sys.exit(77)
    return program


def an_agent_edits_a_file():
    program = install()
    with tempfile.TemporaryDirectory() as home:
        work = os.path.join(home, "work")
        os.mkdir(work)
        with open(os.path.join(work, "queue.conf"), "w") as f:
            f.write("queue_depth = 128\n")
        sim = subprocess.Popen([os.path.join(BUILD, "tests", "integration", "front_sim"), "--context", "200000",
                                "--token-us", "10"], stdout=subprocess.PIPE, text=True)
        try:
            port = next(line.split()[1] for line in sim.stdout if line.startswith("listening "))
            with open(os.path.join(home, "config.toml"), "w") as f:
                f.write(CONFIG.format(port=port))
            call = {"name": "exec_command", "arguments": {"cmd": "sed -i s/128/256/ queue.conf && cat queue.conf"}}
            done = subprocess.run([program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                                   f"call <tool_call>\n{json.dumps(call)}\n</tool_call>"],
                                  cwd=work, env={**os.environ, "HOME": home, "CODEX_HOME": home}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        finally:
            sim.kill()
            sim.wait()
            sim.stdout.close()
        assert done.returncode == 0, done.stdout[-3000:]
        with open(os.path.join(work, "queue.conf")) as f:
            assert f.read() == "queue_depth = 256\n", done.stdout[-3000:]


main([an_agent_edits_a_file])
