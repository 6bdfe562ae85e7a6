# SPDX-License-Identifier: Apache-2.0
"""A pretended project of files in which the model works as an agent, unaided.

Task makes files, tools and a request; answer() plays the tools.  In contrast to
the dialogues of agent.py nothing is written beforehand: the model sees the
results of its own calls, and the task succeeds only if the files end as asked,
the tests were run when asked for, and the model ended with a plain answer.
"""
import agent
import toolbox

MAX_TURNS = 16


class Task:
    def __init__(self, m, kind):
        self.m, self.kind = m, kind
        self.key, self.old, self.new = m.ident(), m.number(2, 5), m.number(2, 5)
        self.tools = toolbox.choose(m, 6, agent.NEED_CODE)
        self.family = {t.name: k for k, f in toolbox.FAMILIES.items() for t in self.tools if t.family is f}
        self.by_name = {t.name: t for t in self.tools}
        self.files, self.tested, self.calls = {}, False, 0
        n = {"change": 1, "rename": m.between(1, 4), "repair": 1}[kind]
        if kind == "rename":
            self.new = m.ident()
        while len(self.files) < n:
            self.files[m.path()] = agent.file_with(m, [agent.line_of(m, self.key, self.old)])
        self.passing = m.between(5, 100)
        what = self.key if kind == "rename" else self.old
        self.wanted = {p: text.replace(line, line.replace(what, self.new)) for p, text in self.files.items()
                       for line in text.split("\n") if self.key in line}

    def dialogue(self):
        ask = {"change": "Change %s from %s to %s and run the tests." % (self.key, self.old, self.new),
               "rename": "Rename %s to %s everywhere." % (self.key, self.new),
               "repair": "The tests fail. Please fix them."}[self.kind]
        return {"messages": [{"role": "user", "content": ask}], "tools": [t.schema(self.m) for t in self.tools]}

    def done(self):
        right = all(self.files[p] == text for p, text in self.wanted.items())
        return right and (self.tested or self.kind == "rename")

    def run_tests(self):
        text = "\n".join(self.files.values())
        good = self.kind == "rename" or self.new in text
        self.tested = self.tested or good
        if good:
            return "%d passed, 0 failed" % self.passing
        return "%d passed, 1 failed\nFAIL: %s is %s, expected %s" % (self.passing - 1, self.key, self.old, self.new)

    def grep(self, pattern):
        hits = ["%s:%d: %s" % (p, i + 1, line) for p, text in self.files.items()
                for i, line in enumerate(text.split("\n")) if pattern in line]
        return "\n".join(hits) or "no matches"

    def edit(self, path, old, new):
        if path not in self.files:
            return "error: no such file"
        if old not in self.files[path]:
            return "error: old text not found"
        self.files[path] = self.files[path].replace(old, new)
        return "ok"

    def answer(self, call):
        """The result of a call the model made; wrong calls get an error, as in life."""
        self.calls += 1
        tool = self.by_name.get(call.get("name"))
        if tool is None:
            return "error: no such tool"
        given = call.get("arguments") or {}
        role = {p["role"]: given.get(p["name"]) for p in tool.params}
        if any(p["required"] and not isinstance(given.get(p["name"]), str) for p in tool.params):
            return "error: missing argument"
        key = self.family.get(tool.name)
        if key == "tests":
            return self.run_tests()
        if key == "grep":
            return self.grep(role["pattern"])
        if key == "read":
            return self.files.get(role["path"], "error: no such file")
        if key == "edit":
            return self.edit(role["path"], role["old"], role["new"])
        if key == "list":
            names = [p.rsplit("/", 1)[-1] for p in self.files if p.startswith(role["path"])]
            return "\n".join(names) or "(empty)"
        if key == "write":
            self.files[role["path"]] = role["content"]
        return "ok"
