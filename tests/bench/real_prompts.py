# SPDX-License-Identifier: Apache-2.0
"""200 prompts for bench_real_tokens.py: (kind, text).  Kinds: chat, code, list, language, long."""

CHAT = ["What is the capital of {}?", "Tell me one fact about {}.", "Write two sentences about a journey to {}.",
        "Why do people like {}?", "Write a short poem about {}."]
PLACES = ["France", "Japan", "Brazil", "Kenya", "Iceland", "Peru", "Canada", "India", "Egypt", "Norway"]

CODE = ["Write a Python function that {}.", "Write a C function that {}.", "Explain in one sentence how a program {}."]
JOBS = ["reverses a string", "counts the words of a text", "finds the largest number of a list", "sorts a list of numbers",
        "checks whether a number is prime", "reads a file line by line", "computes a factorial", "merges two sorted lists",
        "removes duplicates from a list", "finds the shortest path in a graph", "parses a date", "computes a checksum",
        "swaps two variables", "rounds a number to two digits", "joins strings with commas"]

LIST = ["List five {}.", "Name three {}, one a line, numbered.", "Give me a comma-separated list of four {}.",
        "Which are the two best-known {}? Answer as bullets.", "Sort these by name: {}, apples, trains."]
THINGS = ["animals of the sea", "kinds of cheese", "programming languages", "planets", "musical instruments", "rivers",
          "tools of a carpenter"]

LANGUAGES = ["Wie spät ist es in {}?", "¿Qué sabes de {}?", "Parle-moi de {} en une phrase.", "Che cosa posso mangiare a {}?",
             "Расскажи мне о городе {}.", "{}について教えてください。", "请用一句话介绍{}。", "{}에 대해 말해 주세요.",
             "أخبرني عن {}.", "Γράψε μία πρόταση για {}. 🙂"]
CITIES = ["Berlin", "Madrid", "Paris", "Roma", "東京"]

LONG_WORDS = [150, 200, 250, 300, 350, 400, 450, 500, 550, 600]


def news(items, at, n_words):
    """About n_words words of the news from item `at` on, cut behind a word."""
    words = " ".join(items[at:at + 12]).split()
    return " ".join(words[:n_words])


def prompts(items):
    """All 200; items is a list of news items."""
    out = [("chat", form.format(place)) for form in CHAT for place in PLACES]
    out += [("code", form.format(job)) for form in CODE for job in JOBS]
    out += [("list", form.format(thing)) for form in LIST for thing in THINGS]
    out += [("language", form.format(city)) for form in LANGUAGES for city in CITIES]
    out += [("long", news(items, 7 * i, n)) for i, n in enumerate(LONG_WORDS * 2)]
    assert len(out) == 200 and len(set(out)) == 200
    return out
