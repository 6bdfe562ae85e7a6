# SPDX-License-Identifier: Apache-2.0
"""An open coding agent, Qwen Code, in its non-interactive mode over /v1/chat/completions: it edits one file as the scripted model
says, and the model sees the result of its call.

    make tests/integration/check-qwen        in a build folder

It installs the agent (150 MB) into the build folder and is no part of `make check`.  The agent needs no change, only three
variables of its environment.  Ends with 77 without a registry."""
from agent import CHANGE, edits_a_file, install
from cluster import main


def qwen_code_edits_a_file():
    program = install("qwen", "@qwen-code/qwen-code@0.24.4")
    said = edits_a_file("run_shell_command", {"command": CHANGE, "description": "edit", "is_background": False},
                        lambda prompt, port, home: [program, "--yolo", "--auth-type", "openai", "-p", prompt],
                        lambda port, home: {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "sim",
                                            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"})
    assert "queue_depth = 256" in said, said  # the model repeats what it was sent


main([qwen_code_edits_a_file])
