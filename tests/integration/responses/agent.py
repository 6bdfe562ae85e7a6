# SPDX-License-Identifier: Apache-2.0
"""Lets an open coding agent edit one file in its non-interactive mode: installs it, and starts a scripted model for it.

The prompts of agents have up to 28,000 byte tokens, so front_sim gets a longer context than the bundled model has."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import BUILD  # noqa: E402

CHANGE = "sed -i s/128/256/ queue.conf && cat queue.conf"


def install(name, package):
    """Installs an npm package into the build folder once, and gives the path of its program; ends with 77 without a registry."""
    folder = os.environ.get(name.upper() + "_FOLDER", os.path.join(BUILD, "tests", "integration", "responses-work", name))
    program = os.path.join(folder, "node_modules", ".bin", name)
    if not os.path.exists(program):
        os.makedirs(folder, exist_ok=True)
        try:
            subprocess.run(["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", package],
                           timeout=600, check=True)
        except (OSError, subprocess.SubprocessError) as e:
            print(f"SKIP: the agent cannot be installed: {e}")
            sys.exit(77)
    return program


def edits_a_file(tool, arguments, command, environment):
    """command(prompt, port, home) gives the agent's command line. The model answers with a call of `tool`, then with text."""
    with tempfile.TemporaryDirectory() as home:
        work = os.path.join(home, "work")
        os.mkdir(work)
        with open(os.path.join(work, "queue.conf"), "w") as f:
            f.write("queue_depth = 128\n")
        sim = subprocess.Popen([os.path.join(BUILD, "tests", "integration", "front_sim"), "--context", "200000",
                                "--token-us", "10"], stdout=subprocess.PIPE, text=True)
        try:
            port = next(line.split()[1] for line in sim.stdout if line.startswith("listening "))
            prompt = f"call <tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"
            done = subprocess.run(command(prompt, port, home), cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  env={**os.environ, "HOME": home, **environment(port, home)}, stderr=subprocess.STDOUT,
                                  text=True, timeout=120)
        finally:
            sim.kill()
            sim.wait()
            sim.stdout.close()
        assert done.returncode == 0, done.stdout[-3000:]
        with open(os.path.join(work, "queue.conf")) as f:
            assert f.read() == "queue_depth = 256\n", done.stdout[-3000:]
    return done.stdout
