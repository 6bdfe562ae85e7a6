# SPDX-License-Identifier: Apache-2.0
"""Short stories from a template grammar: a request with wishes, a story that grants them.

The hero, its kind, the place and the thing come from the request when it names
them, so a story is also copying practice.  Each plot is a list of sentences and
each sentence has several wordings.
"""
import words

THINGS = "lamp key boat map drum bell kite coin book hat ring stone shell flute basket lantern letter apple".split()
FEEL = "kind quiet brave small clever old young shy merry curious patient lonely".split()

OPEN = [
    "[Once upon a time|Long ago|One morning|Many years ago|One winter|One day] there was a {feel} {kind} named {hero} who lived in a {place}.",
    "In a {place} [far away|by the sea|under the hills|at the edge of the world] there lived a {feel} {kind} called {hero}.",
    "{hero} was a {feel} {kind} who lived in a [small|quiet|windy|green|old] {place}.",
]
PLOTS = [
    ["{hero} had a {thing} and [loved it very much|carried it everywhere|never let it go].",
     "One [night|evening|day] a [storm|strong wind|flood] came and the {thing} was gone.",
     "{hero} looked [behind every tree|under every stone|in every corner], but [found nothing|could not find it].",
     "Then {hero} met a {kind2} [who was sitting in the rain|who had hurt a foot|who was crying].",
     "{hero} [helped the {kind2}|shared some {food} with the {kind2}|stayed with the {kind2} all night].",
     "The {kind2} [smiled|laughed|was glad] and said: I [saw|found] your {thing} [by the river|near the old well|on the hill].",
     "Together they [went there|ran there|walked there], and there it was.",
     "From that day on {hero} and the {kind2} were [friends|the best of friends]."],
    ["Every day {hero} [looked at the mountains|watched the road|dreamed of the sea].",
     "I want to see [what is behind them|where it ends|the whole world], said {hero}.",
     "So {hero} packed some {food} and a {thing} and [set off|left at dawn|started walking].",
     "The way was [long|steep|hard] and the nights were [cold|dark].",
     "A {kind2} [came along|stood by the road] and asked: where are you going?",
     "To the end of the world, said {hero}, and they [went on together|walked side by side].",
     "After [many days|seven days|a long time] they [came to|reached] [a shining lake|a wide shore|a golden field].",
     "{hero} [sat down|was silent|smiled] and thought: [now I can go home|home is just as beautiful|it was worth every step]."],
    ["The others in the {place} [laughed at|did not listen to] {hero}, because {hero} was so {feel}.",
     "One night {hero} [heard a noise|saw smoke|smelled fire].",
     "Everyone was asleep, so {hero} took the {thing} and [made all the noise there was|rang it and shouted|ran from door to door].",
     "They all [woke up|came out] and [saved the {place}|put out the fire] just in time.",
     "In the morning a {kind2} brought {food} and said: [thank you|we were wrong about you], {hero}.",
     "After that nobody laughed at {hero} again."],
    ["{hero} found a {thing} [in the grass|under a tree|on the shore].",
     "It was [old and dusty|very small|cold and bright], but when {hero} touched it, it [began to glow|began to sing|spoke].",
     "You have one wish, said the {thing}.",
     "{hero} thought about [gold|a big house|endless {food}], but then saw a {kind2} who [was hungry|was alone|had no home].",
     "I wish that the {kind2} [may be happy|has all it needs|is never alone], said {hero}.",
     "The {thing} [went dark|fell silent], and the {kind2} [began to dance|laughed for joy].",
     "And {hero} was [happier than ever before|not sorry at all]."],
    ["Each year there was a great race in the {place}.",
     "{hero} was [not fast|small and slow], but wanted to [try|run] all the same.",
     "You will [never win|be the last], said a {kind2}.",
     "The race began and the {kind2} was [far ahead|out of sight] at once.",
     "But [halfway|at the bridge|at the last bend] the {kind2} [fell into a hole|got lost|lay down to sleep].",
     "{hero} stopped and [pulled the {kind2} out|showed the way|woke the {kind2}].",
     "They [ended the race together|crossed the line side by side], and both got the {thing} as a prize.",
     "The {kind2} said: [you are the true winner|next time I run with you], {hero}."],
    ["One [spring|autumn|summer] there was no [rain|food|light] in the {place}.",
     "Everybody was [worried|hungry|sad], but {hero} had an idea.",
     "{hero} took the {thing} and went to a {kind2}, who was [old and wise|known to be wise].",
     "Plant [your last {food}|the {thing}|a song] and wait, said the {kind2}.",
     "{hero} did so and waited [three days|seven nights|a whole month].",
     "Then [a great tree grew|the clouds came|the sun came back] and there was enough for all.",
     "They still tell the story of {hero} in that {place}."],
]
CLOSE = ["", "", " The end.", " And all was well.", " That is the story of {hero}."]


def request_and_story(m):
    wish = {"hero": m.name(), "kind": m.pick(words.ANIMALS), "place": m.pick(words.PLACES),
            "thing": m.pick(THINGS)}
    told = m.pick([("kind",), ("hero", "kind"), ("kind", "place"), ("hero",), ("place",), (), ("kind", "thing"),
                   ("hero", "kind", "place"), ("hero", "kind", "thing"), ("hero", "kind", "place", "thing")])
    if "kind" in told and m.chance(.3):
        wish["kind"] = m.pick(["robot", "dragon", "king", "queen", "sailor", "baker", "child", "wizard", "knight",
                               "giant", "girl", "boy", "ghost", "snowman", "pirate", "witch"])
    ask = m.fill("[Tell me a story|Tell a story|Please tell me a story|Write a short story|Can you tell me a story|"
                 "I would like a story|Make up a story|tell me a short story|Give me a story]")
    if told:
        ask += " about " + (m.fill("a {kind}", **wish) if "kind" in told else
                            wish["hero"] if "hero" in told else "a " + wish["place"])
    if "hero" in told and "kind" in told:
        ask += m.fill(" [named|called] {hero}", **wish)
    if "place" in told and ask[-len(wish["place"]):] != wish["place"]:
        ask += m.fill(" in a {place}", **wish)
    if "thing" in told:
        ask += m.fill(" and a {thing}", **wish)
    others = [a for a in words.ANIMALS if a != wish["kind"]]
    fixed = dict(wish, kind2=m.pick(others), feel=m.pick(FEEL), food=m.pick(words.FOODS[2:]))
    lines = [m.pick(OPEN)] + m.pick(PLOTS)
    text = m.fill(" ".join(lines) + m.pick(CLOSE), **fixed)
    for vowel in "aeiou":
        text = text.replace(" a " + vowel, " an " + vowel)
        ask = ask.replace(" a " + vowel, " an " + vowel)
    return ask + m.pick([".", "", "."]), text
