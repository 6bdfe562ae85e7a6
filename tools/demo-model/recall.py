# SPDX-License-Identifier: Apache-2.0
"""Telling the model something and asking for it later.

A fact has a key, a way to draw a value, ways to state it, to acknowledge it, to
ask for it and to answer.  The "free" kind makes up the key as well.  A
dialogue states one to four facts, talks about other things, and asks.
"""
import talk
import words

FACTS = {
    "name": ("name", "[My name is {v}|I am {v}|I'm {v}|Call me {v}|you can call me {v}|Hi, my name is {v}|Hello, I am {v}]",
             "[Nice to meet you, {v}!|Hello {v}!|Hello, {v}. How can I help you?]",
             "[What is my name|Who am I|Do you remember my name|What am I called|Can you tell me my name]?",
             "[Your name is {v}.|You are {v}.]"),
    "colour": ("colour", "[My favourite colour is {v}|I like {v} best|The colour I like most is {v}]",
               "[I will remember that you like {v}.|A nice colour, {v}.]",
               "[What is my favourite colour|Which colour do I like|Do you know my favourite colour]?",
               "[Your favourite colour is {v}.]"),
    "port": ("port", "[The port is {v}|The server listens on port {v}|Use port {v}|Please remember port {v}]",
             "[Noted: port {v}.|OK, the port is {v}.]",
             "[What is the port|Which port was it|Which port should I use|What port did I say]?",
             "[The port is {v}.|It is port {v}.]"),
    "meeting": ("clock", "[The meeting is at {v}|Our meeting is at {v}|We meet at {v}|The meeting starts at {v}]",
                "[Noted: the meeting is at {v}.|OK, the meeting is at {v}.]",
                "[When is the meeting|At what time is the meeting|When do we meet|What time is our meeting]?",
                "[The meeting is at {v}.]"),
    "city": ("city", "[I live in {v}|I come from {v}|My home is in {v}]",
             "[I will remember that you live in {v}.|Noted: you live in {v}.]",
             "[Where do I live|Which city do I live in|Where is my home]?", "[You live in {v}.]"),
    "food": ("food", "[My favourite food is {v}|I love to eat {v}]",
             "[I will remember that you like {v}.]",
             "[What is my favourite food|What do I like to eat]?", "[Your favourite food is {v}.]"),
    "pet": ("name", "[My {k} is called {v}|I have a {k} named {v}|The name of my {k} is {v}]",
            "[Say hello to {v}.|Noted: your {k} is called {v}.]",
            "[What is my {k} called|What is the name of my {k}|How is my {k} called]?",
            "[Your {k} is called {v}.]"),
    "code": ("code", "[The {k} code is {v}|The code of the {k} is {v}|Remember this {k} code: {v}]",
             "[Noted: the {k} code is {v}.|OK, {v}.]",
             "[What is the {k} code|What was the {k} code|Tell me the {k} code]?", "[The {k} code is {v}.]"),
    "free": ("anything", "[The {k} is {v}|My {k} is {v}|Please remember: the {k} is {v}|Remember that the {k} is {v}|"
             "Note that the {k} is {v}|{k}: {v}]",
             "[Noted: the {k} is {v}.|OK, I will remember that the {k} is {v}.|Noted.]",
             "[What is the {k}|What was the {k}|Do you remember the {k}|Tell me the {k}|What is my {k}|Which {k} did I give you]?",
             "[The {k} is {v}.]"),
    "date": ("date", "[The {k} is due on {v}|The deadline of the {k} is {v}]", "[Noted: the {k} is due on {v}.]",
             "[When is the {k} due|What is the deadline of the {k}]?", "[The {k} is due on {v}.]"),
}
PETS = "dog cat horse parrot rabbit hamster fish goat".split()


def free_key(m):
    noun = m.pick([m.pick(words.NOUNS), m.pick(words.THINGS), m.nonsense()])
    first = m.pick(["", "", m.pick(words.NOUNS) + " ", m.pick(words.COLOURS) + " ", m.nonsense() + " ", "second ", "new "])
    return first + noun + m.pick(["", "", "", " number", " name", " address", " password"])


def new_fact(m):
    kind = m.pick(["name", "name", "colour", "port", "meeting", "city", "food", "pet", "code", "code", "free",
                   "free", "free", "free", "date"])
    draw, state, ack, ask, answer = FACTS[kind]
    key = m.pick(PETS) if kind == "pet" else m.pick(words.THINGS) if kind in ("code", "date") else free_key(m)
    value = getattr(m, draw)()
    return dict(kind=kind, k=key, v=value, state=state, ack=ack, ask=ask, answer=answer)


def tell(m, fact):
    text = m.fill(fact["state"], **fact)
    return text[0].upper() + text[1:] if m.chance(.8) else text


def acknowledge(m, fact):
    text = m.fill(fact["ack"], **fact)
    return text[0].upper() + text[1:]


def question(m, fact):
    return m.fill(fact["ask"], **fact), m.fill(fact["answer"], **fact)


def some_facts(m, n):
    facts, seen = [], set()
    while len(facts) < n:
        fact = new_fact(m)
        key = (fact["kind"], fact["k"] if fact["kind"] in ("pet", "code", "free", "date") else "")
        if key not in seen:
            seen.add(key)
            facts.append(fact)
    return facts


def not_told(m):
    ask = m.pick([f[3] for k, f in FACTS.items() if k in ("name", "colour", "meeting", "city", "food", "port")])
    return [(m.fill(ask), "You have not told me that yet.")]


def several_at_once(m, facts):
    text = " and ".join(m.fill(f["state"], **f) for f in facts)
    return [(text + ".", m.pick(["Noted.", "Thank you, I will remember that.", "OK, noted."]))]


def stating(m, facts):
    """Turns that tell the facts, with other talk in between."""
    turns = []
    if len(facts) > 1 and m.chance(.35):
        turns += several_at_once(m, facts)
    else:
        for fact in facts:
            turns.append((tell(m, fact) + m.pick([".", "", "."]), acknowledge(m, fact)))
            if m.chance(.3):
                turns += talk.simple(m)
    return turns


def conversation(m):
    """Returns turns; questions about facts come after some other turns."""
    facts = some_facts(m, m.pick([1, 1, 2, 2, 3, 4]))
    turns = not_told(m) if m.chance(.1) and not any(f["kind"] != "free" for f in facts) else []
    turns += stating(m, facts)
    for _ in range(m.pick([0, 0, 1, 1, 2, 3, 5])):
        turns += talk.simple(m)
    if m.chance(.2):
        fact = m.pick(facts)
        fact["v"] = getattr(m, FACTS[fact["kind"]][0])()
        turns.append((m.fill("[Actually|Correction|Sorry|No, wait]: ", **fact) + m.fill(fact["state"], **fact) + ".",
                      m.fill("[Noted.|OK, I have changed that.]")))
    for fact in m.sample(facts, len(facts)):
        if m.chance(.3):
            turns += talk.simple(m)
        turns.append(question(m, fact))
    if m.chance(.2):
        turns.append(question(m, m.pick(facts)))
    return turns


def from_notes(m):
    """Facts in one block of text, asked for at once."""
    facts = some_facts(m, m.between(2, 6))
    lines = [tell(m, f) + "." for f in facts]
    text = m.pick(["\n", " "]).join(lines)
    first = m.pick(facts)
    ask, answer = question(m, first)
    turns = [(m.fill("[Here are some notes:|Read this:|Notes:|]", **first).strip() + "\n" + text + "\n" + ask, answer)]
    if not turns[0][0].strip():
        turns = []
    for fact in m.sample([f for f in facts if f is not first], m.between(0, 3)):
        turns.append(question(m, fact))
    return [(u.strip(), a) for u, a in turns]
