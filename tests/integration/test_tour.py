# SPDX-License-Identifier: Apache-2.0
"""The README's tour runs: each command succeeds; so does the help of the script that builds it. The picture is well-formed, and agrees with the text."""
import os
import re
import subprocess
import sys
import tempfile
import xml.dom.minidom

from cluster import BUILD, SOURCE, main, patience


def the_tour_runs():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "tour.svg")
        said = subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "tour"), BUILD, out], capture_output=True, text=True,
                              timeout=patience(300))
        assert said.returncode == 0, (said.stdout, said.stderr)
        document = xml.dom.minidom.parse(out)
        text = "\n".join("".join(n.data for n in t.childNodes if n.nodeType == n.TEXT_NODE) for t in document.getElementsByTagName("text"))
        for wanted in ("transferred 29", "60 whole, 0 failed", "120 whole, 0 failed", "are up to date", "worker           role"):
            assert wanted in text, (wanted, text)
        assert os.path.getsize(out) < 40 << 10
        kept_path = os.path.join(SOURCE, "docs", "tour.svg")
        seconds = max(float(s) for s in re.findall(r'begin="([0-9.]+)s"', open(kept_path).read()))
        assert seconds < 90, seconds
        kept = xml.dom.minidom.parse(kept_path)
        assert len(kept.getElementsByTagName("g")) == len(document.getElementsByTagName("g"))


def the_builder_prints_its_help():
    """A regression test: an option in the place of the folder went to mkdir."""
    script = os.path.join(SOURCE, "tools", "build")
    with tempfile.TemporaryDirectory() as folder:
        for words, status in ((["--help"], 0), (["--first", "--help"], 0), (["--frob"], 2), ([], 2)):
            said = subprocess.run(["sh", script, *words], capture_output=True, text=True, cwd=folder, timeout=patience(20))
            assert said.returncode == status, (words, said.returncode, said.stderr)
            assert "DIRECTORY [configure options]" in (said.stderr if status else said.stdout), (words, said.stdout, said.stderr)
        assert os.listdir(folder) == []


main([the_builder_prints_its_help, the_tour_runs])
