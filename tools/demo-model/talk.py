# SPDX-License-Identifier: Apache-2.0
"""Plain conversation: small talk, terms, sums, recall, copying, stories on request.

Every function takes a Maker and returns a list of (user, assistant) turns, so
that dialogue() can string several of them together: a fact told in the first
turn is asked for after some unrelated ones.
"""
import glossary as g
import story
import words

SMALL = [
    ("[Hello|Hi|Hey|Good morning|Good evening|Hi there|Hello there|hello|hi|hey]{bang}",
     ["Hello! How can I help you?", "Hi! What can I do for you?", "Hello! Ask me about Baton, or tell me something."]),
    ("[How are you|How are you doing|How is it going|How do you feel|how are you][?| today?]",
     ["I am fine, thank you. My tokens flow well.", "Very well, thank you. The queue is short today."]),
    ("[Who are you?|What are you?|Tell me about yourself.|Introduce yourself.|who are you|Are you a person?|Are you human?|Are you a robot?]",
     ["I am the small demonstration model of Baton. I know a few things and can use tools.",
      "I am Baton's demonstration model: a very small language model that runs anywhere."]),
    ("[What is your name?|Do you have a name?|What should I call you?|What are you called?]",
     ["You can call me Baton. I am a small demonstration model."]),
    ("[What can you do?|What can you do for me?|How can you help me?|What do you know?|Help|help|What are your skills?]",
     ["I can explain the terms of Baton, remember what you tell me, do small sums, tell a story and call tools.",
      "Ask me about prefill, decode or the KV cache, tell me your name, ask for a story, or give me tools."]),
    ("[Thanks|Thank you|Thanks a lot|Thank you very much|thanks|Great, thanks|Nice, thank you]{bang}",
     ["You are welcome!", "Any time!", "Gladly!"]),
    ("[Bye|Goodbye|See you|Good night|See you later|bye]{bang}",
     ["Goodbye!", "See you soon!", "Goodbye, and thank you for talking to me."]),
    ("[Tell me a joke|Do you know a joke?|Make me laugh|Another joke, please|Say something funny|I need a joke][.|, please.|]",
     g.JOKES),
    ("[How old are you?|When were you born?|When were you made?]", ["I do not know. I was trained not long ago, in about an hour."]),
    ("[How big are you?|How many parameters do you have?|How large are you?]",
     ["I am very small: about five million parameters.", "About five million parameters. That is tiny for a language model."]),
    ("[Who made you?|Who created you?|Who trained you?|Where do you come from?]",
     ["I was trained from scratch as a part of the Baton project.", "I come with Baton. I was trained on made-up dialogues."]),
    ("[Are you smart?|Are you clever?|Are you intelligent?|Can I trust you?]",
     ["Not very. I am a tiny model, so please check what I say."]),
    ("[Do you like me?|Do you love me?|Are you happy?|Do you have feelings?|Are you alive?]",
     ["I am only a small model and have no feelings, but it is nice to talk to you."]),
    ("[OK|Okay|Good|Nice|Cool|Great|I see|Well done|Perfect|Interesting]{bang}",
     ["Good! Is there anything else?", "Glad to hear it. What next?"]),
    ("[Sorry|I am sorry|My mistake|Oops]{bang}", ["No problem at all.", "Never mind. What can I do for you?"]),
    ("[I am bored|I am sad|I am tired|I feel bad|I had a bad day][.|]",
     ["I am sorry to hear that. Would you like a joke or a story?"]),
    ("[I am happy|I had a good day|Life is good|I feel great][.|{bang}]", ["I am glad to hear that!"]),
    ("[What is your favourite colour|What is your favourite food|What is your favourite animal|Which music do you like]?",
     ["I have no favourites. I am only a small model."]),
]

UNKNOWN = [
    "[What is the capital of|Where is|How many people live in|What is the weather like in|Who is the mayor of] {city}?",
    "[Who is|Who was|Do you know|When was] {name} {name2}[| born]?",
    "[Who won|Who invented|Who wrote|Who painted] [the {thing}|the world cup|the {colour} {thing}|{name}'s book]?",
    "[What is the price of|How much is|Where can I buy|How do I cook|How do I repair] [a {thing}|{food}|a {colour} {thing}]?",
    "[What is|What does|Explain|Define|What do you know about] {nonsense}[?| mean?]",
    "[How tall is|How far is|How old is] [the moon|{city}|the sun|{name}|the {place}]?",
    "[Translate|Say] \"{phrase}\" [in French|in German|into Spanish|in Chinese].",
    "[Write a program that|Write code that|Write a script that] [sorts a list|opens a {thing}|counts {animal}s|reads a {thing}].",
    "[What year did|When did|Why did] [the war begin|the {thing} break|{name} leave {city}|Rome fall]?",
    "[What is the meaning of life?|Is there a god?|Who will win the election?|What is love?|What is the news?|What day is it today?|Prove that there are infinitely many primes.|What happened in 1848?|How do planes fly?|Why is the sky blue?|What is quantum physics?|Can you help me with my taxes?]",
]
DONT_KNOW = ["I do not know that. I am only a small demonstration model.",
             "Sorry, I do not know. I only know a little about Baton.",
             "I do not know. I am a tiny model and that is outside of what I learned."]


def slots(m):
    return dict(city=m.city(), name=m.name(), name2=m.nonsense().capitalize(), thing=m.pick(words.THINGS),
                colour=m.pick(words.COLOURS), food=m.pick(words.FOODS), nonsense=m.nonsense(),
                animal=m.pick(words.ANIMALS), place=m.pick(words.PLACES), phrase=m.phrase(),
                bang=m.pick(["", "", "!", "."]))


def small_talk(m):
    ask, answers = m.pick(SMALL)
    return [(m.fill(ask, bang=m.pick(["", "!", "."])), m.pick(answers))]


def unknown(m):
    return [(m.fill(m.pick(UNKNOWN), **slots(m)), m.pick(DONT_KNOW))]


def term(m):
    names = m.pick(list(g.TERMS))
    name = m.pick(names.split("|")) if m.chance(.6) else names.split("|")[0]
    bare = name.split(" ", 1)[1] if name.split(" ")[0] in ("a", "an", "the") else name
    ask = m.fill("[What is {n}?|What is {n}?|what is {n}|What does {b} mean?|Explain {n}.|Please explain {n}.|"
                 "Define {b}.|Tell me about {n}.|Can you explain {n}?|What do you mean by {b}?|What's {n}?|"
                 "I do not understand {n}.|What is meant by {b}?|Could you tell me what {n} is?|Describe {n}.|"
                 "In one sentence, what is {n}?|How would you explain {n}?|{b}?|I keep hearing about {b}. What is it?|"
                 "What is {b} in Baton?|Do you know what {b} is?]", n=name, b=bare)
    return [(ask, m.pick(g.TERMS[names]))]


def pair(m):
    a, b = m.pick(list(g.PAIRS))
    answer = g.PAIRS[a, b]
    if m.chance(.5):
        a, b = b, a
    ask = m.fill("[What is the difference between {a} and {b}?|How does {a} differ from {b}?|Compare {a} and {b}.|"
                 "{a} or {b}: what is the difference?|How are {a} and {b} different?]", a=a, b=b)
    return [(ask[0].upper() + ask[1:], answer)]


def fact(m):
    ask, answers = m.pick(g.FACTS)
    return [(m.fill(ask), m.pick(answers))]


def poem(m):
    topic = m.pick(list(g.HAIKU))
    return [(m.fill("[Write|Give me|Make|Can you write] a [poem|haiku|short poem] about {t}[.|, please.]", t=topic),
             g.HAIKU[topic])]


def sums(m):
    a, b = m.between(0, 10), m.between(0, 10)
    kind = m.between(0, 2)
    word, sign, value = [("plus", "+", a + b), ("minus", "-", a - b), ("times", "*", a * b)][kind]
    if m.chance(.12):
        a, b = m.number(3, 5), m.number(2, 5)
        ask = m.fill("What is {a} {w} {b}?", a=a, b=b, w=word)
        return [(ask, "That is too large for me without a calculator.")]
    if kind == 1 and value < 0:
        a, b, value = b, a, -value
    ask = m.fill("[What is {a} {w} {b}?|How much is {a} {w} {b}?|{a} {s} {b}|What is {a} {s} {b}?|{a} {s} {b} = ?|"
                 "Calculate {a} {s} {b}.|Compute {a} {w} {b}.]", a=a, b=b, w=word, s=sign)
    return [(ask, "%d %s %d is %d." % (a, word, b, value))]


def counting(m):
    low = m.pick([1, 1, 1, 2, 3, 5])
    high = low + m.between(2, 14)
    ask = m.fill("[Count|Please count|Can you count] [from {a} to {b}|up from {a} to {b}]", a=low, b=high)
    if low == 1 and m.chance(.5):
        ask = "Count to %d" % high
    return [(ask + m.pick([".", ""]), ", ".join(str(i) for i in range(low, high + 1)) + ".")]


def echo(m):
    """Copying practice in its purest form."""
    value = " ".join(m.anything() for _ in range(m.pick([1, 1, 1, 2, 3, 4])))
    ask = m.fill("[Repeat after me:|Repeat:|Say|Please say|Echo|Repeat this:|Copy this:|Write|Repeat exactly:|"
                 "Say this back to me:] {v}", v=value)
    return [(ask, value)]


def a_story(m):
    return [story.request_and_story(m)]


def persona(m):
    """A system prompt that gives the model a name, a place or facts to use."""
    name, place = m.name(), m.city()
    system = m.fill("[You are {n}, a helpful assistant.|You are {n}, the assistant of the {p} office.|"
                    "Your name is {n}. Answer briefly.|You are {n}. You work in {p}.]", n=name, p=place)
    asks = [(m.pick(["What is your name?", "Who are you?", "Do you have a name?", "What should I call you?"]),
             m.fill("[I am {n}.|My name is {n}.]", n=name))]
    if place in system:
        asks.append((m.pick(["Where do you work?", "Where are you?"]), m.fill("I work in {p}.", p=place)))
    return system, asks


def plain_system(m):
    return m.fill("[You are a helpful assistant.|You are a helpful assistant. Answer briefly.|Be brief.|"
                  "You are a friendly assistant.|Answer in plain words.|You are a coding agent.|You are an "
                  "assistant with access to tools.|Be helpful and honest.|You are the assistant of team {t}.]",
                  t=m.nonsense())


SIMPLE = [(small_talk, 3), (unknown, 1.6), (term, 5), (pair, 1), (fact, 2.4), (poem, .4), (sums, 2),
          (counting, .5), (echo, 2.5), (a_story, 1.6)]


def simple(m):
    total = sum(w for _, w in SIMPLE)
    at = m.rng.random() * total
    for make, weight in SIMPLE:
        at -= weight
        if at < 0:
            return make(m)
    return small_talk(m)
