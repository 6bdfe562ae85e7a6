# SPDX-License-Identifier: Apache-2.0
"""Long text with nothing in it to remember: dialogues and manuals between a fact and its question.

    filler(m, turns)   turns of small talk, terms, sums, copying and stories
    manual(m, n)       about n characters of rules and notes, like the system prompt of an agent

Neither tells a fact of recall.py, so the answer to a later question stays the one told elsewhere.
"""
import talk
import words

RULES = ["[Always|Never|Usually] {v} the {n} before you {v2} the {n2}.",
         "[Use|Prefer|Avoid] {i} when the {n} of the {t} is [full|empty|large|small|old].",
         "If the {t} fails, {v} the {n} and {v2} it again.",
         "The {t} keeps its {n} in {p}; do not {v} it by hand.",
         "{w} and {w2} mean the same here.",
         "A {t} has [one|two|three|many] {n}s, and each {n} has a {n2}.",
         "To {v} a {t}, call {i}({n}, {n2}) and wait for the {n}.",
         "Keep answers short, and name the {n} that you {v}.",
         "When the user asks for a {t}, {v} {p} first.",
         "See {p} for the {n} of every {t}."]
TITLES = ["# {t} and {t2}", "## How to {v} a {t}", "## Rules for the {n}", "# {w}", "### {i}", "## {n} and {n2}"]
CODE = ["{i} = {i2}({n})", "{i}:{d}", "    {v}_{n}({d})", "$ {v} {p}", "{{\"{n}\": \"{w}\", \"{n2}\": {d} }}", "// {v} the {n2}"]


def filled(m, template):
    text = m.fill(template.replace("{{", "\1").replace("}}", "\2"), v=m.pick(words.VERBS), v2=m.pick(words.VERBS), n=m.pick(words.NOUNS),
                  n2=m.pick(words.NOUNS), t=m.pick(words.THINGS), t2=m.pick(words.THINGS), i=m.ident(), i2=m.ident(), p=m.path(),
                  w=m.nonsense(), w2=m.nonsense(), d=m.number(1, 4))
    return text.replace("\1", "{").replace("\2", "}")


def section(m):
    lines = [filled(m, m.pick(TITLES))]
    kind = m.between(0, 3)
    if kind == 0:
        lines += ["- " + filled(m, m.pick(RULES)) for _ in range(m.between(2, 7))]
    elif kind == 1:
        lines += ["%d. %s" % (i + 1, filled(m, m.pick(RULES))) for i in range(m.between(2, 6))]
    elif kind == 2:
        lines += ["```"] + [filled(m, m.pick(CODE)) for _ in range(m.between(2, 6))] + ["```"]
    else:
        lines += [" ".join(filled(m, m.pick(RULES)) for _ in range(m.between(2, 6)))]
    return "\n".join(lines)


def manual(m, n):
    text = []
    while n > 0:
        text.append(section(m))
        n -= len(text[-1]) + 2
    return "\n\n".join(text)


def filler(m, turns):
    out = []
    for _ in range(turns):
        out += talk.simple(m)
    return out


def filler_dialogue(m):
    """For the corpus: several hundred tokens of either kind."""
    messages = [{"role": "system", "content": manual(m, m.between(300, 2500))}] if m.chance(.5) else []
    for ask, reply in filler(m, m.between(1, 3) if messages else m.between(4, 14)):
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": reply}]
    return {"messages": messages}
