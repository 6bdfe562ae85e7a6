# SPDX-License-Identifier: Apache-2.0
"""Tool definitions and single uses of them.

A Family describes what a tool is for: possible names and descriptions, its
parameters by role, how a user asks for it, what it returns and what to say
then.  Family.make() dresses it for one dialogue: mostly under its usual name,
often under another, sometimes under a made-up one, so that the model has to
read the definitions.  generic() makes up whole tools from a verb and a noun.

    family --make--> Tool (schema, names of parameters) --use--> Use (ask, call, result, answer)
"""
import json

import words


class Use:
    """One request for a tool: what is asked, called, returned and answered."""

    def __init__(self, ask, call, result, answer):
        self.ask, self.call, self.result, self.answer = ask, call, result, answer


class Tool:
    def __init__(self, family, name, description, params):
        self.family, self.name, self.description, self.params = family, name, description, params

    def call(self, **by_role):
        named = [(p["name"], by_role[p["role"]]) for p in self.params if by_role.get(p["role"]) is not None]
        return {"name": self.name, "arguments": dict(named)}

    def has(self, role):
        return any(p["role"] == role for p in self.params)

    def schema(self, m):
        props = {}
        for p in self.params:
            entry = {"type": p["type"]}
            if p["text"]:
                entry["description"] = p["text"]
            props[p["name"]] = entry
        shape = {"type": "object", "properties": props}
        required = [p["name"] for p in self.params if p["required"]]
        if required:
            shape["required"] = required
        if m.chance(.1):
            shape["additionalProperties"] = False
        return {"type": "function", "function": {"name": self.name, "description": self.description,
                                                 "parameters": shape}}


class Family:
    """names, descriptions: alternatives; params: (role, names, type, texts, required)."""

    def __init__(self, names, descriptions, params, use):
        self.names, self.descriptions, self.params, self.use = names.split(), descriptions, params, use

    def make(self, m, plain=False):
        name = self.names[0]
        k = m.rng.random()
        if not plain and k < .25:
            name = m.pick(self.names)
        elif not plain and k < .35:
            name = m.pick([m.nonsense() + "_" + m.pick(self.names), m.pick(self.names) + "_" + m.nonsense(),
                           m.nonsense(), m.nonsense() + "_" + m.nonsense()])
        params = []
        for role, names, kind, texts, required in self.params:
            if not required and m.chance(.5):
                continue
            alternatives = names.split()
            chosen = alternatives[0] if plain or m.chance(.65) else m.pick(alternatives)
            params.append(dict(role=role, name=chosen, type=kind, required=required,
                               text=m.pick(texts.split("|")) if m.chance(.6) else ""))
        return Tool(self, name, m.fill(m.pick(self.descriptions)), params)


def maybe_json(m, **fields):
    """A tool's result: JSON or lines of key and value."""
    k = m.between(0, 2)
    if k < 2:
        return json.dumps(fields)
    return "\n".join("%s: %s" % (a, b) for a, b in fields.items())


def use_weather(m, t):
    city, degrees = m.city(), m.between(-15, 39)
    sky = m.pick(["sunny", "cloudy", "raining", "snowing", "windy", "foggy", "clear"])
    result = maybe_json(m, **{m.pick(["temperature", "temp", "degrees", "celsius"]): degrees,
                              m.pick(["sky", "condition", "weather"]): sky})
    return Use(m.fill("[What is the weather in {c}|How is the weather in {c}|What is the weather like in {c}|Is it cold in {c}|"
                      "Weather in {c}|Do I need a coat in {c}|How warm is it in {c}|Is it raining in {c}]?", c=city),
               t.call(city=city), result,
               m.fill("[It is {d} degrees and {s} in {c}.|In {c} it is {s} with {d} degrees.]", d=degrees, s=sky, c=city))


def use_time(m, t):
    city, clock = m.city(), m.clock()
    return Use(m.fill("[What time is it in {c}|What is the time in {c}|How late is it in {c}|Tell me the time in {c}]?", c=city),
               t.call(city=city), m.pick([clock, maybe_json(m, time=clock), maybe_json(m, time=clock, zone=city)]),
               m.fill("It is {k} in {c}.", k=clock, c=city))


def use_search(m, t):
    query = m.pick([m.phrase(1, 3), m.nonsense(), m.name() + " " + m.nonsense(), m.food(), m.city()])
    found = m.fill(m.pick(["{q} is a {c} {t} [from|in] {p}", "{q} was found by {n} in {p}", "{q} costs {d} coins",
                           "{q}: a kind of {t}, often {c}"]), q=query, c=m.pick(words.COLOURS),
                   t=m.pick(words.THINGS), p=m.city(), n=m.name(), d=m.number(1, 4))
    return Use(m.fill("[Search for {q}|Search the web for {q}|Look up {q}|Find out about {q}|What is {q}? Please search.|"
                      "Please search for {q}|Google {q}|Find something about {q}][.|]", q=query),
               t.call(query=query, count=m.between(1, 9)), m.pick([found, json.dumps({"results": [found]}), "1. " + found]),
               m.fill("[I found this: {f}.|The search says: {f}.]", f=found))


def use_calculator(m, t):
    a, b, sign = m.number(1, 5), m.number(1, 4), m.pick(["+", "-", "*", "/"])
    expression = "%s %s %s" % (a, sign, b)
    value = eval(a + sign + b)
    value = round(value, 2) if sign == "/" else value
    word = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[sign]
    return Use(m.fill("[What is {e}|Calculate {e}|How much is {a} {w} {b}|What is {a} {w} {b}|Compute {e}|{e}][?|]",
                      e=expression, a=a, b=b, w=word),
               t.call(expression=expression), m.pick([str(value), maybe_json(m, result=value)]),
               m.fill("[{a} {w} {b} is {v}.|The result is {v}.]", a=a, w=word, b=b, v=value))


def use_mail(m, t):
    to, subject = m.mail(), m.phrase()
    return Use(m.fill("[Send a mail to {a} about {s}|Mail {a} with the subject {s}|Write to {a} about {s}|"
                      "Please send {a} a message about {s}][.|]", a=to, s=subject),
               t.call(to=to, subject=subject), m.pick(["sent", '{"ok": true}', "queued"]),
               m.fill("[I sent the mail to {a}.|The mail to {a} is on its way.]", a=to))


def use_timer(m, t):
    minutes, label = m.between(1, 90), m.phrase(1, 2)
    return Use(m.fill("[Set a timer for {n} minutes for {l}|Remind me of {l} in {n} minutes|Start a timer named {l} for {n} minutes][.|]",
                      n=minutes, l=label),
               t.call(minutes=minutes, label=label), m.pick(["ok", '{"status": "set"}']),
               m.fill("[The timer for {l} is set to {n} minutes.|I will remind you of {l} in {n} minutes.]", n=minutes, l=label))


def use_ticket(m, t):
    title, level, number = m.phrase(), m.pick(["low", "normal", "high", "urgent"]), m.number(2, 5)
    return Use(m.fill("[Create a ticket: {t}, priority {p}|Open a {p} ticket for {t}|File a ticket with priority {p}: {t}][.|]",
                      t=title, p=level),
               t.call(title=title, priority=level), maybe_json(m, ticket=int(number)),
               m.fill("[I created ticket {n}.|Ticket {n} is open.]", n=number))


def use_song(m, t):
    song = m.phrase(1, 3)
    return Use(m.fill("[Play {s}|Play the song {s}|I want to hear {s}|Put on {s}][.|]", s=song),
               t.call(title=song), m.pick(["playing", '{"playing": true}']), m.fill("Now playing {s}.", s=song))


def use_convert(m, t):
    amount, a, b = m.number(1, 4), *m.sample("euros dollars pounds yen francs crowns".split(), 2)
    value = m.number(1, 5)
    return Use(m.fill("[Convert {n} {a} to {b}|How much is {n} {a} in {b}|What are {n} {a} in {b}][?|]", n=amount, a=a, b=b),
               t.call(amount=int(amount), source=a, target=b), m.pick([value, maybe_json(m, amount=int(value))]),
               m.fill("{n} {a} are {v} {b}.", n=amount, a=a, v=value, b=b))


def use_list(m, t):
    folder = m.folder()
    files = [m.path().split("/")[-1] for _ in range(m.between(1, 5))]
    return Use(m.fill("[List the files in {d}|What is in {d}|Show me the files in {d}|Which files are in {d}|ls {d}]?", d=folder).replace(
        "?", m.pick(["?", ""])),
               t.call(path=folder), "\n".join(files),
               m.fill("[There {are} in {d}: {f}.|I see {f} in {d}.]", are="is one file" if len(files) == 1 else
                      "are %d files" % len(files), d=folder, f=", ".join(files)))


def use_read(m, t):
    path = m.path()
    key, value = m.ident(), m.anything()
    line = m.fill(m.pick(["{k} = {v}", "{k}: {v}", "{k}={v}"]), k=key, v=value)
    noise = [m.ident() + " = " + m.code() for _ in range(m.between(0, 3))]
    lines = noise + [line]
    m.rng.shuffle(lines)
    return Use(m.fill("[What is {k} in {p}|Read {p} and tell me {k}|Look into {p}: what is {k}|Which value has {k} in {p}]?", k=key, p=path),
               t.call(path=path), "\n".join(lines), m.fill("[{k} is {v}.|In {p}, {k} is {v}.]", k=key, v=value, p=path))


def use_write(m, t):
    path, text = m.path(), m.pick([m.phrase(), m.anything(), m.ident() + " = " + m.code()])
    return Use(m.fill("[Write \"{x}\" to {p}|Create {p} with the content \"{x}\"|Save \"{x}\" in {p}|Make a file {p} that says \"{x}\"][.|]",
                      x=text, p=path),
               t.call(path=path, content=text), m.pick(["ok", "wrote 1 line", '{"ok": true}', "%d bytes written" % len(text)]),
               m.fill("[I wrote {p}.|Done: {p} is written.]", p=path))


def use_edit(m, t):
    path = m.path()
    old, new = m.pick([(m.ident(), m.ident()), (m.number(), m.number()), (m.phrase(1, 3), m.phrase(1, 3)), (m.code(), m.code())])
    return Use(m.fill("[Replace {a} with {b} in {p}|In {p}, change {a} to {b}|Change {a} to {b} in {p}|Edit {p}: {a} should be {b}][.|]",
                      a=old, b=new, p=path),
               t.call(path=path, old=old, new=new), m.pick(["ok", "1 replacement", "edited " + path]),
               m.fill("[Done: {p} now says {b}.|I replaced {a} with {b} in {p}.]", a=old, b=new, p=path))


def use_grep(m, t):
    word = m.pick([m.ident, m.nonsense])()
    hits = ["%s:%d: %s" % (m.path(), m.between(1, 400), m.fill("{w} = {v}", w=word, v=m.number()))
            for _ in range(m.pick([0, 1, 1, 2, 3]))]
    where = ", ".join(h.split(":")[0] for h in hits)
    folder = m.folder() if t.has("path") and m.chance(.7) else None
    answer = m.fill("[{w} is in {h}.|I found {w} in {h}.]", w=word, h=where) if hits else "I found no match for %s." % word
    ask = m.fill("[Where is {w} used|Find {w}|grep for {w}|Search the code for {w}|Which files mention {w}|Where is {w} defined]", w=word)
    return Use(ask + (" in " + folder if folder else "") + m.pick(["?", "", "."]), t.call(pattern=word, path=folder),
               "\n".join(hits) or m.pick(["no matches", "(no output)"]), answer)


def use_tests(m, t):
    passed, failed = m.between(1, 300), m.pick([0, 0, 1, 2])
    bad = m.ident()
    target = m.folder() if t.has("path") and m.chance(.7) else None
    result = "%d passed, %d failed" % (passed, failed) + ("\nFAIL " + bad if failed else "")
    answer = "All %d tests pass." % passed if not failed else "%d passed and %d failed: %s." % (passed, failed, bad)
    ask = m.fill("[Run the tests|Please run the tests|Run the test suite|Do the tests pass|Test it]", x=0)
    return Use(ask + (" in " + target if target else "") + m.pick(["?", "", "."]), t.call(path=target), result, answer)


def use_command(m, t):
    command = m.pick(["make", "ls", "cat", "git log", "git diff", "python3", "echo", "wc -l", "touch"]) + " " + m.pick([m.path, m.nonsense])()
    out = m.pick([m.code, m.number, m.phrase])()
    return Use(m.fill("[Run {c}|Please run {c}|Execute {c}|Run the command {c}]", c=command), t.call(command=command), out,
               m.fill("[It printed {o}.|The output is {o}.]", o=out))


def use_user(m, t):
    who, mail = m.pick([m.number(2, 6), m.code()]), m.mail()
    name = m.name()
    return Use(m.fill("[Who is user {i}|Look up user {i}|What is the mail address of user {i}|Show me user {i}]?", i=who),
               t.call(id=who), maybe_json(m, name=name, mail=mail), m.fill("User {i} is {n}, {e}.", i=who, n=name, e=mail))


PATH = ("path", "path file_path file filename", "string", "Path of the file|The file|File path", True)
FAMILIES = {
    "weather": Family("get_weather weather current_weather weather_lookup", ["Get the [current |]weather [for|in|of] a city", "Current weather at a place"],
                      [("city", "city location place town", "string", "City name|The city|Name of the place", True)], use_weather),
    "time": Family("get_time current_time clock time_in", ["Get the [current |]time in a city", "Tell the local time of a place"],
                   [("city", "city location place timezone", "string", "City name|The city", True)], use_time),
    "search": Family("search web_search find_online lookup", ["Search the web", "Search for something [online|on the internet]", "Look something up"],
                     [("query", "query q text term", "string", "What to search for|Search terms", True)], use_search),
    "calculator": Family("calculator calc calculate evaluate", ["Evaluate an arithmetic expression", "Calculate [a sum|an expression]", "Do arithmetic"],
                         [("expression", "expression expr input formula", "string", "The expression|For example 2 + 2", True)], use_calculator),
    "mail": Family("send_mail send_email mail notify", ["Send [an e-mail|a mail|a message]"],
                   [("to", "to recipient address", "string", "Address of the recipient", True),
                    ("subject", "subject title about", "string", "The subject", True)], use_mail),
    "timer": Family("set_timer start_timer remind timer", ["Set a timer", "Remind the user after some minutes"],
                    [("minutes", "minutes duration mins", "integer", "Minutes to wait", True),
                     ("label", "label name what", "string", "What it is for", True)], use_timer),
    "ticket": Family("create_ticket open_ticket new_issue", ["[Create|Open] a ticket", "File a new issue"],
                     [("title", "title summary name", "string", "Title of the ticket", True),
                      ("priority", "priority level", "string", "low, normal, high or urgent", True)], use_ticket),
    "song": Family("play_song play music play_music", ["Play [a song|music]"], [("title", "title song name", "string", "Title of the song", True)], use_song),
    "convert": Family("convert_currency convert exchange", ["Convert [an amount of |]money", "Exchange one currency into another"],
                      [("amount", "amount value", "number", "How much", True), ("source", "from source", "string", "Currency to convert from", True),
                       ("target", "to target", "string", "Currency to convert to", True)], use_convert),
    "list": Family("list_files ls list_dir list_directory", ["List the files in a [folder|directory]", "Show what is in a folder"],
                   [("path", "path dir folder directory", "string", "The folder|Folder to list", True)], use_list),
    "read": Family("read_file read cat view open_file", ["Read a file", "Show the content of a file", "Return the text of a file"], [PATH], use_read),
    "write": Family("write_file write create_file save_file", ["Write [text to a file|a file]", "Create a file with the given content"],
                    [PATH, ("content", "content text data", "string", "Text to write|The content", True)], use_write),
    "edit": Family("edit_file edit replace str_replace", ["Replace text in a file", "Edit a file by replacing a piece of text"],
                   [PATH, ("old", "old_text old old_string find", "string", "Text to replace|The old text", True),
                    ("new", "new_text new new_string replacement", "string", "New text|Text to put there", True)], use_edit),
    "grep": Family("grep search_code find_text code_search", ["Search [files for a pattern|the code|for text in files]", "Find lines that contain a pattern"],
                   [("pattern", "pattern query text regex", "string", "What to look for|The pattern", True),
                    ("path", "path dir folder", "string", "Where to look|Folder to search", False)], use_grep),
    "tests": Family("run_tests test check run_test_suite", ["Run the tests", "Run the test suite [and report the result|]"],
                    [("path", "path target dir", "string", "Which tests to run", False)], use_tests),
    "command": Family("run_command bash shell execute", ["Run a [shell |]command", "Execute a command in the shell"],
                      [("command", "command cmd line", "string", "The command|Command to run", True)], use_command),
    "user": Family("get_user find_user user_info", ["Look up a user", "Get [the data of|details about] a user"],
                   [("id", "id user_id user", "string", "Id of the user", True)], use_user),
}

ACTS = """start stop restart open close lock unlock cancel approve reject archive delete pause resume rename
inspect reset enable disable assign renew order book publish""".split()


def generic(m):
    """A made-up tool on a made-up or ordinary thing; returns a Tool whose family can use it."""
    verb, noun = m.pick(ACTS), m.pick(words.THINGS) if m.chance(.7) else m.nonsense()
    draw = m.pick([m.code, m.number, m.name, m.nonsense])
    extra = m.pick([None, None, ("reason", m.phrase), ("count", lambda: int(m.number(1, 3))), ("level", lambda: int(m.number(1, 2))),
                    ("date", m.date), ("owner", m.name), ("port", lambda: int(m.port())), ("note", m.phrase), (m.nonsense(), m.code)])
    key = m.pick(["id", noun + "_id", "name", noun])

    def use(m, t):
        target = draw()
        more = {"extra": extra[1]()} if extra else {}
        tail = m.fill("[ with {k} {v}|, {k} {v}| and set {k} to {v}]", k=extra[0], v=more["extra"]) if extra else ""
        ask = m.fill("[Please |Can you |I want you to |]{v} [the |]{n} {t}{tail}[.|]", v=verb, n=noun, t=target, tail=tail)
        ticket = m.code()
        return Use(ask[0].upper() + ask[1:], t.call(key=target, **more),
                   m.pick(["ok", "done", '{"ok": true}', json.dumps({"status": "ok", "reference": ticket})]),
                   m.fill("[Done: {v} {n} {t}.|The request to {v} {n} {t} went through.]", v=verb, n=noun, t=target))
    params = [("key", key, "string", "Which " + noun, True)]
    if extra:
        kind = "integer" if extra[0] in ("count", "level", "port") else "string"
        params.append(("extra", extra[0], kind, "The " + extra[0], True))
    name = m.pick([verb + "_" + noun] * 4 + [noun + "_" + verb, noun + "." + verb if m.chance(.2) else verb + noun.capitalize()])
    return Family(name, ["%s a %s" % (verb.capitalize(), noun), "%s the given %s" % (verb.capitalize(), noun)], params, use).make(m, plain=True)


def choose(m, n, need=(), plain=None):
    """n different tools with the needed families among them, in random order; plain: all under their usual names."""
    plain = m.chance(.5) if plain is None else plain
    keys = list(need) + m.sample([k for k in FAMILIES if k not in need], max(0, n - len(need)))
    tools = [FAMILIES[k].make(m, plain) for k in keys]
    for i in range(len(need), len(tools)):
        if m.chance(.2):
            tools[i] = generic(m)
    names = set()
    tools = [t for t in tools if not (t.name in names or names.add(t.name))]
    m.rng.shuffle(tools)
    return tools
