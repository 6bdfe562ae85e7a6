#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The template interpreter against python3-jinja2, set up as model files expect it.

Both render every case of jinja_cases.py, and the models' own templates if the shared data is present.  The texts must
be equal, and Baton must refuse every template that the reference refuses.  Skipped without jinja2.
"""
import datetime
import json
import os
import subprocess
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("python3-jinja2 is not here; skipped")
    sys.exit(77)

SOURCE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(SOURCE, "tests/unit/text/jinja"))
import jinja_cases  # noqa: E402

NOW = datetime.datetime(2025, 1, 1, 12, 34, 56)  # as jinja_lines has it


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["fromjson"] = json.loads  # as llama.cpp has it
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


def expected(env, template, context):
    try:
        return env.from_string(template).render(**context), None
    except Exception as error:  # any refusal, with any exception
        return None, f"{type(error).__name__}: {error}"


def shared_cases():
    """The models' templates with the conversations of rendered.json; the reference's own output must be there."""
    folder = os.path.join(os.environ.get("BATON_DATA", os.path.join(SOURCE, "../shared/data")), "templates")
    if not os.path.exists(os.path.join(folder, "rendered.json")):
        print("the shared templates are not here (BATON_DATA): left out")
        return
    with open(os.path.join(folder, "rendered.json"), encoding="utf-8") as file:
        reference = json.load(file)
    inputs = reference["inputs"]
    for name, rendered in reference["rendered"].items():
        with open(os.path.join(folder, name + ".jinja"), encoding="utf-8") as file:
            template = file.read()
        for case, text in rendered.items():
            context = {"messages": inputs[case], "bos_token": inputs["bos_token"], "eos_token": inputs["eos_token"],
                       "add_generation_prompt": True}
            if case.startswith("tool"):
                context["tools"] = inputs["tool_defs"]
            yield template, context, text


def main():
    env = environment()
    cases = [(template, context, None) for template, context in jinja_cases.CASES] + list(shared_cases())
    lines = "".join(json.dumps({"template": t, "context": c}) + "\n"
                    for t, c, *_ in cases + jinja_cases.REFUSED + [(t, {}) for t, _ in jinja_cases.OURS])
    ran = subprocess.run(["tests/unit/text/jinja/jinja_lines"], input=lines.encode(), stdout=subprocess.PIPE, check=False)
    answers = [json.loads(line) for line in ran.stdout.decode().split("\n") if line]
    failed = 0
    if ran.returncode != 0 or len(answers) != len(cases) + len(jinja_cases.REFUSED) + len(jinja_cases.OURS):
        print(f"jinja_lines ended with {ran.returncode} after {len(answers)} of {len(cases)} and {len(jinja_cases.REFUSED)}")
        failed += 1
    for (template, context, text), answer in zip(cases, answers):
        want, refusal = expected(env, template, context)
        if text is not None and want != text:
            print(f"the reference here differs from rendered.json\n  {want!r}\n  {text!r}")
            failed += 1
        if answer.get("text") != want:
            failed += 1
            print(f"template {template!r}\n context {json.dumps(context)}\n  want {want!r} {refusal or ''}\n  have {answer}")
    for (template, _, words), answer in zip(jinja_cases.REFUSED, answers[len(cases):]):
        if words not in answer.get("error", ""):
            failed += 1
            print(f"template {template[:200]!r}\n  not refused with {words!r}: {str(answer)[:300]}")
    for (template, text), answer in zip(jinja_cases.OURS, answers[len(cases) + len(jinja_cases.REFUSED):]):
        if answer.get("text") != text:
            failed += 1
            print(f"template {template!r}\n  want {text!r}\n  have {answer}")
    print(f"{len(cases)} cases, {len(jinja_cases.OURS)} of ours and {len(jinja_cases.REFUSED)} refusals, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
