# SPDX-License-Identifier: Apache-2.0
"""/v1/responses and /v1/embeddings with unmodified clients, against the scripted backend and real daemons.

The clients come from the package registries, into the build folder or into BATON_CLIENTS, which several builds may share.  They are openai's SDK in both languages, the ai package
with its default OpenAI provider, and langchain in both languages.  Without a registry those parts are skipped visibly."""
import fcntl
import os
import shutil
import subprocess
import sys
import venv

from cluster import BUILD, MODEL, SOURCE, Cluster, main, patience

HERE = os.path.join(SOURCE, "tests", "integration", "responses")
WORK = os.environ.get("BATON_CLIENTS") or os.path.join(BUILD, "tests", "integration", "responses-work")
INSTALL_SECONDS = 120
EMBEDDER = "--arch qwen3 --layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --context 512 --type F32 --set pooling_type=3"
skipped = []


def install(name, needs, run):
    """Installs once into a folder of its own; False: skipped."""
    folder = os.path.join(WORK, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as lock, open(os.path.join(HERE, needs), "rb") as f:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        wanted = f.read()
        mark = os.path.join(folder, ".installed")
        if os.path.exists(mark) and open(mark, "rb").read() == wanted:
            return folder
        try:
            run(folder)
        except (OSError, subprocess.SubprocessError) as e:
            print(f"SKIP: {name} clients cannot be installed: {e}", flush=True)
            skipped.append(name)
            return None
        with open(mark, "wb") as f:
            f.write(wanted)
    return folder


def npm(folder):
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(HERE, name), folder)
    subprocess.run(["npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder,
                   timeout=INSTALL_SECONDS, check=True)


def pip(folder):
    venv.create(folder, with_pip=True)
    subprocess.run([os.path.join(folder, "bin", "python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--no-input", "-r", os.path.join(HERE, "requirements.txt")], timeout=INSTALL_SECONDS, check=True)


def against(command, cwd):
    """Runs clients against the scripted backend, then against three real daemons."""
    sim = subprocess.Popen([os.path.join(BUILD, "tests", "integration", "front_sim")], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    try:
        port = next(line.split()[1] for line in sim.stdout if line.startswith("listening "))
        run_clients(command, cwd, port)
    finally:
        sim.kill()
        sim.wait()
        sim.stdout.close()
    with Cluster() as c:
        c.relay()
        run_clients(command, cwd, c.routers[0].http)
        c.assert_quiet()


def run_clients(command, cwd, port):
    env = {**os.environ, "BASE_URL": f"http://127.0.0.1:{port}"}
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=patience(120))
    assert done.returncode == 0, done.stdout[-4000:]


def javascript_clients_work_unchanged():
    folder = install("javascript", "package-lock.json", npm)
    if folder is not None:
        shutil.copy(os.path.join(HERE, "test-responses.mjs"), folder)
        against(["node", "--test", "--test-reporter=spec", "test-responses.mjs"], folder)


def python_clients_work_unchanged():
    folder = install("python", "requirements.txt", pip)
    if folder is not None:
        against([os.path.join(folder, "bin", "python3"), os.path.join(HERE, "clients.py")], folder)


def clients_of_embeddings_work_unchanged():
    javascript, python = install("javascript", "package-lock.json", npm), install("python", "requirements.txt", pip)
    with Cluster() as c:
        path = os.path.join(c.dir, "embedder.gguf")
        subprocess.run([os.path.join(BUILD, "baton-model"), "make", *EMBEDDER.split(), "--vocab-from", MODEL, path], check=True,
                       stderr=subprocess.DEVNULL)
        c.router()
        c.worker("decode", model__path=path)
        c.wait_ready(decode=1)
        if javascript is not None:
            shutil.copy(os.path.join(HERE, "test-embeddings.mjs"), javascript)
            run_clients(["node", "--test", "test-embeddings.mjs"], javascript, c.routers[0].http)
        if python is not None:
            run_clients([os.path.join(python, "bin", "python3"), os.path.join(HERE, "embeddings.py")], python, c.routers[0].http)
        c.assert_quiet()


main([javascript_clients_work_unchanged, python_clients_work_unchanged, clients_of_embeddings_work_unchanged])
sys.exit(77 if skipped else 0)
