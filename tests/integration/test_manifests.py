#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The container files: the Kubernetes manifests follow the published schemas, and every command line in them and in
compose.yaml is one that our daemons accept (--check-config with the same files).  Skips without the Python package index."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, MODEL, SOURCE, Cluster, main  # noqa: E402

KUBERNETES = os.path.join(SOURCE, "share", "kubernetes", "baton.yaml")
COMPOSE = os.path.join(SOURCE, "share", "container", "compose.yaml")
READY = os.path.join(SOURCE, "share", "container", "ready")
venv = tempfile.TemporaryDirectory(prefix="baton-it.")


def install():
    subprocess.run([sys.executable, "-m", "venv", venv.name], check=True, timeout=60, stdout=subprocess.DEVNULL)
    pip = [os.path.join(venv.name, "bin", "pip"), "-q", "--disable-pip-version-check", "install", "--timeout", "10", "--retries", "1",
           "kubernetes-validate"]
    if subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=180, check=False).returncode != 0:
        print("the package index is out of reach")
        sys.exit(77)


def read_yaml(path):
    """A list of documents, through the virtual environment's PyYAML."""
    program = "import json,sys,yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    out = subprocess.run([os.path.join(venv.name, "bin", "python"), "-c", program, path], check=True, capture_output=True)
    return json.loads(out.stdout)


def check_command(c, command, files):
    """Runs --check-config with a container's command; paths and addresses of the container become ours."""
    def ours(text):
        text = re.sub(r"/run/secrets/(baton/)?cluster\.key", c.key, text)
        text = re.sub(r"/run/secrets/(baton/)?api-keys", os.path.join(c.dir, "api-keys"), text)
        text = text.replace("/usr/share/baton/baton-demo.gguf", MODEL).replace("$(POD)", "pod-0").replace("$(IP)", "127.0.0.1")
        return re.sub(r"172\.30\.7\.\d+", "127.0.0.1", text)

    line = [os.path.join(BUILD, command[0])]
    for word in command[1:]:
        if word.startswith("/etc/baton/"):
            name = os.path.basename(word)
            word = os.path.join(c.dir, name)
            with open(word, "w", encoding="utf-8") as f:
                f.write(ours(files[name]))
        line.append(ours(word))
    if "--config" not in line:
        line += ["--config", os.path.join(c.dir, "empty.conf")]
    done = subprocess.run(line + ["--check-config"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def prepare(c):
    open(os.path.join(c.dir, "empty.conf"), "w", encoding="utf-8").close()
    keys = subprocess.run([os.path.join(BUILD, "batonctl"), "new-key", "--tenant", "me"], check=True, capture_output=True, text=True)
    with open(os.path.join(c.dir, "api-keys"), "w", encoding="utf-8") as f:
        f.write(keys.stdout.splitlines()[1] + "\n")
    os.chmod(os.path.join(c.dir, "api-keys"), 0o600)


def manifests_follow_the_schemas():
    done = subprocess.run([os.path.join(venv.name, "bin", "kubernetes-validate"), "--strict", KUBERNETES], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def commands_are_accepted():
    with Cluster() as c:
        prepare(c)
        documents = read_yaml(KUBERNETES)
        files = next(d["data"] for d in documents if d["kind"] == "ConfigMap")
        sets = [d for d in documents if d["kind"] == "StatefulSet"]
        assert {d["metadata"]["name"] for d in sets} == {"router", "prefill", "decode"}
        for one in sets:
            container, = one["spec"]["template"]["spec"]["containers"]
            check_command(c, container["command"], files)
            assert container["readinessProbe"] and container["lifecycle"]["preStop"], one["metadata"]
        services = read_yaml(COMPOSE)[0]["services"]
        assert len(services) == 5
        for service in services.values():
            check_command(c, service["command"], {})
            assert service["healthcheck"]["test"][1] == "/usr/lib/baton/ready"


def the_health_check_tells_ready_from_not():
    with Cluster() as c:
        router = c.router()
        c.worker("decode", engine__kind="sim")
        c.wait_ready(decode=1)
        assert subprocess.run([READY, str(router.http)], check=False).returncode == 0
        assert subprocess.run([READY, "1"], check=False).returncode != 0
        c.workers[0].stop()
        for _ in range(200):
            if subprocess.run([READY, str(router.http)], check=False).returncode != 0:
                return
        raise AssertionError("ready without a worker")


if __name__ == "__main__":
    install()
    main([manifests_follow_the_schemas, commands_are_accepted, the_health_check_tells_ready_from_not])
