# SPDX-License-Identifier: Apache-2.0
"""The README's tour runs: each command succeeds; so does the help of the script that builds it, and the recipes of docs/changes.md are printed. The picture is well-formed, and agrees with the text."""
import os
import re
import subprocess
import sys
import tempfile
import xml.dom.minidom

from cluster import BUILD, SOURCE, main, patience


def heads_of(document):
    """The heads of the tables that batonctl prints."""
    lines = {"".join(n.data for n in t.childNodes if n.nodeType == n.TEXT_NODE).rstrip() for t in document.getElementsByTagName("text")}
    return {line for line in lines if re.match(r" *worker +role", line)}


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
        assert heads_of(kept) == heads_of(document), "docs/tour.svg shows other tables: run tools/tour"
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


IN_GIT = os.path.exists(os.path.join(SOURCE, ".git"))


def recipe(*words, places=False):
    """Status and text of tools/recipe, and the headings of the recipes that it prints or lists.  places: those of precedents too, which take their time."""
    env = {**os.environ, "GIT_DIR": ".git" if places else "nowhere"}
    said = subprocess.run(["sh", os.path.join(SOURCE, "tools", "recipe"), *words], capture_output=True, text=True, timeout=patience(20), cwd=SOURCE, env=env)
    assert bool(said.stdout) == (said.returncode == 0) and bool(said.stderr) == (said.returncode != 0), (words, said)
    return said.returncode, said.stdout, re.findall(r"^## (.*)|^  (.*) \(docs/", said.stdout, re.M)


# What people ask for, and the recipe that is printed first.
SENTENCES = {
    "new frame from router to worker": "A message on the link",
    "frame router worker": "A message on the link",
    "request field that changes sampling": "A sampling parameter",
    "new option of baton-bench": "An option of baton-bench",
    "counter in the worker's metrics": "A metric",
    "refusal reason at admission": "A reason of refusals",
    "admit a request": "A reason of refusals",
    "reject a request in the router because a tenant has too many": "A reason of refusals",
    "a histogram of the router's queue": "A metric",
    "change the default of queue.timeout": "A default of a key",
    "a request header that the endpoint checks": "A header of requests",
    "support the tool calls of another model": "A tool-call format",
    "a 5-bit quantisation type of GGUF files": "A weight type (quantisation)",
    "move KV over QUIC": "A transport of KV",
    "the client's address in the access log": "A column of the access log",
    "let a worker report a cost factor that placement uses": "A value of another kind that placement uses",
    "another column in batonctl status": "A line or a column in batonctl status and batonctl top",
    "find workers by Consul": "A source of addresses (discovery scheme)",
    "config option of the worker": "A configuration key of a worker",
    "never place long prompts on a worker": "A rule that bars workers from some requests",
    "a route of the OpenAI API": "An endpoint",
    "numa": "A figure of the load report that is only shown",
    "a new weight type Q3_1 of GGUF files": "A weight type (quantisation)",
    "worker temperature penalty placement": "A value of another kind that placement uses",
    "temperature": "A sampling parameter",
    "a value in the workers' load report that placement uses": "A value of another kind that placement uses",
    "a number of the load report that placement weighs": "A value of another kind that placement uses",
    "let placement use a value that the load report carries": "A value of another kind that placement uses",
    "a counter of prompt tokens recomputed because a recurrent snapshot was missing": "A metric",
    "cancel a running request": "An order that ends a running request",
    "kill a request": "An order that ends a running request",
    "maintenance mode": "A reason of refusals",
    "a worker's access log": "A column of the access log",
    # names of keys, which no page has
    "placement.heat_weight": "A setting of placement",
    "a key placement.heat_weight": "A setting of placement",
    "sched.lookahead": "A configuration key of a worker",
    "kv.compress_after": "A configuration key of a worker",
    "queue.spill": "A configuration key of the router",
    "http.max_uploads": "A key of the HTTP endpoint (router and workers)",
    "link.pace": "A configuration key of the router",
    # and of keys that have a recipe of their own
    "kv.type": "A type of keys and values (kv.type)",
    "placement.roles": "A reason of placement.roles",
}


def every_section_of_configuration_has_a_recipe():
    sections = set()
    for name in ("router.conf", "prefill.conf", "decode.conf"):
        with open(os.path.join(SOURCE, "conf", name)) as f:
            sections.update(re.findall(r"^\[(\w+)\]", f.read(), re.M))
    assert len(sections) > 10, sections
    for section in sections:
        status, said, found = recipe(f"{section}.of_tomorrow")
        assert status == 0 and 1 <= len(found) <= 3, (section, status, said[:300])


def recipes_are_printed():
    pages = {}
    for page in ("changes.md", "changes-api.md", "changes-fleet.md", "changes-worker.md"):
        with open(os.path.join(SOURCE, "docs", page)) as f:
            pages[page] = f.read()
    n = 0
    for page, text in pages.items():
        for part in re.split(r"^(?=## )", text, flags=re.M)[1:]:
            heading = part[3:part.index("\n")]
            if heading != "Index":
                status, said, found = recipe(heading.upper())
                assert status == 0 and said.rstrip() == f"docs/{page}:\n\n{part}".rstrip(), (heading, said[:300])
                n += 1
    for row in re.findall(r"^\* (.*)\]\(changes-", pages["changes.md"], re.M):
        words = row[:row.index(": [")].split(", ")
        for one in words:  # alone it may name more recipes than the row does
            status, _, found = recipe(one)
            assert status == 0 and found, (one, row)
            n += 1
    assert n > 150, n
    assert [h for h, _ in recipe("max_FAILS")[2]] == ["A worker that is set aside after failures"]
    assert [h for h, _ in recipe("histogram", "STEPS")[2]] == ["A metric"]
    assert [h for h, _ in recipe("SSE")[2]] == ["An event of streams (SSE)"]  # not "classes": words begin so
    assert [h for h, _ in recipe("access", "logs", "field")[2]] == ["A column of the access log"]
    status, said, found = recipe("a", "gauge", "of", "nonsense")  # most of the words
    assert status == 0 and said.startswith("no recipe has all") and "A metric" in [h or one for h, one in found], said[:300]
    for sentence, heading in SENTENCES.items():
        status, _, found = recipe(*sentence.split())
        assert status == 0 and (found[0][0] or found[0][1]) == heading, (sentence, found)
        assert recipe(sentence)[1] == recipe(*sentence.split())[1], sentence
    assert len(recipe("a")[2]) > 4 and "\n## " not in recipe("a")[1]
    assert recipe("no", "such.thing")[0] == 1
    said = recipe("A", "metric", places=True)[1]
    assert not IN_GIT or re.search(r"\n\nPlaces of -w m_redispatched -- src\n(  src/\S+\.[ch]: \S.*\n){2,}", said), said
    assert recipe()[0] == 2 and recipe("--help")[1].startswith("usage: tools/recipe WORDS")


main([the_builder_prints_its_help, every_section_of_configuration_has_a_recipe, recipes_are_printed, the_tour_runs])
