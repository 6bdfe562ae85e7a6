# SPDX-License-Identifier: Apache-2.0
"""An open coding agent, Codex, in its non-interactive mode over /v1/responses: it edits one file as the scripted model says.

    make tests/integration/check-codex        in a build folder

It installs the agent (400 MB) into the build folder and is no part of `make check`.  The agent needs no change, only a provider
with a base URL and wire_api = "responses".  Ends with 77 without a registry."""
import os

from agent import CHANGE, edits_a_file, install
from cluster import main

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


def codex_edits_a_file():
    program = install("codex", "@openai/codex@0.169.0")

    def command(prompt, port, home):
        with open(os.path.join(home, "config.toml"), "w") as f:
            f.write(CONFIG.format(port=port))
        return [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]

    edits_a_file("exec_command", {"cmd": CHANGE}, command, lambda port, home: {"CODEX_HOME": home})


main([codex_edits_a_file])
