# SPDX-License-Identifier: Apache-2.0
"""Dialogues in which tools work for the user, one call or many.

Scene collects the messages of one dialogue.  The plots below play a project of
files on the fly: what grep or read returns follows from what was edited before,
tests fail for a reason that the files show, and some calls fail and are
repeated in another way.  Every argument can be read off the conversation.
"""
import json

import recall
import talk
import toolbox
import words

NEED_CODE = ("grep", "read", "edit", "tests", "list", "write")


class Scene:
    def __init__(self, m, tools):
        self.m, self.messages = m, []
        self.tools = tools
        self.by_family = {}
        for tool in tools:
            for key, family in toolbox.FAMILIES.items():
                if tool.family is family:
                    self.by_family.setdefault(key, tool)

    def system(self, text):
        self.messages.insert(0, {"role": "system", "content": text})

    def user(self, template, **slots):
        self.messages.append({"role": "user", "content": self.m.fill(template, **slots) if slots else template})

    def answer(self, template, **slots):
        self.messages.append({"role": "assistant", "content": self.m.fill(template, **slots) if slots else template})

    def raw_call(self, call, result, say=""):
        self.messages.append({"role": "assistant", "content": say, "tool_calls": [call]})
        self.messages.append({"role": "tool", "content": str(result)})

    def call(self, key, result, say="", **roles):
        if say and not self.m.chance(.2):
            say = ""
        self.raw_call(self.by_family[key].call(**roles), result, say)

    def turns(self, turns):
        for ask, reply in turns:
            self.user(ask)
            self.answer(reply)

    def dialogue(self):
        out = {"messages": self.messages}
        if self.tools:
            out["tools"] = [t.schema(self.m) for t in self.tools]
        return out


def line_of(m, key, value):
    return m.fill(m.pick(["{k} = {v}", "{k} = {v};", "{k}: {v}", "int {k} = {v};", "#define {k} {v}", "{k}={v}",
                          "set {k} {v}", "static int {k} = {v};"]), k=key, v=value)


def file_with(m, lines):
    out = list(lines)
    for _ in range(m.pick([0, 1, 2, 3, 5])):
        out.insert(m.between(0, len(out)), line_of(m, m.ident(), m.number()))
    return "\n".join(out)


def report_pass(m, n):
    return m.pick(["%d passed, 0 failed", "%d passed", "ok: %d tests", "%d tests passed"]) % n


def change_value(s):
    """grep, read, edit (sometimes refused once), tests (sometimes one to repair), report."""
    m = s.m
    key, old, new, path = m.ident(), m.number(), m.number(), m.path()
    line, total = line_of(m, key, old), m.between(2, 200)
    after = line.replace(old, new)
    told_path = m.chance(.3)
    ask = m.fill("[Change {k} from {a} to {b}|Set {k} to {b}|Please change {k} to {b}|{k} should be {b}|Raise {k} to {b}]",
                 k=key, a=old, b=new) + (" in " + path if told_path else "")
    with_tests = m.chance(.8)
    s.user(ask + (m.fill("[ and run the tests| and test it|, then run the tests]. ", x=0).rstrip() if with_tests else "."))
    if not told_path:
        hits = ["%s:%d: %s" % (path, m.between(1, 300), line)]
        s.call("grep", hits[0], "I will look for %s." % key, pattern=key)
    if m.chance(.75):
        s.call("read", file_with(m, [line]), "Now I read the file.", path=path)
    elif told_path:
        s.call("grep", "%s:%d: %s" % (path, m.between(1, 300), line), pattern=key)
    if m.chance(.2):
        s.call("edit", m.pick(["error: old text not found", "error: file changed, read it again", "no match"]),
               path=path, old=line, new=after)
        line = "  " + line if m.chance(.3) else line_of(m, key, old)
        after = line.replace(old, new)
        s.call("read", file_with(m, [line]), "I read it again.", path=path)
    s.call("edit", m.pick(["ok", "1 replacement", "edited " + path]), path=path, old=line, new=after)
    if not with_tests:
        s.answer("[Done: {k} is now {b} in {p}.|I changed {k} to {b} in {p}.]", k=key, b=new, p=path)
        return
    finish_tests(s, key, old, new, total)
    s.answer("[Done: {k} is now {b} in {p} and all {n} tests pass.|I changed {k} to {b} in {p}. All {n} tests pass.]",
             k=key, b=new, p=path, n=total)


def finish_tests(s, key, old, new, total):
    m = s.m
    if m.chance(.35):
        test = m.path(m.pick(["c", "py"]))
        check = m.fill(m.pick(["check {k} == {v}", "assert {k} == {v}", "expect({k}, {v});"]), k=key, v=old)
        s.call("tests", "%d passed, 1 failed\nFAIL %s:%d: %s" % (total - 1, test, m.between(1, 200), check))
        if m.chance(.6):
            s.call("read", file_with(m, [check]), "A test still expects the old value.", path=test)
        s.call("edit", "ok", path=test, old=check, new=check.replace(old, new))
    s.call("tests", report_pass(m, total), "Now the tests.")


def rename(s):
    """One edit per file that grep found, then grep again, tests, report."""
    m = s.m
    old, new, total = m.ident(), m.ident(), m.between(2, 200)
    paths = [m.path() for _ in range(m.pick([1, 2, 2, 3, 3, 4, 5, 6]))]
    paths = list(dict.fromkeys(paths))
    s.user("[Rename {a} to {b}|Rename {a} to {b} everywhere|Please rename {a} to {b} in all files|Replace {a} by {b} in the whole project]"
           "[.| and run the tests.|]", a=old, b=new)
    tests = "tests" in s.messages[-1]["content"]
    hits = "\n".join("%s:%d: %s" % (p, m.between(1, 400), line_of(m, old, m.number()) if m.chance(.5) else old + "(%s)" % m.ident())
                     for p in paths)
    s.call("grep", hits, "First I look where it is used.", pattern=old)
    for p in paths:
        if m.chance(.1):
            s.call("edit", m.pick(["error: file is locked, try again", "error: timeout", "error: busy"]), path=p, old=old, new=new)
        s.call("edit", m.pick(["ok", "ok", "1 replacement", "edited " + p]), path=p, old=old, new=new)
    if m.chance(.5):
        s.call("grep", m.pick(["no matches", "(no output)"]), "I check that nothing is left.", pattern=old)
    if tests:
        s.call("tests", report_pass(m, total))
    s.answer("[Done: {a} is now {b} in {n}.{t}|I renamed {a} to {b} in {n}.{t}]", a=old, b=new,
             n="one file" if len(paths) == 1 else "%d files" % len(paths), t=" All %d tests pass." % total if tests else "")


def repair(s):
    """The tests say what is wrong; find it, repair it, run them again."""
    m = s.m
    key, want, got, path, total = m.ident(), m.number(), m.number(), m.path(), m.between(2, 200)
    line = line_of(m, key, got)
    s.user(m.fill("[The tests fail. Please fix them.|Fix the failing test.|A test fails, can you repair it?|Make the tests pass.|"
                  "Run the tests and fix what is broken.]", x=0))
    where = m.chance(.5)
    fail = "FAIL %s:%d: %s is %s, expected %s" % (path, m.between(1, 200), key, got, want) if where else \
        "FAIL: %s is %s, expected %s" % (key, got, want)
    s.call("tests", "%d passed, 1 failed\n%s" % (total - 1, fail), "I run the tests first.")
    if not where:
        s.call("grep", "%s:%d: %s" % (path, m.between(1, 300), line), pattern=key)
    s.call("read", file_with(m, [line]), path=path)
    s.call("edit", m.pick(["ok", "1 replacement"]), path=path, old=line, new=line.replace(got, want))
    if m.chance(.2):
        key2, want2, got2, path2 = m.ident(), m.number(), m.number(), m.path()
        line2 = line_of(m, key2, got2)
        s.call("tests", "%d passed, 1 failed\nFAIL %s:%d: %s is %s, expected %s" % (total - 1, path2, m.between(1, 200), key2, got2, want2))
        s.call("read", file_with(m, [line2]), path=path2)
        s.call("edit", "ok", path=path2, old=line2, new=line2.replace(got2, want2))
    s.call("tests", report_pass(m, total))
    s.answer("[Fixed: {k} is now {b} in {p} and all {n} tests pass.|All {n} tests pass now. I set {k} to {b} in {p}.]",
             k=key, b=want, p=path, n=total)


def lost_file(s):
    """The path is wrong; list or grep finds the right one."""
    m = s.m
    key, value, path = m.ident(), m.anything(), m.path()
    folder = path.rsplit("/", 1)[0] if "/" in path else "."
    wrong = path.rsplit(".", 1)[0] + "." + m.pick([e for e in words.EXTS if e != path.rsplit(".", 1)[1]])
    s.user("[What is {k} in {p}?|Read {p} and tell me {k}.|Tell me the value of {k} in {p}.]", k=key, p=wrong)
    s.call("read", m.pick(["error: no such file", "error: %s not found" % wrong, "no such file: " + wrong]), path=wrong)
    if m.chance(.15):
        s.call("list", "(empty)", path=folder)
        s.answer("[I could not find {p}.|There is no {p}.]", p=wrong)
        return
    names = [path.rsplit("/", 1)[-1]] + [m.path().rsplit("/", 1)[-1] for _ in range(m.between(0, 3))]
    m.rng.shuffle(names)
    s.call("list", "\n".join(names), "I look what is there.", path=folder)
    s.call("read", file_with(m, [m.fill(m.pick(["{k} = {v}", "{k}: {v}"]), k=key, v=value)]), path=path)
    s.answer("[{k} is {v}. The file is {p}.]", k=key, v=value, p=path)


def write_and_check(s):
    m = s.m
    path, text = m.path(), m.pick([m.phrase(), m.ident() + " = " + m.code(), m.nonsense()])
    s.user("[Create {p} with \"{x}\" and check it.|Write \"{x}\" to {p}, then read it back.|Save \"{x}\" in {p} and make sure it is there.]", p=path, x=text)
    if m.chance(.25):
        s.call("write", m.pick(["error: disk is busy", "error: timeout", "error: try again"]), path=path, content=text)
    s.call("write", m.pick(["ok", "written", "%d bytes" % len(text)]), path=path, content=text)
    s.call("read", text, path=path)
    s.answer("[Done: {p} says \"{x}\".|I wrote {p} and checked it.]", p=path, x=text)


def read_each(s):
    """A list of files, one read per turn, one answer at the end."""
    m = s.m
    key = m.ident()
    listed = m.chance(.5)
    folder = m.folder()
    paths = list(dict.fromkeys(folder + "/" + m.path().rsplit("/", 1)[-1] for _ in range(m.pick([2, 2, 3, 3, 4, 5, 6, 8]))))
    values = [m.number() for _ in paths]
    if listed:
        s.user("[What is {k} in each file of {d}?|Collect {k} from all files in {d}.]", k=key, d=folder)
        s.call("list", "\n".join(p.rsplit("/", 1)[1] for p in paths), path=folder)
    else:
        s.user("[What is {k} in {p}?|Read {p} and tell me {k} of each.]", k=key, p=", ".join(paths))
    for p, v in zip(paths, values):
        if m.chance(.08):
            s.call("read", m.pick(["error: timeout", "error: try again"]), path=p)
        s.call("read", file_with(m, ["%s = %s" % (key, v)]), path=p)
    s.answer("; ".join("%s: %s" % (p.rsplit("/", 1)[1], v) for p, v in zip(paths, values)) + ".")


PLOTS = [(change_value, 4), (rename, 3), (repair, 3), (lost_file, 1.5), (write_and_check, 1.5), (read_each, 1.5)]


def plain_agent(m):
    """Tools under their usual names, and up to six tasks in a row."""
    return agent(m, True, [1, 1, 2, 3, 4, 6])


def agent(m, plain=None, numbers_of_tasks=(1, 1, 1, 2, 2, 3)):
    need = NEED_CODE if m.chance(.7) else NEED_CODE[:5 if m.chance(.5) else 6]
    if m.chance(.3):
        need = need + ("command",)
    s = Scene(m, toolbox.choose(m, len(need) + m.pick([0, 0, 1, 2]), need, plain))
    plots = [p for p, w in PLOTS for _ in range(int(w * 2)) if p is not write_and_check or "write" in s.by_family]
    for _ in range(m.pick(numbers_of_tasks)):
        m.pick(plots)(s)
        if m.chance(.2):
            s.turns(talk.simple(m) if m.chance(.5) else [(m.pick(["Thanks!", "Thank you", "Great, thanks"]), "You are welcome!")])
    if m.chance(.5):
        s.system(m.fill("[You are a coding agent.|You are a careful coding agent. Use the tools.|You help with code. Work step by step.|"
                        "You are an agent in the project {p}.|You are a helpful assistant.]", p=m.nonsense()))
    return s.dialogue()


def one_use(s, tool):
    """Asks for a tool, sometimes through an error or a retry."""
    m = s.m
    use = tool.family.use(m, tool)
    s.user(use.ask)
    if m.chance(.06):
        reason = m.pick(["timeout", "service busy", "try again later", "connection reset"])
        s.raw_call(use.call, "error: " + reason)
    elif m.chance(.06):
        reason = m.pick(["access denied", "not allowed", "not found", "quota used up", "unknown " + m.nonsense()])
        s.raw_call(use.call, m.pick(["error: ", "failed: "]) + reason)
        s.answer("[That did not work: {r}.|The tool reports an error: {r}.]", r=reason)
        return
    s.raw_call(use.call, use.result)
    s.answer(use.answer)


def from_memory(s):
    """A fact told first becomes an argument later."""
    m = s.m
    key = m.pick([k for k in ("weather", "time", "mail", "user", "read") if k in s.by_family] or [None])
    if key is None:
        return one_use(s, m.pick(s.tools))
    tool = s.by_family[key]
    use = tool.family.use(m, tool)
    value = next(iter(use.call["arguments"].values()))
    if key == "mail":
        return one_use(s, tool)
    told, ask = {"weather": ("[I live in {v}|My home is in {v}|I am in {v} today]", "[What is the weather here?|How is the weather where I live?|What is the weather at my place?]"),
                 "time": ("[I live in {v}|I am in {v} now]", "[What time is it here?|What time is it at my place?]"),
                 "user": ("[My user id is {v}|I am user {v}]", "[Look me up.|Who am I in the system?|What is my mail address?]"),
                 "read": ("[I work on {v}|The file is {v}]", None)}[key]
    if ask is None:
        return one_use(s, tool)
    s.turns([(m.fill(told, v=value), m.fill("[Noted.|OK, noted.]", v=value))])
    if m.chance(.4):
        s.turns(talk.simple(m))
    s.user(ask, v=value)
    s.raw_call(use.call, use.result)
    s.answer(use.answer)


def two_in_a_row(s):
    """The result of one tool is an argument of the next."""
    m = s.m
    who, name, mail, subject = m.pick([m.number(2, 6), m.code()]), m.name(), m.mail(), m.phrase()
    s.user("[Send user {i} a mail about {s}.|Look up user {i} and mail them about {s}.|Write to user {i} about {s}.]", i=who, s=subject)
    s.call("user", toolbox.maybe_json(m, name=name, mail=mail), id=who)
    s.call("mail", m.pick(["sent", '{"ok": true}']), to=mail, subject=subject)
    s.answer("[I sent the mail to {n}.|{n} has the mail now.]", n=name)


def no_such_tool(s):
    m = s.m
    have = set(s.by_family)
    missing = [k for k in toolbox.FAMILIES if k not in have and k not in ("calculator", "list", "command")]
    family = toolbox.FAMILIES[m.pick(missing)]
    tool = family.make(m)
    s.turns([(family.use(m, tool).ask, m.pick(["I have no tool for that.", "Sorry, none of my tools can do that."]))])


def tool_talk(m, turns=None):
    """One to five requests; tools when they fit, plain answers when not."""
    pair = m.chance(.12)
    n = m.pick([1, 1, 2, 2, 3, 3, 4, 5, 6])
    s = Scene(m, toolbox.choose(m, max(n, 2) if pair else n, ("user", "mail") if pair else ()))
    for i in range(turns or m.pick([1, 1, 1, 2, 2, 3, 4, 5])):
        k = m.rng.random()
        if pair and i == 0:
            two_in_a_row(s)
        elif k < .66:
            one_use(s, m.pick(s.tools))
        elif k < .72:
            from_memory(s)
        elif k < .78:
            no_such_tool(s)
        elif k < .92:
            makers = [talk.small_talk, talk.term, talk.fact, talk.a_story]
            s.turns(m.pick(makers)(m))
        else:
            fact = recall.new_fact(m)
            s.turns([(recall.tell(m, fact) + ".", recall.acknowledge(m, fact))])
            if m.chance(.5):
                one_use(s, m.pick(s.tools))
            s.turns([recall.question(m, fact)])
    if m.chance(.4):
        s.system(talk.plain_system(m))
    return s.dialogue()
