# SPDX-License-Identifier: Apache-2.0
"""clients/examples against three real daemons: each prints the same answer as baton-chat."""
import os
import shutil
import subprocess
import sys

from cluster import BUILD, SOURCE, Cluster, main, patience

EXAMPLES = os.path.join(SOURCE, "clients", "examples")
QUESTION = "What is TTFT?"
left_out = []


def run(cluster, *command, cwd=None, timeout=60):
    environ = {**os.environ, "BATON_URL": f"http://127.0.0.1:{cluster.routers[0].http}"}
    done = subprocess.run(command, env=environ, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=patience(timeout))
    assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def with_sdks():
    """A folder with installed SDKs, or None."""
    get = os.path.join(SOURCE, "tests", "integration", "sdk", "get-sdks")
    done = subprocess.run([get], cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 77:
        left_out.append(done.stdout.strip())
        return None
    assert done.returncode == 0, done.stdout
    return done.stdout.strip().split("\n")[-1]


def cluster():
    c = Cluster()
    c.relay()
    return c


def every_example_answers():
    with cluster() as c:
        url = f"http://127.0.0.1:{c.routers[0].http}"
        wanted = run(c, os.path.join(BUILD, "baton-chat"), "--url", url, "-T", "0", "--ask", QUESTION)
        assert wanted.startswith("TTFT is"), wanted
        assert run(c, "sh", os.path.join(EXAMPLES, "ask.sh"), QUESTION) == wanted
        assert run(c, "python3", os.path.join(EXAMPLES, "ask.py"), QUESTION) == wanted
        with_tool = run(c, "python3", os.path.join(EXAMPLES, "ask.py"))
        assert '> get_weather {"city": "Lisbon"}\n' in with_tool and "21" in with_tool.splitlines()[-1], with_tool
        program = os.path.join(c.dir, "ask")
        if subprocess.run(["pkg-config", "--exists", "libcurl", "jansson"]).returncode == 0:
            run(c, "cc", "-Wall", "-Wextra", "-Werror", "-o", program, os.path.join(EXAMPLES, "ask.c"), "-lcurl", "-ljansson")
            assert run(c, program, QUESTION) == wanted
        else:
            left_out.append("ask.c: libcurl4-openssl-dev is not installed")
        folder = with_sdks()
        for name in ("ask.mjs", "openai.mjs") if folder else ():
            shutil.copy(os.path.join(EXAMPLES, name), folder)
            assert run(c, "node", name, QUESTION, cwd=folder) == wanted, name
        c.assert_quiet()


def an_agent_works_for_twenty_turns():
    folder = with_sdks()
    if folder is None:
        return
    with cluster() as c:
        shutil.copy(os.path.join(EXAMPLES, "agent.mjs"), folder)
        said = run(c, "node", "agent.mjs", "--turns", "20", cwd=folder, timeout=120)
        print(said)
        turns = [line for line in said.splitlines() if line.startswith("turn ")]
        assert len(turns) >= 20, turns
        for tool in ("grep", "read_file", "edit_file", "run_tests"):
            assert f"> {tool} {{" in said, f"{tool} was never called"
        # From the second turn on the cache has all but the end of the prompt.
        shares = [[int(word) for word in line.split() if word.isdigit()][-2:] for line in turns[1:]]
        assert all(read >= 0.75 * prompt for prompt, read in shares), shares
        changed = int(said.splitlines()[-1].split(";")[1].split()[0])
        assert changed >= 2, said.splitlines()[-1]
        c.assert_quiet()


main([every_example_answers, an_agent_works_for_twenty_turns])
for why in left_out:
    print("left out: " + why)
sys.exit(77 if left_out else 0)
